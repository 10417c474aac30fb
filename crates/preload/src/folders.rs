//! The folders about which a thread has asked lately, by the text that programs give for them.
//!
//! Invariants:
//! - A rename or a link leads no remembered folder elsewhere unless its old or its new name is
//!   [on a way](is_on_a_way): the names on the way to a folder are noted before the kernel is
//!   asked.
//! - A handler of a signal that interrupts a call in here finds and notes nothing: the folders of
//!   its thread are borrowed.
//! - Nothing here allocates.
//!
//! May import nothing from the crate.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

/// How long a thread remembers a folder, in nanoseconds.
pub(crate) const MOMENT: u64 = 100_000_000;
/// Folders that a thread remembers.
const FOLDERS: usize = 8;
/// Most bytes of the text of a folder that is remembered.
pub(crate) const MOST: usize = 240;

/// Counts the calls of [`forget`]. Relaxed: a thread that relies on another one's change has heard
/// of it.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// Bits of the names on the ways to folders about which threads have asked, by their hashes. They
/// stay. SeqCst: a thread that notes a name and then asks the kernel hears of a change by a thread
/// that has not found the name noted.
static NAMES: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];

/// Returns the place and the bit of a name.
fn bit_of(name: &[u8]) -> (&'static AtomicU64, u64) {
    let hash = name.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    (&NAMES[(hash >> 60) as usize], 1 << (hash >> 54 & 63))
}

/// Notes all names of a path. Returns `true` if one of them was not noted.
pub(crate) fn note_way(path: &[u8]) -> bool {
    let names = path.split(|byte| *byte == b'/');
    names.fold(false, |is_new, name| {
        let (place, bit) = bit_of(name);
        is_new | (place.fetch_or(bit, Ordering::SeqCst) & bit == 0)
    })
}

/// Notes every name there is. Returns `true` if one of them was not noted.
pub(crate) fn note_all() -> bool {
    let of = |place: &AtomicU64| place.swap(u64::MAX, Ordering::SeqCst) != u64::MAX;
    NAMES.iter().fold(false, |is_new, place| is_new | of(place))
}

/// Returns `false` if no folder that a thread remembers is reached by way of this name.
pub(crate) fn is_on_a_way(name: &[u8]) -> bool {
    let (place, bit) = bit_of(name);
    place.load(Ordering::SeqCst) & bit != 0
}

/// When a question was asked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Asked {
    changes: u64,
    time: u64,
}

impl Asked {
    /// Returns a moment of the clock. What the caller asks the kernel afterwards was so at that
    /// moment or later.
    pub fn at(time: u64) -> Self {
        Asked { changes: CHANGES.load(Ordering::Relaxed), time }
    }
}

#[derive(Clone, Copy)]
struct Folder {
    text: [u8; MOST],
    len: usize,
    is_outside: bool,
    /// `None` if nothing is known.
    asked: Option<Asked>,
}

impl Folder {
    fn is_of(&self, text: &[u8], now: Asked) -> bool {
        let is_fresh = |asked: Asked| {
            now.time.wrapping_sub(asked.time) < MOMENT && asked.changes == now.changes
        };
        self.asked.is_some_and(is_fresh) && self.text[..self.len] == *text
    }
}

thread_local! {
    // Without a destructor and without an allocation, as in `inside`.
    static KNOWN: RefCell<[Folder; FOLDERS]> = const {
        let nothing = Folder { text: [0; MOST], len: 0, is_outside: false, asked: None };
        RefCell::new([nothing; FOLDERS])
    };
}

/// Runs `body` with the folders of this thread, unless the thread is in here already.
fn alone<R>(body: impl FnOnce(&mut [Folder; FOLDERS]) -> R) -> Option<R> {
    KNOWN.with(|known| {
        let mut known = known.try_borrow_mut().ok()?;
        // A handler of a signal runs in this thread. For it the folders are borrowed before they
        // change, and until they have changed.
        compiler_fence(Ordering::SeqCst);
        let result = body(&mut known);
        compiler_fence(Ordering::SeqCst);
        Some(result)
    })
}

/// Returns whether a folder is outside, if this thread remembers that.
pub(crate) fn find(text: &[u8], now: Asked) -> Option<bool> {
    let found = alone(|known| {
        known.iter().find(|folder| folder.is_of(text, now)).map(|folder| folder.is_outside)
    });
    found.flatten()
}

/// Remembers whether a folder is outside. A longer text than [`MOST`] is not remembered.
pub(crate) fn note(text: &[u8], asked: Asked, is_outside: bool) {
    alone(|known| {
        let oldest = known.iter_mut().min_by_key(|folder| folder.asked);
        if let Some(folder) = oldest
            && let Some(to) = folder.text.get_mut(..text.len())
        {
            to.copy_from_slice(text);
            *folder = Folder { len: text.len(), is_outside, asked: Some(asked), ..*folder };
        }
    });
}

/// Makes all threads forget the folders about which they have asked until now.
pub(crate) fn forget() {
    CHANGES.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_remembers_a_folder_for_a_moment_or_until_a_change() {
        let now = Asked::at(MOMENT);
        assert_eq!(find(b"", now), None);
        note(b"", now, true);
        note(b"a/", now, false);
        note(&[b'a'; MOST + 1], now, true);
        assert_eq!([find(b"", now), find(b"a/", now)], [Some(true), Some(false)]);
        assert_eq!([find(b"a", now), find(&[b'a'; MOST + 1], now)], [None; 2]);
        assert_eq!(find(b"", Asked::at(2 * MOMENT - 1)), Some(true));
        assert_eq!(find(b"", Asked::at(2 * MOMENT)), None);
        forget();
        note(b"late/", now, true);
        let now = Asked::at(MOMENT);
        assert_eq!([find(b"", now), find(b"late/", now)], [None; 2], "asked before the change");
        for n in 0..=FOLDERS as u8 {
            note(&[n], Asked::at(MOMENT + u64::from(n)), true);
        }
        let now = Asked::at(MOMENT + FOLDERS as u64);
        assert_eq!([find(&[0], now), find(&[1], now)], [None, Some(true)]);
    }

    #[test]
    fn names_on_a_way_are_noted_once() {
        assert!(note_way(b"/some/way"));
        assert!(!note_way(b"/way/some"));
        assert!(is_on_a_way(b"some") && is_on_a_way(b"way"));
        let known = (0..1000).filter(|n| is_on_a_way(format!("file {n}").as_bytes())).count();
        assert!(known < 500, "{known}");
        assert!(note_all() && is_on_a_way(b"any"));
        assert!(!note_all());
    }

    /// It mixed the answers of two folders.
    #[test]
    fn a_call_within_a_call_finds_and_notes_nothing() {
        let now = Asked::at(MOMENT);
        note(b"a/", now, true);
        let within = alone(|_| {
            note(b"b/", now, true);
            find(b"a/", now)
        });
        assert_eq!(within, Some(None));
        assert_eq!([find(b"a/", now), find(b"b/", now)], [Some(true), None]);
    }
}
