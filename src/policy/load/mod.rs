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

use super::diagnostic::{Diagnostic, Severity};
use super::model::PolicySet;
use super::read::{File, Substitutions};
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
    cross::check(&files, &mut services);
    let mut found: Vec<Diagnostic> = files.iter().flat_map(File::diagnostics).collect();
    if files.is_empty() {
        found.push(no_files());
    }
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
