//! The kinds of operation, and their execution on the simulated machine.
//!
//! Owns: [`Kind`] and [`Player`]. The places of the kinds overlap for any two kinds: they are the
//! pages on both sides of a region's border. [`Player`] runs a sequence of kinds. It returns the
//! states for power losses, each with the allowed contents of the file.

use super::content::{Content, Effect};
pub use super::second::Second;
use crate::machine::Simulation;
use crate::machine::memory::{Model, PAGE};
use crate::machine::world::{LeftOut, World, Written};
use atomic_mmap::{AtomicMappedFile, CloseMode, DeployPolicy, Medium, Options, Result};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The home file's name.
pub const HOME: &str = "/dax/state.dat";
/// The initial length: two regions, some pages and a part of one.
pub const LEN: u64 = 158 * PAGE + 100;
/// The longest length. Twice as much is more than the least budget.
pub(super) const MAX_LEN: u64 = 3 << 20;
/// Offset of the last page of the first region.
pub(super) const LAST: u64 = 63 * PAGE;
const FIRST_SPILLED: u64 = 66;
const SPILLED: u64 = 88;

/// One kind of operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Kind {
    /// A logged flip of a slice.
    LoggedFlip,
    /// A logged flip by another thread, in the same slice.
    LoggedFlipByAnother,
    /// A logged flip in another page, of another region.
    LoggedFlipElsewhere,
    /// A logged flip of three slices.
    LoggedFlipOverSlices,
    /// A logged flip of a whole page.
    LoggedFlipOfPage,
    /// A flip of slices within a page, with the first and the last covered in part.
    Flip,
    /// Two whole pages: two bits of a region word.
    Pages,
    /// Across two pages of a region: an undo record of two slice words.
    OverPages,
    /// Across two regions, unaligned: an undo record of slice and region words.
    OverRegions,
    /// Whole pages of two regions: an undo record of two region words.
    RegionWords,
    /// A transaction that reads and writes two pages.
    Transaction,
    /// More words than a lane has room for: a spilled undo record.
    Spilled,
    /// Writes under a view: the second one logs its data, the third one flips back.
    UnderView,
    /// Writes under a view: the second one logs one of the slices of the first. Not in `KINDS`.
    UnderViewInPart,
    /// Deployment of some pages.
    Deploy,
    /// Deployment of everything, which punches the reflection pages.
    Punch,
    /// The file grows.
    Grow,
    /// The file shrinks, to within the last page of the first region.
    Shrink,
    /// A transaction that makes the file longer, and writes on both sides of the old end.
    GrowAndWrite,
    /// A transaction that makes the file shorter, to within the last page of the first region, and
    /// writes before the new end.
    ShrinkAndWrite,
    /// As `ShrinkAndWrite`, under a view of a page that is written. Not in `KINDS`.
    ShrinkUnderView,
    /// A fast close and a reopen.
    Fast,
    /// A spatial close and a reopen.
    Spatial,
    /// A process crash and a reopen.
    Reopen,
    /// A sync. Only on page cache, where it makes a durable point.
    Sync,
    /// A process crash when a durable point's record is in the page cache, and a reopen.
    DieInSync,
    /// A process crash when the journal's header is in the page cache, a reopen, and a durable
    /// point.
    DieInHeader,
    /// A snapshot, unless there are three. The kinds from here on are in `snapshots::KINDS`.
    Seal,
    /// A snapshot under a view of written slices, and writes over them: the first logs its data.
    SealUnderView,
    /// The oldest snapshot is dropped.
    DropOldest,
    /// The newest snapshot is dropped.
    DropNewest,
    /// The file goes back to the oldest snapshot.
    RollBack,
    /// The file goes back to the newest snapshot, and the present is sealed first.
    RollBackSealed,
    /// Stages, background deployment, a budget.
    Space(super::space::Space),
}

/// The effect of an operation on the last durable point, on page cache.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Point {
    /// None.
    Stays,
    /// The state after the operation is a point.
    Made,
    /// So is the state before it, during the operation.
    BothMade,
    /// The point gets other snapshots, and keeps its bytes.
    Changed,
    /// The state after the operation is a point if `Stats` counts one. Otherwise the old one stays.
    Counted,
}

/// All kinds.
pub const KINDS: [Kind; 22] = [
    Kind::LoggedFlip,
    Kind::LoggedFlipByAnother,
    Kind::LoggedFlipElsewhere,
    Kind::LoggedFlipOverSlices,
    Kind::LoggedFlipOfPage,
    Kind::Flip,
    Kind::Pages,
    Kind::OverPages,
    Kind::OverRegions,
    Kind::RegionWords,
    Kind::Transaction,
    Kind::Spilled,
    Kind::UnderView,
    Kind::Deploy,
    Kind::Punch,
    Kind::Grow,
    Kind::Shrink,
    Kind::GrowAndWrite,
    Kind::ShrinkAndWrite,
    Kind::Fast,
    Kind::Spatial,
    Kind::Reopen,
];

/// The kinds that differ on page cache.
pub const ON_PAGE_CACHE: [Kind; 19] = [
    Kind::Sync,
    Kind::DieInSync,
    Kind::DieInHeader,
    Kind::LoggedFlip,
    Kind::Flip,
    Kind::Pages,
    Kind::OverPages,
    Kind::OverRegions,
    Kind::RegionWords,
    Kind::Transaction,
    Kind::Deploy,
    Kind::Punch,
    Kind::Grow,
    Kind::Shrink,
    Kind::GrowAndWrite,
    Kind::ShrinkAndWrite,
    Kind::Fast,
    Kind::Spatial,
    Kind::Reopen,
];

/// Writes that fit into the journal and that make no durable point themselves.
pub const SMALL: [Kind; 4] = [Kind::LoggedFlip, Kind::Flip, Kind::OverPages, Kind::Transaction];

/// A state of the machine, and the allowed contents of the file after a power loss there.
pub struct Moment {
    /// The machine.
    pub world: Arc<World>,
    /// The allowed contents.
    pub allowed: Vec<Arc<Content>>,
    /// The allowed contents after a process crash there. Empty: not tested.
    pub after_death: Vec<Arc<Content>>,
}

/// Opens the file after a crash. A read then deploys nothing.
pub fn open(machine: &Arc<Simulation>) -> Result<AtomicMappedFile> {
    open_to(machine, DeployPolicy::Manual)
}

/// Opens the file with this policy for deployment.
pub fn open_to(machine: &Arc<Simulation>, policy: DeployPolicy) -> Result<AtomicMappedFile> {
    options(machine, policy).open_simulated(machine.clone(), HOME)
}

fn options(machine: &Simulation, policy: DeployPolicy) -> Options {
    let is_page_cache = machine.world().is_page_cache();
    AtomicMappedFile::options()
        .medium(if is_page_cache { Medium::PageCache } else { Medium::Dax })
        .max_len(MAX_LEN)
        .journal_len(64 << 10)
        .deploy(policy)
        .close_on_drop(CloseMode::Fast)
}

/// Returns bytes that name the operation that wrote them.
pub(super) fn fill(id: u64, len: u64) -> Vec<u8> {
    (0..len).map(|n| ((id + 1) * 37 + n * 11 + n / 64 * 5) as u8 | 1).collect()
}

/// Runs operations on one machine.
pub struct Player<'a> {
    machine: Arc<Simulation>,
    second: &'a Second,
    file: Option<AtomicMappedFile>,
    now: Arc<Content>,
    /// The content at the last durable point.
    durable: Arc<Content>,
    moments: Option<Vec<Moment>>,
    pub(super) next_id: u64,
    /// The ranges of the operations so far.
    pub ranges: Vec<Range<u64>>,
}

impl<'a> Player<'a> {
    /// Creates a machine with a plain home file of some bytes, and opens the file.
    pub fn new(model: Model, device: u64, second: &'a Second) -> Result<Player<'a>> {
        Player::on(World::new(model, device), second)
    }

    /// Opens a new plain home file on this machine.
    pub fn on(mut world: World, second: &'a Second) -> Result<Player<'a>> {
        let first = vec![(62 * PAGE, fill(200, 4 * PAGE)), (LEN - 50, fill(201, 50))];
        world.make(Path::new(HOME), LEN, &first);
        let begin = Content::new(LEN).after(&Effect::Bytes(first));
        let machine = Simulation::new(world);
        let file = open_to(&machine, DeployPolicy::Lazy)?;
        let tail = LEN - 200..LEN + 3 * PAGE;
        let ranges = vec![62 * PAGE..66 * PAGE, tail];
        Ok(Player {
            machine,
            second,
            file: Some(file),
            now: Arc::new(begin.clone()),
            durable: Arc::new(begin),
            moments: None,
            next_id: 0,
            ranges,
        })
    }

    /// Starts to collect moments.
    pub fn watch(&mut self) {
        self.machine.world().watch();
        self.moments = Some(Vec::new());
    }

    /// Leaves a step out from now on.
    pub fn leave_out(&self, step: LeftOut) {
        self.machine.world().leave_out(Some(step));
    }

    /// Returns the collected moments. The process is dead afterwards.
    pub fn finish(mut self) -> Vec<Moment> {
        self.machine.kill();
        drop(self.file.take());
        self.moments.take().unwrap_or_default()
    }

    /// Returns the simulated machine.
    pub fn machine(&self) -> &Arc<Simulation> {
        &self.machine
    }

    /// Returns the current content of the file.
    pub fn content(&self) -> &Arc<Content> {
        &self.now
    }

    pub(super) fn len(&self) -> u64 {
        self.now.len
    }

    /// Does one operation. Until it has returned, its effect may be present or absent.
    pub(super) fn step(
        &mut self,
        effect: Effect,
        act: impl FnOnce(&mut Self, &Effect) -> Result<()>,
    ) -> Result<()> {
        self.step_with(effect, Point::Stays, act)
    }

    /// Does one operation that may make a durable point.
    pub(super) fn step_with(
        &mut self,
        effect: Effect,
        point: Point,
        act: impl FnOnce(&mut Self, &Effect) -> Result<()>,
    ) -> Result<()> {
        let before = self.now.clone();
        let after = match &effect {
            Effect::Nothing => before.clone(),
            effect => Arc::new(before.after(effect)),
        };
        let points = self.points();
        let acted = act(self, &effect);
        acted?;
        let point = match point {
            Point::Counted if self.points() > points => Point::Made,
            Point::Counted => Point::Stays,
            point => point,
        };
        let states = self.machine.world().take_watched();
        self.now = after.clone();
        let is_page_cache = self.machine.world().is_page_cache();
        let old_point = self.durable.clone();
        self.durable = match point {
            Point::Stays | Point::Counted => old_point.clone(),
            Point::Made | Point::BothMade => after.clone(),
            Point::Changed => Arc::new(old_point.after(&effect)),
        };
        let new_point = self.durable.clone();
        if let Some(moments) = &mut self.moments {
            let last = states.len().saturating_sub(1);
            for (n, world) in states.into_iter().enumerate() {
                let now = match &effect {
                    _ if n == last => vec![after.clone()],
                    Effect::Nothing => vec![after.clone()],
                    _ => vec![before.clone(), after.clone()],
                };
                let points = match point {
                    _ if n == last => vec![new_point.clone()],
                    Point::Stays | Point::Counted => vec![old_point.clone()],
                    Point::Made | Point::Changed => vec![old_point.clone(), new_point.clone()],
                    Point::BothMade => vec![old_point.clone(), before.clone(), new_point.clone()],
                };
                let (allowed, after_death) = match is_page_cache {
                    false => (now, Vec::new()),
                    true => (points, now),
                };
                moments.push(Moment { world, allowed, after_death });
            }
        }
        Ok(())
    }

    /// Returns the number of durable points of this session.
    fn points(&self) -> u64 {
        self.file.as_ref().map_or(0, |file| {
            let stats = file.stats();
            stats.journal_points + stats.flush_points
        })
    }

    pub(super) fn file(&self) -> &AtomicMappedFile {
        self.file.as_ref().expect("an open file")
    }

    pub(super) fn write(&mut self, at: u64, len: u64) -> Result<()> {
        // After a shrink, a write must not reach past the end.
        let len = len.min(self.len().saturating_sub(at));
        if len == 0 {
            return Ok(());
        }
        self.next_id += 1;
        let bytes = fill(self.next_id, len);
        self.step(Effect::Bytes(vec![(at, bytes)]), |me, effect| {
            let Effect::Bytes(parts) = effect else { return Ok(()) };
            me.file().write_at(&parts[0].1, parts[0].0)
        })
    }

    fn transaction(&mut self, places: Vec<(u64, u64)>, reads: bool) -> Result<()> {
        self.next_id += 1;
        let (id, end) = (self.next_id, self.len());
        let parts: Vec<(u64, Vec<u8>)> = places
            .into_iter()
            .filter(|(at, len)| at + len <= end)
            .map(|(at, len)| (at, fill(id, len)))
            .collect();
        self.ranges.extend(
            parts
                .iter()
                .filter(|(at, _)| *at >= 66 * PAGE)
                .map(|(at, b)| *at..*at + b.len() as u64),
        );
        if parts.is_empty() {
            return Ok(());
        }
        self.step(Effect::Bytes(parts), |me, effect| {
            let Effect::Bytes(parts) = effect else { return Ok(()) };
            let mut tx = me.file().begin();
            for (at, bytes) in parts {
                if reads {
                    tx.read_at(&mut vec![0; bytes.len()], *at)?;
                }
                tx.write_at(bytes, *at)?;
            }
            tx.commit()
        })
    }

    /// Changes the length and writes, in one operation.
    fn resize(&mut self, len: u64, places: &[(u64, u64)]) -> Result<()> {
        self.next_id += 1;
        let id = self.next_id;
        let parts = places.iter().filter(|(at, size)| at + size <= len);
        let parts = parts.map(|(at, size)| (*at, fill(id, *size))).collect();
        let point = if len < self.len() { Point::Made } else { Point::Stays };
        self.step_with(Effect::LenAndBytes(len, parts), point, |me, effect| {
            let Effect::LenAndBytes(len, parts) = effect else { return Ok(()) };
            let mut tx = me.file().begin();
            tx.set_len(*len)?;
            parts.iter().try_for_each(|(at, bytes)| tx.write_at(bytes, *at))?;
            tx.commit()
        })
    }

    fn reopen(&mut self, close: Option<CloseMode>) -> Result<()> {
        // The open makes a durable point of the state that a process crash has left.
        self.step_with(Effect::Nothing, Point::Made, |me, _| {
            match close {
                Some(mode) => drop(me.file.take().expect("an open file").close(mode)?),
                None => me.die(),
            }
            me.file = Some(open_to(&me.machine, DeployPolicy::Lazy)?);
            Ok(())
        })
    }

    /// Closes the file, and opens it with the least budget for its companions.
    pub(super) fn reopen_with_budget(&mut self) -> Result<()> {
        self.step_with(Effect::Nothing, Point::Made, |me, _| {
            me.file.take().expect("an open file").close(CloseMode::Fast)?;
            let options = options(&me.machine, DeployPolicy::Lazy).reflection_budget(0);
            me.file = Some(options.open_simulated(me.machine.clone(), HOME)?);
            Ok(())
        })
    }

    /// Crashes the process. The next process finds everything that it stored.
    fn die(&mut self) {
        let world = self.machine.world().after_kill();
        self.machine.kill();
        drop(self.file.take());
        let watched = self.machine.world().take_watched();
        self.machine = Simulation::new(world);
        if self.moments.is_some() {
            self.machine.world().watch_after(watched);
        }
    }

    /// Crashes the process in a sync. The record counts because it is intact, but that is certain
    /// only after the next open.
    fn die_in(&mut self, what: Written) -> Result<()> {
        self.step_with(Effect::Nothing, Point::Made, |me, _| {
            me.machine.world().die_in(what);
            let synced = me.file().sync();
            let has_died = synced.is_err();
            if has_died {
                me.die();
                me.file = Some(open_to(&me.machine, DeployPolicy::Lazy)?);
                if what == Written::Header {
                    me.file().sync()?;
                }
            } else {
                // There was nothing to sync, or the sync wrote nothing of this kind.
                me.machine.world().live();
            }
            Ok(())
        })
    }

    /// Runs one operation.
    pub fn play(&mut self, kind: Kind) -> Result<()> {
        match kind {
            Kind::LoggedFlip => self.write(LAST + 70, 8),
            Kind::LoggedFlipByAnother => {
                let len = 8.min(self.len().saturating_sub(LAST + 72));
                if len == 0 {
                    return Ok(());
                }
                self.next_id += 1;
                let bytes = fill(self.next_id, len);
                self.step(Effect::Bytes(vec![(LAST + 72, bytes.clone())]), move |me, _| {
                    let file = me.file().try_clone()?;
                    let result = Arc::new(std::sync::Mutex::new(None));
                    let said = result.clone();
                    me.second.run(move || {
                        let done = file.write_at(&bytes, LAST + 72);
                        *said.lock().expect("no panic under it") = Some(done);
                    });
                    let said = result.lock().expect("no panic under it").take();
                    said.expect("the other thread did not panic")
                })
            }
            Kind::LoggedFlipElsewhere => self.write(LAST + PAGE + 8, 8),
            Kind::LoggedFlipOverSlices => self.write(LAST + 60, 100),
            Kind::LoggedFlipOfPage => self.write(LAST, PAGE),
            Kind::Flip => self.write(LAST + 20, 300),
            Kind::Pages => self.write(62 * PAGE, 2 * PAGE),
            Kind::OverPages => self.write(LAST - 70, 150),
            Kind::OverRegions => self.write(LAST + PAGE - 70, 150),
            Kind::RegionWords => self.write(62 * PAGE, 4 * PAGE),
            Kind::Transaction => {
                self.transaction(vec![(LAST + 66, 10), (LAST + PAGE + 3, 10)], true)
            }
            Kind::Spilled => {
                let places = (0..SPILLED).map(|n| ((FIRST_SPILLED + n) * PAGE + 640, 8));
                self.transaction([(LAST + 128, 8)].into_iter().chain(places).collect(), false)
            }
            Kind::UnderView | Kind::UnderViewInPart => {
                let end = self.len().min(LAST + PAGE);
                if end <= LAST {
                    return Ok(());
                }
                let reader = self.file().try_clone()?;
                let view = reader.view(LAST..end)?;
                let before = view.to_vec()?;
                if kind == Kind::UnderView {
                    self.write(LAST + 64, 64)?;
                    self.write(LAST + 20, 300)?;
                } else {
                    self.write(LAST + 60, 100)?;
                }
                self.write(LAST + 70, 8)?;
                assert!(view.to_vec()? == before, "a view has changed");
                Ok(())
            }
            Kind::Deploy => {
                let range = 62 * PAGE..(65 * PAGE).min(self.len());
                self.step_with(Effect::Nothing, Point::Made, |me, _| {
                    me.file().deploy(range).map(drop)
                })
            }
            Kind::Punch => {
                let range = 0..self.len();
                self.step_with(Effect::Nothing, Point::Made, |me, _| {
                    me.file().deploy(range).map(drop)
                })
            }
            Kind::Grow => {
                let len = self.len() + PAGE + 300;
                if len > MAX_LEN {
                    return Ok(());
                }
                self.step(Effect::Len(len), |me, _| me.file().set_len(len))
            }
            Kind::Shrink => {
                let len = LAST + 90;
                if len >= self.len() {
                    return Ok(());
                }
                // The truncated bytes belong to the last durable point, so a shrink makes a new
                // one.
                self.step_with(Effect::Len(len), Point::Made, |me, _| me.file().set_len(len))
            }
            Kind::GrowAndWrite => {
                let (old, len) = (self.len(), self.len() + PAGE + 300);
                if len > MAX_LEN {
                    return Ok(());
                }
                let old_end = (old.saturating_sub(5), 20);
                self.resize(len, &[(LAST + 66, 10), old_end, (len - 8, 8)])
            }
            Kind::ShrinkAndWrite => {
                let len = LAST + 90;
                if len >= self.len() {
                    return Ok(());
                }
                self.resize(len, &[(LAST - 8, 16), (LAST + 66, 24)])
            }
            Kind::ShrinkUnderView => {
                let reader = self.file().try_clone()?;
                let view = reader.view(LAST - PAGE..LAST.min(self.len()))?;
                let before = view.to_vec()?;
                self.write(LAST - 70, 150)?;
                self.play(Kind::ShrinkAndWrite)?;
                assert!(view.to_vec()? == before, "a view has changed");
                Ok(())
            }
            Kind::DieInSync => self.die_in(Written::Record),
            Kind::DieInHeader => self.die_in(Written::Header),
            Kind::Sync => {
                self.step_with(Effect::Nothing, Point::Made, |me, _| me.file().sync().map(drop))
            }
            Kind::Fast => self.reopen(Some(CloseMode::Fast)),
            Kind::Spatial => self.reopen(Some(CloseMode::Spatial)),
            Kind::Reopen => self.reopen(None),
            Kind::Seal
            | Kind::SealUnderView
            | Kind::DropOldest
            | Kind::DropNewest
            | Kind::RollBack
            | Kind::RollBackSealed => self.play_snapshot(kind),
            Kind::Space(space) => self.play_space(space),
        }
    }
}
