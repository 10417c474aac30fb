//! Fuzz target: sequences of operations with crashes and reopens, compared with a `Vec<u8>`.
//!
//! ```text
//! 0     bits 0-1: medium, 2-3: policy, 4: the file has bytes to begin with, 5-7: how long it gets
//! 1-3   its length; bits 20-21: when what has returned is durable
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

use super::ground::{self, Ground, Slot, adopt};
use super::image::{Contents, Image, Player};
use super::input::{Input, filling};
use super::patch::MarkWish;
use super::sums;
use super::templates::restart;
use atomic_mmap::testing::recorder::{Event, Recorder};
use atomic_mmap::{
    AtomicMappedFile, CloseMode, DeployPolicy, Durability, Error, Integrity, Medium, View,
};
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
    model: Vec<u8>,
    /// The states that a restart of the machine may go back to, mostly one.
    points: Vec<Vec<u8>>,
    next: u64,
    left: usize,
}

/// The end of a session.
enum End {
    Closed,
    /// A crash, with the states that the next open may find.
    Crashed(Image, Vec<Vec<u8>>),
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
    let mut run = Run {
        ground,
        medium: media[usize::from(first & 3)],
        policy: policies[usize::from(first >> 2 & 3)],
        durability: durability[(number >> 20 & 3) as usize],
        at: 0,
        most,
        model: if first & 16 != 0 { filling(1, len as usize) } else { vec![0; len as usize] },
        points: Vec::new(),
        next: 2,
        left: OPERATIONS,
    };
    run.points = vec![run.model.clone()];
    let mut home = Contents::of_len(len);
    if first & 16 != 0 {
        home.write(&run.model, 0);
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
            .integrity(Integrity::Off)
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
    fn left(&self, death: Death, working: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        if self.goes_back(death) { self.points.clone() } else { working }
    }

    /// Opens the file, runs operations and ends. The file holds one of `expected`.
    fn session(&mut self, input: &mut Input<'_>, mut expected: Vec<Vec<u8>>) -> End {
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
        let found = everything(&file);
        if !expected.contains(&found) {
            let one = expected.iter().find(|one| one.len() == found.len());
            assert_same(&found, one.unwrap_or(&expected[0]), "opened");
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
                0 => vec![was],
                _ => vec![model, was],
            };
            if at < events.len() && old_points != self.points {
                self.points.extend(old_points);
            }
            return End::Crashed(image, self.left(death, working));
        }
        check_views(&views);
        drop(views);
        assert_same(&everything(&file), &self.model, "at the end");
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
    fn makes_point(&self, op: u8, was: &[u8]) -> bool {
        let is_every = self.durability == Durability::EveryWrite;
        match op & 31 {
            0..=15 => is_every,
            20 | 21 | 25 => true,
            22..=24 => is_every || self.model.len() < was.len(),
            _ => false,
        }
    }

    fn close(&self, file: AtomicMappedFile, mode: CloseMode) {
        file.close(mode).expect("to close");
        if mode == CloseMode::Spatial {
            let mut home = Contents::of_len(self.model.len() as u64);
            home.write(&self.model, 0);
            self.slot().assert_is(&Image { home, ..Image::default() }, "closed");
        }
    }

    /// Returns a place in the file, and the number of bytes that fit there, at most `most`.
    fn place(&self, input: &mut Input<'_>, most: u64) -> (u64, usize) {
        let len = self.model.len() as u64;
        let at = match len {
            0 => 0,
            // Most operations overlap: in the first pages, and at the end of the first region.
            _ => {
                let at = match input.byte() {
                    n @ 0..=99 => u64::from(n) * 64 / 3,
                    n @ 100..=149 => 262_144 - 1600 + u64::from(n - 100) * 64,
                    n @ 150..=199 => u64::from(n - 150) * PAGE,
                    _ => input.number(3),
                };
                at % len
            }
        };
        (at, most.min(len - at) as usize)
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        self.next += 1;
        filling(self.next, len)
    }

    fn apply(&mut self, at: u64, bytes: &[u8]) {
        self.model[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
    }

    fn operate<'f>(
        &mut self,
        file: &'f AtomicMappedFile,
        views: &mut Vec<(View<'f>, Vec<u8>)>,
        op: u8,
        input: &mut Input<'_>,
    ) {
        let second = op >> 5 & 1 == 1;
        match op & 31 {
            0..=8 => {
                let most = match op & 31 {
                    0..=3 => 1 + u64::from(input.byte()),
                    4 => 64,
                    5 => 1 + input.number(2) % 9000,
                    6 => PAGE * (1 + u64::from(input.byte() % 12)),
                    7 => 1 + input.number(3) % 300_000,
                    _ => PAGE,
                };
                let (mut at, mut len) = self.place(input, most);
                if matches!(op & 31, 6 | 8) {
                    at = at / PAGE * PAGE;
                    len = most.min(self.model.len() as u64 - at) as usize;
                }
                let bytes = self.bytes(len);
                self.apply(at, &bytes);
                if second {
                    let file = file.try_clone().expect("another handle");
                    on_second_thread(move || file.write_at(&bytes, at)).expect("to write");
                } else {
                    file.write_at(&bytes, at).expect("to write");
                }
            }
            9..=13 => self.transaction(file, op, second, input),
            14 => {
                let (at, len) = self.place(input, 8);
                if len == 8 {
                    let old = self.number(at);
                    let new = file.update(at, |n: &mut u64| {
                        *n = n.wrapping_add(3);
                        *n
                    });
                    assert_eq!(new.expect("to update"), old.wrapping_add(3));
                    self.apply(at, &old.wrapping_add(3).to_le_bytes());
                }
            }
            15 => {
                let (at, len) = self.place(input, 8);
                if len == 8 {
                    let (old, wrong) = (self.number(at), input.byte() & 1);
                    let slot = file.slot::<u64>(at).expect("a slot");
                    let expected = old ^ u64::from(wrong);
                    let done = slot.compare_exchange(&expected, &!old).expect("to compare");
                    assert_eq!(done.is_ok(), wrong == 0);
                    if wrong == 0 {
                        self.apply(at, &(!old).to_le_bytes());
                    }
                }
            }
            16 | 17 => {
                let (at, len) = self.place(input, 20_000);
                let view = file.view(at..at + len as u64).expect("a view");
                let bytes = self.model[at as usize..at as usize + len].to_vec();
                views.push((view, bytes));
            }
            18 | 19 => {
                check_views(views);
                if !views.is_empty() {
                    drop(views.swap_remove(usize::from(input.byte()) % views.len()));
                }
            }
            20 | 21 => {
                let (at, len) = self.place(input, 300_000);
                let range = at..at + len as u64;
                if second {
                    let file = file.try_clone().expect("another handle");
                    on_second_thread(move || file.deploy(range)).expect("to deploy");
                } else {
                    file.deploy(range).expect("to deploy");
                }
            }
            22..=24 => {
                let len = match op & 31 {
                    22 => self.place(input, 0).0,
                    23 => (self.model.len() as u64 + input.number(2)) % self.most,
                    _ => input.number(3) % self.most,
                };
                let bytes = second.then(|| self.bytes(len as usize));
                let changed = match &bytes {
                    Some(bytes) => file.replace(bytes),
                    None => file.set_len(len),
                };
                match changed {
                    Ok(()) => {
                        self.model.resize(len as usize, 0);
                        bytes.into_iter().for_each(|bytes| self.model = bytes);
                    }
                    Err(Error::Pinned { .. }) if !views.is_empty() => {}
                    Err(error) => panic!("{len} bytes: {error}"),
                }
            }
            25 => file.sync().map(drop).expect("to sync"),
            26 => {
                let (at, len) = self.place(input, 3 * PAGE);
                let mut found = vec![0; len];
                if second {
                    let file = file.try_clone().expect("another handle");
                    found = on_second_thread(move || file.read_at(&mut found, at).map(|()| found))
                        .expect("to read");
                } else {
                    file.read_at(&mut found, at).expect("to read");
                }
                assert_same(&found, &self.model[at as usize..at as usize + len], "read");
            }
            27 => assert_same(&everything(file), &self.model, "read"),
            // Past the end: the write is refused and changes nothing.
            _ => {
                let at = self.model.len() as u64;
                let error = file.write_at(b"too far", at.saturating_sub(3));
                assert!(matches!(error, Err(Error::PastEnd { .. })), "{error:?}");
            }
        }
    }

    fn transaction(
        &mut self,
        file: &AtomicMappedFile,
        op: u8,
        second: bool,
        input: &mut Input<'_>,
    ) {
        let count = match op & 31 {
            9 | 10 => 2 + usize::from(input.byte() % 4),
            11 => 1 + usize::from(input.byte() % 100),
            _ => 3,
        };
        let mut parts = Vec::new();
        if op & 31 == 11 {
            // More words than a lane has room for: a few bytes on each of many pages.
            let (at, _) = self.place(input, 0);
            for n in 0..count as u64 {
                let at = (at + n * PAGE) % (self.model.len() as u64).max(1);
                parts.push((at, 10.min(self.model.len() as u64 - at) as usize));
            }
        } else {
            for _ in 0..count {
                let most = 1 + u64::from(input.byte()) * if op & 31 == 12 { 40 } else { 1 };
                parts.push(self.place(input, most));
            }
        }
        let rolls_back = op & 31 == 13;
        let was = self.model.clone();
        let mut writes = Vec::new();
        for (at, len) in parts {
            let bytes = self.bytes(len);
            self.apply(at, &bytes);
            writes.push((at, bytes, self.model[at as usize..at as usize + len].to_vec()));
        }
        let wanted = self.model.clone();
        let file = file.try_clone().expect("another handle");
        let work = move || {
            let mut tx = file.begin();
            for (at, bytes, now) in &writes {
                tx.write_at(bytes, *at).expect("to write");
                let mut found = vec![0; now.len()];
                tx.read_at(&mut found, *at).expect("to read one's own");
                assert_same(&found, now, "one's own");
            }
            if let Some((at, ..)) = writes.first() {
                let len = (wanted.len() - *at as usize).min(200);
                let mut found = vec![0; len];
                tx.read_at(&mut found, *at).expect("to read");
                assert_same(&found, &wanted[*at as usize..*at as usize + len], "in a transaction");
            }
            if rolls_back {
                tx.rollback();
            } else {
                tx.commit().expect("to commit");
            }
        };
        if second {
            on_second_thread(work);
        } else {
            work();
        }
        if rolls_back {
            self.model = was;
        }
    }

    fn number(&self, at: u64) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|n| self.model[at as usize + n]))
    }
}

fn check_views(views: &[(View<'_>, Vec<u8>)]) {
    for (view, bytes) in views {
        assert_same(&view.to_vec().expect("a view's bytes"), bytes, "a view");
    }
}

fn everything(file: &AtomicMappedFile) -> Vec<u8> {
    let mut bytes = vec![0; file.len() as usize];
    file.read_at(&mut bytes, 0).expect("to read");
    bytes
}

#[track_caller]
fn assert_same(found: &[u8], wanted: &[u8], when: &str) {
    if found == wanted {
        return;
    }
    assert_eq!(found.len(), wanted.len(), "{when}: the length");
    if let Some(at) = (0..found.len()).find(|n| found[*n] != wanted[*n]) {
        panic!("{when}: {} instead of {} at byte {at}", found[at], wanted[at]);
    }
}
