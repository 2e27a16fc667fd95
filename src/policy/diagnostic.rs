//! What is wrong with a policy file, as `countersign check` prints it.
//!
//! Owns the form of a diagnostic and of a report. Must never show a value that came from the
//! environment, from another file or from a credential.

use std::fmt;

use serde::Serialize;

use super::visible::visible;
use super::yaml::Place;

/// Longest part of a source line that an excerpt shows, in characters.
const EXCERPT_CHARS_MAX: usize = 140;

/// Whether a set with this diagnostic is in force all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The set is refused.
    Error,
    /// The set is loaded; somebody should look.
    Warning,
}

/// One mistake, with its place and a remedy. Serialised in the order of its members, without the
/// excerpt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// The file's name as it was handed in.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// Error or warning.
    pub severity: Severity,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
    #[serde(skip)]
    /// The offending line and a caret below it, or nothing where there is no line to show.
    pub excerpt: String,
}

impl fmt::Display for Diagnostic {
    /// `FILE:LINE:COL: error: …`, then the excerpt and `hint: …`, each indented by two.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, "{}:{}:{}: {word}: {}", self.file, self.line, self.column, self.message)?;
        for line in self.excerpt.lines() {
            write!(f, "\n  {line}")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\n  hint: {hint}")?;
        }
        Ok(())
    }
}

impl Diagnostic {
    /// Where it is and what is wrong, in one line.
    #[must_use]
    pub fn line(&self) -> String {
        format!("{}:{}:{}: {}", self.file, self.line, self.column, self.message)
    }
}

/// Puts findings into the one order in which they are told: by file, line and column, errors first.
pub fn sort(diagnostics: &mut [Diagnostic]) {
    diagnostics.sort_by(|a, b| (&a.file, a.line, a.column, a.severity).cmp(&(&b.file, b.line, b.column, b.severity)));
}

/// Every diagnostic in the order in which they are told, then how many there are.
#[must_use]
pub fn report(diagnostics: &[Diagnostic]) -> String {
    let mut sorted = diagnostics.to_vec();
    sort(&mut sorted);
    let mut text = String::new();
    for diagnostic in &sorted {
        text.push_str(&diagnostic.to_string());
        text.push('\n');
    }
    let errors = sorted.iter().filter(|d| d.severity == Severity::Error).count();
    let warnings = sorted.len() - errors;
    text.push_str(&format!("{}, {}\n", counted(errors, "error"), counted(warnings, "warning")));
    text
}

fn counted(count: usize, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}

/// The source line with a caret below the place; `secrets` are masked wherever they stand in it.
pub(super) fn excerpt(text: &str, place: Place, secrets: &[String]) -> String {
    let Some(line) = text.lines().nth(place.line.saturating_sub(1)).filter(|line| !line.trim().is_empty()) else {
        return String::new();
    };
    let column = place.column.saturating_sub(1);
    // A long line is cut around the caret, so that the offending text is always in view.
    let from = column.saturating_sub(EXCERPT_CHARS_MAX / 2);
    let before: String = line.chars().take(column).skip(from).collect();
    let after: String = line.chars().skip(column).take(EXCERPT_CHARS_MAX - before.chars().count().min(100)).collect();
    let mask = |part: String| {
        let part = secrets.iter().filter(|s| !s.is_empty()).fold(part, |part, secret| part.replace(secret, "***"));
        visible(&part.replace('\t', " "))
    };
    // A secret that reaches over the caret is masked as a whole before the line is cut in two.
    let spans = secrets.iter().any(|s| !s.is_empty() && line.contains(s.as_str()));
    let (before, after) = if spans {
        let masked = mask(line.to_owned());
        let head = mask(line.chars().take(column).collect());
        let shared = masked.chars().zip(head.chars()).take_while(|(a, b)| a == b).count();
        (head.chars().take(shared).collect(), masked.chars().skip(shared).take(EXCERPT_CHARS_MAX).collect())
    } else {
        (format!("{}{}", if from > 0 { "…" } else { "" }, mask(before)), mask(after))
    };
    let number = place.line.to_string();
    let pad: String = before.chars().map(|c| if is_wide(c) { '\u{3000}' } else { ' ' }).collect();
    format!("{number} | {before}{after}\n{} | {pad}^", " ".repeat(number.len()))
}

/// Whether terminals show it two columns wide; the caret's padding follows.
fn is_wide(c: char) -> bool {
    matches!(u32::from(c), 0x1100..=0x115F | 0x2E80..=0xA4CF | 0xAC00..=0xD7A3 | 0xF900..=0xFAFF | 0xFE30..=0xFE6F
        | 0xFF00..=0xFF60 | 0xFFE0..=0xFFE6 | 0x1F300..=0x1FAFF | 0x20000..=0x3FFFD)
}

/// The nearest of `known` to `word`, where it is near enough to be meant.
pub(super) fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let limit = (word.chars().count() / 3).clamp(1, 3);
    let ranked = known.into_iter().map(|candidate| (distance(word, candidate), candidate));
    ranked.filter(|(far, _)| *far <= limit).min().map(|(_, candidate)| candidate)
}

/// How many insertions, deletions, replacements and swaps of neighbours lead from `a` to `b`.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(64).collect(), b.chars().take(64).collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let replace = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let mut best = replace.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    best = best.min(rows[i - 2][j - 2] + 1);
                }
                best
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diagnostic_reads_as_the_documentation_says() {
        let text = "tools:\n  - name: x\n    methds: [POST]\n";
        let place = Place { line: 3, column: 5 };
        let diagnostic = Diagnostic {
            file: "p.yaml".into(),
            line: 3,
            column: 5,
            severity: Severity::Error,
            message: "unknown key `methds`".into(),
            hint: Some("did you mean `method`?".into()),
            excerpt: excerpt(text, place, &[]),
        };
        insta::assert_snapshot!(report(&[diagnostic]));
    }

    #[test]
    fn secrets_are_masked_in_excerpts_wherever_the_caret_is() {
        let text = "credentials: {headr: A, value: \"s3cret word\"} # s3cret word";
        for column in 1..=text.chars().count() {
            let shown = excerpt(text, Place { line: 1, column }, &["s3cret word".into()]);
            assert!(!shown.contains("s3cret") && !shown.contains("word"), "{shown}");
        }
    }

    #[test]
    fn a_long_line_is_cut_around_the_caret() {
        let text = format!("{}X{}", "a".repeat(5000), "b".repeat(5000));
        let shown = excerpt(&text, Place { line: 1, column: 5001 }, &[]);
        assert!(shown.contains('X') && shown.len() < 500, "{shown}");
    }

    #[test]
    fn near_words_are_offered_and_far_ones_are_not() {
        let known = ["match", "method", "path", "effect"];
        assert_eq!(nearest("mehtod", known), Some("method"));
        assert_eq!(nearest("methods", known), Some("method"));
        assert_eq!(nearest("colour", known), None);
    }
}
