//! Does anything go wrong whatever the bytes are? What the fuzzer runs.
//!
//! One function a target, from bytes to a panic or none; `fuzz/` hands them to libFuzzer, and a test
//! runs them over `fuzz/corpus/` and mutations of it without. All opening targets are judged by the
//! same second reading of `docs/format.md` and `docs/recovery.md` ([`reading`]), which shares no code
//! with `src/recovery/`.
//!
//! | module | question |
//! |---|---|
//! | [`entry_decode`] | does a decoder panic, or take for whole what is not? |
//! | [`journal_decode`] | the same of the journal |
//! | [`open_bytes`] | what does opening make of any bytes? |
//! | [`open_mutated`] | and of a crashed pair that somebody has changed, with the checksums put right? |
//! | [`mismatch`] | and of two files that do not go together? |
//! | [`operations`] | does a file hold what was written to it, through crashes and openings? |
//! | [`input`] | how do bytes become choices? |
//! | [`image`] | what do two files hold, and how do patches and traces change that? |
//! | [`patch`] | how does an input describe an image? |
//! | [`sums`] | which checksums would be right? |
//! | [`reading`] | what should opening make of an image? |
//! | [`points`] | which durable point should it go back to? |
//! | [`ground`] | where do the files lie, and is everything as it was? |
//! | [`life`] | does what was opened work? |
//! | [`templates`] | which images does a crash leave? |

pub mod entry_decode;
pub mod ground;
pub mod image;
pub mod input;
pub mod journal_decode;
pub mod life;
pub mod mismatch;
pub mod open_bytes;
pub mod open_mutated;
pub mod operations;
pub mod patch;
pub mod points;
pub mod reading;
pub mod sums;
pub mod templates;

/// A target: from an input to a panic, or none.
pub type Target = fn(&[u8]);

/// All of them, by the names of their folders in `fuzz/corpus/`.
pub const TARGETS: [(&str, Target); 6] = [
    ("entry_decode", entry_decode::run),
    ("journal_decode", journal_decode::run),
    ("open_bytes", open_bytes::run),
    ("open_mutated", open_mutated::run),
    ("mismatch", mismatch::run),
    ("operations", operations::run),
];
