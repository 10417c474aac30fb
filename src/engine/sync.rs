//! What does `sync` have to do on this medium?

use super::Engine;
use super::stats::Counter;
use crate::error::{Error, Result};
use crate::store::MappedFile;
use crate::terms::Medium;

impl Engine {
    /// Makes everything that has returned as durable as the medium promises.
    pub fn sync(&self) -> Result<()> {
        self.check_usable()?;
        match self.medium {
            // Every commit was durable when it returned.
            Medium::Dax => {}
            // Nothing survives the machine, everything survives the process.
            Medium::Ram => {}
            // Both files, each as the kernel has it while it writes: durable, but no cut.
            Medium::PageCache => {
                self.sync_file(&self.home)?;
                self.sync_file(&self.reflection)?;
            }
        }
        self.lane().stats.bump(Counter::Syncs, 1);
        Ok(())
    }

    fn sync_file(&self, file: &MappedFile) -> Result<()> {
        file.sync_data().map_err(|e| {
            // The kernel may have dropped dirty pages and forgotten the error: nothing that this
            // mapping shows can be trusted to reach the disk any more.
            let error = Error::io("sync", file.path(), e);
            self.poison(&error);
            error
        })
    }
}
