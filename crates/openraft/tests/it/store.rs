//! Tests of the store by itself: what a reopen finds, several groups in a file, and errors.

use super::calls::{self, entry};
use super::calls::{committed, ends, purge, save_committed, save_vote, try_entries};
use super::openraft::storage::{RaftLogReader, RaftLogStorage};
use super::{Store, Types, Vote, common, log_id, open_as, open_file, truncate, vote};
use atomic_mmap::{AtomicMappedFile, CloseMode, Name, Roots};
use openraft_atomic_mmap::Progress;
use pollster::block_on;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Returns the indices and commands of all entries.
fn entries(store: &mut Store) -> Vec<(u64, String)> {
    let entries = calls::entries(store, ..);
    entries.into_iter().map(|e| (e.log_id.index, format!("{:?}", e.payload))).collect()
}

fn append(store: &mut Store, term: u64, indices: std::ops::Range<u64>) -> Result<(), String> {
    calls::append(store, indices.map(|n| entry(term, n, format!("command {n}"))))
}

#[test]
fn a_store_that_is_opened_again_has_everything() {
    for ground in common::media() {
        for mode in [CloseMode::Spatial, CloseMode::Fast, CloseMode::Unsynced] {
            let scratch = ground.scratch();
            let path = scratch.file("raft.dat");
            let mut store: Store = open_as(&ground, &path);
            save_vote(&mut store, Vote::new_committed(3, 1));
            append(&mut store, 2, 0..300).expect("append");
            truncate(&mut store, log_id(2, 200));
            append(&mut store, 3, 200..250).expect("append");
            purge(&mut store, log_id(2, 99));
            save_committed(&mut store, Some(log_id(3, 240)));
            let before = entries(&mut store);
            let file = store.file().try_clone().expect("a handle");
            drop(store);
            file.close(mode).expect("close");

            let mut store: Store = open_as(&ground, &path);
            let found = entries(&mut store);
            assert_eq!(found, before);
            assert_eq!((found.len(), found[0].0, found[149].0), (150, 100, 249));
            assert_eq!(vote(&mut store).expect("vote"), Some(Vote::new_committed(3, 1)));
            assert_eq!(committed(&mut store), Some(log_id(3, 240)));
            assert_eq!(ends(&mut store), (Some(log_id(2, 99)), Some(log_id(3, 249))));
            save_committed(&mut store, None);
            assert_eq!(committed(&mut store), None);
        }
    }
}

/// Everything that a call has returned is part of the last durable point.
#[test]
fn every_call_returns_after_its_durable_point() {
    let Some(ground) = common::page_cache() else { return };
    let scratch = ground.scratch();
    let mut store: Store = open_as(&ground, &scratch.file("raft.dat"));
    let file = store.file().try_clone().expect("a handle");
    let mut last = file.durable_number();
    let mut made = |call: &str| {
        let number = file.durable_number();
        assert!(number > last && file.next_durable_number() > number, "{call}: {number}");
        last = number;
    };
    save_vote(&mut store, Vote::new(1, 1));
    made("save_vote");
    append(&mut store, 1, 0..10).expect("append");
    made("append");
    truncate(&mut store, log_id(1, 8));
    made("truncate");
    save_committed(&mut store, Some(log_id(1, 5)));
    made("save_committed");
    purge(&mut store, log_id(1, 5));
    made("purge");
}

#[test]
fn groups_of_one_file_do_not_meet() {
    let ground = common::ram();
    let scratch = ground.scratch();
    let path = scratch.file("raft.dat");
    let roots = Roots::open(open_file(&ground, &path)).expect("roots");
    let applied = roots.get_or_insert::<u64>("applied").expect("a value");
    let group = |n: u64| Store::in_roots(&roots, &format!("group {n}")).expect("open");
    std::thread::scope(|scope| {
        for n in 0..6_u64 {
            let mut store = group(n);
            scope.spawn(move || {
                for round in 0..30 {
                    append(&mut store, n, round * n..(round + 1) * n).expect("append");
                    save_vote(&mut store, Vote::new(round, n));
                }
            });
        }
    });
    applied.store(&7).expect("store");
    for n in 0..6 {
        let found = entries(&mut group(n));
        assert!(found.iter().map(|entry| entry.0).eq(0..30 * n), "group {n}: {found:?}");
        assert_eq!(vote(&mut group(n)).expect("vote"), Some(Vote::new(29, n)));
    }
    roots.check().expect("all invariants hold");
}

#[test]
fn a_reader_sees_what_the_store_has() {
    let ground = common::ram();
    let scratch = ground.scratch();
    let mut store: Store = open_as(&ground, &scratch.file("raft.dat"));
    let mut reader = block_on(store.get_log_reader());
    append(&mut store, 1, 5..15).expect("a new log begins with any index");
    let mut indices = |range: (std::ops::Bound<u64>, std::ops::Bound<u64>)| {
        let entries = block_on(reader.try_get_log_entries(range)).expect("read");
        entries.iter().map(|e| e.log_id.index).collect::<Vec<_>>()
    };
    use std::ops::Bound::{Excluded, Included, Unbounded};
    assert_eq!(indices((Included(7), Excluded(9))), [7, 8]);
    assert_eq!(indices((Excluded(7), Included(9))), [8, 9]);
    assert_eq!(indices((Unbounded, Excluded(6))), [5]);
    assert_eq!(indices((Included(13), Unbounded)), [13, 14]);
    assert_eq!(indices((Included(0), Excluded(5))), [0_u64; 0]);
    assert_eq!(indices((Included(15), Included(u64::MAX))), [0_u64; 0]);
}

#[test]
fn a_hole_is_refused_and_changes_nothing() {
    let ground = common::ram();
    let scratch = ground.scratch();
    let path = scratch.file("raft.dat");
    let mut store: Store = open_as(&ground, &path);
    append(&mut store, 1, 0..10).expect("append");
    for wrong in [vec![11], vec![9], vec![10, 12], vec![10, 10]] {
        let entries: Vec<_> = wrong.iter().map(|n| entry(1, *n, "")).collect();
        let text = calls::append(&mut store, entries).expect_err("not consecutive");
        assert!(text.contains(&path.display().to_string()), "{text}");
        assert!(text.contains("the next one is 1"), "{wrong:?}: {text}");
        assert_eq!(entries_of(&mut store), (0, 10));
    }
    // After a purge of everything the log goes on behind it, and nowhere else.
    purge(&mut store, log_id(1, 20));
    assert!(append(&mut store, 1, 22..23).is_err());
    append(&mut store, 1, 21..23).expect("append");
    purge(&mut store, log_id(1, 15));
    assert_eq!(ends(&mut store).0, Some(log_id(1, 20)));
    append(&mut store, 1, 19..24).expect_err("21 is there");
    append(&mut store, 1, 10..20).expect("all of them are purged");
    assert_eq!(entries_of(&mut store), (21, 2));
    truncate(&mut store, log_id(1, 21));
    append(&mut store, 1, 19..24).expect("the first two are purged");
    assert_eq!(entries_of(&mut store), (21, 3));
}

#[test]
fn a_snapshot_of_another_history_replaces_the_log() {
    let ground = common::ram();
    let scratch = ground.scratch();
    let mut store: Store = open_as(&ground, &scratch.file("raft.dat"));
    append(&mut store, 1, 0..20).expect("append");
    purge(&mut store, log_id(1, 5));
    assert_eq!(entries_of(&mut store), (6, 14));
    // The snapshot ends with entry 10 of term 2. The entries after 10 are of term 1.
    purge(&mut store, log_id(2, 10));
    assert_eq!(entries_of(&mut store), (0, 0));
    append(&mut store, 2, 11..13).expect("the log goes on behind the snapshot");
    assert_eq!(entries_of(&mut store), (11, 2));
}

/// Returns the first index and the number of entries.
fn entries_of(store: &mut Store) -> (u64, usize) {
    let found = entries(store);
    (found.first().map_or(0, |entry| entry.0), found.len())
}

#[test]
fn damage_and_other_types_are_errors_that_name_the_file() {
    let ground = common::ram();
    let scratch = ground.scratch();
    let path = scratch.file("raft.dat");
    let roots = Roots::open(open_file(&ground, &path)).expect("roots");
    let mut store = Store::in_roots(&roots, "a").expect("open");
    save_vote(&mut store, Vote::new(1, 1));
    append(&mut store, 1, 0..1).expect("append");

    let log = roots.log(Name::from("a.log").of_type(1)).expect("the log");
    log.append(&[b"no entry"]).expect("append");
    let error = try_entries(&mut store, 1..2).expect_err("no entry");
    let says = |error: &str, what: &str| {
        assert!(error.contains(&path.display().to_string()) && error.contains(what), "{error}");
    };
    says(&error, "group a: entry 1 cannot be decoded");

    let other = roots.get::<[[u64; 16]; 1]>(Name::from("a.vote").of_type(1));
    assert!(other.is_err(), "the alignment differs");
    let at = (0..roots.file().len() - 8).step_by(64).find(|at| {
        let mut cell = [0; 8];
        roots.file().read_at(&mut cell, *at).expect("read");
        cell[4..] == [3, 0, 0, 0] // the length of a small vote
    });
    let at = at.expect("the vote");
    roots.file().write_at(&[77], at + 8).expect("damage");
    says(
        &vote(&mut store).expect_err("damage").to_string(),
        "group a: the checksum of vote is wrong",
    );

    roots.get_or_insert::<u64>("b.vote").expect("another value");
    let error = Store::in_roots(&roots, "b").expect_err("another type").to_string();
    says(&error, "b.vote");
    assert_eq!(
        roots.names().expect("names"),
        ["a.committed", "a.log", "a.purged", "a.vote", "b.vote"]
    );
}

#[test]
fn handles_can_move_to_another_thread() {
    fn is_send<T: Send + Sync + 'static>() {}
    is_send::<Store>();
    is_send::<openraft_atomic_mmap::LogReader<Types>>();
    is_send::<openraft_atomic_mmap::Error>();
    let _: fn(AtomicMappedFile) -> openraft_atomic_mmap::Result<Store> = Store::open;
}

/// openraft 0.9 purges the log beside the installation of a snapshot. A crash in between left a
/// node that could not start: its log began behind its state.
#[test]
fn a_purge_waits_for_the_state_machine() {
    let ground = common::page_cache().unwrap_or_else(common::ram);
    let scratch = ground.scratch();
    let progress = Progress::new(None);
    let store: Store = open_as(&ground, &scratch.file("raft.dat"));
    let mut store = store.behind(progress.clone());
    append(&mut store, 1, 0..10).expect("appended");
    block_on(async {
        for (reached, purged) in [(0, 0), (4, 4), (9, 7)] {
            let mut purge = Box::pin(store.purge(log_id(1, purged)));
            assert!(now_or_never(purge.as_mut()).is_none(), "entry {purged} is not applied yet");
            progress.reach(reached);
            purge.await.expect("purged");
        }
        progress.reach(3); // a report that comes late changes nothing
        store.purge(log_id(1, 8)).await.expect("reached long ago");
        progress.fail();
        let error = store.purge(log_id(1, 9)).await.expect_err("never reached");
        assert!(error.to_string().contains("the entries up to 9 stay"), "{error}");
    });
    assert_eq!(ends(&mut store), (Some(log_id(1, 8)), Some(log_id(1, 9))));
}

/// Polls a future once.
fn now_or_never<T>(future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}
