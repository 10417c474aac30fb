//! The deployment of pages right after a write (Acumen IV-F), and the prediction that it pays.
//!
//! A deployed page that is read gets a [stamp](crate::pair::stamps) after about a dozen reads, and
//! a write clears it. So a page with a stamp was read often since its last write, and will be read
//! often after this one. Its deployment pays. Policy `Adaptive` goes by that, page by page and
//! at once; Libnvmmio (3.4) decides for a file, after an epoch. A look costs one load of a line
//! that the write needs in any case.
//!
//! May import `deploy`, `durable`, `commit`, `io`, `plan`, `pair`, and what lies below them.

use crate::bitmap::{bits, span};
use crate::engine::Engine;
use crate::engine::deploy::region::{Pins, Which};
use crate::pair::region::RegionState;
use crate::units::{PAGE, PageIndex};
use std::ops::Range;

impl Engine {
    /// Deploys pages that were just written. The write is committed, so a failure is not its own.
    pub(super) fn deploy_written(&self, range: Range<u64>) {
        let _deployed_later_otherwise = self.deploy_pages(range, Pins::Respect, Which::Unread);
    }

    /// Returns `true` if the page was read often since it was written last.
    #[inline]
    pub(super) fn is_worth_deploying(&self, page: PageIndex) -> bool {
        let stamped = self.state.loaded(page.region()).map_or(0, RegionState::stamped_pages);
        stamped >> page.in_region() & 1 == 1
    }

    /// Returns the runs of pages of `range` that were read often since they were written last.
    pub(super) fn pages_worth_deploying(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        if range.is_empty() {
            return runs;
        }
        for span in span::regions(range) {
            let Some(region) = self.state.loaded(span.region) else { continue };
            let stamped = bits(region.stamped_pages());
            for n in stamped.filter(|n| span.pages.contains(n)) {
                let start = span.region.page(n).start();
                match runs.last_mut() {
                    Some(run) if run.end == start => run.end += PAGE as u64,
                    _ => runs.push(start..start + PAGE as u64),
                }
            }
        }
        runs
    }
}
