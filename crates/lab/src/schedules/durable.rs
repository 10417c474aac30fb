//! Could it have happened so? Histories of operations on a few words, and a crash at their end.
//!
//! Owns: [`History`] and the question whether one order of its operations explains everything that
//! they read, in agreement with real time: who had returned before another began comes first. An
//! operation that had not returned when the machine stopped may have happened or not. (Durable
//! linearizability: what is read after the crash is one more operation, after all others.) Behind a page
//! cache a loss of power takes back the end of that order, as far as the last sync that had returned
//! (buffered durable linearizability).
//!
//! The search is Wing and Gong's with the visited states remembered; histories here have a dozen
//! operations.

use std::collections::HashSet;

/// The values of all words that are looked at.
pub type State = Vec<u64>;

/// What one operation did.
#[derive(Clone, Debug, Default)]
pub struct Operation {
    /// What it was, for messages.
    pub name: String,
    /// When it began.
    pub began: u64,
    /// When it had returned; `None`: it had not.
    pub returned: Option<u64>,
    /// What it read: (word, value).
    pub reads: Vec<(usize, u64)>,
    /// What it wrote.
    pub writes: Vec<(usize, u64)>,
    /// Once it has returned, what had returned before it began outlives a loss of power.
    pub is_sync: bool,
}

/// Operations on words that begin at `initial`.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The words at the beginning.
    pub initial: State,
    /// The operations, in no order. At most 64.
    pub operations: Vec<Operation>,
}

impl History {
    /// The history up to a moment: what had not returned then is in flight, what had not begun is
    /// left out.
    pub fn until(&self, moment: u64) -> History {
        let operations = self.operations.iter().filter(|op| op.began < moment).map(|op| {
            let had_returned = op.returned.is_some_and(|returned| returned < moment);
            match had_returned {
                true => op.clone(),
                // What it would have read nobody has seen.
                false => Operation { returned: None, reads: Vec::new(), ..op.clone() },
            }
        });
        History { initial: self.initial.clone(), operations: operations.collect() }
    }

    /// Whether some order explains it, with `last` as what the words hold in the end.
    pub fn explains(&self, last: &State) -> bool {
        let had_returned = self.those(|op| op.returned.is_some());
        self.reaches(had_returned, last)
    }

    /// Whether `last` is what the words held at a moment of some order that is not before the last sync
    /// that had returned.
    pub fn explains_a_point(&self, last: &State) -> bool {
        let syncs = self.operations.iter().filter(|op| op.is_sync && op.returned.is_some());
        let synced = syncs.map(|op| op.began).max().unwrap_or(0);
        let must_be_there = self.those(|op| op.returned.is_some_and(|moment| moment < synced));
        self.reaches(must_be_there, last)
    }

    /// A bit for each operation of which `is_one` is true.
    fn those(&self, is_one: impl Fn(&Operation) -> bool) -> u64 {
        assert!(self.operations.len() <= 64, "a bit for each operation");
        let which = self.operations.iter().enumerate().filter(|(_, op)| is_one(op));
        which.fold(0, |bits, (n, _)| bits | 1 << n)
    }

    fn reaches(&self, needed: u64, last: &State) -> bool {
        self.search(0, self.initial.clone(), (needed, last), &mut HashSet::new())
    }

    fn search(
        &self,
        done: u64,
        state: State,
        (needed, last): (u64, &State),
        visited: &mut HashSet<(u64, State)>,
    ) -> bool {
        let rest = || (0..self.operations.len()).filter(move |n| done >> n & 1 == 0);
        if needed & !done == 0 && state == *last {
            return true;
        }
        if !visited.insert((done, state.clone())) {
            return false;
        }
        // Nothing that began after somebody had returned comes before that one.
        let first_return = rest().filter_map(|n| self.operations[n].returned).min();
        for n in rest() {
            let operation = &self.operations[n];
            if first_return.is_some_and(|returned| operation.began > returned)
                || operation.reads.iter().any(|(word, value)| state[*word] != *value)
            {
                continue;
            }
            let mut next = state.clone();
            operation.writes.iter().for_each(|(word, value)| next[*word] = *value);
            if self.search(done | 1 << n, next, (needed, last), visited) {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(began: u64, returned: u64, reads: &[(usize, u64)], writes: &[(usize, u64)]) -> Operation {
        Operation {
            name: String::new(),
            began,
            returned: (returned > 0).then_some(returned),
            reads: reads.to_vec(),
            writes: writes.to_vec(),
            is_sync: false,
        }
    }

    fn explains(operations: &[Operation], last: [u64; 2]) -> bool {
        History { initial: vec![0, 0], operations: operations.to_vec() }.explains(&last.to_vec())
    }

    #[test]
    fn what_could_have_happened_is_accepted() {
        // Two writes at the same time, in either order.
        let writes = [op(1, 4, &[], &[(0, 1), (1, 1)]), op(2, 3, &[], &[(0, 2), (1, 2)])];
        assert!(explains(&writes, [1, 1]) && explains(&writes, [2, 2]));
        // A read beside a write sees it or not.
        for seen in [0, 1] {
            assert!(explains(&[op(1, 4, &[], &[(0, 1)]), op(2, 3, &[(0, seen)], &[])], [1, 0]));
        }
        // One that had not returned is there or not.
        let in_flight = [op(1, 0, &[], &[(0, 1), (1, 1)])];
        assert!(explains(&in_flight, [1, 1]) && explains(&in_flight, [0, 0]));
    }

    #[test]
    fn what_could_not_is_rejected() {
        let write = || op(1, 2, &[], &[(0, 1), (1, 1)]);
        // Lost, torn, and torn in flight.
        assert!(!explains(&[write()], [0, 0]));
        assert!(!explains(&[write()], [1, 0]));
        assert!(!explains(&[op(1, 0, &[], &[(0, 1), (1, 1)])], [0, 1]));
        // A stale read, a read of the future, a torn read.
        assert!(!explains(&[write(), op(3, 4, &[(0, 0)], &[])], [1, 1]));
        assert!(!explains(&[op(1, 2, &[(0, 1)], &[]), op(3, 4, &[], &[(0, 1)])], [1, 0]));
        let beside = op(1, 9, &[], &[(0, 1), (1, 1)]);
        assert!(!explains(&[beside.clone(), op(2, 3, &[(0, 1), (1, 0)], &[])], [1, 1]));
        // Two readers see two writes in different orders.
        let two = [beside.clone(), op(1, 9, &[], &[(0, 2), (1, 2)])];
        let first = [op(2, 3, &[(0, 1)], &[]), op(4, 5, &[(0, 2)], &[])];
        let other = [op(2, 3, &[(1, 2)], &[]), op(4, 5, &[(1, 1)], &[])];
        let all: Vec<_> = two.iter().chain(&first).chain(&other).cloned().collect();
        assert!(!explains(&all, [1, 1]) && !explains(&all, [2, 2]));
        // A lost update, write skew, and two that write and then look, and both see nothing.
        let update = |n| op(1, 9, &[(0, 0)], &[(0, n)]);
        assert!(!explains(&[update(1), update(2)], [1, 0]));
        let skew = [op(1, 9, &[(0, 0)], &[(1, 1)]), op(1, 9, &[(1, 0)], &[(0, 1)])];
        assert!(!explains(&skew, [1, 1]));
        let store_buffer = [
            op(1, 2, &[], &[(0, 1)]),
            op(3, 9, &[(1, 0)], &[]),
            op(1, 2, &[], &[(1, 1)]),
            op(3, 9, &[(0, 0)], &[]),
        ];
        assert!(!explains(&store_buffer, [1, 1]));
        // Once it was read it stays.
        assert!(!explains(&[op(1, 0, &[], &[(0, 1)]), op(2, 3, &[(0, 1)], &[])], [0, 0]));
    }

    #[test]
    fn a_history_is_cut_at_the_crash() {
        let all = History {
            initial: vec![0, 0],
            operations: vec![
                op(1, 2, &[], &[(0, 1)]),
                op(3, 6, &[], &[(1, 1)]),
                op(7, 8, &[], &[(0, 2)]),
            ],
        };
        let cut = all.until(5);
        assert_eq!(cut.operations.len(), 2);
        assert!(cut.explains(&vec![1, 0]) && cut.explains(&vec![1, 1]));
        assert!(!cut.explains(&vec![2, 1]) && !cut.explains(&vec![0, 0]));
    }

    #[test]
    fn a_loss_of_power_takes_back_an_end_of_the_order_but_nothing_that_was_synced() {
        let sync = |began, returned| Operation { is_sync: true, ..op(began, returned, &[], &[]) };
        let explains = |operations: &[Operation], last: [u64; 2]| {
            History { initial: vec![0, 0], operations: operations.to_vec() }
                .explains_a_point(&last.to_vec())
        };
        let writes = |sync| [op(1, 2, &[], &[(0, 1)]), sync, op(7, 8, &[], &[(1, 1)])];
        // What came after the sync is there or not; what came before it is.
        assert!(explains(&writes(sync(3, 6)), [1, 0]) && explains(&writes(sync(3, 6)), [1, 1]));
        assert!(!explains(&writes(sync(3, 6)), [0, 0]) && !explains(&writes(sync(3, 6)), [0, 1]));
        // A sync that had not returned promises nothing, but the order stays.
        assert!(explains(&writes(sync(3, 0)), [0, 0]) && explains(&writes(sync(3, 0)), [1, 0]));
        assert!(!explains(&writes(sync(3, 0)), [0, 1]));
        // Beside the sync: either. In part: never.
        let beside = [op(1, 9, &[], &[(0, 1), (1, 1)]), sync(2, 5)];
        assert!(explains(&beside, [0, 0]) && explains(&beside, [1, 1]));
        assert!(!explains(&beside, [1, 0]));
        // Nothing without what it has read.
        let read = [op(1, 9, &[], &[(0, 1)]), op(2, 3, &[(0, 1)], &[(1, 1)]), sync(4, 5)];
        assert!(explains(&read, [1, 1]) && !explains(&read, [0, 1]));
    }
}
