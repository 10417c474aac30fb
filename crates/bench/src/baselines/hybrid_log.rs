//! Libnvmmio: a log entry for each block, found through an index. Each epoch uses undo or redo, by
//! the operations of the last one. A sync raises the epoch, and a thread checkpoints in the
//! background.
//!
//! From: Libnvmmio, sections 3.2 (entries and index), 3.3 (epochs, checkpoints) and 3.4 (undo or
//! redo). Kept: all of that. An entry has one changed range. A reader-writer lock guards the file,
//! and a sync takes it exclusively. Each block has a lock. Checkpoints run every 100 microseconds,
//! and redo starts at 40 % writes. Not kept, and why it does not slow it down:
//! - Log blocks of up to 2 MiB: all blocks have 4 KiB. A write of 64 KiB has 16 entries, stored one
//!   after the other without a wait.
//! - Four levels of index, with a pointer that skips unused ones: two levels are enough, since
//!   files here end at 1 GiB.
//! - Interception of system calls.
//!
//! A write under redo, with its blocks locked:
//! 1. The bytes go to the log entries of the blocks. The head of an entry holds its range and its
//!    epoch. Drain: before the epoch that commits the entries, and before other threads may read
//!    them. If the entry's last range is committed and not checkpointed yet, that range is first
//!    stored in place. Drain: before the entry is cleared. The drain above makes the clearing
//!    durable before the epoch.
//!
//! A write under undo:
//! 1. The old bytes go to the entries. Drain: before the first new byte.
//! 2. The new bytes are stored in place. Drain: before the epoch that commits them, and before
//!    other threads may read them.
//!
//! A sync raises the epoch, one word. Drain: the commit point.
//!
//! A write and its sync take two drains under redo, at any size, and three under undo. All threads
//! of a file share the epoch, so a sync also commits the finished writes of other threads.
//!
//! A checkpoint locks some blocks at a time and stores the ranges of their committed redo entries
//! in place. Drain: before the entries are cleared. Then it clears them. Drain: before they are
//! used again, and before a newer entry of the block can be cleared. Committed undo entries have no
//! effect and are simply free.
//!
//! Recovery: redo entries of past epochs are stored in place. If a block has two of them, the later
//! one is stored: the bytes of the earlier one were in place before it. Undo entries of the current
//! epoch are stored back. Then all heads are cleared. A head alternates between two lines, so a
//! torn line leaves the one before it: an undo entry that grows must stay whole.
//!
//! May import `parts`, `memory` and `subject`.

use super::parts::ground::Ground;
use super::parts::lane::{self, LANES, Padded};
use super::parts::pages::{PAGE, Pages, Parts, pieces, pieces_mut, span};
use super::parts::record;
use crate::memory::Memory;
use crate::subject::{Kind, Subject};
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

/// The system with logs as large as measured.
pub const HYBRID_LOG: Kind = Kind {
    name: "Libnvmmio",
    source: "Libnvmmio 3",
    durable_writes: false,
    open: |folder, len| Ok(Box::new(HybridLog::open(folder, len, 16 << 10)?)),
};

/// The system with logs that are soon full.
pub const TIGHT: Kind = Kind {
    name: "Libnvmmio, tight",
    open: |folder, len| Ok(Box::new(HybridLog::open(folder, len, 1536)?)),
    ..HYBRID_LOG
};

/// Time between checkpoints, from the paper.
const EVERY: Duration = Duration::from_micros(100);
/// Percentage of writes from which on redo is used, from the paper.
const REDO_FROM: u64 = 40;
/// Number of blocks that a checkpoint locks at a time.
const AT_A_TIME: usize = 16;
/// Number of free entries that a lane takes at a time.
const AT_HAND: usize = 32;
/// Number of idle rounds after which the thread sleeps until a writer wakes it.
const IDLE: u32 = 100;
const ASLEEP: Duration = Duration::from_millis(50);

const LINE: u64 = 64;
const REDO: u64 = 1 << 63;

#[derive(Debug)]
struct HybridLog {
    shared: Arc<Shared>,
    worker: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    memory: Memory,
    pages: Pages,
    /// Offsets of the epoch, the heads, and the log blocks.
    epoch_at: u64,
    heads: u64,
    blocks: u64,
    epoch: Padded<AtomicU64>,
    redo: AtomicBool,
    /// Writers lock it shared, and a sync locks it exclusively. It holds the counts of reads and
    /// writes until the last sync.
    file: Padded<RwLock<[u64; 2]>>,
    /// Counts of reads and writes, for each lane.
    counts: [Padded<[AtomicU64; 2]>; LANES],
    /// The index: each page's entry plus one.
    index: Box<[OnceLock<Box<[AtomicU32]>>]>,
    entries: Box<[Entry]>,
    lanes: [Padded<Mutex<Lane>>; LANES],
    free: Padded<Mutex<Vec<u32>>>,
    /// Pages that may have an entry to checkpoint.
    work: Padded<Mutex<Vec<u64>>>,
    asleep: AtomicBool,
    stop: AtomicBool,
    thread: OnceLock<Thread>,
}

/// The state of an entry. Only the thread that has locked its page changes it.
#[derive(Debug, Default)]
struct Entry {
    epoch: AtomicU64,
    /// Start and end, and a bit for redo.
    range: AtomicU64,
    /// Number of the head. Each head has the next number.
    sequence: AtomicU64,
}

#[derive(Debug, Default)]
struct Lane {
    free: Vec<u32>,
    /// Entries that are cleared, but not durably.
    cleared: Vec<u32>,
    /// Pages that got an entry.
    written: Vec<u64>,
}

/// The range of an entry.
#[derive(Clone, Copy)]
struct Range {
    from: usize,
    to: usize,
    redo: bool,
}

impl Range {
    fn bits(self) -> u64 {
        (self.from as u64) << 32 | self.to as u64 | if self.redo { REDO } else { 0 }
    }

    fn of(bits: u64) -> Range {
        let (from, to) = ((bits & !REDO) >> 32, bits & u64::from(u32::MAX));
        Range { from: from as usize, to: to as usize, redo: bits & REDO != 0 }
    }
}

const BRANCHES: u64 = 512;

impl Shared {
    fn slot(&self, page: u64) -> &AtomicU32 {
        let leaf = self.index[(page / BRANCHES) as usize]
            .get_or_init(|| (0..BRANCHES).map(|_| AtomicU32::new(0)).collect());
        &leaf[(page % BRANCHES) as usize]
    }

    fn entry_of(&self, page: u64) -> Option<u32> {
        self.slot(page).load(Ordering::Relaxed).checked_sub(1)
    }

    fn entry(&self, entry: u32) -> (&Entry, u64, Range) {
        let known = &self.entries[entry as usize];
        (known, known.epoch.load(Ordering::Relaxed), Range::of(known.range.load(Ordering::Relaxed)))
    }

    fn block(&self, entry: u32) -> u64 {
        self.blocks + u64::from(entry) * PAGE
    }

    fn head(&self, entry: u32) -> u64 {
        self.heads + u64::from(entry) * 2 * LINE
    }

    /// Stores the contents of an entry, on the medium and in memory.
    fn name(&self, entry: u32, page: u64, epoch: u64, range: Range) {
        let known = &self.entries[entry as usize];
        let sequence = known.sequence.load(Ordering::Relaxed) + 1;
        let mut body = [0; 16];
        body[..8].copy_from_slice(&epoch.to_le_bytes());
        body[8..].copy_from_slice(&range.bits().to_le_bytes());
        record::put(&self.memory, self.head(entry) + sequence % 2 * LINE, sequence, page, &body);
        known.sequence.store(sequence, Ordering::Relaxed);
        known.epoch.store(epoch, Ordering::Relaxed);
        known.range.store(range.bits(), Ordering::Relaxed);
    }

    fn clear(&self, entry: u32) {
        let second = [8, LINE + 8];
        second.iter().for_each(|at| self.memory.store_word(0, self.head(entry) + at));
    }

    /// Stores the range of a redo entry in place.
    fn bring_home(&self, entry: u32, page: u64) {
        let range = self.entry(entry).2;
        let (log, home) = (self.block(entry) + range.from as u64, page * PAGE + range.from as u64);
        record::copy(&self.memory, log, home, range.to - range.from);
    }

    /// Locks the file for a writer, and the lane with at least `need` free entries.
    fn begin(&self, need: usize) -> (RwLockReadGuard<'_, [u64; 2]>, MutexGuard<'_, Lane>) {
        assert!(need <= self.entries.len() / 2, "more blocks than there are log entries");
        let mine = lane::mine();
        for turn in 0.. {
            let file = self.file.0.read().expect("no thread has panicked");
            let mut lane = self.lanes[mine].0.lock().expect("no thread has panicked");
            if lane.free.len() < need {
                let mut free = self.free.0.lock().expect("no thread has panicked");
                let take = (need - lane.free.len()).max(AT_HAND).min(free.len());
                let rest = free.len() - take;
                lane.free.extend(free.drain(rest..));
            }
            if lane.free.len() >= need {
                return (file, lane);
            }
            // Does not take the free entries of other lanes: there are enough for all threads.
            drop((lane, file));
            if turn > 0 {
                // Only committed entries can be checkpointed.
                self.raise_epoch();
            }
            self.checkpoint();
        }
        unreachable!("the loop has no end")
    }

    fn write_parts(&self, parts: &Parts<'_>) {
        let memory = &self.memory;
        let mine = lane::mine();
        let most = parts.iter().map(|(at, data)| span(*at, data.len()).count()).sum();
        let (_file, mut lane) = self.begin(most);
        let lane = &mut *lane;
        self.counts[mine].0[1].fetch_add(1, Ordering::Relaxed);
        let closed = self.pages.close_parts(parts);
        let epoch = self.epoch.0.load(Ordering::Relaxed);
        let redo = self.redo.load(Ordering::Relaxed);
        let all = || parts.iter().flat_map(|(offset, data)| pieces(*offset, data));
        let mut coming = all().peekable();
        while let Some((page, start, piece)) = coming.next() {
            let (mut end, mut dense) = (start + piece.len(), true);
            while let Some((_, start, piece)) = coming.next_if(|next| next.0 == page) {
                dense &= start == end;
                end = start + piece.len();
            }
            self.prepare(lane, page, epoch, Range { from: start, to: end, redo }, dense);
        }
        if redo {
            for (page, start, piece) in all() {
                let entry = self.entry_of(page).expect("prepared");
                memory.store(piece, self.block(entry) + start as u64);
            }
        } else {
            // Orders the old bytes before the new ones.
            memory.drain();
            for (page, start, piece) in all() {
                memory.store(piece, page * PAGE + start as u64);
            }
        }
        // Redo: orders the entries, and the clearing of earlier ones. Undo: orders the new bytes.
        // Both come before the epoch that commits them, which any thread may raise, and before
        // other threads may read.
        memory.drain();
        drop(closed);
        lane.free.append(&mut lane.cleared);
        if lane.free.len() > 2 * AT_HAND {
            let mut free = self.free.0.lock().expect("no thread has panicked");
            free.extend(lane.free.drain(AT_HAND..));
        }
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            self.thread.get().expect("set when opened").unpark();
        }
    }

    /// Gives a page an entry of this epoch for a range. If `dense`, the caller will store all of
    /// the range.
    fn prepare(&self, lane: &mut Lane, page: u64, epoch: u64, range: Range, dense: bool) {
        let memory = &self.memory;
        let home = page * PAGE;
        let fill = |entry: u32, from: usize, to: usize| {
            if from < to {
                let block = self.block(entry);
                record::copy(memory, home + from as u64, block + from as u64, to - from);
            }
        };
        let mut has = self.entry_of(page);
        if let Some(entry) = has
            && self.entry(entry).1 < epoch
        {
            if self.entry(entry).2.redo {
                self.bring_home(entry, page);
                // Orders the bytes in place before the clearing of the entry.
                memory.drain();
                self.clear(entry);
            }
            // A committed undo entry has no effect any more.
            lane.cleared.push(entry);
            has = None;
        }
        let Some(entry) = has else {
            let entry = lane.free.pop().expect("there are as many as pages");
            if !range.redo || !dense {
                fill(entry, range.from, range.to);
            }
            self.name(entry, page, epoch, range);
            self.slot(page).store(entry + 1, Ordering::Relaxed);
            lane.written.push(page);
            return;
        };
        let old = self.entry(entry).2;
        let both = Range { from: old.from.min(range.from), to: old.to.max(range.to), ..range };
        if range.redo && dense {
            // Fills the gap between the two ranges.
            fill(entry, old.to, range.from);
            fill(entry, range.to, old.from);
        } else {
            fill(entry, both.from, old.from);
            fill(entry, old.to, both.to);
        }
        if both.bits() != old.bits() {
            self.name(entry, page, epoch, both);
        }
    }

    fn load(&self, page: u64, start: usize, to: &mut [u8]) {
        let (home, end) = (page * PAGE, start + to.len());
        let range = self.entry_of(page).map(|entry| (entry, self.entry(entry).2));
        let Some((entry, range)) = range.filter(|(_, range)| range.redo) else {
            return self.memory.load(to, home + start as u64);
        };
        let (from, until) = (range.from.clamp(start, end), range.to.clamp(start, end));
        let (before, rest) = to.split_at_mut(from - start);
        let (logged, after) = rest.split_at_mut(until - from);
        self.memory.load(before, home + start as u64);
        self.memory.load(logged, self.block(entry) + from as u64);
        self.memory.load(after, home + until as u64);
    }

    /// Commits all writes so far.
    fn raise_epoch(&self) {
        let mut before = self.file.0.write().expect("no thread has panicked");
        let epoch = self.epoch.0.load(Ordering::Relaxed) + 1;
        self.memory.store_word(epoch, self.epoch_at);
        // Makes the epoch durable: the commit point. The writers have drained what it commits.
        self.memory.drain();
        self.epoch.0.store(epoch, Ordering::Release);
        let now = [0, 1].map(|which| {
            self.counts.iter().map(|of| of.0[which].load(Ordering::Relaxed)).sum::<u64>()
        });
        let [reads, writes] = [now[0] - before[0], now[1] - before[1]];
        *before = now;
        let redo = writes * 100 >= (reads + writes) * REDO_FROM;
        if reads + writes > 0 && redo != self.redo.load(Ordering::Relaxed) {
            // Redo and undo entries never exist at the same time.
            self.checkpoint();
            self.redo.store(redo, Ordering::Relaxed);
        }
    }

    /// Checkpoints the committed entries. Returns `true` if there were any.
    fn checkpoint(&self) -> bool {
        let memory = &self.memory;
        let mut work = self.work.0.lock().expect("no thread has panicked");
        for lane in &self.lanes {
            work.append(&mut lane.0.lock().expect("no thread has panicked").written);
        }
        let epoch = self.epoch.0.load(Ordering::Acquire);
        let mut later = Vec::new();
        work.sort_unstable();
        work.dedup();
        let any = !work.is_empty();
        for some in work.chunks(AT_A_TIME) {
            let closed = self.pages.close(some.iter().copied());
            let mut done = Vec::with_capacity(AT_A_TIME);
            let mut copied = false;
            for page in some {
                let Some(entry) = self.entry_of(*page) else { continue };
                let (_, written, range) = self.entry(entry);
                if written >= epoch {
                    later.push(*page);
                    continue;
                }
                if range.redo {
                    self.bring_home(entry, *page);
                    copied = true;
                }
                done.push((*page, entry, range.redo));
            }
            if copied {
                // Orders the bytes in place before the clearing of the entries, and before other
                // threads may read them.
                memory.drain();
                done.iter().filter(|done| done.2).for_each(|(_, entry, _)| self.clear(*entry));
                // Orders the clearing before the entries are used again, and before the block has a
                // newer entry.
                memory.drain();
            }
            for (page, ..) in &done {
                self.slot(*page).store(0, Ordering::Relaxed);
            }
            drop(closed);
            let mut free = self.free.0.lock().expect("no thread has panicked");
            free.extend(done.iter().map(|(_, entry, _)| *entry));
        }
        *work = later;
        any
    }

    /// Runs the checkpoint thread.
    fn checkpoint_again_and_again(&self) {
        let mut idle = 0;
        while !self.stop.load(Ordering::Relaxed) {
            idle = if self.checkpoint() { 0 } else { idle + 1 };
            if idle < IDLE {
                std::thread::park_timeout(EVERY);
                continue;
            }
            self.asleep.store(true, Ordering::SeqCst);
            // A writer before this point may not have seen the flag.
            if self.checkpoint() {
                idle = 0;
            } else {
                std::thread::park_timeout(ASLEEP);
            }
        }
    }
}

/// Recovers the file, and returns the epoch that starts.
fn recover(memory: &Memory, epoch_at: u64, heads: u64, blocks: u64, entries: u64) -> u64 {
    let epoch = memory.load_word(epoch_at);
    // The last redo entry of each block: epoch, log block, range.
    let mut committed: HashMap<u64, (u64, u64, Range)> = HashMap::new();
    for entry in 0..entries {
        let head = heads + entry * 2 * LINE;
        let lines = [head, head + LINE];
        let found = lines.into_iter().filter_map(|line| record::look(memory, line, line + LINE));
        let Some(found) = found.max_by_key(|found| found.sequence) else { continue };
        let (page, written) = (found.key, memory.load_word(found.at));
        let range = Range::of(memory.load_word(found.at + 8));
        let log = blocks + entry * PAGE;
        if range.redo && written < epoch {
            let last = committed.entry(page).or_insert((written, log, range));
            if last.0 < written {
                *last = (written, log, range);
            }
        } else if !range.redo && written == epoch {
            let from = range.from as u64;
            record::copy(memory, log + from, page * PAGE + from, range.to - range.from);
        }
    }
    for (page, (_, log, range)) in committed {
        let from = range.from as u64;
        record::copy(memory, log + from, page * PAGE + from, range.to - range.from);
    }
    // Orders the bytes in place before the clearing of the heads.
    memory.drain();
    for line in 0..entries * 2 {
        if memory.load_word(heads + line * LINE + 8) != 0 {
            memory.store_word(0, heads + line * LINE + 8);
        }
    }
    // Orders the clearing before the end of the epoch of these entries.
    memory.drain();
    epoch
}

impl HybridLog {
    fn open(folder: &Path, len: u64, entries: u64) -> io::Result<HybridLog> {
        let mut ground = Ground::below(len);
        let epoch_at = ground.take(PAGE);
        let heads = ground.take(entries * 2 * LINE);
        let blocks = ground.take(entries * PAGE);
        let memory = ground.open(folder, "hybrid-log")?;
        let epoch = recover(&memory, epoch_at, heads, blocks, entries);
        let shared = Shared {
            memory,
            pages: Pages::new(len),
            epoch_at,
            heads,
            blocks,
            epoch: Padded(AtomicU64::new(epoch)),
            redo: AtomicBool::new(false),
            file: Padded::default(),
            counts: Default::default(),
            index: (0..len.div_ceil(PAGE * BRANCHES)).map(|_| OnceLock::new()).collect(),
            entries: (0..entries).map(|_| Entry::default()).collect(),
            lanes: Default::default(),
            free: Padded(Mutex::new((0..entries as u32).rev().collect())),
            work: Padded::default(),
            asleep: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            thread: OnceLock::new(),
        };
        let shared = Arc::new(shared);
        let theirs = Arc::clone(&shared);
        let worker = std::thread::Builder::new().name("checkpoint".into()).spawn(move || {
            theirs.checkpoint_again_and_again();
        })?;
        shared.thread.set(worker.thread().clone()).expect("set once");
        Ok(HybridLog { shared, worker: Some(worker) })
    }
}

impl Drop for HybridLog {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(worker) = self.worker.take() {
            worker.thread().unpark();
            worker.join().expect("no thread has panicked");
        }
    }
}

impl Subject for HybridLog {
    fn write(&self, data: &[u8], offset: u64) {
        self.shared.write_parts(&[(offset, data)]);
    }

    fn sync(&self) {
        self.shared.raise_epoch();
    }

    fn read(&self, to: &mut [u8], offset: u64) {
        let shared = &*self.shared;
        shared.counts[lane::mine()].0[0].fetch_add(1, Ordering::Relaxed);
        shared.pages.read(offset, to.len(), || {
            for (page, start, piece) in pieces_mut(offset, to) {
                shared.load(page, start, piece);
            }
        });
    }

    fn transact(&self, parts: &[(u64, &[u8])]) -> bool {
        self.shared.write_parts(parts);
        self.shared.raise_epoch();
        true
    }

    fn written(&self) -> Option<u64> {
        Some(self.shared.memory.written())
    }
}
