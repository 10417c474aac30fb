//! Defragmentation on write: deploys fragmented pages that a write covers from end to end.
//!
//! Small writes leave a page fragmented: its slices lie on both sides. A write of the whole page
//! leaves it fragmented, since each slice goes to its other slot. Readers gather fragmented pages
//! piece by piece, which takes up to twice as long. A reader deploys a page for about the time that
//! a few of those reads lose together ([`deploy::on_read`](super::on_read)). A writer of the whole
//! page has the bytes at hand and needs less than half of that. After its commit it copies them to
//! the home slots too, and changes the words.
//!
//! A writer cannot know which pages will be read. So writes defragment about the number of pages
//! that recent reads found fragmented, whichever those were. This debt is kept in
//! [`FragmentationDebt`]. As a rule the copies take no more time than those reads have lost.
//!
//! May import `commit`, `durable`, `io`, `plan`, `pair`, and what lies below them.

use crate::bitmap::{Validity, bits};
use crate::engine::Engine;
use crate::engine::deploy::policy::LONG;
use crate::engine::deploy::region::{Pins, Source};
use crate::engine::plan::{Plans, RegionPlan, Segment};
use crate::lock::LockGuard;
use crate::mutant::planted;
use crate::pair::log::lane::Lane;
use crate::primitive::{Ordering, fence};
use crate::units::{PAGE, PageIndex};
use std::ops::Range;
use std::sync::atomic::AtomicI64;

/// Fragmentation debt: the number of pages that were read in pieces and not paid for by a
/// defragmented page yet.
#[derive(Debug)]
pub(in crate::engine) struct FragmentationDebt(AtomicI64);

/// Most pages of one region that one write defragments.
const MOST: u32 = (LONG / PAGE as u64) as u32;

/// Upper limit of the debt: a thread that begins to write only does not pay for all earlier reads.
pub(in crate::engine) const REMEMBERED: i64 = 256;

impl FragmentationDebt {
    /// Returns a debt of zero. Models of schedules are short and begin with the largest debt
    /// instead.
    pub fn new() -> Self {
        FragmentationDebt(AtomicI64::new(if cfg!(shuttle) { REMEMBERED } else { 0 }))
    }

    /// Adds `pages` to the debt. Concurrent calls may overshoot [`REMEMBERED`].
    fn note(&self, pages: i64) {
        // At its limit the debt is only loaded, and its line stays in all caches. This is usual
        // where no thread makes page-aligned writes.
        if self.0.load(Ordering::Relaxed) < REMEMBERED {
            self.0.fetch_add(pages, Ordering::Relaxed);
        }
    }

    /// Returns `true` if there is any debt.
    fn are_any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0 || planted!(TogetherForNothing)
    }

    /// Deducts `pages` if the debt covers them, and returns whether it did.
    fn take(&self, pages: i64) -> bool {
        // Two concurrent calls may both deduct the same debt: then it falls below zero.
        let is_enough = self.0.load(Ordering::Relaxed) >= pages || planted!(TogetherForNothing);
        if is_enough {
            self.0.fetch_sub(pages, Ordering::Relaxed);
        }
        is_enough
    }
}

impl Engine {
    /// Records that a read gathered `range` from `pieces` pieces.
    pub(super) fn record_fragments(&self, range: &Range<u64>, pieces: usize) {
        if pieces < 2 {
            // Also if no bytes were read.
            return;
        }
        let pages = PageIndex::of(range.end - 1).0 - PageIndex::of(range.start).0 + 1;
        let more = (pieces as u64).saturating_sub(pages);
        if more > 0 && self.deploys_on_read() {
            // One additional piece is not one fragmented page. But a read cannot have found more
            // fragmented pages than it read.
            self.debt.note(more.min(pages) as i64);
        }
    }

    /// Adds to `found`, which is empty, the pages to defragment: fragmented ones that the operation
    /// writes whole. The caller holds the locks.
    // Not returned by value, for the reason given at `plan_writes`: the caller needs it directly
    // after the copy.
    #[inline]
    pub(in crate::engine) fn pick_fragmented<'e>(
        &self,
        plans: &[RegionPlan<'e>],
        found: &mut Plans<'e>,
    ) {
        if self.debt.are_any() && self.deploys_on_read() {
            self.find_fragmented(plans, found);
        }
    }

    #[inline(never)]
    fn find_fragmented<'e>(&self, plans: &[RegionPlan<'e>], found: &mut Plans<'e>) {
        // In a long write, checking each page would cost a miss for every few of them. Long reads
        // deploy what they find fragmented there.
        let is_short = |plan: &&RegionPlan<'_>| plan.whole.count_ones() <= MOST;
        for plan in plans.iter().filter(is_short) {
            let is_scattered =
                |n: &usize| !matches!(plan.state.validity(*n), Validity(0 | u64::MAX));
            let pages = bits(plan.whole).filter(is_scattered).fold(0, |mask: u64, n| mask | 1 << n);
            if pages != 0 && self.debt.take(pages.count_ones().into()) {
                found.push(RegionPlan { touched: pages, whole: pages, ..*plan });
            }
        }
    }

    /// Deploys the pages in `scattered`. The caller has just committed and published `segments`,
    /// and its words are still closed.
    #[cold]
    pub(in crate::engine) fn defragment(
        &self,
        lane: &Lane,
        scattered: &[RegionPlan<'_>],
        segments: &[Segment<'_>],
        held: &[LockGuard<'_>],
    ) {
        debug_assert!(
            held.iter().all(LockGuard::is_closed),
            "readers wait until all of it is done"
        );
        // Orders the closing, plain stores, before the copy, which may be streamed. A reader that
        // has begun to read the old slots must not find new bytes in them under open words.
        fence(Ordering::SeqCst);
        for plan in scattered {
            // The write is committed, so a failed deployment is not its failure.
            let _next_time_otherwise =
                self.deploy_locked(lane, plan, held, Pins::Respect, Source::Written(segments));
        }
    }
}
