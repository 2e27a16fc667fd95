#![allow(clippy::unwrap_used)]

use http::{HeaderMap, HeaderName};
use serde_json::json;

use super::*;
use crate::base::digest::Digest;

const LIMITS: BodyLimits = BodyLimits { body_bytes_max: 10_000 };

fn call(target: &str, lines: &[(&str, &str)], body: &[u8], path: &[(&str, &str)]) -> Result<Call, Refusal> {
    let mut headers = HeaderMap::new();
    headers.insert("host", "t".parse().unwrap());
    for (name, value) in lines {
        headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
    }
    let head = Head::read("POST", target.as_bytes(), false, &headers).unwrap().into_owned();
    let path: Vec<_> = path.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    understand(head, Bytes::copy_from_slice(body), &path, &LIMITS, true)
}

fn json_call(body: &str) -> Result<Call, Refusal> {
    call("/t", &[("content-type", "application/json")], body.as_bytes(), &[])
}

fn form_call(body: &str) -> Result<Call, Refusal> {
    call("/t", &[("content-type", "application/x-www-form-urlencoded")], body.as_bytes(), &[])
}

fn code(refused: Result<Call, Refusal>) -> Code {
    refused.unwrap_err().code
}

#[test]
fn every_arg_keeps_its_place() {
    let lines = [("content-type", "application/json")];
    let read = call("/todos/7?notify=yes&tag=a&tag=b", &lines, br#"{"title":"x","due":null}"#, &[("id", "7")]).unwrap();
    assert_eq!(
        Value::Object(read.args.values),
        json!({"id": "7", "notify": "yes", "tag": ["a", "b"], "title": "x", "due": null})
    );
    let places = [
        ("due", Place::Body),
        ("id", Place::Path),
        ("notify", Place::Query),
        ("tag", Place::Query),
        ("title", Place::Body),
    ];
    assert!(read.args.places.iter().map(|(name, place)| (name.as_str(), *place)).eq(places));
    assert_eq!((read.kind, read.args.body_bound), (BodyKind::Json, false));
    assert_eq!(&read.body[..], br#"{"title":"x","due":null}"#);
}

#[test]
fn a_name_in_two_places_has_one_value() {
    let lines = [("content-type", "application/json")];
    let read = call("/t/7?n=2&on=true", &lines, br#"{"id":7,"n":2.0,"on":true}"#, &[("id", "7")]).unwrap();
    assert_eq!(Value::Object(read.args.values), json!({"id": "7", "n": "2", "on": "true"}));
    assert_eq!(read.args.places["id"], Place::Path);
    for (target, body) in [
        ("/t/7?id=8", "{}"),
        ("/t/7", r#"{"id":8}"#),
        ("/t/7", r#"{"id":null}"#),
        ("/t/7", r#"{"id":["7"]}"#),
        ("/t/7", r#"{"id":"07"}"#),
        ("/t/7?n=1", r#"{"n":"1.0"}"#),
        ("/t/7?n=1.0", r#"{"n":1}"#),
        ("/t/7?n=1&n=1", r#"{"n":"1"}"#),
        ("/t/7?n=", r#"{"n":null}"#),
    ] {
        let refusal = call(target, &lines, body.as_bytes(), &[("id", "7")]).unwrap_err();
        assert_eq!((refusal.code, refusal.errors.len()), (Code::ArgsInvalid, 1), "{target} {body}");
    }
    let refusal = call("/t/7?a%2Fb=1&n=1", &lines, br#"{"a/b":2,"n":2}"#, &[]).unwrap_err();
    let pointers: Vec<&str> = refusal.errors.iter().map(|error| error.pointer.as_str()).collect();
    assert_eq!(pointers, ["/a~1b", "/n"]);
    assert_eq!(refusal.errors[0].reason, "stands in the query and in the body with different values");
}

#[test]
fn bodies_that_are_no_object_are_one_arg_with_a_reserved_name() {
    for body in ["[1,2]", "\"x\"", "7", "null", "true"] {
        let read = json_call(body).unwrap();
        assert_eq!(Value::Object(read.args.values), json!({"$body": serde_json::from_str::<Value>(body).unwrap()}));
    }
    let lines = [("content-type", "application/json")];
    for refused in [
        json_call(r#"{"$body":1}"#),
        form_call("$body=1"),
        call("/t?$body=1", &lines, b"[1]", &[]),
        call("/t?%24body=1", &[], b"", &[]),
        call("/t", &lines, b"{}", &[("$body", "1")]),
    ] {
        let refusal = refused.unwrap_err();
        assert_eq!((refusal.code, refusal.errors[0].pointer.as_str()), (Code::ArgsInvalid, "/$body"));
    }
}

#[test]
fn p2_numbers_that_no_double_holds_bind_the_body() {
    let read = json_call(r#"{"n":9007199254740993,"m":[0.1]}"#).unwrap();
    assert_eq!(read.args.inexact, [Inexact { pointer: "/n".into(), text: "9007199254740993".into() }]);
    assert!(read.args.body_bound);
    assert_eq!(json_call("[9007199254740993]").unwrap().args.inexact[0].pointer, "/$body/0");
    assert!(!json_call(r#"{"n":9007199254740992}"#).unwrap().args.body_bound);
    assert_eq!(code(json_call(r#"{"n":1e400}"#)), Code::BodyMalformed);
}

#[test]
fn empty_bodies() {
    let none = call("/jobs/77/run", &[], b"", &[]).unwrap();
    assert_eq!((none.kind, none.args.body_bound, none.args.values.len()), (BodyKind::None, false, 0));
    assert_eq!(code(json_call("")), Code::BodyMalformed);
    assert_eq!(
        code(call("/t", &[("content-type", "application/vnd.api+json; charset=utf-8")], b"", &[])),
        Code::BodyMalformed
    );
    assert_eq!(form_call("").unwrap().kind, BodyKind::None);
    assert_eq!(json_call("{}").unwrap().kind, BodyKind::Json);
}

#[test]
fn other_bodies_are_opaque_and_bound() {
    for lines in [&[][..], &[("content-type", "text/plain")], &[("content-type", "application/octet-stream")]] {
        let read = call("/t?a=1", lines, br#"{"amount":5000}"#, &[]).unwrap();
        assert_eq!((read.kind, read.args.body_bound), (BodyKind::Opaque, true));
        assert_eq!(Value::Object(read.args.values), json!({"a": "1"}));
    }
    let head = json_call("{}").unwrap().head;
    let unread = understand(head, Bytes::from_static(b"{broken"), &[], &LIMITS, false).unwrap();
    assert_eq!((unread.kind, unread.args.body_bound), (BodyKind::Opaque, true));
}

#[test]
fn types_that_lie_are_refused() {
    assert_eq!(code(json_call("amount=5")), Code::BodyMalformed);
    assert_eq!(code(json_call("\u{feff}{}")), Code::BodyMalformed);
    for value in [
        "application/json; charset=utf-7",
        "application/json; charset=utf-8; charset=utf-7",
        "application/json; charset=utf-16",
        "json",
    ] {
        assert_eq!(code(call("/t", &[("content-type", value)], b"{}", &[])), Code::MediaTypeUnsupported, "{value}");
    }
    for coding in ["br", "zstd", "gzip, gzip", "gzip"] {
        let lines = [("content-type", "application/json"), ("content-encoding", coding)];
        assert_eq!(code(call("/t", &lines, b"{}", &[])), Code::MediaTypeUnsupported, "{coding}");
    }
    for coding in ["br", "gzip"] {
        let opaque = [("content-type", "application/octet-stream"), ("content-encoding", coding)];
        assert_eq!(code(call("/t", &opaque, b"x", &[])), Code::MediaTypeUnsupported, "{coding}");
    }
}

#[test]
fn compressed_bodies_are_read_and_sent_as_they_came() {
    use std::io::Write as _;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(br#"{"amount":5000}"#).unwrap();
    let coded = encoder.finish().unwrap();
    let lines = [("content-type", "application/json"), ("content-encoding", "gzip")];
    let read = call("/t", &lines, &coded, &[]).unwrap();
    assert_eq!(Value::Object(read.args.values), json!({"amount": 5000}));
    assert_eq!(&read.body[..], &coded[..]);
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    bomb.write_all(&vec![b' '; LIMITS.decoded_bytes_max() + 1]).unwrap();
    assert_eq!(code(call("/t", &lines, &bomb.finish().unwrap(), &[])), Code::BodyTooLarge);
}

#[test]
fn bodies_over_the_limit_are_refused() {
    assert_eq!(code(call("/t", &[], &[b'x'; 10_001], &[])), Code::BodyTooLarge);
    assert!(call("/t", &[], &[b'x'; 10_000], &[]).is_ok());
}

#[test]
fn forms_and_multipart_bodies_are_args() {
    let read = form_call("amount=1&amount=100000&to=a%2Bb").unwrap();
    assert_eq!(Value::Object(read.args.values), json!({"amount": ["1", "100000"], "to": "a+b"}));
    assert_eq!((read.kind, read.args.body_bound), (BodyKind::Form, false));

    let multipart = |boundary: &str| {
        let disposition = "Content-Disposition: form-data; name=";
        let body = format!(
            "--{boundary}\r\n{disposition}\"amount\"\r\n\r\n1\r\n--{boundary}\r\n{disposition}\"amount\"\r\n\r\n2\r\n\
             --{boundary}\r\n{disposition}\"scan\"; filename=\"s.png\"\r\nContent-Type: image/png\r\n\r\nPNG\r\n--{boundary}--\r\n"
        );
        call("/t", &[("content-type", &format!("multipart/form-data; boundary={boundary}"))], body.as_bytes(), &[])
            .unwrap()
    };
    let read = multipart("one");
    let file = json!({"name": "s.png", "type": "image/png", "length": 3, "sha256": Digest::of(b"PNG")});
    assert_eq!(Value::Object(read.args.values.clone()), json!({"amount": ["1", "2"], "scan": file}));
    assert_eq!(read.kind, BodyKind::Multipart);
    assert_eq!(read.args, multipart("two").args);

    assert_eq!(code(form_call("a=%zz")), Code::BodyMalformed);
    assert_eq!(code(form_call("_charset_=iso-8859-1&a=1")), Code::MediaTypeUnsupported);
    assert!(form_call("_charset_=UTF-8&a=1").is_ok());
    assert_eq!(code(call("/t?a=%zz", &[], b"", &[])), Code::RequestAmbiguous);
}

#[test]
fn a_body_cannot_claim_another_method() {
    for refused in [
        form_call("_method=delete"),
        form_call("a=1&%5fmethod=delete"),
        json_call(r#"{"_method":"DELETE"}"#),
        form_call(".method=x"),
    ] {
        assert_eq!(code(refused), Code::RequestAmbiguous);
    }
    for fine in [
        form_call("method=card"),
        json_call(r#"{"method":"card","order":{"_method":"x"}}"#),
        json_call(r#"["_method"]"#),
    ] {
        assert!(fine.is_ok());
    }
}

#[test]
fn batches_are_refused() {
    for body in [
        r#"[{"jsonrpc":"2.0","method":"tools/call","params":{},"id":1}]"#,
        r#"[1,{"jsonrpc":"2.0"}]"#,
        r#"[{"method":"a","params":[],"id":1}]"#,
    ] {
        assert_eq!(code(json_call(body)), Code::RequestAmbiguous, "{body}");
    }
    for body in
        [r#"[{"method":"card","id":1}]"#, r#"[{"sku":"a"}]"#, "[]", "[[1]]", r#"{"jsonrpc":"2.0","method":"x","id":1}"#]
    {
        assert!(json_call(body).is_ok(), "{body}");
    }
    for path in ["/odata/$batch", "/odata/%24batch", "/$Batch"] {
        assert_eq!(
            code(call(path, &[("content-type", "application/json")], b"{}", &[])),
            Code::RequestAmbiguous,
            "{path}"
        );
    }
    assert_eq!(
        code(call("/t", &[("content-type", "multipart/mixed; boundary=b")], b"--b--", &[])),
        Code::RequestAmbiguous
    );
}

#[test]
fn null_absent_and_empty_are_three_things() {
    let hash = |body: &str| Digest::of(&canonical::to_vec(&Value::Object(json_call(body).unwrap().args.values)));
    let hashes = [hash(r#"{"a":null}"#), hash("{}"), hash(r#"{"a":""}"#), hash(r#"{"a":[]}"#), hash(r#"{"a":{}}"#)];
    for (at, one) in hashes.iter().enumerate() {
        assert!(hashes.iter().skip(at + 1).all(|other| one != other));
    }
}
