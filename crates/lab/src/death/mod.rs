//! Process crashes: the state of the files after a kill.
//!
//! | module | contents |
//! |---|---|
//! | `timed` | part `kills`: kills at random times, with several threads |
//! | `writer`, `work` | the child, and the operations that it does |
//! | `slices`, `ledger` | self-certifying slices, and the expected content of the file |
//! | `numbered` | part `numbered`: kills at each event of each kind of operation |
//! | `stepped`, `image` | part `steps`: a check after each instruction, and images of the files |
//! | `kinds` | the kinds of operation, and their changes |
//! | `sealed` | the kinds on files with snapshots and page sums |
//! | `space` | the kinds with stages, background deployment and a budget |
//! | `state`, `look` | the states of a file, and the look at what a kill has left |
//! | `process` | processes: fork, wait and kill |

pub mod image;
pub mod kinds;
pub mod ledger;
pub mod look;
pub mod numbered;
pub mod process;
pub mod sealed;
pub mod slices;
pub mod space;
pub mod state;
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
    /// Name in messages.
    pub name: &'static str,
    base: PathBuf,
    /// The forced medium.
    pub medium: Medium,
    /// `true` if calls wait for a disk.
    pub is_slow: bool,
}

impl Ground {
    /// Creates a new folder, which is removed on drop.
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

/// Returns the folders and media that this machine supports: memory treated as each of the media,
/// and the page cache of a disk. The error says why there are none.
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
