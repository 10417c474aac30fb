//! The disk space of what a snapshot keeps, for each byte of the slices that have changed since.

use super::row;
use crate::ours::Ours;
use crate::ratios::Found;
use crate::ratios::run::touch_all;
use crate::scratch::Scratch;
use crate::subject::Subject;
use atomic_mmap::Medium;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const FILE: u64 = 128 << 20;

/// A kind of writes: of `len` bytes, at `count` offsets of those that are multiples of `step`.
struct Writes {
    name: &'static str,
    len: usize,
    step: usize,
    count: usize,
}

/// Measures writes of whole pages, and of slices without a neighbour. There are so many that the
/// companion's first bytes, and its step of growth, hardly count.
pub fn measure(medium: Medium, scratch: &Scratch, found: &mut Found) -> io::Result<()> {
    for w in [
        Writes { name: "space_per_changed_slice_pages", len: 4096, step: 4096, count: 32_000 },
        Writes { name: "space_per_changed_slice_lone", len: 64, step: 128, count: 500_000 },
    ] {
        let folder = scratch.folder(w.name)?;
        let ours = Ours::open(&folder, FILE, medium)?;
        touch_all(&ours, FILE);
        ours.0.snapshot("before")?;
        let mut offsets: Vec<u64> = (0..FILE).step_by(w.step).collect();
        fastrand::Rng::with_seed(1).shuffle(&mut offsets);
        offsets.truncate(w.count);
        let data = vec![0x33; w.len];
        offsets.iter().for_each(|at| ours.write(&data, *at));
        let changed = (offsets.len() * w.len) as f64;
        let held = ours.0.snapshots()[0].held as f64;
        let told = format!("{} writes; {:.3} by its own count", offsets.len(), held / changed);
        found.add(&row(medium, w.name), snapshot_file(&folder)? as f64 / changed, &told);
    }
    Ok(())
}

/// Returns the disk space of the companion with the snapshots.
fn snapshot_file(folder: &Path) -> io::Result<u64> {
    for entry in folder.read_dir()? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().ends_with(".snapshots") {
            return Ok(entry.metadata()?.blocks() * 512);
        }
    }
    Err(io::Error::other("there is no file with the snapshots"))
}
