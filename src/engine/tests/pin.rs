//! Tests of `deploy::pin`.

use super::fixture::options;
use crate::Medium;

#[test]
fn only_deployed_unlocked_pages_are_pinned_without_a_lock() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = |name: &str, medium: Medium| {
        options(1 << 20).medium(medium).open(folder.path().join(name)).expect("a pair")
    };
    let file = open("state.dat", Medium::Ram);
    let engine = file.engine();
    let pins = |range: std::ops::Range<u64>| {
        let pinned = engine.pin_fast_path(&range);
        if pinned {
            engine.unpin(range);
        }
        pinned
    };
    assert!(!pins(0..10), "no thread has loaded the region");
    let region = || engine.state.loaded(crate::units::RegionIndex(0)).expect("loaded");
    drop(file.view(0..8192).expect("a view"));
    assert!(pins(0..10) && pins(4000..4096) && pins(4096..8192));
    assert!(!pins(0..0) && !pins(4000..4097), "no page, two pages");
    #[expect(clippy::reversed_empty_ranges, reason = "a caller may give it")]
    let inverted = 10..0;
    assert!(
        !pins(inverted) && !pins(u64::MAX - 1..u64::MAX) && !pins((1 << 20) - 1..(1 << 20) + 1)
    );
    let held = crate::lock::lock_page(&region().lock, &region().pages[1].lock);
    assert!(pins(0..10) && !pins(4096..4097), "held");
    drop(held);
    engine.session.cutting.store(true, crate::primitive::Ordering::SeqCst);
    assert!(!pins(0..10), "a truncate is in progress");
    engine.session.cutting.store(false, crate::primitive::Ordering::SeqCst);
    file.write_at(&[1; 65], 4096).expect("a write");
    assert!(!pins(0..10), "this thread has published something");
    file.load::<u8>(4096).expect("a read");
    assert!(pins(0..10) && !pins(4096..4097), "not deployed");
    let elsewhere = || std::thread::scope(|s| s.spawn(|| pins(0..10)).join().expect("no panic"));
    assert!(!elsewhere(), "a thread without a lane");
    assert_eq!(region().pinned_pages().count_ones(), 2);
    assert!((0..64).all(|page| !region().is_pinned(page)), "all pins were given back");

    let durable = open("durable.dat", Medium::PageCache);
    drop(durable.view(0..10).expect("a copy"));
    assert!(!durable.engine().pin_fast_path(&(0..10)), "views are copies there");
}
