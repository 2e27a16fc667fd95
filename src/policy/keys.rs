//! Every key of a policy file, in one place: the reader, the editors' schema and its test use the
//! same lists.
//!
//! `later` names keys that the format has and this version does not: they are refused by name, so
//! that no file is ever read as if a rule in it were not there.

/// The keys of one mapping.
#[derive(Debug)]
pub(crate) struct Keys {
    /// What the mapping is, as messages name it.
    pub(crate) what: &'static str,
    /// Keys that this version reads.
    pub(crate) known: &'static [&'static str],
    /// Keys of the format that this version does not have.
    pub(crate) later: &'static [&'static str],
}

impl Keys {
    /// What to do where a key that is needed is not there.
    pub(crate) fn hint(&self, key: &str) -> Option<&'static str> {
        Some(match (self.what, key) {
            ("a policy file", "version") => "write `version: 1` in the first line",
            ("a policy file", "service") => "write a name of your own for the service: `service: orders`",
            ("a policy file", "upstream") => {
                "write where the service is: `upstream: {url: \"https://api.example.com\"}`"
            }
            ("`upstream`", "url") => "write where the service is: `url: \"https://api.example.com\"`",
            ("a tool", "name") => "write a name of your own for the tool: `name: cancel_order`",
            ("a tool", "effect") => "write `effect: write` if the call changes anything, else `effect: read`",
            ("a tool", "match") => "write which requests it is: `match: {method: POST, path: \"/orders/{id}/cancel\"}`",
            ("`match`", "method") => "write one method or a list: `method: POST`, `method: [PUT, PATCH]`",
            ("`match`", "path") => "write the path of the requests in quotes: `path: \"/orders/{id}\"`",
            ("a capability", "id") => "write a name of your own for what is allowed: `id: order.cancel`",
            ("a capability", "status") => "write `status: enabled`, `planned` or `forbidden`",
            ("`credentials`", "header") => "write the header that carries it: `header: Authorization`",
            ("`credentials`", "value") => "write where it comes from: `value: \"Bearer ${file:/run/secrets/NAME}\"`",
            ("`args`", "schema") => "write a JSON Schema whose top is `type: object`, closed at every object",
            ("`preview`", "title") => "write what the call does in a few words: `title: Cancel an order`",
            ("`identity`", "agents") => "write who may connect: `agents: [{name: bot, token_sha256: \"…\"}]`",
            (_, "token_sha256") => "`countersign token new` makes a token and prints its digest",
            _ => return None,
        })
    }
}

macro_rules! keys {
    ($($name:ident = $what:literal, [$($known:literal),*], [$($later:literal),*];)*) => {
        $(pub(crate) const $name: Keys =
            Keys { what: $what, known: &[$($known),*], later: &[$($later),*] };)*
        /// Every mapping with its keys.
        #[cfg(test)]
        pub(crate) const ALL: &[(&str, Keys)] = &[$((stringify!($name), $name)),*];
    };
}

keys! {
    FILE = "a policy file",
        ["version", "service", "upstream", "route", "unmatched", "capabilities", "tools", "held_status", "max_body",
         "body", "content_types", "bind_headers"],
        ["answer", "wait", "connection", "mcp", "truth", "grants", "auto_confirm", "graphql"];
    UPSTREAM = "`upstream`",
        ["url", "protocol", "timeouts", "honours_idempotency_key", "credentials", "inject", "credential_headers",
         "read_only", "upgrade", "tls"],
        ["http2"];
    TIMEOUTS = "`timeouts`", ["connect", "read", "total"], [];
    CREDENTIALS = "`credentials`", ["header", "value"], [];
    TLS = "`tls`", ["ca"], ["client"];
    ROUTE = "`route`", ["hosts", "path_prefix"], [];
    UNMATCHED = "`unmatched`", ["read", "write"], [];
    CAPABILITY = "a capability",
        ["id", "status", "tool", "operation", "risk", "confirm", "match", "guidance"], [];
    MATCH = "`match`",
        ["method", "path", "host", "header", "query", "content_type"],
        ["when", "mcp_tool", "jsonrpc_method", "graphql"];
    TOOL = "a tool",
        ["name", "match", "effect", "risk", "confirm", "allow", "args", "preview", "summary", "ttl", "idempotency",
         "replay_window", "refusal_memory", "late_release", "held_status", "max_body", "body", "content_types",
         "bind_headers", "outcome", "secret"],
        ["lookup", "risk_when", "recovery", "auto_confirm", "grants", "async", "partial", "answer", "wait",
         "connection", "conflict_key", "count", "graphql", "truth", "edit", "when"];
    ALLOW = "`allow`", ["roles"], ["when"];
    ARGS = "`args`", ["aliases", "schema", "prepare"], [];
    PREPARE = "a step of `prepare`", ["field", "trim", "nfc", "non_empty", "map", "default"], ["datetime", "hook"];
    PREVIEW = "`preview`", ["title", "target", "impact", "details"], [];
    DETAIL = "a line of `details`", ["key", "value"], [];
    IDEMPOTENCY = "`idempotency`", ["scope", "header"], ["fields", "query", "body", "derive_id"];
    BODY = "`body`", ["opaque"], [];
    OUTCOME = "`outcome`", ["succeeded", "failed", "unknown"], [];
}
