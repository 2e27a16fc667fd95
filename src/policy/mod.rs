//! Floor 1, pure: policy files become a [`model::PolicySet`], and a call becomes a verdict.
//!
//! Owns the format, every cross-check of the loader, matching, preparation, previews and the
//! verdict. Must never read a file, a clock, the environment or a socket: texts and
//! substitutions are handed in.

pub mod card;
mod credential;
pub mod diagnostic;
pub mod editor;
pub mod judge;
pub(crate) mod keys;
pub mod load;
mod matching;
pub mod model;
pub mod named;
mod open;
mod outbound;
pub mod prepare;
pub mod read;
mod recheck;
mod rewrite;
pub mod roles;
mod schema;
pub mod template;
pub mod visible;
pub mod yaml;

#[cfg(test)]
pub(crate) mod tests;
