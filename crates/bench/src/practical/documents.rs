//! A small file that is opened, changed and closed, and documents that are replaced. The other way
//! is that of every editor: write a temporary file, sync it, rename it, and sync the folder.

use crate::measure::{Effort, Turn, ratio, take_turns};
use crate::ratios::Found;
use crate::scratch::Scratch;
use atomic_mmap::{AtomicMappedFile, CloseMode};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// The lengths of documents, in bytes, with their names in the table.
const DOCUMENTS: [(&str, usize); 3] = [
    ("replace_400B_vs_rename", 400),
    ("replace_40KB_vs_rename", 40_000),
    ("replace_4MB_vs_rename", 4_000_000),
];

/// Bytes of a small file.
const SMALL: u64 = 4096;

/// Replaces a file durably, as it is done without this crate.
fn rename_over(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

/// Returns a document of this length that differs from the last one all over, as a document does
/// after a change of its layout.
fn document(len: usize, round: usize) -> Vec<u8> {
    (0..len).map(|n| (n.wrapping_mul(31) + round) as u8).collect()
}

/// Measures an open, a store and a close of a file of one page.
pub fn small_file(effort: &Effort, scratch: &Scratch, found: &mut Found) -> io::Result<()> {
    let (ours, theirs) = (scratch.path().join("ours"), scratch.path().join("theirs"));
    AtomicMappedFile::create(&ours, SMALL)?.close(CloseMode::Spatial)?;
    rename_over(&theirs, &[0; SMALL as usize])?;
    let mut turns: [Turn<'_>; 2] = [
        Box::new(|round, count| {
            for n in 0..count {
                let file = AtomicMappedFile::open(&ours).expect("open");
                file.store(8, &((round ^ n) as u64)).expect("store");
                file.close(CloseMode::Spatial).expect("close");
            }
        }),
        Box::new(|round, count| {
            for n in 0..count {
                let mut bytes = fs::read(&theirs).expect("read");
                bytes[8..16].copy_from_slice(&((round ^ n) as u64).to_le_bytes());
                rename_over(&theirs, &bytes).expect("replace");
            }
        }),
    ];
    let series = take_turns(effort, 1, &mut turns);
    let told = "4 KiB opened, changed and closed, against read, write, fsync, rename, fsync";
    found.add("open_store_close_vs_rename", ratio(&series[0], &series[1]), told);
    Ok(())
}

/// Measures the durable replacement of an open document.
pub fn replace(effort: &Effort, scratch: &Scratch, found: &mut Found) -> io::Result<()> {
    for (name, len) in DOCUMENTS {
        let (ours, theirs) = (scratch.path().join("ours"), scratch.path().join("theirs"));
        let file = AtomicMappedFile::options().create(true).open(&ours)?;
        let documents = [document(len, 1), document(len, 2)];
        let mut turns: [Turn<'_>; 2] = [
            Box::new(|_, count| {
                for n in 0..count {
                    file.replace(&documents[n % 2]).expect("replace");
                    file.sync().expect("sync");
                }
            }),
            Box::new(|_, count| {
                for n in 0..count {
                    rename_over(&theirs, &documents[n % 2]).expect("replace");
                }
            }),
        ];
        let series = take_turns(effort, 2, &mut turns);
        drop(turns);
        found.add(name, ratio(&series[0], &series[1]), "all bytes new, durable");
        file.close(CloseMode::Spatial)?;
    }
    Ok(())
}
