//! What does a thread remember from one operation to the next?
//!
//! Owns: one word a thread, and a lane: which file it worked on last and which lane it has there, and
//! whether it has published something since everybody was known to see all of its stores. File and mark
//! are one word ([`Tag`]), so that who wants to know that nothing at all is in the way makes one comparison.
//!
//! Invariant: no file is remembered that came here by `fork`: the child's only thread forgets
//! ([`forget`]), and remembers a file again only after a look at whether it may be used.
//!
//! May import `primitive` and `units`.

use crate::primitive;
use crate::units::LaneIndex;
use std::cell::Cell;
// Of one thread alone, and no model's object.
use std::sync::atomic::{AtomicU64, Ordering};

/// A file's number, and in the lowest bits whether the thread has published something, and whether it is inside the
/// closure of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag(u64);

const PUBLISHED: u64 = 1;
const WATCHED: u64 = 2;
const NOTES: u64 = PUBLISHED | WATCHED;

impl Tag {
    /// No file.
    const NONE: Tag = Tag(1 << 63);
    /// What no thread remembers.
    pub const NEVER: Tag = Tag(!NOTES);

    /// Of a thread that worked on `file` last and has published nothing since.
    pub const fn of(file: u64) -> Tag {
        Tag(file << 2)
    }

    /// The same of a thread that has published something since.
    pub const fn having_published(self) -> Tag {
        Tag(self.0 | PUBLISHED)
    }

    /// For who keeps it in an atomic.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Of such bits.
    pub const fn from_bits(bits: u64) -> Tag {
        Tag(bits)
    }

    const fn is_of(self, file: u64) -> bool {
        self.0 & !NOTES == Tag::of(file).0
    }
}

struct Last {
    // An atomic for one reason: it is stored as it is loaded, all eight bytes. Of a cell the compiler sets the lowest
    // bit by a store of one byte; who loads the word next has to wait until that has left the processor, behind the
    // drain of the operation.
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

// A thread that is ending remembers nothing, and each of these says so.

/// The thread's lane of the file that it worked on last, if `tag` gives what it remembers: it has published
/// nothing, either.
#[inline(always)]
pub fn lane_by_tag(tag: impl FnOnce() -> Tag) -> Option<LaneIndex> {
    LAST.try_with(|last| (last.tag() == tag().0).then(|| last.lane.get())).ok()?
}

/// The same, whether or not it has published something.
#[inline(always)]
pub fn lane_by_file_of(tag: impl FnOnce() -> Tag) -> Option<LaneIndex> {
    LAST.try_with(|last| (last.tag() & !PUBLISHED == tag().0).then(|| last.lane.get())).ok()?
}

/// The thread's lane of `file`, if that is the file that it worked on last.
#[inline]
pub fn lane_of(file: u64) -> Option<LaneIndex> {
    LAST.try_with(|last| Tag(last.tag()).is_of(file).then(|| last.lane.get())).ok()?
}

/// The same, unless the thread is inside the closure of a transaction.
#[inline]
pub fn lane_unwatched_of(file: u64) -> Option<LaneIndex> {
    let is_of = |last: &Last| last.tag() & !PUBLISHED == Tag::of(file).0;
    LAST.try_with(|last| is_of(last).then(|| last.lane.get())).ok()?
}

/// Notes whether the thread is inside the closure of a transaction, of any file.
pub fn set_watched(watched: bool) {
    let note = if watched { WATCHED } else { 0 };
    let _not_at_its_end = LAST.try_with(|last| last.set_tag(last.tag() & !WATCHED | note));
}

/// Returns whether the thread is inside the closure of a transaction.
#[inline]
pub fn is_watched() -> bool {
    LAST.try_with(|last| last.tag() & WATCHED != 0).unwrap_or(false)
}

/// From now on the thread works on `file`, where it has that lane.
pub fn remember(file: u64, lane: LaneIndex) {
    let _not_at_its_end = LAST.try_with(|last| {
        last.set_tag(Tag::of(file).0 | last.tag() & NOTES);
        last.lane.set(lane);
    });
}

/// The thread's lane may be another's soon, or the process is another one: it has none.
pub fn forget() {
    let _not_at_its_end = LAST.try_with(|last| last.set_tag(Tag::NONE.0 | last.tag() & NOTES));
}

/// Notes that the thread has published something by a plain store.
#[inline]
pub fn note_published() {
    let _not_at_its_end = LAST.try_with(|last| last.set_tag(last.tag() | PUBLISHED));
}

/// Whether the thread has published something since this was asked last, or may have.
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
