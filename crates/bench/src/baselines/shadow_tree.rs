//! MGSP: shadow logs of several granularities over a radix tree. Bits exchange the roles of log and
//! file.
//!
//! From: MGSP, sections III-B (shadow log, tree, bitmaps) and III-C (metadata log, locks). Kept:
//! - A node for each page, with its own log and a valid bit for each of its 64 slices of 64 bytes.
//! - A region of 64 pages above it. Each of these pages has its own log and a valid bit.
//! - A slice that is not valid in its node's log is in the last valid ancestor. New data always
//!   goes to the other place.
//! - A checksummed metadata log, with a lane for each thread.
//!
//! Not kept, and why it does not slow it down:
//! - The granularities of 256 KiB and more: they shorten the metadata of writes larger than the
//!   measured ones. A write of up to 1 MiB changes at most five region words and two page words, of
//!   the paper's ten.
//! - The search from the root: depth and places are fixed, so an addition finds a node.
//! - One metadata entry for each thread, which is marked as outdated after each operation. Here the
//!   entries are a log. So the words that they name need not be durable before the next one, and no
//!   entry is marked. That saves two drains.
//! - Lazy cleaning of bitmaps: a write of a whole page clears the page's slice bits, if there are
//!   any, which its entry implies.
//! - Locks of several granularities: up to 64 KiB, a version for each page has no measurable cost.
//!
//! A write, with its pages locked:
//! 1. Its bytes go to where they are not valid. Whole pages go to the page's log or, if that is
//!    valid, to the file. Slices go to the node's log or to the last valid ancestor. The first and
//!    the last slice are completed from their valid side. Drain: before the entry that makes the
//!    bytes valid.
//! 2. An entry with the new bits of the words goes to the lane's log: one line for one word, as in
//!    the paper. Drain: the commit point.
//! 3. The words change in DRAM, where readers load them. On the medium they change when the log is
//!    emptied.
//!
//! So a write takes two drains, at any size.
//!
//! Recovery: it reads the words, and applies the entries above the journal's mark to them in order.
//!
//! May import `parts`, `memory` and `subject`.

use super::parts::ground::Ground;
use super::parts::journal::Journal;
use super::parts::pages::{PAGE, Pages, pieces, pieces_mut};
use super::parts::record::Record;
use crate::memory::Memory;
use crate::subject::{Kind, Subject};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// The system with logs as large as measured.
pub const SHADOW_TREE: Kind = Kind {
    name: "MGSP",
    source: "MGSP III",
    durable_writes: true,
    open: |folder, len| Ok(Box::new(ShadowTree::open(folder, len, 1 << 20)?)),
};

/// The system with logs that are soon full.
pub const TIGHT: Kind = Kind {
    name: "MGSP, tight",
    open: |folder, len| Ok(Box::new(ShadowTree::open(folder, len, 4096)?)),
    ..SHADOW_TREE
};

const SLICE: usize = 64;
/// Pages in a region.
const FAN: u64 = 64;
/// Bytes that one changed word takes in an entry: number, mask, and bits.
const CHANGE: usize = 24;
/// Longest run of slices with a small buffer: zeroing a page would take longer than a small write.
const SMALL: usize = 512;
/// Bit that marks a page's word. Without it the word is a region's.
const OF_PAGE: u64 = 1 << 63;

#[derive(Debug)]
struct ShadowTree {
    memory: Memory,
    pages: Pages,
    journal: Journal<()>,
    words: Words,
    /// Offsets of the pages' own logs, and of the slices' logs.
    page_log: u64,
    slice_log: u64,
}

/// The valid bits.
#[derive(Debug)]
struct Words {
    of_pages: Box<[AtomicU64]>,
    of_regions: Box<[AtomicU64]>,
    /// Offsets of the words.
    pages_at: u64,
    regions_at: u64,
}

impl Words {
    fn slices(&self, page: u64) -> u64 {
        self.of_pages[page as usize].load(Ordering::Relaxed)
    }

    /// Returns `true` if the page's log is valid.
    fn page(&self, page: u64) -> bool {
        self.of_regions[(page / FAN) as usize].load(Ordering::Relaxed) >> (page % FAN) & 1 == 1
    }

    /// Applies a change. Pages that other threads have locked share a region's word.
    fn change(&self, which: u64, mask: u64, bits: u64) {
        if which & OF_PAGE != 0 {
            self.of_pages[(which ^ OF_PAGE) as usize].store(bits, Ordering::Relaxed);
            return;
        }
        let word = &self.of_regions[which as usize];
        word.fetch_xor((word.load(Ordering::Relaxed) ^ bits) & mask, Ordering::Relaxed);
        each_bit(mask, |page| {
            self.of_pages[(which * FAN + page) as usize].store(0, Ordering::Relaxed);
        });
    }

    /// Stores the words of a change.
    fn store(&self, memory: &Memory, which: u64, mask: u64) {
        if which & OF_PAGE != 0 {
            let page = which ^ OF_PAGE;
            return memory.store_word(self.slices(page), self.pages_at + page * 8);
        }
        let word = self.of_regions[which as usize].load(Ordering::Relaxed);
        memory.store_word(word, self.regions_at + which * 8);
        each_bit(mask, |page| {
            let page = which * FAN + page;
            let (word, place) = (self.slices(page), self.pages_at + page * 8);
            if memory.load_word(place) != word {
                memory.store_word(word, place);
            }
        });
    }
}

fn each_bit(mut mask: u64, mut f: impl FnMut(u64)) {
    while mask != 0 {
        f(u64::from(mask.trailing_zeros()));
        mask &= mask - 1;
    }
}

fn each_change(memory: &Memory, record: &Record, mut f: impl FnMut(u64, u64, u64)) {
    for at in (record.at..record.at + record.len as u64).step_by(CHANGE) {
        f(memory.load_word(at), memory.load_word(at + 8), memory.load_word(at + 16));
    }
}

/// Calls `f` for each run of equal bits among `from..to` of `bits`: start, end, the bit.
fn runs(bits: u64, from: usize, to: usize, mut f: impl FnMut(usize, usize, bool)) {
    let mut at = from;
    while at < to {
        let here = bits >> at;
        let run = if here & 1 == 1 { here.trailing_ones() } else { here.trailing_zeros() };
        let end = (at + run as usize).min(to);
        f(at, end, here & 1 == 1);
        at = end;
    }
}

impl ShadowTree {
    fn open(folder: &Path, len: u64, room: u64) -> io::Result<ShadowTree> {
        let count = len.div_ceil(PAGE);
        let mut ground = Ground::below(len);
        let page_log = ground.take(len);
        let slice_log = ground.take(len);
        let (pages_at, regions_at) = (ground.take(count * 8), ground.take(count.div_ceil(FAN) * 8));
        let logs = ground.take(Journal::<()>::takes(room));
        let memory = ground.open(folder, "shadow-tree")?;
        let load = |at: u64, words: u64| {
            (0..words).map(|word| AtomicU64::new(memory.load_word(at + word * 8))).collect()
        };
        let words = Words {
            of_pages: load(pages_at, count),
            of_regions: load(regions_at, count.div_ceil(FAN)),
            pages_at,
            regions_at,
        };
        let journal = Journal::open(&memory, logs, room, |record| {
            each_change(&memory, record, |which, mask, bits| {
                words.change(which, mask, bits);
                words.store(&memory, which, mask);
            });
        });
        Ok(ShadowTree { memory, pages: Pages::new(len), journal, words, page_log, slice_log })
    }

    /// Returns the offset of a page without valid slices of its own. With `other`, returns its
    /// other side.
    fn base(&self, page: u64, other: bool) -> u64 {
        page * PAGE + if self.words.page(page) != other { self.page_log } else { 0 }
    }

    fn load(&self, page: u64, start: usize, to: &mut [u8]) {
        let (base, own) = (self.base(page, false), self.slice_log + page * PAGE);
        let bits = self.words.slices(page);
        if to.is_empty() {
            return;
        }
        if bits == 0 {
            return self.memory.load(to, base + start as u64);
        }
        let end = start + to.len();
        runs(bits, start / SLICE, end.div_ceil(SLICE), |first, last, valid| {
            let (from, end) = ((first * SLICE).max(start), (last * SLICE).min(end));
            let at = if valid { own } else { base };
            self.memory.load(&mut to[from - start..end - start], at + from as u64);
        });
    }

    /// Surrounds a piece with the other bytes of its first and last slice.
    fn complete<'a>(&self, page: u64, start: usize, piece: &[u8], whole: &'a mut [u8]) -> &'a [u8] {
        let (low, before) = (start / SLICE * SLICE, start % SLICE);
        let after = before + piece.len();
        self.load(page, low, &mut whole[..before]);
        whole[before..after].copy_from_slice(piece);
        self.load(page, low + after, &mut whole[after..]);
        whole
    }

    /// Stores a piece's slices to where they are not valid. Returns the page's new bits.
    fn store_slices(&self, page: u64, start: usize, piece: &[u8]) -> u64 {
        let (base, own) = (self.base(page, false), self.slice_log + page * PAGE);
        let bits = self.words.slices(page);
        let end = start + piece.len();
        let (first, last) = (start / SLICE, end.div_ceil(SLICE));
        let (low, high) = (first * SLICE, last * SLICE);
        let store = |bytes: &[u8]| {
            runs(bits, first, last, |first, last, valid| {
                let (from, end) = (first * SLICE, last * SLICE);
                let to = if valid { base } else { own };
                self.memory.store(&bytes[from - low..end - low], to + from as u64);
            });
        };
        if (start, end) == (low, high) {
            store(piece);
        } else if high - low <= SMALL {
            store(self.complete(page, start, piece, &mut [0; SMALL][..high - low]));
        } else {
            store(self.complete(page, start, piece, &mut [0; PAGE as usize][..high - low]));
        }
        let touched = (u64::MAX >> (64 - (last - first))) << first;
        bits ^ touched
    }
}

impl Subject for ShadowTree {
    fn write(&self, data: &[u8], offset: u64) {
        if data.is_empty() {
            return;
        }
        let memory = &self.memory;
        let most = CHANGE * (data.len() / (PAGE * FAN) as usize + 4);
        let settle = |record: &Record| {
            each_change(memory, record, |which, mask, _| self.words.store(memory, which, mask));
        };
        let mut writer = self.journal.begin(memory, most, settle);
        let mut entry = std::mem::take(&mut writer.lane.body);
        entry.clear();
        let mut push = |change: [u64; 3]| {
            change.iter().for_each(|word| entry.extend_from_slice(&word.to_le_bytes()));
        };
        let parts = [(offset, data)];
        let _closed = self.pages.close_parts(&parts);
        let mut region = [0, 0, 0];
        for (page, start, piece) in pieces(offset, data) {
            if piece.len() < PAGE as usize {
                push([page | OF_PAGE, u64::MAX, self.store_slices(page, start, piece)]);
                continue;
            }
            memory.store(piece, self.base(page, true));
            if region[1] != 0 && region[0] != page / FAN {
                push(std::mem::take(&mut region));
            }
            let bit = 1 << (page % FAN);
            let flipped = if self.words.page(page) { 0 } else { bit };
            region = [page / FAN, region[1] | bit, region[2] | flipped];
        }
        if region[1] != 0 {
            push(region);
        }
        // Orders the bytes before the entry that makes them valid, and before other threads may
        // read them.
        memory.drain();
        // Its drain is the commit point.
        writer.commit(memory, 0, &entry);
        for change in entry.chunks_exact(CHANGE) {
            let word =
                |at: usize| u64::from_le_bytes(change[at..at + 8].try_into().expect("8 bytes"));
            self.words.change(word(0), word(8), word(16));
        }
        writer.lane.body = entry;
    }

    fn read(&self, to: &mut [u8], offset: u64) {
        self.pages.read(offset, to.len(), || {
            for (page, start, piece) in pieces_mut(offset, to) {
                self.load(page, start, piece);
            }
        });
    }

    fn written(&self) -> Option<u64> {
        Some(self.memory.written())
    }
}
