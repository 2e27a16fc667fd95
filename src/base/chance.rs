//! Chance as an argument, so that a test can replay a run from a seed.

use std::sync::Mutex;

use sha2::{Digest as _, Sha256};

/// A source of random bytes.
pub trait Chance: Send + Sync {
    /// Fills `out` with random bytes.
    ///
    /// # Panics
    ///
    /// [`OsChance`] panics if the operating system has no entropy to give: a guard that cannot
    /// make unguessable tokens must not run.
    fn fill(&self, out: &mut [u8]);

    /// Sixteen random bytes.
    fn bytes16(&self) -> [u8; 16] {
        let mut out = [0; 16];
        self.fill(&mut out);
        out
    }

    /// Thirty-two random bytes.
    fn bytes32(&self) -> [u8; 32] {
        let mut out = [0; 32];
        self.fill(&mut out);
        out
    }
}

/// The operating system's generator.
#[derive(Debug, Default, Clone, Copy)]
pub struct OsChance;

impl Chance for OsChance {
    #[allow(clippy::expect_used)]
    fn fill(&self, out: &mut [u8]) {
        getrandom::fill(out).expect("the operating system gives random bytes");
    }
}

/// A deterministic generator (SHA-256 in counter mode) for simulations; never for a real guard.
#[derive(Debug)]
pub struct SeededChance {
    seed: u64,
    counter: Mutex<u64>,
}

impl SeededChance {
    /// A generator that always gives the same bytes for the same `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed, counter: Mutex::new(0) }
    }
}

impl Chance for SeededChance {
    fn fill(&self, out: &mut [u8]) {
        let mut counter = self.counter.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for chunk in out.chunks_mut(32) {
            let mut hash = Sha256::new();
            hash.update(self.seed.to_be_bytes());
            hash.update(counter.to_be_bytes());
            *counter += 1;
            chunk.copy_from_slice(&hash.finalize()[..chunk.len()]);
        }
    }
}
