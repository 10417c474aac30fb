//! An index of numbers by numbers: open addressing in a file, as a program writes it on a plain
//! mapping of memmap2, and as it is written with this crate, in `examples/index`.

#[path = "../../../../examples/index/index.rs"]
mod example;

use crate::measure::{Effort, Turn, ratio, take_turns};
use crate::ratios::Found;
use crate::scratch::Scratch;
use atomic_mmap::{AtomicMappedFile, CloseMode};
use example::Index;
use memmap2::MmapMut;
use std::fs::File;
use std::io;

/// Places of the plain index, which does not grow: as many as the other one grows to.
const PLACES: u64 = 1 << 20;
/// Keys in it: half of its places, from 1.
const KEYS: u64 = PLACES / 2;
/// Bytes of a place: key and value.
const PLACE: u64 = 16;

/// An index on a plain mapping. A crash may tear it.
struct Plain(MmapMut);

impl Plain {
    fn new(scratch: &Scratch) -> io::Result<Plain> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(scratch.path().join("plain"))?;
        file.set_len(PLACES * PLACE)?;
        // SAFETY: the file is new, lies in a folder of this process, and keeps its length.
        Ok(Plain(unsafe { MmapMut::map_mut(&file) }?))
    }

    fn word(&self, at: u64) -> u64 {
        let at = at as usize;
        u64::from_le_bytes(self.0[at..at + 8].try_into().expect("eight bytes"))
    }

    /// Returns the offset of the place of `key`.
    fn find(&self, key: u64) -> u64 {
        let mut n = example::first_place(key, PLACES);
        loop {
            match self.word(n * PLACE) {
                found if found == key || found == 0 => return n * PLACE,
                _ => n = (n + 1) & (PLACES - 1),
            }
        }
    }

    fn insert(&mut self, key: u64, value: u64) {
        let at = self.find(key) as usize;
        self.0[at + 8..at + 16].copy_from_slice(&value.to_le_bytes());
        self.0[at..at + 8].copy_from_slice(&key.to_le_bytes());
    }

    fn get(&self, key: u64) -> u64 {
        self.word(self.find(key) + 8)
    }
}

fn key_of(round: usize, n: usize) -> u64 {
    let mixed = (round as u64 ^ (n as u64) << 20).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    (mixed >> 40) % KEYS + 1
}

/// Measures insertions over existing keys, and lookups. Neither index waits for the disk.
pub fn measure(effort: &Effort, scratch: &Scratch, found: &mut Found) -> io::Result<()> {
    let mut plain = Plain::new(scratch)?;
    let mut ours = Index::open(AtomicMappedFile::create(scratch.path().join("ours"), 0)?)?;
    for key in 1..=KEYS {
        plain.insert(key, key);
        ours.insert(key, key)?;
    }
    assert_eq!(ours.len()?, KEYS);
    ours.file().sync()?;
    let mut turns: [Turn<'_>; 2] = [
        Box::new(|round, count| {
            (0..count).for_each(|n| ours.insert(key_of(round, n), n as u64).expect("insert"));
        }),
        Box::new(|round, count| {
            (0..count).for_each(|n| plain.insert(key_of(round, n), n as u64));
        }),
    ];
    let series = take_turns(effort, 1, &mut turns);
    drop(turns);
    let told = "a u64 by a u64, half a million keys; the plain one is not atomic";
    found.add("index_insert_vs_memmap2", ratio(&series[0], &series[1]), told);
    let mut turns: [Turn<'_>; 2] = [
        Box::new(|round, count| {
            let value = |n| ours.get(key_of(round, n)).expect("get").expect("a key");
            let sum = (0..count).map(value);
            std::hint::black_box(sum.fold(0, u64::wrapping_add));
        }),
        Box::new(|round, count| {
            let sum = (0..count).map(|n| plain.get(key_of(round, n)));
            std::hint::black_box(sum.fold(0, u64::wrapping_add));
        }),
    ];
    let series = take_turns(effort, 1, &mut turns);
    drop(turns);
    found.add("index_get_vs_memmap2", ratio(&series[0], &series[1]), told);
    let file = ours.file().try_clone()?;
    drop(ours);
    file.close(CloseMode::Fast)?;
    Ok(())
}
