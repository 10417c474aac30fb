//! The scenarios: the initial state of the files, and the calls.
//!
//! Owns: the initial states of the files, the calls, and the content of the file after each call if
//! nothing fails. The scenarios reach every entry point that makes system calls. They reach it in
//! every state in which it makes different ones. `mod.rs` checks that they use every system call.

use super::files::{Contents, Pair, Place};
use atomic_mmap::testing::entry::{
    OldBits, RedoPage, Seed, Sequence, Spill, Undo, UndoBody, WordId,
};
use atomic_mmap::testing::flip_record::{FlipRecord, sum_of};
use atomic_mmap::testing::recorder::Recorder;
use atomic_mmap::testing::superblock::{State, Superblock};
use atomic_mmap::testing::{LaneIndex, PageIndex, RegionIndex, call, layout};
use atomic_mmap::{
    AtomicMappedFile, CloseMode, DeployPolicy, Durability, Error, Medium, Mismatch, OnMismatch,
    Options,
};
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

const PAGE: u64 = 4096;
/// Length of the file: two regions and a part of a page, short enough for full comparisons.
pub const LEN: u64 = 400_100;
/// Length after a growth.
const LONGER: u64 = 650_000;
/// Length that allows a logged write of more than one extent of the log.
const LARGE: u64 = 1_500_000;
/// The shortest journal: 14 blocks for records after two headers, so a few syncs fill it.
pub const JOURNAL_LEN: u64 = 64 << 10;
/// Prefix of the names of scenarios with durable points.
pub const OF_POINTS: &str = "points: ";
/// Length of a write with a record of three blocks: the longest that uses the journal.
const THREE_BLOCKS: usize = 9_000;

/// The medium and the folder of a scenario.
#[derive(Clone, Debug)]
pub struct Ground {
    /// Name in messages.
    pub name: &'static str,
    /// A folder of the lab.
    pub base: PathBuf,
    /// The forced medium, or `None` to use the detected one.
    pub forced: Option<Medium>,
}

impl Ground {
    /// Returns options with the medium and a short journal.
    pub fn options(&self) -> Options {
        let options = AtomicMappedFile::options().journal_len(JOURNAL_LEN);
        match self.forced {
            Some(medium) => options.medium(medium),
            None => options,
        }
    }

    /// Returns the medium that an open file reports.
    pub fn medium(&self) -> Medium {
        self.forced.unwrap_or(if self.base.starts_with("/dev/shm") {
            Medium::Ram
        } else {
            Medium::PageCache
        })
    }
}

// ---- initial states --------------------------------------------------------------------------

/// The state of the files before the first call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// No file.
    Nothing,
    /// A home file without bytes.
    Empty,
    /// A plain file without holes.
    Plain,
    /// A plain file that is one hole, except for a page.
    Sparse,
    /// A plain file of `LARGE` bytes.
    Large,
    /// A pair that was closed fast, with bytes in both files.
    Closed,
    /// A pair in use, with log records of every kind for recovery.
    Crashed,
    /// A pair in use that was shrunk, with an unfinished truncation.
    Cut,
    /// A pair in use that was about to grow.
    HalfGrown,
    /// A pair in use with two durable points, and a longer file and writes since the last one.
    Synced,
    /// A pair in use with its newest record in the journal, and not yet in the durable words.
    HalfSynced,
    /// Like `Synced`, but only the durable point counts after any end of the process.
    AllOrNothing,
}

/// A change of the files behind the crate's back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quirk {
    /// No change.
    None,
    /// The reflection file was removed.
    NoReflection,
    /// The journal was removed.
    NoJournal,
    /// The home file was removed.
    NoHome,
    /// Another file replaced the home file.
    Replaced,
    /// The home file was renamed, so its pair belongs to another path.
    Renamed,
    /// The reflection file of another file lies in the place.
    Swapped,
    /// Both superblocks are damaged.
    Corrupt,
    /// A damaged log record claims more than there is.
    LogOverflow,
    /// The reflection file was truncated.
    CutReflection,
    /// The home file was truncated.
    CutHome,
    /// The home file or its times changed.
    Changed,
    /// The machine was restarted.
    Restarted,
    /// A foreign file lies in the reflection file's place.
    Foreign,
    /// A newer version of the crate used the pair.
    Newer,
    /// A process crashed in a spatial close, after all pages were deployed.
    Emptied,
}

impl Quirk {
    /// Returns `true` if every file except the home file may belong to another home file. An open
    /// then changes and removes none of them, whatever `OnMismatch` says.
    pub fn leaves_files_of_others(self) -> bool {
        match self {
            Quirk::NoReflection | Quirk::NoHome | Quirk::Replaced | Quirk::Renamed => true,
            Quirk::Swapped | Quirk::Corrupt | Quirk::Foreign | Quirk::Newer => true,
            Quirk::None | Quirk::NoJournal | Quirk::LogOverflow | Quirk::CutReflection => false,
            Quirk::CutHome | Quirk::Changed | Quirk::Restarted | Quirk::Emptied => false,
        }
    }
}

/// The files before the first call, and their content.
#[derive(Clone)]
pub struct Start {
    kind: Kind,
    pair: Pair,
    /// The content of the file that both files together define.
    pub model: Vec<u8>,
    /// The last durable point, if the file keeps durable points.
    pub point: Vec<u8>,
}

/// Returns distinctive bytes without a zero.
pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let words = (0..len.div_ceil(8)).map(|_| (rng.u64(..) | 0x0101_0101_0101_0101).to_le_bytes());
    let mut bytes: Vec<u8> = words.flatten().collect();
    bytes.truncate(len);
    bytes
}

fn read_all(file: &AtomicMappedFile) -> Vec<u8> {
    let mut bytes = vec![0; file.len() as usize];
    file.read_at(&mut bytes, 0).expect("read everything");
    bytes
}

/// Writes in all ways, so that many bytes are in the reflection file only.
fn write_all(file: &AtomicMappedFile) {
    for (offset, len) in
        [(0, 8192), (100, 50), (9000, 700), (20_000, 20_000), (262_000, 300), (262_100, 30_000)]
    {
        file.write_at(&bytes(offset, len), offset).expect("write");
    }
}

impl Start {
    /// Makes the state with the crate itself, in a scratch place. Nothing fails meanwhile.
    pub fn new(kind: Kind, ground: &Ground, place: &Place) -> Start {
        let options = || ground.options().deploy(DeployPolicy::Manual);
        let plain = |bytes: &[u8]| {
            Contents::of(bytes).write(&place.home()).expect("write");
        };
        let home = bytes(1, LEN as usize);
        let simple = |bytes: Vec<u8>| {
            let (pair, point) = (Pair::plain(&bytes), bytes.clone());
            Start { kind, pair, model: bytes, point }
        };
        match kind {
            Kind::Nothing | Kind::Empty => simple(Vec::new()),
            Kind::Plain => simple(home),
            Kind::Sparse => {
                let mut sparse = vec![0; LEN as usize];
                sparse[50_000..54_000].copy_from_slice(&home[..4000]);
                simple(sparse)
            }
            Kind::Large => simple(bytes(2, LARGE as usize)),
            Kind::Closed => {
                plain(&home);
                let file = options().open(place.home()).expect("open");
                write_all(&file);
                let model = read_all(&file);
                file.close(CloseMode::Fast).expect("close");
                let (pair, point) = (Pair::capture(place).expect("capture"), model.clone());
                Start { kind, pair, model, point }
            }
            Kind::Crashed => {
                plain(&home);
                let file = options().open(place.home()).expect("open");
                write_all(&file);
                let mut model = read_all(&file);
                let mut pair = Pair::capture(place).expect("capture");
                leave_entries(&mut pair, &mut model, ground.medium());
                // The open was the only durable point.
                Start { kind, pair, model, point: home }
            }
            Kind::Cut => {
                plain(&home);
                let recorder = Recorder::new();
                let file = options().open_recorded(&recorder, place.home()).expect("open");
                write_all(&file);
                recorder.fail_next(call::SET_LEN, 1, libc::EIO);
                file.set_len(150_001).expect("the cut itself succeeds");
                assert!(!recorder.heal(), "the clean-up fails");
                let model = read_all(&file);
                let point = model.clone();
                Start { kind, pair: Pair::capture(place).expect("capture"), model, point }
            }
            Kind::HalfGrown => {
                plain(&home);
                let recorder = Recorder::new();
                let file = options().open_recorded(&recorder, place.home()).expect("open");
                write_all(&file);
                recorder.fail_next(call::SET_LEN, 2, libc::EIO);
                file.set_len(LONGER).expect_err("the second file does not grow");
                let model = read_all(&file);
                Start { kind, pair: Pair::capture(place).expect("capture"), model, point: home }
            }
            Kind::Synced | Kind::AllOrNothing => {
                plain(&home);
                let durability = match kind {
                    Kind::AllOrNothing => Durability::AllOrNothing,
                    _ => Durability::BySync,
                };
                let file = options().durability(durability).open(place.home()).expect("open");
                file.write_at(&bytes(4, 700), 100).expect("write");
                file.sync().expect("sync");
                write_all(&file);
                file.sync().expect("sync");
                let point = read_all(&file);
                // Flips slices that are unchanged since the sync, and writes changed slices in
                // place.
                for (offset, len) in [(50, 90), (20_100, 9_000), (50, 300), (262_000, 20_000)] {
                    file.write_at(&bytes(offset + 1, len), offset).expect("write");
                }
                file.set_len(LONGER).expect("grow");
                file.write_at(&bytes(5, 3000), LONGER - 4000).expect("write");
                let model = read_all(&file);
                Start { kind, pair: Pair::capture(place).expect("capture"), model, point }
            }
            Kind::HalfSynced => {
                plain(&home);
                let file = options().open(place.home()).expect("open");
                file.write_at(&bytes(4, 700), 100).expect("write");
                file.sync().expect("sync");
                write_all(&file);
                file.write_at(&bytes(6, 90), 50).expect("write");
                let mut pair = Pair::capture(place).expect("capture");
                file.sync().expect("sync");
                pair.journal = Pair::capture(place).expect("capture").journal;
                let model = read_all(&file);
                Start { kind, pair, point: model.clone(), model }
            }
        }
    }

    /// Puts the files into a place and applies the quirk. Returns `false` if the quirk needs
    /// attributes and this file system has none.
    pub fn put(&self, place: &Place, quirk: Quirk) -> bool {
        if self.kind == Kind::Nothing {
            return true;
        }
        if quirk == Quirk::NoReflection && !self.pair.marked {
            return false;
        }
        let change = |superblock: &mut Superblock| match quirk {
            Quirk::Swapped => superblock.identity.inode ^= 0x1000,
            Quirk::Restarted => {
                superblock.boot_id = [0x5a; 16];
                superblock.identity.device += 1;
            }
            Quirk::Emptied => superblock.state = State::Emptied,
            _ => {}
        };
        self.pair.restore(place, change).expect("make the pair");
        let home = place.home();
        let reflection = place.reflection().expect("the home file is there");
        let open = |path: &PathBuf| File::options().write(true).open(path).expect("open");
        match quirk {
            Quirk::None | Quirk::Swapped | Quirk::Restarted | Quirk::Emptied => {}
            Quirk::NoReflection => fs::remove_file(&reflection).expect("remove"),
            Quirk::NoJournal => {
                fs::remove_file(reflection.with_added_extension("journal")).expect("remove");
            }
            Quirk::NoHome => fs::remove_file(&home).expect("remove"),
            Quirk::Replaced => {
                let away = place.folder.with_extension("away");
                let _of_the_last_run = fs::remove_file(&away);
                fs::rename(&home, away).expect("rename");
                fs::write(&home, bytes(7, 5000)).expect("write");
            }
            Quirk::Renamed => fs::rename(&home, place.folder.join("renamed")).expect("rename"),
            Quirk::Corrupt => {
                for at in layout::SUPERBLOCKS {
                    open(&reflection).write_all_at(&[0xaa; 8], at + 200).expect("write");
                }
            }
            Quirk::LogOverflow => {
                let file = open(&reflection);
                for (lane, bytes) in overflowing_entries(&self.pair) {
                    file.write_all_at(&bytes, layout::undo_entry(lane)).expect("write");
                }
            }
            Quirk::CutReflection => {
                let file = open(&reflection);
                let len = file.metadata().expect("stat").len();
                file.set_len(len - 2 * PAGE).expect("cut");
            }
            Quirk::CutHome => open(&home).set_len(self.model.len() as u64 - 1).expect("cut"),
            Quirk::Changed => {
                let later = SystemTime::now() + Duration::from_secs(3);
                open(&home).set_modified(later).expect("touch");
            }
            Quirk::Foreign => fs::write(&reflection, b"notes of another program").expect("write"),
            Quirk::Newer => {
                for at in layout::SUPERBLOCKS {
                    open(&reflection).write_all_at(&[77], at + 8).expect("write");
                }
            }
        }
        true
    }
}

/// Returns the seed of the log records in the pair's last session.
fn seed_of(pair: &Pair) -> Seed {
    let last = pair.superblocks().into_iter().map(|(_, s)| s).max_by_key(|s| s.session);
    let last = last.expect("a superblock");
    Seed::new(&last.uuid, last.session)
}

/// Leaves records of every kind in empty lanes, as operations in progress would. Updates the model
/// with the effect of their recovery.
fn leave_entries(pair: &mut Pair, model: &mut [u8], medium: Medium) {
    let seed = seed_of(pair);
    let reflection = pair.reflection.as_mut().expect("in use");
    let is_empty = |lane: &LaneIndex| {
        let ring = (0..layout::RING).map(|place| layout::vouch(*lane, place));
        ring.chain([layout::undo_entry(*lane)]).all(|at| reflection.word(at) == 0)
    };
    let lanes: Vec<LaneIndex> =
        (0..layout::PRIVATE_LANES as u16).map(LaneIndex).filter(is_empty).take(6).collect();
    let sequence = Sequence::FIRST;
    let slot = |page: PageIndex, slice: u64| page.0 * PAGE + slice * 64;
    let validity = |reflection: &Contents, page: PageIndex| {
        let region = reflection.word(layout::region_word(RegionIndex(page.0 / 64)));
        let bit = region >> (page.0 % 64) & 1;
        reflection.word(layout::slice_word(page)) ^ 0u64.wrapping_sub(bit)
    };

    // A flip with a word that never arrived: recovery moves the slice. Page cache has no logged
    // flips.
    if medium != Medium::PageCache {
        let (page, slice, data) = (PageIndex(3), 2, bytes(11, 64));
        let sides = !validity(reflection, page) & 1 << slice;
        let entry = FlipRecord { sequence, page, slices: 1 << slice, sides, sum: sum_of(&data) };
        let at = layout::vouch(lanes[0], sequence.place());
        reflection.put(at, &entry.encode(seed.ring(lanes[0])));
        let at = slot(page, slice);
        if sides == 0 {
            pair.home.put(at, &data);
        } else {
            reflection.put(layout::reflection(at), &data);
        }
        model[at as usize..at as usize + data.len()].copy_from_slice(&data);
    }

    // Words that unfinished operations stored: recovery undoes them.
    let mut half_done = |word: WordId, mask: u64| {
        let at = match word {
            WordId::Slice(page) => layout::slice_word(page),
            WordId::Region(region) => layout::region_word(region),
        };
        let now = reflection.word(at);
        reflection.put(at, &(now ^ mask).to_le_bytes());
        OldBits { word, mask, old: now & mask }
    };
    let inline = vec![
        half_done(WordId::Slice(PageIndex(5)), 0xF0),
        half_done(WordId::Region(RegionIndex(0)), 0x300),
    ];
    let spilled = half_done(WordId::Slice(PageIndex(70)), !0);
    let undo = Undo { sequence, body: UndoBody::Inline(inline) };
    reflection.put(layout::undo_entry(lanes[1]), &undo.encode(seed.undo(lanes[1])));

    let mut put_spilled = |lane: LaneIndex, offset: u64, bytes: &[u8], is_undo: bool| {
        let spill = Spill::of(seed.undo(lane), sequence, offset, bytes);
        let body =
            if is_undo { UndoBody::SpilledUndo(spill) } else { UndoBody::SpilledRedo(spill) };
        reflection.put(layout::LOG_AREA + offset, bytes);
        reflection.put(layout::undo_entry(lane), &Undo { sequence, body }.encode(seed.undo(lane)));
    };
    let mut records = Vec::new();
    spilled.encode_to(&mut records);
    put_spilled(lanes[2], 3 * layout::LOG_EXTENT, &records, true);

    // Committed by its record, not yet in its slots: recovery copies it there.
    let (page, slices) = (PageIndex(15), bytes(12, 128));
    let redo = RedoPage { page, stays: 0b110, flips: 0, flipped: 0, bytes: slices.clone() };
    let mut encoded = Vec::new();
    redo.encode_to(&mut encoded);
    put_spilled(lanes[3], 4 * layout::LOG_EXTENT, &encoded, false);
    let at = slot(page, 1) as usize;
    model[at..at + 128].copy_from_slice(&slices);

    // A record that fits its lane.
    let (page, slices) = (PageIndex(6), bytes(13, 128));
    let stays = RedoPage { page, stays: 0b110, flips: 0, flipped: 0, bytes: slices.clone() };
    let undo = Undo { sequence, body: UndoBody::Redo(vec![stays]) };
    reflection.put(layout::undo_entry(lanes[5]), &undo.encode(seed.undo(lanes[5])));
    let at = slot(page, 1) as usize;
    model[at..at + 128].copy_from_slice(&slices);

    // A torn record: no word was stored yet.
    reflection.put(layout::undo_entry(lanes[4]), &[0x77; 40]);
}

/// Returns two records that together claim more than the log area holds.
fn overflowing_entries(pair: &Pair) -> Vec<(LaneIndex, Vec<u8>)> {
    let seed = seed_of(pair);
    let sequence = Sequence::FIRST;
    // The larger one comes second: recovery must know the sum before it reads much.
    [(LaneIndex(70), 64), (LaneIndex(71), layout::LOG_AREA_LEN)]
        .into_iter()
        .map(|(lane, len)| {
            let mut spill = Spill::of(seed.undo(lane), sequence, 0, &[]);
            spill.len = len;
            let body = UndoBody::SpilledUndo(spill);
            (lane, Undo { sequence, body }.encode(seed.undo(lane)))
        })
        .collect()
}

// ---- calls ------------------------------------------------------------------------------------

/// The result of an open if nothing fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opened {
    /// The file, with all bytes of both files.
    Whole,
    /// The last durable point.
    Point,
    /// The home file's bytes as they are.
    HomeBytes,
    /// A new file of this number of zeroes.
    New(u64),
    /// A refusal.
    Refused(Mismatch),
}

/// The parameters and the expected result of an open.
#[derive(Clone, Debug)]
pub struct Opening {
    /// Creates the file with this length.
    pub create: Option<u64>,
    /// The reaction to a mismatch.
    pub wish: OnMismatch,
    /// The policy for deployment.
    pub policy: DeployPolicy,
    /// The mode in which a drop closes.
    pub on_drop: CloseMode,
    /// The durability of the file.
    pub durability: Durability,
    /// The interval of automatic durable points.
    pub sync_every: Option<Duration>,
    /// Forces the medium, even if the system could detect it.
    pub forces_medium: bool,
    /// The expected result.
    pub expected: Opened,
}

/// One call.
#[derive(Clone, Debug)]
pub enum Op {
    /// Opens the file.
    Open(Opening),
    /// Writes this number of bytes at an offset.
    Write(u64, usize),
    /// Writes ranges in one transaction.
    Tx(Vec<(u64, usize)>),
    /// Reads one place and writes another, in one transaction.
    Update(u64, u64),
    /// Reads this number of bytes at an offset.
    Read(u64, usize),
    /// Takes a view of a range, and writes a range meanwhile.
    View(Range<u64>, Option<(u64, usize)>),
    /// Deploys a range, and punches holes.
    Deploy(Range<u64>),
    /// Changes the length.
    SetLen(u64),
    /// Syncs.
    Sync,
    /// Syncs, and waits for the background checkpoint that the sync requests.
    SyncAndCheckpoint,
    /// Writes, and waits for the automatic durable point.
    WriteAndWait(u64, usize),
    /// Makes another handle, reads with it and drops it.
    TryClone,
    /// Closes.
    Close(CloseMode),
    /// Drops the last handle.
    Drop,
}

/// The reason why a call failed the test.
#[derive(Debug)]
pub enum Failure {
    /// The call returned this error.
    Error(Error),
    /// The call returned a wrong value.
    Wrong(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Error(error)
    }
}

/// Describes the first difference between two byte strings.
pub fn difference(found: &[u8], expected: &[u8]) -> Option<String> {
    if found == expected {
        return None;
    }
    if found.len() != expected.len() {
        return Some(format!("{} bytes instead of {}", found.len(), expected.len()));
    }
    let differ = || found.iter().zip(expected).enumerate().filter(|(_, (a, b))| a != b);
    let (first, (is, was)) = differ().next()?;
    Some(format!("{} bytes differ, the first at {first}: {is:#x} for {was:#x}", differ().count()))
}

fn same(found: &[u8], expected: &[u8], what: &str) -> Result<(), Failure> {
    match difference(found, expected) {
        None => Ok(()),
        Some(difference) => Err(Failure::Wrong(format!("{what}: {difference}"))),
    }
}

/// The state that the calls work on.
pub struct Bench {
    /// The place of the files.
    pub place: Place,
    /// The ground of the scenario.
    pub ground: Ground,
    /// Sees every system call, and makes some of them fail.
    pub recorder: Recorder,
    /// The file while it is open.
    pub file: Option<AtomicMappedFile>,
    /// Files that a planted fault keeps open.
    pub held: Vec<File>,
    /// The content of the file, also before it is opened.
    pub model: Vec<u8>,
    /// The states that a power loss may go back to, if the file keeps durable points.
    pub points: Vec<Vec<u8>>,
}

/// Waits for background work. A failure there poisons the handle, which ends the wait as well.
fn wait_for(file: &AtomicMappedFile, done: impl Fn() -> bool) -> Result<(), Failure> {
    let begin = Instant::now();
    // A read of no bytes only checks the handle.
    while !done() && file.read_at(&mut [], 0).is_ok() {
        if begin.elapsed() > super::HANGS / 2 {
            return Err(Failure::Wrong("nothing happens in the background".into()));
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

impl Op {
    /// Returns a word for messages and tables.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Open(Opening { expected: Opened::New(_), .. }) => "create",
            Op::Open(_) => "open",
            Op::Write(..) => "write",
            Op::Tx(_) | Op::Update(..) => "transaction",
            Op::Read(..) => "read",
            Op::View(..) => "view",
            Op::Deploy(_) => "deploy",
            Op::SetLen(_) => "set_len",
            Op::Sync => "sync",
            Op::SyncAndCheckpoint => "sync, and checkpoint in the background",
            Op::WriteAndWait(..) => "write, and sync in the background",
            Op::TryClone => "try_clone",
            Op::Close(CloseMode::Fast) => "fast close",
            Op::Close(CloseMode::Spatial) => "spatial close",
            Op::Close(CloseMode::Unsynced) => "close without a point",
            Op::Drop => "drop",
        }
    }

    /// Returns the bytes that call number `n` writes to a range.
    fn data(n: usize, at: u64, len: usize) -> Vec<u8> {
        bytes(1000 * (n as u64 + 1) + at, len)
    }

    /// Returns `true` if the call waits for background work.
    pub fn needs_background(&self) -> bool {
        matches!(self, Op::SyncAndCheckpoint | Op::WriteAndWait(..))
    }

    /// Does the call. `n` is its number in the scenario.
    pub fn perform(&self, n: usize, bench: &mut Bench) -> Result<(), Failure> {
        if let Op::Open(how) = self {
            let mut options = bench.ground.options().deploy(how.policy);
            options = options.on_mismatch(how.wish).close_on_drop(how.on_drop);
            options = options.durability(how.durability);
            if how.forces_medium {
                options = options.medium(bench.ground.medium());
            }
            if let Some(interval) = how.sync_every {
                options = options.sync_every(interval);
            }
            if let Some(len) = how.create {
                options = options.create(true).len(len);
            }
            if let Some(dir) = &bench.place.elsewhere {
                options = options.reflection_dir(dir);
            }
            let file = options.open_recorded(&bench.recorder, bench.place.home())?;
            bench.file = Some(file);
            return Ok(());
        }
        if let Op::Close(mode) = self {
            return Ok(bench.file.take().expect("it is open").close(*mode)?);
        }
        if let Op::Drop = self {
            drop(bench.file.take());
            return Ok(());
        }
        let (file, model) = (bench.file.as_ref().expect("it is open"), &bench.model);
        match self {
            Op::Open(_) | Op::Close(_) | Op::Drop => unreachable!("done above"),
            Op::Write(at, len) => file.write_at(&Op::data(n, *at, *len), *at)?,
            Op::Tx(parts) => {
                let mut tx = file.begin();
                for (at, len) in parts {
                    tx.write_at(&Op::data(n, *at, *len), *at)?;
                }
                tx.commit()?;
            }
            Op::Update(from, to) => file.transact(|tx| {
                let read: u64 = tx.load(*from)?;
                tx.store(*to, &read)
            })?,
            Op::Read(at, len) => {
                let mut found = vec![0; *len];
                file.read_at(&mut found, *at)?;
                same(&found, &model[*at as usize..*at as usize + len], "read")?;
            }
            Op::View(range, write) => {
                let then = &model[range.start as usize..range.end as usize];
                let view = file.view(range.clone())?;
                same(&view.to_vec()?, then, "view")?;
                if let Some((at, len)) = write {
                    let result = file.write_at(&Op::data(n, *at, *len), *at);
                    same(&view.to_vec()?, then, "view, after a write")?;
                    result?;
                }
            }
            Op::Deploy(range) => {
                file.deploy(range.clone())?;
            }
            Op::SetLen(len) => file.set_len(*len)?,
            Op::Sync => file.sync()?,
            Op::SyncAndCheckpoint => {
                let before = file.stats().checkpoints;
                file.sync()?;
                wait_for(file, || file.stats().checkpoints > before)?;
            }
            Op::WriteAndWait(at, len) => {
                let points = || file.stats().journal_points + file.stats().flush_points;
                let before = points();
                file.write_at(&Op::data(n, *at, *len), *at)?;
                wait_for(file, || points() > before)?;
            }
            Op::TryClone => {
                let other = file.try_clone()?;
                let mut found = vec![0; 100];
                other.read_at(&mut found, 50)?;
                same(&found, &model[50..150], "read by another handle")?;
            }
        }
        Ok(())
    }

    /// Applies the call to the model of the content. `home` returns the home file's bytes.
    pub fn apply(&self, n: usize, model: &mut Vec<u8>, home: impl FnOnce() -> Vec<u8>) {
        let mut write = |at: u64, len: usize| {
            model[at as usize..at as usize + len].copy_from_slice(&Op::data(n, at, len));
        };
        match self {
            Op::Write(at, len) | Op::View(_, Some((at, len))) | Op::WriteAndWait(at, len) => {
                write(*at, *len);
            }
            Op::Tx(parts) => parts.iter().for_each(|(at, len)| write(*at, *len)),
            Op::Update(from, to) => {
                let word = model[*from as usize..*from as usize + 8].to_vec();
                model[*to as usize..*to as usize + 8].copy_from_slice(&word);
            }
            Op::SetLen(len) => model.resize(*len as usize, 0),
            Op::Open(how) => match how.expected {
                Opened::New(len) => *model = vec![0; len as usize],
                Opened::HomeBytes => *model = home(),
                Opened::Whole | Opened::Point | Opened::Refused(_) => {}
            },
            Op::Read(..) | Op::View(_, None) | Op::Deploy(_) | Op::TryClone => {}
            Op::Sync | Op::SyncAndCheckpoint => {}
            Op::Close(_) | Op::Drop => {}
        }
    }
}

/// An initial state, and calls.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Name in messages.
    pub name: String,
    /// The state of the files before the first call.
    pub kind: Kind,
    /// The change of the files behind the crate's back.
    pub quirk: Quirk,
    /// The reflection file lies in another folder.
    pub elsewhere: bool,
    /// System calls that this system does not have.
    pub lacking: &'static [&'static str],
    /// The calls.
    pub ops: Vec<Op>,
}

fn opening(expected: Opened) -> Opening {
    Opening {
        create: None,
        wish: OnMismatch::Refuse,
        policy: DeployPolicy::Manual,
        on_drop: CloseMode::Spatial,
        durability: Durability::BySync,
        sync_every: None,
        forces_medium: false,
        expected,
    }
}

fn open() -> Op {
    Op::Open(opening(Opened::Whole))
}

fn create(len: u64) -> Op {
    Op::Open(Opening { create: Some(len), ..opening(Opened::New(len)) })
}

/// Returns all scenarios for a medium.
pub fn all(medium: Medium) -> Vec<Scenario> {
    let mut all = Vec::new();
    let mut add = |name: &str, kind: Kind, ops: Vec<Op>| {
        let (name, elsewhere) = (name.to_owned(), name.starts_with("elsewhere"));
        all.push(Scenario { name, kind, quirk: Quirk::None, elsewhere, lacking: &[], ops });
    };
    let fast = || Op::Close(CloseMode::Fast);
    let spatial = || Op::Close(CloseMode::Spatial);
    let small = || Op::Write(10_000, 100);
    // Parts of two pages; and whole pages, which move with their region's word.
    let over = || Op::Write(8_100, 400);
    let whole = || Op::Write(16 * PAGE, 9 * PAGE as usize);
    let everything = || Op::Read(0, LEN as usize);

    add("create", Kind::Nothing, vec![create(LEN), small(), spatial()]);
    add("create, empty", Kind::Nothing, vec![create(0), Op::SetLen(5000), fast()]);
    add(
        "give an empty file a length",
        Kind::Empty,
        vec![Op::Open(Opening { create: Some(LEN), ..opening(Opened::New(LEN)) }), small()],
    );
    add("open a plain file", Kind::Plain, vec![open(), everything(), Op::Drop]);
    add("open after a fast close", Kind::Closed, vec![open(), everything(), fast()]);
    add("open after a crash", Kind::Crashed, vec![open(), everything()]);
    add("open after a cut", Kind::Cut, vec![open(), Op::SetLen(LEN), Op::Read(0, LEN as usize)]);
    add("open after half a growth", Kind::HalfGrown, vec![open(), Op::SetLen(LONGER), small()]);

    add("first writes", Kind::Plain, vec![open(), small(), over(), whole(), everything()]);
    add(
        "first writes of a session",
        Kind::Closed,
        vec![open(), small(), over(), whole(), Op::Write(300_000, 3), everything()],
    );
    add(
        "first writes into a hole",
        Kind::Sparse,
        vec![
            open(),
            Op::Read(300_000, 5000),
            Op::Write(300_010, 20),
            Op::Write(50_010, 20),
            Op::Update(50_000, 200_000),
            everything(),
        ],
    );
    let pages = |step: u64| (0..90).map(|n| (n * PAGE + step, 24)).collect::<Vec<_>>();
    add(
        "a transaction that spills",
        Kind::Closed,
        vec![open(), Op::Tx(pages(70)), Op::Tx(vec![(5, 10), (300_000, 9000)]), everything()],
    );
    add(
        "views",
        Kind::Closed,
        vec![
            open(),
            Op::View(0..30_000, None),
            Op::View(0..9000, Some((100, 50))),
            Op::View(0..9000, Some((4000, 500))),
            Op::View(20_000..70_000, Some((19_000, 60_000))),
            everything(),
        ],
    );
    add(
        "views of holes",
        Kind::Sparse,
        vec![
            open(),
            Op::View(300_000..310_000, None),
            Op::View(48_000..60_000, Some((50_000, 100))),
        ],
    );
    add(
        "a large logged write",
        Kind::Large,
        vec![open(), Op::Write(0, 100), Op::View(0..1000, Some((0, 1_300_000))), Op::Read(0, 5000)],
    );
    add(
        "deploy",
        Kind::Closed,
        vec![
            open(),
            Op::Deploy(0..LEN),
            whole(),
            Op::Deploy(4096..200_000),
            Op::Deploy(0..LEN),
            small(),
        ],
    );
    let with = |policy| Op::Open(Opening { policy, ..opening(Opened::Whole) });
    add(
        "deployment after writes",
        Kind::Plain,
        vec![with(DeployPolicy::Eager), small(), over(), whole()],
    );
    let scattered = (0..20).map(|n| (40_960 + n * 192, 64)).collect();
    add(
        "deployment for readers",
        Kind::Closed,
        vec![
            with(DeployPolicy::Lazy),
            Op::Tx(scattered),
            Op::Read(40_960, 80_000),
            Op::Read(40_960, 80_000),
        ],
    );
    add(
        "lengths",
        Kind::Closed,
        vec![
            open(),
            Op::SetLen(130_001),
            Op::SetLen(LONGER),
            Op::Write(LONGER - 5000, 5000),
            Op::SetLen(0),
            Op::SetLen(LEN),
            small(),
        ],
    );
    add(
        "lengths after writes",
        Kind::Plain,
        vec![open(), whole(), over(), Op::SetLen(20 * PAGE + 7), Op::SetLen(LEN), everything()],
    );
    add("sync", Kind::Plain, vec![open(), small(), Op::Sync, over(), Op::Sync, Op::Read(0, 9000)]);
    add("fast close", Kind::Plain, vec![open(), small(), whole(), fast(), open(), over(), fast()]);
    add("spatial close", Kind::Closed, vec![open(), small(), over(), whole(), spatial(), open()]);
    add(
        "drop",
        Kind::Closed,
        vec![
            Op::Open(Opening { on_drop: CloseMode::Fast, ..opening(Opened::Whole) }),
            over(),
            Op::Drop,
            open(),
            whole(),
            Op::Drop,
        ],
    );
    add("another handle", Kind::Plain, vec![open(), Op::TryClone, small(), Op::TryClone]);

    for (name, kind) in [("elsewhere: create", Kind::Nothing), ("elsewhere: plain", Kind::Plain)] {
        let first = if kind == Kind::Nothing { create(LEN) } else { open() };
        add(name, kind, vec![first, over(), fast(), open(), over(), spatial()]);
    }
    for (name, lacking) in [
        ("no fallocate", &[call::ALLOCATE][..]),
        ("no holes", &[call::PUNCH, call::NEXT_DATA, call::NEXT_HOLE][..]),
        ("no attributes", &[call::GET_XATTR, call::SET_XATTR, call::REMOVE_XATTR][..]),
    ] {
        all.push(Scenario {
            name: name.to_owned(),
            kind: Kind::Sparse,
            quirk: Quirk::None,
            elsewhere: false,
            lacking,
            ops: vec![
                open(),
                over(),
                Op::View(8_000..9_000, Some((8_100, 50))),
                Op::SetLen(LONGER),
                Op::Deploy(0..LONGER),
                Op::SetLen(LEN),
                fast(),
                open(),
                Op::Update(8_100, 300_000),
                spatial(),
            ],
        });
    }
    mismatches(medium, &mut all);
    if medium == Medium::PageCache {
        durable_points(&mut all);
    }
    all
}

/// Adds the scenarios that make, keep and go back to durable points.
fn durable_points(all: &mut Vec<Scenario>) {
    let mut add = |name: &str, kind: Kind, quirk: Quirk, first: Op, then: Vec<Op>| {
        let mut ops = vec![first];
        ops.extend(then);
        let (name, elsewhere, lacking) = (format!("{OF_POINTS}{name}"), false, &[][..]);
        all.push(Scenario { name, kind, quirk, elsewhere, lacking, ops });
    };
    let small = || Op::Write(10_000, 100);
    let over = || Op::Write(8_100, 400);
    let three_blocks = |n: u64| Op::Write(n * 17_000, THREE_BLOCKS);
    let with = |durability| Op::Open(Opening { durability, ..opening(Opened::Whole) });
    let (every, undone) = (Durability::EveryWrite, Durability::AllOrNothing);
    let none = Quirk::None;

    // The second and third write are in place.
    let by_journal =
        vec![small(), Op::Sync, over(), small(), Op::Tx(vec![(8_000, 99), (50, 9)]), Op::Sync];
    add("by journal", Kind::Plain, none, open(), by_journal);
    let by_flush = vec![Op::Write(500, 300_000), Op::Sync, small(), Op::Sync];
    add("by flush", Kind::Plain, none, open(), by_flush);
    // The fifth sync finds no room.
    let full = (0..5).flat_map(|n| [three_blocks(n), Op::Sync]).collect();
    add("a full journal", Kind::Plain, none, open(), full);
    let half = vec![
        three_blocks(0),
        Op::Sync,
        three_blocks(1),
        Op::Sync,
        three_blocks(2),
        Op::SyncAndCheckpoint,
        small(),
        Op::Sync,
    ];
    add("checkpoint in the background", Kind::Plain, none, open(), half);
    let interval = Some(Duration::from_millis(10));
    let waits = Op::Open(Opening { sync_every: interval, ..opening(Opened::Whole) });
    let written = vec![Op::WriteAndWait(10_000, 100), Op::WriteAndWait(8_100, 400)];
    add("by themselves", Kind::Plain, none, waits, written);
    let written = vec![
        small(),
        over(),
        Op::Tx(vec![(8_000, 99), (300_000, 900)]),
        Op::Update(8_000, 200_000),
        Op::SetLen(LONGER),
        Op::SetLen(130_001),
        Op::Deploy(0..130_000),
        small(),
    ];
    add("every write", Kind::Plain, none, with(every), written);
    let written =
        vec![small(), Op::Sync, over(), small(), Op::Close(CloseMode::Fast), with(undone), over()];
    add("all or nothing", Kind::Plain, none, with(undone), written);
    let back = |durability| Op::Open(Opening { durability, ..opening(Opened::Point) });
    let go_on = || vec![small(), over(), Op::Sync, small()];
    add("all or nothing, died", Kind::AllOrNothing, none, back(undone), go_on());
    add("died", Kind::Synced, none, open(), go_on());
    add("died in a sync", Kind::HalfSynced, none, open(), go_on());
    let by_sync = Durability::BySync;
    add("restarted", Kind::Synced, Quirk::Restarted, back(by_sync), go_on());
    add("restarted in a sync", Kind::HalfSynced, Quirk::Restarted, back(by_sync), go_on());
    let lengths = vec![
        small(),
        Op::Sync,
        over(),
        Op::SetLen(130_001),
        Op::SetLen(LONGER),
        Op::Write(LONGER - 5000, 5000),
        Op::Sync,
        Op::SetLen(0),
        Op::SetLen(LEN),
        small(),
    ];
    add("lengths", Kind::Plain, none, open(), lengths);
    let deployed = vec![over(), Op::Sync, over(), Op::Deploy(0..LEN), small(), Op::Sync, small()];
    add("deploy", Kind::Plain, none, open(), deployed);
    let closed = vec![
        small(),
        Op::Sync,
        over(),
        Op::Close(CloseMode::Fast),
        open(),
        over(),
        Op::Sync,
        small(),
        Op::Close(CloseMode::Spatial),
    ];
    add("closes", Kind::Plain, none, open(), closed);
    let gone = Mismatch::JournalGone;
    for (wish, expected) in [
        (OnMismatch::Refuse, Opened::Refused(gone)),
        (OnMismatch::Trust, Opened::Refused(gone)),
        (OnMismatch::Discard, Opened::HomeBytes),
    ] {
        let how = Op::Open(Opening { wish, ..opening(expected) });
        let then = if wish == OnMismatch::Discard { vec![small(), Op::Sync] } else { Vec::new() };
        add(&format!("no journal, {wish:?}"), Kind::Synced, Quirk::NoJournal, how, then);
    }
}

/// Adds a scenario for every mismatch with every wish.
fn mismatches(medium: Medium, all: &mut Vec<Scenario>) {
    use Mismatch as M;
    let table: &[(Quirk, Kind, Mismatch, Option<Opened>)] = &[
        (Quirk::NoReflection, Kind::Closed, M::ReflectionGone, None),
        (Quirk::Replaced, Kind::Closed, M::HomeReplaced, None),
        (Quirk::Swapped, Kind::Closed, M::Swapped, None),
        (Quirk::Corrupt, Kind::Crashed, M::Corrupt, None),
        (Quirk::LogOverflow, Kind::Crashed, M::Corrupt, None),
        (Quirk::CutReflection, Kind::Closed, M::ReflectionTruncated, None),
        (Quirk::CutHome, Kind::Crashed, M::HomeTruncated, None),
        (Quirk::Changed, Kind::Closed, M::HomeChanged, Some(Opened::Whole)),
        (Quirk::Restarted, Kind::Crashed, M::Restarted, Some(Opened::Whole)),
        (Quirk::Foreign, Kind::Closed, M::Foreign, None),
        (Quirk::Newer, Kind::Closed, M::Newer { version: 77 }, None),
    ];
    let mut push = |quirk: Quirk, kind, how: Opening, then: Vec<Op>| {
        let name = match quirk {
            Quirk::Foreign => format!("{quirk:?} of {kind:?}, {:?}", how.wish),
            Quirk::Restarted if how.forces_medium => format!("{quirk:?}, forced, {:?}", how.wish),
            _ => format!("{quirk:?}, {:?}", how.wish),
        };
        let mut ops = vec![Op::Open(how)];
        ops.extend(then);
        let (elsewhere, lacking) = (false, &[][..]);
        all.push(Scenario { name, kind, quirk, elsewhere, lacking, ops });
    };
    for &(quirk, kind, why, trusted) in table {
        let is_kept = matches!(why, M::Foreign | M::Newer { .. });
        let is_none = why == M::Restarted && medium == Medium::Dax;
        let forces_medium = why == M::Restarted && medium == Medium::Ram;
        let goes_back = why == M::Restarted && medium == Medium::PageCache;
        for wish in [OnMismatch::Refuse, OnMismatch::Discard, OnMismatch::Trust] {
            let expected = match wish {
                _ if is_none => Opened::Whole,
                _ if goes_back => Opened::Point,
                OnMismatch::Discard if !is_kept => Opened::HomeBytes,
                OnMismatch::Trust => trusted.unwrap_or(Opened::Refused(why)),
                _ => Opened::Refused(why),
            };
            let then = match expected {
                Opened::Refused(_) => Vec::new(),
                _ => vec![Op::Write(100, 50)],
            };
            push(quirk, kind, Opening { wish, forces_medium, ..opening(expected) }, then);
        }
    }
    for wish in [OnMismatch::Refuse, OnMismatch::Trust, OnMismatch::Discard] {
        // Without a mark no file is missing. The file in the place belongs to another pair and
        // stays.
        let how = Opening { wish, ..opening(Opened::Whole) };
        push(Quirk::Foreign, Kind::Plain, how, vec![Op::Write(100, 50)]);
        if medium == Medium::Ram {
            // Files in memory that still exist did not survive a restart, so there was none.
            let how = Opening { wish, ..opening(Opened::Whole) };
            push(Quirk::Restarted, Kind::Crashed, how, vec![Op::Write(100, 50)]);
        }
        let how = Opening { create: Some(777), wish, ..opening(Opened::New(777)) };
        push(Quirk::NoHome, Kind::Closed, how, Vec::new());
    }
    for wish in [OnMismatch::Refuse, OnMismatch::Discard] {
        let how = Opening { create: Some(777), wish, ..opening(Opened::New(777)) };
        push(Quirk::Renamed, Kind::Closed, how, vec![Op::Write(100, 50)]);
    }
    push(Quirk::Emptied, Kind::Closed, opening(Opened::HomeBytes), vec![Op::Write(100, 50)]);
}
