//! What does `sync` have to do on this medium?

use super::Engine;
use super::stats::Counter;
use crate::error::Result;

impl Engine {
    /// Makes everything that has returned as durable as the medium promises.
    pub fn sync(&self) -> Result<()> {
        self.check_usable()?;
        // Where no durable points are kept there is nothing to do: on DAX every commit was durable
        // when it returned, and in RAM nothing survives the machine, everything the process.
        if let Some(durable) = &self.durable {
            self.durable_point(durable)?;
        }
        self.lane().stats.bump(Counter::Syncs, 1);
        Ok(())
    }
}
