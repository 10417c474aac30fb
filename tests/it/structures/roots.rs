//! Tests of names, types and space.

use super::reading;
use super::{damage, offset_of, open, reason};
use crate::common::{self, read_all};
use atomic_mmap::{AtomicMappedFile, CloseMode, Error, Name, Roots, StructureError};

fn roots() -> (common::Scratch, Roots) {
    let ground = common::ram();
    let scratch = ground.scratch();
    let roots = open(&ground, &scratch.file("state.dat"));
    (scratch, roots)
}

#[test]
fn a_new_value_is_zero_even_in_space_that_was_used() {
    let (_scratch, roots) = roots();
    for name in ["a", "b", "c"] {
        roots
            .get_or_insert_array::<u64>(name, 700)
            .expect("make")
            .set_many(0, &[!0; 700])
            .expect("fill");
    }
    let was = roots.get_array::<u64>("b").expect("find").expect("b").offset_of(0).expect("offset");
    assert!(roots.remove("b").expect("remove"));
    let array = roots.get_or_insert_array::<u64>("d", 600).expect("make");
    assert_eq!(array.offset_of(0).expect("offset"), was, "the gap is used again");
    let mut found = [1; 600];
    array.get_many(0, &mut found).expect("read");
    assert_eq!(found, [0; 600]);
    roots.check().expect("check");
}

#[test]
fn the_shortest_gap_that_fits_is_taken_and_gaps_merge() {
    let (_scratch, roots) = roots();
    let make = |name: &str, bytes: u64| {
        let array = roots.get_or_insert_array::<u8>(name, bytes).expect("make");
        array.offset_of(0).expect("offset")
    };
    let offsets: Vec<u64> =
        ["a", "b", "c", "d", "e", "f"].map(|n| make(n, if n == "b" { 640 } else { 320 })).into();
    for name in ["b", "d"] {
        roots.remove(name).expect("remove");
    }
    // 200 bytes fit into both gaps, and d's is the shorter one.
    assert_eq!(make("small", 200), offsets[3]);
    assert_eq!(make("large", 500), offsets[1]);
    for name in ["large", "c", "small"] {
        roots.remove(name).expect("remove");
    }
    // One gap of three extents.
    assert_eq!(make("merged", 640 + 320 + 320), offsets[1]);
    roots.check().expect("check");
}

/// A header that says that all numbers of logs are given, with the right checksum.
#[test]
fn a_log_without_a_number_left_is_an_error() {
    let (_scratch, roots) = roots();
    roots.file().store(40, &u64::MAX).expect("store");
    let mut header = [0; 64];
    roots.file().read_at(&mut header, 0).expect("read");
    header[12..16].fill(0);
    let sum = crc32c::crc32c(&header);
    roots.file().store(12, &sum).expect("store");
    assert!(matches!(reason(roots.log("log")), StructureError::Full { needed: 1, .. }));
    assert_eq!(roots.names().expect("names").len(), 0);
}

/// Names, their space and the growth of the file are one operation, which sees its own names.
#[test]
fn a_transaction_makes_the_file_longer_when_it_commits_and_not_before() {
    let (_scratch, roots) = roots();
    for commits in [false, true] {
        let mut tx = roots.file().begin();
        let offset = roots.get_or_insert_array_in::<u64>(&mut tx, "a", 1000).expect("make");
        tx.store(offset, &[7; 1000]).expect("store");
        let log = roots.log_in(&mut tx, "log").expect("make");
        log.append_in(&mut tx, &[[5; 9000]]).expect("append");
        let again = roots.get_or_insert_array_in::<u64>(&mut tx, "a", 1000).expect("found");
        assert_eq!(again, offset);
        assert_eq!(log.get_in(&mut tx, 0).expect("get"), Some(vec![5; 9000]));
        assert_eq!(roots.file().len(), 4096);
        if !commits {
            tx.rollback();
            assert_eq!((roots.file().len(), roots.names().expect("names").len()), (4096, 0));
            continue;
        }
        tx.commit().expect("commit");
        assert_eq!(log.get(0).expect("get"), Some(vec![5; 9000]));
        assert_eq!(roots.names().expect("names"), ["a", "log"]);
    }
    roots.check().expect("check");
}

#[test]
fn the_file_grows_only_as_far_as_needed() {
    let (_scratch, roots) = roots();
    assert_eq!(roots.file().len(), 4096);
    roots.get_or_insert::<u64>("a").expect("make");
    roots.get_or_insert::<u64>("b").expect("make");
    assert_eq!(roots.file().len(), 8192);
    for _ in 0..100 {
        roots.get_or_insert_array::<u8>("c", 10_000).expect("make");
        roots.remove("c").expect("remove");
    }
    assert!(roots.file().len() <= 8192 + 12288, "{}", roots.file().len());
}

#[test]
fn another_type_is_an_error_that_names_file_offset_and_expectation() {
    let (_scratch, roots) = roots();
    let slot = roots.get_or_insert::<u64>(Name::from("n").of_type(3)).expect("make");
    roots.get_or_insert_array::<u32>("many", 10).expect("make");
    roots.log("log").expect("make");
    let error = roots.get_or_insert::<[u8; 8]>(Name::from("n").of_type(3)).expect_err("alignment");
    let Error::Structure { path, offset, why } = &error else { panic!("{error}") };
    assert_eq!((&**path, *offset), (roots.file().path(), slot.offset()));
    let StructureError::WrongType { name, found, expected } = why else { panic!("{why}") };
    assert_eq!(name, "n");
    assert_eq!(found, "a value of 8 bytes, alignment 8 with type number 3");
    assert_eq!(expected, "a value of 8 bytes, alignment 1 with type number 3");
    let is_wrong = |why| assert!(matches!(why, StructureError::WrongType { .. }), "{why}");
    is_wrong(reason(roots.get::<u64>("n")));
    is_wrong(reason(roots.get::<u64>(Name::from("n").of_type(4))));
    is_wrong(reason(roots.get_array::<u64>(Name::from("n").of_type(3))));
    is_wrong(reason(roots.get_or_insert_array::<u32>("many", 11)));
    is_wrong(reason(roots.get_array::<u64>("many")));
    is_wrong(reason(roots.log("many")));
    is_wrong(reason(roots.get::<u64>("log")));
    assert_eq!(roots.get_array::<u32>("many").expect("right").expect("there").len(), 10);
    assert_eq!(roots.names().expect("names"), ["log", "many", "n"]);
}

#[test]
fn bad_names_are_errors() {
    let (_scratch, roots) = roots();
    for name in ["", "ends with zero\0", &"x".repeat(81)] {
        let why = reason(roots.get_or_insert::<u64>(name));
        assert!(matches!(why, StructureError::BadName { longest: 80, .. }), "{why}");
    }
    roots.get_or_insert::<u64>(&"x".repeat(80)).expect("the longest name");
    roots.get_or_insert::<u64>("Straße").expect("UTF-8");
}

#[test]
fn a_transaction_of_another_file_is_refused() {
    let (_scratch, roots) = roots();
    let (_other_scratch, other) = self::roots();
    let log = roots.log("log").expect("make");
    let before = read_all(other.file());
    let mut tx = other.file().begin();
    let is_other = |why| assert!(matches!(why, StructureError::OtherFile), "{why}");
    is_other(reason(roots.get_or_insert_in::<u64>(&mut tx, "n")));
    is_other(reason(roots.remove_in(&mut tx, "log")));
    is_other(reason(roots.log_in(&mut tx, "log").map(drop)));
    is_other(reason(log.append_in(&mut tx, &["x"])));
    is_other(reason(log.get_in(&mut tx, 0)));
    is_other(reason(log.truncate_back_in(&mut tx, 0)));
    tx.commit().expect("nothing was written");
    assert_eq!(read_all(other.file()), before);
    // A transaction on another handle of the right file is accepted.
    let handle = roots.file().try_clone().expect("a handle");
    handle.transact(|tx| log.append_in(tx, &["x"])).expect("append");
}

#[test]
fn a_table_of_many_names_moves_and_stays_whole() {
    let (scratch, roots) = roots();
    for n in 0..300_u64 {
        roots.get_or_insert::<u64>(&format!("n{n}")).expect("make").store(&n).expect("store");
    }
    let path = scratch.file("state.dat");
    roots.into_file().close(CloseMode::Spatial).expect("close");
    let roots = open(&common::ram(), &path);
    roots.check().expect("check");
    assert_eq!(reading::read(&read_all(roots.file())).len(), 300);
    for n in 0..300_u64 {
        let slot = roots.get::<u64>(&format!("n{n}")).expect("find").expect("there");
        assert_eq!(slot.load().expect("load"), n);
    }
    // Tables of 64, 128, 256 and 512 places; those left behind are free again.
    assert!(roots.file().len() < 4096 + 300 * 64 + 2 * 512 * 128, "{}", roots.file().len());
}

#[test]
fn other_files_are_refused_and_unchanged() {
    let ground = common::ram();
    let scratch = ground.scratch();
    let path = scratch.file("state.dat");
    for (len, at) in [(100, 50), (8192, 0), (8192, 8191), (1 << 20, 70_000)] {
        let file = ground.options().create(true).len(len).open(&path).expect("open");
        file.store(at, &7_u8).expect("store");
        let before = read_all(&file);
        let why = reason(Roots::open(file.try_clone().expect("a handle")));
        assert!(matches!(why, StructureError::Foreign { .. }), "{why}");
        assert_eq!(read_all(&file), before);
        drop(file);
        std::fs::remove_file(&path).expect("remove");
    }
}

#[test]
fn a_directory_may_begin_anywhere_and_leaves_what_is_before_it() {
    let ground = common::ram();
    let clone = |file: &AtomicMappedFile| file.try_clone().expect("a handle");
    for at in [8192_usize, 8191, 1] {
        let scratch = ground.scratch();
        let file = ground.options().create(true).len(9000).open(scratch.file("x")).expect("open");
        file.write_at(&vec![7; at], 0).expect("write");
        let roots = Roots::open_at(clone(&file), at as u64).expect("open");
        roots.get_or_insert::<u64>("n").expect("make").store(&5).expect("store");
        roots.log("log").expect("make").append(&["x"]).expect("append");
        drop(roots);
        let roots = Roots::open_at(clone(&file), at as u64).expect("open again");
        assert_eq!(roots.get::<u64>("n").expect("find").expect("n").load().expect("load"), 5);
        roots.check().expect("check");
        assert_eq!(read_all(&file)[..at], vec![7; at]);
        let past_any_length = Roots::open_at(file, u64::MAX - 4095);
        assert!(matches!(past_any_length, Err(Error::Overflow { .. })));
    }
}

#[test]
fn a_newer_version_is_refused() {
    let (_scratch, roots) = roots();
    let file = roots.into_file();
    let mut header = [0; 64];
    file.read_at(&mut header, 0).expect("read");
    header[8] = 2;
    header[12..16].fill(0);
    let sum = crc32c::crc32c(&header);
    header[12..16].copy_from_slice(&sum.to_le_bytes());
    file.write_at(&header, 0).expect("write");
    let why = reason(Roots::open(file));
    assert!(matches!(why, StructureError::Newer { version: 2 }), "{why}");
}

#[test]
fn a_damaged_entry_is_an_error_with_its_offset() {
    let (_scratch, roots) = roots();
    roots.get_or_insert::<u64>("a certain name").expect("make");
    let at = offset_of(roots.file(), b"a certain name");
    damage(roots.file(), at + 3);
    let error = roots.get::<u64>("another").expect_err("damaged");
    let Error::Structure { offset, why: StructureError::Damaged { .. }, .. } = error else {
        panic!("{error}")
    };
    assert_eq!(offset, at - 48);
}

#[test]
fn a_value_that_cannot_fit_is_an_error_that_changes_nothing() {
    let (_scratch, roots) = roots();
    let before = read_all(roots.file());
    let too_long = roots.get_or_insert_array::<u64>("n", 1 << 50);
    assert!(matches!(too_long, Err(Error::TooLong { .. })), "{too_long:?}");
    let overflow = roots.get_or_insert_array::<u64>("n", u64::MAX / 8);
    assert!(matches!(overflow, Err(Error::Overflow { .. })), "{overflow:?}");
    let overflow = roots.get_or_insert_array::<u64>("n", u64::MAX / 4);
    assert!(matches!(overflow, Err(Error::Overflow { .. })), "{overflow:?}");
    assert_eq!(read_all(roots.file()), before);
    roots.get_or_insert_array::<u64>("n", 0).expect("an array of nothing");
    roots.get_or_insert::<()>("unit").expect("a value of nothing");
    roots.check().expect("check");
}

/// A full table of names moves to a larger extent, and the allocator reads the lists of all logs,
/// including that of the new log. The list was stored after that, and its zeros were taken
/// for damage: so a log could not have the 32nd name.
#[test]
fn a_log_may_have_the_name_that_enlarges_the_table() {
    let (_scratch, roots) = roots();
    for n in 0..140_u64 {
        let log = roots.log(&*format!("log {n}")).expect("make");
        assert_eq!(log.append(&[n.to_le_bytes()]).expect("append"), 0);
    }
    for n in 0..140_u64 {
        let log = roots.log(&*format!("log {n}")).expect("find");
        assert_eq!(log.get(0).expect("read"), Some(n.to_le_bytes().to_vec()));
    }
    roots.check().expect("check");
}
