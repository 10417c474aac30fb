//! The public interface: the handle, transactions, views, values and copies.
//!
//! | file | holds |
//! |---|---|
//! | `file` | the handle of an open file, and the calls that open one |
//! | `close` | the end of a handle, and of the last one |
//! | `transaction` | transactions, and what happens in a conflict |
//! | `view` | views: bytes of a moment, pinned or copied |
//! | `stage` | ranges that are filled first, and then committed without a copy |
//! | `flush` | the numbers of durable points, and the future of one |
//! | `value` | typed values: which types they have, and their calls by offset |
//! | `slot`, `array` | handles to one value and to many |
//! | `optional` | a value or none, as a record |
//! | `record` | the macro that defines records |
//! | `write_set` | what a transaction has written and not yet committed |
//! | `snapshot` | snapshots, and handles that read them |
//! | `source` | the trait of what values are read from: a file or a snapshot |
//! | `export` | streams with a snapshot, or with what has changed since another one |
//! | `import` | files that take such a stream |
//! | `stream`, `spool` | a stream that is read; the file that keeps what was received |
//! | `copy` | a copy of a file that is in use |
//!
//! May import `recovery`, `engine`, `config` and below.

pub mod array;
mod close;
pub mod copy;
pub mod export;
pub mod file;
pub mod flush;
pub mod import;
pub mod optional;
mod record;
pub mod slot;
pub mod snapshot;
pub mod source;
mod spool;
pub mod stage;
mod stream;
pub mod transaction;
pub mod value;
pub mod verify;
pub mod view;
pub mod write_set;
