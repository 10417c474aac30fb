//! Runs of a scenario in which one system call fails, and the sweep over all calls.
//!
//! Owns: the choice of the failing call and of the failure (a [`Plan`]), and the run of the
//! scenario with it. It also owns the checks of the state afterwards, with the rules of the
//! `judge`.

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
    /// The mismatch of the next open, caused by files that a failed open could not remove.
    refuses_next: Option<Mismatch>,
    /// `true` if only durable points count after a process crash.
    is_undone: bool,
    /// The content that a failed operation may have left, if it poisoned the handle.
    in_doubt: Option<Vec<u8>>,
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
                    // The panic may have left locks locked, and a drop would wait for them.
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

    /// Returns `true` if the failure occurs in this operation or occurred earlier.
    fn has_begun(&self, n: usize) -> bool {
        let baseline = &self.subject.baseline;
        let first = self.plan.place().and_then(|nth| baseline.get(nth - 1));
        !self.plan.is_invisible() && first.is_some_and(|(op, _)| *op <= n)
    }

    /// Does one operation, and repeats it if it failed as planned.
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
                // The repetition must succeed now.
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
                // Up to the failing call, the calls must equal the planned ones.
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
            // Only this call. Any other failure would have occurred without the injected one.
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
        // The operation may have absorbed a lasting failure there, and returned a later one.
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
        // This includes the first error, before the handle is poisoned.
        if !matches!(op, Op::Open(_) | Op::Close(_))
            && judge::poisons(op, self.subject.ground.medium(), failed, self.plan.code())
            && !error.to_string().contains("open the file again")
        {
            self.violation(&format!("does not say what to do: {error}"));
        }
    }

    /// Checks the state after the operation returned `Ok` although a system call failed.
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
            // The file was closed or dropped. The end of the run checks the files.
            return Next::Go;
        }
        if judge::poisons(op, self.subject.ground.medium(), failed, code) {
            self.is_over = true;
            self.rearm();
            // A checkpoint or a durable point failed in the background, so the point may exist or
            // not.
            self.bench.points.push(self.bench.model.clone());
            self.bench.points.extend(before_op);
            return self.look_at_poisoned();
        }
        // A lasting failure continues with the next operation, but must not disturb the checks.
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

    /// Checks the state after the operation failed as planned.
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
                // The operation may also have failed before its effect.
                self.bench.points.extend([self.bench.model.clone(), after.clone()]);
            }
        }
        match op {
            Op::Open(how) => {
                if how.expected == Opened::Whole {
                    // The open may have made a durable point of the state that it found.
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
                // The error does not tell if the operation took effect.
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

    /// Updates the states that a power loss may go back to, after the operation succeeded.
    fn note_points(&mut self, op: &Op, shrinks: bool) {
        match op {
            Op::Open(how) => {
                (self.is_undone, self.durability) =
                    (how.durability == Durability::AllOrNothing, how.durability);
                // This includes the state that a process crash has left.
                self.bench.points = vec![self.bench.model.clone()];
            }
            // A drop reports no failure. The next open finds out if there is a new durable point.
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

    /// Checks that files of other pairs are unchanged, and that no new file exists except the home
    /// file. `may_leave` says that the open could not remove files that it had created.
    fn look_at_bystanders(&mut self, when: &str, may_leave: bool) {
        let Some(before) = &self.bystanders else { return };
        let place = &self.bench.place;
        let home = place.home();
        for change in place.snapshot().changes(before) {
            let is_of_home = change.starts_with(&*home.to_string_lossy());
            let is_left = may_leave && change.contains("left behind");
            // The mark and the journal's header name one pair, and a discard ends it.
            let is_own_journal = self.subject.scenario.quirk == Quirk::NoReflection
                && change.ends_with(".journal is gone");
            if !is_of_home && !is_left && !is_own_journal {
                self.violation(&format!("a bystander, {when}: {change}"));
            }
        }
    }

    fn look_after_failed_open(&mut self, how: &Opening, failed: &[&str], before: &Snapshot) {
        // A file that the crate cannot remove, inspect or lock stays, because it may belong to
        // another pair.
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
            // The home file has bytes now, next to the remains of another file of its name.
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
            // The checks below compare the content of the two files.
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

    /// Checks that the handle reads the expected content.
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
        // The next trace must not contain the calls of this check.
        self.bench.recorder.take();
    }

    /// Checks that the files have the expected content after a process crash.
    fn look_at_copy(&mut self, when: &str) {
        let allowed = self.after_death();
        self.look_at(&format!("{when}, after a crash"), &allowed, false);
    }

    /// Checks that the files have an allowed content after a process crash, and adopts it. Used
    /// where no caller learns the outcome.
    fn adopt(&mut self, when: &str) {
        let allowed = self.after_death();
        if let Some(found) = self.look_at(&format!("{when}, after a crash"), &allowed, false) {
            self.bench.model = found;
        }
    }

    /// Checks that the files hold a durable point after a power loss, with all pages written back.
    fn look_back(&mut self, when: &str) {
        // With `Discard` an open may drop the pair, which other scenarios test.
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

    /// Opens a copy of the files. Returns its content if that is allowed.
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

    /// Returns the scenario's options, on the real machine.
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

    /// Checks that the handle is poisoned: every call says so, and a reopen finds everything.
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

    /// Closes the open file, reopens it and closes it for good. Each time the content must be
    /// complete, and in the end only a plain file remains.
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
