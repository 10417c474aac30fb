//! Durable points: the cut, the record and the checkpoint.
//!
//! A mapping orders nothing, since the kernel writes dirty pages back whenever it likes. So a file
//! on page cache keeps two states apart. The *working* words are changed by every operation and
//! believed after a process crash. The *durable* words are believed after a power loss. `sync`
//! makes the working state the durable one, as a consistency point. It takes three steps:
//!
//! 1. **The cut.** The gate of cuts is closed for a moment, so no operation is half way. The pages
//!    that have changed are locked, and the gate opens. Their writers wait from here on. Readers,
//!    and writers of other pages, go on.
//! 2. **The record.** Once it is durable, recovery after a power loss returns to this point. A
//!    small record holds words and slices, and goes to the journal: one write and one barrier. For
//!    a large one both files are synced in place. The record then holds words only, and is a *full
//!    record* (`is_base`). The journal's *floor* follows the first record of a session: it says
//!    that the session has a record.
//! 3. **Publishing.** The durable words are stored, without a barrier: the record covers them until
//!    a checkpoint has synced both files. The locks open.
//!
//! `docs/model/durable_points.py` has the rules and their reasons.
//!
//! May import `plan`, `pair`, and what lies below them.

mod checkpoint;
pub mod floor;
pub mod flush;
pub mod group;
pub mod journal;
pub(in crate::engine) mod point;
pub mod sync;
#[cfg(all(test, not(loom), not(shuttle)))]
mod tests;

use crate::engine::Engine;
use crate::engine::durable::floor::Raised;
use crate::engine::durable::flush::Waiters;
use crate::engine::durable::group::Turns;
use crate::engine::durable::journal::Journal;
use crate::error::Error;
use crate::mutant::{planted, unless};
use crate::pair::dirty::Consumer;
use crate::primitive::{AtomicBool, AtomicU64, Condvar, Mutex, Ordering};
use crate::units::PageIndex;

/// The state of an engine's durable points.
pub(crate) struct Durable {
    pub(crate) journal: Journal,
    /// Durable points, as a consumer of changes.
    consumer: Consumer,
    /// Logical length at the last durable point.
    len: AtomicU64,
    /// `true` if the file has grown over bytes of which no record says that they are zero. Then
    /// both files must be synced before the next record.
    must_flush: AtomicBool,
    /// `true` if everything that the files hold past the length is zero on the disk, or will be
    /// after the next flush. Read and written by the thread that holds `resizing`, or closes the
    /// file.
    rest_is_zero: AtomicBool,
    turns: Mutex<Turns>,
    turn_is_over: Condvar,
    /// Futures that wait for a point.
    waiters: Waiters,
    /// The floor of the journal. Locked while it is written and until it is durable, which includes
    /// a sync of both files.
    floor: Mutex<Raised>,
    /// `true` if the last point that was due at an interval has failed, and none was made since.
    /// Changes with its cause, under the lock of that.
    is_overdue: AtomicBool,
    /// The cause of that failure.
    why_overdue: Mutex<Option<String>>,
}

impl Durable {
    /// Makes the state after opening: nothing has changed since the durable point that was found.
    pub fn new(journal: Journal, len: u64, consumer: Consumer) -> Self {
        Durable {
            journal,
            consumer,
            len: AtomicU64::new(len),
            must_flush: AtomicBool::new(false),
            // A truncation before this opening may not be durable.
            rest_is_zero: AtomicBool::new(planted!(OpenedRestKnown)),
            turns: Mutex::new(Turns::default()),
            turn_is_over: Condvar::new(),
            waiters: Waiters::new(Vec::new()),
            floor: Mutex::new(Raised::default()),
            is_overdue: AtomicBool::new(false),
            why_overdue: Mutex::new(None),
        }
    }

    /// Records that a point that was due has failed. No other point has been made since: the caller
    /// has its turn, or opens the file.
    #[cold]
    pub fn set_overdue(&self, why: &Error) {
        let mut cause = self.why_overdue.lock();
        *cause = Some(why.as_cause());
        self.is_overdue.store(true, Ordering::Release);
    }

    /// Returns `true` if a point that was due has failed, and none was made since.
    #[inline]
    pub fn is_overdue(&self) -> bool {
        self.is_overdue.load(Ordering::Acquire)
    }

    /// Returns the cause of that failure, if no point was made since.
    pub fn why_overdue(&self) -> Option<String> {
        self.why_overdue.lock().clone()
    }

    /// Records that a point was made, or was not needed.
    fn point_is_made(&self) {
        if self.is_overdue() && !planted!(OverdueForGood) {
            let mut cause = self.why_overdue.lock();
            *cause = None;
            self.is_overdue.store(false, Ordering::Release);
        }
    }

    /// Records that the bytes past the length are being truncated. A power loss may bring them
    /// back. That is harmless while no durable point belongs to a longer file: recovery truncates
    /// again.
    pub fn on_truncate(&self) {
        unless!(CutNotFlushed, self.rest_is_zero.store(false, Ordering::Relaxed));
    }

    /// Records that the file has grown. The first growth after a truncation or an opening makes the
    /// next durable point sync both files. That point is the first one that may belong to a longer
    /// file, with zeroes where the truncated bytes were.
    ///
    /// The system zeroed the rest of the block in which the file had ended. On some file systems
    /// (btrfs) it did so in the page cache only, and has not yet written that back. The new length
    /// may reach the disk before those zeroes do. The old length does not matter, since a file
    /// system's block may be longer than a page of this crate.
    pub fn on_grow(&self) {
        let is_known = self.rest_is_zero.swap(true, Ordering::Relaxed);
        if !is_known && !planted!(GrownRestNotFlushed) {
            self.must_flush.store(true, Ordering::Release);
        }
    }
}

impl Engine {
    /// Returns `true` if the page is part of a durable point that is being made. A writer of the
    /// page then has to wait for the disk.
    #[inline]
    pub(in crate::engine) fn is_in_cut(&self, page: PageIndex) -> bool {
        let region = self.state.loaded(page.region());
        region.is_some_and(|region| region.pages[page.in_region()].lock.is_stable())
    }

    /// Returns `true` if something may have changed since the last durable point.
    pub(in crate::engine) fn has_changed(&self) -> bool {
        self.durable.as_ref().is_some_and(|durable| {
            !self.dirty.is_empty(durable.consumer)
                || durable.len.load(Ordering::Relaxed) != self.len()
        })
    }
}
