//! The commit protocols, step by step.
//!
//! | way | for | drains | the commit point |
//! |---|---|---|---|
//! | logged flip (`vouched`) | a small write, or whole slices, in one page | 1 | a flip record |
//! | flip | slices of one page, or whole pages of one region | 2 | one word |
//! | undo record | any set of ranges | 3 | the end of the record |
//! | redo record | pages that a view pins | 3 | the record |
//!
//! `in_place` and `one_store` have protocols of their own.
//!
//! The caller of each function holds the locks and has allocated everything that is stored to. It
//! publishes afterwards, except after a redo record. A commit cannot fail. In the copying before it
//! only one step can: reading a slice to complete it. Every drain says what it orders.
//!
//! These steps also run on media where only a process crash counts; drains and flushes cost nothing
//! there. Ideas: Acumen IV-C and IV-D (flip), MGSP III-C1 (undo log of words, short records in
//! one cache line). The logged flip and the XOR are this crate's own.

use super::Engine;
use super::lanes::{InUse, Lane};
use super::live::Target;
use super::log_area::Extents;
use super::plan::WordMove;
use super::stats::Counter;
use crate::bitmap::{Slices, Validity};
use crate::format::entry::{OldBits, Spill, SpilledPage, UNDO_INLINE, Undo, UndoBody, WordId};
use crate::format::layout;
use crate::mutant::{planted, unless};
use crate::platform::Copying;
use crate::primitive::{Ordering, fence};
use crate::units::{PageIndex, SLICE, WORD};

impl Engine {
    // ---- flip: two drains ------------------------------------------------------------------

    /// Makes the slots valid that the caller has just copied to, by storing one word.
    #[inline(always)]
    pub(super) fn commit_by_flip(&self, lane: &Lane, change: &WordMove) {
        // Orders the data before the word that makes its slots valid. Also orders before it the
        // invalidation of active records that name those slots.
        unless!(FlipNoDrainBeforeWord, self.drain(lane));
        self.store_moved_words(lane, std::slice::from_ref(change));
        // The commit point: the word is durable before a reader sees the new state and before the
        // caller hears of it.
        unless!(FlipNoDrainAfterWord, self.drain(lane));
        lane.stats.bump(Counter::Flip, 1);
    }

    // ---- undo record: three drains ---------------------------------------------------------

    /// Makes the slots valid that the caller has just copied to, by several words. `spill` is space
    /// in the log area, for words that do not fit the lane.
    pub(super) fn commit_by_undo_entry(
        &self,
        lane: &InUse<'_>,
        moves: &[WordMove],
        spill: Option<&Extents<'_>>,
    ) {
        let sequence = lane.next_undo();
        let seed = self.seed.undo(lane.index());
        let at = layout::undo_entry(lane.index());
        let records =
            moves.iter().map(|m| OldBits { word: m.word, mask: m.mask, old: m.old & m.mask });
        match spill {
            None => {
                let entry = Undo::encode_words(sequence, seed, records);
                unless!(UndoNotWritten, self.store_lines(lane, at, entry.lines()));
            }
            Some(extents) => {
                let mut bytes = Vec::with_capacity(spilled_len(moves) as usize);
                records.for_each(|record| record.encode_to(&mut bytes));
                let spilled_at = layout::LOG_AREA + extents.offset();
                unless!(
                    UndoSpillNotWritten,
                    self.store(lane, &self.reflection, spilled_at, &bytes)
                );
                lane.stats.bump(Counter::Spilled, 1);
                let spill = Spill::of(seed, sequence, extents.offset(), &bytes);
                let entry = Undo { sequence, body: UndoBody::SpilledUndo(spill) }.encode(seed);
                unless!(UndoNotWritten, self.store(lane, &self.reflection, at, &entry));
            }
        }
        // Orders the record, the data, and the invalidation of active records before the first
        // word. From here on a crash takes all words back.
        unless!(UndoNoDrainBeforeWords, self.drain(lane));
        if planted!(UndoEndsBeforeWords) {
            self.end_undo_entry(lane);
        }
        self.store_moved_words(lane, moves);
        // Orders all words before the end of the record: once it has ended, no word is taken back.
        unless!(UndoNoDrainBeforeEnd, self.drain(lane));
        unless!(UndoNotEnded, self.end_undo_entry(lane));
        // The commit point: the end is durable before a reader sees the new state and before the
        // caller hears of it.
        unless!(UndoNoDrainAfterEnd, self.drain(lane));
        lane.stats.bump(Counter::Undo, 1);
    }

    fn end_undo_entry(&self, lane: &InUse<'_>) {
        self.reflection.store_word_through(layout::undo_entry(lane.index()), 0);
        lane.stats.bump(Counter::BytesWritten, SLICE as u64);
    }

    #[inline(always)]
    pub(super) fn store_moved_words(&self, lane: &Lane, moves: &[WordMove]) {
        for change in moves {
            let at = match change.word {
                WordId::Slice(page) => layout::slice_word(page),
                WordId::Region(region) => layout::region_word(region),
            };
            // No other thread stores to the word, so this is a plain store, past the cache.
            self.reflection.store_word_through(at, change.old ^ change.mask);
        }
        lane.stats.bump(Counter::BytesWritten, (moves.len() * SLICE) as u64);
    }

    // ---- redo record: three drains, and one more where records were invalidated ------------

    /// Commits new slices of pages that a view pins, by a redo record. The slices go to the log,
    /// and from there into their reflection slots, whether those are valid or not. `close` makes
    /// readers wait. This function publishes by itself.
    pub(super) fn commit_by_logged_data(
        &self,
        lane: &InUse<'_>,
        bytes: &[u8],
        pages: &[SpilledPage],
        targets: &[Target<'_>],
        extents: &Extents<'_>,
        close: impl FnOnce(),
    ) {
        // A flip stores over free slots only; this stores over slots that may be valid. So records
        // that name them must be invalidated for good before, and the words that those cover must
        // be durable.
        let has_cleared =
            !planted!(LoggedNoClear) && self.clear_live_entries(lane, targets.iter().copied());
        if has_cleared {
            // Orders the invalidated headers before the record. Otherwise recovery may store the
            // redo data over a slot that the lane's newest record names, and then lose power. If
            // the medium still has that record as active, the next recovery finds its data
            // incomplete. It would then use older records about the same page.
            unless!(LoggedNoDrainAfterClear, self.drain(lane));
        }
        let sequence = lane.next_undo();
        let seed = self.seed.undo(lane.index());
        self.store(lane, &self.reflection, layout::LOG_AREA + extents.offset(), bytes);
        let spill = Spill::of(seed, sequence, extents.offset(), bytes);
        let entry = Undo { sequence, body: UndoBody::SpilledRedo(spill) }.encode(seed);
        self.store(lane, &self.reflection, layout::undo_entry(lane.index()), &entry);
        // The commit point: from here on recovery stores the slices, and no older record after
        // them.
        unless!(LoggedNoDrainAfterEntry, self.drain(lane));
        unless!(LoggedNotClosed, close());
        // Orders the closing, plain stores, before the slices, which may be streamed. A reader that
        // has begun to read these slots must not find new bytes in them under open words.
        fence(Ordering::SeqCst);
        for (logged, target) in pages.iter().zip(targets) {
            let mut slices = logged.slices.as_slice();
            for run in Slices(logged.mask).runs() {
                let (now, rest) = slices.split_at(run.len() * SLICE);
                let offset = logged.page.start() + (run.start * SLICE) as u64;
                self.store(lane, &self.reflection, layout::reflection(offset), now);
                slices = rest;
            }
            let place = target.page.in_region();
            let valid = Validity(target.region.validity(place).0 | logged.mask);
            let word = valid.slice_word(target.region.region_bit(place));
            self.reflection.store_word_through(layout::slice_word(logged.page), word);
            // The cached copy changes here too: the words are closed, and the operation is
            // committed.
            target.region.set_slice_word(place, word);
            lane.stats.bump(Counter::BytesWritten, SLICE as u64);
        }
        // Orders slices and words before the end of the record: once it has ended, recovery does
        // not store them again.
        unless!(LoggedNoDrainBeforeEnd, self.drain(lane));
        unless!(LoggedNotEnded, self.end_undo_entry(lane));
        // Orders the end before the locks open: a later operation may store to these slots, and a
        // replay of this record would then undo it.
        unless!(LoggedNoDrainAfterEnd, self.drain(lane));
        lane.stats.bump(Counter::Pinned, 1);
    }

    /// Stores lines to the reflection file. The next drain makes them durable.
    #[inline]
    fn store_lines(&self, lane: &Lane, at: u64, lines: &[[u64; SLICE / WORD]]) {
        for (at, line) in (at..).step_by(SLICE).zip(lines) {
            self.reflection.store_line(at, *line);
        }
        lane.stats.bump(Counter::BytesWritten, (lines.len() * SLICE) as u64);
    }

    /// Stores bytes to `file`. The next drain makes them durable.
    #[inline]
    pub(super) fn store(
        &self,
        lane: &Lane,
        file: &crate::store::MappedFile,
        at: u64,
        bytes: &[u8],
    ) {
        file.copy_in(at, bytes, Copying::BySize);
        let lines = (at % SLICE as u64 + bytes.len() as u64).div_ceil(SLICE as u64);
        lane.stats.bump(Counter::BytesWritten, lines * SLICE as u64);
    }
}

/// Returns the bytes that the words take in the log area.
pub(super) fn spilled_len(moves: &[WordMove]) -> u64 {
    (moves.len() * crate::format::entry::RECORD) as u64
}

/// Returns `true` if the words do not fit the lane's record and overflow into the log area.
pub(super) fn must_spill(moves: &[WordMove]) -> bool {
    moves.len() > UNDO_INLINE
}

/// Returns the pages of which the moves make slices valid, with those slices.
pub(super) fn moved_pages(moves: &[WordMove]) -> impl Iterator<Item = (PageIndex, Slices)> + Clone {
    moves.iter().flat_map(|change| {
        let (slices, pages, region) = match change.word {
            WordId::Slice(page) => (Slices(change.mask), 1 << page.in_region(), page.region()),
            WordId::Region(region) => (Slices::ALL, change.mask, region),
        };
        super::plan::bits(pages).map(move |n| (region.page(n), slices))
    })
}
