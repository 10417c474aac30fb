//! Which lane is mine, and which of its entries are still live?
//!
//! Owns: the lanes' DRAM side. A lane is MGSP's lock-free metadata log (III-C1): a thread claims
//! one by hash and compare-and-swap with linear probing, and keeps it until it ends or the file is
//! closed, because a flush is completed only by a drain of the thread that issued it. Threads that
//! find no private lane are lent a shared one for one operation; shared lanes carry no redo
//! entries, so that nothing is left to be flushed when they are given back.
//!
//! Invariants:
//! - a private lane's fields are stored to by its owner only, but for `Record::page`, which
//!   whoever cleared the entry sets to none;
//! - a record names what the entry in its place says until a newer entry over it has been drained.
//!
//! May import `format`, `units`, `lock`, `engine::stats`, `primitive`, and the fences of `platform`.

use super::stats::{Block, Stats};
use crate::format::entry::Sequence;
#[cfg(not(loom))]
use crate::format::layout::{LANE_COUNT, PRIVATE_LANES};
use crate::lock::Patience;
use crate::mutant::{planted, unless};
use crate::platform::barrier;
use crate::primitive::{self, AtomicBool, AtomicU64, Ordering, fence};
use crate::units::{LaneIndex, PageIndex};
use crossbeam_utils::CachePadded;
use std::cell::RefCell;
use std::sync::Weak;

/// One lane of each kind: two threads are enough to compete for it, and every word costs an
/// explorer of executions.
#[cfg(loom)]
const PRIVATE_LANES: usize = 1;
#[cfg(loom)]
const LANE_COUNT: usize = 2;

/// What a live redo entry says: who looks holds the lock of the page that it names.
#[derive(Clone, Copy, Debug)]
pub struct LiveEntry {
    /// Its lane.
    pub lane: LaneIndex,
    /// Its place in the lane.
    pub position: usize,
    /// Its header word.
    pub header: u64,
    /// The slices that it stores to.
    pub slices: u64,
    /// The slot of each: bit = 1 is the reflection slot.
    pub sides: u64,
}

/// DRAM's copy of what one redo entry names.
#[derive(Debug, Default)]
struct Record {
    /// Page index + 1; 0 = names nothing.
    page: AtomicU64,
    header: AtomicU64,
    slices: AtomicU64,
    sides: AtomicU64,
}

/// One lane.
#[derive(Debug)]
pub struct Lane {
    taken: AtomicBool,
    allocated: AtomicBool,
    records: [Record; 2],
    redo_sequence: AtomicU64,
    undo_sequence: AtomicU64,
    /// Which record's in-place store was not flushed yet, + 1; 0 = none.
    unflushed: AtomicU64,
    /// Odd while the lane's thread is pinned.
    pinned: AtomicU64,
    /// What the lane's threads did.
    pub stats: Block,
}

/// A lane's thread is pinned while this lives: `Lanes::wait_for_pinned` waits for it.
pub struct Pinned<'a>(&'a AtomicU64);

impl Drop for Pinned<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: what the thread read and touched while pinned comes before.
        self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}

impl Lane {
    fn new() -> Self {
        Lane {
            taken: AtomicBool::new(false),
            allocated: AtomicBool::new(false),
            records: Default::default(),
            redo_sequence: AtomicU64::new(Sequence::FIRST.bits()),
            undo_sequence: AtomicU64::new(Sequence::FIRST.bits()),
            unflushed: AtomicU64::new(0),
            pinned: AtomicU64::new(0),
            stats: Block::new(),
        }
    }

    /// Pins the lane's thread: what it finds mapped, touched and in range from here on stays so
    /// until the pin is dropped. Not while pinned already. Two plain stores, see
    /// `platform::barrier`.
    #[inline]
    pub fn pin(&self) -> Pinned<'_> {
        let count = self.pinned.load(Ordering::Relaxed);
        debug_assert!(count.is_multiple_of(2), "a pin does not nest");
        self.pinned.store(count + 1, Ordering::Relaxed);
        // Orders the mark before every look at the file's state: who changes that state and then
        // finds no mark knows that this thread sees the change.
        barrier::light();
        Pinned(&self.pinned)
    }

    /// Whether the lane's bytes are known to be allocated.
    #[inline]
    pub fn is_allocated(&self) -> bool {
        self.allocated.load(Ordering::Relaxed)
    }

    /// Notes that they are.
    pub fn set_allocated(&self) {
        self.allocated.store(true, Ordering::Relaxed);
    }

    fn take_sequence(sequence: &AtomicU64) -> Sequence {
        let taken = Sequence::from_bits(sequence.load(Ordering::Relaxed));
        unless!(SequenceStands, sequence.store(taken.next().bits(), Ordering::Relaxed));
        taken
    }

    /// The number of the owner's next redo entry.
    pub fn next_redo(&self) -> Sequence {
        Self::take_sequence(&self.redo_sequence)
    }

    /// The number of the owner's next undo entry.
    pub fn next_undo(&self) -> Sequence {
        let own = !planted!(OneSequenceForBoth);
        Self::take_sequence(if own { &self.undo_sequence } else { &self.redo_sequence })
    }

    /// Notes what the entry at `position` says, once it was drained. By the owner.
    pub fn note(&self, position: usize, page: PageIndex, header: u64, slices: u64, sides: u64) {
        let record = &self.records[position];
        // Who holds the lock of the page that was named until now may be reading: no name first,
        // so that a name is never seen with another entry's slices.
        record.page.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        record.header.store(header, Ordering::Relaxed);
        record.slices.store(slices, Ordering::Relaxed);
        record.sides.store(sides, Ordering::Relaxed);
        record.page.store(page.0 + 1, Ordering::Release);
        self.unflushed.store(position as u64 + 1, Ordering::Relaxed);
    }

    /// The live entry at `position`, if it names `page`, whose lock the caller holds: so no entry
    /// can begin to name it meanwhile, and one that stops naming it has become void.
    pub fn live(&self, lane: LaneIndex, position: usize, page: PageIndex) -> Option<LiveEntry> {
        let record = &self.records[position];
        if record.page.load(Ordering::Acquire) != page.0 + 1 {
            return None;
        }
        let entry = LiveEntry {
            lane,
            position,
            header: record.header.load(Ordering::Relaxed),
            slices: record.slices.load(Ordering::Relaxed),
            sides: record.sides.load(Ordering::Relaxed),
        };
        fence(Ordering::Acquire);
        (record.page.load(Ordering::Relaxed) == page.0 + 1).then_some(entry)
    }

    /// Notes that the entry at `position` was cleared by the holder of `page`'s lock.
    pub fn forget(&self, position: usize, page: PageIndex) {
        // Fails where the owner has noted a newer entry meanwhile, which is as well.
        let _ = self.records[position].page.compare_exchange(
            page.0 + 1,
            if planted!(ClearedStaysNoted) { page.0 + 1 } else { 0 },
            Ordering::Release,
            Ordering::Relaxed,
        );
    }

    /// What the owner's last in-place store wrote, if it was not flushed yet: page, slices, sides.
    /// Asked once: from now on it counts as flushed.
    pub fn take_unflushed(&self) -> Option<(PageIndex, u64, u64)> {
        let position = self.unflushed.load(Ordering::Relaxed).checked_sub(1)?;
        self.unflushed.store(0, Ordering::Relaxed);
        let record = &self.records[position as usize];
        // No page: the entry was cleared by somebody who saw to its slices, or whose page is gone.
        let page = PageIndex(record.page.load(Ordering::Acquire).checked_sub(1)?);
        Some((page, record.slices.load(Ordering::Relaxed), record.sides.load(Ordering::Relaxed)))
    }

    /// What both records say now, for when nobody operates.
    pub fn all_live(&self) -> impl Iterator<Item = (PageIndex, u64, u64)> + '_ {
        self.records.iter().filter_map(|record| {
            let page = PageIndex(record.page.load(Ordering::Acquire).checked_sub(1)?);
            let slices = record.slices.load(Ordering::Relaxed);
            Some((page, slices, record.sides.load(Ordering::Relaxed)))
        })
    }
}

/// All lanes of one open file.
#[derive(Debug)]
pub struct Lanes {
    lanes: Box<[CachePadded<Lane>]>,
}

impl std::ops::Index<LaneIndex> for Lanes {
    type Output = Lane;

    fn index(&self, lane: LaneIndex) -> &Lane {
        &self.lanes[usize::from(lane.0)]
    }
}

/// A lane in use by one operation.
pub struct InUse<'a> {
    lane: &'a Lane,
    index: LaneIndex,
}

impl InUse<'_> {
    /// Which lane it is.
    pub fn index(&self) -> LaneIndex {
        self.index
    }

    /// Whether the lane stays with this thread after the operation.
    pub fn is_private(&self) -> bool {
        usize::from(self.index.0) < PRIVATE_LANES
    }
}

impl std::ops::Deref for InUse<'_> {
    type Target = Lane;

    fn deref(&self) -> &Lane {
        self.lane
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        if !self.is_private() {
            self.lane.taken.store(false, Ordering::Release);
        }
    }
}

/// Whose lanes a thread's claim is about. The engine implements it.
pub trait LaneKeeper: Send + Sync + 'static {
    /// The lanes.
    fn lanes(&self) -> &Lanes;
    /// Called by the lane's thread when it ends: drains what it still has to.
    fn before_release(&self, lane: LaneIndex);
}

/// A thread's claim to a private lane. Dropped when the thread ends.
struct Claim {
    keeper: Weak<dyn LaneKeeper>,
    /// Tells the files apart without touching the `Weak`.
    file: u64,
    lane: LaneIndex,
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(keeper) = self.keeper.upgrade() {
            unless!(LaneNotDrainedAtEnd, keeper.before_release(self.lane));
            keeper.lanes()[self.lane].taken.store(false, Ordering::Release);
        }
    }
}

primitive::local! {
    static CLAIMS: RefCell<Vec<Claim>> = RefCell::new(Vec::new());
}

impl Lanes {
    /// As many as the format has.
    pub fn new() -> Self {
        Lanes { lanes: (0..LANE_COUNT).map(|_| CachePadded::new(Lane::new())).collect() }
    }

    /// Every lane.
    pub fn all(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter().map(|lane| &**lane)
    }

    /// Waits until every thread that is pinned now has been unpinned. Not while pinned.
    pub fn wait_for_pinned(&self) {
        // Orders the caller's changes before the looks at the marks, see `Lane::pin`.
        barrier::heavy();
        for lane in self.all() {
            let seen = lane.pinned.load(Ordering::Acquire);
            let mut patience = Patience::new();
            while !planted!(NoWaitForPinned)
                && seen % 2 == 1
                && lane.pinned.load(Ordering::Acquire) == seen
            {
                patience.wait();
            }
        }
    }

    /// The sum of what all lanes counted.
    pub fn stats(&self) -> Stats {
        let mut sum = Stats::default();
        self.all().for_each(|lane| sum.add(&lane.stats));
        sum
    }

    /// The calling thread's lane of the file with the number `file`.
    #[inline]
    pub fn mine<'a>(&'a self, file: u64, keeper: &Weak<dyn LaneKeeper>) -> InUse<'a> {
        // A thread that is ending has no claims any more: it is lent a shared lane.
        let mine = CLAIMS.try_with(|claims| {
            let mut claims = claims.borrow_mut();
            if let Some(claim) = claims.iter().find(|claim| claim.file == file) {
                return Some(claim.lane);
            }
            claims.retain(|claim| claim.keeper.strong_count() > 0);
            let lane = self.claim(thread_hash(file), 0, PRIVATE_LANES)?;
            claims.push(Claim { keeper: keeper.clone(), file, lane });
            Some(lane)
        });
        let index = mine.ok().flatten().unwrap_or_else(|| self.borrow_shared(file));
        InUse { lane: &self[index], index }
    }

    fn borrow_shared(&self, file: u64) -> LaneIndex {
        let mut patience = Patience::new();
        loop {
            let found = self.claim(thread_hash(file), PRIVATE_LANES, LANE_COUNT - PRIVATE_LANES);
            if let Some(lane) = found {
                return lane;
            }
            patience.wait();
        }
    }

    /// Claims one of `count` lanes from `first` on, probing from where the hash points.
    fn claim(&self, hash: usize, first: usize, count: usize) -> Option<LaneIndex> {
        (0..count).map(|probe| first + (hash + probe) % count).find_map(|n| {
            self.lanes[n]
                .taken
                .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
                .map_or_else(|_| planted!(LaneTakenTwice), |_| true)
                .then_some(LaneIndex(n as u16))
        })
    }
}

/// Spreads threads over lanes: neighbours in time get neighbouring lanes.
fn thread_hash(file: u64) -> usize {
    primitive::thread_number().unwrap_or(file) as usize
}

/// A number for each opened file, never reused.
pub fn next_file_number() -> u64 {
    // Of the process, whatever runs in it.
    static FILES: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    FILES.fetch_add(1, Ordering::Relaxed)
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    struct Keeper {
        lanes: Lanes,
        released: AtomicU64,
    }

    impl LaneKeeper for Keeper {
        fn lanes(&self) -> &Lanes {
            &self.lanes
        }
        fn before_release(&self, _lane: LaneIndex) {
            self.released.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn keeper(engine: &Arc<Keeper>) -> Weak<dyn LaneKeeper> {
        let weak: Weak<Keeper> = Arc::downgrade(engine);
        weak
    }

    fn new_keeper() -> (Arc<Keeper>, u64) {
        (Arc::new(Keeper { lanes: Lanes::new(), released: AtomicU64::new(0) }), next_file_number())
    }

    #[test]
    fn a_thread_keeps_its_lane_and_gives_it_back_when_it_ends() {
        let (k, file) = new_keeper();
        let weak = keeper(&k);
        let first = k.lanes.mine(file, &weak).index();
        assert_eq!(k.lanes.mine(file, &weak).index(), first);
        let theirs =
            std::thread::scope(|s| s.spawn(|| k.lanes.mine(file, &weak).index()).join().unwrap());
        assert_ne!(first, theirs);
        // A scope's join may return before the thread's locals are gone.
        while k.released.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
    }

    #[test]
    fn more_threads_than_lanes_share_and_do_not_hang() {
        let (k, file) = new_keeper();
        let weak = keeper(&k);
        let barrier = std::sync::Barrier::new(PRIVATE_LANES + 8);
        let shared = AtomicU64::new(0);
        std::thread::scope(|s| {
            for _ in 0..PRIVATE_LANES + 8 {
                s.spawn(|| {
                    let private = k.lanes.mine(file, &weak).is_private();
                    shared.fetch_add(u64::from(!private), Ordering::Relaxed);
                    barrier.wait();
                    drop(k.lanes.mine(file, &weak));
                });
            }
        });
        assert_eq!(shared.load(Ordering::Relaxed), 8);
    }

    #[test]
    fn a_record_is_seen_only_by_its_page() {
        let lane = Lane::new();
        lane.note(1, PageIndex(7), 99, 0b11, 0b01);
        assert!(lane.live(LaneIndex(0), 0, PageIndex(7)).is_none());
        assert!(lane.live(LaneIndex(0), 1, PageIndex(8)).is_none());
        let live = lane.live(LaneIndex(0), 1, PageIndex(7)).unwrap();
        assert_eq!((live.header, live.slices, live.sides), (99, 0b11, 0b01));
        assert_eq!(lane.take_unflushed(), Some((PageIndex(7), 0b11, 0b01)));
        assert_eq!(lane.take_unflushed(), None);
        lane.note(1, PageIndex(7), 100, 1, 0);
        lane.forget(1, PageIndex(7));
        assert!(lane.live(LaneIndex(0), 1, PageIndex(7)).is_none());
        assert_eq!(lane.take_unflushed(), None);
    }
}
