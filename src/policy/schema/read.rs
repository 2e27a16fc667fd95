//! Reads a schema out of a policy file.
//!
//! Owns the list of keywords: one that is not in it is a mistake, since a misspelt keyword would
//! check nothing. Must never load anything from outside the file.

use super::super::diagnostic::nearest;
use super::super::read::File;
use super::super::yaml::{Entry, Kind, Node, Place, Typed};
use super::closed::{endless, open_places};
use super::{Schema, resolve};

/// Keywords whose value is a schema.
const SCHEMA: &[&str] = &[
    "additionalProperties",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Keywords whose value is a list of schemas.
const SCHEMAS: &[&str] = &["allOf", "anyOf", "oneOf", "prefixItems"];
/// Keywords whose value maps names to schemas.
const NAMED: &[&str] = &["$defs", "dependentSchemas", "patternProperties", "properties"];
/// Keywords whose value is data.
const DATA: &[&str] = &[
    "$comment",
    "const",
    "dependentRequired",
    "deprecated",
    "description",
    "enum",
    "examples",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "maxContains",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minContains",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "pattern",
    "readOnly",
    "required",
    "title",
    "type",
    "uniqueItems",
    "writeOnly",
];

/// Reads and compiles; a write's schema has to be closed.
pub(in crate::policy) fn read(file: &File<'_>, node: &Node, write: bool) -> Option<Schema> {
    let entries = file.map(node, "`schema`")?;
    let mut in_query = Vec::new();
    let before = file.has_errors();
    walk(file, node, Spot::Root);
    for entry in entries.iter().filter(|entry| entry.key == "properties") {
        for member in file.map(&entry.value, "`properties`").into_iter().flatten() {
            if let Some(place) = value_of(&member.value, "in") {
                in_query.extend(stands_in(file, place, &member.key));
            }
        }
    }
    let json = without_in(file.json(node));
    if json.get("type").and_then(|kind| kind.as_str()) != Some("object") {
        file.error_with(node.place, "args are an object", "write `type: object` at the top of the schema");
        return None;
    }
    for entry in entries.iter().filter(|entry| entry.key == "patternProperties") {
        file.error_with(entry.place, "args have names of their own", "write them under `properties`");
    }
    check_references(file, node, node, &json);
    if let Some(pointer) = endless(&json) {
        file.error(place_of(node, &pointer), "this schema refers to itself and to nothing else");
        return None;
    }
    if write {
        for open in open_places(&json) {
            let message = format!("a write's schema must be closed: {}", open.reason);
            file.error_with(place_of(node, &open.pointer), message, open.hint);
        }
    }
    match Schema::compile(json, in_query) {
        Ok(schema) => Some(schema),
        // A misspelt keyword was reported at its place already.
        Err(_) if !before && file.has_errors() => None,
        Err((pointer, why)) => {
            file.error(place_of(node, &pointer), format!("this is not a JSON Schema of draft 2020-12: {why}"));
            None
        }
    }
}

/// Where a schema stands; `in` is ours and belongs to the args themselves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spot {
    Root,
    Arg,
    Below,
}

fn walk(file: &File<'_>, node: &Node, spot: Spot) {
    let entries = match &node.kind {
        Kind::Map(entries) => entries,
        Kind::Refused => return,
        Kind::Scalar(scalar) if matches!(scalar.typed(), Typed::Bool(_)) => return,
        _ => {
            file.error(node.place, "a schema is a mapping, `true` or `false`");
            return;
        }
    };
    for entry in entries {
        keyword(file, entry, spot);
    }
}

fn keyword(file: &File<'_>, entry: &Entry, spot: Spot) {
    let key = entry.key.as_str();
    if SCHEMA.contains(&key) {
        return walk(file, &entry.value, Spot::Below);
    }
    if SCHEMAS.contains(&key) {
        let items = file.list(&entry.value, &format!("`{key}`")).into_iter().flatten();
        return items.for_each(|item| walk(file, item, Spot::Below));
    }
    if NAMED.contains(&key) {
        let below = if spot == Spot::Root && key == "properties" { Spot::Arg } else { Spot::Below };
        let members = file.map(&entry.value, &format!("`{key}`")).into_iter().flatten();
        return members.for_each(|member| walk(file, &member.value, below));
    }
    if DATA.contains(&key) || key == "$ref" {
        return;
    }
    match key {
        "in" if spot == Spot::Arg => {}
        "in" => file.error(entry.place, "`in` belongs to the args themselves, directly under `properties`"),
        "contentEncoding" | "contentMediaType" | "contentSchema" => {
            file.error(entry.place, format!("`{key}` would check nothing; use `pattern` or `maxLength`"));
        }
        "default" => file.warn(
            entry.place,
            "`default` in a schema is a remark and changes nothing",
            "to fill a value in, write `prepare: [{field: NAME, default: VALUE}]`",
        ),
        "$schema" => {
            let draft = matches!(&entry.value.kind, Kind::Scalar(s) if s.text.contains("2020-12"));
            if !draft {
                file.error(entry.value.place, "schemas here are of draft 2020-12");
            }
        }
        "$id" | "$anchor" | "$dynamicAnchor" | "$dynamicRef" | "$recursiveRef" | "$recursiveAnchor" | "$vocabulary" => {
            let hint = "put it under `$defs` and refer to it by `$ref: \"#/$defs/NAME\"`";
            file.error_with(entry.place, format!("a schema here has no `{key}`"), hint);
        }
        "definitions" => {
            file.error_with(entry.place, "a schema has no `definitions`", "draft 2020-12 calls it `$defs`")
        }
        "nullable" => {
            file.error_with(entry.place, "a schema has no `nullable`", "write `type: [string, \"null\"]`");
        }
        _ => {
            let known = SCHEMA.iter().chain(SCHEMAS).chain(NAMED).chain(DATA).copied().chain(["$ref"]);
            let hint = nearest(key, known).map_or_else(
                || "an unknown keyword would check nothing".to_owned(),
                |near| format!("did you mean `{near}`?"),
            );
            file.error_with(entry.place, format!("`{key}` is not a keyword of JSON Schema"), hint);
        }
    }
}

/// The name, if `in: query`; `in: body` is the default.
fn stands_in(file: &File<'_>, node: &Node, name: &str) -> Option<String> {
    let query = file.choice(node, "`in`", &[("query", true), ("body", false)], &[])?;
    query.then(|| name.to_owned())
}

/// The JSON without our own `in`, which belongs to members of the top level only.
fn without_in(mut json: serde_json::Value) -> serde_json::Value {
    let members = json.get_mut("properties").and_then(serde_json::Value::as_object_mut);
    for member in members.into_iter().flat_map(|members| members.values_mut()) {
        if let Some(member) = member.as_object_mut() {
            member.remove("in");
        }
    }
    json
}

fn check_references(file: &File<'_>, root: &Node, node: &Node, json: &serde_json::Value) {
    match &node.kind {
        Kind::Map(entries) => {
            for entry in entries {
                if entry.key == "$ref" {
                    check_reference(file, root, &entry.value, json);
                } else if !matches!(entry.key.as_str(), "const" | "enum" | "examples" | "default") {
                    check_references(file, root, &entry.value, json);
                }
            }
        }
        Kind::List(items) => items.iter().for_each(|item| check_references(file, root, item, json)),
        _ => {}
    }
}

fn check_reference(file: &File<'_>, root: &Node, node: &Node, json: &serde_json::Value) {
    let Some(reference) = file.literal(node, "`$ref`") else { return };
    if !reference.starts_with('#') {
        let hint = "copy what you need under `$defs`; a policy file stands alone";
        return file.error_with(node.place, "a reference must stay inside its schema", hint);
    }
    let target = resolve(json, reference).is_some_and(|target| target.is_object() || target.is_boolean());
    if !target || reference.contains('%') {
        let names: Vec<&str> = value_of(root, "$defs").map(keys_of).unwrap_or_default();
        let hint = match nearest(reference.rsplit('/').next().unwrap_or_default(), names.iter().copied()) {
            Some(near) => format!("did you mean `#/$defs/{near}`?"),
            None => format!("there are: {}", super::listed(&names)),
        };
        file.error_with(node.place, format!("`{reference}` refers to nothing"), hint);
    }
}

fn keys_of(node: &Node) -> Vec<&str> {
    match &node.kind {
        Kind::Map(entries) => entries.iter().map(|entry| entry.key.as_str()).collect(),
        _ => Vec::new(),
    }
}

fn value_of<'n>(node: &'n Node, key: &str) -> Option<&'n Node> {
    match &node.kind {
        Kind::Map(entries) => entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value),
        _ => None,
    }
}

/// The place of what a JSON Pointer into `node` names, or of the last part of it that exists.
pub(in crate::policy) fn place_of(node: &Node, pointer: &str) -> Place {
    let mut here = node;
    let mut place = node.place;
    for token in pointer.split('/').skip(1) {
        let token = token.replace("~1", "/").replace("~0", "~");
        let next = match &here.kind {
            Kind::Map(entries) => {
                entries.iter().find(|entry| entry.key == token).map(|entry| (&entry.value, entry.place))
            }
            Kind::List(items) => token.parse().ok().and_then(|index: usize| items.get(index)).map(|n| (n, n.place)),
            _ => None,
        };
        let Some((next, at)) = next else { break };
        (here, place) = (next, at);
    }
    place
}
