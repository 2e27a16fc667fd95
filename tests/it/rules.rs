//! What policies say about who may ask, what is shown, what is bound and what an answer means.

use serde_json::{Value, json};

use crate::support::config::identity_with;
use crate::support::{Answer, DESK, Draft, Guard, Request, Setup, Upstream, edited, tokens};

/// The desk whose `pay` is also guarded by role, subject and administration mode.
fn with_identity_rules(upstream: &Upstream) -> Guard {
    let identity = identity_with(
        "\n  role: header:X-User-Role\n  subject: arg:/to\n  admin_context: header:X-Admin-Context\n  admin_mode: header:X-Admin-Mode",
    );
    let desk = edited(
        DESK,
        "    risk: high\n    confirm: always\n    args:",
        "    risk: high\n    confirm: always\n    allow: {roles: [clerk, lead]}\n    args:",
    );
    Setup::over(upstream).section("identity", &identity).policy("desk.yaml", &desk).start()
}

#[test]
fn roles_subjects_and_administration_modes_are_kept() {
    let upstream = Upstream::start();
    let guard = with_identity_rules(&upstream);
    let clerk = guard.agent().with("X-User-Role", "clerk");
    let own = json!({"to": "u-17", "amount": 1});
    let others = json!({"to": "u-99", "amount": 1});
    clerk.hold("/pay", &own);
    clerk.with("X-User-Role", "guest").post("/pay", &own).must_refuse(403, "ROLE_NOT_ALLOWED");
    clerk.with("X-User-Role", "Clerk").post("/pay", &own).must_refuse(403, "ROLE_NOT_ALLOWED");
    clerk.without("X-User-Role").post("/pay", &own).must_refuse(403, "IDENTITY_MISSING");
    clerk.post("/pay", &others).must_refuse(403, "SUBJECT_MISMATCH");
    clerk.with("X-Admin-Context", "case-7").hold("/pay", &others);
    for mode in ["readonly", "READONLY"] {
        let answer = clerk.with("X-Admin-Context", "case-7").with("X-Admin-Mode", mode).post("/pay", &own);
        if mode == "readonly" {
            answer.must_refuse(403, "ADMIN_READONLY");
        }
    }
    clerk.with("X-Admin-Mode", "readonly").get("/tasks").must_be(200);
    assert_eq!(guard.approver().list("status=pending").len(), 2);
    for draft in guard.approver().list("status=pending") {
        let id = draft["draft_id"].as_str().unwrap_or_default().to_owned();
        let args_hash = draft["args_hash"].as_str().unwrap_or_default().to_owned();
        guard.approver().confirm_fully(&Draft { id, args_hash });
    }
    for seen in upstream.seen() {
        let words = format!("{:?}", seen.headers);
        assert!(
            !words.contains("X-User-Role") && !words.contains("X-Admin"),
            "identity headers are not forwarded: {words}"
        );
    }
}

#[test]
fn headers_that_the_policy_injects_come_from_the_identity_and_not_from_the_agent() {
    let upstream = Upstream::start();
    let guard = Setup::over(&upstream)
        .desk_with(
            "route: {path_prefix: /}",
            "  inject: {X-Acting-For: \"{{ owner }}\", X-Desk: guarded}\nroute: {path_prefix: /}",
        )
        .start();
    let agent = guard.agent().with("X-Acting-For", "somebody-else").with("X-Desk", "forged");
    agent.get("/tasks").must_be(200);
    let draft = agent.hold_task("acting for");
    guard.approver().confirm_fully(&draft);
    assert_eq!(upstream.seen().len(), 2);
    for seen in upstream.seen() {
        let of = |name: &str| -> Vec<&str> {
            let lines = seen.headers.iter().filter(|(own, _)| own.eq_ignore_ascii_case(name));
            lines.map(|(_, value)| value.as_str()).collect()
        };
        assert_eq!(
            (of("X-Acting-For"), of("X-Desk")),
            (vec!["u-17"], vec!["guarded"]),
            "{} {}",
            seen.method,
            seen.target
        );
    }
}

#[test]
fn a_policy_may_say_what_a_status_means() {
    let upstream = Upstream::start();
    let guard = Setup::over(&upstream)
        .desk_with(
            "    preview: {title: A free call",
            "    outcome: {succeeded: [2xx, 409], failed: [4xx, 503], unknown: [418]}\n    preview: {title: A free call",
        )
        .start();
    for (status, outcome) in [
        (200, "succeeded"),
        (409, "succeeded"),
        (503, "failed"),
        (404, "failed"),
        (418, "unverifiable"),
        (302, "unverifiable"),
    ] {
        let path = format!("/free/{status}");
        upstream.answers(&path, Answer::json(status, "{}"));
        let draft = guard.agent().hold(&path, &json!({}));
        guard.approver().confirm(&draft);
        assert_eq!(guard.draft(&draft.id)["status"], outcome, "{status}");
        assert_eq!(upstream.effects(&path), 1);
    }
}

#[test]
fn secret_args_are_sent_and_never_shown() {
    let upstream = Upstream::start();
    let secret = "card-4929-0000-1111";
    let mut guard = Setup::over(&upstream)
        .desk_with("    args:\n      schema:\n        type: object\n        additionalProperties: false\n        required: [to, amount]", "    secret: [/to]\n    args:\n      schema:\n        type: object\n        additionalProperties: false\n        required: [to, amount]")
        .start();
    let answer = guard.agent().post("/pay", &json!({"to": secret, "amount": 3})).must_be(202);
    assert!(!answer.text().contains(secret), "{}", answer.text());
    let draft = Draft::from(&answer);
    let shown = guard.draft(&draft.id);
    assert!(!shown.to_string().contains(secret), "{shown}");
    assert_eq!(shown["args"]["amount"], 3, "only the secret is masked: {shown}");
    let listed: Vec<Value> = guard.approver().list("");
    assert!(!json!(listed).to_string().contains(secret));
    let body = guard.approver().get(&format!("/v1/drafts/{}/body", draft.id));
    assert!(!body.text().contains(secret), "{}", body.text());
    let mut browser = crate::support::browser::Browser::at(guard.control_address());
    browser.sign_in(tokens::ALICE);
    assert!(!browser.open(&format!("/drafts/{}", draft.id)).text().contains(secret));
    guard.approver().confirm_fully(&draft);
    assert!(String::from_utf8_lossy(&upstream.the_one("/pay").body).contains(secret));
    guard.stop();
    assert!(!guard.printed().contains(secret));
}

#[test]
fn conditional_and_bound_headers_are_part_of_what_is_confirmed() {
    let upstream = Upstream::start();
    let guard = Setup::over(&upstream)
        .desk_with(
            "    preview: {title: A free call",
            "    bind_headers: [X-Workspace]\n    preview: {title: A free call",
        )
        .start();
    let hash = |headers: &[(&str, &str)]| {
        let request = headers
            .iter()
            .fold(Request::post("/free/b").json(&json!({})), |request, (name, value)| request.header(name, value));
        Draft::from(&guard.agent().send(request).must_be(202)).args_hash
    };
    let plain = hash(&[]);
    assert_eq!(hash(&[("X-Other", "1")]), plain, "other headers are not bound");
    let mut all = vec![plain];
    for headers in [
        [("If-Match", "\"1\"")],
        [("If-Match", "\"2\"")],
        [("If-None-Match", "*")],
        [("X-Workspace", "a")],
        [("X-Workspace", "b")],
    ] {
        all.push(hash(&headers));
    }
    let count = all.len();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), count, "each bound value is a call of its own");
}

#[test]
fn a_service_may_refuse_bodies_that_nobody_can_read() {
    let upstream = Upstream::start();
    let guard = Setup::over(&upstream)
        .desk_with("route: {path_prefix: /}", "body: {opaque: refuse}\nroute: {path_prefix: /}")
        .start();
    let request = Request::post("/free/blob").body("application/octet-stream", vec![1, 2, 3]);
    guard.agent().send(request).must_refuse(422, "PREVIEW_INCOMPLETE");
    guard.agent().hold("/free/json", &json!({}));
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn a_read_only_service_takes_no_writes_at_all() {
    let upstream = Upstream::start();
    let policy = "version: 1\nservice: archive\nupstream: {url: \"${env:DESK_URL}\", read_only: true}\nroute: {path_prefix: /}\n";
    let guard = Setup::over(&upstream).no_policies().policy("archive.yaml", policy).start();
    guard.agent().get("/papers/").must_be(200);
    for method in ["POST", "PUT", "DELETE", "PATCH", "FROB"] {
        let answer = guard.agent().send(Request::new(method, "/papers/1"));
        assert_eq!(answer.status, 403, "{method}: {}", answer.text());
    }
    assert_eq!(upstream.all_effects(), 0);
}

#[test]
fn tools_are_told_apart_by_host_header_query_and_type() {
    let upstream = Upstream::start();
    let desk = edited(
        DESK,
        "    match: {method: POST, path: /brief}",
        "    match: {method: POST, path: /brief, query: {kind: note}, header: {X-Kind: short}, content_type: application/json}",
    );
    let guard = Setup::over(&upstream).policy("desk.yaml", &desk).start();
    let call = |target: &str, kind: &str, media_type: &str| {
        let request = Request::post(target).header("X-Kind", kind).body(media_type, "{}");
        guard.agent().send(request).status
    };
    assert_eq!(call("/brief?kind=note", "short", "application/json"), 202);
    for (target, kind, media_type) in [
        ("/brief?kind=other", "short", "application/json"),
        ("/brief", "short", "application/json"),
        ("/brief?kind=note", "long", "application/json"),
        ("/brief?kind=note", "short", "text/plain"),
    ] {
        assert_eq!(call(target, kind, media_type), 403, "{target} {kind} {media_type}");
    }
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn events_tell_what_happened_and_never_what_it_was_about() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let draft = guard.agent().hold_task("a private errand");
    guard.approver().confirm_fully(&draft);
    guard.agent().result(&draft).must_be(201);
    let page = guard.approver().get("/v1/events?after=0").must_be(200);
    assert!(!page.text().contains("private errand") && !page.text().contains("u-17"), "{}", page.text());
    let page = page.json();
    let kinds: Vec<&str> =
        page["events"].as_array().expect("events").iter().filter_map(|event| event["kind"].as_str()).collect();
    assert_eq!(kinds, ["draft.held", "draft.confirmed", "draft.sending", "draft.succeeded", "draft.collected"]);
    let next = page["next"].as_u64().expect("a cursor");
    let rest = guard.approver().get(&format!("/v1/events?after={next}")).must_be(200).json();
    assert_eq!(rest["events"], json!([]));
    assert_eq!(guard.approver_with(tokens::FAYE).get("/v1/events?after=0").must_be(200).json()["events"], json!([]));
}
