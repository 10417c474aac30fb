//! The places and the bytes that operation `n` of a writer writes.
//!
//! The writer's number and `n` determine everything. So the number of a writer's operations
//! determines every byte of its places. Operations of one kind use their places in turns. So the
//! check can find older operations as well as the last one.

/// Number of writers.
pub const THREADS: usize = 4;
/// Number of kinds of writes. Each kind takes another path through the engine.
pub const KINDS: u64 = 10;
/// Number of places of each kind.
pub const TURNS: u64 = 4;
/// The kind that also adds 1 to the counter.
pub const COUNTING: u64 = 8;

/// Offset of the word with the number of the last change of the length.
pub const RESIZED_AT: u64 = 64;
/// Offset of the counter, which lies on two pages.
pub const COUNTER_AT: u64 = 4092;
const SHARED_AT: u64 = 4096 + 100;
/// Bytes of one turn of a writer: a chunk, so that a new turn needs new storage.
const STRIDE: u64 = 2 << 20;
/// Length of the file before it grows, a multiple of no unit.
pub const BASE_LEN: u64 = STRIDE * (1 + TURNS * THREADS as u64) + 5000;

/// A part of the file that an operation writes from end to end.
#[derive(Clone, Debug)]
pub struct Place {
    pub at: u64,
    pub len: usize,
}

/// Returns the places that operation `n` writes together.
pub fn places(thread: usize, n: u64) -> Vec<Place> {
    let turn = n / KINDS % TURNS;
    let base = STRIDE * (1 + thread as u64 * TURNS + turn);
    let at = |offset: u64, len: usize| Place { at: base + offset, len };
    match n % KINDS {
        // A small write, in a page with others.
        0 => vec![at(100, 200)],
        // A whole page.
        1 => vec![at(8192, 4096)],
        // An unaligned write over several pages.
        2 => vec![at(20_001, 10_000)],
        // An aligned write in one region.
        3 => vec![at(65_536, 65_536)],
        // A transaction, with a part in the first page.
        4 => vec![at(400_000, 64), at(600_000, 64), at(300, 200)],
        // A write in the first page that is too long for a flip record.
        5 => vec![at(520, 700)],
        // A write over several regions.
        6 => vec![at(700_001, 300_000)],
        // A small write, in a slice that kind 0 also writes.
        7 => vec![at(76, 24)],
        // Small writes, in a page and in slices that other writers use.
        COUNTING => {
            let nth = thread as u64 * TURNS + turn;
            vec![Place { at: SHARED_AT + nth * 40, len: 40 }]
        }
        // A transaction with more words than a lane has room for.
        _ => (0..110).map(|n| at((1 << 20) + n * 8192, 64)).collect(),
    }
}

/// Returns the last operation of a kind and turn if the writer has done `last` operations, or 0 for
/// none.
pub fn newest(kind: u64, turn: u64, last: u64) -> u64 {
    let cycle = KINDS * TURNS;
    let first = turn * KINDS + kind;
    if last < first { 0 } else { first + (last - first) / cycle * cycle }
}

/// Returns the number of the first `last` operations that added to the counter.
pub fn counted(last: u64) -> u64 {
    if last < COUNTING { 0 } else { (last - COUNTING) / KINDS + 1 }
}

const SLICE: usize = 64;

/// Returns the bytes that operation `n` writes to the place of this number. Each slice names its
/// writer, operation, place and slice. Operation 0 stands for no operation, and its bytes are zero.
pub fn stamp(thread: usize, n: u64, place: usize, len: usize) -> Vec<u8> {
    if n == 0 {
        return vec![0; len];
    }
    let mut bytes = Vec::with_capacity(len + SLICE);
    let of_all = mixed(n ^ (thread as u64) << 56 ^ (place as u64) << 40);
    for slice in 0..len.div_ceil(SLICE) as u64 {
        let name = (thread as u64) << 56 | (place as u64) << 40 | slice;
        bytes.extend_from_slice(&n.to_le_bytes());
        bytes.extend_from_slice(&name.to_le_bytes());
        for word in 2..SLICE as u64 / 8 {
            // Different bytes in every word, at little cost: the emulated processor is slow.
            let word = of_all.wrapping_add((slice * 8 + word).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            bytes.extend_from_slice(&word.to_le_bytes());
        }
    }
    bytes.truncate(len);
    bytes
}

/// Returns the operation that the bytes of a place name.
pub fn named(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}

/// Returns the length of the main file after its `n`th change.
pub fn len_after(n: u64) -> u64 {
    if n.is_multiple_of(2) { BASE_LEN } else { BASE_LEN + 9 + mixed(n) % (3 << 20) }
}

/// Returns the length of the `n`th file that is created, written and closed.
pub fn fresh_len(n: u64) -> u64 {
    5000 + mixed(n ^ 0xf1) % 300_000
}

/// Returns a hash of `n`: the last step of splitmix64.
fn mixed(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_apart_and_in_the_file() {
        let mut all: Vec<Place> = (0..THREADS)
            .flat_map(|thread| (0..KINDS * TURNS).flat_map(move |n| places(thread, n)))
            .chain([Place { at: RESIZED_AT, len: 8 }, Place { at: COUNTER_AT, len: 8 }])
            .collect();
        all.sort_by_key(|place| place.at);
        for two in all.windows(2) {
            assert!(two[0].at + two[0].len as u64 <= two[1].at, "{two:?}");
        }
        let last = all.last().expect("places");
        assert!(last.at + last.len as u64 <= BASE_LEN);
    }

    #[test]
    fn what_is_newest_and_counted_is_so_by_counting() {
        for last in 0..200 {
            let counts = (1..=last).filter(|n| n % KINDS == COUNTING).count() as u64;
            assert_eq!(counted(last), counts, "{last}");
            for kind in 0..KINDS {
                for turn in 0..TURNS {
                    let is_of = |n: &u64| n % KINDS == kind && n / KINDS % TURNS == turn;
                    let found = (1..=last).rev().find(is_of).unwrap_or(0);
                    assert_eq!(newest(kind, turn, last), found, "{kind} {turn} {last}");
                }
            }
        }
    }
}
