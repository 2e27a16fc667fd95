//! Reads one file: one service.

use http::HeaderName;

use crate::base::id::{ServiceName, ToolName};
use crate::call::path::NormalPath;
use crate::draft::record::Effect;

use super::super::credential::is_called_credential;
use super::super::keys;
use super::super::model::{Route, Service, ServiceIndex, Unmatched};
use super::super::read::{Fields, File};
use super::super::yaml::{Node, Place, Typed};
use super::registry::{self, ReadCapability};
use super::rules::{Shared, read_host};
use super::tool::{self, ReadTool};
use super::upstream;

/// A service and where its parts stand.
pub(super) struct ReadService {
    /// Which file it came from.
    pub(super) file: usize,
    pub(super) name: Option<(ServiceName, Place)>,
    pub(super) route: Route,
    pub(super) route_place: Place,
    upstream: Option<super::super::model::Upstream>,
    unmatched: Unmatched,
    shared: Shared,
    pub(super) tools: Vec<ReadTool>,
    /// Every tool that is named, also those that could not be read.
    pub(super) tool_names: Vec<(ToolName, Place)>,
    pub(super) capabilities: Vec<ReadCapability>,
}

pub(super) fn read(file: &File<'_>, number: usize, root: &Node) -> Option<ReadService> {
    let fields = Fields::open(file, root, &keys::FILE)?;
    if let Some(node) = fields.require(file, &keys::FILE, "version") {
        let one = matches!(&node.kind, super::super::yaml::Kind::Scalar(s) if s.typed() == Typed::Number(1.into()));
        if !one {
            file.error_with(node.place, "this guard reads version 1 of policy files", "write `version: 1`");
        }
    }
    let name = fields.require(file, &keys::FILE, "service").and_then(|node| read_name(file, node));
    let upstream = fields.require(file, &keys::FILE, "upstream").and_then(|node| upstream::read(file, node));
    let route = fields.get("route").map_or_else(everything, |node| read_route(file, node));
    let unmatched = fields.get("unmatched").map_or(UNMATCHED, |node| read_unmatched(file, node));
    let shared = Shared::default().read(file, &fields);
    let mut tools = Vec::new();
    let mut tool_names = Vec::new();
    for node in fields.get("tools").and_then(|node| file.list(node, "`tools`")).into_iter().flatten() {
        match tool::read(file, node, &shared) {
            Some(read) => {
                tool_names.push((read.tool.name.clone(), read.name_place));
                tools.push(read);
            }
            None => tool_names.extend(named(node)),
        }
    }
    let capabilities = fields.get("capabilities").and_then(|node| file.list(node, "`capabilities`"));
    let capabilities = capabilities.into_iter().flatten().filter_map(|node| registry::read(file, node)).collect();
    if upstream.as_ref().is_some_and(|upstream| upstream.read_only) {
        for read in tools.iter().filter(|read| read.tool.effect == Effect::Write) {
            let hint = "take `read_only: true` out, or the tool";
            file.error_with(
                read.name_place,
                format!("`{}` is a write on a service that takes none", read.tool.name),
                hint,
            );
        }
        if unmatched.write_held {
            file.error(fields.key_place("unmatched"), "a service that takes no writes cannot hold them");
        }
    }
    if let Some(upstream) = &upstream {
        let own = upstream.credential.iter().map(|credential| &credential.header);
        let credentials: Vec<&HeaderName> = own.chain(&upstream.credential_headers).collect();
        tools.iter().for_each(|read| no_credentials(file, read, &credentials));
    }
    Some(ReadService {
        file: number,
        name,
        route,
        route_place: fields.key_place("route"),
        upstream,
        unmatched,
        shared,
        tools,
        tool_names,
        capabilities,
    })
}

/// The name of a tool that could not be read, so that nobody reports it as missing.
fn named(node: &Node) -> Option<(ToolName, Place)> {
    let super::super::yaml::Kind::Map(entries) = &node.kind else { return None };
    let value = &entries.iter().find(|entry| entry.key == "name")?.value;
    let super::super::yaml::Kind::Scalar(scalar) = &value.kind else { return None };
    ToolName::new(scalar.text.clone()).ok().map(|name| (name, value.place))
}

/// Credentials are sealed apart from the request, so no rule can hold on them.
fn no_credentials(file: &File<'_>, read: &ReadTool, credentials: &[&HeaderName]) {
    let matched = read.tool.matches.headers.iter().map(|(name, _)| name);
    let effect_key = read.tool.effect_key_header.iter();
    let carries = |name: &&HeaderName| credentials.contains(name) || is_called_credential(name);
    for name in matched.chain(&read.tool.bind_headers).chain(effect_key).filter(carries) {
        let message = format!("`{}` uses the header `{name}`, which carries a credential", read.tool.name);
        file.error(read.name_place, message);
    }
}

fn read_name(file: &File<'_>, node: &Node) -> Option<(ServiceName, Place)> {
    let text = file.literal(node, "`service`")?;
    let legal = text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'));
    match ServiceName::new(text).ok().filter(|_| legal) {
        Some(name) => Some((name, node.place)),
        None => {
            let shown = super::super::visible::visible(text);
            file.error_with(
                node.place,
                format!("`{shown}` is not a name for a service"),
                "letters, digits, `_`, `-` and `.`",
            );
            None
        }
    }
}

fn everything() -> Route {
    Route { hosts: Vec::new(), path_prefix: "/".to_owned() }
}

const UNMATCHED: Unmatched = Unmatched { read_passes: true, write_held: false };

fn read_route(file: &File<'_>, node: &Node) -> Route {
    let Some(fields) = Fields::open(file, node, &keys::ROUTE) else { return everything() };
    if fields.get("hosts").is_none() && fields.get("path_prefix").is_none() {
        file.error_with(
            fields.place,
            "a route names hosts, a path prefix or both",
            "take `route` out to take every request",
        );
    }
    let hosts = fields.get("hosts").map(|node| {
        let items = file.list(node, "`hosts`").unwrap_or_default();
        if items.is_empty() {
            file.error_with(
                node.place,
                "an empty list of hosts takes no request",
                "take the key out to take every host",
            );
        }
        items.iter().filter_map(|item| read_host(file, item)).collect()
    });
    let prefix = fields.get("path_prefix").and_then(|node| {
        let text = file.literal(node, "`path_prefix`")?;
        let plain = text.strip_suffix('/').filter(|rest| !rest.is_empty()).unwrap_or(text);
        if NormalPath::parse(plain).is_err() {
            let hint = "it begins with `/` and has no empty or dot segments and no `;`";
            file.error_with(node.place, "this is not a path in its normal form", hint);
            return None;
        }
        Some(plain.to_owned())
    });
    Route { hosts: hosts.unwrap_or_default(), path_prefix: prefix.unwrap_or_else(|| "/".to_owned()) }
}

fn read_unmatched(file: &File<'_>, node: &Node) -> Unmatched {
    let Some(fields) = Fields::open(file, node, &keys::UNMATCHED) else { return UNMATCHED };
    let reads = [("pass", true), ("refuse", false)];
    let writes = [("refuse", false), ("hold", true)];
    let read = fields.get("read").and_then(|node| file.choice(node, "`read`", &reads, &[]));
    let write = fields.get("write").and_then(|node| file.choice(node, "`write`", &writes, &[]));
    Unmatched { read_passes: read.unwrap_or(UNMATCHED.read_passes), write_held: write.unwrap_or(UNMATCHED.write_held) }
}

impl ReadService {
    /// The service without its places. Only called where no file has a mistake, so that name and
    /// upstream are there.
    pub(super) fn finish(self) -> Option<Service> {
        let (name, _) = self.name?;
        let mut service = Service {
            name,
            route: self.route,
            upstream: self.upstream?,
            unmatched: self.unmatched,
            capabilities: self.capabilities.into_iter().map(|read| read.capability).collect(),
            tools: self.tools.into_iter().map(|read| read.tool).collect(),
            body_bytes_max: self.shared.body_bytes_max,
            held_status: self.shared.held_status,
            opaque: self.shared.opaque,
            bind_headers: self.shared.bind_headers,
            index: ServiceIndex::default(),
        };
        service.reindex();
        Some(service)
    }
}
