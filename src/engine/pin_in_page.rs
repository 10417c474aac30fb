//! The fast path of views: pins the bytes of a view that lies within one page, without a lock.
//!
//! The thread pins the page first. Then it checks for a writer or a truncation that may have missed
//! the pin. If there may be one, the thread takes the pin back, and `deploy` makes the view under
//! locks. A check takes a nanosecond, but each lock waits for all stores before it.
//!
//! Why this is correct:
//!
//! - A writer takes the page's word or its region's before it stores to a home slot, and then looks
//!   for pins. This thread pins first and then looks at both words. All four accesses are
//!   sequentially consistent, so one side sees the other: the writer finds the pin, or this thread
//!   finds the word locked.
//! - A thread with a biased lock (`Lanes::enter_alone`) uses weaker accesses. No other thread can
//!   pin meanwhile.
//! - If an earlier lock holder has released the word, this thread sees all its changes. So a page
//!   stays as it is if its words are found free, and then its slices are found deployed.
//! - A truncation follows this order too: it sets `cutting` and then looks for pins.

use super::Engine;
use super::stats::Counter;
use crate::bitmap::Validity;
use crate::mutant::{planted, unless};
use crate::primitive::Ordering;
use crate::units::{PAGE, PageIndex};
use std::ops::Range;

impl Engine {
    /// Pins the home slots of the page that contains `range`. Returns `false`, with nothing pinned,
    /// unless this is the usual case. In that case the file is usable, and this thread has used it
    /// last and has published nothing since. The page is deployed and not locked.
    #[inline]
    pub fn pin_in_page(&self, range: &Range<u64>) -> bool {
        let Some(lane) = self.lane_at_hand() else { return false };
        // The last byte of an empty or inverted range is before the first.
        let last = range.end.wrapping_sub(1);
        if last < range.start || range.start / PAGE as u64 != last / PAGE as u64 {
            return false;
        }
        let page = PageIndex::of(range.start);
        // Views are copies where durable points are kept.
        let is_pinnable = self.durable.is_none();
        let Some(region) = self.state.touched(page.region()).filter(|_| is_pinnable) else {
            return false;
        };
        self.ask_for_view(range.start);
        let place = page.in_region();
        // Check before pinning: a lock holder that finds the pin would take a slower way for
        // nothing.
        let is_held = region.lock.is_held() || region.pages[place].lock.is_held();
        let is_free = !is_held || planted!(PinHeldPage);
        let is_at_home = region.validity(place) == Validity(0);
        // A shrink would fail if it saw this pin past the new end, even for a moment.
        let is_inside = last < self.len();
        let is_worth_it = is_free && is_at_home && is_inside;
        if !is_worth_it || !region.can_pin(place) || !region.pin_unless_held(place) {
            return false;
        }
        // Check the length after `cutting`. A shrink keeps `cutting` set while it may still look
        // for pins, or truncate pages on which it has found none.
        let is_whole = !self.cutting.load(Ordering::SeqCst) && last < self.len();
        // Check these after the lock words: by now this thread sees all changes of their last
        // holders.
        if is_whole && region.home_is_loadable() && region.validity(place) == Validity(0) {
            lane.stats.bump(Counter::Views, 1);
            return true;
        }
        unless!(PinNotGivenBack, region.unpin(place));
        false
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use crate::{AtomicMappedFile, Medium};

    #[test]
    fn what_is_at_home_and_free_is_pinned_without_a_lock_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let open = |name: &str, medium: Medium| {
            let options = AtomicMappedFile::options().create(true).len(1 << 20).medium(medium);
            options.open(folder.path().join(name)).expect("a pair")
        };
        let file = open("state.dat", Medium::Ram);
        let engine = file.engine();
        let pins = |range: std::ops::Range<u64>| {
            let pinned = engine.pin_in_page(&range);
            if pinned {
                engine.unpin(range);
            }
            pinned
        };
        assert!(!pins(0..10), "nobody has looked at the region");
        let region = || engine.state.touched(crate::units::RegionIndex(0)).expect("touched");
        drop(file.view(0..10).expect("a view"));
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
        engine.cutting.store(true, super::Ordering::SeqCst);
        assert!(!pins(0..10), "something is cut off");
        engine.cutting.store(false, super::Ordering::SeqCst);
        file.write_at(&[1; 65], 4096).expect("a write");
        assert!(!pins(0..10), "this thread has published something");
        file.load::<u8>(4096).expect("a read");
        assert!(pins(0..10) && !pins(4096..4097), "not at home");
        let elsewhere =
            || std::thread::scope(|s| s.spawn(|| pins(0..10)).join().expect("no panic"));
        assert!(!elsewhere(), "a thread without a lane");
        assert_eq!(region().pinned_pages().count_ones(), 2);
        assert!((0..64).all(|page| !region().is_pinned(page)), "all pins were given back");

        let durable = open("durable.dat", Medium::PageCache);
        drop(durable.view(0..10).expect("a copy"));
        assert!(!durable.engine().pin_in_page(&(0..10)), "views are copies there");
    }
}
