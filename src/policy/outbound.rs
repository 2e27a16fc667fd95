//! The request as it will be sent: target, headers, body.
//!
//! Owns which headers go upstream, and which of them are sealed apart as credentials. Must never forward what identifies somebody to the guard, what
//! steers the connection, or what another part of the guard sets itself.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use crate::base::code::Code;
use crate::base::digest::Digest;
use crate::base::refusal::Refusal;
use crate::call::args::{BodyLimits, Call, WHOLE_BODY};
use crate::call::coding::Coding;
use crate::call::hop::is_hop_by_hop;
use crate::draft::record::{BodyDigest, BodyKind, Identity, Outbound};

use super::credential::is_called_credential;
use super::model::{Service, Tool};
use super::rewrite::{Changes, Fate, fields, object};

/// Headers that never go upstream with a write, beside those for one connection alone: they are set
/// by the guard, or could make the upstream read another method than the one that was judged.
const NEVER: &[&str] = &[
    "accept-encoding",
    "content-length",
    "expect",
    "host",
    "idempotency-key",
    "traceparent",
    "tracestate",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
];
/// The guard's own headers begin like this.
const OWN_PREFIX: &str = "countersign-";
/// Headers that change what a write does; the args hash binds them.
const CONDITIONAL: &[&str] =
    &["content-range", "if-match", "if-none-match", "if-modified-since", "if-unmodified-since"];

/// Whether a header of this name can reach the upstream at all, so that a policy may name it.
pub(super) fn is_forwarded(name: &HeaderName) -> bool {
    !NEVER.contains(&name.as_str()) && !is_hop_by_hop(name.as_str()) && !name.as_str().starts_with(OWN_PREFIX)
}

impl Service {
    /// Refuses a call that brings a credential of its own for a header that the guard injects: two
    /// credentials for one upstream, of which only one can be meant. For reads and writes.
    ///
    /// # Errors
    ///
    /// `REQUEST_AMBIGUOUS`.
    pub fn refuse_own_credential(&self, headers: &HeaderMap, identity_headers: &[HeaderName]) -> Result<(), Refusal> {
        let Some(credential) = &self.upstream.credential else { return Ok(()) };
        if headers.contains_key(&credential.header) && !identity_headers.contains(&credential.header) {
            let detail = format!(
                "The guard adds `{}` for this service by itself. Nothing was sent; call without it.",
                credential.header
            );
            return Err(Refusal::new(Code::RequestAmbiguous, detail));
        }
        Ok(())
    }

    /// The headers that the policy adds over the caller's identity, for reads and writes.
    ///
    /// # Errors
    ///
    /// `IDENTITY_MISSING` if a template names something that this caller does not have, or if the
    /// value cannot stand in a header.
    pub fn injected(&self, who: &Identity) -> Result<Vec<(HeaderName, HeaderValue)>, Refusal> {
        let values = [
            ("owner", Some(who.owner.as_str())),
            ("session", Some(who.session.as_str())),
            ("initiator", Some(who.initiator.as_str())),
            ("tenant", Some(who.tenant.as_str())),
            ("subject", who.subject.as_deref()),
            ("role", who.role.as_deref()),
            ("admin_context", who.admin_context.as_deref()),
            ("admin_mode", who.admin_mode.as_deref()),
            ("message_id", who.message_id.as_deref()),
        ];
        let values = values.into_iter().filter_map(|(name, value)| Some((name, value?.to_owned()))).collect();
        let render = |(name, template): &(HeaderName, super::template::Template)| {
            let text = template.render_plain(&values).ok();
            let value = text.filter(|text| text.trim() == text).and_then(|text| HeaderValue::from_str(&text).ok());
            value.map(|value| (name.clone(), value)).ok_or_else(|| {
                let detail = format!(
                    "The header `{name}` for this service needs a part of the identity that the call does not have."
                );
                Refusal::new(Code::IdentityMissing, format!("{detail} Nothing was sent."))
            })
        };
        self.upstream.inject.iter().map(render).collect()
    }

    /// Names of the agent's headers that must not go upstream with a call to this service, beside
    /// those of `identity_headers`: what the guard or the policy sets itself.
    fn replaces(&self, tool: Option<&Tool>, name: &HeaderName) -> bool {
        self.upstream.inject.iter().any(|(injected, _)| injected == name)
            || tool.is_some_and(|tool| tool.effect_key_header.as_ref() == Some(name))
    }
}

/// The roots of an injected header's template.
pub(super) const INJECT_ROOTS: &[&str] =
    &["owner", "session", "initiator", "tenant", "subject", "role", "admin_context", "admin_mode", "message_id"];

/// What came out of building: the request and its bytes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Built {
    pub(super) request: Outbound,
    pub(super) body: Bytes,
}

/// Builds the request. Where nothing changed, query and body are the agent's bytes.
///
/// # Errors
///
/// `REQUEST_AMBIGUOUS` for a second credential and for headers that are no text, `IDENTITY_MISSING`
/// as [`Service::injected`], `ARGS_INVALID` where an arg must be added to a body that has no names.
pub(super) fn build(
    service: &Service,
    tool: Option<&Tool>,
    call: &Call,
    who: &Identity,
    changes: &Changes,
    identity_headers: &[HeaderName],
) -> Result<Built, Refusal> {
    service.refuse_own_credential(&call.head.headers, identity_headers)?;
    let mut sorted = sort_headers(service, tool, &call.head.headers, identity_headers)?;
    let in_query =
        |name: &str| tool.and_then(|tool| tool.args.as_ref()).is_some_and(|rules| rules.schema.in_query(name));
    let raw_query = call.head.query.as_deref();
    let query = match fields(raw_query.unwrap_or_default(), changes, in_query) {
        Some(query) => Some(query),
        None => raw_query.map(str::to_owned),
    };
    // The shell has bounded the body; decoding it again needs no bound of another size.
    let limits = BodyLimits { body_bytes_max: call.body.len().max(1) };
    one_place(call, changes, &limits)?;
    let (body, kind) = match new_body(call, changes, &limits, |name| !in_query(name))? {
        Some(body) => {
            sorted.headers.retain(|(name, _)| *name != header::CONTENT_ENCODING.as_str());
            let created = call.kind == BodyKind::None;
            if created {
                sorted.headers.retain(|(name, _)| *name != header::CONTENT_TYPE.as_str());
                sorted.headers.push(("content-type".to_owned(), "application/json".to_owned()));
            }
            (Bytes::from(body), if created { BodyKind::Json } else { call.kind })
        }
        None => (call.body.clone(), call.kind),
    };
    sorted.headers.push(("accept-encoding".to_owned(), "identity".to_owned()));
    let bind = tool.map_or(&service.bind_headers, |tool| &tool.bind_headers);
    let is_bound = |(name, value): &&(String, String)| {
        CONDITIONAL.contains(&name.as_str())
            || bind.iter().any(|bound| bound.as_str() == name)
            || reads_otherwise(kind, name, value)
    };
    let mut bound: Vec<(String, String)> = sorted.headers.iter().filter(is_bound).cloned().collect();
    for (name, value) in service.injected(who)? {
        let line = (name.as_str().to_owned(), text_of(&name, &value)?);
        sorted.headers.push(line.clone());
        bound.push(line);
    }
    let content_type = sorted.headers.iter().find(|(name, _)| name == "content-type").map(|(_, value)| value.clone());
    let target = target(service, call.head.path.as_str(), query.as_deref());
    let request = Outbound {
        method: call.head.method.as_str().to_owned(),
        target,
        headers: sorted.headers,
        bound_headers: bound,
        credentials: sorted.credentials,
        kind,
        body: BodyDigest {
            sha256: Digest::of(&body),
            length: u64::try_from(body.len()).unwrap_or(u64::MAX),
            content_type: content_type.unwrap_or_default(),
        },
        body_bound: call.args.body_bound || !call.args.inexact.is_empty(),
        effect_key_header: effect_key_header(tool),
    };
    Ok(Built { request, body })
}

/// Whether a header says how the body is to be read where nothing else that is bound says so: a patch
/// in JSON means something else than the same JSON as a document, and coded bytes than plain ones.
fn reads_otherwise(kind: BodyKind, name: &str, value: &str) -> bool {
    let media = value.split(';').next().unwrap_or_default().trim();
    match name {
        "content-type" => kind == BodyKind::Json && !media.eq_ignore_ascii_case("application/json"),
        "content-encoding" => kind == BodyKind::Opaque,
        _ => false,
    }
}

fn effect_key_header(tool: Option<&Tool>) -> Option<String> {
    match tool {
        None => Some("idempotency-key".to_owned()),
        Some(tool) => tool.effect_key_header.as_ref().map(|name| name.as_str().to_owned()),
    }
}

/// Scheme, authority, the upstream's own path, then path and query as the agent asked.
pub(super) fn target(service: &Service, path: &str, query: Option<&str>) -> String {
    let upstream = &service.upstream;
    let query = query.map_or_else(String::new, |query| format!("?{query}"));
    format!("{}{}{path}{query}", upstream.origin(), upstream.base_path)
}

struct Sorted {
    headers: Vec<(String, String)>,
    credentials: Vec<(String, String)>,
}

fn sort_headers(
    service: &Service,
    tool: Option<&Tool>,
    headers: &HeaderMap,
    identity_headers: &[HeaderName],
) -> Result<Sorted, Refusal> {
    let named = connection_named(headers);
    let mut sorted = Sorted { headers: Vec::new(), credentials: Vec::new() };
    for (name, value) in headers {
        let dropped = !is_forwarded(name)
            || named.iter().any(|connection| connection == name.as_str())
            || identity_headers.contains(name)
            || service.replaces(tool, name);
        if dropped {
            continue;
        }
        let mut text = text_of(name, value)?;
        if name.as_str() == "prefer" {
            text = without_own_preferences(&text);
            if text.is_empty() {
                continue;
            }
        }
        let line = (name.as_str().to_owned(), text);
        if service.upstream.credential_headers.contains(name) || is_called_credential(name) {
            sorted.credentials.push(line);
        } else {
            sorted.headers.push(line);
        }
    }
    Ok(sorted)
}

/// Header names that `Connection` lists (RFC 9110, 7.6.1).
fn connection_named(headers: &HeaderMap) -> Vec<String> {
    let lines = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(|name| name.trim().to_ascii_lowercase()).collect()
}

/// `wait` and `respond-async` speak to the guard (RFC 7240); the others to the upstream.
fn without_own_preferences(text: &str) -> String {
    let kept = text.split(',').map(str::trim).filter(|preference| {
        let name = preference.split(['=', ';']).next().unwrap_or_default().trim();
        !preference.is_empty() && !name.eq_ignore_ascii_case("wait") && !name.eq_ignore_ascii_case("respond-async")
    });
    kept.collect::<Vec<_>>().join(", ")
}

fn text_of(name: &HeaderName, value: &HeaderValue) -> Result<String, Refusal> {
    std::str::from_utf8(value.as_bytes()).map(str::to_owned).map_err(|_| {
        let detail =
            format!("The header `{name}` is not text that everybody reads alike. Nothing was sent; send UTF-8.");
        Refusal::new(Code::RequestAmbiguous, detail)
    })
}

/// The body after the changes; `None` if it stays as it came.
fn new_body(
    call: &Call,
    changes: &Changes,
    limits: &BodyLimits,
    add: impl Fn(&str) -> bool,
) -> Result<Option<Vec<u8>>, Refusal> {
    if changes.is_empty() {
        return Ok(None);
    }
    let adds = changes.added.iter().any(|(name, _)| add(name));
    match call.kind {
        BodyKind::None if !adds => Ok(None),
        BodyKind::None => Ok(object("{}", changes, add).map(String::into_bytes)),
        BodyKind::Json => {
            if let Some(fate) = changes.fates.get(WHOLE_BODY) {
                return Ok(match fate {
                    Fate::Changed { value: Some(value), .. } => Some(value.to_string().into_bytes()),
                    _ => None,
                });
            }
            if call.args.places.contains_key(WHOLE_BODY) {
                return if adds { Err(no_names()) } else { Ok(None) };
            }
            Ok(object(&plain_text(call, limits)?, changes, add).map(String::into_bytes))
        }
        BodyKind::Form => Ok(fields(&plain_text(call, limits)?, changes, add).map(String::into_bytes)),
        BodyKind::Multipart | BodyKind::Opaque if !adds => Ok(None),
        BodyKind::Multipart | BodyKind::Opaque => Err(no_names()),
    }
}

/// An arg that stands in the query and in the body with equal values is one arg; once it has to
/// change, the two would need two spellings, and that is refused instead of guessed.
fn one_place(call: &Call, changes: &Changes, limits: &BodyLimits) -> Result<(), Refusal> {
    let Some(query) = call.head.query.as_deref().filter(|_| !changes.fates.is_empty()) else { return Ok(()) };
    for (name, fate) in &changes.fates {
        if !matches!(fate, Fate::Changed { value: Some(_), .. }) {
            continue;
        }
        let only = Changes { fates: [(name.clone(), Fate::Removed)].into(), added: Vec::new() };
        let in_query = fields(query, &only, |_| false).is_some();
        if in_query && new_body(call, &only, limits, |_| false)?.is_some() {
            let detail = "An arg stands in the query and in the body. Nothing was sent; send it once.";
            return Err(Refusal::new(Code::ArgsInvalid, detail)
                .with_error(super::schema::child("", name), "stands in two places"));
        }
    }
    Ok(())
}

fn no_names() -> Refusal {
    let detail =
        "The policy fills in an arg, and this body has no place for it. Nothing was sent; send the args as JSON.";
    Refusal::new(Code::ArgsInvalid, detail).with_error("", "the body has no names")
}

fn plain_text(call: &Call, limits: &BodyLimits) -> Result<String, Refusal> {
    let plain = Coding::of(&call.head.headers)?.decode(&call.body, limits.decoded_bytes_max())?;
    String::from_utf8(plain.to_vec())
        .map_err(|_| Refusal::new(Code::BodyMalformed, "The body is not UTF-8. Nothing was sent."))
}
