//! Deployment on read: deploys pages that reads keep finding in the reflection file.
//!
//! A read of a page that is not deployed takes a little longer than one of a deployed page.
//! Deploying the page takes the time that a few dozen of those reads lose together, and the next
//! writer may undeploy it again. The future is not known. So a page is deployed once its reads have
//! lost about what that costs. In the worst case this takes about twice the time of the better
//! choice. Reads are counted for each page, and a write of the page resets its count. Pages that
//! are written about as often as they are read are seldom deployed.
//!
//! A page that is read repeatedly stays in the processor's caches, and those reads lose next to
//! nothing. So of several reads within one page, with no read of another page between them, at most
//! one is counted. Counting stores to a cache line that reads do not need otherwise. So one read in
//! [`SAMPLED`](super::policy::SAMPLED) is counted, or one in `SAMPLED_OF_SEVERAL` if it is
//! longer than a page. As a rule no read is counted of a thread that writes now and then.
//!
//! For a long read the loss is known at once: the number of pieces in which its bytes lay.
//!
//! All this applies under policy `Lazy` only. Nor does it apply where durable points are kept: a
//! deployment is a change that the next durable point would have to record. Short reads allocate
//! nothing: they do not deploy into a hole of the home file. A failed deployment does not fail the
//! read, which has its bytes already.
//!
//! May import `commit`, `durable`, `io`, `plan`, `pair`, and what lies below them.

use crate::bitmap::{Side, Validity, span};
use crate::engine::Engine;
use crate::engine::deploy::policy::{ENOUGH, LONG, are_held, containing_block, is_too_fragmented};
use crate::engine::deploy::region::{Pins, Which};
use crate::pair::page_table::known;
use crate::primitive::Ordering;
use crate::units::{ChunkIndex, PAGE, PageIndex};
use std::ops::Range;

impl Engine {
    /// Runs after a read of `range`, which lay in `pieces` pieces. `is_counted` is the result of
    /// the function of that name. The thread has borrowed no lane.
    pub(in crate::engine) fn on_read(&self, range: Range<u64>, pieces: usize, is_counted: bool) {
        let len = range.end - range.start;
        if is_too_fragmented(pieces, len) && self.deploys_on_read() {
            self.deploy_after_read(range, Which::Scattered);
        } else if is_counted && len < LONG {
            self.count_read(range);
        }
    }

    /// Counts a read of each page, and deploys the pages with enough counted reads. The thread has
    /// borrowed no lane and is in no read section.
    #[inline(never)]
    pub(in crate::engine) fn count_read(&self, range: Range<u64>) {
        if !self.deploys_on_read() {
            return;
        }
        // Neighbours are deployed together, with shared drains.
        let mut enough = 0..0;
        for span in span::pages(range) {
            let Some(region) = self.state.loaded(span.page.region()) else { continue };
            let n = span.page.in_region();
            let may_come = region.validity(n) != Validity(0)
                && !region.is_held_back(n)
                && (self.alloc_flags_of(span.page) & known::HOME_HAS_HOLES == 0
                    || self.page_is_allocated(Side::Home, span.page));
            if !may_come || region.count_read(n) < ENOUGH {
                continue;
            }
            let pages = containing_block(region, n);
            if are_held(region, &pages) {
                // A reader must not wait for a writer. It may still have to, if a writer locks just
                // now. Allocation may also delay it, once per chunk.
                continue;
            }
            region.forget_reads(n);
            if self.home_is_allocated(span.page) {
                let start = span.page.region().start();
                let byte = |n: usize| start + (n * PAGE) as u64;
                if byte(pages.start) > enough.end {
                    self.deploy_after_read(enough, Which::All);
                    enough = byte(pages.start)..byte(pages.end);
                }
                enough.end = enough.end.max(byte(pages.end));
            }
        }
        self.deploy_after_read(enough, Which::All);
    }

    /// Returns `true` if deploying the page needs no allocation.
    fn home_is_allocated(&self, page: PageIndex) -> bool {
        // The word that undeployed the page is allocated, so only its home slots may be missing.
        let lane = self.lane();
        let _pinned = lane.pin();
        // In a read section and within the file: what is learned about the chunk stays true.
        let bytes = page.start()..page.start() + PAGE as u64;
        page.start() < self.len() && self.home_is_loadable(bytes).unwrap_or(false)
    }

    /// Returns the allocation flags of the page's chunk.
    pub(in crate::engine) fn alloc_flags_of(&self, page: PageIndex) -> u8 {
        self.chunk_state(ChunkIndex::of(page.start())).load(Ordering::Acquire)
    }

    #[cold]
    fn deploy_after_read(&self, range: Range<u64>, which: Which) {
        if !range.is_empty() {
            // The last page may end past the file.
            let end = range.end.min(self.len());
            let _next_time_otherwise = self.deploy_pages(range.start..end, Pins::Respect, which);
        }
    }
}
