//! The scan of a file that is not in memory, against plain reads.

use crate::ratios::Found;
use crate::scratch::Scratch;
use atomic_mmap::{AtomicMappedFile, CloseMode, Medium};
use rustix::fs::{Advice, fadvise};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

const READ: usize = 4096;
const TURNS: usize = 5;

/// Drops the files of a folder from the page cache.
fn evict(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let file = File::open(entry?.path())?;
        file.sync_all()?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}

/// Reads a file in order by calls of 4 KiB, once it is not in memory. Returns the seconds.
fn scan(
    folder: &Path,
    len: u64,
    mut read: impl FnMut(&mut [u8], u64) -> io::Result<()>,
) -> io::Result<f64> {
    evict(folder)?;
    let mut bytes = [0; READ];
    let begun = Instant::now();
    for at in (0..len).step_by(READ) {
        read(&mut bytes, at)?;
    }
    Ok(begun.elapsed().as_secs_f64())
}

/// Measures plain reads and those of a handle that may write, by turns: of a file that was closed
/// completely, and of one with all of its bytes in the reflection file.
pub fn measure(quick: bool, scratch: &Scratch, found: &mut Found) -> io::Result<()> {
    let len: u64 = if quick { 16 << 20 } else { 256 << 20 };
    let cases = [
        (
            "cold_scan_vs_plain",
            CloseMode::Spatial,
            "4 KiB reads in order of a cold file, by plain reads",
        ),
        ("cold_scan_away_vs_plain", CloseMode::Fast, "all of its bytes in the reflection file"),
    ];
    for (name, mode, told) in cases {
        let folder = scratch.folder(name)?;
        let path = folder.join("file");
        let options = || AtomicMappedFile::options().medium(Medium::PageCache);
        let file = options().create(true).len(len).open(&path)?;
        for at in (0..len).step_by(READ) {
            file.write_at(&[7; READ], at)?;
        }
        file.close(mode)?;
        // The file itself may be a hole: all of its bytes are in the reflection file then.
        let twin = folder.join("plain");
        fs::write(&twin, vec![7; len as usize])?;
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..TURNS {
            let plain = File::open(&twin)?;
            times[0].push(scan(&folder, len, |bytes, at| plain.read_exact_at(bytes, at))?);
            evict(&folder)?;
            let file = options().open(&path)?;
            times[1].push(scan(&folder, len, |bytes, at| Ok(file.read_at(bytes, at)?))?);
            file.close(CloseMode::Fast)?;
        }
        let [plain, ours] = times.map(|mut times| {
            times.sort_by(f64::total_cmp);
            times[TURNS / 2]
        });
        found.add(name, ours / plain, told);
    }
    Ok(())
}
