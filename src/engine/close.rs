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
use crate::engine::superblock::{Companions, closed_as, remove_own, write_superblock};
use crate::error::{Error, Result};
use crate::format::marker::{self, Marker, Sessions};
use crate::format::superblock::{State, Superblock};
use crate::mutant::{planted, unless};
use crate::pair::region::RegionState;
use crate::platform::{File, Name};
use crate::primitive::Ordering;
use crate::units::{PAGES_PER_REGION, REGION, RegionIndex};
use std::io;

impl Engine {
    /// Closes the pair. No handle, view or operation is left. A second call does nothing.
    pub fn close(&self, mode: CloseMode) -> Result<()> {
        self.close_as(|| mode)
    }

    /// Closes the pair after its last handle was dropped. An early return or a panic may have
    /// dropped the handle between writes that belong together. So with `AtomicSync`, no durable
    /// point is made of changes since the last one.
    pub fn close_dropped(&self, mode: CloseMode) -> Result<()> {
        self.close_as(|| match self.durability {
            Durability::AtomicSync if self.has_changed() && !planted!(DropMakesPoint) => {
                CloseMode::Unsynced
            }
            _ => mode,
        })
    }

    fn close_as(&self, mode: impl FnOnce() -> CloseMode) -> Result<()> {
        if self.session.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.worker.stop(self.is_forked());
        // A child of `fork` must not change its parent's files. A poisoned pair is left to
        // recovery.
        let result = self.check_usable().and_then(|()| self.close_files(mode()));
        if !self.is_forked() {
            // Unlocks explicitly, and does not wait for the files to be dropped. A thread that is
            // ending may keep the engine alive for a moment, but the caller may open the file again
            // at once.
            for file in [&self.home, &self.reflection] {
                let _closing_the_file_unlocks_otherwise = self.platform.unlock(file.file());
            }
        }
        // No other thread is left. But in a child of `fork`, a thread of the parent may seem to
        // hold this lock.
        if let Some(mut registrations) = self.registrations.try_lock() {
            registrations.clear();
        }
        result
    }

    fn close_files(&self, mode: CloseMode) -> Result<()> {
        if mode == CloseMode::Unsynced || self.home.is_private() {
            // Leaves the files as a process crash would. The next opening recovers them.
            return Ok(());
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
            unless!(CloseNoPoint, self.durable_point_while_resizing(&self.lane(), durable)?);
        }
        match mode {
            CloseMode::Spatial => self.close_spatial(),
            CloseMode::Fast => self.close_fast(),
            CloseMode::Unsynced => Ok(()),
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

    fn close_spatial(&self) -> Result<()> {
        // Before anything is changed, since the folder may be gone.
        let companions = self.open_companions()?;
        self.deploy_everything()?;
        // The home file is complete before anything says so.
        unless!(SpatialHomeNotSynced, self.sync_home()?);
        unless!(SpatialNotEmptied, self.end_session(State::Emptied)?);
        let home = |call| move |e: io::Error| Error::io(call, self.home.path(), e);
        // The mark goes before the reflection file. A mark without a reflection file means lost
        // bytes, while the next opening removes an emptied reflection file without a mark.
        let remove = |name: &Name, file: &File| {
            let removed = remove_own(&self.platform, name, file);
            removed.map_err(|e| Error::io("remove", name.path(), e)).map(drop)
        };
        let reflection = &companions.reflection;
        if planted!(SpatialMarkRemovedLast) {
            remove(reflection, self.reflection.file())?;
        }
        self.platform
            .remove_xattr(self.home.file(), marker::NAME)
            .map_err(home("remove the attribute"))?;
        unless!(SpatialMarkNotSynced, self.sync_home()?);
        // The companions beside it go before the reflection file, since opening accepts an emptied
        // reflection file without them.
        if let Some(durable) = &self.durable {
            remove(companions.journal(), durable.journal.file())?;
        }
        unless!(SpatialMarkRemovedLast, remove(reflection, self.reflection.file())?);
        unless!(SpatialFolderNotSynced, self.sync_folder_of(&companions)?);
        Ok(())
    }

    /// Returns the names of the companions, in their open folder.
    fn open_companions(&self) -> Result<Companions> {
        let folder = self.companions.reflection.folder();
        let open = self.platform.reopen_folder(folder, self.reflection.file());
        let open = open.map_err(|e| Error::io("look up", folder.path(), e))?;
        Ok(self.companions.within(&open))
    }

    fn close_fast(&self) -> Result<()> {
        unless!(CloseNotNoted, self.note_close_in_mark()?);
        unless!(FastHomeNotSynced, self.sync_home()?);
        unless!(FastReflectionNotSynced, self.sync_reflection()?);
        self.end_session(State::Clean(closed_as(&self.platform, &self.home)?))
    }

    /// Has a mark with sessions say that its own one has begun: a superblock of the one before is
    /// no match from here on. The sync of the home file that follows makes it durable.
    fn note_close_in_mark(&self) -> Result<()> {
        let io = |call| move |e: io::Error| Error::io(call, self.home.path(), e);
        let home = self.home.file();
        let found =
            self.platform.get_xattr(home, marker::NAME).map_err(io("read the attribute"))?;
        let Some(mark) = found.and_then(|bytes| Marker::decode(&bytes)) else { return Ok(()) };
        let Some(Sessions { begun, .. }) = mark.sessions else { return Ok(()) };
        let sessions = Some(Sessions { before: begun, begun });
        let value = Marker { sessions, ..mark }.encode();
        self.platform
            .set_xattr(home, marker::NAME, &value)
            .map_err(io("set the attribute"))
            .map(drop)
    }

    /// Writes the superblock that says that there is nothing to recover. What it says so of is
    /// durable.
    fn end_session(&self, state: State) -> Result<()> {
        let superblock = self.superblock.lock();
        let ended = Superblock {
            session: superblock.session + 1,
            state,
            durable: superblock.durable.with_len(self.len()),
            ..superblock.clone()
        };
        // One barrier, which covers the superblock alone.
        let must_wait = self.medium != Medium::Ram && !planted!(EndNotSynced);
        write_superblock(&self.platform, &self.reflection, &ended, must_wait)
    }

    fn sync_home(&self) -> Result<()> {
        if self.medium == Medium::Ram {
            return Ok(());
        }
        self.home.sync_all().map_err(|e| Error::io("sync", self.home.path(), e))
    }

    fn sync_reflection(&self) -> Result<()> {
        if self.medium == Medium::Ram {
            return Ok(());
        }
        self.reflection.sync_all().map_err(|e| Error::io("sync", self.reflection.path(), e))
    }

    fn sync_folder_of(&self, companions: &Companions) -> Result<()> {
        if self.medium == Medium::Ram {
            return Ok(());
        }
        let folder = companions.reflection.folder();
        let synced = self.platform.sync_dir(folder, self.reflection.file());
        synced.map_err(|e| Error::io("sync the folder", folder.path(), e))
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
