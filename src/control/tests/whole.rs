//! The shell over the real guard, the twin of the store and an upstream that counts effects.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::body::Body;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::fixture::{BACKEND, Got, PERSON, Silent, agents, bearer, credentials, read, request};
use crate::base::chance::SeededChance;
use crate::base::digest::Digest;
use crate::base::id::{DraftId, Principal, Tenant};
use crate::control::credentials::ApproverEntry;
use crate::control::{ControlParts, ControlState, router, schemas};
use crate::draft::binding;
use crate::guard::Guard;
use crate::guard::observer::Unobserved;
use crate::guard::tests::bench::{Bench, CLOSES, ask, held, identity, json as json_of, status};
use crate::guard::who::{Pattern, Rights};
use crate::upstream::fake::Script;

const BODY: &str = "{\"title\":\"Buy milk\"}";

/// A second person, and one of another tenant.
pub(super) const OTHER: &str = "ap_other";
pub(super) const STRANGER: &str = "ap_stranger";

pub(super) struct Whole {
    pub(super) bench: Bench,
    pub(super) guard: Arc<Guard>,
    pub(super) state: Arc<ControlState>,
}

pub(super) fn whole(bench: Bench) -> Whole {
    let guard = bench.ready();
    let mut known = credentials();
    let entry = |name: &str, token: &str, tenant: &str| ApproverEntry {
        name: Principal::new(name).unwrap(),
        token_sha256: Digest::of(token.as_bytes()),
        roles: Vec::new(),
        tenant: Tenant::new(tenant).unwrap(),
        rights: Some(Rights::all()),
    };
    known.approvers.extend([entry("bob", OTHER, "default"), entry("eve", STRANGER, "elsewhere")]);
    let state = ControlState::new(ControlParts {
        desk: Arc::new(Arc::clone(&guard)),
        tasks: Arc::new(Arc::clone(&guard)),
        agents: agents(),
        credentials: Arc::new(ArcSwap::from_pointee(known)),
        keys: bench.keys.clone(),
        metrics: Arc::new(|| Box::pin(async { String::new() })),
        policy_status: Arc::new(Silent),
        observer: Arc::new(Unobserved),
        clock: bench.clock.clone(),
        chance: Arc::new(SeededChance::new(5)),
        public_url: "http://127.0.0.1:7071".to_owned(),
    });
    Whole { bench, guard, state: state.unwrap() }
}

impl Whole {
    pub(super) async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: String) -> Got {
        read(router(&self.state).oneshot(request(method, path, headers, body)).await.unwrap()).await
    }

    pub(super) async fn get(&self, token: &str, path: &str) -> Got {
        self.send("GET", path, &[("authorization", &bearer(token))], String::new()).await
    }

    pub(super) async fn post(&self, token: &str, path: &str, body: Value) -> Got {
        let token = bearer(token);
        let headers = [("authorization", token.as_str()), ("content-type", "application/json")];
        self.send("POST", path, &headers, body.to_string()).await
    }

    async fn confirm(&self, token: &str, id: &DraftId, hash: Digest) -> Got {
        self.post(token, &format!("/v1/drafts/{id}/confirm"), json!({"args_hash": hash})).await
    }
}

#[tokio::test]
async fn p3_twenty_clicks_of_two_people_on_two_surfaces_are_one_effect() {
    let whole = whole(Bench::new());
    let (id, hash) = held(&whole.guard, BODY).await;
    let cookie = sign_in(&whole, PERSON).await;
    let csrf = csrf(&whole, &cookie).await;
    let form = format!("csrf={csrf}&args_hash={hash}");
    let mut clicks = Vec::new();
    for click in 0..20 {
        let router = router(&whole.state);
        let asked = if click % 2 == 0 {
            let token = bearer(if click % 4 == 0 { PERSON } else { OTHER });
            let headers = [("authorization", token.as_str()), ("content-type", "application/json")];
            let path = format!("/v1/drafts/{id}/confirm");
            request("POST", &path, &headers, json!({"args_hash": hash}).to_string())
        } else {
            request("POST", &format!("/drafts/{id}/confirm"), &form_headers(&cookie), form.clone())
        };
        clicks.push(tokio::spawn(async move { read(router.oneshot(asked).await.unwrap()).await }));
    }
    let mut receipts = Vec::new();
    for click in clicks {
        let got = click.await.unwrap();
        match got.status {
            200 => receipts.push(got.json()["receipt"]["id"].as_str().unwrap().to_owned()),
            303 => assert!(got.header("location").starts_with(&format!("/drafts/{id}"))),
            other => panic!("{other}: {}", got.text),
        }
    }
    assert_eq!(whole.bench.effects(), 1);
    assert_eq!(receipts.len(), 10);
    assert!(receipts.iter().all(|receipt| *receipt == id.receipt_id()));
    let all = schemas::all();
    let decided = whole.confirm(OTHER, &id, hash).await.json();
    assert_eq!(decided["replayed"], true);
    for member in decided.as_object().unwrap().keys() {
        assert!(all["Decided"]["properties"].get(member).is_some(), "the schema does not describe {member}");
    }
}

#[tokio::test]
async fn p2_a_confirm_of_something_else_changes_nothing() {
    let whole = whole(Bench::new());
    let (id, hash) = held(&whole.guard, BODY).await;
    let (_, other) = held(&whole.guard, "{\"title\":\"Buy bread\"}").await;
    let path = format!("/v1/drafts/{id}/confirm");
    assert_eq!(whole.confirm(PERSON, &id, other).await.code(), "ARGS_HASH_MISMATCH");
    assert_eq!(whole.confirm(PERSON, &id, Digest::of(b"x")).await.code(), "ARGS_HASH_MISMATCH");
    assert_eq!(whole.post(PERSON, &path, json!({})).await.code(), "ARGS_HASH_REQUIRED");
    assert_eq!(whole.confirm(STRANGER, &id, hash).await.code(), "DRAFT_NOT_FOUND");
    assert_eq!((status(&whole.bench, &id).await.as_str(), whole.bench.effects()), ("pending", 0));
    let got = whole.confirm(PERSON, &id, hash).await;
    assert_eq!((got.status, got.json()["status"].as_str()), (200, Some("succeeded")), "{}", got.text);
    assert_eq!(whole.bench.effects(), 1);
    let receipt = whole.get(PERSON, &format!("/v1/receipts/{}", id.receipt_id())).await;
    assert_eq!(receipt.json()["action_id"], id.as_str());
}

#[tokio::test]
async fn reading_never_decides_whoever_reads() {
    let whole = whole(Bench::new());
    let (id, _) = held(&whole.guard, BODY).await;
    let cookie = sign_in(&whole, PERSON).await;
    for path in
        ["/", &format!("/drafts/{id}"), &format!("/drafts/{id}/body"), &format!("/drafts/{id}?notice=confirmed")]
    {
        for method in ["GET", "HEAD"] {
            assert_eq!(whole.send(method, path, &[("cookie", &cookie)], String::new()).await.status, 200, "{path}");
        }
    }
    for path in
        ["/v1/drafts".to_owned(), format!("/v1/drafts/{id}"), format!("/v1/drafts/{id}/body"), "/v1/events".to_owned()]
    {
        assert_eq!(whole.get(PERSON, &path).await.status, 200, "{path}");
    }
    assert_eq!((status(&whole.bench, &id).await.as_str(), whole.bench.effects()), ("pending", 0));
    let kinds = whole.get(PERSON, "/v1/events").await.json();
    let kinds: Vec<_> =
        kinds["events"].as_array().unwrap().iter().map(|event| event["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["draft.held", "draft.seen"]);
}

#[tokio::test]
async fn a_late_click_is_410_and_says_so_on_the_page() {
    let whole = whole(Bench::new());
    let (id, hash) = held(&whole.guard, BODY).await;
    let cookie = sign_in(&whole, PERSON).await;
    let csrf = csrf(&whole, &cookie).await;
    whole.bench.clock.advance(Duration::from_secs(3600));
    assert_eq!(whole.confirm(PERSON, &id, hash).await.status, 410);
    let form = format!("csrf={csrf}&args_hash={hash}");
    let page = whole.send("POST", &format!("/drafts/{id}/confirm"), &form_headers(&cookie), form).await;
    assert_eq!(page.status, 410);
    assert!(page.text.contains("You came too late") && page.text.contains("Too late."), "{}", page.text);
    assert_eq!((status(&whole.bench, &id).await.as_str(), whole.bench.effects()), ("expired", 0));
}

#[tokio::test]
async fn the_console_from_sign_in_to_receipt() {
    let whole = whole(Bench::new());
    let (id, hash) = held(&whole.guard, BODY).await;
    let cookie = sign_in(&whole, PERSON).await;
    let page = whole.send("GET", &format!("/drafts/{id}"), &[("cookie", &cookie)], String::new()).await;
    assert!(page.text.contains("http://api.test/todos") && page.text.contains("Buy milk"), "{}", page.text);
    let csrf = csrf(&whole, &cookie).await;
    let form = format!("csrf={csrf}&args_hash={hash}&comment=right");
    let got = whole.send("POST", &format!("/drafts/{id}/confirm"), &form_headers(&cookie), form).await;
    assert_eq!(got.status, 303, "{}", got.text);
    let told = whole.send("GET", got.header("location"), &[("cookie", &cookie)], String::new()).await;
    for needed in
        ["You confirmed this call.", "<strong>Done.</strong>", &id.receipt_id(), "alice confirmed at", "right"]
    {
        assert!(told.text.contains(needed), "{needed}: {}", told.text);
    }
    let form = format!("csrf={csrf}&args_hash={hash}&reason=no");
    let late = whole.send("POST", &format!("/drafts/{id}/reject"), &form_headers(&cookie), form).await;
    assert_eq!(late.status, 409);
    assert!(late.text.contains("decided before your click") && late.text.contains("<strong>Done.</strong>"));
    assert_eq!(whole.bench.effects(), 1);
}

#[tokio::test]
async fn p5_an_outcome_that_nobody_knows_is_resolved_by_a_person() {
    let whole = whole(Bench::new().plays([CLOSES]));
    let (id, hash) = held(&whole.guard, BODY).await;
    let got = whole.confirm(PERSON, &id, hash).await;
    assert_eq!((got.status, got.code().as_str()), (504, "COMMIT_OUTCOME_UNKNOWN"));
    let cookie = sign_in(&whole, PERSON).await;
    let csrf = csrf(&whole, &cookie).await;
    let page = whole.send("GET", &format!("/drafts/{id}"), &[("cookie", &cookie)], String::new()).await;
    assert!(page.text.contains("It cannot be verified whether this happened.") && page.text.contains("/resolve"));
    let form = format!("csrf={csrf}&args_hash={hash}&outcome=succeeded&evidence=it+is+in+the+list");
    let got = whole.send("POST", &format!("/drafts/{id}/resolve"), &form_headers(&cookie), form).await;
    assert_eq!(got.status, 303, "{}", got.text);
    assert_eq!((status(&whole.bench, &id).await.as_str(), whole.bench.effects()), ("succeeded", 1));
}

#[tokio::test]
async fn what_was_not_sent_can_be_offered_again() {
    let whole = whole(Bench::new().plays([Script::NotReached]));
    let (id, hash) = held(&whole.guard, BODY).await;
    assert_eq!(whole.confirm(PERSON, &id, hash).await.json()["status"], "failed");
    let cookie = sign_in(&whole, PERSON).await;
    let page = whole.send("GET", &format!("/drafts/{id}"), &[("cookie", &cookie)], String::new()).await;
    assert!(page.text.contains("Nothing was sent") && page.text.contains("Make a new draft"), "{}", page.text);
    let form = format!("csrf={}", csrf(&whole, &cookie).await);
    let got = whole.send("POST", &format!("/drafts/{id}/again"), &form_headers(&cookie), form).await;
    assert_eq!(got.status, 303, "{}", got.text);
    let new = whole.send("GET", got.header("location"), &[("cookie", &cookie)], String::new()).await;
    assert!(new.text.contains("This is the new draft.") && new.text.contains("Waiting for a decision."));
    assert_eq!(whole.bench.effects(), 0);
}

#[tokio::test]
async fn a_token_of_another_owner_or_session_reveals_and_consumes_nothing() {
    let whole = whole(Bench::new());
    let (id, _) = held(&whole.guard, BODY).await;
    let token = binding::new_token(&whole.bench.keys, &id);
    let body = json!({"confirmation_token": token.reveal()}).to_string();
    let post = async |owner: &str, session: &str, body: &str| {
        let app = bearer(BACKEND);
        let headers = [
            ("authorization", app.as_str()),
            ("content-type", "application/json"),
            ("countersign-owner", owner),
            ("countersign-session", session),
        ];
        whole.send("POST", "/v1/confirmations", &headers, body.to_owned()).await
    };
    for (owner, session) in [("u2", "s1"), ("u1", "s2"), ("U1", "s1")] {
        let got = post(owner, session, &body).await;
        assert_eq!((got.status, got.code().as_str()), (403, "DRAFT_NOT_YOURS"));
        assert!(!got.text.contains(id.as_str()) && !got.text.contains("milk"));
    }
    for made_up in ["ct_5_x", "", "dr", "ct_0_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"] {
        let got = post("u1", "s1", &json!({"confirmation_token": made_up}).to_string()).await;
        assert!([404, 422].contains(&got.status), "{made_up}: {}", got.text);
    }
    assert_eq!(status(&whole.bench, &id).await, "pending");
    let first = post("u1", "s1", &body).await;
    assert_eq!((first.status, first.json()["replayed"].as_bool()), (200, Some(false)), "{}", first.text);
    let second = post("u1", "s1", &body).await;
    assert_eq!((second.status, second.json()["replayed"].as_bool()), (200, Some(true)));
    assert_eq!(whole.bench.effects(), 1);
}

#[tokio::test]
async fn a_reader_of_events_gets_past_another_tenants() {
    let whole = whole(Bench::new());
    for body in ["{\"n\":1}", "{\"n\":2}", "{\"n\":3}"] {
        let mut elsewhere = identity("u9");
        elsewhere.tenant = Tenant::new("elsewhere").unwrap();
        assert_eq!(ask(&whole.guard, elsewhere, body, None).await.status, 202);
    }
    let (id, _) = held(&whole.guard, BODY).await;
    let got = whole.get(PERSON, "/v1/events?limit=1").await.json();
    assert_eq!(got["events"][0]["draft_id"], id.as_str());
    let stranger = whole.get(STRANGER, "/v1/events?after=3").await.json();
    assert_eq!(stranger, json!({"events": [], "next": 4}), "others' events are passed, not read again");
    assert_eq!((got["events"].as_array().unwrap().len(), got["next"].as_u64()), (1, Some(4)));
    let theirs = whole.get(STRANGER, "/v1/events").await.json();
    assert_eq!(theirs["events"].as_array().unwrap().len(), 3);
    assert_eq!(whole.get(STRANGER, "/v1/drafts").await.json()["drafts"].as_array().unwrap().len(), 3);
}

/// A page's cursors and a stream's ids are what is given back, whatever they look like.
#[tokio::test(start_paused = true)]
async fn events_of_a_store_in_partitions_are_read_with_opaque_cursors() {
    let whole = whole(Bench::in_partitions());
    let mut expected = BTreeSet::new();
    for n in 0..12 {
        let mut who = identity(&format!("u{n}"));
        if n % 3 == 0 {
            who.tenant = Tenant::new("elsewhere").unwrap();
        }
        let answer = ask(&whole.guard, who, BODY, None).await;
        assert_eq!(answer.status, 202);
        if n % 3 != 0 {
            expected.insert(json_of(&answer)["draft_id"].as_str().unwrap().to_owned());
        }
    }
    let partitions: BTreeSet<char> = expected.iter().filter_map(|id| id.chars().nth(3)).collect();
    assert!(partitions.len() > 3, "{partitions:?}");
    for limit in [1, 2, 100] {
        let (mut after, mut read, mut cursors) = ("0".to_owned(), Vec::new(), vec!["0".to_owned()]);
        loop {
            let page = whole.get(PERSON, &format!("/v1/events?after={after}&limit={limit}")).await.json();
            let ids = page["events"].as_array().unwrap().iter().map(|event| event["draft_id"].as_str().unwrap());
            let before = read.len();
            read.extend(ids.map(str::to_owned));
            page["next"].as_str().expect("sixteen numbers").clone_into(&mut after);
            cursors.push(after.clone());
            if read.len() == before {
                break;
            }
        }
        assert_eq!((read.len(), read.into_iter().collect::<BTreeSet<_>>()), (expected.len(), expected.clone()));
        // A stream goes on from any of them, by its own ids as well.
        for cursor in cursors {
            let first = streamed(&whole, &cursor, 1).await;
            let rest = streamed(&whole, first.first().map_or(&cursor, |(id, _)| id), expected.len()).await;
            let told: BTreeSet<&String> = first.iter().chain(&rest).map(|(_, draft)| draft).collect();
            let behind = whole.get(PERSON, &format!("/v1/events?after={cursor}")).await.json();
            assert_eq!(told.len(), first.len() + rest.len(), "each once");
            assert_eq!(told.len(), behind["events"].as_array().unwrap().len(), "none is lost after {cursor}");
        }
    }
}

/// The first events of a stream after an id: their ids and drafts.
async fn streamed(whole: &Whole, after: &str, at_most: usize) -> Vec<(String, String)> {
    let token = bearer(PERSON);
    let headers = [("authorization", &token[..]), ("accept", "text/event-stream"), ("last-event-id", after)];
    let asked = request("GET", "/v1/events?after=0", &headers, Body::empty());
    let mut body = router(&whole.state).oneshot(asked).await.unwrap().into_body();
    let mut text = String::new();
    // The paused clock goes on when everybody waits: then all is told that there is.
    while !text.ends_with(": alive\n\n") {
        let frame = body.frame().await.expect("it goes on").unwrap();
        text.push_str(std::str::from_utf8(&frame.into_data().unwrap()).unwrap());
    }
    let field = |event: &str, name: &str| {
        let line = event.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
        line.unwrap_or_default()
    };
    let events = text.split("\n\n").filter(|event| event.starts_with("id: "));
    let read = |event: &str| {
        let data: Value = serde_json::from_str(&field(event, "data: ")).unwrap();
        (field(event, "id: "), data["draft_id"].as_str().unwrap().to_owned())
    };
    events.map(read).take(at_most).collect()
}

#[tokio::test]
async fn a_page_is_filled_from_ones_own_tenant() {
    let whole = whole(Bench::new());
    let (id, _) = held(&whole.guard, BODY).await;
    for body in ["{\"n\":1}", "{\"n\":2}"] {
        let mut elsewhere = identity("u9");
        elsewhere.tenant = Tenant::new("elsewhere").unwrap();
        whole.bench.clock.advance(Duration::from_millis(5));
        assert_eq!(ask(&whole.guard, elsewhere, body, None).await.status, 202);
    }
    // The newest drafts are another tenant's: they take no place on the page and name no cursor.
    let page = whole.get(PERSON, "/v1/drafts?limit=1").await.json();
    assert_eq!((page["drafts"][0]["draft_id"].as_str(), page["next"].as_str()), (Some(id.as_str()), Some(id.as_str())));
    let last = whole.get(PERSON, &format!("/v1/drafts?limit=1&cursor={id}")).await.json();
    assert_eq!(last, json!({"drafts": [], "next": null}));
}

#[tokio::test]
async fn what_lies_outside_of_ones_rights_is_not_shown() {
    let whole = whole(Bench::new());
    let (id, hash) = held(&whole.guard, BODY).await;
    assert_eq!(whole.confirm(OTHER, &id, hash).await.status, 200);
    let known = whole.state.credentials.load_full();
    let narrow = |change: fn(&mut Rights)| {
        let mut rights = Rights::all();
        change(&mut rights);
        Some(rights)
    };
    for rights in [
        None,
        narrow(|rights| rights.capabilities = vec![Pattern::new("other*")]),
        narrow(|rights| rights.services = vec![Pattern::new("other*")]),
        narrow(|rights| rights.owners = vec![Pattern::new("u2")]),
    ] {
        let mut changed = (*known).clone();
        changed.approvers[0].rights = rights.clone();
        whole.state.credentials.store(Arc::new(changed));
        assert_eq!(whole.get(PERSON, "/v1/drafts").await.json()["drafts"], json!([]), "{rights:?}");
        let cookie = sign_in(&whole, PERSON).await;
        let cookie = [("cookie", cookie.as_str())];
        let answers = [
            whole.get(PERSON, &format!("/v1/drafts/{id}")).await,
            whole.get(PERSON, &format!("/v1/drafts/{id}/body")).await,
            whole.get(PERSON, &format!("/v1/receipts/{}", id.receipt_id())).await,
            whole.send("GET", &format!("/drafts/{id}"), &cookie, String::new()).await,
            whole.send("GET", &format!("/drafts/{id}/body"), &cookie, String::new()).await,
        ];
        for got in answers {
            assert_eq!(got.status, 403, "{rights:?}: {}", got.text);
            assert!(got.text.contains("APPROVER_NOT_ALLOWED") && !got.text.contains("milk"), "{}", got.text);
        }
    }
    assert_eq!(whole.get(OTHER, &format!("/v1/drafts/{id}/body")).await.text, BODY);
}

fn form_headers(cookie: &str) -> [(&str, &str); 3] {
    [("origin", "http://127.0.0.1:7071"), ("content-type", "application/x-www-form-urlencoded"), ("cookie", cookie)]
}

async fn sign_in(whole: &Whole, token: &str) -> String {
    let got = whole.send("POST", "/sign-in", &form_headers(""), format!("token={token}")).await;
    got.header("set-cookie").split(';').next().unwrap().to_owned()
}

async fn csrf(whole: &Whole, cookie: &str) -> String {
    let page =
        read(router(&whole.state).oneshot(request("GET", "/", &[("cookie", cookie)], Body::empty())).await.unwrap());
    page.await.text.split("name=\"csrf\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned()
}
