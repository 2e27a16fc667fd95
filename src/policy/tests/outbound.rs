use super::*;
use crate::base::code::Code;

fn names(prepared: &Prepared) -> Vec<&str> {
    prepared.request.headers.iter().map(|(name, _)| name.as_str()).collect()
}

fn header<'p>(prepared: &'p Prepared, name: &str) -> Option<&'p str> {
    prepared.request.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

const SENT: &[(&str, &str)] = &[
    ("Host", "guard.example"),
    ("Content-Type", "text/plain; charset=utf-8"),
    ("Content-Length", "1"),
    ("Transfer-Encoding", "chunked"),
    ("TE", "trailers"),
    ("Trailer", "x"),
    ("Upgrade", "h2c"),
    ("Keep-Alive", "1"),
    ("Connection", "close, X-Hop"),
    ("X-Hop", "1"),
    ("Expect", "100-continue"),
    ("Idempotency-Key", "mine"),
    ("Accept-Encoding", "gzip, br"),
    ("Accept", "application/json"),
    ("Authorization", "Bearer agent"),
    ("Cookie", "a=1"),
    ("Proxy-Authorization", "Basic x"),
    ("Countersign-Agent", "tok"),
    ("Countersign-Draft", "dr"),
    ("X-HTTP-Method-Override", "DELETE"),
    ("X-User-Id", "u1"),
    ("traceparent", "00-0"),
    ("Prefer", "wait=5, return=minimal"),
    ("Prefer", "respond-async"),
    ("If-Match", "\"3\""),
    ("X-Tenant", "a"),
    ("X-Tenant", "b"),
];

#[test]
fn only_what_belongs_to_the_call_goes_upstream() {
    let set = with_tool("", "{method: POST, path: /t}", "    bind_headers: [X-Tenant]\n");
    let prepared = judged(&set, head("POST", "/t", SENT), b"x", &who()).unwrap();
    assert_eq!(
        names(&prepared),
        ["content-type", "accept", "prefer", "if-match", "x-tenant", "x-tenant", "accept-encoding"]
    );
    assert_eq!(header(&prepared, "prefer"), Some("return=minimal"));
    assert_eq!(header(&prepared, "accept-encoding"), Some("identity"));
    let credentials = [("authorization", "Bearer agent"), ("cookie", "a=1")].map(|(n, v)| (n.to_owned(), v.to_owned()));
    assert_eq!(prepared.request.credentials, credentials);
    let bound =
        [("if-match", "\"3\""), ("x-tenant", "a"), ("x-tenant", "b")].map(|(n, v)| (n.to_owned(), v.to_owned()));
    assert_eq!(prepared.request.bound_headers, bound);
    assert_eq!(prepared.request.effect_key_header.as_deref(), Some("idempotency-key"));
    assert_eq!(prepared.request.body.content_type, "text/plain; charset=utf-8");
}

#[test]
fn p10_what_is_called_a_credential_is_sealed_apart_whatever_the_policy_names() {
    let sent = [
        ("X-Api-Key", "k"),
        ("API_KEY", "k"),
        ("Private-Token", "t"),
        ("X-Client-Secret", "s"),
        ("Authorization", "Bearer a"),
        ("Cookie", "c"),
        ("X-Plain", "p"),
    ];
    for rule in ["", ", credential_headers: []", ", credential_headers: [X-Plain]"] {
        let set = with_tool(rule, "{method: POST, path: /t}", "");
        let prepared = judged(&set, head("POST", "/t", &sent), b"", &who()).unwrap();
        let apart: Vec<&str> = prepared.request.credentials.iter().map(|(name, _)| name.as_str()).collect();
        for secret in ["x-api-key", "api_key", "private-token", "x-client-secret", "authorization", "cookie"] {
            assert!(apart.contains(&secret) && !names(&prepared).contains(&secret), "{rule}: {secret}");
        }
        assert_eq!(apart.contains(&"x-plain"), rule.contains("X-Plain"), "{rule}");
    }
}

#[test]
fn bound_headers_change_the_hash_and_others_do_not() {
    let set = with_tool("", "{method: POST, path: /t}", "    bind_headers: [X-Tenant]\n");
    let hash = |headers: &[(&str, &str)]| judged(&set, head("POST", "/t", headers), b"", &who()).unwrap().args_hash;
    let plain = hash(&[]);
    for bound in ["Content-Range", "If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since", "X-Tenant"]
    {
        assert_ne!(hash(&[(bound, "x")]), plain, "{bound}");
    }
    for free in ["Accept", "User-Agent", "X-Request-Id", "Authorization"] {
        assert_eq!(hash(&[(free, "x")]), plain, "{free}");
    }
}

#[test]
fn how_a_body_is_to_be_read_is_bound_and_shown_where_nothing_else_says_it() {
    let set = with_tool("", "{method: PATCH, path: /t}", "");
    let held = |lines: &[(&str, &str)], body: &[u8]| judged(&set, head("PATCH", "/t", lines), body, &who()).unwrap();
    let json = |media| held(&[("Content-Type", media)], br#"{"nick":null}"#);
    let plain = json("application/json");
    assert_eq!(json("Application/JSON; charset=utf-8").args_hash, plain.args_hash);
    assert!(!plain.preview.details.iter().any(|line| line.key.contains("header")));
    let patch = json("application/merge-patch+json");
    assert_ne!(patch.args_hash, plain.args_hash, "a null in a patch removes");
    let shown = patch.preview.details.iter().find(|line| line.key == "content-type (header)").unwrap();
    assert_eq!(shown.value, "application/merge-patch+json");
    // `abc` as gzip.
    let zipped: &[u8] = &[31, 139, 8, 0, 0, 0, 0, 0, 2, 255, 75, 76, 74, 6, 0, 194, 65, 36, 53, 3, 0, 0, 0];
    let opaque = ("Content-Type", "application/octet-stream");
    let coded = held(&[opaque, ("Content-Encoding", "gzip")], zipped);
    assert_ne!(coded.args_hash, held(&[opaque], zipped).args_hash);
    assert!(coded.preview.details.iter().any(|line| line.key == "content-encoding (header)" && line.value == "gzip"));
}

#[test]
fn the_policys_headers_replace_the_agents_and_are_bound() {
    let set = with_tool(", inject: {X-Acting-For: 'user {{ owner }}'}", "{method: POST, path: /t}", "");
    let prepared = judged(&set, head("POST", "/t", &[("X-Acting-For", "admin")]), b"", &who()).unwrap();
    assert_eq!(header(&prepared, "x-acting-for"), Some("user u1"));
    assert_eq!(prepared.request.headers.iter().filter(|(name, _)| name == "x-acting-for").count(), 1);
    assert_eq!(prepared.request.bound_headers, [("x-acting-for".to_owned(), "user u1".to_owned())]);
    let missing = with_tool(", inject: {X-Subject: '{{ subject }}'}", "{method: POST, path: /t}", "");
    let refusal = judged(&missing, head("POST", "/t", &[]), b"", &who()).unwrap_err();
    assert_eq!(refusal.code, Code::IdentityMissing);
    let mut odd = who();
    odd.subject = Some("a\r\nX-Admin: 1".into());
    odd.admin_context = Some("case 7".into());
    let refusal = judged(&missing, head("POST", "/t", &[]), b"", &odd).unwrap_err();
    assert_eq!(refusal.code, Code::IdentityMissing, "it would end the header");
}

#[test]
fn the_guards_effect_key_stands_alone_under_its_header() {
    let keyed =
        |rule: &str| with_tool("", "{method: POST, path: /t}", &format!("    idempotency: {{header: {rule}}}\n"));
    let sent = [("X-Effect", "mine"), ("Idempotency-Key", "mine too")];
    let prepared = judged(&keyed("X-Effect"), head("POST", "/t", &sent), b"", &who()).unwrap();
    assert_eq!(prepared.request.effect_key_header.as_deref(), Some("x-effect"));
    assert_eq!(
        names(&prepared),
        ["accept-encoding"],
        "neither the caller's key nor one that pretends to be the guard's"
    );
    let keyless = judged(&keyed("null"), head("POST", "/t", &sent), b"", &who()).unwrap();
    assert_eq!(keyless.request.effect_key_header, None);
    assert_eq!(names(&keyless), ["x-effect", "accept-encoding"]);
}

#[test]
fn an_injected_value_goes_out_whole_or_not_at_all() {
    let set = with_tool(", inject: {X-Subject: '{{ subject }}'}", "{method: POST, path: /t}", "");
    let ask = |subject: &str| {
        let mut who = who();
        who.subject = Some(subject.into());
        who.admin_context = Some("case 7".into());
        judged(&set, head("POST", "/t", &[]), b"", &who)
            .map(|prepared| header(&prepared, "x-subject").map(str::to_owned))
    };
    for fine in ["u 1", ""] {
        assert_eq!(ask(fine), Ok(Some(fine.to_owned())));
    }
    for odd in [" u1", "u1 ", "\tu1", "u1\n", "u\u{0}1"] {
        let told = ask(odd).map_err(|refusal| refusal.code);
        assert_eq!(told, Err(Code::IdentityMissing), "{odd:?}");
    }
}

#[test]
fn an_injected_credential_leaves_no_room_for_the_agents_own() {
    let set = with_tool(
        ", credentials: {header: Authorization, value: 'Bearer ${env:TOKEN}'}",
        "{method: POST, path: /t}",
        "",
    );
    let refusal = judged(&set, head("POST", "/t", &[("Authorization", "Bearer agent")]), b"", &who()).unwrap_err();
    assert_eq!(refusal.code, Code::RequestAmbiguous);
    let prepared = judged(&set, head("POST", "/t", &[("Cookie", "a=1")]), b"", &who()).unwrap();
    assert!(!format!("{prepared:?}").contains("hunter2"), "resolved at the release only");
    assert!(!format!("{:?}", set.services).contains("hunter2"));
    assert_eq!(prepared.request.credentials, [("cookie".to_owned(), "a=1".to_owned())]);
}

#[test]
fn headers_that_two_readers_could_read_in_two_ways_are_refused() {
    let set = with_tool("", "{method: POST, path: /t}", "");
    let mut odd = head("POST", "/t", &[]);
    odd.headers.to_mut().insert("x-odd", HeaderValue::from_bytes(b"\xff").unwrap());
    assert_eq!(judged(&set, odd, b"", &who()).unwrap_err().code, Code::RequestAmbiguous);
    let mut utf8 = head("POST", "/t", &[]);
    utf8.headers.to_mut().insert("x-name", HeaderValue::from_bytes("é".as_bytes()).unwrap());
    assert_eq!(header(&judged(&set, utf8, b"", &who()).unwrap(), "x-name"), Some("é"));
}

#[test]
fn the_target_is_the_upstreams_with_path_and_query_as_they_came() {
    let set = with_tool("", "{method: POST, path: /t}", "");
    for (asked, target) in [
        ("/t", "http://up.example/base/t"),
        ("/t?", "http://up.example/base/t?"),
        ("/t?b=2&a=%2B+", "http://up.example/base/t?b=2&a=%2B+"),
    ] {
        assert_eq!(judged(&set, head("POST", asked, &[]), b"", &who()).unwrap().request.target, target);
    }
    let six = PolicySet::open("s", "https://[::1]:8443").unwrap();
    assert_eq!(judged(&six, head("POST", "/x", &[]), b"", &who()).unwrap().request.target, "https://[::1]:8443/x");
}
