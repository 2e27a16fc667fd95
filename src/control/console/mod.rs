//! The console: the same calls, for people, on plain pages that work without script.
//!
//! Owns pages and forms. A GET shows; only a form that came from our own page, in a live session
//! and with that session's token, decides.

pub(super) mod forms;
pub(super) mod pages;
pub(super) mod session;
mod visible;

use axum::response::Response;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::json;

use crate::base::code::Code;
use crate::base::id::DraftId;
use crate::base::secret::Secret;
use crate::draft::state::Status;
use crate::guard::problem::{self, Problem};
use crate::store::contract::Filter;

use super::asked::{Asked, Caller, Params};
use super::caller::{self, Standing};
use super::credentials::ApproverEntry;
use super::reply;
use super::state::ControlState;
use pages::{Frame, QueueLine};
use session::SignedIn;

/// Drafts of one list.
const LIST_LIMIT: usize = 50;

/// A list of the queue.
struct List {
    name: &'static str,
    label: &'static str,
    nothing: &'static str,
    statuses: &'static [Status],
}

/// The lists, the first one being where one starts.
const LISTS: [List; 4] = [
    List { name: "waiting", label: "Waiting", nothing: "Nothing waits for a decision.", statuses: &[Status::Pending] },
    List {
        name: "unverifiable",
        label: "Cannot be verified",
        nothing: "Every outcome is known.",
        statuses: &[Status::Unverifiable],
    },
    List {
        name: "open",
        label: "Being carried out",
        nothing: "Nothing is being carried out.",
        statuses: &[Status::Running, Status::Verifying],
    },
    List {
        name: "ended",
        label: "Ended",
        nothing: "Nothing has ended yet.",
        statuses: &[Status::Succeeded, Status::Failed, Status::Rejected, Status::Expired, Status::Withdrawn],
    },
];

/// `GET /`
pub(super) async fn queue(asked: Asked) -> Response {
    let Caller::SignedIn(signed_in) = &asked.caller else { return sign_in_for(&asked, "/", None) };
    let value = |name: &str| {
        let pairs = Params::read(&asked.parts.uri).and_then(Params::finish).unwrap_or_default();
        pairs.into_iter().find(|(known, _)| known == name).map(|(_, value)| value)
    };
    let shown = value("show");
    let list = LISTS.iter().find(|list| Some(list.name) == shown.as_deref()).unwrap_or(&LISTS[0]);
    let before = value("before").and_then(|id| id.parse::<DraftId>().ok());
    let filter = Filter { statuses: list.statuses.to_vec(), before, limit: LIST_LIMIT, ..Filter::default() };
    let (page, alert) = match asked.state.desk.list(&signed_in.who, filter).await {
        Ok(page) => (Some(page), None),
        Err(problem) => (None, Some(problem)),
    };
    let now = asked.state.clock.now();
    let lines: Vec<QueueLine<'_>> =
        page.iter().flat_map(|page| &page.drafts).map(|line| QueueLine::of(line, now)).collect();
    let lists: Vec<_> = LISTS.iter().map(|list| json!({"name": list.name, "label": list.label})).collect();
    let nothing = if alert.is_some() { "The list cannot be read." } else { list.nothing };
    let context = json!({
        "page": Frame::of(Some(signed_in)), "lists": lists, "shown": list.name, "heading": list.label,
        "drafts": lines, "nothing": nothing, "next": page.as_ref().and_then(|page| page.next.as_ref()),
        "alert": alert.as_ref().map(|problem| &problem.detail),
    });
    asked.state.pages.page(alert.map_or(200, |problem| problem.status()), "queue.html", &context)
}

/// `GET /drafts/{id}`
pub(super) async fn draft(asked: Asked) -> Response {
    let Ok(id) = asked.draft_id() else { return refused(&asked.state, &reply::no_such_draft()) };
    let Caller::SignedIn(signed_in) = &asked.caller else {
        return sign_in_for(&asked, &format!("/drafts/{id}"), None);
    };
    let notice = Params::read(&asked.parts.uri)
        .and_then(Params::finish)
        .ok()
        .and_then(|pairs| pairs.into_iter().find(|(name, _)| name == "notice"))
        .and_then(|(_, sealed)| forms::notice(&asked.state, signed_in, &id, &sealed));
    draft_page(&asked, signed_in, &id, 200, None, notice).await
}

/// A draft's page with what is to be said first; the refusal itself if it cannot be shown.
async fn draft_page(
    asked: &Asked,
    signed_in: &SignedIn,
    id: &DraftId,
    status: u16,
    alert: Option<String>,
    notice: Option<&str>,
) -> Response {
    match asked.state.desk.show(&signed_in.who, id).await {
        Ok(view) => {
            let context = pages::draft_context(signed_in, &view, asked.state.clock.now(), alert, notice);
            asked.state.pages.page(status, "draft.html", &context)
        }
        Err(mut problem) => {
            if let Some(alert) = alert {
                problem.detail = format!("{alert} {}", problem.detail);
            }
            refused_to(&asked.state, Some(signed_in), &problem)
        }
    }
}

/// `GET /drafts/{id}/body`
pub(super) async fn body(asked: Asked) -> Response {
    let Caller::SignedIn(signed_in) = &asked.caller else {
        let next = asked.draft_id().map_or_else(|_| "/".to_owned(), |id| format!("/drafts/{id}"));
        return sign_in_for(&asked, &next, None);
    };
    match super::drafts::download(&asked).await {
        Ok(response) => response,
        Err(problem) => refused_to(&asked.state, Some(signed_in), &problem),
    }
}

/// A page that says why not.
pub(super) fn refused(state: &ControlState, problem: &Problem) -> Response {
    refused_to(state, None, problem)
}

fn refused_to(state: &ControlState, signed_in: Option<&SignedIn>, problem: &Problem) -> Response {
    let context = json!({
        "page": Frame::of(signed_in), "title": problem::line(problem.code).title,
        "detail": problem.detail, "code": problem.code,
    });
    state.pages.page(problem.status(), "refused.html", &context)
}

/// `GET /sign-in`
pub(super) async fn sign_in_page(asked: Asked) -> Response {
    sign_in_for(&asked, "/", None)
}

/// The sign-in page, from which one gets to `next`. A browser that follows a link from another
/// site does not send the session cookie with its first request (`SameSite=Strict`): it is asked
/// to come again from here. Not on `/`, where the fragment may hold a code.
fn sign_in_for(asked: &Asked, next: &str, failed: Option<&Problem>) -> Response {
    let site = asked.headers().get("sec-fetch-site").map(HeaderValue::as_bytes);
    let elsewhere = failed.is_none() && site == Some(b"cross-site");
    let mut frame = Frame::default();
    if elsewhere && next != "/" {
        frame = frame.refreshing(0, next);
    }
    let context = json!({
        "page": frame, "next": next, "elsewhere": elsewhere, "alert": failed.map(|problem| &problem.detail),
    });
    asked.state.pages.page(failed.map_or(200, Problem::status), "sign_in.html", &context)
}

/// `POST /sign-in`: a one-time code or an approver's token, and a session begins.
pub(super) async fn sign_in(asked: Asked) -> Response {
    let mut form = match forms::fields(&asked, &["code", "token", "next"]) {
        Ok(form) => form,
        Err(problem) => return sign_in_for(&asked, "/", Some(&problem)),
    };
    let next = form.remove("next").filter(|next| is_local(next)).unwrap_or_else(|| "/".to_owned());
    let code = form.remove("code").map(Secret::new);
    let token = form.remove("token").map(Secret::new);
    match entry_for(&asked.state, code, token) {
        Ok(entry) => {
            let cookie = asked.state.sessions.begin(&asked.state, &entry);
            see_other(&next, session::set_cookie(&asked.state, &cookie))
        }
        Err(problem) => {
            asked.state.observer.refused_attempt(problem.code, "sign-in");
            sign_in_for(&asked, &next, Some(&problem))
        }
    }
}

fn entry_for(state: &ControlState, code: Option<Secret>, token: Option<Secret>) -> Result<ApproverEntry, Problem> {
    let known = state.credentials.load();
    let unknown = |detail: &str| Problem::new(Code::CredentialUnknown, detail);
    match (code, token) {
        (Some(code), None) => {
            let spent = state.codes.spend(&state.keys, state.clock.boot(), &code);
            let entry = spent.and_then(|(name, token)| caller::still_known(&known, &name, &token).cloned());
            entry.ok_or_else(|| {
                unknown(
                    "This code is not known: it was used, it is older than two minutes, or it was mistyped. The \
                     command countersign console prints a new link.",
                )
            })
        }
        (None, Some(token)) => match caller::by_token(&token, &known) {
            Standing::Approver(entry) => Ok(entry),
            Standing::Agent => Err(super::routes::agent_may_not()),
            _ => Err(unknown("This is no approver's token.")),
        },
        _ => Err(unknown("Give either a one-time code or an approver's token.")),
    }
}

/// Where a sign-in may lead: the queue or a draft, never another site.
fn is_local(next: &str) -> bool {
    next == "/" || next.strip_prefix("/drafts/").is_some_and(|id| id.parse::<DraftId>().is_ok())
}

/// `POST /sign-out`
pub(super) async fn sign_out(asked: Asked) -> Response {
    match forms::checked(&asked, &[]) {
        Ok((signed_in, _)) => {
            asked.state.sessions.end(signed_in);
            see_other("/", session::clear_cookie(&asked.state))
        }
        Err(response) => *response,
    }
}

/// 303 to a page of ours.
fn see_other(to: &str, cookie: Option<HeaderValue>) -> Response {
    let mut response = reply::text("text/plain", "");
    *response.status_mut() = StatusCode::SEE_OTHER;
    if let Ok(to) = HeaderValue::try_from(to) {
        response.headers_mut().insert(header::LOCATION, to);
    }
    if let Some(cookie) = cookie {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

/// `GET /assets/console.css`
pub(super) async fn style(_asked: Asked) -> Response {
    reply::text("text/css; charset=utf-8", pages::STYLE)
}

/// `GET /assets/console.js`
pub(super) async fn script(_asked: Asked) -> Response {
    reply::text("text/javascript; charset=utf-8", pages::SCRIPT)
}

/// Whether the body is a plain form.
fn is_form(headers: &HeaderMap) -> bool {
    let essence = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()?.split(';').next());
    essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/x-www-form-urlencoded"))
}
