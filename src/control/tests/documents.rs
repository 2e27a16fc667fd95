//! The table of calls, `/openapi.json` and docs/http-api.md say the same.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::fixture::*;
use crate::base::code::Code;
use crate::control::openapi::document;
use crate::control::routes::{Needs, ROUTES};
use crate::control::{openapi, schemas};
use crate::draft::state::Status;
use crate::guard::problem::{self, Problem};
use crate::policy::diagnostic::{Diagnostic, Severity};

const PAGE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/http-api.md"));

#[test]
fn the_document_holds_the_table_and_nothing_else() {
    let document = document("http://x");
    let mut documented = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys().filter(|key| *key != "parameters") {
            documented.insert((method.to_uppercase(), path.clone()));
        }
    }
    let table: BTreeSet<_> = ROUTES.iter().map(|route| (route.method.to_owned(), route.path.to_owned())).collect();
    assert_eq!(documented, table);
    let ids: BTreeSet<_> = ROUTES.iter().map(|route| route.id).collect();
    assert_eq!(ids.len(), ROUTES.len(), "every call has a name of its own");
}

#[test]
fn every_reference_leads_somewhere() {
    fn walk(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(members) => {
                if let Some(Value::String(to)) = members.get("$ref") {
                    found.insert(to.trim_start_matches("#/components/schemas/").to_owned());
                }
                members.values().for_each(|value| walk(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| walk(value, found)),
            _ => {}
        }
    }
    let document = openapi::document("http://x");
    let mut found = BTreeSet::new();
    walk(&document, &mut found);
    let known: BTreeSet<String> = document["components"]["schemas"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(found.difference(&known).collect::<Vec<_>>(), Vec::<&String>::new());
    assert_eq!(known.difference(&found).collect::<Vec<_>>(), Vec::<&String>::new(), "schemas that nobody uses");
}

/// Every member of `value` has a property in the schema of this name.
fn described(schemas: &Value, name: &str, value: &impl serde::Serialize) {
    let properties = schemas[name]["properties"].as_object().unwrap();
    let value = serde_json::to_value(value).unwrap();
    for member in value.as_object().unwrap().keys() {
        assert!(properties.contains_key(member), "{name} does not describe {member}");
    }
    for needed in schemas[name]["required"].as_array().into_iter().flatten() {
        assert!(value.get(needed.as_str().unwrap()).is_some(), "{name} requires {needed}");
    }
}

#[test]
fn the_schemas_describe_what_is_serialised() {
    let all = schemas::all();
    for status in Status::ALL {
        let view = view(status);
        described(&all, "Draft", &view);
        described(&all, "DraftLine", &view.line);
        described(&all, "Request", view.request.as_ref().unwrap());
        described(&all, "Preview", view.line.preview.as_ref().unwrap());
        view.receipt.iter().for_each(|receipt| described(&all, "Receipt", receipt));
        view.votes.iter().for_each(|vote| described(&all, "Vote", vote));
        view.votes.iter().for_each(|vote| described(&all, "Decider", &vote.decider));
        view.refused.iter().for_each(|refused| described(&all, "Refused", refused));
        view.evidence.iter().for_each(|evidence| described(&all, "Evidence", evidence));
    }
    described(&all, "Event", &event(1, "draft.held"));
    let problem = Problem::new(Code::DraftNotFound, "x").about(&id());
    described(&all, "Problem", &serde_json::from_slice::<Value>(&problem.answer().body).unwrap());
    let diagnostic = Diagnostic {
        file: "a.yaml".to_owned(),
        line: 1,
        column: 1,
        severity: Severity::Error,
        message: "x".to_owned(),
        hint: None,
        excerpt: String::new(),
    };
    described(&all, "Diagnostic", &diagnostic);
    let codes = all["Problem"]["properties"]["code"]["anyOf"][0]["enum"].as_array().unwrap();
    assert_eq!(codes.len(), Code::ALL.len());
}

#[tokio::test]
async fn the_document_is_served_with_the_public_address() {
    let bench = bench();
    let got = bench.send(request("GET", "/openapi.json", &[], axum::body::Body::empty())).await;
    assert_eq!(got.json()["servers"], json!([{"url": "http://127.0.0.1:7071"}]));
    assert_eq!(got.json()["openapi"], "3.1.0");
}

#[test]
fn the_page_names_every_code_with_what_the_table_says() {
    for code in Code::ALL {
        let line = problem::line(*code);
        let executed = match line.executed.to_value() {
            Value::Null => "-".to_owned(),
            Value::String(text) => text,
            other => other.to_string(),
        };
        let retry = if line.safe_to_retry { "yes" } else { "no" };
        let row = format!("| `{code}` | {} | {executed} | {retry} |", line.status);
        assert!(PAGE.contains(&row), "docs/http-api.md has no row that begins with\n{row}");
    }
    let rows = PAGE.lines().filter(|line| {
        line.starts_with("| `")
            && line
                .split('|')
                .nth(1)
                .is_some_and(|cell| cell.trim().trim_matches('`').chars().all(|c| c.is_ascii_uppercase() || c == '_'))
    });
    for row in rows {
        let code = row.split('`').nth(1).unwrap();
        assert!(Code::parse(code).is_some(), "docs/http-api.md names {code}, which is no code");
    }
}

#[test]
fn the_page_names_every_call() {
    for route in ROUTES.iter().filter(|route| !matches!(route.needs, Needs::Page | Needs::Form)) {
        if route.path.starts_with("/assets/") {
            continue;
        }
        let call = format!("`{} {}`", route.method, route.path);
        assert!(PAGE.contains(&call), "docs/http-api.md does not name {call}");
    }
}
