//! Progress on a terminal, and the end by SIGINT.

use crate::args::Common;
use crate::outcome::Failure;
use crate::place::{self, Scratch};
use crate::report::{draw, human, tell};
use atomic_mmap::{Options, Progress, Work};
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The exit code of an interrupted command: 128 and the number of SIGINT.
const INTERRUPTED: i32 = 130;

/// Ends the process on SIGINT. To the files of a pair that is a crash, after which the next open
/// recovers. So nothing has to be finished, and only scratch folders are removed.
pub fn end_on_interrupt(only_reads: bool) {
    let said = if only_reads {
        "interrupted; nothing was changed\n"
    } else {
        "interrupted; the next open recovers the file\n"
    };
    let handler = move || {
        // Held until the process ends, so that the command makes no other folder, and does not end
        // by an exit code of its own after it has missed a file of these.
        let _held = place::remove_all();
        tell(said);
        std::process::exit(INTERRUPTED);
    };
    // Without a handler the process ends as well.
    let _best_effort = ctrlc::set_handler(handler);
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

    pub fn home(&self) -> &Scratch {
        &self.home
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
            draw(&format!("\r\x1b[K{what}: {} of {}{end}", human(done), human(total)));
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
