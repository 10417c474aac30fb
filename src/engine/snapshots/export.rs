//! Which pages and slices a snapshot has, and which differ between two snapshots.
//!
//! A slice that differs was changed after the older seal, and before the newer one. So it was kept
//! then: the older snapshot reads it from a record of an epoch before the newer one. No other slice
//! needs a look, except past the end of the older snapshot, where nothing is kept.
//!
//! Writers, deployments and changes of the length go on meanwhile, as with all reads of snapshots.
//! Memory: a word for each region of the file, or for each page that has a record.
//!
//! May import `read`, `pair`, and what lies below them.

use crate::bitmap::Slices;
use crate::engine::Engine;
use crate::error::Result;
use crate::format::export::{page_sum, unmark};
use crate::mutant::planted;
use crate::pair::epochs::Sealed;
use crate::units::{PAGE, PAGES_PER_REGION, PageIndex, REGION, RegionIndex, SLICE};
use std::ops::Range;

/// Takes the slices of a page, which the caller has in full.
pub(crate) type Take<'a> = &'a mut dyn FnMut(PageIndex, Slices, &[u8; PAGE]) -> Result<()>;

impl Engine {
    /// Returns the identity of the pair.
    pub fn uuid(&self) -> [u8; 16] {
        self.superblock.lock().uuid
    }

    /// Returns the content sum of a snapshot. A handle reads the snapshot.
    pub fn sum_of_snapshot(&self, of: Sealed) -> Result<u64> {
        self.take_pages(of, 0, &mut |_, _, _| Ok(()))
    }

    /// Passes to `take` all pages of a snapshot that begin at byte `start` or later and are not
    /// zero, in ascending order. Returns the XOR of their sums. A handle reads the snapshot.
    pub fn take_pages(&self, of: Sealed, start: u64, take: Take<'_>) -> Result<u64> {
        let mut sum = 0;
        let mut bytes = [0; PAGE];
        for region in self.regions_of(of, start)? {
            let pages = (0..PAGES_PER_REGION).map(|n| region.page(n));
            for page in pages.filter(|page| (start..of.len).contains(&page.start())) {
                self.read_sealed(of, page, &mut bytes)?;
                if bytes != [0; PAGE] {
                    sum ^= page_sum(page, &bytes);
                    take(page, Slices::ALL, &bytes)?;
                }
            }
        }
        Ok(sum)
    }

    /// Passes to `take` the slices that differ between two snapshots, in ascending order of their
    /// pages, with the page as the newer snapshot has it. Returns the XOR of both content sums.
    /// Handles read both snapshots.
    pub fn take_changes(&self, from: Sealed, to: Sealed, take: Take<'_>) -> Result<u64> {
        let common = from.len.min(to.len);
        let newest = if planted!(ExportForgetsNewest) { to.number - 1 } else { to.number };
        let store = self.snapshots.get();
        let pages = store.map_or(Vec::new(), |store| store.pages_within(from.number..newest));
        let (mut sum, mut old, mut new) = (0, [0; PAGE], [0; PAGE]);
        for page in pages.into_iter().filter(|page| page.start() < common) {
            self.read_sealed(from, page, &mut old)?;
            self.read_sealed(to, page, &mut new)?;
            let changed = differing(&old, &new);
            if !changed.is_empty() {
                sum ^= page_sum(page, &old) ^ page_sum(page, &new);
                take(page, changed, &new)?;
            }
        }
        // Past the end of the other one there is nothing to compare with.
        sum ^= self.take_pages(to, next_page(from.len), take)?;
        Ok(sum ^ self.take_pages(from, next_page(to.len), &mut |_, _, _| Ok(()))?)
    }

    /// Reads a page of a snapshot, with zeros past its end, and without the mark of a database.
    fn read_sealed(&self, of: Sealed, page: PageIndex, bytes: &mut [u8; PAGE]) -> Result<()> {
        let end = of.len.saturating_sub(page.start()).min(PAGE as u64) as usize;
        bytes[end..].fill(0);
        self.read_snapshot(of, &mut bytes[..end], page.start())?;
        unmark(page, bytes);
        Ok(())
    }

    /// Returns the ranges of a snapshot outside of which it has zeros only. A handle reads it.
    pub fn data_of_snapshot(&self, of: Sealed) -> Result<Vec<Range<u64>>> {
        Ok(merged(self.regions_of(of, 0)?, of.len))
    }

    /// Returns the ranges of the file outside of which it has zeros only.
    pub fn data_of_file(&self) -> Result<Vec<Range<u64>>> {
        self.check_readable()?;
        let _no_resizing = self.resizing.read();
        let len = self.len();
        self.load_regions_with_bytes(0..len)?;
        Ok(merged(self.state.loaded_regions().map(|(index, _)| index), len))
    }

    /// Returns the regions past `start` in which the snapshot may have a byte that is not zero.
    fn regions_of(&self, of: Sealed, start: u64) -> Result<Vec<RegionIndex>> {
        self.check_readable()?;
        let mut regions = {
            let _no_resizing = self.resizing.read();
            let end = self.len().min(of.len);
            if start < end {
                self.load_regions_with_bytes(start..end)?;
            }
            self.state.loaded_regions().map(|(index, _)| index).collect::<Vec<_>>()
        };
        // After that: what was taken from the file before the look has been kept.
        let pages = self.snapshots.get().map_or(Vec::new(), |store| store.pages_since(of.number));
        regions.extend(pages.into_iter().map(PageIndex::region));
        regions.retain(|index| index.start() < of.len && index.start() + REGION as u64 > start);
        regions.sort_unstable();
        regions.dedup();
        Ok(regions)
    }
}

/// Returns the ranges of regions, which ascend, up to byte `len`.
fn merged(regions: impl IntoIterator<Item = RegionIndex>, len: u64) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for region in regions.into_iter().take_while(|region| region.start() < len) {
        let end = region.end().min(len);
        match ranges.last_mut() {
            Some(last) if last.end == region.start() => last.end = end,
            _ => ranges.push(region.start()..end),
        }
    }
    ranges
}

/// Returns the offset of the first page that begins at `len` or later.
pub(super) fn next_page(len: u64) -> u64 {
    len.next_multiple_of(PAGE as u64)
}

pub(super) fn differing(old: &[u8; PAGE], new: &[u8; PAGE]) -> Slices {
    let pairs = old.as_chunks::<SLICE>().0.iter().zip(new.as_chunks::<SLICE>().0).enumerate();
    let changed = pairs.filter(|(_, (old, new))| old != new);
    changed.fold(Slices::NONE, |all, (n, _)| all.or(Slices::range(n, n + 1)))
}
