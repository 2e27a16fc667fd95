//! Where a reader of the outbox stands.
//!
//! A store numbers its events in one sequence, or in one per partition. Owns the cursor, its text
//! form and a page of events. Must never know which store it came from: to everybody outside a
//! store a cursor is opaque, and whoever wants more gives back what they got.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::base::id::Partition;

use super::row::Event;

/// Where a reader stands: everything up to and with these numbers is read.
///
/// As text a number, or sixteen of them joined by `.`. In JSON the number, or that text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cursor {
    /// In the one sequence of a store.
    One(u64),
    /// In the sequence of each partition, by [`Partition::index`].
    Each([u64; Partition::COUNT]),
}

impl Cursor {
    /// The place in the one sequence of a store. A cursor of a store with more sequences means
    /// nothing there, and its reader begins anew: it sees events again rather than none.
    #[must_use]
    pub const fn one(&self) -> u64 {
        match self {
            Self::One(seq) => *seq,
            Self::Each(_) => 0,
        }
    }

    /// The place in the sequence of each partition; with another store's cursor at the beginning,
    /// as in [`Cursor::one`].
    #[must_use]
    pub const fn each(&self) -> [u64; Partition::COUNT] {
        match self {
            Self::One(_) => [0; Partition::COUNT],
            Self::Each(seqs) => *seqs,
        }
    }

    /// The cursor of a reader who stood here and has read `event`, the next one of its sequence.
    #[must_use]
    pub fn after(self, event: &Event) -> Self {
        match self {
            Self::One(_) => Self::One(event.seq),
            Self::Each(mut seqs) => {
                seqs[event.draft_id.partition().index()] = event.seq;
                Self::Each(seqs)
            }
        }
    }
}

/// The beginning, in whatever store.
impl Default for Cursor {
    fn default() -> Self {
        Self::One(0)
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(seq) => seq.fmt(f),
            Self::Each(seqs) => {
                for (at, seq) in seqs.iter().enumerate() {
                    let dot = if at == 0 { "" } else { "." };
                    write!(f, "{dot}{seq}")?;
                }
                Ok(())
            }
        }
    }
}

/// A text that no cursor is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the cursor is neither a number nor sixteen numbers joined by dots, as a page or a stream gave it")]
pub struct BadCursor;

impl FromStr for Cursor {
    type Err = BadCursor;

    fn from_str(text: &str) -> Result<Self, BadCursor> {
        if !text.contains('.') {
            return number(text).map(Self::One);
        }
        let mut seqs = [0; Partition::COUNT];
        let mut parts = text.split('.');
        for seq in &mut seqs {
            *seq = number(parts.next().ok_or(BadCursor)?)?;
        }
        if parts.next().is_none() { Ok(Self::Each(seqs)) } else { Err(BadCursor) }
    }
}

/// One spelling per number: digits, no sign, no zero in front.
fn number(text: &str) -> Result<u64, BadCursor> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if plain { text.parse().map_err(|_| BadCursor) } else { Err(BadCursor) }
}

impl Serialize for Cursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::One(seq) => serializer.serialize_u64(*seq),
            Self::Each(_) => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Cursor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(u64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Number(seq) => Ok(Self::One(seq)),
            Written::Text(text) => match text.parse() {
                Ok(each @ Self::Each(_)) => Ok(each),
                _ => Err(de::Error::custom(BadCursor)),
            },
        }
    }
}

/// Some events, oldest first in each sequence, and where they begin.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// Where the reader stood, as the store that answers writes it; another store's cursor has
    /// become the beginning.
    pub from: Cursor,
    /// What comes next; empty only where there is nothing more.
    pub events: Vec<Event>,
}

impl Page {
    /// The page of a store with a sequence per partition, from what it found behind each place:
    /// by time, and each sequence in its own order, whatever times its events claim.
    #[must_use]
    pub fn merged(from: [u64; Partition::COUNT], found: [Vec<Event>; Partition::COUNT], limit: usize) -> Self {
        let in_order = found.into_iter().flat_map(|sequence| {
            sequence.into_iter().scan(None, |latest, event| {
                *latest = (*latest).max(Some(event.at));
                Some((*latest, event))
            })
        });
        let mut events: Vec<_> = in_order.collect();
        events.sort_by_key(|(time, _)| *time);
        Self { from: Cursor::Each(from), events: events.into_iter().take(limit).map(|(_, event)| event).collect() }
    }

    /// Where a reader stands who has read the whole page.
    #[must_use]
    pub fn next(&self) -> Cursor {
        self.events.iter().fold(self.from.clone(), Cursor::after)
    }

    /// Each event with the cursor of a reader who has read the page up to it.
    pub fn with_cursors(&self) -> impl Iterator<Item = (Cursor, &Event)> {
        self.events.iter().scan(self.from.clone(), |stands, event| {
            *stands = stands.clone().after(event);
            Some((stands.clone(), event))
        })
    }

    /// The page of a reader who may see these events only. Others are behind them as soon as
    /// nothing of their own stands before those in the same sequence; so no cursor of the page
    /// skips an event that they have not been given, and one without events goes on, too.
    #[must_use]
    pub fn only(self, wanted: impl Fn(&Event) -> bool) -> Self {
        let mut from = self.from;
        let mut begun = [false; Partition::COUNT];
        let mut events = Vec::new();
        for event in self.events {
            let sequence = match from {
                Cursor::One(_) => 0,
                Cursor::Each(_) => event.draft_id.partition().index(),
            };
            if wanted(&event) {
                begun[sequence] = true;
                events.push(event);
            } else if !begun[sequence] {
                from = from.after(&event);
            }
        }
        Self { from, events }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use proptest::prelude::*;

    use super::*;
    use crate::base::digest::Digest;
    use crate::base::id::{Tenant, ToolName};
    use crate::base::time::Timestamp;

    fn event(partition: usize, seq: u64, tenant: &str) -> Event {
        Event {
            seq,
            at: Timestamp::from_millis(1),
            kind: "draft.held".to_owned(),
            draft_id: format!("dr_{partition:x}_01J0000000000000000000000A").parse().unwrap(),
            tenant: Tenant::new(tenant).unwrap(),
            owner_hash: Digest::of(b"owner"),
            tool: ToolName::new("send").unwrap(),
            status: "pending".to_owned(),
            epoch: 0,
            args_hash: Digest::of(b"args"),
            by: None,
            reason: None,
        }
    }

    fn places() -> [u64; 16] {
        [2, 0, u64::MAX, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 150]
    }

    #[test]
    fn the_text_goes_round_and_other_spellings_are_refused() {
        let each = "2.0.18446744073709551615.3.4.5.6.7.8.9.10.11.12.13.14.150";
        for (cursor, text, json) in [
            (Cursor::default(), "0", "0".to_owned()),
            (Cursor::One(123), "123", "123".to_owned()),
            (Cursor::One(u64::MAX), "18446744073709551615", "18446744073709551615".to_owned()),
            (Cursor::Each(places()), each, format!("\"{each}\"")),
        ] {
            assert_eq!((cursor.to_string().as_str(), text.parse()), (text, Ok(cursor.clone())));
            assert_eq!(serde_json::to_string(&cursor).unwrap(), json);
            assert_eq!(serde_json::from_str::<Cursor>(&json).unwrap(), cursor);
        }
        let too_many = format!("{each}.0");
        let spaced = each.replace(".3.", ". 3.");
        let zero_first = each.replace(".3.", ".03.");
        let empty_part = each.replace(".3.", "..");
        let too_large = each.replace("615", "616");
        let bad = ["", ".", "+1", "-1", "01", "00", "1 ", " 1", "1x", "٣", "18446744073709551616", "1.2", &each[2..]];
        for bad in bad.into_iter().chain([&*too_many, &*spaced, &*zero_first, &*empty_part, &*too_large]) {
            assert_eq!(bad.parse::<Cursor>(), Err(BadCursor), "{bad:?}");
        }
        for bad in ["\"1\"", "-1", "1.5", "null", "\"\"", "[1]", "1e3"] {
            assert!(serde_json::from_str::<Cursor>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn another_stores_cursor_is_the_beginning() {
        assert_eq!((Cursor::One(7).one(), Cursor::Each(places()).each()), (7, places()));
        assert_eq!((Cursor::Each(places()).one(), Cursor::One(7).each()), (0, [0; 16]));
    }

    #[test]
    fn a_page_leads_from_event_to_event() {
        let events = vec![event(15, 151, "a"), event(0, 1, "a"), event(15, 152, "a")];
        let page = Page { from: Cursor::Each(places()), events };
        let (mut first, mut second, mut third) = (places(), places(), places());
        first[15] = 151;
        (second[0], second[15], third[0], third[15]) = (1, 151, 1, 152);
        let cursors: Vec<Cursor> = page.with_cursors().map(|(cursor, _)| cursor).collect();
        assert_eq!(cursors, [first, second, third].map(Cursor::Each));
        assert_eq!(page.next(), Cursor::Each(third));
        let one = Page { from: Cursor::One(4), events: vec![event(3, 5, "a"), event(9, 6, "a")] };
        assert_eq!(one.with_cursors().map(|(cursor, _)| cursor).collect::<Vec<_>>(), [Cursor::One(5), Cursor::One(6)]);
        assert_eq!(Page { from: Cursor::One(4), events: Vec::new() }.next(), Cursor::One(4));
    }

    #[test]
    fn a_merged_page_keeps_the_order_of_each_sequence() {
        let at = |partition, seq, millis| Event { at: Timestamp::from_millis(millis), ..event(partition, seq, "a") };
        let mut found: [Vec<Event>; 16] = Default::default();
        found[1] = vec![at(1, 1, 10), at(1, 2, 9_999), at(1, 3, 30)];
        found[7] = vec![at(7, 5, 5), at(7, 6, 20), at(7, 7, 40)];
        let numbers = |limit| -> Vec<u64> {
            Page::merged(places(), found.clone(), limit).events.iter().map(|event| event.seq).collect()
        };
        assert_eq!((numbers(100), numbers(3)), (vec![5, 1, 6, 7, 2, 3], vec![5, 1, 6]));
        assert_eq!(Page::merged(places(), Default::default(), 9).next(), Cursor::Each(places()));
    }

    /// What stands behind a cursor, `limit` at a time, as a store gives it: in the order in which
    /// they were written.
    fn read(outbox: &[Event], after: &Cursor, limit: usize) -> Page {
        let behind = |event: &&Event| match after {
            Cursor::One(seq) => event.seq > *seq,
            Cursor::Each(seqs) => event.seq > seqs[event.draft_id.partition().index()],
        };
        Page { from: after.clone(), events: outbox.iter().filter(behind).take(limit).cloned().collect() }
    }

    fn own(event: &Event) -> bool {
        event.tenant.as_str() == "own"
    }

    proptest! {
        /// Whoever reads only their own events gets each once and in order, wherever they stop and
        /// go on, and does not read others' for ever.
        #[test]
        fn a_filtered_reader_loses_and_repeats_nothing(
            lines in proptest::collection::vec((0..3usize, any::<bool>()), 0..40),
            parted in any::<bool>(),
            limit in 1..6usize,
            stops in proptest::collection::vec(0..4usize, 60),
        ) {
            let mut last = [0; 16];
            let outbox: Vec<Event> = lines.into_iter().map(|(partition, of_own)| {
                let seq = &mut last[if parted { partition } else { 0 }];
                *seq += 1;
                event(partition, *seq, if of_own { "own" } else { "other" })
            }).collect();
            let expected: Vec<&Event> = outbox.iter().filter(|event| own(event)).collect();
            let mut stands = if parted { Cursor::Each([0; 16]) } else { Cursor::default() };
            let mut got = Vec::new();
            for stop in stops.into_iter().chain(std::iter::repeat_n(usize::MAX, 80)) {
                let page = read(&outbox, &stands, limit).only(own);
                // Some stop inside of a page and come back with the cursor of the last event they saw.
                match page.with_cursors().take(stop).last() {
                    Some((cursor, _)) if stop < page.events.len() => stands = cursor,
                    _ if stop < page.events.len() => continue,
                    _ => stands = page.next(),
                }
                got.extend(page.events.into_iter().take(stop));
            }
            let in_sequence = |events: Vec<&Event>| -> Vec<Vec<u64>> {
                let of = |event: &Event| if parted { event.draft_id.partition().index() } else { 0 };
                let numbers = |one| events.iter().filter(|event| of(event) == one).map(|event| event.seq).collect();
                (0..3).map(numbers).collect()
            };
            prop_assert_eq!(in_sequence(got.iter().collect()), in_sequence(expected));
            prop_assert!(read(&outbox, &stands, 100).events.iter().all(|event| !own(event)));
        }
    }
}
