//! The signals that end a guard.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// `SIGXFSZ` on Linux: a write went over the process's file-size limit.
const FILE_SIZE: i32 = 25;

/// SIGTERM and SIGINT, from the moment on that this exists.
#[derive(Debug)]
pub struct Signals {
    term: Signal,
    interrupt: Signal,
    /// Held so that a full quota is an error of one write, which fails closed, and not the end of
    /// the process.
    _file_size: Signal,
}

impl Signals {
    /// Begins to listen; the default action of the signals is gone from here on.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub fn listen() -> std::io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            _file_size: signal(SignalKind::from_raw(FILE_SIZE))?,
        })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
