//! Closes a pair: the fast close, the spatial close, and the close that makes no durable point.
//!
//! A crash at any step leaves files that the next opening understands. The pair is in use until the
//! superblock says otherwise. From then on it is a closed pair, or a complete home file.
//!
//! May import every other room of the engine.

use crate::bitmap::Validity;
use crate::config::progress::Work;
use crate::config::{CloseMode, Durability, Medium};
use crate::engine::Engine;
use crate::engine::deploy::region::{Pins, Which};
use crate::engine::durable::point::CutGate;
use crate::engine::superblock::{How, closed_as, remove_own, settle, write_superblock};
use crate::error::{Error, Result};
use crate::format::marker::{self, Marker, Sessions};
use crate::format::superblock::{State, Superblock};
use crate::mutant::{planted, unless};
use crate::pair::region::RegionState;
use crate::platform::{File, Name};
use crate::primitive::Ordering;
use crate::units::{PAGES_PER_REGION, REGION, RegionIndex};
use std::io;

/// The end of a file that [`close`](crate::AtomicMappedFile::close) has closed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Closed {
    /// This was the last handle, and the file is closed as it was asked for.
    Last,
    /// The file is closed, and is a complete, plain file. But the process could not remove its
    /// companions, for the reason in the error: it has lost that right since the opening, as by
    /// `setuid` or landlock. They hold nothing any more, and the next open removes them.
    WithCompanions(Error),
}

impl Engine {
    /// Closes the pair. No handle, view or operation is left. A second call does nothing.
    pub fn close(&self, mode: CloseMode) -> Result<Closed> {
        self.close_as(|| mode, |_| ())
    }

    /// Closes the pair after its last handle was dropped. An early return or a panic may have
    /// dropped the handle between writes that belong together. So with `AtomicSync`, no durable
    /// point is made of changes since the last one.
    ///
    /// No caller hears of an error, so the next opening in this process tells of it.
    pub fn close_dropped(&self, mode: CloseMode) {
        let mode = || match self.durability {
            Durability::AtomicSync if self.has_changed() && !planted!(DropMakesPoint) => {
                CloseMode::Unsynced
            }
            _ => mode,
        };
        let keep = |error: &Error| {
            if !self.is_forked()
                && let Some(home) = self.registrations.lock().first()
            {
                unless!(DropErrorForgotten, home.note_not_closed(error.as_cause()));
            }
        };
        let _told_by_the_next_opening = self.close_as(mode, keep);
    }

    /// Closes the pair. Calls `on_error` with an error before another opening can follow.
    fn close_as(
        &self,
        mode: impl FnOnce() -> CloseMode,
        on_error: impl FnOnce(&Error),
    ) -> Result<Closed> {
        if self.session.closed.swap(true, Ordering::AcqRel) {
            return Ok(Closed::Last);
        }
        self.worker.stop(self.is_forked());
        // A child of `fork` must not change its parent's files. A poisoned pair is left to
        // recovery.
        let result = self.check_usable().and_then(|()| self.close_files(mode()));
        event!(INFO, file = %crate::error::shown(self.home.path()), is_ok = result.is_ok(), "closed");
        if let Err(error) = &result {
            event!(ERROR, file = %crate::error::shown(self.home.path()), %error, "not closed");
            on_error(error);
        }
        if !self.is_forked() {
            // Unlocks explicitly, and does not wait for the files to be dropped. A thread that is
            // ending may keep the engine alive for a moment, but the caller may open the file again
            // at once.
            for file in [&self.home, &self.reflection] {
                let _their_last_drop_unlocks_otherwise = self.platform.unlock(file.file());
            }
        }
        // No other thread is left. But in a child of `fork`, a thread of the parent may seem to
        // hold this lock.
        if let Some(mut registrations) = self.registrations.try_lock() {
            registrations.clear();
        }
        result
    }

    fn close_files(&self, mode: CloseMode) -> Result<Closed> {
        if mode == CloseMode::Unsynced || self.home.is_private() {
            // Leaves the files as a process crash would. The next opening recovers them.
            return Ok(Closed::Last);
        }
        self.write_back_all();
        self.catch_up(&self.lane(), self.len())?;
        if let Some(durable) = &self.durable {
            if mode == CloseMode::Spatial && !planted!(DamagedWordsNotNoted) {
                // Words of both kinds agreed when the last session was closed. If they differ
                // without a write since then, they were damaged. The durable point must cover those
                // pages.
                self.note_all_changed()?;
            }
            // After this point nothing changes: every slice may be deployed, and the words count.
            // A point in the journal is enough, since the close syncs what it relies on.
            unless!(
                CloseNoPoint,
                self.durable_point_while_resizing(&self.lane(), durable, CutGate::Open)?
            );
        }
        match mode {
            CloseMode::Spatial => self.close_spatial(),
            CloseMode::Fast => self.close_fast().map(|()| Closed::Last),
            CloseMode::Unsynced => Ok(Closed::Last),
        }
    }

    /// Makes the words durable that the active flip records of all lanes cover. No operation is
    /// left.
    fn write_back_all(&self) {
        let lane = self.lane();
        for page in self.lanes.all().flat_map(|lane| lane.all_active()) {
            unless!(CloseWritesBackNothing, self.flush_word(page));
        }
        // Orders the words before the end of the session, which voids the records.
        unless!(CloseNotDrained, self.drain(&lane));
    }

    fn close_spatial(&self) -> Result<Closed> {
        self.end_byte_mark(&self.lane())?;
        self.deploy_everything()?;
        let has_snapshots = self.has_snapshots() && !planted!(SpatialDropsSnapshots);
        if has_snapshots || self.has_sums() {
            // The home file is complete as it is. But its companions stay, for the snapshots or the
            // sums.
            return self.close_fast().map(|()| Closed::Last);
        }
        // With all companions, the pair still counts, and the home file may reach the disk in any
        // order. Without one of them, the home file counts as it is.
        let mut refused = None;
        let is_said = planted!(SpatialNotClosing)
            || match self.change_mark(|mark| Some(Marker { is_closing: true, ..mark })) {
                Err(error) if error.is_refusal() => {
                    refused = Some(error);
                    false
                }
                said => said?,
            };
        // The home file is complete, and says so, before a companion goes.
        unless!(SpatialHomeNotSynced, self.sync_home()?);
        let header = self.marked_header()?;
        let is_emptied = !is_said || header.is_some();
        if is_emptied {
            // Without a mark, the reflection file itself says that it means nothing any more. So it
            // does before a database loses its mark: stock SQLite may store to it from then on.
            unless!(SpatialNotEmptied, self.end_session(State::Emptied)?);
        }
        if let Some(header) = header {
            self.unmark_database(header)?;
            // Orders the header before the removal of the companions: a marked database without
            // companions is refused.
            self.sync_home()?;
        }
        let removed = refused.map_or_else(|| self.remove_companions(), Err);
        let Err(why) = removed else { return Ok(Closed::Last) };
        if !why.is_refusal() {
            return Err(why);
        }
        // The process has given up a right that it had at the opening. The companions stay, and the
        // reflection file says that they mean nothing. The next opening removes them.
        if !is_emptied {
            unless!(RefusedNotEmptied, self.end_session(State::Emptied)?);
        }
        // An emptied pair counts as none, with its mark or without it.
        let _best_effort = self.remove_mark();
        Ok(Closed::WithCompanions(why))
    }

    fn remove_companions(&self) -> Result<()> {
        let remove = |name: &Name, file: &File| {
            let removed = remove_own(&self.platform, name, file);
            removed.map_err(|e| Error::io("remove", name.path(), e)).map(drop)
        };
        if planted!(SpatialMarkRemovedFirst) {
            self.remove_mark()?;
        }
        // The companions beside it go before the reflection file, since opening finds them by it.
        if let Some(durable) = &self.durable {
            remove(self.companions.journal(), durable.journal.file())?;
        }
        if let Some(store) = self.snapshots.get() {
            remove(self.companions.snapshots(), store.file().file())?;
        }
        remove(&self.companions.reflection, self.reflection.file())?;
        // Orders the removals before that of the mark: a reflection file that lost its mark would
        // be refused.
        unless!(SpatialFolderNotSynced, self.sync_their_folder()?);
        // Nothing waits for this. To the next opening, a closing mark without companions is none,
        // and so is one beside the companions of a later pair.
        unless!(SpatialMarkRemovedFirst, self.remove_mark()?);
        Ok(())
    }

    fn remove_mark(&self) -> Result<()> {
        let removed = self.platform.remove_xattr(self.home.file(), marker::NAME);
        removed.map_err(|e| Error::io("remove the attribute", self.home.path(), e))
    }

    /// Returns `true` if there is a live snapshot.
    fn has_snapshots(&self) -> bool {
        self.snapshots.get().is_some_and(|store| !store.live().is_empty())
    }

    fn close_fast(&self) -> Result<()> {
        self.remove_empty_store()?;
        if self.has_snapshots() {
            self.close_store()?;
        }
        self.close_both()
    }

    /// Says in the store how far its segments reach. So the next opening notices damage to them.
    /// Nothing is kept from here on.
    fn close_store(&self) -> Result<()> {
        let Some(store) = self.snapshots.get() else { return Ok(()) };
        let lane = self.lane();
        // Orders the records before their ends: an end without its records is damage.
        unless!(CloseEndsUnsettled, self.settle_store(&lane, store)?);
        store.mark_all_ends();
        // Orders the ends before their number: fewer ends would be damage.
        unless!(CloseEndsNotDurable, self.settle_store(&lane, store)?);
        store.count_ends()?;
        unless!(ClosedStoreNotDurable, self.settle_store(&lane, store)?);
        store.repeat_table();
        self.drain(&lane);
        Ok(())
    }

    /// Removes a store without a live snapshot. The table without the last one is durable since its
    /// drop. So the store means nothing, whatever the next crash leaves of its name.
    fn remove_empty_store(&self) -> Result<()> {
        let Some(store) = self.snapshots.get().filter(|_| !self.has_snapshots()) else {
            return Ok(());
        };
        let name = self.companions.snapshots();
        let remove = || {
            let removed = remove_own(&self.platform, name, store.file().file());
            removed.map(drop).map_err(|e| Error::io("remove", name.path(), e))
        };
        unless!(
            EmptyStoreStays,
            match remove() {
                // The next opening removes it.
                Err(error) if error.is_refusal() => {}
                removed => removed?,
            }
        );
        Ok(())
    }

    fn close_both(&self) -> Result<()> {
        // Notes in the mark that its session has begun. From here on a superblock of the session
        // before does not match. The sync of the home file makes the mark durable.
        let begun = |mark: Marker| {
            let Sessions { begun, .. } = mark.sessions?;
            Some(Marker { sessions: Some(Sessions { before: begun, begun }), ..mark })
        };
        unless!(
            CloseNotNoted,
            match self.change_mark(begun) {
                // The process has given up the right since the opening. The mark as it is fits this
                // close, too. It also fits the superblock of the session before, which the next
                // opening tells by the times of the home file alone.
                Err(error) if error.is_refusal() => {}
                changed => drop(changed?),
            }
        );
        // Orders the home file, with its times, before the superblock that holds them.
        unless!(FastHomeNotSynced, self.sync_home()?);
        let state = State::Clean(closed_as(&self.platform, &self.home)?);
        if self.durable.is_none() {
            unless!(FastReflectionNotSynced, self.sync_reflection()?);
            return self.end_session(state);
        }
        // One barrier makes the reflection file durable and the superblock in it. If the superblock
        // is durable first, then the journal still completes the rest: it holds every change since
        // the last time that both files were synced.
        let ended = Superblock { is_unsettled: !planted!(ClosedAsSettled), ..self.ended(state) };
        if planted!(SettledBeforeSync) {
            settle(&self.reflection, &ended);
        }
        write_superblock(&self.platform, &self.reflection, &ended, How::Cached)?;
        unless!(FastReflectionNotSynced, self.sync_reflection()?);
        unless!(CloseNotSettled, settle(&self.reflection, &ended));
        Ok(())
    }

    /// Changes this pair's mark, if the home file has it. The next sync of the home file makes the
    /// change durable. Returns `true` if the mark says what it should.
    fn change_mark(&self, change: impl FnOnce(Marker) -> Option<Marker>) -> Result<bool> {
        let io = |call| move |e: io::Error| Error::io(call, self.home.path(), e);
        let home = self.home.file();
        let found =
            self.platform.get_xattr(home, marker::NAME).map_err(io("read the attribute"))?;
        let uuid = self.superblock.lock().uuid;
        let mark = found.and_then(|bytes| Marker::decode(&bytes));
        let Some(mark) = mark.filter(|mark| mark.uuid == uuid) else { return Ok(false) };
        let Some(changed) = change(mark) else { return Ok(true) };
        self.platform
            .set_xattr(home, marker::NAME, &changed.encode())
            .map_err(io("set the attribute"))
    }

    /// Returns the superblock that ends the session.
    fn ended(&self, state: State) -> Superblock {
        let superblock = self.superblock.lock();
        Superblock {
            session: superblock.session + 1,
            state,
            durable: superblock.durable.with_len(self.len()),
            is_unsettled: false,
            ..superblock.clone()
        }
    }

    /// Writes the superblock that says that there is nothing to recover. The caller has made
    /// durable everything that it speaks for.
    fn end_session(&self, state: State) -> Result<()> {
        let how = match self.medium {
            Medium::Ram => How::Cached,
            _ if planted!(EndNotSynced) => How::Cached,
            Medium::Dax if self.durable.is_none() => How::Mapped,
            // One barrier, which covers the superblock alone.
            Medium::Dax | Medium::PageCache => How::Durably,
        };
        write_superblock(&self.platform, &self.reflection, &self.ended(state), how)
    }

    pub(super) fn sync_home(&self) -> Result<()> {
        // Other programs tell by the time that the bytes have changed. A store to a mapping moves
        // it once until the page is written back, and on tmpfs never.
        let stats = self.stats();
        if stats.bytes_asked != 0 || stats.deployments != 0 {
            unless!(HomeNotTouched, self.platform.touch(self.home.file()));
        }
        if self.medium == Medium::Ram {
            return Ok(());
        }
        self.home.sync_all().map_err(|e| Error::io("sync", self.home.path(), e))
    }

    pub(super) fn sync_reflection(&self) -> Result<()> {
        if self.medium == Medium::Ram {
            return Ok(());
        }
        self.reflection.sync_all().map_err(|e| Error::io("sync", self.reflection.path(), e))
    }

    /// Deploys every slice of the file.
    fn deploy_everything(&self) -> Result<()> {
        self.load_nonzero_regions(0..self.len())?;
        let away: Vec<RegionIndex> = self
            .state
            .loaded_regions()
            .filter(|(_, region)| (0..PAGES_PER_REGION).any(|n| region.validity(n) != Validity(0)))
            .map(|(index, _)| index)
            .collect();
        let mut meter = self.reporter.begin(Work::Deploy, (away.len() * REGION) as u64);
        for region in away {
            let end = (region.start() + REGION as u64).min(self.len());
            if region.start() < end {
                // Pins no longer count: a caller that leaked a view has no way left to read through
                // it.
                let pins = if planted!(SpatialLeavesPinned) { Pins::Respect } else { Pins::Ignore };
                self.deploy_pages(region.start()..end, pins, Which::All)?;
            }
            meter.add(REGION as u64);
        }
        // Words past the end are zero unless they were damaged, and mean nothing in any case.
        let is_home = |(index, region): (RegionIndex, &RegionState)| {
            (0..PAGES_PER_REGION)
                .filter(|n| index.page(*n).start() < self.len())
                .all(|n| region.validity(n) == Validity(0))
        };
        assert!(
            self.state.loaded_regions().all(is_home),
            "a slice was left in the reflection file"
        );
        Ok(())
    }
}
