//! A file with page sums and snapshots, and a model of it: plain bytes for the present, for the
//! last durable point and for each snapshot.
//!
//! Invariant: while nothing is damaged, the file holds what the model says. An operation that fails
//! changes neither.
//!
//! May import `place`, `scratch` and `faults::files`.

use super::place::{LONGEST, Lengths, PAGE_LEN};
use crate::faults::files::{HOME, Place};
use crate::scratch::Scratch;
use atomic_mmap::testing::snapshots::{SEGMENT, SegmentIndex};
use atomic_mmap::{
    AtomicMappedFile, CloseMode, DeployPolicy, Durability, Error, Integrity, Medium, Options,
};
use std::collections::HashSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

/// Length of a new file, in bytes: it ends within a page, and within its second region.
const LEN: u64 = 70 * PAGE_LEN + 100;
/// Lengths to which files shrink and grow.
const SHORTEST: u64 = 66 * PAGE_LEN;
const LONGEST_FILE: u64 = 75 * PAGE_LEN;
/// Length of the journal.
const JOURNAL_LEN: u64 = 256 << 10;
/// Most snapshots of a file.
const SNAPSHOTS: usize = 3;

/// A medium, and the durability of its files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ground {
    /// Name in messages.
    pub name: &'static str,
    medium: Medium,
    durability: Durability,
}

/// All grounds. None needs a mount.
pub const GROUNDS: [Ground; 4] = [
    Ground { name: "dax", medium: Medium::Dax, durability: Durability::OnSync },
    Ground { name: "ram", medium: Medium::Ram, durability: Durability::OnSync },
    Ground { name: "page cache", medium: Medium::PageCache, durability: Durability::OnSync },
    Ground { name: "atomic sync", medium: Medium::PageCache, durability: Durability::AtomicSync },
];

impl Ground {
    fn options(&self) -> Options {
        AtomicMappedFile::options()
            .medium(self.medium)
            .durability(self.durability)
            .journal_len(JOURNAL_LEN)
            .max_len(1 << 20)
            .integrity(Integrity::OnRead)
            .deploy(DeployPolicy::Manual)
            .close_on_drop(CloseMode::Unsynced)
    }

    /// Returns `true` if this build supports the ground.
    pub fn is_served(&self) -> bool {
        let scratch = Scratch::in_memory("scribbles");
        self.options().create(true).len(1).open(scratch.path().join("probe")).is_ok()
    }

    /// Returns `true` if the file has a journal.
    pub fn keeps_points(&self) -> bool {
        self.medium == Medium::PageCache
    }

    /// Returns `true` if a crash of the process takes the file back to its last durable point.
    pub fn goes_back(&self) -> bool {
        self.durability == Durability::AtomicSync
    }
}

/// A snapshot: its name, and the bytes that were sealed.
pub type Sealed = (String, Vec<u8>);

/// The bytes that a file should hold.
#[derive(Clone, Default, Debug)]
pub struct Model {
    /// The present.
    pub present: Vec<u8>,
    /// The present at the last durable point.
    pub durable: Vec<u8>,
    /// The live snapshots, the oldest first.
    pub sealed: Vec<Sealed>,
    /// All states that each page has had, and those that failed operations would have made.
    history: HashSet<(usize, u64)>,
}

impl Model {
    /// Returns `true` if the page once had these bytes.
    pub fn was(&self, page: usize, bytes: &[u8]) -> bool {
        self.history.contains(&(page, hash_of(bytes)))
    }

    /// Returns the range of a page.
    pub fn range(&self, page: usize) -> std::ops::Range<usize> {
        page_range(self.present.len(), page)
    }

    /// Returns the number of pages.
    pub fn pages(&self) -> usize {
        self.present.len().div_ceil(PAGE_LEN as usize)
    }

    /// Notes the pages of a state that are not those of the present.
    fn note(&mut self, state: &[u8]) {
        for page in 0..state.len().div_ceil(PAGE_LEN as usize) {
            let bytes = &state[page_range(state.len(), page)];
            if self.present[self.range(page)] != *bytes {
                self.history.insert((page, hash_of(bytes)));
            }
        }
    }
}

/// Returns the range of a page in a file of `len` bytes. It may be empty.
pub fn page_range(len: usize, page: usize) -> std::ops::Range<usize> {
    let start = page * PAGE_LEN as usize;
    start.min(len)..(start + PAGE_LEN as usize).min(len)
}

/// Returns a hash of a page, which ends with zeroes past the end of the file.
fn hash_of(bytes: &[u8]) -> u64 {
    let mut page = [0; PAGE_LEN as usize];
    page[..bytes.len()].copy_from_slice(bytes);
    let mut hasher = DefaultHasher::new();
    page.hash(&mut hasher);
    hasher.finish()
}

/// Bytes, and their offset.
type Piece = (u64, Vec<u8>);

/// A change of the file.
enum Operation {
    Write([Piece; 1]),
    UnderAView([Piece; 1]),
    Transaction([Piece; 3]),
    Length(u64),
    Deploy,
    Sync,
    Seal,
    Drop(usize),
}

/// One file in use.
pub struct Subject {
    /// The ground.
    pub ground: Ground,
    scratch: Scratch,
    file: Option<AtomicMappedFile>,
    /// The bytes that the file should hold.
    pub model: Model,
    /// All random choices.
    pub rng: fastrand::Rng,
    seals: u64,
}

impl Subject {
    /// Makes a file.
    pub fn new(ground: Ground, rng: fastrand::Rng) -> Result<Subject, Error> {
        let scratch = Scratch::in_memory("scribbles");
        fs::create_dir(scratch.path().join("home")).expect("a folder");
        let mut model = Model::default();
        model.note(&vec![0; LONGEST_FILE as usize]);
        model.present = vec![0; LEN as usize];
        model.durable.clone_from(&model.present);
        let mut subject = Subject { ground, scratch, file: None, model, rng, seals: 0 };
        let file = ground.options().create(true).len(LEN).open(subject.place().home())?;
        subject.file = Some(file);
        Ok(subject)
    }

    /// Returns the folder of the files.
    pub fn place(&self) -> Place {
        Place { folder: self.scratch.path().join("home"), elsewhere: None }
    }

    /// Returns the paths of home file, reflection file, journal and store, whether there or not.
    pub fn paths(&self) -> [PathBuf; 4] {
        let reflection = self.place().reflection().unwrap_or_default();
        let beside = |end: &str| reflection.with_added_extension(end);
        let (journal, store) = (beside("journal"), beside("snapshots"));
        [self.scratch.path().join("home").join(HOME), reflection, journal, store]
    }

    /// Returns the lengths of the files. `store` has the bytes of the store.
    pub fn lengths(&self, store: &[u8]) -> Lengths {
        let [_, _, journal, _] = self.paths().map(|path| fs::metadata(path).map_or(0, |m| m.len()));
        let used = (1..SegmentIndex::count(store.len() as u64))
            .map(|n| SegmentIndex(n).start() as usize)
            .filter(|at| store.get(*at..at + 8).is_some_and(|magic| magic != [0; 8]))
            .max();
        let store = used.map_or(0, |at| (at + SEGMENT).min(store.len())) as u64;
        Lengths { home: self.model.present.len() as u64, journal, store }
    }

    /// Returns the open file.
    ///
    /// # Panics
    /// If it is closed.
    pub fn file(&self) -> &AtomicMappedFile {
        self.file.as_ref().expect("an open file")
    }

    /// Opens the file.
    pub fn open(&mut self) -> Result<(), Error> {
        self.file = Some(self.ground.options().open(self.place().home())?);
        Ok(())
    }

    /// Closes the file. `Unsynced` leaves what a process crash would leave.
    pub fn close(&mut self, mode: CloseMode) -> Result<(), Error> {
        let Some(file) = self.file.take() else { return Ok(()) };
        let closed = file.close(mode).map(drop);
        if mode == CloseMode::Unsynced && self.ground.goes_back() {
            self.model.present.clone_from(&self.model.durable);
        } else if closed.is_ok() && mode != CloseMode::Unsynced {
            self.model.durable.clone_from(&self.model.present);
        }
        closed
    }

    fn piece(&mut self) -> Piece {
        let end = self.model.present.len() as u64;
        let longest = [64, 300, PAGE_LEN, 9000, LONGEST][self.rng.usize(0..5)];
        let len = self.rng.u64(1..=longest.min(end));
        let mut at = self.rng.u64(0..=end - len);
        // Whole pages are written by other ways.
        if self.rng.u32(0..3) == 0 {
            at -= at % PAGE_LEN;
        }
        let mut bytes = vec![0; len as usize];
        self.rng.fill(&mut bytes);
        (at, bytes)
    }

    fn draw(&mut self) -> Operation {
        match self.rng.u32(0..40) {
            0..=15 => Operation::Write([self.piece()]),
            16..=23 => Operation::Transaction([self.piece(), self.piece(), self.piece()]),
            24..=27 => Operation::UnderAView([self.piece()]),
            28 => Operation::Length(self.rng.u64(SHORTEST..LONGEST_FILE)),
            29..=31 => Operation::Deploy,
            32..=35 => Operation::Sync,
            _ if self.model.sealed.len() < SNAPSHOTS => Operation::Seal,
            _ => Operation::Drop(self.rng.usize(0..SNAPSHOTS)),
        }
    }

    /// Makes one random operation. If it fails, it has changed nothing.
    pub fn operate(&mut self) -> Result<(), Error> {
        let operation = self.draw();
        let mut after = self.model.present.clone();
        let pieces: &[Piece] = match &operation {
            Operation::Write(piece) | Operation::UnderAView(piece) => piece,
            Operation::Transaction(pieces) => pieces,
            _ => &[],
        };
        for (at, bytes) in pieces {
            after[*at as usize..][..bytes.len()].copy_from_slice(bytes);
        }
        if let Operation::Length(len) = operation {
            after.resize(len as usize, 0);
        }
        // Also if it fails: its sums may have been stored.
        self.model.note(&after);
        self.apply(&operation)?;
        self.model.present = after;
        // Some lengths make a point and some do not.
        if let Operation::Length(_) = operation {
            self.file().sync()?;
        }
        let is_point = matches!(
            operation,
            Operation::Length(_) | Operation::Deploy | Operation::Sync | Operation::Seal
        );
        if is_point {
            self.model.durable.clone_from(&self.model.present);
        }
        Ok(())
    }

    fn apply(&mut self, operation: &Operation) -> Result<(), Error> {
        match operation {
            Operation::Write([(at, bytes)]) => self.file().write_at(bytes, *at),
            Operation::Transaction(pieces) => self
                .file()
                .transact(|t| pieces.iter().try_for_each(|(at, bytes)| t.write_at(bytes, *at))),
            Operation::UnderAView([(at, bytes)]) => {
                let file = self.file();
                let _view = file.view(*at..at + bytes.len() as u64)?;
                file.write_at(bytes, *at)
            }
            Operation::Length(len) => self.file().set_len(*len),
            Operation::Deploy => self.file().deploy(0..self.file().len()).map(drop),
            Operation::Sync => self.file().sync().map(drop),
            Operation::Seal => self.seal().map(drop),
            Operation::Drop(n) => {
                self.file().drop_snapshot(&self.model.sealed[*n].0)?;
                self.model.sealed.remove(*n);
                Ok(())
            }
        }
    }

    /// Seals the present. Returns the snapshot's name.
    pub fn seal(&mut self) -> Result<String, Error> {
        self.seals += 1;
        let name = format!("s{}", self.seals);
        self.file().snapshot(&name)?;
        self.model.sealed.push((name.clone(), self.model.present.clone()));
        self.model.durable.clone_from(&self.model.present);
        Ok(name)
    }

    /// Writes bytes, as an operation does.
    pub fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), Error> {
        let mut after = self.model.present.clone();
        after[at as usize..][..bytes.len()].copy_from_slice(bytes);
        self.model.note(&after);
        self.file().write_at(bytes, at)?;
        self.model.present = after;
        Ok(())
    }

    /// Makes a durable point.
    pub fn sync(&mut self) -> Result<(), Error> {
        self.file().sync()?;
        self.model.durable.clone_from(&self.model.present);
        Ok(())
    }

    /// Notes that the file holds the present of the model, durably.
    pub fn set_present(&mut self, present: Vec<u8>) {
        self.model.note(&present);
        self.model.durable.clone_from(&present);
        self.model.present = present;
    }
}
