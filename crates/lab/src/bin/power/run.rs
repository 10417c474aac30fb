//! One run: a file system is made, written to while every write of its disk is recorded, and then images
//! of the disk are looked at, epoch by epoch.

use crate::Anything;
use crate::disk::{Disk, Event, SECTOR};
use crate::epochs::{Epoch, epochs, write_at};
use crate::fuse;
use crate::images::{Choice, Part, choices};
use crate::mounts::{Loop, System, own_mounts, run, unmount};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

/// So many violations tell the story.
const ENOUGH: usize = 5;
/// After one image in so many the power goes a second time, in the middle of recovery.
const SECOND_LOSS: u32 = 40;
/// So many images are looked at then, about.
const SECOND_IMAGES: f64 = 14.0;

/// What is run.
pub struct Run {
    pub system: System,
    pub seed: u64,
    /// Operations on each file.
    pub operations: u64,
    /// Images at most, about.
    pub images: usize,
    /// An empty folder.
    pub folder: PathBuf,
    /// Where an image goes that was found bad.
    pub keep: Option<PathBuf>,
}

/// A file system that was just made.
struct Made {
    /// The folder of the disk's file.
    served: PathBuf,
    /// Where it can be mounted.
    mounted: PathBuf,
    device: Loop,
}

/// What was found.
#[derive(Default)]
pub struct Outcome {
    pub images: usize,
    pub violations: Vec<String>,
}

impl Run {
    /// Does it.
    pub fn run(&self) -> Anything<Outcome> {
        own_mounts()?;
        let begin = Instant::now();
        let (fresh, events) = self.record()?;
        let epochs = epochs(&events);
        let writes = events.iter().filter(|event| matches!(event, Event::Write { .. })).count();
        eprintln!(
            "{} seed {}: {} epochs, {writes} writes recorded in {:.1} s",
            self.system.name(),
            self.seed,
            epochs.len(),
            begin.elapsed().as_secs_f64()
        );
        self.replay(fresh, &events, &epochs)
    }

    fn place(&self, name: &str) -> Anything<PathBuf> {
        let place = self.folder.join(name);
        fs::create_dir_all(&place)?;
        Ok(place)
    }

    /// A loop device over a disk that is served. Its name is noted, for whoever cleans up after a run that was
    /// killed.
    fn device(&self, served: &Path) -> Anything<Loop> {
        let device = Loop::new(&served.join("disk"))?;
        let mut notes =
            File::options().create(true).append(true).open(self.folder.join("loops"))?;
        writeln!(notes, "{}", device.device().display())?;
        Ok(device)
    }

    /// Whether this machine lets a disk be served, and this file system be made on it and mounted. Nothing of
    /// the crate's is done.
    pub fn probe(&self) -> Anything<()> {
        own_mounts()?;
        let disk = Arc::new(Mutex::new(Disk::new(self.system.disk_len())));
        let made = self.make(&disk)?;
        self.system.mount(made.device.device(), &made.mounted)?;
        Ok(unmount(&made.mounted)?)
    }

    /// Serves the disk and makes the file system on it.
    fn make(&self, disk: &Arc<Mutex<Disk>>) -> Anything<Made> {
        let (served, mounted) = (self.place("recorded")?, self.place("mounted")?);
        fuse::serve(Arc::clone(disk), &served)?;
        let device = self.device(&served)?;
        self.system.make(device.device())?;
        Ok(Made { served, mounted, device })
    }

    /// Makes a file system and lets the writer write. Returns the disk as it was before, and what happened.
    fn record(&self) -> Anything<(Disk, Vec<Event>)> {
        let disk = Arc::new(Mutex::new(Disk::new(self.system.disk_len())));
        let Made { served, mounted, device } = self.make(&disk)?;
        let fresh = {
            let mut disk = disk.lock().expect("no panic under it");
            disk.record();
            disk.copy()
        };
        if self.seed.is_multiple_of(2) {
            self.system.mount(device.device(), &mounted)?;
        } else {
            self.system.mount_committing(device.device(), &mounted)?;
        }
        run(Command::new(std::env::current_exe()?)
            .arg("write")
            .arg("--folder")
            .arg(&mounted)
            .arg("--marks")
            .arg(served.join("marks"))
            .args(["--seed", &self.seed.to_string()])
            .args(["--operations", &self.operations.to_string()]))?;
        unmount(&mounted)?;
        let events = disk.lock().expect("no panic under it").recorded();
        drop(device);
        let _the_kernel_may_still_hold_it = unmount(&served);
        Ok((fresh, events))
    }

    fn replay(&self, mut disk: Disk, events: &[Event], epochs: &[Epoch]) -> Anything<Outcome> {
        disk.begin_image();
        let disk = Arc::new(Mutex::new(disk));
        let (served, mounted) = (self.place("replayed")?, self.place("image")?);
        fuse::serve(Arc::clone(&disk), &served)?;
        let device = self.device(&served)?;
        let mut replay = Replay {
            run: self,
            disk,
            checker: Checker::new(self, device.device(), &mounted, false)?,
            recoverer: Checker::new(self, device.device(), &mounted, true)?,
            random: fastrand::Rng::with_seed(self.seed),
            outcome: Outcome::default(),
        };
        for (n, epoch) in epochs.iter().enumerate() {
            replay.make_durable(events, epoch);
            for moment in &epoch.marks {
                if let Event::Mark(mark) = &events[*moment] {
                    replay.checker.tell(mark)?;
                    replay.recoverer.tell(mark)?;
                }
            }
            if epoch.open.is_empty() && epoch.marks.is_empty() {
                continue;
            }
            // What is left to be done, over the epochs that are left; a random part of an image counts.
            let left = self.images.saturating_sub(replay.outcome.images) as f64;
            let share = left / (epochs.len() - n) as f64 * 1.6;
            let at_most = share as usize + usize::from(replay.random.f64() < share.fract());
            if at_most == 0 {
                continue;
            }
            for choice in choices(epoch.open.len(), at_most, &mut replay.random) {
                let image = self.image(events, epoch, choice);
                let what = format!(
                    "epoch {n} of {}, {choice:?} of {} writes",
                    epochs.len(),
                    epoch.open.len()
                );
                replay.look(&image, &what)?;
                if replay.random.u32(..SECOND_LOSS) == 0 {
                    replay.second_loss(&image, &what)?;
                }
                if replay.outcome.violations.len() >= ENOUGH {
                    break;
                }
            }
            if replay.outcome.violations.len() >= ENOUGH {
                break;
            }
        }
        let Replay { checker, recoverer, outcome, .. } = replay;
        checker.end()?;
        recoverer.end()?;
        drop(device);
        let _the_kernel_may_still_hold_it = unmount(&served);
        Ok(outcome)
    }

    /// What an image has over what is durable: bytes and where they go.
    fn image<'e>(
        &self,
        events: &'e [Event],
        epoch: &Epoch,
        choice: Choice,
    ) -> Vec<(u64, &'e [u8])> {
        let writes: Vec<_> = epoch.open.iter().map(|moment| write_at(events, *moment)).collect();
        let shapes: Vec<_> = writes
            .iter()
            .map(|write| (write.bytes.len(), !self.system.is_whole(write.at, write.bytes.len())))
            .collect();
        let mut image = Vec::new();
        for (write, part) in writes.into_iter().zip(choice.parts(&shapes)) {
            match part {
                Part::Nothing => {}
                Part::Whole => image.push((write.at, &write.bytes[..])),
                Part::Sectors(are_there) => {
                    let sectors = write.bytes.chunks(SECTOR).zip((write.at..).step_by(SECTOR));
                    let there = sectors.zip(are_there).filter(|(_, is_there)| *is_there);
                    image.extend(there.map(|((bytes, at), _)| (at, bytes)));
                }
            }
        }
        image
    }

    /// Keeps an image for whoever wants to look at it.
    fn keep(&self, disk: &Disk, number: usize) -> Anything<String> {
        let Some(folder) = &self.keep else { return Ok(String::new()) };
        fs::create_dir_all(folder)?;
        let path = folder.join(format!("{}-{}-{number}.img", self.system.name(), self.seed));
        let file = File::create(&path)?;
        file.set_len(disk.len)?;
        let mut bytes = [0; 4096];
        for at in (0..disk.len).step_by(bytes.len()) {
            disk.read(at, &mut bytes);
            if bytes.iter().any(|byte| *byte != 0) {
                file.write_all_at(&bytes, at)?;
            }
        }
        Ok(format!(" ({})", path.display()))
    }
}

/// What is needed to look at images.
struct Replay<'r> {
    run: &'r Run,
    disk: Arc<Mutex<Disk>>,
    checker: Checker,
    recoverer: Checker,
    random: fastrand::Rng,
    outcome: Outcome,
}

impl Replay<'_> {
    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().expect("no panic under it")
    }

    /// What the flush at an epoch's beginning vouches for stays.
    fn make_durable(&self, events: &[Event], epoch: &Epoch) {
        let mut disk = self.disk();
        disk.for_good();
        for moment in &epoch.durable {
            let write = write_at(events, *moment);
            disk.store(write.at, &write.bytes);
        }
        disk.begin_image();
    }

    /// Puts an image on the disk.
    fn put(&self, image: &[(u64, &[u8])]) {
        let mut disk = self.disk();
        disk.begin_image();
        image.iter().for_each(|(at, bytes)| disk.store(*at, bytes));
    }

    /// Looks at an image.
    fn look(&mut self, image: &[(u64, &[u8])], what: &str) -> Anything<()> {
        self.put(image);
        self.outcome.images += 1;
        let seed = self.random.u64(..);
        if let Err(why) = self.checker.ask(&format!("image {seed}"))? {
            self.violation(image, what, &why)?;
        }
        Ok(())
    }

    /// Recovers from an image, and looks at what a loss of power in the middle of that leaves.
    fn second_loss(&mut self, image: &[(u64, &[u8])], what: &str) -> Anything<()> {
        self.put(image);
        let mut first = self.disk().copy_with_image();
        let mut recording = first.copy();
        recording.record();
        let outer = std::mem::replace(&mut *self.disk(), recording);
        if let Err(why) = self.recoverer.ask("recover")? {
            *self.disk() = outer;
            return self.violation(image, &format!("{what}, recovering"), &why);
        }
        let events = self.disk().recorded();
        first.begin_image();
        *self.disk() = first;
        let epochs = epochs(&events);
        for (n, epoch) in epochs.iter().enumerate() {
            self.make_durable(&events, epoch);
            let share = SECOND_IMAGES / epochs.len() as f64;
            if epoch.open.is_empty() || self.random.f64() >= share / 2.0 {
                continue;
            }
            for choice in choices(epoch.open.len(), 2, &mut self.random) {
                let image = self.run.image(&events, epoch, choice);
                let what = format!("{what}, and {choice:?} of epoch {n} of its recovery");
                self.look(&image, &what)?;
            }
        }
        *self.disk() = outer;
        Ok(())
    }

    fn violation(&mut self, image: &[(u64, &[u8])], what: &str, why: &str) -> Anything<()> {
        let Run { system, seed, .. } = self.run;
        self.put(image);
        let number = self.outcome.violations.len();
        let kept = self.run.keep(&self.disk(), number)?;
        let violation = format!("{} seed {seed} {what}{kept}: {why}", system.name());
        self.outcome.violations.push(violation);
        Ok(())
    }
}

/// The process that looks at images, or recovers from them.
struct Checker {
    process: Child,
    asks: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Checker {
    fn new(run: &Run, device: &Path, mounted: &Path, recovers: bool) -> Anything<Checker> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg("check")
            .args(["--fs", run.system.name()])
            .arg("--device")
            .arg(device)
            .arg("--folder")
            .arg(mounted)
            .args(["--seed", &run.seed.to_string()])
            .args(["--recovers", &recovers.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let asks = process.stdin.take().ok_or("no pipe")?;
        let answers = BufReader::new(process.stdout.take().ok_or("no pipe")?);
        Ok(Checker { process, asks, answers })
    }

    fn tell(&mut self, mark: &str) -> Anything<()> {
        Ok(writeln!(self.asks, "mark {mark}")?)
    }

    fn ask(&mut self, question: &str) -> Anything<Result<(), String>> {
        writeln!(self.asks, "{question}")?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        match answer.trim_end().split_once(' ') {
            None if answer == "ok\n" => Ok(Ok(())),
            Some(("bad", why)) => Ok(Err(why.to_owned())),
            _ => Err(format!("the checker has died: {:?}", self.process.wait()?).into()),
        }
    }

    fn end(self) -> Anything<()> {
        let Checker { mut process, asks, .. } = self;
        drop(asks);
        process.wait()?;
        Ok(())
    }
}
