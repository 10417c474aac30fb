//! Tests of snapshots and streams that are longer than an opening, a process or a file system has
//! room for, or that take more of it than they should.

use super::export::{assert_no_spool, export, frames};
use crate::common::{self, Ground, Scratch, assert_same, child, media, read_all, role, run_child};
use atomic_mmap::testing::recorder::{Death, Recorder};
use atomic_mmap::{AtomicMappedFile, CloseMode, Error, Options, SnapshotError};
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const CHILD: &str = concat!(module_path!(), "::plays_the_child_if_it_is_one");
const LEN: u64 = PAGE;
/// The length in the snapshot "long", and what the openings with too little room have room for.
const LONG: u64 = 5_000_000;
const ROOM: u64 = 1 << 20;
const PAGE: u64 = 4096;
/// Pages of a stream that are zero.
const ZEROES: u64 = 4096;

#[test]
fn plays_the_child_if_it_is_one() {
    let Some((role, path)) = role() else { return };
    let (medium, what) = role.split_once(' ').expect("a medium");
    let ground = media().into_iter().find(|ground| ground.medium.to_string() == medium);
    let options = ground.expect("a medium").options();
    match what {
        "limit" => roll_back_with_a_limit(options, &path),
        nth => {
            let recorder = Recorder::new();
            let file = options.open_recorded(&recorder, &path).expect("open");
            recorder.kill_at(nth.parse().expect("a number"), Death::Before);
            file.roll_back("long", None).expect("roll back");
            recorder.spare();
            println!("rolled back");
            common::crash();
        }
    }
}

/// Makes a short file with a long snapshot.
fn make(options: &Options, path: &Path) {
    let file = options.clone().create(true).len(LEN).open(path).expect("open");
    file.write_at(b"old", 0).expect("write");
    file.set_len(LONG).expect("grow");
    file.write_at(b"far", LONG - 3).expect("write");
    file.snapshot("long").expect("seal");
    file.set_len(LEN).expect("shrink");
    file.write_at(b"now", 0).expect("write");
    file.close(CloseMode::Fast).expect("close");
}

fn ends(file: &AtomicMappedFile) -> (u64, [u8; 3], [u8; 3]) {
    let (mut first, mut last) = ([0; 3], [0; 3]);
    file.read_at(&mut first, 0).expect("read");
    file.read_at(&mut last, file.len() - 3).expect("read");
    (file.len(), first, last)
}

fn is_too_long(error: &Error) -> bool {
    matches!(error, Error::TooLong { len: LONG, max_len, .. } if *max_len < LONG)
}

/// The rollback panicked behind its commit point. Writes and syncs after it were acknowledged, and
/// the next opening finished the rollback over them.
#[test]
fn a_rollback_to_what_has_no_room_is_refused_before_it_begins() {
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        make(&ground.options(), &path);
        let small = || ground.options().max_len(ROOM).open(&path).expect("open");
        let file = small();
        for undo in [None, Some("undo")] {
            let refused = file.roll_back("long", undo).expect_err("no room");
            assert!(is_too_long(&refused), "{refused:?}");
        }
        assert_eq!(file.snapshots().len(), 1);
        // It is read all the same.
        let long = file.open_snapshot("long").expect("open");
        let mut far = [0; 3];
        long.read_at(&mut far, LONG - 3).expect("read");
        assert_eq!(&far, b"far");
        drop(long);
        file.write_at(b"new", 0).expect("write");
        file.sync().expect("sync");
        let present = read_all(&file);
        file.close(CloseMode::Spatial).expect("close");
        assert_same(&read_all(&small()), &present, "the next opening");
        let file = ground.options().open(&path).expect("open");
        assert_eq!(ends(&file), (LEN, *b"new", [0; 3]));
        file.roll_back("long", None).expect("there is room");
        assert_eq!(ends(&file), (LONG, *b"old", *b"far"));
    }
}

/// Dies at each step of a rollback to a longer snapshot. An opening without room for it panicked
/// once the rollback was under way.
#[test]
fn an_opening_without_room_for_a_rollback_under_way_changes_nothing() {
    for ground in media() {
        let mut outcomes = [0, 0];
        for nth in (1..25).chain((25..).step_by(7)) {
            let scratch = ground.scratch();
            let path = scratch.file("state.dat");
            make(&ground.options(), &path);
            let output = child(CHILD, &format!("{} {nth}", ground.medium), &path).output();
            let told = String::from_utf8_lossy(&output.expect("a child").stdout).into_owned();
            assert!(common::ran_its_test(&told), "{told}");
            let before = common::Snapshot::of(scratch.path());
            let opened = ground.options().max_len(ROOM).open(&path).map(|file| ends(&file));
            let is_refused = match opened {
                Ok(found) => {
                    assert_eq!(found, (LEN, *b"now", [0; 3]), "{nth}");
                    false
                }
                Err(error) => {
                    assert!(is_too_long(&error), "{nth}: {error:?}");
                    before.assert_unchanged(scratch.path(), "no room");
                    true
                }
            };
            let reader = ground.options().read_only(true).max_len(ROOM).open(&path);
            let is_under_way = match reader.map(|file| ends(&file)) {
                Ok(found) => {
                    assert!(!is_refused && found == (LEN, *b"now", [0; 3]), "{nth}");
                    false
                }
                Err(Error::Snapshot { why: SnapshotError::RollbackUnderWay { .. }, .. }) => true,
                Err(error) => {
                    // The growth is prepared. Or the rollback is over, some steps after its begin.
                    assert!(is_refused && is_too_long(&error), "{nth}: {error:?}");
                    outcomes[1] > 0
                }
            };
            let found = ends(&ground.options().open(&path).expect("there is room"));
            match is_under_way {
                true => assert_eq!(found, (LONG, *b"old", *b"far"), "{nth}"),
                false => assert_eq!(found, (LEN, *b"now", [0; 3]), "{nth}"),
            }
            outcomes[usize::from(is_under_way)] += 1;
            if told.contains("rolled back") {
                break;
            }
        }
        assert!(outcomes[0] > 3 && outcomes[1] > 3, "{outcomes:?}");
    }
}

/// The command panicked on a file with a snapshot that was longer than its opening reserved.
#[test]
fn an_opening_reserves_room_for_the_longest_snapshot_and_can_go_back_to_it() {
    const VERY_LONG: u64 = (65 << 30) + 100;
    let ground = common::ram();
    let scratch = ground.scratch();
    let path = scratch.file("state.dat");
    let file = ground.options().create(true).len(LEN).max_len(VERY_LONG).open(&path).expect("open");
    file.set_len(VERY_LONG).expect("grow");
    file.write_at(b"far", VERY_LONG - 3).expect("write");
    file.snapshot("very long").expect("seal");
    file.set_len(LEN).expect("shrink");
    file.close(CloseMode::Spatial).expect("close");
    let file = ground.options().open(&path).expect("open");
    assert!(file.max_len() >= VERY_LONG, "{}", file.max_len());
    file.roll_back("very long", None).expect("there is room");
    assert_eq!(ends(&file), (VERY_LONG, [0; 3], *b"far"));
}

/// A sender's header, behind which the sender is not asked for more.
struct HeaderAlone<'a>(&'a [u8]);

impl Read for HeaderAlone<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        assert!(!self.0.is_empty(), "read behind the header");
        self.0.read(to)
    }
}

/// The stream was received as a whole before it was refused.
#[test]
fn a_stream_that_has_no_room_is_refused_by_its_header() {
    let (ground, scratch) = (common::ram(), common::ram().scratch());
    make(&ground.options(), &scratch.file("sender"));
    let sender = ground.options().open(scratch.file("sender")).expect("open");
    let stream = export(&sender, None, "long");
    let path = scratch.file("state.dat");
    let file = ground.options().create(true).max_len(ROOM).open(&path).expect("open");
    for (what, taken) in [
        ("import", file.import(HeaderAlone(&stream[..320]))),
        ("import_over", file.import_over(HeaderAlone(&stream[..320]))),
    ] {
        assert!(is_too_long(&taken.expect_err("no room")), "{what}");
    }
    let new = ground.options().max_len(ROOM);
    let made = new.import(scratch.file("new"), HeaderAlone(&stream[..320])).map(drop);
    assert!(is_too_long(&made.expect_err("no room")));
    assert!(!scratch.file("new").exists());
    assert_no_spool(scratch.path());
    assert!(file.is_empty() && file.snapshots().is_empty());
}

/// Returns the stream of a whole file of zeroes, which has each page, in 24 bytes each. A sender
/// leaves them out.
fn zeroes(ground: &Ground, scratch: &Scratch) -> Vec<u8> {
    let options = ground.options().create(true).len(ZEROES * PAGE);
    let sender = options.open(scratch.file("zeroes")).expect("open");
    sender.snapshot("zeroes").expect("seal");
    let whole = export(&sender, None, "zeroes");
    assert_eq!(frames(&whole).len(), 1, "it has no page");
    let (header, last) = whole.split_at(320);
    let (mut stream, mut sums) = (header.to_vec(), 0);
    let seed = crc32c::crc32c(&header[24..]);
    let mut add = |magic: &[u8], words: [u64; 2], body: &[u8]| {
        let len = (body.len() as u32).to_le_bytes();
        let rest = [&len[..], &words[0].to_le_bytes(), &words[1].to_le_bytes(), body].concat();
        let sum = crc32c::crc32c_append(seed, &rest).to_le_bytes();
        stream.extend([magic, &sum, &rest].concat());
        sums = crc32c::crc32c_append(sums, &sum);
        sums
    };
    let mut all = 0;
    for n in 0..ZEROES / 64 {
        let change = |page: u64| [page, !0, 0].map(u64::to_le_bytes).concat();
        let body: Vec<u8> = (n * 64..(n + 1) * 64).flat_map(change).collect();
        all = add(b"AtomFram", [n, 64], &body);
    }
    let mut end = last[32..].to_vec();
    end[8..12].copy_from_slice(&all.to_le_bytes());
    add(&last[..8], [ZEROES / 64, ZEROES], &end);
    stream
}

/// Returns the bytes of disk that the files of a folder take.
fn taken(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).expect("list").map(|entry| entry.expect("an entry"));
    entries.map(|entry| entry.metadata().expect("stat").blocks() * 512).sum()
}

/// Each page of zeroes took 4 KiB in a new file. In one that was there it took three times as much:
/// for its slots and in the store.
#[test]
fn pages_of_zeroes_in_a_stream_take_no_space_where_the_file_has_zeroes() {
    const MOST: u64 = ZEROES * PAGE / 4;
    for ground in media() {
        let aside = ground.scratch();
        let stream = zeroes(&ground, &aside);
        assert!((stream.len() as u64) < 30 * ZEROES, "{}", stream.len());
        let is_zero = |file: &AtomicMappedFile| {
            let bytes = read_all(file);
            bytes.len() as u64 == ZEROES * PAGE && bytes.iter().all(|byte| *byte == 0)
        };

        let scratch = ground.scratch();
        let (file, report) =
            ground.options().import(scratch.file("new"), &stream[..]).expect("a new file");
        assert_eq!(report.pages, ZEROES);
        assert!(is_zero(&file) && taken(scratch.path()) < MOST, "{}", taken(scratch.path()));

        let scratch = ground.scratch();
        let file = ground.options().create(true).open(scratch.file("empty")).expect("open");
        file.import(&stream[..]).expect("import");
        assert!(is_zero(&file) && taken(scratch.path()) < MOST, "{}", taken(scratch.path()));

        let scratch = ground.scratch();
        let options = ground.options().create(true).len(2 * ZEROES * PAGE);
        let file = options.open(scratch.file("more")).expect("open");
        let offsets = [0, 70 * PAGE + 9, ZEROES * PAGE - 1, ZEROES * PAGE + 8];
        offsets.iter().for_each(|at| file.write_at(b"x", *at).expect("write"));
        file.snapshot("own").expect("seal");
        let own = read_all(&file);
        file.import_over(&stream[..]).expect("import");
        assert!(is_zero(&file) && taken(scratch.path()) < MOST, "{}", taken(scratch.path()));
        for (name, len) in [("zeroes", ZEROES * PAGE), ("own", 2 * ZEROES * PAGE)] {
            let found = common::read_snapshot(&file, name);
            assert_eq!(found.len() as u64, len, "{name}");
            assert!(name != "zeroes" || found.iter().all(|byte| *byte == 0), "{name}");
            assert!(name != "own" || found == own, "{name}");
        }
    }
}

/// Pages that the file has already are not kept, stored and named again.
#[test]
fn pages_that_a_stream_does_not_change_take_no_space() {
    for ground in media() {
        let (scratch, len) = (ground.scratch(), 1000 * PAGE);
        let options = || ground.options().create(true).len(len);
        let sender = options().open(scratch.file("sender")).expect("open");
        let expected = common::Rng(7).bytes(len as usize);
        sender.write_at(&expected, 0).expect("write");
        sender.snapshot("a").expect("seal");
        let stream = export(&sender, None, "a");
        let aside = ground.scratch();
        let file = options().open(aside.file("replica")).expect("open");
        file.write_at(&expected, 0).expect("write");
        file.write_at(b"another", 9 * PAGE).expect("write");
        file.write_at(&[0; 30], 11 * PAGE).expect("write");
        file.sync().expect("sync");
        file.deploy(0..len).expect("deploy");
        let before = taken(aside.path());
        file.import_over(&stream[..]).expect("import");
        let more = taken(aside.path()).saturating_sub(before);
        assert!(more < len, "{more} on {}", ground.medium);
        assert_same(&read_all(&file), &expected, "the file");
        file.write_at(b"later", 500 * PAGE).expect("write");
        assert_same(&common::read_snapshot(&file, "a"), &expected, "the snapshot");
        file.roll_back("a", None).expect("back");
        assert_same(&read_all(&file), &expected, "the file");
    }
}

#[cfg(unix)]
fn roll_back_with_a_limit(options: Options, path: &Path) {
    let file = options.open(path).expect("open");
    let limit = libc::rlimit { rlim_cur: LONG - 1, rlim_max: LONG - 1 };
    // SAFETY: the structure is readable, and the limit is that of this child.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
    file.roll_back("long", None).expect_err("the file may not get so long");
    file.write_at(b"new", 0).expect("write");
    file.sync().expect("sync");
    assert_eq!(ends(&file), (LEN, *b"new", [0; 3]));
    println!("went on");
    common::crash();
}

/// The growth was refused behind the commit point. The handle was poisoned, and each opening failed
/// until the limit was gone.
#[cfg(unix)]
#[test]
fn a_limit_on_the_length_of_files_is_met_before_a_rollback_begins() {
    for ground in media().into_iter().filter(|_| !cfg!(atomic_mmap_portable)) {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        make(&ground.options(), &path);
        let told = run_child(CHILD, &format!("{} limit", ground.medium), &path);
        assert!(told.contains("went on"), "{told}");
        let file = ground.options().open(&path).expect("open");
        assert_eq!(ends(&file), (LEN, *b"new", [0; 3]));
    }
}
