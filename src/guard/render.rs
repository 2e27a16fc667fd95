//! Turns a stored draft into what agents and approvers are shown.

use serde_json::Value;

use crate::call::query;

use crate::draft::decision::Decider;
use crate::draft::outcome::Failure;
use crate::draft::record::Draft;
use crate::draft::seal::Opened;
use crate::draft::state::{State, Status};
use crate::policy::visible::{visible, visible_lines};
use crate::store::row::{Row, Stored};

use super::core::Guard;
use super::views::{AgentView, DraftLine, DraftView, RequestView};

/// When a pending draft is worth asking about again.
const POLL_PENDING_MS: u64 = 5_000;
/// When a draft that is being carried out is worth asking about again.
const POLL_RUNNING_MS: u64 = 1_000;

/// What a status says about the effect: `false`, `true` or `"unknown"`.
pub(super) fn executed(row: &Row) -> Value {
    match row.state {
        State::Pending | State::Rejected | State::Expired | State::Withdrawn => Value::Bool(false),
        State::Running(_) | State::Verifying | State::Unverifiable => Value::String("unknown".to_owned()),
        State::Succeeded => Value::Bool(true),
        State::Failed => Value::Bool(false),
    }
}

/// Who confirmed a draft, as far as it is believed: nobody where the confirmation does not verify.
pub(super) fn deciders(row: &Row, failure: Option<Failure>) -> Vec<&Decider> {
    if failure == Some(Failure::Integrity) {
        return Vec::new();
    }
    row.votes.iter().map(|vote| &vote.decider).collect()
}

/// Whether a draft can be offered again: it was provably not sent.
pub(super) fn offers_again(row: &Row) -> bool {
    row.state == State::Failed && row.failure.is_some_and(Failure::not_sent)
}

fn message(row: &Row) -> &'static str {
    match row.state {
        State::Pending => {
            "This call was NOT executed. It waits for a person to confirm it. Do not call the tool again; read status_url, \
             or tell the user to open confirm_url."
        }
        State::Running(_) | State::Verifying => {
            "A person confirmed this call; it is being carried out. Do not repeat it."
        }
        State::Unverifiable => {
            "A person confirmed this call, and whether it was carried out cannot be verified at present. Do not repeat it; \
             a person has to find out. 结果暂时无法核验。"
        }
        State::Succeeded => "This call was carried out once. The receipt proves it. Do not repeat it.",
        State::Failed if offers_again(row) => {
            "A person confirmed this call, but it was not sent. Nothing was executed; a person can offer it again."
        }
        State::Failed if row.failure == Some(Failure::Integrity) => {
            "This call was NOT executed: its confirmation does not verify. Do not claim success; tell the user."
        }
        State::Failed => "This call was not carried out. Tell the user why; do not claim success.",
        State::Rejected => "This call was NOT executed: it was rejected. Do not repeat it; tell the user the reason.",
        State::Expired => "This call was NOT executed: nobody confirmed it in time. The user can ask for it again.",
        State::Withdrawn => "This call was NOT executed: it was taken back.",
    }
}

impl Guard {
    /// The agent's view. Without an opened record the card stays away.
    pub(super) fn agent_view(&self, stored: &Stored, draft: Option<&Draft>) -> AgentView {
        let row = &stored.row;
        let status = row.state.status();
        let result = match status {
            Status::Pending => "WAIT_CONFIRM".to_owned(),
            other => other.as_str().to_ascii_uppercase(),
        };
        AgentView {
            result,
            executed: executed(row),
            status,
            draft_id: row.id.clone(),
            tool: row.tool.clone(),
            capability: row.capability.clone(),
            risk: row.risk,
            args_hash: row.args_hash,
            preview: draft.map(|draft| draft.preview.clone()),
            created_at: row.created_at,
            expires_at: row.expires_at,
            poll_after_ms: if status == Status::Pending { POLL_PENDING_MS } else { POLL_RUNNING_MS },
            possible_duplicate_of: row.possible_duplicate_of.clone(),
            confirm_url: format!("{}/drafts/{}", self.parts.settings.public_url, row.id),
            status_url: format!("/.countersign/drafts/{}", row.id),
            message: message(row).to_owned(),
            may_claim_success: row.receipt.as_ref().is_some_and(crate::draft::receipt::Receipt::may_claim_success),
            receipt: row.receipt.clone(),
            reason: row.refused.as_ref().map(|refused| refused.reason.clone()),
        }
    }

    pub(super) fn line(stored: &Stored, opened: Option<&Opened>) -> DraftLine {
        let row = &stored.row;
        let draft = opened.map(|opened| &opened.draft);
        DraftLine {
            draft_id: row.id.clone(),
            status: row.state.status(),
            phase: row.state.phase(),
            service: row.service.clone(),
            tool: row.tool.clone(),
            capability: row.capability.clone(),
            risk: row.risk,
            args_hash: row.args_hash,
            preview: draft.map(|draft| draft.preview.clone()),
            owner: draft.map(|draft| draft.identity.owner.to_string()),
            initiator: row.initiator.to_string(),
            created_at: row.created_at,
            expires_at: row.expires_at,
            seen: row.seen_at.is_some(),
            intact: opened.is_some(),
            possible_duplicate_of: row.possible_duplicate_of.clone(),
        }
    }

    /// Everything of a draft. Without an opened record nothing is said of decisions and of the
    /// end: what does not verify is not passed on.
    pub(super) fn full(stored: &Stored, opened: Option<&Opened>) -> DraftView {
        let row = &stored.row;
        let believed = opened.map(|_| row);
        let draft = opened.map(|opened| &opened.draft);
        DraftView {
            line: Self::line(stored, opened),
            args: draft.map_or(Value::Null, |draft| masked(&draft.args, &draft.secret)),
            request: opened.map(request_view),
            session: draft.map(|draft| draft.identity.session.to_string()),
            role: draft.and_then(|draft| draft.identity.role.clone()),
            subject: draft.and_then(|draft| draft.identity.subject.clone()),
            admin_context: draft.and_then(|draft| draft.identity.admin_context.clone()),
            admin_mode: draft.and_then(|draft| draft.identity.admin_mode.clone()),
            message_id: draft.and_then(|draft| draft.identity.message_id.clone()),
            origin_request_id: draft.map(|draft| draft.origin_request_id.clone()),
            policy_version: draft.map(|draft| draft.policy_version.clone()),
            votes: believed
                .filter(|row| row.failure != Some(Failure::Integrity))
                .map_or_else(Vec::new, |row| row.votes.clone()),
            refused: believed.and_then(|row| row.refused.clone()),
            failure: believed.and_then(|row| row.failure),
            again: believed.is_some_and(offers_again),
            receipt: believed.and_then(|row| row.receipt.clone()),
            evidence: believed.map(|row| row.evidence.clone()).unwrap_or_default(),
            claimed_at: believed.and_then(|row| row.claimed_at),
            sent_at: believed.and_then(|row| row.sent_at),
            ended_at: believed.and_then(|row| row.ended_at),
            collected_at: believed.and_then(|row| row.collected_at),
        }
    }
}

/// What stands in place of a secret. No digest: a short secret can be guessed from one, and the
/// args hash binds it all the same.
const MASKED: &str = "***";

/// The target, without the values of its query where a secret stands among them.
fn shown_target(target: &str, secret: &[String]) -> String {
    let Some((before, query)) = target.split_once('?') else { return visible(target) };
    let names: Vec<String> = secret
        .iter()
        .map(|pointer| pointer.split('/').nth(1).unwrap_or_default().replace("~1", "/").replace("~0", "~"))
        .collect();
    // A query that cannot be read may hold anything.
    let shows =
        names.is_empty() || query::parse(query).is_ok_and(|pairs| !pairs.iter().any(|(name, _)| names.contains(name)));
    if shows { visible(target) } else { format!("{}?{MASKED}", visible(before)) }
}

/// The args with every secret masked.
fn masked(args: &Value, secret: &[String]) -> Value {
    let mut args = args.clone();
    for pointer in secret {
        if let Some(value) = args.pointer_mut(pointer) {
            *value = Value::String(MASKED.to_owned());
        }
    }
    args
}

/// Every header that a release sends in clear: the call's, the effect key, the trace.
fn headers_sent(draft: &Draft) -> impl Iterator<Item = (&str, &str)> {
    let call = draft.request.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let key = draft.request.effect_key_header.as_deref().zip(draft.effect_key.as_deref());
    let trace = draft.traceparent.as_deref().map(|trace| ("traceparent", trace));
    call.chain(key).chain(trace)
}

fn request_view(opened: &Opened) -> RequestView {
    let Draft { request, secret, .. } = &opened.draft;
    // A body with secret args is shown as args only, where they can be masked one by one.
    let text = if secret.is_empty() { std::str::from_utf8(&opened.body).ok() } else { None };
    RequestView {
        method: visible(&request.method),
        target: shown_target(&request.target, secret),
        headers: headers_sent(&opened.draft).map(|(name, value)| (visible(name), visible(value))).collect(),
        credentials: request.credentials.iter().map(|(name, _)| visible(name)).collect(),
        kind: serde_json::to_value(request.kind)
            .ok()
            .and_then(|kind| kind.as_str().map(str::to_owned))
            .unwrap_or_default(),
        content_type: visible(&request.body.content_type),
        length: request.body.length,
        sha256: request.body.sha256,
        body: text.map(visible_lines),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p10_a_secret_in_the_query_takes_the_query_with_it() {
        let secret = vec!["/pin".to_owned()];
        for (target, shown) in [
            ("http://x/pay?pin=1234&a=1", "http://x/pay?***"),
            ("http://x/pay?a=1&%70in=1234", "http://x/pay?***"),
            ("http://x/pay?a=1&pin=%zz", "http://x/pay?***"),
            ("http://x/pay?a=1", "http://x/pay?a=1"),
            ("http://x/pay", "http://x/pay"),
        ] {
            assert_eq!(shown_target(target, &secret), shown);
        }
        assert_eq!(shown_target("http://x/pay?pin=1", &[]), "http://x/pay?pin=1");
    }

    #[test]
    fn p10_a_masked_arg_leaves_no_digest() {
        let args = serde_json::json!({"card": {"number": "4111"}, "a": 1});
        assert_eq!(masked(&args, &["/card/number".to_owned()]), serde_json::json!({"card": {"number": "***"}, "a": 1}));
    }
}
