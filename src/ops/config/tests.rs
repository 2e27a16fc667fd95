#![allow(clippy::unwrap_used, clippy::panic)]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::*;
use crate::agent::identity::Source;
use crate::draft::record::Risk;
use crate::ops::log::Format;
use crate::store::redis::Assumed;

const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
const C: &str = "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc";

fn read(text: &str) -> Result<Loaded, ConfigError> {
    read_with(text, Overrides::default())
}

fn read_with(text: &str, overrides: Overrides) -> Result<Loaded, ConfigError> {
    let machine = Machine::at("/etc/cs".into())
        .with("PORT", "9000")
        .with("SECRET", "s3cret-value")
        .with("LEASE", "60s")
        .with("YES", "true")
        .with("COUNT", "7");
    parse("countersign.yaml", text, Path::new("/etc/cs"), &machine, overrides)
}

fn config(text: &str) -> Config {
    read(text).map_err(|error| error.to_string()).unwrap().config
}

/// The mistakes, one a line: place and message.
fn mistakes(text: &str) -> String {
    let ConfigError::Mistakes(all) = read(text).unwrap_err() else { panic!("mistakes") };
    let line = |d: &Diagnostic| format!("{}:{}: {}", d.line, d.column, d.message);
    all.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn defaults_are_those_of_the_documentation() {
    let config = config("guard: {}\n");
    assert_eq!(config.guard.listen, SocketAddr::from(([127, 0, 0, 1], 7070)));
    assert_eq!(config.control.listen, SocketAddr::from(([127, 0, 0, 1], 7071)));
    assert_eq!(config.store.place, StorePlace::Sqlite(PathBuf::from("/etc/cs/countersign.db")));
    assert_eq!(config.store.lease, Duration::from_secs(30));
    assert_eq!(config.policies, PathBuf::from("/etc/cs/policies"));
    assert_eq!(config.keys_file, PathBuf::from("/etc/cs/countersign.keys"));
    assert_eq!(config.journal.path, PathBuf::from("/etc/cs/journal"));
    assert_eq!((config.journal.bytes_max, config.limits.held_bytes_total), (64 << 20, 256 << 20));
    assert_eq!(config.identity, None);
    assert_eq!(config.approvers, Approvers::Generated);
    assert_eq!(config.log, Format::Text);
}

#[test]
fn every_key_is_read() {
    let text = format!(
        "guard: {{listen: \"0.0.0.0:${{env:PORT}}\", max_body: 2MiB, max_response: 3MiB, send_window: 1s, connect_patience: 5s, confirm_wait: 0}}
control: {{listen: \"[::1]:0\", public_url: \"https://guard.example/\"}}
store: {{url: \"sqlite:data/x.db\", timeout: 500ms, lease: \"${{env:LEASE}}\"}}
policies: rules
keys: {{file: /run/keys}}
identity:
  agents: [{{name: bot, token_sha256: {A}, tenant: t1, deliver_token: \"${{env:YES}}\"}}]
  owner: header:X-User-Id
  session: header:X-Session-Id
  role: const:user
  subject: arg:/userId
  admin_context: header:X-Admin
  admin_mode: header:X-Admin-Mode
  message: agent
approvers:
  - {{name: alice, token_sha256: {B}, roles: [lead], tenant: t1, rights: {{capabilities: [\"refund.*\"], services: [crm], owners: [\"*\"], max_risk: high}}}}
  - {{name: bob, token_sha256: \"{C}\", rights: {{}}}}
apps: [{{name: web, token_sha256: {D}, act_for_owners: true}}]
journal: {{path: j, max: 1MiB}}
limits: {{pending_per_owner: \"${{env:COUNT}}\", holds_per_owner: 5/10s, retention: 1h, held_bytes_total: 1MiB, connections_per_agent: 3, head: 1s, body: 2s}}
telemetry: {{log: {{format: json}}}}
",
        D = "d".repeat(64)
    );
    let loaded = read(&text).map_err(|error| error.to_string()).unwrap();
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    let config = loaded.config;
    assert_eq!(config.guard.listen, "0.0.0.0:9000".parse().unwrap());
    assert_eq!(config.control.public_url.as_deref(), Some("https://guard.example"));
    assert_eq!(config.store.place, StorePlace::Sqlite(PathBuf::from("/etc/cs/data/x.db")));
    assert_eq!(config.store.lease, Duration::from_secs(60));
    assert_eq!(config.keys_file, PathBuf::from("/run/keys"));
    let identity = config.identity.unwrap();
    assert!(identity.agents[0].deliver_token);
    assert_eq!(identity.role, Some(Source::Const("user".into())));
    assert_eq!(identity.subject, Some(Source::Arg("/userId".into())));
    assert_eq!(identity.message, Some(Source::Agent));
    let Approvers::Declared(approvers) = config.approvers else { panic!("declared") };
    let rights = approvers[0].rights.as_ref().unwrap();
    assert_eq!(rights.max_risk, Risk::High);
    assert!(rights.capabilities[0].fits("refund.create") && !rights.capabilities[0].fits("order.create"));
    assert_eq!(approvers[1].rights.as_ref().unwrap().max_risk, Risk::Low);
    assert!(config.apps[0].act_for_owners);
    assert_eq!((config.limits.owner.pending_max, config.limits.owner.holds_max), (7, 5));
    assert_eq!(config.log, Format::Json);
}

#[test]
fn all_mistakes_are_reported_at_once_each_with_its_place() {
    let text = "guard: {listen: localhost:7070, max_body: 17MiB, confirm_wait: 56s, colour: red}
control: {public_url: \"https://user@guard.example/console\"}
store: {url: \"postgres://x\", timeout: 1h, lease: 500ms}
policies: 3
limits: {pending_per_owner: 0, holds_per_owner: 60, retention: 1s, head: 1}
journal: {max: 1KiB}
telemetry: {log: {format: xml}}
keys: [x]
";
    insta::assert_snapshot!(read(text).unwrap_err().to_string());
}

#[test]
fn keys_of_later_versions_are_refused_by_name() {
    let text = "guard: {answer: wait, wait: 50s, forward_proxy: {enabled: true}}
identity: {agents: [{name: a, token_sha256: AAAA}], jwt: {issuer: x}, owner: jwt:sub}
approver_jwt: {}
truth: {}
ledger: {}
webhooks: []
notify: []
telemetry: {otlp: x}
"
    .replace("AAAA", A);
    let found = mistakes(&text);
    for key in
        ["answer", "wait", "forward_proxy", "jwt", "approver_jwt", "truth", "ledger", "webhooks", "notify", "otlp"]
    {
        assert!(found.contains(&format!("this version does not have `{key}`")), "{key}\n{found}");
    }
    assert!(found.contains("this version does not have `jwt:` as a source"), "{found}");
}

#[test]
fn a_redis_store_is_named_without_its_password() {
    let text = "store: {url: \"rediss://guard:hunter@cache.example:6380/2\", min_replica_acks: 2, assume: [durable]}\n";
    let store = config(text).store;
    assert_eq!(store.place.to_string(), "rediss://cache.example:6380/2");
    assert!(!format!("{store:?}").contains("hunter"), "{store:?}");
    assert_eq!(store.min_replica_acks, 2);
    assert_eq!(store.assumed, Assumed { durable: true, noeviction: false });
    let watched = config("store: {url: \"redis+sentinel://guard:hunter@a:26379,b:26379/main\"}\n").store;
    assert_eq!(
        (watched.place.to_string().as_str(), watched.min_replica_acks),
        ("redis+sentinel://a:26379,b:26379/main", 1)
    );
    let wrong = "store: {url: \"redis://localhost:many\"}\n";
    assert!(mistakes(wrong).contains("`store.url` is no address of a Redis server"), "{}", mistakes(wrong));
    let wrong = "store: {min_replica_acks: 1, assume: [durable]}\n";
    assert!(mistakes(wrong).contains("`store.min_replica_acks` is for a Redis store"), "{}", mistakes(wrong));
    assert!(mistakes(wrong).contains("`store.assume` is for a Redis store"));
    let wrong = "store: {url: \"redis://localhost\", min_replica_acks: 17, assume: [luck]}\n";
    assert!(mistakes(wrong).contains("from 0 to 16") && mistakes(wrong).contains("does not know this word"));
}

#[test]
fn files_for_a_redis_server_behind_tls_are_whole() {
    let text = "store: {url: \"rediss://cache.example\", tls: {ca: ca.pem, cert: /etc/own.pem, key: own.key}}\n";
    let tls = config(text).store.tls;
    assert!(tls.ca.unwrap().ends_with("ca.pem"));
    assert_eq!(tls.client.unwrap().cert, std::path::Path::new("/etc/own.pem"));
    for (wrong, why) in [
        ("{url: \"redis://cache.example\", tls: {ca: ca.pem}}", "`store.tls` is for a server behind TLS"),
        ("{tls: {ca: ca.pem}}", "`store.tls` is for a Redis store"),
        ("{url: \"rediss://cache.example\", tls: {}}", "`store.tls` names no file"),
        ("{url: \"rediss://cache.example\", tls: {cert: own.pem}}", "needs `cert` and `key` together"),
        ("{url: \"rediss+cluster://cache.example\", tls: {verify: false}}", "verify"),
    ] {
        let found = mistakes(&format!("store: {wrong}\n"));
        assert!(found.contains(why), "{wrong}: {found}");
    }
}

#[test]
fn p1_nobody_is_let_in_by_leaving_something_out() {
    let agent = format!("identity: {{agents: [{{name: a, token_sha256: {A}}}]}}\n");
    let approver = format!("approvers: [{{name: b, token_sha256: {B}, rights: {{}}}}]\n");
    assert!(mistakes("guard: {listen: \"0.0.0.0:7070\"}\n").contains("there is no `identity:`"));
    assert!(mistakes(&format!("guard: {{listen: \"0.0.0.0:7070\"}}\n{agent}")).contains("there are no `approvers:`"));
    assert!(mistakes(&format!("control: {{listen: \"[::]:7071\"}}\n{agent}")).contains("there are no `approvers:`"));
    assert!(mistakes("approvers: []\n").contains("`approvers` is empty"));
    assert!(mistakes("identity: {agents: []}\n").contains("`identity.agents` is empty"));
    assert!(mistakes("identity: {owner: header:X-User}\n").contains("needs the key `agents`"));
    assert!(
        read(&format!("guard: {{listen: \"0.0.0.0:7070\"}}\ncontrol: {{listen: \"0.0.0.0:7071\"}}\n{agent}{approver}"))
            .is_ok()
    );
    // What the command line says counts in place of what the file says.
    let wide = Overrides { listen: Some("0.0.0.0:1".parse().unwrap()), control: None };
    assert!(read_with("guard: {}\n", wide).is_err());
    assert_eq!(read_with(&format!("{agent}{approver}"), wide).unwrap().config.guard.listen.port(), 1);
}

#[test]
fn p1_an_owner_never_comes_from_the_call_itself() {
    for source in ["path:id", "arg:/userId"] {
        for key in ["owner", "session", "role", "admin_context", "admin_mode", "message"] {
            let text = format!("identity: {{agents: [{{name: a, token_sha256: {A}}}], {key}: \"{source}\"}}\n");
            assert!(mistakes(&text).contains("cannot come from the call itself"), "{key} {source}");
        }
    }
    for header in ["Authorization", "Cookie", "Host", "Countersign-Agent", "Idempotency-Key", "Content-Length"] {
        let text = format!("identity: {{agents: [{{name: a, token_sha256: {A}}}], owner: \"header:{header}\"}}\n");
        assert!(mistakes(&text).contains("cannot carry an identity"), "{header}");
    }
    for source in ["", "header:", "header:a b", "const:", "user", "arg:x", "\"const:a\\tb\""] {
        let text = format!("identity: {{agents: [{{name: a, token_sha256: {A}}}], subject: {source}}}\n");
        assert!(read(&text).is_err(), "{source}");
    }
}

#[test]
fn p1_no_token_is_two_principals() {
    let text = format!(
        "identity: {{agents: [{{name: a, token_sha256: {A}}}, {{name: a, token_sha256: {B}}}]}}
approvers: [{{name: x, token_sha256: {A}, rights: {{}}}}, {{name: guard, token_sha256: {C}, rights: {{}}}}]
apps: [{{name: \"app:x\", token_sha256: {B}, act_for_owners: true}}]
"
    );
    insta::assert_snapshot!(mistakes(&text));
}

#[test]
fn p10_a_token_in_the_place_of_its_digest_is_not_shown() {
    let text = "approvers: [{name: x, token_sha256: csk_very-secret-token, rights: {}}]\n";
    let shown = read(text).unwrap_err().to_string();
    assert!(!shown.contains("very-secret"), "{shown}");
    let text = "approvers: [{name: x, token_sha256: \"${env:SECRET}\", rights: {}}]\n";
    let shown = read(text).unwrap_err().to_string();
    assert!(!shown.contains("s3cret"), "{shown}");
}

#[test]
fn useless_principals_are_warned_of() {
    let text = format!("approvers: [{{name: x, token_sha256: {A}}}]\napps: [{{name: web, token_sha256: {B}}}]\n");
    let loaded = read(&text).unwrap();
    let messages: Vec<&str> = loaded.warnings.iter().map(|warning| warning.message.as_str()).collect();
    assert_eq!(messages, ["this approver has no `rights` and may decide nothing", "this app may do nothing"]);
}

#[test]
fn rights_are_closed() {
    for (rights, what) in [
        ("{capabilities: []}", "`capabilities` is empty"),
        ("{services: [\"a*b\"]}", "at most one `*`"),
        ("{max_risk: extreme}", "`max_risk` must be"),
        ("{everything: true}", "has no key `everything`"),
    ] {
        let text = format!("approvers: [{{name: x, token_sha256: {A}, rights: {rights}}}]\n");
        assert!(mistakes(&text).contains(what), "{rights}");
    }
}

#[test]
fn p3_the_send_window_ends_well_before_the_lease() {
    assert!(mistakes("guard: {send_window: 11s}\n").contains("more than a third"));
    assert!(mistakes("store: {lease: 5s}\n").contains("more than a third"));
    assert!(read("guard: {send_window: 10s}\n").is_ok());
    assert!(read("guard: {send_window: 1s}\nstore: {lease: 3s}\n").is_ok());
}

#[test]
fn listeners_differ() {
    assert!(mistakes("guard: {listen: \"127.0.0.1:7071\"}\n").contains("both listeners"));
    assert!(read("guard: {listen: \"127.0.0.1:0\"}\ncontrol: {listen: \"127.0.0.1:0\"}\n").is_ok());
}

#[test]
fn what_is_no_configuration_is_told_so() {
    assert!(mistakes("").contains("the file is empty"));
    assert!(mistakes("- a\n- b\n").contains("must be a mapping"));
    assert!(mistakes("guard: [\n").contains("not YAML"));
    assert!(mistakes("guard: {listen: \"${env:NO_SUCH_THING_AT_ALL}\"}\n").contains("is not set"));
}

#[test]
fn files_that_cannot_be_read_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("countersign.yaml");
    assert!(matches!(load(&path, Overrides::default()), Err(ConfigError::Unreadable { .. })));
    std::fs::write(&path, [0xff, 0xfe]).unwrap();
    assert!(matches!(load(&path, Overrides::default()), Err(ConfigError::Unreadable { .. })));
    std::fs::write(&path, "policies: here\n").unwrap();
    assert_eq!(load(&path, Overrides::default()).unwrap().config.policies, folder.path().join("here"));
}

#[test]
fn the_schema_has_exactly_the_keys_that_are_read() {
    fn properties(schema: &serde_json::Value, pointer: &str) -> Vec<String> {
        let found = schema.pointer(pointer).and_then(|at| at.get("properties")).and_then(serde_json::Value::as_object);
        let mut keys: Vec<String> = found.unwrap().keys().cloned().collect();
        keys.sort();
        keys
    }
    let schema: serde_json::Value = serde_json::from_str(SCHEMA).unwrap();
    for (name, keys) in keys::ALL {
        let pointer = match *name {
            "FILE" => "",
            "GUARD" => "/properties/guard",
            "CONTROL" => "/properties/control",
            "STORE" => "/properties/store",
            "STORE_TLS" => "/properties/store/properties/tls",
            "KEYS_FILE" => "/properties/keys",
            "IDENTITY" => "/properties/identity",
            "AGENT" => "/properties/identity/properties/agents/items",
            "APPROVER" => "/properties/approvers/items",
            "RIGHTS" => "/properties/approvers/items/properties/rights",
            "APP" => "/properties/apps/items",
            "JOURNAL" => "/properties/journal",
            "LIMITS" => "/properties/limits",
            "TELEMETRY" => "/properties/telemetry",
            "LOG" => "/properties/telemetry/properties/log",
            other => panic!("{other} is not in the schema's map"),
        };
        let mut known: Vec<&str> = keys.known.to_vec();
        known.sort_unstable();
        assert_eq!(properties(&schema, pointer), known, "{name}");
        let docs = include_str!("../../../docs/operators.md");
        for key in known {
            let told =
                [format!("`{key}`"), format!(".{key}`"), format!("`{key}."), format!("`{key}: "), format!(".{key}.")];
            assert!(told.iter().any(|spelling| docs.contains(spelling)), "{key} is not documented");
        }
    }
    assert!(jsonschema::meta::is_valid(&schema));
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "((guard|store|limits|identity|approvers|agents|rights|listen|url): |[-\\[\\]{}:,?&*!|>'\"#%@` a1\n~$<]){0,40}") {
        let _ = read(&text);
    }
}
