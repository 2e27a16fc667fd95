//! Forms of the console: session, token and fields checked, then the same questions as the API's.
//!
//! Every form carries the token of its session and the args hash that was shown. What comes of a
//! click is told in words, also when it came late or twice.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::Query;
use axum::response::Response;
use http::Uri;
use serde_json::Value;

use crate::base::code::Code;
use crate::base::digest::Digest;
use crate::base::id::DraftId;
use crate::control::asked::{Asked, Caller};
use crate::control::closed;
use crate::control::desk::Confirm;
use crate::control::drafts::OUTCOMES;
use crate::control::reply;
use crate::control::routes;
use crate::control::state::ControlState;
use crate::guard::answer::Answer;
use crate::guard::problem::Problem;

use super::session::SignedIn;

/// How long a click waits for its outcome.
const PAGE_PATIENCE: Duration = Duration::from_secs(3);

/// The fields of a form, each at most once.
pub(super) type Fields = BTreeMap<String, String>;

/// What a page says after a form did what it should.
const NOTICES: [(&str, &str); 6] = [
    ("confirmed", "You confirmed this call. It is sent once."),
    ("voted", "Your vote is counted. More people have to confirm before anything is sent."),
    (
        "replayed",
        "This was decided in the same way already. Your click changed nothing: the call is carried out at most once.",
    ),
    ("rejected", "You rejected this call. Nothing was sent, and the agent is told your reason."),
    ("resolved", "You recorded the outcome."),
    ("again", "This is the new draft. It waits for a decision of its own."),
];

/// Reads the fields of a form.
///
/// # Errors
///
/// `MEDIA_TYPE_UNSUPPORTED`, `BODY_MALFORMED`, `REQUEST_INVALID` for a field that is unknown or
/// stands there twice.
pub(super) fn fields(asked: &Asked, known: &[&str]) -> Result<Fields, Problem> {
    if !super::is_form(asked.headers()) {
        let detail = "This path takes a form (application/x-www-form-urlencoded). Nothing was changed.";
        return Err(Problem::new(Code::MediaTypeUnsupported, detail));
    }
    let malformed = || Problem::new(Code::BodyMalformed, "The form cannot be read. Nothing was changed.");
    // A form body has the syntax of a query (WHATWG URL, application/x-www-form-urlencoded), and
    // the reader of queries takes nothing but URIs; bodies are bounded by 64 KiB.
    let text = std::str::from_utf8(&asked.body).map_err(|_| malformed())?;
    let uri: Uri = format!("/?{text}").parse().map_err(|_| malformed())?;
    let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(&uri).map_err(|_| malformed())?;
    let mut fields = Fields::new();
    for (name, value) in pairs {
        if !known.contains(&name.as_str()) && name != "csrf" {
            return Err(reply::invalid("", format!("the form has an unknown field: {name}")));
        }
        // Browsers send the line breaks of a text area as CR LF.
        if fields.insert(name, value.replace("\r\n", "\n")).is_some() {
            return Err(reply::invalid("", "the form has a field twice"));
        }
    }
    Ok(fields)
}

/// A form of a live session, with its token.
pub(super) fn checked<'a>(asked: &'a Asked, known: &[&str]) -> Result<(&'a SignedIn, Fields), Box<Response>> {
    let Caller::SignedIn(signed_in) = &asked.caller else {
        let detail = "Your session is over. Sign in, look at the draft and decide again. Nothing was changed.";
        let problem = Problem::new(Code::CredentialUnknown, detail);
        let next = asked.draft_id().map_or_else(|_| "/".to_owned(), |id| format!("/drafts/{id}"));
        return Err(Box::new(super::sign_in_for(asked, &next, Some(&problem))));
    };
    let refused = |problem: &Problem| Box::new(super::refused_to(&asked.state, Some(signed_in), problem));
    let mut fields = fields(asked, known).map_err(|problem| refused(&problem))?;
    let token = fields.remove("csrf").and_then(|token| token.parse::<Digest>().ok());
    if token != Some(signed_in.csrf) {
        asked.state.observer.refused_attempt(Code::CsrfFailed, signed_in.who.name.as_str());
        let problem = routes::csrf("The form's token is missing or is not this session's. Load the page again.");
        return Err(refused(&problem));
    }
    Ok((signed_in, fields))
}

/// `POST /drafts/{id}/confirm`
pub(in crate::control) async fn confirm(asked: Asked) -> Response {
    let (signed_in, mut form) = match checked(&asked, &["args_hash", "comment"]) {
        Ok(checked) => checked,
        Err(response) => return *response,
    };
    let Ok(id) = asked.draft_id() else { return super::refused(&asked.state, &reply::no_such_draft()) };
    let comment = form.remove("comment").filter(|comment| !comment.trim().is_empty());
    if let Some(comment) = &comment
        && let Err(why) = closed::words(comment, closed::WORDS_CHARS_MAX)
    {
        return say(&asked, signed_in, &id, 422, &format!("The comment {why}. Nothing was changed.")).await;
    }
    let args_hash = match form.remove("args_hash").map(|hash| hash.parse::<Digest>()) {
        None => None,
        Some(Ok(hash)) => Some(hash),
        Some(Err(_)) => {
            return say(&asked, signed_in, &id, 422, "The form's args hash is none. Nothing was changed.").await;
        }
    };
    // A page that says "being carried out" is better than one that does not come.
    let confirm = Confirm { args_hash, comment, decision_key: None, wait: Some(PAGE_PATIENCE) };
    let answer = asked.state.desk.confirm(&signed_in.who, &id, confirm).await;
    tell(&asked, signed_in, &id, &answer, confirmed).await
}

fn confirmed(body: &Value) -> &'static str {
    match (body["replayed"].as_bool(), body["status"].as_str()) {
        (Some(true), _) => "replayed",
        (_, Some("pending")) => "voted",
        _ => "confirmed",
    }
}

/// `POST /drafts/{id}/reject`
pub(in crate::control) async fn reject(asked: Asked) -> Response {
    let (signed_in, mut form) = match checked(&asked, &["args_hash", "reason"]) {
        Ok(checked) => checked,
        Err(response) => return *response,
    };
    let Ok(id) = asked.draft_id() else { return super::refused(&asked.state, &reply::no_such_draft()) };
    let reason = form.remove("reason").unwrap_or_default();
    if let Err(why) = closed::words(&reason, closed::WORDS_CHARS_MAX) {
        return say(&asked, signed_in, &id, 422, &format!("The reason {why}. Nothing was changed.")).await;
    }
    if let Err(response) = same_hash(&asked, signed_in, &id, form.remove("args_hash")).await {
        return *response;
    }
    let answer = asked.state.desk.reject(&signed_in.who, &id, reason, None).await;
    tell(&asked, signed_in, &id, &answer, |body| {
        if body["replayed"].as_bool() == Some(true) { "replayed" } else { "rejected" }
    })
    .await
}

/// `POST /drafts/{id}/resolve`
pub(in crate::control) async fn resolve(asked: Asked) -> Response {
    let (signed_in, mut form) = match checked(&asked, &["args_hash", "outcome", "evidence"]) {
        Ok(checked) => checked,
        Err(response) => return *response,
    };
    let Ok(id) = asked.draft_id() else { return super::refused(&asked.state, &reply::no_such_draft()) };
    let outcome = form.remove("outcome").unwrap_or_default();
    let Some((_, verdict)) = OUTCOMES.iter().find(|(word, _)| *word == outcome) else {
        return say(&asked, signed_in, &id, 422, "Choose what you found. Nothing was changed.").await;
    };
    let evidence = form.remove("evidence").unwrap_or_default();
    if let Err(why) = closed::words(&evidence, closed::EVIDENCE_CHARS_MAX) {
        return say(&asked, signed_in, &id, 422, &format!("How you know {why}. Nothing was changed.")).await;
    }
    if let Err(response) = same_hash(&asked, signed_in, &id, form.remove("args_hash")).await {
        return *response;
    }
    let answer = asked.state.desk.resolve(&signed_in.who, &id, *verdict, evidence).await;
    tell(&asked, signed_in, &id, &answer, |_| "resolved").await
}

/// `POST /drafts/{id}/again`
pub(in crate::control) async fn again(asked: Asked) -> Response {
    let (signed_in, _) = match checked(&asked, &[]) {
        Ok(checked) => checked,
        Err(response) => return *response,
    };
    let Ok(id) = asked.draft_id() else { return super::refused(&asked.state, &reply::no_such_draft()) };
    let answer = asked.state.desk.again(&signed_in.who, &id).await;
    let made: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let new = made["draft_id"].as_str().and_then(|id| id.parse::<DraftId>().ok()).unwrap_or_else(|| id.clone());
    if answer.status < 300 {
        return super::see_other(&sealed_notice(&asked.state, signed_in, &new, "again"), None);
    }
    tell(&asked, signed_in, &id, &answer, |_| "again").await
}

/// What was shown has to be what is stored.
async fn same_hash(
    asked: &Asked,
    signed_in: &SignedIn,
    id: &DraftId,
    shown: Option<String>,
) -> Result<(), Box<Response>> {
    let stored = match asked.state.desk.show(&signed_in.who, id).await {
        Ok(view) => view.line.args_hash,
        Err(problem) => return Err(Box::new(super::refused_to(&asked.state, Some(signed_in), &problem))),
    };
    if shown.and_then(|shown| shown.parse::<Digest>().ok()) == Some(stored) {
        return Ok(());
    }
    Err(Box::new(say(asked, signed_in, id, 409, words(Code::ArgsHashMismatch)).await))
}

/// Goes on to the draft's page with a notice, or shows it with what was refused.
async fn tell(
    asked: &Asked,
    signed_in: &SignedIn,
    id: &DraftId,
    answer: &Answer,
    done: fn(&Value) -> &'static str,
) -> Response {
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    if answer.status < 300 {
        return super::see_other(&sealed_notice(&asked.state, signed_in, id, done(&body)), None);
    }
    let code = body["code"].as_str().and_then(Code::parse);
    if code == Some(Code::CommitOutcomeUnknown) {
        // Not a refusal: the click counted, and the page says that the outcome is not known.
        return super::see_other(&format!("/drafts/{id}"), None);
    }
    let detail = body["detail"].as_str().unwrap_or_default();
    // What the guard itself decided, at this very click, it tells itself.
    let by_guard = body["decided_by"] == "guard";
    let said = if by_guard { "" } else { code.map_or("This was refused.", words) };
    let alert = format!("{said} {detail}");
    say(asked, signed_in, id, answer.status, &alert).await
}

/// What a refusal means to the one who clicked.
const fn words(code: Code) -> &'static str {
    match code {
        Code::DraftAlreadyDecided => "This was decided before your click, which changed nothing.",
        Code::DraftExpired => "You came too late: its time was over. Your click changed nothing and nothing was sent.",
        Code::ArgsHashMismatch | Code::ArgsHashRequired => {
            "What you were shown is not what is stored. Nothing was changed; read this page again."
        }
        Code::DraftIntegrityFailed => "The stored draft does not verify. Nothing was sent.",
        Code::ApproverNotAllowed => "Ask somebody whose rights reach this draft's tool, risk and tenant.",
        Code::DecisionUncertain => "It is not known whether your click was recorded. Look again in a moment.",
        _ => "This was refused.",
    }
}

async fn say(asked: &Asked, signed_in: &SignedIn, id: &DraftId, status: u16, alert: &str) -> Response {
    super::draft_page(asked, signed_in, id, status, Some(alert.trim().to_owned()), None).await
}

/// The address of a draft's page with a notice that nobody else can put there: a link must not
/// make a page say that something was decided.
fn sealed_notice(state: &ControlState, signed_in: &SignedIn, id: &DraftId, word: &str) -> String {
    format!("/drafts/{id}?notice={word}-{}", seal(state, signed_in, id, word))
}

fn seal(state: &ControlState, signed_in: &SignedIn, id: &DraftId, word: &str) -> String {
    let parts = [signed_in.csrf.as_bytes().as_slice(), id.as_str().as_bytes(), word.as_bytes()];
    state.keys.console_digest("notice", &parts).to_hex()[..32].to_owned()
}

/// The notice that an address carries, if this session was given it.
pub(super) fn notice(state: &ControlState, signed_in: &SignedIn, id: &DraftId, sealed: &str) -> Option<&'static str> {
    let (word, presented) = sealed.split_once('-')?;
    let (_, text) = NOTICES.iter().find(|(known, _)| *known == word)?;
    (seal(state, signed_in, id, word) == presented).then_some(*text)
}
