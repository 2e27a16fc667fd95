//! Floor 1, pure: what a held write is, how it is bound, and the one table of its transitions.
//!
//! Owns the immutable [`record::Draft`], its sealing and its MAC, the keys they need, decisions,
//! outcomes and receipts. Must never read a clock, a file or a socket.

pub mod binding;
pub mod decision;
pub mod keys;
pub mod outcome;
pub mod proof;
pub mod receipt;
pub mod record;
pub mod seal;
pub mod state;
