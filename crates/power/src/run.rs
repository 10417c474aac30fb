//! One run: it makes a file system, records every write to its disk, and then checks images of the
//! disk, epoch by epoch.

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

/// Number of violations after which a run ends.
const ENOUGH: usize = 5;
/// After one image out of this number, the power fails a second time, during recovery.
const SECOND_LOSS: u32 = 40;
/// Approximate number of images of a second power loss.
const SECOND_IMAGES: f64 = 14.0;

/// The parameters of a run.
pub struct Run {
    pub system: System,
    pub seed: u64,
    /// Number of operations on each file.
    pub operations: u64,
    /// Approximate upper limit of the number of images.
    pub images: usize,
    /// An empty folder.
    pub folder: PathBuf,
    /// Folder for the images that fail the check.
    pub keep: Option<PathBuf>,
}

/// A file system that was just made.
struct Made {
    /// The folder of the disk's file.
    served: PathBuf,
    /// The mount point.
    mounted: PathBuf,
    device: Loop,
}

/// The results of a run.
#[derive(Default)]
pub struct Outcome {
    pub images: usize,
    pub violations: Vec<String>,
    /// The images on which the file system itself cannot be mounted. They say nothing about the
    /// crate, which only calls the file system.
    pub unmountable: Vec<String>,
}

/// How the answer about an image begins on which the file system cannot be mounted.
pub const UNMOUNTABLE: &str = "unmountable";

/// One image in this many may be unmountable. With more of them the run shows nothing.
const UNMOUNTABLE_MOST: usize = 500;

impl Run {
    /// Runs everything.
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

    /// Creates a loop device over a served disk. Notes its name in a file, for the clean-up after a
    /// killed run.
    fn device(&self, served: &Path) -> Anything<Loop> {
        let device = Loop::new(&served.join("disk"))?;
        let mut notes =
            File::options().create(true).append(true).open(self.folder.join("loops"))?;
        writeln!(notes, "{}", device.device().display())?;
        Ok(device)
    }

    /// Checks that this machine can serve a disk, make this file system on it and mount it. Does
    /// not use the crate.
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

    /// Makes a file system and runs the writer. Returns the disk before the writes, and the events.
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
            // The remaining images, divided among the remaining epochs. The remainder is decided at
            // random.
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
        let Replay { checker, recoverer, mut outcome, .. } = replay;
        if outcome.unmountable.len() > 2 + outcome.images / UNMOUNTABLE_MOST {
            outcome.violations.push("too many images cannot be mounted".into());
        }
        checker.end()?;
        recoverer.end()?;
        drop(device);
        let _the_kernel_may_still_hold_it = unmount(&served);
        Ok(outcome)
    }

    /// Returns the writes that an image adds to the durable bytes: bytes and offsets.
    fn image<'e>(
        &self,
        events: &'e [Event],
        epoch: &Epoch,
        choice: Choice,
    ) -> Vec<(u64, &'e [u8])> {
        let writes: Vec<_> = epoch.open.iter().map(|moment| write_at(events, *moment)).collect();
        let shapes: Vec<_> = writes
            .iter()
            .map(|write| (write.bytes.len(), !self.system.is_whole(write.at, &write.bytes)))
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

    /// Keeps an image for a later investigation.
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

/// The state for the check of images.
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

    /// Makes the writes permanent that the flush at the beginning of an epoch covers.
    fn make_durable(&self, events: &[Event], epoch: &Epoch) {
        let mut disk = self.disk();
        disk.for_good();
        for moment in &epoch.durable {
            let write = write_at(events, *moment);
            disk.store(write.at, &write.bytes);
        }
        disk.begin_image();
    }

    /// Writes an image to the disk.
    fn put(&self, image: &[(u64, &[u8])]) {
        let mut disk = self.disk();
        disk.begin_image();
        image.iter().for_each(|(at, bytes)| disk.store(*at, bytes));
    }

    /// Checks an image.
    fn look(&mut self, image: &[(u64, &[u8])], what: &str) -> Anything<()> {
        self.put(image);
        self.outcome.images += 1;
        let seed = self.random.u64(..);
        if let Err(why) = self.checker.ask(&format!("image {seed}"))? {
            self.violation(image, what, &why)?;
        }
        Ok(())
    }

    /// Recovers from an image, and checks the images of a power loss during that recovery.
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
        let number = self.outcome.violations.len() + self.outcome.unmountable.len();
        let kept = self.run.keep(&self.disk(), number)?;
        let told = format!("{} seed {seed} {what}{kept}: {why}", system.name());
        match why.starts_with(UNMOUNTABLE) {
            true => self.outcome.unmountable.push(told),
            false => self.outcome.violations.push(told),
        }
        Ok(())
    }
}

/// The process that checks images or recovers from them.
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
