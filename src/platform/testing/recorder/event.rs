//! The vocabulary of a recorder: what a trace holds, and what a test can request.
//!
//! Owns: [`Event`] and [`What`] for traces, [`Fault`] for calls that fail, and [`Death`] for the
//! process.
//!
//! May import: `FileId` and std only.

use crate::platform::FileId;
use std::io;
use std::path::PathBuf;

/// One event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// The thread that caused it. Each thread with an event gets a number, from 1 up.
    pub thread: u64,
    /// The event itself.
    pub what: What,
}

/// The kinds of events. `through` says that the bytes need no flush to become durable, only a drain
/// by the same thread. Either they were stored past the cache, or nothing has to be flushed at all
/// (any `Persistence` but `Flush`).
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the fields are those of the calls of the same name")]
pub enum What {
    /// A word was stored.
    Store { file: FileId, offset: u64, value: u64, through: bool },
    /// A word was compared with `old`, and `new` stored if it was equal (`done`).
    CompareExchange { file: FileId, offset: u64, old: u64, new: u64, done: bool },
    /// Bytes were stored, in any order and with no atomicity.
    Copy { file: FileId, offset: u64, bytes: Vec<u8>, through: bool },
    /// The lines of a range were flushed.
    Flush { file: FileId, offset: u64, len: u64 },
    /// This thread's flushes, and its stores past the cache, became durable.
    Drain,
    /// A file was made durable, with all its metadata or with the metadata that reading needs.
    Sync { file: FileId, all: bool },
    /// A directory was made durable.
    SyncDir { path: PathBuf },
    /// Storage was reserved.
    Allocate { file: FileId, offset: u64, len: u64 },
    /// Storage was given back.
    Punch { file: FileId, offset: u64, len: u64 },
    /// A file's length was changed.
    SetLen { file: FileId, len: u64 },
    /// Bytes were written by a call. A long or short write takes several calls, with one event
    /// each.
    Write { file: FileId, offset: u64, bytes: Vec<u8> },
    /// Bytes were written by a call that returned when they were durable.
    WriteDurably { file: FileId, offset: u64, bytes: Vec<u8> },
    /// Bytes were read by a call.
    Read { file: FileId, offset: u64, len: u64 },
    /// A file was renamed.
    Rename { from: PathBuf, to: PathBuf },
    /// A file was removed.
    Remove { path: PathBuf },
    /// Another call to the operating system succeeded (a name of [`call`](super::super::call)).
    Os(&'static str),
    /// A call failed, by injection or for real.
    Failed(&'static str),
}

/// An injected failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The call fails with this error of the operating system.
    Os(i32),
    /// The call fails with an error of this kind.
    Kind(io::ErrorKind),
    /// The call, a read or a write, moves at most this many bytes, at least 1.
    Short(usize),
}

impl From<i32> for Fault {
    fn from(code: i32) -> Fault {
        Fault::Os(code)
    }
}

impl From<io::ErrorKind> for Fault {
    fn from(kind: io::ErrorKind) -> Fault {
        Fault::Kind(kind)
    }
}

/// How the process dies at a numbered event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Death {
    /// Before the n-th store, copy, flush, drain or attempt at a call.
    Before,
    /// In the middle of the n-th copy of two bytes or more, after the first half of them.
    Halfway,
}
