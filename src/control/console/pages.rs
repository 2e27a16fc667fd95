//! Pages: templates, embedded, and what they are given.
//!
//! Owns what stands where on a page. Every text that somebody else wrote passes through
//! one of the filters of `visible` (`raw`, or `card` and `sent` where it was spelled out before); the templates are read strictly, so a misspelt name is an error and not a
//! blank. Must never leave out anything that will be sent.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use minijinja::{Environment, UndefinedBehavior};
use serde::Serialize;
use serde_json::{Value, json};

use crate::base::time::Timestamp;
use crate::control::reply;
use crate::control::told::{Standing, Told, by};
use crate::draft::record::Risk;
use crate::draft::state::Status;
use crate::guard::views::{DraftLine, DraftView};

use super::session::SignedIn;
use super::visible;

/// The style sheet.
pub(super) const STYLE: &str = include_str!("pages/console.css");

/// The script.
pub(super) const SCRIPT: &str = include_str!("pages/console.js");

/// The templates, read once.
#[derive(Debug)]
pub(in crate::control) struct Pages(Environment<'static>);

/// What the layout needs.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Frame {
    who: Option<String>,
    csrf: Option<String>,
    refresh: Option<String>,
}

impl Frame {
    pub(super) fn of(signed_in: Option<&SignedIn>) -> Self {
        Self {
            who: signed_in.map(|signed_in| signed_in.who.name.to_string()),
            csrf: signed_in.map(|signed_in| signed_in.csrf.to_hex()),
            refresh: None,
        }
    }

    /// Makes the browser load `to` after `seconds`; for pages without forms only.
    pub(super) fn refreshing(mut self, seconds: u32, to: &str) -> Self {
        self.refresh = Some(format!("{seconds};url={to}"));
        self
    }
}

impl Pages {
    /// Reads the templates.
    pub(in crate::control) fn new() -> Self {
        let mut env = Environment::new();
        env.set_undefined_behavior(UndefinedBehavior::Strict);
        env.add_filter("raw", |text: String| minijinja::Value::from_safe_string(visible::raw(&text)));
        env.add_filter("sent", |text: String| minijinja::Value::from_safe_string(visible::sent(&text)));
        env.add_filter("card", |text: String| minijinja::Value::from_safe_string(visible::card(&text)));
        let sources = [
            ("layout.html", include_str!("pages/layout.html")),
            ("sign_in.html", include_str!("pages/sign_in.html")),
            ("refused.html", include_str!("pages/refused.html")),
            ("queue.html", include_str!("pages/queue.html")),
            ("draft.html", include_str!("pages/draft.html")),
        ];
        for (name, source) in sources {
            if let Err(error) = env.add_template(name, source) {
                tracing::error!(template = name, %error, "a console template cannot be read");
            }
        }
        Self(env)
    }

    /// Renders a page with a status.
    pub(super) fn page(&self, status: u16, name: &str, context: &Value) -> Response {
        let rendered = self.0.get_template(name).and_then(|template| template.render(given(context)));
        let (status, text) = match rendered {
            Ok(text) => (status, text),
            Err(error) => {
                tracing::error!(template = name, %error, "a console page cannot be built");
                (
                    500,
                    "<!doctype html><title>Error</title><p>The page cannot be built. Use the API or the command line."
                        .to_owned(),
                )
            }
        };
        let mut response = reply::text("text/html; charset=utf-8", text);
        *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let csp = HeaderValue::from_static(reply::CONSOLE_CSP);
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, csp);
        response
    }
}

/// JSON as templates read it.
fn given(value: &Value) -> minijinja::Value {
    match value {
        Value::Null => minijinja::Value::from(()),
        Value::Bool(flag) => minijinja::Value::from(*flag),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => minijinja::Value::from(number),
            (_, Some(number)) => minijinja::Value::from(number),
            _ => minijinja::Value::from(number.to_string()),
        },
        Value::String(text) => minijinja::Value::from(text.as_str()),
        Value::Array(items) => items.iter().map(given).collect::<Vec<_>>().into(),
        Value::Object(members) => {
            members.iter().map(|(name, value)| (name.clone(), given(value))).collect::<BTreeMap<_, _>>().into()
        }
    }
}

/// A line of the queue, with its words.
#[derive(Debug, Serialize)]
pub(super) struct QueueLine<'a> {
    #[serde(flatten)]
    line: &'a DraftLine,
    risk_words: &'static str,
    status_words: &'static str,
    when_words: String,
}

impl<'a> QueueLine<'a> {
    pub(super) fn of(line: &'a DraftLine, now: Timestamp) -> Self {
        Self { line, risk_words: risk(line.risk), status_words: short(line.status), when_words: when(line, now) }
    }
}

const fn risk(risk: Risk) -> &'static str {
    match risk {
        Risk::Low => "Low risk",
        Risk::Medium => "Medium risk",
        Risk::High => "HIGH RISK",
    }
}

/// What the words for a draft's state are made from.
fn facts_of(view: &DraftView) -> Standing<'_> {
    Standing {
        status: view.line.status,
        phase: view.line.phase,
        intact: view.line.intact,
        voted: !view.votes.is_empty(),
        failure: view.failure,
        receipt: view.receipt.as_ref(),
        refused: view.refused.as_ref(),
    }
}

const fn short(status: Status) -> &'static str {
    match status {
        Status::Pending => "waiting for a decision",
        Status::Running => "being carried out",
        Status::Verifying => "being checked",
        Status::Succeeded => "done",
        Status::Failed => "not done",
        Status::Unverifiable => "cannot be verified",
        Status::Rejected => "rejected",
        Status::Expired => "expired",
        Status::Withdrawn => "taken back",
    }
}

fn when(line: &DraftLine, now: Timestamp) -> String {
    if line.status == Status::Pending {
        format!("ends in {} ({})", span(line.expires_at.since(now)), line.expires_at)
    } else {
        format!("held {} ago ({})", span(now.since(line.created_at)), line.created_at)
    }
}

/// A length of time in the one unit that matters.
fn span(length: Duration) -> String {
    match length.as_secs() {
        seconds @ 0..=119 => format!("{seconds} s"),
        seconds @ 120..=7_199 => format!("{} min", seconds / 60),
        seconds @ 7_200..=172_799 => format!("{} h", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

/// One arg on the full view.
#[derive(Debug, Serialize)]
struct Arg {
    name: String,
    kind: String,
    text: String,
}

fn args(value: &Value) -> Vec<Arg> {
    match value {
        Value::Object(members) => members.iter().map(|(name, value)| arg(name, value)).collect(),
        Value::Null => Vec::new(),
        other => vec![arg("$args", other)],
    }
}

fn arg(name: &str, value: &Value) -> Arg {
    let pretty = || serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string());
    let (kind, text) = match value {
        Value::String(text) => (format!("text, {} characters", text.chars().count()), text.clone()),
        Value::Number(number) => ("number".to_owned(), number.to_string()),
        Value::Bool(flag) => ("yes or no".to_owned(), flag.to_string()),
        Value::Null => ("null".to_owned(), "null".to_owned()),
        Value::Array(items) => (format!("list of {}", items.len()), pretty()),
        Value::Object(_) => ("object".to_owned(), pretty()),
    };
    Arg { name: name.to_owned(), kind, text }
}

/// What stands in a row of two.
type Fact = (&'static str, String);

fn facts(view: &DraftView) -> Vec<Fact> {
    let line = &view.line;
    let mut facts: Vec<Fact> = vec![
        ("Draft", line.draft_id.to_string()),
        ("Service", line.service.to_string()),
        ("Tool", line.tool.to_string()),
        ("Capability", line.capability.to_string()),
        ("Agent", line.initiator.to_string()),
        ("Args hash", line.args_hash.to_hex()),
        ("Held at", line.created_at.to_string()),
        ("Ends at", line.expires_at.to_string()),
    ];
    let optional = [
        ("Owner", line.owner.clone()),
        ("Conversation", view.session.clone()),
        ("Role", view.role.clone()),
        ("Whose data", view.subject.clone()),
        ("Administration context", view.admin_context.clone()),
        ("Administration mode", view.admin_mode.clone()),
        ("Message", view.message_id.clone()),
        ("Request id", view.origin_request_id.clone()),
        ("Policy version", view.policy_version.clone()),
        ("Confirmed at", view.claimed_at.map(|at| at.to_string())),
        ("Sent at", view.sent_at.map(|at| at.to_string())),
        ("Ended at", view.ended_at.map(|at| at.to_string())),
        ("Result collected at", view.collected_at.map(|at| at.to_string())),
    ];
    facts.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
    facts
}

fn decisions(view: &DraftView) -> Vec<String> {
    let mut lines: Vec<String> = view
        .votes
        .iter()
        .map(|vote| {
            let comment = vote.comment.as_ref().map(|comment| format!(": {comment}")).unwrap_or_default();
            format!("{} confirmed at {}{comment}", by(&vote.decider), vote.decider.at)
        })
        .collect();
    if let Some(refused) = &view.refused
        && let Some(decider) = &refused.by
    {
        lines.push(format!("{} rejected at {}: {}", by(decider), refused.at, refused.reason));
    }
    lines
}

fn receipt(view: &DraftView) -> Vec<Fact> {
    let Some(receipt) = &view.receipt else { return Vec::new() };
    let yes = |flag: bool| flag.then(|| "yes".to_owned());
    let optional = [
        ("Receipt", Some(receipt.id.clone())),
        ("Upstream status", receipt.upstream_status.map(|status| status.to_string())),
        ("Only accepted, not done yet", yes(receipt.accepted)),
        ("Only in part", yes(receipt.partial)),
        ("Recorded by a person or a probe", yes(receipt.recovered)),
        ("Attempts", Some(receipt.attempts.to_string())),
        ("Effect key", receipt.effect_key.clone()),
        ("Request digest", receipt.sent_digest.map(|digest| digest.to_hex())),
        ("Response digest", receipt.response_digest.map(|digest| digest.to_hex())),
        ("Settled at", Some(receipt.settled_at.to_string())),
    ];
    optional.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// Which forms stand on a draft's page.
#[derive(Debug, Serialize)]
struct May {
    decide: bool,
    resolve: bool,
    again: bool,
}

/// Everything that a draft's page shows.
pub(super) fn draft_context(
    signed_in: &SignedIn,
    view: &DraftView,
    now: Timestamp,
    alert: Option<String>,
    notice: Option<&str>,
) -> Value {
    let line = &view.line;
    let waits = matches!(line.status, Status::Running | Status::Verifying);
    let mut frame = Frame::of(Some(signed_in));
    if waits && alert.is_none() {
        frame = frame.refreshing(3, &format!("/drafts/{}", line.draft_id));
    }
    let may = May {
        decide: line.status == Status::Pending && line.intact && view.request.is_some(),
        resolve: line.status == Status::Unverifiable && line.intact,
        again: view.again,
    };
    json!({
        "page": frame, "draft": view, "told": Told::of(&facts_of(view)), "args": args(&view.args), "facts": facts(view),
        "decisions": decisions(view), "receipt": receipt(view), "risk_words": risk(line.risk),
        "when_words": when(line, now), "may": may, "alert": alert, "notice": notice,
    })
}
