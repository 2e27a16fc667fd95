//! The child of the tests does what they rely on: it starts, ends, forgets, remembers, stands still,
//! and is always the one that was started.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::kill;

use crate::redis::{Connection, Redis, Reply, Sentinel};

#[test]
fn it_answers_by_socket_and_by_port_and_knows_no_other() {
    let (one, other) = (Redis::start(&[]), Redis::start_on_tcp(&["--maxmemory", "100mb"]));
    assert_eq!(one.command(&["SET", "a", "1"]), Reply::Simple("OK".to_owned()));
    assert_eq!(other.command(&["GET", "a"]), Reply::Nil);
    assert_eq!(other.command(&["CONFIG", "GET", "maxmemory"]).texts(), ["maxmemory", "104857600"]);
    let mut by_port = Connection::tcp(other.port()).unwrap();
    assert_eq!(by_port.ask(&[b"SET".as_slice(), b"b", b"\0\r\n\xff"]).unwrap().text(), "OK");
    assert_eq!(other.command(&["GET", "b"]), Reply::Bulk(b"\0\r\n\xff".to_vec()));
    let list = other.command(&["EVAL", "return {1, 'two', {3}, false}", "0"]);
    assert_eq!(
        list.list(),
        [Reply::Int(1), Reply::Bulk(b"two".to_vec()), Reply::List(vec![Reply::Int(3)]), Reply::Nil]
    );
    assert!(other.ask(&["EVALSHA", "00", "0"]).text().starts_with("NOSCRIPT"));
    assert!(one.url().starts_with("unix:///") && other.url() == format!("redis://127.0.0.1:{}", other.port()));
    assert_eq!(one.command(&["CONFIG", "GET", "port"]).texts()[1], "0", "a socket is all it listens on");
}

#[test]
fn a_taken_port_is_passed_over() {
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap().port();
    let elder = Redis::start_on_tcp(&[]);
    let free = Redis::start_on_tcp(&[]).port();
    let redis = Redis::start_on_one_of(&[taken, elder.port(), free], &[]);
    assert_eq!(redis.port(), free);
    assert_ne!(redis.pid(), elder.pid());
}

#[test]
fn a_restart_remembers_what_is_on_disk_and_only_that() {
    for kept in [true, false] {
        let on_disk: &[&str] = if kept { &["--appendonly", "yes", "--appendfsync", "always"] } else { &[] };
        let mut redis = Redis::start_on_tcp(on_disk);
        let (port, pid) = (redis.port(), redis.pid());
        redis.command(&["SET", "a", "1"]);
        redis.restart();
        assert_eq!((redis.port(), redis.command(&["GET", "a"]).text().as_str()), (port, if kept { "1" } else { "" }));
        assert_ne!(redis.pid(), pid);
        redis.command(&["SET", "a", "2"]);
        redis.stop();
        redis.restart();
        assert_eq!(redis.command(&["GET", "a"]).text(), if kept { "2" } else { "" });
    }
}

#[test]
fn a_killed_one_refuses_and_a_dropped_one_is_gone() {
    let mut redis = Redis::start_on_tcp(&[]);
    let (port, pid, mut open) = (redis.port(), redis.pid(), redis.connect());
    redis.kill();
    assert_eq!(kill(pid, None), Err(Errno::ESRCH));
    assert!(open.ask(&["PING"]).is_err());
    assert_eq!(Connection::tcp(port).map(|_| ()).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    redis.restart();
    redis.pause();
    let (pid, folder) = (redis.pid(), redis.folder().to_owned());
    drop(redis);
    assert_eq!(kill(pid, None), Err(Errno::ESRCH), "also one that stands still");
    assert!(!folder.exists());
}

#[test]
fn a_paused_one_takes_connections_and_answers_when_it_goes_on() {
    let redis = Redis::start_on_tcp(&[]);
    redis.pause();
    let mut waiting = Connection::tcp(redis.port()).expect("the kernel takes it");
    waiting.send(&["SET", "a", "1"]).unwrap();
    waiting.wait_for(Duration::from_millis(50)).unwrap();
    assert_eq!(waiting.receive().unwrap_err().kind(), ErrorKind::WouldBlock);
    redis.resume();
    assert_eq!(redis.command(&["GET", "a"]).text(), "1", "what was sent meanwhile is done");
}

#[test]
fn a_password_is_used_by_its_own_tests_and_asked_of_others() {
    let redis = Redis::start_on_tcp(&["--requirepass", "open sesame"]);
    assert_eq!(redis.command(&["PING"]).text(), "PONG");
    assert!(Connection::tcp(redis.port()).unwrap().ask(&["PING"]).unwrap().text().starts_with("NOAUTH"));
}

#[test]
#[should_panic(expected = "redis-server did not start")]
fn options_that_it_refuses_are_told() {
    Redis::start(&["--appendonly", "perhaps"]);
}

#[test]
fn a_sentinel_moves_the_primary_to_a_replica() {
    let mut primary = Redis::start_on_tcp(&[]);
    let replica = Redis::replica_of(&primary, &[]);
    let mut connection = primary.connect();
    connection.ask(&["SET", "a", "1"]).unwrap();
    assert_eq!(connection.ask(&["WAIT", "1", "10000"]).unwrap().int(), 1, "WAIT counts for its own connection");
    assert_eq!(replica.command(&["GET", "a"]).text(), "1");
    let sentinel = Sentinel::watch(&primary, 1, 1);
    assert_eq!(sentinel.primary(), primary.port());
    primary.kill();
    sentinel.until_primary_is(replica.port());
    assert_eq!(replica.info("role").as_deref(), Some("master"));
    primary.restart();
    sentinel.until_it_knows("num-slaves", 1);
}
