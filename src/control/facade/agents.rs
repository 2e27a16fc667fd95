//! Agents at the control listener.
//!
//! Owns who they are there: by the same door and the same sources of identity as at their own listener.
//! Must never believe an identity header of anybody whose credential was not checked.

use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName};

use crate::agent::credential::{Agent, Door, ForeignTokens};
use crate::agent::identity::{IdentityRules, Said};
use crate::base::code::Code;
use crate::draft::record::Identity;
use crate::guard::problem::Problem;

use crate::control::routes;

/// What of the agents' side the facade needs.
#[derive(Debug)]
pub struct Agents {
    door: Door,
    rules: IdentityRules,
    identity_headers: Vec<HeaderName>,
    body_bytes_max: usize,
}

impl Agents {
    /// `foreign` are the tokens of this listener, which no agent may have; `body_bytes_max` bounds the
    /// body of a call, in bytes, where the policy does not say (`guard.max_body`).
    #[must_use]
    pub fn new(rules: IdentityRules, foreign: ForeignTokens, body_bytes_max: usize) -> Self {
        let identity_headers = rules.headers();
        Self { door: Door::new(&rules, foreign), rules, identity_headers, body_bytes_max }
    }

    /// The agent whose credential this is, and no other's beside it.
    ///
    /// # Errors
    ///
    /// `CREDENTIAL_UNKNOWN`; `REQUEST_AMBIGUOUS` for two credentials.
    pub(in crate::control) fn admit(&self, headers: &HeaderMap) -> Result<Arc<Agent>, Problem> {
        let agent = match self.door.admit_by(headers) {
            Ok(agent) if agent.checked => agent,
            Ok(_) => return Err(routes::agent_unknown()),
            Err(refusal) if refusal.code == Code::AgentUnknown => return Err(routes::agent_unknown()),
            Err(refusal) => return Err(refusal.into()),
        };
        if agent.by.as_ref() != Some(&AUTHORIZATION) && headers.contains_key(AUTHORIZATION) {
            let detail = "The request has an agent's credential and another one beside it. Nothing was held: no header of \
                          this request goes to an upstream; send the agent's credential alone.";
            return Err(Problem::new(Code::RequestAmbiguous, detail));
        }
        Ok(agent)
    }

    /// Who asks, for whom.
    ///
    /// # Errors
    ///
    /// As [`IdentityRules::identity`].
    pub(super) fn identity(
        &self,
        agent: &Agent,
        headers: &HeaderMap,
        said: Option<Said<'_>>,
    ) -> Result<Identity, Problem> {
        Ok(self.rules.identity(agent, headers, said)?)
    }

    pub(super) fn identity_headers(&self) -> &[HeaderName] {
        &self.identity_headers
    }

    pub(super) const fn body_bytes_max(&self) -> usize {
        self.body_bytes_max
    }
}
