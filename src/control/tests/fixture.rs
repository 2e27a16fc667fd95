//! A desk that notes every question, drafts to show, and a browser that keeps its cookie.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, Request};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tower::ServiceExt as _;

use crate::agent::identity::{AgentEntry, IdentityRules, Source};
use crate::base::chance::SeededChance;
use crate::base::code::Code;
use crate::base::digest::Digest;
use crate::base::id::{DraftId, Initiator, Principal, Tenant};
use crate::base::secret::Secret;
use crate::base::time::{ManualClock, Timestamp};
use crate::control::credentials::{AppEntry, ApproverEntry, Credentials};
use crate::control::desk::{Confirm, Desk};
use crate::control::facade::{Agents, Tasks};
use crate::control::routes::router;
use crate::control::{ControlParts, ControlState, NotTaken, PolicyReport, PolicyStatus};
use crate::draft::decision::{Channel, Decider, DeciderKind, Refused, Vote};
use crate::draft::keys::KeySet;
use crate::draft::outcome::{Evidence, Failure};
use crate::draft::receipt::{Judged, Receipt, ReceiptStatus};
use crate::draft::record::{Detail, Identity, Preview, Risk};
use crate::draft::state::{Phase, Status, Verdict};
use crate::guard::Proposal;
use crate::guard::answer::Answer;
use crate::guard::observer::Observer;
use crate::guard::problem::Problem;
use crate::guard::task::{Proposed, Task, TaskDecided, TaskDecision};
use crate::guard::views::{DraftLine, DraftView, Page, RequestView};
use crate::guard::who::{AppCaller, Approver, Rights};
use crate::policy::model::PolicySet;
use crate::store::contract::Filter;
use crate::store::cursor::{Cursor, Page as EventPage};
use crate::store::row::Event;

pub(super) const PERSON: &str = "ap_person";
pub(super) const BACKEND: &str = "app_backend";
pub(super) const MUTE_BACKEND: &str = "app_mute";
pub(super) const ROBOT: &str = "ag_robot";
pub(super) const SECOND_ROBOT: &str = "ag_second";
/// An agent whose runtime gets confirmation tokens.
pub(super) const RUNTIME: &str = "ag_runtime";
pub(super) const ID: &str = "dr_5_01J0000000000000000000000A";

pub(super) fn start() -> Timestamp {
    Timestamp::from_millis(1_780_000_000_000)
}

pub(super) fn hash() -> Digest {
    Digest::of(b"what was shown")
}

/// What the desk was asked.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Question {
    List(Vec<Status>, Option<String>, Option<Digest>, Option<Risk>, Option<DraftId>, usize),
    Show(DraftId),
    Body(DraftId),
    Confirm(Approver, DraftId, Confirm),
    Reject(Approver, DraftId, String, Option<String>),
    Resolve(DraftId, Verdict, String),
    Again(DraftId),
    ConfirmByToken(AppCaller, String, Option<String>, Option<Duration>),
    RejectByToken(AppCaller, String, String, Option<String>),
    Events(Cursor, usize),
}

/// Notes questions and gives prepared answers.
pub(super) struct NotingDesk {
    pub(super) asked: Mutex<Vec<Question>>,
    pub(super) drafts: Mutex<BTreeMap<DraftId, DraftView>>,
    /// The next answer to a decision; else 200.
    pub(super) answer: Mutex<Option<Answer>>,
    pub(super) events: Mutex<Vec<Event>>,
    pub(super) hints: broadcast::Sender<DraftId>,
    pub(super) not_ready: Mutex<Option<String>>,
    pub(super) readiness_asked: Mutex<u32>,
    pub(super) panics: Mutex<bool>,
    pub(super) policies: Arc<PolicySet>,
}

impl NotingDesk {
    fn note(&self, question: Question) {
        self.asked.lock().unwrap().push(question);
    }

    fn decided(&self) -> Answer {
        let prepared = self.answer.lock().unwrap().take();
        prepared
            .unwrap_or_else(|| Answer::json(200, &json!({"draft_id": ID, "status": "succeeded", "replayed": false})))
    }
}

#[async_trait]
impl Desk for NotingDesk {
    fn policies(&self) -> Arc<PolicySet> {
        Arc::clone(&self.policies)
    }

    fn hints(&self) -> broadcast::Receiver<DraftId> {
        self.hints.subscribe()
    }

    async fn ready(&self) -> Result<(), String> {
        *self.readiness_asked.lock().unwrap() += 1;
        self.not_ready.lock().unwrap().clone().map_or(Ok(()), Err)
    }

    async fn list(&self, _who: &Approver, filter: Filter) -> Result<Page, Problem> {
        let tool = filter.tool.map(|tool| tool.to_string());
        let statuses = filter.statuses.clone();
        self.note(Question::List(filter.statuses, tool, filter.owner_hash, filter.risk, filter.before, filter.limit));
        let drafts = self.drafts.lock().unwrap();
        let fits = |line: &&DraftLine| statuses.is_empty() || statuses.contains(&line.status);
        Ok(Page { drafts: drafts.values().map(|view| &view.line).filter(fits).cloned().collect(), next: None })
    }

    async fn show(&self, _who: &Approver, id: &DraftId) -> Result<DraftView, Problem> {
        assert!(!*self.panics.lock().unwrap(), "a desk that breaks");
        self.note(Question::Show(id.clone()));
        let found = self.drafts.lock().unwrap().get(id).cloned();
        found.ok_or_else(|| Problem::new(Code::DraftNotFound, "No draft has this id."))
    }

    async fn body(&self, _who: &Approver, id: &DraftId) -> Result<(String, Vec<u8>), Problem> {
        self.note(Question::Body(id.clone()));
        Ok(("text/html; charset=utf-8".to_owned(), b"<script>alert(1)</script>".to_vec()))
    }

    async fn confirm(&self, who: &Approver, id: &DraftId, confirm: Confirm) -> Answer {
        self.note(Question::Confirm(who.clone(), id.clone(), confirm));
        self.decided()
    }

    async fn reject(&self, who: &Approver, id: &DraftId, reason: String, decision_key: Option<String>) -> Answer {
        self.note(Question::Reject(who.clone(), id.clone(), reason, decision_key));
        self.decided()
    }

    async fn resolve(&self, _who: &Approver, id: &DraftId, verdict: Verdict, evidence: String) -> Answer {
        self.note(Question::Resolve(id.clone(), verdict, evidence));
        self.decided()
    }

    async fn again(&self, _who: &Approver, id: &DraftId) -> Answer {
        self.note(Question::Again(id.clone()));
        self.decided()
    }

    async fn confirm_by_token(
        &self,
        app: &AppCaller,
        token: &Secret,
        decision_key: Option<String>,
        wait: Option<Duration>,
    ) -> Answer {
        self.note(Question::ConfirmByToken(app.clone(), token.reveal().to_owned(), decision_key, wait));
        self.decided()
    }

    async fn reject_by_token(
        &self,
        app: &AppCaller,
        token: &Secret,
        reason: String,
        decision_key: Option<String>,
    ) -> Answer {
        self.note(Question::RejectByToken(app.clone(), token.reveal().to_owned(), reason, decision_key));
        self.decided()
    }

    async fn events(&self, _who: &Approver, after: &Cursor, limit: usize) -> Result<EventPage, Problem> {
        self.note(Question::Events(after.clone(), limit));
        let events = self.events.lock().unwrap();
        let later = events.iter().filter(|event| event.seq > after.one());
        Ok(EventPage { from: Cursor::One(after.one()), events: later.take(limit).cloned().collect() })
    }
}

/// No task is there.
pub(super) struct NoTasks;

fn no_task() -> Problem {
    Problem::new(Code::DraftNotFound, "No task has this id.")
}

#[async_trait]
impl Tasks for NoTasks {
    async fn propose(&self, _: Proposal<'_>) -> Result<Proposed, Problem> {
        Err(no_task())
    }

    async fn own(&self, _: &Identity, _: &DraftId, _: bool) -> Result<Task, Problem> {
        Err(no_task())
    }

    async fn show(&self, _: &Approver, _: &DraftId) -> Result<Task, Problem> {
        Err(no_task())
    }

    async fn confirm(&self, _: &Approver, _: &DraftId, _: TaskDecision) -> Result<TaskDecided, Problem> {
        Err(no_task())
    }

    async fn reject(&self, _: &Approver, _: &DraftId, _: TaskDecision) -> Result<TaskDecided, Problem> {
        Err(no_task())
    }
}

/// The agents of [`credentials`], whose owner and session stand in headers.
pub(super) fn agents() -> Agents {
    let agent = |name: &str, token: &str| AgentEntry {
        name: Initiator::new(name).unwrap(),
        token_sha256: Digest::of(token.as_bytes()),
        tenant: Tenant::new("default").unwrap(),
        deliver_token: name == "runtime",
    };
    let header = |name: &'static str| Some(Source::Header(http::HeaderName::from_static(name)));
    let rules = IdentityRules {
        agents: vec![agent("bot", ROBOT), agent("second", SECOND_ROBOT), agent("runtime", RUNTIME)],
        owner: header("x-user-id"),
        session: header("x-session-id"),
        ..IdentityRules::local()
    };
    let foreign = [PERSON, BACKEND, MUTE_BACKEND].map(|token| Digest::of(token.as_bytes())).to_vec();
    Agents::new(rules, Arc::new(ArcSwap::from_pointee(foreign)), 1 << 20)
}

/// Notes refused attempts.
#[derive(Default)]
pub(super) struct NotingObserver(pub(super) Mutex<Vec<(Code, String)>>);

impl Observer for NotingObserver {
    fn refused_attempt(&self, code: Code, who: &str) {
        self.0.lock().unwrap().push((code, who.to_owned()));
    }
}

struct Files(Mutex<Result<(), NotTaken>>);

impl PolicyStatus for Files {
    fn report(&self) -> PolicyReport {
        let last_error = self.0.lock().unwrap().clone().err().map(|why| format!("{why:?}"));
        PolicyReport {
            version: "v1".to_owned(),
            loaded_at: start(),
            files: vec!["policies/a.yaml".to_owned()],
            last_error,
        }
    }

    fn reload(&self) -> Result<PolicyReport, NotTaken> {
        let outcome = self.0.lock().unwrap().clone();
        outcome.map(|()| self.report())
    }
}

/// Nobody loads files.
pub(super) struct Silent;

impl PolicyStatus for Silent {
    fn report(&self) -> PolicyReport {
        PolicyReport { version: String::new(), loaded_at: start(), files: Vec::new(), last_error: None }
    }

    fn reload(&self) -> Result<PolicyReport, NotTaken> {
        Ok(self.report())
    }
}

/// A control listener without a socket.
pub(super) struct Bench {
    pub(super) state: Arc<ControlState>,
    pub(super) desk: Arc<NotingDesk>,
    pub(super) observer: Arc<NotingObserver>,
    pub(super) clock: Arc<ManualClock>,
    pub(super) credentials: Arc<ArcSwap<Credentials>>,
}

pub(super) fn credentials() -> Credentials {
    let tenant = || Tenant::new("default").unwrap();
    let app = |name: &str, token: &str, act_for_owners| AppEntry {
        name: Principal::new(name).unwrap(),
        token_sha256: Digest::of(token.as_bytes()),
        tenant: tenant(),
        act_for_owners,
    };
    Credentials {
        approvers: vec![ApproverEntry {
            name: Principal::new("alice").unwrap(),
            token_sha256: Digest::of(PERSON.as_bytes()),
            roles: vec!["lead".to_owned()],
            tenant: tenant(),
            rights: Some(Rights::all()),
        }],
        apps: vec![app("web", BACKEND, true), app("mute", MUTE_BACKEND, false)],
        agent_tokens: [ROBOT, SECOND_ROBOT, RUNTIME].map(|token| Digest::of(token.as_bytes())).to_vec(),
    }
}

pub(super) fn bench() -> Bench {
    bench_at("http://127.0.0.1:7071", Ok(()))
}

pub(super) fn bench_at(public_url: &str, reload: Result<(), NotTaken>) -> Bench {
    let desk = Arc::new(NotingDesk {
        asked: Mutex::default(),
        drafts: Mutex::new([view(Status::Pending)].map(|view| (view.line.draft_id.clone(), view)).into()),
        answer: Mutex::default(),
        events: Mutex::default(),
        hints: broadcast::Sender::new(16),
        not_ready: Mutex::default(),
        readiness_asked: Mutex::default(),
        panics: Mutex::default(),
        policies: Arc::new(PolicySet { version: "v1".to_owned(), services: Vec::new() }),
    });
    let observer = Arc::new(NotingObserver::default());
    let clock = Arc::new(ManualClock::new(start()));
    let chance = Arc::new(SeededChance::new(3));
    let credentials = Arc::new(ArcSwap::from_pointee(credentials()));
    let state = ControlState::new(ControlParts {
        desk: desk.clone(),
        tasks: Arc::new(NoTasks),
        agents: agents(),
        credentials: credentials.clone(),
        keys: KeySet::ephemeral(chance.as_ref()),
        metrics: Arc::new(|| Box::pin(async { "countersign_build_info 1\n".to_owned() })),
        policy_status: Arc::new(Files(Mutex::new(reload))),
        observer: observer.clone(),
        clock: clock.clone(),
        chance,
        public_url: public_url.to_owned(),
    })
    .unwrap();
    Bench { state, desk, observer, clock, credentials }
}

/// An answer, read whole.
#[derive(Debug)]
pub(super) struct Got {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) text: String,
}

impl Got {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(super) fn code(&self) -> String {
        assert_eq!(self.header("content-type"), "application/problem+json", "{}", self.text);
        self.json()["code"].as_str().unwrap().to_owned()
    }
}

pub(super) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path);
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        request = request.header("host", "127.0.0.1:7071");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(body.into()).unwrap()
}

pub(super) async fn read(response: Response) -> Got {
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    Got { status: parts.status.as_u16(), headers: parts.headers, text }
}

impl Bench {
    pub(super) async fn send(&self, request: Request<Body>) -> Got {
        read(router(&self.state).oneshot(request).await.unwrap()).await
    }

    /// A GET by the approver.
    pub(super) async fn get(&self, path: &str) -> Got {
        self.send(request("GET", path, &[("authorization", &bearer(PERSON))], Body::empty())).await
    }

    /// A POST of JSON with a token.
    pub(super) async fn post(&self, token: &str, path: &str, more: &[(&str, &str)], body: &str) -> Got {
        let bearer = bearer(token);
        let mut headers = vec![("authorization", bearer.as_str()), ("content-type", "application/json")];
        headers.extend(more);
        self.send(request("POST", path, &headers, body.to_owned())).await
    }

    pub(super) fn asked(&self) -> Vec<Question> {
        std::mem::take(&mut *self.desk.asked.lock().unwrap())
    }

    pub(super) fn refusals(&self) -> Vec<(Code, String)> {
        std::mem::take(&mut *self.observer.0.lock().unwrap())
    }

    pub(super) fn show(&self, view: DraftView) {
        self.desk.drafts.lock().unwrap().insert(view.line.draft_id.clone(), view);
    }

    pub(super) fn answer_next(&self, answer: Answer) {
        *self.desk.answer.lock().unwrap() = Some(answer);
    }
}

pub(super) fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

pub(super) fn id() -> DraftId {
    ID.parse().unwrap()
}

pub(super) fn decider(kind: DeciderKind, name: &str) -> Decider {
    Decider {
        kind,
        id: Principal::new(name).unwrap(),
        auth_method: "session".to_owned(),
        channel: Channel::Console,
        at: start(),
    }
}

fn preview() -> Preview {
    Preview {
        title: "Create a to-do".to_owned(),
        target: "Buy milk".to_owned(),
        impact: "A new to-do is added to the list.".to_owned(),
        details: vec![Detail { key: "priority".to_owned(), value: "1".to_owned() }],
    }
}

fn receipt(status: ReceiptStatus, upstream_status: Option<u16>) -> Receipt {
    Receipt {
        id: id().receipt_id(),
        action_id: id(),
        service: "notes".to_owned().try_into().unwrap(),
        tool: "create_todo".to_owned().try_into().unwrap(),
        capability: "todo.create".to_owned().try_into().unwrap(),
        status,
        summary: "The to-do Buy milk was created.".to_owned(),
        judged: Judged::Status,
        partial: false,
        accepted: false,
        recovered: false,
        superseded: false,
        args_hash: hash(),
        sent_digest: Some(Digest::of(b"sent")),
        policy_version: "v1".to_owned(),
        decided_by: vec![decider(DeciderKind::Approver, "alice")],
        effect_key: Some("cs1-00".to_owned()),
        attempts: 1,
        upstream_status,
        response_digest: Some(Digest::of(b"answer")),
        truncated: false,
        sent_at: Some(start()),
        settled_at: start(),
    }
}

/// A draft in a status, with everything that goes with it.
pub(super) fn view(status: Status) -> DraftView {
    let person = || decider(DeciderKind::Approver, "alice");
    let vote = Vote { decider: person(), epoch: 1, comment: Some("looks right".to_owned()), mac: Digest::of(b"mac") };
    let claimed = matches!(
        status,
        Status::Running | Status::Verifying | Status::Succeeded | Status::Failed | Status::Unverifiable
    );
    let refused = |by: Option<Decider>, reason: &str| Refused { by, reason: reason.to_owned(), at: start(), mac: None };
    let evidence = Evidence {
        at: start(),
        source: "attempt".to_owned(),
        text: "reset before the response head".to_owned(),
        upstream_status: None,
    };
    DraftView {
        line: DraftLine {
            draft_id: id(),
            status,
            phase: (status == Status::Running).then_some(Phase::Sending),
            service: "notes".to_owned().try_into().unwrap(),
            tool: "create_todo".to_owned().try_into().unwrap(),
            capability: "todo.create".to_owned().try_into().unwrap(),
            risk: Risk::Low,
            args_hash: hash(),
            preview: Some(preview()),
            owner: Some("u1".to_owned()),
            initiator: "assistant".to_owned(),
            created_at: start() - Duration::from_secs(60),
            expires_at: start() + Duration::from_secs(540),
            seen: false,
            intact: true,
            possible_duplicate_of: None,
        },
        args: json!({"title": "Buy milk", "priority": 1, "done": false, "tags": ["home"], "due": null}),
        request: Some(RequestView {
            method: "POST".to_owned(),
            target: "https://notes.example/todos".to_owned(),
            headers: vec![("content-type".to_owned(), "application/json".to_owned())],
            credentials: vec!["authorization".to_owned()],
            kind: "json".to_owned(),
            content_type: "application/json".to_owned(),
            length: 35,
            sha256: Digest::of(b"body"),
            body: Some("{\"title\":\"Buy milk\",\"priority\":1}".to_owned()),
        }),
        session: Some("s1".to_owned()),
        role: None,
        subject: None,
        admin_context: None,
        admin_mode: None,
        message_id: None,
        origin_request_id: Some("rq-1".to_owned()),
        policy_version: Some("v1".to_owned()),
        votes: if claimed { vec![vote] } else { Vec::new() },
        refused: match status {
            Status::Rejected => Some(refused(Some(person()), "not today")),
            Status::Expired => Some(refused(None, "EXPIRED")),
            Status::Withdrawn => Some(refused(None, "WITHDRAWN")),
            _ => None,
        },
        failure: (status == Status::Failed).then_some(Failure::Refused),
        again: false,
        receipt: match status {
            Status::Succeeded => Some(receipt(ReceiptStatus::Succeeded, Some(201))),
            Status::Failed => Some(receipt(ReceiptStatus::Failed, Some(422))),
            _ => None,
        },
        evidence: if matches!(status, Status::Verifying | Status::Unverifiable) { vec![evidence] } else { Vec::new() },
        claimed_at: claimed.then(start),
        sent_at: claimed.then(start),
        ended_at: status.is_terminal().then(start),
        collected_at: None,
    }
}

pub(super) fn event(seq: u64, kind: &str) -> Event {
    Event {
        seq,
        at: start(),
        kind: kind.to_owned(),
        draft_id: id(),
        tenant: Tenant::new("default").unwrap(),
        owner_hash: Digest::of(b"owner"),
        tool: "create_todo".to_owned().try_into().unwrap(),
        status: "pending".to_owned(),
        epoch: 0,
        args_hash: hash(),
        by: None,
        reason: None,
    }
}
