//! Tests of `pair::space`: the counts of allocated pages.

use crate::bitmap::Side;
use crate::units::PAGE;
use crate::{AtomicMappedFile, Medium};

/// The counts are read without a walk. They equal the sums that a walk through all chunks finds.
#[test]
fn the_counts_of_both_files_are_what_a_walk_through_all_chunks_finds() {
    for medium in [Medium::Ram, Medium::PageCache] {
        let folder = tempfile::tempdir().expect("a folder");
        let options = AtomicMappedFile::options().create(true).len(4 << 20).medium(medium);
        let file = options.open(folder.path().join("state.dat")).expect("a pair");
        let engine = file.engine();
        let counts = || [Side::Home, Side::Reflection].map(|side| engine.allocated.bytes(side));
        let check = |what: &str| {
            let counted = counts();
            let _no_allocation = engine.allocating.lock();
            engine.recount_all();
            assert_eq!(counted, counts(), "{medium:?}: {what}");
            counted
        };
        assert_eq!(check("nothing")[1], 0);
        file.write_at(&[1; 10], 0).expect("a write");
        let one = check("one page")[1];
        // The slots, and the words beside them.
        let expected = if medium == Medium::Ram { PAGE + PAGE } else { PAGE + 2 * PAGE };
        assert_eq!(one, expected as u64, "{medium:?}");
        assert_eq!(file.stats().reflection_allocated, one);
        file.write_at(&vec![1; 3 << 20], 100).expect("a write");
        // The next write may then go to the slots of the point before.
        file.sync().expect("a durable point");
        file.write_at(&vec![2; 3 << 20], 100).expect("a write over both sides");
        let [home, reflection] = check("both sides");
        assert!(home >= 3 << 20 && reflection >= 3 << 20, "{medium:?}: {home}, {reflection}");
        file.deploy(0..4 << 20).expect("deployed");
        // A deployment gives chunks back, where the file system has holes.
        let given_back = file.stats().punches;
        assert_eq!(check("a hole")[1] < reflection, given_back > 0, "{medium:?}");
        file.write_at(&[3; 10], 3 << 20).expect("a write");
        file.set_len(1 << 20).expect("shorter");
        assert!(check("a truncation")[0] < home, "{medium:?}");
        file.set_len(8 << 20).expect("longer");
        file.write_at(&[3; 10], 6 << 20).expect("a write");
        check("a growth");
    }
}
