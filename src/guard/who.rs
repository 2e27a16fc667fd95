//! Who stands at the control listener, and what they may do.

use crate::base::id::{Owner, Principal, SessionId, Tenant};
use crate::draft::decision::Channel;
use crate::draft::record::Risk;

/// A pattern of the configuration: exact, or with one `*` at the end (`refund.*`, `*`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// Takes the text as it stands in the configuration.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Whether `text` fits.
    #[must_use]
    pub fn fits(&self, text: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(prefix) => text.starts_with(prefix),
            None => self.0 == text,
        }
    }
}

/// What an approver may decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rights {
    /// Capabilities.
    pub capabilities: Vec<Pattern>,
    /// Services.
    pub services: Vec<Pattern>,
    /// Owners, by their plain name.
    pub owners: Vec<Pattern>,
    /// The highest risk.
    pub max_risk: Risk,
}

impl Rights {
    /// Everything: the generated `local` approver's.
    #[must_use]
    pub fn all() -> Self {
        let any = || vec![Pattern::new("*")];
        Self { capabilities: any(), services: any(), owners: any(), max_risk: Risk::High }
    }
}

/// A person with a credential of the control listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approver {
    /// The configured name.
    pub name: Principal,
    /// The tenant: nothing of another one is visible.
    pub tenant: Tenant,
    /// Roles, for rules that name them.
    pub roles: Vec<String>,
    /// What they may decide; `None` means nothing.
    pub rights: Option<Rights>,
    /// `bearer` or `session`.
    pub auth_method: &'static str,
    /// The channel of this request.
    pub channel: Channel,
}

/// A product's own backend that decides for its signed-in owner, by confirmation token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppCaller {
    /// The configured name of the app.
    pub app: Principal,
    /// Its tenant.
    pub tenant: Tenant,
    /// The owner that it names.
    pub owner: Owner,
    /// The session that it names.
    pub session: SessionId,
}
