//! Claims, votes and ends that somebody wrote into the server: no guard acts on them.

use serde_json::{Value, json};

use super::{Pair, alone, ended, field, key_of, lead, start_confirming};
use crate::support::{Act, Draft, Guard, Redis, Request, tokens, until};

fn write(redis: &Redis, draft: &Draft, fields: &[(&str, &str)]) {
    let mut words = vec!["HSET".to_owned(), key_of(draft)];
    words.extend(fields.iter().flat_map(|(name, value)| [(*name).to_owned(), (*value).to_owned()]));
    redis.command(&words);
}

/// Writes what a claim would write, by a process that is gone: the next sweep takes the draft over.
fn claim(redis: &Redis, draft: &Draft, state: &str, more: &[(&str, &str)]) {
    let created = redis.command(&["TIME"]).texts()[0].clone() + "000";
    let fields =
        [("state", state), ("epoch", "1"), ("claimed_at", &created), ("lease_until", "1"), ("lease_node", "nobody")];
    write(redis, draft, &[&fields, more].concat());
    lead(redis, draft, &format!("lease {:016} {}", 1, draft.id));
    lead(redis, draft, &format!("st running {}", draft.id));
}

/// The draft failed for `integrity`, unsent, and says so to everybody.
#[track_caller]
fn failed_for_integrity(guard: &Guard, draft: &Draft) {
    let failed = guard.draft_when(&draft.id, "failed");
    assert_eq!((&failed["failure"], &failed["intact"]), (&json!("integrity"), &json!(true)), "{failed}");
    let answer = guard.approver().confirm(draft).must_be(200).json();
    assert_eq!((&answer["failure"], &answer["executed"]), (&json!("integrity"), &json!(false)), "{answer}");
    let problem = guard.agent().result(draft).must_refuse(409, "DRAFT_INTEGRITY_FAILED");
    assert_eq!(problem["executed"], false, "{problem}");
}

/// A vote that nobody gave, in the form of a genuine one.
fn made_up(vote: &str) -> String {
    let mut vote: Value = serde_json::from_str(vote).expect("a vote");
    vote["mac"] = json!("ab".repeat(32));
    vote.to_string()
}

#[test]
fn p2_a_claim_that_was_written_without_a_vote_sends_nothing() {
    let pair = Pair::start();
    let draft = pair.one.agent().hold_task("nobody confirmed it");
    claim(&pair.redis, &draft, "running/claimed", &[]);
    failed_for_integrity(&pair.two, &draft);
    failed_for_integrity(&pair.one, &draft);
    assert_eq!(pair.upstream.heads(), 0);
}

#[test]
fn p2_votes_of_another_draft_and_votes_that_are_made_up_send_nothing() {
    let (mut guard, redis, upstream) = alone("", |setup| setup);
    let confirmed = guard.agent().hold_task("confirmed");
    guard.approver().confirm_fully(&confirmed);
    let genuine = field(&redis, &confirmed, "votes");
    let voter = field(&redis, &confirmed, "voters");
    for (n, vote) in [genuine.clone(), made_up(&genuine)].iter().enumerate() {
        let draft = guard.agent().hold_task(&format!("forged {n}"));
        claim(&redis, &draft, "running/claimed", &[("votes", vote), ("voters", &voter)]);
        failed_for_integrity(&guard, &draft);
    }
    // Beside a pending draft they do not count either.
    let pending = guard.agent().hold_task("pending");
    write(&redis, &pending, &[("votes", &made_up(&genuine)), ("voters", &voter)]);
    guard.approver().confirm(&pending).must_refuse(409, "DRAFT_INTEGRITY_FAILED");
    assert_eq!(upstream.effects("/tasks"), 1);
    assert!(guard.metrics().sum("countersign_integrity_failures_total", &[]) >= 3.0);
    guard.must_be_alive();
}

#[test]
fn a_sending_or_verifying_state_that_was_written_sends_nothing() {
    let (guard, redis, upstream) = alone("", |setup| setup);
    for state in ["running/sending", "verifying"] {
        let draft = guard.agent().hold_task(state);
        claim(&redis, &draft, state, &[("attempts", "1"), ("sent_at", "1")]);
        until("somebody has looked at it", || field(&redis, &draft, "state") == "unverifiable");
        guard.approver().confirm(&draft).must_refuse(409, "DRAFT_INTEGRITY_FAILED");
        guard.agent().result(&draft).must_refuse(409, "DRAFT_INTEGRITY_FAILED");
    }
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn p2_a_claim_whose_vote_was_deleted_is_not_sent_by_whoever_takes_it_over() {
    let mut pair = Pair::stopping_at("after_claim");
    let draft = pair.one.agent().hold_task("confirmed, then the vote is gone");
    let _wire = start_confirming(&pair.one, &draft);
    pair.one.wait_at_point();
    pair.one.crash();
    pair.redis.command(&["HDEL", &key_of(&draft), "votes", "voters"]);
    failed_for_integrity(&pair.two, &draft);
    assert_eq!(pair.upstream.heads(), 0);
}

#[test]
fn a_vote_that_was_deleted_or_altered_later_takes_the_outcome_with_it() {
    let (guard, redis, upstream) = alone("", |setup| setup);
    let genuine = guard.agent().hold_task("genuine");
    guard.approver().confirm_fully(&genuine);
    let vote = field(&redis, &genuine, "votes");
    for alteration in [None, Some(made_up(&vote)), Some(vote.replace("alice", "bob"))] {
        let draft = guard.agent().hold_task(&format!("{alteration:?}").chars().take(100).collect::<String>());
        guard.approver().confirm_fully(&draft);
        match alteration {
            None => drop(redis.command(&["HDEL", &key_of(&draft), "votes", "voters"])),
            Some(vote) => {
                let voter = if vote.contains("bob") { "bob" } else { "alice" };
                write(&redis, &draft, &[("votes", &vote), ("voters", voter)]);
            }
        }
        guard.approver().confirm(&draft).must_refuse(409, "DRAFT_INTEGRITY_FAILED");
        guard.agent().result(&draft).must_refuse(409, "DRAFT_INTEGRITY_FAILED");
    }
    assert_eq!(upstream.effects("/tasks"), 4);
}

#[test]
fn p6_no_end_can_be_written_into_the_server() {
    let pair = Pair::start();
    let (agent, approver) = (pair.one.agent(), pair.two.approver());
    let done = agent.hold_task("carried out");
    approver.confirm_fully(&done);
    pair.upstream.on("/free/unknown", Act::CloseAfterRead);
    let call = || agent.send(Request::post("/free/unknown").json(&json!({"n": 1})));
    let unknown = Draft::from(&call().must_be(202));
    approver.confirm(&unknown).must_refuse(504, "COMMIT_OUTCOME_UNKNOWN");
    let pending = agent.hold_task("nobody decided");
    let effects = pair.upstream.all_effects();

    let receipt = field(&pair.redis, &done, "receipt");
    let (outcome, line) = (field(&pair.redis, &done, "outcome"), field(&pair.redis, &done, "out_ev"));
    // What nobody knows becomes what is offered again.
    write(&pair.redis, &unknown, &[("state", "failed"), ("failure", "not_sent"), ("receipt", &receipt)]);
    // A receipt says more than it did.
    let more = receipt.replace("The task was added.", "And paid.");
    assert_ne!(more, receipt);
    write(&pair.redis, &done, &[("receipt", &more)]);
    // Nobody carried it out, with the genuine proof of another one.
    let proof = [("outcome", outcome.as_str()), ("out_ev", &line), ("evidence", &line), ("receipt", &receipt)];
    let end = [("state", "succeeded"), ("epoch", "1"), ("ended_at", "1")];
    write(&pair.redis, &pending, &[&proof[..], &end[..]].concat());
    for draft in [&unknown, &done, &pending] {
        for guard in [&pair.one, &pair.two] {
            let (agent, approver) = (guard.agent(), guard.approver());
            for answer in [
                agent.status(draft),
                agent.result(draft),
                approver.confirm(draft),
                approver.reject(draft, "no"),
                approver.again(draft),
                approver.resolve(draft, "succeeded", "I looked"),
            ] {
                let problem = answer.must_refuse(409, "DRAFT_INTEGRITY_FAILED");
                assert!(problem.get("receipt").is_none(), "{problem}");
            }
        }
    }
    agent.post("/tasks", &json!({"title": "nobody decided"})).must_refuse(409, "DRAFT_INTEGRITY_FAILED");
    agent.post("/tasks", &json!({"title": "carried out"})).must_refuse(409, "DRAFT_INTEGRITY_FAILED");
    call().must_refuse(409, "DRAFT_INTEGRITY_FAILED");
    assert_eq!(pair.upstream.all_effects(), effects);
}

#[test]
fn p3_an_ended_draft_written_back_to_claimed_is_not_sent_again() {
    let (mut guard, redis, upstream) = alone("", |setup| setup);
    let draft = guard.agent().hold_task("sent once");
    guard.approver().confirm_fully(&draft);
    // The vote in it is genuine: only the journal knows that it was used.
    let gone = ["receipt", "outcome", "out_ev", "evidence", "ended_at", "sent_at", "kept", "response", "m:settle"];
    redis.command(&[&["HDEL", &key_of(&draft)], &gone[..]].concat());
    claim(&redis, &draft, "running/claimed", &[("attempts", "0")]);
    let end = ended(&guard, &draft);
    assert_eq!(end["status"], "unverifiable", "{end}");
    assert_eq!(upstream.effects("/tasks"), 1);
    assert!(guard.metrics().sum("countersign_duplicate_release_total", &[]) >= 1.0);
    guard.must_be_alive();
}

#[test]
fn p5_an_old_claim_written_over_what_was_sent_does_not_make_it_unsent() {
    let (guard, redis, upstream) = alone("", |setup| setup);
    let draft = guard.agent().hold_task("sent once");
    guard.approver().confirm_fully(&draft);
    let gone = ["receipt", "outcome", "out_ev", "evidence", "ended_at", "sent_at", "kept", "response", "m:settle"];
    redis.command(&[&["HDEL", &key_of(&draft)], &gone[..]].concat());
    // A claim that is too old to be sent ends as not executed, unless the journal knows better.
    let now: i64 = redis.command(&["TIME"]).texts()[0].parse().expect("seconds");
    let long_ago = ((now - 120) * 1_000).to_string();
    claim(&redis, &draft, "running/claimed", &[("attempts", "0"), ("claimed_at", &long_ago)]);
    let end = ended(&guard, &draft);
    assert_eq!((&end["status"], &end["intact"]), (&json!("unverifiable"), &json!(true)), "{end}");
    guard.approver().confirm(&draft).must_refuse(504, "COMMIT_OUTCOME_UNKNOWN");
    assert_eq!(upstream.effects("/tasks"), 1);
}

/// Whoever reads the server, its log of commands or a copy of its memory learns no token, no credential and
/// nothing of what is asked for.
#[test]
fn p10_nothing_secret_stands_in_the_server() {
    let (guard, redis, upstream) = alone("", |setup| setup);
    let own = "agents-own-upstream-credential-1177";
    let agent = guard.agent_with(tokens::RUNTIME).with("Authorization", &format!("Bearer {own}"));
    let held = agent.post("/tasks", &json!({"title": "a title that is nobody's business"})).must_be(202);
    let token = held.header("Countersign-Confirmation-Token").expect("a token").to_owned();
    guard.app().confirm(&token).must_be(200);
    agent.hold_task("another title that is nobody's business");
    assert_eq!(upstream.effects("/tasks"), 1);
    redis.command(&["CONFIG", "SET", "save", ""]);
    redis.command(&["SAVE"]);
    let mut looked_at = 0;
    let mut folders = vec![redis.folder().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else if entry.file_type().unwrap().is_file() {
                let bytes = std::fs::read(entry.path()).unwrap();
                looked_at += usize::from(bytes.windows(3).any(|part| part == b"dr_"));
                for secret in [token.as_str(), own, tokens::RUNTIME, "nobody's business"] {
                    let shown = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
                    assert!(!shown, "{secret:?} stands in {}", entry.path().display());
                }
            }
        }
    }
    assert!(looked_at >= 2, "the log of commands and the snapshot hold the drafts");
}
