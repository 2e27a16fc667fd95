//! The scripts of `lua/`: read from their heads, composed with the tables of this crate, named by
//! their SHA-1.
//!
//! Owns the head's format and the order of arguments. Must never hold a rule of its own: the
//! transition table, the fields and the words that a script needs are written out of the Rust
//! tables here, so there is one of each.

use std::fmt::Write as _;
use std::sync::LazyLock;

use crate::draft::outcome::Failure;
use crate::draft::proof::EXPIRED;
use crate::draft::state::{Move, Phase, State, Verdict, next};
use crate::store::clock::TRUST;
use crate::store::contract::{HOLD_AHEAD_MAX, HOLD_BEHIND_MAX};
use crate::store::steps::EVENTS_KEPT;

use super::fields::{FIXED, NAMES};

/// Stands in front of every step.
const BEGIN: &str = include_str!("../../../lua/lib/begin.lua");

/// Stands in front of every step, too, but behind the parts that its head names first: a step that they end
/// does not pay for it.
const ROW: &str = include_str!("../../../lua/lib/row.lua");

/// Parts that several steps use, by the name in their heads.
const LIBRARY: [(&str, &str); 5] = [
    ("looks", include_str!("../../../lua/lib/looks.lua")),
    ("made", include_str!("../../../lua/lib/made.lua")),
    ("fresh", include_str!("../../../lua/lib/fresh.lua")),
    ("holding", include_str!("../../../lua/lib/holding.lua")),
    ("ending", include_str!("../../../lua/lib/ending.lua")),
];

/// One atomic step.
#[derive(Debug)]
pub(in crate::store) struct Script {
    /// The step, as in its head and its file's name.
    pub(in crate::store) name: &'static str,
    /// The names of its keys, in order: `meta`, `ix` and `ev` of the partition, and by arguments `draft` (`id`),
    /// `old`, `owner` and `token`.
    pub(in crate::store) keys: Vec<&'static str>,
    /// The names of its arguments, in order.
    pub(in crate::store) args: Vec<&'static str>,
    /// Every word that it may answer.
    pub(in crate::store) replies: Vec<&'static str>,
    /// Whether it changes nothing.
    pub(in crate::store) reads: bool,
    /// The whole script as the server gets it.
    pub(in crate::store) text: String,
    /// The server's name for it.
    pub(in crate::store) sha: String,
}

impl Script {
    fn compose(source: &'static str) -> Self {
        let head = |wanted: &str| {
            let lines = source.lines().take_while(|line| line.starts_with("-- "));
            let value = lines.filter_map(|line| line[3..].split_once(": ")).find(|(name, _)| *name == wanted);
            value.map(|(_, value)| value).unwrap_or_default()
        };
        let flags = head("flags");
        let args: Vec<&'static str> = head("args").split_whitespace().collect();
        let mut text = match flags {
            "" => "#!lua\n".to_owned(),
            flags => format!("#!lua flags={flags}\n"),
        };
        text.push_str("local clock = ARGV[1]\n");
        text.push_str(&TABLES.first);
        let _ = writeln!(text, "local READS = {}", flags == "no-writes");
        let parts = |wanted: &str| {
            let part = |used| LIBRARY.iter().find(|(name, _)| *name == used).map(|(_, part)| *part);
            head(wanted).split_whitespace().filter_map(part).collect::<String>()
        };
        text.push_str(BEGIN);
        // Behind the functions of `begin`: what a function uses is looked for from the latest name backwards, and the
        // first thing a step does with its arguments is not in a function.
        if let Some(others) = args.get(1..).filter(|others| !others.is_empty()) {
            let _ = writeln!(text, "local {} = unpack(ARGV, 2)", others.join(", "));
        }
        text.push_str(&parts("first"));
        // A block of its own, which a step that has what it needs does not enter.
        text.push_str(if head("first").contains("fresh") { "if not is_fresh then\n" } else { "do\n" });
        for part in [&TABLES.others, ROW, &parts("uses"), source] {
            text.push_str(part);
        }
        text.push_str("end\n");
        text.push_str(&parts("last"));
        let sha = redis::Script::new(&text).get_hash().to_owned();
        let words = |wanted: &str| head(wanted).split_whitespace().collect();
        let (keys, replies) = (words("keys"), words("replies"));
        Self { name: head("step"), keys, args, replies, reads: flags == "no-writes", text, sha }
    }
}

macro_rules! scripts {
    ($($name:ident),* $(,)?) => {
        /// Every step.
        #[derive(Debug)]
        pub(in crate::store) struct Scripts {
            $(pub(in crate::store) $name: Script,)*
        }

        impl Scripts {
            fn compose() -> Self {
                Self { $($name: Script::compose(include_str!(concat!("../../../lua/", stringify!($name), ".lua"))),)* }
            }

            /// All of them, with the names of their files.
            #[cfg(test)]
            pub(in crate::store) fn all(&self) -> Vec<(&'static str, &Script)> {
                vec![$((stringify!($name), &self.$name),)*]
            }
        }
    };
}

scripts! {
    hold, again, decide, reject, withdraw, expire, renew, mark_sending, take_over, settle, late_answer, resolve,
    collect, note_seen, delete, due, list, rights,
}

/// Every step, composed once.
pub(in crate::store) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(Scripts::compose);

static TABLES: LazyLock<Tables> = LazyLock::new(tables);

/// Tables and numbers that steps need, as Lua: those of `begin`, and those that only the rest needs.
struct Tables {
    first: String,
    others: String,
}

/// A function that gives a table, made once in a step, when it is asked for.
fn table(name: &str, pairs: impl IntoIterator<Item = (String, String)>) -> String {
    let pairs: Vec<String> = pairs.into_iter().map(|(key, value)| format!("['{key}'] = {value}")).collect();
    let made = format!("{name}_made = {name}_made or {{ {} }} return {name}_made", pairs.join(", "));
    format!("local {name}_made\nlocal function {name}()\n{made} end\n")
}

fn tables() -> Tables {
    let quoted = |word: &str| format!("'{word}'");
    let status = |state: State| (state_word(state).to_owned(), quoted(state.status().as_str()));
    let mut first = table("STATUS", State::ALL.into_iter().map(status));
    let _ = writeln!(first, "local TRUST_MS, EVENTS_KEPT_MS = {}, {}", TRUST.as_millis(), EVENTS_KEPT.as_millis());
    let (ahead, behind) = (HOLD_AHEAD_MAX.as_millis(), HOLD_BEHIND_MAX.as_millis());
    let _ = writeln!(first, "local HOLD_AHEAD_MS, HOLD_BEHIND_MS = {ahead}, {behind}");

    let mut moves = Vec::new();
    for state in State::ALL {
        let from = state_word(state);
        let of =
            |step: Move| next(state, step).map(|to| (format!("{from} {}", move_word(step)), quoted(state_word(to))));
        moves.extend(Move::ALL.into_iter().filter_map(of));
    }
    let mut others = table("NEXT", moves);
    let not_sent = Failure::ALL.into_iter().filter(|failure| failure.not_sent());
    others += &table("NOT_SENT", not_sent.map(|failure| (failure.as_str().to_owned(), "true".to_owned())));
    let list = |names: &[&str]| names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
    let _ = writeln!(others, "local function NAMES() return {{ {} }} end", list(&NAMES));
    let _ = writeln!(others, "local function FIXED() return {{ {} }} end", list(&FIXED));
    let _ = writeln!(others, "local EXPIRED = '{EXPIRED}'");
    Tables { first, others }
}

/// A stored state in one word.
pub(super) const fn state_word(state: State) -> &'static str {
    match state {
        State::Running(Phase::Claimed) => "running/claimed",
        State::Running(Phase::Sending) => "running/sending",
        other => other.status().as_str(),
    }
}

/// A verdict in one word.
pub(super) const fn verdict_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Succeeded => "succeeded",
        Verdict::Failed => "failed",
        Verdict::Unverifiable => "unverifiable",
    }
}

fn move_word(step: Move) -> String {
    let word = match step {
        Move::Claim => "claim",
        Move::Reject => "reject",
        Move::Withdraw => "withdraw",
        Move::Expire => "expire",
        Move::MarkSending => "mark_sending",
        Move::TakeOver => "take_over",
        Move::Settle(verdict) => return format!("settle:{}", verdict_word(verdict)),
        Move::LateAnswer(verdict) => return format!("late_answer:{}", verdict_word(verdict)),
        Move::Resolve(verdict) => return format!("resolve:{}", verdict_word(verdict)),
    };
    word.to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use std::collections::BTreeSet;
    use std::iter::once;
    use std::path::Path;

    use super::*;

    /// A script's own text, and the parts that it uses.
    fn source(name: &str) -> String {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("lua");
        std::fs::read_to_string(folder.join(format!("{name}.lua"))).unwrap()
    }

    fn words(text: &str) -> impl Iterator<Item = &str> {
        text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
    }

    /// The parts that a script's head names.
    fn parts_of(name: &str) -> Vec<String> {
        let own = source(name);
        let named =
            |kind: &str| own.lines().find_map(|line| line.strip_prefix(kind).map(str::to_owned)).unwrap_or_default();
        let all = ["-- first: ", "-- uses: ", "-- last: "].map(named).join(" ");
        let known = |part: &&str| assert!(LIBRARY.iter().any(|(known, _)| known == part), "{name} names {part}");
        all.split_whitespace().inspect(known).map(|part| source(&format!("lib/{part}"))).collect()
    }

    #[test]
    fn every_file_is_one_step_and_its_head_names_it() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("lua");
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let names: BTreeSet<String> = files
            .filter(|path| path.extension().is_some_and(|ending| ending == "lua"))
            .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        let known = SCRIPTS.all();
        assert_eq!(names, known.iter().map(|(name, _)| (*name).to_owned()).collect());
        for (name, script) in known {
            assert_eq!(name, script.name);
            assert_eq!(script.args.first(), Some(&"clock"), "{name}");
            assert!(!script.replies.is_empty(), "{name}");
            let texts: String = once(source(name)).chain(parts_of(name)).collect();
            let used: BTreeSet<&str> = texts.lines().filter(|line| !line.starts_with("--")).flat_map(words).collect();
            for arg in &script.args {
                assert!(*arg == "clock" || used.contains(arg), "{name} does not use its argument {arg}");
            }
            assert!(script.keys.starts_with(&["meta", "ix"]), "{name}");
            // What it writes for certain, it names: see lua/lib/begin.lua.
            let of_a_draft = script.args.contains(&"id");
            assert!(!of_a_draft || script.keys.starts_with(&["meta", "ix", "ev", "draft"]), "{name}");
        }
    }

    /// A user who may not run one of them would leave half a step behind: every command is asked for first.
    #[test]
    fn every_command_of_every_step_is_among_the_rights() {
        let rights = source("rights");
        let parts = ["begin", "row"].into_iter().chain(LIBRARY.map(|(part, _)| part)).map(|part| format!("lib/{part}"));
        for name in SCRIPTS.all().into_iter().map(|(name, _)| name.to_owned()).chain(parts) {
            let text = source(&name);
            for call in ["redis.call('", "redis.pcall('"] {
                for (place, _) in text.match_indices(call) {
                    let command = text[place + call.len()..].split('\'').next().unwrap();
                    assert!(rights.contains(&format!("{{ '{command}'")), "{command} of {name} is not asked for");
                }
            }
        }
        // And what is asked without a script: a guard that could not would be ready and answer nothing.
        let plain = [include_str!("drafts.rs"), include_str!("queries.rs")].concat();
        for (place, call) in plain.match_indices("ask.cmd(\"") {
            let command = plain[place + call.len()..].split('"').next().unwrap();
            assert!(rights.contains(&format!("{{ '{command}'")), "{command} is not asked for");
        }
    }

    /// What a script answers is what its head says, and what this crate reads.
    #[test]
    fn every_word_of_an_answer_is_in_the_head_and_is_read() {
        let read = concat!(include_str!("steps.rs"), include_str!("queries.rs"));
        for (name, script) in SCRIPTS.all() {
            let (mut said, mut texts) = (BTreeSet::new(), String::new());
            let own = source(name);
            let parts = parts_of(name);
            let is_alone = parts.is_empty();
            for text in once(own).chain(parts) {
                texts.push_str(&text);
                for call in ["plain(", "reply(", "return { "] {
                    for (place, _) in text.match_indices(call) {
                        let line = text[place + call.len()..].lines().next().unwrap_or_default();
                        let words = line.split('\'').skip(1).step_by(2).map(str::to_owned);
                        said.extend(words.filter(|word| word.chars().all(|c| c.is_ascii_lowercase() || c == '_')));
                    }
                }
            }
            let head: BTreeSet<String> = script.replies.iter().map(|word| (*word).to_owned()).collect();
            for word in &head {
                assert!(texts.contains(&format!("'{word}'")), "{name} never says {word}");
                let quoted = format!("\"{word}\"");
                assert!(!script.args.contains(&"id") || read.contains(&quoted), "{word} of {name} is not read");
            }
            if is_alone && script.args.contains(&"id") {
                let unknown: Vec<_> =
                    said.difference(&head).filter(|word| !NOT_ANSWERS.contains(&word.as_str())).collect();
                assert!(unknown.is_empty(), "{name} says {unknown:?}, and its head does not");
            }
        }
    }

    /// Words that stand on a line with an answer and are a part of the condition for it.
    const NOT_ANSWERS: [&str; 3] = ["running", "verifying", "superseded"];

    #[test]
    fn the_tables_are_those_of_the_crate() {
        let tables = tables().others;
        assert!(tables.contains("['pending claim'] = 'running/claimed'"), "{tables}");
        assert!(tables.contains("['running/sending take_over'] = 'verifying'"), "{tables}");
        assert!(!tables.contains("['succeeded "), "nothing leads out of an end: {tables}");
        assert!(tables.contains("['not_sent'] = true") && !tables.contains("['refused']"), "{tables}");
    }
}
