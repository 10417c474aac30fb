//! What do operations pass that somebody may shut?
//!
//! Owns: the gates of one open file. Who passes one sets a mark in its own lane, and looks whether the gate is shut: two plain
//! stores and a load, by one look for what seldom happens. Who shuts it says so, has all threads see that
//! (`platform::barrier`), and waits until there is no mark.
//!
//! Invariant: while a gate is shut, and nobody waits for that any more, nobody is inside.
//!
//! May import `lock`, `mutant`, `primitive`, and the fences of `platform`.

use crate::lock::Patience;
use crate::mutant::{planted, unless};
use crate::platform::barrier;
use crate::primitive::{AtomicBool, Ordering};

/// What operations pass, and whoever must not come in the middle of one shuts for a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gate {
    /// For the cut of a durable point. Passed by whoever changes words of a file that keeps such points.
    Cut,
    /// For a shorter length. Passed, before the other one, by whoever writes several pieces in several pages, which
    /// may lie on both sides of a new end and not at it.
    Length,
    /// For a second thread. Passed by who takes a lock by plain stores, since nobody else has a lane: who takes locks has
    /// one. Shut once, for good, by whoever takes a lane while somebody else has one.
    Alone,
}

/// How many there are.
const GATES: usize = Gate::Alone as usize + 1;

/// A thread is inside a gate while this lives.
pub struct Inside<'a>(&'a AtomicBool);

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: everything that the operation has changed comes before.
        self.0.store(false, Ordering::Release);
    }
}

/// While this lives nobody is inside a gate.
pub struct Shut<'a>(&'a AtomicBool);

impl Drop for Shut<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Whether a lane's thread is inside each gate.
#[derive(Debug)]
pub struct Marks([AtomicBool; GATES]);

impl Marks {
    /// It is inside none.
    pub fn new() -> Self {
        Marks(std::array::from_fn(|_| AtomicBool::new(false)))
    }
}

/// Of each gate: nobody passes it.
#[derive(Debug)]
pub struct Gates([AtomicBool; GATES]);

impl Gates {
    /// All are open. (That of who is alone is passed by fences that are not to be had everywhere.)
    pub fn new() -> Self {
        Gates(std::array::from_fn(|n| {
            AtomicBool::new(n == Gate::Alone as usize && !barrier::is_usual())
        }))
    }

    /// Passes the gate, and waits while it is shut. Two plain stores, see `platform::barrier`.
    #[inline]
    pub fn enter<'a>(&self, gate: Gate, marks: &'a Marks) -> Inside<'a> {
        let (inside, shut) = (&marks.0[gate as usize], &self.0[gate as usize]);
        let mut patience = Patience::new();
        loop {
            debug_assert!(!inside.load(Ordering::Relaxed), "a gate is passed once");
            inside.store(true, Ordering::Relaxed);
            // Orders the mark before the look: who shuts the gate and then finds no mark knows
            // that this thread will see that it is shut.
            barrier::light();
            if !shut.load(Ordering::Acquire) {
                return Inside(inside);
            }
            inside.store(false, Ordering::Release);
            while shut.load(Ordering::Acquire) {
                patience.wait();
            }
        }
    }

    /// Passes the gate of who is alone, if it is open. Two plain stores, as above.
    #[inline(always)]
    pub fn enter_alone<'a>(&self, marks: &'a Marks) -> Option<Inside<'a>> {
        let (inside, shut) = (&marks.0[Gate::Alone as usize], &self.0[Gate::Alone as usize]);
        debug_assert!(!inside.load(Ordering::Relaxed), "a gate is passed once");
        unless!(AloneUnseen, inside.store(true, Ordering::Relaxed));
        // As in `enter`. (Where it is not the usual one, the gate is never open.)
        barrier::usual();
        let inside = Inside(inside);
        (!shut.load(Ordering::Acquire)).then_some(inside)
    }

    /// Shuts the gate and waits until nobody is inside, by the marks of all lanes. One at a time, not from inside, and while
    /// nothing is held that somebody inside may wait for.
    ///
    /// `marks` is gone through once the gate is seen shut: who makes a lane after that finds it so.
    pub fn shut<'m>(&self, gate: Gate, marks: impl Iterator<Item = &'m Marks>) -> Shut<'_> {
        let shut = Shut(&self.0[gate as usize]);
        self.shut_for_good(gate, marks);
        shut
    }

    /// The same, and nobody opens it again by themselves: not who is cut off by a panic, either. Several at a time, if need
    /// be.
    pub fn shut_for_good<'m>(&self, gate: Gate, marks: impl Iterator<Item = &'m Marks>) {
        self.0[gate as usize].store(true, Ordering::Relaxed);
        // Orders the mark before the looks at the lanes.
        barrier::heavy();
        for marks in marks {
            let mut patience = Patience::new();
            while marks.0[gate as usize].load(Ordering::Acquire)
                && !(planted!(AloneNotAwaited) && gate == Gate::Alone)
            {
                patience.wait();
            }
        }
    }
}
