//! Counters of operations and their costs, without shared cache lines.
//!
//! Each lane has its own block of counters, so counting never makes two threads write one line. The
//! sum over the blocks is exact once the counted operations have returned.
//!
//! May import nothing of the crate.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $field:ident = $counter:ident,)*) => {
        /// A counter.
        #[derive(Clone, Copy, Debug)]
        pub(crate) enum Counter { $($counter,)* }

        const COUNTERS: usize = [$(Counter::$counter,)*].len();

        /// Counts of what a file's handles did since it was opened. Counted per operation, not per
        /// byte copied on behalf of the caller, unless the field says bytes.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize))]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[doc = $doc])* pub $field: u64,)*
            /// Bytes of reflection pages, and of the words of their slices, that are allocated as
            /// far as this open knows. Not a count: it falls when pages are given back.
            pub reflection_allocated: u64,
        }

        impl Stats {
            pub(crate) fn add(&mut self, block: &Block) {
                $(self.$field += block.get(Counter::$counter);)*
            }

            /// Returns what was counted since `before`, an earlier value of this file.
            /// `reflection_allocated` stays what it is now.
            pub fn delta(&self, before: &Stats) -> Stats {
                Stats {
                    $($field: self.$field.wrapping_sub(before.$field),)*
                    reflection_allocated: self.reflection_allocated,
                }
            }

            /// Returns the numbers of several files in the text format of Prometheus. Each file has
            /// a name, which becomes the label `file`.
            ///
            /// ```
            /// # let dir = atomic_mmap::doctest_dir();
            /// use atomic_mmap::{AtomicMappedFile, Stats};
            ///
            /// let f = AtomicMappedFile::create(dir.path().join("state.dat"), 4096)?;
            /// let before = f.stats();
            /// f.write_at(b"counted", 0)?;
            /// let text = Stats::prometheus(&[("state", f.stats().delta(&before))]);
            /// assert!(text.contains("atomic_mmap_bytes_asked_total{file=\"state\"} 7\n"));
            /// # Ok::<(), atomic_mmap::Error>(())
            /// ```
            pub fn prometheus(files: &[(&str, Stats)]) -> String {
                let mut text = String::new();
                let mut metric = |name: &str, kind, help: &str, value: fn(&Stats) -> u64| {
                    let name = format!("atomic_mmap_{name}");
                    text += &format!("# HELP {name} {}\n# TYPE {name} {kind}\n", help.trim());
                    for (file, stats) in files {
                        let file = file.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
                        text += &format!("{name}{{file=\"{file}\"}} {}\n", value(stats));
                    }
                };
                $(metric(
                    concat!(stringify!($field), "_total"),
                    "counter",
                    concat!($($doc),*),
                    |stats| stats.$field,
                );)*
                metric(
                    "reflection_allocated_bytes",
                    "gauge",
                    "Bytes that are allocated in the reflection file.",
                    |stats| stats.reflection_allocated,
                );
                text
            }
        }
    };
}

counters! {
    /// Reads that returned: `read_at`, `load`, reads of transactions.
    reads = Reads,
    /// Times that a read found its pages changed meanwhile and began again.
    read_retries = ReadRetries,
    /// Writes that were committed by flipping one word that a log record covers: one drain.
    logged_flip_writes = LoggedFlips,
    /// Writes that were committed by flipping one word alone: two drains.
    flip_writes = Flip,
    /// Writes and transactions that were committed by an undo record of several words: three
    /// drains.
    undo_writes = Undo,
    /// Writes of slices without a free slot, committed by a redo record: a view pins their page, or
    /// they have changed since the last durable point. They take three drains. A fourth is needed
    /// if active log records had to be invalidated, or if other slices of the write flip.
    redo_writes = Redo,
    /// Writes counted in `undo_writes` or `redo_writes` with a record that did not fit its lane.
    /// The rest of it went to the log area.
    overflow_records = Overflow,
    /// Writes in RAM that a single instruction stored directly to the valid slot.
    direct_writes = DirectStore,
    /// Transactions that were committed. Single-call writes are not counted.
    transactions = Transactions,
    /// Transactions that were not committed because something they had read has changed.
    conflicts = Conflicts,
    /// Waits for earlier stores to be durable. Counted as well on a medium where no wait is needed.
    drains = Drains,
    /// Additional drains that wrote back words which an active log record covered.
    word_write_backs = WordWriteBacks,
    /// Bytes that callers asked to be written.
    bytes_asked = BytesAsked,
    /// Bytes that were written to the medium for these writes, in whole cache lines.
    bytes_written = BytesWritten,
    /// Pages that were verified by their sums for the first time after the open.
    pages_verified = PagesVerified,
    /// Times that the bytes of a page did not fit its sum.
    damaged_pages = DamagedPages,
    /// Passes of the scrub over the whole file that were finished.
    scrub_passes = ScrubPasses,
    /// Pages that were deployed: all their valid slices were copied to the home file.
    deployments = Deployments,
    /// Pages among them that were cold, and were deployed in the background.
    cold_deployments = ColdDeployments,
    /// Times that an operation waited for room in the budget of the companions.
    budget_waits = BudgetWaits,
    /// Views that were given out.
    views = Views,
    /// Calls of `sync` that returned.
    syncs = Syncs,
    /// Durable points that were made through the journal: one write.
    journal_points = JournalPoints,
    /// Durable points for which both files were synced.
    flush_points = FlushPoints,
    /// Durable points that were due by `Options::sync_every` and failed.
    failed_points = FailedPoints,
    /// Times that both files were synced to free room in the journal.
    checkpoints = Checkpoints,
    /// Snapshots that were sealed.
    snapshots = Snapshots,
    /// Automatic snapshots that could not be sealed.
    failed_snapshots = FailedSnapshots,
    /// Slices of 64 bytes that were kept for snapshots.
    kept_slices = KeptSlices,
    /// Chunks of 2 MiB that were allocated as a whole.
    allocations = Allocations,
    /// Chunks that the background thread has allocated before a writer came to them.
    allocations_ahead = AllocationsAhead,
    /// Chunks in RAM that became one page of the processor. On persistent memory the kernel maps
    /// such pages by itself, and nothing is counted.
    huge_pages = HugePages,
    /// Chunks of the reflection file that were given back to the file system.
    punches = Punches,
}

/// The counters of one lane.
#[derive(Debug)]
pub(crate) struct Block([AtomicU64; COUNTERS]);

impl Block {
    pub fn new() -> Self {
        Block([const { AtomicU64::new(0) }; COUNTERS])
    }

    /// Adds `n`, and returns the new count. A load and a store suffice, not one atomic step: a
    /// block has one writer at a time.
    #[inline]
    pub fn bump(&self, counter: Counter, n: u64) -> u64 {
        let count = &self.0[counter as usize];
        let now = count.load(Ordering::Relaxed).wrapping_add(n);
        count.store(now, Ordering::Relaxed);
        now
    }

    pub fn get(&self, counter: Counter) -> u64 {
        self.0[counter as usize].load(Ordering::Relaxed)
    }
}
