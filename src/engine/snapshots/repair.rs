//! Repairs single damaged pages from the newest snapshot that has them whole.
//!
//! A snapshot's page is *whole* if its bytes have the sum of the page at the seal. The first keep
//! record of the page since then has that sum. If there is no record, the page has not changed, and
//! the sum is that of the settled state.
//!
//! Steps, for each damaged page, under its lock:
//! 1. Find the newest snapshot that has the page whole.
//! 2. If it is the newest live one, keep the slices that it reads from their slots: they are
//!    proven. If a newer one reads slices from their slots, change nothing: it would read other
//!    bytes afterwards, without an error.
//! 3. A redo with the bytes of the whole page, up to the file's end.
//!
//! A crash leaves the damaged page, or the repaired one. `docs/protocols/sums.md` has the rules.
//!
//! May import `read`, `import`, `write`, `durable`, `commit`, `scrub`, `keep`, `verify`, `io`,
//! `pair`, and what lies below them.

use crate::bitmap::Slices;
use crate::engine::Engine;
use crate::engine::plan::{Changes, Segment};
use crate::error::{Error, Result};
use crate::format::snapshots::segment::{Record, SealSum};
use crate::format::snapshots::table::Entry;
use crate::lock::lock_page;
use crate::mutant::{planted, unless};
use crate::page_sum;
use crate::pair::epochs::Sealed;
use crate::pair::gates::Gate;
use crate::pair::log::lane::Lane;
use crate::pair::log::lanes::InUse;
use crate::pair::own_changes;
use crate::pair::region::RegionState;
use crate::pair::stats::Counter;
use crate::units::{PAGE, PageIndex};
use std::ops::Range;

/// The result of a repair.
#[derive(Default)]
pub(crate) struct Repaired {
    /// The number of pages that were verified.
    pub pages: u64,
    /// The pages that were replaced, as ranges of offsets in bytes, and the snapshots that had
    /// them.
    pub replaced: Vec<(Range<u64>, Entry)>,
    /// The pages that are damaged still, and the snapshot that is in the way, if there is one.
    pub left: Vec<(Range<u64>, Option<Entry>)>,
}

/// The end of the repair of one page.
enum End {
    /// Another thread has replaced it, or it lies past the file's end.
    NotDamaged,
    Replaced(Entry),
    Left(Option<Entry>),
}

/// A page of a snapshot that is whole.
struct WholePage {
    from: Entry,
    /// `true` if no later live snapshot reaches the page.
    is_newest: bool,
    stored_sum: u64,
    bytes: [u8; PAGE],
}

impl Engine {
    /// Replaces the damaged pages of `range` by those of the newest snapshots that have them whole.
    /// Each page is one operation.
    pub fn repair(&self, range: Range<u64>) -> Result<Repaired> {
        self.check_usable()?;
        self.check_writable()?;
        if let Some(durable) = &self.durable {
            self.check_not_overdue(durable)?;
        }
        let verified = self.verify(range)?;
        let mut repaired = Repaired { pages: verified.pages, ..Repaired::default() };
        for damaged in verified.damaged {
            match self.repair_page(PageIndex::of(damaged.start))? {
                End::NotDamaged => {}
                End::Replaced(from) => repaired.replaced.push((damaged, from)),
                End::Left(in_the_way) => repaired.left.push((damaged, in_the_way)),
            }
        }
        if !repaired.replaced.is_empty() {
            self.make_durable_after_write()?;
        }
        Ok(repaired)
    }

    fn repair_page(&self, page: PageIndex) -> Result<End> {
        let mut may_wait = self.keeps_points;
        loop {
            // Before `resizing`: a thread that has a lane may be waiting for `resizing`.
            let lane = self.lane();
            // The set of live snapshots stays until the page is replaced.
            let no_seal = self.resizing.read();
            let inside = self.lanes.enter(Gate::Cut, &lane);
            if may_wait && self.is_in_cut(page) {
                drop(inside);
                drop(no_seal);
                drop(lane);
                may_wait = self.wait_for_point();
                continue;
            }
            return self.repair_inside(&lane, page);
        }
    }

    /// Repairs a page. The caller is inside the gate of cuts, and no snapshot is sealed or dropped.
    fn repair_inside(&self, lane: &InUse<'_>, page: PageIndex) -> Result<End> {
        let (index, n) = (page.region(), page.in_region());
        let region = {
            let _pinned = lane.pin();
            self.region(index)?
        };
        let held = lock_page(&region.lock, &region.pages[n].lock);
        self.check_usable_still()?;
        if page.start() >= self.len() {
            return Ok(End::NotDamaged);
        }
        // `verify` has counted and reported the damage.
        if self.is_whole(lane, page, region)? && !planted!(RepairedWhole) {
            return Ok(End::NotDamaged);
        }
        let Some(store) = self.snapshots.get() else { return Ok(End::Left(None)) };
        let mut reaching = store.live();
        reaching.retain(|entry| entry.len > page.start());
        let newest = reaching.last().cloned();
        let Some(whole) = self.newest_whole(lane, (page, region), reaching)? else {
            return Ok(End::Left(None));
        };
        let owed = self.owed_slices((index, region), n, Slices::ALL);
        if !owed.is_empty() && !whole.is_newest && !planted!(RepairedUnderReader) {
            return Ok(End::Left(newest));
        }
        let WholePage { from, stored_sum, bytes, .. } = whole;
        let is_first = store.kept_since(page, from.number).is_empty();
        let sum = if is_first { SealSum::Known(stored_sum) } else { SealSum::Later };
        let record = Record { epoch: from.number, page, mask: owed, sum };
        unless!(RepairKeepsNothing, self.append(lane, store, record, &bytes)?);
        lane.stats.bump(Counter::KeptSlices, owed.count() as u64);
        // Orders what is kept before the redo, and before the lock opens.
        self.drain(lane);
        self.clear_stamp(index, region, 1 << n);
        let readable = (self.len() - page.start()).min(PAGE as u64) as usize;
        let segment = Segment { offset: page.start(), data: &bytes[..readable] };
        let held = std::slice::from_ref(&held);
        self.commit_redo(lane, &Changes::of(&[segment]), None, held)?;
        own_changes::note_pages(self.number(), None, index, 1 << n);
        Ok(End::Replaced(from))
    }

    /// Returns the page of the newest snapshot that has it whole. `reaching` are the live snapshots
    /// that reach the page, the oldest first. The caller holds the page's lock.
    fn newest_whole(
        &self,
        lane: &Lane,
        (page, region): (PageIndex, &RegionState),
        mut reaching: Vec<Entry>,
    ) -> Result<Option<WholePage>> {
        let newest = reaching.last().map_or(0, |entry| entry.number);
        if !planted!(RepairedFromOldest) {
            reaching.reverse();
        }
        // Records that are looked up keep their places until the section ends.
        let _pinned = lane.pin();
        for from in reaching {
            let mut bytes = [0; PAGE];
            let of = Sealed { number: from.number, len: from.len };
            let at_seal = match self.load_at_seal(of, (page, Some(region)), &mut bytes) {
                // Bytes that were kept are damaged or missing.
                Err(Error::Snapshot { .. }) => continue,
                at_seal => at_seal?,
            };
            let stored_sum = page_sum::stored(page, page_sum::of_page(&bytes));
            if at_seal == Some(stored_sum) || planted!(RepairedUnproven) {
                let is_newest = from.number == newest;
                return Ok(Some(WholePage { from, is_newest, stored_sum, bytes }));
            }
        }
        Ok(None)
    }
}
