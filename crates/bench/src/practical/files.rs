//! The disk space of a small file, and the number of files that a process can have open.

use crate::ratios::Found;
use crate::scratch::Scratch;
use atomic_mmap::{AtomicMappedFile, Medium};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const SMALL: u64 = 4096;
/// Number of files that are open at once.
const MANY: usize = 10_000;

/// Returns the bytes on disk of all files in a folder.
fn disk_bytes(folder: &Path) -> io::Result<u64> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.metadata()?.blocks() * 512)).sum()
}

/// Measures the disk space of an open file of one page after a store, and opens 10,000 files.
pub fn measure(scratch: &Scratch, found: &mut Found) -> io::Result<()> {
    let folder = scratch.folder("small")?;
    let options = AtomicMappedFile::options().create(true).len(SMALL);
    let file = options.medium(Medium::PageCache).open(folder.join("state"))?;
    file.store(0, &7_u64)?;
    file.sync()?;
    let told = "home, reflection and journal of 4 KiB of state, open, after a sync";
    found.add("small_file_disk_bytes", disk_bytes(&folder)? as f64, told);
    drop(file);

    // In memory: 10,000 folders' worth of syncs would measure the disk.
    let scratch = Scratch::new(None)?;
    raise_descriptors()?;
    let open = |n: usize| AtomicMappedFile::create(scratch.path().join(n.to_string()), SMALL);
    let files: Result<Vec<_>, _> = (0..MANY).map(open).collect();
    let told = match &files {
        Ok(_) => "10,000 files are open in this process".to_owned(),
        Err(error) => error.to_string(),
    };
    found.add("opens_10000_files", f64::from(u8::from(files.is_ok())), &told);
    Ok(())
}

/// Raises the limit of descriptors as far as this process may.
fn raise_descriptors() -> io::Result<()> {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    Ok(rustix::process::setrlimit(rustix::process::Resource::Nofile, limit)?)
}
