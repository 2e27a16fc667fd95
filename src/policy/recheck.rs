//! The verdict on a held draft under the policy in force now, just before its release.
//!
//! Owns what counts as stricter. Must never let a draft go whose tool, capability, target, risk,
//! rule, identity or args a call made now would not have.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::call::path::NormalPath;
use crate::draft::binding::undeclared_capability;
use crate::draft::record::{BodyKind, Draft, Effect, Risk};

use super::judge::{Selection, Stricter, UNDECLARED, identity_rules};
use super::matching::Asked;
use super::model::{CapabilityStatus, PolicySet, Service, Tool};

/// Judges a held draft again, just before its release.
///
/// It may be sent if its service and tool are still there, its capability is enabled, the
/// upstream's scheme, authority and path are those of the stored target, the stored request still
/// selects the same tool, neither risk nor confirmation rule is raised, the role may still ask, the
/// identity rules still hold and the stored args still fit the schema. What is looser now does not
/// matter.
///
/// # Errors
///
/// [`Stricter`] if it may not be sent under `set`.
pub fn recheck<'p>(set: &'p PolicySet, draft: &Draft) -> Result<(&'p Service, Option<&'p Tool>), Stricter> {
    let changed = Stricter::PolicyChanged;
    let service = set.service(&draft.service).ok_or(changed)?;
    identity_rules(&draft.identity).map_err(|_| changed)?;
    if service.takes_no_writes() {
        return Err(changed);
    }
    // A call that brought its own value of a header which the guard now injects would be refused.
    let injects = |name: &str| {
        service.upstream.credential.as_ref().is_some_and(|own| own.header.as_str().eq_ignore_ascii_case(name))
    };
    let request = &draft.request;
    if request.credentials.iter().chain(&request.headers).any(|(name, _)| injects(name)) {
        return Err(changed);
    }
    let (path, query) = own_path(service, &draft.request.target).ok_or(changed)?;
    // Under the same version the same request selects the same; only the origin may have moved,
    // since it can come from the environment.
    let same = set.version == draft.policy_version;
    if draft.tool.as_str() == UNDECLARED && draft.capability == undeclared_capability() {
        let held = service.unmatched.write_held && draft.risk >= Risk::Medium;
        let selected = same || matches!(select(service, None, draft, &path, query), Some(Selection::UnmatchedWrite));
        return if held && selected { Ok((service, None)) } else { Err(changed) };
    }
    let tool = service.tools.iter().find(|tool| tool.name == draft.tool).ok_or(changed)?;
    let enabled = service.capabilities.iter().any(|capability| {
        capability.id == draft.capability
            && capability.status == CapabilityStatus::Enabled
            && tool.capability.as_ref() == Some(&capability.id)
    });
    let as_strict = tool.effect == Effect::Write && tool.risk <= draft.risk && tool.confirm <= draft.confirm_rule;
    if !enabled || !as_strict || tool.permits(&draft.identity).is_err() {
        return Err(changed);
    }
    let selected = match select(service, Some(tool), draft, &path, query) {
        Some(Selection::Tool(selected, _)) => selected.name == tool.name,
        _ => false,
    };
    if same || (selected && args_fit(tool, draft)) { Ok((service, Some(tool))) } else { Err(changed) }
}

/// The path and the query that the agent asked for, if the target is still this upstream's.
fn own_path<'t>(service: &Service, target: &'t str) -> Option<(String, Option<&'t str>)> {
    let rest = target.strip_prefix(&service.upstream.origin())?;
    if !rest.starts_with('/') {
        return None;
    }
    let (path, query) = rest.split_once('?').map_or((rest, None), |(path, query)| (path, Some(query)));
    let own = path.strip_prefix(&service.upstream.base_path)?;
    own.starts_with('/').then(|| (own.to_owned(), query))
}

/// What the stored request selects now. The host that the agent named is not stored: a rule for
/// hosts is taken to apply where it names one that the tool or the service takes.
fn select<'p>(
    service: &'p Service,
    tool: Option<&Tool>,
    draft: &Draft,
    path: &str,
    query: Option<&str>,
) -> Option<Selection<'p>> {
    let path = NormalPath::parse(path).ok()?;
    let hosts = tool.map(|tool| &tool.matches.hosts).filter(|hosts| !hosts.is_empty()).unwrap_or(&service.route.hosts);
    let mut headers = HeaderMap::new();
    for (name, value) in &draft.request.headers {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        headers.append(name, HeaderValue::from_bytes(value.as_bytes()).ok()?);
    }
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let asked = Asked { method: &draft.request.method, path: &path, hosts: &hosts, query, headers: &headers };
    Some(service.select_asked(&asked))
}

/// Args of a path or a query are texts; which ones the draft does not say, so a text that fits as
/// either is enough.
fn args_fit(tool: &Tool, draft: &Draft) -> bool {
    let (Some(rules), Some(values)) = (&tool.args, draft.args.as_object()) else { return tool.args.is_none() };
    let in_path: Vec<&str> = tool.matches.path.params().collect();
    let query = draft.request.target.split_once('?').map_or("", |(_, query)| query);
    let in_query = super::rewrite::pairs(query);
    let in_body = |name: &str| !in_path.contains(&name) && !in_query.iter().any(|(known, _)| known == name);
    let kind = if draft.request.kind == BodyKind::None { BodyKind::Form } else { draft.request.kind };
    rules.still_fits(values, kind, in_body)
}
