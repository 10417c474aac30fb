//! Earlier versions of a database's file: with `snapshot_reads`, a read transaction sees one.
//!
//! A *version* is the file as a transaction of SQLite has left it. A reader takes the newest
//! version that is *visible*, and keeps it to its end. A publication copies the blocks that it is
//! going to change first, as the visible version has them. The new version becomes visible when the
//! writer gives its lock up, after its sync.
//!
//! - A block is copied before the first store to it. So a reader that finds a newer block in the
//!   file also finds the copy, if it looks for one after it has read the file.
//! - A block of a version is the oldest copy of that version or a later one. Without a copy it is
//!   in the file.
//! - A copy is needed by the readers of its own version, and of older ones that are newer than the
//!   next older copy of the block. All copies of the visible version are needed: its readers may
//!   yet come.
//! - Numbers of versions only grow, also past a publication that was rolled back. So a file that
//!   has no newer version than the reader's had none while the reader read it.
//!
//! Nothing of this is on the medium: after a crash there are no readers. May import `failure` and
//! `spill`.

use crate::failure::{Code, Failure, Result};
use crate::spill::Spill;
use atomic_mmap::{AtomicMappedFile, Error};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// The size of a copied block, in bytes. SQLite's pages may be smaller or larger.
const BLOCK: u64 = 4096;
/// The bytes of a database's header by which SQLite tells whether its page cache is still right.
/// Each commit changes them, and a rollback does not.
const COUNTERS: Range<u64> = 24..40;
/// Most bytes of memory that stay reserved for copies while there are none.
const SPARE: u64 = 1 << 20;

/// The versions of one file.
#[derive(Debug)]
pub(crate) struct Versions {
    /// The number of the newest version. It is not visible from its first copy until its commit.
    newest: AtomicU64,
    state: Mutex<State>,
}

/// A version of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Version {
    number: u64,
    /// The length of the file, in bytes.
    pub len: u64,
    /// The bytes of the header at [`COUNTERS`].
    counters: [u8; (COUNTERS.end - COUNTERS.start) as usize],
}

#[derive(Debug)]
struct State {
    visible: Version,
    /// The number of readers of each version that has some.
    readers: BTreeMap<u64, u64>,
    /// The copies of each block, the oldest version first.
    copies: HashMap<u64, Vec<Copied>>,
    /// The blocks that are copied as each version has them.
    blocks: BTreeMap<u64, Vec<u64>>,
    bytes: Spill,
    /// Places in `bytes` that hold no copy.
    free: Vec<u64>,
    /// `true` if a writer has gone that has published, and SQLite has yet to undo that.
    is_unfinished: bool,
}

/// A copied block.
#[derive(Debug)]
struct Copied {
    version: u64,
    /// Its place in `State::bytes`.
    place: u64,
}

impl Versions {
    /// Makes the first version of `file`. Copies beyond `budget` bytes lie in a temporary file in
    /// `folder`.
    pub fn new(file: &AtomicMappedFile, folder: &Path, budget: u64) -> Result<Self> {
        let state = State {
            visible: Version::of(file, 0)?,
            readers: BTreeMap::new(),
            copies: HashMap::new(),
            blocks: BTreeMap::new(),
            bytes: Spill::new(folder, budget),
            free: Vec::new(),
            is_unfinished: false,
        };
        Ok(Versions { newest: AtomicU64::new(0), state: Mutex::new(state) })
    }

    /// Begins to read the visible version, until [`end`](Self::end).
    pub fn begin(&self) -> Version {
        self.state.lock().join()
    }

    pub fn end(&self, version: Version) {
        self.state.lock().leave(version.number);
    }

    /// Returns `true` if a writer may begin with what a reader of `version` has read.
    pub fn may_write(&self, version: Version) -> bool {
        let state = self.state.lock();
        state.visible.counters == version.counters && !state.is_unfinished
    }

    /// Fills `to` with the bytes that `version` has at `offset`. They end within its length.
    pub fn read(
        &self,
        file: &AtomicMappedFile,
        version: Version,
        to: &mut [u8],
        offset: u64,
    ) -> Result<()> {
        read_padded(file, to, offset)?;
        // After the read: a copy that was made before the bytes were stored is visible by now.
        if self.newest.load(Ordering::SeqCst) == version.number {
            return Ok(());
        }
        self.state.lock().read_copies(version, to, offset)
    }

    /// Copies the blocks of `ranges`, as the visible version has them. The caller is the only
    /// writer, and stores to these ranges afterwards.
    pub fn keep(&self, file: &AtomicMappedFile, ranges: &[Range<u64>]) -> Result<()> {
        let visible = self.state.lock().visible;
        let mut bytes = [0; BLOCK as usize];
        for range in ranges.iter().filter(|range| range.start < visible.len) {
            let end = range.end.min(visible.len);
            for block in range.start / BLOCK..end.div_ceil(BLOCK) {
                if self.state.lock().has_copy(block, visible.number) {
                    continue;
                }
                read_padded(file, &mut bytes, block * BLOCK)?;
                self.state.lock().add_copy(block, visible.number, &bytes)?;
            }
        }
        self.newest.store(visible.number + 1, Ordering::SeqCst);
        Ok(())
    }

    /// Ends a writer's transaction. What it has published becomes visible. Returns the version that
    /// it reads from here on.
    pub fn settle(&self, file: &AtomicMappedFile, version: Version) -> Version {
        let number = self.newest.load(Ordering::SeqCst);
        let found = Version::of(file, number);
        let mut state = self.state.lock();
        let before = state.visible.number;
        if number > before {
            let Version { len, counters, .. } = state.visible;
            // A file that cannot be read fails every later read and write as well.
            state.visible = found.unwrap_or(Version { number, len, counters });
        }
        state.is_unfinished = false;
        state.leave(version.number);
        state.drop_copies(before..number);
        state.join()
    }

    /// Ends a writer's transaction that SQLite has to undo by its journal. What it has published
    /// stays invisible. No writer begins before that is undone.
    pub fn leave_unfinished(&self) {
        let mut state = self.state.lock();
        state.is_unfinished = self.newest.load(Ordering::SeqCst) > state.visible.number;
    }

    /// Returns the bytes of all copies.
    pub fn copied(&self) -> u64 {
        let state = self.state.lock();
        state.bytes.len() - state.free.len() as u64 * BLOCK
    }
}

impl Version {
    fn of(file: &AtomicMappedFile, number: u64) -> Result<Self> {
        let mut counters = [0; (COUNTERS.end - COUNTERS.start) as usize];
        read_padded(file, &mut counters, COUNTERS.start)?;
        Ok(Version { number, len: file.len(), counters })
    }
}

impl State {
    fn join(&mut self) -> Version {
        *self.readers.entry(self.visible.number).or_default() += 1;
        self.visible
    }

    /// Takes a reader of the version `number` away, and drops the copies that only it needed.
    fn leave(&mut self, number: u64) {
        let count = self.readers.get_mut(&number).expect("a reader that has begun");
        *count -= 1;
        if *count == 0 {
            self.readers.remove(&number);
            // Newer copies that this reader needed are needed by the next reader, too.
            let next = self.readers.range(number..).next();
            let end = next.map_or(self.visible.number, |(next, _)| *next);
            self.drop_copies(number..end);
        }
    }

    /// Drops the copies of `versions` that no reader needs. None of these versions is visible.
    fn drop_copies(&mut self, versions: Range<u64>) {
        let State { readers, copies, free, .. } = self;
        let mut is_needed = |version: u64, block: &u64| {
            let of_block = copies.get_mut(block).expect("listed");
            let at = of_block.iter().position(|copy| copy.version == version).expect("listed");
            let older = at.checked_sub(1).map_or(0, |older| of_block[older].version + 1);
            if readers.range(older..=version).next().is_some() {
                return true;
            }
            free.push(of_block.remove(at).place);
            if of_block.is_empty() {
                copies.remove(block);
            }
            false
        };
        for (version, blocks) in self.blocks.range_mut(versions) {
            blocks.retain(|block| is_needed(*version, block));
        }
        self.blocks.retain(|_, blocks| !blocks.is_empty());
        let is_large = self.bytes.is_on_disk() || self.bytes.len() > SPARE;
        if self.copies.is_empty() && is_large {
            self.bytes.clear();
            self.free.clear();
        }
    }

    fn has_copy(&self, block: u64, version: u64) -> bool {
        let of_block = self.copies.get(&block).and_then(|copies| copies.last());
        of_block.is_some_and(|copy| copy.version == version)
    }

    fn add_copy(&mut self, block: u64, version: u64, bytes: &[u8]) -> Result<()> {
        let reused = self.free.last().copied();
        let place = reused.unwrap_or(self.bytes.len());
        self.bytes.write(bytes, place)?;
        // After the write, which may fail.
        if reused.is_some() {
            self.free.pop();
        }
        self.copies.entry(block).or_default().push(Copied { version, place });
        self.blocks.entry(version).or_default().push(block);
        Ok(())
    }

    /// Replaces the bytes in `to` of which there are copies for `version`.
    fn read_copies(&self, version: Version, to: &mut [u8], offset: u64) -> Result<()> {
        let end = offset + to.len() as u64;
        for block in offset / BLOCK..end.div_ceil(BLOCK) {
            let of_block = self.copies.get(&block).into_iter().flatten();
            let Some(copy) = of_block.into_iter().find(|copy| copy.version >= version.number)
            else {
                continue;
            };
            let start = block * BLOCK;
            let (first, last) = (start.max(offset), (start + BLOCK).min(end));
            let part = &mut to[(first - offset) as usize..(last - offset) as usize];
            self.bytes.read(part, copy.place + first - start)?;
        }
        Ok(())
    }
}

/// Fills `to` with the file's bytes at `offset`, and with zeroes past its end.
fn read_padded(file: &AtomicMappedFile, to: &mut [u8], offset: u64) -> Result<()> {
    loop {
        let count = file.len().saturating_sub(offset).min(to.len() as u64) as usize;
        let (bytes, past) = to.split_at_mut(count);
        past.fill(0);
        if count == 0 {
            return Ok(());
        }
        match file.read_at(bytes, offset) {
            // A writer has made the file shorter meanwhile.
            Err(Error::PastEnd { .. }) => {}
            read => return read.map_err(|error| Failure::of(&error, Code::IOERR_READ)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atomic_mmap::Medium;
    use fastrand::Rng;
    use std::sync::atomic::AtomicBool;

    fn file(folder: &Path, name: &str) -> AtomicMappedFile {
        let options = AtomicMappedFile::options().create(true).medium(Medium::Ram);
        options.open(folder.join(name)).expect("open")
    }

    fn versions_of(file: &AtomicMappedFile, folder: &Path, budget: u64) -> Versions {
        Versions::new(file, folder, budget).expect("read")
    }

    fn keep(versions: &Versions, file: &AtomicMappedFile, range: Range<u64>) {
        versions.keep(file, std::slice::from_ref(&range)).expect("keep");
    }

    fn assert_reads(
        versions: &Versions,
        file: &AtomicMappedFile,
        (version, expected): &(Version, Vec<u8>),
        random: &mut Rng,
    ) {
        assert_eq!(version.len, expected.len() as u64);
        let mut all = vec![9; expected.len()];
        versions.read(file, *version, &mut all, 0).expect("read");
        assert!(all == *expected, "{version:?}");
        let from = random.usize(..=expected.len());
        let to = random.usize(from..=expected.len());
        let mut part = vec![9; to - from];
        versions.read(file, *version, &mut part, from as u64).expect("read");
        assert!(part == expected[from..to], "{version:?} {from}..{to}");
    }

    /// Publishes a random change of the bytes `now`, and of the length.
    fn publish(versions: &Versions, file: &AtomicMappedFile, now: &mut Vec<u8>, random: &mut Rng) {
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..=now.len());
            if random.u8(..) < 50 {
                keep(versions, file, at as u64..now.len() as u64);
                now.truncate(at);
                file.set_len(at as u64).expect("cut");
                continue;
            }
            let end = at + random.usize(1..9000);
            keep(versions, file, at as u64..end as u64);
            let bytes: Vec<u8> = (at..end).map(|_| random.u8(..)).collect();
            now.resize(now.len().max(end), 0);
            now[at..end].copy_from_slice(&bytes);
            file.set_len(now.len() as u64).expect("grow");
            file.write_at(&bytes, at as u64).expect("write");
        }
    }

    /// Readers come and go, and a writer publishes several times before its commit, as a rollback
    /// does. Each reader reads what the file was when it came.
    #[test]
    fn each_reader_reads_the_version_of_its_beginning() {
        let folder = tempfile::tempdir().expect("a folder");
        for budget in [1 << 20, 30_000] {
            let file = file(folder.path(), &budget.to_string());
            let random = &mut Rng::with_seed(budget);
            let versions = versions_of(&file, folder.path(), budget);
            let (mut now, mut visible) = (Vec::new(), Vec::new());
            let mut readers: Vec<(Version, Vec<u8>)> = Vec::new();
            for _ in 0..400 {
                match random.u8(..10) {
                    0..3 => readers.push((versions.begin(), visible.clone())),
                    3..5 if !readers.is_empty() => {
                        let gone = readers.swap_remove(random.usize(..readers.len()));
                        versions.end(gone.0);
                    }
                    _ => {
                        let writer = versions.begin();
                        assert!(versions.may_write(writer));
                        publish(&versions, &file, &mut now, random);
                        for reader in &readers {
                            assert_reads(&versions, &file, reader, random);
                        }
                        let late = (versions.begin(), visible);
                        assert_reads(&versions, &file, &late, random);
                        let after = versions.settle(&file, writer);
                        assert!(versions.may_write(after));
                        versions.end(late.0);
                        versions.end(after);
                        visible = now.clone();
                    }
                }
                for reader in &readers {
                    assert_reads(&versions, &file, reader, random);
                }
            }
            readers.into_iter().for_each(|(version, _)| versions.end(version));
            let state = versions.state.lock();
            assert!(state.copies.is_empty() && state.blocks.is_empty() && state.readers.is_empty());
            drop(state);
            assert_eq!(versions.copied(), 0);
        }
    }

    /// The header counts the commits, and every other byte is that number.
    #[test]
    fn threads_read_the_version_that_they_have_begun_with() {
        const LEN: u64 = 4 * BLOCK;
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path(), "x");
        file.set_len(LEN).expect("grow");
        let versions = versions_of(&file, folder.path(), 1 << 20);
        let is_over = AtomicBool::new(false);
        let read = || {
            while !is_over.load(Ordering::Relaxed) {
                let version = versions.begin();
                for block in [1, 2, 3] {
                    let mut bytes = [9; BLOCK as usize];
                    versions.read(&file, version, &mut bytes, block * BLOCK).expect("read");
                    assert!(bytes.iter().all(|byte| *byte == version.counters[0]), "{version:?}");
                }
                versions.end(version);
            }
        };
        std::thread::scope(|scope| {
            let readers = [scope.spawn(read), scope.spawn(read)];
            for n in 0..5000_u64 {
                let writer = versions.begin();
                keep(&versions, &file, 0..LEN);
                let bytes = [n as u8; (LEN - BLOCK) as usize];
                file.write_many(&[(COUNTERS.start, &[n as u8]), (BLOCK, &bytes)]).expect("write");
                versions.end(versions.settle(&file, writer));
            }
            is_over.store(true, Ordering::Relaxed);
            assert!(readers.into_iter().all(|reader| reader.join().is_ok()));
        });
        assert_eq!(versions.copied(), 0);
    }

    #[test]
    fn a_long_reader_costs_one_copy_of_each_block() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path(), "x");
        file.set_len(10 * BLOCK).expect("grow");
        let versions = versions_of(&file, folder.path(), 1 << 20);
        let reader = versions.begin();
        for n in 0..50 {
            let (writer, at) = (versions.begin(), n % 4 * BLOCK);
            keep(&versions, &file, at..at + 10);
            file.write_at(&[1; 10], at).expect("write");
            let writer = versions.settle(&file, writer);
            versions.end(writer);
            assert_eq!(versions.copied(), BLOCK * (n + 1).min(4));
        }
        versions.end(reader);
        assert_eq!(versions.copied(), 0);
    }

    #[test]
    fn a_commit_makes_earlier_readers_stale_and_a_rollback_does_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path(), "x");
        file.set_len(10 * BLOCK).expect("grow");
        let versions = versions_of(&file, folder.path(), 1 << 20);
        let reader = versions.begin();
        for (at, is_commit) in [(BLOCK, false), (0, false), (24, true)] {
            let writer = versions.begin();
            assert!(versions.may_write(writer));
            keep(&versions, &file, at..at + 1);
            file.write_at(&[1], at).expect("write");
            versions.end(versions.settle(&file, writer));
            assert_eq!(versions.may_write(reader), !is_commit);
        }
        versions.end(reader);
    }

    /// A transaction of several files that has failed, and could not be undone for want of space.
    #[test]
    fn what_has_yet_to_be_undone_is_not_visible() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path(), "x");
        file.set_len(BLOCK).expect("grow");
        let versions = versions_of(&file, folder.path(), 1 << 20);
        let writer = versions.begin();
        keep(&versions, &file, 0..1);
        file.write_at(&[1], 0).expect("write");
        versions.leave_unfinished();
        versions.end(writer);
        let reader = versions.begin();
        assert!(!versions.may_write(reader));
        let mut byte = [9];
        versions.read(&file, reader, &mut byte, 0).expect("read");
        assert_eq!(byte, [0]);
        // The playback.
        file.write_at(&[0], 0).expect("write");
        let reader = versions.settle(&file, reader);
        assert!(versions.may_write(reader));
        versions.end(reader);
        assert_eq!(versions.copied(), 0);
    }
}
