//! What does the death of the process leave of the file?
//!
//! | module | question |
//! |---|---|
//! | `timed` | part `kills`: killed at any time, with several threads, is it as it was acknowledged? |
//! | `writer`, `work`, `slices`, `ledger` | what does the child do? what does it write? what does a slice say? what must be there? |
//! | `numbered` | part `numbered`: killed at each event of each kind of operation, is it whole or absent? |
//! | `stepped`, `image` | part `steps`: is it after each instruction? what is in the files then? |
//! | `kinds` | which kinds of operation are there, and what do they change? |
//! | `process` | how is a process made, watched and killed? |

pub mod image;
pub mod kinds;
pub mod ledger;
pub mod numbered;
pub mod process;
pub mod slices;
#[cfg(target_arch = "x86_64")]
pub mod stepped;
pub mod timed;
pub mod work;
pub mod writer;

use atomic_mmap::{AtomicMappedFile, Error, Medium};
use std::path::PathBuf;
use tempfile::TempDir;

/// A folder, and the medium that its files are treated as.
#[derive(Clone, Debug)]
pub struct Ground {
    /// In messages.
    pub name: &'static str,
    base: PathBuf,
    /// The medium that is forced.
    pub medium: Medium,
    /// Calls wait for a disk.
    pub is_slow: bool,
}

impl Ground {
    /// A new folder, removed when dropped.
    pub fn folder(&self) -> Result<TempDir, String> {
        tempfile::Builder::new()
            .prefix("atomic-mmap-lab-")
            .tempdir_in(&self.base)
            .map_err(|e| format!("no folder in {}: {e}", self.base.display()))
    }

    fn is_served(&self) -> Result<bool, String> {
        let folder = self.folder()?;
        let path = folder.path().join("probe");
        let medium = self.medium;
        let answer = process::ask(writer::PATIENCE, || {
            let options = AtomicMappedFile::options().create(true).medium(medium);
            match options.open(path) {
                Ok(_) => "yes".to_owned(),
                Err(Error::UnsupportedMedium { .. } | Error::UnsupportedFileSystem { .. }) => {
                    "no".to_owned()
                }
                Err(e) => panic!("{e}"),
            }
        })?;
        Ok(answer == "yes")
    }
}

/// Where this part of the lab can be run: memory treated as persistent memory, as itself, and as a
/// page cache, and a disk's page cache. The error says why nowhere.
pub fn grounds() -> Result<Vec<Ground>, String> {
    let memory = PathBuf::from("/dev/shm");
    let memory = if memory.is_dir() { memory } else { std::env::temp_dir() };
    let ground = |name, base: &PathBuf, medium, is_slow| Ground {
        name,
        base: base.clone(),
        medium,
        is_slow,
    };
    let all = [
        ground("memory as DAX", &memory, Medium::Dax, false),
        ground("memory", &memory, Medium::Ram, false),
        ground("memory as page cache", &memory, Medium::PageCache, false),
        ground("page cache of a disk", &std::env::temp_dir(), Medium::PageCache, true),
    ];
    let mut served = Vec::new();
    for ground in all {
        if ground.is_served()? {
            served.push(ground);
        }
    }
    if served.is_empty() { Err("no supported file system here".to_owned()) } else { Ok(served) }
}
