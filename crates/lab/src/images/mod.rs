//! The part `images`: a model checker. Recovery succeeds from every image that a power loss can
//! leave.
//!
//! The real code runs a sequence of operations on a simulated machine. The power fails at every
//! moment at which the set of possible images is largest. The real code recovers all images. The
//! part compares the content of each with the allowed ones. All operations that have returned must
//! be present. The operation in progress must be present as a whole or not at all.
//!
//! | file | contents |
//! |---|---|
//! | `content` | a model of the file's content |
//! | `kinds` | the kinds of operation, and their execution |
//! | `explore` | the recovery of every image |
//! | `planted` | planted faults of the machine |
//! | `second` | a second thread |
//! | `snapshots` | operations on snapshots, and sequences with them |
//! | `space` | stages, background deployment and a budget, and sequences with them |
//!
//! This file chooses the sequences: all sequences of up to three operations, and random ones of
//! fifty, and sequences with snapshots and with stages. The moments of a short sequence are those
//! of its last operation, because its beginning is a shorter sequence. So no recovery is repeated.
//! The moments of a random sequence are those of all its operations.

pub mod content;
pub mod explore;
pub mod kinds;
pub mod planted;
mod second;
pub mod snapshots;
pub mod space;
#[cfg(test)]
mod tests;

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
/// Minimum number of recoveries in a quick run. The next constant is that of a long run.
const QUICK: u64 = 10_100_000;
const LONGER: u64 = 101_000_000;
/// In the quick run, one sequence of two operations out of this number has two crashes in recovery.
/// The others have one.
const DEEP_DOUBLES: usize = 6;
/// One sequence of three operations out of this number has one crash in recovery. The others have
/// none.
const DEEP_TRIPLES: usize = 6;
/// Number of operations in a random sequence.
const LONG: usize = 50;
/// Number of random sequences that are mixed with the others if a time budget limits the run.
const LONG_IN_A_BUDGET: usize = 600;
/// Number of random sequences of three operations in a search with a time.
const TRIPLES_IN_A_BUDGET: usize = 100_000;
/// Maximum number of images for a comparison of brute force and lazy exploration.
const BRUTE: u64 = 1 << 12;

/// One sequence to be checked.
#[derive(Clone, Debug)]
struct Job {
    model: Model,
    kinds: Vec<Kind>,
    /// Number of crashes in recovery.
    depth: u32,
    moments: Which,
    /// The file lies on a disk behind a page cache.
    is_page_cache: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Which {
    /// The moments of the last operation.
    OfTheLast,
    All,
}

/// Returns all sequences of `len` operations.
fn all(len: usize) -> impl Iterator<Item = Vec<Kind>> {
    all_of(&KINDS, len)
}

/// Returns all sequences of `len` operations of these kinds.
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

/// Returns a sequence in memory of this model, or on a disk behind a page cache.
fn job(kinds: Vec<Kind>, depth: u32, medium: Option<Model>) -> Job {
    let model = medium.unwrap_or(Model::Chunk);
    Job { model, kinds, depth, moments: Which::OfTheLast, is_page_cache: medium.is_none() }
}

/// Returns the media, and the plain kinds of each: both models of memory, and the page cache.
fn media() -> [(Option<Model>, &'static [Kind]); 3] {
    let [first, second] = MODELS;
    [(Some(first), &KINDS), (Some(second), &KINDS), (None, &kinds::ON_PAGE_CACHE)]
}

/// Returns all sequences of `len` operations on a disk behind a page cache, with durable points.
fn on_disk(len: usize, depth: u32) -> impl Iterator<Item = Job> {
    all_of(&kinds::ON_PAGE_CACHE, len).map(move |kinds| job(kinds, depth, None))
}

/// Returns a sequence in which records wrap around the journal. They overwrite a record of pages
/// that no later record names, which only a checkpoint permits.
fn round_the_journal(depth: u32) -> Job {
    let small = [Kind::Flip, Kind::Sync].into_iter().cycle().take(40);
    job([Kind::Pages, Kind::Sync].into_iter().chain(small).collect(), depth, None)
}

/// Returns sequences in which a shrunk file grows over its old end, in one session and in two.
///
/// The file system zeroes the rest of the last page in the page cache only. Then the file grows
/// over it. btrfs does that, and a power loss restored truncated bytes. `lab/power` found this
/// once.
fn grown_over_what_was_cut_off(depth: u32) -> impl Iterator<Item = Job> {
    use Kind::{Fast, Grow, GrowAndWrite, Reopen, Shrink, ShrinkAndWrite, Spatial, Sync};
    let sequences = [
        vec![ShrinkAndWrite, Sync, GrowAndWrite, Sync],
        vec![Shrink, Sync, Grow, Sync],
        vec![Shrink, Sync, Fast, Grow, Sync],
        vec![Shrink, Sync, Spatial, Grow, Sync],
        vec![Shrink, Sync, Reopen, Grow, Sync],
    ];
    let all = move |kinds| Job { moments: Which::All, ..job(kinds, depth, None) };
    sequences.into_iter().map(all)
}

/// Returns sequences that each need a special rule. They are tried first.
///
/// - Flip records over those of the previous session with the same numbers, which are invalidated.
/// - A slice that logged flips moved there and back. A view pins it, so the next write logs its
///   data, together with a slice written under the view. Its flip records are invalidated, and the
///   data overwrites their slots.
/// - Three slices of this kind, with one of them logged, and a power loss in recovery. The
///   invalidated header of the newest flip record must be durable before the logged data.
/// - Slices like these before the new end of the file, in one operation with the new length.
/// - A record of several slices that is not the newest. Two later flips of one of its slices
///   overwrite the slot that it names, so recovery must not verify it.
fn chosen(depth: u32) -> impl Iterator<Item = Job> {
    use Kind::{Flip, LoggedFlip, LoggedFlipOverSlices, Reopen, UnderView, UnderViewInPart};
    let sequences = [
        vec![LoggedFlipOverSlices, LoggedFlip, Kind::ShrinkUnderView],
        vec![LoggedFlip, LoggedFlip, Flip, Reopen, LoggedFlip, LoggedFlip],
        vec![LoggedFlipOverSlices, LoggedFlipOverSlices, UnderView],
        vec![LoggedFlipOverSlices, LoggedFlipOverSlices, UnderViewInPart],
        vec![LoggedFlipOverSlices, LoggedFlip, LoggedFlip],
    ];
    sequences
        .into_iter()
        .flat_map(move |kinds| MODELS.map(|model| job(kinds.clone(), depth, Some(model))))
}

/// Runs the piece of the part with durable points, to look for one planted bug.
pub fn run_on_disk(settings: &Settings, progress: &Progress) -> Outcome {
    let _quiet = crate::quiet::Quiet::new();
    let mut outcome = Outcome::of("disk");
    let until = settings.seconds.map(|n| Instant::now() + Duration::from_secs(n));
    let random = |numbers: std::ops::Range<usize>| {
        // Only the last operation, because all moments would take too much time.
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

/// Runs the sequences with snapshots, to look for one planted bug.
pub fn run_with_snapshots(settings: &Settings, progress: &Progress) -> Outcome {
    let _quiet = crate::quiet::Quiet::new();
    let mut outcome = Outcome::of("snapshots");
    let until = settings.seconds.map(|n| Instant::now() + Duration::from_secs(n));
    let mut jobs = snapshots::first(0);
    let first = jobs.len();
    jobs.extend(snapshots::all(1).into_iter().chain(snapshots::pairs(0)));
    settings.rng("snapshots").shuffle(&mut jobs[first..]);
    check_all(settings, &jobs, 0, 0, until, progress).into_outcome(&mut outcome);
    outcome
}

/// Runs the sequences with stages, background deployment and a budget, to look for one planted bug.
/// With a time, random ones follow until it is over.
pub fn run_with_space(settings: &Settings, progress: &Progress) -> Outcome {
    let _quiet = crate::quiet::Quiet::new();
    let mut outcome = Outcome::of("space");
    let until = settings.seconds.map(|n| Instant::now() + Duration::from_secs(n));
    let mut rng = settings.rng("space");
    let mut jobs = space::first(1);
    let first = jobs.len();
    jobs.extend(space::pairs(0));
    rng.shuffle(&mut jobs[first..]);
    let random = if until.is_some() { TRIPLES_IN_A_BUDGET } else { 0 };
    jobs.extend((0..random).map(|_| space::triple(&mut rng)));
    check_all(settings, &jobs, 0, 0, until, progress).into_outcome(&mut outcome);
    outcome
}

/// Returns the sequences, and the number of the first ones that run regardless of the time.
fn jobs(settings: &Settings) -> (Vec<Job>, usize) {
    let mut jobs = Vec::new();
    let mut rng = settings.rng("images");
    let of_all = |len, depth, jobs: &mut Vec<Job>| {
        for model in MODELS {
            jobs.extend(all(len).map(|kinds| job(kinds, depth, Some(model))));
        }
    };
    jobs.extend(chosen(1));
    if settings.seconds.is_some() && !settings.quick {
        // Short sequences before long ones, with every kind early.
        of_all(1, 1, &mut jobs);
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
        // Every sequence of up to two operations always runs. The time budget limits the rest of
        // the quick run, in an order that the seed determines.
        jobs.extend(on_disk(1, 1).chain(on_disk(2, 0)));
        jobs.push(round_the_journal(0));
        jobs.extend(grown_over_what_was_cut_off(0));
        of_all(1, 1, &mut jobs);
        of_all(2, 0, &mut jobs);
        jobs.extend(snapshots::first(0));
        jobs.extend(space::first(0));
        needed = jobs.len();
    }
    jobs.extend(on_disk(1, 2).chain(on_disk(2, 1)).chain(on_disk(3, 0)));
    jobs.push(round_the_journal(1));
    jobs.extend(grown_over_what_was_cut_off(1));
    jobs.extend(snapshots::all(1).into_iter().chain(snapshots::pairs(u32::from(!settings.quick))));
    jobs.extend(space::first(2).into_iter().chain(space::pairs(u32::from(!settings.quick))));
    of_all(1, 2, &mut jobs);
    let single = jobs.len();
    of_all(2, 2, &mut jobs);
    let double = jobs.len();
    of_all(3, 1, &mut jobs);
    if settings.quick {
        // Each sequence runs, but only some of them with the depth of the long run.
        let mut shallower = |jobs: &mut [Job], one_in: usize| {
            for job in jobs {
                // A spilled undo record has many images, and each recovery reads all of it.
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

/// Returns the nth random sequence. Every third one is on page cache and contains many durable
/// points. Half of those have only small writes, so that the journal wraps around and checkpoints
/// must make room.
fn long(settings: &Settings, n: usize) -> Job {
    let mut rng = settings.rng(&format!("images {n}"));
    if n % 3 == 2 {
        let kinds = if n.is_multiple_of(2) {
            let kind = |rng: &mut fastrand::Rng| match rng.usize(0..3) {
                0 => Kind::Sync,
                1 if n.is_multiple_of(4) => snapshots::at_random(rng, &kinds::ON_PAGE_CACHE),
                1 => space::at_random(rng, &kinds::ON_PAGE_CACHE, true),
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
    let kind = |rng: &mut fastrand::Rng| match n % 4 {
        0 => snapshots::at_random(rng, &KINDS),
        1 => space::at_random(rng, &KINDS, false),
        _ => KINDS[rng.usize(0..KINDS.len())],
    };
    let kinds = (0..LONG).map(|_| kind(&mut rng)).collect();
    Job { model: MODELS[n % 2], kinds, depth: 1, moments: Which::All, is_page_cache: false }
}

/// The counts of all workers.
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

/// Runs the sequence. Returns the moments for power losses, and the ranges to read.
fn play(job: &Job, device: u64, second: &Second) -> Result<(Vec<Moment>, Vec<Range<u64>>), String> {
    let text = |e: atomic_mmap::Error| format!("an operation failed: {e}");
    let world = match job.is_page_cache {
        true => World::with_page_cache(device),
        false => World::new(job.model, device),
    };
    let mut player = Player::on(world, second).map_err(text)?;
    // From this operation to the end, because a new call of `watch` drops earlier states.
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

/// Explores the moments of one sequence while `goes_on` says so. A sequence that was cut off does
/// not count.
fn check(
    job: &Job,
    (device, second): (u64, &Second),
    explorer: &mut Explorer,
    totals: &Totals,
    goes_on: impl Fn() -> bool,
) {
    let mut is_whole = true;
    let on = if job.is_page_cache { "page cache" } else { "memory" };
    let name = format!("{on} {:?} {:?}", job.model, job.kinds);
    match play(job, device, second) {
        Ok((moments, ranges)) => {
            for (n, moment) in moments.iter().enumerate() {
                if totals.stop.load(Ordering::Relaxed) || !goes_on() {
                    is_whole = false;
                    break;
                }
                let name = format!("{name}, moment {n} of {}", moments.len());
                explorer.explore(moment, &ranges, job.depth, &name);
            }
        }
        Err(problem) => explorer.violations.push(format!("{name}: {problem}")),
    }
    if !explorer.violations.is_empty() && job.kinds.len() > 3 {
        explorer.violations.extend(shortest(job, device, second));
    }
    totals.add(explorer);
    totals.sequences.fetch_add(is_whole.into(), Ordering::Relaxed);
}

/// Returns the violation of the shortest sequence: none of its operations can be left out.
fn shortest(job: &Job, device: u64, second: &Second) -> Option<String> {
    let tried = |kinds: Vec<Kind>| {
        let mut explorer = Explorer::default();
        // Leaves out operations after the violation, too.
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

/// Runs jobs on all processors until they are done, time is up or a violation was found. The first
/// `needed` jobs always run to their end. Others end with the moment at which time is up.
///
/// After the jobs, runs random sequences while there are fewer recoveries than `wanted`.
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
                    let goes_on = || n < needed || !is_over();
                    if !goes_on() {
                        break;
                    }
                    let machine = (device, &second);
                    let so_far = totals.recoveries.load(Ordering::Relaxed);
                    match jobs.get(n) {
                        Some(job) => check(job, machine, &mut explorer, totals, goes_on),
                        None if so_far < wanted => {
                            let job = long(settings, n - jobs.len());
                            check(&job, machine, &mut explorer, totals, goes_on);
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

/// Returns a new device number. Machines that exist at the same time in a process need different
/// ones.
pub(crate) fn new_device() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Compares lazy exploration with brute force if brute force is short enough. Returns the number of
/// compared moments and of images.
fn compare_with_brute_force(violations: &mut Vec<String>, progress: &Progress) -> (u64, u64) {
    let second = Second::new();
    let (mut compared, mut images) = (0, 0);
    for model in MODELS {
        // Every fifth sequence of two operations, because brute force is slow.
        for kinds in all(1).chain(all(2).step_by(5)) {
            let name = format!("{model:?} {kinds:?}");
            let job = job(kinds, 0, Some(model));
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

/// Runs the part.
///
/// In a quick run, `settings.seconds` is a time budget. All sequences of up to two operations run,
/// and the others as time permits. Otherwise `settings.seconds` means a search for a bug that is
/// planted in the engine: sequences for this time, without the planted faults of the lab.
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
