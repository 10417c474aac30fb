//! Parts of messages that depend on the system's error.
//!
//! Owns: the advice about limits, descriptors and space.
//!
//! May import: `doubt`, `shown`, libc and std.

use super::doubt::leaves_doubt;
use super::shown;
use std::io;

pub(super) const ADVICE: &str = "; drop every handle and open the file again to recover";

/// The step of a call that changes nothing.
pub(super) const READ_OPEN: &str = "open for reading";

pub(super) fn advice_after(call: &str, source: &io::Error) -> &'static str {
    if leaves_doubt(call) {
        ADVICE
    } else if call == READ_OPEN {
        "; the file needs read permission for this user, and its folders search permission"
    } else if is_out_of_descriptors(source) {
        "; an open file takes up to three descriptors: raise the limit (ulimit -n), or close \
         other files"
    } else {
        ""
    }
}

#[cfg(unix)]
fn is_out_of_descriptors(source: &io::Error) -> bool {
    matches!(source.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

#[cfg(not(unix))]
fn is_out_of_descriptors(_source: &io::Error) -> bool {
    false
}

/// Returns advice that names the exceeded limit. After `mlockall` the kernel returns EAGAIN, not
/// ENOMEM.
pub(super) fn address_space_advice(source: &io::Error) -> &'static str {
    if source.kind() == io::ErrorKind::WouldBlock {
        "or raise the limit of locked memory (ulimit -l), which counts every mapping of a process \
         that has called mlockall(MCL_FUTURE)"
    } else {
        "or raise what limits it: ulimit -v, or vm.max_map_count where very many files are open"
    }
}

pub(super) fn busy_message(in_this_process: bool, process: Option<u32>) -> String {
    if in_this_process {
        return "this process; share the handle with try_clone, or close it first".into();
    }
    let number = process.map_or_else(String::new, |number| format!(", number {number}"));
    format!(
        "another process{number}; only one process at a time may have it open, so that process has \
         to close it first, or end"
    )
}

pub(super) fn no_space_message(offset: u64, len: u64, source: &io::Error) -> String {
    let what = match (offset, len) {
        (0, 0) => String::new(),
        (_, 0) => format!(" at offset {offset}"),
        _ => format!(" for {len} bytes at offset {offset}"),
    };
    match source.kind() {
        io::ErrorKind::FileTooLarge => {
            let source = shown(&source.to_string()).to_string();
            format!("too long{what}: {source}; nothing was changed, raise the limit and call again")
        }
        io::ErrorKind::QuotaExceeded => format!(
            "no space left{what} within the quota; nothing was changed, free space or raise the \
             quota, and call again"
        ),
        _ => format!(
            "no space left{what}; nothing was changed, free space on the file system and call again"
        ),
    }
}

pub(super) fn at(offset: &Option<u64>) -> String {
    offset.map_or_else(String::new, |offset| format!(" at offset {offset}"))
}
