//! A guard that could not keep its promises does not start.

use crate::support::{Setup, Upstream, sha256_hex, tokens};

#[test]
fn no_approvers_and_a_listener_that_others_reach_is_an_error() {
    let upstream = Upstream::start();
    for (guard, control) in [("0.0.0.0:0", "127.0.0.1:0"), ("127.0.0.1:0", "0.0.0.0:0"), ("127.0.0.1:0", "[::]:0")] {
        let ended = Setup::over(&upstream)
            .without("approvers")
            .section("guard", &format!("{{listen: \"{guard}\"}}"))
            .section("control", &format!("{{listen: \"{control}\"}}"))
            .start_in_vain();
        assert_eq!(ended.status.code(), Some(2), "{guard} {control}: {}", ended.said());
        assert!(ended.said().contains("approvers"), "{}", ended.said());
    }
}

#[test]
fn no_identities_and_a_listener_that_others_reach_is_an_error() {
    let upstream = Upstream::start();
    let ended = Setup::over(&upstream).without("identity").section("guard", "{listen: \"0.0.0.0:0\"}").start_in_vain();
    assert_eq!(ended.status.code(), Some(2), "{}", ended.said());
    assert!(ended.said().contains("identity"), "{}", ended.said());
}

#[test]
fn an_empty_list_of_approvers_lets_nobody_decide() {
    let upstream = Upstream::start();
    match Setup::over(&upstream).section("approvers", "[]").try_start() {
        Err(ended) => assert!(ended.said().contains("approvers"), "{}", ended.said()),
        Ok(guard) => {
            let draft = guard.agent().hold_task("for nobody");
            let answer = guard.approver().confirm(&draft);
            assert_eq!(answer.status, 401, "{}", answer.text());
            assert_eq!(upstream.heads(), 0);
        }
    }
}

#[test]
fn one_token_for_two_principals_is_an_error() {
    let upstream = Upstream::start();
    let digest = sha256_hex(tokens::DESK_BOT.as_bytes());
    for section in ["approvers", "apps"] {
        let list = format!("[{{name: double, token_sha256: \"{digest}\"}}]");
        let ended = Setup::over(&upstream).section(section, &list).start_in_vain();
        assert_eq!(ended.status.code(), Some(2), "an agent's token among {section}: {}", ended.said());
        assert!(!ended.said().contains(tokens::DESK_BOT), "{}", ended.said());
    }
}

#[test]
fn mistakes_in_the_configuration_are_all_told_at_once() {
    let upstream = Upstream::start();
    let ended = Setup::over(&upstream)
        .section("gaurd", "{listen: 127.0.0.1:0}")
        .section("limits", "{pending_per_ower: 3}")
        .section("store", "{url: \"sqlite:countersign.db\", leese: 3s}")
        .start_in_vain();
    assert_eq!(ended.status.code(), Some(2), "{}", ended.said());
    for word in ["gaurd", "pending_per_ower", "leese", "countersign.yaml:"] {
        assert!(ended.said().contains(word), "{word}: {}", ended.said());
    }
}

#[test]
fn values_out_of_bounds_are_errors() {
    let upstream = Upstream::start();
    let bad = [
        ("guard", "{listen: nowhere}"),
        ("guard", "{listen: 127.0.0.1:0, max_body: 100GiB}"),
        ("guard", "{listen: 127.0.0.1:0, confirm_wait: soon}"),
        ("guard", "{listen: 127.0.0.1:0, send_window: 20s}"),
        ("store", "{url: \"sqlite:countersign.db\", lease: 0s}"),
        ("limits", "{pending_per_owner: many}"),
        ("limits", "{pending_per_owner: -1}"),
        ("keys", "{file: /proc/no/keys}"),
        ("approvers", "[{name: alice}]"),
        ("approvers", "[{name: alice, token_sha256: \"short\"}]"),
        (
            "approvers",
            "[{name: \"\", token_sha256: \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}]",
        ),
        ("control", "{listen: 127.0.0.1:0, public_url: \"not a url\"}"),
        ("identity", "{owner: \"cookie:x\"}"),
    ];
    let mut wrong = Vec::new();
    for (section, yaml) in bad {
        match Setup::over(&upstream).section(section, yaml).try_start() {
            Ok(_) => wrong.push(format!("{section}: {yaml}: it started")),
            Err(ended) if ended.error().is_empty() => wrong.push(format!("{section}: {yaml}: it does not say why")),
            Err(_) => {}
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_listener_that_is_taken_is_an_error() {
    let upstream = Upstream::start();
    let taken = upstream.address();
    let ended = Setup::over(&upstream).section("guard", &format!("{{listen: \"{taken}\"}}")).start_in_vain();
    assert!(!ended.status.success(), "{}", ended.said());
    assert!(ended.said().contains(&taken.port().to_string()), "it names the address: {}", ended.said());
    assert!(ended.said().contains("--listen, or guard.listen"), "it names what to change: {}", ended.said());
    let ended = Setup::over(&upstream).section("control", &format!("{{listen: \"{taken}\"}}")).start_in_vain();
    assert!(!ended.status.success(), "{}", ended.said());
    assert!(ended.said().contains("--control, or control.listen"), "it names what to change: {}", ended.said());
}

#[test]
fn a_configuration_that_is_not_there_is_said_so() {
    let mut command = std::process::Command::new(crate::support::guard::BINARY);
    command.args(["run", "--config", "no/such/countersign.yaml"]);
    let ended = crate::support::guard::run_to_end(command);
    assert_eq!(ended.status.code(), Some(2), "{}", ended.said());
    assert!(ended.said().contains("no/such/countersign.yaml"), "{}", ended.said());
}
