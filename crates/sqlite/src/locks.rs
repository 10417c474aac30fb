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
#[derive(Debug)]
pub(crate) struct Locks {
    state: Mutex<State>,
    /// `true` if readers stay beside a writer at `Exclusive`, since they read earlier versions.
    readers_stay: bool,
}

#[derive(Default, Debug)]
struct State {
    /// Connections at `Shared` or above.
    readers: u64,
    /// Level of the one connection above `Shared`.
    writer: Option<Level>,
    /// `true` if that connection plays back a journal. SQLite then asks for `Exclusive` without
    /// `Reserved`, and needs the file alone.
    is_playback: bool,
}

impl Locks {
    /// Makes the locks of a file. With `readers_stay` a reader and a writer exclude each other only
    /// while a journal is played back.
    pub fn new(readers_stay: bool) -> Self {
        Locks { state: Mutex::default(), readers_stay }
    }

    /// Raises a connection from `held` to `wanted`, and updates `held` to what it has afterwards.
    ///
    /// A connection that waits for readers to end is left at `Pending`, which lets no new reader
    /// in. Fails with busy if another connection is in the way.
    pub fn raise(&self, held: &mut Level, wanted: Level) -> Result<()> {
        if *held >= wanted {
            return Ok(());
        }
        let mut state = self.state.lock();
        let other = if *held > Level::Shared { None } else { state.writer };
        if wanted == Level::Shared {
            let may_stay = self.readers_stay && !state.is_playback;
            if other >= Some(Level::Pending) && !may_stay {
                return Err(Failure::busy());
            }
            state.readers += 1;
            *held = Level::Shared;
            return Ok(());
        }
        if other.is_some() || *held == Level::None {
            return Err(Failure::busy());
        }
        if *held == Level::Shared {
            state.is_playback = wanted > Level::Reserved;
        }
        let others_read = state.readers > 1 && (state.is_playback || !self.readers_stay);
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
        let mut state = self.state.lock();
        if *held > Level::Shared {
            state.writer = None;
            state.is_playback = false;
        }
        if wanted == Level::None {
            state.readers -= 1;
        }
        *held = wanted;
    }

    /// Returns `true` if a connection holds `Reserved` or more for a transaction. SQLite asks
    /// before it plays a journal back. One that a connection is about to play back still has to be.
    pub fn is_reserved(&self) -> bool {
        let state = self.state.lock();
        state.writer.is_some() && !state.is_playback
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_writer_and_no_reader_beside_exclusive() {
        let locks = Locks::new(false);
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
        assert_eq!(locks.state.lock().readers, 0);
    }

    #[test]
    fn readers_stay_beside_a_writer_but_not_beside_a_playback() {
        let locks = Locks::new(true);
        let (mut a, mut b) = (Level::None, Level::None);
        locks.raise(&mut a, Level::Shared).expect("a reads");
        locks.raise(&mut b, Level::Shared).expect("b reads");
        locks.raise(&mut a, Level::Reserved).expect("a prepares");
        locks.raise(&mut a, Level::Exclusive).expect("b stays");
        locks.lower(&mut b, Level::None);
        locks.raise(&mut b, Level::Shared).expect("b comes again");
        assert!(locks.raise(&mut b, Level::Reserved).is_err(), "one writer");
        assert!(locks.is_reserved());
        locks.lower(&mut a, Level::Shared);
        assert!(locks.raise(&mut a, Level::Exclusive).is_err(), "b reads");
        assert!(!locks.is_reserved(), "b has to play the journal back, too");
        locks.lower(&mut b, Level::None);
        locks.raise(&mut a, Level::Exclusive).expect("alone");
        assert!(locks.raise(&mut b, Level::Shared).is_err(), "a plays back");
        locks.lower(&mut a, Level::None);
        locks.raise(&mut b, Level::Shared).expect("b reads");
        locks.raise(&mut b, Level::Reserved).expect("b prepares");
    }

    /// A reader that came before a playback asked for a reserved lock while the playback waited for
    /// it to end. It heard that there is one, and read the file as the journal had left it.
    #[test]
    fn a_playback_that_waits_is_no_reserved_lock() {
        let locks = Locks::new(false);
        let (mut a, mut b) = (Level::None, Level::None);
        locks.raise(&mut a, Level::Shared).expect("a reads");
        locks.raise(&mut b, Level::Shared).expect("b reads");
        assert!(locks.raise(&mut a, Level::Exclusive).is_err(), "b reads");
        assert!(!locks.is_reserved());
    }
}
