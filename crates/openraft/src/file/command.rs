//! Commands that change a replicated file, their answers, and functions that commands call.
//!
//! A command must do the same on each node. So it sees nothing but the contents of the file and its
//! own bytes. May import nothing of this module.

use crate::error::Error;
use atomic_mmap::{Readable, Transaction, Writable};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Length of the header in bytes. The contents begin behind it.
pub(super) const HEADER: u64 = 16 << 10;

/// A change of the file: openraft's `D`. Each command is one atomic operation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Command {
    /// Writes all parts. Refused if one of them ends past the end of the contents.
    Write(Vec<Part>),
    /// Makes the contents so many bytes long. New bytes are zero.
    SetLen(u64),
    /// Calls a function that each node has registered in its [`Functions`].
    Call {
        /// The function's name.
        function: String,
        /// Its argument.
        argument: Vec<u8>,
    },
}

/// For logs: without the bytes.
impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Command::Write(parts) => {
                let bytes: usize = parts.iter().map(|part| part.bytes.len()).sum();
                write!(f, "write {bytes} bytes, parts: {}", parts.len())
            }
            Command::SetLen(len) => write!(f, "set the length to {len} bytes"),
            Command::Call { function, argument } => {
                write!(f, "call {function:?} with {} bytes", argument.len())
            }
        }
    }
}

/// Bytes of a [`Command::Write`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Part {
    /// Offset in the contents, in bytes.
    pub offset: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// The answer to a command: openraft's `R`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Answer {
    /// The command was applied.
    #[default]
    Done,
    /// The function was applied, and has returned this value.
    Value(Vec<u8>),
    /// The command was refused, with this reason. It has changed nothing, on no node.
    Refused(String),
}

/// The reason for which a function ends without an effect.
#[derive(Debug)]
pub enum Stop {
    /// The function refuses its argument, or what it found in the file. Each node decides the
    /// same. The client gets the text in [`Answer::Refused`].
    Refused(String),
    /// An operation on this node's file failed. The node stops, as a node must that cannot apply
    /// what the others apply.
    Failed(Error),
}

/// A range past the end is refused, and so are bytes that are no value: they are equal on all
/// nodes. Every other error is this node's own.
impl From<atomic_mmap::Error> for Stop {
    fn from(error: atomic_mmap::Error) -> Stop {
        match error {
            atomic_mmap::Error::PastEnd { offset, len, file_len, .. } => {
                let at = offset.saturating_sub(HEADER);
                let end = file_len.saturating_sub(HEADER);
                Stop::Refused(format!("{len} bytes at offset {at} are past the end at {end}"))
            }
            atomic_mmap::Error::InvalidValue { offset, type_name, .. } => {
                let at = offset.saturating_sub(HEADER);
                Stop::Refused(format!("the bytes at offset {at} are no {type_name}"))
            }
            error => Stop::Failed(error.into()),
        }
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}

pub(super) type Function =
    Box<dyn Fn(&mut Contents<'_, '_>, &[u8]) -> Result<Vec<u8>, Stop> + Send + Sync + 'static>;

/// The functions that commands can call, by name. All nodes register equal ones.
///
/// A function decides by nothing but its argument and the contents of the file: not by the time, a
/// random number, the node or the build (an overflow of `+`). It may run several times for one
/// command, and takes effect once. A panic stops the node, and does so again when it starts.
#[derive(Default)]
pub struct Functions(BTreeMap<String, Function>);

impl Functions {
    /// Returns no functions.
    pub fn new() -> Functions {
        Functions::default()
    }

    /// Adds a function. It replaces one of the same name.
    ///
    /// ```
    /// use openraft_atomic_mmap::file::{Functions, Stop};
    ///
    /// // A counter at offset 0: adds the argument, and returns the sum.
    /// let functions = Functions::new().with("add", |contents, argument| {
    ///     let bytes = argument.try_into().map_err(|_| Stop::Refused("8 bytes".into()))?;
    ///     let sum = contents.load::<u64>(0)?.wrapping_add(u64::from_le_bytes(bytes));
    ///     contents.store(0, &sum)?;
    ///     Ok(sum.to_le_bytes().to_vec())
    /// });
    /// # drop(functions);
    /// ```
    pub fn with(
        mut self,
        name: impl Into<String>,
        function: impl Fn(&mut Contents<'_, '_>, &[u8]) -> Result<Vec<u8>, Stop> + Send + Sync + 'static,
    ) -> Functions {
        self.0.insert(name.into(), Box::new(function));
        self
    }

    pub(super) fn get(&self, name: &str) -> Option<&Function> {
        self.0.get(name)
    }
}

impl fmt::Debug for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// The contents of the file, inside the transaction of a command. Offsets and lengths are in bytes.
///
/// If an operation has failed on this node, the command fails, whatever the function returns.
#[derive(Debug)]
pub struct Contents<'t, 'f> {
    transaction: &'t mut Transaction<'f>,
    failed: Option<Error>,
}

impl<'t, 'f> Contents<'t, 'f> {
    pub(super) fn new(transaction: &'t mut Transaction<'f>) -> Contents<'t, 'f> {
        Contents { transaction, failed: None }
    }

    /// Returns the result of a function, or the first failure of this node.
    pub(super) fn end<T>(self, result: Result<T, Stop>) -> Result<T, Stop> {
        self.failed.map_or(result, |failed| Err(Stop::Failed(failed)))
    }

    fn run<T>(
        &mut self,
        operation: impl FnOnce(&mut Transaction<'f>) -> atomic_mmap::Result<T>,
    ) -> Result<T, Stop> {
        let result = operation(self.transaction).map_err(Stop::from);
        if let Err(Stop::Failed(error)) = &result {
            self.failed.get_or_insert_with(|| error.clone());
        }
        result
    }

    /// Returns the length of the contents.
    ///
    /// # Errors
    /// [`Stop::Failed`].
    pub fn len(&mut self) -> Result<u64, Stop> {
        Ok(self.run(|tx| tx.len())?.saturating_sub(HEADER))
    }

    /// Returns `true` if the contents have no bytes. As [`len`](Self::len), with its errors.
    ///
    /// # Errors
    /// [`Stop::Failed`].
    pub fn is_empty(&mut self) -> Result<bool, Stop> {
        Ok(self.len()? == 0)
    }

    /// Makes the contents `len` bytes long. New bytes are zero. A function bounds the length
    /// itself: past the [`max_len`] of a node's file the node stops, and does so again when it
    /// starts.
    ///
    /// # Errors
    /// [`Stop::Refused`] if no file can be so long. [`Stop::Failed`].
    ///
    /// [`max_len`]: atomic_mmap::AtomicMappedFile::max_len
    pub fn set_len(&mut self, len: u64) -> Result<(), Stop> {
        let len = in_file(len)?;
        self.run(|tx| tx.set_len(len))
    }

    /// Fills `buf` with the bytes at `offset`, with what this command has written.
    ///
    /// # Errors
    /// [`Stop::Refused`] past the end. [`Stop::Failed`].
    pub fn read_at(&mut self, buf: &mut [u8], offset: u64) -> Result<(), Stop> {
        let offset = in_file(offset)?;
        self.run(|tx| tx.read_at(buf, offset))
    }

    /// Writes `buf` at `offset`.
    ///
    /// # Errors
    /// [`Stop::Refused`] past the end. [`Stop::Failed`].
    pub fn write_at(&mut self, buf: &[u8], offset: u64) -> Result<(), Stop> {
        let offset = in_file(offset)?;
        self.run(|tx| tx.write_at(buf, offset))
    }

    /// Returns the value at `offset`.
    ///
    /// # Errors
    /// Those of [`read_at`](Self::read_at). [`Stop::Refused`] if the bytes are no valid value.
    pub fn load<T: Readable>(&mut self, offset: u64) -> Result<T, Stop> {
        let offset = in_file(offset)?;
        self.run(|tx| tx.load(offset))
    }

    /// Stores a value at `offset`.
    ///
    /// # Errors
    /// Those of [`write_at`](Self::write_at).
    pub fn store<T: Writable>(&mut self, offset: u64, value: &T) -> Result<(), Stop> {
        let offset = in_file(offset)?;
        self.run(|tx| tx.store(offset, value))
    }
}

/// Returns the offset in the file of an offset in the contents.
pub(super) fn in_file(offset: u64) -> Result<u64, Stop> {
    let in_file = offset.checked_add(HEADER);
    in_file.ok_or_else(|| Stop::Refused(format!("no file reaches offset {offset}")))
}
