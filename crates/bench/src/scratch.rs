//! Where do the files lie? A folder that goes when it is dropped.

use std::io;
use std::path::{Path, PathBuf};

/// A folder of our own.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Under `base`, or under `/dev/shm` where there is one, or among temporary files.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(base: Option<&Path>) -> io::Result<Scratch> {
        let shm = Path::new("/dev/shm");
        let other = || if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
        let base = base.map_or_else(other, Path::to_owned);
        let path =
            base.join(format!("atomic-mmap-bench-{}-{:x}", std::process::id(), fastrand::u32(..)));
        std::fs::create_dir_all(&path)?;
        Ok(Scratch(path))
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A new folder in it.
    ///
    /// # Errors
    /// What the system says.
    pub fn folder(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.0.join(name);
        std::fs::create_dir_all(&path)?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _best_effort = std::fs::remove_dir_all(&self.0);
    }
}
