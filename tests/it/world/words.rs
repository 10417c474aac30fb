//! Each word of each structure in the files of a pair at the ends of its range, with right
//! checksums: every call returns, with a typed error or without one.
//!
//! Another program may write any word into these files. Its checksum proves nothing then.

use super::{CHILD, companions_in};
use crate::common::{self, Ground, Scratch, run_child};
use atomic_mmap::testing::{layout, state_word};
use atomic_mmap::{AtomicMappedFile, CloseMode, Decision, Error, Medium, Options, Roots};
use crc32c::{crc32c, crc32c_append};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The longest file of the tests: what a word claims is more.
const MOST: u64 = 64 << 20;
const SEGMENTS: u64 = 2 << 20;
const SEGMENT: u64 = 64 << 10;
const BLOCK: usize = 4096;

/// A file of a pair.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Of {
    Reflection,
    Journal,
    Snapshots,
}

/// Puts the checksum of a structure right.
type Seal = Box<dyn Fn(&mut [u8])>;

/// A structure with a checksum.
struct Structure {
    what: &'static str,
    file: Of,
    at: u64,
    len: usize,
    seal: Seal,
}

/// Returns the values that a word gets: the ends of its range, those of the limits of lengths,
/// counts and positions, and the neighbours of what it holds.
fn values(word: u64) -> Vec<u64> {
    let around =
        [layout::MAX_LEN, 1 << 60, 1 << 63].into_iter().flat_map(|limit| [limit - 1, limit]);
    let mut values = vec![0, 1, layout::MAX_LEN + 1, u64::MAX, word.wrapping_add(1)];
    values.extend(around);
    values.retain(|value| *value != word);
    values.sort_unstable();
    values.dedup();
    values
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

fn put(bytes: &mut [u8], at: usize, sum: u32) {
    bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
}

/// Puts a checksum right that covers the bytes with itself as zero, after these.
fn seal_at(at: usize, seed: &[u8]) -> Seal {
    let seed = crc32c(seed);
    Box::new(move |bytes| {
        put(bytes, at, 0);
        let sum = crc32c_append(seed, bytes);
        put(bytes, at, sum);
    })
}

fn read(file: &Path, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let file = std::fs::File::open(file).expect("open");
    let there = file.metadata().expect("look").len().saturating_sub(at).min(len as u64);
    file.read_exact_at(&mut bytes[..there as usize], at).expect("read");
    bytes
}

/// The bytes of a file: its length, its time, and the pages that are not zero.
type Bytes = (PathBuf, u64, SystemTime, Vec<(u64, Vec<u8>)>);

/// A pair with three snapshots, left by a close or by a crash, and its bytes.
struct Left {
    home: PathBuf,
    reflection: PathBuf,
    journal: PathBuf,
    snapshots: PathBuf,
    bytes: Vec<Bytes>,
}

fn options(ground: &Ground) -> Options {
    ground.options().create(true).max_len(MOST)
}

/// Makes the pair, and returns its open file.
pub fn make(options: Options, home: &Path) -> AtomicMappedFile {
    let file = options.create(true).max_len(MOST).len(100_000).open(home).expect("open");
    for (n, name) in ["a", "b", "c"].into_iter().enumerate() {
        for at in (0..48_000).step_by(7919) {
            file.write_at(&[n as u8 + 1; 700], at).expect("write");
        }
        file.snapshot(name).expect("seal");
    }
    file.write_at(&[9; 9000], 40).expect("write");
    file.sync().expect("sync");
    file.write_at(&[8; 100], 4000).expect("write");
    file
}

fn bytes_of(path: &Path) -> Bytes {
    let looked = std::fs::metadata(path).expect("look");
    let (len, time) = (looked.len(), looked.modified().expect("a time"));
    let pieces = (0..len).step_by(1 << 20).map(|at| (at, read(path, at, 1 << 20)));
    let zeros = vec![0; 1 << 20];
    let pages = pieces.filter(|(_, piece)| *piece != zeros).flat_map(|(at, piece)| {
        let pages = piece.chunks(BLOCK).map(<[u8]>::to_vec).collect::<Vec<_>>();
        (at..).step_by(BLOCK).zip(pages).collect::<Vec<_>>()
    });
    let pages = pages.filter(|(at, page)| *at < len && page.iter().any(|byte| *byte != 0));
    (path.to_owned(), len, time, pages.collect())
}

impl Left {
    fn new(ground: &Ground, scratch: &Scratch, closes: bool) -> Left {
        let home = scratch.file("state.dat");
        match closes {
            true => drop(make(ground.options(), &home).close(CloseMode::Fast).expect("close")),
            false => drop(run_child(CHILD, &format!("words {}", ground.medium), &home)),
        }
        let reflection = common::reflections_in(scratch.path()).remove(0);
        let beside = |suffix: &str| PathBuf::from(format!("{}.{suffix}", reflection.display()));
        let (journal, snapshots) = (beside("journal"), beside("snapshots"));
        assert!(companions_in(scratch.path()).contains(&snapshots));
        let all = [&home, &reflection, &journal, &snapshots];
        let bytes = all.into_iter().filter(|path| path.exists()).map(|path| bytes_of(path));
        let bytes = bytes.collect();
        Left { home, reflection, journal, snapshots, bytes }
    }

    /// Gives all files the bytes that they had.
    fn restore(&self) {
        for (path, len, time, pages) in &self.bytes {
            let how = std::fs::File::options().write(true).create(true).truncate(true).open(path);
            let file = how.expect("open");
            file.set_len(*len).expect("the length");
            for (at, page) in pages {
                let there = page.len().min((len - at) as usize);
                file.write_all_at(&page[..there], *at).expect("write");
            }
            // A closed file with another time was changed by another program.
            file.set_modified(*time).expect("set the time");
        }
    }

    fn path(&self, of: Of) -> &Path {
        match of {
            Of::Reflection => &self.reflection,
            Of::Journal => &self.journal,
            Of::Snapshots => &self.snapshots,
        }
    }

    fn structures(&self) -> Vec<Structure> {
        let mut all = Vec::new();
        let superblock = |at| (read(&self.reflection, at, 512), at);
        let newest = layout::SUPERBLOCKS.map(superblock).into_iter();
        let newest = newest.max_by_key(|(bytes, _)| word(bytes, 16)).expect("one of two");
        let (uuid, session, at) = (newest.0[32..48].to_vec(), word(&newest.0, 16), newest.1);
        let seal = |bytes: &mut [u8]| {
            let sum = crc32c(&bytes[..508]);
            put(bytes, 508, sum);
        };
        let seal = Box::new(seal);
        all.push(Structure { what: "superblock", file: Of::Reflection, at, len: 512, seal });
        for at in [layout::LENGTH_WORD, layout::HIGH_WATER_WORD, layout::BEGUN_WORD] {
            let seal = move |bytes: &mut [u8]| {
                let checked = state_word::encode(at, word(bytes, 0));
                bytes.copy_from_slice(&checked.to_le_bytes());
            };
            let seal = Box::new(seal);
            all.push(Structure { what: "state word", file: Of::Reflection, at, len: 8, seal });
        }
        for at in layout::FLOORS.into_iter().chain([layout::NEWEST_RECORD]) {
            let seed = crc32c(&uuid);
            let seal = move |bytes: &mut [u8]| {
                let sum = crc32c_append(seed, &bytes[..16]);
                put(bytes, 16, sum);
            };
            let seal = Box::new(seal);
            all.push(Structure { what: "floor", file: Of::Reflection, at, len: 24, seal });
        }
        all.extend(self.of_journal(&uuid, session));
        all.extend(self.of_snapshots(&uuid));
        // A structure that is not whole does not count, whatever its words say.
        all.retain(|Structure { file, at, len, seal, .. }| {
            let bytes = read(self.path(*file), *at, *len);
            let mut sealed = bytes.clone();
            seal(&mut sealed);
            sealed == bytes
        });
        all
    }

    fn of_journal(&self, uuid: &[u8], session: u64) -> Vec<Structure> {
        let bytes = std::fs::read(&self.journal).unwrap_or_default();
        let mut all = Vec::new();
        for (n, block) in bytes.chunks(BLOCK).enumerate() {
            let at = (n * BLOCK) as u64;
            if block.starts_with(b"AtomJrnH") {
                let seal = seal_at(8, b"");
                all.push(Structure { what: "header", file: Of::Journal, at, len: 64, seal });
            }
            if block.starts_with(b"AtomJrnl") {
                let said = 64 + 24 * word(block, 32) + word(block, 40);
                // A close has raised the session.
                for session in [session, session - 1] {
                    let seed = [b"journal", uuid, &session.to_le_bytes()].concat();
                    let (len, seal) = (said as usize, seal_at(8, &seed));
                    all.push(Structure { what: "record", file: Of::Journal, at, len, seal });
                }
            }
        }
        all
    }

    fn of_snapshots(&self, uuid: &[u8]) -> Vec<Structure> {
        let mut all = Vec::new();
        let file = Of::Snapshots;
        let generation = |at: &u64| word(&read(&self.snapshots, *at, 128), 16);
        if let Some(at) = [0, 256 << 10].into_iter().max_by_key(generation) {
            let entries = word(&read(&self.snapshots, at, 128), 8) >> 32;
            let seal = |bytes: &mut [u8]| {
                let seed = crc32c_append(crc32c(b"snapshots"), &bytes[48..64]);
                let sum = crc32c_append(seed, &bytes[12..]);
                put(bytes, 8, sum);
            };
            let (len, seal) = (128 + 128 * entries as usize, Box::new(seal));
            all.push(Structure { what: "table", file, at, len, seal });
        }
        for n in 1..32_u32 {
            let at = SEGMENTS + u64::from(n) * SEGMENT;
            let header = read(&self.snapshots, at, 64);
            if !header.starts_with(b"AtomSnpS") {
                continue;
            }
            let place = n.to_le_bytes();
            let id = uuid.to_vec();
            let seal = move |bytes: &mut [u8]| {
                let seed = [b"segment", &id[..], &bytes[16..32], &place].concat();
                put(bytes, 8, 0);
                let sum = crc32c_append(crc32c(&seed), bytes);
                put(bytes, 8, sum);
            };
            all.push(Structure { what: "segment", file, at, len: 64, seal: Box::new(seal) });
            let seed = crc32c(&[b"segment", uuid, &header[16..32], &place].concat());
            let seal = move |bytes: &mut [u8]| {
                let sum = crc32c_append(seed, &bytes[..4]);
                put(bytes, 4, sum);
            };
            let (end_at, seal) = (SEGMENTS + u64::from(n) * 8, Box::new(seal));
            all.push(Structure { what: "end of a segment", file, at: end_at, len: 8, seal });
            let seal = move |bytes: &mut [u8]| {
                // The kept bytes stay, also if a mask says that there are others.
                let sum = crc32c_append(seed, &bytes[4..64]);
                put(bytes, 0, sum);
            };
            let seal = Box::new(seal);
            all.push(Structure { what: "keep record", file, at: at + 64, len: 64, seal });
        }
        all
    }
}

/// Calls what a program and an administrator call. An error ends the way of one call alone.
fn use_everything(ground: &Ground, home: &Path) -> Result<(), Error> {
    let look = options(ground).inspect(home)?;
    look.each_reflected_page(|_, _| {})?;
    if let Ok(file) = options(ground).create(false).read_only(true).open(home) {
        let _maybe_damaged = file.verify(0..file.len());
        read_ends(&file);
    }
    let file = options(ground).create(false).open(home)?;
    let _maybe = file.write_at(&[3; 5000], 100);
    let _maybe = file.snapshot("d");
    read_ends(&file);
    let reachable = |name: &str| file.open_snapshot(name).is_ok_and(|of| of.len() <= MOST);
    if reachable("b") {
        let _maybe = file.roll_back("b", Some("before"));
    }
    let _maybe = file.set_len(3000).and_then(|()| file.set_len(200_000));
    for name in ["a", "b", "c", "d", "before"] {
        let _maybe = file.drop_snapshot(name);
    }
    let _maybe = file.sync();
    file.close(CloseMode::Fast)?;
    options(ground).create(false).open(home)?.close(CloseMode::Fast).map(drop)
}

/// Reads the first and the last bytes of the file and of its snapshots.
fn read_ends(file: &AtomicMappedFile) {
    let mut bytes = [0; 5000];
    let _maybe = file.data();
    for name in ["a", "b", "c"] {
        let Ok(snapshot) = file.open_snapshot(name) else { continue };
        let (len, all) = (snapshot.len(), snapshot.data());
        let there = bytes.len().min(len as usize);
        let _maybe = snapshot.read_at(&mut bytes[..there], len - there as u64);
        let _maybe = snapshot.read_at(&mut bytes[..there], 0);
        let _maybe = all.map(|all| assert!(all.iter().all(|range| range.end <= len)));
        let _maybe = file.export(None, name, std::io::sink());
        let _maybe = file.export(Some("a"), name, std::io::sink());
    }
}

/// A pair with words that are patched one by one.
struct Bench<'g> {
    ground: &'g Ground,
    closes: bool,
    decision: Option<Decision>,
    scratch: Scratch,
    left: Left,
}

impl Bench<'_> {
    fn new(ground: &Ground, closes: bool) -> Bench<'_> {
        let scratch = ground.scratch();
        let left = Left::new(ground, &scratch, closes);
        let decision = options(ground).inspect(&left.home).expect("look").decision;
        Bench { ground, closes, decision, scratch, left }
    }

    /// Makes the files what they were. Where a call has removed one of them, or its mark, makes
    /// another pair.
    fn restore(&mut self) {
        self.left.restore();
        let look = options(self.ground).inspect(&self.left.home).expect("look");
        if look.decision != self.decision {
            self.scratch = self.ground.scratch();
            self.left = Left::new(self.ground, &self.scratch, self.closes);
        }
    }

    /// Gives a word of structure `n` the value in this place of its list, and uses the pair.
    /// Returns what that came to, or `None` if there is no such value.
    fn patch(&mut self, n: usize, offset: usize, value: usize) -> Option<Result<(), Error>> {
        self.restore();
        let structures = self.left.structures();
        let Structure { what, file, at, len, seal } = structures.get(n)?;
        let mut bytes = read(self.left.path(*file), *at, *len);
        let value = *values(word(bytes.get(..offset + 8).map(|_| &bytes)?, offset)).get(value)?;
        bytes[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
        seal(&mut bytes);
        let to = std::fs::File::options().write(true).open(self.left.path(*file)).expect("open");
        let time = to.metadata().and_then(|looked| looked.modified()).expect("a time");
        to.write_all_at(&bytes, *at).and_then(|()| to.set_modified(time)).expect("write");
        let used = || use_everything(self.ground, &self.left.home);
        let used = std::panic::catch_unwind(std::panic::AssertUnwindSafe(used));
        Some(used.unwrap_or_else(|_| panic!("{what} in {file:?}, byte {offset}: {value:#x}")))
    }
}

/// Every word of every structure of a pair's companions gets each value. The calls return, and
/// what they return is typed. Without bounds where words are read, sums of them overflow.
fn words_of_companions(ground: &Ground, closes: bool) {
    let mut bench = Bench::new(ground, closes);
    let structures = bench.left.structures();
    let kinds: BTreeSet<&str> = structures.iter().map(|structure| structure.what).collect();
    let wanted = ["superblock", "state word", "table", "segment", "keep record"];
    let of_journal =
        if ground.medium == Medium::PageCache { &["header", "record"][..] } else { &[] };
    assert!(wanted.iter().chain(of_journal).all(|what| kinds.contains(what)), "{kinds:?}");
    use_everything(ground, &bench.left.home).expect("the files as they were left");
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for (n, Structure { what, len, .. }) in structures.iter().enumerate() {
        // One of many records is as good as all.
        *seen.entry(what).or_default() += 1;
        if seen[what] > 1 && *what != "state word" {
            continue;
        }
        let mut accepted = 0;
        let offsets = (0..*len / 8).map(|word| word * 8);
        let is_number = |at: &usize| match *what {
            // Without the name.
            "superblock" => !(184..424).contains(at),
            "table" => *at < 128 || at % 128 < 32,
            // Without the bytes of the slices.
            _ => *at < 160,
        };
        for offset in offsets.filter(is_number) {
            let tried = (0..).map_while(|value| bench.patch(n, offset, value));
            accepted += tried.filter(Result::is_ok).count();
        }
        assert!(accepted > 0, "each value of each word of the {what} was refused");
    }
}

#[test]
fn words_of_a_closed_pair_in_ram_at_the_ends_of_their_ranges() {
    words_of_companions(&common::ram(), true);
}

#[test]
fn words_of_a_pair_that_died_at_the_ends_of_their_ranges() {
    // With a journal.
    words_of_companions(&Ground { medium: Medium::PageCache, ..common::ram() }, false);
}

/// The parts of a file with names and logs that have a checksum: offset, length, and its place.
fn parts_of_structures(bytes: &[u8]) -> Vec<(usize, usize, usize)> {
    let mut parts = vec![(0, 64, 12)];
    for at in (128..4096).step_by(128) {
        if bytes[at..at + 128].iter().any(|byte| *byte != 0) {
            parts.push((at, 128, 40));
        }
    }
    for at in (0..bytes.len()).step_by(4096) {
        if bytes[at..].starts_with(b"AtomLogs") {
            parts.push((at, 96, 12));
        }
        if bytes[at..].starts_with(b"AtomSegs") {
            parts.push((at, 16 + 24 * (word(bytes, at + 8) as u32 as usize).min(170), 12));
        }
    }
    parts
}

fn use_structures(file: &AtomicMappedFile) -> Result<(), Error> {
    let roots = Roots::open(file.try_clone()?)?;
    let _maybe = roots.check();
    let names = roots.names()?;
    for name in &names {
        let _maybe = roots.get::<u64>(name).map(|slot| slot.map(|slot| slot.load().is_ok()));
        let _maybe = roots.get_array::<u64>(name).map(|array| array.map(|array| array.len()));
        let Ok(log) = roots.log(name) else { continue };
        for seq in [0, 3, 11, 40, u64::MAX] {
            let _maybe = log.get(seq);
        }
        let _maybe = log.iter_from(0).take(100).filter(Result::is_ok).count();
        let _maybe = log.truncate_front(2);
        let _maybe = log.append(&[vec![1_u8; 20_000]]);
        let _maybe = log.append(&["tail"]);
        let _maybe = log.truncate_back(30);
        let _maybe = log.truncate_front(5);
        let _maybe = log.truncate_front(u64::MAX);
        let _maybe = log.append(&["past the last number"]);
    }
    let _maybe = roots.get_or_insert_array::<u64>("new", 3000);
    let _maybe = roots.log("another").and_then(|log| log.append(&[[0; 5000]]));
    names.first().map_or(Ok(false), |name| roots.remove(name))?;
    roots.check()
}

/// An append past the last position would leave a head that every later call refuses.
#[test]
fn a_log_at_its_last_positions_takes_what_fits_and_stays_readable() {
    let ground = common::ram();
    let scratch = ground.scratch();
    let file = options(&ground).open(scratch.file("state.dat")).expect("open");
    let roots = Roots::open(file.try_clone().expect("another handle")).expect("a directory");
    let log = roots.log("log").expect("make");
    let mut bytes = common::read_all(&file);
    let head = (0..bytes.len()).step_by(4096).find(|at| bytes[*at..].starts_with(b"AtomLogs"));
    let head = head.expect("the head of the log");
    // Where a block begins: 16 bytes before the last position.
    let end = (1_u64 << 60) / 4080 * 4080;
    // Both ends of the log, and the block in which its next segment begins.
    for (at, value) in [(48, end), (56, end), (80, end / 4080)] {
        bytes[head + at..][..8].copy_from_slice(&value.to_le_bytes());
    }
    seal_at(12, b"")(&mut bytes[head..head + 96]);
    file.write_at(&bytes[head..head + 96], head as u64).expect("write");
    let full = log.append(&[[1; 200]]).expect_err("no position is left");
    assert!(full.to_string().contains("positions of a log"), "{full}");
    assert_eq!(log.append(&[[2; 7]]).expect("it fits"), 0);
    assert_eq!(log.get(0).expect("readable"), Some(vec![2; 7]));
    roots.check().expect("whole");
}

#[test]
fn words_of_names_and_logs_at_the_ends_of_their_ranges() {
    let ground = common::ram();
    let scratch = ground.scratch();
    let roots = Roots::open(options(&ground).open(scratch.file("sample")).expect("open"));
    let roots = roots.expect("a directory");
    roots.get_or_insert::<u64>("value").expect("make");
    roots.get_or_insert_array::<u64>("array", 700).expect("make");
    let log = roots.log("log").expect("make");
    for n in 0..60_usize {
        log.append(&[vec![n as u8; 700 + n * 61]]).expect("append");
    }
    log.truncate_front(11).expect("truncate");
    roots.log("empty").expect("make");
    // The list of one segment: no neighbour contradicts what it says.
    let short = roots.log("short").expect("make");
    for _ in 0..9 {
        short.append(&["x"]).expect("append");
    }
    let sample = common::read_all(roots.file());
    let file = options(&ground).open(scratch.file("state.dat")).expect("open");
    for (at, len, sum_at) in parts_of_structures(&sample) {
        for offset in (0..len / 8).map(|word| at + word * 8) {
            for value in values(word(&sample, offset)) {
                let mut bytes = sample.clone();
                bytes[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
                seal_at(sum_at, b"")(&mut bytes[at..at + len]);
                let reset = file.set_len(0).and_then(|()| file.set_len(bytes.len() as u64));
                reset.and_then(|()| file.write_at(&bytes, 0)).expect("the bytes");
                let used = std::panic::AssertUnwindSafe(|| use_structures(&file));
                let used = std::panic::catch_unwind(used);
                assert!(used.is_ok(), "the part at {at}, byte {}: {value:#x}", offset - at);
            }
        }
    }
}

/// Puts the checksums of a stream right: of its header, of each frame, and the one over all.
fn seal_stream(bytes: &mut [u8]) {
    let sum = crc32c(&bytes[12..320]);
    put(bytes, 8, sum);
    let (seed, mut at, mut sums) = (crc32c(&bytes[24..320]), 320, 0);
    while let Some(len) = bytes.get(at + 12..at + 16) {
        let len = u32::from_le_bytes(len.try_into().expect("4 bytes")) as usize;
        let Some(frame) = bytes.get_mut(at..).and_then(|rest| rest.get_mut(..32 + len)) else {
            return;
        };
        if frame.starts_with(b"AtomFini") && len == 16 {
            put(frame, 40, sums);
        }
        let sum = crc32c_append(seed, &frame[12..]);
        put(frame, 8, sum);
        sums = crc32c_append(sums, &sum.to_le_bytes());
        at += 32 + len;
    }
}

#[test]
fn words_of_streams_at_the_ends_of_their_ranges() {
    let ground = common::ram();
    let scratch = ground.scratch();
    let file = options(&ground).len(300_000).open(scratch.file("sender")).expect("open");
    let mut streams = [Vec::new(), Vec::new()];
    file.write_at(&[1; 9000], 40).and_then(|()| file.snapshot("a").map(drop)).expect("seal");
    file.write_at(&[2; 90], 70_000).and_then(|()| file.set_len(200_005)).expect("change");
    file.snapshot("b").expect("seal");
    file.export(None, "a", &mut streams[0]).expect("export");
    file.export(Some("a"), "b", &mut streams[1]).expect("export");
    let [whole, _] = streams.clone();
    for (n, stream) in streams.iter().enumerate() {
        for offset in (8..stream.len().min(900)).step_by(8) {
            for value in values(word(stream, offset)) {
                let mut bytes = stream.clone();
                bytes[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
                seal_stream(&mut bytes);
                let scratch = ground.scratch();
                let file = options(&ground).open(scratch.file("receiver")).expect("open");
                if n == 1 {
                    file.import(&whole[..]).expect("the base");
                }
                let before = common::read_all(&file);
                let received = std::panic::AssertUnwindSafe(|| file.import(&bytes[..]));
                let received = std::panic::catch_unwind(received);
                let what = format!("stream {n}, byte {offset}: {value:#x}");
                if received.unwrap_or_else(|_| panic!("{what}")).is_err() {
                    common::assert_same(&common::read_all(&file), &before, &what);
                }
            }
        }
    }
}

/// A file of snapshots with a hole behind it, of any apparent length, opens as one without: its
/// storage bounds the work. The mark of one that no addresses fit is damage.
#[test]
fn a_hole_in_the_store_of_snapshots_costs_nothing() {
    let ground = common::ram();
    assert_eq!(ground.medium, Medium::Ram);
    for len in [100 << 30, 8 << 40, (64 << 40) + 1] {
        let scratch = ground.scratch();
        let left = Left::new(&ground, &scratch, true);
        let store = std::fs::File::options().write(true).open(&left.snapshots).expect("open");
        store.set_len(len).expect("longer");
        match options(&ground).open(&left.home) {
            Ok(file) => {
                assert_eq!(file.snapshots().len(), 3);
                file.snapshot("d").expect("seal");
                file.write_at(&[7; 9000], 0).expect("write");
                file.roll_back("a", None).expect("go back");
                drop(file);
            }
            Err(error) => assert!(len > 64 << 40, "{error}"),
        }
        let opened = options(&ground).open(&left.home).is_ok();
        assert_eq!(opened, len <= 64 << 40, "{len}");
    }
}
