//! countersign.yaml: read into validated settings, with every mistake at once.
//!
//! Owns the format, the defaults, the bounds and the rules that tie sections together. Must never
//! start anything, and never let a key pass that this version does not carry out.

mod keys;
mod model;
mod people;
mod sections;
mod substitute;
mod values;

use std::path::{Path, PathBuf};

use crate::policy::diagnostic::{Diagnostic, Severity, report};
use crate::policy::read::{Fields, File, Substitutions};
use crate::policy::yaml::{self, Place};

pub use model::{
    Approvers, Config, ControlSection, GuardSection, JournalSection, LimitsSection, StorePlace, StoreSection,
};
pub use substitute::Machine;

/// The JSON Schema of the format, for editors.
pub const SCHEMA: &str = include_str!("config/schema.json");

/// What the command line says in place of the file.
#[derive(Debug, Clone, Copy, Default)]
pub struct Overrides {
    /// In place of `guard.listen`.
    pub listen: Option<std::net::SocketAddr>,
    /// In place of `control.listen`.
    pub control: Option<std::net::SocketAddr>,
}

/// A configuration that may be used, and what somebody should look at all the same.
#[derive(Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// Warnings only.
    pub warnings: Vec<Diagnostic>,
}

/// The configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{path} cannot be read: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// It can be read and has mistakes: all of them, in the order of the file.
    #[error("{}", report(.0))]
    Mistakes(Vec<Diagnostic>),
}

/// Reads a configuration file. Relative paths in it are relative to its folder.
///
/// # Errors
///
/// [`ConfigError`] with every mistake of the file.
pub fn load(path: &Path, overrides: Overrides) -> Result<Loaded, ConfigError> {
    let unreadable = |source| ConfigError::Unreadable { path: path.to_owned(), source };
    let bytes = read_bounded(path).map_err(unreadable)?;
    let text = String::from_utf8(bytes)
        .map_err(|_| unreadable(std::io::Error::new(std::io::ErrorKind::InvalidData, "it is not UTF-8")))?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    };
    let machine = Machine::at(folder.clone());
    parse(&path.display().to_string(), &text, &folder, &machine, overrides)
}

/// Reads at most one byte more than a file may have, so that a wrong path cannot fill memory.
fn read_bounded(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(yaml::FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a configuration text; pure but for `substitutions`.
fn parse(
    name: &str,
    text: &str,
    folder: &Path,
    substitutions: &dyn Substitutions,
    overrides: Overrides,
) -> Result<Loaded, ConfigError> {
    let file = File::new(name, text, substitutions);
    let (root, problems) = yaml::parse(text);
    let whole = problems.is_empty();
    for problem in problems {
        file.found(problem.place, Severity::Error, problem.message, problem.hint);
    }
    let config = match &root {
        Some(root) => {
            Fields::open(&file, root, &keys::FILE).and_then(|fields| sections::read(&file, &fields, folder, overrides))
        }
        None => {
            if whole {
                let hint = "an empty configuration is not one; `countersign guard URL` needs no file";
                file.error_with(Place { line: 1, column: 1 }, "the file is empty", hint);
            }
            None
        }
    };
    let diagnostics = file.diagnostics();
    match config {
        Some(config) if !file.has_errors() => Ok(Loaded { config, warnings: diagnostics }),
        _ => Err(ConfigError::Mistakes(diagnostics)),
    }
}

#[cfg(test)]
mod tests;
