//! New one-time links to the console, for whoever has an approver's token.
//!
//! A link signs in exactly the approver whose token asked for it, so it opens nothing that the
//! token itself does not open at the sign-in page. Must never make one for anybody else.

use axum::response::Response;
use serde::{Serialize, Serializer};

use crate::base::code::Code;
use crate::base::id::Principal;
use crate::base::secret::Secret;
use crate::base::time::Timestamp;
use crate::guard::problem::Problem;

use super::asked::Asked;
use super::closed::Closed;
use super::console::session::CODE_LIFE;
use super::state::NoLink;
use super::{reply, routes};

/// A new link.
#[derive(Debug, Serialize)]
pub(super) struct Link {
    /// The console's address with the code in its fragment.
    #[serde(serialize_with = "revealed")]
    pub(super) link: Secret,
    /// Who it signs in.
    pub(super) approver: Principal,
    /// Until when it can be used, once.
    pub(super) expires_at: Timestamp,
}

/// The one place where the link is written out: the answer to whoever asked for it.
fn revealed<S: Serializer>(link: &Secret, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(link.reveal())
}

/// `POST /v1/sign-in-links`
pub(super) async fn make(asked: Asked) -> Response {
    match try_make(&asked) {
        Ok(link) => reply::json(201, &link),
        Err(problem) => reply::from_problem(&problem),
    }
}

fn try_make(asked: &Asked) -> Result<Link, Problem> {
    Closed::read(asked.headers(), &asked.body)?.finish()?;
    let approver = asked.approver()?.name.clone();
    let link = asked.state.new_sign_in_link(&approver).map_err(|why| match why {
        // The entry was taken away since the token was compared.
        NoLink::Unknown => routes::credential_unknown(),
        NoLink::TooMany => Problem::new(
            Code::RateLimited,
            "Too many sign-in links are open. Ask again in two minutes, or sign in with the token itself.",
        ),
    })?;
    tracing::info!(%approver, "a one-time link to the console was made");
    Ok(Link { link, approver, expires_at: asked.state.clock.now() + CODE_LIFE })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn p10_a_link_is_told_to_whoever_asked_and_printed_nowhere_else() {
        let link = Link {
            link: Secret::new("http://127.0.0.1:7071/#code=AAAA-BBBB"),
            approver: Principal::new("alice").unwrap(),
            expires_at: Timestamp::from_millis(0),
        };
        assert!(!format!("{link:?}").contains("AAAA"), "{link:?}");
        assert_eq!(serde_json::to_value(&link).unwrap()["link"], "http://127.0.0.1:7071/#code=AAAA-BBBB");
    }
}
