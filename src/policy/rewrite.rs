//! Changes names and values of a query, a form or a JSON object, and nothing else in it.
//!
//! Owns the splice: every part that was not changed stays byte for byte as the agent sent it, in
//! its order. Must never be reached when nothing changed.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::call::json::members;

/// What becomes of one arg.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Fate {
    /// It gets another name, another value, or both.
    Changed {
        /// The name from now on.
        name: String,
        /// The value from now on; `None` keeps the bytes that stand there.
        value: Option<Value>,
    },
    /// It goes: the same value stands under its other name.
    Removed,
}

/// Every change of one call's args.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Changes {
    /// By the name as the agent sent it.
    pub(super) fates: BTreeMap<String, Fate>,
    /// Args that were not there.
    pub(super) added: Vec<(String, Value)>,
}

impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        self.fates.is_empty() && self.added.is_empty()
    }
}

/// A value as it stands in a query or a form: texts as they are, everything else as JSON.
pub(super) fn as_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Names and values of a query, decoded as far as they can be. `;` parts like `&`: some servers
/// read it so, and a rule must not be passed by it.
pub(super) fn pairs(query: &str) -> Vec<(String, String)> {
    let parts = query.split(['&', ';']).filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            (decoded(name), decoded(value))
        })
        .collect()
}

/// Percent-decoded once, `+` read as a space; what is not an encoding stays as it is.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let digits = bytes.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        let value = digits.filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
        match (byte, value.and_then(|digits| u8::from_str_radix(digits, 16).ok())) {
            (b'%', Some(value)) => {
                out.push(value);
                at += 2;
            }
            (b'+', _) => out.push(b' '),
            (other, _) => out.push(*other),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Percent-encoded so that it is one piece of a query, a form or a path: everything but the unreserved
/// characters of RFC 3986 section 2.3.
pub(super) fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// A query or a form with its changes; `None` if none of them concerns it. A repeated name is one
/// list: its values keep their order.
pub(super) fn fields(raw: &str, changes: &Changes, add: impl Fn(&str) -> bool) -> Option<String> {
    let mut touched = changes.added.iter().any(|(name, _)| add(name));
    let mut out: Vec<String> = Vec::new();
    let mut met: BTreeMap<String, usize> = BTreeMap::new();
    for part in raw.split('&') {
        let (raw_name, raw_value) = part.split_once('=').unwrap_or((part, ""));
        let name = decoded(raw_name);
        let nth = met.entry(name.clone()).or_default();
        let index = *nth;
        *nth += 1;
        let fate = if part.is_empty() { None } else { changes.fates.get(&name) };
        touched |= fate.is_some();
        match fate {
            None => out.push(part.to_owned()),
            Some(Fate::Removed) => {}
            Some(Fate::Changed { name, value }) => {
                let value = match value {
                    None => raw_value.to_owned(),
                    Some(Value::Array(items)) => match items.get(index) {
                        Some(item) => encoded(&as_text(item)),
                        None => continue,
                    },
                    Some(value) => encoded(&as_text(value)),
                };
                out.push(format!("{}={value}", encoded(name)));
            }
        }
    }
    if raw.is_empty() {
        out.clear();
    }
    for (name, value) in changes.added.iter().filter(|(name, _)| add(name)) {
        let values = match value {
            Value::Array(items) => items.iter().collect(),
            value => vec![value],
        };
        out.extend(values.iter().map(|value| format!("{}={}", encoded(name), encoded(&as_text(value)))));
    }
    touched.then(|| out.join("&"))
}

/// A JSON object with its changes; `None` if none of them concerns it or if `raw` is no object.
pub(super) fn object(raw: &str, changes: &Changes, add: impl Fn(&str) -> bool) -> Option<String> {
    let mut touched = changes.added.iter().any(|(name, _)| add(name));
    let mut out: Vec<String> = Vec::new();
    for (name, value) in members(raw)? {
        let plain: String = serde_json::from_str(name).ok()?;
        let fate = changes.fates.get(&plain);
        touched |= fate.is_some();
        match fate {
            None => out.push(format!("{name}:{value}")),
            Some(Fate::Removed) => {}
            Some(Fate::Changed { name: renamed, value: changed }) => {
                let name = if *renamed == plain { name.to_owned() } else { Value::from(renamed.as_str()).to_string() };
                let value = changed.as_ref().map_or_else(|| value.to_owned(), Value::to_string);
                out.push(format!("{name}:{value}"));
            }
        }
    }
    let added = changes.added.iter().filter(|(name, _)| add(name));
    out.extend(added.map(|(name, value)| format!("{}:{value}", Value::from(name.as_str()))));
    touched.then(|| format!("{{{}}}", out.join(",")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn renamed(from: &str, to: &str, value: Option<Value>) -> (String, Fate) {
        (from.to_owned(), Fate::Changed { name: to.to_owned(), value })
    }

    #[test]
    fn only_the_changed_member_of_an_object_changes() {
        let raw = " { \"a\" : 1.0e1 ,\n \"taskTitle\": \" x\\u0041 \", \"n\": 9007199254740993, \"o\": {\"a\": [1 , \"}\"]} } ";
        let changes = Changes {
            fates: BTreeMap::from([renamed("taskTitle", "title", Some(json!("xA"))), renamed("a", "b", None)]),
            added: vec![("p".into(), json!(1))],
        };
        let text = object(raw, &changes, |_| true).unwrap();
        assert_eq!(text, r#"{"b":1.0e1,"title":"xA","n":9007199254740993,"o":{"a": [1 , "}"]},"p":1}"#);
        assert_eq!(object("{}", &changes, |_| true).unwrap(), r#"{"p":1}"#);
        assert_eq!(object("[1]", &changes, |_| true), None);
        assert_eq!(object("{\"x\": 1 }", &changes, |_| false), None);
    }

    #[test]
    fn only_the_changed_part_of_a_query_changes() {
        let changes = Changes {
            fates: BTreeMap::from([renamed("q", "q", Some(json!("a b&c"))), ("gone".into(), Fate::Removed)]),
            added: vec![("d".into(), json!(2))],
        };
        assert_eq!(fields("x=1%2b+&%71=old&gone=1&y", &changes, |_| true).unwrap(), "x=1%2b+&q=a%20b%26c&y&d=2");
        assert_eq!(fields("", &changes, |_| true).unwrap(), "d=2");
        assert_eq!(fields("x=1&&y", &changes, |_| false), None);
        let list = Changes { fates: BTreeMap::from([renamed("t", "t", Some(json!(["a", "b"])))]), added: vec![] };
        assert_eq!(fields("t=1&x=2&t=3", &list, |_| true).unwrap(), "t=a&x=2&t=b");
    }

    #[test]
    fn pairs_are_read_as_any_server_might_read_them() {
        let expect = [("a", "1"), ("action", "delete"), ("b", "%zz x")].map(|(n, v)| (n.to_owned(), v.to_owned()));
        assert_eq!(pairs("a=1;%61ction=delete&&b=%zz+x"), expect);
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,6}".prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(".{0,4}", inner, 0..4).prop_map(|m| m.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_rewritten_object_reads_as_the_changes_say(members in prop::collection::btree_map("[a-d\"\\\\{:,]{0,3}", any_json(), 0..5),
                                                       pretty in any::<bool>(), value in any_json()) {
            let before: Value = members.clone().into_iter().collect();
            let raw = if pretty { serde_json::to_string_pretty(&before) } else { serde_json::to_string(&before) }.unwrap();
            let mut expect = members.clone();
            let mut changes = Changes { fates: BTreeMap::new(), added: vec![("new".into(), value.clone())] };
            if let Some((name, _)) = members.iter().next() {
                changes.fates.insert(name.clone(), Fate::Changed { name: "renamed".into(), value: Some(value.clone()) });
                expect.remove(name);
                expect.insert("renamed".into(), value.clone());
            }
            expect.insert("new".into(), value);
            let after: Value = serde_json::from_str(&object(&raw, &changes, |_| true).unwrap()).unwrap();
            prop_assert_eq!(after, expect.into_iter().collect::<Value>());
        }
    }
}
