//! What can be left on persistent memory, and is all of it recovered? The model checker.
//!
//! The real code runs a sequence of operations on a simulated machine; at every moment at which the
//! set of possible images is at its largest the power goes, all images are recovered by the real
//! code, and what each holds is compared with what it may hold: everything that had returned, and
//! the operation in flight whole or not at all.
//!
//! | file | question |
//! |---|---|
//! | `content` | what must the file hold? |
//! | `kinds` | which kinds of operation are there, and how is one run? |
//! | `explore` | what does recovery make of every image that a loss of power can leave? |
//! | `planted` | does the checker notice when a step is left out? |
//!
//! This file chooses the sequences: all of up to three operations, and random ones of fifty. Of the former
//! only the last operation's moments are tried, because the beginning is a shorter sequence: so every
//! recovery is another one. Of the random ones all moments are.

pub mod content;
pub mod explore;
pub mod kinds;
pub mod planted;

use crate::machine::memory::Model;
use crate::machine::world::World;
use crate::part::{Outcome, Settings};
use crate::progress::Progress;
use explore::Explorer;
use kinds::{KINDS, Kind, Moment, Player, Second};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Both persistency models.
pub const MODELS: [Model; 2] = [Model::Chunk, Model::Px86];
/// Recoveries at least: quick, and long.
const QUICK: u64 = 10_100_000;
const LONGER: u64 = 101_000_000;
/// In the quick run, one in so many sequences of two operations is tried with two crashes in recovery,
/// the others with one.
const DEEP_DOUBLES: usize = 6;
/// Of three operations, one in so many with one, the others with none.
const DEEP_TRIPLES: usize = 6;
/// Operations in a random sequence.
const LONG: usize = 50;
/// So many of them are mixed with all other sequences where a budget cuts off some.
const LONG_IN_A_BUDGET: usize = 600;
/// Images up to which brute force is compared with lazy exploration.
const BRUTE: u64 = 1 << 12;

/// One sequence to be checked.
#[derive(Clone, Debug)]
struct Job {
    model: Model,
    kinds: Vec<Kind>,
    /// Crashes in recovery.
    depth: u32,
    moments: Which,
    /// On a disk behind a page cache.
    is_page_cache: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Which {
    /// Those of the last operation.
    OfTheLast,
    All,
}

/// All sequences of `len` operations.
fn all(len: usize) -> impl Iterator<Item = Vec<Kind>> {
    all_of(&KINDS, len)
}

/// All sequences of `len` operations of these kinds.
fn all_of(of: &[Kind], len: usize) -> impl Iterator<Item = Vec<Kind>> {
    let count = of.len().pow(len as u32);
    (0..count).map(move |mut n| {
        let mut kinds = Vec::with_capacity(len);
        for _ in 0..len {
            kinds.push(of[n % of.len()]);
            n /= of.len();
        }
        kinds
    })
}

/// All sequences of `len` operations on a disk behind a page cache: durable points.
fn on_disk(len: usize, depth: u32) -> impl Iterator<Item = Job> {
    all_of(&kinds::ON_PAGE_CACHE, len).map(move |kinds| Job {
        model: Model::Chunk,
        kinds,
        depth,
        moments: Which::OfTheLast,
        is_page_cache: true,
    })
}

/// Records go once round the journal, over one that tells of pages that no later one tells of: only a
/// checkpoint allows that.
fn round_the_journal(depth: u32) -> Job {
    let small = [Kind::Flip, Kind::Sync].into_iter().cycle().take(40);
    Job {
        model: Model::Chunk,
        kinds: [Kind::Pages, Kind::Sync].into_iter().chain(small).collect(),
        depth,
        moments: Which::OfTheLast,
        is_page_cache: true,
    }
}

/// What the last page holds past the end is zeroed in the page cache and nowhere else; then the file grows over it.
/// (btrfs does that. A loss of power brought back what had been cut off: `lab/power` came upon it once.) In one
/// session, and in two.
fn grown_over_what_was_cut_off(depth: u32) -> impl Iterator<Item = Job> {
    use Kind::{Fast, Grow, Reopen, Shrink, Spatial, Sync};
    let sequences = [
        vec![Shrink, Sync, Grow, Sync],
        vec![Shrink, Sync, Fast, Grow, Sync],
        vec![Shrink, Sync, Spatial, Grow, Sync],
        vec![Shrink, Sync, Reopen, Grow, Sync],
    ];
    sequences.into_iter().map(move |kinds| Job {
        model: Model::Chunk,
        kinds,
        depth,
        moments: Which::All,
        is_page_cache: true,
    })
}

/// What needs a rule each, and is tried first.
///
/// - Entries of a ring over those of the session before, of the same numbers, which are void.
/// - A slice that went there and back by vouched flips, and is logged, because a view pins it, beside one that
///   was written under the view: entries that are void, and data that goes over their slots.
/// - The same, where one slice of three is logged, and the power goes in recovery: the void header of the newest
///   entry must be durable before what is logged.
fn chosen(depth: u32) -> impl Iterator<Item = Job> {
    use Kind::{Flip, Reopen, UnderView, UnderViewInPart, Vouched, VouchedOverSlices};
    let sequences = [
        vec![Vouched, Vouched, Flip, Reopen, Vouched, Vouched],
        vec![VouchedOverSlices, VouchedOverSlices, UnderView],
        vec![VouchedOverSlices, VouchedOverSlices, UnderViewInPart],
    ];
    let job = move |kinds: Vec<Kind>, model| Job {
        model,
        kinds,
        depth,
        moments: Which::OfTheLast,
        is_page_cache: false,
    };
    sequences.into_iter().flat_map(move |kinds| MODELS.map(|model| job(kinds.clone(), model)))
}

/// Pages that are put together by who writes all of them, and what comes before and after that. (The images of a spilled
/// entry are many.)
fn together(depth: u32) -> impl Iterator<Item = Job> {
    let kinds = KINDS.into_iter().filter(|kind| *kind != Kind::Spilled);
    let sequences = kinds.flat_map(|kind| [vec![kind, Kind::Together], vec![Kind::Together, kind]]);
    sequences.flat_map(move |kinds| {
        MODELS.map(|model| Job {
            model,
            kinds: kinds.clone(),
            depth,
            moments: Which::OfTheLast,
            is_page_cache: false,
        })
    })
}

/// The piece of the part that is about durable points, for who looks for one planted bug.
pub fn run_on_disk(settings: &Settings, progress: &Progress) -> Outcome {
    let _quiet = crate::quiet::Quiet::new();
    let mut outcome = Outcome::of("disk");
    let until = settings.seconds.map(|n| Instant::now() + Duration::from_secs(n));
    let random = |numbers: std::ops::Range<usize>| {
        // Of their last operations only: all of their moments would take all the time.
        let last = |job| Job { depth: 0, moments: Which::OfTheLast, ..job };
        numbers.map(move |n| last(long(settings, 3 * n + 2)))
    };
    let jobs: Vec<Job> = on_disk(1, 1)
        .chain([round_the_journal(0)])
        .chain(grown_over_what_was_cut_off(0))
        .chain(random(0..20))
        .chain(on_disk(2, 0))
        .chain(random(20..60))
        .chain(on_disk(2, 1))
        .chain(on_disk(3, 0))
        .collect();
    check_all(settings, &jobs, 0, 0, until, progress).into_outcome(&mut outcome);
    outcome
}

/// The sequences, and how many of the first ones are run whatever time it is.
fn jobs(settings: &Settings) -> (Vec<Job>, usize) {
    let mut jobs = Vec::new();
    let mut rng = settings.rng("images");
    let of_all = |len, depth, jobs: &mut Vec<Job>| {
        for model in MODELS {
            let job = |kinds| Job {
                model,
                kinds,
                depth,
                moments: Which::OfTheLast,
                is_page_cache: false,
            };
            jobs.extend(all(len).map(job));
        }
    };
    jobs.extend(chosen(1));
    if settings.seconds.is_some() && !settings.quick {
        // Broad before deep, and of every kind early.
        of_all(1, 1, &mut jobs);
        jobs.extend(together(0));
        let short = jobs.len();
        of_all(2, 0, &mut jobs);
        let middle = jobs.len();
        of_all(2, 1, &mut jobs);
        of_all(3, 0, &mut jobs);
        rng.shuffle(&mut jobs[short..middle]);
        rng.shuffle(&mut jobs[middle..]);
        return (jobs, 0);
    }
    let mut needed = 0;
    if settings.seconds.is_some() {
        // Every sequence of up to two operations in any case. The budget cuts off what comes after:
        // all that the quick run has, in an order that the seed draws.
        jobs.extend(on_disk(1, 1).chain(on_disk(2, 0)));
        jobs.push(round_the_journal(0));
        jobs.extend(grown_over_what_was_cut_off(0));
        of_all(1, 1, &mut jobs);
        of_all(2, 0, &mut jobs);
        needed = jobs.len();
    }
    jobs.extend(together(1));
    jobs.extend(on_disk(1, 2).chain(on_disk(2, 1)).chain(on_disk(3, 0)));
    jobs.push(round_the_journal(1));
    jobs.extend(grown_over_what_was_cut_off(1));
    of_all(1, 2, &mut jobs);
    let single = jobs.len();
    of_all(2, 2, &mut jobs);
    let double = jobs.len();
    of_all(3, 1, &mut jobs);
    if settings.quick {
        // Each sequence in any case; a part of them as deep as in the long run.
        let mut shallower = |jobs: &mut [Job], one_in: usize| {
            for job in jobs {
                // The images of a spilled entry are many, and each recovery reads all of it.
                let is_slow = job.kinds.contains(&Kind::Spilled);
                job.depth -= u32::from(is_slow || rng.usize(0..one_in) != 0);
            }
        };
        shallower(&mut jobs[single..double], DEEP_DOUBLES);
        shallower(&mut jobs[double..], DEEP_TRIPLES);
    }
    if settings.seconds.is_some() {
        jobs.extend((0..LONG_IN_A_BUDGET).map(|n| long(settings, n)));
        rng.shuffle(&mut jobs[needed..]);
    }
    (jobs, needed)
}

/// The nth random sequence. Every third is on page cache, where many are durable points. Half of those
/// make them by the journal alone, so that it goes round and only checkpoints make room.
fn long(settings: &Settings, n: usize) -> Job {
    let mut rng = settings.rng(&format!("images {n}"));
    if n % 3 == 2 {
        let kinds = if n.is_multiple_of(2) {
            let kind = |rng: &mut fastrand::Rng| match rng.usize(0..3) {
                0 => Kind::Sync,
                _ => kinds::ON_PAGE_CACHE[rng.usize(0..kinds::ON_PAGE_CACHE.len())],
            };
            (0..LONG).map(|_| kind(&mut rng)).collect()
        } else {
            let pair = |rng: &mut fastrand::Rng| {
                [kinds::SMALL[rng.usize(0..kinds::SMALL.len())], Kind::Sync]
            };
            (0..LONG).flat_map(|_| pair(&mut rng)).collect()
        };
        let model = Model::Chunk;
        return Job { model, kinds, depth: 1, moments: Which::All, is_page_cache: true };
    }
    let kinds = (0..LONG).map(|_| KINDS[rng.usize(0..KINDS.len())]).collect();
    Job { model: MODELS[n % 2], kinds, depth: 1, moments: Which::All, is_page_cache: false }
}

/// Counts over all workers.
#[derive(Default)]
struct Totals {
    recoveries: AtomicU64,
    states: AtomicU64,
    sampled: AtomicU64,
    sequences: AtomicU64,
    violations: Mutex<Vec<String>>,
    stop: AtomicBool,
}

impl Totals {
    fn add(&self, explorer: &mut Explorer) {
        self.recoveries.fetch_add(explorer.recoveries, Ordering::Relaxed);
        self.states.fetch_add(explorer.states, Ordering::Relaxed);
        self.sampled.fetch_add(explorer.sampled, Ordering::Relaxed);
        if !explorer.violations.is_empty() {
            let mut all = self.violations.lock().expect("no panic under it");
            all.append(&mut explorer.violations);
            self.stop.store(true, Ordering::Relaxed);
        }
        *explorer = Explorer::default();
    }
}

/// Runs the sequence. The moments to be tried, and the ranges to be read.
fn play(job: &Job, device: u64, second: &Second) -> Result<(Vec<Moment>, Vec<Range<u64>>), String> {
    let text = |e: atomic_mmap::Error| format!("an operation failed: {e}");
    let world = match job.is_page_cache {
        true => World::with_page_cache(device),
        false => World::new(job.model, device),
    };
    let mut player = Player::on(world, second).map_err(text)?;
    // From there on, to the end: who watches anew forgets what was seen.
    let watched_from = match job.moments {
        Which::OfTheLast => job.kinds.len() - 1,
        Which::All => 0,
    };
    for (n, kind) in job.kinds.iter().enumerate() {
        if n == watched_from {
            player.watch();
        }
        let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| player.play(*kind)));
        match played {
            Ok(done) => done.map_err(text)?,
            Err(_) => return Err(format!("a panic in operation {n}, {kind:?}")),
        }
    }
    let ranges = player.ranges.clone();
    Ok((player.finish(), ranges))
}

fn check(job: &Job, device: u64, second: &Second, explorer: &mut Explorer, totals: &Totals) {
    let on = if job.is_page_cache { "page cache" } else { "memory" };
    let name = format!("{on} {:?} {:?}", job.model, job.kinds);
    match play(job, device, second) {
        Ok((moments, ranges)) => {
            for (n, moment) in moments.iter().enumerate() {
                if !totals.stop.load(Ordering::Relaxed) {
                    let name = format!("{name}, moment {n} of {}", moments.len());
                    explorer.explore(moment, &ranges, job.depth, &name);
                }
            }
        }
        Err(problem) => explorer.violations.push(format!("{name}: {problem}")),
    }
    if !explorer.violations.is_empty() && job.kinds.len() > 3 {
        explorer.violations.extend(shortest(job, device, second));
    }
    totals.add(explorer);
    totals.sequences.fetch_add(1, Ordering::Relaxed);
}

/// The violation of a sequence from which no operation can be left out.
fn shortest(job: &Job, device: u64, second: &Second) -> Option<String> {
    let tried = |kinds: Vec<Kind>| {
        let mut explorer = Explorer::default();
        // Wherever it was seen first: what comes after it is left out, too.
        let job = Job { kinds, moments: Which::All, ..job.clone() };
        let (moments, ranges) = play(&job, device, second).ok()?;
        for (n, moment) in moments.iter().enumerate() {
            let name = format!("shortest: {:?}, moment {n} of {}", job.kinds, moments.len());
            explorer.explore(moment, &ranges, job.depth, &name);
            if !explorer.violations.is_empty() {
                break;
            }
        }
        explorer.violations.pop().map(|violation| (job.kinds, violation))
    };
    let (mut kinds, mut violation) = tried(job.kinds.clone())?;
    let mut n = 0;
    while n < kinds.len() {
        let mut fewer = kinds.clone();
        fewer.remove(n);
        match (!fewer.is_empty()).then(|| tried(fewer)).flatten() {
            Some(found) => (kinds, violation) = found,
            None => n += 1,
        }
    }
    Some(violation)
}

impl Totals {
    fn into_outcome(self, outcome: &mut Outcome) {
        outcome.recoveries = self.recoveries.into_inner();
        outcome.runs = format!(
            "{} sequences, {} states, {} of them sampled",
            self.sequences.into_inner(),
            self.states.into_inner(),
            self.sampled.into_inner(),
        );
        outcome.violations.append(&mut self.violations.into_inner().expect("no panic under it"));
    }
}

/// Runs jobs on all processors, until they are done, time is up or a violation was found. The first
/// `needed` ones are run however long that takes.
///
/// After the jobs come random sequences, as long as there are fewer recoveries than `wanted`.
fn check_all(
    settings: &Settings,
    jobs: &[Job],
    needed: usize,
    wanted: u64,
    until: Option<Instant>,
    progress: &Progress,
) -> Totals {
    let (totals, next) = (Totals::default(), AtomicU64::new(0));
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get());
    let is_over = || until.is_some_and(|until| Instant::now() > until);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            let (totals, next) = (&totals, &next);
            scope.spawn(move || {
                let (second, device) = (Second::new(), new_device());
                let mut explorer = Explorer::default();
                while !totals.stop.load(Ordering::Relaxed) {
                    let n = next.fetch_add(1, Ordering::Relaxed) as usize;
                    if n >= needed && is_over() {
                        break;
                    }
                    let so_far = totals.recoveries.load(Ordering::Relaxed);
                    match jobs.get(n) {
                        Some(job) => check(job, device, &second, &mut explorer, totals),
                        None if so_far < wanted => {
                            let job = long(settings, n - jobs.len());
                            check(&job, device, &second, &mut explorer, totals);
                        }
                        None => break,
                    }
                    progress.tick(format_args!(
                        "sequence {n} ({} short ones), {so_far} recoveries",
                        jobs.len()
                    ));
                }
            });
        }
    });
    totals
}

/// Machines that exist at the same time have different device numbers, in one process: one for each
/// thread that makes machines.
pub(crate) fn new_device() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Compares lazy exploration with brute force, where brute force ends. Moments that were compared, and
/// images.
fn compare_with_brute_force(violations: &mut Vec<String>, progress: &Progress) -> (u64, u64) {
    let second = Second::new();
    let (mut compared, mut images) = (0, 0);
    for model in MODELS {
        // Of two operations every fifth sequence: brute force is slow.
        for kinds in all(1).chain(all(2).step_by(5)) {
            let name = format!("{model:?} {kinds:?}");
            let job =
                Job { model, kinds, depth: 0, moments: Which::OfTheLast, is_page_cache: false };
            let (moments, ranges) = match play(&job, new_device(), &second) {
                Ok(played) => played,
                Err(problem) => {
                    violations.push(format!("{name}: {problem}"));
                    continue;
                }
            };
            for moment in &moments {
                if moment.world.after_crash(Default::default()).images() > BRUTE {
                    continue;
                }
                progress.tick(format_args!("brute force: {compared} moments, {images} images"));
                let result = Explorer::lazy_outcomes(moment, &ranges).and_then(|lazy| {
                    Explorer::brute_outcomes(moment, &ranges, BRUTE).map(|brute| (lazy, brute))
                });
                match result {
                    Ok((lazy, Some((brute, count)))) => {
                        compared += 1;
                        images += count;
                        if lazy != brute {
                            violations.push(format!("{name}: lazy and brute force differ"));
                        }
                    }
                    Ok((_, None)) => {}
                    Err(problem) => violations.push(format!("{name}: {problem}")),
                }
            }
        }
    }
    (compared, images)
}

/// The part. `settings.seconds` of the quick run are a budget: all sequences of up to two operations,
/// and of what the quick run has besides as much as there is time for. Otherwise the run looks for a
/// bug that is planted in the engine: sequences for so long, and nothing that is planted in the lab.
pub fn run(settings: &Settings, progress: &Progress) -> Outcome {
    let _quiet = crate::quiet::Quiet::new();
    let mut outcome = Outcome::of("images");
    let until = settings.seconds.map(|n| Instant::now() + Duration::from_secs(n));
    let mut brute = (0, 0);
    if until.is_none() || settings.quick {
        planted::run(&mut outcome);
        brute = compare_with_brute_force(&mut outcome.violations, progress);
    }
    let (jobs, needed) = jobs(settings);
    let wanted = if settings.quick { QUICK } else { LONGER };
    let totals = check_all(settings, &jobs, needed, wanted, until, progress);
    totals.into_outcome(&mut outcome);
    outcome.runs = format!(
        "{}; lazy = brute force for {} moments, {} images",
        outcome.runs, brute.0, brute.1,
    );
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Durable points, in every sequence of one and two operations, and of three with a sync.
    #[test]
    fn a_loss_of_power_goes_back_to_the_last_sync() {
        let quiet = crate::quiet::Quiet::new();
        let job = |kinds| Job {
            model: Model::Chunk,
            kinds,
            depth: 0,
            moments: Which::OfTheLast,
            is_page_cache: true,
        };
        let kinds = kinds::ON_PAGE_CACHE;
        let mut jobs: Vec<Job> = kinds.iter().map(|kind| job(vec![*kind])).collect();
        for first in kinds {
            jobs.extend(kinds.iter().map(|second| job(vec![first, *second])));
            jobs.extend(kinds.iter().map(|third| job(vec![first, Kind::Sync, *third])));
        }
        let settings = Settings { seed: 1, quick: true, seconds: None, tenth: None };
        let totals = check_all(&settings, &jobs, 0, 0, None, &Progress::new("images"));
        drop(quiet);
        let violations = totals.violations.into_inner().unwrap();
        assert!(violations.is_empty(), "{violations:#?}");
        assert!(totals.recoveries.into_inner() > 5_000);
    }

    /// The checker on every sequence of one operation, with crashes in recovery, and of two without.
    #[test]
    fn short_sequences_recover_from_every_image() {
        let quiet = crate::quiet::Quiet::new();
        let mut jobs = Vec::new();
        for model in MODELS {
            for (len, depth) in [(1, 1), (2, 0)] {
                let one = |kinds| Job {
                    model,
                    kinds,
                    depth,
                    moments: Which::OfTheLast,
                    is_page_cache: false,
                };
                // A spilled entry's images are many, and its recovery is slow without optimization.
                jobs.extend(all(len).filter(|k| !k.contains(&Kind::Spilled)).map(one));
            }
        }
        jobs.extend(chosen(1).chain(together(0)));
        let settings = Settings { seed: 1, quick: true, seconds: None, tenth: None };
        let totals = check_all(&settings, &jobs, 0, 0, None, &Progress::new("images"));
        drop(quiet);
        let violations = totals.violations.into_inner().unwrap();
        assert!(violations.is_empty(), "{violations:#?}");
        assert!(totals.recoveries.into_inner() > 5_000);
    }

    #[test]
    fn every_step_that_is_left_out_is_noticed() {
        let mut outcome = Outcome::of("images");
        let quiet = crate::quiet::Quiet::new();
        planted::run(&mut outcome);
        drop(quiet);
        assert_eq!((outcome.killed, &outcome.violations), (outcome.planted, &vec![]));
        assert!(outcome.planted >= 15);
    }
}
