//! One state of the whole file, read while it is open.
//!
//! The reader locks every region that holds something, and writers wait until it has read them all.
//! Other readers go on. A region that holds nothing is not locked: nothing of it is read.
//!
//! Invariant: there is one moment at which all regions that are read are locked, and no other region has
//! been written to. What is handed out is the state of that moment.
//!
//! May import what the engine imports.

use super::Engine;
use super::plan;
use crate::error::{Error, Result};
use crate::lock::Held;
use crate::mutant::planted;
use crate::units::{REGION, RegionIndex};
use std::ops::Range;

impl Engine {
    /// Hands all bytes of one state to `take`, in ascending pieces of at most a region. Bytes that it is not
    /// told of are zero. Returns the file's length in that state.
    ///
    /// Writers and changes of the length wait until it returns.
    pub fn read_all(&self, mut take: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<u64> {
        self.check_usable()?;
        // The length stays, and no hole is punched meanwhile.
        let _no_resizing = self.resizing.read();
        let len = self.len();
        self.touch_regions_with_bytes(0..len)?;
        loop {
            let touched = || self.state.all_touched().filter(|(index, _)| index.start() < len);
            let regions: Vec<_> = touched().collect();
            // In ascending order, as every operation over several regions locks them.
            let mut held: Vec<Held<'_>> =
                regions.iter().map(|(_, region)| plan::lock_whole_region(region)).collect();
            if touched().count() > regions.len() && !planted!(CopyMissesRegions) {
                // A writer has come to a region that held nothing. It may have written to one of the
                // others since: that one is in the copy, so this one has to be as well.
                drop(held);
                continue;
            }
            // Readers of these regions need not begin again: nothing changes under the locks.
            held.iter().for_each(Held::stays_as_it_is);
            if planted!(CopyNotLocked) {
                held.clear();
            }
            let mut bytes = vec![0; REGION];
            for (index, _) in &regions {
                let range = index.start()..(index.start() + REGION as u64).min(len);
                let bytes = &mut bytes[..(range.end - range.start) as usize];
                self.gather(bytes, range.clone())?;
                take(range.start, bytes)?;
            }
            return Ok(len);
        }
    }

    /// Touches every region of which a byte may be other than zero.
    fn touch_regions_with_bytes(&self, range: Range<u64>) -> Result<()> {
        self.touch_regions_with_words(range.clone())?;
        let lane = self.lane();
        let mut at = range.start;
        while at < range.end {
            let data = self
                .home
                .next_data(at)
                .map_err(|e| Error::io_at("look for data", self.home.path(), at, e))?;
            let Some(data) = data.filter(|data| *data < range.end) else { break };
            let region = RegionIndex::of(data);
            {
                let _pinned = lane.pin();
                self.region(region)?;
            }
            at = region.start() + REGION as u64;
        }
        Ok(())
    }
}
