//! Tests of `read::read_set`.

use super::fixture::new_file;
use crate::engine::Engine;
use crate::lock::lock_page;
use crate::pair::read_set::{FEW, ReadSet};
use crate::units::{PAGE, RegionIndex};

const PAGES: u64 = 2 * FEW as u64;

fn read(engine: &Engine, page: u64, read_set: &mut ReadSet) -> bool {
    engine.read_tracked(&mut [0; 8], page * PAGE as u64, read_set).expect("a read")
}

/// A writer that has checked the bits before they were set does not count its change.
#[test]
fn a_page_that_a_writer_holds_is_not_watched() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = new_file(folder.path(), 1 << 20);
    let (engine, mut read_set) = (file.engine(), ReadSet::default());
    assert!(read(engine, 0, &mut read_set));
    let region = engine.state.loaded(RegionIndex(0)).expect("it was read");
    let held = lock_page(&region.lock, &region.pages[5].lock);
    engine.clear_stamp(RegionIndex(0), region, 1 << 5);
    assert!((0..PAGES).all(|page| read(engine, page % 60, &mut read_set)));
    assert_eq!(read_set.watched_at, None, "it may change at any moment");
    held.close();
    drop(held);
    assert!(!read(engine, 0, &mut read_set), "it has changed");
}

/// While nothing changes, the entries are validated one by one only once.
#[test]
fn a_large_read_set_is_validated_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = new_file(folder.path(), 1 << 20);
    let (engine, mut read_set) = (file.engine(), ReadSet::default());
    (0..PAGES).for_each(|page| assert!(read(engine, page, &mut read_set)));
    assert_eq!(read_set.watched_at, Some(engine.session.watched.count()));
    // A page that is not watched may change: this transaction validates no entry because of it.
    file.store(200 * PAGE as u64, &1u64).expect("a store");
    assert_eq!(read_set.watched_at, Some(engine.session.watched.count()));
    file.store(5 * PAGE as u64, &1u64).expect("a store");
    assert_ne!(read_set.watched_at, Some(engine.session.watched.count()));
    assert!(!read(engine, 0, &mut read_set));
}

/// A transaction that has ended leaves its bits behind. The next writer clears them, once.
#[test]
fn a_watch_ends_with_the_first_write() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = new_file(folder.path(), 1 << 20);
    let (engine, mut read_set) = (file.engine(), ReadSet::default());
    (0..PAGES).for_each(|page| assert!(read(engine, page, &mut read_set)));
    drop(read_set);
    let region = engine.state.loaded(RegionIndex(0)).expect("it was read");
    assert!(region.is_watched(5));
    let count = engine.session.watched.count();
    (0..3u64).for_each(|n| file.store(5 * PAGE as u64, &n).expect("a store"));
    assert_eq!((region.is_watched(5), engine.session.watched.count()), (false, count + 1));
}
