//! What is on the disk, and what has happened to it?
//!
//! Owns: the sectors, in memory. A disk that *records* keeps an event for each write, flush and mark, in
//! the order in which they came. A disk that *replays* keeps what is written to it apart from what it held, so
//! that an image and all that mounting and recovery have written to it is forgotten in an instant.

use std::collections::HashMap;

/// Bytes that are written whole or not at all.
pub const SECTOR: usize = 512;
const BLOCK: usize = 4096;

type Blocks = HashMap<u64, Box<[u8; BLOCK]>>;

/// Something that has happened to a disk. Its place in the list of all events is its moment.
pub enum Event {
    /// A write has come. It had returned at the moment `done`.
    Write { write: Write, done: usize },
    /// A flush has returned, which had come at the moment `begun`.
    Flush { begun: usize },
    /// Something that has no meaning for the disk: a write or a flush returns or comes.
    Tick,
    /// What the writer says.
    Mark(String),
}

/// Bytes at an offset.
pub struct Write {
    pub at: u64,
    pub bytes: Vec<u8>,
}

/// A disk.
pub struct Disk {
    pub len: u64,
    base: Blocks,
    /// Of a disk that replays: what is not to stay.
    over: Option<Blocks>,
    /// Of a disk that records.
    events: Option<Vec<Event>>,
}

impl Disk {
    /// A disk full of zeroes.
    pub fn new(len: u64) -> Disk {
        Disk { len, base: Blocks::new(), over: None, events: None }
    }

    /// From now on every event is kept.
    pub fn record(&mut self) {
        self.events = Some(Vec::new());
    }

    /// What has happened. From now on nothing is kept.
    pub fn recorded(&mut self) -> Vec<Event> {
        self.events.take().unwrap_or_default()
    }

    /// Notes an event, if this disk records. Returns its moment.
    pub fn note(&mut self, event: Event) -> usize {
        let Some(events) = &mut self.events else { return 0 };
        events.push(event);
        events.len() - 1
    }

    /// A write that was noted at the moment `at` has returned.
    pub fn returned(&mut self, at: usize) {
        let now = self.note(Event::Tick);
        if let Some(events) = &mut self.events
            && let Some(Event::Write { done, .. }) = events.get_mut(at)
        {
            *done = now;
        }
    }

    /// A second disk with the same bytes.
    pub fn copy(&self) -> Disk {
        Disk { len: self.len, base: self.base.clone(), over: None, events: None }
    }

    /// A second disk with the same bytes, those of the image as if they had been there for good.
    pub fn copy_with_image(&self) -> Disk {
        let mut copy = self.copy();
        copy.base.extend(self.over.clone().unwrap_or_default());
        copy
    }

    pub fn read(&self, at: u64, to: &mut [u8]) {
        to.fill(0);
        for_each_block(at, to.len(), |block, inside, part| {
            let over = self.over.as_ref().and_then(|over| over.get(&block));
            if let Some(bytes) = over.or_else(|| self.base.get(&block)) {
                to[part].copy_from_slice(&bytes[inside]);
            }
        });
    }

    /// Stores bytes. Those of a disk that replays are forgotten with the image.
    pub fn store(&mut self, at: u64, bytes: &[u8]) {
        let Disk { base, over, .. } = self;
        for_each_block(at, bytes.len(), |block, inside, part| {
            let blocks = match over {
                Some(over) => {
                    let old = || base.get(&block).cloned().unwrap_or_else(zeroes);
                    over.entry(block).or_insert_with(old)
                }
                None => base.entry(block).or_insert_with(zeroes),
            };
            blocks[inside].copy_from_slice(&bytes[part]);
        });
    }

    /// A new image begins: nothing but what was stored for good.
    pub fn begin_image(&mut self) {
        self.over = Some(Blocks::new());
    }

    /// From now on what is stored stays.
    pub fn for_good(&mut self) {
        self.over = None;
    }
}

fn zeroes() -> Box<[u8; BLOCK]> {
    Box::new([0; BLOCK])
}

/// Calls `what` for each block that the range touches, with the part of the block and of the range.
fn for_each_block(
    at: u64,
    len: usize,
    mut what: impl FnMut(u64, std::ops::Range<usize>, std::ops::Range<usize>),
) {
    let mut done = 0;
    while done < len {
        let now = at + done as u64;
        let from = (now % BLOCK as u64) as usize;
        let count = (BLOCK - from).min(len - done);
        what(now / BLOCK as u64, from..from + count, done..done + count);
        done += count;
    }
}
