//! Tests of imports that meet what they should not: names, pipes, limits, options, forged streams,
//! a full store, other threads, and callers' code that comes back to the file.

use super::export::{Both, assert_no_spool, both, export, frames, why};
use crate::common::{self, Rng, assert_same, child, media, media_in_memory, read_all, role};
use atomic_mmap::testing::call;
use atomic_mmap::testing::recorder::{Death, Recorder};
use atomic_mmap::{AtomicMappedFile, CloseMode, Error, StreamError};
use std::fs;
use std::io::{ErrorKind, Read, Write};
#[cfg(unix)]
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const PAGE: usize = 4096;
/// Time after which a call hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// The name of the spool was the prefix and the name of the file, which file systems do not take
/// from 236 bytes on.
#[test]
fn a_file_with_a_long_name_takes_a_stream() {
    let Both { sender, scratch, .. } = both();
    let stream = export(&sender, None, "a");
    for len in [235, 236, 238, 239, 255] {
        let path = scratch.file(&"n".repeat(len));
        let new = || common::ram().options().import(&path, &stream[..]).map(drop);
        let half = frames(&stream)[1] + 5;
        let cut = common::ram().options().import(&path, &stream[..half]).map(drop);
        assert!(matches!(why(cut.expect_err("it is cut")), StreamError::Cut { frames: 1, .. }));
        assert_eq!(AtomicMappedFile::import_progress(&path).expect("progress"), 1, "{len}");
        new().unwrap_or_else(|error| panic!("{len}: {error}"));
        let file = common::ram().options().open(&path).expect("open");
        file.import(&export(&sender, Some("a"), "b")[..]).expect("changes");
        assert_same(&read_all(&file), &read_all(&sender), "a long name");
        file.close(CloseMode::Spatial).expect("close");
        fs::remove_file(&path).expect("remove");
    }
    assert_no_spool(scratch.path());
}

/// An open of a pipe for reading alone waits for a writer. Any user of a shared folder could put a
/// pipe or a link there, and so keep a file from receiving.
#[cfg(unix)]
#[test]
fn what_another_program_puts_in_the_place_of_a_spool_is_left_alone() {
    use std::os::unix::ffi::OsStrExt;
    let Both { sender, replica, scratch } = both();
    let spool = scratch.file(".atomic-mmap-import-replica");
    let name = std::ffi::CString::new(spool.as_os_str().as_bytes()).expect("no zero");
    // SAFETY: the name is a C string.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o666) }, 0);
    // All names by which a spool is found again, and those of an unfinished file.
    for n in 1..8 {
        symlink("victim", scratch.file(&format!(".atomic-mmap-import{n}-replica"))).expect("link");
    }
    for n in ["", "1", "2", "3", "4", "5", "6", "7"] {
        symlink("victim", scratch.file(&format!(".atomic-mmap-new{n}-third"))).expect("link");
    }
    let streams = [export(&sender, Some("a"), "b"), export(&sender, None, "a")];
    let (path, third) = (scratch.file("replica"), scratch.file("third"));
    let whole = streams[1].clone();
    let (told, tells) = mpsc::channel();
    thread::spawn(move || {
        let progress = AtomicMappedFile::import_progress(path).map(drop);
        let [taken, there] = streams.map(|stream| replica.import(&stream[..]).map(drop));
        let made = common::ram().options().import(third, &whole[..]).map(drop);
        let _the_test_may_be_over = told.send([progress, taken, there, made]);
    });
    let [progress, taken, there, made] =
        tells.recv_timeout(PATIENCE).expect("it waits for the pipe");
    for done in [progress, taken, made] {
        done.expect("another name is taken");
    }
    assert!(matches!(there, Err(Error::Snapshot { .. })), "{there:?}");
    assert!(!scratch.file("victim").exists());
    let names = |begin: &str| {
        let all = fs::read_dir(scratch.path()).expect("list").flatten();
        all.filter(|entry| entry.file_name().to_string_lossy().starts_with(begin)).count()
    };
    assert_eq!((names(".atomic-mmap-import"), names(".atomic-mmap-new")), (8, 8));
}

/// The file was made first. It stayed without its snapshot, and a second call found it there.
#[test]
fn options_that_do_not_fit_a_stream_make_no_file() {
    let Both { sender, scratch, .. } = both();
    let stream = export(&sender, None, "a");
    let new = scratch.file("new");
    let options = || common::ram().options();
    let error = options().read_only(true).import(&new, &stream[..]).map(drop).expect_err("reads");
    assert!(matches!(error, Error::ReadOnly { .. }), "{error}");
    let error = options().max_len(5000).import(&new, &stream[..]).map(drop).expect_err("longer");
    let is_it = matches!(error, Error::TooLong { len: 12_293, max_len: 5000, .. });
    assert!(is_it, "{error}");
    // An open alone finds these out, and was made after the transfer.
    let file = scratch.file("a file");
    fs::write(&file, b"no folder").expect("write");
    for (what, options) in [
        ("no such folder", options().reflection_dir(scratch.file("missing"))),
        ("no folder", options().reflection_dir(&file)),
        ("no such addresses", options().max_len(u64::MAX)),
        ("no such place", options().mark_at(7)),
        ("no such place", options().mark_at(1 << 50)),
        #[cfg(not(target_os = "linux"))]
        ("no such medium", options().medium(atomic_mmap::Medium::Dax)),
    ] {
        // Only the header is there: an import that waits for the first frame is told of the end.
        let error = options.import(&new, &stream[..frames(&stream)[0]]).map(drop).expect_err(what);
        assert!(!matches!(error, Error::Stream { .. }), "{what}: {error}");
    }
    assert!(!new.exists());
    assert_no_spool(scratch.path());
    options().max_len(12_293).import(&new, &stream[..]).expect("a new file");
}

/// The sender had begun another stream where a transfer broke, and `import_progress` went on to
/// name the frame of the first one: each round failed as the one before.
#[test]
fn a_transfer_that_is_resumed_with_another_stream_begins_anew() {
    let Both { sender, scratch, .. } = both();
    let new = scratch.file("new");
    let import = |stream: &[u8]| common::ram().options().import(&new, stream).map(drop);
    let stream = export(&sender, None, "a");
    import(&stream[..frames(&stream)[1] + 5]).expect_err("it breaks");
    let from = AtomicMappedFile::import_progress(&new).expect("progress");
    assert!(from > 0);
    let mut other = Vec::new();
    sender.export_from_frame(None, "b", from, &mut other).expect("export");
    let gap = why(import(&other).expect_err("frames of another stream"));
    assert!(matches!(gap, StreamError::Gap { frames: 0, .. }), "{gap:?}");
    assert_eq!(AtomicMappedFile::import_progress(&new).expect("progress"), 0);
    import(&export(&sender, None, "b")).expect("the second round");
}

/// A new file of an empty snapshot got the length of the options. The next changes did not fit it.
#[test]
fn a_new_file_has_the_length_of_the_sender() {
    let scratch = common::ram().scratch();
    let options = || common::ram().options().create(true);
    let sender = options().open(scratch.file("sender")).expect("open");
    sender.snapshot("empty").expect("seal");
    sender.replace(b"more").expect("replace");
    sender.snapshot("more").expect("seal");
    let stream = export(&sender, None, "empty");
    let (file, report) =
        options().len(10_000).import(scratch.file("new"), &stream[..]).expect("a new file");
    assert_eq!((file.len(), report.snapshot.len), (0, 0));
    file.import(&export(&sender, Some("empty"), "more")[..]).expect("changes");
    assert_same(&read_all(&file), b"more", "the replica");
}

/// Returns the stream with other bytes, and with right checksums.
fn forged(stream: &[u8], at: usize, byte: u8) -> Vec<u8> {
    let mut forged = stream.to_vec();
    forged[at] = byte;
    let all = frames(stream);
    let seed = crc32c::crc32c(&forged[24..320]);
    let mut sums = 0;
    for (n, frame) in all.iter().enumerate() {
        let end = all.get(n + 1).copied().unwrap_or(stream.len());
        if n + 1 == all.len() {
            forged[frame + 40..frame + 44].copy_from_slice(&u32::to_le_bytes(sums));
        }
        let sum = crc32c::crc32c_append(seed, &forged[frame + 12..end]);
        forged[frame + 8..frame + 12].copy_from_slice(&sum.to_le_bytes());
        sums = crc32c::crc32c_append(sums, &sum.to_le_bytes());
    }
    forged
}

/// The bytes would come to light when the file grows.
#[test]
fn a_stream_has_no_bytes_past_the_end_of_its_file() {
    for ground in media_in_memory() {
        let scratch = ground.scratch();
        let options = ground.options().create(true).len(100);
        let sender = options.clone().open(scratch.file("sender")).expect("open");
        sender.write_at(&[1; 100], 0).expect("write");
        sender.snapshot("a").expect("seal");
        let stream = export(&sender, None, "a");
        let replica = options.open(scratch.file("replica")).expect("open");
        replica.import_over(&forged(&stream, 0, b'A')[..]).expect("all is right");
        replica.drop_snapshot("a").expect("drop");
        let last = *frames(&stream).last().expect("the end");
        let error = replica.import_over(&forged(&stream, last - 20, 7)[..]).expect_err("more");
        assert!(matches!(why(error), StreamError::Damaged { .. }));
        replica.set_len(PAGE as u64).expect("longer");
        assert_same(&read_all(&replica)[100..], &[0; PAGE - 100], "what has grown");
    }
}

const LIMITED: &str = concat!(module_path!(), "::plays_the_receiver_with_a_limit_if_it_is_one");

#[cfg(unix)]
#[test]
fn plays_the_receiver_with_a_limit_if_it_is_one() {
    let Some((role, path)) = role() else { return };
    assert_eq!(role, "limit");
    let file = common::ram().options().open(&path).expect("open");
    let stream = fs::read(path.with_extension("stream")).expect("a stream");
    let before = read_all(&file);
    let limit = libc::rlimit { rlim_cur: 300_000, rlim_max: 300_000 };
    // SAFETY: the structure is readable, and the limit is that of this child.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
    let error = file.import(&stream[..]).expect_err("what is received is longer");
    assert!(matches!(error, Error::NoSpace { .. }), "{error:?}");
    assert_same(&read_all(&file), &before, "the file");
}

/// The kernel sent a signal that ended the process.
#[cfg(unix)]
#[test]
fn a_limit_on_the_length_of_files_is_an_error_of_an_import_and_no_signal() {
    if cfg!(atomic_mmap_portable) {
        return;
    }
    let Both { sender, replica, scratch } = both();
    sender.replace(&Rng(5).bytes(150 * PAGE)).expect("replace");
    sender.snapshot("c").expect("seal");
    let path = scratch.file("replica");
    fs::write(path.with_extension("stream"), export(&sender, Some("a"), "c")).expect("write");
    replica.close(CloseMode::Fast).expect("close");
    common::run_child(LIMITED, "limit", &path);
    assert_no_spool(scratch.path());
}

/// The bytes that a shorter length takes were kept behind the commit point. A full disk then left a
/// file that only opened again with space.
#[test]
fn a_full_store_is_found_before_a_shorter_state_is_taken() {
    for ground in media() {
        let mut failed = 0;
        for nth in 1.. {
            let scratch = ground.scratch();
            let recorder = Recorder::new();
            let options = ground.options().create(true).len(900 * PAGE as u64);
            let path = scratch.file("replica");
            let replica = options.open_recorded(&recorder, &path).expect("open");
            let bytes = Rng(9).bytes(900 * PAGE);
            replica.write_at(&bytes, 0).expect("write");
            replica.snapshot("own").expect("seal");
            let sender = ground.options().create(true).len(5000).open(scratch.file("sender"));
            let sender = sender.expect("open");
            sender.snapshot("a").expect("seal");
            let stream = export(&sender, None, "a");
            recorder.fail_from(call::ALLOCATE, nth, libc::ENOSPC);
            let taken = replica.import_over(&stream[..]);
            let is_over = recorder.heal();
            match taken {
                Ok(_) => assert_same(&read_all(&replica), &read_all(&sender), "the replica"),
                Err(error) => {
                    failed += 1;
                    assert!(matches!(error, Error::NoSpace { .. }), "{nth}: {error:?}");
                    replica.health().expect("it goes on");
                    assert_same(&read_all(&replica), &bytes, "the replica");
                    replica.import_over(&stream[..]).expect("with space");
                }
            }
            let own = replica.open_snapshot("own").expect("open").read_vec().expect("read");
            assert_same(&own, &bytes, "a snapshot of its own");
            if is_over {
                break;
            }
        }
        assert!(failed > 0, "no call has failed on {}", ground.medium);
    }
}

/// A second name stayed that nothing removed, if the process died before it removed the first one.
#[test]
fn a_new_file_has_one_name_whatever_fails() {
    let Both { sender, .. } = both();
    let stream = export(&sender, None, "a");
    let (scratch, recorder) = (common::ram().scratch(), Recorder::new());
    recorder.fail_from(call::REMOVE, 1, libc::EIO);
    let options = common::ram().options();
    let made = options.import_recorded(&recorder, scratch.file("new"), &stream[..]);
    recorder.heal();
    let (file, _) = made.expect("a new file");
    let names = fs::read_dir(scratch.path()).expect("list");
    let names = names.map(|entry| entry.expect("an entry").file_name().into_string());
    let names: Vec<String> = names.map(|name| name.expect("a name")).collect();
    let is_unfinished = |name: &String| name.starts_with(".atomic-mmap-new-");
    assert!(!names.iter().any(is_unfinished), "{names:?}");
    // The next stream comes to what could not be removed.
    file.import(&export(&sender, Some("a"), "b")[..]).expect("changes");
    assert_no_spool(scratch.path());
}

/// A sender and its replica may be in one process, and call each other.
struct Calling<'f> {
    file: &'f AtomicMappedFile,
    stream: &'f [u8],
}

impl Read for Calling<'_> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let _its_bytes = read_all(self.file);
        self.file.sync().map_err(std::io::Error::other)?;
        let most = to.len().min(100);
        self.stream.read(&mut to[..most])
    }
}

/// Writes to the file that is exported.
struct Writing<'f> {
    file: &'f AtomicMappedFile,
    stream: Vec<u8>,
}

impl Write for Writing<'_> {
    fn write(&mut self, from: &[u8]) -> std::io::Result<usize> {
        let at = self.stream.len() as u64 % self.file.len();
        self.file.write_at(b"x", at).map_err(std::io::Error::other)?;
        let len = from.len().min(999);
        self.stream.extend_from_slice(&from[..len]);
        Ok(len)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.set_len(9 * PAGE as u64).map_err(std::io::Error::other)
    }
}

#[test]
fn readers_and_writers_of_streams_may_use_the_file() {
    for ground in media() {
        let scratch = ground.scratch();
        let open = |name| ground.options().create(true).len(900).open(scratch.file(name));
        let sender = open("sender").expect("open");
        sender.replace(&Rng(2).bytes(200 * PAGE)).expect("replace");
        sender.snapshot("a").expect("seal");
        let sealed = read_all(&sender);
        let mut writing = Writing { file: &sender, stream: Vec::new() };
        sender.export(None, "a", &mut writing).expect("an export");
        let stream = writing.stream;
        let replica = open("replica").expect("open");
        replica.import_over(Calling { file: &replica, stream: &stream }).expect("an import");
        assert_same(&read_all(&replica), &sealed, "the replica");
    }
}

#[test]
fn changes_are_taken_whole_or_not_at_all_beside_writers() {
    for ground in media_in_memory() {
        let scratch = ground.scratch();
        let open =
            |name| ground.options().create(true).len(90 * PAGE as u64).open(scratch.file(name));
        let [sender, replica] = ["sender", "replica"].map(|name| open(name).expect("open"));
        sender.snapshot("0").expect("seal");
        let is_over = AtomicBool::new(false);
        let (mut taken, mut refused) = (0, 0);
        thread::scope(|scope| {
            // Changes a byte and takes that back: the replica is at its base by turns.
            let writer = scope.spawn(|| {
                let mut rng = Rng(8);
                while !is_over.load(Ordering::Relaxed) {
                    let at = rng.below(90 * PAGE as u64);
                    let changed = replica.transact(|tx| {
                        let old: u8 = tx.load(at)?;
                        tx.store(at, &!old)?;
                        Ok(old)
                    });
                    let old = changed.expect("a change");
                    // The import may come in between only if it is refused.
                    replica.transact(|tx| tx.store(at, &old)).expect("back");
                    thread::yield_now();
                }
            });
            for n in 1..40_u64 {
                sender.write_at(&Rng(n).bytes(5000), n * 2000).expect("write");
                let (from, to) = ((n - 1).to_string(), n.to_string());
                sender.snapshot(&to).expect("seal");
                let stream = export(&sender, Some(&from), &to);
                loop {
                    match replica.import(&stream[..]) {
                        Ok(_) => break taken += 1,
                        Err(error) => {
                            let is_it = matches!(why(error), StreamError::WrongBase { .. });
                            assert!(is_it, "another reason");
                            refused += 1;
                        }
                    }
                }
                let sealed = replica.open_snapshot(&to).expect("open").read_vec().expect("read");
                assert_same(&sealed, &read_all(&sender), &to);
            }
            is_over.store(true, Ordering::Relaxed);
            writer.join().expect("a writer");
        });
        println!("{}: {taken} taken, {refused} refused", ground.medium);
        assert_same(&read_all(&replica), &read_all(&sender), "the end");
    }
}

/// A replica sends what it has taken.
#[test]
fn a_chain_of_replicas_has_each_state() {
    for ground in media() {
        let scratch = ground.scratch();
        let (mut rng, mut state) = (Rng(31), Rng(1).bytes(40 * PAGE));
        let sender = ground.options().create(true).open(scratch.file("0")).expect("open");
        let mut chain = vec![sender];
        for n in 0..12 {
            let name = n.to_string();
            let len = rng.below(60 * PAGE as u64) as usize + n % 2 * PAGE;
            state.resize(len, 0);
            for _ in 0..rng.below(20) {
                let at = rng.below(len as u64 + 1) as usize;
                let end = len.min(at + rng.below(700) as usize);
                let bytes = rng.bytes(end - at);
                state[at..end].copy_from_slice(&bytes);
            }
            chain[0].replace(&state).expect("replace");
            chain[0].snapshot(&name).expect("seal");
            for link in 1..4 {
                let from = n.checked_sub(1).map(|n| n.to_string());
                let stream = export(&chain[link - 1], from.as_deref(), &name);
                match chain.get(link) {
                    Some(file) => drop(file.import(&stream[..]).expect("changes")),
                    None => {
                        let path = scratch.file(&link.to_string());
                        let (file, _) =
                            ground.options().import(path, &stream[..]).expect("a new file");
                        chain.push(file);
                    }
                }
                assert_same(&read_all(&chain[link]), &state, &name);
            }
            if n > 3 && n % 3 == 0 {
                for file in &chain {
                    file.drop_snapshot(&(n - 3).to_string()).expect("drop");
                }
            }
        }
        for file in &chain[1..] {
            for info in file.snapshots() {
                let read = |file: &AtomicMappedFile| {
                    file.open_snapshot(&info.name).expect("open").read_vec().expect("read")
                };
                assert_same(&read(file), &read(&chain[0]), &info.name);
            }
        }
    }
}

/// Views pin slots that the import would store over.
#[test]
fn a_view_is_as_it_was_beside_an_import() {
    for ground in media() {
        let scratch = ground.scratch();
        let open =
            |name| ground.options().create(true).len(50 * PAGE as u64).open(scratch.file(name));
        let [sender, replica] = ["sender", "replica"].map(|name| open(name).expect("open"));
        let bytes = Rng(4).bytes(50 * PAGE);
        for file in [&sender, &replica] {
            file.write_at(&bytes, 0).expect("write");
            file.write_at(&bytes[..PAGE], 0).expect("write");
        }
        sender.snapshot("a").expect("seal");
        sender.write_at(&Rng(6).bytes(20 * PAGE), 3000).expect("write");
        sender.snapshot("b").expect("seal");
        sender.set_len(7000).expect("shorter");
        sender.snapshot("c").expect("seal");
        let [b, c] = [("a", "b"), ("b", "c")].map(|(from, to)| export(&sender, Some(from), to));
        let view = replica.view(100..49 * PAGE as u64).expect("a view");
        replica.import(&b[..]).expect("changes");
        assert_same(&view.to_vec().expect("read"), &bytes[100..49 * PAGE], "the view");
        match replica.import(&c[..]) {
            Ok(_) => {}
            Err(Error::Pinned { .. }) => {
                drop(view);
                replica.import(&c[..]).expect("a shorter state");
            }
            Err(error) => panic!("{error}"),
        }
        assert_same(&read_all(&replica), &read_all(&sender), "the replica");
    }
}

/// Two receivers of one file, and of one new file.
#[test]
fn of_receivers_at_once_one_takes_the_stream() {
    let Both { sender, scratch, .. } = both();
    let stream = &export(&sender, None, "b")[..];
    let is_busy = |error: &Error| match error {
        Error::Io { source, .. } => {
            [ErrorKind::ResourceBusy, ErrorKind::AlreadyExists].contains(&source.kind())
        }
        _ => false,
    };
    for round in 0..30 {
        let path = &scratch.file(&format!("new-{round}"));
        let made = thread::scope(|scope| {
            let receive = || common::ram().options().import(path, stream).map(|(file, _)| file);
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(receive)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
        });
        let (files, errors): (Vec<_>, Vec<_>) = made.into_iter().partition(Result::is_ok);
        assert!(errors.iter().all(|e| is_busy(e.as_ref().expect_err("an error"))), "{errors:?}");
        assert_eq!(files.len(), 1, "{errors:?}");
        let file = files.into_iter().next().expect("one").expect("a file");
        assert_same(&read_all(&file), &read_all(&sender), "the new file");
    }
    assert_no_spool(scratch.path());
}

const KILLED: &str = concat!(module_path!(), "::plays_the_maker_that_is_killed_if_it_is_one");

#[test]
fn plays_the_maker_that_is_killed_if_it_is_one() {
    let Some((role, path)) = role() else { return };
    let recorder = Recorder::new();
    recorder.kill_at(role.parse().expect("a number"), Death::Before);
    let stream = fs::read(path.with_extension("stream")).expect("a stream");
    let made = common::ram().options().import_recorded(&recorder, &path, &stream[..]);
    recorder.spare();
    made.expect("a new file").0.close(CloseMode::Fast).expect("close");
    println!("it is over");
}

/// Each event of the making is the last one of a process. The next one finds nothing or the whole
/// file, and leaves no other.
#[test]
fn a_kill_leaves_no_new_file_or_the_whole_one() {
    let Both { sender, scratch, .. } = both();
    let (stream, changes) = (export(&sender, None, "a"), export(&sender, Some("a"), "b"));
    let sealed = sender.open_snapshot("a").expect("open").read_vec().expect("read");
    let path = scratch.file("new");
    fs::write(path.with_extension("stream"), &stream).expect("write");
    let mut found = [0; 2];
    for nth in 1.. {
        let child = child(KILLED, &nth.to_string(), &path).output().expect("a child");
        let output = String::from_utf8_lossy(&child.stdout).into_owned();
        assert!(common::ran_its_test(&output), "{output}");
        let is_there = path.exists();
        found[usize::from(is_there)] += 1;
        let file = match is_there {
            true => common::ram().options().open(&path).expect("open"),
            false => common::ram().options().import(&path, &stream[..]).expect("a new file").0,
        };
        assert_same(&read_all(&file), &sealed, "the new file");
        file.import(&changes[..]).expect("changes");
        assert_same(&read_all(&file), &read_all(&sender), "the next state");
        for info in file.snapshots() {
            file.drop_snapshot(&info.name).expect("drop");
        }
        file.close(CloseMode::Spatial).expect("close");
        fs::remove_file(&path).expect("remove");
        assert_no_spool(scratch.path());
        if output.contains("it is over") {
            break;
        }
    }
    println!("{} without a file, {} with one", found[0], found[1]);
    assert!(found[0] > 10 && found[1] > 10, "{found:?}");
}
