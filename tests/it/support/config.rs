//! The configuration of a guard under test: a folder with countersign.yaml and policy files.

use std::collections::BTreeMap;
use std::path::Path;

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

use super::guard::{Ended, Guard};
use super::redis::Redis;
use super::upstream::Upstream;

/// The service that most tests work with.
pub(crate) const DESK: &str = include_str!("../fixtures/desk.yaml");

/// Who has which token in the tests' configuration. All of them are made up.
pub(crate) mod tokens {
    /// The agent `desk-bot`.
    pub(crate) const DESK_BOT: &str = "agent-desk-bot-3f9c27a1d8";
    /// The agent `night-bot`, same tenant.
    pub(crate) const NIGHT_BOT: &str = "agent-night-bot-77b0e1c4aa";
    /// The agent `far-bot`, tenant `far`.
    pub(crate) const FAR_BOT: &str = "agent-far-bot-5d0c9e12b7";
    /// The agent `runtime`, which is given confirmation tokens for its users.
    pub(crate) const RUNTIME: &str = "agent-runtime-c2a84410fe";
    /// The approver `alice`: everything.
    pub(crate) const ALICE: &str = "approver-alice-90ab3d7e61";
    /// The approver `bob`: everything.
    pub(crate) const BOB: &str = "approver-bob-41fe6c8d02";
    /// The approver `carol`: tasks only, low risk only.
    pub(crate) const CAROL: &str = "approver-carol-8e27d5a3b9";
    /// The approver `dora`: no rights at all.
    pub(crate) const DORA: &str = "approver-dora-16c3f0e7d4";
    /// The approver `faye` of tenant `far`: everything there.
    pub(crate) const FAYE: &str = "approver-faye-b7d9a02e5c";
    /// The app `web`, which decides for signed-in owners.
    pub(crate) const WEB: &str = "app-web-2e61c9f7a0";
    /// The app `mute`, which may not act for owners.
    pub(crate) const MUTE: &str = "app-mute-f3a5b8c1d6";

    /// All of them.
    pub(crate) const ALL: [&str; 11] =
        [DESK_BOT, NIGHT_BOT, FAR_BOT, RUNTIME, ALICE, BOB, CAROL, DORA, FAYE, WEB, MUTE];
}

/// SHA-256 in lower-case hex, as tokens stand in the configuration.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    HEXLOWER.encode(&Sha256::digest(bytes))
}

/// A guard's configuration before it is started.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    sections: BTreeMap<String, String>,
    policies: BTreeMap<String, String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) point: Option<String>,
}

impl Setup {
    /// The tests' usual configuration: the desk behind the guard, identities, approvers, apps.
    pub(crate) fn over(upstream: &Upstream) -> Self {
        Self::local(upstream)
            .section("identity", &identity())
            .section("approvers", &approvers())
            .section("apps", &apps())
    }

    /// The same without identities, approvers and apps: everyone is `local`.
    pub(crate) fn local(upstream: &Upstream) -> Self {
        let empty = Self { sections: BTreeMap::new(), policies: BTreeMap::new(), env: Vec::new(), point: None };
        empty
            .section("guard", "{listen: 127.0.0.1:0}")
            .section("control", "{listen: 127.0.0.1:0}")
            .section("store", "{url: \"sqlite:countersign.db\"}")
            .section("policies", "policies/")
            .section("keys", "{file: countersign.keys}")
            .section("journal", "{path: journal/}")
            .section("limits", "{pending_per_owner: 1000, holds_per_owner: 10000/1m}")
            .policy("desk.yaml", DESK)
            .env("DESK_URL", &upstream.url())
    }

    /// Sets a top-level section, in YAML's flow or block form.
    pub(crate) fn section(mut self, name: &str, yaml: &str) -> Self {
        self.sections.insert(name.to_owned(), yaml.to_owned());
        self
    }

    /// Keeps the drafts on this server. `more` are further keys of the section in YAML's flow form, such
    /// as `lease: 3s`; may be empty.
    pub(crate) fn on_redis(self, redis: &Redis, more: &str) -> Self {
        self.section("store", &format!("{{url: \"{}\", {more}}}", redis.url()))
    }

    /// Uses the keys file of `guard`, as every guard on one store must. The journal stays its own.
    pub(crate) fn with_keys_of(self, guard: &Guard) -> Self {
        let file = guard.folder().join("countersign.keys");
        self.section("keys", &format!("{{file: \"{}\"}}", file.display()))
    }

    pub(crate) fn without(mut self, section: &str) -> Self {
        self.sections.remove(section);
        self
    }

    pub(crate) fn policy(mut self, file: &str, yaml: &str) -> Self {
        self.policies.insert(file.to_owned(), yaml.to_owned());
        self
    }

    /// Replaces a text in the desk's policy; fails if it is not there.
    #[track_caller]
    pub(crate) fn desk_with(self, from: &str, to: &str) -> Self {
        let desk = edited(&self.policies["desk.yaml"], from, to);
        self.policy("desk.yaml", &desk)
    }

    pub(crate) fn no_policies(mut self) -> Self {
        self.policies.clear();
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Makes the guard stop at a named point of its work, until the test lets it go on.
    pub(crate) fn stopping_at(mut self, point: &str) -> Self {
        self.point = Some(point.to_owned());
        self
    }

    /// Starts the guard and waits until it is ready.
    #[track_caller]
    pub(crate) fn start(self) -> Guard {
        Guard::start(self)
    }

    /// Starts the guard, or gives what it said when it ended instead.
    #[track_caller]
    pub(crate) fn try_start(self) -> Result<Guard, Ended> {
        Guard::try_start(self)
    }

    /// Starts the guard, expecting it to refuse, and gives what it said.
    #[track_caller]
    pub(crate) fn start_in_vain(self) -> Ended {
        Guard::start_in_vain(self)
    }

    /// Writes everything into `folder`.
    pub(crate) fn write_to(&self, folder: &Path) {
        let policies = folder.join("policies");
        std::fs::create_dir_all(&policies).expect("a policies folder");
        for (file, yaml) in &self.policies {
            std::fs::write(policies.join(file), yaml).expect("a policy file");
        }
        let mut config = String::new();
        for (name, yaml) in &self.sections {
            config.push_str(&format!("{name}: {yaml}\n"));
        }
        std::fs::write(folder.join("countersign.yaml"), config).expect("countersign.yaml");
    }
}

/// `text` with `from` replaced; fails if it is not there, so that no edit is lost silently.
#[track_caller]
pub(crate) fn edited(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "the fixture has no {from:?}");
    text.replace(from, to)
}

/// The tests' usual identities, with more sources.
pub(crate) fn identity_with(more: &str) -> String {
    format!("{}{more}", identity())
}

fn identity() -> String {
    let agent = |name: &str, token: &str, more: &str| {
        format!("\n    - {{name: {name}, token_sha256: \"{}\"{more}}}", sha256_hex(token.as_bytes()))
    };
    let agents = [
        agent("desk-bot", tokens::DESK_BOT, ""),
        agent("night-bot", tokens::NIGHT_BOT, ""),
        agent("far-bot", tokens::FAR_BOT, ", tenant: far"),
        agent("runtime", tokens::RUNTIME, ", deliver_token: true"),
    ];
    format!(
        "\n  agents:{}\n  owner: header:X-User-Id\n  session: header:X-Session-Id\n  message: header:X-Message-Id",
        agents.concat()
    )
}

fn approvers() -> String {
    let approver = |name: &str, token: &str, more: &str| {
        format!("\n  - {{name: {name}, token_sha256: \"{}\"{more}}}", sha256_hex(token.as_bytes()))
    };
    [
        approver("alice", tokens::ALICE, ", rights: {max_risk: high}"),
        approver("bob", tokens::BOB, ", rights: {max_risk: high}"),
        approver("carol", tokens::CAROL, ", rights: {capabilities: [\"task.*\"]}"),
        approver("dora", tokens::DORA, ""),
        approver("faye", tokens::FAYE, ", tenant: far, rights: {max_risk: high}"),
    ]
    .concat()
}

fn apps() -> String {
    format!(
        "\n  - {{name: web, token_sha256: \"{}\", act_for_owners: true}}\n  - {{name: mute, token_sha256: \"{}\", act_for_owners: false}}",
        sha256_hex(tokens::WEB.as_bytes()),
        sha256_hex(tokens::MUTE.as_bytes())
    )
}
