//! What ties a confirmation to exactly one request: args hash, MACs, tokens and effect keys.

use data_encoding::BASE64URL_NOPAD;
use serde_json::{Value, json};

use crate::base::digest::Digest;
use crate::base::id::{CapabilityId, DraftId, Initiator, Owner, Partition, ServiceName, Tenant, ToolName};
use crate::base::secret::Secret;
use crate::call::canonical::{self, Part};

use super::decision::{Decider, Verb};
use super::keys::{KeySet, keyed, keyed_json};
use super::record::{Detail, Outbound, Preview};
use super::seal::{IntegrityFailed, Opened};

/// SHA-256 over the RFC 8785 form of
/// `{"v":1,"service","tool","method","target","headers","kind","args","body"}`.
///
/// `headers` is an object from lower-case name to value (several values of one name are joined by
/// `, `); `body` is `{sha256,length,content_type}` where the body itself is bound, else null.
#[must_use]
pub fn args_hash(service: &ServiceName, tool: &ToolName, request: &Outbound, args: &Value) -> Digest {
    let mut headers = serde_json::Map::new();
    for (name, value) in &request.bound_headers {
        let name = name.to_ascii_lowercase();
        match headers.get_mut(&name) {
            Some(Value::String(before)) => {
                before.push_str(", ");
                before.push_str(value);
            }
            _ => {
                headers.insert(name, Value::String(value.clone()));
            }
        }
    }
    let body = if request.body_bound { json!(request.body) } else { Value::Null };
    let (headers, kind) = (Value::Object(headers), json!(request.kind));
    let envelope = Part::Object(vec![
        ("args", Part::Value(args)),
        ("body", Part::Value(&body)),
        ("headers", Part::Value(&headers)),
        ("kind", Part::Value(&kind)),
        ("method", Part::Text(&request.method)),
        ("service", Part::Text(service.as_str())),
        ("target", Part::Text(&request.target)),
        ("tool", Part::Text(tool.as_str())),
        ("v", Part::Number(1)),
    ]);
    Digest::of(&canonical::part_to_vec(&envelope))
}

/// Keyed hash of tenant and owner. Never rotates.
#[must_use]
pub fn owner_hash(keys: &KeySet, tenant: &Tenant, owner: &Owner) -> Digest {
    keys.identity_digest("owner", &[tenant.as_str().as_bytes(), owner.as_str().as_bytes()])
}

/// Everything that must be equal for a second call to join a draft.
#[derive(Debug, Clone, Copy)]
pub struct JoinScope<'a> {
    /// The tenant.
    pub tenant: &'a Tenant,
    /// The owner.
    pub owner: &'a Owner,
    /// The agent.
    pub initiator: &'a Initiator,
    /// The service.
    pub service: &'a ServiceName,
    /// The tool.
    pub tool: &'a ToolName,
}

impl JoinScope<'_> {
    fn parts(&self) -> [&[u8]; 5] {
        [
            self.tenant.as_str().as_bytes(),
            self.owner.as_str().as_bytes(),
            self.initiator.as_str().as_bytes(),
            self.service.as_str().as_bytes(),
            self.tool.as_str().as_bytes(),
        ]
    }

    /// The join key: scope, args hash and the forwarded upstream credential.
    #[must_use]
    pub fn join_key(&self, keys: &KeySet, args_hash: &Digest, credentials: &[(String, String)]) -> Digest {
        let mut flat: Vec<&[u8]> = Vec::with_capacity(credentials.len() * 2);
        for (name, value) in credentials {
            flat.push(name.as_bytes());
            flat.push(value.as_bytes());
        }
        let credential = keys.identity_digest("credential", &flat);
        let mut parts = self.parts().to_vec();
        parts.push(args_hash.as_bytes());
        parts.push(credential.as_bytes());
        keys.identity_digest("join", &parts)
    }

    /// The digest under which the caller's `Idempotency-Key` is kept: two owners never meet.
    #[must_use]
    pub fn caller_key(&self, keys: &KeySet, key: &str) -> Digest {
        let mut parts = self.parts().to_vec();
        parts.push(key.as_bytes());
        keys.identity_digest("caller key", &parts)
    }
}

/// The confirmation token, `ct_N_` + base64url(HMAC(token key, draft id)).
///
/// # Errors
///
/// [`IntegrityFailed`] if this guard does not have the keys `key_id`.
pub fn token(keys: &KeySet, key_id: &str, id: &DraftId) -> Result<Secret, IntegrityFailed> {
    let ring = keys.ring(key_id).ok_or(IntegrityFailed)?;
    let mac = keyed(&ring.token, id.as_str().as_bytes());
    Ok(Secret::new(format!("ct_{}_{}", id.partition().as_char(), BASE64URL_NOPAD.encode(mac.as_bytes()))))
}

/// The confirmation token of a draft that is about to be sealed under the active keys.
#[must_use]
pub fn new_token(keys: &KeySet, id: &DraftId) -> Secret {
    let mac = keyed(&keys.active().token, id.as_str().as_bytes());
    Secret::new(format!("ct_{}_{}", id.partition().as_char(), BASE64URL_NOPAD.encode(mac.as_bytes())))
}

/// Reads the partition and the digest of a token that somebody presents; `None` if it cannot be
/// one. Only the digest is ever compared with the store.
#[must_use]
pub fn token_digest(presented: &Secret) -> Option<(Partition, Digest)> {
    let rest = presented.reveal().strip_prefix("ct_")?;
    let (digit, mac) = rest.split_once('_')?;
    let mut digits = digit.chars();
    let partition = Partition::from_char(digits.next()?)?;
    if digits.next().is_some() || BASE64URL_NOPAD.decode(mac.as_bytes()).ok()?.len() != 32 {
        return None;
    }
    Some((partition, presented.digest()))
}

/// The effect key of an intent: `cs1-` + 32 hex digits of an HMAC over the root draft's id.
#[must_use]
pub fn effect_key(keys: &KeySet, root: &DraftId) -> String {
    let mac = keyed(&keys.active().effect, root.as_str().as_bytes());
    format!("cs1-{}", &mac.to_hex()[..32])
}

/// The MAC of a vote or a decision, over the draft's MAC, the epoch, the verb, decider and time.
///
/// # Errors
///
/// [`IntegrityFailed`] if the draft was sealed with keys that this guard does not have.
pub fn vote_mac(
    keys: &KeySet,
    opened: &Opened,
    epoch: u64,
    verb: Verb,
    decider: &Decider,
    comment: Option<&str>,
) -> Result<Digest, IntegrityFailed> {
    let ring = keys.ring(&opened.key_id).ok_or(IntegrityFailed)?;
    let input = (opened.draft.id.as_str(), opened.mac, epoch, verb, decider, comment);
    keyed_json(&ring.decision, &input).map_err(|_| IntegrityFailed)
}

/// The id of the capability of a service that has none declared (`unmatched.write: hold`).
///
/// # Panics
///
/// Never: the text is a legal name.
#[must_use]
#[allow(clippy::expect_used)]
pub fn undeclared_capability() -> CapabilityId {
    CapabilityId::new("undeclared").expect("a legal name")
}

/// SHA-256 over the canonical form of a card, so that an audit can prove what was shown.
#[must_use]
pub fn preview_hash(preview: &Preview) -> Digest {
    let Preview { title, target, impact, details } = preview;
    let lines = details.iter().map(line).collect();
    let card = Part::Object(vec![
        ("details", Part::List(lines)),
        ("impact", Part::Text(impact)),
        ("target", Part::Text(target)),
        ("title", Part::Text(title)),
    ]);
    Digest::of(&canonical::part_to_vec(&card))
}

fn line(detail: &Detail) -> Part<'_> {
    Part::Object(vec![("key", Part::Text(&detail.key)), ("value", Part::Text(&detail.value))])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used)]
    use super::*;
    use crate::base::chance::SeededChance;
    use crate::base::id::SessionId;
    use crate::draft::decision::{Channel, DeciderKind};
    use crate::draft::record::{Draft, sample};
    use crate::draft::seal;

    fn parts() -> (KeySet, Draft) {
        let keys = KeySet::ephemeral(&SeededChance::new(3));
        let draft = sample::draft(&keys, br#"{"title":"x"}"#);
        (keys, draft)
    }

    fn hash(draft: &Draft) -> Digest {
        args_hash(&draft.service, &draft.tool, &draft.request, &draft.args)
    }

    #[test]
    fn p2_every_bound_part_changes_the_args_hash() {
        let (_, draft) = parts();
        let before = hash(&draft);
        let changes: [fn(&mut Draft); 8] = [
            |draft| draft.request.method = "PUT".to_owned(),
            |draft| draft.request.target = "http://notes.test/todos?x".to_owned(),
            |draft| draft.request.target = "http://other.test/todos".to_owned(),
            |draft| draft.request.bound_headers.push(("If-Match".to_owned(), "\"1\"".to_owned())),
            |draft| draft.request.kind = crate::draft::record::BodyKind::Form,
            |draft| draft.args = json!({"title": "y"}),
            |draft| draft.args = json!({"title": null}),
            |draft| draft.request.body_bound = true,
        ];
        for (index, change) in changes.iter().enumerate() {
            let mut other = draft.clone();
            change(&mut other);
            assert_ne!(hash(&other), before, "change {index}");
        }
        let mut same = draft.clone();
        same.identity.session = SessionId::new("another").expect("a legal name");
        assert_eq!(hash(&same), before, "who asks is not part of what is asked");
    }

    /// The envelope as docs/lifecycle.md spells it, built another way: drafts that are stored must
    /// verify after an update.
    #[test]
    fn p2_the_hashes_are_over_the_documented_envelopes() {
        let (_, mut draft) = parts();
        draft.request.bound_headers = vec![("If-Match".to_owned(), "\"1\"".to_owned())];
        for body_bound in [false, true] {
            draft.request.body_bound = body_bound;
            let (request, args) = (&draft.request, &draft.args);
            let envelope = json!({
                "v": 1, "service": draft.service, "tool": draft.tool, "method": request.method,
                "target": request.target, "headers": {"if-match": "\"1\""}, "kind": request.kind, "args": args,
                "body": if body_bound { json!(request.body) } else { Value::Null },
            });
            assert_eq!(hash(&draft), Digest::of(&canonical::to_vec(&envelope)));
        }
        assert_eq!(preview_hash(&draft.preview), Digest::of(&canonical::to_vec(&json!(draft.preview))));
    }

    #[test]
    fn an_empty_body_is_not_an_empty_object() {
        let (_, draft) = parts();
        let mut none = draft.clone();
        none.request.kind = crate::draft::record::BodyKind::None;
        none.args = json!({});
        let mut empty = draft;
        empty.args = json!({});
        assert_ne!(hash(&none), hash(&empty));
    }

    #[test]
    fn tokens_are_found_by_their_digest_and_other_texts_are_none() {
        let (keys, draft) = parts();
        let made = new_token(&keys, &draft.id);
        let (partition, digest) = token_digest(&made).expect("a token");
        assert_eq!(partition, draft.id.partition());
        assert_eq!(digest, made.digest());
        assert_eq!(token(&keys, "k1", &draft.id).expect("the key is here"), made);
        for bad in [
            "",
            "ct_",
            "ct_5_",
            "ct_5_AAAA",
            "ct_55_AAAA",
            "dr_5_x",
            "ct_g_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        ] {
            assert!(token_digest(&Secret::new(bad)).is_none(), "{bad}");
        }
    }

    #[test]
    fn p2_a_vote_is_bound_to_draft_epoch_verb_person_time_and_words() {
        let (keys, draft) = parts();
        let chance = SeededChance::new(4);
        let sealed = seal::seal(&draft, br#"{"title":"x"}"#, &keys, &chance).expect("seals");
        let opened = seal::open(&sealed, &draft.id, &keys).expect("opens");
        let decider = |id: &str, seconds: u64| Decider {
            kind: DeciderKind::Approver,
            id: crate::base::id::Principal::new(id).expect("a legal name"),
            auth_method: "bearer".to_owned(),
            channel: Channel::Api,
            at: draft.created_at + std::time::Duration::from_secs(seconds),
        };
        let mac = |epoch, verb, by: &Decider, words| vote_mac(&keys, &opened, epoch, verb, by, words).expect("macs");
        let one = mac(1, Verb::Confirm, &decider("alice", 1), None);
        assert_eq!(one, mac(1, Verb::Confirm, &decider("alice", 1), None));
        assert_ne!(one, mac(2, Verb::Confirm, &decider("alice", 1), None));
        assert_ne!(one, mac(1, Verb::Reject, &decider("alice", 1), None));
        assert_ne!(one, mac(1, Verb::Confirm, &decider("bob", 1), None));
        assert_ne!(one, mac(1, Verb::Confirm, &decider("alice", 2), None));
        assert_ne!(one, mac(1, Verb::Confirm, &decider("alice", 1), Some("ok")));
    }

    #[test]
    fn two_owners_never_share_a_key() {
        let (keys, draft) = parts();
        let who = &draft.identity;
        let other = Owner::new("u2").expect("a legal name");
        let scope = |owner| JoinScope {
            tenant: &who.tenant,
            owner,
            initiator: &who.initiator,
            service: &draft.service,
            tool: &draft.tool,
        };
        assert_ne!(scope(&who.owner).caller_key(&keys, "1"), scope(&other).caller_key(&keys, "1"));
        let join = |owner, credential: &str| {
            scope(owner).join_key(&keys, &draft.args_hash, &[("authorization".to_owned(), credential.to_owned())])
        };
        assert_ne!(join(&who.owner, "a"), join(&other, "a"));
        assert_ne!(join(&who.owner, "a"), join(&who.owner, "b"));
        assert_eq!(join(&who.owner, "a"), join(&who.owner, "a"));
    }
}
