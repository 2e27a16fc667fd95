//! Which agent stands behind a request.
//!
//! Owns the agents' credentials, and the recognition of credentials that must never work here:
//! an approver's or an app's token is refused on this listener and never forwarded (promise 1).
//! Digests are compared in constant time, all of them, every time.

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::header::{AUTHORIZATION, PROXY_AUTHORIZATION};
use http::{HeaderMap, HeaderName};

use crate::base::code::Code;
use crate::base::digest::Digest;
use crate::base::id::{Initiator, Tenant};
use crate::base::refusal::Refusal;
use crate::call::head::{Head, may_carry_credential};

use super::identity::{AgentEntry, IdentityRules, repeated};

/// The header that names the agent; stripped before the upstream.
pub(super) static COUNTERSIGN_AGENT: HeaderName = HeaderName::from_static("countersign-agent");

/// SHA-256 of every approver's and app's token, the generated one too. Swapped on reload.
pub type ForeignTokens = Arc<ArcSwap<Vec<Digest>>>;

/// The agent behind a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// Its name.
    pub name: Initiator,
    /// Its tenant.
    pub tenant: Tenant,
    /// Whether its runtime gets confirmation tokens.
    pub deliver_token: bool,
    /// Whether a credential was checked; only then are identity headers believed.
    pub checked: bool,
    /// The header that its credential stood in; `None` without a credential.
    pub by: Option<HeaderName>,
}

impl Agent {
    /// Everyone, where no agents are configured (loopback only).
    #[must_use]
    #[allow(clippy::expect_used)]
    pub fn local() -> Self {
        Self {
            name: Initiator::new("local").expect("a short word is a legal name"),
            tenant: Tenant::new("default").expect("a short word is a legal name"),
            deliver_token: false,
            checked: false,
            by: None,
        }
    }

    fn of(entry: &AgentEntry, by: &HeaderName) -> Self {
        Self {
            name: entry.name.clone(),
            tenant: entry.tenant.clone(),
            deliver_token: entry.deliver_token,
            checked: true,
            by: Some(by.clone()),
        }
    }
}

/// An agent's credential, and who it is by either header.
#[derive(Debug)]
struct Known {
    token_sha256: Digest,
    named: Arc<Agent>,
    bearer: Arc<Agent>,
}

/// The door of the agent's listener, and of the one call that agents may make at another.
#[derive(Debug)]
pub struct Door {
    agents: Vec<Known>,
    foreign: ForeignTokens,
    local: Arc<Agent>,
}

impl Door {
    /// `foreign` are the credentials of the control listener.
    #[must_use]
    pub fn new(rules: &IdentityRules, foreign: ForeignTokens) -> Self {
        let known = |entry: &AgentEntry| Known {
            token_sha256: entry.token_sha256,
            named: Arc::new(Agent::of(entry, &COUNTERSIGN_AGENT)),
            bearer: Arc::new(Agent::of(entry, &AUTHORIZATION)),
        };
        Self { agents: rules.agents.iter().map(known).collect(), foreign, local: Arc::new(Agent::local()) }
    }

    /// The agent behind a request with this head.
    ///
    /// # Errors
    ///
    /// `AGENT_UNKNOWN` for a credential of the control listener, an unknown one, or none where
    /// agents are configured; `REQUEST_AMBIGUOUS` for one that stands twice.
    pub(super) fn admit(&self, head: &Head<'_>) -> Result<Arc<Agent>, Refusal> {
        match head.present.credential {
            true => self.admit_by(&head.headers),
            false if self.agents.is_empty() => Ok(Arc::clone(&self.local)),
            false => Err(unknown()),
        }
    }

    /// [`Self::admit`], by headers among which there may be a credential.
    ///
    /// # Errors
    ///
    /// As [`Self::admit`], but that no credential is one where no agents are configured.
    pub fn admit_by(&self, headers: &HeaderMap) -> Result<Arc<Agent>, Refusal> {
        let foreign = self.foreign.load();
        let (mut named, mut bearer) = (None, None);
        let (mut namings, mut authorizations) = (0_usize, 0_usize);
        // One walk: each look-up by name would cost as much.
        for (name, value) in headers {
            let is_named = *name == COUNTERSIGN_AGENT;
            let is_bearer = !is_named && *name == AUTHORIZATION;
            // Many libraries send their key under another name.
            if !is_named && !is_bearer && *name != PROXY_AUTHORIZATION && !may_carry_credential(name.as_str()) {
                continue;
            }
            let value = trim(value.as_bytes());
            let digest = Digest::of(value);
            self.refuse_foreign(&foreign, value, digest)?;
            if is_named {
                namings += 1;
                named = Some(digest);
            } else if is_bearer {
                authorizations += 1;
                bearer = scheme(value, b"bearer").map(Digest::of);
            }
        }
        if namings > 1 {
            return Err(repeated(&COUNTERSIGN_AGENT));
        }
        if self.agents.is_empty() {
            return Ok(Arc::clone(&self.local));
        }
        if let Some(named) = named {
            return self.find(named).map(|known| Arc::clone(&known.named)).ok_or_else(unknown);
        }
        if authorizations > 1 {
            return Err(repeated(&AUTHORIZATION));
        }
        let found = bearer.and_then(|bearer| self.find(bearer));
        found.map(|known| Arc::clone(&known.bearer)).ok_or_else(unknown)
    }

    fn find(&self, digest: Digest) -> Option<&Known> {
        self.agents.iter().fold(None, |found, known| if known.token_sha256 == digest { Some(known) } else { found })
    }

    /// Refuses a token of the control listener in every place of a credential where a client may
    /// have put it: alone, after a scheme, or as user or password of `Basic`.
    fn refuse_foreign(&self, foreign: &[Digest], value: &[u8], digest: Digest) -> Result<(), Refusal> {
        if foreign.is_empty() {
            return Ok(());
        }
        let mut hit = is_among(foreign, digest);
        if let Some(space) = value.iter().position(|byte| *byte == b' ' || *byte == b'\t') {
            hit |= is_among(foreign, Digest::of(trim(&value[space..])));
        }
        if let Some(encoded) = scheme(value, b"basic") {
            let decoded = data_encoding::BASE64.decode(encoded).unwrap_or_default();
            let mut parts = decoded.splitn(2, |byte| *byte == b':');
            hit |= parts.next().is_some_and(|user| is_among(foreign, Digest::of(user)));
            hit |= parts.next().is_some_and(|password| is_among(foreign, Digest::of(password)));
        }
        if hit { Err(not_here()) } else { Ok(()) }
    }
}

fn is_among(digests: &[Digest], digest: Digest) -> bool {
    digests.iter().fold(false, |hit, known| hit | (*known == digest))
}

fn trim(value: &[u8]) -> &[u8] {
    value.trim_ascii()
}

/// What stands after `name` and spaces; schemes are case-insensitive (RFC 9110 section 11.1).
fn scheme<'a>(value: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (head, rest) = value.split_at_checked(name.len())?;
    let separated = rest.first().is_some_and(|byte| *byte == b' ' || *byte == b'\t');
    (separated && head.eq_ignore_ascii_case(name)).then(|| trim(rest))
}

fn unknown() -> Refusal {
    Refusal::new(
        Code::AgentUnknown,
        "The call carries no credential of a known agent. Send it in `Countersign-Agent`, or as `Authorization: Bearer`. \
         Nothing was executed.",
    )
}

fn not_here() -> Refusal {
    Refusal::new(
        Code::AgentUnknown,
        "This credential belongs to the control listener and is never accepted here. Nothing was executed, and the \
         credential was not forwarded.",
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn door(agents: &[(&str, &str)], foreign: &[&str]) -> Door {
        let agents = agents.iter().map(|(name, token)| AgentEntry {
            name: Initiator::new(*name).unwrap(),
            token_sha256: Digest::of(token.as_bytes()),
            tenant: Tenant::new("default").unwrap(),
            deliver_token: false,
        });
        let rules = IdentityRules { agents: agents.collect(), ..IdentityRules::local() };
        let foreign = foreign.iter().map(|token| Digest::of(token.as_bytes())).collect();
        Door::new(&rules, Arc::new(ArcSwap::from_pointee(foreign)))
    }

    fn admit(door: &Door, lines: &[(&str, &str)]) -> Result<(String, Option<String>), Code> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        let agent = door.admit_by(&headers).map_err(|refusal| refusal.code)?;
        Ok((agent.name.as_str().to_owned(), agent.by.as_ref().map(ToString::to_string)))
    }

    #[test]
    fn an_agent_is_named_by_either_header() {
        let door = door(&[("a", "tok-a"), ("b", "tok-b")], &["appr"]);
        let by = |name: &str, header: &str| Ok((name.to_owned(), Some(header.to_owned())));
        assert_eq!(admit(&door, &[("countersign-agent", "tok-a")]), by("a", "countersign-agent"));
        assert_eq!(admit(&door, &[("authorization", "Bearer tok-b")]), by("b", "authorization"));
        assert_eq!(admit(&door, &[("authorization", "bEARER   tok-b")]), by("b", "authorization"));
        let both = [("countersign-agent", "tok-a"), ("authorization", "Bearer upstream-secret")];
        assert_eq!(admit(&door, &both), by("a", "countersign-agent"));
    }

    #[test]
    fn no_or_a_wrong_credential_is_unknown() {
        let door = door(&[("a", "tok-a")], &[]);
        for lines in [
            &[][..],
            &[("countersign-agent", "")],
            &[("countersign-agent", "tok-b")],
            &[("countersign-agent", "Bearer tok-a")],
            &[("authorization", "tok-a")],
            &[("authorization", "Basic dG9rLWE6")],
            &[("authorization", "Bearertok-a")],
            &[("proxy-authorization", "Bearer tok-a")],
            // A wrong name is not made good by a right bearer.
            &[("countersign-agent", "tok-b"), ("authorization", "Bearer tok-a")],
        ] {
            assert_eq!(admit(&door, lines), Err(Code::AgentUnknown), "{lines:?}");
        }
        for lines in [
            [("countersign-agent", "tok-a"), ("countersign-agent", "tok-a")],
            [("authorization", "Bearer tok-a"), ("authorization", "Bearer tok-a")],
        ] {
            assert_eq!(admit(&door, &lines), Err(Code::RequestAmbiguous), "{lines:?}");
        }
    }

    #[test]
    fn p1_a_token_of_the_control_listener_is_refused_wherever_it_stands() {
        let basic = format!("Basic {}", data_encoding::BASE64.encode(b"u:appr"));
        let user = format!("basic {}", data_encoding::BASE64.encode(b"appr:"));
        for door in [door(&[("a", "tok-a")], &["x", "appr"]), door(&[], &["appr"])] {
            for value in ["appr", "Bearer appr", "bearer  appr ", "Token appr", &basic, &user] {
                for name in [
                    "countersign-agent",
                    "authorization",
                    "proxy-authorization",
                    "x-api-key",
                    "api_key",
                    "private-token",
                    "x-forwarded-authorization",
                    "x-goog-api-key",
                    "x-client-secret",
                ] {
                    assert_eq!(admit(&door, &[(name, value)]), Err(Code::AgentUnknown), "{name}: {value}");
                    let beside = [("countersign-agent", "tok-a"), (name, value)];
                    assert_eq!(admit(&door, &beside), Err(Code::AgentUnknown), "{name}: {value}");
                }
            }
        }
    }

    #[test]
    fn foreign_tokens_are_swapped_without_a_restart() {
        let door = door(&[], &[]);
        assert!(admit(&door, &[("authorization", "Bearer late")]).is_ok());
        door.foreign.store(Arc::new(vec![Digest::of(b"late")]));
        assert_eq!(admit(&door, &[("authorization", "Bearer late")]), Err(Code::AgentUnknown));
    }
}
