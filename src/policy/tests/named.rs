//! Calls that are asked for by the name of their tool, held against the requests that would have been sent.

use serde_json::json;

use super::*;
use crate::base::code::Code;
use crate::policy::named::Named;

const BYTES_MAX: usize = 1 << 20;

/// A service with a tool for each way in which an arg can stand in a request.
fn lists() -> PolicySet {
    set(r#"
version: 1
service: lists
upstream: {url: "http://up.example/base"}
route: {hosts: [lists.example], path_prefix: /lists}
capabilities:
  - {id: item.add, status: enabled, tool: add, risk: low}
  - {id: item.move, status: enabled, tool: move, risk: low}
  - {id: item.drop, status: enabled, tool: drop, risk: low}
  - {id: item.publish, status: enabled, tool: publish, risk: low}
  - {id: item.merge, status: enabled, tool: merge, risk: low}
  - {id: item.touch, status: enabled, tool: touch, risk: low}
  - {id: item.form, status: enabled, tool: form, risk: low}
  - {id: item.any, status: enabled, tool: any, risk: low}
  - {id: item.several, status: enabled, tool: several, risk: low}
  - {id: item.clear, status: enabled, tool: clear, risk: low}
  - id: item.burn
    status: forbidden
    match: {method: POST, path: /lists/fire/items}
    guidance: Nothing is burned here.
tools:
  - {name: show, match: {method: GET, path: "/lists/{list}"}, effect: read}
  - name: add
    match: {method: POST, path: "/lists/{list}/items"}
    effect: write
    risk: low
    args:
      aliases: {name: title}
      schema:
        type: object
        additionalProperties: false
        required: [list, title]
        properties:
          list: {type: string}
          title: {type: string}
          amount: {type: number}
          notify: {type: boolean, in: query}
          tags: {type: array, items: {type: string}, in: query}
      prepare: [{field: title, trim: true}]
    preview: {title: Add, target: "{{ args.title }}", impact: It is added.}
  - name: move
    match: {method: PUT, path: "/lists/{list}/items/{item}"}
    effect: write
    risk: low
    args:
      schema:
        type: object
        additionalProperties: false
        required: [list, item]
        properties: {list: {type: string}, item: {type: integer}, to: {type: string}}
    preview: {title: Move, target: "{{ args.item }}", impact: It is moved.}
  - name: drop
    match: {method: DELETE, path: "/lists/{list}/items/{item}"}
    effect: write
    risk: low
    args:
      schema:
        type: object
        additionalProperties: false
        required: [list, item]
        properties: {list: {type: string}, item: {type: string}}
    preview: {title: Drop, target: "{{ args.item }}", impact: It is gone.}
  - name: publish
    match: {method: GET, path: "/lists/{list}/publish", query: {mode: all}}
    effect: write
    risk: low
    preview: {title: Publish, target: the list, impact: It becomes public.}
  - name: merge
    match: {method: PATCH, path: "/lists/{list}", content_type: application/merge-patch+json, header: {X-Way: deep}}
    effect: write
    risk: low
    content_types: [application/merge-patch+json]
    args:
      schema:
        type: object
        additionalProperties: false
        required: [list, title]
        properties: {list: {type: string}, title: {type: string}}
    preview: {title: Merge, target: "{{ args.list }}", impact: It is merged.}
  - name: touch
    match: {method: POST, path: "/lists/{list}/touch"}
    effect: write
    risk: low
    preview: {title: Touch, target: the list, impact: It is touched.}
  - name: form
    match: {method: POST, path: /lists/form}
    effect: write
    risk: low
    content_types: [application/x-www-form-urlencoded]
    args:
      schema:
        type: object
        additionalProperties: false
        properties: {title: {type: string}}
    preview: {title: Form, target: "{{ args.title }}", impact: It is sent.}
  - name: any
    match: {method: POST, path: "/lists/a/b/any{/**}"}
    effect: write
    risk: low
    preview: {title: Any, target: something, impact: It is sent.}
  - name: several
    match: {method: [POST, PUT], path: /lists/a/b/several}
    effect: write
    risk: low
    preview: {title: Several, target: something, impact: It is sent.}
  - name: clear
    match: {method: POST, path: /lists/all/items}
    effect: write
    risk: low
    preview: {title: Clear, target: everything, impact: It is gone.}
"#)
}

fn named<'p>(set: &'p PolicySet, tool: &str, args: &str) -> Result<Named<'p>, Refusal> {
    set.by_name(tool, args, BYTES_MAX)
}

fn asked(set: &PolicySet, tool: &str, args: &str) -> Result<Prepared, Refusal> {
    let Named { service, selection, call, .. } = named(set, tool, args)?;
    judge(service, &selection, call, &who(), &[HeaderName::from_static("x-user-id")])
}

fn refused(set: &PolicySet, tool: &str, args: &str) -> (Code, Vec<String>, String) {
    let refusal = asked(set, tool, args).unwrap_err();
    (refusal.code, refusal.errors.into_iter().map(|error| error.pointer).collect(), refusal.detail)
}

/// The same call as its request.
fn sent(set: &PolicySet, method: &str, target: &str, body: Option<&str>) -> Prepared {
    let mut sent = head(method, target, if body.is_some() { &[JSON] } else { &[] });
    sent.host = "lists.example".into();
    judged(set, sent, body.unwrap_or_default().as_bytes(), &who()).unwrap()
}

#[test]
fn p2_what_is_asked_for_by_name_is_the_call_that_its_request_is() {
    let set = lists();
    for (tool, args, method, target, body) in [
        ("add", r#"{"list":"l1","title":"milk"}"#, "POST", "/lists/l1/items", Some(r#"{"title":"milk"}"#)),
        (
            "add",
            r#" { "title" : " milk " , "notify" : true, "list" : "a b+待", "amount": 1.50, "tags":["x y","z"] } "#,
            "POST",
            "/lists/a%20b%2B%E5%BE%85/items?notify=true&tags=x%20y&tags=z",
            Some(r#"{ "title" : " milk ", "amount": 1.50 }"#),
        ),
        ("add", r#"{"list":"l1","name":"milk"}"#, "POST", "/lists/l1/items", Some(r#"{"name":"milk"}"#)),
        ("move", r#"{"list":"l1","item":7,"to":"l2"}"#, "PUT", "/lists/l1/items/7", Some(r#"{"to":"l2"}"#)),
        ("move", r#"{"list":"l1","item":"7"}"#, "PUT", "/lists/l1/items/7", Some("{}")),
        ("drop", r#"{"list":"l1","item":"7"}"#, "DELETE", "/lists/l1/items/7", None),
        ("publish", r#"{"list":"l1"}"#, "GET", "/lists/l1/publish?mode=all", None),
        ("publish", r#"{"list":"l1","n":7.0,"mode":"all"}"#, "GET", "/lists/l1/publish?n=7&mode=all", None),
        ("touch", r#"{"list":"l1"}"#, "POST", "/lists/l1/touch", None),
        ("touch", r#"{"list":"l1","deep":{"a":[1]}}"#, "POST", "/lists/l1/touch", Some(r#"{"deep":{"a":[1]}}"#)),
    ] {
        let (by_name, by_request) = (asked(&set, tool, args).unwrap(), sent(&set, method, target, body));
        assert_eq!(by_name.request.target, by_request.request.target, "{tool} {args}");
        assert_eq!(by_name.request.method, method);
        assert_eq!(by_name.args, by_request.args, "{tool} {args}");
        assert_eq!(by_name.preview, by_request.preview, "{tool} {args}");
        assert_eq!(by_name.args_hash, by_request.args_hash, "{tool} {args}: they join");
    }
}

#[test]
fn what_stands_in_the_body_goes_out_as_it_was_written() {
    let set = lists();
    let body = |args: &str| String::from_utf8(asked(&set, "touch", args).unwrap().body.to_vec()).unwrap();
    assert_eq!(
        body(r#"{"n": 9007199254740993, "x":1.10, "t":"\u0041"}"#.replace('{', "{\"list\":\"l\",").as_str()),
        r#"{"n":9007199254740993,"x":1.10,"t":"\u0041"}"#
    );
    let exact = asked(&set, "touch", r#"{"list":9007199254740993}"#).unwrap();
    assert_eq!(exact.request.target, "http://up.example/base/lists/9007199254740993/touch");
    assert_eq!(
        asked(&set, "add", r#"{"list":"l","title":"t","amount":9007199254740993}"#).unwrap().request.kind,
        crate::draft::record::BodyKind::Json
    );
}

#[test]
fn the_media_type_and_the_headers_are_those_of_the_match() {
    let set = lists();
    let merged = asked(&set, "merge", r#"{"list":"l1","title":"t"}"#).unwrap();
    let header = |name: &str| merged.request.headers.iter().find(|(known, _)| known == name).map(|(_, v)| v.as_str());
    assert_eq!((header("content-type"), header("x-way")), (Some("application/merge-patch+json"), Some("deep")));
    assert_eq!(merged.body, r#"{"title":"t"}"#);
    assert!(merged.request.bound_headers.iter().any(|(name, _)| name == "content-type"), "bound like any patch");
}

#[test]
fn args_that_cannot_stand_where_they_belong_are_named_all_at_once() {
    let set = lists();
    for value in [
        "\"\"",
        "\".\"",
        "\"..\"",
        "\"a/b\"",
        "\"a\\\\b\"",
        "\"a;b\"",
        "\"%41\"",
        "\"a\\u0000\"",
        "null",
        "[\"a\"]",
        "{}",
    ] {
        let args = format!(r#"{{"list":{value},"title":"t","notify":{{}},"tags":[null]}}"#);
        let (code, pointers, _) = refused(&set, "add", &args);
        assert_eq!(
            (code, pointers),
            (Code::ArgsInvalid, vec!["/list".into(), "/notify".into(), "/tags".into()]),
            "{args}"
        );
    }
    for (tool, args, pointer) in [
        ("add", r#"{"title":"t"}"#, "/list"),
        ("add", r#"{"list":"l","title":"t","tags":[]}"#, "/tags"),
        ("publish", r#"{"list":"l","mode":"some"}"#, "/mode"),
        ("add", r#"{"list":"l","title":"t","more":1}"#, "/more"),
        ("add", r#"{"list":"l","title":7}"#, "/title"),
        ("add", r#"{"list":"l","title":"t","name":"u"}"#, "/name"),
        ("touch", r#"{"list":"l","$body":[1]}"#, "/$body"),
        ("touch", "[]", ""),
        ("touch", "7", ""),
    ] {
        let (code, pointers, _) = refused(&set, tool, args);
        assert_eq!((code, pointers), (Code::ArgsInvalid, vec![pointer.to_owned()]), "{tool} {args}");
    }
    assert_eq!(refused(&set, "touch", "{\"list\":\"l\",\"a\":1,\"a\":2}").0, Code::BodyMalformed);
    assert_eq!(refused(&set, "touch", "").0, Code::BodyMalformed);
    assert_eq!(refused(&set, "publish", r#"{"list":"l","_method":"DELETE"}"#).0, Code::RequestAmbiguous);
    assert_eq!(refused(&set, "touch", r#"{"list":"l","_method":"DELETE"}"#).0, Code::RequestAmbiguous);
}

#[test]
fn a_match_that_leaves_the_request_open_is_refused_by_name() {
    let set = lists();
    for (tool, why) in [("any", "pattern"), ("several", "several methods"), ("form", "no JSON")] {
        let (code, _, detail) = refused(&set, tool, "{}");
        assert_eq!(code, Code::RequestInvalid, "{tool}");
        assert!(detail.contains(why) && detail.contains(tool), "{detail}");
    }
}

#[test]
fn only_writes_that_are_declared_and_enabled_can_be_named() {
    let set = lists();
    for tool in ["show", "nothing", "", "undeclared", "Add", "item.add"] {
        assert_eq!(refused(&set, tool, "{}").0, Code::ToolNotFound, "{tool}");
    }
    let refusal = asked(&set, "add", r#"{"list":"fire","title":"t"}"#).unwrap_err();
    assert_eq!(
        (refusal.code, refusal.guidance.as_deref()),
        (Code::CapabilityForbidden, Some("Nothing is burned here."))
    );
    let (code, _, detail) = refused(&set, "add", r#"{"list":"all","title":"t"}"#);
    assert_eq!(code, Code::ArgsInvalid);
    assert!(detail.contains("`clear`"), "{detail}");
}

#[test]
fn the_bound_of_a_body_is_the_tools_or_the_guards() {
    let set = with_tool(
        "",
        "{method: POST, path: /t}",
        "    risk: low\n    max_body: 20B\n    preview: {title: T, target: t, impact: i}\n",
    );
    assert!(set.by_name("t", r#"{"a":"0123456789"}"#, 10).is_ok());
    assert_eq!(set.by_name("t", r#"{"a":"0123456789abcdef"}"#, BYTES_MAX).unwrap_err().code, Code::BodyTooLarge);
    let set =
        with_tool("", "{method: POST, path: /t}", "    risk: low\n    preview: {title: T, target: t, impact: i}\n");
    assert_eq!(set.by_name("t", &json!({"a": "0123456789"}).to_string(), 10).unwrap_err().code, Code::BodyTooLarge);
}
