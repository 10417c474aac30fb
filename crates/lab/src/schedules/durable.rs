//! Durable linearizability of histories: operations on a few words, with a crash at their end.
//!
//! Owns: [`History`] and the search for an order of its operations that explains every read. The
//! order agrees with real time: an operation that had returned before another one began comes
//! first. An operation that had not returned when the machine stopped may have happened or not. The
//! state after the crash is one more read, after all other operations (durable linearizability).
//! Behind a page cache, a power loss may undo the end of that order, back to the last sync that had
//! returned (buffered durable linearizability).
//!
//! The search is that of Wing and Gong and remembers visited states. Histories here have a dozen
//! operations.

use std::collections::HashSet;

/// The values of all words under test.
pub type State = Vec<u64>;

/// One operation.
#[derive(Clone, Debug, Default)]
pub struct Operation {
    /// Name in messages.
    pub name: String,
    /// The moment of its beginning.
    pub began: u64,
    /// The moment of its return, or `None` if it had not returned.
    pub returned: Option<u64>,
    /// The reads: word and value.
    pub reads: Vec<(usize, u64)>,
    /// The writes: word and value.
    pub writes: Vec<(usize, u64)>,
    /// A sync. Once it has returned, a power loss keeps all operations that had returned before it
    /// began.
    pub is_sync: bool,
}

/// Operations on words that begin at `initial`.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The initial values of the words.
    pub initial: State,
    /// The operations, in any order. At most 64.
    pub operations: Vec<Operation>,
}

impl History {
    /// Returns the history up to a moment. Operations that had not returned are in progress, and
    /// operations that had not begun are left out.
    pub fn until(&self, moment: u64) -> History {
        let operations = self.operations.iter().filter(|op| op.began < moment).map(|op| {
            let had_returned = op.returned.is_some_and(|returned| returned < moment);
            match had_returned {
                true => op.clone(),
                // The operation had not returned its reads.
                false => Operation { returned: None, reads: Vec::new(), ..op.clone() },
            }
        });
        History { initial: self.initial.clone(), operations: operations.collect() }
    }

    /// Returns `true` if some order explains the history and ends with `last` as the values of the
    /// words.
    pub fn explains(&self, last: &State) -> bool {
        let had_returned = self.those(|op| op.returned.is_some());
        self.reaches(had_returned, last)
    }

    /// Returns `true` if some order had the values `last` at a moment that is not before the last
    /// sync that had returned.
    pub fn explains_a_point(&self, last: &State) -> bool {
        let syncs = self.operations.iter().filter(|op| op.is_sync && op.returned.is_some());
        let synced = syncs.map(|op| op.began).max().unwrap_or(0);
        let must_be_there = self.those(|op| op.returned.is_some_and(|moment| moment < synced));
        self.reaches(must_be_there, last)
    }

    /// Returns a mask with a bit for each operation for which `is_one` is true.
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
        // An operation that began after another one had returned cannot come before it.
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
        // Two concurrent writes, in either order.
        let writes = [op(1, 4, &[], &[(0, 1), (1, 1)]), op(2, 3, &[], &[(0, 2), (1, 2)])];
        assert!(explains(&writes, [1, 1]) && explains(&writes, [2, 2]));
        // A read concurrent with a write sees it or not.
        for seen in [0, 1] {
            assert!(explains(&[op(1, 4, &[], &[(0, 1)]), op(2, 3, &[(0, seen)], &[])], [1, 0]));
        }
        // An operation that had not returned is present or absent.
        let in_flight = [op(1, 0, &[], &[(0, 1), (1, 1)])];
        assert!(explains(&in_flight, [1, 1]) && explains(&in_flight, [0, 0]));
    }

    #[test]
    fn what_could_not_is_rejected() {
        let write = || op(1, 2, &[], &[(0, 1), (1, 1)]);
        // Lost, torn, and torn in progress.
        assert!(!explains(&[write()], [0, 0]));
        assert!(!explains(&[write()], [1, 0]));
        assert!(!explains(&[op(1, 0, &[], &[(0, 1), (1, 1)])], [0, 1]));
        // A stale read, a read of the future, and a torn read.
        assert!(!explains(&[write(), op(3, 4, &[(0, 0)], &[])], [1, 1]));
        assert!(!explains(&[op(1, 2, &[(0, 1)], &[]), op(3, 4, &[], &[(0, 1)])], [1, 0]));
        let beside = op(1, 9, &[], &[(0, 1), (1, 1)]);
        assert!(!explains(&[beside.clone(), op(2, 3, &[(0, 1), (1, 0)], &[])], [1, 1]));
        // Two readers that see two writes in different orders.
        let two = [beside.clone(), op(1, 9, &[], &[(0, 2), (1, 2)])];
        let first = [op(2, 3, &[(0, 1)], &[]), op(4, 5, &[(0, 2)], &[])];
        let other = [op(2, 3, &[(1, 2)], &[]), op(4, 5, &[(1, 1)], &[])];
        let all: Vec<_> = two.iter().chain(&first).chain(&other).cloned().collect();
        assert!(!explains(&all, [1, 1]) && !explains(&all, [2, 2]));
        // A lost update, write skew, and two threads that write and then read, and both read old
        // values.
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
        // Once a value was read, it stays.
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
        // Writes after the sync are present or absent. Writes before it are present.
        assert!(explains(&writes(sync(3, 6)), [1, 0]) && explains(&writes(sync(3, 6)), [1, 1]));
        assert!(!explains(&writes(sync(3, 6)), [0, 0]) && !explains(&writes(sync(3, 6)), [0, 1]));
        // A sync that had not returned promises nothing, but the order holds.
        assert!(explains(&writes(sync(3, 0)), [0, 0]) && explains(&writes(sync(3, 0)), [1, 0]));
        assert!(!explains(&writes(sync(3, 0)), [0, 1]));
        // A write concurrent with the sync is present or absent, but never in part.
        let beside = [op(1, 9, &[], &[(0, 1), (1, 1)]), sync(2, 5)];
        assert!(explains(&beside, [0, 0]) && explains(&beside, [1, 1]));
        assert!(!explains(&beside, [1, 0]));
        // No write without the writes that it has read.
        let read = [op(1, 9, &[], &[(0, 1)]), op(2, 3, &[(0, 1)], &[(1, 1)]), sync(4, 5)];
        assert!(explains(&read, [1, 1]) && !explains(&read, [0, 1]));
    }
}
