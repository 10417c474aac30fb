//! The undo record: old words, drain, new words, drain, the end of the record, drain.
//!
//! May import `io`, `plan`, `pair`, and what lies below them.

use crate::engine::Engine;
use crate::engine::commit::spilled_len;
use crate::engine::plan::WordUpdate;
use crate::format::entry::{OldBits, Spill, Undo, UndoBody};
use crate::format::layout;
use crate::mutant::{planted, unless};
use crate::pair::log::lanes::InUse;
use crate::pair::log::log_area::Extents;
use crate::pair::stats::Counter;
use crate::units::SLICE;

impl Engine {
    /// Makes the slots valid that the caller has just copied to, by several words. `spill` is space
    /// in the log area, for words that do not fit the lane.
    pub(in crate::engine) fn commit_undo(
        &self,
        lane: &InUse<'_>,
        moves: &[WordUpdate],
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
                lane.stats.bump(Counter::Overflow, 1);
                let spill = Spill::of(seed, sequence, extents.offset(), &bytes);
                let entry = Undo { sequence, body: UndoBody::SpilledUndo(spill) }.encode(seed);
                unless!(UndoNotWritten, self.store(lane, &self.reflection, at, &entry));
            }
        }
        // Orders the record, the data, and the invalidation of active records before the first
        // word. From here on a crash takes all words back.
        unless!(UndoNoDrainBeforeWords, self.drain(lane));
        if planted!(UndoEndsBeforeWords) {
            self.end_undo_record(lane);
        }
        self.store_updates(lane, moves);
        // Orders all words before the end of the record: once it has ended, no word is taken back.
        unless!(UndoNoDrainBeforeEnd, self.drain(lane));
        unless!(UndoNotEnded, self.end_undo_record(lane));
        // The commit point: the end is durable before a reader sees the new state and before the
        // caller hears of it.
        unless!(UndoNoDrainAfterEnd, self.drain(lane));
    }

    /// Invalidates the lane's undo record. The next drain makes that durable.
    pub(super) fn end_undo_record(&self, lane: &InUse<'_>) {
        self.reflection.store_word_through(layout::undo_entry(lane.index()), 0);
        lane.stats.bump(Counter::BytesWritten, SLICE as u64);
    }
}
