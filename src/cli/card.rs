//! Draws a draft for a terminal: everything that the approver must see, nothing hidden.

use std::fmt::Write as _;

use serde_json::Value;

use crate::control::told::{Standing, Told};
use crate::draft::outcome::Failure;
use crate::draft::receipt::Receipt;
use crate::draft::state::{Phase, Status};

use super::out::{visible, visible_block};

/// A member as text; `-` where there is none.
#[must_use]
pub(super) fn text(value: &Value, pointer: &str) -> String {
    match value.pointer(pointer) {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => visible(text),
        Some(other) => visible(&other.to_string()),
    }
}

/// One line of the queue.
#[must_use]
pub(super) fn line(draft: &Value) -> String {
    let mut out = format!(
        "{}  {:<12} {:<6}  {}: {}",
        text(draft, "/draft_id"),
        text(draft, "/status"),
        text(draft, "/risk"),
        text(draft, "/tool"),
        headline(draft),
    );
    if draft.get("status").and_then(Value::as_str) == Some("pending") {
        let _ = write!(out, "  (until {})", text(draft, "/expires_at"));
    }
    out
}

fn headline(draft: &Value) -> String {
    if !intact(draft) {
        return "the stored draft does not verify; it cannot be confirmed".to_owned();
    }
    match draft.get("preview") {
        None | Some(Value::Null) => "no preview".to_owned(),
        Some(card) => format!("{} {}", text(card, "/title"), text(card, "/target")),
    }
}

/// Whether the guard says that the stored draft verifies; where it says nothing, it does not.
fn intact(draft: &Value) -> bool {
    draft.get("intact") == Some(&Value::Bool(true))
}

/// Why a draft failed; `None` for a word that this program does not know.
pub(super) fn failure(draft: &Value) -> Option<Failure> {
    draft.get("failure").cloned().and_then(|word| serde_json::from_value(word).ok())
}

/// The whole card.
#[must_use]
pub(super) fn whole(draft: &Value) -> String {
    let mut out = String::new();
    let mut row = |label: &str, value: String| {
        let _ = writeln!(out, "{label:<12} {value}");
    };
    row("draft", text(draft, "/draft_id"));
    let told = told(draft);
    row("status", status(draft));
    if let Some(told) = &told {
        row("", format!("{} {}", told.headline, visible(&told.sentence)));
    }
    row("tool", format!("{} ({}) of {}", text(draft, "/tool"), text(draft, "/capability"), text(draft, "/service")));
    row("risk", text(draft, "/risk"));
    row("for", format!("{}, asked by {}", text(draft, "/owner"), text(draft, "/initiator")));
    for (label, pointer) in [("data of", "/subject"), ("as admin", "/admin_context"), ("admin mode", "/admin_mode")] {
        if draft.pointer(pointer).is_some_and(|value| !value.is_null()) {
            row(label, text(draft, pointer));
        }
    }
    let until = if waits(draft) { "ends" } else { "to be decided until" };
    row("held", format!("{}, {until} {}", text(draft, "/created_at"), text(draft, "/expires_at")));
    if draft.get("possible_duplicate_of").is_some_and(|id| !id.is_null()) {
        row("careful", format!("the same call was carried out before: {}", text(draft, "/possible_duplicate_of")));
    }
    preview(&mut out, draft);
    let label = told.map_or("The request", |told| told.request);
    request(&mut out, draft, label);
    ending(&mut out, draft);
    let _ = write!(out, "args hash    {}", text(draft, "/args_hash"));
    out
}

fn status(draft: &Value) -> String {
    match draft.get("phase") {
        None | Some(Value::Null) => text(draft, "/status"),
        Some(_) => format!("{}, {}", text(draft, "/status"), text(draft, "/phase")),
    }
}

fn waits(draft: &Value) -> bool {
    draft.get("status").and_then(Value::as_str) == Some(Status::Pending.as_str())
}

/// Where the draft stands in words; nothing for a status that this program does not know.
fn told(draft: &Value) -> Option<Told> {
    let word = |name: &str| draft.get(name).and_then(Value::as_str);
    let read = |name: &str| draft.get(name).cloned().filter(|value| !value.is_null());
    let receipt = read("receipt").and_then(|value| serde_json::from_value::<Receipt>(value).ok());
    let refused = read("refused").and_then(|value| serde_json::from_value(value).ok());
    Some(Told::of(&Standing {
        status: Status::parse(word("status")?)?,
        phase: read("phase").and_then(|value| serde_json::from_value::<Phase>(value).ok()),
        intact: intact(draft),
        voted: draft.get("votes").and_then(Value::as_array).is_some_and(|votes| !votes.is_empty()),
        failure: failure(draft),
        receipt: receipt.as_ref(),
        refused: refused.as_ref(),
    }))
}

fn preview(out: &mut String, draft: &Value) {
    let _ = writeln!(out, "\n  {}", headline(draft));
    let Some(card) = draft.get("preview").filter(|card| !card.is_null()) else { return };
    let shown = if waits(draft) { "" } else { "shown for the decision: " };
    let _ = writeln!(out, "  {shown}{}", text(card, "/impact"));
    for detail in card.get("details").and_then(Value::as_array).into_iter().flatten() {
        let _ = writeln!(out, "    {}: {}", text(detail, "/key"), text(detail, "/value"));
    }
    if let Some(args) = draft.get("args").filter(|args| !args.is_null()) {
        let pretty = serde_json::to_string_pretty(args).unwrap_or_default();
        let _ = writeln!(out, "\n  every arg:\n    {}", visible_block(&pretty, "    "));
    }
}

fn request(out: &mut String, draft: &Value, label: &str) {
    let Some(request) = draft.get("request").filter(|request| !request.is_null()) else { return };
    let _ = writeln!(out, "\n  {label}:\n    {} {}", text(request, "/method"), text(request, "/target"));
    for header in request.get("headers").and_then(Value::as_array).into_iter().flatten() {
        let _ = writeln!(out, "    {}: {}", text(header, "/0"), text(header, "/1"));
    }
    for name in request.get("credentials").and_then(Value::as_array).into_iter().flatten() {
        let _ = writeln!(out, "    {}: (a credential, not shown)", text(name, ""));
    }
    let length = request.get("length").and_then(Value::as_u64).unwrap_or(0);
    match request.get("body").and_then(Value::as_str) {
        Some(body) if length > 0 => {
            let _ = writeln!(out, "\n    {}", visible_block(body, "    "));
        }
        Some(_) => {}
        None => {
            let what = format!("{length} bytes of {}", text(request, "/content_type"));
            let _ = writeln!(out, "\n    {what}, SHA-256 {}", text(request, "/sha256"));
        }
    }
    let _ = writeln!(out);
}

fn ending(out: &mut String, draft: &Value) {
    if draft.get("failure").is_some_and(|failure| !failure.is_null()) {
        let _ = writeln!(out, "failed       {}", text(draft, "/failure"));
    }
    if let Some(receipt) = draft.get("receipt").filter(|receipt| !receipt.is_null()) {
        let _ = writeln!(out, "receipt      {}: {}", text(receipt, "/id"), text(receipt, "/summary"));
    }
    for piece in draft.get("evidence").and_then(Value::as_array).into_iter().flatten() {
        let _ =
            writeln!(out, "evidence     {} {}: {}", text(piece, "/at"), text(piece, "/source"), text(piece, "/text"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn draft() -> Value {
        json!({
            "draft_id": "dr_5_01J", "status": "pending", "phase": null, "service": "lightnote", "tool": "create_todo",
            "capability": "todo.create", "risk": "low", "args_hash": "ab12", "owner": "u1", "initiator": "bot",
            "created_at": "2026-01-01T00:00:00.000Z", "expires_at": "2026-01-01T00:05:00.000Z", "intact": true,
            "possible_duplicate_of": "dr_5_01H", "subject": "u2", "admin_context": "org-7\u{202e}", "admin_mode": "full",
            "preview": {"title": "Create a to-do", "target": "milk\u{1b}[2J", "impact": "A to-do is made.",
                        "details": [{"key": "priority", "value": "1"}]},
            "args": {"title": "milk\u{202e}", "priority": 1},
            "request": {"method": "POST", "target": "http://notes/todos", "headers": [["Content-Type", "application/json"]],
                        "credentials": ["Authorization"], "kind": "json", "content_type": "application/json", "length": 18,
                        "sha256": "cd34", "body": "{\"title\":\n\"milk\"}"},
            "refused": null, "failure": null, "receipt": null, "evidence": [],
        })
    }

    #[test]
    fn the_card_hides_nothing_and_steers_nothing() {
        insta::assert_snapshot!(whole(&draft()));
    }

    #[test]
    fn an_ended_draft_speaks_of_no_confirmation_to_come() {
        let refused = json!({
            "by": {"kind": "approver", "id": "alice", "auth_method": "bearer", "channel": "api",
                   "at": "2026-01-01T00:01:00.000Z"},
            "reason": "wrong\u{1b}[2J customer", "at": "2026-01-01T00:01:00.000Z", "mac": null,
        });
        for (status, words) in [
            ("rejected", "Rejected. By alice: wrong\\u{1b}[2J customer. Nothing was sent."),
            ("expired", "Too late. Its time ended"),
            ("withdrawn", "Taken back. The agent"),
            ("unverifiable", "It cannot be verified whether this happened."),
        ] {
            let mut ended = draft();
            ended["status"] = json!(status);
            ended["refused"] = if status == "rejected" { refused.clone() } else { Value::Null };
            let card = whole(&ended);
            assert!(card.contains(words), "{status}: {card}");
            assert!(!card.to_lowercase().contains("once confirmed") && !card.contains("will be sent"), "{card}");
            assert!(card.contains("shown for the decision: A to-do is made."), "{card}");
        }
    }

    #[test]
    fn a_draft_that_does_not_verify_says_so() {
        for said in [json!(false), json!(null), json!("true"), json!(1)] {
            let mut broken = draft();
            broken["intact"] = said;
            assert!(line(&broken).contains("does not verify"), "{}", line(&broken));
            assert!(whole(&broken).contains("What is stored does not verify."), "{}", whole(&broken));
        }
        let mut silent = draft();
        drop(silent.as_object_mut().and_then(|members| members.remove("intact")));
        assert_eq!(silent.get("intact"), None);
        assert!(line(&silent).contains("does not verify"), "{}", line(&silent));
        assert!(whole(&silent).contains("What is stored does not verify."), "{}", whole(&silent));
    }

    #[test]
    fn a_failure_is_told_by_its_reason_and_an_unknown_one_is_not_guessed() {
        let told = |failure: Value| {
            let mut ended = draft();
            (ended["status"], ended["failure"]) = (json!("failed"), failure);
            whole(&ended)
        };
        assert!(told(json!("not_sent")).contains("Not done. It was confirmed. The upstream was not reached"));
        for unknown in [json!("struck_by_lightning"), json!(null), json!(7)] {
            let card = told(unknown);
            assert!(card.contains("Look at the receipt and at the upstream"), "{card}");
            assert!(!card.contains("Not done.") && !card.contains("othing was sent"), "{card}");
        }
    }

    #[test]
    fn a_line_names_what_waits() {
        let expected = "dr_5_01J  pending      low     create_todo: Create a to-do milk\\u{1b}[2J  (until 2026-01-01T00:05:00.000Z)";
        assert_eq!(line(&draft()), expected);
    }
}
