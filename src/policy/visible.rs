//! Text as a person can judge it: nothing hides, nothing pretends.
//!
//! Owns the escapes and the marks of card text, and what of a JSON text is written as an escape. Must never drop a character: what it cannot show,
//! it spells out.

use std::borrow::Cow;
use std::collections::BTreeSet;

use unicode_properties::{GeneralCategory, GeneralCategoryGroup, UnicodeGeneralCategory as _};
use unicode_script::{Script, UnicodeScript as _};

/// Most marks that one letter may carry before the next is spelled out.
const MARKS_PER_LETTER_MAX: usize = 4;

/// `text` with every code point spelled `\u{…}` that is not a letter, a mark on a letter, a
/// number, punctuation, a symbol or a plain space, or that is one of these and shows nothing. A
/// `\u{` that stood in the text itself is told apart by spelling its backslash.
#[must_use]
pub fn visible(text: &str) -> String {
    let is_plain = text.bytes().all(|byte| matches!(byte, b' '..=b'[' | b']'..=b'~'));
    if is_plain {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    // How many marks the letter before carries; `None` where no letter is before.
    let mut marks: Option<usize> = None;
    for (at, c) in text.char_indices() {
        let shows = match group(c) {
            _ if !c.is_ascii() && is_blank(c) => false,
            GeneralCategoryGroup::Letter => {
                marks = Some(0);
                out.push(c);
                continue;
            }
            GeneralCategoryGroup::Mark => {
                let legal = marks.is_some_and(|count| count < MARKS_PER_LETTER_MAX);
                marks = marks.map(|count| count + 1);
                if legal {
                    out.push(c);
                    continue;
                }
                spell(c, &mut out);
                continue;
            }
            GeneralCategoryGroup::Number | GeneralCategoryGroup::Punctuation | GeneralCategoryGroup::Symbol => true,
            GeneralCategoryGroup::Separator => c == ' ',
            GeneralCategoryGroup::Other => false,
        };
        marks = None;
        let pretends = c == '\\' && text[at..].starts_with("\\u{");
        if shows && !pretends { out.push(c) } else { spell(c, &mut out) }
    }
    out
}

/// The general category, with the characters that most texts are made of decided at once.
fn group(c: char) -> GeneralCategoryGroup {
    match c {
        'a'..='z' | 'A'..='Z' | '\u{4e00}'..='\u{9fff}' => GeneralCategoryGroup::Letter,
        '0'..='9' => GeneralCategoryGroup::Number,
        ' ' => GeneralCategoryGroup::Separator,
        '!'..='~' => GeneralCategoryGroup::Punctuation,
        '\0'..='\u{1f}' | '\u{7f}' => GeneralCategoryGroup::Other,
        _ => c.general_category_group(),
    }
}

fn spell(c: char, out: &mut String) {
    out.push_str(&format!("\\u{{{:x}}}", u32::from(c)));
}

/// Letters, marks and symbols that are drawn as nothing.
fn is_blank(c: char) -> bool {
    matches!(c, '\u{034f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{2800}'
        | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{ffa0}' | '\u{fffc}' | '\u{1d159}' | '\u{e0100}'..='\u{e01ef}')
}

/// [`visible`], line by line: line ends and tabs of a body stay what they are.
#[must_use]
pub fn visible_lines(text: &str) -> String {
    let lines = text.split('\n').map(|line| line.split('\t').map(visible).collect::<Vec<_>>().join("\t"));
    lines.collect::<Vec<_>>().join("\n")
}

/// A JSON text in which no string holds a character that is obeyed or not seen where it is printed:
/// controls, bidirectional and other format characters, line and paragraph separators, blanks that
/// are letters. They stand as `\uXXXX` (RFC 8259 section 7), so every reader gets the same value.
#[must_use]
pub fn spelled_json(json: &str) -> Cow<'_, str> {
    // White space between the members is all that a writer of JSON leaves of the ASCII controls.
    let shows = |c: char| match c {
        '\0'..='~' => true,
        '\u{7f}' => false,
        _ if is_blank(c) || group(c) == GeneralCategoryGroup::Other => false,
        _ => !matches!(c.general_category(), GeneralCategory::LineSeparator | GeneralCategory::ParagraphSeparator),
    };
    if json.chars().all(shows) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + json.len() / 4);
    for c in json.chars() {
        if shows(c) {
            out.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            out.push_str(&format!("\\u{unit:04x}"));
        }
    }
    Cow::Owned(out)
}

/// What makes a text hard to judge even though all of it shows, in words; empty for plain text.
///
/// *Mixed scripts*: one word has letters of scripts that are not written together (`pаypal` with a
/// Cyrillic а). *Bidirectional*: the text has letters that run to the left and letters that run
/// to the right, so that what is shown in one order may be stored in another.
#[must_use]
pub fn marks(text: &str) -> Vec<String> {
    if text.is_ascii() {
        return Vec::new();
    }
    let mut mixed: BTreeSet<&'static str> = BTreeSet::new();
    for word in text.split(|c: char| !c.is_alphanumeric() && group(c) != GeneralCategoryGroup::Mark) {
        let mut scripts: Vec<Script> = Vec::new();
        for script in word.chars().map(script) {
            let counts = !matches!(script, Script::Common | Script::Inherited | Script::Unknown);
            if counts && !scripts.contains(&script) {
                scripts.push(script);
            }
        }
        if scripts.len() > 1 && !written_together(&scripts) {
            mixed.extend(scripts.iter().map(|script| script.full_name()));
        }
    }
    let mut found = Vec::new();
    if !mixed.is_empty() {
        found.push(format!("mixed scripts: {}", Vec::from_iter(mixed).join(", ")));
    }
    let left = text.chars().any(runs_left);
    if left && text.chars().any(|c| c.is_alphabetic() && !runs_left(c)) {
        found.push("bidirectional".to_owned());
    }
    found
}

fn script(c: char) -> Script {
    match c {
        'a'..='z' | 'A'..='Z' => Script::Latin,
        '\u{4e00}'..='\u{9fff}' => Script::Han,
        _ => c.script(),
    }
}

/// [`visible`], with the [`marks`] behind it in `⟨…⟩`.
#[must_use]
pub fn marked(text: &str) -> String {
    let found = marks(text);
    let shown = visible(text);
    if found.is_empty() { shown } else { format!("{shown} ⟨{}⟩", found.join("; ")) }
}

/// Japanese, Korean and Chinese are written with several scripts, each also with Latin letters.
fn written_together(scripts: &[Script]) -> bool {
    let sets: [&[Script]; 3] = [
        &[Script::Latin, Script::Han, Script::Hiragana, Script::Katakana],
        &[Script::Latin, Script::Han, Script::Bopomofo],
        &[Script::Latin, Script::Han, Script::Hangul],
    ];
    sets.iter().any(|set| scripts.iter().all(|script| set.contains(script)))
}

/// The blocks that Unicode gives to scripts that run to the left.
fn runs_left(c: char) -> bool {
    c.is_alphabetic()
        && matches!(u32::from(c), 0x0590..=0x08FF | 0xFB1D..=0xFDFF | 0xFE70..=0xFEFF | 0x1_0800..=0x1_0FFF
            | 0x1_E800..=0x1_EFFF)
}

/// `text` cut after `chars_max` characters, saying how long it is.
pub(super) fn bounded(text: String, chars_max: usize) -> String {
    let length = text.chars().count();
    if length <= chars_max {
        return text;
    }
    let kept: String = text.chars().take(chars_max).collect();
    format!("{kept}… ({length} characters, complete in the full view)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_show_is_spelled_out() {
        assert_eq!(visible("plain text, 买牛奶 — né ✓ 12"), "plain text, 买牛奶 — né ✓ 12");
        for hidden in [
            '\u{0}',
            '\n',
            '\t',
            '\u{7f}',
            '\u{85}',
            '\u{a0}',
            '\u{ad}',
            '\u{200b}',
            '\u{200d}',
            '\u{202e}',
            '\u{2028}',
            '\u{2066}',
            '\u{3000}',
            '\u{3164}',
            '\u{e000}',
            '\u{e0041}',
            '\u{feff}',
            '\u{fe0f}',
            '\u{2800}',
            '\u{115f}',
        ] {
            let shown = visible(&format!("a{hidden}b"));
            assert_eq!(shown, format!("a\\u{{{:x}}}b", u32::from(hidden)));
        }
    }

    #[test]
    fn json_hides_nothing_and_means_the_same() {
        let hidden = "\u{7f}\u{80}\u{9b}\u{ad}\u{61c}\u{200b}\u{200f}\u{2028}\u{2029}\u{202a}\u{202e}\u{2066}\u{2069}\u{3164}\u{feff}\u{e0041}";
        let value = serde_json::json!({"a\u{202e}": [hidden, "买牛奶 né ✓ 👍\n\u{1b}"]});
        for json in [value.to_string(), serde_json::to_string_pretty(&value).expect("writes")] {
            let spelled = spelled_json(&json);
            assert_eq!(serde_json::from_str::<serde_json::Value>(&spelled).expect("still JSON"), value);
            for c in hidden.chars() {
                assert!(json.contains(c) && !spelled.contains(c), "{c:?}");
            }
            assert!(spelled.contains("\\u202e") && spelled.contains("\\udb40\\udc41"), "{spelled}");
            assert!(spelled.contains("买牛奶 né ✓ 👍\\n\\u001b"), "{spelled}");
        }
        assert!(matches!(spelled_json("{\"a\": \"né\"}"), Cow::Borrowed(_)));
    }

    #[test]
    fn marks_stand_on_letters_only_and_not_in_towers() {
        assert_eq!(visible("e\u{301}"), "e\u{301}");
        assert_eq!(visible(" \u{301}"), " \\u{301}");
        assert_eq!(visible("1\u{338}"), "1\\u{338}");
        let tower = format!("a{}", "\u{301}".repeat(6));
        assert_eq!(visible(&tower), format!("a{}\\u{{301}}\\u{{301}}", "\u{301}".repeat(4)));
    }

    #[test]
    fn a_written_escape_and_a_made_one_are_never_equal() {
        assert_ne!(visible("\\u{a}"), visible("\n"));
        assert_eq!(visible("\\u{a}"), "\\u{5c}u{a}");
        assert_eq!(visible("C:\\users"), "C:\\users");
    }

    #[test]
    fn mixed_and_bidirectional_texts_are_marked_and_ordinary_ones_are_not() {
        assert_eq!(marks("p\u{430}ypal"), ["mixed scripts: Cyrillic, Latin"]);
        assert_eq!(marks("\u{3b1}bc.example"), ["mixed scripts: Greek, Latin"]);
        assert_eq!(marks("invoice \u{5d0}\u{5d1}"), ["bidirectional"]);
        for plain in ["hello", "买iPhone手机", "東京タワーへ", "Привет world", "שלום 12", "서울Seoul", "naïve"]
        {
            assert!(marks(plain).is_empty(), "{plain}: {:?}", marks(plain));
        }
        assert_eq!(marked("p\u{430}y"), "p\u{430}y ⟨mixed scripts: Cyrillic, Latin⟩");
    }

    proptest::proptest! {
        #[test]
        fn different_texts_never_look_the_same(a in "(\\\\|u|\\{|\\}|a|\u{a}|5|c|\u{301}|\u{202e}){0,8}",
                                               b in "(\\\\|u|\\{|\\}|a|\u{a}|5|c|\u{301}|\u{202e}){0,8}") {
            proptest::prop_assert_eq!(a == b, visible(&a) == visible(&b));
        }
    }
}
