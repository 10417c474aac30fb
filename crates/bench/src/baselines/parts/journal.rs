//! A journal of records that recovery applies again, all of them, in order.
//!
//! Owns: a log for each lane, filled from its start; one counter of sequence numbers; and the
//! low-water mark on the medium. Records below the mark are dead.
//!
//! Invariants:
//! - A record is valid when it is durable. It gets its number while its pages are locked. So
//!   records of one page have ascending numbers, even in different lanes.
//! - Records die only together. A full lane stops all lanes, makes the effects of all records
//!   durable, and raises the mark above all of them. So recovery never applies a record without the
//!   later ones over its bytes. A lane emptied alone would have removed those.
//! - Lanes before pages: a thread that waits for a lane has no page locked.

use super::lane::{self, LANES, Padded};
use super::record::{self, Record};
use crate::memory::Memory;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

/// The logs of all lanes.
#[derive(Debug)]
pub struct Journal<X> {
    /// Offset of the mark, which has its own line.
    mark: u64,
    /// Offset of the first lane's log.
    logs: u64,
    room: u64,
    sequence: Padded<AtomicU64>,
    lanes: Box<[Padded<Mutex<Lane<X>>>]>,
}

/// The state of a lane.
#[derive(Debug, Default)]
pub struct Lane<X> {
    /// Bytes of its log in use.
    full: u64,
    /// How often the journal was emptied.
    pub emptied: u64,
    /// Buffer for bodies with several parts.
    pub body: Vec<u8>,
    /// State of the protocol that uses the journal.
    pub more: X,
}

/// A lane that this thread has locked.
#[derive(Debug)]
pub struct Writer<'a, X> {
    journal: &'a Journal<X>,
    log: u64,
    /// The state of the lane.
    pub lane: MutexGuard<'a, Lane<X>>,
}

const MARK: u64 = 4096;

impl<X: Default> Journal<X> {
    /// Returns the bytes that a journal takes, with logs of `room` bytes.
    pub fn takes(room: u64) -> u64 {
        MARK + room * LANES as u64
    }

    /// Opens the journal at `at`. Calls `apply` for each valid record in order. `apply` stores and
    /// flushes the record's effects. They are drained before the records are invalidated.
    pub fn open(memory: &Memory, at: u64, room: u64, apply: impl FnMut(&Record)) -> Journal<X> {
        let mut found = Vec::new();
        let dead = memory.load_word(at);
        for lane in 0..LANES as u64 {
            let start = at + MARK + lane * room;
            let (mut here, mut last) = (start, dead);
            // Records that a lane has removed have numbers below the mark.
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
        // Orders the effects before the mark that invalidates their records.
        memory.drain();
        let last = found.last().map_or(dead, |record| record.sequence);
        memory.store_word(last, at);
        // Orders the mark before new records with higher numbers, and before they overwrite these.
        memory.drain();
        Journal {
            mark: at,
            logs: at + MARK,
            room,
            sequence: Padded(AtomicU64::new(last)),
            lanes: (0..LANES).map(|_| Padded::default()).collect(),
        }
    }

    /// Locks this thread's lane, with room for a record with a body of `body` bytes. If the journal
    /// must be emptied, calls `settle` for each record. `settle` flushes the record's unflushed
    /// stores.
    #[inline]
    pub fn begin(&self, memory: &Memory, body: usize, settle: impl Fn(&Record)) -> Writer<'_, X> {
        self.begin_lane(lane::mine(), memory, body, settle)
    }

    /// Locks a lane.
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
            let guard = self.lanes[lane].0.lock().expect("no thread has panicked");
            if guard.full + record::room(body) <= self.room {
                let log = self.logs + lane as u64 * self.room;
                return Writer { journal: self, log, lane: guard };
            }
            drop(guard);
            self.empty(memory, &settle);
        }
    }

    /// Makes the effects of all records durable, and removes the records.
    #[cold]
    pub fn empty(&self, memory: &Memory, settle: impl Fn(&Record)) {
        let mut lanes: Vec<_> =
            self.lanes.iter().map(|lane| lane.0.lock().expect("no thread has panicked")).collect();
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
        // Orders the effects before the mark that invalidates their records. Streamed bytes were
        // drained by their own threads.
        memory.drain();
        memory.store_word(self.sequence.0.load(Ordering::Relaxed), self.mark);
        // Orders the mark before new records that overwrite these.
        memory.drain();
        for lane in &mut lanes {
            lane.full = 0;
            lane.emptied += 1;
        }
    }
}

impl<X> Writer<'_, X> {
    /// Appends a record and makes it durable: the commit point. The caller has locked its pages.
    #[inline]
    pub fn commit(&mut self, memory: &Memory, key: u64, body: &[u8]) {
        let sequence = self.journal.sequence.0.fetch_add(1, Ordering::Relaxed) + 1;
        record::put(memory, self.log + self.lane.full, sequence, key, body);
        // From here on recovery restores the record's effects.
        memory.drain();
        self.lane.full += record::room(body.len());
    }
}
