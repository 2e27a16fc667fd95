//! How many sessions there may be.

use std::time::Duration;

use axum::body::Body;

use super::fixture::*;

const ORIGIN: (&str, &str) = ("origin", "http://127.0.0.1:7071");
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

#[tokio::test]
async fn sessions_are_bounded_and_the_oldest_gives_way() {
    let bench = bench();
    let sign_in = async || {
        bench.clock.advance(Duration::from_millis(1));
        let got = bench.send(request("POST", "/sign-in", &[ORIGIN, FORM], format!("token={PERSON}"))).await;
        got.header("set-cookie").split(';').next().unwrap().to_owned()
    };
    let works = async |cookie: &str| {
        let page = bench.send(request("GET", "/", &[("cookie", cookie)], Body::empty())).await;
        page.text.contains("name=\"csrf\"")
    };
    let first = sign_in().await;
    let second = sign_in().await;
    for _ in 0..1_023 {
        sign_in().await;
    }
    assert!(!works(&first).await && works(&second).await);
}
