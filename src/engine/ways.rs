//! The commit protocols, step by step.
//!
//! | way | for | drains | the commit point |
//! |---|---|---|---|
//! | vouched flip | a small write, or one of whole slices, in one page | 1 | an entry that vouches for the word: `vouched` |
//! | flip | slices of one page, or whole pages of one region | 2 | one word |
//! | undo entry | any set of ranges | 3 | the entry's end |
//! | logged data | pages that a view pins | 3 | the entry |
//!
//! (`in_place` and `one_store` have their own.)
//!
//! Each function here assumes that the caller holds the locks, has allocated everything that is
//! stored to, and (but for logged data) publishes afterwards. What commits cannot fail; of the
//! copying before it, only the reading of a slice that is to be completed can. Every drain says what
//! it orders.
//! On media where only the death of the process counts the same steps run, and drains and flushes
//! cost nothing. Ideas: Acumen IV-C and IV-D (flip), MGSP III-C1 (undo log of words, one cache line
//! for short entries); the vouched flip and the XOR are this crate's own.

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
        // Orders the data, and the clearing of live entries that name its slots, before the word
        // that makes the slots valid.
        unless!(FlipNoDrainBeforeWord, self.drain(lane));
        self.store_moved_words(lane, std::slice::from_ref(change));
        // The commit point: the word is durable before any reader sees the new state and before
        // the caller hears of it.
        unless!(FlipNoDrainAfterWord, self.drain(lane));
        lane.stats.bump(Counter::Flip, 1);
    }

    // ---- undo entry: three drains ----------------------------------------------------------

    /// Makes the slots valid that the caller has just copied to, by several words. `spill` is room
    /// in the log area where the words do not fit the lane.
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
        // Orders the entry, the data, and the clearing of live entries that name its slots,
        // before the first word: from here on a crash takes all words back.
        unless!(UndoNoDrainBeforeWords, self.drain(lane));
        if planted!(UndoEndsBeforeWords) {
            self.end_undo_entry(lane);
        }
        self.store_moved_words(lane, moves);
        // Orders all words before the end of the entry: once it ends, none is taken back.
        unless!(UndoNoDrainBeforeEnd, self.drain(lane));
        unless!(UndoNotEnded, self.end_undo_entry(lane));
        // The commit point: the end is durable before any reader sees the new state and before
        // the caller hears of it.
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
            // Nobody else stores to the word: a plain store, past the cache.
            self.reflection.store_word_through(at, change.old ^ change.mask);
        }
        lane.stats.bump(Counter::BytesWritten, (moves.len() * SLICE) as u64);
    }

    // ---- logged data: three drains, and one where entries were made void -----------------------

    /// Commits new slices of pages whose home slots a view pins: the slices go to the log and from
    /// there into their reflection slots, whether those are valid or not. `close` makes readers
    /// wait. Publishes by itself.
    pub(super) fn commit_by_logged_data(
        &self,
        lane: &InUse<'_>,
        bytes: &[u8],
        pages: &[SpilledPage],
        targets: &[Target<'_>],
        extents: &Extents<'_>,
        close: impl FnOnce(),
    ) {
        // Unlike a flip this stores over slots that may be valid: entries that name them must be
        // gone for good before, and what they vouch for durable.
        let has_cleared =
            !planted!(LoggedNoClear) && self.clear_live_entries(lane, targets.iter().copied());
        if has_cleared {
            // Orders the void headers before the entry. Else the power may go in a recovery that has stored the
            // logged data over a slot that the lane's newest entry names, which is not void there: the next
            // recovery would find that it had not arrived, and go by older ones about the same page.
            unless!(LoggedNoDrainAfterClear, self.drain(lane));
        }
        let sequence = lane.next_undo();
        let seed = self.seed.undo(lane.index());
        self.store(lane, &self.reflection, layout::LOG_AREA + extents.offset(), bytes);
        let spill = Spill::of(seed, sequence, extents.offset(), bytes);
        let entry = Undo { sequence, body: UndoBody::SpilledRedo(spill) }.encode(seed);
        self.store(lane, &self.reflection, layout::undo_entry(lane.index()), &entry);
        // The commit point: from here on recovery stores the slices, and no older entry after them.
        unless!(LoggedNoDrainAfterEntry, self.drain(lane));
        unless!(LoggedNotClosed, close());
        // Orders the closing, plain stores, before the slices, which may be streamed: who has begun to read the
        // slots that they go over is not to find new bytes in them under words that are open.
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
            // The mirror as well: the words are closed, and the operation is committed.
            target.region.set_slice_word(place, word);
            lane.stats.bump(Counter::BytesWritten, SLICE as u64);
        }
        // Orders slices and words before the end of the entry: nothing replays them after it.
        unless!(LoggedNoDrainBeforeEnd, self.drain(lane));
        unless!(LoggedNotEnded, self.end_undo_entry(lane));
        // Orders the end before the locks open: a later operation may store to the same slots,
        // and a replay of this entry would then undo it.
        unless!(LoggedNoDrainAfterEnd, self.drain(lane));
        lane.stats.bump(Counter::Pinned, 1);
    }

    /// Stores lines of the reflection file that the next drain makes durable.
    #[inline]
    fn store_lines(&self, lane: &Lane, at: u64, lines: &[[u64; SLICE / WORD]]) {
        for (at, line) in (at..).step_by(SLICE).zip(lines) {
            self.reflection.store_line(at, *line);
        }
        lane.stats.bump(Counter::BytesWritten, (lines.len() * SLICE) as u64);
    }

    /// Stores bytes that the next drain makes durable.
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

/// Bytes that the words take in the log area.
pub(super) fn spilled_len(moves: &[WordMove]) -> u64 {
    (moves.len() * crate::format::entry::RECORD) as u64
}

/// Whether the words do not fit a lane.
pub(super) fn must_spill(moves: &[WordMove]) -> bool {
    moves.len() > UNDO_INLINE
}

/// The pages that the moves make valid, and which slices of each.
pub(super) fn moved_pages(moves: &[WordMove]) -> impl Iterator<Item = (PageIndex, Slices)> + Clone {
    moves.iter().flat_map(|change| {
        let (slices, pages, region) = match change.word {
            WordId::Slice(page) => (Slices(change.mask), 1 << page.in_region(), page.region()),
            WordId::Region(region) => (Slices::ALL, change.mask, region),
        };
        super::plan::bits(pages).map(move |n| (region.page(n), slices))
    })
}
