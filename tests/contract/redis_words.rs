//! Every word that a script may answer is answered: recorded on the wire while the contract runs.
//!
//! The words are those of the heads in `lua/`. What the contract's cases do not bring about, this file
//! asks for by itself.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use countersign::base::time::{ManualClock, SystemClock};
use countersign::store::conformance::Harness;
use countersign::store::redis::{RedisOptions, RedisStore};

use crate::START;
use crate::redis::Redis;

/// What was answered: words by step.
type Words = Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>;

/// One frame of the protocol as far as this file looks into it.
enum Frame {
    Text(Vec<u8>),
    List(Vec<Self>),
    Other,
}

/// Reads one frame; its bytes go to `raw`.
fn frame(from: &mut impl BufRead, raw: &mut Vec<u8>) -> io::Result<Frame> {
    let begun = raw.len();
    if from.read_until(b'\n', raw)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let head = String::from_utf8_lossy(&raw[begun..]).trim_end().to_owned();
    let (kind, rest) = head.split_at(1);
    let count = rest.parse::<usize>();
    match (kind, count) {
        ("$", Ok(length)) => {
            let begun = raw.len();
            raw.resize(begun + length + 2, 0);
            from.read_exact(&mut raw[begun..])?;
            Ok(Frame::Text(raw[begun..begun + length].to_vec()))
        }
        ("*", Ok(count)) => (0..count).map(|_| frame(from, raw)).collect::<io::Result<_>>().map(Frame::List),
        _ => Ok(Frame::Other),
    }
}

/// The step of an EVALSHA or EVAL; nothing of another command.
fn step_of(command: &Frame, known: &Mutex<BTreeMap<String, String>>) -> Option<String> {
    let Frame::List(words) = command else { return None };
    let [Frame::Text(verb), Frame::Text(what), ..] = words.as_slice() else { return None };
    let what = String::from_utf8_lossy(what).into_owned();
    match verb.as_slice() {
        b"EVAL" => {
            let step = what.lines().find_map(|line| line.strip_prefix("-- step: "))?.to_owned();
            let sha = redis::Script::new(&what).get_hash().to_owned();
            known.lock().unwrap().insert(sha, step.clone());
            Some(step)
        }
        b"EVALSHA" => known.lock().unwrap().get(&what).cloned(),
        _ => None,
    }
}

/// A port behind which `server` answers, and everything it answers is noted.
fn listen(server: PathBuf, words: Words) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let known = Arc::new(Mutex::new(BTreeMap::new()));
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(upstream) = UnixStream::connect(&server) else { return };
            client.set_nodelay(true).unwrap();
            let (words, known) = (Arc::clone(&words), Arc::clone(&known));
            relay(client, upstream, words, known);
        }
    });
    port
}

fn relay(client: TcpStream, server: UnixStream, words: Words, known: Arc<Mutex<BTreeMap<String, String>>>) {
    // Answers come in the order of the commands.
    let asked = Arc::new(Mutex::new(VecDeque::new()));
    let (from_client, mut to_client) = (client.try_clone().unwrap(), client);
    let (from_server, mut to_server) = (server.try_clone().unwrap(), server);
    let commands = Arc::clone(&asked);
    thread::spawn(move || {
        let mut from = BufReader::new(from_client);
        let mut raw = Vec::new();
        while let Ok(command) = frame(&mut from, &mut raw) {
            commands.lock().unwrap().push_back(step_of(&command, &known));
            if to_server.write_all(&std::mem::take(&mut raw)).is_err() {
                break;
            }
        }
        let _ = to_server.shutdown(std::net::Shutdown::Both);
    });
    thread::spawn(move || {
        let mut from = BufReader::new(from_server);
        let mut raw = Vec::new();
        while let Ok(answer) = frame(&mut from, &mut raw) {
            let step = asked.lock().unwrap().pop_front().flatten();
            // A word alone, or with what belongs to it.
            let word = match answer {
                Frame::List(parts) => parts.into_iter().next(),
                word => Some(word),
            };
            if let (Some(step), Some(Frame::Text(word))) = (step, word) {
                let word = String::from_utf8_lossy(&word).into_owned();
                words.lock().unwrap().entry(step).or_default().insert(word);
            }
            if to_client.write_all(&std::mem::take(&mut raw)).is_err() {
                break;
            }
        }
        let _ = to_client.shutdown(std::net::Shutdown::Both);
    });
}

/// The words of the heads.
fn promised() -> BTreeMap<String, BTreeSet<String>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("lua");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    files
        .map(|path| {
            let text = std::fs::read_to_string(path).unwrap();
            let head = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned();
            (head("-- step: "), head("-- replies: ").split_whitespace().map(str::to_owned).collect())
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_word_of_every_step_is_answered_to_somebody() {
    let words = Words::default();
    let make = || {
        let clock = Arc::new(ManualClock::new(START));
        let server = Redis::start(&["--appendonly", "yes"]);
        let port = listen(server.socket(), Arc::clone(&words));
        let options = RedisOptions { step_timeout: Duration::from_secs(10), ..RedisOptions::default() };
        let url = format!("redis://127.0.0.1:{port}");
        let opening = RedisStore::with_handed_clock(&url, clock.clone(), options);
        let store = tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(opening)).expect("opens");
        Harness::new(Arc::new(store), clock, Box::new(server))
    };
    countersign::conformance!(run make);
    // A user that may do all but one thing would leave half of each step behind.
    let server = Redis::start(&["--appendonly", "yes"]);
    let url = format!("redis://127.0.0.1:{}", listen(server.socket(), Arc::clone(&words)));
    for (command, named) in [("zadd", "ZADD cs:{0}:ix"), ("mget", "MGET cs:{0}:meta"), ("get", "GET cs:{0}:meta")] {
        server.command(&["ACL", "SETUSER", "default", &format!("-{command}")]);
        let refused = RedisStore::open(&url, Arc::new(SystemClock), RedisOptions::default()).await;
        let why = refused.expect_err("a store that may not do all").to_string();
        assert!(why.contains(named) && why.contains("users.acl.example"), "{command}: {why}");
        server.command(&["ACL", "SETUSER", "default", &format!("+{command}")]);
    }

    let promised = promised();
    let answered = words.lock().unwrap().clone();
    for (step, words) in &answered {
        let unknown: Vec<_> = words.difference(&promised[step]).collect();
        assert!(unknown.is_empty(), "{step} answers {unknown:?}, and its head does not say so");
    }
    let silent: BTreeMap<_, Vec<_>> = promised
        .iter()
        .map(|(step, words)| {
            (step, words.difference(answered.get(step).unwrap_or(&BTreeSet::new())).cloned().collect())
        })
        .filter(|(_, words): &(_, Vec<String>)| !words.is_empty())
        .collect();
    assert!(silent.is_empty(), "never answered: {silent:?}");
}
