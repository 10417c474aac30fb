//! `ato_stats`: counts of operations and their costs.
//!
//! Invariant: a field is only ever added at the end.

use crate::boundary::{Failure, ato_file, call};
use crate::memory;
use std::ffi::c_int;

/// Counts of what a file's handles did since it was opened.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ato_stats {
    /// Reads that returned: `read_at`, `load`, reads of transactions.
    pub reads: u64,
    /// Times that a read found its pages changed meanwhile and began again.
    pub read_retries: u64,
    /// Writes that were committed by flipping one word that a log record covers: one drain.
    pub logged_flip_writes: u64,
    /// Writes that were committed by flipping one word alone: two drains.
    pub flip_writes: u64,
    /// Writes and transactions that were committed by an undo record of several words: three
    /// drains.
    pub undo_writes: u64,
    /// Writes of slices without a free slot, committed by a redo record: a view pins their page, or
    /// they have changed since the last durable point. They take three drains. A fourth is needed
    /// if active log records had to be invalidated, or if other slices of the write flip.
    pub redo_writes: u64,
    /// Writes counted in `undo_writes` or `redo_writes` with a record that did not fit its lane.
    /// The rest of it went to the log area.
    pub overflow_records: u64,
    /// Writes in RAM that a single instruction stored directly to the valid slot.
    pub direct_writes: u64,
    /// Transactions that were committed. Single-call writes are not counted.
    pub transactions: u64,
    /// Transactions that were not committed because something they had read has changed.
    pub conflicts: u64,
    /// Waits for earlier stores to be durable. Counted as well on a medium where no wait is needed.
    pub drains: u64,
    /// Additional drains that wrote back words which an active log record covered.
    pub word_write_backs: u64,
    /// Bytes that callers asked to be written.
    pub bytes_asked: u64,
    /// Bytes that were written to the medium for these writes, in whole cache lines.
    pub bytes_written: u64,
    /// Pages that were deployed: all their valid slices were copied to the home file.
    pub deployments: u64,
    /// Views that were given out.
    pub views: u64,
    /// Calls of `sync` that returned.
    pub syncs: u64,
    /// Durable points that were made through the journal: one write.
    pub journal_points: u64,
    /// Durable points for which both files were synced.
    pub flush_points: u64,
    /// Durable points that were due by `sync_every_ms` and failed.
    pub failed_points: u64,
    /// Times that both files were synced to free room in the journal.
    pub checkpoints: u64,
    /// Chunks of 2 MiB that were allocated as a whole.
    pub allocations: u64,
    /// Chunks of the reflection file that were given back to the file system.
    pub punches: u64,
    /// Bytes of reflection pages, and of the words of their slices, that are allocated as far as
    /// this open knows. Not a count: it falls when pages are given back.
    pub reflection_allocated: u64,
    /// Snapshots that were taken.
    pub snapshots: u64,
    /// Automatic snapshots that could not be taken.
    pub failed_snapshots: u64,
    /// Slices of 64 bytes that were kept for snapshots.
    pub kept_slices: u64,
    /// Pages that were verified by their sums for the first time after the open.
    pub pages_verified: u64,
    /// Times that the bytes of a page did not fit its sum.
    pub damaged_pages: u64,
    /// Passes of the scrub over the whole file that were finished.
    pub scrub_passes: u64,
    /// Pages among `deployments` that were cold, and were deployed in the background:
    /// `deploy_idle_ms` and `reflection_budget`.
    pub cold_deployments: u64,
    /// Times that an operation waited for room in `reflection_budget`.
    pub budget_waits: u64,
    /// Chunks that the library's own thread has allocated before a writer came to them.
    pub allocations_ahead: u64,
    /// Chunks in RAM that became one page of the processor.
    pub huge_pages: u64,
}

impl From<atomic_mmap::Stats> for ato_stats {
    fn from(stats: atomic_mmap::Stats) -> Self {
        ato_stats {
            reads: stats.reads,
            read_retries: stats.read_retries,
            logged_flip_writes: stats.logged_flip_writes,
            flip_writes: stats.flip_writes,
            undo_writes: stats.undo_writes,
            redo_writes: stats.redo_writes,
            overflow_records: stats.overflow_records,
            direct_writes: stats.direct_writes,
            transactions: stats.transactions,
            conflicts: stats.conflicts,
            drains: stats.drains,
            word_write_backs: stats.word_write_backs,
            bytes_asked: stats.bytes_asked,
            bytes_written: stats.bytes_written,
            deployments: stats.deployments,
            views: stats.views,
            syncs: stats.syncs,
            journal_points: stats.journal_points,
            flush_points: stats.flush_points,
            failed_points: stats.failed_points,
            checkpoints: stats.checkpoints,
            allocations: stats.allocations,
            punches: stats.punches,
            reflection_allocated: stats.reflection_allocated,
            snapshots: stats.snapshots,
            failed_snapshots: stats.failed_snapshots,
            kept_slices: stats.kept_slices,
            pages_verified: stats.pages_verified,
            damaged_pages: stats.damaged_pages,
            scrub_passes: stats.scrub_passes,
            cold_deployments: stats.cold_deployments,
            budget_waits: stats.budget_waits,
            allocations_ahead: stats.allocations_ahead,
            huge_pages: stats.huge_pages,
        }
    }
}

/// Stores the counts. `size` is `sizeof(ato_stats)`: a program of an earlier version gets the
/// counts that it knows. Counts that this version does not know become zero.
///
/// # Safety
/// `file` is an open handle. `stats` names `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_get_stats(
    file: *const ato_file,
    stats: *mut ato_stats,
    size: usize,
) -> c_int {
    call(|| {
        // SAFETY: the caller names the handle.
        let shared = &unsafe { memory::reference(file, "file") }?.shared;
        if stats.is_null() {
            return Err(Failure::argument("there is no place for the counts"));
        }
        let now = shared.with(|file| Ok(ato_stats::from(file.stats())))?;
        // SAFETY: the caller names `size` bytes.
        unsafe { memory::put_sized(stats, size, &now) };
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use atomic_mmap::Stats;

    /// Two counts of the core crate were missing here.
    #[test]
    fn each_count_of_the_core_crate_is_there() {
        let counts = format!("{:?}", ato_stats::default());
        let text = Stats::prometheus(&[("file", Stats::default())]);
        let names: Vec<&str> = text
            .lines()
            .filter_map(|line| {
                line.strip_prefix("# TYPE atomic_mmap_")?.strip_suffix("_total counter")
            })
            .collect();
        assert!(!names.is_empty(), "{text}");
        for name in names {
            assert!(counts.contains(&format!(" {name}: ")), "{name} is not in {counts}");
        }
    }
}
