//! The checks that look at everything together: names over all files, registry and tools, matches
//! that meet, routes that shadow, roles that nobody has.

use std::collections::HashMap;

use crate::call::path::Relation;

use super::super::matching::first_literal;
use super::super::model::Match;
use super::super::read::File;
use super::super::roles::Roles;
use super::super::yaml::Place;
use super::registry;
use super::service::ReadService;

pub(super) fn check(files: &[File<'_>], services: &mut [ReadService], roles: &Roles) {
    for service in services.iter_mut() {
        if let Some(file) = files.get(service.file) {
            registry::join(file, service);
            meeting_tools(file, service);
            for read in &service.tools {
                let allowed = read.tool.roles.as_deref().unwrap_or_default();
                roles.check(file, read.tool.name.as_str(), allowed, read.allow_place);
            }
        }
    }
    unique_names(files, services);
    routes(files, services);
}

/// Reports every name that stands twice, at its second place.
fn unique_names(files: &[File<'_>], services: &[ReadService]) {
    let mut seen: HashMap<(&str, String), (usize, Place)> = HashMap::new();
    let mut once = |what: &'static str, name: &str, number: usize, place: Place| {
        let Some(file) = files.get(number) else { return };
        if let Some((other, first)) = seen.get(&(what, name.to_owned())) {
            let other = files.get(*other).map_or("", |file| file.name);
            let hint = format!("it stands in {other} on line {} already", first.line);
            file.error_with(place, format!("{what} `{name}` is declared twice"), hint);
            return;
        }
        seen.insert((what, name.to_owned()), (number, place));
    };
    for service in services {
        if let Some((name, place)) = &service.name {
            once("the service", name.as_str(), service.file, *place);
        }
        for (name, place) in &service.tool_names {
            once("the tool", name.as_str(), service.file, *place);
        }
        for read in &service.capabilities {
            once("the capability", read.capability.id.as_str(), service.file, read.id_place);
        }
    }
}

/// Two tools that can match the same request: one has to be strictly narrower.
fn meeting_tools(file: &File<'_>, service: &ReadService) {
    // Tools whose paths begin with different literals can never meet; they are not compared.
    let mut groups: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, read) in service.tools.iter().enumerate() {
        groups.entry(first_literal(read.tool.matches.path.as_str())).or_default().push(at);
    }
    let open = groups.get("").cloned().unwrap_or_default();
    for at in 0..service.tools.len() {
        let Some(read) = service.tools.get(at) else { continue };
        let first = first_literal(read.tool.matches.path.as_str());
        let others: Vec<usize> = if first.is_empty() {
            (0..at).collect()
        } else {
            groups.get(first).into_iter().flatten().chain(&open).copied().filter(|other| *other < at).collect()
        };
        for other in others.into_iter().filter_map(|other| service.tools.get(other)) {
            let relation = read.tool.matches.relation(&other.tool.matches);
            if matches!(relation, Relation::Same | Relation::Crossing) {
                let hint = format!(
                    "`{}` on line {}: {}; {}",
                    other.tool.name,
                    other.place.line,
                    describe(&other.tool.matches),
                    "make one of them strictly narrower, by path, method, host, header, query or content_type"
                );
                let message = format!("`{}` and `{}` can match the same request", read.tool.name, other.tool.name);
                file.error_with(read.match_place, message, hint);
            }
        }
    }
}

fn describe(rule: &Match) -> String {
    let methods = if rule.methods.is_empty() { "any method".to_owned() } else { rule.methods.join(", ") };
    format!("{methods} {}", rule.path)
}

/// Two services that take the same requests: the second would never be asked.
fn routes(files: &[File<'_>], services: &[ReadService]) {
    for (at, service) in services.iter().enumerate() {
        for other in &services[..at] {
            let same_prefix = service.route.path_prefix == other.route.path_prefix;
            let (own, others) = (&service.route.hosts, &other.route.hosts);
            let both_any = own.is_empty() && others.is_empty();
            let shared = own.iter().find(|host| others.contains(host));
            if same_prefix && (both_any || shared.is_some()) {
                let host = if both_any { "every host".to_owned() } else { "the same host".to_owned() };
                let (Some(file), Some(other_file)) = (files.get(service.file), files.get(other.file)) else { continue };
                let message = format!(
                    "this route shadows the one in {}: both take `{}` on {host}",
                    other_file.name, service.route.path_prefix
                );
                file.error_with(service.route_place, message, "give them different hosts or prefixes");
            }
        }
    }
}
