//! The gates of one open file. Operations enter them, and another thread can close them.
//!
//! Owns: the gates of one open file. A thread that enters a gate sets a mark in its own lane, and
//! then checks whether the gate is closed. That takes two plain stores and a load, since gates
//! close seldom. A thread that closes a gate sets the gate's flag, makes all threads see it
//! (`platform::barrier`), and waits until no lane has a mark.
//!
//! Invariant: once a gate is closed and the wait for it is over, no thread is inside until it
//! opens.
//!
//! May import `lock`, `primitive`, and the fences of `platform`.

use crate::lock::Backoff;
use crate::platform::barrier;
use crate::primitive::{AtomicBool, Ordering};

/// A gate, closed by a thread that must not interrupt an operation half way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gate {
    /// Closed for the cut of a durable point. Entered by operations that change words of a file
    /// that keeps durable points.
    Cut,
    /// Closed to make the file shorter. Entered, before `Cut`, by writes of several segments in
    /// several pages. Those segments may lie on both sides of a new end and not at it.
    Length,
}

/// Number of gates.
const GATES: usize = Gate::Length as usize + 1;

/// A guard of a thread that has entered a gate. Dropping it leaves the gate.
pub struct GateGuard<'a>(&'a AtomicBool);

impl Drop for GateGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: orders everything that the operation has changed before the end of its mark.
        self.0.store(false, Ordering::Release);
    }
}

/// A guard of a closed gate that no thread is inside. Dropping it opens the gate.
pub struct ClosedGate<'a>(&'a AtomicBool);

impl Drop for ClosedGate<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// The marks of one lane: for each gate, whether the lane's thread has entered it.
#[derive(Debug)]
pub struct GateMarks([AtomicBool; GATES]);

impl GateMarks {
    /// Makes marks for a thread that has entered no gate.
    pub fn new() -> Self {
        GateMarks(std::array::from_fn(|_| AtomicBool::new(false)))
    }
}

/// The flags of all gates: `true` while the gate is closed.
#[derive(Debug)]
pub struct Gates([AtomicBool; GATES]);

impl Gates {
    /// Makes the gates, all of them open.
    pub fn new() -> Self {
        Gates(std::array::from_fn(|_| AtomicBool::new(false)))
    }

    /// Enters the gate, and waits while it is closed. Two plain stores, see `platform::barrier`.
    #[inline]
    pub fn enter<'a>(&self, gate: Gate, marks: &'a GateMarks) -> GateGuard<'a> {
        let (inside, closed) = (&marks.0[gate as usize], &self.0[gate as usize]);
        let mut backoff = Backoff::new();
        loop {
            debug_assert!(!inside.load(Ordering::Relaxed), "a gate is passed once");
            inside.store(true, Ordering::Relaxed);
            // Orders the mark before the check. A thread that closes the gate and then finds no
            // mark knows that this thread will see the closed gate.
            barrier::light();
            if !closed.load(Ordering::Acquire) {
                return GateGuard(inside);
            }
            inside.store(false, Ordering::Release);
            while closed.load(Ordering::Acquire) {
                backoff.wait();
            }
        }
    }

    /// Closes the gate and waits until no thread is inside, by the marks of all lanes. One thread
    /// at a time may call this. The caller is not inside the gate, and holds nothing that a thread
    /// inside may wait for.
    ///
    /// `marks` is iterated only once all threads see the closed gate. So if a lane is made after
    /// that, its thread finds the gate closed.
    pub fn close<'m>(
        &self,
        gate: Gate,
        marks: impl Iterator<Item = &'m GateMarks>,
    ) -> ClosedGate<'_> {
        let closed = ClosedGate(&self.0[gate as usize]);
        closed.0.store(true, Ordering::Relaxed);
        // Orders the flag before the loads of the lanes' marks.
        barrier::heavy();
        for marks in marks {
            let mut backoff = Backoff::new();
            while marks.0[gate as usize].load(Ordering::Acquire) {
                backoff.wait();
            }
        }
        closed
    }
}
