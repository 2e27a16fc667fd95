use super::*;
use crate::base::code::Code;
use crate::draft::record::Preview;

fn card(tool: &str, body: &str) -> Result<Preview, Refusal> {
    json(&with_tool("", "{method: POST, path: '/t/{id}'}", tool), "POST", "/t/a%20b?page=2&page=3", body)
        .map(|p| p.preview)
}

#[test]
fn the_plain_card_shows_every_arg_with_its_place() {
    let preview =
        card("", r#"{"to": "p\u0430ypal", "n": 9007199254740993, "o": {"x": [1.0, null, "a\nb"]}, "$b": true}"#)
            .unwrap();
    insta::assert_debug_snapshot!(preview);
    let preview = card("", "[1, 2]").unwrap();
    assert_eq!(preview.details[0].key, "$body (body)");
}

const SECRET: &str = r#"
    args:
      schema:
        type: object
        additionalProperties: false
        properties:
          id: {type: string}
          page: {type: array, items: {type: string}, in: query}
          card: {type: object, additionalProperties: false, properties: {number: {type: string}, name: {type: string}}}
          pin: {type: integer}
          memo: {type: string}
    preview:
      title: "Pay {{ args.card.number }} {{ args.card }}"
      details: [{key: pin, value: "{{ args.pin }}{% if args.pin == 1234 %}!{% endif %}"}]
    secret: [/card/number, /pin, /page]
    summary: "{{ args.pin }} {{ args.card.number }}"
"#;

#[test]
fn secret_args_are_masked_wherever_they_are_shown() {
    let set = with_tool("", "{method: POST, path: '/t/{id}'}", SECRET.trim_start_matches('\n'));
    let body = r#"{"card": {"number": "4111-hunter2", "name": "n"}, "pin": 1234, "memo": "m"}"#;
    let prepared = json(&set, "POST", "/t/7?page=hunter2", body).unwrap();
    let shown = format!("{:?}", prepared.preview);
    assert!(!shown.contains("hunter2") && !shown.contains("1234"), "{shown}");
    insta::assert_debug_snapshot!(prepared.preview);
    let tool = &set.services[0].tools[0];
    let masked = tool.masked(&prepared.args).to_string();
    assert!(!masked.contains("hunter2") && !masked.contains("1234"), "{masked}");
    assert_eq!(tool.summarise(&prepared.args, None, 200), "*** ***");
    let other = json(&set, "POST", "/t/7?page=hunter3", body).unwrap();
    assert_ne!(other.args_hash, prepared.args_hash, "masked, and bound all the same");
}

#[test]
fn an_arg_that_no_template_names_stands_on_the_card_all_the_same() {
    let tool = "    args: {schema: {type: object, additionalProperties: false, properties: {id: {type: string}, page: {type: array, items: {type: integer}}, a: {type: string}, b: {type: integer}}}}\n    preview: {title: 'Do {{ args.a }}'}\n";
    let preview = card(tool, r#"{"a": "x", "b": 5}"#).unwrap();
    let keys: Vec<&str> = preview.details.iter().map(|d| d.key.as_str()).collect();
    assert_eq!(keys, ["b", "id", "page"]);
    assert_eq!(preview.target, "http://up.example/base/t/a%20b?page=2&page=3");
}

#[test]
fn a_number_that_cannot_be_compared_exactly_leaves_no_card() {
    let tool = |title: &str| {
        format!(
            "    args: {{schema: {{type: object, additionalProperties: false, properties: {{id: {{type: string}}, page: {{type: array, items: {{type: integer}}}}, n: {{type: number}}}}}}}}\n    preview: {{title: '{title}'}}\n"
        )
    };
    let body = r#"{"n": 9007199254740993}"#;
    assert_eq!(card(&tool("Send {{ args.n }}"), body).unwrap().title, "Send 9007199254740993");
    for judging in [
        "{% if args.n > 5 %}much{% endif %}",
        "{{ args.n + 1 }}",
        "{{ args.n | int }}",
        "{{ 1 if args.n == 3 else 2 }}",
    ] {
        let refusal = card(&tool(judging), body).unwrap_err();
        assert_eq!(refusal.code, Code::PreviewIncomplete, "{judging}");
        assert!(card(&tool(judging), r#"{"n": 7}"#).is_ok(), "{judging}");
    }
}

#[test]
fn a_card_that_cannot_be_made_holds_nothing() {
    let tool = "    args: {schema: {type: object, additionalProperties: false, properties: {id: {type: string}, page: {type: array, items: {type: integer}}, l: {type: array, items: {type: integer}}}}}\n    preview: {title: '{% for x in args.l %}{{ x }}{% endfor %}'}\n";
    let long = format!("{{\"l\": [{}]}}", vec!["1"; 60_000].join(","));
    assert_eq!(card(tool, &long).unwrap_err().code, Code::PreviewIncomplete);
    assert!(card(tool, r#"{"l": [1, 2]}"#).is_ok());
}

#[test]
fn every_part_of_a_card_is_bounded_and_says_so() {
    let many: Vec<String> = (0..300).map(|n| format!("\"k{n}\": \"{}\"", "y".repeat(3_000))).collect();
    let preview = card("", &format!("{{{}}}", many.join(","))).unwrap();
    assert_eq!(preview.details.len(), 101);
    assert_eq!(preview.details.last().unwrap().value, "202 more, complete in the full view");
    let long = &preview.details[1].value;
    assert!(long.ends_with("(3000 characters, complete in the full view)"), "{long}");
}

#[test]
fn conditions_that_the_agent_set_stand_on_the_card() {
    let set = with_tool("", "{method: POST, path: /t}", "");
    let prepared = judged(&set, head("POST", "/t", &[("If-Match", "\"3\"")]), b"", &who()).unwrap();
    assert_eq!(prepared.preview.details[0].key, "if-match (header)");
}
