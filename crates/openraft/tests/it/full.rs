//! Full disks. The limit on the length of files (`ulimit -f`) stands for one, and atomic-mmap
//! treats it as one. It holds for a whole process, so a child has it.

use super::{Types, common, entry, open, open_file};
use atomic_mmap::{Name, Roots};
use openraft::Vote;
use openraft::storage::{RaftLogReader, RaftLogStorage, RaftLogStorageExt};
use openraft_atomic_mmap::LogStore;
use pollster::block_on;

const CHILD: &str = concat!(module_path!(), "::plays_the_child_with_a_limit_if_it_is_one");

fn limit_files_to(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the structure is readable, and the limit is that of this child.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
}

fn indices(store: &mut LogStore<Types>) -> Vec<u64> {
    let entries = block_on(store.try_get_log_entries(..)).expect("read");
    entries.iter().map(|entry| entry.log_id.index).collect()
}

#[test]
fn plays_the_child_with_a_limit_if_it_is_one() {
    let Some((role, path)) = common::role() else { return };
    let medium = role.parse().expect("a medium");
    let ground = common::Ground { base: path.parent().expect("a folder").to_owned(), medium };
    let mut store = open(&ground, &path);
    block_on(store.blocking_append([entry(1, 0, "first")])).expect("append");
    let len = store.file().len();
    limit_files_to(len);
    let batch = || [entry(1, 1, "small"), entry(1, 2, "x".repeat(len as usize))];
    for _ in 0..3 {
        let error = block_on(store.blocking_append(batch())).expect_err("no space").to_string();
        assert!(error.contains("ulimit -f") && error.contains("raft.dat"), "{error}");
        assert_eq!(indices(&mut store), [0], "the small one is not there either");
    }
    block_on(store.save_vote(&Vote::new(2, 1))).expect("needs no space");
    block_on(store.blocking_append([entry(1, 1, "small")])).expect("fits");
    drop(store);
    limit_files_to(libc::RLIM_INFINITY);
    let mut store = open(&ground, &path);
    assert_eq!(indices(&mut store), [0, 1]);
    assert_eq!(block_on(store.read_vote()), Ok(Some(Vote::new(2, 1))));
    block_on(store.blocking_append([entry(1, 2, "x".repeat(len as usize))])).expect("space again");
}

#[test]
fn an_append_without_space_leaves_the_log_as_it_was() {
    for ground in common::media() {
        let scratch = ground.scratch();
        common::run_child(CHILD, &ground.medium.to_string(), scratch.file("raft.dat"));
    }
}

#[test]
fn the_limit_of_a_log_is_an_error_that_says_so() {
    let ground = common::ram();
    let scratch = ground.scratch();
    let roots = Roots::open(open_file(&ground, &scratch.file("raft.dat"))).expect("roots");
    let mut store = LogStore::<Types>::in_roots(&roots, "a").expect("open");
    let log = roots.log(Name::from("a.log").of_type(1)).expect("the log");
    log.set_limit(Some(64 << 10)).expect("a limit");
    let wide = |n| entry(1, n, "x".repeat(10_000));
    block_on(store.blocking_append((0..5).map(wide))).expect("append");
    let error = block_on(store.blocking_append((5..10).map(wide))).expect_err("full").to_string();
    assert!(error.contains("bytes of a log"), "{error}");
    assert_eq!(indices(&mut store), [0, 1, 2, 3, 4]);
}
