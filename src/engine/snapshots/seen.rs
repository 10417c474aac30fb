//! Reads the whole file beside writers for its content sum, which an import compares with that of
//! its base.
//!
//! Owns: what was read of each page, with the page's version. Passes over the pages that have
//! changed follow each other beside writers. Behind the gate of cuts the last pass reads only the
//! pages that have changed since. Takes 16 bytes a page.
//!
//! May import `verify`, `io`, `plan`, `pair`, and what lies below them.

use crate::bitmap::Slices;
use crate::engine::Engine;
use crate::error::Result;
use crate::format::export;
use crate::lock::{LockWord, Version, lock_page};
use crate::mutant::planted;
use crate::pair::region::RegionState;
use crate::units::{PAGE, PAGES_PER_REGION, RegionIndex};
use std::collections::BTreeMap;

/// The content sums of pages as they were read beside writers.
pub(super) type Seen = BTreeMap<RegionIndex, SeenRegion>;

/// Passes over the pages that have changed, beside writers.
const MOST_ROUNDS: usize = 8;

/// Pages that are left to the pass behind the gate, without another round.
const FEW: usize = 64;

/// A region as it was read. No version shrinks: if the versions are the same, nothing has changed.
pub(super) struct SeenRegion {
    /// The length of the file.
    len: u64,
    /// The version of the region's word before its pages were read. `None` if the word was closed.
    version: Option<u64>,
    pages: Box<[SeenPage; PAGES_PER_REGION]>,
    /// The sum of all these versions, if each page has one.
    versions: Option<u64>,
    /// The content sum of the pages.
    sum: u64,
}

/// The version and the content sum of a page.
#[derive(Clone, Copy)]
struct SeenPage {
    version: Option<u64>,
    sum: u64,
}

impl Default for SeenRegion {
    /// Returns a region that was not read.
    fn default() -> Self {
        let pages = Box::new([SeenPage { version: None, sum: 0 }; PAGES_PER_REGION]);
        SeenRegion { len: 0, version: None, pages, versions: None, sum: 0 }
    }
}

/// Returns the version of a word. `None` while it is closed.
fn version(word: &LockWord) -> Option<u64> {
    word.begin().map(Version::count)
}

/// Returns the sum of the versions of a region and its pages. `None` while one of them is closed.
fn versions(region: &RegionState) -> Option<u64> {
    let pages = region.pages.iter().map(|page| &page.lock);
    std::iter::once(&region.lock).chain(pages).map(version).sum()
}

impl Engine {
    /// Reads the present beside writers, and again the pages that have changed, until they are few
    /// or do not become fewer. Behind the gate only those are read that have changed by then.
    pub(super) fn see_present(&self) -> Result<Seen> {
        let (mut seen, mut last) = (Seen::new(), usize::MAX);
        {
            let _no_resizing = self.resizing.read();
            self.load_regions_with_bytes(0..self.len())?;
        }
        for _ in 0..MOST_ROUNDS {
            let regions: Vec<RegionIndex> = {
                let _no_resizing = self.resizing.read();
                self.state.loaded_regions().map(|(index, _)| index).collect()
            };
            let mut read = 0;
            for index in regions {
                // For a region at a time: changes of the length wait.
                let _no_resizing = self.resizing.read();
                if let Some(region) = self.state.loaded(index) {
                    read += self.see_changes((index, region), seen.entry(index).or_default())?;
                }
            }
            // Writers that change as many pages in a round will do so in the next one.
            if read <= FEW || read > last / 2 {
                break;
            }
            last = read;
        }
        Ok(seen)
    }

    /// Returns the content sum of the present. Reads what has changed since it was seen. The caller
    /// holds `resizing`. The sum is of one state if no operation is inside the gate of cuts.
    pub(super) fn sum_of_present(&self, seen: &mut Option<Seen>) -> Result<u64> {
        if seen.is_none() {
            self.load_regions_with_bytes(0..self.len())?;
        }
        let (seen, mut sum) = (seen.get_or_insert_default(), 0);
        for (index, region) in self.state.loaded_regions() {
            let seen = seen.entry(index).or_default();
            if !planted!(SeenTakenForPresent) || seen.versions.is_none() {
                self.see_changes((index, region), seen)?;
            }
            sum ^= seen.sum;
        }
        Ok(sum)
    }

    /// Reads the pages of a region that have changed since they were seen. Returns their number.
    /// The caller holds `resizing`.
    fn see_changes(
        &self,
        (index, region): (RegionIndex, &RegionState),
        seen: &mut SeenRegion,
    ) -> Result<usize> {
        let len = self.len();
        if seen.versions.is_some() && versions(region) == seen.versions && seen.len == len {
            return Ok(0);
        }
        let before = version(&region.lock);
        // A holder of the region's lock changes pages without a new version of their words.
        let is_same = before.is_some() && before == seen.version;
        let mut read = 0;
        for (n, seen) in seen.pages.iter_mut().enumerate() {
            let (page, word) = (index.page(n), &region.pages[n].lock);
            if page.start() >= len {
                *seen = SeenPage { version: None, sum: 0 };
                continue;
            }
            if is_same && seen.version.is_some() && version(word) == seen.version {
                continue;
            }
            let mut bytes = [0; PAGE];
            let held = lock_page(&region.lock, word);
            held.mark_stable();
            self.load_slices(page, region.validity(n), Slices::ALL, &mut bytes)?;
            *seen = SeenPage { version: version(word), sum: export::page_sum(page, &bytes) };
            read += 1;
        }
        seen.len = len;
        seen.version = before;
        let pages = seen.pages.iter().map(|page| page.version);
        seen.versions = std::iter::once(before).chain(pages).sum();
        seen.sum = seen.pages.iter().fold(0, |sum, page| sum ^ page.sum);
        Ok(read)
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;
    use crate::engine::snapshots::{LEN_OF_TEST, open_for_test};
    use crate::units::PageIndex;

    /// Spoils the first slice of a page.
    fn spoil(engine: &Engine, page: PageIndex) {
        let region = engine.region(page.region()).expect("loaded");
        for (side, _) in region.validity(page.in_region()).runs(Slices::one(0)) {
            let (slots, at) = engine.slot(side, page.start());
            slots.copy_in(at, &[8; 64], crate::platform::Copying::BySize);
        }
    }

    /// Writers waited while the whole file was read behind the gate, and then while the regions
    /// were that had changed. The test spoils pages that have not changed since the base was read:
    /// nothing reads them again.
    #[test]
    fn the_base_is_read_beside_writers_and_then_only_the_pages_that_have_changed() {
        let dir = crate::doctest_dir();
        let file = open_for_test(&dir);
        file.write_at(&vec![7; LEN_OF_TEST as usize], 0).expect("write");
        let engine = file.engine();
        let base_sum = engine.sum_of_present(&mut None).expect("a sum");
        let mut seen = Some(engine.see_present().expect("read"));
        let is_base =
            |seen: &mut Option<Seen>| engine.sum_of_present(seen).expect("a sum") == base_sum;
        assert!(is_base(&mut seen));
        // One of a region of its own, and one beside the page that is written to.
        spoil(engine, PageIndex(130));
        spoil(engine, PageIndex(2));
        assert!(!is_base(&mut None), "the whole present is read");
        assert!(is_base(&mut seen), "it is not read again");
        file.write_at(&[9], 5000).expect("write");
        assert!(!is_base(&mut seen), "what has changed is read");
        file.write_at(&[7], 5000).expect("write");
        assert!(is_base(&mut seen), "as it was");
        // A holder of the region's lock may have changed each page of it.
        let index = PageIndex(2).region();
        let region = engine.region(index).expect("loaded");
        let held = crate::engine::plan::lock_whole_region(region);
        held.close();
        drop(held);
        assert!(!is_base(&mut seen), "the region is read as a whole");
    }

    /// Another page changes in each round.
    #[test]
    fn the_base_is_read_again_until_few_pages_have_changed() {
        let dir = crate::doctest_dir();
        let file = open_for_test(&dir);
        file.write_at(&vec![7; LEN_OF_TEST as usize], 0).expect("write");
        let (engine, mut seen) = (file.engine(), SeenRegion::default());
        let mut look = || {
            let region = engine.region(RegionIndex(0)).expect("loaded");
            engine.see_changes((RegionIndex(0), region), &mut seen).expect("read")
        };
        assert_eq!([look(), look()], [PAGES_PER_REGION, 0]);
        file.write_at(&[8; 3 * PAGE], 5000).expect("write");
        assert_eq!([look(), look()], [4, 0]);
        file.set_len(10 * PAGE as u64).expect("shorter");
        look();
        file.write_at(&[9], 11 * PAGE as u64).expect_err("past the end");
        file.set_len(LEN_OF_TEST).expect("longer");
        look();
        let mut anew = SeenRegion::default();
        let region = engine.region(RegionIndex(0)).expect("loaded");
        engine.see_changes((RegionIndex(0), region), &mut anew).expect("read");
        assert_eq!(seen.sum, anew.sum);
    }
}
