//! The replicated file of one node: its header, the application of commands, its snapshots.
//!
//! Nothing here depends on openraft: log ids and memberships are values that serde encodes.
//!
//! Invariants:
//! 1. The applied log id changes in the transaction of the change that it names.
//! 2. The name of a snapshot follows from the applied log id that it holds. A committed log never
//!    changes, so snapshots of one name are equal on all nodes.
//! 3. No snapshot is sealed between a look at the applied log id and the next change: `changing`
//!    is held.
//! 4. The state never goes back for good: while a stream of changes is installed, a snapshot named
//!    [`BEFORE`] has the state before, and the next opening returns to it.
//!
//! May import `command`, and `codec`, `values` and `error` of the crate.

use super::command::{Answer, Command, Contents, Functions, HEADER, Stop, in_file};
use crate::codec::Cell;
use crate::error::{Error, Result};
use crate::values::Values;
use atomic_mmap::zerocopy::IntoBytes;
use atomic_mmap::zerocopy::little_endian::U64;
use atomic_mmap::{
    AtomicMappedFile, ImportReport, Snapshot, SnapshotError, StreamError, Transaction,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{Read, Seek, SeekFrom};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

const MAGIC: [u8; 16] = *b"atomic-mmap raft";
const VERSION: u64 = 1;
const VERSION_AT: u64 = 16;
const APPLIED_AT: u64 = 64;
const MEMBERSHIP_AT: u64 = 192;
const MEMBERSHIP_LEN: usize = (HEADER - MEMBERSHIP_AT) as usize;

/// The beginning of the name of each snapshot that is made here.
const PREFIX: &str = "raft-";
/// Number of snapshots that stay. A node that has the older one needs the changes alone.
const KEPT: usize = 2;

/// The name of the snapshot with the state before an installation.
const BEFORE: &str = "before-installation";

/// The name of a value in errors.
const APPLIED: &str = "the applied log id";

/// The name of the file in errors.
const GROUP: &str = "file";

/// The effect of a log entry.
pub(super) enum Change<'a, M> {
    Nothing,
    Command(&'a Command),
    Membership(&'a M),
}

/// A log id with its index. All versions of openraft have one type of indices.
pub(super) type At<I> = (u64, I);

/// The applied log id and the last membership of one state of the file.
pub(super) type Applied<I, M> = (Option<At<I>>, Option<M>);

/// A log id in a cell: the index, and all of the id, encoded. The index is read without the id's
/// type.
type Stored = (u64, Vec<u8>);

pub(super) struct State {
    file: AtomicMappedFile,
    functions: Functions,
    /// Held while the file is changed or sealed.
    changing: Mutex<()>,
    /// The snapshot that another node was told of last. It stays, as the base of what that node
    /// sends.
    offered: Mutex<Option<Snapshot>>,
}

impl State {
    /// Takes a file. Writes the header of an empty one.
    pub fn open(file: AtomicMappedFile, functions: Functions) -> Result<State> {
        let is_ours = file.try_transact(|tx| {
            if tx.is_empty()? {
                tx.set_len(HEADER)?;
                tx.write_at(&MAGIC, 0)?;
                tx.store(VERSION_AT, &U64::new(VERSION))?;
                return Ok::<_, Error>(true);
            }
            if tx.len()? < HEADER {
                return Ok(false);
            }
            let version = tx.load::<U64>(VERSION_AT)?.get();
            Ok(tx.load::<[u8; 16]>(0)? == MAGIC && version == VERSION)
        })?;
        match is_ours {
            true => {
                Ok(State { file, functions, changing: Mutex::new(()), offered: Mutex::new(None) })
            }
            false => Err(Error::NotReplicated { path: file.path().into() }),
        }
    }

    /// Ends an installation that a crash has cut off: returns to the state before it, unless the
    /// received state is there.
    pub fn end_installation(&self) -> Result<()> {
        if !self.has_snapshot(BEFORE) {
            return Ok(());
        }
        let before = self.index_in(self.file.open_snapshot(BEFORE)?.load(APPLIED_AT)?)?;
        if self.applied_index()? < before {
            self.file.roll_back(BEFORE, None)?;
        }
        Ok(self.file.drop_snapshot(BEFORE)?)
    }

    fn has_snapshot(&self, name: &str) -> bool {
        self.file.snapshots().iter().any(|info| info.name == name)
    }

    pub fn file(&self) -> &AtomicMappedFile {
        &self.file
    }

    /// Refuses a command that this node could not apply. Once such a command is committed, it stops
    /// every node.
    pub fn check(&self, command: &Command) -> std::result::Result<(), Stop> {
        match command {
            Command::SetLen(len) if in_file(*len)? > self.file.max_len() => {
                let longest = self.file.max_len() - HEADER;
                Err(Stop::Refused(format!("{len} bytes: the file may have {longest} at most")))
            }
            Command::Call { function, .. } if self.functions.get(function).is_none() => {
                Err(Stop::Refused(format!("there is no function {function:?}")))
            }
            _ => Ok(()),
        }
    }

    /// Returns the length of the contents in bytes.
    pub fn len(&self) -> u64 {
        self.file.len().saturating_sub(HEADER)
    }

    /// Fills `buf` with the bytes at `offset` of the contents.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> std::result::Result<(), Stop> {
        Ok(self.file.read_at(buf, in_file(offset)?)?)
    }

    /// Returns the applied log id and the membership.
    pub fn applied<I: DeserializeOwned, M: DeserializeOwned>(&self) -> Result<Applied<I, M>> {
        self.file.try_transact(|tx| {
            let cell = tx.load(APPLIED_AT)?;
            let mut bytes = vec![0; MEMBERSHIP_LEN];
            tx.read_at(&mut bytes, MEMBERSHIP_AT)?;
            Ok((self.id_in(cell)?, self.membership_in(&bytes)?))
        })
    }

    /// Applies the log entry `id`: its effect and the id, in one transaction.
    pub fn apply<I, M>(&self, (index, id): At<&I>, change: &Change<'_, M>) -> Result<Answer>
    where
        I: Serialize + DeserializeOwned,
        M: Serialize + DeserializeOwned,
    {
        let applied = self.cell_of((index, id))?;
        let mut membership = Vec::new();
        if let Change::Membership(new) = change {
            membership.resize(MEMBERSHIP_LEN, 0);
            self.values().put("the membership", *new, &mut membership)?;
        }
        let _changing = self.changing();
        let tried = self.file.try_transact(|tx| {
            let answer = match change {
                Change::Command(command) => self.run(tx, command)?,
                _ => Answer::Done,
            };
            tx.write_at(&membership, MEMBERSHIP_AT)?;
            tx.store(APPLIED_AT, &applied)?;
            Ok(answer)
        });
        match tried {
            Ok(answer) => Ok(answer),
            Err(Stop::Failed(error)) => Err(error),
            Err(Stop::Refused(why)) => {
                // The writes of the command were forgotten. The entry counts as applied.
                self.file.store(APPLIED_AT, &applied)?;
                Ok(Answer::Refused(why))
            }
        }
    }

    fn run(
        &self,
        tx: &mut Transaction<'_>,
        command: &Command,
    ) -> std::result::Result<Answer, Stop> {
        let mut contents = Contents::new(tx);
        let path = || self.file.path().into();
        let result = match command {
            Command::Write(parts) => parts
                .iter()
                .try_for_each(|part| contents.write_at(&part.bytes, part.offset))
                .map(|()| Answer::Done),
            Command::SetLen(len) => contents.set_len(*len).map(|()| Answer::Done),
            Command::Call { function, argument } => {
                let name = || function.clone();
                let Some(run) = self.functions.get(function) else {
                    let (path, function) = (path(), name());
                    return Err(Stop::Failed(Error::NoFunction { path, function }));
                };
                // A panic would end openraft's task of the machine without a word.
                let ran = catch_unwind(AssertUnwindSafe(|| run(&mut contents, argument)));
                let panicked = |_| Error::FunctionPanicked { path: path(), function: name() };
                ran.map_err(panicked)?.map(Answer::Value)
            }
        };
        contents.end(result)
    }

    fn changing(&self) -> std::sync::MutexGuard<'_, ()> {
        // A thread that panicked has left the file as it was: each change is one operation.
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ---- the header ----

    fn values(&self) -> Values<'_> {
        Values { file: &self.file, group: GROUP }
    }

    fn cell_of<I: Serialize + DeserializeOwned>(&self, (index, id): At<&I>) -> Result<Cell> {
        let stored: Stored = (index, self.values().encoded(APPLIED, id)?);
        self.values().cell(APPLIED, Some(&stored))
    }

    fn index_in(&self, cell: Cell) -> Result<Option<u64>> {
        let stored: Option<Stored> = self.values().value_in(APPLIED, cell.as_bytes())?;
        Ok(stored.map(|(index, _)| index))
    }

    fn id_in<I: DeserializeOwned>(&self, cell: Cell) -> Result<Option<At<I>>> {
        let stored: Option<Stored> = self.values().value_in(APPLIED, cell.as_bytes())?;
        let decoded = |(index, id): Stored| Ok((index, self.values().decoded(APPLIED, &id)?));
        stored.map(decoded).transpose()
    }

    fn membership_in<M: DeserializeOwned>(&self, bytes: &[u8]) -> Result<Option<M>> {
        self.values().value_in("the membership", bytes)
    }

    /// Returns the index of the applied log id.
    pub fn applied_index(&self) -> Result<Option<u64>> {
        self.index_in(self.file.load(APPLIED_AT)?)
    }

    // ---- snapshots ----

    /// Returns the name of the snapshot that holds an applied log id, or none.
    pub fn name_of<I>(&self, id: Option<At<&I>>) -> Result<String>
    where
        I: Serialize + DeserializeOwned,
    {
        let cell = id.map(|id| self.cell_of(id)).transpose()?;
        self.name_with(cell.unwrap_or_else(Cell::none))
    }

    fn name_with(&self, applied: Cell) -> Result<String> {
        let sum = crc32c::crc32c(applied.as_bytes());
        let index = self.index_in(applied)?;
        Ok(index.map_or(format!("{PREFIX}empty"), |index| format!("{PREFIX}{index:020}-{sum:08x}")))
    }

    /// Seals the present state, and makes it durable. Returns the snapshot.
    pub fn seal(&self) -> Result<Snapshot> {
        let _changing = self.changing();
        let name = self.name_with(self.file.load(APPLIED_AT)?)?;
        match self.file.snapshot(&name) {
            Err(atomic_mmap::Error::Snapshot { why: SnapshotError::Exists { .. }, .. }) => {}
            sealed => drop(sealed?),
        }
        let sealed = self.file.open_snapshot(&name)?;
        self.retain();
        Ok(sealed)
    }

    /// Drops all but the newest snapshots. One that cannot be dropped stays until the next time, as
    /// one that a reader has open.
    fn retain(&self) {
        let all = self.file.snapshots();
        let ours = all.iter().filter(|info| info.name.starts_with(PREFIX));
        for info in ours.rev().skip(KEPT) {
            let _dropped_later_otherwise = self.file.drop_snapshot(&info.name);
        }
    }

    /// Returns the newest snapshot.
    pub fn newest(&self) -> Result<Option<Snapshot>> {
        loop {
            let all = self.file.snapshots();
            let newest = all.iter().rev().find(|info| info.name.starts_with(PREFIX));
            let Some(info) = newest else { return Ok(None) };
            match self.file.open_snapshot(&info.name) {
                // It was dropped meanwhile, so there are newer ones.
                Err(atomic_mmap::Error::Snapshot {
                    why: SnapshotError::NotFound { .. }, ..
                }) => {}
                opened => return Ok(Some(opened?)),
            }
        }
    }

    /// Returns the name of the newest snapshot, for a node that may send the changes since then. It
    /// stays until the next call.
    pub fn offer(&self) -> Result<Option<String>> {
        let newest = self.newest()?;
        let name = newest.as_ref().map(|snapshot| snapshot.name().to_owned());
        *self.offered.lock().unwrap_or_else(PoisonError::into_inner) = newest;
        Ok(name)
    }

    /// Returns the applied log id and the membership of a snapshot.
    pub fn applied_of<I: DeserializeOwned, M: DeserializeOwned>(
        &self,
        snapshot: &Snapshot,
    ) -> Result<Applied<I, M>> {
        let mut bytes = vec![0; MEMBERSHIP_LEN];
        snapshot.read_at(&mut bytes, MEMBERSHIP_AT)?;
        Ok((self.id_in(snapshot.load(APPLIED_AT)?)?, self.membership_in(&bytes)?))
    }

    /// Gives the file the state of a stream, atomically and durably. `name` is the snapshot's.
    ///
    /// A stream of changes is relative to a snapshot that this node had when it asked for the
    /// stream. The file goes back to that snapshot first, and forward again if an error or a crash
    /// comes in between (invariant 4). The log may have purged what that snapshot lacks.
    pub fn install(&self, name: &str, stream: &mut (impl Read + Seek)) -> Result<()> {
        let _changing = self.changing();
        if self.has_snapshot(name) {
            // An equal state, as invariant 2 says.
            return Ok(self.file.roll_back(name, None)?);
        }
        let found = match self.file.import_over(&mut *stream) {
            Err(atomic_mmap::Error::Stream {
                why: StreamError::WrongBase { base, .. }, ..
            }) if self.has_snapshot(&base) => {
                stream.seek(SeekFrom::Start(0)).map_err(|e| Error::stream(&self.file, e))?;
                self.import_onto(&base, stream)?
            }
            imported => imported?,
        };
        self.retain();
        let found = found.snapshot.name;
        if found == name {
            return Ok(());
        }
        let (path, wanted) = (self.file.path().into(), name.to_owned());
        Err(Error::OtherSnapshot { path, wanted, found })
    }

    /// Goes back to a snapshot, and takes the changes since then. After an error the file is as it
    /// was.
    fn import_onto(&self, base: &str, stream: &mut impl Read) -> Result<ImportReport> {
        self.file.roll_back(base, Some(BEFORE))?;
        let imported = self.file.import(stream);
        if imported.is_err() {
            self.file.roll_back(BEFORE, None)?;
        }
        self.file.drop_snapshot(BEFORE)?;
        Ok(imported?)
    }
}
