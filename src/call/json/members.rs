//! The pieces of a JSON text as their own bytes: what is taken out of a text, or put into another, keeps
//! its spelling.
//!
//! Owns the split of an object and of a list. Must never be handed a text that [`super::parse`] has not
//! read: only its structure is followed here.

/// White space of JSON (RFC 8259 section 2).
const WHITE: [char; 4] = [' ', '\t', '\n', '\r'];

/// The members of an object: name with its quotes, value, both without surrounding white space; `None` if
/// the text is no object.
pub fn members(text: &str) -> Option<Vec<(&str, &str)>> {
    let inner = text.trim_matches(WHITE).strip_prefix('{')?.strip_suffix('}')?;
    let mut found = Vec::new();
    for part in parts(inner, b',') {
        if part.trim_matches(WHITE).is_empty() && found.is_empty() {
            continue;
        }
        let colon = parts(part, b':').next()?.len();
        found.push((part[..colon].trim_matches(WHITE), part.get(colon + 1..)?.trim_matches(WHITE)));
    }
    Some(found)
}

/// The items of a list, without surrounding white space; `None` if the text is no list.
pub fn items(text: &str) -> Option<Vec<&str>> {
    let inner = text.trim_matches(WHITE).strip_prefix('[')?.strip_suffix(']')?;
    if inner.trim_matches(WHITE).is_empty() {
        return Some(Vec::new());
    }
    Some(parts(inner, b',').map(|item| item.trim_matches(WHITE)).collect())
}

/// The value of one member of an object, by its name as it reads; `None` if there is none.
#[must_use]
pub fn member<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let is_named = |quoted: &str| serde_json::from_str::<String>(quoted).is_ok_and(|read| read == name);
    members(text)?.into_iter().find(|(quoted, _)| is_named(quoted)).map(|(_, value)| value)
}

/// Splits at `separator` outside of texts and nested values.
fn parts(text: &str, separator: u8) -> impl Iterator<Item = &str> {
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    text.split(move |c: char| {
        if quoted {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => quoted = false,
                _ => {}
            }
            return false;
        }
        match c {
            '"' => quoted = true,
            '{' | '[' => depth += 1,
            '}' | ']' => depth = depth.saturating_sub(1),
            c => return depth == 0 && c == char::from(separator),
        }
        false
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn pieces_keep_their_spelling() {
        let text = " { \"a\\u0062\" : 1.0e1 ,\n \"o\": {\"a\": [1 , \"}\\\"\"]}, \"\":[ 01.50 , \"x,y\" ,[]] } ";
        let all =
            [("\"a\\u0062\"", "1.0e1"), ("\"o\"", "{\"a\": [1 , \"}\\\"\"]}"), ("\"\"", "[ 01.50 , \"x,y\" ,[]]")];
        assert_eq!(members(text).unwrap(), all);
        assert_eq!(member(text, "ab"), Some("1.0e1"));
        assert_eq!(member(text, "a\\u0062"), None);
        assert_eq!(items(member(text, "").unwrap()).unwrap(), ["01.50", "\"x,y\"", "[]"]);
        assert_eq!(items(" [ ] ").unwrap(), Vec::<&str>::new());
        assert_eq!((members("[1]"), members("{}"), items("{}")), (None, Some(Vec::new()), None));
    }
}
