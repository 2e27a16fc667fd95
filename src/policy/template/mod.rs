//! Templates of cards, summaries and injected headers.
//!
//! Owns compiling and rendering, both bounded: a small part of the language, fuel, output size.
//! Must never put a value into an error, and never print a value without making it visible.

pub(super) mod check;
mod node;

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::io;
use std::sync::{Arc, LazyLock};

use minijinja::value::{DynObject, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Output, State, UndefinedBehavior};
use serde_json::{Map, Value as Json};

use self::node::Node;
use super::schema::{Step, child};
use super::visible::{bounded, marked};

/// Instructions that one rendering may take.
const FUEL: u64 = 50_000;
/// Longest output of one rendering in bytes.
const OUTPUT_BYTES_MAX: usize = 64 << 10;
/// Longest value that one `{{ … }}` prints, in characters.
pub(super) const VALUE_CHARS_MAX: usize = 2_000;
/// What an absent value prints as.
pub(super) const ABSENT: &str = "—";
/// What a secret value prints as.
pub(super) const MASKED: &str = "***";

const NAME: &str = "template";

/// A compiled template. Cheap to clone.
#[derive(Clone)]
pub struct Template(Arc<Compiled>);

struct Compiled {
    environment: Environment<'static>,
    source: String,
    uses: Vec<Use>,
}

/// One value that a template reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Use {
    /// The name of the root, `args`.
    pub(super) root: String,
    /// The way from the root.
    pub(super) path: Vec<Step>,
    /// Whether the value is only printed, and not compared, counted or changed.
    pub(super) printed: bool,
}

/// Why a template gave no text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RenderFailed;

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Template({:?})", self.0.source)
    }
}

impl PartialEq for Template {
    fn eq(&self, other: &Self) -> bool {
        self.0.source == other.0.source
    }
}

/// A compiled card.
#[derive(Debug, Clone, PartialEq)]
pub struct PreviewTemplate {
    /// What is done.
    pub(super) title: Template,
    /// What it is done to.
    pub(super) target: Option<Template>,
    /// What will be different.
    pub(super) impact: Option<Template>,
    /// Other values: label and template.
    pub(super) details: Vec<(String, Template)>,
}

impl PreviewTemplate {
    /// Every template of the card.
    pub(super) fn templates(&self) -> impl Iterator<Item = &Template> {
        let details = self.details.iter().map(|(_, template)| template);
        [&self.title].into_iter().chain(&self.target).chain(&self.impact).chain(details)
    }
}

static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(environment);

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Chainable);
    environment.set_fuel(Some(FUEL));
    environment.set_debug(false);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_formatter(print);
    environment
}

impl Template {
    /// Compiles a template that [`check`] has looked at.
    ///
    /// # Errors
    ///
    /// The reason, without the template's text.
    pub(super) fn compile(source: &str, uses: Vec<Use>) -> Result<Self, String> {
        let mut environment = ENVIRONMENT.clone();
        let added = environment.add_template_owned(NAME, source.to_owned());
        added.map_err(|error| reason(&error))?;
        Ok(Self(Arc::new(Compiled { environment, source: source.to_owned(), uses })))
    }

    /// What it reads.
    pub(super) fn uses(&self) -> &[Use] {
        &self.0.uses
    }

    /// Renders over `roots`. Values are printed visible and marked.
    pub(super) fn render(&self, roots: &Roots) -> Result<String, RenderFailed> {
        let template = self.0.environment.get_template(NAME).map_err(|_| RenderFailed)?;
        let mut out = Bounded(Vec::new());
        template.render_captured_to(roots.0.clone(), &mut out).map_err(|_| RenderFailed)?;
        String::from_utf8(out.0).map_err(|_| RenderFailed)
    }

    /// Renders for a header: as [`Self::render`], but values are not marked, and an absent value
    /// is an error.
    pub(super) fn render_plain(&self, values: &BTreeMap<&str, String>) -> Result<String, RenderFailed> {
        if self.uses().iter().any(|used| !values.contains_key(used.root.as_str())) {
            return Err(RenderFailed);
        }
        let template = self.0.environment.get_template(NAME).map_err(|_| RenderFailed)?;
        let roots: BTreeMap<String, Value> =
            values.iter().map(|(name, value)| ((*name).to_owned(), Value::from_safe_string(value.clone()))).collect();
        let mut out = Bounded(Vec::new());
        template.render_captured_to(Value::from(roots), &mut out).map_err(|_| RenderFailed)?;
        String::from_utf8(out.0).map_err(|_| RenderFailed)
    }
}

/// The reason of a template error, without the template's text or any value.
pub(super) fn reason(error: &Error) -> String {
    error.detail().map_or_else(|| error.kind().to_string(), str::to_owned)
}

/// The values that a template may read.
#[derive(Debug, Clone)]
pub(super) struct Roots(Value);

impl Roots {
    pub(super) fn new(values: impl IntoIterator<Item = (&'static str, Value)>) -> Self {
        let values: BTreeMap<String, Value> = values.into_iter().map(|(name, v)| (name.to_owned(), v)).collect();
        Self(Value::from(values))
    }
}

/// JSON as a template value.
pub(super) fn value_of(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(value) => Value::from(*value),
        Json::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(value), _, _) => Value::from(value),
            (None, Some(value), _) => Value::from(value),
            (None, None, value) => Value::from(value.unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => Value::from(items.iter().map(value_of).collect::<Vec<_>>()),
        Json::Object(members) => value_of_members(members),
    }
}

/// [`value_of`] without a copy: objects and arrays stay where they are.
pub(super) fn value_in(json: &Arc<Json>) -> Value {
    Node::value(json)
}

fn value_of_members(members: &Map<String, Json>) -> Value {
    let members = members.iter().map(|(name, member)| (name.clone(), value_of(member)));
    Value::from(members.collect::<BTreeMap<String, Value>>())
}

/// [`value_of`] of the object at `pointer`; `replaced` gives the text that stands in for
/// the value at a pointer.
pub(super) fn value_with(
    members: &Map<String, Json>,
    pointer: &str,
    replaced: &dyn Fn(&str) -> Option<String>,
) -> Value {
    let members =
        members.iter().map(|(name, member)| (name.clone(), one_with(member, &child(pointer, name), replaced)));
    Value::from(members.collect::<BTreeMap<String, Value>>())
}

fn one_with(json: &Json, pointer: &str, replaced: &dyn Fn(&str) -> Option<String>) -> Value {
    match (replaced(pointer), json) {
        (Some(text), _) => Value::from(text),
        (None, Json::Array(items)) => {
            let items = items.iter().enumerate();
            Value::from(items.map(|(i, item)| one_with(item, &format!("{pointer}/{i}"), replaced)).collect::<Vec<_>>())
        }
        (None, Json::Object(members)) => value_with(members, pointer, replaced),
        (None, leaf) => value_of(leaf),
    }
}

/// Collects output up to its bound.
struct Bounded(Vec<u8>);

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > OUTPUT_BYTES_MAX {
            return Err(io::Error::other("the output is longer than its bound"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How `{{ … }}` prints: absent as a dash, texts visible and marked, everything else as JSON.
fn print(out: &mut Output, _state: &mut State, value: &Value) -> Result<(), Error> {
    let text = match value.kind() {
        ValueKind::Undefined => ABSENT.to_owned(),
        // Header values were checked already and go out byte for byte.
        ValueKind::String if value.is_safe() => value.as_str().unwrap_or_default().to_owned(),
        ValueKind::String => bounded(marked(value.as_str().unwrap_or_default()), VALUE_CHARS_MAX),
        ValueKind::Invalid => return Err(Error::new(ErrorKind::InvalidOperation, "a value is invalid")),
        _ => {
            let mut json = String::new();
            write_json(value, &mut json)?;
            bounded(marked(&json), VALUE_CHARS_MAX)
        }
    };
    out.write_str(&text).map_err(Error::from)
}

fn write_json(value: &Value, out: &mut String) -> Result<(), Error> {
    if out.len() > OUTPUT_BYTES_MAX {
        return Err(too_long());
    }
    if let Some(node) = value.downcast_object_ref::<Node>() {
        return write_node(node.json(), out);
    }
    match value.kind() {
        ValueKind::None | ValueKind::Undefined => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => write_number(value, out)?,
        ValueKind::String => write_text(value.as_str().unwrap_or_default(), out),
        ValueKind::Map => {
            out.push('{');
            let members = value.as_object().and_then(DynObject::try_iter_pairs);
            for (index, (key, member)) in members.into_iter().flatten().enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                write_json(&key, out)?;
                out.push_str(": ");
                write_json(&member, out)?;
            }
            out.push('}');
        }
        ValueKind::Seq | ValueKind::Iterable => {
            out.push('[');
            for (index, item) in value.try_iter()?.enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                write_json(&item, out)?;
            }
            out.push(']');
        }
        _ => write!(out, "{value}").map_err(Error::from)?,
    }
    Ok(())
}

/// [`write_json`] of what needs not become a template value first.
fn write_node(json: &Json, out: &mut String) -> Result<(), Error> {
    if out.len() > OUTPUT_BYTES_MAX {
        return Err(too_long());
    }
    match json {
        Json::String(text) => write_text(text, out),
        Json::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                write_node(item, out)?;
            }
            out.push(']');
        }
        Json::Object(members) => {
            out.push('{');
            for (index, (name, member)) in members.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                write_text(name, out);
                out.push_str(": ");
                write_node(member, out)?;
            }
            out.push('}');
        }
        Json::Number(number) if number.is_f64() => {
            out.push_str(ryu_js::Buffer::new().format(number.as_f64().unwrap_or(f64::NAN)));
        }
        leaf => write!(out, "{leaf}").map_err(Error::from)?,
    }
    Ok(())
}

fn too_long() -> Error {
    Error::new(ErrorKind::InvalidOperation, "a value is longer than its bound")
}

/// A text as JSON.
fn write_text(text: &str, out: &mut String) {
    // Without a way out of the loop, many bytes are looked at at once.
    let is_plain = text.bytes().fold(true, |plain, byte| plain & (byte >= 0x20) & (byte != b'"') & (byte != b'\\'));
    if is_plain {
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else {
        out.push_str(&Json::from(text).to_string());
    }
}

/// A number as the canonical form prints it.
fn write_number(value: &Value, out: &mut String) -> Result<(), Error> {
    if value.is_integer() {
        return write!(out, "{value}").map_err(Error::from);
    }
    match f64::try_from(value.clone()) {
        Ok(float) => out.push_str(ryu_js::Buffer::new().format(float)),
        Err(_) => write!(out, "{value}").map_err(Error::from)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn render(source: &str, args: &Json) -> Result<String, RenderFailed> {
        let roots = Roots::new([("args", value_of(args))]);
        Template::compile(source, Vec::new()).unwrap().render(&roots)
    }

    #[test]
    fn absent_prints_a_dash_and_is_false() {
        let args = json!({"a": null});
        assert_eq!(render("{{ args.x }}|{{ args.x.y.z }}", &args).unwrap(), "—|—");
        assert_eq!(render("{% if args.x %}a{% else %}b{% endif %}", &args).unwrap(), "b");
        assert_eq!(render("{{ args.x or 'none' }}", &args).unwrap(), "none");
        assert_eq!(render("{{ args.a }}|{{ args.a or 'none' }}", &args).unwrap(), "null|none");
    }

    #[test]
    fn values_print_as_json_and_texts_visible() {
        let args =
            json!({"s": "a\u{202e}b", "n": 10.0, "big": 1e21, "i": 3, "b": true, "l": [1, "x\n"], "o": {"k": null}});
        let shown = render(
            "{{ args.s }} {{ args.n }} {{ args.big }} {{ args.i }} {{ args.b }} {{ args.l }} {{ args.o }}",
            &args,
        );
        insta::assert_snapshot!(shown.unwrap(), @r#"a\u{202e}b 10 1e+21 3 true [1, "x\n"] {"k": null}"#);
    }

    #[test]
    fn values_in_place_are_what_their_copies_are() {
        let args = json!({
            "s": "a\u{202e}b\"", "n": 10.0, "f": 0.1, "big": 1e21, "u": u64::MAX, "b": true, "none": null,
            "l": [1, "x\n", [2.5], {"k": null, "a": "1"}], "o": {"k": {"z": [], "b": {}}},
        });
        let sources = [
            "{{ args }}|{{ args.l }}|{{ args.o }}|{{ args.l[2] }}|{{ args.l[3].a }}|{{ args.l[9] }}|{{ args.x.y }}",
            "{% for x in args.l %}{{ loop.index }}={{ x }};{% endfor %}",
            "{% for k in args.o %}{{ k }}{% endfor %}{% for k, v in args.o | items %}{{ k }}={{ v }}{% endfor %}",
            "{{ args.l | length }}{{ args | length }}{{ 'k' in args.o }}{{ 1 in args.l }}{{ args.l == args.l }}",
            "{% if args.o.k.z %}a{% else %}b{% endif %}{% if args.l %}a{% else %}b{% endif %}",
            "{{ args.l | first }}{{ args.l | last }}{{ args.l[:2] }}{{ args.l[-1] }}{{ args.none }}{{ args.u }}{{ args.f }}",
        ];
        for source in sources {
            let template = Template::compile(source, Vec::new()).unwrap();
            let copied = template.render(&Roots::new([("args", value_of(&args))])).unwrap();
            let in_place = template.render(&Roots::new([("args", value_in(&Arc::new(args.clone())))])).unwrap();
            assert_eq!(in_place, copied, "{source}");
        }
    }

    #[test]
    fn values_do_not_become_templates_or_markup() {
        let args = json!({"s": "{{ args.t }}<b>&amp;", "t": "secret"});
        assert_eq!(render("{{ args.s }}", &args).unwrap(), "{{ args.t }}<b>&amp;");
    }

    #[test]
    fn endless_and_huge_renderings_fail() {
        let list: Vec<u32> = (0..100_000).collect();
        assert_eq!(render("{% for x in args.l %}{{ x }}{% endfor %}", &json!({"l": list})), Err(RenderFailed));
        let texts = vec!["y".repeat(1900); 100];
        assert_eq!(render("{% for x in args.l %}{{ x }}{% endfor %}", &json!({"l": texts})), Err(RenderFailed));
        let long = render("{{ args.s }}", &json!({"s": "y".repeat(1 << 20)})).unwrap();
        assert!(long.ends_with("… (1048576 characters, complete in the full view)"), "{}", long.len());
    }
}
