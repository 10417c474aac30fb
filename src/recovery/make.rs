//! How is a pair made, begun anew, or thrown away? Everything that opening writes but recovery.

use super::look::Look;
use super::pair::Found;
use super::{EXISTING, Opening, Step, UndoUnlessKept};
use crate::engine::session::{folder_of, identity_of, write_superblock};
use crate::error::{Error, Result};
use crate::format::layout;
use crate::format::marker::{self, Marker};
use crate::format::superblock::{DurablePoints, Identity, SUPERBLOCK_LEN, State, Superblock};
use crate::mutant::{planted, unless};
use crate::platform::{File, FileId, FileStat, OpenHow, Platform};
use crate::store::MappedFile;
use crate::terms::Medium;
use crate::units::PAGE;
use std::io;
use std::path::Path;

impl Opening<'_> {
    /// Makes the home file as long as it is to be, and a reflection file for it. Under another name
    /// first: under its own it is whole or not there.
    pub(super) fn make_reflection(
        &self,
        home: &File,
        stat: &FileStat,
        path: &Path,
        len: u64,
        durable: DurablePoints,
    ) -> Result<(File, Superblock)> {
        let platform = self.platform;
        let new = path.with_added_extension("new");
        match platform.remove_file(&new) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(Error::io("remove", &new, e)),
        }
        let how = OpenHow { create: false, create_new: true, mode: 0o600 };
        let file = platform.open(&new, how).map_err(self.io("create", &new))?;
        let mut unfinished = UndoUnlessKept::new(platform, Step::Made(new.clone()));
        let superblock = Superblock {
            session: 1,
            state: State::InUse,
            uuid: platform.new_uuid(),
            identity: identity_of(stat),
            boot_id: self.boot_id()?,
            name: self.home_name(),
            durable,
        };
        // While they are empty: later it does not count. Where it cannot be had, a full disk can be a
        // SIGBUS, and nothing else changes.
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
        // Written, so that it is allocated: both superblocks and the state words.
        let mut head = vec![0; layout::LENGTH_WORD as usize + PAGE];
        // Both copies, so that a file that is cut off anywhere past the first is still known.
        for copy in [&Superblock { session: 0, ..superblock.clone() }, &superblock] {
            let at = layout::SUPERBLOCKS[copy.copy_index()] as usize;
            head[at..at + SUPERBLOCK_LEN].copy_from_slice(&copy.encode());
        }
        let words = layout::LENGTH_WORD as usize;
        head[words..words + 8].copy_from_slice(&len.to_le_bytes());
        head[words + 8..words + 16].copy_from_slice(&len.to_le_bytes());
        platform.write_at(&file, id, &head, 0).map_err(no_space(0, head.len() as u64))?;
        // The file is whole before it has its name, and the name is durable before the first
        // operation returns.
        unless!(
            MadeNotSynced,
            platform.sync_all(&file, id).map_err(no_space(0, head.len() as u64))?
        );
        platform.rename(&new, path).map_err(self.io("rename", &new))?;
        unfinished.keep();
        let folders = || -> Result<()> {
            platform.sync_all(home, FileId::Home).map_err(self.io("sync", self.path))?;
            for folder in [folder_of(path), folder_of(self.path)] {
                unless!(
                    MadeFolderNotSynced,
                    platform.sync_dir(folder).map_err(self.io("sync the folder", folder))?
                );
            }
            Ok(())
        };
        folders().inspect_err(|_| {
            let _best_effort = platform.remove_file(path);
        })?;
        Ok((file, superblock))
    }

    /// Has a file that is new and empty written to in place, where the file system lets itself be told so.
    pub(super) fn write_in_place(&self, file: &File, path: &Path) -> Result<()> {
        let _goes_on_copying = self
            .platform
            .write_in_place(file)
            .map_err(self.io("turn copying on write off for", path))?;
        Ok(())
    }

    /// Voids everything in the lanes by a new session number, which is in all their checksums.
    pub(super) fn begin_session(
        &self,
        platform: &Platform,
        reflection: &MappedFile,
        last: Superblock,
        home: &FileStat,
        medium: Medium,
        durable: DurablePoints,
    ) -> Result<Superblock> {
        let superblock = Superblock {
            durable,
            session: last.session + if planted!(SessionStands) { 0 } else { 1 },
            state: State::InUse,
            boot_id: self.boot_id()?,
            // The device may have another number since the machine was restarted.
            identity: Identity { device: home.dev, ..last.identity },
            name: self.home_name(),
            ..last
        };
        write_superblock(platform, reflection, &superblock)?;
        if medium != Medium::Ram {
            // The new session is durable before its first operation: else the next recovery could take
            // that operation's words back by an undo entry of the old one.
            unless!(
                SessionNotSynced,
                reflection.sync_data().map_err(self.io("sync", reflection.path()))?
            );
        }
        Ok(superblock)
    }

    /// Puts the mark on the home file, where the file system has attributes.
    pub(super) fn set_marker(
        &self,
        home: &MappedFile,
        superblock: &Superblock,
        medium: Medium,
    ) -> Result<()> {
        let value = Marker::new(superblock.uuid, &superblock.identity).encode();
        let known = self
            .platform
            .get_xattr(home.file(), marker::NAME)
            .map_err(self.io("read the attribute", self.path))?;
        if known.as_deref() == Some(&value[..]) {
            return Ok(());
        }
        let marked = self
            .platform
            .set_xattr(home.file(), marker::NAME, &value)
            .map_err(self.io("set the attribute", self.path))?;
        if marked && medium != Medium::Ram {
            home.sync_all().map_err(self.io("sync", self.path)).inspect_err(|_| {
                // Opening fails, and a mark whose reflection file is removed means lost bytes.
                let _best_effort = self.platform.remove_xattr(home.file(), marker::NAME);
            })?;
        }
        Ok(())
    }

    /// Removes what the caller does not want. The mark first, and durably: a mark without a
    /// reflection file means lost bytes, while a reflection file without a mark is judged anew.
    pub(super) fn discard(&self, home: &File, found: &Look) -> Result<()> {
        if planted!(DiscardMarkLast) && found.found != Found::Nothing {
            self.remove_reflection(&found.path)?;
        }
        self.platform
            .remove_xattr(home, marker::NAME)
            .map_err(self.io("remove the attribute", self.path))?;
        self.platform.sync_all(home, FileId::Home).map_err(self.io("sync", self.path))?;
        if found.found != Found::Nothing && !planted!(DiscardMarkLast) {
            self.remove_reflection(&found.path)?;
        }
        Ok(())
    }

    /// Removes a reflection file that nobody has open.
    pub(super) fn remove_reflection(&self, path: &Path) -> Result<()> {
        let file = self.platform.open(path, EXISTING).map_err(self.io("open", path))?;
        if !self.platform.try_lock(&file).map_err(self.io("lock", path))? {
            return Err(Error::Busy { path: path.to_owned(), in_this_process: false });
        }
        // The journal first: it is found by the reflection file.
        self.remove_journal(path)?;
        self.platform.remove_file(path).map_err(self.io("remove", path))
    }
}
