//! Sections that a panic must not leave half done.
//!
//! From its first store to its end an operation is neither as before nor over. An error in between
//! is handled by the operation. A panic unwinds past that, and what is on the files then means an
//! operation that the next opening finishes or takes back, over all that was written since. So a
//! panic in a section poisons the handle, and the next opening recovers as after a crash.
//!
//! Invariant: the handle is poisoned before a lock or a gate opens that was taken before the
//! section. So no waiting thread goes on by what was left half done. The steps of durable points,
//! which take their locks inside, keep the section beside them.
//!
//! May import the errors and the planted bugs.

use super::Pair;
use crate::error::Error;
use crate::mutant::unless;

/// A section that has begun. A drop, by a panic, poisons the handle.
#[must_use = "the section lasts until `end`"]
pub(crate) struct Unfinished<'e> {
    pair: &'e Pair,
    what: &'static str,
}

impl Unfinished<'_> {
    /// Ends the section, however its steps have ended.
    #[inline(always)]
    pub fn end(self) {
        std::mem::forget(self);
    }
}

impl Drop for Unfinished<'_> {
    #[cold]
    fn drop(&mut self) {
        let cause = std::io::Error::other("a panic has cut it off");
        let cause = Error::io(self.what, self.pair.home.path(), cause);
        unless!(CutOffPointGoesOn, self.pair.poison(&cause));
    }
}

impl Pair {
    /// Begins a section of the operation that `what` names. The caller has its locks already.
    #[inline(always)]
    pub(crate) fn begin(&self, what: &'static str) -> Unfinished<'_> {
        Unfinished { pair: self, what }
    }

    /// Runs a section.
    #[inline(always)]
    pub(crate) fn uncut<T>(&self, what: &'static str, steps: impl FnOnce() -> T) -> T {
        let unfinished = self.begin(what);
        let done = steps();
        unfinished.end();
        done
    }
}
