//! Spans of byte ranges: the pages and regions that a range touches, and its part in each.

use super::Slices;
use crate::mutant::planted;
use crate::units::{PAGE, PAGES_PER_REGION, PageIndex, RegionIndex, SLICE};
use std::ops::Range;

/// The part of one page that a byte range covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageSpan {
    /// The page.
    pub page: PageIndex,
    /// The first byte within the page.
    pub start: usize,
    /// The end within the page, at most 4096.
    pub end: usize,
}

impl PageSpan {
    /// Returns the number of bytes.
    pub const fn len(&self) -> usize {
        self.end - self.start
    }

    /// Returns the slices that are touched, in full or in part.
    pub const fn slices(&self) -> Slices {
        Slices::of_bytes(self.start, self.end)
    }

    /// Returns the offset of the first byte in the home file.
    pub const fn offset(&self) -> u64 {
        self.page.start() + self.start as u64
    }
}

/// Returns the number of slices that `len` bytes at `offset` touch, if they lie in one page.
#[inline]
#[expect(
    clippy::manual_div_ceil,
    reason = "that one has an answer, too, where the sum would not fit"
)]
pub const fn slices_of(offset: u64, len: usize) -> usize {
    (offset as usize % SLICE + len + SLICE - 1) / SLICE
}

/// Returns the part of their page that `len` bytes at `offset` cover. Returns `None` if `len` is 0,
/// or if they lie in several pages.
#[inline]
pub const fn in_page(offset: u64, len: usize) -> Option<PageSpan> {
    let start = offset as usize % PAGE;
    if len == 0 || len > PAGE - start {
        return None;
    }
    Some(PageSpan { page: PageIndex::of(offset), start, end: start + len })
}

/// Returns the pages that `range` touches, in order. `range` must not be inverted.
pub fn pages(range: Range<u64>) -> impl Iterator<Item = PageSpan> + Clone {
    page_indices(&range).map(move |page| of_page(&range, page))
}

/// Returns the first and the last page that `range` touches, only one if they coincide.
pub fn ends(range: Range<u64>) -> impl Iterator<Item = PageSpan> {
    let pages = page_indices(&range);
    let last = pages.end.checked_sub(1).filter(|last| *last > pages.start);
    let first = (!pages.is_empty()).then_some(pages.start);
    first.into_iter().chain(last).map(move |page| of_page(&range, page))
}

fn page_indices(range: &Range<u64>) -> Range<u64> {
    let first = range.start / PAGE as u64;
    if range.is_empty() { first..first } else { first..range.end.div_ceil(PAGE as u64) }
}

fn of_page(range: &Range<u64>, page: u64) -> PageSpan {
    let at = page * PAGE as u64;
    PageSpan {
        page: PageIndex(page),
        start: range.start.saturating_sub(at) as usize,
        end: (range.end - at).min(PAGE as u64) as usize,
    }
}

/// The pages `first..end` (0 to 64) of one region.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegionSpan {
    /// The region.
    pub region: RegionIndex,
    /// The indices of the pages in the region.
    pub pages: Range<usize>,
}

impl RegionSpan {
    /// Returns the bytes of `range` that lie in these pages. `range` is the range that produced
    /// this span.
    pub fn bytes_of(&self, range: &Range<u64>) -> Range<u64> {
        let start = self.region.page(self.pages.start).start();
        let end = start + (self.pages.len() * PAGE) as u64;
        start.max(range.start)..end.min(range.end)
    }
}

/// Returns `true` if `range` begins and ends at page boundaries.
#[inline]
pub fn is_whole_pages(range: &Range<u64>) -> bool {
    (range.start | range.end).is_multiple_of(PAGE as u64)
}

/// Returns the regions that `range` touches, in order, with the pages that it touches in each.
pub fn regions(range: Range<u64>) -> impl Iterator<Item = RegionSpan> + Clone {
    let per_region = PAGES_PER_REGION as u64;
    let first = range.start / PAGE as u64;
    let end = if range.is_empty() { first } else { range.end.div_ceil(PAGE as u64) };
    let regions = if first == end { 0..0 } else { first / per_region..end.div_ceil(per_region) };
    regions.map(move |region| {
        let at = region * per_region;
        RegionSpan {
            region: RegionIndex(region),
            pages: first.saturating_sub(at) as usize
                ..(end - at).min(per_region - u64::from(planted!(LastPageOfRegionMissed))) as usize,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_spans_cover_the_range_exactly() {
        for start in [0u64, 1, 63, 4095, 4096, 262_143, 262_144] {
            for len in [0u64, 1, 64, 4095, 4096, 4097, 262_145] {
                let mut at = start;
                for span in pages(start..start + len) {
                    assert_eq!(span.offset(), at);
                    assert!(span.len() > 0 && span.end <= PAGE);
                    at += span.len() as u64;
                }
                assert_eq!(at, start + len);
                let by_region: usize = regions(start..start + len).map(|r| r.pages.len()).sum();
                assert_eq!(by_region, pages(start..start + len).count());
                let mut at = start;
                for span in regions(start..start + len) {
                    let bytes = span.bytes_of(&(start..start + len));
                    assert_eq!((bytes.start, RegionIndex::of(bytes.end - 1)), (at, span.region));
                    at = bytes.end;
                    assert!(!span.pages.is_empty() && span.pages.end <= PAGES_PER_REGION);
                }
                assert_eq!(at, start + len);
            }
        }
        assert!(is_whole_pages(&(0..4096)) && is_whole_pages(&(8192..262_144)));
        for range in [0..4095, 1..4096, 64..4160, 4096..4097] {
            assert!(!is_whole_pages(&range));
        }
    }
}
