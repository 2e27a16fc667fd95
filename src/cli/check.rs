//! `countersign check`: every mistake in policy files, each with its place.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::ops::config::Machine;
use crate::ops::reload::{self, PoliciesError};
use crate::policy::diagnostic::{Diagnostic, Severity, report};

use super::out::{Exit, Failed, Output};

/// Checks policy files and prints every mistake at once
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  countersign check policies/
  countersign check policies/orders.yaml policies/mail.yaml
  countersign check policies/ --json

A folder means its *.yaml and *.yml files without *.test.yaml. All files are checked together, as a
guard would load them: names and routes must differ over all of them.
Prints FILE:LINE:COL: error: … for each mistake, then how many there are.
Exit codes: 0 no mistakes (there may be warnings), 1 mistakes, 2 a file cannot be read")]
pub(super) struct Args {
    /// Folders and files
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

/// Runs the subcommand.
pub(super) fn run(args: &Args, out: Output) -> Result<Exit, Failed> {
    let files = reload::read_files(&args.paths).map_err(|error| Failed::told(Exit::Usage, &error))?;
    let folder = match args.paths.as_slice() {
        [one] if one.is_dir() => one.clone(),
        [one] => one.parent().map_or_else(|| PathBuf::from("."), PathBuf::from),
        _ => PathBuf::from("."),
    };
    let count = files.len();
    let (diagnostics, exit) = match reload::parse(&files, &Machine::at(folder)) {
        Ok(read) => (read.warnings, Exit::Done),
        Err(PoliciesError::Mistakes(all)) => (all, Exit::Refused),
        Err(error @ PoliciesError::Folder(_)) => return Err(Failed::told(Exit::Usage, &error)),
    };
    if out.json {
        let list: Vec<Value> = diagnostics.iter().map(as_json).collect();
        out.value(&json!({"ok": exit == Exit::Done, "files": count, "diagnostics": list}));
    } else if diagnostics.is_empty() {
        out.line(format!("no mistakes in {count} {}", if count == 1 { "file" } else { "files" }));
    } else {
        out.line(report(&diagnostics).trim_end());
    }
    Ok(exit)
}

fn as_json(found: &Diagnostic) -> Value {
    json!({
        "file": found.file,
        "line": found.line,
        "column": found.column,
        "severity": match found.severity { Severity::Error => "error", Severity::Warning => "warning" },
        "message": found.message,
        "hint": found.hint,
    })
}
