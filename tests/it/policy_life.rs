//! Policies come into force whole or not at all, and are asked again before anything is sent.

use serde_json::json;

use crate::support::{DESK, Draft, Guard, Setup, Upstream, edited, until};

/// The desk with the capability of `add_task` forbidden instead of enabled.
fn adding_forbidden() -> String {
    let desk = edited(
        DESK,
        "  - {id: task.create, status: enabled, tool: add_task, operation: create, risk: low, confirm: default}\n",
        "  - {id: task.create, status: forbidden, match: {method: POST, path: /tasks}, guidance: No more tasks.}\n",
    );
    let from = desk.find("  - name: add_task").expect("the tool");
    let to = desk.find("  - name: set_task").expect("the next tool");
    format!("{}{}", &desk[..from], &desk[to..])
}

fn version(guard: &Guard) -> String {
    let policies = guard.approver().get("/v1/policies").must_be(200).json();
    policies["version"].as_str().unwrap_or_else(|| panic!("no version: {policies}")).to_owned()
}

#[test]
fn a_changed_file_comes_into_force_by_itself_and_by_sighup() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let before = version(&guard);
    guard.agent().hold_task("still allowed");
    guard.write_policy("desk.yaml", &adding_forbidden());
    until("the new set is in force", || version(&guard) != before);
    let refused =
        guard.agent().post("/tasks", &json!({"title": "not any more"})).must_refuse(403, "CAPABILITY_FORBIDDEN");
    assert_eq!(refused["guidance"], "No more tasks.");
    guard.write_policy("desk.yaml", DESK);
    guard.hang_up();
    until("the old set is in force again", || version(&guard) == before);
    guard.agent().hold_task("allowed again");
    let metrics = guard.metrics();
    assert_eq!(metrics.sum("countersign_policy_info", &[&format!("version=\"{before}\"")]), 1.0, "{}", metrics.text());
}

#[test]
fn a_bad_file_keeps_the_last_good_set_and_is_told_everywhere() {
    let upstream = Upstream::start();
    let mut guard = Guard::over(&upstream);
    let before = version(&guard);
    for (n, bad) in ["version: 1\nservice: desk\nsurprise: yes\n", "{{{", ""].into_iter().enumerate() {
        guard.write_policy("desk.yaml", bad);
        guard.hang_up();
        let failures = (n + 1) as f64;
        until("the failure is counted", || {
            guard.metrics().sum("countersign_policy_reload_failures_total", &[]) >= failures
        });
        assert_eq!(version(&guard), before);
        let policies = guard.approver().get("/v1/policies").must_be(200).text();
        assert!(policies.contains("desk.yaml"), "the last error is shown: {policies}");
        guard.agent().hold_task(&format!("under the last good set {n}"));
    }
    guard.write_policy("desk.yaml", DESK);
    let reload = guard.approver().post("/v1/policies/reload", &json!({}));
    assert_eq!(reload.status, 200, "{}", reload.text());
    guard.must_be_alive();
}

#[test]
fn a_policy_that_became_stricter_rejects_what_waited_under_the_old_one() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let draft = guard.agent().hold_task("asked under the old policy");
    let before = version(&guard);
    guard.write_policy("desk.yaml", &adding_forbidden());
    until("the new set is in force", || version(&guard) != before);
    let problem = guard.approver().confirm(&draft).must_refuse(409, "DRAFT_ALREADY_DECIDED");
    assert_eq!(
        (&problem["status"], &problem["decided_by"], &problem["reason"]),
        (&json!("rejected"), &json!("guard"), &json!("POLICY_CHANGED")),
        "{problem}"
    );
    assert_eq!(guard.draft(&draft.id)["status"], "rejected");
    let told = guard.agent().result(&draft).must_refuse(403, "DRAFT_REJECTED");
    assert_eq!(told["reason"], "POLICY_CHANGED", "{told}");
    assert_eq!(upstream.heads(), 0);
    guard.write_policy("desk.yaml", DESK);
    until("the old set is in force again", || version(&guard) == before);
    let anew = guard.agent().hold_task("asked under the old policy");
    assert_ne!(anew.id, draft.id, "the guard's own no does not answer the next call");
    guard.approver().confirm_fully(&anew);
    assert_eq!(upstream.effects("/tasks"), 1);
}

#[test]
fn another_upstream_address_or_a_raised_risk_is_a_stricter_policy_as_well() {
    let upstream = Upstream::start();
    let elsewhere = Upstream::start();
    let moved = edited(DESK, "${env:DESK_URL}", &elsewhere.url());
    let riskier = {
        let desk = edited(
            DESK,
            "tool: add_task, operation: create, risk: low",
            "tool: add_task, operation: create, risk: high",
        );
        edited(
            &desk,
            "match: {method: POST, path: /tasks}\n    effect: write\n    risk: low",
            "match: {method: POST, path: /tasks}\n    effect: write\n    risk: high",
        )
    };
    let riskier = edited(
        &riskier,
        "details: [{key: priority",
        "details: [{key: dueAt, value: \"{{ args.dueAt }}\"}, {key: priority",
    );
    for desk in [moved, riskier] {
        let guard = Guard::over(&upstream);
        let draft = guard.agent().hold_task("asked before");
        let before = version(&guard);
        guard.write_policy("desk.yaml", &desk);
        until("the new set is in force", || version(&guard) != before);
        let problem = guard.approver().confirm(&draft).must_refuse(409, "DRAFT_ALREADY_DECIDED");
        assert_eq!(problem["reason"], "POLICY_CHANGED", "{problem}");
    }
    assert_eq!((upstream.heads(), elsewhere.heads()), (0, 0));
}

#[test]
fn a_policy_that_changed_elsewhere_lets_a_waiting_draft_through() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let draft = guard.agent().hold_task("not concerned");
    let before = version(&guard);
    guard.write_policy(
        "desk.yaml",
        &edited(DESK, "guidance: Accounts are closed by their owners only.", "guidance: Ask the owner."),
    );
    until("the new set is in force", || version(&guard) != before);
    guard.approver().confirm_fully(&draft);
    assert_eq!(upstream.effects("/tasks"), 1);
}

#[test]
fn capabilities_are_listed_with_what_they_allow() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let listed = guard.approver().get("/v1/capabilities").must_be(200).text();
    for word in
        ["task.create", "money.send", "planned", "forbidden", "Archiving comes later; please use the archive page."]
    {
        assert!(listed.contains(word), "{word}: {listed}");
    }
    guard.control_get("/v1/capabilities").must_refuse(401, "CREDENTIAL_UNKNOWN");
}

#[test]
fn mistakes_in_a_policy_are_all_told_at_once_with_their_place() {
    let upstream = Upstream::start();
    let bad = edited(DESK, "unmatched: {read: pass, write: refuse}", "unmatchd: {read: pass, write: refuse}");
    let bad =
        edited(&bad, "match: {method: PUT, path: \"/tasks/{id}\"}", "match: {methds: PUT, path: \"/tasks/{id}\"}");
    let bad = edited(&bad, "guidance: Accounts are closed by their owners only.", "guidence: typo");
    let ended = Setup::over(&upstream).policy("desk.yaml", &bad).start_in_vain();
    assert_eq!(ended.status.code(), Some(2), "{}", ended.said());
    let said = ended.said();
    for word in ["unmatchd", "methds", "guidence"] {
        let line = bad.lines().position(|line| line.contains(word)).expect("the mistake") + 1;
        assert!(said.contains(word) && said.contains(&format!("desk.yaml:{line}:")), "{word} at line {line}: {said}");
    }
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn typos_and_holes_in_policies_never_open_anything() {
    let upstream = Upstream::start();
    let bad: Vec<(&str, String)> = vec![
        ("an unknown top-level key", format!("{DESK}\nrules: []\n")),
        ("a repeated block", format!("{DESK}\nunmatched: {{read: pass, write: hold}}\n")),
        (
            "a repeated key inside",
            edited(DESK, "unmatched: {read: pass, write: refuse}", "unmatched: {write: refuse, write: hold}"),
        ),
        ("a misspelt word", edited(DESK, "write: refuse", "write: hodl")),
        ("a misspelt effect", edited(DESK, "    effect: read\n", "    effect: raed\n")),
        ("confirm none on a write", edited(DESK, "risk: high, confirm: always", "risk: high, confirm: none")),
        (
            "a write without capability",
            edited(
                DESK,
                "  - {id: brief.call, status: enabled, tool: brief, operation: update, risk: low, confirm: default}\n",
                "",
            ),
        ),
        ("a capability without tool", edited(DESK, "status: enabled, tool: brief", "status: enabled, tool: breif")),
        (
            "risk differs",
            edited(DESK, "tool: pay, operation: create, risk: high", "tool: pay, operation: create, risk: low"),
        ),
        (
            "an open schema",
            edited(
                DESK,
                "        additionalProperties: false\n        required: [to, amount]",
                "        required: [to, amount]",
            ),
        ),
        (
            "planned without guidance",
            edited(DESK, "    guidance: Archiving comes later; please use the archive page.\n", ""),
        ),
        (
            "a preview of a field that is not there",
            edited(DESK, "Sends {{ args.amount }}.", "Sends {{ args.amuont }}."),
        ),
        (
            "two tools for one request",
            edited(DESK, "match: {method: POST, path: /brief}", "match: {method: POST, path: /pay}"),
        ),
        ("an anchor", edited(DESK, "route: {path_prefix: /}", "route: &anchor {path_prefix: /}")),
        ("a missing variable", edited(DESK, "${env:DESK_URL}", "${env:NO_SUCH_VARIABLE_HERE}")),
        ("a wrong version", edited(DESK, "version: 1", "version: 2")),
        ("a tag", edited(DESK, "service: desk", "service: !!str desk")),
        ("ttl too short", edited(DESK, "ttl: 10s", "ttl: 1s")),
        ("ttl too long", edited(DESK, "ttl: 10s", "ttl: 8d")),
        ("a method that is no name", edited(DESK, "method: [POST, PUT, PATCH, DELETE]", "method: [POST, \"PU T\"]")),
        ("bad indentation", edited(DESK, "tools:\n  - name: list_tasks", "tools:\n - name: list_tasks\n   - x")),
        ("nothing", String::new()),
        ("only a comment", "# nothing\n".to_owned()),
        ("not a mapping", "- a\n- b\n".to_owned()),
        ("not UTF-8 safe", "version: 1\nservice: \"a\\0b\"\n".to_owned()),
    ];
    let mut wrong = Vec::new();
    for (name, yaml) in bad {
        match Setup::over(&upstream).policy("desk.yaml", &yaml).try_start() {
            Ok(_) => wrong.push(format!("{name}: it started")),
            Err(ended) if !ended.said().contains("desk.yaml") => wrong.push(format!("{name}: {}", ended.said())),
            Err(_) => {}
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn an_empty_or_missing_policies_folder_is_an_error() {
    let upstream = Upstream::start();
    for setup in [Setup::over(&upstream).no_policies(), Setup::over(&upstream).section("policies", "no-such-folder/")] {
        let ended = setup.start_in_vain();
        assert_eq!(ended.status.code(), Some(2), "{}", ended.said());
        assert!(ended.said().contains("polic"), "{}", ended.said());
    }
    let guard = Guard::over(&upstream);
    std::fs::remove_file(guard.folder().join("policies/desk.yaml")).expect("a policy file");
    guard.hang_up();
    until("the failure is counted", || guard.metrics().sum("countersign_policy_reload_failures_total", &[]) >= 1.0);
    let draft: Draft = guard.agent().hold_task("under the last good set");
    guard.approver().confirm_fully(&draft);
}
