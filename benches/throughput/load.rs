//! The load: raw HTTP/1.1 over kept connections, in a process of its own.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::process::again;

/// What to ask, how often.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Load {
    pub(crate) address: String,
    pub(crate) connections: usize,
    pub(crate) seconds: f64,
    /// Requests per second over all connections; `None` is as fast as it goes.
    pub(crate) rate: Option<f64>,
    pub(crate) request: String,
    /// Whether `########` in the request stands for a number that is new every time.
    pub(crate) numbered: bool,
}

/// What came of it.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) answered: u64,
    /// Other statuses than 2xx, and connections that broke.
    pub(crate) errors: u64,
    pub(crate) per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// Filled in by whoever measures the process under test.
    pub(crate) cpu_us: f64,
}

/// A read as a usual client library sends it.
pub(crate) fn read_request(headers: &str) -> String {
    format!(
        "GET /v1/todos?status=open&limit=50 HTTP/1.1\r\nHost: notes.internal\r\nUser-Agent: python-httpx/0.27.0\r\n\
         Accept: application/json\r\nAccept-Encoding: gzip, deflate\r\nConnection: keep-alive\r\n{headers}\r\n"
    )
}

/// A write with a body of 1 KiB of JSON, another one every time.
pub(crate) fn write_request() -> String {
    let notes: String =
        (0..12).map(|line| format!("\"note{line}\":\"what is to be done about item {line} of the list\",")).collect();
    let mut body =
        format!("{{{notes}\"number\":\"########\",\"tags\":[\"home\",\"garden\"],\"priority\":1,\"fill\":\"\"}}");
    let fill = 1024_usize.saturating_sub(body.len());
    body.insert_str(body.len() - 2, &"x".repeat(fill));
    format!(
        "POST /v1/todos HTTP/1.1\r\nHost: notes.internal\r\nCountersign-Agent: 3f1c0a7be2d94f5c8a6b7c8d9e0f1a2b\r\n\
         X-User-Id: u-########\r\nX-Session-Id: s-77\r\nUser-Agent: python-httpx/0.27.0\r\nAccept: */*\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

impl Load {
    /// Runs it in a process of its own, next to the origin.
    pub(crate) fn measure(&self) -> Report {
        let out = again(1).args(["--role", "load", "--load", &serde_json::to_string(self).unwrap()]).output().unwrap();
        assert!(out.status.success(), "the load failed: {}", String::from_utf8_lossy(&out.stderr));
        serde_json::from_slice(&out.stdout).unwrap()
    }
}

/// The role: runs one load and prints its report.
pub(crate) fn run(load: &str) {
    let load: Load = serde_json::from_str(load).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let report = runtime.block_on(drive(load));
    println!("{}", serde_json::to_string(&report).unwrap());
}

async fn drive(load: Load) -> Report {
    let began = Instant::now();
    let end = began + Duration::from_secs_f64(load.seconds);
    let connections = (0..load.connections).map(|index| tokio::spawn(connection(load.clone(), index, began, end)));
    let connections: Vec<_> = connections.collect();
    let (mut times, mut errors) = (Vec::new(), 0);
    for connection in connections {
        let (own, failed) = connection.await.unwrap();
        times.extend(own);
        errors += failed;
    }
    let took = began.elapsed().as_secs_f64();
    times.sort_unstable();
    let at = |share: f64| {
        times.get(((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1))).copied().unwrap_or(0)
    };
    Report {
        answered: times.len() as u64,
        errors,
        per_second: times.len() as f64 / took,
        p50_us: f64::from(at(0.5)) / 10.0,
        p99_us: f64::from(at(0.99)) / 10.0,
        cpu_us: 0.0,
    }
}

/// Times in tenths of a microsecond, and errors.
async fn connection(load: Load, index: usize, began: Instant, end: Instant) -> (Vec<u32>, u64) {
    let (mut times, mut errors) = (Vec::new(), 0);
    let mut stream = TcpStream::connect(&load.address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let mut request = load.request.clone().into_bytes();
    // The body's text and the owner: every call is another one, of another person.
    let numbers: Vec<usize> =
        (0..request.len().saturating_sub(7)).filter(|at| &request[*at..at + 8] == b"########").collect();
    let gap = load.rate.map(|rate| Duration::from_secs_f64(load.connections as f64 / rate));
    let mut due = began + gap.unwrap_or_default().mul_f64(index as f64 / load.connections as f64);
    let mut count = 0_usize;
    let mut buf = Vec::with_capacity(16 * 1024);
    while Instant::now() < end {
        if let Some(gap) = gap {
            tokio::time::sleep_until(due.into()).await;
            due += gap;
        }
        if load.numbered {
            count += 1;
            for at in &numbers {
                request[*at..at + 8].copy_from_slice(format!("{index:03}{count:05}").as_bytes());
            }
        }
        let sent = Instant::now();
        if stream.write_all(&request).await.is_err() {
            errors += 1;
            break;
        }
        match answer(&mut stream, &mut buf).await {
            Some(status) => {
                times.push(u32::try_from(sent.elapsed().as_nanos() / 100).unwrap_or(u32::MAX));
                errors += u64::from(status / 100 != 2);
            }
            None => {
                errors += 1;
                break;
            }
        }
    }
    (times, errors)
}

/// Reads one answer with a length.
async fn answer(stream: &mut TcpStream, buf: &mut Vec<u8>) -> Option<u16> {
    buf.clear();
    let mut whole = usize::MAX;
    let mut status = 0;
    loop {
        if stream.read_buf(buf).await.ok()? == 0 {
            return None;
        }
        if whole == usize::MAX
            && let Some(at) = buf.windows(4).position(|window| window == b"\r\n\r\n")
        {
            let mut headers = [httparse::EMPTY_HEADER; 32];
            let mut head = httparse::Response::new(&mut headers);
            head.parse(buf).ok()?;
            status = head.code?;
            let length = head.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"))?;
            whole = at + 4 + std::str::from_utf8(length.value).ok()?.parse::<usize>().ok()?;
        }
        if buf.len() >= whole {
            return Some(status);
        }
    }
}
