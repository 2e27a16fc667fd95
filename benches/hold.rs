//! What a hold costs of the guard's own CPU: understand, judge (prepare, check, render the card,
//! canonicalise, hash) and seal a JSON body of 1 KiB. The store's part is in `store`, the wire's in
//! `throughput`. Prints one line with the sum beside criterion's report.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, missing_docs)]

#[path = "../tests/support/identity.rs"]
mod identity;

use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::Bytes;
use countersign::base::chance::OsChance;
use countersign::base::id::{DraftId, Partition};
use countersign::base::time::Timestamp;
use countersign::call::args::{self, BodyLimits, Call};
use countersign::call::head::Head;
use countersign::draft::keys::KeySet;
use countersign::draft::record::{Draft, Effect, Identity};
use countersign::draft::{binding, seal};
use countersign::policy::judge::{Prepared, judge};
use countersign::policy::load::{Source, load};
use countersign::policy::model::PolicySet;
use countersign::policy::read::Substitutions;
use criterion::{BatchSize, Criterion, criterion_group};

/// The program's own.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const POLICY: &str = r#"
version: 1
service: orders
upstream: {url: "http://orders.test"}
route: {path_prefix: /}
capabilities:
  - {id: order.create, status: enabled, tool: create_order, risk: low, confirm: default}
tools:
  - name: create_order
    match: {method: POST, path: /orders}
    effect: write
    risk: low
    confirm: default
    args:
      aliases: {client: customer}
      schema:
        type: object
        additionalProperties: false
        required: [customer, lines, note]
        properties:
          customer: {type: string, maxLength: 64}
          express: {type: boolean}
          note: {type: string, maxLength: 400}
          lines:
            type: array
            maxItems: 20
            items:
              type: object
              additionalProperties: false
              required: [sku, count, price]
              properties:
                sku: {type: string, maxLength: 32}
                count: {type: integer, minimum: 1}
                price: {type: number, minimum: 0}
      prepare:
        - {field: customer, trim: true, non_empty: CUSTOMER_REQUIRED}
        - {field: express, default: false}
    preview:
      title: Create an order
      target: "{{ args.customer }}"
      impact: "One more order for {{ args.customer }}: {{ args.note }}"
      details: [{key: lines, value: "{{ args.lines }}"}, {key: express, value: "{{ args.express }}"}]
"#;

struct Nothing;

impl Substitutions for Nothing {
    fn env(&self, _: &str) -> Result<String, String> {
        Err("is not set".to_owned())
    }
    fn file(&self, _: &str) -> Result<String, String> {
        Err("is not there".to_owned())
    }
}

struct Bench {
    set: PolicySet,
    keys: KeySet,
    who: Identity,
    body: Bytes,
}

impl Bench {
    fn new() -> Self {
        let source = Source { name: "orders.yaml".to_owned(), text: POLICY.to_owned() };
        let Ok(loaded) = load(&[source], &Nothing) else { panic!("the bench's policy loads") };
        let line = |n: u32| format!(r#"{{"sku":"article-number-{n:04}","count":{n},"price":{n}.25}}"#);
        let lines: Vec<String> = (1..=12).map(line).collect();
        let body = format!(
            r#"{{"client":"c-1001","note":"{}","lines":[{}]}}"#,
            "please ring twice ".repeat(19),
            lines.join(",")
        );
        assert!((1000..1100).contains(&body.len()), "about 1 KiB: {}", body.len());
        let who = identity::identity();
        Self { set: loaded.set, keys: KeySet::ephemeral(&OsChance), who, body: body.into() }
    }

    fn understand(&self) -> Call {
        let mut headers = http::HeaderMap::new();
        headers.insert("host", http::HeaderValue::from_static("orders.test"));
        headers.insert("content-type", http::HeaderValue::from_static("application/json"));
        headers.insert("content-length", self.body.len().into());
        let head = Head::read("POST", b"/orders", false, &headers).unwrap().into_owned();
        args::understand(head, self.body.clone(), &[], &BodyLimits { body_bytes_max: 1 << 20 }, true).unwrap()
    }

    fn judge(&self, call: Call) -> Prepared {
        let service = self.set.route("orders.test", "/orders").unwrap();
        let selection = service.select(&call.head);
        judge(service, &selection, call, &self.who, &[]).unwrap()
    }

    fn seal(&self, prepared: Prepared) -> Vec<u8> {
        let owner_hash = binding::owner_hash(&self.keys, &self.who.tenant, &self.who.owner);
        let now = Timestamp::from_millis(1_700_000_000_000);
        let id = DraftId::new(Partition::of(&owner_hash), now, &OsChance);
        let draft = Draft {
            root: id.clone(),
            id,
            identity: self.who.clone(),
            owner_hash,
            service: prepared.service,
            tool: prepared.tool,
            capability: prepared.capability,
            effect: Effect::Write,
            risk: prepared.risk,
            confirm_rule: prepared.confirm_rule,
            args: prepared.args,
            secret: Vec::new(),
            args_hash: prepared.args_hash,
            request: prepared.request,
            raw_digest: prepared.raw_digest,
            preview_hash: binding::preview_hash(&prepared.preview),
            preview: prepared.preview,
            lookup_binding: None,
            effect_key: None,
            policy_version: self.set.version.clone(),
            origin_request_id: "r1".to_owned(),
            traceparent: None,
            created_at: now,
            expires_at: now + prepared.ttl,
            late_release_ms: 60_000,
        };
        seal::seal(&draft, &prepared.body, &self.keys, &OsChance).unwrap()
    }
}

fn steps(c: &mut Criterion) {
    let bench = Bench::new();
    let call = bench.understand();
    let prepared = bench.judge(call.clone());
    c.bench_function("hold/understand", |b| b.iter(|| black_box(bench.understand())));
    c.bench_function("hold/judge", |b| {
        b.iter_batched(|| call.clone(), |call| black_box(bench.judge(call)), BatchSize::SmallInput);
    });
    c.bench_function("hold/seal", |b| {
        b.iter_batched(|| prepared.clone(), |prepared| black_box(bench.seal(prepared)), BatchSize::SmallInput);
    });
}

/// The median of whole holds, without the store.
fn whole() {
    let bench = Bench::new();
    let mut took: Vec<Duration> = Vec::with_capacity(20_000);
    for _ in 0..20_000 {
        let began = Instant::now();
        black_box(bench.seal(bench.judge(bench.understand())));
        took.push(began.elapsed());
    }
    took.sort_unstable();
    println!("hold of {} bytes, own CPU: median {:?}, p99 {:?}", bench.body.len(), took[10_000], took[19_800]);
}

criterion_group! {
    name = group;
    config = Criterion::default().sample_size(50).measurement_time(Duration::from_secs(3)).warm_up_time(Duration::from_secs(1));
    targets = steps
}

fn main() {
    whole();
    group();
}
