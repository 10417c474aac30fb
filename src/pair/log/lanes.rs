//! The lanes of one open file: how threads claim them, and what DRAM records of their log.
//!
//! Owns: the lanes' DRAM side. A lane is MGSP's lock-free metadata log (III-C1). A thread claims a
//! lane by hash, compare-and-swap and linear probing. It keeps the lane until the thread ends or
//! the file is closed. It must, because only a drain of the thread that issued a flush completes
//! that flush. A thread that finds no private lane borrows a shared lane for one operation. The
//! rings of shared lanes stay empty, so a shared lane has nothing left to flush when it is given
//! back.
//!
//! Invariants:
//! - Only the owner of a private lane stores to its fields. One exception: the thread that
//!   invalidates a flip record clears the page that DRAM keeps for it.
//! - `Record` and `pages` say what the flip record in a ring place says, until a newer flip record
//!   over it has been drained.
//! - The words of all flip records before `pending_from` are durable, and `pending_from` is
//!   never more than a batch behind. So a ring place is used again only when nothing needs its old
//!   flip record any more.
//!
//! May import `format`, `units`, `lock`, `mutant`, `pair::{gates, hints, stats}`, `primitive`,
//! `thread_cache`, and the fences of `platform`.

#[cfg(not(loom))]
use crate::format::layout::LANE_COUNT;
#[cfg(not(loom))]
use crate::format::layout::PRIVATE_LANES;
use crate::lock::Backoff;
use crate::mutant::{planted, unless};
use crate::pair::gates::{ClosedGate, Gate, GateGuard, GateMarks, Gates};
use crate::pair::log::lane::{Lane, Queue};
use crate::pair::stats::{Counter, Stats};
use crate::platform::barrier;
use crate::primitive::{self, OnceBox, Ordering, fence};
use crate::thread_cache::{self, Tag};
use crate::units::{LaneIndex, SLICE};
use crossbeam_utils::CachePadded;
use std::cell::RefCell;
use std::sync::{Arc, Weak};

/// One lane of each kind: two threads are enough to compete for it. Every word adds executions for
/// the model checker to explore.
#[cfg(loom)]
const PRIVATE_LANES: usize = 1;

#[cfg(loom)]
pub(crate) const LANE_COUNT: usize = 2;

/// All lanes of one open file.
#[derive(Debug)]
pub struct Lanes {
    /// Each lane is made when a thread first claims it, since most files use only a few.
    lanes: [OnceBox<CachePadded<Lane>>; LANE_COUNT],
    gates: CachePadded<Gates>,
    /// Threads that wait for a shared lane.
    queue: Arc<Queue>,
}

impl std::ops::Index<LaneIndex> for Lanes {
    type Output = Lane;

    #[inline]
    fn index(&self, lane: LaneIndex) -> &Lane {
        self.lanes[usize::from(lane.0)].get().expect("a lane that was taken was made")
    }
}

/// A lane in use by one operation.
pub struct InUse<'a> {
    lane: &'a Lane,
    index: LaneIndex,
}

impl InUse<'_> {
    /// Returns the lane's index.
    #[inline]
    pub fn index(&self) -> LaneIndex {
        self.index
    }

    /// Returns the lane's bit among the private lanes, or 0 for a shared lane.
    #[inline]
    pub fn bit(&self) -> u64 {
        1u64.checked_shl(self.index.0.into()).unwrap_or(0)
    }

    /// Returns `true` if the lane stays with this thread after the operation.
    #[inline]
    pub fn is_private(&self) -> bool {
        usize::from(self.index.0) < PRIVATE_LANES
    }
}

impl std::ops::Deref for InUse<'_> {
    type Target = Lane;

    #[inline]
    fn deref(&self) -> &Lane {
        self.lane
    }
}

impl Drop for InUse<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.is_private() {
            self.lane.release_shared(self.index);
        }
    }
}

/// The owner of a set of lanes that threads claim from. The engine implements it.
pub trait LaneKeeper: Send + Sync + 'static {
    /// Returns the lanes.
    fn lanes(&self) -> &Lanes;
    /// Makes durable what the lane still has to drain. The lane's thread calls this when it ends.
    fn before_release(&self, lane: LaneIndex);
}

/// A thread's claim to a private lane. Dropped when the thread ends.
struct Claim {
    keeper: Weak<dyn LaneKeeper>,
    /// Number of the file. Tells claims apart without touching the `Weak`.
    file: u64,
    lane: LaneIndex,
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Code that runs in this thread after its claims are gone must not find the lane.
        thread_cache::forget();
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
    /// Makes the lanes that the format has, all of them free.
    pub fn new() -> Self {
        let lanes = Lanes {
            lanes: std::array::from_fn(|_| OnceBox::new()),
            gates: CachePadded::new(Gates::new()),
            queue: Arc::new(Queue::new()),
        };
        // In a model all lanes exist from the start. When it removes an ordering, the protocol
        // under test must miss it, not the creation of a lane.
        #[cfg(loom)]
        for n in 0..LANE_COUNT {
            lanes.made(n);
        }
        lanes
    }

    /// Returns the lane with this number. Makes it if no thread has claimed it before.
    fn made(&self, n: usize) -> &Lane {
        self.lanes[n].get_or_init(|| Box::new(CachePadded::new(Lane::new(Arc::clone(&self.queue)))))
    }

    /// Enters the gate, and waits while it is closed: [`Gates::enter`].
    #[inline]
    pub fn enter<'a>(&self, gate: Gate, lane: &'a Lane) -> GateGuard<'a> {
        self.gates.enter(gate, &lane.inside)
    }

    /// Closes the gate and waits until no thread is inside: [`Gates::close`].
    pub fn close(&self, gate: Gate) -> ClosedGate<'_> {
        self.gates.close(gate, self.marks())
    }

    fn marks(&self) -> impl Iterator<Item = &GateMarks> {
        self.all().map(|lane| &lane.inside)
    }

    /// Returns every lane that a thread has ever claimed. A lane is made before its thread sets a
    /// mark in it. So a thread that orders this call after those marks finds the lane as well.
    pub fn all(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter().filter_map(OnceBox::get).map(|lane| &**lane)
    }

    /// Waits until every read section that is open now has ended. Must not be called from a read
    /// section.
    pub fn synchronize(&self) {
        // Orders the caller's changes before its loads of the marks, see `Lane::pin`.
        barrier::heavy();
        for word in self.all().map(|lane| &lane.pinned) {
            let seen = word.load(Ordering::Acquire);
            let mut backoff = Backoff::new();
            while !planted!(NoWaitForPinned)
                && seen % 2 == 1
                && word.load(Ordering::Acquire) == seen
            {
                backoff.wait();
            }
        }
    }

    /// Returns the sum of all lanes' counters.
    pub fn stats(&self) -> Stats {
        let mut sum = Stats::default();
        self.all().for_each(|lane| {
            sum.add(&lane.stats);
            sum.reads += lane.fast_reads();
            // Each direct store counts as one line here. Counting its bytes as well would cost each
            // direct store a further store.
            sum.bytes_written += lane.stats.get(Counter::DirectStore) * SLICE as u64;
        });
        sum
    }

    /// Returns the calling thread's lane of the file with the number `file`.
    #[inline]
    pub fn mine<'a>(&'a self, file: u64, keeper: &Weak<dyn LaneKeeper>) -> InUse<'a> {
        match thread_cache::lane_of(file) {
            Some(index) => InUse { lane: &self[index], index },
            None => self.look_for_mine(file, keeper),
        }
    }

    /// Returns the calling thread's lane, or `None` if the thread is inside the closure of a
    /// transaction.
    #[inline]
    pub fn mine_to_write<'a>(
        &'a self,
        file: u64,
        keeper: &Weak<dyn LaneKeeper>,
    ) -> Option<InUse<'a>> {
        match thread_cache::lane_unwatched_of(file) {
            Some(index) => Some(InUse { lane: &self[index], index }),
            None if thread_cache::is_watched() => None,
            None => Some(self.look_for_mine(file, keeper)),
        }
    }

    /// Returns the calling thread's private lane, if the value that the thread remembers equals
    /// `tag`. A private lane needs no giving back.
    #[inline(always)]
    pub fn cached_lane(&self, tag: impl FnOnce() -> Tag) -> Option<&Lane> {
        let index = thread_cache::lane_by_tag(tag)?;
        self.lanes[usize::from(index.0)].get().map(|lane| &**lane)
    }

    /// Returns the calling thread's private lane, if the thread's remembered file is the one of
    /// `tag`. Unlike `cached_lane`, this also succeeds after the thread has published something.
    #[inline(always)]
    pub fn cached_lane_for_write(&self, tag: impl FnOnce() -> Tag) -> Option<&Lane> {
        let index = thread_cache::lane_by_file_of(tag)?;
        self.lanes[usize::from(index.0)].get().map(|lane| &**lane)
    }

    #[cold]
    fn look_for_mine<'a>(&'a self, file: u64, keeper: &Weak<dyn LaneKeeper>) -> InUse<'a> {
        // A thread that is ending has no claims any more. It borrows a shared lane.
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
        let mine = mine.ok().flatten();
        if let Some(lane) = mine {
            thread_cache::remember(file, lane);
        }
        let index = mine.unwrap_or_else(|| self.borrow_shared(file));
        InUse { lane: &self[index], index }
    }

    /// Takes a shared lane, after the threads that already wait for one.
    fn borrow_shared(&self, file: u64) -> LaneIndex {
        if self.queue.waiting.load(Ordering::Relaxed) == 0
            && let Some(lane) = self.claim_shared(file)
        {
            return lane;
        }
        let mut handed = self.queue.handed.lock();
        let waiting = self.queue.waiting.load(Ordering::Relaxed);
        self.queue.waiting.store(waiting + 1, Ordering::Relaxed);
        // Orders the count before the search for a free lane. A thread that gives a lane back after
        // that search sees the count.
        fence(Ordering::SeqCst);
        let mine = loop {
            let lane = handed.pop_front().or_else(|| self.claim_shared(file));
            if let Some(lane) = lane {
                break lane;
            }
            self.queue.arrived.wait(&mut handed);
        };
        let waiting = self.queue.waiting.load(Ordering::Relaxed);
        self.queue.waiting.store(waiting - 1, Ordering::Relaxed);
        mine
    }

    fn claim_shared(&self, file: u64) -> Option<LaneIndex> {
        self.claim(thread_hash(file), PRIVATE_LANES, LANE_COUNT - PRIVATE_LANES)
    }

    /// Claims one of the `count` lanes from `first` on. Probing starts at the hash.
    fn claim(&self, hash: usize, first: usize, count: usize) -> Option<LaneIndex> {
        (0..count).map(|probe| first + (hash + probe) % count).find_map(|n| {
            self.made(n)
                .taken
                .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
                .map_or_else(|_| planted!(LaneTakenTwice), |_| true)
                .then_some(LaneIndex(n as u16))
        })
    }
}

/// Returns a hash that spreads threads over lanes. Threads that start one after the other get
/// neighbouring lanes.
fn thread_hash(file: u64) -> usize {
    primitive::thread_number().unwrap_or(file) as usize
}

/// Returns a new number for an opened file. Numbers are never reused.
pub fn next_file_number() -> u64 {
    // A `std` atomic, since the number belongs to the process and not to a model's execution.
    static FILES: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    FILES.fetch_add(1, Ordering::Relaxed)
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;
    use crate::primitive::{AtomicU64, Mutex};

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
        assert_eq!(k.lanes.all().count(), 0, "no thread has taken one");
        let first = k.lanes.mine(file, &weak).index();
        assert_eq!(k.lanes.all().count(), 1);
        assert_eq!(k.lanes.mine(file, &weak).index(), first);
        let theirs =
            std::thread::scope(|s| s.spawn(|| k.lanes.mine(file, &weak).index()).join().unwrap());
        assert_ne!(first, theirs);
        // A scope's join may return before the thread's locals are dropped.
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

    /// A waiting thread must be parked and woken in turn. If it polled for a lane instead,
    /// newcomers could overtake it.
    #[test]
    fn a_thread_that_waits_for_a_shared_lane_is_woken_when_one_is_given_back() {
        let (k, file) = new_keeper();
        let (say, said) = std::sync::mpsc::channel();
        let taken = std::sync::Barrier::new(LANE_COUNT + 1);
        let end = std::sync::Barrier::new(LANE_COUNT + 1);
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        std::thread::scope(|s| {
            for _ in 0..LANE_COUNT {
                s.spawn(|| {
                    let weak = keeper(&k);
                    let lane = k.lanes.mine(file, &weak);
                    taken.wait();
                    if !lane.is_private() {
                        wait.lock().recv().expect("the test says when");
                    }
                    drop(lane);
                    end.wait();
                });
            }
            taken.wait();
            let late: Vec<_> = (0..4)
                .map(|_| {
                    let say = say.clone();
                    let (k, weak) = (&k, keeper(&k));
                    s.spawn(move || {
                        drop(k.lanes.mine(file, &weak));
                        say.send(()).expect("the test waits");
                    })
                })
                .collect();
            while k.lanes.queue.waiting.load(Ordering::Relaxed) < late.len() as u64 {
                std::thread::yield_now();
            }
            // One lane, handed from one thread to the next.
            go.send(()).expect("a thread waits");
            let backoff = std::time::Duration::from_secs(20);
            let woken = late.iter().filter(|_| said.recv_timeout(backoff).is_ok()).count();
            (1..LANE_COUNT - PRIVATE_LANES).for_each(|_| go.send(()).expect("a thread waits"));
            end.wait();
            assert_eq!(woken, 4);
        });
        assert_eq!(k.lanes.queue.waiting.load(Ordering::Relaxed), 0);
    }
}
