//! Loads the state of regions from the reflection file, on first use.
//!
//! Words are read through the file and not through the mapping, because they may lie in a hole.
//!
//! May import `pair::{region, page_table, log}`, `mmap`, `format`, `bitmap`, `error`,
//! `units`.

use crate::bitmap::span;
use crate::error::{Error, Result};
use crate::format::{layout, le_word};
use crate::mutant::{planted, unless};
use crate::pair::Pair;
use crate::pair::region::RegionState;
use crate::units::{PAGE, PAGES_PER_REGION, PageIndex, REGION, RegionIndex, SUPERCHUNK, WORD};
use std::ops::Range;

impl Pair {
    /// Returns the region's state, and loads it on first use. Called in a read section and after
    /// the range was checked. So `set_len` knows every region that was loaded before it went on.
    #[inline]
    pub(crate) fn region(&self, region: RegionIndex) -> Result<&RegionState> {
        match self.state.loaded(region) {
            Some(state) => Ok(state),
            None => self.load_region(region),
        }
    }

    /// Loads every region of `range` that has a nonzero word, skipping holes. Only in those may
    /// pages need deployment. The other regions still take no DRAM.
    pub(crate) fn load_nonzero_regions(&self, range: Range<u64>) -> Result<()> {
        if self.fresh {
            // Every word was zero when the file was opened, so a nonzero word belongs to a loaded
            // region.
            return Ok(());
        }
        let lane = self.lane();
        let _pinned = lane.pin();
        let mut start = range.start;
        while start < range.end.min(self.len()) {
            let next = (start / SUPERCHUNK as u64 + 1) * SUPERCHUNK as u64;
            // The words of one superchunk are contiguous.
            let last = next.min(range.end) - 1;
            let (from, to) = (RegionIndex::of(start), RegionIndex::of(last));
            let (words, end) = (layout::region_word(from), layout::region_word(to) + 8);
            unless!(
                RegionWordsNotVisited,
                self.load_by_words(words, end, |n| RegionIndex(from.0 + n))?
            );
            let (from, to) = (PageIndex::of(start), PageIndex::of(last));
            let (words, end) = (layout::slice_word(from), layout::slice_word(to) + 8);
            unless!(
                SliceWordsNotVisited,
                self.load_by_words(words, end, |n| PageIndex(from.0 + n).region())?
            );
            if self.keeps_points {
                // A slice that was deployed since the last durable point has zeroes in both of its
                // working words.
                let (words, end) = (layout::durable_word(from), layout::durable_word(to) + 8);
                self.load_by_words(words, end, |n| PageIndex(from.0 + n).region())?;
            }
            start = next;
        }
        Ok(())
    }

    /// Loads the region of every nonzero word of `at..end`. The caller is in a read section.
    fn load_by_words(
        &self,
        at: u64,
        end: u64,
        region_of: impl Fn(u64) -> RegionIndex,
    ) -> Result<()> {
        let path = self.reflection.path();
        let io = |at: u64| move |e| Error::io_at("read words", path, at, e);
        let mut from = at;
        while let Some(data) = self.reflection.next_data(from).map_err(io(from))?
            && data.max(from) < end
        {
            from = data.max(from) / 8 * 8;
            let piece_end = (from + 1).next_multiple_of(PAGE as u64).min(end);
            let mut bytes = vec![0; (piece_end - from) as usize];
            self.reflection.read_file(&mut bytes, from).map_err(io(from))?;
            for (n, word) in bytes.chunks_exact(8).enumerate() {
                if le_word(word) != 0 {
                    let region = region_of((from - at) / 8 + n as u64);
                    if region.start() < self.len() {
                        self.region(region)?;
                    }
                }
            }
            from = piece_end;
        }
        Ok(())
    }

    /// Loads every region of which a page has a sum other than that of zeroes.
    fn load_regions_with_sums(&self, range: Range<u64>) -> Result<()> {
        let lane = self.lane();
        let _pinned = lane.pin();
        let mut start = range.start;
        let end = range.end.min(self.len());
        while start < end {
            let next = (start / SUPERCHUNK as u64 + 1) * SUPERCHUNK as u64;
            let (from, to) = (PageIndex::of(start), PageIndex::of(next.min(end) - 1));
            let (sums, sums_end) =
                (layout::page_sums(from), layout::page_sums(to) + layout::PAGE_SUMS_LEN as u64);
            let words = (layout::PAGE_SUMS_LEN / WORD) as u64;
            self.load_by_words(sums, sums_end, |n| PageIndex(from.0 + n / words).region())?;
            start = next;
        }
        Ok(())
    }

    /// Loads every region that may hold a byte other than zero, or should by the sum of a page.
    pub(crate) fn load_regions_with_bytes(&self, range: Range<u64>) -> Result<()> {
        self.load_nonzero_regions(range.clone())?;
        if self.has_sums() {
            self.load_regions_with_sums(range.clone())?;
        }
        let lane = self.lane();
        let mut at = range.start;
        while at < range.end {
            let data = self
                .home
                .next_data(at)
                .map_err(|e| Error::io_at("look for data", self.home.path(), at, e))?;
            let Some(data) = data.filter(|data| *data < range.end) else { break };
            let region = RegionIndex::of(data);
            {
                let _pinned = lane.pin();
                self.region(region)?;
            }
            at = region.start() + REGION as u64;
        }
        Ok(())
    }

    /// Marks every page as changed that differs from the last durable point according to its words.
    pub fn note_all_changed(&self) -> Result<()> {
        if !self.keeps_points {
            return Ok(());
        }
        self.load_nonzero_regions(0..self.len())?;
        for (index, region) in self.state.loaded_regions() {
            let changed = (0..PAGES_PER_REGION)
                .filter(|n| !region.changed_slices(*n).is_empty())
                .fold(0, |mask, n| mask | 1 << n);
            if changed != 0 && region.note_changed(changed) {
                self.dirty.note_region(index);
            }
        }
        Ok(())
    }

    /// Loads the state of a region from its words.
    #[cold]
    pub(crate) fn load_region(&self, region: RegionIndex) -> Result<&RegionState> {
        let (mut region_word, mut slice_words) = (0, [0; PAGES_PER_REGION]);
        let mut durable = self.keeps_points.then_some([0; PAGES_PER_REGION]);
        if !self.fresh && !planted!(WordsNotLoaded) {
            // Through the file and not through the mapping: the words may lie in a hole.
            let path = self.reflection.path();
            let read = |words: &mut [u64], at: u64| {
                let mut bytes = [0; PAGES_PER_REGION * WORD];
                let bytes = &mut bytes[..words.len() * WORD];
                let read = self.reflection.read_file(bytes, at);
                read.map_err(|e| Error::io_at("read words", path, at, e))?;
                let read = bytes.chunks_exact(WORD).map(le_word);
                words.iter_mut().zip(read).for_each(|(word, read)| *word = read);
                Ok(())
            };
            read(std::slice::from_mut(&mut region_word), layout::region_word(region))?;
            read(&mut slice_words, layout::slice_word(region.page(0)))?;
            if let Some(durable) = &mut durable {
                read(durable, layout::durable_word(region.page(0)))?;
            }
        }
        let loaded = RegionState::new(region_word, &slice_words, durable.as_ref());
        let call = "take memory for the state of a region";
        let inserted = self.state.insert(region, loaded);
        inserted.map_err(|e| Error::io_at(call, self.home.path(), region.start(), e))
    }

    /// Loads every region of `range`. The caller is in a read section and has checked the range.
    pub(crate) fn load_range(&self, range: Range<u64>) -> Result<()> {
        span::regions(range).try_for_each(|span| self.region(span.region).map(|_| ()))
    }
}
