//! Tests of page sums. `.ci/run` also runs random tests and those of crashes on files with sums.
//!
//! | module | what it asks |
//! |---|---|
//! | `crash` | Does a loss of power leave each page its sum? |
//! | `damage` | Is damage noticed, told, and healed by a write over it? |
//! | `kept` | Does nothing make damage good, or whole bytes damaged? |
//! | `life` | When does a file get sums, keep them, and lose them? |
//! | `metadata` | Is damage noticed in words, superblocks, sums and records? |
//! | `repair` | Does a damaged page become what it was in a snapshot, and nothing else? |
//! | `repair_crash` | Does a crash in a repair leave the page damaged or repaired? |
//! | `scribbles` | Is each random overwrite harmless, or noticed before it is read? |

mod crash;
mod damage;
mod kept;
mod life;
mod metadata;
mod repair;
#[cfg(all(target_os = "linux", target_arch = "x86_64", not(atomic_mmap_portable)))]
mod repair_crash;
mod scribbles;

use crate::common::{Ground, Rng, Scratch};
use crate::durable::died;
use atomic_mmap::{AtomicMappedFile, Integrity, Options};
use std::path::{Path, PathBuf};

const PAGE: u64 = 4096;
/// The file ends within a page, and within its second region.
const LEN: u64 = 70 * PAGE + 100;

fn options(ground: &Ground) -> Options {
    ground.options().create(true).len(LEN).integrity(Integrity::OnRead)
}

/// Makes a file with sums, and brings random bytes home.
fn written(ground: &Ground, integrity: Integrity) -> (Scratch, PathBuf, AtomicMappedFile) {
    let scratch = ground.scratch();
    let path = scratch.file("state.dat");
    let file = options(ground).integrity(integrity).open(&path).expect("open");
    file.write_at(&Rng(4).bytes(LEN as usize), 0).expect("write");
    file.sync().expect("sync");
    file.deploy(0..LEN).expect("deploy");
    file.sync().expect("sync");
    (scratch, path, file)
}

/// Opens a copy of the file in use, as the death of this process would leave it.
fn after_death(ground: &Ground, home: &Path) -> (crate::durable::Restarted, AtomicMappedFile) {
    let image = died(ground, home);
    let file = image.open(ground);
    (image, file)
}
