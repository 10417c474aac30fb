//! The flip: data, drain, one word, drain.
//!
//! May import `io`, `plan`, `pair`, and what lies below them.

use crate::engine::Engine;
use crate::engine::plan::WordUpdate;
use crate::mutant::unless;
use crate::pair::log::lane::Lane;
use crate::pair::stats::Counter;

impl Engine {
    /// Makes the slots valid that the caller has just copied to, by storing one word.
    #[inline(always)]
    pub(in crate::engine) fn commit_flip(&self, lane: &Lane, change: &WordUpdate) {
        // Orders the data before the word that makes its slots valid. Also orders before it the
        // invalidation of active records that name those slots.
        unless!(FlipNoDrainBeforeWord, self.drain(lane));
        self.store_updates(lane, std::slice::from_ref(change));
        // The commit point: the word is durable before a reader sees the new state and before the
        // caller hears of it.
        unless!(FlipNoDrainAfterWord, self.drain(lane));
        lane.stats.bump(Counter::Flip, 1);
    }
}
