//! One lane: its sequence numbers, what DRAM records of its log records, and its read section.
//!
//! Only the owner of a private lane stores to its fields. One exception: the thread that
//! invalidates a flip record clears the page that DRAM keeps for it. `lanes` has the other
//! invariants.
//!
//! May import `log::guard`, `pair::{gates, hints, stats}`, `format`, `units`, `primitive`, and
//! fences of `platform`.

use crate::format::entry::Sequence;
#[cfg(not(loom))]
use crate::format::layout::RING;
use crate::mutant::{planted, unless};
use crate::pair::gates::GateMarks;
use crate::pair::hints::Hints;
use crate::pair::log::guard::{COUNT, Pinned};
use crate::pair::stats::{Block, Counter};
use crate::platform::barrier;
use crate::primitive::{AtomicBool, AtomicU64, Condvar, Mutex, Ordering, fence};
use crate::units::{LaneIndex, PageIndex};
use std::collections::VecDeque;
#[cfg(not(any(loom, shuttle)))]
use std::mem::offset_of;
use std::sync::Arc;

/// Shorter than a batch: no model makes enough logged flips to use a ring place twice.
#[cfg(loom)]
const RING: usize = 2;

/// An active flip record, as read by a thread that holds the lock of the page it names.
#[derive(Clone, Copy, Debug)]
pub struct ActiveRecord {
    /// The lane that has the record in its ring.
    pub lane: LaneIndex,
    /// The record's number in that lane.
    pub sequence: Sequence,
    /// The slices that the flip moved.
    pub slices: u64,
    /// `true` if the word that the record covers is durable without the record.
    pub is_written_back: bool,
}

/// DRAM's copy of one flip record. The page is kept in `Lane::pages`.
#[derive(Debug, Default)]
struct Record {
    sequence: AtomicU64,
    slices: AtomicU64,
}

/// One lane.
///
/// The fields that every operation stores to come first, in one cache line. The counters of `stats`
/// are the exception.
#[derive(Debug)]
#[repr(C)]
pub struct Lane {
    /// Odd while the lane's thread is in a read section. Its bits are those of `log::guard`.
    pub(super) pinned: AtomicU64,
    flip_sequence: AtomicU64,
    /// Number of the first flip record that may still be needed: its word may not be durable.
    pending_from: AtomicU64,
    undo_sequence: AtomicU64,
    pub(super) taken: AtomicBool,
    allocated: AtomicBool,
    pub(super) inside: GateMarks,
    /// Predictors for the lane's threads, from their recent operations.
    pub recent: Hints,
    /// Counters for the lane's operations.
    pub stats: Block,
    /// The page that each flip record of the ring names: page index + 1, or 0 for none. Kept apart
    /// from `records`, so that a search for a page reads few lines.
    pages: [AtomicU64; RING],
    records: [Record; RING],
    /// The file's queue of threads that wait for a shared lane.
    queue: Arc<Queue>,
}

// The words of a model checker are larger.
#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(offset_of!(Lane, recent) + Hints::USED_MOST <= 64);

impl Lane {
    pub(super) fn new(queue: Arc<Queue>) -> Self {
        Lane {
            queue,
            taken: AtomicBool::new(false),
            allocated: AtomicBool::new(false),
            pages: std::array::from_fn(|_| AtomicU64::new(0)),
            records: std::array::from_fn(|_| Record::default()),
            flip_sequence: AtomicU64::new(Sequence::FIRST.bits()),
            pending_from: AtomicU64::new(Sequence::FIRST.bits()),
            undo_sequence: AtomicU64::new(Sequence::FIRST.bits()),
            pinned: AtomicU64::new(0),
            inside: GateMarks::new(),
            recent: Hints::new(),
            stats: Block::new(),
        }
    }

    /// Enters a read section. Everything the thread then finds mapped, loaded and in range stays so
    /// until the guard is dropped. Read sections do not nest. Entering takes two plain stores, see
    /// `platform::barrier`.
    #[inline]
    pub fn pin(&self) -> Pinned<'_> {
        let word = self.pinned.load(Ordering::Relaxed);
        debug_assert!(word.is_multiple_of(2), "a pin does not nest");
        self.pinned.store(word + 1, Ordering::Relaxed);
        // Orders the mark before every load of the file's state. A thread that changes that state
        // and then finds no mark knows that this thread sees the change.
        barrier::light();
        Pinned(&self.pinned)
    }

    /// Enters the read section of a fast-path read. The light fences must be the usual ones
    /// (`barrier::is_usual`).
    #[inline]
    pub fn pin_fast(&self) -> Pinned<'_> {
        let word = self.pinned.load(Ordering::Relaxed);
        debug_assert!(word.is_multiple_of(2), "a pin does not nest");
        unless!(ReadUnpinned, self.pinned.store(word + 1, Ordering::Relaxed));
        // Orders the mark before every load of the file's state, as in `pin`.
        barrier::usual();
        Pinned(&self.pinned)
    }

    /// Returns `true` if the thread that has the lane is in a read section.
    #[cfg(all(test, not(loom), not(shuttle)))]
    pub fn is_pinned(&self) -> bool {
        !self.pinned.load(Ordering::Relaxed).is_multiple_of(2)
    }

    /// Returns the number of reads that succeeded on the fast path.
    pub fn fast_reads(&self) -> u64 {
        self.pinned.load(Ordering::Relaxed) >> COUNT
    }

    /// Returns the number of all reads that succeeded.
    pub fn reads(&self) -> u64 {
        self.stats.get(Counter::Reads) + self.fast_reads()
    }

    /// Returns `true` if the lane's bytes are known to be allocated.
    #[inline]
    pub fn is_allocated(&self) -> bool {
        self.allocated.load(Ordering::Relaxed)
    }

    /// Records that the lane's bytes are allocated.
    pub fn set_allocated(&self) {
        self.allocated.store(true, Ordering::Relaxed);
    }

    #[inline(always)]
    fn take_sequence(sequence: &AtomicU64) -> Sequence {
        let taken = Sequence::from_bits(sequence.load(Ordering::Relaxed));
        unless!(SequenceStands, sequence.store(taken.next().bits(), Ordering::Relaxed));
        taken
    }

    /// Takes the number of the owner's next flip record.
    #[inline]
    pub fn next_flip_record(&self) -> Sequence {
        Self::take_sequence(&self.flip_sequence)
    }

    /// Takes the number of the owner's next undo record.
    pub fn next_undo(&self) -> Sequence {
        let own = !planted!(OneSequenceForBoth);
        Self::take_sequence(if own { &self.undo_sequence } else { &self.flip_sequence })
    }

    /// Records in DRAM what the flip record with this number says, once that record was drained.
    /// Only the owner calls this.
    #[inline]
    pub fn note(&self, sequence: Sequence, page: PageIndex, slices: u64) {
        let place = place(sequence);
        let record = &self.records[place];
        // The lock holder of the page that this place named until now may be reading. Clear the
        // name first, so that a page is never seen with the slices of another record.
        self.pages[place].store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        record.sequence.store(sequence.bits(), Ordering::Relaxed);
        record.slices.store(slices, Ordering::Relaxed);
        self.pages[place].store(page.0 + 1, Ordering::Release);
    }

    /// Returns the active flip records that name `page`. The caller holds the page's lock. So no
    /// new record can name the page meanwhile, and a record that stops naming it was invalidated.
    pub fn active(
        &self,
        lane: LaneIndex,
        page: PageIndex,
    ) -> impl Iterator<Item = ActiveRecord> + '_ {
        self.pages.iter().zip(&self.records).filter_map(move |(named, record)| {
            if named.load(Ordering::Acquire) != page.0 + 1 {
                return None;
            }
            let sequence = Sequence::from_bits(record.sequence.load(Ordering::Relaxed));
            let entry = ActiveRecord {
                lane,
                sequence,
                slices: record.slices.load(Ordering::Relaxed),
                is_written_back: self.is_written_back(sequence),
            };
            fence(Ordering::Acquire);
            (named.load(Ordering::Relaxed) == page.0 + 1).then_some(entry)
        })
    }

    /// Records that the holder of `page`'s lock has invalidated the flip record.
    pub fn forget(&self, sequence: Sequence, page: PageIndex) {
        // Fails if the owner has recorded a newer flip record meanwhile. That record must stay.
        let _ = self.pages[place(sequence)].compare_exchange(
            page.0 + 1,
            if planted!(InvalidatedStaysNoted) { page.0 + 1 } else { 0 },
            Ordering::Release,
            Ordering::Relaxed,
        );
    }

    fn is_written_back(&self, sequence: Sequence) -> bool {
        // Acquire: pairs with `set_written_back`, so the drain before that store has happened.
        let from = self.pending_from.load(Ordering::Acquire);
        sequence.is_before(Sequence::from_bits(from))
    }

    /// Returns the pages with words that may not be durable, from the owner's flip records before
    /// `end`. Invalidated records are left out: the thread that invalidated one made its word
    /// durable, or the page is gone.
    pub fn pending_words(&self, end: Sequence) -> impl Iterator<Item = PageIndex> + '_ {
        let from = Sequence::from_bits(self.pending_from.load(Ordering::Relaxed));
        let in_ring = std::iter::successors(Some(from), |sequence| Some(sequence.next()));
        in_ring.take_while(move |sequence| sequence.is_before(end)).filter_map(|sequence| {
            let named = self.pages[place(sequence)].load(Ordering::Acquire);
            Some(PageIndex(named.checked_sub(1)?))
        })
    }

    /// Records that the words of all flip records before `end` were flushed and drained. Only the
    /// owner calls this.
    #[inline]
    pub fn set_written_back(&self, end: Sequence) {
        self.pending_from.store(end.bits(), Ordering::Release);
    }

    /// Returns `true` if the words that recovery takes for durable are durable. `next` is the
    /// number of the owner's next flip record, from which recovery derives them.
    pub fn keeps_batches(&self, next: Sequence) -> bool {
        let from = Sequence::from_bits(self.pending_from.load(Ordering::Relaxed));
        !from.is_before(next.needed_from())
    }

    /// Returns the number that the owner's next flip record will have, without taking it.
    #[inline]
    pub fn upcoming(&self) -> Sequence {
        Sequence::from_bits(self.flip_sequence.load(Ordering::Relaxed))
    }

    /// Gives back this shared lane, or hands it to a thread that waits for a shared lane.
    #[cold]
    #[inline(never)]
    pub(super) fn release_shared(&self, index: LaneIndex) {
        // Release: orders the operation's work in the lane before it is given back.
        self.taken.store(false, Ordering::Release);
        // Orders the store above before the load of the count. If a thread counts itself and then
        // finds no lane free, this load sees its count.
        fence(Ordering::SeqCst);
        if self.queue.waiting.load(Ordering::Relaxed) == 0 || planted!(LaneHandedToNobody) {
            return;
        }
        let mut handed = self.queue.handed.lock();
        let may_hand = self.queue.waiting.load(Ordering::Relaxed) > handed.len() as u64;
        // If another thread has claimed the lane meanwhile, that thread hands it on.
        let taken = (Ordering::Acquire, Ordering::Relaxed);
        if may_hand && self.taken.compare_exchange(false, true, taken.0, taken.1).is_ok() {
            handed.push_back(index);
            self.queue.arrived.notify_one();
        }
    }

    /// Returns the pages that the active flip records of the ring name. No operation may be
    /// running.
    pub fn all_active(&self) -> impl Iterator<Item = PageIndex> + '_ {
        self.pages
            .iter()
            .filter_map(|page| Some(PageIndex(page.load(Ordering::Acquire).checked_sub(1)?)))
    }
}

/// A queue of threads that wait for a shared lane. They are parked and served in turn.
#[derive(Debug)]
pub(crate) struct Queue {
    /// Number of waiting threads. Changed under `handed`.
    pub waiting: AtomicU64,
    /// Lanes that are claimed for waiting threads and not yet fetched by them.
    pub handed: Mutex<VecDeque<LaneIndex>>,
    pub arrived: Condvar,
}

impl Queue {
    pub(super) fn new() -> Self {
        Queue {
            waiting: AtomicU64::new(0),
            handed: Mutex::new(VecDeque::new()),
            arrived: Condvar::new(),
        }
    }
}

/// Returns the record's place in the ring. A model checker has a shorter ring.
#[inline]
pub(crate) fn place(sequence: Sequence) -> usize {
    sequence.place() % RING
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_seen_only_by_its_page() {
        let lane = Lane::new(Arc::new(Queue::new()));
        let active = |page| lane.active(LaneIndex(0), PageIndex(page)).next();
        let first = lane.next_flip_record();
        lane.note(first, PageIndex(7), 0b11);
        assert!(active(8).is_none());
        let entry = active(7).expect("just noted");
        assert_eq!((entry.sequence, entry.slices), (first, 0b11));
        assert!(!entry.is_written_back);
        assert_eq!(lane.pending_words(lane.upcoming()).collect::<Vec<_>>(), [PageIndex(7)]);
        lane.set_written_back(lane.upcoming());
        assert_eq!(lane.pending_words(lane.upcoming()).count(), 0);
        assert!(active(7).expect("still there").is_written_back);
        let second = lane.next_flip_record();
        lane.note(second, PageIndex(7), 1);
        assert_eq!(lane.active(LaneIndex(0), PageIndex(7)).count(), 2);
        lane.forget(second, PageIndex(7));
        assert_eq!(active(7).expect("the first").sequence, first);
        assert_eq!(lane.pending_words(lane.upcoming()).count(), 0, "it is invalidated");
    }
}
