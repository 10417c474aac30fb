//! The folder of the files, which is removed when it is dropped.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A scratch folder.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes a folder under `base`. Without it, makes one under `/dev/shm` if it exists, or in the
    /// temporary folder.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn new(base: Option<&Path>) -> io::Result<Scratch> {
        let shm = Path::new("/dev/shm");
        let other = || if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
        let base = base.map_or_else(other, Path::to_owned);
        let path =
            base.join(format!("atomic-mmap-bench-{}-{:x}", std::process::id(), fastrand::u32(..)));
        std::fs::create_dir_all(&path)?;
        Ok(Scratch(path))
    }

    /// Returns the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes back what the file system has in the page cache, so that a turn does not pay for the
    /// turns before it.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(std::fs::File::open(&self.0)?)?)
    }

    /// Makes a new folder in it.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn folder(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.0.join(name);
        std::fs::create_dir_all(&path)?;
        Ok(path)
    }
}

/// Returns the name of the file system of a folder.
///
/// # Errors
/// Returns the error of the system.
pub fn file_system(folder: &Path) -> io::Result<String> {
    let said = Command::new("stat").args(["-f", "-c", "%T"]).arg(folder).output()?;
    Ok(String::from_utf8_lossy(&said.stdout).trim().to_owned())
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _best_effort = std::fs::remove_dir_all(&self.0);
    }
}
