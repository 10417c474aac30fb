//! Files that are created, written once and closed, to check what the file system kept of each.
//!
//! When a machine stops, the file system loses everything that is not yet in its journal: names,
//! lengths and attributes. So the crate must make these durable itself, at creation and at closing.

use crate::Anything;
use crate::check::Findings;
use crate::places::{THREADS, fresh_len, stamp};
use atomic_mmap::{AtomicMappedFile, CloseMode};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// The writer number in the stamps of these files.
const WRITER: usize = THREADS;
/// Number of files that exist at the same time.
const KEPT: u64 = 6;

/// The folder of these files.
pub struct Fresh(PathBuf);

fn mode(n: u64) -> CloseMode {
    if n.is_multiple_of(2) { CloseMode::Spatial } else { CloseMode::Fast }
}

fn bytes(n: u64) -> Vec<u8> {
    stamp(WRITER, n, 0, fresh_len(n) as usize)
}

impl Fresh {
    pub fn new(folder: &Path) -> io::Result<Fresh> {
        let folder = folder.join("fresh");
        match fs::create_dir(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        // The parent folder has the new folder's name, so the lab must sync it.
        File::open(folder.parent().unwrap_or(&folder))?.sync_all()?;
        Ok(Fresh(folder))
    }

    fn path(&self, n: u64) -> PathBuf {
        self.0.join(format!("fresh-{n}"))
    }

    /// Creates the `n`th file and removes an old one.
    pub fn make(&self, n: u64) -> Anything<()> {
        let file = AtomicMappedFile::options().create(true).len(fresh_len(n)).open(self.path(n))?;
        file.write_at(&bytes(n), 0)?;
        file.close(mode(n))?;
        if let Some(old) = n.checked_sub(KEPT) {
            self.remove(old)?;
        }
        Ok(())
    }

    fn remove(&self, n: u64) -> Anything<()> {
        let path = self.path(n);
        if path.exists() {
            AtomicMappedFile::open(&path)?.close(CloseMode::Spatial)?;
            fs::remove_file(&path)?;
        }
        Ok(())
    }

    /// Checks all files after a stop of the machine. Returns the number of the last file.
    pub fn check(&self, acknowledged: u64, findings: &mut Findings) -> Anything<u64> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("fresh-"));
            numbers.extend(number.and_then(|n| n.parse::<u64>().ok()));
        }
        let last = numbers.iter().copied().max().unwrap_or(0);
        if last < acknowledged {
            findings.lost.push(format!("file {acknowledged} was acknowledged, {last} is the last"));
            return Ok(last);
        }
        for n in numbers {
            // The machine may have stopped before the removal became durable.
            if n + KEPT <= last {
                self.remove(n)?;
            }
        }
        for n in (last + 1).saturating_sub(KEPT).max(1)..last {
            self.check_closed(n, findings)?;
        }
        if last > 0 && last <= acknowledged {
            self.check_closed(last, findings)?;
        } else if last > 0 {
            // The machine stopped while the file was created. It must open, and be zero or written.
            let len = fresh_len(last);
            let file = AtomicMappedFile::options().create(true).len(len).open(self.path(last))?;
            let mut found = vec![0; file.len() as usize];
            file.read_at(&mut found, 0)?;
            let is_zero = found.iter().all(|byte| *byte == 0);
            if found.len() as u64 != len || !(is_zero || found == bytes(last)) {
                findings.torn.push(format!("file {last} was being made, and has a part of it"));
            }
            drop(file);
            self.make(last)?;
        }
        Ok(last)
    }

    /// Checks a file that was closed before the machine stopped.
    fn check_closed(&self, n: u64, findings: &mut Findings) -> Anything<()> {
        let path = self.path(n);
        let expected = bytes(n);
        if !path.exists() {
            findings.lost.push(format!("file {n} was closed and is gone"));
            return Ok(());
        }
        let found = if mode(n) == CloseMode::Spatial {
            // Reads the plain bytes, without the crate.
            fs::read(&path)?
        } else {
            let file = AtomicMappedFile::open(&path)?;
            let mut found = vec![0; file.len() as usize];
            file.read_at(&mut found, 0)?;
            file.close(CloseMode::Fast)?;
            found
        };
        if found != expected {
            let differs = found.iter().zip(&expected).filter(|(a, b)| a != b).count();
            findings.lost.push(format!(
                "file {n} was closed ({:?}) with {} bytes: {} found, {differs} of them differ",
                mode(n),
                expected.len(),
                found.len(),
            ));
        }
        Ok(())
    }

    /// Returns the reflection files that belong to no file in the folder.
    pub fn strays(&self) -> io::Result<Vec<PathBuf>> {
        use std::os::unix::fs::MetadataExt;
        let mut inodes = Vec::new();
        let mut reflections = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            let entry = entry?;
            let is_reflection = |name: &OsStr| name.to_string_lossy().starts_with(".atomic-mmap.");
            if is_reflection(&entry.file_name()) {
                reflections.push(entry.path());
            } else {
                inodes.push(format!(".atomic-mmap.{:x}", entry.metadata()?.ino()));
            }
        }
        let is_stray = |path: &PathBuf| {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            name.is_none_or(|name| !inodes.contains(&name))
        };
        Ok(reflections.into_iter().filter(is_stray).collect())
    }
}
