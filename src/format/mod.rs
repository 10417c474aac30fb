//! The format of the reflection file and its companions. Pure: bytes to values and back.
//!
//! Owns: the layout, the superblock, the state words, the log records, the journal's records and
//! its floor, the snapshot store, and the home file's mark. The byte diagram is `docs/format.md`;
//! `src/golden.rs` keeps diagram, constants and encoders in step. Invariants: decoding never panics
//! and never trusts a field before its checksum and range were checked. So untrusted bytes become
//! trusted types here and nowhere else.
//!
//! May import `units`, `bitmap` and `checksum`.

pub mod entry;
pub mod export;
pub mod flip_record;
pub mod floor;
pub mod journal;
pub mod layout;
pub mod marker;
pub mod snapshots;
pub mod state_word;
pub mod superblock;

/// Returns the word that the first 8 bytes hold, in little-endian order.
pub(crate) fn le_word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(bytes);
    u64::from_le_bytes(word)
}
