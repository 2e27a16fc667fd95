//! What a set of policy files says, parsed and cross-checked: an immutable value.

use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, HeaderValue};

use crate::base::id::{CapabilityId, ServiceName, ToolName};
use crate::base::secret::Secret;
use crate::draft::record::{ConfirmRule, Effect, Risk};

/// How long a draft waits where nothing is said.
pub const TTL: Duration = Duration::from_secs(5 * 60);
/// How long an equal keyless call gets a collected result again where nothing is said.
pub const REPLAY_WINDOW: Duration = Duration::from_secs(2 * 60);
/// How long a person's rejection answers an equal call where nothing is said.
pub const REFUSAL_MEMORY: Duration = Duration::from_secs(10 * 60);
/// How long after its claim a draft may still be sent where nothing is said.
pub const LATE_RELEASE: Duration = Duration::from_secs(60);
/// The status of a held answer where nothing is said.
pub const HELD_STATUS: u16 = 202;
/// Media types of a tool with a schema where nothing is said.
pub const CONTENT_TYPES: [&str; 2] = ["application/json", "application/x-www-form-urlencoded"];

/// Every service that the guard knows, under one version.
#[derive(Debug, Clone)]
pub struct PolicySet {
    /// SHA-256 in hex over the normalised set, without secrets.
    pub version: String,
    /// The services; no route shadows another.
    pub services: Vec<Service>,
}

/// One upstream API.
#[derive(Debug, Clone)]
pub struct Service {
    /// Unique over all files.
    pub name: ServiceName,
    /// Which requests are this service's.
    pub route: Route,
    /// Where it is and how it is reached.
    pub upstream: Upstream,
    /// What happens to what no tool declares.
    pub unmatched: Unmatched,
    /// The registry.
    pub capabilities: Vec<Capability>,
    /// The tools.
    pub tools: Vec<Tool>,
    /// Longest body of a write, in bytes; `None` where the file leaves it to the guard.
    pub body_bytes_max: Option<usize>,
    /// The status of a held answer for calls without a tool of their own.
    pub held_status: u16,
    /// Whether opaque bodies are held or refused, for calls without a tool of their own.
    pub opaque: Opaque,
    /// Request headers that the args hash binds, for calls without a tool of their own.
    pub bind_headers: Vec<HeaderName>,
    /// Finds tools and capabilities by method and path.
    pub(super) index: ServiceIndex,
}

/// The indexes of a service.
#[derive(Debug, Clone, Default)]
pub(super) struct ServiceIndex {
    pub(super) tools: super::matching::Index,
    /// Planned and forbidden capabilities with a match.
    pub(super) capabilities: super::matching::Index,
}

impl Service {
    /// Builds the indexes anew after tools or capabilities were set.
    pub(super) fn reindex(&mut self) {
        let tools = self.tools.iter().map(|tool| &tool.matches).enumerate();
        let capabilities = self.capabilities.iter().enumerate();
        let capabilities = capabilities.filter_map(|(at, c)| c.matches.as_ref().map(|rule| (at, rule)));
        self.index = ServiceIndex {
            tools: super::matching::Index::of(tools),
            capabilities: super::matching::Index::of(capabilities),
        };
    }

    /// Whether the service takes no writes at all.
    #[must_use]
    pub const fn takes_no_writes(&self) -> bool {
        self.upstream.read_only
    }
}

/// Which requests are a service's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Lower-case host names without port; empty means every host.
    pub hosts: Vec<String>,
    /// `/` or a prefix that ends at a segment boundary; never stripped.
    pub path_prefix: String,
}

/// Where an upstream is and how it is reached.
#[derive(Debug, Clone)]
pub struct Upstream {
    /// `true` for https.
    pub tls: bool,
    /// Host name or address, lower case, IPv6 without brackets.
    pub host: String,
    /// The port, with the scheme's default filled in.
    pub port: u16,
    /// The URL's path without a trailing slash; put in front of every path.
    pub base_path: String,
    /// Bounds of one exchange.
    pub timeouts: Timeouts,
    /// Whether the upstream is declared to honour the effect key; only then may recovery resend.
    pub honours_idempotency_key: bool,
    /// A credential that the guard injects on reads and at release; agents never hold it.
    pub credential: Option<Credential>,
    /// Headers that the guard adds, by template over the identity.
    pub inject: Vec<(HeaderName, super::template::Template)>,
    /// The agent's headers that are credentials of its own for the upstream.
    pub credential_headers: Vec<HeaderName>,
    /// Whether the service takes no writes at all; then the ambiguity rules for paths are lifted.
    pub read_only: bool,
    /// Upgrades that pass (`websocket`).
    pub upgrade: Vec<String>,
    /// A CA file in place of the system's.
    pub ca_file: Option<PathBuf>,
}

/// A header that the guard injects.
#[derive(Debug, Clone)]
pub struct Credential {
    /// Its name.
    pub header: HeaderName,
    /// Its value; never printed.
    pub value: Secret,
}

/// Bounds of one exchange with an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// TCP and TLS.
    pub connect: Duration,
    /// Between two pieces of a response.
    pub read: Duration,
    /// A release from its first byte to the last of the answer.
    pub total: Duration,
}

/// What happens to what no tool declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unmatched {
    /// `true`: reads pass.
    pub read_passes: bool,
    /// `true`: writes are held with a generic card; `false`: refused.
    pub write_held: bool,
}

/// What happens to a body that is not args.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opaque {
    /// Held with type, length and digest.
    Hold,
    /// Refused with `PREVIEW_INCOMPLETE`.
    Refuse,
}

/// Whether anything can carry a capability out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapabilityStatus {
    /// A tool exists.
    Enabled,
    /// Nothing carries it out yet.
    Planned,
    /// Agents may never.
    Forbidden,
}

/// A line of the registry.
#[derive(Debug, Clone)]
pub struct Capability {
    /// Unique over all files.
    pub id: CapabilityId,
    /// Whether anything can carry it out.
    pub status: CapabilityStatus,
    /// The tool that realises it; present if enabled.
    pub tool: Option<ToolName>,
    /// `create`, `update`, `delete`, …
    pub operation: Option<String>,
    /// Its risk, where stated.
    pub risk: Option<Risk>,
    /// Its confirmation rule, where stated.
    pub confirm: Option<ConfirmRule>,
    /// Which requests it names, for planned and forbidden ones.
    pub matches: Option<Match>,
    /// What the agent is told when it is planned or forbidden.
    pub guidance: Option<String>,
}

/// Which requests a tool or a capability names. All stated conditions must hold.
#[derive(Debug, Clone)]
pub struct Match {
    /// Methods, case-sensitive; empty means every method.
    pub methods: Vec<String>,
    /// The path template.
    pub path: crate::call::path::PathTemplate,
    /// Host names, lower case; empty means every host.
    pub hosts: Vec<String>,
    /// Headers that must be there with exactly this value.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Query parameters that must be there with exactly this value.
    pub query: Vec<(String, String)>,
    /// Media types; empty means every one.
    pub content_types: Vec<String>,
}

/// A named operation.
#[derive(Debug, Clone)]
pub struct Tool {
    /// Unique over all files.
    pub name: ToolName,
    /// Which requests.
    pub matches: Match,
    /// Read or write.
    pub effect: Effect,
    /// The capability that a write realises.
    pub capability: Option<CapabilityId>,
    /// The risk; `Low` for reads.
    pub risk: Risk,
    /// The confirmation rule; meaningless for reads.
    pub confirm: ConfirmRule,
    /// Which roles may ask; `None` means every one.
    pub roles: Option<Vec<String>>,
    /// Understanding and preparation of args; `None` means that args are taken as they come.
    pub args: Option<super::prepare::ArgsRules>,
    /// The card; `None` means a generic one.
    pub preview: Option<super::template::PreviewTemplate>,
    /// `receipt.summary`.
    pub summary: Option<super::template::Template>,
    /// How long a draft may wait.
    pub ttl: Duration,
    /// Where the effect key goes; `None` means nowhere.
    pub effect_key_header: Option<HeaderName>,
    /// How long an equal keyless call gets the result again.
    pub replay_window: Duration,
    /// How long a person's rejection answers an equal call.
    pub refusal_memory: Duration,
    /// How long after its claim a draft may still be sent.
    pub late_release: Duration,
    /// The status of a held answer: 202, 403, 409 or 428.
    pub held_status: u16,
    /// Longest body in bytes; `None` where the file leaves it to the guard.
    pub body_bytes_max: Option<usize>,
    /// What happens to a body that is not args.
    pub opaque: Opaque,
    /// Media types that a tool with a schema takes.
    pub content_types: Vec<String>,
    /// Request headers that the args hash binds, beside the conditional ones.
    pub bind_headers: Vec<HeaderName>,
    /// Which upstream status means what.
    pub outcome: OutcomeRules,
    /// Args by JSON Pointer that are masked wherever they are shown.
    pub secret: Vec<String>,
}

/// Which upstream status means what. The more exact entry wins; a status in no list is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutcomeRules {
    /// Executed.
    pub succeeded: Vec<StatusRange>,
    /// Refused by the upstream.
    pub failed: Vec<StatusRange>,
    /// Nobody can tell.
    pub unknown: Vec<StatusRange>,
}

/// An inclusive range of statuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusRange {
    /// First.
    pub first: u16,
    /// Last.
    pub last: u16,
}

/// What an upstream's status says about a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusMeans {
    /// Executed.
    Succeeded,
    /// Refused.
    Failed,
    /// Nobody can tell.
    Unknown,
}

impl Default for Timeouts {
    /// 2 s, 30 s, 60 s.
    fn default() -> Self {
        Self { connect: Duration::from_secs(2), read: Duration::from_secs(30), total: Duration::from_secs(60) }
    }
}

impl Upstream {
    /// `https://api.example.com:8443`, without the port where it is the scheme's own.
    #[must_use]
    pub fn origin(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let own = if self.tls { 443 } else { 80 };
        if self.port == own { format!("{scheme}://{host}") } else { format!("{scheme}://{host}:{}", self.port) }
    }
}

impl Default for OutcomeRules {
    /// 2xx; 4xx except 408, 307, 308, 501; 300-303, 408, 5xx except 501.
    fn default() -> Self {
        let range = |first, last| StatusRange { first, last };
        Self {
            succeeded: vec![range(200, 299)],
            failed: vec![range(400, 499), range(307, 307), range(308, 308), range(501, 501)],
            unknown: vec![range(300, 303), range(408, 408), range(500, 599)],
        }
    }
}

impl OutcomeRules {
    /// What `status` means: the narrowest range that has it decides.
    #[must_use]
    pub fn judge(&self, status: u16) -> StatusMeans {
        let lists = [
            (&self.succeeded, StatusMeans::Succeeded),
            (&self.failed, StatusMeans::Failed),
            (&self.unknown, StatusMeans::Unknown),
        ];
        let hits = lists.iter().flat_map(|(list, means)| {
            list.iter()
                .filter(|range| (range.first..=range.last).contains(&status))
                .map(|range| (range.last - range.first, *means))
        });
        hits.min_by_key(|(width, _)| *width).map_or(StatusMeans::Unknown, |(_, means)| means)
    }
}
