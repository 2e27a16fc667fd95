//! Policy files become a [`PolicySet`], or a list of every mistake in all of them.
//!
//! Owns the order: the text, each file by itself, then everything together. Must never give out a
//! set with a mistake in it.

mod args;
mod cross;
mod outcome;
mod registry;
mod rules;
mod service;
mod tool;
mod upstream;
mod version;

use super::diagnostic::{Diagnostic, Severity, sort};
use super::model::PolicySet;
use super::read::{File, Substitutions};
use super::roles::Roles;
use super::yaml::{self, Place};

/// The text of one policy file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The name that diagnostics print.
    pub name: String,
    /// The text.
    pub text: String,
}

/// A set that may be put in force.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The set.
    pub set: PolicySet,
    /// What somebody should look at.
    pub warnings: Vec<Diagnostic>,
}

/// Reads, checks and joins policy files. Their order does not matter.
///
/// # Errors
///
/// Every mistake of all files, and the warnings with them.
pub fn load(sources: &[Source], substitutions: &dyn Substitutions) -> Result<Loaded, Vec<Diagnostic>> {
    load_for(sources, substitutions, &Roles::Any)
}

/// As [`load`], where it is known which roles callers can have.
///
/// # Errors
///
/// Every mistake of all files, and the warnings with them, in the order in which they are told.
pub fn load_for(
    sources: &[Source],
    substitutions: &dyn Substitutions,
    roles: &Roles,
) -> Result<Loaded, Vec<Diagnostic>> {
    let mut sources: Vec<&Source> = sources.iter().collect();
    sources.sort_by(|a, b| a.name.cmp(&b.name));
    let files: Vec<File<'_>> = sources.iter().map(|s| File::new(&s.name, &s.text, substitutions)).collect();
    let mut services = Vec::new();
    let mut normal = Vec::new();
    for (number, (file, source)) in files.iter().zip(&sources).enumerate() {
        let (root, problems) = yaml::parse(&source.text);
        let broken = !problems.is_empty();
        for problem in problems {
            file.found(problem.place, Severity::Error, problem.message, problem.hint);
        }
        let Some(root) = root else {
            if !broken {
                let place = Place { line: 1, column: 1 };
                file.error_with(
                    place,
                    "the file is empty",
                    "a policy file begins with `version: 1` and `service: NAME`",
                );
            }
            continue;
        };
        services.extend(service::read(file, number, &root));
        normal.push(version::normal_form(file, &root));
    }
    cross::check(&files, &mut services, roles);
    let mut found: Vec<Diagnostic> = files.iter().flat_map(File::diagnostics).collect();
    if files.is_empty() {
        found.push(no_files());
    }
    sort(&mut found);
    if found.iter().any(|diagnostic| diagnostic.severity == Severity::Error) {
        return Err(found);
    }
    let mut services: Vec<_> = services.into_iter().filter_map(service::ReadService::finish).collect();
    services.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Loaded { set: PolicySet { version: version::hash(normal), services }, warnings: found })
}

fn no_files() -> Diagnostic {
    Diagnostic {
        file: "policies".to_owned(),
        line: 1,
        column: 1,
        severity: Severity::Error,
        message: "there is no policy file".to_owned(),
        hint: Some("a folder of policies has at least one file that ends in .yaml".to_owned()),
        excerpt: String::new(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use crate::policy::tests::Surroundings;

    #[test]
    fn what_is_easily_got_wrong_comes_with_what_to_do() {
        let url = "upstream: {url: \"https://x.example\"}\n";
        let tool = |line: &str| format!("version: 1\nservice: s\n{url}tools:\n  - {{name: t, effect: read, {line}}}\n");
        let with = |url: &str| format!("version: 1\nservice: s\nupstream: {{url: \"{url}\"}}\n");
        for (text, place, hint) in [
            (format!("service: s\n{url}"), (1, 1), "`version: 1`"),
            (format!("version: 1\n{url}"), (1, 1), "`service: orders`"),
            ("version: 1\nservice: s\n".to_owned(), (1, 1), "`upstream: {url: "),
            (with("api.example.com"), (3, 17), "https://api.example.com"),
            (with("localhost:8080"), (3, 17), "write the scheme too"),
            (with("${env:NOT_THERE}"), (3, 17), "export NOT_THERE=…"),
            (with("${NOT_THERE}"), (3, 17), "`${env:NOT_THERE}`"),
            (with("${file:not/there}"), (3, 17), "relative to the folder"),
            (tool("match: {method: GET, path: /orders/{id}}"), (5, 64), "\"/orders/{id}\""),
            (tool("match: {method: GET, path: {id}}"), (5, 56), "\"/orders/{id}\""),
            (tool("match: {method: GET, path: orders}"), (5, 56), "\"/orders/{id}/cancel\""),
            (tool("match: {path: /orders}"), (5, 36), "`method: POST`"),
        ] {
            let found = load(&[Source { name: "s.yaml".to_owned(), text: text.clone() }], &Surroundings).unwrap_err();
            let told = found.iter().find(|found| found.hint.as_ref().is_some_and(|told| told.contains(hint)));
            let told = told.unwrap_or_else(|| panic!("{text}: no hint {hint}: {found:?}"));
            assert_eq!((told.line, told.column), place, "{text}");
        }
    }

    #[test]
    fn mistakes_are_told_by_file_line_and_column_however_they_were_found() {
        let source = |name: &str, text: &str| Source { name: name.to_owned(), text: text.to_owned() };
        // The unknown key at the end is found first, what is missing at the beginning after it.
        let text = "service: s\nupstream: {url: x, timeout: 1s}\ntool: []\n";
        let found = load(&[source("b.yaml", text), source("a.yaml", text)], &Surroundings).unwrap_err();
        let places: Vec<_> = found.iter().map(|found| (found.file.as_str(), found.line, found.column)).collect();
        let mut sorted = places.clone();
        sorted.sort_unstable();
        assert_eq!(places, sorted);
        assert!(places.len() >= 8 && places[0] == ("a.yaml", 1, 1), "{places:?}");
    }
}
