//! The reader between the crate and the oracle. A planted fault changes what it sees, as a bug in
//! the crate would.
//!
//! May import `place`.

use super::place::Target;
use atomic_mmap::{AtomicMappedFile, Error, Snapshot, SnapshotError};
use std::ops::Range;

/// A wrong way of treating damage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plant {
    /// A damaged page is read as it is.
    DamageTakenForWhole,
    /// Damage in the reflection file is not noticed.
    OnlyHomeCompared,
    /// Damage in the store is not noticed.
    KeptBytesNotCompared,
    /// A damaged page is read as it was before its last change.
    OlderStateRead,
    /// The last byte of a damaged page is not covered by its sum.
    LastByteNotCovered,
    /// A whole page is taken for damaged.
    WholeTakenForDamage,
    /// A scribble is not put back.
    BytesNotPutBack,
    /// A write over a damaged page does nothing.
    RepairDoesNothing,
    /// A rollback over a damaged page restores nothing.
    RollbackRestoresNothing,
    /// An opening after damage does not have the last snapshot.
    SnapshotLost,
    /// An opening after damage has another length.
    LengthTaken,
    /// An operation beside damage succeeds, and does nothing.
    OperationLost,
}

impl Plant {
    /// All planted faults.
    pub const ALL: [Plant; 12] = [
        Plant::DamageTakenForWhole,
        Plant::OnlyHomeCompared,
        Plant::KeptBytesNotCompared,
        Plant::OlderStateRead,
        Plant::LastByteNotCovered,
        Plant::WholeTakenForDamage,
        Plant::BytesNotPutBack,
        Plant::RepairDoesNothing,
        Plant::RollbackRestoresNothing,
        Plant::SnapshotLost,
        Plant::LengthTaken,
        Plant::OperationLost,
    ];
}

/// Returns `true` if the error says that bytes are damaged.
pub fn is_damage(error: &Error) -> bool {
    matches!(
        error,
        Error::Damaged { .. } | Error::Snapshot { why: SnapshotError::Damaged { .. }, .. }
    )
}

/// A way to read the present.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// `read_at`.
    Read,
    /// A view.
    View,
    /// A read of a transaction.
    Transaction,
}

/// The reader.
#[derive(Debug)]
pub struct Eyes {
    plant: Option<Plant>,
    /// The file that is scribbled on.
    pub target: Option<Target>,
    bytes: Vec<u8>,
}

impl Eyes {
    /// Makes a reader with one planted fault, or with none.
    pub fn new(plant: Option<Plant>) -> Eyes {
        Eyes { plant, target: None, bytes: Vec::new() }
    }

    /// Returns `true` if this fault is planted.
    pub fn has(&self, plant: Plant) -> bool {
        self.plant == Some(plant)
    }

    /// Reads a range of the present, which holds `expected` if nothing is damaged.
    pub fn present(
        &mut self,
        file: &AtomicMappedFile,
        range: Range<usize>,
        way: Way,
        expected: &[u8],
    ) -> Result<&[u8], Error> {
        self.bytes.resize(range.len(), 0);
        let (to, offset) = (&mut self.bytes[..], range.start as u64);
        let found = match way {
            Way::Read => file.read_at(to, offset),
            Way::View => file.view(offset..range.end as u64).and_then(|view| {
                to.copy_from_slice(&view.to_vec()?);
                Ok(())
            }),
            Way::Transaction => file.transact(|t| t.read_at(to, offset)),
        };
        self.tamper(found, expected)
    }

    /// Reads a range of a snapshot, which holds `expected` if nothing is damaged.
    pub fn sealed(
        &mut self,
        snapshot: &Snapshot,
        range: Range<usize>,
        expected: &[u8],
    ) -> Result<&[u8], Error> {
        self.bytes.resize(range.len(), 0);
        let found = snapshot.read_at(&mut self.bytes, range.start as u64);
        self.tamper(found, expected)
    }

    fn tamper(&mut self, found: Result<(), Error>, expected: &[u8]) -> Result<&[u8], Error> {
        let Some(plant) = self.plant else {
            found?;
            return Ok(&self.bytes);
        };
        let is_hit = match plant {
            Plant::DamageTakenForWhole | Plant::OlderStateRead | Plant::LastByteNotCovered => true,
            Plant::OnlyHomeCompared => self.target == Some(Target::Reflection),
            Plant::KeptBytesNotCompared => self.target == Some(Target::Store),
            _ => false,
        };
        match found {
            Err(error) if is_hit && is_damage(&error) => {
                self.bytes.copy_from_slice(expected);
                match plant {
                    Plant::OlderStateRead => self.bytes.fill(0),
                    _ => {
                        let last = self.bytes.len() - 1;
                        let at = if plant == Plant::LastByteNotCovered { last } else { last / 2 };
                        self.bytes[at] ^= 1;
                    }
                }
            }
            Ok(()) if plant == Plant::WholeTakenForDamage => {
                let path = std::path::PathBuf::new();
                return Err(Error::Damaged { path, offset: 0, len: 0 });
            }
            found => found?,
        }
        Ok(&self.bytes)
    }
}
