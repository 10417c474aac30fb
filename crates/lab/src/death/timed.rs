//! The part `kills`: SIGKILL at random times loses nothing that was acknowledged and tears nothing.
//!
//! Owns: the rounds of part `kills`. In each round, a forked child opens the file that the last
//! child left, or creates it. The child compares the file with the ledger, writes from several
//! threads, and sometimes closes. A kernel timer kills the child at a random time. It may hit an
//! open, a recovery, a write, a change of the length, a deployment or a close. Everything that the
//! child had sent through the pipe counts as acknowledged. The next child opens the same files.
//! After a number of rounds, the part closes the file, compares the plain file byte for byte, and
//! begins a new one.
//!
//! On media with durable points, each file has a `Manner`. In the first one, no thread syncs. In
//! the second, each thread syncs before it acknowledges. In the third, every write is durable. In
//! the last, a crash undoes everything since the last sync. In all but the first, a child also
//! opens a copy of the files as after a restart of the machine. That open goes back to a durable
//! point, which must also contain everything that was acknowledged.
//!
//! May import: `image`, `ledger`, `process`, `work`, `writer`.

use super::image::Image;
use super::ledger::Ledger;
use super::process::{self, End, ask, fork};
use super::work::BASE_LEN;
use super::writer::{self, FAULTS, Fault, Orders, PATIENCE, Phase, Said, contents, options};
use super::{Ground, grounds};
use crate::part::{Outcome, Settings, TENTHS};
use crate::progress::Progress;
use atomic_mmap::{CloseMode, Durability, Medium};
use fastrand::Rng;
use std::io::{PipeReader, PipeWriter};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Number of kills in continuous integration. The long run has ten times this number.
const KILLS: u64 = 20_000;
/// Number of rounds with one file.
const ROUNDS: u64 = 150;
/// Number of processes that run rounds at the same time, each with its own file.
const SHARES: u64 = 2;
/// Number of kills within which the part must find a planted bug. Most are found within 100 kills.
/// On a busy machine, one took more than 1500.
const KILLS_FOR_A_FAULT: u64 = 8000;
/// Number of violations after which a run ends, because more of them show nothing new.
const ENOUGH: usize = 5;

/// A restart of the machine is tested after one kill out of this number, for a file that syncs.
const RESTARTS: u64 = 3;

/// The moment at which an acknowledged operation becomes durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Manner {
    /// When the file is closed.
    NotSynced,
    /// At a sync before the acknowledgement.
    Synced,
    /// When the write returns.
    EveryWrite,
    /// At a sync, and a crash undoes everything else.
    AtomicSync,
}

impl Manner {
    const ALL: [Manner; 4] =
        [Manner::Synced, Manner::AtomicSync, Manner::EveryWrite, Manner::NotSynced];

    fn durability(self) -> Durability {
        match self {
            Manner::NotSynced | Manner::Synced => Durability::OnSync,
            Manner::EveryWrite => Durability::EveryWrite,
            Manner::AtomicSync => Durability::AtomicSync,
        }
    }
}

/// The counts and findings of a run.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Tally {
    kills: u64,
    /// Number of kills with a timer that started at opening, at writing and at closing. The first
    /// counts also kills before the child began to write.
    by_phase: [u64; 3],
    before_writing: u64,
    /// Number of files that were opened and compared after a kill.
    compared: u64,
    /// Number of copies that were opened and compared as after a restart.
    restarts: u64,
    operations: u64,
    violations: Vec<String>,
}

impl Tally {
    fn add(&mut self, other: Tally) {
        self.kills += other.kills;
        self.before_writing += other.before_writing;
        self.compared += other.compared;
        self.restarts += other.restarts;
        self.operations += other.operations;
        self.by_phase.iter_mut().zip(other.by_phase).for_each(|(to, n)| *to += n);
        self.violations.extend(other.violations);
    }

    /// Encodes the tally for the pipe from a child to its parent.
    fn to_text(&self) -> String {
        let [a, b, c] = self.by_phase;
        let numbers = [
            self.kills,
            a,
            b,
            c,
            self.before_writing,
            self.compared,
            self.restarts,
            self.operations,
        ];
        let mut lines = vec![numbers.map(|n| n.to_string()).join(" ")];
        lines.extend(self.violations.iter().map(|text| text.replace('\n', " ")));
        lines.join("\n")
    }

    fn from_text(text: &str) -> Option<Tally> {
        let mut lines = text.lines();
        let numbers = lines.next()?.split(' ').map(|n| n.parse().ok());
        let numbers: Vec<u64> = numbers.collect::<Option<_>>()?;
        let &[kills, a, b, c, before_writing, compared, restarts, operations] = &numbers[..] else {
            return None;
        };
        let by_phase = [a, b, c];
        let violations = lines.map(str::to_owned).collect();
        Some(Tally { kills, by_phase, before_writing, compared, restarts, operations, violations })
    }
}

/// Runs the part `kills`.
pub fn run(settings: &Settings, progress: &Progress) -> Outcome {
    let mut outcome = Outcome::of("kills");
    let grounds = match grounds() {
        Ok(grounds) => grounds,
        Err(why) => return Outcome { skipped: Some(why), ..outcome },
    };
    for fault in FAULTS {
        outcome.planted += 1;
        progress.tick(format_args!("planted: {fault:?}"));
        let mut rng = settings.rng("planted kills");
        let tally = kill(&grounds[..1], KILLS_FOR_A_FAULT, Some(fault), &mut rng, &mut |_| {});
        if tally.violations.is_empty() {
            outcome.violations.push(format!("the planted bug {fault:?} was not found"));
        } else {
            outcome.killed += 1;
        }
    }
    let all = if settings.quick { KILLS } else { 10 * KILLS };
    let wanted = if settings.tenth.is_some() { all / TENTHS } else { all };
    let mut sum = Tally::default();
    // Processes and not threads, because a process that forks must have no other threads.
    let shares: Vec<_> = (0..SHARES)
        .map(|share| {
            let mut rng = settings.rng(&format!("kills {share}"));
            process::start(|| {
                let mut show = |tally: &Tally| {
                    if share == 0 {
                        let kills = tally.kills * SHARES;
                        progress.tick(format_args!("about {kills} of {wanted} kills"));
                    }
                };
                kill(&grounds, wanted / SHARES, None, &mut rng, &mut show).to_text()
            })
        })
        .collect();
    for share in shares {
        match share.and_then(|share| share.answer(Duration::from_secs(24 * 3600))) {
            Ok(text) => sum.add(Tally::from_text(&text).expect("what to_text makes")),
            Err(what) => sum.violations.push(format!("a share of the kills was not done: {what}")),
        }
    }
    let seed = settings.seed;
    let how = if settings.quick { " --quick" } else { "" };
    outcome.violations.extend(sum.violations.iter().map(|what| {
        format!(
            "{what} (again: lab kills{how} --seed {seed}; where a kill hits is up to the clock)"
        )
    }));
    let [opening, writing, closing] = sum.by_phase;
    outcome.kills = sum.kills;
    outcome.recoveries = sum.compared + sum.restarts;
    outcome.runs = format!(
        "{} kills of a writer with {} threads ({opening} timed from its start, {writing} from its \
         first write, {closing} from its close; {} hit it before it wrote), {} operations \
         acknowledged, {} media; {} copies opened as after a restart of the machine",
        sum.kills,
        super::work::WRITERS,
        sum.before_writing,
        sum.operations,
        grounds.len(),
        sum.restarts,
    );
    outcome
}

/// Runs a small number of kills and returns the violations. For tests, and for planted bugs in the
/// engine. No other thread of the process may use the crate meanwhile.
pub fn quick_check(settings: &Settings, kills: u64) -> Vec<String> {
    match grounds() {
        Ok(grounds) => {
            kill(&grounds, kills, None, &mut settings.rng("kills"), &mut |_| {}).violations
        }
        Err(why) => vec![why],
    }
}

/// Runs `kills` kills with each manner of durability, and returns the violations.
pub fn quick_check_of_points(settings: &Settings, kills: u64) -> Vec<String> {
    let grounds = match grounds() {
        Ok(grounds) => grounds,
        Err(why) => return vec![why],
    };
    let mut rng = settings.rng("kills of points");
    let mut tally = Tally::default();
    if let Some(ground) = grounds.iter().find(|g| g.medium == Medium::PageCache && !g.is_slow) {
        for manner in Manner::ALL {
            match Campaign::new(ground, manner, None, &mut rng) {
                Ok(mut campaign) => campaign.run(kills, &mut rng, &mut tally, &mut |_| {}),
                Err(what) => tally.violations.push(what),
            }
        }
    }
    tally.violations
}

/// Returns `true` if a small run finds a bug that is planted in the writers.
pub fn finds(settings: &Settings, fault: Fault) -> bool {
    let Ok(grounds) = grounds() else { return false };
    let mut rng = settings.rng("planted kills");
    let tally = kill(&grounds[..1], KILLS_FOR_A_FAULT, Some(fault), &mut rng, &mut |_| {});
    !tally.violations.is_empty()
}

/// Kills children this number of times, file after file.
fn kill(
    grounds: &[Ground],
    kills: u64,
    fault: Option<Fault>,
    rng: &mut Rng,
    show: &mut dyn FnMut(&Tally),
) -> Tally {
    let mut tally = Tally::default();
    let mut file = 0;
    // Each process begins with another manner.
    let mut manner = rng.usize(0..Manner::ALL.len());
    while tally.kills < kills && tally.violations.len() < ENOUGH {
        // A disk's page cache is used rarely, because each close waits for the disk there.
        let ground = &grounds[match file % 16 {
            _ if grounds.len() == 1 => 0,
            15 if grounds.len() > 3 => 3,
            n => [0, 1, 0, 2][n as usize % 4] % grounds.len(),
        }];
        file += 1;
        let manner = match (ground.medium, fault) {
            (Medium::PageCache, None) => {
                manner += 1;
                Manner::ALL[manner % Manner::ALL.len()]
            }
            _ => Manner::NotSynced,
        };
        let mut campaign = match Campaign::new(ground, manner, fault, rng) {
            Ok(campaign) => campaign,
            Err(what) => {
                tally.violations.push(what);
                break;
            }
        };
        let rounds = ROUNDS.min((kills - tally.kills) * 2);
        campaign.run(rounds, rng, &mut tally, show);
    }
    tally
}

/// One file, and the rounds with it.
struct Campaign<'a> {
    ground: &'a Ground,
    manner: Manner,
    fault: Option<Fault>,
    // Removed on drop, with everything in it.
    _folder: tempfile::TempDir,
    path: PathBuf,
    ledger: Ledger,
    reader: PipeReader,
    writer: PipeWriter,
}

impl Campaign<'_> {
    fn new<'a>(
        ground: &'a Ground,
        manner: Manner,
        fault: Option<Fault>,
        rng: &mut Rng,
    ) -> Result<Campaign<'a>, String> {
        let folder = ground.folder()?;
        let (reader, writer) = std::io::pipe().map_err(|e| format!("no pipe: {e}"))?;
        process::make_roomy(&reader, 1 << 20);
        let ledger = Ledger::new(rng.u32(1..), rng.u64(..));
        let path = folder.path().join("state.dat");
        Ok(Campaign { ground, manner, fault, _folder: folder, path, ledger, reader, writer })
    }

    fn run(&mut self, rounds: u64, rng: &mut Rng, tally: &mut Tally, show: &mut dyn FnMut(&Tally)) {
        for round in 0..rounds {
            let orders = self.orders(round, rng);
            let result = self.round(&orders, tally).and_then(|()| {
                if self.manner != Manner::NotSynced && round % RESTARTS == 0 {
                    tally.restarts += 1;
                    self.look_back()?;
                }
                Ok(())
            });
            if let Err(what) = result {
                let (phase, after) = orders.kill;
                tally.violations.push(format!(
                    "{}, {:?}, file seed {:#x}, round {round}, killed {after:?} after {phase:?} began: \
                     {what}",
                    self.ground.name, self.manner, self.ledger.seed
                ));
                return;
            }
            show(tally);
        }
        if let Err(what) = self.close() {
            let name = self.ground.name;
            let seed = self.ledger.seed;
            tally.violations.push(format!("{name}, file seed {seed:#x}, at the end: {what}"));
        }
    }

    fn orders(&self, round: u64, rng: &mut Rng) -> Orders {
        // Short times are more frequent than long ones, because most steps are short.
        let mut within = |most: u64| {
            let scale = 1_u64 << rng.u32(0..6);
            Duration::from_nanos(rng.u64(0..(most * 1000 / scale).max(1)))
        };
        let slow = if self.ground.is_slow { 8 } else { 1 };
        let (kill, close) = match round % 8 {
            // Creation and recovery, up to the comparison.
            0 | 4 => ((Phase::Opening, within(1500 * slow)), None),
            3 => ((Phase::Closing, within(1200 * slow)), Some(CloseMode::Spatial)),
            6 => ((Phase::Closing, within(150 * slow)), Some(CloseMode::Fast)),
            _ => ((Phase::Writing, within(4000)), None),
        };
        Orders {
            path: self.path.clone(),
            medium: self.ground.medium,
            durability: self.manner.durability(),
            // With `EveryWrite`, the writes themselves are durable.
            syncs: matches!(self.manner, Manner::Synced | Manner::AtomicSync),
            kill,
            resizes: rng.u32(0..3) > 0 || self.fault == Some(Fault::AcknowledgesLengthFirst),
            deploys: rng.u32(0..3) == 0,
            close: close.map(|mode| (rng.u64(1..40), mode)),
            fault: self.fault,
        }
    }

    fn round(&mut self, orders: &Orders, tally: &mut Tally) -> Result<(), String> {
        let began = Instant::now();
        let (ledger, writer) = (&self.ledger, &self.writer);
        let child = fork(|| writer::write_until_killed(ledger.clone(), orders, writer))
            .map_err(|e| format!("no child: {e}"))?;
        let end = child.wait();
        let took = began.elapsed();
        let mut reached = Phase::Opening;
        for said in writer::hear(&self.reader).map_err(|e| format!("no pipe: {e}"))? {
            match said {
                Said::Returned { by, who, n } => {
                    self.ledger.acknowledge(by, who, n);
                    tally.operations += 1;
                }
                Said::Found(found) => {
                    self.ledger.adopt(&found);
                    tally.compared += 1;
                }
                Said::Reached(phase) => reached = phase,
                Said::Wrong(what) => return Err(what),
            }
        }
        match end {
            End::Killed(libc::SIGKILL) if took > PATIENCE => Err("the child hangs".to_owned()),
            End::Killed(libc::SIGKILL) => {
                tally.kills += 1;
                tally.by_phase[orders.kill.0 as usize] += 1;
                tally.before_writing += u64::from(reached < Phase::Writing);
                Ok(())
            }
            // The child ended before the timer expired.
            End::Exited(0) if orders.close.is_some() => Ok(()),
            end => Err(format!("the child died: {end:?}")),
        }
    }

    /// Opens a copy of the remaining files as if the machine had been restarted.
    fn look_back(&self) -> Result<(), String> {
        let folder = self.ground.folder()?;
        let (ledger, medium) = (&self.ledger, self.ground.medium);
        let copy = folder.path().join("state.dat");
        let look = || -> Result<(), String> {
            let (image, _open) = Image::of(&self.path).map_err(|e| e.to_string())?;
            // The file was not created yet, and nothing was acknowledged.
            if image.reflection.is_none() && !ledger.written {
                return Ok(());
            }
            image.write_restarted(&copy).map_err(|e| e.to_string())?;
            let file = options(medium).open(&copy).map_err(|e| e.to_string())?;
            let bytes = contents(&file).map_err(|e| e.to_string())?;
            ledger.check(&bytes).map_err(|wrong| wrong.join("; "))?;
            // Leave the file open: the folder is removed anyway.
            std::mem::forget(file);
            Ok(())
        };
        let answer = ask(PATIENCE, || look().err().unwrap_or_default())?;
        if answer.is_empty() { Ok(()) } else { Err(format!("after a restart: {answer}")) }
    }

    /// Closes the file, and checks the plain file.
    fn close(&self) -> Result<(), String> {
        let (ledger, path, medium) = (&self.ledger, &self.path, self.ground.medium);
        let answer = ask(PATIENCE, || match close_and_compare(ledger, path, medium) {
            Ok(()) => String::new(),
            Err(what) => what,
        })?;
        if answer.is_empty() { Ok(()) } else { Err(answer) }
    }
}

fn close_and_compare(ledger: &Ledger, path: &Path, medium: Medium) -> Result<(), String> {
    let file = options(medium).open(path).map_err(|e| e.to_string())?;
    let bytes = contents(&file).map_err(|e| e.to_string())?;
    ledger.check(&bytes).map_err(|wrong| wrong.join("; "))?;
    file.close(CloseMode::Spatial).map_err(|e| e.to_string())?;
    let plain = std::fs::read(path).map_err(|e| e.to_string())?;
    if plain != bytes || (plain.len() as u64) < BASE_LEN {
        return Err("the closed file holds other bytes than were read before".to_owned());
    }
    let folder = path.parent().expect("a folder");
    let left = std::fs::read_dir(folder).map_err(|e| e.to_string())?.count();
    if left != 1 {
        return Err(format!("{left} files are left of a closed file"));
    }
    Ok(())
}
