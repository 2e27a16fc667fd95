use serde_json::{Value, json};

use super::*;
use crate::base::code::Code;

const ARGS: &str = r#"
    args:
      aliases: {taskTitle: title, name: title, q2: q}
      schema:
        type: object
        additionalProperties: false
        required: [title]
        properties:
          title: {type: string, minLength: 1, maxLength: 20}
          priority: {type: integer, enum: [0, 1, 2]}
          amount: {type: number, maximum: 9007199254740992}
          big: {type: number}
          flag: {type: boolean}
          tags: {type: array, items: {type: integer}}
          q: {type: string, in: query}
          page: {type: integer, in: query}
          note: {type: [string, "null"]}
      prepare:
        - {field: title, trim: true, nfc: true, non_empty: TITLE_REQUIRED}
        - {field: q, trim: true}
        - {field: priority, map: {high: 2, normal: 1}, default: 1}
"#;

fn policy() -> PolicySet {
    with_tool("", "{method: POST, path: /t}", ARGS.trim_start_matches('\n'))
}

fn body(prepared: &Prepared) -> &str {
    std::str::from_utf8(&prepared.body).unwrap()
}

#[test]
fn what_needs_no_preparation_goes_out_byte_for_byte() {
    let raw = "{ \"priority\":2.0,\n\t\"title\" : \"x\\u0041\", \"big\": 1.50e1 }";
    let prepared = json(&policy(), "POST", "/t?q=%41+b", raw).unwrap();
    assert_eq!(body(&prepared), raw);
    assert_eq!(prepared.request.target, "http://up.example/base/t?q=%41+b");
    assert_eq!(prepared.args, json!({"priority": 2, "title": "xA", "big": 15, "q": "A b"}));
}

#[test]
fn json_that_came_as_a_form_is_told_so() {
    let form = [("Content-Type", "application/x-www-form-urlencoded")];
    let refused = |body: &[u8]| judged(&policy(), head("POST", "/t", &form), body, &who()).unwrap_err();
    let (as_form, other) = (refused(br#"{"title": "x"}"#), refused(b"titel=x"));
    assert_eq!((as_form.code, other.code), (Code::ArgsInvalid, Code::ArgsInvalid));
    assert!(as_form.detail.contains("Content-Type: application/json"), "{}", as_form.detail);
    assert!(!other.detail.contains("Content-Type"), "{}", other.detail);
}

#[test]
fn only_what_was_prepared_is_rewritten() {
    let raw = r#"{"taskTitle": "  e\u0301 ", "big": 9007199254740993, "priority": "high"}"#;
    let prepared = json(&policy(), "POST", "/t?x=1&q2=%20b%20", raw).unwrap_err();
    assert_eq!(prepared.code, Code::ArgsInvalid, "x is no arg");
    let prepared = json(&policy(), "POST", "/t?page=1&q2=%20b%20", raw).unwrap();
    assert_eq!(body(&prepared), r#"{"title":"é","big":9007199254740993,"priority":2}"#);
    assert_eq!(prepared.request.target, "http://up.example/base/t?page=1&q=b");
    assert!(prepared.request.body_bound);
    assert_eq!(prepared.args["title"], "é");
}

#[test]
fn an_alias_and_its_target_have_one_value() {
    let same =
        json(&policy(), "POST", "/t", r#"{"taskTitle": "x", "title": "x", "name": "x", "priority": 0}"#).unwrap();
    assert_eq!(body(&same), r#"{"title":"x","priority":0}"#);
    for raw in [r#"{"taskTitle": "x", "title": "y"}"#, r#"{"taskTitle": "x", "name": "y"}"#] {
        let refusal = json(&policy(), "POST", "/t", raw).unwrap_err();
        assert_eq!((refusal.code, refusal.errors.len()), (Code::ArgsInvalid, 1), "{raw}");
    }
}

#[test]
fn names_are_closed_before_anything_is_prepared() {
    let refusal = json(&policy(), "POST", "/t", r#"{"tilte": "", "other": 1}"#).unwrap_err();
    let errors: Vec<_> = refusal.errors.iter().map(|e| (e.pointer.as_str(), e.reason.as_str())).collect();
    assert_eq!(
        errors,
        [("/other", "is not an arg of this tool"), ("/tilte", "is not an arg of this tool; did you mean `title`?")]
    );
    assert_eq!(refusal.policy_code, None);
}

#[test]
fn an_empty_value_answers_with_the_policys_own_code() {
    for raw in [r#"{"title": "  "}"#, r#"{"title": ""}"#, "{}", r#"{"title": null}"#] {
        let refusal = json(&policy(), "POST", "/t", raw).unwrap_err();
        assert_eq!(refusal.policy_code.as_deref(), Some("TITLE_REQUIRED"), "{raw}");
        assert_eq!((refusal.code, refusal.errors[0].pointer.as_str()), (Code::ArgsInvalid, "/title"));
    }
}

#[test]
fn defaults_are_filled_in_only_where_nothing_stands() {
    assert_eq!(json(&policy(), "POST", "/t", r#"{"title": "x"}"#).unwrap().args["priority"], 1);
    let null = json(&policy(), "POST", "/t", r#"{"title": "x", "priority": null}"#).unwrap_err();
    assert_eq!(null.errors[0].pointer, "/priority");
}

#[test]
fn texts_of_queries_and_forms_are_compared_as_what_they_spell_and_sent_as_they_came() {
    let form = ("Content-Type", "application/x-www-form-urlencoded");
    let send = |target: &str, body: &str| judged(&policy(), head("POST", target, &[form]), body.as_bytes(), &who());
    let prepared = send("/t?page=3", "title=x&priority=2&flag=true&tags=1&tags=2").unwrap();
    assert_eq!(body(&prepared), "title=x&priority=2&flag=true&tags=1&tags=2");
    assert_eq!(prepared.args, json!({"title": "x", "priority": "2", "flag": "true", "tags": ["1", "2"], "page": "3"}));
    assert_eq!(body(&send("/t", "title=x&tags=1&priority=high").unwrap()), "title=x&tags=1&priority=2");
    assert_eq!(body(&send("/t", "title=x").unwrap()), "title=x&priority=1");
    for bad in [
        "title=x&priority=3",
        "title=x&priority=02",
        "title=x&flag=yes",
        "title=x&tags=a",
        "title=x&priority=1.5",
        "title=x&title=y",
    ] {
        assert_eq!(send("/t", bad).unwrap_err().code, Code::ArgsInvalid, "{bad}");
    }
    assert_eq!(send("/t?page=x", "title=x").unwrap_err().errors[0].pointer, "/page");
    // In JSON a number is a number.
    assert!(json(&policy(), "POST", "/t", r#"{"title": "x", "priority": "2"}"#).is_err());
}

#[test]
fn no_bound_is_passed_by_rounding() {
    assert!(json(&policy(), "POST", "/t", r#"{"title": "x", "amount": 9007199254740992}"#).is_ok());
    for over in ["9007199254740993", "9007199254740992.1", "18446744073709551617"] {
        let refusal = json(&policy(), "POST", "/t", &format!(r#"{{"title": "x", "amount": {over}}}"#)).unwrap_err();
        assert_eq!(refusal.errors[0].pointer, "/amount", "{over}");
    }
}

#[test]
fn reasons_name_places_and_never_values() {
    let refusal = json(
        &policy(),
        "POST",
        "/t",
        r#"{"title": "hunter2-hunter2-hunter2", "flag": "hunter2", "tags": ["hunter2"]}"#,
    );
    let refusal = refusal.unwrap_err();
    let pointers: Vec<&str> = refusal.errors.iter().map(|e| e.pointer.as_str()).collect();
    assert_eq!(pointers.len(), 3, "{pointers:?}");
    assert!(!format!("{refusal:?}").contains("hunter2"), "{refusal:?}");
}

#[test]
fn equal_meanings_share_a_hash_and_unequal_ones_do_not() {
    let hash = |raw: &str| json(&policy(), "POST", "/t", raw).unwrap().args_hash;
    assert_eq!(hash(r#"{"title":"x","big":10}"#), hash("{ \"big\": 1e1, \"title\": \"x\"}"));
    assert_eq!(hash(r#"{"title":"x","priority":2}"#), hash(r#"{"taskTitle":" x ","priority":"high"}"#));
    let all = [
        r#"{"title":"x"}"#,
        r#"{"title":"x","note":null}"#,
        r#"{"title":"x","note":""}"#,
        r#"{"title":"x","big":9007199254740993}"#,
        r#"{"title":"x","big":9007199254740992}"#,
    ];
    for (at, one) in all.iter().enumerate() {
        for other in &all[at + 1..] {
            assert_ne!(hash(one), hash(other), "{one} {other}");
        }
    }
}

#[test]
fn a_default_makes_a_body_where_there_was_none() {
    let tool = "    args: {schema: {type: object, additionalProperties: false, properties: {n: {type: integer}}}, prepare: [{field: n, default: 1}]}\n";
    let set = with_tool("", "{method: POST, path: /t}", tool);
    let prepared = judged(&set, head("POST", "/t", &[]), b"", &who()).unwrap();
    assert_eq!(body(&prepared), r#"{"n":1}"#);
    assert!(prepared.request.headers.contains(&("content-type".into(), "application/json".into())));
    let refusal = judged(&set, head("POST", "/t", &[JSON]), b"[1]", &who()).unwrap_err();
    assert_eq!(refusal.code, Code::ArgsInvalid);
}

#[test]
fn a_compressed_body_is_sent_as_it_came_or_plain_if_it_changes() {
    use std::io::Write as _;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(br#"{"title":" x ","priority":1}"#).unwrap();
    let coded = encoder.finish().unwrap();
    let gzip = ("Content-Encoding", "gzip");
    let changed = judged(&policy(), head("POST", "/t", &[JSON, gzip]), &coded, &who()).unwrap();
    assert_eq!(body(&changed), r#"{"title":"x","priority":1}"#);
    assert!(!changed.request.headers.iter().any(|(name, _)| name == "content-encoding"));
    assert_eq!(changed.raw_digest, crate::base::digest::Digest::of(&coded));
    let kept = with_tool("", "{method: POST, path: /t}", "");
    let kept = judged(&kept, head("POST", "/t", &[JSON, gzip]), &coded, &who()).unwrap();
    assert_eq!(kept.body.as_ref(), coded);
    assert!(kept.request.headers.contains(&("content-encoding".into(), "gzip".into())));
}

#[test]
fn two_evaluations_agree() {
    let raw = r#"{"taskTitle": " x ", "tags": [3, 2, 1], "big": 1e3}"#;
    let (a, b) = (json(&policy(), "POST", "/t", raw).unwrap(), json(&policy(), "POST", "/t", raw).unwrap());
    assert_eq!((a.args_hash, a.body, a.request, a.preview), (b.args_hash, b.body, b.request, b.preview));
    assert_eq!(a.args, Value::clone(&b.args));
}

#[test]
fn an_arg_in_two_places_is_sent_as_it_came_or_not_at_all() {
    let set = with_tool(
        "",
        "{method: POST, path: /t}",
        "    args: {schema: {type: object, additionalProperties: false, properties: {a: {type: string}, b: {type: string}}}, prepare: [{field: a, trim: true}]}\n",
    );
    assert!(json(&set, "POST", "/t?b=x", r#"{"b": "x"}"#).is_ok());
    assert!(json(&set, "POST", "/t?a=x", r#"{"a": "x"}"#).is_ok());
    assert!(json(&set, "POST", "/t?a=%20x", r#"{"b": "a"}"#).is_ok());
    let refusal = json(&set, "POST", "/t?a=%20x", r#"{"a": " x"}"#).unwrap_err();
    assert_eq!((refusal.code, refusal.errors[0].pointer.as_str()), (Code::ArgsInvalid, "/a"));
}
