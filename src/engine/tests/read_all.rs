//! Tests of `read::all`.

use super::fixture::new_file;
use crate::lock::lock_page;
use crate::units::{REGION, RegionIndex};

/// A writer stores to a region that held nothing, while the copy waits for its locks. The writer
/// may then store to a region that the copy has. So the copy must have the new region, too.
#[test]
fn a_copy_has_a_region_that_is_loaded_while_it_waits_for_locks() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = new_file(folder.path(), 4 * REGION as u64);
    file.store(0, &1_u64).expect("a store");
    let engine = file.engine();
    let region = engine.state.loaded(RegionIndex(0)).expect("it was written");
    let held = lock_page(&region.lock, &region.pages[0].lock);
    std::thread::scope(|scope| {
        let copy = scope.spawn(|| {
            let mut starts = Vec::new();
            let take = |start, _: &[u8]| {
                starts.push(start);
                Ok(())
            };
            engine.read_all(take).expect("a copy");
            starts
        });
        // The copy knows its regions, and has the lock of the first one.
        while !region.lock.is_locked() {
            std::thread::yield_now();
        }
        file.store(REGION as u64, &2_u64).expect("a store to a new region");
        drop(held);
        // Where the system does not tell holes from data, the copy has all regions.
        assert!(copy.join().expect("no panic").contains(&(REGION as u64)));
    });
}
