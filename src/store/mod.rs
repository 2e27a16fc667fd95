//! Floor 2: the atomic steps of a draft's life, behind one written contract.
//!
//! Owns the [`contract::Store`] trait, the rules of every step (written once over
//! [`rows::Rows`], and once more in `lua/`), the embedded SQLite store, the Redis store, the in-memory
//! twin, and the conformance cases.
//! Must never decide policy, open a sealed draft or reach an upstream.

mod clock;
pub mod conformance;
pub mod contract;
pub mod cursor;
pub mod journal;
#[cfg(test)]
mod naive;
pub mod observer;
pub mod redis;
pub mod rights;
pub mod row;
pub mod rows;
pub mod sqlite;
mod steps;
pub mod twin;
