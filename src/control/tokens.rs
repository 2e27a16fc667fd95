//! Decisions by confirmation token: a product's own backend speaks for its signed-in owner.
//!
//! The token alone opens nothing. The app has to be known, allowed to act for owners, and to name
//! the owner and the session that the draft belongs to; the guard compares them.

use axum::response::Response;
use http::HeaderMap;

use crate::base::code::Code;
use crate::base::id::BadName;
use crate::base::secret::Secret;
use crate::guard::answer::Answer;
use crate::guard::problem::Problem;
use crate::guard::who::AppCaller;

use super::asked::{Asked, Caller, Preference};
use super::closed::{self, Closed};
use super::drafts::{applied, hand_on};
use super::routes;

/// The reason of a rejection by token that gives none.
const NO_REASON: &str = "The owner declined.";

/// `POST /v1/confirmations`
pub(super) async fn confirm(asked: Asked) -> Response {
    let preference = Preference::read(asked.headers());
    hand_on(try_confirm(&asked, preference).await.map(|answer| applied(answer, preference)))
}

async fn try_confirm(asked: &Asked, preference: Preference) -> Result<Answer, Problem> {
    let app = app(asked)?;
    let decision_key = asked.decision_key()?;
    let mut body = Closed::read(asked.headers(), &asked.body)?;
    let token = Secret::new(body.required_text("confirmation_token", closed::TOKEN_CHARS_MAX));
    body.finish()?;
    Ok(asked.state.desk.confirm_by_token(&app, &token, decision_key, preference.wait).await)
}

/// `POST /v1/rejections`
pub(super) async fn reject(asked: Asked) -> Response {
    hand_on(try_reject(&asked).await)
}

async fn try_reject(asked: &Asked) -> Result<Answer, Problem> {
    let app = app(asked)?;
    let decision_key = asked.decision_key()?;
    let mut body = Closed::read(asked.headers(), &asked.body)?;
    let token = Secret::new(body.required_text("confirmation_token", closed::TOKEN_CHARS_MAX));
    let reason = body.text("reason", closed::WORDS_CHARS_MAX).unwrap_or_else(|| NO_REASON.to_owned());
    body.finish()?;
    Ok(asked.state.desk.reject_by_token(&app, &token, reason, decision_key).await)
}

/// The app, with the owner and the session that it names.
fn app(asked: &Asked) -> Result<AppCaller, Problem> {
    let Caller::App(entry) = &asked.caller else { return Err(routes::credential_unknown()) };
    if !entry.act_for_owners {
        let problem = Problem::new(
            Code::ApproverNotAllowed,
            "This app may not act for owners: its entry in countersign.yaml does not say act_for_owners: true.",
        );
        asked.state.observer.refused_attempt(problem.code, entry.name.as_str());
        return Err(problem);
    }
    Ok(AppCaller {
        app: entry.name.clone(),
        tenant: entry.tenant.clone(),
        owner: named(asked.headers(), "Countersign-Owner")?,
        session: named(asked.headers(), "Countersign-Session")?,
    })
}

/// Reads a header that names somebody. A missing one never stands for anyone.
fn named<T: TryFrom<String, Error = BadName>>(headers: &HeaderMap, name: &'static str) -> Result<T, Problem> {
    let missing =
        |why: String| Problem::new(Code::IdentityMissing, format!("The header {name} {why}. Nothing was changed."));
    let mut all = headers.get_all(name).iter();
    let first = all.next().ok_or_else(|| missing("is missing".to_owned()))?;
    if all.next().is_some() {
        return Err(missing("stands more than once".to_owned()));
    }
    let text = std::str::from_utf8(first.as_bytes()).map_err(|_| missing("is not UTF-8".to_owned()))?;
    T::try_from(text.to_owned()).map_err(|error| missing(format!("cannot be used: {error}")))
}
