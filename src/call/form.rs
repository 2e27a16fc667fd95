//! `application/x-www-form-urlencoded` bodies as names and values.
//!
//! Owns nothing but the words of its refusal: a form is decoded like a query.

use crate::base::code::Code;
use crate::base::refusal::Refusal;

use super::query;

/// Names and values of a form, in order, decoded like a query ([`query::parse`]). Bytes beyond
/// ASCII may stand raw where they are UTF-8.
///
/// # Errors
///
/// `BODY_MALFORMED` for what does not decode, and for more than [`query::FIELDS_MAX`] fields.
pub fn parse(body: &[u8]) -> Result<Vec<(String, String)>, Refusal> {
    query::decode_fields(body).map_err(|why| {
        Refusal::new(
            Code::BodyMalformed,
            format!("The form cannot be read: {why}. Nothing was sent; encode it as UTF-8."),
        )
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn forms_read_like_queries() {
        let fields = parse("amount=1&amount=100000&to=a%2Bb&t=待".as_bytes()).unwrap();
        let expected = [("amount", "1"), ("amount", "100000"), ("to", "a+b"), ("t", "待")];
        assert_eq!(fields, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        for bad in [&b"a=%G1"[..], b"a=\xff", b"\xff=1", b"a=%80"] {
            assert_eq!(parse(bad).unwrap_err().code, Code::BodyMalformed);
        }
    }
}
