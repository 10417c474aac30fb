//! Tests of the structures above the engine: named roots and logs.
//!
//! | module | what it asks |
//! |---|---|
//! | `model` | Do random operations do what they do to a map and to lists? |
//! | `roots` | Are names, types and space what the documentation says? |
//! | `log` | Are records, numbers and truncations what the documentation says? |
//! | `threads` | Do several threads lose no record, and see none half? |
//! | `kill` | Do acknowledged records and names survive SIGKILL? |
//! | `hostile` | Is every damage a typed error, and never a panic? |
//!
//! `reading` reads the bytes as `docs/structures.md` describes them. `model` compares with it.

mod hostile;
#[cfg(unix)]
mod kill;
mod log;
mod model;
mod reading;
mod roots;
mod threads;

use crate::common::Ground;
use atomic_mmap::{AtomicMappedFile, Error, Roots, StructureError};
use std::path::Path;

/// Opens the file at `path` with its roots. Creates it if it does not exist.
fn open(ground: &Ground, path: &Path) -> Roots {
    let file = ground.options().create(true).open(path).expect("open");
    Roots::open(file).expect("roots")
}

/// Returns the reason of a structure's error.
#[track_caller]
fn reason<T: std::fmt::Debug>(result: Result<T, Error>) -> StructureError {
    match result {
        Err(Error::Structure { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

/// Flips bits of one byte of the file.
fn damage(file: &AtomicMappedFile, offset: u64) {
    file.update(offset, |byte: &mut u8| *byte ^= 0x55).expect("change a byte");
}

/// Returns the offset of the only occurrence of `bytes` in the file.
#[track_caller]
fn offset_of(file: &AtomicMappedFile, bytes: &[u8]) -> u64 {
    let all = crate::common::read_all(file);
    let mut found = (0..all.len() - bytes.len()).filter(|at| all[*at..].starts_with(bytes));
    let offset = found.next().expect("the bytes are in the file");
    assert_eq!(found.next(), None, "the bytes are in the file once");
    offset as u64
}
