//! Holds the one transition table. Never reads a clock or a socket.
//!
//! [`next`] is the only function in the crate that changes a draft's state; SQLite calls it, and
//! any other store is held against it by the contract tests.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where a running draft stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The claim is won; no byte has left.
    Claimed,
    /// The sending mark is durable; bytes may have left.
    Sending,
}

/// The stored state of a draft.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "status", content = "phase")]
pub enum State {
    /// Held, may be decided.
    Pending,
    /// Claimed.
    Running(Phase),
    /// The outcome is unknown and is being probed.
    Verifying,
    /// There is a success receipt.
    Succeeded,
    /// Certainly not executed, or refused by the upstream.
    Failed,
    /// Cannot be verified; waits for a person.
    Unverifiable,
    /// Rejected by a person or by the guard.
    Rejected,
    /// Its time ended before a decision.
    Expired,
    /// The agent took it back.
    Withdrawn,
}

/// The status word on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Held, may be decided.
    Pending,
    /// Claimed, being sent.
    Running,
    /// Being probed.
    Verifying,
    /// Done, with a receipt.
    Succeeded,
    /// Not executed, or refused by the upstream.
    Failed,
    /// Cannot be verified.
    Unverifiable,
    /// Rejected.
    Rejected,
    /// Its time ended.
    Expired,
    /// Taken back by the agent.
    Withdrawn,
}

impl Status {
    /// Every status.
    pub const ALL: [Self; 9] = [
        Self::Pending,
        Self::Running,
        Self::Verifying,
        Self::Succeeded,
        Self::Failed,
        Self::Unverifiable,
        Self::Rejected,
        Self::Expired,
        Self::Withdrawn,
    ];

    /// The word on the wire, lower case.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Verifying => "verifying",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Unverifiable => "unverifiable",
            Self::Rejected => "rejected",
            Self::Expired => "expired",
            Self::Withdrawn => "withdrawn",
        }
    }

    /// Reads the word on the wire.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// Whether nothing but a resolution by a person can change it any more.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Pending | Self::Running | Self::Verifying => false,
            Self::Succeeded | Self::Failed | Self::Unverifiable | Self::Rejected | Self::Expired | Self::Withdrawn => {
                true
            }
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl State {
    /// Every state.
    pub const ALL: [Self; 10] = [
        Self::Pending,
        Self::Running(Phase::Claimed),
        Self::Running(Phase::Sending),
        Self::Verifying,
        Self::Succeeded,
        Self::Failed,
        Self::Unverifiable,
        Self::Rejected,
        Self::Expired,
        Self::Withdrawn,
    ];

    /// The word on the wire.
    #[must_use]
    pub const fn status(self) -> Status {
        match self {
            Self::Pending => Status::Pending,
            Self::Running(_) => Status::Running,
            Self::Verifying => Status::Verifying,
            Self::Succeeded => Status::Succeeded,
            Self::Failed => Status::Failed,
            Self::Unverifiable => Status::Unverifiable,
            Self::Rejected => Status::Rejected,
            Self::Expired => Status::Expired,
            Self::Withdrawn => Status::Withdrawn,
        }
    }

    /// The phase of a running draft.
    #[must_use]
    pub const fn phase(self) -> Option<Phase> {
        match self {
            Self::Running(phase) => Some(phase),
            _ => None,
        }
    }
}

/// What the end of an attempt says about the effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It happened.
    Succeeded,
    /// It certainly did not happen.
    Failed,
    /// Nobody can tell.
    Unverifiable,
}

/// An atomic step that may move a draft from one state to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Move {
    /// The vote that completes the quorum.
    Claim,
    /// A person or a guard rule says no.
    Reject,
    /// The agent takes it back.
    Withdraw,
    /// Its time is over.
    Expire,
    /// The mark before the first byte.
    MarkSending,
    /// A node takes over work whose lease is over.
    TakeOver,
    /// The attempt is judged.
    Settle(Verdict),
    /// An answer to a recorded attempt arrives after the attempt was given up.
    LateAnswer(Verdict),
    /// A person settles what could not be verified.
    Resolve(Verdict),
}

impl Move {
    /// Every move.
    pub const ALL: [Self; 15] = [
        Self::Claim,
        Self::Reject,
        Self::Withdraw,
        Self::Expire,
        Self::MarkSending,
        Self::TakeOver,
        Self::Settle(Verdict::Succeeded),
        Self::Settle(Verdict::Failed),
        Self::Settle(Verdict::Unverifiable),
        Self::LateAnswer(Verdict::Succeeded),
        Self::LateAnswer(Verdict::Failed),
        Self::LateAnswer(Verdict::Unverifiable),
        Self::Resolve(Verdict::Succeeded),
        Self::Resolve(Verdict::Failed),
        Self::Resolve(Verdict::Unverifiable),
    ];
}

/// The total transition function. `None` is a refusal: the draft stays as it is (promise 9).
#[must_use]
pub const fn next(state: State, step: Move) -> Option<State> {
    use Phase::{Claimed, Sending};
    use State::{Expired, Failed, Pending, Rejected, Running, Succeeded, Unverifiable, Verifying, Withdrawn};
    match (state, step) {
        (Pending, Move::Claim) => Some(Running(Claimed)),
        (Pending, Move::Reject) => Some(Rejected),
        (Pending, Move::Withdraw) => Some(Withdrawn),
        (Pending, Move::Expire) => Some(Expired),
        (Running(Claimed), Move::MarkSending) => Some(Running(Sending)),
        (Running(Claimed), Move::TakeOver) => Some(Running(Claimed)),
        // Bytes may have left with the node that held the lease: the outcome is unknown (promise 5).
        (Running(Sending) | Verifying, Move::TakeOver) => Some(Verifying),
        // Before the mark nothing can have happened, so only a failure can be settled.
        (Running(Claimed), Move::Settle(Verdict::Failed)) => Some(Failed),
        (Running(Sending) | Verifying, Move::Settle(verdict)) => Some(settled(verdict)),
        (Verifying | Unverifiable | Running(Sending), Move::LateAnswer(Verdict::Succeeded)) => Some(Succeeded),
        (Verifying | Unverifiable | Running(Sending), Move::LateAnswer(Verdict::Failed)) => Some(Failed),
        // "Still nobody can tell" is no answer.
        (_, Move::LateAnswer(Verdict::Unverifiable)) => None,
        (Unverifiable, Move::Resolve(Verdict::Succeeded)) => Some(Succeeded),
        (Unverifiable, Move::Resolve(Verdict::Failed)) => Some(Failed),
        (Pending, Move::MarkSending | Move::TakeOver | Move::Settle(_) | Move::LateAnswer(_) | Move::Resolve(_))
        | (Running(_) | Verifying, Move::Claim | Move::Reject | Move::Withdraw | Move::Expire | Move::Resolve(_))
        | (Running(Claimed), Move::Settle(Verdict::Succeeded | Verdict::Unverifiable) | Move::LateAnswer(_))
        | (Running(Sending) | Verifying, Move::MarkSending)
        | (
            Unverifiable,
            Move::Claim
            | Move::Reject
            | Move::Withdraw
            | Move::Expire
            | Move::MarkSending
            | Move::TakeOver
            | Move::Settle(_)
            | Move::Resolve(Verdict::Unverifiable),
        )
        | (Succeeded | Failed | Rejected | Expired | Withdrawn, _) => None,
    }
}

const fn settled(verdict: Verdict) -> State {
    match verdict {
        Verdict::Succeeded => State::Succeeded,
        Verdict::Failed => State::Failed,
        Verdict::Unverifiable => State::Unverifiable,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used)]
    use super::*;

    #[test]
    fn p9_no_edge_leads_back_to_pending_and_ended_states_stay() {
        for state in State::ALL {
            for step in Move::ALL {
                let to = next(state, step);
                assert_ne!(to, Some(State::Pending), "{state:?} {step:?}");
                if matches!(
                    state,
                    State::Succeeded | State::Failed | State::Rejected | State::Expired | State::Withdrawn
                ) {
                    assert_eq!(to, None, "{state:?} {step:?}");
                }
            }
        }
    }

    #[test]
    fn p3_only_pending_can_be_claimed() {
        for state in State::ALL {
            let claimed = next(state, Move::Claim);
            assert_eq!(claimed.is_some(), state == State::Pending, "{state:?}");
        }
    }

    #[test]
    fn p5_a_marked_draft_taken_over_is_never_claimed_again() {
        let marked = State::Running(Phase::Sending);
        assert_eq!(next(marked, Move::TakeOver), Some(State::Verifying));
        assert_eq!(next(State::Verifying, Move::MarkSending), None);
    }

    #[test]
    fn the_whole_grid() {
        let mut grid = String::new();
        for state in State::ALL {
            for step in Move::ALL {
                let to = next(state, step).map_or_else(|| "-".to_owned(), |to| format!("{to:?}"));
                grid.push_str(&format!("{state:?} + {step:?} = {to}\n"));
            }
        }
        insta::assert_snapshot!(grid);
    }
}
