//! JSON as template values that borrow nothing and copy nothing.
//!
//! Owns the way from a template to a member of a call's args: an object or array stays where it is
//! and is named by the steps to it. Must never change what a template sees: it is what
//! [`super::value_of`] would copy.

use std::fmt;
use std::sync::Arc;

use minijinja::value::{Enumerator, Object, ObjectRepr, Value};
use serde_json::Value as Json;

use super::value_of;

/// An object or array inside a JSON value.
#[derive(Clone)]
pub(super) struct Node {
    root: Arc<Json>,
    way: Vec<Step>,
}

#[derive(Clone)]
enum Step {
    Name(String),
    Item(usize),
}

impl Node {
    /// All of `root` as a template value.
    pub(super) fn value(root: &Arc<Json>) -> Value {
        match &**root {
            Json::Object(_) | Json::Array(_) => Value::from_object(Self { root: Arc::clone(root), way: Vec::new() }),
            leaf => value_of(leaf),
        }
    }

    /// What it names.
    pub(super) fn json(&self) -> &Json {
        self.way.iter().fold(&*self.root, |json, step| match step {
            Step::Name(name) => &json[name.as_str()],
            Step::Item(index) => &json[*index],
        })
    }

    fn child(&self, json: &Json, step: impl FnOnce() -> Step) -> Value {
        match json {
            Json::Object(_) | Json::Array(_) => {
                let mut way = Vec::with_capacity(self.way.len() + 1);
                way.extend_from_slice(&self.way);
                way.push(step());
                Value::from_object(Self { root: Arc::clone(&self.root), way })
            }
            leaf => value_of(leaf),
        }
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the value: it may be somebody's data (promise 10).
        f.debug_struct("Node").finish_non_exhaustive()
    }
}

impl Object for Node {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        if self.json().is_array() { ObjectRepr::Seq } else { ObjectRepr::Map }
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        match self.json() {
            Json::Array(items) => {
                let index = key.as_usize()?;
                items.get(index).map(|item| self.child(item, || Step::Item(index)))
            }
            _ => self.get_value_by_str(key.as_str()?),
        }
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        let member = self.json().as_object()?.get(key)?;
        Some(self.child(member, || Step::Name(key.to_owned())))
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        match self.json() {
            Json::Object(members) => {
                let pair = |(name, member): (&String, &Json)| {
                    (Value::from(name.as_str()), self.child(member, || Step::Name(name.clone())))
                };
                Enumerator::KeyValueIter(Box::new(members.iter().map(pair).collect::<Vec<_>>().into_iter()))
            }
            Json::Array(items) => Enumerator::Seq(items.len()),
            _ => Enumerator::Empty,
        }
    }
}
