//! How far are we? A line on the standard error stream every few seconds.

use std::fmt::Arguments;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Seconds between two lines.
const EVERY: Duration = Duration::from_secs(5);

/// Shown while a part runs. Shared by its threads.
#[derive(Debug)]
pub struct Progress {
    part: &'static str,
    began: Instant,
    shown: Mutex<Instant>,
}

impl Progress {
    /// Begins to count the time.
    pub fn new(part: &'static str) -> Progress {
        let now = Instant::now();
        Progress { part, began: now, shown: Mutex::new(now) }
    }

    /// Says how far the part is, if some time has passed since the last line.
    pub fn tick(&self, what: Arguments<'_>) {
        let Ok(mut shown) = self.shown.try_lock() else { return };
        if shown.elapsed() < EVERY {
            return;
        }
        *shown = Instant::now();
        eprintln!("  {} {:>4} s: {what}", self.part, self.began.elapsed().as_secs());
    }

    /// Says something at once.
    pub fn say(&self, what: Arguments<'_>) {
        eprintln!("  {} {:>4} s: {what}", self.part, self.began.elapsed().as_secs());
    }

    /// Time since the part began.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }
}
