//! Zeroes the words of pages that are deployed, so that their storage can be given back.
//!
//! A page with set bits in both words is deployed, since the XOR of equal bits is 0. It stays
//! deployed if both words change at once. An undo record makes the change of all words atomic. No
//! slot is stored to.
//!
//! May import `commit`, `plan`, `pair`, and what lies below them.

use crate::bitmap::{Validity, bits};
use crate::engine::Engine;
use crate::engine::commit::publish;
use crate::engine::plan::{self, WordUpdate, WordUpdates};
use crate::error::Result;
use crate::format::entry::WordId;
use crate::mutant::{planted, unless};
use crate::pair::gates::Gate;
use crate::pair::log::lanes::InUse;
use crate::pair::region::RegionState;
use crate::units::{PAGES_PER_REGION, RegionIndex};
use std::iter;

impl Engine {
    /// Zeroes the words of the region if all of its pages are deployed. A region with a page
    /// elsewhere stays as it is.
    pub(super) fn zero_words(
        &self,
        lane: &InUse<'_>,
        index: RegionIndex,
        region: &RegionState,
    ) -> Result<()> {
        if pages_to_zero(region) == 0 {
            return Ok(());
        }
        let _inside = self.lanes.enter(Gate::Cut, lane);
        let held = plan::lock_whole_region(region);
        self.check_usable_still()?;
        let mask = pages_to_zero(region);
        if mask == 0 || index.page(PAGES_PER_REGION - 1).start() >= self.len() {
            // A shrink zeroes the words that it cuts off.
            return Ok(());
        }
        self.clear_stamp(index, region, mask);
        self.ensure_lane(lane, lane.index())?;
        // Flip records about these pages may stay active: they name sides and not words.
        let of_pages = bits(mask).map(|n| WordUpdate {
            word: WordId::Slice(index.page(n)),
            mask: !0,
            old: region.pages[n].slice_word(),
        });
        let of_region = WordUpdate { word: WordId::Region(index), mask, old: region.region_word() };
        let moves: WordUpdates = iter::once(of_region).chain(of_pages).collect();
        let unfinished = self.begin("deployment");
        if planted!(ZeroedByTwoStores) {
            self.store_updates(lane, &moves);
        } else {
            self.commit_undo(lane, &moves, None);
        }
        unless!(ZeroedNotClosed, held.close());
        moves.iter().for_each(|change| publish(region, change));
        unfinished.end();
        Ok(())
    }
}

/// Returns the pages with set bits in both words, if all pages are deployed.
fn pages_to_zero(region: &RegionState) -> u64 {
    let are_home = (0..PAGES_PER_REGION).all(|n| region.validity(n) == Validity(0));
    if are_home { region.region_word() } else { 0 }
}
