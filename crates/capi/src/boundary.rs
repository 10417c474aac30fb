//! The way of each call across the boundary: errors become numbers, and panics end here.
//!
//! Invariant: `call` is the only way in. So a panic never unwinds into C, a thread is cancelled
//! outside of calls alone, and the last error is that of the thread's latest failed call.

use crate::code::{self, ATO_CLOSED_WITH_COMPANIONS, ATO_EPANIC};
use crate::memory;
use atomic_mmap::{AtomicMappedFile, CloseMode, Closed, Error, Interface};
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The reason why a call failed.
#[derive(Debug)]
pub(crate) struct Failure {
    code: c_int,
    text: String,
}

impl Failure {
    /// Returns the failure of a call with a wrong argument.
    pub(crate) fn argument(text: impl Into<String>) -> Failure {
        Failure::new(libc::EINVAL, text)
    }

    /// Returns a failure with a number of the system.
    pub(crate) fn new(errno: c_int, text: impl Into<String>) -> Failure {
        Failure { code: -errno, text: text.into() }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let text = atomic_mmap::in_words_of(Interface::C, &error.to_string());
        Failure { code: code::of(&error), text }
    }
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Puts off the cancellation of the calling thread until it is dropped.
///
/// A cancelled thread unwinds from the next call of the system, which may lie in the middle of the
/// crate: that unwinding is no panic, cannot be caught, and ends the process.
struct Uncancelled {
    #[cfg(any(target_os = "linux", target_vendor = "apple"))]
    before: c_int,
}

#[cfg(any(target_os = "linux", target_vendor = "apple"))]
mod cancellation {
    use std::ffi::c_int;

    pub const DISABLED: c_int = if cfg!(target_os = "linux") { 1 } else { 0 };

    // The crate `libc` has no such name.
    unsafe extern "C" {
        pub fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    }

    unsafe extern "C-unwind" {
        pub fn pthread_testcancel();
    }
}

/// Ends the calling thread if it is cancelled. The interface's functions are `C-unwind`, so that
/// it may unwind through them. A call that takes a handle back does not call this: the handle
/// would be lost.
pub(crate) fn end_if_cancelled() {
    #[cfg(any(target_os = "linux", target_vendor = "apple"))]
    // SAFETY: between here and the program only frames of this crate are left, none of which
    // catches an unwinding or leaves anything half done.
    unsafe {
        cancellation::pthread_testcancel()
    };
}

impl Uncancelled {
    fn new() -> Uncancelled {
        #[cfg(any(target_os = "linux", target_vendor = "apple"))]
        {
            let mut before = cancellation::DISABLED;
            // SAFETY: the place is writable. A thread that is not cancelled goes on.
            unsafe {
                cancellation::pthread_setcancelstate(cancellation::DISABLED, &raw mut before)
            };
            Uncancelled { before }
        }
        #[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
        Uncancelled {}
    }
}

#[cfg(any(target_os = "linux", target_vendor = "apple"))]
impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: the state was the thread's own, and the call is no point of cancellation.
        unsafe { cancellation::pthread_setcancelstate(self.before, std::ptr::null_mut()) };
    }
}

/// Closes a file. The number for companions that stay is no failure, but has a text.
pub(crate) fn close(file: AtomicMappedFile, mode: CloseMode) -> Result<()> {
    match file.close(mode)? {
        Closed::WithCompanions(why) => {
            let text = format!("closed, and complete as it is; its companions stay: {why}");
            Err(Failure { code: ATO_CLOSED_WITH_COMPANIONS, text })
        }
        _ => Ok(()),
    }
}

/// Runs the body of a call. Returns 0, or the number of the failure.
pub(crate) fn call(body: impl FnOnce() -> Result<()>) -> c_int {
    let _ends_first = Uncancelled::new();
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return 0,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
                .unwrap_or_default();
            let text = format!("panic in atomic-mmap: {text}; close the file");
            // The payload of a panic may panic itself when it is dropped.
            std::mem::forget(panic);
            Failure { code: ATO_EPANIC, text }
        }
    };
    let text = CString::new(atomic_mmap::shown(&failure.text).to_string()).unwrap_or_default();
    // A thread that ends may have dropped its text already.
    let _no_text = LAST.try_with(|last| *last.borrow_mut() = text);
    failure.code
}

/// Returns the message of the latest call of this thread that failed: what failed, where, and what
/// the caller can do. Empty if none has failed. Never NULL. Valid until the next failed call of the
/// thread.
///
/// Goroutines, and tasks of a pool, may go on in another thread between two calls: they use
/// `ato_explain`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn ato_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Copies the message of a failed call into the caller's buffer, and returns `code`, which is what
/// the call has returned. Written around the call, `ato_explain(ato_sync(file, NULL), text, len)`,
/// it belongs to that call whatever other threads do. Where a statement may move to another thread,
/// as in Go, a function in C has both.
///
/// The text ends with a zero byte, and is cut off if it is longer than the buffer. It is empty if
/// `code` is 0. Does nothing else with a buffer that is NULL or has no bytes.
///
/// # Safety
/// `buffer` is NULL, or names `len` bytes for this call alone.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_explain(code: c_int, buffer: *mut c_char, len: usize) -> c_int {
    // SAFETY: the caller names the buffer.
    let Ok(buffer) = (unsafe { memory::bytes_mut(buffer.cast(), len) }) else { return code };
    let Some(last) = buffer.len().checked_sub(1) else { return code };
    let copied = LAST.try_with(|text| {
        let text = text.borrow();
        let text = if code == 0 { "" } else { text.to_str().unwrap_or_default() };
        let fits = |end: &usize| text.is_char_boundary(*end);
        let end = (0..=last.min(text.len())).rev().find(fits).unwrap_or(0);
        buffer[..end].copy_from_slice(&text.as_bytes()[..end]);
        end
    });
    buffer[copied.unwrap_or(0)] = 0;
    code
}

/// An open file. Made by `ato_open` or `ato_mmap`. Any number of threads may use it at once.
pub struct ato_file {
    pub(crate) shared: Arc<Shared>,
    /// `true` if a mapping owns the handle.
    pub(crate) is_mapped: bool,
}

/// The part of a handle that its transactions share.
pub(crate) struct Shared {
    file: AtomicMappedFile,
    /// `true` after a panic in a call on this file.
    has_panicked: AtomicBool,
}

impl Shared {
    pub(crate) fn new(file: AtomicMappedFile) -> Arc<Shared> {
        Arc::new(Shared { file, has_panicked: AtomicBool::new(false) })
    }

    pub(crate) fn file(&self) -> &AtomicMappedFile {
        &self.file
    }

    pub(crate) fn into_file(self) -> AtomicMappedFile {
        self.file
    }

    /// Runs a call on the file. A panic in it ends the use of the file.
    pub(crate) fn with<R>(&self, body: impl FnOnce(&AtomicMappedFile) -> Result<R>) -> Result<R> {
        if self.has_panicked.load(Ordering::Relaxed) {
            let text = format!(
                "{}: a call on it has panicked; close the file",
                atomic_mmap::shown(self.file.path())
            );
            return Err(Failure { code: ATO_EPANIC, text });
        }
        let guard = OnPanic(&self.has_panicked);
        let result = body(&self.file);
        std::mem::forget(guard);
        result
    }
}

/// Notes a panic when it is dropped.
struct OnPanic<'a>(&'a AtomicBool);

impl Drop for OnPanic<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn last() -> String {
        // SAFETY: the text is valid until this thread's next failed call.
        unsafe { CStr::from_ptr(ato_last_error()) }.to_string_lossy().into_owned()
    }

    #[test]
    fn a_panic_becomes_a_number_and_ends_the_use_of_the_file() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = AtomicMappedFile::create(dir.path().join("f"), 4096).expect("a file");
        let shared = Shared::new(file);
        let panics = || shared.with(|_| -> Result<()> { panic!("on purpose") });
        assert_eq!(call(panics), ATO_EPANIC);
        assert!(last().contains("on purpose"), "{}", last());
        assert_eq!(call(|| shared.with(|_| Ok(()))), ATO_EPANIC);
        assert!(last().contains("close the file"), "{}", last());
    }

    #[test]
    fn each_thread_has_its_own_last_error() {
        assert_eq!(call(|| Err(Failure::argument("here\0and\x1b there"))), -libc::EINVAL);
        std::thread::spawn(|| assert_eq!(last(), "")).join().expect("no panic");
        assert_eq!(last(), r"here\u{0}and\u{1b} there");
        assert_eq!(call(|| Ok(())), 0);
        assert_eq!(last(), r"here\u{0}and\u{1b} there");
    }
}
