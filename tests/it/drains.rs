//! Tests how many drains each write protocol takes, and the order of its steps.
//!
//! The tests run on the recording platform, with RAM treated as persistent memory. They repeat
//! every operation a few times before they count, so that allocation and the claim of a lane are
//! over. They follow the bitmap words through the whole trace. So each data store can be compared
//! with the slots that were valid at that time.

use crate::common::{self, Ground, Rng, Scratch};
use atomic_mmap::testing::recorder::{Event, Recorder, What};
use atomic_mmap::testing::{FileId, LaneIndex, PageIndex, RegionIndex, call, layout};
use atomic_mmap::{AtomicMappedFile, DeployPolicy, Medium};
use std::collections::{HashMap, HashSet};

const PAGE: u64 = 4096;
const REGION: u64 = 262_144;
const LEN: u64 = 16 << 20;

/// The kind of place that a store went to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Target {
    /// A slot: its home offset, and `true` if it is in the reflection file.
    Slot(u64, bool),
    SliceWord(u64),
    RegionWord(u64),
    Lane,
    LogArea,
    State,
}

fn target(file: FileId, offset: u64) -> Target {
    if file == FileId::Home {
        return Target::Slot(offset, false);
    }
    let lanes_end = layout::lane(LaneIndex(layout::LANE_COUNT as u16));
    let slice_words = layout::slice_word(PageIndex(0));
    let region_words = layout::region_word(RegionIndex(0));
    match offset {
        _ if offset >= layout::reflection(0) => Target::Slot(offset - layout::reflection(0), true),
        _ if offset >= region_words => Target::RegionWord((offset - region_words) / 8),
        _ if offset >= slice_words => Target::SliceWord((offset - slice_words) / 8),
        _ if offset >= layout::LOG_AREA => Target::LogArea,
        _ if (layout::LANES..lanes_end).contains(&offset) => Target::Lane,
        _ => Target::State,
    }
}

/// The valid slots, from the bitmap words that were stored.
#[derive(Default)]
struct Words {
    slices: HashMap<u64, u64>,
    regions: HashMap<u64, u64>,
}

impl Words {
    /// Returns `true` if the slice at this home offset has its valid slot in the reflection file.
    fn in_reflection(&self, at: u64) -> bool {
        let (page, region) = (at / PAGE, at / REGION);
        let of_page = self.slices.get(&page).copied().unwrap_or(0) >> (at % PAGE / 64) & 1;
        let of_region = self.regions.get(&region).copied().unwrap_or(0) >> (page % 64) & 1;
        of_page ^ of_region == 1
    }

    fn follow(&mut self, what: &What) {
        let (file, offset, value) = match what {
            What::Store { file, offset, value, .. } => (*file, *offset, *value),
            _ => return,
        };
        match target(file, offset) {
            Target::SliceWord(page) => drop(self.slices.insert(page, value)),
            Target::RegionWord(region) => drop(self.regions.insert(region, value)),
            _ => {}
        }
    }
}

struct Traced {
    recorder: Recorder,
    file: AtomicMappedFile,
    words: Words,
    _scratch: Scratch,
}

impl Traced {
    fn open(ground: &Ground, policy: DeployPolicy) -> Traced {
        let scratch = ground.scratch();
        let recorder = Recorder::new();
        let options = ground.options().create(true).len(LEN).deploy(policy);
        let file = options.open_recorded(&recorder, scratch.file("state.dat")).expect("open");
        Traced { recorder, file, words: Words::default(), _scratch: scratch }
    }

    fn take(&mut self) -> Vec<What> {
        self.recorder.take().into_iter().map(|event: Event| event.what).collect()
    }

    /// Returns the trace of `body`. The caller follows the words through it.
    fn trace(&mut self, body: impl FnOnce(&AtomicMappedFile)) -> Vec<What> {
        for what in self.take() {
            self.words.follow(&what);
        }
        body(&self.file);
        self.take()
    }

    /// Like `trace`, but returns the trace of the third call.
    fn warm_trace(&mut self, body: impl Fn(&AtomicMappedFile)) -> Vec<What> {
        body(&self.file);
        body(&self.file);
        self.trace(body)
    }
}

fn drains(trace: &[What]) -> usize {
    trace.iter().filter(|what| **what == What::Drain).count()
}

fn is_call(what: &What) -> bool {
    !matches!(
        what,
        What::Store { .. }
            | What::CompareExchange { .. }
            | What::Copy { .. }
            | What::Flush { .. }
            | What::Drain
    )
}

/// Returns the bytes that were stored to slots, and the bytes stored to the lanes and the log.
fn bytes_stored(trace: &[What]) -> (u64, u64) {
    let mut sums = (0, 0);
    for what in trace {
        if let What::Copy { file, offset, bytes, .. } = what {
            match target(*file, *offset) {
                Target::Slot(..) => sums.0 += bytes.len() as u64,
                _ => sums.1 += bytes.len() as u64,
            }
        }
    }
    sums
}

/// Checks the order of the steps of a flip: data to free slots in whole lines, drain, words, drain.
/// With an undo record its end follows, and a third drain.
fn check_flip(words: &mut Words, trace: &[What], name: &str) {
    // Data and records that no drain has made durable yet.
    let mut pending = 0;
    // Lines that were stored through the cache and not flushed.
    let mut dirty = HashSet::new();
    let mut words_pending = false;
    for (n, what) in trace.iter().enumerate() {
        let here = format!("{name}, step {n}");
        match what {
            What::Copy { file, offset, bytes, through } => {
                if let Target::Slot(at, in_reflection) = target(*file, *offset) {
                    assert!(at % 64 == 0 && bytes.len() % 64 == 0, "{here}: a line in part");
                    for line in (at..at + bytes.len() as u64).step_by(64) {
                        assert_ne!(
                            words.in_reflection(line),
                            in_reflection,
                            "{here}: over the valid slot of byte {line}"
                        );
                    }
                }
                assert!(!words_pending, "{here}: data after a word");
                pending += 1;
                if !through {
                    let lines = offset / 64..(offset + bytes.len() as u64).div_ceil(64);
                    dirty.extend(lines.map(|line| (*file == FileId::Home, line)));
                }
            }
            What::Flush { file, offset, len } => {
                for line in offset / 64..(offset + len).div_ceil(64) {
                    dirty.remove(&(*file == FileId::Home, line));
                }
            }
            What::Drain => {
                assert!(dirty.is_empty(), "{here}: a drain leaves lines unflushed");
                pending = 0;
                words_pending = false;
            }
            What::Store { file, offset, value, through } => {
                match target(*file, *offset) {
                    word @ (Target::SliceWord(_) | Target::RegionWord(_)) => {
                        if let Target::RegionWord(region) = word {
                            let before = words.regions.get(&region).copied().unwrap_or(0);
                            let pages = (before ^ value).count_ones();
                            assert!(pages >= 2, "{here}: a word of many stored for {pages} pages");
                        }
                        assert_eq!(pending, 0, "{here}: a word before the drain of its data");
                        words_pending = true;
                    }
                    Target::Lane => {
                        assert_eq!(*value, 0, "{here}: the end of an entry");
                        assert!(!words_pending, "{here}: the end before the words are durable");
                    }
                    other => panic!("{here}: a store to {other:?}"),
                }
                if !through {
                    dirty.insert((*file == FileId::Home, offset / 64));
                }
            }
            other => panic!("{here}: {other:?}"),
        }
        words.follow(what);
    }
    assert_eq!(trace.last(), Some(&What::Drain), "{name}: the last step");
}

/// Returns the length in bytes of all lines that a range touches.
fn lines(offset: u64, len: u64) -> u64 {
    ((offset + len).next_multiple_of(64) - offset / 64 * 64).max(64)
}

#[test]
fn a_small_write_takes_one_drain_and_its_word_follows() {
    let Some(ground) = common::dax() else { return };
    let mut traced = Traced::open(&ground, DeployPolicy::Lazy);
    let mut flushing = 0;
    let pieces = [(0, 8), (64, 64), (100, 100), (4000, 96), (10, 256), (128, 256), (64, 512)];
    let long = [(2048, 512), (1024, 576), (64, 4032), (0, 4096)];
    for (n, (offset, len)) in pieces.into_iter().chain(long).enumerate() {
        let at = n as u64 * PAGE + offset;
        let data = Rng(n as u64).bytes(len);
        let name = format!("{len} bytes at {at}");
        for _ in 0..2 {
            let trace = traced.warm_trace(|file| file.write_at(&data, at).expect("write"));
            assert_eq!(drains(&trace), 1, "{name}: {:?}", short(&trace));
            assert!(!trace.iter().any(is_call), "{name}: a system call: {:?}", short(&trace));
            let commit = trace.iter().position(|what| *what == What::Drain).expect("a drain");
            let (mut slots, mut entries) = (0, 0);
            let is_flush = |what: &What| {
                matches!(what, What::Flush { file, offset, .. }
                    if matches!(target(*file, *offset), Target::SliceWord(_)))
            };
            flushing += usize::from(trace.iter().any(is_flush));
            for what in trace[..commit].iter().filter(|what| !is_flush(what)) {
                let What::Copy { file, offset, bytes, through: true } = what else {
                    panic!("{name}: {what:?} before the drain");
                };
                match target(*file, *offset) {
                    Target::Lane => entries += bytes.len(),
                    Target::Slot(at, in_reflection) => {
                        slots += bytes.len() as u64;
                        for line in (at..at + bytes.len() as u64).step_by(64) {
                            let valid = traced.words.in_reflection(line);
                            assert_ne!(valid, in_reflection, "{name}: over a valid slot");
                        }
                    }
                    other => panic!("{name}: {other:?} before the drain"),
                }
            }
            assert_eq!((slots, entries), (lines(at, len as u64), 64), "{name}");
            let [What::Store { file, offset, through: false, .. }] = &trace[commit + 1..] else {
                panic!("{name}: {:?} after the drain", short(&trace[commit + 1..]));
            };
            assert_eq!(target(*file, *offset), Target::SliceWord(n as u64), "{name}");
            trace.iter().for_each(|what| traced.words.follow(what));
        }
    }
    // The trace has every third of 66 records. Three of them end a batch: 15, 39 and 63. No other
    // record flushes words.
    assert_eq!(flushing, 3);
}

/// The drain of the record that ends a batch also flushes the words that the ring covers. Recovery
/// depends on this, because the ring overwrites old records only later.
#[test]
fn words_are_flushed_with_the_drain_that_ends_a_batch() {
    let Some(ground) = common::dax() else { return };
    let mut traced = Traced::open(&ground, DeployPolicy::Lazy);
    let mut unflushed: HashSet<u64> = HashSet::new();
    let mut flushed = 0;
    let trace = traced.trace(|file| {
        for n in 0..200u64 {
            file.write_at(&[1; 64], n * PAGE).expect("write");
        }
    });
    let mut pending = Vec::new();
    for what in &trace {
        match what {
            What::Flush { file: FileId::Reflection, offset, .. } => {
                let Target::SliceWord(page) = target(FileId::Reflection, *offset) else { continue };
                // One line holds eight words.
                pending.extend(page / 8 * 8..page / 8 * 8 + 8);
            }
            What::Drain => {
                for page in pending.drain(..) {
                    flushed += u64::from(unflushed.remove(&page));
                }
            }
            What::Store { file, offset, through: false, .. } => {
                let Target::SliceWord(page) = target(*file, *offset) else { continue };
                unflushed.insert(page);
                assert!(unflushed.len() <= layout::BATCH, "a batch was not flushed");
            }
            _ => {}
        }
    }
    assert!(flushed > 150 && !unflushed.is_empty(), "{flushed} flushed");
}

/// Undo records have their own count, so they do not end a batch early.
#[test]
fn undo_entries_take_no_place_of_the_ring() {
    let Some(ground) = common::dax() else { return };
    let mut traced = Traced::open(&ground, DeployPolicy::Lazy);
    let small = layout::BATCH as u64 - 2;
    let trace = traced.trace(|file| {
        for n in 0..small {
            file.write_at(&[1; 64], n * PAGE).expect("write");
            file.write_at(&[2; 64], (100 + 2 * n) * PAGE - 32).expect("a write over two pages");
        }
    });
    let flushed = trace.iter().filter_map(|what| match what {
        What::Flush { file: FileId::Reflection, offset, .. } => {
            match target(FileId::Reflection, *offset) {
                Target::SliceWord(page) if page < small => Some(page),
                _ => None,
            }
        }
        _ => None,
    });
    assert_eq!(flushed.count(), 0, "words were flushed before the batch was full");
}

/// Only a drain of the thread that issued a flush completes the flush.
#[test]
fn a_thread_that_ends_drains_the_words_that_its_records_cover() {
    let Some(ground) = common::dax() else { return };
    let traced = Traced::open(&ground, DeployPolicy::Lazy);
    std::thread::scope(|scope| {
        scope.spawn(|| traced.file.write_at(&[1; 100], 200).expect("write"));
    });
    // A thread may return its lane only after another thread has joined it.
    let mut trace = Vec::new();
    let joined = std::time::Instant::now();
    while joined.elapsed() < common::HANGS {
        std::thread::sleep(std::time::Duration::from_millis(1));
        trace.extend(traced.recorder.take().into_iter().map(|event| event.what));
        if let [.., What::Flush { file, offset, .. }, What::Drain] = &trace[..]
            && target(*file, *offset) == Target::SliceWord(0)
        {
            return;
        }
    }
    panic!("{:?}", short(&trace));
}

/// Bytes of a failed operation must not reach the medium late, over the bytes of later operations.
#[test]
fn an_operation_that_fails_half_way_drains_what_it_has_copied() {
    let Some(ground) = common::dax() else { return };
    let mut traced = Traced::open(&ground, DeployPolicy::Lazy);
    let recorder = traced.recorder.clone();
    for parts in [[0, 600], [0, PAGE + 600]] {
        let trace = traced.trace(|file| {
            // The second segment is completed from a hole, which is read through the file.
            let mut tx = file.begin();
            tx.write_at(&[1; 512], parts[0]).expect("note");
            tx.write_at(&[2; 8], parts[1]).expect("note");
            recorder.fail_from(call::READ, 1, libc::EIO);
            tx.commit().expect_err("a slice cannot be completed");
            assert!(!recorder.heal(), "it was not read");
        });
        let copied = trace.iter().position(|what| matches!(what, What::Copy { .. }));
        let failed = trace.iter().position(|what| matches!(what, What::Failed(_)));
        assert!(copied.is_some() && copied < failed, "{:?}", short(&trace));
        assert_eq!(trace.last(), Some(&What::Drain), "{:?}", short(&trace));
    }
}

/// Writes of one range: name, offset, length, drains.
const WRITES: [(&str, u64, u64, usize); 14] = [
    ("more than is completed for an entry", 16 * PAGE + 10, 257, 2),
    ("a page but a byte", 18 * PAGE, 4095, 2),
    ("8 KiB, aligned", 20 * PAGE, 8192, 2),
    ("16 KiB, aligned", 24 * PAGE, 16 << 10, 2),
    ("64 KiB, aligned", 32 * PAGE, 64 << 10, 2),
    ("256 KiB, aligned", REGION, 256 << 10, 2),
    ("a small write over two pages", 3 * REGION - 20 * PAGE - 8, 16, 3),
    ("a page, not aligned", 2 * REGION + 100, 4096, 3),
    ("16 KiB, not aligned", 2 * REGION + 8 * PAGE + 64, 16 << 10, 3),
    ("64 KiB, not aligned", 2 * REGION + 16 * PAGE + 1, 64 << 10, 3),
    ("aligned pages of two regions", 4 * REGION - 2 * PAGE, 4 * PAGE, 3),
    ("two pages of two regions", 5 * REGION - PAGE, 2 * PAGE, 3),
    ("two regions", 6 * REGION, 2 * REGION, 3),
    ("a megabyte, not aligned", 9 * REGION + 777, 1 << 20, 3),
];

#[test]
fn every_other_write_takes_two_or_three_drains_with_its_steps_in_order() {
    let Some(ground) = common::dax() else { return };
    let mut traced = Traced::open(&ground, DeployPolicy::Lazy);
    for (name, offset, len, expected) in WRITES {
        let data = Rng(len).bytes(len as usize);
        let write = |file: &AtomicMappedFile| file.write_at(&data, offset).expect("write");
        write(&traced.file);
        write(&traced.file);
        // From both sides: the free slots lie in the home file and in the reflection file
        // alternately.
        for _ in 0..2 {
            let trace = traced.trace(write);
            assert_eq!(drains(&trace), expected, "{name}: {:?}", short(&trace));
            assert!(!trace.iter().any(is_call), "{name}: a system call");
            check_flip(&mut traced.words, &trace, name);
            let (data, log) = bytes_stored(&trace);
            assert_eq!(data, lines(offset, len), "{name}: bytes of data");
            assert!(log <= 2048, "{name}: {log} bytes of log");
        }
    }
}

/// Returns a trace without its bytes.
fn short(trace: &[What]) -> Vec<String> {
    trace
        .iter()
        .map(|what| match what {
            What::Copy { file, offset, bytes, through } => {
                format!("copy {} to {:?}, {through}", bytes.len(), target(*file, *offset))
            }
            What::Flush { file, offset, len } => {
                format!("flush {len} of {:?}", target(*file, *offset))
            }
            other => format!("{other:?}"),
        })
        .collect()
}

#[test]
fn a_transaction_over_pages_takes_three_drains_and_in_one_page_one_or_two() {
    let Some(ground) = common::dax() else { return };
    let mut traced = Traced::open(&ground, DeployPolicy::Lazy);
    type Case = (&'static str, &'static [(u64, usize)], usize);
    let cases: [Case; 7] = [
        ("one small range", &[(10, 20)], 1),
        ("two ranges that become one", &[(PAGE + 10, 20), (PAGE + 30, 20)], 1),
        ("two small ranges of one page", &[(2 * PAGE + 10, 20), (2 * PAGE + 900, 20)], 1),
        ("two ranges of one page", &[(2 * PAGE + 10, 20), (2 * PAGE + 900, 400)], 2),
        ("two ranges of one slice", &[(3 * PAGE + 2, 5), (3 * PAGE + 50, 5)], 1),
        ("two pages", &[(4 * PAGE + 2, 5), (5 * PAGE + 50, 5)], 3),
        ("pages and parts of regions", &[(6 * PAGE, 9000), (REGION, 65_536), (3 * REGION, 8)], 3),
    ];
    for (name, ranges, expected) in cases {
        let trace = traced.warm_trace(|file| {
            let mut tx = file.begin();
            for (offset, len) in ranges {
                tx.write_at(&vec![7; *len], *offset).expect("write");
            }
            tx.commit().expect("commit");
        });
        assert_eq!(drains(&trace), expected, "{name}: {:?}", short(&trace));
        if expected > 1 {
            check_flip(&mut traced.words, &trace, name);
        }
        assert!(!trace.iter().any(is_call), "{name}: a system call");
    }
}

#[test]
fn a_transaction_with_more_words_than_a_lane_holds_takes_three_drains() {
    let Some(ground) = common::dax() else { return };
    let mut traced = Traced::open(&ground, DeployPolicy::Lazy);
    let pages = 120;
    let before = traced.file.stats().overflow_records;
    let write = |file: &AtomicMappedFile| {
        let mut tx = file.begin();
        for n in 0..pages {
            tx.write_at(&[n as u8; 64], n * 2 * PAGE + n % 64 * 64).expect("write");
        }
        tx.commit().expect("commit");
    };
    // Twice, so that both sides have space and the operation has nothing to prepare.
    write(&traced.file);
    write(&traced.file);
    let trace = traced.trace(write);
    assert_eq!(traced.file.stats().overflow_records, before + 3);
    assert_eq!(drains(&trace), 3, "{:?}", short(&trace));
    // The operation allocates its extent in the log area. All its other steps are stores.
    let calls: Vec<&What> = trace.iter().filter(|what| is_call(what)).collect();
    assert!(calls.iter().all(|what| matches!(what, What::Allocate { .. })), "{calls:?}");
    let steps: Vec<What> = trace.iter().filter(|what| !is_call(what)).cloned().collect();
    check_flip(&mut traced.words, &steps, "spilled");
    assert_eq!(bytes_stored(&trace).0, pages * 64);
    // The old words of all pages, 24 bytes each, are stored before the first drain.
    let spilled = steps.iter().take_while(|what| !matches!(what, What::Drain));
    let spilled = spilled.filter_map(|what| match what {
        What::Copy { file, offset, bytes, .. } if target(*file, *offset) == Target::LogArea => {
            Some(bytes.len() as u64)
        }
        _ => None,
    });
    assert_eq!(spilled.sum::<u64>(), pages * 24);
}

#[test]
fn reading_stores_nothing_and_drains_nothing() {
    let Some(ground) = common::dax() else { return };
    let mut traced = Traced::open(&ground, DeployPolicy::Manual);
    for (_, offset, len, _) in WRITES {
        traced.file.write_at(&vec![1; len as usize], offset).expect("write");
    }
    // A page with the most fragments that it can have.
    let mut tx = traced.file.begin();
    (0..32).for_each(|n| tx.write_at(&[9; 64], 14 * REGION + n * 128).expect("write"));
    tx.commit().expect("commit");
    let read = |file: &AtomicMappedFile| {
        file.load::<u64>(16 * PAGE + 10).expect("load");
        file.load::<u64>(PAGE - 4).expect("load");
        file.read_at(&mut [0; 4096], 14 * REGION).expect("read");
        let mut everything = vec![0; LEN as usize];
        file.read_at(&mut everything, 0).expect("read");
        file.transact(|tx| tx.read_at(&mut everything, 0)).expect("read");
        let mut tx = file.begin();
        tx.load::<u64>(0).expect("load");
        tx.store(0, &1u64).expect("store, and roll back");
    };
    read(&traced.file);
    let trace = traced.trace(read);
    // Holes of the home file are read by system calls, since a load would allocate them.
    let stores: Vec<&What> =
        trace.iter().filter(|what| !matches!(what, What::Read { .. } | What::Os(_))).collect();
    assert!(stores.is_empty(), "{stores:?}");
    let trace = traced.trace(|file| file.sync().map(drop).expect("sync"));
    assert!(trace.is_empty(), "sync has nothing to do: {trace:?}");
}

/// A writer that locks a whole region checks which of its pages have active records. It must keep
/// those marks: the next flip there invalidates the record, and recovery would otherwise apply it.
#[test]
fn a_write_over_a_region_forgets_no_entry_of_its_other_pages() {
    let Some(ground) = common::dax() else { return };
    let mut traced = Traced::open(&ground, DeployPolicy::Manual);
    let write = |file: &AtomicMappedFile, page: u64, len: usize| {
        file.write_at(&vec![1; len], page * PAGE).expect("a write");
    };
    // One flip record for each page.
    write(&traced.file, 40, 64);
    write(&traced.file, 3, 64);
    // This write takes the region lock. One of its pages has an active record.
    write(&traced.file, 0, 10 * PAGE as usize);
    let trace = traced.trace(|file| write(file, 40, 600));
    let is_void = |what: &What| matches!(what, What::CompareExchange { .. });
    assert!(trace.iter().any(is_void), "the entry is still there: {:?}", short(&trace));
}

/// Tests a page-aligned write over a page with an active record. After one drain became enough for
/// a page, no test covered this case.
#[test]
fn whole_pages_of_a_region_are_not_written_over_what_an_entry_names() {
    let Some(ground) = common::dax() else { return };
    let mut traced = Traced::open(&ground, DeployPolicy::Manual);
    let all = |file: &AtomicMappedFile| file.write_at(&[1; 8 * 4096], 8 * PAGE).expect("a write");
    (0..2).for_each(|_| all(&traced.file));
    // Two writes leave all slices of the eight pages on one side.
    for n in 2..4 {
        traced.file.write_at(&[n; 4096], 10 * PAGE).expect("a logged flip");
    }
    let trace = traced.trace(all);
    let is_void = |what: &What| matches!(what, What::CompareExchange { .. });
    assert!(trace.iter().any(is_void), "the entry is still there: {:?}", short(&trace));
    assert_eq!(drains(&trace), 3, "one more, for the named page's word: {:?}", short(&trace));
}

#[test]
fn a_deployment_takes_two_drains_for_all_pages_of_a_region_and_none_where_nothing_is_away() {
    let Some(ground) = common::dax() else { return };
    let mut traced = Traced::open(&ground, DeployPolicy::Manual);
    let write = |file: &AtomicMappedFile| {
        for n in 0..5 {
            file.write_at(&[n as u8 + 1; 3000], n * PAGE + 64).expect("write");
        }
    };
    let deploy = |file: &AtomicMappedFile| {
        file.deploy(0..REGION).expect("deploy");
    };
    write(&traced.file);
    deploy(&traced.file);
    write(&traced.file);
    let trace = traced.trace(deploy);
    assert_eq!(drains(&trace), 2, "{:?}", short(&trace));
    check_flip(&mut traced.words, &trace, "deployment");
    assert_eq!(bytes_stored(&trace), (5 * lines(64, 3000), 0));
    let trace = traced.trace(deploy);
    assert!(trace.is_empty(), "every page is deployed: {trace:?}");

    // A view deploys only pages that are not deployed yet. The first one also allocates home slots.
    drop(traced.file.view(0..REGION).expect("view"));
    write(&traced.file);
    let trace = traced.trace(|file| drop(file.view(0..REGION).expect("view")));
    assert_eq!(drains(&trace), 2, "{:?}", short(&trace));
    check_flip(&mut traced.words, &trace, "view");
    let trace = traced.trace(|file| drop(file.view(0..REGION).expect("view")));
    assert!(trace.is_empty(), "every page is deployed: {trace:?}");
}

#[test]
fn a_few_short_reads_deploy_nothing_in_however_many_pieces_a_page_is() {
    let Some(ground) = common::dax() else { return };
    let mut traced = Traced::open(&ground, DeployPolicy::Lazy);
    traced.file.write_at(&[8; 4 * 4096], 0).expect("write");
    let mut tx = traced.file.begin();
    (0..32).for_each(|n| tx.write_at(&[9; 64], PAGE + n * 128).expect("write"));
    tx.commit().expect("commit");
    let (mut page, mut found) = ([0; 4096], [0; 4 * 4096]);
    let trace = traced.trace(|file| {
        file.read_at(&mut page, PAGE).expect("read");
        file.read_at(&mut found, 0).expect("read");
    });
    assert!(trace.is_empty() && page == found[4096..8192], "{trace:?}");
    let is_in_pieces = |n: usize| (64..128).contains(&n) && n.is_multiple_of(2);
    let expected = |n: usize| if is_in_pieces(n) { [9; 64] } else { [8; 64] };
    assert!(found.as_chunks().0.iter().enumerate().all(|(n, slice)| *slice == expected(n)));
}

/// A read of 64 KiB in two fragments deploys nothing. A read in three fragments deploys them.
#[test]
fn a_long_read_deploys_what_is_in_more_pieces_than_one_for_64_kib() {
    let Some(ground) = common::dax() else { return };
    let mut traced = Traced::open(&ground, DeployPolicy::Lazy);
    for n in 0..2 {
        traced.file.write_at(&[n; 65536], 0).expect("write");
    }
    let read = |file: &AtomicMappedFile| file.read_at(&mut [0; 65536], 0).expect("read");
    let slice = |file: &AtomicMappedFile, page: u64| {
        file.write_at(&[9; 64], page * PAGE + 640).expect("write");
    };
    slice(&traced.file, 4);
    read(&traced.file);
    let trace = traced.trace(read);
    assert!(trace.is_empty(), "all of it, and one slice: {trace:?}");
    slice(&traced.file, 9);
    let trace = traced.trace(|file| file.read_at(&mut [0; 65535], 0).expect("read"));
    assert!(trace.is_empty(), "not a long one: {trace:?}");
    let trace = traced.trace(read);
    assert_eq!(drains(&trace), 3, "two, and one for the entries: {:?}", short(&trace));
    assert_eq!(bytes_stored(&trace), (128, 0));
}

/// Alternate pages lie in the reflection file, so a long read finds many fragments. A uniform range
/// in the reflection file stays there.
#[test]
fn a_long_read_of_scattered_pages_deploys_them_once() {
    let Some(ground) = common::dax() else { return };
    let mut traced = Traced::open(&ground, DeployPolicy::Lazy);
    // A range at the end of one region and the beginning of the next.
    let start = REGION - 65536;
    let read = |file: &AtomicMappedFile| file.read_at(&mut [0; 2 * 65536], start).expect("read");
    // To the reflection file, home, and to the reflection file again: then everything is allocated.
    for n in 0..3 {
        traced.file.write_at(&[n; 2 * 65536], start).expect("write");
    }
    read(&traced.file);
    let trace = traced.trace(read);
    assert!(trace.is_empty(), "one piece: {trace:?}");
    for n in 0..8 {
        traced.file.write_at(&[9; 4096], start + 2 * n * PAGE).expect("write");
    }
    let trace = traced.trace(|file| file.read_at(&mut [0; 4096], start).expect("read"));
    assert!(trace.is_empty(), "a short read: {trace:?}");
    let trace = traced.trace(read);
    assert_eq!(drains(&trace), 2, "{:?}", short(&trace));
    check_flip(&mut traced.words, &trace, "lazy");
    assert_eq!(
        bytes_stored(&trace),
        (8 * PAGE, 0),
        "the undeployed bytes of the fragmented region"
    );
    let trace = traced.trace(read);
    assert!(trace.is_empty(), "{trace:?}");
}

#[test]
fn a_write_to_a_page_that_a_view_pins_takes_two_to_five_drains() {
    let Some(ground) = common::dax() else { return };
    let mut traced = Traced::open(&ground, DeployPolicy::Lazy);
    traced.file.write_at(&[1; 4096], 0).expect("write");
    let view = traced.file.view(0..4096).expect("view");
    // Warm up: another page of this chunk was written both ways.
    let second = traced.file.try_clone().expect("clone");
    for _ in 0..2 {
        second.write_at(&[1; 4096], PAGE).expect("write");
    }
    drop(view);
    let file = traced.file.try_clone().expect("clone");
    let view = file.view(0..4096).expect("view");
    // One byte less than a page: no flip record covers this write.
    let write = |file: &AtomicMappedFile| file.write_at(&[2; 4095], 0).expect("write");
    let trace = traced.trace(write);
    assert_eq!(drains(&trace), 2, "a flip to the reflection file: {:?}", short(&trace));
    check_flip(&mut traced.words, &trace, "a flip to the reflection file");
    for _ in 0..2 {
        let trace = traced.trace(write);
        assert_eq!(drains(&trace), 3, "by the log: {:?}", short(&trace));
        let stored_home =
            trace.iter().any(|what| matches!(what, What::Copy { file: FileId::Home, .. }));
        assert!(!stored_home, "a view's bytes were stored to");
        for what in &trace {
            traced.words.follow(what);
        }
    }
    // Slices of another page flip in the same operation. The record's checksum does not cover their
    // copies, so a drain comes before the record. The first write also writes the words of flip
    // records back, and invalidates these records.
    let with_flips = |file: &AtomicMappedFile| {
        file.write_many(&[(0, &[2; 4095]), (PAGE, &[2; 4096])]).expect("write");
    };
    for expected in [5, 4] {
        let trace = traced.trace(with_flips);
        assert_eq!(drains(&trace), expected, "by the log, with flips: {:?}", short(&trace));
    }
    assert_eq!(view.to_vec().expect("read"), [1; 4096]);
    drop(view);
}

/// A regression test: `docs/model/logged_flips.py` found a missing drain. Records that name the
/// slots must be durably invalid before redo data over these slots is logged. Otherwise a second
/// loss of power, after recovery had stored the redo data, made the next recovery apply older
/// records.
#[test]
fn entries_are_durably_void_before_data_over_their_slots_is_logged() {
    let Some(ground) = common::dax() else { return };
    let mut traced = Traced::open(&ground, DeployPolicy::Lazy);
    traced.file.write_at(&[1; 4096], 0).expect("write");
    let file = traced.file.try_clone().expect("clone");
    let _view = file.view(0..4096).expect("view");
    traced.file.write_at(&[2; 192], 128).expect("a logged flip");
    let trace = traced.trace(|file| file.write_at(&[3; 64], 192).expect("by the log"));
    assert_eq!(drains(&trace), 5, "its word, its record, and three: {:?}", short(&trace));
    let in_lane = |file: FileId, offset: u64| matches!(target(file, offset), Target::Lane);
    let void = trace.iter().position(
        |what| matches!(what, What::Flush { file, offset, .. } if in_lane(*file, *offset)),
    );
    let logged = trace.iter().position(|what| matches!(what, What::Copy { .. }));
    let between = &trace[void.expect("an invalidated record")..logged.expect("logged data")];
    assert!(between.contains(&What::Drain), "{:?}", short(&trace));
}

#[test]
fn in_ram_nothing_is_flushed_or_synced_and_no_call_is_made() {
    let ground = common::ram();
    assert_eq!(ground.medium, Medium::Ram);
    let mut traced = Traced::open(&ground, DeployPolicy::Lazy);
    let small = [
        ("9 bytes, of two slices", PAGE + 60, 9, 2),
        ("a part of a page, aligned", 17 * PAGE + 1024, 576, 2),
        ("a page", 19 * PAGE, 4096, 2),
    ];
    for (name, offset, len, expected) in small.into_iter().chain(WRITES) {
        let data = vec![5; len as usize];
        let trace = traced.warm_trace(|file| file.write_at(&data, offset).expect("write"));
        assert_eq!(drains(&trace), expected, "{name}: a step orders, although it costs nothing");
        for what in &trace {
            match what {
                What::Copy { through, .. } => assert!(through, "{name}: {what:?}"),
                What::Store { .. } | What::Drain => {}
                other => panic!("{name}: {other:?}"),
            }
        }
        check_flip(&mut traced.words, &trace, name);
    }
    for (offset, len) in [(PAGE, 8), (PAGE + 77, 2), (PAGE + 64, 64), (PAGE + 129, 62)] {
        let data = vec![6; len];
        let before = traced.file.stats().direct_writes;
        let trace = traced.warm_trace(|file| file.write_at(&data, offset).expect("write"));
        if traced.file.stats().direct_writes == before {
            assert!(offset % 8 + len as u64 > 8, "every processor stores a word");
            check_flip(&mut traced.words, &trace, "a part of a slice, on this one");
            continue;
        }
        // The store goes to the valid one of the two slots.
        let is_at = |file: FileId, found: u64, at: u64| matches!(target(file, found), Target::Slot(home, _) if home == at);
        let is_it = match &trace[..] {
            [What::Store { file, offset: found, .. }] => is_at(*file, *found, offset - offset % 8),
            [What::Copy { file, offset: found, bytes, .. }] => {
                *bytes == data && is_at(*file, *found, offset)
            }
            _ => false,
        };
        assert!(is_it, "{len} bytes at {offset} are one store, and nothing else: {trace:?}");
    }
    let trace = traced.trace(|file| file.sync().map(drop).expect("sync"));
    assert!(trace.is_empty(), "{trace:?}");
}
