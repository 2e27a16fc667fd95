//! The calls of approvers about drafts.
//!
//! Translates a request into a question to the guard and hands its answer on. Must never decide.

use axum::response::Response;
use http::{HeaderValue, header};

use crate::draft::binding;
use crate::draft::receipt::Receipt;
use crate::draft::record::Risk;
use crate::draft::state::{Status, Verdict};
use crate::guard::answer::Answer;
use crate::guard::problem::Problem;
use crate::guard::views::{DraftView, Page};
use crate::store::contract::Filter;

use super::asked::{Asked, Preference};
use super::closed::{self, Closed};
use super::desk::Confirm;
use super::reply;

/// Drafts of one page, where nobody says.
const LIMIT_DEFAULT: usize = 50;

/// Drafts of one page, at most.
const LIMIT_MAX: usize = 200;

/// `GET /v1/drafts`
pub(super) async fn list(asked: Asked) -> Response {
    reply::json_or_problem(page(&asked).await)
}

async fn page(asked: &Asked) -> Result<Page, Problem> {
    let who = asked.approver()?;
    let mut query = asked.query()?;
    let statuses = query.take("status", "status words, separated by commas", |text| {
        text.split(',').map(Status::parse).collect::<Option<Vec<_>>>()
    });
    let tool = query.take("tool", "a tool's name", |text| text.to_owned().try_into().ok());
    let owner_hash = query.take("owner", "an owner's name", |text| {
        let owner = text.to_owned().try_into().ok()?;
        Some(binding::owner_hash(&asked.state.keys, &who.tenant, &owner))
    });
    let risk = query.take("risk", "low, medium or high", risk);
    let before = query.take("cursor", "the `next` of the page before", |text| text.parse().ok());
    let limit = query.take("limit", "a number from 1 to 200", |text| {
        text.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit))
    });
    query.finish()?;
    let filter = Filter {
        statuses: statuses.unwrap_or_default(),
        tool,
        owner_hash,
        risk,
        before,
        limit: limit.unwrap_or(LIMIT_DEFAULT),
        ..Filter::default()
    };
    asked.state.desk.list(who, filter).await
}

fn risk(text: &str) -> Option<Risk> {
    [Risk::Low, Risk::Medium, Risk::High].into_iter().find(|risk| risk.as_str() == text)
}

/// `GET /v1/drafts/{id}`
pub(super) async fn show(asked: Asked) -> Response {
    reply::json_or_problem(view(&asked).await)
}

async fn view(asked: &Asked) -> Result<DraftView, Problem> {
    asked.state.desk.show(asked.approver()?, &asked.draft_id()?).await
}

/// `GET /v1/receipts/{id}`
pub(super) async fn receipt(asked: Asked) -> Response {
    reply::json_or_problem(find_receipt(&asked).await)
}

async fn find_receipt(asked: &Asked) -> Result<Receipt, Problem> {
    // A receipt's id is its draft's with another beginning.
    let id = asked.id.strip_prefix("rc_").and_then(|rest| format!("dr_{rest}").parse().ok());
    let id = id.ok_or_else(reply::no_such_draft)?;
    let view = asked.state.desk.show(asked.approver()?, &id).await?;
    if !view.line.intact {
        return Err(reply::not_intact(&id));
    }
    view.receipt.ok_or_else(reply::no_such_draft)
}

/// `GET /v1/drafts/{id}/body`
pub(super) async fn body(asked: Asked) -> Response {
    match download(&asked).await {
        Ok(response) => response,
        Err(problem) => reply::from_problem(&problem),
    }
}

/// The body as a file: never shown by a browser, whatever it holds.
pub(super) async fn download(asked: &Asked) -> Result<Response, Problem> {
    let id = asked.draft_id()?;
    let (media_type, bytes) = asked.state.desk.body(asked.approver()?, &id).await?;
    let mut response = reply::text("application/octet-stream", bytes);
    let headers = response.headers_mut();
    if let Ok(name) = HeaderValue::try_from(format!("attachment; filename=\"{id}.bin\"")) {
        headers.insert(header::CONTENT_DISPOSITION, name);
    }
    if let Ok(media_type) = HeaderValue::try_from(media_type) {
        headers.insert("countersign-body-type", media_type);
    }
    Ok(response)
}

/// `POST /v1/drafts/{id}/confirm`
pub(super) async fn confirm(asked: Asked) -> Response {
    let preference = Preference::read(asked.headers());
    hand_on(try_confirm(&asked, preference).await.map(|answer| applied(answer, preference)))
}

async fn try_confirm(asked: &Asked, preference: Preference) -> Result<Answer, Problem> {
    let (who, id) = (asked.approver()?, asked.draft_id()?);
    let decision_key = asked.decision_key()?;
    let mut body = Closed::read(asked.headers(), &asked.body)?;
    let args_hash = body.digest("args_hash");
    let comment = body.text("comment", closed::WORDS_CHARS_MAX);
    body.finish()?;
    let confirm = Confirm { args_hash, comment, decision_key, wait: preference.wait };
    Ok(asked.state.desk.confirm(who, &id, confirm).await)
}

/// `POST /v1/drafts/{id}/reject`
pub(super) async fn reject(asked: Asked) -> Response {
    hand_on(try_reject(&asked).await)
}

async fn try_reject(asked: &Asked) -> Result<Answer, Problem> {
    let (who, id) = (asked.approver()?, asked.draft_id()?);
    let decision_key = asked.decision_key()?;
    let mut body = Closed::read(asked.headers(), &asked.body)?;
    let reason = body.required_text("reason", closed::WORDS_CHARS_MAX);
    body.finish()?;
    Ok(asked.state.desk.reject(who, &id, reason, decision_key).await)
}

/// The two words with which a person settles what could not be verified.
pub(super) const OUTCOMES: &[(&str, Verdict)] = &[("succeeded", Verdict::Succeeded), ("failed", Verdict::Failed)];

/// `POST /v1/drafts/{id}/resolve`
pub(super) async fn resolve(asked: Asked) -> Response {
    hand_on(try_resolve(&asked).await)
}

async fn try_resolve(asked: &Asked) -> Result<Answer, Problem> {
    let (who, id) = (asked.approver()?, asked.draft_id()?);
    let mut body = Closed::read(asked.headers(), &asked.body)?;
    let verdict = body.word("outcome", OUTCOMES);
    let evidence = body.required_text("evidence", closed::EVIDENCE_CHARS_MAX);
    body.finish()?;
    let verdict = verdict.ok_or_else(|| reply::invalid("/outcome", "is missing"))?;
    Ok(asked.state.desk.resolve(who, &id, verdict, evidence).await)
}

/// `POST /v1/drafts/{id}/again`
pub(super) async fn again(asked: Asked) -> Response {
    hand_on(try_again(&asked).await)
}

async fn try_again(asked: &Asked) -> Result<Answer, Problem> {
    let (who, id) = (asked.approver()?, asked.draft_id()?);
    Closed::read(asked.headers(), &asked.body)?.finish()?;
    Ok(asked.state.desk.again(who, &id).await)
}

/// The guard's answer, or why it was not asked.
pub(super) fn hand_on(result: Result<Answer, Problem>) -> Response {
    match result {
        Ok(answer) => reply::from_answer(answer),
        Err(problem) => reply::from_problem(&problem),
    }
}

/// Says which preference was followed.
pub(super) fn applied(answer: Answer, preference: Preference) -> Answer {
    match preference.applied() {
        Some(applied) if answer.status < 300 => answer.with("Preference-Applied", applied),
        _ => answer,
    }
}
