//! By what a call is found again in the logs and traces of others.
//!
//! Owns the reading of `X-Request-Id` and `traceparent`. What is no such id is replaced or left out, never
//! repaired.

use http::HeaderMap;

use crate::base::chance::Chance;

/// `X-Request-Id` as it came, where it has 1 to 255 bytes of text without control characters; else one that
/// is made for the call.
#[must_use]
pub fn request_id(headers: &HeaderMap, chance: &dyn Chance) -> String {
    let sent = headers.get("x-request-id").and_then(|value| std::str::from_utf8(value.as_bytes()).ok());
    let usable = sent.filter(|id| !id.is_empty() && id.len() <= 255 && !id.chars().any(char::is_control));
    usable.map_or_else(|| format!("rq_{}", data_encoding::HEXLOWER.encode(&chance.bytes16())), str::to_owned)
}

/// `traceparent` where it is one (W3C Trace Context, version 00).
#[must_use]
pub fn traceparent(headers: &HeaderMap) -> Option<String> {
    let mut values = headers.get_all("traceparent").iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return None;
    };
    let text = value.to_str().ok()?;
    let mut parts =
        text.split('-').map(|part| (part.len(), part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))));
    let well_formed =
        [2, 32, 16, 2].into_iter().all(|length| parts.next() == Some((length, true))) && parts.next().is_none();
    (well_formed && !text.starts_with("ff")).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::base::chance::SeededChance;

    fn with(name: &'static str, values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(name, http::HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers
    }

    #[test]
    fn only_a_well_formed_trace_context_goes_on() {
        let read = |values: &[&str]| traceparent(&with("traceparent", values));
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(read(&[good]).as_deref(), Some(good));
        for bad in [&[][..], &[""], &[good, good], &["00-x-y-01"], &[&good.to_uppercase()], &[&format!("{good}-more")]]
        {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_request_id_is_the_callers_where_it_is_usable() {
        let read = |values: &[&str]| request_id(&with("x-request-id", values), &SeededChance::new(1));
        assert_eq!(read(&["r-1"]), "r-1");
        for bad in [&[][..], &[""], &["a\tb"], &[&"x".repeat(256)]] {
            assert!(read(bad).starts_with("rq_"), "{bad:?}");
        }
    }
}
