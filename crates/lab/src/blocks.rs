//! The part `blocks`: a full disk is an error that changes nothing, for every block size.
//!
//! The real code runs random operations on a simulated machine with blocks of 1, 2, 4 or 64 KiB.
//! The files have odd lengths. They grow within their last page, shrink and grow again, and come to
//! need the log area and a longer journal. Now and then the disk has only a few free blocks. The
//! machine reports each store to a page that lacks storage for one of its blocks
//! (`machine::world`). The disk need not be full at that moment.
//!
//! The part compares the result of an operation with a plain model: the operation took effect, or
//! nothing changed and it returned `Error::NoSpace`. Once there is space again, every operation
//! succeeds.

use crate::machine::Simulation;
use crate::machine::world::World;
use crate::part::{Outcome, Settings};
use crate::progress::Progress;
use atomic_mmap::{AtomicMappedFile, CloseMode, DeployPolicy, Error, Medium, Result};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const HOME: &str = "/d/state.dat";
const PAGE: u64 = 4096;
/// Initial lengths of the home file: within a page, some pages, and past the end of a chunk.
const LENS: [u64; 5] = [5000, 3 * PAGE + 1025, 400 * PAGE + 77, (2 << 20) + 7001, (4 << 20) - 1000];
const MAX_LEN: u64 = 16 << 20;
/// Upper limit of the length for random growth.
const LONGEST: u64 = 6 << 20;
/// Block sizes that are run on a page cache.
const BLOCKS: [u64; 4] = [1 << 10, 2 << 10, 4 << 10, 64 << 10];
/// Number of operations of a sequence.
const OPERATIONS: usize = 60;
/// Number of sequences for each length and block size: in a quick run, and in a long run.
const QUICK: usize = 20;
const LONG: usize = 300;
/// Number of pages in which one slice changes. Their words do not fit into a journal of 64 KiB.
const PAGES_OF_JOURNAL: u64 = 3500;
/// Number of violations after which the part ends.
const ENOUGH: usize = 5;

/// One machine with one file, and the expected content of the file.
struct Run {
    machine: Arc<Simulation>,
    medium: Medium,
    file: Option<AtomicMappedFile>,
    model: Vec<u8>,
    rng: fastrand::Rng,
    /// Number of operations that found no space.
    refused: u64,
    reopened: u64,
}

/// The result of a check; the error says what is wrong.
type Checked = std::result::Result<(), String>;

impl Run {
    fn new(job: &Job, rng: fastrand::Rng) -> Result<Run> {
        let Job { medium, block, len, lacks_allocation, .. } = *job;
        let device = crate::images::new_device();
        let world = match medium {
            Medium::PageCache => World::with_page_cache(device),
            _ => World::new(crate::machine::memory::Model::Chunk, device),
        };
        let mut world = world.with_blocks(block);
        let bytes = vec![0x11; (len / 2).min(9000) as usize];
        let mut model = vec![0; len as usize];
        model[..bytes.len()].copy_from_slice(&bytes);
        world.lacks_allocation = lacks_allocation;
        world.make(Path::new(HOME), len, &[(0, bytes)]);
        let machine = Simulation::new(world);
        let mut run = Run { machine, medium, file: None, model, rng, refused: 0, reopened: 0 };
        run.file = Some(run.open()?);
        Ok(run)
    }

    fn open(&self) -> Result<AtomicMappedFile> {
        AtomicMappedFile::options()
            .medium(self.medium)
            .max_len(MAX_LEN)
            .journal_len(64 << 10)
            .deploy(DeployPolicy::Lazy)
            .close_on_drop(CloseMode::Fast)
            .open_simulated(self.machine.clone(), HOME)
    }

    fn file(&self) -> &AtomicMappedFile {
        self.file.as_ref().expect("an open file")
    }

    fn len(&self) -> u64 {
        self.model.len() as u64
    }

    fn bytes(&mut self, len: u64) -> Vec<u8> {
        let first = self.rng.u8(..);
        (0..len).map(|n| first.wrapping_add((n / 64) as u8) | 1).collect()
    }

    /// Sets the number of blocks that the disk has from now on.
    fn fill(&mut self) {
        let left = match self.rng.u32(0..8) {
            0 => Some(0),
            1 => Some(1),
            2 => Some(self.rng.u64(2..5)),
            3 => Some(self.rng.u64(5..200)),
            _ => None,
        };
        self.machine.world().fill(left);
    }

    /// Judges the result of an operation. Returns `true` if the operation took effect.
    fn judge(&mut self, what: &str, result: Result<()>) -> std::result::Result<bool, String> {
        match result {
            Ok(()) => Ok(true),
            Err(Error::NoSpace { .. }) => {
                self.refused += 1;
                Ok(false)
            }
            Err(error) => Err(format!("{what}: {error}")),
        }
    }

    /// Writes several pieces atomically.
    fn write(&mut self, what: &str, pieces: Vec<(u64, Vec<u8>)>) -> Checked {
        let parts: Vec<(u64, &[u8])> = pieces.iter().map(|(at, b)| (*at, &b[..])).collect();
        let result = match &parts[..] {
            [(at, bytes)] => self.file().write_at(bytes, *at),
            parts => self.file().write_many(parts),
        };
        if self.judge(what, result)? {
            for (at, bytes) in &pieces {
                self.model[*at as usize..][..bytes.len()].copy_from_slice(bytes);
            }
        }
        pieces.iter().try_for_each(|(at, bytes)| self.compare(what, *at, bytes.len() as u64))
    }

    fn compare(&self, what: &str, at: u64, len: u64) -> Checked {
        let mut found = vec![0; len as usize];
        self.file().read_at(&mut found, at).map_err(|error| format!("{what}, read: {error}"))?;
        let held = &self.model[at as usize..][..len as usize];
        match (0..len as usize).find(|n| found[*n] != held[*n]) {
            None => Ok(()),
            Some(n) => Err(format!(
                "{what}: byte {} of {} is {} and not {}",
                at + n as u64,
                self.len(),
                found[n],
                held[n]
            )),
        }
    }

    fn compare_all(&self, what: &str) -> Checked {
        if self.file().len() != self.len() {
            return Err(format!("{what}: {} bytes long, not {}", self.file().len(), self.len()));
        }
        self.compare(what, 0, self.len())
    }

    fn write_somewhere(&mut self) -> Checked {
        let sizes = [8, 100, 1000, PAGE, 5000, 9001, 3 * PAGE, 74_000, 301_001];
        let size = sizes[self.rng.usize(0..sizes.len())].min(self.len());
        let at = self.rng.u64(0..=self.len() - size);
        let at = if self.rng.bool() { at / PAGE * PAGE } else { at };
        let bytes = self.bytes(size);
        self.write("write", vec![(at, bytes)])
    }

    /// Writes to more pages than a lane has room for words.
    fn write_many_words(&mut self) -> Checked {
        let places = (0..360).step_by(3).map(|n| n * PAGE + 640);
        let pieces: Vec<_> = places.filter(|at| at + 9 <= self.len()).map(|at| (at, 9)).collect();
        let pieces = pieces.into_iter().map(|(at, len)| (at, self.bytes(len))).collect::<Vec<_>>();
        if pieces.is_empty() { Ok(()) } else { self.write("many words", pieces) }
    }

    /// Writes to pages that a view pins, so that the engine logs the writes.
    fn write_under_a_view(&mut self) -> Checked {
        let size = self.rng.u64(1..20_000).min(self.len());
        let at = self.rng.u64(0..=self.len() - size);
        let viewing = self.file().try_clone().map_err(|error| format!("clone: {error}"))?;
        let view = viewing.view(at..at + size).map_err(|error| format!("view: {error}"))?;
        let before = self.model[at as usize..][..size as usize].to_vec();
        for _ in 0..2 {
            let bytes = self.bytes(size);
            self.write("write under a view", vec![(at, bytes)])?;
        }
        match view.to_vec() {
            Ok(found) if found == before => Ok(()),
            Ok(_) => Err("a view has changed".to_owned()),
            Err(error) => Err(format!("read of a view: {error}")),
        }
    }

    fn set_len(&mut self, len: u64) -> Checked {
        let what = format!("set_len from {} to {len}", self.len());
        let result = self.file().set_len(len);
        if self.judge(&what, result)? {
            self.model.resize(len as usize, 0);
        }
        let now = self.file().len();
        if now != self.len() {
            return Err(format!("{what}: {now} bytes long, not {}", self.len()));
        }
        let around = self.len().saturating_sub(2 * PAGE);
        self.compare(&what, around, self.len() - around)
    }

    /// Grows the file within its last page. Until then, the used part of that page may be all that
    /// has storage.
    fn grow_within_the_last_page(&mut self) -> Checked {
        let end = self.len().next_multiple_of(PAGE);
        let len = self.rng.u64(self.len()..=end);
        self.set_len(len)?;
        for _ in 0..3 {
            let at = self.rng.u64(self.len() / PAGE * PAGE..=self.len());
            let bytes = self.bytes(self.len() - at);
            if !bytes.is_empty() {
                self.write("write to the last page", vec![(at, bytes)])?;
            }
        }
        Ok(())
    }

    /// Closes the file in this mode, or lets the process crash, and reopens the file.
    fn reopen(&mut self, mode: Option<CloseMode>) -> Checked {
        self.reopened += 1;
        let file = self.file.take().expect("an open file");
        match mode {
            Some(mode) => {
                let result = file.close(mode).map(drop);
                self.judge("close", result)?;
            }
            None => {
                let world = self.machine.world().after_kill();
                self.machine.kill();
                drop(file);
                self.machine = Simulation::new(world);
            }
        }
        let opened = match self.open() {
            Err(Error::NoSpace { .. }) => {
                self.refused += 1;
                self.machine.world().fill(None);
                self.open()
            }
            opened => opened,
        };
        self.file = Some(opened.map_err(|error| format!("open again: {error}"))?);
        self.compare_all("opened again")
    }

    fn step(&mut self) -> Checked {
        self.fill();
        match self.rng.u32(0..24) {
            0..=7 => self.write_somewhere(),
            8 | 9 => self.write_many_words(),
            10 | 11 => self.write_under_a_view(),
            12 | 13 => {
                let result = self.file().sync().map(drop);
                self.judge("sync", result).map(drop)
            }
            14 => {
                let result = self.file().deploy(0..self.len()).map(drop);
                self.judge("deploy", result).map(drop)
            }
            15..=17 => self.grow_within_the_last_page(),
            18 => {
                let len = self.rng.u64(self.len()..LONGEST.max(self.len() + 1));
                self.set_len(len)
            }
            19 | 20 => {
                let len = self.rng.u64(1..=self.len());
                self.set_len(len)
            }
            21 => self.reopen(Some(CloseMode::Fast)),
            22 => self.reopen(Some(CloseMode::Spatial)),
            _ => self.reopen(None),
        }
    }

    /// Runs random operations, and ends with a plain file.
    fn play(&mut self) -> Checked {
        for n in 0..OPERATIONS {
            self.step().map_err(|problem| format!("operation {n}: {problem}"))?;
            if n % 10 == 9 {
                self.compare_all("everything")?;
            }
        }
        self.machine.world().fill(None);
        self.reopen(Some(CloseMode::Spatial))
    }

    /// Changes more words than the journal has room for. The journal grows or keeps its length.
    fn grow_the_journal(&mut self) -> Checked {
        let end = (PAGES_OF_JOURNAL * PAGE + 1234).max(self.len());
        self.set_len(end)?;
        let pieces = (0..PAGES_OF_JOURNAL).map(|n| (n * PAGE + n % 64 * 64, vec![9; 64]));
        self.write("many pages", pieces.collect())?;
        let reflection = self.file().reflection_path().to_owned();
        let journal = reflection.with_added_extension("journal");
        let len = |run: &Run| run.machine.world().len_of(&journal);
        let before = len(self);
        let left = self.rng.u64(0..12);
        self.machine.world().fill(Some(left));
        let result = self.file().sync().map(drop);
        if !self.judge("sync of many pages", result)? && len(self) != before {
            return Err(format!("the journal could not grow, and is as long as {:?}", len(self)));
        }
        self.write_somewhere()?;
        if self.rng.bool() {
            self.reopen(None)?;
        }
        self.machine.world().fill(None);
        self.file().sync().map_err(|error| format!("sync with space: {error}"))?;
        self.compare_all("synced")?;
        self.reopen(None)
    }
}

/// One sequence: its machine and its number.
#[derive(Clone, Copy, Debug)]
struct Job {
    medium: Medium,
    block: u64,
    len: u64,
    grows_journal: bool,
    /// The file system has no call that reserves storage.
    lacks_allocation: bool,
    /// Number of the sequence, which seeds its random choices.
    nth: usize,
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Job { medium, block, len, nth, .. } = self;
        let what = if self.grows_journal { "the journal grows" } else { "random operations" };
        let what =
            if self.lacks_allocation { format!("{what} without fallocate") } else { what.into() };
        write!(f, "{what} on {medium}, blocks of {block} bytes, {len} bytes long, no {nth}")
    }
}

fn jobs(quick: bool) -> Vec<Job> {
    let count = if quick { QUICK } else { LONG };
    let mut jobs = Vec::new();
    for nth in 0..count {
        for block in BLOCKS {
            let job = |len, grows_journal| Job {
                medium: Medium::PageCache,
                block,
                len,
                grows_journal,
                lacks_allocation: false,
                nth,
            };
            jobs.extend(LENS.map(|len| job(len, false)));
            jobs.push(Job { lacks_allocation: true, ..job(LENS[nth % LENS.len()], false) });
            if nth % 4 == 0 {
                jobs.push(job(LENS[2], true));
            }
        }
        // A block is a page there: the crate asks about missing storage page by page.
        let on_dax = LENS.map(|len| Job {
            medium: Medium::Dax,
            block: PAGE,
            len,
            grows_journal: false,
            lacks_allocation: false,
            nth,
        });
        jobs.extend(on_dax);
    }
    jobs
}

/// The counts of one sequence.
#[derive(Default)]
struct Totals {
    refused: AtomicU64,
    reopened: AtomicU64,
}

fn check(job: &Job, settings: &Settings, totals: &Totals) -> Checked {
    let rng = settings.rng(&format!("blocks {job}"));
    let mut kept = None;
    let played = catch_unwind(AssertUnwindSafe(|| {
        let made = Run::new(job, rng);
        let run = kept.insert(made.map_err(|error| format!("the pair is not made: {error}"))?);
        if job.grows_journal { run.grow_the_journal() } else { run.play() }
    }));
    if let Some(run) = &mut kept {
        totals.refused.fetch_add(run.refused, Ordering::Relaxed);
        totals.reopened.fetch_add(run.reopened, Ordering::Relaxed);
        run.machine.kill();
    }
    // A panic may have left locks of the file locked.
    let panicked = played.is_err();
    if panicked {
        kept.take().into_iter().for_each(std::mem::forget);
    }
    played.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(text.unwrap_or("a panic").to_owned())
    })
}

/// Runs the part.
pub fn run(settings: &Settings, progress: &Progress) -> Outcome {
    let _quiet = crate::quiet::Quiet::new();
    let mut outcome = Outcome::of("blocks");
    let jobs = jobs(settings.quick || settings.seconds.is_some());
    let until = settings.seconds.map(|n| Instant::now() + Duration::from_secs(n));
    let (next, totals, violations) =
        (AtomicUsize::new(0), Totals::default(), Mutex::new(Vec::new()));
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while until.is_none_or(|until| Instant::now() < until) {
                    let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
                    if let Err(problem) = check(job, settings, &totals) {
                        let mut all = violations.lock().expect("no panic under it");
                        all.push(format!("{job}: {problem}"));
                        if all.len() >= ENOUGH {
                            break;
                        }
                    }
                    let done = next.load(Ordering::Relaxed).min(jobs.len());
                    progress.tick(format_args!("sequence {done} of {}", jobs.len()));
                }
            });
        }
    });
    outcome.recoveries = totals.reopened.into_inner();
    outcome.runs = format!(
        "{} sequences, {} operations refused for want of space",
        next.into_inner().min(jobs.len()),
        totals.refused.into_inner()
    );
    outcome.violations = violations.into_inner().expect("no panic under it");
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_changes_nothing_whatever_its_blocks_are() {
        let _quiet = crate::quiet::Quiet::new();
        let settings = Settings { seed: 1, quick: true, seconds: None, tenth: None };
        let totals = Totals::default();
        for job in jobs(true).iter().step_by(3).take(10).filter(|job| !job.grows_journal) {
            assert_eq!(check(job, &settings, &totals), Ok(()), "{job}");
        }
        assert_ne!(totals.refused.into_inner(), 0);
    }
}
