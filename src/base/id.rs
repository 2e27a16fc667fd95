//! Names and ids as types: parsed once at the door, never a bare string inside.

use std::fmt;
use std::str::FromStr;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};

use super::chance::Chance;
use super::digest::Digest;
use super::time::Timestamp;

/// A text that is not a legal id or name, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {why}")]
pub struct BadName {
    what: &'static str,
    why: &'static str,
}

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident, $what:literal;)*) => {$(
        $(#[$doc])*
        ///
        /// 1 to 255 bytes of UTF-8 without control characters.
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks length and characters.
            ///
            /// # Errors
            ///
            /// [`BadName`] if the text is empty, longer than 255 bytes or has control characters.
            pub fn new(text: impl Into<String>) -> Result<Self, BadName> {
                let text = text.into();
                check($what, &text)?;
                Ok(Self(text))
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = BadName;
            fn try_from(text: String) -> Result<Self, BadName> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }
    )*};
}

fn check(what: &'static str, text: &str) -> Result<(), BadName> {
    if text.is_empty() {
        return Err(BadName { what, why: "is empty" });
    }
    if text.len() > 255 {
        return Err(BadName { what, why: "is longer than 255 bytes" });
    }
    if text.chars().any(char::is_control) {
        return Err(BadName { what, why: "has control characters" });
    }
    Ok(())
}

names! {
    /// The name of an upstream service, as in the policy file.
    ServiceName, "the service name";
    /// The name of a tool; unique over all policy files.
    ToolName, "the tool name";
    /// The id of a capability in the registry.
    CapabilityId, "the capability id";
    /// The tenant that an agent, an approver or an app belongs to.
    Tenant, "the tenant";
    /// The person on whose behalf the agent acts.
    Owner, "the owner";
    /// The agent that makes the call.
    Initiator, "the initiator";
    /// The conversation that the call belongs to.
    SessionId, "the session";
    /// A principal that decides: an approver's or an app's name.
    Principal, "the principal";
    /// The id of a guard process's journal, and so of the process itself.
    NodeId, "the node id";
}

/// One of sixteen partitions of the store, taken from the keyed owner hash; printed as one hex
/// digit. It stands in draft ids and tokens, so that any node finds the slot from an id alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition(u8);

impl Partition {
    /// How many there are.
    pub const COUNT: usize = 16;

    /// The partition of an owner.
    #[must_use]
    pub const fn of(owner_hash: &Digest) -> Self {
        Self(owner_hash.as_bytes()[0] >> 4)
    }

    /// 0 to 15.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// All sixteen, in order.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..16).map(Self)
    }

    /// The one with the digit `0`, which also has what belongs to no owner.
    #[must_use]
    pub const fn first() -> Self {
        Self(0)
    }

    /// `0` to `f`.
    #[must_use]
    pub fn as_char(self) -> char {
        char::from_digit(u32::from(self.0), 16).unwrap_or('0')
    }

    /// Reads one lower-case hex digit.
    #[must_use]
    pub fn from_char(digit: char) -> Option<Self> {
        if digit.is_ascii_uppercase() {
            return None;
        }
        digit.to_digit(16).and_then(|value| u8::try_from(value).ok()).map(Self)
    }
}

/// A draft's public id: `dr_N_ULID`, N the partition. Not a secret: it opens nothing by itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DraftId(String);

impl DraftId {
    /// A new id; its time part is `now`, the rest is random.
    #[must_use]
    pub fn new(partition: Partition, now: Timestamp, chance: &dyn Chance) -> Self {
        let random = u128::from_be_bytes(chance.bytes16());
        let millis = u64::try_from(now.as_millis()).unwrap_or(0);
        Self(format!("dr_{}_{}", partition.as_char(), ulid::Ulid::from_parts(millis, random)))
    }

    /// The text, `dr_5_01J…`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The partition that the id names.
    #[must_use]
    pub fn partition(&self) -> Partition {
        self.0.chars().nth(3).and_then(Partition::from_char).unwrap_or(Partition(0))
    }

    /// The id of this draft's receipt: `rc_N_ULID` with the same partition and ULID, so that a
    /// settle that is asked twice names the same receipt.
    #[must_use]
    pub fn receipt_id(&self) -> String {
        format!("rc_{}", &self.0[3..])
    }
}

impl FromStr for DraftId {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let bad = BadName { what: "the draft id", why: "is not of the form dr_N_ULID" };
        let rest = text.strip_prefix("dr_").ok_or_else(|| bad.clone())?;
        let (digit, ulid) = rest.split_once('_').ok_or_else(|| bad.clone())?;
        let mut digits = digit.chars();
        let partition = digits.next().and_then(Partition::from_char);
        let known = partition.is_some() && digits.next().is_none();
        match ulid::Ulid::from_string(ulid) {
            Ok(parsed) if known && parsed.to_string() == ulid => Ok(Self(text.to_owned())),
            _ => Err(bad),
        }
    }
}

impl TryFrom<String> for DraftId {
    type Error = BadName;
    fn try_from(text: String) -> Result<Self, BadName> {
        text.parse()
    }
}

impl From<DraftId> for String {
    fn from(id: DraftId) -> Self {
        id.0
    }
}

impl fmt::Display for DraftId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// 128 random bits made once per intention. A store keeps the last one per draft and step: the
/// same id again gets the same answer, which makes a lost reply harmless.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StepId([u8; 16]);

impl StepId {
    /// A new intention.
    #[must_use]
    pub fn new(chance: &dyn Chance) -> Self {
        Self(chance.bytes16())
    }

    /// From sixteen bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl From<StepId> for String {
    fn from(id: StepId) -> Self {
        HEXLOWER.encode(&id.0)
    }
}

impl TryFrom<String> for StepId {
    type Error = BadName;
    fn try_from(text: String) -> Result<Self, BadName> {
        let bad = BadName { what: "the step id", why: "is not 32 lower-case hex digits" };
        let bytes = HEXLOWER.decode(text.as_bytes()).map_err(|_| bad.clone())?;
        bytes.try_into().map(Self).map_err(|_| bad)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used)]
    use super::*;
    use crate::base::chance::SeededChance;

    #[test]
    fn draft_ids_go_round_and_other_spellings_are_refused() {
        let chance = SeededChance::new(1);
        let id = DraftId::new(Partition(10), Timestamp::from_millis(1_700_000_000_000), &chance);
        assert!(id.as_str().starts_with("dr_a_01"), "{id}");
        assert_eq!(id.as_str().parse(), Ok(id.clone()));
        assert_eq!(id.partition(), Partition(10));
        assert_eq!((id.partition().index(), Partition(15).index() + 1), (10, Partition::COUNT));
        for bad in [
            "",
            "dr_a",
            "dr_g_01ARZ3NDEKTSV4RRFFQ69G5FAV",
            "dr_A_01ARZ3NDEKTSV4RRFFQ69G5FAV",
            "dr_a_01arz3ndektsv4rrffq69g5fav",
            "dr_a_01ARZ3NDEKTSV4RRFFQ69G5FAV ",
            "dr_aa_01ARZ3NDEKTSV4RRFFQ69G5FAV",
        ] {
            assert!(bad.parse::<DraftId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn names_are_bounded() {
        assert!(Owner::new("").is_err());
        assert!(Owner::new("a\nb").is_err());
        assert!(Owner::new("x".repeat(256)).is_err());
        assert!(Owner::new("пользователь").is_ok());
    }
}
