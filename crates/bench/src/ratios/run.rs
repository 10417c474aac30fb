//! The measurement of each ratio.
//!
//! Every contender's file has [`FILE`] bytes, so that neither the data nor its metadata fits the
//! caches. Each group first writes all pages of all slots. At its end it reads the writes back.
//!
//! May import `halves`, `measure`, `subject`, `memory`, `offsets`, `scratch`, `ours`, `baselines`.

use super::Found;
use super::child::{self, End};
use super::halves::in_two_halves;
use super::limit::Limit;
use crate::baselines;
use crate::measure::{Effort, Series, Turn, ratio, take_turns};
use crate::offsets::{Offsets, Order};
use crate::ours::Ours;
use crate::scratch::Scratch;
use crate::subject::{Kind, Part, Subject, touch_parts};
use atomic_mmap::Medium;
use std::hint::black_box;
use std::io;
use std::time::Instant;

/// Bytes of every contender's file.
pub const FILE: u64 = 512 << 20;
/// Bytes of every contender's file when all baselines are open together.
pub const FILE_BESIDE: u64 = 256 << 20;

const KIB: usize = 1 << 10;

/// The bytes of writes. They hold a number that identifies their round.
pub struct Pattern(Vec<u8>);

impl Pattern {
    /// Makes a pattern for pieces of `len` bytes.
    pub fn new(len: usize) -> Pattern {
        Pattern((0..len + 256).map(|n| (n * 7 % 251) as u8).collect())
    }

    /// Returns the piece of a round.
    pub fn piece(&self, round: usize, len: usize) -> &[u8] {
        &self.0[round % 256..][..len]
    }
}

/// Writes the whole file twice, so that both slots of each slice are allocated and no page is
/// fragmented.
pub fn touch_all(subject: &dyn Subject, file: u64) {
    let data = vec![0x5A; 1 << 20];
    for _ in 0..2 {
        for at in (0..file).step_by(data.len()) {
            subject.write(&data, at);
        }
        subject.sync();
    }
}

/// Panics if the writes of the last round do not read back.
pub fn check_back(subject: &dyn Subject, pattern: &Pattern, round: usize, at: &[u64], len: usize) {
    let mut back = vec![0; len];
    for offset in at {
        subject.read(&mut back, *offset);
        assert!(
            back == pattern.piece(round, len),
            "what was written at {offset} does not read back"
        );
    }
}

/// A kind of write, compared with copies with one and with two drains.
struct Writes {
    name: &'static str,
    len: usize,
    step: u64,
    plus: u64,
    drains: u32,
}

/// Measures writes of all sizes that have a goal.
pub fn writes(effort: &Effort, scratch: &Scratch, found: &mut Found) -> io::Result<()> {
    let ours = Ours::open(&scratch.folder("writes")?, FILE, Medium::Dax)?;
    let limit = Limit::open(&scratch.folder("limit")?, FILE)?;
    let whole = vec![0; 1 << 20];
    (0..FILE).step_by(whole.len()).for_each(|at| limit.copy_two_drains(&whole, at));
    for w in [
        Writes { name: "write_64B_vs_one_drain", len: 64, step: 64, plus: 0, drains: 1 },
        Writes { name: "write_256B_vs_two_drains", len: 256, step: 256, plus: 0, drains: 2 },
        Writes { name: "write_1KiB_vs_two_drains", len: KIB, step: 1024, plus: 0, drains: 2 },
        Writes { name: "write_4KiB_vs_two_drains", len: 4 * KIB, step: 4096, plus: 0, drains: 2 },
        Writes {
            name: "write_64KiB_vs_two_drains",
            len: 64 * KIB,
            step: 65536,
            plus: 0,
            drains: 2,
        },
        Writes {
            name: "write_1MiB_vs_two_drains",
            len: 1 << 20,
            step: 1 << 20,
            plus: 0,
            drains: 2,
        },
        Writes {
            name: "write_16KiB_unaligned_vs_two_drains",
            len: 16 * KIB,
            step: 4096,
            plus: 100,
            drains: 2,
        },
    ] {
        ours.0.deploy(0..FILE).map_err(io::Error::other)?;
        touch_all(&ours, FILE);
        let pattern = Pattern::new(w.len);
        let offsets = |round: usize| {
            Offsets::new(Order::Random, FILE, w.len, w.step, w.plus, round as u64 % 997)
        };
        let mut last = (0, Vec::new());
        let [mine, bare] = {
            let mut turns: [Turn<'_>; 2] = [
                Box::new(|round, count| {
                    let data = pattern.piece(round, w.len);
                    offsets(round).take(count).for_each(|at| ours.write(data, at));
                    last = (round, offsets(round).take(count.min(100)).collect());
                }),
                Box::new(|round, count| {
                    let data = pattern.piece(round, w.len);
                    let all = offsets(round).take(count);
                    match w.drains {
                        1 => all.for_each(|at| limit.copy_one_drain(data, at)),
                        _ => all.for_each(|at| limit.copy_two_drains(data, at)),
                    }
                }),
            ];
            two(take_turns(effort, 16, &mut turns))
        };
        if w.plus == 0 {
            // Pieces at other offsets overlap, so a later one may have overwritten an earlier one.
            check_back(&ours, &pattern, last.0, &last.1, w.len);
        }
        found.add(
            w.name,
            ratio(&mine, &bare),
            &format!("{:.0} : {:.0} ns", mine.median(), bare.median()),
        );
    }
    Ok(())
}

fn two(series: Vec<Series>) -> [Series; 2] {
    series.try_into().expect("two turns")
}

/// Measures transactions.
pub fn transactions(effort: &Effort, scratch: &Scratch, found: &mut Found) -> io::Result<()> {
    let ours = Ours::open(&scratch.folder("transactions")?, FILE, Medium::Dax)?;
    let limit = Limit::open(&scratch.folder("limit")?, FILE)?;
    touch_all(&ours, FILE);
    let whole = vec![0; 1 << 20];
    (0..FILE).step_by(whole.len()).for_each(|at| limit.copy_two_drains(&whole, at));
    let data = [0x33; 64];
    let places = |round: usize, count: usize, each: &mut dyn FnMut(&[Part<'_>])| {
        let mut all = Offsets::new(Order::Random, FILE, 64, 4096, 0, round as u64 % 997);
        for _ in 0..count {
            let mut parts: [Part<'_>; 8] =
                std::array::from_fn(|_| (all.next().unwrap_or_default(), &data[..]));
            parts.sort_unstable_by_key(|part| part.0);
            each(&parts);
        }
    };
    let [mine, bare] = {
        let mut turns: [Turn<'_>; 2] = [
            Box::new(|round, count| {
                places(round, count, &mut |parts| assert!(ours.transact(parts)));
            }),
            Box::new(|round, count| {
                places(round, count, &mut |parts| limit.copy_all_two_drains(parts));
            }),
        ];
        two(take_turns(effort, 16, &mut turns))
    };
    let told = format!("{:.0} : {:.0} ns", mine.median(), bare.median());
    found.add("tx_8x64B_vs_two_drains_8x64B", ratio(&mine, &bare), &told);
    Ok(())
}

/// Measures reads and views.
pub fn reads(effort: &Effort, scratch: &Scratch, found: &mut Found) -> io::Result<()> {
    let ours = Ours::open(&scratch.folder("reads")?, FILE, Medium::Dax)?;
    let limit = Limit::open(&scratch.folder("limit")?, FILE)?;
    touch_all(&ours, FILE);
    ours.0.deploy(0..FILE).map_err(io::Error::other)?;
    let whole = vec![0x5A; 1 << 20];
    (0..FILE).step_by(whole.len()).for_each(|at| limit.copy_two_drains(&whole, at));
    for (name, len) in [("read_64B_vs_memcpy", 64), ("read_4KiB_vs_memcpy", 4 * KIB)] {
        let offsets = |round: usize| {
            Offsets::new(Order::Random, FILE, len, len as u64, 0, round as u64 % 997)
        };
        let (mut to, mut bare_to) = (vec![0; len], vec![0; len]);
        let [mine, bare] = {
            let mut turns: [Turn<'_>; 2] = [
                Box::new(|round, count| {
                    offsets(round).take(count).for_each(|at| ours.read(black_box(&mut to), at));
                }),
                Box::new(|round, count| {
                    offsets(round)
                        .take(count)
                        .for_each(|at| limit.copy_out(black_box(&mut bare_to), at));
                }),
            ];
            two(take_turns(effort, 64, &mut turns))
        };
        assert!(to == bare_to, "what is read is not what was written");
        found.add(
            name,
            ratio(&mine, &bare),
            &format!("{:.0} : {:.0} ns", mine.median(), bare.median()),
        );
    }
    let len = 4 * KIB;
    let offsets =
        |round: usize| Offsets::new(Order::Random, FILE, len, 4096, 0, round as u64 % 997);
    let mut to = vec![0; len];
    let [mine, bare] = {
        let mut turns: [Turn<'_>; 2] = [
            Box::new(|round, count| {
                for at in offsets(round).take(count) {
                    let view = ours.0.view(at..at + len as u64).expect("in range");
                    // Reads one byte, because a view without a read need not be mapped.
                    let mut byte = [0];
                    view.read_at(&mut byte, 17).expect("in range");
                    black_box(byte);
                }
            }),
            Box::new(|round, count| {
                offsets(round).take(count).for_each(|at| limit.copy_out(black_box(&mut to), at));
            }),
        ];
        two(take_turns(effort, 64, &mut turns))
    };
    let told = format!("{:.0} : {:.0} ns", mine.median(), bare.median());
    found.add("view_4KiB_vs_memcpy", ratio(&mine, &bare), &told);
    Ok(())
}

/// Measures RAM, where the promise is to survive a process crash.
pub fn ram(effort: &Effort, scratch: &Scratch, found: &mut Found) -> io::Result<()> {
    let ours = Ours::open(&scratch.folder("ram")?, FILE, Medium::Ram)?;
    let limit = Limit::open(&scratch.folder("limit")?, FILE)?;
    touch_all(&ours, FILE);
    let whole = vec![0x5A; 1 << 20];
    (0..FILE).step_by(whole.len()).for_each(|at| limit.copy_two_drains(&whole, at));
    let offsets = |round: usize| Offsets::new(Order::Random, FILE, 64, 64, 0, round as u64 % 997);
    let data = [0x44; 64];
    let [mine, bare] = {
        let mut turns: [Turn<'_>; 2] = [
            Box::new(|round, count| {
                offsets(round).take(count).for_each(|at| ours.write(&data, at))
            }),
            Box::new(|round, count| {
                offsets(round).take(count).for_each(|at| limit.copy(&data, at))
            }),
        ];
        two(take_turns(effort, 64, &mut turns))
    };
    let told = format!("{:.0} : {:.0} ns", mine.median(), bare.median());
    found.add("ram_write_64B_vs_memcpy", ratio(&mine, &bare), &told);
    Ok(())
}

/// Measures two threads, each in its half of the file. Also measures bare copies with two drains,
/// since two threads share the memory bandwidth.
pub fn scaling(effort: &Effort, scratch: &Scratch, found: &mut Found) -> io::Result<()> {
    let folder = scratch.folder("scaling")?;
    let ours = Ours::open(&folder, FILE, Medium::Dax)?;
    touch_all(&ours, FILE);
    let limit = Limit::open(&folder, FILE)?;
    let whole = vec![0; 1 << 20];
    (0..FILE).step_by(whole.len()).for_each(|at| limit.copy_two_drains(&whole, at));
    let ([mine, bare], left_out) = in_two_halves(
        effort,
        FILE,
        4 * KIB,
        [&|data, at| ours.write(data, at), &|data, at| limit.copy_two_drains(data, at)],
    );
    let told = format!(
        "{:.0} ns one, {:.0} ns two; bare copies {:.2}; {} rounds, {left_out} left out: had no two cores",
        mine.one.median(),
        mine.two.median(),
        bare.gain(),
        mine.one.0.len()
    );
    found.add("scaling_2_threads_disjoint_4KiB", mine.gain(), &told);
    found.add_detail("scaling_2_threads_two_drains_4KiB", bare.gain());
    Ok(())
}

/// Measures the bytes written for each byte of the operations.
pub fn volume(scratch: &Scratch, found: &mut Found) -> io::Result<()> {
    let ours = Ours::open(&scratch.folder("volume")?, FILE / 4, Medium::Dax)?;
    touch_all(&ours, FILE / 4);
    for (name, len) in [("bytes_per_byte_1KiB", KIB), ("bytes_per_byte_4KiB", 4 * KIB)] {
        let data = vec![0x77; len];
        let before = ours.0.stats();
        Offsets::new(Order::Random, FILE / 4, len, len as u64, 0, 1)
            .take(20_000)
            .for_each(|at| ours.write(&data, at));
        let after = ours.0.stats();
        let written = (after.bytes_written - before.bytes_written) as f64;
        found.add(
            name,
            written / (after.bytes_asked - before.bytes_asked) as f64,
            "20000 random writes",
        );
    }
    Ok(())
}

/// Compares with all of `baselines`: writes of all sizes, random and sequential, and mixes with
/// reads.
pub fn baselines(
    effort: &Effort,
    scratch: &Scratch,
    quick: bool,
    found: &mut Found,
) -> io::Result<()> {
    let ours = Ours::open(&scratch.folder("beside")?, FILE_BESIDE, Medium::Dax)?;
    let (mut worst_write, mut details) = (Worst::default(), Vec::new());
    let mut writes = |effort: &Effort, theirs: &dyn Subject, (name, len): (&str, usize)| {
        for order in [Order::Random, Order::Sequential] {
            let value = mix(effort, &ours, theirs, len, order, 0);
            worst_write.look(value, || format!("{name} {order:?} {len} B"));
            details.push((format!("write_{len}B_{order:?}_{name}_vs_ours"), value));
        }
    };
    worst_mix(effort, scratch, quick, &ours, found, &mut writes)?;
    details.iter().for_each(|(name, value)| found.add_detail(name, *value));
    found.add("worst_write_vs_baselines", worst_write.value, &worst_write.where_);
    Ok(())
}

/// Is called with a baseline, its name, and the bytes of an operation.
pub type InCell<'a> = dyn FnMut(&Effort, &dyn Subject, (&str, usize)) + 'a;

/// Compares mixes of writes and reads with all of `baselines`. Calls `beside` in each cell.
pub fn worst_mix(
    effort: &Effort,
    scratch: &Scratch,
    quick: bool,
    ours: &dyn Subject,
    found: &mut Found,
    beside: &mut InCell<'_>,
) -> io::Result<()> {
    // Shorter turns, because there are many cells.
    let effort = Effort { rounds: if quick { 7 } else { 31 }, turn: effort.turn / 3, ..*effort };
    let sizes: &[usize] = &[64, 256, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, 1 << 20];
    let mut worst = Worst::default();
    for kind in baselines::ALL {
        let theirs = open_in(scratch, kind)?;
        for subject in [&*theirs, ours] {
            touch_all(subject, FILE_BESIDE);
            touch_parts(subject, FILE_BESIDE);
        }
        for &len in sizes {
            beside(&effort, &*theirs, (kind.name, len));
            for reads in [20, 50, 80] {
                let value = mix(&effort, ours, &*theirs, len, Order::Random, reads);
                worst.look(value, || format!("{} {reads} % reads of {len} B", kind.name));
                found.add_detail(&format!("mix{reads}_{len}B_{}_vs_ours", kind.name), value);
            }
        }
    }
    found.add("worst_mix_vs_baselines", worst.value, &worst.where_);
    Ok(())
}

fn open_in(scratch: &Scratch, kind: &Kind) -> io::Result<Box<dyn Subject>> {
    (kind.open)(&scratch.folder(&kind.name.replace(' ', "-"))?, FILE_BESIDE)
}

/// The lowest value and its place.
struct Worst {
    value: f64,
    where_: String,
}

impl Default for Worst {
    fn default() -> Self {
        Worst { value: f64::INFINITY, where_: "no contender to compare with".into() }
    }
}

impl Worst {
    fn look(&mut self, value: f64, place: impl Fn() -> String) {
        if value < self.value {
            *self = Worst { value, where_: place() };
        }
    }
}

/// Returns their time relative to ours, with this percentage of reads. The others are durable
/// writes.
fn mix(
    effort: &Effort,
    ours: &dyn Subject,
    theirs: &dyn Subject,
    len: usize,
    order: Order,
    reads: u64,
) -> f64 {
    let pattern = Pattern::new(len);
    let run = |subject: &dyn Subject, to: &mut [u8], round: usize, count: usize| {
        let data = pattern.piece(round, len);
        let places = Offsets::new(order, FILE_BESIDE, len, len as u64, 0, round as u64 % 997);
        for (n, at) in places.take(count).enumerate() {
            // Spreads the reads evenly, and equally for all contenders: 0, 37, 74, 11, ...
            if (n as u64 * 37) % 100 < reads {
                subject.read(black_box(to), at);
            } else {
                subject.write(data, at);
                subject.sync();
            }
        }
    };
    let (mut a, mut b) = (vec![0; len], vec![0; len]);
    let mut turns: [Turn<'_>; 2] = [
        Box::new(|round, count| run(theirs, &mut a, round, count)),
        Box::new(|round, count| run(ours, &mut b, round, count)),
    ];
    let [theirs_took, ours_took] = two(take_turns(effort, 4, &mut turns));
    drop(turns);
    for at in (0..FILE_BESIDE).step_by(FILE_BESIDE as usize / 64) {
        let (mut x, mut y) = (vec![0; len], vec![0; len]);
        theirs.read(&mut x, at);
        ours.read(&mut y, at);
        assert!(x == y, "after the same writes {at} reads differently");
    }
    ratio(&theirs_took, &ours_took)
}

/// Measures an opening after a crash against an opening after a clean end.
pub fn opening(quick: bool, scratch: &Scratch, found: &mut Found) -> io::Result<()> {
    let folder = scratch.folder("opening")?;
    let path = folder.join("ours");
    // In both cases another process has just ended, so the caches hold equal bytes.
    let open_after = |end: End, writes: u64| -> io::Result<f64> {
        child::end_after_writing(&path, end, writes)?;
        let begin = Instant::now();
        let file = child::open_large(&path)?;
        let took = begin.elapsed().as_secs_f64() * 1e6;
        child::check_what_the_child_wrote(&file, writes)?;
        file.close(atomic_mmap::CloseMode::Fast).map_err(io::Error::other)?;
        Ok(took)
    };
    let (mut crashed, mut clean) = (Vec::new(), Vec::new());
    for round in 0..if quick { 17 } else { 41 } {
        // The work of recovery depends on the number of writes: this covers all fill levels of a
        // lane's batch.
        let writes = 1000 + round * 3 % 8;
        crashed.push(open_after(End::Dies, writes)?);
        clean.push(open_after(End::Closes, writes)?);
    }
    let (crashed, clean) = (Series(crashed), Series(clean));
    let told = format!("{:.0} : {:.0} µs", crashed.median(), clean.median());
    found.add("open_after_crash_100GiB_vs_clean", ratio(&crashed, &clean), &told);
    Ok(())
}

/// Measures the anonymous memory that the state and the deployed stamps of the written pages take.
pub fn dram(scratch: &Scratch, found: &mut Found) -> io::Result<()> {
    let touched = 256 << 20;
    let ours = Ours::open(&scratch.folder("dram")?, FILE, Medium::Dax)?;
    // One write in each page, so that the engine allocates all its metadata of a page.
    let all =
        Offsets::new(Order::Sequential, touched, 64, 4096, 0, 0).take(touched as usize / 4096);
    // Most of it lies in mappings of its own, which no count of the allocator includes.
    let before = anonymous_memory()?;
    all.for_each(|at| ours.write(&[0x11; 64], at));
    ours.0.deploy(0..touched).map_err(io::Error::other)?;
    let taken = anonymous_memory()?.saturating_sub(before);
    found.add(
        "dram_bytes_per_touched_byte",
        taken as f64 / touched as f64,
        "every page of 256 MiB",
    );
    Ok(())
}

/// Returns the bytes of this process's anonymous memory, by the kernel's count.
fn anonymous_memory() -> io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| io::Error::other("no RssAnon in /proc/self/status"))
}
