//! Hints: what any node's steps publish, for the waiters of this one. The truth is the store; a
//! hint that is lost costs a waiter its patience and nothing else.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::sync::broadcast;

use crate::base::id::DraftId;

use super::link::Link;

/// The channel; scripts publish the draft's id there.
pub(super) const CHANNEL: &str = "cs:hints";

/// How long to wait before a broken subscription is made again.
const PAUSE: Duration = Duration::from_millis(500);

/// Listens until the store is gone.
pub(super) async fn relay(link: Weak<Link>, hints: broadcast::Sender<DraftId>) {
    while let Some(link) = link.upgrade() {
        if let Err(error) = listen(link, &hints).await {
            tracing::warn!(%error, "hints of other nodes are not heard; trying again");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn listen(link: Arc<Link>, hints: &broadcast::Sender<DraftId>) -> Result<(), redis::RedisError> {
    let mut subscription = link.subscription().await?;
    drop(link);
    subscription.subscribe(CHANNEL).await?;
    let mut messages = subscription.into_on_message();
    while let Some(message) = messages.next().await {
        if let Ok(id) = message.get_payload::<String>()
            && let Ok(id) = id.parse()
        {
            // No receiver is no fault: a hint is only a hint.
            let _unheard = hints.send(id);
        }
    }
    Ok(())
}
