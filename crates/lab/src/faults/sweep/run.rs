//! The run of a scenario with a failure.

use super::{Next, Plan, Report, Run, Subject, read_all};
use crate::faults::files::{Place, Snapshot, is_marked, is_spool};
use crate::faults::judge;
use crate::faults::plants::Plant;
use crate::faults::scenarios::{Bench, Failure, Kind, Op, Opened, Opening, difference};
use atomic_mmap::testing::recorder::{Recorder, What};
use atomic_mmap::{CloseMode, DeployPolicy, Durability, Error, OnMismatch};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

impl<'a> Run<'a> {
    pub(super) fn new(subject: &'a Subject<'a>, plan: Plan, base: &Path) -> Option<Run<'a>> {
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
            sealed: subject.start.sealed.clone(),
            points: vec![subject.start.point.clone()],
            may_spool_be_gone: false,
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
            may_leave_spool: false,
            refuses_next: None,
            in_doubt: None,
            sealed_in_doubt: None,
            is_undone: scenario.kind == Kind::AtomicSync,
            durability: Durability::OnSync,
            is_over: plan.is_invisible(),
            calls: Vec::new(),
            counted: 0,
            report: Report::default(),
        })
    }

    pub(super) fn violation(&mut self, what: &str) {
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

    pub(super) fn rearm(&self) {
        self.bench.recorder.heal();
        for call in self.subject.scenario.lacking {
            self.bench.recorder.fail_from(call, 1, libc::EOPNOTSUPP);
        }
    }

    pub(super) fn all(&mut self) {
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
            let shrinks = op.shrinks(self.bench.model.len() as u64);
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
                    op.apply(n, (&mut self.bench.model, &mut self.bench.sealed), home);
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

    /// Closes the open file, reopens it and closes it for good. Each time the content must be
    /// complete, and in the end only a plain file remains.
    pub(super) fn finish(&mut self) {
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
        if let Err(what) = self.are_sealed(&file, std::slice::from_ref(&self.bench.sealed)) {
            self.violation(&format!("opened again: {what}"));
        }
        for info in file.snapshots() {
            if let Err(error) = file.drop_snapshot(&info.name) {
                self.violation(&format!("the last drop of {}: {error:?}", info.name));
            }
        }
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
        if self.may_leave_spool {
            allowed.extend(place.names().into_iter().filter(|name| is_spool(name)));
        }
        self.look_at_bystanders("in the end", false);
        allowed.extend(self.bystanders.iter().flat_map(Snapshot::paths));
        for name in place.names() {
            if !allowed.contains(&name) {
                self.violation(&format!("{} was left behind", name.display()));
            }
        }
    }
}
