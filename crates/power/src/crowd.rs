//! The operations of several threads on one file, and the states that a power loss may leave.
//!
//! Each thread has its own range. Its operation number `n` is a transaction. It fills the range
//! with bytes that follow from `n`, and adds one to a total that all threads share. So any state
//! names an operation of each thread, and the total shows whether these belong to one state.

use atomic_mmap::Durability;

pub const THREADS: usize = 3;
/// Length of a thread's range in bytes.
pub const RANGE: usize = 9_000;
pub const LEN: u64 = 40_000;

/// A file that several threads write.
#[derive(Clone, Copy)]
pub struct Crowd {
    pub name: &'static str,
    pub durability: Durability,
}

pub const CROWDS: &[Crowd] = &[
    Crowd { name: "crowd-by-sync", durability: Durability::OnSync },
    Crowd { name: "crowd-every-write", durability: Durability::EveryWrite },
];

/// Returns the offset of a thread's range.
pub fn range_at(thread: usize) -> u64 {
    (200 + thread * (RANGE + 777)) as u64
}

/// Returns the bytes that operation `n` of a thread leaves in its range. Operation 0 stands for a
/// new file.
pub fn stamp(thread: usize, n: u64) -> Vec<u8> {
    let mut bytes = vec![0; RANGE];
    if n > 0 {
        fastrand::Rng::with_seed(n * 31 + thread as u64).fill(&mut bytes);
        bytes[..8].copy_from_slice(&n.to_le_bytes());
    }
    bytes
}

/// Returns the operations that the file's bytes name, or an error if they are not of one state.
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
