//! Tests that acknowledged operations survive SIGKILL, and that all others are whole or absent.
//!
//! A child process writes from several threads, with every write protocol of the
//! engine. Each operation stores its number in every word of its places, and then acknowledges the
//! number in a log file. The test kills the child at random times: during opening, recovery,
//! writes, resizing and closing. Then the parent or the next child opens the file. Each place must
//! hold one number from end to end. It is at least the last acknowledged number, and at most the
//! number after that. ATOMIC_MMAP_TEST_ROUNDS sets the number of children.

use crate::common::{self, Ground, Rng, Scratch, child, role};
use atomic_mmap::{AtomicMappedFile, CloseMode, Medium, Options};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Environment variable with the number of children that are killed on each medium. Default: 40.
const ROUNDS_VARIABLE: &str = "ATOMIC_MMAP_TEST_ROUNDS";
const CHILD: &str = concat!(module_path!(), "::plays_the_child_that_is_killed_if_it_is_one");
const THREADS: u64 = 4;
const STRIDE: u64 = 2 << 20;
const SHARED_PAGE: u64 = THREADS * STRIDE;
const BASE_LEN: u64 = SHARED_PAGE + 4096;
/// Records of the log that belong to no thread.
const OPENING: u64 = 100;
const OPENED: u64 = 101;
const CLOSING: u64 = 102;
/// The first operation of the child's first thread has returned.
const WRITING: u64 = 104;
/// The thread that changes the length.
const RESIZER: u64 = 103;

const KINDS: u64 = 10;

/// Returns the places (offset and length) that an operation of this kind writes together.
fn places(thread: u64, kind: u64) -> Vec<(u64, usize)> {
    let base = thread * STRIDE;
    let at = |offset: u64, len: usize| vec![(base + offset, len)];
    match kind {
        // Small, in a page with other kinds.
        0 => at(100, 200),
        // A whole page.
        1 => at(8192, 4096),
        // Unaligned, over several pages.
        2 => at(20_001, 10_000),
        // Aligned, in one region.
        3 => at(65_536, 65_536),
        // A transaction, with a segment in the first page.
        4 => vec![(base + 400_000, 64), (base + 600_000, 64), (base + 300, 200)],
        // More than a flip record covers, in the first page.
        5 => at(520, 700),
        // Over several regions.
        6 => at(700_001, 300_000),
        // Small, in one slice with kind 0.
        7 => at(76, 24),
        // Small, in a page and in slices that other threads share.
        8 => vec![(SHARED_PAGE + thread * 40, 40)],
        // More words than a lane holds.
        9 => (0..110).map(|n| (base + (1 << 20) + n * 8192, 64)).collect(),
        _ => unreachable!(),
    }
}

fn stamp(n: u64, len: usize) -> Vec<u8> {
    let mut bytes = n.to_le_bytes().repeat(len.div_ceil(8));
    bytes.truncate(len);
    bytes
}

/// Returns the number that a place holds from end to end.
fn number_at(file: &AtomicMappedFile, offset: u64, len: usize) -> u64 {
    let mut bytes = vec![0; len];
    file.read_at(&mut bytes, offset).expect("read");
    let n = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
    assert!(bytes == stamp(n, len), "torn: {len} bytes at {offset}, {n:#x} and others");
    n
}

/// Returns the number of the last operation of a kind.
fn number_of(file: &AtomicMappedFile, thread: u64, kind: u64) -> u64 {
    let numbers: Vec<u64> =
        places(thread, kind).into_iter().map(|(at, len)| number_at(file, at, len)).collect();
    assert!(
        numbers.iter().all(|n| *n == numbers[0]),
        "torn: thread {thread}, kind {kind}: {numbers:?}"
    );
    numbers[0]
}

/// Returns the length that operation `n` of the resizer sets.
fn len_after(n: u64) -> u64 {
    if n.is_multiple_of(2) { BASE_LEN } else { BASE_LEN + 1 + Rng(n).below(3 << 20) }
}

/// Returns `true` if operation `n` of the resizer writes its number at the new end, in the same
/// operation. Otherwise it does so afterwards.
fn writes_with_its_length(n: u64) -> bool {
    n % 4 == 1
}

struct Log(File);

impl Log {
    fn open(path: &Path) -> Log {
        Log(OpenOptions::new().create(true).append(true).open(path).expect("open the log"))
    }

    fn note(&self, who: u64, n: u64) {
        let mut record = [0; 16];
        record[..8].copy_from_slice(&who.to_le_bytes());
        record[8..].copy_from_slice(&n.to_le_bytes());
        (&self.0).write_all(&record).expect("note");
    }

    fn read(path: &Path) -> Vec<(u64, u64)> {
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
        let bytes = std::fs::read(path).unwrap_or_default();
        bytes.chunks_exact(16).map(|r| (word(&r[..8]), word(&r[8..]))).collect()
    }
}

fn log_of(path: &Path) -> PathBuf {
    path.with_extension("log")
}

fn options(medium: Medium) -> Options {
    common::options(medium).create(true).len(BASE_LEN)
}

/// The acknowledged operations.
#[derive(Default, Debug)]
struct Acknowledged {
    /// The last operation of each thread.
    last: [u64; THREADS as usize],
    /// The last operation of each thread and kind.
    kinds: [[u64; KINDS as usize]; THREADS as usize],
    resized: u64,
}

impl Acknowledged {
    fn read(log: &Path) -> Self {
        let mut acknowledged = Acknowledged::default();
        for (who, n) in Log::read(log) {
            if who == RESIZER {
                acknowledged.resized = acknowledged.resized.max(n);
            } else if who < THREADS {
                let last = &mut acknowledged.last[who as usize];
                *last = n.max(*last);
                let of_kind = &mut acknowledged.kinds[who as usize][(n % KINDS) as usize];
                *of_kind = n.max(*of_kind);
            }
        }
        acknowledged
    }

    /// Compares the file with the acknowledged operations. Returns the last number of each thread.
    fn check(&self, file: &AtomicMappedFile) -> [u64; THREADS as usize] {
        let mut last = [0; THREADS as usize];
        for thread in 0..THREADS {
            for kind in 0..KINDS {
                let found = number_of(file, thread, kind);
                let least = self.kinds[thread as usize][kind as usize];
                let most = self.last[thread as usize] + 1;
                assert!(
                    found >= least && found <= most && (found == 0 || found % KINDS == kind),
                    "thread {thread}, kind {kind}: found {found}, acknowledged {least}, \
                     and {} of all kinds",
                    self.last[thread as usize]
                );
                last[thread as usize] = last[thread as usize].max(found);
            }
            last[thread as usize] = last[thread as usize].max(self.last[thread as usize]);
        }
        let len = file.len();
        assert!(
            (self.resized..self.resized + 2).any(|n| len_after(n) == len),
            "length {len} after resize {} (to {})",
            self.resized,
            len_after(self.resized)
        );
        if len > BASE_LEN {
            // Holds zeroes, and perhaps the number that the resizer wrote at the end.
            let mut grown = vec![0; (len - BASE_LEN) as usize];
            file.read_at(&mut grown, BASE_LEN).expect("read");
            let end = grown.len().saturating_sub(8);
            assert!(grown[..end].iter().all(|b| *b == 0), "new bytes are not zero");
            let is_whole = (self.resized..self.resized + 2)
                .filter(|n| len_after(*n) == len && writes_with_its_length(*n))
                .all(|n| len <= BASE_LEN + 8 || grown[end..] == n.to_le_bytes());
            assert!(is_whole, "a length without its bytes: {:?}", &grown[end..]);
        }
        last
    }
}

/// Writes the places of operation `n` by stages: filled one after the other, and committed at once.
fn commit_stages(file: &AtomicMappedFile, n: u64, places: &[(u64, usize)]) {
    let mut stages = Vec::new();
    for &(offset, len) in places {
        let mut stage = file.stage(offset..offset + len as u64).expect("stage");
        let (bytes, half) = (stamp(n, len), len / 2);
        stage.write_at(&bytes[half..], half as u64).expect("fill");
        stage.fill_from(&mut &bytes[..half], 0..half as u64).expect("fill");
        stages.push(stage);
    }
    file.commit_stages(&mut stages).expect("commit");
}

/// Plays the child: opens, checks and writes. Closes at the end if the caller asks for it.
fn write_until_killed(path: &Path, medium: Medium, close: Option<CloseMode>, for_ms: u64) {
    let log = Log::open(&log_of(path));
    let acknowledged = Acknowledged::read(&log_of(path));
    log.note(OPENING, 0);
    let file = options(medium).open(path).expect("open");
    log.note(OPENED, 0);
    let last = acknowledged.check(&file);
    // The next crash must not take back what this session has read.
    for thread in 0..THREADS {
        for kind in 0..KINDS {
            log.note(thread, number_of(&file, thread, kind));
        }
    }
    let mut resized = acknowledged.resized;
    if len_after(resized) != file.len() {
        resized += 1;
        log.note(RESIZER, resized);
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (file, log, over) = (&file, &log, &over);
            scope.spawn(move || {
                let first = last[thread as usize] + 1;
                let mut n = first - 1;
                // One operation at least: on a slow machine `over` may come before this thread.
                while n < first || !over.load(Ordering::Relaxed) {
                    n += 1;
                    let places = places(thread, n % KINDS);
                    if n / KINDS % 3 == 1 {
                        commit_stages(file, n, &places);
                    } else if let [(offset, len)] = places[..] {
                        file.write_at(&stamp(n, len), offset).expect("write");
                    } else {
                        let mut tx = file.begin();
                        for (offset, len) in places {
                            tx.write_at(&stamp(n, len), offset).expect("write");
                        }
                        tx.commit().expect("commit");
                    }
                    log.note(thread, n);
                    if thread == 0 && n == first {
                        log.note(WRITING, 0);
                    }
                }
            });
        }
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                resized += 1;
                let len = len_after(resized);
                if writes_with_its_length(resized) && len > BASE_LEN + 8 {
                    file.transact(|tx| {
                        tx.set_len(len)?;
                        tx.store(len - 8, &resized)
                    })
                    .expect("change length and bytes");
                } else {
                    file.set_len(len).expect("change the length");
                }
                log.note(RESIZER, resized);
                if len > BASE_LEN + 8 && !writes_with_its_length(resized) {
                    file.store(len - 8, &resized).expect("write at the end");
                }
                file.deploy(0..BASE_LEN).expect("deploy");
            }
        });
        std::thread::sleep(Duration::from_millis(for_ms));
        over.store(true, Ordering::Relaxed);
    });
    if let Some(mode) = close {
        log.note(CLOSING, 0);
        file.close(mode).expect("close");
    } else {
        common::crash();
    }
}

#[test]
fn plays_the_child_that_is_killed_if_it_is_one() {
    let Some((role, path)) = role() else { return };
    let mut words = role.split(' ');
    let medium = words.next().expect("a medium").parse().expect("a medium");
    let (close, for_ms) = match words.next().expect("an end") {
        "fast" => (Some(CloseMode::Fast), 5),
        "spatial" => (Some(CloseMode::Spatial), 5),
        _ => (None, 3000),
    };
    write_until_killed(&path, medium, close, for_ms);
}

/// When to kill a child: this long after this record.
struct Plan {
    end: &'static str,
    record: u64,
    after_us: u64,
}

fn plan(round: u64, rng: &mut Rng) -> Plan {
    match round % 8 {
        0 | 4 => Plan { end: "none", record: OPENING, after_us: rng.below(3000) },
        3 => Plan { end: "spatial", record: CLOSING, after_us: rng.below(6000) },
        7 => Plan { end: "fast", record: CLOSING, after_us: rng.below(2000) },
        1 | 6 => Plan { end: "none", record: WRITING, after_us: rng.below(40_000) },
        _ => Plan { end: "none", record: OPENED, after_us: rng.below(40_000) },
    }
}

fn kill_a_child(path: &Path, medium: Medium, plan: &Plan) {
    let records = || Log::read(&log_of(path)).iter().filter(|(who, _)| *who == plan.record).count();
    let before = records();
    let role = format!("{medium} {}", plan.end);
    let mut victim = child(CHILD, &role, path)
        .stdout(std::process::Stdio::null())
        .stderr(File::create(path.with_extension("err")).expect("a file for messages"))
        .spawn()
        .expect("start a child");
    let patience = Instant::now() + common::HANGS;
    let mut ended = false;
    while !ended && records() == before {
        ended = victim.try_wait().expect("look at the child").is_some();
        assert!(Instant::now() < patience, "the child hangs before record {}", plan.record);
    }
    std::thread::sleep(Duration::from_micros(plan.after_us));
    // The child may have ended already.
    let _may_be_dead = victim.kill();
    let status = victim.wait().expect("wait for the child");
    let messages = std::fs::read_to_string(path.with_extension("err")).unwrap_or_default();
    assert!(!messages.contains("panicked"), "{role}: {status}\n{messages}");
}

fn check_kills(ground: Option<Ground>, seed: u64) {
    let Some(ground) = ground else {
        eprintln!("not served here: skipped");
        return;
    };
    let scratch: Scratch = ground.scratch();
    let path = scratch.file("state.dat");
    let mut rng = Rng(seed);
    let rounds = std::env::var(ROUNDS_VARIABLE).ok().and_then(|n| n.parse().ok()).unwrap_or(40);
    let all_have_written = || Acknowledged::read(&log_of(&path)).last.iter().all(|n| *n > 0);
    // On a slow machine a thread may not reach its first write before the kill: run some more
    // rounds.
    let more = (0..rounds * 5).take_while(|round| *round < rounds || !all_have_written());
    for round in more {
        let plan = plan(round, &mut rng);
        kill_a_child(&path, ground.medium, &plan);
        // In every other round the next child recovers the file, and may be killed meanwhile.
        if round % 2 == 0 {
            continue;
        }
        let acknowledged = Acknowledged::read(&log_of(&path));
        let file = options(ground.medium).open(&path).unwrap_or_else(|e| {
            panic!("round {round}, killed {} us after record {}: {e}", plan.after_us, plan.record)
        });
        let last = acknowledged.check(&file);
        let log = Log::open(&log_of(&path));
        (0..THREADS).for_each(|thread| log.note(thread, last[thread as usize]));
        if file.len() != len_after(acknowledged.resized) {
            log.note(RESIZER, acknowledged.resized + 1);
        }
        let mode = if rng.below(2) == 0 { CloseMode::Fast } else { CloseMode::Spatial };
        file.close(mode).expect("close");
    }
    let written = Acknowledged::read(&log_of(&path));
    let count = |record| Log::read(&log_of(&path)).iter().filter(|r| r.0 == record).count();
    assert!(
        written.last.iter().all(|n| *n > 0),
        "nothing was tested: {written:?}; children: {} began, {} opened, {} closed",
        count(OPENING),
        count(OPENED),
        count(CLOSING)
    );
}

#[test]
fn what_was_acknowledged_in_ram_survives_being_killed() {
    check_kills(Some(common::ram()), 1);
}

#[test]
fn what_was_acknowledged_on_page_cache_survives_being_killed() {
    check_kills(common::page_cache(), 2);
}

#[test]
fn what_was_acknowledged_on_persistent_memory_survives_being_killed() {
    check_kills(common::dax(), 3);
}
