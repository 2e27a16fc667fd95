//! Floor 3: the order of things. Admit, hold, decide, release, recover.
//!
//! Owns the sequence in which the pure floors and the store are asked, the problem table and
//! what answers look like. Must never parse a socket's bytes and never decide a race: the store
//! does.

pub mod answer;
pub mod observer;
pub mod pause;
pub mod problem;
pub mod settings;
pub mod task;
pub mod views;
pub mod who;

mod collect;
mod core;
mod decide;
mod desk;
mod hold;
mod recover;
mod release;
mod render;
mod settle;
#[cfg(test)]
pub(crate) mod tests;
mod verify;

pub use core::{Guard, Parts};
pub use hold::Proposal;
