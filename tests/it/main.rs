//! The black-box suite: the real binary as a child process, a recording origin, and nothing else.
//! One module per promise. The oracle is the origin's own count of effects.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::float_cmp)]

mod bad_input;
mod bodies;
mod cli;
mod console;
mod crash;
mod deciding;
mod earlier;
mod examples;
mod expiry;
mod facade;
mod framing;
mod harness;
mod held;
mod identity;
mod naive;
mod paths;
mod policy_life;
mod reads;
mod redis;
mod release;
mod repeats;
mod rules;
mod secrets;
mod startup;
mod store_gone;
mod support;
mod surface;
mod tampering;
mod unknown;
mod unreadable;
