//! Whoever can write to the store can neither forge a draft nor a confirmation.

use rusqlite::types::Value;
use serde_json::{Value as Json, json};

use crate::support::stored::{cells_of, forge, open, put_back};
use crate::support::{Act, Agent, Draft, Guard, Request, Upstream, tokens};

/// Another value of the same kind, as an attacker might write it.
fn altered(value: &Value) -> Vec<Value> {
    match value {
        Value::Null => vec![],
        Value::Integer(number) => vec![Value::Integer(number + 86_400_000), Value::Integer(number.wrapping_mul(2))],
        Value::Real(number) => vec![Value::Real(number + 1.0)],
        Value::Text(text) => vec![Value::Text(flip_text(text))],
        Value::Blob(bytes) => [0, bytes.len() / 2, bytes.len().saturating_sub(1)]
            .into_iter()
            .filter(|at| *at < bytes.len())
            .map(|at| {
                let mut bytes = bytes.clone();
                bytes[at] ^= 1;
                Value::Blob(bytes)
            })
            .collect(),
    }
}

fn flip_text(text: &str) -> String {
    for (from, to) in [("low", "high"), ("u-17", "u-18"), ("add_task", "drop_task"), ("desk", "dusk"), ("2026", "2036")]
    {
        if text.contains(from) {
            return text.replace(from, to);
        }
    }
    text.chars().rev().collect()
}

fn hold(agent: &Agent) -> Draft {
    agent.hold_task("as it was shown")
}

#[test]
fn p2_no_altered_value_gets_anything_sent_that_was_not_shown() {
    let upstream = Upstream::start();
    let mut guard = Guard::over(&upstream);
    let draft = hold(&guard.agent());
    guard.stop();
    drop(open(&guard));
    let pristine = std::fs::read(guard.store_file()).expect("the store's bytes");
    let cells = cells_of(&open(&guard), &draft.id);
    let mut told = std::collections::BTreeMap::<String, Vec<String>>::new();
    for cell in cells {
        for value in altered(&cell.value) {
            put_back(&guard, &pristine);
            if !cell.write(&open(&guard), &value) {
                continue;
            }
            let place = format!("{}.{}", cell.table, cell.column);
            guard.start_again();
            let answer = guard.approver().confirm(&draft);
            told.entry(place).or_default().push(format!("{} {}", answer.status, answer.code()));
            guard.stop();
        }
    }
    assert!(told.len() >= 12, "every value of the draft was altered: {told:#?}");
    // Under another id it is another draft, which is not there.
    let renamed = told.remove("drafts.ulid").expect("the id stands in clear");
    assert_eq!(renamed, ["404 DRAFT_NOT_FOUND"]);
    told.retain(|_, answers| answers.iter().any(|answer| answer != "409 DRAFT_INTEGRITY_FAILED"));
    assert!(told.is_empty(), "altered and believed: {told:#?}");
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn a_draft_that_is_moved_to_another_tenant_or_agent_is_shown_to_nobody_there() {
    let upstream = Upstream::start();
    let mut guard = Guard::over(&upstream);
    let draft = hold(&guard.agent());
    guard.stop();
    for (column, there) in [("tenant", "far"), ("initiator", "night-bot")] {
        let store = open(&guard);
        let cell = cells_of(&store, &draft.id).into_iter().find(|cell| cell.column == column).expect("the column");
        assert!(cell.write(&store, &Value::Text(there.to_owned())));
        drop(store);
        guard.start_again();
        let far = guard.approver_with(tokens::FAYE).get("/v1/drafts").must_be(200).text();
        let night = guard.agent_with(tokens::NIGHT_BOT).get("/.countersign/pending").must_be(200).text();
        assert!(!far.contains(&draft.id) && !night.contains(&draft.id), "{column}: {far} {night}");
        guard.approver().confirm(&draft).must_refuse(409, "DRAFT_INTEGRITY_FAILED");
        guard.stop();
        assert!(cell.write(&open(&guard), &cell.value));
    }
    guard.start_again();
    guard.approver().confirm_fully(&draft);
    assert_eq!(upstream.effects("/tasks"), 1);
}

#[test]
fn a_longer_life_written_into_the_store_is_not_believed() {
    let upstream = Upstream::start();
    let mut guard = Guard::over(&upstream);
    let draft = guard.agent().hold("/brief", &serde_json::json!({}));
    let ends = guard.draft(&draft.id)["expires_at"].as_str().map(str::to_owned).expect("a time");
    let millis = ends.parse::<jiff::Timestamp>().expect("a time").as_millisecond();
    guard.stop();
    {
        // Every copy of the time in clear, in step with each other.
        let store = open(&guard);
        let changed = cells_of(&store, &draft.id).into_iter().filter(|cell| {
            let later = match &cell.value {
                Value::Integer(number) if *number == millis => Value::Integer(millis + 3_600_000),
                Value::Text(text) => {
                    let later = jiff::Timestamp::from_millisecond(millis + 3_600_000).expect("a time");
                    let later = later.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string();
                    Value::Text(
                        text.replace(&ends, &later).replace(&millis.to_string(), &(millis + 3_600_000).to_string()),
                    )
                }
                _ => return false,
            };
            later != cell.value && cell.write(&store, &later)
        });
        assert_eq!(changed.count(), 2, "the column and the control data");
    }
    guard.start_again();
    guard.approver().confirm(&draft).must_refuse(409, "DRAFT_INTEGRITY_FAILED");
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn a_draft_that_does_not_verify_is_never_sent_and_harms_no_other() {
    let upstream = Upstream::start();
    let mut guard = Guard::over(&upstream);
    let broken = hold(&guard.agent());
    let sound = guard.agent().hold_task("sound");
    guard.stop();
    {
        let store = open(&guard);
        let blobs = cells_of(&store, &broken.id).into_iter().filter_map(|cell| match cell.value.clone() {
            Value::Blob(bytes) => Some((cell, bytes)),
            _ => None,
        });
        let (cell, mut bytes) = blobs.max_by_key(|(_, bytes)| bytes.len()).expect("the sealed record");
        assert!(bytes.len() > 200, "the sealed record: {cell:?}");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x40;
        assert!(cell.write(&store, &Value::Blob(bytes)));
    }
    guard.start_again();
    guard.approver().confirm(&broken).must_refuse(409, "DRAFT_INTEGRITY_FAILED");
    guard.agent().status(&broken).must_refuse(409, "DRAFT_INTEGRITY_FAILED");
    assert_eq!(upstream.heads(), 0);
    guard.approver().confirm_fully(&sound);
    assert_eq!(upstream.effects("/tasks"), 1);
    guard.must_be_alive();
}

#[test]
fn a_claim_written_into_the_store_sends_nothing() {
    let upstream = Upstream::start();
    let mut guard = Guard::over(&upstream);
    let draft = hold(&guard.agent());
    let created = guard.draft(&draft.id)["created_at"].as_str().map(str::to_owned).expect("a time");
    let created = created.parse::<jiff::Timestamp>().expect("a time").as_millisecond();
    guard.stop();
    {
        let store = open(&guard);
        let changed = cells_of(&store, &draft.id).into_iter().filter(|cell| {
            let forged = match (&cell.value, cell.column.as_str()) {
                (Value::Text(text), _) => Value::Text(forged_claim(text)),
                // The lease of a process that is gone: the next sweep takes the draft over.
                (Value::Null, "lease_until") => Value::Integer(created),
                _ => return false,
            };
            forged != cell.value && cell.write(&store, &forged)
        });
        assert_eq!(changed.count(), 3, "status, lease and control data");
    }
    guard.start_again();
    let looked = || guard.printed().contains("does not verify") || upstream.heads() > 0;
    crate::support::until("the guard has looked at it", looked);
    let told = |guard: &Guard| {
        let failed = guard.draft_when(&draft.id, "failed");
        assert_eq!(
            (&failed["failure"], &failed["intact"], &failed["votes"]),
            (&json!("integrity"), &json!(true), &json!([]))
        );
        let answer = guard.approver().confirm(&draft).must_be(200).json();
        assert_eq!((&answer["failure"], &answer["executed"]), (&json!("integrity"), &json!(false)), "{answer}");
        let problem = guard.agent().result(&draft).must_refuse(409, "DRAFT_INTEGRITY_FAILED");
        assert_eq!(problem["executed"], false, "{problem}");
    };
    told(&guard);
    guard.stop();
    guard.start_again();
    told(&guard);
    assert_eq!(upstream.all_effects(), 0, "nobody confirmed it");
}

#[test]
fn p2_a_genuine_vote_of_another_draft_claims_nothing() {
    let upstream = Upstream::start();
    let mut guard = Guard::over(&upstream);
    let confirmed = guard.agent().hold_task("confirmed");
    let draft = hold(&guard.agent());
    guard.approver().confirm_fully(&confirmed);
    let created = guard.draft(&draft.id)["created_at"].as_str().map(str::to_owned).expect("a time");
    let created = created.parse::<jiff::Timestamp>().expect("a time").as_millisecond();
    guard.stop();
    {
        let store = open(&guard);
        let votes = cells_of(&store, &confirmed.id).into_iter().find_map(|cell| match cell.value {
            Value::Text(text) => serde_json::from_str::<serde_json::Value>(&text).ok()?.get("votes").cloned(),
            _ => None,
        });
        let votes = votes.expect("the vote that confirmed the other one");
        assert_eq!(votes.as_array().map(Vec::len), Some(1), "{votes}");
        let changed = cells_of(&store, &draft.id).into_iter().filter(|cell| {
            let forged = match (&cell.value, cell.column.as_str()) {
                (Value::Text(text), _) => {
                    let claimed = forged_claim(text);
                    match serde_json::from_str::<serde_json::Value>(&claimed) {
                        Ok(mut control) => {
                            control["votes"] = votes.clone();
                            Value::Text(control.to_string())
                        }
                        Err(_) => Value::Text(claimed),
                    }
                }
                (Value::Null, "lease_until") => Value::Integer(created),
                _ => return false,
            };
            forged != cell.value && cell.write(&store, &forged)
        });
        assert_eq!(changed.count(), 3, "status, lease and control data");
    }
    guard.start_again();
    let looked = || guard.printed().contains("does not verify") || upstream.effects("/tasks") > 1;
    crate::support::until("the guard has looked at it", looked);
    assert_eq!(upstream.effects("/tasks"), 1, "nobody confirmed this one");
    guard.draft_when(&draft.id, "failed");
    let told = guard.approver().confirm(&draft).must_be(200).json();
    assert_eq!((&told["failure"], &told["executed"]), (&json!("integrity"), &json!(false)), "{told}");
    guard.stop();
    assert_eq!(upstream.effects("/tasks"), 1, "nobody confirmed this one");
}

#[test]
fn p3_an_ended_draft_written_back_to_claimed_is_not_sent_again() {
    let upstream = Upstream::start();
    let mut guard = Guard::over(&upstream);
    let draft = hold(&guard.agent());
    guard.approver().confirm_fully(&draft);
    let created = guard.draft(&draft.id)["created_at"].as_str().map(str::to_owned).expect("a time");
    let created = created.parse::<jiff::Timestamp>().expect("a time").as_millisecond();
    guard.stop();
    {
        // The vote in it is genuine: only the journal knows that it was used.
        let store = open(&guard);
        let mut written = 0;
        for cell in cells_of(&store, &draft.id) {
            let forged = match (&cell.value, cell.column.as_str()) {
                (Value::Text(text), _) if text == "succeeded" => Value::Text("running".to_owned()),
                (Value::Text(text), _) if text.starts_with('{') => Value::Text(claimed_again(text)),
                (_, "lease_until") => Value::Integer(created),
                (_, "ended_at") => Value::Null,
                _ => continue,
            };
            written += u32::from(cell.write(&store, &forged));
        }
        assert_eq!(written, 4, "status, lease, end and control data");
    }
    guard.start_again();
    crate::support::until("the guard has looked at it", || {
        guard.printed().contains("it is not sent again") || upstream.effects("/tasks") > 1
    });
    // It says so before the end is written: until then the forged claim does not verify.
    guard.draft_when(&draft.id, "unverifiable");
    guard.approver().confirm(&draft).must_refuse(504, "COMMIT_OUTCOME_UNKNOWN");
    assert_eq!(upstream.effects("/tasks"), 1);
}

/// The clear copies of a draft that was carried out, as if it had only been claimed.
fn claimed_again(text: &str) -> String {
    let mut control: serde_json::Value = serde_json::from_str(text).expect("control data");
    let created = control["created_at"].clone();
    control["state"] = serde_json::json!({"status": "running", "phase": "claimed"});
    control["lease_until"] = created;
    for gone in ["receipt", "ended_at", "sent_at", "collected_at"] {
        control[gone] = serde_json::Value::Null;
    }
    control["has_response"] = false.into();
    control.to_string()
}

/// The clear copies of a draft as they would look after a claim that nobody made.
fn forged_claim(text: &str) -> String {
    if text == "pending" {
        return "running".to_owned();
    }
    let Ok(mut control) = serde_json::from_str::<serde_json::Value>(text) else { return text.to_owned() };
    let Some(members) = control.as_object_mut() else { return text.to_owned() };
    let created = members.get("created_at").cloned().unwrap_or_default();
    for (name, value) in [
        ("state", serde_json::json!({"status": "running", "phase": "claimed"})),
        ("epoch", serde_json::json!(1)),
        ("claimed_at", created.clone()),
        ("lease_until", created),
        ("lease_node", serde_json::json!("nobody")),
    ] {
        members.insert(name.to_owned(), value);
    }
    control.to_string()
}

#[test]
fn a_damaged_draft_does_not_keep_the_sweeper_from_the_others() {
    let upstream = Upstream::start();
    let mut guard = Guard::over(&upstream);
    let damaged = guard.agent().hold("/brief", &serde_json::json!({"n": "damaged"}));
    let sound = guard.agent().hold("/brief", &serde_json::json!({"n": "sound"}));
    guard.stop();
    {
        let store = open(&guard);
        let cells = cells_of(&store, &damaged.id);
        let digest = cells.iter().find(|cell| matches!(&cell.value, Value::Blob(bytes) if bytes.len() == 32));
        assert!(digest.expect("a digest in clear").write(&store, &Value::Blob(vec![7; 32])));
    }
    guard.start_again();
    crate::support::until("the sweeper has expired the sound one", || {
        let page = guard.approver().get("/v1/events?after=0").must_be(200).json();
        let events = page["events"].as_array().cloned().unwrap_or_default();
        events.iter().any(|event| event["kind"] == "draft.expired" && event["draft_id"] == sound.id.as_str())
    });
    guard.approver().list("status=expired");
    let fresh = guard.agent().hold_task("life goes on");
    guard.approver().confirm_fully(&fresh);
    assert_eq!(upstream.effects("/brief"), 0);
}

#[test]
fn p6_no_outcome_can_be_written_into_the_store() {
    let upstream = Upstream::start();
    let mut guard = Guard::over(&upstream);
    let agent = guard.agent();
    let done = hold(&agent);
    guard.approver().confirm_fully(&done);
    let receipt = guard.draft(&done.id)["receipt"].clone();
    upstream.on("/free/unknown", Act::CloseAfterRead);
    let call = || Request::post("/free/unknown").json(&json!({"n": 1}));
    let unknown = Draft::from(&agent.send(call()).must_be(202));
    guard.approver().confirm(&unknown).must_refuse(504, "COMMIT_OUTCOME_UNKNOWN");
    let pending = agent.hold_task("nobody decided");
    let effects = upstream.all_effects();
    guard.stop();
    {
        let store = open(&guard);
        // What nobody knows becomes what is offered again, with a receipt that says so.
        forge(&store, &unknown, "failed", |control| {
            control["failure"] = "not_sent".into();
            control["receipt"] = receipt.clone();
            control["receipt"]["status"] = "failed".into();
            control["receipt"]["action_id"] = control["id"].clone();
        });
        // A receipt says more than it did.
        forge(&store, &done, "succeeded", |control| control["receipt"]["summary"] = "And paid.".into());
        // Nobody rejected it.
        forge(&store, &pending, "rejected", |control| {
            let at = control["created_at"].clone();
            let by = json!({"kind": "approver", "id": "alice", "auth_method": "bearer", "channel": "api", "at": at});
            control["refused"] = json!({"by": by, "reason": "no", "at": at, "mac": "00".repeat(32)});
            control["ended_at"] = at;
        });
        for cell in cells_of(&store, &pending.id).into_iter().filter(|cell| cell.column == "ended_at") {
            let created: i64 = store
                .query_row("SELECT created_at FROM drafts WHERE n = ?1", [&cell.key.1], |row| row.get(0))
                .expect("a time");
            assert!(cell.write(&store, &Value::Integer(created)));
        }
    }
    guard.start_again();
    let (agent, approver) = (guard.agent(), guard.approver());
    for draft in [&unknown, &done, &pending] {
        for answer in [
            agent.status(draft),
            agent.result(draft),
            approver.confirm(draft),
            approver.reject(draft, "no"),
            approver.again(draft),
            approver.resolve(draft, "succeeded", "I looked"),
            approver.get(&format!("/v1/receipts/rc_{}", draft.id.trim_start_matches("dr_"))),
        ] {
            let problem = answer.must_refuse(409, "DRAFT_INTEGRITY_FAILED");
            assert!(problem.get("receipt").is_none(), "{problem}");
        }
        let shown = guard.draft(&draft.id);
        assert_eq!((&shown["intact"], &shown["receipt"], &shown["again"]), (&json!(false), &Json::Null, &json!(false)));
    }
    // The same calls again: a forged result is not replayed, and a forged "not sent" opens no new draft.
    agent.post("/tasks", &json!({"title": "as it was shown"})).must_refuse(409, "DRAFT_INTEGRITY_FAILED");
    agent.send(call()).must_refuse(409, "DRAFT_INTEGRITY_FAILED");
    assert_eq!(upstream.all_effects(), effects);
    guard.must_be_alive();
}

#[test]
fn other_keys_are_refused_at_start() {
    let upstream = Upstream::start();
    let mut guard = Guard::over(&upstream);
    hold(&guard.agent());
    guard.stop();
    std::fs::remove_file(guard.folder().join("countersign.keys")).expect("a keys file");
    let mut command = std::process::Command::new(crate::support::guard::BINARY);
    command
        .args(["run", "--json", "--config"])
        .arg(guard.folder().join("countersign.yaml"))
        .env("DESK_URL", upstream.url());
    let ended = crate::support::guard::run_to_end(command);
    assert!(!ended.status.success(), "{}", ended.said());
    assert!(ended.said().contains("key"), "{}", ended.said());
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn the_keys_file_is_readable_by_its_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let mode = std::fs::metadata(guard.folder().join("countersign.keys")).expect("a keys file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}
