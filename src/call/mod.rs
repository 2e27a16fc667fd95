//! Floor 1, pure: what was asked.
//!
//! Owns the framing and path rules, the understanding of bodies as args, and the canonical form.
//! Must never know a policy, a clock or a socket.
//!
//! | file | question it answers |
//! | --- | --- |
//! | [`framing`] | where does a request begin and end on the wire? |
//! | [`head`], [`authority`], [`path`] | which host, method, path and query are asked for? |
//! | [`template`] | which paths does a policy name? |
//! | [`idempotency`] | which key did the caller give? |
//! | [`media`], [`coding`] | what kind of bytes is the body? |
//! | [`json`], [`query`], [`form`], [`multipart`] | which values stand in it? |
//! | [`args`] | the call as args, each with its place |
//! | [`canonical`] | the one spelling of those args |

pub mod args;
pub mod authority;
pub mod canonical;
pub mod coding;
pub mod form;
pub mod framing;
pub mod head;
pub mod hop;
pub mod idempotency;
pub mod json;
pub mod media;
pub mod multipart;
pub mod path;
pub mod query;
pub mod template;
