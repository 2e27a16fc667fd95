//! The facade's answers: from what the guard found to the shapes that its clients read.
//!
//! Owns the ten fields of a task and what goes with each refusal. Says "executed" only of what has a
//! receipt, and passes a result on only where every reader reads it alike.

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use serde::Serialize;
use serde_json::{Value, json};

use crate::base::code::Code;
use crate::base::id::{DraftId, ToolName};
use crate::base::time::Timestamp;
use crate::call::json;
use crate::call::media::{ContentType, Kind};
use crate::draft::decision::Decider;
use crate::draft::outcome::{Failure, StoredResponse};
use crate::draft::state::Status;
use crate::guard::answer::Answer;
use crate::guard::problem::{Executed, Problem, UNKNOWN_TEXT};
use crate::guard::task::{Proposed, Task, TaskDecided};
use crate::guard::views::DraftView;

use super::words::{self, name_of};

/// A task as it is shown: ten fields, and no others.
#[derive(Debug, Serialize)]
pub(in crate::control) struct Shown {
    task_id: DraftId,
    task_type: ToolName,
    payload: Value,
    status: &'static str,
    created_at: Timestamp,
    expires_at: Timestamp,
    decided_at: Option<Timestamp>,
    decided_by: Option<String>,
    execute_result: Option<Value>,
    failure_reason: Option<String>,
}

impl Shown {
    pub(in crate::control) fn of(task: &Task) -> Self {
        let Task { draft, .. } = task;
        let decided = decider(draft);
        Self {
            task_id: draft.line.draft_id.clone(),
            task_type: draft.line.tool.clone(),
            payload: payload(draft),
            status: name_of(draft),
            created_at: draft.line.created_at,
            expires_at: draft.line.expires_at,
            decided_at: decided.map(|by| by.at),
            decided_by: decided.map(|by| by.id.to_string()),
            execute_result: result(task),
            failure_reason: words::reason(draft),
        }
    }
}

/// The args; where the body is none of them, it stands beside them by type, length and digest.
fn payload(draft: &DraftView) -> Value {
    let mut payload = draft.args.clone();
    let opaque = draft.request.as_ref().filter(|request| request.kind == "opaque" && request.length > 0);
    if let (Some(members), Some(request)) = (payload.as_object_mut(), opaque) {
        let described =
            json!({"content_type": request.content_type, "length": request.length, "sha256": request.sha256});
        members.insert("body".to_owned(), described);
    }
    payload
}

/// Who decided: the one who said no, else the last one who said yes.
fn decider(draft: &DraftView) -> Option<&Decider> {
    match &draft.refused {
        Some(refused) => refused.by.as_ref(),
        None => draft.votes.last().map(|vote| &vote.decider),
    }
}

/// The upstream's answer to a task that was carried out: JSON as it is, anything else by type, length and
/// digest; `None` where there is none.
fn result(task: &Task) -> Option<Value> {
    let response = task.response.as_ref().filter(|_| task.draft.line.status == Status::Succeeded)?;
    if response.length == 0 {
        return None;
    }
    let header = |name: &str| response.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    let content_type = header(CONTENT_TYPE.as_str()).map(|(_, value)| value.as_str());
    let described = || json!({"content_type": content_type, "length": response.length, "sha256": response.digest});
    Some(read_json(response, content_type).unwrap_or_else(described))
}

/// The body as JSON, if its type says so, it is there as a whole, and no number of it would change.
fn read_json(response: &StoredResponse, content_type: Option<&str>) -> Option<Value> {
    let coded = response.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(CONTENT_ENCODING.as_str()));
    let kind = ContentType::parse(content_type?).ok()?.kind().ok()?;
    let parsed = json::parse(&response.body).ok()?;
    (kind == Kind::Json && !coded && !response.truncated && parsed.inexact.is_empty()).then_some(parsed.value)
}

/// `POST /api/tasks`: 202 while it waits or is carried out, 200 where an equal task has ended.
pub(super) fn created(proposed: &Proposed, public_url: &str) -> Answer {
    let Proposed { draft, token } = proposed;
    let line = &draft.line;
    let id = &line.draft_id;
    let ended = matches!(line.status, Status::Succeeded | Status::Failed);
    let body = json!({
        "task_id": id,
        "status": name_of(draft),
        "expires_at": line.expires_at,
        "confirm_url": format!("{public_url}/api/tasks/{id}/confirm"),
    });
    let mut answer = Answer::json(if ended { 200 } else { 202 }, &body)
        .with("Location", format!("/api/tasks/{id}"))
        .with("Countersign-Draft", id.to_string())
        .with("Countersign-Status", line.status.as_str())
        .with("x-should-retry", "false");
    if let Some(token) = token {
        answer = answer.with("Countersign-Confirmation-Token", token.reveal());
    }
    answer
}

/// `GET /api/tasks/{id}`
pub(super) fn shown(task: &Task) -> Answer {
    Answer::json(200, &Shown::of(task))
}

/// `POST /api/tasks/{id}/confirm`
///
/// # Errors
///
/// The problem that says what became of it, if it was not carried out.
pub(super) fn confirmed(decided: TaskDecided) -> Result<Answer, Problem> {
    let (task, again) = match decided {
        TaskDecided::Now(task) => (task, false),
        TaskDecided::Again(task) => (task, true),
        TaskDecided::Before(task) => {
            let detail = words::cannot_confirm(name_of(&task.draft));
            return Err(conflict(&task, detail));
        }
    };
    let draft = &task.draft;
    let body = json!({"task_id": draft.line.draft_id, "status": name_of(draft), "result": result(&task)});
    match draft.line.status {
        Status::Succeeded => Ok(repeated(Answer::json(200, &body), again)),
        Status::Pending | Status::Running | Status::Verifying => Ok(repeated(Answer::json(202, &body), again)),
        Status::Failed => Err(failed(&task)),
        Status::Unverifiable => Err(about(&task, Problem::new(Code::CommitOutcomeUnknown, UNKNOWN_TEXT))),
        Status::Rejected | Status::Expired | Status::Withdrawn => {
            Err(conflict(&task, words::cannot_confirm(name_of(draft))))
        }
    }
}

/// `POST /api/tasks/{id}/reject`
///
/// # Errors
///
/// 410 or 409, if it is not pending.
pub(super) fn rejected(decided: TaskDecided) -> Result<Answer, Problem> {
    let (task, again) = match decided {
        TaskDecided::Now(task) => (task, false),
        TaskDecided::Again(task) => (task, true),
        TaskDecided::Before(task) => return Err(conflict(&task, words::NOT_PENDING.to_owned())),
    };
    let body = json!({"task_id": task.draft.line.draft_id, "status": name_of(&task.draft)});
    Ok(repeated(Answer::json(200, &body), again))
}

fn repeated(answer: Answer, again: bool) -> Answer {
    if again { answer.with("Countersign-Replayed", "true") } else { answer }
}

/// Confirmed, and not carried out.
fn failed(task: &Task) -> Problem {
    let why = words::reason(&task.draft).unwrap_or_default();
    let mut problem = about(task, Problem::new(Code::ExecutionFailed, format!("execute failed: {why}")));
    problem.upstream_called = task.draft.sent_at.is_some() && !matches!(task.draft.failure, Some(Failure::NotSent));
    problem.guidance = task.draft.again.then(|| {
        let id = &task.draft.line.draft_id;
        format!("Nothing was sent. An approver can offer the call again: POST /v1/drafts/{id}/again, or the console.")
    });
    problem
}

/// Decided, or ended, before.
fn conflict(task: &Task, detail: String) -> Problem {
    let line = &task.draft.line;
    if line.status == Status::Expired {
        let mut problem = Problem::new(Code::DraftExpired, words::EXPIRED)
            .about(&line.draft_id)
            .with("task_id", &line.draft_id)
            .with("expired_at", &line.expires_at)
            .with("recreate", &true);
        problem.guidance = Some("Nobody confirmed it in time. Nothing was executed; ask for it again.".to_owned());
        return problem;
    }
    let mut problem = about(task, Problem::new(Code::DraftAlreadyDecided, detail));
    problem.guidance = Some("Nothing was changed by this request. What became of the task stands beside.".to_owned());
    problem
}

/// A problem with everything that is known of its task: the outcome is the first decision's, and stays it.
fn about(task: &Task, problem: Problem) -> Problem {
    let Task { draft, .. } = task;
    let line = &draft.line;
    let by = decider(draft);
    let mut problem = problem
        .about(&line.draft_id)
        .with("task_id", &line.draft_id)
        .with("status", &name_of(draft))
        .with("result", &result(task))
        .with("failure", &draft.failure.map(Failure::as_str))
        .with("failure_reason", &words::reason(draft))
        .with("decided_by", &by.map(|by| by.id.as_str()))
        .with("decided_at", &by.map(|by| by.at))
        .with("receipt", &draft.receipt);
    problem.executed = match line.status {
        Status::Succeeded => Executed::Yes,
        Status::Running | Status::Verifying | Status::Unverifiable => Executed::Unknown,
        Status::Failed if draft.failure.is_none() => Executed::Unknown,
        Status::Pending | Status::Failed | Status::Rejected | Status::Expired | Status::Withdrawn => Executed::No,
    };
    problem.upstream_called = draft.sent_at.is_some();
    problem
}
