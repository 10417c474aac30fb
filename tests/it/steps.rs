//! Tests that opening, closing and resizing take the steps of `docs/recovery.md` in order.
//!
//! The tests run on the recording platform, on each medium. The tables there tell what a crash
//! after each step leaves. They are right only if the steps come in this order, and each one is
//! durable before the next.

use crate::common::{self, Ground, Scratch, crash, media, role, run_child};
use crate::durable;
use atomic_mmap::testing::recorder::{Event, Recorder, What};
use atomic_mmap::testing::{FileId, call, layout, marker};
use atomic_mmap::{AtomicMappedFile, CloseMode, Durability, Medium, OnMismatch};
use std::path::{Path, PathBuf};

const CHILD: &str = concat!(module_path!(), "::plays_the_child_if_it_is_one");
const PAGE: u64 = 4096;
const LEN: u64 = 1 << 20;

/// Leaves a pair with a shrink that was not cleaned up.
#[test]
fn plays_the_child_if_it_is_one() {
    let Some((role, path)) = role() else { return };
    let ground = media().into_iter().find(|ground| ground.medium.to_string() == role);
    let recorder = Recorder::new();
    let options = ground.expect("a medium").options();
    let file = options.open_recorded(&recorder, &path).expect("open");
    recorder.fail_next(call::SET_LEN, 1, libc::EIO);
    file.set_len(PAGE).expect("the cut itself has succeeded");
    crash();
}

/// A medium and a folder, and `true` if its file system keeps marks.
struct Traced {
    ground: Ground,
    scratch: Scratch,
    recorder: Recorder,
    keeps_marks: bool,
}

impl Traced {
    fn on_each_medium() -> Vec<Traced> {
        media().into_iter().map(Traced::new).collect()
    }

    fn new(ground: Ground) -> Traced {
        let scratch = ground.scratch();
        let recorder = Recorder::new();
        let probe = std::fs::File::create(scratch.file("probe")).expect("create");
        let marked = recorder.platform().set_xattr(&probe.into(), "user.atomic_mmap_probe", b"1");
        let keeps_marks = marked.expect("set an attribute, or not");
        recorder.take();
        Traced { ground, scratch, recorder, keeps_marks }
    }

    fn path(&self) -> PathBuf {
        self.scratch.file("state.dat")
    }

    fn open(&self, wish: OnMismatch) -> AtomicMappedFile {
        let options = self.ground.options().create(true).len(LEN).on_mismatch(wish);
        options.open_recorded(&self.recorder, self.path()).expect("open")
    }

    /// Returns the steps since the last call.
    fn steps(&self) -> Vec<String> {
        self.recorder.take().into_iter().filter_map(step).collect()
    }

    /// Compares the steps with a table. The first character of a step limits it:
    ///
    /// - `!`: not in RAM.
    /// - `.`: only in RAM.
    /// - `+`: only on persistent memory.
    /// - `=`: only in page cache.
    /// - `-`: not in page cache.
    /// - `*`: only with marks.
    #[track_caller]
    fn assert_steps(&self, table: &[&str], what: &str) {
        let medium = self.ground.medium;
        let expected: Vec<&str> = table
            .iter()
            .filter_map(|step| match step.as_bytes()[0] {
                b'!' => (medium != Medium::Ram).then_some(&step[1..]),
                b'+' => (medium == Medium::Dax).then_some(&step[1..]),
                b'=' => (medium == Medium::PageCache).then_some(&step[1..]),
                b'-' => (medium != Medium::PageCache).then_some(&step[1..]),
                b'.' => (medium == Medium::Ram).then_some(&step[1..]),
                b'*' if !self.keeps_marks => None,
                b'*' if medium == Medium::Ram && step.contains("sync") => None,
                b'*' => Some(&step[1..]),
                _ => Some(step),
            })
            .collect();
        assert_eq!(self.steps(), expected, "{what} on {medium}");
    }
}

/// Returns the name of a step, or `None` if its order does not matter.
fn step(event: Event) -> Option<String> {
    let lanes = layout::LANES..layout::LANES + (layout::LANE_COUNT * layout::LANE) as u64;
    let text = match event.what {
        What::Drain => "drain".to_owned(),
        What::Sync { file, all: true } => format!("sync {file:?}"),
        What::Sync { file, all: false } => format!("sync data of {file:?}"),
        What::SyncDir { .. } => "sync folder".into(),
        What::SetLen { file, .. } => format!("length of {file:?}"),
        What::Write { file: FileId::Journal, offset: 0, bytes } if bytes.len() > PAGE as usize => {
            "write zeroes".into()
        }
        What::Write { file: FileId::Journal, offset, bytes } if offset < 2 * PAGE => {
            let is_copy = bytes[12] == 1;
            if is_copy { "journal header's copy" } else { "journal header, not durably" }.into()
        }
        What::Write { offset: 0, bytes, .. } if bytes.len() > 512 => "write head".into(),
        What::WriteDurably { file: FileId::Reflection, offset, .. }
            if layout::FLOORS.contains(&offset) =>
        {
            "floor, durably".into()
        }
        What::Write { file: FileId::Reflection, offset, .. } => superblock(offset),
        What::WriteDurably { file: FileId::Reflection, offset, .. } => {
            format!("{}, durably", superblock(offset))
        }
        What::WriteDurably { offset, .. } if offset < 2 * PAGE => "journal header".into(),
        What::WriteDurably { .. } => "record".into(),
        What::Rename { .. } => "rename".into(),
        What::Remove { .. } => "remove".into(),
        What::Os("set_xattr") => "mark".into(),
        What::Os("remove_xattr") => "unmark".into(),
        What::Os("unlock") => "unlock".into(),
        What::Store { file: FileId::Reflection, offset: layout::LENGTH_WORD, .. } => {
            "length word".into()
        }
        What::Store { file: FileId::Reflection, offset: layout::HIGH_WATER_WORD, .. } => {
            "high-water word".into()
        }
        What::Store { file: FileId::Reflection, offset: layout::SETTLED_WORD, .. } => {
            "settled word".into()
        }
        What::Store { file: FileId::Reflection, offset: layout::BEGUN_WORD, .. } => {
            "begun word".into()
        }
        What::Store { file: FileId::Reflection, offset, value: 0, .. }
            if lanes.contains(&offset) =>
        {
            "wipe".into()
        }
        What::Store { .. } => "word".into(),
        What::Copy { file: FileId::Home, .. } => "home slots".into(),
        What::Copy { offset, .. } if layout::FLOORS.contains(&offset) => "floor".into(),
        What::Copy { offset: layout::NEWEST_RECORD, .. } => "newest".into(),
        What::Copy { offset, .. } if layout::SUPERBLOCKS.contains(&offset) => superblock(offset),
        What::Copy { .. } => "bytes of the reflection file".into(),
        What::Punch { .. } => "punch".into(),
        _ => return None,
    };
    Some(text)
}

fn superblock(offset: u64) -> String {
    let copy = layout::SUPERBLOCKS.iter().position(|at| *at == offset);
    format!("superblock {}", copy.expect("a copy"))
}

const MAKING: [&str; 12] = [
    "length of Reflection",
    "write head",
    "!sync Reflection",
    "rename",
    "=write zeroes",
    // The names of all files, before the mark that says that there is a reflection file.
    "!sync folder",
    "*mark",
    "!sync Home",
    // Where durable points are kept, the pair is in use from the beginning. Nothing waits for the
    // word that says that the mark was durable.
    "=settled word",
    // Elsewhere no part of the pair is valid until here. On persistent memory the drain makes the
    // superblock durable.
    "-superblock 0",
    "+drain",
    // Nothing waits for the word that says that the superblock was durable.
    "begun word",
];

#[test]
fn a_pair_is_whole_and_named_before_it_is_marked_and_marked_before_it_is_in_use() {
    for traced in Traced::on_each_medium() {
        let file = traced.open(OnMismatch::Refuse);
        let table: Vec<&str> = ["length of Home"].into_iter().chain(MAKING).collect();
        traced.assert_steps(&table, "making");
        drop(file);
    }
}

/// A session that keeps durable points begins on a pair that has kept none. The journal and its
/// name are durable before the superblock that says that there is a journal.
#[test]
fn a_pair_that_gets_a_journal_later_says_so_when_the_journal_is_durable() {
    for traced in Traced::on_each_medium() {
        if traced.ground.medium != Medium::PageCache {
            continue;
        }
        let options = common::options(Medium::Ram).create(true).len(LEN);
        let file = options.open(traced.path()).expect("open");
        file.close(CloseMode::Fast).expect("close");
        let file = traced.open(OnMismatch::Refuse);
        let table = [
            "sync data of Reflection",
            "write zeroes",
            "journal header, not durably",
            "sync Journal",
            "sync folder",
            "journal header's copy",
            // The durable words.
            "sync Home",
            "sync Reflection",
            "superblock 0",
            "sync data of Reflection",
            "begun word",
        ];
        traced.assert_steps(&table, "a first journal");
        drop(file);
    }
}

/// Writes bytes that a close deploys. They are durable, and no record covers a word that a close
/// would write back.
fn write_something(traced: &Traced, file: &AtomicMappedFile) {
    file.write_at(&[1; 2 * PAGE as usize], 4 * PAGE).expect("write");
    traced.steps();
}

#[test]
fn a_pair_that_is_closed_fast_is_durable_before_it_says_so_and_begins_a_new_session() {
    for traced in Traced::on_each_medium() {
        // Each superblock overwrites the older copy. In page cache the session that is open has
        // copy 1, and copy 0 elsewhere.
        let file = traced.open(OnMismatch::Refuse);
        write_something(&traced, &file);
        file.close(CloseMode::Fast).expect("close");
        traced.steps();
        for _ in 0..3 {
            let file = traced.open(OnMismatch::Refuse);
            write_something(&traced, &file);
            file.close(CloseMode::Fast).expect("close");
            let table = [
                "drain",
                // A durable point: the record, the floor that names it, and then the durable words.
                "=journal header",
                "=journal header's copy",
                "=record",
                "=floor, durably",
                "=newest",
                "=word",
                "=word",
                "!sync Home",
                // Persistent memory: the superblock follows what it says. Page cache: one sync
                // makes both durable, in any order, and nothing waits for the word after it.
                "+sync Reflection",
                "=superblock 0",
                "-superblock 1",
                "+drain",
                "=sync Reflection",
                "=settled word",
                "unlock",
                "unlock",
            ];
            traced.assert_steps(&table, "a fast close");
            let file = traced.open(OnMismatch::Refuse);
            // The valid superblock is durable before the other copy is overwritten.
            let table = [
                "!sync data of Reflection",
                "=journal header",
                "=journal header's copy",
                "=superblock 1",
                "-superblock 0",
                "=sync data of Reflection",
                "+drain",
                "begun word",
            ];
            traced.assert_steps(&table, "opening again");
            file.close(CloseMode::Fast).expect("close");
            traced.steps();
        }
    }
}

#[test]
fn a_spatial_close_completes_the_home_file_then_says_so_then_removes_the_companions() {
    for traced in Traced::on_each_medium() {
        for has_mark in [true, false] {
            let file = traced.open(OnMismatch::Refuse);
            write_something(&traced, &file);
            file.sync().expect("sync");
            if !has_mark {
                let home = std::fs::File::open(traced.path()).expect("open").into();
                let platform = traced.recorder.platform();
                platform.remove_xattr(&home, marker::NAME).expect("take the mark off");
            }
            traced.steps();
            file.close(CloseMode::Spatial).expect("close");
            let completing = [
                "drain",
                "home slots",
                "home slots",
                "drain",
                // The region word has both pages in the reflection file.
                "word",
                "drain",
            ];
            let saying: &[&str] = match has_mark && traced.keeps_marks {
                // One sync makes the mark and the file durable, in any order.
                true => &["mark", "!sync Home"],
                // Without a mark, the superblock says that nothing in the reflection file counts.
                false => &["!sync Home", "=superblock 0, durably", "-superblock 1", "+drain"],
            };
            // The journal is removed first. The mark goes when the removals are durable.
            let removing = ["=remove", "remove", "!sync folder", "unmark", "unlock", "unlock"];
            let table: Vec<&str> =
                completing.iter().chain(saying).chain(&removing).copied().collect();
            traced.assert_steps(&table, "a spatial close");
        }
    }
}

#[test]
fn what_is_discarded_says_so_and_loses_its_mark_first() {
    for traced in Traced::on_each_medium() {
        let file = traced.open(OnMismatch::Refuse);
        file.close(CloseMode::Fast).expect("close");
        std::fs::write(traced.path(), [1; LEN as usize]).expect("change the home file");
        traced.steps();
        let file = traced.open(OnMismatch::Discard);
        let discarding = [
            "=superblock 1",
            "-superblock 0",
            "sync Reflection",
            "unmark",
            "sync Home",
            "=remove",
            "remove",
        ];
        let table: Vec<&str> = discarding.into_iter().chain(MAKING).collect();
        traced.assert_steps(&table, "discarding");
        drop(file);
    }
}

#[test]
fn a_growth_raises_the_mark_then_lengthens_the_files_and_then_counts() {
    for traced in Traced::on_each_medium() {
        let file = traced.open(OnMismatch::Refuse);
        traced.steps();
        file.set_len(2 * LEN).expect("grow");
        let table = [
            "high-water word",
            "drain",
            "length of Home",
            "length of Reflection",
            "+sync Home",
            "+sync Reflection",
            "length word",
            "drain",
        ];
        traced.assert_steps(&table, "growing");
    }
}

#[test]
fn a_shrink_counts_first_and_lowers_the_mark_when_everything_past_the_end_is_zero() {
    for traced in Traced::on_each_medium() {
        let file = traced.open(OnMismatch::Refuse);
        file.write_at(&[1; 2 * PAGE as usize], 4 * PAGE).expect("write");
        traced.steps();
        file.set_len(5 * PAGE).expect("shrink");
        let table = [
            "length word",
            "drain",
            // The truncated bytes belong to the last durable point, so a point without them comes
            // first.
            "=sync data of Journal",
            "=journal header",
            "=journal header's copy",
            "=record",
            "=floor, durably",
            "=newest",
            "=word",
            "drain",
            "length of Home",
            "length of Reflection",
            // The region word. The pages in the reflection file ended with that file.
            "word",
            "drain",
            "+sync Home",
            "+sync Reflection",
            "high-water word",
            "drain",
        ];
        traced.assert_steps(&table, "shrinking");
    }
}

/// Length and bytes are committed by one record. The record is durable before the length word and
/// the slice word, and ends once both are durable.
#[test]
fn a_new_length_with_bytes_is_in_its_record_first_and_in_its_word_before_the_record_ends() {
    let commit = |file: &AtomicMappedFile, len: u64| {
        file.transact(|tx| {
            tx.set_len(len)?;
            tx.write_at(&[2; 64], 0)
        })
        .expect("a new length");
    };
    let of_the_commit = [
        // The new slice in its free slot, and the record.
        "bytes of the reflection file",
        "drain",
        "bytes of the reflection file",
        "drain",
        "word",
        "length word",
        "drain",
        "wipe",
        "drain",
    ];
    for traced in Traced::on_each_medium() {
        let file = traced.open(OnMismatch::Refuse);
        // Allocates the lane and the slots, and leaves the first slice in its home slot.
        (0..2).for_each(|_| file.write_at(&[1; 2 * PAGE as usize], 0).expect("write"));
        file.sync().expect("sync");
        file.deploy(0..PAGE).expect("deploy");
        traced.steps();
        commit(&file, 2 * LEN);
        let of_the_growth = [
            "high-water word",
            "drain",
            "length of Home",
            "length of Reflection",
            "+sync Home",
            "+sync Reflection",
        ];
        let table: Vec<&str> = of_the_growth.into_iter().chain(of_the_commit).collect();
        traced.assert_steps(&table, "growing with bytes");
        file.sync().expect("sync");
        file.deploy(0..PAGE).expect("deploy");
        traced.steps();
        commit(&file, LEN);
        let of_the_shrink = [
            "=record",
            "=newest",
            "=word",
            "drain",
            "length of Home",
            "length of Reflection",
            "drain",
            "+sync Home",
            "+sync Reflection",
            "high-water word",
            "drain",
        ];
        let table: Vec<&str> = of_the_commit.into_iter().chain(of_the_shrink).collect();
        traced.assert_steps(&table, "shrinking with bytes");
    }
}

/// A crash may cut off the growth of the journal before its sync. The next session finds the longer
/// journal in the page cache, and syncs it before its first record: a record waits for its own
/// blocks only.
#[test]
fn a_journal_that_was_found_longer_is_synced_before_its_first_record() {
    for traced in Traced::on_each_medium() {
        if traced.ground.medium != Medium::PageCache {
            continue;
        }
        let journal = || {
            let found = std::fs::read_dir(traced.scratch.path()).expect("list");
            let files = found.map(|file| file.expect("list"));
            let journal = files
                .filter(|file| file.file_name().to_string_lossy().ends_with(".journal"))
                .map(|file| file.metadata().expect("stat").len());
            journal.max().expect("a journal")
        };
        let options = || traced.ground.options().create(true).len(LEN).journal_len(1 << 20);
        let open = || options().open_recorded(&traced.recorder, traced.path()).expect("open");
        let file = open();
        let short = journal();
        file.write_at(&[1; PAGE as usize], 0).and_then(|()| file.sync()).expect("the first point");
        // The growth fails at its sync, and so does giving back what it has allocated. That leaves
        // what a crash before the sync would leave.
        file.write_at(&[2; 6 * PAGE as usize], 0).expect("write");
        traced.recorder.fail_next(call::SYNC_DATA, 1, libc::EIO);
        traced.recorder.fail_next(call::SET_LEN, 1, libc::EIO);
        file.sync().expect("both files are synced instead");
        assert!(!traced.recorder.heal(), "both have failed");
        assert!(journal() > short, "the journal is longer");
        file.close(CloseMode::Unsynced).expect("leave it as a crash would");
        let file = open();
        file.write_at(&[3], 0).expect("write");
        traced.steps();
        file.sync().expect("sync");
        let table = [
            "sync data of Journal",
            "journal header",
            "journal header's copy",
            "record",
            "floor, durably",
            "newest",
            "word",
        ];
        traced.assert_steps(&table, "the first point");
    }
}

/// A new session voids the journal. So what recovery has replayed from it is durable by then, also
/// where no mark is kept: the sync of a mark makes the home file durable in passing.
#[test]
fn what_is_replayed_is_durable_before_a_mark_or_a_superblock_follows() {
    let Some(ground) = durable::ground() else { return };
    let (scratch, file) = durable::new_file(&ground, Durability::OnSync);
    file.write_at(&[1; 64], 5).and_then(|()| file.sync()).expect("a durable point");
    file.write_at(&[2; 64], 5).expect("write");
    let image = durable::restarted(&ground, &scratch.file("state.dat"));
    let recorder = Recorder::new();
    let found = ground.options().open_recorded(&recorder, image.path()).expect("goes back");
    let steps: Vec<String> = recorder.take().into_iter().filter_map(step).collect();
    let is_next = |step: &String| step == "mark" || step.starts_with("superblock");
    let before = &steps[..steps.iter().position(is_next).expect("a session begins")];
    for sync in ["sync Home", "sync Reflection"] {
        assert!(before.iter().any(|step| step == sync), "no {sync} before it: {steps:#?}");
    }
    let mut bytes = [0; 64];
    found.read_at(&mut bytes, 5).expect("read");
    assert_eq!(bytes, [1; 64]);
}

/// The floor names a durable record. So it follows that record. It precedes the durable words of
/// the first point, and the syncs after which older records may be removed.
#[test]
fn the_floor_of_the_journal_follows_its_record_and_comes_before_what_relies_on_it() {
    for traced in Traced::on_each_medium() {
        if traced.ground.medium != Medium::PageCache {
            continue;
        }
        let file = traced.open(OnMismatch::Refuse);
        let write_and_sync = |byte: u8| {
            file.write_at(&[byte; 64], 4 * PAGE).expect("write");
            traced.steps();
            file.sync().expect("sync");
        };
        write_and_sync(1);
        // All of a new journal is durable before the floor, which says that it must be there.
        traced.assert_steps(
            &[
                "sync data of Journal",
                "journal header",
                "journal header's copy",
                "record",
                "floor, durably",
                "newest",
                "word",
            ],
            "the first point of a new pair",
        );
        write_and_sync(2);
        traced.assert_steps(&["record", "newest", "word"], "the second one");
        for byte in 3..5 {
            // The point after a truncation and a growth syncs both files.
            file.set_len(file.len() - 2 * PAGE).expect("shrink");
            file.set_len(file.len() + PAGE).expect("grow");
            write_and_sync(byte);
            let table = [
                "floor",
                "sync data of Home",
                "sync data of Reflection",
                "record",
                "newest",
                "word",
            ];
            traced.assert_steps(&table, "a point that syncs both files");
        }
    }
}

fn leave_a_shrink_half_done(ground: &Ground, path: &Path) {
    let file = ground.options().create(true).len(LEN).open(path).expect("open");
    file.write_at(&[1; 2 * PAGE as usize], 4 * PAGE).expect("write");
    file.close(CloseMode::Fast).expect("close");
    run_child(CHILD, &ground.medium.to_string(), path);
}

#[test]
fn opening_cleans_up_after_a_shrink_and_then_lowers_the_mark() {
    for traced in Traced::on_each_medium() {
        leave_a_shrink_half_done(&traced.ground, &traced.path());
        let file = traced.open(OnMismatch::Refuse);
        assert_eq!(file.len(), PAGE);
        let table = [
            // Recovery, which finds no records.
            "drain",
            // The state after the crash becomes a durable point, and the session of the dead
            // process is closed.
            "=sync Home",
            "=sync Reflection",
            "=superblock 0",
            "!sync data of Reflection",
            // The header of the dead process is durable before the other block is overwritten.
            "=journal header",
            // Before the superblock: the new session recognises its journal by this header.
            "=journal header",
            "=journal header's copy",
            // From here on the old durable words are not valid, and new ones are written.
            "=sync Home",
            "=sync Reflection",
            "superblock 1",
            "=sync data of Reflection",
            "+drain",
            "begun word",
            "length of Home",
            "length of Reflection",
            // The durable words of the two pages.
            "=bytes of the reflection file",
            "=bytes of the reflection file",
            "word",
            "drain",
            "+sync Home",
            "+sync Reflection",
            "high-water word",
            "drain",
        ];
        traced.assert_steps(&table, "opening");
    }
}
