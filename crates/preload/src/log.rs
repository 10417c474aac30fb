//! The log: one line for each refusal and each failure, in the file that `ATOMIC_MMAP_LOG` names.
//!
//! Invariant: a line has no control characters, whatever names it holds, and a file that another
//! user has put in the log's place does not stop the program. Links are followed, as `/dev/stderr`
//! is one. The kernel refuses those of other users in sticky folders.
//!
//! May import: `inside`, `settings`.

use crate::inside::Inside;
use crate::settings;
use atomic_mmap::shown;
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;

/// Appends a line to the log, if there is one. A line is one write, so lines of several processes
/// do not mix.
pub(crate) fn line(text: &str) {
    let Some(path) = settings::log() else { return };
    let _inside = Inside::enter();
    let program = std::env::args_os().next().unwrap_or_default();
    let program = program.as_bytes().rsplit(|&c| c == b'/').next().unwrap_or_default();
    let program = shown(OsStr::from_bytes(program));
    let line = format!("{program}[{}]: {}\n", std::process::id(), shown(text));
    // A pipe without a reader is no log, and a terminal does not become the program's own.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().append(true).create(true).custom_flags(flags).open(path);
    // A program that cannot log goes on.
    let _unlogged = file.and_then(|mut file| file.write_all(line.as_bytes()));
}
