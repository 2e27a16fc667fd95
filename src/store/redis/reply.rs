//! What a script answered, taken apart.

use std::collections::HashMap;

use redis::Value;

use crate::base::id::DraftId;
use crate::base::time::Timestamp;
use crate::store::contract::StoreError;
use crate::store::row::Stored;

use super::fields::Fields;
use super::script::Script;

/// A word, two values that it may have, a draft and its id.
pub(super) struct Reply {
    pub(super) word: String,
    one: String,
    two: String,
    draft: Value,
    id: String,
}

impl Reply {
    /// Reads the five parts of a step's answer, or its word alone. A word that the script's head does not
    /// name is no answer of that script.
    pub(super) fn read(script: &Script, value: Value) -> Result<Self, StoreError> {
        let reply = match value {
            Value::Array(parts) => {
                let parts = <[Value; 5]>::try_from(parts).map_err(|_| strange("it has not five parts"))?;
                let [word, one, two, draft, id] = parts;
                Self { word: text(word)?, one: text(one)?, two: text(two)?, draft, id: text(id)? }
            }
            word => Self {
                word: text(word)?,
                one: String::new(),
                two: String::new(),
                draft: Value::Array(Vec::new()),
                id: String::new(),
            },
        };
        if script.replies.contains(&reply.word.as_str()) { Ok(reply) } else { Err(reply.unknown(script.name)) }
    }

    pub(super) fn one(&self) -> &str {
        &self.one
    }

    pub(super) fn two(&self) -> &str {
        &self.two
    }

    pub(super) fn number(&self, text: &str) -> Result<u32, StoreError> {
        text.parse().map_err(|_| strange("a number is none"))
    }

    pub(super) fn time(&self, text: &str) -> Result<Timestamp, StoreError> {
        text.parse().map(Timestamp::from_millis).map_err(|_| strange("a time is none"))
    }

    /// The draft that it carries, if it carries one that can be read.
    pub(super) fn peek(&self) -> Option<Stored> {
        let id: DraftId = self.id.parse().ok()?;
        Fields::new(id, pairs(self.draft.clone()).ok()?).stored().ok()
    }

    /// The draft that it carries.
    pub(super) fn stored(self) -> Result<Box<Stored>, StoreError> {
        let id: DraftId = self.id.parse().map_err(|_| strange("its draft has no id"))?;
        Fields::new(id, pairs(self.draft)?).stored().map(Box::new)
    }

    /// The word that no arm of a caller knows.
    pub(super) fn unknown(&self, step: &str) -> StoreError {
        StoreError::Corrupt(format!("the script {step} answered {:?}", self.word))
    }
}

fn strange(what: &str) -> StoreError {
    StoreError::Corrupt(format!("a script's answer cannot be read: {what}"))
}

/// A text of the server.
pub(super) fn text(value: Value) -> Result<String, StoreError> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes).map_err(|_| strange("it is no text")),
        Value::SimpleString(text) => Ok(text),
        Value::Int(number) => Ok(number.to_string()),
        Value::Okay => Ok("OK".to_owned()),
        _ => Err(strange("a text is none")),
    }
}

/// What `TIME` answers: seconds and microseconds.
pub(super) fn time(value: Value) -> Result<Timestamp, StoreError> {
    let strange = || StoreError::Corrupt("the server's time cannot be read".to_owned());
    let parts = texts(value)?;
    let [seconds, micros] = parts.as_slice() else { return Err(strange()) };
    let (Ok(seconds), Ok(micros)) = (seconds.parse::<i64>(), micros.parse::<i64>()) else { return Err(strange()) };
    Ok(Timestamp::from_millis(seconds.saturating_mul(1_000) + micros / 1_000))
}

/// The texts of a list.
pub(super) fn texts(value: Value) -> Result<Vec<String>, StoreError> {
    let Value::Array(values) = value else { return Err(strange("it is no list")) };
    values.into_iter().map(text).collect()
}

/// The fields of a hash.
pub(super) fn pairs(value: Value) -> Result<HashMap<Vec<u8>, Vec<u8>>, StoreError> {
    let bytes = |value| match value {
        Value::BulkString(bytes) => Ok(bytes),
        _ => Err(strange("a field is none")),
    };
    match value {
        Value::Array(flat) => {
            let mut found = HashMap::with_capacity(flat.len() / 2);
            let mut flat = flat.into_iter();
            while let Some(name) = flat.next() {
                found.insert(bytes(name)?, bytes(flat.next().unwrap_or_default())?);
            }
            Ok(found)
        }
        Value::Map(pairs) => pairs.into_iter().map(|(name, value)| Ok((bytes(name)?, bytes(value)?))).collect(),
        _ => Err(strange("a draft is none")),
    }
}
