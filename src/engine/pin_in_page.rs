//! How does a view pin its bytes, if they lie in one page?
//!
//! The frequent case. Without a lock: the page is pinned first, and then a look tells whether anybody may be
//! writing to it, or cutting it off, who has not seen the pin. Then the pin is given back, and the view is
//! made in `deploy`, under locks. A look takes a nanosecond, and each lock waits for everything before it.
//!
//! Why that is right. Whoever may store to a home slot has first taken the page's word or its region's, and
//! then looks for pins; who pins here has first pinned, and then looks at both words. All four are
//! sequentially consistent (but for who is alone, `Lanes::enter_alone`: nobody pins meanwhile), so one of the
//! two sees the other: the writer finds the pin, or the word is found held. Whoever held it before and has let go is seen with all that it has done. So a page whose words are
//! found free, and whose slices are found at home after that, stays as it is. The length likewise: who cuts
//! off says so (`cutting`) and then looks for pins.

use super::Engine;
use super::stats::Counter;
use crate::bitmap::Validity;
use crate::mutant::{planted, unless};
use crate::primitive::Ordering;
use crate::units::{PAGE, PageIndex};
use std::ops::Range;

impl Engine {
    /// Pins the home slots of the page in which all bytes of `range` lie, if everything is as usual: the file
    /// may be used, this thread has worked on it last and has published nothing since, the page is at home,
    /// and nobody holds it. False: something is not, and nothing is pinned.
    #[inline]
    pub fn pin_in_page(&self, range: &Range<u64>) -> bool {
        let Some(lane) = self.lane_at_hand() else { return false };
        // Of no bytes the last one is before the first one, and of an inverted range as well.
        let last = range.end.wrapping_sub(1);
        if last < range.start || range.start / PAGE as u64 != last / PAGE as u64 {
            return false;
        }
        let page = PageIndex::of(range.start);
        // Where durable points are kept, views are copies.
        let is_pinnable = self.durable.is_none();
        let Some(region) = self.state.touched(page.region()).filter(|_| is_pinnable) else {
            return false;
        };
        self.ask_for_view(range.start);
        let place = page.in_region();
        // A look before: who holds the page and finds the pin would go another way for nothing.
        let is_held = region.lock.is_held() || region.pages[place].lock.is_held();
        let is_free = !is_held || planted!(PinHeldPage);
        let is_at_home = region.validity(place) == Validity(0);
        // A pin past the end, for a moment, would fail a shrink that sees it.
        let is_inside = last < self.len();
        let is_worth_it = is_free && is_at_home && is_inside;
        if !is_worth_it || !region.can_pin(place) || !region.pin_unless_held(place) {
            return false;
        }
        // The length is looked at after `cutting`, which is true for as long as a shrink may still look
        // for pins or cut off what it has found none in.
        let is_whole = !self.cutting.load(Ordering::SeqCst) && last < self.len();
        // After the looks at the words: what their last holders have done is seen by now.
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
