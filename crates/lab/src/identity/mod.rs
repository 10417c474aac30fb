//! The part `identity`: ownership of files, for every combination of changes to the files of a
//! pair.
//!
//! A process makes and uses a pair on a simulated machine, next to another pair, and ends. Then the
//! part copies, replaces, links or gives away files, and restarts the machine or mounts its disk
//! anew. The real code opens the home file. The part judges the result by the promises to the
//! caller, and not by a second reading of the rules:
//!
//! - The file holds the content at its end or at its last durable point, as the case allows. It
//!   never holds a mixture of two files or two times.
//! - The home file counts without its companion in two cases only: there is no sign of a companion,
//!   or the caller wishes it.
//! - A complete pair opens.
//! - A file that may belong to another pair stays unchanged.
//! - A refused open changes nothing.
//!
//! | file | contents |
//! |---|---|
//! | `case` | the cases |

mod case;

use crate::machine::Simulation;
use crate::machine::others::Held;
use crate::machine::trail::Trail;
use crate::machine::world::World;
use crate::part::{Outcome, Settings};
use crate::progress::Progress;
use atomic_mmap::{AtomicMappedFile, CloseMode, DeployPolicy, Medium, OnMismatch, Options, Result};
use case::{Case, Companion, Home, Journal, Mark};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The pair under test. The next constant is another pair.
const OURS: &str = "/d/a.dat";
const THEIRS: &str = "/d/b.dat";
/// Lengths of the home files: several pages, the last one partial.
const LEN: usize = 60_000;
const OTHER_LEN: usize = 41_000;
/// The user that opens files. The next constant is another user.
const USER: u32 = 1000;
const ANOTHER: u32 = 2000;
/// Number of violations after which a run with a planted bug ends.
const ENOUGH: usize = 5;

fn options() -> Options {
    AtomicMappedFile::options()
        .medium(Medium::PageCache)
        .max_len(1 << 20)
        .journal_len(64 << 10)
        .deploy(DeployPolicy::Manual)
        .close_on_drop(CloseMode::Fast)
}

/// Both pairs at the end of the process.
struct Ended {
    world: Arc<World>,
    /// Paths of the companions of the pair under test.
    reflection: PathBuf,
    journal: PathBuf,
    their_reflection: PathBuf,
    their_journal: PathBuf,
    /// The journal at the end of the previous session.
    older: Held,
    /// The content of the file at its end. The next field is its content at its last durable point.
    latest: Vec<u8>,
    point: Vec<u8>,
}

/// Writes some bytes in several places: parts of slices, slices and pages.
fn write(file: &AtomicMappedFile, bytes: &mut [u8], fill: u8) -> Result<()> {
    let places = [(100, 700), (4096, 64), (9000, 4096), (20_480, 8192), (59_900, 100)];
    for (n, (at, len)) in places.into_iter().enumerate() {
        let shifted = at + usize::from(fill % 4) * 64 * (n + 1);
        let end = (shifted + len).min(bytes.len());
        if shifted < end {
            bytes[shifted..end].fill(fill);
            file.write_at(&bytes[shifted..end], shifted as u64)?;
        }
    }
    Ok(())
}

fn companions_of(world: &World, home: &Path) -> (PathBuf, PathBuf) {
    let reflection = home.with_file_name(format!(".atomic-mmap.{:x}", world.inode_of(home)));
    let journal = reflection.with_added_extension("journal");
    (reflection, journal)
}

/// Makes both pairs. The pair under test had a session that was closed, and another one that was
/// closed or not.
fn ended(is_closed: bool, keeps_births: bool, device: u64) -> Result<Ended> {
    let mut world = World::with_page_cache(device);
    (world.user, world.keeps_births) = (USER, keeps_births);
    world.make(Path::new(OURS), LEN as u64, &[(0, vec![0x11; LEN])]);
    world.make(Path::new(THEIRS), OTHER_LEN as u64, &[(0, vec![0x55; OTHER_LEN])]);
    let machine = Simulation::new(world);
    let open = |path| options().open_simulated(machine.clone(), path);
    let theirs = open(THEIRS)?;
    write(&theirs, &mut vec![0x55; OTHER_LEN], 0x66)?;
    theirs.sync()?;
    write(&theirs, &mut vec![0x55; OTHER_LEN], 0x67)?;
    theirs.close(CloseMode::Fast)?;
    let mut latest = vec![0x11; LEN];
    let ours = open(OURS)?;
    write(&ours, &mut latest, 0x20)?;
    ours.sync()?;
    write(&ours, &mut latest, 0x21)?;
    ours.close(CloseMode::Fast)?;
    let (reflection, journal) = companions_of(&machine.world(), Path::new(OURS));
    let (their_reflection, their_journal) = companions_of(&machine.world(), Path::new(THEIRS));
    let older = machine.world().held(&journal).expect("a journal");
    let ours = open(OURS)?;
    write(&ours, &mut latest, 0x22)?;
    ours.sync()?;
    let mut point = latest.clone();
    write(&ours, &mut latest, 0x33)?;
    match is_closed {
        true => {
            ours.close(CloseMode::Fast)?;
            point.clone_from(&latest);
        }
        false => {
            machine.kill();
            drop(ours);
        }
    }
    let world = Arc::new(machine.world().after_kill());
    let theirs = (their_reflection, their_journal);
    let (their_reflection, their_journal) = theirs;
    Ok(Ended { world, reflection, journal, their_reflection, their_journal, older, latest, point })
}

/// Returns all files in the folder.
fn everything(world: &mut World) -> BTreeMap<PathBuf, Held> {
    let names: Vec<PathBuf> = world.names().map(Path::to_owned).collect();
    names.into_iter().filter_map(|name| Some((name.clone(), world.held(&name)?))).collect()
}

fn contents(world: &mut World, path: &Path) -> Vec<u8> {
    let len = world.len_of(path).unwrap_or(0) as usize;
    world.contents(path, 0, len).unwrap_or_default()
}

/// The allowed results of a case.
struct Allowed {
    contents: Vec<Vec<u8>>,
    /// The open must succeed.
    must_open: bool,
    /// Files that the open may write to and remove.
    gone: Vec<PathBuf>,
}

fn allowed(case: &Case, ended: &Ended, raw: &[u8]) -> Allowed {
    let is_home_ours = matches!(case.home, Home::Same | Home::Renamed);
    // Both files are copies: a restored pair.
    let is_restored = case.home == Home::Copied && case.companion == Companion::Copied;
    let mut contents = Vec::new();
    if is_home_ours || is_restored {
        let is_there = case.loss.is_none() && !is_restored;
        contents.push(match case.is_closed || is_there {
            true => ended.latest.clone(),
            false => ended.point.clone(),
        });
    }
    if is_home_ours && case.companion == Companion::Copied && case.wish == OnMismatch::Trust {
        // No page cache has stores to a copy, so going back to the durable point is always allowed.
        contents.push(ended.point.clone());
    }
    let is_unmarked =
        case.mark == Mark::None || case.home == Home::Reused && case.mark == Mark::Kept;
    let tells_nothing = match case.home {
        // The place is empty, or holds a file of another pair.
        Home::Same | Home::Renamed => match case.companion {
            Companion::Gone | Companion::Theirs => true,
            // Without birth times, the companion may be that of a removed file with the same inode
            // number.
            Companion::Same | Companion::Copied => !case.keeps_births,
            // A file without a mark does not need a companion of another user or with a second
            // name.
            Companion::OfAnotherUser | Companion::HardLink => true,
            Companion::Link | Companion::MountedAlone => false,
        },
        // A file that is no part of the pair.
        Home::Reused | Home::Beside | Home::MountedAlone => true,
        // A companion under another inode number may belong to another file.
        Home::Copied => matches!(
            case.companion,
            Companion::Gone
                | Companion::Theirs
                | Companion::OfAnotherUser
                | Companion::Link
                | Companion::HardLink
                | Companion::MountedAlone
        ),
    };
    if case.home == Home::MountedAlone {
        // Every wish is refused.
        return Allowed { contents, must_open: false, gone: Vec::new() };
    }
    if case.wish == OnMismatch::Discard || is_unmarked && tells_nothing {
        contents.push(raw.to_vec());
    }
    // A closed pair needs no journal. But the power may fail before the system has written that the
    // sync of the close has ended.
    let is_journal_right = case.journal == Journal::Same
        || case.is_closed
            && case.loss.is_none()
            && matches!(case.journal, Journal::Older | Journal::Gone);
    let is_told = match case.mark {
        Mark::Kept => true,
        // By the birth time, if the caller knows that only the mark is gone.
        Mark::None => case.keeps_births && case.wish == OnMismatch::Trust,
        Mark::OfAnotherFile => is_home_ours,
        Mark::OfAnotherPair => false,
    };
    let is_whole = is_home_ours && case.companion == Companion::Same || is_restored;
    let must_open = is_whole && is_told && is_journal_right;
    // The companion may be discarded, or used and closed for good.
    let is_certain = is_home_ours && case.companion == Companion::Same
        || is_home_ours && case.companion == Companion::Copied && (case.is_closed || is_unmarked)
        || is_restored;
    let mut gone = Vec::new();
    let agree = match case.mark {
        Mark::Kept => case.journal != Journal::Theirs,
        Mark::OfAnotherPair => case.journal == Journal::Theirs,
        Mark::None | Mark::OfAnotherFile => false,
    };
    let is_left_alone = case.companion == Companion::Gone && agree;
    if is_left_alone && is_home_ours && case.wish == OnMismatch::Discard {
        // The mark and the journal name one pair.
        gone.push(ended.journal.clone());
    }
    if is_certain && case.mark != Mark::OfAnotherPair {
        gone.push(ended.reflection.clone());
        if !matches!(case.journal, Journal::Theirs | Journal::OfAnotherUser) {
            gone.push(ended.journal.clone());
        }
    }
    Allowed { contents, must_open, gone }
}

/// Opens the home file, uses it, and closes it for good. Returns the violation.
fn run_case(case: &Case, ended: &Ended, seed: u64) -> Option<String> {
    let mut world = match case.loss {
        None => ended.world.after_kill(),
        Some(loss) => {
            let rng = fastrand::Rng::with_seed(seed);
            let mut world = ended.world.after(loss, Trail::at_random(rng));
            world.decide();
            world
        }
    };
    let home = case.apply(&mut world, ended);
    let raw = contents(&mut world, &home);
    let before = everything(&mut world);
    let machine = Simulation::new(world);
    let allowed = allowed(case, ended, &raw);
    let act = || -> Option<String> {
        let opened = options().on_mismatch(case.wish).open_simulated(machine.clone(), &home);
        let file = match opened {
            Ok(file) => file,
            Err(error) if allowed.must_open => return Some(format!("does not open: {error}")),
            Err(error) => {
                let problem = changed(&machine, &before, &[], &[]);
                return problem.map(|problem| format!("refused ({error}), and {problem}"));
            }
        };
        let mut found = vec![0; file.len() as usize];
        if let Err(error) = file.read_at(&mut found, 0) {
            return Some(format!("cannot be read: {error}"));
        }
        if !allowed.contents.contains(&found) {
            let what = match (&found, &ended.latest, &ended.point) {
                (f, latest, _) if *f == *latest => "what was stored last",
                (f, _, point) if *f == *point => "the last durable point",
                (f, ..) if *f == raw => "what the home file alone says",
                _ => "a mixture",
            };
            return Some(format!("holds {what}, which it must not"));
        }
        let goes_on = || -> Result<()> {
            write(&file, &mut found, 0x44)?;
            file.sync()?;
            write(&file, &mut found, 0x45)?;
            file.close(CloseMode::Spatial).map(drop)
        };
        if let Err(error) = goes_on() {
            return Some(format!("does not go on: {error}"));
        }
        if contents(&mut machine.world(), &home) != found {
            return Some("closed for good, and the home file is another".to_owned());
        }
        changed(&machine, &before, &allowed.gone, std::slice::from_ref(&home))
    };
    let result = catch_unwind(AssertUnwindSafe(act));
    machine.kill();
    match result {
        Ok(problem) => problem,
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Some(format!("panic: {}", text.unwrap_or_default()))
        }
    }
}

/// Returns the forbidden changes. The open may write to `home`, and write to or remove `gone`.
fn changed(
    machine: &Simulation,
    before: &BTreeMap<PathBuf, Held>,
    gone: &[PathBuf],
    home: &[PathBuf],
) -> Option<String> {
    let after = everything(&mut machine.world());
    for (name, held) in before {
        if home.contains(name) {
            continue;
        }
        match after.get(name) {
            None if gone.contains(name) => {}
            None => return Some(format!("{} was removed", name.display())),
            Some(now) if now != held && !gone.contains(name) => {
                return Some(format!("{} was changed", name.display()));
            }
            Some(_) => {}
        }
    }
    let new = after.keys().find(|name| !before.contains_key(*name));
    new.map(|name| format!("{} was left behind", name.display()))
}

/// Runs the part.
pub fn run(settings: &Settings, progress: &Progress) -> Outcome {
    let _quiet = crate::quiet::Quiet::new();
    let mut outcome = Outcome::of("identity");
    let cases = case::all();
    // Violations by their text. One bug causes thousands, so the part reports the first case of
    // each text.
    let (next, violations) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let mut made = BTreeMap::new();
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = cases.get(n) else { break };
                    let ended =
                        made.entry((case.is_closed, case.keeps_births)).or_insert_with(|| {
                            ended(case.is_closed, case.keeps_births, crate::images::new_device())
                        });
                    let problem = match ended {
                        Ok(ended) => run_case(case, ended, settings.seed.wrapping_add(n as u64)),
                        Err(error) => Some(format!("the pairs are not made: {error}")),
                    };
                    if let Some(problem) = problem {
                        let mut all = violations.lock().expect("no panic under it");
                        let known = all.entry(problem).or_insert((0, n));
                        *known = (known.0 + 1, known.1.min(n));
                        if settings.seconds.is_some() && known.0 >= ENOUGH {
                            next.store(cases.len(), Ordering::Relaxed);
                        }
                    }
                    progress.tick(format_args!("case {n} of {}", cases.len()));
                }
            });
        }
    });
    outcome.recoveries = cases.len() as u64;
    outcome.runs = format!("{} cases", cases.len());
    let all = violations.into_inner().expect("no panic under it");
    outcome.violations = all
        .into_iter()
        .map(|(problem, (count, first))| format!("{problem}: {count} cases, {}", cases[first]))
        .collect();
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One case out of this number is run, because a test build is slow.
    const EVERY: usize = 211;

    #[test]
    fn every_case_ends_in_what_was_promised() {
        let _quiet = crate::quiet::Quiet::new();
        let mut made = BTreeMap::new();
        for (n, case) in case::all().iter().enumerate().step_by(EVERY) {
            let ended = made.entry((case.is_closed, case.keeps_births)).or_insert_with(|| {
                ended(case.is_closed, case.keeps_births, crate::images::new_device())
                    .expect("the pairs are made")
            });
            assert_eq!(run_case(case, ended, n as u64), None, "{case}");
        }
    }
}
