//! Who is who: agents and the sources of identity, approvers and their rights, apps.

use std::collections::HashMap;

use http::HeaderName;

use crate::agent::identity::{AgentEntry, IdentityRules, Source};
use crate::base::digest::Digest;
use crate::base::id::{Initiator, Principal, Tenant};
use crate::control::credentials::{AppEntry, ApproverEntry};
use crate::draft::record::Risk;
use crate::guard::who::{Pattern, Rights};
use crate::policy::read::{Fields, File};
use crate::policy::yaml::{Kind, Node, Place};

use super::keys;
use super::values::{self, or};

/// Longest constant of an identity, in bytes; as the names that it becomes.
const CONST_BYTES_MAX: usize = 255;

/// Headers that mean something to HTTP or to the guard, and so cannot carry an identity.
const RESERVED: [&str; 20] = [
    "authorization",
    "proxy-authorization",
    "cookie",
    "host",
    "connection",
    "content-length",
    "content-type",
    "content-encoding",
    "transfer-encoding",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "keep-alive",
    "proxy-connection",
    "idempotency-key",
    "prefer",
    "range",
    "accept",
    "date",
];

/// The `identity:` section; the inner `None` where there is none.
pub(super) fn identity(file: &File<'_>, fields: &Fields<'_>) -> Option<Option<IdentityRules>> {
    let Some(node) = fields.get("identity") else { return Some(None) };
    let at = Fields::open(file, node, &keys::IDENTITY)?;
    let agents = agents(file, &at);
    let source = |key: &str| match at.get(key) {
        None => Some(None),
        Some(node) => source(file, node, key).map(Some),
    };
    let (owner, session, role, subject) = (source("owner"), source("session"), source("role"), source("subject"));
    let (context, mode, message) = (source("admin_context"), source("admin_mode"), source("message"));
    Some(Some(IdentityRules {
        agents: agents?,
        owner: owner?,
        session: session?,
        role: role?,
        subject: subject?,
        admin_context: context?,
        admin_mode: mode?,
        message: message?,
    }))
}

fn agents(file: &File<'_>, at: &Fields<'_>) -> Option<Vec<AgentEntry>> {
    let node = at.require(file, &keys::IDENTITY, "agents")?;
    let items = filled(file, node, "`identity.agents`", "an agent without a credential could be anybody")?;
    let mut names = Seen::new("agent");
    let read: Vec<Option<AgentEntry>> = items
        .iter()
        .map(|item| {
            let at = Fields::open(file, item, &keys::AGENT)?;
            let name = named(file, &at, &keys::AGENT, Initiator::new);
            let token_sha256 = token(file, &at, &keys::AGENT);
            let tenant = tenant(file, &at);
            let deliver_token = or(&at, "deliver_token", false, |node| values::boolean(file, node, "`deliver_token`"));
            names.check(file, &at, name.as_ref().map(Initiator::as_str));
            Some(AgentEntry {
                name: name?,
                token_sha256: token_sha256?,
                tenant: tenant?,
                deliver_token: deliver_token?,
            })
        })
        .collect();
    read.into_iter().collect()
}

/// Where a value of the identity comes from. Path and arg are for the subject alone: an owner
/// that the model writes itself would be no owner.
fn source(file: &File<'_>, node: &Node, key: &str) -> Option<Source> {
    let text = values::word(file, node, &format!("`identity.{key}`"))?;
    let for_subject = key == "subject";
    let place = node.place;
    let hint = if for_subject {
        "header:NAME, agent, const:VALUE, path:NAME or arg:/POINTER"
    } else {
        "header:NAME, agent or const:VALUE"
    };
    let wrong = |why: String| {
        file.error_with(place, why, hint);
        None
    };
    match text.split_once(':') {
        None if text == "agent" => Some(Source::Agent),
        Some(("header", name)) => header(file, place, name).map(Source::Header),
        Some(("const", value)) => {
            let legal = (1..=CONST_BYTES_MAX).contains(&value.len()) && !value.chars().any(char::is_control);
            if legal {
                return Some(Source::Const(value.to_owned()));
            }
            wrong(format!("`identity.{key}`: a constant has 1 to {CONST_BYTES_MAX} bytes and no control characters"))
        }
        Some(("jwt", _)) => {
            file.later(place, "`jwt:` as a source");
            None
        }
        Some(("path" | "arg", _)) if !for_subject => {
            wrong(format!("`identity.{key}` cannot come from the call itself: the agent writes it"))
        }
        Some(("path", name)) if !name.is_empty() => Some(Source::Path(name.to_owned())),
        Some(("arg", pointer)) if pointer.starts_with('/') => Some(Source::Arg(pointer.to_owned())),
        _ => wrong(format!("`identity.{key}` names no source")),
    }
}

fn header(file: &File<'_>, place: Place, name: &str) -> Option<HeaderName> {
    let name = file.header_name_of(place, name, "the source")?;
    if RESERVED.contains(&name.as_str()) || name.as_str().starts_with("countersign-") {
        let hint = "name a header of your own: header:X-User-Id";
        file.error_with(place, format!("the header `{name}` cannot carry an identity"), hint);
        return None;
    }
    Some(name)
}

/// The declared approvers; empty where there is no `approvers:`.
pub(super) fn approvers(file: &File<'_>, fields: &Fields<'_>) -> Option<Vec<ApproverEntry>> {
    let Some(node) = fields.get("approvers") else { return Some(Vec::new()) };
    let items = filled(file, node, "`approvers`", "an empty list means that nobody may approve anything")?;
    let mut names = Seen::new("approver");
    let read: Vec<Option<ApproverEntry>> = items
        .iter()
        .map(|item| {
            let at = Fields::open(file, item, &keys::APPROVER)?;
            let name = principal(file, &at, &keys::APPROVER);
            let token_sha256 = token(file, &at, &keys::APPROVER);
            let tenant = tenant(file, &at);
            let roles = or(&at, "roles", Vec::new(), |node| texts(file, node, "`roles`"));
            let rights = match at.get("rights") {
                Some(node) => rights(file, node).map(Some),
                None => {
                    let hint = "`rights: {}` allows everything up to low risk";
                    file.warn(item.place, "this approver has no `rights` and may decide nothing", hint);
                    Some(None)
                }
            };
            names.check(file, &at, name.as_ref().map(Principal::as_str));
            Some(ApproverEntry {
                name: name?,
                token_sha256: token_sha256?,
                roles: roles?,
                tenant: tenant?,
                rights: rights?,
            })
        })
        .collect();
    read.into_iter().collect()
}

fn rights(file: &File<'_>, node: &Node) -> Option<Rights> {
    let at = Fields::open(file, node, &keys::RIGHTS)?;
    let list = |key: &str| or(&at, key, vec![Pattern::new("*")], |node| patterns(file, node, key));
    let (capabilities, services, owners) = (list("capabilities"), list("services"), list("owners"));
    let max_risk = or(&at, "max_risk", Risk::Low, |node| match values::word(file, node, "`max_risk`")?.as_str() {
        "low" => Some(Risk::Low),
        "medium" => Some(Risk::Medium),
        "high" => Some(Risk::High),
        _ => {
            file.error(node.place, "`max_risk` must be `low`, `medium` or `high`");
            None
        }
    });
    Some(Rights { capabilities: capabilities?, services: services?, owners: owners?, max_risk: max_risk? })
}

fn patterns(file: &File<'_>, node: &Node, key: &str) -> Option<Vec<Pattern>> {
    let items = filled(file, node, &format!("`{key}`"), "an empty list allows nothing; leave the key out for all")?;
    let read: Vec<Option<Pattern>> = items
        .iter()
        .map(|item| {
            let text = values::word(file, item, "a pattern")?;
            let star = text.find('*');
            if star.is_some_and(|at| at + 1 != text.len()) {
                file.error(item.place, "a pattern has at most one `*`, at its end");
                return None;
            }
            Some(Pattern::new(text))
        })
        .collect();
    read.into_iter().collect()
}

/// The apps; empty where there are none.
pub(super) fn apps(file: &File<'_>, fields: &Fields<'_>) -> Option<Vec<AppEntry>> {
    let Some(node) = fields.get("apps") else { return Some(Vec::new()) };
    let items = file.list(node, "`apps`")?;
    let mut names = Seen::new("app");
    let read: Vec<Option<AppEntry>> = items
        .iter()
        .map(|item| {
            let at = Fields::open(file, item, &keys::APP)?;
            let name = principal(file, &at, &keys::APP);
            let token_sha256 = token(file, &at, &keys::APP);
            let tenant = tenant(file, &at);
            let act_for_owners =
                or(&at, "act_for_owners", false, |node| values::boolean(file, node, "`act_for_owners`"));
            if act_for_owners == Some(false) {
                let hint = "an app decides for owners only with `act_for_owners: true`";
                file.warn(item.place, "this app may do nothing", hint);
            }
            names.check(file, &at, name.as_ref().map(Principal::as_str));
            Some(AppEntry {
                name: name?,
                token_sha256: token_sha256?,
                tenant: tenant?,
                act_for_owners: act_for_owners?,
            })
        })
        .collect();
    read.into_iter().collect()
}

/// No token may be two principals': an agent that could also approve would break promise 1.
pub(super) fn credentials_differ(file: &File<'_>, fields: &Fields<'_>) {
    let mut seen: HashMap<Digest, usize> = HashMap::new();
    let identity = fields.get("identity").and_then(|node| member(node, "agents"));
    for list in [identity, fields.get("approvers"), fields.get("apps")].into_iter().flatten() {
        let Kind::List(items) = &list.kind else { continue };
        for item in items {
            let Some(node) = member(item, "token_sha256") else { continue };
            let Kind::Scalar(scalar) = &node.kind else { continue };
            let Ok(digest) = scalar.text.trim().parse::<Digest>() else { continue };
            if let Some(line) = seen.insert(digest, node.place.line) {
                let hint = format!("it stands on line {line} already; every principal has a token of its own");
                file.error_with(node.place, "two principals have the same token", hint);
            }
        }
    }
}

fn member<'n>(node: &'n Node, key: &str) -> Option<&'n Node> {
    match &node.kind {
        Kind::Map(entries) => entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value),
        _ => None,
    }
}

/// A list with something in it.
fn filled<'n>(file: &File<'_>, node: &'n Node, what: &str, hint: &str) -> Option<&'n [Node]> {
    let items = file.list(node, what)?;
    if items.is_empty() {
        file.error_with(node.place, format!("{what} is empty"), hint);
        return None;
    }
    Some(items)
}

fn texts(file: &File<'_>, node: &Node, what: &str) -> Option<Vec<String>> {
    let read: Vec<Option<String>> = file.list(node, what)?.iter().map(|item| values::word(file, item, what)).collect();
    read.into_iter().collect()
}

fn named<T, E: std::fmt::Display>(
    file: &File<'_>,
    at: &Fields<'_>,
    keys: &crate::policy::keys::Keys,
    make: impl Fn(String) -> Result<T, E>,
) -> Option<T> {
    let node = at.require(file, keys, "name")?;
    values::name(file, node, "`name`", make)
}

/// A principal's name stands in decisions beside the guard's own words for deciders.
fn principal(file: &File<'_>, at: &Fields<'_>, keys: &crate::policy::keys::Keys) -> Option<Principal> {
    let name = named(file, at, keys, Principal::new)?;
    let text = name.as_str();
    if text == "guard" || ["app:", "policy:", "grant:"].iter().any(|prefix| text.starts_with(prefix)) {
        let place = at.get("name").map_or(at.place, |node| node.place);
        file.error_with(place, format!("the name `{text}` is the guard's own"), "give another name");
        return None;
    }
    Some(name)
}

fn token(file: &File<'_>, at: &Fields<'_>, keys: &crate::policy::keys::Keys) -> Option<Digest> {
    let node = at.require(file, keys, "token_sha256")?;
    values::digest(file, node, "`token_sha256`")
}

fn tenant(file: &File<'_>, at: &Fields<'_>) -> Option<Tenant> {
    match at.get("tenant") {
        Some(node) => values::name(file, node, "`tenant`", Tenant::new),
        None => Tenant::new("default").ok(),
    }
}

/// Names of one list: none may stand twice.
struct Seen {
    what: &'static str,
    names: HashMap<String, usize>,
}

impl Seen {
    fn new(what: &'static str) -> Self {
        Self { what, names: HashMap::new() }
    }

    fn check(&mut self, file: &File<'_>, at: &Fields<'_>, name: Option<&str>) {
        let Some(name) = name else { return };
        let place = at.get("name").map_or(at.place, |node| node.place);
        if let Some(line) = self.names.insert(name.to_owned(), place.line) {
            let what = self.what;
            file.error_with(
                place,
                format!("two {what}s have the name `{name}`"),
                format!("the other is on line {line}"),
            );
        }
    }
}
