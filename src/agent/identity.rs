//! How a request on the agent's listener becomes who: the sources of owner, session, role, subject
//! and administration context.
//!
//! Owns the reading of those sources. They are believed only from an agent whose credential was
//! checked ([`super::credential`]), they are bounded, and they are never forwarded but by the
//! policy's `inject`.

use http::{HeaderMap, HeaderName};
use serde_json::{Map, Value};

use crate::base::code::Code;
use crate::base::digest::Digest;
use crate::base::id::{Initiator, Owner, SessionId, Tenant};
use crate::base::refusal::Refusal;
use crate::draft::record::Identity;
use crate::policy::prepare::ArgsRules;

use super::credential::Agent;

/// An agent's credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentEntry {
    /// Its name: the initiator.
    pub name: Initiator,
    /// SHA-256 of its token.
    pub token_sha256: Digest,
    /// Its tenant.
    pub tenant: Tenant,
    /// Whether its runtime gets confirmation tokens.
    pub deliver_token: bool,
}

/// Where a value of the identity comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A header of an authenticated agent.
    Header(HeaderName),
    /// The agent's own name.
    Agent,
    /// A fixed value.
    Const(String),
    /// A `{name}` of the tool's path template; for the subject only.
    Path(String),
    /// A JSON Pointer into the args; for the subject only.
    Arg(String),
}

/// The identity rules of countersign.yaml. `Option`s are sources that are not declared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityRules {
    /// The agents; empty only without an `identity:` section, on a loopback address.
    pub agents: Vec<AgentEntry>,
    /// The owner's source; `None` is the constant `local`.
    pub owner: Option<Source>,
    /// The session's source; `None` is the constant `local`.
    pub session: Option<Source>,
    /// The role's source.
    pub role: Option<Source>,
    /// The subject's source.
    pub subject: Option<Source>,
    /// The administration context's source.
    pub admin_context: Option<Source>,
    /// The administration mode's source.
    pub admin_mode: Option<Source>,
    /// The message id's source.
    pub message: Option<Source>,
}

impl IdentityRules {
    /// Without an `identity:` section: everyone is initiator, owner and session `local`.
    #[must_use]
    pub const fn local() -> Self {
        Self {
            agents: Vec::new(),
            owner: None,
            session: None,
            role: None,
            subject: None,
            admin_context: None,
            admin_mode: None,
            message: None,
        }
    }
}

/// What a call itself says, for a subject from its path or args.
#[derive(Debug, Clone, Copy)]
pub struct Said<'a> {
    /// The params of the tool's path template.
    pub params: &'a [(String, String)],
    /// The args as they came.
    pub args: &'a Map<String, Value>,
    /// The tool's rules, which know what else an agent may call an arg.
    pub rules: Option<&'a ArgsRules>,
}

impl<'a> Said<'a> {
    /// The value at a JSON Pointer into the args (RFC 6901), by any name that the tool takes for
    /// the first part.
    fn arg(&self, pointer: &str) -> Option<&'a Value> {
        let rest = pointer.strip_prefix('/')?;
        let (first, rest) = match rest.find('/') {
            Some(slash) => (&rest[..slash], &rest[slash..]),
            None => (rest, ""),
        };
        let first = first.replace("~1", "/").replace("~0", "~");
        let named = match self.rules {
            Some(rules) => rules.spellings(&first).find_map(|name| self.args.get(name)),
            None => self.args.get(&first),
        };
        named?.pointer(rest)
    }
}

/// Reads the sources of one request.
#[derive(Clone, Copy)]
struct Reader<'a> {
    agent: &'a Agent,
    headers: &'a HeaderMap,
    said: Option<Said<'a>>,
}

impl IdentityRules {
    /// The headers that carry identity, each once. They are never forwarded.
    #[must_use]
    pub fn headers(&self) -> Vec<HeaderName> {
        let mut names: Vec<HeaderName> = Vec::new();
        for source in self.sources() {
            if let Source::Header(name) = source
                && !names.contains(name)
            {
                names.push(name.clone());
            }
        }
        names
    }

    fn sources(&self) -> impl Iterator<Item = &Source> {
        let Self { agents: _, owner, session, role, subject, admin_context, admin_mode, message } = self;
        [owner, session, role, subject, admin_context, admin_mode, message].into_iter().flatten()
    }

    /// Who asks, for whom. Owner, session and role must be there where their source is declared;
    /// an administration context, a message id, and a subject that the call does not name, may be
    /// absent. Without a source, owner and session are `local`.
    ///
    /// # Errors
    ///
    /// `IDENTITY_MISSING` for a declared source that is absent, over-long or has control
    /// characters; `REQUEST_AMBIGUOUS` for an identity header that stands twice.
    pub fn identity(&self, agent: &Agent, headers: &HeaderMap, said: Option<Said<'_>>) -> Result<Identity, Refusal> {
        let reader = Reader { agent, headers, said };
        let owner = reader.required(self.owner.as_ref(), "owner")?;
        let session = reader.required(self.session.as_ref(), "session")?;
        let role = match &self.role {
            Some(source) => Some(reader.required(Some(source), "role")?),
            None => None,
        };
        Ok(Identity {
            tenant: agent.tenant.clone(),
            initiator: agent.name.clone(),
            owner: Owner::new(owner).map_err(|why| missing("owner", &why.to_string()))?,
            session: SessionId::new(session).map_err(|why| missing("session", &why.to_string()))?,
            role,
            subject: reader.optional(self.subject.as_ref(), "subject")?,
            admin_context: reader.optional(self.admin_context.as_ref(), "admin_context")?,
            admin_mode: reader.optional(self.admin_mode.as_ref(), "admin_mode")?,
            message_id: reader.optional(self.message.as_ref(), "message")?,
            deliver_token: agent.deliver_token,
        })
    }
}

impl Reader<'_> {
    fn required(&self, source: Option<&Source>, what: &str) -> Result<String, Refusal> {
        let Some(source) = source else {
            return Ok("local".to_owned());
        };
        self.value(source, what)?.ok_or_else(|| missing(what, &absent(source)))
    }

    fn optional(&self, source: Option<&Source>, what: &str) -> Result<Option<String>, Refusal> {
        source.map_or(Ok(None), |source| self.value(source, what))
    }

    fn value(&self, source: &Source, what: &str) -> Result<Option<String>, Refusal> {
        let value = match source {
            // A header of a request whose agent was not checked says nothing.
            Source::Header(_) if !self.agent.checked => None,
            Source::Header(name) => read_header(self.headers, name, what)?,
            Source::Agent => Some(self.agent.name.as_str().to_owned()),
            Source::Const(value) => Some(value.clone()),
            Source::Path(name) => self
                .said
                .and_then(|said| said.params.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())),
            Source::Arg(pointer) => self.said.and_then(|said| said.arg(pointer)).and_then(as_text),
        };
        match value {
            Some(value) if value.len() > 255 => Err(missing(what, "it is longer than 255 bytes")),
            Some(value) if value.chars().any(char::is_control) => Err(missing(what, "it has control characters")),
            other => Ok(other),
        }
    }
}

fn missing(what: &str, why: &str) -> Refusal {
    Refusal::new(
        Code::IdentityMissing,
        format!("The call does not say a usable {what}: {why}. Nothing was executed; send it and call again."),
    )
}

fn absent(source: &Source) -> String {
    match source {
        Source::Header(name) => format!("the header `{name}` is absent or empty"),
        Source::Agent | Source::Const(_) => "it is not configured".to_owned(),
        Source::Path(name) => format!("the path has no `{name}`"),
        Source::Arg(pointer) => format!("the args have no `{pointer}`"),
    }
}

/// The value of an identity header; empty is absent.
fn read_header(headers: &HeaderMap, name: &HeaderName, what: &str) -> Result<Option<String>, Refusal> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(repeated(name));
    }
    match std::str::from_utf8(value.as_bytes()) {
        Ok(text) => Ok(Some(text.trim_matches([' ', '\t']).to_owned()).filter(|text| !text.is_empty())),
        Err(_) => Err(missing(what, &format!("the header `{name}` is not UTF-8"))),
    }
}

/// The refusal of an identity header that stands twice.
pub(super) fn repeated(name: &HeaderName) -> Refusal {
    Refusal::new(
        Code::RequestAmbiguous,
        format!("The identity header `{name}` stands more than once. Nothing was sent; send it once."),
    )
}

/// The text of an id: a string, or a whole number as it prints. Anything else names nobody.
fn as_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use http::HeaderValue;
    use serde_json::json;

    use super::*;

    fn rules() -> IdentityRules {
        let header = |name: &'static str| Some(Source::Header(HeaderName::from_static(name)));
        IdentityRules {
            owner: header("x-user-id"),
            session: header("x-session-id"),
            role: Some(Source::Const("user".to_owned())),
            subject: Some(Source::Arg("/target/id".to_owned())),
            admin_mode: header("x-admin-mode"),
            ..IdentityRules::local()
        }
    }

    fn agent(checked: bool) -> Agent {
        Agent {
            name: Initiator::new("bot").unwrap(),
            tenant: Tenant::new("t").unwrap(),
            deliver_token: false,
            checked,
            by: None,
        }
    }

    fn headers(lines: &[(&'static str, &[u8])]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            let value = HeaderValue::from_maybe_shared(bytes::Bytes::copy_from_slice(value)).unwrap();
            map.append(HeaderName::from_static(name), value);
        }
        map
    }

    fn code(lines: &[(&'static str, &[u8])]) -> Result<Identity, Code> {
        rules().identity(&agent(true), &headers(lines), None).map_err(|refusal| refusal.code)
    }

    #[test]
    fn owner_and_session_come_from_their_headers() {
        let who = code(&[("x-user-id", b"u1"), ("x-session-id", b"s1"), ("x-admin-mode", b"readonly")]).unwrap();
        assert_eq!((who.owner.as_str(), who.session.as_str()), ("u1", "s1"));
        assert_eq!((who.role.as_deref(), who.admin_mode.as_deref()), (Some("user"), Some("readonly")));
        assert_eq!((who.subject, who.admin_context, who.message_id), (None, None, None));
    }

    #[test]
    fn a_declared_source_that_is_absent_or_unusable_is_refused() {
        let long = [b'x'; 256];
        let lines: [&[(&'static str, &[u8])]; 6] = [
            &[("x-user-id", b"u1")],
            &[("x-session-id", b"s1")],
            &[("x-user-id", b""), ("x-session-id", b"s1")],
            &[("x-user-id", &long), ("x-session-id", b"s1")],
            &[("x-user-id", b"a\tb"), ("x-session-id", b"s1")],
            &[("x-user-id", b"\xff"), ("x-session-id", b"s1")],
        ];
        for lines in lines {
            assert_eq!(code(lines), Err(Code::IdentityMissing), "{lines:?}");
        }
    }

    #[test]
    fn a_repeated_identity_header_is_refused_even_with_equal_values() {
        let twice = [("x-user-id", &b"u1"[..]), ("x-user-id", b"u1"), ("x-session-id", b"s1")];
        assert_eq!(code(&twice), Err(Code::RequestAmbiguous));
        let optional = [
            ("x-user-id", &b"u1"[..]),
            ("x-session-id", b"s1"),
            ("x-admin-mode", b"full"),
            ("x-admin-mode", b"readonly"),
        ];
        assert_eq!(code(&optional), Err(Code::RequestAmbiguous));
    }

    #[test]
    fn identity_headers_say_nothing_without_a_checked_agent() {
        let lines = headers(&[("x-user-id", b"u1"), ("x-session-id", b"s1")]);
        let refused = rules().identity(&agent(false), &lines, None).unwrap_err();
        assert_eq!(refused.code, Code::IdentityMissing);
    }

    #[test]
    fn without_rules_everyone_is_local() {
        let who = IdentityRules::local().identity(&Agent::local(), &headers(&[("x-user-id", b"u1")]), None).unwrap();
        assert_eq!((who.owner.as_str(), who.session.as_str(), who.initiator.as_str()), ("local", "local", "local"));
    }

    #[test]
    fn the_subject_comes_from_args_and_path() {
        let lines = headers(&[("x-user-id", b"u1"), ("x-session-id", b"s1")]);
        let subject = |source: Source, args: Value| {
            let rules = IdentityRules { subject: Some(source), ..rules() };
            let params = [("id".to_owned(), "u9".to_owned())];
            let said = Said { params: &params, args: args.as_object().unwrap(), rules: None };
            rules.identity(&agent(true), &lines, Some(said)).unwrap().subject
        };
        let arg = |pointer: &str| Source::Arg(pointer.to_owned());
        assert_eq!(subject(arg("/target/id"), json!({"target": {"id": "u2"}})).as_deref(), Some("u2"));
        assert_eq!(subject(arg("/a~1b"), json!({"a/b": 7})).as_deref(), Some("7"));
        assert_eq!(subject(arg("/id"), json!({"id": null})), None);
        assert_eq!(subject(Source::Path("id".to_owned()), json!({})).as_deref(), Some("u9"));
    }

    #[test]
    fn identity_headers_are_listed_once() {
        let mut rules = rules();
        rules.message = Some(Source::Header(HeaderName::from_static("x-user-id")));
        let names: Vec<String> = rules.headers().iter().map(ToString::to_string).collect();
        assert_eq!(names, ["x-user-id", "x-session-id", "x-admin-mode"]);
    }
}
