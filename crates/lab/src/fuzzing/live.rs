//! Words of real files with right checksums: the store of snapshots of a closed pair, and a stream
//! between two files. Then everything is called that a program calls.
//!
//! Decoders take each word by itself. What several of them say together, and what the engine
//! computes from them, shows in use alone.
//!
//! ```text
//! changes, up to four: where (1), which one (1), the word in it (1), its new value (`Input::edge`)
//! ```

use super::ground::{self, Ground};
use super::image::Image;
use super::input::Input;
use atomic_mmap::{AtomicMappedFile, CloseMode, Error, Medium, Options};
use crc32c::{crc32c, crc32c_append};
use std::fs;

/// Most bytes of a file.
const MOST: u64 = 64 << 20;
/// Most changes of an input.
const CHANGES: usize = 4;
const TABLES: [usize; 2] = [0, 256 << 10];
const SEGMENTS: usize = 2 << 20;
const SEGMENT: usize = 64 << 10;
const NAMES: [&str; 3] = ["a", "b", "c"];

fn options() -> Options {
    AtomicMappedFile::options().medium(Medium::Ram).max_len(MOST)
}

/// Opens an empty file in place `n` of the ground.
fn fresh(ground: &Ground, n: usize) -> AtomicMappedFile {
    let slot = &ground.slots[n];
    slot.put_home(&Image::default());
    slot.put_reflection(&Image::default());
    options().create(true).open(&slot.home).expect("a new file")
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

fn put(bytes: &mut [u8], at: usize, sum: u32) {
    bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
}

/// Gives a word, modulo those that there are, another value.
fn change(bytes: &mut [u8], input: &mut Input<'_>) {
    let at = usize::from(input.byte()) % (bytes.len() / 8) * 8;
    let value = input.edge(word(bytes, at));
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// Runs one input: words of the store of snapshots.
pub fn store(input: &mut Input<'_>) {
    ground::with(|ground| {
        let path = &ground.slots[0].snapshots;
        make_pair(ground, input.byte());
        let mut bytes = fs::read(path).expect("a store");
        let uuid = bytes[48..64].to_vec();
        for _ in 0..CHANGES {
            if !input.is_empty() {
                change_store(&mut bytes, &uuid, input);
            }
        }
        fs::write(path, bytes).expect("a store");
        // Each error is one of a call. That all of them return is what is asked.
        let _maybe_refused = use_pair(ground, input.byte());
    });
}

fn make_pair(ground: &Ground, how: u8) {
    let file = fresh(ground, 0);
    file.set_len(100_000).expect("grow");
    for (n, name) in (1..).zip(NAMES) {
        for at in (0..48_000).step_by(if n == 1 { 4800 } else { 7800 }) {
            file.write_at(&[n; 900], at).expect("write");
        }
        file.set_len(100_000 - 20_000 * u64::from(n)).expect("shrink");
        file.snapshot(name).expect("seal");
    }
    file.write_at(&[9; 3000], 40).expect("write");
    let mode = if how & 1 == 0 { CloseMode::Fast } else { CloseMode::Unsynced };
    file.close(mode).expect("close");
}

fn seed_of(uuid: &[u8], header: &[u8], segment: usize) -> u32 {
    let place = (segment as u32).to_le_bytes();
    crc32c(&[b"segment", uuid, &header[16..32], &place].concat())
}

/// Changes a word of the tables, of the header of a segment, of its end or of its first record, and
/// puts the checksum right.
fn change_store(bytes: &mut [u8], uuid: &[u8], input: &mut Input<'_>) {
    let (kind, which) = (input.byte(), usize::from(input.byte()));
    if kind & 3 == 0 {
        let at = TABLES[which % 2];
        let Some(table) = bytes.get_mut(at..at + 128 + 128 * 4) else { return };
        change(table, input);
        let entries = (word(table, 8) >> 32).min(4) as usize;
        let seed = crc32c_append(crc32c(b"snapshots"), &table[48..64]);
        let sum = crc32c_append(seed, &table[12..128 + 128 * entries]);
        put(table, 8, sum);
        return;
    }
    let begun = |n: &usize| bytes[SEGMENTS + n * SEGMENT..].starts_with(b"AtomSnpS");
    let count = bytes.len().saturating_sub(SEGMENTS) / SEGMENT;
    let segments: Vec<usize> = (1..count).filter(begun).collect();
    if segments.is_empty() {
        return;
    }
    let segment = segments[which % segments.len()];
    let at = SEGMENTS + segment * SEGMENT;
    let seed = seed_of(uuid, &bytes[at..at + 64], segment);
    match kind & 3 {
        1 => {
            let header = &mut bytes[at..at + 64];
            change(header, input);
            put(header, 8, 0);
            let sum = crc32c_append(seed_of(uuid, header, segment), header);
            put(header, 8, sum);
        }
        2 => {
            let end = &mut bytes[SEGMENTS + segment * 8..][..8];
            change(end, input);
            let sum = crc32c_append(seed, &end[..4]);
            put(end, 4, sum);
        }
        _ => {
            let record = &mut bytes[at + 64..at + SEGMENT];
            change(&mut record[..64], input);
            let kept = word(record, 24).count_ones() as usize * 64;
            let sum = crc32c_append(seed, &record[64..64 + kept]);
            put(record, 4, sum);
            let sum = crc32c_append(seed, &record[4..64]);
            put(record, 0, sum);
        }
    }
}

fn use_pair(ground: &Ground, how: u8) -> Result<(), Error> {
    let home = &ground.slots[0].home;
    options().inspect(home)?;
    if let Ok(file) = options().read_only(true).open(home) {
        read_snapshots(&file);
    }
    let file = options().open(home)?;
    let _maybe = file.write_at(&[3; 5000], 100);
    let _maybe = file.snapshot("d");
    read_snapshots(&file);
    let name = NAMES[usize::from(how >> 4) % NAMES.len()];
    match how & 7 {
        0..=2 => {
            // Going back to a length that this opening has no room for is another test's question.
            if file.open_snapshot(name).is_ok_and(|of| of.len() <= MOST) {
                let _maybe = file.roll_back(name, (how & 8 != 0).then_some("before"));
            }
        }
        3 => {
            let _maybe = file.set_len(3000).and_then(|()| file.set_len(200_000));
        }
        4 => (0..5_u8).for_each(|n| {
            let _maybe = file.snapshot(&format!("n{n}"));
            let _maybe = file.write_at(&[n; 100], 1000 * u64::from(n));
        }),
        _ => NAMES.iter().for_each(|name| {
            let _maybe = file.drop_snapshot(name);
        }),
    }
    file.close(CloseMode::Fast)?;
    options().open(home)?.close(CloseMode::Spatial).map(drop)
}

fn read_snapshots(file: &AtomicMappedFile) {
    let mut bytes = [0; 5000];
    for name in NAMES {
        let Ok(snapshot) = file.open_snapshot(name) else { continue };
        let there = bytes.len().min(snapshot.len() as usize);
        let _maybe = snapshot.read_at(&mut bytes[..there], snapshot.len() - there as u64);
        let _maybe = snapshot.data();
        let _maybe = file.export(None, name, std::io::sink());
        let _maybe = file.export(Some("a"), name, std::io::sink());
    }
}

/// Runs one input: words of a stream. An import that is refused changes nothing.
pub fn stream(input: &mut Input<'_>) {
    ground::with(|ground| {
        let how = input.byte();
        let [whole, mut stream] = streams(ground);
        if how & 1 == 0 {
            stream.clone_from(&whole);
        }
        for _ in 0..CHANGES {
            if !input.is_empty() {
                change_stream(&mut stream, input);
            }
        }
        seal_stream(&mut stream);
        let file = fresh(ground, 1);
        if how & 3 != 0 {
            file.import(&whole[..]).expect("the base");
        }
        let before = file.read_vec().expect("read");
        let over = how & 4 != 0;
        let imported = if over { file.import_over(&stream[..]) } else { file.import(&stream[..]) };
        if imported.is_err() {
            assert!(file.read_vec().expect("read") == before, "a refused import has changed it");
        }
        file.write_at(b"z", 0).or_else(|_| file.set_len(1)).expect("the file works");
        file.close(CloseMode::Spatial).expect("close");
    });
}

/// Returns a stream of a whole file, and one that goes on from it.
fn streams(ground: &Ground) -> [Vec<u8>; 2] {
    let file = fresh(ground, 0);
    file.set_len(100_000).expect("grow");
    let export = |from: Option<&str>, to: &str| {
        let mut stream = Vec::new();
        file.snapshot(to).and_then(|_| file.export(from, to, &mut stream)).expect("export");
        stream
    };
    (0..9).for_each(|n| file.write_at(&[n + 1; 300], u64::from(n) * 9001).expect("write"));
    let whole = export(None, "a");
    (0..4).for_each(|n| file.write_at(&[n + 7; 90], u64::from(n) * 6007).expect("write"));
    file.set_len(80_005).expect("shrink");
    let more = export(Some("a"), "b");
    file.close(CloseMode::Spatial).expect("close");
    [whole, more]
}

/// Changes a word of the header, of a frame, or of the heads of its changes.
fn change_stream(stream: &mut [u8], input: &mut Input<'_>) {
    let (kind, mut which) = (input.byte(), usize::from(input.byte()));
    let mut at = 320;
    while which & 3 != 0 && stream.len() > at + 64 {
        let len = (word(stream, at + 8) >> 32) as usize;
        at = at.saturating_add(len).saturating_add(32);
        which -= 1;
    }
    match kind & 3 {
        0 => change(&mut stream[..320], input),
        _ if at + 64 > stream.len() => change(&mut stream[320..352], input),
        1 => change(&mut stream[at..at + 32], input),
        _ => {
            let end = (at + 32 + 24 * 8).min(stream.len());
            change(&mut stream[at + 32..end], input);
        }
    }
}

/// Puts the checksums of a stream right: of its header, of each frame, and the one over all.
fn seal_stream(stream: &mut [u8]) {
    let sum = crc32c(&stream[12..320]);
    put(stream, 8, sum);
    let (seed, mut at, mut sums) = (crc32c(&stream[24..320]), 320, 0);
    while stream.len() >= at + 32 {
        let len = (word(stream, at + 8) >> 32) as usize;
        let Some(frame) = stream[at..].get_mut(..len.saturating_add(32)) else { return };
        if frame.starts_with(b"AtomFini") && len == 16 {
            put(frame, 40, sums);
        }
        let sum = crc32c_append(seed, &frame[12..]);
        put(frame, 8, sum);
        sums = crc32c_append(sums, &sum.to_le_bytes());
        at += 32 + len;
    }
}
