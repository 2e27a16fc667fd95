//! A server that would forget, or that holds the drafts of other keys, is no store: at the start it is
//! refused, later nothing is written until it is right again.

use serde_json::{Value, json};

use super::{DURABLE, alone, wiped};
use crate::support::{Guard, Redis, Setup, Upstream, eventually, until};

#[test]
fn a_second_guard_with_other_keys_does_not_start_and_says_why() {
    let (mut first, redis, upstream) = alone("", |setup| setup);
    let draft = first.agent().hold_task("of the first keys");
    let ended = Setup::over(&upstream).on_redis(&redis, "").start_in_vain();
    assert_eq!(ended.status.code(), Some(2), "{}", ended.said());
    let why = ended.error();
    assert!(why.contains("was made with other keys than those in") && why.contains("countersign.keys"), "{why}");
    assert!(ended.said().contains("copy the one of the guard that used the store first"), "{}", ended.said());
    first.must_be_alive();
    first.approver().confirm_fully(&draft);
    let second = Setup::over(&upstream).on_redis(&redis, "").with_keys_of(&first).start();
    assert_eq!(second.approver().confirm(&draft).must_be(200).json()["replayed"], true);
    assert_eq!(upstream.effects("/tasks"), 1);
}

#[test]
fn a_server_that_lost_everything_is_still_of_the_keys_that_use_it() {
    let (first, mut redis, upstream) = alone("", |setup| setup);
    wiped(&mut redis);
    until("the guard uses the empty server", || first.control_get("/readyz").status == 200);
    assert!(first.printed().contains("every draft that waited is gone"), "{}", first.printed());
    assert_eq!(first.metrics().sum("countersign_store_errors_total", &["kind=\"emptied\""]), 1.0);
    let ended = Setup::over(&upstream).on_redis(&redis, "").start_in_vain();
    assert_eq!(ended.status.code(), Some(2), "{}", ended.said());
    assert!(ended.error().contains("other keys"), "{}", ended.error());

    // Where somebody else was quicker, what this guard would write there could not be read by them.
    redis.command(&["SET", "cs:{0}:keys", &format!("2 {}", "0".repeat(64))]);
    until("the guard has noticed it", || first.control_get("/readyz").status == 503);
    first.agent().post("/tasks", &json!({"title": "no"})).must_refuse(503, "CONFIRMATION_SERVICE_UNAVAILABLE");
    assert!(first.printed().contains("other keys"), "{}", first.printed());
}

/// One line with a score of its own hides all lines of an index: nothing is held beside a call that was made
/// before, and what to do is said.
#[test]
fn an_index_that_somebody_wrote_into_is_told_and_nothing_is_made_twice() {
    let (guard, redis, upstream) = alone("", |setup| setup);
    let draft = guard.agent().hold_task("once");
    guard.approver().confirm_fully(&draft);
    let index = format!("cs:{{{}}}:ix", &draft.id[3..4]);
    for score in ["5", "-1"] {
        redis.command(&["ZADD", &index, score, "a"]);
        until("the guard has noticed it", || guard.control_get("/readyz").status == 503);
        let problem = guard.agent().post("/tasks", &json!({"title": "once"}));
        problem.must_refuse(503, "CONFIRMATION_SERVICE_UNAVAILABLE");
        assert!(guard.printed().contains("ZRANGEBYSCORE"), "{}", guard.printed());
        redis.command(&["ZREMRANGEBYSCORE", &index, "-inf", "(0"]);
        redis.command(&["ZREMRANGEBYSCORE", &index, "(0", "+inf"]);
        until("it is ready again", || guard.control_get("/readyz").status == 200);
    }
    guard.agent().post("/tasks", &json!({"title": "once"})).must_be(201);
    assert_eq!(upstream.effects("/tasks"), 1);
}

/// A user that may do everything but run scripts can hold nothing.
#[test]
fn a_user_without_scripts_is_refused_at_the_start() {
    let (redis, upstream) = (Redis::start_on_tcp(&DURABLE), Upstream::start());
    redis.command(&["ACL", "SETUSER", "guard", "on", ">secret", "~cs:*", "&cs:*", "+@all", "-@scripting"]);
    let url = format!("redis://guard:secret@127.0.0.1:{}", redis.port());
    let ended = Setup::over(&upstream).section("store", &format!("{{url: \"{url}\"}}")).start_in_vain();
    assert_eq!(ended.status.code(), Some(3), "{}", ended.said());
    assert!(ended.error().contains("evalsha"), "{}", ended.error());
    let url = format!("redis://guard:wrong@127.0.0.1:{}", redis.port());
    let ended = Setup::over(&upstream).section("store", &format!("{{url: \"{url}\"}}")).start_in_vain();
    assert!(ended.error().contains("its user or password is wrong"), "{}", ended.error());
}

#[test]
fn a_server_that_forgets_is_refused_at_the_start_with_what_to_do() {
    let upstream = Upstream::start();
    let told = |options: &[&str], store: &str| {
        let redis = Redis::start_on_tcp(options);
        let ended = Setup::over(&upstream).on_redis(&redis, store).start_in_vain();
        assert_eq!(ended.status.code(), Some(3), "{}", ended.said());
        assert!(!ended.stdout.contains("\"ready\":true"), "{}", ended.stdout);
        ended.error()
    };
    let evicting = ["--appendonly", "yes", "--maxmemory-policy", "allkeys-lru"];
    let why = told(&evicting, "");
    assert!(why.contains("allkeys-lru") && why.contains("set `maxmemory-policy noeviction`"), "{why}");
    assert!(!why.contains("append-only"), "{why}");
    let why = told(&["--maxmemory-policy", "volatile-ttl"], "");
    assert!(why.contains("volatile-ttl") && why.contains("set `appendonly yes`"), "both at once: {why}");
    // Replicas stand in for the file, nothing stands in for the memory.
    let why = told(&["--maxmemory-policy", "allkeys-lfu"], "min_replica_acks: 1");
    assert!(why.contains("allkeys-lfu") && !why.contains("append-only"), "{why}");
    // Words that vouch do not count where the server says otherwise.
    let why = told(&evicting, "assume: [noeviction, durable]");
    assert!(why.contains("allkeys-lru"), "{why}");
    assert_eq!(upstream.heads(), 0);
}

/// A server with the user `guard`, who may do what `rules` say, and the section `store` for it.
fn with_user(rules: &[&str], more: &str) -> (Redis, String) {
    let redis = Redis::start_on_tcp(&DURABLE);
    let mut words = vec!["ACL", "SETUSER", "guard", "on", ">pass-word-of-the-guard"];
    words.extend(rules);
    redis.command(&words);
    let url = format!("redis://guard:pass-word-of-the-guard@127.0.0.1:{}/0", redis.port());
    (redis, format!("{{url: \"{url}\", {more}}}"))
}

fn works(guard: &Guard, upstream: &Upstream) {
    let draft = guard.agent().hold_task("with few rights");
    guard.draft(&draft.id);
    guard.approver().confirm_fully(&draft);
    guard.agent().result(&draft).must_be(201);
    guard.approver().list("status=succeeded");
    guard.control_get("/readyz").must_be(200);
    assert_eq!(guard.metrics().sum("countersign_store_errors_total", &[]), 0.0, "{}", guard.metrics().text());
    assert_eq!(upstream.effects("/tasks"), 1);
}

#[test]
fn the_documented_user_of_the_server_is_enough() {
    let upstream = Upstream::start();
    let rules = ["+@all", "-@dangerous", "+info", "+config|get", "~cs:*", "&cs:*"];
    let (_redis, store) = with_user(&rules, "");
    let guard = Setup::over(&upstream).section("store", &store).start();
    works(&guard, &upstream);
    assert!(!guard.printed().contains("hints of other nodes are not heard"), "{}", guard.printed());
    assert!(!guard.printed().contains("pass-word"), "{}", guard.printed());
}

#[test]
fn a_server_that_does_not_let_itself_be_asked_has_to_be_vouched_for() {
    let upstream = Upstream::start();
    let rules = ["+@all", "-@dangerous", "~cs:*", "&cs:*"];
    let (_redis, store) = with_user(&rules, "");
    let ended = Setup::over(&upstream).section("store", &store).start_in_vain();
    assert_eq!(ended.status.code(), Some(3), "{}", ended.said());
    let why = ended.error();
    for word in ["maxmemory-policy", "appendonly", "store.assume: [noeviction]", "store.assume: [durable]"] {
        assert!(why.contains(word), "{word}: {why}");
    }
    assert!(!ended.said().contains("pass-word"), "{}", ended.said());
    let (_redis, store) = with_user(&rules, "assume: [noeviction, durable]");
    works(&Setup::over(&upstream).section("store", &store).start(), &upstream);
}

fn told_of(guard: &Guard, kind: &str) -> f64 {
    guard.metrics().sum("countersign_store_errors_total", &[&format!("kind=\"{kind}\"")])
}

#[test]
fn a_server_that_is_turned_into_a_cache_takes_no_more_writes_until_it_is_none() {
    let (mut guard, redis, upstream) = alone("", |setup| setup);
    let (agent, approver) = (guard.agent(), guard.approver());
    let draft = agent.hold_task("held before");
    redis.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let ready = eventually("the guard has noticed it", || {
        let answer = guard.control_get("/readyz");
        (answer.status == 503).then(|| answer.json())
    });
    assert!(ready["reason"].to_string().contains("The store takes no writes"), "{ready}");
    let problem = agent.post("/tasks", &json!({"title": "no"})).must_refuse(503, "CONFIRMATION_SERVICE_UNAVAILABLE");
    assert_eq!((&problem["executed"], &problem["safe_to_retry"]), (&json!(false), &json!(true)), "{problem}");
    let problem = approver.confirm(&draft).must_refuse(503, "DECISION_UNCERTAIN");
    assert_eq!(problem["executed"], "unknown", "{problem}");
    approver.reject(&draft, "no").must_refuse(503, "DECISION_UNCERTAIN");
    agent.get("/tasks").must_be(200);
    assert_eq!(guard.draft(&draft.id)["status"], "pending");
    assert_eq!(upstream.all_effects(), 0);
    assert!(told_of(&guard, "unfit") >= 3.0, "{}", guard.metrics().text());
    assert!(guard.printed().contains("allkeys-lru"), "the log says which: {}", guard.printed());

    redis.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    until("the guard is ready again", || guard.control_get("/readyz").status == 200);
    approver.confirm_fully(&draft);
    let anew = agent.hold_task("no");
    approver.confirm_fully(&anew);
    assert_eq!(upstream.effects("/tasks"), 2);
    guard.must_be_alive();
}

#[test]
fn nobody_has_to_ask_for_it_to_be_noticed() {
    let (guard, redis, upstream) = alone("", |setup| setup);
    let call = || guard.agent().post("/tasks", &json!({"title": "again and again"}));
    call().must_be(202);
    redis.command(&["CONFIG", "SET", "appendonly", "no"]);
    let refused = eventually("the look has noticed it", || {
        let answer = call();
        (answer.status != 202).then_some(answer)
    });
    refused.must_refuse(503, "CONFIRMATION_SERVICE_UNAVAILABLE");
    redis.command(&["CONFIG", "SET", "appendonly", "yes"]);
    let held: Value = eventually("the look has noticed that it is right again", || {
        let answer = call();
        (answer.status == 202).then(|| answer.json())
    });
    assert_eq!(guard.approver().list("status=pending").len(), 1, "{held}");
    assert_eq!(upstream.all_effects(), 0);
}
