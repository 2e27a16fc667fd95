//! Hints: what any node's steps publish, for the waiters of this one. The truth is the store; a
//! hint that is lost costs a waiter its patience and nothing else.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::sync::broadcast;

use crate::base::id::DraftId;

use super::link::{Failure, Link};

/// The channel; scripts publish the draft's id there.
pub(super) const CHANNEL: &str = "cs:hints";

/// How long a subscription may be silent before it is made anew.
const QUIET: Duration = Duration::from_secs(60);

/// How long to wait before a broken subscription is made again.
const PAUSE: Duration = Duration::from_millis(500);

/// Listens until the store is gone.
pub(super) async fn relay(link: Weak<Link>, hints: broadcast::Sender<DraftId>) {
    let mut deaf = false;
    while let Some(link) = link.upgrade() {
        match listen(link, &hints, &mut deaf).await {
            // Quiet for long: the connection may be cut without a word, so another one is made.
            Ok(Heard::Nothing) => continue,
            Ok(Heard::End) => {}
            // Told once, and when it is over.
            Err(failure) if !std::mem::replace(&mut deaf, true) => {
                tracing::warn!(error = %failure.error, "hints of other nodes are not heard; trying again");
            }
            Err(failure) => tracing::debug!(error = %failure.error, "hints of other nodes are still not heard"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// How listening ended.
enum Heard {
    Nothing,
    End,
}

async fn listen(link: Arc<Link>, hints: &broadcast::Sender<DraftId>, deaf: &mut bool) -> Result<Heard, Failure> {
    let mut subscription = link.subscription().await?;
    drop(link);
    let refused = |why: String| Failure::unavailable("disconnected", why);
    match tokio::time::timeout(QUIET, subscription.subscribe(CHANNEL)).await {
        Ok(subscribed) => subscribed.map_err(|error| refused(error.to_string()))?,
        Err(_) => return Err(refused("the subscription was not answered".to_owned())),
    }
    if std::mem::take(deaf) {
        tracing::info!("hints of other nodes are heard again");
    }
    let mut messages = subscription.into_on_message();
    loop {
        let Ok(message) = tokio::time::timeout(QUIET, messages.next()).await else { return Ok(Heard::Nothing) };
        let Some(message) = message else { return Ok(Heard::End) };
        if let Ok(id) = message.get_payload::<String>()
            && let Ok(id) = id.parse()
        {
            // No receiver is no fault: a hint is only a hint.
            let _unheard = hints.send(id);
        }
    }
}
