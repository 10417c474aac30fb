//! The part `scribbles`: random overwrites of the files of a pair are never read as data.
//!
//! A file with page sums, of which each read verifies, has a model: plain bytes for the present and
//! for each snapshot. The lab overwrites 1 byte to 40 KiB of one of its files, behind the crate's
//! back. Then each read returns the right bytes or fails. The idea is RMMIO's (IV-D).
//!
//! The environment variable `LAB_SCRIBBLES` runs the file of this number alone, as a violation
//! names it.
//!
//! | file | contents |
//! |---|---|
//! | [`place`] | the place, the length and the bytes of a scribble |
//! | [`mapping`] | the second mapping by which it is made |
//! | [`subject`] | the file, its operations, and the model |
//! | [`eyes`] | the reader, and the planted faults |
//! | [`judge`] | the oracle for a file that was opened with scribbles |
//! | [`in_use`] | scribbles on a file in use, each put back at once |
//! | [`stays`] | scribbles that stay beside operations; repair and rollback |
//! | [`opened`] | scribbles before an opening |

pub mod eyes;
pub mod in_use;
pub mod judge;
pub mod mapping;
pub mod opened;
pub mod place;
pub mod stays;
pub mod subject;

use crate::part::{Outcome, Settings};
use crate::progress::Progress;
use atomic_mmap::CloseMode;
use eyes::{Eyes, Plant};
use judge::Checked;
use place::Ink;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use subject::{GROUNDS, Ground, Subject};

/// Environment variable with the number of a file, to run that one alone.
const ONE: &str = "LAB_SCRIBBLES";
/// Scribbles of a quick run, and of a long one.
const QUICK: u64 = 10_000_000;
const LONG: u64 = 1_000_000_000;
/// Number of violations after which the part ends.
const ENOUGH: usize = 5;
/// Operations between two rounds of scribbles.
const OPERATIONS: usize = 20;

/// The amount of work on one file.
#[derive(Clone, Copy)]
struct Amount {
    rounds: u64,
    /// Scribbles of a round on the file in use.
    in_use: u64,
    /// Openings with scribbles at the end.
    openings: u64,
}

/// Work on one file of a run.
const FILE: Amount = Amount { rounds: 12, in_use: 4000, openings: 60 };
/// Work that finds each planted fault.
const LITTLE: Amount = Amount { rounds: 2, in_use: 600, openings: 60 };

/// The counts of a run.
#[derive(Default, Debug)]
pub struct Tally {
    /// Scribbles on files in use, put back at once.
    pub in_use: AtomicU64,
    /// Scribbles before openings.
    pub before_openings: AtomicU64,
    /// Scribbles that stayed beside operations.
    pub stayed: AtomicU64,
    /// Scribbles that were noticed before a read returned bytes.
    pub noticed: AtomicU64,
    /// Pages that held the other state of rule B9.
    pub older: AtomicU64,
    /// Pages of snapshots of which slices of that state were kept.
    pub kept: AtomicU64,
    /// Openings with scribbles.
    pub openings: AtomicU64,
    /// Openings that were refused.
    pub refused: AtomicU64,
    /// Rollbacks over damage.
    pub rolled_back: AtomicU64,
    /// Pages that a write over them has repaired.
    pub repaired: AtomicU64,
}

impl Tally {
    /// Adds to one of the counts.
    pub fn add(&self, count: &AtomicU64, number: u64) {
        count.fetch_add(number, Ordering::Relaxed);
    }

    /// Returns the number of all scribbles.
    fn scribbles(&self) -> u64 {
        let counts = [&self.in_use, &self.before_openings, &self.stayed];
        counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

/// Runs some work on one new file.
fn work(
    (ground, amount): (Ground, Amount),
    mut rng: fastrand::Rng,
    (eyes, ink): (&mut Eyes, &Ink),
    tally: &Tally,
) -> Checked {
    let new = |rng: &mut fastrand::Rng| {
        Subject::new(ground, rng.fork()).map_err(|error| format!("a new file: {error}"))
    };
    let mut subject = new(&mut rng)?;
    for round in 0..amount.rounds {
        for _ in 0..OPERATIONS {
            subject.operate().map_err(|error| format!("an operation: {error}"))?;
        }
        // The first touch of a page in a session verifies it in another way than a later one.
        let has_died = round % 4 == 1;
        if round % 2 == 1 {
            let mode = if has_died { CloseMode::Unsynced } else { CloseMode::Fast };
            let reopened = subject.close(mode).and_then(|()| subject.open());
            reopened.map_err(|error| format!("reopened: {error}"))?;
        }
        let in_use = (amount.in_use, has_died);
        in_use::scribble_in_use(&mut subject, in_use, (eyes, ink), tally)?;
        if round % 3 == 1 {
            stays::roll_back_over_damage(&mut subject, (eyes, ink), tally)?;
        }
        if !stays::scribble_and_go_on(&mut subject, (eyes, ink), tally)? {
            subject = new(&mut rng)?;
        }
    }
    for _ in 0..OPERATIONS {
        subject.operate().map_err(|error| format!("an operation: {error}"))?;
    }
    for mode in [CloseMode::Fast, CloseMode::Unsynced] {
        // The older superblock of a first session tells of a pair in the making.
        if subject.rng.bool() {
            let reopened = subject.close(CloseMode::Fast).and_then(|()| subject.open());
            reopened.map_err(|error| format!("reopened: {error}"))?;
        }
        for _ in 0..OPERATIONS {
            subject.operate().map_err(|error| format!("an operation: {error}"))?;
        }
        let rest = opened::Rest::take(&mut subject, mode)?;
        let openings = amount.openings / 2;
        opened::scribble_and_open(&mut subject, &rest, openings, (eyes, ink), tally)?;
        subject = new(&mut rng)?;
        for _ in 0..2 * OPERATIONS {
            subject.operate().map_err(|error| format!("an operation: {error}"))?;
        }
    }
    Ok(())
}

/// Runs the work, and makes a panic a violation.
fn check(
    what: (Ground, Amount),
    rng: fastrand::Rng,
    with: (&mut Eyes, &Ink),
    tally: &Tally,
) -> Checked {
    let worked = catch_unwind(AssertUnwindSafe(|| work(what, rng, with, tally)));
    worked.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("a panic: {}", text.unwrap_or("without a message")))
    })
}

/// Plants wrong ways of treating damage. Returns how many of them the oracle notices, and a text
/// for each other one.
fn plant_all(settings: &Settings, grounds: &[Ground]) -> (u64, Vec<String>) {
    let (mut killed, mut missed) = (0, Vec::new());
    for plant in Plant::ALL {
        let is_noticed = (0..8)
            .flat_map(|nth| grounds.iter().map(move |ground| (nth, ground)))
            .any(|(nth, ground)| {
                let mut rng = settings.rng(&format!("planted {plant:?} {nth} {}", ground.name));
                let (ink, mut eyes) = (Ink::new(&mut rng), Eyes::new(Some(plant)));
                check((*ground, LITTLE), rng, (&mut eyes, &ink), &Tally::default()).is_err()
            });
        match is_noticed {
            true => killed += 1,
            false => missed.push(format!("planted fault {plant:?} was not noticed")),
        }
    }
    (killed, missed)
}

/// Runs the part.
pub fn run(settings: &Settings, progress: &Progress) -> Outcome {
    let _quiet = crate::quiet::Quiet::new();
    let grounds: Vec<Ground> = GROUNDS.into_iter().filter(Ground::is_served).collect();
    let (tally, violations) = (Tally::default(), Mutex::new(Vec::new()));
    let wanted = if settings.quick { QUICK } else { LONG };
    let one = std::env::var(ONE).ok().and_then(|nth| nth.parse().ok());
    let next = AtomicU64::new(one.unwrap_or(0));
    let until = settings.seconds.map(|n| Instant::now() + Duration::from_secs(n));
    let is_over = || {
        until.is_some_and(|until| Instant::now() > until)
            || tally.scribbles() >= wanted
            || violations.lock().expect("no panic under it").len() >= ENOUGH
    };
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let ink = Ink::new(&mut settings.rng("ink"));
                while !is_over() {
                    let nth = next.fetch_add(1, Ordering::Relaxed);
                    if one.is_some_and(|one| nth > one) {
                        break;
                    }
                    let ground = grounds[nth as usize % grounds.len()];
                    let rng = settings.rng(&format!("scribbles {nth}"));
                    let with = (&mut Eyes::new(None), &ink);
                    if let Err(problem) = check((ground, FILE), rng, with, &tally) {
                        let text = format!("file {nth} on {}: {problem}", ground.name);
                        violations.lock().expect("no panic under it").push(text);
                    }
                    let done = tally.scribbles();
                    progress.tick(format_args!("{done} of {wanted} scribbles"));
                }
            });
        }
    });
    let mut violations = violations.into_inner().expect("no panic under it");
    let (mut killed, mut planted) = (0, 0);
    if settings.seconds.is_none() || settings.quick {
        let (noticed, missed) = plant_all(settings, &grounds);
        violations.extend(missed);
        (killed, planted) = (noticed, Plant::ALL.len() as u64);
    }
    let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
    Outcome {
        runs: format!(
            "{} scribbles: {} in use, {} before {} openings, {} that stayed; {} noticed, {} openings \
             refused, {} pages older by B9, {} of snapshots, {} rollbacks, {} repairs",
            tally.scribbles(),
            count(&tally.in_use),
            count(&tally.before_openings),
            count(&tally.openings),
            count(&tally.stayed),
            count(&tally.noticed),
            count(&tally.refused),
            count(&tally.older),
            count(&tally.kept),
            count(&tally.rolled_back),
            count(&tally.repaired),
        ),
        recoveries: count(&tally.openings),
        killed,
        planted,
        violations,
        ..Outcome::of("scribbles")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings { seed: 1, quick: true, seconds: None, tenth: None }
    }

    #[test]
    fn no_scribble_is_read() {
        let tally = Tally::default();
        for ground in GROUNDS.into_iter().filter(Ground::is_served) {
            let mut rng = settings().rng(ground.name);
            let (ink, mut eyes) = (Ink::new(&mut rng), Eyes::new(None));
            assert_eq!(check((ground, LITTLE), rng, (&mut eyes, &ink), &tally), Ok(()));
        }
        assert_ne!(tally.noticed.into_inner(), 0);
        assert_ne!(tally.repaired.into_inner(), 0);
    }

    #[test]
    fn the_oracle_notices_every_planted_fault() {
        let _quiet = crate::quiet::Quiet::new();
        let grounds: Vec<Ground> = GROUNDS.into_iter().filter(Ground::is_served).collect();
        assert_eq!(plant_all(&settings(), &grounds), (Plant::ALL.len() as u64, Vec::new()));
    }
}
