//! NOVA's atomic mmap: copy-on-write of pages, with a copy back on msync.
//!
//! From: Acumen, sections I and II (NOVA), and Libnvmmio, section 2.3. Kept: a page is copied to a
//! replica before its first write. Writes and reads use the replica. msync commits all replicas in
//! one step and copies them back, as whole pages. Not kept: page faults and mapping changes, which
//! cost more than all of this. A table in DRAM takes their place. The copy back reads a copy in
//! DRAM, as the processor's cache would hold it.
//!
//! A write, with its pages locked:
//! 1. It fills each page's replica, or changes it if this thread has one already. Drain: before the
//!    record that names the replica, and before other threads may read it.
//!
//! A sync:
//! 2. One record names all pages and their replicas. Drain: the commit point.
//! 3. The pages are copied back. Drain: before other threads read them in place. It also comes
//!    before the record may be removed, which happens when the journal is emptied.
//!
//! So a write and its sync take three drains. No step has to retire the record. Recovery applies it
//! again together with all later ones, and its replicas are not reused until the journal was
//! emptied.
//!
//! A set of replicas belongs to the thread that made it. A thread that finds a page of another
//! thread's set commits that set first. A set larger than the pool of replicas is committed in
//! parts, between writes.
//!
//! Recovery: it applies the records above the mark in order, and copies their replicas to their
//! pages.
//!
//! May import `parts`, `memory` and `subject`.

use super::parts::ground::Ground;
use super::parts::journal::{Journal, Writer};
use super::parts::lane::{self, LANES};
use super::parts::pages::{PAGE, Pages, Parts, pieces, pieces_mut, span};
use super::parts::record;
use crate::memory::Memory;
use crate::subject::{Kind, Subject};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// The system with logs as large as measured.
pub const PAGE_COPY: Kind = Kind {
    name: "NOVA msync",
    source: "Acumen II",
    durable_writes: false,
    open: |folder, len| Ok(Box::new(PageCopy::open(folder, len, 1024)?)),
};

/// The system with logs that are soon full.
pub const TIGHT: Kind = Kind {
    name: "NOVA msync, tight",
    open: |folder, len| Ok(Box::new(PageCopy::open(folder, len, 260)?)),
    ..PAGE_COPY
};

const WHOLE: usize = PAGE as usize;

#[derive(Debug)]
struct PageCopy {
    memory: Memory,
    pages: Pages,
    journal: Journal<Set>,
    /// Offset of the replicas. Each lane has an equal number of them.
    replicas: u64,
    each: u32,
    /// The replica of each page plus one, or 0.
    table: Box<[AtomicU32]>,
}

/// The pages that a lane has written since its last sync.
#[derive(Debug, Default)]
struct Set {
    /// Page and replica.
    members: Vec<(u32, u32)>,
    /// The bytes of the replicas.
    bytes: Vec<u8>,
    /// The number of replicas in use.
    used: u32,
    /// How often the journal had been emptied when the lane wrote its last record.
    emptied: u64,
}

impl PageCopy {
    fn open(folder: &Path, len: u64, each: u32) -> io::Result<PageCopy> {
        let mut ground = Ground::below(len);
        let replicas = ground.take(LANES as u64 * u64::from(each) * PAGE);
        // At most one line for each member, as in a record with one member.
        let room = u64::from(each) * 64 + 4096;
        let logs = ground.take(Journal::<Set>::takes(room));
        let memory = ground.open(folder, "page-copy")?;
        let journal = Journal::open(&memory, logs, room, |found| {
            for at in (found.at..found.at + found.len as u64).step_by(8) {
                let member = memory.load_word(at);
                let (page, replica) = (member >> 32, member & u64::from(u32::MAX));
                record::copy(&memory, replicas + replica * PAGE, page * PAGE, WHOLE);
            }
        });
        let table = (0..len.div_ceil(PAGE)).map(|_| AtomicU32::new(0)).collect();
        Ok(PageCopy { memory, pages: Pages::new(len), journal, replicas, each, table })
    }

    fn lane(&self, lane: usize) -> Writer<'_, Set> {
        // No record needs a flush: the copies back were drained.
        self.journal.begin_lane(lane, &self.memory, self.each as usize * 8, |_| {})
    }

    fn replica(&self, replica: u32) -> u64 {
        self.replicas + u64::from(replica) * PAGE
    }

    /// Returns the offset where a page is read.
    fn place(&self, page: u64) -> u64 {
        match self.table[page as usize].load(Ordering::Relaxed) {
            0 => page * PAGE,
            replica => self.replica(replica - 1),
        }
    }

    /// Takes this thread's lane, with room for `more` replicas.
    fn lane_with_room(&self, mine: usize, more: u32) -> Writer<'_, Set> {
        assert!(more <= self.each, "more pages than there are replicas");
        loop {
            let mut writer = self.lane(mine);
            let emptied = writer.lane.emptied;
            let set = &mut writer.lane.more;
            // No record names the replicas of this lane any more.
            if set.emptied != emptied && set.members.is_empty() {
                (set.used, set.emptied) = (0, emptied);
            }
            if set.used + more <= self.each {
                return writer;
            }
            self.commit(&mut writer);
            drop(writer);
            // Until the journal is emptied, its records name the replicas.
            self.journal.empty(&self.memory, |_| {});
        }
    }

    /// Commits the set of a lane, and copies it back.
    fn commit(&self, writer: &mut Writer<'_, Set>) {
        let memory = &self.memory;
        if writer.lane.more.members.is_empty() {
            return;
        }
        let mut set = std::mem::take(&mut writer.lane.more);
        let mut names = std::mem::take(&mut writer.lane.body);
        names.clear();
        for (page, replica) in &set.members {
            let member = u64::from(*page) << 32 | u64::from(*replica);
            names.extend_from_slice(&member.to_le_bytes());
        }
        // Its drain is the commit point. The writes have drained the replicas that it names. The
        // pages are not locked: while the table names their replicas, no other thread writes to
        // them.
        writer.commit(memory, 0, &names);
        set.emptied = writer.lane.emptied;
        for ((page, _), bytes) in set.members.iter().zip(set.bytes.chunks_exact(WHOLE)) {
            memory.store(bytes, u64::from(*page) * PAGE);
        }
        // Orders the pages before other threads read them in place, and before the record may be
        // removed.
        memory.drain();
        for (page, _) in set.members.drain(..) {
            let _closed = self.pages.close(u64::from(page)..u64::from(page) + 1);
            self.table[page as usize].store(0, Ordering::Relaxed);
        }
        writer.lane.more = set;
        writer.lane.body = names;
    }

    fn write_parts(&self, parts: &Parts<'_>) {
        let memory = &self.memory;
        let mine = lane::mine();
        let most = parts.iter().map(|(at, data)| span(*at, data.len()).count() as u32).sum();
        loop {
            let mut writer = self.lane_with_room(mine, most);
            let closed = self.pages.close_parts(parts);
            let all = || parts.iter().flat_map(|(offset, data)| pieces(*offset, data));
            let foreign = all().find_map(|(page, _, _)| {
                let replica = self.table[page as usize].load(Ordering::Relaxed).checked_sub(1)?;
                let owner = (replica / self.each) as usize;
                (owner != mine).then_some(owner)
            });
            if let Some(owner) = foreign {
                // Lock order: lanes before pages, and one lane at a time.
                drop((closed, writer));
                self.commit(&mut self.lane(owner));
                continue;
            }
            let set = &mut writer.lane.more;
            for (page, start, piece) in all() {
                let end = start + piece.len();
                let entry = &self.table[page as usize];
                let has = entry.load(Ordering::Relaxed);
                if has != 0 {
                    let index =
                        set.members.iter().position(|(member, _)| u64::from(*member) == page);
                    let index = index.expect("the table says so") * WHOLE;
                    set.bytes[index + start..index + end].copy_from_slice(piece);
                    memory.store(piece, self.replica(has - 1) + start as u64);
                    continue;
                }
                let replica = mine as u32 * self.each + set.used;
                set.used += 1;
                let index = set.members.len() * WHOLE;
                set.members.push((page as u32, replica));
                if set.bytes.len() < index + WHOLE {
                    set.bytes.resize(index + WHOLE, 0);
                }
                let bytes = &mut set.bytes[index..index + WHOLE];
                memory.load(&mut bytes[..start], page * PAGE);
                bytes[start..end].copy_from_slice(piece);
                memory.load(&mut bytes[end..], page * PAGE + end as u64);
                memory.store(bytes, self.replica(replica));
                entry.store(replica + 1, Ordering::Relaxed);
            }
            // Orders the replicas before the record that names them, which any thread may store.
            // Also orders them before other threads may read them.
            memory.drain();
            return;
        }
    }
}

impl Subject for PageCopy {
    fn write(&self, data: &[u8], offset: u64) {
        self.write_parts(&[(offset, data)]);
    }

    fn sync(&self) {
        self.commit(&mut self.lane(lane::mine()));
    }

    fn read(&self, to: &mut [u8], offset: u64) {
        self.pages.read(offset, to.len(), || {
            for (page, start, piece) in pieces_mut(offset, to) {
                self.memory.load(piece, self.place(page) + start as u64);
            }
        });
    }

    fn transact(&self, parts: &[(u64, &[u8])]) -> bool {
        self.write_parts(parts);
        self.sync();
        true
    }

    fn written(&self) -> Option<u64> {
        Some(self.memory.written())
    }
}
