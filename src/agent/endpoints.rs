//! `/.countersign/`: what an agent may ask about its own held calls.
//!
//! Owns the paths and their shapes; the guard decides who may see what. Nothing here can decide a
//! draft (promise 1): an agent can read its drafts and take a pending one back.

use http::Method;
use serde_json::{Value, json};

use crate::base::code::Code;
use crate::base::id::DraftId;
use crate::base::refusal::Refusal;
use crate::draft::record::Identity;
use crate::guard::Guard;
use crate::guard::answer::Answer;
use crate::guard::problem::Problem;
use crate::guard::views::AgentView;

use super::respond;

/// Whether a path is the guard's own, on every host.
pub(super) fn is_own(path: &str) -> bool {
    path.strip_prefix("/.countersign").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// What a path under the prefix names.
#[derive(Debug, PartialEq, Eq)]
enum Resource<'a> {
    Draft(&'a str),
    Result(&'a str),
    Pending,
    Manifest,
}

fn resource(path: &str) -> Option<Resource<'_>> {
    let rest = path.strip_prefix("/.countersign/")?;
    match rest {
        "pending" => Some(Resource::Pending),
        "manifest" => Some(Resource::Manifest),
        _ => {
            let rest = rest.strip_prefix("drafts/")?;
            match rest.split_once('/') {
                None if !rest.is_empty() => Some(Resource::Draft(rest)),
                Some((id, "result")) => Some(Resource::Result(id)),
                _ => None,
            }
        }
    }
}

/// Answers a request under the prefix. `who` is asked only where a draft is named.
pub(super) async fn answer(
    guard: &Guard,
    method: &Method,
    path: &str,
    who: impl FnOnce() -> Result<Identity, Refusal>,
) -> Answer {
    let Some(resource) = resource(path) else {
        return respond::refusal(Refusal::new(
            Code::RouteNotFound,
            "Nothing is served at this path. GET /.countersign/manifest names what there is.",
        ));
    };
    let allowed: &[Method] = match resource {
        Resource::Draft(_) => &[Method::GET, Method::HEAD, Method::DELETE],
        Resource::Result(_) | Resource::Pending | Resource::Manifest => &[Method::GET, Method::HEAD],
    };
    if !allowed.contains(method) {
        let allow = allowed.iter().map(Method::as_str).collect::<Vec<_>>().join(", ");
        let refused = Refusal::new(Code::MethodRefused, format!("This path takes {allow}. Nothing was changed."));
        return respond::refusal(refused).with("Allow", allow);
    }
    if resource == Resource::Manifest {
        return Answer::json(200, &manifest());
    }
    let who = match who() {
        Ok(who) => who,
        Err(refused) => return respond::refusal(refused),
    };
    match resource {
        Resource::Draft(id) => match id.parse() {
            Ok(id) => draft(guard, method, &who, &id).await,
            Err(_) => unknown_draft(),
        },
        Resource::Result(id) => match id.parse() {
            Ok(id) => guard.agent_result(&who, &id, *method == Method::GET).await,
            Err(_) => unknown_draft(),
        },
        Resource::Pending => match guard.agent_pending(&who).await {
            Ok(drafts) => Answer::json(200, &json!({ "drafts": drafts })),
            Err(problem) => respond::problem(&problem),
        },
        Resource::Manifest => Answer::json(200, &manifest()),
    }
}

async fn draft(guard: &Guard, method: &Method, who: &Identity, id: &DraftId) -> Answer {
    let view = if *method == Method::DELETE {
        guard.withdraw(who, id).await
    } else {
        guard.agent_status(who, id, *method == Method::GET).await
    };
    match view {
        Ok(view) => show(&view),
        Err(problem) => respond::problem(&problem),
    }
}

fn show(view: &AgentView) -> Answer {
    Answer::json(200, view)
        .with("Countersign-Draft", view.draft_id.as_str())
        .with("Countersign-Status", view.status.as_str())
        .with("x-should-retry", "false")
}

fn unknown_draft() -> Answer {
    let detail = "No draft has this id. Ids look like dr_5_01J… and stand in the answer to a held call.";
    respond::problem(&Problem::new(Code::DraftNotFound, detail))
}

/// How to behave when a call is held, for runtimes and models alike.
fn manifest() -> Value {
    json!({
        "name": "countersign",
        "version": env!("CARGO_PKG_VERSION"),
        "summary": "Reads pass through. A call that would change something is not executed: it is held as a draft until a person confirms it.",
        "held": {
            "recognise": {"header": "Countersign-Status", "body": {"result": "WAIT_CONFIRM", "executed": false}},
            "statuses": [202, 403, 409, 428],
            "do": [
                "Tell the user that nothing was executed yet, and give them confirm_url.",
                "Read status_url after poll_after_ms; it tells when the draft is decided.",
                "Fetch the upstream's response from the result path once the status is succeeded or failed."
            ],
            "do_not": [
                "Do not repeat the call: the same call joins the same draft.",
                "Do not say that it was done before may_claim_success is true."
            ]
        },
        "paths": {
            "status": {"method": "GET", "path": "/.countersign/drafts/{draft_id}"},
            "result": {"method": "GET", "path": "/.countersign/drafts/{draft_id}/result"},
            "withdraw": {"method": "DELETE", "path": "/.countersign/drafts/{draft_id}"},
            "pending": {"method": "GET", "path": "/.countersign/pending"}
        },
        "statuses": {
            "pending": "held, not executed; a person decides",
            "running": "confirmed; it is being carried out; do not repeat",
            "verifying": "the outcome is not known yet; do not repeat",
            "succeeded": "executed; there is a receipt",
            "failed": "not executed, or refused by the upstream",
            "unverifiable": "the outcome cannot be verified; a person looks into it; do not repeat",
            "rejected": "a person or a rule said no; do not repeat",
            "expired": "nobody decided in time; call again if it is still wanted",
            "withdrawn": "taken back by the agent"
        },
        "again": "A new Idempotency-Key asks for the same call once more, as a draft of its own.",
        "errors": {"media_type": "application/problem+json", "members": ["code", "detail", "executed", "safe_to_retry", "guidance", "errors"]},
        "credential": ["Countersign-Agent: TOKEN", "Authorization: Bearer TOKEN"]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_prefix_itself_is_the_guards_own() {
        for own in ["/.countersign", "/.countersign/", "/.countersign/pending", "/.countersign/x/y"] {
            assert!(is_own(own), "{own}");
        }
        for other in ["/", "/.countersignx", "/x/.countersign/pending", "/.Countersign/pending", "//.countersign/"] {
            assert!(!is_own(other), "{other}");
        }
    }

    #[test]
    fn paths_name_one_resource_or_none() {
        assert_eq!(resource("/.countersign/drafts/dr_1"), Some(Resource::Draft("dr_1")));
        assert_eq!(resource("/.countersign/drafts/dr_1/result"), Some(Resource::Result("dr_1")));
        assert_eq!(resource("/.countersign/pending"), Some(Resource::Pending));
        for nothing in
            ["", "drafts", "drafts/", "drafts/a/b", "drafts/a/result/", "pending/", "tools/x", "continuations"]
        {
            assert_eq!(resource(&format!("/.countersign/{nothing}")), None, "{nothing}");
        }
    }

    #[test]
    fn the_manifest_tells_not_to_repeat_and_not_to_claim() {
        let text = manifest().to_string();
        for words in ["Do not repeat", "may_claim_success", "WAIT_CONFIRM", "/.countersign/drafts/{draft_id}/result"] {
            assert!(text.contains(words), "{words}");
        }
    }
}
