//! Reads `upstream`.

use http::HeaderName;
use http::header::{AUTHORIZATION, COOKIE};

use crate::base::secret::Secret;

use super::super::diagnostic::Severity;
use super::super::keys;
use super::super::model::{Credential, Timeouts, Upstream};
use super::super::open::{NO_SCHEME, read_url};
use super::super::outbound::{INJECT_ROOTS, is_forwarded};
use super::super::read::{Fields, File};
use super::super::template::Template;
use super::super::template::check::{Scope, compile};
use super::super::yaml::{Kind, Node};

pub(super) fn read(file: &File<'_>, node: &Node) -> Option<Upstream> {
    let fields = Fields::open(file, node, &keys::UPSTREAM)?;
    // First of all: nothing of a credential may stand in an excerpt of any mistake.
    let credential_node = fields.get("credentials");
    hide_credential(file, credential_node);
    if let Some(node) = fields.get("protocol") {
        file.choice(node, "`protocol`", &[("http", ())], &["mcp", "llm"]);
    }
    let origin = fields.require(file, &keys::UPSTREAM, "url").and_then(|node| {
        let url = file.text(node, "`url`")?;
        hide_parts(file, &url.value);
        match read_url(&url.value) {
            Ok(origin) => Some(origin),
            Err(why) => {
                let hint = (why == NO_SCHEME)
                    .then_some("write the scheme too: https://api.example.com, http://127.0.0.1:8080");
                let message = format!("the upstream's URL {why}");
                file.found(node.place, Severity::Error, message, hint.map(str::to_owned));
                None
            }
        }
    });
    let flag = |key: &str| fields.get(key).and_then(|node| file.boolean(node, &format!("`{key}`"))).unwrap_or(false);
    let (honours, read_only) = (flag("honours_idempotency_key"), flag("read_only"));
    let timeouts = fields.get("timeouts").map_or_else(Timeouts::default, |node| read_timeouts(file, node));
    let credential = credential_node.and_then(|node| read_credential(file, node));
    let credential_headers = fields.get("credential_headers").map_or_else(
        || vec![AUTHORIZATION, COOKIE],
        |node| {
            let items = file.list(node, "`credential_headers`").into_iter().flatten();
            items.filter_map(|item| forwarded(file, item)).collect()
        },
    );
    let taken = credential.iter().map(|c| &c.header).chain(&credential_headers).cloned().collect::<Vec<_>>();
    let inject = fields.get("inject").map(|node| read_inject(file, node, &taken)).unwrap_or_default();
    let upgrade = fields.get("upgrade").map(|node| {
        let items = file.list(node, "`upgrade`").into_iter().flatten();
        items.filter_map(|item| file.choice(item, "an upgrade", &[("websocket", "websocket")], &[])).collect::<Vec<_>>()
    });
    let ca_file = fields.get("tls").and_then(|node| Fields::open(file, node, &keys::TLS)).and_then(|tls| {
        let ca = tls.require(file, &keys::TLS, "ca")?;
        file.text(ca, "`ca`").map(|path| path.value.into())
    });
    let mut upstream = Upstream::at(origin?);
    if ca_file.is_some() && !upstream.tls {
        file.error(fields.key_place("tls"), "`tls` needs an https:// URL");
    }
    upstream.timeouts = timeouts;
    upstream.honours_idempotency_key = honours;
    upstream.credential = credential;
    upstream.inject = inject;
    upstream.credential_headers = credential_headers;
    upstream.read_only = read_only;
    upstream.upgrade = upgrade.unwrap_or_default().into_iter().map(str::to_owned).collect();
    upstream.ca_file = ca_file;
    Some(upstream)
}

/// A user, a password and a query are refused in a URL, and are secrets all the same.
fn hide_parts(file: &File<'_>, url: &str) {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    if let Some((user, _)) = rest.split_once('@') {
        file.keep_secret(user);
    }
    if let Some((_, query)) = rest.split_once('?') {
        file.keep_secret(query);
    }
}

fn hide_credential(file: &File<'_>, node: Option<&Node>) {
    let mut open: Vec<&Node> = node.into_iter().collect();
    while let Some(node) = open.pop() {
        match &node.kind {
            Kind::Scalar(scalar) => {
                // A header's name and a reference to a secret are none.
                let secret = !scalar.text.contains("${") && HeaderName::from_bytes(scalar.text.as_bytes()).is_err();
                if secret {
                    file.keep_secret(&scalar.text);
                }
            }
            Kind::List(items) => open.extend(items),
            Kind::Map(entries) => {
                for entry in entries {
                    // Whatever stands beside the header's name may be the secret under a wrong key.
                    if let Kind::Scalar(scalar) = &entry.value.kind
                        && entry.key != "header"
                        && !scalar.text.contains("${")
                    {
                        file.keep_secret(&scalar.text);
                    }
                    open.push(&entry.value);
                }
            }
            Kind::Refused => {}
        }
    }
}

fn read_timeouts(file: &File<'_>, node: &Node) -> Timeouts {
    let mut timeouts = Timeouts::default();
    let Some(fields) = Fields::open(file, node, &keys::TIMEOUTS) else { return timeouts };
    for (key, slot, least, most) in [
        ("connect", &mut timeouts.connect, "10ms", "60s"),
        ("read", &mut timeouts.read, "10ms", "10m"),
        ("total", &mut timeouts.total, "100ms", "10m"),
    ] {
        let read = fields.get(key).and_then(|node| file.duration(node, &format!("`{key}`"), least, most));
        *slot = read.unwrap_or(*slot);
    }
    timeouts
}

fn read_credential(file: &File<'_>, node: &Node) -> Option<Credential> {
    let fields = Fields::open(file, node, &keys::CREDENTIALS)?;
    let header = fields.require(file, &keys::CREDENTIALS, "header").and_then(|node| forwarded(file, node));
    let value_node = fields.require(file, &keys::CREDENTIALS, "value")?;
    let value = file.text(value_node, "`value`")?;
    if !value.substituted {
        let hint = "write `${file:/run/secrets/NAME}` or `${env:NAME}`";
        file.warn(value_node.place, "a credential stands in the policy file itself", hint);
    }
    if http::HeaderValue::from_str(&value.value).is_err() || value.value.trim() != value.value {
        file.error(
            value_node.place,
            "the credential cannot stand in a header: it has a line break, a control character or spaces around it",
        );
        return None;
    }
    Some(Credential { header: header?, value: Secret::new(value.value) })
}

fn forwarded(file: &File<'_>, node: &Node) -> Option<HeaderName> {
    let name = file.header_name(node, "a header")?;
    if is_forwarded(&name) {
        return Some(name);
    }
    file.error(node.place, format!("`{name}` is a header that the guard sets or drops by itself"));
    None
}

fn read_inject(file: &File<'_>, node: &Node, taken: &[HeaderName]) -> Vec<(HeaderName, Template)> {
    const SET_ALONE: [&str; 3] = ["content-type", "content-encoding", "content-range"];
    let scope = Scope { schema: None, roots: INJECT_ROOTS, args: false };
    let mut injected: Vec<(HeaderName, Template)> = Vec::new();
    for entry in file.map(node, "`inject`").into_iter().flatten() {
        let Some(name) = file.header_name_of(entry.place, &entry.key, "this key") else { continue };
        if !is_forwarded(&name) || SET_ALONE.contains(&name.as_str()) {
            file.error(entry.place, format!("`{name}` is a header that the guard sets or drops by itself"));
            continue;
        }
        if taken.contains(&name) {
            file.error_with(
                entry.place,
                format!("`{name}` carries a credential"),
                "a secret belongs into `credentials`",
            );
            continue;
        }
        if injected.iter().any(|(known, _)| *known == name) {
            file.error(entry.place, format!("`{name}` stands here twice, in two spellings"));
            continue;
        }
        let Some(source) = file.literal(&entry.value, "an injected header") else { continue };
        match compile(source, scope) {
            Ok(template) => injected.push((name, template)),
            Err(mistakes) => report_template(file, &entry.value, mistakes),
        }
    }
    injected
}

pub(super) fn report_template(file: &File<'_>, node: &Node, mistakes: Vec<(String, Option<String>)>) {
    for (message, hint) in mistakes {
        file.found(node.place, Severity::Error, message, hint);
    }
}
