//! The checks of every write: its ranges, and under its locks the read set of its transaction.
//!
//! May import `deploy`, `durable`, `commit`, `io`, `plan`, `pair`, and what lies below
//! them.

use crate::engine::Engine;
use crate::engine::plan::Segment;
use crate::error::{Error, Result};
use crate::lock::{LockGuard, make_exclusive_and_fence};
use crate::mutant::{planted, unless};
use crate::pair::read_set::ReadSet;
use crate::units::PageIndex;

impl Engine {
    /// Commits a transaction that writes nothing: all that it has read, and the lengths it was
    /// told, must hold now.
    pub(super) fn check_reads_alone(&self, read_set: &ReadSet) -> Result<()> {
        self.check_readable()?;
        if read_set.is_empty() || self.read_set_holds(read_set)? || planted!(ReadsAloneNotChecked) {
            return Ok(());
        }
        Err(Error::Conflict { path: self.path() })
    }

    /// Checks that the sorted segments end within the file.
    #[inline]
    pub(super) fn check_segments(&self, segments: &[Segment<'_>]) -> Result<()> {
        // The segments are sorted: the last one has the highest end.
        segments.last().map_or(Ok(()), |segment| {
            self.check_range(segment.offset, segment.data.len() as u64).map(|_| ())
        })
    }

    /// Fails with `Conflict` if anything that was read has changed, or if another operation holds
    /// its lock. `mine` returns `true` if this operation holds the lock of a page. Another lock
    /// holder may commit before this operation does (Silo's rule).
    ///
    /// If something was read that is not written, this closes the held words first. Another
    /// operation may commit to what was read between this check and publishing. This operation
    /// comes before that one. So a reader must not see that commit without this one.
    pub(super) fn check_read_set(
        &self,
        read_set: &ReadSet,
        held: &[LockGuard<'_>],
        mine: impl Fn(PageIndex) -> bool,
    ) -> Result<()> {
        if planted!(ReadSetNotValidated) {
            return Ok(());
        }
        // A growth does not take our locks, so a length that the transaction was told is read and
        // not written.
        let reads_only =
            read_set.told.exactly.is_some() || read_set.pages.iter().any(|entry| !mine(entry.page));
        if reads_only {
            unless!(NotClosedBeforeReadSet, make_exclusive_and_fence(held));
        }
        if !read_set.told.holds(self.len()) {
            // The range that was read has been truncated, or the length is not the one that the
            // transaction was told.
            return Err(Error::Conflict { path: self.path() });
        }
        self.check_entries(read_set, mine)
    }

    /// Fails with `Conflict` if a page that was read has changed, or if another operation holds its
    /// lock.
    pub(super) fn check_entries(
        &self,
        read_set: &ReadSet,
        mine: impl Fn(PageIndex) -> bool,
    ) -> Result<()> {
        for entry in &read_set.pages {
            let region = self.region(entry.page.region())?;
            let page = &region.pages[entry.page.in_region()].lock;
            let holds = if mine(entry.page) {
                entry.holds_for_holder(region)
            } else {
                let free = !region.lock.is_written_after_fence() && !page.is_written_after_fence();
                (free || planted!(LockedEntriesHold)) && entry.holds(region)
            };
            if !holds {
                return Err(Error::Conflict { path: self.path() });
            }
        }
        Ok(())
    }
}
