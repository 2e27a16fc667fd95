//! The same call again: the caller's key, joins and replays. One intent, one draft, one effect.

use std::sync::Barrier;
use std::thread;

use serde_json::{Value, json};

use crate::support::{Answer, Draft, Guard, Request, Setup, Upstream, raw, tokens};

#[test]
fn one_key_with_other_args_is_refused_while_pending_and_after() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let agent = guard.agent().keyed("k-1");
    let draft = agent.hold("/pay", &json!({"to": "a", "amount": 1}));
    let mismatch = agent.post("/pay", &json!({"to": "a", "amount": 2}));
    assert_eq!(mismatch.header("x-should-retry"), Some("false"));
    let problem = mismatch.must_refuse(422, "IDEMPOTENCY_KEY_REUSED");
    assert_eq!(problem["executed"], false, "{problem}");
    assert_eq!(agent.hold("/pay", &json!({"to": "a", "amount": 1})), draft);
    assert_eq!(guard.approver().list("status=pending").len(), 1);
    guard.approver().confirm_fully(&draft);
    agent.post("/pay", &json!({"to": "a", "amount": 2})).must_refuse(422, "IDEMPOTENCY_KEY_REUSED");
    assert_eq!(upstream.effects("/pay"), 1);
}

#[test]
fn fifty_first_uses_of_one_key_at_once_make_one_draft() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    for keyed in [true, false] {
        let agent = if keyed { guard.agent().keyed("first-use") } else { guard.agent() };
        let body = json!({"to": "a", "amount": if keyed { 3 } else { 4 }});
        let barrier = Barrier::new(50);
        let answers = thread::scope(|scope| {
            let calls: Vec<_> = (0..50)
                .map(|_| {
                    let (agent, body, barrier) = (&agent, &body, &barrier);
                    scope.spawn(move || {
                        barrier.wait();
                        agent.post("/pay", body)
                    })
                })
                .collect();
            calls.into_iter().map(|call| call.join().expect("a caller")).collect::<Vec<_>>()
        });
        let drafts: Vec<Draft> = answers.into_iter().map(|answer| Draft::from(&answer.must_be(202))).collect();
        assert!(drafts.iter().all(|draft| *draft == drafts[0]), "keyed: {keyed}");
        guard.approver().confirm_fully(&drafts[0]);
    }
    assert_eq!(upstream.effects("/pay"), 2);
}

#[test]
fn equal_keys_of_two_owners_agents_or_tenants_never_meet() {
    let upstream = Upstream::start();
    upstream.answers("/free/x", Answer::json(201, "{\"for\":\"the first one only\"}"));
    let guard = Guard::over(&upstream);
    let body = json!({"n": 1});
    let first = guard.agent().keyed("1").hold("/free/x", &body);
    guard.approver().confirm_fully(&first);
    let strangers =
        [guard.agent().for_owner("u-18"), guard.agent_with(tokens::NIGHT_BOT), guard.agent_with(tokens::FAR_BOT)];
    let mut ids = vec![first.id.clone()];
    for stranger in strangers {
        let answer = stranger.keyed("1").post("/free/x", &body).must_be(202);
        assert!(!answer.text().contains("the first one only"), "{}", answer.text());
        ids.push(Draft::from(&answer).id);
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 4, "everyone has a draft of their own");
    let replay = guard.agent().keyed("1").post("/free/x", &body).must_be(201);
    assert_eq!(replay.header("Countersign-Replayed"), Some("true"));
    assert_eq!(upstream.effects("/free/x"), 1);
}

#[test]
fn a_replay_says_that_it_is_one_also_for_a_stored_failure() {
    let upstream = Upstream::start();
    upstream.answers("/free/bad", Answer::json(400, "{\"error\":\"no such colour\"}"));
    let guard = Guard::over(&upstream);
    for agent in [guard.agent().keyed("k-400"), guard.agent().for_owner("u-18")] {
        let draft = agent.hold("/free/bad", &json!({"colour": "loud"}));
        guard.approver().confirm(&draft).must_be(200);
        let mut executed_at = None;
        for _ in 0..3 {
            let replay = agent.post("/free/bad", &json!({"colour": "loud"})).must_be(400);
            assert_eq!(replay.text(), "{\"error\":\"no such colour\"}");
            assert_eq!(replay.header("Countersign-Replayed"), Some("true"));
            let at = replay.header("Countersign-Executed-At").expect("when").to_owned();
            assert_eq!(*executed_at.get_or_insert(at.clone()), at, "the original time, every time");
        }
        let anew = agent.keyed("another key").hold("/free/bad", &json!({"colour": "loud"}));
        assert_ne!(anew.id, draft.id, "a new key asks anew");
    }
    assert_eq!(upstream.effects("/free/bad"), 2);
}

#[test]
fn odd_keys_are_refused_cleanly_and_legal_ones_never_mixed_up() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let agent = guard.agent();
    let longest = "k".repeat(255);
    let refused: &[&str] = &["", &"k".repeat(256), &"k".repeat(10_000), "k\tk", "\"\"", "\"unended"];
    for key in refused {
        agent.keyed(key).post("/tasks", &json!({"title": "odd key"})).must_refuse(400, "IDEMPOTENCY_KEY_INVALID");
    }
    let twice = agent.dress(
        Request::post("/tasks")
            .header("Idempotency-Key", "a")
            .header("idempotency-key", "b")
            .json(&json!({"title": "t"})),
    );
    raw(guard.agent_address(), &twice.to_bytes("desk")).expect("an answer").must_refuse(400, "IDEMPOTENCY_KEY_INVALID");
    for control in ["k\u{1}k", "k\u{7f}k"] {
        let answer = raw(
            guard.agent_address(),
            &agent.keyed(control).dress(Request::post("/tasks").json(&json!({"title": "t"}))).to_bytes("desk"),
        );
        let answer = answer.unwrap_or_else(|| panic!("{control:?}: closed without an answer"));
        assert_eq!(answer.status, 400, "{control:?}: {}", answer.text());
    }
    assert_eq!(guard.approver().list("").len(), 0);

    let legal = ["a}{b", "b", "{x}", "*", "a:b", "../..", "ключ", "k1, k2", "' OR 1=1 --", "%s%n", longest.as_str()];
    let mut ids: Vec<String> = Vec::new();
    for (n, key) in legal.iter().enumerate() {
        let draft = agent.keyed(key).hold("/tasks", &json!({"title": format!("legal {n}")}));
        assert_eq!(agent.keyed(key).hold("/tasks", &json!({"title": format!("legal {n}")})), draft, "{key:?}");
        ids.push(draft.id);
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), legal.len());
    let bare = agent.keyed("same-text").hold("/tasks", &json!({"title": "quoted"}));
    assert_eq!(
        agent.keyed("\"same-text\"").hold("/tasks", &json!({"title": "quoted"})),
        bare,
        "an RFC 8941 string is the same key"
    );
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn an_equal_call_joins_the_pending_draft_whatever_its_key_order_space_or_session() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let agent = guard.agent();
    let send =
        |body: &str| Draft::from(&agent.send(Request::post("/free/j").body("application/json", body)).must_be(202));
    let first = send("{\"a\":1,\"b\":{\"d\":4,\"c\":3}}");
    assert_eq!(send("{ \"b\" : {\"c\":3, \"d\":4},\n \"a\":1.0 }"), first);
    let other_session = agent
        .in_session("s-2")
        .send(Request::post("/free/j").body("application/json", "{\"a\":1,\"b\":{\"c\":3,\"d\":4}}"));
    assert_eq!(Draft::from(&other_session), first);
    for different in [
        "{\"a\":1,\"b\":{\"c\":3,\"d\":5}}",
        "{\"a\":1,\"b\":{\"c\":3,\"d\":null}}",
        "{\"a\":1,\"b\":{\"c\":3}}",
        "{\"a\":\"1\",\"b\":{\"c\":3,\"d\":4}}",
    ] {
        assert_ne!(send(different), first, "{different}");
    }
    let elsewhere =
        agent.send(Request::post("/free/j?x=1").body("application/json", "{\"a\":1,\"b\":{\"c\":3,\"d\":4}}"));
    assert_ne!(Draft::from(&elsewhere), first, "the query is part of the call");
    let put = agent.send(Request::new("PUT", "/free/j").body("application/json", "{\"a\":1,\"b\":{\"c\":3,\"d\":4}}"));
    assert_ne!(Draft::from(&put), first, "the method is part of the call");
    guard.approver().confirm_fully(&first);
    let sent = upstream.the_one("/free/j");
    assert_eq!(sent.body, b"{\"a\":1,\"b\":{\"d\":4,\"c\":3}}", "the first draft's bytes are the ones sent");
    let replay =
        agent.send(Request::post("/free/j").body("application/json", "{\"b\":{\"c\":3,\"d\":4},\"a\":1}")).must_be(201);
    assert_eq!(replay.header("Countersign-Draft"), Some(first.id.as_str()));
}

#[test]
fn a_key_of_its_own_is_an_intent_of_its_own() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let keyless = guard.agent().hold_task("twice on purpose");
    let keyed = guard.agent().keyed("second").hold_task("twice on purpose");
    let third = guard.agent().keyed("third").hold_task("twice on purpose");
    assert_ne!(keyed.id, third.id);
    assert_ne!(keyless.id, keyed.id);
    for draft in [&keyless, &keyed, &third] {
        guard.approver().confirm_fully(draft);
    }
    assert_eq!(upstream.effects("/tasks"), 3);
}

#[test]
fn after_the_replay_window_an_equal_call_is_new_and_flagged() {
    let upstream = Upstream::start();
    let guard = Setup::over(&upstream).desk_with("    ttl: 5m\n", "    ttl: 5m\n    replay_window: 0s\n").start();
    let agent = guard.agent();
    let draft = agent.hold_task("buy milk");
    guard.approver().confirm_fully(&draft);
    let collected = agent.post("/tasks", &json!({"title": "buy milk"})).must_be(201);
    assert_eq!(collected.header("Countersign-Replayed"), Some("true"), "uncollected results are kept for the agent");
    let again = agent.post("/tasks", &json!({"title": "buy milk"})).must_be(202).json();
    assert_eq!(again["possible_duplicate_of"], draft.id.as_str(), "{again}");
    assert_ne!(again["draft_id"], draft.id.as_str());
    assert_eq!(guard.draft(again["draft_id"].as_str().unwrap_or_default())["possible_duplicate_of"], draft.id.as_str());
    assert_eq!(upstream.effects("/tasks"), 1);
    guard.approver().confirm_fully(&Draft {
        id: again["draft_id"].as_str().unwrap_or_default().into(),
        args_hash: draft.args_hash,
    });
    assert_eq!(upstream.effects("/tasks"), 2);
}

#[test]
fn a_head_of_the_result_collects_nothing() {
    let upstream = Upstream::start();
    let guard = Setup::over(&upstream).desk_with("    ttl: 5m\n", "    ttl: 5m\n    replay_window: 0s\n").start();
    let agent = guard.agent();
    let draft = agent.hold_task("looked at");
    guard.approver().confirm_fully(&draft);
    let head = agent.send(Request::new("HEAD", &draft.result_path()));
    assert_eq!((head.status, head.body.len()), (201, 0));
    agent.post("/tasks", &json!({"title": "looked at"})).must_be(201);
    agent.post("/tasks", &json!({"title": "looked at"})).must_be(202);
}

#[test]
fn a_persons_no_answers_the_next_equal_call_too() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    for agent in [guard.agent(), guard.agent().keyed("no-1").for_owner("u-18")] {
        let draft = agent.hold_task("unwanted");
        guard.approver().reject(&draft, "we do not need it").must_be(200);
        let problem = agent.post("/tasks", &json!({"title": "unwanted"})).must_refuse(403, "DRAFT_REJECTED");
        assert!(problem.to_string().contains("we do not need it"), "{problem}");
        assert_eq!(problem["draft_id"], draft.id.as_str());
        assert_eq!(guard.approver().list("status=pending").len(), 0);
    }
    let other = guard.agent().for_owner("u-19").hold_task("unwanted");
    guard.approver().confirm_fully(&other);
    assert_eq!(upstream.effects("/tasks"), 1);
}

#[test]
fn limits_per_owner_are_kept_and_said() {
    let upstream = Upstream::start();
    let guard = Setup::over(&upstream).section("limits", "{pending_per_owner: 3, holds_per_owner: 5/1m}").start();
    let agent = guard.agent();
    let drafts: Vec<Draft> = (0..3).map(|n| agent.hold_task(&format!("limit {n}"))).collect();
    let problem = agent.post("/tasks", &json!({"title": "one too many"})).must_refuse(429, "TOO_MANY_PENDING");
    assert_eq!((&problem["executed"], &problem["safe_to_retry"]), (&json!(false), &Value::Bool(true)), "{problem}");
    assert_eq!(agent.hold_task("limit 0"), drafts[0], "a join is not a new draft");
    agent.for_owner("u-18").hold_task("somebody else has room");
    for draft in &drafts {
        guard.approver().reject(draft, "make room").must_be(200);
    }
    agent.hold_task("limit 3");
    agent.hold_task("limit 4");
    agent.post("/tasks", &json!({"title": "limit 5"})).must_refuse(429, "RATE_LIMITED");
    assert_eq!(upstream.heads(), 0);
}
