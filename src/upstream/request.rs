//! The request of a release as it goes on the wire: method and target exactly as bound by the
//! args hash, `Host` from the target, `Content-Length` and never chunked, `Connection: close`.
//!
//! Pure. Everything that could fail does so here, before a byte leaves.

use http::header::{CONNECTION, CONTENT_LENGTH, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version};
use http_body_util::Full;

use bytes::Bytes;

use super::contract::Outgoing;

/// Headers that frame a message or belong to one hop. They are the writer's, never the draft's.
const FRAMING: [&str; 10] = [
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
];

/// Where a connection leads: what the target must name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Goal {
    pub(super) tls: bool,
    /// Lower case, IPv6 without brackets.
    pub(super) host: String,
    pub(super) port: u16,
}

/// Builds the request for a connection that leads to `goal`.
///
/// # Errors
///
/// A sentence without data: the target leads elsewhere, or something cannot be written as
/// HTTP/1.1. Nothing was sent.
pub(super) fn build(outgoing: &Outgoing, goal: &Goal) -> Result<Request<Full<Bytes>>, String> {
    let method =
        Method::from_bytes(outgoing.method.as_bytes()).map_err(|_| "the method is not an HTTP token".to_owned())?;
    if method == Method::CONNECT {
        return Err("CONNECT is never sent".to_owned());
    }
    let (authority, origin_form) = split_target(&outgoing.target)?;
    if !leads_to(&outgoing.target, authority, goal) {
        return Err("the target names another upstream than the connection leads to".to_owned());
    }
    let uri = Uri::try_from(origin_form).map_err(|_| "the target's path cannot be written as HTTP/1.1".to_owned())?;
    if uri.path_and_query().map(http::uri::PathAndQuery::as_str) != Some(origin_form) {
        return Err("the target's path cannot be written exactly".to_owned());
    }
    let mut request = Request::new(Full::new(outgoing.body.clone()));
    *request.headers_mut() = headers(outgoing, &method, authority)?;
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.version_mut() = Version::HTTP_11;
    Ok(request)
}

/// Authority, and path and query.
fn split_target(target: &str) -> Result<(&str, &str), String> {
    let rest = target
        .strip_prefix("https://")
        .or_else(|| target.strip_prefix("http://"))
        .ok_or_else(|| "the target is not an absolute http or https URL".to_owned())?;
    let path = rest.find(['/', '?', '#']).ok_or_else(|| "the target has no path".to_owned())?;
    let (authority, origin_form) = rest.split_at(path);
    if !origin_form.starts_with('/') || origin_form.contains('#') {
        return Err("the target's path does not begin with a slash, or it has a fragment".to_owned());
    }
    Ok((authority, origin_form))
}

fn leads_to(target: &str, authority: &str, goal: &Goal) -> bool {
    let tls = target.starts_with("https://");
    let (host, port) = match authority.strip_prefix('[') {
        Some(v6) => match v6.split_once(']') {
            Some((host, port)) => (host, port.strip_prefix(':').or(port.is_empty().then_some(""))),
            None => return false,
        },
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, Some("")),
        },
    };
    let port = match port {
        Some("") => Some(if tls { 443 } else { 80 }),
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().ok(),
        _ => None,
    };
    tls == goal.tls && host.eq_ignore_ascii_case(&goal.host) && port == Some(goal.port)
}

fn headers(outgoing: &Outgoing, method: &Method, authority: &str) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    let host = HeaderValue::from_str(authority).map_err(|_| "the target's host cannot be a header value".to_owned())?;
    headers.insert(HOST, host);
    for (name, value) in &outgoing.headers {
        let known =
            HeaderName::from_bytes(name.as_bytes()).map_err(|_| "a header's name is not an HTTP token".to_owned())?;
        if FRAMING.contains(&known.as_str()) {
            return Err(format!("the header {known} is set by the guard alone"));
        }
        let value = HeaderValue::from_bytes(value.as_bytes())
            .map_err(|_| format!("the value of the header {known} has control characters"))?;
        headers.try_append(known, value).map_err(too_many)?;
    }
    // A method that defines a body says how long it is, also when it is empty (RFC 9110, 8.6).
    let defines_body = ![Method::GET, Method::HEAD, Method::OPTIONS, Method::DELETE, Method::TRACE].contains(method);
    if defines_body || !outgoing.body.is_empty() {
        headers.try_insert(CONTENT_LENGTH, HeaderValue::from(outgoing.body.len())).map_err(too_many)?;
    }
    headers.try_insert(CONNECTION, HeaderValue::from_static("close")).map_err(too_many)?;
    Ok(headers)
}

fn too_many(_: http::header::MaxSizeReached) -> String {
    "there are too many headers".to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn goal() -> Goal {
        Goal { tls: true, host: "api.example.com".to_owned(), port: 443 }
    }

    fn outgoing(method: &str, target: &str, body: &'static str) -> Outgoing {
        Outgoing {
            method: method.to_owned(),
            target: target.to_owned(),
            headers: Vec::new(),
            body: Bytes::from_static(body.as_bytes()),
            response_bytes_max: 1024,
        }
    }

    #[test]
    fn the_target_goes_out_byte_for_byte() {
        for path in ["/", "/a/b?x=1&y=%2F", "/a%20b/%C3%A4", "/?", "//a//b", "/a;p=1/:b@c?q=/?", "/a?b={c}|d"] {
            let request = build(&outgoing("POST", &format!("https://api.example.com{path}"), ""), &goal()).unwrap();
            assert_eq!(request.uri().to_string(), path);
        }
    }

    #[test]
    fn a_target_that_leads_elsewhere_is_refused() {
        for target in [
            "http://api.example.com/",
            "https://api.example.com:444/",
            "https://api.example.com.evil.test/",
            "https://user@api.example.com/",
            "https://api.example.com@evil.test/",
            "https://api.example.com:443:443/",
            "https://api.example.com:+443/",
            "https://[api.example.com/",
            "https://[api.example.com]x/",
            "https:///",
            "https://api.example.com",
            "https://api.example.com?x=1",
            "https://api.example.com/a#b",
            "https://api.example.com/a b",
            "https://api.example.com/a\r\nX: y",
            "ftp://api.example.com/",
            "/a",
            "",
        ] {
            assert!(build(&outgoing("POST", target, ""), &goal()).is_err(), "{target:?}");
        }
        for target in ["https://api.example.com/", "https://api.example.com:443/", "https://API.example.com/"] {
            assert!(build(&outgoing("POST", target, ""), &goal()).is_ok(), "{target:?}");
        }
        let v6 = Goal { tls: false, host: "::1".to_owned(), port: 8080 };
        assert!(build(&outgoing("POST", "http://[::1]:8080/", ""), &v6).is_ok());
        assert!(build(&outgoing("POST", "http://[::1]/", ""), &v6).is_err());
    }

    #[test]
    fn content_length_is_sent_where_a_body_is_defined_or_present() {
        let length = |method: &str, body| {
            let request = build(&outgoing(method, "https://api.example.com/", body), &goal()).unwrap();
            request.headers().get(CONTENT_LENGTH).map(|value| value.to_str().unwrap().to_owned())
        };
        for method in ["POST", "PUT", "PATCH", "PURGE"] {
            assert_eq!(length(method, ""), Some("0".to_owned()), "{method}");
            assert_eq!(length(method, "abc"), Some("3".to_owned()), "{method}");
        }
        for method in ["GET", "HEAD", "DELETE", "OPTIONS"] {
            assert_eq!(length(method, ""), None, "{method}");
            assert_eq!(length(method, "abc"), Some("3".to_owned()), "{method}");
        }
    }

    #[test]
    fn what_cannot_be_written_is_refused_and_never_echoed() {
        let with = |name: &str, value: &str| {
            let mut call = outgoing("POST", "https://api.example.com/", "");
            call.headers.push((name.to_owned(), value.to_owned()));
            build(&call, &goal())
        };
        for (name, value) in [
            ("X-A", "sec\r\nret: 1"),
            ("X-A", "sec\nret"),
            ("X-A", "sec\0ret"),
            ("X A", "secret"),
            ("", "secret"),
            ("X-A\r\n", "secret"),
            ("Host", "secret"),
            ("content-length", "secret"),
            ("Transfer-Encoding", "secret"),
            ("CONNECTION", "secret"),
            ("Upgrade", "secret"),
            ("TE", "secret"),
        ] {
            let why = with(name, value).unwrap_err();
            assert!(!why.contains("sec"), "{why}");
        }
        assert!(with("X-A", "a\tb ä").is_ok());
        assert!(build(&outgoing("PO ST", "https://api.example.com/", ""), &goal()).is_err());
        assert!(build(&outgoing("", "https://api.example.com/", ""), &goal()).is_err());
        assert!(build(&outgoing("CONNECT", "https://api.example.com/", ""), &goal()).is_err());
        let mut many = outgoing("POST", "https://api.example.com/", "");
        many.headers = (0..40_000).map(|n| (format!("x-{n}"), String::new())).collect();
        assert!(build(&many, &goal()).is_err());
    }
}
