//! The fuzz targets: no input makes the crate fail.
//!
//! Each target is one function from bytes to a panic or none. `fuzz/` passes them to libFuzzer. A
//! test runs them over `fuzz/corpus/` and mutations of it without libFuzzer. One second reading of
//! `docs/format.md` and `docs/recovery.md` judges all targets that open files ([`reading`]). It
//! shares no code with `src/recovery/`.
//!
//! | module | contents |
//! |---|---|
//! | [`entry_decode`] | target: the decoders of log data |
//! | [`journal_decode`] | target: the decoder of the journal |
//! | [`export_decode`] | target: the decoders of streams between files |
//! | [`snapshots_decode`] | target: the decoders of the snapshot store |
//! | [`open_bytes`] | target: opening any bytes |
//! | [`open_mutated`] | target: opening changed crash images with correct checksums |
//! | [`mismatch`] | target: opening two files that do not belong together |
//! | [`operations`] | target: operations, crashes and reopens |
//! | [`structures`] | target: names and logs, and their damaged bytes |
//! | [`input`] | the reader of inputs |
//! | [`image`] | the contents of a pair's files |
//! | [`patch`] | images as patches in an input |
//! | [`sums`] | checksums, computed a second time |
//! | [`reading`] | the expected result of an open |
//! | [`points`] | the durable point that an open goes back to |
//! | [`ground`] | the scratch folder |
//! | [`life`] | the use of an opened pair |
//! | [`live`] | changed words of real stores and streams, and the use of what they leave |
//! | [`templates`] | images that crashes leave |

pub mod entry_decode;
pub mod export_decode;
pub mod ground;
pub mod image;
pub mod input;
pub mod journal_decode;
pub mod life;
pub mod live;
pub mod mismatch;
pub mod open_bytes;
pub mod open_mutated;
pub mod operations;
pub mod patch;
pub mod points;
pub mod reading;
pub mod snapshots_decode;
pub mod structures;
pub mod sums;
pub mod templates;

/// A target: a function from an input to a panic or none.
pub type Target = fn(&[u8]);

/// All targets, by the names of their folders in `fuzz/corpus/`.
pub const TARGETS: [(&str, Target); 9] = [
    ("entry_decode", entry_decode::run),
    ("journal_decode", journal_decode::run),
    ("snapshots_decode", snapshots_decode::run),
    ("export_decode", export_decode::run),
    ("open_bytes", open_bytes::run),
    ("open_mutated", open_mutated::run),
    ("mismatch", mismatch::run),
    ("operations", operations::run),
    ("structures", structures::run),
];
