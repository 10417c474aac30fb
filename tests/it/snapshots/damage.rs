//! Tests of a store that was damaged, or restored, while the file was closed. The present stays as
//! it is. A snapshot reads as it was sealed, or is refused with the store's path and an offset.

use crate::common::{self, Ground, Rng, Scratch, assert_same, media, read_all};
use atomic_mmap::testing::snapshots::table::Table;
use atomic_mmap::testing::snapshots::{SEGMENT, SEGMENTS, SegmentIndex, TABLES, TABLES_END};
use atomic_mmap::{AtomicMappedFile, CloseMode, Distrust, Error, Integrity, SnapshotError};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

const PAGE: u64 = 4096;
const LEN: u64 = 120 * PAGE;
const MAP: u64 = SEGMENTS;
const WHOLE: u64 = SEGMENT as u64;

/// A copy of all files of a folder.
struct Backup {
    files: Vec<(PathBuf, SystemTime)>,
    folder: Scratch,
}

impl Backup {
    fn of(ground: &Ground, folder: &Path) -> Backup {
        let mut backup = Backup { files: Vec::new(), folder: ground.scratch() };
        for entry in fs::read_dir(folder).expect("list") {
            let path = entry.expect("list").path();
            common::copy_file(&path, &backup.place(&path));
            let stat = fs::metadata(&path).expect("stat");
            backup.files.push((path, stat.modified().expect("a time")));
        }
        backup
    }

    fn place(&self, path: &Path) -> PathBuf {
        self.folder.path().join(path.file_name().expect("a name"))
    }

    /// Writes the files back in their places, with their times, but for those left out.
    fn restore(&self, is_wanted: impl Fn(&Path) -> bool) {
        for (path, modified) in self.files.iter().filter(|(path, _)| is_wanted(path)) {
            common::copy_file(&self.place(path), path);
            let file = fs::OpenOptions::new().write(true).open(path).expect("open");
            file.set_modified(*modified).expect("set the time");
        }
    }
}

fn is_store(path: &Path) -> bool {
    path.to_string_lossy().ends_with(".snapshots")
}

fn store_in(scratch: &Scratch) -> PathBuf {
    let entries = fs::read_dir(scratch.path()).expect("list");
    let paths = entries.map(|entry| entry.expect("list").path());
    paths.into_iter().find(|path| is_store(path)).expect("a store")
}

/// The contents of the file and of its snapshots.
#[derive(Clone, Default)]
struct State {
    present: Vec<u8>,
    sealed: Vec<(String, Vec<u8>)>,
}

/// A closed file with three snapshots.
struct Closed {
    ground: Ground,
    scratch: Scratch,
    state: State,
}

impl Closed {
    fn new(ground: Ground, mode: CloseMode) -> Closed {
        let scratch = ground.scratch();
        let mut closed = Closed { ground, scratch, state: State::default() };
        let options = closed.ground.options().create(true).len(LEN);
        let file = options.open(closed.path()).expect("open");
        let fill = |n: u64| (0..LEN).map(|at| (at / 64 * 7 + at % 64 + n * 31) as u8).collect();
        let mut bytes: Vec<u8> = fill(1);
        for (n, name) in ["a", "b", "c"].into_iter().enumerate() {
            file.write_at(&bytes, 0).expect("write");
            file.snapshot(name).expect("seal");
            closed.state.sealed.push((name.to_owned(), bytes));
            bytes = fill(n as u64 + 2);
            // Many segments of one lane, and later operations of that lane.
            file.write_at(&bytes[..(LEN / 2) as usize], 0).expect("write");
            file.sync().expect("sync");
            file.write_at(&bytes[..(LEN / 4) as usize], 0).expect("write");
            file.write_at(&[n as u8; 100], LEN - 200).expect("write");
            file.sync().expect("sync");
        }
        closed.state.present = read_all(&file);
        file.close(mode).expect("close");
        closed
    }

    fn path(&self) -> PathBuf {
        self.scratch.file("state.dat")
    }

    fn try_open(&self) -> Result<AtomicMappedFile, Error> {
        self.ground.options().open(self.path())
    }

    fn open(&self, what: &str) -> AtomicMappedFile {
        self.try_open().unwrap_or_else(|e| panic!("{what} on {}: {e}", self.ground.medium))
    }

    fn store(&self) -> PathBuf {
        store_in(&self.scratch)
    }

    fn change_store(&self, change: impl FnOnce(&fs::File)) {
        let file = fs::OpenOptions::new().read(true).write(true).open(self.store());
        change(&file.expect("open"));
    }

    /// Returns the segments with an end in the map.
    fn ended(&self) -> Vec<(SegmentIndex, u64)> {
        let bytes = fs::read(self.store()).expect("read");
        let word = |segment: SegmentIndex| {
            let at = segment.end_word_at() as usize;
            u64::from_le_bytes(bytes[at..at + 8].try_into().expect("a word"))
        };
        let segments = (1..SegmentIndex::count(bytes.len() as u64)).map(SegmentIndex);
        segments.map(|s| (s, word(s))).filter(|(_, word)| *word != 0).collect()
    }

    /// Checks the present and all snapshots. Returns the offsets by which snapshots are refused.
    #[track_caller]
    fn check(&self, state: &State, file: &AtomicMappedFile, what: &str) -> Vec<u64> {
        let what = format!("{what} on {}", self.ground.medium);
        assert_same(&read_all(file), &state.present, &what);
        assert_eq!(file.snapshots().len(), state.sealed.len(), "{what}");
        let mut refused = Vec::new();
        for (name, expected) in &state.sealed {
            match common::try_read_snapshot(file, name) {
                Ok(found) => assert_same(&found, expected, &format!("{name}: {what}")),
                Err(error) => refused.push(self.offset_of(&error, &what)),
            }
        }
        refused
    }

    #[track_caller]
    fn offset_of(&self, error: &Error, what: &str) -> u64 {
        let Error::Snapshot { path, why: SnapshotError::Damaged { offset, .. } } = error else {
            panic!("{what}: {error:?}");
        };
        assert_eq!(path, &self.store(), "{what}");
        *offset
    }

    /// Opens the file, and checks it.
    fn look(&self, what: &str) -> Vec<u64> {
        let file = self.open(what);
        let refused = self.check(&self.state, &file, what);
        file.close(CloseMode::Unsynced).expect("close");
        refused
    }

    /// Lives on with a store that may be damaged. Later snapshots are not affected, and those that
    /// are refused stay so, until they are dropped. Returns the offsets by which they are.
    fn live_on(&self, what: &str) -> Vec<u64> {
        let file = self.open(what);
        let refused = self.check(&self.state, &file, what);
        if let Some(at) = refused.first() {
            let error = file.roll_back("a", Some("undo")).expect_err("a rollback");
            assert_eq!(self.offset_of(&error, what), *at);
            assert_eq!(self.check(&self.state, &file, what), refused, "after a rollback");
        }
        file.snapshot("new").expect("seal");
        let mut state = self.state.clone();
        state.sealed.push(("new".to_owned(), state.present));
        file.write_at(&[0xee; 9000], 5000).expect("write");
        file.sync().expect("sync");
        state.present = read_all(&file);
        assert_eq!(self.check(&state, &file, what), refused, "{what}");
        file.close(CloseMode::Fast).expect("close");
        let file = self.open(what);
        assert_eq!(self.check(&state, &file, what), refused, "{what}: the next opening");
        if !refused.is_empty() {
            for (name, _) in state.sealed.drain(..3) {
                file.drop_snapshot(&name).expect("drop");
            }
        }
        file.close(CloseMode::Fast).expect("close");
        assert_eq!(self.check(&state, &self.open(what), what), [], "{what}: at last");
        refused
    }
}

fn flip(file: &fs::File, offset: u64) {
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("read");
    file.write_all_at(&[byte[0] ^ 0x10], offset).expect("write");
}

fn zero(file: &fs::File, offset: u64, len: u64) {
    file.write_all_at(&vec![0; len as usize], offset).expect("write");
}

/// Returns the places of the newest table and of the other one.
fn tables(file: &fs::File) -> [u64; 2] {
    let mut start = vec![0; TABLES_END as usize];
    file.read_exact_at(&mut start, 0).expect("read");
    let at = |place: u64| Table::decode(&start[place as usize..]).expect("a whole table");
    let [first, second] = TABLES;
    if at(first).generation > at(second).generation { [first, second] } else { [second, first] }
}

/// Each place of a segment, and the map of ends: what was kept there is lost, and that is noticed.
#[test]
fn damage_to_what_is_kept_is_told_and_nothing_is_read_wrong() {
    for (ground, mode) in media().into_iter().flat_map(|ground| {
        [CloseMode::Fast, CloseMode::Unsynced].map(|mode| (ground.clone(), mode))
    }) {
        let closed = Closed::new(ground, mode);
        let backup = Backup::of(&closed.ground, closed.scratch.path());
        let ended = closed.ended();
        let is_closed = mode != CloseMode::Unsynced;
        if !is_closed && closed.ground.medium == atomic_mmap::Medium::Ram {
            // Only a close stores ends there.
            assert!(ended.is_empty());
            continue;
        }
        assert!(ended.len() > 9, "{} on {}", ended.len(), closed.ground.medium);
        let damaged = |what: &str, change: &dyn Fn(&fs::File)| {
            backup.restore(|_| true);
            closed.change_store(change);
            closed.look(what)
        };
        assert_eq!(damaged("nothing", &|_| {}), []);
        for (segment, word) in [ended[0], ended[ended.len() - 1]] {
            let (start, end) = (segment.start(), segment.start() + (word as u32) as u64);
            let in_it = [start, start + 9, start + 16, start + 63, start + 64, start + 72];
            for at in in_it.into_iter().chain([start + 100, start + 200, start + 5000, end - 1]) {
                let told = damaged(&format!("a flip at {}", at - start), &|file| flip(file, at));
                assert_eq!(told.len(), 3, "{at}");
                assert!((start..=at).contains(&told[0]), "{at}: {told:?}");
            }
            let word_at = segment.end_word_at();
            for at in [word_at, word_at + 1, word_at + 3, word_at + 4, word_at + 7] {
                let told = damaged("a flip in an end", &|file| flip(file, at));
                assert_eq!(told, [word_at; 3]);
            }
            let told = damaged("zeroes", &|file| zero(file, start, WHOLE));
            assert_eq!(told, [start; 3]);
            assert_eq!(closed.live_on("zeroes"), told);
            let told = damaged("a cut", &|file| file.set_len(start).expect("cut"));
            assert!(told.len() == 3 && told[0] >= start, "{told:?}");
            if end < start + WHOLE {
                assert_eq!(damaged("past the end", &|file| flip(file, end)), []);
            }
        }
        let told = damaged("no map", &|file| zero(file, MAP, WHOLE));
        assert_eq!(told, vec![MAP; if is_closed { 3 } else { 0 }]);
        if is_closed {
            let told = damaged("no segments", &|file| file.set_len(MAP).expect("cut"));
            assert_eq!(told, [MAP; 3]);
        }
    }
}

/// Both copies of the table say the same when the file is at rest.
#[test]
fn damage_to_one_copy_of_the_table_loses_nothing() {
    for (ground, mode) in media().into_iter().flat_map(|ground| {
        [CloseMode::Fast, CloseMode::Unsynced].map(|mode| (ground.clone(), mode))
    }) {
        let closed = Closed::new(ground, mode);
        let backup = Backup::of(&closed.ground, closed.scratch.path());
        for (which, at) in [0, 1].into_iter().flat_map(|n| [8, 20, 50, 70, 200].map(|at| (n, at))) {
            backup.restore(|_| true);
            closed.change_store(|file| flip(file, tables(file)[which] + at));
            assert_eq!(closed.look(&format!("a flip in table {which} at {at}")), []);
        }
        // A drop that was forgotten would bring back a snapshot without its bytes.
        backup.restore(|_| true);
        let file = closed.open("a file");
        let mut state = closed.state.clone();
        state.sealed.remove(1);
        file.drop_snapshot("b").expect("drop");
        file.write_at(&[0x77; 30_000], 0).expect("write");
        file.sync().expect("sync");
        state.present = read_all(&file);
        file.close(mode).expect("close");
        closed.change_store(|file| flip(file, tables(file)[0] + 20));
        assert_eq!(closed.check(&state, &closed.open("a drop"), "a drop"), []);
    }
}

/// Random bytes at random places. Nothing is read wrong, and no snapshot vanishes.
#[test]
fn scribbles_over_a_closed_store_are_never_silent() {
    let mut random = Rng(31);
    for ground in media() {
        let closed = Closed::new(ground, CloseMode::Fast);
        let backup = Backup::of(&closed.ground, closed.scratch.path());
        let (ended, len) = (closed.ended(), fs::metadata(closed.store()).expect("stat").len());
        let (mut told, mut whole) = (0, 0);
        for n in 0..60 {
            backup.restore(|_| true);
            let (segment, word) = ended[random.below(ended.len() as u64) as usize];
            let (from, to) = match n % 6 {
                0 => (0, len),
                1 => (segment.start(), segment.start() + 64),
                2 => (segment.end_word_at(), segment.end_word_at() + 8),
                3 => (0, TABLES_END),
                _ => (segment.start(), segment.start() + u64::from(word as u32)),
            };
            let at = from + random.below(to - from);
            let bytes = 1 + random.below([8, 300, 70_000][n % 3]).min(len - at - 1);
            let fill = [0, random.below(256) as u8][n / 3 % 2];
            closed.change_store(|file| {
                file.write_all_at(&vec![fill; bytes as usize], at).expect("write");
            });
            let what = format!("{bytes} bytes of {fill} at {at}");
            match closed.try_open() {
                Ok(file) => {
                    let refused = closed.check(&closed.state, &file, &what).len();
                    told += usize::from(refused > 0);
                    whole += usize::from(refused == 0);
                }
                Err(error) => assert!(closed.offset_of(&error, &what) < TABLES_END),
            }
        }
        assert!(told > 10 && whole > 5, "{told} {whole}");
    }
}

fn is_of_another_time(closed: &Closed, what: &str) {
    let before = common::Snapshot::of(closed.scratch.path());
    let error = closed.try_open().expect_err(what);
    let is_it = matches!(error, Error::Untrusted { why: Distrust::IsOfAnotherPair, .. });
    assert!(is_it, "{what} on {}: {error:?}", closed.ground.medium);
    before.assert_unchanged(closed.scratch.path(), what);
}

/// A backup of the file, its reflection file and its journal is restored, and the store stays. It
/// has snapshots that read what the slots of then do not hold.
#[test]
fn a_store_of_a_later_time_is_refused() {
    for (ground, mode) in media().into_iter().flat_map(|ground| {
        [CloseMode::Fast, CloseMode::Unsynced].map(|mode| (ground.clone(), mode))
    }) {
        let closed = Closed::new(ground, CloseMode::Fast);
        let before = Backup::of(&closed.ground, closed.scratch.path());
        let file = closed.open("a session");
        file.snapshot("later").expect("seal");
        file.write_at(&[0x33; 50_000], 100).expect("write");
        file.close(mode).expect("close");
        let after = Backup::of(&closed.ground, closed.scratch.path());
        before.restore(|path| !is_store(path));
        is_of_another_time(&closed, "a later store");
        // An older store, with the same openings behind it.
        after.restore(|path| !is_store(path));
        before.restore(is_store);
        is_of_another_time(&closed, "an older store");
        before.restore(|_| true);
        assert_eq!(closed.live_on("all of one time"), []);
        // The pair has had a session of that number by now: another one.
        before.restore(|path| !is_store(path));
        fs::remove_file(closed.store()).expect("remove");
        let file = closed.open("a session without the store");
        file.write_at(&[0x44; 50_000], 100).expect("write");
        file.close(mode).expect("close");
        after.restore(is_store);
        is_of_another_time(&closed, "a store of another life");
    }
}

/// A rollback found a damaged record behind its intention. Each later opening failed.
#[test]
fn a_rollback_that_needs_a_damaged_record_does_not_begin() {
    for (ground, integrity) in media().into_iter().flat_map(|ground| {
        [Integrity::Off, Integrity::OnScrub].map(|integrity| (ground.clone(), integrity))
    }) {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        let options = ground.options().integrity(integrity);
        let file = options.clone().create(true).len(LEN).open(&path).expect("open");
        let of_page = |page: u64| page as u8 | 0x80;
        let sealed: Vec<u8> = (0..LEN).map(|at| of_page(at / PAGE)).collect();
        file.write_at(&sealed, 0).expect("write");
        file.snapshot("old").expect("seal");
        // Pages that are written, and pages past the end.
        file.write_at(&[7; 30 * PAGE as usize], 10 * PAGE).expect("write");
        file.set_len(60 * PAGE + 100).expect("shrink");
        file.sync().expect("sync");
        let (before, store) = (read_all(&file), store_in(&scratch));
        let kept = fs::read(&store).expect("read");
        let damage = fs::OpenOptions::new().read(true).write(true).open(&store).expect("open");
        for page in [10, 25, 39, 60, 61, 119] {
            let slice = kept.chunks(64).position(|slice| slice == [of_page(page); 64]);
            let at = slice.expect("it was kept") as u64 * 64 + 5;
            flip(&damage, at);
            for undo in [None, Some("undo")] {
                let what = format!("page {page} on {}, {integrity:?}, {undo:?}", ground.medium);
                let error = file.roll_back("old", undo).expect_err(&what);
                let why = match &error {
                    Error::Snapshot { path, why } if *path == store => Some(why),
                    _ => None,
                };
                assert!(matches!(why, Some(SnapshotError::Damaged { .. })), "{what}: {error:?}");
                assert_same(&read_all(&file), &before, &what);
                file.health().expect(&what);
                assert_eq!(file.snapshots().len(), 1, "{what}");
            }
            flip(&damage, at);
        }
        file.close(CloseMode::Unsynced).expect("close");
        let file = options.open(&path).expect("open");
        assert_same(&read_all(&file), &before, "the next opening");
        file.roll_back("old", None).expect("a rollback");
        assert_same(&read_all(&file), &sealed, "a rollback");
    }
}
