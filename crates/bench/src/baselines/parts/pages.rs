//! The pages of a write, and their locks.
//!
//! Owns: a version for each page, which is odd while a writer has locked the page. Writers lock
//! pages in ascending order, so they never deadlock. Readers lock no pages: they copy, and copy
//! again if a version has changed. Versions only grow, so their sum shows every change.
//!
//! Invariant: a thread that unlocks a page has drained its streamed bytes, or has stored through
//! the cache. Otherwise a reader could see the version before the bytes. So every drain before an
//! unlock has this second reason.
//! second reason.

use std::sync::atomic::{AtomicU32, Ordering, fence};

/// Bytes in a page and in a block.
pub const PAGE: u64 = 4096;

/// The bytes to write and their offsets. Sorted, without overlap.
pub type Parts<'a> = [(u64, &'a [u8])];

/// Returns the pages that `len` bytes at `offset` touch.
#[inline]
pub fn span(offset: u64, len: usize) -> std::ops::Range<u64> {
    if len == 0 {
        return 0..0;
    }
    offset / PAGE..(offset + len as u64).div_ceil(PAGE)
}

/// Splits a write at page boundaries. Yields page, start in the page, and bytes.
#[inline]
pub fn pieces(offset: u64, data: &[u8]) -> impl Iterator<Item = (u64, usize, &[u8])> + Clone {
    span(offset, data.len()).map(move |page| {
        let from = (page * PAGE).max(offset);
        let to = ((page + 1) * PAGE).min(offset + data.len() as u64);
        let bytes = &data[(from - offset) as usize..(to - offset) as usize];
        (page, (from % PAGE) as usize, bytes)
    })
}

/// Splits a read buffer at page boundaries. Yields page, start in the page, and bytes.
#[inline]
pub fn pieces_mut(offset: u64, mut to: &mut [u8]) -> impl Iterator<Item = (u64, usize, &mut [u8])> {
    let mut at = offset;
    std::iter::from_fn(move || {
        if to.is_empty() {
            return None;
        }
        let len = ((PAGE - at % PAGE) as usize).min(to.len());
        let (first, rest) = std::mem::take(&mut to).split_at_mut(len);
        to = rest;
        let piece = (at / PAGE, (at % PAGE) as usize, first);
        at += piece.2.len() as u64;
        Some(piece)
    })
}

/// The versions of all pages.
#[derive(Debug)]
pub struct Pages {
    versions: Box<[AtomicU32]>,
}

/// A guard of locked pages. Dropping it unlocks them.
#[derive(Debug)]
pub struct Closed<'a, I: Iterator<Item = u64> + Clone> {
    pages: &'a Pages,
    which: I,
}

/// Waits a little, and longer after many turns: there may be fewer processors than threads.
#[inline]
pub fn relax(turns: &mut u32) {
    *turns += 1;
    if (*turns).is_multiple_of(64) {
        std::thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}

impl Pages {
    /// Makes the versions for a file of `len` bytes.
    pub fn new(len: u64) -> Pages {
        Pages { versions: (0..len.div_ceil(PAGE)).map(|_| AtomicU32::new(0)).collect() }
    }

    /// Locks pages in ascending order.
    #[inline]
    pub fn close<I: Iterator<Item = u64> + Clone>(&self, which: I) -> Closed<'_, I> {
        for page in which.clone() {
            let version = &self.versions[page as usize];
            let mut turns = 0;
            loop {
                let seen = version.load(Ordering::Relaxed);
                let odd = seen | 1;
                if odd != seen
                    && version
                        .compare_exchange_weak(seen, odd, Ordering::Acquire, Ordering::Relaxed)
                        .is_ok()
                {
                    break;
                }
                relax(&mut turns);
            }
        }
        Closed { pages: self, which }
    }

    /// Locks the pages of a write.
    #[inline]
    pub fn close_parts<'a>(
        &'a self,
        parts: &'a Parts<'a>,
    ) -> Closed<'a, impl Iterator<Item = u64> + Clone> {
        let mut next = 0;
        let pages = parts.iter().flat_map(|(offset, data)| span(*offset, data.len()));
        // Two parts may touch one page.
        self.close(pages.filter(move |page| {
            let first = *page >= next;
            next = page + 1;
            first
        }))
    }

    /// Reads: calls `copy` until no page of the range has changed meanwhile.
    #[inline]
    pub fn read(&self, offset: u64, len: usize, mut copy: impl FnMut()) {
        let versions = {
            let span = span(offset, len);
            &self.versions[span.start as usize..span.end as usize]
        };
        let sum = || {
            versions.iter().try_fold(0u64, |sum, version| {
                let version = version.load(Ordering::Acquire);
                (version % 2 == 0).then_some(sum + u64::from(version))
            })
        };
        for turn in 0.. {
            if let Some(before) = sum() {
                copy();
                fence(Ordering::Acquire);
                if sum() == Some(before) {
                    return;
                }
            }
            // A long read among many writers never finds all pages unlocked, so it locks them like
            // a writer.
            if turn > 16 {
                let closed = self.close(span(offset, len));
                copy();
                drop(closed);
                return;
            }
            std::thread::yield_now();
        }
    }
}

impl<I: Iterator<Item = u64> + Clone> Drop for Closed<'_, I> {
    #[inline]
    fn drop(&mut self) {
        for page in self.which.clone() {
            let version = &self.pages.versions[page as usize];
            version.store(version.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
        }
    }
}
