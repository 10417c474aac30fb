//! The images that a power loss can leave, as epochs of a recording.
//!
//! Once a flush has returned, every write that had returned before the flush arrived is durable. An
//! epoch lasts from the return of one flush to the return of the next. The power fails at its very
//! end, just before the next flush returns. At that moment, each write of the epoch may be present,
//! partly present or absent. Every operation that was acknowledged in the epoch must be present.
//! Earlier moments add nothing: their images are among these, and fewer operations must be present.

use crate::disk::{Event, Write};

/// One epoch.
pub struct Epoch {
    /// Indices of the writes that the flush at the beginning made durable, and no earlier flush.
    pub durable: Vec<usize>,
    /// Indices of the writes that may be present or absent.
    pub open: Vec<usize>,
    /// Indices of the marks after the end of the previous epoch, up to the end of this one.
    pub marks: Vec<usize>,
}

/// Splits a recording into epochs.
pub fn epochs(events: &[Event]) -> Vec<Epoch> {
    let mut all = Vec::new();
    let mut now = Epoch { durable: Vec::new(), open: Vec::new(), marks: Vec::new() };
    for (moment, event) in events.iter().enumerate() {
        match event {
            Event::Write { .. } => now.open.push(moment),
            Event::Mark(_) => now.marks.push(moment),
            Event::Tick => {}
            Event::Flush { begun } => {
                let is_covered = |n: &usize| match &events[*n] {
                    Event::Write { done, .. } => done < begun,
                    _ => false,
                };
                let (durable, open) = now.open.iter().partition(|n| is_covered(n));
                let next = Epoch { durable, open, marks: Vec::new() };
                all.push(std::mem::replace(&mut now, next));
            }
        }
    }
    all.push(now);
    all
}

/// Returns the write of this moment.
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
    fn a_flush_covers_what_had_returned_before_it_came() {
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
