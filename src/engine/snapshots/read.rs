//! Reads of a snapshot, while writers, deployments and changes of the length go on.
//!
//! A snapshot never changes, so a read goes page by page, each under the page's lock: no writer of
//! the page keeps a slice, and no durable point moves its settled slots, between the look at the
//! records and the copy. Readers of the present are not held up.
//!
//! May import `io`, `plan`, `pair`, and what lies below them.

use crate::bitmap::{Slices, span};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::lock::lock_page;
use crate::mutant::planted;
use crate::pair::epochs::Sealed;
use crate::pair::log::lane::Lane;
use crate::pair::region::RegionState;
use crate::pair::snapshots::Store;
use crate::units::{PAGE, PageIndex, SLICE};
use std::ops::Range;

impl Engine {
    /// Fills `to` with the bytes that the snapshot has from `offset` on. A handle reads the
    /// snapshot, so it is not dropped meanwhile.
    pub fn read_snapshot(&self, of: Sealed, to: &mut [u8], offset: u64) -> Result<()> {
        self.check_usable()?;
        let range = self.check_range_of(of, offset, to.len() as u64)?;
        // Before `resizing`: a thread that has a lane may be waiting for `resizing`.
        let lane = self.lane_fenced();
        // The length stays, and what lies past it reads as zeroes.
        let _no_resizing = self.resizing.read();
        let mut bytes = [0; PAGE];
        for span in span::pages(range) {
            let start = (span.offset() - offset) as usize;
            let to = &mut to[start..start + span.len()];
            match <&mut [u8; PAGE]>::try_from(&mut *to) {
                Ok(page) => self.read_page_of(&lane, of.number, span.page, Slices::ALL, page)?,
                Err(_) => {
                    self.read_page_of(&lane, of.number, span.page, span.slices(), &mut bytes)?;
                    to.copy_from_slice(&bytes[span.start..span.end]);
                }
            }
        }
        Ok(())
    }

    /// Returns the range of `len` bytes at `offset`, if it lies within the snapshot.
    pub fn check_range_of(&self, of: Sealed, offset: u64, len: u64) -> Result<Range<u64>> {
        let end = offset.checked_add(len).filter(|end| *end <= of.len);
        let past = || Error::PastEnd { path: self.path(), offset, len, file_len: of.len };
        Ok(offset..end.ok_or_else(past)?)
    }

    /// Fills `wanted` slices of `bytes` with those that the snapshot has of the page.
    fn read_page_of(
        &self,
        lane: &Lane,
        number: u64,
        page: PageIndex,
        wanted: Slices,
        bytes: &mut [u8; PAGE],
    ) -> Result<()> {
        let region = match page.start() < self.len() {
            true => {
                let _pinned = lane.pin();
                Some(self.region(page.region())?)
            }
            false => None,
        };
        let state = region.map(|region| &region.pages[page.in_region()]);
        let page_lock = region.zip(state).filter(|_| !planted!(SnapshotReadUnlocked));
        let held = page_lock.map(|(region, state)| lock_page(&region.lock, &state.lock));
        // Nothing changes under the lock: readers of the present need not wait.
        held.iter().for_each(crate::lock::LockGuard::mark_stable);
        // In a read section: a record that was looked up keeps its place until the copy is over.
        let _pinned = lane.pin();
        self.load_sealed(lane, number, (page, region), wanted, bytes)?;
        drop(held);
        Ok(())
    }

    /// Fills `wanted` slices of `bytes` as [`read_page_of`](Self::read_page_of) does. The caller
    /// holds the page, or it lies past the end, and is in a read section or keeps drops away.
    pub(super) fn load_sealed(
        &self,
        lane: &Lane,
        number: u64,
        (page, region): (PageIndex, Option<&RegionState>),
        wanted: Slices,
        bytes: &mut [u8; PAGE],
    ) -> Result<()> {
        let rest = match self.snapshots.get() {
            Some(store) => load_kept(store, page, number, wanted, bytes)?,
            None => wanted,
        };
        if rest.is_empty() {
            return Ok(());
        }
        let Some(region) = region else {
            rest.runs().for_each(|run| bytes[run.start * SLICE..run.end * SLICE].fill(0));
            return Ok(());
        };
        if let Some(whole) = self.verify_settled(lane, page, region)? {
            rest.runs().map(|run| run.start * SLICE..run.end * SLICE).for_each(|run| {
                bytes[run.clone()].copy_from_slice(&whole[run]);
            });
            return Ok(());
        }
        let settled = region.durable(page.in_region());
        let settled = if planted!(SnapshotReadsPresent) {
            region.validity(page.in_region())
        } else {
            settled
        };
        for (side, run) in settled.runs(rest) {
            let to = &mut bytes[run.start * SLICE..run.end * SLICE];
            self.load_slot(side, to, page.start() + (run.start * SLICE) as u64)?;
        }
        Ok(())
    }
}

/// Fills those `wanted` slices of `bytes` that records have, and returns the others.
pub(super) fn load_kept(
    store: &Store,
    page: PageIndex,
    number: u64,
    wanted: Slices,
    bytes: &mut [u8; PAGE],
) -> Result<Slices> {
    store.find(page, number, wanted, |slices, kept| {
        for run in slices.runs() {
            let to = &mut bytes[run.start * SLICE..run.end * SLICE];
            to.copy_from_slice(kept.run(run));
        }
    })
}
