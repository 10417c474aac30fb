//! Tests the order of the steps by which a store of snapshots is made, found and removed.
//!
//! Like [`crate::steps`]: each step is durable before the next one relies on it.

use crate::common::{Ground, Scratch, media};
use atomic_mmap::testing::FileId;
use atomic_mmap::testing::layout;
use atomic_mmap::testing::recorder::{Event, Recorder, What};
use atomic_mmap::{AtomicMappedFile, CloseMode, Medium};

const PAGE: u64 = 4096;
const LEN: u64 = 1 << 20;
const TABLES_END: u64 = 512 << 10;

struct Traced {
    ground: Ground,
    scratch: Scratch,
    recorder: Recorder,
}

impl Traced {
    fn on_each_medium() -> Vec<Traced> {
        let new = |ground: Ground| {
            let (scratch, recorder) = (ground.scratch(), Recorder::new());
            Traced { ground, scratch, recorder }
        };
        media().into_iter().map(new).collect()
    }

    fn open(&self) -> AtomicMappedFile {
        let options = self.ground.options().create(true).len(LEN);
        options.open_recorded(&self.recorder, self.scratch.file("state.dat")).expect("open")
    }

    fn forget(&self) {
        self.recorder.take();
    }

    /// Compares the steps since the last call with a table. The first character of a step limits
    /// it, as in [`crate::steps`].
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
                _ => Some(step),
            })
            .collect();
        let mut found: Vec<&str> = self.recorder.take().into_iter().filter_map(step).collect();
        // A drain without a store before it, and a copy in several pieces.
        found.dedup();
        if medium != Medium::Dax {
            found.retain(|step| *step != "drain");
        }
        let expected: Vec<&str> =
            expected.into_iter().filter(|step| medium == Medium::Dax || *step != "drain").collect();
        assert_eq!(found, expected, "{what} on {medium}");
    }
}

/// Returns the name of a step, or `None` if its order does not matter.
fn step(event: Event) -> Option<&'static str> {
    Some(match event.what {
        What::Drain => "drain",
        What::Sync { file: FileId::Snapshots, .. } => "sync",
        What::SyncDir { .. } => "sync folder",
        What::Rename { .. } => "rename",
        What::Remove { .. } => "remove",
        What::Copy { file: FileId::Snapshots, offset, .. } if offset < TABLES_END => "table",
        What::Copy { file: FileId::Snapshots, .. } => "keep",
        What::Store { file: FileId::Snapshots, .. } => "end",
        What::WriteDurably { file: FileId::Journal, .. } => "point",
        What::Copy { file: FileId::Reflection, offset, .. }
        | What::Write { file: FileId::Reflection, offset, .. }
        | What::WriteDurably { file: FileId::Reflection, offset, .. }
            if layout::SUPERBLOCKS.contains(&offset) =>
        {
            "superblock"
        }
        _ => return None,
    })
}

#[test]
fn a_store_is_durable_before_it_has_its_name_and_the_name_before_a_snapshot() {
    for traced in Traced::on_each_medium() {
        let file = traced.open();
        traced.forget();
        file.snapshot("a").expect("seal");
        let table = [
            "table",
            "drain",
            "!sync",
            "rename",
            "!sync folder",
            "=sync",
            "table",
            "drain",
            "=sync",
            "table",
            "drain",
        ];
        traced.assert_steps(&table, "the first snapshot");
        // The repeated table is durable before the next one goes over the other copy.
        file.snapshot("b").expect("seal");
        let table = ["=sync", "table", "drain", "=sync", "table", "drain"];
        traced.assert_steps(&table, "the second snapshot");
    }
}

#[test]
fn what_a_point_keeps_is_durable_before_the_point() {
    for traced in Traced::on_each_medium() {
        let file = traced.open();
        file.snapshot("a").expect("seal");
        // The first keep makes the store longer.
        file.write_at(&[6; 64], 0).expect("write");
        file.snapshot("b").expect("seal");
        traced.forget();
        file.write_at(&[7; 64], 0).expect("write");
        file.sync().expect("sync");
        let table = ["-keep", "+drain", "=keep", "=sync", "=point"];
        traced.assert_steps(&table, "a write and a sync");
        file.write_at(&[8; 64], 0).expect("write");
        file.sync().expect("sync");
        traced.assert_steps(&["+drain", "=point"], "a write of what is kept");
    }
}

#[test]
fn a_found_store_is_durable_before_it_is_stored_to_and_says_so_before_the_session_begins() {
    for traced in Traced::on_each_medium() {
        let file = traced.open();
        file.snapshot("a").expect("seal");
        file.close(CloseMode::Fast).expect("close");
        traced.forget();
        let file = traced.open();
        let table = [
            "drain",
            "=sync",
            "table",
            "drain",
            "=sync",
            "superblock",
            "drain",
            "table",
            "drain",
            "=sync",
            "table",
            "drain",
        ];
        traced.assert_steps(&table, "opening");
        drop(file);
    }
}

#[test]
fn what_recovery_keeps_is_durable_before_the_recovered_state_counts() {
    for traced in Traced::on_each_medium() {
        if traced.ground.medium != Medium::PageCache {
            continue;
        }
        let file = traced.open();
        file.snapshot("a").expect("seal");
        file.write_at(&[1; 100], 5 * PAGE).expect("write");
        file.close(CloseMode::Unsynced).expect("close");
        traced.forget();
        let file = traced.open();
        let table = [
            "sync",
            "table",
            "sync",
            "keep",
            "sync",
            // The dead session ends, as a fast close does.
            "superblock",
            "table",
            "sync",
            "superblock",
            "table",
            "sync",
            "table",
        ];
        traced.assert_steps(&table, "recovery");
        drop(file);
    }
}

/// An end without its records would be damage, and so would a close with fewer ends.
#[test]
fn a_close_marks_ends_of_what_is_durable_and_they_are_before_it_counts() {
    for traced in Traced::on_each_medium() {
        let file = traced.open();
        file.snapshot("a").expect("seal");
        file.write_at(&[7; 64], 0).expect("write");
        file.sync().expect("sync");
        file.snapshot("b").expect("seal");
        traced.forget();
        file.close(CloseMode::Fast).expect("close");
        let table = [
            "drain",
            "=sync",
            "end",
            "drain",
            "=sync",
            "table",
            "drain",
            "=sync",
            "table",
            "drain",
            "superblock",
            "drain",
        ];
        traced.assert_steps(&table, "a close");
    }
}

/// A power loss would bring back the table before it, with a snapshot for which nothing was kept.
#[test]
fn the_removal_of_an_empty_store_is_durable_before_the_session_begins() {
    for traced in Traced::on_each_medium() {
        let file = traced.open();
        file.snapshot("a").expect("seal");
        file.drop_snapshot("a").expect("drop");
        file.close(CloseMode::Unsynced).expect("close");
        traced.forget();
        let file = traced.open();
        let table = ["remove", "!sync folder", "drain", "superblock", "drain"];
        traced.assert_steps(&table, "opening");
        drop(file);
    }
}

/// Without the first sync of keeps, a power loss could leave the received records alone, and an
/// older snapshot would read them. Without the second one the table could count without its
/// records.
#[test]
fn an_import_is_durable_step_by_step() {
    for traced in Traced::on_each_medium() {
        let file = traced.open();
        // The first keep makes the store longer.
        file.snapshot("a").expect("seal");
        file.write_at(&[6; 64], 0).expect("write");
        file.snapshot("b").expect("seal");
        let other = traced.scratch.file("sender");
        let sender = traced.ground.options().create(true).len(LEN).open(other).expect("open");
        sender.write_at(&[6; 64], 0).expect("write");
        sender.snapshot("base").expect("seal");
        sender.write_at(&[7; 64], 64).expect("write");
        sender.snapshot("next").expect("seal");
        let mut stream = Vec::new();
        sender.export(Some("base"), "next", &mut stream).expect("an export");
        traced.forget();
        file.import(&stream[..]).expect("an import");
        // Each change of the table is stored to both copies.
        let change = ["table", "drain", "=sync", "table", "drain"];
        // The bytes that the snapshots read so far, and then the new records.
        let keeps = ["keep", "drain", "=sync", "keep", "drain", "=sync"];
        // The number, the keeps, the commit point, and the rollback. Then the received bytes go.
        let points = ["=sync", "=point"];
        let table =
            [&["=sync"][..], &change, &keeps, &change, &points, &change, &["remove"]].concat();
        traced.assert_steps(&table, "an import");
    }
}
