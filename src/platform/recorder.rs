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
//! May import: `native`, `word`, `call`, and the vocabulary of `mod.rs`.

use super::{Copying, FileId, InLine, Native, Persistence, Place, Platform, call, word};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// The thread that caused it. Each thread with an event gets a number, from 1 up.
    pub thread: u64,
    /// What was done.
    pub what: What,
}

/// The kinds of events. `through` says that the bytes need no flush to become durable, only a drain
/// by the same thread. Either they were stored past the cache, or nothing has to be flushed at all
/// (any `Persistence` but `Flush`).
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the fields are those of the calls of the same name")]
pub enum What {
    /// A word was stored.
    Store { file: FileId, offset: u64, value: u64, through: bool },
    /// A word was compared with `old`, and `new` stored if it was equal (`done`).
    CompareExchange { file: FileId, offset: u64, old: u64, new: u64, done: bool },
    /// Bytes were stored, in any order and with no atomicity.
    Copy { file: FileId, offset: u64, bytes: Vec<u8>, through: bool },
    /// The lines of a range were flushed.
    Flush { file: FileId, offset: u64, len: u64 },
    /// What this thread has flushed or stored through became durable.
    Drain,
    /// A file was made durable, with all its metadata or with the metadata that reading needs.
    Sync { file: FileId, all: bool },
    /// A directory was made durable.
    SyncDir { path: PathBuf },
    /// Storage was reserved.
    Allocate { file: FileId, offset: u64, len: u64 },
    /// Storage was given back.
    Punch { file: FileId, offset: u64, len: u64 },
    /// A file's length was changed.
    SetLen { file: FileId, len: u64 },
    /// Bytes were written by a call. A long or short write takes several calls, with one event
    /// each.
    Write { file: FileId, offset: u64, bytes: Vec<u8> },
    /// Bytes were written by a call that returned when they were durable.
    WriteDurably { file: FileId, offset: u64, bytes: Vec<u8> },
    /// Bytes were read by a call.
    Read { file: FileId, offset: u64, len: u64 },
    /// A file was renamed.
    Rename { from: PathBuf, to: PathBuf },
    /// A file was removed.
    Remove { path: PathBuf },
    /// Another call to the operating system succeeded (a name of [`call`]).
    Os(&'static str),
    /// A call failed, by injection or for real.
    Failed(&'static str),
}

/// An injected failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The call fails with this error of the operating system.
    Os(i32),
    /// The call fails with an error of this kind.
    Kind(io::ErrorKind),
    /// The call, a read or a write, moves at most this many bytes, at least 1.
    Short(usize),
}

impl From<i32> for Fault {
    fn from(code: i32) -> Fault {
        Fault::Os(code)
    }
}

impl From<io::ErrorKind> for Fault {
    fn from(kind: io::ErrorKind) -> Fault {
        Fault::Kind(kind)
    }
}

/// How the process dies at a numbered event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Death {
    /// Before the n-th store, copy, flush, drain or attempt at a call.
    Before,
    /// In the middle of the n-th copy of two bytes or more, after the first half of them.
    Halfway,
}

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
    /// The crate's background thread does nothing.
    is_background_held: bool,
}

impl State {
    /// Called before an event. Dies here if it is time. Returns `true` if the process has to die in
    /// the middle of the event, a copy of `len` bytes (0 if it is not a copy).
    fn about_to(&mut self, len: usize) -> bool {
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

    pub(super) fn is_background_held(&self) -> bool {
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

    pub(super) fn native(&self) -> &Native {
        &self.native
    }

    pub(super) fn with_persistence(self, persistence: Persistence) -> Recorder {
        Recorder { native: self.native.with_persistence(persistence), ..self }
    }

    pub(super) fn persistence(&self) -> Persistence {
        self.native.persistence()
    }

    fn needs_flush(&self) -> bool {
        self.persistence() == Persistence::Flush
    }

    /// Makes one attempt at one call: the gate of `os.rs`.
    pub(super) fn attempt<T>(
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
    pub(super) unsafe fn copy_in(&self, to: Place, from: &[u8], how: Copying) {
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
    /// As [`Platform::copy_across`].
    pub(super) unsafe fn copy_across(&self, to: Place, from: *const u8, len: usize, how: Copying) {
        // Copies by way of a buffer, so that the trace holds what was stored, even if another
        // thread writes to the source meanwhile.
        let mut bytes = vec![0; len];
        // SAFETY: the caller's contract covers both.
        unsafe {
            self.native.copy_out(&mut bytes, from);
            self.copy_in(to, &bytes, how);
        }
    }

    /// # Safety
    /// As [`Platform::fill_zero`].
    pub(super) unsafe fn fill_zero(&self, to: Place, len: usize) {
        // SAFETY: the caller's contract is the same.
        unsafe { self.copy_in(to, &vec![0; len], Copying::BySize) }
    }

    /// # Safety
    /// As [`Platform::flush`].
    pub(super) unsafe fn flush(&self, at: Place, len: usize) {
        if !self.needs_flush() || len == 0 {
            return;
        }
        let mut state = self.lock();
        state.about_to(0);
        // SAFETY: the caller's contract is the same.
        unsafe { self.native.flush(at.checked(), len) };
        state.note(What::Flush { file: at.file, offset: at.offset, len: len as u64 });
    }

    pub(super) fn drain(&self) {
        let mut state = self.lock();
        state.about_to(0);
        self.native.drain();
        state.note(What::Drain);
    }

    /// # Safety
    /// As [`Platform::store_word_through`].
    pub(super) unsafe fn store_word_through(&self, at: Place, value: u64) {
        let mut state = self.lock();
        state.about_to(0);
        // SAFETY: the caller's contract is the same.
        unsafe { self.native.store_word_through(at.checked(), value) };
        state.note(What::Store { file: at.file, offset: at.offset, value, through: true });
    }

    /// # Safety
    /// As [`Platform::store_word`].
    pub(super) unsafe fn store_word(&self, at: Place, value: u64) {
        let mut state = self.lock();
        state.about_to(0);
        // SAFETY: the caller's contract is the same.
        unsafe { word::store(at.checked(), value) };
        state.note(What::Store { file: at.file, offset: at.offset, value, through: false });
    }

    /// # Safety
    /// As [`Platform::store_in_line`].
    pub(super) unsafe fn store_in_line(&self, how: InLine, to: Place, from: &[u8]) {
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
    pub(super) unsafe fn compare_exchange_word(
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

#[cfg(test)]
mod tests {
    use super::super::File;
    use super::super::isa;
    use super::*;
    use std::io::ErrorKind;

    #[repr(align(64))]
    struct Lines([u8; 4096]);

    fn place(lines: &mut Lines, offset: usize) -> Place {
        Place {
            ptr: lines.0.as_mut_ptr().wrapping_add(offset),
            file: FileId::Home,
            offset: offset as u64,
        }
    }

    fn whats(recorder: &Recorder) -> Vec<What> {
        recorder.take().into_iter().map(|event| event.what).collect()
    }

    #[cfg(all(unix, not(miri)))]
    #[test]
    fn the_process_dies_at_the_numbered_thing() {
        for (nth, death, expected) in [
            (1, Death::Before, 0),
            (2, Death::Before, 1),
            (1, Death::Halfway, 2),
            (3, Death::Before, 3),
            (2, Death::Halfway, 4),
            (5, Death::Before, 4),
        ] {
            // Shared with the child, so that the parent can see how far the child came. SAFETY: a
            // new mapping at an address of the kernel's choice.
            let page = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    4096,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                    -1,
                    0,
                )
            };
            assert_ne!(page, libc::MAP_FAILED);
            let at = |offset: u64| Place {
                ptr: page.cast::<u8>().wrapping_add(offset as usize),
                file: FileId::Home,
                offset,
            };
            let recorder = Recorder::new();
            let p = recorder.platform();
            recorder.kill_at(nth, death);
            let bytes = [7; 16];
            // SAFETY: the child touches the page, an uncontended mutex of its own, and memory that
            // glibc keeps usable after a fork.
            let child = unsafe { libc::fork() };
            assert!(child >= 0, "fork failed");
            if child == 0 {
                // SAFETY: places inside the page; the parent reads it after the child's end.
                unsafe {
                    p.store_word_through(at(0), 1);
                    p.copy_in(at(64), &bytes, Copying::Cached);
                    p.drain();
                    let _done = p.compare_exchange_word(at(128), 0, 1);
                    libc::_exit(0)
                }
            }
            let mut status = 0;
            // SAFETY: our own child, and a live local for its status.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            // SAFETY: the page is mapped until here.
            let found = unsafe {
                let found = std::slice::from_raw_parts(page.cast::<u8>(), 4096).to_vec();
                libc::munmap(page, 4096);
                found
            };
            let copied = &found[64..80];
            let stage = match (found[0], copied == bytes, copied[..8] == bytes[..8], found[128]) {
                (0, false, false, 0) => 0,
                (1, false, false, 0) => 1,
                (1, false, true, 0) => 2,
                (1, true, true, 0) => 3,
                (1, true, true, 1) => 4,
                other => panic!("{other:?}"),
            };
            assert_eq!(stage, expected, "at {nth}, {death:?}");
            assert_eq!(libc::WIFSIGNALED(status), expected < 4);
            if expected < 4 {
                assert_eq!(libc::WTERMSIG(status), libc::SIGKILL);
            }
        }
    }

    #[test]
    fn memory_operations_are_noted_and_done() {
        let recorder = Recorder::new();
        let p = recorder.platform().with_persistence(Persistence::Flush);
        let mut lines = Lines([0; 4096]);
        let file = FileId::Home;
        // SAFETY: all places are inside the array, words at multiples of 8; one thread.
        unsafe {
            p.store_word_through(place(&mut lines, 8), 5);
            p.store_word_through(place(&mut lines, 16), 6);
            assert_eq!(p.compare_exchange_word(place(&mut lines, 8), 5, 9), Ok(5));
            assert_eq!(p.compare_exchange_word(place(&mut lines, 8), 5, 1), Err(9));
            p.flush(place(&mut lines, 8), 16);
            p.drain();
            assert_eq!(p.load_word(place(&mut lines, 8).ptr), 9);
        }
        assert_eq!(
            whats(&recorder),
            [
                What::Store { file, offset: 8, value: 5, through: true },
                What::Store { file, offset: 16, value: 6, through: true },
                What::CompareExchange { file, offset: 8, old: 5, new: 9, done: true },
                What::CompareExchange { file, offset: 8, old: 5, new: 1, done: false },
                What::Flush { file, offset: 8, len: 16 },
                What::Drain,
            ]
        );
        assert!(recorder.take().is_empty());
    }

    #[test]
    fn copies_are_noted_in_the_parts_that_were_made() {
        let recorder = Recorder::new();
        let p = recorder.platform().with_persistence(Persistence::Flush);
        let mut lines = Lines([0; 4096]);
        let file = FileId::Home;
        let data: Vec<u8> = (0..200).collect();
        // SAFETY: all places are inside the array; one thread.
        unsafe { p.copy_in(place(&mut lines, 61), &data, Copying::BySize) };
        assert_eq!(lines.0[61..261], data);
        let copy = |range: std::ops::Range<usize>, through| What::Copy {
            file,
            offset: 61 + range.start as u64,
            bytes: data[range].to_vec(),
            through,
        };
        let flush = |offset, len| What::Flush { file, offset, len };
        if isa::FLUSHES {
            assert_eq!(
                whats(&recorder),
                [
                    copy(0..3, false),
                    flush(61, 3),
                    copy(3..195, true),
                    copy(195..200, false),
                    flush(256, 5),
                ]
            );
        } else {
            assert_eq!(whats(&recorder), [copy(0..200, false), flush(61, 200)]);
        }
        // SAFETY: as above.
        unsafe { p.copy_in(place(&mut lines, 61), &data, Copying::Cached) };
        assert_eq!(whats(&recorder), [copy(0..200, false)]);

        let source = lines.0[61..].as_ptr();
        // SAFETY: as above; 61..189 and 1024..1152 do not overlap.
        unsafe {
            p.copy_across(place(&mut lines, 1024), source, 128, Copying::Cached);
            p.fill_zero(place(&mut lines, 61), 3);
        }
        assert_eq!(lines.0[1024..1152], data[..128]);
        assert_eq!(lines.0[60..65], [0, 0, 0, 0, 3]);
        assert_eq!(
            whats(&recorder),
            [
                What::Copy { file, offset: 1024, bytes: data[..128].to_vec(), through: false },
                What::Copy { file, offset: 61, bytes: vec![0; 3], through: false },
                flush(61, 3),
            ]
        );

        // Nothing needs a flush where the caches persist or only the process can die.
        for persistence in [Persistence::Caches, Persistence::Process] {
            let p = p.clone().with_persistence(persistence);
            // SAFETY: as above.
            unsafe {
                p.copy_in(place(&mut lines, 61), &data, Copying::BySize);
                p.flush(place(&mut lines, 61), 200);
            }
            assert_eq!(whats(&recorder), [copy(0..200, true)]);
        }
    }

    #[test]
    fn the_order_of_the_trace_is_the_order_in_memory() {
        let recorder = Recorder::new();
        let mut lines = Lines([0; 4096]);
        let at = place(&mut lines, 0);
        let address = at.ptr.expose_provenance();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let p = recorder.platform();
                scope.spawn(move || {
                    let at = Place {
                        ptr: std::ptr::with_exposed_provenance_mut(address),
                        file: FileId::Home,
                        offset: 0,
                    };
                    for old in 0..100 {
                        // SAFETY: a word of the array that outlives the scope, touched atomically.
                        let _one_of_four = unsafe { p.compare_exchange_word(at, old, old + 1) };
                    }
                });
            }
        });
        let mut value = 0;
        let trace = recorder.take();
        assert_eq!(trace.len(), 400);
        let mut threads = std::collections::HashSet::new();
        for event in trace {
            threads.insert(event.thread);
            let What::CompareExchange { old, new, done, .. } = event.what else {
                panic!("{event:?}")
            };
            assert_eq!(done, old == value);
            value = if done { new } else { value };
        }
        assert_eq!(threads.len(), 4);
    }

    /// A new file without a name.
    #[cfg(all(unix, not(miri)))]
    fn scratch(name: &str) -> File {
        let path = std::env::temp_dir().join(format!("recorder-{name}-{}", std::process::id()));
        let how = super::super::OpenHow { create: true, create_new: true, mode: 0o600 };
        let platform = Platform::native();
        let file = platform.open(&platform.name(&path).unwrap(), how).unwrap();
        std::fs::remove_file(path).unwrap();
        file
    }

    #[cfg(all(unix, not(miri)))]
    #[test]
    fn calls_are_noted_and_can_be_made_to_fail() {
        let recorder = Recorder::new();
        let p = recorder.platform();
        let f = scratch("calls");
        let file = FileId::Reflection;

        recorder.fail_next(call::SET_LEN, 2, ErrorKind::StorageFull);
        p.set_file_len(&f, file, 100).unwrap();
        let failed = p.set_file_len(&f, file, 200).unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::StorageFull);
        assert_eq!(p.stat(&f).unwrap().len, 100, "it was not made");
        p.set_file_len(&f, file, 300).unwrap();
        p.sync_data(&f, file).unwrap();
        p.sync_all(&f, file).unwrap();
        assert_eq!(
            whats(&recorder),
            [
                What::SetLen { file, len: 100 },
                What::Failed(call::SET_LEN),
                What::Os(call::STAT),
                What::SetLen { file, len: 300 },
                What::Sync { file, all: false },
                What::Sync { file, all: true },
            ]
        );
        assert!(!recorder.heal());

        recorder.fail_next("any", 1, libc::EIO);
        let failed = p.sync_data(&f, file).unwrap_err();
        assert_eq!(failed.raw_os_error(), Some(libc::EIO));
        p.sync_data(&f, file).unwrap();

        recorder.fail_from(call::SYNC_DATA, 2, libc::EIO);
        assert!(p.sync_data(&f, file).is_ok());
        assert!(p.sync_data(&f, file).is_err());
        assert!(p.sync_data(&f, file).is_err());
        assert!(!recorder.heal());
        assert!(p.sync_data(&f, file).is_ok());

        recorder.fail_next(call::SYNC_DATA, 2, libc::EIO);
        assert!(p.sync_data(&f, file).is_ok());
        assert!(recorder.heal(), "it has not come up");
        assert!(p.sync_data(&f, file).is_ok());
    }

    #[cfg(all(unix, not(miri)))]
    #[test]
    fn interrupted_and_short_calls_are_continued() {
        let recorder = Recorder::new();
        let p = recorder.platform();
        let f = scratch("short");
        let file = FileId::Home;

        recorder.fail_next(call::WRITE, 1, Fault::Short(2));
        recorder.fail_next(call::WRITE, 2, libc::EINTR);
        recorder.fail_next(call::WRITE, 3, Fault::Short(0));
        p.write_at(&f, file, b"abcdef", 10).unwrap();
        let write = |offset, bytes: &[u8]| What::Write { file, offset, bytes: bytes.to_vec() };
        assert_eq!(
            whats(&recorder),
            [write(10, b"ab"), What::Failed(call::WRITE), write(12, b"c"), write(13, b"def"),]
        );

        recorder.fail_next(call::READ, 1, ErrorKind::Interrupted);
        recorder.fail_next(call::READ, 2, Fault::Short(3));
        let mut back = [7; 10];
        p.read_at(&f, file, &mut back, 9).unwrap();
        assert_eq!(&back, b"\0abcdef\0\0\0");
        assert_eq!(
            whats(&recorder),
            [
                What::Failed(call::READ),
                What::Read { file, offset: 9, len: 3 },
                What::Read { file, offset: 12, len: 4 },
                What::Read { file, offset: 16, len: 0 },
            ]
        );

        recorder.fail_next(call::SYNC_DATA, 1, libc::EINTR);
        p.sync_data(&f, file).unwrap();
    }

    #[cfg(all(unix, not(miri)))]
    #[test]
    fn calls_without_support_are_done_without() {
        let recorder = Recorder::new();
        let p = recorder.platform();
        let f = scratch("unsupported");
        let file = FileId::Home;
        p.write_at(&f, file, b"kept", 5000).unwrap();
        recorder.take();

        recorder.fail_next(call::ALLOCATE, 1, libc::EOPNOTSUPP);
        p.allocate(&f, file, None, 0, 10_000).unwrap();
        assert_eq!(p.stat(&f).unwrap().len, 10_000);
        let mut back = [0; 4];
        p.read_at(&f, file, &mut back, 5000).unwrap();
        assert_eq!(&back, b"kept");
        let written: Vec<_> = whats(&recorder)
            .into_iter()
            .filter_map(|what| match what {
                What::Write { offset, bytes, .. } => Some((offset, bytes.len())),
                _ => None,
            })
            .collect();
        // In pieces of 512 bytes: the one that holds something is written behind it only.
        assert_eq!(written, [(0, 4608), (5004, 4996)]);

        // A full disk in the middle is an error, not a fallback.
        recorder.fail_next(call::ALLOCATE, 1, libc::ENOSPC);
        let full = p.allocate(&f, file, None, 0, 20_000).unwrap_err();
        assert_eq!(full.kind(), ErrorKind::StorageFull);

        recorder.fail_next(call::PUNCH, 1, libc::EOPNOTSUPP);
        assert!(!p.punch(&f, file, 0, 4096).unwrap());
        recorder.fail_next(call::NEXT_DATA, 1, libc::EINVAL);
        assert_eq!(p.next_data(&f, 77).unwrap(), Some(77));
        recorder.fail_next(call::NEXT_HOLE, 1, libc::EINVAL);
        assert_eq!(p.next_hole(&f, 77).unwrap(), 77);
        recorder.fail_next(call::SET_XATTR, 1, libc::EOPNOTSUPP);
        assert!(!p.set_xattr(&f, "user.x", b"1").unwrap());
        recorder.fail_next(call::GET_XATTR, 1, libc::EOPNOTSUPP);
        assert_eq!(p.get_xattr(&f, "user.x").unwrap(), None);
        recorder.fail_next(call::REMOVE_XATTR, 1, libc::EOPNOTSUPP);
        p.remove_xattr(&f, "user.x").unwrap();
        recorder.fail_next(call::BOOT_ID, 1, ErrorKind::NotFound);
        assert_eq!(p.boot_id().unwrap(), [0; 16]);
        recorder.fail_next(call::BOOT_ID, 1, libc::EMFILE);
        assert!(p.boot_id().is_err(), "known, and not read now");
        recorder.fail_next(call::MAP, 1, libc::ENOMEM);
        assert!(p.map(&f, 2 << 20, false).is_err());
        assert!(!recorder.heal());
    }

    #[test]
    #[should_panic(expected = "no call is named")]
    fn a_misspelt_name_is_caught() {
        Recorder::new().fail_next("fsnyc", 1, ErrorKind::Other);
    }
}
