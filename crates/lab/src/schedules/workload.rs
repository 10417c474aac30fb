//! The threads on one file under shuttle's scheduler, and a power loss in the middle: one schedule
//! after the other, on the simulated machine.
//!
//! The scheduler can switch threads at every access to mapped bytes, at every lock and at every
//! atomic. The history contains the operations of all threads with the times of the machine's
//! clock. At a random step, the machine is copied. At the end, an order must explain the history
//! (`durable`). The recovery of the copy, with random choices of the medium's contents, must agree
//! with the history up to the copy.

use super::durable::{History, Operation, State};
use super::space;
use crate::images::kinds::{HOME, open, open_to};
use crate::machine::Simulation;
use crate::machine::memory::{Model, PAGE};
use crate::machine::trail::Trail;
use crate::machine::world::{World, be_thread};
use crate::part::Settings;
use atomic_mmap::{AtomicMappedFile, DeployPolicy, Error};
use fastrand::Rng;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Number of pages of the file: two regions and a bit.
const PAGES: u64 = 66;
/// Offset of the last page of the first region.
pub(super) const LAST: u64 = 63 * PAGE;
/// Offsets of the words under test, in five pages on both sides of a region's border.
const WORDS: [u64; 12] = [
    60 * PAGE,
    61 * PAGE,
    62 * PAGE,
    LAST - 8,
    LAST,
    LAST + 64,
    LAST + 72,
    LAST + 128,
    LAST + 320,
    LAST + PAGE - 8,
    LAST + PAGE,
    LAST + PAGE + 64,
];
/// An offset in a page that `set_len` may truncate.
const TAIL: u64 = (PAGES + 1) * PAGE + 64;
/// The place of the file's length among the values under test, behind the words.
const LENGTH: usize = WORDS.len();
/// Number of images of the machine's copy that are recovered for each schedule.
const IMAGES: u64 = 2;
/// Stack size of a modelled thread.
const STACK: usize = 512 << 10;
/// Number of steps after which a schedule counts as hung.
const STEPS: usize = 2_000_000;

/// Returns the words that a range of bytes covers.
pub(super) fn covered(at: u64, len: u64) -> impl Iterator<Item = (usize, u64)> {
    WORDS
        .into_iter()
        .enumerate()
        .filter(move |(_, word)| (at..at + len).contains(word) && word + 8 <= at + len)
}

/// A thread, with its operations on the file.
pub(super) struct Actor {
    machine: Arc<Simulation>,
    pub(super) file: AtomicMappedFile,
    history: Arc<Mutex<History>>,
    pub(super) rng: Rng,
    ids: Arc<Mutex<u64>>,
}

impl Actor {
    /// Records an operation with the times before and after `act`.
    pub(super) fn note(&self, operation: Operation, act: impl FnOnce(&mut Operation)) {
        let began = self.machine.world().tick();
        let index = {
            let mut history = self.history.lock().expect("no panic under it");
            history.operations.push(Operation { began, ..operation.clone() });
            history.operations.len() - 1
        };
        let mut done = Operation { began, ..operation };
        act(&mut done);
        done.returned = Some(self.machine.world().tick());
        self.history.lock().expect("no panic under it").operations[index] = done;
    }

    pub(super) fn id(&self) -> u64 {
        let mut ids = self.ids.lock().expect("no panic under it");
        *ids += 1;
        *ids
    }

    pub(super) fn read_words(&self, bytes: &[u8], at: u64) -> Vec<(usize, u64)> {
        covered(at, bytes.len() as u64)
            .map(|(n, word)| {
                let start = (word - at) as usize;
                let value = std::array::from_fn(|i| bytes[start + i]);
                (n, u64::from_le_bytes(value))
            })
            .collect()
    }

    pub(super) fn write(&self, at: u64, len: u64) {
        let id = self.id();
        let bytes: Vec<u8> = id.to_le_bytes().into_iter().cycle().take(len as usize).collect();
        let writes = covered(at, len).map(|(n, _)| (n, id)).collect();
        let name = format!("write #{id} at {at}, {len} bytes");
        self.note(Operation { name, writes, ..Operation::default() }, |_| {
            self.file.write_at(&bytes, at).expect("a write");
        });
    }

    fn read(&self, at: u64, len: u64) {
        let name = format!("read at {at}, {len} bytes");
        self.note(Operation { name, ..Operation::default() }, |operation| {
            let mut bytes = vec![0; len as usize];
            self.file.read_at(&mut bytes, at).expect("a read");
            operation.reads = self.read_words(&bytes, at);
        });
    }

    fn transaction(&self, reads: &[u64], writes: &[u64]) {
        let id = self.id();
        let words = |places: &[u64]| -> Vec<(usize, u64)> {
            places.iter().flat_map(|at| covered(*at, 8)).map(|(n, _)| (n, id)).collect()
        };
        let operation = Operation {
            name: format!("transaction #{id} reads {reads:?} writes {writes:?}"),
            writes: words(writes),
            ..Operation::default()
        };
        self.note(operation, |operation| {
            let mut tx = self.file.begin();
            let act = |tx: &mut atomic_mmap::Transaction<'_>, seen: &mut Vec<(usize, u64)>| {
                for at in reads {
                    let mut bytes = [0; 8];
                    tx.read_at(&mut bytes, *at)?;
                    seen.extend(self.read_words(&bytes, *at));
                }
                writes.iter().try_for_each(|at| tx.write_at(&id.to_le_bytes(), *at))
            };
            let mut seen = Vec::new();
            let result = act(&mut tx, &mut seen).and_then(|()| tx.commit());
            match result {
                Ok(()) => operation.reads = seen,
                // The operation did nothing, and its reads do not count. A shrink may have
                // truncated one of its two pieces.
                Err(Error::Conflict { .. } | Error::PastEnd { .. }) => operation.writes.clear(),
                Err(error) => panic!("a transaction: {error}"),
            }
        });
    }

    pub(super) fn view(&self, page: u64) {
        let range = page * PAGE..(page + 1) * PAGE;
        let name = format!("view of page {page}");
        self.note(Operation { name, ..Operation::default() }, |operation| {
            let view = self.file.view(range.clone()).expect("a view");
            let first = view.to_vec().expect("its bytes");
            shuttle::thread::yield_now();
            assert_eq!(first, view.to_vec().expect("its bytes"), "a view has changed");
            operation.reads = self.read_words(&first, range.start);
        });
    }

    /// Returns a length past the words. Their values stay, but every operation meets the change.
    /// Some lengths reach into a further region.
    fn any_len(&mut self) -> u64 {
        let region = if self.rng.u32(0..8) == 0 { 62 } else { 0 };
        (PAGES + region + self.rng.u64(0..4)) * PAGE + self.rng.u64(0..2) * 100
    }

    fn set_len(&mut self) {
        let len = self.any_len();
        let name = format!("set_len {len}");
        let writes = vec![(LENGTH, len)];
        self.note(Operation { name, writes, ..Operation::default() }, |_| {
            self.file.set_len(len).expect("a length");
        });
    }

    /// Reads a word, writes another one and the last bytes, and changes the length, in one
    /// operation.
    fn resize(&mut self, read: u64, write: u64) {
        let (len, id) = (self.any_len(), self.id());
        let name = format!("resize #{id} to {len} reads {read} writes {write}");
        let mut writes = vec![(LENGTH, len)];
        writes.extend(covered(write, 8).map(|(n, _)| (n, id)));
        self.note(Operation { name, writes, ..Operation::default() }, |operation| {
            let mut tx = self.file.begin();
            let mut act = || {
                let mut bytes = [0; 8];
                tx.read_at(&mut bytes, read)?;
                let old = tx.len()?;
                tx.set_len(len)?;
                tx.write_at(&id.to_le_bytes(), write)?;
                tx.write_at(&id.to_le_bytes(), len - 8)?;
                let mut seen = self.read_words(&bytes, read);
                seen.push((LENGTH, old));
                Ok::<_, Error>(seen)
            };
            match act().and_then(|seen| tx.commit().map(|()| seen)) {
                Ok(seen) => operation.reads = seen,
                Err(Error::Conflict { .. }) => operation.writes.clear(),
                Err(error) => panic!("a transaction: {error}"),
            }
        });
    }

    /// Writes a word in a transaction that goes by the length.
    fn write_by_length(&mut self, write: u64) {
        let id = self.id();
        let name = format!("transaction #{id} reads the length and writes {write}");
        let writes = covered(write, 8).map(|(n, _)| (n, id)).collect();
        self.note(Operation { name, writes, ..Operation::default() }, |operation| {
            let mut tx = self.file.begin();
            let mut act = || {
                let len = tx.len()?;
                tx.write_at(&id.to_le_bytes(), write)?;
                Ok::<_, Error>(len)
            };
            match act().and_then(|len| tx.commit().map(|()| len)) {
                Ok(len) => operation.reads = vec![(LENGTH, len)],
                Err(Error::Conflict { .. }) => operation.writes.clear(),
                Err(error) => panic!("a transaction: {error}"),
            }
        });
    }

    /// Reads the length and all words, as one state.
    fn read_whole(&self) {
        let name = "read the whole file".to_owned();
        self.note(Operation { name, ..Operation::default() }, |operation| {
            let bytes = self.file.read_vec().expect("a read");
            operation.reads = self.read_words(&bytes, 0);
            operation.reads.push((LENGTH, bytes.len() as u64));
        });
    }

    /// Does a small write to a page that `set_len` may truncate.
    fn write_to_the_tail(&self) {
        let name = "write to the tail".to_owned();
        self.note(Operation { name, ..Operation::default() }, |_| {
            match self.file.write_at(&[1; 8], TAIL) {
                Ok(()) | Err(Error::PastEnd { .. }) => {}
                Err(error) => panic!("a write: {error}"),
            }
        });
    }

    fn read_the_tail(&self) {
        let name = "read the tail".to_owned();
        self.note(Operation { name, ..Operation::default() }, |_| {
            match self.file.read_at(&mut [0; PAGE as usize], (PAGES + 1) * PAGE) {
                Ok(()) | Err(Error::PastEnd { .. }) => {}
                Err(error) => panic!("a read: {error}"),
            }
        });
    }

    pub(super) fn deploy(&self) {
        self.deploy_pages(62..65);
    }

    fn deploy_pages(&self, pages: Range<u64>) {
        let name = format!("deploy pages {pages:?}");
        self.note(Operation { name, ..Operation::default() }, |_| {
            let range = pages.start * PAGE..pages.end * PAGE;
            self.file.deploy(range).map(drop).expect("a deployment");
        });
    }

    fn sync(&self) {
        let sync = Operation { name: "sync".to_owned(), is_sync: true, ..Operation::default() };
        self.note(sync, |_| self.file.sync().map(drop).expect("a sync"));
    }

    /// Deploys everything, which also punches holes.
    pub(super) fn deploy_all(&self) {
        let name = "deploy all".to_owned();
        self.note(Operation { name, ..Operation::default() }, |_| {
            self.file.deploy(0..PAGES * PAGE).map(drop).expect("a deployment");
        });
    }

    fn act(&mut self, role: Role) {
        match role {
            Role::Any => self.do_anything(),
            Role::LoggedFlip => {
                let slice = self.rng.u64(1..3);
                self.write(LAST + slice * 64, 8);
            }
            Role::Flip => match self.rng.u32(0..4) {
                0 => self.write(LAST + 64, 72),
                1 => self.deploy(),
                _ => self.write(LAST, 400),
            },
            Role::Tail => match self.rng.u32(0..5) {
                0 => self.write(LAST + 64, 8),
                1 => self.read_the_tail(),
                2 => self.transaction(&[], &[LAST + 64, TAIL]),
                _ => self.write_to_the_tail(),
            },
            Role::Length => self.set_len(),
            Role::Resize => match self.rng.u32(0..6) {
                0 => self.set_len(),
                1 | 2 => self.read_whole(),
                3 => self.write_by_length(LAST + 64),
                4 => self.resize(LAST + PAGE, LAST + 64),
                _ => self.resize(LAST + 64, LAST + PAGE),
            },
            Role::Sync => match self.rng.u32(0..5) {
                0 => self.write(LAST, 400),
                1 => self.deploy_all(),
                _ => self.sync(),
            },
            Role::BackAndForth => match self.rng.u32(0..3) {
                0 => self.sync(),
                _ => self.write(LAST + 64, 64),
            },
            Role::Deploy => self.deploy_all(),
            Role::Neighbour => match self.rng.u32(0..6) {
                0 => self.deploy_pages(60..62),
                1 => self.read(60 * PAGE, 4 * PAGE),
                2 => self.transaction(&[], &[60 * PAGE, 61 * PAGE]),
                3 => self.write(60 * PAGE, 2 * PAGE),
                _ => self.write(62 * PAGE, 2 * PAGE),
            },
            Role::Together => match self.rng.u32(0..5) {
                0 => self.write(LAST + 64, 8),
                1 => self.write(LAST - 8, 80),
                2 => self.read(62 * PAGE, 2 * PAGE),
                _ => self.write(62 * PAGE, 2 * PAGE),
            },
            Role::Again => match self.rng.u32(0..6) {
                0 => self.write(LAST + 64, 72),
                1 => self.write(LAST - 8, 80),
                2 => self.write(LAST + PAGE - 8, 80),
                3 => self.read(LAST, 2 * PAGE),
                4 => self.transaction(&[LAST + 64], &[LAST + 72, LAST + PAGE]),
                _ => self.write(LAST, 2 * PAGE),
            },
            Role::Stage => self.stage_anything(),
            Role::Sweep => self.sweep_anything(),
        }
    }

    fn do_anything(&mut self) {
        match self.rng.u32(0..21) {
            0..=2 => self.write(LAST + 64, 8),
            3 => self.write(LAST + 72, 8),
            4 => self.write(LAST + 64, 72),
            5 | 6 => self.write(LAST, 400),
            7 => self.write(LAST - 8, 80),
            8 => self.write(LAST + PAGE - 8, 80),
            9 => self.write(62 * PAGE, 2 * PAGE),
            10 => self.write(LAST, 2 * PAGE),
            11 => self.transaction(&[LAST + 64, LAST + PAGE], &[LAST + 72]),
            12 => self.transaction(&[LAST + 72], &[LAST + 64, LAST + PAGE + 64]),
            13 => self.read(LAST, PAGE),
            14 => self.read(LAST + 64, 16),
            15 => self.read(62 * PAGE, 3 * PAGE),
            16 => self.read(LAST + PAGE, 128),
            17 => self.view(63),
            18 => match self.rng.bool() {
                true => self.set_len(),
                false => self.resize(LAST + 72, LAST + 64),
            },
            19 => self.write_to_the_tail(),
            _ => self.deploy(),
        }
    }
}

/// The role of a thread.
#[derive(Clone, Copy)]
pub(super) enum Role {
    /// Every kind of operation.
    Any,
    /// Logged flips of two slices.
    LoggedFlip,
    /// Flips and deployments of the same slices.
    Flip,
    /// Logged flips in a page that is truncated again and again.
    Tail,
    /// Truncates that page again and again.
    Length,
    /// Changes the length together with words, and reads the whole file.
    Resize,
    /// Makes durable points, and deploys.
    Sync,
    /// Writes the same slices again and again, in one page and across pages.
    Again,
    /// Writes one slice, from slot to slot, with durable points in between.
    BackAndForth,
    /// Deploys everything, which punches holes.
    Deploy,
    /// Writes whole pages of one region, concurrently with others that do so: they share one word.
    Neighbour,
    /// Writes two pages in fragments and as a whole, and reads them, which may deploy them.
    Together,
    /// Fills stages, and commits or drops them.
    Stage,
    /// Takes the turns of background deployment.
    Sweep,
}

impl Role {
    /// Returns the deploy policy of a cast that begins with this role.
    fn policy(self) -> DeployPolicy {
        match self {
            Role::Together => DeployPolicy::Lazy,
            _ => DeployPolicy::Manual,
        }
    }
}

/// Casts of threads: some for a single rule, and some with all operations.
const CASTS: [&[Role]; 8] = [
    &[Role::Any, Role::Any],
    &[Role::Any, Role::Any, Role::Any],
    &[Role::LoggedFlip, Role::Flip],
    &[Role::LoggedFlip, Role::Flip, Role::LoggedFlip],
    &[Role::Tail, Role::Length],
    &[Role::Together, Role::Together],
    &[Role::Neighbour, Role::Neighbour],
    &[Role::Resize, Role::Resize],
];

/// Casts of threads behind a page cache, with durable points.
const CASTS_ON_DISK: [&[Role]; 7] = [
    &[Role::Any, Role::Sync],
    &[Role::Any, Role::Any, Role::Sync],
    &[Role::Again, Role::Sync],
    &[Role::Again, Role::Again, Role::Sync],
    &[Role::Tail, Role::Length, Role::Sync],
    &[Role::BackAndForth, Role::Deploy],
    &[Role::Resize, Role::Resize, Role::Sync],
];

/// Returns all casts, and for each if it is one behind a page cache. Killers name them by their
/// numbers, so new ones come last.
fn casts() -> Vec<(bool, &'static [Role])> {
    let all: [(bool, &[&'static [Role]]); 4] = [
        (false, &CASTS),
        (true, &CASTS_ON_DISK),
        (false, &space::CASTS),
        (true, &space::CASTS_ON_DISK),
    ];
    all.into_iter().flat_map(|(is, casts)| casts.iter().map(move |cast| (is, *cast))).collect()
}

/// The medium of the files.
#[derive(Clone, Copy)]
enum Device {
    /// Persistent memory, mapped.
    Dax(Model),
    /// A disk behind a page cache.
    Disk,
}

/// The parameters of one schedule.
struct Plan {
    device: Device,
    cast: &'static [Role],
    operations: u64,
    /// The power fails at this step, if the schedule has enough steps.
    crash_at: u64,
    images: u64,
    rng: Rng,
}

/// Returns the values under test: the words, and the length.
fn words_of(file: &AtomicMappedFile) -> Result<State, Error> {
    let words = WORDS.iter().map(|at| {
        let mut bytes = [0; 8];
        file.read_at(&mut bytes, *at).map(|()| u64::from_le_bytes(bytes))
    });
    words.chain([Ok(file.len())]).collect()
}

/// Runs one schedule.
fn run_one(mut plan: Plan) {
    let mut world = match plan.device {
        Device::Dax(model) => World::new(model, 1),
        Device::Disk => World::with_page_cache(1),
    };
    world.make(Path::new(HOME), PAGES * PAGE, &[]);
    let machine = Simulation::new(world);
    let policy = plan.cast.first().map_or(DeployPolicy::Manual, |role| role.policy());
    let file = open_to(&machine, policy).expect("a pair");
    let mut initial = vec![0; WORDS.len()];
    initial.push(PAGES * PAGE);
    let history = Arc::new(Mutex::new(History { initial, operations: Vec::new() }));
    let ids = Arc::new(Mutex::new(0));
    machine.world().copy_at(plan.crash_at);
    let threads: Vec<_> = (1..)
        .zip(plan.cast)
        .map(|(n, role)| {
            let mut actor = Actor {
                machine: machine.clone(),
                file: file.try_clone().expect("a handle"),
                history: history.clone(),
                rng: plan.rng.fork(),
                ids: ids.clone(),
            };
            let count = plan.operations;
            shuttle::thread::spawn(move || {
                be_thread(n);
                (0..count).for_each(|_| actor.act(*role));
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    let whole = history.lock().expect("no panic under it").clone();
    let last = words_of(&file).expect("the words");
    assert!(whole.explains(&last), "no order explains {whole:#?}\nwith {last:?} in the end");
    let copy = machine.world().take_copy();
    machine.kill();
    drop(file);
    let Some(copy) = copy else { return };
    let cut = whole.until(copy.clock());
    if let Device::Disk = plan.device {
        let found = recovered(copy.after_kill());
        assert!(cut.explains(&found), "after a death: {found:?} is not explained by {cut:#?}");
    }
    for _ in 0..plan.images {
        let found = recovered(copy.after_crash(Trail::at_random(plan.rng.fork())));
        let is_explained = match plan.device {
            Device::Dax(_) => cut.explains(&found),
            Device::Disk => cut.explains_a_point(&found),
        };
        assert!(is_explained, "after a loss of power: {found:?} is not explained by {cut:#?}");
    }
}

/// Recovers a machine and returns the words.
fn recovered(world: World) -> State {
    let machine = Simulation::new(world);
    let file = open(&machine).expect("an image that opens");
    let found = words_of(&file).expect("the words");
    machine.kill();
    found
}

fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = STACK;
    config.max_steps = MaxSteps::FailAfter(STEPS);
    config.failure_persistence = FailurePersistence::Print;
    config
}

/// Runs `count` schedules, half of them random and half by priorities (PCT). Returns the number of
/// schedules. A violation is a panic with the schedule in its message. With a `cast`, runs only its
/// threads, by priorities, with more operations and more images, to look for one planted bug.
pub fn run(settings: &Settings, count: u64, cast: Option<usize>) -> u64 {
    let batches = match cast {
        None => [count / 2, count - count / 2],
        Some(_) => [0, count],
    };
    let mut done = 0;
    for (nth, batch) in batches.into_iter().enumerate() {
        let seed = settings.seed.wrapping_add(nth as u64);
        let rng = Arc::new(Mutex::new(settings.rng(&format!("schedules {nth}"))));
        let body = move || {
            let mut rng = rng.lock().expect("no panic under it").fork();
            let casts = casts();
            let which = cast.unwrap_or_else(|| rng.usize(0..casts.len()));
            let (is_on_disk, roles) = *casts.get(which).expect("a cast");
            let device = match rng.bool() {
                _ if is_on_disk => Device::Disk,
                true => Device::Dax(Model::Chunk),
                false => Device::Dax(Model::Px86),
            };
            let operations = if cast.is_some() { 3 } else { rng.u64(1..4) };
            let crash_at = rng.u64(0..16 * roles.len() as u64 * operations);
            let images = if cast.is_some() { 8 } else { IMAGES };
            run_one(Plan { device, cast: roles, operations, crash_at, images, rng });
        };
        let batch = batch as usize;
        done += match (nth, batch) {
            (_, 0) => 0,
            (0, _) => Runner::new(RandomScheduler::new_from_seed(seed, batch), config()).run(body),
            _ => Runner::new(PctScheduler::new_from_seed(seed, 3, batch), config()).run(body),
        } as u64;
    }
    done
}
