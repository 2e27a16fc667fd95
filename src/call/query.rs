//! The query string as names and values.
//!
//! Owns the decoding that queries and forms share. Must never change what is sent: the query goes
//! upstream byte for byte as it came.

use serde_json::{Map, Value};

use crate::base::code::Code;
use crate::base::refusal::Refusal;

use super::head::is_method_override;
use super::path::hex;

/// How many names and values one query or form may have.
pub const FIELDS_MAX: usize = 10_000;

/// Names and values of a query, in order, percent-decoded once, `+` read as a space. Empty pieces
/// between `&` do not count; `x` and `x=` both have the empty value.
///
/// # Errors
///
/// `REQUEST_AMBIGUOUS` for a malformed percent-encoding, for what is not UTF-8 once decoded, and
/// for more than [`FIELDS_MAX`] fields.
pub fn parse(query: &str) -> Result<Vec<(String, String)>, Refusal> {
    decode_fields(query.as_bytes()).map_err(|why| {
        let detail =
            format!("The query could be read in two ways: {why}. Nothing was sent; percent-encode it as UTF-8.");
        Refusal::new(Code::RequestAmbiguous, detail)
    })
}

/// Splits at `&` and the first `=` and decodes.
pub(super) fn decode_fields(text: &[u8]) -> Result<Vec<(String, String)>, &'static str> {
    let mut fields = Vec::new();
    for piece in text.split(|byte| *byte == b'&').filter(|piece| !piece.is_empty()) {
        if fields.len() == FIELDS_MAX {
            return Err("it has more than 10,000 fields");
        }
        let equals = memchr::memchr(b'=', piece);
        let (name, value) = equals.map_or((piece, &b""[..]), |at| (&piece[..at], &piece[at + 1..]));
        fields.push((decode(name)?, decode(value)?));
    }
    Ok(fields)
}

fn decode(text: &[u8]) -> Result<String, &'static str> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || bytes.next().filter(|digit| digit.is_ascii_hexdigit()).map(|digit| hex(*digit));
                match (digit(), digit()) {
                    (Some(high), Some(low)) => high << 4 | low,
                    _ => return Err("it has a `%` without two hexadecimal digits"),
                }
            }
            other => *other,
        });
    }
    String::from_utf8(out).map_err(|_| "it is not UTF-8 once decoded")
}

/// Fields as args: a name that stands once has a string, a name that stands several times an array
/// of strings in their order. Whether an array is allowed is for the schema to say.
#[must_use]
pub fn collect(fields: impl IntoIterator<Item = (String, Value)>) -> Map<String, Value> {
    // An array can only be a repetition here: no single field's value is one.
    let mut values: Map<String, Value> = Map::new();
    for (name, value) in fields {
        match values.get_mut(&name) {
            None => drop(values.insert(name, value)),
            Some(Value::Array(several)) => several.push(value),
            Some(one) => *one = Value::Array(vec![one.take(), value]),
        }
    }
    values
}

/// Whether a field's name claims another method. Looks at pieces as old frameworks split them,
/// at `;` too, and at names that do not decode as they are spelled.
pub(super) fn names_method_override(query: &str) -> bool {
    // Every such name has a `_` or a `-`, or what could become one.
    let could = |byte: u8| matches!(byte, b'_' | b'-' | b'.' | b'[' | b'+' | b' ' | b'%');
    query.bytes().any(could) && names_one(query)
}

fn names_one(query: &str) -> bool {
    query.split(['&', ';']).any(|piece| {
        let name = piece.split('=').next().unwrap_or_default();
        decode(name.as_bytes()).map_or_else(|_| is_method_override(name), |name| is_method_override(&name))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    proptest::proptest! {
        #[test]
        fn a_query_that_is_not_looked_at_names_no_method(
            query in "([&;]?([a-z_%.+-]{0,9}|[_. +-]method|[xX][-_]http[-_]method|x[.-]original[ -]url|%5fmethod)=?[a-z]{0,3}){0,4}"
        ) {
            proptest::prop_assert_eq!(names_method_override(&query), names_one(&query));
        }
    }

    fn args(query: &str) -> Value {
        Value::Object(collect(parse(query).unwrap().into_iter().map(|(name, value)| (name, Value::String(value)))))
    }

    #[test]
    fn names_and_values_are_decoded_once() {
        for (query, expected) in [
            ("", json!({})),
            ("a=2&a=1", json!({"a": ["2", "1"]})),
            ("a=1&a=1&a=1", json!({"a": ["1", "1", "1"]})),
            ("q=C%2B%2B", json!({"q": "C++"})),
            ("q=C++", json!({"q": "C  "})),
            ("q=C%20%20", json!({"q": "C  "})),
            ("q=%2541", json!({"q": "%41"})),
            ("x", json!({"x": ""})),
            ("x=", json!({"x": ""})),
            ("=v", json!({"": "v"})),
            ("a=1;b=2", json!({"a": "1;b=2"})),
            ("%61=1", json!({"a": "1"})),
            ("a=b=c", json!({"a": "b=c"})),
            ("&&a=1&", json!({"a": "1"})),
            ("t=%E5%BE%85", json!({"t": "待"})),
            ("a[]=1&a[]=2", json!({"a[]": ["1", "2"]})),
        ] {
            assert_eq!(args(query), expected, "{query}");
        }
    }

    #[test]
    fn what_does_not_decode_is_refused() {
        for query in ["a=%", "a=%2", "a=%zz", "%=1", "a=%FF", "a=%C0%AE", "a=%ED%A0%80", &"a&".repeat(FIELDS_MAX + 1)] {
            assert_eq!(parse(query).unwrap_err().code, Code::RequestAmbiguous, "{query:.20}");
        }
        assert!(parse(&"a&".repeat(FIELDS_MAX)).is_ok());
    }
}
