//! A view that holds the file it looks into.

use crate::pair::Pair;
use atomic_mmap::{Result, View};
use std::ops::Range;
use std::sync::Arc;

/// Pinned bytes of a database.
#[derive(Debug)]
pub(crate) struct Pinned {
    /// Dropped before the pair, by the order of the fields.
    view: View<'static>,
    _pair: Arc<Pair>,
}

impl Pinned {
    /// Pins `range`. Returns `None` if that takes a copy.
    pub fn new(pair: Arc<Pair>, range: Range<u64>) -> Result<Option<Self>> {
        let view = pair.file.view(range)?;
        if !view.is_mapped() {
            return Ok(None);
        }
        // SAFETY: the view borrows `pair.file`, which lies in the allocation of the `Arc`. It does
        // not move, and lives as long as `_pair`, which is dropped after the view.
        let view = unsafe { std::mem::transmute::<View<'_>, View<'static>>(view) };
        Ok(Some(Pinned { view, _pair: pair }))
    }

    /// Returns the offset of the first byte in the file.
    pub fn offset(&self) -> u64 {
        self.view.range().start
    }

    /// Returns the address of the first byte.
    pub fn address(&self) -> *const u8 {
        self.view.as_ptr()
    }
}
