//! Tests the places and names of files: current folder, links, replaced names.

use super::*;
use crate::common::{self, Snapshot};
use atomic_mmap::{Distrust, Error};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

fn disk() -> common::Ground {
    common::page_cache().unwrap_or_else(common::ram)
}

/// Plays a daemon: opens a relative name, and then changes its folder.
pub fn change_folder(folder: &Path) {
    for mode in [CloseMode::Fast, CloseMode::Spatial] {
        for drops in [false, true] {
            std::env::set_current_dir(folder).expect("go there");
            let file = options().close_on_drop(mode).open("state.dat").expect("open");
            write_and_sync(&file);
            std::env::set_current_dir("/").expect("go away");
            write_more(&file);
            file.set_len(2 * LEN).expect("grow");
            file.set_len(LEN).expect("shrink");
            if drops {
                drop(file);
            } else {
                file.close(mode).expect("close");
            }
            let left = companions_in(folder).len();
            assert_eq!(left > 0, mode == CloseMode::Fast, "{mode:?}, dropped: {drops}");
            let file = options().open(folder.join("state.dat")).expect("open again");
            assert_eq!(state_of(&file), "more");
        }
    }
}

#[test]
fn a_process_that_changes_its_folder_closes_what_it_has_open() {
    let scratch = disk().scratch();
    run_child(CHILD, "chdir", scratch.path());
}

#[test]
fn a_folder_that_is_renamed_while_a_file_is_open_keeps_its_files() {
    for mode in [CloseMode::Fast, CloseMode::Spatial] {
        let scratch = disk().scratch();
        fs::create_dir(scratch.file("data")).expect("a folder");
        let file = options().open(scratch.file("data/state.dat")).expect("open");
        write_and_sync(&file);
        fs::rename(scratch.file("data"), scratch.file("moved")).expect("rename");
        fs::create_dir(scratch.file("data")).expect("another folder of that name");
        fs::write(scratch.file("data/notes"), b"mine").expect("write");
        write_more(&file);
        file.sync().expect("sync");
        file.close(mode).expect("close");
        let is_plain = companions_in(&scratch.file("moved")).is_empty();
        assert_eq!(is_plain, mode == CloseMode::Spatial);
        assert_eq!(fs::read_dir(scratch.file("data")).expect("list").count(), 1);
        let file = options().open(scratch.file("moved/state.dat")).expect("open again");
        assert_eq!(state_of(&file), "more");
    }
}

#[test]
fn closing_removes_no_file_that_took_a_companions_name() {
    let scratch = disk().scratch();
    let file = options().open(scratch.file("state.dat")).expect("open");
    write_and_sync(&file);
    let names = companions_in(scratch.path());
    assert!(!names.is_empty());
    for name in &names {
        fs::rename(name, name.with_added_extension("moved")).expect("rename");
        fs::write(name, b"another program's").expect("write");
    }
    file.close(CloseMode::Spatial).expect("close");
    for name in &names {
        assert_eq!(fs::read(name).expect("still there"), b"another program's");
    }
    assert_eq!(&fs::read(scratch.file("state.dat")).expect("read")[100..104], b"paid");
}

/// Plays a program that opens a file through a link, and then by its own name.
pub fn by_links(folder: &Path) {
    let (etc, data) = (folder.join("etc"), folder.join("data"));
    fs::create_dir(&etc).expect("a folder");
    fs::create_dir(&data).expect("a folder");
    symlink("../data/state.dat", etc.join("link.dat")).expect("a link");
    symlink("etc", folder.join("folder")).expect("a link");
    // A dangling link gets its own error. The first open with `create` makes its target.
    let error = AtomicMappedFile::open(etc.join("link.dat")).expect_err("nothing there");
    assert!(matches!(error, Error::DanglingLink { .. }), "{error:?}");
    let file = options().open(etc.join("link.dat")).expect("open by a dangling link");
    write_and_sync(&file);
    assert_eq!(file.path(), fs::canonicalize(data.join("state.dat")).expect("its path"));
    file.close(CloseMode::Fast).expect("close");
    assert!(companions_in(&etc).is_empty());
    let names = [data.join("state.dat"), etc.join("link.dat"), folder.join("folder/link.dat")];
    for name in &names {
        let file = options().open(name).unwrap_or_else(|e| panic!("{}: {e}", name.display()));
        assert_eq!(state_of(&file), "paid", "{}", name.display());
        let error = options().open(&names[0]).expect_err("is open");
        assert!(matches!(error, Error::Busy { in_this_process: true, .. }), "{error:?}");
        file.close(CloseMode::Fast).expect("close");
    }
}

/// A name at which a file is made was followed if it was a dangling link: `copy_to` made the copy
/// where another user wanted it, and so did an import if the link came while the sender was waited
/// for.
#[test]
fn no_file_is_made_through_a_link() {
    /// Puts a link at the name before the first byte of the stream.
    struct Late<'a>(Option<&'a Path>, &'a [u8]);
    impl std::io::Read for Late<'_> {
        fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
            if let Some(name) = self.0.take() {
                symlink("elsewhere/made", name)?;
            }
            self.1.read(to)
        }
    }
    let scratch = disk().scratch();
    fs::create_dir(scratch.file("elsewhere")).expect("a folder");
    let file = options().open(scratch.file("state.dat")).expect("open");
    file.snapshot("a").expect("seal");
    let mut stream = Vec::new();
    file.export(None, "a", &mut stream).expect("export");
    let [copy, new, late] = ["copy", "new", "late"].map(|name| scratch.file(name));
    symlink("elsewhere/made", &copy).expect("a link");
    symlink("elsewhere/made", &new).expect("a link");
    let made = [
        file.copy_to(&copy),
        options().import(&new, &stream[..]).map(drop),
        options().import(&late, Late(Some(&late), &stream)).map(drop),
    ];
    for error in made.map(|made| made.expect_err("there is a link")) {
        let Error::Io { source, .. } = &error else { panic!("{error:?}") };
        assert_eq!(source.kind(), std::io::ErrorKind::AlreadyExists, "{error}");
    }
    assert_eq!(fs::read_dir(scratch.file("elsewhere")).expect("list").count(), 0);
}

/// A pipe that takes the place of a file between the look at the name and the open of it was waited
/// for.
#[test]
fn a_pipe_is_not_waited_for_whenever_it_comes() {
    use atomic_mmap::testing::OpenHow;
    use std::os::unix::ffi::OsStrExt;
    let scratch = disk().scratch();
    let path = scratch.file("pipe");
    let name = std::ffi::CString::new(path.as_os_str().as_bytes()).expect("no zero");
    // SAFETY: the name is a C string.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o666) }, 0);
    let platform = atomic_mmap::testing::recorder::Recorder::new().platform();
    let name = platform.name(&path).expect("a name");
    for reads_only in [true, false] {
        let how = OpenHow { create_new: false, mode: 0, reads_only };
        let error = platform.open(&name, how).expect_err("it is no file");
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{error}");
    }
}

#[test]
fn a_file_is_one_pair_by_whatever_link_it_is_opened() {
    let scratch = disk().scratch();
    run_child(CHILD, "link", scratch.path());
}

/// Returns `true` if a home file on the disk of these tests has a mark.
pub fn disk_keeps_marks() -> bool {
    let scratch = disk().scratch();
    let probe = fs::File::create(scratch.file("probe")).expect("create");
    let platform = atomic_mmap::testing::recorder::Recorder::new().platform();
    platform.keeps_xattrs(&probe.into(), "user.atomic_mmap").expect("ask")
}

/// The crate followed a link in the place of a companion, and overwrote 4096 bytes of its target.
#[test]
fn a_link_in_the_place_of_a_companion_is_refused_and_never_followed() {
    type Plant = fn(&Path, &Path);
    let soft: Plant = |victim, name| symlink(victim, name).expect("a link");
    let hard: Plant = |victim, name| fs::hard_link(victim, name).expect("a link");
    for suffix in ["", ".journal", ".new"] {
        for (plant, expected) in [(soft, Distrust::IsLink), (hard, Distrust::HasLinks(2))] {
            for is_new in [true, false] {
                let scratch = disk().scratch();
                let path = scratch.file("state.dat");
                let victim = scratch.file("victim");
                fs::write(&victim, vec![0xAA; 1 << 20]).expect("write");
                fs::write(&path, if is_new { vec![] } else { vec![7; 5000] }).expect("write");
                let inode = fs::metadata(&path).expect("stat").ino();
                plant(&victim, &scratch.file(&format!(".atomic-mmap.{inode:x}{suffix}")));
                let before = Snapshot::of(scratch.path());
                if expected != Distrust::IsLink && disk_keeps_marks() {
                    // The file may be a leftover that a backup has linked. A home file without a
                    // mark does not need it, and uses another name.
                    let file = options().open(&path).expect("under another name");
                    file.write_at(&[9; 100], 0).expect("write");
                    file.close(CloseMode::Spatial).expect("close");
                    let kept = fs::read(&victim).expect("read");
                    assert!(kept == vec![0xAA; 1 << 20], "{suffix}: it was written through");
                    continue;
                }
                let error = options().open(&path).expect_err("a trap");
                let Error::Untrusted { why, .. } = &error else { panic!("{suffix}: {error:?}") };
                assert_eq!(*why, expected, "{suffix}, new: {is_new}: {error}");
                before.assert_unchanged(scratch.path(), suffix);
            }
        }
    }
}

#[test]
fn a_link_that_took_the_place_of_a_companion_of_a_pair_is_refused() {
    for (end, leave) in ENDS {
        for suffix in ["", ".journal"] {
            let scratch = disk().scratch();
            let path = scratch.file("state.dat");
            leave(&path);
            let inode = fs::metadata(&path).expect("stat").ino();
            let name = scratch.file(&format!(".atomic-mmap.{inode:x}{suffix}"));
            if !name.exists() {
                continue;
            }
            fs::rename(&name, scratch.file("moved")).expect("rename");
            symlink("moved", &name).expect("a link");
            let before = Snapshot::of(scratch.path());
            let error = options().open(&path).expect_err("a link");
            assert!(matches!(error, Error::Untrusted { .. }), "{end} {suffix}: {error:?}");
            if end == "died" {
                before.assert_unchanged(scratch.path(), suffix);
            }
        }
    }
}

#[test]
fn companions_in_memory_of_a_file_on_a_disk_are_refused() {
    let Some(ground) = common::page_cache() else { return };
    let (disk, memory) = (ground.scratch(), common::ram().scratch());
    let in_memory = |path: &Path| options().reflection_dir(memory.path()).open(path);
    let error = in_memory(&disk.file("state.dat")).expect_err("not kept");
    let is_told =
        matches!(&error, Error::UnsupportedFileSystem { path, .. } if path == memory.path());
    assert!(is_told || common::ram().base.starts_with(std::env::temp_dir()), "{error:?}");
    assert!(!disk.file("state.dat").exists(), "left behind");
    // In the other direction the promise is that of memory.
    let options = options().reflection_dir(disk.path());
    let file = options.open(memory.file("state.dat")).expect("open");
    assert_eq!(file.medium(), atomic_mmap::Medium::Ram);
}

/// With its own companions, a file opens without a scan of a long folder or of the many pairs in
/// it.
#[test]
fn opening_looks_at_names_and_not_through_the_folder() {
    use atomic_mmap::testing::recorder::{Recorder, What};
    let scratch = disk().scratch();
    let listed = |recorder: &Recorder| {
        let events = recorder.take();
        let is_list = |what: &What| matches!(what, What::Os("list_dir"));
        events.iter().filter(|event| is_list(&event.what)).count()
    };
    let recorder = Recorder::new();
    let path = scratch.file("state.dat");
    let file = options().open_recorded(&recorder, &path).expect("make");
    assert_eq!(listed(&recorder), 0, "a new file");
    file.close(CloseMode::Fast).expect("close");
    recorder.take();
    let file = options().open_recorded(&recorder, &path).expect("open");
    assert_eq!(listed(&recorder), 0, "a file with companions");
    drop(file);
}
