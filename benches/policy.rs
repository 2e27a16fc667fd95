//! What the policy costs a call: selecting among 500 tools, and judging a 1 KiB write.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

#[path = "../tests/support/identity.rs"]
mod identity;

use std::fmt::Write as _;
use std::hint::black_box;

use bytes::Bytes;
use countersign::call::args::{BodyLimits, understand};
use countersign::call::head::Head;
use countersign::draft::record::Identity;
use countersign::policy::diagnostic::report;
use countersign::policy::judge::{Selection, judge};
use countersign::policy::load::{Source, load};
use countersign::policy::model::PolicySet;
use countersign::policy::read::Substitutions;
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use http::{HeaderMap, HeaderValue};

/// The program's own.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

struct Nothing;

impl Substitutions for Nothing {
    fn env(&self, _: &str) -> Result<String, String> {
        Ok("http://127.0.0.1:8080".into())
    }
    fn file(&self, _: &str) -> Result<String, String> {
        Err("is not read".into())
    }
}

fn policy(tools: usize) -> String {
    let mut text = "version: 1\nservice: s\nupstream: {url: 'http://up.example'}\ncapabilities:\n".to_owned();
    for n in 0..tools {
        writeln!(text, "  - {{id: c{n}, status: enabled, tool: t{n}, risk: low}}").unwrap();
    }
    text.push_str("  - {id: no, status: forbidden, guidance: never, match: {path: \"/admin{/**}\"}}\ntools:\n");
    for n in 0..tools {
        let group = n / 10;
        writeln!(
            text,
            "  - {{name: t{n}, match: {{method: POST, path: \"/group{group}/{{id}}/do{n}\"}}, effect: write}}"
        )
        .unwrap();
    }
    text
}

fn set(text: &str) -> PolicySet {
    let source = Source { name: "policy.yaml".into(), text: text.into() };
    load(&[source], &Nothing).unwrap_or_else(|found| panic!("{}", report(&found))).set
}

fn head(method: &str, target: &str) -> Head<'static> {
    let mut headers = HeaderMap::new();
    headers.insert("host", HeaderValue::from_static("guard.example"));
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    headers.insert("user-agent", HeaderValue::from_static("bench"));
    headers.insert("accept", HeaderValue::from_static("*/*"));
    Head::read(method, target.as_bytes(), false, &headers).unwrap().into_owned()
}

fn who() -> Identity {
    Identity { role: Some("user".into()), ..identity::identity() }
}

fn selecting(c: &mut Criterion) {
    let text = policy(500);
    let set = set(&text);
    let service = &set.services[0];
    for (name, method, target) in [
        ("select/500 tools, a write", "POST", "/group49/7/do499"),
        ("select/500 tools, a read that nobody declares", "GET", "/group49/7?page=2"),
        ("select/500 tools, a forbidden path", "GET", "/admin/users"),
    ] {
        let head = head(method, target);
        c.bench_function(name, |b| b.iter(|| black_box(service.select(black_box(&head)))));
    }
    c.bench_function("route", |b| b.iter(|| black_box(set.route("guard.example", "/group49/7"))));
    let mut slow = c.benchmark_group("slow");
    slow.sample_size(10);
    slow.bench_function("load/500 tools", |b| {
        let source = [Source { name: "policy.yaml".into(), text: text.clone() }];
        b.iter(|| load(black_box(&source), &Nothing).unwrap());
    });
    slow.finish();
}

fn judging(c: &mut Criterion) {
    let note = "an ordinary sentence of some length, in plain words; ".repeat(18);
    let schema = "version: 1\nservice: s\nupstream: {url: 'http://up.example'}\ncapabilities:\n  - {id: c, status: enabled, tool: t, risk: low}\ntools:\n  - name: t\n    match: {method: POST, path: /t}\n    effect: write\n    args:\n      aliases: {taskTitle: title}\n      schema:\n        type: object\n        additionalProperties: false\n        required: [title]\n        properties:\n          title: {type: string, maxLength: 200}\n          note: {type: string, maxLength: 2000}\n          priority: {type: integer, enum: [0, 1, 2]}\n      prepare:\n        - {field: title, trim: true, nfc: true, non_empty: TITLE_REQUIRED}\n        - {field: priority, map: {high: 2, normal: 1}, default: 1}\n    preview:\n      title: Create\n      target: \"{{ args.title }}\"\n      impact: \"{% if args.note %}With a note.{% else %}Without.{% endif %}\"\n      details: [{key: note, value: \"{{ args.note }}\"}, {key: priority, value: \"{{ args.priority }}\"}]\n";
    let declared = set(schema);
    let open = PolicySet::open("s", "http://up.example").unwrap();
    let who = who();
    for (name, set, body) in [
        (
            "judge/1 KiB, nothing to prepare",
            &declared,
            format!("{{\"title\":\"buy milk\",\"note\":\"{note}\",\"priority\":1}}"),
        ),
        (
            "judge/1 KiB, alias, trim, map",
            &declared,
            format!("{{\"taskTitle\":\" buy milk \",\"note\":\"{note}\",\"priority\":\"high\"}}"),
        ),
        ("judge/1 KiB, undeclared", &open, format!("{{\"title\":\"buy milk\",\"note\":\"{note}\",\"priority\":1}}")),
    ] {
        let service = &set.services[0];
        let head = head("POST", "/t");
        let body = Bytes::from(body);
        let selection = service.select(&head);
        let params = match &selection {
            Selection::Tool(_, params) => params.clone(),
            _ => Vec::new(),
        };
        let call = understand(head.clone(), body, &params, &BodyLimits { body_bytes_max: 1 << 20 }, true).unwrap();
        c.bench_function(name, |b| {
            let judge = |call| judge(service, &selection, black_box(call), &who, &[]).unwrap();
            b.iter_batched(|| call.clone(), judge, BatchSize::SmallInput);
        });
    }
}

criterion_group!(benches, selecting, judging);
criterion_main!(benches);
