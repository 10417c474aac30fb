//! Which lane is mine, and which of its entries are still live?
//!
//! Owns: the lanes' DRAM side. A lane is MGSP's lock-free metadata log (III-C1): a thread claims
//! one by hash and compare-and-swap with linear probing, and keeps it until it ends or the file is
//! closed, because a flush is completed only by a drain of the thread that issued it. Threads that
//! find no private lane are lent a shared one for one operation; the rings of shared lanes stay
//! empty, so that nothing is left to be flushed when they are given back.
//!
//! Invariants:
//! - a private lane's fields are stored to by its owner only, but for the page of a record, which
//!   whoever made the entry void sets to none;
//! - whoever takes locks has a lane, and who has taken one beside another's knows that nobody is inside the gate of who is
//!   alone, nor will be: so who is inside is the only one that works on the file;
//! - a record names what the entry in its place says until a newer entry over it has been drained;
//! - the words of all entries before `unsettled_from` are durable, and that is never more than a batch
//!   behind: so an entry's place is used again only when nothing needs the entry any more.
//!
//! May import `format`, `units`, `lock`, `mutant`, `engine::{gates, recent, stats}`, `primitive`, `thread`, and the fences of
//! `platform`.

use super::gates::{Gate, Gates, Inside, Marks, Shut};
use super::recent::Recent;
use super::stats::{Block, Counter, Stats};
use crate::format::entry::Sequence;
#[cfg(not(loom))]
use crate::format::layout::{LANE_COUNT, PRIVATE_LANES, RING};
use crate::lock::Patience;
use crate::mutant::{planted, unless};
use crate::platform::barrier;
use crate::primitive::{self, AtomicBool, AtomicU64, Condvar, Mutex, OnceBox, Ordering, fence};
use crate::thread::{self, Tag};
use crate::units::{LaneIndex, PageIndex, SLICE};
use crossbeam_utils::CachePadded;
use std::cell::RefCell;
use std::collections::VecDeque;
#[cfg(not(any(loom, shuttle)))]
use std::mem::offset_of;
use std::sync::{Arc, Weak};

/// One lane of each kind: two threads are enough to compete for it, and every word costs an
/// explorer of executions.
#[cfg(loom)]
const PRIVATE_LANES: usize = 1;
#[cfg(loom)]
const LANE_COUNT: usize = 2;
/// Fewer than a batch: no model makes so many vouched flips that a place would be used again.
#[cfg(loom)]
const RING: usize = 2;

/// What a live entry says: who looks holds the lock of the page that it names.
#[derive(Clone, Copy, Debug)]
pub struct LiveEntry {
    /// Its lane.
    pub lane: LaneIndex,
    /// Its number there.
    pub sequence: Sequence,
    /// The slices that it moved.
    pub slices: u64,
    /// Whether the word that it vouches for is durable by itself.
    pub is_settled: bool,
}

/// DRAM's copy of what one entry says, but for its page.
#[derive(Debug, Default)]
struct Record {
    sequence: AtomicU64,
    slices: AtomicU64,
}

/// One lane. What every operation stores to, but for the counters of `stats`, comes first, in one cache line.
#[derive(Debug)]
#[repr(C)]
pub struct Lane {
    /// Odd while it is pinned by a read that is tried once. Half of it is how many of those there were.
    at_once: AtomicU64,
    /// Odd while the lane's thread is pinned.
    pinned: AtomicU64,
    vouch_sequence: AtomicU64,
    /// Number of the first entry whose word may not be durable by itself.
    unsettled_from: AtomicU64,
    undo_sequence: AtomicU64,
    taken: AtomicBool,
    allocated: AtomicBool,
    inside: Marks,
    /// What the lane's threads did lately.
    pub recent: Recent,
    /// What the lane's threads did.
    pub stats: Block,
    /// What the entries of the ring are about: page index + 1; 0 = they name nothing. Apart from the
    /// rest, so that a look for a page reads few lines.
    pages: [AtomicU64; RING],
    records: [Record; RING],
    /// Threads that wait for a shared lane of the file.
    queue: Arc<Queue>,
}

// A model checker's words are larger.
#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(offset_of!(Lane, recent) + Recent::USED_MOST <= 64);

/// A lane's thread is pinned while this lives: `Lanes::wait_for_pinned` waits for it.
pub struct Pinned<'a>(&'a AtomicU64);

impl Drop for Pinned<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: what the thread read and touched while pinned comes before.
        self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}

/// The same for a read that is tried once.
pub struct AtOnce<'a>(&'a AtomicU64);

impl AtOnce<'_> {
    /// How many such reads the lane's threads have done before.
    #[inline(always)]
    pub fn number(&self) -> u64 {
        self.0.load(Ordering::Relaxed) / 2
    }

    /// The read has its bytes, and is counted.
    #[inline(always)]
    pub fn has_read(self) {
        // Release: what the thread has read while pinned comes before.
        let step = if planted!(ReadUnpinned) { 2 } else { 1 };
        self.0.store(self.0.load(Ordering::Relaxed) + step, Ordering::Release);
        std::mem::forget(self);
    }

    /// The read has not its bytes: false, so that this may be the last thing that its function calls.
    #[inline(always)]
    pub fn has_not_read(self) -> bool {
        let word = self.0;
        std::mem::forget(self);
        give_back(word)
    }
}

/// Ends the pin of a read that has not read. (Out of the way: what it needs is not kept at hand by who reads.)
#[cold]
#[inline(never)]
fn give_back(word: &AtomicU64) -> bool {
    // Release: as above. The number of the pin is used again: who waits for it to go may then wait for the next
    // one, too, and no longer.
    let step = u64::from(!planted!(ReadUnpinned));
    word.store(word.load(Ordering::Relaxed) - step, Ordering::Release);
    false
}

impl Drop for AtOnce<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        give_back(self.0);
    }
}

impl Lane {
    fn new(queue: Arc<Queue>) -> Self {
        Lane {
            queue,
            taken: AtomicBool::new(false),
            allocated: AtomicBool::new(false),
            pages: std::array::from_fn(|_| AtomicU64::new(0)),
            records: std::array::from_fn(|_| Record::default()),
            vouch_sequence: AtomicU64::new(Sequence::FIRST.bits()),
            unsettled_from: AtomicU64::new(Sequence::FIRST.bits()),
            undo_sequence: AtomicU64::new(Sequence::FIRST.bits()),
            pinned: AtomicU64::new(0),
            at_once: AtomicU64::new(0),
            inside: Marks::new(),
            recent: Recent::new(),
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

    /// Pins it for a read that is tried once, where the light fences are the usual ones
    /// (`barrier::is_usual`). Pin and count are one word.
    #[inline]
    pub fn pin_at_once(&self) -> AtOnce<'_> {
        let count = self.at_once.load(Ordering::Relaxed);
        debug_assert!(count.is_multiple_of(2), "a pin does not nest");
        unless!(ReadUnpinned, self.at_once.store(count + 1, Ordering::Relaxed));
        // As above.
        barrier::usual();
        AtOnce(&self.at_once)
    }

    /// Reads that were done at once.
    pub fn reads_at_once(&self) -> u64 {
        self.at_once.load(Ordering::Relaxed) / 2
    }

    /// Reads that were done.
    pub fn reads(&self) -> u64 {
        self.stats.get(Counter::Reads) + self.reads_at_once()
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

    #[inline(always)]
    fn take_sequence(sequence: &AtomicU64) -> Sequence {
        let taken = Sequence::from_bits(sequence.load(Ordering::Relaxed));
        unless!(SequenceStands, sequence.store(taken.next().bits(), Ordering::Relaxed));
        taken
    }

    /// The number of the owner's next entry in the ring.
    #[inline]
    pub fn next_vouch(&self) -> Sequence {
        Self::take_sequence(&self.vouch_sequence)
    }

    /// The number of the owner's next undo entry.
    pub fn next_undo(&self) -> Sequence {
        let own = !planted!(OneSequenceForBoth);
        Self::take_sequence(if own { &self.undo_sequence } else { &self.vouch_sequence })
    }

    /// Notes what the entry with this number says, once it was drained. By the owner.
    #[inline]
    pub fn note(&self, sequence: Sequence, page: PageIndex, slices: u64) {
        let place = place(sequence);
        let record = &self.records[place];
        // Who holds the lock of the page that was named until now may be reading: no name first,
        // so that a name is never seen with another entry's slices.
        self.pages[place].store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        record.sequence.store(sequence.bits(), Ordering::Relaxed);
        record.slices.store(slices, Ordering::Relaxed);
        self.pages[place].store(page.0 + 1, Ordering::Release);
    }

    /// The live entries that name `page`, whose lock the caller holds: so no entry can begin to name it
    /// meanwhile, and one that stops naming it has become void.
    pub fn live(&self, lane: LaneIndex, page: PageIndex) -> impl Iterator<Item = LiveEntry> + '_ {
        self.pages.iter().zip(&self.records).filter_map(move |(named, record)| {
            if named.load(Ordering::Acquire) != page.0 + 1 {
                return None;
            }
            let sequence = Sequence::from_bits(record.sequence.load(Ordering::Relaxed));
            let entry = LiveEntry {
                lane,
                sequence,
                slices: record.slices.load(Ordering::Relaxed),
                is_settled: self.is_settled(sequence),
            };
            fence(Ordering::Acquire);
            (named.load(Ordering::Relaxed) == page.0 + 1).then_some(entry)
        })
    }

    /// Notes that the entry was made void by the holder of `page`'s lock.
    pub fn forget(&self, sequence: Sequence, page: PageIndex) {
        // Fails where the owner has noted a newer entry meanwhile, which is as well.
        let _ = self.pages[place(sequence)].compare_exchange(
            page.0 + 1,
            if planted!(VoidStaysNoted) { page.0 + 1 } else { 0 },
            Ordering::Release,
            Ordering::Relaxed,
        );
    }

    fn is_settled(&self, sequence: Sequence) -> bool {
        // Acquire: with the number comes the drain before it.
        let from = self.unsettled_from.load(Ordering::Acquire);
        sequence.is_before(Sequence::from_bits(from))
    }

    /// The pages whose words are not known to be durable, of the owner's entries before `end`. Void ones
    /// are left out: who made them void has seen to their words, or the page is gone.
    pub fn unsettled(&self, end: Sequence) -> impl Iterator<Item = PageIndex> + '_ {
        let from = Sequence::from_bits(self.unsettled_from.load(Ordering::Relaxed));
        let in_ring = std::iter::successors(Some(from), |sequence| Some(sequence.next()));
        in_ring.take_while(move |sequence| sequence.is_before(end)).filter_map(|sequence| {
            let named = self.pages[place(sequence)].load(Ordering::Acquire);
            Some(PageIndex(named.checked_sub(1)?))
        })
    }

    /// Notes that the words of all entries before `end` have been flushed and drained. By the owner.
    #[inline]
    pub fn set_settled(&self, end: Sequence) {
        self.unsettled_from.store(end.bits(), Ordering::Release);
    }

    /// Whether what recovery takes for durable is so, when it finds the entry with this number: the owner's next.
    pub fn keeps_batches(&self, next: Sequence) -> bool {
        let from = Sequence::from_bits(self.unsettled_from.load(Ordering::Relaxed));
        !from.is_before(next.needed_from())
    }

    /// The number that the owner's next entry will have.
    #[inline]
    pub fn upcoming(&self) -> Sequence {
        Sequence::from_bits(self.vouch_sequence.load(Ordering::Relaxed))
    }

    /// Gives back this lane, which is a shared one, or hands it to a thread that waits for one.
    #[cold]
    #[inline(never)]
    fn give_back_shared(&self, index: LaneIndex) {
        // Release: what the operation did in the lane comes before.
        self.taken.store(false, Ordering::Release);
        // Orders that before the look at the count: a thread that counts itself and then finds no lane free is found here.
        fence(Ordering::SeqCst);
        if self.queue.waiting.load(Ordering::Relaxed) == 0 || planted!(LaneHandedToNobody) {
            return;
        }
        let mut handed = self.queue.handed.lock();
        let may_hand = self.queue.waiting.load(Ordering::Relaxed) > handed.len() as u64;
        // Another thread may have claimed it meanwhile: that one hands it on.
        let taken = (Ordering::Acquire, Ordering::Relaxed);
        if may_hand && self.taken.compare_exchange(false, true, taken.0, taken.1).is_ok() {
            handed.push_back(index);
            self.queue.arrived.notify_one();
        }
    }

    /// What the entries of the ring are about, for when nobody operates.
    pub fn all_live(&self) -> impl Iterator<Item = PageIndex> + '_ {
        self.pages
            .iter()
            .filter_map(|page| Some(PageIndex(page.load(Ordering::Acquire).checked_sub(1)?)))
    }
}

/// The place in the ring, of which a model checker has a small one.
#[inline]
fn place(sequence: Sequence) -> usize {
    sequence.place() % RING
}

/// All lanes of one open file.
#[derive(Debug)]
pub struct Lanes {
    /// Each is made when a thread takes it for the first time: few files ever have more than a few.
    lanes: [OnceBox<CachePadded<Lane>>; LANE_COUNT],
    gates: CachePadded<Gates>,
    /// Threads that wait for a shared lane.
    queue: Arc<Queue>,
    /// The gate of who is alone was shut, for good, and nobody is inside any more.
    are_shared: AtomicBool,
}

impl std::ops::Index<LaneIndex> for Lanes {
    type Output = Lane;

    #[inline]
    fn index(&self, lane: LaneIndex) -> &Lane {
        self.lanes[usize::from(lane.0)].get().expect("a lane that was taken was made")
    }
}

/// Where threads wait for a shared lane: parked, and served in turn.
#[derive(Debug)]
struct Queue {
    /// How many threads wait. Changed under `handed`.
    waiting: AtomicU64,
    /// Lanes that are taken for threads that wait, and not fetched yet.
    handed: Mutex<VecDeque<LaneIndex>>,
    arrived: Condvar,
}

impl Queue {
    fn new() -> Self {
        Queue {
            waiting: AtomicU64::new(0),
            handed: Mutex::new(VecDeque::new()),
            arrived: Condvar::new(),
        }
    }
}

/// A lane in use by one operation.
pub struct InUse<'a> {
    lane: &'a Lane,
    index: LaneIndex,
}

impl InUse<'_> {
    /// Which lane it is.
    #[inline]
    pub fn index(&self) -> LaneIndex {
        self.index
    }

    /// Its bit among the private lanes. None if it is not one.
    #[inline]
    pub fn bit(&self) -> u64 {
        1u64.checked_shl(self.index.0.into()).unwrap_or(0)
    }

    /// Whether the lane stays with this thread after the operation.
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
            self.lane.give_back_shared(self.index);
        }
    }
}

/// A lane that was taken just now: given back by a panic, before anybody has worked in it.
struct Claimed<'a> {
    lane: &'a Lane,
    is_kept: bool,
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
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
        // Whoever runs in this thread after its claims have gone must not find the lane.
        thread::forget();
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
        let lanes = Lanes {
            lanes: std::array::from_fn(|_| OnceBox::new()),
            gates: CachePadded::new(Gates::new()),
            queue: Arc::new(Queue::new()),
            are_shared: AtomicBool::new(!barrier::is_usual()),
        };
        // A model finds them made: where it leaves orders out, the protocols are to miss them, and not who makes a lane.
        #[cfg(loom)]
        for n in 0..LANE_COUNT {
            lanes.made(n);
        }
        lanes
    }

    /// The lane with this number, made if nobody has taken it before.
    fn made(&self, n: usize) -> &Lane {
        self.lanes[n].get_or_init(|| Box::new(CachePadded::new(Lane::new(Arc::clone(&self.queue)))))
    }

    /// Passes the gate, and waits while it is shut: [`Gates::enter`].
    #[inline]
    pub fn enter<'a>(&self, gate: Gate, lane: &'a Lane) -> Inside<'a> {
        self.gates.enter(gate, &lane.inside)
    }

    /// Passes the gate of who is alone, if nobody else has had a lane beside this thread's: [`Gates::enter_alone`].
    #[inline(always)]
    pub fn enter_alone<'a>(&self, lane: &'a Lane) -> Option<Inside<'a>> {
        self.gates.enter_alone(&lane.inside)
    }

    /// By who has taken `lane` just now, and holds nothing that anybody waits for: if somebody else has one, nobody takes
    /// a lock by plain stores any more when this returns.
    fn note_taken(&self, lane: &Lane) {
        // Acquire: who found nobody inside, and all that they had changed.
        if self.are_shared.load(Ordering::Acquire) {
            return;
        }
        // Orders the claim before the looks: of two who claim at the same time, one finds the other. Acquire: who has given
        // its lane back has let go of its locks.
        fence(Ordering::SeqCst);
        let is_other = |other: &&Lane| !std::ptr::eq(*other, lane);
        let are_several =
            self.all().filter(is_other).any(|other| other.taken.load(Ordering::Acquire));
        if are_several && !planted!(AloneAmongOthers) {
            self.share();
        }
    }

    /// Nobody is alone any more when this returns, for good. By who is not inside.
    #[cold]
    pub fn share(&self) {
        // Others may do the same at the same time.
        self.gates.shut_for_good(Gate::Alone, self.marks());
        // Release: as who reads it acquires it.
        self.are_shared.store(true, Ordering::Release);
    }

    /// Shuts the gate and waits until nobody is inside: [`Gates::shut`].
    pub fn shut(&self, gate: Gate) -> Shut<'_> {
        self.gates.shut(gate, self.marks())
    }

    fn marks(&self) -> impl Iterator<Item = &Marks> {
        self.all().map(|lane| &lane.inside)
    }

    /// Every lane that a thread has ever taken. For who looks for marks that threads have set in theirs: a lane is
    /// made before that, so who orders its look behind the marks finds the lane as well.
    pub fn all(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter().filter_map(OnceBox::get).map(|lane| &**lane)
    }

    /// Waits until every thread that is pinned now has been unpinned. Not while pinned.
    pub fn wait_for_pinned(&self) {
        // Orders the caller's changes before the looks at the marks, see `Lane::pin`.
        barrier::heavy();
        for word in self.all().flat_map(|lane| [&lane.pinned, &lane.at_once]) {
            let seen = word.load(Ordering::Acquire);
            let mut patience = Patience::new();
            while !planted!(NoWaitForPinned)
                && seen % 2 == 1
                && word.load(Ordering::Acquire) == seen
            {
                patience.wait();
            }
        }
    }

    /// The sum of what all lanes counted.
    pub fn stats(&self) -> Stats {
        let mut sum = Stats::default();
        self.all().for_each(|lane| {
            sum.add(&lane.stats);
            sum.reads += lane.reads_at_once();
            // Each is a part of one line. Not counted one by one: that is a store for each of them.
            sum.bytes_written += lane.stats.get(Counter::OneStore) * SLICE as u64;
        });
        sum
    }

    /// The calling thread's lane of the file with the number `file`.
    #[inline]
    pub fn mine<'a>(&'a self, file: u64, keeper: &Weak<dyn LaneKeeper>) -> InUse<'a> {
        match thread::lane_of(file) {
            Some(index) => InUse { lane: &self[index], index },
            None => self.look_for_mine(file, keeper),
        }
    }

    /// The calling thread's lane, unless the thread is inside the closure of a transaction.
    #[inline]
    pub fn mine_to_write<'a>(
        &'a self,
        file: u64,
        keeper: &Weak<dyn LaneKeeper>,
    ) -> Option<InUse<'a>> {
        match thread::lane_unwatched_of(file) {
            Some(index) => Some(InUse { lane: &self[index], index }),
            None if thread::is_watched() => None,
            None => Some(self.look_for_mine(file, keeper)),
        }
    }

    /// The calling thread's lane, if `tag` gives what it remembers. A private one: nothing is given back.
    #[inline(always)]
    pub fn at_hand(&self, tag: impl FnOnce() -> Tag) -> Option<&Lane> {
        let index = thread::lane_by_tag(tag)?;
        self.lanes[usize::from(index.0)].get().map(|lane| &**lane)
    }

    /// The same, whether or not the thread has published something since.
    #[inline(always)]
    pub fn at_hand_to_write(&self, tag: impl FnOnce() -> Tag) -> Option<&Lane> {
        let index = thread::lane_by_file_of(tag)?;
        self.lanes[usize::from(index.0)].get().map(|lane| &**lane)
    }

    #[cold]
    fn look_for_mine<'a>(&'a self, file: u64, keeper: &Weak<dyn LaneKeeper>) -> InUse<'a> {
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
        let mine = mine.ok().flatten();
        if let Some(lane) = mine {
            thread::remember(file, lane);
        }
        let index = mine.unwrap_or_else(|| self.borrow_shared(file));
        InUse { lane: &self[index], index }
    }

    /// Takes a shared lane, behind the threads that wait for one already.
    fn borrow_shared(&self, file: u64) -> LaneIndex {
        if self.queue.waiting.load(Ordering::Relaxed) == 0
            && let Some(lane) = self.claim_shared(file)
        {
            return lane;
        }
        let mut handed = self.queue.handed.lock();
        let waiting = self.queue.waiting.load(Ordering::Relaxed);
        self.queue.waiting.store(waiting + 1, Ordering::Relaxed);
        // Orders the count before the look at the lanes: a thread that gives one back after that finds the count.
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

    /// Claims one of `count` lanes from `first` on, probing from where the hash points.
    fn claim(&self, hash: usize, first: usize, count: usize) -> Option<LaneIndex> {
        (0..count)
            .map(|probe| first + (hash + probe) % count)
            .find_map(|n| {
                self.made(n)
                    .taken
                    .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
                    .map_or_else(|_| planted!(LaneTakenTwice), |_| true)
                    .then_some(LaneIndex(n as u16))
            })
            .inspect(|index| {
                let lane = &self[*index];
                let mut claimed = Claimed { lane, is_kept: false };
                self.note_taken(lane);
                claimed.is_kept = true;
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
        assert_eq!(k.lanes.all().count(), 0, "nobody has taken one");
        let first = k.lanes.mine(file, &weak).index();
        assert_eq!(k.lanes.all().count(), 1);
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

    /// It looked for one again and again, a tenth of a millisecond apart, and others came before it.
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
            // One lane, from one to the next.
            go.send(()).expect("a thread waits");
            let patience = std::time::Duration::from_secs(20);
            let woken = late.iter().filter(|_| said.recv_timeout(patience).is_ok()).count();
            (1..LANE_COUNT - PRIVATE_LANES).for_each(|_| go.send(()).expect("a thread waits"));
            end.wait();
            assert_eq!(woken, 4);
        });
        assert_eq!(k.lanes.queue.waiting.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_record_is_seen_only_by_its_page() {
        let lane = Lane::new(Arc::new(Queue::new()));
        let live = |page| lane.live(LaneIndex(0), PageIndex(page)).next();
        let first = lane.next_vouch();
        lane.note(first, PageIndex(7), 0b11);
        assert!(live(8).is_none());
        let entry = live(7).expect("just noted");
        assert_eq!((entry.sequence, entry.slices), (first, 0b11));
        assert!(!entry.is_settled);
        assert_eq!(lane.unsettled(lane.upcoming()).collect::<Vec<_>>(), [PageIndex(7)]);
        lane.set_settled(lane.upcoming());
        assert_eq!(lane.unsettled(lane.upcoming()).count(), 0);
        assert!(live(7).expect("still there").is_settled);
        let second = lane.next_vouch();
        lane.note(second, PageIndex(7), 1);
        assert_eq!(lane.live(LaneIndex(0), PageIndex(7)).count(), 2);
        lane.forget(second, PageIndex(7));
        assert_eq!(live(7).expect("the first").sequence, first);
        assert_eq!(lane.unsettled(lane.upcoming()).count(), 0, "it is void");
    }
}
