//! The recovery of every image that a power loss can leave.
//!
//! Owns: [`Explorer`]. The real code recovers all images of one state of the machine, lazily. A
//! word with several possible values gets one when recovery or the later read of the file loads it.
//! Then recovery runs again for the next value. Words that are never loaded cannot matter, so
//! images that differ only in them count as one. Behind a page cache, every second state is lost by
//! a removal and a new mount of the disk, instead of a restart. The stores of recovery also go to
//! the simulated machine. So the power may fail during recovery, and again during the next one.

use super::content::{Content, Found};
use super::kinds::{self, HOME, Moment};
use crate::machine::Simulation;
use crate::machine::trail::Trail;
use crate::machine::world::{Loss, World};
use atomic_mmap::{AtomicMappedFile, CloseMode};
use std::collections::HashSet;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

/// Number of recoveries of one state, after which choices are random.
const ALL: u64 = 256;
/// Number of random choices after that.
const AT_RANDOM: u64 = 32;
/// Number of images of an operation's state for which the power fails again during recovery. The
/// next constant is that of a recovery's state. Without these limits, one sequence would take the
/// time of a thousand others.
const CRASH_IN: u64 = 24;
const CRASH_IN_RECOVERY: u64 = 4;
/// A recovered image out of this number is used further: operations, a spatial close and a check.
const GO_ON_EVERY: u64 = 64;

/// Explores images and counts.
#[derive(Default)]
pub struct Explorer {
    /// Number of images that were recovered and compared.
    pub recoveries: u64,
    /// Number of states for which not all images were tried.
    pub sampled: u64,
    /// Number of states in which a power loss was tried.
    pub states: u64,
    /// Number of loads that found several possible values.
    pub branches: u64,
    /// The violations.
    pub violations: Vec<String>,
}

impl Explorer {
    /// Tries all images of a moment, and crashes in their recovery up to `depth` times.
    pub fn explore(&mut self, moment: &Moment, ranges: &[Range<u64>], depth: u32, name: &str) {
        self.explore_from(&moment.world, &moment.allowed, ranges, (depth, CRASH_IN), name);
        if !moment.after_death.is_empty() {
            let before = moment.allowed.iter().chain(&moment.after_death).cloned().collect();
            self.die(&moment.world, &moment.after_death, before, ranges, depth + 1, name);
        }
    }

    /// Crashes the process at the moment, without any loss. The next open makes a durable point of
    /// the content that it finds, and no later power loss undoes it. During that open, the power
    /// may fail, and the process may crash again, `deaths` times in total. After a power loss
    /// during the open, `before` is allowed.
    fn die(
        &mut self,
        world: &World,
        after_death: &[Arc<Content>],
        before: Vec<Arc<Content>>,
        ranges: &[Range<u64>],
        deaths: u32,
        name: &str,
    ) {
        let mut world = world.after_kill();
        if deaths > 1 {
            world.watch();
        }
        let machine = Simulation::new(world);
        self.recoveries += 1;
        let found = recovered(&machine, ranges, |_| None);
        let watched = machine.world().take_watched();
        let problem = match found {
            Err(problem) => problem,
            Ok(found) => match after_death.iter().find(|c| found.is(c, ranges)) {
                Some(content) => {
                    let (one, states) = ([content.clone()], watched.len());
                    for (n, world) in watched.iter().enumerate() {
                        // The open has ended, and the file was read.
                        let is_open = n + 1 == states;
                        let allowed = if is_open { &one[..] } else { &before[..] };
                        let name = format!("{name}, the process died, state {n} of opening");
                        self.explore_from(world, allowed, ranges, (0, 0), &name);
                        if !is_open {
                            let before = before.clone();
                            self.die(world, &one, before, ranges, deaths - 1, &name);
                        }
                        if !self.violations.is_empty() {
                            return;
                        }
                    }
                    return;
                }
                None => {
                    let differences: Vec<String> =
                        after_death.iter().map(|c| found.difference(c, ranges)).collect();
                    format!("wrong contents: {}", differences.join("; or "))
                }
            },
        };
        self.violations.push(format!("{name}, the process died: {problem}"));
    }

    fn explore_from(
        &mut self,
        world: &Arc<World>,
        allowed: &[Arc<Content>],
        ranges: &[Range<u64>],
        (depth, crash_in): (u32, u64),
        name: &str,
    ) {
        self.states += 1;
        // A remount loses the same data as a restart, but the crate detects it in another way.
        let is_remount = world.is_page_cache() && self.states.is_multiple_of(2);
        let loss = if is_remount { Loss::Remount } else { Loss::Restart };
        let mut next = Some(Trail::default());
        let (mut count, mut drawn) = (0, 0);
        while let Some(trail) = next {
            let mut after = world.after(loss, trail);
            let depth = if count < crash_in { depth } else { 0 };
            if depth > 0 {
                after.watch();
            }
            let machine = Simulation::new(after);
            let found = recovered(&machine, ranges, |file| {
                let is_chosen = (self.recoveries + 1).is_multiple_of(GO_ON_EVERY);
                (is_chosen && depth == 0).then(|| file.clone())
            });
            self.recoveries += 1;
            count += 1;
            let (watched, trail) = {
                let mut world = machine.world();
                (world.take_watched(), world.trail.clone())
            };
            self.branches += trail.choices().len() as u64;
            let problem = match &found {
                Err(problem) => Some(problem.clone()),
                Ok(found) => match allowed.iter().find(|content| found.is(content, ranges)) {
                    None => {
                        let differences: Vec<String> =
                            allowed.iter().map(|c| found.difference(c, ranges)).collect();
                        Some(format!("wrong contents: {}", differences.join("; or ")))
                    }
                    Some(content) => {
                        let names = watched.len();
                        for (n, world) in watched.iter().enumerate() {
                            // Once recovery has ended and the file was read, its content stays.
                            let one = [content.clone()];
                            let allowed = if n + 1 == names { &one[..] } else { allowed };
                            let name = format!("{name}, recovery {:?} state {n}", trail.choices());
                            let again = (depth - 1, CRASH_IN_RECOVERY);
                            self.explore_from(world, allowed, ranges, again, &name);
                            if !self.violations.is_empty() {
                                return;
                            }
                        }
                        None
                    }
                },
            };
            if let Some(problem) = problem {
                self.violations.push(format!("{name}, choices {:?}: {problem}", trail.choices()));
                return;
            }
            if count >= ALL {
                self.sampled += u64::from(drawn == 0);
                drawn += 1;
                let seed = count ^ self.states << 20;
                next =
                    (drawn <= AT_RANDOM).then(|| Trail::at_random(fastrand::Rng::with_seed(seed)));
            } else {
                next = trail.next();
            }
        }
    }

    /// Returns the outcomes of all images of a moment, found lazily.
    pub fn lazy_outcomes(moment: &Moment, ranges: &[Range<u64>]) -> Result<HashSet<Found>, String> {
        let mut outcomes = HashSet::new();
        let mut next = Some(Trail::default());
        while let Some(trail) = next {
            let machine = Simulation::new(moment.world.after_crash(trail));
            outcomes.insert(recovered(&machine, ranges, |_| None)?);
            let trail = machine.world().trail.clone();
            next = trail.next();
        }
        Ok(outcomes)
    }

    /// Returns the outcomes by brute force: for every combination of the values of all words,
    /// chosen before recovery begins. Also returns the number of images. Returns `None` if there
    /// are more than `most`.
    pub fn brute_outcomes(
        moment: &Moment,
        ranges: &[Range<u64>],
        most: u64,
    ) -> Result<Option<(HashSet<Found>, u64)>, String> {
        let mut outcomes = HashSet::new();
        let mut images = 0;
        let mut next = Some(Trail::default());
        while let Some(trail) = next {
            images += 1;
            if images > most {
                return Ok(None);
            }
            let mut world = moment.world.after_crash(trail);
            let mut trail = std::mem::take(&mut world.trail);
            world.determine(&mut trail);
            let machine = Simulation::new(world);
            outcomes.insert(recovered(&machine, ranges, |_| None)?);
            assert!(machine.world().trail.choices().is_empty(), "something was left open");
            next = trail.next();
        }
        Ok(Some((outcomes, images)))
    }
}

/// Opens the file of a machine after a crash and reads it. If `goes_on` returns the file, uses it
/// further.
fn recovered(
    machine: &Arc<Simulation>,
    ranges: &[Range<u64>],
    goes_on: impl FnOnce(&Found) -> Option<Found>,
) -> Result<Found, String> {
    let act = || -> Result<Found, String> {
        let file = kinds::open(machine).map_err(|e| format!("does not open: {e}"))?;
        let found = match Found::of(&file, ranges) {
            Ok(found) => found,
            Err(e) => {
                machine.kill();
                return Err(format!("cannot be read: {e}"));
            }
        };
        if goes_on(&found).is_some() {
            go_on(machine, file, &found, ranges)?;
        } else {
            // The process crashes, so nothing is closed.
            machine.kill();
        }
        Ok(found)
    };
    let result = catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    });
    machine.kill();
    result
}

/// Runs more operations on a recovered file, and closes it.
fn go_on(
    machine: &Arc<Simulation>,
    file: AtomicMappedFile,
    found: &Found,
    ranges: &[Range<u64>],
) -> Result<(), String> {
    let text = |e: atomic_mmap::Error| format!("after recovery: {e}");
    let mut expected = vec![0; file.len() as usize];
    file.read_at(&mut expected, 0).map_err(text)?;
    let mut put = |at: u64, bytes: &[u8]| {
        let end = (at as usize + bytes.len()).min(expected.len());
        let Some(place) = expected.get_mut(at as usize..end) else { return Ok(()) };
        place.copy_from_slice(&bytes[..place.len()]);
        let bytes = &bytes[..place.len()];
        file.write_at(bytes, at).map_err(text)
    };
    put(63 * 4096 + 66, b"goes on")?;
    put(63 * 4096 + 30, &[7; 500])?;
    put(62 * 4096, &[8; 8192])?;
    let file = match found.sealed.is_empty() {
        true => file,
        false => drop_snapshots(machine, file, found, ranges)?,
    };
    file.close(CloseMode::Spatial).map_err(text)?;
    if machine.world().len_of(Path::new(HOME)) != Some(expected.len() as u64) {
        return Err("the home file's length is wrong after a spatial close".into());
    }
    is_plain(machine, &expected)
}

/// Compares the snapshots of a file that was written to, and again after a spatial close. Then
/// drops all of them.
fn drop_snapshots(
    machine: &Arc<Simulation>,
    file: AtomicMappedFile,
    found: &Found,
    ranges: &[Range<u64>],
) -> Result<AtomicMappedFile, String> {
    let text = |e: atomic_mmap::Error| format!("snapshots after recovery: {e}");
    let check = |file: &AtomicMappedFile, when: &str| {
        let is_same = Found::sealed(file, ranges).map_err(text)? == found.sealed;
        if is_same { Ok(()) } else { Err(format!("a snapshot has changed {when}")) }
    };
    check(&file, "by a write after recovery")?;
    file.close(CloseMode::Spatial).map_err(text)?;
    let file = kinds::open(machine).map_err(text)?;
    check(&file, "by a spatial close after recovery")?;
    for name in found.sealed.keys() {
        file.drop_snapshot(name).map_err(text)?;
    }
    Ok(file)
}

/// Checks on a machine without processes that the home file is plain and complete, and alone.
fn is_plain(machine: &Arc<Simulation>, expected: &[u8]) -> Result<(), String> {
    let mut world = machine.world();
    let mut names: Vec<_> = world.names().map(Path::to_owned).collect();
    if std::env::var_os("ATOMIC_MMAP_INTEGRITY").is_some() {
        // The companions stay, since they hold the sums of pages.
        names.retain(|name| !name.to_string_lossy().contains("/.atomic-mmap."));
    }
    if names != [Path::new(HOME)] {
        return Err(format!("files after a spatial close: {names:?}"));
    }
    let bytes = world.contents(Path::new(HOME), 0, expected.len() + 1);
    match bytes.as_deref() == Some(expected) {
        true => Ok(()),
        false => Err("the home file is not plain after a spatial close".into()),
    }
}
