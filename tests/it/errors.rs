//! Tests that each error is the right one, tells the user what to do, and changes nothing.
//!
//! The tests provoke each error as it happens in practice. A child process that ends without
//! closing makes the crashed pairs. A copy of the files would not do, since the pair stores inode
//! numbers. Each refused opening is compared byte for byte, with times, with the state before it.

use crate::common::{
    self, Ground, Rng, Scratch, Snapshot, assert_same, media, read_all, role, run_child,
};
use atomic_mmap::testing::superblock::{Copy, SUPERBLOCK_LEN, Superblock};
use atomic_mmap::testing::{call, layout, recorder::Recorder};
use atomic_mmap::{
    AtomicMappedFile, CloseMode, Error, Medium, Mismatch, OnMismatch, Options, Transaction,
};
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

const CHILD: &str = concat!(module_path!(), "::plays_the_child_if_it_is_one");
const LEN: usize = 300_000;

#[test]
fn plays_the_child_if_it_is_one() {
    let Some((role, path)) = role() else { return };
    match role.split(' ').collect::<Vec<_>>()[..] {
        ["crash", medium] => {
            let medium = medium.parse().expect("a medium");
            let file = common::options(medium).open(&path).expect("open");
            write_all(&file);
            common::crash();
        }
        ["busy"] => {
            let before = Snapshot::of(path.parent().expect("a folder"));
            let error = AtomicMappedFile::open(&path).expect_err("the parent has it open");
            assert!(matches!(error, Error::Busy { in_this_process: false, .. }), "{error:?}");
            assert!(error.to_string().contains("another process"), "{error}");
            before.assert_unchanged(path.parent().expect("a folder"), "busy");
        }
        ["garbage"] => {
            let error = AtomicMappedFile::create(&path, 10).expect_err("no such medium");
            assert!(matches!(&error, Error::UnsupportedMedium { medium, .. } if medium == "tape"));
            assert!(!path.exists(), "nothing was made");
            // The caller's option takes precedence over the environment.
            AtomicMappedFile::options().medium(Medium::Ram).create(true).open(&path).expect("open");
        }
        ["environment", medium] => {
            let file = AtomicMappedFile::create(&path, 10).expect("open");
            assert_eq!(file.medium().to_string(), medium);
        }
        ["fork", medium] => {
            let options = common::options(medium.parse().expect("a medium"));
            use_after_fork(options, &path);
        }
        #[cfg(target_os = "linux")]
        ["overlay"] => open_on_overlay(&path),
        _ => panic!("no role {role}"),
    }
}

// ---- pairs --------------------------------------------------------------------------------------

/// A home file with its reflection file, closed or crashed.
struct Pair {
    scratch: Scratch,
    ground: Ground,
    home: PathBuf,
    reflection: PathBuf,
    /// The bytes of the file, as both files together hold them.
    bytes: Vec<u8>,
}

/// Writes with every protocol, so that many bytes are in the reflection file only.
fn write_all(file: &AtomicMappedFile) {
    let mut rng = Rng(9);
    for (offset, len) in
        [(0, 8192), (100, 50), (9000, 700), (20_000, 20_000), (262_000, 300), (262_100, 30_000)]
    {
        file.write_at(&rng.bytes(len), offset).expect("write");
    }
}

fn home_bytes() -> Vec<u8> {
    Rng(8).bytes(LEN)
}

impl Pair {
    fn new(ground: &Ground) -> Pair {
        let scratch = ground.scratch();
        let home = scratch.file("state.dat");
        fs::write(&home, home_bytes()).expect("write the plain file");
        // The bytes that `write_all` makes, from a second file.
        let other = ground.scratch();
        fs::write(other.file("x"), home_bytes()).expect("write");
        let file = ground.options().open(other.file("x")).expect("open");
        write_all(&file);
        let bytes = read_all(&file);
        drop(file);
        let reflection = scratch.file(&format!(".atomic-mmap.{:x}", inode(&home)));
        Pair { scratch, ground: ground.clone(), home, reflection, bytes }
    }

    fn closed(ground: &Ground) -> Pair {
        let pair = Pair::new(ground);
        let file = pair.open().expect("open");
        write_all(&file);
        file.close(CloseMode::Fast).expect("close");
        assert!(pair.reflection.exists());
        pair
    }

    fn crashed(ground: &Ground) -> Pair {
        let pair = Pair::new(ground);
        run_child(CHILD, &format!("crash {}", ground.medium), &pair.home);
        assert!(pair.reflection.exists());
        pair
    }

    fn open(&self) -> Result<AtomicMappedFile, Error> {
        self.open_with(OnMismatch::Refuse)
    }

    fn open_with(&self, wish: OnMismatch) -> Result<AtomicMappedFile, Error> {
        self.ground.options().on_mismatch(wish).open(&self.home)
    }

    fn is_marked(&self) -> bool {
        is_marked(&self.home)
    }

    /// Checks that opening is refused, names the reason and the files, and changes nothing.
    #[track_caller]
    fn refuses(&self, wish: OnMismatch, expected: Mismatch) {
        let what = format!("{expected:?} with {wish:?} on {:?}", self.ground.medium);
        let before = Snapshot::of(self.scratch.path());
        let error = match self.open_with(wish) {
            Ok(file) => {
                let is_whole = read_all(&file) == self.bytes;
                panic!("{what}: was opened (all bytes as they should be: {is_whole})");
            }
            Err(error) => error,
        };
        let Error::Mismatch { home, reflection, why } = &error else {
            panic!("{what}: {error:?}");
        };
        assert_eq!(*why, expected, "{what}: {error}");
        let text = error.to_string();
        assert!(text.contains(home.to_str().expect("UTF-8")), "{what}: {text}");
        assert!(text.contains(reflection.to_str().expect("UTF-8")), "{what}: {text}");
        assert_eq!(*home, self.home, "{what}");
        before.assert_unchanged(self.scratch.path(), &what);
    }

    /// Checks that opening is refused by default and with `Trust`, and that `Discard` keeps the
    /// home file as it is.
    #[track_caller]
    fn refuses_unless_discarded(&self, expected: Mismatch) {
        self.refuses(OnMismatch::Refuse, expected);
        self.refuses(OnMismatch::Trust, expected);
        self.discards(expected);
    }

    /// Checks that `Discard` keeps the home file as it is. It removes the reflection file of this
    /// home file, and leaves one that may belong to another file.
    #[track_caller]
    fn discards(&self, expected: Mismatch) {
        let what = format!("{expected:?}, discarded on {:?}", self.ground.medium);
        let plain = fs::read(&self.home).expect("read the home file");
        let before = superblocks_if_any(&self.reflection);
        let file = self.open_with(OnMismatch::Discard).expect(&what);
        let is_anothers = file.reflection_path() != self.reflection && self.reflection.exists();
        assert_same(&read_all(&file), &plain, &what);
        file.write_at(b"!", 0).expect(&what);
        file.close(CloseMode::Spatial).expect(&what);
        assert_same(&fs::read(&self.home).expect("read")[1..], &plain[1..], &what);
        assert_eq!(self.reflection.exists(), is_anothers, "{what}");
        if is_anothers {
            assert_eq!(superblocks_if_any(&self.reflection), before, "{what}: was changed");
            fs::remove_file(&self.reflection).expect("remove what was in the way");
        }
        drop(self.open().expect("and opens again"));
    }

    /// Checks that the pair opens and holds all bytes.
    #[track_caller]
    fn opens(&self, wish: OnMismatch, what: &str) {
        let file = self.open_with(wish).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_same(&read_all(&file), &self.bytes, what);
    }
}

fn inode(path: &Path) -> u64 {
    fs::metadata(path).expect("stat").ino()
}

/// Returns `true` if the file has the attribute that names a reflection file.
fn is_marked(path: &Path) -> bool {
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::ffi::OsStrExt;
        let path = std::ffi::CString::new(path.as_os_str().as_bytes()).expect("no zero bytes");
        // SAFETY: two strings that end with a zero, and a buffer of length zero.
        let size = unsafe {
            libc::getxattr(path.as_ptr(), c"user.atomic_mmap".as_ptr(), std::ptr::null_mut(), 0)
        };
        size > 0
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _not_looked_at = path;
        false
    }
}

/// Waits for the clock of the file system, so that a change gets a new time.
fn let_time_pass() {
    std::thread::sleep(std::time::Duration::from_millis(20));
}

fn change(path: &Path, bytes: &[u8], offset: u64) {
    let file = OpenOptions::new().write(true).open(path).expect("open");
    file.write_all_at(bytes, offset).expect("write");
}

fn cut(path: &Path, len: u64) {
    OpenOptions::new().write(true).open(path).expect("open").set_len(len).expect("cut");
}

/// Returns the two superblocks.
fn superblocks(reflection: &Path) -> [[u8; SUPERBLOCK_LEN]; 2] {
    let file = File::open(reflection).expect("open");
    layout::SUPERBLOCKS.map(|at| {
        let mut bytes = [0; SUPERBLOCK_LEN];
        file.read_exact_at(&mut bytes, at).expect("read");
        bytes
    })
}

/// Returns the bytes in the place of the superblocks, if the file exists.
fn superblocks_if_any(reflection: &Path) -> Option<Vec<u8>> {
    let mut bytes = vec![0; 8192];
    let read = File::open(reflection).ok()?.read_at(&mut bytes, 0).expect("read");
    bytes.truncate(read);
    Some(bytes)
}

#[test]
fn a_closed_and_a_crashed_pair_open_with_all_bytes() {
    for ground in media() {
        Pair::closed(&ground).opens(OnMismatch::Refuse, "closed");
        Pair::crashed(&ground).opens(OnMismatch::Refuse, "crashed");
    }
}

#[test]
fn a_reflection_file_that_is_gone_is_told_by_the_mark() {
    for ground in media() {
        for pair in [Pair::closed(&ground), Pair::crashed(&ground)] {
            if !pair.is_marked() {
                eprintln!("no attributes on {}: skipped", ground.base.display());
                continue;
            }
            fs::remove_file(&pair.reflection).expect("remove");
            pair.refuses_unless_discarded(Mismatch::ReflectionGone);
        }
    }
}

/// A leftover of a removed file must not hinder a new file of its name, or a new file that gets its
/// inode number.
#[test]
fn a_leftover_of_a_removed_file_stands_in_no_ones_way() {
    for ground in media() {
        for pair in [Pair::closed(&ground), Pair::crashed(&ground)] {
            fs::remove_file(&pair.home).expect("remove");
            for wish in [OnMismatch::Refuse, OnMismatch::Trust, OnMismatch::Discard] {
                let error = pair.open_with(wish).expect_err("not there");
                assert!(matches!(error, Error::Io { .. }), "{error:?}");
            }
            let left = superblocks_if_any(&pair.reflection);
            for n in 0..30 {
                let name = if n == 0 { "state.dat".into() } else { format!("new-{n}") };
                let options = pair.ground.options().create(true).len(77);
                let file = options.open(pair.scratch.file(&name)).expect("a new file");
                assert_same(&read_all(&file), &[0; 77], "a new file");
                // The file is kept, so that the next file gets another inode number.
                file.close(CloseMode::Fast).expect("close");
            }
            assert_eq!(superblocks_if_any(&pair.reflection), left, "was changed");
        }
    }
}

#[test]
fn a_reflection_file_of_another_file_is_known_for_that() {
    for ground in media() {
        for pair in [Pair::closed(&ground), Pair::crashed(&ground)] {
            if !pair.is_marked() {
                continue;
            }
            let other = pair.scratch.file("other.dat");
            fs::write(&other, home_bytes()).expect("write");
            let file = ground.options().open(&other).expect("open");
            write_all(&file);
            file.close(CloseMode::Fast).expect("close");
            let theirs = pair.scratch.file(&format!(".atomic-mmap.{:x}", inode(&other)));
            fs::rename(theirs, &pair.reflection).expect("put it in the wrong place");
            pair.refuses_unless_discarded(Mismatch::Swapped);
        }
    }
}

#[test]
fn a_copy_of_a_home_file_is_known_for_a_copy_where_attributes_are_copied() {
    for ground in media() {
        let mut pair = Pair::closed(&ground);
        let copy = pair.scratch.file("copy.dat");
        let status = Command::new("cp").arg("-a").arg(&pair.home).arg(&copy).status();
        if !status.is_ok_and(|status| status.success()) || !is_marked(&copy) {
            eprintln!("cp does not copy attributes on {}: skipped", ground.base.display());
            continue;
        }
        pair.opens(OnMismatch::Refuse, "the original");
        pair.home = copy;
        pair.refuses_unless_discarded(Mismatch::HomeIsCopy);
    }
}

#[test]
fn a_file_that_took_the_place_of_the_home_file_is_not_taken_for_it() {
    for ground in media() {
        for pair in [Pair::closed(&ground), Pair::crashed(&ground)] {
            // The old file is kept elsewhere, so that no other file gets its inode number.
            let elsewhere = ground.scratch();
            fs::rename(&pair.home, elsewhere.file("old.dat")).expect("rename");
            fs::write(&pair.home, b"something new").expect("write");
            pair.refuses_unless_discarded(Mismatch::HomeReplaced);
        }
    }
}

#[test]
fn what_is_not_ours_in_the_reflection_files_place_is_never_removed() {
    for ground in media() {
        for foreign in [&b"notes of another program"[..], &[0; 5000]] {
            for wish in [OnMismatch::Refuse, OnMismatch::Trust, OnMismatch::Discard] {
                let pair = Pair::new(&ground);
                fs::write(&pair.reflection, foreign).expect("write");
                let file = pair.open_with(wish).expect("under another name");
                assert_ne!(file.reflection_path(), pair.reflection);
                write_all(&file);
                file.close(CloseMode::Fast).expect("close");
                pair.opens(wish, "beside a foreign file");
                assert_eq!(fs::read(&pair.reflection).expect("read"), foreign);
            }
        }
        // The start of a reflection file that is not this file's: a home file with a companion
        // would have a mark.
        let pair = Pair::new(&ground);
        fs::write(&pair.reflection, b"Atom").expect("write");
        if Pair::closed(&ground).is_marked() {
            drop(pair.open().expect("under another name"));
            assert_eq!(fs::read(&pair.reflection).expect("read"), b"Atom");
        } else {
            pair.refuses(OnMismatch::Refuse, Mismatch::ReflectionTruncated);
            pair.refuses(OnMismatch::Trust, Mismatch::ReflectionTruncated);
        }
        let pair = Pair::new(&ground);
        fs::create_dir(&pair.reflection).expect("make a folder");
        let file = pair.open().expect("under another name");
        assert_ne!(file.reflection_path(), pair.reflection);
        drop(file);
        assert!(pair.reflection.is_dir());
        // The mark tells that a reflection file existed.
        let pair = Pair::closed(&ground);
        if !pair.is_marked() {
            continue;
        }
        fs::write(&pair.reflection, b"notes of another program").expect("write");
        for wish in [OnMismatch::Refuse, OnMismatch::Trust, OnMismatch::Discard] {
            pair.refuses(wish, Mismatch::Foreign);
        }
    }
}

#[test]
fn a_newer_format_is_left_alone() {
    for ground in media() {
        for pair in [Pair::closed(&ground), Pair::crashed(&ground)] {
            for at in layout::SUPERBLOCKS {
                change(&pair.reflection, &[77], at + 8);
            }
            for wish in [OnMismatch::Refuse, OnMismatch::Trust, OnMismatch::Discard] {
                pair.refuses(wish, Mismatch::Newer { version: 77 });
            }
        }
    }
}

#[test]
fn one_damaged_superblock_does_no_harm_and_two_are_an_error() {
    for ground in media() {
        // The pair is closed twice, so that both superblocks were written.
        let damaged = |which: &[usize]| {
            let pair = Pair::closed(&ground);
            pair.open().expect("open").close(CloseMode::Fast).expect("close");
            for n in which {
                let byte = superblocks(&pair.reflection)[*n][200] ^ 0x10;
                change(&pair.reflection, &[byte], layout::SUPERBLOCKS[*n] + 200);
            }
            pair
        };
        damaged(&[0]).opens(OnMismatch::Refuse, "the first is damaged");
        damaged(&[1]).opens(OnMismatch::Refuse, "the second is damaged");
        damaged(&[0, 1]).refuses_unless_discarded(Mismatch::Corrupt);
    }
}

#[test]
fn a_reflection_file_that_was_cut_off_is_known_for_that_wherever_it_was_cut() {
    for ground in media() {
        for (state, make) in
            [("closed", Pair::closed as fn(&Ground) -> Pair), ("crashed", Pair::crashed)]
        {
            let whole = layout::reflection_len(LEN as u64);
            for len in [
                0,
                100,
                511,
                512,
                4095,
                4096,
                4608,
                5000,
                9000,
                70_000,
                3 << 20,
                layout::SUPERCHUNKS,
            ]
            .into_iter()
            .chain([layout::reflection(0), whole - 4096, whole - 1])
            {
                let pair = make(&ground);
                cut(&pair.reflection, len);
                eprintln!("{state}, cut at {len}");
                pair.refuses_unless_discarded(Mismatch::ReflectionTruncated);
            }
        }
    }
}

#[test]
fn a_home_file_that_was_cut_off_is_known_for_that() {
    for ground in media() {
        for make in [Pair::closed, Pair::crashed] {
            for len in [0, 1, 4096, LEN as u64 - 1] {
                let pair = make(&ground);
                cut(&pair.home, len);
                pair.refuses(OnMismatch::Refuse, Mismatch::HomeTruncated);
                pair.refuses(OnMismatch::Trust, Mismatch::HomeTruncated);
                if len > 0 {
                    pair.discards(Mismatch::HomeTruncated);
                }
            }
        }
    }
}

#[test]
fn a_home_file_that_was_changed_after_a_fast_close_is_not_mixed_with_the_reflection_file() {
    let append: fn(&Path) = |home| change(home, b"more", LEN as u64);
    let overwrite: fn(&Path) = |home| change(home, b"other", 5);
    let touch: fn(&Path) = |home| {
        let file = OpenOptions::new().write(true).open(home).expect("open");
        file.set_modified(std::time::SystemTime::now()).expect("touch");
    };
    for ground in media() {
        for (n, how) in [append, overwrite, touch].into_iter().enumerate() {
            let make = || {
                let pair = Pair::closed(&ground);
                let_time_pass();
                how(&pair.home);
                pair
            };
            let pair = make();
            pair.refuses(OnMismatch::Refuse, Mismatch::HomeChanged);
            pair.discards(Mismatch::HomeChanged);
            let file = make().open_with(OnMismatch::Trust).unwrap_or_else(|e| panic!("{n}: {e}"));
            // The bytes in the reflection file are still there.
            let mut found = vec![0; 700];
            file.read_at(&mut found, 9000).expect("read");
            assert_same(&found, &pair.bytes[9000..9700], "trusted");
            assert_eq!(file.len(), LEN as u64, "trusted");
        }
        let pair = Pair::crashed(&ground);
        change(&pair.home, b"more", LEN as u64);
        pair.refuses(OnMismatch::Refuse, Mismatch::HomeChanged);
        pair.opens(OnMismatch::Trust, "a crashed file that became longer, trusted");
    }
}

#[test]
fn a_crash_before_the_machine_was_restarted_is_told_from_one_after_it() {
    for ground in media() {
        let make = || {
            let pair = Pair::crashed(&ground);
            for (n, bytes) in superblocks(&pair.reflection).iter().enumerate() {
                if let Copy::Valid(superblock) = Superblock::decode(bytes) {
                    let earlier = Superblock { boot_id: [0xb0; 16], ..superblock };
                    change(&pair.reflection, &earlier.encode(), layout::SUPERBLOCKS[n]);
                }
            }
            pair
        };
        if ground.medium == Medium::Dax {
            make().opens(OnMismatch::Refuse, "persistent memory survives a restart");
            continue;
        }
        if ground.medium == Medium::PageCache {
            // The file was never synced: the last durable point is the file at its first opening.
            let file = make().open_with(OnMismatch::Refuse).expect("goes back");
            assert_same(&read_all(&file), &home_bytes(), "before the first sync");
            continue;
        }
        let pair = make();
        pair.refuses(OnMismatch::Refuse, Mismatch::Restarted);
        pair.discards(Mismatch::Restarted);
        let pair = make();
        pair.opens(OnMismatch::Trust, "trusted");
        pair.opens(OnMismatch::Refuse, "and from then on as ever");
    }
}

// ---- opening ------------------------------------------------------------------------------------

#[test]
fn a_missing_file_is_not_found_unless_it_is_to_be_made() {
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("missing");
        let error = ground.options().open(&path).expect_err("missing");
        assert!(
            matches!(&error, Error::Io { source, .. } if source.kind() == ErrorKind::NotFound),
            "{error:?}"
        );
        assert!(error.to_string().contains(path.to_str().expect("UTF-8")), "{error}");
        assert_eq!(std::io::Error::from(error).kind(), ErrorKind::NotFound);
        assert_eq!(fs::read_dir(scratch.path()).expect("list").count(), 0, "nothing was made");
        let error = ground.options().create(true).open(scratch.file("no/folder")).expect_err("no");
        assert!(matches!(error, Error::Io { .. }), "{error:?}");
    }
}

#[test]
fn what_is_not_a_regular_file_is_refused_without_waiting() {
    let ground = common::ram();
    let scratch = ground.scratch();
    let fifo = scratch.file("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
    for path in [scratch.path(), &fifo, Path::new("/dev/null")] {
        for create in [false, true] {
            let error = ground.options().create(create).open(path).expect_err("not regular");
            assert!(matches!(error, Error::NotRegular { .. }), "{error:?}");
        }
    }
    assert!(scratch.reflections().is_empty());
}

#[test]
fn a_file_is_opened_once_whatever_its_name() {
    let _watch = common::Watch::start();
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        let file = ground.options().create(true).len(10_000).open(&path).expect("open");
        fs::hard_link(&path, scratch.file("hard")).expect("link");
        std::os::unix::fs::symlink(&path, scratch.file("soft")).expect("link");
        let before = Snapshot::of(scratch.path());
        for name in ["state.dat", "hard", "soft"] {
            let error = ground.options().open(scratch.file(name)).expect_err("open already");
            assert!(matches!(error, Error::Busy { in_this_process: true, .. }), "{error:?}");
            assert!(error.to_string().contains("this process"), "{error}");
        }
        before.assert_unchanged(scratch.path(), "busy");
        run_child(CHILD, "busy", &path);
        let second = file.try_clone().expect("clone");
        drop(file);
        run_child(CHILD, "busy", &path);
        drop(second);
        drop(ground.options().open(&path).expect("free again"));
    }
}

#[test]
fn the_environment_forces_a_medium_and_garbage_in_it_is_an_error() {
    let scratch = common::ram().scratch();
    let run = |role: &str, value: &str, name: &str| {
        let mut child = common::child(CHILD, role, scratch.file(name));
        common::run_test(child.env(atomic_mmap::MEDIUM_VARIABLE, value));
    };
    run("garbage", "tape", "a");
    run("environment page-cache", "page-cache", "b");
    run("environment ram", "ram", "c");
}

#[cfg(target_os = "linux")]
#[test]
fn an_untested_file_system_is_refused_unless_allowed() {
    if cfg!(atomic_mmap_portable) {
        eprintln!("the portable build cannot tell file systems apart: skipped");
        return;
    }
    let scratch = common::ram().scratch();
    if let Some(mut child) = common::child_with_mounts(CHILD, "overlay", scratch.path()) {
        common::run_test(&mut child);
    }
}

#[cfg(target_os = "linux")]
fn open_on_overlay(folder: &Path) {
    for name in ["lower", "upper", "work", "merged"] {
        fs::create_dir(folder.join(name)).expect("make a folder");
    }
    let at = |name: &str| folder.join(name).display().to_string();
    let options =
        format!("lowerdir={},upperdir={},workdir={}", at("lower"), at("upper"), at("work"));
    let status = Command::new("mount")
        .args(["-t", "overlay", "overlay", "-o", &options, &at("merged")])
        .status()
        .expect("mount");
    if !status.success() {
        eprintln!("cannot mount an overlay: skipped");
        return;
    }
    let path = folder.join("merged").join("state.dat");
    fs::write(&path, [7; 5000]).expect("write");
    let before = Snapshot::of(&folder.join("merged"));
    let error = AtomicMappedFile::open(&path).expect_err("an overlay");
    assert!(
        matches!(&error, Error::UnsupportedFileSystem { file_system, .. }
            if file_system == "overlay"),
        "{error:?}"
    );
    before.assert_unchanged(&folder.join("merged"), "an overlay");
    let allowed = AtomicMappedFile::options().allow_any_file_system(true);
    let file = allowed.open(&path).expect("allowed");
    assert_eq!(file.medium(), Medium::PageCache);
}

// ---- ranges and lengths -------------------------------------------------------------------------

#[test]
fn what_lies_out_of_range_is_refused_by_every_call_and_changes_nothing() {
    for ground in media() {
        let pair = Pair::new(&ground);
        let file = pair.open().expect("open");
        let model = read_all(&file);
        // Some of it lies in the reflection file: reads then prefetch both slots, of which neither
        // may exist.
        file.write_at(&model[..64], 0).expect("a write");
        for _ in 0..2 {
            file.read_at(&mut [0; 8], 0).expect("a read");
        }
        let end = LEN as u64;
        let check = |result: Result<(), Error>, at: u64, count: u64| {
            let Err(error) = result else { panic!("{count} bytes at {at} were accepted") };
            let Error::PastEnd { offset, len, file_len, .. } = error else {
                panic!("{error:?}");
            };
            assert_eq!((offset, len, file_len), (at, count, end));
            assert!(error.to_string().contains("set_len"), "{error}");
            assert_eq!(std::io::Error::from(error).kind(), ErrorKind::InvalidInput);
        };
        for (at, count) in [
            (end - 7, 8),
            (end, 1),
            (end + 1, 0),
            (u64::MAX, 0),
            (u64::MAX, 1),
            (u64::MAX, 64),
            (u64::MAX - 3, 8),
            (u64::MAX - 4096, 5000),
            (0, LEN + 1),
        ] {
            let data = vec![1; count];
            let mut to = vec![0xee; count];
            let len = count as u64;
            check(file.write_at(&data, at), at, len);
            check(file.write_many(&[(0, &[7; 9]), (at, &data), (4096, &[7; 9])]), at, len);
            check(file.read_at(&mut to, at), at, len);
            check(file.store(at, &data[..]), at, len);
            let mut tx = file.begin();
            check(tx.write_at(&data, at), at, len);
            check(tx.read_at(&mut to, at), at, len);
            tx.commit().expect("it is as it was");
            assert!(to.iter().all(|byte| *byte == 0xee));
            if let Some(behind) = at.checked_add(len) {
                check(file.view(at..behind).map(drop), at, len);
                check(file.deploy(at..behind).map(drop), at, len);
            }
        }
        check(file.load::<u64>(end - 7).map(drop), end - 7, 8);
        check(file.update(end - 7, |n: &mut u64| *n += 1), end - 7, 8);
        check(file.slot::<u64>(end - 7).map(drop), end - 7, 8);
        check(file.array::<u64>(end - 15, 2).map(drop), end - 15, 16);
        #[expect(clippy::reversed_empty_ranges, reason = "this is what is refused")]
        for backwards in [8..4, u64::MAX..0] {
            let view = file.view(backwards.clone()).map(drop);
            assert!(matches!(view, Err(Error::Reversed { .. })), "{view:?}");
            let deployed = file.deploy(backwards).map(drop);
            assert!(matches!(deployed, Err(Error::Reversed { .. })), "{deployed:?}");
        }
        let array = file.array::<u64>(8, 3).expect("array");
        for result in [
            array.get(3).map(drop),
            array.set(3, &1),
            array.get(u64::MAX).map(drop),
            array.get_many(2, &mut [0, 0]),
            array.set_many(1, &[0, 0, 0]),
            array.slot(3).map(drop),
            array.offset_of(u64::MAX / 2).map(drop),
            array.update(3, |n| *n += 1),
        ] {
            assert!(matches!(result, Err(Error::OutOfBounds { .. })), "{result:?}");
        }
        let view = file.view(100..200).expect("view");
        for (count, at) in [(101, 0), (1, 100), (8, u64::MAX)] {
            let result = view.read_at(&mut vec![0; count], at);
            assert!(matches!(result, Err(Error::OutOfBounds { .. })), "{result:?}");
        }
        assert_same(&read_all(&file), &model, "after all that");
    }
}

#[test]
fn an_array_that_no_file_could_hold_overflows() {
    let ground = common::ram();
    let scratch = ground.scratch();
    let file = ground.options().create(true).len(4096).open(scratch.file("x")).expect("open");
    for (offset, count) in [(0, u64::MAX / 8 + 1), (u64::MAX - 7, 1), (8, u64::MAX / 8)] {
        let error = file.array::<u64>(offset, count).expect_err("overflow");
        assert!(matches!(error, Error::Overflow { .. }), "{error:?}");
    }
}

#[test]
fn a_length_past_the_reservation_is_refused() {
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        let too_long = |result: Result<AtomicMappedFile, Error>| {
            let error = result.expect_err("too long");
            assert!(matches!(error, Error::TooLong { .. }), "{error:?}");
            assert!(!path.exists() && scratch.reflections().is_empty(), "nothing was made");
        };
        let create = || ground.options().create(true);
        too_long(create().len(atomic_mmap::MAX_LEN + 1).open(&path));
        too_long(create().len(5000).max_len(4999).open(&path));
        too_long(create().max_len(atomic_mmap::MAX_LEN + 1).open(&path));
        let file = create().len(5000).max_len(3 << 20).open(&path).expect("open");
        file.write_at(&[7; 5000], 0).expect("write");
        assert!(file.max_len() >= 3 << 20);
        for len in [file.max_len() + 1, u64::MAX] {
            let error = file.set_len(len).expect_err("too long");
            assert!(matches!(error, Error::TooLong { .. }), "{error:?}");
        }
        assert_same(&read_all(&file), &[7; 5000], "nothing was changed");
        file.set_len(file.max_len()).expect("as long as may be");
        file.write_at(&[9], file.max_len() - 1).expect("write the last byte");
    }
}

#[test]
fn a_view_keeps_its_bytes_from_being_cut_off() {
    for ground in media() {
        let pair = Pair::new(&ground);
        let file = pair.open().expect("open");
        write_all(&file);
        let view = file.view(20_000..30_000).expect("view");
        if ground.medium == Medium::PageCache {
            assert!(!view.is_mapped(), "a copy, which nothing cuts off");
            file.set_len(0).expect("shrink");
            assert_eq!(view.len(), 10_000);
            continue;
        }
        for len in [0, 19_999, 20_000, 20_001, 29_999] {
            let error = file.set_len(len).expect_err("pinned");
            assert!(matches!(error, Error::Pinned { .. }), "{error:?}");
            assert_eq!(file.len(), LEN as u64);
        }
        file.set_len(40_000).expect("behind the view");
        assert_same(&view.to_vec().expect("read"), &pair.bytes[20_000..30_000], "the view");
        drop(view);
        file.set_len(10).expect("free");
        // An empty view protects no bytes, and stays empty.
        file.set_len(100_000).expect("grow");
        let nothing = file.view(90_000..90_000).expect("view");
        file.set_len(10).expect("a view of nothing pins nothing");
        assert!(nothing.is_empty());
        assert_eq!(nothing.to_vec().expect("read nothing"), []);
    }
}

#[test]
fn a_write_that_no_log_could_hold_is_refused_and_changes_nothing() {
    let ground = common::ram();
    let scratch = ground.scratch();
    let len = 258 << 20;
    let file = ground.options().create(true).len(len).open(scratch.file("x")).expect("open");
    // Pinned pages with their newest bytes in the other slots force a write through the log.
    let view = file.view(0..len).expect("view");
    let mut data = vec![1; len as usize];
    file.write_at(&data, 0).expect("write");
    data.fill(2);
    let error = file.write_at(&data, 0).expect_err("too large");
    let Error::TooLarge { needed, limit, .. } = error else { panic!("{error:?}") };
    assert!(needed > limit);
    let mut found = vec![0; 8192];
    file.read_at(&mut found, 0).expect("read");
    assert_same(&found, &[1; 8192], "nothing was changed");
    // Pages without a free slot are logged alone: the others flip.
    drop(view);
    let view = file.view(0..4096).expect("view");
    file.write_at(&[3; 4096], 0).expect("write");
    let logged = file.stats().redo_writes;
    file.write_at(&data, 0).expect("one page is logged");
    assert_eq!(file.stats().redo_writes, logged + 1);
    assert_same(&view.to_vec().expect("read"), &[1; 4096], "the view");
    drop(view);
    file.write_at(&[3; 9000], 0).expect("goes on");
}

// ---- transactions -------------------------------------------------------------------------------

/// Writes with every protocol to bytes that a transaction has read.
#[test]
fn a_write_by_any_protocol_conflicts_with_readers_of_its_bytes() {
    for ground in media() {
        let pair = Pair::new(&ground);
        let file = pair.open().expect("open");
        let view = file.view(40 * 4096..41 * 4096).expect("view");
        file.write_at(&[1; 4096], 40 * 4096).expect("away from the view");
        type Write<'a> = (&'a str, u64, &'a dyn Fn(u64));
        let of = |len: usize| move |file: &AtomicMappedFile, at| file.write_at(&vec![2; len], at);
        // A direct store in RAM, once as a plain write and once as a transaction.
        let transact = |at| file.transact(|tx| tx.write_at(&[2; 8], at)).expect("write");
        let ways: [Write<'_>; 11] = [
            ("a word", 0, &|at| of(8)(&file, at).expect("write")),
            ("a word, in a transaction", 12 * 4096, &transact),
            ("a slice", 13 * 4096, &|at| of(64)(&file, at).expect("write")),
            ("a few bytes, of two slices", 28_672 + 54, &|at| of(20)(&file, at).expect("write")),
            ("two slices", 14 * 4096, &|at| of(128)(&file, at).expect("write")),
            ("a part of a page", 4096, &|at| of(2000)(&file, at).expect("write")),
            ("pages", 8192, &|at| of(3 * 4096)(&file, at).expect("write")),
            ("a whole page", 24_576, &|at| of(4096)(&file, at).expect("write")),
            ("a region's lock", 65_536, &|at| of(65_536)(&file, at).expect("write")),
            ("over pages", 36_000, &|at| of(5000)(&file, at).expect("write")),
            ("under a view", 40 * 4096, &|at| of(600)(&file, at).expect("write")),
        ];
        for (way, at, write) in ways {
            let mut tx = file.begin();
            tx.load::<u64>(at).expect("load");
            tx.store(20 * 4096, &1u64).expect("store");
            write(at);
            let result = tx.commit();
            assert!(result.is_err_and(|e| e.is_conflict()), "{way} on {}", ground.medium);
        }
        drop(view);
    }
}

#[test]
fn a_transaction_that_has_read_what_others_changed_conflicts() {
    for ground in media() {
        let pair = Pair::new(&ground);
        let file = pair.open().expect("open");
        let is_conflict = |result: Result<(), Error>| match result {
            Err(error) => {
                assert!(error.is_conflict(), "{error:?}");
                assert!(matches!(error, Error::Conflict { .. }));
            }
            Ok(()) => panic!("no conflict"),
        };
        // Another writer changes the bytes before the commit.
        let mut tx = file.begin();
        let old: u64 = tx.load(0).expect("load");
        tx.store(8192, &1u64).expect("store");
        file.store(0, &(old + 1)).expect("store");
        is_conflict(tx.commit());
        assert_ne!(file.load::<u64>(8192).expect("load"), 1, "nothing was written");
        // Another writer changes the bytes before the next read: that read conflicts, and then the
        // commit.
        let mut tx = file.begin();
        tx.load::<u64>(0).expect("load");
        file.store(0, &7u64).expect("store");
        is_conflict(tx.load::<u64>(8192).map(drop));
        is_conflict(tx.commit());
        // Changes of other bytes do not conflict. Nor do writes without a read.
        let mut tx = file.begin();
        tx.load::<u64>(0).expect("load");
        tx.store(20_000, &5u64).expect("store");
        file.store(20_000, &6u64).expect("store");
        file.store(100_000, &6u64).expect("store");
        tx.commit().expect("no conflict");
        assert_eq!(file.load::<u64>(20_000).expect("load"), 5);
        // The transaction only reads, and the bytes change: it conflicts, because it read no single
        // state.
        let mut tx = file.begin();
        tx.load::<u64>(0).expect("load");
        tx.rollback();
        // A failed body rolls back, and `transact` returns its error.
        let failed: Result<(), Error> = file.transact(|tx| {
            tx.store(0, &99u64)?;
            tx.load::<u64>(LEN as u64).map(drop)
        });
        assert!(matches!(failed, Err(Error::PastEnd { .. })), "{failed:?}");
        assert_eq!(file.load::<u64>(0).expect("load"), 7);
        // A truncation removes the place of the write before the commit.
        let mut tx = file.begin();
        tx.write_at(&[1; 100], LEN as u64 - 100).expect("write");
        tx.write_at(&[1; 100], 0).expect("write");
        file.set_len(200_000).expect("cut");
        let result = tx.commit();
        assert!(matches!(result, Err(Error::PastEnd { .. })), "{result:?}");
        assert_eq!(file.load::<u64>(0).expect("load"), 7);
    }
}

// ---- fork, poison, drop -------------------------------------------------------------------------

#[test]
fn a_forked_child_can_do_nothing_with_the_handle_and_harms_nothing() {
    for ground in media() {
        let pair = Pair::new(&ground);
        let role = format!("fork {}", ground.medium);
        common::run_child(CHILD, &role, &pair.home);
        assert!(pair.scratch.reflections().is_empty());
        let mut expected = pair.bytes.clone();
        expected[50_000..50_100].fill(4);
        assert_same(&fs::read(&pair.home).expect("read"), &expected, "the plain file");
    }
}

/// Runs in a child process that has no other busy thread.
fn use_after_fork(options: Options, path: &Path) {
    let folder = path.parent().expect("a folder");
    let file = options.open(path).expect("open");
    write_all(&file);
    let other = file.try_clone().expect("clone");
    file.snapshot("before").expect("seal");
    let reader = file.open_snapshot("before").expect("open a snapshot");
    let view = file.view(0..100).expect("view");
    let mut tx = file.begin();
    tx.store(0, &1u64).expect("store");
    // After this read the thread's next read could take the fast path.
    file.read_at(&mut [0; 8], 0).expect("read");
    let before = Snapshot::of(folder);
    // SAFETY: this process runs this one test. The child allocates, which the C library allows
    // after a fork: the other thread of the parent only waits.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork");
    if child == 0 {
        let is_forked = |result: Result<(), Error>| matches!(result, Err(Error::Forked { .. }));
        let checks = [
            is_forked(file.write_at(&[1], 0)),
            is_forked(file.write_many(&[(0, &[1]), (5000, &[1])])),
            is_forked(file.read_at(&mut [0], 0)),
            is_forked(file.store(0, &1u64)),
            is_forked(file.load::<u64>(0).map(drop)),
            is_forked(file.update(0, |n: &mut u64| *n += 1)),
            is_forked(file.transact(|tx| tx.write_at(&[1], 0))),
            is_forked(file.view(0..10).map(drop)),
            is_forked(view.read_at(&mut [0], 0)),
            is_forked(tx.commit()),
            is_forked(file.deploy(0..10).map(drop)),
            is_forked(file.sync().map(drop)),
            is_forked(file.set_len(10)),
            is_forked(file.try_clone().map(drop)),
            is_forked(file.snapshot("child").map(drop)),
            is_forked(file.drop_snapshot("before")),
            is_forked(file.roll_back("before", None)),
            is_forked(reader.read_at(&mut [0], 0)),
            file.snapshots().is_empty(),
            matches!(AtomicMappedFile::open(path), Err(Error::Busy { in_this_process: false, .. })),
        ];
        drop(view);
        drop(reader);
        drop(other);
        let closed = is_forked(file.close(CloseMode::Spatial).map(drop));
        let failed = checks.iter().chain([&closed]).position(|ok| !ok);
        // SAFETY: no precondition. No destructor of the parent runs.
        unsafe { libc::_exit(failed.map_or(0, |n| n as i32 + 1)) };
    }
    let mut status = 0;
    // SAFETY: the process is our child, and the status goes to a live local.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "the child died: {status:#x}");
    assert_eq!(libc::WEXITSTATUS(status), 0, "a check of the child, counted from 1");
    before.assert_unchanged(folder, "after the child");
    run_child(CHILD, "busy", path);
    drop(tx);
    drop(view);
    drop(reader);
    file.drop_snapshot("before").expect("drop");
    file.write_at(&[4; 100], 50_000).expect("the parent goes on");
    drop(other);
    file.close(CloseMode::Spatial).expect("close");
}

#[test]
fn after_a_failed_sync_nothing_works_any_more_and_opening_again_recovers() {
    let Some(ground) = common::page_cache() else {
        eprintln!("no page cache here: skipped");
        return;
    };
    // Through the journal, and through the files after a growth: each file, and the record.
    let by_files = [(call::SYNC_DATA, 1), (call::SYNC_DATA, 2), (call::WRITE_DURABLY, 1)];
    let all = by_files.map(|(call, nth)| (call, nth, true)).into_iter();
    for (call, nth, by_files) in all.chain([(call::WRITE_DURABLY, 1, false)]) {
        let pair = Pair::new(&ground);
        let recorder = Recorder::new();
        let file = ground.options().open_recorded(&recorder, &pair.home).expect("open");
        write_all(&file);
        if by_files {
            let last = LEN as u64 - 1;
            file.set_len(last).and_then(|()| file.set_len(last + 1)).expect("shrink and grow");
            file.write_at(&pair.bytes[LEN - 1..], last).expect("write");
        }
        let view = file.view(0..100).expect("view");
        let other = file.try_clone().expect("clone");
        recorder.fail_next(call, nth, libc::EIO);
        let error = file.sync().expect_err("injected");
        assert!(matches!(error, Error::Io { .. }), "{error:?}");
        assert!(!recorder.heal(), "it came up");
        let is_poisoned = |result: Result<(), Error>| match result {
            Err(error @ Error::Poisoned { .. }) => {
                assert!(error.to_string().contains("open the file again"), "{error}");
            }
            other => panic!("{other:?}"),
        };
        is_poisoned(file.sync().map(drop));
        is_poisoned(other.sync().map(drop));
        is_poisoned(file.write_at(&[1], 0));
        is_poisoned(other.write_at(&[1; 10_000], 0));
        is_poisoned(file.store(0, &1u64));
        is_poisoned(file.update(0, |n: &mut u64| *n += 1));
        is_poisoned(file.transact(|tx| tx.write_at(&[1], 0)));
        is_poisoned(file.begin().write_at(&[1], 0));
        is_poisoned(file.deploy(0..10).map(drop));
        is_poisoned(file.set_len(10));
        is_poisoned(file.snapshot("another").map(drop));
        is_poisoned(file.health());
        // The written bytes are in memory, and a read needs no disk.
        let read = |file: &AtomicMappedFile, offset: u64, len: usize| {
            let mut bytes = vec![0; len];
            file.read_at(&mut bytes, offset).expect("read");
            assert_same(&bytes, &pair.bytes[offset as usize..][..len], "a read");
        };
        read(&file, 0, 1);
        read(&other, 3, LEN - 3);
        read(&file.try_clone().expect("clone"), 5, 7);
        assert_same(&file.read_vec().expect("read"), &pair.bytes, "the whole file");
        assert_same(
            &file.view(5..5000).expect("view").to_vec().expect("read"),
            &pair.bytes[5..5000],
            "a view",
        );
        assert_same(&view.to_vec().expect("read"), &pair.bytes[..100], "an older view");
        let by_transaction = |tx: &mut Transaction<'_>| {
            let mut bytes = [0; 10];
            tx.read_at(&mut bytes, 9000).map(|()| bytes)
        };
        let found = file.transact(by_transaction).expect("a transaction that only reads");
        assert_same(&found, &pair.bytes[9000..][..10], "a transaction");
        file.copy_to(pair.scratch.file("copy")).expect("copy");
        assert_same(&fs::read(pair.scratch.file("copy")).expect("read"), &pair.bytes, "a copy");
        drop(view);
        drop(other);
        is_poisoned(file.close(CloseMode::Spatial).map(drop));
        pair.opens(OnMismatch::Refuse, "opened again");
    }
}

#[test]
fn dropping_a_handle_never_panics_whatever_happened_to_the_files() {
    for ground in media() {
        for how in 0..4 {
            let pair = Pair::new(&ground);
            let file = pair.open().expect("open");
            write_all(&file);
            match how {
                0 => fs::remove_file(&pair.home).expect("remove"),
                1 => fs::remove_file(&pair.reflection).expect("remove"),
                2 => fs::remove_dir_all(pair.scratch.path()).expect("remove"),
                _ => fs::rename(&pair.reflection, pair.scratch.file("elsewhere")).expect("rename"),
            }
            let mut found = vec![0; LEN];
            file.read_at(&mut found, 0).expect("read");
            assert_same(&found, &pair.bytes, "still mapped");
            drop(file);
        }
    }
}
