//! Floor 0: words without I/O that every other floor shares.
//!
//! Owns ids, digests, secrets that cannot be printed, the clock and the source of chance.
//! Must never open a file or a socket; [`time`] and [`chance`] are the only places in the
//! crate that ask the operating system for the time or for random bytes.

pub mod chance;
pub mod code;
pub mod cookie;
pub mod digest;
pub mod id;
pub mod refusal;
pub mod secret;
pub mod time;
