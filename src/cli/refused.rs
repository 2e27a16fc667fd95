//! What a refusal of the control listener means on the command line: a sentence, a hint, an exit
//! code. Must never repeat a token.

use serde_json::Value;

use super::card;
use super::connect::Reply;
use super::out::{Exit, Failed};

/// An answer that is not an error, or what the problem document says.
///
/// # Errors
///
/// The refusal, with the code to end with.
pub(super) fn accepted(reply: Reply) -> Result<Value, Failed> {
    if (200..300).contains(&reply.status) {
        return Ok(reply.body);
    }
    Err(problem(&reply))
}

/// What a problem document says, with what to do next.
pub(super) fn problem(reply: &Reply) -> Failed {
    let code = reply.body.get("code").and_then(Value::as_str).unwrap_or_default();
    let exit = match code {
        "DECISION_UNCERTAIN" | "COMMIT_OUTCOME_UNKNOWN" => Exit::Unknown,
        "CONFIRMATION_SERVICE_UNAVAILABLE" => Exit::Unreachable,
        _ => Exit::Refused,
    };
    if code.is_empty() {
        return Failed::new(
            Exit::Unreachable,
            format!("the answer has status {} and no problem document", reply.status),
        )
        .hint("is this the control listener of a Countersign guard?");
    }
    let mut message = format!("{}: {}", card::text(&reply.body, "/code"), card::text(&reply.body, "/detail"));
    for member in ["reason", "expired_at"] {
        if reply.body.get(member).is_some_and(|value| !value.is_null()) {
            message.push_str(&format!(" ({member}: {})", card::text(&reply.body, &format!("/{member}"))));
        }
    }
    let failed = Failed::new(exit, message);
    match code {
        "CREDENTIAL_UNKNOWN" => failed.hint("the token is not an approver's of this guard; see --token and --keys"),
        "AGENT_MAY_NOT_DECIDE" => failed.hint("this is an agent's token; an agent can never decide"),
        "ARGS_HASH_MISMATCH" => failed.hint("the draft is not what was shown; show it again"),
        "COMMIT_OUTCOME_UNKNOWN" => failed.hint(
            "look at the upstream, then settle it: countersign drafts resolve ID --outcome succeeded|failed --evidence '…'",
        ),
        "DECISION_UNCERTAIN" => failed.hint("ask again: a decision that was recorded is not made twice"),
        _ => failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn reply(status: u16, body: Value) -> Reply {
        Reply { status, body }
    }

    #[test]
    fn problems_become_sentences_with_a_hint() {
        let failed = problem(&reply(401, json!({"code": "CREDENTIAL_UNKNOWN", "detail": "No."})));
        assert_eq!(failed.exit, Exit::Refused);
        assert!(failed.to_string().contains("--token"), "{failed}");
        let failed = problem(&reply(503, json!({"code": "DECISION_UNCERTAIN", "detail": "Away."})));
        assert_eq!(failed.exit, Exit::Unknown);
        let failed = problem(&reply(410, json!({"code": "DRAFT_EXPIRED", "detail": "Over.", "expired_at": "2026"})));
        assert!(failed.message.contains("expired_at: 2026"), "{failed}");
        assert_eq!(problem(&reply(404, Value::Null)).exit, Exit::Unreachable);
    }
}
