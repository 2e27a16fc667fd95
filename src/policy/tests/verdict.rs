use super::*;
use crate::base::code::Code;
use crate::draft::record::{ConfirmRule, Risk};
use crate::policy::model::StatusMeans;

#[test]
fn the_example_to_do_is_held_as_it_is_described() {
    let set = lightnote();
    let body = r#"{"taskTitle": " 买牛奶 ", "deadline": "2026-12-01 21:00:00", "importance": "high"}"#;
    let prepared = json(&set, "POST", "/todos", body).unwrap();
    assert_eq!(prepared.tool.as_str(), "create_todo");
    assert_eq!(prepared.capability.as_str(), "todo.create");
    assert_eq!((prepared.risk, prepared.confirm_rule, prepared.held_status), (Risk::Low, ConfirmRule::Default, 202));
    assert_eq!(prepared.body.as_ref(), r#"{"title":"买牛奶","dueAt":"2026-12-01 21:00:00","priority":2}"#.as_bytes());
    insta::assert_debug_snapshot!(prepared.preview);
    let status = json(&set, "PATCH", "/todos/7", r#"{"status": "archived"}"#).unwrap();
    assert_eq!(status.confirm_rule, ConfirmRule::Always);
    insta::assert_debug_snapshot!(status.preview);
}

#[test]
fn capabilities_refuse_with_their_guidance() {
    let set = lightnote();
    let refusal = json(&set, "DELETE", "/notes/7", "{}").unwrap_err();
    assert_eq!(refusal.code, Code::CapabilityPlanned);
    assert_eq!(refusal.guidance.as_deref(), Some("当前请前往笔记页面手动删除。"));
    for (method, path) in [("DELETE", "/account"), ("POST", "/account/u1/close")] {
        let refusal = json(&set, method, path, "{}").unwrap_err();
        assert_eq!(refusal.code, Code::CapabilityForbidden, "{method} {path}");
        assert_eq!(refusal.guidance.as_deref(), Some("Agent 不允许执行账号注销。"));
    }
}

#[test]
fn what_nobody_declared_is_refused_or_held_with_the_plain_card() {
    assert_eq!(json(&lightnote(), "PUT", "/todos", "{}").unwrap_err().code, Code::ToolNotFound);
    let open = PolicySet::open("s", "http://up.example").unwrap();
    let prepared = json(&open, "PUT", "/todos/7?dry=1", r#"{"a": 1}"#).unwrap();
    assert_eq!((prepared.tool.as_str(), prepared.capability.as_str()), ("undeclared", "undeclared"));
    assert_eq!((prepared.risk, prepared.ttl.as_secs()), (Risk::Medium, 300));
    let read_only = set("version: 1\nservice: s\nupstream: {url: 'http://x', read_only: true}\n");
    let refusal = json(&read_only, "PUT", "/todos", "{}").unwrap_err();
    assert_eq!(refusal.code, Code::ToolNotFound);
    assert!(refusal.detail.contains("takes no writes"), "no tool would help: {}", refusal.detail);
    let refusing = set("version: 1\nservice: s\nupstream: {url: 'http://x'}\nunmatched: {read: refuse}\n");
    let refusal = judged(&refusing, head("GET", "/x", &[]), b"", &who()).unwrap_err();
    assert_eq!(refusal.code, Code::ToolNotFound);
}

#[test]
fn who_asks_decides_before_what_is_asked() {
    let set = lightnote();
    let ask = |change: &dyn Fn(&mut Identity)| {
        let mut who = who();
        change(&mut who);
        judged(&set, head("POST", "/todos", &[JSON]), br#"{"nonsense": 1}"#, &who).unwrap_err().code
    };
    assert_eq!(ask(&|who| who.role = None), Code::RoleNotAllowed);
    assert_eq!(ask(&|who| who.role = Some("guest".into())), Code::RoleNotAllowed);
    assert_eq!(ask(&|who| who.admin_mode = Some("ReadOnly".into())), Code::AdminReadonly);
    assert_eq!(ask(&|who| who.subject = Some("u2".into())), Code::SubjectMismatch);
    assert_eq!(ask(&|who| who.subject = Some("u1".into())), Code::ArgsInvalid);
    let admin = |who: &mut Identity| {
        who.subject = Some("u2".into());
        who.admin_context = Some("case 7".into());
    };
    assert_eq!(ask(&admin), Code::ArgsInvalid);
}

#[test]
fn a_tool_with_a_schema_takes_its_media_types_only() {
    let set = lightnote();
    let body = br#"{"title": "x"}"#;
    for media in ["text/plain", "application/xml", "application/vnd.x+json", ""] {
        let headers = if media.is_empty() { vec![] } else { vec![("Content-Type", media)] };
        let refusal = judged(&set, head("POST", "/todos", &headers), body, &who()).unwrap_err();
        assert_eq!(refusal.code, Code::MediaTypeUnsupported, "{media}");
        let says_which = refusal.detail.contains("send the header Content-Type: application/json");
        assert_eq!(says_which, media.is_empty(), "{}", refusal.detail);
    }
    let good =
        judged(&set, head("POST", "/todos", &[("Content-Type", "Application/JSON; charset=UTF-8")]), body, &who());
    assert!(good.is_ok());
}

#[test]
fn bodies_that_nobody_can_judge_are_held_or_refused_as_the_policy_says() {
    let held = with_tool("", "{method: POST, path: /t}", "");
    let refused = with_tool("", "{method: POST, path: /t}", "    body: {opaque: refuse}\n");
    let binary = head("POST", "/t", &[("Content-Type", "application/octet-stream")]);
    let prepared = judged(&held, binary.clone(), b"\x00\x01", &who()).unwrap();
    assert!(prepared.request.body_bound);
    assert_eq!(prepared.preview.details[0].key, "body (not understood)");
    assert_eq!(judged(&refused, binary, b"\x00\x01", &who()).unwrap_err().code, Code::PreviewIncomplete);
}

#[test]
fn a_receipt_speaks_of_success_only_where_there_is_one() {
    let set = lightnote();
    let tool = &set.services[0].tools[1];
    let args = serde_json::json!({"title": "x", "priority": 1});
    let body = serde_json::json!({"title": "y"});
    assert_eq!(tool.summarise(&args, Some(&body), 201), "待办「y」已创建。");
    assert_eq!(tool.summarise(&args, None, 204), "待办「x」已创建。");
    for status in [302, 409, 408, 500] {
        let text = tool.summarise(&args, Some(&body), status);
        assert!(!text.contains("已创建") && text.contains(&status.to_string()), "{text}");
    }
    assert_eq!(tool.outcome.judge(202), StatusMeans::Succeeded);
    let long = serde_json::json!({"title": "y".repeat(5000)});
    assert!(tool.summarise(&args, Some(&long), 200).chars().count() < 600);
}
