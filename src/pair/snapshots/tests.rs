//! Tests of each rule of the store by itself. Those against a model are in `model`.
//!
//! May import the rest of `pair::snapshots`, and the platform.

use super::*;
use crate::format::snapshots::segment::record_len;
use crate::format::snapshots::table::Flags;
use crate::format::snapshots::{SEGMENT, SEGMENTS, SegmentIndex};
use crate::platform::recorder::{Recorder, What};
use crate::platform::{FileId, OpenHow, Persistence, Platform};
use crate::units::{LaneIndex, PAGE, SLICE};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;

/// Sizes of a store's contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct StoreStats {
    /// Bytes of segments that are allocated, as far as is known.
    pub allocated: u64,
    /// Bytes of segments in use. The others serve the next keeps.
    pub used: u64,
    /// Keep records that are named.
    pub records: u64,
}

impl Store {
    /// Walks through the index.
    pub(super) fn stats(&self) -> StoreStats {
        let (allocated, mut records) = (self.segments.lock().allocated(), 0);
        self.index.for_each_page(|_, of_page| records += of_page.len() as u64);
        StoreStats { allocated, used: self.used(), records }
    }
}

const UUID: [u8; 16] = *b"0123456789abcdef";
const REACH: u64 = 64 << 20;

/// A path of a file in memory, which is removed on drop.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let shm = Path::new("/dev/shm");
        let folder = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
        Scratch(folder.join(format!("atomic-mmap-store-{}-{number}", std::process::id())))
    }

    fn mapped(&self, platform: &Platform) -> MappedFile {
        let how = OpenHow { create_new: !self.0.exists(), mode: 0o600, reads_only: false };
        let file = platform.open(&platform.name(&self.0).unwrap(), how).unwrap();
        let len = platform.stat(&file).unwrap().len;
        let mapping = platform.map(&file, REACH, false).unwrap();
        MappedFile::new(platform.clone(), FileId::Snapshots, self.0.clone(), file, mapping, len)
    }

    pub(super) fn create(&self, platform: &Platform) -> Store {
        Store::create(self.mapped(platform), UUID, 1, 1).unwrap()
    }

    pub(super) fn open(&self, platform: &Platform) -> Result<Store> {
        Store::open(self.mapped(platform), UUID)
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.0).unwrap()
    }

    pub(super) fn with(bytes: &[u8]) -> Scratch {
        let scratch = Scratch::new();
        std::fs::write(&scratch.0, bytes).unwrap();
        scratch
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _best_effort = std::fs::remove_file(&self.0);
    }
}

pub(super) fn seal(store: &Store) -> u64 {
    store.change_table(|table| Ok(table.add(0, 0, Flags::default(), "s"))).unwrap()
}

pub(super) fn remove(store: &Store, number: u64) {
    assert!(store.change_table(|table| Ok(table.remove(number))).unwrap().is_some());
}

fn keep(store: &Store, lane: u16, epoch: u64, page: u64, mask: u64, fill: u8) {
    let mask = Slices(mask);
    let bytes = vec![fill; mask.count() * SLICE];
    let mut appender = store.appender(LaneIndex(lane), 1, mask.count()).unwrap();
    appender
        .keep(Record { epoch, page: PageIndex(page), mask, sum: SealSum::Known(page + 1) }, &bytes);
}

/// Returns the first bytes of slices of a snapshot, or `None` where no record has them.
pub(super) fn found(store: &Store, k: u64, page: u64) -> Result<[Option<u8>; 64]> {
    let mut slices = [None; 64];
    let mut missing = Slices::ALL;
    let rest = store.find(PageIndex(page), k, Slices::ALL, |part, bytes| {
        for n in crate::bitmap::bits(part.0) {
            let slice = bytes.run(n..n + 1);
            assert!(slice.iter().all(|byte| *byte == slice[0]), "one slice");
            assert!(slices[n].replace(slice[0]).is_none(), "found once");
        }
        missing = missing.without(part);
    })?;
    assert_eq!(rest, missing);
    Ok(slices)
}

fn settled() -> Result<()> {
    Ok(())
}

#[test]
fn the_oldest_record_since_a_snapshot_has_its_bytes() {
    let (scratch, p) = (Scratch::new(), Platform::native());
    let store = scratch.create(&p);
    let (one, two, three) = (seal(&store), seal(&store), seal(&store));
    assert_eq!((one, two, three, store.highest(), store.rollback()), (1, 2, 3, 3, 0));
    keep(&store, 0, 1, 7, 0b011, 10);
    keep(&store, 3, 2, 7, 0b110, 20);
    keep(&store, 0, 3, 7, 0b001, 30);
    let first = |k| found(&store, k, 7).unwrap()[..4].to_vec();
    assert_eq!(first(1), [Some(10), Some(10), Some(20), None]);
    assert_eq!(first(2), [Some(30), Some(20), Some(20), None]);
    assert_eq!(first(3), [Some(30), None, None, None]);
    assert_eq!(store.kept_since(PageIndex(7), 2), Slices(0b111));
    assert_eq!(store.kept_since(PageIndex(7), 3), Slices(0b001));
    assert_eq!(store.kept_since(PageIndex(8), 0), Slices::NONE);
    keep(&store, 0, 3, 2, 1, 1);
    assert_eq!(store.pages_since(1), [PageIndex(2), PageIndex(7)]);
    assert_eq!(store.pages_since(4), []);
    assert_eq!(store.stats().records, 4);
    assert_eq!(store.held(), BTreeMap::from([(one, 128), (two, 64), (three, 0)]));
    // Each record has 64 bytes more. The second one serves the first snapshot as well.
    let drops = |order: &[u64], most| store.drops_for(order, most);
    assert_eq!(drops(&[one, two], u64::MAX), (0, 704));
    assert_eq!(drops(&[one, two], 512), (1, 512));
    assert_eq!(drops(&[one, two], 0), (2, 256));
    assert_eq!(drops(&[two], 0), (1, 576));
}

#[test]
fn a_store_that_was_dropped_is_found_again_under_a_new_opening() {
    let (scratch, p) = (Scratch::new(), Platform::native());
    for session in 1..5 {
        let store = if session == 1 { scratch.create(&p) } else { scratch.open(&p).unwrap() };
        assert_eq!(store.damage(), None);
        if session > 1 {
            assert!(store.is_unsynced(), "what was found");
            store.begin(session, 0, session).unwrap();
        }
        let start = scratch.bytes();
        assert_eq!(Table::newest(&start, &UUID).unwrap().opening, session);
        assert_eq!(store.live().len() as u64, session - 1);
        let k = seal(&store);
        for page in 0..session {
            keep(&store, 0, k, page, 1, session as u8);
        }
        assert!(store.is_unsynced());
        store.sync().unwrap();
        assert!(!store.is_unsynced());
    }
    let store = scratch.open(&p).unwrap();
    assert_eq!(store.stats().records, 1 + 2 + 3 + 4);
    assert_eq!(found(&store, 1, 3).unwrap()[0], Some(4));
    assert_eq!(found(&store, 1, 0).unwrap()[0], Some(1));
}

#[test]
fn what_another_file_says_is_no_store() {
    let (scratch, p) = (Scratch::new(), Platform::native());
    assert!(scratch.open(&p).is_err(), "no bytes");
    drop(scratch.create(&p));
    assert!(Store::open(scratch.mapped(&p), *b"another's UUID!!").is_err());
    let bytes = scratch.bytes();
    let cut = Scratch::with(&bytes[..100]);
    assert!(cut.open(&p).is_err());
}

#[test]
fn a_change_that_fails_changes_nothing() {
    let (scratch, p) = (Scratch::new(), Platform::native());
    let store = scratch.create(&p);
    let before = scratch.bytes();
    let failed: Result<()> = store.change_table(|table| {
        table.highest = 9;
        Err(damaged(&store.file, 0))
    });
    assert!(failed.is_err());
    assert_eq!((store.highest(), scratch.bytes() == before), (0, true));
}

#[test]
fn wrong_kept_bytes_are_an_error_of_the_lookup() {
    let (scratch, p) = (Scratch::new(), Platform::native());
    let store = scratch.create(&p);
    let k = seal(&store);
    keep(&store, 0, k, 7, 0b11, 10);
    let at = store.index.find(PageIndex(7), k, Slices(0b10)).0[0].1.at.0;
    // The second slice of the record.
    let at = at + (RECORD_HEADER + SLICE) as u64;
    store.file.copy_in(at, &[11], Copying::Cached);
    assert!(matches!(found(&store, k, 7), Err(Error::Snapshot { .. })));
    let again = scratch.open(&p).unwrap();
    assert_eq!(again.stats().records, 0);
}

#[test]
fn records_that_contradict_the_table_are_damage() {
    let (scratch, p) = (Scratch::new(), Platform::native());
    let store = scratch.create(&p);
    let k = seal(&store);
    keep(&store, 0, k, 7, 1, 10);
    keep(&store, 0, k + 1, 8, 1, 10);
    keep(&store, 0, k, 9, 1, 10);
    let again = scratch.open(&p).unwrap();
    let second = SegmentIndex(1).start() + (SEGMENT_HEADER + record_len(Slices(1))) as u64;
    assert_eq!((again.damage(), again.stats().records), (Some(second), 2));
    // A segment of a later opening: the table is older.
    let header = SegmentHeader { opening: 2, turn: 1 }.encode(&UUID, SegmentIndex(4));
    store.file.copy_in(SegmentIndex(4).start(), &header, Copying::Cached);
    remove(&store, k);
    let mut bytes = scratch.bytes();
    bytes[SegmentIndex(1).start() as usize..][..SEGMENT].fill(0);
    let again = Scratch::with(&bytes).open(&p).unwrap();
    assert_eq!(again.damage(), Some(SegmentIndex(4).start()));
}

#[test]
fn a_lane_has_its_own_segments_and_gives_back_what_it_does_not_need() {
    let (scratch, p) = (Scratch::new(), Platform::native());
    let store = scratch.create(&p);
    let k = seal(&store);
    let all = vec![5; PAGE];
    let mut appender = store.appender(LaneIndex(2), 40, 40 * 64).unwrap();
    let mut other = store.appender(LaneIndex(9), 1, 1).unwrap();
    for page in 0..40 {
        let record =
            |page, mask| Record { epoch: k, page: PageIndex(page), mask, sum: SealSum::Unknown };
        appender.keep(record(page, Slices::ALL), &all);
        other.append(record(99, Slices(1)), &all[..SLICE]);
    }
    drop((appender, other));
    let mut owners: BTreeMap<SegmentIndex, u64> = BTreeMap::new();
    for page in store.pages_since(0) {
        let (at, lane) = (store.index.find(page, 0, Slices(1)).0[0].1.at, page.0 / 99);
        assert_eq!(*owners.entry(at.segment()).or_insert(lane), lane, "one lane");
    }
    assert_eq!(owners.len(), 3, "40 whole pages fit 3 segments");
    // Whatever the sizes are, an appender has room for what it was asked for.
    for n in 1..90 {
        let sizes: Vec<usize> = (0..n).map(|m| 1 + (m * 31 + n * 7) % 64).collect();
        let mut appender = store.appender(LaneIndex(3), n, sizes.iter().sum()).unwrap();
        for size in sizes {
            let (page, mask) = (PageIndex(7), Slices::first(size));
            appender
                .keep(Record { epoch: k, page, mask, sum: SealSum::Unknown }, &all[..size * SLICE]);
        }
    }
}

#[test]
fn a_full_file_is_a_typed_error_and_nothing_is_kept() {
    let (scratch, p) = (Scratch::new(), Platform::native());
    let store = scratch.create(&p);
    let k = seal(&store);
    let whole = SEGMENTS as usize / SEGMENT;
    let most = (REACH as usize / SEGMENT - whole) * 15;
    let error = store.appender(LaneIndex(0), most + 20, (most + 20) * 64).err();
    assert!(matches!(error, Some(Error::NoSpace { .. })), "{error:?}");
    assert_eq!(store.stats().records, 0);
    // Segments that were reserved before that are there for others.
    let mut appender = store.appender(LaneIndex(1), most / 2, most / 2 * 64).unwrap();
    let record = Record { epoch: k, page: PageIndex(1), mask: Slices(1), sum: SealSum::Unknown };
    appender.keep(record, &[1; SLICE]);
}

/// Every 64 segments took a sync and a wait for readers.
#[test]
fn hundreds_of_segments_are_freed_by_one_sync_and_one_wait() {
    let (scratch, p) = (Scratch::new(), Platform::native());
    let store = scratch.create(&p);
    let k = seal(&store);
    (0..3000).for_each(|page| keep(&store, 0, k, page, !0, 7));
    // As a sync does, where drains are not durable.
    store.segments.lock().mark_ends(&store.file, |_| true);
    remove(&store, k);
    let (waited, settles) = (Cell::new(0), Cell::new(0));
    let settle = || {
        settles.set(settles.get() + 1);
        Ok(())
    };
    let before = store.used();
    store.collect(settle, || waited.set(waited.get() + 1)).unwrap();
    assert!(store.used() + 190 * SEGMENT as u64 <= before);
    assert_eq!((waited.get(), settles.get()), (1, 1));
    assert_eq!(scratch.open(&p).unwrap().damage(), None);
}

/// A growth that failed half way left the map of ends without storage. The next growth went by the
/// length of the file, took a segment behind that, and stored its end into the hole: a SIGBUS. The
/// portable path allocates nothing.
#[cfg(all(target_os = "linux", not(atomic_mmap_portable)))]
#[test]
fn a_growth_that_fails_leaves_no_map_without_storage() {
    use crate::platform::call;
    for name in [call::SET_LEN, call::SYNC_ALL, call::ALLOCATE] {
        let (scratch, recorder) = (Scratch::new(), Recorder::new());
        let p = recorder.platform().with_persistence(Persistence::Flush);
        let store = scratch.create(&p);
        let k = seal(&store);
        recorder.fail_from(name, 1, libc::ENOSPC);
        assert!(store.appender(LaneIndex(0), 1, 1).is_err(), "{name}");
        recorder.heal();
        keep(&store, 0, k, 7, 1, 10);
        let segment = store.index.find(PageIndex(7), k, Slices(1)).0[0].1.at.segment();
        let allocated = recorder.take().into_iter().filter_map(|event| match event.what {
            What::Allocate { offset, len, .. } => Some(offset..offset + len),
            _ => None,
        });
        let allocated: Vec<_> = allocated.collect();
        for at in [segment.start(), segment.end_word_at()] {
            assert!(allocated.iter().any(|range| range.contains(&at)), "{name}: {at}");
        }
    }
}

/// The lock holder had looked for a request already, and the other thread left it to the lock
/// holder. Nothing was collected until the next drop.
#[test]
fn a_collection_that_is_wanted_at_the_end_of_another_one_is_not_lost() {
    let (scratch, p) = (Scratch::new(), Platform::native());
    let store = scratch.create(&p);
    let k = seal(&store);
    keep(&store, 0, k, 7, !0, 7);
    let mut runs = 0;
    let collect = |collection: &mut Option<Collection>| {
        while store.step(collection, &settled, &|| {})? {}
        runs += 1;
        if runs == 1 {
            remove(&store, k);
            store.want_collection();
            assert!(!store.collect_some(settled, || {})?, "this thread has the lock");
        }
        Ok(())
    };
    store.while_wanted(collect).unwrap();
    assert_eq!((runs, store.stats().records), (2, 0));
    assert!(!store.collect_some(settled, || {}).unwrap(), "nothing is left");
}

#[test]
fn dropped_snapshots_give_their_storage_back() {
    let (scratch, p) = (Scratch::new(), Platform::native());
    let store = scratch.create(&p);
    let (one, two) = (seal(&store), seal(&store));
    for page in 0..600 {
        // Every tenth page serves the older snapshot as well.
        keep(&store, 0, two, page, !0, 7);
        if page % 40 != 0 {
            keep(&store, 1, one, page, !0, 6);
        }
    }
    let before = store.stats();
    remove(&store, two);
    let (waited, settles) = (Cell::new(0), Cell::new(0));
    let old = store.index.find(PageIndex(5), two, Slices(1)).0[0].1.at.0;
    let old = old + RECORD_HEADER as u64;
    let settle = || {
        settles.set(settles.get() + 1);
        Ok(())
    };
    let wait = || {
        let mut there = [0; SLICE];
        store.file.copy_out(&mut there, old);
        assert_eq!(there, [7; SLICE], "a reader may still be there");
        waited.set(waited.get() + 1);
    };
    store.collect(settle, wait).unwrap();
    assert_eq!((waited.get(), settles.get()), (2, 1));
    let after = store.stats();
    assert_eq!((before.records, after.records), (1185, 600));
    assert!(after.used + (30 * SEGMENT as u64) < before.used, "{before:?} {after:?}");
    let is_whole = |store: &Store| {
        (0..600).all(|page| {
            let expected = if page % 40 == 0 { 7 } else { 6 };
            found(store, one, page).unwrap() == [Some(expected); 64]
        })
    };
    assert!(is_whole(&store));
    // Also those that were appended again have their sums.
    let sums_are_there =
        |store: &Store| (0..600).all(|page| store.sum_at(PageIndex(page), one) == Some(page + 1));
    assert!(sums_are_there(&store) && sums_are_there(&scratch.open(&p).unwrap()));
    assert_eq!(store.held()[&one], 600 * PAGE as u64);
    assert!(is_whole(&scratch.open(&p).unwrap()));
    remove(&store, one);
    store.collect(settled, || {}).unwrap();
    assert_eq!(store.stats().records, 0);
    // The others serve the next keeps.
    let StoreStats { allocated, used, .. } = store.stats();
    assert!(used <= 32 * SEGMENT as u64, "{used}");
    assert!(allocated <= (256 + 64) * SEGMENT as u64, "{allocated}");
    assert_eq!(scratch.open(&p).unwrap().stats().records, 0);
    // Freed segments are used again.
    let (len, k) = (store.file.len(), seal(&store));
    (0..600).for_each(|page| keep(&store, 0, k, page, !0, 8));
    assert_eq!(store.file.len(), len);
    assert_eq!(found(&scratch.open(&p).unwrap(), k, 599).unwrap(), [Some(8); 64]);
}

#[test]
fn what_is_kept_and_what_is_found_is_flushed() {
    let scratch = Scratch::new();
    let recorder = Recorder::new();
    let p = recorder.platform().with_persistence(Persistence::Flush);
    let lines = |offset: u64, len: u64| (offset / 64)..(offset + len).div_ceil(64);
    // Bytes that a drain does not cover yet.
    let dirty = |all: &mut std::collections::BTreeSet<u64>| {
        for event in recorder.take() {
            match event.what {
                What::Copy { offset, bytes, through: false, .. } => {
                    all.extend(lines(offset, bytes.len() as u64));
                }
                What::Flush { offset, len, .. } => {
                    all.retain(|line| !lines(offset, len).contains(line));
                }
                _ => {}
            }
        }
    };
    let store = scratch.create(&p);
    let k = seal(&store);
    keep(&store, 0, k, 7, 0b1011, 9);
    let mut left = Default::default();
    dirty(&mut left);
    assert_eq!(left, Default::default(), "stored and neither flushed nor streamed");
    drop(store);
    // Everything that opening relies on may be in the cache only.
    let bytes = scratch.bytes();
    left = (0..bytes.len() as u64 / 64)
        .filter(|line| bytes[*line as usize * 64..][..64].iter().any(|byte| *byte != 0))
        .collect();
    let table = Table::newest(&bytes, &UUID).unwrap();
    let is_older = |line: u64| lines(TABLES[1], 128).contains(&line);
    assert_eq!(table.place(), TABLES[0]);
    left.retain(|line| !is_older(*line));
    assert_eq!(left.len(), 3 + 1 + 1 + 3, "a table of one snapshot, and a segment");
    scratch.open(&p).unwrap();
    dirty(&mut left);
    assert_eq!(left, Default::default(), "found and not flushed");
}

#[test]
fn a_file_that_ends_anywhere_in_the_newest_segment_has_the_records_before() {
    let (scratch, p) = (Scratch::new(), Platform::native());
    let store = scratch.create(&p);
    let k = seal(&store);
    for page in 0..60 {
        keep(&store, 0, k, page, if page % 3 == 0 { !0 } else { 0b101 }, page as u8 + 1);
    }
    let bytes = scratch.bytes();
    let place = |page: u64| store.index.find(PageIndex(page), k, Slices(1)).0[0].1;
    let newest = place(59).at.segment();
    assert!(newest.0 > 0);
    let ends = (0..60).map(place).map(|kept| kept.at.0 + kept.len() as u64);
    let ends: Vec<u64> = ends.collect();
    for cut in (newest.start()..ends[59] + 200).step_by(397).chain(ends.iter().copied()) {
        if SegmentIndex::of(cut - 1) < newest {
            continue;
        }
        let there = ends.iter().filter(|end| **end <= cut).count();
        // Cut off, and zero from there on.
        for is_long in [false, true] {
            let mut bytes = bytes[..cut as usize].to_vec();
            bytes.resize(if is_long { cut as usize + 500 } else { cut as usize }, 0);
            let cut_off = Scratch::with(&bytes);
            let again = cut_off.open(&p).unwrap();
            assert_eq!((again.stats().records, again.damage()), (there as u64, None), "{cut}");
            again.begin(2, 0, 2).unwrap();
            for page in 0..there as u64 {
                assert_eq!(found(&again, k, page).unwrap()[2], Some(page as u8 + 1));
            }
            keep(&again, 0, k, 77, 1, 99);
            assert_eq!(found(&cut_off.open(&p).unwrap(), k, 77).unwrap()[0], Some(99));
        }
    }
}

/// A collection was one piece of work for seconds, and a worker that did it made no durable point.
#[test]
fn a_collection_goes_in_steps_between_which_snapshots_are_sealed() {
    const PAGES: u64 = 9000;
    let (scratch, p) = (Scratch::new(), Platform::native());
    let store = scratch.create(&p);
    let (old, gone) = (seal(&store), seal(&store));
    for page in 0..PAGES {
        // One page in 64 serves the older snapshot, which leaves sparse segments.
        let epoch = if page % 64 == 0 { old } else { gone };
        keep(&store, 0, epoch, page, 0xf, epoch as u8);
    }
    remove(&store, gone);
    assert!(!store.collect_some(settled, || ()).unwrap(), "no collection was asked for");
    store.want_collection();
    let (mut steps, mut waits) = (0, Cell::new(0));
    // Pages with a record of the older snapshot, to which the collection comes late.
    let page_of = |step: u64| (PAGES / 64 - step) * 64;
    let mut later = None;
    let mut used = store.used();
    while store.collect_some(settled, || waits.set(waits.get() + 1)).unwrap() {
        steps += 1;
        assert!(*waits.get_mut() <= steps, "a step frees once");
        assert!(
            used.saturating_sub(store.used()) <= 64 * SEGMENT as u64,
            "a step frees few segments"
        );
        used = store.used();
        let later = later.get_or_insert_with(|| seal(&store));
        // A record that is appended meanwhile for a later snapshot stays.
        keep(&store, 2, *later, page_of(steps), 1, 9);
    }
    assert!(steps > 3, "{steps} steps");
    let later = later.unwrap();
    for step in 1..=steps {
        assert_eq!(found(&store, later, page_of(step)).unwrap()[0], Some(9), "step {step}");
    }
    assert_eq!(found(&store, old, 64).unwrap()[0], Some(old as u8));
    remove(&store, old);
    remove(&store, later);
    store.want_collection();
    // Another thread's collection does all that was asked for.
    store.collect(settled, || ()).unwrap();
    assert!(!store.collect_some(settled, || ()).unwrap());
    assert_eq!(store.stats().records, 0);
}
