//! New one-time links to the console, for whoever has an approver's token.
//!
//! A link signs in exactly the approver whose token asked for it, so it opens nothing that the
//! token itself does not open at the sign-in page. Must never make one for anybody else.

use axum::response::Response;
use serde::Serialize;

use crate::base::id::Principal;
use crate::base::time::Timestamp;
use crate::guard::problem::Problem;

use super::asked::Asked;
use super::closed::Closed;
use super::console::session::CODE_LIFE;
use super::{reply, routes};

/// A new link.
#[derive(Debug, Serialize)]
pub(super) struct Link {
    /// The console's address with the code in its fragment.
    pub(super) link: String,
    /// Who it signs in.
    pub(super) approver: Principal,
    /// Until when it can be used, once.
    pub(super) expires_at: Timestamp,
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
    // The entry may have been taken away since the token was compared.
    let link = asked.state.new_sign_in_link(&approver).ok_or_else(routes::credential_unknown)?;
    tracing::info!(%approver, "a one-time link to the console was made");
    Ok(Link { link, approver, expires_at: asked.state.clock.now() + CODE_LIFE })
}
