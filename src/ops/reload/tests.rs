#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::time::{Duration, Instant};

use super::*;
use crate::base::time::SystemClock;

fn policy(title: &str) -> String {
    format!(
        "version: 1
service: notes
upstream: {{url: \"http://127.0.0.1:9\"}}
route: {{path_prefix: /}}
capabilities:
  - {{id: todo.create, status: enabled, tool: create_todo, risk: low, confirm: default}}
tools:
  - name: create_todo
    match: {{method: POST, path: /todos}}
    effect: write
    risk: low
    confirm: default
    preview: {{title: \"{title}\", target: x, impact: y}}
"
    )
}

fn open_with(folder: &Path, roles: Roles) -> Result<Arc<Policies>, PoliciesError> {
    Policies::open(Source::Folder(folder.to_owned()), roles, Metrics::new(), Arc::new(SystemClock))
}

fn open(folder: &Path) -> Arc<Policies> {
    open_with(folder, Roles::Any).unwrap()
}

/// Waits for a condition, with a deadline.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn p7_a_bad_file_keeps_the_last_good_set_and_says_where() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("notes.yaml");
    std::fs::write(&file, policy("one")).unwrap();
    let policies = open(folder.path());
    let good = policies.in_force().load_full();

    std::fs::write(&file, policy("two").replace("effect: write", "effect: perhaps")).unwrap();
    let Err(NotTaken::Mistakes(found)) = policies.reload() else { panic!("mistakes") };
    assert!(found[0].file.ends_with("notes.yaml") && found[0].line == 10, "{found:?}");
    assert!(Arc::ptr_eq(&policies.in_force().load_full(), &good));
    assert_eq!(policies.report().last_error, Some(report(&found)));
    assert_eq!(policies.report().version, good.version);

    std::fs::remove_file(&file).unwrap();
    let Err(NotTaken::Unreadable(why)) = policies.reload() else { panic!("nothing to read") };
    assert!(why.contains("no policy file"), "{why}");
    assert!(Arc::ptr_eq(&policies.in_force().load_full(), &good));

    std::fs::write(&file, policy("two")).unwrap();
    let report = policies.reload().unwrap();
    assert_ne!(report.version, good.version);
    assert_eq!(policies.report().last_error, None);
    assert_eq!(policies.in_force().load().version, report.version);
}

#[test]
fn nothing_starts_without_policies() {
    let folder = tempfile::tempdir().unwrap();
    let open = |path: &Path| open_with(path, Roles::Any);
    assert!(matches!(open(folder.path()), Err(PoliciesError::Folder(FolderError::Empty { .. }))));
    assert!(matches!(open(&folder.path().join("no")), Err(PoliciesError::Folder(FolderError::Unreadable { .. }))));
    std::fs::write(folder.path().join("a.yaml"), "version: 1\nversion: 2\n").unwrap();
    let Err(error @ PoliciesError::Mistakes(_)) = open(folder.path()) else { panic!("mistakes") };
    assert!(error.to_string().contains("a.yaml:2:1"), "{error}");
}

#[test]
fn the_roles_of_callers_are_those_of_the_identity_rules() {
    let with = |role: Option<RoleSource>| IdentityRules { role, ..IdentityRules::local() };
    assert_eq!(roles_of(None), Roles::Only(Vec::new()));
    assert_eq!(roles_of(Some(&with(None))), Roles::Only(Vec::new()));
    let of = |source: RoleSource| roles_of(Some(&with(Some(source))));
    assert_eq!(of(RoleSource::Const("user".to_owned())), Roles::Only(vec!["user".to_owned()]));
    assert_eq!(of(RoleSource::Header(http::HeaderName::from_static("x-role"))), Roles::Any);
    // Without agents everybody is the agent `local`; with them the role is one of their names.
    assert_eq!(of(RoleSource::Agent), Roles::Any);
    let agent = crate::agent::identity::AgentEntry {
        name: crate::base::id::Initiator::new("bot").unwrap(),
        token_sha256: crate::base::digest::Digest::of(b"x"),
        tenant: crate::base::id::Tenant::new("default").unwrap(),
        deliver_token: false,
    };
    let rules = IdentityRules { agents: vec![agent], ..with(Some(RoleSource::Agent)) };
    assert_eq!(roles_of(Some(&rules)), Roles::Only(vec!["bot".to_owned()]));
}

/// The first block of a document that begins with `first`.
fn block(document: &str, first: &str) -> String {
    let blocks = document.split("```").filter_map(|block| block.strip_prefix("yaml\n"));
    blocks.filter(|block| block.starts_with(first)).map(str::to_owned).next().unwrap()
}

#[test]
fn the_policy_of_the_readme_is_right() {
    let text = block(include_str!("../../../README.md"), "# orders/orders.yaml");
    let file = SourceFile { name: "orders/orders.yaml".to_owned(), text };
    let read = parse(&[file], &Machine::at(".".into()), &Roles::Any).map_err(|error| error.to_string()).unwrap();
    assert!(read.warnings.is_empty(), "{:?}", read.warnings);
    assert_eq!(read.set.services[0].tools.len(), 1);
}

#[test]
fn the_configuration_of_the_documentation_is_right() {
    let mut text = block(include_str!("../../../docs/operators.md"), "# countersign.yaml");
    for letter in ["a", "b"] {
        text = text.replacen("<digest>", &letter.repeat(64), 1);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("countersign.yaml");
    std::fs::write(&path, text).unwrap();
    let loaded = crate::ops::config::load(&path, crate::ops::config::Overrides::default());
    assert!(loaded.map_err(|error| error.to_string()).unwrap().warnings.is_empty());
}

#[tokio::test]
async fn a_change_of_the_folder_is_taken_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("notes.yaml"), policy("one")).unwrap();
    let policies = open(folder.path());
    let _watch = Watch::start(Arc::clone(&policies)).unwrap().unwrap();
    let version = || policies.in_force().load().version.clone();

    let before = version();
    std::fs::write(folder.path().join("notes.yaml"), policy("two")).unwrap();
    until("a written file", || version() != before).await;

    let before = version();
    std::fs::write(folder.path().join(".new"), policy("three")).unwrap();
    std::fs::rename(folder.path().join(".new"), folder.path().join("notes.yaml")).unwrap();
    until("a replaced file", || version() != before).await;

    std::fs::write(folder.path().join("notes.yaml"), "nonsense: [").unwrap();
    until("an error", || policies.report().last_error.is_some()).await;
}

#[tokio::test]
async fn swapped_links_are_taken_as_mounted_configuration_swaps_them() {
    let root = tempfile::tempdir().unwrap();
    for (name, title) in [("1", "one"), ("2", "two"), ("3", "three")] {
        std::fs::create_dir(root.path().join(name)).unwrap();
        std::fs::write(root.path().join(name).join("notes.yaml"), policy(title)).unwrap();
    }
    let swap = |link: &Path, to: &str| {
        let new = root.path().join("new-link");
        std::os::unix::fs::symlink(to, &new).unwrap();
        std::fs::rename(&new, link).unwrap();
    };

    // Links inside the folder: notes.yaml -> ..data/notes.yaml, ..data -> 1.
    let mounted = root.path().join("mounted");
    std::fs::create_dir(&mounted).unwrap();
    std::os::unix::fs::symlink("../1", mounted.join("..data")).unwrap();
    std::os::unix::fs::symlink("..data/notes.yaml", mounted.join("notes.yaml")).unwrap();
    // The folder itself is a link.
    let linked = root.path().join("linked");
    std::os::unix::fs::symlink("1", &linked).unwrap();

    for (folder, link, prefix) in [(&mounted, mounted.join("..data"), "../"), (&linked, linked.clone(), "")] {
        let policies = open(folder);
        let _watch = Watch::start(Arc::clone(&policies)).unwrap().unwrap();
        for to in ["2", "3", "1"] {
            let before = policies.in_force().load().version.clone();
            swap(&link, &format!("{prefix}{to}"));
            until("a swapped link", || policies.in_force().load().version != before).await;
        }
    }
}

#[tokio::test]
async fn a_folder_that_was_gone_is_watched_again() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("policies");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("notes.yaml"), policy("one")).unwrap();
    let policies = open(&folder);
    let _watch = Watch::start(Arc::clone(&policies)).unwrap().unwrap();
    let before = policies.in_force().load().version.clone();
    std::fs::remove_dir_all(&folder).unwrap();
    until("an error", || policies.report().last_error.is_some()).await;
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("notes.yaml"), policy("two")).unwrap();
    until("the new folder", || policies.in_force().load().version != before).await;
}
