//! Stages and background deployment in the schedules.
//!
//! Owns: the operations of the roles `Stage` and `Sweep`, and the casts with them. A fill of a
//! stage changes nothing, so the history has commits alone. The sweep has no thread here, and a
//! thread of the cast takes its turns.
//!
//! May import: `workload`.

use super::durable::Operation;
use super::workload::{Actor, LAST, Role, covered};
use crate::machine::memory::PAGE;
use atomic_mmap::{Error, Stage, testing};
use std::ops::Range;

/// Casts on persistent memory.
pub(super) const CASTS: [&[Role]; 8] = [
    &[Role::Stage, Role::Any],
    &[Role::Stage, Role::Stage],
    &[Role::Stage, Role::Again, Role::Sweep],
    &[Role::Sweep, Role::Any],
    &[Role::Sweep, Role::Again],
    &[Role::Sweep, Role::Neighbour, Role::Neighbour],
    &[Role::Stage, Role::Length],
    &[Role::Sweep, Role::Tail, Role::Length],
];

/// Casts behind a page cache, with durable points.
pub(super) const CASTS_ON_DISK: [&[Role]; 3] = [
    &[Role::Sweep, Role::Any],
    &[Role::Sweep, Role::Again, Role::Sync],
    &[Role::Stage, Role::Sync],
];

impl Actor {
    /// Does one operation of the role `Stage`.
    pub(super) fn stage_anything(&mut self) {
        match self.rng.u32(0..10) {
            0 => self.write(LAST + 64, 72),
            1 => self.view(63),
            2 => self.deploy(),
            3 => self.forget_a_stage(LAST..LAST + PAGE),
            4 => self.stage_with(LAST - 8..LAST + 72, LAST + PAGE),
            5 => self.stage(LAST - 8..LAST + 392),
            6 => self.stage(LAST + PAGE - 8..LAST + PAGE + 128),
            7 => self.stage(62 * PAGE..64 * PAGE),
            _ => self.stage(LAST + 64..LAST + 136),
        }
    }

    /// Does one operation of the role `Sweep`. A turn deploys what the one before has seen.
    pub(super) fn sweep_anything(&mut self) {
        match self.rng.u32(0..6) {
            0 => self.write(LAST + 64, 72),
            1 => self.write(60 * PAGE, 2 * PAGE),
            2 => self.deploy_all(),
            _ => self.turns(),
        }
    }

    fn turns(&self) {
        let turns = Operation { name: "two turns".to_owned(), ..Operation::default() };
        self.note(turns, |_| (0..2).for_each(|_| testing::deploy_idle(&self.file)));
    }

    /// Fills a stage, and returns it with the words that it covers.
    fn filled(&self, range: Range<u64>, id: u64) -> Stage<'_> {
        let mut stage = self.file.stage(range.clone()).expect("a stage");
        let bytes: Vec<u8> =
            id.to_le_bytes().into_iter().cycle().take(stage.len() as usize).collect();
        let (first, second) = bytes.split_at(bytes.len() / 16 * 8);
        stage.write_at(first, 0).expect("a fill");
        stage.write_at(second, first.len() as u64).expect("a fill");
        stage
    }

    fn stage(&self, range: Range<u64>) {
        let id = self.id();
        let stage = self.filled(range.clone(), id);
        let writes = covered(range.start, range.end - range.start).map(|(n, _)| (n, id)).collect();
        let name = format!("commit #{id} of a stage of {range:?}");
        self.note(Operation { name, writes, ..Operation::default() }, |_| {
            stage.commit().expect("a commit");
        });
    }

    /// Commits a stage together with a write of a word, in a transaction that reads that word.
    fn stage_with(&self, range: Range<u64>, word: u64) {
        let id = self.id();
        let mut stages = [self.filled(range.clone(), id)];
        let places = covered(range.start, range.end - range.start).chain(covered(word, 8));
        let writes = places.map(|(n, _)| (n, id)).collect();
        let name = format!("commit #{id} of a stage of {range:?}, reads and writes {word}");
        self.note(Operation { name, writes, ..Operation::default() }, |operation| {
            let mut tx = self.file.begin();
            let mut act = || {
                let mut bytes = [0; 8];
                tx.read_at(&mut bytes, word)?;
                tx.write_at(&id.to_le_bytes(), word)?;
                Ok::<_, Error>(self.read_words(&bytes, word))
            };
            match act().and_then(|seen| tx.commit_with(&mut stages).map(|()| seen)) {
                Ok(seen) => operation.reads = seen,
                Err(Error::Conflict { .. }) => operation.writes.clear(),
                Err(error) => panic!("a commit: {error}"),
            }
        });
    }

    fn forget_a_stage(&self, range: Range<u64>) {
        let name = format!("a stage of {range:?} is dropped");
        self.note(Operation { name, ..Operation::default() }, |_| {
            drop(self.filled(range.clone(), u64::MAX));
        });
    }
}
