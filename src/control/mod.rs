//! Floor 4: the approver-facing shells. They translate and decide nothing.
//!
//! Owns the control API, the console, and who stands there. A GET never decides, collects or
//! extends anything; opening a card notes that it was seen, and that is all.
//!
//! | file | question it answers |
//! | --- | --- |
//! | [`listener`], [`door`], [`framed`] | which bytes are a request, and how much may one ask of us? |
//! | [`routes`] | which calls are there, and who may make them? |
//! | [`caller`], [`credentials`], [`origin`] | who stands there, and did they mean to come? |
//! | [`closed`], [`asked`] | what exactly is asked? |
//! | [`desk`] | what may this shell ask of the guard? |
//! | [`drafts`], [`tokens`], [`events`], [`policies`], [`links`], [`health`] | the calls |
//! | [`facade`] | the calls of `/api/tasks`, and the one by which an agent proposes here |
//! | [`told`] | where does a draft stand, in words? |
//! | [`openapi`] | the same table, for machines |
//! | [`console`] | the same calls, for people |

pub mod credentials;
pub mod desk;
pub mod listener;
pub mod state;
pub mod told;

mod asked;
mod caller;
mod closed;
mod console;
mod door;
mod drafts;
mod events;
pub mod facade;
mod framed;
mod health;
mod links;
mod openapi;
mod origin;
mod policies;
mod reply;
mod routes;
mod schemas;
mod tokens;

#[cfg(test)]
mod tests;

pub use routes::router;
pub use state::{ControlParts, ControlState, NoLink, NotTaken, PolicyReport, PolicyStatus, Scrape};
