//! The head of a request, checked for everything that two parsers could read in two ways.
//!
//! Owns method, host, path and query, and the headers that try to change them behind a policy's
//! back. Must never judge whether a call is allowed. Framing is judged before ([`super::framing`]).

use std::borrow::Cow;

use http::{HeaderMap, HeaderValue, Method, header};

use crate::base::code::Code;
use crate::base::refusal::Refusal;

use super::authority::Authority;
use super::hop::is_hop_by_hop;
use super::path::NormalPath;
use super::query;

#[cfg(test)]
mod tests;

/// In which form the target came (RFC 9112 section 3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `/path?query`.
    Origin,
    /// `http://host/path?query`, as to a forward proxy.
    Absolute {
        /// Whether the scheme is https.
        https: bool,
    },
    /// `*`, only with OPTIONS.
    Asterisk,
}

/// To which protocol a request wants to switch its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upgrade {
    /// `websocket` alone.
    WebSocket,
    /// HTTP/2 in clear text.
    H2c,
    /// Anything else, or several at once.
    Other,
}

/// Which of the headers that decide something a head has, found in the one walk that reads it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Present {
    /// `Transfer-Encoding`, or a `Content-Length` that is not `0`: a body that is not empty.
    pub body: bool,
    /// `Cookie`.
    pub cookie: bool,
    /// A header that may carry a credential, by its name: `Authorization`, `Proxy-Authorization`,
    /// `Countersign-Agent`, or one of the many other names ([`may_carry_credential`]).
    pub credential: bool,
    /// A header that is meant for this connection alone (RFC 9110 section 7.6.1) and is more than a
    /// `Connection` of `keep-alive` or `close`: then whoever forwards the head has something to strip.
    pub hop_by_hop: bool,
}

/// The head of a call, after the framing, path and host rules. It borrows the headers: a read needs
/// no copy of them, and a write makes one when it outlives its session ([`Head::into_owned`]).
#[derive(Debug, Clone)]
pub struct Head<'h> {
    /// The method, case-sensitive.
    pub method: Method,
    /// Host without port, lower case, without a trailing dot; an IPv6 address without brackets.
    pub host: String,
    /// The port, where the authority names one.
    pub port: Option<u16>,
    /// The path in normal form; [`Head::check_write_capable`] refuses one that is not.
    pub path: NormalPath,
    /// The query as it came, without `?`; `Some("")` for a bare `?`.
    pub query: Option<String>,
    /// Which of the headers that decide something there are.
    pub present: Present,
    /// All headers as they came.
    pub headers: Cow<'h, HeaderMap>,
    /// The form of the target.
    pub form: Form,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    /// The upgrade that is asked for, by whatever `Upgrade` header there is.
    pub upgrade: Option<Upgrade>,
}

impl<'h> Head<'h> {
    /// Reads method, target and headers. `target` is the request target as it came; `http10` says
    /// that the request is HTTP/1.0.
    ///
    /// # Errors
    ///
    /// `METHOD_REFUSED` for TRACE, CONNECT and what is no method; `EXPECTATION_FAILED` for any
    /// `Expect` but `100-continue`; `REQUEST_AMBIGUOUS` for a target in another form, a host that is
    /// missing, doubled, malformed or other than the target's, a method or path override by header
    /// or parameter, and inbound headers of the guard's own.
    pub fn read(method: &str, target: &[u8], http10: bool, headers: &'h HeaderMap) -> Result<Self, Refusal> {
        let method = read_method(method)?;
        let Walked { present, host, expect, upgrade } = walk(headers)?;
        let (form, authority, rest) = one_authority(&method, target, http10, host)?;
        let (path, query) = match rest.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned())),
            None => (rest, None),
        };
        let path = match form {
            Form::Asterisk => NormalPath::asterisk(),
            Form::Origin | Form::Absolute { .. } => NormalPath::lift(path)?,
        };
        if query.as_deref().is_some_and(query::names_method_override) {
            return Err(override_parameter());
        }
        Ok(Self {
            method,
            host: authority.host,
            port: authority.port,
            path,
            query,
            form,
            expects_continue: expect.is_some(),
            upgrade,
            present,
            headers: Cow::Borrowed(headers),
        })
    }

    /// The head with headers of its own.
    #[must_use]
    pub fn into_owned(self) -> Head<'static> {
        let Self { method, host, port, path, query, present, headers, form, expects_continue, upgrade } = self;
        let headers = Cow::Owned(headers.into_owned());
        Head { method, host, port, path, query, present, headers, form, expects_continue, upgrade }
    }

    /// Whether the method promises to change nothing and needs no body: GET, HEAD and OPTIONS.
    #[must_use]
    pub fn is_safe(&self) -> bool {
        matches!(self.method, Method::GET | Method::HEAD | Method::OPTIONS)
    }

    /// Whether the head announces a body that is not empty.
    #[must_use]
    pub const fn announces_body(&self) -> bool {
        self.present.body
    }

    /// The further rules of services that take writes, that is of every service not marked
    /// `read_only: true`: the path must be in its normal form, and a safe method has no body.
    ///
    /// # Errors
    ///
    /// `REQUEST_AMBIGUOUS`.
    pub fn check_write_capable(&self) -> Result<(), Refusal> {
        if self.path.flaw().is_some() {
            NormalPath::parse(self.path.as_str())?;
        }
        if self.is_safe() && self.announces_body() {
            return Err(ambiguous("GET, HEAD and OPTIONS take no body here"));
        }
        Ok(())
    }
}

fn ambiguous(why: &str) -> Refusal {
    Refusal::new(
        Code::RequestAmbiguous,
        format!("The request could be read in two ways: {why}. Nothing was sent; send it in one unambiguous form."),
    )
}

/// The refusal of a parameter that claims another method.
pub(super) fn override_parameter() -> Refusal {
    ambiguous("a parameter claims another method than the request line")
}

/// Whether a parameter of this (decoded) name would make some frameworks take another method than
/// the request line's. PHP takes `.`, ` ` and `[` in names for `_`.
pub(super) fn is_method_override(name: &str) -> bool {
    let name = name.replace(['.', ' ', '['], "_");
    name.eq_ignore_ascii_case("_method") || is_override_header(&name.to_ascii_lowercase())
}

/// Headers by which frameworks take another method or path than the request line's.
const OVERRIDES: [&str; 5] =
    ["x-http-method-override", "x-http-method", "x-method-override", "x-original-url", "x-rewrite-url"];

/// Whether `name`, in lower case, is one of [`OVERRIDES`] with `-` or `_`.
fn is_override_header(name: &str) -> bool {
    let same = |(one, known): (u8, u8)| one == known || one == b'_' && known == b'-';
    OVERRIDES.iter().any(|known| known.len() == name.len() && name.bytes().zip(known.bytes()).all(same))
}

/// Refuses a header by its name; tells whether it is the one that names the agent.
fn check_header_name(name: &str) -> Result<bool, Refusal> {
    if name.starts_with('x') && is_override_header(name) {
        return Err(ambiguous(&format!("the header `{name}` claims another method or path than the request line")));
    }
    let own =
        name.starts_with("countersign") && name.as_bytes().get(11).is_some_and(|byte| matches!(byte, b'-' | b'_'));
    if own && !matches!(name, "countersign-agent" | "countersign-continuation") {
        return Err(ambiguous("a header that begins with `Countersign-` is one that only the guard sets"));
    }
    Ok(name == "countersign-agent" || may_carry_credential(name))
}

/// Whether a header of this name, in lower case, may carry a credential: `x-api-key`,
/// `private-token`, `x-auth`. Says yes too often rather than too rarely.
#[must_use]
pub fn may_carry_credential(name: &str) -> bool {
    // Byte by byte: a pattern of texts would be compared text by text, for every header of every read.
    let says = |three: &[u8]| {
        matches!(
            three,
            [b'a', b'u', b't']
                | [b'k', b'e', b'y']
                | [b't', b'o', b'k']
                | [b's', b'e', b'c']
                | [b'p', b'a', b's']
                | [b'c', b'r', b'e']
                | [b'j', b'w', b't']
                | [b'b', b'e', b'a']
        )
    };
    name.as_bytes().windows(3).any(says)
}

fn read_method(method: &str) -> Result<Method, Refusal> {
    let refused = |why: &str| Refusal::new(Code::MethodRefused, format!("{why} Nothing was sent."));
    match method {
        "TRACE" => Err(refused("TRACE is never forwarded: it would show the guard's own headers.")),
        "CONNECT" => Err(refused("This listener opens no tunnels; call the guard's address instead.")),
        _ if method.len() > 32 => Err(refused("The method is longer than 32 characters.")),
        _ => Method::from_bytes(method.as_bytes()).map_err(|_| refused("The method is not an HTTP token.")),
    }
}

/// The target as text: visible ASCII only, no fragment.
fn read_target(target: &[u8]) -> Result<&str, Refusal> {
    let plain =
        target.iter().fold(!target.is_empty(), |plain, byte| plain & (byte.is_ascii_graphic() & (*byte != b'#')));
    std::str::from_utf8(target).ok().filter(|_| plain).ok_or_else(|| {
        ambiguous(if target.contains(&b'#') {
            "the target has a fragment"
        } else {
            "the target has a space, a control character or a byte beyond ASCII; percent-encode it"
        })
    })
}

/// What one walk over the headers finds.
#[derive(Default)]
struct Walked<'h> {
    present: Present,
    host: Option<&'h HeaderValue>,
    expect: Option<&'h HeaderValue>,
    upgrade: Option<Upgrade>,
}

/// Walks over all headers once: each look-up by name would cost as much.
fn walk(headers: &HeaderMap) -> Result<Walked<'_>, Refusal> {
    let mut walked = Walked::default();
    for (name, value) in headers {
        match name.as_str() {
            "host" => {
                if walked.host.replace(value).is_some() {
                    return Err(two_hosts());
                }
            }
            "expect" => {
                let again = walked.expect.replace(value).is_some();
                if again || !value.as_bytes().eq_ignore_ascii_case(b"100-continue") {
                    let detail = "The only expectation that can be met is `Expect: 100-continue`. Nothing was sent.";
                    return Err(Refusal::new(Code::ExpectationFailed, detail));
                }
            }
            "upgrade" => {
                walked.present.hop_by_hop = true;
                walked.upgrade = Some(match value.as_bytes() {
                    _ if walked.upgrade.is_some() => Upgrade::Other,
                    value if value.eq_ignore_ascii_case(b"websocket") => Upgrade::WebSocket,
                    value if value.eq_ignore_ascii_case(b"h2c") => Upgrade::H2c,
                    _ => Upgrade::Other,
                });
            }
            "content-length" => walked.present.body |= value != "0",
            "transfer-encoding" => (walked.present.body, walked.present.hop_by_hop) = (true, true),
            "cookie" => walked.present.cookie = true,
            "authorization" => walked.present.credential = true,
            "proxy-authorization" => (walked.present.credential, walked.present.hop_by_hop) = (true, true),
            "connection" => walked.present.hop_by_hop |= !is_plain_connection(value.as_bytes()),
            "close" => walked.present.hop_by_hop = true,
            other if is_hop_by_hop(other) => walked.present.hop_by_hop = true,
            other => walked.present.credential |= check_header_name(other)?,
        }
    }
    Ok(walked)
}

/// Whether a `Connection` names no header that it would take along.
fn is_plain_connection(value: &[u8]) -> bool {
    value.eq_ignore_ascii_case(b"keep-alive") || value.eq_ignore_ascii_case(b"close")
}

fn two_hosts() -> Refusal {
    ambiguous("it has two `Host` headers")
}

fn read_host(value: &HeaderValue) -> Result<Authority, Refusal> {
    let text = std::str::from_utf8(value.as_bytes()).map_err(|_| ambiguous("`Host` is not ASCII"))?;
    Authority::parse(text).map_err(|why| ambiguous(&format!("`Host` {why}")))
}

/// The form of the target, its authority in absolute form, and path and query.
fn split_target<'a>(method: &Method, text: &'a str) -> Result<(Form, Option<Authority>, &'a str), Refusal> {
    if text == "*" {
        return match *method {
            Method::OPTIONS => Ok((Form::Asterisk, None, text)),
            _ => Err(ambiguous("only OPTIONS may ask for `*`")),
        };
    }
    if text.starts_with('/') {
        return Ok((Form::Origin, None, text));
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        return Err(ambiguous("the target is neither a path nor an http or https URL"));
    };
    let https = match scheme.to_ascii_lowercase().as_str() {
        "http" => false,
        "https" => true,
        _ => return Err(ambiguous("the target is neither a path nor an http or https URL")),
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let authority = Authority::parse(&rest[..end]).map_err(|why| ambiguous(&format!("the target's host {why}")))?;
    if !rest[end..].starts_with('/') {
        return Err(ambiguous("the target has no path; a client sends `/` for an empty one"));
    }
    Ok((Form::Absolute { https }, Some(authority), &rest[end..]))
}

/// Whether target and `Host` name one authority, for a listener that takes the request on from
/// there itself. `http10` says that the request is HTTP/1.0.
///
/// # Errors
///
/// `REQUEST_AMBIGUOUS` for a method that is none, a target in another form, and a host that is
/// missing, doubled, malformed or other than the target's.
pub fn check_authority(method: &str, target: &[u8], http10: bool, headers: &HeaderMap) -> Result<(), Refusal> {
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| ambiguous("its method is no token"))?;
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(two_hosts());
    }
    one_authority(&method, target, http10, host).map(|_| ())
}

/// The form of the target, the one authority of the request, and path and query.
fn one_authority<'a>(
    method: &Method,
    target: &'a [u8],
    http10: bool,
    host: Option<&HeaderValue>,
) -> Result<(Form, Authority, &'a str), Refusal> {
    let text = read_target(target)?;
    let named = host.map(read_host).transpose()?;
    let (form, authority, rest) = split_target(method, text)?;
    let authority = match (authority, named) {
        (Some(target), Some(named)) if !same(&target, &named, form) => {
            return Err(ambiguous("`Host` names another authority than the target"));
        }
        (Some(target), named) if named.is_some() || http10 => target,
        (None, Some(named)) => named,
        _ => return Err(ambiguous("it has no `Host`")),
    };
    Ok((form, authority, rest))
}

fn same(target: &Authority, named: &Authority, form: Form) -> bool {
    let https = matches!(form, Form::Absolute { https: true });
    target.host == named.host && target.port_or_default(https) == named.port_or_default(https)
}
