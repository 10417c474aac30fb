//! A file that openraft replicates: the state machine [`FileMachine`], and the handle
//! [`ReplicatedFile`] to its bytes.
//!
//! Each node has the file as an [`AtomicMappedFile`](atomic_mmap::AtomicMappedFile). A [`Command`]
//! changes it in one transaction, which stores the applied log id as well. So each committed
//! command takes effect exactly once, whatever crashes. A snapshot is a snapshot of the file: no
//! byte is copied to build it.
//!
//! # How it is stored
//!
//! | bytes | hold |
//! |---|---|
//! | 0..16 | `atomic-mmap raft` |
//! | 16..24 | the version of this layout, 1, little-endian |
//! | 64..192 | the applied log id, a cell as that of a vote |
//! | 192..16,384 | the membership, a longer cell |
//! | from 16,384 on | the contents. [`ReplicatedFile`] counts offsets from here |
//!
//! Equal logs make equal files, byte for byte. The names of snapshots follow from the applied log
//! id. So two nodes that seal equal states name them equally, and one of them can send the changes
//! between two states alone.
//!
//! | module | holds |
//! |---|---|
//! | `command` | commands, their answers, registered functions |
//! | `state` | the file: header, application of commands, seal and installation |
//! | `snapshot` | a snapshot on its way to another node |
//! | `machine` | openraft's traits |
//! | `handle` | writes and reads of a client |

mod command;
mod handle;
mod machine;
mod snapshot;
mod state;

pub use command::{Answer, Command, Contents, Functions, Part, Stop};
pub use handle::{ClientError, ReadError, ReplicatedFile, WriteError};
pub use machine::FileMachine;
pub use snapshot::FileSnapshot;
