//! The entry point of writes, and the choice of a way.
//!
//! | room | holds |
//! |---|---|
//! | `direct` | direct stores by one instruction, where only the process can crash |
//! | `general` | locks, checks, and the choice of a commit protocol |
//! | `length` | operations that change the file's length |
//! | `page` | writes within one page |
//! | `range` | writes over several pages or ranges |
//! | `eager` | deployment right after a write |
//! | `staged` | operations with slices that stages have filled |
//! | `checks` | what every write validates under its locks |
//!
//! May import `deploy`, `durable`, `commit`, `io`, `plan`, `pair`, and what lies below
//! them.

pub mod checks;
pub mod direct;
pub mod eager;
pub mod general;
pub mod length;
pub mod page;
pub mod range;
pub mod staged;

use crate::config::DeployPolicy;
use crate::engine::Engine;
use crate::engine::plan::{Segment, is_whole_slices};
use crate::error::Result;
use crate::platform::{Persistence, Platform};
use crate::units::{PAGE, PageIndex, is_in_page};

/// The properties of a file that choose the way of a write.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Mode {
    /// `true` if a write may take a fast path: the file may be written to, and no cuts are taken.
    pub is_fast: bool,
    /// `true` if such a write has nothing to do besides its commit: the file has no page sums.
    pub is_plain: bool,
    /// `true` if a drain takes time, so that a logged flip is faster than a flip. Where only the
    /// process can crash, it takes none.
    pub has_drains: bool,
    /// `true` if a long run of bytes is written by a call, and not through the mapping: where
    /// durable points are kept, on a file system of this machine. `io::scatter` says why.
    pub by_call: bool,
}

impl Mode {
    /// `is_special` says that a write has more to do than its commit and the page's sum, or must
    /// not happen.
    pub fn of(platform: &Platform, (is_special, has_sums): (bool, bool), by_call: bool) -> Mode {
        let is_fast = !is_special;
        Mode {
            is_fast,
            is_plain: is_fast && !has_sums,
            has_drains: platform.persistence() != Persistence::Process,
            by_call,
        }
    }
}

impl Engine {
    /// Writes `data` at `offset`: one operation, whatever its size.
    #[inline]
    pub fn write(&self, data: &[u8], offset: u64) -> Result<()> {
        if self.policy.deploys_writes() {
            return self.write_by_policy(data, offset);
        }
        self.write_lazily(data, offset)
    }

    /// Writes as [`write_lazily`](Self::write_lazily) does. Then deploys pages as the policy says.
    #[inline(never)]
    fn write_by_policy(&self, data: &[u8], offset: u64) -> Result<()> {
        let range = offset..offset.saturating_add(data.len() as u64);
        if self.policy() == DeployPolicy::Eager {
            return self.write_eagerly(data, offset);
        }
        if is_in_page(offset, data.len()) && !self.is_worth_deploying(PageIndex::of(offset)) {
            return self.write_lazily(data, offset);
        }
        let paying = self.pages_worth_deploying(range);
        self.write_lazily(data, offset)?;
        paying.into_iter().for_each(|pages| self.deploy_written(pages));
        Ok(())
    }

    /// Writes as [`write_lazily`](Self::write_lazily) does, and deploys the pages at once.
    pub fn write_eagerly(&self, data: &[u8], offset: u64) -> Result<()> {
        self.write_lazily(data, offset)?;
        self.deploy_written(offset..offset + data.len() as u64);
        Ok(())
    }

    /// Writes `data` at `offset`, and leaves it in the slots that were free.
    #[inline]
    fn write_lazily(&self, data: &[u8], offset: u64) -> Result<()> {
        if self.direct.takes(offset, data.len()) {
            if self.try_direct(data, offset) { Ok(()) } else { self.write_not_direct(data, offset) }
        } else if offset as usize % PAGE + data.len() <= PAGE {
            // Also an empty write, for which the result of `is_in_page` is unspecified.
            if is_whole_slices(&Segment { offset, data }) {
                self.write_in_page::<true>(data, offset)
            } else {
                self.write_in_page::<false>(data, offset)
            }
        } else {
            self.write_pages(data, offset)
        }
    }

    /// Writes `data`, which fits a direct store, where a direct store outside the gate was not
    /// possible.
    #[inline(never)]
    fn write_not_direct(&self, data: &[u8], offset: u64) -> Result<()> {
        if self.try_direct_gated(data, offset) { Ok(()) } else { self.write_slow(data, offset) }
    }

    /// Writes `data`, which lies within one page. `WHOLE_LINES` says that it covers its slices from
    /// end to end.
    // A function for each kind, which keeps no values for the other one. Values that do not fit the
    // registers are stored, and there is room for only about sixty stores behind a drain. For the
    // same reason the last step is a tail call: no value has to be saved over a call.
    #[inline(never)]
    fn write_in_page<const WHOLE_LINES: bool>(&self, data: &[u8], offset: u64) -> Result<()> {
        if !self.mode.is_plain || self.epochs.is_on() {
            return self.write_with_more::<WHOLE_LINES>(data, offset);
        }
        if self.try_in_page::<WHOLE_LINES, false>(data, offset) {
            return Ok(());
        }
        self.write_slow(data, offset)
    }

    /// Writes as `write_in_page` does, where the file has had snapshots or has page sums, or a
    /// write has more to do.
    #[inline(never)]
    fn write_with_more<const WHOLE_LINES: bool>(&self, data: &[u8], offset: u64) -> Result<()> {
        if self.mode.is_fast && self.try_in_page::<WHOLE_LINES, true>(data, offset) {
            return Ok(());
        }
        self.write_slow(data, offset)
    }

    /// Writes a range that spans several pages.
    // A function of its own, so that small writes need no registers for it. Its only call is a tail
    // call, so it saves few registers: each save is a store before the first prefetch.
    #[inline(never)]
    fn write_pages(&self, data: &[u8], offset: u64) -> Result<()> {
        self.prefetch_pages(data.len(), offset);
        self.write_slow(data, offset)
    }
}
