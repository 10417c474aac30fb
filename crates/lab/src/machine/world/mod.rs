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

mod accesses;
mod calls;
mod inode;

use super::memory::{Model, PAGE, Pending, Thread};
use super::trail::Trail;
use atomic_mmap::testing::machine::FileNumber;
use atomic_mmap::testing::{OpenHow, journal};
pub(super) use inode::{Change, Inode};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Prefix of the names of reflection files.
const REFLECTION: &str = ".atomic-mmap.";
/// Suffix of the names of journals.
const JOURNAL: &str = ".journal";
/// Suffix of the names of stores of snapshots, before that of an unfinished one.
const STORE: &str = ".snapshots";

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
        let how = OpenHow { create_new: true, mode: 0, reads_only: false };
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
}
