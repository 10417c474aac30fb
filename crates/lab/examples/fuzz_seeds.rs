//! What does the fuzzer begin with? Crash images of `tests/power`, written as inputs of its targets.
//!
//! ```text
//! cargo run --release -p lab --example fuzz_seeds -- <folder>
//! ```
//!
//! writes a folder for each target. Runs of the real code are recorded and cut off as in `tests/power`;
//! of the images those are kept that show something new: other kinds of entries, words, superblocks.
//! Which bytes the files hold does not matter, so they become fillings; entries, words and superblocks
//! stay as they were. What is committed in `fuzz/corpus/` is what libFuzzer's merge kept of these and
//! of what it found on its own (`fuzz/README.md`).

#![allow(dead_code, reason = "parts of tests/power that this does not need")]

#[path = "../../../tests/power/files.rs"]
mod files;
#[path = "../../../tests/power/media.rs"]
mod media;
#[path = "../../../tests/power/ops.rs"]
mod ops;
#[path = "../../../tests/power/rng.rs"]
mod rng;
#[path = "../../../tests/power/run.rs"]
mod run;

use atomic_mmap::testing::layout;
use files::Folder;
use lab::fuzzing::image::Contents;
use lab::fuzzing::open_bytes::UUID;
use lab::fuzzing::patch::{Place, Writer};
use lab::fuzzing::{sums, templates};
use media::{Choice, Image};
use ops::Model;
use rng::Rng;
use run::{Plan, Player, positions, record};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SEED: u64 = 20_261_121;
/// Recorded runs, and images of each.
const RUNS: u64 = 120;
const IMAGES: usize = 12;
/// Longer inputs are left out: a mutation of them hits what matters too seldom.
const LONGEST: usize = 3000;
/// The reach of a patch in the home file, and in the log area.
const REACH: u64 = 4 << 20;

fn main() {
    let folder = PathBuf::from(std::env::args().nth(1).expect("a folder to write to"));
    let (mut mutated, mut bytes) = (BTreeSet::new(), BTreeSet::new());
    let scratch = Folder::new();
    let base = Rng::new(SEED);
    let mut counts = [0; 2];
    for n in 0..RUNS {
        let mut rng = base.fork(n);
        let place = ops::Place::random(&mut rng);
        if place.origin > 0 {
            continue;
        }
        let (threads, ops) = (2, 4 + rng.below(10));
        let sessions = 1 + usize::from(rng.chance(40));
        let plan =
            Plan { place, threads, concurrent: false, sessions, ops, crowd: 0, script: vec![] };
        let states = [0, plan.place.first_len].map(|len| Arc::new(Model::new(0, len)));
        let run = record(&scratch, &Image::default(), &states, &plan, &mut rng).expect("a run");
        let mut player = Player::new(&run);
        for (n, at) in positions(&run.trace, IMAGES, false, &mut rng).into_iter().enumerate() {
            let mut rng = rng.fork(n as u64);
            player.play(at);
            let image = player.media.image(Choice::random(&mut rng), &mut rng);
            let Some(found) = convert(&image.reflection) else { continue };
            let home = convert(&Some(image.home.clone())).expect("a home file");
            let seeds = [
                (mutated_seed(&home, &found, image.marked, &mut rng), &mut mutated),
                (bytes_seed(&home, &found, image.marked, &mut rng), &mut bytes),
            ];
            for (n, (seed, known)) in seeds.into_iter().enumerate() {
                if seed.len() <= LONGEST && known.insert(signature(&found, n)) {
                    let target = ["open_mutated", "open_bytes"][n];
                    keep(&folder, target, &format!("crash-{:03}", counts[n]), &seed);
                    counts[n] += 1;
                }
            }
        }
    }
    let others =
        hostile(&folder) + mismatches(&folder) + operations(&folder, &base) + entries(&folder);
    println!("{} crash images, {others} others", counts[0] + counts[1]);
}

fn keep(folder: &Path, target: &str, name: &str, seed: &[u8]) {
    let folder = folder.join(target);
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join(name), seed).expect("to write a seed");
}

fn convert(from: &Option<media::Contents>) -> Option<Contents> {
    let from = from.as_ref()?;
    let pages = from.pages.iter().map(|(n, page)| (*n, Arc::new(**page))).collect();
    Some(Contents { len: from.len, pages })
}

/// What kind of image this is: of every lane which entries are there, and how much is away.
fn signature(reflection: &Contents, target: usize) -> Vec<u64> {
    let mut signs = vec![target as u64];
    for at in layout::SUPERBLOCKS {
        signs.push(reflection.word(at + 24) & 3);
    }
    let words = [layout::LENGTH_WORD, layout::HIGH_WATER_WORD].map(|at| reflection.word(at));
    signs.push(u64::from(words[0] == words[1]));
    for lane in 0..8u64 {
        let at = layout::LANES + lane * layout::LANE as u64;
        let [a, b, undo] =
            [0, layout::REDO_ENTRY, layout::UNDO_ENTRY].map(|n| reflection.word(at + n as u64));
        let kind = |header: u64| match header {
            0 => 0,
            header if header & 0xFF_FFFF == 0 => 1,
            _ => 2,
        };
        signs.push(kind(a) * 100 + kind(b) * 10 + (undo >> 16 & 0xF));
    }
    let away = |at: u64| runs(reflection, at, at + 0x8000).len() as u64;
    signs.push(away(layout::SUPERCHUNKS).min(3));
    signs.push(away(layout::region_words(0)).min(3));
    signs
}

/// The parts of a range that are not zero, in words.
fn runs(contents: &Contents, start: u64, end: u64) -> Vec<(u64, u64)> {
    let mut found: Vec<(u64, u64)> = Vec::new();
    for page in contents.pages.range(start / 4096..end.div_ceil(4096)).map(|(n, _)| n * 4096) {
        for at in (page.max(start)..end.min(page + 4096)).step_by(8) {
            if contents.word(at) == 0 {
                continue;
            }
            match found.last_mut() {
                // A patch costs more than the two zero words between.
                Some((_, to)) if at - *to <= 16 => *to = at + 8,
                _ => found.push((at, at + 8)),
            }
        }
    }
    found
}

/// Where two files are not the superblocks: the patches that make them.
fn patches(writer: &mut Writer, home: &Contents, reflection: &Contents) {
    writer.number(Place::HomeLen, home.len);
    let right = layout::reflection_len(home.len);
    let difference = match reflection.len.checked_sub(right) {
        Some(longer) => 0x2_0000 + longer / 4096,
        None => (right - reflection.len) / 4096,
    };
    writer.number(Place::ReflectionLen, difference);
    writer.literal(Place::Words, 0, &reflection.bytes(layout::LENGTH_WORD, 16));
    let mut literal = |place: Place, start: u64, end: u64| {
        for (from, to) in runs(reflection, start, end) {
            let bytes = reflection.bytes(from, (to - from) as usize);
            writer.literal(place, from - start, &bytes);
        }
    };
    let lanes = layout::LANES + (layout::LANE_COUNT * layout::LANE) as u64;
    literal(Place::Lanes, layout::LANES, lanes);
    literal(Place::Log, layout::LOG_AREA, layout::LOG_AREA + REACH);
    let words = layout::SUPERCHUNKS;
    literal(Place::SliceWords, words, words + 8192);
    let regions = layout::region_words(0);
    literal(Place::RegionWords, regions, regions + 256);
    let mut fill = |place: Place, contents: &Contents, start: u64, seed: u8| {
        let mut run: Option<(u64, u64)> = None;
        for (from, to) in runs(contents, start, start + REACH) {
            match &mut run {
                // Gaps do not matter where nothing but bytes is.
                Some((_, end)) if from - *end < 4096 => *end = to,
                _ => {
                    if let Some((from, to)) = run.replace((from, to)) {
                        writer.filled(place, from - start, to - from, seed);
                    }
                }
            }
        }
        if let Some((from, to)) = run {
            writer.filled(place, from - start, to - from, seed);
        }
    };
    fill(Place::Home, home, 0, 1);
    fill(Place::Pages, reflection, layout::reflection(0), 2);
}

fn mutated_seed(home: &Contents, reflection: &Contents, marked: bool, rng: &mut Rng) -> Vec<u8> {
    let mut reflection = reflection.clone();
    templates::rename(&mut reflection);
    // Superblocks are repaired, for they are given another home file. Entries need not be; where they
    // are, torn ones become whole, and mutations of them stay so.
    let flags = 1 | u8::from(rng.chance(50)) << 1 | u8::from(marked) << 3;
    let mut writer = Writer(vec![0, rng.below(256) as u8, 0, flags, 255]);
    for (place, at) in [Place::SuperblockA, Place::SuperblockB].into_iter().zip(layout::SUPERBLOCKS)
    {
        let bytes = reflection.bytes(at, sums::SUPERBLOCK_LEN);
        // Version to uuid, the lengths at close, the boot and the name.
        writer.literal(place, 0, &bytes[..88]);
        writer.literal(place, 120, &bytes[120..180]);
    }
    patches(&mut writer, home, &reflection);
    writer.0
}

fn bytes_seed(home: &Contents, reflection: &Contents, marked: bool, rng: &mut Rng) -> Vec<u8> {
    let mut reflection = reflection.clone();
    templates::rename(&mut reflection);
    // The target's superblocks are of session 5.
    sums::repair_entries(&mut reflection, &UUID, 5, |_, _| true);
    let begin = 1 | u8::from(marked) << 3;
    let mut writer = Writer(vec![0, rng.below(256) as u8, begin]);
    patches(&mut writer, home, &reflection);
    writer.0
}

/// What no crash leaves, and somebody could write: entries that say the most that there is room to say.
fn hostile(folder: &Path) -> usize {
    let entry = |kind: u64, records: &[u64]| {
        let header = 1 << 24 | kind << 16 | (records.len() / 3) as u64;
        let words = [&[header, 0][..], records].concat();
        words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>()
    };
    let spill = layout::LOG_AREA_LEN;
    let slice = 1u64 << 56;
    let mut lanes: Vec<Vec<(u64, Vec<u8>)>> = Vec::new();
    for kind in [sums::KIND_SPILLED_UNDO, sums::KIND_SPILLED_REDO] {
        // All of the log area, a part of it, and more than there is by two.
        lanes.push(vec![(0, entry(kind, &[0, spill, 0]))]);
        lanes.push(vec![(7, entry(kind, &[spill - 4096, 4080, 0]))]);
        lanes.push((0..2).map(|lane| (lane, entry(kind, &[4096, spill - 4096, 0]))).collect());
    }
    for mask in [u64::MAX, 1] {
        let words: Vec<u64> =
            (0..84).flat_map(|n| [(slice * (1 + n % 2)) | n, mask, mask]).collect();
        lanes.push(vec![(79, entry(sums::KIND_UNDO, &words))]);
    }
    let lengths = [300_000, 4097, 1, 0, 2 << 20];
    let mut count = 0;
    for (entries, len) in lanes.iter().zip(lengths.iter().cycle()) {
        let mut writer = Writer(vec![0, 0xFE, 0, 3, 255]);
        writer.number(Place::Lengths, *len);
        writer.filled(Place::Pages, 0, *len, 3);
        for (lane, bytes) in entries {
            writer.literal(Place::Lanes, lane * 4096 + layout::UNDO_ENTRY as u64, bytes);
        }
        keep(folder, "open_mutated", &format!("hostile-{count:02}"), &writer.0);
        count += 1;
    }
    // Entries by their fields: a lane with both redo entries, and one of each kind of undo entry.
    for (kind, len) in (0..3).flat_map(|kind| [(kind, 30_000), (kind, 300_001), (kind, 4096)]) {
        let mut writer = Writer(vec![0, 0xFE, 0, 3, 255]);
        writer.number(Place::Lengths, len);
        writer.filled(Place::Home, 0, len, 4);
        for position in 0..2 {
            writer.literal(Place::Redo, 5 | position << 8, &[0, 1, 0, 100, 0, 90, 0, 7, 0]);
        }
        let words: Vec<u8> = (0..5).flat_map(|n| [0, n, 0, n, 0xFF]).collect();
        writer.literal(Place::Undo, 6 | kind << 8, &words);
        keep(folder, "open_mutated", &format!("hostile-{count:02}"), &writer.0);
        count += 1;
    }
    // Long files, by the place's origins, with words set everywhere.
    for origin in 0..4u8 {
        for place in [Place::SliceWords, Place::RegionWords] {
            let mut writer = Writer(vec![0x10, 0x3E, 0, 3, 255]);
            let from = writer.0.len();
            writer.number(Place::Lengths, 900_000);
            writer.0[from] |= origin << 4;
            let from = writer.0.len();
            writer.literal(place, 0, &[0xA5; 24]);
            writer.0[from] |= origin << 4;
            keep(folder, "open_mutated", &format!("hostile-{count:02}"), &writer.0);
            count += 1;
        }
    }
    count
}

fn mismatches(folder: &Path) -> usize {
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    let mut add = |lies: u8, says: u8, mark: u8, since: u8, template: u8| {
        let same = [0, 2, template, template, lies, says, mark, since, 77, 1, 0];
        seeds.push([&same[..], b"AtomMm somebody's bytes"].concat());
    };
    for n in 0..5 {
        add(n, 0, 0, 0, 11);
        add(0, 0, n, 0, 90);
        add(1, 0, n, 0, 3);
        add(2, 5, 1, 0, 20 + n);
        add(3, 5 + 6 * (n & 1), 0, 0, 30 + n);
    }
    for n in 0..16 {
        add(0, n, 0, 0, 10 + n);
        add(0, n << 4, 0, 0, 40 + n);
    }
    for n in 0..16 {
        add(0, 0, 0, n, 84 + n % 6);
        add(0, 8, 1, n, 50);
    }
    for (n, seed) in seeds.iter().enumerate() {
        keep(folder, "mismatch", &format!("pair-{n:03}"), seed);
    }
    seeds.len()
}

fn operations(folder: &Path, base: &Rng) -> usize {
    const COUNT: u64 = 60;
    for n in 0..COUNT {
        let mut rng = base.fork(1 << 20 | n);
        let mut seed: Vec<u8> = vec![rng.below(256) as u8];
        seed.extend_from_slice(&rng.next().to_le_bytes()[..3]);
        for _ in 0..10 + rng.below(20) {
            let dies = u8::from(rng.chance(12)) << 6;
            seed.push(rng.below(64) as u8 | dies);
            seed.extend((0..1 + rng.below(4)).map(|_| rng.below(256) as u8));
        }
        keep(folder, "operations", &format!("life-{n:03}"), &seed);
    }
    COUNT as usize
}

fn entries(folder: &Path) -> usize {
    let mut count = 0;
    let mut add = |seed: Vec<u8>| {
        keep(folder, "entry_decode", &format!("entry-{count:03}"), &seed);
        count += 1;
    };
    // Whole ones, by their fields.
    for which in 5..10u8 {
        for len in [0, 20, 60, 400] {
            add([&[which][..], &lab::fuzzing::input::filling(u64::from(which), len)].concat());
        }
    }
    // Bytes of entries that crashes have left.
    for template in templates::made().iter().step_by(5) {
        let Some(reflection) = &template.image.reflection else { continue };
        for at in layout::SUPERBLOCKS {
            add([&[0x83][..], &reflection.bytes(at, sums::SUPERBLOCK_LEN)].concat());
        }
        let lanes = layout::LANES..layout::LANES + 8 * layout::LANE as u64;
        for at in lanes.step_by(layout::REDO_ENTRY) {
            let bytes = reflection.bytes(at, layout::REDO_ENTRY);
            let place = (at - layout::LANES) as usize % layout::LANE / layout::REDO_ENTRY;
            match place {
                0 | 1 => {
                    if let Some(len) = sums::redo_len(&bytes) {
                        add([&[0x80, place as u8][..], &bytes[..len]].concat());
                    }
                }
                2 => {
                    if let Some(len) = sums::undo_len(&bytes) {
                        add([&[0x81][..], &bytes[..len.min(bytes.len())]].concat());
                    }
                }
                _ => {}
            }
        }
        if let Some((from, to)) =
            runs(reflection, layout::LOG_AREA, layout::LOG_AREA + 4096).first()
        {
            add([&[2][..], &reflection.bytes(*from, (to - from) as usize)].concat());
        }
    }
    add([&[4][..], &[3; 40]].concat());
    count
}
