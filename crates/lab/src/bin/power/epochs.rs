//! What may the disk hold when the power goes? Epochs, from the events of a recording.
//!
//! A flush vouches for every write that had returned before it came, once it has returned itself. An epoch
//! lasts from the return of one flush to the return of the next. The power goes at its very end, just before
//! the next flush returns: then each write of the epoch, in part or as a whole, may or may not be there, and
//! everything that was acknowledged meanwhile must be. An earlier moment leaves images that are among those,
//! with less to be held.

use crate::disk::{Event, Write};

/// One epoch.
pub struct Epoch {
    /// Writes that the flush at its beginning vouches for, and no earlier one. Indices of events.
    pub durable: Vec<usize>,
    /// Writes that may or may not be there.
    pub open: Vec<usize>,
    /// Marks before its end and after that of the epoch before.
    pub marks: Vec<usize>,
}

/// Cuts a recording up.
pub fn epochs(events: &[Event]) -> Vec<Epoch> {
    let mut all = Vec::new();
    let mut now = Epoch { durable: Vec::new(), open: Vec::new(), marks: Vec::new() };
    for (moment, event) in events.iter().enumerate() {
        match event {
            Event::Write { .. } => now.open.push(moment),
            Event::Mark(_) => now.marks.push(moment),
            Event::Tick => {}
            Event::Flush { begun } => {
                let is_vouched_for = |n: &usize| match &events[*n] {
                    Event::Write { done, .. } => done < begun,
                    _ => false,
                };
                let (durable, open) = now.open.iter().partition(|n| is_vouched_for(n));
                let next = Epoch { durable, open, marks: Vec::new() };
                all.push(std::mem::replace(&mut now, next));
            }
        }
    }
    all.push(now);
    all
}

/// The write of this moment.
pub fn write_at(events: &[Event], moment: usize) -> &Write {
    match &events[moment] {
        Event::Write { write, .. } => write,
        _ => unreachable!("epochs are made of writes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(done: usize) -> Event {
        Event::Write { write: Write { at: 0, bytes: vec![1] }, done }
    }

    #[test]
    fn a_flush_vouches_for_what_had_returned_before_it_came() {
        let events = [
            write(1),
            Event::Tick,
            Event::Mark("a".to_owned()),
            write(6),
            Event::Tick, // the flush comes, and the write of moment 3 is under way
            write(usize::MAX),
            Event::Tick,
            Event::Flush { begun: 4 },
            Event::Mark("b".to_owned()),
        ];
        let epochs = epochs(&events);
        assert_eq!(epochs.len(), 2);
        assert_eq!(epochs[0].open, [0, 3, 5]);
        assert_eq!(epochs[0].marks, [2]);
        assert_eq!(epochs[1].durable, [0]);
        assert_eq!(epochs[1].open, [3, 5]);
        assert_eq!(epochs[1].marks, [8]);
    }
}
