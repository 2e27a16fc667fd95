//! What the tests are written with: an origin, a guard, and those who talk to it.

pub(crate) mod act;
pub(crate) mod browser;
pub(crate) mod config;
pub(crate) mod cutter;
pub(crate) mod framing;
pub(crate) mod guard;
pub(crate) mod metrics;
pub(crate) mod people;
#[path = "../../support/redis.rs"]
pub(crate) mod redis;
pub(crate) mod stored;
pub(crate) mod upstream;
pub(crate) mod wait;
pub(crate) mod wire;

pub(crate) use act::{Act, Answer, End, Gate, Ticker};
pub(crate) use config::{DESK, Setup, edited, sha256_hex, tokens};
pub(crate) use cutter::Cutter;
pub(crate) use guard::Guard;
pub(crate) use people::{Agent, Approver, Draft};
pub(crate) use redis::Redis;
pub(crate) use upstream::Upstream;
pub(crate) use wait::{eventually, past, until};
pub(crate) use wire::{Request, Response, Wire, exchange, raw, try_exchange};
