//! Deployment: copies valid reflection slots into the home slots, and clears their bits (Acumen
//! IV-C).
//!
//! | room | holds |
//! |---|---|
//! | `region` | the deployment of locked pages |
//! | `on_read` | deployment of pages that reads keep finding in the reflection file |
//! | `policy` | which reads count, and how often |
//! | `pin` | the pins of views |
//! | `punch` | gives reflection pages back to the file system |
//! | `words` | zeroes the words of deployed pages |
//! | `cold` | background deployment of cold pages |
//! | `admission` | the wait of operations for room in the budget |
//!
//! May import `commit`, `durable`, `io`, `plan`, `pair`, and what lies below them.

pub mod admission;
pub mod cold;
pub mod on_read;
pub mod pin;
pub mod policy;
pub mod punch;
pub mod region;
mod words;

use crate::engine::Engine;
use crate::engine::deploy::region::{Pins, Which};
use crate::error::Result;
use std::ops::Range;

impl Engine {
    /// Deploys all pages of `range`, except those that a view pins. Returns the number of pages
    /// that were deployed.
    pub fn deploy(&self, range: Range<u64>) -> Result<u64> {
        self.check_usable()?;
        let Some(durable) = &self.durable else {
            self.load_nonzero_regions(range.clone())?;
            let deployed = self.deploy_pages(range.clone(), Pins::Respect, Which::All)?;
            self.stamp_all_sampled(range);
            return Ok(deployed);
        };
        // A slice that has changed since the last durable point has no free slot at home. And a
        // deployed slice leaves a slot that belongs to that point. So a durable point is made
        // before, and another one after.
        self.durable_point(durable)?;
        self.load_nonzero_regions(range.clone())?;
        let deployed = self.deploy_pages(range.clone(), Pins::Respect, Which::All)?;
        self.durable_point(durable)?;
        self.stamp_all_sampled(range);
        Ok(deployed)
    }
}
