//! Who gets in: every route of the table, with every kind of credential.

use axum::body::Body;
use http::Request;

use super::fixture::*;
use crate::base::code::Code;
use crate::control::routes::{Needs, ROUTES, Route};

fn path(route: &Route) -> String {
    route.path.replace("{id}", ID)
}

fn call(route: &Route, headers: &[(&str, &str)]) -> Request<Body> {
    request(route.method, &path(route), headers, Body::empty())
}

fn needs_credential(route: &&Route) -> bool {
    matches!(route.needs, Needs::Approver | Needs::App | Needs::Known | Needs::Agent | Needs::Reader)
}

fn takes_agents(route: &Route) -> bool {
    matches!(route.needs, Needs::Agent | Needs::Reader)
}

#[test]
fn an_agent_is_let_in_at_two_calls_and_no_others() {
    let calls: Vec<_> = ROUTES.iter().filter(|route| takes_agents(route)).map(|r| (r.method, r.path)).collect();
    assert_eq!(calls, [("POST", "/api/tasks"), ("GET", "/api/tasks/{id}")]);
}

#[tokio::test]
async fn p1_an_agents_credential_decides_nothing_anywhere_and_is_recorded() {
    let bench = bench();
    for route in ROUTES.iter().filter(|route| route.needs != Needs::Nothing && !takes_agents(route)) {
        for name in ["authorization", "countersign-agent", "proxy-authorization"] {
            let token = bearer(ROBOT);
            let mut headers = vec![(name, token.as_str()), ("origin", "http://127.0.0.1:7071")];
            let person = bearer(PERSON);
            if name != "authorization" {
                // A person's token beside it does not help.
                headers.push(("authorization", &person));
            }
            let got = bench.send(call(route, &headers)).await;
            assert_eq!(got.status, 403, "{} {} {name}", route.method, route.path);
            assert!(got.text.contains("AGENT_MAY_NOT_DECIDE"), "{}", got.text);
            assert_eq!(bench.refusals(), [(Code::AgentMayNotDecide, "agent".to_owned())], "{}", route.path);
        }
    }
    assert_eq!(bench.asked(), [], "the guard was never asked");
}

#[tokio::test]
async fn an_agent_is_refused_by_name_on_wrong_paths_and_methods_too() {
    let bench = bench();
    let token = bearer(ROBOT);
    let asked = [("DELETE", "/v1/drafts"), ("GET", "/api/tasks"), ("DELETE", "/api/tasks/x"), ("GET", "/v1/nothing")];
    for (method, path) in asked {
        let got = bench.send(request(method, path, &[("authorization", &token)], Body::empty())).await;
        assert_eq!(got.code(), "AGENT_MAY_NOT_DECIDE", "{method} {path}");
    }
    let open = bench.send(request("GET", "/healthz", &[("authorization", &token)], Body::empty())).await;
    assert_eq!(open.status, 200);
}

#[tokio::test]
async fn no_or_an_unknown_credential_is_401_with_a_challenge() {
    let bench = bench();
    for route in ROUTES.iter().filter(needs_credential) {
        for headers in [&[][..], &[("authorization", "Bearer nobody")], &[("authorization", "Basic YTpi")]] {
            let got = bench.send(call(route, headers)).await;
            assert_eq!((got.status, got.code().as_str()), (401, "CREDENTIAL_UNKNOWN"), "{}", route.path);
            assert_eq!(got.header("www-authenticate"), "Bearer realm=\"countersign\"");
        }
    }
    assert_eq!(bench.asked(), []);
}

#[tokio::test]
async fn the_two_classes_of_callers_do_not_meet() {
    let bench = bench();
    for route in ROUTES.iter().filter(needs_credential) {
        let other = match route.needs {
            Needs::Approver => BACKEND,
            Needs::App | Needs::Agent => PERSON,
            Needs::Reader => BACKEND,
            _ => continue,
        };
        let got = bench.send(call(route, &[("authorization", &bearer(other))])).await;
        assert_eq!((got.status, got.code().as_str()), (403, "APPROVER_NOT_ALLOWED"), "{}", route.path);
        assert_eq!(bench.refusals().len(), 1);
    }
    assert_eq!(bench.asked(), []);
}

#[tokio::test]
async fn an_empty_list_of_approvers_lets_nobody_in() {
    let bench = bench();
    bench.credentials.store(Default::default());
    let got = bench.get("/v1/drafts").await;
    assert_eq!(got.status, 401);
    let signed = bench.send(sign_in(&format!("token={PERSON}"))).await;
    assert_eq!(signed.status, 401);
}

fn sign_in(form: &str) -> Request<Body> {
    let headers = [("origin", "http://127.0.0.1:7071"), ("content-type", "application/x-www-form-urlencoded")];
    request("POST", "/sign-in", &headers, form.to_owned())
}

#[tokio::test]
async fn every_answer_carries_the_security_headers() {
    let bench = bench();
    let token = bearer(PERSON);
    let mut asked: Vec<Request<Body>> = ROUTES.iter().map(|route| call(route, &[("authorization", &token)])).collect();
    asked.push(request("GET", "/nowhere", &[], Body::empty()));
    asked.push(request("PUT", "/v1/drafts", &[], Body::empty()));
    asked.push(request("GET", "/%ff/v1", &[], Body::empty()));
    for request in asked {
        let what = format!("{} {}", request.method(), request.uri());
        let response = tower::ServiceExt::oneshot(crate::control::router(&bench.state), request).await.unwrap();
        let headers = response.headers();
        let get = |name: &str| headers.get(name).map_or("", |value| value.to_str().unwrap());
        assert_eq!(get("cache-control"), "no-store", "{what}");
        assert_eq!(get("x-content-type-options"), "nosniff", "{what}");
        assert!(get("content-security-policy").contains("frame-ancestors 'none'"), "{what}");
        assert!(get("content-security-policy").starts_with("default-src 'none'"), "{what}");
        assert_eq!(get("referrer-policy"), "same-origin", "{what}");
    }
}

#[tokio::test]
async fn head_answers_like_get_without_a_body() {
    let bench = bench();
    for path in ["/healthz", "/v1/drafts", "/metrics", "/openapi.json", "/"] {
        let token = bearer(PERSON);
        let get = bench.send(request("GET", path, &[("authorization", &token)], Body::empty())).await;
        let head = bench.send(request("HEAD", path, &[("authorization", &token)], Body::empty())).await;
        assert_eq!(head.status, get.status, "{path}");
        assert_eq!(head.text, "");
        assert_eq!(head.header("content-length"), get.text.len().to_string(), "{path}");
    }
}

#[tokio::test]
async fn wrong_methods_and_unknown_paths_say_what_would_be_right() {
    let bench = bench();
    for (path, allow) in [("/v1/drafts", "GET, HEAD"), ("/v1/confirmations", "POST"), ("/sign-in", "GET, HEAD, POST")] {
        for method in ["DELETE", "PATCH", "OPTIONS", "get", "BREW"] {
            let got = bench.send(request(method, path, &[], Body::empty())).await;
            assert_eq!((got.status, got.code().as_str()), (405, "METHOD_REFUSED"), "{method} {path}");
            assert_eq!(got.header("allow"), allow);
        }
    }
    for path in ["/v1", "/v1/drafts/", "/v2/drafts", "/drafts", "/.env", "/%ff", "/v1/grants"] {
        let got = bench.send(request("GET", path, &[], Body::empty())).await;
        assert_eq!((got.status, got.code().as_str()), (404, "ROUTE_NOT_FOUND"), "{path}");
    }
}

#[tokio::test]
async fn a_handler_that_breaks_says_that_nothing_is_known_and_the_next_call_works() {
    let bench = bench();
    *bench.desk.panics.lock().unwrap() = true;
    let got = bench.get(&format!("/v1/drafts/{ID}")).await;
    assert_eq!((got.status, got.code().as_str()), (503, "DECISION_UNCERTAIN"));
    assert_eq!(got.json()["executed"], "unknown");
    assert!(!got.text.contains("a desk that breaks"), "the cause stays in the log");
    *bench.desk.panics.lock().unwrap() = false;
    assert_eq!(bench.get(&format!("/v1/drafts/{ID}")).await.status, 200);
}

#[tokio::test]
async fn what_needs_no_credential_says_nothing_about_drafts() {
    let bench = bench();
    for route in ROUTES.iter().filter(|route| route.needs == Needs::Nothing) {
        let got = bench.send(call(route, &[])).await;
        assert_eq!(got.status, 200, "{}", route.path);
        assert!(!got.text.contains("Buy milk") && !got.text.contains(ID), "{}", route.path);
    }
    assert_eq!(bench.asked(), []);
}
