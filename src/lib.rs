//! Countersign: a guard between AI agents and the HTTP APIs they use as tools.
//!
//! Reads stream through. A call that would change something is stored as a draft, shown to a
//! person exactly as it will be sent, and released upstream only after one atomic confirm.
//!
//! # Floors
//!
//! A file uses its own floor and the floors below it; `tests/tidy.rs` fails on an arrow up.
//!
//! | floor | rooms | what they may do |
//! | --- | --- | --- |
//! | 0 | [`base`] | words without I/O; the only reader of clocks and chance |
//! | 1 | [`call`], [`policy`], [`draft`] | pure: what was asked, what is allowed, what is held |
//! | 2 | [`store`], [`upstream`] | the atomic steps; one attempt, classified |
//! | 3 | [`guard`] | the order of things: admit, hold, decide, release, recover |
//! | 4 | [`agent`], [`control`], [`ops`] | shells that translate |
//! | 5 | [`cli`], [`server`] | subcommands and wiring |
//!
//! # The ten promises
//!
//! 1. The agent proposes, never approves.
//! 2. What is confirmed is what is sent.
//! 3. One confirmation, at most one send.
//! 4. Claimed before sent, marked before the first byte.
//! 5. Unknown is a state of its own.
//! 6. No receipt, no success.
//! 7. Fail closed.
//! 8. Nothing is lost.
//! 9. No edge leads back to pending.
//! 10. Secrets stay secret.

pub mod agent;
pub mod base;
pub mod call;
pub mod cli;
pub mod control;
pub mod draft;
pub mod guard;
pub mod ops;
pub mod policy;
pub mod server;
pub mod store;
pub mod upstream;
