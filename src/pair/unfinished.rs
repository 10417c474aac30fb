//! Sections that a panic must not leave half done.
//!
//! From its first store to its end an operation is neither as before nor over. An error in between
//! is handled by the operation, or it poisons the handle as a panic does. A panic unwinds past
//! that, and what is on the files then means an operation that the next opening finishes or takes
//! back, over all that was written since. So a panic in a section poisons the handle, and the next
//! opening recovers as after a crash.
//!
//! Invariant: the handle is poisoned before a lock or a gate opens that was taken before the
//! section. So a thread that has waited for that lock or gate finds it poisoned when it checks
//! again, and fails before it reads or changes what was left half done. The steps of durable
//! points, which take their locks inside, keep the section beside them.
//!
//! May import the errors and the planted bugs.

use super::Pair;
use crate::error::{Error, Result};
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
        unless!(CutOffPointGoesOn, self.pair.poison_cut_off(&cause));
    }
}

impl Pair {
    /// Begins a section of the operation that `what` names. The caller has its locks already.
    #[inline(always)]
    pub(crate) fn begin(&self, what: &'static str) -> Unfinished<'_> {
        Unfinished { pair: self, what }
    }

    /// Runs a section that the next opening finishes if it is cut off, by an error as well.
    pub(crate) fn uncut_by_error<T>(
        &self,
        what: &'static str,
        steps: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let poison = |error: &Error| unless!(CutOffRollbackGoesOn, self.poison_cut_off(error));
        self.uncut(what, || steps().inspect_err(poison))
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
