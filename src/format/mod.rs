//! The format of the reflection file and its companions. Pure: bytes to values and back.
//!
//! Owns: the layout, the superblock, the state words, the log records, the journal's records and
//! its floor, the snapshot store, and the home file's two marks. The byte diagram is
//! `docs/format.md`; `src/golden.rs` keeps diagram, constants and encoders in step. Invariants:
//! decoding never panics and never trusts a field before its checksum and range were checked. So
//! untrusted bytes become trusted types here and nowhere else.
//!
//! May import `units`, `bitmap` and `checksum`.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

pub mod byte_mark;
pub mod entry;
pub mod export;
pub mod flip_record;
pub mod floor;
pub mod journal;
pub mod layout;
pub mod marker;
pub mod snapshots;
pub mod sqlite_header;
pub mod state_word;
pub mod superblock;

/// Returns the word of the 8 bytes at `at`, in little-endian order.
pub(crate) fn word_at(bytes: &[u8], at: usize) -> u64 {
    le_word(&bytes[at..][..8])
}

/// Returns the number of the 4 bytes at `at`, in little-endian order.
fn half_at(bytes: &[u8], at: usize) -> u32 {
    let mut half = [0; 4];
    half.copy_from_slice(&bytes[at..][..4]);
    u32::from_le_bytes(half)
}

/// Stores words one after the other, from `at` on.
fn put_words<const N: usize>(bytes: &mut [u8], at: usize, words: [u64; N]) {
    let words = words.map(u64::to_le_bytes);
    bytes[at..][..size_of::<[u64; N]>()].copy_from_slice(words.as_flattened());
}

/// Returns the word that the first 8 bytes hold, in little-endian order.
pub(crate) fn le_word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(bytes);
    u64::from_le_bytes(word)
}
