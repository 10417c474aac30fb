//! Fuzz target: names and logs, compared with maps and lists. Then their bytes are damaged, and
//! everything is called.
//!
//! ```text
//! 0     bit 0: page cache or RAM; bit 1: each checksum is put right after the damage
//! 1-    operations: which one (bits 0-3), the name (bits 4-6), then its numbers; operation 15
//!       ends them
//! ...   damage, 5 bytes each: where (bits 0-1: anywhere, in the directory, in the head or the
//!       segments of a log; bits 2-3: what; bit 4: instead a word, by `Input::edge`), how far
//!       (3), the new byte
//! ```
//!
//! The checksums are computed here a second time, from `docs/structures.md`.

use super::ground::{self, Ground};
use super::image::{Contents, Image};
use super::input::{Input, filling};
use atomic_mmap::{AtomicMappedFile, CloseMode, Error, Log, Medium, Roots, StructureError};
use std::collections::BTreeMap;
use std::path::Path;

const PAGE: usize = 4096;
/// Most bytes of the file.
const MOST: u64 = 64 << 20;
/// Most operations of an input.
const OPERATIONS: usize = 60;
/// Most changes to the bytes.
const DAMAGES: usize = 8;
const NAMES: [&str; 8] = ["a", "b", "c", "d", "log", "another log", "g", "h"];

/// Runs one input.
pub fn run(input: &[u8]) {
    ground::with(|ground| one(ground, Input(input)));
}

/// The thing that a name stands for, in the model.
#[derive(Clone, PartialEq, Debug)]
enum Thing {
    Value(u64),
    Array(Vec<u64>),
    /// The number of the oldest record, and the records.
    Log(u64, Vec<Vec<u8>>),
}

type Model = BTreeMap<&'static str, Thing>;

struct Run<'g> {
    ground: &'g Ground,
    medium: Medium,
    model: Model,
    /// The seed of the next bytes that are written.
    next: u64,
}

fn one(ground: &Ground, mut input: Input<'_>) {
    let first = input.byte();
    let medium = if first & 1 == 0 { Medium::Ram } else { Medium::PageCache };
    let mut run = Run { ground, medium, model: Model::new(), next: 1 };
    let mut roots = run.open_file_of(0, &[]).expect("a new directory");
    for _ in 0..OPERATIONS {
        let operation = input.byte();
        if operation & 15 == 15 || input.is_empty() {
            break;
        }
        roots = run.operate(roots, operation, &mut input);
    }
    run.check(&roots);
    let mut bytes = roots.file().read_vec().expect("a read");
    drop(roots);
    if input.is_empty() {
        return;
    }
    for _ in 0..DAMAGES {
        if !input.is_empty() {
            damage(&mut bytes, &mut input);
        }
    }
    if first & 2 != 0 {
        seal(&mut bytes);
    }
    run.use_damaged(&bytes);
}

impl Run<'_> {
    fn open(&self, home: &Path) -> Result<Roots, Error> {
        let options = AtomicMappedFile::options().create(true).max_len(MOST).medium(self.medium);
        Roots::open(options.open(home).expect("a file"))
    }

    /// Opens a plain file with these bytes in place `n` of the ground.
    fn open_file_of(&self, n: usize, bytes: &[u8]) -> Result<Roots, Error> {
        let slot = &self.ground.slots[n];
        let mut home = Contents::of_len(bytes.len() as u64);
        home.write(bytes, 0);
        let image = Image { home, ..Image::default() };
        slot.put_home(&image);
        slot.put_reflection(&image);
        self.open(&slot.home)
    }

    fn operate(&mut self, roots: Roots, operation: u8, input: &mut Input<'_>) -> Roots {
        let name = NAMES[usize::from(operation >> 4 & 7)];
        match operation & 15 {
            0 | 1 => self.store_value(&roots, name),
            2 | 3 => self.store_array(&roots, name, input.number(2) % 2000),
            4 => {
                let was = self.model.remove(name).is_some();
                assert_eq!(roots.remove(name).expect("remove"), was, "{name}");
            }
            5..=7 => self.append(&roots, name, input),
            8 | 9 => self.truncate(&roots, name, operation & 15 == 8, input.byte()),
            10 => self.leave_undone(&roots, name),
            11 => self.do_together(&roots, name, NAMES[usize::from(input.byte()) % NAMES.len()]),
            12 => self.check(&roots),
            _ => {
                let mode = input.pick(&[CloseMode::Unsynced, CloseMode::Fast, CloseMode::Spatial]);
                roots.into_file().close(mode).expect("close");
                let roots = self.open(&self.ground.slots[0].home).expect("open again");
                self.check(&roots);
                return roots;
            }
        }
        roots
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        self.next += 1;
        filling(self.next, len)
    }

    fn store_value(&mut self, roots: &Roots, name: &'static str) {
        self.next += 1;
        let found = roots.get_or_insert::<u64>(name);
        match self.model.entry(name).or_insert(Thing::Value(0)) {
            Thing::Value(value) => {
                let slot = found.expect("a value");
                assert_eq!(slot.load().expect("load"), *value, "{name}");
                slot.store(&self.next).expect("store");
                *value = self.next;
            }
            _ => assert_wrong_type(found),
        }
    }

    fn store_array(&mut self, roots: &Roots, name: &'static str, count: u64) {
        self.next += 1;
        let found = roots.get_or_insert_array::<u64>(name, count);
        match self.model.entry(name).or_insert_with(|| Thing::Array(vec![0; count as usize])) {
            Thing::Array(values) if values.len() as u64 == count => {
                let array = found.expect("an array");
                assert_eq!(array.to_vec().expect("read"), *values, "{name}");
                values.fill(self.next);
                array.set_many(0, values).expect("write");
            }
            _ => assert_wrong_type(found),
        }
    }

    fn append(&mut self, roots: &Roots, name: &'static str, input: &mut Input<'_>) {
        let how = input.byte();
        let records: Vec<Vec<u8>> = (0..how & 3)
            .map(|_| {
                let len = input.number(2) as usize;
                self.bytes(if how & 4 == 0 { len % 300 } else { len % 20_000 })
            })
            .collect();
        let found = roots.log(name);
        let Thing::Log(first, all) = self.model.entry(name).or_insert(Thing::Log(0, Vec::new()))
        else {
            return assert_wrong_type(found);
        };
        let number = found.and_then(|log| log.append(&records)).expect("append");
        assert_eq!(number, *first + all.len() as u64, "{name}");
        all.extend(records);
    }

    fn truncate(&mut self, roots: &Roots, name: &'static str, front: bool, by: u8) {
        let Some(Thing::Log(first, all)) = self.model.get_mut(name) else { return };
        let log = roots.log(name).expect("a log");
        let by = usize::from(by) % (all.len() + 2);
        if front {
            log.truncate_front(*first + by as u64).expect("truncate");
            *first += by as u64;
            all.drain(..by.min(all.len()));
        } else {
            log.truncate_back(*first + by as u64).expect("truncate");
            all.truncate(by);
        }
    }

    /// Makes names and appends to a log in a transaction that is not committed.
    fn leave_undone(&mut self, roots: &Roots, name: &'static str) {
        let len = roots.file().len();
        let mut tx = roots.file().begin();
        if let Ok(offset) = roots.get_or_insert_array_in::<u64>(&mut tx, name, 700) {
            tx.store(offset, &[!0_u64; 700]).expect("store");
        }
        if let Ok(log) = roots.log_in(&mut tx, "log") {
            log.append_in(&mut tx, &[[9; 9000]]).expect("append");
        }
        tx.rollback();
        assert_eq!(roots.file().len(), len, "nothing was committed");
    }

    /// Stores a value and appends a record, in one operation.
    fn do_together(&mut self, roots: &Roots, value: &'static str, log: &'static str) {
        let record = self.bytes(5000);
        let number = self.next;
        let result = roots.file().transact(|tx| {
            let offset = roots.get_or_insert_in::<u64>(tx, value)?;
            tx.store(offset, &number)?;
            roots.log_in(tx, log)?.append_in(tx, &[&record])
        });
        let mut model = self.model.clone();
        let is_value = match model.entry(value).or_insert(Thing::Value(0)) {
            Thing::Value(value) => {
                *value = number;
                true
            }
            _ => false,
        };
        match model.entry(log).or_insert(Thing::Log(0, Vec::new())) {
            Thing::Log(first, all) if is_value => {
                assert_eq!(result.expect("a transaction"), *first + all.len() as u64);
                all.push(record);
                self.model = model;
            }
            _ => assert_wrong_type(result),
        }
    }

    fn check(&self, roots: &Roots) {
        roots.check().expect("all invariants hold");
        let names: Vec<&str> = self.model.keys().copied().collect();
        assert_eq!(roots.names().expect("names"), names);
        for (name, thing) in &self.model {
            match thing {
                Thing::Value(value) => {
                    let found = roots.get::<u64>(*name).expect("a value").expect("a value");
                    assert_eq!(found.load().expect("load"), *value, "{name}");
                }
                Thing::Array(values) => {
                    let found = roots.get_array::<u64>(*name).expect("an array");
                    assert_eq!(found.expect("an array").to_vec().expect("read"), *values);
                }
                Thing::Log(first, all) => {
                    let log = roots.log(*name).expect("a log");
                    let numbered = (*first..).zip(all.iter().cloned());
                    let found: Result<Vec<_>, _> = log.iter_from(0).collect();
                    assert_eq!(found.expect("records"), numbered.collect::<Vec<_>>(), "{name}");
                    assert_eq!(log.get(first + all.len() as u64).expect("get"), None);
                }
            }
        }
    }

    /// Makes a file of damaged bytes, and calls everything. An error is about the structure, or
    /// about the file's length.
    fn use_damaged(&self, bytes: &[u8]) {
        let roots = match self.open_file_of(1, bytes) {
            Ok(roots) => roots,
            Err(error) => return assert_typed::<()>(Err(error)),
        };
        assert_typed(roots.check());
        let names = roots.names();
        for name in names.iter().flatten() {
            assert_typed(roots.get::<u64>(name));
            assert_typed(roots.get_array::<u64>(name).map(|array| array.map(|array| array.len())));
            match roots.log(name) {
                Ok(log) => use_damaged_log(&log),
                Err(error) => assert_typed::<()>(Err(error)),
            }
        }
        assert_typed(names);
        assert_typed(roots.get_or_insert_array::<u64>("new", 3000));
        assert_typed(roots.remove("log"));
        assert_typed(roots.log("a new log").and_then(|log| log.append(&[[0; 5000]])));
        assert_typed(roots.check());
    }
}

fn use_damaged_log(log: &Log) {
    let range = match log.range() {
        Ok(range) => range,
        Err(error) => return assert_typed::<()>(Err(error)),
    };
    let middle = range.start / 2 + range.end / 2;
    assert_typed(log.get(range.start));
    assert_typed(log.get(middle));
    log.iter_from(middle).take(100).for_each(assert_typed);
    assert_typed(log.append(&[[1; 100], [2; 100]]));
    assert_typed(log.append(&[[3; 9000]]));
    assert_typed(log.truncate_back(middle));
    assert_typed(log.truncate_front(range.start.saturating_add(1)));
    assert_typed(log.append(&[[4; 50]]));
}

#[track_caller]
fn assert_wrong_type<T>(result: Result<T, Error>) {
    let Err(Error::Structure { why: StructureError::WrongType { .. }, .. }) = result else {
        panic!("{:?}, and not another type", result.err());
    };
}

#[track_caller]
fn assert_typed<T>(result: Result<T, Error>) {
    if let Err(error) = result {
        let is_expected = matches!(
            error,
            Error::Structure { .. }
                | Error::PastEnd { .. }
                | Error::TooLong { .. }
                | Error::Overflow { .. }
        );
        assert!(is_expected, "{error}");
    }
}

/// Damages some bytes, most often in the parts that describe others.
fn damage(bytes: &mut [u8], input: &mut Input<'_>) {
    let (where_, far, new) = (input.byte(), input.number(3) as usize, input.byte());
    let heads: Vec<usize> = (0..bytes.len())
        .step_by(PAGE)
        .filter(|at| bytes[*at..].starts_with(b"AtomLogs") || bytes[*at..].starts_with(b"AtomSegs"))
        .collect();
    let at = match where_ & 3 {
        0 => far % bytes.len(),
        1 => far % (128 + 12 * 128),
        _ if heads.is_empty() => far % 64,
        _ => heads[far % heads.len()] + 8 + (far >> 8) % 88,
    };
    if let (true, Some(word)) = (where_ & 16 != 0, bytes[at / 8 * 8..].first_chunk_mut::<8>()) {
        *word = input.edge(u64::from_le_bytes(*word)).to_le_bytes();
        return;
    }
    match where_ >> 2 & 3 {
        0 => bytes[at] = new,
        1 => bytes[at] = bytes[at].wrapping_add(1),
        2 => bytes[at] ^= 1 << (new & 7),
        // A number of 8 bytes that is as high as can be.
        _ => bytes[at / 8 * 8..].iter_mut().take(8).for_each(|byte| *byte = new | 0x80),
    }
}

/// Gives all parts with a checksum the right one, except for blocks and records.
fn seal(bytes: &mut [u8]) {
    fn seal(part: &mut [u8], at: usize) {
        part[at..at + 4].fill(0);
        let sum = crc32c::crc32c(part);
        part[at..at + 4].copy_from_slice(&sum.to_le_bytes());
    }
    seal(&mut bytes[..64], 12);
    for entry in bytes[128..PAGE].chunks_exact_mut(128) {
        if entry.iter().any(|byte| *byte != 0) {
            seal(entry, 40);
        }
    }
    for page in bytes.chunks_exact_mut(PAGE) {
        if page.starts_with(b"AtomLogs") {
            seal(&mut page[..96], 12);
        }
        if page.starts_with(b"AtomSegs") {
            let count = usize::from(page[8]).min(170);
            seal(&mut page[..16 + count * 24], 12);
        }
    }
}
