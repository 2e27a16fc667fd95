//! `countersign drafts`: the queue on the command line. Speaks to the control listener with an
//! approver's token; decides nothing by itself.

use std::collections::HashMap;
use std::io::{BufRead as _, Write as _};
use std::time::Duration;

use clap::Subcommand;
use serde_json::{Value, json};

use crate::base::id::DraftId;
use crate::draft::outcome::Failure;
use crate::draft::state::Status;

use super::card;
use super::connect::{Control, Reach, Reply};
use super::out::{Exit, Failed, Output};
use super::refused::{accepted, problem};

/// Statuses that still wait for somebody or something.
const OPEN: [Status; 4] = [Status::Pending, Status::Running, Status::Verifying, Status::Unverifiable];
/// How many drafts are asked for at a time; the listener's own bound.
const PAGE: usize = 100;
/// How often `watch` looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Lists, shows and decides held calls
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  countersign drafts list
  countersign drafts show dr_5_01JB8Z2QK7M3T9X4V6N0C1D2E3
  countersign drafts confirm dr_5_01JB8Z2QK7M3T9X4V6N0C1D2E3
  countersign drafts reject dr_5_01JB8Z2QK7M3T9X4V6N0C1D2E3 --reason 'wrong customer'
  countersign drafts resolve dr_5_01JB8Z2QK7M3T9X4V6N0C1D2E3 --outcome succeeded --evidence 'it is in the list'
  countersign drafts watch --json

Exit codes: 0 done, 1 refused or failed, 2 wrong use, 3 no guard answers, 4 the outcome is not known (yet)")]
pub(super) struct Args {
    #[command(flatten)]
    reach: Reach,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Lists drafts, newest first; those that are still open unless told otherwise
    List(List),
    /// Shows one draft: the card, every arg, and the request that will be sent
    Show {
        /// The draft's id
        id: DraftId,
    },
    /// Shows the card, asks, confirms exactly what was shown, and waits for the outcome
    Confirm {
        /// The draft's id; without it, the one draft that waits
        id: Option<DraftId>,
        /// Do not ask
        #[arg(long)]
        yes: bool,
        /// Kept with the decision
        #[arg(long)]
        comment: Option<String>,
    },
    /// Rejects: the call is not sent, and the agent is told the reason
    Reject {
        /// The draft's id
        id: DraftId,
        /// Why
        #[arg(long)]
        reason: String,
    },
    /// Settles a draft whose outcome could not be verified, by what you found out
    Resolve {
        /// The draft's id
        id: DraftId,
        /// What happened
        #[arg(long, value_parser = ["succeeded", "failed"])]
        outcome: String,
        /// How you know
        #[arg(long)]
        evidence: String,
    },
    /// Makes a new draft from one that was provably not sent
    Again {
        /// The draft's id
        id: DraftId,
    },
    /// Prints a line for every new draft and every change, until it is interrupted
    Watch,
}

#[derive(Debug, clap::Args)]
struct List {
    /// Only this status; may be given more than once
    #[arg(long, value_parser = parse_status)]
    status: Vec<Status>,
    /// Every status
    #[arg(long, conflicts_with = "status")]
    all: bool,
    /// Only this tool
    #[arg(long)]
    tool: Option<String>,
    /// Only this owner
    #[arg(long)]
    owner: Option<String>,
    /// Only this risk
    #[arg(long, value_parser = ["low", "medium", "high"])]
    risk: Option<String>,
    /// At most this many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
}

fn parse_status(text: &str) -> Result<Status, String> {
    Status::parse(text).ok_or_else(|| format!("one of {}", Status::ALL.map(Status::as_str).join(", ")))
}

/// Runs the subcommand.
pub(super) async fn run(args: Args, out: Output) -> Result<Exit, Failed> {
    let control = args.reach.open()?;
    match args.what {
        What::List(list) => show_list(&control, &list, out).await,
        What::Show { id } => show(&control, &id, out).await,
        What::Confirm { id, yes, comment } => {
            let id = match id {
                Some(id) => id,
                None => the_one_pending(&control).await?,
            };
            confirm(&control, &id, yes, comment, out).await
        }
        What::Reject { id, reason } => {
            let reply = control.post(&path(&id, "/reject"), &json!({"reason": reason})).await?;
            done(&reply, out, "rejected: it will not be sent")
        }
        What::Resolve { id, outcome, evidence } => {
            let body = json!({"outcome": outcome, "evidence": evidence});
            let reply = control.post(&path(&id, "/resolve"), &body).await?;
            done(&reply, out, &format!("resolved as {outcome}"))
        }
        What::Again { id } => {
            let reply = control.post(&path(&id, "/again"), &json!({})).await?;
            let new = card::text(&reply.body, "/draft_id");
            done(&reply, out, &format!("held again as {new}; confirm it to send it"))
        }
        What::Watch => watch(&control, out).await,
    }
}

fn path(id: &DraftId, verb: &str) -> String {
    format!("/v1/drafts/{id}{verb}")
}

async fn show_list(control: &Control, list: &List, out: Output) -> Result<Exit, Failed> {
    let statuses: &[Status] = match (list.all, list.status.is_empty()) {
        (true, _) => &Status::ALL,
        (false, true) => &OPEN,
        (false, false) => &list.status,
    };
    let mut filters = String::new();
    for (name, value) in [("tool", &list.tool), ("owner", &list.owner), ("risk", &list.risk)] {
        if let Some(value) = value {
            filters.push_str(&format!("&{name}={}", in_query(value)));
        }
    }
    let drafts = fetch(control, statuses, &filters, usize::from(list.limit)).await?;
    if out.json {
        out.value(&json!({"drafts": drafts}));
    } else if drafts.is_empty() {
        out.say("no drafts");
    } else {
        drafts.iter().for_each(|draft| out.line(card::line(draft)));
    }
    Ok(Exit::Done)
}

/// As many pages as `limit` needs, newest first.
async fn fetch(control: &Control, statuses: &[Status], filters: &str, limit: usize) -> Result<Vec<Value>, Failed> {
    let words: Vec<&str> = statuses.iter().map(|status| status.as_str()).collect();
    let words = words.join(",");
    let mut found: Vec<Value> = Vec::new();
    let mut cursor = String::new();
    while found.len() < limit {
        let page = (limit - found.len()).min(PAGE);
        let body = accepted(control.get(&format!("/v1/drafts?status={words}&limit={page}{filters}{cursor}")).await?)?;
        let drafts = body.get("drafts").and_then(Value::as_array).cloned().unwrap_or_default();
        let last = drafts.is_empty();
        found.extend(drafts);
        match body.get("next").and_then(Value::as_str) {
            Some(next) if !last => cursor = format!("&cursor={}", in_query(next)),
            _ => break,
        }
    }
    found.truncate(limit);
    Ok(found)
}

async fn show(control: &Control, id: &DraftId, out: Output) -> Result<Exit, Failed> {
    let draft = accepted(control.get(&path(id, "")).await?)?;
    if out.json {
        out.value(&draft);
    } else {
        out.line(card::whole(&draft));
    }
    Ok(Exit::Done)
}

/// The id of the only pending draft. Of several none is guessed.
async fn the_one_pending(control: &Control) -> Result<DraftId, Failed> {
    let drafts = fetch(control, &[Status::Pending], "", PAGE).await?;
    let refused = |message: String| Failed::new(Exit::Refused, message);
    match drafts.as_slice() {
        [] => Err(refused("no draft waits for a decision".to_owned())),
        [one] => {
            let id = one.get("draft_id").and_then(Value::as_str).unwrap_or_default();
            id.parse().map_err(|_| refused("the answer names no draft".to_owned()))
        }
        several => {
            let lines: Vec<String> = several.iter().map(card::line).collect();
            Err(refused(format!("{} drafts wait for a decision:\n{}", several.len(), lines.join("\n")))
                .hint("name one: countersign drafts confirm ID"))
        }
    }
}

async fn confirm(
    control: &Control,
    id: &DraftId,
    yes: bool,
    comment: Option<String>,
    out: Output,
) -> Result<Exit, Failed> {
    let draft = accepted(control.get(&path(id, "")).await?)?;
    if !out.json {
        out.line(card::whole(&draft));
    }
    let hash = draft.get("args_hash").and_then(Value::as_str).unwrap_or_default().to_owned();
    // Only what waits is asked about: the guard answers for the others what became of them.
    let waits = draft.get("status").and_then(Value::as_str) == Some("pending");
    if waits && !yes && !ask(out)? {
        out.say("not confirmed; the draft is as it was");
        return Ok(Exit::Refused);
    }
    // Exactly what was shown: should the draft have changed since, the guard refuses.
    let mut body = json!({"args_hash": hash});
    if let Some(comment) = comment {
        body["comment"] = Value::String(comment);
    }
    let reply = control.post(&path(id, "/confirm"), &body).await?;
    decided(&reply, out)
}

fn ask(out: Output) -> Result<bool, Failed> {
    use std::io::IsTerminal as _;
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(Failed::new(Exit::Usage, "nobody can be asked: standard input is not a terminal")
            .hint("--yes confirms without asking"));
    }
    if out.json {
        return Err(Failed::new(Exit::Usage, "--json asks nobody").hint("add --yes"));
    }
    let _ = write!(std::io::stderr().lock(), "\nSend it? Type yes: ");
    let _ = std::io::stderr().lock().flush();
    let mut answer = String::new();
    let read = stdin.lock().read_line(&mut answer);
    Ok(read.is_ok() && answer.trim().eq_ignore_ascii_case("yes"))
}

/// Tells that what was asked is done, or why not.
fn done(reply: &Reply, out: Output, sentence: &str) -> Result<Exit, Failed> {
    finished(reply, out, Exit::Done, || format!("{sentence}{}", replayed(&reply.body)))
}

/// Tells what became of a confirm, and ends with a code that says the same.
fn decided(reply: &Reply, out: Output) -> Result<Exit, Failed> {
    let status = reply.body.get("status").and_then(Value::as_str).unwrap_or_default();
    finished(reply, out, outcome_exit(status), || format!("{}{}", told(status, &reply.body), replayed(&reply.body)))
}

fn finished(reply: &Reply, out: Output, exit: Exit, sentence: impl FnOnce() -> String) -> Result<Exit, Failed> {
    let good = (200..300).contains(&reply.status);
    if out.json && !reply.body.is_null() {
        out.value(&reply.body);
        return Ok(if good { exit } else { problem(reply).exit });
    }
    if !good {
        return Err(problem(reply));
    }
    out.line(sentence());
    Ok(exit)
}

fn replayed(body: &Value) -> &'static str {
    match body.get("replayed") {
        Some(Value::Bool(true)) => " (it was decided before; this changed nothing)",
        _ => "",
    }
}

fn outcome_exit(status: &str) -> Exit {
    match status {
        "failed" => Exit::Refused,
        "running" | "verifying" | "unverifiable" => Exit::Unknown,
        _ => Exit::Done,
    }
}

fn told(status: &str, body: &Value) -> String {
    let receipt = || format!("receipt {}: {}", card::text(body, "/receipt/id"), card::text(body, "/receipt/summary"));
    match status {
        "succeeded" => format!("done; {}", receipt()),
        "failed" => match card::failure(body) {
            Some(Failure::NotSent) => "not done: the upstream was not reached, and nothing was sent".to_owned(),
            Some(Failure::ReleaseTooLate) => "not done: it came too late to be sent; nothing was sent".to_owned(),
            Some(Failure::Refused) => format!("not done, the upstream refused; {}", receipt()),
            Some(Failure::Resolved) => format!("not done, as a person found out; {}", receipt()),
            Some(Failure::Integrity) => "not done: its confirmation does not verify, so nothing was sent".to_owned(),
            None => "it failed, and why is not known here. Look at the receipt and at the upstream: \
                     `countersign drafts show` tells what is known"
                .to_owned(),
        },
        "running" => "confirmed and being carried out; `countersign drafts show` tells the outcome".to_owned(),
        "verifying" => "confirmed; the outcome is not known yet and is being looked up".to_owned(),
        "unverifiable" => "the outcome cannot be verified. Do not repeat the call: look at the upstream, then use \
                           `countersign drafts resolve`"
            .to_owned(),
        "pending" => {
            format!("counted; {} of {} votes", card::text(body, "/votes/have"), card::text(body, "/votes/need"))
        }
        other => super::out::visible(other),
    }
}

async fn watch(control: &Control, out: Output) -> Result<Exit, Failed> {
    let mut known: HashMap<String, String> = HashMap::new();
    let mut first = true;
    let mut away = false;
    let ended = tokio::signal::ctrl_c();
    tokio::pin!(ended);
    loop {
        match fetch(control, &Status::ALL, "", PAGE).await {
            Ok(drafts) => {
                if away {
                    out.say("the guard answers again");
                }
                away = false;
                changes(&mut known, &drafts, first)
                    .iter()
                    .for_each(|draft| if out.json { out.value(draft) } else { out.line(card::line(draft)) });
                first = false;
            }
            Err(failed) if first || failed.exit == Exit::Refused => return Err(failed),
            Err(failed) if !away => {
                away = true;
                out.say(format!("{}; trying again", failed.message));
            }
            Err(_) => {}
        }
        tokio::select! {
            _ = &mut ended => return Ok(Exit::Done),
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

/// What is new or different, oldest first. The first look tells only of open drafts.
fn changes(known: &mut HashMap<String, String>, drafts: &[Value], first: bool) -> Vec<Value> {
    let mut told = Vec::new();
    let mut now = HashMap::new();
    for draft in drafts.iter().rev() {
        let (id, status) = (card::text(draft, "/draft_id"), card::text(draft, "/status"));
        let changed = known.get(&id) != Some(&status);
        let open = OPEN.iter().any(|open| open.as_str() == status);
        if changed && (open || !first) {
            told.push(draft.clone());
        }
        now.insert(id, status);
    }
    *known = now;
    told
}

/// Percent-encodes everything but unreserved characters (RFC 3986, section 2.3).
fn in_query(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exits_say_what_is_known() {
        assert_eq!(outcome_exit("succeeded"), Exit::Done);
        assert_eq!(outcome_exit("rejected"), Exit::Done);
        assert_eq!(outcome_exit("failed"), Exit::Refused);
        for unknown in ["running", "verifying", "unverifiable"] {
            assert_eq!(outcome_exit(unknown), Exit::Unknown, "{unknown}");
        }
    }

    #[test]
    fn success_is_only_told_with_a_receipt_at_hand() {
        let body = json!({"status": "succeeded", "receipt": {"id": "rc_1", "summary": "Made."}});
        assert_eq!(told("succeeded", &body), "done; receipt rc_1: Made.");
        assert!(told("running", &Value::Null).contains("being carried out"));
        assert!(told("unverifiable", &Value::Null).contains("Do not repeat"));
    }

    #[test]
    fn a_failure_is_told_by_its_reason_and_an_unknown_one_is_not_guessed() {
        let body = |failure: &str| json!({"failure": failure, "receipt": {"id": "rc_1", "summary": "Refused."}});
        for (failure, words) in [
            ("not_sent", "nothing was sent"),
            ("release_too_late", "nothing was sent"),
            ("integrity", "nothing was sent"),
            ("refused", "the upstream refused; receipt rc_1: Refused."),
            ("resolved", "as a person found out; receipt rc_1"),
        ] {
            let told = told("failed", &body(failure));
            assert!(told.starts_with("not done") && told.contains(words), "{failure}: {told}");
        }
        for unknown in [body("struck_by_lightning"), Value::Null] {
            let told = told("failed", &unknown);
            assert!(!told.contains("not done") && told.contains("Look at the receipt and at the upstream"), "{told}");
        }
    }

    #[test]
    fn watching_tells_each_change_once() {
        let draft = |id: &str, status: &str| json!({"draft_id": id, "status": status});
        let mut known = HashMap::new();
        let drafts = [draft("b", "pending"), draft("a", "expired")];
        assert_eq!(changes(&mut known, &drafts, true), [draft("b", "pending")]);
        assert!(changes(&mut known, &drafts, false).is_empty());
        let drafts = [draft("c", "pending"), draft("b", "succeeded"), draft("a", "expired")];
        assert_eq!(changes(&mut known, &drafts, false), [draft("b", "succeeded"), draft("c", "pending")]);
    }

    #[test]
    fn queries_are_encoded() {
        assert_eq!(in_query("a b&c=ü/"), "a%20b%26c%3D%C3%BC%2F");
    }
}
