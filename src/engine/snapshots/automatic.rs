//! Snapshots that a file takes by itself, and the limits of all snapshots.
//!
//! The worker looks from time to time. It reads the counters of the lanes, so a write pays nothing.
//!
//! May import the other rooms of snapshots, `pair`, and what lies below them.

use crate::config::snapshots::{AutoSnapshots, Retention};
use crate::engine::Engine;
use crate::error::{Error, Result, SnapshotError};
use crate::format::snapshots::table::{Entry, Flags};
use crate::pair::stats::{Counter, Stats};
use crate::primitive::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time between two looks of the worker.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Automatic snapshots of one file.
pub(crate) struct Automatic {
    when: AutoSnapshots,
    /// The counters and the time of the last snapshot.
    last: Mutex<(Counted, Instant)>,
}

/// Counts of writes since the file was opened.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Counted {
    writes: u64,
    bytes: u64,
}

impl Counted {
    fn of(stats: &Stats) -> Self {
        let one_page = stats.logged_flip_writes + stats.flip_writes + stats.direct_writes;
        Counted {
            writes: one_page + stats.undo_writes + stats.redo_writes,
            bytes: stats.bytes_asked,
        }
    }
}

impl Automatic {
    pub fn new(when: AutoSnapshots) -> Self {
        Automatic { when, last: Mutex::new((Counted::default(), Instant::now())) }
    }

    fn is_due(&self, now: Counted) -> bool {
        let (last, at) = *self.last.lock();
        let reaches = |limit: Option<u64>, count| limit.is_some_and(|limit| count >= limit);
        now != last
            && (reaches(self.when.writes, now.writes - last.writes)
                || reaches(self.when.bytes, now.bytes - last.bytes)
                || self.when.interval.is_some_and(|time| at.elapsed() >= time))
    }
}

impl Engine {
    /// Takes an automatic snapshot if one is due, and drops what is not kept. Called by the worker.
    pub fn snapshot_if_due(&self) {
        let Some(automatic) = &self.automatic else { return };
        let now = Counted::of(&self.stats());
        if automatic.is_due(now) {
            match self.seal_automatic() {
                Ok(()) => *automatic.last.lock() = (now, Instant::now()),
                Err(_) => drop(self.lane().stats.bump(Counter::FailedSnapshots, 1)),
            }
        }
        // At each look: a snapshot grows old, and one that was read is read no more. A drop that
        // fails is tried again then.
        let is_automatic = |entry: &Entry| entry.flags.has(Flags::AUTOMATIC);
        let _dropped_later_otherwise = self.retain(automatic.when.keep, is_automatic);
    }

    fn seal_automatic(&self) -> Result<()> {
        let next = self.snapshots.get().map_or(0, |store| store.highest()) + 1;
        let is_free = |name: &String| self.live_snapshot(name).is_err();
        // The program may have given this name itself.
        let names =
            std::iter::successors(Some(format!("auto-{next}")), |name| Some(format!("{name}+")));
        let name = names.into_iter().find(is_free).unwrap_or_default();
        self.seal(&name, Flags::AUTOMATIC).map(drop)
    }

    /// Drops snapshots until all that may be dropped meet the limits, the oldest first. Those that
    /// handles read stay. Returns how many were dropped.
    pub fn retain(&self, keep: Retention, may_drop: impl Fn(&Entry) -> bool) -> Result<u64> {
        let mut dropped = 0;
        loop {
            let live = self.live_snapshots();
            let newest = live.last().map_or(0, |entry| entry.number);
            let candidates: Vec<&Entry> = live.iter().filter(|entry| may_drop(entry)).collect();
            let is_too_many = keep.number.is_some_and(|most| candidates.len() > most);
            let takes = || self.snapshots.get().map_or(0, |store| store.used());
            let is_too_large = keep.bytes.is_some_and(|most| takes() > most);
            let is_too_old = |entry: &Entry| keep.age.is_some_and(|most| age(entry) > most);
            let is_over = |entry: &&&Entry| {
                is_too_many || is_too_old(entry) || is_too_large && entry.number != newest
            };
            let unread = |entry: &&&Entry| !self.epochs.is_read(entry.number);
            let Some(oldest) = candidates.iter().filter(unread).find(is_over) else {
                return Ok(dropped);
            };
            match self.drop_snapshot(&oldest.name) {
                Ok(()) => dropped += 1,
                // Another thread has begun to read it, or has dropped it, since the look.
                Err(Error::Snapshot {
                    why: SnapshotError::InUse { .. } | SnapshotError::NotFound { .. },
                    ..
                }) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn age(entry: &Entry) -> Duration {
    let sealed = UNIX_EPOCH + Duration::from_nanos(entry.nanos);
    SystemTime::now().duration_since(sealed).unwrap_or_default()
}
