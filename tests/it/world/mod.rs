//! The world acts on a pair of files: moves, restores, links, owners, mounts, folders.
//!
//! Each test plays what a user, an administrator or a tool did. What must hold: a pair that was
//! moved or restored together opens, with what can be trusted of it; nothing that may be another's
//! is believed, written to or removed; and what was synced is never lost in silence.
//!
//! Tests that mount file systems or change users need root, and say so where they are skipped.

mod callers;
mod doubts;
mod identity;
mod leftovers;
mod mounts;
mod owners;
mod places;
mod words;

use crate::common::{crash, role, run_child};
use atomic_mmap::{AtomicMappedFile, CloseMode, Options};
use std::path::{Path, PathBuf};

const CHILD: &str = concat!(module_path!(), "::plays_the_child_if_it_is_one");
const LEN: u64 = 1 << 20;

fn options() -> Options {
    AtomicMappedFile::options().create(true).len(LEN).journal_len(64 << 10)
}

/// Writes and syncs something on several pages, which every file of these tests holds.
fn write_and_sync(file: &AtomicMappedFile) {
    for page in [0, 1, 70] {
        file.write_at(b"paid", page * 4096 + 100).expect("write");
    }
    file.sync().expect("sync");
}

/// Something that was not.
fn write_more(file: &AtomicMappedFile) {
    for page in [0, 1, 70] {
        file.write_at(b"more", page * 4096 + 100).expect("write");
    }
}

/// Returns the four bytes that each of the pages holds. A mixture of two states never existed.
#[track_caller]
fn state_of(file: &AtomicMappedFile) -> String {
    let read = |page: u64| {
        let mut bytes = [0; 4];
        file.read_at(&mut bytes, page * 4096 + 100).expect("read");
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let all = [0, 1, 70].map(read);
    assert!(all.iter().all(|bytes| *bytes == all[0]), "a mixture: {all:?}");
    all[0].clone()
}

fn closed_fast(path: &Path) {
    let file = options().open(path).expect("open");
    write_and_sync(&file);
    file.close(CloseMode::Fast).expect("close");
}

/// A process that had the file open is dead; its last writes were not synced.
fn died(path: &Path) {
    run_child(CHILD, "die", path);
}

/// A way to leave the pair of a path.
type End = fn(&Path);

/// Both ways to leave a pair, by name.
const ENDS: [(&str, End); 2] = [("closed", closed_fast), ("died", died)];

fn folder_of(path: &Path) -> &Path {
    path.parent().expect("a folder")
}

fn companions_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("list the folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(".atomic-mmap.")
    };
    let mut found: Vec<PathBuf> = paths.filter(is_ours).collect();
    found.sort();
    found
}

#[test]
fn plays_the_child_if_it_is_one() {
    let Some((role, path)) = role() else { return };
    match role.as_str() {
        "die" => {
            let file = options().open(&path).expect("open");
            write_and_sync(&file);
            write_more(&file);
            crash();
        }
        "die again" => {
            let _open = options().open(&path).expect("open");
            crash();
        }
        "callers" => callers::play(&path),
        role if role.starts_with("words ") => {
            let medium = role["words ".len()..].parse().expect("a medium");
            let _open = words::make(crate::common::options(medium), &path);
            crash();
        }
        "chdir" => places::change_folder(&path),
        "link" => places::by_links(&path),
        role if role.starts_with("mounts ") => mounts::play(&role["mounts ".len()..], &path),
        role if role.starts_with("owners ") => owners::play(&role["owners ".len()..], &path),
        role => panic!("{role}"),
    }
}
