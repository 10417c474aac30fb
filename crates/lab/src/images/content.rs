//! A plain model of the expected content of the file, and of its snapshots.

use atomic_mmap::{AtomicMappedFile, Result, Source};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

const PAGE: u64 = 4096;

/// The whole file as a reader sees it. Missing pages are zero. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct Content {
    /// Length in bytes.
    pub len: u64,
    pages: BTreeMap<u64, Arc<[u8; PAGE as usize]>>,
    /// The snapshots, by their names. None of them has snapshots of its own.
    pub sealed: BTreeMap<String, Arc<Content>>,
}

/// The change that an operation makes.
#[derive(Clone, Debug)]
pub enum Effect {
    /// No visible change.
    Nothing,
    /// Bytes at several offsets.
    Bytes(Vec<(u64, Vec<u8>)>),
    /// The length; new bytes are zero.
    Len(u64),
    /// The length, and then bytes at several offsets.
    LenAndBytes(u64, Vec<(u64, Vec<u8>)>),
    /// A snapshot of this name.
    Seal(String),
    /// The snapshot of this name is gone.
    Drop(String),
    /// The bytes and the length of a snapshot. The present is sealed under the second name first.
    RollBack(String, Option<String>),
}

impl Content {
    /// Returns zeroes.
    pub fn new(len: u64) -> Content {
        Content { len, pages: BTreeMap::new(), sealed: BTreeMap::new() }
    }

    fn put(&mut self, at: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let from = at + done as u64;
            let len = (bytes.len() - done).min((PAGE - from % PAGE) as usize);
            let page =
                self.pages.entry(from / PAGE).or_insert_with(|| Arc::new([0; PAGE as usize]));
            let start = (from % PAGE) as usize;
            Arc::make_mut(page)[start..start + len].copy_from_slice(&bytes[done..done + len]);
            done += len;
        }
    }

    fn set_len(&mut self, len: u64) {
        if len < self.len {
            let end = self.len.min(len.next_multiple_of(PAGE));
            self.put(len, &vec![0; (end - len) as usize]);
            self.pages.retain(|page, _| page * PAGE < len);
        }
        self.len = len;
    }

    fn seal(&mut self, name: &str) {
        let present = Content { sealed: BTreeMap::new(), ..self.clone() };
        self.sealed.insert(name.to_owned(), Arc::new(present));
    }

    /// Returns the content after the operation.
    pub fn after(&self, effect: &Effect) -> Content {
        let mut next = self.clone();
        match effect {
            Effect::Nothing => {}
            Effect::Bytes(parts) => parts.iter().for_each(|(at, bytes)| next.put(*at, bytes)),
            Effect::Len(len) => next.set_len(*len),
            Effect::LenAndBytes(len, parts) => {
                next.set_len(*len);
                parts.iter().for_each(|(at, bytes)| next.put(*at, bytes));
            }
            Effect::Seal(name) => next.seal(name),
            Effect::Drop(name) => {
                next.sealed.remove(name);
            }
            Effect::RollBack(name, undo) => {
                undo.iter().for_each(|undo| next.seal(undo));
                let back = next.sealed[name].clone();
                (next.len, next.pages) = (back.len, back.pages.clone());
            }
        }
        next
    }

    /// Returns the bytes of a range, as far as the file reaches.
    pub fn range(&self, range: &Range<u64>) -> Vec<u8> {
        let end = range.end.min(self.len);
        let mut bytes = vec![0; end.saturating_sub(range.start) as usize];
        let mut done = 0;
        while done < bytes.len() {
            let from = range.start + done as u64;
            let len = (bytes.len() - done).min((PAGE - from % PAGE) as usize);
            if let Some(page) = self.pages.get(&(from / PAGE)) {
                let start = (from % PAGE) as usize;
                bytes[done..done + len].copy_from_slice(&page[start..start + len]);
            }
            done += len;
        }
        bytes
    }
}

/// The bytes that were found in the ranges under test, of the file and of its snapshots.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Found {
    /// Length of the file.
    pub len: u64,
    /// The bytes of each range.
    pub parts: Vec<Vec<u8>>,
    /// The snapshots, by their names.
    pub sealed: BTreeMap<String, Found>,
}

impl Found {
    /// Returns the state of an open file.
    pub fn of(file: &AtomicMappedFile, ranges: &[Range<u64>]) -> Result<Found> {
        // A read loads only the words of valid slots, so only they get values.
        let mut found = Found::read(file, file.len(), ranges)?;
        found.sealed = Found::sealed(file, ranges)?;
        Ok(found)
    }

    /// Returns the snapshots of an open file.
    pub fn sealed(
        file: &AtomicMappedFile,
        ranges: &[Range<u64>],
    ) -> Result<BTreeMap<String, Found>> {
        let read = |name: String| {
            let snapshot = file.open_snapshot(&name)?;
            Ok((name, Found::read(&snapshot, snapshot.len(), ranges)?))
        };
        file.snapshots().into_iter().map(|info| read(info.name)).collect()
    }

    fn read(from: &impl Source, len: u64, ranges: &[Range<u64>]) -> Result<Found> {
        let mut parts = Vec::with_capacity(ranges.len());
        for range in ranges {
            let end = range.end.min(len);
            let mut bytes = vec![0; end.saturating_sub(range.start) as usize];
            if !bytes.is_empty() {
                from.read_at(&mut bytes, range.start)?;
            }
            parts.push(bytes);
        }
        Ok(Found { len, parts, sealed: BTreeMap::new() })
    }

    /// Returns `true` if the bytes equal those of `content`.
    pub fn is(&self, content: &Content, ranges: &[Range<u64>]) -> bool {
        self.len == content.len
            && self.parts.iter().zip(ranges).all(|(part, range)| *part == content.range(range))
            && self.sealed.len() == content.sealed.len()
            && self.sealed.iter().zip(&content.sealed).all(
                |((name, found), (expected, content))| {
                    name == expected && found.is(content, ranges)
                },
            )
    }

    /// Describes the difference.
    pub fn difference(&self, content: &Content, ranges: &[Range<u64>]) -> String {
        let (is, should) = (self.sealed.keys(), content.sealed.keys());
        if !is.clone().eq(should.clone()) {
            return format!("snapshots {is:?} instead of {should:?}");
        }
        for ((name, found), content) in self.sealed.iter().zip(content.sealed.values()) {
            if !found.is(content, ranges) {
                return format!("snapshot {name}: {}", found.difference(content, ranges));
            }
        }
        if self.len != content.len {
            return format!("length {} instead of {}", self.len, content.len);
        }
        for (part, range) in self.parts.iter().zip(ranges) {
            let expected = content.range(range);
            if let Some(n) = part.iter().zip(&expected).position(|(a, b)| a != b) {
                let at = range.start + n as u64;
                let end = (n + 8).min(part.len());
                return format!(
                    "page {} byte {}: {:02x?} instead of {:02x?}",
                    at / 4096,
                    at % 4096,
                    &part[n..end],
                    &expected[n..end]
                );
            }
        }
        "no difference".into()
    }
}
