//! Floor 2: one attempt at an upstream, classified; never a retry.
//!
//! Owns connections, TLS, the gate before the first byte, and the classification of what came
//! back. Must never decide whether a write may be sent: it takes a [`SendPermit`] by value and
//! there is no other way in (promises 3 to 5).
//!
//! [`SendPermit`]: crate::store::rights::SendPermit

pub mod address;
pub mod contract;
mod exchange;
#[cfg(test)]
pub(crate) mod fake;
mod gate;
pub mod http;
mod request;
mod response;
#[cfg(test)]
pub(crate) mod testing;
mod tls;
mod wire;
