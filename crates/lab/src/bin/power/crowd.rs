//! What do several threads do to one file, and what may be left of it?
//!
//! Each thread has a range of its own. Its operation number `n` is a transaction: it fills the range with
//! what follows from `n`, and adds one to a total that all threads share. So whatever is left names an
//! operation of each thread, and the total says whether these are of one state.

use atomic_mmap::Durability;

pub const THREADS: usize = 3;
/// Bytes of a thread's range.
pub const RANGE: usize = 9_000;
pub const LEN: u64 = 40_000;

/// A file of several threads.
#[derive(Clone, Copy)]
pub struct Crowd {
    pub name: &'static str,
    pub durability: Durability,
}

pub const CROWDS: &[Crowd] = &[
    Crowd { name: "crowd-by-sync", durability: Durability::BySync },
    Crowd { name: "crowd-every-write", durability: Durability::EveryWrite },
];

/// Where a thread's range begins.
pub fn range_at(thread: usize) -> u64 {
    (200 + thread * (RANGE + 777)) as u64
}

/// What operation `n` of a thread leaves in its range. Operation 0 is what a new file holds.
pub fn stamp(thread: usize, n: u64) -> Vec<u8> {
    let mut bytes = vec![0; RANGE];
    if n > 0 {
        fastrand::Rng::with_seed(n * 31 + thread as u64).fill(&mut bytes);
        bytes[..8].copy_from_slice(&n.to_le_bytes());
    }
    bytes
}

/// The operations that the file's bytes name. An error: they are not of one state.
pub fn found(bytes: &[u8]) -> Result<[u64; THREADS], String> {
    if bytes.len() as u64 != LEN {
        return Err(format!("{} bytes", bytes.len()));
    }
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let mut numbers = [0; THREADS];
    for (thread, number) in numbers.iter_mut().enumerate() {
        let at = range_at(thread) as usize;
        *number = word(at);
        let expected = stamp(thread, *number);
        let range = &bytes[at..at + RANGE];
        if let Some(wrong) = range.iter().zip(&expected).position(|(is, should)| is != should) {
            return Err(format!("thread {thread}: operation {number} is torn at byte {wrong}"));
        }
    }
    if numbers.iter().sum::<u64>() != word(0) {
        return Err(format!("{numbers:?}, and a total of {}", word(0)));
    }
    Ok(numbers)
}
