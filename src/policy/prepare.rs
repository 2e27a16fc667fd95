//! From the args that an agent sent to the args that will be sent: aliases, closed names, the
//! policy's own steps, the schema, in this order.
//!
//! Owns that order and the record of what changed. Must never change a value that no step names,
//! and never repeat a value in a refusal.

use std::sync::Arc;

use serde_json::{Map, Value};
use unicode_normalization::UnicodeNormalization as _;

use crate::base::code::Code;
use crate::base::refusal::{FieldError, Refusal};
use crate::call::args::{Args, Place};
use crate::draft::record::BodyKind;

use super::diagnostic::nearest;
use super::rewrite::{Changes, Fate, as_text};
use super::schema::{Schema, child};
use super::visible::visible;

/// How a tool's args are understood, checked and prepared.
#[derive(Debug, Clone)]
pub struct ArgsRules {
    /// Other names of args: alias and target.
    pub(super) aliases: Vec<(String, String)>,
    /// What the args must be.
    pub(super) schema: Arc<Schema>,
    /// What is done to them, in order.
    pub(super) steps: Vec<Step>,
}

/// What is done to one arg, in the order of the fields.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Step {
    pub(super) field: String,
    pub(super) trim: bool,
    pub(super) nfc: bool,
    /// The policy's code for an empty value.
    pub(super) non_empty: Option<String>,
    /// Values by the text that stands for them.
    pub(super) map: Vec<(String, Value)>,
    pub(super) default: Option<Value>,
}

/// Args as they will be sent, and what changed on the way.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PreparedArgs {
    pub(super) values: Map<String, Value>,
    pub(super) changes: Changes,
}

impl ArgsRules {
    /// `name` and everything that an agent may write for it.
    pub fn spellings<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let aliases = self.aliases.iter().filter(move |(_, target)| target == name).map(|(alias, _)| alias.as_str());
        std::iter::once(name).chain(aliases)
    }

    /// Prepares and checks `values`, which were taken from `args`.
    ///
    /// # Errors
    ///
    /// 422 `ARGS_INVALID`, or with the policy's own code, with a pointer and a reason per mistake.
    pub(super) fn prepare(
        &self,
        values: Map<String, Value>,
        args: &Args,
        kind: BodyKind,
    ) -> Result<PreparedArgs, Refusal> {
        let mut work = Work { values, sent_as: Vec::new(), changes: Changes::default() };
        self.resolve_aliases(&mut work)?;
        self.close_names(&work.values)?;
        for step in &self.steps {
            self.run(step, args, kind, &mut work)?;
        }
        let text = |name: &str| {
            let sent = work.sent_as.iter().find(|(to, _)| to == name).map_or(name, |(_, from)| from);
            match args.places.get(sent) {
                Some(Place::Path | Place::Query) => true,
                Some(Place::Body) => matches!(kind, BodyKind::Form | BodyKind::Multipart),
                None => self.added_as_text(name, kind),
            }
        };
        let errors = self.schema.errors(&work.values, text, &args.inexact);
        if !errors.is_empty() {
            return Err(invalid("The args do not fit the tool's schema.", errors));
        }
        Ok(PreparedArgs { values: work.values, changes: work.changes })
    }

    /// Whether an added arg stands in a query or a form, so that it is a text.
    fn added_as_text(&self, name: &str, kind: BodyKind) -> bool {
        self.schema.in_query(name) || matches!(kind, BodyKind::Form | BodyKind::Multipart)
    }

    /// The schema's mistakes with prepared args, for a draft that is judged again.
    pub(super) fn still_fits(
        &self,
        values: &Map<String, Value>,
        kind: BodyKind,
        in_body: impl Fn(&str) -> bool,
    ) -> bool {
        let text = |name: &str| !in_body(name) || matches!(kind, BodyKind::Form | BodyKind::Multipart);
        self.schema.errors(values, text, &[]).is_empty()
    }

    fn resolve_aliases(&self, work: &mut Work) -> Result<(), Refusal> {
        let mut errors = Vec::new();
        for (alias, target) in &self.aliases {
            let Some(value) = work.values.remove(alias) else { continue };
            match work.values.get(target) {
                Some(other) if *other == value => {
                    work.changes.fates.insert(alias.clone(), Fate::Removed);
                }
                Some(_) => {
                    let reason = format!("stands beside `{target}`, which it is another name of, with another value");
                    errors.push(FieldError { pointer: child("", alias), reason });
                }
                None => {
                    work.changes.fates.insert(alias.clone(), Fate::Changed { name: target.clone(), value: None });
                    work.sent_as.push((target.clone(), alias.clone()));
                    work.values.insert(target.clone(), value);
                }
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(invalid("An arg was given twice, with two values.", errors)) }
    }

    fn close_names(&self, values: &Map<String, Value>) -> Result<(), Refusal> {
        if values.keys().all(|name| self.schema.has_name(name)) {
            return Ok(());
        }
        let known = self.schema.names();
        let aliases = self.aliases.iter().map(|(alias, _)| alias.as_str());
        let unknown = values.keys().filter(|name| !self.schema.has_name(name));
        let errors: Vec<FieldError> = unknown
            .take(50)
            .map(|name| FieldError {
                pointer: visible(&child("", name)),
                reason: match nearest(name, known.iter().copied().chain(aliases.clone())) {
                    Some(near) => format!("is not an arg of this tool; did you mean `{near}`?"),
                    None => "is not an arg of this tool".to_owned(),
                },
            })
            .collect();
        // What clients send when nobody tells them the type of a body.
        let json_as_form = values.keys().any(|name| name.trim_start().starts_with('{'));
        let what = if json_as_form {
            "The tool has no such arg. The body looks like JSON and came as a form: send it with the header Content-Type: \
             application/json."
        } else {
            "The tool has no such arg."
        };
        Err(invalid(what, errors))
    }

    fn run(&self, step: &Step, args: &Args, kind: BodyKind, work: &mut Work) -> Result<(), Refusal> {
        let field = &step.field;
        let Some(before) = work.values.get(field).cloned() else {
            let missing = step.non_empty.as_ref().filter(|_| step.default.is_none() && self.schema.requires(field));
            if let Some(code) = missing {
                return Err(coded(code, field, "is required"));
            }
            if let Some(value) = &step.default {
                let value = if self.added_as_text(field, kind) { Value::String(as_text(value)) } else { value.clone() };
                work.values.insert(field.clone(), value.clone());
                work.changes.added.push((field.clone(), value));
            }
            return Ok(());
        };
        let mut after = before.clone();
        if let Value::String(text) = &mut after {
            if step.trim {
                *text = text.trim().to_owned();
            }
            if step.nfc {
                *text = text.nfc().collect();
            }
        }
        if let Some(code) = step.non_empty.as_ref().filter(|_| is_empty(&after)) {
            return Err(coded(code, field, "is empty"));
        }
        let mapped = match &after {
            Value::String(text) => step.map.iter().find(|(from, _)| from == text).map(|(_, to)| to.clone()),
            _ => None,
        };
        if let Some(value) = mapped {
            let sent = work.sent_as.iter().find(|(to, _)| to == field).map_or(field, |(_, from)| from);
            let text = match args.places.get(sent) {
                Some(Place::Body) | None => self.added_as_text(field, kind),
                Some(_) => true,
            };
            after = if text { Value::String(as_text(&value)) } else { value };
        }
        if after != before {
            work.change(field, after);
        }
        Ok(())
    }
}

struct Work {
    values: Map<String, Value>,
    /// Target and alias of the args that came under another name.
    sent_as: Vec<(String, String)>,
    changes: Changes,
}

impl Work {
    fn change(&mut self, field: &str, value: Value) {
        self.values.insert(field.to_owned(), value.clone());
        if let Some((_, added)) = self.changes.added.iter_mut().find(|(name, _)| name == field) {
            *added = value;
            return;
        }
        // The same value may stand under its alias too; both are found by the name that was sent.
        let sent = self.sent_as.iter().find(|(to, _)| to == field).map_or(field, |(_, from)| from).to_owned();
        self.changes.fates.insert(sent, Fate::Changed { name: field.to_owned(), value: Some(value) });
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

fn invalid(what: &str, errors: Vec<FieldError>) -> Refusal {
    let mut refusal = Refusal::new(
        Code::ArgsInvalid,
        format!("{what} Nothing was sent and nothing is held; correct the args and call again."),
    );
    refusal.errors = errors;
    refusal
}

fn coded(code: &str, field: &str, reason: &str) -> Refusal {
    let pointer = child("", field);
    let mut refusal = invalid("An arg could not be prepared.", vec![FieldError { pointer, reason: reason.to_owned() }]);
    refusal.policy_code = Some(code.to_owned());
    refusal
}
