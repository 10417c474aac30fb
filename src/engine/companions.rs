//! The companions of an open pair: their folder, and the store of snapshots, which a session makes.
//!
//! The store is made under another name, so that under its own name it is whole or absent. Its
//! bytes are durable before it has that name, and the name before a snapshot can count.
//!
//! May import `superblock` and what lies below the engine.

use crate::config::Medium;
use crate::engine::Engine;
use crate::engine::superblock::{UNFINISHED, remove_if_is};
use crate::error::{Error, Result};
use crate::format::layout;
use crate::format::snapshots::{SEGMENTS, TABLES_END};
use crate::mmap::MappedFile;
use crate::mutant::unless;
use crate::pair::snapshots::Store;
use crate::platform::{File, FileId, FileStat, Name, OpenHow};
use crate::units::CHUNK;
use std::io;

/// Maps the store of a file that may get `max_len` bytes long. `len` is the store's length. Returns
/// the length of the mapping that has failed with its error.
///
/// The mapping is made once, and the store holds no more than it. So it is long enough for many
/// versions of the file. Where addresses are short, it is as long as the reflection file's.
pub(crate) fn map_store<T>(
    max_len: u64,
    len: u64,
    map: impl Fn(u64) -> io::Result<T>,
) -> std::result::Result<T, (u64, io::Error)> {
    let least = layout::reflection_len(max_len).max(len);
    let most = least.saturating_add(VERSIONS.saturating_mul(max_len)).max(LEAST_REACH);
    let whole = |len: u64| len.div_ceil(CHUNK as u64) * CHUNK as u64;
    map(whole(most)).or_else(|_| map(whole(least)).map_err(|e| (least, e)))
}

/// Versions of a whole file that its store has addresses for.
const VERSIONS: u64 = 16;

/// Bytes that a store of a short file has addresses for.
const LEAST_REACH: u64 = 64 << 30;

/// A file of a failed attempt to make a store, which could not be removed.
pub(super) enum Leftover {
    /// Created and empty. The next attempt goes on with it.
    Empty(File),
    /// One that the next attempt removes.
    Known(FileStat),
}

impl Engine {
    /// Makes the names of the companions durable.
    pub(super) fn sync_their_folder(&self) -> Result<()> {
        if self.medium == Medium::Ram {
            return Ok(());
        }
        let folder = self.companions.reflection.folder();
        let synced = self.platform.sync_dir(folder, self.reflection.file());
        synced.map_err(|e| Error::io("sync the folder", folder.path(), e))
    }

    /// Returns the store of snapshots, and makes it if there is none.
    ///
    /// # Errors
    /// Those of making a companion. Nothing is left of it then.
    pub(crate) fn make_store(&self) -> Result<&Store> {
        // One thread at a time makes the store.
        let mut leftover = self.making_store.lock();
        if let Some(store) = self.snapshots.get() {
            return Ok(store);
        }
        let name = self.companions.snapshots();
        let new = name.with_suffix(UNFINISHED);
        if let Some(Leftover::Known(there)) = &*leftover {
            // It has one of the two names.
            for name in [&new, name] {
                let removed = remove_if_is(&self.platform, name, there);
                removed.map_err(|e| Error::io("remove", name.path(), e))?;
            }
            *leftover = None;
        }
        let how = OpenHow { create_new: true, mode: 0o600, reads_only: false };
        let file = match leftover.take() {
            Some(Leftover::Empty(file)) => Ok(file),
            _ => self.platform.open(&new, how),
        };
        let file =
            file.map_err(|e| Error::of_companion(self.home.path(), new.path(), "create", e))?;
        let there = match self.platform.stat(&file) {
            Ok(there) => there,
            Err(e) => {
                if self.platform.remove(&new).is_err() {
                    *leftover = Some(Leftover::Empty(file));
                }
                return Err(Error::io("look up", new.path(), e));
            }
        };
        let made = || {
            let store = self.fill_store(file, &new, name)?;
            let renamed = self.platform.rename(&new, name);
            renamed.map_err(|e| Error::io("rename", new.path(), e))?;
            unless!(StoreFolderNotSynced, self.sync_their_folder()?);
            Ok(store)
        };
        let store = made().inspect_err(|_| {
            for name in [&new, name] {
                if remove_if_is(&self.platform, name, &there).is_err() {
                    *leftover = Some(Leftover::Known(there));
                }
            }
        })?;
        Ok(self.snapshots.get_or_init(|| store))
    }

    /// Makes an empty store of a file that was just created, durably.
    fn fill_store(&self, file: File, new: &Name, name: &Name) -> Result<Store> {
        let platform = &self.platform;
        let io = |call| move |e| Error::io(call, new.path(), e);
        let home = platform.stat(self.home.file());
        let home = home.map_err(|e| Error::io("look up", self.home.path(), e))?;
        let own = || platform.own(&file, self.home.file(), &home);
        unless!(CompanionNotOwned, own().map_err(io("set the owner of"))?);
        let in_place = platform.write_in_place(&file);
        let _goes_on_copying = in_place.map_err(io("turn copying on write off for"))?;
        let (id, len) = (FileId::Snapshots, SEGMENTS);
        platform.set_file_len(&file, id, len).map_err(io("change the length"))?;
        platform
            .allocate(&file, id, None, 0, TABLES_END)
            .map_err(|e| Error::io_of_range("allocate", new.path(), 0, TABLES_END, e))?;
        let map = |most| platform.map(&file, most, self.maps_synchronously);
        let mapping = map_store(self.max_len, len, map)
            .map_err(|(most, e)| Error::of_mapping(name.path(), most, self.max_len, e))?;
        // Segments without storage will lie among those with records.
        platform.expect_random(&file, &mapping);
        let path = name.path().to_owned();
        let file = MappedFile::new(platform.clone(), id, path, file, mapping, len);
        let (uuid, session, stamp) = {
            let superblock = self.superblock.lock();
            (superblock.uuid, superblock.session, superblock.stamp())
        };
        let store = Store::create(file, uuid, session, stamp)?;
        platform.drain();
        if self.medium != Medium::Ram {
            unless!(StoreNotSynced, store.file().sync_all().map_err(io("sync"))?);
        }
        Ok(store)
    }
}
