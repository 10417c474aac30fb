//! Tests of the store against a simple model, with power losses at any step.
//!
//! The model keeps a whole copy of the present for each snapshot. A power loss is an image of the
//! file: each line is as it was when it was last made durable, or as it is now.
//!
//! May import the rest of `pair::snapshots`, and the platform.

use super::tests::{Scratch, found, remove, seal};
use super::*;
use crate::platform::Platform;
use crate::units::{LaneIndex, SLICE};
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;

/// The present and the snapshots, as whole copies of the slices that are not zero.
#[derive(Clone, Default)]
struct Model {
    present: HashMap<(u64, usize), u8>,
    snapshots: HashMap<u64, HashMap<(u64, usize), u8>>,
}

const PAGES: u64 = 24;

impl Model {
    /// Checks all live snapshots of a store.
    fn check(&self, store: &Store) {
        assert_eq!(store.damage(), None);
        for entry in store.live() {
            let snapshot = &self.snapshots[&entry.number];
            for page in 0..PAGES {
                let found = found(store, entry.number, page).unwrap();
                for (n, kept) in found.into_iter().enumerate() {
                    let settled = || self.present.get(&(page, n)).copied().unwrap_or(0);
                    let is = kept.unwrap_or_else(settled);
                    let was = snapshot.get(&(page, n)).copied().unwrap_or(0);
                    assert_eq!(is, was, "slice {n} of page {page} of snapshot {}", entry.number);
                }
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    /// Writes slices of some pages in one operation of a lane.
    Write {
        lane: u16,
        page: u64,
        pages: u64,
        mask: u64,
        fill: u8,
    },
    Seal,
    Drop(usize),
    Collect,
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let masks = prop_oneof![
        any::<u64>(),
        Just(!0),
        (0_u32..64).prop_map(|n| 1 << n),
        any::<[u64; 3]>().prop_map(|[a, b, c]| a & b & c)
    ];
    prop_oneof![
        12 => (0_u16..3, 0..PAGES, 1_u64..9, masks, 1_u8..).prop_map(
            |(lane, page, pages, mask, fill)| Op::Write { lane, page, pages, mask, fill }
        ),
        3 => Just(Op::Seal),
        2 => any::<usize>().prop_map(Op::Drop),
        2 => Just(Op::Collect),
        1 => Just(Op::Reopen),
    ]
}

/// A store in use, and what of it is durable.
struct Life {
    scratch: Scratch,
    platform: Platform,
    store: Store,
    session: u64,
    model: Model,
    /// The file when it was last made durable.
    durable: RefCell<Vec<u8>>,
    random: Cell<u64>,
}

impl Life {
    fn new(seed: u64) -> Life {
        let (scratch, platform) = (Scratch::new(), Platform::native());
        let (store, model) = (scratch.create(&platform), Model::default());
        let (durable, random) = (RefCell::new(scratch.bytes()), Cell::new(seed | 1));
        Life { scratch, platform, store, session: 1, model, durable, random }
    }

    fn random(&self) -> u64 {
        let mut x = self.random.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.set(x);
        x
    }

    fn settle(&self) {
        *self.durable.borrow_mut() = self.scratch.bytes();
    }

    /// Checks what a power loss may leave now: each line is the durable one or the present one.
    fn check_power_loss(&self) {
        let (durable, mut image) = (self.durable.borrow(), self.scratch.bytes());
        let lost = [0, 1, 4, 7][self.random() as usize % 4];
        for (line, durable) in image.chunks_mut(SLICE).zip(durable.chunks(SLICE)) {
            if line != durable && self.random() >> 20 & 7 < lost {
                line.copy_from_slice(durable);
            }
        }
        self.model.check(&Scratch::with(&image).open(&self.platform).unwrap());
    }

    fn write(&mut self, lane: u16, pages: std::ops::Range<u64>, mask: u64, fill: u8) {
        let newest = self.store.live().last().map_or(0, |entry| entry.number);
        let missing = |page: u64| match newest {
            0 => Slices::NONE,
            _ => Slices(mask).without(self.store.kept_since(PageIndex(page), newest)),
        };
        let to_keep: Vec<(u64, Slices)> = pages.clone().map(|page| (page, missing(page))).collect();
        let records = to_keep.iter().filter(|(_, slices)| !slices.is_empty()).count();
        let slices = to_keep.iter().map(|(_, slices)| slices.count()).sum();
        if records > 0 {
            let mut appender = self.store.appender(LaneIndex(lane), records, slices).unwrap();
            for (page, slices) in to_keep.into_iter().filter(|(_, slices)| !slices.is_empty()) {
                let slot = |n| self.model.present.get(&(page, n)).copied().unwrap_or(0);
                let bytes: Vec<u8> =
                    crate::bitmap::bits(slices.0).flat_map(|n| [slot(n); SLICE]).collect();
                let page = PageIndex(page);
                appender.keep(
                    Record { epoch: newest, page, mask: slices, sum: SealSum::Unknown },
                    &bytes,
                );
            }
            drop(appender);
            // Before the drain, nothing of the present has changed.
            self.check_power_loss();
            self.settle();
        }
        for page in pages {
            for n in crate::bitmap::bits(mask) {
                self.model.present.insert((page, n), fill);
            }
        }
        self.model.check(&self.store);
    }

    fn run(&mut self, op: Op) {
        match op {
            Op::Write { lane, page, pages, mask, fill } => {
                self.write(lane, page..(page + pages).min(PAGES), mask, fill);
            }
            Op::Seal => {
                let number = seal(&self.store);
                self.model.snapshots.insert(number, self.model.present.clone());
            }
            Op::Drop(which) => {
                let live = self.store.live();
                if !live.is_empty() {
                    remove(&self.store, live[which % live.len()].number);
                }
            }
            Op::Collect => {
                let settle = || {
                    self.check_power_loss();
                    self.settle();
                    Ok(())
                };
                self.store.collect(settle, || {}).unwrap();
                self.model.check(&self.store);
            }
            Op::Reopen => {
                self.session += 1;
                self.store = self.scratch.open(&self.platform).unwrap();
                self.model.check(&self.store);
                self.settle();
                self.store.begin(self.session, 0, 0).unwrap();
            }
        }
        self.check_power_loss();
        self.settle();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn every_snapshot_is_what_it_was(
        seed in any::<u64>(),
        ops in prop::collection::vec(op(), 1..60),
    ) {
        let mut life = Life::new(seed);
        ops.into_iter().for_each(|op| life.run(op));
    }
}
