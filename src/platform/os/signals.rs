//! Signals of the process, and threads of the library.
//!
//! Invariant: a thread that starts [`without`] signals runs no handler of the program. The system
//! gives a signal of the process to any thread that does not block it, so a program that blocks one
//! for a while, or waits for it, relies on all threads.
//!
//! May import: libc and std.

/// Runs `body` with all signals blocked that the system sends to a process. A thread that `body`
/// starts has them blocked for its life. Faults of a thread itself arrive all the same.
pub fn without<R>(body: impl FnOnce() -> R) -> R {
    let _restored = block();
    body()
}

/// The signals that a thread blocked before.
#[cfg(unix)]
struct Before(libc::sigset_t);

#[cfg(unix)]
impl Drop for Before {
    fn drop(&mut self) {
        // SAFETY: a set that the system has filled. The call fails with a wrong command alone.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut())
        };
    }
}

#[cfg(unix)]
fn block() -> Before {
    const FAULTS: [libc::c_int; 5] =
        [libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGSEGV, libc::SIGTRAP];
    // SAFETY: all zeroes are a value of this type, and the calls fill the sets. The call fails with
    // a wrong command alone.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        for fault in FAULTS {
            libc::sigdelset(&raw mut all, fault);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        Before(before)
    }
}

#[cfg(not(unix))]
fn block() {}

#[cfg(all(test, unix, not(miri)))]
mod tests {
    use super::*;

    fn blocks(signal: libc::c_int) -> bool {
        // SAFETY: as in `block`. Without a new set the call only tells the present one.
        unsafe {
            let mut now: libc::sigset_t = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &raw mut now);
            libc::sigismember(&raw const now, signal) == 1
        }
    }

    #[test]
    fn a_thread_that_starts_without_signals_gets_its_faults_alone() {
        let told = || (blocks(libc::SIGTERM), blocks(libc::SIGSEGV));
        let before = told();
        assert_eq!(without(|| std::thread::spawn(told)).join().expect("ends"), (true, false));
        assert_eq!(told(), before, "the caller has its signals again");
    }
}
