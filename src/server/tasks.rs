//! The tasks of a running guard, and the order in which they end.

use std::future::Future;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::agent::AgentListener;
use crate::control::listener;
use crate::control::{ControlState, PolicyStatus as _};
use crate::ops::reload::{Policies, Watch};

/// Everything that runs beside the requests. Dropping it ends all of it at once.
pub(super) struct Tasks {
    stop: watch::Sender<bool>,
    shells: Vec<JoinHandle<()>>,
    background: Vec<JoinHandle<()>>,
    watch: Option<Watch>,
}

impl Tasks {
    pub(super) fn new() -> Self {
        Self { stop: watch::Sender::new(false), shells: Vec::new(), background: Vec::new(), watch: None }
    }

    /// Runs until the guard has stopped.
    pub(super) fn background(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        self.background.push(tokio::spawn(work));
    }

    /// Keeps the watch of the policy folder.
    pub(super) fn watch(&mut self, watch: Option<Watch>) {
        self.watch = watch;
    }

    /// Reads the policies again at every SIGHUP.
    pub(super) fn reload_on_hangup(&mut self, policies: Arc<Policies>) -> std::io::Result<()> {
        let mut hangups = signal(SignalKind::hangup())?;
        self.background(async move {
            while hangups.recv().await.is_some() {
                let policies = Arc::clone(&policies);
                // The result is kept in the report and has been logged.
                let _ = tokio::task::spawn_blocking(move || policies.reload()).await;
            }
        });
        Ok(())
    }

    pub(super) fn serve_control(&mut self, socket: TcpListener, state: Arc<ControlState>) {
        let mut stop = self.stop.subscribe();
        self.shells.push(tokio::spawn(async move {
            let stopped = async move {
                // An error means that the sender is gone, and so is the guard.
                let _ = stop.wait_for(|stop| *stop).await;
            };
            listener::serve(state, socket, stopped).await;
        }));
    }

    pub(super) fn serve_agent(&mut self, listener: AgentListener) {
        self.shells.push(tokio::spawn(listener.serve(self.stop.subscribe())));
    }

    /// Returns when a shell has ended although nobody stopped it.
    pub(super) async fn broken(&self) {
        while !self.shells.iter().any(JoinHandle::is_finished) {
            tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        }
    }

    /// Takes no more connections, and waits until those that are open have ended; the shells
    /// bound how long that takes.
    pub(super) async fn stop_shells(&mut self) {
        self.stop.send_replace(true);
        for shell in self.shells.drain(..) {
            if shell.await.is_err_and(|error| error.is_panic()) {
                tracing::error!("a listener had panicked");
            }
        }
    }

    /// Ends the background.
    pub(super) async fn stop_background(&mut self) {
        self.watch = None;
        for task in self.background.drain(..) {
            task.abort();
            let _ = task.await;
        }
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        for task in self.shells.iter().chain(&self.background) {
            task.abort();
        }
    }
}
