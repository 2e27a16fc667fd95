//! `/api/tasks`: the handshake of a confirmation gate, in the words that its clients know.
//!
//! A task is a draft, its type is a tool, its payload the args. Owns the translation in both directions,
//! and the one call of this listener that an agent may make beside reading its own task. Must never decide,
//! and never hold anything by rules of its own: the guard judges a task like a call that was intercepted.

mod agents;
mod answers;
mod asserted;
mod tasks;
mod words;

use axum::response::Response;
use http::Method;

use crate::agent::correlation::{request_id, traceparent};
use crate::agent::identity::Said;
use crate::call::json;
use crate::guard::Proposal;
use crate::guard::answer::Answer;
use crate::guard::problem::Problem;
use crate::guard::task::TaskDecision;
use crate::policy::judge::Selection;

use super::asked::{Asked, Caller, Preference};
use super::closed::{self, Closed};
use super::drafts::{applied, hand_on};
use super::{reply, routes};

pub use agents::Agents;
pub use tasks::Tasks;
pub(super) use words::NAMES as STATUS_NAMES;

/// Longest name of a task's type, in characters.
const TYPE_CHARS_MAX: usize = 255;

/// Longest name of somebody who is said to decide, in characters.
const ASSERTED_CHARS_MAX: usize = 200;

/// The reason of a rejection that gives none.
const NO_REASON: &str = "No reason was given.";

/// `POST /api/tasks`
pub(super) async fn create(asked: Asked) -> Response {
    hand_on(try_create(&asked).await)
}

async fn try_create(asked: &Asked) -> Result<Answer, Problem> {
    let Caller::Agent(agent) = &asked.caller else { return Err(routes::agent_unknown()) };
    let (state, headers) = (&asked.state, asked.headers());
    let idempotency_key = asked.decision_key()?;
    let mut body = Closed::read(headers, &asked.body)?;
    let name = body.required_text("task_type", TYPE_CHARS_MAX);
    body.object("payload");
    let ttl = body.seconds("ttl_seconds");
    body.finish()?;
    // As it was written: numbers keep every digit.
    let text = std::str::from_utf8(&asked.body).unwrap_or_default();
    let payload = json::member(text, "payload").unwrap_or("{}");

    let policies = state.desk.policies();
    let named = policies.by_name(&name, payload, state.agents.body_bytes_max())?;
    if let Some(ttl) = ttl.filter(|ttl| *ttl > named.tool.ttl) {
        let (asked_for, most) = (ttl.as_secs(), named.tool.ttl.as_secs());
        let reason =
            format!("is {asked_for}; the policy lets this tool wait {most} s, and a task may only shorten that");
        return Err(reply::invalid("/ttl_seconds", reason));
    }
    let params = match &named.selection {
        Selection::Tool(_, params) => params.clone(),
        Selection::Capability(_) | Selection::UnmatchedRead | Selection::UnmatchedWrite => Vec::new(),
    };
    let said = Said { params: &params, args: &named.call.args.values, rules: named.tool.args.as_ref() };
    let identity = state.agents.identity(agent, headers, Some(said))?;
    let proposal = Proposal {
        policies: &policies,
        service: named.service,
        selection: named.selection,
        call: named.call,
        identity,
        idempotency_key,
        request_id: request_id(headers, state.chance.as_ref()),
        traceparent: traceparent(headers),
        identity_headers: state.agents.identity_headers(),
        ttl_max: ttl,
    };
    let proposed = state.tasks.propose(proposal).await?;
    Ok(answers::created(&proposed, state.public.as_str()))
}

/// `GET /api/tasks/{id}`
pub(super) async fn show(asked: Asked) -> Response {
    hand_on(try_show(&asked).await)
}

async fn try_show(asked: &Asked) -> Result<Answer, Problem> {
    let id = asked.draft_id().map_err(words::told)?;
    let task = match &asked.caller {
        Caller::Agent(agent) => {
            let who = asked.state.agents.identity(agent, asked.headers(), None)?;
            // Its agent has read the outcome now; HEAD shows none.
            asked.state.tasks.own(&who, &id, asked.parts.method == Method::GET).await
        }
        _ => asked.state.tasks.show(asked.approver()?, &id).await,
    };
    Ok(answers::shown(&task.map_err(words::told)?))
}

/// `POST /api/tasks/{id}/confirm`
pub(super) async fn confirm(asked: Asked) -> Response {
    let preference = Preference::read(asked.headers());
    hand_on(try_confirm(&asked, preference).await.map(|answer| applied(answer, preference)))
}

async fn try_confirm(asked: &Asked, preference: Preference) -> Result<Answer, Problem> {
    let (who, id) = (asked.approver()?, asked.draft_id().map_err(words::told)?);
    let ask = TaskDecision { wait: preference.wait, ..decision(asked, "")? };
    let decided = asked.state.tasks.confirm(who, &id, ask).await;
    answers::confirmed(decided.map_err(words::told)?)
}

/// `POST /api/tasks/{id}/reject`
pub(super) async fn reject(asked: Asked) -> Response {
    hand_on(try_reject(&asked).await)
}

async fn try_reject(asked: &Asked) -> Result<Answer, Problem> {
    let (who, id) = (asked.approver()?, asked.draft_id().map_err(words::told)?);
    let decided = asked.state.tasks.reject(who, &id, decision(asked, NO_REASON)?).await;
    answers::rejected(decided.map_err(words::told)?)
}

/// What an approver says beside a decision; `otherwise` where they say nothing.
fn decision(asked: &Asked, otherwise: &str) -> Result<TaskDecision, Problem> {
    let decision_key = asked.decision_key()?;
    let mut body = Closed::read(asked.headers(), &asked.body)?;
    let asserted = body.text("decided_by", ASSERTED_CHARS_MAX);
    let said = ["reason", "comment"].map(|name| body.text(name, closed::WORDS_CHARS_MAX));
    let args_hash = body.digest("args_hash");
    body.finish()?;
    let said: Vec<String> = said.into_iter().flatten().collect();
    let said = if said.is_empty() { otherwise.to_owned() } else { said.join("\n") };
    let words = asserted::beside(&said, asserted.as_deref());
    if words.chars().count() > closed::WORDS_CHARS_MAX {
        let reason = format!("has, with the other words, more than {} characters", closed::WORDS_CHARS_MAX);
        return Err(reply::invalid("/reason", reason));
    }
    Ok(TaskDecision { args_hash, words, decision_key, wait: None })
}
