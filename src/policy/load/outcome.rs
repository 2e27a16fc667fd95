//! Which upstream status means what.

use super::super::keys;
use super::super::model::{OutcomeRules, StatusRange};
use super::super::read::{Fields, File};
use super::super::yaml::{Kind, Node, Place};

pub(super) fn read(file: &File<'_>, node: &Node) -> OutcomeRules {
    let mut rules = OutcomeRules::default();
    let Some(fields) = Fields::open(file, node, &keys::OUTCOME) else { return rules };
    for (key, list) in
        [("succeeded", &mut rules.succeeded), ("failed", &mut rules.failed), ("unknown", &mut rules.unknown)]
    {
        let Some(items) = fields.get(key).and_then(|node| file.list(node, &format!("`{key}`"))) else { continue };
        *list = items.iter().filter_map(|item| range(file, item)).collect();
    }
    conflicts(file, node.place, &rules);
    rules
}

/// `2xx`, `300-303` or `408`.
fn range(file: &File<'_>, node: &Node) -> Option<StatusRange> {
    let text = match &node.kind {
        Kind::Scalar(scalar) => scalar.text.as_str(),
        Kind::Refused => return None,
        _ => "",
    };
    let status = |text: &str| text.parse::<u16>().ok().filter(|s| text.len() == 3 && (100..=599).contains(s));
    let read = match text.split_once('-') {
        Some((first, last)) => status(first).zip(status(last)),
        None => match text.strip_suffix("xx").and_then(|class| class.parse::<u16>().ok()) {
            Some(class) if (1..=5).contains(&class) && text.len() == 3 => Some((class * 100, class * 100 + 99)),
            _ => status(text).map(|only| (only, only)),
        },
    };
    match read {
        Some((first, last)) if first <= last => Some(StatusRange { first, last }),
        _ => {
            file.error_with(node.place, "this is not a status", "write 2xx, 408 or 300-303");
            None
        }
    }
}

/// The more exact entry wins; of two equally exact ones neither would.
fn conflicts(file: &File<'_>, place: Place, rules: &OutcomeRules) {
    let lists = [("succeeded", &rules.succeeded), ("failed", &rules.failed), ("unknown", &rules.unknown)];
    for (at, (name, list)) in lists.iter().enumerate() {
        for (other_name, other) in &lists[at + 1..] {
            for range in *list {
                let clash = other.iter().find(|o| {
                    o.last - o.first == range.last - range.first && o.first <= range.last && range.first <= o.last
                });
                if let Some(clash) = clash {
                    let status = clash.first.max(range.first);
                    let message =
                        format!("the status {status} stands equally exactly in `{name}` and in `{other_name}`");
                    file.error_with(place, message, "state both lists, each status in one of them");
                }
            }
        }
    }
}
