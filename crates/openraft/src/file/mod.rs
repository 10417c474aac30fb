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
//! | 64..192 | a cell as that of a vote: the applied log id's index, and the encoded id as bytes |
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
//! | `machine` | the state machine, with what openraft's traits have in common |
//! | `handle` | writes and reads of a client |
//! | `v0_9`, `v0_10` | openraft's traits, and calls of its `Raft` |

mod command;
mod handle;
mod machine;
mod snapshot;
mod state;
#[cfg(feature = "openraft-0-10")]
mod v0_10;
#[cfg(feature = "openraft-0-9")]
mod v0_9;

pub use command::{Answer, Command, Contents, Functions, Part, Stop};
pub use handle::{ClientError, RaftNode, ReplicatedFile};
pub use machine::FileMachine;
pub use snapshot::FileSnapshot;
