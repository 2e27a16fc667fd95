//! The guard over the in-memory twin, a scripted upstream and clocks that move when told to.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub(crate) mod bench;
mod claims;
mod decisions;
mod earlier;
mod faults;
mod faulty;
mod holds;
mod releases;
mod truth;
