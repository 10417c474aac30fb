//! The opening of a pair for reading alone: files that are neither written to nor locked against
//! other readers, and private mappings in which recovery works.
//!
//! Invariant: nothing here changes a file. Recovery stores to private memory through
//! [`MappedFile`](crate::mmap::MappedFile), and every step that writes by another way is left out.
//! A pair is judged as for any other opening. So the handle reads the state that the next opening
//! for writing finds.
//!
//! May import `context`, `engine` and below.

use super::context::Opening;
use super::{Carried, HUGE_PAGE, Judged, Mapped, Prepared, Recovered, Undo, Verdict};
use crate::config::options::Options;
use crate::config::{DeployPolicy, Durability, Medium};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::format::byte_mark::LEN;
use crate::format::superblock::DurablePoints;
use crate::mutant::planted;
use crate::platform::{File, Mapping};
use crate::registry::Registration;
use std::io;
use std::path::Path;
use std::sync::Arc;

impl Options {
    /// Returns the options of an opening: those that have no effect on a reader are the defaults.
    pub(crate) fn into_opened(self) -> Options {
        if !self.read_only {
            return Options { best_effort: false, ..self };
        }
        Options {
            create: false,
            len: 0,
            deploy: DeployPolicy::Manual,
            durability: Durability::OnSync,
            sync_every: None,
            auto_snapshots: None,
            keeps_cuts: false,
            ..self
        }
    }
}

impl<'a> Judged<'a> {
    /// Takes the reflection file as it is, and locks it against writers. Without one that counts,
    /// the home file stands in for it, and none of its bytes are used.
    pub(super) fn prepare_to_read(self) -> Result<Prepared<'a>> {
        let Judged { located, companions, store, look, is_fresh, .. } = self;
        let Judged { decision, entries, max_len, .. } = self;
        let (opening, stat) = (&located.opening, located.stat);
        let there = look.superblock.zip(look.file).filter(|_| !is_fresh);
        let (file, superblock, registration) = match there {
            Some((superblock, file)) => {
                let path = companions.reflection.path();
                let registration = opening.lock_to_read(&file, path)?;
                (file, superblock, Some(registration))
            }
            None => (
                located.home.file.clone(),
                opening.first_superblock(&stat, &stat, DurablePoints::NotYet),
                None,
            ),
        };
        let (lengths, journal, is_restored) = (look.lengths, look.journal, look.is_restored);
        // With a reflection file, that has the bytes of the slice.
        let byte_mark = look.byte_mark.found_at.filter(|_| is_fresh);
        let verdict =
            Verdict { decision, is_fresh, is_restored, journal, lengths, max_len, byte_mark };
        let undo = Undo::default();
        let carried = Carried {
            registration,
            superblock,
            entries,
            verdict,
            companions,
            store,
            undo,
            located,
        };
        Ok(Prepared { file, carried })
    }
}

impl Opening<'_> {
    fn lock_to_read(&self, file: &File, path: &Path) -> Result<Registration> {
        let there = self.stat(file, path)?;
        let registration = Registration::new(&there);
        let registration = registration.ok_or_else(|| Error::open_here(self.path))?;
        if !self.try_lock_to_read(file).map_err(self.io("lock", path))? {
            return Err(Error::open_elsewhere(self.path, self.platform.lock_holder(file)));
        }
        Ok(registration)
    }

    /// Takes the lock of a reader. Returns `false` if a writer has the file open.
    pub(super) fn try_lock_to_read(&self, file: &File) -> io::Result<bool> {
        if planted!(ReaderNotLocked) { Ok(true) } else { self.platform.try_lock_shared(file) }
    }

    /// Maps both files privately. Without a reflection file that counts, its mapping is zeroes.
    pub(super) fn map_to_read(
        &self,
        home: (&File, u64, u64),
        reflection: (Option<&File>, u64, u64),
    ) -> Result<(Mapping, Mapping, Medium)> {
        let map = |file: Option<&File>, there: u64, len: u64| {
            let len = len.max(there).max(1).next_multiple_of(HUGE_PAGE);
            self.platform
                .map_private(file.map(|file| (file, there)), len)
                .map_err(|e| Error::of_mapping(self.path, len, len, e))
        };
        let (file, there, len) = home;
        let home = map(Some(file), there, len)?;
        let (file, there, len) = reflection;
        let reflection = map(file, there, len)?;
        let found = if self.lies_in_memory() { Medium::Ram } else { Medium::PageCache };
        Ok((home, reflection, self.forced.unwrap_or(found)))
    }
}

impl Mapped<'_> {
    /// Hides the mark in the bytes of a home file that is read alone: the bytes there are zeroes.
    pub(super) fn hide_byte_mark(&self) -> Result<()> {
        let Some(place) = self.carried.verdict.byte_mark else { return Ok(()) };
        self.home.begin_private_changes();
        let hidden = self.home.write_file(&[0; LEN], place.start());
        hidden.map_err(|e| Error::io_at("write", self.home.path(), place.start(), e))
    }

    /// Tells both mappings that recovery is about to change them.
    pub(super) fn begin_private_changes(&self) {
        if self.carried.located.opening.options.read_only && !planted!(PrivateChangesMissed) {
            self.home.begin_private_changes();
            self.reflection.begin_private_changes();
        }
    }
}

impl Recovered<'_> {
    /// Hands the pair over to the engine. No session begins.
    pub(super) fn begin_to_read(self) -> Result<Arc<Engine>> {
        let Recovered { mut mapped, .. } = self;
        let superblock = mapped.carried.superblock.clone();
        let store = mapped.take_store();
        mapped.into_engine(superblock, None, store)
    }
}
