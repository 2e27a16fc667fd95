//! What a draft holds: written once at the hold, immutable from then on.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::base::digest::Digest;
use crate::base::id::{CapabilityId, DraftId, Initiator, Owner, ServiceName, SessionId, Tenant, ToolName};
use crate::base::time::Timestamp;

/// Whether a call changes anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Changes nothing.
    Read,
    /// Changes something.
    Write,
}

/// How much harm a wrong call does. Ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    /// Easily undone.
    Low,
    /// Undone with effort.
    Medium,
    /// Not undone.
    High,
}

impl Risk {
    /// `low`, `medium`, `high`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }

    /// Reads the word of [`Risk::as_str`].
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Low, Self::Medium, Self::High].into_iter().find(|risk| risk.as_str() == text)
    }
}

/// Who has to confirm. Ordered from mild to strict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfirmRule {
    /// The owner in the same session, or any approver with the right.
    Default,
    /// A person, every time; no conveniences.
    Always,
}

/// Who asked, for whom: the identity context of one call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The agent's tenant.
    pub tenant: Tenant,
    /// The agent.
    pub initiator: Initiator,
    /// The person on whose behalf it acts.
    pub owner: Owner,
    /// The conversation.
    pub session: SessionId,
    /// The person's role, where the identity configuration names a source.
    pub role: Option<String>,
    /// Whose data is touched, where declared.
    pub subject: Option<String>,
    /// The delegated administration context.
    pub admin_context: Option<String>,
    /// `readonly` refuses every write.
    pub admin_mode: Option<String>,
    /// Which message of the conversation asked.
    pub message_id: Option<String>,
    /// Whether the agent's runtime gets the confirmation token.
    pub deliver_token: bool,
}

/// What kind of body a call has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BodyKind {
    /// No body at all, or an empty one.
    None,
    /// JSON.
    Json,
    /// `application/x-www-form-urlencoded`.
    Form,
    /// `multipart/form-data`.
    Multipart,
    /// Anything else: held, hashed, not understood.
    Opaque,
}

/// A body by its digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BodyDigest {
    /// SHA-256 of the bytes.
    pub sha256: Digest,
    /// Length in bytes.
    pub length: u64,
    /// The `Content-Type` as sent, empty if there was none.
    pub content_type: String,
}

/// The request exactly as it will be sent, but for credentials, which are resolved at release.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outbound {
    /// The method, case as the agent sent it.
    pub method: String,
    /// Absolute target: scheme, authority, path and query as they will be sent.
    pub target: String,
    /// Headers in the order they will be sent, without hop-by-hop headers and credentials.
    pub headers: Vec<(String, String)>,
    /// The bound ones among `headers` and the policy's own, as they stand in the args hash.
    pub bound_headers: Vec<(String, String)>,
    /// The agent's own upstream credential, forwarded as it came; never shown.
    pub credentials: Vec<(String, String)>,
    /// What kind of body.
    pub kind: BodyKind,
    /// Digest of the bytes that will be sent.
    pub body: BodyDigest,
    /// Whether the envelope binds the body's own digest (opaque, files, inexact numbers).
    pub body_bound: bool,
    /// Where the effect key goes.
    pub effect_key_header: Option<String>,
}

impl std::fmt::Debug for Outbound {
    /// Without values of headers and credentials: a record in a log line must not leak them
    /// (promise 10).
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = |headers: &[(String, String)]| headers.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        f.debug_struct("Outbound")
            .field("method", &self.method)
            .field("kind", &self.kind)
            .field("headers", &names(&self.headers))
            .field("credentials", &names(&self.credentials))
            .field("body", &self.body.sha256)
            .finish_non_exhaustive()
    }
}

/// One line of a card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detail {
    /// The arg or its label.
    pub key: String,
    /// What it will be.
    pub value: String,
}

/// What the approver sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preview {
    /// What is done, in a few words.
    pub title: String,
    /// What it is done to.
    pub target: String,
    /// What will be different afterwards, one sentence.
    pub impact: String,
    /// Every other value.
    pub details: Vec<Detail>,
}

/// A held write.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Draft {
    /// The public id.
    pub id: DraftId,
    /// The draft that this one repeats by `again`; itself for a first one. The effect key hangs on it.
    pub root: DraftId,
    /// Who asked, for whom.
    pub identity: Identity,
    /// Keyed hash of tenant and owner.
    pub owner_hash: Digest,
    /// The service.
    pub service: ServiceName,
    /// The tool.
    pub tool: ToolName,
    /// The capability.
    pub capability: CapabilityId,
    /// Always `write` here; kept so that a record says it itself.
    pub effect: Effect,
    /// The risk as it was at the hold.
    pub risk: Risk,
    /// The confirmation rule as it was at the hold.
    pub confirm_rule: ConfirmRule,
    /// The prepared args.
    pub args: Value,
    /// Args that are masked wherever they are shown, as JSON Pointers.
    pub secret: Vec<String>,
    /// [`super::binding::args_hash`].
    pub args_hash: Digest,
    /// The request that will be sent.
    pub request: Outbound,
    /// SHA-256 of the body that the agent sent.
    pub raw_digest: Digest,
    /// The card.
    pub preview: Preview,
    /// SHA-256 of the card's canonical form.
    pub preview_hash: Digest,
    /// What a lookup bound (an etag, a version), where the tool declares one.
    pub lookup_binding: Option<String>,
    /// The key that goes upstream with every attempt of this intent.
    pub effect_key: Option<String>,
    /// The policy version in force at the hold.
    pub policy_version: String,
    /// The intercepted request's `X-Request-Id`, or one made for it.
    pub origin_request_id: String,
    /// The W3C trace context that goes upstream.
    pub traceparent: Option<String>,
    /// When it was held, by the store's clock.
    pub created_at: Timestamp,
    /// When it ends; fixed here (hold, plus wait granted, plus ttl).
    pub expires_at: Timestamp,
    /// How long a claim may wait for its send after a crash.
    pub late_release_ms: u64,
}

/// A draft for tests.
#[cfg(test)]
pub(crate) mod sample {
    #![allow(clippy::expect_used)]
    use super::*;
    use crate::base::chance::SeededChance;
    use crate::base::id::Partition;
    use crate::draft::binding;
    use crate::draft::keys::KeySet;
    use std::time::Duration;

    /// `bot` for an owner in session `s1`, of whom nothing else is known.
    pub(crate) fn identity(owner: &str) -> Identity {
        let name = "a legal name";
        Identity {
            tenant: Tenant::new("default").expect(name),
            initiator: Initiator::new("bot").expect(name),
            owner: Owner::new(owner).expect(name),
            session: SessionId::new("s1").expect(name),
            role: None,
            subject: None,
            admin_context: None,
            admin_mode: None,
            message_id: None,
            deliver_token: false,
        }
    }

    /// A small JSON write by `bot` for `u1` in session `s1`, held at a fixed time.
    pub(crate) fn draft(keys: &KeySet, body: &[u8]) -> Draft {
        let name = "a legal name";
        let identity = identity("u1");
        let owner_hash = binding::owner_hash(keys, &identity.tenant, &identity.owner);
        let created_at = Timestamp::from_millis(1_700_000_000_000);
        let id = DraftId::new(Partition::of(&owner_hash), created_at, &SeededChance::new(1));
        let request = Outbound {
            method: "POST".to_owned(),
            target: "http://notes.test/todos".to_owned(),
            headers: vec![("content-type".to_owned(), "application/json".to_owned())],
            bound_headers: Vec::new(),
            credentials: Vec::new(),
            kind: BodyKind::Json,
            body: BodyDigest {
                sha256: Digest::of(body),
                length: body.len() as u64,
                content_type: "application/json".to_owned(),
            },
            body_bound: false,
            effect_key_header: Some("Idempotency-Key".to_owned()),
        };
        let service = ServiceName::new("notes").expect(name);
        let tool = ToolName::new("create_todo").expect(name);
        let args: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        let preview = Preview {
            title: "Create a to-do".to_owned(),
            target: "x".to_owned(),
            impact: "One more to-do.".to_owned(),
            details: Vec::new(),
        };
        Draft {
            root: id.clone(),
            effect_key: Some(binding::effect_key(keys, &id)),
            id,
            owner_hash,
            args_hash: binding::args_hash(&service, &tool, &request, &args),
            service,
            tool,
            capability: CapabilityId::new("todo.create").expect(name),
            effect: Effect::Write,
            risk: Risk::Low,
            confirm_rule: ConfirmRule::Default,
            args,
            secret: Vec::new(),
            raw_digest: request.body.sha256,
            request,
            preview_hash: binding::preview_hash(&preview),
            preview,
            lookup_binding: None,
            policy_version: "v".to_owned(),
            origin_request_id: "r1".to_owned(),
            traceparent: None,
            identity,
            created_at,
            expires_at: created_at + Duration::from_secs(300),
            late_release_ms: 60_000,
        }
    }
}
