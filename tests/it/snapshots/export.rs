//! Tests that a replica gets each exported state whole, and refuses all other streams.
//!
//! The sender runs random operations. Each sealed state is sent: as a whole at first and when the
//! base was dropped, and else as an increment. The replica has operations of its own, which change
//! no byte, and snapshots of its own.

use super::model::{FIRST_LEN, Model, Op, check_all, op, run};
use crate::common::{self, Ground, Rng, assert_same, child, media, read_all, role};
use atomic_mmap::{
    AtomicMappedFile, CloseMode, Durability, Error, Medium, Options, SnapshotError, StreamError,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::time::Duration;

const PAGE: usize = 4096;

pub(super) fn export(file: &AtomicMappedFile, from: Option<&str>, to: &str) -> Vec<u8> {
    let mut stream = Vec::new();
    let report = file.export(from, to, &mut stream).expect("an export");
    assert_eq!(report.bytes, stream.len() as u64);
    stream
}

pub(super) fn why(error: Error) -> StreamError {
    match error {
        Error::Stream { why, .. } => why,
        error => panic!("another error: {error}"),
    }
}

/// Asserts that no file of an import is left in the folder.
pub(super) fn assert_no_spool(folder: &Path) {
    let entries = std::fs::read_dir(folder).expect("list");
    let names =
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"));
    let left: Vec<String> = names
        .filter(|name| {
            name.starts_with(".atomic-mmap-import-") || name.starts_with(".atomic-mmap-new-")
        })
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// A replica, and the contents that it must have.
struct Replica {
    file: AtomicMappedFile,
    model: Model,
    /// The name of the snapshot that was taken last.
    last: String,
}

/// Sends the newest snapshot of a file to a replica.
fn send(
    file: &AtomicMappedFile,
    model: &Model,
    replica: Option<Replica>,
    (options, path): (&Options, &Path),
) -> Replica {
    let name = file.snapshots().last().expect("a snapshot").name.clone();
    let bytes = model.sealed[&name].clone();
    let Some(mut replica) = replica else {
        let stream = export(file, None, &name);
        let (file, report) = options.clone().import(path, &stream[..]).expect("a new file");
        assert_eq!(report.snapshot.len, bytes.len() as u64);
        // Names of its own, which the sender never gives.
        let mut model = Model { present: bytes.clone(), given: 1000, ..Model::default() };
        model.sealed.insert(name.clone(), bytes);
        return Replica { file, model, last: name };
    };
    let from = Some(&replica.last[..]).filter(|last| model.sealed.contains_key(*last));
    let stream = export(file, from, &name);
    let report = match from {
        Some(_) => replica.file.import(&stream[..]),
        None => replica.file.import_over(&stream[..]),
    };
    let report = report.expect("an import");
    assert_eq!(report.snapshot.name, name);
    let sent = file.snapshots().into_iter().find(|found| found.name == name).expect("sent");
    assert_eq!(report.snapshot.created, sent.created);
    replica.model.present = bytes.clone();
    replica.model.sealed.insert(name.clone(), bytes);
    Replica { last: name, ..replica }
}

fn run_all(options: &Options, folder: &common::Scratch, ops: &[(Op, Op)]) {
    let path = folder.file("state.dat");
    let copy = folder.file("replica.dat");
    let open = |path: &Path| options.clone().create(true).len(FIRST_LEN).open(path).expect("open");
    let (mut rng, mut model) = (Rng(ops.len() as u64), Model::new());
    let (mut file, mut replica) = (open(&path), None::<Replica>);
    for (op, own) in ops {
        let sealed = model.sealed.len();
        if let Some(mode) = run(Some(&file), &mut model, *op, &mut rng) {
            file.close(mode).expect("close");
            file = open(&path);
        }
        let changes_bytes =
            !matches!(own, Op::Deploy(_) | Op::Sync | Op::Seal | Op::Drop(_) | Op::Close(_));
        if let Some(replica) = replica.as_mut().filter(|_| !changes_bytes)
            && let Some(mode) = run(Some(&replica.file), &mut replica.model, *own, &mut rng)
        {
            replica.file.try_clone().expect("a handle");
            let old = std::mem::replace(&mut replica.file, open(&folder.file("other.dat")));
            old.close(mode).expect("close");
            replica.file = options.clone().open(&copy).expect("open");
        }
        if model.sealed.len() > sealed && matches!(op, Op::Seal) {
            let taken = send(&file, &model, replica.take(), (options, &copy));
            check_all(&taken.file, &taken.model);
            replica = Some(taken);
        }
    }
    if let Some(Replica { file, model, .. }) = replica {
        file.close(CloseMode::Fast).expect("close");
        check_all(&options.clone().open(&copy).expect("open"), &model);
    }
    assert_no_spool(folder.path());
}

/// The number of random cases of a medium. `lab/long` takes more, by `PROPTEST_CASES`.
const CASES: u32 = 8;

fn test_on(ground: &Ground, durability: Durability) {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok());
    let config = Config { cases: cases.unwrap_or(CASES).min(24), ..Config::default() };
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..config });
    // A write, a seal, and what else there is.
    let one = || prop_oneof![2 => op(), 1 => Just(Op::Seal)];
    let result = runner.run(&prop::collection::vec((one(), op()), 1..60), |ops| {
        run_all(&ground.options().durability(durability), &ground.scratch(), &ops);
        Ok(())
    });
    result.unwrap_or_else(|e| panic!("{} {durability:?}: {e}", ground.medium));
}

#[test]
fn a_replica_has_each_sent_state_on_each_medium() {
    media().iter().for_each(|ground| test_on(ground, Durability::default()));
}

#[test]
fn a_replica_has_each_sent_state_with_atomic_sync() {
    let of_kind = |medium: Medium| media().into_iter().find(move |ground| ground.medium == medium);
    for ground in [Medium::Ram, Medium::Dax].into_iter().filter_map(of_kind) {
        test_on(&ground, Durability::AtomicSync);
    }
}

/// A sender with two snapshots, and a replica with the first one.
pub(super) struct Both {
    pub sender: AtomicMappedFile,
    pub replica: AtomicMappedFile,
    pub scratch: common::Scratch,
}

pub(super) fn both() -> Both {
    let scratch = common::ram().scratch();
    let sender = common::ram().options().create(true).len(3 * PAGE as u64 + 5);
    let sender = sender.open(scratch.file("sender")).expect("open");
    sender.write_at(&[1; 100], 4000).expect("write");
    sender.snapshot("a").expect("seal");
    let stream = export(&sender, None, "a");
    let options = common::ram().options();
    let (replica, _) = options.import(scratch.file("replica"), &stream[..]).expect("a new file");
    sender.write_many(&[(70, &[2; 10]), (2 * PAGE as u64, &[3; 130])]).expect("write");
    sender.snapshot("b").expect("seal");
    Both { sender, replica, scratch }
}

/// Returns the names of the snapshots. What each holds may grow: what was kept is kept.
fn names(file: &AtomicMappedFile) -> Vec<String> {
    file.snapshots().into_iter().map(|found| found.name).collect()
}

/// Asserts that the replica refuses a stream, and stays as it is. Returns the error.
fn refused(replica: &AtomicMappedFile, stream: &[u8]) -> Error {
    let (bytes, snapshots) = (read_all(replica), names(replica));
    let error = replica.import(stream).expect_err("it is refused");
    assert_same(&read_all(replica), &bytes, "a refused import changes the file");
    assert_eq!(names(replica), snapshots);
    error
}

#[test]
fn each_flipped_byte_and_each_cut_is_noticed_and_changes_nothing() {
    let Both { sender, replica, scratch: _scratch } = both();
    let stream = export(&sender, Some("a"), "b");
    assert!(stream.len() < 1000, "{}", stream.len());
    for n in 0..stream.len() {
        let mut damaged = stream.clone();
        damaged[n] ^= 1 << (n % 8);
        let error = refused(&replica, &damaged);
        // A length that is too large, and the first frame that is told, end the stream too early.
        let is_it = |why| matches!(why, StreamError::Damaged { .. } | StreamError::Cut { .. });
        assert!(is_it(why(error.clone())), "byte {n}: {error}");
        match why(refused(&replica, &stream[..n])) {
            StreamError::Cut { offset, .. } => assert_eq!(offset, n as u64),
            why => panic!("cut at {n}: {why}"),
        }
    }
    replica.import(&stream[..]).expect("the whole stream");
    assert_same(&read_all(&replica), &read_all(&sender), "the replica");
}

#[test]
fn an_increment_is_taken_once_and_in_order_and_from_its_base() {
    let Both { sender, replica, scratch } = both();
    sender.write_at(&[9; 64], 64).expect("write");
    sender.snapshot("c").expect("seal");
    let [b, c] = [("a", "b"), ("b", "c")].map(|(from, to)| export(&sender, Some(from), to));
    assert!(matches!(why(refused(&replica, &c)), StreamError::WrongBase { .. }));
    replica.import(&b[..]).expect("the next one");
    let again = refused(&replica, &b);
    assert!(matches!(&again, Error::Snapshot { why: SnapshotError::Exists { .. }, .. }), "{again}");
    replica.drop_snapshot("b").expect("drop");
    assert!(matches!(why(refused(&replica, &b)), StreamError::WrongBase { .. }));
    // A replica that was written to is no base, until it is as it was.
    let mut old = [0; 3];
    replica.read_at(&mut old, 5000).expect("read");
    replica.write_at(b"own", 5000).expect("write");
    assert!(matches!(why(refused(&replica, &c)), StreamError::WrongBase { .. }));
    replica.write_at(&old, 5000).expect("write");
    replica.import(&c[..]).expect("the last one");
    assert_same(&read_all(&replica), &read_all(&sender), "the replica");
    let error = sender.export(Some("c"), "b", std::io::sink()).expect_err("it is newer");
    assert!(matches!(why(error), StreamError::WrongOrder { .. }));
    assert_no_spool(scratch.path());
}

#[test]
fn a_whole_file_replaces_no_content_unless_it_is_asked_to() {
    let Both { sender, replica, scratch } = both();
    let whole = export(&sender, None, "b");
    assert_eq!(why(refused(&replica, &whole)), StreamError::NotEmpty);
    replica.write_at(&[7; 9000], 0).expect("write");
    let before = read_all(&replica);
    replica.snapshot("own").expect("seal");
    replica.import_over(&whole[..]).expect("a whole file");
    assert_same(&read_all(&replica), &read_all(&sender), "the replica");
    let own = replica.open_snapshot("own").expect("open").read_vec().expect("read");
    assert_same(&own, &before, "a snapshot of its own");

    let options = || common::ram().options();
    let there = options().import(scratch.file("replica"), &whole[..]).expect_err("it is there");
    let Error::Io { source, .. } = &there else { panic!("{there}") };
    assert_eq!(source.kind(), ErrorKind::AlreadyExists);
    let increment = export(&sender, Some("a"), "b");
    let new = scratch.file("new");
    let error = options().import(&new, &increment[..]).expect_err("there is no base");
    assert!(matches!(why(error), StreamError::NoBase { .. }));
    assert!(!new.exists());
    // An empty file is as good as none.
    let empty = options().create(true).open(&new).expect("open");
    empty.import(&whole[..]).expect("a whole file");
    assert_same(&read_all(&empty), &read_all(&sender), "what was empty");
    assert_no_spool(scratch.path());
}

#[test]
fn a_file_of_any_length_is_sent() {
    let scratch = common::ram().scratch();
    let sender = common::ram().options().create(true).open(scratch.file("sender")).expect("open");
    let lens = [0, 1, 0, PAGE, 4 * PAGE - 1, 3 * PAGE, 4 * PAGE, 1, 70 * PAGE, 0];
    let mut last = None::<String>;
    let mut replica = None;
    for (n, len) in lens.into_iter().enumerate() {
        sender.replace(&vec![n as u8 + 1; len]).expect("replace");
        let name = format!("{n}");
        sender.snapshot(&name).expect("seal");
        let stream = export(&sender, last.as_deref(), &name);
        let replica = replica.get_or_insert_with(|| {
            let options = common::ram().options();
            options.import(scratch.file("replica"), &stream[..]).expect("a new file").0
        });
        if last.is_some() {
            replica.import(&stream[..]).expect("an import");
        }
        assert_same(&read_all(replica), &read_all(&sender), &name);
        last = Some(name);
    }
}

/// A shrink keeps no slices of zeros. Records of an import would stand in their place.
#[test]
fn a_longer_import_keeps_zeros_for_a_longer_snapshot() {
    for ground in media() {
        let scratch = ground.scratch();
        let open = |name| ground.options().create(true).len(PAGE as u64).open(scratch.file(name));
        let [sender, replica] = ["sender", "replica"].map(|name| open(name).expect("open"));
        sender.snapshot("a").expect("seal");
        replica.set_len(3 * PAGE as u64).expect("longer");
        replica.snapshot("long").expect("seal");
        replica.set_len(PAGE as u64).expect("shorter");
        sender.replace(&[7; 2 * PAGE]).expect("replace");
        sender.snapshot("b").expect("seal");
        replica.import(&export(&sender, Some("a"), "b")[..]).expect("an import");
        let long = replica.open_snapshot("long").expect("open").read_vec().expect("read");
        assert_same(&long, &[0; 3 * PAGE], "the longer snapshot");
        assert_same(&read_all(&replica), &[7; 2 * PAGE], "the present");
    }
}

/// Returns the offsets of the frames of a stream, the last one included.
pub(super) fn frames(stream: &[u8]) -> Vec<usize> {
    let (mut at, mut found) = (320, Vec::new());
    while at < stream.len() {
        found.push(at);
        let len = stream[at + 12..at + 16].try_into().expect("4 bytes");
        at += 32 + u32::from_le_bytes(len) as usize;
    }
    found
}

/// Like [`both`], with an increment of three frames.
fn with_frames() -> (Both, Vec<u8>) {
    let both = both();
    both.sender.replace(&Rng(5).bytes(150 * PAGE)).expect("replace");
    both.sender.snapshot("c").expect("seal");
    let stream = export(&both.sender, Some("a"), "c");
    assert_eq!(frames(&stream).len(), 4);
    (both, stream)
}

#[test]
fn frames_that_lack_or_come_twice_or_belong_elsewhere_are_noticed_where_they_are() {
    let (Both { sender, replica, scratch: _scratch }, stream) = with_frames();
    let [first, second, third, last] = frames(&stream)[..] else { panic!("four frames") };
    let other = export(&sender, None, "c");
    let [_, of_other, after_other, ..] = frames(&other)[..] else { panic!("more frames") };
    let spliced = [
        [&stream[..first], &stream[second..]].concat(),
        [&stream[..second], &stream[third..]].concat(),
        [&stream[..second], &stream[first..]].concat(),
        [&stream[..second], &other[of_other..after_other], &stream[third..]].concat(),
        [&stream[..third], &stream[last..]].concat(),
    ];
    for (at, spliced) in [first, second, second, second, third].into_iter().zip(spliced) {
        match why(refused(&replica, &spliced)) {
            StreamError::Damaged { offset, .. } => assert_eq!(offset, at as u64),
            why => panic!("{why}"),
        }
    }
}

#[test]
fn a_broken_transfer_goes_on_where_it_broke() {
    let (Both { sender, replica, scratch }, stream) = with_frames();
    let path = scratch.file("replica");
    let places = frames(&stream);
    let progress = || AtomicMappedFile::import_progress(&path).expect("the progress");
    assert_eq!(progress(), 0);
    let rest = |first| {
        let mut stream = Vec::new();
        sender.export_from_frame(Some("a"), "c", first, &mut stream).expect("an export");
        stream
    };
    assert_eq!(rest(0), stream);
    for (n, place) in places.iter().enumerate() {
        let broken = [&stream[..*place], &[0; 20][..]].concat();
        match why(refused(&replica, &broken)) {
            StreamError::Cut { frames, .. } => assert_eq!(frames, n as u64),
            why => panic!("{why}"),
        }
        assert_eq!(progress(), n as u64);
        if n < 3 {
            let gap = why(refused(&replica, &rest(n as u64 + 1)));
            assert_eq!(gap, StreamError::Gap { first: n as u64 + 1, frames: n as u64 });
        }
        assert_eq!(progress(), n as u64, "a stream with a gap takes nothing away");
    }
    // A transfer may go on at an earlier frame than it could, and break once more.
    let earlier = rest(1);
    assert!(matches!(
        why(refused(&replica, &earlier[..earlier.len() - 20])),
        StreamError::Cut { .. }
    ));
    assert_eq!(progress(), 3);
    // Another stream begins anew.
    let other = export(&sender, Some("a"), "b");
    assert!(matches!(why(refused(&replica, &other[..400])), StreamError::Cut { .. }));
    let gap = why(refused(&replica, &rest(3)));
    assert_eq!(gap, StreamError::Gap { first: 3, frames: 0 });
    assert!(matches!(why(refused(&replica, &stream[..places[2]])), StreamError::Cut { .. }));
    let report = replica.import(&rest(2)[..]).expect("the rest");
    assert_eq!(report.frames, 3);
    assert_same(&read_all(&replica), &read_all(&sender), "the replica");
    assert_eq!(progress(), 0);
    assert_no_spool(scratch.path());
}

/// A reader that fails in the middle, as a connection does.
struct Failing<'s>(&'s [u8]);

impl Read for Failing<'_> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        if self.0.is_empty() { Err(ErrorKind::ConnectionReset.into()) } else { self.0.read(to) }
    }
}

#[test]
fn a_reader_or_writer_that_fails_is_an_error_and_changes_nothing() {
    let (Both { sender, replica, scratch }, stream) = with_frames();
    let bytes = read_all(&replica);
    let error = replica.import(Failing(&stream[..frames(&stream)[1] + 9])).expect_err("it fails");
    let Error::Io { source, .. } = &error else { panic!("{error}") };
    assert_eq!(source.kind(), ErrorKind::ConnectionReset);
    assert_same(&read_all(&replica), &bytes, "the replica");
    let progress = AtomicMappedFile::import_progress(scratch.file("replica")).expect("progress");
    assert_eq!(progress, 1);
    let mut small = [0; 1000];
    let error = sender.export(None, "c", &mut small[..]).expect_err("it is full");
    assert!(matches!(error, Error::Io { .. }), "{error}");
    sender.drop_snapshot("c").expect("the export holds it no more");
}

/// All frames of these streams are right, and they state another content.
#[test]
fn a_stream_that_does_not_lead_to_its_content_is_refused() {
    let Both { sender, replica, scratch } = both();
    for (from, stream) in [Some("a"), None].map(|from| (from, export(&sender, from, "b"))) {
        let at = *frames(&stream).last().expect("the last frame");
        let mut forged = stream;
        forged[at + 32] ^= 1;
        let seed = crc32c::crc32c(&forged[24..320]);
        let sum = crc32c::crc32c_append(seed, &forged[at + 12..]);
        forged[at + 8..at + 12].copy_from_slice(&sum.to_le_bytes());
        let error = match from {
            Some(_) => refused(&replica, &forged),
            None => {
                let new = scratch.file("new");
                let error = common::ram().options().import(&new, &forged[..]).expect_err("forged");
                assert!(!new.exists());
                let (bytes, snapshots) = (read_all(&replica), names(&replica));
                let over = replica.import_over(&forged[..]).expect_err("forged");
                assert_eq!(why(over), StreamError::WrongResult);
                assert_same(&read_all(&replica), &bytes, "the replica");
                assert_eq!(names(&replica), snapshots);
                error
            }
        };
        assert_eq!(why(error), StreamError::WrongResult);
    }
}

#[test]
fn an_export_is_one_state_beside_writers() {
    for ground in media() {
        let scratch = ground.scratch();
        let file =
            ground.options().create(true).len(FIRST_LEN).open(scratch.file("x")).expect("open");
        let last = std::sync::atomic::AtomicBool::new(false);
        let is_over = || last.load(std::sync::atomic::Ordering::Relaxed);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut rng = Rng(3);
                while !is_over() {
                    let (at, bytes) = (rng.below(FIRST_LEN - 5000), rng.below(5000) as usize);
                    file.write_at(&rng.bytes(bytes), at).expect("write");
                }
            });
            let mut replica = None::<AtomicMappedFile>;
            for n in 0..6 {
                let name = n.to_string();
                file.snapshot(&name).expect("seal");
                let from = (n > 0).then(|| (n - 1).to_string());
                let stream = export(&file, from.as_deref(), &name);
                let sealed = file.open_snapshot(&name).expect("open").read_vec().expect("read");
                let replica = replica.get_or_insert_with(|| {
                    let options = ground.options();
                    options.import(scratch.file("replica"), &stream[..]).expect("a new file").0
                });
                if n > 0 {
                    replica.import(&stream[..]).expect("an import");
                }
                assert_same(&read_all(replica), &sealed, &name);
            }
            last.store(true, std::sync::atomic::Ordering::Relaxed);
            writer.join().expect("a writer");
        });
    }
}

/// A process died between the commit of its import and the removal of what it had received. That
/// took space until another stream came.
#[test]
fn what_a_dead_process_has_received_goes_with_the_next_import() {
    for ground in media() {
        let scratch = ground.scratch();
        let options = ground.options().create(true).len(10_000);
        let sender = options.open(scratch.file("sender")).expect("open");
        sender.snapshot("a").expect("seal");
        sender.write_at(b"more", 0).expect("write");
        sender.snapshot("b").expect("seal");
        let streams = [export(&sender, None, "a"), export(&sender, Some("a"), "b")];
        let path = scratch.file("replica");
        let (replica, _) = ground.options().import(&path, &streams[0][..]).expect("a new file");
        let spool = scratch.file(".atomic-mmap-import-replica");
        for (kept, stays) in [(&streams[1], true), (&streams[0], false)] {
            std::fs::write(&spool, kept).expect("a spool");
            let again = why_not(replica.import(&streams[0][..]).expect_err("it is there"));
            assert!(matches!(again, SnapshotError::Exists { .. }), "{again:?}");
            assert_eq!(spool.exists(), stays, "the spool of another stream stays");
        }
        replica.import(&streams[1][..]).expect("import");
        assert_no_spool(scratch.path());
    }
}

/// The bytes are checked, and read again when they are applied.
#[test]
fn what_another_user_may_change_is_not_taken() {
    use std::os::unix::fs::chown;
    let ground = common::ram();
    let scratch = ground.scratch();
    let sender = ground.options().create(true).len(10_000).open(scratch.file("sender"));
    let sender = sender.expect("open");
    sender.write_at(&[1; 10_000], 0).expect("write");
    sender.snapshot("a").expect("seal");
    let stream = export(&sender, None, "a");
    let path = scratch.file("replica");
    let spool = scratch.file(".atomic-mmap-import-replica");
    std::fs::write(&spool, &stream[..100]).expect("a spool");
    std::fs::hard_link(&spool, scratch.file("link")).expect("link");
    let begun = frames(&stream)[1] + 5;
    // The frames that were received lie under another name, and are found there.
    let goes_on = || {
        let cut = ground.options().import(&path, &stream[..begun]).map(drop).expect_err("cut");
        assert!(matches!(why(cut), StreamError::Cut { .. }));
        assert_eq!(AtomicMappedFile::import_progress(&path).expect("progress"), 1);
        assert_eq!(std::fs::read(&spool).expect("read"), &stream[..100], "it is as it was");
        assert!(!path.exists());
    };
    goes_on();
    std::fs::remove_file(scratch.file("link")).expect("remove");
    if chown(&spool, Some(12_345), None).is_ok() {
        goes_on();
    } else {
        eprintln!("only root can give a file away");
        std::fs::remove_file(&spool).expect("remove");
    }
    ground.options().import(&path, &stream[..]).expect("a new file");
}

fn why_not(error: Error) -> SnapshotError {
    match error {
        Error::Snapshot { why, .. } => why,
        error => panic!("another error: {error}"),
    }
}

const CHILD: &str = concat!(module_path!(), "::plays_the_receiver_that_is_killed_if_it_is_one");
/// States that are sent in a test with kills.
const STATES: u64 = 8;
const PAGES: usize = 300;

#[test]
fn plays_the_receiver_that_is_killed_if_it_is_one() {
    let Some((role, path)) = role() else { return };
    let ground = media().into_iter().find(|ground| ground.medium.to_string() == role);
    let file = ground.expect("a medium").options().open(&path).expect("open");
    for n in file.snapshots().len() as u64..STATES {
        let stream = std::fs::read(path.with_extension(n.to_string())).expect("a stream");
        file.import(&stream[..]).expect("an import");
        std::fs::write(path.with_extension("log"), n.to_string()).expect("a log");
    }
}

/// Returns the states of the sender, which differ in some slices and in their lengths.
fn states() -> Vec<Vec<u8>> {
    let (mut rng, mut state) = (Rng(77), vec![0; PAGES * PAGE]);
    let mut all = Vec::new();
    for n in 0..STATES {
        state.resize((PAGES - (n as usize % 3) * 40) * PAGE + n as usize, 0);
        for _ in 0..200 {
            let at = rng.below(state.len() as u64 - 600) as usize;
            let len = 1 + rng.below(600) as usize;
            state[at..at + len].copy_from_slice(&rng.bytes(len));
        }
        all.push(state.clone());
    }
    all
}

#[test]
fn a_kill_leaves_the_old_state_or_the_new_one_and_the_next_import_goes_on() {
    let rounds = std::env::var("ATOMIC_MMAP_TEST_ROUNDS").ok().and_then(|n| n.parse().ok());
    for ground in media() {
        let states = states();
        let mut rng = Rng(std::process::id().into());
        for _ in 0..rounds.unwrap_or(2) {
            let scratch = ground.scratch();
            let path = scratch.file("replica");
            let sender = ground.options().create(true).open(scratch.file("sender")).expect("open");
            for (n, state) in states.iter().enumerate() {
                sender.replace(state).expect("replace");
                sender.snapshot(&n.to_string()).expect("seal");
                let from = n.checked_sub(1).map(|n| n.to_string());
                let stream = export(&sender, from.as_deref(), &n.to_string());
                std::fs::write(path.with_extension(n.to_string()), stream).expect("a stream");
            }
            let first = std::fs::read(path.with_extension("0")).expect("a stream");
            let (file, _) = ground.options().import(&path, &first[..]).expect("a new file");
            file.close(CloseMode::Fast).expect("close");
            receive_among_kills(&ground, &path, (&sender, &states), &mut rng);
            // A process may have been killed between its last commit and the removal of the spool.
            let last = std::fs::read(path.with_extension((STATES - 1).to_string()));
            let file = ground.options().open(&path).expect("open");
            let again = file.import(&last.expect("a stream")[..]).expect_err("it is there");
            let is_there =
                matches!(&again, Error::Snapshot { why: SnapshotError::Exists { .. }, .. });
            assert!(is_there, "{again}");
            assert_no_spool(scratch.path());
        }
    }
}

fn receive_among_kills(
    ground: &Ground,
    path: &Path,
    (sender, states): (&AtomicMappedFile, &[Vec<u8>]),
    rng: &mut Rng,
) {
    let (mut there, mut most) = (1, 20_000);
    while there < STATES as usize {
        let mut child = child(CHILD, &ground.medium.to_string(), path).spawn().expect("a child");
        std::thread::sleep(Duration::from_micros(rng.below(most)));
        child.kill().expect("kill");
        child.wait().expect("wait");
        let frames = AtomicMappedFile::import_progress(path).expect("the progress");
        let file = ground.options().open(path).expect("a killed receiver leaves a file");
        let log = std::fs::read_to_string(path.with_extension("log")).unwrap_or_default();
        let acknowledged = log.parse().unwrap_or(0);
        let found = file.snapshots().len();
        println!(
            "{}: {there} were there, {acknowledged} acknowledged, {found} found, {frames} frames",
            ground.medium
        );
        assert!(found > acknowledged && found >= there);
        assert_same(&read_all(&file), &states[found - 1], "the present");
        for (n, state) in states[..found].iter().enumerate() {
            let sealed = common::read_snapshot(&file, &n.to_string());
            assert_same(&sealed, state, &format!("snapshot {n}"));
        }
        // On a slow machine a child may need longer for its first import.
        most *= if found == there { 2 } else { 1 };
        there = found;
        if frames > 0 && found < STATES as usize {
            let [from, to] = [found - 1, found].map(|n| n.to_string());
            let mut rest = Vec::new();
            sender.export_from_frame(Some(&from), &to, frames, &mut rest).expect("the rest");
            match file.import(&rest[..]) {
                Ok(_) => there += 1,
                // It was killed after the import, and before its spool was removed.
                Err(error) => {
                    assert!(matches!(why(error), StreamError::Gap { .. }));
                    let whole = std::fs::read(path.with_extension(&to)).expect("a stream");
                    file.import(&whole[..]).expect("the whole stream");
                    there += 1;
                }
            }
        }
        file.close(CloseMode::Fast).expect("close");
    }
}
