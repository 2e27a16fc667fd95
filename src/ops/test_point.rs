//! Stops a debug build at a named point, for tests that kill or suspend a real process there.
//!
//! `COUNTERSIGN_TEST_POINT=NAME:FILE`: when the guard reaches NAME (one of
//! [`crate::guard::pause::POINTS`]) it makes FILE and goes on once FILE is gone. A release build
//! has no code that stops, and refuses to start with the variable set.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;

use crate::guard::pause::{NoPause, POINTS, Pause};

/// The variable.
pub const VARIABLE: &str = "COUNTERSIGN_TEST_POINT";

/// The variable cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadTestPoint {
    /// Not `NAME:FILE` with a known name.
    #[error("{VARIABLE} is not NAME:FILE with one of {}", POINTS.join(", "))]
    Unknown,
    /// This build does not stop.
    #[error("{VARIABLE} is set, but this is a release build: it has no test points\nhint: unset it")]
    Release,
}

/// What the variable asks for. `value` is its value, where it is set.
///
/// # Errors
///
/// [`BadTestPoint`].
pub fn from_value(value: Option<&OsStr>) -> Result<Arc<dyn Pause>, BadTestPoint> {
    let Some(value) = value else { return Ok(Arc::new(NoPause)) };
    if !cfg!(debug_assertions) {
        return Err(BadTestPoint::Release);
    }
    let text = value.to_str().ok_or(BadTestPoint::Unknown)?;
    let (name, file) = text.split_once(':').ok_or(BadTestPoint::Unknown)?;
    let point = POINTS.into_iter().find(|point| *point == name).ok_or(BadTestPoint::Unknown)?;
    if file.is_empty() {
        return Err(BadTestPoint::Unknown);
    }
    Ok(Arc::new(TestPoint { point, file: PathBuf::from(file) }))
}

#[derive(Debug)]
struct TestPoint {
    point: &'static str,
    file: PathBuf,
}

#[async_trait]
impl Pause for TestPoint {
    async fn at(&self, point: &'static str) {
        if !cfg!(debug_assertions) || point != self.point {
            return;
        }
        tracing::info!(point, "test point reached");
        if let Err(error) = tokio::fs::write(&self.file, point).await {
            tracing::error!(%error, "the test point's file cannot be made; going on");
            return;
        }
        while tokio::fs::try_exists(&self.file).await.unwrap_or(false) {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        tracing::info!(point, "test point left");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_known_points_are_taken() {
        for bad in ["", "after_claim", "after_claim:", "nowhere:/tmp/x", ":/tmp/x"] {
            assert_eq!(from_value(Some(OsStr::new(bad))).err(), Some(BadTestPoint::Unknown), "{bad}");
        }
        assert!(from_value(None).is_ok());
        assert!(from_value(Some(OsStr::new("after_claim:/tmp/x"))).is_ok());
    }

    #[tokio::test]
    async fn it_stops_until_the_file_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("reached");
        let value = format!("after_claim:{}", file.display());
        let pause = from_value(Some(OsStr::new(&value))).unwrap();
        pause.at("after_hold_before_answer").await;
        assert!(!file.exists(), "another point does not stop");
        let waiting = tokio::spawn(async move { pause.at("after_claim").await });
        while !file.exists() {
            tokio::task::yield_now().await;
        }
        assert!(!waiting.is_finished());
        std::fs::remove_file(&file).unwrap();
        waiting.await.unwrap();
    }
}
