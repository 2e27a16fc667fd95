//! Reads and holds per second through the guard, side by side with a bare pingora proxy.
//!
//! `cargo bench --bench throughput` starts an origin, a bare proxy and the guard as processes of
//! their own (one build, one profile, one allocator), alternates them in short rounds, and prints
//! medians and the processor time of each process per request. What a guard adds is told round by
//! round against the bare proxy that ran just before it with the same requests, and of that the
//! median: a machine that changes its speed meanwhile changes both. The proxy under test has
//! processor 0 and one worker thread to itself; origin and load share processor 1. Linux only.
//!
//! Options after `--`: `--seconds N` of one round (default 1), `--rounds N` (default 16),
//! `--connections N` (default 64), `--quick` (2 rounds of 1 s).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod load;
mod process;
mod roles;

use load::{Load, Report};
use process::Child;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What a user may set.
#[derive(Debug, Clone, Copy)]
struct Options {
    seconds: f64,
    rounds: usize,
    connections: usize,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let value = |name: &str| args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1)).cloned();
    match value("--role").as_deref() {
        Some("origin") => return roles::origin(),
        Some("bare") => return roles::bare(&value("--upstream").unwrap()),
        Some("guard") => return roles::guard(&value("--upstream").unwrap(), args.iter().any(|arg| arg == "--agents")),
        Some("load") => return load::run(&value("--load").unwrap()),
        Some(other) => panic!("no role {other}"),
        None => {}
    }
    let number = |name: &str, otherwise: f64| value(name).map_or(otherwise, |text| text.parse().expect("a number"));
    let quick = args.iter().any(|arg| arg == "--quick");
    let options = Options {
        seconds: number("--seconds", 1.0),
        rounds: number("--rounds", if quick { 2.0 } else { 16.0 }) as usize,
        connections: number("--connections", 64.0) as usize,
    };
    println!("{options:?}; one worker thread per proxy, processor 0; origin and load on processor 1");
    let origin = Child::start("origin", &[], 1);
    reads(options, &origin);
    holds(options, &origin);
}

/// A proxy under test.
struct Target {
    name: &'static str,
    child: Child,
    /// Lines of the request's head beside `Host`.
    headers: &'static str,
    closed: Vec<Report>,
    half: Vec<Report>,
}

impl Target {
    fn start(name: &'static str, role: &str, origin: &Child, agents: bool) -> Self {
        let mut args = vec!["--upstream", origin.address.as_str()];
        if agents && role == "guard" {
            args.push("--agents");
        }
        let headers = if agents {
            "Countersign-Agent: 3f1c0a7be2d94f5c8a6b7c8d9e0f1a2b\r\nX-User-Id: u-1029\r\nX-Session-Id: s-77\r\n"
        } else {
            ""
        };
        Self { name, child: Child::start(role, &args, 0), headers, closed: Vec::new(), half: Vec::new() }
    }

    fn round(&mut self, options: Options, rate: Option<f64>) {
        let load = Load {
            address: self.child.address.clone(),
            connections: options.connections,
            seconds: options.seconds,
            rate,
            request: load::read_request(self.headers),
            numbered: false,
        };
        let before = self.child.cpu();
        let mut report = load.measure();
        report.cpu_us = (self.child.cpu() - before).as_secs_f64() * 1e6 / report.answered.max(1) as f64;
        if rate.is_some() { self.half.push(report) } else { self.closed.push(report) }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

/// The median over rounds of a number made of a guard's report and of the bare proxy's before it.
fn paired(guard: &[Report], bare: &[Report], made: impl Fn(&Report, &Report) -> f64) -> f64 {
    median(guard.iter().zip(bare).map(|(guard, bare)| made(guard, bare)).collect())
}

fn of(reports: &[Report], field: impl Fn(&Report) -> f64) -> f64 {
    median(reports.iter().map(field).collect())
}

fn reads(options: Options, origin: &Child) {
    // Each guard stands right after the bare proxy that gets the same requests.
    let mut targets = [
        Target::start("bare pingora", "bare", origin, false),
        Target::start("guard, open policy", "guard", origin, false),
        Target::start("bare pingora, agents' headers", "bare", origin, true),
        Target::start("guard, agents and identity", "guard", origin, true),
    ];
    let warm = Options { seconds: 1.0, ..options };
    for target in &mut targets {
        target.round(warm, None);
        target.closed.clear();
    }
    for _ in 0..options.rounds {
        for target in &mut targets {
            target.round(options, None);
        }
    }
    // Half of what the bare proxy does, the same for all, spread over the connections.
    let rate = of(&targets[0].closed, |report| report.per_second) / 2.0;
    for _ in 0..options.rounds {
        for target in &mut targets {
            target.round(options, Some(rate));
        }
    }
    println!("\nreads, {} connections, each asking again as soon as it is answered", options.connections);
    println!(
        "{:30} {:>9} {:>7} {:>9} {:>9} {:>11} {:>9}",
        "", "reads/s", "ratio", "p50 us", "p99 us", "own us/read", "RSS MiB"
    );
    for pair in targets.chunks(2) {
        for target in pair {
            print_line(target.name, &target.closed, &pair[0].closed, target.child.rss_mib());
        }
    }
    println!("\nreads at half of that load ({rate:.0}/s offered to each)");
    for pair in targets.chunks(2) {
        let bare = &pair[0].half;
        for target in pair {
            println!(
                "{:30} p50 {:.0} us ({:+.0}), p99 {:.0} us ({:+.0}), own {:.1} us/read",
                target.name,
                of(&target.half, |report| report.p50_us),
                paired(&target.half, bare, |own, bare| own.p50_us - bare.p50_us),
                of(&target.half, |report| report.p99_us),
                paired(&target.half, bare, |own, bare| own.p99_us - bare.p99_us),
                of(&target.half, |report| report.cpu_us),
            );
        }
    }
    let errors: u64 =
        targets.iter().flat_map(|target| target.closed.iter().chain(&target.half)).map(|report| report.errors).sum();
    println!("errors: {errors}");
}

fn print_line(name: &str, reports: &[Report], bare: &[Report], rss: f64) {
    println!(
        "{name:30} {:9.0} {:7.3} {:9.0} {:9.0} {:11.1} {rss:9.1}",
        of(reports, |report| report.per_second),
        paired(reports, bare, |own, bare| own.per_second / bare.per_second),
        of(reports, |report| report.p50_us),
        of(reports, |report| report.p99_us),
        of(reports, |report| report.cpu_us),
    );
}

fn holds(options: Options, origin: &Child) {
    let alone = roles::commits_per_second(options.seconds.min(2.0));
    println!("\nholds of a 1 KiB JSON body on SQLite (durable); a bare durable commit: {alone:.0}/s");
    for connections in [1, options.connections] {
        let guard = Child::start("guard", &["--upstream", origin.address.as_str(), "--agents"], 0);
        let load = Load {
            address: guard.address.clone(),
            connections,
            seconds: options.seconds,
            rate: None,
            request: load::write_request(),
            numbered: true,
        };
        let before = guard.cpu();
        let report = load.measure();
        let cpu = (guard.cpu() - before).as_secs_f64() * 1e6 / report.answered.max(1) as f64;
        println!(
            "{connections:4} connections: {:.0} holds/s ({:.2} x the bare commit), p50 {:.0} us, p99 {:.0} us, own {cpu:.1} us/hold \
             (all threads), RSS {:.1} MiB with {} drafts, not held: {}",
            report.per_second,
            report.per_second / alone,
            report.p50_us,
            report.p99_us,
            guard.rss_mib(),
            report.answered,
            report.errors,
        );
    }
}
