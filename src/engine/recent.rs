//! Which pages has this thread written lately? A guess, for who decides whether to ask for lines ahead.
//!
//! Owns: a few tags a lane, direct-mapped. Nothing depends on them but time: a wrong guess costs a request
//! that was not needed, or a miss that was not hidden. May import `units`.

use crate::units::PageIndex;
// Not modelled: no decision that could be seen depends on it.
use std::sync::atomic::{AtomicU16, Ordering};

/// About as many pages as the processor's second-level TLB holds, with both slots of each, their words and
/// what DRAM knows of them.
const TAGS: usize = 512;

/// Pages that were written lately.
#[derive(Debug)]
pub struct Recent([AtomicU16; TAGS]);

impl Recent {
    /// None yet.
    pub fn new() -> Self {
        Recent([const { AtomicU16::new(0) }; TAGS])
    }

    /// Whether the page is among them. From now on it is.
    #[inline]
    pub fn has(&self, page: PageIndex) -> bool {
        let tag = &self.0[page.0 as usize % TAGS];
        let mine = (page.0 / TAGS as u64) as u16 ^ 0x8000;
        let had = tag.load(Ordering::Relaxed) == mine;
        if !had {
            tag.store(mine, Ordering::Relaxed);
        }
        had
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_recent_until_another_takes_its_tag() {
        let recent = Recent::new();
        assert!(!recent.has(PageIndex(0)) && recent.has(PageIndex(0)));
        assert!(!recent.has(PageIndex(1)) && recent.has(PageIndex(0)));
        assert!(!recent.has(PageIndex(TAGS as u64)) && !recent.has(PageIndex(0)));
    }
}
