//! The example policies and the quickstart do what they are there to show.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::support::guard::BINARY;
use crate::support::{Answer, Draft, Guard, Request, Setup, Upstream, eventually, exchange};

fn example(file: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("policies").join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The to-do example, for a user whose role stands in a header.
fn lightnote(upstream: &Upstream) -> Guard {
    let identity = crate::support::config::identity_with("\n  role: header:X-User-Role");
    Setup::over(upstream)
        .section("identity", &identity)
        .no_policies()
        .policy("lightnote.yaml", &example("lightnote.yaml"))
        .env("LIGHTNOTE_URL", &upstream.url())
        .start()
}

#[test]
fn the_to_do_example_prepares_shows_holds_and_sends() {
    let upstream = Upstream::start();
    upstream.answers("/todos", Answer::json(201, r#"{"id":"t-1","title":"买牛奶"}"#));
    let guard = lightnote(&upstream);
    let user = guard.agent().with("X-User-Role", "user");
    let call = json!({"taskTitle": "  买牛奶  ", "deadline": "2026-12-01 21:00", "importance": "high"});
    let held = user.post("/todos", &call).must_be(202).json();
    assert_eq!((&held["tool"], &held["capability"]), (&json!("create_todo"), &json!("todo.create")));
    let card = &held["preview"];
    assert_eq!((&card["title"], &card["target"]), (&json!("创建待办"), &json!("买牛奶")), "{card}");
    assert!(card["impact"].as_str().is_some_and(|impact| impact.contains("2026-12-01 21:00")), "{card}");
    let done =
        guard.approver().confirm_fully(&Draft { id: text(&held, "draft_id"), args_hash: text(&held, "args_hash") });
    assert_eq!(done["receipt"]["summary"], "待办「买牛奶」已创建。");
    let sent: Value = serde_json::from_slice(&upstream.the_one("/todos").body).expect("JSON");
    assert_eq!(sent, json!({"title": "买牛奶", "dueAt": "2026-12-01 21:00", "priority": 2}));

    let status = user.send(Request::new("PATCH", "/todos/7").json(&json!({"status": "archived"}))).must_be(202).json();
    assert!(status["preview"]["impact"].as_str().is_some_and(|impact| impact.contains("归档")), "{status}");
    let own_code = user.post("/todos", &json!({"title": " "})).must_be(422);
    assert_eq!(own_code.code(), "TODO_TITLE_REQUIRED");
    let planned = user.send(Request::new("DELETE", "/notes/9")).must_refuse(403, "CAPABILITY_PLANNED");
    assert_eq!(planned["guidance"], "当前请前往笔记页面手动删除。");
    let forbidden = user.send(Request::new("DELETE", "/account")).must_refuse(403, "CAPABILITY_FORBIDDEN");
    assert_eq!(forbidden["guidance"], "Agent 不允许执行账号注销。");
    user.get("/todos").must_be(201);
    user.with("X-User-Role", "guest").post("/todos", &call).must_refuse(403, "ROLE_NOT_ALLOWED");
    user.without("X-User-Role").post("/todos", &call).must_refuse(403, "IDENTITY_MISSING");
    assert_eq!(upstream.all_effects(), 1);
}

fn text(value: &Value, member: &str) -> String {
    value[member].as_str().unwrap_or_else(|| panic!("no {member}: {value}")).to_owned()
}

#[test]
fn the_customer_service_example_reads_orders_and_holds_messages() {
    let upstream = Upstream::start();
    let guard = Setup::over(&upstream)
        .no_policies()
        .policy("customer-service.yaml", &example("customer-service.yaml"))
        .env("CUSTOMER_SERVICE_URL", &upstream.url())
        .env("CUSTOMER_SERVICE_TOKEN", "the-services-own-token")
        .start();
    let agent = guard.agent().with("Host", "customer-service.internal");
    agent.get("/orders/o-1").must_be(200);
    let held = agent.post("/customers/C42/messages", &json!({"message": " Your parcel is on its way. "})).must_be(202);
    assert!(held.json()["preview"].to_string().contains("Your parcel is on its way."), "{}", held.text());
    assert_eq!(upstream.all_effects(), 0, "looking up an order sends no message");
    guard.approver().confirm_fully(&Draft::from(&held));
    let sent = upstream.the_one("/customers/C42/messages");
    assert_eq!(sent.header("Authorization"), Some("Bearer the-services-own-token"));
    assert_eq!(String::from_utf8_lossy(&sent.body), r#"{"text":"Your parcel is on its way."}"#);
    agent.post("/orders/o-1/refunds", &json!({})).must_refuse(403, "CAPABILITY_PLANNED");
}

/// A quickstart that runs, and its first line of JSON.
struct Quickstart {
    child: Child,
    ready: Value,
}

impl Quickstart {
    fn start() -> Self {
        let mut command = Command::new(BINARY);
        command.args(["quickstart", "--json"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the quickstart starts");
        let mut line = String::new();
        let out = child.stdout.take().expect("piped");
        BufReader::new(out).read_line(&mut line).expect("a line");
        let ready = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        Self { child, ready }
    }

    fn address(&self, member: &str) -> SocketAddr {
        let url = self.ready[member].as_str().and_then(|url| url.strip_prefix("http://"));
        url.and_then(|url| url.parse().ok()).unwrap_or_else(|| panic!("no address {member}: {}", self.ready))
    }
}

impl Drop for Quickstart {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_quickstart_shows_a_read_a_held_write_a_join_and_one_effect_and_cleans_up() {
    let mut quickstart = Quickstart::start();
    let ready = quickstart.ready.clone();
    assert_eq!(ready["ready"], true, "{ready}");
    assert_eq!(ready["curl"].as_array().map(Vec::len), Some(3), "{ready}");
    let (agent, sample) = (quickstart.address("agent"), quickstart.address("sample"));
    let todos = |address| exchange(address, &Request::get("/todos")).must_be(200).json()["items"].clone();
    assert_eq!(todos(agent), json!([]));
    let write = Request::post("/todos").json(&json!({"title": "Buy milk", "priority": "high"}));
    let (first, second) = (exchange(agent, &write).must_be(202), exchange(agent, &write).must_be(202));
    assert_eq!(Draft::from(&first), Draft::from(&second), "the second write joins the first");
    assert_eq!(todos(sample), json!([]), "nothing has reached the service");

    let confirm = text(&ready, "confirm");
    let words: Vec<&str> = confirm.split_whitespace().collect();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg(Draft::from(&first).id).arg("--yes");
    let confirmed = crate::support::guard::run_to_end(command);
    assert_eq!(confirmed.status.code(), Some(0), "{}", confirmed.said());
    assert_eq!(todos(sample).as_array().map(Vec::len), Some(1));
    let replay = exchange(agent, &write);
    assert_eq!(replay.header("Countersign-Replayed"), Some("true"), "{}", replay.text());
    assert_eq!(todos(sample).as_array().map(Vec::len), Some(1));

    let folder = std::path::PathBuf::from(text(&ready, "keys")).parent().expect("a folder").to_path_buf();
    assert!(folder.exists());
    kill(Pid::from_raw(i32::try_from(quickstart.child.id()).expect("a pid")), Signal::SIGINT).expect("Ctrl-C");
    let status = eventually("the quickstart ends", || quickstart.child.try_wait().expect("a child"));
    assert_eq!(status.code(), Some(0));
    assert!(!folder.exists(), "its folder is gone");
}
