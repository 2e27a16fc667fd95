//! What approvers and apps may ask: the queue, the card, decisions, resolution.

use std::sync::Arc;
use std::time::Duration;

use crate::base::code::Code;
use crate::base::digest::Digest;
use crate::base::id::{DraftId, Principal};
use crate::base::secret::Secret;
use crate::draft::binding;
use crate::draft::decision::{Channel, Decider, DeciderKind};
use crate::draft::record::Draft;
use crate::draft::seal::Opened;
use crate::draft::state::{Status, Verdict};
use crate::store::contract::{Filter, PAGE_MAX, SWEEP_MAX, page_is_full};
use crate::store::cursor::{Cursor, Page as EventPage};
use crate::store::row::Stored;

use super::answer::Answer;
use super::core::{Guard, not_found};
use super::decide::{Confirm, same_args, words};
use super::problem::Problem;
use super::views::{DraftView, Page};
use super::who::{AppCaller, Approver};

impl Guard {
    /// A page of the drafts that this approver may see. `filter.tenant` is overwritten.
    ///
    /// # Errors
    ///
    /// `DECISION_UNCERTAIN`.
    pub async fn list(&self, who: &Approver, mut filter: Filter) -> Result<Page, Problem> {
        filter.tenant = Some(who.tenant.clone());
        filter.limit = filter.limit.clamp(1, PAGE_MAX);
        let found = self.parts.store.list(&filter).await.map_err(|error| self.uncertain("list", &error))?;
        let next =
            if page_is_full(&found, filter.limit) { found.last().map(|stored| stored.row.id.clone()) } else { None };
        let mut drafts = Vec::with_capacity(found.len());
        for stored in found {
            let stored = self.expire_if_over(stored).await?;
            if !filter.statuses.is_empty() && !filter.statuses.contains(&stored.row.state.status()) {
                continue;
            }
            let opened = self.open(&stored).ok();
            // A draft that does not verify is shown as such to whoever may see its service.
            if opened.as_ref().map_or_else(|| may_see_damaged(who, &stored), |opened| may_see(who, &opened.draft)) {
                drafts.push(Self::line(&stored, opened.as_ref()));
            }
        }
        Ok(Page { drafts, next })
    }

    /// One draft, complete; notes that it was seen.
    ///
    /// # Errors
    ///
    /// `DRAFT_NOT_FOUND`, `APPROVER_NOT_ALLOWED`, `DECISION_UNCERTAIN`.
    pub async fn show(&self, who: &Approver, id: &DraftId) -> Result<DraftView, Problem> {
        let stored = self.load_for(who, id).await?;
        let opened = self.open(&stored).ok();
        let visible =
            opened.as_ref().map_or_else(|| may_see_damaged(who, &stored), |opened| may_see(who, &opened.draft));
        if !visible {
            return Err(self.not_allowed(who, "see this draft"));
        }
        self.seen(&stored).await;
        Ok(Self::full(&stored, opened.as_ref()))
    }

    /// Notes that an approver opened a draft that waits.
    pub(super) async fn seen(&self, stored: &Stored) {
        let row = &stored.row;
        if row.state.status() == Status::Pending
            && let Err(error) = self.parts.store.note_seen(&row.id).await
        {
            tracing::warn!(draft = %row.id, %error, "the view was not noted");
        }
    }

    /// The body that will be sent, with its media type, for download by an approver.
    ///
    /// # Errors
    ///
    /// As [`Self::show`], and `DRAFT_INTEGRITY_FAILED`; `APPROVER_NOT_ALLOWED` also where the body
    /// holds secret args.
    pub async fn body(&self, who: &Approver, id: &DraftId) -> Result<(String, Vec<u8>), Problem> {
        let stored = self.load_for(who, id).await?;
        let opened = self.open(&stored)?;
        if !may_see(who, &opened.draft) || !opened.draft.secret.is_empty() {
            return Err(self.not_allowed(who, "download this body"));
        }
        Ok((opened.draft.request.body.content_type.clone(), opened.body))
    }

    /// Confirms, releases, and waits up to `wait` (bounded by `confirm_wait`) for the outcome.
    /// `args_hash` is what the approver saw; `None` is `ARGS_HASH_REQUIRED`.
    #[allow(clippy::too_many_arguments)]
    pub async fn confirm(
        self: &Arc<Self>,
        who: &Approver,
        id: &DraftId,
        args_hash: Option<Digest>,
        comment: Option<String>,
        decision_key: Option<String>,
        wait: Option<Duration>,
    ) -> Answer {
        let result = async {
            let (stored, _) = self.for_decision(who, id).await?;
            same_args(&stored.row, args_hash).inspect_err(|_| self.parts.observer.confirm_conflict("hash"))?;
            let confirm = Confirm {
                decider: self.approver_decider(who, id),
                comment: comment.as_deref().map(words),
                decision_key,
                wait: self.bounded(wait),
            };
            self.confirm_draft(stored, confirm).await
        };
        result.await.unwrap_or_else(|problem| problem.answer())
    }

    /// Rejects.
    pub async fn reject(
        self: &Arc<Self>,
        who: &Approver,
        id: &DraftId,
        reason: String,
        decision_key: Option<String>,
    ) -> Answer {
        let result = async {
            let (stored, opened) = self.for_decision(who, id).await?;
            let by = self.approver_decider(who, id);
            self.reject_draft(stored, &opened, by, words(&reason), decision_key.as_deref()).await
        };
        result.await.unwrap_or_else(|problem| problem.answer())
    }

    /// Settles an unverifiable draft by a person with evidence. `Verdict::Unverifiable` is refused.
    pub async fn resolve(&self, who: &Approver, id: &DraftId, verdict: Verdict, evidence: String) -> Answer {
        let result = async {
            let (stored, opened) = self.for_decision(who, id).await?;
            self.resolve_draft(stored, &opened, self.approver_decider(who, id), verdict, words(&evidence)).await
        };
        result.await.unwrap_or_else(|problem| problem.answer())
    }

    /// Makes a new draft from one that was provably not sent; 201 with its line.
    pub async fn again(&self, who: &Approver, id: &DraftId) -> Answer {
        let result = async {
            let (stored, opened) = self.for_decision(who, id).await?;
            self.draft_again(stored, opened).await
        };
        result.await.unwrap_or_else(|problem| problem.answer())
    }

    /// Confirms by token, for the owner that an app names. The token names one draft, and with it
    /// one args hash.
    pub async fn confirm_by_token(
        self: &Arc<Self>,
        app: &AppCaller,
        token: &Secret,
        decision_key: Option<String>,
        wait: Option<Duration>,
    ) -> Answer {
        let result = async {
            let stored = self.by_token(app, token).await?;
            let confirm = Confirm {
                decider: self.owner_decider(app, &stored.row.id)?,
                comment: None,
                decision_key,
                wait: self.bounded(wait),
            };
            self.confirm_draft(stored, confirm).await
        };
        result.await.unwrap_or_else(|problem| problem.answer())
    }

    /// Rejects by token.
    pub async fn reject_by_token(
        self: &Arc<Self>,
        app: &AppCaller,
        token: &Secret,
        reason: String,
        decision_key: Option<String>,
    ) -> Answer {
        let result = async {
            let stored = self.by_token(app, token).await?;
            let opened = self.open(&stored)?;
            let by = self.owner_decider(app, &stored.row.id)?;
            self.reject_draft(stored, &opened, by, words(&reason), decision_key.as_deref()).await
        };
        result.await.unwrap_or_else(|problem| problem.answer())
    }

    /// Events after a cursor, filtered by the approver's tenant. The page's cursors pass what is
    /// another tenant's, so that nobody reads it again and again.
    ///
    /// # Errors
    ///
    /// `DECISION_UNCERTAIN`.
    pub async fn events(&self, who: &Approver, after: &Cursor, limit: usize) -> Result<EventPage, Problem> {
        let limit = limit.clamp(1, SWEEP_MAX);
        let mut after = after.clone();
        // A page that holds other tenants' events alone is read past: an empty answer means that
        // there is nothing more.
        loop {
            let found =
                self.parts.store.events(&after, limit).await.map_err(|error| self.uncertain("events", &error))?;
            let last = found.events.is_empty();
            let own = found.only(|event| event.tenant == who.tenant);
            if last || !own.events.is_empty() {
                return Ok(own);
            }
            after = own.from;
        }
    }

    pub(super) async fn load_for(&self, who: &Approver, id: &DraftId) -> Result<Stored, Problem> {
        let stored = self.load(id).await?;
        // Another tenant's draft does not exist here.
        if stored.row.tenant == who.tenant { Ok(stored) } else { Err(not_found(id)) }
    }

    pub(super) async fn for_decision(&self, who: &Approver, id: &DraftId) -> Result<(Stored, Opened), Problem> {
        let stored = self.load_for(who, id).await?;
        let opened = self.open(&stored)?;
        if !may_decide(who, &opened.draft) {
            return Err(self.not_allowed(who, "decide this draft"));
        }
        Ok((stored, opened))
    }

    async fn by_token(&self, app: &AppCaller, token: &Secret) -> Result<Stored, Problem> {
        let unknown = || Problem::new(Code::DraftNotFound, "No draft has this confirmation token.");
        let (partition, digest) = binding::token_digest(token).ok_or_else(unknown)?;
        let found =
            self.parts.store.by_token(partition, &digest).await.map_err(|error| self.uncertain("by_token", &error))?;
        let stored = found.ok_or_else(unknown)?;
        let row = &stored.row;
        let owner_hash = binding::owner_hash(&self.parts.keys, &app.tenant, &app.owner);
        if row.tenant != app.tenant || row.owner_hash != owner_hash || !row.sessions.contains(&app.session) {
            self.parts.observer.refused_attempt(Code::DraftNotYours, app.app.as_str());
            return Err(Problem::new(Code::DraftNotYours, "This token belongs to another owner or session."));
        }
        self.expire_if_over(stored).await
    }

    pub(super) fn approver_decider(&self, who: &Approver, id: &DraftId) -> Decider {
        Decider {
            kind: DeciderKind::Approver,
            id: who.name.clone(),
            auth_method: who.auth_method.to_owned(),
            channel: who.channel,
            at: self.now_of(id),
        }
    }

    fn owner_decider(&self, app: &AppCaller, draft: &DraftId) -> Result<Decider, Problem> {
        let id = Principal::new(app.owner.as_str())
            .map_err(|error| Problem::new(Code::CredentialUnknown, error.to_string()))?;
        Ok(Decider {
            kind: DeciderKind::Owner,
            id,
            auth_method: format!("app:{}", app.app),
            channel: Channel::Token,
            at: self.now_of(draft),
        })
    }

    pub(super) fn not_allowed(&self, who: &Approver, what: &str) -> Problem {
        self.parts.observer.refused_attempt(Code::ApproverNotAllowed, who.name.as_str());
        Problem::new(Code::ApproverNotAllowed, format!("{} has no right to {what}. Nothing was changed.", who.name))
    }

    pub(super) fn bounded(&self, wait: Option<Duration>) -> Duration {
        wait.unwrap_or(self.parts.settings.confirm_wait).min(self.parts.settings.confirm_wait)
    }
}

pub(super) fn may_see(who: &Approver, draft: &Draft) -> bool {
    who.tenant == draft.identity.tenant
        && who.rights.as_ref().is_some_and(|rights| {
            rights.capabilities.iter().any(|pattern| pattern.fits(draft.capability.as_str()))
                && rights.services.iter().any(|pattern| pattern.fits(draft.service.as_str()))
                && rights.owners.iter().any(|pattern| pattern.fits(draft.identity.owner.as_str()))
        })
}

pub(super) fn may_see_damaged(who: &Approver, stored: &Stored) -> bool {
    who.tenant == stored.row.tenant
        && who
            .rights
            .as_ref()
            .is_some_and(|rights| rights.services.iter().any(|pattern| pattern.fits(stored.row.service.as_str())))
}

fn may_decide(who: &Approver, draft: &Draft) -> bool {
    may_see(who, draft) && who.rights.as_ref().is_some_and(|rights| draft.risk <= rights.max_risk)
}
