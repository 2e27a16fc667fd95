//! What reading and canonicalising an agent's JSON costs, beside the usual crates for both.

use std::hint::black_box;

use countersign::call::{canonical, json};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

/// About 1.1 KB, as a tool call with a list sends it.
fn document() -> String {
    let item = |n: u32| {
        format!(
            r#"{{"sku":"SKU-{n:05}","title":"Grüner Tee, lose \"No. {n}\"","quantity":{n},"price":{n}.95,"tags":["tea","bio",null,true]}}"#
        )
    };
    let items: Vec<String> = (1..=8).map(item).collect();
    format!(
        r#"{{"order":"ord_1001","customer":{{"id":77,"name":"王芳","note":"please ring\nthe bell"}},"items":[{}],"total":123.45}}"#,
        items.join(",")
    )
}

fn canonical_form(criterion: &mut Criterion) {
    let text = document();
    let mut group = criterion.benchmark_group("json");
    group.throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function("strict parse and canonical print", |bencher| {
        bencher.iter(|| {
            let parsed = json::parse(black_box(text.as_bytes())).map(|parsed| canonical::to_vec(&parsed.value));
            black_box(parsed)
        });
    });
    group.bench_function("serde_json and serde_json_canonicalizer", |bencher| {
        bencher.iter(|| {
            let value: Result<serde_json::Value, _> = serde_json::from_str(black_box(&text));
            black_box(value.map(|value| serde_json_canonicalizer::to_vec(&value)))
        });
    });
    group.finish();
}

criterion_group!(benches, canonical_form);
criterion_main!(benches);
