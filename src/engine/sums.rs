//! Keeps the sums of pages.
//!
//! The sum of a page is that of its valid slices, up to the file's length; a byte past that counts
//! as zero. So deployment changes no sum, and neither does a growth. An operation that changes
//! bytes takes four steps, under the locks of its pages:
//! 1. It verifies each page of which it leaves a byte, unless that was done in this session.
//! 2. It reckons the new sum: from the old sum, the old bytes, and the new bytes. A page that it
//!    covers as a whole takes the new bytes alone.
//! 3. It stores the new sum to a place that neither the present nor the last durable point counts
//!    by. That is durable, by a drain of the commit, before the operation can be. A logged flip has
//!    the sum in its record instead, and stores it after its commit, as it does with its word.
//! 4. After the commit that place counts, and the sum goes to each other place that the last
//!    durable point does not need.
//!
//! A crash leaves the state before the operation or the one after it, and the sum of either is in
//! one of the page's places. An opening cannot tell which one counts, so until a page is verified
//! both states pass, and that of the last durable point. No other state does.
//!
//! The model is `docs/model/page_sums.py`, the rules are in `docs/protocols/sums.md`. The idea of
//! sums is RMMIO's (IV-D); linear sums that no deployment changes are this crate's own.
//!
//! May import `keep`, `verify`, `io`, `plan`, `pair`, and what lies below them.

use crate::bitmap::Slices;
use crate::bitmap::span::{self, PageSpan};
use crate::engine::Engine;
use crate::engine::plan::{Changes, Placed, Segment};
use crate::error::{Error, Result};
use crate::format::layout;
use crate::mutant::{planted, unless};
use crate::page_sum;
use crate::pair::log::lane::Lane;
use crate::pair::log::records::PageSlices;
use crate::pair::region::RegionState;
use crate::units::{PAGE, PAGES_PER_REGION, PageIndex, SLICE};
use smallvec::SmallVec;

/// Most slices that are loaded to a small buffer.
const FEW: usize = 5;

/// The new sum of one page, which lies in `place`.
struct NewSum<'e> {
    page: PageIndex,
    region: &'e RegionState,
    place: u8,
    sum: u64,
}

/// The sums of the pages of an operation, as they are from its commit on.
pub(in crate::engine) struct NewSums<'e>(SmallVec<[NewSum<'e>; 1]>);

impl NewSums<'_> {
    /// Returns the sums of an operation on a file without sums.
    #[inline(always)]
    pub fn none() -> Self {
        NewSums(SmallVec::new())
    }

    /// Returns `true` if places are stored to, which have to be durable before the commit.
    pub fn are_some(&self) -> bool {
        !self.0.is_empty()
    }

    /// Returns the sum of an operation on one page as its flip record has it.
    #[inline(always)]
    pub fn in_record(&self, page: PageIndex) -> u64 {
        let sum = self.0.first().map_or(0, |new| page_sum::stored(page, new.sum));
        if planted!(SumNotInRecord) { 0 } else { sum }
    }
}

/// The change of one page by an operation.
#[derive(Clone, Copy)]
struct PageChange {
    page: PageIndex,
    /// Number of the bytes that it writes.
    written: usize,
    /// The sum of these bytes.
    new: u64,
    /// The sum of what was there before, reckoned where it matters.
    old: u64,
}

impl Engine {
    /// Verifies the pages that `changes` change in part, and reckons the new sums. `len` is the
    /// file's length after the operation, in bytes. The caller holds the locks of all pages, and
    /// has stored nothing. It [stores](Self::store_sums) the sums once nothing can fail any more.
    ///
    /// # Errors
    /// `Damaged`, `NoSpace`, or a failed read: nothing was changed.
    #[inline]
    pub(in crate::engine) fn reckon_sums<'e>(
        &'e self,
        lane: &Lane,
        changes: &Changes<'_>,
        len: u64,
    ) -> Result<NewSums<'e>> {
        if !self.has_sums() {
            return Ok(NewSums::none());
        }
        self.reckon(lane, changes, len)
    }

    #[inline(never)]
    fn reckon<'e>(&'e self, lane: &Lane, all: &Changes<'_>, len: u64) -> Result<NewSums<'e>> {
        let mut changes: SmallVec<[PageChange; 1]> = SmallVec::new();
        // Bytes that the new end cuts off count as zeroes from then on.
        let tail = (len < self.len()).then(|| {
            let page = PageIndex::of(len);
            let end = (self.len() - page.start()).min(PAGE as u64) as usize;
            PageSpan { page, start: (len - page.start()) as usize, end }
        });
        let tail = tail.filter(|tail| tail.start > 0 && !planted!(CutSumStays));
        // For the next durable point: the sum of the page changes, and perhaps no slice of it.
        unless!(CutNotNoted, tail.iter().for_each(|tail| self.note_changed(tail.page)));
        let mut change = |span: PageSpan, new: Option<u64>| -> Result<()> {
            let page = span.page;
            if changes.last().is_none_or(|last| last.page != page) {
                changes.push(PageChange { page, written: 0, new: 0, old: 0 });
            }
            let is_whole = span.len() == PAGE;
            let old = if is_whole { 0 } else { self.sum_of_span(&span)? };
            let Some(change) = changes.last_mut() else { return Ok(()) };
            change.old ^= old;
            if let Some(new) = new {
                change.written += span.len();
                change.new ^= new;
            }
            Ok(())
        };
        let mut placed = all.placed.iter().peekable();
        for segment in all.segments {
            for span in span::pages(segment.range()) {
                // In the order of the pages, since several changes of a page are one.
                while let Some(placed) = placed.next_if(|placed| placed.page < span.page) {
                    self.sums_of_placed(placed)?.try_for_each(|(span, sum)| change(span, sum))?;
                }
                let from = (span.offset() - segment.offset) as usize;
                change(span, Some(sum_at(span.start, &segment.data[from..from + span.len()])))?;
            }
        }
        for placed in placed {
            self.sums_of_placed(placed)?.try_for_each(|(span, sum)| change(span, sum))?;
        }
        tail.map_or(Ok(()), |tail| change(tail, None))?;
        let mut sums = SmallVec::new();
        for change in changes {
            let (page, region) = (change.page, self.region(change.page.region())?);
            let n = page.in_region();
            let readable = len.saturating_sub(page.start()).min(PAGE as u64) as usize;
            // The places are allocated with the slice words.
            self.ensure_slice_word(page)?;
            let is_replaced = change.written == readable;
            let is_whole = self.is_whole_at_first_touch(lane, page, region)?;
            // A snapshot may read the old bytes from their slots.
            if !is_whole && (!is_replaced || self.is_owed(page, region)) {
                return Err(self.damaged(lane, page));
            }
            let old = if is_replaced { 0 } else { region.sums().sum(n) ^ change.old };
            let (place, sum) = (region.sums().free_place(n), old ^ change.new);
            sums.push(NewSum { page, region, place, sum });
        }
        Ok(NewSums(sums))
    }

    /// Stores the new sums of an operation that is no logged flip, and invalidates the flip records
    /// of its pages, which have older sums. A drain has to follow before the operation can be
    /// durable. The caller holds the locks of all pages.
    #[inline(always)]
    pub(in crate::engine) fn store_sums(&self, lane: &Lane, sums: &NewSums<'_>) {
        for NewSum { page, region, place, sum } in &sums.0 {
            if region.lanes(page.in_region()) != 0 && !planted!(OlderSumsInRecords) {
                let target = PageSlices { page: *page, region, slices: Slices::ALL };
                self.invalidate_records(lane, std::iter::once(target));
            }
            unless!(SumNotStored, self.store_sum(*page, *place, *sum));
        }
    }

    /// Stores the new sum of a logged flip after its commit. Its record covers the sum.
    #[inline(always)]
    pub(in crate::engine) fn store_covered_sums(&self, sums: &NewSums<'_>) {
        for NewSum { page, sum, .. } in &sums.0 {
            unless!(CoveredSumNotStored, self.store_covered_sum(*page, *sum));
        }
    }

    /// Reckons the new sum of a page that `segment` changes. The page was verified, the segment
    /// lies in it and in the file, and the page's words are allocated.
    ///
    /// # Errors
    /// A failed read of the old bytes: nothing was changed.
    #[inline]
    pub(in crate::engine) fn next_sums<'e>(
        &self,
        target: &PageSlices<'e>,
        segment: &Segment<'_>,
    ) -> Result<NewSums<'e>> {
        let PageSlices { page, region, .. } = *target;
        let (n, start) = (page.in_region(), segment.offset as usize % PAGE);
        let span = PageSpan { page, start, end: start + segment.data.len() };
        let rest = match span.len() {
            PAGE => 0,
            _ => region.sums().sum(n) ^ self.sum_of_span(&span)?,
        };
        let (place, sum) = (region.sums().free_place(n), rest ^ sum_at(start, segment.data));
        Ok(NewSums(SmallVec::from_buf([NewSum { page, region, place, sum }])))
    }

    /// Prefetches what a write to these slices of a page needs for its sum.
    #[inline]
    pub(in crate::engine) fn prefetch_summed(&self, target: &PageSlices<'_>) {
        if !self.has_sums() {
            return;
        }
        let PageSlices { page, region, slices } = *target;
        self.reflection.prefetch_store(layout::page_sums(page));
        if slices != Slices::ALL {
            let first = slices.0.trailing_zeros() as usize;
            let side = region.validity(page.in_region()).side(first);
            let (file, at) = self.slot(side, page.start() + (first * SLICE) as u64);
            file.prefetch_read(at);
        }
    }

    /// Says that the new sums count. The operation is committed, durably where its medium keeps
    /// stores, and the caller still holds its locks.
    #[inline(always)]
    pub(in crate::engine) fn publish_sums(&self, sums: &NewSums<'_>) {
        self.publish_covered_sums(sums);
        for NewSum { page, region, .. } in &sums.0 {
            unless!(StaleSumsLeft, self.replace_stale_sums(*page, region.sums()));
        }
    }

    /// Says that the new sums of a logged flip count, which are in all places.
    #[inline(always)]
    pub(in crate::engine) fn publish_covered_sums(&self, sums: &NewSums<'_>) {
        for NewSum { page, region, place, sum } in &sums.0 {
            let (n, present) = (page.in_region(), (*place, *sum));
            let is_durable = !self.keeps_points || planted!(DurablePlaceTaken);
            unless!(SumNotPublished, region.sums().set(n, present, is_durable));
        }
    }

    /// Returns the sum of the valid bytes of a span. The caller holds the page's lock.
    fn sum_of_span(&self, span: &PageSpan) -> Result<u64> {
        let slices = span.slices();
        match slices.count() {
            0..=FEW => self.sum_of_slices(span, slices, &mut [0; FEW * SLICE]),
            _ => self.sum_of_slices(span, slices, &mut [0; PAGE]),
        }
    }

    fn sum_of_slices(&self, span: &PageSpan, slices: Slices, room: &mut [u8]) -> Result<u64> {
        let region = self.region(span.page.region())?;
        let valid = region.validity(span.page.in_region());
        let bytes = self.load_slices(span.page, valid, slices, room)?;
        let from = span.start % SLICE;
        Ok(sum_at(span.start, &bytes[from..from + span.len()]))
    }

    /// Returns the spans of slices that stages have filled, with the sums of their new bytes.
    fn sums_of_placed(
        &self,
        placed: &Placed,
    ) -> Result<impl Iterator<Item = (PageSpan, Option<u64>)> + use<>> {
        let page = placed.page;
        let free = self.region(page.region())?.validity(page.in_region()).free();
        let free = if planted!(StagedSumOfOldBytes) { free.free() } else { free };
        let mut room = [0; PAGE];
        let mut rest = &*self.load_slices(page, free, placed.slices, &mut room)?;
        let mut sums: SmallVec<[_; 2]> = SmallVec::new();
        for run in placed.slices.runs() {
            let (bytes, later) = rest.split_at(run.len() * SLICE);
            let span = PageSpan { page, start: run.start * SLICE, end: run.end * SLICE };
            sums.push((span, Some(sum_at(span.start, bytes))));
            rest = later;
        }
        Ok(sums.into_iter())
    }

    /// Returns `true` if a live snapshot reads a slice of the page from its slot. The caller holds
    /// the page's lock.
    fn is_owed(&self, page: PageIndex, region: &RegionState) -> bool {
        let (index, n) = (page.region(), page.in_region());
        self.epochs.is_on() && !self.owed_slices((index, region), n, Slices::ALL).is_empty()
    }

    /// Takes what these pages hold for whole, as far as the file reaches. A rollback was cut off in
    /// the middle of their bytes, and is about to be finished. No other thread has the file.
    ///
    /// The sums go to the places, because a keep reads the place of the last durable point. No
    /// crash needs them before the rollback is over: the next opening takes the pages again.
    pub(in crate::engine) fn accept_pages(&self, pages: &[PageIndex]) -> Result<()> {
        let len = self.len();
        for page in pages.iter().filter(|page| self.has_sums() && page.start() < len) {
            let region = self.region(page.region())?;
            let sum = self.sum_of_page(*page, region, len)?;
            self.ensure_slice_word(*page)?;
            unless!(AcceptedNotStored, self.store_covered_sum(*page, sum));
            region.sums().set(page.in_region(), (0, sum), true);
        }
        Ok(())
    }

    /// Returns `true` if the sum of page `n` has changed since the last durable point. The caller
    /// holds the page's lock.
    pub(in crate::engine) fn sum_has_moved(&self, region: &RegionState, n: usize) -> bool {
        self.has_sums() && region.sums().has_moved(n)
    }

    /// Returns the sums of pages as a record of the journal has them: none if the file has no sums.
    /// The caller holds the locks of the pages.
    pub(in crate::engine) fn sums_for_record<'e>(
        &self,
        lane: &Lane,
        pages: impl Iterator<Item = (PageIndex, &'e RegionState)>,
    ) -> Result<Vec<u64>> {
        let sum = |(page, region): (PageIndex, &RegionState)| {
            // A page that an operation has changed is verified. If the words of another one were
            // damaged, it keeps a sum that its bytes do not have.
            match self.verify_under_lock(lane, page, region) {
                Ok(()) => Ok(page_sum::stored(page, region.sums().sum(page.in_region()))),
                Err(Error::Damaged { .. }) => Ok(self.read_sums(page, 1)?[0].any()),
                Err(error) => Err(error),
            }
        };
        pages.filter(|_| self.has_sums()).map(sum).collect()
    }

    /// Says that the present sum of a page is that of the last durable point. The caller holds the
    /// page's lock.
    pub(in crate::engine) fn publish_durable_sum(&self, page: PageIndex, region: &RegionState) {
        if !self.has_sums() {
            return;
        }
        let (sums, n) = (region.sums(), page.in_region());
        let has_moved = sums.has_moved(n);
        unless!(DurableSumNotPublished, sums.set_durable(n));
        if has_moved {
            unless!(StaleSumsLeftByPoint, self.replace_stale_sums(page, sums));
        }
    }

    /// Says that the pages of a region from page `first` on hold nothing but zeroes. The caller
    /// holds the region's lock. Their places are zeroed with the rest of what lies past the length.
    pub(in crate::engine) fn clear_sums_from(&self, region: &RegionState, first: usize) {
        if self.has_sums() {
            (first..PAGES_PER_REGION).for_each(|n| region.sums().set(n, (0, 0), true));
        }
    }
}

/// Returns the sum of bytes that lie in their page from byte `start` on.
fn sum_at(start: usize, bytes: &[u8]) -> u64 {
    let head = bytes.len().min(start.wrapping_neg() % SLICE);
    let (head, rest) = bytes.split_at(head);
    let (whole, tail) = rest.as_chunks::<SLICE>();
    let in_slice = |at: usize, part: &[u8]| {
        let mut slice = [0; SLICE];
        slice[at % SLICE..][..part.len()].copy_from_slice(part);
        page_sum::of_slices(at / SLICE, &[slice])
    };
    let mut sum = 0;
    if !head.is_empty() {
        sum ^= in_slice(start, head);
    }
    let start = start + head.len();
    if !whole.is_empty() {
        sum ^= page_sum::of_slices(start / SLICE, whole);
    }
    if !tail.is_empty() {
        sum ^= in_slice(start + whole.len() * SLICE, tail);
    }
    sum
}
