//! The scenarios with stages, background deployment and a budget.
//!
//! Owns: those scenarios, and the calls that only they have. A run takes the turns of background
//! deployment itself, since the recorder holds the worker.

use super::ops::Failure;
use super::start::bytes;
use super::{Kind, LEN, OF_POINTS, Op, Opened, Opening, PAGE, Quirk, Scenario, open, opening};
use atomic_mmap::{AtomicMappedFile, CloseMode, Durability, Medium, Stage, testing};
use std::ops::Range;

/// A length with which two stages of the whole file take more than the least budget.
const LONG: u64 = 3 << 20;

/// A call that only these scenarios have.
#[derive(Clone, Debug)]
pub enum SpaceOp {
    /// Stages these ranges, fills them, and commits all in one operation.
    Stages(Vec<(u64, usize)>),
    /// Stages all ranges but the last, which a transaction writes. Commits all in one operation.
    StagesWith(Vec<(u64, usize)>),
    /// Fills a stage, and drops it.
    Forget(u64, usize),
    /// Stages a range, and drops the stage.
    Lend(Range<u64>),
    /// A write that deploys its pages.
    Eager(u64, usize),
    /// Two turns of background deployment: one looks at the pages, and one deploys them.
    Turns,
}

impl SpaceOp {
    /// Returns a word for messages and tables.
    pub fn name(&self) -> &'static str {
        match self {
            SpaceOp::Stages(_) => "stage and commit",
            SpaceOp::StagesWith(_) => "stage and transaction",
            SpaceOp::Forget(..) | SpaceOp::Lend(_) => "stage and drop",
            SpaceOp::Eager(..) => "write_at_eager",
            SpaceOp::Turns => "background deployment",
        }
    }

    /// Returns the ranges that the call writes, as offsets and lengths.
    pub fn writes(&self) -> Vec<(u64, usize)> {
        match self {
            SpaceOp::Stages(ranges) | SpaceOp::StagesWith(ranges) => ranges.clone(),
            SpaceOp::Eager(at, len) => vec![(*at, *len)],
            _ => Vec::new(),
        }
    }

    /// Does the call. `data` returns the bytes that the call writes to a range.
    pub fn perform(
        &self,
        file: &AtomicMappedFile,
        data: impl Fn(u64, usize) -> Vec<u8>,
    ) -> Result<(), Failure> {
        let filled = |at: u64, bytes: &[u8]| -> Result<Stage<'_>, Failure> {
            let mut stage = file.stage(at..at + bytes.len() as u64)?;
            let (first, second) = bytes.split_at(bytes.len() / 3);
            stage.write_at(first, 0)?;
            stage.fill_from(&mut &second[..], first.len() as u64..bytes.len() as u64)?;
            Ok(stage)
        };
        let all = |ranges: &[(u64, usize)]| {
            ranges
                .iter()
                .map(|(at, len)| filled(*at, &data(*at, *len)))
                .collect::<Result<Vec<_>, _>>()
        };
        match self {
            SpaceOp::Stages(ranges) => file.commit_stages(&mut all(ranges)?)?,
            SpaceOp::StagesWith(ranges) => {
                let ((at, len), others) = ranges.split_last().expect("one");
                file.transact_with(&mut all(others)?, |tx| tx.write_at(&data(*at, *len), *at))?;
            }
            SpaceOp::Forget(at, len) => drop(filled(*at, &bytes(*at, *len))?),
            SpaceOp::Lend(range) => drop(file.stage(range.clone())?),
            SpaceOp::Eager(at, len) => file.write_at_eager(&data(*at, *len), *at)?,
            SpaceOp::Turns => (0..2).for_each(|_| testing::deploy_idle(file)),
        }
        Ok(())
    }
}

/// Adds the scenarios.
pub(super) fn add(medium: Medium, all: &mut Vec<Scenario>) {
    let mut add = |name: &str, kind: Kind, ops: Vec<Op>| {
        let (name, quirk) = (name.to_owned(), Quirk::None);
        all.push(Scenario { name, kind, quirk, elsewhere: false, lacking: &[], ops });
    };
    let space = Op::Space;
    let (small, over) = (|| Op::Write(10_000, 100), || Op::Write(8_100, 400));
    let whole = || Op::Write(16 * PAGE, 9 * PAGE as usize);
    let stages = |ranges: &[(u64, usize)]| space(SpaceOp::Stages(ranges.to_vec()));
    let turns = || space(SpaceOp::Turns);
    let staged = vec![
        open(),
        stages(&[(8_100, 400)]),
        stages(&[(16 * PAGE, 9 * PAGE as usize), (300_000, 3)]),
        space(SpaceOp::StagesWith(vec![(5_000, 20_000), (20_000, 9_000), (200_000, 50)])),
        space(SpaceOp::Forget(40_000, 70_000)),
        Op::Write(40_100, 9_000),
        Op::Read(0, LEN as usize),
    ];
    add("stages", Kind::Plain, staged.clone());
    add("stages of holes", Kind::Sparse, staged);
    let swept = |first: Op| {
        let eager = space(SpaceOp::Eager(30_000, 500));
        vec![first, over(), whole(), eager, turns(), small(), whole(), turns()]
    };
    add("background deployment", Kind::Closed, swept(open()));
    add("background deployment of holes", Kind::Sparse, swept(open()));
    if medium == Medium::PageCache {
        let undone = Opening { durability: Durability::AtomicSync, ..opening(Opened::Whole) };
        let saved = vec![
            Op::Open(undone),
            over(),
            stages(&[(16 * PAGE, 9 * PAGE as usize)]),
            Op::Sync,
            over(),
            turns(),
            small(),
            Op::Close(CloseMode::Fast),
        ];
        add(&format!("{OF_POINTS}background deployment, all or nothing"), Kind::Plain, saved);
        return;
    }
    // A write before the last call would have to wait, too.
    let tight = Opening { has_budget: true, ..opening(Opened::Whole) };
    let lend = || space(SpaceOp::Lend(0..LONG));
    let ops = vec![Op::Open(tight), Op::SetLen(LONG), over(), whole(), lend(), lend()];
    add("a budget", Kind::Plain, ops);
}
