//! Path templates: which paths a policy names.
//!
//! Owns the match of a template against a normal path, and how two templates stand to each other.
//! Must never match a path that is not in the normal form.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use super::path::{self, NormalPath};

/// A path template: `/todos/{id}` (`{id}` stands for one segment), `/account{/**}` (`{/**}` stands
/// for any rest, also none). Literals are compared decoded and case-sensitively.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathTemplate {
    text: String,
    parts: Vec<Part>,
    rest: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Literal(String),
    Param(String),
}

/// Why a text is not a path template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the path template {why}")]
pub struct BadTemplate {
    /// Offset in bytes of the segment that is wrong.
    pub offset: usize,
    /// What is wrong, continuing "the path template".
    pub why: String,
}

/// How the paths of one template stand to those of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// No path matches both.
    Disjoint,
    /// Every path that matches one matches the other.
    Same,
    /// Strictly fewer paths than the other, all of them among the other's.
    Narrower,
    /// Strictly more paths than the other, all of the other's among them.
    Wider,
    /// Some paths match both, and each matches some that the other does not.
    Crossing,
}

const REST: &str = "{/**}";

impl FromStr for PathTemplate {
    type Err = BadTemplate;

    fn from_str(text: &str) -> Result<Self, BadTemplate> {
        Self::parse(text)
    }
}

impl fmt::Display for PathTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl PathTemplate {
    /// Reads a template. Letters beyond ASCII may stand raw.
    ///
    /// # Errors
    ///
    /// [`BadTemplate`] with offset and reason.
    pub fn parse(text: &str) -> Result<Self, BadTemplate> {
        let bad = |offset: usize, why: &str| BadTemplate { offset, why: why.to_owned() };
        let (fixed, rest) = match text.strip_suffix(REST) {
            Some(fixed) => (fixed, true),
            None => (text, false),
        };
        let mut parts = Vec::new();
        let segments = match fixed.strip_prefix('/') {
            Some("") if rest => {
                return Err(bad(0, "has `/` before `{/**}`, which already brings its own; write `{/**}`"));
            }
            Some("") => "",
            Some(segments) => segments,
            None if fixed.is_empty() && rest => "",
            None => return Err(bad(0, "must begin with `/`")),
        };
        let mut names = BTreeSet::new();
        let mut offset = 1;
        for segment in segments.split('/').take(if segments.is_empty() { 0 } else { usize::MAX }) {
            let part = Part::parse(segment).map_err(|why| bad(offset, why))?;
            if let Part::Param(name) = &part
                && !names.insert(name.clone())
            {
                return Err(bad(offset, &format!("names the parameter `{name}` twice")));
            }
            parts.push(part);
            offset += segment.len() + 1;
        }
        Ok(Self { text: text.to_owned(), parts, rest })
    }

    /// The template as it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The names of its parameters, in order.
    pub fn params(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Param(name) => Some(name.as_str()),
            Part::Literal(_) => None,
        })
    }

    /// The parameters with their values, percent-decoded once, in order; `None` if `path` does not
    /// match.
    #[must_use]
    pub fn matches(&self, path: &NormalPath) -> Option<Vec<(String, String)>> {
        let mut segments = path.segments()?;
        let mut params = Vec::new();
        for part in &self.parts {
            let segment = segments.next()?;
            match part {
                Part::Literal(wanted) if *wanted != segment => return None,
                Part::Literal(_) => {}
                Part::Param(name) => params.push((name.clone(), segment.into_owned())),
            }
        }
        if self.rest || segments.next().is_none() { Some(params) } else { None }
    }

    /// The path with these values in place of its parameters, which each get a segment; `value` gives
    /// the segment of a parameter, percent-encoded. Literals stand as they are written here. `None` if a
    /// value is missing, or if the template leaves open what else stands there (`{/**}`).
    pub fn fill<'v>(&self, value: impl Fn(&str) -> Option<&'v str>) -> Option<String> {
        if self.rest {
            return None;
        }
        let mut path = String::new();
        for segment in self.text.split('/').skip(1).filter(|segment| !segment.is_empty()) {
            path.push('/');
            match segment.strip_prefix('{').and_then(|segment| segment.strip_suffix('}')) {
                Some(name) => path.push_str(value(name)?),
                None => path.push_str(&ascii(segment)),
            }
        }
        Some(if path.is_empty() { "/".to_owned() } else { path })
    }

    /// Whether it stands for any rest behind its segments.
    #[must_use]
    pub const fn has_rest(&self) -> bool {
        self.rest
    }

    /// How the paths of this template stand to those of `other`. Exact: names of parameters do not
    /// matter.
    #[must_use]
    pub fn relation(&self, other: &Self) -> Relation {
        match (self.is_within(other), other.is_within(self)) {
            (true, true) => Relation::Same,
            (true, false) => Relation::Narrower,
            (false, true) => Relation::Wider,
            (false, false) if self.meets(other) => Relation::Crossing,
            (false, false) => Relation::Disjoint,
        }
    }

    fn is_within(&self, other: &Self) -> bool {
        let lengths = match (self.rest, other.rest) {
            (false, false) => self.parts.len() == other.parts.len(),
            (_, true) => self.parts.len() >= other.parts.len(),
            (true, false) => false,
        };
        lengths
            && self.parts.iter().zip(&other.parts).all(|(own, others)| match others {
                Part::Param(_) => true,
                Part::Literal(_) => own == others,
            })
    }

    fn meets(&self, other: &Self) -> bool {
        let lengths = match (self.rest, other.rest) {
            (false, false) => self.parts.len() == other.parts.len(),
            (true, false) => self.parts.len() <= other.parts.len(),
            (false, true) => self.parts.len() >= other.parts.len(),
            (true, true) => true,
        };
        lengths
            && self.parts.iter().zip(&other.parts).all(|(own, others)| match (own, others) {
                (Part::Literal(own), Part::Literal(others)) => own == others,
                _ => true,
            })
    }

    /// Orders templates so that of two related ones the narrower is greater: segment by segment a
    /// literal stands above a parameter, that above the end, that above any rest.
    #[must_use]
    pub fn cmp_specificity(&self, other: &Self) -> Ordering {
        self.ranks().cmp(other.ranks())
    }

    fn ranks(&self) -> impl Iterator<Item = u8> {
        let parts = self.parts.iter().map(|part| match part {
            Part::Literal(_) => 3,
            Part::Param(_) => 2,
        });
        parts.chain([u8::from(!self.rest)])
    }
}

impl Part {
    fn parse(segment: &str) -> Result<Self, &'static str> {
        if let Some(inner) = segment.strip_prefix('{').and_then(|segment| segment.strip_suffix('}')) {
            let mut bytes = inner.bytes();
            let first = bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
            return if first && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
                Ok(Self::Param(inner.to_owned()))
            } else if inner == "/**" || inner == "**" {
                Err("has a rest that is not at its end; `{/**}` may only stand last")
            } else {
                Err("has a parameter whose name is not letters, digits and `_`")
            };
        }
        match segment {
            "" => return Err("has an empty segment; a request with one is refused, so it would never match"),
            "." | ".." => return Err("has a dot segment; a request with one is refused, so it would never match"),
            _ => {}
        }
        if segment.contains(['{', '}']) {
            return Err("has braces inside a segment; a parameter is a whole segment, `/x/{id}`");
        }
        if segment.contains('*') {
            return Err("has a `*`; write `{name}` for one segment, or `{/**}` at the end for any rest");
        }
        if segment.contains('?') {
            return Err("has a `?`; query parameters are matched by `query`");
        }
        let ascii: String = segment.chars().filter(char::is_ascii).collect();
        if segment.chars().any(char::is_control) || path::segment_flaw(ascii_checked(segment, &ascii)).is_some() {
            return Err("has a segment that no request can have; see the rules for paths");
        }
        Ok(Self::Literal(path::decoded(segment).into_owned()))
    }
}

/// A literal as a request has it: letters beyond ASCII, which may stand raw here, percent-encoded.
fn ascii(literal: &str) -> String {
    let mut out = String::with_capacity(literal.len());
    for byte in literal.bytes() {
        match byte.is_ascii() {
            true => out.push(char::from(byte)),
            false => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// The segment for the check of the path rules: as it is when it is ASCII, else its ASCII part,
/// because letters beyond ASCII may stand raw in a template.
fn ascii_checked<'a>(segment: &'a str, ascii: &'a str) -> &'a str {
    if segment.is_ascii() { segment } else { ascii }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn template(text: &str) -> PathTemplate {
        text.parse().unwrap()
    }

    fn params(text: &str, path: &str) -> Option<Vec<(String, String)>> {
        template(text).matches(&NormalPath::parse(path).unwrap())
    }

    fn one(name: &str, value: &str) -> Option<Vec<(String, String)>> {
        Some(vec![(name.to_owned(), value.to_owned())])
    }

    #[test]
    fn templates_match_whole_segments_and_decode_once() {
        assert_eq!(params("/todos/{id}", "/todos/7"), one("id", "7"));
        assert_eq!(params("/todos/{id}", "/todos/a%20b%2B"), one("id", "a b+"));
        assert_eq!(params("/todos/{id}", "/todos/%E5%BE%85"), one("id", "待"));
        assert_eq!(params("/todos/{id}", "/todos"), None);
        assert_eq!(params("/todos/{id}", "/todos/7/x"), None);
        assert_eq!(params("/todos", "/Todos"), None);
        assert_eq!(params("/", "/"), Some(vec![]));
        assert_eq!(params("/", "/x"), None);
        assert_eq!(params("{/**}", "/"), Some(vec![]));
        assert_eq!(params("{/**}", "/x/y"), Some(vec![]));
        for path in ["/account", "/account/x", "/account/x/y"] {
            assert_eq!(params("/account{/**}", path), Some(vec![]), "{path}");
        }
        assert_eq!(params("/account{/**}", "/accounts"), None);
        assert_eq!(params("/a!b/待", "/a%21b/%E5%BE%85"), Some(vec![]));
        assert_eq!(template("{/**}").matches(&NormalPath::asterisk()), None);
        assert_eq!(template("{/**}").matches(&NormalPath::lift("/a//b").unwrap()), None);
    }

    #[test]
    fn a_filled_template_matches_what_it_was_filled_with() {
        let fill = |text: &str| template(text).fill(|name| (name == "id").then_some("a%2Bb"));
        for (text, path) in [("/", "/"), ("/todos", "/todos"), ("/a!b/{id}/待", "/a!b/a%2Bb/%E5%BE%85")] {
            assert_eq!(fill(text).unwrap(), path);
            let params = params(text, path).unwrap();
            assert!(params.iter().all(|(name, value)| (name.as_str(), value.as_str()) == ("id", "a+b")), "{text}");
        }
        for open in ["{/**}", "/account{/**}", "/todos/{other}"] {
            assert_eq!(fill(open), None, "{open}");
        }
    }

    #[test]
    fn bad_templates_say_where_and_why() {
        for (text, offset) in [
            ("", 0),
            ("todos", 0),
            ("/{/**}", 0),
            ("/a//b", 3),
            ("/a/", 3),
            ("/a/../b", 3),
            ("/a/{id}x", 3),
            ("/a/{}", 3),
            ("/a/{1a}", 3),
            ("/a/{i-d}", 3),
            ("/{a}/{a}", 5),
            ("/a/*", 3),
            ("/a/**", 3),
            ("/a/{**}/b", 3),
            ("/a?x=1", 1),
            ("/a;b", 1),
            ("/a%2Fb", 1),
            ("/%41", 1),
            ("/a b", 1),
        ] {
            assert_eq!(text.parse::<PathTemplate>().unwrap_err().offset, offset, "{text}");
        }
    }

    #[test]
    fn relations_of_the_usual_pairs() {
        use Relation::{Crossing, Disjoint, Narrower, Same, Wider};
        for (a, b, relation) in [
            ("/todos", "/todos", Same),
            ("/todos/{id}", "/todos/{other}", Same),
            ("/todos/new", "/todos/{id}", Narrower),
            ("/todos{/**}", "/todos/{id}", Wider),
            ("/todos", "/todos{/**}", Narrower),
            ("/a/{x}", "/{y}/b", Crossing),
            ("/a{/**}", "/{x}/b", Crossing),
            ("/a/{x}{/**}", "/{y}/b{/**}", Crossing),
            ("/todos", "/notes", Disjoint),
            ("/todos", "/todos/{id}", Disjoint),
            ("/a{/**}", "/b{/**}", Disjoint),
            ("{/**}", "/", Wider),
        ] {
            assert_eq!(template(a).relation(&template(b)), relation, "{a} {b}");
        }
    }

    fn any_template() -> impl Strategy<Value = PathTemplate> {
        let part = prop_oneof![Just("a"), Just("b"), Just("{}")];
        (prop::collection::vec(part, 0..3), any::<bool>()).prop_map(|(parts, rest)| {
            let mut text: String = parts
                .iter()
                .enumerate()
                .map(|(at, part)| if *part == "{}" { format!("/{{p{at}}}") } else { format!("/{part}") })
                .collect();
            if rest {
                text.push_str(REST);
            } else if text.is_empty() {
                text.push('/');
            }
            template(&text)
        })
    }

    /// All paths of up to four segments over three letters: enough to tell templates of up to two
    /// segments apart.
    fn paths() -> Vec<NormalPath> {
        let mut all = vec![String::new()];
        let mut last = all.clone();
        for _ in 0..4 {
            last = last.iter().flat_map(|path| ["a", "b", "c"].map(|segment| format!("{path}/{segment}"))).collect();
            all.extend(last.clone());
        }
        all.iter().map(|path| NormalPath::parse(if path.is_empty() { "/" } else { path }).unwrap()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        #[test]
        fn relation_is_what_the_matched_paths_say(a in any_template(), b in any_template()) {
            let (mut both, mut only_a, mut only_b) = (false, false, false);
            for path in paths() {
                match (a.matches(&path).is_some(), b.matches(&path).is_some()) {
                    (true, true) => both = true,
                    (true, false) => only_a = true,
                    (false, true) => only_b = true,
                    (false, false) => {}
                }
            }
            let expected = match (both, only_a, only_b) {
                (false, ..) => Relation::Disjoint,
                (true, false, false) => Relation::Same,
                (true, false, true) => Relation::Narrower,
                (true, true, false) => Relation::Wider,
                (true, true, true) => Relation::Crossing,
            };
            prop_assert_eq!(a.relation(&b), expected);
            match expected {
                Relation::Narrower => prop_assert_eq!(a.cmp_specificity(&b), Ordering::Greater),
                Relation::Wider => prop_assert_eq!(a.cmp_specificity(&b), Ordering::Less),
                Relation::Same => prop_assert_eq!(a.cmp_specificity(&b), Ordering::Equal),
                Relation::Disjoint | Relation::Crossing => {}
            }
        }
    }
}
