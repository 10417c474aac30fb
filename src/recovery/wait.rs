//! The wait for a home file that is open elsewhere.
//!
//! May import `engine` and below.

use super::Located;
use crate::config::options::Options;
use crate::error::{Error, Result};
use crate::platform::{Name, Platform};
use std::path::Path;
use std::time::{Duration, Instant};

/// The pauses between two looks at a busy file. They double up to the longest.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

impl<'a> Located<'a> {
    /// Finds the home file, and waits for it as long as the caller wishes if it is open elsewhere.
    pub(super) fn wait_for(
        platform: &'a Platform,
        options: &'a Options,
        given: &'a Path,
        name: &'a Name,
    ) -> Result<Self> {
        let begun = Instant::now();
        let mut pause = SHORTEST_PAUSE;
        loop {
            match Self::find(platform, options, given, name) {
                Err(Error::Busy { .. }) if begun.elapsed() < options.busy_timeout => {
                    let left = options.busy_timeout.saturating_sub(begun.elapsed());
                    std::thread::sleep(pause.min(left));
                    pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
                }
                found => return found,
            }
        }
    }
}
