//! The part `steps`: each operation is atomic after every single instruction.
//!
//! Owns: part `steps`. A child does an operation on the real machine without a recorder. This
//! process single-steps it with ptrace and reads the files after every instruction. After each
//! change it takes an image and copies it into new files, which another child recovers. They must
//! hold the state before or the state after the operation. Once they hold the state after, later
//! images do as well. They hold it when the operation has returned.
//!
//! Equal images are recovered once, because recovery after a process crash depends only on the
//! files. So an instruction that changed nothing needs no recovery.
//!
//! Reading two files after every instruction would take too long. So a first run finds the lines
//! that the operation changes. It stops at system calls only and compares both files in full. The
//! second run reads those lines after each instruction. It reads both files in full after each
//! system call and at the end. If the end shows a change of another line, the part repeats the run
//! with that line as well. So the part can only miss a line outside the set that changes and
//! changes back between two system calls.
//!
//! A copy of pages makes an image at each of its stores. If an operation fills many slots, the part
//! recovers a random share of the images that differ only in slots. It recovers all other images.
//! The part reads the slots of these operations only after every 16th instruction, and when another
//! line has changed. Slots are not valid while they are filled. If they were, any of the chosen
//! images would show it.
//!
//! May import: `image`, `kinds`, `numbered`, `process`, `state`.

use super::image::{Contents, Image, Opened};
use super::kinds::{self, Kind, PLANTED, Stage, Step};
use super::numbered::{die, look_in_a_child};
use super::process::{Child, OnOneProcessor, ask, fork};
use super::state::State;
use super::writer::PATIENCE;
use super::{Ground, grounds};
use crate::part::{Outcome, Settings};
use crate::progress::Progress;
use atomic_mmap::testing::layout;
use atomic_mmap::testing::recorder::{Death, Event, Recorder, What};
use fastrand::Rng;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io;
use std::ops::Range;
use std::path::Path;

/// Approximate number of recovered images of each operation in which only slots have changed.
const BULK_QUICK: usize = 60;
const BULK_LONG: usize = 3000;
/// Two ranges of lines are joined if at most this many bytes separate them: one call reads both.
const GAP: u64 = 1024;
/// An operation that changes more lines of slots than this counts as one with many slots.
const MANY: usize = 128;
/// An operation that changes more ranges of slot lines than this counts, too.
const MANY_RANGES: usize = 12;
/// Number of instructions between two reads of many slots.
const SELDOM: u64 = 16;
/// Number of attempts if a run missed lines.
const ATTEMPTS: usize = 4;
/// Number of violations after which a part ends.
const ENOUGH: usize = 5;

/// The counts and findings of a run.
#[derive(Clone, Default, Debug)]
struct Tally {
    steps: u64,
    /// Number of distinct images.
    images: u64,
    recovered: u64,
    violations: Vec<String>,
}

/// The operation that is single-stepped.
struct Subject {
    kind: Kind,
    /// The operation recovers from a crash of this kind at this event.
    left_by: Option<(Kind, usize)>,
    states: Vec<State>,
}

/// Runs the part `steps`.
pub fn run(settings: &Settings, progress: &Progress) -> Outcome {
    let mut outcome = Outcome::of("steps");
    let grounds = match grounds() {
        Ok(grounds) => grounds,
        Err(why) => return Outcome { skipped: Some(why), ..outcome },
    };
    if let Err(why) = probe() {
        return Outcome { skipped: Some(format!("no ptrace here: {why}")), ..outcome };
    }
    let _pinned = OnOneProcessor::new();
    let bulk = if settings.quick { BULK_QUICK } else { BULK_LONG };
    let mut rng = settings.rng("steps");
    for planted in PLANTED {
        outcome.planted += 1;
        if finds(&grounds[0], planted, &mut rng) {
            outcome.killed += 1;
        } else {
            outcome.violations.push(format!("the planted bug {planted:?} was not found"));
        }
    }
    let mut sum = Tally::default();
    let mut subjects = 0;
    let fast: Vec<_> = grounds.iter().filter(|ground| !ground.is_slow).collect();
    for (ground, n) in fast.iter().zip(0..) {
        // Persistent memory covers all paths and all steps. The other media take longer and show
        // less.
        let recovered = match (settings.quick, n) {
            (true, 0) => Recovered::Some,
            (true, _) => Recovered::None,
            (false, _) => Recovered::All,
        };
        for subject in all(ground, recovered, &mut sum) {
            if sum.violations.len() >= ENOUGH {
                break;
            }
            subjects += 1;
            step_through(ground, &subject, bulk, &mut rng, &mut sum);
            let of = subject.left_by.as_ref().map_or("", |(kind, _)| kind.name);
            progress.tick(format_args!(
                "{}, {} {of}: {} steps, {} images",
                ground.name, subject.kind.name, sum.steps, sum.images
            ));
        }
    }
    outcome.recoveries = sum.recovered;
    outcome.runs = format!(
        "{} instructions of {subjects} operations and recoveries on {} media, {} different images, \
         {} recovered",
        sum.steps,
        fast.len(),
        sum.images,
        sum.recovered
    );
    let seed = settings.seed;
    let again = |what: &String| format!("{what} (again: lab steps --seed {seed})");
    outcome.violations.extend(sum.violations.iter().map(again));
    outcome
}

/// Runs a small test of the operations with `name` in their name, and returns the violations. The
/// error says why ptrace is not available. No other thread of the process may use the crate
/// meanwhile.
pub fn quick_check(settings: &Settings, name: &str) -> Result<Vec<String>, String> {
    let grounds = grounds()?;
    probe()?;
    let _pinned = OnOneProcessor::new();
    let mut sum = Tally::default();
    for kind in kinds::all().into_iter().filter(|kind| kind.name.contains(name)) {
        let subject = Subject { states: kind.states().to_vec(), kind, left_by: None };
        let mut rng = settings.rng("steps");
        step_through(&grounds[0], &subject, BULK_QUICK / 4, &mut rng, &mut sum);
    }
    if sum.violations.is_empty() && sum.recovered < 3 {
        sum.violations.push(format!("nothing was tested: {sum:?}"));
    }
    Ok(sum.violations)
}

/// Returns `true` if single steps find a planted bug.
pub fn finds(ground: &Ground, planted: kinds::Planted, rng: &mut Rng) -> bool {
    let kind = kinds::planted(planted);
    let subject = Subject { states: kind.states().to_vec(), kind, left_by: None };
    let mut sum = Tally::default();
    step_through(ground, &subject, BULK_QUICK, rng, &mut sum);
    !sum.violations.is_empty()
}

/// Selects the recoveries that are single-stepped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Recovered {
    /// No recoveries and no opens. Most of their instructions read lanes and change nothing.
    None,
    /// One recovery of each kind that leaves unique work for recovery.
    Some,
    /// Several recoveries of all kinds.
    All,
}

const SOME: [&str; 8] = [
    "logged flip over slices",
    "region word, two pages",
    "undo entry over regions",
    "undo entry spilled",
    "logged data under a view",
    "grow past a chunk",
    "shrink into a slice",
    "close spatial",
];

/// Returns all kinds, and the recoveries of the files that killed kinds leave.
fn all(ground: &Ground, recovered: Recovered, sum: &mut Tally) -> Vec<Subject> {
    let kinds = kinds::all();
    let mut subjects: Vec<Subject> = kinds
        .iter()
        .map(|kind| Subject { kind: kind.clone(), left_by: None, states: kind.states().to_vec() })
        .collect();
    let opens = |kind: &Kind| matches!(kind.act, Step::Open);
    let most = match recovered {
        Recovered::None => {
            subjects.retain(|subject| !opens(&subject.kind));
            return subjects;
        }
        Recovered::Some => 1,
        Recovered::All => 8,
    };
    let is_wanted =
        |kind: &&Kind| !opens(kind) && (recovered == Recovered::All || SOME.contains(&kind.name));
    for kind in kinds.iter().filter(is_wanted) {
        match deaths(ground, kind, most) {
            Ok(deaths) => subjects.extend(deaths.into_iter().map(|(n, state)| Subject {
                kind: Kind {
                    name: "recovery from",
                    before: Vec::new(),
                    act: Step::Open,
                    durability: atomic_mmap::Durability::OnSync,
                    planted: None,
                },
                left_by: Some((kind.clone(), n)),
                // Exactly the result of an undisturbed recovery.
                states: vec![kind.states()[state].clone()],
            })),
            Err(what) => sum.violations.push(format!("{}: {what}", kind.name)),
        }
    }
    subjects
}

/// Returns events at which a kind is killed, and the states that they leave. Selects those with the
/// most work for recovery, at most one for each amount of work.
fn deaths(ground: &Ground, kind: &Kind, most: usize) -> Result<Vec<(usize, usize)>, String> {
    let folder = ground.folder()?;
    let path = folder.path().join("state");
    let clear = || Image::remove(folder.path()).map_err(|e| e.to_string());
    // By the number of stores. The map keeps one event for each number.
    let mut by_work = BTreeMap::new();
    let mut n = 1;
    while die(ground, kind, &path, n, Death::Before)? {
        let work = ask(PATIENCE, || {
            let recorder = Recorder::new();
            let stage = Stage { path: &path, medium: ground.medium, recorder: Some(&recorder) };
            std::mem::forget(stage.open().expect("it can be opened"));
            let events = recorder.take();
            let stores = |event: &Event| {
                !matches!(event.what, What::Os(_) | What::Read { .. } | What::Drain)
            };
            events.into_iter().filter(stores).count().to_string()
        })?;
        clear()?;
        by_work.insert(work.parse::<u64>().map_err(|_| work)?, n);
        // A few events of a long copy are enough.
        n += 1 + n / 50;
    }
    clear()?;
    let states = kind.states();
    let chosen = by_work.into_values().rev().take(most);
    chosen
        .map(|n| {
            die(ground, kind, &path, n, Death::Before)?;
            let state = look_in_a_child(ground, &path, &states, false)?;
            clear()?;
            Ok((n, state))
        })
        .collect()
}

/// The lines that are read after each instruction: of the home file, of the reflection file, and of
/// an unfinished reflection file.
type Lines = [BTreeSet<u64>; 3];

fn ranges(lines: &BTreeSet<u64>) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for &line in lines {
        match ranges.last_mut() {
            Some(last) if line <= last.end + GAP => last.end = line + 64,
            _ => ranges.push(line..line + 64),
        }
    }
    ranges
}

fn step_through(ground: &Ground, subject: &Subject, bulk: usize, rng: &mut Rng, sum: &mut Tally) {
    let what = match &subject.left_by {
        None => subject.kind.name.to_owned(),
        Some((kind, n)) => format!("recovery from the death of {} at event {n}", kind.name),
    };
    let mut lines = Lines::default();
    for attempt in 0..ATTEMPTS {
        let mut now = Tally::default();
        let result = Stepping::begin(ground, subject).and_then(|mut stepping| {
            if attempt == 0 {
                return stepping.learn();
            }
            stepping.lines = lines.clone();
            stepping.run(bulk, rng, &mut now)
        });
        match result {
            Ok(changed) => {
                let known: usize = lines.iter().map(BTreeSet::len).sum();
                lines.iter_mut().zip(changed).for_each(|(known, new)| known.extend(new));
                if attempt > 0 && lines.iter().map(BTreeSet::len).sum::<usize>() == known {
                    sum.steps += now.steps;
                    sum.images += now.images;
                    sum.recovered += now.recovered;
                    return;
                }
            }
            Err(wrong) => {
                let step = now.steps;
                let text = format!("{}, {what}, after {step} instructions: {wrong}", ground.name);
                return sum.violations.push(text);
            }
        }
    }
    let text = format!("{}, {what}: other lines change every time", ground.name);
    sum.violations.push(text);
}

/// The reason for which a traced child stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stop {
    /// The child reached the instruction or the system call that it was resumed for.
    There,
    /// The child stopped itself: the operation begins or has returned.
    Mark,
}

/// A traced child, which is killed on drop.
struct Traced(Child);

impl Drop for Traced {
    fn drop(&mut self) {
        self.0.kill();
        let _gone = Child { pid: self.0.pid }.wait();
    }
}

fn checked(result: libc::c_long, what: &str) -> Result<(), String> {
    if result < 0 { Err(format!("{what}: {}", io::Error::last_os_error())) } else { Ok(()) }
}

/// Stops the calling child.
fn mark() {
    // SAFETY: a signal to this thread; no memory is touched.
    unsafe { libc::raise(libc::SIGSTOP) };
}

impl Traced {
    /// Starts a child and waits until it stops at its first mark.
    fn start(work: impl FnOnce()) -> Result<Traced, String> {
        let child = fork(|| {
            std::panic::set_hook(Box::new(|_| {}));
            // SAFETY: asks to be traced by the parent; the other arguments do not count.
            if unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) } < 0 {
                return 77;
            }
            work();
            0
        })
        .map_err(|e| format!("no child: {e}"))?;
        let traced = Traced(child);
        match traced.wait()? {
            Stop::Mark => Ok(traced),
            Stop::There => Err("the child stops for no reason".to_owned()),
        }
    }

    fn wait(&self) -> Result<Stop, String> {
        let mut status = 0;
        loop {
            // SAFETY: our own child, and a live local for its status.
            let waited = unsafe { libc::waitpid(self.0.pid, &raw mut status, libc::__WALL) };
            if waited == self.0.pid {
                break;
            }
            if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return Err("the child cannot be waited for".to_owned());
            }
        }
        if !libc::WIFSTOPPED(status) {
            return Err(format!("the child has ended: status {status:#x}"));
        }
        match libc::WSTOPSIG(status) {
            libc::SIGTRAP => Ok(Stop::There),
            libc::SIGSTOP => Ok(Stop::Mark),
            other => Err(format!("the child gets signal {other}")),
        }
    }

    /// Resumes the child up to the next instruction, or to the next entry or exit of a system call.
    fn go_on(&self, request: libc::c_uint) -> Result<Stop, String> {
        // SAFETY: a stopped child of ours; no signal is delivered, and no memory of ours is
        // touched.
        checked(unsafe { libc::ptrace(request, self.0.pid, 0, 0) }, "ptrace")?;
        self.wait()
    }

    /// Returns `true` if the last instruction was a system call, which leaves its own address in a
    /// register.
    fn has_called(&self) -> Result<bool, String> {
        // SAFETY: all-zero is a valid value of the plain struct.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        // SAFETY: a stopped child of ours, and a live local of the type that the request fills.
        let result =
            unsafe { libc::ptrace(libc::PTRACE_GETREGS, self.0.pid, 0, &raw mut registers) };
        checked(result, "read the registers")?;
        Ok(registers.rip == registers.rcx)
    }
}

/// Returns an error if this machine does not allow single-stepping a child.
fn probe() -> Result<(), String> {
    let traced = Traced::start(|| {
        mark();
        mark();
    })?;
    let mut called = false;
    for _ in 0..100_000 {
        if traced.go_on(libc::PTRACE_SINGLESTEP)? == Stop::Mark {
            return if called { Ok(()) } else { Err("no system call is seen".to_owned()) };
        }
        called |= traced.has_called()?;
    }
    Err("steps lead nowhere".to_owned())
}

/// One run of an operation.
struct Stepping<'a> {
    ground: &'a Ground,
    subject: &'a Subject,
    folder: tempfile::TempDir,
    traced: Traced,
    image: Image,
    opened: Opened,
    lines: Lines,
}

impl<'a> Stepping<'a> {
    /// Starts a child and stops it right before the operation.
    fn begin(ground: &'a Ground, subject: &'a Subject) -> Result<Stepping<'a>, String> {
        let folder = ground.folder()?;
        let io = |e: io::Error| e.to_string();
        for name in ["original", "copy"] {
            std::fs::create_dir(folder.path().join(name)).map_err(io)?;
        }
        let path = folder.path().join("original/state");
        if let Some((kind, n)) = &subject.left_by {
            die(ground, kind, &path, *n, Death::Before)?;
        }
        let stage = Stage { path: &path, medium: ground.medium, recorder: None };
        let traced = Traced::start(|| stage.play(&subject.kind, mark, mark))?;
        let (image, opened) = Image::of(&path).map_err(io)?;
        let lines = Lines::default();
        Ok(Stepping { ground, subject, folder, traced, image, opened, lines })
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("original/state")
    }

    /// Reads both files in full. Returns the lines that have changed.
    fn look(&mut self) -> Result<Lines, String> {
        let (image, opened) = Image::of(&self.path()).map_err(|e| e.to_string())?;
        let none = Contents::default();
        let lines = |of: fn(&Image) -> &Option<Contents>| {
            let [old, new] = [&self.image, &image].map(|image| of(image).as_ref().unwrap_or(&none));
            new.lines_unlike(old).into_iter().collect()
        };
        let changed =
            [lines(|image| &image.home), lines(|i| &i.reflection), lines(|i| &i.unfinished)];
        self.image = image;
        self.opened = opened;
        Ok(changed)
    }

    /// Runs to the end, and stops at system calls only. Returns the lines that change.
    fn learn(&mut self) -> Result<Lines, String> {
        let mut all = Lines::default();
        loop {
            let stop = self.traced.go_on(libc::PTRACE_SYSCALL)?;
            let changed = self.look()?;
            all.iter_mut().zip(changed).for_each(|(all, new)| all.extend(new));
            if stop == Stop::Mark {
                return Ok(all);
            }
        }
    }

    /// Reads the known ranges. Returns `true` if something has changed.
    fn look_at(&mut self, known: &[Vec<Range<u64>>; 3]) -> Result<bool, String> {
        let files = [
            (&mut self.image.home, &self.opened.home),
            (&mut self.image.reflection, &self.opened.reflection),
            (&mut self.image.unfinished, &self.opened.unfinished),
        ];
        let mut changed = false;
        for ((contents, file), known) in files.into_iter().zip(known) {
            let (Some(contents), Some(file)) = (contents, file) else { continue };
            for range in known {
                changed |= contents
                    .refresh(file, range.start, (range.end - range.start) as usize)
                    .map_err(|e| format!("a file cannot be read: {e}"))?;
            }
        }
        Ok(changed)
    }

    /// Single-steps to the end. Returns the lines that changed outside the known ones.
    fn run(&mut self, bulk: usize, rng: &mut Rng, sum: &mut Tally) -> Result<Lines, String> {
        let [home, reflection, unfinished] = &self.lines;
        let slots_at = layout::reflection(0);
        let words = reflection.range(..slots_at).copied().collect();
        let slots: BTreeSet<u64> = reflection.range(slots_at..).copied().collect();
        let others = [Vec::new(), ranges(&words), ranges(unfinished)];
        let number = home.len() + slots.len();
        let slots = [ranges(home), ranges(&slots), Vec::new()];
        let are_many = number > MANY || slots[0].len() + slots[1].len() > MANY_RANGES;
        let mut missed = Lines::default();
        let mut seen = HashSet::new();
        let mut committed = false;
        self.recover(&mut committed, sum)?;
        loop {
            let stop = self.traced.go_on(libc::PTRACE_SINGLESTEP)?;
            sum.steps += 1;
            let mut changed = self.look_at(&others)?;
            let mut is_bulk = are_many && !changed;
            if changed || !are_many || sum.steps.is_multiple_of(SELDOM) {
                changed |= self.look_at(&slots)?;
            }
            if stop == Stop::Mark || self.traced.has_called()? {
                let late = self.look()?;
                for ((missed, late), known) in missed.iter_mut().zip(late).zip(&self.lines) {
                    missed.extend(late.difference(known));
                }
                is_bulk = false;
            } else if !changed {
                continue;
            }
            if seen.insert(self.image.digest()) {
                sum.images += 1;
                if !is_bulk || rng.usize(0..number) < bulk {
                    self.recover(&mut committed, sum)?;
                }
            }
            if stop == Stop::Mark {
                break;
            }
        }
        // The operation has returned.
        let states = &self.subject.states;
        if self.recovered_state(0)? == 0 && states[0] != states[states.len() - 1] {
            return Err("the operation has returned, and the state is the one before it".to_owned());
        }
        Ok(missed)
    }

    /// Recovers the current image.
    fn recover(&self, committed: &mut bool, sum: &mut Tally) -> Result<(), String> {
        sum.recovered += 1;
        let state = self.recovered_state(sum.recovered)?;
        if *committed && state == 0 {
            return Err("was in the state after, and is in the state before again".to_owned());
        }
        let states = &self.subject.states;
        *committed |= state == 1 && states[0] != states[1];
        Ok(())
    }

    /// Recovers a copy of the image.
    fn recovered_state(&self, n: u64) -> Result<usize, String> {
        let folder = self.folder.path().join("copy");
        let path: &Path = &folder.join("state");
        let io = |e: io::Error| format!("the image cannot be copied: {e}");
        self.image.write(path).map_err(io)?;
        let state = look_in_a_child(self.ground, path, &self.subject.states, n.is_multiple_of(4));
        Image::remove(&folder).map_err(io)?;
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kinds_of_stepped_recovery_are_kinds() {
        let names: Vec<_> = kinds::all().into_iter().map(|kind| kind.name).collect();
        assert!(SOME.iter().all(|name| names.contains(name)));
    }

    #[test]
    fn lines_are_joined_over_small_gaps_only() {
        let lines = BTreeSet::from([0, 64, 640, 4096, 1 << 20]);
        assert_eq!(ranges(&lines), [0..704, 4096..4160, 1 << 20..(1 << 20) + 64]);
    }
}
