//! Floor 4: the agent-facing shells. They translate and decide nothing.
//!
//! Owns the listener, the strict framing in front of it, streaming of reads, the agent's
//! credential and identity, and `/.countersign/`. Nothing that this listener accepts can decide
//! (promise 1).

mod ask;
pub mod correlation;
pub mod credential;
mod endpoints;
mod held;
mod hold;
pub mod identity;
mod lanes;
pub mod listener;
pub mod observe;
mod proxy;
mod relay;
mod resolve;
mod respond;
mod strip;
#[cfg(test)]
mod testing;
mod trust;
mod wire;

pub use listener::{AgentConfig, AgentLimits, AgentListener};
