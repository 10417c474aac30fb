//! The checks of a run: of errors, and of the state after each operation.

use super::{Next, Plan, Run, read_all};
use crate::faults::files::{Pair, Place, Snapshot};
use crate::faults::judge;
use crate::faults::scenarios::{
    Op, Opened, Opening, Quirk, Sealed, SpaceOp, difference, read_sealed,
};
use atomic_mmap::testing::call;
use atomic_mmap::{
    AtomicMappedFile, CloseMode, DeployPolicy, Durability, Error, Medium, Mismatch, OnMismatch,
};
use std::fs;

impl Run<'_> {
    pub(super) fn judge_error(&mut self, op: &Op, error: &Error, failed: &[&str]) {
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
            // A durable point keeps bytes for snapshots.
            && self.bench.sealed.is_empty()
        {
            self.violation("says that there is no space, and needs none");
        }
        // This includes the first error, before the handle is poisoned.
        if !matches!(op, Op::Open(_) | Op::Close(_))
            && self.poisons(op, failed)
            && !error.to_string().contains("open the file again")
        {
            self.violation(&format!("does not say what to do: {error}"));
        }
    }

    /// Returns `true` if this failure poisons the handle.
    fn poisons(&self, op: &Op, failed: &[&str]) -> bool {
        let super::Subject { ground, scenario, .. } = self.subject;
        judge::poisons(op, ground.medium(), failed, self.plan.code(), scenario.lacking)
    }

    /// Checks the state after the operation returned `Ok` although a system call failed.
    pub(super) fn look_after_success(
        &mut self,
        op: &Op,
        failed: &[&'static str],
        shrinks: bool,
        before_op: Vec<Vec<u8>>,
    ) -> Next {
        if matches!(op, Op::Open(_)) && self.is_overdue() {
            return self.look_at_overdue(failed);
        }
        let code = self.plan.code();
        let natural = |call: &str| self.plan.lasts() && [call::MAP, call::REMOVE].contains(&call);
        let lacking = self.subject.scenario.lacking;
        // A store of snapshots gets a shorter mapping if the system refuses a long one.
        let has_store = matches!(op, Op::Open(_)) && !self.bench.sealed.is_empty();
        for call in failed {
            let is_harmless = natural(call) || has_store && *call == call::MAP;
            if !is_harmless
                && !lacking.contains(call)
                && !judge::may_be_absorbed(op, self.policy, call, code, shrinks, lacking)
            {
                self.violation(&format!("returned Ok although {call} has failed"));
                return Next::Stop;
            }
        }
        self.may_leave_spool |= op.receives();
        if self.bench.file.is_none() {
            // The file was closed or dropped. The end of the run checks the files.
            return Next::Go;
        }
        // A rollback or an import that returns `Ok` is committed. A failed sync of the new length
        // poisons after that, as that of a shrink does.
        let is_cut = judge::may_poison(op)
            && self.subject.ground.medium() == Medium::Dax
            && failed.contains(&call::SYNC_ALL);
        // After `Ok`, a failed write was that of the copy of the journal's header, which no point
        // needs.
        let is_copy = failed.contains(&call::WRITE) && !self.is_poisoned();
        let failed: Vec<&str> =
            failed.iter().copied().filter(|call| *call != call::WRITE || !is_copy).collect();
        let failed = &failed[..];
        if is_cut || self.poisons(op, failed) {
            self.is_over = true;
            self.rearm();
            // A checkpoint or a durable point failed in the background, so the point may exist or
            // not.
            self.bench.points.push(self.bench.model.clone());
            self.bench.points.extend(before_op);
            return self.look_at_poisoned(op);
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

    /// Returns `true` if the store of snapshots could not grow, and nothing else has failed.
    fn lacks_space_of_store(&self, failed: &[&'static str]) -> bool {
        let at = self.plan.place().and_then(|nth| self.subject.baseline.get(nth - 1));
        let is_of_store = at.is_some_and(|(_, at)| at.role == Some(judge::Role::Snapshots));
        is_of_store && failed == [call::ALLOCATE] && judge::is_full(self.plan.code())
    }

    /// Checks the state after the operation failed as planned.
    pub(super) fn look_after_failure(
        &mut self,
        n: usize,
        op: &Op,
        failed: &[&'static str],
        before: Option<&Snapshot>,
        shrinks: bool,
    ) -> Next {
        let (mut after, mut sealed) = (self.bench.model.clone(), self.bench.sealed.clone());
        if !matches!(op, Op::Open(_)) {
            op.apply(n, (&mut after, &mut sealed), Vec::new);
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
            // A rollback poisons from the step on after which an opening finishes it.
            _ if self.poisons(op, failed) || judge::may_poison(op) && self.is_poisoned() => {
                self.may_leave_spool |= op.receives();
                if self.lacks_space_of_store(failed) {
                    self.violation("a lack of space is found behind the commit point");
                }
                // The error does not tell if the operation took effect.
                (self.in_doubt, self.sealed_in_doubt) = (Some(after), Some(sealed));
                self.look_at_poisoned(op)
            }
            _ => {
                self.look_at_handle("after the failure");
                self.look_at_copy("after the failure");
                self.look_back("after the failure");
                Next::Go
            }
        }
    }

    fn is_overdue(&self) -> bool {
        let health = self.bench.file.as_ref().map(AtomicMappedFile::health);
        matches!(health, Some(Err(Error::Overdue { .. })))
    }

    /// Checks a file that was opened without space for what its snapshots need: it reads, writes
    /// nothing, and goes on once there is space.
    fn look_at_overdue(&mut self, failed: &[&str]) -> Next {
        // Whatever call says so: a read that does is one of a strange file system.
        if !judge::is_full(self.plan.code()) || self.bench.sealed.is_empty() {
            let what = "opened without a durable point, and not for lack of space";
            self.violation(&format!("{what}: {failed:?}"));
        }
        self.is_over = true;
        self.rearm();
        self.look_at_handle("overdue");
        let file = self.bench.file.as_ref().expect("it is open");
        let written = file.write_at(&[1], 0);
        let (synced, health) = (file.sync(), file.health());
        if !matches!(written, Err(Error::Overdue { .. })) || synced.is_err() || health.is_err() {
            self.violation(&format!("overdue: {written:?}, {synced:?}, {health:?}"));
            return Next::Stop;
        }
        self.look_at_handle("no longer overdue");
        self.look_at_copy("no longer overdue");
        self.look_back("no longer overdue");
        Next::Go
    }

    /// Updates the states that a power loss may go back to, after the operation succeeded.
    pub(super) fn note_points(&mut self, op: &Op, shrinks: bool) {
        match op {
            Op::Open(how) => {
                (self.is_undone, self.durability) =
                    (how.durability == Durability::AtomicSync, how.durability);
                // This includes the state that a process crash has left.
                self.bench.points = vec![self.bench.model.clone()];
            }
            // A drop reports no failure. The next open finds out if there is a new durable point.
            Op::Drop => self.bench.points.push(self.bench.model.clone()),
            // No caller learns if a turn has made a point.
            Op::Space(SpaceOp::Turns) if self.durability != Durability::AtomicSync => {
                self.bench.points.push(self.bench.model.clone());
            }
            _ if judge::makes_a_point(op, self.durability, shrinks) => {
                self.bench.points = vec![self.bench.model.clone()];
            }
            _ => {}
        }
    }

    fn keeps_points(&self) -> bool {
        self.subject.ground.medium() == Medium::PageCache
    }

    pub(super) fn compare(&mut self, before: &Snapshot, when: &str) {
        for change in self.bench.place.snapshot().changes(before) {
            self.violation(&format!("{when} {change}"));
        }
    }

    /// Checks that files of other pairs are unchanged, and that no new file exists except the home
    /// file. `may_leave` says that the open could not remove files that it had created.
    pub(super) fn look_at_bystanders(&mut self, when: &str, may_leave: bool) {
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
        let is_poisoned = matches!(file.health(), Err(Error::Poisoned { .. }));
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
        let file = self.bench.file.as_ref().expect("it is open");
        if let Err(what) = self.are_sealed(file, std::slice::from_ref(&self.bench.sealed)) {
            self.violation(&format!("{when}, by the handle: {what}"));
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
        if let Some((found, sealed)) =
            self.look_at(&format!("{when}, after a crash"), &allowed, false)
        {
            (self.bench.model, self.bench.sealed) = (found, sealed);
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
    fn look_at(
        &mut self,
        when: &str,
        allowed: &[Vec<u8>],
        restarted: bool,
    ) -> Option<(Vec<u8>, Sealed)> {
        match self.copy_holds(allowed, restarted) {
            Ok(found) => Some(found),
            Err(what) => {
                self.violation(&format!("{when}: {what}"));
                None
            }
        }
    }

    /// Returns the snapshots of a file if they are allowed ones.
    pub(super) fn are_sealed(
        &self,
        file: &AtomicMappedFile,
        allowed: &[Sealed],
    ) -> Result<Sealed, String> {
        let found = read_sealed(file).map_err(|e| format!("snapshots: {e:?}"))?;
        if allowed.contains(&found) {
            return Ok(found);
        }
        let expected = &allowed[0];
        let names = (found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
        if names.0 != names.1 {
            return Err(format!("snapshots {:?} instead of {:?}", names.0, names.1));
        }
        let differ = found.iter().zip(expected.values());
        let differ = differ.filter_map(|((name, found), bytes)| {
            Some(format!("snapshot {name}: {}", difference(found, bytes)?))
        });
        Err(differ.collect::<Vec<_>>().join(", "))
    }

    fn copy_holds(
        &mut self,
        allowed: &[Vec<u8>],
        restarted: bool,
    ) -> Result<(Vec<u8>, Sealed), String> {
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
        let all = [&self.bench.sealed].into_iter().chain(&self.sealed_in_doubt);
        let sealed = self.are_sealed(&file, &all.cloned().collect::<Vec<_>>())?;
        match allowed.iter().find(|allowed| **allowed == found) {
            Some(_) => Ok((found, sealed)),
            None => Err(difference(&found, allowed.last().expect("one")).expect("they differ")),
        }
    }

    /// Returns the scenario's options, on the real machine.
    pub(super) fn options(&self, place: &Place) -> atomic_mmap::Options {
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

    /// Checks that the handle is poisoned: every call that changes something says so, reads go on
    /// unless the operation was cut off, and a reopen finds everything.
    fn look_at_poisoned(&mut self, op: &Op) -> Next {
        if !self.is_poisoned() {
            self.violation("the handle is not poisoned, and must be");
            return Next::Stop;
        }
        let file = self.bench.file.take().expect("it is open");
        let home = self.bench.place.home().to_string_lossy().into_owned();
        self.check_reads_of_poisoned(&file, op);
        let results = [
            ("write", file.write_at(&[1], 0)),
            ("transact", file.transact(|tx| tx.write_at(&[1], 0))),
            ("deploy", file.deploy(0..1).map(drop)),
            ("sync", file.sync().map(drop)),
            ("set_len", file.set_len(1)),
            ("snapshot", file.snapshot("another").map(drop)),
            ("drop_snapshot", file.drop_snapshot("another")),
            ("roll_back", file.roll_back("another", None)),
            ("import", file.import(std::io::empty()).map(drop)),
            ("close", file.close(CloseMode::Spatial).map(drop)),
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

    /// Checks that the handle still reads what memory holds. An operation that was cut off behind
    /// its commit point is the exception.
    fn check_reads_of_poisoned(&mut self, file: &AtomicMappedFile, op: &Op) {
        let mut kinds = vec![("reads", read_all(file))];
        if !file.is_empty() {
            let view = file.view(0..file.len()).and_then(|view| view.to_vec());
            kinds.push(("a view", view));
        }
        kinds.push(("a clone", file.try_clone().and_then(|clone| read_all(&clone))));
        for (what, found) in kinds {
            let is_right = match &found {
                Ok(found) => {
                    let mut all = [&self.bench.model].into_iter().chain(&self.in_doubt);
                    all.any(|one| difference(found, one).is_none())
                }
                Err(error) => judge::may_poison(op) && matches!(error, Error::Poisoned { .. }),
            };
            if !is_right {
                let found = found.map(|bytes| bytes.len());
                self.violation(&format!("{what} of a poisoned handle: {found:?}"));
            }
        }
    }
}
