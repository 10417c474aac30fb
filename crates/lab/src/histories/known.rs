//! Known histories that test the checker: some that it must reject, and some that it must accept.
//!
//! Each bad history shows what callers would see from a bug of this crate. Each good one looks
//! wrong at first sight. May import `history`.

use super::history::History;

/// Returns histories that no order explains.
pub fn bad() -> Vec<(&'static str, History)> {
    [
        ("a stale read", "A 1-2 w x=1\nB 3-4 r x=0"),
        ("a read torn over two cells", "A 1-4 w x=1 y=1\nB 2-3 r x=1 y=0"),
        ("a read torn inside a cell", "A 1-4 w x=1\nB 2-3 r x=torn"),
        ("a lost update", "A 1-5 r x=0 w x=1\nB 2-6 r x=0 w x=2"),
        ("write skew", "A 1-5 r x=0 y=0 w x=1\nB 2-6 r x=0 y=0 w y=1"),
        ("a read of the future", "A 1-2 r x=1\nB 3-4 w x=1"),
        ("a read of a value that no operation wrote", "A 1-2 w x=1\nB 3-4 r x=7"),
        ("a second reader that goes back", "C 1-10 w x=1\nA 2-3 r x=1\nB 4-5 r x=0"),
        ("one reader that goes back", "C 1-10 w x=1\nA 2-3 r x=1\nA 4-5 r x=0"),
        (
            "half of a transaction seen, then the other half missed",
            "A 1-6 r z=0 w x=1 y=1\nB 2-3 r x=1\nC 4-5 r y=0",
        ),
        ("a dirty read of what was rolled back", "A 1-4 r y=0 # x=1 not committed\nB 2-3 r x=1"),
        (
            "a transaction that was rolled back saw two states",
            "A 2-5 w x=1 y=1\nB 1-8 r x=0 y=1 # rolled back",
        ),
        (
            "two that write and then look see neither",
            "A 1-4 w x=1\nB 2-3 w y=1\nA 5-7 r y=0\nB 6-8 r x=0",
        ),
        (
            "two readers see two writes in two orders",
            "A 1-20 w x=1\nB 2-19 w y=1\nC 3-4 r x=1\nD 5-6 r y=1\nC 7-8 r y=0\nD 9-10 r x=0",
        ),
        (
            "commits seen in an order that is not theirs",
            "A 1-10 r x=0 w y=1\nB 2-3 w x=1\nC 4-5 r x=1 y=0",
        ),
        (
            "a neighbour in the slice written over with what was there before",
            "A 1-6 w x=1\nB 2-5 w y=1\nC 7-8 r x=0 y=1",
        ),
        ("a thread that does not see its own write", "A 1-2 w x=1\nA 3-4 r x=0"),
        ("an old value comes back", "A 1-2 w x=1\nA 3-4 w x=2\nB 5-6 r x=2\nB 7-8 r x=1"),
        (
            "a view that shows what was written after it was taken",
            "A 1-2 r x=0 y=2 # view\nB 3-4 w x=1\nB 5-6 w y=2",
        ),
        ("half of an operation that never returned", "A 1-? w x=1 y=1\nB 2-3 r x=1 y=0"),
        (
            "an operation that never returned, seen and then gone",
            "A 1-? w x=1\nB 2-3 r x=1\nB 4-5 r x=0",
        ),
        (
            "an acknowledged write lost to one that never returned",
            "A 1-? w x=1\nB 2-3 r x=1\nC 4-5 w x=2\nB 6-7 r x=1",
        ),
        (
            "a compare-and-exchange that succeeded twice",
            "A 1-4 r x=0 w x=1\nB 2-3 r x=0 w x=2\nC 5-6 r x=2",
        ),
        (
            "two reads of one transaction from two states",
            "A 1-2 w x=1\nA 3-4 w y=1\nB 5-10 r x=1 y=0 w z=1\nC 6-7 r z=0",
        ),
    ]
    .map(|(name, text)| (name, History::parse(text)))
    .into()
}

/// Returns histories that some order explains.
pub fn good() -> Vec<(&'static str, History)> {
    [
        (
            "a write under way is seen by the later reader and not by the earlier one",
            "A 1-10 w x=1\nB 2-3 r x=0\nC 4-5 r x=1",
        ),
        ("writes happen in the other order than they were called", {
            "A 1-10 w x=1\nB 2-9 w x=2\nC 11-12 r x=1"
        }),
        ("and in the order in which they were called", {
            "A 1-10 w x=1\nB 2-9 w x=2\nC 11-12 r x=2"
        }),
        (
            "updates that were called in the other order",
            "A 1-10 r x=1 w x=2\nB 2-9 r x=0 w x=1\nC 11-12 r x=2",
        ),
        (
            "a read that only explains itself by a write that returns much later",
            "A 1-30 w x=1\nB 2-3 r x=1\nC 4-5 w x=2\nB 6-7 r x=2\nA 31-32 r x=2",
        ),
        (
            "of two wide writes the later one is seen in part of its cells only",
            "A 1-10 w x=1 y=1\nB 2-9 w x=2\nC 3-4 r x=1 y=1\nC 5-6 r x=2 y=1",
        ),
        ("an operation that never returned and never happened", "A 1-? w x=1\nB 2-3 r x=0"),
        (
            "an operation that never returned and happened late",
            "A 1-? w x=1\nB 2-3 r x=0\nB 4-5 w x=2\nB 6-7 r x=1",
        ),
        (
            "a transaction that was rolled back read an old state",
            "A 1-10 r x=0 y=0 # rolled back\nB 2-3 w x=1 y=1\nC 4-5 r x=1 y=1",
        ),
        (
            "the write skew of which one half was rolled back",
            "A 1-5 r x=0 y=0 w x=1\nB 2-6 r x=0 y=0 # conflict\nC 7-8 r x=1 y=0",
        ),
        (
            "two readers on both sides of two writes",
            "A 1-20 w x=1\nB 2-19 w y=1\nC 3-4 r x=1 y=0\nD 5-6 r x=1 y=0\nC 7-8 r x=1 y=1",
        ),
        ("one value written twice", "A 1-2 w x=1\nB 3-4 w x=2\nA 5-6 w x=1\nC 7-8 r x=1"),
        (
            "what looks like two that saw neither, but one read began before",
            "A 1-4 w x=1\nB 2-7 w y=1\nA 5-6 r y=0\nB 8-9 r x=1",
        ),
        (
            "the order of two pending writes that only the last reader decides",
            "A 1-20 w x=1 z=1\nB 2-19 w x=2 y=2\nC 3-4 r y=2\nC 5-6 r z=1\nC 7-8 r x=1",
        ),
    ]
    .map(|(name, text)| (name, History::parse(text)))
    .into()
}

#[cfg(test)]
mod tests {
    use super::super::check::check;
    use super::*;

    #[test]
    fn every_bad_history_is_rejected_and_every_good_one_is_not() {
        for (name, history) in bad() {
            assert!(check(&history).is_err(), "{name} was accepted");
        }
        for (name, history) in good() {
            if let Err(message) = check(&history) {
                panic!("{name} was rejected: {message}");
            }
        }
        assert!(bad().len() >= 12 && good().len() >= 8);
    }
}
