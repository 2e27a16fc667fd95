//! YAML as a tree with positions, of the small part of YAML that a reviewer can read in one way.
//!
//! Owns the tree and everything that is refused before a key is looked at: a second document,
//! duplicate keys, anchors, aliases, tags, merge keys, keys that are no plain text, nesting and
//! size beyond the bounds, characters that do not show. Must never stop at the first mistake that
//! it can read past, and never recurse: the parser is pulled event by event, so that a nest of
//! brackets costs a diagnostic and not the stack.

use std::collections::HashMap;

use yaml_rust2::parser::{Event, Parser};
use yaml_rust2::scanner::{Marker, TScalarStyle};

/// Longest file in bytes.
pub const FILE_BYTES_MAX: usize = 1 << 20;
/// Deepest nesting.
pub const DEPTH_MAX: usize = 64;
/// Most mistakes that one file reports.
pub const PROBLEMS_MAX: usize = 100;

/// A place in a file; both count from 1, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Its first character.
    pub place: Place,
    /// What it is.
    pub kind: Kind,
}

/// What a value is.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// A text, number, truth value or null.
    Scalar(Scalar),
    /// A list.
    List(Vec<Node>),
    /// A mapping, in the order of the file, without duplicate keys.
    Map(Vec<Entry>),
    /// Something that was reported already; readers pass over it in silence.
    Refused,
}

/// One key of a mapping.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Where the key stands.
    pub place: Place,
    /// The value.
    pub value: Node,
}

/// A scalar as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scalar {
    /// The text, without quotes.
    pub text: String,
    /// Whether it stood without quotes, so that it may be a number, a truth value or null.
    pub plain: bool,
}

/// What a scalar says.
#[derive(Debug, Clone, PartialEq)]
pub enum Typed<'a> {
    /// `null`, `~` or nothing.
    Null,
    /// `true` or `false`, and no other spelling.
    Bool(bool),
    /// A number in the spelling of JSON; `022` and `0x1f` are texts.
    Number(serde_json::Number),
    /// Everything else.
    Text(&'a str),
}

impl Scalar {
    /// What it says: the JSON reading of a plain scalar, text for everything else.
    #[must_use]
    pub fn typed(&self) -> Typed<'_> {
        if !self.plain {
            return Typed::Text(&self.text);
        }
        match self.text.as_str() {
            "" | "~" | "null" => Typed::Null,
            "true" => Typed::Bool(true),
            "false" => Typed::Bool(false),
            text if text.starts_with(|c: char| c == '-' || c.is_ascii_digit()) => match serde_json::from_str(text) {
                Ok(serde_json::Value::Number(number)) => Typed::Number(number),
                _ => Typed::Text(text),
            },
            text => Typed::Text(text),
        }
    }
}

/// A mistake of the text itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub place: Place,
    /// What.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

/// Reads `text` into a tree. The tree is `None` where the text has no document, or where it could
/// not be read to its end.
#[must_use]
pub fn parse(text: &str) -> (Option<Node>, Vec<Problem>) {
    if text.len() > FILE_BYTES_MAX {
        let message = format!("the file has {} bytes; a policy file has at most {FILE_BYTES_MAX}", text.len());
        let hint = Some("split it: one file for each service".to_owned());
        return (None, vec![Problem { place: Place { line: 1, column: 1 }, message, hint }]);
    }
    let mut problems = invisible(text);
    if !problems.is_empty() {
        return (None, problems);
    }
    let mut builder = Builder::default();
    let whole = builder.run(text);
    problems.append(&mut builder.problems);
    problems.truncate(PROBLEMS_MAX);
    (builder.root.filter(|_| whole), problems)
}

/// Controls and bidirectional controls in a policy file would make it read otherwise than it is.
fn invisible(text: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (index, line) in text.split('\n').enumerate() {
        for (column, found) in line.strip_suffix('\r').unwrap_or(line).chars().enumerate() {
            let legal = found == '\t' || !(found.is_control() || is_bidi_control(found));
            if !legal && problems.len() < PROBLEMS_MAX {
                problems.push(Problem {
                    place: Place { line: index + 1, column: column + 1 },
                    message: format!("the character U+{:04X} does not show", u32::from(found)),
                    hint: Some(format!("write it as an escape in double quotes: \"\\u{:04x}\"", u32::from(found))),
                });
            }
        }
    }
    problems
}

fn is_bidi_control(c: char) -> bool {
    matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[derive(Default)]
struct Builder {
    stack: Vec<Frame>,
    root: Option<Node>,
    documents: usize,
    problems: Vec<Problem>,
}

enum Frame {
    List {
        place: Place,
        items: Vec<Node>,
    },
    /// `place` is that of the first key where it comes before the event's own: the parser reports
    /// a block mapping at its first colon.
    Map {
        place: Place,
        entries: Vec<Entry>,
        seen: HashMap<String, Place>,
        key: Option<Key>,
    },
}

/// A key that waits for its value.
struct Key {
    text: String,
    place: Place,
    /// A refused key was reported; its value is read past.
    refused: bool,
}

impl Builder {
    /// Whether the text was read to its end.
    fn run(&mut self, text: &str) -> bool {
        let mut parser = Parser::new_from_str(text);
        loop {
            let (event, marker) = match parser.next_token() {
                Ok(next) => next,
                Err(error) => {
                    let place = place(*error.marker());
                    let hint = unquoted(text, place);
                    self.problem(place, format!("this is not YAML: {}", error.info()), hint);
                    return false;
                }
            };
            let place = place(marker);
            match event {
                Event::StreamEnd => return true,
                Event::DocumentStart => {
                    self.documents += 1;
                    if self.documents > 1 {
                        let hint = "put the second document into a file of its own";
                        self.problem(place, "a policy file has one document".to_owned(), Some(hint));
                        return true;
                    }
                }
                event => {
                    if !self.event(event, place) {
                        return false;
                    }
                }
            }
        }
    }

    /// Takes one event of the document; `false` ends the reading.
    fn event(&mut self, event: Event, place: Place) -> bool {
        match event {
            Event::Alias(_) => {
                self.problem(place, "aliases are not read".to_owned(), Some("write the value out where it is used"));
                self.node(Node { place, kind: Kind::Refused });
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.decorated(place, anchor, tag.is_some());
                let plain = style == TScalarStyle::Plain;
                self.node(Node { place, kind: Kind::Scalar(Scalar { text, plain }) });
            }
            Event::SequenceStart(anchor, tag) => {
                self.decorated(place, anchor, tag.is_some());
                self.stack.push(Frame::List { place, items: Vec::new() });
            }
            Event::MappingStart(anchor, tag) => {
                self.decorated(place, anchor, tag.is_some());
                self.stack.push(Frame::Map { place, entries: Vec::new(), seen: HashMap::new(), key: None });
            }
            Event::SequenceEnd | Event::MappingEnd => match self.stack.pop() {
                Some(Frame::List { place, items }) => self.node(Node { place, kind: Kind::List(items) }),
                Some(Frame::Map { place, entries, .. }) => self.node(Node { place, kind: Kind::Map(entries) }),
                None => {}
            },
            _ => {}
        }
        if self.stack.len() > DEPTH_MAX {
            self.problem(place, format!("nested deeper than {DEPTH_MAX}"), None);
            return false;
        }
        self.problems.len() < PROBLEMS_MAX
    }

    fn decorated(&mut self, place: Place, anchor: usize, tagged: bool) {
        if anchor != 0 {
            self.problem(place, "anchors are not read".to_owned(), Some("write the value out where it is used"));
        }
        if tagged {
            self.problem(place, "tags are not read".to_owned(), Some("quotes make a text; plain numbers stay numbers"));
        }
    }

    fn node(&mut self, node: Node) {
        match self.stack.last_mut() {
            None => self.root = Some(node),
            Some(Frame::List { items, .. }) => items.push(node),
            Some(Frame::Map { place: start, entries, seen, key }) => match key.take() {
                Some(key) if key.refused => {}
                Some(Key { text, place, .. }) => entries.push(Entry { key: text, place, value: node }),
                None => {
                    *start = node.place.min(*start);
                    let (read, problem) = read_key(node, seen);
                    *key = Some(read);
                    self.problems.extend(problem);
                }
            },
        }
    }

    fn problem(&mut self, place: Place, message: String, hint: Option<&str>) {
        self.problems.push(Problem { place, message, hint: hint.map(str::to_owned) });
    }
}

/// What a text without quotes often runs into: its own brackets, braces or colons.
fn unquoted(text: &str, place: Place) -> Option<&'static str> {
    let line = text.lines().nth(place.line.saturating_sub(1))?;
    let at: String = line.chars().skip(place.column.saturating_sub(1)).collect();
    if at.starts_with(['{', '[']) {
        return Some(BRACES);
    }
    at.starts_with(':').then_some("check the indentation; a text with `: ` in it stands in quotes")
}

/// What to do where braces were meant as a part of a text.
pub(super) const BRACES: &str = "a text with braces or brackets in it stands in quotes: \"/orders/{id}\"";

fn read_key(node: Node, seen: &mut HashMap<String, Place>) -> (Key, Option<Problem>) {
    let place = node.place;
    let refused = |message: &str, hint: Option<String>| {
        let key = Key { text: String::new(), place, refused: true };
        (key, Some(Problem { place, message: message.to_owned(), hint }))
    };
    let Kind::Scalar(scalar) = node.kind else {
        return refused("a key must be a plain text", Some(BRACES.to_owned()));
    };
    if scalar.plain && scalar.text == "<<" {
        return refused("merge keys are not read", Some("write the keys out".to_owned()));
    }
    if scalar.plain && scalar.text.is_empty() {
        return refused("a key is missing before this colon", None);
    }
    if let Some(first) = seen.get(&scalar.text) {
        let (message, hint) = (format!("the key `{}` stands here twice", scalar.text), first.line);
        return refused(&message, Some(format!("it stands on line {hint} already; keep one of the two")));
    }
    seen.insert(scalar.text.clone(), place);
    (Key { text: scalar.text, place, refused: false }, None)
}

fn place(marker: Marker) -> Place {
    Place { line: marker.line().max(1), column: marker.col() + 1 }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use super::*;

    fn messages(text: &str) -> Vec<String> {
        parse(text).1.iter().map(|p| format!("{}:{}: {}", p.place.line, p.place.column, p.message)).collect()
    }

    fn scalar(text: &str) -> Scalar {
        Scalar { text: text.to_owned(), plain: true }
    }

    #[test]
    fn every_mistake_of_the_text_is_reported_at_once_with_its_place() {
        let text = "a: 1\na: 2\nb: {c: 1, c: 2}\nd: &x 1\ne: *x\nf: !!str 1\n<<: 3\n? [k]\n: 1\n";
        insta::assert_debug_snapshot!(messages(text));
    }

    #[test]
    fn what_lacks_its_quotes_is_told_so() {
        let hint = |text: &str| parse(text).1.first().unwrap_or_else(|| panic!("{text}: no mistake")).hint.clone();
        for text in [
            "match: {method: POST, path: /orders/{id}/cancel}",
            "match: {path: /orders/{/**}, method: POST}",
            "a: [/orders/[id]]",
            "title: {{ args.id }}",
            "preview: {title: Cancel {{ args.id }}}",
        ] {
            assert_eq!(hint(text).as_deref(), Some(BRACES), "{text}");
        }
        assert!(hint("impact: Cancels it: now").unwrap().contains("quotes"));
        assert_eq!(hint("a: 'x"), None);
    }

    #[test]
    fn the_first_of_two_equal_keys_stays_and_nothing_merges() {
        let (root, problems) = parse("a: 1\na: 2\n");
        assert_eq!(problems.len(), 1);
        let Some(Node { kind: Kind::Map(entries), .. }) = root else { panic!("a map") };
        assert_eq!(entries.len(), 1);
    }

    #[test]
    fn places_are_those_of_the_values() {
        let (root, problems) = parse("a:\n  b: [x,  \"y\"]\n  c:\n    d: 1\n");
        assert_eq!(problems, []);
        insta::assert_debug_snapshot!(root.unwrap());
    }

    #[test]
    fn only_json_spellings_are_numbers_and_truth_values() {
        for text in ["022", "0x1f", "1_000", ".5", "5.", "+1", "yes", "no", "on", "True", "NO", ".nan", "1e999", "Null"]
        {
            assert_eq!(scalar(text).typed(), Typed::Text(text), "{text}");
        }
        assert_eq!(scalar("22").typed(), Typed::Number(22.into()));
        assert_eq!(scalar("-1").typed(), Typed::Number((-1).into()));
        assert_eq!(scalar("true").typed(), Typed::Bool(true));
        assert_eq!(scalar("~").typed(), Typed::Null);
        assert_eq!(Scalar { text: "true".into(), plain: false }.typed(), Typed::Text("true"));
    }

    #[test]
    fn deep_nests_of_every_kind_are_refused_without_using_the_stack() {
        for nest in ["[", "{a: ", "- ", "? ", "- a: ", "[{a: "] {
            let text = nest.repeat(FILE_BYTES_MAX / nest.len() - 1);
            let (root, problems) = parse(&text);
            assert!(root.is_none() && !problems.is_empty(), "{nest}");
        }
        let mut block = String::new();
        for depth in 0..200 {
            block.push_str(&" ".repeat(depth));
            block.push_str("a:\n");
        }
        assert!(messages(&block).iter().any(|m| m.contains("nested deeper")), "{:?}", messages(&block));
    }

    #[test]
    fn second_documents_big_files_and_hidden_characters_are_refused() {
        assert_eq!(messages("a: 1\n---\nb: 2\n"), ["2:1: a policy file has one document"]);
        assert_eq!(parse(&"#".repeat(FILE_BYTES_MAX + 1)).1.len(), 1);
        assert_eq!(messages("a: x\u{202e}y\n"), ["1:5: the character U+202E does not show"]);
        assert_eq!(messages("a: \u{0}\n"), ["1:4: the character U+0000 does not show"]);
        assert_eq!(parse("").0, None);
        assert_eq!(parse("# only a comment\n"), (None, vec![]));
        assert_eq!(messages("a: 1\r\nb: 2\r\n"), [""; 0]);
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[-\\[\\]{}:,?&*!|>'\"#%@` a1\n\t~<]{0,80}") {
            let _ = parse(&text);
        }
    }
}
