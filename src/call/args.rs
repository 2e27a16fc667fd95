//! A call understood as args: values from path, query and body, each with its place.
//!
//! Owns where an arg comes from and what happens when a name stands in two places. Must never
//! judge an arg against a schema, and never change what is sent.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::base::code::Code;
use crate::base::refusal::Refusal;
use crate::draft::record::BodyKind;

use super::coding::Coding;
use super::head::{self, Head};
use super::json::push_pointer_token;
use super::media::{self, ContentType, Kind};
use super::{canonical, form, json, multipart, query};

#[cfg(test)]
mod tests;

/// Where an arg stands in the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// A `{name}` of the path template.
    Path,
    /// The query string.
    Query,
    /// A member of a JSON object, or a form or multipart field.
    Body,
}

impl Place {
    const fn in_words(self) -> &'static str {
        match self {
            Self::Path => "the path",
            Self::Query => "the query",
            Self::Body => "the body",
        }
    }
}

/// A number whose text is not exactly its double.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inexact {
    /// JSON Pointer into the args.
    pub pointer: String,
    /// The text as it came.
    pub text: String,
}

/// The args of a call before aliases and preparation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Args {
    /// Name to value. A JSON body that is no object is the arg `$body`. Values from path, query and
    /// forms are strings; a repeated name is an array of them.
    pub values: Map<String, Value>,
    /// Name to place; every name of `values` has one.
    pub places: BTreeMap<String, Place>,
    /// Numbers whose exact text the card must show and whose body the envelope must bind.
    pub inexact: Vec<Inexact>,
    /// Whether the body says something that the args do not (opaque bodies, inexact numbers, parts
    /// with types or headers of their own): the envelope then binds the body's digest. A file of a
    /// multipart body stands in the args with its digest and binds nothing more.
    pub body_bound: bool,
}

/// A call that was read and understood.
#[derive(Debug, Clone)]
pub struct Call {
    /// The head.
    pub head: Head<'static>,
    /// The body exactly as the agent sent it (still content-coded, without chunk framing).
    pub body: Bytes,
    /// What kind of body.
    pub kind: BodyKind,
    /// The args.
    pub args: Args,
}

/// Bounds on a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyLimits {
    /// Longest body as it is sent, in bytes (`max_body`).
    pub body_bytes_max: usize,
}

impl BodyLimits {
    /// Longest body once its content coding is taken off, in bytes.
    #[must_use]
    pub const fn decoded_bytes_max(&self) -> usize {
        self.body_bytes_max.saturating_mul(8)
    }
}

/// The name of the arg that a JSON body stands for when it is no object.
pub const WHOLE_BODY: &str = "$body";

/// Reads a call as args. `path_params` are those of the template that matched;
/// `body_is_args: false` leaves the body unread, whatever its type.
///
/// A name that stands in two places with equal values keeps its first place, in the order path,
/// query, body; a string and a number or boolean are equal if the string is how JSON prints it.
///
/// # Errors
///
/// - `BODY_TOO_LARGE`: longer than the limits, as sent or decoded.
/// - `BODY_MALFORMED`: not what its type says; an empty body of a JSON type.
/// - `MEDIA_TYPE_UNSUPPORTED`: a charset, content coding or media type that cannot be read.
/// - `REQUEST_AMBIGUOUS`: batches, method overrides, a query that does not decode.
/// - `ARGS_INVALID`: a name with different values in two places, or the reserved name `$body`.
pub fn understand(
    head: Head<'static>,
    body: Bytes,
    path_params: &[(String, String)],
    limits: &BodyLimits,
    body_is_args: bool,
) -> Result<Call, Refusal> {
    if body.len() > limits.body_bytes_max {
        let detail =
            format!("The body is longer than {} bytes. Nothing was sent; send less at once.", limits.body_bytes_max);
        return Err(Refusal::new(Code::BodyTooLarge, detail));
    }
    if head.path.ends_in("$batch") {
        return Err(batch());
    }
    let mut gathered = Gathered::default();
    let path = path_params.iter().map(|(name, value)| (name.clone(), Value::String(value.clone())));
    gathered.add(Place::Path, path);
    let fields = query::parse(head.query.as_deref().unwrap_or_default())?;
    gathered.add(Place::Query, query::collect(strings(fields)));
    let read = read_body(&head, &body, limits, body_is_args)?;
    if read.members.keys().any(|name| head::is_method_override(name)) {
        return Err(head::override_parameter());
    }
    let reserved = gathered.has(WHOLE_BODY) || (!read.whole && read.members.contains_key(WHOLE_BODY));
    if reserved {
        let refusal =
            Refusal::new(Code::ArgsInvalid, "The name `$body` is reserved for a body that is no JSON object.");
        return Err(refusal.with_error("/$body", "is reserved"));
    }
    gathered.add(Place::Body, read.members);
    let mut args = gathered.finish()?;
    args.body_bound = read.bound || !read.inexact.is_empty();
    args.inexact = read.inexact;
    Ok(Call { head, body, kind: read.kind, args })
}

fn strings(fields: Vec<(String, String)>) -> impl Iterator<Item = (String, Value)> {
    fields.into_iter().map(|(name, value)| (name, Value::String(value)))
}

fn batch() -> Refusal {
    let detail =
        "A batch of requests in one body cannot be judged as one call. Nothing was sent; send them one by one.";
    Refusal::new(Code::RequestAmbiguous, detail)
}

/// How many names with two values a refusal lists.
const CONFLICTS_MAX: usize = 32;

/// Args of several places.
#[derive(Default)]
struct Gathered {
    args: Args,
    conflicts: Vec<(String, Place, Place)>,
}

impl Gathered {
    fn has(&self, name: &str) -> bool {
        self.args.values.contains_key(name)
    }

    fn add(&mut self, place: Place, values: impl IntoIterator<Item = (String, Value)>) {
        for (name, value) in values {
            match self.args.values.get(&name) {
                None => {
                    self.args.places.insert(name.clone(), place);
                    self.args.values.insert(name, value);
                }
                Some(first) if same(first, &value) => {}
                Some(_) => {
                    let first = self.args.places.get(&name).copied().unwrap_or(place);
                    self.conflicts.push((name, first, place));
                }
            }
        }
    }

    fn finish(self) -> Result<Args, Refusal> {
        if self.conflicts.is_empty() {
            return Ok(self.args);
        }
        let detail = "An argument stands in two places with different values. Nothing was sent; send it once.";
        let refusal = Refusal::new(Code::ArgsInvalid, detail);
        Err(self.conflicts.into_iter().take(CONFLICTS_MAX).fold(refusal, |refusal, (name, first, second)| {
            let mut pointer = "/".to_owned();
            push_pointer_token(&mut pointer, &name);
            let reason = format!("stands in {} and in {} with different values", first.in_words(), second.in_words());
            refusal.with_error(pointer, reason)
        }))
    }
}

/// Whether two values of one name are one: a string of path, query or form and the number or
/// boolean that it spells count as one.
fn same(first: &Value, second: &Value) -> bool {
    match (first, second) {
        (Value::String(text), Value::Number(_) | Value::Bool(_)) => canonical::to_vec(second) == text.as_bytes(),
        (Value::Number(_) | Value::Bool(_), Value::String(_)) => same(second, first),
        _ => canonical::to_vec(first) == canonical::to_vec(second),
    }
}

/// What was read from a body.
struct Read {
    kind: BodyKind,
    members: Map<String, Value>,
    inexact: Vec<Inexact>,
    bound: bool,
    /// Whether `members` is the one arg [`WHOLE_BODY`].
    whole: bool,
}

impl Read {
    fn of(kind: BodyKind, members: Map<String, Value>) -> Self {
        Self { kind, members, inexact: Vec::new(), bound: kind == BodyKind::Opaque, whole: false }
    }
}

fn read_body(head: &Head<'_>, body: &Bytes, limits: &BodyLimits, body_is_args: bool) -> Result<Read, Refusal> {
    let content_type = ContentType::of(&head.headers)?;
    let coding = Coding::of(&head.headers)?;
    let kind = content_type.as_ref().map_or(Ok(Kind::Opaque), ContentType::kind)?;
    if body.is_empty() {
        return match kind {
            Kind::Json if body_is_args => Err(empty_json()),
            _ => Ok(Read::of(BodyKind::None, Map::new())),
        };
    }
    // Also a body that nobody here reads must be what its coding says: the upstream decodes it.
    let decoded = coding.decode(body, limits.decoded_bytes_max())?;
    if !body_is_args || kind == Kind::Opaque {
        return Ok(Read::of(BodyKind::Opaque, Map::new()));
    }
    match kind {
        Kind::Json => read_json(&decoded),
        Kind::Form => {
            let fields = form::parse(&decoded)?;
            let members = query::collect(strings(fields));
            check_charset_field(&members)?;
            Ok(Read::of(BodyKind::Form, members))
        }
        Kind::Multipart(boundary) => {
            let parts = multipart::parse(&decoded, &boundary)?;
            let members = query::collect(parts.fields);
            check_charset_field(&members)?;
            Ok(Read { bound: parts.body_bound, ..Read::of(BodyKind::Multipart, members) })
        }
        Kind::Opaque => Ok(Read::of(BodyKind::Opaque, Map::new())),
    }
}

fn empty_json() -> Refusal {
    let detail = "The body is empty but its type says JSON. Nothing was sent; send JSON, or no `Content-Type`.";
    Refusal::new(Code::BodyMalformed, detail)
}

fn read_json(decoded: &[u8]) -> Result<Read, Refusal> {
    let parsed = json::parse(decoded)?;
    let (members, prefix) = match parsed.value {
        Value::Object(members) => (members, ""),
        other => {
            if is_json_rpc_batch(&other) {
                return Err(batch());
            }
            (Map::from_iter([(WHOLE_BODY.to_owned(), other)]), "/$body")
        }
    };
    let inexact =
        parsed.inexact.into_iter().map(|found| Inexact { pointer: format!("{prefix}{}", found.pointer), ..found });
    Ok(Read { inexact: inexact.collect(), whole: !prefix.is_empty(), ..Read::of(BodyKind::Json, members) })
}

/// An array of which any element looks like a JSON-RPC request: it has a member `jsonrpc`, or, as
/// in version 1.0, all of `method`, `params` and `id`.
fn is_json_rpc_batch(value: &Value) -> bool {
    let has = |element: &Value, name: &str| element.get(name).is_some();
    value.as_array().is_some_and(|elements| {
        elements
            .iter()
            .any(|element| has(element, "jsonrpc") || ["method", "params", "id"].iter().all(|name| has(element, name)))
    })
}

/// A form can name its own charset in the field `_charset_` (HTML 5): then it has to be UTF-8.
fn check_charset_field(members: &Map<String, Value>) -> Result<(), Refusal> {
    match members.get("_charset_") {
        Some(Value::String(charset)) if media::is_utf8(charset) => Ok(()),
        Some(_) => Err(media::unsupported("its field `_charset_` names another charset than UTF-8")),
        None => Ok(()),
    }
}
