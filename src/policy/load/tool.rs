//! Reads a tool: its effect, its args and what is shown of them, its times.

use std::time::Duration;

use http::HeaderName;

use crate::base::id::ToolName;
use crate::draft::record::{ConfirmRule, Effect, Risk};

use super::super::card::{PREVIEW_ROOTS, SUMMARY_ROOTS};
use super::super::judge::UNDECLARED;
use super::super::keys;
use super::super::model::{LATE_RELEASE, OutcomeRules, REFUSAL_MEMORY, REPLAY_WINDOW, TTL, Tool};
use super::super::outbound::is_forwarded;
use super::super::prepare::ArgsRules;
use super::super::read::{Fields, File};
use super::super::schema::{Schema, Step, listed};
use super::super::template::check::{Scope, compile};
use super::super::template::{PreviewTemplate, Template};
use super::super::yaml::{Node, Place};
use super::args::{self, Around};
use super::outcome;
use super::rules::{Confirm, Shared, hint_of, read_confirm, read_match, read_risk};
use super::upstream::report_template;

/// Keys that say something about writes only.
const WRITE_KEYS: [&str; 14] = [
    "args",
    "preview",
    "summary",
    "ttl",
    "idempotency",
    "replay_window",
    "refusal_memory",
    "late_release",
    "held_status",
    "max_body",
    "body",
    "content_types",
    "bind_headers",
    "outcome",
];

/// A tool and where its parts stand, for the checks that look at everything together.
pub(super) struct ReadTool {
    pub(super) tool: Tool,
    pub(super) place: Place,
    pub(super) name_place: Place,
    pub(super) match_place: Place,
    /// Where `allow` stands.
    pub(super) allow_place: Place,
    pub(super) risk: Option<(Risk, Place)>,
    /// Whether the tool or its capability states a risk.
    pub(super) risk_stated: bool,
    pub(super) confirm: Option<(Confirm, Place)>,
    /// Args that the schema has and the preview never shows.
    pub(super) unshown: Vec<String>,
    pub(super) preview_place: Place,
}

/// The name of a tool, also of one that could not be read.
pub(super) fn read_name(file: &File<'_>, node: &Node) -> Option<(ToolName, Place)> {
    let entries = match &node.kind {
        super::super::yaml::Kind::Map(entries) => entries,
        _ => return None,
    };
    let node = &entries.iter().find(|entry| entry.key == "name")?.value;
    let text = file.literal(node, "`name`")?;
    let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'));
    if text == UNDECLARED || !plain {
        let hint = "letters, digits, `_`, `-` and `.`; `undeclared` is the guard's own";
        file.error_with(
            node.place,
            format!("`{}` is not a name for a tool", super::super::visible::visible(text)),
            hint,
        );
        return None;
    }
    match ToolName::new(text) {
        Ok(name) => Some((name, node.place)),
        Err(error) => {
            file.error(node.place, error.to_string());
            None
        }
    }
}

pub(super) fn read(file: &File<'_>, node: &Node, service: &Shared) -> Option<ReadTool> {
    let fields = Fields::open(file, node, &keys::TOOL)?;
    let name = fields.require(file, &keys::TOOL, "name").and_then(|_| read_name(file, node));
    let effects = [("read", Effect::Read), ("write", Effect::Write)];
    let effect = fields.require(file, &keys::TOOL, "effect").and_then(|n| file.choice(n, "`effect`", &effects, &[]));
    let match_node = fields.require(file, &keys::TOOL, "match");
    let matches = match_node.and_then(|node| read_match(file, node, true));
    let roles = fields.get("allow").map(|node| read_roles(file, node));
    let risk = fields.get("risk").and_then(|node| Some((read_risk(file, node)?, node.place)));
    let confirm = fields.get("confirm").and_then(|node| Some((read_confirm(file, node)?, node.place)));
    check_effect(file, &fields, effect, confirm);
    let shared = service.read(file, &fields);
    let no_methods = Vec::new();
    let around = Around {
        params: matches.as_ref().map(|m| m.path.params().collect()).unwrap_or_default(),
        methods: matches.as_ref().map_or(&no_methods, |m| &m.methods),
        content_types: &shared.content_types,
    };
    let shown = read_shown(file, &fields, &around);
    let rules = fields.get("outcome").map_or_else(OutcomeRules::default, |node| outcome::read(file, node));
    let times = read_times(file, &fields);
    let (name, name_place) = name?;
    let tool = Tool {
        name,
        effect: effect?,
        capability: None,
        risk: Risk::Low,
        confirm: ConfirmRule::Default,
        roles,
        args: shown.args,
        preview: shown.preview,
        summary: shown.summary,
        ttl: times.ttl,
        effect_key_header: read_effect_key(file, &fields),
        replay_window: times.replay_window,
        refusal_memory: times.refusal_memory,
        late_release: times.late_release,
        held_status: shared.held_status,
        body_bytes_max: shared.body_bytes_max,
        opaque: shared.opaque,
        content_types: shared.content_types,
        bind_headers: shared.bind_headers,
        outcome: rules,
        secret: shown.secret,
        matches: matches?,
    };
    Some(ReadTool {
        tool,
        place: node.place,
        name_place,
        match_place: fields.key_place("match"),
        allow_place: fields.key_place("allow"),
        risk,
        risk_stated: false,
        confirm,
        unshown: shown.unshown,
        preview_place: fields.key_place("preview"),
    })
}

/// What only a write, or only a read, may say.
fn check_effect(file: &File<'_>, fields: &Fields<'_>, effect: Option<Effect>, confirm: Option<(Confirm, Place)>) {
    if effect == Some(Effect::Read) {
        only_for_writes(file, fields);
    }
    if let (Some(Effect::Write), Some((Confirm::None, place))) = (effect, confirm) {
        file.error_with(place, "`confirm: none` is for reads", "a write is confirmed: write `default` or `always`");
    }
    if let (Some(Effect::Read), Some((Confirm::Rule(_), place))) = (effect, confirm) {
        file.error_with(place, "a read is never confirmed", "take `confirm` out, or declare `effect: write`");
    }
}

/// The args, and what people are shown of them.
struct Shown {
    args: Option<ArgsRules>,
    preview: Option<PreviewTemplate>,
    unshown: Vec<String>,
    summary: Option<Template>,
    secret: Vec<String>,
}

fn read_shown(file: &File<'_>, fields: &Fields<'_>, around: &Around<'_>) -> Shown {
    let args = fields.get("args").and_then(|node| args::read(file, node, around));
    let schema = args.as_ref().map(|rules| &*rules.schema);
    let schema_broken = fields.get("args").is_some() && schema.is_none();
    let mut unshown = Vec::new();
    let preview = fields.get("preview").filter(|_| !schema_broken).and_then(|node| read_preview(file, node, schema));
    if let (Some(preview), Some(schema)) = (&preview, schema) {
        unshown = unshown_args(preview, schema);
    }
    let summary_scope = Scope { schema, roots: SUMMARY_ROOTS, args: true };
    let summary = fields.get("summary").filter(|_| !schema_broken);
    let summary = summary.and_then(|node| read_template(file, node, "`summary`", summary_scope));
    let secret = fields.get("secret").map(|node| read_secret(file, node, schema, schema_broken, &around.params));
    Shown { preview, unshown, summary, secret: secret.unwrap_or_default(), args }
}

/// How long what stays as it is.
struct Times {
    ttl: Duration,
    replay_window: Duration,
    refusal_memory: Duration,
    late_release: Duration,
}

fn read_times(file: &File<'_>, fields: &Fields<'_>) -> Times {
    let duration = |key: &str, least: &str, most: &str| {
        fields.get(key).and_then(|node| file.duration(node, &format!("`{key}`"), least, most))
    };
    let ttl = duration("ttl", "10s", "7d").unwrap_or(TTL);
    if ttl.as_secs() > 30 * 60 {
        let hint = "what the card shows may be out of date by then; keep it under 30m";
        file.warn(fields.key_place("ttl"), "a draft of this tool may wait longer than half an hour", hint);
    }
    Times {
        ttl,
        replay_window: duration("replay_window", "0s", "24h").unwrap_or(REPLAY_WINDOW),
        refusal_memory: duration("refusal_memory", "0s", "24h").unwrap_or(REFUSAL_MEMORY),
        late_release: duration("late_release", "1s", "1h").unwrap_or(LATE_RELEASE),
    }
}

fn only_for_writes(file: &File<'_>, fields: &Fields<'_>) {
    for key in WRITE_KEYS.iter().filter(|key| fields.get(key).is_some()) {
        let hint = "a read streams through untouched; take the key out, or declare `effect: write`";
        file.error_with(fields.key_place(key), format!("`{key}` says nothing about a read"), hint);
    }
    if fields.get("secret").is_some() {
        file.error(fields.key_place("secret"), "`secret` says nothing about a read");
    }
}

fn read_roles(file: &File<'_>, node: &Node) -> Vec<String> {
    let Some(fields) = Fields::open(file, node, &keys::ALLOW) else { return Vec::new() };
    let Some(node) = fields.require(file, &keys::ALLOW, "roles") else { return Vec::new() };
    let items = file.list(node, "`roles`").unwrap_or_default();
    if items.is_empty() {
        file.error_with(
            node.place,
            "an empty list of roles allows nobody",
            "name a role, or make the capability `planned`",
        );
    }
    items.iter().filter_map(|item| file.text(item, "a role")).map(|role| role.value).collect()
}

fn read_effect_key(file: &File<'_>, fields: &Fields<'_>) -> Option<HeaderName> {
    const DEFAULT: HeaderName = HeaderName::from_static("idempotency-key");
    let Some(node) = fields.get("idempotency") else { return Some(DEFAULT) };
    let Some(fields) = Fields::open(file, node, &keys::IDEMPOTENCY) else { return Some(DEFAULT) };
    if let Some(node) = fields.get("scope") {
        file.choice(node, "`scope`", &[("draft", ())], &["payload"]);
    }
    let Some(node) = fields.get("header") else { return Some(DEFAULT) };
    if file.json(node).is_null() {
        return None;
    }
    let name = file.header_name(node, "`header`")?;
    if name != DEFAULT && !is_forwarded(&name) {
        file.error(node.place, format!("`{name}` is a header that the guard sets or drops by itself"));
    }
    Some(name)
}

fn read_template(file: &File<'_>, node: &Node, what: &str, scope: Scope<'_>) -> Option<Template> {
    let source = file.literal(node, what)?;
    match compile(source, scope) {
        Ok(template) => Some(template),
        Err(mistakes) => {
            report_template(file, node, mistakes);
            None
        }
    }
}

fn read_preview(file: &File<'_>, node: &Node, schema: Option<&Schema>) -> Option<PreviewTemplate> {
    let fields = Fields::open(file, node, &keys::PREVIEW)?;
    let scope = Scope { schema, roots: PREVIEW_ROOTS, args: true };
    let title = fields.require(file, &keys::PREVIEW, "title");
    let title = title.and_then(|node| read_template(file, node, "`title`", scope));
    let optional = |key: &str| fields.get(key).map(|node| read_template(file, node, &format!("`{key}`"), scope));
    let (target, impact) = (optional("target"), optional("impact"));
    let mut details = Vec::new();
    if let Some(node) = fields.get("details") {
        for item in file.list(node, "`details`").into_iter().flatten() {
            let Some(line) = Fields::open(file, item, &keys::DETAIL) else { continue };
            let key = line.require(file, &keys::DETAIL, "key").and_then(|node| file.literal(node, "`key`"));
            let value = line.require(file, &keys::DETAIL, "value");
            let value = value.and_then(|node| read_template(file, node, "`value`", scope));
            details.extend(key.map(str::to_owned).zip(value));
        }
    }
    let whole = target.as_ref().is_none_or(Option::is_some) && impact.as_ref().is_none_or(Option::is_some);
    let preview = PreviewTemplate { title: title?, target: target.flatten(), impact: impact.flatten(), details };
    whole.then_some(preview)
}

fn unshown_args(preview: &PreviewTemplate, schema: &Schema) -> Vec<String> {
    let shown = |name: &str| {
        let uses = preview.templates().flat_map(Template::uses);
        uses.filter(|used| used.root == "args").any(|used| used.path.first() == Some(&Step::Key(name.to_owned())))
    };
    schema.names().into_iter().filter(|name| !shown(name)).map(str::to_owned).collect()
}

/// The args that the preview never shows: a warning, and an error where a mistake is costly. The
/// card shows them all the same, below the policy's own lines.
pub(super) fn report_unshown(file: &File<'_>, read: &ReadTool) {
    if read.unshown.is_empty() {
        return;
    }
    let names: Vec<&str> = read.unshown.iter().map(String::as_str).collect();
    let message = format!("the preview never shows {}", listed(&names));
    let hint = format!("add a line: {{key: {0}, value: \"{{{{ args.{0} }}}}\"}}", names[0]);
    if read.tool.risk == Risk::High {
        file.error_with(read.preview_place, format!("{message}, and the risk is high"), hint);
    } else {
        file.warn(read.preview_place, message, hint);
    }
}

fn read_secret(
    file: &File<'_>,
    node: &Node,
    schema: Option<&Schema>,
    schema_broken: bool,
    params: &[&str],
) -> Vec<String> {
    let mut pointers = Vec::new();
    for item in file.list(node, "`secret`").into_iter().flatten() {
        let Some(pointer) = file.literal(item, "a secret") else { continue };
        let Some(rest) = pointer.strip_prefix('/') else {
            file.error_with(item.place, "this is not a JSON Pointer", "write the way into the args: /card/number");
            continue;
        };
        let names: Vec<String> = rest.split('/').map(|token| token.replace("~1", "/").replace("~0", "~")).collect();
        let steps: Vec<Step> = names.iter().map(|name| Step::Key(name.clone())).collect();
        match schema {
            None if schema_broken => {}
            None => file.error_with(
                item.place,
                "the tool has no schema that would say what its args are",
                "write `args: {schema: …}`",
            ),
            Some(schema) if schema.at(&steps).is_empty() => {
                let hint = if names.len() == 1 {
                    format!("the way begins with the name of an arg; {}", hint_of(&names[0], &schema.names()))
                } else {
                    "to hide parts of list items, name the list".to_owned()
                };
                file.error_with(item.place, format!("the schema has no `{pointer}`"), hint);
            }
            Some(_) if params.contains(&names[0].as_str()) => {
                file.error(item.place, "an arg of the path cannot be secret: the path is shown");
            }
            Some(_) => pointers.push(pointer.to_owned()),
        }
    }
    pointers
}
