//! `countersign token new`: makes a token and the digest that a configuration keeps of it.

use clap::Subcommand;
use serde_json::json;

use crate::base::chance::OsChance;
use crate::ops::token::new_token;

use super::out::{Exit, Output};

/// Makes credentials
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Prints a new token, and its digest for the configuration
    #[command(after_help = "Examples:
  countersign token new
  countersign token new --json | jq -r .token

The token goes to the agent, the approver or the app; only the digest goes into countersign.yaml:
  agents: [{name: support-bot, token_sha256: \"DIGEST\"}]")]
    New,
}

/// Runs the subcommand.
pub(super) fn run(args: &Args, out: Output) -> Exit {
    let What::New = args.what;
    let token = new_token(&OsChance);
    let digest = token.digest();
    if out.json {
        out.value(&json!({"token": token.reveal(), "token_sha256": digest}));
    } else {
        out.line(format!("token        {}", token.reveal()));
        out.line(format!("token_sha256 {digest}"));
        out.say("hint: hand over the token once and keep only the digest; it cannot be shown again");
    }
    Exit::Done
}
