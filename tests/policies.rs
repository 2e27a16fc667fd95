//! Policy files: the examples load, every mistake is reported at its place, and the verdicts are
//! the ones that the documentation promises.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/identity.rs"]
mod identity;

use std::path::{Path, PathBuf};

use countersign::call::args::{BodyLimits, understand};
use countersign::call::head::Head;
use countersign::draft::record::{Effect, Identity};
use countersign::policy::diagnostic::{Severity, report};
use countersign::policy::editor::policy_schema;
use countersign::policy::judge::{Selection, judge};
use countersign::policy::load::{Loaded, Source, load};
use countersign::policy::model::PolicySet;
use countersign::policy::read::Substitutions;
use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;
use serde_json::Value;

struct Surroundings;

impl Substitutions for Surroundings {
    fn env(&self, name: &str) -> Result<String, String> {
        match name {
            "LIGHTNOTE_URL" => Ok("http://127.0.0.1:8080".into()),
            "CUSTOMER_SERVICE_URL" => Ok("https://cs.example.com/api".into()),
            "CUSTOMER_SERVICE_TOKEN" => Ok("hunter2-token".into()),
            "HUNTER" => Ok("hunter2 not a header\n".into()),
            "TTL" => Ok("90s".into()),
            _ => Err("is not set".into()),
        }
    }

    fn file(&self, path: &str) -> Result<String, String> {
        match path {
            "/run/secrets/token" => Ok("hunter2-file\n".into()),
            _ => Err("cannot be read".into()),
        }
    }
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn sources(paths: &[PathBuf]) -> Vec<Source> {
    let read = |path: &PathBuf| Source {
        name: path.file_name().unwrap().to_string_lossy().into_owned(),
        text: std::fs::read_to_string(path).unwrap(),
    };
    paths.iter().map(read).collect()
}

fn yaml_files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|ext| ext == "yaml"));
    files.sort();
    files
}

fn load_text(text: &str) -> Result<Loaded, String> {
    let source = Source { name: "policy.yaml".into(), text: text.into() };
    load(&[source], &Surroundings).map_err(|found| report(&found))
}

#[test]
fn the_example_policies_load_without_a_warning() {
    for path in yaml_files(&folder("policies")) {
        let loaded = load(&sources(std::slice::from_ref(&path)), &Surroundings)
            .unwrap_or_else(|found| panic!("{}", report(&found)));
        assert!(loaded.warnings.is_empty(), "{}: {}", path.display(), report(&loaded.warnings));
    }
    let all = load(&sources(&yaml_files(&folder("policies"))), &Surroundings);
    assert!(all.is_ok(), "{}", report(&all.unwrap_err()));
}

/// Every file of `tests/fixtures/policies` has one or more mistakes; a folder is one set of files.
/// The snapshot is what `countersign check` prints.
#[test]
fn every_mistake_is_reported_with_its_place_and_a_remedy() {
    let fixtures = folder("tests/fixtures/policies");
    let mut cases: Vec<PathBuf> = std::fs::read_dir(&fixtures).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    assert!(cases.len() > 20, "the fixtures are missing");
    let mut printed = Vec::new();
    for case in cases {
        let files = if case.is_dir() { yaml_files(&case) } else { vec![case.clone()] };
        let name = case.file_stem().unwrap().to_string_lossy().into_owned();
        let text = match load(&sources(&files), &Surroundings) {
            Ok(loaded) => {
                assert!(name.starts_with("warns-"), "{name} loaded");
                report(&loaded.warnings)
            }
            Err(found) => {
                assert!(!name.starts_with("warns-"), "{name}: {}", report(&found));
                assert!(found.iter().any(|diagnostic| diagnostic.severity == Severity::Error));
                report(&found)
            }
        };
        assert!(!text.contains("hunter2"), "{name} prints a secret:\n{text}");
        printed.push(text.clone());
        insta::assert_snapshot!(name, text);
    }
}

/// The small part of YAML that a policy uses, as JSON, by a reading that shares nothing with ours
/// but the parser.
fn as_json(text: &str) -> Value {
    fn json(node: &countersign::policy::yaml::Node) -> Value {
        use countersign::policy::yaml::{Kind, Typed};
        match &node.kind {
            Kind::Scalar(scalar) => match scalar.typed() {
                Typed::Null => Value::Null,
                Typed::Bool(value) => value.into(),
                Typed::Number(number) => Value::Number(number),
                Typed::Text(text) => text.into(),
            },
            Kind::List(items) => items.iter().map(json).collect(),
            Kind::Map(entries) => entries.iter().map(|entry| (entry.key.clone(), json(&entry.value))).collect(),
            Kind::Refused => Value::Null,
        }
    }
    json(&countersign::policy::yaml::parse(text).0.unwrap())
}

#[test]
fn the_examples_fit_the_editors_schema_and_misspelt_ones_do_not() {
    let validator = jsonschema::draft202012::new(&policy_schema()).unwrap();
    for source in sources(&yaml_files(&folder("policies"))) {
        let errors: Vec<String> =
            validator.iter_errors(&as_json(&source.text)).map(|e| format!("{}: {e}", e.instance_path())).collect();
        assert_eq!(errors, [""; 0], "{}", source.name);
        for (from, to) in [
            ("effect: write", "effekt: write"),
            ("risk: low", "risk: lo"),
            ("version: 1", "version: 2"),
            ("method: GET", "methds: GET"),
        ] {
            let broken = source.text.replace(from, to);
            assert!(broken == source.text || !validator.is_valid(&as_json(&broken)), "{to}");
        }
    }
}

#[test]
fn the_version_is_the_rules_and_nothing_else() {
    let base = std::fs::read_to_string(folder("policies/lightnote.yaml")).unwrap();
    let version = |text: &str| load_text(text).unwrap().set.version;
    let first = version(&base);
    assert_eq!(first.len(), 64);
    let moved = base.replace("version: 1\nservice: lightnote\n", "# a remark\nservice: 'lightnote'\nversion: 1\n");
    assert_eq!(version(&moved), first, "comments, quotes and the order of keys do not count");
    for (from, to) in [
        ("ttl: 5m", "ttl: 6m"),
        ("maxLength: 200", "maxLength: 201"),
        ("创建待办", "创建任务"),
        ("LIGHTNOTE_URL", "CUSTOMER_SERVICE_URL"),
    ] {
        assert_ne!(version(&base.replace(from, to)), first, "{to}");
    }
    let files = sources(&yaml_files(&folder("policies")));
    let reversed: Vec<Source> = files.iter().rev().cloned().collect();
    let versions =
        [load(&files, &Surroundings).unwrap().set.version, load(&reversed, &Surroundings).unwrap().set.version];
    assert_eq!(versions[0], versions[1], "the order of files does not count");
    let secret = |value: &str| {
        version(&base.replace("timeouts:", &format!("credentials: {{header: X-Key, value: '{value}'}}\n  timeouts:")))
    };
    assert_eq!(secret("one"), secret("two"), "a secret does not count");
}

#[test]
fn nothing_of_a_loaded_set_prints_a_secret() {
    let loaded = load(&sources(&[folder("policies/customer-service.yaml")]), &Surroundings).unwrap();
    assert!(!format!("{loaded:?}").contains("hunter2"));
    let credential = loaded.set.services[0].upstream.credential.as_ref().unwrap();
    assert_eq!(credential.value.reveal(), "Bearer hunter2-token");
}

fn who() -> Identity {
    Identity { role: Some("user".into()), ..identity::identity() }
}

/// What becomes of a call, from the mildest to the strictest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Becomes {
    Passed,
    Held,
    Refused,
}

fn becomes(set: &PolicySet, method: &str, target: &str, body: &str) -> Becomes {
    let mut headers = HeaderMap::new();
    headers.insert("host", HeaderValue::from_static("notes.internal"));
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    let Ok(head) = Head::read(method, target.as_bytes(), false, &headers) else { return Becomes::Refused };
    let Some(service) = set.route(&head.host, head.path.as_str()) else { return Becomes::Refused };
    let selection = service.select(&head);
    let params = match &selection {
        Selection::UnmatchedRead if service.unmatched.read_passes => return Becomes::Passed,
        Selection::Tool(tool, _) if tool.effect == Effect::Read => return Becomes::Passed,
        Selection::Tool(_, params) => params.clone(),
        _ => Vec::new(),
    };
    let limits = BodyLimits { body_bytes_max: 1 << 20 };
    let Ok(call) = understand(head.into_owned(), body.to_owned().into(), &params, &limits, true) else {
        return Becomes::Refused;
    };
    match judge(service, &selection, call, &who(), &[] as &[HeaderName]) {
        Ok(_) => Becomes::Held,
        Err(_) => Becomes::Refused,
    }
}

fn any_policy() -> impl Strategy<Value = (bool, bool, Vec<(usize, bool, bool)>)> {
    (any::<bool>(), any::<bool>(), prop::collection::vec((0..4_usize, any::<bool>(), any::<bool>()), 0..4))
}

fn text_of(policy: &(bool, bool, Vec<(usize, bool, bool)>), refusing: &[String]) -> String {
    let (hold, pass, tools) = policy;
    let paths = ["/todos", "/todos/{id}", "/todos/new", "/notes{/**}"];
    let mut seen = Vec::new();
    let (mut capabilities, mut declared) = (refusing.join(""), String::new());
    for (path, get, read) in tools {
        let method = if *get { "GET" } else { "POST" };
        if seen.contains(&(*path, *get)) {
            continue;
        }
        seen.push((*path, *get));
        let name = format!("t{}", seen.len());
        let effect = if *read { "read" } else { "write" };
        declared.push_str(&format!(
            "  - {{name: {name}, match: {{method: {method}, path: \"{}\"}}, effect: {effect}}}\n",
            paths[*path]
        ));
        if !read {
            capabilities.push_str(&format!("  - {{id: c.{name}, status: enabled, tool: {name}, risk: low}}\n"));
        }
    }
    let (write, read) = (if *hold { "hold" } else { "refuse" }, if *pass { "pass" } else { "refuse" });
    let list = |name: &str, items: &str| if items.is_empty() { String::new() } else { format!("{name}:\n{items}") };
    format!(
        "version: 1\nservice: s\nupstream: {{url: 'http://up.example'}}\nunmatched: {{read: {read}, write: {write}}}\n{}{}",
        list("capabilities", &capabilities),
        list("tools", &declared)
    )
}

proptest! {
    #[test]
    fn a_refusing_rule_never_lets_more_through(policy in any_policy(), forbidden in any::<bool>(),
                                               path in prop::sample::select(vec!["/todos", "/todos/{id}", "{/**}", "/notes{/**}", "/other"]),
                                               method in prop::option::of(prop::sample::select(vec!["GET", "POST", "DELETE"]))) {
        let status = if forbidden { "forbidden" } else { "planned" };
        let method = method.map_or(String::new(), |method| format!(", method: {method}"));
        let rule = format!("  - {{id: extra, status: {status}, guidance: never, match: {{path: \"{path}\"{method}}}}}\n");
        let (Ok(before), Ok(after)) = (load_text(&text_of(&policy, &[])), load_text(&text_of(&policy, &[rule]))) else {
            return Err(TestCaseError::fail("a generated policy does not load"));
        };
        for method in ["GET", "HEAD", "OPTIONS", "POST", "DELETE", "PATCH", "get"] {
            for target in ["/todos", "/todos/7", "/todos/new", "/notes/a/b", "/other", "/", "/todos?x=1"] {
                let body = if method == "POST" { "{}" } else { "" };
                let (first, second) = (becomes(&before.set, method, target, body), becomes(&after.set, method, target, body));
                prop_assert!(second >= first, "{method} {target}: {first:?} became {second:?}");
                prop_assert_eq!(becomes(&after.set, method, target, body), second, "two evaluations agree");
            }
        }
    }

    #[test]
    fn no_text_makes_the_loader_panic_or_print_nothing(text in ".{0,300}", cut in 0..4000_usize, insert in "[-:{}\\[\\]#&*!|>'\"%@` ,?a1~\n]{0,6}") {
        let base = std::fs::read_to_string(folder("policies/lightnote.yaml")).unwrap();
        let at = base.char_indices().map(|(at, _)| at).nth(cut).unwrap_or(0);
        for text in [text.clone(), format!("{}{insert}{}", &base[..at], &base[at..]), base[..at].to_owned()] {
            if let Err(printed) = load_text(&text) {
                prop_assert!(printed.contains("error: "), "{printed}");
            }
        }
    }
}

/// The blocks of the page that are marked as `yaml`.
fn blocks_of_the_page() -> Vec<String> {
    let page = std::fs::read_to_string(folder("docs/policies.md")).unwrap();
    let blocks = page.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap().to_owned());
    blocks.collect()
}

#[test]
fn the_examples_of_the_page_load() {
    let blocks = blocks_of_the_page();
    let shortest = load_text(&blocks[0]).unwrap_or_else(|found| panic!("{found}"));
    assert!(shortest.warnings.is_empty(), "{}", report(&shortest.warnings));
    let whole = load_text(&format!("{}{}", blocks[0], blocks[1])).unwrap_or_else(|found| panic!("{found}"));
    assert!(whole.warnings.is_empty(), "{}", report(&whole.warnings));
    let registry = blocks.iter().find(|block| block.starts_with("capabilities:")).unwrap();
    let head = blocks[0].split("capabilities:").next().unwrap();
    let tools = blocks[0].split("tools:").nth(1).unwrap();
    load_text(&format!("{head}{registry}tools:{tools}")).unwrap_or_else(|found| panic!("{found}"));
}

#[test]
fn the_page_shows_what_check_prints() {
    let text = "version: 1\nservice: shop\nupstream: {url: \"https://shop.example.com/api\"}\ncapabilities:\n  - {id: order.create, status: enabled, tool: create_order, risk: low}\n\ntools:\n  - name: create_order\n    match: {methds: [POST], path: /orders}\n    effect: wrte\n";
    let printed =
        load(&[Source { name: "shop.yaml".into(), text: text.into() }], &Surroundings).map_err(|found| report(&found));
    let page = std::fs::read_to_string(folder("docs/policies.md")).unwrap();
    let printed = printed.unwrap_err();
    assert!(page.contains(&printed), "{printed}");
}

/// Every key that the format has in this version is explained.
#[test]
fn the_page_names_every_key() {
    let page = std::fs::read_to_string(folder("docs/policies.md")).unwrap();
    let schema = policy_schema();
    let objects = schema["$defs"].as_object().unwrap().values().chain([&schema]);
    for key in objects.flat_map(|object| object["properties"].as_object().unwrap().keys()) {
        assert!(
            page.contains(&format!("`{key}`"))
                || page.contains(&format!("`{key}:"))
                || page.contains(&format!("{{{key}:"))
                || page.contains(&format!(" {key}:")),
            "{key}"
        );
    }
}
