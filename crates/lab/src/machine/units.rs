//! The equivalence classes of undetermined bytes that recovery distinguishes.
//!
//! Owns: the reading of superblocks, log records and the store of snapshots with undetermined
//! words. Recovery judges each
//! of them by its checksum, with a pure function of its bytes (`format`). All combinations of
//! values with the same result of that function lead to the same recovery, so one of each class is
//! enough. A torn record of ten words has a thousand images and one outcome. This module tries the
//! combinations with the engine's own functions: all of them up to [`ALL`], otherwise a selection.
//! The selection has no new word, all new words, all but one, only one, and some random ones.
//!
//! Recovery distinguishes all other bytes word by word.

use super::memory::{LINE, Memory};
use super::trail::Trail;
use atomic_mmap::testing::entry::{Found, Seed, Undo};
use atomic_mmap::testing::flip_record::{DecodedFlip, FlipRecord};
use atomic_mmap::testing::journal::{self, Header, JournalSeed, Record};
use atomic_mmap::testing::snapshots::segment::{self, LONGEST_RECORD, SegmentHeader};
use atomic_mmap::testing::snapshots::table::Table;
use atomic_mmap::testing::snapshots::{SEGMENT, SEGMENTS, SegmentIndex, TABLE, TABLES};
use atomic_mmap::testing::superblock::{self, Judged, SUPERBLOCK_LEN, Superblock};
use atomic_mmap::testing::{LaneIndex, layout};
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

/// Maximum number of combinations that are all tried.
const ALL: usize = 4096;
/// Number of random combinations beyond that.
const AT_RANDOM: usize = 64;
/// Maximum number of distinct outcomes of spilled data, because this module does not judge its
/// bytes.
const SPILLED: usize = 8;
/// Bytes behind an undetermined word of a table that may belong to the table: eight entries.
const TABLE_READ: u64 = 1024;
/// Number of judgements that are remembered.
const REMEMBERED: usize = 100_000;

/// Alternatives of the groups of one unit, in the order of the groups.
type Combination = Vec<usize>;

thread_local! {
    /// Runs of one crash state judge the same units again and again.
    static JUDGED: RefCell<HashMap<u64, Rc<Vec<Combination>>>> = RefCell::default();
}

/// Settles the undetermined groups of superblocks and log records in a range before it is read,
/// with one choice for each unit.
pub(super) fn tell_apart(memory: &mut Memory, start: u64, end: u64, trail: &mut Trail) {
    for at in layout::SUPERBLOCKS {
        if at < end && at + SUPERBLOCK_LEN as u64 > start {
            let judge = |bytes: &[u8]| {
                let bytes = std::array::from_fn(|n| bytes[n]);
                hash(&format!("{:?}", Superblock::decode(&bytes)))
            };
            settle(memory, (at, at + SUPERBLOCK_LEN as u64), 0, judge, trail);
        }
    }
    let lanes_end = layout::LANES + (layout::LANE_COUNT * layout::LANE) as u64;
    if start < lanes_end && end > layout::LANES {
        let Some(seed) = seed(memory, trail) else { return };
        let lane = |at: u64| at.clamp(layout::LANES, lanes_end) - layout::LANES;
        let first = lane(start) / layout::LANE as u64;
        let last = lane(end).div_ceil(layout::LANE as u64);
        for n in first..last {
            tell_lane_apart(memory, LaneIndex(n as u16), &seed, trail);
        }
    }
    if start < layout::SUPERCHUNKS && end > layout::LOG_AREA {
        let mut nth = 0;
        let each_for_itself = |_: &[u8]| {
            nth += 1;
            nth
        };
        settle(memory, (start, end), SPILLED, each_for_itself, trail);
    }
}

fn tell_lane_apart(memory: &mut Memory, lane: LaneIndex, seed: &Seed, trail: &mut Trail) {
    for place in 0..layout::RING {
        let at = layout::flip_record(lane, place);
        let judge = |bytes: &[u8]| {
            let bytes = std::array::from_fn(|n| bytes[n]);
            match FlipRecord::decode(seed.ring(lane), place, &bytes) {
                DecodedFlip::Empty => 1,
                DecodedFlip::Torn => 2,
                DecodedFlip::Invalidated(sequence, page) => hash(&(3, sequence.bits(), page.0)),
                DecodedFlip::Valid(v) => {
                    hash(&(4, v.sequence.bits(), v.page.0, v.slices, v.sides, v.sum))
                }
            }
        };
        settle(memory, (at, at + layout::FLIP_RECORD as u64), 0, judge, trail);
    }
    let at = layout::undo_entry(lane);
    let judge = |bytes: &[u8]| {
        let bytes = std::array::from_fn(|n| bytes[n]);
        match Undo::decode(seed.undo(lane), &bytes) {
            Found::Empty => 1,
            Found::Torn => 2,
            Found::Valid(undo) => hash(&format!("{undo:?}")),
        }
    };
    settle(memory, (at, at + layout::UNDO_ENTRY_LEN as u64), 0, judge, trail);
}

/// Returns the seed of the checksums of journal records, from the superblocks.
pub(super) fn journal_seed(memory: &mut Memory, trail: &mut Trail) -> Option<JournalSeed> {
    superblock_of(memory, trail).map(|s| JournalSeed::new(&s.uuid, s.session))
}

/// Settles the undetermined groups of the journal headers, with one choice for each header. It is
/// intact, the previous one, torn, or all zero.
pub(super) fn tell_headers_apart(memory: &mut Memory, trail: &mut Trail) {
    let block = journal::BLOCK as u64;
    for at in (0..journal::HEADERS as u64).map(|n| n * block) {
        let judge = |bytes: &[u8]| match Header::decode(bytes) {
            Some(header) => hash(&(1, header.uuid, header.from, header.to)),
            None => hash(&(2, bytes.iter().all(|byte| *byte == 0))),
        };
        settle(memory, (at, at + block), 0, judge, trail);
    }
}

/// Settles the undetermined groups of a journal after its headers, with one choice: the intact
/// records.
pub(super) fn tell_records_apart(memory: &mut Memory, seed: JournalSeed, trail: &mut Trail) {
    let block = journal::BLOCK as u64;
    let groups = memory.groups(journal::HEADERS as u64 * block, u64::MAX / 2);
    let (Some(first), Some(last)) = (groups.first(), groups.last()) else { return };
    let start = first.0 * LINE / block * block;
    let end = (last.0 * LINE + LINE).next_multiple_of(block);
    let judge = |bytes: &[u8]| {
        let records: Vec<_> = (0..bytes.len())
            .step_by(journal::BLOCK)
            .map(|at| Record::decode(seed, &bytes[at..]).map(|(record, _)| record.number))
            .collect();
        hash(&records)
    };
    settle(memory, (start, end), 0, judge, trail);
}

/// Returns the pair's number, from the superblocks.
pub(super) fn uuid_of(memory: &mut Memory, trail: &mut Trail) -> Option<[u8; 16]> {
    superblock_of(memory, trail).map(|superblock| superblock.uuid)
}

/// Settles the undetermined groups of a store of snapshots in a range, with one choice for each
/// table: it is intact, or which one it is instead. There is one for each segment as well: its
/// records up to the first one that is not intact.
pub(super) fn tell_store_apart(
    memory: &mut Memory,
    (start, end): (u64, u64),
    uuid: &[u8; 16],
    trail: &mut Trail,
) {
    for at in TABLES {
        let place = (at, at + TABLE as u64);
        let judge = |bytes: &[u8]| hash(&format!("{:?}", Table::decode(bytes)));
        settle_open(memory, (start, end), place, TABLE_READ, judge, trail);
    }
    let nth = |at: u64| at.saturating_sub(SEGMENTS) / SEGMENT as u64;
    for n in nth(start)..=nth(end.saturating_sub(1)) {
        let index = SegmentIndex(n as u32);
        let place = (index.start(), index.start() + SEGMENT as u64);
        let judge = |bytes: &[u8]| {
            let header = SegmentHeader::decode(uuid, index, bytes);
            let records = header.map(|header| {
                let all = segment::records(header.seed(uuid, index), bytes);
                all.map(|(at, record)| (at, record.epoch, record.page.0, record.mask.0)).collect()
            });
            hash(&(header.map(|header| (header.opening, header.turn)), records.unwrap_or(vec![])))
        };
        settle_open(memory, (start, end), place, LONGEST_RECORD as u64, judge, trail);
    }
}

/// Settles the groups of a place that is judged as a whole, if a part of the place is read. `more`
/// bytes behind the last group may belong to what the groups begin.
fn settle_open(
    memory: &mut Memory,
    (start, end): (u64, u64),
    place: (u64, u64),
    more: u64,
    judge: impl FnMut(&[u8]) -> u64,
    trail: &mut Trail,
) {
    if start >= place.1 || end <= place.0 {
        return;
    }
    let last = memory.groups(place.0, place.1).last().map(|(line, ..)| (line + 1) * LINE);
    if let Some(last) = last {
        settle(memory, (place.0, (last + more).min(place.1)), 0, judge, trail);
    }
}

/// Returns the seed of the checksums of log records, from the superblocks that were read before.
fn seed(memory: &mut Memory, trail: &mut Trail) -> Option<Seed> {
    superblock_of(memory, trail).map(|s| Seed::new(&s.uuid, s.session))
}

fn superblock_of(memory: &mut Memory, trail: &mut Trail) -> Option<Superblock> {
    let mut copy = |at| {
        let mut bytes = [0; SUPERBLOCK_LEN];
        memory.read(&mut bytes, at, trail);
        Superblock::decode(&bytes)
    };
    match superblock::judge(copy(layout::SUPERBLOCKS[0]), copy(layout::SUPERBLOCKS[1])) {
        Judged::Valid(superblock) => Some(superblock),
        _ => None,
    }
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Settles the groups in `start..end` to one combination of each class that `judge` distinguishes.
/// The trail chooses it. `most` limits the number of classes, unless it is 0.
fn settle(
    memory: &mut Memory,
    (start, end): (u64, u64),
    most: usize,
    mut judge: impl FnMut(&[u8]) -> u64,
    trail: &mut Trail,
) {
    let groups = memory.groups(start, end);
    if groups.is_empty() {
        return;
    }
    let base: Vec<u64> = (start / 8..end / 8).map(|word| memory.durable_word(word * 8)).collect();
    let mut hasher = DefaultHasher::new();
    (start, end, &base).hash(&mut hasher);
    for (line, _, group) in &groups {
        (line, group.mask, &group.values).hash(&mut hasher);
    }
    let key = hasher.finish();
    let known = JUDGED.with(|judged| judged.borrow().get(&key).cloned());
    let kinds = known.unwrap_or_else(|| {
        let counts: Vec<usize> = groups.iter().map(|(_, _, group)| group.values.len()).collect();
        let mut kinds: Vec<Combination> = Vec::new();
        let mut seen = Vec::new();
        let mut bytes = vec![0; (end - start) as usize];
        for combination in combinations(&counts, key, most) {
            for (n, word) in base.iter().enumerate() {
                bytes[n * 8..n * 8 + 8].copy_from_slice(&word.to_le_bytes());
            }
            for ((line, _, group), value) in groups.iter().zip(&combination) {
                for word in (0..8).filter(|word| group.mask >> word & 1 == 1) {
                    let at = line * LINE + word * 8;
                    if (start..end).contains(&at) {
                        let value = group.values[*value][word as usize].to_le_bytes();
                        bytes[(at - start) as usize..(at - start) as usize + 8]
                            .copy_from_slice(&value);
                    }
                }
            }
            let kind = judge(&bytes);
            if !seen.contains(&kind) {
                seen.push(kind);
                kinds.push(combination);
            }
        }
        let kinds = Rc::new(kinds);
        JUDGED.with(|judged| {
            let mut judged = judged.borrow_mut();
            if judged.len() >= REMEMBERED {
                judged.clear();
            }
            judged.insert(key, kinds.clone());
        });
        kinds
    });
    let names: Vec<(u64, usize)> = groups.iter().map(|(line, n, _)| (*line, *n)).collect();
    let combination = &kinds[trail.choose(kinds.len())];
    let chosen: Vec<_> =
        names.iter().zip(combination).map(|((line, n), value)| (*line, *n, *value)).collect();
    memory.settle_groups(&chosen);
}

/// Returns all combinations, or a selection of them.
fn combinations(counts: &[usize], seed: u64, most: usize) -> Vec<Combination> {
    let limit = if most == 0 { ALL } else { most };
    let product =
        counts.iter().try_fold(1usize, |all, n| all.checked_mul(*n).filter(|n| *n <= limit));
    if let Some(product) = product {
        let nth = |mut n: usize| {
            let digits = counts.iter().map(|count| {
                let digit = n % count;
                n /= count;
                digit
            });
            digits.collect()
        };
        return (0..product).map(nth).collect();
    }
    let old = vec![0; counts.len()];
    let new: Combination = counts.iter().map(|count| count - 1).collect();
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut selected = vec![old.clone(), new.clone()];
    let at_random = |rng: &mut fastrand::Rng| -> Combination {
        counts.iter().map(|count| rng.usize(0..*count)).collect()
    };
    if most > 0 {
        for one in [0, counts.len() - 1] {
            for (from, to) in [(&new, 0), (&old, counts[one] - 1)] {
                let mut combination = from.clone();
                combination[one] = to;
                selected.push(combination);
            }
        }
        selected.push(at_random(&mut rng));
        return selected;
    }
    for one in 0..counts.len() {
        for value in 0..counts[one] {
            for from in [&new, &old] {
                let mut combination = from.clone();
                combination[one] = value;
                selected.push(combination);
            }
        }
    }
    selected.extend((0..AT_RANDOM).map(|_| at_random(&mut rng)));
    selected
}
