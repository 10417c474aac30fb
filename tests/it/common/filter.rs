//! Answers to system calls that the kernel gives instead of the calls.
//!
//! Tests of other packages and the program `power` include this file by its path.

use std::io;

/// Ends these calls of this thread, and of the threads and processes that it starts, with an error
/// number from now on. With the number 0 a call succeeds and does nothing.
///
/// # Errors
/// If the kernel has no filters of calls (seccomp).
pub fn answer(calls: &[(libc::c_long, libc::c_int)]) -> io::Result<()> {
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    // The call's number comes first in `seccomp_data`.
    let mut program = vec![step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
    for (call, errno) in calls {
        program.push(step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, *call as u32));
        let answer = libc::SECCOMP_RET_ERRNO | *errno as u32;
        program.push(step(libc::BPF_RET | libc::BPF_K, 0, 0, answer));
    }
    program.push(step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW));
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the program outlives the call, and the other arguments are plain numbers.
    let is_set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
    };
    if is_set { Ok(()) } else { Err(io::Error::last_os_error()) }
}
