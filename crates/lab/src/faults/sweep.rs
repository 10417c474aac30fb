//! How does a scenario go when one of its system calls fails? The run, and the sweep over all places.
//!
//! Owns: which call fails and how (a [`Plan`]), the run of a scenario with it, and the looks at the state
//! afterwards. What must be seen in them is the `judge`'s.

use super::files::{Pair, Place, Snapshot, is_marked};
use super::judge::{self, Called};
use super::plants::Plant;
use super::scenarios::{
    self, Bench, Failure, Ground, Kind, Op, Opened, Opening, Quirk, Scenario, Start, difference,
};
use atomic_mmap::testing::call;
use atomic_mmap::testing::recorder::{Fault, Recorder, What};
use atomic_mmap::{
    AtomicMappedFile, CloseMode, DeployPolicy, Durability, Error, Medium, Mismatch, OnMismatch,
};
use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// Which call fails, and how. Calls are counted from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plan {
    /// None.
    Nothing,
    /// The n-th of all, once.
    Once(usize, i32),
    /// The n-th of all and every one after it.
    Lasting(usize, i32),
    /// The n-th of its name and every one of that name after it; `all` is its number among all.
    LastingNamed {
        /// The name.
        call: &'static str,
        /// The number by name.
        nth: usize,
        /// The number among all.
        all: usize,
        /// The error.
        code: i32,
    },
    /// The n-th read or write moves at most so many bytes.
    Short {
        /// Read or write.
        call: &'static str,
        /// The number by name.
        nth: usize,
        /// The number among all.
        all: usize,
        /// Bytes.
        most: usize,
    },
    /// The same, and its continuation fails.
    Torn {
        /// Read or write.
        call: &'static str,
        /// The number by name.
        nth: usize,
        /// The number among all.
        all: usize,
        /// Bytes.
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

    /// The number of the first call that fails, among all.
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

    /// Whether nobody may notice.
    fn is_invisible(self) -> bool {
        matches!(self, Plan::Nothing | Plan::Short { .. }) || self.code() == libc::EINTR
    }
}

/// The calls of a run in which nothing fails: the number of the operation, and the call.
pub type Baseline = Vec<(usize, Called)>;

/// What a run has come to.
#[derive(Default, Debug)]
pub struct Report {
    /// What must not be.
    pub violations: Vec<String>,
    /// Copies of the files that were opened as after a crash.
    pub recoveries: u64,
    /// The calls were not those of the run without a failure (a folder was listed in another order):
    /// another call than the planned one has failed, and nothing is said of it.
    pub is_skewed: bool,
}

/// A scenario on a ground, ready to be run again and again.
pub struct Subject<'a> {
    /// What is run.
    pub scenario: &'a Scenario,
    /// On what.
    pub ground: &'a Ground,
    /// How the files are before.
    pub start: &'a Start,
    /// The places of the calls; empty until they are known.
    pub baseline: Baseline,
    /// A bad way of handling failures, for the judge's own test.
    pub plant: Option<Plant>,
}

impl Subject<'_> {
    /// Runs the scenario without a failure and notes its calls. `None`: it cannot be run here.
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

    /// The plans: for each call from the operation `first` on. `turn` is where turns begin.
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

/// Calls that some systems do not have, and that are done without there.
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

/// With what every call is made to fail, besides EIO once.
#[derive(Clone, Debug)]
pub struct Breadth {
    /// Once. If there is any, EOPNOTSUPP as well where there is another way.
    pub once: &'static [i32],
    /// From this call on, all; and from this call on, those of its name.
    pub lasting: &'static [i32],
    /// Bytes of short reads and writes.
    pub short: &'static [usize],
    /// Of all this one at each call, in turns.
    pub turns: bool,
}

struct Run<'a> {
    subject: &'a Subject<'a>,
    plan: Plan,
    base: PathBuf,
    /// Taken while it runs; forgotten after a panic, which may have left locks closed.
    bench: Bench,
    /// The home file's bytes at the beginning, and everything else.
    home_bytes: Vec<u8>,
    bystanders: Option<Snapshot>,
    /// The policy and the wish of the last open, and whether it said what the files lie on.
    policy: DeployPolicy,
    wish: OnMismatch,
    forces_medium: bool,
    /// Why the next open is refused, for what a failed one could not remove.
    refuses_next: Option<Mismatch>,
    /// Whether only durable points count after the death of the process.
    is_undone: bool,
    /// What an operation that has failed, and has poisoned, may have left.
    in_doubt: Option<Vec<u8>>,
    durability: Durability,
    /// The failure is over, or was never to be.
    is_over: bool,
    calls: Baseline,
    /// Calls so far.
    counted: usize,
    report: Report,
}

/// How it goes on after an operation.
enum Next {
    Go,
    Stop,
}

impl<'a> Run<'a> {
    fn new(subject: &'a Subject<'a>, plan: Plan, base: &Path) -> Option<Run<'a>> {
        let scenario = subject.scenario;
        let place = Place::new(&base.join("run"), scenario.elsewhere);
        if !subject.start.put(&place, scenario.quirk) {
            return None;
        }
        let home_bytes = fs::read(place.home()).unwrap_or_default();
        let bystanders = scenario.quirk.leaves_files_of_others().then(|| place.snapshot());
        let bench = Bench {
            place,
            ground: subject.ground.clone(),
            recorder: Recorder::new(),
            file: None,
            held: Vec::new(),
            model: subject.start.model.clone(),
            points: vec![subject.start.point.clone()],
        };
        if !scenario.ops.iter().any(Op::needs_background) {
            bench.recorder.hold_background();
        }
        Some(Run {
            subject,
            plan,
            base: base.to_owned(),
            bench,
            home_bytes,
            bystanders,
            policy: DeployPolicy::Manual,
            wish: OnMismatch::Refuse,
            forces_medium: false,
            refuses_next: None,
            in_doubt: None,
            is_undone: scenario.kind == Kind::AllOrNothing,
            durability: Durability::BySync,
            is_over: plan.is_invisible(),
            calls: Vec::new(),
            counted: 0,
            report: Report::default(),
        })
    }

    fn violation(&mut self, what: &str) {
        let Subject { scenario, ground, baseline, .. } = self.subject;
        let at = match self.plan.place().and_then(|nth| Some((nth, baseline.get(nth - 1)?))) {
            Some((nth, (op, called))) => {
                let name = scenario.ops[*op].name();
                format!("{:?}, call {nth} ({} in {name}, operation {op})", self.plan, called.call)
            }
            None => format!("{:?}", self.plan),
        };
        self.report.violations.push(format!("{} on {}: {at}: {what}", scenario.name, ground.name));
    }

    fn rearm(&self) {
        self.bench.recorder.heal();
        for call in self.subject.scenario.lacking {
            self.bench.recorder.fail_from(call, 1, libc::EOPNOTSUPP);
        }
    }

    fn all(&mut self) {
        self.rearm();
        self.plan.arm(&self.bench.recorder);
        let ops = &self.subject.scenario.ops;
        for (n, op) in ops.iter().enumerate() {
            match catch_unwind(AssertUnwindSafe(|| self.operate(n, op))) {
                Ok(Next::Go) => {}
                Ok(Next::Stop) => return,
                Err(_) => {
                    self.violation("panicked");
                    // Its locks may be held for ever: dropping it would wait for them.
                    std::mem::forget(self.bench.file.take());
                    return;
                }
            }
        }
        if let Err(_panicked) = catch_unwind(AssertUnwindSafe(|| self.finish())) {
            self.violation("panicked while it was closed and opened again");
            std::mem::forget(self.bench.file.take());
        }
    }

    /// Whether the failure comes in this operation or has come before.
    fn has_begun(&self, n: usize) -> bool {
        let baseline = &self.subject.baseline;
        let first = self.plan.place().and_then(|nth| baseline.get(nth - 1));
        !self.plan.is_invisible() && first.is_some_and(|(op, _)| *op <= n)
    }

    /// One operation, and once more if it has failed as it was made to.
    fn operate(&mut self, n: usize, op: &Op) -> Next {
        if let Op::Open(how) = op {
            (self.policy, self.wish) = (how.policy, how.wish);
            self.forces_medium = how.forces_medium;
            if how.expected == Opened::Point {
                self.bench.model.clone_from(&self.bench.points[0]);
            }
        }
        loop {
            let fails = !self.is_over && self.has_begun(n);
            let may_be_refused = fails || self.refuses_next.is_some();
            let before =
                (may_be_refused && matches!(op, Op::Open(_))).then(|| self.bench.place.snapshot());
            let shrinks = matches!(op, Op::SetLen(len) if *len < self.bench.model.len() as u64);
            let mut result = op.perform(n, &mut self.bench);
            let events = self.bench.recorder.take();
            let failed = self.note(n, &events);
            if self.report.is_skewed {
                return Next::Stop;
            }
            if let Some(plant) = self.subject.plant {
                result = self.tamper(plant, n, op, result);
            }
            let expected_refusal = match op {
                Op::Open(Opening { expected: Opened::Refused(why), .. }) => Some(*why),
                _ => self.refuses_next,
            };
            let error = match (result, expected_refusal) {
                (Err(Failure::Wrong(what)), _) => {
                    self.violation(&what);
                    return Next::Stop;
                }
                (Ok(()), Some(why)) => {
                    self.violation(&format!("opened, and not refused as {why:?}"));
                    return Next::Stop;
                }
                (Err(Failure::Error(Error::Mismatch { why, .. })), Some(expected))
                    if why == expected =>
                {
                    if let Some(before) = &before {
                        self.compare(before, "refused, but");
                    }
                    return Next::Stop;
                }
                (Ok(()), None) => {
                    let home = || self.home_bytes.clone();
                    op.apply(n, &mut self.bench.model, home);
                    let points = self.bench.points.clone();
                    self.note_points(op, shrinks);
                    if fails && !failed.is_empty() {
                        return self.look_after_success(op, &failed, shrinks, points);
                    }
                    return Next::Go;
                }
                (Err(Failure::Error(error)), _) => error,
            };
            if !fails {
                self.violation(&format!("failed, though nothing has failed under it: {error:?}"));
                return Next::Stop;
            }
            self.is_over = true;
            self.rearm();
            self.judge_error(op, &error, &failed);
            match self.look_after_failure(n, op, &failed, before.as_ref(), shrinks) {
                // Once more: it must succeed now.
                Next::Go => {}
                Next::Stop => return Next::Stop,
            }
        }
    }

    /// Notes the calls of an operation. Returns the names of those that were made to fail.
    fn note(
        &mut self,
        n: usize,
        events: &[atomic_mmap::testing::recorder::Event],
    ) -> Vec<&'static str> {
        let mut failed = Vec::new();
        for event in events {
            if let Some(mut called) = judge::called(&event.what, &self.bench.place) {
                self.counted += 1;
                // Up to the one that is to fail they are the planned ones.
                let planned = self.subject.baseline.get(self.counted - 1);
                if self.plan.place().is_some_and(|nth| self.counted <= nth)
                    && planned.is_none_or(|(op, planned)| *op != n || planned.call != called.call)
                {
                    self.report.is_skewed = true;
                }
                if self.plan == Plan::Nothing {
                    if let Some((_, last)) = self.calls.last() {
                        called.goes_on_after(last);
                    }
                    self.calls.push((n, called));
                }
            }
            if let What::Failed(call) = event.what {
                failed.push(call);
            }
        }
        if self.is_over || !self.has_begun(n) {
            return Vec::new();
        }
        let first = self.plan.place().and_then(|nth| self.subject.baseline.get(nth - 1));
        let Some((op, called)) = first else { return Vec::new() };
        match self.plan {
            // Only there; what else has failed would have failed anyway.
            Plan::Once(..) | Plan::Torn { .. } if *op == n => vec![called.call],
            Plan::Once(..) | Plan::Torn { .. } => Vec::new(),
            Plan::LastingNamed { call, .. } => {
                failed.retain(|name| *name == call);
                failed
            }
            _ => failed,
        }
    }

    fn tamper(
        &mut self,
        plant: Plant,
        n: usize,
        op: &Op,
        result: Result<(), Failure>,
    ) -> Result<(), Failure> {
        let first = self.plan.place().and_then(|nth| self.subject.baseline.get(nth - 1));
        let injected = first.filter(|(op, _)| *op == n && self.plan != Plan::Nothing);
        let injected = injected.map(|(_, called)| (called.call, self.plan.code()));
        let is_first = !self.is_over || self.plan.code() == libc::EINTR;
        plant.tamper(op, result, &mut self.bench, injected.filter(|_| is_first))
    }

    fn judge_error(&mut self, op: &Op, error: &Error, failed: &[&str]) {
        let baseline = &self.subject.baseline;
        let at = self.plan.place().and_then(|nth| baseline.get(nth - 1));
        // What lasts may have been absorbed there and returned later.
        let at = at.map(|(_, called)| called).filter(|_| !self.plan.lasts());
        if let Err(why) = judge::is_right(error, self.plan.code(), at, &self.bench.place) {
            self.violation(&format!("the wrong error: {why}"));
        }
        if matches!(error, Error::NoSpace { .. })
            && failed.iter().all(|call| *call == call::ALLOCATE)
            && !judge::may_lack_space(op)
        {
            self.violation("says that there is no space, and needs none");
        }
        // Also the first error, which is not yet that of a poisoned handle.
        if !matches!(op, Op::Open(_) | Op::Close(_))
            && judge::poisons(op, self.subject.ground.medium(), failed, self.plan.code())
            && !error.to_string().contains("open the file again")
        {
            self.violation(&format!("does not say what to do: {error}"));
        }
    }

    /// The operation has returned `Ok` although something failed under it.
    fn look_after_success(
        &mut self,
        op: &Op,
        failed: &[&'static str],
        shrinks: bool,
        before_op: Vec<Vec<u8>>,
    ) -> Next {
        let code = self.plan.code();
        let natural = |call: &str| self.plan.lasts() && [call::MAP, call::REMOVE].contains(&call);
        let lacking = self.subject.scenario.lacking;
        for call in failed {
            if !natural(call)
                && !lacking.contains(call)
                && !judge::may_be_absorbed(op, self.policy, call, code, shrinks, lacking)
            {
                self.violation(&format!("returned Ok although {call} has failed"));
                return Next::Stop;
            }
        }
        if self.bench.file.is_none() {
            // Closed or dropped. The end looks at what was left.
            return Next::Go;
        }
        if judge::poisons(op, self.subject.ground.medium(), failed, code) {
            self.is_over = true;
            self.rearm();
            // In the background: of a checkpoint, or of a point that may be there or not.
            self.bench.points.push(self.bench.model.clone());
            self.bench.points.extend(before_op);
            return self.look_at_poisoned();
        }
        // What lasts goes on with the next operation; looks are not to be disturbed.
        let is_over = std::mem::replace(&mut self.is_over, true);
        self.rearm();
        self.look_at_handle("after Ok");
        self.look_at_copy("after Ok");
        self.look_back("after Ok");
        if self.plan.lasts() && !is_over {
            self.is_over = false;
            match self.plan {
                Plan::Lasting(_, code) => self.bench.recorder.fail_from("any", 1, code),
                Plan::LastingNamed { call, code, .. } => {
                    self.bench.recorder.fail_from(call, 1, code);
                }
                _ => {}
            }
        }
        Next::Go
    }

    /// The operation has failed as it was made to.
    fn look_after_failure(
        &mut self,
        n: usize,
        op: &Op,
        failed: &[&'static str],
        before: Option<&Snapshot>,
        shrinks: bool,
    ) -> Next {
        let mut after = self.bench.model.clone();
        if !matches!(op, Op::Open(_)) {
            op.apply(n, &mut after, Vec::new);
            if judge::makes_a_point(op, self.durability, shrinks) {
                // Also in the middle: what was there before the operation.
                self.bench.points.extend([self.bench.model.clone(), after.clone()]);
            }
        }
        match op {
            Op::Open(how) => {
                if how.expected == Opened::Whole {
                    // It may have come as far as the durable point of what it has found.
                    self.bench.points.push(self.bench.model.clone());
                }
                self.look_after_failed_open(how, failed, before.expect("taken"));
                Next::Go
            }
            Op::Close(_) => {
                self.adopt("after a failed close");
                self.look_back("after a failed close");
                self.finish();
                Next::Stop
            }
            _ if judge::poisons(op, self.subject.ground.medium(), failed, self.plan.code()) => {
                // Whether it was done is not said.
                self.in_doubt = Some(after);
                self.look_at_poisoned()
            }
            _ => {
                self.look_at_handle("after the failure");
                self.look_at_copy("after the failure");
                self.look_back("after the failure");
                Next::Go
            }
        }
    }

    /// An operation has succeeded: what may a loss of power go back to now?
    fn note_points(&mut self, op: &Op, shrinks: bool) {
        match op {
            Op::Open(how) => {
                (self.is_undone, self.durability) =
                    (how.durability == Durability::AllOrNothing, how.durability);
                // Also of what the death of a process has left.
                self.bench.points = vec![self.bench.model.clone()];
            }
            // Nobody hears of a failure; whether there is a new point, the next open sees.
            Op::Drop => self.bench.points.push(self.bench.model.clone()),
            _ if judge::makes_a_point(op, self.durability, shrinks) => {
                self.bench.points = vec![self.bench.model.clone()];
            }
            _ => {}
        }
    }

    fn keeps_points(&self) -> bool {
        self.subject.ground.medium() == Medium::PageCache
    }

    fn compare(&mut self, before: &Snapshot, when: &str) {
        for change in self.bench.place.snapshot().changes(before) {
            self.violation(&format!("{when} {change}"));
        }
    }

    /// Files that may be others' are as they were, and no file has come but the home file.
    /// `may_leave`: the opening could not remove what it had made.
    fn look_at_bystanders(&mut self, when: &str, may_leave: bool) {
        let Some(before) = &self.bystanders else { return };
        let place = &self.bench.place;
        let home = place.home();
        for change in place.snapshot().changes(before) {
            let is_of_home = change.starts_with(&*home.to_string_lossy());
            let is_left = may_leave && change.contains("left behind");
            if !is_of_home && !is_left {
                self.violation(&format!("a bystander, {when}: {change}"));
            }
        }
    }

    fn look_after_failed_open(&mut self, how: &Opening, failed: &[&str], before: &Snapshot) {
        // What cannot be removed stays, and so does what cannot be looked at, or locked: it may be another's.
        let undoing = [call::REMOVE, call::LOCK, call::STAT, call::STAT_PATH, call::SET_LEN];
        let cannot_undo = self.plan.lasts() && failed.iter().any(|call| undoing.contains(call));
        self.look_at_bystanders("after a failed open", cannot_undo);
        let home = self.bench.place.home();
        let is_left = !before.has(&home) && fs::metadata(&home).is_ok_and(|home| home.len() > 0);
        let is_alone = self.bench.place.reflection().is_some_and(|path| !path.exists());
        if cannot_undo
            && is_left
            && is_alone
            && self.wish != OnMismatch::Discard
            && self.subject.scenario.quirk == Quirk::NoHome
        {
            // It has bytes now, and beside it lies what is left of another file of its name.
            self.refuses_next = Some(Mismatch::HomeReplaced);
        }
        let is_pair = before.has_reflection() && self.bystanders.is_none();
        if judge::leaves_all_as_it_was(how, is_pair) {
            if !cannot_undo {
                self.compare(before, "the failed open left something:");
            }
            return;
        }
        let (now, then) = (self.bench.place.snapshot(), before);
        for change in now.changes(then) {
            // What is in the two files is looked at below.
            let is_new = change.contains("left behind");
            let is_kept = matches!(how.expected, Opened::Whole | Opened::Point);
            let is_discarded = change.ends_with("is gone") && !is_kept;
            if is_new && !cannot_undo || change.ends_with("is gone") && !is_discarded {
                self.violation(&format!("the failed open left something: {change}"));
            }
        }
        match how.expected {
            Opened::Whole | Opened::Point => {
                self.look_at_copy("after a failed open");
                self.look_back("after a failed open");
            }
            Opened::HomeBytes => {
                let found = fs::read(self.bench.place.home()).unwrap_or_default();
                if let Some(difference) = difference(&found, &self.home_bytes) {
                    self.violation(&format!("the failed open, in the home file: {difference}"));
                }
            }
            Opened::New(_) | Opened::Refused(_) => {}
        }
    }

    fn is_poisoned(&self) -> bool {
        let file = self.bench.file.as_ref().expect("it is open");
        let is_poisoned = matches!(file.read_at(&mut [0], 0), Err(Error::Poisoned { .. }));
        self.subject.plant.map_or(is_poisoned, |plant| plant.tamper_poison(is_poisoned))
    }

    /// The handle holds everything.
    fn look_at_handle(&mut self, when: &str) {
        if self.is_poisoned() {
            return self.violation(&format!("{when}: the handle is poisoned, and must not be"));
        }
        let file = self.bench.file.as_ref().expect("it is open");
        match read_all(file) {
            Ok(found) => {
                if let Some(difference) = difference(&found, &self.bench.model) {
                    self.violation(&format!("{when}, by the handle: {difference}"));
                }
            }
            Err(error) => self.violation(&format!("{when}, by the handle: {error:?}")),
        }
        // Of what was just looked at, nothing is to be found in the next trace.
        self.bench.recorder.take();
    }

    /// What the death of the process would leave holds everything.
    fn look_at_copy(&mut self, when: &str) {
        let allowed = self.after_death();
        self.look_at(&format!("{when}, after a crash"), &allowed, false);
    }

    /// The same where nobody is left to tell: what is found there is what there is from here on.
    fn adopt(&mut self, when: &str) {
        let allowed = self.after_death();
        if let Some(found) = self.look_at(&format!("{when}, after a crash"), &allowed, false) {
            self.bench.model = found;
        }
    }

    /// What a loss of power may leave, if the kernel had written everything back, holds a durable point.
    fn look_back(&mut self, when: &str) {
        // What is not to be tried again is refused, which other scenarios look at.
        if self.keeps_points() && self.wish != OnMismatch::Discard {
            let allowed = self.bench.points.clone();
            self.look_at(&format!("{when}, after a restart"), &allowed, true);
        }
    }

    fn after_death(&self) -> Vec<Vec<u8>> {
        if self.is_undone {
            return self.bench.points.clone();
        }
        [&self.bench.model].into_iter().chain(&self.in_doubt).cloned().collect()
    }

    /// Opens a copy of the files. Returns what it holds, if that is allowed.
    fn look_at(&mut self, when: &str, allowed: &[Vec<u8>], restarted: bool) -> Option<Vec<u8>> {
        match self.copy_holds(allowed, restarted) {
            Ok(found) => Some(found),
            Err(what) => {
                self.violation(&format!("{when}: {what}"));
                None
            }
        }
    }

    fn copy_holds(&mut self, allowed: &[Vec<u8>], restarted: bool) -> Result<Vec<u8>, String> {
        let pair =
            Pair::capture(&self.bench.place).map_err(|e| format!("cannot be copied: {e}"))?;
        let place = Place::new(&self.base.join("copy"), self.subject.scenario.elsewhere);
        pair.restore(&place, |superblock| {
            if restarted {
                superblock.boot_id = [0xa5; 16];
            }
        })
        .expect("copy the pair");
        self.report.recoveries += 1;
        let options = self.options(&place).close_on_drop(CloseMode::Fast);
        let file = options.open(place.home()).map_err(|e| format!("{e:?}"))?;
        let found = read_all(&file).map_err(|e| format!("{e:?}"))?;
        match allowed.iter().find(|allowed| **allowed == found) {
            Some(_) => Ok(found),
            None => Err(difference(&found, allowed.last().expect("one")).expect("they differ")),
        }
    }

    /// Options as the scenario's, on the machine itself.
    fn options(&self, place: &Place) -> atomic_mmap::Options {
        let ground = self.subject.ground;
        let options = ground.options().deploy(DeployPolicy::Manual);
        let options = match self.forces_medium {
            true => options.medium(ground.medium()),
            false => options,
        };
        let options = options.on_mismatch(self.wish);
        match &place.elsewhere {
            Some(dir) => options.reflection_dir(dir),
            None => options,
        }
    }

    /// The handle is to be poisoned: every call says so, and opening again finds everything.
    fn look_at_poisoned(&mut self) -> Next {
        if !self.is_poisoned() {
            self.violation("the handle is not poisoned, and must be");
            return Next::Stop;
        }
        let file = self.bench.file.take().expect("it is open");
        let home = self.bench.place.home().to_string_lossy().into_owned();
        let results = [
            ("read", file.read_at(&mut [0], 0)),
            ("write", file.write_at(&[1], 0)),
            ("transact", file.transact(|tx| tx.write_at(&[1], 0))),
            ("view", file.view(0..1).map(drop)),
            ("deploy", file.deploy(0..1).map(drop)),
            ("sync", file.sync()),
            ("set_len", file.set_len(1)),
            ("try_clone", file.try_clone().map(drop)),
            ("close", file.close(CloseMode::Spatial)),
        ];
        for (name, result) in results {
            match result {
                Err(error @ Error::Poisoned { .. }) if error.to_string().contains(&home) => {}
                other => self.violation(&format!("{name} of a poisoned handle: {other:?}")),
            }
        }
        self.look_back("poisoned");
        self.adopt("poisoned");
        self.finish();
        Next::Stop
    }

    /// Closes what is open, opens it again, closes it for good: everything is there each time, and in
    /// the end nothing is left but a plain file.
    fn finish(&mut self) {
        self.is_over = true;
        self.rearm();
        if let Some(file) = &self.bench.file {
            match read_all(file) {
                Ok(found) => {
                    if let Some(difference) = difference(&found, &self.bench.model) {
                        self.violation(&format!("in the end, by the handle: {difference}"));
                    }
                }
                Err(error) => self.violation(&format!("in the end, by the handle: {error:?}")),
            }
        }
        if let Some(file) = self.bench.file.take()
            && let Err(error) = file.close(CloseMode::Fast)
        {
            self.violation(&format!("the last close: {error:?}"));
        }
        let place = self.bench.place.clone();
        let file = match self.options(&place).open(place.home()) {
            Ok(file) => file,
            Err(error) => return self.violation(&format!("opened again: {error:?}")),
        };
        match read_all(&file) {
            Ok(found) => {
                if let Some(difference) = difference(&found, &self.bench.model) {
                    self.violation(&format!("opened again: {difference}"));
                }
            }
            Err(error) => self.violation(&format!("opened again: {error:?}")),
        }
        if let Err(error) = file.close(CloseMode::Spatial) {
            self.violation(&format!("the very last close: {error:?}"));
        }
        match fs::read(place.home()) {
            Ok(found) => {
                if let Some(difference) = difference(&found, &self.bench.model) {
                    self.violation(&format!("the plain file: {difference}"));
                }
            }
            Err(error) => self.violation(&format!("the plain file: {error}")),
        }
        if is_marked(&place.home()) {
            self.violation("the plain file is marked");
        }
        let mut allowed = vec![place.home()];
        self.look_at_bystanders("in the end", false);
        allowed.extend(self.bystanders.iter().flat_map(Snapshot::paths));
        for name in place.names() {
            if !allowed.contains(&name) {
                self.violation(&format!("{} was left behind", name.display()));
            }
        }
    }
}

fn read_all(file: &AtomicMappedFile) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; file.len() as usize];
    file.read_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// Puts the scenarios of a ground and their states together, once.
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
