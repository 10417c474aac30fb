//! Files on the simulated disk, and the changes that may not be durable yet.

use crate::machine::memory::Memory;
use atomic_mmap::testing::machine::FileNumber;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A change of the file system that may not be durable yet, with the data to undo it.
#[derive(Clone, Debug)]
pub(in crate::machine) enum Change {
    Len { file: FileNumber, len: u64, cut: Option<(u64, u64, Memory)> },
    Allocated { file: FileNumber, start: u64, end: u64, before: Spans },
    Punched { file: FileNumber, start: u64, end: u64, bytes: Memory, before: Spans },
    Name { path: PathBuf, before: Option<FileNumber> },
    Renamed { from: PathBuf, to: PathBuf, file: FileNumber, before: Option<FileNumber> },
    Attribute { file: FileNumber, name: String, before: Option<Vec<u8>> },
}

impl Change {
    pub(super) fn file(&self) -> Option<FileNumber> {
        match self {
            Change::Len { file, .. }
            | Change::Allocated { file, .. }
            | Change::Punched { file, .. }
            | Change::Attribute { file, .. } => Some(*file),
            Change::Name { .. } | Change::Renamed { .. } => None,
        }
    }

    /// Returns `true` if a store to the byte makes this change durable.
    pub(super) fn is_under(&self, of: FileNumber, at: u64) -> bool {
        match self {
            Change::Len { file, len, .. } => *file == of && at >= *len,
            Change::Allocated { file, start, end, .. }
            | Change::Punched { file, start, end, .. } => {
                *file == of && (*start..*end).contains(&at)
            }
            Change::Name { .. } | Change::Renamed { .. } | Change::Attribute { .. } => false,
        }
    }
}

/// Disjoint ranges of bytes that have storage: start to end.
#[derive(Clone, Default, Debug)]
pub(in crate::machine) struct Spans(pub(in crate::machine) BTreeMap<u64, u64>);

impl Spans {
    pub(super) fn holds(&self, at: u64) -> bool {
        self.0.range(..=at).next_back().is_some_and(|(_, end)| at < *end)
    }

    pub(super) fn add(&mut self, start: u64, end: u64) {
        let (mut start, mut end) = (start, end);
        let touching: Vec<u64> =
            self.0.range(..=end).filter(|(_, e)| **e >= start).map(|(s, _)| *s).collect();
        for s in touching {
            let e = self.0.remove(&s).expect("a span");
            start = start.min(s);
            end = end.max(e);
        }
        self.0.insert(start, end);
    }

    pub(super) fn remove(&mut self, start: u64, end: u64) {
        let touching: Vec<(u64, u64)> =
            self.0.range(..end).filter(|(_, e)| **e > start).map(|(s, e)| (*s, *e)).collect();
        for (s, e) in touching {
            self.0.remove(&s);
            if s < start {
                self.0.insert(s, start);
            }
            if e > end {
                self.0.insert(end, e);
            }
        }
    }

    /// Returns the parts of a range that have no storage.
    pub(super) fn gaps(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut gaps = Vec::new();
        if start >= end {
            return gaps;
        }
        let mut at = start;
        let before = self.0.range(..=start).next_back().map(|(_, end)| *end);
        at = at.max(before.unwrap_or(0));
        for (from, to) in self.0.range(start.saturating_add(1)..end) {
            if *from > at {
                gaps.push((at, *from));
            }
            at = at.max(*to);
        }
        if at < end {
            gaps.push((at, end));
        }
        gaps
    }

    pub(super) fn bytes(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }

    pub(super) fn next(&self, at: u64) -> Option<u64> {
        if self.holds(at) {
            return Some(at);
        }
        self.0.range(at..).next().map(|(start, _)| *start)
    }
}

#[derive(Clone, Debug)]
pub(in crate::machine) struct Inode {
    pub(in crate::machine) memory: Memory,
    pub(in crate::machine) len: u64,
    pub(in crate::machine) spans: Spans,
    pub(in crate::machine) attributes: BTreeMap<String, Vec<u8>>,
    /// The inode number. The number of a removed file may be reused.
    pub(in crate::machine) number: u64,
    pub(in crate::machine) born: u64,
    pub(in crate::machine) changed: u64,
    /// Number of names.
    pub(in crate::machine) links: u64,
    /// `true` if the file is a mount point of its own.
    pub(in crate::machine) is_mounted_alone: bool,
    /// User, group and permissions.
    pub(in crate::machine) owner: (u32, u32, u32),
    pub(in crate::machine) is_reflection: bool,
    pub(in crate::machine) is_journal: bool,
    /// The store of snapshots, also while it is being made.
    pub(in crate::machine) is_store: bool,
}
