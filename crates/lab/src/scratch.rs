//! The folder for the files of a part, removed when the part is done.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A folder that is removed on drop.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Creates a new folder in memory if possible, otherwise among the temporary files.
    ///
    /// # Panics
    /// If it cannot be created.
    pub fn in_memory(name: &str) -> Scratch {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let shm = Path::new("/dev/shm");
        let base = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
        let n = MADE.fetch_add(1, Ordering::Relaxed);
        let path = base.join(format!("atomic-mmap-lab-{name}-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a scratch folder");
        Scratch(path)
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _best_effort = std::fs::remove_dir_all(&self.0);
    }
}
