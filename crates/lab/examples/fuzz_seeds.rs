//! Writes the seeds of the fuzzer: images that crashes leave, as inputs of the fuzz targets.
//!
//! ```text
//! cargo run --release -p lab --example fuzz_seeds -- <folder>
//! ```
//!
//! The program writes a folder for each target. It takes the images of `lab::fuzzing::templates`.
//! It keeps each image that shows something new: other kinds of records, words or superblocks. The
//! bytes of the home file do not matter, so the seeds replace them by fillings. Records, words and
//! superblocks stay as they were, except for the checksums of slices. Seeds with durable points
//! name templates, which contain whole journals.
//!
//! `fuzz/corpus/` contains what libFuzzer's merge kept of these seeds and of its own findings. See
//! `fuzz/README.md`.

use atomic_mmap::testing::layout;
use fastrand::Rng;
use lab::fuzzing::export_decode;
use lab::fuzzing::image::{Contents, Image as Pair};
use lab::fuzzing::input::Input;
use lab::fuzzing::open_bytes::UUID;
use lab::fuzzing::patch::{Patch, Place, Writer};
use lab::fuzzing::snapshots_decode;
use lab::fuzzing::sums::{self, Part};
use lab::fuzzing::templates;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const SEED: u64 = 20_261_121;
/// Longest input that is kept. A mutation of a longer input rarely hits the bytes that matter.
const LONGEST: usize = 3000;
/// Number of bytes that a patch can reach in the home file, and in the log area.
const REACH: u64 = 4 << 20;

fn main() {
    let folder = PathBuf::from(std::env::args().nth(1).expect("a folder to write to"));
    let crashes = crashes(&folder);
    let others = hostile(&folder)
        + mismatches(&folder)
        + operations(&folder)
        + sealed(&folder)
        + structures(&folder)
        + entries(&folder)
        + turns(&folder)
        + journals(&folder)
        + snapshots(&folder)
        + exports(&folder)
        + points(&folder);
    println!("{crashes} crash images, {others} others");
}

/// Writes seeds of crash images without durable points.
fn crashes(folder: &Path) -> usize {
    let mut rng = Rng::with_seed(SEED);
    let (mut known, mut counts) = ([BTreeSet::new(), BTreeSet::new()], [0; 2]);
    let images = templates::made().iter().map(|template| &template.image);
    for pair in images.filter(|image| image.reflection.is_some() && image.journal.is_none()) {
        let marked = pair.mark.is_some();
        let seeds = [mutated_seed(pair, marked, &mut rng), bytes_seed(pair, marked, &mut rng)];
        for (n, seed) in seeds.into_iter().enumerate() {
            if seed.len() <= LONGEST && known[n].insert(signature(pair, n)) {
                let target = ["open_mutated", "open_bytes"][n];
                keep(folder, target, &format!("crash-{:03}", counts[n]), &seed);
                counts[n] += 1;
            }
        }
    }
    counts.iter().sum()
}

fn keep(folder: &Path, target: &str, name: &str, seed: &[u8]) {
    let folder = folder.join(target);
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join(name), seed).expect("to write a seed");
}

/// Returns the reflection file of a pair, which each pair has here.
fn reflection(pair: &Pair) -> &Contents {
    pair.reflection.as_ref().expect("there is one")
}

/// Describes the kind of an image: the records in each lane, and the amount of undeployed data.
fn signature(pair: &Pair, target: usize) -> Vec<u64> {
    let reflection = reflection(pair);
    let mut signs = vec![target as u64];
    for at in layout::SUPERBLOCKS {
        signs.push(reflection.word(at + 24) & 3);
    }
    let words = [layout::LENGTH_WORD, layout::HIGH_WATER_WORD].map(|at| reflection.word(at));
    signs.push(u64::from(words[0] == words[1]));
    for lane in 0..8 {
        signs.extend(ring_signs(pair, lane));
        signs.push(word(&Part::Undo.bytes(reflection, lane)) >> 16 & 0xF);
    }
    let away = |at: u64| runs(reflection, at, at + 0x8000).len() as u64;
    signs.push(away(layout::SUPERCHUNKS).min(3));
    signs.push(away(layout::region_words(0)).min(3));
    signs
}

/// Returns the first word of a log record.
fn word(entry: &[u8]) -> u64 {
    sums::word(entry, 0)
}

/// Returns two numbers that describe the ring of a lane: 1 if it contains invalidated flip records,
/// and the kind of the newest one.
fn ring_signs(pair: &Pair, lane: usize) -> [u64; 2] {
    let ring = (0..layout::RING).map(|place| Part::Ring(place).bytes(reflection(pair), lane));
    let ring: Vec<Vec<u8>> = ring.filter(|entry| word(entry) != 0).collect();
    let is_invalidated = |entry: &Vec<u8>| word(entry) >> 16 & 0xFF == sums::KIND_INVALIDATED;
    let newest = match ring.iter().max_by_key(|entry| word(entry) >> 24) {
        None => 0,
        Some(entry) if is_invalidated(entry) => 1,
        Some(entry) => 2 + u64::from(slices_are_right(pair, entry)),
    };
    [u64::from(ring.iter().any(is_invalidated)), newest]
}

/// Returns `true` if the slots hold the bytes that a flip record names.
fn slices_are_right(pair: &Pair, entry: &[u8]) -> bool {
    sums::small(entry, 32) == sums::of_named_slices(&pair.home, reflection(pair), entry)
}

/// Returns the parts of a range that are not zero, in whole words.
fn runs(contents: &Contents, start: u64, end: u64) -> Vec<(u64, u64)> {
    let mut found: Vec<(u64, u64)> = Vec::new();
    for page in contents.pages.range(start / 4096..end.div_ceil(4096)).map(|(n, _)| n * 4096) {
        for at in (page.max(start)..end.min(page + 4096)).step_by(8) {
            if contents.word(at) == 0 {
                continue;
            }
            match found.last_mut() {
                // A patch costs more than the two zero words in the gap.
                Some((_, to)) if at - *to <= 16 => *to = at + 8,
                _ => found.push((at, at + 8)),
            }
        }
    }
    found
}

/// Writes the patches that make the two files of a pair, except for the superblocks.
fn patches(writer: &mut Writer, pair: &Pair) {
    let (home, reflection) = (&pair.home, reflection(pair));
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
                // Gaps do not matter where the file holds only data.
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

/// Returns the pair that an input for this pair makes: under another name, with fillings for data.
/// Slots that match their flip record still match it, and intact records stay intact.
fn filled(pair: &Pair) -> Pair {
    let mut pair = pair.clone();
    templates::rename(&mut pair);
    let mut writer = Writer::default();
    patches(&mut writer, &pair);
    let patches = Patch::all(&mut Input(&writer.0));
    let empty = Contents::of_len(layout::reflection_len(0));
    let mut filled = Pair { reflection: Some(empty), ..Pair::default() };
    Patch::apply_to_home(&patches, &mut filled);
    Patch::apply_to_reflection(&patches, &mut filled);
    for at in layout::SUPERBLOCKS {
        let bytes = reflection(&pair).bytes(at, sums::SUPERBLOCK_LEN);
        filled.reflection.as_mut().expect("there is one").write(&bytes, at);
    }
    let (uuid, session) = sums::session_of(reflection(&pair)).unwrap_or_default();
    let whole = sums::whole_entries(reflection(&pair), &uuid, session);
    sums::repair_slices(&mut filled, |lane, place| {
        slices_are_right(&pair, &Part::Ring(place).bytes(reflection(&pair), lane))
    });
    let is_whole = |lane, part| whole.contains(&(lane, part));
    let reflection = filled.reflection.as_mut().expect("there is one");
    sums::repair_entries(reflection, &uuid, session, is_whole);
    filled
}

fn mutated_seed(pair: &Pair, marked: bool, rng: &mut Rng) -> Vec<u8> {
    let pair = filled(pair);
    // Superblocks must be repaired, because the input puts them beside another home file. Records
    // need no repair. If the target repairs them, torn records become intact, and so do their
    // mutations.
    let flags = 1 | u8::from(rng.bool()) << 1 | u8::from(marked) << 3;
    let mut writer = Writer(vec![0, rng.u8(..), 0, flags, 255]);
    for (place, at) in [Place::SuperblockA, Place::SuperblockB].into_iter().zip(layout::SUPERBLOCKS)
    {
        let bytes = reflection(&pair).bytes(at, sums::SUPERBLOCK_LEN);
        // Version to uuid, the lengths at close, the boot and the name.
        writer.literal(place, 0, &bytes[..88]);
        writer.literal(place, 120, &bytes[120..180]);
    }
    patches(&mut writer, &pair);
    writer.0
}

fn bytes_seed(pair: &Pair, marked: bool, rng: &mut Rng) -> Vec<u8> {
    let mut pair = filled(pair);
    // The superblocks of the target belong to session 5.
    let reflection = pair.reflection.as_mut().expect("there is one");
    sums::repair_entries(reflection, &UUID, 5, |_, _| true);
    let begin = 1 | u8::from(marked) << 3;
    let mut writer = Writer(vec![0, rng.u8(..), begin]);
    patches(&mut writer, &pair);
    writer.0
}

/// Number of the first template with a full ring, and of the first one with durable points.
const FIRST_OF_TURNS: u8 = 96;
const FIRST_OF_POINTS: u8 = 108;

/// Writes seeds with full rings, as crashes leave them. Half of them have other bytes in the slots,
/// and half of those repair the flip records to match.
fn turns(folder: &Path) -> usize {
    let (superblocks_repaired, entries_repaired, marked, slices_repaired) = (1, 2, 8, 128);
    for n in FIRST_OF_TURNS..FIRST_OF_POINTS {
        let repaired = if n % 4 == 3 { entries_repaired | slices_repaired } else { 0 };
        let flags = superblocks_repaired | marked | repaired;
        let mut writer = Writer(vec![0, 0x3E, n + 1, flags, 255]);
        if n % 2 == 1 {
            writer.filled(Place::Home, 0, 6000, 6);
            writer.filled(Place::Pages, 0, 12_000, 7);
        }
        keep(folder, "open_mutated", &format!("turn-{n:03}"), &writer.0);
    }
    usize::from(FIRST_OF_POINTS - FIRST_OF_TURNS)
}

/// Writes seeds with journals that crashes left, and with journal records made from their fields.
fn journals(folder: &Path) -> usize {
    let mut known = BTreeSet::new();
    let made = templates::made();
    for template in &made[usize::from(FIRST_OF_POINTS)..] {
        let Some(journal) = &template.image.journal else { continue };
        for block in journal.page_numbers() {
            let at = block * sums::BLOCK;
            if let Some(len) = sums::record_len(journal, at).filter(|len| *len < 1200) {
                known.insert([&[0x80][..], &journal.bytes(at, len as usize)].concat());
            }
        }
    }
    for (kind, seed) in [2, 3].into_iter().flat_map(|kind| (0..6).map(move |seed| (kind, seed))) {
        let filling = lab::fuzzing::input::filling(seed + 50, 40 << seed);
        known.insert([&[kind][..], &filling].concat());
    }
    for (n, seed) in known.iter().enumerate() {
        keep(folder, "journal_decode", &format!("journal-{n:03}"), seed);
    }
    known.len()
}

/// Writes seeds for the tables and segments of the snapshot store: bytes and fields.
fn snapshots(folder: &Path) -> usize {
    let seeds = snapshots_decode::seeds();
    for (n, seed) in seeds.iter().enumerate() {
        keep(folder, "snapshots_decode", &format!("snapshots-{n:03}"), seed);
    }
    seeds.len()
}

/// Writes seeds for the streams between files: bytes and changes.
fn exports(folder: &Path) -> usize {
    let seeds = export_decode::seeds();
    for (n, seed) in seeds.iter().enumerate() {
        keep(folder, "export_decode", &format!("export-{n:03}"), seed);
    }
    seeds.len()
}

/// Writes crash images with durable points, unchanged and changed, of this boot and of another
/// boot.
fn points(folder: &Path) -> usize {
    let (page_cache, all_or_nothing) = (2 << 2, 1 << 6);
    let mut count = 0;
    let mut add = |how: u8, life: u8, from: u8, flags: u8, patches: &dyn Fn(&mut Writer)| {
        let mut writer = Writer(vec![how, life, from, flags, 255]);
        patches(&mut writer);
        keep(folder, "open_mutated", &format!("points-{count:03}"), &writer.0);
        count += 1;
    };
    let (repaired, another_boot, marked, records, no_journal) = (1 | 2, 4, 8, 32, 64);
    for n in 0..30u8 {
        let from = FIRST_OF_POINTS + 1 + 2 * n;
        let boot = if n % 3 == 0 { 0 } else { another_boot };
        let how = if n % 5 == 4 { page_cache | all_or_nothing } else { page_cache };
        add(how, 0xC2 | n << 1 & 0x3C, from, repaired | boot | marked, &|_| ());
    }
    let change: [&dyn Fn(&mut Writer); 9] = [
        &|w| w.literal(Place::Unordered, 0, &[0xA7; 80]),
        &|w| w.literal(Place::JournalFlips, 70, &[1]),
        &|w| w.literal(Place::JournalFlips, 4096 + 20, &[1]),
        &|w| w.number(Place::JournalLen, 16),
        &|w| w.number(Place::JournalLen, lab::fuzzing::patch::NO_JOURNAL),
        &|w| w.literal(Place::DurableWords, 0, &[0x55; 40]),
        &|w| w.number(Place::Points, 2),
        &|w| w.number(Place::Points, 3),
        // Appends a record made from its fields: also as a full record, and with another length.
        &|w| {
            w.literal(Place::Record, 9 | 2 << 8, &[0, 0, 0, 0x8F, 0xFF, 7, 1, 0, 0x85, 0x83, 9]);
            w.literal(Place::Record, 11 | 3 << 8, &[5, 0, 4, 0, 195, 0xFF, 0, 0]);
        },
    ];
    for (n, patches) in (0..).zip(change.iter().cycle()).take(27) {
        let boot = if n / 9 == 1 { 0 } else { another_boot };
        let from = FIRST_OF_POINTS + 6 + 2 * n;
        add(page_cache, 0xC6, from, repaired | boot | marked | records, patches);
    }
    add(page_cache, 2, FIRST_OF_POINTS + 20, repaired | marked | no_journal, &|_| ());
    // New pairs, each with a journal of zeroes or without a journal.
    for begin in [0x41u8, 0x45, 0x65, 0x85, 0xA5, 0xC1, 0x4D, 0x43] {
        let mut writer = Writer(vec![page_cache, 0xC6, begin]);
        writer.number(Place::Lengths, 30_000);
        writer.filled(Place::Home, 0, 30_000, 4);
        writer.literal(Place::DurableWords, 0, &[0x33; 32]);
        writer.filled(Place::Pages, 0, 30_000, 5);
        keep(folder, "open_bytes", &format!("points-{begin:02x}"), &writer.0);
        count += 1;
    }
    count
}

/// Writes files that no crash leaves but an attacker could: records with the largest possible
/// claims.
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
        // The whole log area, a part of it, and a record that claims more than there is.
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
    // Records made from their fields: some of a ring, and one undo record of each kind.
    for (kind, len) in (0..5).flat_map(|kind| [(kind, 30_000), (kind, 300_001), (kind, 4096)]) {
        let mut writer = Writer(vec![0, 0xFE, 0, 3, 255]);
        writer.number(Place::Lengths, len);
        writer.filled(Place::Home, 0, len, 4);
        let entries: Vec<u8> = (0..3).flat_map(|n| [0, n, 0, 9 + n, 1, 0]).collect();
        writer.literal(Place::FlipRecord, 5, &entries);
        let words: Vec<u8> = (0..5).flat_map(|n| [0, n, 0, n, 0xFF]).collect();
        writer.literal(Place::Undo, 6 | kind << 8, &words);
        keep(folder, "open_mutated", &format!("hostile-{count:02}"), &writer.0);
        count += 1;
    }
    for (n, rings) in rings().into_iter().enumerate() {
        let mut writer = Writer(vec![0, 0xFE, 0, 3, 255]);
        let len = if n % 2 == 0 { 30_000 } else { 300_001 };
        writer.number(Place::Lengths, len);
        writer.filled(Place::Home, 0, len, 4);
        writer.filled(Place::Pages, 0, len, 5);
        if n % 3 > 0 {
            writer.literal(Place::RegionWords, 0, &[0x5A; 8]);
            writer.literal(Place::SliceWords, 0, &[0xC3; 64]);
        }
        rings.iter().for_each(|(at, entries)| writer.literal(Place::FlipRecord, *at, entries));
        keep(folder, "open_mutated", &format!("hostile-{count:02}"), &writer.0);
        count += 1;
    }
    // Long files, at each origin of the place, with words set everywhere.
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

/// Returns rings of flip records as `Place::FlipRecord` reads them, each lane with its first
/// number.
fn rings() -> Vec<Vec<(u64, Vec<u8>)>> {
    const WRONG: u8 = 4;
    const VOID: u8 = 2;
    let turn =
        |of: &dyn Fn(u8) -> [u8; 6]| (0..layout::RING as u8).flat_map(of).collect::<Vec<u8>>();
    // Slices of pages 0 to 3, with overlaps.
    let entry = |n: u8, unusual: u8| [0, n % 4, 0, 0x11 + n, n / 2, unusual];
    let (first, begins_anew, half) = (1 << 8, 110 << 8 | 1 << 16, 2 << 16);
    vec![
        vec![(0, turn(&|n| entry(n, 0)))],
        // Only the newest flip record must be correct.
        vec![(1, turn(&|n| entry(n, if n < 31 { WRONG } else { 0 })))],
        vec![(2, turn(&|n| entry(n, if n < 31 { 0 } else { WRONG })))],
        vec![(begins_anew, turn(&|n| entry(n, if n < 31 { WRONG } else { 0 })))],
        // Some flip records are invalidated, among them the newest.
        vec![(first, turn(&|n| entry(n, if n % 5 == 1 { VOID } else { 0 })))],
        vec![(begins_anew, turn(&|n| entry(n, if n % 7 == 3 { VOID } else { WRONG })))],
        // Sequence numbers half the range apart, and sequence numbers in a circle.
        vec![
            (0, turn(&|n| entry(n, n % 2 * VOID))),
            (half, (0..11).flat_map(|n| entry(n, 0)).collect()),
            (begins_anew, (0..8).flat_map(|n| entry(n, n % 3)).collect()),
        ],
        // Two lanes with flip records of the same slices.
        vec![(8, turn(&|n| entry(n, 0))), (9, turn(&|n| entry(n + 1, 0)))],
        // Near the end of the file, past it, and far past the end of any file.
        vec![(3, turn(&|n| [n % 6, n % 8, n % 3, 0xFF, n, 0]))],
        // Invalid flip records between valid ones, and flip records of later turns of the ring.
        vec![(4, turn(&|n| entry(n, 1 << (n % 6))))],
        vec![(5, turn(&|n| entry(n, n << 6)))],
        // All slices of a page, moved to the other slot and back.
        vec![(79, turn(&|n| [0, 0, 0, 0xFF, n % 2 * 0xFF, 0]))],
    ]
}

fn mismatches(folder: &Path) -> usize {
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    let mut add = |lies: u8, says: u8, mark: u8, since: u8, template: u8| {
        let same = [0, 2, template, template, lies, says, mark, since, 77, 1, 0];
        seeds.push([&same[..], b"AtomMm stranger's bytes"].concat());
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
    // Images with durable points, of this boot and of another boot. The journal is present,
    // missing, of another image, or truncated. In some of them the reflection file has another
    // name.
    for n in 0..16 {
        add(0, 8 * (n & 1), 0, (n / 2 % 4) << 4, FIRST_OF_POINTS + 9 + 3 * n);
    }
    add(2, 5, 1, 0, FIRST_OF_POINTS + 20);
    add(1, 0, 1, 0, FIRST_OF_POINTS + 30);
    for (n, seed) in seeds.iter().enumerate() {
        keep(folder, "mismatch", &format!("pair-{n:03}"), seed);
    }
    seeds.len()
}

fn operations(folder: &Path) -> usize {
    const COUNT: u64 = 60;
    let mut rng = Rng::with_seed(SEED);
    for n in 0..COUNT {
        let first = rng.u8(..);
        // Half of the seeds keep durable points.
        let mut seed: Vec<u8> = vec![if n % 2 == 0 { first | 3 } else { first }];
        seed.extend_from_slice(&rng.u64(..).to_le_bytes()[..3]);
        for _ in 0..rng.u64(10..30) {
            let dies = u8::from(rng.u8(..100) < 12) << 6 | u8::from(rng.u8(..100) < 60) << 7;
            seed.push(rng.u8(..64) | dies);
            seed.extend((0..rng.u64(1..5)).map(|_| rng.u8(..)));
        }
        keep(folder, "operations", &format!("life-{n:03}"), &seed);
    }
    COUNT as usize
}

/// Writes seeds of files with page sums and snapshots.
fn sealed(folder: &Path) -> usize {
    const COUNT: u64 = 24;
    let mut rng = Rng::with_seed(SEED);
    for n in 0..COUNT {
        // Short files, on each medium. Half of the seeds read with sums at each read.
        let mut seed = vec![rng.u8(..4) | 16 | 96, rng.u8(..), rng.u8(..)];
        seed.push(rng.u8(..64) | 128 | (n as u8 & 1) << 6);
        for _ in 0..rng.u64(10..25) {
            let dies = u8::from(rng.u8(..100) < 15) << 6 | u8::from(rng.bool()) << 7;
            let op = if rng.u8(..3) == 0 { 63 } else { rng.u8(..64) };
            seed.push(op | dies);
            seed.extend((0..rng.u64(1..5)).map(|_| rng.u8(..)));
        }
        keep(folder, "operations", &format!("sealed-{n:03}"), &seed);
    }
    COUNT as usize
}

fn structures(folder: &Path) -> usize {
    const COUNT: u64 = 30;
    let mut rng = Rng::with_seed(SEED);
    for n in 0..COUNT {
        let mut seed = vec![rng.u8(..)];
        for _ in 0..rng.u64(5..25) {
            let name = rng.u8(..8) << 4;
            seed.push(rng.u8(..15) | name);
            seed.extend((0..rng.u64(1..6)).map(|_| rng.u8(..)));
        }
        // Two thirds of the seeds end with damage.
        if n % 3 != 0 {
            seed.push(15);
            seed.extend((0..rng.u64(1..6) * 5).map(|_| rng.u8(..)));
        }
        keep(folder, "structures", &format!("names-{n:03}"), &seed);
    }
    COUNT as usize
}

fn entries(folder: &Path) -> usize {
    let mut count = 0;
    let mut add = |seed: Vec<u8>| {
        keep(folder, "entry_decode", &format!("entry-{count:03}"), &seed);
        count += 1;
    };
    // Intact records, made from their fields.
    for which in 5..10u8 {
        for len in [0, 20, 60, 400] {
            add([&[which][..], &lab::fuzzing::input::filling(u64::from(which), len)].concat());
        }
    }
    // The bytes of records that crashes left.
    let mut kinds = BTreeSet::new();
    for (n, template) in templates::made().iter().enumerate().step_by(5) {
        let Some(reflection) = &template.image.reflection else { continue };
        for at in layout::SUPERBLOCKS {
            add([&[0x83][..], &reflection.bytes(at, sums::SUPERBLOCK_LEN)].concat());
        }
        for (lane, part) in (0..8).flat_map(|lane| Part::all().map(move |part| (lane, part))) {
            let bytes = part.bytes(reflection, lane);
            let kind = word(&bytes) >> 16 & 0xFF;
            match part {
                // One record of each kind.
                Part::Ring(place) if kind > 0 && kinds.insert((n, lane, kind)) => {
                    add([&[0x80, place as u8][..], &bytes[..sums::FLIP_RECORD_SAYS]].concat());
                }
                Part::Ring(_) => {}
                Part::Undo => {
                    if let Some(len) = sums::undo_len(&bytes) {
                        add([&[0x81][..], &bytes[..len]].concat());
                    }
                }
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
