//! Recorded runs, and the states that their traces allow.

use super::files::{Folder, materialize};
use super::media::{Image, Media};
use super::ops::{Effect, Model, Op, Place};
use super::rng::Rng;
use atomic_mmap::testing::recorder::{Event, Recorder, What};
use atomic_mmap::testing::{File, FileId};
use atomic_mmap::{AtomicMappedFile, CloseMode, DeployPolicy, Medium, Stats};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

/// Reads at offsets from here on mark the start and the end of operations.
const MARKS: u64 = 1 << 62;
/// A few operations never take longer, even on a busy machine.
const DEADLOCKED_AFTER: Duration = Duration::from_secs(600);
const BEGIN: u64 = 0;
const END: u64 = 1;

/// An operation of the run, with its effect.
pub struct Done {
    pub text: String,
    pub effect: Effect,
}

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub place: Place,
    /// Number of threads in addition to the main one.
    pub threads: usize,
    /// `true` if the threads run concurrently, each in its own pages. Otherwise one operation at a
    /// time.
    pub concurrent: bool,
    pub sessions: usize,
    /// Operations of a session. In a concurrent run, operations of each thread.
    pub ops: u64,
    /// Threads that keep a lane each and do nothing. They leave so few lanes that a new thread
    /// reuses its predecessor's lane, or finds no private one.
    pub crowd: usize,
    /// The first operations, with their threads. Random ones follow.
    pub script: Vec<(usize, Op)>,
}

pub struct Run {
    pub start: Image,
    pub allowed: Vec<Arc<Model>>,
    pub ops: BTreeMap<u64, Done>,
    pub trace: Vec<Event>,
    pub ways: Ways,
}

/// Counts of the write protocols that a run used.
#[derive(Clone, Copy, Default, Debug)]
#[allow(dead_code, reason = "printed")]
pub struct Ways {
    vouched: u64,
    flip: u64,
    undo: u64,
    spilled: u64,
    pinned: u64,
    settles: u64,
    deployed: u64,
    punches: u64,
}

impl Ways {
    fn of(stats: &Stats) -> Ways {
        Ways {
            vouched: stats.vouched_writes,
            flip: stats.flip_writes,
            undo: stats.undo_writes,
            spilled: stats.overflow_records,
            pinned: stats.redo_writes,
            settles: stats.settles,
            deployed: stats.deployments,
            punches: stats.punches,
        }
    }

    pub fn add(&mut self, other: &Ways) {
        self.vouched += other.vouched;
        self.flip += other.flip;
        self.undo += other.undo;
        self.spilled += other.spilled;
        self.pinned += other.pinned;
        self.settles += other.settles;
        self.deployed += other.deployed;
        self.punches += other.punches;
    }
}

struct Recording<'a> {
    recorder: &'a Recorder,
    marks: File,
    next: AtomicU64,
    done: Mutex<BTreeMap<u64, Done>>,
}

impl Recording<'_> {
    fn mark(&self, id: u64, phase: u64) {
        let platform = self.recorder.platform();
        let at = MARKS + id * 2 + phase;
        platform.read_at(&self.marks, FileId::Home, &mut [0], at).expect("a mark");
    }

    /// Calls `act` between two marks. `act` returns its effect.
    fn between<T>(
        &self,
        actor: &str,
        what: &str,
        act: impl FnOnce(u64) -> (Effect, T),
    ) -> (Effect, T) {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.mark(id, BEGIN);
        let (effect, result) = act(id);
        self.mark(id, END);
        let done = Done { text: format!("#{id} {actor}: {what}"), effect: effect.clone() };
        self.done.lock().expect("no panic").insert(id, done);
        (effect, result)
    }

    fn op(&self, thread: usize, f: &AtomicMappedFile, op: &Op) -> Effect {
        let done = self.between(&format!("thread {thread}"), &format!("{op:?}"), |id| {
            let effect = op.effect(id);
            let applied = op.run(f, &effect);
            (if applied { effect } else { Effect::None }, ())
        });
        done.0
    }
}

/// Reads the whole file from the origin on.
pub fn contents(f: &AtomicMappedFile, origin: u64) -> Model {
    let len = f.len();
    let mut model = Model::new(origin, len);
    if len > origin {
        f.read_at(&mut model.bytes, origin).expect("to be read");
    }
    model
}

/// Opens the files of the image, checks that they hold one state of `allowed`, and runs the plan.
pub fn record(
    folder: &Folder,
    start: &Image,
    allowed: &[Arc<Model>],
    plan: &Plan,
    rng: &mut Rng,
) -> Result<Run, String> {
    let pair = materialize(folder, start, rng);
    let recorder = Recorder::new();
    let recording = Recording {
        recorder: &recorder,
        marks: std::fs::File::open("/dev/null").expect("a null device").into(),
        next: AtomicU64::new(1000 * rng.below(1 << 12)),
        done: Mutex::default(),
    };
    let mut possible = allowed.to_vec();
    let mut ways = Ways::default();
    for session in 0..plan.sessions {
        let is_last = session + 1 == plan.sessions;
        let policy = rng.pick(&[DeployPolicy::Lazy, DeployPolicy::Manual, DeployPolicy::Eager]);
        let policy = if rng.chance(60) { DeployPolicy::Manual } else { policy };
        let (effect, opened) = recording.between("main", &format!("open, {policy:?}"), |_| {
            let opened = AtomicMappedFile::options()
                .medium(Medium::Dax)
                .deploy(policy)
                .len(plan.place.first_len)
                .max_len(plan.place.first_len + (4 << 20))
                .open_recorded(&recorder, &pair.home);
            match opened {
                Err(error) => (Effect::None, Err(error.to_string())),
                Ok(f) => {
                    let found = Arc::new(contents(&f, plan.place.origin));
                    (Effect::Become(found), Ok(f))
                }
            }
        });
        let f = opened?;
        let Effect::Become(found) = effect else { unreachable!() };
        if !possible.contains(&found) {
            return Err(format!("session {session} found a state that was not to be"));
        }
        let mut model = Model::clone(&found);
        if plan.concurrent {
            run_concurrently(&recording, &f, plan, rng);
            model = contents(&f, plan.place.origin);
        } else {
            run_by_turns(&recording, &f, plan, rng, &mut model);
        }
        ways.add(&Ways::of(&f.stats()));
        possible = vec![Arc::new(model)];
        let mode = if is_last || rng.chance(25) { CloseMode::Spatial } else { CloseMode::Fast };
        recording
            .between("main", &format!("close, {mode:?}"), |_| (Effect::None, f.close(mode)))
            .1
            .map_err(|error| error.to_string())?;
    }
    let ops = recording.done.into_inner().expect("no panic");
    Ok(Run { start: start.clone(), allowed: allowed.to_vec(), ops, trace: recorder.take(), ways })
}

fn run_by_turns(
    recording: &Recording<'_>,
    f: &AtomicMappedFile,
    plan: &Plan,
    rng: &mut Rng,
    model: &mut Model,
) {
    let (ready, leave) = (Barrier::new(plan.crowd + 1), Barrier::new(plan.crowd + 1));
    let (ready, leave) = (&ready, &leave);
    std::thread::scope(|scope| {
        let start = |who: usize| {
            let (to, asked) = channel::<(Op, Sender<Effect>)>();
            let thread = scope.spawn(move || {
                for (op, answer) in asked {
                    answer.send(recording.op(who, f, &op)).expect("the caller waits");
                }
            });
            (to, thread)
        };
        let mut threads: Vec<_> = (1..=plan.threads).map(start).collect();
        // The crowd takes its lanes before the other threads start.
        for (to, _) in &threads {
            let (answer, answered) = channel();
            to.send((Op::Read(model.origin, 1), answer)).expect("it waits");
            answered.recv().expect("no panic");
        }
        let origin = model.origin;
        for _ in 0..plan.crowd {
            scope.spawn(move || {
                f.read_at(&mut [0], origin).expect("to be read");
                ready.wait();
                leave.wait();
            });
        }
        ready.wait();
        let mut views = Vec::new();
        // An earlier session may have truncated the file.
        let len = model.len;
        let mut script = plan.script.iter().filter(move |(_, op)| op.fits(len));
        for _ in 0..plan.ops {
            let (mut who, op) = match script.next() {
                Some((who, op)) => (*who, op.clone()),
                None => {
                    let who = rng.index(plan.threads + 1);
                    // With other threads, the main thread runs only few operations.
                    let who = if who == 0 && rng.chance(70) { plan.threads } else { who };
                    (who, plan.place.random_op(rng, model.len))
                }
            };
            match op {
                Op::View(start, end) => {
                    let text = format!("{op:?}");
                    let view = recording
                        .between("thread 0", &text, |_| (Effect::None, f.view(start..end)))
                        .1
                        .expect("a view");
                    let origin = model.origin;
                    let then =
                        model.bytes[(start - origin) as usize..(end - origin) as usize].to_vec();
                    views.push((view, then));
                    continue;
                }
                Op::DropView => {
                    if !views.is_empty() {
                        let (view, then) = views.swap_remove(rng.index(views.len()));
                        assert!(view.to_vec().expect("bytes") == then, "a view has changed");
                        recording.between("thread 0", "DropView", |_| (Effect::None, drop(view)));
                    }
                    continue;
                }
                Op::Restart => {
                    if who > 0 {
                        let (to, thread) = threads.remove(who - 1);
                        drop(to);
                        thread.join().expect("no panic");
                        // The thread may return its lane only after it has been joined.
                        std::thread::sleep(Duration::from_millis(1));
                        threads.insert(who - 1, start(who));
                    }
                    continue;
                }
                _ => {}
            }
            who = who.min(threads.len());
            let effect = if who == 0 {
                recording.op(0, f, &op)
            } else {
                let (answer, answered) = channel();
                threads[who - 1].0.send((op, answer)).expect("it waits");
                answered.recv().expect("no panic")
            };
            model.apply(&effect);
            debug_assert_eq!(f.len(), model.len);
        }
        assert!(
            views.iter().all(|(view, then)| view.to_vec().expect("bytes") == *then),
            "a view has changed"
        );
        drop(views);
        drop(threads);
        leave.wait();
    });
}

fn run_concurrently(recording: &Recording<'_>, f: &AtomicMappedFile, plan: &Plan, rng: &mut Rng) {
    let len = f.len();
    std::thread::scope(|scope| {
        let start = |who: usize| {
            let mut rng = rng.fork(who as u64);
            scope.spawn(move || {
                for _ in 0..plan.ops {
                    let op = plan.place.owned_op(&mut rng, len, who as u64, plan.threads as u64);
                    recording.op(who + 1, f, &op);
                }
            })
        };
        let threads: Vec<_> = (0..plan.threads).map(start).collect();
        let began = Instant::now();
        while !threads.iter().all(|thread| thread.is_finished()) {
            std::thread::sleep(Duration::from_micros(100));
            if began.elapsed() > DEADLOCKED_AFTER {
                // These threads cannot be ended: a panic would wait for them forever.
                let done = recording.done.lock().expect("no panic");
                eprintln!(
                    "deadlock: {plan:?}, started: {}",
                    recording.next.load(Ordering::Relaxed)
                );
                done.values().for_each(|done| eprintln!("  {}", done.text));
                std::process::exit(101);
            }
        }
    });
    rng.next();
}

/// A replay of the trace of a run.
pub struct Player<'r> {
    run: &'r Run,
    pub media: Media,
    pub at: usize,
    /// The possible states without the operations in flight. One of them is on the medium.
    pub done: Vec<Model>,
    pub in_flight: Vec<u64>,
    pub last: Vec<u64>,
}

impl<'r> Player<'r> {
    pub fn new(run: &'r Run) -> Player<'r> {
        Player {
            run,
            media: Media::new(&run.start),
            at: 0,
            done: run.allowed.iter().map(|model| Model::clone(model)).collect(),
            in_flight: Vec::new(),
            last: Vec::new(),
        }
    }

    /// Replays the trace up to, but not including, the event `to`.
    pub fn play(&mut self, to: usize) {
        for event in &self.run.trace[self.at..to] {
            match event.what {
                What::Read { offset, .. } if offset >= MARKS => {
                    let (id, phase) = ((offset - MARKS) / 2, (offset - MARKS) % 2);
                    if phase == BEGIN {
                        self.in_flight.push(id);
                    } else {
                        self.in_flight.retain(|other| *other != id);
                        let effect = &self.run.ops[&id].effect;
                        if let Effect::Become(model) = effect {
                            self.done = vec![Model::clone(model)];
                        } else {
                            self.done.iter_mut().for_each(|model| model.apply(effect));
                        }
                        self.last.push(id);
                    }
                }
                _ => self.media.play(event),
            }
        }
        self.at = to;
    }

    /// Returns all states that an image may hold.
    pub fn allowed(&self) -> Vec<Arc<Model>> {
        let mut all: Vec<Model> = self.done.clone();
        for id in &self.in_flight {
            let effect = &self.run.ops[id].effect;
            if matches!(effect, Effect::None) {
                continue;
            }
            let mut with: Vec<Model> = all.clone();
            with.iter_mut().for_each(|model| model.apply(effect));
            all.append(&mut with);
        }
        all.into_iter().map(Arc::new).collect()
    }
}

/// Returns positions in a trace for a loss of power. Before a drain the most bytes can be lost.
/// After the end of an operation the most bytes must be kept. With `early`, most positions are in
/// the opening of the pair.
pub fn positions(trace: &[Event], count: usize, early: bool, rng: &mut Rng) -> Vec<usize> {
    let is_mark =
        |event: &Event| matches!(event.what, What::Read { offset, .. } if offset >= MARKS);
    let drains: Vec<usize> = (0..trace.len()).filter(|n| trace[*n].what == What::Drain).collect();
    let ends: Vec<usize> = (1..=trace.len()).filter(|n| is_mark(&trace[n - 1])).collect();
    let opened = ends.get(1).copied().unwrap_or(trace.len());
    let mut at: Vec<usize> = (0..count)
        .map(|_| match rng.below(if early { 20 } else { 10 }) {
            10.. => rng.index(opened + 1),
            0..=4 if !drains.is_empty() => rng.pick(&drains),
            5..=7 if !ends.is_empty() => rng.pick(&ends),
            _ => rng.index(trace.len() + 1),
        })
        .collect();
    at.sort_unstable();
    at
}
