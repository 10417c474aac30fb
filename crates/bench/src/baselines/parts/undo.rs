//! An undo log for one operation of a lane at a time.
//!
//! Owns: a lane's record of the old bytes under its operation, always at one place. Also owns the
//! lane's word with the number of the last finished operation.
//!
//! Invariants: a lane has at most one unfinished operation. Its pages stay locked until it is
//! finished. So the operations that recovery takes back touch different bytes, and their order does
//! not matter. Lanes before pages: a thread that waits for a lane has no page locked.

use super::lane::{self, LANES, Padded};
use super::record;
use crate::memory::Memory;
use std::sync::{Mutex, MutexGuard};

/// All lanes.
#[derive(Debug)]
pub struct Undo<X> {
    logs: u64,
    room: u64,
    lanes: Box<[Padded<Mutex<Lane<X>>>]>,
}

/// The state of a lane.
#[derive(Debug, Default)]
pub struct Lane<X> {
    sequence: u64,
    old: Vec<u8>,
    /// State of the protocol that uses the log.
    pub more: X,
}

/// A lane that this thread has locked.
#[derive(Debug)]
pub struct Writer<'a, X> {
    log: u64,
    room: u64,
    /// The state of the lane.
    pub lane: MutexGuard<'a, Lane<X>>,
}

/// Bytes of the word with the last finished operation, which has its own line.
const DONE: u64 = 64;
/// Bytes before each range: its offset and its length.
const NAMED: usize = 16;

impl<X: Default> Undo<X> {
    /// Returns the bytes that the log takes. An operation overwrites at most `room` bytes, in few
    /// ranges.
    pub fn takes(room: u64) -> u64 {
        (room + room / 64 + 4096) * LANES as u64
    }

    /// Opens the log at `at`, and takes back the unfinished operations.
    pub fn open(memory: &Memory, at: u64, room: u64) -> Undo<X> {
        let room = Self::takes(room) / LANES as u64;
        let mut undo = Undo { logs: at, room, lanes: Box::default() };
        let lanes = (0..LANES as u64).map(|lane| {
            let log = at + lane * room;
            let done = memory.load_word(log);
            let record = record::look(memory, log + DONE, log + room);
            if let Some(record) = record.filter(|record| record.sequence > done) {
                let mut old = vec![0; record.len];
                memory.load(&mut old, record.at);
                let mut rest = &old[..];
                while let Some((name, bytes)) = rest.split_at_checked(NAMED) {
                    let word =
                        |at| u64::from_le_bytes(name[at..at + 8].try_into().expect("8 bytes"));
                    let (bytes, next) = bytes.split_at(word(8) as usize);
                    memory.store(bytes, word(0));
                    rest = next;
                }
                // Orders the old bytes before the word that invalidates their record.
                memory.drain();
                memory.store_word(record.sequence, log);
                // Orders the word before the next operation's record, which overwrites this one.
                memory.drain();
            }
            let sequence = record.map_or(done, |record| record.sequence.max(done));
            Padded(Mutex::new(Lane { sequence, old: Vec::new(), more: X::default() }))
        });
        undo.lanes = lanes.collect();
        undo
    }

    /// Locks this thread's lane.
    #[inline]
    pub fn begin(&self) -> Writer<'_, X> {
        let mine = lane::mine();
        let lane = self.lanes[mine].0.lock().expect("no thread has panicked");
        Writer { log: self.logs + mine as u64 * self.room, room: self.room, lane }
    }

    /// Returns the lanes, for a protocol that assigns resources to them before the first write.
    pub fn lanes(&mut self) -> impl Iterator<Item = &mut X> {
        self.lanes
            .iter_mut()
            .map(|lane| &mut lane.0.get_mut().expect("no thread has panicked").more)
    }
}

impl<X> Writer<'_, X> {
    /// Records the bytes of the ranges. When this returns, the caller may overwrite them.
    #[inline]
    pub fn keep(&mut self, memory: &Memory, ranges: impl Iterator<Item = (u64, usize)>) {
        let Lane { sequence, old, .. } = &mut *self.lane;
        *sequence += 1;
        let mut len = 0;
        for (at, bytes) in ranges {
            let end = len + NAMED + bytes;
            if end > old.len() {
                old.resize(end.next_power_of_two().max(8192), 0);
            }
            old[len..len + 8].copy_from_slice(&at.to_le_bytes());
            old[len + 8..len + NAMED].copy_from_slice(&(bytes as u64).to_le_bytes());
            memory.load(&mut old[len + NAMED..end], at);
            len = end;
        }
        assert!(DONE + record::room(len) <= self.room, "{len} bytes are more than the log has");
        record::put(memory, self.log + DONE, *sequence, 0, &old[..len]);
        // Orders the old bytes before the first new one in their place.
        memory.drain();
    }

    /// Invalidates the record: the commit point. The new bytes are durable already.
    #[inline]
    pub fn done(&mut self, memory: &Memory) {
        memory.store_word(self.lane.sequence, self.log);
        // From here on recovery takes nothing back. Also orders the word before the next
        // operation's record, which overwrites this one. Recovery needs this record until then.
        memory.drain();
    }
}
