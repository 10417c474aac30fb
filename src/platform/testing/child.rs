//! A child of `fork` that runs a part of a unit test.

/// Forks, runs `body` in the child, and returns the exit code that `body` returned. The child has
/// the memory and the descriptors of its parent, and only the thread that called.
///
/// `body` may use the heap, since glibc keeps it usable in a child, and no lock that another thread
/// could hold, unless the test asks for just that. Nothing of the parent is cleaned up in the
/// child: `body` drops what it has to drop itself.
///
/// # Panics
///
/// If a signal ended the child. One does after 60 seconds, so that a child that waits for a lock
/// fails the test.
pub fn exit_code_of(body: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child runs `body`, and then ends without a return to its caller's frames.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork failed");
    if child == 0 {
        // SAFETY: no precondition.
        unsafe { libc::alarm(60) };
        // A panic would unwind into the parent's test harness, of which the child has a copy.
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        // SAFETY: no precondition; none of the parent's cleanup is run.
        unsafe { libc::_exit(ran.unwrap_or(101)) }
    }
    let mut status = 0;
    // SAFETY: our own child, and a live local for its status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "signal {} ended the child", libc::WTERMSIG(status));
    libc::WEXITSTATUS(status)
}
