//! `/openapi.json`: the table of calls, for machines. Written from [`ROUTES`], so it cannot say
//! anything else than what is served.

use std::collections::BTreeMap;

use axum::response::Response;
use serde_json::{Map, Value, json};

use crate::base::code::Code;
use crate::guard::problem;

use super::asked::Asked;
use super::reply;
use super::routes::{Needs, ROUTES, Route};
use super::schemas;

/// `GET /openapi.json`
pub(super) async fn serve(asked: Asked) -> Response {
    reply::json(200, &document(asked.state.public.as_str()))
}

/// The document.
pub(super) fn document(server: &str) -> Value {
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for route in ROUTES {
        let methods = paths.entry(route.path).or_default();
        methods.insert(route.method.to_ascii_lowercase(), operation(route));
        if route.path.contains("{id}") {
            let id = json!({"name": "id", "in": "path", "required": true, "schema": {"type": "string"}});
            methods.insert("parameters".to_owned(), json!([id]));
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Countersign control API",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "For approvers, apps and operators, and for agents that ask for tasks. Closed bodies: an unknown member or query parameter is refused with 422. GET never decides; HEAD works where GET does.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": server}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "agent": {"type": "http", "scheme": "bearer", "description": "An agent's token; also in the header Countersign-Agent."},
                "approver": {"type": "http", "scheme": "bearer", "description": "An approver's token."},
                "app": {"type": "http", "scheme": "bearer", "description": "The token of an app; decisions also need act_for_owners."},
                "session": {"type": "apiKey", "in": "cookie", "name": "countersign", "description": "A console session; __Host-countersign where public_url is https."},
            },
            "schemas": schemas::all(),
        },
    })
}

fn operation(route: &Route) -> Value {
    let mut operation = json!({
        "operationId": route.id,
        "summary": route.summary,
        "tags": [tag(route)],
        "security": security(route.needs),
        "responses": responses(route),
    });
    let mut parameters: Vec<Value> = route.query.iter().map(|name| query_parameter(name)).collect();
    parameters.extend(headers(route).iter().map(|(name, required, description)| {
        json!({"name": name, "in": "header", "required": required, "description": description, "schema": {"type": "string"}})
    }));
    if !parameters.is_empty() {
        operation["parameters"] = Value::Array(parameters);
    }
    if let Some(schema) = route.body {
        operation["requestBody"] = json!({
            "required": !matches!(schema, "Empty" | "TaskDecision"),
            "content": {"application/json": {"schema": reference(schema)}},
        });
    } else if route.method == "POST" {
        operation["requestBody"] = json!({
            "required": true,
            "content": {"application/x-www-form-urlencoded": {"schema": {"type": "object"}}},
        });
    }
    operation
}

const fn tag(route: &Route) -> &'static str {
    match route.needs {
        Needs::Nothing => "operations",
        Needs::Approver | Needs::Known => "approvers",
        Needs::App => "apps",
        Needs::Agent | Needs::Reader => "agents",
        Needs::Page | Needs::Form => "console",
    }
}

fn security(needs: Needs) -> Value {
    match needs {
        Needs::Nothing => json!([]),
        Needs::Approver => json!([{"approver": []}]),
        Needs::App => json!([{"app": []}]),
        Needs::Known => json!([{"approver": []}, {"app": []}]),
        Needs::Agent => json!([{"agent": []}]),
        Needs::Reader => json!([{"agent": []}, {"approver": []}]),
        Needs::Page | Needs::Form => json!([{"session": []}, {}]),
    }
}

type Header = (&'static str, bool, &'static str);

fn headers(route: &Route) -> Vec<Header> {
    let key: Header = ("Idempotency-Key", false, "The caller's key for this decision: a repeat gets the first answer.");
    let prefer: Header = ("Prefer", false, "`wait=N` seconds for the outcome (bounded), or `respond-async`.");
    let owner: Header = ("Countersign-Owner", true, "The owner for whom the app decides.");
    let session: Header = ("Countersign-Session", true, "The owner's session.");
    match route.body {
        Some("Confirm") => vec![key, prefer],
        Some("Reject") => vec![key],
        Some("Confirmation") => vec![owner, session, key, prefer],
        Some("Rejection") => vec![owner, session, key],
        Some("NewTask") => {
            vec![("Idempotency-Key", false, "The caller's key: the same key with the same args is the same task.")]
        }
        Some("TaskDecision") if route.path.ends_with("/confirm") => vec![key, prefer],
        Some("TaskDecision") => vec![key],
        _ => Vec::new(),
    }
}

fn query_parameter(name: &str) -> Value {
    let (schema, description) = match name {
        "status" => (json!({"type": "string"}), "Status words, separated by commas."),
        "risk" => (reference("Risk"), "Only this risk."),
        "cursor" => (json!({"type": "string"}), "The `next` of the page before."),
        "limit" => (json!({"type": "integer", "minimum": 1}), "How many at most: 200 drafts, 1000 events."),
        "after" => (
            json!({"type": ["integer", "string"]}),
            "The `next` of the page before, as it was; 0 begins at the oldest.",
        ),
        "tool" => (json!({"type": "string"}), "Only this tool's."),
        "owner" => (json!({"type": "string"}), "Only this owner's."),
        _ => (json!({"type": "string"}), "For the console's own links."),
    };
    json!({"name": name, "in": "query", "required": false, "description": description, "schema": schema})
}

fn responses(route: &Route) -> Value {
    let mut responses: BTreeMap<String, Value> = BTreeMap::new();
    for (status, what) in route.answers {
        let mut response = json!({"description": description(*status)});
        if what.contains('/') {
            response["content"] = json!({*what: {}});
        } else if *what != "-" {
            response["content"] = json!({"application/json": {"schema": reference(what)}});
        }
        if *what == "Events" {
            response["content"]["text/event-stream"] = json!({});
        }
        responses.insert(status.to_string(), response);
    }
    let mut by_status: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
    for code in codes(route) {
        by_status.entry(problem::line(code).status).or_default().push(code.as_str());
    }
    for (status, mut codes) in by_status {
        codes.sort_unstable();
        codes.dedup();
        // Pages answer in HTML; the codes are the same.
        let (media_type, schema) = match route.needs {
            Needs::Page | Needs::Form => ("text/html", json!({})),
            _ => ("application/problem+json", json!({"schema": reference("Problem")})),
        };
        let entry = responses.entry(status.to_string()).or_insert_with(|| json!({}));
        entry["description"] = Value::String(codes.join(", "));
        entry["content"][media_type] = schema;
    }
    json!(responses)
}

/// The route's own problems, and those that its need and its method bring.
fn codes(route: &Route) -> Vec<Code> {
    let mut codes = route.codes.to_vec();
    match route.needs {
        Needs::Nothing => {}
        Needs::Approver | Needs::App | Needs::Known => {
            codes.extend([Code::CredentialUnknown, Code::AgentMayNotDecide, Code::RequestInvalid]);
            if route.needs != Needs::Known {
                codes.push(Code::ApproverNotAllowed);
            }
        }
        Needs::Agent | Needs::Reader => codes.extend([
            Code::CredentialUnknown,
            Code::ApproverNotAllowed,
            Code::RequestAmbiguous,
            Code::RequestInvalid,
        ]),
        Needs::Page => codes.extend([Code::AgentMayNotDecide, Code::CsrfFailed]),
        Needs::Form => codes.extend([Code::AgentMayNotDecide, Code::CsrfFailed, Code::CredentialUnknown]),
    }
    if route.body == Some("TaskDecision") {
        codes.push(Code::ArgsHashMismatch);
    }
    if route.body == Some("Confirm") {
        codes.extend([Code::ArgsHashRequired, Code::ArgsHashMismatch]);
    }
    if route.method == "POST" {
        codes.extend([Code::BodyMalformed, Code::BodyTooLarge, Code::MediaTypeUnsupported, Code::RequestTimeout]);
    }
    codes
}

const fn description(status: u16) -> &'static str {
    match status {
        201 => "Made.",
        202 => "Recorded; not ended yet.",
        303 => "Done; the page is there.",
        503 => "Not ready.",
        _ => "Fine.",
    }
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}
