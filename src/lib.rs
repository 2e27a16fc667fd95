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
//! # A held call
//!
//! Nothing here touches an upstream: a call is understood and judged, and what would be held, shown
//! and sent is known to the byte.
//!
//! ```
//! use bytes::Bytes;
//! use countersign::call::args::{BodyLimits, understand};
//! use countersign::call::head::Head;
//! use countersign::policy::judge::judge;
//! use countersign::policy::model::PolicySet;
//! # use countersign::base::id::{Initiator, Owner, SessionId, Tenant};
//! # use countersign::draft::record::Identity;
//! # let who = Identity {
//! #     tenant: Tenant::new("default").unwrap(), initiator: Initiator::new("bot").unwrap(),
//! #     owner: Owner::new("u1").unwrap(), session: SessionId::new("s1").unwrap(), role: None, subject: None,
//! #     admin_context: None, admin_mode: None, message_id: None, deliver_token: false,
//! # };
//!
//! // No policy file: reads pass, every other call is held.
//! let policies = PolicySet::open("notes", "http://notes.test").unwrap();
//! let body = Bytes::from_static(br#"{"title": "Buy milk"}"#);
//! let mut headers = http::HeaderMap::new();
//! headers.insert("host", "notes.internal".parse().unwrap());
//! headers.insert("content-type", "application/json".parse().unwrap());
//! headers.insert("content-length", body.len().into());
//!
//! let head = Head::read("POST", b"/todos", false, &headers).unwrap().into_owned();
//! let call = understand(head, body.clone(), &[], &BodyLimits { body_bytes_max: 1 << 20 }, true).unwrap();
//! let service = policies.route("notes.internal", "/todos").unwrap();
//! let selection = service.select(&call.head);
//! let held = judge(service, &selection, call, &who, &[]).unwrap();
//!
//! assert_eq!(held.request.target, "http://notes.test/todos");
//! assert_eq!(held.body, body, "what the agent sent is what goes out");
//! assert_eq!(held.args["title"], "Buy milk");
//! assert_eq!(held.args_hash.to_hex().len(), 64, "a confirm names exactly this call");
//! ```
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
