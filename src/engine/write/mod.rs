//! The entry point of writes, and the choice of a way.
//!
//! | room | holds |
//! |---|---|
//! | `direct` | direct stores by one instruction, where only the process can crash |
//! | `write::small` | the fast path of small writes within one page |
//! | `aligned` | the fast path of page-aligned writes within one region |
//! | `general` | locks, checks, and the choice of a commit protocol |
//! | `page` | writes within one page that `write::small` leaves |
//! | `range` | writes over several pages or ranges |
//! | `checks` | what every write validates under its locks |
//!
//! May import `deploy`, `durable`, `commit`, `io`, `plan`, `pair`, and what lies below
//! them.

pub mod aligned;
pub mod checks;
pub mod direct;
pub mod general;
pub mod page;
pub mod range;
pub mod small;

use crate::engine::Engine;
use crate::error::Result;
use crate::units::PAGE;

impl Engine {
    /// Writes `data` at `offset`: one operation, whatever its size.
    #[inline]
    pub fn write(&self, data: &[u8], offset: u64) -> Result<()> {
        if self.direct.takes(offset, data.len()) {
            if self.try_direct(data, offset) { Ok(()) } else { self.write_slow(data, offset) }
        } else if data.len() <= self.small.longest() && offset as usize % PAGE + data.len() <= PAGE
        {
            // Also an empty write, for which the result of `is_in_page` is unspecified.
            self.write_small(data, offset)
        } else {
            self.write_pages(data, offset)
        }
    }

    /// Writes one or more whole pages, or a range that spans several pages.
    // A function of its own, so that small writes need no registers for it. Its only call is a tail
    // call, so it saves few registers: each save is a store before the first prefetch.
    #[inline(never)]
    fn write_pages(&self, data: &[u8], offset: u64) -> Result<()> {
        self.prefetch_pages(data.len(), offset);
        self.write_aligned(data, offset)
    }
}
