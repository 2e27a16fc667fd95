//! What the framing check costs per ordinary request.

use std::hint::black_box;

use countersign::call::framing::{Framer, FramingLimits};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

/// A read as a usual client library sends it.
const READ: &[u8] = b"GET /v1/todos?status=open&limit=50 HTTP/1.1\r\nHost: notes.internal\r\n\
    User-Agent: python-httpx/0.27.0\r\nAccept: application/json\r\nAccept-Encoding: gzip, deflate\r\n\
    Connection: keep-alive\r\nCountersign-Agent: 3f1c0a7be2d94f5c8a6b7c8d9e0f1a2b\r\nX-User-Id: u-1029\r\n\
    X-Session-Id: 0f8fad5b-d9cb-469f-a165-70867728950e\r\n\
    traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n\r\n";

fn write(chunked: bool) -> Vec<u8> {
    let body = vec![b'a'; 1024];
    let mut request = b"POST /v1/todos HTTP/1.1\r\nHost: notes.internal\r\nContent-Type: application/json\r\n".to_vec();
    if chunked {
        request.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n400\r\n");
        request.extend_from_slice(&body);
        request.extend_from_slice(b"\r\n0\r\n\r\n");
    } else {
        request.extend_from_slice(b"Content-Length: 1024\r\n\r\n");
        request.extend_from_slice(&body);
    }
    request
}

fn framing(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("framing");
    for (name, request) in [("read", READ.to_vec()), ("write", write(false)), ("chunked write", write(true))] {
        group.throughput(Throughput::Bytes(request.len() as u64));
        group.bench_function(name, |bencher| {
            let mut framer = Framer::new(FramingLimits::default());
            bencher.iter(|| black_box(framer.feed(black_box(&request)).pass));
        });
    }
    group.finish();
}

criterion_group!(benches, framing);
criterion_main!(benches);
