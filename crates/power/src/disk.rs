//! The disk of the test: its sectors, and the events that reached it.
//!
//! Owns: the sectors, in memory. A *recording* disk keeps an event for each write, flush and mark,
//! in order of arrival. A *replaying* disk keeps new writes apart from its older bytes. So it can
//! quickly drop an image together with all writes of the mount and the recovery.

use std::collections::HashMap;

/// Bytes that the disk writes whole or not at all.
pub const SECTOR: usize = 512;
const BLOCK: usize = 4096;

type Blocks = HashMap<u64, Box<[u8; BLOCK]>>;

/// An event on a disk. Its index in the list of all events is its moment.
pub enum Event {
    /// A write arrived. It had returned at the moment `done`.
    Write { write: Write, done: usize },
    /// A flush returned that had arrived at the moment `begun`.
    Flush { begun: usize },
    /// The return or the arrival of a request, which only counts the moments.
    Tick,
    /// A message of the writer.
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
    /// On a replaying disk: the bytes that are dropped with the image.
    over: Option<Blocks>,
    /// On a recording disk: the events.
    events: Option<Vec<Event>>,
}

impl Disk {
    /// Returns a disk of zeroes.
    pub fn new(len: u64) -> Disk {
        Disk { len, base: Blocks::new(), over: None, events: None }
    }

    /// Starts to record events.
    pub fn record(&mut self) {
        self.events = Some(Vec::new());
    }

    /// Returns the recorded events and stops the recording.
    pub fn recorded(&mut self) -> Vec<Event> {
        self.events.take().unwrap_or_default()
    }

    /// Records an event if this disk records. Returns its moment.
    pub fn note(&mut self, event: Event) -> usize {
        let Some(events) = &mut self.events else { return 0 };
        events.push(event);
        events.len() - 1
    }

    /// Records that the write of the moment `at` has returned.
    pub fn returned(&mut self, at: usize) {
        let now = self.note(Event::Tick);
        if let Some(events) = &mut self.events
            && let Some(Event::Write { done, .. }) = events.get_mut(at)
        {
            *done = now;
        }
    }

    /// Returns a second disk with the same bytes.
    pub fn copy(&self) -> Disk {
        Disk { len: self.len, base: self.base.clone(), over: None, events: None }
    }

    /// Returns a second disk with the same bytes. The image becomes permanent on the copy.
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

    /// Stores bytes. A replaying disk drops them with the image.
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

    /// Begins a new image: drops all bytes that are not permanent.
    pub fn begin_image(&mut self) {
        self.over = Some(Blocks::new());
    }

    /// Makes all later stores permanent.
    pub fn for_good(&mut self) {
        self.over = None;
    }
}

fn zeroes() -> Box<[u8; BLOCK]> {
    Box::new([0; BLOCK])
}

/// Calls `what` for each block in the range, with the overlapping parts of the block and of the
/// range.
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
