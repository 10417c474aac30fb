//! An asymmetric pair of fences: one thread learns what others do without slowing them down.
//!
//! Owns: the two fences. Many threads run the light one often, one thread runs the heavy one
//! rarely. Together they order like two sequentially consistent fences.
//!
//! On Linux the light one is a fence for the compiler only. The heavy one is the `membarrier`
//! system call, which runs a full fence on every processor that runs a thread of this process. If a
//! filter (seccomp) that is set later refuses the call, the thread visits every processor instead.
//! On other systems, and where the call is refused from the start, both are full fences. They are
//! also full fences under a model checker (`--cfg loom`, `--cfg shuttle`), which knows no
//! asymmetric ones.
//!
//! Why it matters: a full fence, or any locked instruction, as in the pin of an epoch collector,
//! ends the overlap of independent cache misses. Random reads of 64 bytes took 240 ns with a fence
//! and 80 ns without (1 GiB on tmpfs, EPYC Zen 4).
//!
//! Invariant: [`prepare`] chooses one of the two kinds before the first light fence, and the choice
//! never changes.
//!
//! May import: libc, std, the fence of `primitive`, and the planted bugs.

use crate::mutant::planted;
use crate::primitive::fence;
use std::sync::atomic::{AtomicBool, Ordering, compiler_fence};

/// `true` if the system fences other threads on request.
static ASYMMETRIC: AtomicBool = AtomicBool::new(false);

/// Chooses the kind of fences. Called before any handle exists; does its work once.
pub fn prepare() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| ASYMMETRIC.store(register(), Ordering::Relaxed));
}

/// The light fence, for the many threads. Either the thread that then runs the heavy fence sees
/// this thread's earlier stores, or this thread's later loads see the stores before the heavy
/// fence.
#[inline]
pub fn light() {
    if ASYMMETRIC.load(Ordering::Relaxed) {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// Returns `true` if the light fence is the usual one of this system, so that [`usual`] may replace
/// [`light`]. Called after [`prepare`].
pub fn is_usual() -> bool {
    ASYMMETRIC.load(Ordering::Relaxed) == MAY_BE_ASYMMETRIC
}

/// The light fence without a check of its kind. The caller has checked that it [is the usual
/// one](is_usual).
#[inline]
pub fn usual() {
    if MAY_BE_ASYMMETRIC {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// The heavy fence, for the one thread.
pub fn heavy() {
    fence(Ordering::SeqCst);
    if ASYMMETRIC.load(Ordering::Relaxed) {
        let done =
            fence_all_threads() || !planted!(RefusedFenceNotReplaced) && visit_every_processor();
        assert!(
            done,
            "a filter (seccomp) refuses membarrier and sched_setaffinity, which were allowed when \
             the process opened its first file; allow one of them, or set the filter before that"
        );
    }
    fence(Ordering::SeqCst);
}

#[cfg(all(target_os = "linux", not(any(atomic_mmap_portable, miri, loom, shuttle))))]
mod call {
    pub const MAY_BE_ASYMMETRIC: bool = true;

    fn membarrier(command: libc::c_int) -> bool {
        // SAFETY: the call takes numbers only and touches no memory of ours.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }

    pub fn register() -> bool {
        membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
    }

    /// Returns `false` if the call is refused.
    pub fn fence_all_threads() -> bool {
        // A child of `fork` may have to register again. A filter may refuse both calls.
        membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
            || register() && membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
    }

    /// Runs the calling thread on every processor that the process may use, one after the other.
    /// Returns `false` if the system refuses that.
    ///
    /// When this thread runs on a processor, any other thread that ran there has been switched out.
    /// The kernel executes a full fence at each switch. A thread that did not run, or moved on, was
    /// switched, too. The processors are those of this thread's cpuset: a process that has threads
    /// with different cpusets is not supported.
    pub fn visit_every_processor() -> bool {
        // The kernel's own mask: up to 8192 processors.
        type Mask = [u64; 128];
        let mut before: Mask = [0; 128];
        // SAFETY: the call writes no more bytes than the mask has, since that is the length it is
        // given.
        let len = unsafe {
            libc::syscall(libc::SYS_sched_getaffinity, 0, size_of::<Mask>(), before.as_mut_ptr())
        };
        let Ok(len) = usize::try_from(len) else { return false };
        let set = |mask: &Mask| {
            // SAFETY: the call reads `len` bytes, which the mask has: the kernel has filled `len`
            // bytes of one.
            let refused =
                unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, len, mask.as_ptr()) } != 0;
            if refused { std::io::Error::last_os_error().raw_os_error() } else { None }
        };
        let mut visited = 0;
        for processor in 0..len * 8 {
            let mut only: Mask = [0; 128];
            only[processor / 64] = 1 << (processor % 64);
            // On return the thread runs there.
            match set(&only) {
                None => visited += 1,
                // No processor has this number, or it is not ours.
                Some(libc::EINVAL) => {}
                Some(_) => break,
            }
        }
        let _stays_on_the_last_one_else = set(&before);
        visited > 0
    }
}

#[cfg(not(all(target_os = "linux", not(any(atomic_mmap_portable, miri, loom, shuttle)))))]
mod call {
    pub const MAY_BE_ASYMMETRIC: bool = false;

    pub fn register() -> bool {
        false
    }

    pub fn fence_all_threads() -> bool {
        true
    }

    pub fn visit_every_processor() -> bool {
        true
    }
}

use call::{MAY_BE_ASYMMETRIC, fence_all_threads, register, visit_every_processor};

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn light_and_heavy_order_like_full_fences() {
        prepare();
        dekker(2_000, heavy);
    }

    /// The replacement for a call that is refused.
    #[test]
    #[cfg(all(target_os = "linux", not(any(atomic_mmap_portable, miri))))]
    fn a_thread_that_visits_every_processor_fences_the_others() {
        prepare();
        dekker(500, || assert!(visit_every_processor()));
    }

    /// Dekker's mutual exclusion with one light and one heavy side: never do both enter.
    fn dekker(rounds: usize, heavy: impl Fn()) {
        for _ in 0..rounds {
            let (x, y) = (AtomicU64::new(0), AtomicU64::new(0));
            let (a, b) = std::thread::scope(|s| {
                let many = s.spawn(|| {
                    x.store(1, Ordering::Relaxed);
                    light();
                    y.load(Ordering::Relaxed)
                });
                y.store(1, Ordering::Relaxed);
                heavy();
                let b = x.load(Ordering::Relaxed);
                (many.join().expect("no panic"), b)
            });
            assert!(a == 1 || b == 1);
        }
    }
}
