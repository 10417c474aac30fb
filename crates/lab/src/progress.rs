//! Progress messages: a line on the standard error stream every few seconds.

use std::fmt::Arguments;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Seconds between two lines.
const EVERY: Duration = Duration::from_secs(5);

/// The progress of a running part. Its threads share it.
#[derive(Debug)]
pub struct Progress {
    part: &'static str,
    began: Instant,
    shown: Mutex<Instant>,
}

impl Progress {
    /// Starts the clock.
    pub fn new(part: &'static str) -> Progress {
        let now = Instant::now();
        Progress { part, began: now, shown: Mutex::new(now) }
    }

    /// Prints the progress of the part, if enough time has passed since the last line.
    pub fn tick(&self, what: Arguments<'_>) {
        let Ok(mut shown) = self.shown.try_lock() else { return };
        if shown.elapsed() < EVERY {
            return;
        }
        *shown = Instant::now();
        eprintln!("  {} {:>4} s: {what}", self.part, self.began.elapsed().as_secs());
    }

    /// Prints a message at once.
    pub fn say(&self, what: Arguments<'_>) {
        eprintln!("  {} {:>4} s: {what}", self.part, self.began.elapsed().as_secs());
    }

    /// Returns the time since the part began.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }
}
