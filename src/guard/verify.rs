//! Trust in what the store gives back: seal, MAC, copies, votes, outcomes and refusals.
//!
//! Whoever can write to the store can neither alter what is sent, nor forge a confirmation, an
//! outcome or a refusal: the sealed record, its copies in clear, every vote and the end are
//! verified before anybody is told of them, before a decision, before a send, and by the node
//! that takes a draft over (promises 2 and 6).

use crate::base::digest::Digest;
use crate::base::time::Timestamp;
use crate::draft::binding::{self, JoinScope};
use crate::draft::decision::Verb;
use crate::draft::keys::KeySet;
use crate::draft::outcome::Failure;
use crate::draft::proof::{self, End, Refusal};
use crate::draft::seal::{self, IntegrityFailed, Opened};
use crate::draft::state::{State, Verdict};
use crate::store::row::{Row, Stored};

/// Opens a draft and compares every copy in clear with the sealed original.
pub(super) fn open(stored: &Stored, keys: &KeySet) -> Result<Opened, IntegrityFailed> {
    let row = &stored.row;
    let opened = seal::open(&stored.sealed, &row.id, keys)?;
    let draft = &opened.draft;
    let token = binding::token(keys, &opened.key_id, &row.id)?;
    let args_hash = binding::args_hash(&draft.service, &draft.tool, &draft.request, &draft.args);
    let owner_hash = binding::owner_hash(keys, &draft.identity.tenant, &draft.identity.owner);
    let scope = JoinScope {
        tenant: &draft.identity.tenant,
        owner: &draft.identity.owner,
        initiator: &draft.identity.initiator,
        service: &draft.service,
        tool: &draft.tool,
    };
    let join_key = scope.join_key(keys, &args_hash, &draft.request.credentials);
    all(&[
        row.sealed_digest == Digest::of(&stored.sealed),
        draft.args_hash == args_hash,
        draft.owner_hash == owner_hash,
        row.args_hash == draft.args_hash,
        row.owner_hash == draft.owner_hash,
        row.tenant == draft.identity.tenant,
        row.initiator == draft.identity.initiator,
        row.service == draft.service,
        row.tool == draft.tool,
        row.capability == draft.capability,
        row.risk == draft.risk,
        row.created_at == draft.created_at,
        row.expires_at == draft.expires_at,
        row.join_key == join_key,
        row.token_digest == token.digest(),
    ])?;
    Ok(opened)
}

/// [`open`], and everything that the row says of decisions and of the end.
pub(super) fn whole(stored: &Stored, keys: &KeySet, now: Timestamp) -> Result<Opened, IntegrityFailed> {
    let opened = open(stored, keys)?;
    let row = &stored.row;
    let (quorum, ended) = match row.state {
        State::Pending => (0, bare(row).and(all(&[row.refused.is_none()]))),
        State::Running(_) | State::Verifying => (1, bare(row).and(all(&[row.refused.is_none()]))),
        State::Succeeded => (1, outcome(stored, &opened, keys, Verdict::Succeeded)),
        State::Failed => (1, outcome(stored, &opened, keys, Verdict::Failed)),
        State::Unverifiable => (1, outcome(stored, &opened, keys, Verdict::Unverifiable)),
        State::Rejected => (0, bare(row).and(refusal(row, &opened, keys, Refusal::Rejected))),
        State::Withdrawn => (0, bare(row).and(refusal(row, &opened, keys, Refusal::Withdrawn))),
        State::Expired => (0, bare(row).and(expiry(row, now))),
    };
    ended?;
    // Where the outcome says that the confirmation did not verify, and verifies itself, that is
    // what its readers are told.
    if row.failure != Some(Failure::Integrity) {
        votes(stored, &opened, keys, quorum)?;
    }
    Ok(opened)
}

/// Verifies that at least `quorum` different principals voted for this draft and epoch one, and
/// that every vote that stands there is genuine.
pub(super) fn votes(stored: &Stored, opened: &Opened, keys: &KeySet, quorum: usize) -> Result<(), IntegrityFailed> {
    let mut voters = std::collections::BTreeSet::new();
    for vote in &stored.row.votes {
        let mac = binding::vote_mac(keys, opened, vote.epoch, Verb::Confirm, &vote.decider, vote.comment.as_deref())?;
        // A draft is claimed by votes once; take-overs raise the epoch and need no new votes.
        if mac != vote.mac || vote.epoch != 1 || proof::is_too_late(&vote.decider, opened.draft.expires_at) {
            return Err(IntegrityFailed);
        }
        voters.insert(vote.decider.id.as_str());
    }
    all(&[voters.len() >= quorum])
}

/// Nothing that only an outcome brings.
fn bare(row: &Row) -> Result<(), IntegrityFailed> {
    all(&[row.outcome.is_none(), row.receipt.is_none(), row.failure.is_none(), !row.has_response])
}

/// The outcome is the one that a guard bound to this draft, word for word.
fn outcome(stored: &Stored, opened: &Opened, keys: &KeySet, verdict: Verdict) -> Result<(), IntegrityFailed> {
    let row = &stored.row;
    let proof = row.outcome.as_ref().ok_or(IntegrityFailed)?;
    let end = End {
        epoch: proof.epoch,
        verdict,
        failure: row.failure,
        receipt: row.receipt.as_ref(),
        response: proof.response,
        evidence: &proof.evidence,
        by: proof.by.as_ref(),
    };
    all(&[
        end.mac(keys, opened)? == proof.mac,
        // Only an answer of the upstream may come late, from an epoch that is over.
        proof.epoch == row.epoch || proof.epoch < row.epoch && says_answered(verdict, row.failure),
        row.has_response == proof.response.is_some(),
        // Lists come without responses.
        stored.response.as_deref().is_none_or(|sealed| proof.response == Some(Digest::of(sealed))),
        row.evidence.contains(&proof.evidence),
        row.refused.is_none(),
    ])
}

/// Whether an outcome says that the upstream answered.
fn says_answered(verdict: Verdict, failure: Option<Failure>) -> bool {
    verdict == Verdict::Succeeded || failure == Some(Failure::Refused)
}

/// The refusal is the one that a guard bound to this draft.
fn refusal(row: &Row, opened: &Opened, keys: &KeySet, how: Refusal) -> Result<(), IntegrityFailed> {
    let refused = row.refused.as_ref().ok_or(IntegrityFailed)?;
    let mac = proof::refusal_mac(keys, opened, how, refused.by.as_ref(), &refused.reason)?;
    all(&[
        refused.mac == Some(mac),
        // This time decides how long a person's no is remembered.
        refused.by.as_ref().is_none_or(|by| proof::is_time_of(by, refused.at)),
        row.ended_at == Some(refused.at),
    ])
}

/// An expiry follows from the draft's own times.
fn expiry(row: &Row, now: Timestamp) -> Result<(), IntegrityFailed> {
    let refused = row.refused.as_ref().ok_or(IntegrityFailed)?;
    let impossible = proof::cannot_have_expired(row.created_at, row.expires_at, now);
    all(&[
        !impossible,
        refused.by.is_none(),
        refused.mac.is_none(),
        // Its reader is told the reason.
        refused.reason == proof::EXPIRED,
        row.ended_at == Some(refused.at),
    ])
}

/// Every one of these holds.
fn all(conditions: &[bool]) -> Result<(), IntegrityFailed> {
    if conditions.iter().all(|holds| *holds) { Ok(()) } else { Err(IntegrityFailed) }
}
