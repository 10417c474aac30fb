//! Tests stages beside threads of all kinds.

use crate::common::{self, Ground, Rng};
use atomic_mmap::{AtomicMappedFile, DeployPolicy, Error, Integrity};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const PAGE: usize = 4096;
/// A block that each operation writes as a whole, with one number in all of its words.
const BLOCK: usize = 5 * PAGE + 640;
const BLOCKS: u64 = 6;
const LEN: u64 = BLOCK as u64 * BLOCKS;
const STAGERS: u64 = 2;
const ROUNDS: u64 = 60;

fn block(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(BLOCK / 8)
}

/// Returns the number of a block: all of it must be of one operation.
#[track_caller]
fn number_of(bytes: &[u8]) -> u64 {
    let (words, _) = bytes.as_chunks::<8>();
    let first = u64::from_le_bytes(words[0]);
    if let Some(n) = words.iter().position(|word| u64::from_le_bytes(*word) != first) {
        panic!("word {n} is {} and the first one {first}", u64::from_le_bytes(words[n]));
    }
    first
}

/// Stages blocks and commits them, sometimes two at once, sometimes none. Each number tells its
/// thread and grows.
fn stage(file: &AtomicMappedFile, me: u64) {
    let mut random = Rng(me);
    for round in 1..=ROUNDS {
        let number = round * STAGERS + me;
        let first = random.below(BLOCKS);
        let others = [first, (first + 1 + random.below(BLOCKS - 1)) % BLOCKS];
        let mut stages = Vec::new();
        for n in &others[..1 + random.below(2) as usize] {
            let start = n * BLOCK as u64;
            let mut stage = file.stage(start..start + BLOCK as u64).expect("a stage");
            let bytes = block(number);
            let cut = random.below(BLOCK as u64) as usize;
            stage.write_at(&bytes[..cut], 0).expect("fill");
            stage.fill_from(&mut &bytes[cut..], cut as u64..BLOCK as u64).expect("fill");
            stages.push(stage);
        }
        if random.below(8) == 0 {
            continue;
        }
        if random.below(2) == 0 {
            file.commit_stages(&mut stages).expect("a commit");
        } else {
            // A counter beside the stages, in the bytes behind the blocks.
            file.transact_with(&mut stages, |tx| {
                let count: u64 = tx.load(LEN)?;
                tx.store(LEN, &(count + 1))
            })
            .expect("a commit");
        }
    }
}

fn write(file: &AtomicMappedFile, done: &AtomicBool) {
    let mut random = Rng(77);
    let mut number = 1 << 32;
    while !done.load(Ordering::Relaxed) {
        number += 1;
        file.write_at(&block(number), random.below(BLOCKS) * BLOCK as u64).expect("a write");
    }
}

fn read(file: &AtomicMappedFile, done: &AtomicBool) {
    let mut random = Rng(78);
    let mut bytes = vec![0; BLOCK];
    while !done.load(Ordering::Relaxed) {
        let at = random.below(BLOCKS) * BLOCK as u64;
        file.read_at(&mut bytes, at).expect("a read");
        number_of(&bytes);
        let view = file.view(at..at + BLOCK as u64).expect("a view");
        let number = number_of(&view.to_vec().expect("the view"));
        thread::yield_now();
        assert_eq!(number_of(&view.to_vec().expect("the view")), number, "a view changes");
    }
}

fn disturb(file: &AtomicMappedFile, done: &AtomicBool) {
    let mut random = Rng(79);
    while !done.load(Ordering::Relaxed) {
        match random.below(6) {
            0 => _ = file.deploy(0..LEN).expect("a deployment"),
            1 => match file.set_len(LEN + 8 + random.below(3) * PAGE as u64) {
                Ok(()) | Err(Error::Pinned { .. }) => {}
                Err(error) => panic!("{error}"),
            },
            2 => _ = file.sync().expect("a sync"),
            3 => {
                file.snapshot("s").expect("a snapshot");
                let snapshot = file.open_snapshot("s").expect("a snapshot");
                let bytes = snapshot.read_vec().expect("a read");
                bytes[..LEN as usize].chunks(BLOCK).for_each(|block| _ = number_of(block));
                drop(snapshot);
                file.drop_snapshot("s").expect("dropped");
            }
            4 => file.transact(|tx| tx.load::<u64>(LEN).map(drop)).expect("a transaction"),
            _ => thread::yield_now(),
        }
    }
}

fn all_beside_each_other(ground: &Ground, policy: DeployPolicy, integrity: Integrity) {
    let scratch = ground.scratch();
    let options = ground.options().create(true).len(LEN + 8).deploy(policy).integrity(integrity);
    let file = &options.clone().open(scratch.file("x")).expect("open");
    let done = &AtomicBool::new(false);
    thread::scope(|scope| {
        let stagers: Vec<_> = (0..STAGERS).map(|n| scope.spawn(move || stage(file, n))).collect();
        for work in [write, read, disturb] {
            scope.spawn(move || work(file, done));
        }
        let ends: Vec<_> = stagers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::Relaxed);
        ends.into_iter().for_each(|end| end.expect("no panic"));
    });
    let bytes = common::read_all(file);
    bytes[..LEN as usize].chunks(BLOCK).for_each(|block| _ = number_of(block));
}

#[test]
fn stages_beside_threads_of_all_kinds_stay_whole() {
    for ground in common::media() {
        all_beside_each_other(&ground, DeployPolicy::Lazy, Integrity::Off);
        all_beside_each_other(&ground, DeployPolicy::Eager, Integrity::OnRead);
    }
}

/// A stage may be filled by one thread and committed by another.
#[test]
fn a_stage_moves_between_threads() {
    for ground in common::media() {
        let scratch = ground.scratch();
        let options = ground.options().create(true).len(LEN);
        let file = options.open(scratch.file("x")).expect("open");
        for number in 1..20 {
            let mut stage = file.stage(0..BLOCK as u64).expect("a stage");
            thread::scope(|scope| {
                scope.spawn(|| stage.write_at(&block(number), 0).expect("fill"));
            });
            thread::scope(|scope| {
                scope.spawn(move || stage.commit().expect("a commit"));
            });
            let mut bytes = vec![0; BLOCK];
            file.read_at(&mut bytes, 0).expect("a read");
            assert_eq!(number_of(&bytes), number);
        }
    }
}
