//! Faults: traces with steps left out, which the checker must notice.

use super::media::{Class, class_of};
use super::ops::{Op, PAGE, Place};
use atomic_mmap::testing::FileId;
use atomic_mmap::testing::recorder::{Event, What};
use std::collections::{BTreeSet, HashMap};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The drain between data and the word that makes it valid.
    NoDrainAfterData,
    /// The drain after that word.
    NoDrainAfterWord,
    /// The drain that commits a logged flip.
    NoDrainAfterEntry,
    /// The drain after an undo record, before the words.
    NoDrainAfterUndo,
    /// The drain after the end of an undo record.
    NoDrainAfterEnd,
    /// The drain before records are invalidated.
    NoSettling,
    /// The flush of the words that flip records cover, at the end of a batch.
    NoFlushOfWords,
    /// The stores that invalidate records.
    NoClear,
    /// Invalidated records keep no sequence number.
    ZeroClear,
    /// The flush of invalidated records.
    NoFlushAfterClear,
    /// The drain after the length word.
    NoDrainAfterLength,
    /// The sync of superblocks.
    NoSyncOfSuperblock,
}

pub const FAULTS: [Fault; 12] = [
    Fault::NoDrainAfterData,
    Fault::NoDrainAfterWord,
    Fault::NoDrainAfterEntry,
    Fault::NoDrainAfterUndo,
    Fault::NoDrainAfterEnd,
    Fault::NoSettling,
    Fault::NoFlushOfWords,
    Fault::NoClear,
    Fault::ZeroClear,
    Fault::NoFlushAfterClear,
    Fault::NoDrainAfterLength,
    Fault::NoSyncOfSuperblock,
];

/// Operations with the threads that run them.
type Operations = Vec<(usize, Op)>;

/// Sequences that test a rule without a step that a trace could leave out.
pub const SCRIPTS: [fn(&Place) -> Operations; 3] = [
    // An active record names a slot that redo data goes to.
    |place| {
        let (at, page) = (place.hot * PAGE + place.slice * 64, place.hot * PAGE);
        let flip = Op::Tx { parts: vec![(at, 9), (at + 64, 9)], reads: false };
        vec![
            (0, Op::View(page, page + PAGE)),
            (0, flip.clone()),
            (0, Op::Write(at, 64)),
            (0, flip.clone()),
            (0, Op::Write(at, 64)),
            (1, flip),
        ]
    },
    // An active record names a slot that is punched, and that another thread uses again.
    |place| {
        let at = place.hot * PAGE + place.slice * 64;
        let flip = Op::Tx { parts: vec![(at, 9), (at + 30, 9)], reads: false };
        let deploy = Op::Deploy(place.origin, place.first_len);
        vec![(1, flip.clone()), (1, Op::Write(at, 64)), (1, deploy), (2, flip)]
    },
    // No other operation between a truncation and a growth.
    |place| {
        let (at, page) = (place.hot * PAGE + place.slice * 64, place.hot * PAGE);
        let flip = Op::Tx { parts: vec![(at, 9), (at + 30, 9)], reads: false };
        vec![
            (1, flip),
            (1, Op::Write(at, 64)),
            (1, Op::SetLen((page + 1).max(place.origin + 1))),
            (1, Op::SetLen(place.first_len)),
            (2, Op::Write(at, 64)),
            (1, Op::Write(place.other_page(), 64)),
        ]
    },
];

impl Fault {
    /// Returns operations that need the step, if random runs seldom make them.
    pub fn script(self, place: &Place) -> Vec<(usize, Op)> {
        let at = place.hot * PAGE + place.slice * 64;
        let flip = Op::Tx { parts: vec![(at + 64, 9), (at + 104, 9)], reads: false };
        match self {
            // One lane has two records over one slice; then the newer one is invalidated because of
            // another slice: docs/model/README.md. The main thread runs these writes, because it
            // has one lane in all sessions.
            Fault::ZeroClear => {
                vec![(0, Op::Write(at, 64)), (0, Op::Write(at, 128)), (2, flip.clone()), (1, flip)]
            }
            // More records than a ring holds.
            Fault::NoFlushOfWords => (0..40)
                .map(|n| (0, Op::Write(place.hot * PAGE + (place.slice + n) % 64 * 64, 64)))
                .collect(),
            Fault::NoDrainAfterLength => {
                vec![(1, Op::SetLen(place.first_len - 100)), (1, Op::SetLen(place.first_len + 100))]
            }
            // A record covers two slices. Another lane moves one of them to the other side and
            // back.
            Fault::NoSettling => {
                vec![(0, Op::Write(at, 128)), (1, Op::Write(at, 64)), (1, Op::Write(at, 128))]
            }
            Fault::NoDrainAfterUndo | Fault::NoDrainAfterEnd => {
                let parts = vec![(at, 9), (place.other_page(), 9)];
                vec![
                    (1, Op::Tx { parts: parts.clone(), reads: false }),
                    (2, Op::Tx { parts, reads: false }),
                ]
            }
            _ => Vec::new(),
        }
    }

    pub fn plant(self, trace: Vec<Event>) -> Vec<Event> {
        let mut since: HashMap<u64, Since> = HashMap::new();
        let clears_next: Vec<bool> = (0..trace.len())
            .map(|n| {
                let mut next = trace[n + 1..].iter().filter(|e| e.thread == trace[n].thread);
                matches!(next.next(), Some(e) if matches!(e.what, What::CompareExchange { .. }))
            })
            .collect();
        let mut kept = Vec::with_capacity(trace.len());
        for (n, mut event) in trace.into_iter().enumerate() {
            let since = since.entry(event.thread).or_default();
            let keep = self.keeps(&mut event, since, clears_next[n]);
            since.note(&event.what);
            if keep {
                kept.push(event);
            }
        }
        kept
    }

    fn keeps(self, event: &mut Event, since: &Since, clears_next: bool) -> bool {
        let stored = |class| since.classes.contains(&class);
        let words = stored(Class::SliceWord) || stored(Class::RegionWord);
        let data = stored(Class::Home) || stored(Class::Reflection);
        let entry = stored(Class::Ring) || stored(Class::Undo);
        match (self, &mut event.what) {
            (Fault::NoDrainAfterData, What::Drain) => !data || words || entry,
            (Fault::NoDrainAfterWord, What::Drain) => !words || entry,
            (Fault::NoDrainAfterEntry, What::Drain) => !stored(Class::Ring) || since.cleared,
            (Fault::NoDrainAfterUndo, What::Drain) => !stored(Class::Undo) || since.ended,
            (Fault::NoDrainAfterEnd, What::Drain) => !since.ended,
            (Fault::NoSettling, What::Drain) => !clears_next,
            (Fault::NoFlushOfWords, What::Flush { file, offset, .. }) => {
                class_of(*file, *offset) != Class::SliceWord
            }
            (Fault::NoClear, What::CompareExchange { .. }) => false,
            (Fault::ZeroClear, What::CompareExchange { new, .. }) => {
                *new = 0;
                true
            }
            (Fault::NoFlushAfterClear, What::Flush { file, offset, .. }) => {
                class_of(*file, *offset) != Class::Ring || !since.cleared
            }
            (Fault::NoDrainAfterLength, What::Drain) => !stored(Class::Lengths),
            (Fault::NoSyncOfSuperblock, What::Sync { file, .. }) => *file != FileId::Reflection,
            _ => true,
        }
    }
}

/// The stores of a thread since its last drain.
#[derive(Default)]
struct Since {
    classes: BTreeSet<Class>,
    cleared: bool,
    ended: bool,
}

impl Since {
    fn note(&mut self, what: &What) {
        match what {
            What::Drain => *self = Since::default(),
            What::Store { file, offset, value, .. } => {
                self.classes.insert(class_of(*file, *offset));
                self.ended |= class_of(*file, *offset) == Class::Undo && *value == 0;
            }
            What::Copy { file, offset, .. } => {
                self.classes.insert(class_of(*file, *offset));
            }
            What::CompareExchange { .. } => self.cleared = true,
            _ => {}
        }
    }
}
