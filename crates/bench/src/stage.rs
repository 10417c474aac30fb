//! Bytes that arrive by `read(2)`: put in place by a stage, against read into a buffer and written.
//! The table, and `target/bench/stage.json`.
//!
//! The input is a file in the page cache, or a socket. Both contenders read equal bytes, and put
//! them at equal offsets. A row is of [`Medium::Dax`] unless its name begins with another medium.
//!
//! May import `measure`, `offsets`, `scratch`, `subject`, `ours`, `ratios`.

use crate::measure::{Effort, Series, Turn, ratio, take_turns};
use crate::offsets::{Offsets, Order};
use crate::ours::Ours;
use crate::ratios::run::{FILE_BESIDE, touch_all};
use crate::ratios::{Found, Options};
use crate::scratch::Scratch;
use atomic_mmap::Medium;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

/// Sizes of the pieces that arrive.
const SIZES: [(&str, usize); 4] =
    [("64KiB", 64 << 10), ("4KiB", 4 << 10), ("1MiB", 1 << 20), ("64MiB", 64 << 20)];
/// Bytes of the input file, which is read again and again.
const INPUT: usize = 64 << 20;
/// Bytes that a socket surely holds.
const IN_SOCKET: usize = 64 << 10;

/// Measures everything, and prints the table.
///
/// # Errors
/// Returns an error of the system or the crate.
pub fn measure(options: &Options) -> io::Result<Found> {
    let effort = Effort::new(options.quick);
    let mut found = Found::default();
    for medium in [Medium::Ram, Medium::Dax] {
        let scratch = Scratch::new(options.base.as_deref())?;
        let folders = [scratch.folder("staged")?, scratch.folder("written")?];
        let staged = Ours::open(&folders[0], FILE_BESIDE, medium)?;
        let written = Ours::open(&folders[1], FILE_BESIDE, medium)?;
        touch_all(&staged, FILE_BESIDE);
        touch_all(&written, FILE_BESIDE);
        let bytes: Vec<u8> = (0..INPUT).map(|n| (n / 7 + n) as u8).collect();
        let path = scratch.folder("input")?.join("input");
        std::fs::write(&path, &bytes)?;
        let input = || File::open(&path);
        for (name, len) in SIZES {
            let (mut one, mut other, mut buffer) = (input()?, input()?, vec![0; len]);
            // Short pieces come from a part of the input that stays in the cache.
            let most = len.max(4 << 20);
            let rewind = |file: &mut File, n: usize| {
                if n.is_multiple_of(most / len) {
                    file.rewind().expect("a file");
                }
            };
            let again = rewind;
            let mut turns: [Turn<'_>; 2] = [
                Box::new(|round, count| {
                    for (n, at) in places(len, round).take(count).enumerate() {
                        rewind(&mut one, n);
                        stage(&staged, &mut one, at, len);
                    }
                }),
                Box::new(|round, count| {
                    for (n, at) in places(len, round).take(count).enumerate() {
                        again(&mut other, n);
                        other.read_exact(&mut buffer).expect("an input");
                        written.0.write_at(&buffer, at).expect("in range, and space");
                    }
                }),
            ];
            let least = if len > 1 << 20 { 1 } else { 8 };
            let name = row(medium, &format!("stage_{name}_vs_write"));
            add(&name, &effort, least, &mut turns, &mut found);
            drop(turns);
            check(&staged, &written)?;
        }
        from_socket(medium, &effort, [&staged, &written], &bytes, &mut found)?;
        commits(medium, &effort, [&staged, &written], &bytes, &mut found);
        check(&staged, &written)?;
    }
    Ok(found)
}

/// Measures 64 KiB that arrive by a socket of this machine. The time of the sender counts as well,
/// since it works in the same thread.
fn from_socket(
    medium: Medium,
    effort: &Effort,
    [staged, written]: [&Ours; 2],
    bytes: &[u8],
    found: &mut Found,
) -> io::Result<()> {
    let (mut sender, mut receiver) = UnixStream::pair()?;
    let (mut other, mut received) = (sender.try_clone()?, receiver.try_clone()?);
    let mut turns: [Turn<'_>; 2] = [
        Box::new(|round, count| {
            for at in places(IN_SOCKET, round).take(count) {
                sender.write_all(&bytes[..IN_SOCKET]).expect("room in a socket");
                stage(staged, &mut receiver, at, IN_SOCKET);
            }
        }),
        Box::new(|round, count| {
            let mut buffer = vec![0; IN_SOCKET];
            for at in places(IN_SOCKET, round).take(count) {
                other.write_all(&bytes[..IN_SOCKET]).expect("room in a socket");
                received.read_exact(&mut buffer).expect("an input");
                written.0.write_at(&buffer, at).expect("in range, and space");
            }
        }),
    ];
    add(&row(medium, "stage_64KiB_of_socket_vs_write"), effort, 8, &mut turns, found);
    Ok(())
}

/// Measures the time from the last byte to the end of the operation, of 1 MiB that has arrived: the
/// commit of a stage, against the write of a buffer.
fn commits(
    medium: Medium,
    effort: &Effort,
    [staged, written]: [&Ours; 2],
    bytes: &[u8],
    found: &mut Found,
) {
    const LEN: usize = 1 << 20;
    let mut series = [Series::default(), Series::default()];
    for round in 0..effort.warm_up + effort.rounds {
        let at = places(LEN, round).next().unwrap_or_default();
        let mut stage = staged.0.stage(at..at + LEN as u64).expect("in range, and space");
        stage.write_at(&bytes[..LEN], 0).expect("in range");
        let mut stages = [stage];
        let mut time = |n: usize, act: &mut dyn FnMut()| {
            let began = Instant::now();
            act();
            if round >= effort.warm_up {
                series[n].0.push(began.elapsed().as_nanos() as f64);
            }
        };
        time(0, &mut || staged.0.commit_stages(&mut stages).expect("a commit"));
        time(1, &mut || written.0.write_at(&bytes[..LEN], at).expect("in range, and space"));
    }
    let told = format!("{:.0} : {:.0} ns", series[0].median(), series[1].median());
    let name = row(medium, "stage_commit_1MiB_vs_write");
    found.add(&name, ratio(&series[0], &series[1]), &told);
}

fn stage(ours: &Ours, input: &mut impl Read, at: u64, len: usize) {
    let len = len as u64;
    let mut stage = ours.0.stage(at..at + len).expect("in range, and space");
    assert_eq!(stage.fill_from(input, 0..len).expect("an input"), len);
    stage.commit().expect("a commit");
}

/// Both files have got equal bytes.
fn check(staged: &Ours, written: &Ours) -> io::Result<()> {
    let (mut one, mut other) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    for at in (0..FILE_BESIDE).step_by(1 << 20) {
        staged.0.read_at(&mut one, at)?;
        written.0.read_at(&mut other, at)?;
        if one != other {
            return Err(io::Error::other(format!("the files differ from byte {at} on")));
        }
    }
    Ok(())
}

fn places(len: usize, round: usize) -> Offsets {
    Offsets::new(Order::Random, FILE_BESIDE, len, len as u64, 0, round as u64 % 997)
}

/// Returns the name of a row on this medium.
fn row(medium: Medium, name: &str) -> String {
    if medium == Medium::Dax { name.to_owned() } else { format!("{medium}_{name}") }
}

fn add(name: &str, effort: &Effort, least: usize, turns: &mut [Turn<'_>; 2], found: &mut Found) {
    let series = take_turns(effort, least, turns);
    let told = format!("{:.0} : {:.0} ns", series[0].median(), series[1].median());
    found.add(name, ratio(&series[0], &series[1]), &told);
}
