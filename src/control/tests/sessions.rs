//! Sessions and one-time links: how many there may be, and whom they sign in.

use std::time::Duration;

use axum::body::Body;

use super::fixture::*;
use crate::base::digest::Digest;
use crate::base::id::Principal;
use crate::control::console::session::CODE_LIFE;

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

async fn new_code(bench: &Bench) -> String {
    let got = bench.post(PERSON, "/v1/sign-in-links", &[], "{}").await;
    assert_eq!((got.status, got.json()["approver"].as_str()), (201, Some("alice")), "{}", got.text);
    let link = got.json()["link"].as_str().unwrap().to_owned();
    link.strip_prefix("http://127.0.0.1:7071/#code=").expect("the code stands in the fragment").to_owned()
}

async fn sign_in(bench: &Bench, code: &str) -> Got {
    bench.send(request("POST", "/sign-in", &[ORIGIN, FORM], format!("code={code}"))).await
}

#[tokio::test]
async fn a_new_link_signs_its_own_approver_in_once_and_within_two_minutes() {
    let bench = bench();
    let (first, second) = (new_code(&bench).await, new_code(&bench).await);
    assert_ne!(first, second);
    let signed_in = sign_in(&bench, &first).await;
    assert_eq!(signed_in.status, 303, "{}", signed_in.text);
    let cookie = signed_in.header("set-cookie").split(';').next().unwrap().to_owned();
    let page = bench.send(request("GET", "/", &[("cookie", &cookie)], Body::empty())).await;
    assert!(page.text.contains("Signed in as alice"), "{}", page.text);
    let again = sign_in(&bench, &first).await;
    assert_eq!(again.status, 401);
    assert!(again.text.contains("countersign console"), "the page says how to get another: {}", again.text);
    bench.clock.advance(CODE_LIFE);
    assert_eq!(sign_in(&bench, &second).await.status, 401);
}

#[tokio::test]
async fn p1_only_an_approvers_token_gets_a_link_and_a_session_is_none() {
    let bench = bench();
    for (token, status) in [(ROBOT, 403), (BACKEND, 403), ("nobody", 401)] {
        let got = bench.post(token, "/v1/sign-in-links", &[], "{}").await;
        assert_eq!(got.status, status, "{token}: {}", got.text);
        assert!(!got.text.contains("#code="), "{}", got.text);
    }
    let cookie = sign_in(&bench, &new_code(&bench).await).await.header("set-cookie").to_owned();
    let by_session = request("POST", "/v1/sign-in-links", &[("cookie", &cookie), ORIGIN], Body::empty());
    assert_eq!(bench.send(by_session).await.status, 401);
    let read =
        bench.send(request("GET", "/v1/sign-in-links", &[("authorization", &bearer(PERSON))], Body::empty())).await;
    assert_eq!(read.status, 405, "a GET makes nothing");
    assert_eq!(bench.post(PERSON, "/v1/sign-in-links", &[], r#"{"approver":"bob"}"#).await.status, 422);
}

#[tokio::test]
async fn a_changed_entry_voids_the_links_that_were_made_for_it() {
    let bench = bench();
    let code = new_code(&bench).await;
    let mut changed = credentials();
    changed.approvers[0].token_sha256 = Digest::of(b"another");
    bench.credentials.store(std::sync::Arc::new(changed));
    assert_eq!(sign_in(&bench, &code).await.status, 401);
}

#[tokio::test]
async fn one_approvers_token_puts_out_nobody_elses_link_and_too_many_are_refused() {
    let bench = bench();
    let mut known = credentials();
    let token = |n: usize| format!("ap_{n}");
    for n in 0..9 {
        let mut entry = known.approvers[0].clone();
        entry.name = Principal::new(format!("p{n}")).unwrap();
        entry.token_sha256 = Digest::of(token(n).as_bytes());
        known.approvers.push(entry);
    }
    bench.credentials.store(std::sync::Arc::new(known));
    let of_alice = new_code(&bench).await;
    let mut statuses = Vec::new();
    for n in 0..9 {
        for _ in 0..10 {
            statuses.push(bench.post(&token(n), "/v1/sign-in-links", &[], "{}").await.status);
        }
    }
    assert_eq!(statuses[..80], [201; 80], "each has room for a link of their own");
    assert_eq!(statuses[80..], [429; 10], "beyond the bound nobody's link gives way for the ninth");
    let refused = bench.post(&token(8), "/v1/sign-in-links", &[], "{}").await;
    assert_eq!((refused.status, refused.json()["code"].as_str()), (429, Some("RATE_LIMITED")), "{}", refused.text);
    assert!(!refused.text.contains("#code="));
    assert_eq!(sign_in(&bench, &of_alice).await.status, 303, "the first link still works");
    assert_eq!(bench.post(&token(8), "/v1/sign-in-links", &[], "{}").await.status, 201, "there is room again");
}
