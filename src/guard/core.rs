//! The guard itself: its parts, and the ways in which a draft is loaded and waited for.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::task::TaskTracker;

use crate::base::chance::Chance;
use crate::base::code::Code;
use crate::base::id::DraftId;
use crate::base::time::{Clock, Timestamp};
use crate::draft::keys::KeySet;
use crate::draft::seal::Opened;
use crate::draft::state::{State, Status};
use crate::policy::model::PolicySet;
use crate::store::contract::{Ended, Store, StoreError};
use crate::store::journal::SendLog;
use crate::store::row::{Row, Stored};
use crate::upstream::contract::Upstream;

use super::observer::Observer;
use super::pause::Pause;
use super::problem::{Executed, Problem};
use super::settings::Settings;
use super::verify;

/// How often a step whose reply was lost is asked again with the same step id before the caller
/// is told that it is uncertain.
const ASK_AGAIN_MAX: u32 = 2;

/// How long after the first time it is asked again at all: a store that stands still answers the
/// repetition no sooner, and the caller waits for it.
const ASK_AGAIN_FOR: Duration = Duration::from_secs(1);

/// How long a confirm that waits for its outcome relies on hints alone.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The answer to a step of the store, which is asked again while its reply was lost.
pub(super) async fn ask<T, Asked>(step: impl Fn() -> Asked) -> Result<T, StoreError>
where
    Asked: Future<Output = Result<T, StoreError>>,
{
    let mut again = 0;
    let begun = tokio::time::Instant::now();
    loop {
        match step().await {
            Err(StoreError::Uncertain(_)) if again < ASK_AGAIN_MAX && begun.elapsed() < ASK_AGAIN_FOR => again += 1,
            answer => return answer,
        }
    }
}

/// How long the journal remembers attempts beyond the retention of drafts.
pub(super) const JOURNAL_MARGIN: Duration = Duration::from_secs(8 * 24 * 3600);

/// What a guard is made of.
pub struct Parts {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The upstreams.
    pub upstream: Arc<dyn Upstream>,
    /// This node's journal.
    pub journal: Arc<dyn SendLog>,
    /// The keys.
    pub keys: KeySet,
    /// The policy set in force; reloading swaps it.
    pub policies: Arc<ArcSwap<PolicySet>>,
    /// The clocks.
    pub clock: Arc<dyn Clock>,
    /// Chance.
    pub chance: Arc<dyn Chance>,
    /// Who counts.
    pub observer: Arc<dyn Observer>,
    /// Where tests stop it.
    pub pause: Arc<dyn Pause>,
    /// The bounds.
    pub settings: Settings,
}

/// The guard. Shells hold it in an [`Arc`].
pub struct Guard {
    pub(super) parts: Parts,
    pub(super) releases: TaskTracker,
    /// Drafts past retention that do not verify: kept, and told of once.
    pub(super) kept: Mutex<BTreeSet<DraftId>>,
}

impl Guard {
    /// Puts the parts together. Starts nothing: see [`Self::sweep_forever`].
    #[must_use]
    pub fn new(parts: Parts) -> Arc<Self> {
        Arc::new(Self { parts, releases: TaskTracker::new(), kept: Mutex::default() })
    }

    /// The policy set in force.
    #[must_use]
    pub fn policies(&self) -> Arc<PolicySet> {
        self.parts.policies.load_full()
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.parts.settings
    }

    /// A hint for every committed event on this node; a receiver that lags reads again.
    #[must_use]
    pub fn hints(&self) -> tokio::sync::broadcast::Receiver<DraftId> {
        self.parts.store.hints()
    }

    /// Whether holds can be taken now.
    ///
    /// # Errors
    ///
    /// What is wrong, for anybody who asks `/readyz`; where it is wrong stands in the log alone.
    pub async fn ready(&self) -> Result<(), String> {
        let Err(error) = self.parts.store.check().await else { return Ok(()) };
        tracing::warn!(%error, "not ready: nothing can be held");
        let reason = match error {
            StoreError::Unavailable(_) => {
                "The store takes no writes: it is gone, full, not fit to keep drafts, or does not answer. The guard's log says which."
            }
            StoreError::Uncertain(_) => {
                "The store did not answer in time, or too few replicas have what was written. The guard's log says more."
            }
            StoreError::Corrupt(_) => "The store's file cannot be read. The guard's log says more.",
        };
        Err(reason.to_owned())
    }

    /// Waits until every release in flight has ended, at most `patience`; for a clean shutdown.
    /// A release that is cut off all the same is found by its lease or, after a restart, at once.
    pub async fn drain(&self, patience: Duration) {
        self.releases.close();
        if tokio::time::timeout(patience, self.releases.wait()).await.is_err() {
            tracing::warn!(releases = self.releases.len(), "stopping with releases in flight");
        }
    }

    /// The best idea of the store's clock, where no draft is concerned.
    pub(super) fn now(&self) -> Timestamp {
        self.parts.store.now()
    }

    /// The best idea of the time by which the store judges a draft.
    pub(super) fn now_of(&self, id: &DraftId) -> Timestamp {
        self.parts.store.now_in(id.partition())
    }

    /// Reads a draft; one that is past its time is expired first, so that nobody ever sees a
    /// pending draft that cannot be confirmed any more.
    pub(super) async fn load(&self, id: &DraftId) -> Result<Stored, Problem> {
        let found = self.parts.store.get(id).await.map_err(|error| self.uncertain("get", &error))?;
        let stored = found.ok_or_else(|| self.gone(id))?;
        self.expire_if_over(stored).await
    }

    /// No such draft. Where this node began to send it, the store has lost it: whether it was carried
    /// out is not known here, and that is said (promise 5).
    fn gone(&self, id: &DraftId) -> Problem {
        if !self.parts.journal.began(id) {
            return not_found(id);
        }
        let detail = "The store has lost this draft after the call was sent. Whether it was carried out is not known here; \
                      look at the service before it is repeated, and in the guard's log for its end.";
        let mut problem = Problem::new(Code::DraftNotFound, detail).about(id);
        problem.executed = Executed::Unknown;
        problem.upstream_called = true;
        problem
    }

    pub(super) async fn expire_if_over(&self, stored: Stored) -> Result<Stored, Problem> {
        if stored.row.state != State::Pending || self.now_of(&stored.row.id) < stored.row.expires_at {
            return Ok(stored);
        }
        let ended = self.parts.store.expire(&stored.row.id).await;
        match ended.map_err(|error| self.uncertain("expire", &error))? {
            Ended::Done(now) => {
                self.parts.observer.draft(&now.row.tool, Status::Expired);
                Ok(*now)
            }
            Ended::NotPending(now) => Ok(*now),
            Ended::NotFound => Err(not_found(&stored.row.id)),
            Ended::Changed | Ended::KeyReused => Ok(stored),
        }
    }

    /// Opens and verifies a draft: seal, MAC, every copy in clear against the sealed record, the
    /// votes, and the outcome or the refusal. Nobody is told anything of a draft before this.
    pub(super) fn open(&self, stored: &Stored) -> Result<Opened, Problem> {
        let opened = verify::whole(stored, &self.parts.keys, self.now_of(&stored.row.id));
        let opened = opened.map_err(|_| self.integrity_failed(stored))?;
        // "Not executed" of a draft that this node began to send is put back or forged.
        if says_never_sent(&stored.row) && self.parts.journal.began(&stored.row.id) {
            return Err(self.integrity_failed(stored));
        }
        Ok(opened)
    }

    /// Verifies the ends of the equal drafts that this pending one was made after: a forged "not sent" would
    /// lead to a second effect by way of the next equal call. One that does not verify takes this
    /// draft with it.
    ///
    /// # Errors
    ///
    /// `DRAFT_INTEGRITY_FAILED` about the earlier draft; `DECISION_UNCERTAIN`.
    pub(super) async fn ends_before(&self, stored: &Stored) -> Result<(), Problem> {
        for id in &stored.row.passed_over {
            let Some((forged, problem)) = self.forged_before(id).await? else { continue };
            let opened = self.open(stored)?;
            self.guard_rejects(stored, &opened, &format!("{EARLIER_DRAFT_INTEGRITY}{forged}")).await?;
            return Err(problem);
        }
        Ok(())
    }

    /// The draft whose end does not verify: the earlier one, or the one that it fell with. The store
    /// looks at the newest equal drafts only: did those not name it on, repeating a refused call would
    /// put it out of sight.
    async fn forged_before(&self, id: &DraftId) -> Result<Option<(DraftId, Problem)>, Problem> {
        let before = match self.earlier(id).await? {
            Earlier::Gone => return Ok(None),
            Earlier::Forged(problem) => return Ok(Some((id.clone(), *problem))),
            Earlier::Verified(before) => before,
        };
        let Some(first) = fell_with(&before.row) else { return Ok(None) };
        match self.earlier(&first).await? {
            Earlier::Forged(problem) => Ok(Some((first, *problem))),
            Earlier::Gone | Earlier::Verified(_) => Ok(None),
        }
    }

    /// One earlier draft. What cannot be read does not verify either: asking again would not help, and
    /// an error here would leave the new draft waiting for ever.
    async fn earlier(&self, id: &DraftId) -> Result<Earlier, Problem> {
        match self.parts.store.get(id).await {
            Ok(None) => Ok(Earlier::Gone),
            Ok(Some(stored)) => Ok(match self.open(&stored) {
                Ok(_) => Earlier::Verified(Box::new(stored)),
                Err(problem) => Earlier::Forged(Box::new(problem)),
            }),
            Err(error @ StoreError::Corrupt(_)) => {
                Ok(Earlier::Forged(Box::new(self.uncertain("get", &error).about(id))))
            }
            Err(error @ (StoreError::Unavailable(_) | StoreError::Uncertain(_))) => Err(self.uncertain("get", &error)),
        }
    }

    /// What is stored does not verify. Whether anything was executed is said only where nothing
    /// can have been (promise 5).
    pub(super) fn integrity_failed(&self, stored: &Stored) -> Problem {
        let row = &stored.row;
        self.parts.observer.integrity_failed();
        tracing::error!(draft = %row.id, "stored draft does not verify");
        let began = row.attempts > 0 || self.parts.journal.began(&row.id);
        let never_began = !began && (row.state == State::Pending || says_never_sent(row));
        let detail = if never_began {
            "The stored draft does not verify. Nothing was sent; look for who can write to the store."
        } else {
            "The stored draft does not verify, so nothing it says is believed. Do not repeat the call; look for who can \
             write to the store, or for a key that was taken away."
        };
        let mut problem = Problem::new(Code::DraftIntegrityFailed, detail).about(&row.id);
        if !never_began {
            problem.executed = Executed::Unknown;
            problem.upstream_called = began;
        }
        problem
    }

    /// Waits until the draft has left `running` and `verifying`, at most `patience`.
    pub(super) async fn wait_settled(&self, id: &DraftId, patience: Duration) -> Result<Stored, Problem> {
        let until = tokio::time::Instant::now() + patience;
        let mut hints = self.parts.store.hints();
        let mut seen = false;
        loop {
            let over = tokio::time::Instant::now() >= until;
            match self.load(id).await {
                Ok(stored) => {
                    let going_on = matches!(stored.row.state.status(), Status::Running | Status::Verifying);
                    if !going_on || over {
                        return Ok(stored);
                    }
                    seen = true;
                }
                // A store that is away for a moment does not end the wait.
                Err(problem) if over || !seen => return Err(problem),
                Err(_) => {}
            }
            let hint = async {
                loop {
                    match hints.recv().await {
                        Ok(changed) if changed == *id => break,
                        Ok(_) => {}
                        Err(RecvError::Lagged(_)) => break,
                        Err(RecvError::Closed) => std::future::pending().await,
                    }
                }
            };
            // The hint may be lost on its way from another guard: the store is asked again all the same.
            let look = until.min(tokio::time::Instant::now() + LOOK_AGAIN);
            let _hinted = tokio::time::timeout_at(look, hint).await;
        }
    }

    /// What a caller is told when the store gave no answer, or a draft that cannot be read.
    pub(super) fn uncertain(&self, step: &'static str, error: &StoreError) -> Problem {
        tracing::error!(step, %error, "store failed");
        if matches!(error, StoreError::Corrupt(_)) {
            self.parts.observer.integrity_failed();
            let mut problem = Problem::new(
                Code::DraftIntegrityFailed,
                "The stored draft cannot be read, so nothing is decided or sent. Asking again does not help; look for \
                 who can write to the store.",
            );
            problem.executed = Executed::Unknown;
            return problem;
        }
        self.parts.observer.failed_closed();
        let mut problem = Problem::uncertain(error);
        if READS.contains(&step) {
            // Also asked after a decision, so nothing is said of what was done before.
            "The store does not answer, or too few replicas have what it would say. Ask again: nothing is decided or sent twice by that."
                .clone_into(&mut problem.detail);
        }
        problem
    }
}

/// Steps that change nothing.
const READS: [&str; 4] = ["get", "by_token", "list", "events"];

/// What is found where a new draft relies on an earlier one.
enum Earlier {
    /// There is none any more.
    Gone,
    /// It verifies.
    Verified(Box<Stored>),
    /// It does not verify, or cannot be read.
    Forged(Box<Problem>),
}

/// Why a draft is rejected whose equal predecessor does not verify. The predecessor's id follows.
const EARLIER_DRAFT_INTEGRITY: &str = "EARLIER_DRAFT_INTEGRITY ";

/// The draft because of which the guard rejected this one, if it did.
pub(super) fn fell_with(row: &Row) -> Option<DraftId> {
    let refused = row.refused.as_ref().filter(|refused| !refused.by_person())?;
    refused.reason.strip_prefix(EARLIER_DRAFT_INTEGRITY)?.parse().ok()
}

/// Whether a draft ended without ever having been claimed.
fn says_never_sent(row: &Row) -> bool {
    matches!(row.state, State::Rejected | State::Expired | State::Withdrawn)
}

pub(super) fn not_found(id: &DraftId) -> Problem {
    Problem::new(Code::DraftNotFound, "There is no such draft, or it is past its retention.").about(id)
}
