//! The kinds of operation with stages, background deployment and a budget.
//!
//! Owns: those kinds, and the steps that only they have. The lab takes the turns of background
//! deployment itself: the recorder holds the worker, so that events can be counted.
//!
//! May import: `kinds`.

use super::kinds::{Kind, LEN, PAGE, REGION, Step};
use atomic_mmap::{AtomicMappedFile, CloseMode, Durability, Error, testing};

/// A length with which two stages of the whole file take more than the least budget.
const LONG: u64 = 3 << 20;

/// A step that only these kinds have.
#[derive(Clone, Debug)]
pub enum SpaceStep {
    /// Stages these ranges, fills them, and commits all in one operation.
    Stages(Vec<(u64, u64)>),
    /// Stages all ranges but the last, which a transaction writes. Commits all in one operation.
    StagesWith(Vec<(u64, u64)>),
    /// A stage of this offset and length that is filled, and stays until the end.
    Keep(u64, u64),
    /// A stage that is filled and dropped.
    Forget(u64, u64),
    /// A stage that is dropped at once. It has allocated its slots.
    Lend(u64, u64),
    /// A write that deploys its pages.
    Eager(u64, u64),
    /// Two turns of background deployment: one looks at the pages, and one deploys them.
    Turns,
    /// Opens the file with the least budget.
    OpenTight,
}

impl SpaceStep {
    /// Returns the ranges that the step writes, as offsets and lengths.
    pub(super) fn ranges(&self) -> Vec<(u64, u64)> {
        match self {
            SpaceStep::Stages(ranges) | SpaceStep::StagesWith(ranges) => ranges.clone(),
            SpaceStep::Eager(at, len) => vec![(*at, *len)],
            _ => Vec::new(),
        }
    }

    /// Does the step. `bytes` are those of its ranges.
    pub(super) fn run(&self, file: &AtomicMappedFile, bytes: &[Vec<u8>]) -> Result<(), Error> {
        let filled = |at: u64, bytes: &[u8]| {
            let mut stage = file.stage(at..at + bytes.len() as u64)?;
            let (first, second) = bytes.split_at(bytes.len() / 3);
            stage.write_at(first, 0)?;
            let rest = first.len() as u64..bytes.len() as u64;
            stage.fill_from(&mut &second[..], rest)?;
            Ok::<_, Error>(stage)
        };
        let all = |ranges: &[(u64, u64)]| {
            let parts = ranges.iter().zip(bytes);
            parts.map(|((at, _), bytes)| filled(*at, bytes)).collect::<Result<Vec<_>, Error>>()
        };
        match self {
            SpaceStep::Stages(ranges) => file.commit_stages(&mut all(ranges)?),
            SpaceStep::StagesWith(ranges) => {
                let Some(((at, _), others)) = ranges.split_last() else { return Ok(()) };
                file.transact_with(&mut all(others)?, |tx| {
                    tx.read_at(&mut [0; 8], *at)?;
                    tx.write_at(&bytes[others.len()], *at)
                })
            }
            SpaceStep::Keep(at, len) => {
                std::mem::forget(filled(*at, &vec![0xEE; *len as usize])?);
                Ok(())
            }
            SpaceStep::Forget(at, len) => filled(*at, &vec![0xEE; *len as usize]).map(drop),
            SpaceStep::Lend(at, len) => file.stage(*at..*at + *len).map(drop),
            SpaceStep::Eager(at, _) => file.write_at_eager(&bytes[0], *at),
            SpaceStep::Turns => {
                testing::deploy_idle(file);
                testing::deploy_idle(file);
                Ok(())
            }
            SpaceStep::OpenTight => Ok(()),
        }
    }
}

/// Returns `true` if the kind is one of these.
pub(super) fn is_one(kind: &Kind) -> bool {
    kind.before.iter().chain([&kind.act]).any(|step| matches!(step, Step::Space(_)))
}

fn p(page: u64) -> u64 {
    page * PAGE
}

fn stages(ranges: &[(u64, u64)]) -> Step {
    Step::Space(SpaceStep::Stages(ranges.to_vec()))
}

/// Returns the kinds that every medium has.
pub(super) fn all() -> Vec<Kind> {
    use SpaceStep::{Eager, Forget, Keep, Lend, OpenTight, StagesWith, Turns};
    use Step::*;
    let with = |name, extra: &[Step], act: Step| {
        let before = [&[Open, Write(0, LEN)], extra].concat();
        Kind { name, before, act, durability: Durability::OnSync, planted: None }
    };
    let pieces = [Deploy(0, LEN), Write(p(4), PAGE), Write(p(70), 300), Write(p(8), 4 * PAGE)];
    let and = |step: Step| [&pieces[..], &[step]].concat();
    vec![
        with("stage of slices", &[Write(p(5) + 180, 30)], stages(&[(p(5) + 128, 640)])),
        with("stage of two pages", &[Write(p(9), 65)], stages(&[(p(8), 2 * PAGE)])),
        with("stage over regions", &[Write(REGION - 90, 40)], stages(&[(REGION - 100, 300)])),
        with(
            "stages and a write",
            &[Write(p(31), 100)],
            Space(StagesWith(vec![(p(30), 2 * PAGE), (p(50) + 30, 500), (p(90) + 7, 20)])),
        ),
        with(
            "commit beside another stage",
            &[Space(Keep(p(40) + 64, PAGE))],
            stages(&[(p(39) + 100, 2 * PAGE)]),
        ),
        with(
            "commit beside a view",
            &[View(p(40), p(41)), Write(p(40) + 10, 300)],
            Space(StagesWith(vec![(p(41), PAGE), (p(40) + 100, 500)])),
        ),
        with(
            "write to staged slices",
            &[Space(Keep(p(40), 2 * PAGE)), Write(p(40) + 10, 300)],
            Write(p(40) + 100, 500),
        ),
        with(
            "deploy beside a stage",
            &[Write(p(4) + 50, 30), Space(Keep(p(3), 2 * PAGE))],
            Deploy(p(2), p(6)),
        ),
        with("close beside a stage", &[Space(Keep(p(3), 3 * PAGE))], Close(CloseMode::Spatial)),
        with(
            "write over a dropped stage",
            &[Space(Forget(p(40), 3 * PAGE))],
            Write(p(40) + 64, 2 * PAGE),
        ),
        with("eager write", &[Write(p(5) + 180, 30)], Space(Eager(p(5) + 100, 700))),
        with("eager write over regions", &[], Space(Eager(REGION - 100, 200))),
        with("turns", &pieces, Space(Turns)),
        with("turns beside a stage", &and(Space(Keep(p(9), PAGE))), Space(Turns)),
        with("turns under a view", &and(View(p(9), p(10))), Space(Turns)),
        with("write after turns", &and(Space(Turns)), Write(p(3) + 30, 2 * PAGE)),
        with(
            "stage in a budget",
            &[
                Deploy(0, LEN),
                Close(CloseMode::Fast),
                Space(OpenTight),
                SetLen(LONG),
                Space(Lend(0, LONG)),
                Write(p(4), PAGE),
                Write(p(70), 300),
            ],
            Space(Lend(0, LONG)),
        ),
    ]
}

/// Returns more kinds, for files with durable points.
pub(super) fn of_durable_points() -> Vec<Kind> {
    use Durability::{AtomicSync, EveryWrite, OnSync};
    use SpaceStep::{Eager, Turns};
    use Step::*;
    let with = |name, durability, extra: &[Step], act: Step| {
        let before = [&[Open, Write(0, LEN), Sync], extra].concat();
        Kind { name, before, act, durability, planted: None }
    };
    let some = [Write(p(3), 200), Write(p(8), 4 * PAGE)];
    vec![
        with("stage of a point", OnSync, &some, stages(&[(p(3) + 30, 700), (p(9), PAGE)])),
        with("a stage that is synced", EveryWrite, &some, stages(&[(p(3) + 30, 700)])),
        with("a stage that will be undone", AtomicSync, &some, stages(&[(p(3) + 30, 700)])),
        with("an eager write that is synced", EveryWrite, &some, Space(Eager(p(3) + 30, 700))),
        with("turns of a point", OnSync, &some, Space(Turns)),
        with("turns of all or nothing", AtomicSync, &some, Space(Turns)),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::{kinds, sealed};
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_kind_has_a_name_and_its_states_differ_as_it_says() {
        let kinds = [all(), of_durable_points()].concat();
        let others = [kinds::all(), kinds::of_durable_points(), sealed::with_snapshots()].concat();
        let others = [others, sealed::with_sums(), sealed::of_durable_points()].concat();
        let names: BTreeSet<_> = others.iter().chain(&kinds).map(|kind| kind.name).collect();
        assert_eq!(names.len(), kinds.len() + others.len());
        for kind in &kinds {
            assert!(is_one(kind), "{}", kind.name);
            let [before, after] = kind.states();
            let writes = match &kind.act {
                Step::Write(..) => true,
                Step::Space(step) => !step.ranges().is_empty(),
                _ => false,
            };
            let changes = writes && kind.durability != Durability::AtomicSync;
            assert_eq!(before != after, changes, "{}", kind.name);
        }
    }
}
