//! The memory of each thread between operations: its last file, its lane there, and two flags.
//!
//! The first flag says that the thread has published something since its last full fence. The
//! second says that the thread is inside the closure of a transaction. File and flags are one word
//! ([`Tag`]), so a fast path checks all of them by one comparison.
//!
//! Invariant: no thread remembers a file across `fork`. The child's only thread calls [`forget`],
//! and remembers a file again only after a check that it may use it.
//!
//! May import `primitive` and `units`.

use crate::primitive;
use crate::units::LaneIndex;
use std::cell::Cell;
// Not from `primitive`: the word belongs to one thread, and no model checks it.
use std::sync::atomic::{AtomicU64, Ordering};

/// A file's number and, in the lowest two bits, the thread's flags: it has published something, and
/// it is inside the closure of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag(u64);

const PUBLISHED: u64 = 1;
const WATCHED: u64 = 2;
const NOTES: u64 = PUBLISHED | WATCHED;

impl Tag {
    /// The tag of a thread that remembers no file.
    const NONE: Tag = Tag(1 << 63);
    /// A tag that equals no thread's tag.
    pub const NEVER: Tag = Tag(!NOTES);

    /// Returns the tag of a thread that worked on `file` last and has no flag set.
    pub const fn of(file: u64) -> Tag {
        Tag(file << 2)
    }

    /// Returns this tag with the flag set that the thread has published something.
    pub const fn having_published(self) -> Tag {
        Tag(self.0 | PUBLISHED)
    }

    /// Returns the tag as bits, to be kept in an atomic.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Returns the tag that [`bits`](Self::bits) returned as `bits`.
    pub const fn from_bits(bits: u64) -> Tag {
        Tag(bits)
    }

    const fn is_of(self, file: u64) -> bool {
        self.0 & !NOTES == Tag::of(file).0
    }
}

struct Last {
    // An atomic, so that the compiler always stores all eight bytes. In a `Cell` it sets the lowest
    // bit by a store of one byte. The next load of the word would then wait until that store has
    // left the processor, behind the operation's drain.
    tag: AtomicU64,
    lane: Cell<LaneIndex>,
}

impl Last {
    #[inline(always)]
    fn tag(&self) -> u64 {
        self.tag.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn set_tag(&self, tag: u64) {
        self.tag.store(tag, Ordering::Relaxed);
    }
}

primitive::local! {
    static LAST: Last = Last { tag: AtomicU64::new(Tag::NONE.0), lane: Cell::new(LaneIndex(0)) };
}

// On a thread that is ending, each of these functions acts as if it remembered nothing.

/// Returns the thread's lane if its tag equals `tag`, flags included.
#[inline(always)]
pub fn lane_by_tag(tag: impl FnOnce() -> Tag) -> Option<LaneIndex> {
    LAST.try_with(|last| (last.tag() == tag().0).then(|| last.lane.get())).ok()?
}

/// Returns the thread's lane if its tag equals `tag`, apart from the flag of publication.
#[inline(always)]
pub fn lane_by_file_of(tag: impl FnOnce() -> Tag) -> Option<LaneIndex> {
    LAST.try_with(|last| (last.tag() & !PUBLISHED == tag().0).then(|| last.lane.get())).ok()?
}

/// Returns the thread's lane of `file` if it worked on `file` last.
#[inline]
pub fn lane_of(file: u64) -> Option<LaneIndex> {
    LAST.try_with(|last| Tag(last.tag()).is_of(file).then(|| last.lane.get())).ok()?
}

/// Returns the thread's lane of `file` if it worked on `file` last and is not inside the closure of
/// a transaction.
#[inline]
pub fn lane_unwatched_of(file: u64) -> Option<LaneIndex> {
    let is_of = |last: &Last| last.tag() & !PUBLISHED == Tag::of(file).0;
    LAST.try_with(|last| is_of(last).then(|| last.lane.get())).ok()?
}

/// Records whether the thread is inside the closure of a transaction, on any file.
pub fn set_watched(watched: bool) {
    let note = if watched { WATCHED } else { 0 };
    let _not_at_its_end = LAST.try_with(|last| last.set_tag(last.tag() & !WATCHED | note));
}

/// Returns `true` if the thread is inside the closure of a transaction.
#[inline]
pub fn is_watched() -> bool {
    LAST.try_with(|last| last.tag() & WATCHED != 0).unwrap_or(false)
}

/// Records that the thread works on `file`, where it has `lane`.
pub fn remember(file: u64, lane: LaneIndex) {
    let _not_at_its_end = LAST.try_with(|last| {
        last.set_tag(Tag::of(file).0 | last.tag() & NOTES);
        last.lane.set(lane);
    });
}

/// Forgets the thread's file and lane. Called when another thread may get the lane, and in a child
/// of `fork`.
pub fn forget() {
    let _not_at_its_end = LAST.try_with(|last| last.set_tag(Tag::NONE.0 | last.tag() & NOTES));
}

/// Records that the thread has published something by a plain store.
#[inline]
pub fn note_published() {
    let _not_at_its_end = LAST.try_with(|last| last.set_tag(last.tag() | PUBLISHED));
}

/// Clears the flag of publication. Returns `true` if it was set, or on a thread that is ending.
#[inline]
pub fn take_published() -> bool {
    LAST.try_with(|last| {
        let tag = last.tag();
        let published = tag & PUBLISHED != 0;
        if published {
            last.set_tag(tag & !PUBLISHED);
        }
        published
    })
    .unwrap_or(true)
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_remembers_its_last_file_and_whether_it_has_published() {
        let lane = LaneIndex(7);
        assert_eq!((lane_of(0), lane_by_tag(|| Tag::of(0)), take_published()), (None, None, false));
        remember(5, lane);
        assert_eq!((lane_of(5), lane_by_tag(|| Tag::of(5))), (Some(lane), Some(lane)));
        assert_eq!((lane_of(6), lane_by_tag(|| Tag::of(6))), (None, None));
        let published = || Tag::of(5).having_published();
        assert_eq!(lane_by_tag(published), None);
        note_published();
        assert_eq!((lane_of(5), lane_by_tag(|| Tag::of(5))), (Some(lane), None));
        assert_eq!(lane_by_tag(published), Some(lane));
        assert_eq!(lane_by_file_of(|| Tag::of(5)), Some(lane));
        assert_eq!((lane_by_file_of(|| Tag::of(6)), lane_by_file_of(|| Tag::NEVER)), (None, None));
        assert_eq!(lane_by_tag(|| Tag::NEVER.having_published()), None);
        remember(6, lane);
        assert_eq!((lane_of(6), lane_by_tag(|| Tag::of(6))), (Some(lane), None));
        assert!(take_published() && !take_published());
        assert_eq!(lane_by_tag(|| Tag::of(6)), Some(lane));
        set_watched(true);
        assert_eq!((lane_of(6), lane_unwatched_of(6), is_watched()), (Some(lane), None, true));
        assert_eq!((lane_by_tag(|| Tag::of(6)), lane_by_file_of(|| Tag::of(6))), (None, None));
        remember(7, lane);
        assert_eq!((lane_of(7), lane_unwatched_of(7), is_watched()), (Some(lane), None, true));
        set_watched(false);
        assert_eq!((lane_unwatched_of(7), is_watched()), (Some(lane), false));
        remember(6, lane);
        note_published();
        forget();
        assert!(take_published());
        assert_eq!((lane_of(6), lane_by_tag(|| Tag::NEVER)), (None, None));
    }
}
