//! The console: sessions, links and forms.

use std::time::Duration;

use axum::body::Body;
use serde_json::json;

use super::fixture::*;
use crate::base::code::Code;
use crate::base::digest::Digest;
use crate::base::id::Principal;
use crate::control::console::session::{CODE_LIFE, SESSION_LIFE};
use crate::control::desk::Confirm;
use crate::draft::decision::Channel;
use crate::draft::state::{Status, Verdict};
use crate::guard::answer::Answer;
use crate::guard::problem::Problem;

pub(super) const ORIGIN: (&str, &str) = ("origin", "http://127.0.0.1:7071");
pub(super) const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

type Header<'a> = (&'a str, &'a str);

/// A signed-in browser.
pub(super) struct Browser {
    pub(super) bench: Bench,
    pub(super) cookie: String,
    pub(super) csrf: String,
}

impl Browser {
    pub(super) async fn open(bench: Bench) -> Self {
        let got = bench.send(request("POST", "/sign-in", &[ORIGIN, FORM], format!("token={PERSON}&next=%2F"))).await;
        assert_eq!((got.status, got.header("location")), (303, "/"), "{}", got.text);
        let cookie = got.header("set-cookie").split(';').next().unwrap().to_owned();
        let mut browser = Self { bench, cookie, csrf: String::new() };
        let page = browser.get("/").await;
        browser.csrf = page.text.split("name=\"csrf\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
        browser.bench.asked();
        browser
    }

    pub(super) async fn get(&self, path: &str) -> Got {
        self.bench.send(request("GET", path, &[("cookie", &self.cookie)], Body::empty())).await
    }

    async fn post(&self, path: &str, form: &str) -> Got {
        self.post_with(path, &[ORIGIN, FORM, ("cookie", &self.cookie)], &format!("csrf={}&{form}", self.csrf)).await
    }

    async fn post_with(&self, path: &str, headers: &[(&str, &str)], form: &str) -> Got {
        self.bench.send(request("POST", path, headers, form.to_owned())).await
    }
}

pub(super) fn draft_path() -> String {
    format!("/drafts/{ID}")
}

fn confirm_path() -> String {
    format!("/drafts/{ID}/confirm")
}

fn confirm_form() -> String {
    format!("args_hash={}&comment=", hash())
}

#[tokio::test]
async fn a_one_time_link_signs_in_once() {
    let bench = bench();
    let link = bench.state.new_sign_in_link(&Principal::new("alice").unwrap()).unwrap();
    assert_eq!(format!("{link:?}"), "***");
    let code =
        link.reveal().strip_prefix("http://127.0.0.1:7071/#code=").expect("the code stands in the fragment").to_owned();
    let page = bench.send(request("GET", "/", &[], Body::empty())).await;
    assert_eq!(page.status, 200);
    assert!(page.text.contains("id=\"sign-in-code\"") && !page.text.contains(&code));
    let sign_in =
        |code: &str| request("POST", "/sign-in", &[ORIGIN, FORM], format!("code={code}&next={}", draft_path()));
    let first = bench.send(sign_in(&code)).await;
    assert_eq!((first.status, first.header("location")), (303, draft_path().as_str()));
    let again = bench.send(sign_in(&code)).await;
    assert_eq!(again.status, 401);
    assert!(again.header("set-cookie").is_empty());
    assert_eq!(bench.refusals(), [(Code::CredentialUnknown, "sign-in".to_owned())]);
    let late = bench.state.new_sign_in_link(&Principal::new("alice").unwrap()).unwrap();
    bench.clock.advance(CODE_LIFE);
    assert_eq!(bench.send(sign_in(late.reveal().split_once('=').unwrap().1)).await.status, 401);
}

#[tokio::test]
async fn the_cookie_is_strict_bounded_and_not_readable_by_script() {
    let bench = bench();
    let got = bench.send(request("POST", "/sign-in", &[ORIGIN, FORM], format!("token={PERSON}"))).await;
    let cookie = got.header("set-cookie").to_owned();
    for needed in ["countersign=", "; Path=/", "; HttpOnly", "; SameSite=Strict", "; Max-Age=28800"] {
        assert!(cookie.contains(needed), "{cookie}");
    }
    assert!(!cookie.contains("Secure") && !cookie.contains(PERSON));
    let https = bench_at("https://guard.example", Ok(()));
    let headers = [("host", "guard.example"), ("origin", "https://guard.example"), FORM];
    let got = https.send(request("POST", "/sign-in", &headers, format!("token={PERSON}"))).await;
    assert!(got.header("set-cookie").starts_with("__Host-countersign="), "{}", got.header("set-cookie"));
    assert!(got.header("set-cookie").ends_with("; Secure"));
}

#[tokio::test]
async fn only_an_approver_signs_in_and_only_to_our_own_pages() {
    let bench = bench();
    let cases = [
        (format!("token={ROBOT}"), 403),
        (format!("token={BACKEND}"), 401),
        ("token=".to_owned(), 401),
        ("code=AAAA".to_owned(), 401),
        (String::new(), 401),
        (format!("token={PERSON}&code=AAAA"), 401),
        (format!("token={PERSON}&token={PERSON}"), 422),
        (format!("token={PERSON}&admin=1"), 422),
    ];
    for (form, status) in cases {
        let got = bench.send(request("POST", "/sign-in", &[ORIGIN, FORM], form.clone())).await;
        assert_eq!(got.status, status, "{form}");
        assert!(got.header("set-cookie").is_empty(), "{form}");
        assert!(!got.text.contains(ROBOT) && !got.text.contains(BACKEND), "a token is never repeated");
    }
    for next in
        ["https%3A%2F%2Fevil.test", "%2F%2Fevil.test", "%2Fdrafts%2F..%2F..", "javascript%3Aalert(1)", "%2Fv1%2Fdrafts"]
    {
        let form = format!("token={PERSON}&next={next}");
        let got = bench.send(request("POST", "/sign-in", &[ORIGIN, FORM], form)).await;
        assert_eq!((got.status, got.header("location")), (303, "/"), "{next}");
    }
}

#[tokio::test]
async fn a_session_ends_with_its_time_its_sign_out_and_its_approver() {
    let browser = Browser::open(bench()).await;
    assert!(browser.get("/").await.text.contains("Signed in as alice"));
    browser.bench.clock.advance(SESSION_LIFE - Duration::from_secs(1));
    assert!(browser.get("/").await.text.contains("Signed in as alice"));
    // Setting the wall clock back gives nothing.
    browser.bench.clock.shift_wall(-86_400_000);
    browser.bench.clock.advance(Duration::from_secs(1));
    assert!(browser.get("/").await.text.contains("Sign in with the code"));

    let browser = Browser::open(bench()).await;
    let out = browser.post("/sign-out", "").await;
    assert_eq!(out.status, 303);
    assert!(out.header("set-cookie").contains("Max-Age=0"));
    assert!(browser.get("/").await.text.contains("Sign in with the code"), "the old cookie is worth nothing");

    let browser = Browser::open(bench()).await;
    browser.bench.state.revoke_sessions(&Principal::new("alice").unwrap());
    assert!(browser.get("/").await.text.contains("Sign in with the code"));

    let browser = Browser::open(bench()).await;
    let mut changed = credentials();
    changed.approvers[0].token_sha256 = Digest::of(b"another");
    browser.bench.credentials.store(changed.into());
    let got = browser.post(&confirm_path(), &confirm_form()).await;
    assert_eq!(got.status, 401);
    assert!(got.text.contains("Your session is over"));
    assert_eq!(browser.bench.asked(), []);
}

#[tokio::test]
async fn a_session_cookie_is_nothing_to_the_api() {
    let browser = Browser::open(bench()).await;
    assert_eq!(browser.get("/v1/drafts").await.status, 401);
    let headers = [ORIGIN, ("content-type", "application/json"), ("cookie", browser.cookie.as_str())];
    let got = browser.post_with(&format!("/v1/drafts/{ID}/confirm"), &headers, "{}").await;
    assert_eq!(got.status, 401);
}

#[tokio::test]
async fn a_confirm_form_hands_on_what_was_shown() {
    let browser = Browser::open(bench()).await;
    let page = browser.get(&draft_path()).await;
    assert!(page.text.contains(&format!("name=\"args_hash\" value=\"{}\"", hash())));
    browser.bench.asked();
    let got = browser.post(&confirm_path(), &format!("args_hash={}&comment=all%0D%0Aright", hash())).await;
    assert_eq!(got.status, 303, "{}", got.text);
    let Question::Confirm(who, draft, confirm) = browser.bench.asked().remove(0) else { panic!() };
    assert_eq!((who.name.as_str(), who.auth_method, who.channel), ("alice", "session", Channel::Console));
    assert_eq!(draft, id());
    let Confirm { args_hash, comment, decision_key, .. } = confirm;
    assert_eq!((args_hash, comment.as_deref(), decision_key), (Some(hash()), Some("all\nright"), None));
    browser.bench.show(view(Status::Succeeded));
    let told = browser.get(got.header("location")).await;
    assert!(told.text.contains("You confirmed this call. It is sent once."), "{}", told.text);
}

#[tokio::test]
async fn forms_from_elsewhere_change_nothing() {
    let browser = Browser::open(bench()).await;
    let cookie = ("cookie", browser.cookie.as_str());
    let good = format!("csrf={}&{}", browser.csrf, confirm_form());
    let evil = ("origin", "https://evil.test");
    let cases: Vec<(Vec<Header<'_>>, String, u16)> = vec![
        (vec![evil, FORM, cookie], good.clone(), 403),
        (vec![FORM, cookie], good.clone(), 403),
        (vec![("origin", "null"), FORM, cookie], good.clone(), 403),
        (vec![ORIGIN, FORM, cookie, ("sec-fetch-site", "cross-site")], good.clone(), 403),
        (vec![ORIGIN, FORM, cookie, ("sec-fetch-site", "same-site")], good.clone(), 403),
        (vec![("host", "evil.test"), ("origin", "http://evil.test"), FORM, cookie], good.clone(), 403),
        (vec![ORIGIN, ("content-type", "text/plain"), cookie], good.clone(), 415),
        (vec![ORIGIN, ("content-type", "application/json"), cookie], good.clone(), 415),
        (vec![ORIGIN, FORM, cookie], confirm_form(), 403),
        (vec![ORIGIN, FORM, cookie], format!("csrf={}&{}", Digest::of(b"x"), confirm_form()), 403),
        (vec![ORIGIN, FORM, cookie], format!("{good}&csrf={}", browser.csrf), 422),
        (vec![ORIGIN, FORM, cookie], format!("{good}&decided_by=bob"), 422),
        (vec![ORIGIN, FORM], good.clone(), 401),
    ];
    for (headers, form, status) in cases {
        for path in ["confirm", "reject", "resolve", "again"] {
            let got = browser.post_with(&format!("/drafts/{ID}/{path}"), &headers, &form).await;
            // What is wrong with a form for another path shows first where its fields differ.
            let fits = got.status == status || (path != "confirm" && got.status == 422);
            assert!(fits, "{path} {headers:?} {form}: {}", got.status);
            assert!(got.header("content-type").starts_with("text/html"));
        }
    }
    let decided = browser.bench.asked().into_iter().filter(|question| !matches!(question, Question::Show(_)));
    assert_eq!(decided.collect::<Vec<_>>(), []);
    // Both kinds are recorded: by whom nobody knows, and in whose session.
    let refused = browser.bench.refusals();
    for who in ["console", "alice"] {
        assert!(refused.contains(&(Code::CsrfFailed, who.to_owned())), "{refused:?}");
    }
    // Another session's token is not this one's.
    let other = browser.bench.send(request("POST", "/sign-in", &[ORIGIN, FORM], format!("token={PERSON}"))).await;
    let other = other.header("set-cookie").split(';').next().unwrap().to_owned();
    let got = browser.post_with(&confirm_path(), &[ORIGIN, FORM, ("cookie", &other)], &good).await;
    assert_eq!(got.status, 403);
    assert_eq!(browser.bench.asked(), []);
    assert_eq!(browser.post(&confirm_path(), &confirm_form()).await.status, 303, "the real click still works");
}

#[tokio::test]
async fn a_form_whose_hash_is_none_is_refused_before_the_guard_is_asked() {
    let browser = Browser::open(bench()).await;
    let got = browser.post(&confirm_path(), "args_hash=xyz").await;
    assert_eq!(got.status, 422);
    assert!(!browser.bench.asked().iter().any(|asked| matches!(asked, Question::Confirm(..))));
}

#[tokio::test]
async fn a_name_that_points_here_is_not_the_console() {
    let browser = Browser::open(bench()).await;
    for path in ["/", &draft_path(), "/sign-in"] {
        let headers = [("host", "evil.test"), ("cookie", browser.cookie.as_str())];
        let got = browser.bench.send(request("GET", path, &headers, Body::empty())).await;
        assert_eq!(got.status, 403, "{path}");
        assert!(got.text.contains("CSRF_FAILED") && !got.text.contains("Buy milk"));
    }
    assert_eq!(browser.bench.asked(), []);
}

#[tokio::test]
async fn links_are_harmless_to_follow() {
    let bench = bench();
    let followers: [&[(&str, &str)]; 4] = [
        &[("user-agent", "Slackbot-LinkExpanding 1.0")],
        &[("user-agent", "facebookexternalhit/1.1")],
        &[("sec-purpose", "prefetch")],
        &[("sec-fetch-site", "cross-site")],
    ];
    for headers in followers {
        for method in ["GET", "HEAD", "GET"] {
            for path in [draft_path(), "/".to_owned(), format!("/drafts/{ID}/body")] {
                let got = bench.send(request(method, &path, headers, Body::empty())).await;
                assert_eq!((got.status, got.header("cache-control")), (200, "no-store"), "{method} {path}");
                assert!(!got.text.contains("Buy milk"), "nothing is shown to a stranger");
            }
        }
        let post = bench.send(request("GET", &confirm_path(), headers, Body::empty())).await;
        assert_eq!(post.status, 405);
    }
    assert_eq!(bench.asked(), []);
}

#[tokio::test]
async fn a_link_from_another_site_finds_its_session() {
    let bench = bench();
    let cross = [("sec-fetch-site", "cross-site")];
    let page = bench.send(request("GET", &draft_path(), &cross, Body::empty())).await;
    assert!(
        page.text.contains(&format!("http-equiv=\"refresh\" content=\"0;url=&#x2f;drafts&#x2f;{ID}\"")),
        "{}",
        page.text
    );
    let root = bench.send(request("GET", "/", &cross, Body::empty())).await;
    assert!(!root.text.contains("http-equiv"), "the fragment with a code would be lost");
    let own = bench.send(request("GET", &draft_path(), &[("sec-fetch-site", "same-origin")], Body::empty())).await;
    assert!(!own.text.contains("http-equiv"), "once, not for ever");
}

#[tokio::test]
async fn late_and_double_clicks_are_explained() {
    let browser = Browser::open(bench()).await;
    browser.bench.answer_next(Answer::json(200, &json!({"status": "succeeded", "replayed": true})));
    browser.bench.show(view(Status::Succeeded));
    let got = browser.post(&confirm_path(), &confirm_form()).await;
    let told = browser.get(got.header("location")).await;
    assert!(told.text.contains("Your click changed nothing"), "{}", told.text);

    let late = [
        (Problem::new(Code::DraftExpired, "It ended at noon."), Status::Expired, "You came too late"),
        (Problem::new(Code::DraftAlreadyDecided, "bob rejected it."), Status::Rejected, "decided before your click"),
        (Problem::new(Code::ArgsHashMismatch, ""), Status::Pending, "What you were shown is not what is stored"),
        (Problem::new(Code::DecisionUncertain, ""), Status::Pending, "It is not known whether your click was recorded"),
        (Problem::new(Code::ApproverNotAllowed, ""), Status::Pending, "Ask somebody whose rights reach"),
        (
            Problem::new(Code::DraftAlreadyDecided, "The policy changed.").with("decided_by", &"guard"),
            Status::Rejected,
            "The policy changed.",
        ),
    ];
    for (problem, status, words) in late {
        browser.bench.show(view(status));
        browser.bench.answer_next(problem.answer());
        let got = browser.post(&confirm_path(), &confirm_form()).await;
        assert_eq!(got.status, problem.status());
        assert!(got.text.contains(words) && got.text.contains(&problem.detail), "{}", got.text);
        // What this click made the guard decide was not decided before it.
        let before = problem.code == Code::DraftAlreadyDecided && problem.members.get("decided_by").is_none();
        assert_eq!(got.text.contains("decided before your click"), before, "{}", got.text);
    }
}

#[tokio::test]
async fn an_outcome_that_nobody_knows_is_no_refusal() {
    let browser = Browser::open(bench()).await;
    browser.bench.show(view(Status::Unverifiable));
    browser.bench.answer_next(Problem::new(Code::CommitOutcomeUnknown, "").answer());
    let got = browser.post(&confirm_path(), &confirm_form()).await;
    assert_eq!((got.status, got.header("location")), (303, draft_path().as_str()));
    assert!(browser.get(&draft_path()).await.text.contains("It cannot be verified whether this happened."));
}

#[tokio::test]
async fn a_notice_is_believed_from_our_own_redirect_only() {
    let browser = Browser::open(bench()).await;
    for forged in ["confirmed", "confirmed-", "confirmed-00000000000000000000000000000000", "x-y"] {
        let page = browser.get(&format!("{}?notice={forged}", draft_path())).await;
        assert_eq!(page.status, 200);
        assert!(!page.text.contains("You confirmed this call"), "{forged}");
    }
}

#[tokio::test]
async fn reject_resolve_and_again_by_form() {
    let browser = Browser::open(bench()).await;
    let got = browser.post(&format!("/drafts/{ID}/reject"), &format!("args_hash={}&reason=no", hash())).await;
    assert_eq!(got.status, 303, "{}", got.text);
    let asked = browser.bench.asked();
    assert!(
        matches!(&asked[..], [Question::Show(_), Question::Reject(who, _, reason, None)] if reason == "no" && who.channel == Channel::Console)
    );
    let other = Digest::of(b"something else");
    for (form, status) in
        [(format!("args_hash={other}&reason=no"), 409), (format!("args_hash={}&reason=+", hash()), 422)]
    {
        let got = browser.post(&format!("/drafts/{ID}/reject"), &form).await;
        assert_eq!(got.status, status);
        assert!(browser.bench.asked().iter().all(|question| matches!(question, Question::Show(_))));
    }

    browser.bench.show(view(Status::Unverifiable));
    let form = format!("args_hash={}&outcome=succeeded&evidence=seen+in+the+list", hash());
    let got = browser.post(&format!("/drafts/{ID}/resolve"), &form).await;
    assert_eq!(got.status, 303, "{}", got.text);
    assert_eq!(browser.bench.asked()[1], Question::Resolve(id(), Verdict::Succeeded, "seen in the list".to_owned()));
    let unclear = browser.post(&format!("/drafts/{ID}/resolve"), &format!("args_hash={}&evidence=x", hash())).await;
    assert_eq!(unclear.status, 422);

    let new = "dr_5_01J0000000000000000000000B";
    browser.bench.answer_next(Answer::json(201, &json!({"draft_id": new})));
    let got = browser.post(&format!("/drafts/{ID}/again"), "").await;
    assert!(got.header("location").starts_with(&format!("/drafts/{new}?notice=again-")), "{}", got.header("location"));
}
