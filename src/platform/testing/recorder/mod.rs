//! A platform that records what is done to the files, and can inject failures.
//!
//! Owns: the trace of every store, flush, drain and call to the operating system; the failures that
//! a test has requested; and the death of the process at a numbered event. For tests only; nothing
//! here is covered by semantic versioning.
//!
//! Invariants:
//! - Everything is also done for real, by the code that runs without a recorder. Lines that go to
//!   two sides are the exception: they are copied one run of neighbours after the other, so that
//!   each run is noted.
//! - The trace's order is the order in which things happened: the mutex is held while a thing is
//!   done and noted. (Loads of words and copies out are not noted and do not wait.)
//! - An injected failure replaces the call, which is not made.
//! - A failed call is noted as [`What::Failed`], whether injected or real.
//!
//! Not noted: prefetches, since they change nothing; and the unmapping of a dropped `Mapping`,
//! since the file keeps its contents.
//!
//! May import: `event`, `call`, `copy`, `atomic_word`, and the vocabulary of `platform/mod.rs`.

mod event;
#[cfg(test)]
mod tests;

use super::call;
use crate::platform::atomic_word as word;
use crate::platform::{Copying, InLine, Native, Persistence, Place, Platform};
pub use event::{Death, Event, Fault, What};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A failure that waits for its call.
struct Armed {
    call: &'static str,
    /// How many matching calls pass before it.
    passing: usize,
    fault: Fault,
    /// It stays for all calls that follow.
    lasting: bool,
    fired: bool,
}

#[derive(Default)]
struct State {
    trace: Vec<Event>,
    armed: Vec<Armed>,
    /// The number of events before the process dies, and how it dies.
    death: Option<(usize, Death)>,
    /// The number of events before a thread panics.
    panic: Option<usize>,
    /// The crate's background thread does nothing.
    is_background_held: bool,
}

impl State {
    /// Called before an event. Dies here if it is time. Returns `true` if the process has to die in
    /// the middle of the event, a copy of `len` bytes (0 if it is not a copy).
    fn about_to(&mut self, len: usize) -> bool {
        match &mut self.panic {
            None => {}
            Some(0) => {
                self.panic = None;
                // Without the hook: a sweep makes hundreds of them.
                std::panic::resume_unwind(Box::new("an injected panic"));
            }
            Some(passing) => *passing -= 1,
        }
        match &mut self.death {
            None => false,
            Some((_, Death::Halfway)) if len < 2 => false,
            Some((0, Death::Halfway)) => true,
            Some((0, Death::Before)) => die(),
            Some((passing, _)) => {
                *passing -= 1;
                false
            }
        }
    }

    fn note(&mut self, what: What) {
        self.trace.push(Event { thread: this_thread(), what });
    }

    /// Counts a call, and returns its failure, if any. If several failures fall on it, the first
    /// that was requested is returned.
    fn fault(&mut self, call: &str) -> Option<Fault> {
        let mut found = None;
        for armed in &mut self.armed {
            if (armed.call != "any" && armed.call != call) || (armed.fired && !armed.lasting) {
                continue;
            }
            if armed.passing > 0 {
                armed.passing -= 1;
            } else if found.is_none() {
                armed.fired = true;
                found = Some(armed.fault);
            }
        }
        self.armed.retain(|armed| armed.lasting || !armed.fired);
        found
    }
}

/// Ends this process as SIGKILL does: no thread runs any cleanup.
fn die() -> ! {
    // SAFETY: sends a signal to this process; touches no memory.
    #[cfg(unix)]
    unsafe {
        libc::kill(libc::getpid(), libc::SIGKILL)
    };
    std::process::abort()
}

fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local!(static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed));
    NUMBER.with(|number| *number)
}

/// A platform that keeps a trace. Clones share it.
#[derive(Clone)]
pub struct Recorder {
    native: Native,
    state: Arc<Mutex<State>>,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("native", &self.native).finish_non_exhaustive()
    }
}

impl Default for Recorder {
    fn default() -> Recorder {
        Recorder::new()
    }
}

impl Recorder {
    /// Creates a recorder with an empty trace and no failures.
    pub fn new() -> Recorder {
        Recorder { native: Native::new(), state: Arc::default() }
    }

    /// Returns the platform that this recorder watches.
    pub fn platform(&self) -> Platform {
        Platform::Recording(self.clone())
    }

    /// Stops background work from the next open on: a test that counts calls or events would
    /// otherwise find different ones in each run. A thread that cannot go on without the background
    /// work does that work itself.
    pub fn hold_background(&self) {
        self.lock().is_background_held = true;
    }

    pub(in crate::platform) fn is_background_held(&self) -> bool {
        self.lock().is_background_held
    }

    /// Takes the trace, leaving an empty one.
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.lock().trace)
    }

    /// Makes the `nth` call from now of this name (one of [`call`], or "any") fail, once. 1 is the
    /// next call. Each attempt counts, so a retry after an interruption is a call of its own.
    ///
    /// # Panics
    /// If `nth` is 0, if there is no call of that name, or if the call moves no bytes and cannot be
    /// short: a test would pass without testing anything.
    pub fn fail_next(&self, call: &'static str, nth: usize, fault: impl Into<Fault>) {
        self.arm(call, nth, fault.into(), false);
    }

    /// Makes all calls of that name from the `nth` on fail, until [`Recorder::heal`].
    ///
    /// # Panics
    /// As [`Recorder::fail_next`]; and if the fault is an interruption, which would be retried for
    /// ever.
    pub fn fail_from(&self, call: &'static str, nth: usize, fault: impl Into<Fault>) {
        let fault = fault.into();
        let interruption = match fault {
            Fault::Os(code) => io::Error::from_raw_os_error(code).kind(),
            Fault::Kind(kind) => kind,
            Fault::Short(_) => io::ErrorKind::Other,
        };
        assert_ne!(interruption, io::ErrorKind::Interrupted);
        self.arm(call, nth, fault, true);
    }

    /// Removes all requested failures. Returns `true` if one of them had not occurred: a sweep over
    /// `nth` has then reached its end.
    pub fn heal(&self) -> bool {
        let armed = std::mem::take(&mut self.lock().armed);
        armed.iter().any(|armed| !armed.fired)
    }

    /// Makes the process die at the `nth` event from now (1 is the next), of any thread. [`Death`]
    /// says which events count.
    ///
    /// # Panics
    /// If `nth` is 0.
    pub fn kill_at(&self, nth: usize, death: Death) {
        assert!(nth > 0, "things are counted from 1");
        self.lock().death = Some((nth - 1, death));
    }

    /// Cancels the death of the process.
    pub fn spare(&self) {
        self.lock().death = None;
    }

    /// Makes a thread panic before the `nth` event from now (1 is the next), of any thread. Once.
    ///
    /// # Panics
    /// If `nth` is 0.
    pub fn panic_at(&self, nth: usize) {
        assert!(nth > 0, "things are counted from 1");
        self.lock().panic = Some(nth - 1);
    }

    /// Cancels the panic. Returns `true` if it had not come.
    pub fn calm(&self) -> bool {
        self.lock().panic.take().is_some()
    }

    fn arm(&self, call: &'static str, nth: usize, fault: Fault, lasting: bool) {
        assert!(nth > 0, "calls are counted from 1");
        assert!(call == "any" || call::ALL.contains(&call), "no call is named {call}");
        assert!(
            !matches!(fault, Fault::Short(_))
                || [call::READ, call::WRITE, call::WRITE_DURABLY].contains(&call),
            "{call} cannot be short"
        );
        self.lock().armed.push(Armed { call, passing: nth - 1, fault, lasting, fired: false });
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic in a test's thread leaves the trace whole: an event is pushed in one step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::platform) fn native(&self) -> &Native {
        &self.native
    }

    pub(in crate::platform) fn with_persistence(self, persistence: Persistence) -> Recorder {
        Recorder { native: self.native.with_persistence(persistence), ..self }
    }

    pub(in crate::platform) fn persistence(&self) -> Persistence {
        self.native.persistence()
    }

    fn needs_flush(&self) -> bool {
        self.persistence() == Persistence::Flush
    }

    /// Makes one attempt at one call: the gate of `os/calls`.
    pub(in crate::platform) fn attempt<T>(
        &self,
        call: &'static str,
        act: impl FnOnce(usize) -> io::Result<T>,
        what: impl FnOnce(&T) -> What,
    ) -> io::Result<T> {
        let mut state = self.lock();
        state.about_to(0);
        let result = match state.fault(call) {
            None => act(usize::MAX),
            Some(Fault::Os(code)) => Err(io::Error::from_raw_os_error(code)),
            Some(Fault::Kind(kind)) => Err(kind.into()),
            // A read of nothing would mean the end of the file.
            Some(Fault::Short(most)) => act(most.max(1)),
        };
        state.note(match &result {
            Ok(value) => what(value),
            Err(_) => What::Failed(call),
        });
        result
    }

    /// # Safety
    /// As [`Platform::copy_in`].
    pub(in crate::platform) unsafe fn copy_in(&self, to: Place, from: &[u8], how: Copying) {
        let mut state = self.lock();
        if state.about_to(from.len()) {
            // SAFETY: a part of what the caller guarantees.
            unsafe { self.native.copy_in(to.checked(), &from[..from.len() / 2], how) };
            die();
        }
        // SAFETY: the caller's contract is the same.
        unsafe { self.native.copy_in(to.checked(), from, how) };
        for part in self.native.plan(to.ptr, from.len(), how).parts() {
            let offset = to.offset + part.range.start as u64;
            let bytes = &from[part.range];
            state.note(What::Copy {
                file: to.file,
                offset,
                bytes: bytes.to_vec(),
                through: part.streamed || !self.needs_flush(),
            });
            if part.flushed {
                state.note(What::Flush { file: to.file, offset, len: bytes.len() as u64 });
            }
        }
    }

    /// # Safety
    /// As [`Platform::flush`].
    pub(in crate::platform) unsafe fn flush(&self, at: Place, len: usize) {
        if !self.needs_flush() || len == 0 {
            return;
        }
        let mut state = self.lock();
        state.about_to(0);
        // SAFETY: the caller's contract is the same.
        unsafe { self.native.flush(at.checked(), len) };
        state.note(What::Flush { file: at.file, offset: at.offset, len: len as u64 });
    }

    pub(in crate::platform) fn drain(&self) {
        let mut state = self.lock();
        state.about_to(0);
        self.native.drain();
        state.note(What::Drain);
    }

    /// # Safety
    /// As [`Platform::store_word_through`].
    pub(in crate::platform) unsafe fn store_word_through(&self, at: Place, value: u64) {
        let mut state = self.lock();
        state.about_to(0);
        // SAFETY: the caller's contract is the same.
        unsafe { self.native.store_word_through(at.checked(), value) };
        state.note(What::Store { file: at.file, offset: at.offset, value, through: true });
    }

    /// # Safety
    /// As [`Platform::store_word`].
    pub(in crate::platform) unsafe fn store_word(&self, at: Place, value: u64) {
        let mut state = self.lock();
        state.about_to(0);
        // SAFETY: the caller's contract is the same.
        unsafe { word::store(at.checked(), value) };
        state.note(What::Store { file: at.file, offset: at.offset, value, through: false });
    }

    /// # Safety
    /// As [`Platform::store_in_line`].
    pub(in crate::platform) unsafe fn store_in_line(&self, how: InLine, to: Place, from: &[u8]) {
        let mut state = self.lock();
        // A process cannot die in the middle of it.
        state.about_to(0);
        // SAFETY: the caller's contract is the same.
        unsafe { self.native.store_in_line(how, to.checked(), from) };
        let bytes = from.to_vec();
        let through = !self.needs_flush();
        state.note(What::Copy { file: to.file, offset: to.offset, bytes, through });
    }

    /// # Safety
    /// As [`Platform::compare_exchange_word`].
    pub(in crate::platform) unsafe fn compare_exchange_word(
        &self,
        at: Place,
        old: u64,
        new: u64,
    ) -> Result<u64, u64> {
        let mut state = self.lock();
        state.about_to(0);
        // SAFETY: the caller's contract is the same.
        let result = unsafe { word::compare_exchange(at.checked(), old, new) };
        state.note(What::CompareExchange {
            file: at.file,
            offset: at.offset,
            old,
            new,
            done: result.is_ok(),
        });
        result
    }
}
