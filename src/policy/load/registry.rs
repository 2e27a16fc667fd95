//! Reads the registry of capabilities and joins it with the tools.

use crate::base::id::{CapabilityId, ToolName};
use crate::draft::binding::undeclared_capability;
use crate::draft::record::{ConfirmRule, Effect};

use super::super::keys;
use super::super::model::{Capability, CapabilityStatus};
use super::super::read::{Fields, File};
use super::super::yaml::{Node, Place};
use super::rules::{Confirm, hint_of, read_confirm, read_match, read_risk};
use super::service::ReadService;
use super::tool::{ReadTool, report_unshown};

/// A capability and where its parts stand.
pub(super) struct ReadCapability {
    pub(super) capability: Capability,
    pub(super) place: Place,
    pub(super) id_place: Place,
    pub(super) tool_place: Place,
    /// Where `confirm: none` stands, which a capability of a read may say.
    none_place: Option<Place>,
}

pub(super) fn read(file: &File<'_>, node: &Node) -> Option<ReadCapability> {
    use CapabilityStatus::{Enabled, Forbidden, Planned};
    let fields = Fields::open(file, node, &keys::CAPABILITY)?;
    let id_node = fields.require(file, &keys::CAPABILITY, "id");
    let id = id_node.and_then(|node| read_id(file, node));
    let statuses = [("enabled", Enabled), ("planned", Planned), ("forbidden", Forbidden)];
    let status = fields.require(file, &keys::CAPABILITY, "status");
    let status = status.and_then(|node| file.choice(node, "`status`", &statuses, &[]));
    let tool_text = fields.get("tool").and_then(|node| file.literal(node, "`tool`"));
    let tool = tool_text.and_then(|text| ToolName::new(text).ok());
    let matches = fields.get("match").map(|node| read_match(file, node, false));
    let guidance = fields.get("guidance").and_then(|node| file.text(node, "`guidance`")).map(|text| text.value);
    let operation = fields.get("operation").and_then(|node| file.literal(node, "`operation`")).map(str::to_owned);
    let risk = fields.get("risk").and_then(|node| read_risk(file, node));
    let confirm = fields.get("confirm").and_then(|node| Some((read_confirm(file, node)?, node.place)));
    let what = id.as_ref().map_or_else(|| "this capability".to_owned(), |id| format!("the capability `{id}`"));
    match status {
        Some(Enabled) => {
            if fields.get("tool").is_none() {
                let hint = "name the tool that carries it out, or make it `planned` with a guidance text";
                file.error_with(fields.place, format!("{what} is enabled, and no tool carries it out"), hint);
            }
            if fields.get("match").is_some() {
                let hint = "requests are named by the tool; `match` is for planned and forbidden capabilities";
                file.error_with(fields.key_place("match"), format!("{what} is enabled and has a `match`"), hint);
            }
        }
        Some(status @ (Planned | Forbidden)) => {
            let word = if status == Planned { "planned" } else { "forbidden" };
            if fields.get("guidance").is_none() {
                let hint = "say what the agent should tell the user";
                file.error_with(fields.place, format!("{what} is {word} and needs a `guidance`"), hint);
            }
            if fields.get("match").is_none() && fields.get("tool").is_none() {
                let hint = "name the requests by `match`, or a tool by `tool`";
                if status == Forbidden {
                    file.error_with(
                        fields.place,
                        format!("{what} is forbidden, and no request is named: nothing is forbidden"),
                        hint,
                    );
                } else {
                    file.warn(fields.place, format!("{what} is planned, and no request is named"), hint);
                }
            }
        }
        None => {}
    }
    let (confirm, none_place) = match confirm {
        Some((Confirm::Rule(rule), _)) => (Some(rule), None),
        Some((Confirm::None, place)) => (None, Some(place)),
        None => (None, None),
    };
    let capability =
        Capability { id: id?, status: status?, tool, operation, risk, confirm, matches: matches.flatten(), guidance };
    let (id_place, tool_place) = (fields.key_place("id"), fields.key_place("tool"));
    Some(ReadCapability { capability, place: node.place, id_place, tool_place, none_place })
}

fn read_id(file: &File<'_>, node: &Node) -> Option<CapabilityId> {
    let text = file.literal(node, "`id`")?;
    let legal = text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'));
    let id = CapabilityId::new(text).ok().filter(|id| legal && *id != undeclared_capability());
    if id.is_none() {
        let hint = "letters, digits, `_`, `-` and `.`; `undeclared` is the guard's own";
        file.error_with(
            node.place,
            format!("`{}` is not an id for a capability", super::super::visible::visible(text)),
            hint,
        );
    }
    id
}

/// Gives every tool its capability, and checks what the two say of each other.
pub(super) fn join(file: &File<'_>, service: &mut ReadService) {
    let ReadService { tools, capabilities, tool_names, .. } = service;
    let known: Vec<&str> = tool_names.iter().map(|(name, _)| name.as_str()).collect();
    for at in 0..capabilities.len() {
        let (earlier, rest) = capabilities.split_at(at);
        let Some(read) = rest.first() else { continue };
        let of_read = |tool: &ReadTool| {
            Some(&tool.tool.name) == read.capability.tool.as_ref() && tool.tool.effect == Effect::Read
        };
        if let Some(place) = read.none_place.filter(|_| !tools.iter().any(of_read)) {
            file.error_with(place, "`confirm: none` is for reads", "a write is confirmed: write `default` or `always`");
        }
        let Some(name) = &read.capability.tool else { continue };
        if !known.contains(&name.as_str()) {
            let message = format!("there is no tool `{name}`");
            file.error_with(read.tool_place, message, hint_of(name.as_str(), &known));
            continue;
        }
        if let Some(other) = earlier.iter().find(|other| other.capability.tool.as_ref() == Some(name)) {
            let hint = format!("`{}` on line {} has it already", other.capability.id, other.place.line);
            file.error_with(read.tool_place, format!("the tool `{name}` realises two capabilities"), hint);
            continue;
        }
        if let Some(tool) = tools.iter_mut().find(|tool| tool.tool.name == *name) {
            tool.tool.capability = Some(read.capability.id.clone());
            // Else a slip in `effect` would let a call through that somebody wanted confirmed.
            if tool.tool.effect == Effect::Read && read.capability.confirm.is_some() {
                let hint = format!("take `confirm` out, or declare `effect: write` on `{name}`");
                file.error_with(read.tool_place, format!("`{name}` is a read, and a read is never confirmed"), hint);
            }
            agree(file, tool, &read.capability);
        }
    }
    for read in tools {
        if read.tool.effect == Effect::Write && read.tool.capability.is_none() {
            let hint = format!("add: {{id: …, status: enabled, tool: {}, risk: …, confirm: …}}", read.tool.name);
            let message = format!("the write tool `{}` has no capability", read.tool.name);
            file.error_with(read.name_place, message, hint);
        } else if read.tool.effect == Effect::Write && !read.risk_stated {
            file.error_with(
                read.name_place,
                format!("neither the tool `{}` nor its capability states a risk", read.tool.name),
                "write `risk: low`, `medium` or `high`",
            );
        }
        report_unshown(file, read);
    }
}

/// Risk and confirmation rule may stand on either side, and must be equal where they stand on both.
fn agree(file: &File<'_>, read: &mut ReadTool, capability: &Capability) {
    const HINT: &str = "write the same on both, or on one of them";
    let id = &capability.id;
    if let (Some((own, place)), Some(other)) = (read.risk, capability.risk)
        && own != other
    {
        let message = format!("the risk here is {}, and the capability `{id}` says {}", own.as_str(), other.as_str());
        file.error_with(place, message, HINT);
    }
    if let (Some((Confirm::Rule(own), place)), Some(other)) = (read.confirm, capability.confirm)
        && own != other
    {
        let message =
            format!("the confirmation rule here is {}, and the capability `{id}` says {}", word(own), word(other));
        file.error_with(place, message, HINT);
    }
    if let Some(risk) = read.risk.map(|(risk, _)| risk).or(capability.risk) {
        read.tool.risk = risk;
        read.risk_stated = true;
    }
    let own = match read.confirm {
        Some((Confirm::Rule(rule), _)) => Some(rule),
        _ => None,
    };
    read.tool.confirm = own.or(capability.confirm).unwrap_or(ConfirmRule::Default);
}

const fn word(rule: ConfirmRule) -> &'static str {
    match rule {
        ConfirmRule::Default => "`default`",
        ConfirmRule::Always => "`always`",
    }
}
