//! Snapshots that a file takes by itself, and the limits of all snapshots.
//!
//! The worker looks from time to time. It reads the counters of the lanes, so a write pays nothing.
//!
//! Invariant: order is by number, and what is dropped are the oldest of those that may be. The
//! system's clock may be set, so it says how old a snapshot is and never which one is older.
//!
//! May import the other rooms of snapshots, `pair`, and what lies below them.

use super::seal::now;
use crate::config::snapshots::{AutoSnapshots, Retention};
use crate::engine::Engine;
use crate::engine::worker::Request;
use crate::error::Result;
use crate::format::snapshots::segment::RECORD_HEADER;
use crate::format::snapshots::table::{Entry, Flags};
use crate::pair::stats::{Counter, Stats};
use crate::primitive::{Mutex, Ordering};
use crate::units::SLICE;
use std::time::{Duration, Instant};

/// Time between two looks of the worker.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The most bytes of a kept slice, with a record of its own.
const KEPT_SLICE: u64 = (SLICE + RECORD_HEADER) as u64;

/// Automatic snapshots of one file.
pub(crate) struct Automatic {
    when: AutoSnapshots,
    /// The counters and the time of the last snapshot.
    last: Mutex<(Counted, Instant)>,
    /// The number of kept slices up to which the limit of bytes is certainly met, if the last look
    /// has found it met. To find out what is needed takes a look at all records.
    met_up_to: Mutex<Option<u64>>,
}

/// Counts of changes since the file was opened.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Counted {
    writes: u64,
    bytes: u64,
}

impl Counted {
    /// `others` are the changes that are no writes.
    fn of(stats: &Stats, others: u64) -> Self {
        let one_page = stats.logged_flip_writes + stats.flip_writes + stats.direct_writes;
        Counted {
            writes: one_page + stats.undo_writes + stats.redo_writes + others,
            bytes: stats.bytes_asked,
        }
    }
}

impl Automatic {
    pub fn new(when: AutoSnapshots) -> Self {
        let last = Mutex::new((Counted::default(), Instant::now()));
        Automatic { when, last, met_up_to: Mutex::new(None) }
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

/// Snapshots that limits do not keep.
#[derive(PartialEq, Eq, Debug)]
struct Over {
    /// The numbers of all that may be dropped, ascending.
    unread: Vec<u64>,
    /// How many of them, from the first one on, limits of number and age do not keep.
    count: usize,
    /// Those of them that a limit of bytes may drop: the newest snapshot stays.
    older: Vec<u64>,
}

/// Finds the snapshots that limits of number and age do not keep, the oldest first. A limit of age
/// keeps the newest snapshot. `now` is a time as in [`Entry::nanos`].
fn over(
    live: &[Entry],
    now: u64,
    keep: Retention,
    may_drop: impl Fn(&Entry) -> bool,
    is_read: impl Fn(&Entry) -> bool,
) -> Over {
    let newest = live.last().map_or(0, |entry| entry.number);
    let times = times(live, now);
    let all = || live.iter().zip(&times).filter(|(entry, _)| may_drop(entry));
    let too_many = keep.number.map_or(0, |most| all().count().saturating_sub(most));
    let unread = || all().filter(|(entry, _)| !is_read(entry));
    let is_too_old = |time: u64| {
        keep.age.is_some_and(|most| Duration::from_nanos(now.saturating_sub(time)) > most)
    };
    let too_old = unread().take_while(|(entry, time)| entry.number != newest && is_too_old(**time));
    let count = too_old.count().max(too_many);
    let unread: Vec<u64> = unread().map(|(entry, _)| entry.number).collect();
    let older = unread.iter().copied().filter(|number| *number != newest).collect();
    Over { count: count.min(unread.len()), unread, older }
}

/// Returns the times of snapshots, which do not descend, whatever the clock said at each seal. A
/// time in the future counts as that of the next snapshot, or as now. One before that of an older
/// snapshot counts as that.
fn times(live: &[Entry], now: u64) -> Vec<u64> {
    let mut latest = 0;
    let mut times: Vec<u64> = live
        .iter()
        .map(|entry| {
            latest = if entry.nanos <= now { entry.nanos.max(latest) } else { latest };
            if entry.nanos <= now { latest } else { now }
        })
        .collect();
    let mut next = now;
    for time in times.iter_mut().rev() {
        next = next.min(*time);
        *time = next;
    }
    times
}

impl Engine {
    /// Takes an automatic snapshot if one is due, and drops what is not kept. Called by the worker.
    pub fn snapshot_if_due(&self) {
        let Some(automatic) = &self.automatic else { return };
        let stats = self.stats();
        let now = Counted::of(&stats, self.other_changes.load(Ordering::Relaxed));
        if automatic.is_due(now) {
            match self.seal_automatic() {
                Ok(()) => *automatic.last.lock() = (now, Instant::now()),
                Err(_) => drop(self.lane().stats.bump(Counter::FailedSnapshots, 1)),
            }
        }
        // At each look: a snapshot grows old, and one that was read is read no more. A drop that
        // fails is tried again then.
        let is_automatic = |entry: &Entry| entry.flags.has(Flags::AUTOMATIC);
        let mut keep = automatic.when.keep;
        let mut met_up_to = automatic.met_up_to.lock();
        if met_up_to.is_some_and(|met| stats.kept_slices <= met) {
            keep.bytes = None;
        }
        if let Ok(1..) = self.drop_over(keep, is_automatic)
            && let Some(store) = self.snapshots.get()
        {
            store.want_collection();
            // By steps, between which the worker does other work.
            if !self.worker.request(Request::Collect) {
                let _given_back_later = self.collect_snapshots();
            }
        }
        if let Some(most) = keep.bytes {
            let (left, needed) = self.choose(keep, is_automatic);
            let is_met = left.is_empty() && needed <= most;
            *met_up_to = is_met.then(|| stats.kept_slices + (most - needed) / KEPT_SLICE);
        }
    }

    /// Does a step of the return of space. Called by the worker.
    pub fn collect_in_background(&self) {
        // After a failure a later drop gives the space back.
        if self.collect_some().unwrap_or(false) {
            let _later_otherwise = self.worker.request(Request::Collect);
        }
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
        let dropped = self.drop_over(keep, may_drop)?;
        self.collect_after(dropped).map(|()| dropped)
    }

    /// Drops as [`retain`](Self::retain) does. The caller gives back what only they needed.
    fn drop_over(&self, keep: Retention, may_drop: impl Fn(&Entry) -> bool) -> Result<u64> {
        // Mostly there is nothing to drop, and writers need not wait for that.
        if self.choose(keep, &may_drop).0.is_empty() {
            return Ok(0);
        }
        self.drop_chosen(|| Ok(self.choose(keep, &may_drop).0)).map(|(dropped, _)| dropped)
    }

    /// Returns the numbers of the snapshots that the limits do not keep, ascending, and the bytes
    /// that all others need, if there is a limit of bytes. They are `u64::MAX` if that limit may
    /// drop no snapshot: then the records are not gone through.
    fn choose(&self, keep: Retention, may_drop: impl Fn(&Entry) -> bool) -> (Vec<u64>, u64) {
        let Some(store) = self.snapshots.get() else { return (Vec::new(), 0) };
        let live = self.live_snapshots();
        let is_read = |entry: &Entry| self.epochs.is_read(entry.number);
        let mut chosen = over(&live, now(), keep, may_drop, is_read);
        let mut needed = u64::MAX;
        if let Some(most) = keep.bytes.filter(|_| !chosen.older.is_empty()) {
            let count;
            (count, needed) = store.drops_for(&chosen.older, most);
            chosen.count = chosen.count.max(count);
        }
        chosen.unread.truncate(chosen.count);
        (chosen.unread, needed)
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 3600 * 1_000_000_000;
    const NOW: u64 = 100 * DAY;

    fn sealed(days: &[u64]) -> Vec<Entry> {
        let of = |(n, days): (u64, &u64)| {
            let (len, flags, name) = (0, Flags::default(), n.to_string());
            Entry { number: n, len, nanos: days * DAY, flags, name }
        };
        (1..).zip(days).map(of).collect()
    }

    fn dropped(live: &[Entry], keep: Retention, read: &[u64]) -> Vec<u64> {
        let mut over = over(live, NOW, keep, |_| true, |entry| read.contains(&entry.number));
        over.unread.truncate(over.count);
        over.unread
    }

    /// The clock at one seal was ten years ahead, so that snapshot stayed while newer ones went. At
    /// another it was in 1970, so that the newest one went.
    #[test]
    fn no_clock_makes_an_older_snapshot_stay_and_a_newer_one_go() {
        let of = |days: &[u64]| -> Vec<u64> {
            times(&sealed(days), NOW).into_iter().map(|time| time / DAY).collect()
        };
        assert_eq!(of(&[90, 3650, 92, 93]), [90, 92, 92, 93]);
        assert_eq!(of(&[90, 91, 3650, 3651]), [90, 91, 100, 100]);
        assert_eq!(of(&[90, 91, 0, 93]), [90, 91, 91, 93]);
        assert_eq!(of(&[95, 91, 92, 97]), [95, 95, 95, 97]);
        let week = Retention::new().age(Duration::from_secs(7 * 24 * 3600));
        assert_eq!(dropped(&sealed(&[90, 3650, 92, 95]), week, &[]), [1, 2, 3]);
        assert_eq!(dropped(&sealed(&[0]), week, &[]), []);
        assert_eq!(dropped(&sealed(&[1, 2, 3]), week, &[]), [1, 2]);
    }

    #[test]
    fn the_oldest_go_that_no_handle_reads() {
        let (live, keep) = (sealed(&[90, 91, 92, 99]), Retention::new);
        assert_eq!(dropped(&live, keep(), &[]), []);
        assert_eq!(dropped(&live, keep().number(3), &[1]), [2]);
        assert_eq!(dropped(&live, keep().number(0), &[4]), [1, 2, 3]);
        assert_eq!(dropped(&live, keep().age(Duration::ZERO), &[2]), [1, 3]);
        let all = over(&live, NOW, keep().number(9), |_| true, |_| false);
        assert_eq!(all.older, [1, 2, 3]);
        assert_eq!(all.count, 0);
    }
}
