//! What does the operating system know, and what of it is durable? Files, names, and the journal.
//!
//! Owns: [`World`], everything that a machine consists of. A clone of it is cheap (contents are
//! shared until they change) and stands for the machine at one moment.
//!
//! Lengths, holes, names and attributes become durable as a journaling file system makes them:
//! in their order. After a loss of power a prefix of what was done is there; syncing a file, or a
//! folder, makes everything up to the last change of that file, or of a name, durable. As on a
//! mapping with MAP_SYNC, a store to a page makes durable what the file system has done to it.
//!
//! On a page cache the rest of a file's last page is zeroed there, and nobody is to write it back: btrfs leaves on the
//! disk what was cut off within a page. When the file grows, the page is written back with the file's next sync;
//! its new length may be durable before that.
//!
//! Storage comes in blocks, whose size may differ from a page's. A page fault of a store asks for all blocks of its
//! page, up to the end of the file. A store to a page of which one is missing is refused by a panic that names file
//! and offset: it is a SIGBUS where the disk is full, and a disk may be full at any moment. [`World::fill`] makes it
//! full for calls: what they need beyond that is an error, after as much was taken as there was.
//!
//! Where the set of what the medium may hold is about to shrink, the state just before is kept
//! ([`World::watch`]): any loss of power since the last such moment leaves an image that one at this
//! moment could have left as well, so no other moments have to be looked at.

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

/// Names of reflection files begin with this.
const REFLECTION: &str = ".atomic-mmap.";
/// Names of journals end with this.
const JOURNAL: &str = ".journal";

/// A step of the engine that a test leaves out, to see that the checker notices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeftOut {
    /// Every drain.
    Drains,
    /// The nth drain of every thread, from the moment on at which the fault is set.
    Drain(u64),
    /// Flushes of these bytes of the reflection file.
    Flushes(u64, u64),
    /// Streamed stores to these bytes of the reflection file wait for no drain.
    Streams(u64, u64),
    /// Syncs of files and folders.
    Syncs,
}

/// One change of the file system that may not be durable, and how to take it back.
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

    /// Whether a store to the byte needs this change to be durable.
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

/// Ranges of bytes that have storage: start to end, apart from each other.
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

    /// The parts of a range that have no storage.
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
    /// As `stat` tells it: a number of a file that was removed may be given again.
    pub(super) number: u64,
    pub(super) born: u64,
    pub(super) changed: u64,
    /// How many names it has.
    pub(super) links: u64,
    /// Whether a mount of its own lies over its name.
    pub(super) is_mounted_alone: bool,
    /// User, group and permissions.
    pub(super) owner: (u32, u32, u32),
    pub(super) is_reflection: bool,
    pub(super) is_journal: bool,
}

/// What is written to a journal so that it is durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Written {
    /// Whose journal it is.
    Header,
    /// A durable point.
    Record,
}

/// How what is in the page cache only is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// The power goes, and the machine is started.
    Restart,
    /// The same, and the kernel says that it is the same run: a board whose firmware seeds its random
    /// numbers.
    RestartWithItsId,
    /// The same, and the machine has been up since for longer than before.
    RestartLongAgo,
    /// The device goes and comes again, and its file system is mounted anew. The machine stays up.
    Remount,
}

/// A machine.
#[derive(Clone, Debug)]
pub struct World {
    model: Model,
    pub(super) files: BTreeMap<FileNumber, Inode>,
    pub(super) names: BTreeMap<PathBuf, FileNumber>,
    /// Names that are symbolic links. What they lead to is what `names` says.
    pub(super) symlinks: BTreeSet<PathBuf>,
    /// For whom files are opened.
    pub user: u32,
    /// Whether the file system has no call that reserves storage, as ext3 has none.
    pub lacks_allocation: bool,
    /// Whether the file system keeps when a file was made.
    pub keeps_births: bool,
    pub(super) journal: Vec<Change>,
    pending: BTreeMap<Thread, Vec<Pending>>,
    locked: BTreeSet<FileNumber>,
    seq: u64,
    next_file: u64,
    uuids: u64,
    boot: u8,
    /// How often the file system was mounted anew.
    mounts: u8,
    /// How often the machine was started, whatever it says of it.
    starts: u32,
    /// Of `seq`, when it was started.
    started_at: u64,
    device: u64,
    is_dead: bool,
    /// Which values loads find where several are possible.
    pub trail: Trail,
    watched: Option<Vec<Arc<World>>>,
    left_out: Option<LeftOut>,
    drains: BTreeMap<Thread, u64>,
    /// Something was stored or changed since the last kept state.
    is_new: bool,
    /// Stores go to a page cache: what is there after a loss of power is what was synced, and of the
    /// rest anything.
    is_page_cache: bool,
    /// Bytes of a block, the unit of storage.
    block: u64,
    /// Blocks that nothing has. `None`: as many as are asked for.
    left: Option<u64>,
    /// The process dies when the next write of this kind is in the page cache, and not yet durable.
    dies_in: Option<Written>,
    /// Counts what happens, for histories.
    clock: u64,
    /// The machine is copied when so many accesses are left.
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

/// Says which simulated thread the calling thread is (0 unless said).
pub fn be_thread(number: u64) {
    THREAD.with(|thread| thread.set(number));
}

/// Which simulated thread the calling thread is.
pub fn this_thread() -> u64 {
    me().0
}

fn me() -> Thread {
    // A thread that is ending does not store any more.
    Thread(THREAD.try_with(Cell::get).unwrap_or(0))
}

/// Stands for the zeroes past the end of a file in the page cache: no sync waits for them.
const PAST_THE_END: Thread = Thread(u64::MAX);

/// Stands for the calls that write to a file.
fn writer(file: FileNumber) -> Thread {
    Thread(u64::MAX - file.0)
}

impl World {
    /// A machine with no files. Machines that exist at the same time have different device numbers.
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

    /// The process will die in the middle of the next write of this kind.
    pub fn die_in(&mut self, what: Written) {
        self.dies_in = Some(what);
    }

    /// It will not.
    pub fn live(&mut self) {
        self.dies_in = None;
    }

    /// Whether the process dies here: what was written to a journal at `offset` is there, and was not synced.
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

    /// Whether it was made so.
    pub fn is_page_cache(&self) -> bool {
        self.is_page_cache
    }

    /// A machine whose files lie on a disk, behind a page cache: every word that was stored since its file
    /// was last synced may have been written back at any time, or not. That is more than a kernel
    /// that writes back pages, and a disk that tears them, can do.
    pub fn with_page_cache(device: u64) -> World {
        World { is_page_cache: true, ..World::new(Model::Chunk, device) }
    }

    /// The same, with blocks of so many bytes: a power of two.
    pub fn with_blocks(self, block: u64) -> World {
        World { block, ..self }
    }

    /// The disk has so many blocks left from now on. `None`: as many as are asked for.
    pub fn fill(&mut self, left: Option<u64>) {
        self.left = left;
    }

    /// The machine after a loss of power at this moment, with the choices of `trail`.
    pub fn after_crash(&self, trail: Trail) -> World {
        self.after(Loss::Restart, trail)
    }

    /// The machine after what was in the page cache only is gone, with the choices of `trail`.
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
            // A number of a file system is given again after a restart only.
            mounts: if is_up { self.mounts + 1 } else { self.mounts },
            starts: self.starts + u32::from(!is_up),
            started_at: match loss {
                Loss::Remount | Loss::RestartLongAgo => self.started_at,
                Loss::Restart | Loss::RestartWithItsId => self.seq,
            },
            is_new: false,
            ..self.clone()
        };
        // Everything done first: that is where the interesting states are.
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

    /// The machine after the death of the process: everything that was stored is there.
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
                    // What was written back there went with it.
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

    /// From now on states are kept from which a loss of power is to be tried.
    pub fn watch(&mut self) {
        self.watched = Some(Vec::new());
        self.is_new = true;
    }

    /// The states kept since the last call, and last the present one, or the one in which the process
    /// died.
    pub fn take_watched(&mut self) -> Vec<Arc<World>> {
        self.is_new = true;
        self.keep();
        self.is_new = false;
        self.watched.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// As [`watch`](Self::watch), going on from states that were kept before.
    pub fn watch_after(&mut self, kept: Vec<Arc<World>>) {
        self.watched = Some(kept);
        self.is_new = true;
    }

    /// Makes a file that holds these pieces and otherwise holes, durably.
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

    /// The set of what the medium may hold is about to shrink.
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

    /// The moment, for a history.
    pub fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// The moment of a copy.
    pub fn clock(&self) -> u64 {
        self.clock
    }

    /// Copies the machine before the nth access to its memory from now.
    pub fn copy_at(&mut self, nth: u64) {
        self.copy_in = Some(nth);
    }

    /// The copy, if there were so many accesses.
    pub fn take_copy(&mut self) -> Option<Arc<World>> {
        self.copy_in = None;
        self.copy.take()
    }

    fn count_access(&mut self) {
        match self.copy_in {
            None => {}
            Some(0) => {
                self.copy_in = None;
                // Between two stamps, so that nothing has the same one.
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

    /// Nothing that is done from now on has any effect. The state is kept, where states are.
    pub fn kill(&mut self) {
        self.is_new = true;
        self.keep();
        self.is_dead = true;
    }

    /// Number of words of which the medium's value is not known.
    pub fn undetermined(&self) -> usize {
        self.files.values().map(|inode| inode.memory.undetermined()).sum()
    }

    /// Number of images: the combinations of the values of all words.
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

    /// The bytes of the file of this name, as a program that reads it would find them.
    pub fn contents(&mut self, path: &Path, at: u64, len: usize) -> Option<Vec<u8>> {
        let file = *self.names.get(path)?;
        let mut bytes = vec![0; len];
        let got = self.read_at(file, &mut bytes, at).ok()?;
        bytes.truncate(got);
        Some(bytes)
    }

    /// The file's length.
    pub fn len_of(&self, path: &Path) -> Option<u64> {
        self.names.get(path).map(|file| self.files[file].len)
    }

    /// The names of all files.
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

    /// A load of a word through the mapping.
    pub fn load(&mut self, file: FileNumber, at: u64) -> u64 {
        let Some(inode) = self.files.get_mut(&file) else { return 0 };
        inode.memory.load(at, &mut self.trail)
    }

    /// A copy out of the mapping.
    pub fn read(&mut self, file: FileNumber, to: &mut [u8], at: u64) {
        if let Some(inode) = self.files.get_mut(&file) {
            inode.memory.read(to, at, &mut self.trail);
        }
    }

    /// A store through the mapping.
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
            // Left out: the next drain does not wait for it.
            let lines = at / super::memory::LINE..end.div_ceil(super::memory::LINE);
            let count = (lines.end - lines.start) as usize;
            pending.truncate(pending.len() - count);
        }
    }

    /// A page that is stored to has storage, and what the file system did to it is durable.
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

    /// The write-back of lines begins.
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

    /// The calling thread waits for its flushes.
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
            // ELOOP: no link is followed.
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
        // Handles of one process share a number here; a lock is never asked for twice.
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
        // As far as it got, as ext4 does.
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

    /// The same, and the file stays as long as it is.
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

    /// The blocks that hold a range: where the first begins, and where the last ends.
    fn blocks(&self, offset: u64, len: u64) -> (u64, u64) {
        (offset / self.block * self.block, (offset + len).next_multiple_of(self.block))
    }

    /// Gives storage to what has none, from `start` on, as long as there are blocks. Where it got to.
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

    /// Takes the storage of a range away: whole blocks.
    fn give_blocks_back(&mut self, file: FileNumber, start: u64, end: u64) {
        let inode = self.inode(file);
        let before = inode.spans.bytes();
        inode.spans.remove(start, end);
        let given = before - inode.spans.bytes();
        self.left = self.left.map(|left| left + given / self.block);
    }

    pub(super) fn punch(&mut self, file: FileNumber, offset: u64, len: u64) -> io::Result<()> {
        self.alive()?;
        // What is punched out is gone at once, and what it held is not among the images any more
        // once the hole is durable.
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
                // What was stored past the end is gone.
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
                // What lay in blocks that are gone does not come back.
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
            // What was reserved past the end goes, too.
            self.give_blocks_back(file, start, u64::MAX / 2);
            self.note(Change::Allocated { file, start, end, before });
        }
        Ok(())
    }

    /// The rest of the file's last page reads as zeroes. On the disk it stays as it is.
    fn hide_past_the_end(&mut self, file: FileNumber) {
        self.zero_rest_of_page(file, self.files[&file].len, PAST_THE_END);
    }

    /// The file has grown from `was`: the zeroes there are written back with what is stored to it.
    fn show_past_the_end(&mut self, file: FileNumber, was: u64) {
        if self.is_page_cache {
            self.zero_rest_of_page(file, was, writer(file));
        }
    }

    /// Stores zeroes from `at` to the end of its page, if it has storage.
    fn zero_rest_of_page(&mut self, file: FileNumber, at: u64, by: Thread) {
        let rest = at.next_multiple_of(PAGE) - at;
        if rest == 0 || !self.files[&file].spans.holds(at) {
            return;
        }
        self.seq += 1;
        let inode = self.files.get_mut(&file).expect("an open file's number");
        let zeroes = vec![0; rest as usize];
        // Past the cache: only what waits for this store makes it durable.
        let through = by == PAST_THE_END;
        let nobody_waits = &mut Vec::new();
        inode.memory.store(at, &zeroes, self.seq, by, through, nobody_waits, &mut self.trail);
    }

    pub(super) fn sync(&mut self, file: FileNumber) -> io::Result<()> {
        self.sync_bytes(file, 0..u64::MAX / 2)
    }

    /// The same of the blocks of some bytes only: what a call has written through. Behind a page
    /// cache nothing else of the file is waited for.
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

    /// Chooses which of the records that are not durable are whole.
    fn tell_records_apart(&mut self, journal: FileNumber) {
        // By the superblock that was read before.
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

    /// The storage of a file that was removed is free again.
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

    /// The file system that all files lie on, as long as it stays mounted.
    pub(super) fn volume(&self) -> u64 {
        u64::from(self.mounts) + 1
    }

    pub(super) fn boot_id(&self) -> [u8; 16] {
        [self.boot; 16]
    }

    /// Uptime, when the machine was started, and when its folder of devices was made.
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
