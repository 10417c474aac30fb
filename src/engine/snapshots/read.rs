//! Reads of a snapshot, while writers, deployments and changes of the length go on.
//!
//! A snapshot never changes, so a read goes page by page, each under the page's lock: no writer of
//! the page keeps a slice, and no durable point moves its settled slots, between the look at the
//! records and the copy. Readers of the present are not held up.
//!
//! Where each read verifies, a snapshot's page is proven by the sum that it had at the seal. So
//! damage is noticed also if it was kept, with a checksum of its own that is right.
//!
//! May import `verify`, `io`, `plan`, `pair`, and what lies below them.

use crate::bitmap::{Slices, span};
use crate::config::integrity::Integrity;
use crate::engine::Engine;
use crate::engine::verify::zero_past;
use crate::error::{Error, Result};
use crate::lock::{LockGuard, lock_page};
use crate::mutant::{planted, unless};
use crate::page_sum;
use crate::pair::epochs::Sealed;
use crate::pair::log::lane::Lane;
use crate::pair::log::lanes::InUse;
use crate::pair::region::RegionState;
use crate::pair::snapshots::Store;
use crate::units::{PAGE, PageIndex, SLICE};
use std::ops::Range;

impl Engine {
    /// Fills `to` with the bytes that the snapshot has from `offset` on. A handle reads the
    /// snapshot, so it is not dropped meanwhile.
    pub fn read_snapshot(&self, of: Sealed, to: &mut [u8], offset: u64) -> Result<()> {
        self.check_readable()?;
        let range = self.check_range_of(of, offset, to.len() as u64)?;
        // Before `resizing`: a thread that has a lane may be waiting for `resizing`.
        let lane = self.lane_fenced();
        self.follow(&lane, offset, to.len());
        // The length stays, and what lies past it reads as zeroes.
        let _no_resizing = self.resizing.read();
        self.check_readable_still()?;
        let mut bytes = [0; PAGE];
        for span in span::pages(range) {
            let start = (span.offset() - offset) as usize;
            let to = &mut to[start..start + span.len()];
            match <&mut [u8; PAGE]>::try_from(&mut *to) {
                Ok(page) => self.read_page_of(&lane, of, span.page, Slices::ALL, page)?,
                Err(_) => {
                    self.read_page_of(&lane, of, span.page, span.slices(), &mut bytes)?;
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
        of: Sealed,
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
        self.load_sealed(lane, of, (page, region), wanted, bytes)?;
        drop(held);
        Ok(())
    }

    /// Fills `wanted` slices of `bytes` as [`read_page_of`](Self::read_page_of) does. The caller
    /// holds the page, or it lies past the end, and is in a read section.
    fn load_sealed(
        &self,
        lane: &Lane,
        of: Sealed,
        (page, region): (PageIndex, Option<&RegionState>),
        wanted: Slices,
        bytes: &mut [u8; PAGE],
    ) -> Result<()> {
        if self.integrity == Integrity::OnRead && !planted!(SnapshotUnproven) {
            return self.load_proven(lane, of, (page, region), wanted, bytes);
        }
        let rest = self.load_kept_of(of, page, wanted, bytes)?;
        if let Some(region) = region.filter(|_| !rest.is_empty()) {
            self.verify_under_lock(lane, page, region)?;
        }
        self.load_rest((page, region), rest, bytes)
    }

    /// Fills those `wanted` slices of `bytes` that records have, and returns the others.
    fn load_kept_of(
        &self,
        of: Sealed,
        page: PageIndex,
        wanted: Slices,
        bytes: &mut [u8; PAGE],
    ) -> Result<Slices> {
        match self.snapshots.get() {
            Some(store) => load_kept(store, page, of.number, wanted, bytes),
            None => Ok(wanted),
        }
    }

    /// Fills slices of `bytes` that no record has, from their settled slots.
    fn load_rest(
        &self,
        (page, region): (PageIndex, Option<&RegionState>),
        rest: Slices,
        bytes: &mut [u8; PAGE],
    ) -> Result<()> {
        let Some(region) = region else {
            rest.runs().for_each(|run| bytes[run.start * SLICE..run.end * SLICE].fill(0));
            return Ok(());
        };
        let settled = if planted!(SnapshotReadsPresent) {
            region.validity(page.in_region())
        } else {
            region.durable(page.in_region())
        };
        for (side, run) in settled.runs(rest) {
            let to = &mut bytes[run.start * SLICE..run.end * SLICE];
            self.load_slot(side, to, page.start() + (run.start * SLICE) as u64)?;
        }
        Ok(())
    }

    /// Fills `wanted` slices of `bytes` with bytes that the sum of the page at the seal proves. If
    /// it is not known, the checksums of records and the sum of the settled state do, each for its
    /// slices. As [`load_sealed`](Self::load_sealed).
    fn load_proven(
        &self,
        lane: &Lane,
        of: Sealed,
        (page, region): (PageIndex, Option<&RegionState>),
        wanted: Slices,
        bytes: &mut [u8; PAGE],
    ) -> Result<()> {
        let mut whole = [0; PAGE];
        let at_seal = match self.load_at_seal(of, (page, region), &mut whole) {
            // Another record of the page may be damaged than those that are wanted.
            Err(Error::Snapshot { .. }) => None,
            at_seal => at_seal?,
        };
        if let Some(at_seal) = at_seal {
            self.compare(lane, page, &whole, Some(at_seal))?;
            copy_slices(wanted, &whole, bytes);
            return Ok(());
        }
        let rest = self.load_kept_of(of, page, wanted, bytes)?;
        let Some(region) = region.filter(|_| !rest.is_empty()) else {
            return self.load_rest((page, region), rest, bytes);
        };
        self.verify_under_lock(lane, page, region)?;
        self.load_rest((page, Some(region)), Slices::ALL, &mut whole)?;
        // Slots of the last durable point hold zeroes past the length that it has.
        if !region.sums().has_moved(page.in_region()) {
            zero_past(page, self.len(), &mut whole);
        }
        self.compare(lane, page, &whole, self.settled_sum(page, region)?)?;
        copy_slices(rest, &whole, bytes);
        Ok(())
    }

    /// Fails unless the bytes of a page have this stored sum.
    fn compare(
        &self,
        lane: &Lane,
        page: PageIndex,
        bytes: &[u8; PAGE],
        sum: Option<u64>,
    ) -> Result<()> {
        let is_whole = sum == Some(page_sum::stored(page, page_sum::of_page(bytes)));
        if is_whole { Ok(()) } else { Err(self.damaged(lane, page)) }
    }

    /// Fills `bytes` with the page of a snapshot, up to the snapshot's end. Returns the stored sum
    /// of the page at the seal, if it is known: the first keep record since then has it. If there
    /// is none, the page has not changed, and the sum is that of its settled state. The caller
    /// holds the page, or it lies past the end, and is in a read section.
    pub(super) fn load_at_seal(
        &self,
        of: Sealed,
        (page, region): (PageIndex, Option<&RegionState>),
        bytes: &mut [u8; PAGE],
    ) -> Result<Option<u64>> {
        let rest = self.load_kept_of(of, page, Slices::ALL, bytes)?;
        self.load_rest((page, region), rest, bytes)?;
        zero_past(page, of.len, bytes);
        match (self.snapshots.get(), region) {
            (Some(store), _) if rest != Slices::ALL => Ok(store.sum_at(page, of.number)),
            (_, Some(region)) => self.settled_sum(page, region),
            (_, None) => Ok(None),
        }
    }

    /// Fails if a record that a snapshot reads of a page is damaged, or if its bytes were damaged
    /// when they were kept: if the page does not have the sum of the seal. Without a region the
    /// page lies past the end. The caller holds no lock of a page, but `resizing` and the closed
    /// gate of cuts, so that no other thread drops a snapshot or changes the page.
    pub(super) fn check_kept(
        &self,
        lane: &Lane,
        of: Sealed,
        (page, region): (PageIndex, Option<&RegionState>),
    ) -> Result<()> {
        let n = page.in_region();
        let held = region.map(|region| lock_page(&region.lock, &region.pages[n].lock));
        // Nothing changes under the lock: readers of the present need not wait.
        held.iter().for_each(LockGuard::mark_stable);
        let _pinned = lane.pin();
        let mut bytes = [0; PAGE];
        if !self.has_sums() {
            unless!(DamagedRecordRolledBack, self.load_kept_of(of, page, Slices::ALL, &mut bytes)?);
            return Ok(());
        }
        match self.load_at_seal(of, (page, region), &mut bytes)? {
            Some(at_seal) if !planted!(KeptDamageRolledBack) => {
                self.compare(lane, page, &bytes, Some(at_seal))
            }
            _ => Ok(()),
        }
    }

    /// Locks a page against writers.
    pub(super) fn lock_to_read(
        &self,
        lane: &InUse<'_>,
        page: PageIndex,
    ) -> Result<(&RegionState, LockGuard<'_>)> {
        let region = {
            let _pinned = lane.pin();
            self.region(page.region())?
        };
        let held = lock_page(&region.lock, &region.pages[page.in_region()].lock);
        held.mark_stable();
        Ok((region, held))
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

/// Copies slices of a page.
fn copy_slices(slices: Slices, from: &[u8; PAGE], to: &mut [u8; PAGE]) {
    for run in slices.runs().map(|run| run.start * SLICE..run.end * SLICE) {
        to[run.clone()].copy_from_slice(&from[run]);
    }
}
