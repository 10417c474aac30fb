//! What does a turn do, and does what it wrote read back?
//!
//! Owns: the sequence of operations of a cell. It depends on the cell, the round and the thread only, so
//! everybody does the same operations in the same order, as many as they get done in their time. It can be
//! gone through again without doing anything, to know what must be there at the end: places of one cell
//! are equal or do not overlap.

use crate::offsets::{Offsets, Order};
use crate::subject::Subject;
use std::collections::HashMap;

/// What is done over and over.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// Bytes of an operation, or of a range of a transaction.
    pub len: usize,
    pub order: Order,
    /// Distance of places: at least `len`.
    pub step: u64,
    /// What all places are shifted by.
    pub plus: u64,
    /// Percent of operations that read.
    pub reads: u64,
    /// How many writes there are to a sync.
    pub sync_every: u64,
    /// Threads, each in a range of its own.
    pub threads: usize,
    /// Ranges of a transaction. 0: plain writes.
    pub parts: usize,
}

impl Job {
    /// Durable writes by one thread.
    pub fn writes(len: usize, order: Order) -> Job {
        let step = len as u64;
        Job { len, order, step, plus: 0, reads: 0, sync_every: 1, threads: 1, parts: 0 }
    }

    /// Bytes that an operation asks for.
    pub fn bytes(&self) -> usize {
        self.len * self.parts.max(1)
    }
}

/// Random bytes; a write takes them from one of so many places, so that two writes to a place differ.
const SHIFTS: u64 = 512;
const SHIFT: usize = 64;
/// Places that are compared at the end.
const COMPARED: usize = 2000;

/// Bytes to write, for everybody the same.
pub struct Data(Vec<u8>);

impl Data {
    /// Enough for pieces of `len` bytes.
    pub fn new(len: usize) -> Data {
        let mut bytes = vec![0; len + SHIFTS as usize * SHIFT];
        fastrand::Rng::with_seed(0xDA7A).fill(&mut bytes);
        Data(bytes)
    }

    fn at(&self, number: u64, len: usize) -> &[u8] {
        // Odd, so that neighbours in time differ.
        let shift = (number.wrapping_mul(0x9E37_79B9) >> 8) % SHIFTS;
        &self.0[shift as usize * SHIFT..][..len]
    }
}

/// One thread's operations.
pub struct Script<'a> {
    job: Job,
    data: &'a Data,
    /// One for each range of a transaction, else one.
    places: Vec<(u64, Offsets)>,
    parts: Vec<(u64, &'a [u8])>,
    buffer: Vec<u8>,
    choice: u64,
    number: u64,
    unsynced: u64,
}

enum Op {
    Read(u64),
    Write(u64),
    Transaction,
}

impl<'a> Script<'a> {
    /// For one of the job's threads, in a file of `file` bytes.
    pub fn new(job: Job, data: &'a Data, file: u64, thread: usize, seed: u64) -> Script<'a> {
        let seed = seed * 64 + thread as u64 + 1;
        let share = file / job.threads as u64 / 4096 * 4096;
        let ranges = job.parts.max(1) as u64;
        let stripe = share / ranges / 64 * 64;
        let places = (0..ranges)
            .map(|n| {
                let seed = seed + n * 8191;
                let offsets = Offsets::new(job.order, stripe, job.len, job.step, job.plus, seed);
                (thread as u64 * share + n * stripe, offsets)
            })
            .collect();
        Script {
            job,
            data,
            places,
            parts: Vec::with_capacity(job.parts),
            buffer: vec![0; job.len],
            choice: seed.wrapping_mul(0x2545_F491_4F6C_DD1D) | 1,
            number: seed,
            unsynced: 0,
        }
    }

    #[inline]
    fn next(&mut self) -> Op {
        self.number += 1;
        let is_read = match self.job.reads {
            0 => false,
            share => {
                self.choice ^= self.choice << 13;
                self.choice ^= self.choice >> 7;
                self.choice ^= self.choice << 17;
                (self.choice >> 32) * 100 < share << 32
            }
        };
        if self.job.parts > 0 {
            self.parts.clear();
            for (n, (base, offsets)) in self.places.iter_mut().enumerate() {
                let offset = *base + offsets.next().unwrap_or(0);
                self.parts.push((offset, self.data.at(self.number + n as u64, self.job.len)));
            }
            return Op::Transaction;
        }
        let (base, offsets) = &mut self.places[0];
        let offset = *base + offsets.next().unwrap_or(0);
        if is_read { Op::Read(offset) } else { Op::Write(offset) }
    }

    /// Does one operation. False: it is not offered.
    #[inline]
    pub fn step(&mut self, subject: &dyn Subject) -> bool {
        match self.next() {
            Op::Read(offset) => {
                subject.read(&mut self.buffer, offset);
                std::hint::black_box(&self.buffer);
                return true;
            }
            Op::Write(offset) => subject.write(self.data.at(self.number, self.job.len), offset),
            Op::Transaction => {
                if !subject.transact(&self.parts) {
                    return false;
                }
            }
        }
        self.unsynced += 1;
        if self.unsynced >= self.job.sync_every {
            self.unsynced = 0;
            subject.sync();
        }
        true
    }

    /// Goes through the first `steps` operations of a script that has done nothing yet, and compares what
    /// they have written with what is there.
    ///
    /// # Panics
    /// Where something else is there: nothing that was measured counts then.
    pub fn check(mut self, subject: &dyn Subject, steps: u64, name: &str) {
        let mut last: HashMap<u64, &[u8]> = HashMap::new();
        for _ in 0..steps {
            match self.next() {
                Op::Read(_) => {}
                Op::Write(offset) => {
                    last.insert(offset, self.data.at(self.number, self.job.len));
                }
                Op::Transaction => last.extend(self.parts.iter().copied()),
            }
        }
        subject.sync();
        let compared = COMPARED.min((64 << 20) / self.job.len);
        for (offset, expected) in last.into_iter().take(compared) {
            subject.read(&mut self.buffer, offset);
            assert!(self.buffer == expected, "{name}: not what was written at {offset}");
        }
    }
}
