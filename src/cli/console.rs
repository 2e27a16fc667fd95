//! `countersign console`: a new one-time link to the console, for whoever has an approver's token.

use serde_json::json;

use super::card;
use super::connect::Reach;
use super::out::{Exit, Failed, Output};
use super::refused::accepted;

/// Prints a new one-time link to the console
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  countersign console
  countersign console --keys /var/lib/countersign/countersign.keys
  COUNTERSIGN_TOKEN=… countersign console --control https://guard.example

The link signs you in as the approver whose token this is, once, within two minutes. Without --token it
is the generated approver's, from the keys file: run it in the guard's folder, or name the file.

Exit codes: 0 printed, 1 refused, 2 wrong use or no token, 3 no guard answers")]
pub(super) struct Args {
    #[command(flatten)]
    reach: Reach,
}

/// Runs the subcommand.
pub(super) async fn run(args: Args, out: Output) -> Result<Exit, Failed> {
    let control = args.reach.open()?;
    let made = accepted(control.post("/v1/sign-in-links", &json!({})).await?)?;
    if out.json {
        out.value(&made);
    } else {
        out.line(card::text(&made, "/link"));
        let (who, until) = (card::text(&made, "/approver"), card::text(&made, "/expires_at"));
        out.say(format!("signs you in as {who}, once, until {until}"));
    }
    Ok(Exit::Done)
}
