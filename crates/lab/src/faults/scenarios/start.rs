//! The initial states of the files, and their changes behind the crate's back.

use super::{Ground, LARGE, LEN, LONGER, PAGE};
use crate::faults::files::{Contents, Pair, Place};
use atomic_mmap::testing::entry::{
    OldBits, Redo, RedoPage, Seed, Sequence, Spill, Undo, UndoBody, WordId,
};
use atomic_mmap::testing::flip_record::{FlipRecord, sum_of};
use atomic_mmap::testing::recorder::Recorder;
use atomic_mmap::testing::superblock::{State, Superblock};
use atomic_mmap::testing::{LaneIndex, PageIndex, RegionIndex, call, layout};
use atomic_mmap::{AtomicMappedFile, CloseMode, DeployPolicy, Durability, Medium};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

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
    AtomicSync,
    /// A pair that was closed fast, with two snapshots, "a" and "b".
    Sealed,
    /// Like `Sealed`, and in use, with writes since the last durable point.
    SealedInUse,
}

/// A change of the files behind the crate's back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quirk {
    /// No change.
    None,
    /// The reflection file was removed.
    NoReflection,
    /// The journal was removed, and the machine restarted.
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
    pub(super) kind: Kind,
    pub(super) pair: Pair,
    /// The content of the file that both files together define.
    pub model: Vec<u8>,
    /// The last durable point, if the file keeps durable points.
    pub point: Vec<u8>,
    /// The snapshots.
    pub sealed: Sealed,
}

/// The bytes of snapshots, by their names.
pub type Sealed = BTreeMap<String, Vec<u8>>;

/// Returns the snapshots of an open file.
pub fn read_sealed(file: &AtomicMappedFile) -> atomic_mmap::Result<Sealed> {
    let read = |name: String| Ok((name.clone(), file.open_snapshot(&name)?.read_vec()?));
    file.snapshots().into_iter().map(|info| read(info.name)).collect()
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
            Start { kind, pair, model: bytes, point, sealed: Sealed::new() }
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
                Start { kind, pair, model, point, sealed: Sealed::new() }
            }
            Kind::Sealed | Kind::SealedInUse => Start::with_snapshots(kind, ground, place),
            Kind::Crashed => {
                plain(&home);
                let file = options().open(place.home()).expect("open");
                write_all(&file);
                let mut model = read_all(&file);
                let mut pair = Pair::capture(place).expect("capture");
                leave_entries(&mut pair, &mut model, ground.medium());
                // The open was the only durable point.
                Start { kind, pair, model, point: home, sealed: Sealed::new() }
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
                Start {
                    kind,
                    pair: Pair::capture(place).expect("capture"),
                    model,
                    point,
                    sealed: Sealed::new(),
                }
            }
            Kind::HalfGrown => {
                plain(&home);
                let recorder = Recorder::new();
                let file = options().open_recorded(&recorder, place.home()).expect("open");
                write_all(&file);
                recorder.fail_next(call::SET_LEN, 2, libc::EIO);
                file.set_len(LONGER).expect_err("the second file does not grow");
                let model = read_all(&file);
                Start {
                    kind,
                    pair: Pair::capture(place).expect("capture"),
                    model,
                    point: home,
                    sealed: Sealed::new(),
                }
            }
            Kind::Synced | Kind::AtomicSync => {
                plain(&home);
                let durability = match kind {
                    Kind::AtomicSync => Durability::AtomicSync,
                    _ => Durability::OnSync,
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
                Start {
                    kind,
                    pair: Pair::capture(place).expect("capture"),
                    model,
                    point,
                    sealed: Sealed::new(),
                }
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
                Start { kind, pair, point: model.clone(), model, sealed: Sealed::new() }
            }
        }
    }

    /// Makes a pair with two snapshots, and bytes that each of them keeps.
    fn with_snapshots(kind: Kind, ground: &Ground, place: &Place) -> Start {
        Contents::of(&bytes(1, LEN as usize)).write(&place.home()).expect("write");
        let options = ground.options().deploy(DeployPolicy::Manual);
        let file = options.open(place.home()).expect("open");
        for (name, offset) in [("a", 9_000), ("b", 30_000)] {
            file.write_at(&bytes(offset, 700), offset).expect("write");
            file.snapshot(name).expect("seal");
            file.write_at(&bytes(offset + 1, 20_000), offset / 2).expect("write");
        }
        let point = read_all(&file);
        let sealed = read_sealed(&file).expect("read");
        if kind == Kind::SealedInUse {
            file.sync().expect("sync");
            file.write_at(&bytes(8, 50_000), 8_000).expect("write");
            let model = read_all(&file);
            let pair = Pair::capture(place).expect("capture");
            return Start { kind, pair, model, point, sealed };
        }
        file.close(CloseMode::Fast).expect("close");
        let pair = Pair::capture(place).expect("capture");
        Start { kind, pair, model: point.clone(), point, sealed }
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
            // After a mere process crash no journal is needed.
            Quirk::Restarted | Quirk::NoJournal => {
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
        let ring = (0..layout::RING).map(|place| layout::flip_record(*lane, place));
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
        let sum = sum_of(&data);
        let entry = FlipRecord { sequence, page, slices: 1 << slice, sides, sum, page_sum: 0 };
        let at = layout::flip_record(lanes[0], sequence.place());
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

    // On page cache, slices that are written by a redo record have changed since the durable point.
    // So the slices of the next record change sides first.
    let page = PageIndex(15);
    if medium == Medium::PageCache {
        let changed = validity(reflection, page) ^ reflection.word(layout::durable_word(page));
        let at = layout::slice_word(page);
        let word = reflection.word(at) ^ (0b110 & !changed);
        reflection.put(at, &word.to_le_bytes());
    }

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
    let undo = Undo { sequence, body: UndoBody::Redo(Redo { len: None, pages: vec![stays] }) };
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
