//! The store of snapshots of a pair that is being opened: to which pair it belongs, and how it is
//! opened.
//!
//! Invariant: a store of another pair, or of another time, is refused before anything is written.
//! It is of this time if its table names the pair's last session, as the one that had it or as the
//! one that was about to begin.
//! A store without a live snapshot means nothing, and is removed. May import `trust`, `medium`,
//! `make`, `engine` and below.

use super::trust::Named;
use super::{Carried, Mapped, Opening};
use crate::config::Medium;
use crate::engine::companions::map_store;
use crate::engine::superblock::{UNFINISHED, remove_own};
use crate::error::{Distrust, Error, Result};
use crate::format::snapshots::table::Table;
use crate::format::snapshots::{LONGEST, TABLES_END};
use crate::format::superblock::Superblock;
use crate::mmap::MappedFile;
use crate::mutant::{planted, unless};
use crate::pair::snapshots::Store;
use crate::platform::{File, FileId, FileStat, Name};
use crate::units::ChunkIndex;

/// The store of a pair that is being opened.
pub(super) struct FoundStore {
    file: File,
    len: u64,
    /// The table that counts.
    pub table: Table,
}

impl FoundStore {
    /// Returns `true` if there is a live snapshot.
    fn is_live(&self) -> bool {
        !self.table.entries.is_empty()
    }

    /// Returns the length that this opening gives the file: that of the snapshot to which a
    /// rollback is under way. 0 if there is none.
    pub fn needed_len(&self) -> u64 {
        let table = &self.table;
        let target = table.entries.iter().find(|entry| entry.number == table.rollback);
        target.filter(|_| table.rollback != 0).map_or(0, |entry| entry.len)
    }

    /// Returns the length of the longest snapshot, to which the caller may go back.
    pub fn longest(&self) -> u64 {
        self.table.entries.iter().map(|entry| entry.len).max().unwrap_or(0)
    }
}

/// The store in the course of an opening.
pub(super) struct OpenStore {
    store: Store,
    /// The number of the last opening that its table tells, or a segment of a later one.
    opening: u64,
    has_begun: bool,
}

impl OpenStore {
    /// Returns `true` if the last session has ended in a rollback.
    pub fn is_rolling_back(&self) -> bool {
        self.store.rollback() != 0
    }
}

impl Opening<'_> {
    /// Returns the file in the place of the store, if it is this pair's. Writes nothing.
    /// `superblock` is the one that was found.
    ///
    /// # Errors
    /// `Untrusted` if the file belongs to another pair, or is of another time. The pair's last
    /// session has kept nothing in an older store. A later one lacks what is in the slots of then.
    pub(super) fn find_store(
        &self,
        name: &Name,
        home: &FileStat,
        superblock: &Superblock,
    ) -> Result<Option<FoundStore>> {
        let (file, stat) = match self.open_trusted(name, home)? {
            Named::Nothing => return Ok(None),
            Named::Irregular => return Err(self.distrusted(name, Distrust::IsIrregular)),
            Named::Distrusted(why) => return Err(self.distrusted(name, why)),
            Named::Trusted(file, stat) => (file, stat),
        };
        if stat.len > LONGEST {
            let what = "the file is longer than any store";
            return Err(Error::damaged_snapshots(name.path(), LONGEST, what));
        }
        let tables = self.read_tables(&file, &stat, name)?;
        let Some(table) = Table::newest(&tables, &superblock.uuid) else {
            if Table::may_be_of(&tables, &superblock.uuid) {
                let what = "neither copy of the table is whole";
                return Err(Error::damaged_snapshots(name.path(), 0, what));
            }
            return Err(self.distrusted(name, Distrust::IsOfAnotherPair));
        };
        let last = superblock.stamp();
        let found = FoundStore { file, len: stat.len, table };
        let is_ours = found.table.session == last
            || found.table.next == last && !planted!(AnnouncedStoreRefused);
        if found.is_live() && !is_ours && !planted!(OldStoreTaken) {
            return Err(self.distrusted(name, Distrust::IsOfAnotherPair));
        }
        Ok(Some(found))
    }

    fn read_tables(&self, file: &File, stat: &FileStat, name: &Name) -> Result<Vec<u8>> {
        let mut tables = vec![0; stat.len.min(TABLES_END) as usize];
        self.platform
            .read_at(file, FileId::Snapshots, &mut tables, 0)
            .map_err(|e| Error::io_at("read the snapshots", name.path(), 0, e))?;
        Ok(tables)
    }

    /// Returns `true` if the file is the store of another pair, or no store.
    pub(super) fn is_anothers_store(
        &self,
        (file, stat, name): (&File, &FileStat, &Name),
        uuid: &[u8; 16],
    ) -> Result<bool> {
        Ok(!Table::may_be_of(&self.read_tables(file, stat, name)?, uuid))
    }

    /// Removes a store without a live snapshot. The removal is durable before anything is changed:
    /// else a power loss could bring back an older table, with a snapshot for which nothing was
    /// kept.
    fn remove_store(&self, name: &Name, store: &FoundStore) -> Result<()> {
        remove_own(self.platform, name, &store.file).map_err(self.io("remove", name.path()))?;
        if !self.is_kept_in_memory() {
            let folder = name.folder();
            let sync = || self.platform.sync_dir(folder, &store.file);
            unless!(
                EmptyStoreRemovalNotSynced,
                sync().map_err(self.io("sync the folder", folder.path()))?
            );
        }
        Ok(())
    }
}

impl Mapped<'_> {
    /// Opens the store that was found, and makes durable what it holds. A reader does that, too: it
    /// changes nothing. Removes a store that no snapshot needs.
    pub(super) fn open_store(&mut self) -> Result<()> {
        let Some(found) = self.carried.store.take() else { return Ok(()) };
        let Carried { companions, located, .. } = &self.carried;
        if !found.is_live() {
            let (name, opening) = (companions.snapshots(), &located.opening);
            return if opening.options.read_only {
                Ok(())
            } else {
                opening.remove_store(name, &found)
            };
        }
        let file = self.map_store(found)?;
        let store = Store::open(file, self.carried.superblock.uuid)?;
        let opening = store.opening();
        if store.rollback() != 0 {
            let what = "bytes that a rollback under way needs may be lost";
            let opening = &self.carried.located.opening;
            match store.check_as(store.rollback(), what) {
                Err(_) if opening.options.best_effort => {}
                // An opening for writing makes this one whole.
                Ok(()) if opening.options.best_effort => {
                    return Err(opening.under_way(store.rollback()));
                }
                // Going on would take the present along.
                checked => checked?,
            }
        }
        if store.damage().is_some() {
            event!(WARN, path = %crate::error::shown(store.file().path()), at = ?store.damage(), "damaged");
        }
        unless!(FoundStoreNotDurable, self.settle_store(&store)?);
        self.store = Some(OpenStore { store, opening, has_begun: false });
        Ok(())
    }

    /// Keeps for the snapshots what the crashed session had not kept: see `keep`. Its working state
    /// is about to become a durable point.
    pub(super) fn keep_for_snapshots(&mut self) -> Result<()> {
        let next = self.carried.superblock.next_number();
        self.begin_store(next)?;
        if let Some(open) = &self.store
            && !planted!(DeadSessionKeepsNothing)
        {
            let Carried { superblock, verdict, .. } = &self.carried;
            let len = verdict.lengths.len;
            let at_point = verdict.journal.as_ref().map_or(len, |journal| journal.len());
            let sums_up_to = superblock.has_sums.then_some(at_point);
            self.pair().keep_for_snapshots(&open.store, len, sums_up_to)?;
            // Orders what is kept before everything by which the working state counts.
            unless!(DeadKeepsNotDurable, self.settle_store(&open.store)?);
        }
        Ok(())
    }

    /// Notes in the store that this session begins, durably. An opening that died may have done so
    /// under the same number, and each opening needs its own.
    pub(super) fn begin_store(&mut self, session: u64) -> Result<()> {
        let next = self.carried.located.opening.stamp_of(session);
        let had = self.carried.superblock.stamp();
        let Some(OpenStore { store, opening, has_begun }) = &mut self.store else { return Ok(()) };
        let number = session.max(opening.saturating_add(1));
        match *has_begun {
            false => store.begin(number, had, next)?,
            true => store.announce(number, had, next)?,
        }
        (*opening, *has_begun) = (number, true);
        let Some(OpenStore { store, .. }) = &self.store else { return Ok(()) };
        unless!(BegunStoreNotDurable, self.settle_store(store)?);
        Ok(())
    }

    /// Notes in the store that a session of this number is about to begin. Removes the leftover of
    /// a session that has died while it made one.
    pub(super) fn announce_to_store(&mut self, session: u64) -> Result<()> {
        let Carried { verdict, companions, located, .. } = &self.carried;
        let (opening, stat, name) = (&located.opening, &located.stat, companions.snapshots());
        if !verdict.is_fresh {
            let unfinished = name.with_suffix(UNFINISHED);
            unless!(UnfinishedStoreStays, opening.remove_leftover(&unfinished, stat).map(drop)?);
        }
        self.begin_store(session)
    }

    /// Notes in the store that the session has begun: its superblock is durable. Until then an
    /// opening may die and leave the store to the session before.
    pub(super) fn confirm_to_store(&self) -> Result<()> {
        let Some(OpenStore { store, .. }) = &self.store else { return Ok(()) };
        store.confirm()?;
        unless!(ConfirmedStoreNotDurable, self.settle_store(store)?);
        store.repeat_table();
        self.platform.drain();
        Ok(())
    }

    /// Hands the store over.
    pub(super) fn take_store(&mut self) -> Option<Store> {
        self.store.take().map(|open| open.store)
    }

    /// Makes durable what was stored to the store.
    fn settle_store(&self, store: &Store) -> Result<()> {
        self.platform.drain();
        if self.medium != Medium::Ram && !store.file().drains_are_durable() {
            store.sync().map_err(|e| Error::io("sync", store.file().path(), e))?;
        }
        Ok(())
    }

    fn map_store(&self, found: FoundStore) -> Result<MappedFile> {
        let Carried { verdict, companions, located, .. } = &self.carried;
        let (opening, path) = (&located.opening, companions.snapshots().path());
        let FoundStore { file, len, .. } = found;
        let is_synchronous = self.medium == Medium::Dax && opening.forced.is_none();
        let map = |most| match opening.options.read_only {
            true => opening.platform.map_private(Some((&file, len)), most),
            false => opening.platform.map(&file, most, is_synchronous),
        };
        let mapping = map_store(verdict.max_len, len, map)
            .map_err(|(most, e)| Error::of_mapping(path, most, verdict.max_len, e))?;
        let (platform, path) = (self.platform.clone(), path.to_owned());
        let file = MappedFile::new(platform, FileId::Snapshots, path, file, mapping, len);
        if opening.options.read_only {
            return Ok(file.into_private());
        }
        if self.medium == Medium::PageCache && !planted!(StoreInLargeFolios) {
            // The opening reads all segments in a row, and those without storage lie among them.
            file.expect_random();
            forget_beside_holes(&file)?;
        }
        Ok(file)
    }
}

/// Drops what the page cache has of chunks with holes: another program may have read them in large
/// folios. Chunks without a hole stay cached, since a store may be large.
fn forget_beside_holes(store: &MappedFile) -> Result<()> {
    let (mut at, len) = (0, store.len());
    while at < len {
        let io = |e| Error::io_at("look for holes", store.path(), at, e);
        let hole = store.next_hole(at).map_err(io)?;
        // The end of the file counts as a hole. Holes of any length take one call.
        let data = if hole < len { store.next_data(hole).map_err(io)? } else { None };
        let end = data.unwrap_or(len).max(hole);
        if hole < len {
            store.forget_folios(hole, end.saturating_sub(hole).max(1));
        }
        at = end.max(ChunkIndex::of(hole).end());
    }
    Ok(())
}
