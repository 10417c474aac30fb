//! When does a reader bring home what it has found elsewhere?
//!
//! Each read of a page that is not at home takes a little longer than one of a page that is; to bring it home takes as
//! long as a few dozen of those have lost together; and whoever writes the page next may send it away again. Nobody
//! knows what comes. So a page comes home after about as many reads as have lost what that costs: whatever comes,
//! that takes no more than twice as long as the better of the two. Reads are counted for each page, and a write of
//! the page begins anew: pages that are written as often as they are read seldom come home.
//!
//! To count is to store to a cache line that such reads would not need. So one read of [`SAMPLED`] is counted, and none
//! of a thread that writes now and then.
//!
//! Of a long read it is known at once what it has lost: in how many pieces its bytes were.
//!
//! All this by policy `Lazy`, and not where durable points are kept: what comes home is a change that the next one
//! would have to tell of. A reader takes no space: nothing comes home to a hole. What goes wrong is no failure of the
//! read, which has its bytes.
//!
//! May import `deploy`, `lanes`, `state`, `bitmap`.

use super::Engine;
use super::deploy::{Pins, Which};
use super::lanes::Lane;
use crate::bitmap::{Validity, span};
use crate::terms::DeployPolicy;
use crate::units::{ChunkIndex, PAGE};
use std::ops::Range;

/// A read of so many bytes is long.
const LONG: u64 = 64 << 10;

/// One read of so many is counted.
const SAMPLED: u64 = 8;
/// So many counted ones are enough.
const ENOUGH: u8 = 4;
/// For so many reads it is every eighth one, then every eighth from another one on: who goes through eight places
/// again and again would have one of them counted.
const IN_STEP: u64 = 512;

/// Who has written something is taken for somebody who only reads after so many reads. What it has brought home is
/// such a write: so no more than one read in so many takes the time of a deployment as well.
const ONLY_READS: u64 = 64;

/// Whether the lane's read with this number is counted. (The processor foresees it nearly always.)
#[inline(always)]
pub(super) fn is_counted(lane: &Lane, number: u64) -> bool {
    (number ^ (number / IN_STEP)).is_multiple_of(SAMPLED)
        && lane.reads() - lane.recent.reads_before_write() >= ONLY_READS
}

/// Whether it takes less time to bring so many bytes home that were read in so many pieces than to read them like
/// that a few times more. Each piece begins with a miss; in short reads as many of those are under way as there can
/// be. The writes pay for it which have scattered the bytes: none comes home that was not written since. See
/// `docs/performance.md`.
fn are_too_many(pieces: usize, len: u64) -> bool {
    len >= LONG && pieces as u64 > 1 + len / LONG
}

impl Engine {
    /// What follows a read of `range`, in so many pieces; whether it [`is_counted`]. While no lane is borrowed.
    pub(super) fn after_read(&self, range: Range<u64>, pieces: usize, is_counted: bool) {
        let len = range.end - range.start;
        if are_too_many(pieces, len) {
            self.come_home(range, Which::Scattered);
        } else if len < LONG && is_counted {
            self.count_read(range);
        }
    }

    /// Counts a read of each of these pages, and brings home those that were read often enough.
    #[inline(never)]
    pub(super) fn count_read(&self, range: Range<u64>) {
        if !self.is_for_readers() {
            return;
        }
        for span in span::pages(range) {
            let Some(region) = self.state.touched(span.page.region()) else { continue };
            let n = span.page.in_region();
            if region.validity(n) == Validity(0) || region.count_read(n) < ENOUGH {
                continue;
            }
            region.forget_reads(n);
            let start = span.page.start();
            if self.has_room_at_home(start) {
                self.come_home(start..start + PAGE as u64, Which::All);
            }
        }
    }

    /// Whether bytes that come home at `offset` take no space.
    fn has_room_at_home(&self, offset: u64) -> bool {
        let lane = self.lane();
        let _pinned = lane.pin();
        // Pinned, and within the file: what is found out about its chunk holds.
        offset < self.len() && self.home_is_loadable(ChunkIndex::of(offset)).unwrap_or(false)
    }

    /// Whether readers bring anything home.
    fn is_for_readers(&self) -> bool {
        self.policy == DeployPolicy::Lazy && self.durable.is_none()
    }

    #[cold]
    fn come_home(&self, range: Range<u64>, which: Which) {
        if self.is_for_readers() {
            // Of the last page there may be less than that.
            let end = range.end.min(self.len());
            let _next_time_otherwise = self.deploy_pages(range.start..end, Pins::Respect, which);
        }
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;
    use crate::{AtomicMappedFile, Medium};

    const LEN: u64 = 1 << 20;

    /// Of which everything is at home.
    fn file(folder: &std::path::Path, policy: DeployPolicy) -> AtomicMappedFile {
        let options = AtomicMappedFile::options().create(true).len(LEN).medium(Medium::Ram);
        let file = options.deploy(policy).open(folder.join("state.dat")).expect("a pair");
        for _ in 0..2 {
            file.write_at(&[1; LEN as usize], 0).expect("a write");
        }
        file.deploy(0..LEN).expect("a deployment");
        file
    }

    /// So many reads of 16 bytes at `offset`; how many pages have come home then.
    fn after_reads(file: &AtomicMappedFile, count: u64, offset: u64) -> u64 {
        let before = file.stats().deployments;
        for _ in 0..count {
            assert_eq!(file.load::<[u8; 16]>(offset).expect("a read"), [7; 16]);
        }
        file.stats().deployments - before
    }

    const FEW: u64 = ONLY_READS + SAMPLED * (ENOUGH as u64 - 2);
    const MANY: u64 = ONLY_READS + SAMPLED * (ENOUGH as u64 + 1);

    #[test]
    fn a_page_comes_home_after_many_reads_without_a_write() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path(), DeployPolicy::Lazy);
        let write = |offset| file.write_at(&[7; 100], offset).expect("a write");
        // Within a page, and over two.
        for (offset, pages) in [(4096, 1), (3 * 4096 - 8, 2)] {
            // Each sends its slices to the other side: away, and home, and away.
            for _ in 0..51 {
                write(offset);
                assert_eq!(after_reads(&file, FEW, offset), 0, "a write begins anew");
            }
            assert_eq!(after_reads(&file, MANY, offset), pages);
            assert_eq!(after_reads(&file, 4 * MANY, offset), 0, "they are at home");
            write(offset);
            assert_eq!(after_reads(&file, MANY, offset), pages, "once more");
        }
        let view = file.view(4096..4096 + 100).expect("a view");
        write(4096);
        assert_eq!(after_reads(&file, 4 * MANY, 4096), 0, "not while somebody looks at it");
        drop(view);
        assert_eq!(after_reads(&file, MANY, 4096), 1);
    }

    #[test]
    fn each_of_several_places_is_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path(), DeployPolicy::Lazy);
        let places = (0..SAMPLED).map(|n| n * 4096);
        places.clone().for_each(|at| file.write_at(&[7; 64], at).expect("a write"));
        for _ in 0..2 * IN_STEP {
            places.clone().for_each(|at| assert_eq!(file.load::<u8>(at).expect("a read"), 7));
        }
        assert_eq!(file.stats().deployments, SAMPLED);
    }

    #[test]
    fn nothing_comes_home_by_another_policy_or_to_a_hole() {
        let folder = tempfile::tempdir().expect("a folder");
        let manual = file(folder.path(), DeployPolicy::Manual);
        manual.write_at(&[7; 64], 0).expect("a write");
        assert_eq!(after_reads(&manual, 4 * MANY, 0), 0);
        drop(manual);
        let sparse = file(folder.path(), DeployPolicy::Lazy);
        sparse.set_len(8 << 20).expect("longer");
        sparse.write_at(&[7; 4096], 4 << 20).expect("a write");
        assert_eq!(after_reads(&sparse, 4 * MANY, 4 << 20), 0, "the home file has a hole there");
    }
}
