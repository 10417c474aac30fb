//! The logged flip: a flip that commits with one drain.
//!
//! A flip takes two drains because its word must not become durable before its data. A logged flip
//! stores a log record that says which word moves, and holds the checksum of the data. A crash may
//! tear three things: the data, the record, and the words of earlier operations. All three go out
//! before one drain. The word itself follows through the cache, and the record covers it until it
//! is durable. The words of eight records are flushed together, with the drain of the last. So a
//! small write costs little more than a copy and a drain. The sum of the page goes the way of the
//! word, if the file has page sums: the record holds it, and covers its place.
//!
//! The protocol is this crate's own. Related work: checksummed log entries (RMMIO, section III),
//! and MGSP's entries of one cache line (III-C1). `log::records` says which records conflict with a
//! write, and `recovery::lanes` how recovery uses them. `docs/model/logged_flips.py` checks all of
//! it.
//!
//! May import `io`, `plan`, `pair`, and what lies below them.

use crate::bitmap::{Slices, Validity};
use crate::engine::Engine;
use crate::engine::commit::publish;
use crate::engine::plan::{Segment, WordUpdate, is_whole_slices};
use crate::engine::sums::NewSums;
use crate::error::Result;
use crate::format::flip_record::{FlipRecord, RingSeed};
use crate::format::layout::{self, FLIP_RECORD};
use crate::lock::LockGuard;
use crate::mutant::{planted, unless};
use crate::pair::log::lane::Lane;
use crate::pair::log::lanes::InUse;
use crate::pair::log::records::PageSlices;
use crate::pair::stats::Counter;
use crate::units::{PAGE, SLICE};

/// Longest logged flip in bytes: its checksum takes less time than a drain, or none at all. See
/// `docs/decisions/logged-flips-up-to-a-page.md`.
pub(in crate::engine) const LOGGED_AT_MOST: usize = PAGE;

/// Longest logged flip in bytes that has to complete partly covered slices: completing costs a
/// copy.
pub(in crate::engine) const COMPLETED_AT_MOST: usize = 256;

/// Most bytes for which the checksum is computed before the copy, while the lock waits for the
/// previous operation's drain. For more bytes the copy computes it, where the processor can.
const SUMMED_BEFORE: usize = 512;

/// Most slices that [`COMPLETED_AT_MOST`] bytes may touch.
const SLICES: usize = COMPLETED_AT_MOST / SLICE + 1;

/// A log record for a flip, computed before the lock is held.
pub(in crate::engine) struct DraftRecord {
    /// Where the page's slices were valid when the draft was made.
    pub valid: Validity,
    /// The record, or `None` if the copy computes its checksum.
    line: Option<[u64; FLIP_RECORD / 8]>,
}

impl Engine {
    /// Returns `true` if a flip of these slices is logged, provided that no record conflicts.
    #[inline]
    pub(in crate::engine) fn can_log_flip(
        &self,
        lane: &InUse<'_>,
        segments: &[Segment<'_>],
        slices: Slices,
    ) -> bool {
        let is_small = match segments {
            [segment] if is_whole_slices(segment) => segment.data.len() <= LOGGED_AT_MOST,
            [segment] => segment.data.len() <= COMPLETED_AT_MOST,
            _ => slices.count() <= SLICES,
        };
        // Where drains cost nothing, a log record saves nothing.
        is_small && self.mode.has_drains && (lane.is_private() || planted!(LoggedFlipInSharedLane))
    }

    /// Returns the lane's next record, for a flip of the target's slices from the slots that
    /// `valid` names. `bytes` holds the slices one after the other. `page_sum` is the stored sum of
    /// the page after the flip, or 0 if the file has no sums.
    #[inline(always)]
    pub(in crate::engine) fn draft(
        &self,
        lane: &InUse<'_>,
        target: &PageSlices<'_>,
        valid: Validity,
        (bytes, page_sum): (&[u8], u64),
    ) -> DraftRecord {
        // For a few bytes the checksum is computed here, while the lock waits for the previous
        // operation's drain.
        let is_later = bytes.len() > SUMMED_BEFORE
            && self.platform.sums_on_the_way()
            && target.slices.are_one_run();
        let line = (!is_later)
            .then(|| self.entry(lane, target, (valid, page_sum), |seed| seed.sum_of(bytes)));
        DraftRecord { valid, line }
    }

    /// Returns the bytes of the lane's next flip record for the target.
    #[inline(always)]
    pub(in crate::engine) fn entry(
        &self,
        lane: &InUse<'_>,
        target: &PageSlices<'_>,
        (valid, page_sum): (Validity, u64),
        sum: impl FnOnce(RingSeed) -> u32,
    ) -> [u64; FLIP_RECORD / 8] {
        let seed = self.ring_seeds[usize::from(lane.index().0)];
        let slices = target.slices.0;
        let (sides, sum) = (valid.free().0 & slices, sum(seed));
        let (sequence, page) = (lane.upcoming(), target.page);
        FlipRecord { sequence, page, slices, sides, sum, page_sum }.words(seed)
    }

    /// Commits the target's slices by a logged flip. `bytes` holds the slices one after the other.
    /// `held` is the page's lock, under which the draft's `valid` is true. Everything is allocated,
    /// and no record of another lane conflicts.
    #[inline(always)]
    pub(in crate::engine) fn commit_logged_flip(
        &self,
        lane: &InUse<'_>,
        target: &PageSlices<'_>,
        change: &WordUpdate,
        held: LockGuard<'_>,
        (bytes, sums): (&[u8], &NewSums<'_>),
        draft: &DraftRecord,
    ) {
        let slices = target.slices;
        debug_assert_eq!(target.region.validity(target.page.in_region()), draft.valid);
        let line = match draft.line {
            Some(line) => {
                self.copy_slices(lane, target, draft.valid.free(), bytes);
                line
            }
            None => {
                let offset = target.start();
                let sum = self.copy_lines_summed(lane, offset, draft.valid.free(), bytes);
                let sum = if planted!(FlipRecordSumOfNothing) { 0 } else { sum };
                let page_sum = sums.in_record(target.page);
                self.entry(lane, target, (draft.valid, page_sum), |_| sum)
            }
        };
        let unfinished = self.begin("commit of an operation");
        let sequence = lane.next_flip_record();
        let place = if planted!(FlipRecordOnePlace) { 0 } else { sequence.place() };
        self.reflection.store_line(layout::flip_record(lane.index(), place), line);
        lane.stats.bump(Counter::BytesWritten, FLIP_RECORD as u64);
        // Flush the batch's words long before the ring wraps: the lane's newest number tells
        // recovery that this was done. Not before the lock is taken: a locked instruction would
        // wait for the flushes.
        let flushes = sequence.ends_batch();
        debug_assert!(lane.keeps_batches(sequence), "a batch was not flushed");
        if flushes {
            unless!(CoveredWordsNotFlushed, self.flush_pending_words(lane, sequence));
        }
        if planted!(CoveredWordBeforeDrain) {
            self.store_logged_word(target, change);
        }
        // The commit point. One wait makes durable:
        // - the slices and this record, in any order: the checksum tells whether both are complete;
        // - the words of earlier records, if they were flushed: those records may be stored over
        //   from now on.
        unless!(FlipRecordNotDrained, self.drain(lane));
        if flushes {
            lane.set_written_back(sequence);
        }
        // Only now: until the drain, recovery may still find the record that was in this place
        // before.
        unless!(FlipRecordNotNoted, lane.note(sequence, target.page, slices.0));
        unless!(
            FlipRecordLaneNotNoted,
            target.region.set_lane_bit(target.page.in_region(), lane.index().0)
        );
        unless!(LoggedFlipNotClosed, held.close());
        unless!(CoveredWordNotStored, self.store_logged_word(target, change));
        self.store_covered_sums(sums);
        unless!(LoggedFlipNotPublished, publish(target.region, change));
        self.publish_covered_sums(sums);
        unfinished.end();
        drop(held);
        lane.stats.bump(Counter::LoggedFlips, 1);
    }

    /// Stores the word through the cache, so that the page's next lock holder can flush it. A store
    /// past the cache could arrive after that of the next holder.
    #[inline(always)]
    fn store_logged_word(&self, target: &PageSlices<'_>, change: &WordUpdate) {
        self.reflection.store_word(layout::slice_word(target.page), change.old ^ change.mask);
    }

    /// Copies `bytes`, the target's slices one after the other, to the slots on `sides`.
    #[inline(always)]
    pub(in crate::engine) fn copy_slices(
        &self,
        lane: &Lane,
        target: &PageSlices<'_>,
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

    /// Copies slices that are not one run, run by run.
    #[cold]
    fn copy_runs(&self, lane: &Lane, target: &PageSlices<'_>, sides: Validity, bytes: &[u8]) {
        let mut rest = bytes;
        for run in target.slices.runs() {
            let (now, later) = rest.split_at(run.len() * SLICE);
            let offset = target.page.start() + (run.start * SLICE) as u64;
            self.copy_lines(lane, offset, sides, now);
            rest = later;
        }
    }

    /// Commits `segments`, which lie in one page, by a logged flip.
    #[inline(never)]
    pub(in crate::engine) fn commit_segments_logged(
        &self,
        lane: &InUse<'_>,
        target: &PageSlices<'_>,
        change: &WordUpdate,
        held: LockGuard<'_>,
        (segments, sums): (&[Segment<'_>], &NewSums<'_>),
    ) -> Result<()> {
        let mut room = [0; SLICES * SLICE];
        let whole = match segments {
            [segment] if is_whole_slices(segment) => segment.data,
            _ => self.complete(target, segments, &mut room)?,
        };
        let valid = target.region.validity(target.page.in_region());
        let draft = self.draft(lane, target, valid, (whole, sums.in_record(target.page)));
        self.commit_logged_flip(lane, target, change, held, (whole, sums), &draft);
        Ok(())
    }
}
