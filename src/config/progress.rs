//! Reports of how far a long open or close has come.
//!
//! Invariant: the reports of one piece of work begin with 0, never go back, and end with the total
//! if the work succeeds. May import nothing from the crate.

use std::fmt;
use std::sync::Arc;

/// The progress of an open or a close, for [`Options::on_progress`](crate::Options::on_progress).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Progress {
    /// The work that is being done.
    pub work: Work,
    /// The part that is done, in bytes.
    pub done: u64,
    /// All of the work, in bytes. The work is over when `done` is `total`.
    pub total: u64,
}

/// Work that takes the longer the more bytes it has to move.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum Work {
    /// An open goes back to the last durable point: it replays the journal.
    Replay,
    /// A [spatial close](crate::CloseMode::Spatial) deploys bytes into the user's file. Counts
    /// whole regions of 256 KiB.
    Deploy,
    /// An open allocates the whole file, with [`Allocation::Full`](crate::Allocation::Full).
    Allocate,
    /// An open reckons the [sums](crate::Integrity) of all pages of a file that had none.
    Sum,
    /// [`verify`](crate::AtomicMappedFile::verify) reads pages. Counts whole regions of 256 KiB.
    Verify,
}

/// The function that a caller has given for reports.
type Report = Arc<dyn Fn(Progress) + Send + Sync>;

/// Reports progress, if a caller has asked for it.
#[derive(Clone, Default)]
pub(crate) struct Reporter(Option<Report>);

impl Reporter {
    pub fn new(report: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        Reporter(Some(Arc::new(report)))
    }

    /// Begins a piece of work of `total` bytes, and reports that.
    pub fn begin(&self, work: Work, total: u64) -> Meter<'_> {
        let meter = Meter { reporter: self, progress: Progress { work, done: 0, total } };
        meter.report();
        meter
    }
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Some(..)" } else { "None" })
    }
}

/// Counts the bytes of a piece of work.
pub(crate) struct Meter<'r> {
    reporter: &'r Reporter,
    progress: Progress,
}

impl Meter<'_> {
    /// Adds bytes that are done, and reports them.
    pub fn add(&mut self, bytes: u64) {
        if bytes > 0 {
            self.progress.done += bytes;
            self.report();
        }
    }

    fn report(&self) {
        if let Some(report) = &self.reporter.0 {
            report(self.progress);
        }
    }
}
