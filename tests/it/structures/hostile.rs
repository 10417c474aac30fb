//! Tests that damaged bytes are typed errors: no panic, no endless loop, no endless memory.
//!
//! Half of the cases repair the checksums after the damage. So also those checks are tried that
//! look behind a checksum.

use super::open;
use crate::common::{self, Rng, read_all};
use atomic_mmap::{AtomicMappedFile, Error, Roots};

const ROUNDS: u64 = 1500;

/// Calls everything. Every error is about the structure, or about the file's length.
fn call_everything(file: &AtomicMappedFile, rng: &mut Rng) -> Result<(), Error> {
    let roots = Roots::open(file.try_clone()?)?;
    let checked = roots.check();
    let names = roots.names()?;
    for name in &names {
        if let Ok(log) = roots.log(name) {
            let range = log.range()?;
            let count = range.end.saturating_sub(range.start);
            let mut results = vec![log.get(range.start + rng.below(count)).map(drop)];
            results.extend(log.iter_from(range.start).take(100).map(|item| item.map(drop)));
            results.push(log.append(&[vec![1; rng.below(9000) as usize]]).map(drop));
            results.push(log.truncate_back(range.start + rng.below(count)));
            results.push(log.truncate_front(range.start + rng.below(count)));
            results.into_iter().filter_map(Result::err).for_each(|error| typed(&error));
        }
        typed_or(roots.get::<u64>(name).map(drop));
        typed_or(roots.get_array::<u64>(name).map(drop));
    }
    typed_or(roots.get_or_insert_array::<u64>("new", rng.below(3000)).map(drop));
    typed_or(roots.remove(&format!("log {}", rng.below(2))).map(drop));
    typed_or(roots.log("another").and_then(|log| log.append(&[[0; 5000]]).map(drop)));
    checked
}

fn typed_or(result: Result<(), Error>) {
    if let Err(error) = result {
        typed(&error);
    }
}

fn typed(error: &Error) {
    let is_expected = matches!(
        error,
        Error::Structure { .. }
            | Error::PastEnd { .. }
            | Error::TooLong { .. }
            | Error::Overflow { .. }
    );
    assert!(is_expected, "{error}");
}

/// Returns the bytes of a file with names, arrays and logs.
fn sample() -> Vec<u8> {
    let ground = common::ram();
    let scratch = ground.scratch();
    let roots = open(&ground, &scratch.file("state.dat"));
    for n in 0..3_u64 {
        roots.get_or_insert::<u64>(&format!("value {n}")).expect("make").store(&n).expect("store");
        roots.get_or_insert_array::<u64>(&format!("array {n}"), 100 * n).expect("make");
    }
    for n in 0..2 {
        let log = roots.log(&format!("log {n}")).expect("make");
        for n in 0..30 {
            log.append(&[vec![n as u8; n * 150]]).expect("append");
        }
        log.truncate_front(7).expect("truncate");
        log.append(&[vec![1; 30_000]]).expect("append");
    }
    roots.check().expect("check");
    read_all(roots.file())
}

/// Gives all parts with a checksum the right one, as `docs/structures.md` has them.
fn seal(bytes: &mut [u8]) {
    let seal = |part: &mut [u8], at: usize| {
        part[at..at + 4].fill(0);
        let sum = crc32c::crc32c(part);
        part[at..at + 4].copy_from_slice(&sum.to_le_bytes());
    };
    seal(&mut bytes[..64], 12);
    for place in 0..31 {
        let entry = &mut bytes[128 + place * 128..][..128];
        if entry.iter().any(|byte| *byte != 0) {
            seal(entry, 40);
        }
    }
    for page in bytes.chunks_exact_mut(4096) {
        if page.starts_with(b"AtomLogs") {
            seal(&mut page[..96], 12);
        }
        if page.starts_with(b"AtomSegs") {
            let count = usize::from(page[8]).min(170);
            seal(&mut page[..16 + count * 24], 12);
        }
    }
}

/// Damages some bytes, most of them in the parts that describe others.
fn damaged(sample: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = sample.to_vec();
    let heads: Vec<usize> = (0..bytes.len())
        .step_by(4096)
        .filter(|at| bytes[*at..].starts_with(b"AtomLogs") || bytes[*at..].starts_with(b"AtomSegs"))
        .collect();
    for _ in 0..1 + rng.below(3) {
        let at = match rng.below(5) {
            0 => rng.below(64) as usize,
            1 => 128 + rng.below(12 * 128) as usize,
            2 | 3 => heads[rng.below(heads.len() as u64) as usize] + 8 + rng.below(88) as usize,
            _ => rng.below(bytes.len() as u64) as usize,
        };
        bytes[at] = match rng.below(4) {
            0 => 0,
            1 => 0xFF,
            2 => bytes[at].wrapping_add(1),
            _ => rng.number() as u8,
        };
    }
    if rng.below(2) == 0 {
        seal(&mut bytes);
    }
    if rng.below(8) == 0 {
        bytes.truncate(rng.below(bytes.len() as u64) as usize);
    }
    bytes
}

#[test]
fn damage_is_a_typed_error() {
    let (ground, sample) = (common::ram(), sample());
    let scratch = ground.scratch();
    let options = || ground.options().create(true).max_len(64 << 20);
    let file = options().open(scratch.file("state.dat")).expect("open");
    let mut rng = Rng(1);
    let mut errors = 0;
    for round in 0..ROUNDS {
        let bytes = damaged(&sample, &mut rng);
        file.set_len(0).and_then(|()| file.set_len(bytes.len() as u64)).expect("the length");
        file.write_at(&bytes, 0).expect("the bytes");
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            call_everything(&file, &mut rng)
        }));
        match result {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                typed(&error);
                errors += 1;
            }
            Err(_) => panic!("round {round}"),
        }
    }
    assert!(errors > ROUNDS / 2, "only {errors} of {ROUNDS} found: the damage hits nothing");
}
