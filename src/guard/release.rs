//! The release: a detached task that owns a claim, sends once, classifies, settles.
//!
//! No client's disconnect cancels it. Order: verify, ask the journal, policy again, connect (all
//! waiting happens here), mark, journal, deadline, send, settle. Nothing on this path is ever
//! tried twice.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::base::digest::Digest;
use crate::base::id::{DraftId, StepId};
use crate::base::time::Timestamp;
use crate::draft::outcome::{Evidence, Failure};
use crate::draft::receipt::{Judged, Receipt, ReceiptStatus};
use crate::draft::seal::{self, Opened};
use crate::draft::state::Verdict;
use crate::policy::judge;
use crate::policy::model::{OutcomeRules, Service, StatusMeans, Tool};
use crate::store::journal::Logged;
use crate::store::rights::{Claim, MarkFailed, SendPermit};
use crate::store::row::{Row, Stored};
use crate::upstream::contract::{Attempt, Exchange, Outgoing, Response};

use super::core::{Guard, JOURNAL_MARGIN};
use super::render::deciders;
use super::settle::{Outcome, receipt_frame};
use super::verify;

/// How long after its last vote a claim may be won: a decision waits for the store, and is asked
/// again when its answer is lost.
const CLAIM_LAG: Duration = Duration::from_secs(60);

/// What an attempt came to, before it is settled.
struct Judgement {
    verdict: Verdict,
    failure: Option<Failure>,
    response: Option<Response>,
    summary: String,
    accepted: bool,
    partial: bool,
    why: String,
    upstream_status: Option<u16>,
    sent: Option<(Digest, Timestamp, u32)>,
    /// The metric's word.
    word: &'static str,
}

impl Judgement {
    fn not_sent(failure: Failure, why: impl Into<String>) -> Self {
        let summary = match failure {
            Failure::ReleaseTooLate => "Not sent: the release came too late. Nothing was executed.",
            Failure::Integrity => "Not sent: its confirmation does not verify. Nothing was executed.",
            Failure::NotSent | Failure::Refused | Failure::Resolved => "Not sent. Nothing was executed.",
        };
        Self {
            verdict: Verdict::Failed,
            failure: Some(failure),
            response: None,
            summary: summary.to_owned(),
            accepted: false,
            partial: false,
            why: why.into(),
            upstream_status: None,
            sent: None,
            word: "not_sent",
        }
    }

    fn unknown(why: impl Into<String>, upstream_status: Option<u16>) -> Self {
        Self {
            verdict: Verdict::Unverifiable,
            failure: None,
            summary: String::new(),
            why: why.into(),
            upstream_status,
            word: "unknown",
            ..Self::not_sent(Failure::NotSent, "")
        }
    }
}

impl Guard {
    /// Starts the release of a claimed draft.
    pub(super) fn spawn_release(self: &Arc<Self>, claim: Claim, stored: Stored) {
        let guard = Arc::clone(self);
        self.releases.spawn(async move { guard.release(claim, stored).await });
    }

    async fn release(self: Arc<Self>, claim: Claim, stored: Stored) {
        let id = claim.id().clone();
        let epoch = claim.epoch();
        let began = self.now();
        self.parts.pause.at("after_claim").await;
        // The decision is verified again: what stands in the store is not believed (promise 2).
        let Ok(opened) = verify::open(&stored, &self.parts.keys) else {
            self.parts.observer.integrity_failed();
            tracing::error!(draft = %id, "claimed draft does not verify; nothing is sent");
            return;
        };
        let confirmed = verify::votes(&stored, &opened, &self.parts.keys, 1).is_ok();
        if !confirmed {
            self.parts.observer.integrity_failed();
            let said_to_be_by: Vec<&str> = stored.row.votes.iter().map(|vote| vote.decider.id.as_str()).collect();
            tracing::error!(draft = %id, ?said_to_be_by, "the decision of a claimed draft does not verify; nothing is sent");
        }
        let work = async {
            match self.sent_before(&stored, &opened, confirmed) {
                Some(why) => self.never_send(claim, why).await,
                None if confirmed => self.carry_out(claim, &opened, claimed_at(&stored.row)).await,
                None => Some(Judgement::not_sent(Failure::Integrity, "the stored confirmation does not verify")),
            }
        };
        let Some(judgement) = self.with_lease(&id, epoch, work).await else { return };
        self.parts.pause.at("after_send_before_settle").await;
        self.parts.observer.released(&stored.row.tool, judgement.word, self.now().since(began));
        let outcome = self.outcome(&stored.row, &opened, epoch, judgement);
        self.settle(&opened, outcome).await;
    }

    /// Why a draft that stands as claimed may have been sent all the same. A claimed draft was never
    /// sent, but whoever can write to the store can put an earlier state back, and so can a backup:
    /// "not executed" must not be a guess (promise 5).
    fn sent_before(&self, stored: &Stored, opened: &Opened, confirmed: bool) -> Option<&'static str> {
        if self.parts.journal.began(&stored.row.id) {
            self.parts.observer.duplicate_release();
            tracing::error!(draft = %stored.row.id, "the journal holds an attempt of this draft; it is not sent again");
            return Some("this node has sent this draft before; the store went back in time");
        }
        // The times of a decision that does not verify say nothing; the record's do.
        let since = if confirmed { claimed_at(&stored.row) } else { opened.draft.created_at };
        let forgotten = self.now() - self.parts.settings.retention - JOURNAL_MARGIN;
        (since < forgotten).then_some("its confirmation is older than what the journal remembers of what was sent")
    }

    /// Marks without sending: only a marked draft can be told to be unknown. Where the mark cannot
    /// be written, the draft is found again by its lease.
    async fn never_send(&self, claim: Claim, why: &'static str) -> Option<Judgement> {
        match self.mark(claim).await? {
            Ok(_unused) => Some(Judgement::unknown(why, None)),
            Err(error) => {
                tracing::error!(why, error, "a draft that may have been sent could not be marked");
                None
            }
        }
    }

    /// Everything between the claim and the outcome. `None`: another node owns the draft now.
    async fn carry_out(&self, claim: Claim, opened: &Opened, claimed_at: Timestamp) -> Option<Judgement> {
        let draft = &opened.draft;
        let policies = self.policies();
        let Ok((service, tool)) = judge::recheck(&policies, draft) else {
            return Some(Judgement::not_sent(Failure::NotSent, "the policy in force does not allow it any more"));
        };
        let late = |guard: &Self| {
            let age = guard.now_of(&draft.id).since(claimed_at);
            age > Duration::from_millis(draft.late_release_ms)
        };
        if late(self) {
            return Some(Judgement::not_sent(Failure::ReleaseTooLate, "the claim is too old to be sent"));
        }
        let exchange = match self.parts.upstream.connect(service, self.parts.settings.connect_patience).await {
            Ok(exchange) => exchange,
            Err(not_reached) => return Some(Judgement::not_sent(Failure::NotSent, not_reached.why)),
        };
        if late(self) {
            return Some(Judgement::not_sent(Failure::ReleaseTooLate, "the upstream was reached too late"));
        }
        let permit = match self.mark(claim).await? {
            Ok(permit) => permit,
            Err(why) => return Some(Judgement::not_sent(Failure::NotSent, why)),
        };
        Some(self.send(exchange, permit, opened, service, tool).await)
    }

    /// Marks before the first byte. `None`: superseded. `Err`: provably not marked by this node
    /// for a send, so that nothing was sent.
    async fn mark(&self, claim: Claim) -> Option<Result<SendPermit, String>> {
        let Self { parts, .. } = self;
        let mut claim = claim;
        // A lease that is short because connecting took long is renewed once.
        for _ in 0..2 {
            match claim.mark(&*parts.store, &*parts.clock, &*parts.chance, parts.settings.send_window).await {
                Ok(permit) => return Some(Ok(permit)),
                Err(MarkFailed::Superseded) => {
                    tracing::warn!("another node took the draft over before it was marked");
                    return None;
                }
                Err(MarkFailed::LeaseTooShort(back)) => {
                    let step = StepId::new(&*parts.chance);
                    let renewed = parts.store.renew(back.id(), back.epoch(), step, parts.settings.lease).await;
                    if renewed.is_err() {
                        return Some(Err("the lease could not be renewed".to_owned()));
                    }
                    claim = back;
                }
                Err(MarkFailed::Store(error)) => {
                    // Nothing goes out without a durable mark (promise 4).
                    tracing::error!(%error, "the sending mark could not be written; nothing is sent");
                    return Some(Err("the sending mark could not be written".to_owned()));
                }
            }
        }
        Some(Err("the lease is shorter than the send window".to_owned()))
    }

    async fn send(
        &self,
        exchange: Box<dyn Exchange>,
        permit: SendPermit,
        opened: &Opened,
        service: &Service,
        tool: Option<&Tool>,
    ) -> Judgement {
        let (attempt, sent_at) = (permit.attempt(), permit.sent_at());
        match self.parts.journal.attempt(permit.id(), permit.epoch(), attempt, sent_at).await {
            Ok(Logged::New) => {}
            Ok(Logged::Already) => {
                self.parts.observer.duplicate_release();
                tracing::error!(draft = %permit.id(), "the journal holds this attempt already; it is not sent again");
                return Judgement::unknown("this node has sent this draft before; the store went back in time", None);
            }
            Err(error) => return Judgement::not_sent(Failure::NotSent, error.to_string()),
        }
        self.parts.pause.at("after_mark_before_deadline_check").await;
        let outgoing = self.outgoing(opened, service);
        let sent_digest = outgoing.sent_digest();
        let result = exchange.send(permit, outgoing).await;
        let rules = tool.map(|tool| tool.outcome.clone()).unwrap_or_default();
        let mut judgement = classify(result, &rules);
        if judgement.verdict == Verdict::Succeeded {
            judgement.summary = summary(&judgement, opened, tool);
        }
        if judgement.failure != Some(Failure::NotSent) {
            judgement.sent = Some((sent_digest, sent_at, attempt));
        }
        judgement
    }

    /// The request, from the opened draft alone. Credentials are resolved only now.
    fn outgoing(&self, opened: &Opened, service: &Service) -> Outgoing {
        let draft = &opened.draft;
        let request = &draft.request;
        let mut headers = request.headers.clone();
        headers.extend(request.credentials.iter().cloned());
        if let Some(credential) = &service.upstream.credential {
            headers.push((credential.header.as_str().to_owned(), credential.value.reveal().to_owned()));
        }
        if let (Some(name), Some(key)) = (&request.effect_key_header, &draft.effect_key) {
            headers.push((name.clone(), key.clone()));
        }
        if let Some(traceparent) = &draft.traceparent {
            headers.push(("traceparent".to_owned(), traceparent.clone()));
        }
        Outgoing {
            method: request.method.clone(),
            target: request.target.clone(),
            headers,
            body: opened.body.clone().into(),
            response_bytes_max: self.parts.settings.response_bytes_max,
        }
    }

    /// Runs `work` and renews the lease beside it, so that a call longer than the lease is not
    /// taken over while its owner lives.
    async fn with_lease<T>(&self, id: &DraftId, epoch: u64, work: impl Future<Output = T>) -> T {
        let lease = self.parts.settings.lease;
        tokio::select! {
            done = work => done,
            never = self.renew_forever(id, epoch, lease) => match never {},
        }
    }

    async fn renew_forever(&self, id: &DraftId, epoch: u64, lease: Duration) -> Infallible {
        let mut every = tokio::time::interval(lease / 3);
        every.tick().await;
        loop {
            every.tick().await;
            let step = StepId::new(&*self.parts.chance);
            if let Err(error) = self.parts.store.renew(id, epoch, step, lease).await {
                tracing::warn!(draft = %id, %error, "lease was not renewed");
            }
        }
    }

    fn outcome(&self, row: &Row, opened: &Opened, epoch: u64, judgement: Judgement) -> Outcome {
        let now = self.now_of(&row.id);
        let response = judgement.response.as_ref().filter(|_| judgement.verdict != Verdict::Unverifiable);
        let sealed = response.and_then(|response| {
            seal::seal_response(&response.stored, &row.id, &self.parts.keys, &*self.parts.chance).ok()
        });
        let status = match judgement.verdict {
            Verdict::Succeeded => Some(ReceiptStatus::Succeeded),
            Verdict::Failed => Some(ReceiptStatus::Failed),
            Verdict::Unverifiable => None,
        };
        let receipt = status.map(|status| Receipt {
            status,
            summary: judgement.summary.clone(),
            judged: Judged::Status,
            partial: judgement.partial,
            accepted: judgement.accepted,
            sent_digest: judgement.sent.map(|(digest, _, _)| digest),
            attempts: judgement.sent.map_or(0, |(_, _, attempt)| attempt),
            upstream_status: judgement.upstream_status,
            response_digest: response.map(|response| response.stored.digest),
            truncated: response.is_some_and(|response| response.stored.truncated),
            sent_at: judgement.sent.map(|(_, at, _)| at),
            decided_by: deciders(row, judgement.failure).into_iter().cloned().collect(),
            ..receipt_frame(row, opened, now)
        });
        Outcome {
            epoch,
            verdict: judgement.verdict,
            failure: judgement.failure,
            receipt,
            response: sealed,
            evidence: Evidence::new(now, "attempt", &judgement.why, judgement.upstream_status),
        }
    }
}

/// When the claim was won: as the store says, but hardly later than the last vote, which a MAC
/// covers. So nobody can make an old confirmation look fresh.
fn claimed_at(row: &Row) -> Timestamp {
    let said = row.claimed_at.unwrap_or(row.created_at);
    let decided = row.votes.iter().map(|vote| vote.decider.at).max().unwrap_or(row.created_at);
    said.min(decided + CLAIM_LAG)
}

/// The classification of one attempt (docs/lifecycle.md). A reset, a closed socket or a timeout
/// is never a proof that the upstream did not execute (promise 5).
fn classify(attempt: Attempt, rules: &OutcomeRules) -> Judgement {
    let response = match attempt {
        Attempt::NotSent { why } => return Judgement::not_sent(Failure::NotSent, why),
        Attempt::Unknown { why, status } => return Judgement::unknown(why, status),
        Attempt::Answered(response) => response,
    };
    let status = response.stored.status;
    if matches!(response.json, Some(Err(()))) {
        return Judgement::unknown("the response says it is JSON and does not parse", Some(status));
    }
    let (verdict, failure, word) = match rules.judge(status) {
        StatusMeans::Succeeded => (Verdict::Succeeded, None, "succeeded"),
        StatusMeans::Failed => (Verdict::Failed, Some(Failure::Refused), "failed"),
        StatusMeans::Unknown => {
            return Judgement::unknown(format!("the upstream answered {status}"), Some(status));
        }
    };
    Judgement {
        verdict,
        failure,
        summary: format!("The upstream answered {status} and did not carry it out."),
        accepted: status == 202 && verdict == Verdict::Succeeded,
        partial: status == 207 && verdict == Verdict::Succeeded,
        why: format!("the upstream answered {status}"),
        upstream_status: Some(status),
        response: Some(response),
        sent: None,
        word,
    }
}

fn summary(judgement: &Judgement, opened: &Opened, tool: Option<&Tool>) -> String {
    let draft = &opened.draft;
    let status = judgement.upstream_status.unwrap_or(0);
    let body = judgement.response.as_ref().and_then(|response| match &response.json {
        Some(Ok(body)) => Some(body),
        _ => None,
    });
    match tool {
        Some(tool) => tool.summarise(&draft.args, body, status),
        None => format!(
            "{} {} was carried out; the upstream answered {status}.",
            draft.request.method, draft.preview.target
        ),
    }
}
