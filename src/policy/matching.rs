//! Which tool or capability a request is, and how two matches stand to each other.
//!
//! Owns the index over methods and paths. Must never let a read tool take a request that another
//! reader could take for a write: where two tools match and neither is narrower, none is chosen.

use std::collections::HashMap;

use http::HeaderMap;

use crate::call::head::Head;
use crate::call::path::{NormalPath, Relation};
use crate::draft::record::Effect;

use super::judge::Selection;
use super::model::{Capability, CapabilityStatus, Match, PolicySet, Service, Tool};

/// Methods that change nothing unless a tool says otherwise (RFC 9110, 9.2.1, without TRACE).
const READ_METHODS: [&str; 3] = ["GET", "HEAD", "OPTIONS"];

/// The parts of a head that a match looks at.
#[derive(Clone, Copy)]
pub(super) struct Asked<'r> {
    pub(super) method: &'r str,
    pub(super) path: &'r NormalPath,
    /// The hosts that may have been named; empty where nothing is known about them.
    pub(super) hosts: &'r [&'r str],
    pub(super) query: Option<&'r str>,
    pub(super) headers: &'r HeaderMap,
}

/// Finds candidates without looking at every rule.
#[derive(Debug, Clone, Default)]
pub(super) struct Index {
    /// Positions by method; an empty text stands for any.
    methods: HashMap<String, ByPath>,
}

/// Positions by the first segment of their template.
#[derive(Debug, Clone, Default)]
struct ByPath {
    literal: HashMap<String, Vec<usize>>,
    /// Templates that begin with a parameter, a rest or a literal that is compared decoded.
    open: Vec<usize>,
}

impl Index {
    pub(super) fn of<'m>(matches: impl Iterator<Item = (usize, &'m Match)>) -> Self {
        let mut index = Self::default();
        for (position, rule) in matches {
            let first = first_literal(rule.path.as_str());
            let mut methods: Vec<&str> = rule.methods.iter().map(String::as_str).collect();
            if methods.contains(&"GET") && !methods.contains(&"HEAD") {
                methods.push("HEAD");
            }
            if methods.is_empty() {
                methods.push("");
            }
            for method in methods {
                let by_path = index.methods.entry(method.to_owned()).or_default();
                if first.is_empty() {
                    by_path.open.push(position);
                } else {
                    by_path.literal.entry(first.to_owned()).or_default().push(position);
                }
            }
        }
        index
    }

    /// Positions of the rules that may match.
    fn candidates<'i>(&'i self, method: &str, path: &str) -> impl Iterator<Item = usize> + use<'i> {
        let segment = path.strip_prefix('/').and_then(|rest| rest.split('/').next()).unwrap_or_default();
        let by_method = [self.methods.get(method), self.methods.get("")].into_iter().flatten();
        let mut found: Vec<usize> = Vec::new();
        for by_path in by_method {
            found.extend(&by_path.open);
            if segment.contains('%') {
                // Literals are compared decoded, so an encoded segment may be any of them.
                found.extend(by_path.literal.values().flatten());
            } else {
                found.extend(by_path.literal.get(segment).into_iter().flatten());
            }
        }
        found.into_iter()
    }
}

/// The first segment of a template if it is a plain literal, else nothing, which means any.
pub(super) fn first_literal(template: &str) -> &str {
    let rest = template.strip_prefix('/').unwrap_or_default();
    let first = rest.split(['/', '{']).next().unwrap_or_default();
    let whole =
        rest.len() == first.len() || rest[first.len()..].starts_with('/') || rest[first.len()..].starts_with("{/");
    if whole && first.is_ascii() && !first.contains('%') { first } else { "" }
}

impl Match {
    /// The path's params if every stated condition holds.
    pub(super) fn params(&self, asked: &Asked<'_>, strict: bool) -> Option<Vec<(String, String)>> {
        let method = self.methods.is_empty()
            || self.methods.iter().any(|m| m == asked.method || (m == "GET" && asked.method == "HEAD"));
        let host = self.hosts.is_empty()
            || asked.hosts.is_empty()
            || asked.hosts.iter().any(|h| self.hosts.iter().any(|known| known == h));
        let holds = method && host && self.headers_hold(asked, strict) && self.query_holds(asked, strict);
        if holds && self.content_type_holds(asked) { self.path.matches(asked.path) } else { None }
    }

    /// `strict`: the header is there once, with this value. Otherwise one of its lines suffices,
    /// so that a second line does not lead a write past its rule.
    fn headers_hold(&self, asked: &Asked<'_>, strict: bool) -> bool {
        self.headers.iter().all(|(name, value)| {
            let lines: Vec<_> = asked.headers.get_all(name).iter().collect();
            lines.contains(&value) && (!strict || lines.len() == 1)
        })
    }

    fn query_holds(&self, asked: &Asked<'_>, strict: bool) -> bool {
        if self.query.is_empty() {
            return true;
        }
        let pairs = super::rewrite::pairs(asked.query.unwrap_or_default());
        self.query.iter().all(|(name, value)| {
            let named: Vec<&str> = pairs.iter().filter(|(n, _)| n == name).map(|(_, v)| v.as_str()).collect();
            named.contains(&value.as_str()) && (!strict || named.len() == 1)
        })
    }

    fn content_type_holds(&self, asked: &Asked<'_>) -> bool {
        self.content_types.is_empty()
            || media_type(asked.headers).is_some_and(|sent| self.content_types.contains(&sent))
    }

    /// How the requests of this match stand to those of `other`.
    pub(super) fn relation(&self, other: &Self) -> Relation {
        [
            set_relation(&with_head(&self.methods), &with_head(&other.methods)),
            self.path.relation(&other.path),
            set_relation(&self.hosts, &other.hosts),
            conditions_relation(&self.headers, &other.headers),
            conditions_relation(&self.query, &other.query),
            set_relation(&self.content_types, &other.content_types),
        ]
        .into_iter()
        .fold(Relation::Same, both)
    }
}

/// The media type of a body, lower case, without parameters.
pub(super) fn media_type(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(http::header::CONTENT_TYPE)?.to_str().ok()?;
    Some(value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
}

fn with_head(methods: &[String]) -> Vec<String> {
    let mut methods = methods.to_vec();
    if methods.iter().any(|m| m == "GET") && !methods.iter().any(|m| m == "HEAD") {
        methods.push("HEAD".to_owned());
    }
    methods
}

/// An empty set means everything.
fn set_relation<T: PartialEq>(a: &[T], b: &[T]) -> Relation {
    match (a.is_empty(), b.is_empty()) {
        (true, true) => return Relation::Same,
        (true, false) => return Relation::Wider,
        (false, true) => return Relation::Narrower,
        (false, false) => {}
    }
    let (within, around) = (a.iter().all(|x| b.contains(x)), b.iter().all(|x| a.contains(x)));
    relation_of(within, around, a.iter().any(|x| b.contains(x)))
}

/// Conditions that must all hold: more conditions, fewer requests. Two values of one name may both
/// be there, so they do not keep two matches apart by themselves; a tool is chosen by
/// [`Service::select`] only where one is narrower.
fn conditions_relation<N: PartialEq, V: PartialEq>(a: &[(N, V)], b: &[(N, V)]) -> Relation {
    let differ = a.iter().any(|(name, value)| b.iter().any(|(n, v)| n == name && v != value));
    if differ {
        return Relation::Disjoint;
    }
    relation_of(b.iter().all(|x| a.contains(x)), a.iter().all(|x| b.contains(x)), true)
}

fn relation_of(within: bool, around: bool, meet: bool) -> Relation {
    match (within, around, meet) {
        (true, true, _) => Relation::Same,
        (true, false, _) => Relation::Narrower,
        (false, true, _) => Relation::Wider,
        (false, false, true) => Relation::Crossing,
        (false, false, false) => Relation::Disjoint,
    }
}

/// Two conditions of which both must hold.
fn both(a: Relation, b: Relation) -> Relation {
    use Relation::{Crossing, Disjoint, Same};
    match (a, b) {
        (Disjoint, _) | (_, Disjoint) => Disjoint,
        (Same, other) | (other, Same) => other,
        (a, b) if a == b => a,
        _ => Crossing,
    }
}

impl PolicySet {
    /// The service of a request: a service that names the host before one that takes every host,
    /// then the longest prefix.
    #[must_use]
    pub fn route(&self, host: &str, path: &str) -> Option<&Service> {
        let fits = self.services.iter().filter(|service| {
            let route = &service.route;
            let named = route.hosts.is_empty() || route.hosts.iter().any(|known| known == host);
            named && is_under(path, &route.path_prefix)
        });
        fits.max_by_key(|service| (!service.route.hosts.is_empty(), service.route.path_prefix.len()))
    }
}

/// Whether `path` is `prefix` or below it, at a segment boundary.
pub(super) fn is_under(path: &str, prefix: &str) -> bool {
    let rest = path.strip_prefix(prefix.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Service {
    /// What the head selects: forbidden before everything, then planned, then the narrowest tool.
    #[must_use]
    pub fn select(&self, head: &Head<'_>) -> Selection<'_> {
        let hosts = [head.host.as_str()];
        let asked = Asked {
            method: head.method.as_str(),
            path: &head.path,
            hosts: &hosts,
            query: head.query.as_deref(),
            headers: &head.headers,
        };
        self.select_asked(&asked)
    }

    pub(super) fn select_asked(&self, asked: &Asked<'_>) -> Selection<'_> {
        let refused = self.index.capabilities.candidates(asked.method, asked.path.as_str());
        let refused = refused.filter_map(|position| self.capabilities.get(position)).filter(|capability| {
            let rule = capability.matches.as_ref();
            rule.is_some_and(|rule| rule.params(asked, false).is_some())
        });
        let found = self.narrowest(asked);
        let by_tool = match &found {
            Found::One(tool, _) => tool.capability.as_ref().and_then(|id| self.refusing(id)),
            _ => None,
        };
        let first = refused.chain(by_tool).min_by_key(|capability| capability.status != CapabilityStatus::Forbidden);
        if let Some(capability) = first {
            return Selection::Capability(capability);
        }
        // A path that is not in the normal form matches no rule. Where a rule refuses something,
        // such a path could be another spelling of it, so it does not pass as a read.
        let evades = asked.path.flaw().is_some()
            && self.capabilities.iter().any(|capability| capability.status != CapabilityStatus::Enabled);
        match found {
            Found::One(tool, params) => Selection::Tool(tool, params),
            Found::None if READ_METHODS.contains(&asked.method) && !evades => Selection::UnmatchedRead,
            Found::None | Found::Unclear => Selection::UnmatchedWrite,
        }
    }

    /// A capability that is planned or forbidden and that a tool realises.
    fn refusing(&self, id: &crate::base::id::CapabilityId) -> Option<&Capability> {
        self.capabilities.iter().find(|c| c.id == *id && c.status != CapabilityStatus::Enabled)
    }

    fn narrowest(&self, asked: &Asked<'_>) -> Found<'_> {
        let mut best: Option<(&Tool, Vec<(String, String)>)> = None;
        let mut unclear: Vec<&Tool> = Vec::new();
        for position in self.index.tools.candidates(asked.method, asked.path.as_str()) {
            let Some(tool) = self.tools.get(position) else { continue };
            let Some(params) = tool.matches.params(asked, tool.effect == Effect::Read) else { continue };
            match best.as_ref().map(|(other, _)| tool.matches.relation(&other.matches)) {
                None | Some(Relation::Narrower) => best = Some((tool, params)),
                Some(Relation::Wider) => {}
                Some(_) => unclear.push(tool),
            }
        }
        match best {
            None => Found::None,
            Some((tool, params)) => {
                let clear = unclear.iter().all(|other| tool.matches.relation(&other.matches) == Relation::Narrower);
                if clear { Found::One(tool, params) } else { Found::Unclear }
            }
        }
    }
}

enum Found<'p> {
    One(&'p Tool, Vec<(String, String)>),
    None,
    /// Several tools match and none is narrower than the others.
    Unclear,
}
