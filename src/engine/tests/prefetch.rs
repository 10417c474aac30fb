//! Tests of looks ahead of a scan: which regions they load, and where.

use super::fixture::{open, options};
use crate::bitmap::span;
use crate::pair::pause;
use crate::units::{PAGE, REGION, RegionIndex};
use crate::{AtomicMappedFile, Medium};
use std::path::Path;
use std::sync::mpsc::channel;

const LEN: u64 = 4 * REGION as u64;
const NEXT: RegionIndex = RegionIndex(1);

/// Opens a new file on page cache, where scans are read ahead of.
fn new_file(folder: &Path, name: &str) -> AtomicMappedFile {
    std::fs::create_dir(folder.join(name)).expect("a folder");
    open(&folder.join(name), options(LEN).medium(Medium::PageCache))
}

/// Lets a thread call `run` and pauses it after it next loads the length. Calls `meanwhile` during
/// the pause.
fn with_pause(run: impl FnOnce() + Send, meanwhile: impl FnOnce()) {
    let (pauses, has_paused) = channel();
    let (goes_on, may_go_on) = channel::<()>();
    std::thread::scope(|scope| {
        // Dropped by a panic, so that the other thread ends.
        let goes_on = goes_on;
        scope.spawn(move || {
            pause::at_next_length(move || {
                pauses.send(()).expect("the other thread waits");
                let _gone_after_a_panic = may_go_on.recv();
            });
            run();
        });
        has_paused.recv().expect("a pause");
        meanwhile();
        goes_on.send(()).expect("the other thread waits");
    });
}

/// A region that is loaded past the end of the file would stay as it was when the file grows.
#[test]
fn a_look_ahead_loads_no_region_that_a_shrink_has_cut_off() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = new_file(folder.path(), "one");
    let engine = file.engine();
    let scan = || {
        let lane = engine.lane();
        for page in 40..60 {
            engine.follow(&lane, page * PAGE as u64, PAGE);
        }
    };
    with_pause(scan, || file.set_len(60 * PAGE as u64).expect("shorter"));
    assert!(engine.state.loaded(NEXT).is_none());
}

#[test]
fn a_look_ahead_looks_at_a_region_in_a_read_section() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = new_file(folder.path(), "one");
    let engine = file.engine();
    file.write_at(&[1; PAGE], NEXT.page(3).start()).expect("a write");
    let look = || {
        let span = span::regions(NEXT.start()..NEXT.start() + 5 * PAGE as u64).next();
        let away = engine.pages_away(&engine.lane(), &span.expect("a region"));
        assert_eq!(away, Some(1 << 3));
    };
    let is_pinned = || engine.lanes.all().any(|lane| lane.is_pinned());
    with_pause(look, || assert!(is_pinned(), "a shrink waits for this thread"));
    assert!(!is_pinned());
}

/// The lane of neither file is at hand when the thread comes back to it.
#[test]
fn scans_of_two_files_in_turn_are_both_read_ahead_of() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = ["one", "two"].map(|name| new_file(folder.path(), name));
    for page in 40..64 {
        for file in &files {
            file.read_at(&mut [0; PAGE], page * PAGE as u64).expect("a read");
        }
    }
    for file in &files {
        assert!(file.engine().state.loaded(NEXT).is_some(), "the scan comes to it next");
    }
}
