//! A store of records in pages, over any subject.
//!
//! Owns: a store of records in leaves of 8 KiB, in the order of their keys. It is equal for all
//! subjects. The layout: a directory, in which entry `n` holds the first key of leaf `n`, and then
//! the leaves. A search for a key uses a sorted copy of the directory in memory, as storage engines
//! do with their upper levels.
//!
//! Invariants: each write stores whole pages. A split is one transaction if the subject has them.
//! Otherwise it is three writes in an order that leaves a valid state after each. A leaf may then
//! hold keys past the start of the next leaf. They are ignored, and its next write removes them.

use crate::subject::Subject;
use std::collections::BTreeMap;

/// Bytes of a leaf. The directory also grows in steps of this size.
const PAGE: usize = 8192;
/// Bytes of a leaf's header, which holds the number of its records.
const HEAD: usize = 64;
/// Bytes of a value: the ten fields of 100 in YCSB.
pub const VALUE: usize = 1000;
const RECORD: usize = 8 + VALUE;
const RECORDS: usize = (PAGE - HEAD) / RECORD;
/// The first key of an unused leaf.
const UNUSED: u64 = 0;

/// The store. Keys are neither 0 nor the greatest number.
pub struct PageStore<'a> {
    subject: &'a dyn Subject,
    leaves_at: u64,
    index: BTreeMap<u64, u64>,
    page: Box<[u8; PAGE]>,
}

/// Returns the bytes of a file for this number of records, inserted in any order.
pub fn file_len(records: u64) -> u64 {
    // A split halves a leaf, so leaves are at least half full.
    let leaves = records / (RECORDS as u64 / 2) + 1;
    directory(leaves) + leaves * PAGE as u64
}

fn directory(leaves: u64) -> u64 {
    (leaves * 8).next_multiple_of(PAGE as u64)
}

impl<'a> PageStore<'a> {
    /// Opens the existing store, for at most this number of records. A file of zeros is an empty
    /// store.
    pub fn open(subject: &'a dyn Subject, records: u64) -> PageStore<'a> {
        let leaves = records / (RECORDS as u64 / 2) + 1;
        let mut bytes = vec![0; directory(leaves) as usize];
        subject.read(&mut bytes, 0);
        let firsts = bytes.as_chunks::<8>().0.iter().map(|first| u64::from_le_bytes(*first));
        let used = firsts.zip(0..).filter(|(first, _)| *first != UNUSED);
        let index = used.map(|(first, leaf)| (first - 1, leaf)).collect();
        let leaves_at = directory(leaves);
        PageStore { subject, leaves_at, index, page: Box::new([0; PAGE]) }
    }

    /// Finds a value. Returns `false` if the key is missing.
    pub fn get(&mut self, key: u64, value: &mut [u8; VALUE]) -> bool {
        let Some((_, count)) = self.load(key) else { return false };
        let Ok(at) = search(&self.page, count, key) else { return false };
        value.copy_from_slice(&self.page[HEAD + at * RECORD + 8..][..VALUE]);
        true
    }

    /// Changes or inserts a value.
    pub fn put(&mut self, key: u64, value: &[u8; VALUE]) {
        let Some((leaf, mut count)) = self.load(key) else {
            // The first record: its leaf holds every key until it splits.
            self.page.fill(0);
            insert(&mut self.page, 0, 0, key, value);
            self.write(self.place(0), &self.page[..]);
            self.write(0, &1u64.to_le_bytes());
            self.index.insert(0, 0);
            return;
        };
        match search(&self.page, count, key) {
            Ok(at) => {
                self.page[HEAD + at * RECORD + 8..][..VALUE].copy_from_slice(value);
                self.write(self.place(leaf), &self.page[..]);
            }
            Err(at) if count < RECORDS => {
                insert(&mut self.page, count, at, key, value);
                self.write(self.place(leaf), &self.page[..]);
            }
            Err(mut at) => {
                let half = RECORDS / 2;
                let mut right = Box::new([0; PAGE]);
                let upper = HEAD + half * RECORD..HEAD + count * RECORD;
                right[HEAD..][..upper.len()].copy_from_slice(&self.page[upper]);
                let mut right_count = count - half;
                set_count(&mut right, right_count);
                count = half;
                set_count(&mut self.page, count);
                if at > half {
                    at -= half;
                    insert(&mut right, right_count, at, key, value);
                    right_count += 1;
                } else {
                    insert(&mut self.page, count, at, key, value);
                }
                debug_assert!(right_count <= RECORDS);
                self.split(leaf, key_at(&right, 0), &right[..]);
            }
        }
    }

    /// Reads at most `records` records, from a key on. Returns their number.
    pub fn scan(&mut self, key: u64, records: usize) -> usize {
        let mut found = 0;
        let mut next = Some(key);
        while let Some(from) = next
            && let Some((_, count)) = self.load(from)
        {
            let at = search(&self.page, count, from).unwrap_or_else(|at| at);
            std::hint::black_box(&self.page[HEAD + at * RECORD..HEAD + count * RECORD]);
            found += count - at;
            if found >= records {
                return records;
            }
            next = self.index.range(from + 1..).next().map(|(first, _)| *first);
        }
        found
    }

    /// Adds a leaf after the one that it was split from. The new bytes of that one are in `page`.
    fn split(&mut self, leaf: u64, first: u64, right: &[u8]) {
        let new = self.index.len() as u64;
        let entry = (first + 1).to_le_bytes();
        let (left_at, right_at) = (self.place(leaf), self.place(new));
        // A new leaf lies after all others.
        let parts = [(new * 8, &entry[..]), (left_at, &self.page[..]), (right_at, right)];
        if self.subject.transact(&parts) {
            self.subject.sync();
        } else {
            self.write(right_at, right);
            self.write(new * 8, &entry);
            self.write(left_at, &self.page[..]);
        }
        self.index.insert(first, new);
    }

    /// Loads the leaf of a key. Returns its number, and the number of its valid records.
    fn load(&mut self, key: u64) -> Option<(u64, usize)> {
        let (_, &leaf) = self.index.range(..=key).next_back()?;
        let place = self.place(leaf);
        self.subject.read(&mut self.page[..], place);
        let mut count = count(&self.page);
        if let Some((&next, _)) = self.index.range(key + 1..).next() {
            while count > 0 && key_at(&self.page, count - 1) >= next {
                count -= 1;
            }
        }
        Some((leaf, count))
    }

    fn place(&self, leaf: u64) -> u64 {
        self.leaves_at + leaf * PAGE as u64
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        self.subject.write(bytes, at);
        self.subject.sync();
    }
}

fn count(page: &[u8; PAGE]) -> usize {
    usize::from(page[0]).min(RECORDS)
}

fn set_count(page: &mut [u8; PAGE], count: usize) {
    page[0] = count as u8;
}

fn key_at(page: &[u8; PAGE], at: usize) -> u64 {
    let mut key = [0; 8];
    key.copy_from_slice(&page[HEAD + at * RECORD..][..8]);
    u64::from_le_bytes(key)
}

/// Returns the position of a key, or where it would be inserted.
fn search(page: &[u8; PAGE], count: usize, key: u64) -> Result<usize, usize> {
    let at = (0..count).find(|at| key_at(page, *at) >= key).unwrap_or(count);
    if at < count && key_at(page, at) == key { Ok(at) } else { Err(at) }
}

fn insert(page: &mut [u8; PAGE], count: usize, at: usize, key: u64, value: &[u8; VALUE]) {
    let from = HEAD + at * RECORD;
    page.copy_within(from..HEAD + count * RECORD, from + RECORD);
    page[from..][..8].copy_from_slice(&key.to_le_bytes());
    page[from + 8..][..VALUE].copy_from_slice(value);
    set_count(page, count + 1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    struct Plain(Mutex<Vec<u8>>, bool);

    impl Subject for Plain {
        fn write(&self, data: &[u8], offset: u64) {
            self.0.lock().unwrap()[offset as usize..][..data.len()].copy_from_slice(data);
        }

        fn read(&self, to: &mut [u8], offset: u64) {
            to.copy_from_slice(&self.0.lock().unwrap()[offset as usize..][..to.len()]);
        }

        fn transact(&self, parts: &[(u64, &[u8])]) -> bool {
            assert!(parts.is_sorted_by(|a, b| a.0 + a.1.len() as u64 <= b.0));
            if self.1 {
                parts.iter().for_each(|(offset, data)| self.write(data, *offset));
            }
            self.1
        }
    }

    #[test]
    fn a_store_against_a_map() {
        const KEYS: u64 = 500;
        for transactions in [true, false] {
            let plain = Plain(Mutex::new(vec![0; file_len(KEYS) as usize]), transactions);
            let mut map = BTreeMap::new();
            let mut rng = fastrand::Rng::with_seed(3);
            for round in 0..4 {
                let mut store = PageStore::open(&plain, KEYS);
                for n in 0..1000 {
                    let key = 1 + rng.u64(0..KEYS - 1) * 0xFFFF_FFFF_FFFF;
                    let value = [(n + round) as u8; VALUE];
                    store.put(key, &value);
                    map.insert(key, value[0]);
                }
                let mut value = [0; VALUE];
                for (&key, &expected) in &map {
                    assert!(store.get(key, &mut value), "{key} is lost");
                    assert_eq!(value, [expected; VALUE]);
                    assert!(!store.get(key + 1, &mut value));
                }
                let from = 1 + rng.u64(0..KEYS) * 0xFFFF_FFFF_FFFF;
                let expected = map.range(from..).count();
                assert_eq!(store.scan(from, usize::MAX), expected);
                assert_eq!(store.scan(from, 20), expected.min(20));
            }
        }
    }
}
