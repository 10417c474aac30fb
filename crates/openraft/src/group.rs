//! One Raft group in the file: its names, and the operations on them. Each is atomic.

use crate::codec::Cell;
use crate::error::{Error, Result};
use crate::values::Values;
use atomic_mmap::zerocopy::IntoBytes;
use atomic_mmap::{AtomicMappedFile, Log, Name, Roots, Transaction};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::ops::{Bound, RangeBounds};

/// The type number of the names: the version of this crate's encoding.
const VERSION: u64 = 1;

/// A value of a group that is stored in a [`Cell`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which {
    Vote,
    Committed,
    Purged,
}

impl Which {
    const ALL: [Which; 3] = [Which::Vote, Which::Committed, Which::Purged];

    fn name(self) -> &'static str {
        ["vote", "committed", "purged"][self as usize]
    }
}

pub(crate) struct Group {
    name: String,
    log: Log,
    /// Offsets of the cells.
    cells: [u64; Which::ALL.len()],
}

impl Group {
    /// Finds or makes the names of a group.
    pub fn open(roots: &Roots, name: &str) -> Result<Group> {
        let full = |last: &str| format!("{name}.{last}");
        let (log, cells) = roots.file().transact(|tx| {
            let mut cells = [0; Which::ALL.len()];
            for which in Which::ALL {
                let name = full(which.name());
                let name = Name::from(&name).of_type(VERSION);
                cells[which as usize] = roots.get_or_insert_in::<Cell>(tx, name)?;
            }
            let log = roots.log_in(tx, Name::from(&full("log")).of_type(VERSION))?;
            Ok((log, cells))
        })?;
        Ok(Group { name: name.to_owned(), log, cells })
    }

    pub fn file(&self) -> &AtomicMappedFile {
        self.log.file()
    }

    /// Waits until everything that has happened is durable. Groups of one file share the wait.
    pub async fn durable(&self) -> Result<()> {
        self.file().flush_async().await?;
        Ok(())
    }

    fn values(&self) -> Values<'_> {
        Values { file: self.file(), group: &self.name }
    }

    /// Stores a value or none.
    pub fn store<T: Serialize + DeserializeOwned>(
        &self,
        which: Which,
        value: Option<&T>,
    ) -> Result<()> {
        let cell = self.values().cell(which.name(), value)?;
        Ok(self.file().store(self.cells[which as usize], &cell)?)
    }

    /// Returns a value or none.
    pub fn load<T: DeserializeOwned>(&self, which: Which) -> Result<Option<T>> {
        self.value_of(which, self.file().load(self.cells[which as usize])?)
    }

    fn value_of<T: DeserializeOwned>(&self, which: Which, cell: Cell) -> Result<Option<T>> {
        self.values().value_in(which.name(), cell.as_bytes())
    }

    fn load_in<T: DeserializeOwned>(
        &self,
        tx: &mut Transaction<'_>,
        which: Which,
    ) -> Result<Option<T>> {
        let cell = tx.load(self.cells[which as usize])?;
        self.value_of(which, cell)
    }

    /// Returns the purged log id, and the last entry if there is one: of one state.
    pub fn ends<I: DeserializeOwned, E: DeserializeOwned>(&self) -> Result<(Option<I>, Option<E>)> {
        self.file().try_transact(|tx| {
            let range = self.log.range_in(tx)?;
            let last = range.end.saturating_sub(1);
            let record = self.log.get_in(tx, last)?;
            let entry = record.map(|bytes| self.values().decoded(&format!("entry {last}"), &bytes));
            Ok((self.load_in(tx, Which::Purged)?, entry.transpose()?))
        })
    }

    /// Appends entries with their indices. They must follow the log's last entry, or the purged one
    /// if there is none. The first entries of a new log may have any index. Entries that are purged
    /// already are skipped.
    pub fn append<E: Serialize + DeserializeOwned>(
        &self,
        entries: impl Iterator<Item = (u64, E)>,
    ) -> Result<()> {
        let mut entries = entries.peekable();
        let Some(&(first, _)) = entries.peek() else { return Ok(()) };
        let mut records = Vec::new();
        for ((index, entry), expected) in entries.zip(first..) {
            self.expect(expected, index)?;
            records.push(self.values().encoded(&format!("entry {index}"), &entry)?);
        }
        self.file().try_transact(|tx| {
            let mut range = self.log.range_in(tx)?;
            let mut skipped = 0;
            if self.is_purged(tx)? {
                skipped = range.start.saturating_sub(first).min(records.len() as u64);
            } else if range.is_empty() {
                self.log.truncate_front_in(tx, first)?;
                range = self.log.range_in(tx)?;
            }
            let new = &records[skipped as usize..];
            if !new.is_empty() {
                self.expect(range.end, first + skipped)?;
                self.log.append_in(tx, new)?;
            }
            Ok(())
        })
    }

    pub fn not_installed(&self, index: u64) -> Error {
        Error::NotInstalled { path: self.file().path().into(), group: self.name.clone(), index }
    }

    /// [Appends](Self::append), and waits until the entries are [durable](Self::durable).
    pub async fn append_durably<E: Serialize + DeserializeOwned>(
        &self,
        entries: impl Iterator<Item = (u64, E)>,
    ) -> Result<()> {
        self.append(entries)?;
        self.durable().await
    }

    fn is_purged(&self, tx: &mut Transaction<'_>) -> Result<bool> {
        Ok(tx.load::<Cell>(self.purged())? != Cell::none())
    }

    fn purged(&self) -> u64 {
        self.cells[Which::Purged as usize]
    }

    fn expect(&self, expected: u64, found: u64) -> Result<()> {
        if expected == found {
            return Ok(());
        }
        let (path, group) = (self.file().path().into(), self.name.clone());
        Err(Error::NotConsecutive { path, group, expected, found })
    }

    /// Drops the entries from `index` on.
    pub fn truncate(&self, index: u64) -> Result<()> {
        Ok(self.log.truncate_back(index)?)
    }

    /// Drops the entries up to `index`, and stores its log id `id`, together. Does nothing if they
    /// are purged already.
    ///
    /// If `is_id` denies that the log's entry at `index` has this id, a snapshot has replaced the
    /// log. Then all entries go: those after `index` belong to another history.
    pub fn purge<I: Serialize + DeserializeOwned, E: DeserializeOwned>(
        &self,
        index: u64,
        id: &I,
        is_id: impl Fn(&E) -> bool,
    ) -> Result<()> {
        let cell = self.values().cell(Which::Purged.name(), Some(id))?;
        self.file().try_transact(|tx| {
            let start = self.log.range_in(tx)?.start;
            if self.is_purged(tx)? && index < start {
                return Ok(());
            }
            if let Some(bytes) = self.log.get_in(tx, index)?
                && !is_id(&self.values().decoded(&format!("entry {index}"), &bytes)?)
            {
                self.log.truncate_back_in(tx, start)?;
            }
            self.log.truncate_front_in(tx, index + 1)?;
            Ok(tx.store(self.purged(), &cell)?)
        })
    }

    /// Returns the entries with indices in `range`, as far as there are any.
    pub fn entries<E: DeserializeOwned>(&self, range: impl RangeBounds<u64>) -> Result<Vec<E>> {
        let mut next = match range.start_bound() {
            Bound::Included(index) => *index,
            Bound::Excluded(index) => index.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let mut records = self.log.iter_from(next);
        let mut entries = Vec::new();
        while range.contains(&next)
            && let Some((index, bytes)) = records.next().transpose()?
            && range.contains(&index)
        {
            entries.push(self.values().decoded(&format!("entry {index}"), &bytes)?);
            next = index.saturating_add(1);
        }
        Ok(entries)
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.file().path();
        f.debug_struct("Group")
            .field("path", &path)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
