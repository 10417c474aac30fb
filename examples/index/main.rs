//! An index of u64 by u64, ported from memmap2, which grows and survives every crash.
//!
//! ```sh
//! cargo run --release --example index             # in the temporary folder
//! cargo run --release --example index -- /dev/shm
//! ```
//!
//! The index is in `index.rs`, with what it was on a plain mapping. Here a child process inserts
//! keys and aborts, without a close. All of its keys are there afterwards.

mod index;
#[path = "../scratch/mod.rs"]
mod scratch;

use atomic_mmap::AtomicMappedFile;
use index::Index;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const KEYS: u64 = 30_000;
/// Environment variable of the child, with the path of the file.
const CHILD: &str = "INDEX_CHILD";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Some(path) = std::env::var_os(CHILD) {
        return insert_and_die(Path::new(&path));
    }
    let scratch = scratch::Scratch::from_args()?;
    let path = scratch.path("index");
    let status = Command::new(std::env::current_exe()?).env(CHILD, &path).status()?;
    println!("the child: {status}");

    let index = Index::open(AtomicMappedFile::open(&path)?)?;
    assert_eq!(index.len()?, KEYS);
    for key in 1..=KEYS {
        assert_eq!(index.get(key)?, Some(key * key));
    }
    assert_eq!(index.get(KEYS + 1)?, None);
    println!("all {KEYS} keys are there, in a file of {} bytes", index.file().len());
    index.file().sync()?; // from here on they survive a power loss
    Ok(())
}

fn insert_and_die(path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let mut index = Index::open(AtomicMappedFile::create(path, 0)?)?;
    let started = Instant::now();
    for key in 1..=KEYS {
        index.insert(key, key * key)?;
    }
    println!("{KEYS} keys inserted in {:.3} s", started.elapsed().as_secs_f64());
    std::process::abort()
}
