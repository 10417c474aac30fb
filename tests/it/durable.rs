//! Tests that `sync` makes a durable point, and that recovery after a restart returns exactly to
//! it.
//!
//! The tests simulate a restart of the machine: they copy the files and change the boot id in the
//! superblocks. The copy holds all that the kernel would have written back, and recovery must not
//! trust it. The lab tests which bytes survive a real loss of power.

use crate::common::{self, Ground, Rng, assert_same, read_all, reflections_in};
use atomic_mmap::testing::marker::{self, Marker};
use atomic_mmap::testing::recorder::{Recorder, What};
use atomic_mmap::testing::superblock::{Copy, Moment, Superblock};
use atomic_mmap::testing::{FileId, PageIndex, REGION, Validity, call, layout, state_word};
use atomic_mmap::{
    AtomicMappedFile, CloseMode, DeployPolicy, Durability, Error, Medium, Mismatch, OnMismatch,
    Options, Survives,
};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const LEN: u64 = 600_000;
const PAGE: u64 = 4096;

pub fn ground() -> Option<Ground> {
    let ground = common::page_cache();
    if ground.is_none() {
        eprintln!("no page cache here: skipped");
    }
    ground
}

/// A pair in another folder, as a restart of the machine leaves it: in use, of another boot, with
/// the identity of the copied home file.
pub struct Restarted {
    _scratch: common::Scratch,
    pub home: PathBuf,
}

pub fn restarted(ground: &Ground, home: &Path) -> Restarted {
    copied(ground, home, Some([0xb0; 16]))
}

/// Copies the pair as a process crash leaves it: of this boot.
pub fn died(ground: &Ground, home: &Path) -> Restarted {
    copied(ground, home, None)
}

fn copied(ground: &Ground, home: &Path, boot: Option<[u8; 16]>) -> Restarted {
    let scratch = ground.scratch();
    let copy = scratch.file("state.dat");
    common::copy_file(home, &copy);
    let reflection = reflections_in(home.parent().expect("a folder")).pop().expect("one");
    let stat = fs::metadata(&copy).expect("stat");
    let inode = std::os::unix::fs::MetadataExt::ino(&stat);
    let born = stat.created().ok().map(|born| {
        let since = born.duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        Moment { seconds: since.as_secs() as i64, nanos: since.subsec_nanos() }
    });
    let theirs = scratch.file(&format!(".atomic-mmap.{inode:x}"));
    common::copy_file(&reflection, &theirs);
    for end in ["journal", "snapshots"] {
        let companion = reflection.with_added_extension(end);
        if companion.exists() {
            common::copy_file(&companion, &theirs.with_added_extension(end));
        }
    }
    let file = fs::File::options().read(true).write(true).open(&theirs).expect("open");
    for at in layout::SUPERBLOCKS {
        let mut bytes = [0; 512];
        file.read_exact_at(&mut bytes, at).expect("read");
        if let Copy::Valid(mut superblock) = Superblock::decode(&bytes) {
            superblock.boot_id = boot.unwrap_or(superblock.boot_id);
            superblock.identity.inode = inode;
            superblock.identity.born = born;
            superblock.own.inode = 0;
            file.write_all_at(&superblock.encode(), at).expect("write");
            let mark = Marker::new(superblock.uuid, &superblock.identity);
            let home = fs::File::open(&copy).expect("open").into();
            let marked = Recorder::new().platform().set_xattr(&home, marker::NAME, &mark.encode());
            marked.expect("set the mark");
        }
    }
    Restarted { _scratch: scratch, home: copy }
}

impl Restarted {
    pub fn path(&self) -> &Path {
        &self.home
    }

    /// Opens the reflection file for changes.
    pub fn reflection(&self) -> fs::File {
        let folder = self.home.parent().expect("a folder");
        let path = reflections_in(folder).pop().expect("one");
        fs::File::options().read(true).write(true).open(path).expect("open")
    }

    pub fn store(&self, at: u64, word: u64) {
        self.reflection().write_all_at(&word.to_le_bytes(), at).expect("write");
    }

    pub fn store_length(&self, at: u64, len: u64) {
        self.store(at, state_word::encode(at, len));
    }

    pub fn open(&self, ground: &Ground) -> AtomicMappedFile {
        ground.options().open(&self.home).expect("goes back to the last durable point")
    }
}

pub fn new_file(ground: &Ground, durability: Durability) -> (common::Scratch, AtomicMappedFile) {
    let scratch = ground.scratch();
    let options = ground.options().create(true).len(LEN).durability(durability);
    let file = options.open(scratch.file("state.dat")).expect("open");
    (scratch, file)
}

/// Makes operations of all sizes, which overlap each other.
pub fn write_at_random(file: &AtomicMappedFile, model: &mut [u8], rng: &mut Rng, count: usize) {
    for _ in 0..count {
        let size = match rng.below(5) {
            0 => 1 + rng.below(8),
            1 => 1 + rng.below(300),
            2 => PAGE,
            3 => 1 + rng.below(20_000),
            _ => 64 * PAGE,
        };
        let size = size.min(model.len() as u64);
        let offset = match size % PAGE {
            0 => rng.below((model.len() as u64 - size) / PAGE + 1) * PAGE,
            _ => rng.below(model.len() as u64 - size + 1),
        };
        let data = rng.bytes(size as usize);
        if rng.below(4) == 0 {
            let mut tx = file.begin();
            tx.write_at(&data, offset).expect("note");
            tx.write_at(&[7; 3], 5).expect("note");
            tx.commit().expect("commit");
            model[offset as usize..][..data.len()].copy_from_slice(&data);
            model[5..8].fill(7);
        } else {
            file.write_at(&data, offset).expect("write");
            model[offset as usize..][..data.len()].copy_from_slice(&data);
        }
    }
    assert_same(&read_all(file), model, "read back");
}

#[test]
fn a_restart_goes_back_to_the_last_sync_exactly() {
    let Some(ground) = ground() else { return };
    for seed in 0..4 {
        let (scratch, file) = new_file(&ground, Durability::OnSync);
        let mut rng = Rng(seed);
        let mut model = vec![0; LEN as usize];
        let mut point = model.clone();
        for round in 0..6 {
            let image = restarted(&ground, &scratch.file("state.dat"));
            assert_same(&read_all(&image.open(&ground)), &point, &format!("{seed} {round}"));
            write_at_random(&file, &mut model, &mut rng, 12);
            let image = restarted(&ground, &scratch.file("state.dat"));
            assert_same(
                &read_all(&image.open(&ground)),
                &point,
                &format!("{seed} {round} written"),
            );
            if round == 3 {
                file.deploy(0..LEN).expect("deploy");
                point.clone_from(&model);
            }
            if round != 4 {
                file.sync().expect("sync");
                point.clone_from(&model);
            }
        }
        assert!(file.stats().journal_points + file.stats().flush_points > 4);
        assert!(file.stats().redo_writes > 0);
    }
}

#[test]
fn what_was_gone_back_to_goes_on_as_any_file() {
    let Some(ground) = ground() else { return };
    let (scratch, file) = new_file(&ground, Durability::OnSync);
    let mut rng = Rng(77);
    let mut model = vec![0; LEN as usize];
    write_at_random(&file, &mut model, &mut rng, 20);
    file.sync().expect("sync");
    let point = model.clone();
    write_at_random(&file, &mut model, &mut rng, 20);
    let image = restarted(&ground, &scratch.file("state.dat"));
    let again = image.open(&ground);
    let mut model = point;
    for _ in 0..3 {
        write_at_random(&again, &mut model, &mut rng, 10);
        again.sync().expect("sync");
    }
    again.close(CloseMode::Fast).expect("close");
    let again = image.open(&ground);
    assert_same(&read_all(&again), &model, "closed fast");
    write_at_random(&again, &mut model, &mut rng, 10);
    again.close(CloseMode::Spatial).expect("close");
    assert_same(&fs::read(&image.home).expect("read"), &model, "closed");
    let names = fs::read_dir(image.home.parent().expect("a folder")).expect("list").count();
    assert_eq!(names, 1, "the journal goes with the reflection file");
}

#[test]
fn lengths_go_back_as_well() {
    let Some(ground) = ground() else { return };
    let (scratch, file) = new_file(&ground, Durability::OnSync);
    let home = scratch.file("state.dat");
    file.write_at(&[1; 5000], LEN - 5000).expect("write");
    file.sync().expect("sync");
    file.set_len(LEN + 100_000).expect("grow");
    file.write_at(&[2; 5000], LEN + 90_000).expect("write");
    let found = restarted(&ground, &home).open(&ground);
    assert_eq!(found.len(), LEN, "a growth that was not synced");
    file.sync().expect("sync");
    let image = restarted(&ground, &home);
    // A loss of power can take back a growth of the file and keep the record of the growth.
    fs::File::options().write(true).open(&image.home).and_then(|f| f.set_len(LEN)).expect("cut");
    let found = image.open(&ground);
    assert_eq!(found.len(), LEN + 100_000);
    let mut bytes = [0; 5000];
    found.read_at(&mut bytes, LEN + 90_000).expect("read");
    assert_eq!(bytes, [2; 5000]);
    // A shrink makes its own durable point, and bytes that grow again are zero.
    file.set_len(LEN - 2000).expect("shrink");
    let found = restarted(&ground, &home).open(&ground);
    assert_eq!(found.len(), LEN - 2000);
    file.set_len(LEN).expect("grow");
    file.sync().expect("sync");
    let found = restarted(&ground, &home).open(&ground);
    let mut bytes = [9; 5000];
    found.read_at(&mut bytes, LEN - 5000).expect("read");
    assert_eq!(bytes[..3000], [1; 3000]);
    assert_eq!(bytes[3000..], [0; 2000]);
}

/// The fuzz target `operations` found this: the kernel had written a slice word of a growth that
/// was lost.
#[test]
fn what_lies_past_the_last_point_is_zero_when_the_file_grows_again() {
    let Some(ground) = ground() else { return };
    let (scratch, file) = new_file(&ground, Durability::OnSync);
    file.write_at(&[1; 5000], 0).expect("write");
    file.sync().expect("sync");
    let image = restarted(&ground, &scratch.file("state.dat"));
    let page = LEN.div_ceil(PAGE) + 3;
    image.store(layout::slice_word(PageIndex(page)), 0b11);
    image.store(layout::durable_word(PageIndex(page)), 0b100);
    let found = image.open(&ground);
    found.set_len(LEN + 100_000).expect("grow");
    let mut model = vec![0; LEN as usize + 100_000];
    model[..5000].fill(1);
    assert_same(&read_all(&found), &model, "grown");
    let mut word = [0; 8];
    image.reflection().read_exact_at(&mut word, layout::slice_word(PageIndex(page))).expect("read");
    assert_eq!(word, [0; 8], "slices without a write are in the reflection page");
    found.sync().expect("sync");
    let again = restarted(&ground, &image.home).open(&ground);
    assert_same(&read_all(&again), &model, "after another restart");
    found.close(CloseMode::Spatial).expect("close");
    assert_same(&fs::read(&image.home).expect("read"), &model, "closed");
}

/// The bytes past the new length belong to the last durable point until the shrink has made its
/// own. Opening must not truncate them earlier either.
#[test]
fn a_shrink_that_died_is_finished_behind_a_point_of_its_own() {
    let Some(ground) = ground() else { return };
    let (scratch, file) = new_file(&ground, Durability::OnSync);
    let home = scratch.file("state.dat");
    let mut model: Vec<u8> = (0..LEN).map(|n| (n % 251) as u8).collect();
    file.write_at(&model, 0).expect("write");
    file.sync().expect("sync");
    file.write_at(&[7; 3000], 0).expect("write");
    let image = died(&ground, &home);
    // All steps of the shrink before the crash.
    let new = LEN / 3;
    image.store_length(layout::LENGTH_WORD, new);
    let found = image.open(&ground);
    model[..3000].fill(7);
    model.truncate(new as usize);
    assert_same(&read_all(&found), &model, "after the death");
    let again = restarted(&ground, &image.home).open(&ground);
    assert_same(&read_all(&again), &model, "after a restart");
    found.set_len(LEN).expect("grow");
    found.sync().expect("sync");
    model.resize(LEN as usize, 0);
    let again = restarted(&ground, &image.home).open(&ground);
    assert_same(&read_all(&again), &model, "grown again");
}

/// After a crash, opening only noted the changes since the last durable point. A node opened the
/// file, loaded its vote and answered with it. Then a loss of power took the vote back, and the
/// node voted for another candidate.
#[test]
fn what_was_read_after_opening_is_not_taken_back_by_any_later_end() {
    let Some(ground) = ground() else { return };
    let (scratch, file) = new_file(&ground, Durability::OnSync);
    let home = scratch.file("state.dat");
    let mut rng = Rng(26);
    let mut model = vec![0; LEN as usize];
    write_at_random(&file, &mut model, &mut rng, 12);
    file.sync().expect("sync");
    write_at_random(&file, &mut model, &mut rng, 12);
    file.set_len(LEN + 100_000).expect("grow");
    model.resize(LEN as usize + 100_000, 0);
    for durability in [Durability::OnSync, Durability::EveryWrite, Durability::AtomicSync] {
        let image = died(&ground, &home);
        let options = ground.options().durability(durability);
        let found = options.clone().open(&image.home).expect("recovers");
        assert_same(&read_all(&found), &model, "after the death");
        let again = restarted(&ground, &image.home);
        assert_same(&read_all(&again.open(&ground)), &model, "and a loss of power");
        let again = died(&ground, &image.home);
        let again = options.open(&again.home).expect("opens");
        assert_same(&read_all(&again), &model, "and another death");
    }
}

/// A point with a longer journal failed on a full disk. Opening takes no space, so it must succeed
/// on a full disk.
#[test]
fn opening_makes_its_durable_point_on_a_full_disk() {
    let Some(ground) = ground() else { return };
    let scratch = ground.scratch();
    let options = || ground.options().create(true).len(32 << 20).journal_len(64 << 10);
    let file = options().open(scratch.file("state.dat")).expect("open");
    file.write_at(&vec![3; 32 << 20], 0).expect("write");
    file.sync().expect("sync");
    // A word for every second page: more than the journal holds.
    for page in (0..32 << 20).step_by(2 * PAGE as usize) {
        file.write_at(&[4; 64], page).expect("write");
    }
    let expected = read_all(&file);
    let image = died(&ground, &scratch.file("state.dat"));
    let recorder = Recorder::new();
    recorder.fail_from(call::SET_LEN, 1, libc::ENOSPC);
    let found = ground.options().open_recorded(&recorder, &image.home).expect("opens");
    let again = restarted(&ground, &image.home).open(&ground);
    assert_same(&read_all(&again), &expected, "after a loss of power");
    drop(found);
}

/// No crash leaves a point with a longer file than the working state, because a shrink first makes
/// a point.
#[test]
fn a_point_that_is_too_long_is_damage() {
    let Some(ground) = ground() else { return };
    let (scratch, file) = new_file(&ground, Durability::OnSync);
    file.write_at(b"somewhere", 5).expect("write");
    file.sync().expect("sync");
    let home = scratch.file("state.dat");
    let refused = |image: &Restarted| {
        let error = ground.options().open(&image.home).expect_err("damaged");
        assert!(matches!(error, Error::Mismatch { why: Mismatch::Corrupt, .. }), "{error}");
    };
    let image = died(&ground, &home);
    image.store_length(layout::LENGTH_WORD, LEN / 2);
    image.store_length(layout::HIGH_WATER_WORD, LEN / 2);
    refused(&image);
    // The length at the start of the session exceeds the limit of the format.
    for image in [died(&ground, &home), restarted(&ground, &home)] {
        let file = image.reflection();
        for at in layout::SUPERBLOCKS {
            let mut bytes = [0; 512];
            file.read_exact_at(&mut bytes, at).expect("read");
            if let Copy::Valid(mut superblock) = Superblock::decode(&bytes) {
                superblock.durable = superblock.durable.with_len(layout::MAX_LEN + 1);
                file.write_all_at(&superblock.encode(), at).expect("write");
            }
        }
        refused(&image);
    }
}

#[test]
fn all_or_nothing_takes_back_what_was_not_synced_when_the_process_dies() {
    for ground in common::media() {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        let options = || ground.options().durability(Durability::AtomicSync);
        let file = options().create(true).len(LEN).open(&path).expect("open");
        assert_eq!(file.survives(), Survives::Nothing);
        let mut rng = Rng(5);
        let mut model = vec![0; LEN as usize];
        write_at_random(&file, &mut model, &mut rng, 20);
        file.sync().expect("sync");
        let point = model.clone();
        write_at_random(&file, &mut model, &mut rng, 20);
        // The copy is made before the handle is closed, so it holds the files as a process crash
        // leaves them.
        let image = restarted(&ground, &path);
        let again = options().open(&image.home).expect("open");
        assert_same(&read_all(&again), &point, &ground.medium.to_string());
        drop(again);
        file.close(CloseMode::Spatial).expect("closing keeps everything");
        assert_same(&fs::read(&path).expect("read"), &model, "closed");
    }
}

/// After a crash before the barrier, the newest record may exist only in the page cache. The bytes
/// that recovery replays from it may be written back immediately. If the power then failed, the
/// next replay would end before this record.
#[test]
fn the_newest_record_is_durable_before_anything_is_replayed_from_it() {
    if cfg!(atomic_mmap_portable) {
        eprintln!("written and synced by two calls here: skipped");
        return;
    }
    let Some(ground) = ground() else { return };
    let (scratch, file) = new_file(&ground, Durability::AtomicSync);
    file.write_at(&[1; 300], 5).expect("write");
    file.sync().expect("sync");
    file.close(CloseMode::Unsynced).expect("close");
    let recorder = Recorder::new();
    let options = ground.options().durability(Durability::AtomicSync);
    let file = options.open_recorded(&recorder, scratch.file("state.dat")).expect("goes back");
    let events = recorder.take();
    let first = |is: &dyn Fn(&What) -> bool| events.iter().position(|event| is(&event.what));
    let record = first(&|what| matches!(what, What::WriteDurably { .. }));
    let replayed = first(&|what| matches!(what, What::Copy { .. } | What::Store { .. }));
    assert!(record.is_some() && record < replayed, "{record:?}, {replayed:?}");
    assert_eq!(file.load::<u8>(5).expect("load"), 1);
}

/// A game made a save in ten writes and a `sync`. An early return or a panic in the middle of a
/// save dropped the handle. That drop made half a save durable, although `AtomicSync` promises a
/// whole save or none.
#[test]
fn half_a_save_is_taken_back_however_the_handle_is_dropped() {
    let save = |file: &AtomicMappedFile, level: u8, writes: u64| {
        for n in 0..writes {
            file.write_at(&[level; 8], n * PAGE).expect("write");
        }
        if writes < 10 {
            return Err("cannot serialise the inventory");
        }
        file.sync().expect("sync");
        Ok(())
    };
    for ground in common::media() {
        for mode in [CloseMode::Spatial, CloseMode::Fast, CloseMode::Unsynced] {
            for ends in ["early return", "panic", "a clone is closed so"] {
                let scratch = ground.scratch();
                let options =
                    ground.options().create(true).len(LEN).durability(Durability::AtomicSync);
                let open = || {
                    let options = options.clone().close_on_drop(mode);
                    options.open(scratch.file("state.dat")).expect("open")
                };
                let file = open();
                if ends == "a clone is closed so" {
                    let other = file.try_clone().expect("another");
                    assert!(matches!(other.close(mode), Err(Error::StillOpen { .. })));
                }
                let play = move || -> Result<(), &str> {
                    save(&file, 1, 10)?;
                    let saved = save(&file, 2, 5);
                    assert!(ends != "panic", "as planned");
                    saved
                };
                let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(play));
                assert!(!matches!(played, Ok(Ok(()))));
                let file = open();
                let levels: Vec<u8> = (0..10).map(|n| file.load(n * PAGE).expect("load")).collect();
                assert_eq!(levels, [1; 10], "{ends}, {mode:?} on {}", ground.medium);
                // A complete save is closed in the mode of the options.
                save(&file, 3, 10).expect("saves");
                drop(file);
                let names = fs::read_dir(scratch.path()).expect("list").count();
                assert_eq!(names == 1, mode == CloseMode::Spatial, "{mode:?}: {names}");
            }
        }
    }
}

/// A caller of `close` wants its writes durable. If another handle is left, its drop makes no
/// durable point.
#[test]
fn a_handle_that_is_closed_beside_others_makes_a_point_of_what_is_all_or_nothing() {
    for ground in common::media() {
        for mode in [CloseMode::Spatial, CloseMode::Fast, CloseMode::Unsynced] {
            let scratch = ground.scratch();
            let options = ground.options().create(true).len(LEN).durability(Durability::AtomicSync);
            let open = || options.clone().open(scratch.file("state.dat")).expect("open");
            let file = open();
            let other = file.try_clone().expect("another");
            file.write_at(&[1; 8], 0).expect("write");
            assert!(matches!(file.close(mode), Err(Error::StillOpen { handles: 1, .. })));
            drop(other);
            let expected = if mode == CloseMode::Unsynced { 0 } else { 1_u8 };
            assert_eq!(open().load::<u8>(0).expect("load"), expected, "{mode:?}");
        }
    }
}

/// A program that closes with `Unsynced` leaves the files as a crash would. It does not wait and
/// gets no error.
#[test]
fn an_unsynced_close_leaves_what_the_death_of_the_process_would_leave() {
    for ground in common::media() {
        for durability in [Durability::OnSync, Durability::EveryWrite, Durability::AtomicSync] {
            let scratch = ground.scratch();
            let home = scratch.file("state.dat");
            let options = ground.options().create(true).len(LEN).durability(durability);
            let file = options.clone().open(&home).expect("open");
            file.write_at(&[1; 8], 5).expect("write");
            file.sync().expect("sync");
            file.write_at(&[2; 8], 5).expect("write");
            file.set_len(LEN + 1).expect("grow");
            file.close(CloseMode::Unsynced).expect("close");
            let (byte, len) = match durability {
                Durability::AtomicSync => (1, LEN),
                _ => (2, LEN + 1),
            };
            if ground.medium == Medium::PageCache && durability == Durability::OnSync {
                let again = restarted(&ground, &home).open(&ground);
                assert_eq!((again.load::<u8>(5).expect("load"), again.len()), (1, LEN));
            }
            let again = options.open(&home).expect("opens");
            let found = (again.load::<u8>(5).expect("load"), again.len());
            assert_eq!(found, (byte, len), "{durability:?} on {}", ground.medium);
        }
    }
}

#[test]
fn every_write_is_durable_when_it_returns_if_that_was_asked_for() {
    let Some(ground) = ground() else { return };
    let (scratch, file) = new_file(&ground, Durability::EveryWrite);
    assert_eq!(file.survives(), Survives::PowerLoss);
    for n in 1..40_u8 {
        file.write_at(&[n; 700], u64::from(n % 5) * 1000).expect("write");
        if n % 8 == 0 {
            let found = restarted(&ground, &scratch.file("state.dat")).open(&ground);
            assert_same(&read_all(&found), &read_all(&file), "a write that has returned");
        }
    }
    // Several threads share barriers, and no write is lost.
    std::thread::scope(|scope| {
        for thread in 0..6_u64 {
            let file = &file;
            scope.spawn(move || {
                for n in 1..30_u8 {
                    file.write_at(&[n; 100], 100_000 + thread * PAGE).expect("write");
                }
            });
        }
    });
    let found = restarted(&ground, &scratch.file("state.dat")).open(&ground);
    assert_same(&read_all(&found), &read_all(&file), "writes of several threads");
}

#[test]
fn syncs_come_by_themselves_at_an_interval() {
    let Some(ground) = ground() else { return };
    let scratch = ground.scratch();
    let path = scratch.file("state.dat");
    let options = ground.options().create(true).len(LEN).sync_every(Duration::from_millis(5));
    let file = options.open(&path).expect("open");
    file.write_at(b"by itself", 100).expect("write");
    let begin = Instant::now();
    while file.stats().journal_points == 0 {
        assert!(begin.elapsed() < common::HANGS, "no sync came");
        std::thread::sleep(Duration::from_millis(2));
    }
    let found = restarted(&ground, &path).open(&ground);
    assert_same(&read_all(&found), &read_all(&file), "synced in the background");
}

/// Writes more records than the journal holds, with checkpoints in the background.
#[test]
fn the_journal_goes_round() {
    let Some(ground) = ground() else { return };
    let scratch = ground.scratch();
    let path = scratch.file("state.dat");
    let options = ground.options().create(true).len(LEN).journal_len(64 << 10);
    let file = options.open(&path).expect("open");
    let mut rng = Rng(3);
    let mut model = vec![0; LEN as usize];
    for round in 0..120 {
        let size = 1 + rng.below(2000) as usize;
        let data = rng.bytes(size);
        let offset = rng.below(LEN - 2000);
        file.write_at(&data, offset).expect("write");
        model[offset as usize..][..data.len()].copy_from_slice(&data);
        file.sync().expect("sync");
        if round % 40 == 7 {
            let found = restarted(&ground, &path).open(&ground);
            assert_same(&read_all(&found), &model, &format!("round {round}"));
        }
    }
    assert!(file.stats().checkpoints > 0, "{:?}", file.stats());
    let found = restarted(&ground, &path).open(&ground);
    assert_same(&read_all(&found), &model, "at the end");
}

/// A pair with a journal that grows, and the bytes that it holds.
struct Growing {
    ground: Ground,
    scratch: common::Scratch,
    recorder: Recorder,
    file: AtomicMappedFile,
    model: Vec<u8>,
    rounds: u64,
}

impl Growing {
    const LEN: u64 = 64 << 10;
    const FULL: u64 = 256 << 10;

    fn new(ground: Ground) -> Growing {
        let (scratch, recorder) = (ground.scratch(), Recorder::new());
        // Without checkpoints in the background a journal of full length gets full, too.
        recorder.hold_background();
        let path = scratch.file("state.dat");
        let options = Growing::options(&ground).create(true).len(Growing::LEN);
        let file = options.open_recorded(&recorder, path).expect("open");
        let model = vec![0; Growing::LEN as usize];
        Growing { ground, scratch, recorder, file, model, rounds: 0 }
    }

    fn options(ground: &Ground) -> atomic_mmap::Options {
        ground.options().journal_len(Growing::FULL)
    }

    fn journal_len(&self) -> u64 {
        let journal = self.file.reflection_path().with_added_extension("journal");
        fs::metadata(journal).expect("the journal").len()
    }

    /// Makes a point with a record of one block.
    fn sync(&mut self) {
        self.rounds += 1;
        // In one page, so that no write needs space of its own.
        let at = (self.rounds * 8 % PAGE) as usize;
        let bytes = self.rounds.to_le_bytes();
        self.file.write_at(&bytes, at as u64).expect("write");
        self.model[at..at + 8].copy_from_slice(&bytes);
        self.file.sync().expect("sync");
    }

    /// Makes points until the next one finds no room in the journal, which has 64 KiB.
    fn fill_the_first_ring(&mut self) {
        (0..14).for_each(|_| self.sync());
        assert_eq!(self.journal_len(), 64 << 10, "so far there is room");
    }

    #[track_caller]
    fn assert_restarts(&self, what: &str) {
        let image = restarted(&self.ground, &self.scratch.file("state.dat"));
        assert_same(&read_all(&image.open(&self.ground)), &self.model, what);
    }
}

#[test]
fn a_journal_doubles_when_a_point_finds_no_room_and_stays_within_its_limit() {
    let Some(ground) = ground() else { return };
    let mut pair = Growing::new(ground.clone());
    pair.fill_the_first_ring();
    let mut lens = vec![pair.journal_len()];
    while *lens.last().expect("one") < Growing::FULL {
        assert_eq!(pair.file.stats().checkpoints, 0, "a growth comes before a checkpoint");
        assert!(pair.rounds < 100, "{lens:?}");
        pair.sync();
        if pair.journal_len() > lens[lens.len() - 1] {
            lens.push(pair.journal_len());
            pair.assert_restarts("just grown");
        }
    }
    assert_eq!(lens, [64 << 10, 128 << 10, 256 << 10]);
    (0..200).for_each(|_| pair.sync());
    assert_eq!(pair.journal_len(), Growing::FULL);
    assert!(pair.file.stats().checkpoints > 0, "{:?}", pair.file.stats());
    pair.assert_restarts("gone round");
    let Growing { file, scratch, .. } = pair;
    let path = scratch.file("state.dat");
    let journal = file.reflection_path().with_added_extension("journal");
    file.close(CloseMode::Fast).expect("close");
    for (limit, len) in [(Growing::FULL, Growing::FULL), (128 << 10, 128 << 10)] {
        let file = ground.options().journal_len(limit).open(&path).expect("open again");
        assert_eq!(fs::metadata(&journal).expect("the journal").len(), len);
        file.close(CloseMode::Fast).expect("close");
    }
}

/// One record of half the file needs a longer journal at once.
#[test]
fn a_journal_grows_for_a_record_that_takes_more_than_a_quarter_of_it() {
    let Some(ground) = ground() else { return };
    let mut pair = Growing::new(ground);
    pair.file.write_at(&[7; 40 << 10], 3).expect("write");
    pair.model[3..][..40 << 10].fill(7);
    pair.file.sync().expect("sync");
    assert_eq!(pair.journal_len(), Growing::FULL);
    assert_eq!((pair.file.stats().journal_points, pair.file.stats().flush_points), (1, 0));
    pair.assert_restarts("a long record");
}

/// Whatever fails of a growth, the journal stays short, and a checkpoint makes room.
#[test]
fn a_journal_that_cannot_grow_stays_short_and_no_point_fails() {
    let Some(ground) = ground() else { return };
    for (call, code) in [
        (call::ALLOCATE, libc::ENOSPC),
        (call::ALLOCATE, libc::EDQUOT),
        (call::WRITE, libc::ENOSPC),
        (call::WRITE, libc::EIO),
    ] {
        if cfg!(atomic_mmap_portable) && call == call::WRITE {
            continue; // There a record is written by the same call.
        }
        let mut pair = Growing::new(ground.clone());
        pair.fill_the_first_ring();
        pair.recorder.fail_from(call, 1, code);
        (0..40).for_each(|_| pair.sync());
        assert!(!pair.recorder.heal(), "{call} came up");
        assert_eq!(pair.journal_len(), 64 << 10, "{call}");
        assert!(pair.file.stats().checkpoints > 0, "{:?}", pair.file.stats());
        pair.assert_restarts(call);
        (0..20).for_each(|_| pair.sync());
        assert!(pair.journal_len() > 64 << 10, "it grows once that is possible");
        pair.assert_restarts("grown later");
    }
    if cfg!(atomic_mmap_portable) {
        return; // There a record is synced by the same call.
    }
    let mut pair = Growing::new(ground);
    pair.fill_the_first_ring();
    pair.recorder.fail_next(call::SYNC_DATA, 1, libc::EIO);
    pair.sync();
    assert!(!pair.recorder.heal(), "the sync of the zeroes came up");
    assert_eq!(pair.journal_len(), 64 << 10, "no record relies on them");
    pair.assert_restarts("not synced");
}

/// The zeroes are durable before the first record that lies among them.
#[test]
fn a_journal_is_longer_durably_before_a_record_relies_on_it() {
    if cfg!(atomic_mmap_portable) {
        eprintln!("written and synced by two calls here: skipped");
        return;
    }
    let Some(ground) = ground() else { return };
    let mut pair = Growing::new(ground);
    pair.fill_the_first_ring();
    pair.recorder.take();
    pair.sync();
    let steps: Vec<What> = pair.recorder.take().into_iter().map(|event| event.what).collect();
    let journal = FileId::Journal;
    let place = |is: &dyn Fn(&What) -> bool| steps.iter().position(is).expect("a step");
    let allocated = place(&|what| matches!(what, What::Allocate { file, .. } if *file == journal));
    let written = place(&|what| matches!(what, What::Write { file, .. } if *file == journal));
    let synced = place(&|what| matches!(what, What::Sync { file, .. } if *file == journal));
    let record = place(&|what| matches!(what, What::WriteDurably { file, .. } if *file == journal));
    assert!(allocated < written && written < synced && synced < record, "{steps:#?}");
}

/// A process crash or a loss of power at each step of a growth. The file holds the last point, or
/// the one that was being made, and the journal is used again.
#[test]
fn a_growth_that_is_cut_off_loses_nothing() {
    let Some(ground) = ground() else { return };
    for steps in 1..9 {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        // It ends by itself, or is killed.
        let output = common::child(CHILD, &steps.to_string(), &path).output().expect("a child");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(common::ran_its_test(&text) && !text.contains("panicked"), "{text}");
        let round = |file: &AtomicMappedFile| file.load::<u64>(0).expect("load");
        for image in [restarted(&ground, &path), died(&ground, &path)] {
            let options = Growing::options(&ground);
            let file = options.open(&image.home).expect("opens");
            assert!((14..=15).contains(&round(&file)), "{} after {steps} steps", round(&file));
            for n in 100..140u64 {
                file.store(0, &n).expect("store");
                file.sync().expect("sync");
            }
            let again = restarted(&ground, &image.home).open(&ground);
            assert_eq!(round(&again), 139, "after {steps} steps");
        }
    }
}

const CHILD: &str = concat!(module_path!(), "::plays_the_child_if_it_is_one");

/// Dies at a step of a sync with a record that needs a longer journal.
#[test]
fn plays_the_child_if_it_is_one() {
    let Some((role, path)) = common::role() else { return };
    let Some(ground) = ground() else { return };
    let recorder = Recorder::new();
    let options = Growing::options(&ground).create(true).len(Growing::LEN);
    let file = options.open_recorded(&recorder, &path).expect("open");
    for round in 1..=14u64 {
        file.store(0, &round).expect("store");
        file.sync().expect("sync");
    }
    file.store(0, &15u64).expect("store");
    // Only the attempts at calls count here: no step of a growth stores to a mapping.
    let nth: usize = role.parse().expect("a number");
    let calls = [call::ALLOCATE, call::WRITE, call::SYNC_DATA, call::WRITE_DURABLY];
    if let Some(call) = calls.get(nth - 1) {
        // Stopped before the call: the rest of the growth is missing.
        recorder.fail_from(call, 1, libc::EIO);
        recorder.fail_from(call::SET_LEN, 1, libc::EIO);
        let _fails_or_makes_a_checkpoint = file.sync();
    } else {
        recorder.kill_at(nth - calls.len(), atomic_mmap::testing::recorder::Death::Before);
        let _dies_or_returns = file.sync();
    }
    common::crash();
}

#[test]
fn a_pair_without_its_journal_is_refused_and_can_be_discarded() {
    let Some(ground) = ground() else { return };
    let (scratch, file) = new_file(&ground, Durability::OnSync);
    file.write_at(b"somewhere", 5).expect("write");
    file.sync().expect("sync");
    let image = restarted(&ground, &scratch.file("state.dat"));
    let reflection = reflections_in(image.home.parent().expect("a folder")).pop().expect("one");
    fs::remove_file(reflection.with_added_extension("journal")).expect("remove");
    for wish in [OnMismatch::Refuse, OnMismatch::Trust] {
        let error = ground.options().on_mismatch(wish).open(&image.home).expect_err("no journal");
        let is_right = matches!(error, Error::Mismatch { why: Mismatch::JournalGone, .. });
        assert!(is_right && error.to_string().contains(".journal"), "{error}");
    }
    let file = ground.options().on_mismatch(OnMismatch::Discard).open(&image.home).expect("open");
    assert_same(&read_all(&file), &[0; LEN as usize], "nothing had come home");
}

/// Opens a copied pair with these bytes as its journal. Returns the byte at offset 100, or the
/// reason for the refusal.
fn opened_with(ground: &Ground, image: &Restarted, journal: &[u8]) -> Result<u8, Mismatch> {
    let reflection = reflections_in(image.home.parent().expect("a folder")).pop().expect("one");
    fs::write(reflection.with_added_extension("journal"), journal).expect("write");
    match ground.options().open(&image.home) {
        Ok(file) => Ok(file.load(100).expect("load")),
        Err(Error::Mismatch { why, .. }) => Err(why),
        Err(error) => panic!("{error:?}"),
    }
}

fn journal_of(scratch: &common::Scratch) -> Vec<u8> {
    let reflection = reflections_in(scratch.path()).pop().expect("one");
    fs::read(reflection.with_added_extension("journal")).expect("read the journal")
}

/// A backup restored the journal alone, as it was before the first point of the session. Its header
/// matches the session, so recovery took it for a session without a point. It combined the bitmap
/// words of the session's start with the slices of today.
#[test]
fn a_journal_from_before_the_first_point_is_refused() {
    let Some(ground) = ground() else { return };
    let (scratch, file) = new_file(&ground, Durability::OnSync);
    let path = scratch.file("state.dat");
    let opened = journal_of(&scratch);
    let write = |byte: u8| file.write_at(&[byte; 3000], 100).expect("write");
    write(1);
    assert_eq!(opened_with(&ground, &restarted(&ground, &path), &opened), Ok(0), "no point yet");
    file.sync().expect("sync");
    let first = journal_of(&scratch);
    // The session had renewed the header, and was writing the first record.
    let mut header_alone = first.clone();
    header_alone[2 * PAGE as usize..].fill(0);
    for byte in [1, 2] {
        // Overwrites slices that the start of the session needs.
        write(byte);
        for (journal, what) in [(&opened, "of the opening"), (&header_alone, "of the header")] {
            let image = restarted(&ground, &path);
            // The kernel had not written back which record is the newest, so only the floor tells.
            image.reflection().write_all_at(&[0; 24], layout::NEWEST_RECORD).expect("write");
            assert_eq!(
                opened_with(&ground, &image, journal),
                Err(Mismatch::JournalSwapped),
                "{what}"
            );
            // The right journal is put back: the pair opens, so the refusal changed nothing.
            assert!(opened_with(&ground, &image, &first).is_ok(), "{what}");
            // After a process crash the working state counts, whatever the journal.
            assert_eq!(opened_with(&ground, &died(&ground, &path), journal), Ok(byte), "{what}");
        }
        let image = restarted(&ground, &path);
        assert_eq!(opened_with(&ground, &image, &first), Ok(1), "the first point");
    }
    // An older version of the crate wrote no floor.
    let image = restarted(&ground, &path);
    for at in layout::FLOORS {
        image.reflection().write_all_at(&[0; 24], at).expect("write");
    }
    assert_eq!(opened_with(&ground, &image, &first), Ok(1), "of a version before");
}

/// A journal with records that lacks the records removed by a checkpoint.
#[test]
fn a_journal_from_before_the_last_checkpoint_is_refused() {
    let Some(ground) = ground() else { return };
    let (scratch, file) = new_file(&ground, Durability::OnSync);
    let path = scratch.file("state.dat");
    let point = |byte: u8| {
        file.write_at(&[byte; 3000], 100).expect("write");
        file.sync().expect("sync");
    };
    point(1);
    let first = journal_of(&scratch);
    point(2);
    for byte in [3, 5, 7] {
        let before = journal_of(&scratch);
        // The point after a truncation and a growth syncs both files, as a checkpoint does.
        file.set_len(file.len() - 2 * PAGE).expect("shrink");
        file.set_len(file.len() + PAGE).expect("grow");
        point(byte);
        point(byte + 1);
        let image = restarted(&ground, &path);
        assert_eq!(opened_with(&ground, &image, &first), Err(Mismatch::JournalSwapped), "{byte}");
        assert_eq!(opened_with(&ground, &image, &before), Err(Mismatch::JournalSwapped), "{byte}");
        let whole = journal_of(&scratch);
        assert_eq!(opened_with(&ground, &image, &whole), Ok(byte + 1));
    }
    // The newest floor is torn: the floor before it still rejects the first journal.
    let whole = journal_of(&scratch);
    let image = restarted(&ground, &path);
    let floors = layout::FLOORS.map(|at| {
        let mut word = [0; 8];
        image.reflection().read_exact_at(&mut word, at + 8).expect("read");
        u64::from_le_bytes(word)
    });
    assert!(floors[0] != floors[1] && floors[0].min(floors[1]) > 1, "{floors:?}");
    let newest = layout::FLOORS[usize::from(floors[1] > floors[0])];
    image.store(newest + 8, 0x77);
    assert_eq!(opened_with(&ground, &image, &first), Err(Mismatch::JournalSwapped), "torn");
    assert_eq!(opened_with(&ground, &image, &whole), Ok(8));
    // The next session starts a new count.
    file.close(CloseMode::Fast).expect("close");
    let options = ground.options();
    let file = options.open(&path).expect("open");
    file.write_at(&[9; 3000], 100).expect("write");
    assert_eq!(opened_with(&ground, &restarted(&ground, &path), &journal_of(&scratch)), Ok(8));
    file.sync().expect("sync");
    assert_eq!(opened_with(&ground, &restarted(&ground, &path), &journal_of(&scratch)), Ok(9));
}

#[test]
fn a_failed_record_poisons_for_good_and_is_not_tried_again() {
    let Some(ground) = ground() else { return };
    for code in [libc::EIO, libc::ENOSPC] {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        let recorder = Recorder::new();
        let options = ground.options().create(true).len(LEN);
        let file = options.open_recorded(&recorder, &path).expect("open");
        file.write_at(b"first", 0).expect("write");
        file.sync().expect("sync");
        file.write_at(b"second", 0).expect("write");
        recorder.fail_next(call::WRITE_DURABLY, 1, code);
        let error = file.sync().expect_err("injected");
        assert!(error.to_string().contains(".journal"), "names the file: {error}");
        assert!(error.to_string().contains("open the file again"), "says what to do: {error}");
        recorder.heal();
        for _ in 0..2 {
            let error = file.sync().expect_err("poisoned");
            assert!(matches!(error, Error::Poisoned { .. }), "{error:?}");
            assert_eq!(error.to_string().matches("open the file again").count(), 1, "{error}");
        }
        drop(file);
        let file = ground.options().open(&path).expect("open again");
        let mut found = [0; 6];
        file.read_at(&mut found, 0).expect("read");
        assert_eq!(&found, b"second", "the process has not even died");
    }
}

#[test]
fn a_reader_of_bytes_that_are_stored_in_place_conflicts() {
    let Some(ground) = ground() else { return };
    let (_scratch, file) = new_file(&ground, Durability::OnSync);
    file.write_at(&[1; 300], 1000).expect("write");
    let mut tx = file.begin();
    let read: u64 = tx.load(1080).expect("read");
    // The slices have changed since the last durable point, so no slot is free for the new bytes.
    let before = file.stats().redo_writes;
    file.write_at(&[2; 300], 1000).expect("write");
    assert_eq!(file.stats().redo_writes, before + 1);
    tx.store(50_000, &read).expect("note");
    let error = tx.commit().expect_err("what it has read is not there any more");
    assert!(matches!(error, Error::Conflict { .. }), "{error:?}");
}

#[test]
fn a_failure_in_the_background_poisons_and_the_next_call_says_so() {
    let Some(ground) = ground() else { return };
    for name in [call::SYNC_DATA, call::WRITE_DURABLY] {
        if name == call::SYNC_DATA && cfg!(atomic_mmap_portable) {
            // Records are synced by this call on the portable path.
            continue;
        }
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        let recorder = Recorder::new();
        let options = ground.options().create(true).len(LEN);
        let options = match name {
            call::WRITE_DURABLY => {
                options.journal_len(64 << 10).sync_every(Duration::from_millis(2))
            }
            // Half of the journal triggers a checkpoint. The other half has room for a hundred more
            // points, so the background thread makes the checkpoint however late it runs.
            _ => options.journal_len(4 << 20),
        };
        let file = options.open_recorded(&recorder, &path).expect("open");
        let mut model = vec![0; LEN as usize];
        let begin = Instant::now();
        if name == call::SYNC_DATA {
            // A shorter journal grows, and no checkpoint is made.
            let journal = format!("{}.journal", file.reflection_path().display());
            while fs::metadata(&journal).expect("the journal").len() < 4 << 20 {
                file.write_at(&[0; 9000], 100).expect("write");
                file.write_at(&[1; 9000], 100).expect("write");
                file.sync().expect("sync");
            }
            model[100..9100].fill(1);
        }
        recorder.fail_next(name, 1, libc::EIO);
        // No test thread makes a record in the one case, or a checkpoint in the other.
        let error = loop {
            let n = (begin.elapsed().as_nanos() % 250) as u8 + 1;
            if let Err(error) = file.write_at(&[n; 9000], 100) {
                break error;
            }
            model[100..9100].fill(n);
            if name == call::SYNC_DATA {
                match file.sync() {
                    Ok(_) => std::thread::sleep(Duration::from_millis(5)),
                    Err(error) => break error,
                }
            }
            assert!(begin.elapsed() < common::HANGS, "nothing was said of {name}");
        };
        assert!(matches!(error, Error::Poisoned { .. }), "{error:?}");
        let journal_or_home = if name == call::SYNC_DATA { "state.dat" } else { ".journal" };
        assert!(error.to_string().contains(journal_or_home), "names the file: {error}");
        recorder.heal();
        drop(file);
        let file = ground.options().open(&path).expect("open again");
        assert_same(&read_all(&file), &model, "everything that had returned");
    }
}

#[test]
fn the_table_can_be_read_from_the_handle() {
    for ground in common::media() {
        for durability in [Durability::OnSync, Durability::EveryWrite, Durability::AtomicSync] {
            let (_scratch, file) = new_file(&ground, durability);
            assert_eq!(file.durability(), durability);
            let by_medium = match file.medium() {
                Medium::Dax => Survives::PowerLoss,
                _ => Survives::ProcessCrash,
            };
            let after_write = match durability {
                Durability::AtomicSync => Survives::Nothing,
                Durability::EveryWrite if file.medium() == Medium::PageCache => Survives::PowerLoss,
                _ => by_medium,
            };
            assert_eq!(file.survives(), after_write);
            let is_ram = file.medium() == Medium::Ram;
            let after_sync = if is_ram { Survives::ProcessCrash } else { Survives::PowerLoss };
            assert_eq!(file.survives_after_sync(), after_sync);
        }
    }
}

/// Each page has a different word, so all words together are longer than the journal. The journal
/// grows for them, and opening makes it short again. The first version refused this point for good.
#[test]
fn a_point_of_more_pages_than_the_journal_has_room_for_makes_it_grow() {
    let Some(ground) = ground() else { return };
    let scratch = ground.scratch();
    let (pages, path) = (4_000, scratch.file("state.dat"));
    let options = || ground.options().journal_len(64 << 10);
    let file = options().create(true).len(pages * PAGE).open(&path).expect("open");
    let mut model = vec![0; (pages * PAGE) as usize];
    let write = |file: &AtomicMappedFile, model: &mut Vec<u8>, round: u64| {
        for page in 0..pages {
            let at = page * PAGE + (page + round) % 64 * 64;
            file.write_at(&[round as u8 + 1; 64], at).expect("write");
            model[at as usize..][..64].fill(round as u8 + 1);
        }
    };
    let journal = reflections_in(path.parent().expect("a folder")).pop().expect("one");
    let journal = journal.with_added_extension("journal");
    let len = || fs::metadata(&journal).expect("stat").len();
    for round in 0..3 {
        write(&file, &mut model, round);
        file.sync().expect("sync");
        let point = model.clone();
        write(&file, &mut model, round + 100);
        let image = restarted(&ground, &path);
        assert_same(&read_all(&image.open(&ground)), &point, &format!("round {round}"));
    }
    assert!(len() > pages * 24, "{}", len());
    assert!(len() < 4 * pages * 24, "it grows as far as it must: {}", len());
    // A small record after it, from the start of the ring.
    file.write_at(b"small", 77).expect("write");
    model[77..82].copy_from_slice(b"small");
    file.sync().expect("sync");
    let image = restarted(&ground, &path);
    assert_same(&read_all(&image.open(&ground)), &model, "a small one");
    file.close(CloseMode::Fast).expect("close");
    let file = options().open(&path).expect("open");
    assert_eq!(len(), 64 << 10);
    assert_same(&read_all(&file), &model, "opened again");
}

/// Where copy-on-write cannot be turned off, the file works as usual. If the disk fails, opening
/// fails and leaves no files.
#[test]
fn a_new_file_is_said_to_be_written_to_in_place_and_need_not_be() {
    let Some(ground) = ground() else { return };
    for (nth, code, opens) in [
        (1, libc::EOPNOTSUPP, true),
        (2, libc::EOPNOTSUPP, true),
        (1, libc::EIO, false),
        (2, libc::EIO, false),
    ] {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        let recorder = Recorder::new();
        recorder.fail_next(call::IN_PLACE, nth, code);
        let opened = ground.options().create(true).len(LEN).open_recorded(&recorder, &path);
        assert_eq!(opened.is_ok(), opens, "call {nth} fails with {code}: {opened:?}");
        if let Err(error) = opened {
            assert!(error.to_string().contains("copying on write"), "{error}");
            let names = fs::read_dir(path.parent().expect("a folder")).expect("list").count();
            assert_eq!(names, 0, "nothing is left behind");
        }
    }
}

/// Three threads call `sync`: one leads, then another one leads for the third. That point failed
/// for lack of space, which poisons nothing. The third thread got `Ok`.
#[test]
fn a_thread_that_waits_for_a_failed_point_gets_an_error() {
    let Some(ground) = ground() else { return };
    let scratch = ground.scratch();
    let pages = 4_000;
    let recorder = Recorder::new();
    let options = ground.options().create(true).len(pages * PAGE).journal_len(64 << 10);
    let file = options.open_recorded(&recorder, scratch.file("state.dat")).expect("open");
    for page in 0..pages {
        file.write_at(&[1; 64], page * PAGE + page % 64 * 64).expect("write");
    }
    // Each point needs a longer journal.
    recorder.fail_from(call::ALLOCATE, 1, libc::ENOSPC);
    std::thread::scope(|threads| {
        let file = &file;
        let sync = || (0..3).map(|_| file.sync()).collect::<Vec<_>>();
        let syncs: Vec<_> = (0..8).map(|_| threads.spawn(sync)).collect();
        for result in syncs.into_iter().flat_map(|thread| thread.join().expect("no panic")) {
            let error = result.expect_err("no point was made");
            assert!(error.to_string().contains(".journal"), "{error}");
        }
    });
    recorder.heal();
    file.sync().expect("nothing was lost, and there is space");
}

/// A writer waits for a page of the cut. The write of the full record fails, but the record may be
/// on the disk. It names the slots that the writer is about to store to in place, and holds no copy
/// of their bytes.
#[test]
fn nothing_is_stored_in_place_once_a_durable_point_has_failed() {
    let Some(ground) = ground() else { return };
    // Chance decides when the writer waits for the point: one round in a few shows it.
    for _ in 0..16 {
        let scratch = ground.scratch();
        let recorder = Recorder::new();
        let options = ground.options().create(true).len(64 * PAGE).journal_len(64 << 10);
        let file = options.open_recorded(&recorder, scratch.file("state.dat")).expect("open");
        // Too long for a record: the files are synced in place.
        file.write_at(&vec![1; 32 * PAGE as usize], 0).expect("write");
        recorder.fail_from(call::WRITE_DURABLY, 1, libc::EIO);
        recorder.take();
        let has_begun = std::sync::Barrier::new(2);
        std::thread::scope(|threads| {
            // The writer runs until the handle is poisoned. It has begun before the point does.
            let writer = threads.spawn(|| {
                has_begun.wait();
                while file.write_at(&[2; 64], 0).is_ok() {}
            });
            has_begun.wait();
            file.sync().expect_err("the record cannot be written");
            writer.join().expect("no panic");
        });
        let events = recorder.take();
        let synced = events.iter().rposition(|event| matches!(event.what, What::Sync { .. }));
        let after = &events[synced.expect("both files were synced")..];
        let is_store = |what: &What| matches!(what, What::Store { .. } | What::Copy { .. });
        assert!(!after.iter().any(|event| is_store(&event.what)), "{after:?}");
    }
}

/// Two losses of power. Recovery from the first one truncates the file in the page cache. The
/// second one must not bring the truncated bytes back under a growth that a journal record
/// contains.
#[test]
fn what_was_cut_off_when_going_back_is_synced_before_the_next_point() {
    let Some(ground) = ground() else { return };
    let (scratch, file) = new_file(&ground, Durability::OnSync);
    file.write_at(&[1; 100], 0).expect("write");
    file.sync().expect("sync");
    file.set_len(LEN + 50 * PAGE).expect("grow");
    file.write_at(&[2; 5000], LEN + 9000).expect("write");
    let image = restarted(&ground, &scratch.file("state.dat"));
    let again = image.open(&ground);
    assert_eq!(again.len(), LEN);
    again.set_len(LEN + 50 * PAGE).expect("grow again");
    again.sync().expect("sync");
    let stats = again.stats();
    assert_eq!((stats.journal_points, stats.flush_points), (0, 1), "both files are synced");
    again.write_at(&[3; 100], 0).expect("write");
    again.sync().expect("sync");
    assert_eq!(again.stats().journal_points, 1);
}

/// btrfs zeroes the rest of a truncated page in the page cache. It may write the zeroes back only
/// after the file has grown, and make the new length durable before that. With a record of the
/// length alone, a loss of power brought the truncated bytes back.
#[test]
fn the_first_growth_over_a_page_that_was_cut_in_two_is_synced_where_it_is() {
    let Some(ground) = ground() else { return };
    let (_scratch, file) = new_file(&ground, Durability::OnSync);
    let points = || (file.stats().journal_points, file.stats().flush_points);
    file.write_at(&[0xC5; 5000], 0).expect("a write");
    file.set_len(4200).expect("a shrink");
    file.sync().expect("a sync");
    let (journal, flush) = points();
    file.set_len(5000).expect("a growth");
    file.sync().expect("a sync");
    assert_eq!(
        points(),
        (journal, flush + 1),
        "the zeroes are on the disk before the length counts"
    );
    file.set_len(6000).expect("a growth");
    file.sync().expect("a sync");
    assert_eq!(points(), (journal + 1, flush + 1), "and stay there");
}

/// A file that was made empty and then grew kept the journal of an empty file until it was opened
/// again. Logs for Raft had a checkpoint for each fifth durable point.
#[test]
fn a_journal_follows_the_length_of_a_file_that_grows() {
    let Some(ground) = ground() else { return };
    let scratch = ground.scratch();
    let path = scratch.file("state.dat");
    let longest = |wish: &dyn Fn(Options) -> Options| {
        let file = wish(ground.options().create(true)).open(&path).expect("create");
        file.set_len(2 << 20).expect("grow");
        // By a flush, since the file is longer. It also names the words of all pages.
        file.sync().expect("sync");
        let flushes = file.stats().flush_points;
        let mut longest = 0;
        for kib in [4, 16, 64, 256, 1024] {
            file.write_at(&vec![kib as u8; kib << 10], 0).expect("write");
            file.sync().expect("sync");
            if file.stats().flush_points == flushes {
                longest = kib;
            }
        }
        file.close(CloseMode::Spatial).expect("close");
        fs::remove_file(&path).expect("remove");
        longest
    };
    // A quarter of 8 MiB holds the longest one, and a quarter of the least length 16 KiB.
    assert_eq!(longest(&|options| options), 1024);
    assert_eq!(longest(&|options| options.journal_len(128 << 10)), 16, "the caller's length stays");
    // A budget of 5 MiB has room for a journal of 512 KiB.
    assert_eq!(longest(&|options| options.reflection_budget(5 << 20)), 64);
}

/// Openings read the words run by run. Page by page, a log of 1 GiB took a thousand reads of the
/// disk after each crash.
#[test]
fn openings_find_all_words_of_a_long_file_with_holes_between_them() {
    let Some(ground) = ground() else { return };
    let scratch = ground.scratch();
    let path = scratch.file("state.dat");
    // One page of words belongs to each chunk: runs of 1, 3 and 140 pages, beside holes and at the
    // end of the file. The longest one is longer than what is read at once.
    let chunks: Vec<u64> = [0].into_iter().chain(5..8).chain(71..211).chain([298]).collect();
    let len = 299 * (2 << 20) - 5 * PAGE;
    let options = ground.options().create(true).len(len).deploy(DeployPolicy::Manual);
    let file = options.open(&path).expect("create");
    let at = |chunk: u64| chunk * (2 << 20) + chunk % 500 * PAGE + 64;
    let expect = |file: &AtomicMappedFile, odd: u8, what: &str| {
        for chunk in 0..299 {
            let byte = if !chunks.contains(&chunk) {
                0
            } else if chunk % 2 == 1 {
                odd
            } else {
                7
            };
            assert_eq!(file.load::<u8>(at(chunk)).expect("load"), byte, "{what}: chunk {chunk}");
        }
    };
    chunks.iter().for_each(|chunk| file.store(at(*chunk), &7_u8).expect("store"));
    file.sync().expect("sync");
    for chunk in chunks.iter().filter(|chunk| *chunk % 2 == 1) {
        file.store(at(*chunk), &9_u8).expect("store");
    }
    expect(&restarted(&ground, &path).open(&ground), 7, "back to the durable point");
    // After a process crash the opening makes a durable point of what it finds.
    let dead = died(&ground, &path);
    let found = dead.open(&ground);
    expect(&found, 9, "after a process crash");
    expect(&restarted(&ground, dead.path()).open(&ground), 9, "the point of the opening");
    found.close(CloseMode::Spatial).expect("close");
    expect(&ground.options().open(dead.path()).expect("open"), 9, "brought home");
}

/// The durable words of a closed pair were damaged, so they differ from its working words. A
/// spatial close left the slices in place and panicked; the fuzzer found this. If the caller trusts
/// the pair, the next sync makes a durable point of all of it.
#[test]
fn durable_words_that_were_damaged_while_closed_lose_nothing() {
    let Some(ground) = ground() else { return };
    for is_trusted in [false, true] {
        let (scratch, file) = new_file(&ground, Durability::OnSync);
        let home = scratch.file("state.dat");
        file.write_at(&[1; 64], 0).expect("write");
        file.close(CloseMode::Fast).expect("close");
        let reflection = reflections_in(home.parent().expect("a folder")).pop().expect("one");
        let bytes = fs::File::options().read(true).write(true).open(reflection).expect("open");
        let at = layout::durable_word(PageIndex(0));
        let mut word = [0; 8];
        bytes.read_exact_at(&mut word, at).expect("read");
        assert_eq!(u64::from_le_bytes(word), 1, "one slice is in the reflection file");
        bytes.write_all_at(&[0; 8], at).expect("damage");

        let wish = if is_trusted { OnMismatch::Trust } else { OnMismatch::Refuse };
        let file = ground.options().on_mismatch(wish).open(&home).expect("open");
        if is_trusted {
            file.sync().expect("sync");
            let again = restarted(&ground, &home).open(&ground);
            assert_same(&read_all(&again)[..64], &[1; 64], "went back to");
        }
        file.close(CloseMode::Spatial).expect("close");
        assert_same(&fs::read(&home).expect("read")[..64], &[1; 64], "brought home");
    }
}

/// More threads than lanes make durable points of one page. The leader once requested a lane while
/// it held the page lock. The threads that waited for the page held all lanes.
#[test]
fn more_threads_than_lanes_share_durable_points_of_one_page() {
    let Some(ground) = ground() else { return };
    let (_scratch, file) = new_file(&ground, Durability::EveryWrite);
    std::thread::scope(|threads| {
        for n in 0..120_u8 {
            let file = &file;
            threads.spawn(move || {
                for round in 0..4 {
                    file.write_at(&[n.wrapping_mul(round); 8], 64 * u64::from(n % 8))
                        .expect("write");
                }
            });
        }
    });
}

/// Returns the bytes that this thread has read by system calls, if the system counts them.
fn bytes_read() -> Option<u64> {
    let io = fs::read_to_string("/proc/thread-self/io").ok()?;
    io.lines().find_map(|line| line.strip_prefix("rchar: ")?.parse().ok())
}

/// A pair without durable words gets them from its working words. These are slice words, region
/// words, both, or words of the last page. Opening must not read all words of a long file: that
/// once took 0.2 s for 100 GiB, and seconds for the longest files.
#[test]
fn a_long_pair_gets_its_durable_points_where_it_was_written() {
    const LEN: u64 = (100 << 30) - 5000;
    let Some(ground) = ground() else { return };
    let scratch = ground.scratch();
    let home = scratch.file("state.dat");
    let in_memory = common::options(Medium::Ram);
    let file = in_memory.create(true).len(LEN).deploy(DeployPolicy::Manual).open(&home);
    let file = file.expect("open");
    let region = vec![1; REGION];
    let parts =
        [(17, 3000), (5 << 30, REGION), ((70 << 30) + 40 * PAGE, REGION), (LEN - 9000, 9000)];
    for (at, len) in parts {
        file.write_at(&region[..len], at).expect("write");
    }
    file.write_at(&region[..3 * PAGE as usize], (70 << 30) + 41 * PAGE).expect("write");
    // A write to a page that its region word has moved to the reflection file.
    file.write_at(&region[..100], (5 << 30) + 7 * PAGE + 64).expect("write");
    let path = file.reflection_path().to_owned();
    file.close(CloseMode::Fast).expect("close");

    let before = bytes_read();
    let file = ground.options().deploy(DeployPolicy::Manual).open(&home).expect("open");
    // The portable path cannot find holes.
    if !cfg!(atomic_mmap_portable)
        && let (Some(before), Some(after)) = (before, bytes_read())
    {
        // The region words of each GiB, and a page of words of each kind where the file has data.
        let most = (LEN >> 30) * (32 << 10) + (2 << 20);
        assert!(after - before < most, "{} bytes were read", after - before);
    }
    let reflection = fs::File::open(path).expect("open");
    let word = |at| {
        let mut bytes = [0; 8];
        reflection.read_exact_at(&mut bytes, at).expect("read");
        u64::from_le_bytes(bytes)
    };
    let (mut away, mut by_region, mut by_both) = (0, 0, 0);
    for (at, len) in parts {
        for page in
            (at / PAGE).saturating_sub(70)..((at + len as u64) / PAGE + 70).min(LEN.div_ceil(PAGE))
        {
            let page = PageIndex(page);
            let bit = word(layout::region_word(page.region())) >> page.in_region() & 1 == 1;
            let slices = word(layout::slice_word(page));
            let valid = Validity::new(slices, bit).0;
            assert_eq!(word(layout::durable_word(page)), valid, "{page:?}");
            away += u32::from(valid != 0);
            by_region += u32::from(bit && slices == 0);
            by_both += u32::from(bit && slices != 0);
        }
    }
    assert!(
        away >= 100 && by_region >= 60 && by_both == 1,
        "{away} pages are undeployed, {by_region} of them by a region word"
    );
    file.close(CloseMode::Spatial).expect("close");
    let home = fs::File::open(home).expect("open");
    for (at, len) in parts {
        let mut back = vec![0; len];
        home.read_exact_at(&mut back, at).expect("read");
        assert_same(&back, &region[..len], "brought home");
    }
}

/// A write over several pages of an allocated chunk takes the fast path. The next durable point
/// must contain its changes.
#[test]
fn a_write_over_pages_of_an_allocated_chunk_is_in_the_next_point() {
    let Some(ground) = ground() else { return };
    let scratch = ground.scratch();
    let path = scratch.file("state.dat");
    let file = ground.options().create(true).len(4 << 20).open(&path).expect("open");
    let mut model = vec![0; 4 << 20];
    for fill in [1, 2, 3] {
        model.fill(fill);
        file.write_at(&model, 0).expect("write");
        file.sync().expect("sync");
    }
    for (n, at) in (0..20_u8).zip((5000..).step_by(150_000)) {
        file.write_at(&[n + 10; 16_384], at).expect("write");
        model[at as usize..][..16_384].fill(n + 10);
        file.sync().expect("sync");
    }
    let image = restarted(&ground, &path);
    assert_same(&read_all(&image.open(&ground)), &model, "the last point");
}
