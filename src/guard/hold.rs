//! Holding a write: judge it, bind it, seal it, store it, and answer without touching the upstream.

use std::sync::Arc;
use std::time::Duration;

use crate::base::code::Code;
use crate::base::digest::Digest;
use crate::base::id::{DraftId, Partition};
use crate::base::time::Timestamp;
use crate::call::args::Call;
use crate::draft::binding::{self, JoinScope};
use crate::draft::record::{Draft, Effect, Identity};
use crate::draft::seal;
use crate::draft::state::{State, Status};
use crate::policy::judge::{self, Prepared, Selection};
use crate::policy::model::{PolicySet, Service};
use crate::store::contract::{Held, Hold, StoreError};
use crate::store::row::Stored;

use super::answer::Answer;
use super::core::{Guard, ask};
use super::problem::Problem;

/// A write that an agent asks for, read and understood.
#[derive(Debug)]
pub struct Proposal<'a> {
    /// The set that `service` and `selection` come from.
    pub policies: &'a PolicySet,
    /// The service.
    pub service: &'a Service,
    /// What the head selected.
    pub selection: Selection<'a>,
    /// The call.
    pub call: Call,
    /// Who asks, for whom.
    pub identity: Identity,
    /// The caller's `Idempotency-Key`, in its one spelling.
    pub idempotency_key: Option<String>,
    /// `X-Request-Id` as it came, or one made for the call; at most 255 bytes.
    pub request_id: String,
    /// `traceparent` as it came.
    pub traceparent: Option<String>,
    /// Headers of the request that carry identity: never forwarded.
    pub identity_headers: &'a [http::HeaderName],
    /// How long the draft may wait, where that is shorter than what the policy says.
    pub ttl_max: Option<Duration>,
}

/// The draft that a proposal led to.
pub(super) struct Placed {
    pub(super) stored: Box<Stored>,
    pub(super) came: Came,
    pub(super) who: Identity,
    held_status: u16,
}

/// How the draft of a proposal came to be.
pub(super) enum Came {
    /// Made a moment ago, from this record.
    Made(Box<Draft>),
    /// New, and to be verified like any other.
    New,
    /// It was there before.
    Before,
}

/// How often a hold is sealed anew because the store says that its time is another.
pub(super) const CORRECTIONS_MAX: u32 = 2;

/// How a new draft meets equal calls.
#[derive(Clone, Copy)]
pub(super) struct Meets {
    pub(super) join_key: Digest,
    pub(super) caller_key: Option<Digest>,
    pub(super) replay_window_ms: u64,
    pub(super) refusal_memory_ms: u64,
}

impl Guard {
    /// Holds a write, or answers it from an earlier draft: the 202 (or the tool's `held_status`),
    /// a stored result with `Countersign-Replayed`, or a problem.
    pub async fn hold(self: &Arc<Self>, proposal: Proposal<'_>) -> Answer {
        match self.try_hold(proposal).await {
            Ok(answer) => answer,
            Err(problem) => problem.answer(),
        }
    }

    async fn try_hold(&self, proposal: Proposal<'_>) -> Result<Answer, Problem> {
        let Placed { stored, came, who, held_status } = self.place(proposal).await?;
        match came {
            // What was sealed a moment ago need not be opened to be known.
            Came::Made(draft) => {
                self.waiting_with(&stored, &draft, self.parts.keys.active().id.as_str(), &who, held_status)
            }
            Came::New => self.waiting_answer(&stored, &who, held_status),
            Came::Before => self.joined(*stored, &who, held_status).await,
        }
    }

    /// Finds or makes the draft of a proposal.
    pub(super) async fn place(&self, proposal: Proposal<'_>) -> Result<Placed, Problem> {
        let Proposal { policies, service, selection, call, identity, .. } = proposal;
        let Proposal { idempotency_key, request_id, traceparent, identity_headers, ttl_max, .. } = proposal;
        let mut prepared = judge::judge(service, &selection, call, &identity, identity_headers)?;
        prepared.ttl = ttl_max.map_or(prepared.ttl, |most| most.min(prepared.ttl));
        let keys = &self.parts.keys;
        let scope = JoinScope {
            tenant: &identity.tenant,
            owner: &identity.owner,
            initiator: &identity.initiator,
            service: &prepared.service,
            tool: &prepared.tool,
        };
        let join_key = scope.join_key(keys, &prepared.args_hash, &prepared.request.credentials);
        let caller_key = idempotency_key.as_deref().map(|key| scope.caller_key(keys, key));
        let meets = Meets {
            join_key,
            caller_key,
            replay_window_ms: millis(prepared.replay_window),
            refusal_memory_ms: millis(prepared.refusal_memory),
        };
        let (held_status, ttl, args_hash) = (prepared.held_status, prepared.ttl, prepared.args_hash);
        let body = std::mem::take(&mut prepared.body);
        let traceparent = traceparent.unwrap_or_else(|| self.traceparent());
        let mut draft = self.draft(prepared, &identity, &policies.version, (request_id, traceparent));
        // The store refuses a hold whose idea of the time is wrong, and says what time it is.
        for _ in 0..=CORRECTIONS_MAX {
            let hold = self.seal_hold(&draft, &body, meets)?;
            match self.ask_hold(&hold).await? {
                Held::Clock(store_says) => self.date(&mut draft, store_says, ttl),
                Held::Joined(earlier) | Held::RejectedBefore(earlier)
                    if !self.same_call(&earlier, &identity, &args_hash) =>
                {
                    return Err(self.integrity_failed(&earlier));
                }
                Held::New(stored) => {
                    self.parts.observer.draft(&stored.row.tool, Status::Pending);
                    self.parts.pause.at("after_hold_before_answer").await;
                    self.ends_before(&stored).await?;
                    let came = if is_as_made(&stored, &hold) { Came::Made(Box::new(draft)) } else { Came::New };
                    return Ok(Placed { stored, came, who: identity, held_status });
                }
                Held::Joined(stored) => return Ok(Placed { stored, came: Came::Before, who: identity, held_status }),
                held => return Err(self.not_held(held)),
            }
        }
        Err(self.too_slow())
    }

    /// Whether the draft that the store names really is this owner's, this agent's and this call:
    /// the index that led to it could have been written by anybody who can write to the store.
    fn same_call(&self, earlier: &Stored, who: &Identity, args_hash: &Digest) -> bool {
        self.open(earlier).is_ok_and(|opened| {
            let draft = &opened.draft;
            draft.identity.tenant == who.tenant
                && draft.identity.owner == who.owner
                && draft.identity.initiator == who.initiator
                && draft.args_hash == *args_hash
        })
    }

    /// The draft of a judged call, dated now.
    fn draft(
        &self,
        prepared: Prepared,
        identity: &Identity,
        version: &str,
        (origin_request_id, traceparent): (String, String),
    ) -> Draft {
        let keys = &self.parts.keys;
        let owner_hash = binding::owner_hash(keys, &identity.tenant, &identity.owner);
        let partition = Partition::of(&owner_hash);
        let now = self.parts.store.now_in(partition);
        let id = DraftId::new(partition, now, &*self.parts.chance);
        let ttl = prepared.ttl;
        let mut draft = Draft {
            root: id.clone(),
            id,
            identity: identity.clone(),
            owner_hash,
            service: prepared.service,
            tool: prepared.tool,
            capability: prepared.capability,
            effect: Effect::Write,
            risk: prepared.risk,
            confirm_rule: prepared.confirm_rule,
            args: prepared.args,
            secret: prepared.secret,
            args_hash: prepared.args_hash,
            request: prepared.request,
            raw_digest: prepared.raw_digest,
            preview_hash: binding::preview_hash(&prepared.preview),
            preview: prepared.preview,
            lookup_binding: None,
            effect_key: None,
            policy_version: version.to_owned(),
            origin_request_id,
            traceparent: Some(traceparent),
            created_at: now,
            expires_at: now + ttl,
            late_release_ms: millis(prepared.late_release),
        };
        self.key(&mut draft);
        draft
    }

    /// Dates a draft that was not stored yet anew; ids carry their time.
    fn date(&self, draft: &mut Draft, now: Timestamp, ttl: Duration) {
        draft.id = DraftId::new(Partition::of(&draft.owner_hash), now, &*self.parts.chance);
        draft.root = draft.id.clone();
        (draft.created_at, draft.expires_at) = (now, now + ttl);
        self.key(draft);
    }

    /// Gives a draft the effect key of its intent, where its upstream takes one.
    fn key(&self, draft: &mut Draft) {
        let wanted = draft.request.effect_key_header.is_some();
        draft.effect_key = wanted.then(|| binding::effect_key(&self.parts.keys, &draft.root));
    }

    /// A W3C trace context of our own, for a call that came without one: the release can be found
    /// in the upstream's traces by it.
    fn traceparent(&self) -> String {
        let id = data_encoding::HEXLOWER.encode(&self.parts.chance.bytes32()[..24]);
        format!("00-{}-{}-01", &id[..32], &id[32..])
    }

    /// Seals a draft into the store's request.
    pub(super) fn seal_hold(&self, draft: &Draft, body: &[u8], meets: Meets) -> Result<Hold, Problem> {
        let sealed = seal::seal(draft, body, &self.parts.keys, &*self.parts.chance).map_err(|error| {
            tracing::error!(%error, "a draft could not be sealed");
            self.hold_unavailable()
        })?;
        Ok(Hold {
            id: draft.id.clone(),
            tenant: draft.identity.tenant.clone(),
            owner_hash: draft.owner_hash,
            initiator: draft.identity.initiator.clone(),
            session: draft.identity.session.clone(),
            service: draft.service.clone(),
            tool: draft.tool.clone(),
            capability: draft.capability.clone(),
            risk: draft.risk,
            args_hash: draft.args_hash,
            join_key: meets.join_key,
            caller_key: meets.caller_key,
            token_digest: binding::new_token(&self.parts.keys, &draft.id).digest(),
            created_at: draft.created_at,
            expires_at: draft.expires_at,
            replay_window_ms: meets.replay_window_ms,
            refusal_memory_ms: meets.refusal_memory_ms,
            limits: self.parts.settings.owner_limits,
            sealed,
        })
    }

    async fn ask_hold(&self, hold: &Hold) -> Result<Held, Problem> {
        match ask(|| self.parts.store.hold(hold.clone())).await {
            Ok(held) => Ok(held),
            Err(error @ StoreError::Corrupt(_)) => Err(self.uncertain("hold", &error)),
            Err(error) => {
                tracing::error!(step = "hold", %error, "store failed");
                Err(self.hold_unavailable())
            }
        }
    }

    /// The store's time has moved on too far at every try.
    pub(super) fn too_slow(&self) -> Problem {
        tracing::error!("a hold waited for the store until its time was over, again and again; the store is too slow");
        self.hold_unavailable()
    }

    pub(super) fn hold_unavailable(&self) -> Problem {
        self.parts.observer.failed_closed();
        Problem::hold_unavailable()
    }

    /// Why there is no draft that the proposal could be answered from.
    fn not_held(&self, held: Held) -> Problem {
        match held {
            Held::RejectedBefore(stored) => self.ended_problem(&stored),
            Held::KeyReused(id) => Problem::new(
                Code::IdempotencyKeyReused,
                "This Idempotency-Key was used with other args. Nothing was held; use a new key for a new call.",
            )
            .about(&id),
            Held::TooManyPending => Problem::new(
                Code::TooManyPending,
                "This owner has too many calls that wait for a decision. Ask for a decision first.",
            ),
            Held::RateLimited => Problem::new(
                Code::RateLimited,
                "This owner has asked for too many writes in a short time. Wait, then send the same call again.",
            ),
            // Answered before.
            Held::New(_) | Held::Joined(_) | Held::Clock(_) => self.hold_unavailable(),
        }
    }

    async fn joined(&self, stored: Stored, who: &Identity, held_status: u16) -> Result<Answer, Problem> {
        match stored.row.state.status() {
            Status::Succeeded | Status::Failed => self.stored_answer(&stored, true, true).await,
            Status::Pending | Status::Running | Status::Verifying | Status::Unverifiable => {
                self.waiting_answer(&stored, who, held_status)
            }
            Status::Rejected | Status::Expired | Status::Withdrawn => Err(self.ended_problem(&stored)),
        }
    }

    fn waiting_answer(&self, stored: &Stored, who: &Identity, held_status: u16) -> Result<Answer, Problem> {
        let opened = self.open(stored)?;
        self.waiting_with(stored, &opened.draft, &opened.key_id, who, held_status)
    }

    /// The answer of a draft that waits, by its record; `key_id` names the keys that it was sealed
    /// with.
    fn waiting_with(
        &self,
        stored: &Stored,
        draft: &Draft,
        key_id: &str,
        who: &Identity,
        held_status: u16,
    ) -> Result<Answer, Problem> {
        let view = self.agent_view(stored, Some(draft));
        let mut answer = Answer::json(held_status, &view)
            .with("Location", view.status_url.clone())
            .with("Countersign-Draft", view.draft_id.to_string())
            .with("Countersign-Status", view.status.as_str())
            .with("x-should-retry", "false");
        if who.deliver_token {
            let token = binding::token(&self.parts.keys, key_id, &stored.row.id);
            let token = token.map_err(|_| self.hold_unavailable())?;
            answer = answer.with("Countersign-Confirmation-Token", token.reveal());
        }
        Ok(answer)
    }
}

/// Whether the store's draft is the one that was handed in, waiting. Else it has to be verified like
/// any other: a hold that was asked for twice may have been decided in between.
fn is_as_made(stored: &Stored, hold: &Hold) -> bool {
    let row = &stored.row;
    row.state == State::Pending
        && stored.sealed == hold.sealed
        && row.id == hold.id
        && row.args_hash == hold.args_hash
        && (row.created_at, row.expires_at) == (hold.created_at, hold.expires_at)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
