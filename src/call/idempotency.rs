//! The caller's own `Idempotency-Key`.
//!
//! Owns the reading of the header (IETF draft-ietf-httpapi-idempotency-key-header-07). Must never
//! forward it: the effect key that goes upstream is the guard's.

use http::HeaderMap;

use crate::base::code::Code;
use crate::base::refusal::Refusal;

/// A caller's key: 1 to 255 bytes of UTF-8 without control characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(String);

impl IdempotencyKey {
    /// The key without quotes.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The name of the header.
pub const NAME: &str = "idempotency-key";

/// Reads the caller's key. An RFC 8941 string and the same bare text are one key; bare text is
/// taken whole, so `k1, k2` is one key.
///
/// # Errors
///
/// `IDEMPOTENCY_KEY_INVALID` if the key is empty, longer than 255 bytes, not UTF-8, has control
/// characters, stands more than once, or begins with a quote and is no RFC 8941 string.
pub fn idempotency_key(headers: &HeaderMap) -> Result<Option<IdempotencyKey>, Refusal> {
    let mut values = headers.get_all(NAME).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(invalid("it stands more than once"));
    }
    let text = std::str::from_utf8(value.as_bytes()).map_err(|_| invalid("it is not valid UTF-8"))?;
    let text = text.trim_matches([' ', '\t']);
    let key = if text.starts_with('"') {
        unquoted(text).ok_or_else(|| invalid("it begins with a quote and is no quoted string"))?
    } else {
        text.to_owned()
    };
    if key.is_empty() || key.len() > 255 {
        return Err(invalid("it is empty or longer than 255 bytes"));
    }
    if key.chars().any(char::is_control) {
        return Err(invalid("it has control characters"));
    }
    Ok(Some(IdempotencyKey(key)))
}

fn invalid(why: &str) -> Refusal {
    Refusal::new(
        Code::IdempotencyKeyInvalid,
        format!("The header `Idempotency-Key` cannot be used: {why}. Send one key of 1 to 255 bytes, or none."),
    )
}

/// The content of an RFC 8941 string (section 3.3.3) without parameters.
fn unquoted(text: &str) -> Option<String> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    let mut key = String::with_capacity(inner.len());
    let mut characters = inner.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => key.push(characters.next().filter(|escaped| matches!(escaped, '"' | '\\'))?),
            ' '..='!' | '#'..='[' | ']'..='~' => key.push(character),
            _ => return None,
        }
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http::HeaderValue;

    use super::*;

    fn read(lines: &[&[u8]]) -> Result<Option<String>, Code> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(NAME, HeaderValue::from_maybe_shared(bytes::Bytes::copy_from_slice(line)).unwrap());
        }
        idempotency_key(&headers).map(|key| key.map(|key| key.as_str().to_owned())).map_err(|refusal| refusal.code)
    }

    #[test]
    fn odd_keys_are_keys() {
        assert_eq!(read(&[]), Ok(None));
        for key in ["k", "a}{b", "{x}", "*", "a:b", "../..", "ключ", "k1, k2", "a\"b", "k;a=1", "'k'"] {
            assert_eq!(read(&[key.as_bytes()]), Ok(Some(key.to_owned())), "{key}");
        }
        assert_eq!(read(&[&[b'x'; 255]]), Ok(Some("x".repeat(255))));
    }

    #[test]
    fn a_quoted_key_and_the_same_bare_text_are_one_key() {
        assert_eq!(read(&[b"\"k\""]), read(&[b"k"]));
        assert_eq!(read(&[br#""a\"b\\c""#]), Ok(Some(r#"a"b\c"#.to_owned())));
        assert_eq!(read(&[&[&b"\""[..], &[b'x'; 255], b"\""].concat()]), Ok(Some("x".repeat(255))));
    }

    #[test]
    fn unusable_keys_are_refused() {
        let long = [b'x'; 256];
        let huge = [b'x'; 10_000];
        let lines: [&[&[u8]]; 14] = [
            &[b""],
            &[b"  "],
            &[b"\"\""],
            &[&long],
            &[&huge],
            &[b"k\tk"],
            &[b"a", b"b"],
            &[b"a", b"a"],
            &[b"\"k"],
            &[b"\"k\"x"],
            &[b"\"k\";a=1"],
            &[br#""\x""#],
            &[b"\xff"],
            &["k\u{85}".as_bytes()],
        ];
        for lines in lines {
            assert_eq!(read(lines), Err(Code::IdempotencyKeyInvalid), "{lines:?}");
        }
    }
}
