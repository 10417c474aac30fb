//! How are records kept that recovery applies again, all of them, in order?
//!
//! Owns: a log a lane, filled from its start; one counter of sequence numbers; and the low-water mark on
//! the medium, below which records are dead.
//!
//! Invariants:
//! - A record counts when it is durable. Its number is taken when its pages are closed, so records that
//!   touch the same page have numbers in the order in which they happened, whatever their lanes.
//! - No record dies alone. A lane that is full stops all lanes, lets the effects of all records be made
//!   durable, and raises the mark above all of them. So a record is never applied again without the later
//!   ones that went over it, which a lane that was emptied alone would have forgotten.
//! - Lanes before pages: whoever waits for a lane has no page closed.

use super::lane::{self, LANES, Padded};
use super::record::{self, Record};
use crate::memory::Memory;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

/// The lanes' logs.
#[derive(Debug)]
pub struct Journal<X> {
    /// The mark, on a line of its own.
    mark: u64,
    /// The first lane's log.
    logs: u64,
    room: u64,
    sequence: Padded<AtomicU64>,
    lanes: Box<[Padded<Mutex<Lane<X>>>]>,
}

/// What a lane knows.
#[derive(Debug, Default)]
pub struct Lane<X> {
    /// How much of its log is full.
    full: u64,
    /// How often the journal was emptied.
    pub emptied: u64,
    /// The bodies that need to be put together are put together here.
    pub body: Vec<u8>,
    /// What its user keeps.
    pub more: X,
}

/// A lane that this thread has.
#[derive(Debug)]
pub struct Writer<'a, X> {
    journal: &'a Journal<X>,
    log: u64,
    /// What it knows.
    pub lane: MutexGuard<'a, Lane<X>>,
}

const MARK: u64 = 4096;

impl<X: Default> Journal<X> {
    /// How many bytes it takes, with logs of `room` bytes.
    pub fn takes(room: u64) -> u64 {
        MARK + room * LANES as u64
    }

    /// Opens it at `at`. Records that count are handed to `apply`, in order, which makes their effects
    /// by stores and flushes of its own; the effects are drained before the records are dead.
    pub fn open(memory: &Memory, at: u64, room: u64, apply: impl FnMut(&Record)) -> Journal<X> {
        let mut found = Vec::new();
        let dead = memory.load_word(at);
        for lane in 0..LANES as u64 {
            let start = at + MARK + lane * room;
            let (mut here, mut last) = (start, dead);
            // What a lane forgot has lower numbers than the mark.
            while let Some(record) = record::look(memory, here, start + room)
                && record.sequence > last
            {
                last = record.sequence;
                here += record::room(record.len);
                found.push(record);
            }
        }
        found.sort_by_key(|record| record.sequence);
        found.iter().for_each(apply);
        // Their effects before the mark that forgets them.
        memory.drain();
        let last = found.last().map_or(dead, |record| record.sequence);
        memory.store_word(last, at);
        // The mark before new records, whose numbers are higher, and before they take the place of these.
        memory.drain();
        Journal {
            mark: at,
            logs: at + MARK,
            room,
            sequence: Padded(AtomicU64::new(last)),
            lanes: (0..LANES).map(|_| Padded::default()).collect(),
        }
    }

    /// Takes this thread's lane, with room for a record with such a body. `settle` gets each record when
    /// the journal has to be emptied, and flushes what it has had stored and not flushed.
    #[inline]
    pub fn begin(&self, memory: &Memory, body: usize, settle: impl Fn(&Record)) -> Writer<'_, X> {
        self.begin_lane(lane::mine(), memory, body, settle)
    }

    /// Takes a lane.
    #[inline]
    pub fn begin_lane(
        &self,
        lane: usize,
        memory: &Memory,
        body: usize,
        settle: impl Fn(&Record),
    ) -> Writer<'_, X> {
        assert!(record::room(body) <= self.room, "{body} bytes are more than the log has");
        loop {
            let guard = self.lanes[lane].0.lock().expect("nobody panicked");
            if guard.full + record::room(body) <= self.room {
                let log = self.logs + lane as u64 * self.room;
                return Writer { journal: self, log, lane: guard };
            }
            drop(guard);
            self.empty(memory, &settle);
        }
    }

    /// Makes all records' effects durable, and forgets the records.
    #[cold]
    pub fn empty(&self, memory: &Memory, settle: impl Fn(&Record)) {
        let mut lanes: Vec<_> =
            self.lanes.iter().map(|lane| lane.0.lock().expect("nobody panicked")).collect();
        for (index, lane) in lanes.iter().enumerate() {
            let start = self.logs + index as u64 * self.room;
            let mut here = start;
            while here < start + lane.full {
                let record = record::look(memory, here, start + lane.full)
                    .expect("what was appended is there");
                settle(&record);
                here += record::room(record.len);
            }
        }
        // The effects before the mark that forgets what would bring them back. (What was streamed, its
        // thread has drained itself.)
        memory.drain();
        memory.store_word(self.sequence.0.load(Ordering::Relaxed), self.mark);
        // The mark before new records take the place of these.
        memory.drain();
        for lane in &mut lanes {
            lane.full = 0;
            lane.emptied += 1;
        }
    }
}

impl<X> Writer<'_, X> {
    /// Appends a record, and makes it durable: the commit point. Its pages are closed.
    #[inline]
    pub fn commit(&mut self, memory: &Memory, key: u64, body: &[u8]) {
        let sequence = self.journal.sequence.0.fetch_add(1, Ordering::Relaxed) + 1;
        record::put(memory, self.log + self.lane.full, sequence, key, body);
        // The record: from here on recovery brings its effects back.
        memory.drain();
        self.lane.full += record::room(body.len());
    }
}
