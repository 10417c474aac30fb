//! An opening after a process crash that has no space for a durable point.
//!
//! The recovered state becomes a durable point, and before that opening keeps for live snapshots
//! what the dead session had not kept. On a full disk it cannot, and dropping snapshots, which
//! needs an open file, may be the only way to get space. So the last durable point stays that of
//! the new session. What was recovered counts as changes since: a process crash finds it, and a
//! power loss goes back to the point. Nothing more is written until a point is made
//! ([`Error::Overdue`]).
//!
//! Invariants:
//! - The newest record is durable before a durable word says so: a power loss may keep the one and
//!   lose the other.
//! - The durable words say what that record says, and both files are synced, before the superblock
//!   of the new session names no record.
//! - No byte past the recovered length belongs to the point, since opening cleans up there.
//!
//! `docs/model/snapshots_no_space.py` has the steps. May import `replay_journal`, `snapshots`,
//! `engine` and below.

use super::Mapped;
use super::journal::{Found, Needs, Read};
use super::pair::Decision;
use crate::config::integrity::Integrity;
use crate::config::{Durability, OnMismatch};
use crate::error::{Error, Result};
use crate::mutant::{planted, unless};

/// The durable point that stays that of the session which begins.
pub(super) struct PointLeft {
    /// The length of the file at the point, in bytes.
    pub len: u64,
    /// Why opening has made no other.
    pub why: Error,
}

impl Mapped<'_> {
    /// Keeps for snapshots what the dead session had not kept. Without space for that, leaves the
    /// last durable point as it is.
    pub(super) fn keep_or_leave_point(&mut self) -> Result<()> {
        let why = match self.keep_for_snapshots() {
            Err(why @ Error::NoSpace { .. }) => why,
            other => return other,
        };
        let Some(journal) = self.point_that_may_stay()? else { return Err(why) };
        let pair = self.pair();
        unless!(LeftRecordNotDurable, pair.make_newest_durable(&journal)?);
        // The process may have died after the record of the point and before its words.
        unless!(LeftWordsNotPublished, pair.publish_words(&journal)?);
        // Orders both files before the superblock that voids the records.
        unless!(LeftPointNotSynced, pair.sync_both()?);
        self.point_left = Some(PointLeft { len: journal.len(), why });
        Ok(())
    }

    /// Returns the journal that has the last durable point, if the next session may begin with it.
    fn point_that_may_stay(&self) -> Result<Option<Found>> {
        let super::Carried { verdict, superblock, located, .. } = &self.carried;
        let options = located.opening.options;
        // With `Trust` the page cache may lack what no record has. With `AtomicSync` the death of
        // this process would take back what it has shown. With `EveryWrite` a caller may act on
        // what it reads, as by a vote.
        let is_plain = verdict.decision == Decision::Recover
            && options.on_mismatch != OnMismatch::Trust
            && options.durability == Durability::OnSync
            && !options.read_only
            && !verdict.is_restored
            // A page has the sums of the state that opening finds, and none that tells of which of
            // its two states each one is.
            && !superblock.has_sums
            && self.integrity == Integrity::Off
            && self.keeps_points;
        let is_rolling_back = self.store.as_ref().is_some_and(|open| open.is_rolling_back());
        let Some(base) = superblock.durable.base().filter(|_| is_plain && !is_rolling_back) else {
            return Ok(None);
        };
        // The working state needed no record. This needs the newest one.
        let companions = (&self.carried.companions, self.reflection.file());
        let of = (superblock, base);
        let read = located.opening.read_journal(companions, &located.stat, of, Needs::Newest)?;
        Ok(match read {
            Read::Found(journal)
                if journal.len() <= verdict.lengths.len || planted!(LongerPointLeft) =>
            {
                Some(journal)
            }
            _ => None,
        })
    }
}
