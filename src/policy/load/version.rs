//! The version of a set: what two guards compare to know that they follow the same rules.

use serde_json::Value;

use crate::base::digest::Digest;
use crate::call::canonical;

use super::super::read::File;
use super::super::yaml::Node;

/// A file as it counts for the version: without comments, order of keys, order of tools and
/// capabilities, and without credentials. Substitutions count as they are written.
pub(super) fn normal_form(file: &File<'_>, root: &Node) -> Value {
    let mut json = file.json(root);
    if let Some(value) = json.pointer_mut("/upstream/credentials/value") {
        *value = Value::Null;
    }
    for list in ["tools", "capabilities"] {
        if let Some(Value::Array(items)) = json.get_mut(list) {
            items.sort_by_cached_key(canonical::to_vec);
        }
    }
    json
}

/// SHA-256 in hex over the files' normal forms, in an order of their own.
pub(super) fn hash(files: Vec<Value>) -> String {
    let mut bytes: Vec<Vec<u8>> = files.iter().map(canonical::to_vec).collect();
    bytes.sort();
    let mut all = b"countersign policy 1\n".to_vec();
    for file in bytes {
        all.extend_from_slice(&file);
        all.push(b'\n');
    }
    Digest::of(&all).to_hex()
}
