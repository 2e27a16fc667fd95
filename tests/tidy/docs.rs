//! Holds the documentation against the code: links and anchors resolve, and what a page lists is what
//! there is, in both directions.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{files, metric_names, none, read, root, shown};

fn pages() -> Vec<PathBuf> {
    let mut pages = files("docs", "md");
    pages.extend(["README.md", "CHANGELOG.md"].map(|name| root().join(name)));
    pages
}

/// The lines of a page that are not inside a fence, with their numbers.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            lines.push((number + 1, line));
        }
    }
    lines
}

/// A line without its inline code.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("``")
}

/// The inline codes of a line.
fn codes(line: &str) -> Vec<&str> {
    line.split('`').skip(1).step_by(2).collect()
}

/// The anchors that a page's headings get where pages are shown: lower case, blanks as hyphens,
/// letters, numbers, hyphens and underscores kept, repeated ones numbered.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    for (_, line) in prose(text) {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let kept = title.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let slug: String = kept.collect::<String>().to_lowercase().replace(' ', "-");
        let before = seen.entry(slug.clone()).or_default();
        anchors.insert(if *before == 0 { slug } else { format!("{slug}-{before}") });
        *before += 1;
    }
    anchors
}

/// The targets of the links of a line, `[text](target)`.
fn targets(line: &str) -> Vec<String> {
    let line = without_code(line);
    let after = |part: &str| part.split(')').next().unwrap_or_default().trim().to_owned();
    line.split("](").skip(1).map(after).collect()
}

fn broken(page: &Path, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
    let path = if file.is_empty() { page.to_path_buf() } else { page.parent().expect("a folder").join(file) };
    if !path.exists() {
        return Some("there is no such file".to_owned());
    }
    let anchor = anchor?;
    let known = anchors(&read(&path));
    (!known.contains(anchor)).then(|| format!("there is no such heading; there are: {known:?}"))
}

#[test]
fn every_link_and_anchor_resolves() {
    let mut mistakes = Vec::new();
    let mut links = 0;
    for page in pages() {
        for (number, line) in prose(&read(&page)) {
            for target in targets(line) {
                links += 1;
                mistakes
                    .extend(broken(&page, &target).map(|why| format!("{}:{number}: {target}: {why}", shown(&page))));
            }
        }
    }
    assert!(links > 5, "the reader finds links: {links}");
    none(mistakes);
}

#[test]
fn the_reader_of_pages_reads_what_it_should() {
    let page = "# A `b` c: d?\n```\n# no\n[x](no.md)\n```\n## Same\n## Same\n[y](z.md#same-1) and `[n](o.md)`\n";
    assert_eq!(anchors(page), ["a-b-c-d", "same", "same-1"].map(str::to_owned).into());
    let found: Vec<String> = prose(page).into_iter().flat_map(|(_, line)| targets(line)).collect();
    assert_eq!(found, ["z.md#same-1"]);
    let readme = root().join("README.md");
    assert_eq!(broken(&readme, "docs/operators.md#configuration"), None);
    assert!(broken(&readme, "docs/nowhere.md").is_some() && broken(&readme, "docs/operators.md#nowhere").is_some());
}

/// The part of a page from one heading up to another.
fn section<'t>(text: &'t str, from: &str, to: &str) -> &'t str {
    let start = text.find(&format!("\n{from}\n")).unwrap_or_else(|| panic!("no heading {from}"));
    let end = text[start..].find(&format!("\n{to}\n")).unwrap_or_else(|| panic!("no heading {to} after {from}"));
    &text[start..start + end]
}

/// The codes in the first cells of tables whose own first cell says `key…`, with what that says.
fn keys_listed(text: &str) -> Vec<(String, String)> {
    let mut keys = Vec::new();
    let mut head = String::new();
    for (_, line) in prose(text) {
        let Some(row) = line.strip_prefix("| ") else {
            head.clear();
            continue;
        };
        let first = row.split(" |").next().unwrap_or_default();
        if head.is_empty() {
            head = first.to_owned();
        } else if head.starts_with("key") {
            keys.extend(codes(first).into_iter().map(|code| (head.clone(), code.to_owned())));
        }
    }
    keys
}

/// The keys of a JSON Schema, dotted; items of a list have their list's name with `[]` behind it.
fn schema_keys(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    for (name, value) in schema["properties"].as_object().into_iter().flatten() {
        let key = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let before = found.len();
        schema_keys(value, &key, found);
        if found.len() == before {
            found.insert(key);
        }
    }
    if !schema["items"].is_null() {
        schema_keys(&schema["items"], &format!("{path}[]"), found);
    }
}

#[test]
fn the_configurations_keys_are_those_of_the_page() {
    let page = read(&root().join("docs/operators.md"));
    let part = section(&page, "## Configuration", "## Listeners");
    let schema: Value = serde_json::from_str(countersign::ops::config::SCHEMA).expect("a schema");
    let mut known = BTreeSet::new();
    schema_keys(&schema, "", &mut known);
    assert!(known.len() > 40, "{known:?}");
    let listed: BTreeSet<String> = keys_listed(part)
        .into_iter()
        .map(|(head, key)| if head.contains("`identity`") { format!("identity.{key}") } else { key })
        .collect();
    // `act_for_owners: true` tells of its key, too.
    let prose_codes: BTreeSet<&str> = part.lines().flat_map(codes).filter_map(|code| code.split(':').next()).collect();
    let mut mistakes = Vec::new();
    for key in &known {
        // What stands in lists of mappings is told in sentences.
        let told = match key.rsplit_once("[].") {
            Some((_, inside)) => prose_codes.contains(inside.rsplit('.').next().expect("a name")),
            None => listed.contains(key),
        };
        if !told {
            mistakes.push(format!("docs/operators.md: nothing about `{key}`"));
        }
    }
    // A section of its own, `identity` say, is told in a table of its own.
    let begins = |own: &str, key: &str| own.starts_with(&format!("{key}.")) || own.starts_with(&format!("{key}[]."));
    let is_known = |key: &str| known.iter().any(|own| own == key || begins(own, key));
    let unknown = listed.iter().filter(|key| !is_known(key));
    mistakes.extend(unknown.map(|key| format!("docs/operators.md: `{key}` is no key")));
    none(mistakes);
}

/// The lists of `src/policy/keys.rs`: what this version knows, and what a later one will.
fn policy_keys() -> (BTreeSet<String>, BTreeSet<String>) {
    let text = read(&root().join("src/policy/keys.rs"));
    let table = text.split_once("\nkeys! {").expect("the table").1.split("\n}").next().expect("its end");
    let (mut known, mut later) = (BTreeSet::new(), BTreeSet::new());
    for mapping in table.split(';') {
        let lists: Vec<&str> = mapping.split('[').skip(1).map(|rest| rest.split(']').next().expect("a list")).collect();
        let words = |list: &str| list.split('"').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
        if let [own, of_later] = lists[..] {
            known.extend(words(own));
            later.extend(words(of_later));
        }
    }
    (known, later)
}

#[test]
fn the_policy_keys_are_those_of_the_page() {
    let page = read(&root().join("docs/policies.md"));
    let (known, later) = policy_keys();
    assert!(known.len() > 50 && later.len() > 20, "{known:?} {later:?}");
    let mut words: BTreeSet<&str> = BTreeSet::new();
    let mut fenced = false;
    for line in page.lines() {
        fenced ^= line.trim_start().starts_with("```");
        let code = if fenced { vec![line] } else { codes(line) };
        words.extend(code.iter().flat_map(|code| code.split(|c: char| !(c.is_ascii_lowercase() || c == '_'))));
    }
    let mut mistakes: Vec<String> = known
        .iter()
        .filter(|key| !words.contains(key.as_str()))
        .map(|key| format!("docs/policies.md: nothing about `{key}`"))
        .collect();
    for (_, listed) in keys_listed(&page) {
        let key = listed.split(':').next().unwrap_or_default();
        if !known.contains(key) {
            mistakes.push(format!("docs/policies.md: `{key}` is no key of this version"));
        }
    }
    none(mistakes);
}

#[test]
fn the_problems_of_the_page_are_those_of_the_code() {
    let page = read(&root().join("docs/http-api.md"));
    let (_, part) = page.split_once("\n## Problems\n").expect("the section");
    let rows = prose(part).into_iter().filter_map(|(_, line)| line.strip_prefix("| `"));
    let listed: Vec<&str> =
        rows.filter_map(|row| row.split('`').next()).filter(|code| *code == code.to_uppercase()).collect();
    assert!(listed.len() > 30, "{listed:?}");
    let known = |code: &str| countersign::base::code::Code::parse(code).is_some();
    let unknown = listed.iter().filter(|code| !known(code));
    let mut mistakes: Vec<String> = unknown.map(|code| format!("docs/http-api.md: `{code}` is no code")).collect();
    let mut once = BTreeSet::new();
    mistakes.extend(
        listed.iter().filter(|code| !once.insert(**code)).map(|code| format!("docs/http-api.md: `{code}` twice")),
    );
    none(mistakes);
}

#[test]
fn the_metrics_of_the_page_are_those_of_the_code() {
    let known = metric_names();
    let mut mistakes = Vec::new();
    for page in pages() {
        for (number, line) in prose(&read(&page)) {
            for code in codes(line).into_iter().filter(|code| code.starts_with("countersign_")) {
                let name = code.split('{').next().unwrap_or_default();
                if !known.contains_key(name) {
                    mistakes.push(format!("{}:{number}: `{name}` is no metric", shown(&page)));
                }
            }
        }
    }
    none(mistakes);
}
