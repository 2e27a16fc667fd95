#![allow(clippy::unwrap_used)]

use http::{HeaderName, HeaderValue};

use super::*;

fn headers(lines: &[(&str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in lines {
        map.append(
            HeaderName::from_bytes(name.as_bytes()).unwrap(),
            HeaderValue::from_bytes(value.as_bytes()).unwrap(),
        );
    }
    map
}

fn read(method: &str, target: &str, lines: &[(&str, &str)]) -> Result<Head<'static>, Code> {
    let mut all = vec![("Host", "pay.test")];
    all.extend_from_slice(lines);
    Head::read(method, target.as_bytes(), false, &headers(&all)).map(Head::into_owned).map_err(|refusal| refusal.code)
}

fn with_hosts(target: &str, hosts: &[&str]) -> Result<Head<'static>, Code> {
    let lines: Vec<_> = hosts.iter().map(|host| ("Host", *host)).collect();
    Head::read("POST", target.as_bytes(), false, &headers(&lines)).map(Head::into_owned).map_err(|refusal| refusal.code)
}

#[test]
fn an_ordinary_head_is_read_as_it_came() {
    let head = read("PATCH", "/todos/7?a=%20b&x", &[("Expect", "100-Continue")]).unwrap();
    assert_eq!((head.method.as_str(), head.host.as_str(), head.port), ("PATCH", "pay.test", None));
    assert_eq!((head.path.as_str(), head.query.as_deref()), ("/todos/7", Some("a=%20b&x")));
    assert!(head.expects_continue && head.upgrade.is_none() && head.form == Form::Origin);
    assert_eq!(read("GET", "/?", &[]).unwrap().query.as_deref(), Some(""));
    assert_eq!(read("GET", "/", &[]).unwrap().query, None);
    assert_eq!(read("get", "/", &[]).unwrap().method.as_str(), "get");
}

#[test]
fn p2_the_query_is_kept_byte_for_byte() {
    for query in
        ["a=2&a=1", "q=C%2B%2B", "q=C++", "q=C%20%20", "x", "x=", "a=1;b=2", "%61=1", "filter[x]={\"y\"}", "%zz"]
    {
        assert_eq!(read("POST", &format!("/ok/q?{query}"), &[]).unwrap().query.as_deref(), Some(query));
    }
}

#[test]
fn hosts_that_two_hops_could_take_for_two() {
    for hosts in [
        &["a.test", "pay.test"][..],
        &["pay.test", "a.test"],
        &["pay.test", "pay.test"],
        &[],
        &["pay.test@evil"],
        &[""],
        &["a b"],
    ] {
        assert_eq!(with_hosts("/ok", hosts).unwrap_err(), Code::RequestAmbiguous, "{hosts:?}");
    }
    let head = with_hosts("/ok", &["PAY.test.:8080"]).unwrap();
    assert_eq!((head.host.as_str(), head.port), ("pay.test", Some(8080)));
}

#[test]
fn an_absolute_target_must_agree_with_host() {
    let head = with_hosts("http://api.pay.test/ok/pay/r?x=1", &["API.pay.test:80"]).unwrap();
    assert_eq!((head.host.as_str(), head.path.as_str()), ("api.pay.test", "/ok/pay/r"));
    assert_eq!(head.form, Form::Absolute { https: false });
    assert!(with_hosts("HTTPS://api.pay.test/", &["api.pay.test:443"]).is_ok());
    for (target, host) in [
        ("http://api.pay.test/ok/pay/r", "public.test"),
        ("http://api.pay.test:8080/", "api.pay.test"),
        ("https://api.pay.test/", "api.pay.test:80"),
        ("http://user@api.pay.test/", "api.pay.test"),
        ("ftp://api.pay.test/", "api.pay.test"),
        ("http:///ok", "api.pay.test"),
        ("http://api.pay.test", "api.pay.test"),
        ("http://api.pay.test?x", "api.pay.test"),
        ("http:/ok", "api.pay.test"),
        ("api.pay.test:443", "api.pay.test"),
        ("*", "api.pay.test"),
        ("ok", "api.pay.test"),
        ("http://api.pay.test\\@evil/", "api.pay.test"),
    ] {
        assert_eq!(with_hosts(target, &[host]).unwrap_err(), Code::RequestAmbiguous, "{target} {host}");
    }
    assert_eq!(with_hosts("http://api.pay.test/", &[]).unwrap_err(), Code::RequestAmbiguous);
    let none = HeaderMap::new();
    let old = Head::read("GET", b"http://api.pay.test/", true, &none).unwrap();
    assert_eq!(old.host, "api.pay.test");
    assert!(Head::read("GET", b"/", true, &none).is_err());
}

#[test]
fn methods_that_are_never_forwarded() {
    for method in ["TRACE", "CONNECT", "", "A B", "GE\u{e9}T", "AVERYLONGMETHODNAMETHATNOBODYEVERUSES"] {
        assert_eq!(read(method, "/", &[]).unwrap_err(), Code::MethodRefused, "{method}");
    }
    for method in ["PROPFIND", "delete", "trace", "PURGE"] {
        assert!(read(method, "/", &[]).is_ok(), "{method}");
    }
    let all = read("OPTIONS", "*", &[]).unwrap();
    assert_eq!((all.form, all.path.as_str()), (Form::Asterisk, "*"));
}

#[test]
fn targets_with_raw_bytes_or_fragments_are_refused() {
    for target in [
        &b""[..],
        b"/a b",
        b"/a\tb",
        b"/a\x00",
        b"/a\x7f",
        b"/caf\xc3\xa9",
        b"/a?q=\xff",
        b"/a#b",
        b"/a?q=1#b",
        b"/a?q=1 2",
    ] {
        let refusal = Head::read("GET", target, false, &headers(&[("Host", "a")])).unwrap_err();
        assert_eq!(refusal.code, Code::RequestAmbiguous, "{target:?}");
    }
}

#[test]
fn p1_a_method_cannot_be_claimed_twice() {
    for name in [
        "X-HTTP-Method-Override",
        "X-HTTP-Method",
        "X-Method-Override",
        "x_http_method_override",
        "X-Http_Method-Override",
        "X-Original-URL",
        "X-Rewrite-URL",
    ] {
        for method in ["GET", "POST"] {
            assert_eq!(read(method, "/ok/users/7", &[(name, "DELETE")]).unwrap_err(), Code::RequestAmbiguous, "{name}");
        }
    }
    for query in [
        "_method=DELETE",
        "a=1&_method=put",
        "%5Fmethod=DELETE",
        "_method",
        "a=1;_method=DELETE",
        ".method=DELETE",
        "X-HTTP-Method-Override=PUT",
    ] {
        assert_eq!(read("GET", &format!("/ok/users/7?{query}"), &[]).unwrap_err(), Code::RequestAmbiguous, "{query}");
    }
    for query in ["method=card", "payment_method=card", "q=_method", "_methods=1", "__method=1", "x-http=1"] {
        assert!(read("GET", &format!("/ok?{query}"), &[]).is_ok(), "{query}");
    }
    assert!(read("GET", "/ok", &[("X-HTTP-Methods", "x"), ("X-Request-Id", "1")]).is_ok());
}

#[test]
fn the_guards_own_headers_do_not_come_in() {
    for name in [
        "Countersign-Draft",
        "Countersign-Status",
        "countersign_draft",
        "Countersign_Agent",
        "Countersign-Owner",
        "Countersign-",
    ] {
        assert_eq!(read("POST", "/", &[(name, "x")]).unwrap_err(), Code::RequestAmbiguous, "{name}");
    }
    for name in ["Countersign-Agent", "Countersign-Continuation", "Countersigned"] {
        assert!(read("POST", "/", &[(name, "x")]).is_ok(), "{name}");
    }
}

#[test]
fn expectations_and_upgrades() {
    for value in ["200-ok", "", "100-continue, x"] {
        assert_eq!(read("POST", "/", &[("Expect", value)]).unwrap_err(), Code::ExpectationFailed, "{value}");
    }
    let twice = [("Expect", "100-continue"), ("Expect", "100-continue")];
    assert_eq!(read("POST", "/", &twice).unwrap_err(), Code::ExpectationFailed);
    for (value, upgrade) in [
        ("WebSocket", Upgrade::WebSocket),
        ("h2c", Upgrade::H2c),
        ("h2c, websocket", Upgrade::Other),
        ("foo", Upgrade::Other),
    ] {
        assert_eq!(read("GET", "/", &[("Upgrade", value)]).unwrap().upgrade, Some(upgrade));
    }
    assert_eq!(
        read("GET", "/", &[("Upgrade", "websocket"), ("Upgrade", "h2c")]).unwrap().upgrade,
        Some(Upgrade::Other)
    );
}

#[test]
fn write_capable_services_take_no_bodies_on_safe_methods_and_no_odd_paths() {
    for method in ["GET", "HEAD", "OPTIONS"] {
        for line in [("Content-Length", "2"), ("Transfer-Encoding", "chunked")] {
            let refusal = read(method, "/", &[line]).unwrap().check_write_capable().unwrap_err();
            assert_eq!(refusal.code, Code::RequestAmbiguous, "{method}");
        }
        assert!(read(method, "/", &[("Content-Length", "0")]).unwrap().check_write_capable().is_ok());
        assert!(read(method, "/", &[]).unwrap().check_write_capable().is_ok());
    }
    assert!(read("POST", "/", &[("Content-Length", "2")]).unwrap().check_write_capable().is_ok());
    for path in ["/ok/pay//r", "//ok/pay/r", "/ok/pay/r/", "/a%2Fb", "/a;b"] {
        assert_eq!(
            read("GET", path, &[]).unwrap().check_write_capable().unwrap_err().code,
            Code::RequestAmbiguous,
            "{path}"
        );
    }
    for path in ["/ok/public/../pay/r", "/ok/public/%2e%2e/pay/r", "/ok/./pay/r"] {
        assert_eq!(read("GET", path, &[]).unwrap_err(), Code::RequestAmbiguous, "{path}");
    }
}
