//! Images that crashes leave, made by cutting off recorded runs at many places.
//!
//! Each run does the steps of a list below, on its own file. The trace is replayed up to some
//! event, as if the process had crashed there. The images are the same in every process, except for
//! the identity of the home file. A target sets that to the file that it uses. All pairs get the
//! uuid [`UUID`], with matching checksums in the lanes and in the journal.

use super::ground;
use super::image::{Contents, Image, Player};
use super::input::filling;
use super::open_bytes::UUID;
use super::{points, reading, sums};
use atomic_mmap::testing::recorder::{Event, Recorder, What};
use atomic_mmap::testing::{FileId, PageIndex, RegionIndex, layout};
use atomic_mmap::{AtomicMappedFile, CloseMode, DeployPolicy, Durability, Medium, Options};
use std::collections::BTreeSet;
use std::sync::OnceLock;

/// A step of a run.
enum Do {
    /// Writes this number of bytes at an offset.
    Write(u64, usize),
    /// Does this number of small writes, one after the other, to a few slices of three pages. The
    /// ring wraps around, and newer records name the slots of older ones.
    InTurn(u64),
    /// Writes at several offsets in one transaction.
    Together(&'static [(u64, usize)]),
    /// Writes this number of bytes on each of this number of pages, in one transaction.
    OnPages(u64, usize),
    /// Deploys a range.
    Deploy(u64, u64),
    /// Changes the length.
    SetLen(u64),
    /// Changes the length and writes at several offsets, in one transaction.
    Resize(u64, &'static [(u64, usize)]),
    /// Takes a view of a range until the end of the run.
    View(u64, u64),
    /// Closes fast, and reopens.
    Reopen,
    /// Closes for good.
    Close,
    /// Makes a durable point.
    Sync,
}

use Do::{Close, Deploy, InTurn, OnPages, Reopen, Resize, SetLen, Sync, Together, View, Write};

/// The medium and the durability of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Durable at once: by logged flips, by flips, by undo records and by redo data.
    Dax,
    /// Durable at the last durable point, after a restart of the machine.
    PageCache,
    /// Durable at the last durable point, after any crash.
    AtomicSync,
}

use Mode::{AtomicSync, Dax, PageCache};

/// A run: the initial length, the mode and the steps.
type Script = (u64, Mode, &'static [Do]);

const SCRIPTS: [Script; 16] = [
    (20_000, Dax, &[Write(0, 40), Write(100, 300), Write(20, 64), Write(4000, 64), Write(0, 64)]),
    (
        20_000,
        Dax,
        &[
            Together(&[(0, 9), (40, 9)]),
            Write(0, 64),
            Together(&[(64, 9), (104, 9)]),
            Deploy(0, 8192),
        ],
    ),
    (
        70_000,
        Dax,
        &[Write(0, 32_768), Write(4096, 4096), Write(100, 9000), Write(0, 64), Deploy(0, 70_000)],
    ),
    (
        300_000,
        Dax,
        &[
            Write(262_000, 300),
            Write(250_000, 20_000),
            Together(&[(5, 100), (9000, 4), (270_000, 90)]),
        ],
    ),
    (400_000, Dax, &[OnPages(10, 97), Write(0, 100), OnPages(64, 90), Write(64, 64)]),
    (
        50_000,
        Dax,
        &[
            Write(0, 50_000),
            SetLen(30_100),
            Write(30_000, 90),
            SetLen(90_000),
            Write(60_000, 20_000),
        ],
    ),
    (
        30_000,
        Dax,
        &[
            Write(0, 5000),
            View(0, 8192),
            Write(10, 100),
            Write(0, 8192),
            Write(50, 64),
            Reopen,
            Write(0, 70),
            Write(0, 4096),
        ],
    ),
    (30_000, Dax, &[Write(0, 20_000), Reopen, Write(8192, 8192), Close]),
    (30_000, Dax, &[InTurn(50), Deploy(0, 4096), InTurn(20), Write(5000, 900), InTurn(5)]),
    // Runs with durable points.
    (
        20_000,
        PageCache,
        &[Write(0, 40), Write(20, 64), Sync, Write(0, 100), Write(30, 40), Sync, Write(64, 64)],
    ),
    (
        300_000,
        PageCache,
        &[
            Write(0, 30_000),
            Sync,
            Write(100, 9000),
            Together(&[(5, 100), (9000, 4), (270_000, 90)]),
            OnPages(10, 60),
            Sync,
            Write(4096, 8192),
        ],
    ),
    (
        90_000,
        PageCache,
        &[
            Write(0, 50_000),
            Sync,
            Write(70, 4000),
            SetLen(30_100),
            SetLen(60_000),
            Write(29_000, 9000),
        ],
    ),
    (
        40_000,
        PageCache,
        &[
            Write(0, 9000),
            Deploy(0, 8192),
            Write(10, 100),
            Reopen,
            Write(0, 700),
            Sync,
            Write(5, 5),
            Close,
        ],
    ),
    (
        60_000,
        AtomicSync,
        &[
            Write(0, 9000),
            Sync,
            Write(10, 100),
            SetLen(70_000),
            Sync,
            Write(0, 30_000),
            Reopen,
            Write(9, 9),
        ],
    ),
    // Runs that change length and bytes together.
    (
        20_000,
        Dax,
        &[
            Write(0, 20_000),
            Resize(30_000, &[(19_990, 90), (29_000, 1000)]),
            Resize(90_000, &[(0, 90_000)]),
            Resize(700, &[(0, 700)]),
            Resize(8192, &[(600, 200)]),
        ],
    ),
    (
        20_000,
        PageCache,
        &[
            Write(0, 20_000),
            Sync,
            Resize(30_000, &[(19_990, 90), (29_000, 1000)]),
            Resize(50_000, &[(0, 50_000)]),
            Resize(9000, &[(40, 700), (8900, 100)]),
            Sync,
            Resize(9100, &[(9000, 100)]),
        ],
    ),
];
/// Number of images of each run.
const KILLS: usize = 12;
/// Number of images.
pub const COUNT: usize = SCRIPTS.len() * KILLS;

/// Returns the image of this number, modulo the number of images.
pub fn image(n: usize) -> Image {
    made()[n % COUNT].image.clone()
}

/// An image, and its possible contents.
pub struct Template {
    /// The files that the crash left.
    pub image: Image,
    /// The bytes before and after the operation in which the process crashed. Empty if that was the
    /// first open of the pair.
    pub states: Vec<Contents>,
    /// The bytes that a restart of the machine may go back to: those of the last durable point, and
    /// of one in progress. Empty without durable points, or if `states` is empty.
    pub points: Vec<Contents>,
}

/// Returns all templates. The last template of each run is one of its end.
pub fn made() -> &'static [Template] {
    static MADE: OnceLock<Vec<Template>> = OnceLock::new();
    MADE.get_or_init(|| {
        // A thread of its own has the same lanes in every process, whatever other threads did.
        let make = || SCRIPTS.iter().enumerate().flat_map(|(n, script)| run(n, script)).collect();
        std::thread::scope(|scope| scope.spawn(make).join().expect("no panic"))
    })
}

/// The state after a step: number of events, bytes, and bytes at the last durable point.
type After = (usize, Contents, Contents);

fn run(number: usize, (len, mode, script): &Script) -> Vec<Template> {
    let (events, states) = ground::with(|ground| {
        let path = ground.path("template.dat");
        let recorder = Recorder::new();
        let options = || -> Options {
            let file = AtomicMappedFile::options().create(true).len(*len).max_len(4 << 20);
            let file = file.close_on_drop(CloseMode::Fast);
            let file = file.deploy(DeployPolicy::Manual).journal_len(64 << 10);
            match mode {
                Dax => file.medium(Medium::Dax),
                PageCache => file.medium(Medium::PageCache),
                AtomicSync => file.medium(Medium::Ram).durability(Durability::AtomicSync),
            }
        };
        let open = || options().open_recorded(&recorder, &path).expect("to open");
        let mut states: Vec<After> = Vec::new();
        let mut bytes = Contents::of_len(*len);
        let mut point = bytes.clone();
        let mut file = Some(open());
        let mut events = recorder.take();
        states.push((events.len(), bytes.clone(), point.clone()));
        for (n, step) in script.iter().enumerate() {
            let seed = (number * 100 + n + 1) as u64;
            let open_file = file.as_ref().expect("nothing comes after the close");
            match step {
                Write(at, len) => {
                    let what = filling(seed, *len);
                    open_file.write_at(&what, *at).expect("to write");
                    bytes.write(&what, *at);
                }
                InTurn(count) => {
                    for n in 0..*count {
                        let (what, at) = (filling(seed * 1000 + n, 48), n % 8 * 1400 + n / 8);
                        open_file.write_at(&what, at).expect("to write");
                        bytes.write(&what, at);
                        events.extend(recorder.take());
                        states.push((events.len(), bytes.clone(), point.clone()));
                    }
                }
                Together(parts) => together(open_file, &mut bytes, None, parts, seed),
                Resize(len, parts) => together(open_file, &mut bytes, Some(*len), parts, seed),
                OnPages(at, pages) => {
                    let parts: Vec<_> = (0..*pages as u64).map(|n| (n * 4096 + at, 10)).collect();
                    together(open_file, &mut bytes, None, &parts, seed);
                }
                Deploy(start, end) => drop(open_file.deploy(*start..*end).expect("to deploy")),
                SetLen(len) => {
                    open_file.set_len(*len).expect("another length");
                    bytes.set_len(*len);
                }
                View(start, end) => {
                    // Leaked, so that it pins its pages until the file is closed.
                    std::mem::forget(open_file.view(*start..*end).expect("a view"));
                }
                Reopen => {
                    close(&mut file, CloseMode::Fast);
                    file = Some(open());
                }
                Close => close(&mut file, CloseMode::Spatial),
                Sync => open_file.sync().map(drop).expect("to sync"),
            }
            let makes_point = match step {
                Write(..) | InTurn(_) | Together(_) | OnPages(..) | View(..) => false,
                SetLen(len) | Resize(len, _) => *len < states.last().expect("some").1.len,
                Deploy(..) | Reopen | Close | Sync => true,
            };
            if makes_point {
                point = bytes.clone();
            }
            events.extend(recorder.take());
            states.push((events.len(), bytes.clone(), point.clone()));
        }
        drop(file);
        (events, states)
    });
    let total = states.last().expect("some").0;
    // Mostly in the middle of operations, and at least one at the end. Runs with journal records
    // have one right after the last record: it counts, but the durable words do not contain it yet.
    let opened = states[0].0;
    let mut at: BTreeSet<usize> = BTreeSet::from([total]);
    let is_record =
        |event: &Event| matches!(event.what, What::WriteDurably { file: FileId::Journal, .. });
    let record = events.iter().rposition(is_record);
    at.extend(record.map(|n| n + 1));
    let certain = at.len();
    let mut next = filling(number as u64 + 1, 4 * KILLS).into_iter();
    while at.len() < KILLS {
        let far: u32 = next.by_ref().take(4).fold(0, |sum, byte| sum << 8 | u32::from(byte));
        let from = if at.len() == certain { opened / 2 } else { opened };
        // If the numbers run out or coincide, take the next free one.
        let mut place = from + far as usize % (total - from);
        while !at.insert(place) {
            place = (place + 1) % total;
        }
    }
    let mut player = Player::new(&Image::default());
    let mut played = 0;
    at.into_iter()
        .map(|at| {
            events[played..at].iter().for_each(|event| player.play(event));
            played = at;
            let mut image = player.image(&None);
            rename(&mut image);
            let after = states.iter().position(|(done, ..)| *done >= at);
            let around = match after {
                None | Some(0) => 0..0,
                Some(n) => n - 1..n + 1,
            };
            let around = &states[around];
            let points = || around.iter().map(|(.., point)| point.clone()).collect();
            let bytes = || around.iter().map(|(_, bytes, _)| bytes.clone()).collect();
            match mode {
                Dax => Template { image, states: bytes(), points: Vec::new() },
                PageCache => Template { image, states: bytes(), points: points() },
                AtomicSync => Template { image, states: points(), points: points() },
            }
        })
        .collect()
}

fn close(file: &mut Option<AtomicMappedFile>, mode: CloseMode) {
    file.take().expect("an open file").close(mode).expect("to close");
}

fn together(
    file: &AtomicMappedFile,
    bytes: &mut Contents,
    len: Option<u64>,
    parts: &[(u64, usize)],
    seed: u64,
) {
    let mut tx = file.begin();
    if let Some(len) = len {
        tx.set_len(len).expect("another length");
        bytes.set_len(len);
    }
    for (at, len) in parts {
        let what = filling(seed * 1000 + at, *len);
        tx.write_at(&what, *at).expect("to write");
        bytes.write(&what, *at);
    }
    tx.commit().expect("to commit");
}

/// Gives the pair the uuid [`UUID`]. Intact records stay intact, and torn records stay torn.
pub fn rename(image: &mut Image) {
    let Some(reflection) = &mut image.reflection else { return };
    let Some((uuid, session)) = sums::session_of(reflection) else { return };
    let of_records = sums::session_of_records(reflection).map_or(session, |(_, session)| session);
    let whole = sums::whole_entries(reflection, &uuid, session);
    for at in layout::SUPERBLOCKS {
        if reflection.bytes(at, 8) == b"AtomMmap" {
            reflection.write(&UUID, at + 32);
        }
    }
    if let Some(journal) = &mut image.journal {
        let seed = sums::journal_seed(&uuid, of_records);
        let blocks: Vec<u64> = journal.page_numbers().collect();
        let is_whole = |block: &u64| points::record(journal, block * sums::BLOCK, seed).is_some();
        let whole: BTreeSet<u64> = blocks.into_iter().filter(is_whole).collect();
        sums::repair_records(journal, &UUID, of_records, |block| whole.contains(&block));
        for (block, header) in points::headers(journal) {
            sums::put_header(journal, block, &UUID, header.from, header.to);
        }
    }
    let is_whole_floor = sums::FLOORS
        .map(|at| points::is_whole_floor(&uuid, &reflection.bytes(at, sums::FLOOR_LEN)));
    sums::repair_floors(reflection, &UUID, |place| is_whole_floor[place]);
    sums::repair_superblocks(reflection);
    sums::repair_entries(reflection, &UUID, session, |lane, part| whole.contains(&(lane, part)));
}

/// Turns an image into one of another boot. Overwrites the data that no longer counts then.
pub(super) fn restart(image: &mut Image, chance: u8) {
    let is_undone = reading::goes_back_after_restart(image);
    let has_store = image.snapshots.is_some();
    let Some(reflection) = &mut image.reflection else { return };
    for at in layout::SUPERBLOCKS {
        if reflection.bytes(at, 8) == b"AtomMmap" {
            // By the boot id, by a new mount of the file system, or by the time since the start. A
            // store of snapshots names the session by the mount and the time, so they stay.
            match chance % 4 {
                _ if has_store => reflection.write(&[0xB0; 16], at + 152),
                0 | 1 => reflection.write(&[0xB0; 16], at + 152),
                2 => reflection.write(&[0xB0; 8], at + 464),
                _ => reflection.write(&[0xB0; 8], at + 472),
            }
        }
    }
    sums::repair_superblocks(reflection);
    if chance == 0 || !is_undone {
        return;
    }
    let places = [
        (layout::LENGTH_WORD, 16),
        (layout::LANES, 3 * layout::LANE),
        (layout::slice_word(PageIndex(0)), 8 * usize::from(chance)),
        (layout::region_word(RegionIndex(0)), 24),
    ];
    for (at, len) in places {
        reflection.write(&filling(u64::from(chance), len), at);
    }
    reflection.trim();
}
