//! `countersign schema`: JSON Schemas of the two file formats, for editors.

use clap::ValueEnum;

use super::out::{Exit, Output};

/// Prints the JSON Schema of a file format, for editors
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  countersign schema policy > policy.schema.json
  countersign schema config > countersign.schema.json

In an editor with YAML language support, the first line of a file names its schema:
  # yaml-language-server: $schema=./policy.schema.json")]
pub(super) struct Args {
    /// Which format
    of: Format,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// Policy files
    Policy,
    /// countersign.yaml
    Config,
}

/// Runs the subcommand.
pub(super) fn run(args: &Args, out: Output) -> Exit {
    let schema = match args.of {
        Format::Policy => format!("{:#}", crate::policy::editor::policy_schema()),
        Format::Config => crate::ops::config::SCHEMA.to_owned(),
    };
    out.line(schema.trim_end());
    Exit::Done
}
