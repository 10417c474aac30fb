//! The log: one line for each refusal and each failure, in the file that `ATOMIC_MMAP_LOG` names.
//!
//! May import: `inside`, `settings`.

use crate::inside::Inside;
use crate::settings;
use std::io::Write;

/// Appends a line to the log, if there is one. A line is one write, so lines of several processes
/// do not mix.
pub(crate) fn line(text: &str) {
    let Some(path) = settings::log() else { return };
    let _inside = Inside::enter();
    let program = std::env::args_os().next().unwrap_or_default();
    let program = program.to_string_lossy();
    let program = program.rsplit('/').next().unwrap_or_default();
    let line = format!("{program}[{}]: {text}\n", std::process::id());
    let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
    // A program that cannot log goes on.
    let _unlogged = file.and_then(|mut file| file.write_all(line.as_bytes()));
}
