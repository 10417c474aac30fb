//! Progress on a terminal, and the end by SIGINT.

use crate::outcome::Failure;
use crate::report::{human, tell};
use atomic_mmap::{Options, Progress, Work};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The exit code of an interrupted command: 128 and the number of SIGINT.
const INTERRUPTED: i32 = 130;

/// A folder to remove if the command is interrupted.
static TO_REMOVE: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Ends the process on SIGINT. To the files of a pair that is a crash, after which the next open
/// recovers. So nothing has to be finished, and only scratch folders are removed.
pub fn end_on_interrupt() {
    let handler = || {
        if let Ok(Some(folder)) = TO_REMOVE.lock().as_deref() {
            let _best_effort = std::fs::remove_dir_all(folder);
        }
        tell("interrupted; the next open recovers the file\n");
        std::process::exit(INTERRUPTED);
    };
    // Without a handler the process ends as well.
    let _best_effort = ctrlc::set_handler(handler);
}

/// A scratch folder, removed on drop and on SIGINT.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn within(folder: &Path) -> Result<Scratch, Failure> {
        let made = tempfile::Builder::new().prefix(".atomic-mmap-scratch-").tempdir_in(folder);
        let path = made.map_err(Failure::io(folder))?.keep();
        if let Ok(mut to_remove) = TO_REMOVE.lock() {
            *to_remove = Some(path.clone());
        }
        Ok(Scratch(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _best_effort = std::fs::remove_dir_all(&self.0);
        if let Ok(mut to_remove) = TO_REMOVE.lock() {
            *to_remove = None;
        }
    }
}

/// A line on the terminal that is written over. Nothing elsewhere.
pub struct Line {
    is_shown: bool,
    last: Option<Instant>,
}

impl Line {
    pub fn new() -> Self {
        Line { is_shown: std::io::stderr().is_terminal(), last: None }
    }

    pub fn show(&mut self, what: &str, done: u64, total: u64) {
        let is_due = self.last.is_none_or(|last| last.elapsed() >= Duration::from_millis(100));
        if self.is_shown && (is_due || done == total) {
            self.last = Some(Instant::now());
            let end = if done == total { "\r\x1b[K" } else { "" };
            tell(&format!("\r\x1b[K{what}: {} of {}{end}", human(done), human(total)));
        }
    }
}

/// Shows how far a long open or close has come.
pub fn shown(options: Options) -> Options {
    let line = Mutex::new(Line::new());
    options.on_progress(move |Progress { work, done, total, .. }| {
        let what = match work {
            Work::Replay => "going back to the last durable point",
            _ => "bringing bytes home",
        };
        if let Ok(mut line) = line.lock() {
            line.show(what, done, total);
        }
    })
}
