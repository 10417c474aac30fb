//! Writes to a file that takes snapshots by itself, against the same writes to a file without.
//!
//! A turn is as long as several snapshots: shorter turns would leave these out of the median.
//!
//! The ratio depends on the share of writes that go over a slice for the first time since a
//! snapshot, so each row tells that share of the slices. With `_few` all writes go to [`FEW`] bytes
//! of the file: then a page gets 12 writes of 4 KiB from one snapshot to the next.

use super::row;
use crate::measure::{Effort, Turn, ratio, take_turns};
use crate::offsets::{Offsets, Order};
use crate::ours::Ours;
use crate::ratios::Found;
use crate::ratios::run::{FILE, Pattern, touch_all};
use crate::scratch::Scratch;
use crate::subject::Subject;
use atomic_mmap::{AtomicMappedFile, AutoSnapshots, Medium, Retention};
use std::cell::Cell;
use std::io;
use std::path::Path;
use std::time::Duration;

/// Number of writes from one snapshot to the next.
const EVERY: u64 = 100_000;
/// Number of snapshots that stay.
const KEPT: usize = 8;
/// Writes to few pages go to this part of the file.
const FEW: u64 = 32 << 20;
/// Nine of ten writes among hot spots go to this part of the file.
const HOT: u64 = FILE / 128;

/// Measures writes of each size, at random offsets of the whole file and among hot spots.
pub fn measure(
    quick: bool,
    medium: Medium,
    scratch: &Scratch,
    found: &mut Found,
) -> io::Result<()> {
    let effort = Effort {
        rounds: if quick { 5 } else { 21 },
        warm_up: 1,
        turn: Duration::from_millis(if quick { 50 } else { 150 }),
    };
    let keep = Retention::new().number(KEPT);
    let with =
        open(&scratch.folder("with")?, medium, AutoSnapshots::new().writes(EVERY).keep(keep))?;
    let without = open(&scratch.folder("without")?, medium, AutoSnapshots::new())?;
    touch_all(&with, FILE);
    touch_all(&without, FILE);
    for (name, len) in [("4KiB", 4096), ("1KiB", 1024), ("64B", 64)] {
        let random: Places = |len, seed| Box::new(places(FILE, len, seed));
        let hot: Places = |len, seed| Box::new(among_hot_spots(len, seed));
        let few: Places = |len, seed| Box::new(places(FEW, len, seed));
        for (suffix, places) in [("", random), ("_hot", hot), ("_few", few)] {
            let name = row(medium, &format!("auto_snapshot_{name}{suffix}"));
            compare(&name, &effort, len, places, [&with, &without], found)?;
        }
    }
    check_equal(&with, &without)
}

fn open(folder: &Path, medium: Medium, automatic: AutoSnapshots) -> io::Result<Ours> {
    let options = AtomicMappedFile::options().create(true).len(FILE).medium(medium);
    Ok(Ours(options.auto_snapshots(automatic).open(folder.join("ours"))?))
}

/// The offsets of writes of this many bytes, from a seed.
type Places = fn(usize, u64) -> Box<dyn Iterator<Item = u64>>;

fn places(file: u64, len: usize, seed: u64) -> Offsets {
    Offsets::new(Order::Random, file, len, len as u64, 0, seed)
}

fn among_hot_spots(len: usize, seed: u64) -> impl Iterator<Item = u64> {
    let (mut hot, mut all) = (places(HOT, len, seed), places(FILE, len, seed));
    (0_u8..10).cycle().filter_map(move |n| if n == 9 { all.next() } else { hot.next() })
}

fn compare(
    name: &str,
    effort: &Effort,
    len: usize,
    places: Places,
    [with, without]: [&Ours; 2],
    found: &mut Found,
) -> io::Result<()> {
    let pattern = Pattern::new(len);
    let run = |ours: &Ours, round: usize, count: usize| {
        let data = pattern.piece(round, len);
        places(len, round as u64 % 997).take(count).for_each(|at| ours.write(data, at));
    };
    let (before, written) = (with.0.stats(), Cell::new(0));
    let mut turns: [Turn<'_>; 2] = [
        Box::new(|round, count| {
            run(with, round, count);
            written.set(written.get() + count);
        }),
        Box::new(|round, count| run(without, round, count)),
    ];
    let series = take_turns(effort, 4 * EVERY as usize, &mut turns);
    drop(turns);
    let after = with.0.stats();
    if after.failed_snapshots > before.failed_snapshots {
        return Err(io::Error::other("automatic snapshots have failed"));
    }
    let told = format!(
        "{:.0} : {:.0} ns; {} snapshots in {} writes, {:.0} % of slices for the first time",
        series[0].median(),
        series[1].median(),
        after.snapshots - before.snapshots,
        written.get(),
        (after.kept_slices - before.kept_slices) as f64 * 6400.0 / (written.get() * len) as f64
    );
    found.add(name, ratio(&series[0], &series[1]), &told);
    Ok(())
}

/// Checks that the same writes have led to the same bytes.
fn check_equal(one: &Ours, other: &Ours) -> io::Result<()> {
    let (mut a, mut b) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    for at in (0..FILE).step_by(a.len()) {
        one.read(&mut a, at);
        other.read(&mut b, at);
        if a != b {
            return Err(io::Error::other(format!("after the same writes {at} reads differently")));
        }
    }
    Ok(())
}
