//! The wait of a thread that did not get a lock.
//!
//! Owns: [`Backoff`], which other rooms use for their waits as well.
//!
//! May import: `primitive` and std.

use crate::primitive::{self, sleep};
use std::time::Duration;

/// A backoff that waits a little longer each time: it spins, yields, then sleeps. No wake-up is
/// needed, so unlocking can be a plain store. The price is up to 100 microseconds after a long
/// wait.
#[derive(Debug)]
pub struct Backoff {
    spins: primitive::Backoff,
    sleep: Duration,
}

impl Backoff {
    const FIRST_SLEEP: Duration = Duration::from_micros(20);
    const LONGEST_SLEEP: Duration = Duration::from_micros(100);

    /// Creates a backoff that has not waited yet.
    pub fn new() -> Self {
        Backoff { spins: primitive::Backoff::new(), sleep: Self::FIRST_SLEEP }
    }

    /// Waits for the next step.
    pub fn wait(&mut self) {
        if !self.spins.is_completed() {
            self.spins.snooze();
        } else {
            sleep(self.sleep);
            self.sleep = (self.sleep * 2).min(Self::LONGEST_SLEEP);
        }
    }
}
