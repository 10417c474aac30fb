//! How does a flip commit with one drain?
//!
//! A flip takes two drains because its word must not become durable before its data. Here a log entry
//! says which word moves and what the data's checksum is, and all three that a crash may tear (data, entry,
//! and the words of earlier operations) go out before one drain. The word itself follows through the cache.
//! Until it is durable the entry vouches for it; the words of eight of them are flushed at once, with the drain
//! of the last. So a small write costs little more than a copy and a drain.
//!
//! This crate's own; near to it are checksummed log entries (RMMIO, section III) and MGSP's entries of
//! one cache line (III-C1). Which entries stand in the way is said in `live`, how recovery goes by them in
//! `recovery::lanes`; all of it is checked by `docs/model/vouched_flips.py`.

use super::Engine;
use super::commit::{Part, publish};
use super::in_page::is_whole_slices;
use super::lanes::{InUse, Lane};
use super::live::Target;
use super::plan::{WordMove, bits};
use super::stats::Counter;
use crate::bitmap::{Slices, Validity};
use crate::error::Result;
use crate::format::layout::{self, VOUCH};
use crate::format::vouch::{RingSeed, Vouch};
use crate::lock::Held;
use crate::mutant::{planted, unless};
use crate::platform::Persistence;
use crate::units::{PAGE, SLICE};

/// Most bytes of a vouched flip: to sum them up takes less than a drain, or no time at all. See
/// `docs/decisions/vouched-flips-up-to-a-page.md`.
pub(super) const VOUCHED_AT_MOST: usize = PAGE;
/// Most bytes of one whose slices have to be completed first: that costs a copy.
pub(super) const COMPLETED_AT_MOST: usize = 256;
/// Most bytes that are summed up before they are copied, while the lock waits for the drain of the operation before.
/// More are summed up on the way, where the processor can.
const SUMMED_BEFORE: usize = 512;
/// Slices that so many bytes may touch.
pub(super) const SLICES: usize = COMPLETED_AT_MOST / SLICE + 1;

/// An entry before it is known whether it may be stored.
pub(super) struct Draft {
    /// Where the page's slices are valid, as far as was known.
    pub valid: Validity,
    /// None: its data are summed up while they are copied.
    line: Option<[u64; VOUCH / 8]>,
}

impl Engine {
    /// Whether a flip of these slices is vouched for, if nothing stands in the way.
    #[inline]
    pub(super) fn may_vouch(&self, lane: &InUse<'_>, parts: &[Part<'_>], slices: Slices) -> bool {
        let is_small = match parts {
            [part] if is_whole_slices(part) => part.data.len() <= VOUCHED_AT_MOST,
            [part] => part.data.len() <= COMPLETED_AT_MOST,
            _ => slices.count() <= SLICES,
        };
        // Where drains cost nothing there is nothing to save.
        is_small
            && self.platform.persistence() != Persistence::Process
            && (lane.is_private() || planted!(VouchInSharedLane))
    }

    /// The entry that would be the lane's next, for a flip of the target's slices, which follow each other in
    /// `bytes`, from where `valid` says that they are.
    #[inline(always)]
    pub(super) fn draft(
        &self,
        lane: &InUse<'_>,
        target: &Target<'_>,
        valid: Validity,
        bytes: &[u8],
    ) -> Draft {
        // A few bytes are summed up here, while the lock waits for the drain of the operation before.
        let is_later = bytes.len() > SUMMED_BEFORE
            && self.platform.sums_on_the_way()
            && target.slices.are_one_run();
        let line = (!is_later).then(|| self.entry(lane, target, valid, |seed| seed.sum_of(bytes)));
        Draft { valid, line }
    }

    #[inline(always)]
    fn entry(
        &self,
        lane: &InUse<'_>,
        target: &Target<'_>,
        valid: Validity,
        sum: impl FnOnce(RingSeed) -> u32,
    ) -> [u64; VOUCH / 8] {
        let seed = self.ring_seeds[usize::from(lane.index().0)];
        let slices = target.slices.0;
        let (sides, sum) = (valid.targets().0 & slices, sum(seed));
        Vouch { sequence: lane.upcoming(), page: target.page, slices, sides, sum }.words(seed)
    }

    /// Commits the target's slices, which follow each other in `bytes`, by a flip that an entry vouches for. `held`
    /// is the page's lock, under which the draft's `valid` is true; everything is allocated; no entry of another
    /// lane stands in the way.
    #[inline(always)]
    pub(super) fn commit_by_vouched_flip(
        &self,
        lane: &InUse<'_>,
        target: &Target<'_>,
        change: &WordMove,
        held: Held<'_>,
        bytes: &[u8],
        draft: &Draft,
    ) {
        let slices = target.slices;
        debug_assert_eq!(target.region.validity(target.page.in_region()), draft.valid);
        let line = match draft.line {
            Some(line) => {
                self.copy_slices(lane, target, draft.valid.targets(), bytes);
                line
            }
            None => {
                let offset = target.start();
                let sum = self.copy_lines_summed(lane, offset, draft.valid.targets(), bytes);
                let sum = if planted!(VouchSumOfNothing) { 0 } else { sum };
                self.entry(lane, target, draft.valid, |_| sum)
            }
        };
        let sequence = lane.next_vouch();
        let place = if planted!(VouchOnePlace) { 0 } else { sequence.place() };
        self.reflection.store_line(layout::vouch(lane.index(), place), line);
        lane.stats.bump(Counter::BytesWritten, VOUCH as u64);
        // Long before the ring comes round: recovery knows by the lane's newest number that this was done. (Not before
        // the lock was taken: a locked instruction would wait for it.)
        let flushes = sequence.ends_batch();
        debug_assert!(lane.keeps_batches(sequence), "a batch was not flushed");
        if flushes {
            unless!(VouchedWordsNotFlushed, self.flush_unsettled(lane, sequence));
        }
        if planted!(VouchedWordBeforeDrain) {
            self.store_vouched_word(target, change);
        }
        // The commit point. Makes durable, in one wait:
        // - the slices and this entry, in any order: the checksum tells whether both are there;
        // - the words of earlier entries, if they were flushed: those may be stored over from now on.
        unless!(VouchNotDrained, self.drain(lane));
        if flushes {
            lane.set_settled(sequence);
        }
        // Only now: until the drain, the entry that was here before may still be found.
        unless!(VouchNotNoted, lane.note(sequence, target.page, slices.0));
        unless!(
            VouchLaneNotNoted,
            target.region.note_lane(target.page.in_region(), lane.index().0)
        );
        unless!(VouchNotClosed, held.close());
        unless!(VouchedWordNotStored, self.store_vouched_word(target, change));
        unless!(VouchNotPublished, publish(target.region, change));
        drop(held);
        lane.stats.bump(Counter::Vouched, 1);
    }

    /// Through the cache, so that whoever holds the page's lock next may flush it. Not past it: such a store
    /// could arrive after that of the next holder.
    #[inline(always)]
    fn store_vouched_word(&self, target: &Target<'_>, change: &WordMove) {
        self.reflection.store_word(layout::slice_word(target.page), change.old ^ change.mask);
    }

    /// Copies the bytes of the target's slices, which follow each other in `bytes`, to the slots `sides`.
    #[inline(always)]
    pub(super) fn copy_slices(
        &self,
        lane: &Lane,
        target: &Target<'_>,
        sides: Validity,
        bytes: &[u8],
    ) {
        let slices = target.slices;
        if slices.are_one_run() {
            self.copy_lines(lane, target.start(), sides, bytes);
        } else {
            self.copy_runs(lane, target, sides, bytes);
        }
    }

    /// The same, of slices that are not one run.
    #[cold]
    fn copy_runs(&self, lane: &Lane, target: &Target<'_>, sides: Validity, bytes: &[u8]) {
        let mut rest = bytes;
        for run in target.slices.runs() {
            let (now, later) = rest.split_at(run.len() * SLICE);
            let offset = target.page.start() + (run.start * SLICE) as u64;
            self.copy_lines(lane, offset, sides, now);
            rest = later;
        }
    }

    /// Commits `parts`, which lie in one page, by a vouched flip.
    #[inline(never)]
    pub(super) fn vouch_for_parts(
        &self,
        lane: &InUse<'_>,
        target: &Target<'_>,
        change: &WordMove,
        held: Held<'_>,
        parts: &[Part<'_>],
    ) -> Result<()> {
        let mut room = [0; SLICES * SLICE];
        let whole = match parts {
            [part] if is_whole_slices(part) => part.data,
            _ => self.complete(target, parts, &mut room)?,
        };
        let valid = target.region.validity(target.page.in_region());
        let draft = self.draft(lane, target, valid, whole);
        self.commit_by_vouched_flip(lane, target, change, held, whole, &draft);
        Ok(())
    }

    /// The target's slices one after the other in `room`: what the parts say, and around that what is valid.
    #[inline(never)]
    pub(super) fn complete<'r>(
        &self,
        target: &Target<'_>,
        parts: &[Part<'_>],
        room: &'r mut [u8],
    ) -> Result<&'r [u8]> {
        let valid = target.region.validity(target.page.in_region());
        let whole = &mut room[..target.slices.count() * SLICE];
        let mut parts = parts.iter().peekable();
        for (n, slice) in bits(target.slices.0).zip(whole.as_chunks_mut::<SLICE>().0) {
            let start = target.page.start() + (n * SLICE) as u64;
            let end = start + SLICE as u64;
            let is_covered =
                parts.peek().is_some_and(|part| part.offset <= start && end <= part.range().end);
            if !is_covered {
                self.load_slot(valid.side(n), slice, start)?;
            }
            while let Some(part) = parts.peek() {
                let (from, to) = (part.offset.max(start), part.range().end.min(end));
                if from < to {
                    slice[(from - start) as usize..(to - start) as usize].copy_from_slice(
                        &part.data[(from - part.offset) as usize..(to - part.offset) as usize],
                    );
                }
                if part.range().end > end {
                    break;
                }
                parts.next();
            }
        }
        Ok(whole)
    }
}
