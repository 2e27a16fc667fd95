use super::*;
use crate::base::digest::Digest;
use crate::base::id::{DraftId, Partition};
use crate::base::time::Timestamp;
use crate::draft::record::{Draft, Effect};
use crate::policy::judge::recheck as judge_again;
use crate::policy::model::CapabilityStatus;

fn draft(set: &PolicySet, prepared: &Prepared, who: &Identity) -> Draft {
    let chance = crate::base::chance::OsChance;
    let id = DraftId::new(Partition::of(&Digest::of(b"x")), Timestamp::from_millis(0), &chance);
    Draft {
        root: id.clone(),
        id,
        identity: who.clone(),
        owner_hash: Digest::of(b"owner"),
        service: prepared.service.clone(),
        tool: prepared.tool.clone(),
        capability: prepared.capability.clone(),
        effect: Effect::Write,
        risk: prepared.risk,
        confirm_rule: prepared.confirm_rule,
        args: prepared.args.clone(),
        secret: prepared.secret.clone(),
        args_hash: prepared.args_hash,
        request: prepared.request.clone(),
        raw_digest: prepared.raw_digest,
        preview: prepared.preview.clone(),
        preview_hash: Digest::of(b"preview"),
        lookup_binding: None,
        effect_key: None,
        policy_version: set.version.clone(),
        origin_request_id: "r".into(),
        traceparent: None,
        created_at: Timestamp::from_millis(0),
        expires_at: Timestamp::from_millis(1),
        late_release_ms: 60_000,
    }
}

const LIGHTNOTE: &str = include_str!("../../../policies/lightnote.yaml");

fn held() -> Draft {
    let set = lightnote();
    let prepared = json(&set, "POST", "/todos", r#"{"taskTitle": "x", "importance": "high"}"#).unwrap();
    draft(&set, &prepared, &who())
}

fn with(from: &str, to: &str) -> PolicySet {
    assert!(LIGHTNOTE.contains(from), "{from}");
    set(&LIGHTNOTE.replace(from, to))
}

#[test]
fn an_unchanged_or_looser_policy_lets_the_draft_go() {
    let draft = held();
    for set in [
        lightnote(),
        with("allow: {roles: [user]}", "allow: {roles: [user, admin]}"),
        with("maxLength: 200", "maxLength: 300"),
        with("ttl: 5m", "ttl: 10m"),
        with("name: query_todos", "name: list_todos"),
    ] {
        let (service, tool) = judge_again(&set, &draft).unwrap();
        assert_eq!((service.name.as_str(), tool.unwrap().name.as_str()), ("lightnote", "create_todo"));
    }
}

#[test]
fn a_stricter_policy_keeps_the_draft() {
    let draft = held();
    let create =
        "{id: todo.create, status: enabled, tool: create_todo, operation: create, risk: low, confirm: default}";
    for (from, to) in [
        (create, "{id: todo.create, status: planned, tool: create_todo, guidance: later, risk: low, confirm: default}"),
        (
            create,
            "{id: todo.create, status: forbidden, tool: create_todo, guidance: never, risk: low, confirm: default}",
        ),
        (create, "{id: todo.make, status: enabled, tool: create_todo, risk: low, confirm: default}"),
        ("service: lightnote", "service: notes"),
        ("match: {method: POST, path: /todos}", "match: {method: PUT, path: /todos}"),
        ("match: {method: POST, path: /todos}", "match: {method: POST, path: /v2/todos}"),
        (
            "match: {method: [DELETE, POST], path: \"/account{/**}\"}",
            "match: {method: [DELETE, POST], path: \"{/**}\"}",
        ),
        ("url: ${env:LIGHTNOTE_URL}", "url: http://127.0.0.1:8081"),
        ("url: ${env:LIGHTNOTE_URL}", "url: https://127.0.0.1:8080"),
        ("url: ${env:LIGHTNOTE_URL}", "url: http://127.0.0.1:8080/v2"),
        ("enum: [0, 1, 2]", "enum: [0, 1]"),
        (
            "properties:\n          title: {type: string, maxLength: 200}",
            "properties:\n          title: {type: string, minLength: 5}",
        ),
        ("allow: {roles: [user]}\n    args:\n      # What", "allow: {roles: [admin]}\n    args:\n      # What"),
    ] {
        assert!(judge_again(&with(from, to), &draft).is_err(), "{to}");
    }
}

/// `risk` and `confirm` must agree on both sides, so both change together.
fn with_raised(risk: &str, confirm: &str) -> PolicySet {
    let text = LIGHTNOTE
        .replace(
            "operation: create, risk: low, confirm: default",
            &format!("operation: create, risk: {risk}, confirm: {confirm}"),
        )
        .replace("risk: low\n    confirm: default", &format!("risk: {risk}\n    confirm: {confirm}"));
    set(&text)
}

#[test]
fn a_raised_risk_or_rule_keeps_the_draft_and_a_lowered_one_does_not() {
    let draft = held();
    assert!(judge_again(&with_raised("medium", "default"), &draft).is_err());
    assert!(judge_again(&with_raised("low", "always"), &draft).is_err());
    let mut strict = held();
    strict.risk = crate::draft::record::Risk::High;
    strict.confirm_rule = crate::draft::record::ConfirmRule::Always;
    assert!(judge_again(&lightnote(), &strict).is_ok());
}

#[test]
fn the_upstream_is_compared_even_under_the_same_version() {
    let mut draft = held();
    draft.request.target = "http://127.0.0.1:9999/todos".into();
    assert!(judge_again(&lightnote(), &draft).is_err());
    for target in
        ["http://127.0.0.1:80800/todos", "http://127.0.0.1:8080.evil/todos", "http://127.0.0.1:8080@evil/todos"]
    {
        draft.request.target = target.into();
        assert!(judge_again(&lightnote(), &draft).is_err(), "{target}");
    }
}

#[test]
fn the_identity_rules_hold_again() {
    for change in [
        |who: &mut Identity| who.admin_mode = Some("readonly".into()),
        |who: &mut Identity| who.subject = Some("other".into()),
        |who: &mut Identity| who.role = None,
    ] {
        let mut draft = held();
        change(&mut draft.identity);
        assert!(judge_again(&lightnote(), &draft).is_err());
    }
}

/// The loader leaves no way to these sets under the draft's own version; each rule is asked by
/// itself all the same.
#[test]
fn a_service_without_writes_and_a_capability_that_is_off_keep_the_draft() {
    let draft = held();
    let mut read_only = lightnote();
    read_only.services[0].upstream.read_only = true;
    assert!(judge_again(&read_only, &draft).is_err());
    for status in [CapabilityStatus::Planned, CapabilityStatus::Forbidden] {
        let mut off = lightnote();
        for capability in off.services[0].capabilities.iter_mut().filter(|known| known.id == draft.capability) {
            capability.status = status;
        }
        assert_eq!(off.version, draft.policy_version);
        assert!(judge_again(&off, &draft).is_err(), "{status:?}");
    }
}

#[test]
fn a_credential_of_its_own_keeps_the_draft_once_the_guard_injects_one() {
    let mut draft = held();
    let injecting = with(
        "  url: ${env:LIGHTNOTE_URL}\n",
        "  url: ${env:LIGHTNOTE_URL}\n  credentials: {header: Authorization, value: \"Bearer ${env:TOKEN}\"}\n",
    );
    assert!(judge_again(&injecting, &draft).is_ok(), "it has none");
    draft.request.credentials.push(("authorization".into(), "Bearer agent".into()));
    assert!(judge_again(&lightnote(), &draft).is_ok());
    assert!(judge_again(&injecting, &draft).is_err(), "two credentials, of which one can be meant");
    draft.request.credentials.clear();
    draft.request.headers.push(("Authorization".into(), "Bearer agent".into()));
    assert!(judge_again(&injecting, &draft).is_err());
}

#[test]
fn an_undeclared_write_goes_while_such_writes_are_held() {
    let open = PolicySet::open("s", "http://up.example").unwrap();
    let prepared = json(&open, "PUT", "/x", "{}").unwrap();
    let draft = draft(&open, &prepared, &who());
    assert!(judge_again(&open, &draft).unwrap().1.is_none());
    let base = "version: 1\nservice: s\nupstream: {url: 'http://up.example'}\n";
    assert!(judge_again(&set(&format!("{base}unmatched: {{write: hold}}\n")), &draft).is_ok());
    assert!(judge_again(&set(base), &draft).is_err());
    let forbids = "capabilities: [{id: f, status: forbidden, guidance: never, match: {path: /x}}]\n";
    assert!(judge_again(&set(&format!("{base}unmatched: {{write: hold}}\n{forbids}")), &draft).is_err());
    let declares = "capabilities: [{id: c, status: enabled, tool: t, risk: low}]\ntools: [{name: t, match: {method: PUT, path: /x}, effect: write}]\n";
    assert!(judge_again(&set(&format!("{base}unmatched: {{write: hold}}\n{declares}")), &draft).is_err());
}
