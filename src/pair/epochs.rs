//! Which snapshots are live, as operations and readers of snapshots see them.
//!
//! Owns: the numbers and lengths of the live snapshots, how often that set has changed, and how
//! many handles read each of them. The store (`pair::snapshots`) has their records; this is what an
//! operation looks at before it knows that it has to keep anything.
//!
//! Invariants:
//! - The switch is off until the file has had a snapshot in this session, and on after that. So a
//!   file without snapshots costs an operation one load.
//! - The set changes while the gate of cuts is closed, and `resizing` is locked for writing. So an
//!   operation inside the gate finds one set, and so does a durable point.
//!
//! May import `units`, `primitive`.

use crate::primitive::{AtomicBool, AtomicU64, Mutex, Ordering, RwLock};
use crate::units::PageIndex;

/// A live snapshot, as an operation sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sealed {
    /// Its number.
    pub number: u64,
    /// The file's length in it, in bytes.
    pub len: u64,
}

/// The live snapshots of one open pair.
pub(crate) struct Epochs {
    is_on: AtomicBool,
    /// The number of the newest live snapshot, or 0, and its length. Copies, so that most
    /// operations need no lock.
    newest: AtomicU64,
    newest_len: AtomicU64,
    /// Ascending by number.
    live: RwLock<Vec<Sealed>>,
    readers: Mutex<Readers>,
}

/// The numbers of snapshots that handles read, or may not read.
#[derive(Default)]
struct Readers {
    /// Once for each handle.
    reading: Vec<u64>,
    /// Those that are being dropped.
    refused: Vec<u64>,
}

impl Epochs {
    /// Makes the state of a pair without snapshots.
    pub fn new() -> Self {
        let (live, readers) = (RwLock::new(Vec::new()), Mutex::new(Readers::default()));
        let (is_on, zero) = (AtomicBool::new(false), || AtomicU64::new(0));
        Epochs { is_on, newest: zero(), newest_len: zero(), live, readers }
    }

    /// Returns `true` if the file has had a snapshot in this session.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        // Acquire: an operation that finds the switch on finds the store.
        self.is_on.load(Ordering::Acquire)
    }

    /// Switches on. From here on each operation enters the gate of cuts.
    pub fn switch_on(&self) {
        self.is_on.store(true, Ordering::Release);
    }

    /// Replaces the set by `live`, ascending by number.
    pub fn replace(&self, live: Vec<Sealed>) {
        debug_assert!(live.is_sorted_by(|a, b| a.number < b.number));
        let mut now = self.live.write();
        let newest = live.last().map_or((0, 0), |sealed| (sealed.number, sealed.len));
        *now = live;
        // Relaxed: the gate orders them for operations, and `resizing` for durable points.
        self.newest.store(newest.0, Ordering::Relaxed);
        self.newest_len.store(newest.1, Ordering::Relaxed);
        self.switch_on();
    }

    /// Returns the number of the newest live snapshot that reaches the page: L(p) of the
    /// model. 0 if there is none. The set of live snapshots stays meanwhile.
    #[inline]
    pub fn newest_reaching(&self, page: PageIndex) -> u64 {
        if page.start() < self.newest_len.load(Ordering::Relaxed) {
            return self.newest.load(Ordering::Relaxed);
        }
        self.newest_that_reaches(page)
    }

    #[cold]
    fn newest_that_reaches(&self, page: PageIndex) -> u64 {
        let live = self.live.read();
        live.iter().rev().find(|sealed| sealed.len > page.start()).map_or(0, |sealed| sealed.number)
    }

    /// Returns the end of the longest live snapshot, in bytes.
    pub fn longest(&self) -> u64 {
        self.live.read().iter().map(|sealed| sealed.len).max().unwrap_or(0)
    }

    /// Notes one more handle that reads this snapshot. Returns `false` if it is not live, or is
    /// being dropped.
    pub fn begin_reading(&self, number: u64) -> bool {
        let mut readers = self.readers.lock();
        // Under the lock: no drop that has refused readers ends between this look and the note.
        let is_live = self.live.read().iter().any(|sealed| sealed.number == number);
        let may_read = is_live && !readers.refused.contains(&number);
        if may_read {
            readers.reading.push(number);
        }
        may_read
    }

    /// Notes that a handle has ended that read this snapshot.
    pub fn end_reading(&self, number: u64) {
        let reading = &mut self.readers.lock().reading;
        if let Some(place) = reading.iter().position(|reader| *reader == number) {
            reading.swap_remove(place);
        }
    }

    /// Returns `true` if a handle reads this snapshot.
    pub fn is_read(&self, number: u64) -> bool {
        self.readers.lock().reading.contains(&number)
    }

    /// Refuses new readers of a snapshot that is about to be dropped. Returns `false`, with nothing
    /// changed, if a handle reads it.
    pub fn refuse_readers(&self, number: u64) -> bool {
        let mut readers = self.readers.lock();
        let is_free = !readers.reading.contains(&number);
        if is_free {
            readers.refused.push(number);
        }
        is_free
    }

    /// Admits readers again, since the snapshot is dropped, or could not be.
    pub fn end_refusal(&self, number: u64) {
        self.readers.lock().refused.retain(|refused| *refused != number);
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Duration;

    /// A handle that looked before it counts itself could read a snapshot that is gone.
    #[test]
    fn a_handle_looks_for_its_snapshot_when_no_drop_can_end() {
        let epochs = Epochs::new();
        epochs.replace(vec![Sealed { number: 1, len: 64 }]);
        thread::scope(|scope| {
            let readers = epochs.readers.lock();
            let begun = scope.spawn(|| epochs.begin_reading(1));
            thread::sleep(Duration::from_millis(50));
            epochs.replace(Vec::new());
            drop(readers);
            assert!(!begun.join().expect("a reader"), "the snapshot was dropped meanwhile");
        });
        assert!(!epochs.is_read(1));
    }
}
