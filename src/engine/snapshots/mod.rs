//! Snapshots of the whole file: sealing, listing, reading, dropping, and going back.
//!
//! A snapshot is sealed by one write of a table, whatever the file's size. Nothing is copied then.
//! Operations keep the bytes that they go over (`engine::keep`). The store (`pair::snapshots`) has
//! the table and the kept bytes.
//!
//! | room | holds |
//! |---|---|
//! | `seal` | sealing and dropping |
//! | `read` | reads of a snapshot |
//! | `rollback` | going back to a snapshot |
//! | `export` | what a snapshot has, and what differs between two |
//! | `import` | taking the state of another file's snapshot |
//! | `seen` | the content sum of the file, read beside writers |
//! | `repair` | replacing single damaged pages by those of a snapshot |
//! | `automatic` | snapshots that a file takes by itself, and the limits of all of them |
//!
//! Invariants:
//! - A thread that changes the set of live snapshots holds `resizing` for writing. So no length
//!   changes, and no durable point is made, between the state that is sealed and its seal.
//! - A set that operations go by is durable. A new one is in the table before its gate opens.
//!
//! The idea is RMMIO's (III-F to III-H). Keeping slices instead of pages, and a seal without a
//! copy, are this crate's own.
//!
//! May import `write`, `resize`, `durable`, `commit`, `keep`, `io`, `plan`, `pair`, and what lies
//! below them.

pub mod automatic;
mod export;
pub mod import;
mod read;
pub mod repair;
mod rollback;
mod seal;
mod seen;

/// The length of the file of [`open_for_test`], in bytes.
#[cfg(all(test, not(loom), not(shuttle)))]
const LEN_OF_TEST: u64 = 4 * crate::units::REGION as u64;

/// Makes the file of a unit test.
#[cfg(all(test, not(loom), not(shuttle)))]
fn open_for_test(dir: &crate::DoctestDir) -> crate::AtomicMappedFile {
    let options = crate::AtomicMappedFile::options().create(true).len(LEN_OF_TEST);
    options.medium(crate::Medium::Ram).open(dir.path().join("state.dat")).expect("open")
}
