//! The canonical form of RFC 8785 (JCS), from which args and previews are hashed.
//!
//! Owns the one spelling of a JSON value. Must never be sent anywhere: what goes upstream are the
//! bytes that came.

use serde_json::{Map, Number, Value};

#[cfg(test)]
mod tests;

/// Integers up to here are their own double.
const SAFE_INTEGER_MAX: u64 = 1 << 53;

/// The canonical bytes of `value`: names sorted by UTF-16 code units, numbers as ECMAScript prints
/// their double, the shortest escapes, no space (RFC 8785 section 3.2).
#[must_use]
pub fn to_vec(value: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    write(value, &mut out);
    out
}

/// A JSON value put together from borrowed parts, so that what is only hashed is not copied first.
#[derive(Debug, Clone, PartialEq)]
pub enum Part<'a> {
    /// A value as it is.
    Value(&'a Value),
    /// A text.
    Text(&'a str),
    /// A number that is its own double.
    Number(u32),
    /// An array.
    List(Vec<Part<'a>>),
    /// An object; names of ASCII letters, digits and `_` that are sorted and stand once.
    Object(Vec<(&'static str, Part<'a>)>),
}

/// The canonical bytes of the value that `part` spells, as [`to_vec`] makes them.
#[must_use]
pub fn part_to_vec(part: &Part<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    write_part(part, &mut out);
    out
}

fn write_part(part: &Part<'_>, out: &mut Vec<u8>) {
    match part {
        Part::Value(value) => write(value, out),
        Part::Text(text) => write_string(text, out),
        Part::Number(number) => write_integer(i64::from(*number), out),
        Part::List(items) => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_part(item, out);
            }
            out.push(b']');
        }
        Part::Object(members) => {
            debug_assert!(members.is_sorted_by(|(one, _), (next, _)| one < next), "names are sorted and stand once");
            out.push(b'{');
            for (index, (name, member)) in members.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_string(name, out);
                out.push(b':');
                write_part(member, out);
            }
            out.push(b'}');
        }
    }
}

fn write(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Number(number) => write_number(number, out),
        Value::String(text) => write_string(text, out),
        Value::Array(items) => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write(item, out);
            }
            out.push(b']');
        }
        Value::Object(members) => write_object(members, out),
    }
}

fn write_object(members: &Map<String, Value>, out: &mut Vec<u8>) {
    // The map is sorted by code points. That is the order of UTF-16 code units as well, unless a
    // name has a character from U+E000 on: those sort before surrogates by code point only.
    let late = members.keys().any(|name| name.bytes().any(|byte| byte >= 0xee));
    let mut first = true;
    let mut member = |name: &str, value: &Value| {
        out.push(if first { b'{' } else { b',' });
        first = false;
        write_string(name, out);
        out.push(b':');
        write(value, out);
    };
    if late {
        let mut sorted: Vec<(&String, &Value)> = members.iter().collect();
        sorted.sort_unstable_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
        sorted.iter().for_each(|(name, value)| member(name, value));
    } else {
        members.iter().for_each(|(name, value)| member(name, value));
    }
    if first {
        out.push(b'{');
    }
    out.push(b'}');
}

fn write_number(number: &Number, out: &mut Vec<u8>) {
    let small = number.as_i64().filter(|integer| integer.unsigned_abs() <= SAFE_INTEGER_MAX);
    match small {
        Some(integer) => write_integer(integer, out),
        // A value read from JSON is finite; one made by hand as well, since `Number` holds no other.
        None => {
            let double = number.as_f64().unwrap_or(0.0);
            out.extend_from_slice(ryu_js::Buffer::new().format(double).as_bytes());
        }
    }
}

fn write_integer(integer: i64, out: &mut Vec<u8>) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    let mut rest = integer.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if integer < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

/// For each byte: 0 if it stands for itself, else the letter of its escape (`u` for `\u00xx`).
const ESCAPES: [u8; 256] = {
    let mut escapes = [0; 256];
    let mut byte = 0;
    while byte < 0x20 {
        escapes[byte] = b'u';
        byte += 1;
    }
    escapes[0x08] = b'b';
    escapes[0x09] = b't';
    escapes[0x0a] = b'n';
    escapes[0x0c] = b'f';
    escapes[0x0d] = b'r';
    escapes[b'"' as usize] = b'"';
    escapes[b'\\' as usize] = b'\\';
    escapes
};

fn write_string(text: &str, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let bytes = text.as_bytes();
    out.reserve(bytes.len() + 2);
    out.push(b'"');
    // Nearly every text stands for itself. Without a way out of the loop, many bytes are looked at at once.
    if bytes.iter().fold(true, |plain, byte| plain & (*byte >= 0x20) & (*byte != b'"') & (*byte != b'\\')) {
        out.extend_from_slice(bytes);
        out.push(b'"');
        return;
    }
    let mut plain_from = 0;
    for (at, byte) in bytes.iter().enumerate() {
        let escape = ESCAPES[usize::from(*byte)];
        if escape == 0 {
            continue;
        }
        out.extend_from_slice(&bytes[plain_from..at]);
        plain_from = at + 1;
        out.extend_from_slice(&[b'\\', escape]);
        if escape == b'u' {
            out.extend_from_slice(b"00");
            out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
    }
    out.extend_from_slice(&bytes[plain_from..]);
    out.push(b'"');
}
