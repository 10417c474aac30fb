//! Puts the slices of a snapshot back. Repeatable, and covered by the table of the store.
//!
//! The table says that a rollback is under way, so no record of the log is needed: after a crash
//! the opening does all of it again. Otherwise the steps are those of `redo`. Slices with a free
//! slot flip. The others are stored over their valid slots. Steps, for some of the pages:
//! 1. What live snapshots read from these slots is kept; slices that flip are copied to their free
//!    slots; active flip records about the slices are invalidated. A drain.
//! 2. The locks are closed. The other slices are stored, and the words. A drain.
//!
//! May import `keep`, `io`, `plan`, `pair`, and what lies below them.

use super::redo::PageWrite;
use crate::bitmap::Slices;
use crate::engine::Engine;
use crate::engine::plan::{Changes, Segment};
use crate::error::Result;
use crate::lock::LockGuard;
use crate::mutant::unless;
use crate::pair::log::lanes::InUse;
use crate::pair::region::RegionState;
use crate::primitive::{Ordering, fence};
use crate::units::PageIndex;

/// The slices of one page that are put back, with their bytes.
pub(in crate::engine) struct Restored<'e>(PageWrite<'e>);

impl<'e> Restored<'e> {
    /// `bytes` holds the slices one after the other.
    pub fn new(page: PageIndex, region: &'e RegionState, slices: Slices, bytes: Vec<u8>) -> Self {
        let claimed = region.claimed_slices(page.in_region());
        Restored(PageWrite {
            page,
            region,
            slices,
            stays: slices.and(claimed),
            placed: Slices::NONE,
            bytes,
        })
    }
}

impl Engine {
    /// Puts the slices of these pages back. `held` are the locks of all pages of the rollback. They
    /// stay closed afterwards. `len` is the snapshot's length, in bytes.
    pub(in crate::engine) fn commit_restored(
        &self,
        lane: &InUse<'_>,
        pages: &[Restored<'_>],
        len: u64,
        held: &[LockGuard<'_>],
    ) -> Result<()> {
        for Restored(page) in pages {
            let valid = page.slots().free();
            self.ensure_free_slots(lane, page.page, page.slices, valid, true)?;
            self.note_changed(page.page);
        }
        let len = len.max(self.len());
        let parts: Vec<Segment<'_>> = pages.iter().flat_map(|page| page.0.parts(len)).collect();
        let sums = self.reckon_sums(lane, &Changes::of(&parts), len)?;
        if self.keeps_at_stores() {
            self.keep(lane, pages.iter().map(|Restored(page)| (page.page, page.slices)))?;
        }
        self.store_sums(lane, &sums);
        for Restored(page) in pages {
            self.store_slices(lane, page, page.flips());
        }
        self.invalidate_records(lane, pages.iter().map(|Restored(page)| page.target()));
        // Orders what is kept, the sums, the copies, and the invalidated headers before the first
        // word, and before the first store over a valid slot.
        unless!(RestoreNoDrainBeforeWords, self.drain(lane));
        held.iter().for_each(LockGuard::close);
        // Orders the closing before the slices, as in `redo`.
        fence(Ordering::SeqCst);
        for Restored(page) in pages {
            self.store_slices(lane, page, page.stays);
            self.store_new_word(lane, page);
        }
        // Orders the words before the table that says that the rollback is over.
        unless!(RestoreNoDrainAfterWords, self.drain(lane));
        self.publish_sums(&sums);
        Ok(())
    }
}
