//! Structures above the engine: named roots with an allocator, and logs of records.
//!
//! | file | holds |
//! |---|---|
//! | `check` | a walk over everything, which compares it with the invariants |
//! | `roots` | named roots: what callers call |
//! | `log` | logs: what callers call |
//! | `log/blocks` | positions, blocks, and the records in them |
//! | `space` | extents: which are free, the best fit, growth of the file |
//! | `directory` | the bytes of the header and of the table of names |
//! | `log/meta` | the bytes of a log, except for its records: head, and list of segments |
//!
//! A file imports from files below it in this list.
//!
//! They use the public calls of the handle and of transactions, and nothing else of the engine.
//! `docs/structures.md` has the bytes, the invariants and the argument about crashes.
//!
//! May import `api`, `error` and `mutant`.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod check;
mod directory;
pub mod log;
pub mod roots;
mod space;

#[cfg(test)]
mod golden;

pub(crate) use directory::{MAGIC as ROOTS_MAGIC, MARK as MARK_IN_ROOTS};

use crate::api::file::AtomicMappedFile;
use crate::api::transaction::Transaction;
use crate::error::{Error, Result, StructureError};
use crate::mutant::planted;
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of a page. Extents of at least a page begin at a page.
const PAGE: u64 = 4096;
/// No file is longer. What a file says of offsets and lengths in it is compared with this where it
/// is read: sums of a few of them, and products with small numbers, do not overflow.
const FURTHEST: u64 = 1 << 48;
/// The unit of extents: a slice, so that two small values never share one.
const UNIT: u64 = 64;

/// Returns the bytes of the extent for `len` bytes: whole units, and at least one. Saturates.
fn rounded(len: u64) -> u64 {
    len.max(1).checked_next_multiple_of(UNIT).unwrap_or(u64::MAX / UNIT * UNIT)
}

/// A source of bytes: the file as it is now, or as a transaction sees it.
trait Source {
    /// Fills `buf` with the bytes at `offset`, in one atomic read.
    fn read(&mut self, buf: &mut [u8], offset: u64) -> Result<()>;

    /// Returns the file.
    fn home(&self) -> &AtomicMappedFile;

    /// Returns the value at `offset`.
    fn value<T: FromBytes + IntoBytes>(&mut self, offset: u64) -> Result<T> {
        let mut value = T::new_zeroed();
        self.read(value.as_mut_bytes(), offset)?;
        Ok(value)
    }

    /// Returns `true` if there are bytes up to `end`: to a transaction, by the length that it gives
    /// the file.
    fn reaches(&mut self, end: u64) -> Result<bool> {
        // Reads nothing. To a transaction that is as good as a read: the file must still reach
        // there when it commits, and a growth is no conflict.
        match self.read(&mut [], end) {
            Ok(()) => Ok(true),
            Err(Error::PastEnd { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns an error about the bytes at `offset`.
    fn error(&self, offset: u64, why: StructureError) -> Error {
        error(self.home(), offset, why)
    }

    /// Returns the error of damaged bytes at `offset`.
    fn damaged(&self, offset: u64, what: &'static str) -> Error {
        self.error(offset, StructureError::Damaged { what })
    }

    /// Returns an error if the condition does not hold for the bytes at `offset`.
    fn expect(&self, holds: bool, offset: u64, what: &'static str) -> Result<()> {
        if holds { Ok(()) } else { Err(self.damaged(offset, what)) }
    }
}

impl Source for &AtomicMappedFile {
    fn read(&mut self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.read_at(buf, offset)
    }

    fn home(&self) -> &AtomicMappedFile {
        self
    }
}

impl Source for Transaction<'_> {
    fn read(&mut self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.read_at(buf, offset)
    }

    fn home(&self) -> &AtomicMappedFile {
        self.file()
    }
}

fn error(file: &AtomicMappedFile, offset: u64, why: StructureError) -> Error {
    Error::Structure { path: file.path().to_owned(), offset, why }
}

/// Returns an error if the transaction belongs to another open file than `file`. All handles of one
/// open file have one path in memory.
fn check_transaction(tx: &Transaction<'_>, file: &AtomicMappedFile, at: u64) -> Result<()> {
    if std::ptr::eq(tx.file().path(), file.path()) || planted!(AnyTransactionTaken) {
        return Ok(());
    }
    Err(error(file, at, StructureError::OtherFile))
}

/// Returns the CRC-32C of `bytes` with the four bytes at `sum_at` as zero.
fn sum_without(bytes: &[u8], sum_at: usize) -> u32 {
    let sum = crc32c::crc32c(&bytes[..sum_at]);
    let sum = crc32c::crc32c_append(sum, &[0; 4]);
    crc32c::crc32c_append(sum, &bytes[sum_at..][4..])
}
