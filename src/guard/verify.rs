//! Trust in what the store gives back: seal, MAC, copies and votes.
//!
//! Whoever can write to the store can neither alter what is sent nor forge a confirmation: the
//! sealed record, its copies in clear and every vote are verified before a decision is answered,
//! before a send, and by the node that takes a draft over (promise 2).

use crate::base::digest::Digest;
use crate::draft::binding::{self, JoinScope};
use crate::draft::decision::Verb;
use crate::draft::keys::KeySet;
use crate::draft::seal::{self, IntegrityFailed, Opened};
use crate::draft::state::State;
use crate::store::row::Stored;

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
    let same = row.sealed_digest == Digest::of(&stored.sealed)
        && draft.args_hash == args_hash
        && draft.owner_hash == owner_hash
        && row.args_hash == draft.args_hash
        && row.owner_hash == draft.owner_hash
        && row.tenant == draft.identity.tenant
        && row.initiator == draft.identity.initiator
        && row.service == draft.service
        && row.tool == draft.tool
        && row.capability == draft.capability
        && row.risk == draft.risk
        && row.created_at == draft.created_at
        && row.expires_at == draft.expires_at
        && row.join_key == join_key
        && row.token_digest == token.digest();
    if same { Ok(opened) } else { Err(IntegrityFailed) }
}

/// [`open`], and the votes where the row says that the draft was confirmed.
pub(super) fn whole(stored: &Stored, keys: &KeySet) -> Result<Opened, IntegrityFailed> {
    let opened = open(stored, keys)?;
    match stored.row.state {
        State::Pending | State::Rejected | State::Expired | State::Withdrawn => {}
        State::Running(_) | State::Verifying | State::Succeeded | State::Failed | State::Unverifiable => {
            votes(stored, &opened, keys, 1)?;
        }
    }
    Ok(opened)
}

/// Verifies that enough different principals voted for this draft and epoch one.
pub(super) fn votes(stored: &Stored, opened: &Opened, keys: &KeySet, quorum: usize) -> Result<(), IntegrityFailed> {
    let mut voters = std::collections::BTreeSet::new();
    for vote in &stored.row.votes {
        let mac = binding::vote_mac(keys, opened, vote.epoch, Verb::Confirm, &vote.decider, vote.comment.as_deref())?;
        // A draft is claimed by votes once; take-overs raise the epoch and need no new votes.
        if mac != vote.mac || vote.epoch != 1 || vote.decider.at >= opened.draft.expires_at {
            return Err(IntegrityFailed);
        }
        voters.insert(vote.decider.id.as_str());
    }
    if voters.len() >= quorum { Ok(()) } else { Err(IntegrityFailed) }
}
