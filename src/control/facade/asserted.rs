//! Who a caller says decides: kept with the words of whoever really does, and never believed.
//!
//! Owns the one spelling of that. It stands in the comment of a vote or in the reason of a no, which the
//! decision's MAC covers, so nobody can put it there later.

const MARK: &str = "asserted_by: ";

/// A person's words with the name that stood in `decided_by` on a line of its own, as a JSON text.
pub(super) fn beside(words: &str, asserted: Option<&str>) -> String {
    let Some(name) = asserted else { return words.to_owned() };
    let line = format!("{MARK}{}", serde_json::Value::from(name));
    if words.is_empty() { line } else { format!("{words}\n{line}") }
}

/// The words without that line.
pub(super) fn without(words: &str) -> &str {
    let (before, last) = words.rsplit_once('\n').unwrap_or(("", words));
    let name = last.strip_prefix(MARK).and_then(|name| serde_json::from_str::<String>(name).ok());
    if name.is_some() { before } else { words }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asserted_stands_apart_from_what_was_said() {
        for words in ["", "wrong customer", "two\nlines", "asserted_by: admin"] {
            assert_eq!(beside(words, None), words);
            assert_eq!(without(words), words);
            for name in ["admin", "a \"b\"\nasserted_by: \"c\"", ""] {
                let kept = beside(words, Some(name));
                assert_eq!(without(&kept), words, "{kept:?}");
                assert_eq!(kept.lines().count(), words.lines().count() + 1, "one line: {kept:?}");
            }
        }
        assert_eq!(beside("no", Some("admin")), "no\nasserted_by: \"admin\"");
    }
}
