//! The state of the simulated machine: files, names, and the journal of the file system.
//!
//! Owns: [`World`], the complete state of a machine. A clone is cheap, because contents are shared
//! until they change. It represents the machine at one moment.
//!
//! Lengths, holes, names and attributes become durable in order, as in a journaling file system.
//! After a power loss, a prefix of the changes is present. A sync of a file or a folder makes all
//! changes durable up to its last one. As on a mapping with MAP_SYNC, a store to a page makes the
//! file system's changes of the page durable.
//!
//! On a page cache, a shrink zeroes the rest of the file's last page in memory only, and no
//! write-back covers those zeroes. btrfs leaves truncated bytes on the disk in this way. When the
//! file grows, the next sync of the file writes the page back. The new length may become durable
//! before that.
//!
//! Storage comes in blocks, and their size may differ from that of a page. A page fault of a store
//! needs all blocks of its page, up to the end of the file. If one of them lacks storage, the store
//! panics with the file and the offset. On a full disk this would be a SIGBUS, and a disk may be
//! full at any moment. [`World::fill`] limits the free blocks for calls. A call that needs more
//! takes all free blocks and returns an error.
//!
//! Before the set of possible images shrinks, the machine keeps its state ([`World::watch`]). Any
//! image of a power loss since the last kept state is also an image of the next kept state. So
//! tests need no other moments.

use super::memory::{Memory, Model, PAGE, Pending, Thread};
use super::trail::Trail;
use super::units;
use atomic_mmap::testing::machine::FileNumber;
use atomic_mmap::testing::{FileStat, OpenHow, journal};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Prefix of the names of reflection files.
const REFLECTION: &str = ".atomic-mmap.";
/// Suffix of the names of journals.
const JOURNAL: &str = ".journal";

/// A step of the engine that a test leaves out, to see that the checker notices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeftOut {
    /// Every drain.
    Drains,
    /// The nth drain of every thread, counted from the call that sets the fault.
    Drain(u64),
    /// Flushes of these bytes of the reflection file.
    Flushes(u64, u64),
    /// The wait of drains for streamed stores to these bytes of the reflection file.
    Streams(u64, u64),
    /// Syncs of files and folders.
    Syncs,
}

/// A change of the file system that may not be durable yet, with the data to undo it.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Len { file: FileNumber, len: u64, cut: Option<(u64, u64, Memory)> },
    Allocated { file: FileNumber, start: u64, end: u64, before: Spans },
    Punched { file: FileNumber, start: u64, end: u64, bytes: Memory, before: Spans },
    Name { path: PathBuf, before: Option<FileNumber> },
    Renamed { from: PathBuf, to: PathBuf, file: FileNumber, before: Option<FileNumber> },
    Attribute { file: FileNumber, name: String, before: Option<Vec<u8>> },
}

impl Change {
    fn file(&self) -> Option<FileNumber> {
        match self {
            Change::Len { file, .. }
            | Change::Allocated { file, .. }
            | Change::Punched { file, .. }
            | Change::Attribute { file, .. } => Some(*file),
            Change::Name { .. } | Change::Renamed { .. } => None,
        }
    }

    /// Returns `true` if a store to the byte makes this change durable.
    fn is_under(&self, of: FileNumber, at: u64) -> bool {
        match self {
            Change::Len { file, len, .. } => *file == of && at >= *len,
            Change::Allocated { file, start, end, .. }
            | Change::Punched { file, start, end, .. } => {
                *file == of && (*start..*end).contains(&at)
            }
            Change::Name { .. } | Change::Renamed { .. } | Change::Attribute { .. } => false,
        }
    }
}

/// Disjoint ranges of bytes that have storage: start to end.
#[derive(Clone, Default, Debug)]
pub(super) struct Spans(pub(super) BTreeMap<u64, u64>);

impl Spans {
    fn holds(&self, at: u64) -> bool {
        self.0.range(..=at).next_back().is_some_and(|(_, end)| at < *end)
    }

    fn add(&mut self, start: u64, end: u64) {
        let (mut start, mut end) = (start, end);
        let touching: Vec<u64> =
            self.0.range(..=end).filter(|(_, e)| **e >= start).map(|(s, _)| *s).collect();
        for s in touching {
            let e = self.0.remove(&s).expect("a span");
            start = start.min(s);
            end = end.max(e);
        }
        self.0.insert(start, end);
    }

    fn remove(&mut self, start: u64, end: u64) {
        let touching: Vec<(u64, u64)> =
            self.0.range(..end).filter(|(_, e)| **e > start).map(|(s, e)| (*s, *e)).collect();
        for (s, e) in touching {
            self.0.remove(&s);
            if s < start {
                self.0.insert(s, start);
            }
            if e > end {
                self.0.insert(end, e);
            }
        }
    }

    /// Returns the parts of a range that have no storage.
    fn gaps(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut gaps = Vec::new();
        if start >= end {
            return gaps;
        }
        let mut at = start;
        let before = self.0.range(..=start).next_back().map(|(_, end)| *end);
        at = at.max(before.unwrap_or(0));
        for (from, to) in self.0.range(start.saturating_add(1)..end) {
            if *from > at {
                gaps.push((at, *from));
            }
            at = at.max(*to);
        }
        if at < end {
            gaps.push((at, end));
        }
        gaps
    }

    fn bytes(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }

    fn next(&self, at: u64) -> Option<u64> {
        if self.holds(at) {
            return Some(at);
        }
        self.0.range(at..).next().map(|(start, _)| *start)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Inode {
    pub(super) memory: Memory,
    pub(super) len: u64,
    pub(super) spans: Spans,
    pub(super) attributes: BTreeMap<String, Vec<u8>>,
    /// The inode number. The number of a removed file may be reused.
    pub(super) number: u64,
    pub(super) born: u64,
    pub(super) changed: u64,
    /// Number of names.
    pub(super) links: u64,
    /// `true` if the file is a mount point of its own.
    pub(super) is_mounted_alone: bool,
    /// User, group and permissions.
    pub(super) owner: (u32, u32, u32),
    pub(super) is_reflection: bool,
    pub(super) is_journal: bool,
}

/// A durable write to a journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Written {
    /// A header, which names the pair.
    Header,
    /// The record of a durable point.
    Record,
}

/// A way to lose the data that is only in the page cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// The power fails, and the machine restarts.
    Restart,
    /// A restart with the old boot id, as on a board with firmware that always seeds the same
    /// random numbers.
    RestartWithItsId,
    /// A restart with the old boot id and a longer uptime than before.
    RestartLongAgo,
    /// The device is removed and returns, and its file system is mounted anew. The machine stays
    /// up.
    Remount,
}

/// A machine.
#[derive(Clone, Debug)]
pub struct World {
    model: Model,
    pub(super) files: BTreeMap<FileNumber, Inode>,
    pub(super) names: BTreeMap<PathBuf, FileNumber>,
    /// Names that are symbolic links. `names` contains their targets.
    pub(super) symlinks: BTreeSet<PathBuf>,
    /// The user that opens files.
    pub user: u32,
    /// `true` if the file system has no call that reserves storage, like ext3.
    pub lacks_allocation: bool,
    /// `true` if the file system keeps birth times.
    pub keeps_births: bool,
    pub(super) journal: Vec<Change>,
    pending: BTreeMap<Thread, Vec<Pending>>,
    locked: BTreeSet<FileNumber>,
    seq: u64,
    next_file: u64,
    uuids: u64,
    boot: u8,
    /// Number of times that the file system was mounted anew.
    mounts: u8,
    /// Number of starts of the machine, whatever its boot id says.
    starts: u32,
    /// Value of `seq` at the start of the machine.
    started_at: u64,
    device: u64,
    is_dead: bool,
    /// The choices of loads between several possible values.
    pub trail: Trail,
    watched: Option<Vec<Arc<World>>>,
    left_out: Option<LeftOut>,
    drains: BTreeMap<Thread, u64>,
    /// The state has changed since the last kept state.
    is_new: bool,
    /// Stores go to a page cache. After a power loss, synced data is present, and all other data
    /// may be present or absent.
    is_page_cache: bool,
    /// Bytes of a block, the unit of storage.
    block: u64,
    /// Number of free blocks. `None`: unlimited.
    left: Option<u64>,
    /// The process dies when the next write of this kind is in the page cache and not yet durable.
    dies_in: Option<Written>,
    /// Counts events, for histories.
    clock: u64,
    /// Number of accesses until the machine is copied.
    copy_in: Option<u64>,
    copy: Option<Arc<World>>,
}

#[cfg(not(shuttle))]
thread_local! {
    static THREAD: Cell<u64> = const { Cell::new(0) };
}
#[cfg(shuttle)]
shuttle::thread_local! {
    static THREAD: Cell<u64> = Cell::new(0);
}

/// Sets the simulated thread of the calling thread, which is 0 at first.
pub fn be_thread(number: u64) {
    THREAD.with(|thread| thread.set(number));
}

/// Returns the simulated thread of the calling thread.
pub fn this_thread() -> u64 {
    me().0
}

fn me() -> Thread {
    // A thread that is ending stores nothing any more.
    Thread(THREAD.try_with(Cell::get).unwrap_or(0))
}

/// Stands for the zeroes past the end of a file in the page cache: no sync waits for them.
const PAST_THE_END: Thread = Thread(u64::MAX);

/// Returns the number that stands for the calls that write to a file.
fn writer(file: FileNumber) -> Thread {
    Thread(u64::MAX - file.0)
}

impl World {
    /// Creates a machine without files. Machines that exist at the same time need different device
    /// numbers.
    pub fn new(model: Model, device: u64) -> World {
        World {
            model,
            files: BTreeMap::new(),
            names: BTreeMap::new(),
            symlinks: BTreeSet::new(),
            user: 0,
            lacks_allocation: false,
            keeps_births: true,
            journal: Vec::new(),
            pending: BTreeMap::new(),
            locked: BTreeSet::new(),
            seq: 0,
            next_file: 1,
            uuids: 0,
            boot: 1,
            mounts: 0,
            starts: 1,
            started_at: 0,
            device,
            is_dead: false,
            trail: Trail::default(),
            watched: None,
            left_out: None,
            drains: BTreeMap::new(),
            is_new: false,
            is_page_cache: false,
            block: PAGE,
            left: None,
            dies_in: None,
            clock: 0,
            copy_in: None,
            copy: None,
        }
    }

    /// Kills the process in the middle of the next write of this kind.
    pub fn die_in(&mut self, what: Written) {
        self.dies_in = Some(what);
    }

    /// Cancels `die_in`.
    pub fn live(&mut self) {
        self.dies_in = None;
    }

    /// Kills the process if `die_in` asked for it. The write to a journal at `offset` is in the
    /// page cache then, and not synced.
    pub(super) fn dies_here(&mut self, offset: u64) -> bool {
        let heads = (journal::HEADERS * journal::BLOCK) as u64;
        let what = if offset < heads { Written::Header } else { Written::Record };
        let dies = self.dies_in == Some(what);
        if dies {
            self.dies_in = None;
            self.kill();
        }
        dies
    }

    /// Returns `true` if the files lie behind a page cache.
    pub fn is_page_cache(&self) -> bool {
        self.is_page_cache
    }

    /// Creates a machine with files on a disk, behind a page cache. Each word that was stored since
    /// the last sync of its file may be on the disk or not. That covers more than a real kernel
    /// with its write-back and a disk that tears pages.
    pub fn with_page_cache(device: u64) -> World {
        World { is_page_cache: true, ..World::new(Model::Chunk, device) }
    }

    /// Sets the size of a block: a power of two.
    pub fn with_blocks(self, block: u64) -> World {
        World { block, ..self }
    }

    /// Sets the number of free blocks. `None`: unlimited.
    pub fn fill(&mut self, left: Option<u64>) {
        self.left = left;
    }

    /// Returns the machine after a power loss at this moment, with the choices of `trail`.
    pub fn after_crash(&self, trail: Trail) -> World {
        self.after(Loss::Restart, trail)
    }

    /// Returns the machine after the loss of its page cache, with the choices of `trail`.
    pub fn after(&self, loss: Loss, trail: Trail) -> World {
        let is_up = loss == Loss::Remount;
        let keeps_id = loss != Loss::Restart;
        let mut world = World {
            pending: BTreeMap::new(),
            locked: BTreeSet::new(),
            watched: None,
            is_dead: false,
            dies_in: None,
            trail,
            left_out: None,
            drains: BTreeMap::new(),
            boot: if keeps_id { self.boot } else { self.boot.wrapping_add(1).max(1) },
            // Only a restart lets the kernel reuse the number of a file system.
            mounts: if is_up { self.mounts + 1 } else { self.mounts },
            starts: self.starts + u32::from(!is_up),
            started_at: match loss {
                Loss::Remount | Loss::RestartLongAgo => self.started_at,
                Loss::Restart | Loss::RestartWithItsId => self.seq,
            },
            is_new: false,
            ..self.clone()
        };
        // No lost change first, because those states are the interesting ones.
        let lost = world.trail.choose(world.journal.len() + 1);
        for _ in 0..lost {
            if let Some(change) = world.journal.pop() {
                world.take_back(change);
            }
        }
        world.journal.clear();
        for inode in world.files.values_mut() {
            inode.memory.crash(self.model);
        }
        if world.is_page_cache {
            let files: Vec<FileNumber> = world.files.keys().copied().collect();
            files.into_iter().for_each(|file| world.hide_past_the_end(file));
        }
        world
    }

    /// Returns the machine after a process crash: everything that was stored is present.
    pub fn after_kill(&self) -> World {
        World {
            pending: BTreeMap::new(),
            locked: BTreeSet::new(),
            watched: None,
            is_dead: false,
            dies_in: None,
            drains: BTreeMap::new(),
            is_new: false,
            ..self.clone()
        }
    }

    fn take_back(&mut self, change: Change) {
        match change {
            Change::Len { file, len, cut } => {
                let Some(inode) = self.files.get_mut(&file) else { return };
                inode.len = len;
                if let Some((start, end, bytes)) = cut {
                    inode.memory.put_back(start, end, &bytes);
                }
            }
            Change::Allocated { file, start, end, before } => {
                let (is_page_cache, block) = (self.is_page_cache, self.block);
                let Some(inode) = self.files.get_mut(&file) else { return };
                if is_page_cache {
                    // Storage that was written back there is gone with it.
                    let blocks = (start..end).step_by(block as usize);
                    for at in blocks.filter(|at| !before.holds(*at)) {
                        inode.memory.zero(at, at + block);
                    }
                }
                inode.spans = before;
            }
            Change::Punched { file, start, end, bytes, before } => {
                let Some(inode) = self.files.get_mut(&file) else { return };
                inode.memory.put_back(start, end, &bytes);
                inode.spans = before;
            }
            Change::Name { path, before } => {
                match before {
                    Some(file) => self.names.insert(path, file),
                    None => self.names.remove(&path),
                };
            }
            Change::Renamed { from, to, file, before } => {
                self.names.insert(from, file);
                match before {
                    Some(file) => self.names.insert(to, file),
                    None => self.names.remove(&to),
                };
            }
            Change::Attribute { file, name, before } => {
                let Some(inode) = self.files.get_mut(&file) else { return };
                match before {
                    Some(value) => inode.attributes.insert(name, value),
                    None => inode.attributes.remove(&name),
                };
            }
        }
    }

    /// Starts to keep the states in which a power loss is tested.
    pub fn watch(&mut self) {
        self.watched = Some(Vec::new());
        self.is_new = true;
    }

    /// Returns the states since the last call. The last one is the present state, or that of the
    /// kill.
    pub fn take_watched(&mut self) -> Vec<Arc<World>> {
        self.is_new = true;
        self.keep();
        self.is_new = false;
        self.watched.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Starts to keep states like [`watch`](Self::watch), after states that were kept before.
    pub fn watch_after(&mut self, kept: Vec<Arc<World>>) {
        self.watched = Some(kept);
        self.is_new = true;
    }

    /// Creates a file with these pieces and holes between them, durably.
    pub fn make(&mut self, path: &Path, len: u64, pieces: &[(u64, Vec<u8>)]) {
        let how = OpenHow { create: true, create_new: true, mode: 0 };
        let file = self.open(path, how).expect("a new file");
        self.set_len(file, len).expect("a length");
        for (at, bytes) in pieces {
            self.write_at(file, bytes, *at).expect("bytes");
        }
        self.sync(file).and_then(|()| self.sync_dir()).expect("a sync");
        self.journal.clear();
    }

    /// Keeps the present state, because the set of possible images is about to shrink.
    fn keep(&mut self) {
        if self.watched.is_none() || !self.is_new || self.is_dead {
            return;
        }
        self.is_new = false;
        let watched = self.watched.take();
        let state = Arc::new(self.clone());
        self.watched = watched;
        if let Some(watched) = &mut self.watched {
            watched.push(state);
        }
    }

    /// Returns the next moment, for a history.
    pub fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Returns the moment of a copy.
    pub fn clock(&self) -> u64 {
        self.clock
    }

    /// Copies the machine before the nth access to its memory from now on.
    pub fn copy_at(&mut self, nth: u64) {
        self.copy_in = Some(nth);
    }

    /// Returns the copy, if there were enough accesses.
    pub fn take_copy(&mut self) -> Option<Arc<World>> {
        self.copy_in = None;
        self.copy.take()
    }

    fn count_access(&mut self) {
        match self.copy_in {
            None => {}
            Some(0) => {
                self.copy_in = None;
                // The copy gets a moment between two stamps, so that none is equal.
                self.clock += 1;
                self.copy = Some(Arc::new(self.clone()));
            }
            Some(n) => self.copy_in = Some(n - 1),
        }
    }

    /// Leaves a step out from now on.
    pub fn leave_out(&mut self, step: Option<LeftOut>) {
        self.left_out = step;
        self.drains.clear();
    }

    /// Kills the process: later calls have no effect. Keeps the state, if states are kept.
    pub fn kill(&mut self) {
        self.is_new = true;
        self.keep();
        self.is_dead = true;
    }

    /// Returns the number of words with an undetermined value.
    pub fn undetermined(&self) -> usize {
        self.files.values().map(|inode| inode.memory.undetermined()).sum()
    }

    /// Returns the number of images: the combinations of the values of all words.
    pub fn images(&self) -> u64 {
        let counts = self.files.values().flat_map(|inode| inode.memory.all_groups());
        counts.fold(self.journal.len() as u64 + 1, |all, (_, _, n)| all.saturating_mul(n as u64))
    }

    /// Chooses one of all combinations of values, for all files at once.
    pub fn determine(&mut self, trail: &mut Trail) {
        for inode in self.files.values_mut() {
            let groups = inode.memory.all_groups();
            let chosen: Vec<_> = groups
                .into_iter()
                .map(|(line, group, count)| (line, group, trail.choose(count)))
                .collect();
            inode.memory.settle_groups(&chosen);
        }
    }

    /// Returns the bytes of the file of this name, as a program that reads it would find them.
    pub fn contents(&mut self, path: &Path, at: u64, len: usize) -> Option<Vec<u8>> {
        let file = *self.names.get(path)?;
        let mut bytes = vec![0; len];
        let got = self.read_at(file, &mut bytes, at).ok()?;
        bytes.truncate(got);
        Some(bytes)
    }

    /// Returns the length of the file.
    pub fn len_of(&self, path: &Path) -> Option<u64> {
        self.names.get(path).map(|file| self.files[file].len)
    }

    /// Returns the names of all files.
    pub fn names(&self) -> impl Iterator<Item = &Path> {
        self.names.keys().map(PathBuf::as_path)
    }

    pub(super) fn inode(&mut self, file: FileNumber) -> &mut Inode {
        self.files.get_mut(&file).expect("an open file's number")
    }

    fn alive(&self) -> io::Result<()> {
        if self.is_dead { Err(ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    }

    // ---- memory ----------------------------------------------------------------------------

    /// Loads a word through the mapping.
    pub fn load(&mut self, file: FileNumber, at: u64) -> u64 {
        let Some(inode) = self.files.get_mut(&file) else { return 0 };
        inode.memory.load(at, &mut self.trail)
    }

    /// Copies bytes out of the mapping.
    pub fn read(&mut self, file: FileNumber, to: &mut [u8], at: u64) {
        if let Some(inode) = self.files.get_mut(&file) {
            inode.memory.read(to, at, &mut self.trail);
        }
    }

    /// Stores bytes through the mapping.
    pub fn store(&mut self, file: FileNumber, at: u64, bytes: &[u8], through: bool) {
        if self.is_dead {
            return;
        }
        self.count_access();
        let end = at + bytes.len() as u64;
        self.page_fault(file, at, end);
        let is_reflection = self.files[&file].is_reflection;
        let waits = !matches!(self.left_out, Some(LeftOut::Streams(from, to))
            if is_reflection && through && at < to && end > from);
        self.store_by(me(), file, at, bytes, through);
        if !waits && let Some(pending) = self.pending.get_mut(&me()) {
            // Left out: the next drain does not wait for these stores.
            let lines = at / super::memory::LINE..end.div_ceil(super::memory::LINE);
            let count = (lines.end - lines.start) as usize;
            pending.truncate(pending.len() - count);
        }
    }

    /// Simulates a page fault: checks the storage of the page, and makes the file system's changes
    /// of it durable.
    fn page_fault(&mut self, file: FileNumber, start: u64, end: u64) {
        let inode = &self.files[&file];
        let pages_end = end.next_multiple_of(PAGE);
        let last = pages_end.min(inode.len.next_multiple_of(self.block));
        let hole = inode.spans.gaps(start / PAGE * PAGE, last).first().map(|(hole, _)| *hole);
        let past_the_end = (pages_end - PAGE >= inode.len).then_some(inode.len);
        if let Some(hole) = hole.or(past_the_end) {
            let name = self.names.iter().find(|(_, number)| **number == file);
            let name = name.map_or("a removed file".into(), |(name, _)| name.display().to_string());
            panic!(
                "store to the bytes {start}..{end} of {name} ({} bytes long), where the block at {hole} \
                 has no storage: SIGBUS when the disk is full",
                inode.len
            );
        }
        if self.is_page_cache {
            return;
        }
        let last = self
            .journal
            .iter()
            .rposition(|c| (start / PAGE..end.div_ceil(PAGE)).any(|p| c.is_under(file, p * PAGE)));
        if let Some(last) = last {
            self.keep();
            self.journal.drain(..=last);
        }
    }

    fn store_by(&mut self, by: Thread, file: FileNumber, at: u64, bytes: &[u8], through: bool) {
        self.seq += 1;
        self.is_new = true;
        let pending = self.pending.entry(by).or_default();
        let Some(inode) = self.files.get_mut(&file) else { return };
        let through = through && !self.is_page_cache;
        inode.memory.store(at, bytes, self.seq, by, through, pending, &mut self.trail);
    }

    /// Starts the write-back of lines.
    pub fn flush(&mut self, file: FileNumber, at: u64, len: u64) {
        if self.is_dead || self.is_page_cache {
            return;
        }
        let Some(inode) = self.files.get_mut(&file) else { return };
        let is_left_out = match self.left_out {
            Some(LeftOut::Flushes(from, to)) => inode.is_reflection && at < to && at + len > from,
            _ => false,
        };
        if is_left_out {
            return;
        }
        let mapped = inode.len.next_multiple_of(PAGE);
        assert!(at + len <= mapped, "flush at {at} of file {file:?}, past its end: SIGBUS");
        let pending = self.pending.entry(me()).or_default();
        inode.memory.flush(at, at + len, self.seq, pending);
    }

    /// Waits for the flushes of the calling thread.
    pub fn drain(&mut self) {
        if self.is_dead {
            return;
        }
        self.count_access();
        let count = self.drains.entry(me()).or_default();
        *count += 1;
        match self.left_out {
            Some(LeftOut::Drains) => return,
            Some(LeftOut::Drain(n)) if n == *count => return,
            _ => {}
        }
        self.settle(me());
    }

    fn settle(&mut self, thread: Thread) {
        if self.pending.get(&thread).is_none_or(Vec::is_empty) {
            return;
        }
        self.keep();
        for pending in self.pending.remove(&thread).unwrap_or_default() {
            if let Some(inode) = self.files.get_mut(&pending.file) {
                inode.memory.settle(pending, thread);
            }
        }
    }

    // ---- the operating system --------------------------------------------------------------

    fn note(&mut self, change: Change) {
        self.is_new = true;
        self.seq += 1;
        if let Some(file) = change.file() {
            let now = self.seq;
            self.inode(file).changed = now;
        }
        self.journal.push(change);
    }

    pub(super) fn open(&mut self, path: &Path, how: OpenHow) -> io::Result<FileNumber> {
        self.alive()?;
        if self.symlinks.contains(path) {
            // ELOOP: the call follows no link.
            return Err(io::Error::from_raw_os_error(40));
        }
        if let Some(file) = self.names.get(path) {
            return if how.create_new { Err(ErrorKind::AlreadyExists.into()) } else { Ok(*file) };
        }
        if !how.create && !how.create_new {
            return Err(ErrorKind::NotFound.into());
        }
        let file = FileNumber(self.next_file);
        self.next_file += 1;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let inode = Inode {
            number: file.0,
            born: self.seq + 1,
            links: 1,
            is_mounted_alone: false,
            changed: self.seq + 1,
            is_reflection: name.starts_with(REFLECTION) && !name.ends_with(JOURNAL),
            is_journal: name.ends_with(JOURNAL),
            owner: (self.user, self.user, how.mode),
            memory: Memory::new(file),
            len: 0,
            spans: Spans::default(),
            attributes: BTreeMap::new(),
        };
        self.files.insert(file, inode);
        self.names.insert(path.to_owned(), file);
        self.note(Change::Name { path: path.to_owned(), before: None });
        Ok(file)
    }

    pub(super) fn try_lock(&mut self, file: FileNumber) -> io::Result<bool> {
        self.alive()?;
        // Handles of one process share a number here, and a process never locks a file twice.
        self.locked.insert(file);
        Ok(true)
    }

    pub(super) fn unlock(&mut self, file: FileNumber) -> io::Result<()> {
        self.locked.remove(&file);
        Ok(())
    }

    pub(super) fn allocate(&mut self, file: FileNumber, offset: u64, len: u64) -> io::Result<()> {
        self.alive()?;
        self.has_allocation()?;
        let (start, end) = self.blocks(offset, len);
        let before = self.inode(file).spans.clone();
        let reached = self.take_blocks(file, start, end);
        // The file grows as far as the allocation reached, as on ext4.
        let (inode, longer) = (self.inode(file), reached.min(offset + len));
        let was = inode.len;
        if longer > was && longer > offset {
            inode.len = longer;
            self.show_past_the_end(file, was);
            self.note(Change::Len { file, len: was, cut: None });
        }
        self.note_allocated(file, start, reached, before);
        if reached < end { Err(ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    /// Allocates storage for a range without a change of the file's length.
    pub(super) fn allocate_past_end(
        &mut self,
        file: FileNumber,
        offset: u64,
        len: u64,
    ) -> io::Result<()> {
        self.alive()?;
        self.has_allocation()?;
        let (start, end) = self.blocks(offset, len);
        let before = self.inode(file).spans.clone();
        let reached = self.take_blocks(file, start, end);
        self.note_allocated(file, start, reached, before);
        if reached < end { Err(ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn has_allocation(&self) -> io::Result<()> {
        if self.lacks_allocation { Err(ErrorKind::Unsupported.into()) } else { Ok(()) }
    }

    fn note_allocated(&mut self, file: FileNumber, start: u64, end: u64, before: Spans) {
        if !before.gaps(start, end).is_empty() {
            self.note(Change::Allocated { file, start, end, before });
        }
    }

    /// Returns the start of the first block of a range, and the end of the last one.
    fn blocks(&self, offset: u64, len: u64) -> (u64, u64) {
        (offset / self.block * self.block, (offset + len).next_multiple_of(self.block))
    }

    /// Gives storage to the holes from `start` on while there are free blocks. Returns the offset
    /// that it reached.
    fn take_blocks(&mut self, file: FileNumber, start: u64, end: u64) -> u64 {
        let (block, mut left) = (self.block, self.left.unwrap_or(u64::MAX));
        let spans = &mut self.inode(file).spans;
        let mut reached = end;
        for (from, to) in spans.gaps(start, end) {
            let missing = (to - from) / block;
            if missing > left {
                reached = from + left * block;
                left = 0;
                break;
            }
            left -= missing;
        }
        if reached > start {
            spans.add(start, reached);
        }
        self.left = self.left.map(|_| left);
        reached
    }

    /// Frees the storage of a range of whole blocks.
    fn give_blocks_back(&mut self, file: FileNumber, start: u64, end: u64) {
        let inode = self.inode(file);
        let before = inode.spans.bytes();
        inode.spans.remove(start, end);
        let given = before - inode.spans.bytes();
        self.left = self.left.map(|left| left + given / self.block);
    }

    pub(super) fn punch(&mut self, file: FileNumber, offset: u64, len: u64) -> io::Result<()> {
        self.alive()?;
        // The punched bytes are gone at once. Once the hole is durable, no image contains them.
        self.keep();
        let (start, end) = (offset, offset + len);
        let before = self.inode(file).spans.clone();
        let (from, to) = (start.next_multiple_of(self.block), end / self.block * self.block);
        if from < to {
            self.give_blocks_back(file, from, to);
        }
        let bytes = self.inode(file).memory.zero(start, end);
        self.note(Change::Punched { file, start, end, bytes, before });
        Ok(())
    }

    pub(super) fn set_len(&mut self, file: FileNumber, len: u64) -> io::Result<()> {
        self.alive()?;
        let inode = self.inode(file);
        let was = inode.len;
        if was == len {
            if self.is_page_cache {
                // Bytes that were stored past the end are gone.
                self.hide_past_the_end(file);
            }
            return Ok(());
        }
        self.keep();
        let inode = self.inode(file);
        inode.len = len;
        let cut = (len < was).then(|| {
            let end = was.next_multiple_of(PAGE);
            (len, end, inode.memory.zero(len, end))
        });
        match &cut {
            Some((from, end, before)) if self.is_page_cache => {
                // Bytes in freed blocks do not return.
                let gone = len.next_multiple_of(self.block.min(PAGE));
                let memory = &mut self.inode(file).memory;
                memory.put_back(*from, *end, before);
                memory.zero(gone, *end);
                self.hide_past_the_end(file);
            }
            Some(_) => {}
            None => self.show_past_the_end(file, was),
        }
        self.note(Change::Len { file, len: was, cut });
        if len < was {
            let before = self.inode(file).spans.clone();
            let (_, start) = self.blocks(0, len);
            let (_, end) = self.blocks(0, was);
            // This also frees storage that was reserved past the end.
            self.give_blocks_back(file, start, u64::MAX / 2);
            self.note(Change::Allocated { file, start, end, before });
        }
        Ok(())
    }

    /// Zeroes the rest of the file's last page for readers. The disk keeps its bytes.
    fn hide_past_the_end(&mut self, file: FileNumber) {
        self.zero_rest_of_page(file, self.files[&file].len, PAST_THE_END);
    }

    /// Makes the zeroes from the old end `was` part of the file, so that the next sync writes them
    /// back.
    fn show_past_the_end(&mut self, file: FileNumber, was: u64) {
        if self.is_page_cache {
            self.zero_rest_of_page(file, was, writer(file));
        }
    }

    /// Stores zeroes from `at` to the end of its page, if the page has storage.
    fn zero_rest_of_page(&mut self, file: FileNumber, at: u64, by: Thread) {
        let rest = at.next_multiple_of(PAGE) - at;
        if rest == 0 || !self.files[&file].spans.holds(at) {
            return;
        }
        self.seq += 1;
        let inode = self.files.get_mut(&file).expect("an open file's number");
        let zeroes = vec![0; rest as usize];
        // This store bypasses the cache, so that only a drain of its own thread makes it durable.
        let through = by == PAST_THE_END;
        let nobody_waits = &mut Vec::new();
        inode.memory.store(at, &zeroes, self.seq, by, through, nobody_waits, &mut self.trail);
    }

    pub(super) fn sync(&mut self, file: FileNumber) -> io::Result<()> {
        self.sync_bytes(file, 0..u64::MAX / 2)
    }

    /// Syncs only the blocks of some bytes, as a durable write does. Behind a page cache, other
    /// data of the file may stay unsynced.
    pub(super) fn sync_bytes(&mut self, file: FileNumber, bytes: Range<u64>) -> io::Result<()> {
        self.alive()?;
        if self.left_out == Some(LeftOut::Syncs) {
            return Ok(());
        }
        if self.is_page_cache {
            let now = self.seq;
            let inode = self.files.get_mut(&file).expect("an open file's number");
            let pending = self.pending.entry(writer(file)).or_default();
            let (start, end) = (bytes.start / PAGE * PAGE, bytes.end.next_multiple_of(PAGE));
            inode.memory.flush(start, end, now, pending);
        }
        self.settle(writer(file));
        if let Some(last) = self.journal.iter().rposition(|c| c.file() == Some(file)) {
            self.keep();
            self.journal.drain(..=last);
        }
        Ok(())
    }

    pub(super) fn sync_dir(&mut self) -> io::Result<()> {
        self.alive()?;
        if self.left_out == Some(LeftOut::Syncs) {
            return Ok(());
        }
        if let Some(last) = self.journal.iter().rposition(|c| c.file().is_none()) {
            self.keep();
            self.journal.drain(..=last);
        }
        Ok(())
    }

    pub(super) fn read_at(
        &mut self,
        file: FileNumber,
        buf: &mut [u8],
        offset: u64,
    ) -> io::Result<usize> {
        self.alive()?;
        let inode = self.files.get_mut(&file).expect("an open file's number");
        let len = (inode.len.saturating_sub(offset)).min(buf.len() as u64) as usize;
        if inode.is_journal && inode.memory.is_open(offset, offset + len as u64) {
            units::tell_headers_apart(&mut inode.memory, &mut self.trail);
            self.tell_records_apart(file);
        }
        let inode = self.files.get_mut(&file).expect("an open file's number");
        if inode.is_reflection && inode.memory.is_open(offset, offset + len as u64) {
            units::tell_apart(&mut inode.memory, offset, offset + len as u64, &mut self.trail);
        }
        let inode = self.files.get_mut(&file).expect("an open file's number");
        inode.memory.read(&mut buf[..len], offset, &mut self.trail);
        Ok(len)
    }

    /// Chooses which of the non-durable records are intact.
    fn tell_records_apart(&mut self, journal: FileNumber) {
        // The superblock was read before.
        let reflection = self.files.values_mut().find(|inode| inode.is_reflection);
        let seed = reflection.and_then(|i| units::journal_seed(&mut i.memory, &mut self.trail));
        if let (Some(seed), Some(inode)) = (seed, self.files.get_mut(&journal)) {
            units::tell_records_apart(&mut inode.memory, seed, &mut self.trail);
        }
    }

    pub(super) fn write_at(
        &mut self,
        file: FileNumber,
        buf: &[u8],
        offset: u64,
    ) -> io::Result<usize> {
        self.alive()?;
        let (start, end) = self.blocks(offset, buf.len() as u64);
        let reached = self.take_blocks(file, start, end);
        let buf = &buf[..reached.saturating_sub(offset).min(buf.len() as u64) as usize];
        if buf.is_empty() && reached < end {
            return Err(ErrorKind::StorageFull.into());
        }
        let was = self.inode(file).len;
        if offset + buf.len() as u64 > was {
            self.inode(file).len = offset + buf.len() as u64;
            self.show_past_the_end(file, was);
            self.note(Change::Len { file, len: was, cut: None });
        }
        self.store_by(writer(file), file, offset, buf, true);
        let now = self.seq;
        self.inode(file).changed = now;
        Ok(buf.len())
    }

    pub(super) fn next_data(&mut self, file: FileNumber, offset: u64) -> io::Result<Option<u64>> {
        self.alive()?;
        let inode = self.inode(file);
        Ok(inode.spans.next(offset).filter(|at| *at < inode.len))
    }

    pub(super) fn next_hole(&mut self, file: FileNumber, offset: u64) -> io::Result<Option<u64>> {
        self.alive()?;
        let inode = self.inode(file);
        if offset >= inode.len {
            return Ok(None);
        }
        let end = match inode.spans.0.range(..=offset).next_back() {
            Some((_, end)) if *end > offset => *end,
            _ => offset,
        };
        Ok(Some(end.min(inode.len)))
    }

    pub(super) fn stat(&mut self, file: FileNumber) -> io::Result<FileStat> {
        self.alive()?;
        let (device, keeps_births) = (self.device, self.keeps_births);
        let inode = self.inode(file);
        Ok(FileStat {
            dev: device,
            ino: inode.number,
            len: inode.len,
            mtime: (inode.changed as i64, 0),
            ctime: (inode.changed as i64, 0),
            btime: keeps_births.then_some((inode.born as i64, 0)),
            is_regular: true,
            is_link: false,
            links: inode.links,
            uid: inode.owner.0,
            gid: inode.owner.1,
            mode: inode.owner.2,
            blocks: inode.spans.0.iter().map(|(start, end)| (end - start) / 512).sum(),
        })
    }

    pub(super) fn stat_path(&mut self, path: &Path) -> io::Result<Option<FileStat>> {
        self.alive()?;
        match self.names.get(path).copied() {
            Some(file) => {
                let is_link = self.symlinks.contains(path);
                let stat = self.stat(file)?;
                Ok(Some(FileStat { is_link, is_regular: !is_link, ..stat }))
            }
            None => Ok(None),
        }
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.alive()?;
        let file = self.names.remove(from).ok_or(ErrorKind::NotFound)?;
        let before = self.names.insert(to.to_owned(), file);
        before.iter().for_each(|gone| self.has_no_name(*gone));
        self.note(Change::Renamed { from: from.to_owned(), to: to.to_owned(), file, before });
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.alive()?;
        let file = self.names.remove(path).ok_or(ErrorKind::NotFound)?;
        self.symlinks.remove(path);
        self.has_no_name(file);
        self.note(Change::Name { path: path.to_owned(), before: Some(file) });
        Ok(())
    }

    /// Frees the storage of a file that was removed.
    fn has_no_name(&mut self, file: FileNumber) {
        let bytes = self.files.get(&file).map_or(0, |inode| inode.spans.bytes());
        self.left = self.left.map(|left| left + bytes / self.block);
    }

    pub(super) fn list_dir(&mut self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        self.alive()?;
        Ok(self.names.keys().filter(|path| path.parent() == Some(dir)).cloned().collect())
    }

    pub(super) fn get_xattr(
        &mut self,
        file: FileNumber,
        name: &str,
    ) -> io::Result<Option<Vec<u8>>> {
        self.alive()?;
        Ok(self.inode(file).attributes.get(name).cloned())
    }

    pub(super) fn set_xattr(
        &mut self,
        file: FileNumber,
        name: &str,
        value: Option<&[u8]>,
    ) -> io::Result<()> {
        self.alive()?;
        let attributes = &mut self.inode(file).attributes;
        let before = match value {
            Some(value) => attributes.insert(name.to_owned(), value.to_vec()),
            None => attributes.remove(name),
        };
        if before.as_deref() != value {
            self.note(Change::Attribute { file, name: name.to_owned(), before });
        }
        Ok(())
    }

    pub(super) fn own(&mut self, file: FileNumber, like: &FileStat) -> io::Result<()> {
        self.alive()?;
        self.inode(file).owner = (like.uid, like.gid, like.mode);
        Ok(())
    }

    /// Returns the id of the file system of all files, which changes when it is mounted anew.
    pub(super) fn volume(&self) -> u64 {
        u64::from(self.mounts) + 1
    }

    pub(super) fn boot_id(&self) -> [u8; 16] {
        [self.boot; 16]
    }

    /// Returns the uptime, the time of the machine's start, and the birth time of its devices
    /// folder.
    pub(super) fn clocks(&self) -> (u64, i64, u64) {
        const DAY: u64 = 86_400_000_000_000;
        let started = u64::from(self.starts) * DAY;
        (1 + self.seq - self.started_at, started as i64, started + 1)
    }

    pub(super) fn new_uuid(&mut self) -> [u8; 16] {
        self.uuids += 1;
        u128::from(self.uuids).to_le_bytes()
    }
}
