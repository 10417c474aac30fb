//! The general way of writes and transactions: locks, checks, and the choice of a commit protocol.
//!
//! The order is always: load the regions (in a read section), take the locks (outside of one),
//! validate, allocate, and only then store. So an error means that nothing has changed. Two errors
//! come during the copy: a slice cannot be read to complete it, or the call that writes a long run
//! fails. Until then only free slots have been stored to. That error path drains before the locks
//! open, so that none of its stores reaches the medium late.
//!
//! May import `deploy`, `durable`, `commit`, `io`, `plan`, `pair`, and what lies below
//! them.

use crate::bitmap::{Slices, span};
use crate::config::{DeployPolicy, Durability};
use crate::engine::Engine;
use crate::engine::io::prefetch::PREFETCHED_SEGMENTS;
use crate::engine::plan::{self, Changes, Segment};
use crate::error::{Error, Result};
use crate::mutant::planted;
use crate::pair::gates::Gate;
use crate::pair::own_changes;
use crate::pair::read_set::ReadSet;
use crate::pair::stats::Counter;
use crate::thread_cache;
use crate::units::{PageIndex, RegionIndex};

impl Engine {
    /// Writes `data` at `offset` by the general way, whatever the range and the state of its pages.
    #[inline(never)]
    pub(super) fn write_slow(&self, data: &[u8], offset: u64) -> Result<()> {
        self.commit(&[Segment { offset, data }], &ReadSet::default(), None)
    }

    /// Writes all parts in one operation, unless `read_set` has changed. The segments are
    /// sorted and do not overlap. `closure` is the transaction closure that commits, if any.
    pub fn commit(
        &self,
        segments: &[Segment<'_>],
        read_set: &ReadSet,
        closure: Option<usize>,
    ) -> Result<()> {
        debug_assert!(segments.is_sorted_by(|a, b| a.range().end <= b.offset));
        let Some(last) = segments.last() else { return self.check_reads_alone(read_set) };
        self.check_usable()?;
        self.check_range(last.offset, last.data.len() as u64)?;
        if segments.iter().all(|segment| segment.data.is_empty()) {
            return self.check_reads_alone(read_set);
        }
        self.check_writable()?;
        if let Some(durable) = &self.durable {
            self.check_not_overdue(durable)?;
        }
        let room = self.admit(segments.iter().map(Segment::range))?;
        match self.commit_once(segments, read_set) {
            // The operation rewrites slices that have changed since the last durable point, so it
            // would need the log. After a new durable point it does not.
            Err(Error::TooLarge { .. }) if self.may_make_point_first() => {
                self.sync()?;
                self.commit_once(segments, read_set)?;
            }
            other => other?,
        }
        drop(room);
        self.after_commit(&Changes::of(segments), closure)
    }

    /// Does what follows a committed operation: notes, a durable point, a deployment. An error is
    /// that of the durable point.
    #[inline]
    pub(super) fn after_commit(&self, changes: &Changes<'_>, closure: Option<usize>) -> Result<()> {
        if thread_cache::is_watched() {
            self.note_own_changes(changes, closure);
        }
        let asked = changes.ranges().map(|range| range.end - range.start).sum::<u64>();
        self.lane().stats.bump(Counter::BytesAsked, asked);
        self.make_durable_after_write()?;
        if self.policy() == DeployPolicy::Eager {
            let start = changes.ranges().map(|range| range.start).min().unwrap_or_default();
            let end = changes.ranges().map(|range| range.end).max().unwrap_or_default();
            self.deploy_written(start..end);
        }
        Ok(())
    }

    /// Returns `true` if an operation that is too large for the log makes a durable point and tries
    /// again. After that no slice has changed since the point, so all of them flip. With
    /// `AtomicSync` the caller decides when a durable point is made.
    pub(super) fn may_make_point_first(&self) -> bool {
        self.keeps_points && self.durability != Durability::AtomicSync
    }

    /// Makes a durable point after an operation, if each operation has one.
    pub(in crate::engine) fn make_durable_after_write(&self) -> Result<()> {
        match &self.durable {
            Some(durable) if self.durability == Durability::EveryWrite => {
                self.durable_point(durable).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Records what this thread has changed, for the transaction closures that it is inside.
    #[cold]
    fn note_own_changes(&self, changes: &Changes<'_>, closure: Option<usize>) {
        if planted!(OwnChangesNotNoted) {
            return;
        }
        let mut last: Option<(RegionIndex, u64)> = None;
        let note = |(region, mask): (RegionIndex, u64)| {
            // From this many pages on the region lock was taken: a reader of any page of the region
            // sees a new version.
            let by_region = mask.count_ones() >= plan::PAGES_FOR_REGION_LOCK;
            let mask = if by_region { !0 } else { mask };
            own_changes::note_pages(self.number(), closure, region, mask);
        };
        for range in changes.ranges().filter(|range| !range.is_empty()) {
            for span in span::regions(range) {
                let mask = Slices::range(span.pages.start, span.pages.end).0;
                match &mut last {
                    Some((region, pages)) if *region == span.region => *pages |= mask,
                    _ => {
                        last.replace((span.region, mask)).into_iter().for_each(note);
                    }
                }
            }
        }
        last.into_iter().for_each(note);
    }

    #[inline]
    fn commit_once(&self, segments: &[Segment<'_>], read_set: &ReadSet) -> Result<()> {
        let (Some(first), Some(last)) = (segments.first(), segments.last()) else { return Ok(()) };
        let page = PageIndex::of(first.offset);
        let last_page = PageIndex::of(last.range().end - 1);
        let in_page = page == last_page;
        let mut may_wait = self.keeps_points;
        loop {
            // Return the lane before waiting for a durable point: the thread that makes the point
            // needs a lane, and there may be no other.
            let lane = self.lane();
            // Several parts may lie on both sides of a new end without touching it, so a shrink
            // must wait.
            let no_shorter = (!in_page && segments.len() > 1 && !planted!(PartsWhileResizing))
                .then(|| self.lanes.enter(Gate::Length, &lane));
            if in_page {
                for segment in segments.iter().take(PREFETCHED_SEGMENTS) {
                    self.prefetch_in_page::<false>(&lane, segment);
                }
            } else {
                match segments {
                    // The first page was prefetched before.
                    [segment] => self.prefetch_more_regions(segment),
                    _ => self.prefetch_first_pages(&lane, segments),
                }
                self.prefetch_ends(segments);
            }
            // Always, and not only where cuts are taken. So the first snapshot of a file waits for
            // this operation, and it has no need to look again under its locks.
            let inside = self.lanes.enter(Gate::Cut, &lane);
            if may_wait && (self.is_in_cut(page) || self.is_in_cut(last_page)) {
                drop(inside);
                drop(no_shorter);
                drop(lane);
                may_wait = self.wait_for_point();
                continue;
            }
            return match in_page {
                true => self.commit_in_page(&lane, page, segments, read_set),
                false => self.commit_over_pages(&lane, segments, read_set),
            };
        }
    }
}
