//! ADL: copy-on-write for blocks that a write updates by more than half, an undo log for the
//! others.
//!
//! From: ADL and ZCL, sections 3.1 and 4.1. Kept: the choice per block and not per write; blocks
//! that move, found through a table of pointers; the undo log. Not kept: the file system around it,
//! and ZCL, which needs data that is already in persistent memory.
//!
//! A write within one block that updates more than half of it:
//! 1. It fills a free block: the new bytes, and the rest of the old block. Drain: before the
//!    pointer.
//! 2. It stores the pointer to that block, one word. Drain: the commit point. It also comes before
//!    the lane's next write fills the old block, which is free now.
//!
//! Every other write:
//! 1. It fills free blocks. The old bytes of logged blocks and the old pointers of copied blocks go
//!    to the lane's record. Drain: both before the first new byte or pointer. A record of more than
//!    2 KiB takes two drains.
//! 2. It stores the bytes of the logged blocks in place, and then the pointers. Drain: before the
//!    record is invalidated.
//! 3. One word invalidates the record. Drain: the commit point.
//!
//! That makes two drains, three, or four. Each operation of a lane frees one block for each block
//! that it takes, so no lane runs out. If a transaction touches a block twice, both segments are
//! logged.
//!
//! Recovery: it stores back each lane's record with a number above the lane's word, bytes and
//! pointers. Afterwards all blocks without a pointer are free.
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

/// The system as measured.
pub const HALF_BLOCK: Kind = Kind {
    name: "ADL",
    source: "ADL 3.1",
    durable_writes: true,
    open: |folder, len| Ok(Box::new(HalfBlock::open(folder, len)?)),
};

/// Free blocks of a lane. A write of 1 MiB takes 256 or 257.
const FREE: u64 = 272;
const ROOM: u64 = 4 << 20;

#[derive(Debug)]
struct HalfBlock {
    memory: Memory,
    pages: Pages,
    undo: Undo<Blocks>,
    /// Offset of the pointers on the medium. 0 means the block in the page's own place; other
    /// values are the block's number plus one.
    table: u64,
    /// Offset of the first free block of a new file. The free blocks follow the data.
    blocks: u64,
    own: u64,
    /// The block that holds each page now.
    at: Box<[AtomicU32]>,
}

/// The blocks of a lane.
#[derive(Debug, Default)]
struct Blocks {
    free: Vec<u32>,
    /// Page and new block of the operation in progress.
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

    /// Returns the offset of a page's block.
    fn block(&self, block: u32) -> u64 {
        let block = u64::from(block);
        if block < self.own { block * PAGE } else { self.blocks + (block - self.own) * PAGE }
    }

    fn page(&self, page: u64) -> u64 {
        self.block(self.at[page as usize].load(Ordering::Relaxed))
    }

    /// Fills a free block with the piece, and with the page's bytes around it.
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
            // A small write in one block: like the general path below, but without its lists.
            writer.lane.more = Blocks { free, taken };
            let place = self.page(offset / PAGE) + offset % PAGE;
            // Its drain orders the old bytes before the new ones.
            writer.keep(memory, std::iter::once((place, data.len())));
            memory.store(data, place);
            // Orders the bytes before the word that invalidates the old ones, and before other
            // threads may read them.
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
            // Orders the block before the pointer to it.
            memory.drain();
            memory.store_word(u64::from(block) + 1, pointer(page));
            // Makes the pointer durable: the commit point. Also orders it before a new write to the
            // old block.
            memory.drain();
        } else {
            // Copied blocks were taken in order. After the free blocks ran out, the other blocks
            // are logged.
            let logged = || {
                let mut copies = taken.iter().map(|(page, _)| *page).peekable();
                all().filter(move |(page, _, piece)| {
                    !(copied(piece, only) && copies.next_if_eq(page).is_some())
                })
            };
            let bytes =
                logged().map(|(page, start, piece)| (self.page(page) + start as u64, piece.len()));
            // Its drain orders the old bytes, the old pointers and the new blocks before the stores
            // below.
            writer.keep(memory, bytes.chain(taken.iter().map(|(page, _)| (pointer(*page), 8))));
            for (page, start, piece) in logged() {
                memory.store(piece, self.page(page) + start as u64);
            }
            for (page, block) in &taken {
                memory.store_word(u64::from(*block) + 1, pointer(*page));
            }
            // Orders bytes and pointers before the word that invalidates the old ones, and before
            // other threads may read them.
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
