//! Reads of a snapshot, against reads of the present: of pages that have changed since, and of
//! pages that have not.

use super::row;
use crate::measure::{Effort, Turn, ratio, take_turns};
use crate::offsets::{Offsets, Order};
use crate::ours::Ours;
use crate::ratios::Found;
use crate::ratios::run::{FILE_BESIDE, touch_all};
use crate::scratch::Scratch;
use crate::subject::Subject;
use atomic_mmap::Medium;
use std::hint::black_box;
use std::io;

const PAGE: usize = 4096;
const BEFORE: [u8; PAGE] = [0x21; PAGE];
const SINCE: [u8; PAGE] = [0x42; PAGE];

/// Measures reads of pages. Every second page has changed.
pub fn measure(
    effort: &Effort,
    medium: Medium,
    scratch: &Scratch,
    found: &mut Found,
) -> io::Result<()> {
    let ours = Ours::open(&scratch.folder("read")?, FILE_BESIDE, medium)?;
    touch_all(&ours, FILE_BESIDE);
    let pages = || (0..FILE_BESIDE).step_by(PAGE);
    pages().for_each(|at| ours.write(&BEFORE, at));
    ours.0.deploy(0..FILE_BESIDE)?;
    ours.0.snapshot("before")?;
    pages().step_by(2).for_each(|at| ours.write(&SINCE, at));
    let before = ours.0.open_snapshot("before")?;
    for (name, plus, present) in [
        ("snapshot_read_4KiB_changed", 0, &SINCE),
        ("snapshot_read_4KiB_unchanged", PAGE as u64, &BEFORE),
    ] {
        let offsets = |round: usize| {
            let step = 2 * PAGE as u64;
            Offsets::new(Order::Random, FILE_BESIDE, PAGE, step, plus, round as u64 % 997)
        };
        let (mut then, mut now) = ([0; PAGE], [0; PAGE]);
        let mut turns: [Turn<'_>; 2] = [
            Box::new(|round, count| {
                for at in offsets(round).take(count) {
                    before.read_at(black_box(&mut then), at).expect("in range");
                }
            }),
            Box::new(|round, count| {
                offsets(round).take(count).for_each(|at| ours.read(black_box(&mut now), at));
            }),
        ];
        let series = take_turns(effort, 64, &mut turns);
        drop(turns);
        assert!(then == BEFORE && now == *present, "what is read is not what was written");
        let told = format!("{:.0} : {:.0} ns", series[0].median(), series[1].median());
        found.add(&row(medium, name), ratio(&series[0], &series[1]), &told);
    }
    Ok(())
}
