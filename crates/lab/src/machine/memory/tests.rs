//! Tests of the memory, which also show what a power loss may leave.

use super::*;
use std::collections::BTreeSet;

const ME: Thread = Thread(1);

/// Returns all pairs of values that two words can have after a crash.
fn outcomes(memory: &Memory, model: Model, words: [u64; 2]) -> BTreeSet<[u64; 2]> {
    let mut crashed = memory.clone();
    crashed.crash(model);
    let mut found = BTreeSet::new();
    let mut next = Some(Trail::default());
    while let Some(mut trail) = next {
        let mut memory = crashed.clone();
        found.insert(words.map(|at| memory.load(at, &mut trail)));
        next = trail.next();
    }
    found
}

fn store(memory: &mut Memory, at: u64, value: u64, seq: u64, through: bool) -> Vec<Pending> {
    store_by(memory, ME, at, value, seq, through)
}

fn store_by(
    memory: &mut Memory,
    thread: Thread,
    at: u64,
    value: u64,
    seq: u64,
    through: bool,
) -> Vec<Pending> {
    let mut pending = Vec::new();
    let (bytes, trail) = (value.to_le_bytes(), &mut Trail::default());
    memory.store(at, &bytes, seq, thread, through, &mut pending, trail);
    pending
}

fn set(pairs: &[[u64; 2]]) -> BTreeSet<[u64; 2]> {
    pairs.iter().copied().collect()
}

#[test]
fn stores_to_one_line_are_prefixes_under_px86_and_independent_under_chunk() {
    let mut memory = Memory::new(FileNumber(1));
    store(&mut memory, 0, 1, 1, false);
    store(&mut memory, 8, 2, 2, false);
    assert_eq!(outcomes(&memory, Model::Px86, [0, 8]), set(&[[0, 0], [1, 0], [1, 2]]));
    assert_eq!(outcomes(&memory, Model::Chunk, [0, 8]), set(&[[0, 0], [1, 0], [0, 2], [1, 2]]));
}

#[test]
fn lines_and_streamed_words_are_not_ordered() {
    let mut memory = Memory::new(FileNumber(1));
    store(&mut memory, 0, 1, 1, false);
    store(&mut memory, 64, 2, 2, false);
    let all = set(&[[0, 0], [1, 0], [0, 2], [1, 2]]);
    assert_eq!(outcomes(&memory, Model::Px86, [0, 64]), all);
    let mut memory = Memory::new(FileNumber(1));
    store(&mut memory, 0, 1, 1, true);
    store(&mut memory, 8, 2, 2, true);
    assert_eq!(outcomes(&memory, Model::Px86, [0, 8]), all);
}

#[test]
fn a_flush_without_a_drain_settles_nothing_and_with_one_what_came_before_it() {
    let mut memory = Memory::new(FileNumber(1));
    store(&mut memory, 0, 1, 1, false);
    let mut pending = Vec::new();
    memory.flush(0, 8, 1, &mut pending);
    store(&mut memory, 0, 5, 2, false);
    assert_eq!(outcomes(&memory, Model::Chunk, [0, 8]), set(&[[0, 0], [1, 0], [5, 0]]));
    pending.into_iter().for_each(|one| memory.settle(one, ME));
    assert_eq!(outcomes(&memory, Model::Px86, [0, 8]), set(&[[1, 0], [5, 0]]));
}

/// A writer that opened its lock without a drain put an old sum over the one that the next writer
/// had made durable.
#[test]
fn a_streamed_word_may_arrive_over_a_newer_one_until_its_thread_drains() {
    let other = Thread(2);
    for is_streamed in [false, true] {
        let mut memory = Memory::new(FileNumber(1));
        let late = store(&mut memory, 0, 1, 1, true);
        let mut newer = store_by(&mut memory, other, 0, 2, 2, is_streamed);
        memory.flush(0, 8, 2, &mut newer);
        newer.into_iter().for_each(|one| memory.settle(one, other));
        assert_eq!(memory.load(0, &mut Trail::default()), 2);
        for model in [Model::Chunk, Model::Px86] {
            assert_eq!(outcomes(&memory, model, [0, 8]), set(&[[1, 0], [2, 0]]));
        }
        late.into_iter().for_each(|one| memory.settle(one, ME));
        assert_eq!(outcomes(&memory, Model::Px86, [0, 8]), set(&[[2, 0]]));
        assert!(!memory.is_open(0, 8));
    }
}

#[test]
fn a_word_keeps_its_alternatives_over_two_crashes() {
    let mut memory = Memory::new(FileNumber(1));
    store(&mut memory, 0, 1, 1, false);
    memory.crash(Model::Px86);
    store(&mut memory, 0, 2, 2, false);
    assert_eq!(outcomes(&memory, Model::Px86, [0, 8]), set(&[[0, 0], [1, 0], [2, 0]]));
}

#[test]
fn what_is_read_is_what_was_stored() {
    let mut memory = Memory::new(FileNumber(1));
    let (mut pending, mut trail) = (Vec::new(), Trail::default());
    let data: Vec<u8> = (0..200).collect();
    memory.store(4001, &data, 1, ME, true, &mut pending, &mut trail);
    let mut back = vec![9; 300];
    memory.read(&mut back, 3951, &mut trail);
    assert_eq!(
        (&back[..50], &back[50..250], &back[250..]),
        (&[0; 50][..], &data[..], &[0; 50][..])
    );
    pending.drain(..).for_each(|one| memory.settle(one, ME));
    assert!(!memory.is_open(0, 8192));
    memory.read(&mut back, 3951, &mut trail);
    assert_eq!(back[50..250], data);
    let before = memory.zero(4010, 4100);
    memory.read(&mut back, 3951, &mut trail);
    assert_eq!((back[58], back[59], back[148], back[149]), (8, 0, 0, 99));
    memory.put_back(4010, 4100, &before);
    memory.read(&mut back, 3951, &mut trail);
    assert_eq!(back[50..250], data);
}
