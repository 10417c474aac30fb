//! A look at a pair that changes nothing: what opening would find, and what it would do.
//!
//! Invariant: nothing here writes, waits, or keeps a lock. Findings and decision come from the code
//! that opening uses. May import `context`, `probe`, `pair`, `engine` and below.

use super::pair::{self, Decision, Found};
use super::probe::Probe;
use super::replay_journal::{region_bit, words_of};
use super::{Located, lanes};
use crate::bitmap::Validity;
use crate::config::OnMismatch;
use crate::config::options::Options;
use crate::error::{Error, Mismatch, Result, variants};
use crate::format::snapshots::table::Entry;
use crate::format::{layout, le_word};
use crate::platform::{File, FileId, Name, Platform};
use crate::units::{CHUNK, PAGE, PageIndex, SUPERCHUNK, WORD};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The findings about a file and its companions, and what opening would do: see
/// [`Options::inspect`](crate::Options::inspect).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Inspection {
    /// The home file, with all links resolved.
    pub home: PathBuf,
    /// Its length on the disk, in bytes.
    pub home_len: u64,
    /// `true` if the file is open for writing, here or in another process. Then there is no
    /// decision, and the other findings may be of different moments.
    pub is_open: bool,
    /// The number of the process that has it open, where the system tells it.
    pub process: Option<u32>,
    /// The state of the home file's attribute: the first column of the pair table. These and the
    /// next three are names that stay, as `of-this-file`.
    pub mark: String,
    /// The reflection file that was found: the second column.
    pub found: String,
    /// The fate of the home file since then, if the reflection file is its own.
    pub found_home: Option<String>,
    /// The state in which the reflection file was left, if it is the home file's own.
    pub found_state: Option<String>,
    /// The decision of an opening.
    pub decision: Option<Decision>,
    /// The decision with [`OnMismatch::Discard`].
    pub if_discarded: Option<Decision>,
    /// The decision with [`OnMismatch::Trust`].
    pub if_trusted: Option<Decision>,
    /// The reflection file, if there is one that counts or may count.
    pub reflection: Option<PathBuf>,
    /// The journal beside it, if there is one.
    pub journal: Option<PathBuf>,
    /// The file with the snapshots beside it, if there is one.
    pub snapshot_file: Option<PathBuf>,
    /// The snapshots that opening would find, the oldest first.
    pub snapshots: Vec<SnapshotFound>,
    /// The identifier of the pair.
    pub uuid: Option<String>,
    /// How many times the pair was opened or closed.
    pub session: Option<u64>,
    /// The length that a handle would have, in bytes, as far as the findings tell.
    pub len: u64,
    /// The number of lanes with log records that recovery would apply.
    pub lanes: usize,
    words: Option<(Platform, Arc<File>)>,
}

/// A snapshot that a look at a file has found.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SnapshotFound {
    /// Its number.
    pub number: u64,
    /// Its name.
    pub name: String,
    /// The time of its seal.
    pub created: SystemTime,
    /// The file's length in it, in bytes.
    pub len: u64,
}

impl From<Entry> for SnapshotFound {
    fn from(Entry { number, name, nanos, len, .. }: Entry) -> Self {
        let created = SystemTime::UNIX_EPOCH.checked_add(Duration::from_nanos(nanos));
        let created = created.unwrap_or(SystemTime::UNIX_EPOCH);
        SnapshotFound { number, name, created, len }
    }
}

impl Inspection {
    fn of(
        located: &Located<'_>,
        look: Probe,
        entries: Vec<lanes::Findings>,
        snapshots: Vec<SnapshotFound>,
        (is_open, process): (bool, Option<u32>),
    ) -> Self {
        let (opening, stat) = (&located.opening, &located.stat);
        let decide = |wish| (!is_open).then(|| pair::decide(look.mark, look.found, wish));
        let exists = |name: &Name| {
            let there = opening.platform.stat_name(name);
            matches!(there, Ok(Some(_))).then(|| name.path().to_owned())
        };
        let decision = decide(OnMismatch::Refuse);
        let mut found = variants(&look.found).into_iter();
        let superblock = look.superblock.as_ref();
        let has_pair = superblock.is_some();
        let len = match (&look.journal, decision) {
            (Some(journal), Some(Decision::GoBack | Decision::Settle)) => journal.len(),
            // Its journal would tell.
            (None, Some(Decision::Refuse(Mismatch::JournalGone | Mismatch::JournalSwapped))) => {
                stat.len
            }
            _ if has_pair => look.lengths.len,
            _ => stat.len,
        };
        let applies = |of: &lanes::Actions| {
            !(of.take_back.is_empty() && of.logged_flips.is_empty() && of.redo.is_empty())
                || of.len.is_some()
        };
        Inspection {
            home: opening.path.to_owned(),
            home_len: stat.len,
            is_open,
            process,
            mark: variants(&look.mark).concat(),
            found: found.next().unwrap_or_default(),
            found_home: found.next(),
            found_state: found.next(),
            decision,
            if_discarded: decide(OnMismatch::Discard),
            if_trusted: decide(OnMismatch::Trust),
            reflection: exists(&look.companions.reflection),
            journal: exists(look.companions.journal()).filter(|_| has_pair),
            snapshot_file: exists(look.companions.snapshots()).filter(|_| has_pair),
            snapshots,
            uuid: superblock
                .map(|superblock| format!("{:032x}", u128::from_be_bytes(superblock.uuid))),
            session: superblock.map(|superblock| superblock.session),
            len,
            lanes: entries.into_iter().map(lanes::decide).filter(applies).count(),
            words: look.file.map(|file| (opening.platform.clone(), Arc::new(file))),
        }
    }

    /// Returns ranges of offsets in bytes, in ascending order, that a reader by
    /// [`best_effort`](Options::best_effort) may find old, or of different times. Outside of them
    /// nothing was written since the pair was made. All of the file, if its companions tell nothing
    /// any more. None, if an open would not refuse it.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn doubtful(&self) -> Result<Vec<Range<u64>>> {
        use Decision::Refuse;
        let has_words = match (self.decision, self.if_trusted) {
            (Some(Refuse(Mismatch::JournalGone | Mismatch::JournalSwapped)), _) => true,
            (Some(Refuse(_)), trusted) => !matches!(trusted, Some(Refuse(_))),
            _ => return Ok(Vec::new()),
        };
        let len = self.len.max(self.home_len);
        let Some((platform, file)) = self.words.as_ref().filter(|_| has_words) else {
            return Ok(std::iter::once(0..len).collect());
        };
        let path = self.reflection.as_deref().unwrap_or(&self.home);
        let mut ranges: Vec<Range<u64>> = Vec::new();
        // A page of words is the storage of those of a chunk.
        for start in (0..len).step_by(CHUNK) {
            let page = PageIndex::of(start);
            let mut has_any = false;
            for at in [layout::slice_word(page), layout::durable_word(page)] {
                let data = platform.next_data(file, at);
                let data = data.map_err(|e| Error::io_at("look for data", path, at, e))?;
                has_any |= data.is_some_and(|data| data < at.saturating_add(PAGE as u64));
            }
            let end = start.saturating_add(CHUNK as u64).min(len);
            match ranges.last_mut() {
                Some(last) if has_any && last.end == start => last.end = end,
                _ if has_any => ranges.push(start..end),
                _ => {}
            }
        }
        Ok(ranges)
    }

    /// Calls `visit` for each page of 4 KiB that has bytes in the reflection file. Its arguments
    /// are the page's offset, and a bit for each of the page's 64 slices of 64 bytes. Reads the
    /// words as they are now, also those of an open file. Where opening goes back to a durable
    /// point, it changes them.
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// # let path = dir.path().join("state.dat");
    /// use atomic_mmap::AtomicMappedFile;
    ///
    /// let f = AtomicMappedFile::create(&path, 1 << 20)?;
    /// f.write_at(&[1; 200], 8192)?;
    /// let mut slices = 0;
    /// let look = AtomicMappedFile::options().inspect(&path)?;
    /// look.each_reflected_page(|_offset, bits| slices += bits.count_ones())?;
    /// assert!(look.is_open && slices <= 4);
    /// # Ok::<(), atomic_mmap::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Io`], also if the reflection file was cut off.
    pub fn each_reflected_page(&self, mut visit: impl FnMut(u64, u64)) -> Result<()> {
        let Some((platform, file)) = &self.words else { return Ok(()) };
        let path = self.reflection.as_deref().unwrap_or(&self.home);
        let read = |bytes: &mut [u8], at| {
            let read = platform.read_at(file, FileId::Reflection, bytes, at);
            read.map_err(|e| Error::io_at("read words", path, at, e))
        };
        let there = platform.stat(file).map_err(|e| Error::io("look up", path, e))?.len;
        let mut regions = vec![0; layout::REGION_WORDS_LEN as usize];
        let mut slices = vec![0; SUPERCHUNK / PAGE * WORD];
        for start in (0..self.len).step_by(SUPERCHUNK) {
            let (first, len) = words_of(start, self.len);
            let (words, regions_at) =
                (layout::slice_word(first), layout::region_word(first.region()));
            let data = platform.next_data(file, words);
            let data = data.map_err(|e| Error::io_at("look for data", path, words, e))?;
            let end = regions_at.saturating_add(layout::REGION_WORDS_LEN);
            // Most words of a long file are holes. Those of one that was cut off are not there.
            if there >= end && data.is_none_or(|data| data >= end) {
                continue;
            }
            read(&mut regions, regions_at)?;
            let slices = &mut slices[..len];
            read(slices, words)?;
            for (n, word) in (0..).zip(slices.chunks_exact(WORD)) {
                let page = first.plus(n);
                let Validity(there) = Validity::new(le_word(word), region_bit(&regions, page));
                if there != 0 {
                    visit(page.start(), there);
                }
            }
        }
        Ok(())
    }
}

/// Looks at the pair of `path`, without an effect on any file. Holds no lock meanwhile: an opening
/// for writing would be refused.
pub(crate) fn inspect(platform: Platform, options: &Options, path: &Path) -> Result<Inspection> {
    let name = platform.name(path).map_err(|e| Error::of_opening(path, true, e))?;
    let located = Located::find_unlocked(&platform, options, path, &name)?;
    let (opening, home) = (&located.opening, &located.home.file);
    let is_open = || {
        let locked = opening.try_lock_to_read(home).and_then(|locked| {
            if locked { platform.unlock(home).map(|()| true) } else { Ok(false) }
        });
        locked.map(|locked| !locked).map_err(opening.io("lock", opening.path))
    };
    let was_open = is_open()?;
    let (look, entries) = if was_open {
        (opening.look(home, &located.stat)?, None)
    } else {
        let (look, _, entries) = located.findings()?;
        (look, entries)
    };
    let is_open = was_open || is_open()?;
    let snapshots = snapshots_of(&located, &look)?;
    let process = if is_open { platform.lock_holder(home) } else { None };
    let entries = entries.unwrap_or_default();
    Ok(Inspection::of(&located, look, entries, snapshots, (is_open, process)))
}

/// Returns the snapshots of a pair that counts.
fn snapshots_of(located: &Located<'_>, look: &Probe) -> Result<Vec<SnapshotFound>> {
    let Some(superblock) = &look.superblock else { return Ok(Vec::new()) };
    if !matches!(look.found, Found::OfThisFile { .. }) {
        return Ok(Vec::new());
    }
    let name = look.companions.snapshots();
    let found = located.opening.find_store(name, &located.stat, superblock)?;
    let entries = found.map(|found| found.table.entries).unwrap_or_default();
    Ok(entries.into_iter().map(SnapshotFound::from).collect())
}
