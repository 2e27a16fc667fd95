//! Whether a browser's request comes from our own page.
//!
//! Owns the public address, the names under which the console answers (against DNS rebinding),
//! and the checks of `Origin` and `Sec-Fetch-Site` on every form (against cross-site requests).
//! Must never trust a header that a foreign page could set.

use std::net::IpAddr;

use http::{HeaderMap, Uri, header};

/// `public_url` is not usable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("public_url {why}: give the address at which people open the console, such as https://guard.example")]
pub struct BadPublicUrl {
    why: &'static str,
}

/// `http(s)://host[:port]`, without a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PublicUrl {
    text: String,
    https: bool,
    authority: Authority,
}

/// Host and port, in the one spelling that is compared.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Authority {
    /// Lower case, without a trailing dot, an IPv6 address without brackets.
    host: String,
    /// As it stands; `None` is the scheme's own.
    port: Option<u16>,
}

impl PublicUrl {
    pub(super) fn parse(text: &str) -> Result<Self, BadPublicUrl> {
        let bad = |why| BadPublicUrl { why };
        let text = text.trim_end_matches('/');
        let (https, rest) = match text.split_once("://") {
            Some(("https", rest)) => (true, rest),
            Some(("http", rest)) => (false, rest),
            _ => return Err(bad("does not begin with http:// or https://")),
        };
        if rest.contains(['/', '?', '#', '@']) {
            return Err(bad("has a path, a query or a user name"));
        }
        let authority = Authority::parse(rest).ok_or_else(|| bad("names no host"))?;
        Ok(Self { text: text.to_owned(), https, authority: authority.for_scheme(https) })
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    pub(super) const fn is_https(&self) -> bool {
        self.https
    }

    /// Whether `Host` names the console: the public address, or the machine itself. A name that
    /// somebody else's DNS points here is neither.
    pub(super) fn answers_to(&self, headers: &HeaderMap) -> bool {
        self.host_of(headers).is_some()
    }

    fn host_of(&self, headers: &HeaderMap) -> Option<Authority> {
        let host = Authority::parse(single(headers, &header::HOST)?)?;
        let public = host.clone().for_scheme(self.https) == self.authority;
        (public || host.is_loopback()).then_some(host)
    }

    /// Whether a form was sent by a page of the console.
    ///
    /// # Errors
    ///
    /// What is wrong, in a sentence.
    pub(super) fn sent_by_our_page(&self, headers: &HeaderMap) -> Result<(), &'static str> {
        let Some(host) = self.host_of(headers) else {
            return Err("The Host header names neither public_url nor this machine.");
        };
        let Some(origin) = single(headers, &header::ORIGIN) else {
            return Err("There is no Origin header, or more than one. Send the form from the console's own page.");
        };
        let (https, from) = match origin.split_once("://") {
            Some(("https", rest)) => (true, Authority::parse(rest)),
            Some(("http", rest)) => (false, Authority::parse(rest)),
            _ => (false, None),
        };
        let Some(from) = from else { return Err("The Origin header names no page of the console.") };
        let public = https == self.https && from.clone().for_scheme(https) == self.authority;
        let local = from == host && from.is_loopback();
        if !public && !local {
            return Err("The Origin header names another site.");
        }
        match headers.get_all("sec-fetch-site").iter().map(|site| site.as_bytes()).collect::<Vec<_>>()[..] {
            [] | [b"same-origin"] => Ok(()),
            _ => Err("The browser says that another site sent this form."),
        }
    }
}

impl Authority {
    fn parse(text: &str) -> Option<Self> {
        // `Uri` takes `host[:port]` as an authority and refuses everything that is not one.
        let uri: Uri = text.parse().ok()?;
        let authority = uri.authority()?;
        let plain = uri.scheme().is_none() && uri.path_and_query().is_none() && !authority.as_str().contains('@');
        let written_port = authority.as_str().rsplit_once(':').filter(|(host, _)| !host.is_empty());
        let bracketed = authority.as_str().ends_with(']');
        if !bracketed && written_port.is_some() && authority.port_u16().is_none() {
            return None;
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        (plain && !host.is_empty()).then(|| Self { host, port: authority.port_u16() })
    }

    fn for_scheme(mut self, https: bool) -> Self {
        if self.port == Some(if https { 443 } else { 80 }) {
            self.port = None;
        }
        self
    }

    fn is_loopback(&self) -> bool {
        self.host == "localhost" || self.host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

fn single<'h>(headers: &'h HeaderMap, name: &header::HeaderName) -> Option<&'h str> {
    let mut all = headers.get_all(name).iter();
    let first = all.next()?.to_str().ok()?;
    all.next().is_none().then_some(first)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, value.parse().unwrap());
        }
        map
    }

    #[test]
    fn public_urls_are_scheme_host_and_port_alone() {
        for good in ["http://127.0.0.1:7071", "https://guard.example", "https://guard.example/", "http://[::1]:7071"] {
            assert!(PublicUrl::parse(good).is_ok(), "{good}");
        }
        for bad in
            ["", "guard.example", "ftp://x", "https://", "https://a/b", "https://u@a", "https://a?x", "http://a:x"]
        {
            assert!(PublicUrl::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_console_answers_to_its_own_names_only() {
        let public = PublicUrl::parse("https://guard.example").unwrap();
        for good in ["guard.example", "GUARD.example.", "guard.example:443", "localhost:9", "127.0.0.1", "[::1]:7071"] {
            assert!(public.answers_to(&headers(&[("host", good)])), "{good}");
        }
        for bad in ["evil.test", "guard.example.evil.test", "guard.example:8443", "127.0.0.1.evil.test", "10.0.0.1", ""]
        {
            assert!(!public.answers_to(&headers(&[("host", bad)])), "{bad}");
        }
        assert!(!public.answers_to(&headers(&[])));
        assert!(!public.answers_to(&headers(&[("host", "guard.example"), ("host", "evil.test")])));
    }

    #[test]
    fn a_form_comes_from_our_page_or_is_refused() {
        let public = PublicUrl::parse("https://guard.example").unwrap();
        let good: [&[(&str, &str)]; 5] = [
            &[("host", "guard.example"), ("origin", "https://guard.example")],
            &[("host", "guard.example"), ("origin", "https://guard.example:443"), ("sec-fetch-site", "same-origin")],
            &[("host", "127.0.0.1:7071"), ("origin", "http://127.0.0.1:7071")],
            // A proxy in front of the guard that rewrites Host.
            &[("host", "127.0.0.1:7071"), ("origin", "https://guard.example")],
            &[("host", "localhost:7071"), ("origin", "http://localhost:7071")],
        ];
        for set in good {
            assert_eq!(public.sent_by_our_page(&headers(set)), Ok(()), "{set:?}");
        }
        let bad: [&[(&str, &str)]; 9] = [
            &[("host", "guard.example")],
            &[("host", "guard.example"), ("origin", "null")],
            &[("host", "guard.example"), ("origin", "https://evil.test")],
            &[("host", "guard.example"), ("origin", "http://guard.example")],
            &[("host", "evil.test"), ("origin", "http://evil.test")],
            &[("host", "127.0.0.1:7071"), ("origin", "http://127.0.0.1:3000")],
            &[("host", "127.0.0.1:7071"), ("origin", "http://localhost:7071")],
            &[("host", "guard.example"), ("origin", "https://guard.example"), ("sec-fetch-site", "cross-site")],
            &[("host", "guard.example"), ("origin", "https://guard.example"), ("origin", "https://evil.test")],
        ];
        for set in bad {
            assert!(public.sent_by_our_page(&headers(set)).is_err(), "{set:?}");
        }
    }
}
