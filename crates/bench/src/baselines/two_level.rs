//! RMMIO: two levels for each page, each with its transaction's number. One number tells which are
//! committed.
//!
//! From: RMMIO, section III-D (two-level page cache, TID and CID) and III-E (locks of 4 KiB and
//! numbers). Kept: all of that. A fetch-and-add takes a number, and numbers commit in order. Not
//! kept, and why it does not slow it down:
//! - The file below the cache: level 0 is the file's own place. So no system call fetches pages,
//!   none is evicted, and half of the writes are in place already.
//! - The table that finds a page's levels: they have fixed places, so an addition finds them.
//! - Checksums of pages and snapshots, which guard against damage and not against torn writes.
//! - The paper writes whole pages. Here an older level gets only the bytes that the other level's
//!   last transaction wrote. It gets the whole page only the first time, or after opening.
//!
//! A write, with its pages locked:
//! 1. The older level of each page gets the bytes that it lacks, the new bytes, and the
//!    transaction's number. Drain: before the number is committed.
//! 2. After the transaction before it has done this, the committed number is stored, one word.
//!    Drain: the commit point. Any thread's drain may make it durable: a higher number includes the
//!    lower ones, and their bytes were drained before it was stored.
//!
//! So a write takes two drains, at any size.
//!
//! Recovery: a level with a number above the committed one is invalid. It is marked so, because a
//! later number would make it valid again. Of two levels below that number, the one with the higher
//! number is valid.
//!
//! May import `parts`, `memory` and `subject`.

use super::parts::ground::Ground;
use super::parts::lane::Padded;
use super::parts::pages::{PAGE, Pages, Parts, pieces, pieces_mut, relax};
use super::parts::record;
use crate::memory::Memory;
use crate::subject::{Kind, Subject};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The system as measured.
pub const TWO_LEVEL: Kind = Kind {
    name: "RMMIO",
    source: "RMMIO III-D",
    durable_writes: true,
    open: |folder, len| Ok(Box::new(TwoLevel::open(folder, len)?)),
};

#[derive(Debug)]
struct TwoLevel {
    memory: Memory,
    pages: Pages,
    /// Distance from a page to its level 1. Level 0 is the page itself.
    upper: u64,
    /// Offset of the numbers, two for each page.
    numbers: u64,
    /// Offset of the committed number.
    committed: u64,
    next: Padded<AtomicU64>,
    last: Padded<AtomicU64>,
    states: Box<[AtomicU32]>,
}

/// The valid level of a page, and the range in which the other level is behind.
#[derive(Clone, Copy)]
struct State {
    valid: u64,
    from: usize,
    to: usize,
}

impl State {
    fn of(bits: u32) -> State {
        let bits = bits as usize;
        State { valid: (bits >> 31) as u64, from: bits & 0x1FFF, to: bits >> 13 & 0x1FFF }
    }

    fn bits(self) -> u32 {
        (self.valid as u32) << 31 | (self.to as u32) << 13 | self.from as u32
    }
}

impl TwoLevel {
    fn open(folder: &Path, len: u64) -> io::Result<TwoLevel> {
        let count = len.div_ceil(PAGE);
        let mut ground = Ground::below(len);
        let upper = ground.take(count * PAGE);
        let numbers = ground.take(count * 16);
        let committed = ground.take(PAGE);
        let memory = ground.open(folder, "two-level")?;
        let last = memory.load_word(committed);
        let states = (0..count)
            .map(|page| {
                let [lower, upper] = [0, 8].map(|level| {
                    let place = numbers + page * 16 + level;
                    let number = memory.load_word(place);
                    if number <= last {
                        return number;
                    }
                    memory.store_word(0, place);
                    0
                });
                let valid = u64::from(upper > lower);
                AtomicU32::new(State { valid, from: 0, to: PAGE as usize }.bits())
            })
            .collect();
        // Orders the marks before the committed number reaches the numbers of invalid levels.
        memory.drain();
        let (next, last) = (Padded(AtomicU64::new(last)), Padded(AtomicU64::new(last)));
        let pages = Pages::new(len);
        Ok(TwoLevel { memory, pages, upper, numbers, committed, next, last, states })
    }

    fn state(&self, page: u64) -> State {
        State::of(self.states[page as usize].load(Ordering::Relaxed))
    }

    fn place(&self, page: u64, level: u64) -> u64 {
        page * PAGE + level * self.upper
    }

    fn commit(&self, parts: &Parts<'_>) {
        let memory = &self.memory;
        let _closed = self.pages.close_parts(parts);
        let number = self.next.0.fetch_add(1, Ordering::Relaxed) + 1;
        // Parts ascend, so the pieces of one page follow each other.
        let mut at_work: Option<(u64, State)> = None;
        let all = parts.iter().flat_map(|(offset, data)| pieces(*offset, data));
        for (page, start, piece) in all {
            let end = start + piece.len();
            let (to, state) = match &mut at_work {
                Some((same, state)) if *same == page => {
                    state.to = end;
                    (self.place(page, 1 - state.valid), *state)
                }
                _ => {
                    let old = self.state(page);
                    let to = self.place(page, 1 - old.valid);
                    let from = self.place(page, old.valid);
                    // Copies the bytes that it lacks, except for those that this write stores.
                    for (from_here, to_here) in
                        [(old.from, old.to.min(start)), (old.from.max(end), old.to)]
                    {
                        if from_here < to_here {
                            let len = to_here - from_here;
                            record::copy(
                                memory,
                                from + from_here as u64,
                                to + from_here as u64,
                                len,
                            );
                        }
                    }
                    memory.store_word(number, self.numbers + page * 16 + (1 - old.valid) * 8);
                    (to, State { valid: old.valid, from: start, to: end })
                }
            };
            memory.store(piece, to + start as u64);
            at_work = Some((page, state));
            // Readers see it only after the page is unlocked. It becomes valid only with the
            // committed number.
            self.states[page as usize].store(state.bits(), Ordering::Relaxed);
        }
        // Orders the bytes and their numbers before the commit of the number, by this thread or a
        // later one. Also orders them before other threads may read them.
        memory.drain();
        let mut turns = 0;
        while self.last.0.load(Ordering::Acquire) != number - 1 {
            relax(&mut turns);
        }
        memory.store_word(number, self.committed);
        self.last.0.store(number, Ordering::Release);
        // Makes the number durable: the commit point. Also comes before the next write to these
        // pages, which overwrites the level that was valid until now.
        memory.drain();
        let mut last = None;
        for (page, ..) in parts.iter().flat_map(|(offset, data)| pieces(*offset, data)) {
            if last != Some(page) {
                self.states[page as usize].fetch_xor(1 << 31, Ordering::Relaxed);
                last = Some(page);
            }
        }
    }
}

impl Subject for TwoLevel {
    fn write(&self, data: &[u8], offset: u64) {
        self.commit(&[(offset, data)]);
    }

    fn read(&self, to: &mut [u8], offset: u64) {
        self.pages.read(offset, to.len(), || {
            for (page, start, piece) in pieces_mut(offset, to) {
                self.memory.load(piece, self.place(page, self.state(page).valid) + start as u64);
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
