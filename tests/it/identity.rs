//! Owners, sessions, agents, approvers and apps are kept apart: what is foreign is refused with
//! 403 or 401, reveals nothing and uses nothing up.

use serde_json::json;

use crate::support::{Approver, Draft, Guard, Request, Response, Setup, Upstream, exchange, tokens};

const SECRET_TITLE: &str = "a title that nobody else may read";

/// A 403 that reveals nothing of the draft.
#[track_caller]
fn must_reveal_nothing(answer: Response, code: &str) {
    let words = format!("{:?}{}", answer.headers, answer.text());
    assert!(!words.contains(SECRET_TITLE) && !words.contains("add_task") && !words.contains("task.create"), "{words}");
    answer.must_refuse(403, code);
}

#[test]
fn another_owners_or_agents_draft_is_refused_on_the_agents_listener() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let draft = guard.agent().hold_task(SECRET_TITLE);
    for stranger in
        [guard.agent().for_owner("u-18"), guard.agent_with(tokens::NIGHT_BOT), guard.agent_with(tokens::FAR_BOT)]
    {
        must_reveal_nothing(stranger.status(&draft), "DRAFT_NOT_YOURS");
        must_reveal_nothing(stranger.result(&draft), "DRAFT_NOT_YOURS");
        must_reveal_nothing(stranger.withdraw(&draft), "DRAFT_NOT_YOURS");
        let pending = stranger.get("/.countersign/pending").must_be(200).text();
        assert!(!pending.contains(&draft.id), "{pending}");
    }
    assert_eq!(guard.draft(&draft.id)["status"], "pending");
    guard.approver().confirm_fully(&draft);
    let stranger = guard.agent_with(tokens::NIGHT_BOT);
    must_reveal_nothing(stranger.result(&draft), "DRAFT_NOT_YOURS");
    guard.agent().in_session("s-2").result(&draft).must_be(201);
    assert_eq!(upstream.effects("/tasks"), 1);
}

#[test]
fn a_foreign_owners_or_sessions_token_is_refused_and_not_used_up() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let answer = guard.agent_with(tokens::RUNTIME).post("/tasks", &json!({"title": SECRET_TITLE})).must_be(202);
    let token = answer.header("Countersign-Confirmation-Token").expect("a token").to_owned();
    let app = guard.app();
    for stranger in [app.for_owner("u-18"), app.in_session("s-2"), app.for_owner(""), app.in_session("")] {
        for answer in [stranger.confirm(&token), stranger.reject(&token, "no")] {
            assert_eq!(answer.status, 403, "{}", answer.text());
            assert!(!answer.text().contains(SECRET_TITLE), "{}", answer.text());
        }
    }
    must_reveal_nothing(app.for_owner("u-18").confirm(&token), "DRAFT_NOT_YOURS");
    must_reveal_nothing(app.in_session("s-2").confirm(&token), "DRAFT_NOT_YOURS");
    let mute = app.with_token(tokens::MUTE).confirm(&token);
    assert_eq!(mute.status, 403, "an app that may not act for owners: {}", mute.text());
    app.with_token("no-such-app").confirm(&token).must_refuse(401, "CREDENTIAL_UNKNOWN");
    app.with_token(tokens::DESK_BOT).confirm(&token).must_refuse(403, "AGENT_MAY_NOT_DECIDE");
    assert_eq!(upstream.heads(), 0);
    app.confirm(&token).must_be(200);
    assert_eq!(upstream.effects("/tasks"), 1);
}

#[test]
fn a_session_that_joined_may_decide_as_well() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let runtime = guard.agent_with(tokens::RUNTIME);
    let answer = runtime.post("/tasks", &json!({"title": "in two sessions"})).must_be(202);
    let token = answer.header("Countersign-Confirmation-Token").expect("a token").to_owned();
    guard.app().in_session("s-2").confirm(&token).must_be(403);
    let joined = runtime.in_session("s-2").post("/tasks", &json!({"title": "in two sessions"})).must_be(202);
    assert_eq!(Draft::from(&joined), Draft::from(&answer));
    guard.app().in_session("s-2").confirm(&token).must_be(200);
    assert_eq!(upstream.effects("/tasks"), 1);
}

#[test]
fn approvers_decide_within_their_rights_and_tenant_only() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let task = guard.agent().hold_task(SECRET_TITLE);
    let payment = guard.agent().hold("/pay", &json!({"to": SECRET_TITLE, "amount": 5}));
    let deletion = Draft::from(&guard.agent().send(Request::new("DELETE", "/tasks/7")).must_be(202));

    for (who, token, drafts, status) in [
        ("carol", tokens::CAROL, vec![&payment], 403),
        ("dora", tokens::DORA, vec![&task, &payment, &deletion], 403),
        ("faye", tokens::FAYE, vec![&task, &payment, &deletion], 404),
    ] {
        let approver = guard.approver_with(token);
        for draft in drafts {
            for answer in [approver.confirm(draft), approver.reject(draft, "no"), approver.show(&draft.id)] {
                assert_eq!(answer.status, status, "{who}: {}", answer.text());
                assert!(!answer.text().contains(SECRET_TITLE), "{who}: {}", answer.text());
            }
            assert!(approver.list("").iter().all(|shown| shown["draft_id"] != draft.id.as_str()), "{who}'s list");
        }
    }
    for draft in [&payment, &deletion] {
        let carol = guard.approver_with(tokens::CAROL);
        carol.confirm(draft).must_refuse(403, "APPROVER_NOT_ALLOWED");
        carol.reject(draft, "no").must_refuse(403, "APPROVER_NOT_ALLOWED");
    }
    assert_eq!(upstream.heads(), 0);
    guard.approver_with(tokens::CAROL).confirm_fully(&task);
    guard.approver().confirm_fully(&payment);
    let far = guard.agent_with(tokens::FAR_BOT).hold_task("far away");
    assert_eq!(guard.approver_with(tokens::FAYE).list("status=pending").len(), 1);
    guard.approver().confirm(&far).must_refuse(404, "DRAFT_NOT_FOUND");
    guard.approver_with(tokens::FAYE).confirm_fully(&far);
    assert_eq!(upstream.all_effects(), 3);
}

#[test]
fn p1_no_agent_decides_whatever_it_sends() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let draft = guard.agent().hold_task("approved by itself");
    let confirm = || Approver::confirm_request(&draft);
    let reject = || Request::post(&format!("/v1/drafts/{}/reject", draft.id)).json(&json!({"reason": "no"}));
    let control = guard.control_address();
    for request in [
        confirm(),
        reject(),
        Request::get("/v1/drafts"),
        Request::get(&format!("/v1/drafts/{}", draft.id)),
        Request::get("/v1/policies"),
    ] {
        for (name, value) in [
            ("Authorization", format!("Bearer {}", tokens::DESK_BOT)),
            ("Countersign-Agent", tokens::DESK_BOT.to_owned()),
            ("Authorization", format!("Bearer {}", tokens::RUNTIME)),
        ] {
            exchange(control, &request.clone().header(name, &value)).must_refuse(403, "AGENT_MAY_NOT_DECIDE");
        }
    }
    let both = confirm()
        .header("Authorization", &format!("Bearer {}", tokens::ALICE))
        .header("Countersign-Agent", tokens::DESK_BOT);
    exchange(control, &both).must_refuse(403, "AGENT_MAY_NOT_DECIDE");
    for (name, value) in [
        ("X-Forwarded-User", "alice"),
        ("X-Remote-User", "alice"),
        ("X-User-Id", "alice"),
        ("X-Approver", "alice"),
        ("Authorization", "Bearer alice"),
        ("Authorization", "Basic YWxpY2U6YWxpY2U="),
        ("Cookie", "countersign=alice; session=alice"),
    ] {
        exchange(control, &confirm().header(name, value)).must_refuse(401, "CREDENTIAL_UNKNOWN");
    }
    exchange(control, &confirm()).must_refuse(401, "CREDENTIAL_UNKNOWN");
    for (path, status, code) in [
        (format!("/v1/drafts/{}/confirm", draft.id), 403, "TOOL_NOT_FOUND"),
        ("/v1/confirmations".to_owned(), 403, "TOOL_NOT_FOUND"),
        (format!("/.countersign/drafts/{}/confirm", draft.id), 404, "ROUTE_NOT_FOUND"),
    ] {
        // On the agent's own listener nothing decides.
        let body = json!({"args_hash": draft.args_hash, "approved": true});
        guard.agent().post(&path, &body).must_refuse(status, code);
    }
    assert_eq!(upstream.heads(), 0);
    assert_eq!(guard.draft(&draft.id)["status"], "pending");
}

#[test]
fn an_approvers_or_apps_token_on_the_agents_listener_is_refused_and_never_forwarded() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    for token in [tokens::ALICE, tokens::DORA, tokens::WEB, tokens::MUTE] {
        for (name, value) in [
            ("Countersign-Agent", token.to_owned()),
            ("Authorization", format!("Bearer {token}")),
            ("authorization", format!("bearer   {token}")),
            ("Authorization", token.to_owned()),
            ("Proxy-Authorization", format!("Bearer {token}")),
        ] {
            for request in [
                Request::get("/tasks"),
                Request::post("/tasks").json(&json!({"title": "x"})),
                Request::get("/.countersign/pending"),
            ] {
                let answer = guard.agent().with(name, &value).send(request);
                assert_eq!(answer.status, 401, "{name}: {value}: {}", answer.text());
            }
        }
    }
    assert_eq!(upstream.heads(), 0);
    assert_eq!(guard.approver().list("").len(), 0);
}

#[test]
fn a_caller_without_a_known_credential_gets_nowhere() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let nobody = guard.agent().without("Countersign-Agent");
    for agent in [
        nobody.clone(),
        nobody.with("Countersign-Agent", "guess"),
        nobody.with("Authorization", "Bearer guess"),
        nobody.with("Countersign-Agent", ""),
    ] {
        agent.get("/tasks").must_refuse(401, "AGENT_UNKNOWN");
        agent.post("/tasks", &json!({"title": "x"})).must_refuse(401, "AGENT_UNKNOWN");
        agent.get("/.countersign/pending").must_refuse(401, "AGENT_UNKNOWN");
    }
    let by_bearer = nobody.with("Authorization", &format!("Bearer {}", tokens::DESK_BOT));
    by_bearer.get("/tasks").must_be(200);
    let draft = by_bearer.hold_task("by bearer");
    guard.approver().confirm_fully(&draft);
    for seen in upstream.seen() {
        let words = format!("{:?}", seen.headers);
        assert!(!words.contains(tokens::DESK_BOT), "the agent's credential went upstream: {words}");
    }
    let two = guard
        .agent()
        .dress(Request::post("/tasks").header("Countersign-Agent", tokens::NIGHT_BOT).json(&json!({"title": "two"})));
    let answer = exchange(guard.agent_address(), &two);
    assert_eq!(answer.status, 400, "two agent credentials: {}", answer.text());
}

#[test]
fn a_write_without_its_declared_identity_is_refused() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    for missing in ["X-User-Id", "X-Session-Id"] {
        let agent = guard.agent().without(missing);
        agent.post("/tasks", &json!({"title": "for whom?"})).must_refuse(403, "IDENTITY_MISSING");
        agent.get("/tasks").must_be(200);
    }
    let twice =
        guard.agent().dress(Request::post("/tasks").header("X-User-Id", "u-18").json(&json!({"title": "for two?"})));
    let answer = exchange(guard.agent_address(), &twice);
    assert_eq!(answer.status, 400, "two owners: {}", answer.text());
    assert_eq!(upstream.all_effects(), 0);
}

#[test]
fn the_guards_own_answer_headers_are_refused_on_requests() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    for name in [
        "Countersign-Draft",
        "Countersign-Status",
        "Countersign-Receipt",
        "Countersign-Replayed",
        "Countersign-Confirmation-Token",
    ] {
        let answer = guard.agent().with(name, "succeeded").post("/tasks", &json!({"title": "already approved"}));
        assert_eq!(answer.status, 400, "{name}: {}", answer.text());
    }
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn without_configured_identities_everyone_is_local_and_the_made_up_approver_decides() {
    let upstream = Upstream::start();
    let guard = Setup::local(&upstream).start();
    let draft = guard.anyone().hold_task("for myself");
    exchange(guard.control_address(), &Approver::confirm_request(&draft)).must_refuse(401, "CREDENTIAL_UNKNOWN");
    let link = guard.console_link().expect("a one-time console link").to_owned();
    assert!(link.starts_with(&guard.control_url()), "{link}");
    assert!(link.contains('#'), "the code is in the fragment: {link}");
    guard.anyone().get("/tasks").must_be(200);
    assert_eq!(upstream.all_effects(), 0);
}
