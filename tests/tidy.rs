//! Keeps the house in order: reads the sources and fails on an import that points up, on a file
//! that outgrew its room, on words that never go in, and on a table that the docs do not have.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "tidy/docs.rs"]
mod docs;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The floors of `src/lib.rs`, read again here so that the two tables are held against each other.
const FLOORS: [(&str, u8); 13] = [
    ("base", 0),
    ("call", 1),
    ("policy", 1),
    ("draft", 1),
    ("store", 2),
    ("upstream", 2),
    ("guard", 3),
    ("agent", 4),
    ("control", 4),
    ("ops", 4),
    ("cli", 5),
    ("server", 5),
    ("main", 6),
];

/// Longest file, in lines, without a stated reason.
const LINES_MAX: usize = 600;

/// Words that never go into the project. Written in halves, so that this file has none of them.
const NEVER: [(&str, &str); 5] = [("TO", "DO"), ("FIX", "ME"), ("todo", "!"), ("unimple", "mented!"), ("XX", "X:")];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All files below `folder` with this ending, in order.
fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for path in entries.map(|entry| entry.expect("an entry").path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|own| own == ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// The room of a source file: the first part of its path below `src`, without `.rs`.
fn room(path: &Path) -> String {
    let inside = path.strip_prefix(root().join("src")).expect("a file of src");
    let first = inside.components().next().expect("a name").as_os_str().to_string_lossy().into_owned();
    first.trim_end_matches(".rs").to_owned()
}

fn floor(room: &str) -> Option<u8> {
    FLOORS.iter().find(|(name, _)| *name == room).map(|(_, floor)| *floor)
}

/// The source without comments and string contents, line by line; only code is left. Enough of a
/// reader for this project's own style: raw strings, escapes, nested block comments, chars.
fn code_lines(text: &str) -> Vec<String> {
    #[derive(Clone, Copy, PartialEq)]
    enum In {
        Code,
        Line,
        Block(usize),
        Text,
        Raw(usize),
    }
    let chars: Vec<char> = text.chars().collect();
    let mut lines = vec![String::new()];
    let mut state = In::Code;
    let mut at = 0;
    while at < chars.len() {
        let (c, next) = (chars[at], chars.get(at + 1).copied().unwrap_or('\0'));
        let mut taken = 1;
        match state {
            In::Code if c == '/' && next == '/' => state = In::Line,
            In::Code if c == '/' && next == '*' => {
                state = In::Block(1);
                taken = 2;
            }
            In::Code if c == '"' => state = In::Text,
            In::Code if c == 'r' && raw_hashes(&chars, at).is_some() && !ends_in_name(&lines) => {
                let hashes = raw_hashes(&chars, at).unwrap_or(0);
                state = In::Raw(hashes);
                taken = hashes + 2;
            }
            In::Code if c == '\'' && is_char_literal(&chars, at) => {
                taken = if next == '\\' { 3 } else { 2 };
                while chars.get(at + taken).is_some_and(|end| *end != '\'') {
                    taken += 1;
                }
                taken += 1;
            }
            In::Code if c != '\n' => lines.last_mut().unwrap().push(c),
            In::Line if c == '\n' => state = In::Code,
            In::Block(depth) if c == '*' && next == '/' => {
                state = if depth == 1 { In::Code } else { In::Block(depth - 1) };
                taken = 2;
            }
            In::Block(depth) if c == '/' && next == '*' => {
                state = In::Block(depth + 1);
                taken = 2;
            }
            In::Text if c == '\\' => taken = 2,
            In::Text if c == '"' => state = In::Code,
            In::Raw(hashes) if c == '"' && (1..=hashes).all(|n| chars.get(at + n) == Some(&'#')) => {
                state = In::Code;
                taken = hashes + 1;
            }
            _ => {}
        }
        let passed = &chars[at..(at + taken).min(chars.len())];
        lines.extend(passed.iter().filter(|passed| **passed == '\n').map(|_| String::new()));
        at += taken;
    }
    lines
}

fn ends_in_name(lines: &[String]) -> bool {
    lines.last().is_some_and(|line| line.ends_with(|c: char| c.is_alphanumeric() || c == '_'))
}

fn raw_hashes(chars: &[char], at: usize) -> Option<usize> {
    let hashes = chars[at + 1..].iter().take_while(|c| **c == '#').count();
    (chars.get(at + 1 + hashes) == Some(&'"')).then_some(hashes)
}

fn is_char_literal(chars: &[char], at: usize) -> bool {
    chars.get(at + 1) == Some(&'\\') || chars.get(at + 2) == Some(&'\'')
}

/// Line numbers (from 1) that belong to `#[cfg(test)]` items: from the attribute to the brace or
/// semicolon that ends the item.
fn test_lines(lines: &[String]) -> Vec<bool> {
    let mut inside = vec![false; lines.len()];
    let mut number = 0;
    while number < lines.len() {
        let line = lines[number].trim();
        if !(line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test")) {
            number += 1;
            continue;
        }
        let mut depth = 0_i32;
        let mut opened = false;
        loop {
            inside[number] = true;
            for c in lines[number].chars() {
                match c {
                    '{' => {
                        depth += 1;
                        opened = true;
                    }
                    '}' => depth -= 1,
                    _ => {}
                }
            }
            let ended = if opened { depth == 0 } else { lines[number].trim_end().ends_with(';') };
            number += 1;
            if ended || number >= lines.len() {
                break;
            }
        }
    }
    inside
}

/// A file that holds tests only: `tests.rs` beside its code, or declared under `#[cfg(test)]`.
fn is_test_file(path: &Path) -> bool {
    let inside = path.strip_prefix(root()).unwrap_or(path);
    let mut parts = inside.components().map(|part| part.as_os_str().to_string_lossy().into_owned());
    parts.any(|part| part == "tests" || part == "tests.rs" || part.ends_with("_tests.rs")) || declared_for_tests(path)
}

/// Whether the module that declares this file does so under `#[cfg(test)]`.
fn declared_for_tests(path: &Path) -> bool {
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let (folder, name) = match name.as_str() {
        "mod" => {
            let folder = path.parent().expect("a folder");
            (folder.parent().expect("a folder"), folder.file_name().unwrap_or_default().to_string_lossy().into_owned())
        }
        _ => (path.parent().expect("a folder"), name),
    };
    let own = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let parents = [folder.join("mod.rs"), folder.join("lib.rs"), folder.with_file_name(format!("{own}.rs"))];
    parents.iter().filter(|parent| parent.exists() && *parent != path).any(|parent| {
        let lines = code_lines(&read(parent));
        let tests = test_lines(&lines);
        let ending = format!("mod {name};");
        lines.iter().zip(tests).any(|(line, test)| test && line.trim().ends_with(&ending))
    })
}

/// The rooms that the code of a file names: every `crate::room`, also inside `crate::{a, b::c}`.
fn rooms_named(lines: &[String]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let text = lines.join("\n");
    for (at, _) in text.match_indices("crate::") {
        let before = text[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let line = text[..at].matches('\n').count() + 1;
        let rest = &text[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            None => found.extend(first_name(rest).map(|name| (line, name))),
            Some(group) => {
                found.extend(
                    top_level_of(group).into_iter().filter_map(|part| first_name(&part)).map(|name| (line, name)),
                );
            }
        }
    }
    found
}

/// The parts of a `{…}` group at its own level.
fn top_level_of(group: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut depth = 0;
    for c in group.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut().unwrap().push(c);
    }
    parts
}

fn first_name(text: &str) -> Option<String> {
    let name: String = text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    (!name.is_empty() && name.starts_with(|c: char| c.is_ascii_lowercase())).then_some(name)
}

#[track_caller]
fn none(mistakes: Vec<String>) {
    assert!(mistakes.is_empty(), "\n{}", mistakes.join("\n"));
}

#[test]
fn every_room_has_a_floor_and_the_map_says_the_same() {
    let mut mistakes = Vec::new();
    for path in files("src", "rs") {
        let room = room(&path);
        if room != "lib" && floor(&room).is_none() {
            mistakes.push(format!("{}: the room `{room}` has no floor", shown(&path)));
        }
    }
    let map = read(&root().join("src/lib.rs"));
    for (room, floor) in FLOORS.into_iter().filter(|(room, _)| *room != "main") {
        let line = map.lines().find(|line| line.starts_with(&format!("//! | {floor} |"))).unwrap_or_default();
        if !line.contains(&format!("[`{room}`]")) {
            mistakes.push(format!("src/lib.rs: the map does not put `{room}` on floor {floor}"));
        }
    }
    none(mistakes);
}

#[test]
fn imports_point_down() {
    let mut mistakes = Vec::new();
    for path in files("src", "rs") {
        let own = room(&path);
        if own == "lib" {
            continue;
        }
        let own_floor = floor(&own).unwrap_or(u8::MAX);
        let lines = code_lines(&read(&path));
        let tests = test_lines(&lines);
        for (line, named) in rooms_named(&lines) {
            let up = floor(&named).is_some_and(|named| named > own_floor);
            if up && !tests[line - 1] && !is_test_file(&path) {
                mistakes.push(format!("{}:{line}: `{own}` uses `{named}`, which is above it", shown(&path)));
            }
        }
    }
    none(mistakes);
}

#[test]
fn files_fit_their_rooms() {
    let mut mistakes = Vec::new();
    for path in ["src", "tests", "benches"].iter().flat_map(|folder| files(folder, "rs")) {
        let text = read(&path);
        let count = text.lines().count();
        let reason = text.lines().take(30).any(|line| line.starts_with("//! size: ") && line.len() > 20);
        if count > LINES_MAX && !reason {
            mistakes.push(format!("{}: {count} lines; split it, or say why not in a `//! size:` line", shown(&path)));
        }
    }
    none(mistakes);
}

#[test]
fn every_module_says_what_it_is_for() {
    let mut mistakes = Vec::new();
    let code = files("src", "rs").into_iter().filter(|path| !is_test_file(path));
    for path in code.chain(files("tests", "rs")) {
        if !read(&path).starts_with("//!") {
            mistakes.push(format!("{}: does not open with `//!`", shown(&path)));
        }
    }
    none(mistakes);
}

/// The attribute that lets code panic.
fn allows_panics(line: &str, attribute: &str) -> bool {
    let lints = ["unwrap_used", "expect_used", "clippy::panic", "clippy::unreachable"];
    line.contains(attribute) && lints.iter().any(|lint| line.contains(lint))
}

/// Whether a whole file, or the module that it belongs to, is allowed to panic.
fn may_panic(path: &Path) -> bool {
    let folder = path.parent().expect("a folder");
    [path.to_path_buf(), folder.join("mod.rs"), folder.with_extension("rs")]
        .iter()
        .filter(|file| file.exists())
        .any(|file| code_lines(&read(file)).iter().any(|line| allows_panics(line, "#![allow(")))
}

#[test]
fn panics_are_allowed_by_name_or_not_at_all() {
    let mut mistakes = Vec::new();
    for path in files("src", "rs").into_iter().filter(|path| !is_test_file(path) && !may_panic(path)) {
        let lines = code_lines(&read(&path));
        let tests = test_lines(&lines);
        for (number, line) in lines.iter().enumerate() {
            let panics = [".unwrap()", ".expect(", "panic!(", "unreachable!("].iter().any(|word| line.contains(word));
            // `#[allow(clippy::expect_used)]` stands on the function, at most this far above.
            let from = number.saturating_sub(60);
            let allowed = lines[from..=number].iter().any(|line| allows_panics(line, "#[allow("));
            if panics && !tests[number] && !allowed {
                mistakes.push(format!("{}:{}: {}", shown(&path), number + 1, line.trim()));
            }
        }
    }
    none(mistakes);
}

#[test]
fn nothing_is_left_for_later() {
    let mut mistakes = Vec::new();
    let sources = ["src", "tests", "benches", "examples"].iter().flat_map(|folder| files(folder, "rs"));
    let others = [("policies", "yaml"), ("docs", "md")].iter().flat_map(|(folder, ending)| files(folder, ending));
    for path in sources.chain(others) {
        for (number, line) in read(&path).lines().enumerate() {
            if NEVER.iter().any(|(one, two)| has_word(line, &format!("{one}{two}"))) {
                mistakes.push(format!("{}:{}: {}", shown(&path), number + 1, line.trim()));
            }
        }
    }
    none(mistakes);
}

/// Whether the word stands there by itself; `TO` + `DO_TITLE_REQUIRED` is another word.
fn has_word(line: &str, word: &str) -> bool {
    let part_of_name = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back().is_some_and(part_of_name);
        let after = line[at + word.len()..].chars().next().is_some_and(part_of_name);
        !before && !after
    })
}

#[test]
fn every_problem_code_is_documented() {
    let page = read(&root().join("docs/http-api.md"));
    let missing = countersign::base::code::Code::ALL.iter().filter(|code| !page.contains(&format!("`{code}`")));
    none(missing.map(|code| format!("docs/http-api.md: nothing about `{code}`")).collect());
}

/// Every `countersign_…` name in string literals of the code, without its tests.
fn metric_names() -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    for path in files("src", "rs").into_iter().filter(|path| !is_test_file(path)) {
        let text = read(&path);
        let tests = test_lines(&code_lines(&text));
        for (line, _) in text.lines().zip(tests).filter(|(_, test)| !test) {
            for part in line.split("\"countersign_").skip(1) {
                let name = |c: &char| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '_';
                let rest: String = part.chars().take_while(name).collect();
                if part[rest.len()..].starts_with('"') {
                    names.insert(format!("countersign_{rest}"), shown(&path));
                }
            }
        }
    }
    names
}

#[test]
fn every_metric_is_documented() {
    let page = read(&root().join("docs/operators.md"));
    let names = metric_names();
    assert!(names.len() >= 15, "the metrics' names are string literals of the code: {names:?}");
    let missing = names.iter().filter(|(name, _)| !page.contains(&format!("`{name}")));
    none(missing.map(|(name, path)| format!("docs/operators.md: nothing about `{name}` of {path}")).collect());
}

#[test]
fn the_tidy_reader_reads_what_it_should() {
    let source = "use crate::{base::id, store::{a, b}, Guard};\nlet x = \"crate::cli\"; // crate::ops\n/* crate::agent */ let c = '\"'; let y = r#\"crate::\"control\"#;\n#[cfg(test)]\nmod tests {\n    use crate::server;\n}\nfn f() { crate::upstream::send() }\n";
    let lines = code_lines(source);
    assert_eq!(lines.len(), 9);
    let named: Vec<(usize, String)> = rooms_named(&lines);
    let expected = [(1, "base"), (1, "store"), (6, "server"), (8, "upstream")];
    assert_eq!(named, expected.map(|(line, name)| (line, name.to_owned())));
    let tests = test_lines(&lines);
    let numbers: Vec<usize> = (0..tests.len()).filter(|number| tests[*number]).map(|number| number + 1).collect();
    assert_eq!(numbers, [4, 5, 6, 7]);
}
