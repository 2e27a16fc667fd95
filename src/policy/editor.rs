//! The JSON Schema of policy files, for editors and for `countersign schema policy`.
//!
//! Owns nothing but the file beside it; a test keeps its keys equal to those that the reader knows.

use serde_json::Value;

const SCHEMA: &str = include_str!("editor_schema.json");

/// The schema of a policy file (draft 2020-12): names, types and choices. What only the loader can
/// judge, such as names that must exist, is not in it.
#[must_use]
pub fn policy_schema() -> Value {
    // The text is part of the program and read by a test; null is the closed answer should it ever
    // not be JSON.
    serde_json::from_str(SCHEMA).unwrap_or(Value::Null)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeSet;

    use super::super::keys::ALL;
    use super::*;

    #[test]
    fn the_schema_has_exactly_the_keys_that_the_reader_knows() {
        let schema = policy_schema();
        for (name, keys) in ALL {
            let pointer = match *name {
                "FILE" => String::new(),
                other => format!("/$defs/{}", other.to_ascii_lowercase()),
            };
            let object = schema.pointer(&pointer).unwrap_or(&Value::Null);
            let described: BTreeSet<&str> = object["properties"]
                .as_object()
                .unwrap_or_else(|| unreachable!("{name}"))
                .keys()
                .map(String::as_str)
                .collect();
            assert_eq!(described, keys.known.iter().copied().collect(), "{name}");
            assert_eq!(object["additionalProperties"], false, "{name}");
        }
    }

    #[test]
    fn the_schema_is_a_schema() {
        assert!(jsonschema::draft202012::meta::is_valid(&policy_schema()));
    }
}
