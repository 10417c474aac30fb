//! Checkpoints: syncs of both files, after which the journal needs its newest record only.
//!
//! May import `plan`, `pair`, and what lies below them.

use crate::config::Medium;
use crate::engine::Engine;
use crate::engine::durable::Durable;
use crate::error::{Error, Result, SYNC_FOR_A_POINT};
use crate::mmap::MappedFile;
use crate::mutant::{planted, unless};
use crate::pair::log::lane::Lane;
use crate::pair::stats::Counter;
use crate::platform::Copying;

impl Engine {
    /// Syncs both files. Then only the newest record of the journal is still needed.
    pub(in crate::engine) fn checkpoint(&self, lane: &Lane, durable: &Durable) -> Result<()> {
        // Read before the syncs: they may not include what a newer record covers.
        let number = durable.journal.newest();
        unless!(CheckpointNotSynced, self.sync_both(durable)?);
        durable.journal.forget_before(number);
        lane.stats.bump(Counter::Checkpoints, 1);
        event!(DEBUG, file = %crate::error::shown(self.home.path()), number, "checkpoint");
        Ok(())
    }

    /// Makes a checkpoint, if one is still due.
    pub(in crate::engine) fn checkpoint_in_background(&self) -> Result<()> {
        match &self.durable {
            Some(durable) if durable.journal.is_half_full() => {
                self.checkpoint(&self.lane(), durable)
            }
            _ => Ok(()),
        }
    }

    /// Makes both files durable in place, and with them the journal's floor at its newest record. A
    /// failure poisons the handle.
    pub(super) fn sync_both(&self, durable: &Durable) -> Result<()> {
        // The kernel reports a failed write-back only once. If a checkpoint and a flush synced at
        // the same time, one of them would get the error, and the other would go on.
        let mut raised = durable.floor.lock();
        self.check_usable()?;
        let unfinished = self.begin(SYNC_FOR_A_POINT);
        // Read with the lock held and before the syncs: the record with this number is durable.
        let newest = durable.journal.newest();
        let mut raise = || {
            if let Some((at, floor)) = self.next_floor(&mut raised, newest) {
                self.reflection.copy_in(at, &floor, Copying::Cached);
            }
        };
        // Before the syncs, which make the floor durable: the caller frees records once the syncs
        // are over.
        if !planted!(FloorNotRaised) && !planted!(FloorAfterSync) {
            raise();
        }
        if self.medium == Medium::Ram {
            // In RAM nothing survives a power loss, and everything survives a process crash.
            unfinished.end();
            return Ok(());
        }
        let sync = |file: &MappedFile| {
            // After a failed sync, the kernel may have dropped dirty pages and forgotten the error.
            // Nothing that this mapping shows can then be trusted to reach the disk.
            let again = |e| if planted!(RetryAfterFailedSync) { file.sync_data() } else { Err(e) };
            file.sync_data().or_else(again).map_err(|e| Error::io(SYNC_FOR_A_POINT, file.path(), e))
        };
        let both = || {
            unless!(FlushHomeNotSynced, sync(&self.home)?);
            unless!(FlushReflectionNotSynced, sync(&self.reflection)?);
            Ok(())
        };
        let synced =
            both().inspect_err(|error| unless!(FailedCheckpointForgotten, self.poison(error)));
        if synced.is_ok() && planted!(FloorAfterSync) {
            raise();
        }
        unfinished.end();
        synced
    }
}
