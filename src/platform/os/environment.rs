//! Environment variables.
//!
//! Owns: the crate's only look at them.
//!
//! Invariant: a program that has more rights than its caller, as a setuid program has, does not
//! obey its caller's variables. That is the rule of glibc's `secure_getenv`.
//!
//! May import: std and libc only.

use std::ffi::OsString;

/// Returns an environment variable. Returns `None` as well if this process has more rights than its
/// caller.
pub fn variable(name: &str) -> Option<OsString> {
    if has_more_rights_than_its_caller() { None } else { std::env::var_os(name) }
}

/// Returns `true` if the kernel gave the process other rights at its start than its caller has: by
/// setuid, by setgid, or by the capabilities of its file.
#[cfg(all(target_os = "linux", not(atomic_mmap_portable)))]
fn has_more_rights_than_its_caller() -> bool {
    // SAFETY: the call has no precondition. It reads a value that the kernel gave to the process.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Returns `true` if the process acts as another user or group than its caller.
#[cfg(all(unix, not(all(target_os = "linux", not(atomic_mmap_portable)))))]
fn has_more_rights_than_its_caller() -> bool {
    // SAFETY: the calls have no precondition and do not fail.
    unsafe { libc::geteuid() != libc::getuid() || libc::getegid() != libc::getgid() }
}

/// Returns `false`: other systems start no program with more rights in this way.
#[cfg(not(unix))]
fn has_more_rights_than_its_caller() -> bool {
    false
}
