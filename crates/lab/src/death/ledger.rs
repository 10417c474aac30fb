//! The expected content of the file, derived from acknowledgements.
//!
//! Owns: the knowledge from acknowledgements, and the comparison with the bytes in the file. The
//! parent keeps the ledger. A forked child has a copy of it and compares the file that it opens.
//!
//! The bytes must satisfy these rules:
//! - Every slice certifies itself (`slices`).
//! - The blocks of a writer hold the state after its last acknowledged operation, or after the next
//!   one. That operation has all of its slices in the file, or none.
//! - The ticketed part holds the state after one ticket. That ticket is at least the last
//!   acknowledged one, and at most one higher for each writer.
//! - The blind part holds whole operations in a possible order. The operation that shows at a slice
//!   comes after all others that cover the slice. So among the operations that show somewhere,
//!   "comes after" has no cycle. If operation A must come after operation B, A had not returned
//!   before B began.
//! - The length is the last or the next one of the resizer. Past the base length, only the
//!   resizer's bytes are not zero.
//!
//! May import: `slices`, `work`.

use super::slices::{self, SLICE, Slice, name, operation};
use super::work::{
    self, BASE_LEN, BLIND, BLIND_AREA, BLIND_SLICES, FIRST, Op, RESIZER, Resize, TICKETED, TICKETS,
    WRITERS,
};
use std::collections::{BTreeMap, BTreeSet};

/// An acknowledged operation in the blind part.
#[derive(Clone, Debug)]
struct BlindOp {
    op: Op,
    /// The position of its acknowledgement among all acknowledgements.
    acknowledged: u64,
    /// The previous acknowledgement of its writer. The operation began later.
    began_after: u64,
}

/// The knowledge about a file.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// Number of the file.
    pub file: u32,
    /// Seed of its operations.
    pub seed: u64,
    /// The first operation, which writes everything, is in the file.
    pub written: bool,
    /// The last operation of each writer that is known to be in the file.
    pub own: [u64; WRITERS],
    /// The last ticket.
    pub ticket: u64,
    /// The last operation of the resizer.
    pub resized: u64,
    /// The number that each writer's next blind operation may have.
    pub blind_next: [u64; WRITERS],
    /// The expected slices of the blocks and of the ticketed part.
    expected: Vec<Slice>,
    /// The blind part as the last check found it.
    blind_found: Vec<u64>,
    /// The blind operations that were acknowledged since that check.
    blind_ops: Vec<BlindOp>,
    /// The number of acknowledgements so far.
    clock: u64,
    last_of: [u64; WRITERS],
}

/// The content of a file that passed the check. The ledger adopts it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// The first operation, which writes everything, is in the file.
    pub written: bool,
    /// The last operation of each writer.
    pub own: [u64; WRITERS],
    /// The last ticket.
    pub ticket: u64,
    /// The last operation of the resizer.
    pub resized: u64,
    /// The operation that each slice of the blind part names.
    pub blind: Vec<u64>,
}

impl Ledger {
    /// Returns the ledger of a file that does not exist yet.
    pub fn new(file: u32, seed: u64) -> Ledger {
        let first = work::first();
        Ledger {
            file,
            seed,
            written: false,
            own: [0; WRITERS],
            ticket: 0,
            resized: 0,
            blind_next: [1; WRITERS],
            expected: first.slices(file).collect(),
            blind_found: vec![first.operation; BLIND_SLICES as usize],
            blind_ops: Vec::new(),
            clock: 0,
            last_of: [0; WRITERS],
        }
    }

    fn expect(&mut self, op: &Op) {
        for slice in op.slices(self.file) {
            self.expected[slice.place as usize] = slice;
        }
    }

    fn reach(&mut self, own: [u64; WRITERS], ticket: u64) {
        for (writer, number) in own.into_iter().enumerate() {
            while self.own[writer] < number {
                self.own[writer] += 1;
                self.expect(&work::own(self.seed, writer, self.own[writer]));
            }
        }
        while self.ticket < ticket {
            self.ticket += 1;
            self.expect(&work::ticketed(self.seed, self.ticket));
        }
    }

    /// Notes that operation `n` has returned, and that the writer `by` acknowledged it. The
    /// operation belongs to a writer, or to one of the special writer numbers of `work`.
    pub fn acknowledge(&mut self, by: usize, who: usize, n: u64) {
        self.clock += 1;
        let mut own = self.own;
        match who {
            RESIZER => self.resized = self.resized.max(n),
            TICKETS => self.reach(own, n),
            FIRST => self.written = true,
            writer if writer < WRITERS => {
                own[writer] = own[writer].max(n);
                self.reach(own, self.ticket);
            }
            blind => {
                let writer = blind - BLIND;
                let op = work::blind(self.seed, writer, n);
                self.blind_next[writer] = self.blind_next[writer].max(n + 1);
                let (acknowledged, began_after) = (self.clock, self.last_of[writer]);
                self.blind_ops.push(BlindOp { op, acknowledged, began_after });
            }
        }
        if let Some(last) = self.last_of.get_mut(by) {
            *last = self.clock;
        }
    }

    /// Adopts the content that a check found: later states must include it.
    pub fn adopt(&mut self, found: &Found) {
        self.written |= found.written;
        self.reach(found.own, found.ticket);
        self.resized = self.resized.max(found.resized);
        self.blind_found.clone_from(&found.blind);
        self.blind_ops.clear();
        // One blind operation of each writer may have been in progress. It shows or never will, so
        // its number is not used again.
        self.blind_next.iter_mut().for_each(|next| *next += 1);
        self.clock += 1;
        self.last_of = [self.clock; WRITERS];
    }

    /// Compares all bytes of the file with the ledger. The error lists the violations.
    pub fn check(&self, bytes: &[u8]) -> Result<Found, Vec<String>> {
        if !self.written && bytes.len() as u64 == BASE_LEN && bytes.iter().all(|b| *b == 0) {
            return Ok(Found {
                written: false,
                own: self.own,
                ticket: self.ticket,
                resized: self.resized,
                blind: self.blind_found.clone(),
            });
        }
        let mut wrong = Vec::new();
        if (bytes.len() as u64) < BASE_LEN {
            return Err(vec![format!("{} bytes are left, of {BASE_LEN}", bytes.len())]);
        }
        let slices = bytes[..BASE_LEN as usize].chunks_exact(SLICE).zip(0..);
        let slices: Vec<Option<Slice>> = slices
            .map(|(bytes, place)| {
                Slice::decode(bytes, self.file, place).map_err(|what| wrong.push(what)).ok()
            })
            .collect();
        let own = std::array::from_fn(|writer| {
            let next = work::own(self.seed, writer, self.own[writer] + 1);
            let blocks = (0..TICKETED).filter(move |p| {
                *p / (TICKETED / (12 * WRITERS as u32)) % WRITERS as u32 == writer as u32
            });
            let next = [(self.own[writer] + 1, next)];
            let last = self.own[writer];
            self.compare(&slices, blocks, last, &next, &mut wrong).unwrap_or(last)
        });
        let next: Vec<(u64, Op)> = (1..=WRITERS as u64)
            .map(|more| (self.ticket + more, work::ticketed(self.seed, self.ticket + more)))
            .collect();
        let ticket = self
            .compare(&slices, TICKETED..BLIND_AREA, self.ticket, &next, &mut wrong)
            .unwrap_or(self.ticket);
        let blind = self.check_blind(&slices[BLIND_AREA as usize..], &mut wrong);
        let resized = self.check_length(bytes, &mut wrong);
        if wrong.is_empty() {
            Ok(Found { written: true, own, ticket, resized, blind })
        } else {
            let left_out = wrong.len().saturating_sub(6);
            wrong.truncate(6);
            if left_out > 0 {
                wrong.push(format!("and {left_out} more"));
            }
            Err(wrong)
        }
    }

    /// Returns the number of the state that the places hold: `last`, the acknowledged one, or a
    /// state after one or more operations of `next`.
    fn compare(
        &self,
        slices: &[Option<Slice>],
        places: impl Iterator<Item = u32> + Clone,
        last: u64,
        next: &[(u64, Op)],
        wrong: &mut Vec<String>,
    ) -> Option<u64> {
        let differs = |state: &BTreeMap<u32, Slice>| {
            places.clone().find(|place| {
                let expected = state.get(place).unwrap_or(&self.expected[*place as usize]);
                slices[*place as usize].as_ref() != Some(expected)
            })
        };
        let mut state = BTreeMap::new();
        let first = differs(&state);
        let Some(place) = first else { return Some(last) };
        for (number, op) in next {
            state.extend(op.slices(self.file).map(|slice| (slice.place, slice)));
            if differs(&state).is_none() {
                return Some(*number);
            }
        }
        // The self-certification already reports a slice that cannot be decoded.
        if let Some(found) = slices[place as usize] {
            let expected = self.expected[place as usize];
            let newer: Vec<String> = next
                .iter()
                .map(|(_, op)| {
                    let all = op.slices(self.file);
                    let (mut there, mut of) = (0, 0);
                    all.for_each(|slice| {
                        of += 1;
                        there += u32::from(slices[slice.place as usize] == Some(slice));
                    });
                    format!("{there} of {of} slices of {}", name(op.operation))
                })
                .collect();
            let lost = found.operation < expected.operation
                || found.operation >> 56 == FIRST as u64 && expected.operation >> 56 < FIRST as u64;
            wrong.push(format!(
                "{}: slice {place} has {}, and {} was the last acknowledged there; of what may \
                 follow there are {}",
                if lost { "lost" } else { "torn" },
                name(found.operation),
                name(expected.operation),
                newer.join(", ")
            ));
        }
        None
    }

    fn check_blind(&self, slices: &[Option<Slice>], wrong: &mut Vec<String>) -> Vec<u64> {
        let shown: Vec<u64> = slices.iter().map(|s| s.map_or(0, |slice| slice.operation)).collect();
        let mut known: BTreeMap<u64, BlindOp> =
            self.blind_ops.iter().map(|known| (known.op.operation, known.clone())).collect();
        // The operations that may be in progress.
        for writer in 0..WRITERS {
            let op = work::blind(self.seed, writer, self.blind_next[writer]);
            let began_after = self.last_of[writer];
            known.insert(op.operation, BlindOp { op, acknowledged: u64::MAX, began_after });
        }
        let mut visible = BTreeSet::new();
        for (index, (slice, before)) in slices.iter().zip(&self.blind_found).enumerate() {
            let Some(slice) = slice else { continue };
            let place = BLIND_AREA + index as u32;
            let Some(shows) = known.get(&slice.operation) else {
                if slice.operation != *before {
                    wrong.push(format!("slice {place}: {} was never", name(slice.operation)));
                }
                // The slice is as the last check found it, so no operation may have written here.
                if let Some(lost) = self.blind_ops.iter().find(|other| other.op.covers(place)) {
                    wrong.push(format!(
                        "lost: slice {place} has {}, {} was acknowledged",
                        name(slice.operation),
                        name(lost.op.operation)
                    ));
                }
                continue;
            };
            visible.insert(slice.operation);
            if !shows.op.slices(self.file).any(|written| written == *slice) {
                wrong.push(format!("slice {place}: {} is not like this", name(slice.operation)));
            }
            // All other acknowledged operations that cover the slice come before.
            for other in &self.blind_ops {
                let (one, two) = (shows.op.operation, other.op.operation);
                let same_writer = one >> 56 == two >> 56;
                let comes_later =
                    (same_writer && two > one) || other.began_after >= shows.acknowledged;
                if one != two && comes_later && other.op.covers(place) {
                    wrong.push(format!(
                        "lost: slice {place} has {}, and {} began after that had returned",
                        name(one),
                        name(two)
                    ));
                }
            }
        }
        // Among the operations that show: an operation comes before the one that shows at a slice
        // of it.
        let mut after: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        for operation in &visible {
            let later = known[operation].op.slices(self.file).filter_map(|slice| {
                let shows = shown[(slice.place - BLIND_AREA) as usize];
                (shows != *operation).then_some((slice.place, shows))
            });
            for (place, shows) in later {
                if !visible.contains(&shows) {
                    // The operation is older than the last check, so a part of it is missing.
                    wrong.push(format!("torn: slice {place} lacks {}", name(*operation)));
                } else {
                    after.entry(*operation).or_default().insert(shows);
                }
            }
        }
        // Remove operations that come before no other, until none is left.
        let mut left = visible;
        loop {
            let last = left.iter().copied().find(|operation| {
                after.get(operation).is_none_or(|later| later.is_disjoint(&left))
            });
            match last {
                Some(operation) => left.remove(&operation),
                None => break,
            };
        }
        if !left.is_empty() {
            let names: Vec<String> = left.into_iter().map(name).collect();
            wrong.push(format!("torn: each comes before another one: {}", names.join(", ")));
        }
        shown
    }

    fn check_length(&self, bytes: &[u8], wrong: &mut Vec<String>) -> u64 {
        // The file has grown once, has grown and was written to, or has not grown.
        let state = |n: u64| -> (u64, Option<Op>) {
            match (n, work::resize(self.seed, n)) {
                (0, _) => (BASE_LEN, None),
                (_, Resize::To(len)) => (len, None),
                (_, Resize::Write(op)) => match work::resize(self.seed, n - 1) {
                    Resize::To(len) => (len, Some(op)),
                    Resize::Write(_) => unreachable!("a growth comes before"),
                },
            }
        };
        let tail = &bytes[BASE_LEN as usize..];
        let is = |n: u64| {
            let (len, op) = state(n);
            if bytes.len() as u64 != len {
                return false;
            }
            let mut zero_to = tail.len();
            let mut rest = tail.len();
            for (at, bytes) in op.iter().flat_map(|op| op.bytes(self.file)) {
                let at = (at - BASE_LEN) as usize;
                zero_to = at;
                rest = at + bytes.len();
                if tail[at..rest] != bytes {
                    return false;
                }
            }
            tail[..zero_to].iter().chain(&tail[rest..]).all(|b| *b == 0)
        };
        for n in [self.resized, self.resized + 1] {
            if is(n) {
                return n;
            }
        }
        let set = tail.iter().filter(|b| **b != 0).count();
        wrong.push(format!(
            "length {} with {set} bytes past the base that are not zero; the resizer's operation {} \
             ({:?}) was acknowledged, and {:?} is next",
            bytes.len(),
            self.resized,
            state(self.resized),
            state(self.resized + 1),
        ));
        self.resized
    }

    /// Returns the ticket in the first slice of a ticketed operation.
    pub fn ticket_of(&self, first: &[u8]) -> Result<u64, String> {
        let slice = Slice::decode(first, self.file, TICKETED)?;
        let is_first = slice.operation == slices::operation(FIRST, 0);
        Ok(if is_first { 0 } else { slice.operation - operation(TICKETS, 0) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::work::BASE;
    use super::*;

    fn put(bytes: &mut [u8], op: &Op) {
        for (at, new) in op.bytes(1) {
            bytes[at as usize..at as usize + new.len()].copy_from_slice(&new);
        }
    }

    /// Builds a ledger and a file after a number of operations, all acknowledged.
    fn file(ops: u64) -> (Ledger, Vec<u8>) {
        let mut ledger = Ledger::new(1, 9);
        let mut bytes = vec![0; BASE_LEN as usize];
        assert!(!ledger.check(&bytes).expect("as it is made").written);
        put(&mut bytes, &work::first());
        assert!(ledger.check(&bytes).expect("written").written);
        ledger.acknowledge(0, FIRST, 0);
        for n in 1..=ops {
            for writer in 0..WRITERS {
                put(&mut bytes, &work::own(9, writer, n));
                ledger.acknowledge(writer, writer, n);
                put(&mut bytes, &work::blind(9, writer, n));
                ledger.acknowledge(writer, BLIND + writer, n);
            }
            put(&mut bytes, &work::ticketed(9, n));
            ledger.acknowledge(0, TICKETS, n);
        }
        (ledger, bytes)
    }

    fn assert_wrong(ledger: &Ledger, bytes: &[u8], what: &str) {
        let wrong = ledger.check(bytes).expect_err(what);
        assert!(wrong.iter().any(|w| w.contains(what)), "{what}: {wrong:?}");
    }

    #[test]
    fn what_was_acknowledged_or_is_under_way_is_as_it_must_be() {
        let (ledger, mut bytes) = file(60);
        assert_eq!(ledger.check(&bytes).expect("right").own, [60; WRITERS]);
        put(&mut bytes, &work::own(9, 1, 61));
        put(&mut bytes, &work::ticketed(9, 61));
        put(&mut bytes, &work::ticketed(9, 62));
        put(&mut bytes, &work::blind(9, 2, 61));
        let found = ledger.check(&bytes).expect("right");
        assert_eq!((found.own, found.ticket), ([60, 61, 60], 62));
        let mut next = ledger.clone();
        next.adopt(&found);
        assert_eq!(next.check(&bytes).expect("right"), found);
    }

    #[test]
    fn what_was_lost_is_seen() {
        let (mut ledger, bytes) = file(60);
        ledger.acknowledge(1, 1, 61);
        assert_wrong(&ledger, &bytes, "lost");
        let (mut ledger, bytes) = file(60);
        ledger.acknowledge(0, TICKETS, 61);
        assert_wrong(&ledger, &bytes, "lost");
        let (mut ledger, bytes) = file(60);
        ledger.acknowledge(2, BLIND + 2, 61);
        assert_wrong(&ledger, &bytes, "lost");
        let (mut ledger, bytes) = file(60);
        // After 2 the next operation is the shrink, which may be in progress.
        ledger.acknowledge(RESIZER, RESIZER, 1);
        assert_wrong(&ledger, &bytes, "length");
    }

    #[test]
    fn one_slice_of_an_older_operation_is_seen() {
        let older = file(59).1;
        let (ledger, bytes) = file(60);
        let mut seen = 0;
        for (n, (old, new)) in older.chunks(SLICE).zip(bytes.chunks(SLICE)).enumerate() {
            if old != new {
                seen += 1;
                // Only some of them, because debug builds are slow.
                if seen % 8 == 1 {
                    let mut image = bytes.clone();
                    image[n * SLICE..][..SLICE].copy_from_slice(old);
                    assert!(ledger.check(&image).is_err(), "slice {n}");
                }
            }
        }
        assert!(seen > 10);
    }

    #[test]
    fn a_half_of_what_is_under_way_is_seen() {
        let (ledger, bytes) = file(60);
        let next = (61..200).map(|n| work::blind(9, 0, n)).find(|op| op.ranges[0].1 > 1);
        // The next operations with at least two slices, for each writer with slices of its own.
        for op in [work::own(9, 0, 61), work::ticketed(9, 61), work::blind(9, 0, 61)]
            .into_iter()
            .chain(next)
            .filter(|op| op.slices(1).count() > 1)
        {
            let half = op.slices(1).count() / 2;
            let mut image = bytes.clone();
            for slice in op.slices(1).take(half) {
                image[slice.place as usize * SLICE..][..SLICE].copy_from_slice(&slice.encode());
            }
            assert!(ledger.check(&image).is_err(), "{op:?}");
        }
    }

    #[test]
    fn blind_operations_in_an_order_that_cannot_have_been_are_seen() {
        let (ledger, bytes) = file(2);
        // Two operations in progress that overlap in two slices, with each of them visible at one
        // slice.
        let mut found = 0;
        for skip in 0..200 {
            let mut ledger = ledger.clone();
            ledger.blind_next = [3 + skip, 3 + skip, 3 + skip];
            let [a, b] = [0, 1].map(|writer| work::blind(9, writer, 3 + skip));
            let both: Vec<u32> =
                a.slices(1).map(|s| s.place).filter(|place| b.covers(*place)).collect();
            if both.len() < 2 {
                continue;
            }
            let mut image = bytes.clone();
            put(&mut image, &a);
            put(&mut image, &b);
            ledger.check(&image).expect("one after the other");
            let at = both[0] as usize * SLICE;
            let mut other = bytes.clone();
            put(&mut other, &a);
            image[at..at + SLICE].copy_from_slice(&other[at..at + SLICE]);
            assert_wrong(&ledger, &image, "torn");
            found += 1;
        }
        assert!(found > 1);
    }

    #[test]
    fn lengths_and_what_lies_past_the_base_are_compared() {
        let (mut ledger, bytes) = file(1);
        let Resize::To(len) = work::resize(9, 1) else { panic!("a growth") };
        let Resize::Write(op) = work::resize(9, 2) else { panic!("a write") };
        let mut grown = bytes.clone();
        grown.resize(len as usize, 0);
        assert_eq!(ledger.check(&grown).expect("grown").resized, 1);
        grown[BASE_LEN as usize] = 1;
        assert_wrong(&ledger, &grown, "not zero");
        grown[BASE_LEN as usize] = 0;
        ledger.acknowledge(3, RESIZER, 1);
        put(&mut grown, &op);
        assert_eq!(ledger.check(&grown).expect("written").resized, 2);
        assert_wrong(&ledger, &bytes, "length");
        assert_eq!(BASE_LEN % 64, 0);
        assert_ne!(u64::from(BASE) % 64, 0);
    }
}
