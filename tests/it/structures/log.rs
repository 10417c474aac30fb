//! Tests of records, numbers and truncations.

use super::{damage, offset_of, open, reason};
use crate::common;
use atomic_mmap::{Error, Log, Roots, StructureError};

fn log() -> (common::Scratch, Roots, Log) {
    let ground = common::ram();
    let scratch = ground.scratch();
    let roots = open(&ground, &scratch.file("state.dat"));
    let log = roots.log("log").expect("a log");
    (scratch, roots, log)
}

fn all(log: &Log) -> Vec<(u64, Vec<u8>)> {
    log.iter_from(0).map(|item| item.expect("a record")).collect()
}

#[test]
fn records_may_go_over_blocks_and_segments() {
    let (_scratch, roots, log) = log();
    let records: Vec<Vec<u8>> = (0..200_usize).map(|n| vec![n as u8; n * n % 9000]).collect();
    for part in records.chunks(7) {
        log.append(part).expect("append");
    }
    // A record of many blocks, which gets a segment of its own length.
    let long = vec![9; 3 << 20];
    assert_eq!(log.append(&[&long[..]]).expect("append"), 200);
    for (n, record) in records.iter().enumerate() {
        assert_eq!(log.get(n as u64).expect("get").as_ref(), Some(record), "{n}");
    }
    assert_eq!(log.get(200).expect("get"), Some(long));
    assert_eq!(all(&log).len(), 201);
    roots.check().expect("check");
}

#[test]
fn a_small_append_changes_two_pages() {
    let ground = common::ram();
    let scratch = ground.scratch();
    let roots = open(&ground, &scratch.file("state.dat"));
    let log = roots.log("log").expect("a log");
    log.append(&["first"]).expect("append");
    let before = common::read_all(roots.file());
    log.append(&[[7_u8; 256]]).expect("append");
    let after = common::read_all(roots.file());
    let changed = before.chunks(4096).zip(after.chunks(4096)).filter(|(a, b)| a != b).count();
    assert_eq!(changed, 2);
}

#[test]
fn an_append_without_records_does_nothing() {
    let (_scratch, roots, log) = log();
    let none: [&[u8]; 0] = [];
    assert_eq!(log.append(&none).expect("append"), 0);
    log.append(&[b"", b"", b""]).expect("empty records");
    assert_eq!(log.append(&none).expect("append"), 3);
    assert_eq!(log.get(1).expect("get"), Some(Vec::new()));
    roots.check().expect("check");
}

#[test]
fn a_log_may_begin_with_any_number_and_skip_some() {
    let (_scratch, roots, log) = log();
    log.truncate_front(1).expect("begin with 1");
    assert_eq!(log.append(&["one", "two"]).expect("append"), 1);
    // A snapshot replaces records that this log never had.
    log.truncate_front(100).expect("skip");
    assert_eq!(log.range().expect("range"), 100..100);
    assert_eq!(log.append(&["hundred"]).expect("append"), 100);
    assert_eq!(log.get(100).expect("get").as_deref(), Some(&b"hundred"[..]));
    assert_eq!(log.get(2).expect("get"), None);
    log.truncate_back(5).expect("drop all");
    assert_eq!(log.range().expect("range"), 100..100);
    log.truncate_front(u64::MAX).expect("the last number");
    let full = reason(log.append(&["none is left"]));
    assert!(matches!(full, StructureError::Full { .. }), "{full}");
    roots.check().expect("check");
}

#[test]
fn a_log_that_is_truncated_at_the_front_does_not_grow_the_file() {
    let (_scratch, roots, log) = log();
    let record = [5_u8; 1000];
    let mut most = 0;
    for n in 0..3000_u64 {
        log.append(&[record]).expect("append");
        if n >= 100 {
            log.truncate_front(n - 100).expect("truncate");
        }
        if n == 300 {
            most = roots.file().len();
        }
    }
    assert_eq!(roots.file().len(), most, "the file still grows");
    assert_eq!(log.range().expect("range"), 2899..3000);
    roots.check().expect("check");
}

#[test]
fn a_log_that_is_truncated_at_the_back_gives_its_space_back() {
    let (_scratch, roots, log) = log();
    log.append(&["stays"]).expect("append");
    log.append(&[vec![5_u8; 1 << 20]]).expect("append");
    let len = roots.file().len();
    for _ in 0..20 {
        log.truncate_back(1).expect("truncate");
        roots.get_or_insert_array::<u8>("other", 1 << 19).expect("space for another name");
        roots.remove("other").expect("remove");
        log.append(&[vec![6_u8; 1 << 20]]).expect("append");
    }
    assert_eq!(roots.file().len(), len);
    roots.check().expect("check");
}

#[test]
fn an_iterator_goes_on_after_a_truncation() {
    let (_scratch, _roots, log) = log();
    log.append(&["0", "11", "222", "3333"]).expect("append");
    let mut records = log.iter_from(0);
    let mut next = || records.next().map(|item| item.expect("a record"));
    assert_eq!(next(), Some((0, b"0".to_vec())));
    // Record 1 is another one now, and record 2 begins elsewhere.
    log.truncate_back(1).expect("truncate");
    log.append(&["one", "two", "three", "four"]).expect("append");
    assert_eq!(next(), Some((1, b"one".to_vec())));
    log.truncate_back(1).expect("truncate");
    log.append(&["a longer record than before", "after it", "last"]).expect("append");
    assert_eq!(next(), Some((2, b"after it".to_vec())));
    log.append(&["appended meanwhile"]).expect("append");
    log.truncate_front(4).expect("truncate");
    assert_eq!(next(), Some((4, b"appended meanwhile".to_vec())));
    assert_eq!(next(), None);
}

#[test]
fn a_limit_is_kept_and_may_be_raised() {
    let (_scratch, roots, log) = log();
    assert_eq!(log.limit().expect("limit"), None);
    log.set_limit(Some(10 * 4096)).expect("set");
    let appended = (0..1000).take_while(|_| log.append(&[[1_u8; 1000]]).is_ok()).count() as u64;
    // Ten blocks of 4080 bytes, and 1008 bytes for each record.
    assert_eq!(appended, 10 * 4080 / 1008);
    let full = reason(log.append(&[[1_u8; 1000]]));
    assert!(matches!(full, StructureError::Full { limit: 40960, .. }), "{full}");
    assert_eq!(log.range().expect("range"), 0..appended);
    log.truncate_front(20).expect("truncate");
    log.append(&[[1_u8; 1000]]).expect("there is room again");
    log.set_limit(Some(1)).expect("set");
    assert_eq!(log.limit().expect("limit"), Some(1));
    assert!(matches!(reason(log.append(&[[1_u8; 30_000]])), StructureError::Full { .. }));
    log.set_limit(None).expect("set");
    log.append(&[[1_u8; 30_000]]).expect("no limit");
    roots.check().expect("check");
}

/// Segments double a log, and the last one did not fit: the log was full with a third of the file
/// unused.
#[test]
fn a_log_fills_its_file_to_the_longest_length() {
    let ground = common::ram();
    let scratch = ground.scratch();
    let options = ground.options().create(true).max_len(4 << 20);
    let file = options.open(scratch.file("state.dat")).expect("create");
    let max_len = file.max_len();
    let roots = Roots::open(file).expect("a directory");
    let log = roots.log("log").expect("a log");
    let error = (0..8000).find_map(|_| log.append(&[[1_u8; 1000]]).err()).expect("full");
    assert!(matches!(error, Error::TooLong { .. }), "{error}");
    assert_eq!(roots.file().len(), max_len);
    // Three pages are the directory's and the log's own.
    let blocks = max_len / 4096 - 3;
    assert_eq!(log.range().expect("range"), 0..blocks * 4080 / 1008);
    roots.check().expect("check");
}

/// Each append to each of many logs took a segment, and conflicted with all that did: 64 threads
/// appended 64 KiB each in tenths of a second.
#[test]
fn a_log_of_large_appends_takes_few_segments() {
    let (_scratch, roots, log) = log();
    let record = vec![7_u8; 64 << 10];
    let mut grown = 0;
    for _ in 0..100_u64 {
        let before = roots.file().len();
        log.append(&[&record]).expect("append");
        grown += u64::from(roots.file().len() != before);
    }
    // Doublings up to 1 MiB, and then a segment of 1 MiB for each 15 appends.
    assert!(grown <= 12, "{grown} appends of 100 have taken a segment");
    roots.check().expect("check");
}

#[test]
fn a_damaged_record_is_an_error_with_its_offset_and_others_are_read() {
    let (_scratch, roots, log) = log();
    log.append(&["the first", "the damaged", "the last"]).expect("append");
    let at = offset_of(roots.file(), b"the damaged");
    damage(roots.file(), at + 4);
    let error = log.get(1).expect_err("damaged");
    let Error::Structure { path, offset, why: StructureError::Damaged { .. } } = error else {
        panic!("{error}")
    };
    assert_eq!((&*path, offset), (roots.file().path(), at - 8));
    assert_eq!(log.get(2).expect("get").as_deref(), Some(&b"the last"[..]));
    let mut records = log.iter_from(0);
    assert!(records.next().expect("the first").is_ok());
    assert!(records.next().expect("the damaged").is_err());
    assert!(records.next().is_none());
    assert!(matches!(reason(roots.check()), StructureError::Damaged { .. }));
}

#[test]
fn a_handle_to_a_removed_log_gets_an_error() {
    let (_scratch, roots, log) = log();
    log.append(&["x"]).expect("append");
    roots.remove("log").expect("remove");
    let is_removed = |why| assert!(matches!(why, StructureError::Removed), "{why}");
    is_removed(reason(log.append(&["y"])));
    // Another log in the same place is another log.
    let new = roots.log("new").expect("make");
    new.append(&["of the new one"]).expect("append");
    is_removed(reason(log.get(0)));
    is_removed(reason(log.truncate_back(0)));
    assert_eq!(new.range().expect("range"), 0..1);
    // A log of a transaction that is rolled back.
    let mut tx = roots.file().begin();
    let rolled_back = roots.log_in(&mut tx, "never").expect("make");
    rolled_back.append_in(&mut tx, &["x"]).expect("append");
    tx.rollback();
    is_removed(reason(rolled_back.range()));
    roots.check().expect("check");
}

#[test]
fn a_record_and_a_value_change_together() {
    let (_scratch, roots, log) = log();
    let term = roots.get_or_insert::<u64>("term").expect("make").offset();
    let appended: Result<(), Error> = roots.file().transact(|tx| {
        log.append_in(tx, &["x"])?;
        tx.store(term, &1_u64)?;
        Err(Error::Conflict { path: "not really".into() })?
    });
    appended.expect_err("the closure's error");
    assert_eq!(
        (log.range().expect("range"), roots.file().load::<u64>(term).expect("load")),
        (0..0, 0)
    );
    let seq = roots.file().transact(|tx| {
        tx.store(term, &1_u64)?;
        log.append_in(tx, &["x"])?;
        log.append_in(tx, &["y"])
    });
    assert_eq!(seq.expect("commit"), 1);
    assert_eq!(
        (log.range().expect("range"), roots.file().load::<u64>(term).expect("load")),
        (0..2, 1)
    );
}
