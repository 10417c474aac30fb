//! The disk space of a small file, and the number of files that a process can have open.

use crate::ratios::Found;
use crate::scratch::Scratch;
use atomic_mmap::{AtomicMappedFile, Medium};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const SMALL: u64 = 4096;
/// Number of files that are open at once.
const MANY: usize = 10_000;
/// Descriptors of a file in memory.
const EACH: u64 = 2;
/// Descriptors that the process needs besides.
const OTHERS: u64 = 100;

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
    let descriptors = raise_descriptors(MANY as u64 * EACH + OTHERS);
    let open = |n: usize| AtomicMappedFile::create(scratch.path().join(n.to_string()), SMALL);
    let mut files = Vec::new();
    let opened = (0..MANY).try_for_each(|n| open(n).map(|file| files.push(file)));
    let count = files.len();
    let told = match &opened {
        Ok(()) => format!("{count} files are open in this process"),
        Err(error) => format!("{count} files, with {descriptors} descriptors: {error}"),
    };
    found.add("opens_10000_files", f64::from(u8::from(opened.is_ok())), &told);
    Ok(())
}

/// Raises the limit of descriptors to `needed`, or as far as this process may: the hard limit needs
/// a privilege, and `fs.nr_open` is the end. Returns the limit.
fn raise_descriptors(needed: u64) -> u64 {
    let old = getrlimit(Resource::Nofile);
    let Some(hard) = old.maximum else { return needed }; // there is no limit
    let limit = |most| Rlimit { current: Some(most), maximum: Some(hard.max(most)) };
    let allowed = [needed, hard].into_iter().find(|most| {
        old.current.is_some_and(|now| now >= *most)
            || setrlimit(Resource::Nofile, limit(*most)).is_ok()
    });
    allowed.or(old.current).unwrap_or(needed)
}
