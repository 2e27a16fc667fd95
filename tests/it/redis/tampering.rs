//! Whoever can write to the server can neither alter what is sent nor have it sent unconfirmed: the
//! records, what finds them, and older copies of them.

use std::collections::BTreeMap;

use serde_json::json;

use super::{
    Pair, SHORT_LEASE, alone, brisk, ended, field, found_by, in_partition, key_of, lead, lead_no_more, mislead,
    start_confirming,
};
use crate::support::{Draft, Guard, Redis, Request, sha256_hex, tokens, until};

/// The lines of the field `fixed`, which never change, by their names.
const FIXED: [&str; 15] = [
    "tenant",
    "owner",
    "initiator",
    "service",
    "tool",
    "capability",
    "risk",
    "args_hash",
    "created_at",
    "expires_at",
    "sealed_digest",
    "token",
    "join",
    "replay_ms",
    "refusal_ms",
];

/// A draft's hash, as it stands.
type Copy = Vec<Vec<u8>>;

fn copy(redis: &Redis, draft: &Draft) -> Copy {
    let found = redis.command(&["HGETALL", &key_of(draft)]);
    let words = found.list().iter().map(|word| match word {
        crate::support::redis::Reply::Bulk(bytes) => bytes.clone(),
        other => panic!("a field: {other:?}"),
    });
    words.collect()
}

/// Puts an older copy back in place of what is there.
fn put_back(redis: &Redis, draft: &Draft, copy: &Copy) {
    redis.command(&["DEL", &key_of(draft)]);
    let mut words = vec![b"HSET".to_vec(), key_of(draft).into_bytes()];
    words.extend(copy.iter().cloned());
    redis.command(&words);
}

fn write(redis: &Redis, draft: &Draft, name: &str, value: &[u8]) {
    redis.command(&[b"HSET", key_of(draft).as_bytes(), name.as_bytes(), value]);
}

fn fixed(redis: &Redis, draft: &Draft, name: &str) -> String {
    let at = FIXED.iter().position(|known| *known == name).expect("a known line");
    field(redis, draft, "fixed").split('\n').nth(at).unwrap_or_default().to_owned()
}

fn write_fixed(redis: &Redis, draft: &Draft, name: &str, value: &str) {
    let text = field(redis, draft, "fixed");
    let lines = FIXED.iter().zip(text.split('\n')).map(|(known, line)| if *known == name { value } else { line });
    write(redis, draft, "fixed", lines.collect::<Vec<_>>().join("\n").as_bytes());
}

fn sealed(redis: &Redis, draft: &Draft) -> Vec<u8> {
    let copy = copy(redis, draft);
    let found = copy.chunks_exact(2).find(|pair| pair[0] == b"sealed").expect("sealed bytes");
    found[1].clone()
}

/// Another value of the same kind.
fn another(name: &str, value: &str) -> String {
    match name {
        "tenant" => "far".to_owned(),
        "initiator" => "night-bot".to_owned(),
        "tool" => "pay".to_owned(),
        "capability" => "money.send".to_owned(),
        "risk" => "high".to_owned(),
        "service" => "dusk".to_owned(),
        _ if value.len() == 64 => value.chars().rev().collect(),
        _ => (value.parse::<i64>().unwrap_or_default() + 3_600_000).to_string(),
    }
}

#[test]
fn p2_no_altered_field_gets_anything_sent_that_was_not_shown() {
    let (mut guard, redis, upstream) = alone("", |setup| setup);
    let mut told = BTreeMap::<String, String>::new();
    let mut attack = |what: &str, alter: &dyn Fn(&Draft)| {
        let draft = guard.agent().hold_task(what);
        alter(&draft);
        let answer = guard.approver().confirm(&draft);
        told.insert(what.to_owned(), format!("{} {}", answer.status, answer.code()));
    };
    for name in FIXED {
        attack(&format!("fixed {name}"), &|draft| {
            let value = another(name, &fixed(&redis, draft, name));
            write_fixed(&redis, draft, name, &value);
        });
    }
    for place in ["first", "middle", "last"] {
        attack(&format!("sealed {place}"), &|draft| {
            let mut bytes = sealed(&redis, draft);
            let at = match place {
                "first" => 0,
                "middle" => bytes.len() / 2,
                _ => bytes.len() - 1,
            };
            bytes[at] ^= 1;
            write(&redis, draft, "sealed", &bytes);
            // The digest beside it agrees.
            write_fixed(&redis, draft, "sealed_digest", &sha256_hex(&bytes));
        });
    }
    for state in [
        "running/claimed",
        "running/sending",
        "verifying",
        "succeeded",
        "failed",
        "unverifiable",
        "rejected",
        "expired",
        "withdrawn",
        "nonsense",
        "",
    ] {
        attack(&format!("state {state}"), &|draft| write(&redis, draft, "state", state.as_bytes()));
    }
    for (name, value) in
        [("epoch", "1"), ("epoch", "-1"), ("attempts", "x"), ("n", "1e9"), ("votes", "{}"), ("r_reason", "no")]
    {
        attack(&format!("{name} {value}"), &|draft| write(&redis, draft, name, value.as_bytes()));
    }
    for name in ["fixed", "state", "epoch", "attempts", "sealed"] {
        attack(&format!("without {name}"), &|draft| drop(redis.command(&["HDEL", &key_of(draft), name])));
    }
    // How long a later equal call is answered from this draft changes nothing of what is sent.
    for name in ["fixed replay_ms", "fixed refusal_ms"] {
        assert_eq!(told.remove(name).as_deref(), Some("200 "), "{name}");
    }
    for seen in upstream.seen() {
        let body = String::from_utf8_lossy(&seen.body).into_owned();
        assert!(body.contains("replay_ms") || body.contains("refusal_ms"), "never confirmed: {body}");
    }
    assert_eq!(upstream.all_effects(), 2);
    // Approvers of a tenant hear of its drafts alone.
    assert_eq!(told.remove("fixed tenant").as_deref(), Some("404 DRAFT_NOT_FOUND"));
    told.retain(|_, answer| answer != "409 DRAFT_INTEGRITY_FAILED");
    assert!(told.is_empty(), "altered and believed: {told:#?}");
    guard.must_be_alive();
    let sound = guard.agent().hold_task("sound");
    guard.approver().confirm_fully(&sound);
}

#[test]
fn p2_swapped_bodies_send_neither() {
    let (guard, redis, upstream) = alone("", |setup| setup);
    let pay = |amount: u32| guard.agent().hold("/pay", &json!({"to": "a", "amount": amount}));
    let (small, large) = (pay(1), pay(1_000_000));
    let (sealed_small, sealed_large) = (sealed(&redis, &small), sealed(&redis, &large));
    for whole in [false, true] {
        for (draft, other, bytes) in [(&small, &large, &sealed_large), (&large, &small, &sealed_small)] {
            write(&redis, draft, "sealed", bytes);
            write_fixed(&redis, draft, "sealed_digest", &sha256_hex(bytes));
            if whole {
                // Everything of the other one but its name.
                write_fixed(&redis, draft, "args_hash", &other.args_hash);
            }
        }
        for draft in [&small, &large] {
            for seen in [&small, &large] {
                let confirm = Draft { id: draft.id.clone(), args_hash: seen.args_hash.clone() };
                let answer = guard.approver().confirm(&confirm);
                let refused = ["DRAFT_INTEGRITY_FAILED", "ARGS_HASH_MISMATCH"].contains(&answer.code().as_str());
                assert!(answer.status == 409 && refused, "{} {}", answer.status, answer.text());
            }
            guard.agent().status(draft).must_refuse(409, "DRAFT_INTEGRITY_FAILED");
        }
    }
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn p2_a_record_under_the_name_of_another_draft_is_neither_shown_nor_sent() {
    let pair = Pair::start();
    let (agent, approver) = (pair.one.agent(), pair.one.approver());
    let wanted = agent.hold("/pay", &json!({"to": "a", "amount": 1}));
    approver.confirm_fully(&wanted);
    let named = agent.hold("/pay", &json!({"to": "b", "amount": 2}));
    // Everything of a call that was sent, under the name and the token of one that waits: nothing in clear
    // contradicts the record.
    let token = fixed(&pair.redis, &named, "token");
    let record = sealed(&pair.redis, &wanted);
    write(&pair.redis, &named, "sealed", &record);
    write(&pair.redis, &named, "fixed", field(&pair.redis, &wanted, "fixed").as_bytes());
    write_fixed(&pair.redis, &named, "token", &token);
    assert_eq!(fixed(&pair.redis, &named, "sealed_digest"), sha256_hex(&record));
    for guard in [&pair.one, &pair.two] {
        for seen in [&wanted, &named] {
            let confirm = Draft { id: named.id.clone(), args_hash: seen.args_hash.clone() };
            let answer = guard.approver().confirm(&confirm);
            assert_eq!((answer.status, answer.code().as_str()), (409, "DRAFT_INTEGRITY_FAILED"), "{}", answer.text());
        }
        guard.agent().result(&named).must_refuse(409, "DRAFT_INTEGRITY_FAILED");
    }
    assert_eq!(pair.upstream.effects("/pay"), 1, "the first payment, once");
}

#[test]
fn p2_a_body_that_is_swapped_after_the_claim_is_not_sent_by_whoever_takes_it_over() {
    let mut pair = Pair::stopping_at("after_claim");
    let small = pair.one.agent().hold("/pay", &json!({"to": "a", "amount": 1}));
    let large = pair.one.agent().hold("/pay", &json!({"to": "a", "amount": 1_000_000}));
    let _wire = start_confirming(&pair.one, &small);
    pair.one.wait_at_point();
    pair.one.crash();
    let record = sealed(&pair.redis, &large);
    write(&pair.redis, &small, "sealed", &record);
    let token = fixed(&pair.redis, &small, "token");
    write(&pair.redis, &small, "fixed", field(&pair.redis, &large, "fixed").as_bytes());
    write_fixed(&pair.redis, &small, "token", &token);
    let taken = |guard: &Guard| guard.metrics().sum("countersign_take_overs_total", &[]);
    until("the other has taken it over twice", || taken(&pair.two) >= 2.0);
    pair.two.approver().confirm(&small).must_refuse(409, "DRAFT_INTEGRITY_FAILED");
    assert_eq!(pair.upstream.heads(), 0);
}

#[test]
fn p3_an_older_record_put_back_after_the_send_is_not_sent_again() {
    let (mut guard, redis, upstream) = alone("", |setup| setup);
    let draft = guard.agent().hold_task("sent once");
    let pending = copy(&redis, &draft);
    guard.approver().confirm_fully(&draft);
    for restart in [false, true] {
        put_back(&redis, &draft, &pending);
        if restart {
            guard.crash_and_restart();
        }
        guard.approver().confirm(&draft).must_refuse(504, "COMMIT_OUTCOME_UNKNOWN");
        assert_eq!(guard.draft(&draft.id)["status"], "unverifiable");
        // The same call again joins what nobody knows of, and offers nothing new.
        assert_eq!(guard.agent().hold_task("sent once"), draft);
        assert_eq!(upstream.effects("/tasks"), 1);
    }
    assert!(guard.metrics().sum("countersign_duplicate_release_total", &[]) >= 1.0);
}

#[test]
fn p5_a_no_to_an_older_record_that_was_put_back_does_not_make_it_unsent() {
    let (guard, redis, upstream) = alone("", |setup| setup);
    for withdrawn in [false, true] {
        let draft = guard.agent().hold_task(&format!("sent once {withdrawn}"));
        let pending = copy(&redis, &draft);
        guard.approver().confirm_fully(&draft);
        put_back(&redis, &draft, &pending);
        let answer = if withdrawn { guard.agent().withdraw(&draft) } else { guard.approver().reject(&draft, "no") };
        let problem = answer.must_refuse(409, "DRAFT_INTEGRITY_FAILED");
        assert_eq!((&problem["executed"], &problem["upstream_called"]), (&json!("unknown"), &json!(true)), "{problem}");
        let problem = guard.agent().result(&draft).must_refuse(409, "DRAFT_INTEGRITY_FAILED");
        assert_eq!(problem["executed"], "unknown", "{problem}");
    }
    assert_eq!(upstream.effects("/tasks"), 2);
}

#[test]
fn p3_the_claim_itself_put_back_after_its_send_is_not_sent_again() {
    let (mut guard, redis, upstream) = alone(SHORT_LEASE, |setup| brisk(setup).stopping_at("after_claim"));
    let draft = guard.agent().hold_task("sent once");
    let _wire = start_confirming(&guard, &draft);
    guard.wait_at_point();
    // That moment, word for word: a genuine vote, a claim of this process, and the lines that lead to it.
    let (claimed, lines) = (copy(&redis, &draft), found_by(&redis, &draft, ""));
    assert_eq!(
        (field(&redis, &draft, "state").as_str(), field(&redis, &draft, "attempts").as_str()),
        ("running/claimed", "0")
    );
    assert_eq!(ended(&guard, &draft)["status"], "succeeded");
    for restart in [false, true] {
        if restart {
            guard.crash();
        }
        for line in found_by(&redis, &draft, "") {
            lead_no_more(&redis, &draft, &line);
        }
        put_back(&redis, &draft, &claimed);
        lines.iter().for_each(|line| lead(&redis, &draft, line));
        if restart {
            guard.start_again();
        }
        let end = ended(&guard, &draft);
        assert_eq!((&end["status"], upstream.effects("/tasks")), (&json!("unverifiable"), 1), "{end}");
        guard.approver().confirm(&draft).must_refuse(504, "COMMIT_OUTCOME_UNKNOWN");
        assert!(guard.metrics().sum("countersign_duplicate_release_total", &[]) >= 1.0);
    }
    assert_eq!(upstream.heads(), 1);
}

#[test]
fn what_is_put_back_and_confirmed_again_at_another_guard_carries_the_same_effect_key() {
    let pair = Pair::start();
    let draft = pair.one.agent().hold_task("sent by the first");
    let pending = copy(&pair.redis, &draft);
    pair.one.approver().confirm_fully(&draft);
    put_back(&pair.redis, &draft, &pending);
    // The journal that knows of it is the first one's. A person has to confirm it again, and the origin is
    // told by the effect key that it is the same call.
    pair.two.approver().confirm(&draft);
    let mut sent: Vec<_> = pair.upstream.seen().into_iter().filter(|seen| seen.method == "POST").collect();
    assert!((1..=2).contains(&sent.len()), "{sent:?}");
    let keys: Vec<_> = sent.iter().map(|seen| seen.header("Idempotency-Key").expect("a key").to_owned()).collect();
    assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    let first = sent.remove(0);
    assert!(sent.iter().all(|seen| seen.body == first.body && seen.target == first.target));
}

#[test]
fn a_token_that_is_led_to_another_draft_decides_nothing() {
    let (guard, redis, upstream) = alone("", |setup| setup);
    let runtime = guard.agent_with(tokens::RUNTIME);
    let held = |title: &str| {
        let answer = runtime.post("/tasks", &json!({ "title": title })).must_be(202);
        let token = answer.header("Countersign-Confirmation-Token").expect("a token").to_owned();
        (Draft::from(&answer), token)
    };
    let ((harmless, token), (other, _)) = (held("harmless"), held("not seen by its owner"));
    let digest = fixed(&redis, &harmless, "token");
    let opens = in_partition(&harmless, &format!("t:{digest}"));
    redis.command(&["SET", &opens, &other.id]);
    guard.app().confirm(&token).must_refuse(409, "DRAFT_INTEGRITY_FAILED");
    guard.app().reject(&token, "no").must_refuse(409, "DRAFT_INTEGRITY_FAILED");
    // Nor where the other draft says that the token is its own.
    write_fixed(&redis, &other, "token", &digest);
    guard.app().confirm(&token).must_refuse(409, "DRAFT_INTEGRITY_FAILED");
    assert_eq!(upstream.heads(), 0);
    redis.command(&["SET", &opens, &harmless.id]);
    assert_eq!(guard.app().confirm(&token).must_be(200).json()["draft_id"], harmless.id.as_str());
    assert!(String::from_utf8_lossy(&upstream.the_one("/tasks").body).contains("harmless"));
}

#[test]
fn a_call_that_is_led_to_another_draft_is_not_answered_from_it() {
    let (guard, redis, upstream) = alone("", |setup| setup);
    let call = |key: Option<&str>, amount: u32| {
        let agent = key.map_or_else(|| guard.agent(), |key| guard.agent().keyed(key));
        agent.send(Request::post("/pay").json(&json!({"to": "a", "amount": amount})))
    };
    let held = |key, amount| Draft::from(&call(key, amount).must_be(202));
    let (keyed, other) = (held(Some("k-1"), 1), held(Some("k-2"), 2));
    let caller_key = field(&redis, &keyed, "ckey");
    mislead(&redis, &format!("k{} ", &caller_key[..31]), &keyed, &other);
    call(Some("k-1"), 1).must_refuse(409, "DRAFT_INTEGRITY_FAILED");
    // Everything in clear agrees: only the seal does not.
    write(&redis, &other, "ckey", caller_key.as_bytes());
    write_fixed(&redis, &other, "args_hash", &keyed.args_hash);
    call(Some("k-1"), 1).must_refuse(409, "DRAFT_INTEGRITY_FAILED");

    let (plain, joined) = (held(None, 3), held(None, 4));
    mislead(&redis, &format!("j{}a ", &fixed(&redis, &plain, "join")[..13]), &plain, &joined);
    call(None, 3).must_refuse(409, "DRAFT_INTEGRITY_FAILED");
    write_fixed(&redis, &joined, "join", &fixed(&redis, &plain, "join"));
    call(None, 3).must_refuse(409, "DRAFT_INTEGRITY_FAILED");
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn what_a_sweep_is_led_to_is_looked_at_again() {
    let (guard, redis, upstream) = alone("", |setup| setup);
    let draft = guard.agent().hold_task("waits");
    let pending = copy(&redis, &draft);
    for index in ["due", "lease", "ended"] {
        lead(&redis, &draft, &format!("{index} {:016} {}", 1, draft.id));
    }
    let sweeps = |guard: &Guard| guard.metrics().sum("countersign_store_seconds_count", &["step=\"due\""]);
    let before = sweeps(&guard);
    until("it was swept", || sweeps(&guard) >= before + 2.0);
    assert_eq!(copy(&redis, &draft).len(), pending.len());
    assert_eq!(guard.draft(&draft.id)["status"], "pending");
    guard.approver().confirm_fully(&draft);
    assert_eq!(upstream.effects("/tasks"), 1);
}
