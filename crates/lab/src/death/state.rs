//! The states of a file that the parts compare: its bytes, its snapshots and its page sums.
//!
//! Owns: what is read of a file to compare it, and how a difference is told.
//!
//! May import: nothing of this folder.

use atomic_mmap::{AtomicMappedFile, Error};
use std::collections::BTreeMap;

/// A state of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct State {
    /// The bytes of the present.
    pub bytes: Vec<u8>,
    /// The bytes of each snapshot, by its name.
    pub sealed: BTreeMap<String, Vec<u8>>,
    /// The file has page sums. A state that was read has them if there is a page to verify.
    pub has_sums: bool,
}

impl State {
    /// Returns the state of a new file: zeros.
    pub fn new(len: u64) -> State {
        State { bytes: vec![0; len as usize], sealed: BTreeMap::new(), has_sums: false }
    }

    /// Makes the present a snapshot of this name.
    pub fn seal(&mut self, name: &str) {
        self.sealed.insert(name.to_owned(), self.bytes.clone());
    }

    /// Reads an open file. Each page is touched by a read first, and verified then.
    pub fn of(file: &AtomicMappedFile) -> Result<State, String> {
        let call = |what: &'static str| move |e: Error| format!("{what}: {e}");
        let mut bytes = vec![0; file.len() as usize];
        file.read_at(&mut bytes, 0).map_err(call("cannot be read"))?;
        let mut sealed = BTreeMap::new();
        for info in file.snapshots() {
            let snapshot = file.open_snapshot(&info.name).map_err(call("no snapshot"))?;
            let mut bytes = vec![0; snapshot.len() as usize];
            snapshot.read_at(&mut bytes, 0).map_err(call("a snapshot cannot be read"))?;
            sealed.insert(info.name, bytes);
        }
        let verified = file.verify(0..file.len()).map_err(call("cannot be verified"))?;
        if !verified.damaged.is_empty() {
            return Err(format!("its sums do not fit its pages: {:?}", verified.damaged));
        }
        Ok(State { bytes, sealed, has_sums: verified.pages > 0 })
    }

    /// Returns `true` if `found`, which was read, is this state. A page of zeros has a sum only if
    /// it was written once: perhaps by an operation that the file has gone back behind.
    pub fn is(&self, found: &State) -> bool {
        let may_lack_sums = self.has_sums && self.bytes.iter().all(|byte| *byte == 0);
        let have_sums = self.has_sums == found.has_sums || may_lack_sums;
        self.bytes == found.bytes && self.sealed == found.sealed && have_sums
    }

    /// Describes how this state, which was read, differs from each of the others.
    pub fn differences(&self, states: &[State]) -> String {
        let all: Vec<String> = states.iter().map(|state| self.difference(state)).collect();
        all.join(", from the other state ")
    }

    fn difference(&self, state: &State) -> String {
        let mut all = differing(&self.bytes, &state.bytes).unwrap_or_default();
        if !self.sealed.keys().eq(state.sealed.keys()) {
            let (found, expected) = (self.sealed.keys(), state.sealed.keys());
            all += &format!(" snapshots {found:?} instead of {expected:?}");
        }
        for (name, bytes) in &self.sealed {
            let what = state.sealed.get(name).and_then(|expected| differing(bytes, expected));
            all.extend(what.map(|what| format!(" in snapshot {name:?} {what}")));
        }
        if self.has_sums != state.has_sums {
            all += &format!(" page sums: {} instead of {}", self.has_sums, state.has_sums);
        }
        all
    }
}

/// Describes the bytes that differ, if there are any.
fn differing(found: &[u8], expected: &[u8]) -> Option<String> {
    if expected.len() != found.len() {
        return Some(format!("{} bytes instead of {}", found.len(), expected.len()));
    }
    let differ = |n: &usize| found[*n] != expected[*n];
    let first = (0..found.len()).find(differ)?;
    let last = (0..found.len()).rfind(differ).unwrap_or(first);
    let count = (first..=last).filter(differ).count();
    Some(format!("{count} bytes of {first}..={last} differ"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_of_a_state_is_compared() {
        let mut state = State::new(5000);
        state.bytes[7] = 1;
        state.has_sums = true;
        state.sealed.insert("a".into(), vec![2; 10]);
        assert!(state.is(&state.clone()));
        for change in [
            |state: &mut State| state.bytes[4000] = 1,
            |state: &mut State| state.bytes.push(0),
            |state: &mut State| state.has_sums = false,
            |state: &mut State| drop(state.sealed.insert("b".into(), Vec::new())),
            |state: &mut State| drop(state.sealed.remove("a")),
            |state: &mut State| state.sealed.get_mut("a").expect("sealed")[9] = 3,
        ] {
            let mut other = state.clone();
            change(&mut other);
            assert!(!state.is(&other));
            assert_ne!(other.differences(&[state.clone()]), "");
        }
    }
}
