//! Full disks. The limit on the length of files (`ulimit -f`) stands for one, and atomic-mmap
//! treats it as one. It holds for a whole process, so a child has it.

use super::calls::{append, entries, entry, save_vote};
use super::{Store, Vote, common, open_as, open_file, vote};
use atomic_mmap::{Name, Roots};

const CHILD: &str = concat!(module_path!(), "::plays_the_child_with_a_limit_if_it_is_one");

fn limit_files_to(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the structure is readable, and the limit is that of this child.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
}

fn indices(store: &mut Store) -> Vec<u64> {
    entries(store, ..).iter().map(|entry| entry.log_id.index).collect()
}

#[test]
fn plays_the_child_with_a_limit_if_it_is_one() {
    let Some((role, path)) = common::role() else { return };
    let medium = role.parse().expect("a medium");
    let ground = common::Ground { base: path.parent().expect("a folder").to_owned(), medium };
    let mut store: Store = open_as(&ground, &path);
    append(&mut store, [entry(1, 0, "first")]).expect("append");
    let len = store.file().len();
    limit_files_to(len);
    let batch = || [entry(1, 1, "small"), entry(1, 2, "x".repeat(len as usize))];
    for _ in 0..3 {
        let error = append(&mut store, batch()).expect_err("no space");
        assert!(error.contains("ulimit -f") && error.contains("raft.dat"), "{error}");
        assert_eq!(indices(&mut store), [0], "the small one is not there either");
    }
    save_vote(&mut store, Vote::new(2, 1)); // needs no space
    append(&mut store, [entry(1, 1, "small")]).expect("fits");
    drop(store);
    limit_files_to(libc::RLIM_INFINITY);
    let mut store: Store = open_as(&ground, &path);
    assert_eq!(indices(&mut store), [0, 1]);
    assert_eq!(vote(&mut store).expect("vote"), Some(Vote::new(2, 1)));
    append(&mut store, [entry(1, 2, "x".repeat(len as usize))]).expect("space again");
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
    let mut store = Store::in_roots(&roots, "a").expect("open");
    let log = roots.log(Name::from("a.log").of_type(1)).expect("the log");
    log.set_limit(Some(64 << 10)).expect("a limit");
    let wide = |n| entry(1, n, "x".repeat(10_000));
    append(&mut store, (0..5).map(wide)).expect("append");
    let error = append(&mut store, (5..10).map(wide)).expect_err("full");
    assert!(error.contains("bytes of a log"), "{error}");
    assert_eq!(indices(&mut store), [0, 1, 2, 3, 4]);
}
