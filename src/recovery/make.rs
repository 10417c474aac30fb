//! Makes pairs, begins sessions and discards pairs: everything that opening writes, except
//! recovery.

use super::Opening;
use super::candidates::is_denied;
use super::pair::{Found, Mark};
use super::probe::Probe;
use super::trust::Named;
use crate::config::Medium;
use crate::engine::superblock::{
    Companions, How, UNFINISHED, cache_parts, identity_of, remove_own, store_begun,
    write_superblock,
};
use crate::error::{Distrust, Error, Mismatch, Result};
use crate::format::marker::{self, Marker, Sessions};
use crate::format::superblock::{
    DurablePoints, FIRST_SESSION, SUPERBLOCK_LEN, State, Superblock, stamp,
};
use crate::format::{layout, state_word};
use crate::mmap::MappedFile;
use crate::mutant::{planted, unless};
use crate::pair::marking::MarkWord;
use crate::platform::{File, FileId, FileStat, Name, OpenHow, Platform};
use crate::units::PAGE;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Pairs that a home file remembers as discarded, the newest first: its attributes have little
/// room.
const MOST_DISCARDED: usize = 64;

/// A reflection file that this opening has made.
pub(super) struct Made {
    pub file: File,
    pub superblock: Superblock,
    /// The metadata by which the file is known.
    pub there: FileStat,
}

impl Opening<'_> {
    /// Gives the home file its length, and makes a reflection file for it. Its name is `first`, or
    /// the next free name if another opening is faster.
    pub(super) fn make_reflection(
        &self,
        home: &File,
        stat: &FileStat,
        first: &Name,
        len: u64,
    ) -> Result<(Name, Made)> {
        // An opening that died may have used another of these names. This opening has a name, so a
        // link there, and a file that it may not open, are left alone.
        for name in self.new_names(stat).take(2).filter(|name| name.name() != first.name()) {
            match self.remove_leftover(&name.with_suffix(UNFINISHED), stat) {
                Err(Error::Untrusted { .. }) => {}
                Err(error) if is_denied(&error) => {}
                removed => drop(removed?),
            }
        }
        if let Some(made) = self.make_reflection_of(home, stat, first, len)? {
            return Ok((first.clone(), made));
        }
        let mut names = self.new_names(stat);
        while let Some(name) = self.next_free(&mut names, stat)? {
            if name.name() == first.name() {
                continue;
            }
            if let Some(made) = self.make_reflection_of(home, stat, &name, len)? {
                return Ok((name, made));
            }
        }
        Err(self.mismatch(first.path(), Mismatch::Foreign))
    }

    /// Makes a reflection file of this name. Writes it under another name first, so that under its
    /// own name it is whole or absent. Returns `None` if another opening has the name.
    fn make_reflection_of(
        &self,
        home: &File,
        stat: &FileStat,
        name: &Name,
        len: u64,
    ) -> Result<Option<Made>> {
        let platform = self.platform;
        let new_name = name.with_suffix(UNFINISHED);
        let new = new_name.path().to_owned();
        if !self.remove_leftover(&new_name, stat)? {
            return Ok(None);
        }
        let how = OpenHow { create_new: true, mode: 0o600, reads_only: false };
        let file = match platform.open(&new_name, how) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
            other => other.map_err(|e| Error::of_companion(self.path, &new, "create", e))?,
        };
        let there = self.stat_made(&new_name, &file)?;
        let mut unfinished = self.undo_making(&new_name, there);
        // The lock is held until the pair is closed. So an opening of another home file does not
        // take the file for a leftover.
        if !platform.try_lock(&file).map_err(self.io("lock", &new))? {
            // Between the two calls, that other opening took the file for a leftover, and removes
            // it.
            unfinished.keep();
            return Ok(None);
        }
        self.own_like_home(&file, &new, (home, stat))?;
        // This has an effect only while the files are empty. Where it is not available, a full disk
        // can cause a SIGBUS, and nothing else changes.
        self.write_in_place(&file, &new)?;
        if stat.len == 0 {
            self.write_in_place(home, self.path)?;
        }
        let no_space = |at: u64, bytes: u64| {
            let path = new.clone();
            move |e: io::Error| Error::io_of_range("write", &path, at, bytes, e)
        };
        if stat.len != len {
            platform
                .set_file_len(home, FileId::Home, len)
                .map_err(self.io("change the length", self.path))?;
        }
        let id = FileId::Reflection;
        let reflection_len = layout::reflection_len(len);
        platform
            .set_file_len(&file, id, reflection_len)
            .map_err(self.io("change the length", &new))?;
        // The bytes of a home file are summed after the pair has its names, and before a second
        // superblock says that there are sums.
        let waits_for_sums = self.wants_sums() && stat.len > 0;
        let keeps = self.will_keep_durable_points((home, self.path), (&file, &new))?;
        let durable = match keeps && !waits_for_sums {
            true => self.durable_points(true, len),
            false => DurablePoints::NotYet,
        };
        let superblock = self.first_superblock(stat, &there, durable);
        let mark = self.new_byte_mark.get();
        let head = head_of(&superblock, len, mark);
        platform.write_at(&file, id, &head, 0).map_err(no_space(0, head.len() as u64))?;
        if let Some(place) = mark.place() {
            unless!(ByteMarkWordMissing, self.put_byte_mark_words((&file, &new), place)?);
        }
        // The file is whole before it has its name. The name is durable before the mark.
        if !self.is_kept_in_memory() {
            unless!(
                MadeNotSynced,
                platform.sync_all(&file, id).map_err(no_space(0, head.len() as u64))?
            );
        }
        match platform.rename(&new_name, name) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
            other => other.map_err(self.io("rename", &new))?,
        }
        unfinished.keep();
        Ok(Some(Made { file, superblock, there }))
    }

    /// Returns the superblock of a reflection file that is being made.
    ///
    /// Where durable points are kept, the pair is in use from the beginning: no store to either
    /// file comes before the names and the mark are durable, and a missing journal has no record.
    /// Elsewhere nothing in the file counts before a second superblock says so.
    pub(super) fn first_superblock(
        &self,
        home: &FileStat,
        own: &FileStat,
        durable: DurablePoints,
    ) -> Superblock {
        let is_begun = durable.base().is_some();
        Superblock {
            session: FIRST_SESSION,
            state: State::InUse,
            uuid: self.platform.new_uuid(),
            identity: identity_of(home),
            own: identity_of(own),
            boot_id: self.cache.boot_id,
            cache: cache_parts(&self.cache),
            name: self.home_name(),
            durable,
            is_marked: is_begun && self.home_keeps_marks.get(),
            is_unsettled: is_begun && !planted!(MadeAsSettled),
            has_sums: is_begun && self.wants_sums(),
        }
    }

    /// Makes the names of a new pair's files durable: one barrier for each folder. `file` is the
    /// reflection file, and has the name `name`. Orders all names before the mark, which says that
    /// there is a reflection file.
    pub(super) fn sync_names(&self, name: &Name, file: &File, home: &File) -> Result<()> {
        if self.is_kept_in_memory() {
            return Ok(());
        }
        let (beside, own) = (name.folder(), self.home.folder());
        let both = [(beside, file), (own, home)];
        let are_one = Arc::ptr_eq(beside, own);
        for (folder, file) in both.into_iter().take(if are_one { 1 } else { 2 }) {
            let sync = || self.platform.sync_dir(folder, file);
            unless!(
                MadeFolderNotSynced,
                sync().map_err(self.io("sync the folder", folder.path()))?
            );
        }
        Ok(())
    }

    /// Removes the leftover of an opening that crashed while it made a reflection file of this
    /// name. Returns `false` if the name cannot be used: another opening may be making a file
    /// there, for another home file.
    pub(super) fn remove_leftover(&self, name: &Name, home: &FileStat) -> Result<bool> {
        let file = match self.open_trusted(name, home)? {
            Named::Nothing => return Ok(true),
            Named::Trusted(file, _) => file,
            Named::Distrusted(why @ Distrust::IsLink) => return Err(self.distrusted(name, why)),
            Named::Irregular | Named::Distrusted(_) => return Ok(false),
        };
        if !self.platform.try_lock(&file).map_err(self.io("lock", name.path()))? {
            return Ok(false);
        }
        remove_own(self.platform, name, &file)
            .map_err(|e| Error::of_companion(self.path, name.path(), "remove", e))?;
        Ok(true)
    }

    /// Turns copying on write off for a new and empty file, where the file system supports that.
    pub(super) fn write_in_place(&self, file: &File, path: &Path) -> Result<()> {
        let _goes_on_copying = self
            .platform
            .write_in_place(file)
            .map_err(self.io("turn copying on write off for", path))?;
        Ok(())
    }

    /// Returns the stamp of a session that this opening begins.
    pub(super) fn stamp_of(&self, session: u64) -> u64 {
        stamp(session, &cache_parts(&self.cache))
    }

    /// Begins a session. Its number voids all records in the lanes, since their checksums cover the
    /// session number.
    pub(super) fn begin_session(
        &self,
        platform: &Platform,
        reflection: &MappedFile,
        (last, session): (Superblock, u64),
        home: &FileStat,
        medium: Medium,
        (durable, is_marked, has_sums): (DurablePoints, bool, bool),
    ) -> Result<Superblock> {
        let superblock = Superblock {
            durable,
            session: if planted!(SessionStands) { last.session } else { session },
            state: State::InUse,
            boot_id: self.cache.boot_id,
            cache: cache_parts(&self.cache),
            // Either file may have been restored, and the device number may change with each mount.
            identity: identity_of(home),
            own: identity_of(&self.stat(reflection.file(), reflection.path())?),
            name: self.home_name(),
            is_marked,
            is_unsettled: false,
            has_sums,
            ..last
        };
        let is_mapped = medium == Medium::Dax && durable.base().is_none();
        let how = if is_mapped { How::Mapped } else { How::Cached };
        write_superblock(platform, reflection, &superblock, how)?;
        if !is_mapped && (medium != Medium::Ram || !self.lies_in_memory()) {
            // The new session is durable before its first operation: else the next recovery could
            // take that operation's words back by an undo entry of the old one. On a disk that was
            // forced to be RAM, a power loss would otherwise leave the superblock of a pair that
            // was being made or closed, beside a home file with stores of this session.
            unless!(
                SessionNotSynced,
                reflection.sync_data().map_err(self.io("sync", reflection.path()))?
            );
        }
        unless!(BegunNotStored, store_begun(reflection, superblock.session));
        Ok(superblock)
    }

    /// Puts the mark on the home file, durably except on RAM. Returns `false` if the file system
    /// has no attributes.
    pub(super) fn set_marker(
        &self,
        home: &MappedFile,
        stat: &FileStat,
        reflection: &MappedFile,
        (uuid, sessions, is_durable): ([u8; 16], Sessions, bool),
        name: &Name,
        medium: Medium,
    ) -> Result<bool> {
        let there = self.stat(reflection.file(), reflection.path())?;
        // Files on one volume are rolled back together.
        let lies_elsewhere = there.dev != stat.dev;
        let marker = Marker {
            named: self.named(name, stat),
            sessions: lies_elsewhere.then_some(sessions),
            ..Marker::new(uuid, &identity_of(stat))
        };
        let value = marker.encode();
        let known = self
            .platform
            .get_xattr(home.file(), marker::NAME)
            .map_err(self.io("read the attribute", self.path))?;
        let is_there = known.as_deref() == Some(&value[..]);
        // A mark with sessions is new at each opening. One that is there already was set by an
        // opening that died, perhaps before its sync.
        if is_there && is_durable && !lies_elsewhere {
            return Ok(true);
        }
        let marked = is_there
            || self
                .platform
                .set_xattr(home.file(), marker::NAME, &value)
                .map_err(self.io("set the attribute", self.path))?;
        if marked && (medium != Medium::Ram || !self.lies_in_memory()) {
            // The mark is durable before the superblock that says so: a home file without a mark
            // has no pair. So it is on a disk that was forced to be RAM, since a power loss leaves
            // both files.
            unless!(MarkNotSynced, home.sync_all().map_err(self.io("sync", self.path))?);
        }
        Ok(marked)
    }

    /// Removes what the caller discards. First the reflection file says that nothing in it counts,
    /// then the mark goes, and then the companions. So a crash in between leaves nothing that is
    /// refused.
    pub(super) fn discard(&self, home: &File, stat: &FileStat, found: &Probe) -> Result<()> {
        if let (Found::Emptied, Some(file)) = (&found.found, &found.file)
            && !planted!(EmptiedNotSynced)
        {
            // The emptied state may be in the page cache only, if its process crashed before the
            // sync. It must be durable before the journal goes, which a pair in use needs.
            self.platform
                .sync_all(file, FileId::Reflection)
                .map_err(self.io("sync", found.companions.reflection.path()))?;
        }
        // A file that is not certainly this home file's may be another's, and may hold the only
        // copy of its bytes.
        let is_ours = found.is_ours || planted!(DiscardedAnyones) && found.found != Found::Nothing;
        let uuid = found.superblock.as_ref().map_or([0; 16], |superblock| superblock.uuid);
        let path = found.companions.reflection.path();
        if let (true, Some(file)) = (is_ours, &found.file)
            && !self.platform.try_lock(file).map_err(self.io("lock", path))?
        {
            // Nothing has changed yet.
            return Err(Error::open_elsewhere(path, self.platform.lock_holder(file)));
        }
        if let (true, Some(file), Some(last)) = (is_ours, &found.file, &found.superblock)
            && matches!(found.found, Found::OfThisFile { .. })
            && !planted!(DiscardedNotEmptied)
        {
            // Without its mark the pair would be refused. From here on nothing in it counts.
            // Durable before the mark goes, for a crash in between.
            let emptied = Superblock {
                session: last.next_number(),
                state: State::Emptied,
                is_unsettled: false,
                ..last.clone()
            };
            let at = layout::SUPERBLOCKS[emptied.copy_index()];
            self.platform
                .write_at(file, FileId::Reflection, &emptied.encode(), at)
                .map_err(|e| Error::io_at("write the superblock", path, at, e))?;
            self.platform.sync_all(file, FileId::Reflection).map_err(self.io("sync", path))?;
        }
        if let (None, Some(uuid), Mark::OfThisFile | Mark::Closing) =
            (&found.superblock, &found.marked, found.mark)
        {
            // Its reflection file is gone, and the companions beside it may be left.
            for name in self.candidates(stat, None)? {
                let is_alone =
                    self.platform.stat_name(&name).map_err(self.io("look up", name.path()))?;
                if is_alone.is_none() {
                    self.remove_beside(&Companions::new(name), stat, uuid)?;
                }
            }
        }
        if let Some(earlier) = &found.stays {
            // Its reflection file stays, and does not refuse this file again.
            let mut all = self.discarded(home)?;
            all.retain(|known| known != earlier);
            all.insert(0, *earlier);
            all.truncate(MOST_DISCARDED);
            // The sync after the removal of the mark makes both durable.
            self.platform
                .set_xattr(home, marker::DISCARDED, all.as_flattened())
                .map_err(self.io("set the attribute", self.path))?;
        }
        if planted!(DiscardMarkLast) && is_ours {
            self.remove_companions(found, stat, &uuid)?;
        }
        self.platform
            .remove_xattr(home, marker::NAME)
            .map_err(self.io("remove the attribute", self.path))?;
        self.platform.sync_all(home, FileId::Home).map_err(self.io("sync", self.path))?;
        if is_ours && !planted!(DiscardMarkLast) {
            self.remove_companions(found, stat, &uuid)?;
        }
        Ok(())
    }

    /// Removes the reflection file that was looked at, which the caller has locked, and the
    /// companions beside it.
    fn remove_companions(&self, found: &Probe, home: &FileStat, uuid: &[u8; 16]) -> Result<()> {
        let Some(file) = &found.file else { return Ok(()) };
        // They go first, since opening finds them by the reflection file.
        self.remove_beside(&found.companions, home, uuid)?;
        let name = &found.companions.reflection;
        remove_own(self.platform, name, file).map_err(self.io("remove", name.path()))?;
        Ok(())
    }
}

/// Bytes of both superblocks and of the page with the state words.
const HEAD: usize = layout::LENGTH_WORD as usize + PAGE;

/// Returns the head of a new reflection file: both superblocks and the state words. All of it is
/// written, so that it is allocated.
fn head_of(superblock: &Superblock, len: u64, mark: MarkWord) -> Vec<u8> {
    let mut head = vec![0; HEAD];
    // Both copies are written, so that a file that is cut off anywhere past the first is
    // recognized.
    for copy in [&Superblock { session: 0, ..superblock.clone() }, superblock] {
        let at = layout::SUPERBLOCKS[copy.copy_index()] as usize;
        head[at..][..SUPERBLOCK_LEN].copy_from_slice(&copy.encode());
    }
    let words = [
        (layout::LENGTH_WORD, len),
        (layout::HIGH_WATER_WORD, len),
        (layout::MARK_WORD, mark.encode()),
    ];
    for (at, number) in words {
        let word = state_word::encode(at, number).to_le_bytes();
        head[at as usize..][..word.len()].copy_from_slice(&word);
    }
    head
}
