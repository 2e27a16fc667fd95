//! One request on its way to its handler: everything that was checked stands here, parsed.
//!
//! Owns the readers of query parameters, `Prefer` and `Idempotency-Key`. Must never decide.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::Query;
use bytes::Bytes;
use http::{HeaderMap, request};

use crate::agent::credential::Agent;
use crate::base::digest::Digest;
use crate::base::id::DraftId;
use crate::base::refusal::FieldError;
use crate::call::idempotency;
use crate::guard::problem::Problem;
use crate::guard::who::Approver;

use super::console::session::SignedIn;
use super::credentials::AppEntry;
use super::reply;
use super::state::ControlState;

/// Who asks, as the route demanded it.
#[derive(Debug, Clone)]
pub(super) enum Caller {
    /// Nobody in particular: the route needs no credential.
    Nobody,
    /// A person with a bearer token.
    Approver {
        /// As the guard knows them.
        who: Approver,
        /// The digest of the token, for a stream that lives longer than the token may.
        token_sha256: Digest,
    },
    /// A product's backend.
    App(AppEntry),
    /// An agent, at the calls that it may make here.
    Agent(Arc<Agent>),
    /// A person with a console session.
    SignedIn(SignedIn),
}

/// A request that its route may answer.
pub(super) struct Asked {
    /// The parts of the listener.
    pub(super) state: Arc<ControlState>,
    /// Method, target and headers.
    pub(super) parts: request::Parts,
    /// The path's one parameter, decoded; empty where there is none.
    pub(super) id: String,
    /// Who asks.
    pub(super) caller: Caller,
    /// The body; empty for GET.
    pub(super) body: Bytes,
}

impl Asked {
    /// The headers.
    pub(super) const fn headers(&self) -> &HeaderMap {
        &self.parts.headers
    }

    /// The draft that the path names. What cannot be an id was never known.
    ///
    /// # Errors
    ///
    /// `DRAFT_NOT_FOUND`.
    pub(super) fn draft_id(&self) -> Result<DraftId, Problem> {
        self.id.parse().map_err(|_| reply::no_such_draft())
    }

    /// The approver that the route let in.
    ///
    /// # Errors
    ///
    /// `CREDENTIAL_UNKNOWN`; only if a route was declared without the need for one.
    pub(super) fn approver(&self) -> Result<&Approver, Problem> {
        match &self.caller {
            Caller::Approver { who, .. } => Ok(who),
            Caller::SignedIn(signed_in) => Ok(&signed_in.who),
            Caller::Nobody | Caller::App(_) | Caller::Agent(_) => Err(super::routes::credential_unknown()),
        }
    }

    /// `Idempotency-Key`, in its one spelling.
    ///
    /// # Errors
    ///
    /// `IDEMPOTENCY_KEY_INVALID`.
    pub(super) fn decision_key(&self) -> Result<Option<String>, Problem> {
        let key = idempotency::idempotency_key(self.headers())?;
        Ok(key.map(|key| key.as_str().to_owned()))
    }

    /// The query parameters.
    ///
    /// # Errors
    ///
    /// `REQUEST_INVALID`.
    pub(super) fn query(&self) -> Result<Params, Problem> {
        Params::read(&self.parts.uri)
    }
}

/// Query parameters, each at most once.
#[derive(Debug)]
pub(super) struct Params {
    pairs: Vec<(String, String)>,
    errors: Vec<FieldError>,
}

impl Params {
    pub(super) fn read(uri: &http::Uri) -> Result<Self, Problem> {
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri)
            .map_err(|_| reply::invalid("", "the query cannot be read: use name=value pairs, percent-encoded"))?;
        Ok(Self { pairs, errors: Vec::new() })
    }

    /// Refuses every name that is not in `known`, and every name that stands there twice.
    pub(super) fn only(mut self, known: &[&str]) -> Result<Self, Problem> {
        for (at, (name, _)) in self.pairs.iter().enumerate() {
            let repeated = self.pairs[..at].iter().any(|(before, _)| before == name);
            let reason = match (known.contains(&name.as_str()), repeated) {
                (true, false) => continue,
                (true, true) => "stands there twice",
                (false, _) => "is not a parameter of this call",
            };
            let error = FieldError { pointer: format!("?{name}"), reason: reason.to_owned() };
            self.errors.push(error);
        }
        self.finish().map(|pairs| Self { pairs, errors: Vec::new() })
    }

    /// Reads a parameter, if it is there.
    pub(super) fn take<T>(&mut self, name: &str, must_be: &str, read: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let (_, value) = self.pairs.iter().find(|(known, _)| known == name)?;
        let parsed = read(value);
        if parsed.is_none() {
            self.errors.push(FieldError { pointer: format!("?{name}"), reason: format!("has to be {must_be}") });
        }
        parsed
    }

    /// Ends the reading.
    ///
    /// # Errors
    ///
    /// `REQUEST_INVALID` with every mistake.
    pub(super) fn finish(self) -> Result<Vec<(String, String)>, Problem> {
        if self.errors.is_empty() { Ok(self.pairs) } else { Err(reply::invalid_all(self.errors)) }
    }
}

/// What a confirm prefers (RFC 7240).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Preference {
    /// How long to wait; `None` leaves it to the guard.
    pub(super) wait: Option<Duration>,
}

impl Preference {
    /// Reads `wait=N` (whole seconds) and `respond-async`; everything else is ignored, as the RFC
    /// says. The first `wait` counts; `respond-async` wins.
    pub(super) fn read(headers: &HeaderMap) -> Self {
        let mut preference = Self::default();
        let lines = headers.get_all("prefer").iter().filter_map(|line| line.to_str().ok());
        for item in lines.flat_map(|line| line.split(',')) {
            let word = item.split(';').next().unwrap_or_default().trim();
            if word.eq_ignore_ascii_case("respond-async") {
                return Self { wait: Some(Duration::ZERO) };
            }
            let Some((name, value)) = word.split_once('=') else { continue };
            if name.trim().eq_ignore_ascii_case("wait") && preference.wait.is_none() {
                let seconds = value.trim().trim_matches('"').parse::<u32>().ok();
                preference.wait = seconds.map(|seconds| Duration::from_secs(seconds.into()));
            }
        }
        preference
    }

    /// What `Preference-Applied` says.
    pub(super) fn applied(self) -> Option<String> {
        match self.wait {
            None => None,
            Some(Duration::ZERO) => Some("respond-async".to_owned()),
            Some(wait) => Some(format!("wait={}", wait.as_secs())),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn prefer(lines: &[&str]) -> Preference {
        let mut map = HeaderMap::new();
        for line in lines {
            map.append("prefer", line.parse().unwrap());
        }
        Preference::read(&map)
    }

    #[test]
    fn preferences_are_read_as_the_rfc_says() {
        assert_eq!(prefer(&[]).wait, None);
        assert_eq!(prefer(&["wait=3"]).wait, Some(Duration::from_secs(3)));
        assert_eq!(prefer(&["foo, WAIT = \"7\"; x=y"]).wait, Some(Duration::from_secs(7)));
        assert_eq!(prefer(&["wait=3", "wait=9"]).wait, Some(Duration::from_secs(3)));
        assert_eq!(prefer(&["wait=3, respond-async"]).wait, Some(Duration::ZERO));
        for nonsense in ["wait", "wait=", "wait=-1", "wait=1.5", "wait=99999999999"] {
            assert_eq!(prefer(&[nonsense]).wait, None, "{nonsense}");
        }
        assert_eq!(prefer(&["respond-async"]).applied().as_deref(), Some("respond-async"));
        assert_eq!(prefer(&["wait=5"]).applied().as_deref(), Some("wait=5"));
    }

    #[test]
    fn unknown_and_repeated_parameters_are_refused() {
        let params = |text: &str| Params::read(&text.parse().unwrap()).and_then(|params| params.only(&["status"]));
        assert!(params("/v1/drafts?status=a").is_ok());
        assert!(params("/v1/drafts").is_ok());
        assert!(params("/v1/drafts?stauts=a").is_err());
        assert!(params("/v1/drafts?status=a&status=b").is_err());
    }
}
