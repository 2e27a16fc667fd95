//! What people are shown: the card of a draft, the summary of a receipt, masked args.
//!
//! Owns completeness: every arg stands on the card, whether the policy's template names it or not.
//! Must never show a secret arg, and never print a value that is not made visible.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::base::code::Code;
use crate::base::refusal::Refusal;
use crate::call::args::{Call, Place};
use crate::draft::record::{BodyKind, Detail, Identity, Outbound, Preview};

use super::model::{Service, StatusMeans, Tool};
use super::rewrite::{Changes, Fate};
use super::schema::{Step, child};
use super::template::{
    MASKED, PreviewTemplate, RenderFailed, Roots, Template, VALUE_CHARS_MAX, value_in, value_of, value_with,
};
use super::visible::{bounded, marked, visible};

const TITLE_CHARS_MAX: usize = 200;
const TARGET_CHARS_MAX: usize = 1_000;
const IMPACT_CHARS_MAX: usize = 2_000;
const KEY_CHARS_MAX: usize = 200;
const SUMMARY_CHARS_MAX: usize = 500;
/// Most lines of a card; the rest stands in the full view.
const DETAILS_MAX: usize = 100;

/// Roots of a card's templates beside `args`.
pub(super) const PREVIEW_ROOTS: &[&str] = &["owner", "subject", "role"];
/// Roots of a summary's template beside `args`.
pub(super) const SUMMARY_ROOTS: &[&str] = &["response"];

/// Everything that a card is made from.
pub(super) struct Shown<'c> {
    pub(super) service: &'c Service,
    pub(super) tool: Option<&'c Tool>,
    pub(super) call: &'c Call,
    pub(super) who: &'c Identity,
    pub(super) values: &'c Map<String, Value>,
    /// `values` as one value.
    pub(super) args: &'c Arc<Value>,
    pub(super) changes: &'c Changes,
    pub(super) request: &'c Outbound,
}

impl Tool {
    /// `args` with every secret one masked, for whoever shows them.
    #[must_use]
    pub fn masked(&self, args: &Value) -> Value {
        let mut args = args.clone();
        for pointer in &self.secret {
            if let Some(slot) = args.pointer_mut(pointer) {
                *slot = Value::from(MASKED);
            }
        }
        args
    }

    /// Whether this caller may ask for the tool, read or write.
    ///
    /// # Errors
    ///
    /// `ROLE_NOT_ALLOWED`.
    pub fn permits(&self, who: &Identity) -> Result<(), Refusal> {
        let Some(roles) = &self.roles else { return Ok(()) };
        if who.role.as_ref().is_some_and(|role| roles.contains(role)) {
            return Ok(());
        }
        let detail = format!("The caller's role may not ask for `{}`. Nothing was sent.", self.name);
        Err(Refusal::new(Code::RoleNotAllowed, detail))
    }

    /// The sentence of a receipt. The policy's template speaks of a success, so it is used only
    /// where `status` means one; otherwise, and where it fails, a plain sentence says what is known.
    #[must_use]
    pub fn summarise(&self, args: &Value, response_body: Option<&Value>, status: u16) -> String {
        let means = self.outcome.judge(status);
        let template = self.summary.as_ref().filter(|_| means == StatusMeans::Succeeded);
        let rendered = template.and_then(|template| {
            let body = response_body.unwrap_or(&Value::Null);
            let response = minijinja::Value::from(BTreeMap::from([
                ("status", minijinja::Value::from(status)),
                ("body", value_of(body)),
            ]));
            let args = value_of(&self.masked(args));
            template.render(&Roots::new([("args", args), ("response", response)])).ok()
        });
        let text = rendered.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        bounded(text.unwrap_or_else(|| fallback(self.name.as_str(), means, status)), SUMMARY_CHARS_MAX)
    }
}

/// The sentence of a receipt for a call without a summary of its own.
fn fallback(what: &str, means: StatusMeans, status: u16) -> String {
    let what = visible(what);
    match means {
        StatusMeans::Succeeded => format!("`{what}` was carried out; the upstream answered {status}."),
        StatusMeans::Failed => format!("`{what}` was refused by the upstream, which answered {status}."),
        StatusMeans::Unknown => {
            format!("The upstream answered `{what}` with {status}, which does not say whether it was carried out.")
        }
    }
}

impl Shown<'_> {
    /// The card.
    ///
    /// # Errors
    ///
    /// `PREVIEW_INCOMPLETE` if the policy's card could not be made whole.
    pub(super) fn card(&self) -> Result<Preview, Refusal> {
        let exact = self.exact_numbers();
        let roots = self.roots(&exact);
        let mut preview = match self.tool.and_then(|tool| tool.preview.as_ref()) {
            Some(template) => {
                self.only_printed(template, &exact)?;
                self.declared(template, &roots)
                    .map_err(|RenderFailed| incomplete("the policy's card could not be made"))?
            }
            None => Preview {
                title: marked(&format!("{} {}", self.request.method, self.call.head.path.as_str())),
                target: visible(&self.shown_target()),
                impact: self.plain_impact(),
                details: Vec::new(),
            },
        };
        self.add_unnamed_args(&mut preview, &exact);
        self.add_body(&mut preview);
        self.add_bound_headers(&mut preview);
        Ok(cut(preview))
    }

    fn declared(&self, template: &PreviewTemplate, roots: &Roots) -> Result<Preview, RenderFailed> {
        let render = |template: &Template| template.render(roots).map(|text| text.trim().to_owned());
        let or = |template: &Option<Template>, plain: String| template.as_ref().map_or(Ok(plain), render);
        let details = template.details.iter();
        Ok(Preview {
            title: render(&template.title)?,
            target: or(&template.target, visible(&self.shown_target()))?,
            impact: or(&template.impact, self.plain_impact())?,
            details: details
                .map(|(key, value)| Ok(Detail { key: key.clone(), value: render(value)? }))
                .collect::<Result<_, _>>()?,
        })
    }

    fn plain_impact(&self) -> String {
        let described = self.tool.is_some_and(|tool| tool.preview.is_some());
        let host = visible(&self.service.upstream.host);
        let tail = if described { "" } else { " The policy does not describe what it does." };
        // True before the decision and after it: the card is shown in every state of its draft.
        format!("One request to {host}, exactly as it is shown here.{tail}")
    }

    /// The pointers of inexact numbers under their final names, with their text. A number that was
    /// replaced on the way is exact.
    fn exact_numbers(&self) -> Vec<(String, &str)> {
        let numbers = self.call.args.inexact.iter();
        let renamed = numbers.filter_map(|number| {
            let rest = number.pointer.strip_prefix('/')?;
            let (token, below) = rest.split_once('/').map_or((rest, String::new()), |(t, b)| (t, format!("/{b}")));
            let name = token.replace("~1", "/").replace("~0", "~");
            match self.changes.fates.get(&name) {
                None => Some((number.pointer.clone(), number.text.as_str())),
                Some(Fate::Changed { name, value: None }) => {
                    Some((format!("{}{below}", child("", name)), number.text.as_str()))
                }
                Some(Fate::Changed { value: Some(_), .. } | Fate::Removed) => None,
            }
        });
        renamed.collect()
    }

    fn roots(&self, exact: &[(String, &str)]) -> Roots {
        let nothing_stands_in = exact.is_empty() && self.tool.is_none_or(|tool| tool.secret.is_empty());
        let args = if nothing_stands_in {
            value_in(self.args)
        } else {
            value_with(self.values, "", &|pointer| self.stand_in(pointer, exact))
        };
        let text = |text: Option<&str>| text.map_or(minijinja::Value::UNDEFINED, minijinja::Value::from);
        Roots::new([
            ("args", args),
            ("owner", text(Some(self.who.owner.as_str()))),
            ("subject", text(self.who.subject.as_deref())),
            ("role", text(self.who.role.as_deref())),
        ])
    }

    /// The text that is shown in place of the value at `pointer`.
    fn stand_in(&self, pointer: &str, exact: &[(String, &str)]) -> Option<String> {
        if self.tool.is_some_and(|tool| tool.secret.iter().any(|secret| secret == pointer)) {
            return Some(MASKED.to_owned());
        }
        exact.iter().find(|(known, _)| known == pointer).map(|(_, text)| (*text).to_owned())
    }

    /// A template that counts or compares would do so with the rounded number: then there is no
    /// card that could be believed.
    fn only_printed(&self, template: &PreviewTemplate, exact: &[(String, &str)]) -> Result<(), Refusal> {
        let touches = |path: &[Step], pointer: &str| {
            let mut tokens = pointer.split('/').skip(1);
            path.iter().all(|step| match (step, tokens.next()) {
                (_, None) | (Step::Item, Some(_)) => true,
                (Step::Key(name), Some(token)) => child("", name).strip_prefix('/') == Some(token),
            })
        };
        let uses = template.templates().flat_map(Template::uses);
        let judged = uses.filter(|used| !used.printed && used.root == "args");
        for used in judged {
            if exact.iter().any(|(pointer, _)| touches(&used.path, pointer)) {
                return Err(incomplete("it has a number with more digits than can be compared"));
            }
        }
        Ok(())
    }

    /// Where a secret stands in the query, the target is shown without the query's values.
    fn shown_target(&self) -> String {
        let secret_in_query = self.tool.is_some_and(|tool| {
            tool.secret.iter().any(|pointer| {
                let name = pointer.split('/').nth(1).unwrap_or_default().replace("~1", "/").replace("~0", "~");
                self.values.contains_key(&name) && self.place_of(&name) == Place::Query
            })
        });
        match self.request.target.split_once('?') {
            Some((before, _)) if secret_in_query => format!("{before}?{MASKED}"),
            _ => self.request.target.clone(),
        }
    }

    fn place_of(&self, name: &str) -> Place {
        let sent = self.changes.fates.iter().find_map(|(from, fate)| match fate {
            Fate::Changed { name: to, .. } if to == name => Some(from.as_str()),
            _ => None,
        });
        let sent = sent.unwrap_or(name);
        self.call.args.places.get(sent).copied().unwrap_or_else(|| {
            let rules = self.tool.and_then(|tool| tool.args.as_ref());
            if rules.is_some_and(|rules| rules.schema.in_query(name)) { Place::Query } else { Place::Body }
        })
    }

    /// Every arg that no template names, as it will be sent.
    fn add_unnamed_args(&self, preview: &mut Preview, exact: &[(String, &str)]) {
        let template = self.tool.and_then(|tool| tool.preview.as_ref());
        let named = |name: &str| {
            let uses = template.into_iter().flat_map(PreviewTemplate::templates).flat_map(Template::uses);
            uses.filter(|used| used.root == "args").any(|used| used.path.first() == Some(&Step::Key(name.to_owned())))
        };
        let generic = template.is_none();
        for (name, value) in self.values.iter().filter(|(name, _)| !named(name)) {
            let place = match self.place_of(name) {
                Place::Path => "path",
                Place::Query => "query",
                Place::Body => "body",
            };
            let key = if generic { format!("{} ({place})", visible(name)) } else { visible(name) };
            let text = self.plain(value, &child("", name), exact);
            preview.details.push(Detail { key, value: marked(&text) });
        }
    }

    /// A value as text: texts as they are, everything else as JSON with exact numbers.
    fn plain(&self, value: &Value, pointer: &str, exact: &[(String, &str)]) -> String {
        if let Some(text) = self.stand_in(pointer, exact) {
            return text;
        }
        match value {
            Value::String(text) => text.clone(),
            other => self.json(other, pointer, exact),
        }
    }

    fn json(&self, value: &Value, pointer: &str, exact: &[(String, &str)]) -> String {
        if let Some(text) = self.stand_in(pointer, exact) {
            return text;
        }
        match value {
            Value::Array(items) => {
                let items = items.iter().enumerate().map(|(i, item)| self.json(item, &format!("{pointer}/{i}"), exact));
                format!("[{}]", items.collect::<Vec<_>>().join(", "))
            }
            Value::Object(members) => {
                let members = members.iter().map(|(name, member)| {
                    format!("{}: {}", Value::from(name.as_str()), self.json(member, &child(pointer, name), exact))
                });
                format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
            }
            leaf => String::from_utf8_lossy(&crate::call::canonical::to_vec(leaf)).into_owned(),
        }
    }

    fn add_body(&self, preview: &mut Preview) {
        if self.request.kind != BodyKind::Opaque {
            return;
        }
        let body = &self.request.body;
        let media = if body.content_type.is_empty() { "no type" } else { &body.content_type };
        let value = format!("{} · {} bytes · SHA-256 {}", visible(media), body.length, body.sha256);
        preview.details.push(Detail { key: "body (not understood)".to_owned(), value });
    }

    /// Conditions that the agent set decide what the write does, so they stand on the card.
    fn add_bound_headers(&self, preview: &mut Preview) {
        let injected = &self.service.upstream.inject;
        let from_agent = self.request.bound_headers.iter();
        let from_agent = from_agent.filter(|(name, _)| !injected.iter().any(|(own, _)| own.as_str() == name));
        let lines = from_agent.map(|(name, value)| Detail { key: format!("{name} (header)"), value: marked(value) });
        preview.details.extend(lines);
    }
}

fn incomplete(why: &str) -> Refusal {
    let detail = format!("Nobody could judge this call: {why}. Nothing was sent and nothing is held.");
    Refusal::new(Code::PreviewIncomplete, detail)
}

/// Bounds every part; what is cut says so, and the full view has all of it.
fn cut(mut preview: Preview) -> Preview {
    let more = preview.details.len().saturating_sub(DETAILS_MAX);
    preview.details.truncate(DETAILS_MAX);
    for detail in &mut preview.details {
        detail.key = bounded(std::mem::take(&mut detail.key), KEY_CHARS_MAX);
        detail.value = bounded(std::mem::take(&mut detail.value), VALUE_CHARS_MAX + 100);
    }
    if more > 0 {
        preview
            .details
            .push(Detail { key: "…".to_owned(), value: format!("{more} more, complete in the full view") });
    }
    preview.title = bounded(preview.title, TITLE_CHARS_MAX);
    preview.target = bounded(preview.target, TARGET_CHARS_MAX);
    preview.impact = bounded(preview.impact, IMPACT_CHARS_MAX);
    preview
}
