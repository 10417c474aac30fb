//! The part `numbered`: each operation is atomic, whichever store or call was its last.
//!
//! Owns: part `numbered`. A recorder kills the process right before the n-th event of the
//! operation, for every n. An event is a store, a copy, a flush, a drain or a system call. Further
//! runs kill the process in the middle of each copy. A child opens the remaining files. They must
//! hold exactly the state before or the state after the operation. Once they hold the state after,
//! they do so for every larger n. After the operation has returned, they hold the state after.
//!
//! On page cache, a child also opens a copy of the files as after a restart of the machine. The
//! copy must hold exactly a durable point: the last one, or one that the operation makes.
//!
//! The part then tests recovery in the same way. It kills the recovery at one of its own events and
//! recovers again. The result must be that of an uninterrupted recovery.
//!
//! `LAB_NUMBERED=text` runs the sweeps with this text in their name, such as `Dax roll back`.
//!
//! Operations run on one thread, so equal n leave equal files. Kind, medium and numbers are enough
//! to repeat a violation.
//!
//! May import: `image`, `kinds`, `look`, `process`, `sealed`, `space`, `state`.

use super::image::Image;
use super::kinds::{self, Kind, PLANTED, Planted, Stage};
use super::look::look;
use super::process::{End, Outcome as Became, ask, start};
use super::state::State;
use super::writer::PATIENCE;
use super::{Ground, grounds};
use super::{sealed, space};
use crate::part::{Outcome, Settings};
use crate::progress::Progress;
use atomic_mmap::Medium;
use atomic_mmap::testing::recorder::{Death, Recorder};
use fastrand::Rng;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Number of killed recoveries of each kind on each medium, at random events of the operation and
/// of the recovery.
const SECOND_QUICK: usize = 40;
const SECOND_LONG: usize = 2000;
/// The amounts of a quick run over kinds that are thinned: number of killed recoveries, and
/// of events from one kill to the next. Long operations are killed less often towards their end.
const SECOND_OF_THINNED: usize = 8;
const STEP_OF_THINNED: usize = 6;
/// Number of events by which the step between two kills grows by one, where it is no single event.
const GROWTH: usize = 50;

/// The counts and findings of a run.
#[derive(Clone, Default, Debug)]
pub struct Tally {
    /// Number of killed processes.
    pub kills: u64,
    /// Number of those that were killed during a recovery.
    pub second: u64,
    /// Number of files that were opened and compared after a kill.
    pub compared: u64,
    /// The violations.
    pub violations: Vec<String>,
}

/// Runs the part `numbered`.
pub fn run(settings: &Settings, progress: &Progress) -> Outcome {
    let mut outcome = Outcome::of("numbered");
    let grounds = match grounds() {
        Ok(grounds) => grounds,
        Err(why) => return Outcome { skipped: Some(why), ..outcome },
    };
    for planted in PLANTED.into_iter().chain([Planted::Unkept, Planted::Unsummed]) {
        outcome.planted += 1;
        if finds(settings, &grounds[0], planted) {
            outcome.killed += 1;
        } else {
            outcome.violations.push(format!("the planted bug {planted:?} was not found"));
        }
    }
    let second = if settings.quick { SECOND_QUICK } else { SECOND_LONG };
    let (kinds, of_points) = (all(), of_durable_points());
    let mut sum = Tally::default();
    let mut subjects = 0;
    let only = std::env::var("LAB_NUMBERED").unwrap_or_default();
    let fast = || grounds.iter().filter(|ground| !ground.is_slow);
    for ground in fast() {
        let more = if ground.medium == Medium::PageCache { &of_points[..] } else { &[] };
        for kind in kinds.iter().chain(more) {
            // Persistent memory covers all paths and is always swept, except with the kinds that
            // are thinned. Of the rest, a tenth is.
            let name = format!("{} {:?} {}", ground.name, ground.medium, kind.name);
            let is_always = ground.medium == Medium::Dax && !is_thinned(kind);
            if !is_always && !settings.has_name(&name) || !name.contains(&only) {
                continue;
            }
            subjects += 1;
            let mut rng = settings.rng(kind.name);
            // A quick run tests fewer restarts: most of these kinds make no durable point.
            let back = match (settings.quick, of_points.iter().any(|of| of.name == kind.name)) {
                (true, false) => 6,
                (true, true) => 2,
                (false, _) => 1,
            };
            let (second, step) = match settings.quick && is_thinned(kind) {
                true => (SECOND_OF_THINNED, STEP_OF_THINNED),
                false => (second, 1),
            };
            let first = 1 + settings.seed as usize % step;
            let amount = Amount { second, back, first, step };
            sweep(ground, kind, amount, &mut rng, &mut sum);
            progress.tick(format_args!("{}, {}: {} kills", ground.name, kind.name, sum.kills));
        }
    }
    outcome.kills = sum.kills;
    outcome.recoveries = sum.compared;
    outcome.runs = format!(
        "{}{subjects} sweeps, of {} kinds of operation on {} media and {} more where durable points are kept, \
         killed at every event and in the middle of every copy ({} with snapshots, sums or stages), and then {} times \
         in recovery",
        settings.tenth_in_words(),
        kinds.len(),
        fast().count(),
        of_points.len(),
        if settings.quick { "at one of six or more" } else { "also" },
        sum.second,
    );
    let seed = settings.seed;
    let again = |what: &String| format!("{what} (again: lab numbered --seed {seed})");
    outcome.violations.extend(sum.violations.iter().map(again));
    outcome
}

/// Returns the kinds that every medium has.
fn all() -> Vec<Kind> {
    [kinds::all(), sealed::with_snapshots(), sealed::with_sums(), space::all()].concat()
}

/// Returns the kinds of files with durable points alone.
fn of_durable_points() -> Vec<Kind> {
    let more = [sealed::of_durable_points(), space::of_durable_points()].concat();
    [kinds::of_durable_points(), more].concat()
}

/// Returns `true` for the kinds of which a quick run does a part: those with snapshots, page sums,
/// stages, background deployment or a budget.
fn is_thinned(kind: &Kind) -> bool {
    let has_companions = |state: &State| state.has_sums || !state.sealed.is_empty();
    kind.states().iter().any(has_companions) || space::is_one(kind)
}

/// Runs a small sweep over the operations with `name` in their name, and returns the violations.
/// An empty `name` selects all. For tests, and for planted bugs in the engine. No other thread of
/// the process may use the crate meanwhile.
pub fn quick_check(settings: &Settings, name: &str, second: usize) -> Vec<String> {
    let grounds = match grounds() {
        Ok(grounds) => grounds,
        Err(why) => return vec![why],
    };
    let mut sum = Tally::default();
    // Persistent memory covers all paths; the other media skip some.
    for kind in all().iter().filter(|kind| kind.name.contains(name)) {
        sweep(
            &grounds[0],
            kind,
            Amount::of_a_check(kind, second),
            &mut settings.rng(kind.name),
            &mut sum,
        );
    }
    sum.violations
}

/// Runs a small sweep over the operations on files with durable points, like [`quick_check`].
pub fn quick_check_of_points(settings: &Settings, name: &str, second: usize) -> Vec<String> {
    let grounds = match grounds() {
        Ok(grounds) => grounds,
        Err(why) => return vec![why],
    };
    let mut sum = Tally::default();
    let ground = grounds.iter().find(|g| g.medium == Medium::PageCache && !g.is_slow);
    for (ground, kind) in ground.into_iter().flat_map(|ground| {
        let kinds = [all(), of_durable_points()].concat();
        kinds.into_iter().map(move |kind| (ground, kind))
    }) {
        if kind.name.contains(name) {
            sweep(
                ground,
                &kind,
                Amount::of_a_check(&kind, second),
                &mut settings.rng(kind.name),
                &mut sum,
            );
        }
    }
    sum.violations
}

/// Returns `true` if a sweep finds a planted bug.
pub fn finds(settings: &Settings, ground: &Ground, planted: kinds::Planted) -> bool {
    let mut sum = Tally::default();
    let kind = match planted {
        Planted::Unkept | Planted::Unsummed => sealed::planted(planted),
        _ => kinds::planted(planted),
    };
    sweep(ground, &kind, Amount::of_a_check(&kind, 0), &mut settings.rng("planted"), &mut sum);
    !sum.violations.is_empty()
}

/// The amount of a sweep.
#[derive(Clone, Copy, Debug)]
struct Amount {
    /// Number of killed recoveries.
    second: usize,
    /// A restart is tested at one kill out of this number.
    back: usize,
    /// The first event that is the last one.
    first: usize,
    /// Number of events from one kill to the next, at first.
    step: usize,
}

impl Amount {
    /// Returns the amount of a test.
    fn of_a_check(kind: &Kind, second: usize) -> Amount {
        let step = if is_thinned(kind) { STEP_OF_THINNED } else { 1 };
        Amount { second, back: 1, first: 1, step }
    }

    /// Returns the events at which the process is killed.
    fn events(self) -> impl Iterator<Item = usize> {
        let next = move |n: &usize| {
            let more = if self.step > 1 { n / GROWTH } else { 0 };
            Some(n + self.step + more)
        };
        std::iter::successors(Some(self.first), next)
    }
}

/// The place of a sweep, and its states.
struct Sweep<'a> {
    ground: &'a Ground,
    kind: &'a Kind,
    states: [State; 2],
    /// The states that a restart may go back to, on files with durable points.
    points: Option<[State; 3]>,
    back: usize,
    folder: TempDir,
    files: u64,
}

/// Plays a kind in a child that dies at the n-th event. Returns `false` if the child ended before
/// that event.
pub fn die(
    ground: &Ground,
    kind: &Kind,
    path: &Path,
    n: usize,
    death: Death,
) -> Result<bool, String> {
    let became = start(|| {
        let recorder = Recorder::new();
        let stage = Stage { path, medium: ground.medium, recorder: Some(&recorder) };
        stage.play(kind, || recorder.kill_at(n, death), || recorder.spare());
        // The process closes nothing, like a crashed one.
        String::new()
    })?
    .outcome(PATIENCE);
    as_death(became)
}

fn as_death(became: Became) -> Result<bool, String> {
    match became {
        Became::Answered(_) => Ok(false),
        Became::Ended(End::Killed(libc::SIGKILL)) => Ok(true),
        Became::Panicked(text) => Err(text),
        other => Err(format!("the child: {other:?}")),
    }
}

/// Opens the remaining files in a child, and returns the number of the state that they hold.
pub fn look_in_a_child(
    ground: &Ground,
    path: &Path,
    states: &[State],
    fast_first: bool,
) -> Result<usize, String> {
    let stage = Stage { path, medium: ground.medium, recorder: None };
    let answer = ask(PATIENCE, || match look(&stage, states, fast_first) {
        Ok(state) => state.to_string(),
        Err(what) => what,
    })?;
    answer.parse().map_err(|_| answer)
}

/// Kills a kind at its events, and tests restarts. Then kills recoveries of the remaining files.
fn sweep(ground: &Ground, kind: &Kind, amount: Amount, rng: &mut Rng, sum: &mut Tally) {
    let folder = match ground.folder() {
        Ok(folder) => folder,
        Err(what) => return sum.violations.push(what),
    };
    // The stray byte of a planted bug may lie in a slot that a restart reads. The first check is
    // enough there.
    let keeps = ground.medium == Medium::PageCache && kind.planted.is_none();
    let points = keeps.then(|| kind.points());
    let (states, back) = (kind.states(), amount.back);
    let mut sweep = Sweep { ground, kind, states, points, back, folder, files: 0 };
    let before = sum.violations.len();
    let wrong = |n: usize, death: Death, what: String| {
        format!("{}, {}, killed at event {n} ({death:?}): {what}", ground.name, kind.name)
    };
    // The events at which the child was killed, and the states that they left.
    let mut left = Vec::new();
    for death in [Death::Before, Death::Halfway] {
        let mut committed = false;
        for (k, n) in (1..).zip(amount.events()) {
            match sweep.kill_at((k, n), death, committed, sum) {
                Ok(Some(state)) => {
                    committed |= state == 1 && sweep.states[0] != sweep.states[1];
                    left.push((n, death, state));
                }
                Ok(None) => break,
                Err(what) => {
                    sum.violations.push(wrong(n, death, what));
                    break;
                }
            }
        }
    }
    // A stage has no events where durable points are kept.
    if sum.violations.len() > before || left.is_empty() {
        return;
    }
    for _ in 0..amount.second {
        let (n, death, state) = left[rng.usize(0..left.len())];
        if let Err(what) = sweep.kill_recovery(n, death, state, rng, sum) {
            sum.violations.push(wrong(n, death, what));
            return;
        }
    }
}

impl Sweep<'_> {
    /// Returns a path for a file, in a folder of its own, because the close leaves files behind.
    fn new_file(&mut self) -> Result<PathBuf, String> {
        self.files += 1;
        let folder = self.folder.path().join(self.files.to_string());
        std::fs::create_dir(&folder).map_err(|e| format!("no folder: {e}"))?;
        Ok(folder.join("state"))
    }

    fn remove(&self, path: &Path) {
        // If this fails, the outer folder's removal deletes the files later.
        let _later_otherwise = std::fs::remove_dir_all(path.parent().expect("a folder"));
    }

    /// Kills at event `n`, which is kill `k` of the sweep. Returns the state that was found, or
    /// `None` after the last event.
    fn kill_at(
        &mut self,
        (k, n): (usize, usize),
        death: Death,
        committed: bool,
        sum: &mut Tally,
    ) -> Result<Option<usize>, String> {
        let path = self.new_file()?;
        let died = die(self.ground, self.kind, &path, n, death)?;
        sum.kills += u64::from(died);
        if !died || (k + death as usize).is_multiple_of(self.back) {
            self.look_back(&path, died, sum)?;
        }
        // The effect of an operation stays once it has returned, or once the effect was found.
        let allowed = if died && !committed { &self.states[..] } else { &self.states[1..] };
        let base = 2 - allowed.len();
        let state = base + look_in_a_child(self.ground, &path, allowed, k.is_multiple_of(2))?;
        sum.compared += 1;
        self.remove(&path);
        Ok(died.then_some(state))
    }

    /// Opens a copy of the remaining files as if the machine had been restarted.
    fn look_back(&mut self, path: &Path, died: bool, sum: &mut Tally) -> Result<(), String> {
        let Some(points) = self.points.clone() else { return Ok(()) };
        let (image, _open) = Image::of(path).map_err(|e| format!("cannot be copied: {e}"))?;
        // Without a reflection file there is no durable point. The other check covers this case.
        if image.reflection.is_none() {
            return Ok(());
        }
        let copy = self.new_file()?;
        image.write_restarted(&copy).map_err(|e| format!("cannot be copied: {e}"))?;
        let allowed = if died { &points[..] } else { &points[2..] };
        look_in_a_child(self.ground, &copy, allowed, false)
            .map_err(|what| format!("after a restart: {what}"))?;
        sum.compared += 1;
        self.remove(&copy);
        Ok(())
    }

    /// Kills a recovery of the files after event `n`, at an event of the recovery.
    fn kill_recovery(
        &mut self,
        n: usize,
        death: Death,
        state: usize,
        rng: &mut Rng,
        sum: &mut Tally,
    ) -> Result<(), String> {
        let how = if rng.u32(0..4) > 0 { Death::Before } else { Death::Halfway };
        // An uninterrupted recovery gives the number of events.
        let all = self.recover(n, death, None)?.events;
        let m = match how {
            Death::Before => rng.usize(1..=all.max(1)),
            // A few of the events are copies.
            Death::Halfway => rng.usize(1..=8),
        };
        let and = |what: String| format!("and in recovery at event {m} ({how:?}): {what}");
        let recovered = self.recover(n, death, Some((m, how))).map_err(and)?;
        sum.kills += 1 + u64::from(recovered.killed);
        sum.second += u64::from(recovered.killed);
        let expected = &self.states[state..=state];
        look_in_a_child(self.ground, &recovered.path, expected, m.is_multiple_of(2))
            .map_err(and)?;
        sum.compared += 1;
        self.remove(&recovered.path);
        Ok(())
    }

    /// Recovers the files after event `n`, up to an event of the recovery if one is given.
    fn recover(
        &mut self,
        n: usize,
        death: Death,
        at: Option<(usize, Death)>,
    ) -> Result<Recovered, String> {
        let path = self.new_file()?;
        die(self.ground, self.kind, &path, n, death)?;
        let medium = self.ground.medium;
        let became = start(|| {
            let recorder = Recorder::new();
            if let Some((m, how)) = at {
                recorder.kill_at(m, how);
            }
            let stage = Stage { path: &path, medium, recorder: Some(&recorder) };
            let file = stage.open().expect("it was opened before");
            std::mem::forget(file);
            recorder.take().len().to_string()
        })?
        .outcome(PATIENCE);
        let events = match &became {
            Became::Answered(text) => text.parse().map_err(|_| text.clone())?,
            _ => 0,
        };
        // The recovery may end before that: the recorder may note one event as several.
        Ok(Recovered { killed: as_death(became)?, events, path })
    }
}

/// The result of a recovery.
struct Recovered {
    path: PathBuf,
    killed: bool,
    events: usize,
}
