//! Stages, background deployment and a budget in the sequences of the part.
//!
//! Owns: the kinds of operation on what needs no copy and what gives space back, their execution,
//! and the sequences in which they stand beside each other kind. Each fill of a stage is a step of
//! its own that changes nothing. The lab takes the turns of the sweep itself, since the simulated
//! machine has no thread for them.

use super::content::Effect;
use super::kinds::{Kind, LAST, MAX_LEN, Player, Point, fill};
use super::{Job, job, media};
use crate::machine::memory::{Model, PAGE};
use crate::machine::world::be_thread;
use atomic_mmap::{AtomicMappedFile, DeployPolicy, Result, Stage, testing};
use std::ops::Range;

/// One kind of operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Space {
    /// A stage of slices within a page, filled from end to end.
    OfSlices,
    /// A stage of two whole pages: two bits of a region word.
    OfPages,
    /// A stage over two regions, with slices in part at both ends, and a gap that stays unfilled.
    OverRegions,
    /// Two stages that overlap, and a transaction that reads and writes: one commit.
    Together,
    /// A stage, with writes of its slices and a deployment between its fill and its commit.
    BesideWrites,
    /// A stage of pages that a view pins in part, committed by redo.
    BesideView,
    /// A stage that another thread fills.
    ByAnother,
    /// A stage that is dropped, and writes to its slots.
    Dropped,
    /// A stage and a new length in one commit.
    AndGrow,
    /// A write that deploys its page.
    Eager,
    /// A write under the policy `Adaptive`, to a page that was read often.
    Adaptive,
    /// One turn of background deployment: it deploys what was the same in the turn before.
    Turn,
    /// Two turns, which deploy all pages and give back their space.
    Turns,
    /// A stage under the least budget waits, until space was given back.
    Budget,
}

/// All kinds.
pub const KINDS: [Space; 14] = [
    Space::OfSlices,
    Space::OfPages,
    Space::OverRegions,
    Space::Together,
    Space::BesideWrites,
    Space::BesideView,
    Space::ByAnother,
    Space::Dropped,
    Space::AndGrow,
    Space::Eager,
    Space::Adaptive,
    Space::Turn,
    Space::Turns,
    Space::Budget,
];

/// The bytes that were filled, by their offsets in the file.
type Filled = Vec<(u64, Vec<u8>)>;

impl Player<'_> {
    /// Runs one operation.
    pub(super) fn play_space(&mut self, kind: Space) -> Result<()> {
        let file = self.file().try_clone()?;
        match kind {
            Space::OfSlices => {
                let range = self.inside(LAST + 64..LAST + 448);
                self.stage_and_commit(&file, range, &[(0, 384)])
            }
            Space::OfPages => {
                let range = self.inside(62 * PAGE..64 * PAGE);
                self.stage_and_commit(&file, range, &[(0, 5000), (5000, 2 * PAGE - 5000)])
            }
            Space::OverRegions => {
                let range = self.inside(LAST - 70..LAST + PAGE + 150);
                self.stage_and_commit(&file, range, &[(0, 300), (340, PAGE - 340), (PAGE, 220)])
            }
            Space::Together => self.stages_together(&file),
            Space::BesideWrites => self.stage_beside(&file, None),
            Space::BesideView => {
                let range = self.inside(LAST..LAST + PAGE);
                if range.is_empty() {
                    return Ok(());
                }
                let view = file.view(range)?;
                let before = view.to_vec()?;
                self.stage_beside(&file, Some(LAST + 90))?;
                assert!(view.to_vec()? == before, "a view has changed");
                Ok(())
            }
            Space::ByAnother => {
                let range = self.inside(LAST + 128..LAST + PAGE + 64);
                let mut stage = file.stage(range.clone())?;
                let parts = [(0, 100), (100, range.end - range.start)];
                let filled = self.fill(&mut stage, &parts, true)?;
                self.commit(&file, vec![stage], filled)
            }
            Space::Dropped => self.drop_a_stage(&file),
            Space::AndGrow => self.stage_and_grow(&file),
            Space::Eager => {
                self.write_eagerly(LAST + 20, 300)?;
                self.write_eagerly(LAST - 70, 150)
            }
            Space::Adaptive => {
                file.set_deploy_policy(DeployPolicy::Adaptive);
                let range = self.inside(LAST..LAST + PAGE);
                for _ in 0..64 {
                    file.read_at(&mut [0; 64][..range.end.min(64) as usize], 62 * PAGE)?;
                    file.read_at(&mut vec![0; (range.end - range.start) as usize], range.start)?;
                }
                self.write(LAST + 20, 300)?;
                file.set_deploy_policy(DeployPolicy::Lazy);
                Ok(())
            }
            Space::Turn => self.turn(),
            Space::Turns => {
                self.turn()?;
                self.turn()
            }
            Space::Budget => {
                // Another handle would keep the file from being closed.
                drop(file);
                self.exceed_a_budget()
            }
        }
    }

    /// Returns the part of a range that the file has.
    fn inside(&self, range: Range<u64>) -> Range<u64> {
        range.start.min(self.len())..range.end.min(self.len())
    }

    /// Fills parts of a stage, by turns from a slice and from a reader. Parts are offsets in the
    /// stage and lengths.
    fn fill(
        &mut self,
        stage: &mut Stage<'_>,
        parts: &[(u64, u64)],
        by_another: bool,
    ) -> Result<Filled> {
        let (start, len) = (stage.range().start, stage.len());
        let mut filled = Filled::new();
        for (at, size) in parts {
            let at = (*at).min(len);
            self.next_id += 1;
            filled.push((start + at, fill(self.next_id, (*size).min(len - at))));
        }
        let mut put = || {
            filled.iter().enumerate().try_for_each(|(n, (at, bytes))| {
                let at = at - start;
                if n % 2 == 0 {
                    let range = at..at + bytes.len() as u64;
                    stage.fill_from(&mut &bytes[..], range).map(drop)
                } else {
                    stage.write_at(bytes, at)
                }
            })
        };
        self.step(Effect::Nothing, |_, _| match by_another {
            false => put(),
            true => std::thread::scope(|scope| {
                let put = scope.spawn(move || {
                    be_thread(1);
                    put()
                });
                put.join().expect("the other thread did not panic")
            }),
        })?;
        Ok(filled)
    }

    fn commit(
        &mut self,
        file: &AtomicMappedFile,
        mut stages: Vec<Stage<'_>>,
        filled: Filled,
    ) -> Result<()> {
        self.step(Effect::Bytes(filled), |_, _| file.commit_stages(&mut stages))
    }

    fn stage_and_commit(
        &mut self,
        file: &AtomicMappedFile,
        range: Range<u64>,
        parts: &[(u64, u64)],
    ) -> Result<()> {
        let mut stage = file.stage(range)?;
        let filled = self.fill(&mut stage, parts, false)?;
        self.commit(file, vec![stage], filled)
    }

    fn stages_together(&mut self, file: &AtomicMappedFile) -> Result<()> {
        let mut first = file.stage(self.inside(62 * PAGE..LAST + 640))?;
        let mut second = file.stage(self.inside(LAST + 30..LAST + PAGE + 200))?;
        self.next_id += 1;
        let id = self.next_id;
        let places = [(LAST + 3000, 20), (LAST + PAGE + 66, 10)];
        let places = places.iter().filter(|(at, len)| at + len <= self.len());
        let mut parts: Filled = places.map(|(at, len)| (*at, fill(id, *len))).collect();
        let written = parts.clone();
        parts.extend(self.fill(&mut first, &[(100, 2 * PAGE)], false)?);
        parts.extend(self.fill(&mut second, &[(0, 100), (200, 500), (PAGE, 100)], false)?);
        let mut stages = [first, second];
        self.step(Effect::Bytes(parts), |_, _| {
            file.transact_with(&mut stages, |tx| {
                tx.read_at(&mut [0; 40], LAST - 20)?;
                written.iter().try_for_each(|(at, bytes)| tx.write_at(bytes, *at))
            })
        })
    }

    /// Fills a stage of a page and a bit. Then writes its slices, deploys, and commits, with a
    /// write at the last offset in the same commit.
    fn stage_beside(&mut self, file: &AtomicMappedFile, with: Option<u64>) -> Result<()> {
        let mut stage = file.stage(self.inside(LAST - 640..LAST + PAGE))?;
        let mut filled = self.fill(&mut stage, &[(0, 600), (704, 900)], false)?;
        self.write(LAST + 70, 8)?;
        self.write(LAST + 20, 300)?;
        let range = self.inside(62 * PAGE..65 * PAGE);
        self.step_with(Effect::Nothing, Point::Made, |me, _| me.file().deploy(range).map(drop))?;
        self.write(LAST - 70, 150)?;
        let Some(at) = with.filter(|at| at + 40 <= self.len()) else {
            return self.commit(file, vec![stage], filled);
        };
        self.next_id += 1;
        let bytes = fill(self.next_id, 40);
        filled.insert(0, (at, bytes.clone()));
        let mut stages = [stage];
        self.step(Effect::Bytes(filled), |_, _| {
            file.transact_with(&mut stages, |tx| tx.write_at(&bytes, at))
        })
    }

    fn drop_a_stage(&mut self, file: &AtomicMappedFile) -> Result<()> {
        let mut stage = file.stage(self.inside(62 * PAGE..65 * PAGE))?;
        self.fill(&mut stage, &[(0, PAGE), (PAGE, 2 * PAGE)], false)?;
        self.write(LAST + 60, 100)?;
        self.turn()?;
        self.step(Effect::Nothing, |_, _| {
            drop(stage);
            Ok(())
        })?;
        // The slots have other owners from here on.
        self.write(62 * PAGE + 64, 2 * PAGE)?;
        self.write(LAST + 64, 64)
    }

    fn stage_and_grow(&mut self, file: &AtomicMappedFile) -> Result<()> {
        let (old, len) = (self.len(), self.len() + PAGE + 300);
        if len > MAX_LEN {
            return Ok(());
        }
        let mut stage = file.stage(self.inside(LAST..LAST + 900))?;
        self.next_id += 1;
        let (at, bytes) = (old.saturating_sub(5), fill(self.next_id, 20));
        let mut parts = vec![(at, bytes.clone())];
        parts.extend(self.fill(&mut stage, &[(10, 700)], false)?);
        self.step(Effect::LenAndBytes(len, parts), |_, _| {
            let mut tx = file.begin();
            tx.set_len(len)?;
            tx.write_at(&bytes, at)?;
            tx.commit_with(&mut [stage])
        })
    }

    fn write_eagerly(&mut self, at: u64, len: u64) -> Result<()> {
        let len = len.min(self.len().saturating_sub(at));
        self.next_id += 1;
        let bytes = fill(self.next_id, len);
        self.step(Effect::Bytes(vec![(at, bytes.clone())]), |me, _| {
            me.file().write_at_eager(&bytes, at)
        })
    }

    fn turn(&mut self) -> Result<()> {
        self.step_with(Effect::Nothing, Point::Counted, |me, _| {
            testing::deploy_idle(me.file());
            Ok(())
        })
    }

    /// Opens the file with the least budget, and makes it long. Two stages of all of it, one after
    /// the other, take more than the budget.
    fn exceed_a_budget(&mut self) -> Result<()> {
        self.reopen_with_budget()?;
        let old = self.len();
        self.step(Effect::Len(MAX_LEN), |me, _| me.file().set_len(MAX_LEN))?;
        self.write(LAST - 70, 150)?;
        self.write(LAST + PAGE + 8, 8)?;
        let file = self.file().try_clone()?;
        self.step(Effect::Nothing, |_, _| file.stage(0..MAX_LEN).map(drop))?;
        let (mut stages, waits) = (Vec::new(), file.stats().budget_waits);
        self.step(Effect::Nothing, |_, _| {
            stages.push(file.stage(0..MAX_LEN)?);
            Ok(())
        })?;
        assert!(file.stats().budget_waits > waits, "no operation waits for the budget");
        let filled = self.fill(&mut stages[0], &[(LAST + 10, 700), (LAST + PAGE, 200)], false)?;
        self.commit(&file, stages, filled)?;
        self.step_with(Effect::Len(old), Point::Made, |me, _| me.file().set_len(old))
    }
}

/// Returns the kinds of a medium. On page cache a stage has buffers, which take no space.
fn kinds_of(medium: Option<Model>) -> impl Iterator<Item = Space> + Clone {
    let all = KINDS.into_iter();
    all.filter(move |kind| medium.is_some() || *kind != Space::Budget)
}

/// Returns the sequences of one kind, by itself and after a write, on each medium.
pub(super) fn first(depth: u32) -> Vec<Job> {
    let mut jobs = Vec::new();
    for (medium, _) in media() {
        for kind in kinds_of(medium).map(Kind::Space) {
            jobs.push(job(vec![kind], depth, medium));
            jobs.push(job(vec![Kind::RegionWords, kind], depth, medium));
        }
    }
    jobs
}

/// Returns the sequences of two kinds, one of them or both from here, on each medium.
pub(super) fn pairs(depth: u32) -> Vec<Job> {
    let mut jobs = Vec::new();
    for (medium, others) in media() {
        for kind in kinds_of(medium).map(Kind::Space) {
            let others = others.iter().filter(|other| **other != Kind::Spilled);
            jobs.extend(others.flat_map(|other| {
                [vec![*other, kind], vec![kind, *other]].map(|kinds| job(kinds, depth, medium))
            }));
            let ours = kinds_of(medium).map(Kind::Space);
            jobs.extend(ours.map(|other| job(vec![kind, other], depth, medium)));
        }
    }
    jobs
}

/// Returns a sequence of three kinds at random, the second or the third of them from here.
pub(super) fn triple(rng: &mut fastrand::Rng) -> Job {
    let [chunk, px86, disk] = media();
    let (medium, others) = match rng.u8(0..4) {
        0 => chunk,
        1 => px86,
        _ => disk,
    };
    let mut kinds: Vec<Kind> = (0..3).map(|_| at_random(rng, others, medium.is_none())).collect();
    kinds[rng.usize(1..3)] = any(rng, medium.is_none());
    job(kinds, 0, medium)
}

fn any(rng: &mut fastrand::Rng, is_page_cache: bool) -> Kind {
    let last = KINDS.len() - usize::from(is_page_cache);
    Kind::Space(KINDS[rng.usize(0..last)])
}

/// Returns a kind at random, two in five from here.
pub(super) fn at_random(rng: &mut fastrand::Rng, others: &[Kind], is_page_cache: bool) -> Kind {
    match rng.u8(0..5) {
        0 | 1 => any(rng, is_page_cache),
        _ => others[rng.usize(0..others.len())],
    }
}
