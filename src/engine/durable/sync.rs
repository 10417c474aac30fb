//! `sync` on each medium, and the durable points that are due at an interval.
//!
//! May import `plan`, `pair`, and what lies below them.

use crate::config::Durability;
use crate::engine::Engine;
use crate::engine::durable::Durable;
use crate::engine::worker::Request;
use crate::error::{Error, Result};
use crate::mutant::{planted, unless};
use crate::pair::stats::Counter;
use crate::units::PAGES_PER_REGION;

impl Engine {
    /// Makes everything that has returned as durable as the medium promises. Returns the number of
    /// the durable point, 0 where none are kept.
    pub fn sync(&self) -> Result<u64> {
        self.wait_durable(u64::MAX)
    }

    /// Returns once the durable point of this number is made, or a later one. Returns the number of
    /// the last one, 0 where none are kept.
    pub fn wait_durable(&self, number: u64) -> Result<u64> {
        self.wait_durable_or(number, |_| ())
    }

    /// As [`wait_durable`](Self::wait_durable), and passes a point's error to `on_failure` before
    /// another point can be made.
    fn wait_durable_or(&self, number: u64, on_failure: impl Fn(&Error)) -> Result<u64> {
        self.check_usable()?;
        // Without durable points there is nothing to do. On DAX every commit was durable when it
        // returned. In RAM nothing survives a power loss, and everything survives a process crash.
        let made = match &self.durable {
            Some(durable) => self.durable_point_of(durable, number, on_failure)?,
            None => 0,
        };
        self.lane().stats.bump(Counter::Syncs, 1);
        if self.durability == Durability::AtomicSync
            && let Some(budget) = &self.budget
            && self.companions_take(budget) > budget.early()
        {
            // The point has made slots free that the worker could not give back.
            let _is_served = self.worker.request(Request::Space);
        }
        Ok(made)
    }

    /// Returns the number of the first durable point that holds everything that has returned, 0
    /// where none are kept.
    pub fn next_durable_number(&self) -> u64 {
        self.durable.as_ref().map_or(0, Durable::next_number)
    }

    /// Returns the number of the last durable point, 0 if there is none.
    pub fn durable_number(&self) -> u64 {
        self.durable.as_ref().map_or(0, Durable::durable_number)
    }

    /// Makes the durable point that is due. A failure that does not poison the handle is remembered
    /// until a point is made. Writes fail meanwhile, since a power loss would undo more than the
    /// interval allows.
    pub(in crate::engine) fn sync_at_interval(&self) {
        let set_overdue = |error: &Error| {
            if let Some(durable) = &self.durable
                && !planted!(OverdueForgotten)
            {
                event!(WARN, file = %crate::error::shown(self.home.path()), %error, "overdue");
                durable.set_overdue(error);
            }
        };
        if self.wait_durable_or(u64::MAX, set_overdue).is_err() {
            self.lane().stats.bump(Counter::FailedPoints, 1);
        }
    }

    /// Notes, if opening has made no durable point, what differs from the last one: by whichever
    /// session it was changed, the next point has it. That point stores durable words which no
    /// writer of this session has made sure of.
    pub(crate) fn begin_overdue(&self) -> Result<()> {
        if !self.durable.as_ref().is_some_and(Durable::is_overdue) {
            return Ok(());
        }
        unless!(RecoveredNotChanged, self.note_all_changed()?);
        for (index, region) in self.state.loaded_regions() {
            if (0..PAGES_PER_REGION).any(|n| !region.changed_slices(n).is_empty()) {
                self.ensure_slice_word(index.page(0))?;
            }
        }
        Ok(())
    }

    /// Fails if a durable point that was promised at an interval is overdue. Then nothing more may
    /// be written.
    #[inline]
    pub(in crate::engine) fn check_not_overdue(&self, durable: &Durable) -> Result<()> {
        if durable.is_overdue() { self.fail_as_overdue(durable) } else { Ok(()) }
    }

    #[cold]
    fn fail_as_overdue(&self, durable: &Durable) -> Result<()> {
        let cause = durable.why_overdue();
        cause.map_or(Ok(()), |cause| Err(Error::Overdue { path: self.path(), cause }))
    }

    /// Fails if each write of a handle for writing would fail now, whatever it writes. Also fails,
    /// once and although writes succeed, if the last drop of a handle of this file in this process
    /// could not close it.
    pub fn health(&self) -> Result<()> {
        self.check_usable()?;
        self.durable.as_ref().map_or(Ok(()), |durable| self.check_not_overdue(durable))?;
        match self.not_closed.lock().take() {
            Some(cause) => Err(Error::NotClosed { path: self.path(), cause }),
            None => Ok(()),
        }
    }
}
