//! A tool's schema: JSON Schema draft 2020-12, closed, without anything outside the file.
//!
//! Owns the check of args against it and the questions that other parts ask of it (which names
//! exist, which types a value may have). Must never repeat a value in a reason.

pub(super) mod closed;
pub(super) mod read;

use std::collections::BTreeSet;
use std::fmt;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, Validator};
use serde_json::{Map, Value};

use crate::base::refusal::FieldError;
use crate::call::args::Inexact;

use super::visible::{bounded, visible};

/// Most mistakes that one refusal lists.
const ERRORS_MAX: usize = 50;
/// Longest reason in characters.
const REASON_CHARS_MAX: usize = 300;
/// Largest compiled pattern in bytes.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// A compiled schema.
pub(super) struct Schema {
    root: Value,
    validator: Validator,
    /// Names of the top level, sorted.
    names: Vec<String>,
    /// Names of the top level that stand in the query unless a call says otherwise.
    in_query: Vec<String>,
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.root, f)
    }
}

/// One step from a value into it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// A member of an object.
    Key(String),
    /// Any item of a list.
    Item,
}

impl Schema {
    /// Compiles a schema whose keywords and references were checked.
    ///
    /// # Errors
    ///
    /// The JSON Pointer of the keyword that is wrong, and why.
    pub(super) fn compile(root: Value, in_query: Vec<String>) -> Result<Self, (String, String)> {
        let located = |pointer: String, error: &jsonschema::ValidationError<'_>| (pointer, error.to_string());
        if let Err(error) = jsonschema::draft202012::meta::validate(&root) {
            return Err(located(error.instance_path().to_string(), &error));
        }
        let built = jsonschema::draft202012::options()
            .should_validate_formats(true)
            .should_ignore_unknown_formats(false)
            .with_pattern_options(PatternOptions::regex().size_limit(PATTERN_BYTES_MAX))
            .build(&root);
        match built {
            Ok(validator) => {
                let mut schema = Self { root, validator, names: Vec::new(), in_query };
                let mut names: Vec<String> =
                    schema.in_place(&[&schema.root]).into_iter().flat_map(member_names).map(str::to_owned).collect();
                names.sort_unstable();
                names.dedup();
                schema.names = names;
                Ok(schema)
            }
            Err(error) => Err(located(error.instance_path().to_string(), &error)),
        }
    }

    pub(super) fn in_query(&self, name: &str) -> bool {
        self.in_query.iter().any(|known| known == name)
    }

    /// The names of the top level, in the order of the alphabet.
    pub(super) fn names(&self) -> Vec<&str> {
        self.names.iter().map(String::as_str).collect()
    }

    /// Whether the top level may have a member of this name.
    pub(super) fn has_name(&self, name: &str) -> bool {
        self.names.binary_search_by(|known| known.as_str().cmp(name)).is_ok()
    }

    pub(super) fn requires(&self, name: &str) -> bool {
        let required = self.root.get("required").and_then(Value::as_array);
        required.is_some_and(|names| names.iter().any(|known| known == name))
    }

    /// The schemas that a value at this path has to fit; empty if no value can be there.
    pub(super) fn at(&self, path: &[Step]) -> Vec<&Value> {
        let mut here = self.in_place(&[&self.root]);
        for step in path {
            let next: Vec<&Value> = here.iter().flat_map(|schema| below(schema, step)).collect();
            here = self.in_place(&next);
        }
        here
    }

    /// `schemas` and everything that applies to the same value: references and combinations.
    fn in_place<'s>(&'s self, schemas: &[&'s Value]) -> Vec<&'s Value> {
        let mut found: Vec<&Value> = Vec::new();
        let mut open: Vec<&Value> = schemas.to_vec();
        while let Some(schema) = open.pop() {
            if found.iter().any(|known| std::ptr::eq(*known, schema)) || *schema == Value::Bool(false) {
                continue;
            }
            found.push(schema);
            if let Some(target) = schema.get("$ref").and_then(Value::as_str).and_then(|r| resolve(&self.root, r)) {
                open.push(target);
            }
            for keyword in ["allOf", "anyOf", "oneOf"] {
                open.extend(schema.get(keyword).and_then(Value::as_array).into_iter().flatten());
            }
            open.extend(["if", "then", "else"].into_iter().filter_map(|keyword| schema.get(keyword)));
        }
        found
    }

    /// Everything that is wrong with `values`. Texts that came from path, query or form
    /// (`as_text`) are compared as the number or truth value that they spell, where the schema asks
    /// for one; what is sent does not change. A number whose text is not its double is compared
    /// with both neighbours too, so that no bound is passed by rounding.
    pub(super) fn errors(
        &self,
        values: &Map<String, Value>,
        as_text: impl Fn(&str) -> bool,
        inexact: &[Inexact],
    ) -> Vec<FieldError> {
        let mut instance = Map::with_capacity(values.len());
        let mut rounded = !inexact.is_empty();
        for (name, value) in values {
            let value = if as_text(name) {
                let spelled = self.spelled(value, &[Step::Key(name.clone())]);
                rounded |= spelled != *value;
                spelled
            } else {
                value.clone()
            };
            instance.insert(name.clone(), value);
        }
        let instance = Value::Object(instance);
        let mut errors = self.errors_of(&instance);
        if errors.is_empty() && rounded {
            let pointers: Vec<String> = if inexact.is_empty() {
                long_numbers(&instance)
            } else {
                inexact.iter().map(|number| number.pointer.clone()).chain(long_numbers(&instance)).collect()
            };
            for nudge in [f64::next_down, f64::next_up] {
                let mut nudged = instance.clone();
                pointers.iter().for_each(|pointer| shift(&mut nudged, pointer, nudge));
                if errors.is_empty() {
                    errors = self.errors_of(&nudged);
                }
            }
        }
        errors
    }

    fn errors_of(&self, instance: &Value) -> Vec<FieldError> {
        let errors = self.validator.iter_errors(instance).take(ERRORS_MAX);
        errors.map(|error| field_error(&error)).collect()
    }

    /// A text as the value that it spells, where the schema at `path` takes no text.
    fn spelled(&self, value: &Value, path: &[Step]) -> Value {
        let schemas = self.at(path);
        let takes = |kind: &str| schemas.iter().any(|schema| takes_type(schema, kind));
        match value {
            Value::String(_) if takes("string") => value.clone(),
            Value::String(text) if (takes("number") || takes("integer")) && is_number(text) => {
                serde_json::from_str(text).unwrap_or_else(|_| value.clone())
            }
            Value::String(text) if takes("boolean") && matches!(text.as_str(), "true" | "false") => {
                Value::Bool(text == "true")
            }
            Value::String(_) if takes("array") => Value::Array(vec![self.spelled(value, &item_of(path))]),
            Value::Array(items) => items.iter().map(|item| self.spelled(item, &item_of(path))).collect(),
            _ => value.clone(),
        }
    }
}

fn item_of(path: &[Step]) -> Vec<Step> {
    path.iter().cloned().chain([Step::Item]).collect()
}

fn is_number(text: &str) -> bool {
    text.starts_with(|c: char| c == '-' || c.is_ascii_digit())
        && matches!(serde_json::from_str(text), Ok(Value::Number(_)))
}

/// Whether the schema itself lets a value of this JSON type pass.
fn takes_type(schema: &Value, kind: &str) -> bool {
    match schema.get("type") {
        Some(Value::String(only)) => return only == kind,
        Some(Value::Array(many)) => return many.iter().any(|one| one == kind),
        _ => {}
    }
    let values = match (schema.get("const"), schema.get("enum")) {
        (Some(value), _) => std::slice::from_ref(value),
        (None, Some(Value::Array(values))) => values,
        _ => return false,
    };
    values.iter().any(|value| match value {
        Value::String(_) => kind == "string",
        Value::Number(_) => kind == "number",
        Value::Bool(_) => kind == "boolean",
        _ => false,
    })
}

fn member_names(schema: &Value) -> impl Iterator<Item = &str> {
    schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(|members| members.keys().map(String::as_str))
}

/// The schemas one step below, of this schema alone.
fn below<'s>(schema: &'s Value, step: &Step) -> Vec<&'s Value> {
    match step {
        Step::Key(name) => {
            let own = schema.get("properties").and_then(|members| members.get(name));
            let patterns = schema.get("patternProperties").and_then(Value::as_object).into_iter().flatten();
            own.into_iter().chain(patterns.filter(|(pattern, _)| fits(pattern, name)).map(|(_, below)| below)).collect()
        }
        Step::Item => {
            let first = schema.get("prefixItems").and_then(Value::as_array).into_iter().flatten();
            first.chain(schema.get("items")).collect()
        }
    }
}

/// Whether `pattern` fits `name`; asked only while policies are read, since the top level has no
/// patterns.
fn fits(pattern: &str, name: &str) -> bool {
    let probe = serde_json::json!({"type": "string", "pattern": pattern});
    let built = jsonschema::draft202012::options().with_pattern_options(PatternOptions::regex()).build(&probe);
    built.is_ok_and(|validator| validator.is_valid(&Value::String(name.to_owned())))
}

/// The target of a reference into the same schema.
pub(super) fn resolve<'s>(root: &'s Value, reference: &str) -> Option<&'s Value> {
    root.pointer(reference.strip_prefix('#')?)
}

/// Pointers of the numbers with so many digits that their text may not be their double.
fn long_numbers(instance: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![(String::new(), instance)];
    while let Some((pointer, value)) = open.pop() {
        match value {
            Value::Number(number) if number.is_f64() => found.push(pointer),
            Value::Array(items) => {
                open.extend(items.iter().enumerate().map(|(index, item)| (format!("{pointer}/{index}"), item)));
            }
            Value::Object(members) => {
                open.extend(members.iter().map(|(name, member)| (child(&pointer, name), member)));
            }
            _ => {}
        }
    }
    found
}

fn shift(instance: &mut Value, pointer: &str, nudge: fn(f64) -> f64) {
    if let Some(slot) = instance.pointer_mut(pointer) {
        // Integers that JSON keeps exactly are not rounded; there is nothing to nudge.
        if let Some(value) = slot.as_f64().filter(|_| !slot.is_i64() && !slot.is_u64()) {
            *slot = Value::from(nudge(value));
        }
    }
}

/// `pointer` with one more reference token.
pub(super) fn child(pointer: &str, name: &str) -> String {
    format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"))
}

fn field_error(error: &jsonschema::ValidationError<'_>) -> FieldError {
    let at = error.instance_path().to_string();
    let (pointer, reason) = match error.kind() {
        ValidationErrorKind::Required { property } => {
            (child(&at, property.as_str().unwrap_or_default()), "is required".to_owned())
        }
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            let name = unexpected.first().map_or("", String::as_str);
            (child(&at, name), "is not a name that this object has".to_owned())
        }
        ValidationErrorKind::FalseSchema => (at, "may not be there".to_owned()),
        ValidationErrorKind::OneOfNotValid { .. } | ValidationErrorKind::AnyOf { .. } => {
            (at, "fits none of the forms that the schema allows".to_owned())
        }
        ValidationErrorKind::OneOfMultipleValid { .. } => (at, "fits more than one form, and must fit one".to_owned()),
        ValidationErrorKind::Pattern { .. } => (at, "does not fit the pattern".to_owned()),
        _ => (at, error.masked_with("the value").to_string()),
    };
    FieldError { pointer: visible(&pointer), reason: visible(&bounded(reason, REASON_CHARS_MAX)) }
}

/// Names in the order of the alphabet, for messages.
pub(super) fn listed(names: &[&str]) -> String {
    let unique: BTreeSet<&str> = names.iter().copied().collect();
    unique.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
