//! Holds the read set of a transaction, and the checks that all of it is of one state.
//!
//! An entry is a page with the versions that a read has seen. The file's length belongs to the read
//! set as well. A read that succeeds says that the file reaches at least to its end, and an
//! [`Error::PastEnd`] says exactly how long it is. The length is checked by its value: at the
//! moment of a check all versions and the length are as the transaction has seen them. A page that
//! was truncated has a new version before the file grows again.
//!
//! After each read, the earlier entries are validated. Up to `FEW` entries are validated one by
//! one. The pages of a larger read set are *watched* instead. Their bits in their region send a
//! writer to a slow path (`pair::stamps`), where it counts that it changes a watched page. While
//! that count stays, no watched page has changed: a read loads one word.
//!
//! Invariants:
//! - a writer checks the bits under the page's lock, before it changes what readers see;
//! - an entry is watched by a reader that has set the bits, and has then found the page and its
//!   region free. After that it has found the bits still set, and the versions unchanged.
//!
//! May import `deploy`, `verify`, `io`, `plan`, `pair`, and what lies below them.

use crate::bitmap::span;
use crate::engine::Engine;
use crate::engine::read::ATTEMPTS;
use crate::engine::verify::Compared;
use crate::error::{Error, Result};
use crate::lock::Backoff;
use crate::mutant::planted;
use crate::pair::log::lane::Lane;
use crate::pair::read_set::{FEW, ReadSet, ReadSetEntry};
use crate::pair::stats::Counter;
use crate::primitive::{Ordering, fence};
use crate::units::PageIndex;

impl Engine {
    /// Fills `to` from `offset`. Adds the pages to `read_set`. Returns `Ok(false)` if the
    /// earlier entries do not hold any more: then the reads are not of one state.
    ///
    /// Records the length that an [`Error::PastEnd`] names in `read_set`.
    pub fn read_tracked(&self, to: &mut [u8], offset: u64, read_set: &mut ReadSet) -> Result<bool> {
        self.check_readable()?;
        let known = read_set.pages.len();
        let lane = self.lane_fenced();
        self.follow(&lane, offset, to.len());
        let mut backoff = Backoff::new();
        for _ in 0..ATTEMPTS {
            read_set.pages.truncate(known);
            self.verify_new(&lane, offset..offset.saturating_add(to.len() as u64))?;
            match self.try_read_tracked(&lane, to, offset, read_set) {
                Ok(Some(len)) => {
                    lane.stats.bump(Counter::Reads, 1);
                    let end = offset + to.len() as u64;
                    read_set.told.at_least = read_set.told.at_least.max(end);
                    return self.all_hold(read_set, known, len);
                }
                Ok(None) => {}
                Err(error) => {
                    read_set.pages.truncate(known);
                    return self.note_told(read_set, error);
                }
            }
            if !self.read_set_holds(read_set)? {
                break;
            }
            lane.stats.bump(Counter::ReadRetries, 1);
            backoff.wait();
        }
        read_set.pages.truncate(known);
        Ok(false)
    }

    /// Fills `to` and appends an entry for each page. Returns the length of the state that was
    /// read, or `None` if a version has changed meanwhile.
    fn try_read_tracked(
        &self,
        lane: &Lane,
        to: &mut [u8],
        offset: u64,
        read_set: &mut ReadSet,
    ) -> Result<Option<u64>> {
        let _pinned = lane.pin();
        let range = self.check_range(offset, to.len() as u64)?;
        let known = read_set.pages.len();
        for span in span::pages(range.clone()) {
            let region = self.region(span.page.region())?;
            let page = &region.pages[span.page.in_region()];
            let (Some(region_version), Some(page_version)) =
                (region.lock.begin(), page.lock.begin())
            else {
                return Ok(None);
            };
            read_set.pages.push(ReadSetEntry { page: span.page, region_version, page_version });
        }
        // Checked after the versions, as in `try_read`.
        self.check_readable_still()?;
        let len = if planted!(TrackedLengthFirst) { range.end } else { self.len() };
        if range.end > len {
            // Returns an error, unless the file has grown again.
            return self.check_range(offset, to.len() as u64).map(|_| None);
        }
        self.gather(to, range.clone())?;
        let compared = self.compare_gathered(to, &range)?;
        // As in `try_read`: orders the copy before the versions are validated.
        fence(Ordering::Acquire);
        let holds = self.entries_hold(&read_set.pages[known..])? || planted!(TrackedNotValidated);
        match compared {
            Compared::Damaged(page) if holds => Err(self.damaged(lane, page)),
            // As in `try_read`.
            Compared::Unknown => Ok(None),
            _ => Ok(holds.then_some(len)),
        }
    }

    /// Checks that a write of `len` bytes at `offset` lies within the file, for a transaction.
    /// Returns `Ok(false)` if the earlier entries of `read_set` do not hold any more.
    pub fn check_write_tracked(
        &self,
        offset: u64,
        len: u64,
        read_set: &mut ReadSet,
    ) -> Result<bool> {
        let file_len = self.len();
        let end = match offset.checked_add(len) {
            Some(end) if end <= file_len => end,
            _ => match self.check_range(offset, len) {
                Ok(range) => range.end,
                Err(error) => return self.note_told(read_set, error),
            },
        };
        read_set.told.writes_to = read_set.told.writes_to.max(end);
        // If the write ends past the length that the reads have seen, the file has grown since. The
        // reads must hold in that later state as well.
        if end > read_set.seen_len && !read_set.is_empty() {
            self.all_hold(read_set, read_set.pages.len(), file_len)
        } else {
            Ok(true)
        }
    }

    /// Records the length that `error` names. Returns the error if all earlier reads are of the
    /// same state, and `Ok(false)` otherwise.
    fn note_told(&self, read_set: &mut ReadSet, error: Error) -> Result<bool> {
        let Error::PastEnd { file_len, .. } = &error else { return Err(error) };
        if self.tell_length(read_set, *file_len)? { Err(error) } else { Ok(false) }
    }

    /// Returns the file's length, and records it in `read_set`. Returns `None` if the earlier
    /// entries do not hold any more.
    pub fn len_tracked(&self, read_set: &mut ReadSet) -> Result<Option<u64>> {
        self.check_readable()?;
        let len = self.len_now();
        Ok(self.tell_length(read_set, len)?.then_some(len))
    }

    /// Records that the transaction is told this length. Returns `true` if all earlier reads are of
    /// the same state.
    fn tell_length(&self, read_set: &mut ReadSet, len: u64) -> Result<bool> {
        // The first length stays: `transact` compares it, to find the reason of a conflict.
        let is_other = *read_set.told.exactly.get_or_insert(len) != len;
        // `read_set_holds` loads the length once more, before the versions.
        Ok((!is_other || planted!(ToldLengthHolds)) && self.read_set_holds(read_set)?)
    }

    /// Returns `true` if the first `known` entries and all lengths still hold. The other entries,
    /// of the last read, held when the file was `len` bytes long. So the whole read set is valid at
    /// that moment.
    fn all_hold(&self, read_set: &mut ReadSet, known: usize, len: u64) -> Result<bool> {
        if planted!(EarlierReadsNotValidated) {
            return Ok(true);
        }
        if !read_set.told_holds_for_all(len) {
            return Ok(false);
        }
        read_set.seen_len = len;
        // Writers let the transaction pass that has the turn, on the pages that it watches.
        if read_set.pages.len() <= FEW && !self.session.turn.load(Ordering::Relaxed) {
            return self.entries_hold(&read_set.pages[..known]);
        }
        // While the count stays, no entry has changed since it was watched.
        if let Some(watched_at) = read_set.watched_at
            && self.watch(&read_set.pages[known..])?
            && self.session.watched.count() == watched_at
        {
            return Ok(true);
        }
        // Loaded before the entries are validated: a change that is counted later is validated
        // again.
        let count = self.session.watched.count();
        let are_watched = self.watch(&read_set.pages)?;
        read_set.watched_at = are_watched.then_some(count);
        self.entries_hold(&read_set.pages[..known])
    }

    /// Watches the pages of `entries`. Returns `true` if all of them are watched and unchanged.
    fn watch(&self, entries: &[ReadSetEntry]) -> Result<bool> {
        let mut are_all = true;
        for entry in entries {
            let region = self.region(entry.page.region())?;
            let place = entry.page.in_region();
            if !region.is_watched(place) {
                region.set_watched(place);
            }
            // Sequentially consistent, as are setting the bits and a writer's steps. A writer takes
            // the lock and then checks the bits. So either it sees the bits, or its lock is seen
            // here.
            let page = &region.pages[place].lock;
            let is_free =
                !region.lock.is_locked() && !page.is_locked() || planted!(HeldPageWatched);
            // A lock holder that has released the page by now may have cleared the bits.
            are_all &= is_free && region.is_watched(place) && entry.holds(region);
        }
        Ok(are_all)
    }

    /// Returns `true` if the length and all pages are as they were read and told. The length is
    /// loaded first. If the versions are valid after that, the pages were unchanged at the moment
    /// of that load.
    pub fn read_set_holds(&self, read_set: &ReadSet) -> Result<bool> {
        let len = self.len();
        Ok(read_set.told_holds_for_all(len) && self.entries_hold(&read_set.pages)?)
    }

    /// Returns `true` if a page of the read set has changed, and is one for which `is_own` returns
    /// `true`.
    pub fn any_changed(
        &self,
        read_set: &ReadSet,
        is_own: impl Fn(PageIndex) -> bool,
    ) -> Result<bool> {
        for entry in &read_set.pages {
            if !entry.holds(self.region(entry.page.region())?) && is_own(entry.page) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn entries_hold(&self, entries: &[ReadSetEntry]) -> Result<bool> {
        for entry in entries {
            if !entry.holds(self.region(entry.page.region())?) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
