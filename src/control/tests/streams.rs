//! Live streams of events: they resume, wake and end, and are bounded in number and in time.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use axum::body::Body;
use http_body_util::BodyExt as _;
use tokio::time::Instant;
use tower::ServiceExt as _;

use super::fixture::*;
use crate::control::events::STREAM_LIFE;
use crate::control::listener::within;

#[tokio::test]
async fn a_live_stream_resumes_wakes_and_ends() {
    let bench = bench();
    *bench.desk.events.lock().unwrap() = vec![event(1, "draft.held"), event(2, "draft.confirmed")];
    let token = bearer(PERSON);
    let headers = [("authorization", &token[..]), ("accept", "text/event-stream"), ("last-event-id", "1")];
    let asked = request("GET", "/v1/events?after=0", &headers, Body::empty());
    let response = crate::control::router(&bench.state).oneshot(asked).await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    assert_eq!(response.headers()["cache-control"], "no-store");
    let mut body = response.into_body();
    let mut next = async || {
        let frame = tokio::time::timeout(Duration::from_secs(10), body.frame()).await.expect("in time");
        frame.map(|frame| String::from_utf8(frame.unwrap().into_data().unwrap().to_vec()).unwrap())
    };
    assert_eq!(next().await.as_deref(), Some(": countersign events\n\n"));
    let piece = next().await.unwrap();
    assert!(piece.starts_with("id: 2\nevent: draft.confirmed\ndata: {"), "{piece}");
    bench.desk.events.lock().unwrap().push(event(3, "draft.sending"));
    bench.desk.hints.send(id()).unwrap();
    assert!(next().await.unwrap().starts_with("id: 3\n"));
    // The approver is taken out of the configuration: the stream ends with the next hint.
    bench.credentials.store(Default::default());
    bench.desk.events.lock().unwrap().push(event(4, "draft.succeeded"));
    bench.desk.hints.send(id()).unwrap();
    assert_eq!(next().await, None);
}

#[tokio::test]
async fn live_streams_are_bounded_and_end_with_the_listener() {
    let bench = bench();
    let token = bearer(PERSON);
    let headers = [("authorization", &token[..]), ("accept", "text/event-stream")];
    let mut open = Vec::new();
    for _ in 0..crate::control::state::STREAMS_MAX {
        let asked = request("GET", "/v1/events", &headers, Body::empty());
        open.push(crate::control::router(&bench.state).oneshot(asked).await.unwrap());
    }
    let one_more = bench.send(request("GET", "/v1/events", &headers, Body::empty())).await;
    assert_eq!((one_more.status, one_more.code().as_str()), (429, "RATE_LIMITED"));
    bench.state.stop();
    for response in open {
        let whole = tokio::time::timeout(Duration::from_secs(10), read(response)).await.expect("ends");
        assert_eq!(whole.text, ": countersign events\n\n");
    }
}

/// The paused clock goes on by itself whenever everybody waits.
#[tokio::test(start_paused = true)]
async fn a_live_stream_ends_after_a_quarter_of_an_hour_quiet_or_busy() {
    for busy in [false, true] {
        let bench = bench();
        let token = bearer(PERSON);
        let headers = [("authorization", &token[..]), ("accept", "text/event-stream")];
        let asked = request("GET", "/v1/events", &headers, Body::empty());
        let began = Instant::now();
        let response = crate::control::router(&bench.state).oneshot(asked).await.unwrap();
        let desk = Arc::clone(&bench.desk);
        let happenings = async move {
            for seq in 1.. {
                tokio::time::sleep(Duration::from_secs(7)).await;
                desk.events.lock().unwrap().push(event(seq, "draft.held"));
                desk.hints.send(id()).unwrap();
            }
        };
        let happenings = busy.then(|| tokio::spawn(happenings));
        let hour = Duration::from_secs(60 * 60);
        let whole = tokio::time::timeout(hour, read(response)).await.expect("it ends by itself").text;
        if let Some(happenings) = happenings {
            happenings.abort();
        }
        assert_eq!(began.elapsed().as_secs(), 15 * 60, "busy: {busy}");
        let (told, alive) = (whole.matches("event: draft.held").count(), whole.matches(": alive").count());
        assert_eq!((told, alive), if busy { (128, 1) } else { (0, 60) });
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_outlives_its_time_for_a_live_stream_only_and_not_for_ever() {
    let patience = Duration::from_secs(120);
    for (live, ends) in [(false, patience), (true, patience + STREAM_LIFE)] {
        let began = Instant::now();
        let live = AtomicBool::new(live);
        let given_up = within(std::future::pending::<()>(), &live, patience);
        let hour = Duration::from_secs(60 * 60);
        assert_eq!(tokio::time::timeout(hour, given_up).await.expect("it is given up"), None);
        assert_eq!(began.elapsed().as_secs(), ends.as_secs(), "{live:?}");
    }
}
