//! The verdict on a call, at the hold and again at the release, by the same rules.
//!
//! Owns the order: identity, media type, preparation, request, card. Must never hold what the card
//! does not show whole, and never let a refused call leave a trace upstream.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderName;
use serde_json::Value;

use crate::base::code::Code;
use crate::base::digest::Digest;
use crate::base::id::{CapabilityId, ServiceName, ToolName};
use crate::base::refusal::Refusal;
use crate::call::args::Call;
use crate::draft::binding::{self, undeclared_capability};
use crate::draft::record::{BodyKind, ConfirmRule, Effect, Identity, Outbound, Preview, Risk};

use super::card::Shown;
use super::matching::media_type;
use super::model::{self, Capability, CapabilityStatus, Opaque, PolicySet, Service, Tool};
use super::outbound::{self, Built};
use super::prepare::PreparedArgs;
pub use super::recheck::recheck;
use super::rewrite::Changes;

/// What a head alone selects, before any body is read.
#[derive(Debug, Clone)]
pub enum Selection<'p> {
    /// A planned or forbidden capability: refused with its guidance. Forbidden wins over all.
    Capability(&'p Capability),
    /// A declared tool, with the path's params.
    Tool(&'p Tool, Vec<(String, String)>),
    /// Nothing declared; the method is a read.
    UnmatchedRead,
    /// Nothing declared; the method is a write.
    UnmatchedWrite,
}

/// A write that may be held: everything that the draft will say, but for ids and times.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// The service.
    pub service: ServiceName,
    /// The tool.
    pub tool: ToolName,
    /// The capability.
    pub capability: CapabilityId,
    /// The risk.
    pub risk: Risk,
    /// The confirmation rule.
    pub confirm_rule: ConfirmRule,
    /// The prepared args.
    pub args: Value,
    /// Args that are masked wherever they are shown, as JSON Pointers.
    pub secret: Vec<String>,
    /// [`crate::draft::binding::args_hash`].
    pub args_hash: Digest,
    /// The request as it will be sent.
    pub request: Outbound,
    /// The bytes that will be sent.
    pub body: Bytes,
    /// SHA-256 of the body that the agent sent.
    pub raw_digest: Digest,
    /// The card.
    pub preview: Preview,
    /// How long the draft may wait.
    pub ttl: Duration,
    /// See [`Tool::replay_window`].
    pub replay_window: Duration,
    /// See [`Tool::refusal_memory`].
    pub refusal_memory: Duration,
    /// See [`Tool::late_release`].
    pub late_release: Duration,
    /// See [`Tool::held_status`].
    pub held_status: u16,
}

impl PolicySet {
    /// The service by name.
    #[must_use]
    pub fn service(&self, name: &ServiceName) -> Option<&Service> {
        self.services.iter().find(|service| service.name == *name)
    }
}

/// The tool name of a write that no tool declares; no policy may give it to a tool.
pub const UNDECLARED: &str = "undeclared";

/// Judges a call that was read and understood: identity rules, closed names, preparation, card.
///
/// `identity_headers` carry who asks; they never go upstream.
///
/// # Errors
///
/// The refusal to answer; nothing is held.
pub fn judge(
    service: &Service,
    selection: &Selection<'_>,
    mut call: Call,
    who: &Identity,
    identity_headers: &[HeaderName],
) -> Result<Prepared, Refusal> {
    let tool = match selection {
        Selection::Capability(capability) => return Err(guided(capability)),
        Selection::UnmatchedRead => return Err(Refusal::new(Code::ToolNotFound, NO_READ)),
        _ if service.takes_no_writes() => return Err(Refusal::new(Code::ToolNotFound, READ_ONLY)),
        Selection::UnmatchedWrite if service.unmatched.write_held => None,
        Selection::UnmatchedWrite => return Err(Refusal::new(Code::ToolNotFound, NO_TOOL)),
        Selection::Tool(tool, _) if tool.effect == Effect::Read => {
            return Err(Refusal::new(Code::ToolNotFound, NO_READ));
        }
        Selection::Tool(tool, _) => Some(*tool),
    };
    identity_rules(who)?;
    if let Some(tool) = tool {
        tool.permits(who)?;
        content_type(tool, &call)?;
    }
    let opaque = tool.map_or(service.opaque, |tool| tool.opaque);
    if call.kind == BodyKind::Opaque && opaque == Opaque::Refuse {
        return Err(Refusal::new(Code::PreviewIncomplete, OPAQUE));
    }
    let values = std::mem::take(&mut call.args.values);
    let prepared = match tool.and_then(|tool| tool.args.as_ref()) {
        Some(rules) => rules.prepare(values, &call.args, call.kind)?,
        None => PreparedArgs { values, changes: Changes::default() },
    };
    let built = outbound::build(service, tool, &call, who, &prepared.changes, identity_headers)?;
    let PreparedArgs { values, changes } = prepared;
    let args = Arc::new(Value::Object(values));
    let Some(values) = args.as_object() else { return Err(Refusal::new(Code::ArgsInvalid, NO_OBJECT)) };
    let preview =
        Shown { service, tool, call: &call, who, values, args: &args, changes: &changes, request: &built.request }
            .card()?;
    // The card is made, and nobody else holds them: they move on uncopied.
    finish(service, tool, &call, Arc::unwrap_or_clone(args), built, preview)
}

const NO_OBJECT: &str = "The args are no object. Nothing was sent.";
const NO_READ: &str = "This read is not declared, and this service passes only declared reads. Nothing was sent.";
const READ_ONLY: &str = "This service takes no writes. Nothing was sent.";
const NO_TOOL: &str = "No tool of this service is declared for this write. Nothing was sent; use a declared tool.";
const OPAQUE: &str =
    "The body is none that a person could judge, and this tool takes no such bodies. Nothing was sent.";

/// What is told of a capability that nothing carries out.
pub(super) fn guided(capability: &Capability) -> Refusal {
    let (code, detail) = match capability.status {
        CapabilityStatus::Forbidden => {
            (Code::CapabilityForbidden, "Agents may not do this. Nothing was sent; do not try another way.")
        }
        CapabilityStatus::Planned | CapabilityStatus::Enabled => (
            Code::CapabilityPlanned,
            "Nothing carries this out yet. Nothing was sent; tell the user what the guidance says.",
        ),
    };
    let refusal = Refusal::new(code, detail);
    match &capability.guidance {
        Some(guidance) => refusal.with_guidance(guidance),
        None => refusal,
    }
}

/// The rules over who asks that hold for every write, at the hold and at the release.
///
/// # Errors
///
/// `ADMIN_READONLY`, `SUBJECT_MISMATCH`.
pub(super) fn identity_rules(who: &Identity) -> Result<(), Refusal> {
    let readonly = |mode: &String| mode.trim().eq_ignore_ascii_case("readonly");
    if who.admin_mode.as_ref().is_some_and(readonly) {
        let detail = "The administration context is read-only. Nothing was sent.";
        return Err(Refusal::new(Code::AdminReadonly, detail));
    }
    let other = who.subject.as_deref().is_some_and(|subject| subject != who.owner.as_str());
    if other && who.admin_context.is_none() {
        let detail =
            "The call touches somebody else's data, and no administration context allows that. Nothing was sent.";
        return Err(Refusal::new(Code::SubjectMismatch, detail));
    }
    Ok(())
}

/// A tool with a schema takes only the media types that it names; no body needs no type.
fn content_type(tool: &Tool, call: &Call) -> Result<(), Refusal> {
    if call.kind == BodyKind::None && call.body.is_empty() {
        return Ok(());
    }
    tool.check_media_type(&call.head.headers)
}

impl Tool {
    /// Whether the tool takes a body of the type that the headers say. A shell asks before it reads
    /// the body; [`judge`] asks again.
    ///
    /// # Errors
    ///
    /// `MEDIA_TYPE_UNSUPPORTED`, with the types that it takes.
    pub fn check_media_type(&self, headers: &http::HeaderMap) -> Result<(), Refusal> {
        let sent = media_type(headers);
        if self.args.is_none() || sent.is_some_and(|sent| self.content_types.contains(&sent)) {
            return Ok(());
        }
        let taken = self.content_types.join(", ");
        let detail = match media_type(headers) {
            None => format!(
                "The request does not say what its body is, and `{}` takes {taken}. Nothing was sent; send the header \
                 Content-Type: {}.",
                self.name,
                self.content_types.first().map_or("application/json", String::as_str),
            ),
            Some(_) => format!("`{}` takes {taken}. Nothing was sent; send one of these as Content-Type.", self.name),
        };
        Err(Refusal::new(Code::MediaTypeUnsupported, detail))
    }
}

fn finish(
    service: &Service,
    tool: Option<&Tool>,
    call: &Call,
    args: Value,
    built: Built,
    preview: Preview,
) -> Result<Prepared, Refusal> {
    let nameless = |_| Refusal::new(Code::ToolNotFound, NO_TOOL);
    let (name, capability) = match tool {
        None => (ToolName::new(UNDECLARED).map_err(nameless)?, undeclared_capability()),
        // The loader gives every write tool a capability; without one nobody could have a right.
        Some(tool) => match &tool.capability {
            Some(capability) => (tool.name.clone(), capability.clone()),
            None => return Err(Refusal::new(Code::ToolNotFound, NO_TOOL)),
        },
    };
    Ok(Prepared {
        secret: tool.map(|tool| tool.secret.clone()).unwrap_or_default(),
        service: service.name.clone(),
        args_hash: binding::args_hash(&service.name, &name, &built.request, &args),
        tool: name,
        capability,
        risk: tool.map_or(Risk::Medium, |tool| tool.risk),
        confirm_rule: tool.map_or(ConfirmRule::Default, |tool| tool.confirm),
        args,
        request: built.request,
        body: built.body,
        raw_digest: Digest::of(&call.body),
        preview,
        ttl: tool.map_or(model::TTL, |tool| tool.ttl),
        replay_window: tool.map_or(model::REPLAY_WINDOW, |tool| tool.replay_window),
        refusal_memory: tool.map_or(model::REFUSAL_MEMORY, |tool| tool.refusal_memory),
        late_release: tool.map_or(model::LATE_RELEASE, |tool| tool.late_release),
        held_status: tool.map_or(service.held_status, |tool| tool.held_status),
    })
}

/// Why a draft may not be released under the policy in force now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stricter {
    /// `POLICY_CHANGED`: see [`recheck`].
    PolicyChanged,
}
