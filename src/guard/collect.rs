//! What an agent reads of its own drafts: status, stored result, withdrawal, the open ones.

use crate::base::code::Code;
use crate::base::id::{DraftId, StepId};
use crate::draft::binding;
use crate::draft::outcome::{Failure, StoredResponse};
use crate::draft::proof::{self, Refusal, withdrawn_by};
use crate::draft::receipt::Judged;
use crate::draft::record::Identity;
use crate::draft::seal;
use crate::draft::state::Status;
use crate::store::contract::{Ended, Filter, PAGE_MAX, page_is_full};
use crate::store::row::Stored;

use super::answer::Answer;
use super::core::{Guard, ask, not_found};
use super::problem::{Executed, Problem, UNKNOWN_TEXT};
use super::render::deciders;
use super::views::AgentView;

impl Guard {
    /// A draft's status for the same owner and initiator. `collect`: a GET, whose answer carries
    /// the receipt and so collects it; HEAD never does.
    ///
    /// # Errors
    ///
    /// `DRAFT_NOT_FOUND`, `DRAFT_NOT_YOURS`, `DECISION_UNCERTAIN`, `DRAFT_INTEGRITY_FAILED`.
    pub async fn agent_status(&self, who: &Identity, id: &DraftId, collect: bool) -> Result<AgentView, Problem> {
        let stored = self.load_own(who, id).await?;
        let opened = self.open(&stored)?;
        if collect && stored.row.receipt.is_some() {
            self.collected(&stored).await;
        }
        Ok(self.agent_view(&stored, Some(&opened.draft)))
    }

    /// The upstream's stored response word for word, 202 while there is none, or the problem.
    pub async fn agent_result(&self, who: &Identity, id: &DraftId, collect: bool) -> Answer {
        match self.try_result(who, id, collect).await {
            Ok(answer) => answer,
            Err(problem) => problem.answer(),
        }
    }

    async fn try_result(&self, who: &Identity, id: &DraftId, collect: bool) -> Result<Answer, Problem> {
        let stored = self.load_own(who, id).await?;
        let opened = self.open(&stored)?;
        match stored.row.state.status() {
            Status::Pending | Status::Running | Status::Verifying => {
                let view = self.agent_view(&stored, Some(&opened.draft));
                Ok(Answer::json(202, &view)
                    .with("Countersign-Draft", id.to_string())
                    .with("Countersign-Status", view.status.as_str()))
            }
            Status::Succeeded | Status::Failed => self.stored_answer(&stored, collect, false).await,
            Status::Unverifiable | Status::Rejected | Status::Expired | Status::Withdrawn => {
                Err(self.ended_problem(&stored))
            }
        }
    }

    /// Takes a pending draft back.
    ///
    /// # Errors
    ///
    /// As [`Self::agent_status`], and `DRAFT_ALREADY_DECIDED`, `DRAFT_EXPIRED`.
    pub async fn withdraw(&self, who: &Identity, id: &DraftId) -> Result<AgentView, Problem> {
        let stored = self.load_own(who, id).await?;
        let opened = self.open(&stored)?;
        let step = StepId::new(&*self.parts.chance);
        let by = who.initiator.as_str();
        let mac = proof::refusal_mac(&self.parts.keys, &opened, Refusal::Withdrawn, None, &withdrawn_by(by));
        let mac = mac.map_err(|_| self.integrity_failed(&stored))?;
        let ended = ask(|| self.parts.store.withdraw(id, step, by, mac)).await;
        let ended = ended.map_err(|error| self.uncertain("withdraw", &error))?;
        match ended {
            Ended::Done(now) => {
                self.parts.observer.draft(&now.row.tool, Status::Withdrawn);
                let opened = self.open(&now)?;
                Ok(self.agent_view(&now, Some(&opened.draft)))
            }
            Ended::NotPending(now) => {
                let opened = self.open(&now)?;
                if now.row.state.status() == Status::Withdrawn {
                    return Ok(self.agent_view(&now, Some(&opened.draft)));
                }
                Err(self.decided_problem(&now))
            }
            Ended::NotFound => Err(not_found(id)),
            Ended::Changed | Ended::KeyReused => Err(self.decided_problem(&stored)),
        }
    }

    /// This owner's and initiator's open drafts (pending, running, verifying), newest first.
    ///
    /// # Errors
    ///
    /// `DECISION_UNCERTAIN`.
    pub async fn agent_pending(&self, who: &Identity) -> Result<Vec<AgentView>, Problem> {
        let mut filter = Filter {
            tenant: Some(who.tenant.clone()),
            statuses: vec![Status::Pending, Status::Running, Status::Verifying],
            owner_hash: Some(binding::owner_hash(&self.parts.keys, &who.tenant, &who.owner)),
            initiator: Some(who.initiator.clone()),
            limit: PAGE_MAX,
            ..Filter::default()
        };
        let mut views = Vec::new();
        // Long bodies make short pages.
        loop {
            let found = self.parts.store.list(&filter).await.map_err(|error| self.uncertain("list", &error))?;
            let open = found.iter().filter(|stored| {
                let row = &stored.row;
                row.state.status() != Status::Pending || self.now_of(&row.id) < row.expires_at
            });
            views.extend(open.filter_map(|stored| Some(self.agent_view(stored, Some(&self.open(stored).ok()?.draft)))));
            let full = page_is_full(&found, filter.limit);
            filter.limit -= found.len().min(filter.limit);
            filter.before = found.last().map(|stored| stored.row.id.clone());
            if !full || filter.limit == 0 {
                return Ok(views);
            }
        }
    }

    pub(super) async fn load_own(&self, who: &Identity, id: &DraftId) -> Result<Stored, Problem> {
        let stored = self.load(id).await?;
        let row = &stored.row;
        let owner_hash = binding::owner_hash(&self.parts.keys, &who.tenant, &who.owner);
        if row.owner_hash == owner_hash && row.tenant == who.tenant && row.initiator == who.initiator {
            return Ok(stored);
        }
        self.parts.observer.refused_attempt(Code::DraftNotYours, who.initiator.as_str());
        Err(Problem::new(Code::DraftNotYours, "This draft belongs to another owner or agent."))
    }

    /// Notes the collection. A store that is away costs nothing but a longer replay window.
    pub(super) async fn collected(&self, stored: &Stored) {
        if let Err(error) = self.parts.store.collect(&stored.row.id).await {
            tracing::warn!(draft = %stored.row.id, %error, "collection was not noted");
        }
    }

    /// The stored response as the agent gets it: the upstream's status, kept headers and body,
    /// with the guard's own headers beside them.
    pub(super) async fn stored_answer(
        &self,
        stored: &Stored,
        collect: bool,
        replayed: bool,
    ) -> Result<Answer, Problem> {
        let response = self.response_of(stored).await?;
        if collect {
            self.collected(stored).await;
        }
        let Some(response) = response else {
            return Err(self.without_response(stored));
        };
        let answer = if response.truncated { too_large(stored, &response) } else { as_sent(response) };
        Ok(self.marked(answer, stored, replayed))
    }

    /// The response that is kept for a draft, verified and opened; `None` where there is none.
    pub(super) async fn response_of(&self, stored: &Stored) -> Result<Option<StoredResponse>, Problem> {
        let row = &stored.row;
        let full = match &stored.response {
            None if row.has_response => self.load(&row.id).await?,
            _ => stored.clone(),
        };
        self.open(&full)?;
        let opened = full.response.as_ref().map(|sealed| seal::open_response(sealed, &row.id, &self.parts.keys));
        opened.transpose().map_err(|_| self.integrity_failed(stored))
    }

    fn marked(&self, mut answer: Answer, stored: &Stored, replayed: bool) -> Answer {
        let row = &stored.row;
        answer = answer
            .with("Countersign-Draft", row.id.to_string())
            .with("Countersign-Status", row.state.status().as_str())
            .with("x-should-retry", "false");
        if let Some(receipt) = &row.receipt {
            answer = answer.with("Countersign-Receipt", receipt.id.clone());
            if replayed {
                let at = receipt.sent_at.unwrap_or(receipt.settled_at);
                answer = answer.with("Countersign-Executed-At", at.to_string());
            }
        }
        if replayed {
            answer = answer
                .with("Countersign-Replayed", "true")
                .with("Countersign-Hint", "send a new Idempotency-Key to do it again");
        }
        answer
    }

    /// A terminal draft without a response: provably not sent, resolved by a person, or one whose
    /// answer could not be kept.
    pub(super) fn without_response(&self, stored: &Stored) -> Problem {
        let row = &stored.row;
        if row.state.status() == Status::Succeeded {
            return self.unanswered_problem(stored);
        }
        match row.failure {
            Some(Failure::Resolved | Failure::Refused) => self.unanswered_problem(stored),
            Some(Failure::ReleaseTooLate) => self.failed_problem(
                Code::ReleaseTooLate,
                "It was confirmed, but came too late to be sent. Nothing was executed; a person can offer it again.",
                stored,
            ),
            Some(Failure::Integrity) => self.failed_problem(
                Code::DraftIntegrityFailed,
                "The confirmation of this call did not verify, so it was not sent. Nothing was executed; look for who \
                 can write to the store.",
                stored,
            ),
            Some(Failure::NotSent) => self.failed_problem(
                Code::UpstreamNotReached,
                "The upstream was not reached. Nothing was executed; a person can offer it again.",
                stored,
            ),
            // No guard settles a draft like this: nothing is said of what was executed.
            None => self.integrity_failed(stored),
        }
    }

    /// The outcome is known and the upstream's own answer is not: a person found it out, or the
    /// answer could not be kept. Nothing may be read as if it were that answer; what there is to
    /// tell is the receipt.
    fn unanswered_problem(&self, stored: &Stored) -> Problem {
        let row = &stored.row;
        let by_person = row.receipt.as_ref().is_some_and(|receipt| receipt.judged == Judged::Person);
        let mut problem = self.decided_problem(stored);
        problem.detail = match (row.state.status(), by_person) {
            (Status::Succeeded, true) => {
                "A person found out that this call was carried out. The upstream's own answer is not known, so there is \
                 none to give; the receipt stands in its place. Do not repeat the call."
            }
            (Status::Succeeded, false) => {
                "This call was carried out. The upstream's own answer was not kept, so there is none to give; the receipt \
                 stands in its place. Do not repeat the call."
            }
            (_, true) => {
                "A person found out that this call was not carried out. The upstream's own answer is not known, so there \
                 is none to give. Do not claim success; tell the user."
            }
            (_, false) => {
                "The upstream refused this call, and its own answer was not kept. Do not claim success; tell the user."
            }
        }
        .to_owned();
        problem.upstream_called = true;
        problem.with("failure", &row.failure.map(Failure::as_str))
    }

    fn failed_problem(&self, code: Code, detail: &str, stored: &Stored) -> Problem {
        let row = &stored.row;
        Problem::new(code, detail)
            .about(&row.id)
            .with("failure", &row.failure.map(Failure::as_str))
            .with("receipt", &row.receipt)
    }

    /// What an agent is told of a draft that ended without a result.
    pub(super) fn ended_problem(&self, stored: &Stored) -> Problem {
        let row = &stored.row;
        let reason = row.refused.as_ref().map(|refused| refused.reason.as_str());
        match row.state.status() {
            Status::Expired => expired_problem(stored),
            Status::Rejected => Problem::new(
                Code::DraftRejected,
                "This call was rejected and not executed. Do not repeat it; tell the user the reason.",
            )
            .about(&row.id)
            .with("reason", &reason)
            .with("rejected_at", &row.ended_at),
            Status::Unverifiable => {
                let mut problem = Problem::new(Code::CommitOutcomeUnknown, UNKNOWN_TEXT).about(&row.id);
                problem.members.insert("status".to_owned(), "unverifiable".into());
                problem
            }
            _ => self.decided_problem(stored),
        }
    }

    /// Decided otherwise: carries status, outcome and receipt.
    pub(super) fn decided_problem(&self, stored: &Stored) -> Problem {
        let row = &stored.row;
        let status = row.state.status();
        if status == Status::Expired {
            return expired_problem(stored);
        }
        let refused = row.refused.as_ref();
        let by = match refused {
            Some(refused) => refused.by.as_ref(),
            None => deciders(row, row.failure).last().copied(),
        };
        let detail = format!("This draft is decided already, and is `{status}`; nothing was changed by this request.");
        let mut problem = Problem::new(Code::DraftAlreadyDecided, detail)
            .about(&row.id)
            .with("status", &status)
            .with("decided_by", &by.map(|by| by.id.as_str()))
            .with("reason", &refused.map(|refused| refused.reason.as_str()))
            .with("outcome", &outcome_word(status))
            .with("receipt", &row.receipt);
        problem.executed = match status {
            Status::Succeeded => Executed::Yes,
            Status::Running | Status::Verifying | Status::Unverifiable => Executed::Unknown,
            _ => Executed::No,
        };
        problem
    }
}

fn outcome_word(status: Status) -> Option<&'static str> {
    matches!(status, Status::Succeeded | Status::Failed | Status::Unverifiable).then(|| status.as_str())
}

fn expired_problem(stored: &Stored) -> Problem {
    Problem::new(Code::DraftExpired, "Nobody confirmed this call in time. Nothing was executed; ask for it again.")
        .about(&stored.row.id)
        .with("expired_at", &stored.row.expires_at)
        .with("recreate", &true)
}

fn as_sent(response: StoredResponse) -> Answer {
    let mut headers = response.headers;
    headers.push(("Cache-Control".to_owned(), "no-store".to_owned()));
    Answer { status: response.status, headers, body: response.body.into() }
}

fn too_large(stored: &Stored, response: &StoredResponse) -> Answer {
    let row = &stored.row;
    let mut problem = Problem::new(
        Code::ResultTooLarge,
        "The upstream answered, but its response is longer than what the guard keeps. Do not repeat the call.",
    )
    .about(&row.id)
    .with("upstream_status", &response.status)
    .with("length", &response.length)
    .with("digest", &response.digest)
    .with("receipt", &row.receipt);
    if row.state.status() == Status::Failed {
        problem.executed = Executed::No;
    }
    problem.answer()
}
