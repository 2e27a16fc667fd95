//! The one table of calls, and the one way through which each of them is reached.
//!
//! Owns who may make which call: a route cannot be declared without saying what it needs, and its
//! handler is reached only after that need was met. `/openapi.json` is written from the same
//! table. Must never decide about a draft.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{RawPathParams, Request};
use axum::response::Response;
use axum::routing::any;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderValue, Method, header, request};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tower_http::catch_panic::CatchPanicLayer;

use crate::base::code::Code;
use crate::draft::decision::Channel;
use crate::guard::problem::Problem;

use super::asked::{Asked, Caller, Params};
use super::caller::{self, Standing};
use super::console;
use super::framed::BodyCut;
use super::reply;
use super::state::ControlState;
use super::{drafts, events, facade, health, links, openapi, policies, tokens};

/// Longest body of a request, in bytes.
pub(super) const BODY_BYTES_MAX: usize = 64 * 1024;

/// How long a body may take to arrive.
const BODY_PATIENCE: Duration = Duration::from_secs(30);

/// How long a call may be worked on. Longer than the longest `guard.confirm_wait` (55 s).
const WORK_PATIENCE: Duration = Duration::from_secs(90);

/// What a route needs before its handler is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    /// Nothing.
    Nothing,
    /// An approver's bearer token.
    Approver,
    /// An app's bearer token.
    App,
    /// Either of them.
    Known,
    /// An agent's credential: the call proposes and decides nothing.
    Agent,
    /// An agent's credential, or an approver's bearer token: the handler tells them apart.
    Reader,
    /// A page of the console: the right `Host`; who is signed in is told to the handler.
    Page,
    /// A form of the console: `Host`, `Origin` and `Sec-Fetch-Site` are right. The handler checks
    /// the session and the form's token.
    Form,
}

/// How a handler is reached.
pub(super) type Handler = fn(Asked) -> BoxFuture<'static, Response>;

/// A call.
pub(super) struct Route {
    /// `GET` (then `HEAD` works too) or `POST`.
    pub(super) method: &'static str,
    /// The path, with `{id}` where it has a parameter.
    pub(super) path: &'static str,
    /// What it needs.
    pub(super) needs: Needs,
    /// Its name in `/openapi.json`.
    pub(super) id: &'static str,
    /// What it does, in a sentence.
    pub(super) summary: &'static str,
    /// The query parameters it takes. Pages ignore what they do not know; every other call refuses it.
    pub(super) query: &'static [&'static str],
    /// The schema of its JSON body, by name.
    pub(super) body: Option<&'static str>,
    /// What it answers: status and schema or media type.
    pub(super) answers: &'static [(u16, &'static str)],
    /// The problems of its own, beside those of every call with the same need.
    pub(super) codes: &'static [Code],
    /// Does it.
    pub(super) handler: Handler,
}

const GET: &str = "GET";
const POST: &str = "POST";

/// What can go wrong with every decision.
const DECIDING: &[Code] = &[
    Code::DraftNotFound,
    Code::ApproverNotAllowed,
    Code::DraftAlreadyDecided,
    Code::DraftExpired,
    Code::DraftIntegrityFailed,
    Code::DecisionUncertain,
    Code::CommitOutcomeUnknown,
    Code::IdempotencyKeyInvalid,
    Code::IdempotencyKeyReused,
];

macro_rules! route {
    ($method:ident $path:literal $needs:ident $id:literal $summary:literal
     query $query:expr, body $body:expr, answers $answers:expr, codes $codes:expr, $handler:path) => {
        Route {
            method: $method,
            path: $path,
            needs: Needs::$needs,
            id: $id,
            summary: $summary,
            query: $query,
            body: $body,
            answers: $answers,
            codes: $codes,
            handler: |asked| Box::pin($handler(asked)),
        }
    };
}

/// Every call.
pub(super) static ROUTES: &[Route] = &[
    route!(GET "/v1/drafts" Approver "listDrafts" "A page of drafts, newest first."
        query &["status", "tool", "owner", "risk", "cursor", "limit"], body None,
        answers &[(200, "Page")], codes &[Code::DecisionUncertain], drafts::list),
    route!(GET "/v1/drafts/{id}" Approver "showDraft" "Everything that the caller may see of one draft; notes that it was seen."
        query &[], body None, answers &[(200, "Draft")],
        codes &[Code::DraftNotFound, Code::ApproverNotAllowed, Code::DecisionUncertain], drafts::show),
    route!(GET "/v1/drafts/{id}/body" Approver "downloadBody" "The body that will be sent, as a download."
        query &[], body None, answers &[(200, "application/octet-stream")],
        codes &[Code::DraftNotFound, Code::ApproverNotAllowed, Code::DraftIntegrityFailed, Code::DecisionUncertain],
        drafts::body),
    route!(POST "/v1/drafts/{id}/confirm" Approver "confirmDraft" "Confirms a draft and releases it once."
        query &[], body Some("Confirm"), answers &[(200, "Decided"), (202, "Decided")], codes DECIDING, drafts::confirm),
    route!(POST "/v1/drafts/{id}/reject" Approver "rejectDraft" "Rejects a draft."
        query &[], body Some("Reject"), answers &[(200, "Decided")], codes DECIDING, drafts::reject),
    route!(POST "/v1/drafts/{id}/resolve" Approver "resolveDraft" "Settles a draft whose outcome cannot be verified, with a person's evidence."
        query &[], body Some("Resolve"), answers &[(200, "Draft")],
        codes &[Code::DraftNotFound, Code::ApproverNotAllowed, Code::DraftAlreadyDecided, Code::DecisionUncertain],
        drafts::resolve),
    route!(POST "/v1/drafts/{id}/again" Approver "againDraft" "Makes a new draft from one that was provably not sent."
        query &[], body Some("Empty"), answers &[(200, "Draft"), (201, "Draft")],
        codes &[Code::DraftNotFound, Code::ApproverNotAllowed, Code::DraftAlreadyDecided, Code::DecisionUncertain],
        drafts::again),
    route!(POST "/v1/confirmations" App "confirmByToken" "Confirms by confirmation token, for the owner and session that the app names."
        query &[], body Some("Confirmation"), answers &[(200, "Decided"), (202, "Decided")], codes TOKEN, tokens::confirm),
    route!(POST "/v1/rejections" App "rejectByToken" "Rejects by confirmation token."
        query &[], body Some("Rejection"), answers &[(200, "Decided")], codes TOKEN, tokens::reject),
    route!(GET "/v1/events" Approver "events" "Events after a cursor: a JSON page, or a live stream with Accept: text/event-stream."
        query &["after", "limit"], body None, answers &[(200, "Events")],
        codes &[Code::RateLimited, Code::DecisionUncertain], events::events),
    route!(GET "/v1/receipts/{id}" Approver "showReceipt" "The receipt of a draft."
        query &[], body None, answers &[(200, "Receipt")],
        codes &[Code::DraftNotFound, Code::ApproverNotAllowed, Code::DraftIntegrityFailed, Code::DecisionUncertain],
        drafts::receipt),
    route!(GET "/v1/capabilities" Known "capabilities" "The registry in force."
        query &[], body None, answers &[(200, "Capabilities")], codes &[], policies::capabilities),
    route!(GET "/v1/policies" Known "policies" "The policy set in force, its version and the last error."
        query &[], body None, answers &[(200, "Policies")], codes &[], policies::show),
    route!(POST "/v1/policies/reload" Approver "reloadPolicies" "Reads the policy files again and takes them if all of them are right."
        query &[], body Some("Empty"), answers &[(200, "PolicyReport")], codes &[], policies::reload),
    route!(POST "/v1/sign-in-links" Approver "newSignInLink" "Makes a one-time link that signs this approver in at the console."
        query &[], body Some("Empty"), answers &[(201, "SignInLink")], codes &[Code::RateLimited], links::make),
    route!(POST "/api/tasks" Agent "createTask" "Asks for a tool by its name; the call is held like one that was intercepted."
        query &[], body Some("NewTask"), answers &[(200, "TaskMade"), (202, "TaskMade")], codes CREATING, facade::create),
    route!(GET "/api/tasks/{id}" Reader "showTask" "A task with its outcome: for approvers, and for the agent that asked for it."
        query &[], body None, answers &[(200, "Task")],
        codes &[Code::DraftNotFound, Code::DraftNotYours, Code::IdentityMissing, Code::DraftIntegrityFailed, Code::DecisionUncertain],
        facade::show),
    route!(POST "/api/tasks/{id}/confirm" Approver "confirmTask" "Confirms a task and releases it once."
        query &[], body Some("TaskDecision"), answers &[(200, "TaskDecided"), (202, "TaskDecided")], codes CONFIRMING,
        facade::confirm),
    route!(POST "/api/tasks/{id}/reject" Approver "rejectTask" "Rejects a task."
        query &[], body Some("TaskDecision"), answers &[(200, "TaskDecided")], codes DECIDING, facade::reject),
    route!(GET "/healthz" Nothing "healthz" "The process is there."
        query &[], body None, answers &[(200, "Health")], codes &[], health::healthz),
    route!(GET "/readyz" Nothing "readyz" "Whether holds can be taken."
        query &[], body None, answers &[(200, "Health"), (503, "Health")], codes &[], health::readyz),
    route!(GET "/metrics" Nothing "metrics" "Metrics in Prometheus text."
        query &[], body None, answers &[(200, "text/plain")], codes &[], health::metrics),
    route!(GET "/openapi.json" Nothing "openapi" "This document."
        query &[], body None, answers &[(200, "application/json")], codes &[], openapi::serve),
    route!(GET "/" Page "consoleQueue" "The console: the queue, or the sign-in page."
        query &["show", "before"], body None, answers &[(200, "text/html")], codes &[], console::queue),
    route!(GET "/sign-in" Page "consoleSignInPage" "The sign-in page."
        query &[], body None, answers &[(200, "text/html")], codes &[], console::sign_in_page),
    route!(POST "/sign-in" Form "consoleSignIn" "Signs in by a one-time code or an approver's token."
        query &[], body None, answers &[(303, "-")], codes &[], console::sign_in),
    route!(POST "/sign-out" Form "consoleSignOut" "Ends the session."
        query &[], body None, answers &[(303, "-")], codes &[], console::sign_out),
    route!(GET "/drafts/{id}" Page "consoleDraft" "A draft: its card and everything that will be sent."
        query &["notice"], body None, answers &[(200, "text/html")], codes &[], console::draft),
    route!(GET "/drafts/{id}/body" Page "consoleBody" "The body that will be sent, as a download."
        query &[], body None, answers &[(200, "application/octet-stream")], codes &[], console::body),
    route!(POST "/drafts/{id}/confirm" Form "consoleConfirm" "The confirm form."
        query &[], body None, answers &[(303, "-")], codes &[], console::forms::confirm),
    route!(POST "/drafts/{id}/reject" Form "consoleReject" "The reject form."
        query &[], body None, answers &[(303, "-")], codes &[], console::forms::reject),
    route!(POST "/drafts/{id}/resolve" Form "consoleResolve" "The resolve form."
        query &[], body None, answers &[(303, "-")], codes &[], console::forms::resolve),
    route!(POST "/drafts/{id}/again" Form "consoleAgain" "The again form."
        query &[], body None, answers &[(303, "-")], codes &[], console::forms::again),
    route!(GET "/assets/console.css" Nothing "consoleStyle" "The console's style sheet."
        query &[], body None, answers &[(200, "text/css")], codes &[], console::style),
    route!(GET "/assets/console.js" Nothing "consoleScript" "The console's script; the console works without it."
        query &[], body None, answers &[(200, "text/javascript")], codes &[], console::script),
];

/// What can go wrong with a task that is asked for.
const CREATING: &[Code] = &[
    Code::ToolNotFound,
    Code::CapabilityPlanned,
    Code::CapabilityForbidden,
    Code::IdentityMissing,
    Code::RoleNotAllowed,
    Code::SubjectMismatch,
    Code::AdminReadonly,
    Code::ArgsInvalid,
    Code::PreviewIncomplete,
    Code::DraftRejected,
    Code::DraftIntegrityFailed,
    Code::IdempotencyKeyInvalid,
    Code::IdempotencyKeyReused,
    Code::TooManyPending,
    Code::RateLimited,
    Code::ConfirmationServiceUnavailable,
    Code::DecisionUncertain,
];

/// What can go wrong with the confirm of a task.
const CONFIRMING: &[Code] = &[
    Code::DraftNotFound,
    Code::ApproverNotAllowed,
    Code::DraftAlreadyDecided,
    Code::DraftExpired,
    Code::DraftIntegrityFailed,
    Code::DecisionUncertain,
    Code::ExecutionFailed,
    Code::CommitOutcomeUnknown,
    Code::IdempotencyKeyInvalid,
    Code::IdempotencyKeyReused,
];

/// What can go wrong with a decision by token.
const TOKEN: &[Code] = &[
    Code::IdentityMissing,
    Code::DraftNotYours,
    Code::ApproverNotAllowed,
    Code::DraftNotFound,
    Code::DraftAlreadyDecided,
    Code::DraftExpired,
    Code::DraftIntegrityFailed,
    Code::DecisionUncertain,
    Code::CommitOutcomeUnknown,
    Code::IdempotencyKeyInvalid,
    Code::IdempotencyKeyReused,
];

/// The routes of one path.
type Entries = Arc<[&'static Route]>;

/// Builds the router from [`ROUTES`].
pub fn router(state: &Arc<ControlState>) -> Router {
    let mut router = Router::new();
    let mut paths: Vec<&str> = ROUTES.iter().map(|route| route.path).collect();
    paths.sort_unstable();
    paths.dedup();
    for path in paths {
        let entries: Entries = ROUTES.iter().filter(|route| route.path == path).collect();
        let state = Arc::clone(state);
        let service = move |params: Result<RawPathParams, RawPathParamsRejection>, request: Request| {
            dispatch(Arc::clone(&state), Arc::clone(&entries), params.ok(), request)
        };
        router = router.route(path, any(service));
    }
    let lost = Arc::clone(state);
    router
        .fallback(move |request: Request| nowhere(Arc::clone(&lost), request))
        .layer(CatchPanicLayer::custom(|_| reply::from_problem(&broken())))
}

/// Wraps the table's handler: need, query, body, work, and the headers of every answer.
async fn dispatch(
    state: Arc<ControlState>,
    entries: Entries,
    params: Option<RawPathParams>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let head = parts.method == Method::HEAD;
    let asked_for = if head { GET } else { parts.method.as_str() };
    let Some(route) = entries.iter().find(|route| route.method == asked_for) else {
        return refuse_method(&state, &entries, &parts);
    };
    let page = matches!(route.needs, Needs::Page | Needs::Form);
    let id = params.and_then(|params| params.iter().next().map(|(_, value)| value.to_owned())).unwrap_or_default();
    let response = match answer(Arc::clone(&state), route, parts, body, id).await {
        Ok(response) => response,
        Err(problem) if page => console::refused(&state, &problem),
        Err(problem) => reply::from_problem(&problem),
    };
    if head { without_body(response) } else { response }
}

async fn answer(
    state: Arc<ControlState>,
    route: &'static Route,
    parts: request::Parts,
    body: Body,
    id: String,
) -> Result<Response, Problem> {
    let caller = admit(&state, route.needs, &parts)?;
    if !matches!(route.needs, Needs::Page | Needs::Form) {
        Params::read(&parts.uri)?.only(route.query)?;
    }
    let body = if route.method == POST { read_body(&parts, body).await? } else { Bytes::new() };
    let work = (route.handler)(Asked { state, parts, id, caller, body });
    tokio::time::timeout(WORK_PATIENCE, work).await.map_err(|_| {
        tracing::error!(call = route.id, "a control call took longer than its patience");
        Problem::new(
            Code::DecisionUncertain,
            "The guard took too long. Look at the draft, then ask again with the same key.",
        )
    })
}

/// Lets in whom the route needs, or says who may not.
fn admit(state: &ControlState, needs: Needs, parts: &request::Parts) -> Result<Caller, Problem> {
    let known = state.credentials.load();
    let refuse = |problem: Problem, who: &str| {
        state.observer.refused_attempt(problem.code, who);
        Err(problem)
    };
    match needs {
        Needs::Nothing => return Ok(Caller::Nobody),
        Needs::Page | Needs::Form => {
            if caller::carries_agent_token(&parts.headers, &known) {
                return refuse(agent_may_not(), "agent");
            }
            if needs == Needs::Form
                && let Err(why) = state.public.sent_by_our_page(&parts.headers)
            {
                return refuse(csrf(why), "console");
            }
            if !state.public.answers_to(&parts.headers) {
                return refuse(csrf("The Host header names neither public_url nor this machine."), "console");
            }
            return Ok(console::session::signed_in(state, &parts.headers).map_or(Caller::Nobody, Caller::SignedIn));
        }
        Needs::Approver | Needs::App | Needs::Known | Needs::Agent | Needs::Reader => {}
    }
    match (caller::recognise(&parts.headers, &known), needs) {
        (Standing::Agent, Needs::Agent | Needs::Reader) => match state.agents.admit(&parts.headers) {
            Ok(agent) => Ok(Caller::Agent(agent)),
            Err(problem) => refuse(problem, "agent"),
        },
        (Standing::Agent, _) => refuse(agent_may_not(), "agent"),
        (Standing::Absent, Needs::Agent) => Err(agent_unknown()),
        (Standing::Absent, _) => Err(credential_unknown()),
        (Standing::Unknown, Needs::Agent) => refuse(agent_unknown(), "unknown"),
        (Standing::Unknown, _) => refuse(credential_unknown(), "unknown"),
        (Standing::Approver(entry), Needs::Approver | Needs::Known | Needs::Reader) => Ok(Caller::Approver {
            who: caller::approver(&entry, "bearer", Channel::Api),
            token_sha256: entry.token_sha256,
        }),
        (Standing::App(entry), Needs::App | Needs::Known) => Ok(Caller::App(entry)),
        (Standing::Approver(entry), Needs::Agent) => {
            let detail = "A task is asked for with an agent's credential. Approvers decide and never propose.";
            refuse(Problem::new(Code::ApproverNotAllowed, detail), entry.name.as_str())
        }
        (Standing::Approver(entry), _) => {
            let detail = "This call is for an app that acts for its owners. Approvers confirm a draft by its id.";
            refuse(Problem::new(Code::ApproverNotAllowed, detail), entry.name.as_str())
        }
        (Standing::App(entry), _) => {
            let detail = "This call is not for apps. An app decides by confirmation token at /v1/confirmations.";
            refuse(Problem::new(Code::ApproverNotAllowed, detail), entry.name.as_str())
        }
    }
}

async fn read_body(parts: &request::Parts, body: Body) -> Result<Bytes, Problem> {
    let too_large = || {
        let detail = format!("A control request's body may have {BODY_BYTES_MAX} bytes. Nothing was changed.");
        Problem::new(Code::BodyTooLarge, detail)
    };
    let declared =
        parts.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|length| length > BODY_BYTES_MAX as u64) {
        return Err(too_large());
    }
    match tokio::time::timeout(BODY_PATIENCE, Limited::new(body, BODY_BYTES_MAX).collect()).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(match parts.extensions.get::<BodyCut>().and_then(BodyCut::why) {
            Some(refusal) => refusal.clone().into(),
            None => Problem::new(Code::BodyMalformed, "The body did not arrive whole. Nothing was changed."),
        }),
        Err(_) => Err(Problem::new(Code::RequestTimeout, "The body did not arrive in time. Nothing was changed.")),
    }
}

fn refuse_method(state: &ControlState, entries: &Entries, parts: &request::Parts) -> Response {
    if entries.iter().all(|route| route.needs != Needs::Nothing)
        && let Some(response) = refuse_agent(state, parts)
    {
        return response;
    }
    let mut allowed: Vec<&str> = Vec::new();
    for route in entries.iter() {
        allowed.push(route.method);
        if route.method == GET {
            allowed.push("HEAD");
        }
    }
    let allow = allowed.join(", ");
    let detail = format!("This path takes {allow}. Nothing was changed.");
    let mut response = reply::from_problem(&Problem::new(Code::MethodRefused, detail));
    if let Ok(value) = HeaderValue::try_from(allow) {
        response.headers_mut().insert(header::ALLOW, value);
    }
    response
}

async fn nowhere(state: Arc<ControlState>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let response = refuse_agent(&state, &parts).unwrap_or_else(|| {
        let detail = "The control listener has no such path. GET /openapi.json lists every call.";
        reply::from_problem(&Problem::new(Code::RouteNotFound, detail))
    });
    if parts.method == Method::HEAD { without_body(response) } else { response }
}

fn refuse_agent(state: &ControlState, parts: &request::Parts) -> Option<Response> {
    caller::carries_agent_token(&parts.headers, &state.credentials.load()).then(|| {
        state.observer.refused_attempt(Code::AgentMayNotDecide, "agent");
        reply::from_problem(&agent_may_not())
    })
}

fn without_body(response: Response) -> Response {
    let (mut parts, body) = response.into_parts();
    if let Some(length) = body.size_hint().exact() {
        parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    Response::from_parts(parts, Body::empty())
}

/// 401.
pub(super) fn credential_unknown() -> Problem {
    let detail = "Send an approver's or an app's token as Authorization: Bearer. Nothing was changed.";
    Problem::new(Code::CredentialUnknown, detail)
}

/// 401 where an agent is expected.
pub(super) fn agent_unknown() -> Problem {
    let detail = "Send the credential of a known agent, and no other, in Countersign-Agent or as Authorization: Bearer. \
                  Nothing was held. Where `identity.agents` of the configuration names none, nobody can ask here.";
    Problem::new(Code::CredentialUnknown, detail)
}

/// 403 for an agent.
pub(super) fn agent_may_not() -> Problem {
    let detail = "This is an agent's credential. Agents propose and never decide; a person has to confirm or reject.";
    Problem::new(Code::AgentMayNotDecide, detail)
}

/// 403 for a form that came from elsewhere.
pub(super) fn csrf(why: &str) -> Problem {
    Problem::new(Code::CsrfFailed, format!("{why} Nothing was changed."))
}

/// A handler that panicked: whether it did anything is not known, and the answer says so.
fn broken() -> Problem {
    let detail =
        "The guard made a mistake of its own; its log says which. Look at the draft, then ask again with the same key.";
    Problem::new(Code::DecisionUncertain, detail)
}
