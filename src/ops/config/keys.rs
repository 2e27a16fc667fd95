//! Every key of countersign.yaml in one place: the reader and the test of the schema use it.

use crate::policy::keys::Keys;

macro_rules! sections {
    ($($name:ident = $what:literal, [$($known:literal),*], [$($later:literal),*];)*) => {
        $(pub(super) const $name: Keys = Keys { what: $what, known: &[$($known),*], later: &[$($later),*] };)*
        /// Every mapping with its keys.
        #[cfg(test)]
        pub(super) const ALL: &[(&str, Keys)] = &[$((stringify!($name), $name)),*];
    };
}

sections! {
    FILE = "the configuration",
        ["guard", "control", "store", "policies", "keys", "identity", "approvers", "apps", "journal", "limits",
         "telemetry"],
        ["approver_jwt", "truth", "ledger", "webhooks", "notify"];
    GUARD = "`guard`",
        ["listen", "max_body", "max_response", "send_window", "connect_patience", "confirm_wait"],
        ["answer", "wait", "forward_proxy"];
    CONTROL = "`control`", ["listen", "public_url"], [];
    STORE = "`store`", ["url", "timeout", "lease", "min_replica_acks", "assume", "tls"], [];
    STORE_TLS = "`store.tls`", ["ca", "cert", "key"], [];
    KEYS_FILE = "`keys`", ["file"], [];
    IDENTITY = "`identity`",
        ["agents", "owner", "session", "role", "subject", "admin_context", "admin_mode", "message"],
        ["jwt"];
    AGENT = "an agent", ["name", "token_sha256", "tenant", "deliver_token"], [];
    APPROVER = "an approver", ["name", "token_sha256", "roles", "tenant", "rights"], [];
    RIGHTS = "`rights`", ["capabilities", "services", "owners", "max_risk"], [];
    APP = "an app", ["name", "token_sha256", "tenant", "act_for_owners"], [];
    JOURNAL = "`journal`", ["path", "max"], [];
    LIMITS = "`limits`",
        ["pending_per_owner", "holds_per_owner", "retention", "held_bytes_total", "connections_per_agent", "head",
         "body"],
        [];
    TELEMETRY = "`telemetry`", ["log"], ["otlp"];
    LOG = "`log`", ["format"], [];
}
