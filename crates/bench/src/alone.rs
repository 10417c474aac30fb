//! Runs one operation repeatedly, for a profiler.
//!
//! May import `memory`, `offsets`, `ours`, `ratios::limit`, `scratch`.

use crate::offsets::{Offsets, Order};
use crate::ours::Ours;
use crate::ratios::{limit::Limit, run};
use crate::scratch::Scratch;
use crate::subject::Subject;
use atomic_mmap::Medium;
use std::hint::black_box;
use std::io;
use std::time::{Duration, Instant};

/// The operation to repeat, and its parameters.
#[derive(Clone, Debug)]
pub struct Alone {
    /// `write`, `read`, `transact` (eight parts), `limit` (copy and one drain), or `limits` (two
    /// drains).
    pub what: String,
    /// Bytes of the operation.
    pub len: usize,
    /// Offset past a multiple of the length.
    pub plus: u64,
    /// Bytes of the file.
    pub file: u64,
    /// `true` to promise only that writes survive a process crash.
    pub ram: bool,
    /// Time to run.
    pub time: Duration,
}

/// Runs the operation, and prints its nanoseconds every half second. The lowest value had the
/// fewest other programs at work.
///
/// # Errors
/// Returns an error of the system, or an error for an unknown operation.
pub fn run(alone: &Alone) -> io::Result<()> {
    let scratch = Scratch::new(None)?;
    let medium = if alone.ram { Medium::Ram } else { Medium::Dax };
    let ours = Ours::open(scratch.path(), alone.file, medium)?;
    let limit = Limit::open(scratch.path(), alone.file)?;
    if alone.what.starts_with("limit") || alone.what == "copy" {
        let whole = vec![0; 1 << 20];
        (0..alone.file).step_by(whole.len()).for_each(|at| limit.copy_two_drains(&whole, at));
    } else {
        run::touch_all(&ours, alone.file);
        if alone.what == "read" {
            ours.0.deploy(0..alone.file).map_err(io::Error::other)?;
        }
    }
    let data = vec![0x5A; alone.len];
    let mut to = vec![0; alone.len];
    let step = alone.len.max(64) as u64;
    let mut all = Offsets::new(Order::Random, alone.file, alone.len, step, alone.plus, 1);
    let mut at = || all.next().unwrap_or_default();
    let end = Instant::now() + alone.time;
    let before = ours.0.stats();
    let mut each = Vec::new();
    while Instant::now() < end {
        let begin = Instant::now();
        let mut count = 0u64;
        while begin.elapsed() < Duration::from_millis(100) {
            for _ in 0..200 {
                match alone.what.as_str() {
                    "write" => ours.write(&data, at()),
                    "read" => ours.read(black_box(&mut to), at()),
                    "transact" => {
                        let mut parts: [(u64, &[u8]); 8] =
                            std::array::from_fn(|_| (at(), &data[..]));
                        parts.sort_unstable_by_key(|part| part.0);
                        ours.transact(&parts);
                    }
                    "limit" => limit.copy_one_drain(&data, at()),
                    "limits" => limit.copy_two_drains(&data, at()),
                    "copy" => limit.copy(&data, at()),
                    other => return Err(io::Error::other(format!("{other} is not known"))),
                }
            }
            count += 200;
        }
        each.push(begin.elapsed().as_nanos() as f64 / count as f64);
    }
    each.sort_by(f64::total_cmp);
    println!(
        "{} {} B: {:.0} ns at best, {:.0} in the middle",
        alone.what,
        alone.len,
        each[0],
        each[each.len() / 2]
    );
    println!("{:?} -> {:?}", before, ours.0.stats());
    Ok(())
}
