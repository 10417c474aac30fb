//! Gives the file the state of another file's snapshot, as one operation.
//!
//! The state becomes a snapshot of this file, by records of its own in the store. Then the file is
//! rolled back to it. So the commit point is the table that has both: the new snapshot, and that a
//! rollback to it is under way. The steps:
//! 1. Beside writers, the content sum of the present is computed (`seen`), and the table gives the
//!    new snapshot its number. Otherwise, after a crash, records without a snapshot would count for
//!    the next one that is sealed.
//! 2. The present becomes a state that can be sealed, and no operation is inside the gate of cuts
//!    until the end. Its content sum must be that of the changes' base: pages that have changed are
//!    read again.
//! 3. What live snapshots read from the slots of the pages that change is kept, durably, and the
//!    space of the new state is allocated. Without this an older snapshot would read the new
//!    records: a snapshot reads the oldest record of its epoch or a later one. What a shorter
//!    length takes from live snapshots is kept as well.
//! 4. The changed slices are appended under the new number, durably. Slices that the file has
//!    already are left out: a stream says in few bytes that pages are zero.
//! 5. The table gets the entry, and says that the rollback is under way: **the commit point**.
//! 6. The steps of a rollback from there on.
//!
//! A crash before step 5 leaves the present, and records that no snapshot needs. After it an
//! opening finishes the rollback. Every error up to step 5 changes nothing.
//!
//! May import the other rooms of snapshots, `write`, `resize`, `durable`, `commit`, `keep`, `io`,
//! `plan`, `pair`, and what lies below them.

use super::export::{differing, next_page};
use super::rollback::Rest;
use super::seen::Seen;
use crate::bitmap::{Slices, bits};
use crate::engine::Engine;
use crate::engine::durable::point::CutGate;
use crate::engine::verify::zero_past;
use crate::error::{Error, Result, StreamError};
use crate::format::export::{self, Change, Header, Point};
use crate::format::snapshots::segment::{Record, SealSum};
use crate::format::snapshots::table::{Entry, Flags};
use crate::lock::lock_page;
use crate::mutant::{planted, unless};
use crate::page_sum;
use crate::pair::log::lanes::InUse;
use crate::pair::region::RegionState;
use crate::pair::snapshots::Store;
use crate::pair::stats::Counter;
use crate::units::{PAGE, PAGES_PER_REGION, PageIndex, RegionIndex, SLICE};
use std::collections::BTreeMap;
use std::ops::Range;

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

/// Pages of a file: a word for each region that has one of them.
#[derive(Default)]
struct Pages(BTreeMap<RegionIndex, u64>);

impl Pages {
    fn add(&mut self, page: PageIndex) {
        *self.0.entry(page.region()).or_default() |= 1 << page.in_region();
    }

    fn have(&self, page: PageIndex) -> bool {
        self.0.get(&page.region()).is_some_and(|pages| pages >> page.in_region() & 1 == 1)
    }
}

/// Puts the slices of a change into a page. What a whole state does not have is zero.
fn put(change: &Change, body: &[u8], is_whole: bool, page: &mut [u8; PAGE]) {
    if is_whole {
        page.fill(0);
    }
    change.put(body, page);
}

impl Engine {
    /// Gives the file the received state, and seals it under the sender's name. `replaces` says
    /// that a whole state may replace the content that there is. Returns the new snapshot.
    pub fn import(&self, received: &dyn Received, replaces: bool) -> Result<Entry> {
        self.check_usable()?;
        self.check_writable()?;
        let header = received.header();
        // Before the base is read, which takes long. What has passed may have changed by then.
        self.check_unread(header, replaces)?;
        // After a failure the present is read behind the gate, which returns the error.
        let mut seen = header.base.as_ref().and_then(|_| self.see_present().ok());
        let imported = {
            let lane = self.lane();
            let _one_at_a_time = self.resizing.write();
            self.check_usable_still()?;
            self.check_unread(header, replaces)?;
            let imported = self.import_held(&lane, received, &mut seen);
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
        seen: &mut Option<Seen>,
    ) -> Result<Entry> {
        let header = received.header();
        let to = &header.to;
        self.catch_up(lane, self.len())?;
        let store = self.store_or_make()?;
        let number = self.change_table(lane, store, |table| {
            unless!(ImportNumberNotGiven, table.highest += 1);
            table.highest + u64::from(planted!(ImportNumberNotGiven))
        })?;
        self.switch_on();
        if let Some(durable) = &self.durable {
            // Beside writers, so that the point behind the gate is of what they change meanwhile.
            self.durable_point_while_resizing(lane, durable, CutGate::Open)?;
            if seen.is_some() {
                self.sum_of_present(seen)?;
            }
        }
        let shrinking = self.shrinking_to(lane, to.len)?;
        let gate = self.close_cut()?;
        if let Some(durable) = &self.durable {
            self.durable_point_while_resizing(lane, durable, CutGate::Closed(&gate))?;
        }
        let base_sum = self.check_base(header, seen)?;
        self.growth_to(lane, to.len)?;
        unless!(ImportCutsDamage, self.check_cut(to.len)?);
        let pages = self.prepare_pages(lane, store, received, base_sum)?;
        // Step 6 finds nothing more to keep, and so needs no space.
        unless!(ImportCutsUnkept, self.keep_past(lane, to.len)?);
        // Orders what is kept before the new records.
        unless!(ImportKeepsNotDurable, self.settle_store(lane, store)?);
        let appended = self.append_received(lane, store, received, (number, &pages))?;
        // Orders the records before the table.
        unless!(ImportRecordsNotDurable, self.settle_store(lane, store)?);
        let (len, nanos, name) = (to.len, to.nanos, to.name.clone());
        let entry = Entry { number, len, nanos, flags: Flags::default(), name };
        self.reserve_record(store, &entry)?;
        self.change_live(lane, store, |table| {
            table.highest = number;
            table.entries.push(entry.clone());
            unless!(ImportNotSaid, table.rollback = number);
        })?;
        lane.stats.bump(Counter::Snapshots, 1);
        // Not before the snapshot is live: a limit of bytes is looked at again when this count has
        // grown, and counts what live snapshots need.
        lane.stats.bump(Counter::KeptSlices, appended);
        let rest = Rest { store, target: entry.clone(), shrinking, gate };
        self.restore(lane, rest)?;
        Ok(entry)
    }

    /// Fails if the file refuses the stream whatever its bytes are.
    fn check_unread(&self, header: &Header, replaces: bool) -> Result<()> {
        self.check_fits(header.to.len)?;
        self.check_is_new(&header.to.name)?;
        match &header.base {
            None if replaces || self.len() == 0 => Ok(()),
            None => Err(Error::Stream { path: self.path(), why: StreamError::NotEmpty }),
            Some(base) if base.len == self.len() || planted!(ImportAnyBase) => Ok(()),
            Some(base) => Err(self.wrong_base((base, header.base_sum), None)),
        }
    }

    fn wrong_base(&self, (base, sum): (&Point, u64), found_sum: Option<u64>) -> Error {
        let (base, len, found_len) = (base.name.clone(), base.len, self.len());
        let why = StreamError::WrongBase { base, len, sum, found_len, found_sum };
        Error::Stream { path: self.path(), why }
    }

    /// Returns the content sum of the present, which is that of the base: 0 for a whole file. Fails
    /// if the present, which has the length of the base, has other bytes.
    fn check_base(&self, header: &Header, seen: &mut Option<Seen>) -> Result<u64> {
        let Some(base) = &header.base else { return Ok(0) };
        let sum = header.base_sum;
        match self.sum_of_present(seen)? {
            found if found == sum || planted!(ImportAnyBase) => Ok(sum),
            found => Err(self.wrong_base((base, sum), Some(found))),
        }
    }

    /// Step 3. Also fails if the changes do not lead to the stated content. Returns the pages that
    /// the stream has, if it is of a whole state.
    fn prepare_pages(
        &self,
        lane: &InUse<'_>,
        store: &Store,
        received: &dyn Received,
        base_sum: u64,
    ) -> Result<Pages> {
        let header = received.header();
        let is_whole = header.base.is_none();
        let (mut pages, mut sum) = (Pages::default(), base_sum);
        let stated = received.each_frame(&mut |changes, body| {
            for change in changes {
                let put = |to: &mut [u8; PAGE]| put(change, body, is_whole, to);
                let old = self.prepare_page(lane, store, change.page, put)?;
                let old = if is_whole { [0; PAGE] } else { old };
                let mut new = old;
                put(&mut new);
                sum ^= export::page_sum(change.page, &old) ^ export::page_sum(change.page, &new);
                if is_whole {
                    pages.add(change.page);
                }
            }
            Ok(())
        })?;
        let end = next_page(header.to.len);
        self.each_nonzero(if is_whole { 0 } else { end }, |page, bytes| {
            if !is_whole {
                sum ^= export::page_sum(page, bytes);
            } else if page.start() < end && !pages.have(page) {
                // It becomes zero, as the stream does not have it.
                self.prepare_page(lane, store, page, |to| to.fill(0))?;
            }
            Ok(())
        })?;
        if sum != stated && !planted!(ImportAnyResult) {
            return Err(Error::Stream { path: self.path(), why: StreamError::WrongResult });
        }
        Ok(pages)
    }

    /// Keeps the slices of a page that `put` changes, for the live snapshots, and allocates their
    /// free slots. Returns the page as it is. A page that stays as it is takes no space.
    fn prepare_page(
        &self,
        lane: &InUse<'_>,
        store: &Store,
        page: PageIndex,
        put: impl Fn(&mut [u8; PAGE]),
    ) -> Result<[u8; PAGE]> {
        let changed = |bytes: &[u8; PAGE]| {
            let mut new = *bytes;
            put(&mut new);
            differing(bytes, &new)
        };
        let mut bytes = [0; PAGE];
        let is_past = page.start() >= self.len();
        if is_past && changed(&bytes).is_empty() {
            return Ok(bytes);
        }
        let (region, _held) = self.lock_to_read(lane, page)?;
        let n = page.in_region();
        if !is_past {
            // A damaged page would fail behind the commit point: nothing is kept of it.
            unless!(ImportOverDamage, self.verify_under_lock(lane, page, region)?);
            bytes = self.load_page(page, region, self.len())?;
        }
        let slices = changed(&bytes);
        if slices.is_empty() {
            return Ok(bytes);
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
            let record = Record { epoch, page, mask: owed, sum: SealSum::Unknown };
            self.append(lane, store, record, &bytes)?;
            lane.stats.bump(Counter::KeptSlices, owed.count() as u64);
        }
        // Orders the keeps before the lock opens.
        self.drain(lane);
        Ok(bytes)
    }

    /// Step 4. `pages` are those that a stream of a whole state has. Returns the number of slices
    /// that were appended.
    fn append_received(
        &self,
        lane: &InUse<'_>,
        store: &Store,
        received: &dyn Received,
        (number, pages): (u64, &Pages),
    ) -> Result<u64> {
        let header = received.header();
        let is_whole = header.base.is_none();
        let mut appended = 0;
        received.each_frame(&mut |changes, body| {
            for change in changes {
                let (page, mut bytes) = (change.page, [0; PAGE]);
                if page.start() < self.len() {
                    bytes = self.present(lane, page)?;
                }
                let old = bytes;
                put(change, body, is_whole, &mut bytes);
                let mask = differing(&old, &bytes);
                appended += mask.count() as u64;
                if !mask.is_empty() {
                    let sum = self.received_sum(lane, (page, mask), header.to.len, bytes)?;
                    self.append(lane, store, Record { epoch: number, page, mask, sum }, &bytes)?;
                }
            }
            Ok(())
        })?;
        if !is_whole {
            return Ok(appended);
        }
        self.each_nonzero(0, |page, bytes| {
            if pages.have(page) || page.start() >= header.to.len {
                return Ok(());
            }
            let sum = if self.has_sums() { SealSum::Known(0) } else { SealSum::Unknown };
            let mask = differing(bytes, &[0; PAGE]);
            appended += mask.count() as u64;
            self.append(lane, store, Record { epoch: number, page, mask, sum }, &[0; PAGE])
        })?;
        Ok(appended)
    }

    /// Returns the stored sum that a page has in a state of `len` bytes, in which it has these
    /// bytes. Others than the received slices are those of the present page. It is not known if the
    /// file has no page sums, or the present page is damaged.
    fn received_sum(
        &self,
        lane: &InUse<'_>,
        (page, received): (PageIndex, Slices),
        len: u64,
        mut bytes: [u8; PAGE],
    ) -> Result<SealSum> {
        if !self.has_sums() || planted!(ReceivedWithoutSum) {
            return Ok(SealSum::Unknown);
        }
        if received != Slices::ALL && page.start() < self.len() {
            let (region, _held) = self.lock_to_read(lane, page)?;
            match self.check_under_lock(lane, page, region) {
                Err(Error::Damaged { .. }) => return Ok(SealSum::Unknown),
                verified => verified?,
            }
        }
        zero_past(page, len, &mut bytes);
        Ok(SealSum::Known(page_sum::stored(page, page_sum::of_page(&bytes))))
    }

    /// Returns a page of the present.
    fn present(&self, lane: &InUse<'_>, page: PageIndex) -> Result<[u8; PAGE]> {
        let (region, _held) = self.lock_to_read(lane, page)?;
        self.load_page(page, region, self.len())
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
        self.append_uncut(lane, store, (1, slices.count()), |appender| {
            appender.keep(record, &bytes);
            Ok(())
        })?;
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
        let mut of = self.state.loaded_regions();
        of.try_for_each(|region| self.each_nonzero_of(region, start..len, &mut take))
    }

    fn each_nonzero_of(
        &self,
        (index, region): (RegionIndex, &RegionState),
        range: Range<u64>,
        take: &mut impl FnMut(PageIndex, &[u8; PAGE]) -> Result<()>,
    ) -> Result<()> {
        for n in 0..PAGES_PER_REGION {
            let page = index.page(n);
            if !range.contains(&page.start()) {
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
        Ok(())
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;
    use crate::engine::snapshots::{LEN_OF_TEST, open_for_test};

    /// A stream that ends before its first frame.
    struct Headed(Header);

    impl Received for Headed {
        fn header(&self) -> &Header {
            &self.0
        }

        fn each_frame(&self, _: TakeFrame<'_>) -> Result<u64> {
            Ok(0)
        }
    }

    /// A stream of another base, or of a snapshot that is there, was refused once the whole file
    /// was read.
    #[test]
    fn a_stream_that_is_refused_by_name_or_length_reads_no_page() {
        let dir = crate::doctest_dir();
        let file = open_for_test(&dir);
        file.write_at(&vec![7; LEN_OF_TEST as usize], 0).expect("write");
        file.snapshot("there").expect("seal");
        file.close(crate::CloseMode::Fast).expect("close");
        let file = open_for_test(&dir);
        let engine = file.engine();
        let regions = || engine.state.loaded_regions().count();
        let before = regions();
        assert!(before < 4, "an opening reads no page");
        let import = |base_len: u64, name: &str| {
            let stream = Headed(header(base_len, 1, name));
            let error = engine.import(&stream, false).expect_err("it is refused");
            (error.to_string(), regions())
        };
        let (error, read) = import(LEN_OF_TEST + 1, "new");
        assert!(error.contains("(1048576 bytes and not 1048577 with the sum 0x1)"), "{error}");
        assert_eq!(read, before);
        let (error, read) = import(LEN_OF_TEST, "there");
        assert!(error.contains("there"), "{error}");
        assert_eq!(read, before);
        let (error, read) = import(LEN_OF_TEST, "new");
        assert!(error.contains("(1048576 bytes with the sum 0x"), "{error}");
        assert_eq!(read, 4);
    }

    fn header(base_len: u64, base_sum: u64, name: &str) -> Header {
        let point = |len, name: &str| Point { number: 1, len, nanos: 0, name: name.to_owned() };
        let (base, to) = (Some(point(base_len, "base")), point(LEN_OF_TEST, name));
        Header { first_frame: 0, uuid: [0; 16], base, base_sum, to }
    }
}
