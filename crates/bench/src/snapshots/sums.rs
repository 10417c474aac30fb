//! Writes to a file with page sums, and reads of it that verify, against a file without sums.

use super::row;
use crate::measure::{Effort, Turn, ratio, take_turns};
use crate::offsets::{Offsets, Order};
use crate::ours::Ours;
use crate::ratios::Found;
use crate::ratios::run::{FILE_BESIDE, Pattern, check_back, touch_all};
use crate::scratch::Scratch;
use crate::subject::Subject;
use atomic_mmap::{AtomicMappedFile, Integrity, Medium};
use std::hint::black_box;
use std::io;
use std::path::Path;

/// Sizes of writes and reads.
const SIZES: [(&str, usize); 3] = [("4KiB", 4096), ("1KiB", 1024), ("64B", 64)];

/// Measures writes and reads of each size at random offsets. Both files get equal ones.
pub fn measure(
    effort: &Effort,
    medium: Medium,
    scratch: &Scratch,
    found: &mut Found,
) -> io::Result<()> {
    let with = open(&scratch.folder("with")?, medium, Integrity::OnRead)?;
    let without = open(&scratch.folder("without")?, medium, Integrity::Off)?;
    touch_all(&with, FILE_BESIDE);
    touch_all(&without, FILE_BESIDE);
    for (name, len) in SIZES {
        let pattern = Pattern::new(len);
        let write = |ours: &Ours, round: usize, count: usize| {
            let data = pattern.piece(round, len);
            places(len, round).take(count).for_each(|at| ours.write(data, at));
        };
        let mut turns: [Turn<'_>; 2] = [
            Box::new(|round, count| write(&with, round, count)),
            Box::new(|round, count| write(&without, round, count)),
        ];
        add(&row(medium, &format!("sums_write_{name}")), effort, &mut turns, found);
        let last: Vec<u64> = places(len, 1).take(100).collect();
        for ours in [&with, &without] {
            last.iter().for_each(|at| ours.write(pattern.piece(1, len), *at));
            check_back(ours, &pattern, 1, &last, len);
        }
    }
    for (name, len) in SIZES {
        let read = |ours: &Ours, round: usize, count: usize| {
            let mut to = vec![0; len];
            places(len, round).take(count).for_each(|at| ours.read(black_box(&mut to), at));
        };
        let mut turns: [Turn<'_>; 2] = [
            Box::new(|round, count| read(&with, round, count)),
            Box::new(|round, count| read(&without, round, count)),
        ];
        add(&row(medium, &format!("sums_read_{name}")), effort, &mut turns, found);
    }
    let verified = with.0.verify(0..FILE_BESIDE)?;
    if verified.pages < FILE_BESIDE / 4096 || !verified.damaged.is_empty() {
        return Err(io::Error::other(format!("a file with sums: {verified:?}")));
    }
    Ok(())
}

/// Measures on the page cache, in the temporary folder.
pub fn on_disk(effort: &Effort, found: &mut Found) -> io::Result<()> {
    let scratch = Scratch::new(Some(&std::env::temp_dir()))?;
    measure(effort, Medium::PageCache, &scratch, found)
}

fn open(folder: &Path, medium: Medium, integrity: Integrity) -> io::Result<Ours> {
    let options = AtomicMappedFile::options().create(true).len(FILE_BESIDE).medium(medium);
    Ok(Ours(options.integrity(integrity).open(folder.join("ours"))?))
}

fn places(len: usize, round: usize) -> Offsets {
    Offsets::new(Order::Random, FILE_BESIDE, len, len as u64, 0, round as u64 % 997)
}

fn add(name: &str, effort: &Effort, turns: &mut [Turn<'_>; 2], found: &mut Found) {
    let series = take_turns(effort, 64, turns);
    let told = format!("{:.0} : {:.0} ns", series[0].median(), series[1].median());
    found.add(name, ratio(&series[0], &series[1]), &told);
}
