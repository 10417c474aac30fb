//! Which images does a crash leave? A few, made by killing recorded runs at many places.
//!
//! Each run does what a list below says, on a file of its own; the trace is played up to some event, as
//! if the process had died there. The images are the same in every process but for the identity of the
//! home file, which is made that of the file that they are put into: the pair's name and with it the
//! checksums of what is in the lanes are made those of [`UUID`].

use super::ground;
use super::image::{Contents, Image, Player};
use super::input::filling;
use super::open_bytes::UUID;
use super::sums;
use atomic_mmap::testing::layout;
use atomic_mmap::testing::recorder::Recorder;
use atomic_mmap::{AtomicMappedFile, CloseMode, DeployPolicy, Medium, Options};
use std::collections::BTreeSet;
use std::sync::OnceLock;

/// What a run does.
enum Do {
    /// Writes so many bytes at a place.
    Write(u64, usize),
    /// The same at several places, as one.
    Together(&'static [(u64, usize)]),
    /// So many bytes on each of so many pages, as one.
    OnPages(u64, usize),
    /// Brings a range home.
    Deploy(u64, u64),
    /// Changes the length.
    SetLen(u64),
    /// Views a range for good: until the run ends.
    View(u64, u64),
    /// Closes fast, and opens again.
    Reopen,
    /// Closes for good.
    Close,
}

use Do::{Close, Deploy, OnPages, Reopen, SetLen, Together, View, Write};

/// A run: the length to begin with, and what is done.
type Script = (u64, &'static [Do]);

const SCRIPTS: [Script; 8] = [
    (20_000, &[Write(0, 40), Write(100, 300), Write(20, 64), Write(4000, 64), Write(0, 64)]),
    (
        20_000,
        &[
            Together(&[(0, 9), (40, 9)]),
            Write(0, 64),
            Together(&[(64, 9), (104, 9)]),
            Deploy(0, 8192),
        ],
    ),
    (
        70_000,
        &[Write(0, 32_768), Write(4096, 4096), Write(100, 9000), Write(0, 64), Deploy(0, 70_000)],
    ),
    (
        300_000,
        &[
            Write(262_000, 300),
            Write(250_000, 20_000),
            Together(&[(5, 100), (9000, 4), (270_000, 90)]),
        ],
    ),
    (400_000, &[OnPages(10, 97), Write(0, 100), OnPages(64, 90), Write(64, 64)]),
    (
        50_000,
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
    (30_000, &[Write(0, 20_000), Reopen, Write(8192, 8192), Close]),
];
/// Images of each run.
const KILLS: usize = 12;
/// Number of images.
pub const COUNT: usize = SCRIPTS.len() * KILLS;

/// The image of this number, modulo the number of images.
pub fn image(n: usize) -> Image {
    made()[n % COUNT].image.clone()
}

/// An image, and what may be in it.
pub struct Template {
    /// What the crash left.
    pub image: Image,
    /// The bytes before and after the operation in which the process died. Empty: while the pair was
    /// being opened for the first time.
    pub states: Vec<Contents>,
}

/// All of them. The last of each run is one at its end.
pub fn made() -> &'static [Template] {
    static MADE: OnceLock<Vec<Template>> = OnceLock::new();
    MADE.get_or_init(|| {
        // A thread of its own: its lanes are then the same in every process, whatever this one did.
        let make = || SCRIPTS.iter().enumerate().flat_map(|(n, script)| run(n, script)).collect();
        std::thread::scope(|scope| scope.spawn(make).join().expect("no panic"))
    })
}

fn run(number: usize, (len, script): &Script) -> Vec<Template> {
    let (events, states) = ground::with(|ground| {
        let path = ground.path("template.dat");
        let recorder = Recorder::new();
        let options = || -> Options {
            let file = AtomicMappedFile::options().create(true).len(*len).max_len(4 << 20);
            let file = file.close_on_drop(CloseMode::Fast);
            file.medium(Medium::Dax).deploy(DeployPolicy::Manual)
        };
        let open = || options().open_recorded(&recorder, &path).expect("to open");
        let mut states = Vec::new();
        let mut bytes = Contents::of_len(*len);
        let mut file = Some(open());
        let mut events = recorder.take();
        states.push((events.len(), bytes.clone()));
        for (n, step) in script.iter().enumerate() {
            let seed = (number * 100 + n + 1) as u64;
            let open_file = file.as_ref().expect("nothing comes after the close");
            match step {
                Write(at, len) => {
                    let what = filling(seed, *len);
                    open_file.write_at(&what, *at).expect("to write");
                    bytes.write(&what, *at);
                }
                Together(parts) => together(open_file, &mut bytes, parts, seed),
                OnPages(at, pages) => {
                    let parts: Vec<_> = (0..*pages as u64).map(|n| (n * 4096 + at, 10)).collect();
                    together(open_file, &mut bytes, &parts, seed);
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
            }
            events.extend(recorder.take());
            states.push((events.len(), bytes.clone()));
        }
        drop(file);
        (events, states)
    });
    let total = states.last().expect("some").0;
    // Mostly in the middle of operations, and at least one at the end.
    let opened = states[0].0;
    let mut at: BTreeSet<usize> = BTreeSet::from([total]);
    let mut next = filling(number as u64 + 1, 4 * KILLS).into_iter();
    while at.len() < KILLS {
        let far: u32 = next.by_ref().take(4).fold(0, |sum, byte| sum << 8 | u32::from(byte));
        let from = if at.len() == 1 { opened / 2 } else { opened };
        // Where numbers run out or fall on each other: the next one that is free.
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
            if let Some(reflection) = &mut image.reflection {
                rename(reflection);
            }
            let after = states.iter().position(|(done, _)| *done >= at);
            let around = match after {
                None | Some(0) => 0..0,
                Some(n) => n - 1..n + 1,
            };
            let states = states[around].iter().map(|(_, bytes)| bytes.clone()).collect();
            Template { image, states }
        })
        .collect()
}

fn close(file: &mut Option<AtomicMappedFile>, mode: CloseMode) {
    file.take().expect("an open file").close(mode).expect("to close");
}

fn together(file: &AtomicMappedFile, bytes: &mut Contents, parts: &[(u64, usize)], seed: u64) {
    let mut tx = file.begin();
    for (at, len) in parts {
        let what = filling(seed * 1000 + at, *len);
        tx.write_at(&what, *at).expect("to write");
        bytes.write(&what, *at);
    }
    tx.commit().expect("to commit");
}

/// Gives the pair the name [`UUID`]. Entries that were whole stay whole, and torn ones torn.
pub fn rename(reflection: &mut Contents) {
    let Some((uuid, session)) = sums::session_of(reflection) else { return };
    let is_whole = |lane: usize, place: u8| {
        let at =
            layout::LANES + (lane * layout::LANE + usize::from(place) * layout::REDO_ENTRY) as u64;
        let bytes = reflection.bytes(at, layout::UNDO_ENTRY_LEN);
        let len = if place == 2 { sums::undo_len(&bytes) } else { sums::redo_len(&bytes) };
        let sum = |bytes: &[u8]| sums::of_entry(sums::seed(&uuid, session, lane, place), bytes);
        len.is_some_and(|len| sum(&bytes[..len]) == sums::small(&bytes, 8))
    };
    let whole: BTreeSet<(usize, u8)> = (0..layout::LANE_COUNT)
        .flat_map(|lane| [(lane, 0), (lane, 1), (lane, 2)])
        .filter(|(lane, place)| is_whole(*lane, *place))
        .collect();
    for at in layout::SUPERBLOCKS {
        if reflection.bytes(at, 8) == b"AtomMmap" {
            reflection.write(&UUID, at + 32);
        }
    }
    sums::repair_superblocks(reflection);
    sums::repair_entries(reflection, &UUID, session, |lane, place| whole.contains(&(lane, place)));
}
