//! Runs of a scenario in which one system call fails, and the sweep over all calls.
//!
//! Owns: the choice of the failing call and of the failure (a [`Plan`]), and the run of the
//! scenario with it. It also owns the checks of the state afterwards, with the rules of the
//! `judge`.

mod checks;
mod run;

use super::files::{Place, Snapshot};
use super::judge::Called;
use super::plants::Plant;
use super::scenarios::{self, Bench, Ground, Scenario, Sealed, Start};
use atomic_mmap::testing::call;
use atomic_mmap::testing::recorder::{Fault, Recorder};
use atomic_mmap::{AtomicMappedFile, DeployPolicy, Durability, Error, Mismatch, OnMismatch};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The choice of the failing call and of the failure. Calls are counted from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plan {
    /// No failure.
    Nothing,
    /// The n-th call fails once.
    Once(usize, i32),
    /// The n-th call and all later ones fail.
    Lasting(usize, i32),
    /// The n-th call of a name and all later calls of this name fail.
    LastingNamed {
        /// Name of the call.
        call: &'static str,
        /// Number among the calls of this name.
        nth: usize,
        /// Number among all calls.
        all: usize,
        /// The error.
        code: i32,
    },
    /// The n-th read or write moves at most this number of bytes.
    Short {
        /// Read or write.
        call: &'static str,
        /// Number among the calls of this name.
        nth: usize,
        /// Number among all calls.
        all: usize,
        /// Number of bytes.
        most: usize,
    },
    /// The n-th read or write moves at most this number of bytes, and its continuation fails.
    Torn {
        /// Read or write.
        call: &'static str,
        /// Number among the calls of this name.
        nth: usize,
        /// Number among all calls.
        all: usize,
        /// Number of bytes.
        most: usize,
        /// The error.
        code: i32,
    },
}

impl Plan {
    fn arm(self, recorder: &Recorder) {
        match self {
            Plan::Nothing => {}
            Plan::Once(nth, code) => recorder.fail_next("any", nth, code),
            Plan::Lasting(nth, code) => recorder.fail_from("any", nth, code),
            Plan::LastingNamed { call, nth, code, .. } => recorder.fail_from(call, nth, code),
            Plan::Short { call, nth, most, .. } => {
                recorder.fail_next(call, nth, Fault::Short(most));
            }
            Plan::Torn { call, nth, most, code, .. } => {
                recorder.fail_next(call, nth, Fault::Short(most));
                recorder.fail_next(call, nth + 1, code);
            }
        }
    }

    /// Returns the number of the first failing call, among all calls.
    fn place(self) -> Option<usize> {
        match self {
            Plan::Nothing => None,
            Plan::Once(nth, _) | Plan::Lasting(nth, _) => Some(nth),
            Plan::LastingNamed { all, .. } | Plan::Short { all, .. } | Plan::Torn { all, .. } => {
                Some(all)
            }
        }
    }

    fn code(self) -> i32 {
        match self {
            Plan::Nothing | Plan::Short { .. } => 0,
            Plan::Once(_, code) | Plan::Lasting(_, code) => code,
            Plan::LastingNamed { code, .. } | Plan::Torn { code, .. } => code,
        }
    }

    fn lasts(self) -> bool {
        matches!(self, Plan::Lasting(..) | Plan::LastingNamed { .. })
    }

    /// Returns `true` if the caller must not notice the failure.
    fn is_invisible(self) -> bool {
        matches!(self, Plan::Nothing | Plan::Short { .. }) || self.code() == libc::EINTR
    }
}

/// The calls of a run without failures, each with the number of its operation.
pub type Baseline = Vec<(usize, Called)>;

/// The result of a run.
#[derive(Default, Debug)]
pub struct Report {
    /// The violations.
    pub violations: Vec<String>,
    /// Number of copies of the files that were opened as after a crash.
    pub recoveries: u64,
    /// The calls differed from those of the run without failures, because a folder was listed in
    /// another order. So another call than the planned one failed, and the run proves nothing.
    pub is_skewed: bool,
}

/// A scenario on a ground, ready for repeated runs.
pub struct Subject<'a> {
    /// The scenario.
    pub scenario: &'a Scenario,
    /// The ground.
    pub ground: &'a Ground,
    /// The initial state of the files.
    pub start: &'a Start,
    /// The system calls of a run without failures; empty until they are known.
    pub baseline: Baseline,
    /// A planted fault, to test the judge.
    pub plant: Option<Plant>,
}

impl Subject<'_> {
    /// Runs the scenario without failures and notes its calls. Returns `None` if it cannot run
    /// here.
    pub fn calibrate(&mut self, base: &Path) -> Option<Report> {
        let mut run = Run::new(self, Plan::Nothing, base)?;
        run.all();
        let (calls, report) = (std::mem::take(&mut run.calls), std::mem::take(&mut run.report));
        drop(run);
        self.baseline = calls;
        Some(report)
    }

    /// Runs the scenario with a failure.
    pub fn run(&self, plan: Plan, base: &Path) -> Report {
        let Some(mut run) = Run::new(self, plan, base) else { return Report::default() };
        run.all();
        run.report
    }

    /// Returns the plans for each call from operation `first` on. `turn` is the turn of the first
    /// call.
    pub fn plans(&self, breadth: &Breadth, first: usize, turn: usize) -> Vec<Plan> {
        let mut plans = Vec::new();
        let mut by_name: BTreeMap<&'static str, usize> = BTreeMap::new();
        for (n, (op, called)) in self.baseline.iter().enumerate() {
            let (all, call) = (n + 1, called.call);
            let nth = *by_name.entry(call).and_modify(|count| *count += 1).or_insert(1);
            if *op < first {
                continue;
            }
            plans.push(Plan::Once(all, libc::EIO));
            let named = |code: &i32| Plan::LastingNamed { call, nth, all, code: *code };
            let mut more: Vec<Plan> = Vec::new();
            more.extend(breadth.once.iter().map(|code| Plan::Once(all, *code)));
            more.extend(breadth.lasting.iter().map(|code| Plan::Lasting(all, *code)));
            more.extend(breadth.lasting.iter().map(named));
            if HAS_FALLBACK.contains(&call) && !breadth.once.is_empty() {
                more.push(Plan::Once(all, libc::EOPNOTSUPP));
                more.push(named(&libc::EOPNOTSUPP));
            }
            if [call::READ, call::WRITE, call::WRITE_DURABLY].contains(&call) {
                let less = breadth.short.iter().copied().filter(|n| (*n as u64) < called.moved);
                for most in less {
                    more.push(Plan::Short { call, nth, all, most });
                    more.push(Plan::Torn { call, nth, all, most, code: libc::EIO });
                }
            }
            match breadth.turns {
                true if more.is_empty() => {}
                true => plans.push(more[(n + turn) % more.len()]),
                false => plans.append(&mut more),
            }
        }
        plans
    }
}

/// Calls that some systems do not have, and for which the crate has a fallback.
const HAS_FALLBACK: [&str; 8] = [
    call::IN_PLACE,
    call::ALLOCATE,
    call::PUNCH,
    call::NEXT_DATA,
    call::NEXT_HOLE,
    call::SET_XATTR,
    call::MAP,
    call::WRITE_DURABLY,
];

/// The failures at every call, in addition to one EIO.
#[derive(Clone, Debug)]
pub struct Breadth {
    /// Errors that occur once. If there are any, EOPNOTSUPP as well for calls with a fallback.
    pub once: &'static [i32],
    /// Errors of all calls from this one on, and of all calls of this name from this one on.
    pub lasting: &'static [i32],
    /// Numbers of bytes of short reads and writes.
    pub short: &'static [usize],
    /// Each call gets only one of these failures, in turns.
    pub turns: bool,
}

struct Run<'a> {
    subject: &'a Subject<'a>,
    plan: Plan,
    base: PathBuf,
    /// The state that the calls work on. After a panic its file is leaked, because the panic may
    /// have left locks locked.
    bench: Bench,
    /// The home file's bytes at the beginning. The next field has all files that must not change.
    home_bytes: Vec<u8>,
    bystanders: Option<Snapshot>,
    /// The deploy policy of the last open. The next fields have its wish, and if it forced the
    /// medium.
    policy: DeployPolicy,
    wish: OnMismatch,
    forces_medium: bool,
    /// An import could not remove what it had received, and no further one came.
    may_leave_spool: bool,
    /// The mismatch of the next open, caused by files that a failed open could not remove.
    refuses_next: Option<Mismatch>,
    /// `true` if only durable points count after a process crash.
    is_undone: bool,
    /// The content that a failed operation may have left, if it poisoned the handle.
    in_doubt: Option<Vec<u8>>,
    /// The snapshots that it may have left then.
    sealed_in_doubt: Option<Sealed>,
    durability: Durability,
    /// The failure is over, or the plan has none.
    is_over: bool,
    calls: Baseline,
    /// Number of calls so far.
    counted: usize,
    report: Report,
}

/// Tells if the run continues after an operation.
enum Next {
    Go,
    Stop,
}

fn read_all(file: &AtomicMappedFile) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; file.len() as usize];
    file.read_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// Makes the initial states of all scenarios of a ground, each once.
pub fn starts(ground: &Ground, scenarios: &[Scenario], base: &Path) -> BTreeMap<String, Start> {
    let mut starts = BTreeMap::new();
    for scenario in scenarios {
        let key = format!("{:?}", scenario.kind);
        starts.entry(key).or_insert_with(|| {
            let place = Place::new(&base.join("start"), false);
            scenarios::Start::new(scenario.kind, ground, &place)
        });
    }
    starts
}
