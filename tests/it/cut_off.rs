//! Tests of openings and closings that a loss of power has cut off.
//!
//! Few barriers order their steps, so several of them may be missing at once.
//! `docs/model/opening.py` tries all combinations. Here the real code meets the worst of them.

use crate::common::{self, Ground, Rng, Scratch, assert_same, read_all, reflections_in};
use crate::durable::{Restarted, died, ground, new_file, restarted, write_at_random};
use crate::journal::flip;
use atomic_mmap::testing::marker::{self, Marker};
use atomic_mmap::testing::recorder::{Recorder, What};
use atomic_mmap::testing::superblock::{Copy, State, Superblock};
use atomic_mmap::testing::{FileId, call, layout};
use atomic_mmap::{AtomicMappedFile, CloseMode, Durability, Error, Mismatch, Result};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

const LEN: usize = 600_000;
const BLOCK: usize = 4096;

fn refusal(result: Result<AtomicMappedFile>) -> Option<Mismatch> {
    match result {
        Ok(_) => None,
        Err(Error::Mismatch { why, .. }) => Some(why),
        Err(other) => panic!("{other}"),
    }
}

fn mark_of(home: &Path) -> Marker {
    let file = fs::File::open(home).expect("open").into();
    let bytes = Recorder::new().platform().get_xattr(&file, marker::NAME).expect("ask");
    Marker::decode(&bytes.expect("a mark")).expect("a mark of this crate")
}

fn set_mark(home: &Path, mark: Option<Marker>) {
    let file = fs::File::open(home).expect("open").into();
    let platform = Recorder::new().platform();
    match mark {
        Some(mark) => drop(platform.set_xattr(&file, marker::NAME, &mark.encode()).expect("set")),
        None => platform.remove_xattr(&file, marker::NAME).expect("remove"),
    }
}

impl Restarted {
    fn journal(&self) -> std::path::PathBuf {
        reflections_in(self.folder()).pop().expect("one").with_added_extension("journal")
    }

    fn folder(&self) -> &Path {
        self.path().parent().expect("a folder")
    }

    fn try_open(&self, ground: &Ground) -> Result<AtomicMappedFile> {
        ground.options().open(self.path())
    }

    /// Zeroes the headers of the journal, as a disk that never got them.
    fn lose_headers(&self) {
        let file = fs::File::options().write(true).open(self.journal()).expect("open");
        file.write_all_at(&[0; 2 * BLOCK], 0).expect("write");
    }
}

/// A pair that was closed, and its reflection file as the disk had it before the close: without any
/// write since it was made, except for those that waited for their blocks.
struct Closed {
    scratch: Scratch,
    stale: Scratch,
    model: Vec<u8>,
}

impl Closed {
    /// Makes a pair in its first session, or in a later one.
    fn new(ground: &Ground, is_first: bool) -> Closed {
        let (scratch, mut file) = new_file(ground, Durability::OnSync);
        if !is_first {
            file.close(CloseMode::Fast).expect("close");
            file = ground.options().open(scratch.file("state.dat")).expect("open");
        }
        let stale = ground.scratch();
        let reflection = reflections_in(scratch.path()).pop().expect("one");
        common::copy_file(&reflection, &stale.file("stale"));
        let mut model = vec![0; LEN];
        // The second write of a slice goes to its home slot.
        for round in 1..=4 {
            file.write_at(&[round; 500], 3 * BLOCK as u64).expect("write");
            model[3 * BLOCK..][..500].fill(round);
            write_at_random(&file, &mut model, &mut Rng(round.into()), 3);
            file.sync().expect("sync");
        }
        file.close(CloseMode::Fast).expect("close");
        Closed { scratch, stale, model }
    }

    /// Returns the pair after a restart of the machine. `is_whole` says whether the sync of the
    /// close had ended.
    fn restarted(&self, ground: &Ground, is_whole: bool) -> Restarted {
        let home = self.scratch.file("state.dat");
        let image = restarted(ground, &home);
        let modified = fs::metadata(&home).and_then(|stat| stat.modified()).expect("stat");
        let copy = fs::File::options().write(true).open(image.path()).expect("open");
        copy.set_modified(modified).expect("set the time");
        if is_whole {
            return image;
        }
        let durable = layout::SUPERBLOCKS.map(|at| (at, 512)).into_iter();
        let durable: Vec<(u64, Vec<u8>)> = durable
            .chain(layout::FLOORS.map(|at| (at, 24)))
            .map(|(at, len)| {
                let mut bytes = vec![0; len];
                image.reflection().read_exact_at(&mut bytes, at).expect("read");
                (at, bytes)
            })
            .collect();
        let reflection = reflections_in(image.folder()).pop().expect("one");
        fs::remove_file(&reflection).expect("remove");
        common::copy_file(&self.stale.file("stale"), &reflection);
        for (at, bytes) in durable {
            image.reflection().write_all_at(&bytes, at).expect("write");
        }
        image
    }
}

#[test]
fn a_close_with_an_unfinished_sync_is_completed_from_the_journal() {
    let Some(ground) = ground() else { return };
    for is_first in [true, false] {
        let closed = Closed::new(&ground, is_first);
        let image = closed.restarted(&ground, false);
        image.try_reading(&ground, &closed.model);
        // The next opening may be cut off as well: before the header of its journal, right before
        // its session begins, and at each step between.
        let mut failures = 0;
        for call in [call::WRITE, call::WRITE_DURABLY, call::SYNC_DATA, call::SYNC_ALL] {
            for nth in 1.. {
                let (image, recorder) = (closed.restarted(&ground, false), Recorder::new());
                recorder.fail_next(call, nth, libc::EIO);
                let opened = ground.options().open_recorded(&recorder, image.path());
                if recorder.heal() {
                    break;
                }
                // An opening does without the copy of the journal's header.
                let is_told = matches!(opened, Err(Error::Io { .. })) || call == call::WRITE;
                assert!(is_told, "injected into {call}, {nth}: {opened:?}");
                failures += usize::from(opened.is_err());
                drop(opened);
                image.try_reading(&ground, &closed.model);
                assert_same(&read_all(&image.open(&ground)), &closed.model, "cut off");
            }
        }
        assert!(failures > 3, "{failures}");
        let file = image.open(&ground);
        assert_same(&read_all(&file), &closed.model, "completed");
        file.write_at(b"on", 0).expect("write");
        file.close(CloseMode::Fast).expect("close");
        let file = image.open(&ground);
        let mut model = closed.model.clone();
        model[..2].copy_from_slice(b"on");
        assert_same(&read_all(&file), &model, "goes on as any file");
    }
}

impl Restarted {
    fn try_reading(&self, ground: &Ground, model: &[u8]) {
        let file = ground.options().read_only(true).open(self.path()).expect("open for reading");
        assert_same(&read_all(&file), model, "for reading");
    }
}

/// The journal is needed as long as the reflection file may lack something. The home file is
/// compared with what the close has recorded, in any case.
#[test]
fn a_close_needs_its_journal_only_until_it_is_settled() {
    let Some(ground) = ground() else { return };
    let closed = Closed::new(&ground, true);
    for is_whole in [true, false] {
        let image = closed.restarted(&ground, is_whole);
        fs::remove_file(image.journal()).expect("remove");
        let found = image.try_open(&ground);
        match is_whole {
            true => assert_same(&read_all(&found.expect("open")), &closed.model, "settled"),
            false => assert_eq!(refusal(found), Some(Mismatch::JournalGone)),
        }
        for block in 0..2 {
            let image = closed.restarted(&ground, is_whole);
            flip(&image.journal(), block * BLOCK as u64 + 40);
            assert_same(&read_all(&image.open(&ground)), &closed.model, "by the other header");
        }
        let image = closed.restarted(&ground, is_whole);
        let home = fs::File::options().write(true).open(image.path()).expect("open");
        home.write_all_at(b"another program", 0).expect("write");
        assert_eq!(refusal(image.try_open(&ground)), Some(Mismatch::HomeChanged));
    }
}

/// A pair of a file with bytes that was opened and not written to.
fn made(ground: &Ground) -> (Scratch, Vec<u8>, AtomicMappedFile) {
    let scratch = ground.scratch();
    let bytes = Rng(5).bytes(10_000);
    fs::write(scratch.file("state.dat"), &bytes).expect("write");
    let file = ground.options().open(scratch.file("state.dat")).expect("open");
    (scratch, bytes, file)
}

#[test]
fn a_new_pair_counts_as_far_as_its_opening_came() {
    let Some(ground) = ground() else { return };
    let (scratch, bytes, file) = made(&ground);
    for has_mark in [true, false] {
        for has_journal in [true, false] {
            let image = restarted(&ground, &scratch.file("state.dat"));
            image.store(layout::SETTLED_WORD, 0);
            if !has_journal {
                fs::remove_file(image.journal()).expect("remove");
            }
            if !has_mark {
                set_mark(image.path(), None);
            }
            // A mark says that the pair may have been in use, so a growth of it is taken back. A
            // file without a mark was never a pair, and may have been edited.
            let mut edited = bytes.clone();
            edited.extend([7; 3000]);
            fs::write(image.path(), &edited).expect("write");
            let expected = if has_mark { &bytes } else { &edited };
            image.try_reading(&ground, expected);
            let file = image.open(&ground);
            assert_same(&read_all(&file), expected, &format!("{has_mark} {has_journal}"));
            file.close(CloseMode::Spatial).expect("close");
            assert_same(&fs::read(image.path()).expect("read"), expected, "closed");
            assert_eq!(fs::read_dir(image.folder()).expect("list").count(), 1, "companions");
        }
    }
    drop(file);
}

/// Once the mark was durable, a tool that takes it off is noticed: by the settled word, and after a
/// loss of power by the floor that follows the first point.
#[test]
fn the_mark_of_a_new_pair_is_missed_from_its_first_point_on() {
    let Some(ground) = ground() else { return };
    let (scratch, bytes, file) = made(&ground);
    let unmarked = |word: u64| {
        let image = restarted(&ground, &scratch.file("state.dat"));
        image.store(layout::SETTLED_WORD, word);
        set_mark(image.path(), None);
        image
    };
    assert_eq!(refusal(unmarked(1).try_open(&ground)), Some(Mismatch::MarkGone));
    assert_same(&read_all(&unmarked(0).open(&ground)), &bytes, "nothing was made durable");
    file.write_at(b"point", 0).expect("write");
    file.sync().expect("sync");
    for word in [0, 1] {
        let found = unmarked(word).try_open(&ground);
        assert_eq!(refusal(found), Some(Mismatch::MarkGone), "settled {word}");
    }
}

#[test]
fn a_journal_of_a_new_pair_that_lost_its_header_is_refused_from_the_first_point_on() {
    let Some(ground) = ground() else { return };
    let (scratch, bytes, file) = made(&ground);
    let image = || restarted(&ground, &scratch.file("state.dat"));
    let lost = |has_file: bool| {
        let image = image();
        match has_file {
            true => image.lose_headers(),
            false => fs::remove_file(image.journal()).expect("remove"),
        }
        image
    };
    file.write_at(&[1; 100], 0).expect("write");
    for has_file in [true, false] {
        let image = lost(has_file);
        let open = image.open(&ground);
        assert_same(&read_all(&open), &bytes, "no point was made");
        // The next session needs its journal.
        image.lose_headers();
        let again = restarted(&ground, image.path());
        assert_eq!(refusal(again.try_open(&ground)), Some(Mismatch::JournalSwapped));
        drop(open);
    }
    file.sync().expect("sync");
    assert_eq!(refusal(lost(true).try_open(&ground)), Some(Mismatch::JournalSwapped));
    assert_eq!(refusal(lost(false).try_open(&ground)), Some(Mismatch::JournalGone));
}

/// Nothing waits for the removal of the mark by a spatial close. On btrfs a loss of power brought
/// it back beside the companions of the next pair, which was refused. Found by `lab/power`.
#[test]
fn a_closing_mark_of_an_earlier_pair_does_not_concern_the_next_one() {
    let Some(ground) = ground() else { return };
    let (scratch, bytes, file) = made(&ground);
    let image = |settled: u64, is_closing: bool| {
        let image = restarted(&ground, &scratch.file("state.dat"));
        image.store(layout::SETTLED_WORD, settled);
        let earlier = Marker { uuid: [9; 16], is_closing, ..mark_of(image.path()) };
        set_mark(image.path(), Some(earlier));
        image
    };
    let making = image(0, true);
    let open = making.open(&ground);
    assert_same(&read_all(&open), &bytes, "the next pair was being made");
    open.close(CloseMode::Spatial).expect("close");
    assert_same(&fs::read(making.path()).expect("read"), &bytes, "closed");
    assert_eq!(fs::read_dir(making.folder()).expect("list").count(), 1, "companions");
    // The next pair had its own mark, and that is gone.
    assert_eq!(refusal(image(1, true).try_open(&ground)), Some(Mismatch::MarkGone));
    assert_eq!(refusal(image(0, false).try_open(&ground)), Some(Mismatch::Swapped));
    drop(file);
}

/// The process of the first opening died before its last barriers. What it has left is in the page
/// cache, and perhaps not on the disk. Found by reading.
#[test]
fn the_next_opening_makes_durable_what_an_opening_that_died_has_left() {
    let Some(ground) = ground() else { return };
    let (scratch, bytes, file) = made(&ground);
    let image = died(&ground, &scratch.file("state.dat"));
    image.store(layout::SETTLED_WORD, 0);
    let recorder = Recorder::new();
    let open = ground.options().open_recorded(&recorder, image.path()).expect("open");
    assert_same(&read_all(&open), &bytes, "in the same boot");
    let events: Vec<What> = recorder.take().into_iter().map(|event| event.what).collect();
    let last = |is_it: &dyn Fn(&What) -> bool| events.iter().rposition(is_it);
    let begins = last(&|what| matches!(what, What::Write { file: FileId::Reflection, .. }));
    let named = last(&|what| matches!(what, What::SyncDir { .. }));
    let marked = last(&|what| matches!(what, What::Sync { file: FileId::Home, .. }));
    assert!(named.expect("the names are synced") < marked.expect("the mark is synced"));
    assert!(marked < begins, "before the superblock that relies on both: {events:?}");
    drop(file);
}

/// A process died in a discard, and the emptied state is in the page cache. It must be durable
/// before the journal goes, without which a pair in use is refused.
#[test]
fn what_was_emptied_is_so_durably_before_its_journal_is_removed() {
    let Some(ground) = ground() else { return };
    let (scratch, _, file) = made(&ground);
    let image = died(&ground, &scratch.file("state.dat"));
    for at in layout::SUPERBLOCKS {
        let mut block = [0; 512];
        image.reflection().read_exact_at(&mut block, at).expect("read");
        let Copy::Valid(superblock) = Superblock::decode(&block) else { panic!("no superblock") };
        let emptied = Superblock { state: State::Emptied, is_unsettled: false, ..superblock };
        image.reflection().write_all_at(&emptied.encode(), at).expect("write");
    }
    let recorder = Recorder::new();
    let _open = ground.options().open_recorded(&recorder, image.path()).expect("open");
    let events: Vec<What> = recorder.take().into_iter().map(|event| event.what).collect();
    let is_sync = |what: &What| matches!(what, What::Sync { file: FileId::Reflection, all: true });
    let synced = events.iter().position(is_sync).expect("a sync");
    let removed = events.iter().position(|what| matches!(what, What::Remove { .. }));
    assert!(synced < removed.expect("it is removed"), "{events:?}");
    drop(file);
}

/// A pair that was about to be closed spatially, with its home file complete.
fn closing(ground: &Ground) -> (Scratch, Vec<u8>, AtomicMappedFile) {
    let (scratch, mut bytes, file) = made(ground);
    file.write_at(&[3; 5000], 100).expect("write");
    bytes[100..5100].fill(3);
    file.sync().expect("sync");
    file.deploy(0..file.len()).expect("deploy");
    (scratch, bytes, file)
}

#[test]
fn a_file_needs_no_companion_after_a_spatial_close_that_was_cut_off() {
    let Some(ground) = ground() else { return };
    let (scratch, bytes, file) = closing(&ground);
    for is_closing in [true, false] {
        for (has_reflection, has_journal) in
            [(true, true), (true, false), (false, true), (false, false)]
        {
            let image = restarted(&ground, &scratch.file("state.dat"));
            set_mark(image.path(), Some(Marker { is_closing, ..mark_of(image.path()) }));
            let journal = image.journal();
            if !has_reflection {
                fs::remove_file(journal.with_extension("")).expect("remove");
            }
            if !has_journal {
                fs::remove_file(&journal).expect("remove");
            }
            let expected = match (has_reflection, has_journal) {
                (true, true) => None,
                _ if is_closing => None,
                (true, false) => Some(Mismatch::JournalGone),
                (false, _) => Some(Mismatch::ReflectionGone),
            };
            let found = image.try_open(&ground);
            let what = format!("closing {is_closing}: {has_reflection} {has_journal}");
            let Ok(file) = found else {
                assert_eq!(refusal(found), expected, "{what}");
                continue;
            };
            assert_eq!(expected, None, "{what}");
            assert_same(&read_all(&file), &bytes, &what);
            assert!(!mark_of(image.path()).is_closing, "{what}: in use again");
            file.close(CloseMode::Spatial).expect("close");
            assert_eq!(fs::read_dir(image.folder()).expect("list").count(), 1, "companions");
        }
    }
    drop(file);
}

/// The power may fail before the home file is durable. A copy of it may then lack bytes, so it is
/// refused as any copy is.
#[test]
fn a_copy_is_refused_after_a_spatial_close_that_was_cut_off() {
    let Some(ground) = ground() else { return };
    let (scratch, bytes, file) = closing(&ground);
    let copy = ground.scratch();
    let path = copy.file("copy.dat");
    fs::write(&path, &bytes).expect("write");
    let mark = Marker { is_closing: true, ..mark_of(&scratch.file("state.dat")) };
    set_mark(&path, Some(mark));
    assert_eq!(refusal(ground.options().open(&path)), Some(Mismatch::HomeIsCopy));
    drop(file);
}
