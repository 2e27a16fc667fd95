//! A draft that cannot be read in the store fails closed, whoever asks for it, and harms no other.

use rusqlite::{Connection, types::Value};
use serde_json::{Value as Json, json};

use crate::support::browser::Browser;
use crate::support::stored::{Cell, cells_of, open, put_back};
use crate::support::{Draft, Guard, Request, Response, Upstream, tokens};

const TITLE: &str = "it cannot be read";

/// Everybody who may ask for one draft, each with the answer; none of them changes a sound one
/// before the last.
fn every_reader(guard: &Guard, draft: &Draft, token: &str) -> Vec<(&'static str, Response)> {
    let (alice, app) = (guard.approver(), guard.app());
    let agent = guard.agent_with(tokens::RUNTIME);
    let head = |path: String| agent.send(Request::new("HEAD", &path));
    vec![
        ("the agent's status", agent.status(draft)),
        ("the agent's result", agent.result(draft)),
        ("a HEAD of the result", head(draft.result_path())),
        ("an equal call", agent.post("/tasks", &json!({ "title": TITLE }))),
        ("a withdrawal", agent.withdraw(draft)),
        ("the body", alice.get(&format!("/v1/drafts/{}/body", draft.id))),
        ("a confirm", alice.confirm(draft)),
        ("a confirm of other args", alice.confirm(&Draft { args_hash: "0".repeat(64), ..draft.clone() })),
        ("a reject", alice.reject(draft, "no")),
        ("a resolution", alice.resolve(draft, "succeeded", "looked it up")),
        ("another try", alice.again(draft)),
        ("a confirm by token", app.confirm(token)),
        ("a reject by token", app.reject(token, "no")),
    ]
}

fn refused_by_all(way: &str, readers: Vec<(&'static str, Response)>, wrong: &mut Vec<String>) {
    for (who, answer) in readers {
        // A HEAD has no body to carry the code in.
        let told = answer.status == 409 && (who.starts_with("a HEAD") || answer.code() == "DRAFT_INTEGRITY_FAILED");
        if !told {
            wrong.push(format!("{way}: {who}: {} {}", answer.status, answer.text()));
        } else if answer.text().contains(TITLE) {
            wrong.push(format!("{way}: {who} tells what it cannot read: {}", answer.text()));
        }
    }
}

/// What stands in `control` under `name`, replaced; `None` takes it out.
fn control(cells: &[Cell], name: &str, value: Option<Json>) -> Value {
    let text = cells.iter().find_map(|cell| match &cell.value {
        Value::Text(text) if text.starts_with('{') => Some(text),
        _ => None,
    });
    let mut control: Json = serde_json::from_str(text.expect("control data")).expect("JSON");
    let members = control.as_object_mut().expect("an object");
    assert!(members.contains_key(name), "the control data have no {name:?}");
    match value {
        Some(value) => drop(members.insert(name.to_owned(), value)),
        None => drop(members.remove(name)),
    }
    Value::Text(control.to_string())
}

/// Ways to make a row that nobody can read, each with what is written where.
fn ways(cells: &[Cell]) -> Vec<(String, String, Value)> {
    let expiries = [json!(""), json!("not-a-time"), json!("9999-99-99"), json!(1e30), json!(-1), json!(null)];
    let mut ways: Vec<(String, String, Value)> = Vec::new();
    for expiry in expiries {
        ways.push((format!("expires_at {expiry}"), "control".to_owned(), control(cells, "expires_at", Some(expiry))));
    }
    ways.push(("no expires_at".to_owned(), "control".to_owned(), control(cells, "expires_at", None)));
    ways.push(("an unknown state".to_owned(), "control".to_owned(), control(cells, "state", Some(json!("paid")))));
    for text in ["", "{", "null", "[]", "\u{0}"] {
        ways.push((format!("control {text:?}"), "control".to_owned(), Value::Text(text.to_owned())));
    }
    for number in [-1, 0, i64::MAX] {
        ways.push((format!("the column expires_at {number}"), "expires_at".to_owned(), Value::Integer(number)));
    }
    ways.push(("the column status".to_owned(), "status".to_owned(), Value::Text("confirmed".to_owned())));
    ways
}

fn write(store: &Connection, cells: &[Cell], column: &str, value: &Value) {
    let cell = cells.iter().find(|cell| cell.column == column).unwrap_or_else(|| panic!("no column {column:?}"));
    assert!(cell.write(store, value), "{column} cannot be written");
}

#[test]
fn p2_a_row_that_cannot_be_read_is_an_integrity_failure_for_every_reader() {
    let upstream = Upstream::start();
    let mut guard = Guard::over(&upstream);
    let held = guard.agent_with(tokens::RUNTIME).post("/tasks", &json!({ "title": TITLE })).must_be(202);
    let token = held.header("Countersign-Confirmation-Token").expect("a token").to_owned();
    let draft = Draft::from(&held);
    let sound = guard.agent_with(tokens::RUNTIME).hold_task("sound");
    guard.stop();
    drop(open(&guard));
    let pristine = std::fs::read(guard.store_file()).expect("the store's bytes");
    let cells = cells_of(&open(&guard), &draft.id);
    let mut wrong = Vec::new();
    for (way, column, value) in ways(&cells) {
        put_back(&guard, &pristine);
        write(&open(&guard), &cells, &column, &value);
        guard.start_again();
        let alice = guard.approver();
        let mut readers = every_reader(&guard, &draft, &token);
        readers.push(("the card", alice.show(&draft.id)));
        let asked = readers.len();
        refused_by_all(&way, readers, &mut wrong);
        let counted = guard.metrics().sum("countersign_integrity_failures_total", &[]);
        if counted < asked as f64 {
            wrong.push(format!("{way}: {counted} of {asked} failures are counted"));
        }
        let mut browser = Browser::at(guard.control_address());
        browser.sign_in(tokens::ALICE);
        let page = browser.open(&format!("/drafts/{}", draft.id));
        if page.status != 409 || page.text().contains(TITLE) {
            wrong.push(format!("{way}: the console: {} {}", page.status, page.text()));
        }
        // Everybody else goes on, and the queue shows what can be read.
        let listed: Vec<Json> = alice.list("");
        assert!(listed.iter().any(|line| line["draft_id"] == sound.id.as_str()), "{way}: {listed:?}");
        assert!(listed.iter().all(|line| line["draft_id"] != draft.id.as_str()), "{way}: {listed:?}");
        let pending = guard.agent_with(tokens::RUNTIME).get("/.countersign/pending").must_be(200).text();
        assert!(pending.contains(&sound.id) && !pending.contains(&draft.id), "{way}: {pending}");
        let effects = upstream.effects("/tasks");
        alice.confirm_fully(&sound);
        assert_eq!(upstream.effects("/tasks"), effects + 1, "{way}: the sound one, and nothing else");
        guard.stop();
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(upstream.seen().iter().all(|seen| !String::from_utf8_lossy(&seen.body).contains(TITLE)));
}

#[test]
fn p2_a_record_that_does_not_open_is_an_integrity_failure_for_every_reader() {
    let upstream = Upstream::start();
    let mut guard = Guard::over(&upstream);
    let held = guard.agent_with(tokens::RUNTIME).post("/tasks", &json!({ "title": TITLE })).must_be(202);
    let token = held.header("Countersign-Confirmation-Token").expect("a token").to_owned();
    let draft = Draft::from(&held);
    guard.stop();
    drop(open(&guard));
    let pristine = std::fs::read(guard.store_file()).expect("the store's bytes");
    let cells = cells_of(&open(&guard), &draft.id);
    let sealed = cells.iter().filter_map(|cell| match &cell.value {
        Value::Blob(bytes) => Some((cell, bytes.clone())),
        _ => None,
    });
    let (sealed, bytes) = sealed.max_by_key(|(_, bytes)| bytes.len()).expect("the sealed record");
    let cut = bytes[..bytes.len() / 2].to_vec();
    let mut wrong = Vec::new();
    for (way, value) in [("empty", Some(Vec::new())), ("cut", Some(cut)), ("gone", None)] {
        put_back(&guard, &pristine);
        let store = open(&guard);
        match &value {
            Some(bytes) => assert!(sealed.write(&store, &Value::Blob(bytes.clone())), "{way}"),
            None => assert_eq!(store.execute(&format!("DELETE FROM \"{}\"", sealed.table), []), Ok(1)),
        }
        drop(store);
        guard.start_again();
        refused_by_all(way, every_reader(&guard, &draft, &token), &mut wrong);
        // An approver is shown that there is something, and that it does not verify.
        let shown = guard.approver().show(&draft.id);
        let marked = shown.status == 200 && shown.json()["intact"] == false && shown.json()["preview"].is_null();
        if !marked && shown.code() != "DRAFT_INTEGRITY_FAILED" {
            wrong.push(format!("{way}: the card: {} {}", shown.status, shown.text()));
        }
        guard.stop();
        // Nobody's question changed the row.
        let now = cells_of(&open(&guard), &draft.id);
        let status = |cells: &[Cell]| cells.iter().find(|cell| cell.column == "status").map(|cell| cell.value.clone());
        if status(&now) != status(&cells) {
            wrong.push(format!("{way}: the row became {:?}", status(&now)));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(upstream.heads(), 0);
}

/// The answer to an ended draft is a claim about it, so it is verified as well.
#[test]
fn p2_what_became_of_a_draft_that_does_not_open_is_not_told() {
    let upstream = Upstream::start();
    let mut guard = Guard::over(&upstream);
    let agent = guard.agent();
    let [rejected, withdrawn] = ["rejected", "withdrawn"].map(|title| agent.hold_task(title));
    guard.approver().reject(&rejected, "not this one").must_be(200);
    agent.withdraw(&withdrawn).must_be(200);
    guard.stop();
    {
        let store = open(&guard);
        for draft in [&rejected, &withdrawn] {
            let cells = cells_of(&store, &draft.id);
            let control = cells.iter().find(|cell| cell.column == "control").expect("control data");
            let Value::Text(text) = &control.value else { panic!("{control:?}") };
            assert!(text.contains(&draft.args_hash), "{text}");
            assert!(control.write(&store, &Value::Text(text.replace(&draft.args_hash, &"0".repeat(64)))));
        }
    }
    guard.start_again();
    for draft in [&rejected, &withdrawn] {
        let agent = guard.agent();
        for answer in [agent.status(draft), agent.result(draft), agent.withdraw(draft), guard.approver().confirm(draft)]
        {
            answer.must_refuse(409, "DRAFT_INTEGRITY_FAILED");
        }
    }
    assert_eq!(upstream.heads(), 0);
}
