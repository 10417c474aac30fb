//! Tests that a copy of a home file alone is complete, or does not open: it has a mark in its
//! bytes from the first store of a session until a spatial close.

use crate::common::{Ground, media, page_cache, read_all, reflections_in};
use atomic_mmap::testing::recorder::{Recorder, What};
use atomic_mmap::testing::{FileId, call, layout};
use atomic_mmap::{
    AtomicMappedFile, CloseMode, Decision, Durability, Error, Medium, Mismatch, OnMismatch,
    Options, Roots,
};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const LEN: u64 = 1 << 20;
/// In the middle of a page with other bytes.
const AT: u64 = 8192 + 128;

fn options(ground: &Ground) -> Options {
    ground.options().create(true).len(LEN).mark_at(AT)
}

/// Copies the bytes of a file alone, as an upload does, to a folder of its own.
fn copy_of(path: &Path, name: &str) -> PathBuf {
    let folder = path.with_file_name(format!("{name}.d"));
    fs::create_dir(&folder).expect("a folder");
    let copy = folder.join("copy.dat");
    fs::write(&copy, fs::read(path).expect("read")).expect("write");
    copy
}

/// Checks that opening the copy fails, in every way, and names the companions that are missing.
fn assert_refused(ground: &Ground, copy: &Path, reflection: &Path, what: &str) {
    let name = reflection.file_name();
    for options in [ground.options().mark_at(AT), ground.options().mark_at(AT).read_only(true)] {
        match options.open(copy).map(drop) {
            Err(Error::Mismatch { reflection, why: Mismatch::LoneCopy, .. }) => {
                assert_eq!(reflection.file_name(), name, "{what}");
                assert_eq!(reflection.parent(), copy.parent(), "{what}");
            }
            other => panic!("{what}: {other:?}"),
        }
    }
    let look = ground.options().mark_at(AT).inspect(copy).expect("inspect");
    assert_eq!(look.decision, Some(Decision::Refuse(Mismatch::LoneCopy)), "{what}");
    assert_eq!(look.if_discarded, Some(Decision::Discard), "{what}");
    assert!(reflections_in(copy.parent().expect("a folder")).is_empty(), "{what}");
}

fn reflection_of(path: &Path) -> PathBuf {
    let look = AtomicMappedFile::options().inspect(path).expect("inspect");
    look.reflection.expect("a reflection file")
}

#[test]
fn a_copy_of_the_home_file_alone_does_not_open_while_the_file_is_in_use() {
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        let file = options(&ground).open(&path).expect("create");
        let reflection = reflection_of(&path);
        let mut n = 0;
        let mut refused = |what: &str| {
            n += 1;
            assert_refused(&ground, &copy_of(&path, &n.to_string()), &reflection, what);
        };
        refused("opened");
        file.write_at(&[1; 4000], 4000).expect("write");
        file.write_at(&[2; 64], 8192).expect("write beside the mark");
        refused("written");
        file.sync().expect("sync");
        file.deploy(0..LEN).expect("deploy");
        refused("deployed");
        file.set_len(2 * LEN).expect("grow");
        let bytes = read_all(&file);
        assert_eq!(bytes[AT as usize..][..64], [0; 64], "no reader sees the mark");
        file.close(CloseMode::Fast).expect("close");
        refused("closed fast");
        // Without the option: the pair knows its mark.
        let file = ground.options().open(&path).expect("open again");
        file.write_at(&[3; 64], 0).expect("write");
        file.deploy(0..LEN).expect("deploy");
        refused("opened again");
        file.close(CloseMode::Unsynced).expect("crash");
        refused("crashed");
        let file = ground.options().open(&path).expect("recover");
        let bytes = read_all(&file);
        file.close(CloseMode::Spatial).expect("close");
        let copy = copy_of(&path, "complete");
        assert_eq!(fs::read(&copy).expect("read"), bytes, "the mark is gone");
        let file = ground.options().mark_at(AT).open(&copy).expect("open the copy");
        assert!(read_all(&file) == bytes);
    }
}

/// A mark that came after the pair is in use would leave a moment in which a copy opens. It comes
/// with the sync of the attribute: a new pair takes no barrier more for it.
#[test]
fn a_new_pair_has_its_mark_before_it_is_in_use_and_by_no_further_barrier() {
    for ground in media() {
        let scratch = ground.scratch();
        let opening = |name: &str, options: Options| -> Vec<What> {
            let recorder = Recorder::new();
            let file = options.open_recorded(&recorder, scratch.file(name)).expect("create");
            let events = recorder.take().into_iter().map(|event| event.what).collect();
            file.close(CloseMode::Spatial).expect("close");
            events
        };
        let plain = opening("plain", ground.options().create(true).len(LEN));
        let marked = opening("marked", options(&ground));
        let barriers = |events: &[What]| {
            let is_one = |what: &&What| {
                matches!(what, What::Sync { .. } | What::WriteDurably { .. } | What::SyncDir { .. })
            };
            events.iter().filter(is_one).count()
        };
        assert_eq!(barriers(&marked), barriers(&plain), "{:?}", ground.medium);
        let find = |is_it: &dyn Fn(&What) -> bool| marked.iter().position(is_it).expect("there");
        let put = find(&|what| matches!(what, What::Write { file: FileId::Home, offset: AT, .. }));
        let begun = find(&|what| {
            let offset = layout::BEGUN_WORD;
            matches!(what, What::Store { file: FileId::Reflection, offset: at, .. } if *at == offset)
        });
        assert!(put < begun, "{:?}", ground.medium);
        let is_late = |what: &What| {
            matches!(
                what,
                What::Copy { file: FileId::Home, .. } | What::Store { file: FileId::Home, .. }
            )
        };
        assert!(!marked.iter().any(is_late), "{:?}: it is stored again", ground.medium);
    }
}

#[test]
fn a_file_with_roots_has_a_mark_by_itself() {
    for ground in media() {
        for at in [0, 4096] {
            let scratch = ground.scratch();
            let path = scratch.file("state.dat");
            let open = || ground.options().create(true).open(&path).expect("open");
            let roots = Roots::open_at(open(), at).expect("roots");
            let value = roots.get_or_insert::<u64>("value").expect("insert");
            value.store(&7).expect("store");
            let lone = |name: &str| {
                let copy = copy_of(&path, name);
                let file = ground.options().open(&copy);
                file.and_then(|file| Roots::open_at(file, at)).map(drop)
            };
            let is_refused = |found: Result<(), Error>| {
                matches!(found, Err(Error::Mismatch { why: Mismatch::LoneCopy, .. }))
            };
            assert!(is_refused(lone("in use")), "{at}");
            roots.into_file().close(CloseMode::Fast).expect("close");
            assert!(is_refused(lone("closed fast")), "{at}");
            let roots = Roots::open_at(open(), at).expect("roots");
            assert!(is_refused(lone("opened again")), "{at}");
            roots.into_file().close(CloseMode::Spatial).expect("close");
            lone("complete").expect("open the copy");
            // From the beginning of the session on, where the mark is at its usual place.
            let file = open();
            if at == 0 {
                assert!(is_refused(lone("plain opening")));
            }
            let roots = Roots::open_at(file, at).expect("roots");
            assert!(is_refused(lone("third")), "{at}");
            assert_eq!(roots.get::<u64>("value").expect("get").expect("7").load().expect("7"), 7);
        }
    }
}

#[test]
fn only_the_crate_writes_to_the_mark() {
    for ground in media() {
        let scratch = ground.scratch();
        let file = options(&ground).open(scratch.file("x")).expect("create");
        let before = read_all(&file);
        let is_refused =
            |written: Result<(), Error>| matches!(written, Err(Error::Reserved { offset: AT, .. }));
        for (len, offset) in [(1, AT), (8, AT + 56), (64, AT), (4096, 8192), (200, AT - 10)] {
            assert!(is_refused(file.write_at(&vec![1; len], offset)), "{len} at {offset}");
        }
        assert!(is_refused(file.transact(|tx| {
            tx.store(0, &1_u64)?;
            tx.store(AT, &1_u64)
        })));
        assert!(is_refused(file.transact(|tx| {
            tx.set_len(LEN + 1)?;
            tx.store(AT, &1_u64)
        })));
        let mut stage = file.stage(8192..12288).expect("stage");
        stage.write_at(&[1; 4096], 0).expect("fill");
        assert!(is_refused(stage.commit().map(drop)));
        assert!(read_all(&file) == before, "nothing was written");
        for (len, offset) in [(1, AT - 1), (8, AT + 64), (128, 8192), (4096, 12288)] {
            file.write_at(&vec![1; len], offset).expect("write beside it");
        }
    }
}

#[test]
fn a_file_that_gets_long_enough_later_gets_its_mark_then() {
    for ground in media() {
        for durability in [Durability::OnSync, Durability::AtomicSync] {
            let scratch = ground.scratch();
            let path = scratch.file("x");
            let options = || ground.options().create(true).mark_at(AT).durability(durability);
            let file = options().open(&path).expect("create");
            file.set_len(AT + 64).expect("grow");
            file.write_at(&[1; 64], 0).expect("write");
            file.sync().expect("sync");
            assert_refused(&ground, &copy_of(&path, "grown"), &reflection_of(&path), "grown");
            file.set_len(100).expect("shrink");
            assert_eq!(fs::metadata(&path).expect("look").len(), 100);
            file.set_len(LEN).expect("grow");
            file.sync().expect("sync");
            assert_refused(&ground, &copy_of(&path, "again"), &reflection_of(&path), "again");
            let bytes = read_all(&file);
            file.close(CloseMode::Unsynced).expect("crash");
            let file = options().open(&path).expect("recover");
            assert!(read_all(&file) == bytes);
            file.close(CloseMode::Spatial).expect("close");
            assert!(fs::read(&path).expect("read") == bytes);
        }
    }
}

/// The state word still told of the mark, so the next opening took the file for one that another
/// program had written over.
#[test]
fn a_file_that_has_become_too_short_for_its_mark_opens_after_a_crash() {
    let with_roots = |ground: &Ground, path: &Path| {
        let options = ground.options().create(true);
        let roots = Roots::open(options.open(path).expect("open")).expect("roots");
        roots.get_or_insert::<u64>("value").expect("insert").store(&7).expect("store");
        roots.into_file()
    };
    let with_mark = |ground: &Ground, path: &Path| options(ground).open(path).expect("create");
    let ways: [fn(&AtomicMappedFile); 4] = [
        |file| file.set_len(100).expect("shrink"),
        |file| file.replace(&[9; 50]).expect("replace"),
        |file| {
            let cut = |tx: &mut atomic_mmap::Transaction<'_>| {
                tx.store(0, &1_u64)?;
                tx.set_len(90)
            };
            file.transact(cut).expect("transaction");
        },
        |file| {
            file.snapshot("long").expect("snapshot");
            file.replace(&[9; 50]).expect("replace");
            file.snapshot("short").expect("snapshot");
            file.roll_back("long", None).expect("roll back");
            file.roll_back("short", None).expect("roll back");
        },
    ];
    type Make = fn(&Ground, &Path) -> AtomicMappedFile;
    let files: [Make; 2] = [with_roots, with_mark];
    for ground in media() {
        for (has_mark, make) in files.iter().enumerate() {
            for (way, shorten) in ways.iter().enumerate() {
                for grows in [false, true] {
                    let scratch = ground.scratch();
                    let path = scratch.file("x");
                    let file = make(&ground, &path);
                    shorten(&file);
                    if grows {
                        file.set_len(LEN).expect("grow");
                    }
                    let bytes = read_all(&file);
                    file.close(CloseMode::Unsynced).expect("crash");
                    let file = ground.options().open(&path);
                    let file = file.unwrap_or_else(|e| panic!("{has_mark} {way} {grows}: {e}"));
                    assert!(read_all(&file) == bytes);
                    // The directory of the roots is gone, and with it what it had reserved.
                    if has_mark == 0 && way > 0 {
                        file.set_len(LEN).expect("grow");
                        file.write_at(&[3; 300], 0)
                            .unwrap_or_else(|e| panic!("{way} {grows}: {e}"));
                    }
                    drop(file);
                }
            }
        }
    }
}

/// The opening failed, so that nothing could be read, and no space given back.
#[test]
fn a_full_disk_puts_the_mark_off_and_refuses_no_opening() {
    for ground in media().into_iter().filter(|ground| ground.medium != Medium::Ram) {
        let scratch = ground.scratch();
        let path = scratch.file("x");
        let file = ground.options().create(true).len(LEN).open(&path).expect("create");
        file.write_at(&[1; 5000], AT - 3000).expect("write");
        file.write_at(&[0; 64], AT).expect("write");
        let bytes = read_all(&file);
        file.close(CloseMode::Fast).expect("close");
        let recorder = Recorder::new();
        recorder.fail_from(call::ALLOCATE, 1, libc::ENOSPC);
        let file = ground.options().mark_at(AT).open_recorded(&recorder, &path).expect("open");
        assert!(read_all(&file) == bytes);
        recorder.heal();
        file.sync().expect("sync");
        assert_refused(&ground, &copy_of(&path, "marked"), &reflection_of(&path), "marked");
    }
}

/// A shrink that a view refused had given the claim on the mark's slot back.
#[test]
fn a_shrink_that_fails_leaves_the_mark() {
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("x");
        let file = options(&ground).open(&path).expect("create");
        let view = file.view(12288..12388).expect("view");
        if !view.is_mapped() {
            continue;
        }
        let refused = file.set_len(100);
        assert!(matches!(refused, Err(Error::Pinned { .. })), "{refused:?}");
        drop(view);
        let written = file.write_at(&[1; 64], AT);
        assert!(matches!(written, Err(Error::Reserved { .. })), "{written:?}");
        for n in 0..4 {
            file.write_at(&[n; 64], AT + 64).expect("write beside it");
            file.deploy(0..LEN).expect("deploy");
        }
        assert_refused(&ground, &copy_of(&path, "refused"), &reflection_of(&path), "refused");
        let bytes = read_all(&file);
        file.close(CloseMode::Unsynced).expect("crash");
        let file = ground.options().open(&path).expect("recover");
        assert!(read_all(&file) == bytes);
    }
}

/// A shrink says that the mark may be gone before it asks for the space that keeping takes.
#[test]
fn a_shrink_without_space_says_that_the_mark_is_there() {
    let mut failed = 0;
    for ground in media() {
        let (scratch, recorder) = (ground.scratch(), Recorder::new());
        let path = scratch.file("x");
        let file = options(&ground).open_recorded(&recorder, &path).expect("create");
        file.write_at(&[1; 500_000], 100_000).expect("write");
        file.snapshot("a").expect("seal");
        let word = || {
            let mut word = [0; 8];
            let reflection = fs::File::open(reflection_of(&path)).expect("open");
            reflection.read_exact_at(&mut word, layout::MARK_WORD).expect("read");
            word
        };
        let before = word();
        recorder.fail_from(call::ALLOCATE, 1, libc::ENOSPC);
        let shrunk = file.set_len(100);
        recorder.heal();
        let Err(error) = shrunk else { continue };
        failed += 1;
        assert!(matches!(error, Error::NoSpace { .. }), "{error:?}");
        assert_eq!(word(), before, "on {}", ground.medium);
        file.health().expect("nothing has changed");
        assert_refused(&ground, &copy_of(&path, "whole"), &reflection_of(&path), "whole");
    }
    assert!(failed > 0, "each shrink had space");
}

/// A rollback, and the close of a file with snapshots, which leaves a complete home file and keeps
/// the companions.
#[test]
fn snapshots_have_no_mark() {
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("x");
        let file = options(&ground).open(&path).expect("create");
        file.write_at(&[1; 64], 4096).expect("write");
        file.snapshot("one").expect("snapshot");
        let bytes_of_one = read_all(&file);
        file.write_at(&[2; 64], 4096).expect("write");
        file.roll_back("one", None).expect("roll back");
        let snapshot = file.open_snapshot("one").expect("open");
        assert!(snapshot.read_vec().expect("read") == bytes_of_one);
        drop(snapshot);
        let bytes = read_all(&file);
        assert_refused(&ground, &copy_of(&path, "1"), &reflection_of(&path), "rolled back");
        let mut stream = Vec::new();
        file.export(None, "one", &mut stream).expect("export");
        file.close(CloseMode::Spatial).expect("close");
        assert!(fs::read(copy_of(&path, "2")).expect("read") == bytes);
        let file = ground.options().open(&path).expect("open again");
        assert!(read_all(&file) == bytes);
        assert_refused(&ground, &copy_of(&path, "3"), &reflection_of(&path), "opened again");
        file.close(CloseMode::Unsynced).expect("crash");
        let file = ground.options().open(&path).expect("recover");
        assert!(read_all(&file) == bytes);
        let replica = scratch.file("replica");
        let (file, _) = options(&ground).len(0).import(&replica, &stream[..]).expect("import");
        assert!(read_all(&file) == bytes);
        assert_refused(&ground, &copy_of(&replica, "4"), &reflection_of(&replica), "received");
        drop(file);
    }
}

#[test]
fn a_copy_can_be_taken_as_it_is() {
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("x");
        let file = options(&ground).open(&path).expect("create");
        let copy = copy_of(&path, "copy");
        drop(file);
        let discard = || options(&ground).on_mismatch(OnMismatch::Discard);
        let file = discard().open(&copy).expect("discard");
        assert!(read_all(&file) == vec![0; LEN as usize]);
        file.close(CloseMode::Spatial).expect("close");
        assert!(fs::read(&copy).expect("read") == vec![0; LEN as usize]);
        options(&ground).open(&copy).expect("a plain file by now");
    }
}

/// The mark is in the only slot that a reader of the home file alone has.
#[test]
fn a_reader_of_a_copy_alone_sees_zeros_for_the_mark() {
    for ground in media() {
        let scratch = ground.scratch();
        let (path, roots) = (scratch.file("x"), scratch.file("roots"));
        let file = options(&ground).open(&path).expect("create");
        file.write_at(&[1; 64], AT - 64).expect("write before it");
        file.write_at(&[2; 64], AT + 64).expect("write behind it");
        file.deploy(0..LEN).expect("deploy");
        let of_roots = ground.options().create(true).open(&roots).expect("create");
        let of_roots = Roots::open(of_roots).expect("roots");
        of_roots.get_or_insert::<u64>("value").expect("insert");
        for (path, at, options) in [
            (&path, AT, ground.options().mark_at(AT)),
            (&roots, 64, ground.options()),
            (&roots, 64, ground.options().mark_at(64)),
        ] {
            let copy = copy_of(path, "alone");
            let there = fs::read(&copy).expect("read");
            let mut expected = there.clone();
            let mark = &mut expected[at as usize..][..64];
            assert_eq!(&mark[..8], b"AtomUsed");
            mark.fill(0);
            let options = options.read_only(true).on_mismatch(OnMismatch::Discard);
            let reader = options.open(&copy).expect("the home file alone");
            assert!(read_all(&reader) == expected, "{at}");
            let found: [u8; 64] = reader.load(at).expect("load");
            assert_eq!(found, [0; 64]);
            let view = reader.view(at - 10..at + 74).expect("view");
            let mut seen = [9; 84];
            view.read_at(&mut seen, 0).expect("read");
            assert_eq!(seen[..], expected[at as usize - 10..][..84]);
            drop(view);
            let second = copy.with_file_name("second");
            reader.copy_to(&second).expect("copy");
            assert!(fs::read(&second).expect("read") == expected, "a copy has no mark");
            drop(reader);
            assert!(fs::read(&copy).expect("read") == there, "a reader changes nothing");
            fs::remove_dir_all(copy.parent().expect("a folder")).expect("remove");
        }
    }
}

/// A pair that exists gets a mark: in a slot that the last durable point must not count.
#[test]
fn a_return_to_the_last_point_does_not_take_the_mark_for_bytes() {
    let Some(ground) = page_cache() else { return };
    for durability in [Durability::OnSync, Durability::AtomicSync] {
        let scratch = ground.scratch();
        let path = scratch.file("x");
        let options = || ground.options().create(true).len(LEN).durability(durability);
        options().open(&path).expect("create").close(CloseMode::Fast).expect("close");
        let file = options().mark_at(AT).open(&path).expect("open again");
        file.close(CloseMode::Unsynced).expect("crash");
        // Files that were restored together go back to the last point.
        let folder = scratch.file("restored");
        fs::create_dir(&folder).expect("a folder");
        for entry in fs::read_dir(scratch.path()).expect("list") {
            let from = entry.expect("an entry").path();
            if from.is_file() {
                fs::copy(&from, folder.join(from.file_name().expect("a name"))).expect("copy");
            }
        }
        for path in [folder.join("x"), path] {
            let file = options().open(&path).expect("go back");
            assert!(read_all(&file) == vec![0; LEN as usize], "{durability:?}");
        }
    }
}

/// After a crash a user writes a backup over the file: the companions are of the old bytes.
#[test]
fn a_file_that_was_written_over_after_a_crash_is_refused() {
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("x");
        let file = options(&ground).open(&path).expect("create");
        file.write_at(&[1; 5000], 0).expect("write");
        file.close(CloseMode::Unsynced).expect("crash");
        let home = fs::File::options().write(true).open(&path).expect("open");
        let backup = vec![9; LEN as usize];
        std::os::unix::fs::FileExt::write_all_at(&home, &backup, 0).expect("restore");
        match ground.options().open(&path).map(drop) {
            Err(Error::Mismatch { why: Mismatch::HomeChanged, .. }) => {}
            other => panic!("{other:?}"),
        }
        assert!(fs::read(&path).expect("read") == backup);
        let file = ground.options().on_mismatch(OnMismatch::Discard).open(&path).expect("open");
        assert!(read_all(&file) == backup);
    }
}

#[test]
fn a_mark_needs_64_free_bytes_and_stays_where_it_is() {
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("x");
        fs::write(&path, vec![7; LEN as usize]).expect("a plain file");
        let says = |options: Options, what: &str| match options.open(&path).map(drop) {
            Err(error @ Error::Io { .. }) => assert!(error.to_string().contains(what), "{error}"),
            other => panic!("{other:?}"),
        };
        says(ground.options().mark_at(AT), "other bytes");
        says(ground.options().mark_at(7), "multiple of 64");
        says(ground.options().mark_at(1 << 50), "multiple of 64");
        assert!(fs::read(&path).expect("read") == vec![7; LEN as usize]);
        fs::write(&path, vec![0; LEN as usize]).expect("a plain file");
        let file: AtomicMappedFile = ground.options().mark_at(AT).open(&path).expect("open");
        file.close(CloseMode::Fast).expect("close");
        says(ground.options().mark_at(0), "another offset");
        ground.options().mark_at(AT).open(&path).expect("open");
        ground.options().mark_at(0).open(&path).expect("elsewhere, after a spatial close");
    }
}
