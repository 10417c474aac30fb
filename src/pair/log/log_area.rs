//! The extents of the log area, for log records that do not fit their lane.
//!
//! Owns: which extents are lent. Invariant: a thread that holds extents waits for nothing else
//! before it gives them back, so waiting for extents always ends. The extents of one loan are
//! contiguous.
//!
//! May import `format`, `primitive`.

use crate::format::layout::{LOG_AREA_LEN, LOG_EXTENT};
use crate::primitive::{Condvar, Mutex};
use std::ops::Range;

const EXTENTS: usize = (LOG_AREA_LEN / LOG_EXTENT) as usize;

/// The extents of the log area.
pub struct LogArea {
    taken: Mutex<[bool; EXTENTS]>,
    given_back: Condvar,
}

/// A guard for contiguous extents that are lent. Dropping it gives them back.
pub struct Extents<'a> {
    area: &'a LogArea,
    extents: Range<usize>,
}

impl LogArea {
    /// Makes a log area with all extents free.
    pub fn new() -> Self {
        LogArea { taken: Mutex::new([false; EXTENTS]), given_back: Condvar::new() }
    }

    /// Lends contiguous extents for `bytes`, and waits until there is room. `bytes` is at most
    /// `LOG_AREA_LEN`.
    pub fn take(&self, bytes: u64) -> Extents<'_> {
        assert!(bytes <= LOG_AREA_LEN);
        let count = (bytes.div_ceil(LOG_EXTENT) as usize).max(1);
        let mut taken = self.taken.lock();
        loop {
            let free = (0..=EXTENTS - count).find(|&at| !taken[at..at + count].contains(&true));
            if let Some(at) = free {
                taken[at..at + count].fill(true);
                return Extents { area: self, extents: at..at + count };
            }
            self.given_back.wait(&mut taken);
        }
    }
}

impl Extents<'_> {
    /// Returns the offset of the first byte in the log area.
    pub fn offset(&self) -> u64 {
        self.extents.start as u64 * LOG_EXTENT
    }
}

impl Extents<'_> {
    /// Returns everything after the first extent, as offsets in the log area.
    pub fn after_the_first(&self) -> Range<u64> {
        (self.extents.start as u64 + 1) * LOG_EXTENT..self.extents.end as u64 * LOG_EXTENT
    }
}

impl Drop for Extents<'_> {
    fn drop(&mut self) {
        self.area.taken.lock()[self.extents.clone()].fill(false);
        self.area.given_back.notify_all();
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn extents_do_not_overlap_and_come_back() {
        let area = LogArea::new();
        let a = area.take(1);
        let b = area.take(3 * LOG_EXTENT);
        assert_eq!((a.offset(), b.offset()), (0, LOG_EXTENT));
        drop(a);
        assert_eq!(area.take(LOG_EXTENT).offset(), 0);
    }

    #[test]
    fn a_thread_waits_for_room_in_the_log_area() {
        let area = LogArea::new();
        let all = area.take(LOG_AREA_LEN);
        std::thread::scope(|s| {
            let waiting = s.spawn(|| area.take(1).offset());
            std::thread::sleep(std::time::Duration::from_millis(10));
            drop(all);
            assert_eq!(waiting.join().unwrap(), 0);
        });
    }
}
