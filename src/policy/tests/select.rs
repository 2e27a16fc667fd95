use super::*;
use crate::policy::judge::Selection;

fn named(service: &Service, method: &str, target: &str, headers: &[(&str, &str)]) -> String {
    match service.select(&head(method, target, headers)) {
        Selection::Capability(capability) => capability.id.to_string(),
        Selection::Tool(tool, params) => {
            let params: Vec<String> = params.iter().map(|(n, v)| format!("{n}={v}")).collect();
            format!("{} {}", tool.name, params.join(" ")).trim().to_owned()
        }
        Selection::UnmatchedRead => "read".into(),
        Selection::UnmatchedWrite => "write".into(),
    }
}

const MANY: &str = r#"
version: 1
service: s
upstream: {url: "http://up.example"}
capabilities:
  - {id: c1, status: enabled, tool: put_any, risk: low}
  - {id: c2, status: enabled, tool: put_new, risk: low}
  - {id: c3, status: enabled, tool: get_write, risk: low}
  - {id: c4, status: enabled, tool: delete_action, risk: low}
  - {id: c5, status: planned, tool: later, risk: low, guidance: later}
  - {id: no, status: forbidden, match: {path: "/items/root{/**}"}, guidance: never}
  - {id: soon, status: planned, match: {path: "/items{/**}", method: PATCH}, guidance: soon}
tools:
  - {name: put_any, match: {method: [PUT, POST], path: "/items/{id}"}, effect: write}
  - {name: put_new, match: {method: PUT, path: /items/new}, effect: write}
  - {name: get_write, match: {method: GET, path: /run}, effect: write}
  - {name: search, match: {method: POST, path: /items/search}, effect: read, confirm: none}
  - {name: list_action, match: {method: POST, path: /rpc, query: {action: list}}, effect: read}
  - {name: delete_action, match: {method: [POST, GET], path: /rpc, query: {action: delete}}, effect: write}
  - {name: by_type, match: {method: POST, path: /typed, content_type: application/json, header: {X-Mode: safe}}, effect: read}
  - {name: later, match: {method: POST, path: /later}, effect: write}
"#;

#[test]
fn the_narrowest_tool_is_selected_and_what_is_refused_wins() {
    let set = set(MANY);
    let service = &set.services[0];
    for (method, target, expected) in [
        ("PUT", "/items/7", "put_any id=7"),
        ("PUT", "/items/new", "put_new"),
        ("POST", "/items/new", "put_any id=new"),
        ("POST", "/items/search", "search"),
        ("PUT", "/items/a%20b", "put_any id=a b"),
        ("PUT", "/items/root", "no"),
        ("GET", "/items/root/x/y", "no"),
        ("BREW", "/items/root", "no"),
        ("PATCH", "/items/root", "no"),
        ("PATCH", "/items/7", "soon"),
        ("POST", "/later", "c5"),
        ("GET", "/items/7", "read"),
        ("HEAD", "/items/7", "read"),
        ("OPTIONS", "/items/7", "read"),
        ("DELETE", "/items/7", "write"),
        ("QUERY", "/items/7", "write"),
        ("get", "/items/7", "write"),
        ("put", "/items/7", "write"),
        ("GET", "/run", "get_write"),
        ("HEAD", "/run", "get_write"),
        ("OPTIONS", "/run", "read"),
        ("GET", "/Run", "read"),
    ] {
        assert_eq!(named(service, method, target, &[]), expected, "{method} {target}");
    }
}

#[test]
fn a_second_value_never_makes_a_write_a_read() {
    let set = set(MANY);
    let service = &set.services[0];
    for (method, target, expected) in [
        ("POST", "/rpc?action=list", "list_action"),
        ("POST", "/rpc?action=delete", "delete_action"),
        ("POST", "/rpc?action=list&action=list", "write"),
        ("POST", "/rpc?action=list&action=delete", "delete_action"),
        ("POST", "/rpc?action=list;action=delete", "delete_action"),
        ("POST", "/rpc?action=list&%61ction=delete", "delete_action"),
        ("GET", "/rpc?action=delete&bad=%zz", "delete_action"),
        ("GET", "/rpc?x=1&action=dele%74e", "delete_action"),
        ("POST", "/rpc", "write"),
    ] {
        assert_eq!(named(service, method, target, &[]), expected, "{method} {target}");
    }
    let typed = ("Content-Type", "application/JSON; charset=utf-8");
    assert_eq!(named(service, "POST", "/typed", &[typed, ("X-Mode", "safe")]), "by_type");
    assert_eq!(named(service, "POST", "/typed", &[typed, ("X-Mode", "safe"), ("X-Mode", "wild")]), "write");
    assert_eq!(named(service, "POST", "/typed", &[typed]), "write");
    assert_eq!(named(service, "POST", "/typed", &[("X-Mode", "safe")]), "write");
}

#[test]
fn a_second_value_never_leads_past_what_is_refused() {
    let set = set(
        "version: 1\nservice: s\nupstream: {url: 'http://up.example'}\ncapabilities:\n  - {id: no, status: forbidden, match: {path: /rpc, query: {mode: wipe}}, guidance: never}\n  - {id: odd, status: planned, match: {path: /typed, header: {X-Mode: wild}}, guidance: later}\n",
    );
    let service = &set.services[0];
    for target in ["/rpc?mode=wipe", "/rpc?mode=wipe&mode=list", "/rpc?mode=list&mode=wipe", "/rpc?mode=list;mode=wipe"]
    {
        for method in ["GET", "POST"] {
            assert_eq!(named(service, method, target, &[]), "no", "{method} {target}");
        }
    }
    assert_eq!(named(service, "GET", "/rpc?mode=list", &[]), "read");
    assert_eq!(named(service, "GET", "/typed", &[("X-Mode", "safe"), ("X-Mode", "wild")]), "odd");
}

#[test]
fn an_encoded_segment_selects_what_its_text_selects() {
    let set = with_tool("", "{method: POST, path: '/a@b/{id}'}", "");
    for path in ["/a@b/7", "/a%40b/7", "/a%40b/%37"] {
        let expected = if path.ends_with("%37") { "write" } else { "t id=7" };
        assert_eq!(named(&set.services[0], "POST", path, &[]), expected, "{path}");
    }
}

#[test]
fn between_two_tools_that_both_fit_none_is_chosen() {
    let set = set(
        "version: 1\nservice: s\nupstream: {url: 'http://up.example'}\ncapabilities:\n  - {id: a, status: enabled, tool: small, risk: low}\n  - {id: b, status: enabled, tool: large, risk: high}\ntools:\n  - {name: small, match: {method: POST, path: /pay, query: {size: small}}, effect: write}\n  - {name: large, match: {method: POST, path: /pay, query: {size: large}}, effect: write}\n",
    );
    for (query, expected) in [
        ("size=small", "small"),
        ("size=large", "large"),
        ("size=small&size=large", "write"),
        ("size=large&size=small", "write"),
    ] {
        assert_eq!(named(&set.services[0], "POST", &format!("/pay?{query}"), &[]), expected, "{query}");
    }
}

#[test]
fn a_path_that_is_not_normal_does_not_slip_past_a_rule() {
    let set = set(MANY);
    for path in ["/items//root", "/items/root/", "/items/root;x=1"] {
        assert_eq!(named(&set.services[0], "GET", path, &[]), "write", "{path}");
    }
    let open = PolicySet::open("s", "http://up.example").unwrap();
    assert_eq!(named(&open.services[0], "GET", "/items//root", &[]), "read");
}

#[test]
fn routes_are_taken_by_host_and_then_by_the_longest_prefix() {
    let file = |name: &str, route: &str| Source {
        name: format!("{name}.yaml"),
        text: format!("version: 1\nservice: {name}\nupstream: {{url: 'http://{name}.example'}}\nroute: {route}\n"),
    };
    let sources = [
        file("any", "{path_prefix: /}"),
        file("api", "{path_prefix: /api}"),
        file("host", "{hosts: [A.example]}"),
        file("deep", "{hosts: [a.example], path_prefix: /api/v2/}"),
    ];
    let set = load(&sources, &Surroundings).unwrap_or_else(|found| panic!("{}", report(&found))).set;
    for (host, path, expected) in [
        ("b.example", "/x", "any"),
        ("b.example", "/api", "api"),
        ("b.example", "/api/x", "api"),
        ("b.example", "/apix", "any"),
        ("a.example", "/api/x", "host"),
        ("a.example", "/api/v2/x", "deep"),
        ("a.example", "/api/v22", "host"),
    ] {
        assert_eq!(set.route(host, path).unwrap().name.as_str(), expected, "{host}{path}");
    }
    let one = load(&sources[1..2], &Surroundings).unwrap().set;
    assert!(one.route("b.example", "/other").is_none());
}
