//! The console works without JavaScript, decides only by a form post of its own pages, and hides
//! nothing and shows no secret.

use serde_json::json;

use crate::support::browser::{Browser, Form, form_to, forms};
use crate::support::{Draft, Guard, Request, Response, Setup, Upstream, exchange, tokens};

#[track_caller]
fn signed_in(guard: &Guard, token: &str) -> Browser {
    let mut browser = Browser::at(guard.control_address());
    let page = browser.sign_in(token);
    assert_eq!(page.status, 200, "{}", page.text());
    assert!(!browser.cookie_header().is_empty(), "a session cookie: {:?}", page.headers);
    browser
}

#[track_caller]
fn draft_page(browser: &mut Browser, draft: &Draft) -> String {
    browser.open(&format!("/drafts/{}", draft.id)).must_be(200).text()
}

/// The code in the fragment of a one-time link.
fn code_of(link: &str) -> String {
    let fragment = link.split('#').nth(1).expect("a fragment");
    fragment.rsplit('=').next().unwrap_or(fragment).to_owned()
}

#[test]
fn a_person_signs_in_sees_the_card_confirms_and_reads_what_happened() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let draft = guard.agent().hold("/pay", &json!({"to": "acct-4711", "amount": 12.5}));
    let mut browser = signed_in(&guard, tokens::ALICE);
    let queue = browser.open("/").must_be(200).text();
    assert!(queue.contains(&draft.id) && queue.contains("acct-4711"), "{queue}");
    let page = draft_page(&mut browser, &draft);
    for shown in ["Send money", "acct-4711", "12.5", "POST", "/pay", &draft.args_hash] {
        assert!(page.contains(shown), "the card shows {shown:?}: {page}");
    }
    let confirm = form_to(&page, "/confirm");
    assert!(
        confirm.fields.values().any(|value| *value == draft.args_hash),
        "the form names what was shown: {confirm:?}"
    );
    assert_eq!(upstream.heads(), 0);
    let done = browser.submit(&confirm).must_be(200).text();
    assert!(done.contains("succeeded") || done.to_lowercase().contains("done"), "{done}");
    assert_eq!(upstream.effects("/pay"), 1);
    let receipt = guard.draft(&draft.id)["receipt"].clone();
    assert_eq!(receipt["decided_by"][0]["id"], "alice", "{receipt}");
    assert_eq!(receipt["decided_by"][0]["channel"], "console", "{receipt}");
    // The old page is submitted once more: a double click.
    let twice = browser.submit(&confirm);
    assert!(twice.status < 500, "{}", twice.text());
    assert_eq!(upstream.effects("/pay"), 1);
}

#[test]
fn a_person_rejects_with_a_reason() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let draft = guard.agent().hold_task("not wanted");
    let mut browser = signed_in(&guard, tokens::ALICE);
    let page = draft_page(&mut browser, &draft);
    let form = form_to(&page, "/reject");
    let field = form.typed.first().expect("a field for the reason").clone();
    browser.submit(&form.with(&field, "we have <enough> & more")).must_be(200);
    let told = guard.agent().result(&draft).must_refuse(403, "DRAFT_REJECTED");
    assert_eq!(told["reason"], "we have <enough> & more");
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn the_one_time_link_signs_in_once() {
    let upstream = Upstream::start();
    let guard = Setup::local(&upstream).start();
    let link = guard.console_link().expect("a console link").to_owned();
    let code = code_of(&link);
    assert!(!link.split('#').next().unwrap_or_default().contains(&code), "the code is in the fragment only: {link}");
    let draft = guard.anyone().hold_task("my own");
    let mut browser = Browser::at(guard.control_address());
    browser.sign_in_with_code(&code);
    let page = draft_page(&mut browser, &draft);
    browser.submit(&form_to(&page, "/confirm")).must_be(200);
    assert_eq!(upstream.effects("/tasks"), 1);
    let mut second = Browser::at(guard.control_address());
    let refused = second.sign_in_with_code(&code);
    let page = second.open(&format!("/drafts/{}", draft.id)).text();
    assert!(!page.contains("my own"), "a code works once: {} {page}", refused.status);
    for wrong in ["", "AAAA-AAAA-AAAA-AAAA-AAAA", tokens::DESK_BOT] {
        let mut stranger = Browser::at(guard.control_address());
        stranger.sign_in_with_code(wrong);
        assert!(!stranger.open(&format!("/drafts/{}", draft.id)).text().contains("my own"), "{wrong:?}");
    }
}

#[test]
fn a_new_link_is_printed_for_whoever_has_an_approvers_token() {
    let upstream = Upstream::start();
    let guard = Setup::local(&upstream).start();
    let draft = guard.anyone().hold_task("my own");
    let control = guard.control_url();
    let keys = guard.folder().join("countersign.keys").display().to_string();
    let printed = guard.cli(&["console", "--control", &control, "--keys", &keys]);
    assert_eq!(printed.status.code(), Some(0), "{}", printed.said());
    let link = printed.stdout.trim();
    assert!(link.starts_with(&format!("{control}/#code=")), "{link}");
    let told = guard.cli(&["console", "--json", "--control", &control, "--keys", &keys]);
    let told: serde_json::Value = serde_json::from_str(&told.stdout).expect("JSON");
    assert!(told["approver"] == "local" && told["link"] != link, "{told}");
    for link in [link, told["link"].as_str().expect("a link")] {
        let (mut first, mut second) = (Browser::at(guard.control_address()), Browser::at(guard.control_address()));
        first.sign_in_with_code(&code_of(link));
        assert!(draft_page(&mut first, &draft).contains("my own"));
        second.sign_in_with_code(&code_of(link)).must_be(401);
    }
    let refused = guard.cli(&["console", "--control", &control, "--token", tokens::ALICE]);
    assert_eq!(refused.status.code(), Some(1), "{}", refused.said());
    assert!(refused.stdout.is_empty() && refused.stderr.contains("hint:"), "{}", refused.said());
    assert_eq!(guard.cli(&["console", "--control", &control, "--keys", "no.keys"]).status.code(), Some(2));
    assert!(!guard.printed().contains(&code_of(link)), "no code is logged");
}

#[test]
fn nobody_sees_anything_without_signing_in() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let draft = guard.agent().hold_task("a secret plan");
    let mut browser = Browser::at(guard.control_address());
    for path in ["/".to_owned(), format!("/drafts/{}", draft.id), format!("/drafts/{}/body", draft.id)] {
        let page = browser.open(&path);
        assert!(!page.text().contains("a secret plan") && !page.text().contains("add_task"), "{path}: {}", page.text());
    }
    for token in [tokens::DESK_BOT, tokens::WEB, "nobody"] {
        let mut browser = Browser::at(guard.control_address());
        browser.sign_in(token);
        assert!(!browser.open("/").text().contains("a secret plan"), "{token}");
    }
    let mut dora = signed_in(&guard, tokens::DORA);
    assert!(!dora.open("/").text().contains("a secret plan"));
    assert!(!dora.open(&format!("/drafts/{}", draft.id)).text().contains("a secret plan"));
}

/// A page with an open draft and the form that would confirm it.
fn open_form(guard: &Guard) -> (Browser, Draft, Form) {
    let draft = guard.agent().hold_task("forged?");
    let mut browser = signed_in(guard, tokens::ALICE);
    let page = draft_page(&mut browser, &draft);
    (browser, draft, form_to(&page, "/confirm"))
}

fn hidden_token(form: &Form, draft: &Draft) -> String {
    let token = form
        .fields
        .iter()
        .find(|(name, value)| !form.typed.contains(name) && **value != draft.args_hash && value.len() > 15);
    token.map(|(name, _)| name.clone()).unwrap_or_else(|| panic!("no anti-forgery token in {form:?}"))
}

#[test]
fn a_form_that_another_page_could_have_sent_changes_nothing() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let (browser, draft, form) = open_form(&guard);
    let cookies = browser.cookie_header();
    let token = hidden_token(&form, &draft);
    let own = browser.origin();
    let wrong_token = form.clone().with(&token, &"0".repeat(64));
    let send = |form: &Form, extra: &[(&str, &str)]| -> Response {
        let request =
            extra.iter().fold(browser.form_request(form), |request, (name, value)| request.header(name, value));
        exchange(guard.control_address(), &request)
    };
    let attacks: Vec<(&str, u16, Response)> = vec![
        ("no token", 403, send(&form.clone().without(&token), &[("Cookie", &cookies), ("Origin", &own)])),
        ("wrong token", 403, send(&wrong_token, &[("Cookie", &cookies), ("Origin", &own)])),
        ("foreign origin", 403, send(&form, &[("Cookie", &cookies), ("Origin", "http://evil.test")])),
        ("null origin", 403, send(&form, &[("Cookie", &cookies), ("Origin", "null")])),
        ("same host, other port", 403, send(&form, &[("Cookie", &cookies), ("Origin", "http://127.0.0.1:1")])),
        (
            "cross-site by fetch metadata",
            403,
            send(&form, &[("Cookie", &cookies), ("Origin", &own), ("Sec-Fetch-Site", "cross-site")]),
        ),
        (
            "foreign host",
            403,
            send(&form, &[("Cookie", &cookies), ("Origin", "http://evil.test"), ("Host", "evil.test")]),
        ),
        ("no session", 401, send(&form, &[("Origin", &own)])),
        (
            "another session",
            403,
            send(&form, &[("Cookie", &signed_in(&guard, tokens::BOB).cookie_header()), ("Origin", &own)]),
        ),
    ];
    for (name, status, answer) in attacks {
        assert_eq!(answer.status, status, "{name}: {}", answer.text());
        assert_eq!(guard.draft(&draft.id)["status"], "pending", "{name} confirmed it");
    }
    assert_eq!(upstream.heads(), 0);
    let mut browser = browser;
    browser.submit(&form).must_be(200);
    assert_eq!(upstream.effects("/tasks"), 1);
}

#[test]
fn a_session_cookie_opens_the_console_only_and_the_api_takes_no_forms() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let (browser, draft, _) = open_form(&guard);
    let json = Request::post(&format!("/v1/drafts/{}/confirm", draft.id))
        .header("Cookie", &browser.cookie_header())
        .json(&json!({"args_hash": draft.args_hash}));
    // A cookie alone must not decide.
    exchange(guard.control_address(), &json).must_refuse(401, "CREDENTIAL_UNKNOWN");
    let form = Request::post(&format!("/v1/drafts/{}/confirm", draft.id))
        .header("Authorization", &format!("Bearer {}", tokens::ALICE))
        .body("application/x-www-form-urlencoded", format!("args_hash={}", draft.args_hash));
    exchange(guard.control_address(), &form).must_refuse(415, "MEDIA_TYPE_UNSUPPORTED");
    let text = Request::post(&format!("/v1/drafts/{}/confirm", draft.id))
        .header("Authorization", &format!("Bearer {}", tokens::ALICE))
        .body("text/plain", json!({"args_hash": draft.args_hash}).to_string());
    exchange(guard.control_address(), &text).must_refuse(415, "MEDIA_TYPE_UNSUPPORTED");
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn the_session_cookie_is_kept_from_scripts_and_other_sites_and_ends_with_sign_out() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let mut browser = Browser::at(guard.control_address());
    let page = browser.open("/sign-in").text();
    let form = forms(&page).into_iter().find(|form| form.typed.iter().any(|field| field == "token"));
    let form = form.expect("a form for the token").with("token", tokens::ALICE);
    let request = browser.form_request(&form).header("Origin", &browser.origin());
    let answer = browser.fetch(request);
    let cookie = answer.header("Set-Cookie").expect("a cookie").to_owned();
    for part in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(cookie.contains(part), "{part}: {cookie}");
    }
    assert!(!cookie.contains(tokens::ALICE), "{cookie}");
    let draft = guard.agent().hold_task("after sign-out");
    let page = browser.open("/").text();
    let out = forms(&page).into_iter().find(|form| form.action.contains("sign-out")).expect("a way out");
    let before = browser.clone();
    browser.submit(&out);
    for mut browser in [browser, before] {
        assert!(!browser.open(&format!("/drafts/{}", draft.id)).text().contains("after sign-out"));
    }
}

#[test]
fn pages_carry_strict_headers_and_nothing_inline() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let draft = guard.agent().hold_task("<script>alert(1)</script>\"'><img src=x onerror=alert(2)>");
    let mut browser = signed_in(&guard, tokens::ALICE);
    for path in ["/".to_owned(), format!("/drafts/{}", draft.id), "/sign-in".to_owned()] {
        let page = browser.open(&path).must_be(200);
        let policy = page.header("Content-Security-Policy").unwrap_or_default().to_owned();
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{path}: {policy}");
        assert!(policy.contains("frame-ancestors 'none'"), "{path}: {policy}");
        assert_eq!(page.header("X-Content-Type-Options"), Some("nosniff"), "{path}");
        assert_eq!(page.header("Cache-Control"), Some("no-store"), "{path}");
        let html = page.text();
        for inline in ["<script>alert", "<img", " onclick=", " onload=", " style=\"", "javascript:"] {
            assert!(!html.contains(inline), "{path}: {inline}: {html}");
        }
        assert!(!html.contains("<script>"), "{path}: an inline script: {html}");
    }
}

#[test]
fn hostile_text_is_made_visible_on_the_page() {
    let upstream = Upstream::start();
    let guard = Guard::over(&upstream);
    let draft = guard.agent().hold_task("transfer \u{202e}0001 ot\u{202c} bob\u{200b}by");
    let mut browser = signed_in(&guard, tokens::ALICE);
    for path in ["/".to_owned(), format!("/drafts/{}", draft.id)] {
        let html = browser.open(&path).must_be(200).text();
        assert!(!html.contains(['\u{202e}', '\u{202c}', '\u{200b}']), "{path}: {html}");
        assert!(html.to_lowercase().contains("202e"), "{path}: the character is named: {html}");
    }
}

#[test]
fn an_unknown_outcome_is_told_and_resolved_in_the_console() {
    let upstream = Upstream::start();
    upstream.on("/free/gone", crate::support::Act::CloseAfterRead);
    let guard = Guard::over(&upstream);
    let draft = guard.agent().hold("/free/gone", &json!({}));
    let mut browser = signed_in(&guard, tokens::ALICE);
    let page = draft_page(&mut browser, &draft);
    browser.submit(&form_to(&page, "/confirm"));
    let page = draft_page(&mut browser, &draft);
    assert!(page.to_lowercase().contains("verif"), "{page}");
    let mut form = form_to(&page, "/resolve");
    for field in form.typed.clone() {
        form = form.with(&field, "looked it up");
    }
    browser.submit(&form.with("outcome", "succeeded")).must_be(200);
    assert_eq!(guard.draft(&draft.id)["status"], "succeeded");
    assert_eq!(upstream.effects("/free/gone"), 1);
}
