//! Keeps slices for snapshots, before a later version goes over them.
//!
//! A snapshot reads a slice from the oldest keep record that has it, and otherwise from the slice's
//! *settled* slot. Where durable points are kept, that is the slot of the last durable point. Else
//! it is the valid slot. So before a slice gets another settled version, its bytes are appended to
//! the store of snapshots: once for each slice and snapshot. Each caller says when its keep record
//! is durable, and must have it so before the old version can be gone:
//!
//! | caller | the keep is durable before |
//! |---|---|
//! | flip, undo record | the first word, by the first drain |
//! | redo | the redo record, by the drain of step 2 |
//! | direct store | the store, by a drain of its own, which costs nothing there |
//! | shrink | the new length, by a drain of its own |
//! | durable point | the record of the point, by a sync of the store |
//!
//! A keep record is a fact, and stays true whatever becomes of the operation. Rules:
//! `docs/model/snapshots_dax.py` and `docs/model/snapshots_page_cache.py`.
//!
//! May import `verify`, `io`, `plan`, `pair`, and what lies below them.

use crate::bitmap::{Slices, Validity, bits};
use crate::engine::{Engine, plan};
use crate::error::{Error, Result, SYNC_OF_SNAPSHOTS};
use crate::format::snapshots::segment::{Record, SealSum};
use crate::mutant::{planted, unless};
use crate::pair::log::lanes::InUse;
use crate::pair::log::records::PageSlices;
use crate::pair::region::RegionState;
use crate::pair::snapshots::Store;
use crate::pair::snapshots::append::Appender;
use crate::pair::stats::Counter;
use crate::units::{PAGE, PAGES_PER_REGION, PageIndex, REGION, RegionIndex, SLICE};
use smallvec::SmallVec;

/// Slices of one page that have to be kept.
struct Owed<'e> {
    page: PageIndex,
    region: &'e RegionState,
    slices: Slices,
}

impl Engine {
    /// Returns `true` if an operation looks for slices to keep before it stores. Where durable
    /// points are kept, the point does that instead.
    #[inline(always)]
    pub(in crate::engine) fn keeps_at_stores(&self) -> bool {
        self.epochs.is_on() && !self.keeps_points
    }

    /// Returns those of the slices of page `n` of a region that a live snapshot reads from their
    /// settled slots. Locks: the caller holds the page, and the set of live snapshots stays.
    #[inline]
    pub(in crate::engine) fn owed_slices(
        &self,
        (index, region): (RegionIndex, &RegionState),
        n: usize,
        slices: Slices,
    ) -> Slices {
        let epoch = self.epochs.newest_reaching(index.page(n));
        if epoch == 0 {
            return Slices::NONE;
        }
        let kept = region.kept_since(n, epoch);
        slices.without(kept.unwrap_or_else(|| self.look_up_kept((index, region), n, epoch)))
    }

    #[cold]
    fn look_up_kept(
        &self,
        (index, region): (RegionIndex, &RegionState),
        n: usize,
        epoch: u64,
    ) -> Slices {
        // Also what was kept for a later snapshot that was dropped since: an older one reads it
        // there.
        let store = self.snapshots.get();
        let kept = store.map_or(Slices::ALL, |store| store.kept_since(index.page(n), epoch));
        let kept = if planted!(KeptNotLookedUp) { Slices::NONE } else { kept };
        region.set_kept_since(n, epoch, kept);
        kept
    }

    /// Keeps, of these slices of pages, those that a live snapshot reads from their settled slots.
    /// Returns `true` if there were any. The caller holds the locks of the pages, and is inside the
    /// gate of cuts, or has closed it.
    ///
    /// The keeps are flushed, and the caller drains. It does so even if its operation fails: from
    /// here on no other operation keeps these slices.
    ///
    /// # Errors
    /// `NoSpace`: nothing was kept. After another error, what was kept is drained.
    #[inline(never)]
    pub(in crate::engine) fn keep(
        &self,
        lane: &InUse<'_>,
        pages: impl Iterator<Item = (PageIndex, Slices)>,
    ) -> Result<bool> {
        let Some(store) = self.snapshots.get() else { return Ok(false) };
        let mut owed: SmallVec<[Owed<'_>; 1]> = SmallVec::new();
        for (page, slices) in pages {
            let index = page.region();
            let region = self.region(index)?;
            let slices = self.owed_slices((index, region), page.in_region(), slices);
            if slices.is_empty() || planted!(NothingKept) {
                continue;
            }
            match self.verify_under_lock(lane, page, region) {
                // A damaged page of a durable point was only brought home. Its copies have equal
                // bytes, so a snapshot goes on to read them by the sum of the page.
                Err(Error::Damaged { .. }) if !planted!(KeptUnverified) => continue,
                Err(Error::Damaged { .. }) => {}
                verified => verified?,
            }
            owed.push(Owed { page, region, slices });
        }
        self.append_keeps(lane, store, &owed)?;
        Ok(!owed.is_empty())
    }

    /// Keeps slices of one page, all of them owed. As [`keep`](Self::keep).
    #[inline(never)]
    pub(in crate::engine) fn keep_owed(
        &self,
        lane: &InUse<'_>,
        target: &PageSlices<'_>,
        owed: Slices,
    ) -> Result<()> {
        let Some(store) = self.snapshots.get() else { return Ok(()) };
        let owed = Owed { page: target.page, region: target.region, slices: owed };
        self.append_keeps(lane, store, &[owed])
    }

    /// Appends a record for each of `owed`, and notes the slices as kept. The caller drains. After
    /// an error this has drained: some may be kept.
    fn append_keeps(&self, lane: &InUse<'_>, store: &Store, owed: &[Owed<'_>]) -> Result<()> {
        if owed.is_empty() {
            return Ok(());
        }
        let slices = owed.iter().map(|owed| owed.slices.count()).sum();
        self.append_uncut(lane, store, (owed.len(), slices), |appender| {
            let mut bytes = [0; PAGE];
            owed.iter().try_for_each(|owed| self.append_keep(lane, appender, owed, &mut bytes))
        })
        .inspect_err(|_| unless!(FailedKeepNotDrained, self.drain(lane)))
    }

    /// Runs `append` with an appender for this many records and slices. A torn record would end its
    /// segment before those that other operations append behind it.
    pub(in crate::engine) fn append_uncut(
        &self,
        lane: &InUse<'_>,
        store: &Store,
        (records, slices): (usize, usize),
        append: impl FnOnce(&mut Appender<'_>) -> Result<()>,
    ) -> Result<()> {
        let unfinished = self.begin("keep for a snapshot");
        // The store could not make its new length durable.
        let appender = store.appender(lane.index(), records, slices).inspect_err(|error| {
            if error.leaves_doubt() {
                self.poison(error);
            }
        });
        let appended = appender.and_then(|mut appender| append(&mut appender));
        unfinished.end();
        appended
    }

    fn append_keep(
        &self,
        lane: &InUse<'_>,
        appender: &mut Appender<'_>,
        owed: &Owed<'_>,
        bytes: &mut [u8; PAGE],
    ) -> Result<()> {
        let Owed { page, region, slices } = owed;
        let valid = region.durable(page.in_region());
        let bytes = self.load_slices(*page, valid, *slices, bytes)?;
        let epoch = self.epochs.newest_reaching(*page);
        debug_assert_ne!(epoch, 0, "a snapshot reads these slices");
        let known = region.kept_since(page.in_region(), epoch).unwrap_or(Slices::NONE);
        // Nothing of the page has changed since the seal: its sum is that of the snapshot.
        let sum = match known.is_empty() || planted!(LaterSumKept) {
            true if planted!(KeptWithoutSum) => SealSum::Unknown,
            true => self.settled_sum(*page, region)?.map_or(SealSum::Unknown, SealSum::Known),
            false => SealSum::Later,
        };
        appender.keep(Record { epoch, page: *page, mask: *slices, sum }, bytes);
        lane.stats.bump(Counter::KeptSlices, slices.count() as u64);
        region.set_kept_since(page.in_region(), epoch, known.or(*slices));
        Ok(())
    }

    /// Keeps what a shrink to `new` bytes takes from the live snapshots: every slice past the new
    /// end, and the one that it cuts. Slices of zeroes are left out: past its end the file reads as
    /// zeroes. The caller holds `resizing`. So no snapshot is sealed until the shrink is over.
    ///
    /// A writer may store past the new end until the shrink is committed. It keeps what it goes
    /// over, and what it writes belongs to no snapshot.
    pub(in crate::engine) fn keep_past(&self, lane: &InUse<'_>, new: u64) -> Result<()> {
        let Some(store) = self.snapshots.get() else { return Ok(()) };
        if planted!(ShrinkKeepsNothing) {
            return Ok(());
        }
        self.each_owed_past(lane, new, false, |owed| {
            self.append_keeps(lane, store, owed)?;
            // Orders the keeps before the lock opens: a writer of these slices relies on them.
            self.drain(lane);
            Ok(())
        })
    }

    /// Returns how many records and slices [`keep_past`](Self::keep_past) keeps. `is_sealed` counts
    /// as if the present were sealed before.
    pub(in crate::engine) fn count_past(
        &self,
        lane: &InUse<'_>,
        new: u64,
        is_sealed: bool,
    ) -> Result<(usize, usize)> {
        let (mut records, mut slices) = (0, 0);
        self.each_owed_past(lane, new, is_sealed, |owed| {
            records += owed.len();
            slices += owed.iter().map(|owed| owed.slices.count()).sum::<usize>();
            Ok(())
        })?;
        Ok((records, slices))
    }

    /// Passes the slices past byte `new` that are owed to `take`, region by region, each as a whole
    /// under its lock. `is_sealed`: all that hold bytes.
    fn each_owed_past(
        &self,
        lane: &InUse<'_>,
        new: u64,
        is_sealed: bool,
        mut take: impl FnMut(&[Owed<'_>]) -> Result<()>,
    ) -> Result<()> {
        let longest = if is_sealed { self.len() } else { self.epochs.longest() };
        let reach = self.len().min(longest);
        if new >= reach {
            return Ok(());
        }
        self.load_regions_with_bytes(new..reach)?;
        let touched =
            |index: &RegionIndex| (index.start() + REGION as u64) > new && index.start() < reach;
        for (index, region) in self.state.loaded_regions().filter(|(index, _)| touched(index)) {
            let held = plan::lock_whole_region(region);
            // Nothing changes under the lock: readers need not wait.
            held.mark_stable();
            let mut owed = Vec::new();
            for n in 0..PAGES_PER_REGION {
                let page = index.page(n);
                let past = Slices::from_byte(page.start(), new);
                let slices = match is_sealed {
                    true => past,
                    false => self.owed_slices((index, region), n, past),
                };
                if !slices.is_empty() && page.start() < self.len() && !planted!(CutKeptUnverified) {
                    self.verify_under_lock(lane, page, region)?;
                }
                let slices = self.nonzero(page, region.durable(n), slices)?;
                if !slices.is_empty() {
                    owed.push(Owed { page, region, slices });
                }
            }
            take(&owed)?;
        }
        Ok(())
    }

    /// Returns those of the slices that hold a byte other than zero in the slots that `valid`
    /// names.
    fn nonzero(&self, page: PageIndex, valid: Validity, slices: Slices) -> Result<Slices> {
        if slices.is_empty() || page.start() >= self.len() {
            return Ok(Slices::NONE);
        }
        let mut bytes = [0; PAGE];
        let bytes = self.load_slices(page, valid, slices, &mut bytes)?;
        let of_slices = bits(slices.0).zip(bytes.as_chunks::<SLICE>().0);
        let nonzero = of_slices.filter(|(_, bytes)| bytes.iter().any(|byte| *byte != 0));
        Ok(nonzero.fold(Slices::NONE, |all, (n, _)| all.or(Slices::range(n, n + 1))))
    }

    /// Makes the keeps of a durable point durable, before its record is. Does nothing if the store
    /// has got nothing since its last sync.
    pub(in crate::engine) fn sync_keeps(&self) -> Result<()> {
        match self.snapshots.get() {
            Some(store) if store.is_unsynced() => unless!(KeepsNotSynced, self.sync_store(store)?),
            _ => {}
        }
        Ok(())
    }

    /// Syncs the store. A failure poisons the handle: it is unknown what the disk has.
    pub(in crate::engine) fn sync_store(&self, store: &Store) -> Result<()> {
        let synced = store.sync();
        synced
            .map_err(|e| Error::io(SYNC_OF_SNAPSHOTS, store.file().path(), e))
            .inspect_err(|error| self.poison(error))
    }
}
