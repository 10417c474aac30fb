//! Gives the file the state of another file's snapshot, as one operation.
//!
//! The state becomes a snapshot of this file, by records of its own in the store. Then the file is
//! rolled back to it. So the commit point is the table that has both: the new snapshot, and that a
//! rollback to it is under way. The steps:
//! 1. The present becomes a state that can be sealed, and no operation is inside the gate of cuts
//!    until the end. The content sum of the present must be that of the changes' base.
//! 2. The table gives the new snapshot its number. Otherwise, after a crash, records without a
//!    snapshot would count for the next one that is sealed.
//! 3. What live snapshots read from the slots of the pages that change is kept, durably, and the
//!    space of the new state is allocated. Without this an older snapshot would read the new
//!    records: a snapshot reads the oldest record of its epoch or a later one. What a shorter
//!    length takes from live snapshots is kept as well.
//! 4. The changed slices are appended under the new number, durably.
//! 5. The table gets the entry, and says that the rollback is under way: **the commit point**.
//! 6. The steps of a rollback from there on.
//!
//! A crash before step 5 leaves the present, and records that no snapshot needs. After it an
//! opening finishes the rollback. Every error up to step 5 changes nothing.
//!
//! May import the other rooms of snapshots, `write`, `resize`, `durable`, `commit`, `keep`, `io`,
//! `plan`, `pair`, and what lies below them.

use super::export::next_page;
use super::rollback::Rest;
use crate::bitmap::{Slices, bits};
use crate::engine::Engine;
use crate::engine::verify::zero_past;
use crate::error::{Error, Result, StreamError};
use crate::format::export::{self, Change, Header};
use crate::format::snapshots::segment::{Record, SealSum};
use crate::format::snapshots::table::{Entry, Flags};
use crate::lock::lock_page;
use crate::mutant::{planted, unless};
use crate::page_sum;
use crate::pair::gates::Gate;
use crate::pair::log::lanes::InUse;
use crate::pair::snapshots::Store;
use crate::pair::stats::Counter;
use crate::units::{PAGE, PAGES_PER_REGION, PageIndex, SLICE};

/// A received stream: a header, and changes that can be read as often as they are needed.
pub(crate) trait Received {
    /// Returns the header.
    fn header(&self) -> &Header;

    /// Passes the changes of each frame to `take`, with their body. Returns the content sum of the
    /// new state, as the sender states it.
    fn each_frame(&self, take: TakeFrame<'_>) -> Result<u64>;
}

/// Takes the changes of a frame, and its body.
pub(crate) type TakeFrame<'a> = &'a mut dyn FnMut(&[Change], &[u8]) -> Result<()>;

impl Engine {
    /// Gives the file the received state, and seals it under the sender's name. `replaces` says
    /// that a whole state may replace the content that there is. Returns the new snapshot.
    pub fn import(&self, received: &dyn Received, replaces: bool) -> Result<Entry> {
        self.check_usable()?;
        self.check_writable()?;
        let (len, name) = (received.header().to.len, &received.header().to.name);
        self.check_fits(len)?;
        let imported = {
            let lane = self.lane();
            let _one_at_a_time = self.resizing.write();
            self.check_is_new(name)?;
            let imported = self.import_held(&lane, received, replaces);
            imported.inspect_err(|_| self.undo_growth(&lane))
        };
        if imported.is_err() && self.check_usable().is_ok() {
            // Records without a snapshot take space. The next drop gives it back otherwise.
            let _given_back_later = self.collect_snapshots();
        }
        imported
    }

    /// Imports, while the caller holds `resizing`.
    fn import_held(
        &self,
        lane: &InUse<'_>,
        received: &dyn Received,
        replaces: bool,
    ) -> Result<Entry> {
        let header = received.header();
        let to = &header.to;
        self.catch_up(lane, self.len())?;
        let shrinking = self.shrinking_to(lane, to.len)?;
        self.switch_on();
        let gate = self.lanes.close(Gate::Cut);
        if let Some(durable) = &self.durable {
            self.durable_point_while_resizing(lane, durable, Some(&gate))?;
        }
        let base_sum = self.check_base(header, replaces)?;
        let store = self.store_or_make()?;
        let number = self.change_table(lane, store, |table| {
            unless!(ImportNumberNotGiven, table.highest += 1);
            table.highest + u64::from(planted!(ImportNumberNotGiven))
        })?;
        self.growth_to(lane, to.len)?;
        unless!(ImportCutsDamage, self.check_cut(to.len)?);
        self.prepare_pages(lane, store, received, base_sum)?;
        // Step 6 finds nothing more to keep, and so needs no space.
        unless!(ImportCutsUnkept, self.keep_past(lane, to.len)?);
        // Orders what is kept before the new records.
        unless!(ImportKeepsNotDurable, self.settle_store(lane, store)?);
        self.append_received(lane, store, received, number)?;
        // Orders the records before the table.
        unless!(ImportRecordsNotDurable, self.settle_store(lane, store)?);
        let (len, nanos, name) = (to.len, to.nanos, to.name.clone());
        let entry = Entry { number, len, nanos, flags: Flags::default(), name };
        self.change_table(lane, store, |table| {
            table.highest = number;
            table.entries.push(entry.clone());
            unless!(ImportNotSaid, table.rollback = number);
        })?;
        self.publish_live(store);
        lane.stats.bump(Counter::Snapshots, 1);
        let rest = Rest { store, target: entry.clone(), shrinking, gate };
        self.restore(lane, rest).inspect_err(|error| self.poison(error))?;
        Ok(entry)
    }

    /// Returns the content sum of the present, which is that of the base: 0 for a whole file. Fails
    /// if the present is another state.
    fn check_base(&self, header: &Header, replaces: bool) -> Result<u64> {
        let error = |why| Error::Stream { path: self.path(), why };
        let Some(base) = &header.base else {
            let is_free = replaces || self.len() == 0;
            return if is_free { Ok(0) } else { Err(error(StreamError::NotEmpty)) };
        };
        let (found_len, (len, sum)) = (self.len(), (base.len, header.base_sum));
        let mut found_sum = 0;
        self.each_nonzero(0, |page, bytes| {
            found_sum ^= export::page_sum(page, bytes);
            Ok(())
        })?;
        if (found_len, found_sum) == (len, sum) || planted!(ImportAnyBase) {
            return Ok(sum);
        }
        let base = base.name.clone();
        Err(error(StreamError::WrongBase { base, len, sum, found_len, found_sum }))
    }

    /// Step 3. Also fails if the changes do not lead to the stated content.
    fn prepare_pages(
        &self,
        lane: &InUse<'_>,
        store: &Store,
        received: &dyn Received,
        base_sum: u64,
    ) -> Result<()> {
        let header = received.header();
        let is_whole = header.base.is_none();
        let mut sum = base_sum;
        let stated = received.each_frame(&mut |changes, body| {
            for change in changes {
                let slices = if is_whole { Slices::ALL } else { change.slices };
                let mut page = self.prepare_page(lane, store, change.page, slices)?;
                if is_whole {
                    page.fill(0);
                }
                sum ^= export::page_sum(change.page, &page);
                change.put(body, &mut page);
                sum ^= export::page_sum(change.page, &page);
            }
            Ok(())
        })?;
        let end = next_page(header.to.len);
        self.each_nonzero(if is_whole { 0 } else { end }, |page, bytes| {
            if is_whole && page.start() < end {
                // It becomes zero if the stream does not have it.
                self.prepare_page(lane, store, page, Slices::ALL)?;
            } else if !is_whole {
                sum ^= export::page_sum(page, bytes);
            }
            Ok(())
        })?;
        if sum != stated && !planted!(ImportAnyResult) {
            return Err(Error::Stream { path: self.path(), why: StreamError::WrongResult });
        }
        Ok(())
    }

    /// Keeps slices of a page for the live snapshots, and allocates their free slots. Returns the
    /// page as it is.
    fn prepare_page(
        &self,
        lane: &InUse<'_>,
        store: &Store,
        page: PageIndex,
        slices: Slices,
    ) -> Result<[u8; PAGE]> {
        let mut bytes = [0; PAGE];
        let region = {
            let _pinned = lane.pin();
            self.region(page.region())?
        };
        let (n, is_past) = (page.in_region(), page.start() >= self.len());
        let held = lock_page(&region.lock, &region.pages[n].lock);
        held.mark_stable();
        if !is_past {
            // A damaged page would fail behind the commit point: nothing is kept of it.
            unless!(ImportOverDamage, self.verify_under_lock(lane, page, region)?);
            self.load_slices(page, region.validity(n), Slices::ALL, &mut bytes)?;
        }
        self.ensure_free_slots(lane, page, slices, region.validity(n), true)?;
        if planted!(ImportKeepsNothing) {
            return Ok(bytes);
        }
        if !is_past {
            self.keep(lane, std::iter::once((page, slices)))?;
        } else if let epoch @ 1.. = self.epochs.newest_reaching(page)
            && !planted!(ImportKeepsNoZeros)
        {
            // A shrink leaves out slices of zeros: past the end a snapshot reads zeros.
            let owed = slices.without(store.kept_since(page, epoch));
            self.append(
                lane,
                store,
                Record { epoch, page, mask: owed, sum: SealSum::Unknown },
                &bytes,
            )?;
        }
        // Orders the keeps before the lock opens.
        self.drain(lane);
        Ok(bytes)
    }

    /// Step 4.
    fn append_received(
        &self,
        lane: &InUse<'_>,
        store: &Store,
        received: &dyn Received,
        number: u64,
    ) -> Result<()> {
        let header = received.header();
        let is_whole = header.base.is_none();
        received.each_frame(&mut |changes, body| {
            for change in changes {
                let mask = if is_whole { Slices::ALL } else { change.slices };
                let (page, mut bytes) = (change.page, [0; PAGE]);
                change.put(body, &mut bytes);
                let put = |whole: &mut [u8; PAGE]| change.put(body, whole);
                let sum = self.received_sum(lane, (page, mask), header.to.len, put)?;
                self.append(lane, store, Record { epoch: number, page, mask, sum }, &bytes)?;
            }
            Ok(())
        })?;
        if !is_whole {
            return Ok(());
        }
        self.each_nonzero(0, |page, _| {
            let is_received = !store.kept_since(page, number).is_empty();
            if is_received || page.start() >= header.to.len {
                return Ok(());
            }
            let sum = if self.has_sums() { SealSum::Known(0) } else { SealSum::Unknown };
            let record = Record { epoch: number, page, mask: Slices::ALL, sum };
            self.append(lane, store, record, &[0; PAGE])
        })
    }

    /// Returns the stored sum that a page has in a state of `len` bytes, of which `put` puts the
    /// received slices into the present page. It is not known if the file has no page sums, or the
    /// present page is damaged.
    fn received_sum(
        &self,
        lane: &InUse<'_>,
        (page, received): (PageIndex, Slices),
        len: u64,
        put: impl Fn(&mut [u8; PAGE]),
    ) -> Result<SealSum> {
        if !self.has_sums() || planted!(ReceivedWithoutSum) {
            return Ok(SealSum::Unknown);
        }
        let mut bytes = [0; PAGE];
        if received != Slices::ALL && page.start() < self.len() {
            let region = {
                let _pinned = lane.pin();
                self.region(page.region())?
            };
            let n = page.in_region();
            let held = lock_page(&region.lock, &region.pages[n].lock);
            held.mark_stable();
            match self.check_under_lock(lane, page, region) {
                Err(Error::Damaged { .. }) => return Ok(SealSum::Unknown),
                verified => verified?,
            }
            bytes = self.load_page(page, region, self.len())?;
        }
        put(&mut bytes);
        zero_past(page, len, &mut bytes);
        Ok(SealSum::Known(page_sum::stored(page, page_sum::of_page(&bytes))))
    }

    /// Appends a record with its slices of `bytes`, a whole page. Does nothing if it has none.
    pub(super) fn append(
        &self,
        lane: &InUse<'_>,
        store: &Store,
        record: Record,
        bytes: &[u8; PAGE],
    ) -> Result<()> {
        let Record { epoch, page, mask: slices, .. } = record;
        if slices.is_empty() {
            return Ok(());
        }
        let of_slice = |n: usize| &bytes[n * SLICE..(n + 1) * SLICE];
        let bytes: Vec<u8> = bits(slices.0).flat_map(of_slice).copied().collect();
        let appender = store.appender(lane.index(), 1, slices.count());
        // The store could not make its new length durable.
        let mut appender = appender.inspect_err(|error| {
            if error.leaves_doubt() {
                self.poison(error);
            }
        })?;
        appender.keep(record, &bytes);
        // A page that remembers an older snapshot would else have nothing kept for the new one, and
        // the rollback would keep all of it behind the commit point. No operation is under way.
        if let Some(region) = self.state.loaded(page.region())
            && let Some(known) = region.kept_since(page.in_region(), epoch)
        {
            let known = known.or(slices);
            unless!(ImportNotRemembered, region.set_kept_since(page.in_region(), epoch, known));
        }
        Ok(())
    }

    /// Passes each page of the present from byte `start` on that is not zero to `take`. No
    /// operation is inside the gate of cuts, and the caller holds `resizing`.
    fn each_nonzero(
        &self,
        start: u64,
        mut take: impl FnMut(PageIndex, &[u8; PAGE]) -> Result<()>,
    ) -> Result<()> {
        let len = self.len();
        if start >= len {
            return Ok(());
        }
        self.load_regions_with_bytes(start..len)?;
        for (index, region) in self.state.loaded_regions() {
            for n in 0..PAGES_PER_REGION {
                let page = index.page(n);
                if !(start..len).contains(&page.start()) {
                    continue;
                }
                let mut bytes = [0; PAGE];
                {
                    let held = lock_page(&region.lock, &region.pages[n].lock);
                    held.mark_stable();
                    self.load_slices(page, region.validity(n), Slices::ALL, &mut bytes)?;
                }
                if bytes != [0; PAGE] {
                    take(page, &bytes)?;
                }
            }
        }
        Ok(())
    }
}
