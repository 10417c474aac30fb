//! Hot spots within a budget, and the storage that sparse writes take in the companions.

use super::row;
use crate::measure::{Effort, Turn, ratio, take_turns};
use crate::offsets::{Offsets, Order};
use crate::ours::Ours;
use crate::ratios::Found;
use crate::ratios::run::{Pattern, check_back, touch_all};
use crate::scratch::Scratch;
use crate::subject::Subject;
use atomic_mmap::{AtomicMappedFile, Medium};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of the files with hot spots.
const LEN: u64 = 512 << 20;
/// Nine of ten writes go to this part of the file.
const HOT: u64 = LEN / 50;
/// Bytes of a sparse file, and the distance of its writes.
const SPARSE: (u64, u64) = (64 << 30, 2 << 20);

/// Measures writes of which nine of ten go to hot spots, with a budget of a tenth of the file and
/// without: the speed that stays.
pub fn hot_spots(
    effort: &Effort,
    medium: Medium,
    scratch: &Scratch,
    found: &mut Found,
) -> io::Result<()> {
    let open = |name: &str, budget: Option<u64>| -> io::Result<Ours> {
        let options = AtomicMappedFile::options().create(true).len(LEN).medium(medium);
        let options = match budget {
            Some(bytes) => options.reflection_budget(bytes),
            None => options,
        };
        Ok(Ours(options.open(scratch.folder(name)?.join("ours"))?))
    };
    let (within, without) = (open("within", Some(LEN / 10))?, open("without", None)?);
    for ours in [&within, &without] {
        // Both home files are allocated, and all pages are deployed.
        touch_all(ours, LEN);
        ours.0.deploy(0..LEN)?;
    }
    let before = within.0.stats();
    // Turns as long as several of the worker's batches.
    let effort = Effort { turn: Duration::from_millis(40), ..*effort };
    for (name, len) in [("4KiB", 4096), ("64B", 64)] {
        let pattern = Pattern::new(len);
        let run = |ours: &Ours, round: usize, count: usize| {
            let data = pattern.piece(round % 256, len);
            hot(len, round as u64 % 997).take(count).for_each(|at| ours.write(data, at));
        };
        let mut turns: [Turn<'_>; 2] = [
            Box::new(|round, count| run(&within, round, count)),
            Box::new(|round, count| run(&without, round, count)),
        ];
        let series = take_turns(&effort, 1024, &mut turns);
        drop(turns);
        let stats = within.0.stats().delta(&before);
        let taken = storage(&scratch.path().join("within"))?;
        if taken > LEN / 10 {
            return Err(io::Error::other(format!("the companions take {taken} bytes")));
        }
        let told = format!(
            "{:.0} : {:.0} ns; of {} writes {} pages deployed, {} waits, {} MB taken",
            series[0].median(),
            series[1].median(),
            stats.logged_flip_writes + stats.flip_writes,
            stats.cold_deployments,
            stats.budget_waits,
            taken >> 20
        );
        found.add(
            &row(medium, &format!("budget_hot_{name}")),
            ratio(&series[1], &series[0]),
            &told,
        );
        let last: Vec<u64> = hot(len, 1).take(50).collect();
        for ours in [&within, &without] {
            last.iter().for_each(|at| ours.write(pattern.piece(1, len), *at));
            check_back(ours, &pattern, 1, &last, len);
        }
    }
    Ok(())
}

fn hot(len: usize, seed: u64) -> impl Iterator<Item = u64> {
    let places = |bytes| Offsets::new(Order::Random, bytes, len, len as u64, 0, seed);
    let (mut hot, mut all) = (places(HOT), places(LEN));
    (0_u8..10).cycle().filter_map(move |n| if n == 9 { all.next() } else { hot.next() })
}

/// Measures on the page cache, in the temporary folder.
pub fn sparse_on_disk(found: &mut Found) -> io::Result<()> {
    let scratch = Scratch::new(Some(&std::env::temp_dir()))?;
    sparse(Medium::PageCache, &scratch, found)
}

/// Measures the storage of the companions after one small write in each 2 MiB of a sparse file:
/// once the worker has nothing left to do, and at its most.
pub fn sparse(medium: Medium, scratch: &Scratch, found: &mut Found) -> io::Result<()> {
    let (len, step) = SPARSE;
    let (options, folder) = (AtomicMappedFile::options(), scratch.folder("sparse")?);
    let options = options.create(true).len(len).medium(medium);
    let file = options.deploy_idle(Duration::from_millis(200)).open(folder.join("ours"))?;
    for at in (0..len).step_by(step as usize) {
        file.write_at(&[7; 64], at)?;
    }
    let most = storage(&folder)?;
    let begun = Instant::now();
    let mut left = most;
    while begun.elapsed() < Duration::from_secs(60) && file.stats().reflection_allocated > 0 {
        std::thread::sleep(Duration::from_millis(50));
    }
    left = left.min(storage(&folder)?);
    let touched = (len / step * 4096) as f64;
    let name = if medium == Medium::PageCache { String::new() } else { format!("{medium}_") };
    let told = format!("{} KiB left, {} KiB at most", left >> 10, most >> 10);
    found.add(&format!("{name}sparse_disk_per_touched_byte"), left as f64 / touched, &told);
    found.add_detail(&format!("{name}sparse_disk_at_most"), most as f64 / touched);
    Ok(())
}

/// Returns the storage of the companions in the folder.
fn storage(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(".atomic-mmap.") {
            bytes += entry.metadata()?.blocks() * 512;
        }
    }
    Ok(bytes)
}
