//! Reads `match`, and the small rules that services and tools share.

use http::{HeaderName, HeaderValue};

use crate::call::path::PathTemplate;
use crate::draft::record::{ConfirmRule, Risk};

use super::super::diagnostic::nearest;
use super::super::keys;
use super::super::model::{CONTENT_TYPES, HELD_STATUS, Match, Opaque};
use super::super::outbound::is_forwarded;
use super::super::read::{Fields, File, scalar_json};
use super::super::yaml::{BRACES, Kind, Node};

const METHODS: [&str; 8] = ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "QUERY"];

/// Reads a `match`. A tool has to say its methods; a capability without any means every method.
pub(super) fn read_match(file: &File<'_>, node: &Node, needs_method: bool) -> Option<Match> {
    let fields = Fields::open(file, node, &keys::MATCH)?;
    let method = if needs_method { fields.require(file, &keys::MATCH, "method") } else { fields.get("method") };
    let methods = method.map(|node| many(file, node, |item| read_method(file, item)));
    let path = fields.require(file, &keys::MATCH, "path").and_then(|node| read_path(file, node));
    let hosts = fields.get("host").map(|node| many(file, node, |item| read_host(file, item)));
    let headers = fields.get("header").map(|node| read_headers(file, node));
    let query = fields.get("query").map(|node| read_query(file, node));
    let content_types = fields.get("content_type").map(|node| many(file, node, |item| read_media_type(file, item)));
    Some(Match {
        methods: methods.unwrap_or_default(),
        path: path?,
        hosts: hosts.unwrap_or_default(),
        headers: headers.unwrap_or_default(),
        query: query.unwrap_or_default(),
        content_types: content_types.unwrap_or_default(),
    })
}

/// One value or a list of them; an empty list is a mistake, since it would mean everything.
fn many<T>(file: &File<'_>, node: &Node, read: impl Fn(&Node) -> Option<T>) -> Vec<T> {
    let items = file.one_or_many(node);
    if items.is_empty() {
        file.error_with(node.place, "an empty list names nothing", "take the key out, or name something");
    }
    items.into_iter().filter_map(read).collect()
}

fn read_method(file: &File<'_>, node: &Node) -> Option<String> {
    let text = file.literal(node, "a method")?;
    let token = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b));
    if !token {
        file.error(node.place, "this is not a method");
        return None;
    }
    if matches!(text, "TRACE" | "CONNECT") {
        file.error(node.place, format!("`{text}` is never forwarded"));
        return None;
    }
    let upper = text.to_ascii_uppercase();
    if upper != text && METHODS.contains(&upper.as_str()) {
        let hint = format!("write `{upper}`: methods are compared letter by letter");
        file.error_with(node.place, format!("no request has the method `{text}`"), hint);
        return None;
    }
    Some(text.to_owned())
}

fn read_path(file: &File<'_>, node: &Node) -> Option<PathTemplate> {
    if let Kind::Map(_) | Kind::List(_) = &node.kind {
        // A path that is nothing but a parameter reads as a mapping where it has no quotes.
        let is = if matches!(node.kind, Kind::Map(_)) { "a mapping" } else { "a list" };
        file.error_with(node.place, format!("`path` must be a text, and this is {is}"), BRACES);
        return None;
    }
    let text = file.literal(node, "`path`")?;
    match PathTemplate::parse(text) {
        Ok(template) => Some(template),
        Err(error) => {
            let hint = "write it as requests have it, with `{name}` for one segment: \"/orders/{id}/cancel\"";
            file.error_with(node.place, error.to_string(), hint);
            None
        }
    }
}

pub(super) fn read_host(file: &File<'_>, node: &Node) -> Option<String> {
    let text = file.text(node, "a host")?;
    let host = text.value.to_ascii_lowercase();
    let plain = host.trim_start_matches('[').trim_end_matches(']');
    let legal = !plain.is_empty()
        && (plain.parse::<std::net::Ipv6Addr>().is_ok()
            || plain.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_')));
    if !legal {
        file.error_with(node.place, "this is not a host", "write the name alone, without scheme and port");
        return None;
    }
    Some(plain.strip_suffix('.').unwrap_or(plain).to_owned())
}

fn read_headers(file: &File<'_>, node: &Node) -> Vec<(HeaderName, HeaderValue)> {
    let read = |entry: &super::super::yaml::Entry| {
        let name = file.header_name_of(entry.place, &entry.key, "this key")?;
        if !is_forwarded(&name) {
            let message = format!("`{name}` is never sent upstream, so a rule cannot hold on it at the release");
            file.error(entry.place, message);
            return None;
        }
        let text = file.literal(&entry.value, "the header's value")?;
        match HeaderValue::from_str(text) {
            Ok(value) => Some((name, value)),
            Err(_) => {
                file.error(entry.value.place, "this cannot stand in a header");
                None
            }
        }
    };
    file.map(node, "`header`").into_iter().flatten().filter_map(read).collect()
}

fn read_query(file: &File<'_>, node: &Node) -> Vec<(String, String)> {
    let read = |entry: &super::super::yaml::Entry| match &entry.value.kind {
        // Numbers and truth values are compared as they are spelled.
        Kind::Scalar(scalar) => match scalar_json(scalar) {
            serde_json::Value::Null => {
                file.error_with(entry.value.place, "the parameter's value is missing", "write \"\" for an empty value");
                None
            }
            _ => Some((entry.key.clone(), scalar.text.clone())),
        },
        _ => file.literal(&entry.value, "the parameter's value").map(|text| (entry.key.clone(), text.to_owned())),
    };
    file.map(node, "`query`").into_iter().flatten().filter_map(read).collect()
}

fn read_media_type(file: &File<'_>, node: &Node) -> Option<String> {
    let text = file.literal(node, "a media type")?.to_ascii_lowercase();
    let token =
        |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&b));
    match text.split_once('/') {
        Some((kind, subtype)) if token(kind) && token(subtype) => Some(text),
        _ => {
            file.error_with(node.place, "this is not a media type", "write it without parameters: application/json");
            None
        }
    }
}

/// What a service states for its tools, or the defaults.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    pub(super) held_status: u16,
    pub(super) body_bytes_max: Option<usize>,
    pub(super) opaque: Opaque,
    pub(super) content_types: Vec<String>,
    pub(super) bind_headers: Vec<HeaderName>,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            held_status: HELD_STATUS,
            body_bytes_max: None,
            opaque: Opaque::Hold,
            content_types: CONTENT_TYPES.iter().map(|media| (*media).to_owned()).collect(),
            bind_headers: Vec::new(),
        }
    }
}

impl Shared {
    /// The keys that a service and a tool have in common, over what the level above says.
    pub(super) fn read(&self, file: &File<'_>, fields: &Fields<'_>) -> Self {
        let mut shared = self.clone();
        let statuses = [("202", 202), ("403", 403), ("409", 409), ("428", 428)];
        let status = fields.get("held_status").and_then(|node| file.choice(node, "`held_status`", &statuses, &[]));
        shared.held_status = status.unwrap_or(shared.held_status);
        let bytes = fields.get("max_body").and_then(|node| file.bytes(node, "`max_body`", "16MiB"));
        shared.body_bytes_max = bytes.or(shared.body_bytes_max);
        let body = fields.get("body").and_then(|node| Fields::open(file, node, &keys::BODY));
        let rules = [("hold", Opaque::Hold), ("refuse", Opaque::Refuse)];
        let opaque = body.and_then(|body| body.get("opaque")).and_then(|n| file.choice(n, "`opaque`", &rules, &[]));
        shared.opaque = opaque.unwrap_or(shared.opaque);
        if let Some(node) = fields.get("content_types") {
            shared.content_types = many(file, node, |item| read_media_type(file, item));
        }
        if let Some(node) = fields.get("bind_headers") {
            let items = file.list(node, "`bind_headers`").into_iter().flatten();
            shared.bind_headers = items.filter_map(|item| bound_header(file, item)).collect();
        }
        shared
    }
}

fn bound_header(file: &File<'_>, node: &Node) -> Option<HeaderName> {
    let name = file.header_name(node, "a bound header")?;
    if !is_forwarded(&name) {
        file.error(node.place, format!("`{name}` is never sent upstream, so there is nothing to bind"));
        return None;
    }
    Some(name)
}

pub(super) fn read_risk(file: &File<'_>, node: &Node) -> Option<Risk> {
    file.choice(node, "`risk`", &[("low", Risk::Low), ("medium", Risk::Medium), ("high", Risk::High)], &[])
}

/// A confirmation rule; `None` is `none`, which only reads may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Confirm {
    Rule(ConfirmRule),
    None,
}

pub(super) fn read_confirm(file: &File<'_>, node: &Node) -> Option<Confirm> {
    if matches!(node.kind, Kind::Map(_)) {
        file.later(node.place, "confirmation rules that are spelled out");
        return None;
    }
    let rules = [
        ("default", Confirm::Rule(ConfirmRule::Default)),
        ("always", Confirm::Rule(ConfirmRule::Always)),
        ("none", Confirm::None),
    ];
    file.choice(node, "`confirm`", &rules, &[])
}

/// A hint that names the nearest of `known`, or all of them.
pub(super) fn hint_of(word: &str, known: &[&str]) -> String {
    nearest(word, known.iter().copied()).map_or_else(
        || format!("there are: {}", super::super::schema::listed(known)),
        |near| format!("did you mean `{near}`?"),
    )
}
