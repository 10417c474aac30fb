//! Operations that change the file's length, with the bytes that they write.
//!
//! The order is that of `general`: lock, validate, allocate, and only then store. An error before
//! the commit means that length and bytes are as before.
//!
//! The length has no lock word. So only one thread at a time changes it, by `resizing`, and that
//! thread locks what its transaction has read as well as what it writes. Otherwise another
//! transaction could change a page that was read here, while it still finds the old length: each of
//! the two would come before the other.
//!
//! A growth locks twice. First it locks the regions that begin before the old end, and validates.
//! Everything that a transaction can have read lies there. Then it prepares the files, and locks
//! the regions that they have now. So a conflict finds nothing prepared that must be undone.
//!
//! May import `resize`, `deploy`, `durable`, `commit`, `io`, `plan`, `pair`, and what lies below
//! them.

use crate::bitmap::span;
use crate::engine::Engine;
use crate::engine::durable::point::CutGate;
use crate::engine::plan::{self, Changes, Plans, Segment};
use crate::engine::write::range::is_locked;
use crate::error::{Error, Result};
use crate::mutant::{planted, unless};
use crate::pair::log::lanes::InUse;
use crate::pair::own_changes;
use crate::pair::read_set::{ReadSet, Told};
use crate::pair::region::RegionState;
use crate::pair::stats::Counter;
use crate::primitive::Ordering;
use crate::units::{REGION, RegionIndex, is_in_page};
use std::cmp;

/// An operation that changes the length.
pub(in crate::engine) struct Resize<'a> {
    /// The new length, in bytes.
    pub len: u64,
    /// The bytes that it writes, within the new length.
    pub changes: Changes<'a>,
    /// The reads of its transaction.
    pub read_set: &'a ReadSet,
}

/// The direction of a change of the length.
enum Way<'e> {
    /// The file gets longer, from this length in bytes.
    Longer(u64),
    /// The file gets shorter, and the new end cuts this region in two. The caller has closed the
    /// gate of cuts, if it makes a durable point.
    Shorter((RegionIndex, &'e RegionState)),
}

impl Engine {
    /// Makes the file `new` bytes long. New bytes are zero; bytes past the end are gone.
    pub fn set_len(&self, new: u64) -> Result<()> {
        self.check_usable()?;
        let read_set = &ReadSet::default();
        self.resize(&Resize { len: new, changes: Changes::of(&[]), read_set }, None)?;
        self.make_durable_after_write()
    }

    /// Makes `data` the whole contents of the file: its length and its bytes, in one operation.
    pub fn replace(&self, data: &[u8]) -> Result<()> {
        self.check_usable()?;
        let segment = [Segment { offset: 0, data }];
        let segments = if data.is_empty() { &[][..] } else { &segment[..] };
        let len = data.len() as u64;
        loop {
            match self.replace_once(segments, self.len(), len) {
                Err(error) if error.is_conflict() => {}
                other => return other,
            }
        }
    }

    /// Replaces the contents for a caller that has found the length `old`. Fails with `Conflict` if
    /// another thread has changed the length since, and that matters.
    pub(in crate::engine) fn replace_once(
        &self,
        segments: &[Segment<'_>],
        old: u64,
        new: u64,
    ) -> Result<()> {
        if old != new {
            // The old length does not matter, unless it is the new one by now.
            return self.commit_with_len(new, Changes::of(segments), &ReadSet::default(), None);
        }
        let told = Told { exactly: Some(new), ..Told::default() };
        let read_set = ReadSet { told, ..ReadSet::default() };
        self.commit_as_told(segments, &read_set, None)
    }

    /// Commits `segments`. If another thread has made the file shorter than the length that the
    /// operation goes by, that is a conflict.
    fn commit_as_told(
        &self,
        segments: &[Segment<'_>],
        read_set: &ReadSet,
        closure: Option<usize>,
    ) -> Result<()> {
        match self.commit(segments, read_set, closure) {
            Err(Error::PastEnd { .. })
                if read_set.told.exactly.is_some() && !planted!(ShorterIsNoConflict) =>
            {
                Err(Error::Conflict { path: self.path() })
            }
            other => other,
        }
    }

    /// Commits `segments` as [`write::general`](Self::commit) does, and counts them as a
    /// transaction. `new_len` is the length that the transaction gives the file, if it is another
    /// one than the transaction was told.
    pub fn commit_transaction(
        &self,
        segments: &[Segment<'_>],
        new_len: Option<u64>,
        read_set: &ReadSet,
        closure: Option<usize>,
    ) -> Result<()> {
        if let [segment] = segments
            && !is_in_page(segment.offset, segment.data.len())
        {
            self.prefetch_pages(segment.data.len(), segment.offset);
        }
        // Do not pass the result through. Moving it loads wider words than were just stored, and
        // waits until those stores have left the processor, behind the last drain.
        let committed = match new_len {
            None => self.commit_as_told(segments, read_set, closure),
            Some(len) => self.commit_with_len(len, Changes::of(segments), read_set, closure),
        };
        if let Err(error) = committed {
            if error.is_conflict() {
                self.count_conflict();
            }
            return Err(error);
        }
        self.lane().stats.bump(Counter::Transactions, 1);
        Ok(())
    }

    /// Makes all changes and changes the length, in one operation, unless `read_set` has changed.
    /// All that is written lies within the new length. Fails with `Conflict` if the file has that
    /// length already. `closure` is the transaction closure that commits, if any.
    pub fn commit_with_len(
        &self,
        new: u64,
        changes: Changes<'_>,
        read_set: &ReadSet,
        closure: Option<usize>,
    ) -> Result<()> {
        self.check_usable()?;
        let op = Resize { len: new, changes, read_set };
        let room = self.admit(changes.segments.iter().map(Segment::range))?;
        match self.resize(&op, closure) {
            Err(Error::TooLarge { .. }) if self.may_make_point_first() => {
                self.sync()?;
                self.resize(&op, closure)?;
            }
            other => other?,
        }
        drop(room);
        self.after_commit(&changes, closure)
    }

    /// Changes the length as `op` says, once. Ends what has to be done before the next change.
    fn resize(&self, op: &Resize<'_>, closure: Option<usize>) -> Result<()> {
        let mut caught_up_at = None;
        let resized = self.try_resize(op, closure, &mut caught_up_at);
        if resized.is_err() && caught_up_at.is_some() && !planted!(CatchUpNotNoted) {
            // Each growth without space first undoes the one before it. A closure around it would
            // always find that its reads do not hold, and run for ever.
            own_changes::note_length(self.number(), closure, caught_up_at);
        }
        self.mark_if_wanted();
        resized
    }

    /// Changes the length. If it first finishes an earlier change that failed, sets `caught_up_at`
    /// to the old length: the region of the end gets a new version, even if that fails as well.
    fn try_resize(
        &self,
        op: &Resize<'_>,
        closure: Option<usize>,
        caught_up_at: &mut Option<u64>,
    ) -> Result<()> {
        self.check_writable()?;
        let new = op.len;
        self.check_fits(new)?;
        // Before `resizing`: a thread that has a lane may be waiting for `resizing`.
        let lane = self.lane();
        let _one_at_a_time = (!planted!(ResizingNotLocked)).then(|| self.resizing.write());
        self.check_usable_still()?;
        let old = self.len();
        if !op.read_set.told_holds_for_all(old) && !planted!(ResizeTakesAnyLength) {
            return Err(Error::Conflict { path: self.path() });
        }
        if let Some(durable) = &self.durable
            && (new > old || !op.changes.are_none())
        {
            self.check_not_overdue(durable)?;
        }
        if self.session.high_water.load(Ordering::Relaxed) > old {
            *caught_up_at = Some(old);
        }
        self.catch_up(&lane, old)?;
        match new.cmp(&old) {
            // `set_len` has nothing to do. Any other caller takes the way of an ordinary write.
            cmp::Ordering::Equal if op.changes.are_none() && op.read_set.is_empty() => Ok(()),
            cmp::Ordering::Equal => Err(Error::Conflict { path: self.path() }),
            cmp::Ordering::Greater => {
                self.commit_resize(&lane, op, &Way::Longer(old))?;
                if let Some(durable) = &self.durable {
                    durable.on_grow();
                }
                own_changes::note_length(self.number(), closure, None);
                Ok(())
            }
            cmp::Ordering::Less => {
                // Before the gate of cuts, as operations enter the gates.
                let shrinking = self.prepare_shrink(&lane, new)?;
                let written = op.changes.ranges().map(|range| span::pages(range).count()).sum();
                let prepare =
                    |durable| self.prepare_point_of_shrink(&lane, durable, (new, written));
                let cuts = self.durable.as_ref().map(prepare).transpose()?;
                let cuts = cuts.filter(|_| !planted!(ShrinkGateOpen));
                // Before the commit point: recovery cleans up without a look at snapshots.
                self.keep_past(&lane, new)?;
                self.commit_resize(&lane, op, &Way::Shorter(shrinking.boundary))?;
                own_changes::note_length(self.number(), closure, Some(new));
                let cuts = cuts.map_or(CutGate::Open, CutGate::ClosedUntilCut);
                self.finish_shrink(&lane, new, shrinking, cuts)
            }
        }
    }

    /// Locks, validates, prepares a growth, and commits the bytes with the length.
    fn commit_resize(&self, lane: &InUse<'_>, op: &Resize<'_>, way: &Way<'_>) -> Result<()> {
        // A thread that closes this gate does not wait for `resizing` meanwhile.
        let writes = !op.changes.are_none();
        let has_closed_it = matches!(way, Way::Shorter(_)) && self.durable.is_some();
        let enters = writes && !has_closed_it;
        let _inside = enters.then(|| self.enter_cut(lane)).flatten();
        // The regions that begin before this offset have words in the files. So has every region
        // that was read: its read says that the old length reaches there.
        let backed = match way {
            Way::Longer(old) => old.next_multiple_of(REGION as u64),
            Way::Shorter(_) => u64::MAX,
        };
        let (old_segments, new_segments) = plan::split(op.changes.segments, backed);
        let mut plans = Plans::new();
        {
            let _pinned = lane.pin();
            plan::plan_writes(&mut plans, &old_segments, |index| self.region(index))?;
            for entry in op.read_set.pages.iter().filter(|_| !planted!(ResizeLocksNoReads)) {
                let (index, mask) = (entry.page.region(), 1 << entry.page.in_region());
                plan::add_locked(&mut plans, index, mask, |index| self.region(index))?;
            }
            // A stage lies within the old length, and no shrink goes below it.
            for placed in op.changes.placed {
                let (index, mask) = (placed.page.region(), 1 << placed.page.in_region());
                plan::add_locked(&mut plans, index, mask, |index| self.region(index))?;
            }
        }
        if let &Way::Shorter((index, region)) = way
            && !planted!(ShrinkBoundaryNotLocked)
        {
            // As a whole: writes in one piece on both sides of the new end hold a lock of it.
            plan::add_locked(&mut plans, index, !0, |_| Ok::<_, Error>(region))?;
        }
        if let Way::Longer(old) = way
            && planted!(GrowthBeforeValidation)
        {
            self.prepare_growth(lane, (*old, op.len), op.changes.segments)?;
        }
        let mut held = plan::lock_all(&plans);
        self.check_usable_still()?;
        self.check_entries(op.read_set, |page| is_locked(&plans, page))?;
        if let Way::Longer(old) = way {
            // Under the locks, so that no conflict comes after it. Only a lack of space does, or a
            // failure: the next change of the length then undoes the growth (`catch_up`). The
            // growth waits for the disk, but for no lock and no gate.
            unless!(
                GrowthBeforeValidation,
                self.prepare_growth(lane, (*old, op.len), op.changes.segments)?
            );
            let mut new_plans = Plans::new();
            {
                let _pinned = lane.pin();
                plan::plan_writes(&mut new_plans, &new_segments, |index| self.region(index))?;
            }
            // Behind all regions that are locked: the order in the file is ascending.
            unless!(GrownPagesNotLocked, held.append(&mut plan::lock_all(&new_plans)));
            plans.append(&mut new_plans);
        }
        if !writes {
            return self.commit_len(lane, op.len, &held);
        }
        self.clear_stamps(&plans);
        self.commit_redo(lane, &op.changes, Some(op.len), &held)?;
        if planted!(LengthPublishedAfterLocks) {
            drop(held);
            // Here a test looks at the file.
            let _loaded = self.len();
            self.publish_len(op.len);
        }
        Ok(())
    }
}
