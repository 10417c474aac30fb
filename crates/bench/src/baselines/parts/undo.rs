//! How is one operation at a time made undoable?
//!
//! Owns: a lane's record of the bytes that its operation goes over, always at the same place, and the
//! lane's word that says up to which number operations are done.
//!
//! Invariants: at most one operation a lane is not done. Its pages are closed until it is, so the
//! operations that recovery takes back touch different bytes, and the order does not matter. Lanes before
//! pages: whoever waits for a lane has no page closed.

use super::lane::{self, LANES, Padded};
use super::record;
use crate::memory::Memory;
use std::sync::{Mutex, MutexGuard};

/// The lanes.
#[derive(Debug)]
pub struct Undo<X> {
    logs: u64,
    room: u64,
    lanes: Box<[Padded<Mutex<Lane<X>>>]>,
}

/// What a lane knows.
#[derive(Debug, Default)]
pub struct Lane<X> {
    sequence: u64,
    old: Vec<u8>,
    /// What its user keeps.
    pub more: X,
}

/// A lane that this thread has.
#[derive(Debug)]
pub struct Writer<'a, X> {
    log: u64,
    room: u64,
    /// What it knows.
    pub lane: MutexGuard<'a, Lane<X>>,
}

/// The word that says which operations are done has a line of its own.
const DONE: u64 = 64;
/// Before each range: where, and how long.
const NAMED: usize = 16;

impl<X: Default> Undo<X> {
    /// How many bytes it takes, where an operation goes over at most `room` bytes, in few ranges.
    pub fn takes(room: u64) -> u64 {
        (room + room / 64 + 4096) * LANES as u64
    }

    /// Opens it at `at`, and takes back what was not done.
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
                // The old bytes before the word that forgets them.
                memory.drain();
                memory.store_word(record.sequence, log);
                // The word before the next operation's record goes over this one.
                memory.drain();
            }
            let sequence = record.map_or(done, |record| record.sequence.max(done));
            Padded(Mutex::new(Lane { sequence, old: Vec::new(), more: X::default() }))
        });
        undo.lanes = lanes.collect();
        undo
    }

    /// Takes this thread's lane.
    #[inline]
    pub fn begin(&self) -> Writer<'_, X> {
        let mine = lane::mine();
        let lane = self.lanes[mine].0.lock().expect("nobody panicked");
        Writer { log: self.logs + mine as u64 * self.room, room: self.room, lane }
    }

    /// The lanes, for who deals something out to them before anybody writes.
    pub fn lanes(&mut self) -> impl Iterator<Item = &mut X> {
        self.lanes.iter_mut().map(|lane| &mut lane.0.get_mut().expect("nobody panicked").more)
    }
}

impl<X> Writer<'_, X> {
    /// Keeps the bytes of the ranges. They may be gone over when this returns.
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
        // The old bytes before the first new one in their place.
        memory.drain();
    }

    /// Forgets them: the commit point. What went over them is durable.
    #[inline]
    pub fn done(&mut self, memory: &Memory) {
        memory.store_word(self.lane.sequence, self.log);
        // The word: from here on recovery takes nothing back. And before the next operation's record goes
        // over this one, which recovery would need until then.
        memory.drain();
    }
}
