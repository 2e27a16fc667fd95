//! p10: no token, key or upstream credential ever appears in a log, a metric, an event, a list, a
//! card or a page.

use serde_json::json;

use crate::support::browser::Browser;
use crate::support::{Act, Draft, Guard, Request, Setup, Upstream, tokens};

const INJECTED: &str = "injected-upstream-credential-8842";
const AGENTS_OWN: &str = "agents-own-upstream-credential-1177";
const COOKIE: &str = "agents-own-cookie-5523";
const API_KEY: &str = "agents-own-api-key-7304";

/// Everything secret that passed through.
fn secrets(token: &str, keys_file: &str) -> Vec<String> {
    let mut all: Vec<String> = tokens::ALL.iter().map(|token| (*token).to_owned()).collect();
    all.extend([INJECTED, AGENTS_OWN, COOKIE, API_KEY, token].map(str::to_owned));
    let word = |c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_' && c != '+' && c != '/';
    all.extend(keys_file.split(word).filter(|part| part.len() >= 32).map(str::to_owned));
    all
}

#[track_caller]
fn must_not_hold(what: &str, text: &str, secrets: &[String]) {
    for secret in secrets {
        assert!(!text.contains(secret.as_str()), "{what} shows the secret {secret:?}:\n{text}");
    }
}

#[test]
fn p10_secrets_stay_secret_through_a_whole_life() {
    let upstream = Upstream::start();
    upstream.on("/free/gone", Act::CloseAfterRead);
    let mut guard = Setup::over(&upstream)
        .policy("side.yaml", SIDE)
        .env("SIDE_TOKEN", INJECTED)
        .env("RUST_LOG", "trace")
        .env("COUNTERSIGN_LOG", "trace")
        .start();
    let agent = guard
        .agent()
        .with("Authorization", &format!("Bearer {AGENTS_OWN}"))
        .with("Cookie", &format!("sid={COOKIE}"))
        .with("X-Api-Key", API_KEY);
    agent.get("/tasks").must_be(200);
    let done = agent.hold_task("carried out");
    guard.approver().confirm_fully(&done);
    let refused = agent.hold_task("refused");
    guard.approver().reject(&refused, "no").must_be(200);
    let gone = agent.hold("/free/gone", &json!({}));
    guard.approver().confirm(&gone);
    let open = agent.hold_task("open");
    let side = guard.agent().with("Host", "side.test");
    side.get("/x").must_be(200);
    let injected = Draft::from(&side.post("/x", &json!({})).must_be(202));
    guard.approver().confirm_fully(&injected);
    let held = guard.agent_with(tokens::RUNTIME).post("/tasks", &json!({"title": "with a token"})).must_be(202);
    let token = held.header("Countersign-Confirmation-Token").expect("a token").to_owned();
    guard.app().confirm(&token).must_be(200);

    // Credentials in wrong places, so that refusals are logged.
    guard.agent_with(tokens::ALICE).get("/tasks").must_be(401);
    guard.agent_with("wrong-credential-guess").get("/tasks").must_be(401);
    guard.approver_with(tokens::DESK_BOT).confirm(&open).must_be(403);
    guard.approver_with(tokens::WEB).confirm(&open);
    guard.app().for_owner("u-18").confirm(&token).must_be(403);
    guard.app().confirm(&format!("{}x", &token[..token.len() - 1]));

    let keys_file = std::fs::read_to_string(guard.folder().join("countersign.keys")).expect("a keys file");
    let secrets = secrets(&token, &keys_file);
    assert!(secrets.len() > tokens::ALL.len() + 4, "the keys file has keys");
    let alice = guard.approver();
    let mut paths: Vec<String> = [
        "/v1/drafts",
        "/v1/capabilities",
        "/v1/policies",
        "/v1/events?after=0",
        "/openapi.json",
        "/metrics",
        "/healthz",
        "/readyz",
    ]
    .map(str::to_owned)
    .to_vec();
    for draft in [&done, &refused, &gone, &open, &injected] {
        paths.push(format!("/v1/drafts/{}", draft.id));
    }
    for path in paths {
        let answer = alice.get(&path);
        must_not_hold(&path, &format!("{:?}{}", answer.headers, answer.text()), &secrets);
    }
    for draft in [&done, &refused, &gone, &open] {
        for answer in [agent.status(draft), agent.result(draft)] {
            must_not_hold("the agent's answer", &format!("{:?}{}", answer.headers, answer.text()), &secrets);
        }
    }
    let mut browser = Browser::at(guard.control_address());
    browser.sign_in(tokens::ALICE);
    let session = browser.cookie_header();
    for path in [
        "/".to_owned(),
        format!("/drafts/{}", open.id),
        format!("/drafts/{}", done.id),
        format!("/drafts/{}", injected.id),
    ] {
        must_not_hold(&path, &browser.open(&path).text(), &secrets);
    }

    assert!(upstream.seen().iter().any(|seen| seen.header("Authorization") == Some(&format!("Bearer {INJECTED}"))));
    assert!(upstream.seen().iter().any(|seen| seen.header("Authorization") == Some(&format!("Bearer {AGENTS_OWN}"))));
    assert!(upstream.seen().iter().any(|seen| seen.header("X-Api-Key") == Some(API_KEY)));
    guard.stop();
    let printed = guard.printed();
    assert!(printed.len() > 200, "there is a log to look at: {printed}");
    must_not_hold("the log", &printed, &secrets);
    let cookie = session.split('=').nth(1).unwrap_or_default().to_owned();
    assert!(cookie.len() > 20 && !printed.contains(&cookie), "the log shows the session cookie");
    must_not_be_in_files(&guard, &secrets);
}

/// Nothing that the guard wrote but the keys file holds a secret in clear.
fn must_not_be_in_files(guard: &Guard, secrets: &[String]) {
    let mut folders = vec![guard.folder().to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            if path.ends_with("countersign.keys") {
                continue;
            }
            let bytes = std::fs::read(&path).unwrap_or_default();
            for secret in secrets {
                let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
                assert!(!found, "{} holds the secret {secret:?}", path.display());
            }
        }
    }
}

/// A second service, whose credential the guard holds.
const SIDE: &str = "
version: 1
service: side
upstream:
  url: \"${env:DESK_URL}\"
  credentials: {header: Authorization, value: \"Bearer ${env:SIDE_TOKEN}\"}
route: {hosts: [side.test], path_prefix: /}
unmatched: {read: pass, write: hold}
";

#[test]
fn what_agents_write_cannot_forge_log_lines_or_reach_labels() {
    let upstream = Upstream::start();
    let mut guard = Guard::over(&upstream);
    let forged = "x\",\"level\":\"ERROR\",\"forged\":\"yes";
    let agent = guard.agent().for_owner(forged).keyed("a\" forged=1 %s%n");
    let draft = agent.hold_task("{\"forged\":true}\u{1b}[2J\r\nERROR forged line");
    guard.approver().reject(&draft, "line one\nERROR forged line").must_be(200);
    guard.agent().send(Request::get("/made-up-path-that-must-not-be-a-label?x=y")).must_be(200);
    let metrics = guard.metrics();
    for word in ["forged", "made-up-path", "u-17", &draft.id] {
        assert!(!metrics.text().contains(word), "{word} is in the metrics: {}", metrics.text());
    }
    guard.stop();
    for line in guard.printed().lines() {
        assert!(!line.starts_with("ERROR forged") && !line.contains('\u{1b}'), "a forged line: {line:?}");
    }
}

#[test]
fn a_secret_in_a_policy_or_configuration_mistake_is_not_repeated() {
    let upstream = Upstream::start();
    let ended = Setup::over(&upstream)
        .desk_with(
            "route: {path_prefix: /}",
            "  credentials: {header: \"Bad Name\", value: \"Bearer ${env:SIDE_TOKEN}\"}\nroute: {path_prefix: /}",
        )
        .env("SIDE_TOKEN", INJECTED)
        .start_in_vain();
    assert!(!ended.said().contains(INJECTED), "{}", ended.said());
    let ended = Setup::over(&upstream)
        .section("approvers", &format!("[{{name: alice, token_sha256: \"{}\"}}]", tokens::ALICE))
        .start_in_vain();
    assert!(!ended.said().contains(tokens::ALICE), "a token where its digest belongs: {}", ended.said());
}
