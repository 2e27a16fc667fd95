//! A call that is asked for by the name of its tool, where there is no HTTP request to intercept.
//!
//! Owns how a tool's own match says where each arg stands: a parameter of the path there, `in: query` in
//! the query, the rest in a JSON body. What comes out is a request like one that was intercepted, and is
//! judged like one. Must never judge it, and never make a request that the match leaves open.

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};

use crate::base::code::Code;
use crate::base::refusal::{FieldError, Refusal};
use crate::call::args::{BodyLimits, Call, Place, understand};
use crate::call::head::Head;
use crate::call::media::{ContentType, Kind};
use crate::call::path::NormalPath;
use crate::call::{canonical, json};
use crate::draft::record::Effect;

use super::judge::{Selection, guided};
use super::matching::Asked;
use super::model::{CapabilityStatus, PolicySet, Service, Tool};
use super::rewrite::{Changes, Fate, encoded, object};
use super::schema::child;

/// A call that was made from a tool's name and args.
#[derive(Debug)]
pub struct Named<'p> {
    /// The tool's service.
    pub service: &'p Service,
    /// The tool that was named.
    pub tool: &'p Tool,
    /// What the made request selects: the tool, or a capability that refuses it.
    pub selection: Selection<'p>,
    /// The call.
    pub call: Call,
}

impl PolicySet {
    /// Makes the call of a write tool from its args, a JSON object as it was written. Numbers and
    /// whatever stands in the body keep their spelling.
    ///
    /// # Errors
    ///
    /// - `TOOL_NOT_FOUND`: no tool has this name, or it reads.
    /// - `CAPABILITY_PLANNED`, `CAPABILITY_FORBIDDEN`: with the guidance.
    /// - `REQUEST_INVALID`: the tool's match does not say which request to make.
    /// - `ARGS_INVALID`: no object, an arg that cannot stand where it belongs, or args whose request is
    ///   another tool's; `BODY_MALFORMED` for what is no JSON.
    /// - as [`Head::read`] and [`understand`].
    pub fn by_name(&self, name: &str, args: &str, body_bytes_max: usize) -> Result<Named<'_>, Refusal> {
        let (service, tool) = self.write_tool(name)?;
        let parsed = json::parse(args.as_bytes())?;
        let Value::Object(values) = parsed.value else {
            return Err(not_fitting(vec![mistake("", "has to be an object: the args by their names")]));
        };
        let shape = Shape::of(service, tool)?;
        let placed = shape.place_all(args, &values)?;
        let (head, body) = shape.request(placed)?;
        let hosts: Vec<&str> = shape.hosts.iter().map(String::as_str).collect();
        let routed = self.route(hosts.first().copied().unwrap_or_default(), head.path.as_str());
        if routed.is_none_or(|routed| routed.name != service.name) {
            return Err(open_match(tool, "its path is not among those of its service"));
        }
        let asked = Asked {
            method: head.method.as_str(),
            path: &head.path,
            hosts: &hosts,
            query: head.query.as_deref(),
            headers: &head.headers,
        };
        let selection = service.select_asked(&asked);
        let params = match &selection {
            Selection::Tool(selected, params) if selected.name == tool.name => params.clone(),
            // The judge refuses it, with its guidance.
            Selection::Capability(_) => Vec::new(),
            Selection::Tool(other, _) => return Err(another_tool(tool, Some(other))),
            Selection::UnmatchedRead | Selection::UnmatchedWrite => return Err(another_tool(tool, None)),
        };
        let limits = BodyLimits { body_bytes_max: tool.body_bytes_max.unwrap_or(body_bytes_max) };
        let call = understand(head, body.unwrap_or_default().into(), &params, &limits, true)?;
        Ok(Named { service, tool, selection, call })
    }

    fn write_tool(&self, name: &str) -> Result<(&Service, &Tool), Refusal> {
        let all = self.services.iter().flat_map(|service| service.tools.iter().map(move |tool| (service, tool)));
        let (service, tool) = all.into_iter().find(|(_, tool)| tool.name.as_str() == name).ok_or_else(|| {
            Refusal::new(Code::ToolNotFound, "No tool has this name. Nothing was held; ask for a declared tool.")
        })?;
        if tool.effect == Effect::Read {
            let detail =
                format!("`{name}` reads, and nobody has to confirm that. Nothing was held; send its request instead.");
            return Err(Refusal::new(Code::ToolNotFound, detail));
        }
        let refusing = service
            .capabilities
            .iter()
            .find(|known| tool.capability.as_ref() == Some(&known.id) && known.status != CapabilityStatus::Enabled);
        refusing.map_or(Ok((service, tool)), |capability| Err(guided(capability)))
    }
}

/// The request that a tool's match names, without its args.
struct Shape<'p> {
    tool: &'p Tool,
    method: &'p str,
    /// Whether the method takes no body.
    bodiless: bool,
    hosts: Vec<String>,
}

/// Args at their places.
#[derive(Default)]
struct Placed {
    /// Parameters of the path, percent-encoded.
    path: Vec<(String, String)>,
    /// Pieces of the query, percent-encoded.
    query: Vec<String>,
    /// The body, where there is one.
    body: Option<String>,
}

impl<'p> Shape<'p> {
    fn of(service: &'p Service, tool: &'p Tool) -> Result<Self, Refusal> {
        let rule = &tool.matches;
        let several = rule.methods.len() > 1;
        let mut methods = rule.methods.iter().filter(|method| !several || *method != "HEAD");
        let (Some(method), None) = (methods.next(), methods.next()) else {
            return Err(open_match(tool, "it may have one of several methods"));
        };
        if rule.path.has_rest() {
            return Err(open_match(tool, "its path is a pattern (`{/**}`) and no place for args"));
        }
        let both = |host: &&String| service.route.hosts.is_empty() || service.route.hosts.contains(*host);
        let named: Vec<String> = rule.hosts.iter().filter(both).cloned().collect();
        let hosts = if rule.hosts.is_empty() { service.route.hosts.clone() } else { named };
        let bodiless = matches!(method.as_str(), "GET" | "HEAD" | "OPTIONS");
        Ok(Self { tool, method, bodiless, hosts })
    }

    /// Where an arg of this name stands.
    fn place(&self, name: &str) -> Place {
        let rule = &self.tool.matches;
        if rule.path.params().any(|param| param == name) {
            return Place::Path;
        }
        let by_schema = self.tool.args.as_ref().is_some_and(|rules| {
            let target = rules.aliases.iter().find(|(alias, _)| alias == name).map(|(_, target)| target.as_str());
            rules.schema.in_query(target.unwrap_or(name))
        });
        let by_match = rule.query.iter().any(|(known, _)| known == name);
        if self.bodiless || by_schema || by_match { Place::Query } else { Place::Body }
    }

    /// Whether the tool has an arg that could stand in a body.
    fn has_body(&self) -> bool {
        let names = self.tool.args.iter().flat_map(|rules| rules.schema.names());
        names.into_iter().any(|name| self.place(name) == Place::Body)
    }

    fn place_all(&self, text: &str, values: &Map<String, Value>) -> Result<Placed, Refusal> {
        let mut placed = Placed::default();
        let mut elsewhere = Changes::default();
        let mut errors = Vec::new();
        for (quoted, raw) in json::members(text).unwrap_or_default() {
            let Ok(name) = serde_json::from_str::<String>(quoted) else { continue };
            let Some(value) = values.get(&name) else { continue };
            let done = match self.place(&name) {
                Place::Body => continue,
                Place::Path => segment(value, raw).map(|segment| placed.path.push((name.clone(), segment))),
                Place::Query => self.query_pieces(&name, value, raw).map(|pieces| placed.query.extend(pieces)),
            };
            errors.extend(done.err().map(|reason| mistake(&name, reason)));
            elsewhere.fates.insert(name, Fate::Removed);
        }
        let rule = &self.tool.matches;
        let missing = rule.path.params().filter(|param| !values.contains_key(*param));
        errors.extend(missing.map(|param| mistake(param, "is required: it stands in the path")));
        if !errors.is_empty() {
            errors.truncate(ERRORS_MAX);
            return Err(not_fitting(errors));
        }
        let conditions = rule.query.iter().filter(|(name, _)| !values.contains_key(name));
        placed.query.extend(conditions.map(|(name, value)| piece(name, value)));
        if values.len() > elsewhere.fates.len() || self.has_body() {
            placed.body = Some(object(text, &elsewhere, |_| false).unwrap_or_else(|| text.to_owned()));
        }
        Ok(placed)
    }

    /// The pieces of the query for one arg; a list stands there as its items, each under the name.
    fn query_pieces(&self, name: &str, value: &Value, raw: &str) -> Result<Vec<String>, String> {
        let condition = self.tool.matches.query.iter().find(|(known, _)| known == name);
        if let Some((_, wanted)) = condition.filter(|(_, wanted)| word(value, raw).as_ref() != Some(wanted)) {
            return Err(format!("has to be `{wanted}`: the tool is found by it"));
        }
        let words: Option<Vec<String>> = match value {
            Value::Array(list) if !list.is_empty() => {
                let raws = json::items(raw).unwrap_or_default();
                list.iter().zip(raws).map(|(item, raw)| word(item, raw)).collect()
            }
            value => word(value, raw).map(|word| vec![word]),
        };
        let words = words.ok_or("stands in the query: text, numbers and truth values can, and lists of them")?;
        Ok(words.iter().map(|word| piece(name, word)).collect())
    }

    fn request(&self, placed: Placed) -> Result<(Head<'static>, Option<String>), Refusal> {
        let Placed { path: params, query, body } = placed;
        let segment = |name: &str| params.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        let path = self.tool.matches.path.fill(segment);
        let mut target = path.ok_or_else(|| open_match(self.tool, "its path cannot be made of args"))?;
        if !query.is_empty() {
            target.push('?');
            target.push_str(&query.join("&"));
        }
        let headers = self.headers(body.as_deref())?;
        let head = Head::read(self.method, target.as_bytes(), false, &headers)?.into_owned();
        head.check_write_capable()?;
        Ok((head, body))
    }

    /// The headers that the match asks for, and those of the body. A host stands there because a request
    /// has one; the upstream's own goes out.
    fn headers(&self, body: Option<&str>) -> Result<HeaderMap, Refusal> {
        let unusable = |_| open_match(self.tool, "its host or its media type cannot stand in a header");
        let mut headers = HeaderMap::new();
        let host = self.hosts.first().map_or("localhost", String::as_str);
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        headers.insert(HOST, HeaderValue::try_from(host).map_err(unusable)?);
        if let Some(body) = body {
            let media = self.json_type().ok_or_else(|| open_match(self.tool, "it takes no JSON"))?;
            headers.insert(CONTENT_TYPE, HeaderValue::try_from(media).map_err(unusable)?);
            headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        }
        let asked: &[(HeaderName, HeaderValue)] = &self.tool.matches.headers;
        headers.extend(asked.iter().filter(|(name, _)| *name != CONTENT_TYPE).cloned());
        Ok(headers)
    }

    /// The JSON type of the body: what the match says, else the first that the tool takes.
    fn json_type(&self) -> Option<String> {
        let Tool { matches: rule, args, content_types, .. } = self.tool;
        let by_header = rule.headers.iter().find(|(name, _)| *name == CONTENT_TYPE);
        let given = by_header.map(|(_, value)| value.to_str().unwrap_or_default());
        let plain = "application/json";
        let taken = [plain].into_iter().chain(rule.content_types.iter().chain(content_types).map(String::as_str));
        let fits = |media: &&str| {
            let Ok(read) = ContentType::parse(media) else { return false };
            let matched = rule.content_types.is_empty() || rule.content_types.contains(&read.essence);
            let by_tool = args.is_none() || content_types.contains(&read.essence);
            matched && by_tool && matches!(read.kind(), Ok(Kind::Json))
        };
        match given {
            Some(given) => Some(given).filter(fits).map(str::to_owned),
            None => taken.into_iter().find(fits).map(str::to_owned),
        }
    }
}

/// Most mistakes that one refusal lists.
const ERRORS_MAX: usize = 50;

/// An arg as the word that it is in a path or a query: exactly what was written, where no double holds it.
fn word(value: &Value, raw: &str) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) if json::parse(raw.as_bytes()).is_ok_and(|read| !read.inexact.is_empty()) => {
            Some(raw.to_owned())
        }
        Value::Number(_) | Value::Bool(_) => String::from_utf8(canonical::to_vec(value)).ok(),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A segment of a path that everybody reads alike.
fn segment(value: &Value, raw: &str) -> Result<String, String> {
    let word = word(value, raw).ok_or("stands in the path: a text, a number or a truth value can")?;
    let segment = encoded(&word);
    if segment.is_empty() || NormalPath::parse(&format!("/{segment}")).is_err() {
        return Err(
            "stands in the path, where it could be read in two ways: it is empty, dots, or has `/`, `\\`, `;`, \
                    an encoding of its own or a control character"
                .to_owned(),
        );
    }
    Ok(segment)
}

fn piece(name: &str, value: &str) -> String {
    format!("{}={}", encoded(name), encoded(value))
}

fn mistake(name: &str, reason: impl Into<String>) -> FieldError {
    let pointer = if name.is_empty() { String::new() } else { child("", name) };
    FieldError { pointer, reason: reason.into() }
}

fn not_fitting(errors: Vec<FieldError>) -> Refusal {
    let detail = "The args do not make this tool's request. Nothing was sent and nothing is held; correct them and ask \
                  again.";
    Refusal { errors, ..Refusal::new(Code::ArgsInvalid, detail) }
}

fn another_tool(tool: &Tool, other: Option<&Tool>) -> Refusal {
    let whose = other.map_or_else(|| "no tool's".to_owned(), |other| format!("that of `{}`", other.name));
    let detail = format!(
        "With these args the request is {whose}, not that of `{}`. Nothing was sent and nothing is held.",
        tool.name
    );
    Refusal::new(Code::ArgsInvalid, detail)
}

fn open_match(tool: &Tool, why: &str) -> Refusal {
    let detail = format!(
        "`{}` cannot be asked for by its name: which request it is does not follow from its match, since {why}. Nothing \
         was held; send the request itself to the agent's listener.",
        tool.name
    );
    Refusal::new(Code::RequestInvalid, detail)
}
