//! Floor 4: what an operator touches. Configuration, keys, policies on disk, metrics, logs.
//!
//! Owns files, signals' effects and numbers. Must never decide about a call.

pub mod config;
pub mod keys_file;
pub mod log;
pub mod metrics;
pub mod reload;
pub mod test_point;
pub mod token;
