//! The JSON schemas of `/openapi.json`. The tests hold them against what is really serialised.

use serde_json::{Value, json};

use crate::base::code::Code;
use crate::draft::outcome::Failure;
use crate::draft::state::Status;

use super::facade;

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn nullable(schema: Value) -> Value {
    json!({"anyOf": [schema, {"type": "null"}]})
}

fn text() -> Value {
    json!({"type": "string"})
}

fn digest() -> Value {
    json!({"type": "string", "pattern": "^[0-9a-f]{64}$"})
}

fn time() -> Value {
    json!({"type": "string", "format": "date-time"})
}

fn object(properties: Value, required: &[&str], closed: bool) -> Value {
    let mut schema = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    if closed {
        schema["additionalProperties"] = Value::Bool(false);
    }
    schema
}

/// Schemas of one subject, by name.
type Schemas = Vec<(&'static str, Value)>;

/// Every schema by name.
pub(super) fn all() -> Value {
    let mut all = bodies();
    for part in
        [words(), drafts(), shown(), decided(), decisions(), proofs(), events(), problems(), policies(), tasks()]
    {
        all.extend(part.into_iter().map(|(name, schema)| (name.to_owned(), schema)));
    }
    Value::Object(all)
}

fn bodies() -> serde_json::Map<String, Value> {
    let words = json!({"type": "string", "minLength": 1, "maxLength": 1000});
    let token = json!({"type": "string", "minLength": 1, "maxLength": 512});
    let bodies = [
        ("Empty", object(json!({}), &[], true)),
        ("Confirm", object(json!({"args_hash": digest(), "comment": words}), &["args_hash"], true)),
        ("Reject", object(json!({"reason": words}), &["reason"], true)),
        (
            "Resolve",
            object(
                json!({
                    "outcome": {"enum": ["succeeded", "failed"]},
                    "evidence": {"type": "string", "minLength": 1, "maxLength": 500},
                }),
                &["outcome", "evidence"],
                true,
            ),
        ),
        ("Confirmation", object(json!({"confirmation_token": token}), &["confirmation_token"], true)),
        ("Rejection", object(json!({"confirmation_token": token, "reason": words}), &["confirmation_token"], true)),
    ];
    bodies.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect()
}

fn line_properties() -> Value {
    json!({
        "draft_id": text(), "status": reference("Status"), "phase": nullable(json!({"enum": ["claimed", "sending"]})),
        "service": text(), "tool": text(), "capability": text(), "risk": reference("Risk"), "args_hash": digest(),
        "preview": nullable(reference("Preview")), "owner": nullable(text()), "initiator": text(),
        "created_at": time(), "expires_at": time(), "seen": {"type": "boolean"}, "intact": {"type": "boolean"},
        "possible_duplicate_of": nullable(text()),
    })
}

/// The words that several schemas use.
fn words() -> Schemas {
    let statuses: Vec<&str> = Status::ALL.iter().map(|status| status.as_str()).collect();
    vec![
        ("Status", json!({"enum": statuses})),
        ("Risk", json!({"enum": ["low", "medium", "high"]})),
        (
            "SignInLink",
            object(
                json!({"link": text(), "approver": text(), "expires_at": time()}),
                &["link", "approver", "expires_at"],
                false,
            ),
        ),
        ("Health", object(json!({"status": text(), "reason": text()}), &["status"], false)),
    ]
}

fn failure() -> Value {
    let failures: Vec<&str> = Failure::ALL.iter().map(|failure| failure.as_str()).collect();
    nullable(json!({"enum": failures}))
}

/// Drafts: a line of the queue, a page of it, and everything of one.
fn drafts() -> Schemas {
    let mut draft = line_properties();
    let more = json!({
        "args": {}, "request": nullable(reference("Request")), "session": nullable(text()), "role": nullable(text()),
        "subject": nullable(text()), "admin_context": nullable(text()), "admin_mode": nullable(text()), "message_id": nullable(text()),
        "origin_request_id": nullable(text()), "policy_version": nullable(text()),
        "votes": {"type": "array", "items": reference("Vote")}, "refused": nullable(reference("Refused")),
        "failure": failure(), "again": {"type": "boolean"}, "receipt": nullable(reference("Receipt")),
        "evidence": {"type": "array", "items": reference("Evidence")}, "claimed_at": nullable(time()),
        "sent_at": nullable(time()), "ended_at": nullable(time()), "collected_at": nullable(time()),
    });
    if let (Value::Object(draft), Value::Object(more)) = (&mut draft, more) {
        draft.extend(more);
    }
    let page = json!({"drafts": {"type": "array", "items": reference("DraftLine")}, "next": nullable(text())});
    vec![
        ("DraftLine", object(line_properties(), &["draft_id", "status", "args_hash"], false)),
        ("Draft", object(draft, &["draft_id", "status", "args_hash", "args"], false)),
        ("Page", object(page, &["drafts", "next"], false)),
    ]
}

/// What people are shown of a call.
fn shown() -> Schemas {
    let detail = object(json!({"key": text(), "value": text()}), &["key", "value"], false);
    let preview = json!({
        "title": text(), "target": text(), "impact": text(), "details": {"type": "array", "items": detail},
    });
    let request = json!({
        "method": text(), "target": text(),
        "headers": {"type": "array", "items": {"type": "array", "items": text()}},
        "credentials": {"type": "array", "items": text()}, "kind": text(), "content_type": text(),
        "length": {"type": "integer"}, "sha256": digest(), "body": nullable(text()),
    });
    vec![
        ("Preview", object(preview, &["title", "target", "impact", "details"], false)),
        ("Request", object(request, &["method", "target", "headers", "kind", "length", "sha256"], false)),
    ]
}

/// The answer to a decision.
fn decided() -> Schemas {
    let count = json!({"type": "integer"});
    let properties = json!({
        "draft_id": text(), "status": reference("Status"), "phase": nullable(json!({"enum": ["claimed", "sending"]})),
        "outcome": nullable(json!({"enum": ["succeeded", "failed"]})), "executed": {"enum": [true, false, "unknown"]},
        "failure": failure(), "args_hash": digest(),
        "decided_by": nullable(json!({"type": "array", "items": reference("Decider")})),
        "reason": nullable(text()), "receipt": nullable(reference("Receipt")), "replayed": {"type": "boolean"},
        "votes": object(json!({"have": count, "need": count}), &[], false),
    });
    vec![("Decided", object(properties, &["status"], false))]
}

/// Who decided, and how.
fn decisions() -> Schemas {
    let decider = json!({
        "kind": {"enum": ["approver", "owner", "policy", "guard"]}, "id": text(), "auth_method": text(),
        "channel": {"enum": ["api", "console", "token", "guard"]}, "at": time(),
    });
    let vote = json!({
        "decider": reference("Decider"), "epoch": {"type": "integer"}, "comment": text(), "mac": digest(),
    });
    let refused = json!({
        "by": nullable(reference("Decider")), "reason": text(), "at": time(), "mac": nullable(digest()),
    });
    vec![
        ("Decider", object(decider, &["kind", "id", "auth_method", "channel", "at"], false)),
        ("Vote", object(vote, &["decider", "epoch", "mac"], false)),
        ("Refused", object(refused, &["by", "reason", "at"], false)),
    ]
}

/// What proves an outcome, or was seen of it.
fn proofs() -> Schemas {
    let count = json!({"type": "integer"});
    let evidence = json!({"at": time(), "source": text(), "text": text(), "upstream_status": count});
    let receipt = json!({
        "id": text(), "action_id": text(), "service": text(), "tool": text(), "capability": text(),
        "status": {"enum": ["succeeded", "failed"]}, "summary": text(),
        "judged": {"enum": ["status", "body", "probe", "person"]}, "partial": {"type": "boolean"},
        "accepted": {"type": "boolean"}, "recovered": {"type": "boolean"}, "superseded": {"type": "boolean"},
        "args_hash": digest(), "sent_digest": nullable(digest()), "policy_version": text(),
        "decided_by": {"type": "array", "items": reference("Decider")}, "effect_key": nullable(text()),
        "attempts": count, "upstream_status": nullable(count.clone()), "response_digest": nullable(digest()),
        "truncated": {"type": "boolean"}, "sent_at": nullable(time()), "settled_at": time(),
    });
    let always = ["id", "action_id", "status", "summary", "judged", "args_hash", "decided_by", "settled_at"];
    vec![("Evidence", object(evidence, &["at", "source", "text"], false)), ("Receipt", object(receipt, &always, false))]
}

/// `/api/tasks`.
fn tasks() -> Schemas {
    let words = json!({"type": "string", "minLength": 1, "maxLength": 1000});
    let asked = json!({
        "task_type": {"type": "string", "minLength": 1, "maxLength": 255}, "payload": {"type": "object"},
        "ttl_seconds": {"type": "integer", "minimum": 1},
    });
    let decision = json!({
        "decided_by": {"type": "string", "minLength": 1, "maxLength": 200}, "reason": words, "comment": words,
        "args_hash": digest(),
    });
    let made = json!({
        "task_id": text(), "status": reference("TaskStatus"), "expires_at": time(), "confirm_url": text(),
    });
    let task = json!({
        "task_id": text(), "task_type": text(), "payload": {"type": "object"}, "status": reference("TaskStatus"),
        "created_at": time(), "expires_at": time(), "decided_at": nullable(time()), "decided_by": nullable(text()),
        "execute_result": {"description": "The upstream's JSON; content_type, length and sha256 of any other body; null where there is none."},
        "failure_reason": nullable(text()),
    });
    let ten = [
        "task_id",
        "task_type",
        "payload",
        "status",
        "created_at",
        "expires_at",
        "decided_at",
        "decided_by",
        "execute_result",
        "failure_reason",
    ];
    let decided = json!({"task_id": text(), "status": reference("TaskStatus"), "result": {}});
    vec![
        ("TaskStatus", json!({"enum": facade::STATUS_NAMES})),
        ("NewTask", object(asked, &["task_type"], true)),
        ("TaskDecision", object(decision, &[], true)),
        ("TaskMade", object(made, &["task_id", "status", "expires_at", "confirm_url"], true)),
        ("Task", object(task, &ten, true)),
        ("TaskDecided", object(decided, &["task_id", "status"], true)),
    ]
}

fn events() -> Schemas {
    let count = json!({"type": "integer"});
    let event = json!({
        "seq": count, "at": time(), "kind": text(), "draft_id": text(), "tenant": text(), "owner_hash": digest(),
        "tool": text(), "status": reference("Status"), "epoch": count, "args_hash": digest(), "by": text(),
        "reason": text(),
    });
    let next = json!({"type": ["integer", "string"], "description": "Opaque: the `after` of the next call."});
    let page = json!({"events": {"type": "array", "items": reference("Event")}, "next": next});
    vec![
        ("Event", object(event, &["seq", "at", "kind", "draft_id", "status"], false)),
        ("Events", object(page, &["events", "next"], false)),
    ]
}

/// RFC 9457. A policy's own code stands in `code` too, so the enumeration is not closed.
fn problems() -> Schemas {
    let codes: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
    let error = object(json!({"pointer": text(), "reason": text()}), &["pointer", "reason"], false);
    let properties = json!({
            "type": {"type": "string", "description": "urn:countersign:problem:<code in kebab case>"},
            "title": text(),
            "status": {"type": ["integer", "string"], "description": "The HTTP status; about a decided draft its status word."},
            "detail": text(),
            "code": {"anyOf": [{"enum": codes}, {"type": "string", "description": "A code of the policy's own."}]},
            "executed": {"enum": [true, false, "unknown", null]},
            "upstream_called": {"type": "boolean"},
            "safe_to_retry": {"type": "boolean"},
            "draft_id": text(), "guidance": text(), "errors": {"type": "array", "items": error},
        "diagnostics": {"type": "array", "items": reference("Diagnostic")},
    });
    let always = ["type", "title", "status", "detail", "code", "executed", "upstream_called", "safe_to_retry"];
    let place = json!({"type": "integer", "minimum": 1});
    let diagnostic = json!({
        "file": text(), "line": place, "column": place, "severity": {"enum": ["error", "warning"]}, "message": text(),
        "hint": nullable(text()),
    });
    vec![
        ("Problem", object(properties, &always, false)),
        ("Diagnostic", object(diagnostic, &["file", "line", "column", "severity", "message", "hint"], false)),
    ]
}

fn policies() -> Schemas {
    let capability = object(
        json!({
            "id": text(), "service": text(), "status": {"enum": ["enabled", "planned", "forbidden"]},
            "tool": nullable(text()), "operation": nullable(text()), "risk": nullable(reference("Risk")),
            "confirm": nullable(json!({"enum": ["default", "always"]})), "guidance": nullable(text()),
        }),
        &["id", "service", "status"],
        false,
    );
    let report = json!({
        "version": text(), "loaded_at": time(), "files": {"type": "array", "items": text()}, "last_error": nullable(text()),
    });
    let mut policies = report.clone();
    policies["services"] = json!({"type": "array", "items": {"type": "object"}});
    vec![
        (
            "Capabilities",
            object(
                json!({"version": text(), "capabilities": {"type": "array", "items": capability}}),
                &["version", "capabilities"],
                false,
            ),
        ),
        ("PolicyReport", object(report, &["version", "loaded_at", "files", "last_error"], false)),
        ("Policies", object(policies, &["version", "loaded_at", "files", "last_error", "services"], false)),
    ]
}
