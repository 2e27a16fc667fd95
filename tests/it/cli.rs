//! The command line: plain sentences, exact exit codes, JSON where asked for.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::guard::{BINARY, Ended, run_to_end};
use crate::support::{Act, DESK, Guard, Setup, Upstream, edited, sha256_hex, tokens};

fn run(args: &[&str]) -> Ended {
    let mut command = Command::new(BINARY);
    command.args(args);
    run_to_end(command)
}

/// `countersign drafts …` as `alice`.
#[track_caller]
fn drafts(guard: &Guard, args: &[&str]) -> Ended {
    let url = guard.control_url();
    let mut all = vec!["drafts"];
    all.extend_from_slice(args);
    all.extend(["--control", &url, "--token", tokens::ALICE]);
    guard.cli(&all)
}

#[track_caller]
fn json_lines(ended: &Ended) -> Vec<Value> {
    let whole: Result<Value, _> = serde_json::from_str(&ended.stdout);
    match whole {
        Ok(value) => vec![value],
        Err(_) => ended
            .stdout
            .lines()
            .map(|line| {
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line:?}\n{}", ended.said()))
            })
            .collect(),
    }
}

#[test]
fn check_prints_each_mistake_with_its_place_and_ends_with_one() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let file = folder.path().join("desk.yaml");
    let check = |yaml: &str, path: &std::path::Path| {
        std::fs::write(&file, yaml).expect("a policy file");
        let mut command = Command::new(BINARY);
        command.arg("check").arg(path).env("DESK_URL", "http://127.0.0.1:9");
        run_to_end(command)
    };
    for path in [folder.path(), file.as_path()] {
        let good = check(DESK, path);
        assert_eq!(good.status.code(), Some(0), "{}", good.said());
        assert!(!good.said().contains("error:"), "{}", good.said());
    }
    let bad = edited(DESK, "unmatched: {read: pass, write: refuse}", "unmatchd: {read: pass, write: refuse}");
    let bad = edited(&bad, "    ttl: 10s\n", "    ttl: 10 seconds\n");
    for path in [folder.path(), file.as_path()] {
        let ended = check(&bad, path);
        assert_eq!(ended.status.code(), Some(1), "{}", ended.said());
        for word in ["unmatchd", "ttl: 10 seconds"] {
            let (at, line) = bad.lines().enumerate().find(|(_, line)| line.contains(word)).expect("the mistake");
            let place = format!("desk.yaml:{}:", at + 1);
            let told = ended.said().lines().find(|told| told.contains(&place)).map(str::to_owned);
            let told = told.unwrap_or_else(|| panic!("nothing about {line:?} at {place}: {}", ended.said()));
            let (position, message) =
                told.split_once(": error: ").unwrap_or_else(|| panic!("not FILE:LINE:COL: error: …: {told}"));
            let column = position.rsplit(':').next().and_then(|column| column.parse::<usize>().ok());
            assert!(column.is_some_and(|column| column >= 1), "{told}");
            assert!(!message.is_empty(), "{told}");
        }
    }
    let missing = run(&["check", "no/such/folder"]);
    assert_eq!(missing.status.code(), Some(2), "{}", missing.said());
    assert!(!missing.stderr.is_empty(), "{}", missing.said());
}

#[test]
fn check_tells_by_place_and_knows_the_roles_from_the_configuration() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let policies = folder.path().join("policies");
    std::fs::create_dir(&policies).expect("a folder");
    let yaml = edited(DESK, "    effect: write\n", "    effect: write\n    allow: {roles: [clerk]}\n");
    let check = |yaml: &str, more: &[&str]| {
        for name in ["b.yaml", "a.yaml"] {
            std::fs::write(policies.join(name), yaml).expect("a policy file");
        }
        let mut command = Command::new(BINARY);
        command.arg("check").arg(&policies).args(["--json"]).args(more).env("DESK_URL", "http://127.0.0.1:9");
        run_to_end(command)
    };
    // Two files with the same names: one mistake for each name, all of them in the second file.
    let ended = check(&yaml, &[]);
    let found = json_lines(&ended)[0]["diagnostics"].as_array().expect("a list").clone();
    let place = |found: &Value| (found["file"].to_string(), found["line"].as_u64(), found["column"].as_u64());
    assert!(found.len() > 2 && found.is_sorted_by_key(place), "{}", ended.said());
    assert!(ended.stdout.starts_with("{\"ok\":false,\"files\":2,\"diagnostics\":[{\"file\":"), "{}", ended.stdout);

    std::fs::remove_file(policies.join("b.yaml")).expect("a policy file");
    let alone = |more: &[&str]| {
        std::fs::write(policies.join("a.yaml"), &yaml).expect("a policy file");
        let mut command = Command::new(BINARY);
        command.arg("check").arg(&policies).args(more).env("DESK_URL", "http://127.0.0.1:9");
        let ended = run_to_end(command);
        assert_eq!(ended.status.code(), Some(0), "a warning is no mistake: {}", ended.said());
        ended.said().contains("nobody can ask for")
    };
    assert!(!alone(&[]), "without a configuration nothing is known of roles");
    let config = folder.path().join("countersign.yaml");
    std::fs::write(&config, "policies: policies/\n").expect("a configuration");
    assert!(alone(&[]), "the configuration beside the folder gives no role");
    let other = folder.path().join("other.yaml");
    std::fs::write(
        &other,
        format!(
            "identity: {{agents: [{{name: bot, token_sha256: {}}}], role: \"header:X-Role\"}}\n",
            sha256_hex(b"a token")
        ),
    )
    .expect("a configuration");
    assert!(!alone(&["--config", &other.display().to_string()]), "with a source it may be any role");
    std::fs::write(&other, "guardd: {}\n").expect("a configuration");
    assert_eq!(check(&yaml, &["--config", &other.display().to_string()]).status.code(), Some(2));
}

#[test]
fn the_example_policies_are_right() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("policies");
    let mut command = Command::new(BINARY);
    command.arg("check").arg(folder);
    for variable in ["LIGHTNOTE_URL", "CUSTOMER_SERVICE_URL", "CUSTOMER_SERVICE_TOKEN"] {
        command.env(variable, "http://127.0.0.1:9");
    }
    let ended = run_to_end(command);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.said());
}

#[test]
fn drafts_are_listed_shown_and_decided() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let yes = guard.agent().hold_task("to be confirmed");
    let no = guard.agent().hold_task("to be rejected");

    let listed = drafts(&guard, &["list"]);
    assert_eq!(listed.status.code(), Some(0), "{}", listed.said());
    for word in [&yes.id, &no.id, "to be confirmed", "pending"] {
        assert!(listed.stdout.contains(word), "{word}: {}", listed.stdout);
    }
    let as_json = drafts(&guard, &["list", "--json"]);
    assert!(json_lines(&as_json)[0].to_string().contains(&yes.id), "{}", as_json.stdout);
    let shown = drafts(&guard, &["show", &yes.id]);
    for word in ["Add a task", "to be confirmed", "POST", &yes.args_hash] {
        assert!(shown.stdout.contains(word), "{word}: {}", shown.stdout);
    }
    let shown = drafts(&guard, &["show", &yes.id, "--json"]);
    assert_eq!(json_lines(&shown)[0]["args_hash"], yes.args_hash.as_str());

    let unasked = drafts(&guard, &["confirm", &yes.id]);
    assert_ne!(
        unasked.status.code(),
        Some(0),
        "without a terminal and without --yes nobody said yes: {}",
        unasked.said()
    );
    assert_eq!(upstream.heads(), 0);
    let confirmed = drafts(&guard, &["confirm", &yes.id, "--yes"]);
    assert_eq!(confirmed.status.code(), Some(0), "{}", confirmed.said());
    assert!(confirmed.stdout.contains("The task was added."), "{}", confirmed.stdout);
    assert_eq!(upstream.effects("/tasks"), 1);
    let again = drafts(&guard, &["confirm", &yes.id, "--yes", "--json"]);
    assert_eq!(again.status.code(), Some(0), "{}", again.said());
    assert_eq!(json_lines(&again)[0]["replayed"], true, "{}", again.stdout);
    assert_eq!(upstream.effects("/tasks"), 1);

    let rejected = drafts(&guard, &["reject", &no.id, "--reason", "not now"]);
    assert_eq!(rejected.status.code(), Some(0), "{}", rejected.said());
    let late = drafts(&guard, &["confirm", &no.id, "--yes"]);
    assert_eq!(late.status.code(), Some(1), "{}", late.said());
    assert!(late.stderr.contains("DRAFT_ALREADY_DECIDED") && late.stderr.contains("error:"), "{}", late.stderr);
    let ghost = drafts(&guard, &["show", "dr_0_01JDZZZZZZZZZZZZZZZZZZZZZZ"]);
    assert_eq!(ghost.status.code(), Some(1), "{}", ghost.said());
    let odd = drafts(&guard, &["show", "not-an-id"]);
    assert_eq!(odd.status.code(), Some(2), "{}", odd.said());
}

#[test]
fn an_unknown_outcome_has_an_exit_code_of_its_own_and_can_be_resolved() {
    let upstream = Upstream::start();
    upstream.on("/free/gone", Act::CloseAfterRead);
    let guard = Guard::over(&upstream);
    let draft = guard.agent().hold("/free/gone", &json!({}));
    let confirmed = drafts(&guard, &["confirm", &draft.id, "--yes"]);
    assert_eq!(confirmed.status.code(), Some(4), "{}", confirmed.said());
    assert!(!confirmed.stdout.contains("done"), "{}", confirmed.stdout);
    let resolved = drafts(&guard, &["resolve", &draft.id, "--outcome", "failed", "--evidence", "it is not there"]);
    assert_eq!(resolved.status.code(), Some(0), "{}", resolved.said());
    assert_eq!(guard.draft(&draft.id)["status"], "failed");
    let twice = drafts(&guard, &["resolve", &draft.id, "--outcome", "failed", "--evidence", "still not there"]);
    assert_eq!(twice.status.code(), Some(1), "{}", twice.said());
}

#[test]
fn without_configured_approvers_the_keys_file_is_credential_enough() {
    let upstream = Upstream::start();
    let guard = Setup::local(&upstream).start();
    let draft = guard.anyone().hold_task("for myself");
    let url = guard.control_url();
    let confirmed = guard.cli(&["drafts", "confirm", &draft.id, "--yes", "--control", &url]);
    assert_eq!(confirmed.status.code(), Some(0), "{}", confirmed.said());
    assert_eq!(upstream.effects("/tasks"), 1);
}

#[test]
fn no_guard_and_wrong_tokens_are_said_clearly() {
    let upstream = Upstream::start();
    let mut guard = Guard::over(&upstream);
    let url = guard.control_url();
    let wrong = guard.cli(&["drafts", "list", "--control", &url, "--token", "guess"]);
    assert_eq!(wrong.status.code(), Some(1), "{}", wrong.said());
    assert!(wrong.stderr.contains("hint:"), "{}", wrong.stderr);
    let agent = guard.cli(&["drafts", "list", "--control", &url, "--token", tokens::DESK_BOT]);
    assert_eq!(agent.status.code(), Some(1), "{}", agent.said());
    guard.stop();
    let gone = guard.cli(&["drafts", "list", "--control", &url, "--token", tokens::ALICE]);
    assert_eq!(gone.status.code(), Some(3), "{}", gone.said());
    assert!(gone.stderr.contains(&url), "{}", gone.stderr);
}

#[test]
fn watch_prints_a_line_for_each_change() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let mut child = Command::new(BINARY)
        .args(["drafts", "watch", "--json", "--control", &guard.control_url(), "--token", tokens::ALICE])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("watch starts");
    let lines = BufReader::new(child.stdout.take().expect("piped"));
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        for line in lines.lines().map_while(Result::ok) {
            let _ = send.send(line);
        }
    });
    let next = |status: &str, id: &str| loop {
        let line =
            receive.recv_timeout(Duration::from_secs(20)).unwrap_or_else(|_| panic!("no line for {id} {status}"));
        let draft: Value = serde_json::from_str(&line).expect("a line of JSON");
        if draft["draft_id"] == id && draft["status"] == status {
            return;
        }
    };
    let draft = guard.agent().hold_task("watched");
    next("pending", &draft.id);
    guard.approver().confirm_fully(&draft);
    next("succeeded", &draft.id);
    child.kill().expect("watch ends");
    child.wait().expect("watch is reaped");
}

#[test]
fn a_new_token_comes_with_its_digest() {
    let ended = run(&["token", "new", "--json"]);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.said());
    let made = json_lines(&ended).remove(0);
    let token = made["token"].as_str().expect("a token");
    assert!(token.len() >= 32, "{token}");
    assert_eq!(
        made["token_sha256"].as_str().or(made["sha256"].as_str()),
        Some(sha256_hex(token.as_bytes()).as_str()),
        "{made}"
    );
    let plain = run(&["token", "new"]);
    let digest = plain.stdout.split_whitespace().find(|word| word.trim_matches('"').len() == 64);
    assert!(digest.is_some(), "{}", plain.stdout);
    assert_ne!(run(&["token", "new", "--json"]).stdout, ended.stdout);
}

#[test]
fn schemas_are_printed() {
    for which in ["policy", "config"] {
        let ended = run(&["schema", which]);
        assert_eq!(ended.status.code(), Some(0), "{}", ended.said());
        let schema: Value = serde_json::from_str(&ended.stdout).expect("a JSON Schema");
        assert!(schema["$schema"].is_string() && schema["properties"].is_object(), "{which}: {schema}");
    }
}

#[test]
fn help_has_examples_and_mistakes_have_hints() {
    for args in [
        &["--help"][..],
        &["run", "--help"],
        &["guard", "--help"],
        &["check", "--help"],
        &["drafts", "--help"],
        &["drafts", "confirm", "--help"],
    ] {
        let ended = run(args);
        assert_eq!(ended.status.code(), Some(0), "{args:?}: {}", ended.said());
        assert!(ended.stdout.contains("countersign"), "{args:?}: {}", ended.stdout);
    }
    assert!(run(&["--help"]).stdout.to_lowercase().contains("example"));
    let wrong = run(&["frobnicate"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", wrong.said());
    assert_eq!(run(&["--version"]).status.code(), Some(0));
}

#[test]
fn a_guard_without_a_file_holds_every_write() {
    let upstream = Upstream::start();
    let folder = tempfile::TempDir::new().expect("a folder");
    let mut child = Command::new(BINARY)
        .args(["guard", &upstream.url(), "--json", "--listen", "127.0.0.1:0", "--control-listen", "127.0.0.1:0"])
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the guard starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let ready = lines.next().and_then(Result::ok).and_then(|line| serde_json::from_str::<Value>(&line).ok());
    let address = ready.as_ref().and_then(|ready| ready["agent"].as_str()?.strip_prefix("http://")?.parse().ok());
    let answers = address.map(|address| {
        let held = crate::support::exchange(address, &crate::support::Request::new("DELETE", "/things/9"));
        let read = crate::support::exchange(address, &crate::support::Request::get("/things"));
        (held.status, read.status)
    });
    child.kill().expect("the guard ends");
    child.wait().expect("the guard is reaped");
    assert_eq!(answers, Some((202, 200)), "{ready:?}");
    assert_eq!(upstream.all_effects(), 0);
    assert!(folder.path().join("countersign.db").exists(), "its store is in the current folder");
}
