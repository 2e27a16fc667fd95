//! The sections of the configuration, and the rules that tie them together.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use crate::base::secret::Secret;
use crate::ops::log::Format;
use crate::policy::keys::Keys;
use crate::policy::read::{Fields, File};
use crate::policy::yaml::{Node, Place};
use crate::store::contract::OwnerLimits;
use crate::store::redis::{self, Assumed, ClientFiles, TlsFiles};

use super::model::{
    Approvers, Config, ControlSection, GuardSection, JournalSection, LimitsSection, StorePlace, StoreSection,
};
use super::values::{self, or};
use super::{Overrides, keys, people};

/// How the URL of a Redis store begins.
const SCHEMES: [&str; 9] = [
    "redis://",
    "rediss://",
    "valkey://",
    "valkeys://",
    "unix://",
    "redis+sentinel://",
    "rediss+sentinel://",
    "redis+cluster://",
    "rediss+cluster://",
];

/// The most replicas that can be waited for.
const ACKS_MAX: u32 = 16;

/// Reads every section; `None` where a mistake was reported.
pub(super) fn read(file: &File<'_>, fields: &Fields<'_>, folder: &Path, overrides: Overrides) -> Option<Config> {
    // Every section is read before any `?`, so that all mistakes are found.
    let mut guard = section(file, fields, "guard", &keys::GUARD, guard);
    let mut control = section(file, fields, "control", &keys::CONTROL, control);
    let store = section(file, fields, "store", &keys::STORE, |file, at| store(file, at, folder));
    let journal = section(file, fields, "journal", &keys::JOURNAL, |file, at| journal(file, at, folder));
    let limits = section(file, fields, "limits", &keys::LIMITS, limits);
    let log = section(file, fields, "telemetry", &keys::TELEMETRY, telemetry);
    let keys_file = section(file, fields, "keys", &keys::KEYS_FILE, |file, at| {
        of(at, "file", folder.join("countersign.keys"), |node| values::path(file, node, "`keys.file`", folder))
    });
    let policies =
        or(fields, "policies", folder.join("policies"), |node| values::path(file, node, "`policies`", folder));
    let identity = people::identity(file, fields);
    let approvers = people::approvers(file, fields);
    let apps = people::apps(file, fields);
    people::credentials_differ(file, fields);

    if let (Some(guard), Some(listen)) = (&mut guard, overrides.listen) {
        guard.listen = listen;
    }
    if let (Some(control), Some(listen)) = (&mut control, overrides.control) {
        control.listen = listen;
    }
    if let (Some(guard), Some(control)) = (&guard, &control) {
        listeners(file, fields, guard.listen, control.listen);
    }
    if let (Some(guard), Some(store)) = (&guard, &store) {
        windows(file, fields, guard, store);
    }
    let approvers = approvers?;
    Some(Config {
        guard: guard?,
        control: control?,
        store: store?,
        policies: policies?,
        keys_file: keys_file?,
        identity: identity?,
        approvers: if approvers.is_empty() { Approvers::Generated } else { Approvers::Declared(approvers) },
        apps: apps?,
        journal: journal?,
        limits: limits?,
        log: log?,
    })
}

/// Opens a section, where there is one, and reads it; `read` fills in the defaults of one that
/// is not there.
fn section<'n, T>(
    file: &File<'_>,
    fields: &Fields<'n>,
    key: &str,
    known: &Keys,
    read: impl FnOnce(&File<'_>, Option<&Fields<'n>>) -> Option<T>,
) -> Option<T> {
    match fields.get(key) {
        None => read(file, None),
        Some(node) => {
            let opened = Fields::open(file, node, known)?;
            read(file, Some(&opened))
        }
    }
}

/// A value of a section that may not be there.
fn of<'n, T>(at: Option<&Fields<'n>>, key: &str, default: T, read: impl FnOnce(&'n Node) -> Option<T>) -> Option<T> {
    match at.and_then(|fields| fields.get(key)) {
        Some(node) => read(node),
        None => Some(default),
    }
}

fn guard(file: &File<'_>, at: Option<&Fields<'_>>) -> Option<GuardSection> {
    let default = GuardSection::default();
    let span = |key: &str, default, least: &str, most: &str| {
        of(at, key, default, |node| file.duration(node, &format!("`guard.{key}`"), least, most))
    };
    let listen = of(at, "listen", default.listen, |node| values::address(file, node, "`guard.listen`"));
    let body = of(at, "max_body", default.body_bytes_max, |node| file.bytes(node, "`guard.max_body`", "16MiB"));
    let response =
        of(at, "max_response", default.response_bytes_max, |node| file.bytes(node, "`guard.max_response`", "64MiB"));
    let send_window = span("send_window", default.send_window, "100ms", "1m");
    let connect_patience = span("connect_patience", default.connect_patience, "100ms", "10m");
    let confirm_wait = span("confirm_wait", default.confirm_wait, "0", "55s");
    Some(GuardSection {
        listen: listen?,
        body_bytes_max: body?,
        response_bytes_max: response?,
        send_window: send_window?,
        connect_patience: connect_patience?,
        confirm_wait: confirm_wait?,
    })
}

fn control(file: &File<'_>, at: Option<&Fields<'_>>) -> Option<ControlSection> {
    let default = ControlSection::default();
    let listen = of(at, "listen", default.listen, |node| values::address(file, node, "`control.listen`"));
    let public_url = of(at, "public_url", None, |node| values::origin(file, node, "`control.public_url`").map(Some));
    Some(ControlSection { listen: listen?, public_url: public_url? })
}

fn store(file: &File<'_>, at: Option<&Fields<'_>>, folder: &Path) -> Option<StoreSection> {
    let default = StoreSection::in_folder(folder);
    let place = of(at, "url", default.place, |node| place(file, node, folder));
    let timeout = of(at, "timeout", default.timeout, |node| file.duration(node, "`store.timeout`", "100ms", "1m"));
    let lease = of(at, "lease", default.lease, |node| file.duration(node, "`store.lease`", "1s", "10m"));
    let by_default = match &place {
        Some(StorePlace::Redis(url)) => redis::acks_by_default(url.reveal()),
        Some(StorePlace::Sqlite(_)) | None => 0,
    };
    let acks = of(at, "min_replica_acks", by_default, |node| {
        values::number(file, node, "`store.min_replica_acks`", 0, ACKS_MAX)
    });
    let assumed = of(at, "assume", Assumed::default(), |node| assumed(file, node));
    if let (Some(at), Some(StorePlace::Sqlite(_))) = (at, &place) {
        for key in ["min_replica_acks", "assume", "tls"].into_iter().filter(|key| at.get(key).is_some()) {
            let hint = "take it out, or name a Redis server in `store.url`";
            file.error_with(at.key_place(key), format!("`store.{key}` is for a Redis store"), hint);
        }
    }
    let tls = of(at, "tls", TlsFiles::default(), |node| tls(file, node, folder));
    if let (Some(at), Some(StorePlace::Redis(url))) = (at, &place)
        && at.get("tls").is_some()
        && !redis::is_tls(url.reveal())
    {
        let hint = "write rediss://, rediss+sentinel:// or rediss+cluster:// in `store.url`";
        file.error_with(at.key_place("tls"), "`store.tls` is for a server behind TLS", hint);
    }
    let (timeout, lease) = (timeout?, lease?);
    Some(StoreSection { place: place?, timeout, lease, min_replica_acks: acks?, assumed: assumed?, tls: tls? })
}

/// `store.tls`; the files are read when the store is opened.
fn tls(file: &File<'_>, node: &Node, folder: &Path) -> Option<TlsFiles> {
    let at = Fields::open(file, node, &keys::STORE_TLS)?;
    let path = |key: &str| {
        of(Some(&at), key, None, |node| values::path(file, node, &format!("`store.tls.{key}`"), folder).map(Some))
    };
    let (ca, cert, key) = (path("ca")?, path("cert")?, path("key")?);
    let client = match (cert, key) {
        (Some(cert), Some(key)) => Some(ClientFiles { cert, key }),
        (None, None) if ca.is_some() => None,
        (None, None) => {
            file.error_with(node.place, "`store.tls` names no file", "write ca, or cert and key, or take it out");
            return None;
        }
        _ => {
            let hint = "a certificate is of use with its private key only: write both";
            file.error_with(node.place, "`store.tls` needs `cert` and `key` together", hint);
            return None;
        }
    };
    Some(TlsFiles { ca, client })
}

/// `store.url`.
fn place(file: &File<'_>, node: &Node, folder: &Path) -> Option<StorePlace> {
    let url = values::word(file, node, "`store.url`")?;
    if let Some(path) = url.strip_prefix("sqlite:")
        && !path.is_empty()
        && !path.starts_with(':')
        && !path.starts_with("//")
    {
        return Some(StorePlace::Sqlite(folder.join(path)));
    }
    if SCHEMES.iter().any(|scheme| url.starts_with(scheme)) {
        if let Err(error) = redis::check_url(&url) {
            let hint = "write redis://USER:PASSWORD@HOST:PORT/DB, rediss:// for TLS, unix://PATH, or \
                        redis+sentinel://HOST:PORT,HOST:PORT/NAME, or redis+cluster://HOST:PORT,HOST:PORT";
            file.error_with(node.place, error.to_string(), hint);
            return None;
        }
        return Some(StorePlace::Redis(Secret::new(url)));
    }
    file.error_with(node.place, "`store.url` names no store", "write sqlite:PATH, or redis://HOST:PORT");
    None
}

/// `store.assume`.
fn assumed(file: &File<'_>, node: &Node) -> Option<Assumed> {
    let mut assumed = Assumed::default();
    for item in file.list(node, "`store.assume`")? {
        match values::word(file, item, "an entry of `store.assume`")?.as_str() {
            "noeviction" => assumed.noeviction = true,
            "durable" => assumed.durable = true,
            _ => {
                file.error_with(item.place, "`store.assume` does not know this word", "write noeviction, durable");
                return None;
            }
        }
    }
    Some(assumed)
}

fn journal(file: &File<'_>, at: Option<&Fields<'_>>, folder: &Path) -> Option<JournalSection> {
    let default = JournalSection::in_folder(folder);
    let path = of(at, "path", default.path, |node| values::path(file, node, "`journal.path`", folder));
    let bytes_max = of(at, "max", default.bytes_max, |node| {
        let bytes = file.bytes(node, "`journal.max`", "65536MiB")?;
        if bytes < 1 << 20 {
            file.error(node.place, "`journal.max` must be at least 1MiB");
            return None;
        }
        Some(bytes as u64)
    });
    Some(JournalSection { path: path?, bytes_max: bytes_max? })
}

fn limits(file: &File<'_>, at: Option<&Fields<'_>>) -> Option<LimitsSection> {
    let default = LimitsSection::default();
    let pending = of(at, "pending_per_owner", default.owner.pending_max, |node| {
        values::number(file, node, "`limits.pending_per_owner`", 1, 100_000)
    });
    let holds = of(at, "holds_per_owner", (default.owner.holds_max, default.owner.window), |node| {
        values::rate(file, node, "`limits.holds_per_owner`")
    });
    let retention =
        of(at, "retention", default.retention, |node| file.duration(node, "`limits.retention`", "1m", "3650d"));
    let held = of(at, "held_bytes_total", default.held_bytes_total, |node| {
        file.bytes(node, "`limits.held_bytes_total`", "65536MiB")
    });
    let connections = of(at, "connections_per_agent", default.connections_per_agent, |node| {
        let most = 1_000_000;
        values::number(file, node, "`limits.connections_per_agent`", 1, most).map(|count| count as usize)
    });
    let span = |key: &str, default| {
        of(at, key, default, |node| file.duration(node, &format!("`limits.{key}`"), "100ms", "10m"))
    };
    let (head, body) = (span("head", default.head), span("body", default.body));
    let (holds_max, window) = holds?;
    Some(LimitsSection {
        owner: OwnerLimits { pending_max: pending?, holds_max, window },
        retention: retention?,
        held_bytes_total: held?,
        connections_per_agent: connections?,
        head: head?,
        body: body?,
    })
}

fn telemetry(file: &File<'_>, at: Option<&Fields<'_>>) -> Option<Format> {
    let Some(node) = at.and_then(|at| at.get("log")) else { return Some(Format::default()) };
    let log = Fields::open(file, node, &keys::LOG)?;
    or(&log, "format", Format::default(), |node| match values::word(file, node, "`telemetry.log.format`")?.as_str() {
        "text" => Some(Format::Text),
        "json" => Some(Format::Json),
        _ => {
            file.error(node.place, "`telemetry.log.format` must be `text` or `json`");
            None
        }
    })
}

/// Who may stand where: see docs/operators.md.
fn listeners(file: &File<'_>, fields: &Fields<'_>, guard: SocketAddr, control: SocketAddr) {
    let start = Place { line: 1, column: 1 };
    let place = |section: &str| fields.get(section).map_or(start, |_| fields.key_place(section));
    if guard == control && guard.port() != 0 {
        let message = format!("both listeners are on {guard}");
        file.error_with(place("control"), message, "give `control.listen` an address of its own");
    }
    if fields.get("identity").is_none() && !guard.ip().is_loopback() {
        let message = format!("agents can reach {guard} from other machines, and there is no `identity:`");
        let hint = "declare `identity:` with the agents' token digests, or listen on 127.0.0.1";
        file.error_with(place("guard"), message, hint);
    }
    let local = guard.ip().is_loopback() && control.ip().is_loopback();
    if fields.get("approvers").is_none() && !local {
        let message = "there are no `approvers:`, and a listener can be reached from other machines";
        let hint = "declare `approvers:` (`countersign token new` makes a token), or listen on 127.0.0.1 with both";
        let section = if control.ip().is_loopback() { "guard" } else { "control" };
        file.error_with(place(section), message, hint);
    }
}

/// A permit must end well before its lease, or a second process could send while it is valid.
fn windows(file: &File<'_>, fields: &Fields<'_>, guard: &GuardSection, store: &StoreSection) {
    if guard.send_window > store.lease / 3 {
        let most: Duration = store.lease / 3;
        let message = "`guard.send_window` is more than a third of `store.lease`";
        let hint = format!("make it at most {}ms, or the lease longer", most.as_millis());
        let section = if fields.get("guard").is_some() { "guard" } else { "store" };
        file.error_with(fields.key_place(section), message, hint);
    }
}
