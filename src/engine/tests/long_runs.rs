//! Tests of long runs, which calls write where durable points are kept on a local disk.

use crate::error::Error;
use crate::format::layout;
use crate::platform::recorder::{Recorder, What};
use crate::platform::{FileId, call};
use crate::units::PAGE;
use crate::{AtomicMappedFile, Medium};
use std::path::Path;

const LEN: usize = 64 * PAGE;

/// A long run: whole pages, and a part of the page at each end that is long enough to join them.
const AT: u64 = 3 * PAGE as u64 + 64;
const LONG: usize = 20 * PAGE - 64 + PAGE / 4;

/// Returns a file on page cache, and its recorder. `None` where no calls write runs.
fn file(folder: &Path) -> Option<(AtomicMappedFile, Recorder)> {
    let recorder = Recorder::new();
    let options = AtomicMappedFile::options().create(true).len(LEN as u64);
    let options = options.medium(Medium::PageCache);
    let file = options.open_recorded(&recorder, folder.join("state.dat")).expect("a pair");
    if !file.engine().mode.by_call {
        eprintln!("skipped: {} is on no local file system", folder.display());
        return None;
    }
    recorder.take();
    Some((file, recorder))
}

/// Returns the file, offset and length of each write call since the last look. Without a call that
/// reserves storage, writes of zeroes reserve it: these are left out.
fn calls(recorder: &Recorder) -> Vec<(FileId, u64, usize)> {
    let told = recorder.take().into_iter().filter_map(|event| match event.what {
        What::Write { file, offset, bytes } if bytes.iter().any(|byte| *byte != 0) => {
            Some((file, offset, bytes.len()))
        }
        _ => None,
    });
    told.collect()
}

/// Returns the whole contents.
fn contents(file: &AtomicMappedFile) -> Vec<u8> {
    let mut found = vec![0; LEN];
    file.read_at(&mut found, 0).expect("a read");
    found
}

#[test]
fn a_long_run_is_one_call_to_its_free_slots_and_a_short_one_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some((file, recorder)) = file(folder.path()) else { return };
    let mut expected = contents(&file);
    let sides = [(FileId::Reflection, layout::reflection(AT)), (FileId::Home, AT)];
    for (n, (side, at)) in [1, 2, 3].into_iter().zip(sides.into_iter().cycle()) {
        file.write_at(&[n; LONG], AT).expect("a long run");
        expected[AT as usize..][..LONG].fill(n);
        assert_eq!(calls(&recorder), [(side, at, LONG)]);
        assert!(contents(&file) == expected, "write {n}");
        file.sync().expect("a sync");
        recorder.take();
    }
    file.write_at(&[4; 4 * PAGE], AT).expect("a short run");
    assert_eq!(calls(&recorder), []);
    drop(file);
    expected[AT as usize..][..4 * PAGE].fill(4);
    let file = AtomicMappedFile::open(folder.path().join("state.dat")).expect("open");
    assert!(contents(&file) == expected, "opened again");
}

/// A failed call leaves part of the bytes in slots that are not valid. The kernel may have told of
/// an earlier write-back, so nothing may be written any more.
#[test]
fn a_failed_call_changes_nothing_and_poisons() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some((file, recorder)) = file(folder.path()) else { return };
    file.write_at(&[1; LEN], 0).expect("a write");
    // Until then the durable point needs the other slots.
    file.sync().expect("a sync");
    let before = contents(&file);
    recorder.fail_next(call::WRITE, 1, libc::EIO);
    let error = file.write_at(&[2; LONG], AT).expect_err("a failed call");
    let Error::Io { offset, .. } = &error else { panic!("{error:?}") };
    assert_eq!(*offset, Some(AT));
    assert!(error.to_string().contains("state.dat"), "{error}");
    let poisoned = file.sync().expect_err("a poisoned handle");
    assert!(matches!(poisoned, Error::Poisoned { .. }), "{poisoned:?}");
    assert!(contents(&file) == before, "a read needs no disk");
    drop(file);
    let file = AtomicMappedFile::open(folder.path().join("state.dat")).expect("open");
    assert!(contents(&file) == before, "after the failure");
}

/// A process may lower its own limit of the length of files (`ulimit -f`) below that of an open
/// file. Its stores through a mapping are not limited.
#[test]
fn a_limit_of_the_process_does_not_fail_a_long_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some((file, recorder)) = file(folder.path()) else { return };
    recorder.fail_next(call::WRITE, 1, libc::EFBIG);
    file.write_at(&[1; LEN], 0).expect("a write through the mapping");
    assert!(!recorder.heal(), "a call has failed");
    assert!(contents(&file) == [1; LEN]);
}

/// Elsewhere a call may bypass the cache that the mapping shows, so stores go through the mapping.
#[test]
fn a_long_run_is_no_call_in_ram() {
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else { return };
    let recorder = Recorder::new();
    let options = AtomicMappedFile::options().create(true).len(LEN as u64);
    let options = options.medium(Medium::PageCache).allow_any_file_system(true);
    let file = options.open_recorded(&recorder, folder.path().join("state.dat")).expect("a pair");
    assert!(file.engine().keeps_points);
    recorder.take();
    file.write_at(&[1; LEN], 0).expect("a write");
    assert_eq!(calls(&recorder), []);
}
