//! Progress on a terminal, and the end by SIGINT.

use crate::args::Common;
use crate::outcome::Failure;
use crate::report::{human, tell};
use atomic_mmap::{Options, Progress, Work};
use std::io::{ErrorKind, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The exit code of an interrupted command: 128 and the number of SIGINT.
const INTERRUPTED: i32 = 130;

/// Folders to remove if the command is interrupted. They are made and removed under the lock.
static TO_REMOVE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn to_remove() -> MutexGuard<'static, Vec<PathBuf>> {
    TO_REMOVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the process on SIGINT. To the files of a pair that is a crash, after which the next open
/// recovers. So nothing has to be finished, and only scratch folders are removed.
pub fn end_on_interrupt() {
    let handler = || {
        // Held until the process ends, so that the command makes no other folder, and does not end
        // by an exit code of its own after it has missed a file of these.
        let folders = to_remove();
        folders.iter().for_each(|folder| remove(folder));
        tell("interrupted; the next open recovers the file\n");
        std::process::exit(INTERRUPTED);
    };
    // Without a handler the process ends as well.
    let _best_effort = ctrlc::set_handler(handler);
}

/// Removes a scratch folder. The command may still make files in it, but none after the removal.
fn remove(folder: &Path) {
    /// More removals than a command makes files.
    const MOST: usize = 100;
    let is_full = |_: &usize| {
        let removed = std::fs::remove_dir_all(folder);
        removed.is_err_and(|error| error.kind() == ErrorKind::DirectoryNotEmpty)
    };
    let _best_effort = (0..MOST).take_while(is_full).count();
}

/// A scratch folder, removed on drop and on SIGINT.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn within(folder: &Path) -> Result<Scratch, Failure> {
        let mut to_remove = to_remove();
        let made = tempfile::Builder::new().prefix(".atomic-mmap-scratch-").tempdir_in(folder);
        let path = made.map_err(Failure::io(folder))?.keep();
        to_remove.push(path.clone());
        Ok(Scratch(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let mut to_remove = to_remove();
        remove(&self.0);
        to_remove.retain(|folder| *folder != self.0);
    }
}

/// A scratch folder for a home file, and one for its companions if these have a folder of their
/// own: a killed process leaves companions there too.
pub struct PairScratch {
    home: Scratch,
    companions: Option<Scratch>,
}

impl PairScratch {
    pub fn within(folder: &Path, common: &Common) -> Result<PairScratch, Failure> {
        let companions = common.reflection_dir.as_deref().map(Scratch::within).transpose()?;
        Ok(PairScratch { home: Scratch::within(folder)?, companions })
    }

    pub fn path(&self) -> &Path {
        self.home.path()
    }

    /// Returns the options of the command, with the companions in the scratch folder for them.
    pub fn options(&self, common: &Common) -> Options {
        let options = common.options();
        match &self.companions {
            Some(companions) => options.reflection_dir(companions.path()),
            None => options,
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
            Work::Allocate => "allocating storage",
            Work::Replay => "going back to the last durable point",
            _ => "bringing bytes home",
        };
        if let Ok(mut line) = line.lock() {
            line.show(what, done, total);
        }
    })
}
