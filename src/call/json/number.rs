//! Number texts of JSON: which value, and whether a double holds it exactly.
//!
//! A text counts as exact if, read as a decimal number, it equals what RFC 8785 prints for its
//! double. So `0.1`, `10.00` and `1e1` are exact, `9007199254740993` and
//! `0.1000000000000000055` are not. Two exact texts with one double are one decimal number.

use serde_json::Number;

/// Reads a text of the JSON number grammar. `None` if it is beyond the range of a double; the
/// flag says whether the text is exactly its double.
pub(super) fn read(text: &str) -> Option<(Number, bool)> {
    if let Some(small) = small_integer(text) {
        return Some((Number::from(small), true));
    }
    let double: f64 = text.parse().ok()?;
    if !double.is_finite() {
        return None;
    }
    let decimal = Decimal::read(text);
    if decimal.digits.is_empty() {
        return Some((Number::from(0), true));
    }
    // Every decimal of at most 15 digits survives the way through a normal double and back, and
    // the shortest print then is that decimal.
    let short = decimal.digits.len() <= 15 && double.is_normal();
    let exact = short || Decimal::read(ryu_js::Buffer::new().format_finite(double)) == decimal;
    let integer = if exact { decimal.integer() } else { plain_integer(text) };
    let number = integer.or_else(|| Number::from_f64(double))?;
    Some((number, exact))
}

/// Integers of at most 15 digits, the ordinary case.
fn small_integer(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    if digits.len() > 15 {
        return None;
    }
    let mut value = 0_i64;
    for byte in digits.bytes() {
        if !byte.is_ascii_digit() {
            return None;
        }
        value = value * 10 + i64::from(byte - b'0');
    }
    Some(if negative { -value } else { value })
}

/// An integer as it is written, if it fits 64 bits.
fn plain_integer(text: &str) -> Option<Number> {
    text.parse::<i64>().map(Number::from).or_else(|_| text.parse::<u64>().map(Number::from)).ok()
}

/// `±digits × 10^exponent`, digits without zeros at either end; zero has none.
#[derive(Debug, PartialEq, Eq)]
struct Decimal {
    negative: bool,
    digits: Vec<u8>,
    exponent: i64,
}

impl Decimal {
    /// Reads the JSON grammar, or what `ryu_js` prints.
    fn read(text: &str) -> Self {
        let (negative, text) = match text.strip_prefix('-') {
            Some(text) => (true, text),
            None => (false, text),
        };
        let (mantissa, power) = match text.split_once(['e', 'E']) {
            Some((mantissa, power)) => (mantissa, saturating(power)),
            None => (text, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = whole.bytes().chain(fraction.bytes());
        let mut digits: Vec<u8> = all.skip_while(|digit| *digit == b'0').collect();
        let fraction_len = i64::try_from(fraction.len()).unwrap_or(i64::MAX);
        let mut exponent = power.saturating_sub(fraction_len);
        while digits.last() == Some(&b'0') {
            digits.pop();
            exponent = exponent.saturating_add(1);
        }
        if digits.is_empty() {
            return Self { negative: false, digits, exponent: 0 };
        }
        Self { negative, digits, exponent }
    }

    /// The value as an integer of 64 bits.
    fn integer(&self) -> Option<Number> {
        let power = u32::try_from(self.exponent).ok().filter(|power| *power <= 20)?;
        if self.digits.len() > 20 {
            return None;
        }
        let digits = self.digits.iter().fold(0_i128, |value, digit| value * 10 + i128::from(*digit - b'0'));
        let value = digits.checked_mul(10_i128.pow(power))?;
        let value = if self.negative { -value } else { value };
        i64::try_from(value).map(Number::from).or_else(|_| u64::try_from(value).map(Number::from)).ok()
    }
}

/// An exponent of any length.
fn saturating(text: &str) -> i64 {
    match text.strip_prefix('-') {
        Some(digits) => digits.parse().map_or(i64::MIN / 2, |value: i64| -value),
        None => text.strip_prefix('+').unwrap_or(text).parse().unwrap_or(i64::MAX / 2),
    }
}
