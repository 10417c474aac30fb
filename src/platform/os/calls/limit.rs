//! The process's limit on the length of a file (`ulimit -f`).
//!
//! Owns: the refusal of calls beyond the limit, and its message.
//!
//! Invariant: a length that the file already has is never refused.
//!
//! May import: `sys` and std.

use crate::platform::os::sys;
use std::io::{self, ErrorKind};

/// Refuses to make the file `len` bytes long where the process's limit (`ulimit -f`) is less. The
/// kernel would send SIGXFSZ, which ends the process, and handling that signal is the program's
/// affair, not a library's. A length that the file already has is always allowed.
pub(super) fn allow_len(file: &std::fs::File, len: u64) -> io::Result<()> {
    match sys::longest_file() {
        Some(limit) if len > limit && file.metadata()?.len() < len => Err(too_long(len, limit)),
        _ => Ok(()),
    }
}

/// Refuses a write that ends past the process's limit: the kernel refuses it wherever the file
/// ends.
pub(super) fn allow_write(bytes: &[u8], offset: u64) -> io::Result<()> {
    let end = offset.saturating_add(bytes.len() as u64);
    match sys::longest_file() {
        Some(limit) if end > limit => Err(too_long(end, limit)),
        _ => Ok(()),
    }
}

fn too_long(len: u64, limit: u64) -> io::Error {
    let said = format!(
        "the process may make files of {limit} bytes at most (ulimit -f), and {len} are needed; a \
         reflection file is longer than its home file by 256 MiB and more, most of which are holes"
    );
    io::Error::new(ErrorKind::FileTooLarge, said)
}
