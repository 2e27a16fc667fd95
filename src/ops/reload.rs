//! The policy files in force, and how newer ones take their place while the guard runs.
//!
//! Owns the folder: which files of it count, watching it, and the last error. Must never put half
//! a set or a set with mistakes in force: a bad file keeps the last good set.

mod folder;
mod watch;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use crate::agent::identity::{IdentityRules, Source as RoleSource};
use crate::base::time::Clock;
use crate::control::{NotTaken, PolicyReport, PolicyStatus};
use crate::ops::config::Machine;
use crate::ops::metrics::Metrics;
use crate::policy::diagnostic::{Diagnostic, Severity, report};
use crate::policy::load::{self, Source as SourceFile};
use crate::policy::model::PolicySet;
use crate::policy::roles::Roles;

pub use folder::{FolderError, read_files, read_folder};
pub use watch::Watch;

/// Where policies come from.
#[derive(Debug, Clone)]
pub enum Source {
    /// A folder, watched.
    Folder(PathBuf),
    /// One text that the program brings along.
    Fixed {
        /// What messages call it.
        name: String,
        /// The policy.
        text: String,
        /// Where its substitutions come from.
        machine: Machine,
    },
}

/// Policies that were read and may be used.
#[derive(Debug)]
pub struct Read {
    /// The set.
    pub set: PolicySet,
    /// The names of its files.
    pub files: Vec<String>,
    /// What somebody should look at.
    pub warnings: Vec<Diagnostic>,
}

/// Policies that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PoliciesError {
    /// The folder or a file cannot be read.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// They have mistakes: all of them.
    #[error("{}", report(.0))]
    Mistakes(Vec<Diagnostic>),
}

impl PoliciesError {
    /// One line for the log: the first mistake with its place, and how many there are.
    #[must_use]
    pub fn line(&self) -> String {
        match self {
            Self::Folder(error) => error.to_string().replace('\n', " "),
            Self::Mistakes(all) => {
                let errors = all.iter().filter(|found| found.severity == Severity::Error);
                let more = errors.clone().count().saturating_sub(1);
                let first = errors.clone().next();
                let first = first.map_or_else(String::new, Diagnostic::line);
                if more == 0 { first } else { format!("{first} (and {more} more)") }
            }
        }
    }
}

impl Source {
    /// Reads the policies.
    ///
    /// # Errors
    ///
    /// [`PoliciesError`] with every mistake.
    pub fn read(&self, roles: &Roles) -> Result<Read, PoliciesError> {
        match self {
            Self::Folder(folder) => parse(&read_folder(folder)?, &Machine::at(folder.clone()), roles),
            Self::Fixed { name, text, machine } => {
                parse(&[SourceFile { name: name.clone(), text: text.clone() }], machine, roles)
            }
        }
    }
}

/// The roles that callers can have under these identity rules.
#[must_use]
pub fn roles_of(identity: Option<&IdentityRules>) -> Roles {
    let Some(IdentityRules { role: Some(source), agents, .. }) = identity else { return Roles::Only(Vec::new()) };
    match source {
        RoleSource::Const(role) => Roles::Only(vec![role.clone()]),
        RoleSource::Agent if !agents.is_empty() => {
            Roles::Only(agents.iter().map(|agent| agent.name.as_str().to_owned()).collect())
        }
        RoleSource::Agent | RoleSource::Header(_) | RoleSource::Path(_) | RoleSource::Arg(_) => Roles::Any,
    }
}

/// Parses files that were read.
///
/// # Errors
///
/// [`PoliciesError::Mistakes`].
pub fn parse(files: &[SourceFile], machine: &Machine, roles: &Roles) -> Result<Read, PoliciesError> {
    let loaded = load::load_for(files, machine, roles).map_err(PoliciesError::Mistakes)?;
    let names = files.iter().map(|file| file.name.clone()).collect();
    Ok(Read { set: loaded.set, files: names, warnings: loaded.warnings })
}

/// The policies in force.
pub struct Policies {
    source: Source,
    roles: Roles,
    in_force: Arc<ArcSwap<PolicySet>>,
    report: Mutex<PolicyReport>,
    /// One reload at a time, so that an older read never replaces a newer one.
    reading: Mutex<()>,
    metrics: Arc<Metrics>,
    clock: Arc<dyn Clock>,
}

impl Policies {
    /// Reads them for the first time. `roles` are those that callers can have.
    ///
    /// # Errors
    ///
    /// [`PoliciesError`]: a guard without policies does not start.
    pub fn open(
        source: Source,
        roles: Roles,
        metrics: Arc<Metrics>,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Self>, PoliciesError> {
        let read = source.read(&roles)?;
        warn(&read.warnings);
        metrics.policy_in_force(&read.set);
        let report = PolicyReport {
            version: read.set.version.clone(),
            loaded_at: clock.now(),
            files: read.files,
            last_error: None,
        };
        let in_force = Arc::new(ArcSwap::from_pointee(read.set));
        let (report, reading) = (Mutex::new(report), Mutex::default());
        Ok(Arc::new(Self { source, roles, in_force, report, reading, metrics, clock }))
    }

    /// The set in force; reloading swaps it.
    #[must_use]
    pub fn in_force(&self) -> Arc<ArcSwap<PolicySet>> {
        Arc::clone(&self.in_force)
    }

    /// The folder, where there is one to watch.
    #[must_use]
    pub const fn folder(&self) -> Option<&PathBuf> {
        match &self.source {
            Source::Folder(folder) => Some(folder),
            Source::Fixed { .. } => None,
        }
    }

    fn current(&self) -> PolicyReport {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl PolicyStatus for Policies {
    fn report(&self) -> PolicyReport {
        self.current()
    }

    fn reload(&self) -> Result<PolicyReport, NotTaken> {
        let _one_at_a_time = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        match self.source.read(&self.roles) {
            Ok(read) => {
                warn(&read.warnings);
                let report = PolicyReport {
                    version: read.set.version.clone(),
                    loaded_at: self.clock.now(),
                    files: read.files,
                    last_error: None,
                };
                self.metrics.policy_in_force(&read.set);
                // Swapped also where the version is the same: a credential may have changed.
                self.in_force.store(Arc::new(read.set));
                tracing::info!(version = report.version, files = report.files.len(), "policies in force");
                *self.report.lock().unwrap_or_else(PoisonError::into_inner) = report.clone();
                Ok(report)
            }
            Err(error) => {
                self.metrics.policy_reload_failed();
                tracing::error!(first = error.line(), "policies not taken; the last good ones stay in force");
                let text = error.to_string();
                self.report.lock().unwrap_or_else(PoisonError::into_inner).last_error = Some(text.clone());
                Err(match error {
                    PoliciesError::Folder(_) => NotTaken::Unreadable(text),
                    PoliciesError::Mistakes(all) => NotTaken::Mistakes(all),
                })
            }
        }
    }
}

fn warn(warnings: &[Diagnostic]) {
    for warning in warnings {
        let at = format!("{}:{}:{}", warning.file, warning.line, warning.column);
        tracing::warn!(at, hint = warning.hint, "policy: {}", warning.message);
    }
}

#[cfg(test)]
mod tests;
