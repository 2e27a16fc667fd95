//! The files of `deploy/`: two guards that read one configuration, each with its own environment.

use serde_json::json;

use super::DURABLE;
use crate::support::{Guard, Redis, Setup, Upstream, sha256_hex, tokens, until};

const CONFIG: &str = include_str!("../../../deploy/countersign.yaml");
const POLICY: &str = include_str!("../../../deploy/policies/orders.yaml");
const ENVIRONMENT: &str = include_str!("../../../deploy/countersign.env.example");
const COMPOSE: &str = include_str!("../../../deploy/compose.yaml");
const USERS: &str = include_str!("../../../deploy/users.acl.example");

/// The configuration as it stands there, section by section.
fn as_deployed(upstream: &Upstream) -> Setup {
    let mut setup = Setup::over(upstream).no_policies().policy("orders.yaml", POLICY);
    for section in
        ["identity", "approvers", "apps", "limits", "guard", "control", "store", "policies", "keys", "journal"]
    {
        setup = setup.without(section);
    }
    let mut sections: Vec<(String, String)> = Vec::new();
    for line in CONFIG.lines().filter(|line| !line.starts_with('#')) {
        match line.split_once(':').filter(|_| !line.starts_with(' ')) {
            Some((name, rest)) => sections.push((name.to_owned(), rest.to_owned())),
            None => sections.last_mut().unwrap().1.push_str(&format!("\n{line}")),
        }
    }
    sections.into_iter().fold(setup, |setup, (name, yaml)| setup.section(&name, &yaml))
}

fn start(upstream: &Upstream, store: &str, keys: &std::path::Path) -> Guard {
    let set = [
        ("COUNTERSIGN_LISTEN", "127.0.0.1:0".to_owned()),
        ("COUNTERSIGN_CONTROL_LISTEN", "127.0.0.1:0".to_owned()),
        ("COUNTERSIGN_PUBLIC_URL", "https://guard.example".to_owned()),
        ("COUNTERSIGN_STORE", store.to_owned()),
        ("COUNTERSIGN_KEYS", keys.display().to_string()),
        ("COUNTERSIGN_JOURNAL", "journal".to_owned()),
        ("COUNTERSIGN_POLICIES", "policies".to_owned()),
        ("COUNTERSIGN_AGENT_SHA256", sha256_hex(tokens::DESK_BOT.as_bytes())),
        ("COUNTERSIGN_APPROVER_SHA256", sha256_hex(tokens::ALICE.as_bytes())),
        ("ORDERS_URL", upstream.url()),
    ];
    for (name, _) in &set {
        assert!(ENVIRONMENT.contains(&format!("\n{name}=")), "{name} is not in countersign.env.example");
    }
    set.iter().fold(as_deployed(upstream), |setup, (name, value)| setup.env(name, value)).start()
}

#[test]
fn two_guards_of_the_deployment_share_one_store() {
    let (redis, upstream) = (Redis::start_on_tcp(&DURABLE), Upstream::start());
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("countersign.keys");
    let one = start(&upstream, &redis.url(), &keys);
    let two = start(&upstream, &redis.url(), &keys);
    let draft = one.agent().hold("/orders/A-1/cancel", &json!({"reason": "wrong address"}));
    two.approver().confirm(&draft).must_be(200);
    assert_eq!(upstream.effects("/orders/A-1/cancel"), 1);
    let again = two.agent().post("/orders/A-1/cancel", &json!({"reason": "wrong address"}));
    assert_eq!(again.header("countersign-replayed"), Some("true"));
    assert_eq!(upstream.effects("/orders/A-1/cancel"), 1);
}

/// A server reads its file back with the rights of `default`, whom nobody can be: with too few it drops what scripts
/// wrote, and comes up as if all were well.
#[test]
fn a_restarted_server_with_the_users_of_the_deployment_has_every_draft() {
    // The harness signs in as `default`; what it needs for that is no right to write.
    let users = USERS.replace("user default off", "user default on >test +ping +info");
    assert!(users.starts_with("user default on ") && USERS.contains(" off >REPLICA_PASSWORD "), "{USERS}");
    let folder = tempfile::tempdir().unwrap();
    let (file, keys) = (folder.path().join("users.acl"), folder.path().join("countersign.keys"));
    std::fs::write(&file, users).unwrap();
    let mut options = DURABLE.to_vec();
    options.extend(["--aclfile", file.to_str().unwrap(), "--requirepass", "test"]);
    let (mut redis, upstream) = (Redis::start_on_tcp(&options), Upstream::start());
    let guard = start(&upstream, &format!("redis://guard:PASSWORD@127.0.0.1:{}", redis.port()), &keys);
    let draft = guard.agent().hold("/orders/A-1/cancel", &json!({"reason": "wrong address"}));
    redis.restart();
    until("the guard is ready again", || guard.control_get("/readyz").status == 200);
    guard.approver().confirm(&draft).must_be(200);
    assert_eq!(upstream.effects("/orders/A-1/cancel"), 1);
}

/// Every variable that the configuration asks for is in the example, and the compose file names no other.
#[test]
fn the_environment_is_whole() {
    let named = |text: &str| -> std::collections::BTreeSet<String> {
        let parts = text.split("${env:").skip(1).map(|rest| rest.split('}').next().unwrap().to_owned());
        parts.collect()
    };
    let asked: std::collections::BTreeSet<String> = named(CONFIG).union(&named(POLICY)).cloned().collect();
    let given = |line: &str| line.split_once('=').map(|(name, _)| name.to_owned());
    let example: std::collections::BTreeSet<String> =
        ENVIRONMENT.lines().filter(|line| !line.starts_with('#')).filter_map(given).collect();
    assert_eq!(asked, example);
    for line in COMPOSE.lines().map(str::trim).filter(|line| line.starts_with("COUNTERSIGN_")) {
        let name = line.split(':').next().unwrap();
        assert!(example.contains(name), "{name} of the compose file is unknown");
    }
}
