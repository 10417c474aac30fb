//! SQLite's five lock levels, between the connections of this process to one file.
//!
//! Other processes are kept out as wholes: see `ffi::guard`. May import `failure`.

use crate::failure::{Failure, Result};
use parking_lot::Mutex;

/// A lock level, with SQLite's numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Level {
    None = 0,
    Shared = 1,
    Reserved = 2,
    Pending = 3,
    Exclusive = 4,
}

impl Level {
    pub fn of(number: i32) -> Option<Self> {
        let all = [Level::None, Level::Shared, Level::Reserved, Level::Pending, Level::Exclusive];
        all.get(usize::try_from(number).ok()?).copied()
    }
}

/// The locks of one file.
#[derive(Default, Debug)]
pub(crate) struct Locks(Mutex<State>);

#[derive(Default, Debug)]
struct State {
    /// Connections at `Shared` or above.
    readers: u64,
    /// Level of the one connection above `Shared`.
    writer: Option<Level>,
}

impl Locks {
    /// Raises a connection from `held` to `wanted`, and updates `held` to what it has afterwards.
    ///
    /// A connection that waits for readers to end is left at `Pending`, which lets no new reader
    /// in. Fails with busy if another connection is in the way.
    pub fn raise(&self, held: &mut Level, wanted: Level) -> Result<()> {
        if *held >= wanted {
            return Ok(());
        }
        let mut state = self.0.lock();
        let other = if *held > Level::Shared { None } else { state.writer };
        if wanted == Level::Shared {
            if other >= Some(Level::Pending) {
                return Err(Failure::busy());
            }
            state.readers += 1;
            *held = Level::Shared;
            return Ok(());
        }
        if other.is_some() || *held == Level::None {
            return Err(Failure::busy());
        }
        let others_read = state.readers > 1;
        let got = match wanted {
            Level::Exclusive if others_read => Level::Pending,
            level => level,
        };
        state.writer = Some(got);
        *held = got;
        if got < wanted { Err(Failure::busy()) } else { Ok(()) }
    }

    /// Lowers a connection from `held` to `Shared` or `None`.
    pub fn lower(&self, held: &mut Level, wanted: Level) {
        if *held <= wanted {
            return;
        }
        let mut state = self.0.lock();
        if *held > Level::Shared {
            state.writer = None;
        }
        if wanted == Level::None {
            state.readers -= 1;
        }
        *held = wanted;
    }

    /// Returns `true` if a connection holds `Reserved` or more.
    pub fn is_reserved(&self) -> bool {
        self.0.lock().writer.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_writer_and_no_reader_beside_exclusive() {
        let locks = Locks::default();
        let (mut a, mut b) = (Level::None, Level::None);
        locks.raise(&mut a, Level::Shared).expect("a reads");
        locks.raise(&mut b, Level::Shared).expect("b reads");
        locks.raise(&mut a, Level::Reserved).expect("a prepares");
        assert!(locks.raise(&mut b, Level::Reserved).is_err(), "one writer");
        assert!(locks.is_reserved());
        assert!(locks.raise(&mut a, Level::Exclusive).is_err(), "b reads");
        assert_eq!(a, Level::Pending);
        locks.lower(&mut b, Level::None);
        assert!(locks.raise(&mut b, Level::Shared).is_err(), "a waits");
        locks.raise(&mut a, Level::Exclusive).expect("alone");
        locks.lower(&mut a, Level::Shared);
        assert!(!locks.is_reserved());
        locks.raise(&mut b, Level::Shared).expect("a has written");
        assert!(locks.raise(&mut b, Level::Exclusive).is_err(), "a reads");
        locks.lower(&mut a, Level::None);
        locks.raise(&mut b, Level::Exclusive).expect("alone");
        locks.lower(&mut b, Level::None);
        assert_eq!(locks.0.lock().readers, 0);
    }
}
