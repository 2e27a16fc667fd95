//! Those who talk to the guard: agents, approvers, apps.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::wire::{Request, Response, exchange};

/// A held call, as its agent was told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Draft {
    pub(crate) id: String,
    pub(crate) args_hash: String,
}

impl Draft {
    /// Reads the answer to a held call.
    #[track_caller]
    pub(crate) fn from(response: &Response) -> Self {
        let body = response.json();
        let text = |member: &str| body[member].as_str().unwrap_or_else(|| panic!("no {member}: {body}")).to_owned();
        Self { id: text("draft_id"), args_hash: text("args_hash") }
    }

    /// The draft's status path on the agent's listener.
    pub(crate) fn status_path(&self) -> String {
        format!("/.countersign/drafts/{}", self.id)
    }

    /// The path of the draft's stored result on the agent's listener.
    pub(crate) fn result_path(&self) -> String {
        format!("/.countersign/drafts/{}/result", self.id)
    }
}

/// An agent, on the agent's listener.
#[derive(Debug, Clone)]
pub(crate) struct Agent {
    address: SocketAddr,
    headers: Vec<(String, String)>,
}

impl Agent {
    pub(super) fn new(address: SocketAddr, token: Option<&str>) -> Self {
        let agent = Self { address, headers: Vec::new() };
        match token {
            Some(token) => agent.with("Countersign-Agent", token).for_owner("u-17").in_session("s-1"),
            None => agent,
        }
    }

    /// Sends this header with every request, instead of what it had under that name.
    pub(crate) fn with(&self, name: &str, value: &str) -> Self {
        let mut agent = self.without(name);
        agent.headers.push((name.to_owned(), value.to_owned()));
        agent
    }

    pub(crate) fn without(&self, name: &str) -> Self {
        let mut agent = self.clone();
        agent.headers.retain(|(have, _)| !have.eq_ignore_ascii_case(name));
        agent
    }

    pub(crate) fn for_owner(&self, owner: &str) -> Self {
        self.with("X-User-Id", owner)
    }

    pub(crate) fn in_session(&self, session: &str) -> Self {
        self.with("X-Session-Id", session)
    }

    /// Sends its calls with this `Idempotency-Key`.
    pub(crate) fn keyed(&self, key: &str) -> Self {
        self.with("Idempotency-Key", key)
    }

    /// The request with this agent's own headers on it.
    pub(crate) fn dress(&self, request: Request) -> Request {
        self.headers.iter().fold(request, |request, (name, value)| request.header(name, value))
    }

    /// The agent's own headers as raw lines, for hand-made requests.
    pub(crate) fn header_lines(&self) -> String {
        self.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect()
    }

    #[track_caller]
    pub(crate) fn send(&self, request: Request) -> Response {
        exchange(self.address, &self.dress(request))
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Response {
        self.send(Request::get(path))
    }

    #[track_caller]
    pub(crate) fn post(&self, path: &str, body: &Value) -> Response {
        self.send(Request::post(path).json(body))
    }

    /// Posts and expects the call to be held.
    #[track_caller]
    pub(crate) fn hold(&self, path: &str, body: &Value) -> Draft {
        Draft::from(&self.post(path, body).must_be(202))
    }

    /// Holds the usual task.
    #[track_caller]
    pub(crate) fn hold_task(&self, title: &str) -> Draft {
        self.hold("/tasks", &json!({ "title": title }))
    }

    #[track_caller]
    pub(crate) fn status(&self, draft: &Draft) -> Response {
        self.get(&draft.status_path())
    }

    #[track_caller]
    pub(crate) fn result(&self, draft: &Draft) -> Response {
        self.get(&draft.result_path())
    }

    #[track_caller]
    pub(crate) fn withdraw(&self, draft: &Draft) -> Response {
        self.send(Request::new("DELETE", &draft.status_path()))
    }
}

/// An approver with a bearer token, on the control listener.
#[derive(Debug, Clone)]
pub(crate) struct Approver {
    address: SocketAddr,
    token: String,
}

impl Approver {
    pub(super) fn new(address: SocketAddr, token: &str) -> Self {
        Self { address, token: token.to_owned() }
    }

    pub(crate) fn dress(&self, request: Request) -> Request {
        request.header("Authorization", &format!("Bearer {}", self.token))
    }

    #[track_caller]
    pub(crate) fn send(&self, request: Request) -> Response {
        exchange(self.address, &self.dress(request))
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Response {
        self.send(Request::get(path))
    }

    #[track_caller]
    pub(crate) fn post(&self, path: &str, body: &Value) -> Response {
        self.send(Request::post(path).json(body))
    }

    pub(crate) fn show_request(&self, id: &str) -> Request {
        self.dress(Request::get(&format!("/v1/drafts/{id}")))
    }

    #[track_caller]
    pub(crate) fn show(&self, id: &str) -> Response {
        exchange(self.address, &self.show_request(id))
    }

    /// The drafts of `GET /v1/drafts` with this query.
    #[track_caller]
    pub(crate) fn list(&self, query: &str) -> Vec<Value> {
        let body = self.get(&format!("/v1/drafts?{query}")).must_be(200).json();
        body["drafts"].as_array().unwrap_or_else(|| panic!("no drafts: {body}")).clone()
    }

    pub(crate) fn confirm_request(draft: &Draft) -> Request {
        Request::post(&format!("/v1/drafts/{}/confirm", draft.id)).json(&json!({ "args_hash": draft.args_hash }))
    }

    #[track_caller]
    pub(crate) fn confirm(&self, draft: &Draft) -> Response {
        self.send(Self::confirm_request(draft))
    }

    /// Confirms without waiting for the end of the release.
    #[track_caller]
    pub(crate) fn confirm_at_once(&self, draft: &Draft) -> Response {
        self.send(Self::confirm_request(draft).header("Prefer", "respond-async"))
    }

    /// Confirms and expects a success receipt.
    #[track_caller]
    pub(crate) fn confirm_fully(&self, draft: &Draft) -> Value {
        let answer = self.confirm(draft).must_be(200).json();
        assert_eq!(answer["status"], "succeeded", "{answer}");
        answer
    }

    #[track_caller]
    pub(crate) fn reject(&self, draft: &Draft, reason: &str) -> Response {
        self.post(&format!("/v1/drafts/{}/reject", draft.id), &json!({ "reason": reason }))
    }

    #[track_caller]
    pub(crate) fn resolve(&self, draft: &Draft, outcome: &str, evidence: &str) -> Response {
        self.post(&format!("/v1/drafts/{}/resolve", draft.id), &json!({ "outcome": outcome, "evidence": evidence }))
    }

    #[track_caller]
    pub(crate) fn again(&self, draft: &Draft) -> Response {
        self.post(&format!("/v1/drafts/{}/again", draft.id), &json!({}))
    }
}

/// A product's own backend, which passes its signed-in owners' decisions on.
#[derive(Debug, Clone)]
pub(crate) struct App {
    address: SocketAddr,
    token: String,
    owner: String,
    session: String,
}

impl App {
    pub(super) fn new(address: SocketAddr, token: &str) -> Self {
        Self { address, token: token.to_owned(), owner: "u-17".to_owned(), session: "s-1".to_owned() }
    }

    pub(crate) fn with_token(&self, token: &str) -> Self {
        Self { token: token.to_owned(), ..self.clone() }
    }

    pub(crate) fn for_owner(&self, owner: &str) -> Self {
        Self { owner: owner.to_owned(), ..self.clone() }
    }

    pub(crate) fn in_session(&self, session: &str) -> Self {
        Self { session: session.to_owned(), ..self.clone() }
    }

    fn post(&self, path: &str, body: &Value) -> Response {
        let request = Request::post(path)
            .header("Authorization", &format!("Bearer {}", self.token))
            .header("Countersign-Owner", &self.owner)
            .header("Countersign-Session", &self.session);
        exchange(self.address, &request.json(body))
    }

    pub(crate) fn confirm(&self, confirmation_token: &str) -> Response {
        self.post("/v1/confirmations", &json!({ "confirmation_token": confirmation_token }))
    }

    pub(crate) fn reject(&self, confirmation_token: &str, reason: &str) -> Response {
        self.post("/v1/rejections", &json!({ "confirmation_token": confirmation_token, "reason": reason }))
    }

    pub(crate) fn confirm_with(&self, body: &Value) -> Response {
        self.post("/v1/confirmations", body)
    }
}
