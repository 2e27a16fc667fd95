//! The credentials of the control listener, and those that must never work on the other one.

use crate::base::digest::Digest;
use crate::base::id::{Principal, Tenant};
use crate::guard::who::Rights;

/// An approver of countersign.yaml, or the generated `local` one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApproverEntry {
    /// The name.
    pub name: Principal,
    /// SHA-256 of the token.
    pub token_sha256: Digest,
    /// Roles.
    pub roles: Vec<String>,
    /// The tenant.
    pub tenant: Tenant,
    /// What they may decide; `None` means nothing.
    pub rights: Option<Rights>,
}

/// A product's own backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppEntry {
    /// The name.
    pub name: Principal,
    /// SHA-256 of the token.
    pub token_sha256: Digest,
    /// The tenant.
    pub tenant: Tenant,
    /// Whether it may decide for owners.
    pub act_for_owners: bool,
}

/// All credentials of the control listener.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    /// People.
    pub approvers: Vec<ApproverEntry>,
    /// Backends.
    pub apps: Vec<AppEntry>,
    /// Digests of agents' tokens: recognised in order to be refused (`AGENT_MAY_NOT_DECIDE`).
    pub agent_tokens: Vec<Digest>,
}
