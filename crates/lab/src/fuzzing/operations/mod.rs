//! Fuzz target: sequences of operations with crashes and reopens, compared with a `Vec<u8>`.
//! Operation 31 with bit 5 is about snapshots.
//!
//! ```text
//! 0     bits 0-1: medium, 2-3: policy, 4: the file has bytes to begin with, 5-7: how long it gets
//! 1-3   its length; bits 20-21: when what has returned is durable, 22-23: whether pages have sums
//! 4-    operations: which one (bits 0-4), by the second thread (5), the process dies in it (6),
//!       and the machine with it (7), then its places and lengths, and where it dies
//! ```
//!
//! No real process crashes. The target replays the trace of the operation up to some event on the
//! files of before. It then opens the resulting files under another name. A crash can also occur
//! during that open.
//!
//! Files with durable points also see restarts of the machine and new mounts of the file system.
//! For these the target changes the page cache identity in the superblocks. It also overwrites the
//! bytes that the kernel may not have written back. The file must then hold exactly the bytes of
//! the last durable point, although all newer data is still present.

mod state;
mod work;

use crate::fuzzing::ground::{self, Ground, Slot, adopt};
use crate::fuzzing::image::{Contents, Image, Player};
use crate::fuzzing::input::{Input, filling};
use crate::fuzzing::patch::MarkWish;
use crate::fuzzing::sums;
use crate::fuzzing::templates::restart;
use atomic_mmap::testing::recorder::{Event, Recorder};
use atomic_mmap::{AtomicMappedFile, CloseMode, DeployPolicy, Durability, Integrity, Medium, View};
use state::{State, assert_same};
use std::sync::mpsc::{Sender, channel};

const PAGE: u64 = 4096;
/// Maximum length of a file.
const MOST: u64 = 700_000;
/// Maximum length of a file in inputs with short files.
const LEAST: u64 = 30_000;
/// Maximum number of operations of an input.
const OPERATIONS: usize = 60;
/// Maximum number of crashes during an open.
const CRASHES_WHILE_OPENING: usize = 3;

/// Runs one input.
pub fn run(input: &[u8]) {
    ground::with(|ground| one(ground, Input(input)));
}

type Work = Box<dyn FnOnce() + Send>;

/// Runs `work` on the second thread, which has its own lane.
fn on_second_thread<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> R {
    thread_local!(static SECOND: Sender<Work> = {
        let (to, work) = channel::<Work>();
        std::thread::spawn(move || work.into_iter().for_each(|work| work()));
        to
    });
    let (answer, answered) = channel();
    let work = move || {
        let result = work();
        let _nobody_waits_after_a_panic = answer.send(result);
    };
    SECOND.with(|to| to.send(Box::new(work)).expect("a second thread"));
    answered.recv().expect("no panic on the second thread")
}

struct Run<'g> {
    ground: &'g Ground,
    medium: Option<Medium>,
    policy: DeployPolicy,
    durability: Durability,
    /// Index of the slot of the pair.
    at: usize,
    /// Maximum length of the file.
    most: u64,
    integrity: Integrity,
    model: State,
    /// The states that a restart of the machine may go back to, mostly one.
    points: Vec<State>,
    next: u64,
    left: usize,
}

/// The end of a session.
enum End {
    Closed,
    /// A crash, with the states that the next open may find.
    Crashed(Image, Vec<State>),
}

/// The kind of a crash.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Death {
    OfProcess,
    OfMachine,
}

fn one(ground: &Ground, mut input: Input<'_>) {
    let first = input.byte();
    let media = [Some(Medium::Dax), Some(Medium::Ram), None, Some(Medium::PageCache)];
    let policies =
        [DeployPolicy::Manual, DeployPolicy::Lazy, DeployPolicy::Eager, DeployPolicy::Manual];
    // Long files cost more, and most bugs show in a few pages.
    let most = (MOST >> (first >> 5)).max(LEAST);
    let number = input.number(3);
    let len = (number & 0xF_FFFF) % most;
    let durability =
        [Durability::OnSync, Durability::OnSync, Durability::AtomicSync, Durability::EveryWrite];
    let integrity = [Integrity::Off, Integrity::Off, Integrity::OnScrub, Integrity::OnRead];
    let bytes = if first & 16 != 0 { filling(1, len as usize) } else { vec![0; len as usize] };
    let mut run = Run {
        ground,
        medium: media[usize::from(first & 3)],
        policy: policies[usize::from(first >> 2 & 3)],
        durability: durability[(number >> 20 & 3) as usize],
        at: 0,
        most,
        integrity: integrity[(number >> 22 & 3) as usize],
        model: State::new(bytes),
        points: Vec::new(),
        next: 2,
        left: OPERATIONS,
    };
    run.points = vec![run.model.clone()];
    let mut home = Contents::of_len(len);
    if first & 16 != 0 {
        home.write(&run.model.bytes, 0);
    }
    let image = Image { home, ..Image::default() };
    run.put(&image);
    let mut expected = vec![run.model.clone()];
    loop {
        let end = run.session(&mut input, expected);
        let is_over = run.left == 0 || input.is_empty();
        match end {
            End::Closed if is_over => return,
            End::Closed => {
                expected = vec![run.model.clone()];
            }
            End::Crashed(image, left) => {
                run.at = 1 - run.at;
                run.put(&image);
                expected = left;
            }
        }
    }
}

impl Run<'_> {
    fn slot(&self) -> &Slot {
        &self.ground.slots[self.at]
    }

    /// Puts an image into the slot as if it had always been there.
    fn put(&self, image: &Image) {
        let slot = self.slot();
        let mut image = image.clone();
        let uuid = image.reflection.as_ref().and_then(sums::session_of).map(|(uuid, _)| uuid);
        let wish = if image.is_closing() { MarkWish::Closing } else { MarkWish::Right };
        image.mark = image.mark.map(|mark| match uuid {
            Some(uuid) => slot.mark(&wish, uuid).expect("a mark"),
            // The mark names a pair that is gone.
            None if wish == MarkWish::Closing => slot.mark(&wish, [7; 16]).expect("a mark"),
            None => mark,
        });
        let stat = slot.put_home(&image);
        if let Some(reflection) = &mut image.reflection {
            adopt(reflection, &stat, None);
            sums::repair_superblocks(reflection);
        }
        slot.put_reflection(&image);
    }

    fn open(&self, recorder: &Recorder) -> AtomicMappedFile {
        let options = AtomicMappedFile::options()
            .integrity(self.integrity)
            .deploy(self.policy)
            .max_len(4 << 20)
            .durability(self.durability)
            .journal_len(64 << 10)
            .close_on_drop(CloseMode::Fast);
        let options = match self.medium {
            Some(medium) => options.medium(medium),
            None => options,
        };
        options.open_recorded(recorder, &self.slot().home).expect("to open")
    }

    /// Returns `true` if the pair survives a restart of the machine by going back to a durable
    /// point.
    fn keeps_points(&self) -> bool {
        self.medium == Some(Medium::PageCache) || self.durability == Durability::AtomicSync
    }

    /// Returns `true` if the pair goes back to a durable point after this kind of crash.
    fn goes_back(&self, death: Death) -> bool {
        death == Death::OfMachine || self.durability == Durability::AtomicSync
    }

    /// Returns the files after a crash at some event of `events`, which followed on `before`.
    fn die(
        &self,
        input: &mut Input<'_>,
        death: Death,
        before: &Image,
        events: &[Event],
    ) -> (Image, usize) {
        let at = input.number(2) as usize % (events.len() + 1);
        let mut player = Player::new(before);
        events[..at].iter().for_each(|event| player.play(event));
        if let Some(event) = events.get(at) {
            player.play_torn(event, input.number(2) as usize);
        }
        // The value does not matter, because the next slot gets its own value.
        let mut image = player.image(&Some(Vec::new()));
        if death == Death::OfMachine {
            restart(&mut image, input.byte());
        }
        (image, at)
    }

    /// Returns the states that an open may find after a crash in an operation.
    fn left(&self, death: Death, working: Vec<State>) -> Vec<State> {
        if self.goes_back(death) { self.points.clone() } else { working }
    }

    /// Opens the file, runs operations and ends. The file holds one of `expected`.
    fn session(&mut self, input: &mut Input<'_>, mut expected: Vec<State>) -> End {
        let recorder = Recorder::new();
        let mut file = None;
        for _ in 0..CRASHES_WHILE_OPENING {
            let how = input.byte();
            let dies = how & 1 == 1;
            let before = if dies { self.slot().image() } else { Image::default() };
            let opened = self.open(&recorder);
            let events = recorder.take();
            if !dies {
                file = Some(opened);
                break;
            }
            drop(opened);
            recorder.take();
            let death = self.death(how >> 1);
            let (image, _) = self.die(input, death, &before, &events);
            if self.goes_back(death) {
                // The open makes a durable point of the state that it found. The crash may have
                // come before or after that.
                for found in &expected {
                    if !self.points.contains(found) {
                        self.points.push(found.clone());
                    }
                }
                expected = self.points.clone();
            }
            self.at = 1 - self.at;
            self.put(&image);
        }
        let file = file.unwrap_or_else(|| self.open(&recorder));
        let found = State::of(&file);
        if !expected.contains(&found) {
            found.assert_is(found.nearest(&expected), "opened");
        }
        // The open made a durable point, so no later crash takes back what was read after it.
        self.points = vec![found.clone()];
        self.model = found;
        let mut views: Vec<(View<'_>, Vec<u8>)> = Vec::new();
        while self.left > 0 && !input.is_empty() {
            self.left -= 1;
            recorder.take();
            let op = input.byte();
            let dies = op >> 6 & 1 == 1;
            let before = if dies { Some(self.slot().image()) } else { None };
            let was = self.model.clone();
            let death = self.death(op >> 7);
            let closes = match op & 31 {
                28 | 29 => Some(CloseMode::Fast),
                30 => Some(CloseMode::Spatial),
                _ => None,
            };
            if let Some(mode) = closes {
                check_views(&views);
                drop(views);
                self.close(file, mode);
                let mut points = std::mem::replace(&mut self.points, vec![was.clone()]);
                let Some(before) = before else { return End::Closed };
                let events = recorder.take();
                let (image, at) = self.die(input, death, &before, &events);
                if at < events.len() {
                    points.push(was.clone());
                    self.points = points;
                }
                return End::Crashed(image, self.left(death, vec![was]));
            }
            self.operate(&file, &mut views, op, input);
            let old_points = self.points.clone();
            if self.makes_point(op, &was) {
                let is_sure = op & 31 > 15 || self.model != was;
                if is_sure {
                    self.points.clear();
                }
                // An operation that writes nothing makes nothing durable: a transaction that is
                // rolled back, or an exchange that fails. Then the remains of an operation in which
                // the process crashed may not be durable either.
                self.points.push(self.model.clone());
            }
            if is_about_snapshots(op) {
                self.points = self.points_after_snapshots(&was, &old_points);
            }
            let Some(before) = before else { continue };
            let events = recorder.take();
            check_views(&views);
            drop(views);
            drop(file);
            let (image, at) = self.die(input, death, &before, &events);
            let model = self.model.clone();
            // At its first event, the operation has no effect. After its last one, it has its whole
            // effect.
            let working = match at {
                _ if at == events.len() => vec![model],
                0 => vec![was.clone()],
                _ => vec![model, was.clone()],
            };
            if at < events.len() && old_points != self.points {
                // An operation on snapshots makes a point of the present first.
                if is_about_snapshots(op) {
                    self.points.push(was);
                }
                self.points.extend(old_points);
            }
            return End::Crashed(image, self.left(death, working));
        }
        check_views(&views);
        drop(views);
        State::of(&file).assert_is(&self.model, "at the end");
        self.close(file, CloseMode::Spatial);
        End::Closed
    }

    /// Selects the kind of crash by a bit.
    fn death(&self, bit: u8) -> Death {
        match bit & 1 == 1 && self.keeps_points() {
            true => Death::OfMachine,
            false => Death::OfProcess,
        }
    }

    /// Returns `true` if an operation that returned has made a durable point. `was` is the state
    /// before it.
    fn makes_point(&self, op: u8, was: &State) -> bool {
        let is_every = self.durability == Durability::EveryWrite;
        match op & 31 {
            0..=15 => is_every,
            20 | 21 | 25 => true,
            22..=24 => is_every || self.model.bytes.len() < was.bytes.len(),
            _ => false,
        }
    }

    /// Returns the durable points after an operation on snapshots. A seal and a rollback make one.
    /// A drop changes the old ones. Anything else changes nothing, and may have made one.
    fn points_after_snapshots(&self, was: &State, old: &[State]) -> Vec<State> {
        let dropped = was.sealed.keys().find(|name| !self.model.sealed.contains_key(*name));
        match dropped {
            Some(name) => {
                let mut points = old.to_vec();
                points.iter_mut().for_each(|point| drop(point.sealed.remove(name)));
                points
            }
            None if self.model == *was => [old, std::slice::from_ref(was)].concat(),
            None => vec![self.model.clone()],
        }
    }

    fn close(&self, file: AtomicMappedFile, mode: CloseMode) {
        file.close(mode).expect("to close");
        if mode == CloseMode::Spatial {
            let mut home = Contents::of_len(self.model.bytes.len() as u64);
            home.write(&self.model.bytes, 0);
            // Sums and snapshots lie in the companions, which stay with them.
            let is_plain = self.integrity == Integrity::Off && self.model.sealed.is_empty();
            let image = match is_plain {
                true => Image { home, ..Image::default() },
                false => Image { home, ..self.slot().image() },
            };
            self.slot().assert_is(&image, "closed");
        }
    }
}

/// Returns `true` if an operation seals, drops, rolls back or verifies.
fn is_about_snapshots(op: u8) -> bool {
    op & 0x3F == 0x3F
}

fn check_views(views: &[(View<'_>, Vec<u8>)]) {
    for (view, bytes) in views {
        assert_same(&view.to_vec().expect("a view's bytes"), bytes, "a view");
    }
}
