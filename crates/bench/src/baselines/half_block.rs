//! ADL: a block of which more than half is updated is copied on write, else its bytes are logged.
//!
//! From: ADL and ZCL, sections 3.1 and 4.1. Kept: the choice per block and not per write; blocks that
//! move, found by a table of pointers; the undo log. Not kept: the file system around it, and ZCL, which
//! needs data that lies in persistent memory already.
//!
//! A write within one block of which it updates more than half:
//! 1. a free block is filled: the new bytes, and the old block's rest. Drain: before the pointer.
//! 2. The pointer to it is stored, one word. Drain: the commit point; and before the old block, which is
//!    free now, is filled by the lane's next write.
//!
//! Every other write:
//! 1. free blocks are filled; the old bytes of the blocks that are logged, and the old pointers of those
//!    that are copied, go to the lane's record. Drain: both before the first new byte or pointer. (A
//!    record of more than 2 KiB takes two.)
//! 2. The logged blocks' bytes go into place, and the pointers are stored. Drain: before the record is
//!    forgotten.
//! 3. One word forgets the record. Drain: the commit point.
//!
//! Two drains, three, or four. As many blocks are freed as were taken, by the same lane, so no lane runs
//! out. Where a transaction touches a block twice, both parts are logged.
//!
//! Recovery: each lane's record with a number above the lane's word is stored back, bytes and pointers.
//! Then the blocks that no pointer names are free.
//!
//! May import `parts`, `memory` and `subject`.

use super::parts::ground::Ground;
use super::parts::lane::LANES;
use super::parts::pages::{PAGE, Pages, Parts, pieces, pieces_mut};
use super::parts::undo::Undo;
use crate::memory::Memory;
use crate::subject::{Kind, Subject};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// As measured.
pub const HALF_BLOCK: Kind = Kind {
    name: "ADL",
    source: "ADL 3.1",
    durable_writes: true,
    open: |folder, len| Ok(Box::new(HalfBlock::open(folder, len)?)),
};

/// Free blocks a lane: a write of 1 MiB takes 256, or 257.
const FREE: u64 = 272;
const ROOM: u64 = 4 << 20;

#[derive(Debug)]
struct HalfBlock {
    memory: Memory,
    pages: Pages,
    undo: Undo<Blocks>,
    /// The pointers on the medium: 0 is the block that has the page's own place, else the block plus one.
    table: u64,
    /// The first free block's place, when the file is new: they go on where the data ends.
    blocks: u64,
    own: u64,
    /// Where each page's block lies now: which block.
    at: Box<[AtomicU32]>,
}

/// What a lane keeps.
#[derive(Debug, Default)]
struct Blocks {
    free: Vec<u32>,
    /// Page and new block, of the operation that is going on.
    taken: Vec<(u64, u32)>,
}

fn copied(piece: &[u8], only_part: bool) -> bool {
    piece.len() == PAGE as usize || (only_part && piece.len() > PAGE as usize / 2)
}

impl HalfBlock {
    fn open(folder: &Path, len: u64) -> io::Result<HalfBlock> {
        let own = len.div_ceil(PAGE);
        let mut ground = Ground::below(len);
        let blocks = ground.take(LANES as u64 * FREE * PAGE);
        let table = ground.take(own * 8);
        let logs = ground.take(Undo::<()>::takes(ROOM));
        let memory = ground.open(folder, "half-block")?;
        let mut undo = Undo::<Blocks>::open(&memory, logs, ROOM);
        let mut used = vec![false; (own + LANES as u64 * FREE) as usize];
        let at = (0..own)
            .map(|page| {
                let block = memory.load_word(table + page * 8).checked_sub(1).unwrap_or(page);
                used[block as usize] = true;
                AtomicU32::new(block as u32)
            })
            .collect();
        let mut free = (0u32..).zip(used).filter(|(_, used)| !used).map(|(block, _)| block);
        for lane in undo.lanes() {
            lane.free = free.by_ref().take(FREE as usize).collect();
        }
        Ok(HalfBlock { memory, pages: Pages::new(len), undo, table, blocks, own, at })
    }

    /// Where a block lies.
    fn block(&self, block: u32) -> u64 {
        let block = u64::from(block);
        if block < self.own { block * PAGE } else { self.blocks + (block - self.own) * PAGE }
    }

    fn page(&self, page: u64) -> u64 {
        self.block(self.at[page as usize].load(Ordering::Relaxed))
    }

    /// Fills a free block: the piece, and around it what the page has.
    fn fill(&self, block: u32, page: u64, start: usize, piece: &[u8]) {
        let to = self.block(block);
        if piece.len() == PAGE as usize {
            return self.memory.store(piece, to);
        }
        let mut whole = [0; PAGE as usize];
        let (from, end) = (self.page(page), start + piece.len());
        self.memory.load(&mut whole[..start], from);
        whole[start..end].copy_from_slice(piece);
        self.memory.load(&mut whole[end..], from + end as u64);
        self.memory.store(&whole, to);
    }

    fn commit(&self, parts: &Parts<'_>) {
        let memory = &self.memory;
        let mut writer = self.undo.begin();
        let _closed = self.pages.close_parts(parts);
        let Blocks { mut free, mut taken } = std::mem::take(&mut writer.lane.more);
        let only = parts.len() == 1;
        if let &[(offset, data)] = parts
            && data.len() <= PAGE as usize / 2
            && offset % PAGE + data.len() as u64 <= PAGE
        {
            // Small and in one block: what follows, without its lists.
            writer.lane.more = Blocks { free, taken };
            let place = self.page(offset / PAGE) + offset % PAGE;
            // Its drain: the old bytes before the new ones.
            writer.keep(memory, std::iter::once((place, data.len())));
            memory.store(data, place);
            // The bytes before the word that forgets the old ones, and before others may read them.
            memory.drain();
            return writer.done(memory);
        }
        let all = || parts.iter().flat_map(|(offset, data)| pieces(*offset, data));
        for (page, start, piece) in all() {
            if copied(piece, only)
                && let Some(block) = free.pop()
            {
                self.fill(block, page, start, piece);
                taken.push((page, block));
            }
        }
        let pointer = |page: u64| self.table + page * 8;
        if let &[(page, block)] = &taken[..]
            && all().nth(1).is_none()
        {
            // The block before the pointer to it.
            memory.drain();
            memory.store_word(u64::from(block) + 1, pointer(page));
            // The pointer: the commit point; and before the old block is filled anew.
            memory.drain();
        } else {
            // Those that are copied were taken in order; where blocks ran out the rest is logged.
            let logged = || {
                let mut copies = taken.iter().map(|(page, _)| *page).peekable();
                all().filter(move |(page, _, piece)| {
                    !(copied(piece, only) && copies.next_if_eq(page).is_some())
                })
            };
            let bytes =
                logged().map(|(page, start, piece)| (self.page(page) + start as u64, piece.len()));
            // Its drain: the old bytes and pointers, and the new blocks, before what follows.
            writer.keep(memory, bytes.chain(taken.iter().map(|(page, _)| (pointer(*page), 8))));
            for (page, start, piece) in logged() {
                memory.store(piece, self.page(page) + start as u64);
            }
            for (page, block) in &taken {
                memory.store_word(u64::from(*block) + 1, pointer(*page));
            }
            // Bytes and pointers before the word that forgets the old ones, and before others may read.
            memory.drain();
            writer.done(memory);
        }
        for (page, block) in taken.drain(..) {
            free.push(self.at[page as usize].swap(block, Ordering::Relaxed));
        }
        writer.lane.more = Blocks { free, taken };
    }
}

impl Subject for HalfBlock {
    fn write(&self, data: &[u8], offset: u64) {
        self.commit(&[(offset, data)]);
    }

    fn read(&self, to: &mut [u8], offset: u64) {
        self.pages.read(offset, to.len(), || {
            for (page, start, piece) in pieces_mut(offset, to) {
                self.memory.load(piece, self.page(page) + start as u64);
            }
        });
    }

    fn transact(&self, parts: &[(u64, &[u8])]) -> bool {
        self.commit(parts);
        true
    }

    fn written(&self) -> Option<u64> {
        Some(self.memory.written())
    }
}
