//! Goes back to a snapshot: bytes and length, as one operation to readers, writers and crashes.
//!
//! The steps:
//! 1. The present becomes a state that can be sealed, and no operation is inside the gate of cuts
//!    until the end. A growth is prepared: the file may be refused that length. The space of all
//!    later steps is taken.
//! 2. One write of the table says that the rollback is under way, and seals the present, if the
//!    caller wants a way back. From here on an opening finishes the rollback (`finish_rollback`).
//! 3. What a shorter length takes from snapshots is kept.
//! 4. The pages that differ are locked, and readers of them wait. Their slices are stored
//!    (`commit::restore`), then the length.
//! 5. Where durable points are kept, a point. Then the table says that the rollback is over.
//!
//! The snapshot stays live until the end, so every step can be done again. A page that differs has
//! a record that the snapshot reads: no other page needs a look. An error after step 2 poisons the
//! handle, and the next opening finishes.
//!
//! May import `write`, `resize`, `durable`, `commit`, `keep`, `io`, `plan`, `pair`, and what lies
//! below them.

use super::read::load_kept;
use super::seal::now;
use crate::bitmap::{Slices, Validity, bits};
use crate::engine::Engine;
use crate::engine::commit::restore::Restored;
use crate::engine::durable::point::CutGate;
use crate::engine::plan::{self, Plans};
use crate::engine::resize::Shrinking;
use crate::engine::verify::zero_past;
use crate::error::{Error, Result};
use crate::format::journal::{push_change, record_len};
use crate::format::snapshots::table::{Entry, Flags};
use crate::lock::LockGuard;
use crate::mutant::{planted, unless};
use crate::pair::epochs::Sealed;
use crate::pair::gates::{ClosedGate, Gate};
use crate::pair::log::lane::Lane;
use crate::pair::log::lanes::InUse;
use crate::pair::own_changes;
use crate::pair::snapshots::Store;
use crate::primitive::Ordering;
use crate::units::{PAGE, PAGES_PER_REGION, PageIndex, RegionIndex, SLICE};

/// The section behind the intention.
const ROLLBACK: &str = "rollback";

impl Engine {
    /// Gives the file the bytes and the length of a live snapshot. `undo` is the name under which
    /// the present is sealed first.
    pub fn roll_back(&self, name: &str, undo: Option<&str>) -> Result<()> {
        self.check_usable()?;
        self.check_writable()?;
        let lane = self.lane();
        let _one_at_a_time = self.resizing.write();
        self.check_usable_still()?;
        let done = self.roll_back_held(&lane, name, undo);
        done.inspect_err(|_| self.undo_growth(&lane))
    }

    /// Rolls back, while the caller holds `resizing`.
    fn roll_back_held(&self, lane: &InUse<'_>, name: &str, undo: Option<&str>) -> Result<()> {
        let target = self.live_snapshot(name)?;
        self.check_sealed(&target)?;
        self.check_fits(target.len)?;
        let Some(store) = self.snapshots.get() else { return Ok(()) };
        if let Some(undo) = undo {
            self.check_is_new(undo)?;
        }
        self.catch_up(lane, self.len())?;
        // Before the gate of cuts, as operations enter the gates.
        let shrinking = self.shrinking_to(lane, target.len)?;
        self.switch_on();
        let gate = self.close_cut()?;
        if let Some(durable) = &self.durable {
            self.durable_point_while_resizing(lane, durable, CutGate::Closed(&gate))?;
        }
        unless!(DamageRolledBack, self.check_pages_for(lane, (store, &target), undo.is_some())?);
        self.growth_to(lane, target.len)?;
        unless!(RollbackNotReserved, self.reserve_space(lane, (store, &target), undo.is_some())?);
        let len = self.len();
        self.change_live(lane, store, |table| {
            unless!(RollbackNotSaid, table.rollback = target.number);
            undo.map(|name| table.add(len, now(), Flags::UNDO, name))
        })?;
        self.restore(lane, Rest { store, target, shrinking, gate })
    }

    /// Fails if a page is damaged that the rollback would change in part, or that a snapshot would
    /// still read. After the intention such a page could not be told from one that the rollback was
    /// in the middle of. Fails as well if a record that the rollback needs is damaged, or has
    /// damaged bytes of a page: no opening could finish it then. The caller has closed the gate of
    /// cuts.
    fn check_pages_for(
        &self,
        lane: &Lane,
        (store, target): (&Store, &Entry),
        is_undone: bool,
    ) -> Result<()> {
        let of = Sealed { number: target.number, len: target.len };
        for page in pages_of(store, target) {
            let is_there = page.start() < self.len();
            let region = is_there.then(|| self.region(page.region())).transpose()?;
            self.check_kept(lane, of, (page, region))?;
            let Some(region) = region else { continue };
            let Err(error) = self.verify_if_summed(page, region) else { continue };
            let is_damage = matches!(error, Error::Damaged { .. });
            let past = Slices::from_byte(page.start(), target.len);
            let others = load_kept(store, page, target.number, Slices::ALL, &mut [0; PAGE])?;
            if !is_damage || is_undone || !others.without(past).is_empty() {
                return Err(error);
            }
        }
        self.check_cut(target.len)
    }

    /// Takes the space that the steps behind the intention need: free slots for what is put back,
    /// and segments for what is kept. Nothing else takes it: the caller has closed the gate of cuts
    /// and holds `resizing`.
    fn reserve_space(
        &self,
        lane: &InUse<'_>,
        (store, target): (&Store, &Entry),
        is_undone: bool,
    ) -> Result<()> {
        let (mut records, mut slices) = self.count_past(lane, target.len, is_undone)?;
        for page in pages_of(store, target) {
            let (region, _held) = self.lock_to_read(lane, page)?;
            let (n, put) = (page.in_region(), store.kept_since(page, target.number));
            self.ensure_free_slots(lane, page, put, region.validity(n), true)?;
            let owed = match is_undone && page.start() < self.len() {
                true => put,
                false => self.owed_slices((page.region(), region), n, put),
            };
            records += usize::from(!owed.is_empty());
            slices += owed.count();
        }
        store.reserve(records, slices)?;
        self.reserve_record(store, target)
    }

    /// Takes the space of the durable point that a rollback or an import ends with.
    pub(super) fn reserve_record(&self, store: &Store, target: &Entry) -> Result<()> {
        let Some(durable) = &self.durable else { return Ok(()) };
        let mut changes = Vec::new();
        for page in pages_of(store, target) {
            let put = store.kept_since(page, target.number);
            let valid = self.region(page.region())?.validity(page.in_region());
            push_change(&mut changes, page, Validity(valid.0 ^ put.0), Slices::NONE);
        }
        // A shrink changes pages of the region that it cuts.
        let len = record_len(changes.len().saturating_add(PAGES_PER_REGION), 0, 0);
        durable.journal.grow_for_base(len)
    }

    /// Fails if a page is damaged that a shrink to `len` bytes cuts or takes away. For a shrink
    /// behind an intention: it could neither go on nor be given up then.
    pub(super) fn check_cut(&self, len: u64) -> Result<()> {
        let verify = |page: PageIndex| self.verify_if_summed(page, self.region(page.region())?);
        self.pages_cut_at(len)?.into_iter().try_for_each(verify)
    }

    /// Returns the pages that hold something, or should, from the one with byte `len` on. None if
    /// the file has no sums. The caller holds `resizing`.
    fn pages_cut_at(&self, len: u64) -> Result<Vec<PageIndex>> {
        if !self.has_sums() || len >= self.len() {
            return Ok(Vec::new());
        }
        self.load_regions_with_bytes(len..self.len())?;
        let (first, end) = (PageIndex::of(len), PageIndex::of(self.len() - 1));
        let of_region = |index: RegionIndex| (0..PAGES_PER_REGION).map(move |n| index.page(n));
        let pages = self.state.loaded_regions().flat_map(|(index, _)| of_region(index));
        Ok(pages.filter(|page| (first..=end).contains(page)).collect())
    }

    /// Begins to go by the snapshots that opening has found, before any other thread has the file.
    /// Finishes a rollback that was cut off. A reader finds none: it was refused.
    pub fn begin_snapshots(&self, is_reader: bool) -> Result<()> {
        let Some(store) = self.snapshots.get() else { return Ok(()) };
        self.epochs.switch_on();
        self.publish_live(store);
        self.begin_overdue()?;
        if is_reader { Ok(()) } else { self.finish_rollback() }
    }

    /// Finishes a rollback that was under way when the last session ended. No other thread has the
    /// file.
    fn finish_rollback(&self) -> Result<()> {
        let Some(store) = self.snapshots.get() else { return Ok(()) };
        let number = store.rollback();
        let Some(target) = store.live().into_iter().find(|entry| entry.number == number) else {
            return Ok(());
        };
        if planted!(RollbackNotFinished) {
            return Ok(());
        }
        let lane = self.lane();
        let _one_at_a_time = self.resizing.write();
        self.catch_up(&lane, self.len())?;
        let shrinking = self.shrinking_to(&lane, target.len)?;
        let gate = self.lanes.close(Gate::Cut);
        let mut pages = store.pages_since(number);
        pages.append(&mut self.pages_cut_at(target.len)?);
        self.accept_pages(&pages)?;
        if let Some(durable) = &self.durable {
            // The recovered state becomes the one that slots belong to.
            self.durable_point_while_resizing(&lane, durable, CutGate::Closed(&gate))?;
        }
        self.growth_to(&lane, target.len)?;
        self.restore(&lane, Rest { store, target, shrinking, gate })
    }

    /// Prepares a growth to `len` bytes, if that is one. Before the intention: the file system, or
    /// a limit of the process, may refuse so long a file.
    pub(super) fn growth_to(&self, lane: &InUse<'_>, len: u64) -> Result<()> {
        let old = self.len();
        if len > old { self.prepare_growth(lane, (old, len), &[]) } else { Ok(()) }
    }

    /// Undoes a growth that was prepared for what has failed. If that fails as well, the next
    /// change of the length does it. The caller holds `resizing`.
    pub(super) fn undo_growth(&self, lane: &InUse<'_>) {
        if self.is_usable() {
            let _later_otherwise = self.catch_up(lane, self.len());
        }
    }

    pub(super) fn shrinking_to(&self, lane: &InUse<'_>, len: u64) -> Result<Option<Shrinking<'_>>> {
        (len < self.len()).then(|| self.prepare_shrink(lane, len)).transpose()
    }

    /// Steps 3 to 5. An error poisons the handle while the gate, and the locks of step 4, are
    /// closed still: otherwise a write could return that the next opening goes over.
    pub(super) fn restore(&self, lane: &InUse<'_>, mut rest: Rest<'_>) -> Result<()> {
        self.uncut_by_error(ROLLBACK, || self.restore_uncut(lane, &mut rest))
    }

    fn restore_uncut(&self, lane: &InUse<'_>, rest: &mut Rest<'_>) -> Result<()> {
        let Rest { store, target, shrinking, gate } = rest;
        let old = self.len();
        if target.len < old {
            self.keep_past(lane, target.len)?;
        }
        self.restore_pages(lane, store, target, shrinking.as_ref())?;
        if let Some(shrinking) = shrinking.take() {
            self.finish_shrink(lane, target.len, shrinking, CutGate::Closed(gate))?;
        } else if let Some(durable) = &self.durable {
            if target.len > old {
                durable.on_grow();
            }
            self.durable_point_while_resizing(lane, durable, CutGate::Closed(gate))?;
        }
        self.change_table(lane, store, |table| table.rollback = 0)
    }

    /// Step 4.
    fn restore_pages(
        &self,
        lane: &InUse<'_>,
        store: &Store,
        target: &Entry,
        shrinking: Option<&Shrinking<'_>>,
    ) -> Result<()> {
        let pages = pages_of(store, target);
        let mut plans = Plans::new();
        {
            let _pinned = lane.pin();
            for page in &pages {
                let (index, mask) = (page.region(), 1 << page.in_region());
                plan::add_locked(&mut plans, index, mask, |index| self.region(index))?;
            }
        }
        if let Some(&Shrinking { boundary: (index, region), .. }) = shrinking {
            plan::add_locked(&mut plans, index, !0, |_| Ok::<_, Error>(region))?;
        }
        let held = plan::lock_all(&plans);
        self.clear_stamps(&plans);
        let is_other_len = target.len != self.len();
        self.uncut_by_error(ROLLBACK, || {
            self.restore_held(lane, (store, target), &pages, &held)?;
            if is_other_len { self.commit_len(lane, target.len, &held) } else { Ok(()) }
        })?;
        if is_other_len {
            own_changes::note_length(self.number(), None, shrinking.map(|_| target.len));
        } else {
            // As `commit_len` does.
            unless!(RollbackNotCounted, self.other_changes.fetch_add(1, Ordering::Relaxed));
        }
        self.note_restored(&plans);
        Ok(())
    }

    /// Stores the slices of pages that are locked.
    fn restore_held(
        &self,
        lane: &InUse<'_>,
        (store, target): (&Store, &Entry),
        pages: &[PageIndex],
        held: &[LockGuard<'_>],
    ) -> Result<()> {
        let mut restored = Vec::new();
        let mut rest = pages;
        while let Some(first) = rest.first() {
            // The pages of one region at a time: their bytes are in memory twice.
            let index = first.region();
            let count = rest.iter().take_while(|page| page.region() == index).count();
            let (now, later) = rest.split_at(count);
            rest = later;
            restored.clear();
            for page in now {
                restored.extend(self.page_of(store, *page, target)?);
            }
            self.commit_restored(lane, &restored, target.len, held)?;
        }
        Ok(())
    }

    /// Notes what this thread has changed, for the transaction closures that it is inside: they
    /// would repeat the rollback for ever.
    fn note_restored(&self, plans: &Plans<'_>) {
        for plan in plans {
            let mask = if plan.is_exclusive() { !0 } else { plan.touched };
            own_changes::note_pages(self.number(), None, plan.index, mask);
        }
    }

    /// Returns the slices of a page that the snapshot reads from records, with their bytes. Past
    /// the snapshot's end these are zeroes: a record may have bytes there of an append that was
    /// shown in the home file.
    fn page_of(
        &self,
        store: &Store,
        page: PageIndex,
        target: &Entry,
    ) -> Result<Option<Restored<'_>>> {
        let mut bytes = [0; PAGE];
        let others = load_kept(store, page, target.number, Slices::ALL, &mut bytes)?;
        unless!(RestoresPastTheEnd, zero_past(page, target.len, &mut bytes));
        let slices = Slices::ALL.without(others);
        if slices.is_empty() {
            return Ok(None);
        }
        let of_slice = |n: usize| &bytes[n * SLICE..(n + 1) * SLICE];
        let bytes = bits(slices.0).flat_map(of_slice).copied().collect();
        Ok(Some(Restored::new(page, self.region(page.region())?, slices, bytes)))
    }
}

/// Returns the pages that a rollback puts back, in ascending order.
fn pages_of(store: &Store, target: &Entry) -> Vec<PageIndex> {
    let mut pages = store.pages_since(target.number);
    pages.retain(|page| page.start() < target.len);
    pages
}

/// The rest of a rollback after step 2.
pub(super) struct Rest<'e> {
    pub store: &'e Store,
    pub target: Entry,
    pub shrinking: Option<Shrinking<'e>>,
    /// Held to the end: no operation goes by a state in between.
    pub gate: ClosedGate<'e>,
}
