//! Who stands at the control listener.
//!
//! Owns the comparison of presented tokens with known digests, in constant time. Must never log a
//! token, and must never let an agent's credential do anything that needs one (promise 1).

use data_encoding::BASE64;
use http::{HeaderMap, header};

use crate::base::digest::Digest;
use crate::base::secret::Secret;
use crate::draft::decision::Channel;
use crate::guard::who::Approver;

use super::credentials::{AppEntry, ApproverEntry, Credentials};

/// What the presented credentials say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    /// No credential at all.
    Absent,
    /// A credential that nobody knows, or more than one.
    Unknown,
    /// An agent's, in whatever header and beside whatever else.
    Agent,
    /// A person's.
    Approver(ApproverEntry),
    /// A product's backend.
    App(AppEntry),
}

/// Headers in which an agent may carry its credential.
const AGENT_HEADERS: [&str; 3] = ["authorization", "countersign-agent", "proxy-authorization"];

/// Reads every credential of a request.
pub(super) fn recognise(headers: &HeaderMap, known: &Credentials) -> Standing {
    if carries_agent_token(headers, known) {
        return Standing::Agent;
    }
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let Some(first) = all.next() else { return Standing::Absent };
    if all.next().is_some() {
        return Standing::Unknown;
    }
    let Some(token) = first.to_str().ok().and_then(bearer) else { return Standing::Unknown };
    by_token(&Secret::new(token), known)
}

/// Whether any header carries an agent's token: bare, as a bearer token, or as either half of
/// basic credentials, as clients of a forward proxy send them.
pub(super) fn carries_agent_token(headers: &HeaderMap, known: &Credentials) -> bool {
    let values = AGENT_HEADERS.iter().flat_map(|name| headers.get_all(*name).iter());
    let mut found = false;
    for value in values {
        let Ok(text) = value.to_str() else { continue };
        for candidate in candidates(text) {
            found |= is_agent(&candidate, known);
        }
    }
    found
}

/// Who a token belongs to: an agent's is told apart so that it can be refused by name.
pub(super) fn by_token(token: &Secret, known: &Credentials) -> Standing {
    if is_agent(token, known) {
        return Standing::Agent;
    }
    let digest = token.digest();
    // Every entry is compared, so that time says nothing about which one it was.
    let mut found = Standing::Unknown;
    for entry in &known.approvers {
        if entry.token_sha256 == digest {
            found = Standing::Approver(entry.clone());
        }
    }
    for entry in &known.apps {
        if entry.token_sha256 == digest {
            found = Standing::App(entry.clone());
        }
    }
    found
}

fn is_agent(token: &Secret, known: &Credentials) -> bool {
    let digest = token.digest();
    known.agent_tokens.iter().fold(false, |found, agent| found | (*agent == digest))
}

/// The approver as the guard knows them.
pub(super) fn approver(entry: &ApproverEntry, auth_method: &'static str, channel: Channel) -> Approver {
    Approver {
        name: entry.name.clone(),
        tenant: entry.tenant.clone(),
        roles: entry.roles.clone(),
        rights: entry.rights.clone(),
        auth_method,
        channel,
    }
}

/// Whether the approver is still known under the token they came with.
pub(super) fn still_known<'c>(
    known: &'c Credentials,
    name: &crate::base::id::Principal,
    token_sha256: &Digest,
) -> Option<&'c ApproverEntry> {
    known.approvers.iter().find(|entry| entry.name == *name && entry.token_sha256 == *token_sha256)
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.trim().split_once(' ')?;
    let token = token.trim_start();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn candidates(value: &str) -> Vec<Secret> {
    let value = value.trim();
    let mut found = vec![Secret::new(value)];
    let Some((scheme, rest)) = value.split_once(' ') else { return found };
    let rest = rest.trim_start();
    if scheme.eq_ignore_ascii_case("bearer") {
        found.push(Secret::new(rest));
    }
    if scheme.eq_ignore_ascii_case("basic")
        && let Ok(decoded) = BASE64.decode(rest.as_bytes())
        && let Ok(pair) = String::from_utf8(decoded)
    {
        let halves = pair.split_once(':').unwrap_or((&pair, ""));
        found.extend([Secret::new(pair.as_str()), Secret::new(halves.0), Secret::new(halves.1)]);
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::base::id::{Principal, Tenant};
    use crate::guard::who::Rights;

    fn known() -> Credentials {
        Credentials {
            approvers: vec![ApproverEntry {
                name: Principal::new("alice").unwrap(),
                token_sha256: Digest::of(b"person"),
                roles: vec![],
                tenant: Tenant::new("default").unwrap(),
                rights: Some(Rights::all()),
            }],
            apps: vec![AppEntry {
                name: Principal::new("web").unwrap(),
                token_sha256: Digest::of(b"backend"),
                tenant: Tenant::new("default").unwrap(),
                act_for_owners: true,
            }],
            agent_tokens: vec![Digest::of(b"robot")],
        }
    }

    fn standing(pairs: &[(&'static str, &str)]) -> Standing {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, value.parse().unwrap());
        }
        recognise(&map, &known())
    }

    #[test]
    fn bearer_tokens_name_their_owner() {
        assert!(matches!(standing(&[("authorization", "Bearer person")]), Standing::Approver(_)));
        assert!(matches!(standing(&[("authorization", "bearer  person")]), Standing::Approver(_)));
        assert!(matches!(standing(&[("authorization", "Bearer backend")]), Standing::App(_)));
        assert_eq!(standing(&[]), Standing::Absent);
        for bad in ["Bearer", "Bearer ", "person", "Basic person", "Bearer personx", "Bearer Person"] {
            assert_eq!(standing(&[("authorization", bad)]), Standing::Unknown, "{bad}");
        }
        let twice = [("authorization", "Bearer person"), ("authorization", "Bearer person")];
        assert_eq!(standing(&twice), Standing::Unknown);
    }

    #[test]
    fn p1_an_agents_token_is_an_agents_wherever_it_stands() {
        let basic = format!("Basic {}", BASE64.encode(b"any:robot"));
        let user = format!("Basic {}", BASE64.encode(b"robot:"));
        for (name, value) in [
            ("authorization", "Bearer robot"),
            ("authorization", "robot"),
            ("countersign-agent", "robot"),
            ("countersign-agent", "Bearer robot"),
            ("proxy-authorization", "Bearer robot"),
            ("proxy-authorization", basic.as_str()),
            ("proxy-authorization", user.as_str()),
        ] {
            assert_eq!(standing(&[(name, value)]), Standing::Agent, "{name}: {value}");
        }
        let both = [("authorization", "Bearer person"), ("countersign-agent", "robot")];
        assert_eq!(standing(&both), Standing::Agent, "a person's token beside it does not help");
    }
}
