//! `countersign check`: every mistake in policy files, each with its place.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::ops::config::{self, Config, ConfigError, Machine, Overrides};
use crate::ops::reload::{self, PoliciesError};
use crate::policy::diagnostic::{Diagnostic, report};
use crate::policy::load::Source;
use crate::policy::roles::Roles;

use super::out::{Exit, Failed, Output};

/// What a configuration is called where nobody says otherwise.
const CONFIG_NAME: &str = "countersign.yaml";

/// Checks policy files and prints every mistake at once
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  countersign check policies/
  countersign check policies/orders.yaml policies/mail.yaml
  countersign check policies/ --config countersign.yaml --json

A folder means its *.yaml and *.yml files without *.test.yaml. All files are checked together, as a
guard would load them: names and routes must differ over all of them.
With the configuration it is also known which roles callers can have. Without --config it is the
countersign.yaml beside the folder, if that names the folder as its policies.
Prints FILE:LINE:COL: error: … for each mistake, by file, line and column, then how many there are.
Exit codes: 0 no mistakes (there may be warnings), 1 mistakes, 2 a file cannot be used")]
pub(super) struct Args {
    /// Folders and files
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The configuration that the policies will run with
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// What `--json` prints, in this order.
#[derive(Serialize)]
struct Checked<'a> {
    ok: bool,
    files: usize,
    diagnostics: &'a [Diagnostic],
}

/// Runs the subcommand.
pub(super) fn run(args: &Args, out: Output) -> Result<Exit, Failed> {
    let files = reload::read_files(&args.paths).map_err(|error| Failed::told(Exit::Usage, &error))?;
    let folder = match args.paths.as_slice() {
        [one] if one.is_dir() => one.clone(),
        [one] => folder_of(one),
        _ => PathBuf::from("."),
    };
    let roles = match &args.config {
        Some(path) => config::load(path, Overrides::default())
            .map(|loaded| reload::roles_of(loaded.config.identity.as_ref()))
            .map_err(|error| unusable(&error))?,
        None => roles_beside(&folder, &files, out),
    };
    let (diagnostics, exit) = match reload::parse(&files, &Machine::at(folder), &roles) {
        Ok(read) => (read.warnings, Exit::Done),
        Err(PoliciesError::Mistakes(all)) => (all, Exit::Refused),
        Err(error @ PoliciesError::Folder(_)) => return Err(Failed::told(Exit::Usage, &error)),
    };
    let count = files.len();
    if out.json {
        out.value(&Checked { ok: exit == Exit::Done, files: count, diagnostics: &diagnostics });
    } else if diagnostics.is_empty() {
        out.line(format!("no mistakes in {count} {}", if count == 1 { "file" } else { "files" }));
    } else {
        out.line(report(&diagnostics).trim_end());
    }
    Ok(exit)
}

fn unusable(error: &ConfigError) -> Failed {
    Failed::new(Exit::Usage, format!("the configuration cannot be used\n{}", error.to_string().trim_end()))
}

/// The folder that a path stands in.
fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// What the configuration beside the folder says of roles, if it is the one of these policies.
fn roles_beside(folder: &Path, files: &[Source], out: Output) -> Roles {
    let Ok(whole) = folder.canonicalize() else { return Roles::Any };
    let path = folder_of(&whole).join(CONFIG_NAME);
    if !path.is_file() {
        return Roles::Any;
    }
    match config::load(&path, Overrides::default()) {
        Ok(loaded) if is_of(&loaded.config, &whole) => reload::roles_of(loaded.config.identity.as_ref()),
        Ok(_) => Roles::Any,
        Err(_) => {
            if files.iter().any(|file| file.text.contains("roles:")) {
                let path = path.display();
                out.say(format!("note: {path} has mistakes, so it is not known which roles callers can have"));
            }
            Roles::Any
        }
    }
}

/// Whether these are the configuration's policies.
fn is_of(config: &Config, folder: &Path) -> bool {
    config.policies.canonicalize().is_ok_and(|policies| policies == folder)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_configuration_of_a_folder_is_the_one_beside_it_that_names_it() {
        let root = tempfile::tempdir().unwrap();
        let (policies, others) = (root.path().join("policies"), root.path().join("others"));
        for folder in [&policies, &others] {
            std::fs::create_dir(folder).unwrap();
        }
        let out = Output { json: false };
        assert_eq!(roles_beside(&policies, &[], out), Roles::Any, "there is none");
        std::fs::write(root.path().join(CONFIG_NAME), "policies: policies/\n").unwrap();
        assert_eq!(roles_beside(&policies, &[], out), Roles::Only(Vec::new()));
        assert_eq!(roles_beside(&others, &[], out), Roles::Any, "it is not theirs");
        std::fs::write(root.path().join(CONFIG_NAME), "policeis: policies/\n").unwrap();
        assert_eq!(roles_beside(&policies, &[], out), Roles::Any, "it cannot be used");
    }

    #[test]
    fn json_has_its_members_in_one_order() {
        let found = Diagnostic {
            file: "a.yaml".to_owned(),
            line: 1,
            column: 2,
            severity: crate::policy::diagnostic::Severity::Warning,
            message: "m".to_owned(),
            hint: None,
            excerpt: "e".to_owned(),
        };
        let text = serde_json::to_string(&Checked { ok: true, files: 1, diagnostics: &[found] }).unwrap();
        let expected = r#"{"ok":true,"files":1,"diagnostics":[{"file":"a.yaml","line":1,"column":2,"severity":"warning","message":"m","hint":null}]}"#;
        assert_eq!(text, expected);
    }
}
