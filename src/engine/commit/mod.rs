//! The commit protocols, step by step.
//!
//! | room | for | drains | the commit point |
//! |---|---|---|---|
//! | `logged_flip` | a small write, or whole slices, in one page | 1 | a flip record |
//! | `flip` | slices of one page, or whole pages of one region | 2 | one word |
//! | `undo` | any set of ranges | 3 | the end of the record |
//! | `redo` | slices that have no free slot | 3 or 4 | the record |
//!
//! The caller of each function holds the locks. It has allocated everything that is stored to, and
//! publishes afterwards; `redo` does both itself, and its allocation can fail. No other step of a
//! commit can. Every drain says what it orders.
//!
//! These steps also run on media where only a process crash counts; drains and flushes cost nothing
//! there. Ideas: Acumen IV-C and IV-D (flip), MGSP III-C1 (undo log of words, short records in
//! one cache line). The logged flip and the XOR are this crate's own.
//!
//! May import `io`, `plan`, `pair`, and what lies below them.

pub mod flip;
pub mod logged_flip;
pub mod redo;
pub mod restore;
pub mod undo;

use crate::bitmap::Slices;
use crate::engine::Engine;
use crate::engine::plan::{RegionPlan, WordUpdate};
use crate::error::{Error, Result};
use crate::format::entry::WordId;
use crate::format::layout;
use crate::pair::log::lane::Lane;
use crate::pair::log::log_area::Extents;
use crate::pair::region::{RegionState, WordGuard};
use crate::pair::stats::Counter;
use crate::units::{PageIndex, SLICE};

/// Changes the cached copy of a word as the word on the medium was changed. The caller has closed
/// the page or region.
// Inlined, like other callees of a small write: an argument passed by reference would be stored to
// memory.
#[inline(always)]
pub(in crate::engine) fn publish(region: &RegionState, change: &WordUpdate) {
    match change.word {
        WordId::Slice(page) => {
            region.set_slice_word(page.in_region(), change.old ^ change.mask);
        }
        WordId::Region(_) => region.flip_region_bits(change.mask),
    }
}

/// Returns the bytes that the words take in the log area.
pub(in crate::engine) fn spilled_len(moves: &[WordUpdate]) -> u64 {
    (moves.len() * crate::format::entry::RECORD) as u64
}

/// Returns the pages of which the moves make slices valid, with those slices.
pub(in crate::engine) fn updated_pages(
    moves: &[WordUpdate],
) -> impl Iterator<Item = (PageIndex, Slices)> + Clone {
    moves.iter().flat_map(|change| {
        let (slices, pages, region) = match change.word {
            WordId::Slice(page) => (Slices(change.mask), 1 << page.in_region(), page.region()),
            WordId::Region(region) => (Slices::ALL, change.mask, region),
        };
        crate::bitmap::bits(pages).map(move |n| (region.page(n), slices))
    })
}

impl Engine {
    /// Locks the region word of the plan; the caller holds some of its pages. Returns `None` if
    /// another writer has the word: then the pages' slice words serve as well, and `ensure` has
    /// allocated the space that they need. If that space cannot be allocated, this waits for the
    /// word instead. A write that needs no space must not fail with `NoSpace` because of a
    /// concurrent writer.
    pub(in crate::engine) fn take_word<'e>(
        &self,
        plan: &RegionPlan<'e>,
        ensure: impl FnOnce() -> Result<()>,
    ) -> Option<WordGuard<'e>> {
        let taken = plan.state.try_lock_word();
        if taken.is_none() && ensure().is_err() {
            return Some(plan.state.take_word());
        }
        taken
    }

    /// Returns the space of a large overflow record to the file system, once the record has ended
    /// for good. Its first extent stays, for the next record.
    pub(in crate::engine) fn give_back(&self, extents: &Extents<'_>) {
        let rest = extents.after_the_first();
        if !rest.is_empty() {
            let at = layout::LOG_AREA + rest.start;
            // The operation is committed. If the file system does not take the space back, a later
            // record uses it.
            let _used_again_otherwise = self.reflection.punch(at, rest.end - rest.start);
        }
    }

    /// Returns the error of an operation that needs `needed` bytes of the log area.
    pub(in crate::engine) fn too_large(&self, needed: u64) -> Error {
        Error::TooLarge { path: self.path(), needed, limit: layout::LOG_AREA_LEN }
    }

    /// Stores the new words. The next drain makes them durable.
    #[inline(always)]
    pub(in crate::engine) fn store_updates(&self, lane: &Lane, moves: &[WordUpdate]) {
        for change in moves {
            let at = match change.word {
                WordId::Slice(page) => layout::slice_word(page),
                WordId::Region(region) => layout::region_word(region),
            };
            // No other thread stores to the word, so this is a plain store, past the cache.
            self.reflection.store_word_through(at, change.old ^ change.mask);
        }
        lane.stats.bump(Counter::BytesWritten, (moves.len() * SLICE) as u64);
    }
}
