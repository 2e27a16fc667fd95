//! Reads `args`: schema, aliases and steps of preparation.

use std::sync::Arc;

use super::super::keys;
use super::super::prepare::{ArgsRules, Step};
use super::super::read::{Fields, File};
use super::super::schema::Schema;
use super::super::schema::read as schema_read;
use super::super::yaml::{Entry, Kind, Node, Typed};
use super::rules::hint_of;

/// What of a tool decides which steps are possible.
pub(super) struct Around<'a> {
    pub(super) params: Vec<&'a str>,
    pub(super) methods: &'a [String],
    pub(super) content_types: &'a [String],
}

pub(super) fn read(file: &File<'_>, node: &Node, around: &Around<'_>) -> Option<ArgsRules> {
    let fields = Fields::open(file, node, &keys::ARGS)?;
    let schema_node = fields.require(file, &keys::ARGS, "schema");
    let schema = schema_node.and_then(|node| schema_read::read(file, node, true));
    if let (Some(schema), Some(node)) = (&schema, schema_node) {
        for param in around.params.iter().filter(|param| !schema.has_name(param)) {
            let message =
                format!("the path has `{{{param}}}`, and the schema has no `{param}`: every call would be refused");
            file.error_with(node.place, message, format!("add it: {param}: {{type: string}}"));
        }
    }
    let aliases =
        fields.get("aliases").map(|node| read_aliases(file, node, schema.as_ref(), around)).unwrap_or_default();
    let steps = fields.get("prepare").map(|node| read_steps(file, node, schema.as_ref(), around)).unwrap_or_default();
    let rewrites = !aliases.is_empty() || steps.iter().any(rewrites);
    if rewrites && around.content_types.iter().any(|media| media == "multipart/form-data") {
        file.error_with(
            fields.place,
            "this version does not rewrite multipart bodies",
            "take multipart/form-data out of `content_types`, or the aliases and steps out of `args`",
        );
    }
    Some(ArgsRules { aliases, schema: Arc::new(schema?), steps })
}

fn rewrites(step: &Step) -> bool {
    step.trim || step.nfc || !step.map.is_empty() || step.default.is_some()
}

fn read_aliases(file: &File<'_>, node: &Node, schema: Option<&Schema>, around: &Around<'_>) -> Vec<(String, String)> {
    let mut aliases = Vec::new();
    for Entry { key, place, value } in file.map(node, "`aliases`").into_iter().flatten() {
        let Some(target) = file.literal(value, "an alias") else { continue };
        let Some(schema) = schema else { continue };
        if schema.has_name(key) {
            file.error(*place, format!("`{key}` is an arg of its own, so it cannot be another name of `{target}`"));
        } else if !schema.has_name(target) {
            let hint = hint_of(target, &schema.names());
            file.error_with(value.place, format!("the schema has no `{target}`"), hint);
        } else if around.params.contains(&target) {
            file.error(value.place, format!("`{target}` stands in the path, which is never rewritten"));
        } else {
            aliases.push((key.clone(), target.to_owned()));
        }
    }
    aliases
}

fn read_steps(file: &File<'_>, node: &Node, schema: Option<&Schema>, around: &Around<'_>) -> Vec<Step> {
    let items = file.list(node, "`prepare`").into_iter().flatten();
    items.filter_map(|item| read_step(file, item, schema, around)).collect()
}

fn read_step(file: &File<'_>, node: &Node, schema: Option<&Schema>, around: &Around<'_>) -> Option<Step> {
    let fields = Fields::open(file, node, &keys::PREPARE)?;
    // A step that is a hook has no field; it was reported as a whole.
    if fields.get("hook").is_some() {
        return None;
    }
    let field_node = fields.require(file, &keys::PREPARE, "field")?;
    let field = file.literal(field_node, "`field`")?.to_owned();
    let flag = |key: &str| fields.get(key).and_then(|node| file.boolean(node, &format!("`{key}`"))).unwrap_or(false);
    let step = Step {
        trim: flag("trim"),
        nfc: flag("nfc"),
        non_empty: fields.get("non_empty").and_then(|node| read_code(file, node)),
        map: fields.get("map").map(|node| read_map(file, node)).unwrap_or_default(),
        default: fields.get("default").map(|node| file.json(node)),
        field,
    };
    let schema = schema?;
    let field = step.field.as_str();
    if !schema.has_name(field) {
        file.error_with(field_node.place, format!("the schema has no `{field}`"), hint_of(field, &schema.names()));
        return None;
    }
    if around.params.contains(&field) && rewrites(&step) {
        let hint = "`non_empty` is all that can be asked of it here; the schema can ask more";
        file.error_with(field_node.place, format!("`{field}` stands in the path, which is never rewritten"), hint);
        return None;
    }
    let bodiless = around.methods.iter().find(|method| matches!(method.as_str(), "GET" | "HEAD" | "OPTIONS"));
    if let (Some(method), Some(_), false) = (bodiless, &step.default, schema.in_query(field)) {
        let hint = format!("write `in: query` beside the type of `{field}` in the schema");
        file.error_with(field_node.place, format!("a {method} has no body that the default could go to"), hint);
    }
    Some(step)
}

/// A code of the policy's own, as it stands in a problem document.
fn read_code(file: &File<'_>, node: &Node) -> Option<String> {
    let code = file.literal(node, "a code")?;
    let legal = code.len() <= 64
        && code.starts_with(|c: char| c.is_ascii_uppercase())
        && code.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
    if !legal {
        let hint = "up to 64 capital letters, digits and underscores: TITLE_REQUIRED";
        file.error_with(node.place, "this is not a code", hint);
        return None;
    }
    if crate::base::code::Code::parse(code).is_some() {
        let hint = "choose a name of your own, so that callers can tell them apart";
        file.error_with(node.place, format!("`{code}` is a code of the guard's"), hint);
        return None;
    }
    Some(code.to_owned())
}

fn read_map(file: &File<'_>, node: &Node) -> Vec<(String, serde_json::Value)> {
    let mut map = Vec::new();
    for entry in file.map(node, "`map`").into_iter().flatten() {
        match &entry.value.kind {
            Kind::Scalar(scalar) if scalar.typed() != Typed::Null => {
                map.push((entry.key.clone(), super::super::read::scalar_json(scalar)));
            }
            Kind::Refused => {}
            _ => file.error(entry.value.place, "a text is mapped to one text, number or truth value"),
        }
    }
    map
}
