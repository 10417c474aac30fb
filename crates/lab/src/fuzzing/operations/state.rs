//! The states of the file that the target compares: its bytes, and those of its snapshots.
//!
//! May import nothing of the target.

use atomic_mmap::AtomicMappedFile;
use std::collections::BTreeMap;

/// A state of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct State {
    /// The bytes of the present.
    pub bytes: Vec<u8>,
    /// The bytes of each snapshot, by its name. Names ascend as snapshots are taken.
    pub sealed: BTreeMap<String, Vec<u8>>,
}

impl State {
    /// Returns a state without snapshots.
    pub fn new(bytes: Vec<u8>) -> State {
        State { bytes, sealed: BTreeMap::new() }
    }

    /// Reads the file and its snapshots, and verifies all pages.
    #[track_caller]
    pub fn of(file: &AtomicMappedFile) -> State {
        let mut bytes = vec![0; file.len() as usize];
        file.read_at(&mut bytes, 0).expect("to read");
        let read = |name: String| {
            let snapshot = file.open_snapshot(&name).expect("a snapshot");
            let mut bytes = vec![0; snapshot.len() as usize];
            snapshot.read_at(&mut bytes, 0).expect("to read a snapshot");
            (name, bytes)
        };
        let sealed = file.snapshots().into_iter().map(|info| read(info.name)).collect();
        let verified = file.verify(0..file.len()).expect("to verify");
        assert_eq!(verified.damaged, [], "sums that do not fit");
        State { bytes, sealed }
    }

    /// Makes the present a snapshot of this name.
    pub fn seal(&mut self, name: String) {
        self.sealed.insert(name, self.bytes.clone());
    }

    /// Goes back to a snapshot. The present becomes one of the name `undo` before.
    pub fn roll_back(&mut self, name: &str, undo: Option<String>) {
        let bytes = self.sealed[name].clone();
        undo.into_iter().for_each(|undo| self.seal(undo));
        self.bytes = bytes;
    }

    /// Returns one of the states that is most like this one.
    pub fn nearest<'a>(&self, states: &'a [State]) -> &'a State {
        let likeness = |state: &&State| {
            let has_names = state.sealed.keys().eq(self.sealed.keys());
            (has_names, state.bytes.len() == self.bytes.len(), state.bytes == self.bytes)
        };
        states.iter().max_by_key(likeness).expect("a state")
    }

    /// Panics unless this state equals `wanted`.
    #[track_caller]
    pub fn assert_is(&self, wanted: &State, when: &str) {
        assert_same(&self.bytes, &wanted.bytes, when);
        let names = |state: &State| state.sealed.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(self), names(wanted), "{when}: the snapshots");
        for (name, bytes) in &self.sealed {
            assert_same(bytes, &wanted.sealed[name], &format!("{when}: snapshot {name}"));
        }
    }
}

/// Panics unless the bytes are equal.
#[track_caller]
pub fn assert_same(found: &[u8], wanted: &[u8], when: &str) {
    if found == wanted {
        return;
    }
    assert_eq!(found.len(), wanted.len(), "{when}: the length");
    if let Some(at) = (0..found.len()).find(|n| found[*n] != wanted[*n]) {
        panic!("{when}: {} instead of {} at byte {at}", found[at], wanted[at]);
    }
}
