//! How do the bytes of the reflection file mean something? Pure: bytes to values and back.
//!
//! Owns: the layout (where things are), the superblock, the log entries, the journal's records and
//! its floor, and the home file's mark (what they say). The byte diagram is in `docs/format.md`;
//! `src/golden.rs` keeps diagram, constants and encoders in step. Invariants: decoding never panics
//! and never trusts a field before its checksum and range were checked, so that untrusted bytes
//! become trusted types here and nowhere else. May import `units`, `bitmap` and `sum`.

pub mod entry;
pub mod floor;
pub mod journal;
pub mod layout;
pub mod marker;
pub mod superblock;
pub mod vouch;
