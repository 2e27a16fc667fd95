//! What a request asks for, by its head alone.
//!
//! Owns the order of the questions: is the head unambiguous, whose service is it, which agent is
//! it, what does the policy select; and which headers are never forwarded. Must never read a body
//! and never decide what the policy decides.

use std::sync::Arc;

use http::header::{COOKIE, PROXY_AUTHORIZATION};
use http::{HeaderName, Version};
use pingora::proxy::Session;

use crate::base::code::Code;
use crate::base::refusal::Refusal;
use crate::call::head::{Form, Head, Present, Upgrade};
use crate::draft::record::Effect;
use crate::policy::judge::Selection;
use crate::policy::model::{Capability, CapabilityStatus, Service, Tool};

use super::credential::Agent;
use super::endpoints;
use super::identity::repeated;
use super::lanes::{Table, without_console};
use super::proxy::{AgentProxy, Exchange};

/// What a request asks for, after its head was judged.
pub(super) enum Asked<'p> {
    /// A read; with the right to relay it if it is a plain one.
    Read(Option<PlainRead>),
    /// What the guard answers itself.
    Call(Box<Called<'p>>),
}

/// The right to relay one request: it is a read without a body. Only [`AgentProxy::ask`] gives it.
pub(super) struct PlainRead(());

/// What the guard answers itself.
pub(super) enum Called<'p> {
    /// Something of the guard's own.
    Own(Arc<Agent>, Head<'static>),
    /// A write that may be held.
    Write { service: &'p Service, selection: Selection<'p>, agent: Arc<Agent>, head: Head<'static> },
}

impl AgentProxy {
    /// Judges a request by its head. What is refused here calls no upstream.
    ///
    /// # Errors
    ///
    /// The refusal to answer.
    pub(super) fn ask<'p>(
        &self,
        session: &Session,
        table: &'p Arc<Table>,
        ctx: &mut Exchange,
    ) -> Result<Asked<'p>, Refusal> {
        let request = session.req_header();
        let http10 = request.version == Version::HTTP_10;
        let mut head = Head::read(request.method.as_str(), request.raw_path(), http10, &request.headers)?;
        if head.present.cookie
            && let Some(cookies) = without_console(&head.headers)
        {
            ctx.dress.cookies = Some(cookies.clone());
            let headers = head.headers.to_mut();
            headers.remove(COOKIE);
            for value in cookies {
                headers.append(COOKIE, value);
            }
        }
        if !head.is_safe() {
            ctx.effect = Effect::Write;
        }
        if endpoints::is_own(head.path.as_str()) {
            ctx.effect = Effect::Read;
            return self.door.admit(&head).map(|agent| Asked::Call(Box::new(Called::Own(agent, head.into_owned()))));
        }
        // Who asks is known first: without a credential nobody learns which hosts and paths there are.
        let agent = self.door.admit(&head)?;
        let service = table.set.route(&head.host, head.path.as_str()).ok_or_else(no_route)?;
        ctx.service = table.index_of(service);
        if !service.upstream.read_only {
            head.check_write_capable()?;
        }
        ctx.upgrade = allowed_upgrade(service, &head)?;
        let selection = service.select(&head);
        let (effect, tool) = match &selection {
            Selection::Capability(capability) => return Err(not_enabled(capability)),
            Selection::Tool(tool, _) => (tool.effect, Some(*tool)),
            Selection::UnmatchedRead if service.unmatched.read_passes => (Effect::Read, None),
            Selection::UnmatchedWrite if service.unmatched.write_held => (Effect::Write, None),
            Selection::UnmatchedRead | Selection::UnmatchedWrite => return Err(no_tool(service)),
        };
        ctx.effect = effect;
        match effect {
            Effect::Write if ctx.upgrade => Err(no_upgrade("this call is a write")),
            Effect::Write => {
                Ok(Asked::Call(Box::new(Called::Write { service, selection, agent, head: head.into_owned() })))
            }
            Effect::Read => {
                self.prepare_read(table, &agent, &head, tool, ctx)?;
                Ok(Asked::Read(is_plain(&head).then_some(PlainRead(()))))
            }
        }
    }

    /// Works out what the upstream gets. A read needs an identity only where the service injects
    /// it or the tool is limited to roles.
    fn prepare_read(
        &self,
        table: &Table,
        agent: &Agent,
        head: &Head<'_>,
        tool: Option<&Tool>,
        ctx: &mut Exchange,
    ) -> Result<(), Refusal> {
        let Some((service, lane)) = ctx.service.and_then(|index| table.get(index)) else {
            return Err(no_route());
        };
        let limited = tool.filter(|tool| tool.roles.is_some());
        if limited.is_some() || !service.upstream.inject.is_empty() {
            let who = self.rules.identity(agent, &head.headers, None)?;
            limited.map_or(Ok(()), |tool| tool.permits(&who))?;
            ctx.dress.inject = service.injected(&who)?;
        }
        ctx.dress.target = lane.target(head.path.as_str(), head.query.as_deref(), is_origin_form(head));
        ctx.dress.drop = self.own_headers(service, agent, head)?;
        service.refuse_own_credential(&head.headers, &ctx.dress.drop)
    }

    /// Headers of this request that are the guard's or the identity's, in every spelling that an
    /// upstream could take for them. They are never forwarded.
    ///
    /// # Errors
    ///
    /// `REQUEST_AMBIGUOUS` for an identity header that stands more than once.
    pub(super) fn own_headers(
        &self,
        service: &Service,
        agent: &Agent,
        head: &Head<'_>,
    ) -> Result<Vec<HeaderName>, Refusal> {
        let injected = service.upstream.credential.as_ref().map(|credential| credential.header.as_str());
        // Without agents, clients send the key that their library asks for: where the guard adds
        // the service's credential it is not used. An agent that sends one beside its own name
        // means it, and is refused.
        let unused = injected.filter(|_| !agent.checked);
        let mut own: Vec<HeaderName> = Vec::new();
        let mut before = None;
        for name in head.headers.iter().map(|(name, _)| name) {
            // Lines of one name follow each other.
            let again = before.replace(name) == Some(name);
            if again {
                if self.identity_headers.contains(name) {
                    return Err(repeated(name));
                }
                continue;
            }
            let text = name.as_str();
            if text.starts_with("countersign-")
                || *name == PROXY_AUTHORIZATION
                || agent.by.as_ref() == Some(name)
                || self.identity_headers.iter().any(|known| is_spelling_of(text, known.as_str()))
                || unused.is_some_and(|unused| is_spelling_of(text, unused))
            {
                own.push(name.clone());
            }
        }
        Ok(own)
    }
}

/// Whether a read is one request without a body and one answer, with nothing that concerns a single
/// connection.
fn is_plain(head: &Head<'_>) -> bool {
    let Present { body, cookie: _, credential: _, hop_by_hop } = head.present;
    is_origin_form(head) && head.upgrade.is_none() && !body && !hop_by_hop
}

fn is_origin_form(head: &Head<'_>) -> bool {
    matches!(head.form, Form::Origin)
}

/// Whether `text` is `name` with `_` for `-`, as gateways to older interfaces spell headers.
fn is_spelling_of(text: &str, name: &str) -> bool {
    let same = |(one, other): (u8, u8)| one == other || one == b'_' && other == b'-';
    text.len() == name.len() && text.bytes().zip(name.bytes()).all(same)
}

/// Whether the request may switch to another protocol.
fn allowed_upgrade(service: &Service, head: &Head<'_>) -> Result<bool, Refusal> {
    match head.upgrade {
        None => Ok(false),
        Some(Upgrade::WebSocket) if service.upstream.upgrade.iter().any(|name| name == "websocket") => Ok(true),
        Some(Upgrade::WebSocket) => Err(no_upgrade("this service takes no WebSockets")),
        Some(Upgrade::H2c | Upgrade::Other) => Err(no_upgrade("HTTP/1.1 is spoken here")),
    }
}

pub(super) fn no_upgrade(why: &str) -> Refusal {
    Refusal::new(
        Code::RequestAmbiguous,
        format!("The request asks to switch protocols with `Upgrade`, and {why}. Nothing was sent; send it without."),
    )
}

pub(super) fn no_route() -> Refusal {
    Refusal::new(
        Code::RouteNotFound,
        "No service is configured for this host and path. Nothing was sent; check the base URL against the policy's `route`.",
    )
}

fn no_tool(service: &Service) -> Refusal {
    Refusal::new(
        Code::ToolNotFound,
        format!("No tool of the service `{}` declares this call. Nothing was sent.", service.name),
    )
}

fn not_enabled(capability: &Capability) -> Refusal {
    let (code, detail) = match capability.status {
        CapabilityStatus::Forbidden => (Code::CapabilityForbidden, "Agents may not do this. Nothing was sent."),
        CapabilityStatus::Planned | CapabilityStatus::Enabled => {
            (Code::CapabilityPlanned, "Nothing can carry this out yet. Nothing was sent.")
        }
    };
    let refused = Refusal::new(code, format!("`{}`: {detail}", capability.id));
    match &capability.guidance {
        Some(guidance) => refused.with_guidance(guidance.clone()),
        None => refused,
    }
}
