//! Whether a schema is closed: no value that it accepts has, at any depth, a name or an item that
//! the schema does not describe.
//!
//! Owns the proof. Must never accept on a guess: what it cannot prove closed is reported.

use serde_json::{Map, Value};

use super::{child, resolve};

/// A place where a schema accepts what it does not describe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::policy) struct Open {
    /// JSON Pointer into the schema.
    pub(in crate::policy) pointer: String,
    /// What it accepts.
    pub(in crate::policy) reason: &'static str,
    /// What to write.
    pub(in crate::policy) hint: &'static str,
}

/// Every place where `root` is open.
pub(in crate::policy) fn open_places(root: &Value) -> Vec<Open> {
    let mut found = Proof { root, trail: Vec::new() }.places(root, "");
    found.sort_by(|a, b| a.pointer.cmp(&b.pointer));
    found.dedup();
    found
}

struct Proof<'s> {
    root: &'s Value,
    /// References that are being followed. A reference met again on its own way closes by the
    /// proof that is under way.
    trail: Vec<&'s str>,
}

const ANY: (&str, &str) = ("this accepts any value", "state its `type`");

fn open(pointer: &str, (reason, hint): (&'static str, &'static str)) -> Vec<Open> {
    vec![Open { pointer: pointer.to_owned(), reason, hint }]
}

impl<'s> Proof<'s> {
    fn places(&mut self, schema: &'s Value, at: &str) -> Vec<Open> {
        let Value::Object(map) = schema else {
            return if *schema == Value::Bool(false) { Vec::new() } else { open(at, ANY) };
        };
        // A list of whole values is a description of each of them.
        if map.contains_key("const") || map.contains_key("enum") {
            return Vec::new();
        }
        let own = self.own(map, at);
        if own.is_empty() {
            return own;
        }
        // Everything in one schema holds at once: one part that is closed closes the whole.
        let mut least: Option<Vec<Open>> = map.contains_key("type").then_some(own);
        for candidate in self.combined(map, at) {
            if candidate.is_empty() {
                return candidate;
            }
            least.get_or_insert(candidate);
        }
        least.unwrap_or_else(|| open(at, ANY))
    }

    /// What the references and combinations of a schema prove, each by itself.
    fn combined(&mut self, map: &'s Map<String, Value>, at: &str) -> Vec<Vec<Open>> {
        let mut found = Vec::new();
        if let Some(reference) = map.get("$ref").and_then(Value::as_str) {
            found.push(self.referred(reference));
        }
        for (index, branch) in branches(map, "allOf").enumerate() {
            found.push(self.places(branch, &format!("{at}/allOf/{index}")));
        }
        for keyword in ["oneOf", "anyOf"] {
            if map.contains_key(keyword) {
                let all = branches(map, keyword).enumerate();
                found.push(all.flat_map(|(i, branch)| self.places(branch, &format!("{at}/{keyword}/{i}"))).collect());
            }
        }
        if let (Some(_), Some(then), Some(other)) = (map.get("if"), map.get("then"), map.get("else")) {
            let mut both = self.places(then, &format!("{at}/then"));
            both.extend(self.places(other, &format!("{at}/else")));
            found.push(both);
        }
        found
    }

    fn referred(&mut self, reference: &'s str) -> Vec<Open> {
        // A reference to nothing is a mistake of its own, reported where it stands.
        let (Some(target), Some(at)) = (resolve(self.root, reference), reference.strip_prefix('#')) else {
            return Vec::new();
        };
        if self.trail.contains(&reference) {
            return Vec::new();
        }
        self.trail.push(reference);
        let found = self.places(target, at);
        self.trail.pop();
        found
    }

    /// What the schema's own keywords prove.
    fn own(&mut self, map: &'s Map<String, Value>, at: &str) -> Vec<Open> {
        let types: Vec<&str> = match map.get("type") {
            Some(Value::String(only)) => vec![only],
            Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).collect(),
            _ => return open(at, ANY),
        };
        let mut found = Vec::new();
        if types.contains(&"object") {
            found.extend(self.object(map, at));
        }
        if types.contains(&"array") {
            found.extend(self.array(map, at));
        }
        found
    }

    fn object(&mut self, map: &'s Map<String, Value>, at: &str) -> Vec<Open> {
        const OPEN: (&str, &str) =
            ("this object accepts names that it does not list", "add `additionalProperties: false`");
        let mut found = self.members(map, at);
        if map.get("additionalProperties") == Some(&Value::Bool(false)) {
            return found;
        }
        if map.contains_key("additionalProperties") || map.get("unevaluatedProperties") != Some(&Value::Bool(false)) {
            found.extend(open(at, OPEN));
            return found;
        }
        // `unevaluatedProperties: false` lets in what any branch describes: each of these
        // descriptions has to be closed, and no branch may describe names wholesale.
        let mut seen = vec![map];
        let mut rest = in_place(self.root, map, at);
        while let Some((branch, at)) = rest.pop() {
            if seen.iter().any(|known| std::ptr::eq(*known, branch)) {
                continue;
            }
            seen.push(branch);
            found.extend(self.members(branch, &at));
            let names = |keyword: &str| branch.get(keyword).is_some_and(|value| *value != Value::Bool(false));
            if names("additionalProperties") || names("unevaluatedProperties") {
                found.extend(open(&at, OPEN));
            }
            rest.extend(in_place(self.root, branch, &at));
        }
        found
    }

    /// The members that the keywords of this one schema describe.
    fn members(&mut self, map: &'s Map<String, Value>, at: &str) -> Vec<Open> {
        let mut found = Vec::new();
        for keyword in ["properties", "patternProperties"] {
            for (name, member) in map.get(keyword).and_then(Value::as_object).into_iter().flatten() {
                found.extend(self.places(member, &child(&format!("{at}/{keyword}"), name)));
            }
        }
        found
    }

    fn array(&mut self, map: &'s Map<String, Value>, at: &str) -> Vec<Open> {
        let mut found = Vec::new();
        for (index, item) in branches(map, "prefixItems").enumerate() {
            found.extend(self.places(item, &format!("{at}/prefixItems/{index}")));
        }
        match map.get("items") {
            Some(items) => found.extend(self.places(items, &format!("{at}/items"))),
            None => {
                let described = u64::try_from(branches(map, "prefixItems").count()).unwrap_or(u64::MAX);
                let bounded = map.get("maxItems").and_then(Value::as_u64).is_some_and(|most| most <= described);
                if !bounded {
                    found.extend(open(at, ("this list accepts any items", "state `items`")));
                }
            }
        }
        found
    }
}

fn branches<'s>(map: &'s Map<String, Value>, keyword: &str) -> impl Iterator<Item = &'s Value> {
    map.get(keyword).and_then(Value::as_array).into_iter().flatten()
}

/// The schemas that apply to the same value as `map`, with their pointers.
fn in_place<'s>(root: &'s Value, map: &'s Map<String, Value>, at: &str) -> Vec<(&'s Map<String, Value>, String)> {
    let mut found: Vec<(&Value, String)> = Vec::new();
    for keyword in ["allOf", "anyOf", "oneOf"] {
        found.extend(branches(map, keyword).enumerate().map(|(i, branch)| (branch, format!("{at}/{keyword}/{i}"))));
    }
    for keyword in ["if", "then", "else"] {
        found.extend(map.get(keyword).map(|branch| (branch, format!("{at}/{keyword}"))));
    }
    let dependent = map.get("dependentSchemas").and_then(Value::as_object).into_iter().flatten();
    found.extend(dependent.map(|(name, branch)| (branch, child(&format!("{at}/dependentSchemas"), name))));
    if let Some(reference) = map.get("$ref").and_then(Value::as_str) {
        let target = resolve(root, reference).zip(reference.strip_prefix('#'));
        found.extend(target.map(|(target, at)| (target, at.to_owned())));
    }
    found.into_iter().filter_map(|(schema, at)| schema.as_object().map(|map| (map, at))).collect()
}

/// The pointer of a schema that applies itself to the same value again without end.
pub(in crate::policy) fn endless(root: &Value) -> Option<String> {
    fn visit<'s>(
        root: &'s Value,
        map: &'s Map<String, Value>,
        at: String,
        way: &mut Vec<&'s Map<String, Value>>,
        done: &mut Vec<&'s Map<String, Value>>,
    ) -> Option<String> {
        if way.iter().any(|known| std::ptr::eq(*known, map)) {
            return Some(at);
        }
        if done.iter().any(|known| std::ptr::eq(*known, map)) {
            return None;
        }
        way.push(map);
        let found = in_place(root, map, &at).into_iter().find_map(|(next, at)| visit(root, next, at, way, done));
        way.pop();
        done.push(map);
        found
    }
    let mut done = Vec::new();
    let mut open = vec![(root, String::new())];
    while let Some((value, at)) = open.pop() {
        match value {
            Value::Object(map) => {
                if let Some(found) = visit(root, map, at.clone(), &mut Vec::new(), &mut done) {
                    return Some(found);
                }
                open.extend(map.iter().map(|(name, below)| (below, child(&at, name))));
            }
            Value::Array(items) => {
                open.extend(items.iter().enumerate().map(|(index, item)| (item, format!("{at}/{index}"))));
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pointers(schema: Value) -> Vec<String> {
        open_places(&schema).into_iter().map(|open| open.pointer).collect()
    }

    fn object(properties: Value) -> Value {
        json!({"type": "object", "additionalProperties": false, "properties": properties})
    }

    #[test]
    fn closed_schemas_are_accepted() {
        let leaf = object(json!({"x": {"type": "string"}}));
        for schema in [
            leaf.clone(),
            object(
                json!({"a": {"type": ["string", "null"]}, "b": {"enum": [1, {"any": "thing"}]}, "c": {"const": {}}}),
            ),
            object(json!({"a": {"type": "array", "items": leaf}, "b": {"type": "array", "maxItems": 0}})),
            object(json!({"a": {"type": "array", "prefixItems": [leaf], "items": false}})),
            object(json!({"a": {"oneOf": [leaf, {"type": "null"}]}, "b": {"allOf": [{"minProperties": 1}, leaf]}})),
            json!({"type": "object", "additionalProperties": false, "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
                   "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}),
            json!({"type": "object", "unevaluatedProperties": false, "$ref": "#/$defs/base",
                   "$defs": {"base": {"type": "object", "properties": {"a": {"type": "string"}}}}}),
            json!({"type": "object", "additionalProperties": false, "properties": {"tree": {"$ref": "#/$defs/tree"}},
                   "$defs": {"tree": object(json!({"next": {"$ref": "#/$defs/tree"}}))}}),
            object(json!({"a": {"if": {"type": "string"}, "then": {"type": "string"}, "else": leaf}})),
        ] {
            assert_eq!(pointers(schema.clone()), [""; 0], "{schema}");
        }
    }

    #[test]
    fn open_schemas_are_found_wherever_they_hide() {
        let open = json!({"type": "object"});
        let any = json!({});
        for (schema, expected) in [
            (open.clone(), vec![""]),
            (json!(true), vec![""]),
            (object(json!({"a": open, "b": any, "c": true})), vec!["/properties/a", "/properties/b", "/properties/c"]),
            (object(json!({"a": {"type": "array"}})), vec!["/properties/a"]),
            (object(json!({"a": {"type": "array", "items": open}})), vec!["/properties/a/items"]),
            (
                object(json!({"a": {"type": "array", "prefixItems": [open], "items": false}})),
                vec!["/properties/a/prefixItems/0"],
            ),
            (object(json!({"a": {"oneOf": [{"type": "null"}, open]}})), vec!["/properties/a/oneOf/1"]),
            (object(json!({"a": {"anyOf": [open, {"type": "null"}]}})), vec!["/properties/a/anyOf/0"]),
            (object(json!({"a": {"allOf": [open]}})), vec!["/properties/a/allOf/0"]),
            (object(json!({"a": {"if": {"type": "string"}, "then": {"type": "string"}}})), vec!["/properties/a"]),
            (object(json!({"a": {"not": {"type": "string"}}})), vec!["/properties/a"]),
            (
                json!({"type": "object", "additionalProperties": false, "patternProperties": {"^x": open}}),
                vec!["/patternProperties/^x"],
            ),
            (json!({"type": "object", "additionalProperties": {"type": "string"}}), vec![""]),
            (
                json!({"type": "object", "additionalProperties": false, "properties": {"a": {"$ref": "#/$defs/d"}},
                    "$defs": {"d": open}}),
                vec!["/$defs/d"],
            ),
            (
                json!({"type": "object", "unevaluatedProperties": false,
                    "allOf": [{"properties": {"a": {}}}, {"additionalProperties": true}]}),
                vec!["/allOf/0/properties/a", "/allOf/1"],
            ),
            (object(json!({"a": {"type": ["string", "object"]}})), vec!["/properties/a"]),
        ] {
            let found = pointers(schema.clone());
            assert_eq!(found, expected, "{schema}");
        }
    }

    #[test]
    fn a_schema_that_only_refers_to_itself_is_found() {
        let looped =
            json!({"type": "object", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}});
        assert!(endless(&looped).is_some());
        let tree = json!({"type": "object", "properties": {"next": {"$ref": "#"}}});
        assert_eq!(endless(&tree), None);
    }
}
