//! The operations of a turn, and the check that they read back.
//!
//! Owns: the sequence of operations of a cell. It depends only on the cell, the round and the
//! thread. So all contenders do equal operations in equal order, and a fast one does more of them.
//! The check replays the sequence without its writes to know the final bytes. Places of one cell
//! are equal or do not overlap.

use crate::offsets::{Offsets, Order};
use crate::subject::Subject;
use std::collections::HashMap;

/// The operations of a cell.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// Bytes of an operation, or of each range in a transaction.
    pub len: usize,
    pub order: Order,
    /// Distance between places, at least `len`.
    pub step: u64,
    /// Offset that is added to all places.
    pub plus: u64,
    /// Percentage of operations that read.
    pub reads: u64,
    /// Number of writes for each sync.
    pub sync_every: u64,
    /// Number of threads, each in its own range.
    pub threads: usize,
    /// Number of ranges in a transaction. 0 means plain writes.
    pub parts: usize,
}

impl Job {
    /// Returns a job of durable writes by one thread.
    pub fn writes(len: usize, order: Order) -> Job {
        let step = len as u64;
        Job { len, order, step, plus: 0, reads: 0, sync_every: 1, threads: 1, parts: 0 }
    }

    /// Returns the bytes that an operation transfers.
    pub fn bytes(&self) -> usize {
        self.len * self.parts.max(1)
    }
}

/// Number of positions in the random bytes. Writes start at different ones, so that two writes to
/// one place differ.
const SHIFTS: u64 = 512;
const SHIFT: usize = 64;
/// Number of places that are compared at the end.
const COMPARED: usize = 2000;

/// The bytes to write, equal for all contenders.
pub struct Data(Vec<u8>);

impl Data {
    /// Makes enough bytes for pieces of `len` bytes.
    pub fn new(len: usize) -> Data {
        let mut bytes = vec![0; len + SHIFTS as usize * SHIFT];
        fastrand::Rng::with_seed(0xDA7A).fill(&mut bytes);
        Data(bytes)
    }

    fn at(&self, number: u64, len: usize) -> &[u8] {
        // An odd factor, so that consecutive writes differ.
        let shift = (number.wrapping_mul(0x9E37_79B9) >> 8) % SHIFTS;
        &self.0[shift as usize * SHIFT..][..len]
    }
}

/// The operations of one thread.
pub struct Script<'a> {
    job: Job,
    data: &'a Data,
    /// The places of each range in a transaction, or of the plain writes.
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
    /// Makes the script of one of the job's threads, in a file of `file` bytes.
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

    /// Does one operation. Returns `false` if it is not supported.
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

    /// Replays the first `steps` operations, and compares their bytes with the contents of the
    /// file. The script must be new.
    ///
    /// # Panics
    /// Panics at any difference, because no measurement is valid then.
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
