//! Plans of operations: the pages, regions and words that an operation touches, and its locks.
//!
//! Pure decisions, and the taking of locks. Nothing here writes to a file.
//!
//! May import `pair`, and what lies below it.

use crate::bitmap::span::{self, PageSpan, RegionSpan};
use crate::bitmap::{Slices, bits};
use crate::engine::Engine;
use crate::error::Result;
use crate::format::entry::{UNDO_INLINE, WordId};
use crate::lock::{LockGuard, LockGuards, lock_page, lock_pages, lock_region};
use crate::mutant::planted;
use crate::pair::region::RegionState;
use crate::units::{PAGE, PAGES_PER_REGION, PageIndex, RegionIndex, SLICE};
use smallvec::SmallVec;
use std::ops::Range;

/// Returns `true` if the segment begins and ends between slices.
pub(super) fn is_whole_slices(segment: &Segment<'_>) -> bool {
    segment.offset.is_multiple_of(SLICE as u64) && segment.data.len().is_multiple_of(SLICE)
}

/// A segment of an operation: bytes that it writes at one offset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment<'a> {
    /// Offset in the home file.
    pub offset: u64,
    /// The bytes.
    pub data: &'a [u8],
}

impl Segment<'_> {
    /// Returns the range of offsets.
    pub fn range(&self) -> std::ops::Range<u64> {
        self.offset..self.end()
    }

    /// Returns the offset after the last byte.
    pub fn end(&self) -> u64 {
        self.offset + self.data.len() as u64
    }
}

/// Slices of one page that stages have filled in their free slots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub page: PageIndex,
    /// The slices with new bytes in their free slots: they only have to flip.
    pub slices: Slices,
    /// The slices of the page that these stages claim.
    pub own: Slices,
}

/// All that an operation changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Changes<'a> {
    /// The bytes that it writes, sorted, without overlaps.
    pub segments: &'a [Segment<'a>],
    /// The slices that stages have put in place, sorted by page. No segment touches them.
    pub placed: &'a [Placed],
}

impl<'a> Changes<'a> {
    /// Returns the changes of an operation without stages.
    pub fn of(segments: &'a [Segment<'a>]) -> Self {
        Changes { segments, placed: &[] }
    }

    /// Returns `true` if no byte changes.
    pub fn are_none(&self) -> bool {
        self.segments.is_empty() && self.placed.is_empty()
    }

    /// Returns the slices of a page that stages of this operation claim.
    pub fn own_of(&self, page: PageIndex) -> Slices {
        let found = self.placed.binary_search_by_key(&page, |placed| placed.page);
        found.map_or(Slices::NONE, |n| self.placed[n].own)
    }

    /// Returns the ranges of offsets that change: those of the segments, and then the others.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> + Clone {
        let placed = self.placed.iter().flat_map(|placed| {
            let byte = |slice: usize| placed.page.start() + (slice * SLICE) as u64;
            placed.slices.runs().map(move |run| byte(run.start)..byte(run.end))
        });
        self.segments.iter().map(Segment::range).chain(placed)
    }
}

/// Splits sorted segments at an offset into those before it and those after it.
pub(super) fn split<'a>(segments: &[Segment<'a>], at: u64) -> (Segments<'a>, Segments<'a>) {
    let (mut before, mut after) = (Segments::new(), Segments::new());
    for &Segment { offset, data } in segments {
        let (first, last) =
            data.split_at(at.saturating_sub(offset).min(data.len() as u64) as usize);
        if !first.is_empty() {
            before.push(Segment { offset, data: first });
        }
        if !last.is_empty() {
            after.push(Segment { offset: offset.max(at), data: last });
        }
    }
    (before, after)
}

/// Number of pages of one region from which the region's lock replaces theirs. Eight page locks
/// cost about the same as one region lock, which checks 64 page words.
pub(super) const PAGES_FOR_REGION_LOCK: u32 = 8;

// All words of one region fit a lane's record: one for each page, and the region word.
const _: () = assert!(PAGES_PER_REGION < UNDO_INLINE);

/// A part of an operation's segments; seldom more than a few.
pub(super) type Segments<'a> = SmallVec<[Segment<'a>; 8]>;

/// The plans of an operation, one for each region; seldom more than two.
pub(super) type Plans<'e> = SmallVec<[RegionPlan<'e>; 8]>;

/// The words that an operation changes; seldom more than a few.
pub(super) type WordUpdates = SmallVec<[WordUpdate; 8]>;

/// The part of an operation in one region.
#[derive(Clone, Copy, Debug)]
pub(super) struct RegionPlan<'e> {
    pub index: RegionIndex,
    pub state: &'e RegionState,
    /// Pages that are read or written: bit = place in the region.
    pub touched: u64,
    /// Pages of `touched` that are written from end to end.
    pub whole: u64,
}

impl<'e> RegionPlan<'e> {
    /// Returns a plan that touches the pages of `span` and writes none.
    pub fn touching(state: &'e RegionState, span: &RegionSpan) -> Self {
        let touched = Slices::range(span.pages.start, span.pages.end).0;
        RegionPlan { index: span.region, state, touched, whole: 0 }
    }

    /// Returns `true` if the region's lock is taken instead of its pages' locks.
    #[inline]
    pub fn is_exclusive(&self) -> bool {
        // Checking for one page, or for all, is faster than counting the pages.
        !self.is_one_page()
            && (self.touched == !0 || self.touched.count_ones() >= PAGES_FOR_REGION_LOCK)
    }

    /// Returns `true` if the operation touches exactly one page of the region.
    #[inline]
    fn is_one_page(&self) -> bool {
        self.touched.is_power_of_two()
    }

    /// Returns `true` if the whole pages may move by the region word although other writers share
    /// it. This applies only if the operation has no other plan: the region word is then its only
    /// word. Otherwise the slice words serve as well.
    pub fn may_update_by_shared_word(&self) -> bool {
        self.whole == self.touched && self.has_several_whole() && !self.is_exclusive()
    }

    /// Returns `true` if the whole pages move by the region word under the region's lock, so that
    /// no other writer shares it.
    #[inline]
    pub fn may_update_by_region(&self) -> bool {
        self.has_several_whole() && self.is_exclusive()
    }

    /// Returns `true` if more than one page is written from end to end.
    #[inline]
    fn has_several_whole(&self) -> bool {
        self.whole & self.whole.wrapping_sub(1) != 0
    }

    /// Returns the largest number of words that may move. All touched pages are written.
    pub fn words(&self) -> usize {
        if self.may_update_by_region() {
            1 + (self.touched & !self.whole).count_ones() as usize
        } else {
            self.touched.count_ones() as usize
        }
    }

    /// Returns the places of the touched pages, ascending.
    pub fn pages(&self) -> impl Iterator<Item = usize> + Clone + use<> {
        bits(self.touched)
    }
}

/// Takes the locks of all plans. The order in the file is ascending, so there is no deadlock. No
/// thread takes locks in a read section.
pub(super) fn lock_all<'e>(plans: &[RegionPlan<'e>]) -> LockGuards<'e> {
    debug_assert!(plans.is_sorted_by_key(|plan| plan.index));
    let mut held = LockGuards::with_capacity(plans.len());
    for plan in plans {
        if planted!(NothingLocked) {
            continue;
        }
        if plan.is_one_page() {
            let place = plan.touched.trailing_zeros() as usize;
            held.push(lock_page(&plan.state.lock, &plan.state.pages[place].lock));
        } else if plan.is_exclusive() {
            held.push(lock_whole_region(plan.state));
        } else {
            let pages = plan.pages().map(|n| &plan.state.pages[n].lock);
            lock_pages(&plan.state.lock, pages, &mut held);
        }
    }
    held
}

/// Locks the region exclusively.
#[inline]
pub(super) fn lock_whole_region(region: &RegionState) -> LockGuard<'_> {
    lock_region(&region.lock, region.pages.iter().map(|page| &page.lock))
}

/// Adds to `plans`, which is empty, the plans of an operation that writes `segments`. The segments
/// are sorted and do not overlap. `region` returns a region's state.
// Not returned by value. The plans were just stored in small pieces, and a move would load them in
// larger ones. Those loads wait until the stores have left the processor, behind the previous
// operation's drain.
pub(super) fn plan_writes<'e, E>(
    plans: &mut Plans<'e>,
    segments: &[Segment<'_>],
    region: impl Fn(RegionIndex) -> std::result::Result<&'e RegionState, E>,
) -> std::result::Result<(), E> {
    let mut touch = |index: RegionIndex, touched: u64, whole: u64| {
        match plans.last_mut() {
            Some(last) if last.index == index => {
                last.touched |= touched;
                last.whole |= whole;
            }
            _ => plans.push(RegionPlan { index, state: region(index)?, touched, whole }),
        }
        Ok(())
    };
    for segment in segments {
        // The most frequent kind of part in a transaction.
        if let Some(span) = span::in_page(segment.offset, segment.data.len()) {
            let page = 1 << span.page.in_region();
            touch(span.page.region(), page, if span.len() == PAGE { page } else { 0 })?;
            continue;
        }
        for span in span::regions(segment.range()) {
            let start = segment.offset.max(span.region.start());
            let end = segment.range().end.min(RegionIndex(span.region.0 + 1).start());
            let touched = Slices::range(span.pages.start, span.pages.end).0;
            touch(span.region, touched, whole_pages(start, end))?;
        }
    }
    Ok(())
}

/// Adds pages to `plans` that the operation only locks: those of `mask` in a region.
pub(super) fn add_locked<'e, E>(
    plans: &mut Plans<'e>,
    index: RegionIndex,
    mask: u64,
    region: impl FnOnce(RegionIndex) -> std::result::Result<&'e RegionState, E>,
) -> std::result::Result<(), E> {
    match plans.binary_search_by_key(&index, |plan| plan.index) {
        Ok(n) => plans[n].touched |= mask,
        Err(n) => {
            let state = region(index)?;
            plans.insert(n, RegionPlan { index, state, touched: mask, whole: 0 });
        }
    }
    Ok(())
}

/// Returns the pages that `start..end` covers from end to end; the range lies within one region.
fn whole_pages(start: u64, end: u64) -> u64 {
    let first = start.div_ceil(PAGE as u64);
    let in_part = if planted!(PartTakenForWhole) { PAGE as u64 - 1 } else { 0 };
    let last = (end + in_part) / PAGE as u64;
    if first >= last {
        return 0;
    }
    let place = PageIndex(first).in_region();
    Slices::range(place, place + (last - first) as usize).0
}

/// A word that a commit changes, and the bits that flip. No other thread changes the word
/// meanwhile: the lock of the page protects a slice word. A region word is protected by the
/// region's lock or by the word's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WordUpdate {
    pub word: WordId,
    pub mask: u64,
    /// The word before the change, from its cached copy.
    pub old: u64,
}

/// Adds to `moves`, which is empty, the words that flip to make all written slices valid. The pages
/// that are written whole flip by one region word if the region is held. They also do with
/// `has_shared_word`, which says that the operation has taken the word. Each other page flips by
/// its slice word.
// Not returned by value, for the reason given at `plan_writes`.
pub(super) fn word_updates(
    moves: &mut WordUpdates,
    plans: &[RegionPlan<'_>],
    segments: &[Segment<'_>],
    has_shared_word: bool,
) {
    for plan in plans {
        if has_shared_word || plan.may_update_by_region() {
            let old = plan.state.region_word();
            moves.push(WordUpdate { word: WordId::Region(plan.index), mask: plan.whole, old });
        } else {
            // The slice words serve as well, and no other page shares those.
            moves.extend(bits(plan.whole).map(|page| slice_update(plan, page, Slices::ALL)));
        }
    }
    // Partly covered pages, in the order of the parts; several parts may share a page.
    let mut plan = plans.iter();
    let mut current = plan.next();
    let mut move_slices = |span: PageSpan| {
        while current.is_some_and(|p| p.index < span.page.region()) {
            current = plan.next();
        }
        let Some(p) = current else { return };
        let place = span.page.in_region();
        if p.whole >> place & 1 == 1 {
            return;
        }
        match moves.last_mut() {
            Some(last) if last.word == WordId::Slice(span.page) => {
                last.mask |= if planted!(SecondPartNotMoved) { 0 } else { span.slices().0 };
            }
            _ => moves.push(slice_update(p, place, span.slices())),
        }
    };
    for segment in segments {
        match span::in_page(segment.offset, segment.data.len()) {
            Some(span) => move_slices(span),
            // All pages between the ends are whole.
            None => span::ends(segment.range()).for_each(&mut move_slices),
        }
    }
}

pub(super) fn slice_update(plan: &RegionPlan<'_>, place: usize, slices: Slices) -> WordUpdate {
    WordUpdate {
        word: WordId::Slice(plan.index.page(place)),
        mask: slices.0,
        old: plan.state.pages[place].slice_word(),
    }
}

impl Engine {
    /// Returns a plan that locks every page of `range`. The regions are loaded.
    pub(super) fn plan_range(&self, range: Range<u64>) -> Result<Plans<'_>> {
        span::regions(range)
            .map(|span| Ok(RegionPlan::touching(self.region(span.region)?, &span)))
            .collect()
    }

    /// Makes the stamps of all pages of `plans` even, as
    /// [`clear_stamp`](crate::pair::Pair::clear_stamp) does.
    #[inline]
    pub(super) fn clear_stamps(&self, plans: &[RegionPlan<'_>]) {
        plans.iter().for_each(|plan| self.clear_stamp(plan.index, plan.state, plan.touched));
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;
    use crate::units::REGION;

    fn plan_of(segments: &[(u64, usize)], check: impl Fn(&[RegionPlan<'_>], &[WordUpdate])) {
        let regions: Vec<RegionState> =
            (0..4).map(|_| RegionState::new(0, &[0; PAGES_PER_REGION], None)).collect();
        let data = vec![0; 4 * REGION];
        let segments: Vec<Segment<'_>> =
            segments.iter().map(|&(offset, len)| Segment { offset, data: &data[..len] }).collect();
        let mut plans = Plans::new();
        plan_writes(&mut plans, &segments, |r| Ok::<_, ()>(&regions[r.0 as usize]))
            .expect("infallible");
        let has_word = plans.len() == 1 && plans[0].may_update_by_shared_word();
        let mut moves = WordUpdates::new();
        word_updates(&mut moves, &plans, &segments, has_word);
        check(&plans, &moves);
    }

    #[test]
    fn one_aligned_block_in_a_region_is_one_region_word() {
        plan_of(&[(2 * PAGE as u64, 4 * PAGE)], |plans, moves| {
            assert_eq!(plans.len(), 1);
            assert_eq!(plans[0].whole, 0b111100);
            assert_eq!(moves.len(), 1);
            assert_eq!(moves[0].word, WordId::Region(RegionIndex(0)));
            assert_eq!(moves[0].mask, 0b111100);
        });
    }

    #[test]
    fn an_unaligned_block_is_a_slice_word_a_page() {
        plan_of(&[(100, 4 * PAGE)], |plans, moves| {
            assert_eq!(plans[0].touched, 0b11111);
            assert_eq!(plans[0].whole, 0b1110);
            let words: Vec<WordId> = moves.iter().map(|m| m.word).collect();
            // The whole pages come first.
            assert_eq!(words, [1, 2, 3, 0, 4].map(|n| WordId::Slice(PageIndex(n))));
            assert!(moves[..3].iter().all(|change| change.mask == !0));
            assert_eq!(moves[3].mask, !1);
            assert_eq!(moves[4].mask, 0b11);
        });
    }

    #[test]
    fn an_unaligned_block_in_a_region_that_is_held_is_a_region_word_and_two_slice_words() {
        plan_of(&[(100, 8 * PAGE)], |plans, moves| {
            assert!(plans[0].is_exclusive());
            let words: Vec<WordId> = moves.iter().map(|m| m.word).collect();
            let slices = [0, 8].map(|n| WordId::Slice(PageIndex(n)));
            assert_eq!(words, [WordId::Region(RegionIndex(0)), slices[0], slices[1]]);
            assert_eq!(moves[0].mask, 0b1111_1110);
        });
    }

    #[test]
    fn parts_that_share_a_page_share_its_word() {
        plan_of(&[(0, 8), (64, 8), (4095, 2)], |_, moves| {
            assert_eq!(moves.len(), 2);
            assert_eq!(moves[0].mask, 0b11 | 1 << 63);
            assert_eq!(moves[1].mask, 1);
        });
    }

    #[test]
    fn a_write_over_regions_has_one_word_each() {
        plan_of(&[(REGION as u64 - PAGE as u64, REGION + 2 * PAGE)], |plans, moves| {
            assert_eq!(plans.len(), 3);
            assert!(!plans[0].is_exclusive() && plans[1].is_exclusive());
            assert_eq!(moves.len(), 3);
            assert_eq!(moves[1].mask, !0);
        });
    }
}
