//! One normal form of path and host, used for matching and for sending alike.

use serde_json::json;

use crate::support::{Guard, Request, Setup, Upstream, raw};

#[test]
fn a_path_that_is_not_in_normal_form_is_refused_for_reads_and_writes() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let odd = [
        "/free/../pay",
        "/free/..",
        "/free/./x",
        "/./free",
        "/free/%2e%2e/pay",
        "/free/%2E./pay",
        "/free/.%2e/pay",
        "/free//x",
        "//free/x",
        "/free/x//",
        "/free\\x",
        "/free%5cx",
        "/free%5Cx",
        "/free/%2fx",
        "/free%2Fx",
        "/free/%00",
        "/free/a%0",
        "/free/%zz",
        "/free/%",
        "/free/x;v=1",
        "/free/x%3bv=1",
        "/free/x%3Bv=1",
        "/free/x#frag",
        "/free/%61dmin",
        "/free/%41",
        "/free/%7e",
        "/free/%e2%82%ac",
        "*",
        "free/x",
        "/free/\u{7f}",
        "/free/%0d%0aX: y",
    ];
    let mut wrong = Vec::new();
    for path in odd {
        for method in ["POST", "DELETE", "GET"] {
            let text = format!("{method} {path} HTTP/1.1\r\nHost: desk\r\n{}\r\n", guard.agent().header_lines());
            let status = raw(guard.agent_address(), text.as_bytes()).map(|answer| answer.status);
            if status != Some(400) {
                wrong.push(format!("{method} {path}: {status:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(upstream.heads(), 0);
    assert_eq!(guard.approver().list("").len(), 0);
}

/// A wide rule that lets a POST pass unheld, beside a narrow one that holds payments.
const PASSING: &str = "
version: 1
service: shop
upstream: {url: \"${env:DESK_URL}\"}
route: {path_prefix: /}
unmatched: {read: pass, write: refuse}
capabilities:
  - {id: pay.it, status: enabled, tool: pay, operation: create, risk: low, confirm: default}
tools:
  - name: public
    match: {method: [GET, POST], path: \"/public{/**}\"}
    effect: read
  - name: pay
    match: {method: POST, path: \"/pay{/**}\"}
    effect: write
    risk: low
    confirm: default
    preview: {title: Pay, target: somebody, impact: Money leaves.}
";

#[test]
fn no_spelling_of_a_held_path_passes_under_a_rule_that_lets_writes_through() {
    let upstream = Upstream::start();
    let guard = Setup::over(&upstream).no_policies().policy("shop.yaml", PASSING).start();
    let post = |path: &str| {
        let lines = guard.agent().header_lines();
        let text =
            format!("POST {path} HTTP/1.1\r\nHost: shop\r\n{lines}Content-Length: 0\r\nConnection: close\r\n\r\n");
        raw(guard.agent_address(), text.as_bytes()).map(|answer| answer.status)
    };
    let mut wrong = Vec::new();
    for path in [
        "/public/../pay/r",
        "/public/%2e%2e/pay/r",
        "/public/%2E./pay/r",
        "/public/.%2e/pay/r",
        "/public/..%2fpay/r",
        "/public%2f..%2fpay/r",
        "/public/..\\pay/r",
        "/public/x/../../pay/r",
        "/public/..;/pay/r",
        "/public;/../pay/r",
        "/public/%252e%252e/../pay/r",
        "/public/%252e%252e/pay/r",
        "/public//../pay/r",
        "/pay//r",
        "//pay/r",
        "/./pay/r",
        "/pay/r/.",
        "/pay/r/..",
        "/%70ay/r",
        "/public/\u{2025}/pay/r",
    ] {
        if post(path) != Some(400) {
            wrong.push(path);
        }
    }
    for path in ["/PAY/r", "/Public/r", "/publicity", "/public.json"] {
        if post(path) != Some(403) {
            wrong.push(path);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    assert_eq!(upstream.heads(), 0, "nothing was passed on");
    assert_eq!(guard.approver().list("").len(), 0);
    assert_eq!(post("/pay/r"), Some(202));
    assert_eq!(upstream.heads(), 0);
    for path in ["/public", "/public/pay/r", "/public/a%20b"] {
        guard.agent().send(Request::post(path).header("Content-Length", "0")).must_be(201);
        assert_eq!(upstream.seen().last().map(|seen| seen.target.clone()).as_deref(), Some(path));
    }
}

#[test]
fn what_is_matched_is_what_is_sent() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    for path in ["/free/a%20b", "/free/%E2%82%AC", "/free/a+b", "/free/a:b@c!$&'()*,=", "/free/-._~"] {
        let draft = guard.agent().hold(path, &json!({ "p": path }));
        let shown = guard.draft(&draft.id);
        assert!(shown["request"]["target"].as_str().is_some_and(|target| target.ends_with(path)), "{path}: {shown}");
        guard.approver().confirm_fully(&draft);
        assert_eq!(upstream.seen().last().map(|seen| seen.target.clone()).as_deref(), Some(path));
    }
    for path in ["/FREE/x", "/Tasks", "/free.json"] {
        guard.agent().post(path, &json!({"title": "x"})).must_refuse(403, "TOOL_NOT_FOUND");
    }
    for path in ["/tasks/", "/pay/"] {
        guard.agent().post(path, &json!({"title": "x"})).must_refuse(400, "REQUEST_AMBIGUOUS");
    }
}

#[test]
fn the_query_goes_out_as_it_came_and_is_part_of_what_is_confirmed() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let agent = guard.agent();
    let queries = [
        "a=2&b=1",
        "b=1&a=2",
        "q=C%2B%2B",
        "q=C++",
        "q=C%20%20",
        "x",
        "x=",
        "%61=1",
        "a=1",
        "a=b=c",
        "u=%E2%82%AC",
        "a=2&a=1",
        "a=1&a=2",
        "a=1;b=2",
        "",
    ];
    let mut hashes = Vec::new();
    for query in queries {
        let target = format!("/free/q?{query}");
        let draft = agent.hold(&target, &json!({}));
        hashes.push(draft.args_hash.clone());
        guard.approver().confirm_fully(&draft);
        assert_eq!(upstream.seen().last().map(|seen| seen.target.clone()), Some(target));
    }
    let bare = agent.hold("/free/q", &json!({}));
    hashes.push(bare.args_hash);
    let all = hashes.len();
    hashes.sort();
    hashes.dedup();
    assert_eq!(hashes.len(), all, "every spelling of the target is a call of its own");
    agent.post("/tasks?title=two&title=titles", &json!({})).must_be(422);
    agent.post("/tasks?title=here", &json!({"title": "there"})).must_be(422);
}

/// Two services that are told apart by host.
const HOSTS: &str = "
version: 1
service: public
upstream: {url: \"${env:DESK_URL}\"}
route: {hosts: [public.test], path_prefix: /}
";
const PRIVATE: &str = "
version: 1
service: private
upstream: {url: \"${env:DESK_URL}\"}
route: {hosts: [pay.test], path_prefix: /}
unmatched: {read: refuse, write: refuse}
capabilities:
  - {id: pay.it, status: enabled, tool: pay_it, operation: create, risk: low, confirm: default}
  - {id: inside, status: forbidden, match: {method: [GET, POST], path: \"/internal{/**}\"}, guidance: Not for agents.}
tools:
  - name: pay_it
    match: {method: POST, path: /pay}
    effect: write
    risk: low
    confirm: default
    preview: {title: Pay, target: somebody, impact: Money leaves.}
";

fn by_host(upstream: &Upstream) -> Guard {
    Setup::over(upstream).no_policies().policy("public.yaml", HOSTS).policy("private.yaml", PRIVATE).start()
}

#[test]
fn the_authority_is_read_once_and_in_one_way() {
    let upstream = Upstream::start();
    let guard = by_host(&upstream);
    let lines = guard.agent().header_lines();
    let mut wrong = Vec::new();
    for (target, hosts) in [
        ("/pay", "Host: pay.test\r\nHost: public.test\r\n"),
        ("/pay", "Host: public.test\r\nHost: pay.test\r\n"),
        ("/pay", "Host: pay.test\r\nhost: pay.test\r\n"),
        ("/pay", ""),
        ("/pay", "Host: pay.test@public.test\r\n"),
        ("/pay", "Host: user@pay.test\r\n"),
        ("/pay", "Host: pay.test/x\r\n"),
        ("/pay", "Host: pay.test, public.test\r\n"),
        ("/pay", "Host: pay.test:80:80\r\n"),
        ("/pay", "Host: pay.test:99999\r\n"),
        ("/pay", "Host: pay test\r\n"),
        ("/pay", "Host: [::1\r\n"),
        ("http://pay.test/pay", "Host: public.test\r\n"),
        ("http://public.test/pay", "Host: pay.test\r\n"),
        ("http://pay.test:8080/pay", "Host: pay.test\r\n"),
        ("http://user@pay.test/pay", "Host: pay.test\r\n"),
        ("http:///pay", "Host: pay.test\r\n"),
        ("ftp://pay.test/pay", "Host: pay.test\r\n"),
    ] {
        let text = format!(
            "POST {target} HTTP/1.1\r\n{hosts}{lines}Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}"
        );
        let status = raw(guard.agent_address(), text.as_bytes()).map(|answer| answer.status);
        if status != Some(400) {
            wrong.push(format!("{target} {hosts:?}: {status:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(upstream.heads(), 0);
    assert_eq!(guard.approver().list("").len(), 0);
}

#[test]
fn the_same_host_in_another_spelling_is_the_same_service() {
    let upstream = Upstream::start();
    let guard = by_host(&upstream);
    let agent = guard.agent();
    let mut ids = Vec::new();
    for host in ["pay.test", "PAY.test", "pay.test.", "pay.test:80"] {
        let draft = crate::support::Draft::from(&agent.with("Host", host).post("/pay", &json!({})).must_be(202));
        ids.push(draft.id);
    }
    ids.dedup();
    assert_eq!(ids.len(), 1, "one call, one draft");
    let absolute = agent.with("Host", "pay.test").post("http://pay.test/pay", &json!({})).must_be(202);
    assert_eq!(absolute.json()["draft_id"], ids[0].as_str());
    for (host, path) in [("pay.test", "/internal"), ("Pay.Test", "/internal/x")] {
        agent.with("Host", host).get(path).must_refuse(403, "CAPABILITY_FORBIDDEN");
    }
    agent.with("Host", "pay.test").get("http://pay.test/internal").must_refuse(403, "CAPABILITY_FORBIDDEN");
    let refused = agent.with("Host", "pay.test").get("/else");
    assert_eq!(refused.status, 403, "`unmatched.read: refuse`: {}", refused.text());
    agent.with("Host", "elsewhere.test").get("/pay").must_refuse(404, "ROUTE_NOT_FOUND");
    agent.with("Host", "elsewhere.test").post("/pay", &json!({})).must_refuse(404, "ROUTE_NOT_FOUND");
    agent.with("Host", "public.test").get("/anything").must_be(200);
    assert_eq!(upstream.all_effects(), 0);
}

#[test]
fn method_overrides_are_refused_wherever_they_stand() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let agent = guard.agent();
    for name in ["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "x-http-method-override"] {
        for value in ["DELETE", "GET", "delete"] {
            agent.with(name, value).get("/users/7").must_refuse(400, "REQUEST_AMBIGUOUS");
            agent.with(name, value).post("/free/x", &json!({})).must_refuse(400, "REQUEST_AMBIGUOUS");
        }
    }
    for path in ["/users/7?_method=DELETE", "/users/7?x=1&_method=delete", "/users/7?%5fmethod=DELETE"] {
        agent.get(path).must_refuse(400, "REQUEST_AMBIGUOUS");
        agent.post(path, &json!({})).must_refuse(400, "REQUEST_AMBIGUOUS");
    }
    let form = agent.send(Request::post("/free/x").body("application/x-www-form-urlencoded", "a=1&_method=delete"));
    form.must_refuse(400, "REQUEST_AMBIGUOUS");
    agent.post("/free/x", &json!({"_method": "delete"})).must_refuse(400, "REQUEST_AMBIGUOUS");
    assert_eq!(upstream.heads(), 0);
    assert_eq!(guard.approver().list("").len(), 0);
    let archive = "version: 1\nservice: archive\nupstream: {url: \"${env:DESK_URL}\", read_only: true}\nroute: {path_prefix: /}\n";
    let guard = Setup::over(&upstream).no_policies().policy("archive.yaml", archive).start();
    let reader = guard.agent().with("X-HTTP-Method-Override", "DELETE");
    reader.get("/users/7").must_refuse(400, "REQUEST_AMBIGUOUS");
    guard.agent().get("/users/7?_method=DELETE").must_refuse(400, "REQUEST_AMBIGUOUS");
    assert_eq!(upstream.heads(), 0, "also where only reads are declared: the upstream may take writes");
}

#[test]
fn the_guards_own_listeners_are_never_reachable_through_it() {
    let upstream = Upstream::start();
    let port = free_port();
    for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0x7f.1", "127.1"] {
        let policy = format!(
            "version: 1\nservice: loop\nupstream: {{url: \"http://{host}:{port}\"}}\nroute: {{path_prefix: /}}\nunmatched: {{read: pass, write: hold}}\n"
        );
        let guard = Setup::local(&upstream)
            .section("control", &format!("{{listen: \"127.0.0.1:{port}\"}}"))
            .no_policies()
            .policy("loop.yaml", &policy)
            .try_start();
        // A name is known to lead here only when it is looked up; an address is refused at the start.
        match guard {
            Ok(guard) => drop(guard.anyone().get("/metrics").must_refuse(403, "HOST_REFUSED")),
            Err(ended) => {
                assert!(host != "localhost" && ended.error().contains("loop.yaml"), "{host}: {}", ended.said())
            }
        }
    }
}

#[test]
fn a_listener_on_every_address_is_not_reachable_by_any_of_them() {
    // A machine without any other address has no such way in.
    let Some(outward) = outward_address() else { return };
    let upstream = Upstream::start();
    let port = free_port();
    let policy = format!(
        "version: 1\nservice: loop\nupstream: {{url: \"http://{outward}:{port}\"}}\nroute: {{path_prefix: /}}\nunmatched: {{read: pass, write: hold}}\n"
    );
    let guard = Setup::over(&upstream)
        .section("control", &format!("{{listen: \"0.0.0.0:{port}\", public_url: \"http://127.0.0.1:{port}\"}}"))
        .no_policies()
        .policy("loop.yaml", &policy)
        .start();
    // Relayed and proxied alike.
    for agent in [guard.agent(), guard.agent().with("TE", "trailers")] {
        agent.get("/metrics").must_refuse(403, "HOST_REFUSED");
    }
    let draft = guard.agent().hold("/v1/policies/reload", &json!({}));
    guard.approver().confirm(&draft);
    let end = guard.draft_when(&draft.id, "failed");
    assert_eq!(end["failure"], "not_sent", "{end}");
}

/// An address of this machine that is not the loopback. Nothing is sent to find it out.
fn outward_address() -> Option<std::net::IpAddr> {
    let probe = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    probe.connect("192.0.2.1:9").ok()?;
    let ip = probe.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}
