//! Accesses to mapped memory.

use super::{LeftOut, World, me};
use crate::machine::memory::{LINE, PAGE, Thread};
use atomic_mmap::testing::machine::FileNumber;

impl World {
    /// Loads a word through the mapping.
    pub fn load(&mut self, file: FileNumber, at: u64) -> u64 {
        let Some(inode) = self.files.get_mut(&file) else { return 0 };
        inode.memory.load(at, &mut self.trail)
    }

    /// Copies bytes out of the mapping.
    pub fn read(&mut self, file: FileNumber, to: &mut [u8], at: u64) {
        if let Some(inode) = self.files.get_mut(&file) {
            inode.memory.read(to, at, &mut self.trail);
        }
    }

    /// Stores bytes through the mapping.
    pub fn store(&mut self, file: FileNumber, at: u64, bytes: &[u8], through: bool) {
        if self.is_dead {
            return;
        }
        self.count_access();
        let end = at + bytes.len() as u64;
        self.page_fault(file, at, end);
        let is_reflection = self.files[&file].is_reflection;
        let waits = !matches!(self.left_out, Some(LeftOut::Streams(from, to))
            if is_reflection && through && at < to && end > from);
        self.store_by(me(), file, at, bytes, through);
        if !waits && let Some(pending) = self.pending.get_mut(&me()) {
            // Left out: the next drain does not wait for these stores.
            let lines = at / LINE..end.div_ceil(LINE);
            let count = (lines.end - lines.start) as usize;
            pending.truncate(pending.len() - count);
        }
    }

    /// Simulates a page fault: checks the storage of the page, and makes the file system's changes
    /// of it durable.
    fn page_fault(&mut self, file: FileNumber, start: u64, end: u64) {
        let inode = &self.files[&file];
        let pages_end = end.next_multiple_of(PAGE);
        let last = pages_end.min(inode.len.next_multiple_of(self.block));
        let hole = inode.spans.gaps(start / PAGE * PAGE, last).first().map(|(hole, _)| *hole);
        let past_the_end = (pages_end - PAGE >= inode.len).then_some(inode.len);
        if let Some(hole) = hole.or(past_the_end) {
            let name = self.names.iter().find(|(_, number)| **number == file);
            let name = name.map_or("a removed file".into(), |(name, _)| name.display().to_string());
            panic!(
                "store to the bytes {start}..{end} of {name} ({} bytes long), where the block at {hole} \
                 has no storage: SIGBUS when the disk is full",
                inode.len
            );
        }
        if self.is_page_cache {
            return;
        }
        let last = self
            .journal
            .iter()
            .rposition(|c| (start / PAGE..end.div_ceil(PAGE)).any(|p| c.is_under(file, p * PAGE)));
        if let Some(last) = last {
            self.keep();
            self.journal.drain(..=last);
        }
    }

    pub(super) fn store_by(
        &mut self,
        by: Thread,
        file: FileNumber,
        at: u64,
        bytes: &[u8],
        through: bool,
    ) {
        self.seq += 1;
        self.is_new = true;
        let pending = self.pending.entry(by).or_default();
        let Some(inode) = self.files.get_mut(&file) else { return };
        let through = through && !self.is_page_cache;
        inode.memory.store(at, bytes, self.seq, by, through, pending, &mut self.trail);
    }

    /// Starts the write-back of lines.
    pub fn flush(&mut self, file: FileNumber, at: u64, len: u64) {
        if self.is_dead || self.is_page_cache {
            return;
        }
        let Some(inode) = self.files.get_mut(&file) else { return };
        let is_left_out = match self.left_out {
            Some(LeftOut::Flushes(from, to)) => inode.is_reflection && at < to && at + len > from,
            _ => false,
        };
        if is_left_out {
            return;
        }
        let mapped = inode.len.next_multiple_of(PAGE);
        assert!(at + len <= mapped, "flush at {at} of file {file:?}, past its end: SIGBUS");
        let pending = self.pending.entry(me()).or_default();
        inode.memory.flush(at, at + len, self.seq, pending);
    }

    /// Waits for the flushes of the calling thread.
    pub fn drain(&mut self) {
        if self.is_dead {
            return;
        }
        self.count_access();
        let count = self.drains.entry(me()).or_default();
        *count += 1;
        match self.left_out {
            Some(LeftOut::Drains) => return,
            Some(LeftOut::Drain(n)) if n == *count => return,
            _ => {}
        }
        self.settle(me());
    }

    pub(super) fn settle(&mut self, thread: Thread) {
        if self.pending.get(&thread).is_none_or(Vec::is_empty) {
            return;
        }
        self.keep();
        for pending in self.pending.remove(&thread).unwrap_or_default() {
            if let Some(inode) = self.files.get_mut(&pending.file) {
                inode.memory.settle(pending, thread);
            }
        }
    }
}
