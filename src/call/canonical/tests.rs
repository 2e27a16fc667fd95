#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::base::digest::Digest;
use crate::call::json;

macro_rules! vectors {
    ($($name:literal),*) => {
        [$((
            $name,
            include_str!(concat!("../../../tests/fixtures/jcs/input/", $name, ".json")),
            include_str!(concat!("../../../tests/fixtures/jcs/output/", $name, ".json")),
        )),*]
    };
}

fn canon(text: &str) -> String {
    String::from_utf8(to_vec(&json::parse(text.as_bytes()).unwrap().value)).unwrap()
}

#[test]
fn p2_a_value_of_parts_is_spelled_like_the_whole_value() {
    let args = json!({"b": [1, 2.5, null], "a": "\u{1f600}\n"});
    let parts = Part::Object(vec![
        ("args", Part::Value(&args)),
        ("list", Part::List(vec![Part::Text("x\"y"), Part::Number(7), Part::List(Vec::new())])),
        ("none", Part::Object(Vec::new())),
        ("v", Part::Number(1)),
    ]);
    let whole = json!({"args": args, "list": ["x\"y", 7, []], "none": {}, "v": 1});
    assert_eq!(part_to_vec(&parts), to_vec(&whole));
}

#[test]
fn p2_the_published_vectors_of_rfc_8785() {
    for (name, input, output) in vectors!["arrays", "french", "structures", "unicode", "values", "weird"] {
        assert_eq!(canon(input), output.trim_end_matches('\n'), "{name}");
    }
}

/// RFC 8785 appendix B: the bits of a double, and how it is printed.
#[test]
fn p2_the_published_number_samples() {
    for (bits, text) in [
        (0x0000_0000_0000_0000, "0"),
        (0x8000_0000_0000_0000, "0"),
        (0x0000_0000_0000_0001, "5e-324"),
        (0x8000_0000_0000_0001, "-5e-324"),
        (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
        (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
        (0x4340_0000_0000_0000, "9007199254740992"),
        (0xc340_0000_0000_0000, "-9007199254740992"),
        (0x4430_0000_0000_0000, "295147905179352830000"),
        (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
        (0x44b5_2d02_c7e1_4af6, "1e+23"),
        (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
        (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
        (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
        (0x444b_1ae4_d6e2_ef50, "1e+21"),
        (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
        (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
        (0x41b3_de43_5555_5553, "333333333.3333332"),
        (0x41b3_de43_5555_5554, "333333333.33333325"),
        (0x41b3_de43_5555_5555, "333333333.3333333"),
        (0x41b3_de43_5555_5556, "333333333.3333334"),
        (0x41b3_de43_5555_5557, "333333333.33333343"),
        (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
        (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
    ] {
        let value = Value::from(f64::from_bits(bits));
        assert_eq!(to_vec(&value), text.as_bytes(), "{bits:x}");
    }
}

#[test]
fn integers_print_as_their_double() {
    for (value, text) in [
        (json!(0), "0"),
        (json!(-7), "-7"),
        (json!(9_007_199_254_740_992_u64), "9007199254740992"),
        (json!(9_007_199_254_740_993_u64), "9007199254740992"),
        (json!(-9_007_199_254_740_993_i64), "-9007199254740992"),
        (json!(u64::MAX), "18446744073709552000"),
        (json!(i64::MIN), "-9223372036854775808"),
    ] {
        // The last one in ECMAScript: 2^63 is printed with the digits that tell it apart.
        let text = if text == "-9223372036854775808" { "-9223372036854776000" } else { text };
        assert_eq!(String::from_utf8(to_vec(&value)).unwrap(), text);
    }
}

#[test]
fn p2_names_sort_by_utf16_code_units() {
    assert_eq!(canon(r#"{"\ufb33":1,"\ud83d\ude02":2}"#), "{\"\u{1f602}\":2,\"\u{fb33}\":1}");
    assert_eq!(canon(r#"{"b":1,"":2,"a":{"d":1,"c":2},"B":3}"#), r#"{"":2,"B":3,"a":{"c":2,"d":1},"b":1}"#);
    assert_eq!(canon("{ }"), "{}");
}

#[test]
fn p2_pairs_of_one_meaning_and_pairs_of_two() {
    let hash = |text: &str| Digest::of(canon(text).as_bytes());
    for (a, b) in [
        (r#"{"a":1,"b":{"d":4,"c":3}}"#, "{\"b\":{\"c\":3,\"d\":4},\n \"a\":1}"),
        (r#"{"n":1}"#, r#"{"n":1.0}"#),
        (r#"{"n":1}"#, r#"{"n":1e0}"#),
        (r#"{"n":10}"#, r#"{"n":10.00}"#),
        (r#"{"n":0}"#, r#"{"n":-0}"#),
        (r#"{"n":0}"#, r#"{"n":-0.0e5}"#),
        (r#"{"s":"\u0041\/"}"#, r#"{"s":"A/"}"#),
    ] {
        assert_eq!(hash(a), hash(b), "{a} {b}");
    }
    for (a, b) in [
        (r#"{"n":null}"#, "{}"),
        (r#"{"n":null}"#, r#"{"n":""}"#),
        (r#"{"n":"1"}"#, r#"{"n":1}"#),
        ("[1,2]", "[2,1]"),
        ("{}", "[]"),
        (r#"{"s":"\u00e9"}"#, r#"{"s":"e\u0301"}"#),
        (r#"{"a b":1}"#, r#"{"a\u00a0b":1}"#),
    ] {
        assert_ne!(hash(a), hash(b), "{a} {b}");
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1000_i64..1000).prop_map(Value::from),
        any::<f64>().prop_filter("finite", |double| double.is_finite()).prop_map(Value::from),
        (any::<i32>(), -30_i32..30).prop_map(|(digits, power)| Value::from(f64::from(digits) * 10_f64.powi(power))),
        any::<String>().prop_map(Value::from),
        "[\u{d7f0}-\u{d7ff}\u{e000}-\u{e010}\u{fff0}-\u{ffff}\u{10000}-\u{10010}]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 48, 6, |inner| {
        let name = prop_oneof![any::<String>(), "[a-c\u{e000}\u{ffff}\u{10000}]{0,2}".prop_map(String::from)];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(name, inner, 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn p2_equal_to_the_yardstick(value in any_value()) {
        prop_assert_eq!(to_vec(&value), serde_json_canonicalizer::to_vec(&value).unwrap());
    }

    #[test]
    fn p2_a_canonical_text_is_its_own_canonical_form(value in any_value()) {
        let once = to_vec(&value);
        let read = json::parse(&once).unwrap();
        prop_assert!(read.inexact.is_empty(), "{:?}", read.inexact);
        prop_assert_eq!(to_vec(&read.value), once);
    }

    /// However a document is laid out, it has one canonical form and one value.
    #[test]
    fn p2_same_meaning_same_hash(value in any_value()) {
        let pretty = serde_json::to_string_pretty(&value).unwrap();
        let dense = json::parse(&to_vec(&value)).unwrap();
        let read = json::parse(pretty.as_bytes()).unwrap();
        prop_assert_eq!(to_vec(&read.value), to_vec(&dense.value));
        if read.inexact.is_empty() {
            prop_assert_eq!(read.value, dense.value);
        }
    }

    /// Two documents without inexact numbers that have one canonical form are one value.
    #[test]
    fn p2_other_meaning_other_hash(a in any_value(), b in any_value()) {
        let (a, b) = (json::parse(&to_vec(&a)).unwrap().value, json::parse(&to_vec(&b)).unwrap().value);
        prop_assert_eq!(a == b, to_vec(&a) == to_vec(&b));
    }

    /// Decimal texts: exact ones of equal value agree, exact ones of other value differ.
    #[test]
    fn p2_exact_number_texts_are_as_different_as_their_decimals(
        digits in 0_u64..2_000_000_000_000_000_000, zeros in 0_usize..4, power in -25_i32..25,
    ) {
        let plain = format!("{digits}e{power}");
        let padded = format!("{digits}{}e{}", "0".repeat(zeros), power - i32::try_from(zeros).unwrap());
        let (a, b) = (json::parse(plain.as_bytes()).unwrap(), json::parse(padded.as_bytes()).unwrap());
        prop_assert_eq!(to_vec(&a.value), to_vec(&b.value));
        prop_assert_eq!(a.inexact.is_empty(), b.inexact.is_empty());
        let next = json::parse(format!("{}e{power}", digits + 1).as_bytes()).unwrap();
        if a.inexact.is_empty() && next.inexact.is_empty() {
            prop_assert_ne!(to_vec(&a.value), to_vec(&next.value));
        }
    }
}
