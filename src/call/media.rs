//! What a body says it is: `Content-Type`.
//!
//! Owns which media types are read as args. Must never guess: a type that cannot be read in one
//! way is refused, and an unknown one is opaque.

use http::{HeaderMap, header};

use crate::base::code::Code;
use crate::base::refusal::Refusal;

/// A media type with the parameters that decide how a body is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentType {
    /// `type/subtype`, lower case, without parameters.
    pub essence: String,
    /// The `charset` parameter, lower case.
    pub charset: Option<String>,
    /// The `boundary` parameter.
    pub boundary: Option<String>,
}

/// How a body is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// JSON: `application/json`, `text/json`, `…+json`.
    Json,
    /// `application/x-www-form-urlencoded`.
    Form,
    /// `multipart/form-data` with this boundary.
    Multipart(String),
    /// Anything else: not read.
    Opaque,
}

impl ContentType {
    /// The type of a request's body; `None` if none is named.
    ///
    /// # Errors
    ///
    /// `REQUEST_AMBIGUOUS` if it is named more than once, `MEDIA_TYPE_UNSUPPORTED` if it is malformed.
    pub fn of(headers: &HeaderMap) -> Result<Option<Self>, Refusal> {
        let mut values = headers.get_all(header::CONTENT_TYPE).iter();
        let Some(value) = values.next() else {
            return Ok(None);
        };
        if values.next().is_some() {
            let detail = "The request has more than one `Content-Type`. Nothing was sent; send one.";
            return Err(Refusal::new(Code::RequestAmbiguous, detail));
        }
        let text = std::str::from_utf8(value.as_bytes()).map_err(|_| unsupported("`Content-Type` is not ASCII"))?;
        Self::parse(text).map(Some).map_err(|why| unsupported(&format!("`Content-Type` {why}")))
    }

    /// Reads `type/subtype` and its parameters (RFC 9110 section 8.3.1).
    ///
    /// # Errors
    ///
    /// Why it is malformed, continuing "`Content-Type`".
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let (essence, rest) = text.split_at(text.find(';').unwrap_or(text.len()));
        let essence = essence.trim_matches([' ', '\t']);
        let (kind, subtype) = essence.split_once('/').ok_or("has no `/`")?;
        if !is_token(kind) || !is_token(subtype) {
            return Err("is not of the form `type/subtype`");
        }
        let mut read = Self { essence: essence.to_ascii_lowercase(), charset: None, boundary: None };
        for (name, value) in parameters(rest)? {
            match name.as_str() {
                "charset" => read.charset = Some(value.to_ascii_lowercase()),
                "boundary" => read.boundary = Some(value),
                _ => {}
            }
        }
        Ok(read)
    }

    /// How a body of this type is read.
    ///
    /// # Errors
    ///
    /// `MEDIA_TYPE_UNSUPPORTED` for a charset other than UTF-8 on a type that is read, and for
    /// `multipart/form-data` without a usable boundary; `REQUEST_AMBIGUOUS` for `multipart/mixed`,
    /// the envelope of batches.
    pub fn kind(&self) -> Result<Kind, Refusal> {
        let kind = match self.essence.as_str() {
            "application/json" | "text/json" => Kind::Json,
            "application/x-www-form-urlencoded" => Kind::Form,
            "multipart/form-data" => Kind::Multipart(self.usable_boundary()?),
            "multipart/mixed" => {
                let detail = "A batch of requests in one body cannot be judged as one call. Nothing was sent; send them one by one.";
                return Err(Refusal::new(Code::RequestAmbiguous, detail));
            }
            other if other.ends_with("+json") => Kind::Json,
            _ => return Ok(Kind::Opaque),
        };
        if !self.is_utf8() {
            return Err(unsupported("the only charset that is read is UTF-8"));
        }
        Ok(kind)
    }

    /// Whether the charset is UTF-8, named or by default.
    pub(super) fn is_utf8(&self) -> bool {
        self.charset.as_deref().is_none_or(is_utf8)
    }

    fn usable_boundary(&self) -> Result<String, Refusal> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(&byte);
        let usable = |boundary: &&String| {
            (1..=70).contains(&boundary.len()) && boundary.bytes().all(plain) && !boundary.ends_with(' ')
        };
        let boundary = self.boundary.as_ref().filter(usable);
        boundary
            .cloned()
            .ok_or_else(|| unsupported("`multipart/form-data` needs a boundary of 1 to 70 plain characters"))
    }
}

/// The names of UTF-8, in any case.
pub(super) fn is_utf8(charset: &str) -> bool {
    charset.eq_ignore_ascii_case("utf-8") || charset.eq_ignore_ascii_case("utf8")
}

/// A 415.
pub(super) fn unsupported(why: &str) -> Refusal {
    let detail = format!("The body cannot be read: {why}. Nothing was sent; send JSON or a form in UTF-8.");
    Refusal::new(Code::MediaTypeUnsupported, detail)
}

pub(super) fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(is_token_byte)
}

/// `tchar` of RFC 9110 section 5.6.2.
pub(super) const fn is_token_byte(byte: u8) -> bool {
    TOKEN_BYTES[byte as usize]
}

/// A table, because every byte of every header name is looked up.
const TOKEN_BYTES: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0_u8;
    while byte < 0x80 {
        table[byte as usize] = byte.is_ascii_alphanumeric()
            || matches!(
                byte,
                b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
            );
        byte += 1;
    }
    table
};

/// Parameters after the first word: `; name=token` or `; name="text"`, names in lower case. Empty
/// parameters do not count. Backslashes in quotes are refused, because some readers take them for
/// escapes and some do not; a name that stands twice is refused as well.
pub(super) fn parameters(text: &str) -> Result<Vec<(String, String)>, &'static str> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut rest = text.trim_matches([' ', '\t']);
    while !rest.is_empty() {
        rest = rest.strip_prefix(';').ok_or("has something between two parameters")?.trim_start_matches([' ', '\t']);
        if rest.is_empty() || rest.starts_with(';') {
            continue;
        }
        let (name, after) = rest.split_once('=').ok_or("has a parameter without a value")?;
        if !is_token(name) {
            return Err("has a parameter whose name is malformed");
        }
        let name = name.to_ascii_lowercase();
        let value = if let Some(quoted) = after.strip_prefix('"') {
            let (value, after) = quoted.split_once('"').ok_or("has a quote that does not end")?;
            if value.contains('\\') || value.chars().any(char::is_control) {
                return Err("has a backslash or a control character in quotes");
            }
            rest = after;
            value
        } else {
            let end = after.find([';', ' ', '\t']).unwrap_or(after.len());
            let (value, after) = after.split_at(end);
            if !is_token(value) {
                return Err("has a parameter whose value is malformed");
            }
            rest = after;
            value
        };
        if found.iter().any(|(known, _)| *known == name) {
            return Err("has a parameter twice");
        }
        found.push((name, value.to_owned()));
        rest = rest.trim_start_matches([' ', '\t']);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn kind(text: &str) -> Result<Kind, Code> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, text.parse().unwrap());
        ContentType::of(&headers).and_then(|read| read.unwrap().kind()).map_err(|refusal| refusal.code)
    }

    #[test]
    fn types_are_read_by_their_essence() {
        for json in [
            "application/json",
            "Application/JSON",
            "application/json; charset=utf-8",
            "application/json;charset=\"UTF-8\"",
            "application/json; charset=utf8",
            "application/json;;",
            "application/json ; ;",
            "application/vnd.api+json",
            "text/json",
            "application/merge-patch+json",
            "application/json; profile=\"a;b\"; charset=utf-8",
        ] {
            assert_eq!(kind(json), Ok(Kind::Json), "{json}");
        }
        assert_eq!(kind("application/x-www-form-urlencoded"), Ok(Kind::Form));
        assert_eq!(kind("multipart/form-data; boundary=abc"), Ok(Kind::Multipart("abc".to_owned())));
        assert_eq!(kind("multipart/form-data; boundary=\"a b\""), Ok(Kind::Multipart("a b".to_owned())));
        for opaque in [
            "text/plain",
            "text/plain; charset=latin1",
            "application/octet-stream",
            "application/x-ndjson",
            "application/graphql",
            "application/jsonx",
            "multipart/related; boundary=x",
            "application/xml",
        ] {
            assert_eq!(kind(opaque), Ok(Kind::Opaque), "{opaque}");
        }
    }

    #[test]
    fn what_two_readers_could_take_for_two_types_is_refused() {
        for bad in [
            "application/json; charset=utf-7",
            "application/json; charset=utf-16",
            "application/x-www-form-urlencoded; charset=ibm037",
            "application/json; charset=utf-8; charset=utf-7",
            "application/json; charset",
            "application/json; charset = utf-8",
            "application/json charset=utf-8",
            "application/json, text/plain",
            "json",
            "/json",
            "application/",
            "",
            "application/json; charset=\"utf-8",
            "application/json; charset=\"utf\\-8\"",
            "application/json; charset=\"utf-8\"x",
            "application/json; profile=\"a\\b\"",
            "multipart/form-data",
            "multipart/form-data; boundary=",
            "multipart/form-data; boundary=\"\"",
            "multipart/form-data; boundary=\"a \"",
            "multipart/form-data; boundary=\"a\u{e9}\"",
            "multipart/form-data; boundary=a; boundary=b",
            "multipart/form-data; boundary=a; Boundary=a",
            &format!("multipart/form-data; boundary={}", "a".repeat(71)),
        ] {
            assert_eq!(kind(bad), Err(Code::MediaTypeUnsupported), "{bad}");
        }
        assert_eq!(kind("multipart/mixed; boundary=batch"), Err(Code::RequestAmbiguous));
        let mut two = HeaderMap::new();
        two.append(header::CONTENT_TYPE, "application/json".parse().unwrap());
        two.append(header::CONTENT_TYPE, "application/json".parse().unwrap());
        assert_eq!(ContentType::of(&two).unwrap_err().code, Code::RequestAmbiguous);
        assert_eq!(ContentType::of(&HeaderMap::new()), Ok(None));
    }
}
