#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn read(text: &str) -> Value {
    let parsed = parse(text.as_bytes()).unwrap();
    assert_eq!(parsed.inexact, [], "{text}");
    parsed.value
}

fn inexact(text: &str) -> Vec<(String, String)> {
    parse(text.as_bytes()).unwrap().inexact.into_iter().map(|found| (found.pointer, found.text)).collect()
}

fn why(bytes: &[u8]) -> &'static str {
    parse(bytes).unwrap_err().why
}

#[test]
fn plain_documents_are_read() {
    assert_eq!(
        read(" {\"a\" : [1, -2.5e3 ,true,false,null,\"x\"],\r\n\t\"b\":{}, \"\":[]} "),
        json!({"a": [1, -2500, true, false, null, "x"], "b": {}, "": []})
    );
    for scalar in ["null", "true", "\"\"", "0", "[]", "{}"] {
        assert_eq!(read(scalar), serde_json::from_str::<Value>(scalar).unwrap());
    }
    assert_eq!(read(r#""\"\\\/\b\f\n\r\t\u0041\u00e9\ud83d\ude02\uFFFF""#), json!("\"\\/\u{8}\u{c}\n\r\tAé😂\u{ffff}"));
    assert_eq!(read("\"待办\u{7f}\""), json!("待办\u{7f}"));
}

#[test]
fn p2_duplicate_names_are_refused_in_any_spelling_at_any_depth() {
    for text in [
        r#"{"to":"acct_ok","amount":5,"to":"acct_evil"}"#,
        r#"{"a":{"x":1,"x":2}}"#,
        r#"{"to":1,"\u0074o":2}"#,
        r#"[[{"\ud83d\ude02":1,"😂":1}]]"#,
        r#"{"":1,"":1}"#,
    ] {
        let malformed = parse(text.as_bytes()).unwrap_err();
        assert_eq!(malformed.why, "a name stands twice in one object", "{text}");
        assert_eq!(text.as_bytes()[malformed.offset], b'"');
    }
    assert!(parse(br#"{"a":1,"A":2,"b":{"a":3}}"#).is_ok());
}

#[test]
fn p2_text_that_is_not_unicode_is_refused_and_never_replaced() {
    for text in [
        r#"{"note":"\ud800"}"#,
        r#"{"note":"\ud800\ud800"}"#,
        r#"{"\udead":1}"#,
        r#""\udc00\ud800""#,
        r#""\ud83dx""#,
        r#""\ud83d\n""#,
    ] {
        assert_eq!(why(text.as_bytes()), "a lone surrogate stands in a string", "{text}");
    }
    for bytes in [&b"\"\xed\xa0\x80\""[..], b"\"\xc0\xaf\"", b"\"\xff\"", b"{\"\xfe\":1}", b"\xff\xfe{\0}\0"] {
        assert_eq!(why(bytes), "it is not valid UTF-8");
    }
    assert_eq!(why(b"\xef\xbb\xbf{}"), "it begins with a byte order mark");
    assert!(parse(&"{\"amount\":5}".encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>()).is_err());
}

#[test]
fn what_is_not_json_is_refused() {
    for text in [
        "",
        " \n",
        "{",
        "[",
        "[1",
        "[1,",
        "[1,]",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":1",
        "{\"a\":1,",
        "{\"a\":1,}",
        "{a:1}",
        "{'a':1}",
        "{1:1}",
        "[,1]",
        "[1 2]",
        "{\"a\" 1}",
        "{\"a\":1 \"b\":2}",
        "{}{}",
        "{} x",
        "1 2",
        "null,",
        "]",
        "}",
        "tru",
        "True",
        "nul",
        "NaN",
        "Infinity",
        "-Infinity",
        "-",
        "+1",
        ".5",
        "1.",
        "1.e5",
        "1e",
        "1e+",
        "01",
        "-01",
        "00",
        "0x10",
        "1_000",
        "0b1",
        "1e5.5",
        "--1",
        "// x\n1",
        "1 // x",
        "/* x */ 1",
        "[1 /* x */]",
        "\"",
        "\"a",
        "\"\\",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"\\U0041\"",
        "\"a\nb\"",
        "\"a\tb\"",
        "\"\u{0}\"",
        "\"\u{1f}\"",
        "\u{a0}1",
        "\u{2028}1",
        "undefined",
        "'a'",
        "`a`",
        "{\"a\":1}\0",
        "amount=5",
    ] {
        assert!(parse(text.as_bytes()).is_err(), "{text:?}");
    }
    let refusal = Refusal::from(parse(b"[1,]").unwrap_err());
    assert_eq!((refusal.code, refusal.detail.contains("byte 3")), (Code::BodyMalformed, true));
}

#[test]
fn nesting_is_bounded_and_quickly_refused() {
    let nested = |n: usize| format!("{{\"x\":{}{}}}", "[".repeat(n), "]".repeat(n));
    assert!(parse(nested(100).as_bytes()).is_ok());
    assert!(parse(nested(DEPTH_MAX - 1).as_bytes()).is_ok());
    for n in [DEPTH_MAX, 127, 128, 1000, 100_000] {
        assert_eq!(why(nested(n).as_bytes()), "it is nested more than 110 deep");
    }
    let begun = Instant::now();
    assert_eq!(why("[".repeat(100_000).as_bytes()), "it is nested more than 110 deep");
    assert_eq!(why("{\"a\":".repeat(200_000).as_bytes()), "it is nested more than 110 deep");
    assert!(begun.elapsed() < Duration::from_secs(5), "linear, whatever the machine");
}

#[test]
fn documents_that_would_fill_memory_are_refused() {
    let objects = format!("[{}{{\"a\":1}}]", "{\"a\":1},".repeat(60_000));
    assert_eq!(why(objects.as_bytes()), "it has too many values");
    assert!(parse(format!("[{}1]", "1,".repeat(500_000)).as_bytes()).is_ok());
    let big = "9007199254740993,".repeat(INEXACT_MAX);
    assert!(parse(format!("[{big}1]").as_bytes()).is_ok());
    assert_eq!(
        why(format!("[{big}9007199254740993]").as_bytes()),
        "it has too many numbers that no double holds exactly"
    );
    let long_name = "n".repeat(100_000);
    let multiplied = format!("{{\"{long_name}\":[9007199254740993,9007199254740993,9007199254740993]}}");
    assert_eq!(why(multiplied.as_bytes()), "it has too many numbers that no double holds exactly");
}

#[test]
fn one_number_has_one_value_however_it_is_written() {
    for text in ["10", "10.0", "10.00", "1e1", "1E+1", "100e-1", "0.1e2"] {
        assert_eq!(read(text), json!(10), "{text}");
        assert!(read(text).is_i64(), "{text}");
    }
    for text in ["0", "-0", "0.0", "-0.0", "0e5", "0e999999999999999999999", "-0e-5"] {
        assert_eq!(read(text), json!(0), "{text}");
    }
    assert_eq!(read("9007199254740992"), read("9.007199254740992e15"));
    assert_eq!(read("100000000000000000000"), read("1e20"));
    assert_eq!(read("10000000000000000000"), json!(10_000_000_000_000_000_000_u64));
    assert_eq!(read("0.1"), json!(0.1));
    assert_eq!(read("1.7976931348623157e308"), json!(f64::MAX));
    assert_eq!(read("5e-324"), json!(5e-324));
    assert_eq!(read("333333333.3333333"), json!(333_333_333.333_333_3));
}

#[test]
fn p2_texts_that_are_not_exactly_their_double_are_named() {
    let cases = r#"{"a":[1,{"b/c~d":9007199254740993}],"e":0.1000000000000000055,"f":18446744073709551617,"g":2.5}"#;
    let found = inexact(cases);
    assert_eq!(
        found,
        [
            ("/a/1/b~1c~0d".to_owned(), "9007199254740993".to_owned()),
            ("/e".to_owned(), "0.1000000000000000055".to_owned()),
            ("/f".to_owned(), "18446744073709551617".to_owned()),
        ]
    );
    for text in [
        "18446744073709551616",
        "12345678901234567890",
        "-9007199254740993",
        "1e-400",
        "-1e-400",
        "333333333.33333329",
        "0.30000000000000004441",
        "123456789012345678",
        "4.9e-324",
        "1.00000000000000000001",
        "9223372036854775807",
    ] {
        assert_eq!(inexact(text), [(String::new(), text.to_owned())], "{text}");
    }
    assert_eq!(parse(b"9007199254740993").unwrap().value, json!(9_007_199_254_740_993_u64));
    assert_eq!(parse(b"-9007199254740993").unwrap().value, json!(-9_007_199_254_740_993_i64));
    assert_eq!(parse(b"18446744073709551617").unwrap().value, json!(18_446_744_073_709_551_616.0));
}

#[test]
fn numbers_beyond_a_double_are_refused() {
    for text in ["1e400", "-1e400", "1.8e308", "1e99999999999999999999", &"9".repeat(400), "[1,1e309]"] {
        assert_eq!(why(text.as_bytes()), "a number is beyond the range of a double", "{text}");
    }
}

proptest! {
    /// Whatever bytes come, the reader answers; what it takes, the usual reader takes as well.
    #[test]
    fn never_more_lenient_than_the_usual_reader(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        if parse(&bytes).is_ok() {
            prop_assert!(serde_json::from_slice::<Value>(&bytes).is_ok());
        }
    }

    #[test]
    fn never_more_lenient_on_almost_json(
        tokens in prop::collection::vec(prop::sample::select(vec![
            "{", "}", "[", "]", ",", ":", "\"a\":", "\"\\u0061\":", "\"b\"", "\"\\ud83d\\ude02\"", "\"\\ud83d\"", "1", "-0", "0", ".5",
            "1e5", "E1", "-", "true", "null", " ", "\n", "/", "\u{feff}",
        ]), 0..10),
    ) {
        let text = tokens.concat();
        let usual = serde_json::from_str::<Value>(&text);
        match parse(text.as_bytes()) {
            Ok(parsed) => {
                let usual = usual.unwrap();
                prop_assert_eq!(crate::call::canonical::to_vec(&parsed.value), crate::call::canonical::to_vec(&usual));
            }
            Err(malformed) => prop_assert!(usual.is_err() || malformed.why == "a name stands twice in one object"),
        }
    }

    /// The double of a text is the nearest one, and exactness is what its print says.
    #[test]
    fn doubles_are_the_nearest(text in r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,2})?") {
        let parsed = parse(text.as_bytes()).unwrap();
        let nearest: f64 = text.parse().unwrap();
        prop_assert_eq!(parsed.value.as_f64().unwrap(), nearest);
        let print = String::from_utf8(crate::call::canonical::to_vec(&parsed.value)).unwrap();
        prop_assert!(parse(print.as_bytes()).unwrap().inexact.is_empty());
    }
}
