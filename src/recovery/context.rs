//! The context of one opening: the options, the names, where the files lie, and the steps that are
//! undone if opening fails.
//!
//! Invariant: a step is undone while the lock of the home file is held. May import `probe`,
//! `trust`, `medium`, `lanes`, `reservation`, `engine` and below.

use super::pair::{Found, Home};
use super::probe::{Lengths, Probe};
use super::snapshots::FoundStore;
use super::{HUGE_PAGE, lanes, medium, reservation};
use crate::config::integrity::Integrity;
use crate::config::options::Options;
use crate::config::{Durability, Medium};
use crate::engine::superblock::{Companions, remove_if_is, remove_own};
use crate::error::{Error, Mismatch, Result, SnapshotError};
use crate::format::entry::Seed;
use crate::format::layout;
use crate::format::marker;
use crate::format::superblock::{DurableBase, DurablePoints};
use crate::mutant::{planted, unless};
use crate::pair::marking::MarkWord;
use crate::platform::{
    CacheIdentity, File, FileId, FileStat, FileSystem, Folder, Name, OpenHow, Platform,
};
use crate::registry::Registration;
use crate::units::SLICE;
use std::cell::Cell;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The pauses of a writer beside locks that only readers and looks have: their length and number.
const PAUSE_FOR_LOOKS: Duration = Duration::from_millis(1);
const PAUSES_FOR_LOOKS: usize = 200;

/// A step of this opening that is undone on drop, unless opening has succeeded.
pub(super) struct Rollback<'a> {
    platform: &'a Platform,
    step: Option<Step>,
}

/// A step that can be undone.
pub(super) enum Step {
    /// Opening has made this file under this name.
    Made(Name, FileStat),
    /// Opening has given the empty home file a length.
    Lengthened(File),
    /// Opening has marked the home file, which had no pair before: by its attribute, and by bytes
    /// in the place of these.
    Marked(File, Option<(u64, [u8; SLICE])>),
}

impl<'a> Rollback<'a> {
    pub(super) fn new(platform: &'a Platform, step: Step) -> Self {
        Rollback { platform, step: Some(step) }
    }

    pub(super) fn keep(&mut self) {
        self.step = None;
    }
}

impl Drop for Rollback<'_> {
    fn drop(&mut self) {
        // The error that led here is the one to report.
        let _best_effort = match &self.step {
            Some(Step::Made(name, there)) => remove_if_is(self.platform, name, there).map(drop),
            Some(Step::Lengthened(file)) => self.platform.set_file_len(file, FileId::Home, 0),
            Some(Step::Marked(file, before)) => {
                let unmarked = before.map_or(Ok(()), |(at, bytes)| {
                    self.platform.write_at(file, FileId::Home, &bytes, at)
                });
                self.platform.remove_xattr(file, marker::NAME).and(unmarked)
            }
            None => Ok(()),
        };
    }
}

/// The home file, open. In this order: the step is undone while the lock is held.
pub(super) struct HomeFile<'a> {
    /// The step that removes or empties the home file if opening fails. Set once the lock is held
    /// and the file was found to be empty. Until then the file, or bytes in it, may belong to
    /// another opening.
    pub(super) if_it_fails: Option<Rollback<'a>>,
    pub(super) file: File,
    pub(super) is_new: bool,
}

pub(super) struct Opening<'a> {
    pub(super) platform: &'a Platform,
    pub(super) options: &'a Options,
    /// The path that the caller gave, which may lead over links.
    pub(super) given: &'a Path,
    pub(super) home: &'a Name,
    /// The path of the home file.
    pub(super) path: &'a Path,
    /// The folder of the companions.
    pub(super) dir: Arc<Folder>,
    /// The medium that the caller or the environment forces.
    pub(super) forced: Option<Medium>,
    /// The use of page sums that the caller or the environment wants.
    pub(super) integrity: Option<Integrity>,
    pub(super) home_lies_on: FileSystem,
    pub(super) dir_lies_on: FileSystem,
    /// The page cache that holds what is stored from here on. Read anew at each opening, since a
    /// process may be moved from one boot to the next.
    pub(super) cache: CacheIdentity,
    /// `true` if every mount of the file systems shares that page cache.
    pub(super) cache_is_shared: bool,
    pub(super) home_keeps_marks: Cell<bool>,
    /// The mark in the bytes of a new pair's home file, once that was decided.
    pub(super) new_byte_mark: Cell<MarkWord>,
}

impl<'a> Opening<'a> {
    pub(super) fn new(
        platform: &'a Platform,
        options: &'a Options,
        (given, home): (&'a Path, &'a Name),
        dir: Arc<Folder>,
        (forced, integrity): (Option<Medium>, Option<Integrity>),
    ) -> Self {
        let unknown = FileSystem::Unknown(0);
        Opening {
            platform,
            options,
            given,
            home,
            path: home.path(),
            dir,
            forced,
            integrity,
            home_lies_on: unknown,
            dir_lies_on: unknown,
            cache: CacheIdentity::default(),
            cache_is_shared: false,
            home_keeps_marks: Cell::new(false),
            new_byte_mark: Cell::new(MarkWord::None),
        }
    }

    /// Determines the file systems of the home file and its companions, and refuses unsuitable
    /// ones.
    pub(super) fn find_where_files_lie(&mut self, home: &File) -> Result<()> {
        let dir = self.dir.path().to_owned();
        let platform = self.platform;
        let is_alone = platform.is_mounted_alone(self.home.folder(), home);
        let is_alone = is_alone.map_err(self.io("look up", self.path))?;
        if is_alone && self.options.reflection_dir.is_none() && !planted!(MountedAloneTaken) {
            return Err(Error::MountedAlone { path: self.path.to_owned() });
        }
        self.home_lies_on = platform.file_system(home).map_err(self.io("look up", self.path))?;
        self.dir_lies_on = platform.file_system_of(&self.dir).map_err(self.io("look up", &dir))?;
        medium::check_file_system(self.options, self.path, self.home_lies_on)?;
        medium::check_file_system(self.options, &dir, self.dir_lies_on)?;
        if self.forced != Some(Medium::Ram) {
            medium::check_pair(self.options, &dir, self.home_lies_on, self.dir_lies_on)?;
        }
        let told = platform
            .cache_identity((home, self.home_lies_on), (&self.dir, self.dir_lies_on))
            .map_err(self.io("read the boot's identity", self.path))?;
        (self.cache, self.cache_is_shared) = told;
        Ok(())
    }

    /// Returns `true` if a file's calls and its mappings surely share one page cache. On a file
    /// system of another machine, or of a user's process, they may not.
    pub(super) fn calls_share_cache(&self) -> bool {
        let is_local = |on: &FileSystem| matches!(on, FileSystem::Local(_));
        [self.home_lies_on, self.dir_lies_on].iter().all(is_local) || planted!(RunByAnyCall)
    }

    /// Returns the names of the companions that exist, or of those that opening will make.
    pub(super) fn companions_of(
        &self,
        found: &Probe,
        home: &FileStat,
        is_fresh: bool,
    ) -> Result<Companions> {
        if !is_fresh {
            return Ok(found.companions.clone());
        }
        if let (Some(superblock), true) = (&found.superblock, found.is_ours) {
            let mut stays = false;
            for companion in &found.companions.beside {
                stays |= self.is_anothers(companion, home, &superblock.uuid)?;
            }
            if !stays {
                return Ok(found.companions.clone());
            }
            // The reflection file is removed, but a companion beside it is another pair's and
            // stays. So the new companions need another name.
        }
        match self.next_free(&mut self.new_names(home), home)? {
            Some(name) => Ok(Companions::new(name)),
            // Other files have all names.
            None => Err(self.mismatch(found.companions.reflection.path(), Mismatch::Foreign)),
        }
    }

    pub(super) fn undo_making(&self, name: &Name, there: FileStat) -> Rollback<'a> {
        Rollback::new(self.platform, Step::Made(name.clone(), there))
    }

    /// Returns the metadata of a file that was just made under `name`. Removes the name if the
    /// metadata cannot be read.
    pub(super) fn stat_made(&self, name: &Name, file: &File) -> Result<FileStat> {
        self.stat(file, name.path()).inspect_err(|_| {
            let _best_effort = self.platform.remove(name);
        })
    }

    /// Gives a companion the home file's owner, group and rights. No user gets more rights than the
    /// home file grants. So a tool that an administrator runs once on a service's file leaves no
    /// companion that the service cannot open.
    pub(super) fn own_like_home(
        &self,
        file: &File,
        path: &Path,
        (home, like): (&File, &FileStat),
    ) -> Result<()> {
        unless!(
            CompanionNotOwned,
            self.platform.own(file, home, like).map_err(self.io("set the owner of", path))?
        );
        Ok(())
    }

    /// Returns `true` if all files lie on file systems in memory.
    pub(super) fn lies_in_memory(&self) -> bool {
        [self.home_lies_on, self.dir_lies_on]
            .iter()
            .all(|file_system| matches!(file_system, FileSystem::Ram(_)))
    }

    /// Returns `true` if the files lie in memory and are treated so. Nothing survives a power loss
    /// then, so no barrier is needed.
    pub(super) fn is_kept_in_memory(&self) -> bool {
        self.lies_in_memory() && matches!(self.forced, None | Some(Medium::Ram))
    }

    pub(super) fn io(
        &self,
        call: &'static str,
        path: &Path,
    ) -> impl FnOnce(io::Error) -> Error + use<> {
        let path = path.to_owned();
        move |e| Error::io(call, &path, e)
    }

    pub(super) fn stat(&self, file: &File, path: &Path) -> Result<FileStat> {
        self.platform.stat(file).map_err(self.io("look up", path))
    }

    /// Registers and locks the home file.
    pub(super) fn take(&self, home: &mut HomeFile<'_>) -> Result<(Registration, FileStat)> {
        let stat = self.stat(&home.file, self.path)?;
        if !stat.is_regular {
            return Err(Error::NotRegular { path: self.path.to_owned() });
        }
        let registration = Registration::new(&stat);
        let registration = registration.ok_or_else(|| Error::open_here(self.path))?;
        let lock = |file| match self.options.read_only {
            true => self.try_lock_to_read(file),
            false => self.try_lock_to_write(file),
        };
        if !lock(&home.file).map_err(self.io("lock", self.path))? {
            let holder = self.platform.lock_holder(&home.file);
            return Err(Error::open_elsewhere(self.path, holder));
        }
        // Read anew: another process may have closed the file between the first look and the lock.
        Ok((registration, self.stat(&home.file, self.path)?))
    }

    /// Takes the lock of a writer. Returns `false` if another process has the file open.
    ///
    /// A look at the file (`inspect`) has the lock of a reader for a moment, to see if a writer has
    /// the file open. It must not make this opening fail. So the lock of a reader is waited for, up
    /// to some 200 ms. That of a writer is not: it excludes the lock of a reader as well.
    pub(super) fn try_lock_to_write(&self, file: &File) -> io::Result<bool> {
        for _ in 0..PAUSES_FOR_LOOKS {
            if self.platform.try_lock(file)? {
                return Ok(true);
            }
            if planted!(LookNotWaitedFor) || !self.platform.try_lock_shared(file)? {
                return Ok(false);
            }
            self.platform.unlock(file)?;
            std::thread::sleep(PAUSE_FOR_LOOKS);
        }
        self.platform.try_lock(file)
    }

    /// Removes a home file that this opening made and could not take, unless another opening has
    /// taken it.
    pub(super) fn give_up(&self, home: &HomeFile<'_>, why: &Error) {
        if !home.is_new || matches!(why, Error::Busy { .. }) {
            return;
        }
        let is_ours = self.platform.try_lock(&home.file).is_ok_and(|locked| locked)
            && self.platform.stat(&home.file).is_ok_and(|stat| stat.len == 0);
        if is_ours {
            let _best_effort = remove_own(self.platform, self.home, &home.file);
        }
    }

    /// Returns what the lanes of a pair say that needs recovery. Returns `None` if no writer can
    /// have written that.
    pub(super) fn entries(&self, found: &Probe) -> Result<Option<Vec<lanes::Findings>>> {
        let Some((superblock, file)) = found.superblock.as_ref().zip(found.file.as_ref()) else {
            return Ok(None);
        };
        let seed = Seed::new(&superblock.uuid, superblock.session);
        lanes::scan(self.platform, file, found.companions.reflection.path(), seed)
    }

    /// Makes a length that a redo record holds the file's length: its operation is committed. The
    /// length word may not have it yet. Both files had that length before the record was stored.
    pub(super) fn take_length(
        &self,
        found: &mut Probe,
        home: &FileStat,
        entries: &[lanes::Findings],
    ) -> Result<()> {
        let mut lengths = lanes::lengths(entries);
        let Some(len) = lengths.next() else { return Ok(()) };
        let Some(file) = &found.file else { return Ok(()) };
        let reflection = self.stat(file, found.companions.reflection.path())?;
        let Lengths { len: word, high_water } = found.lengths;
        match &mut found.found {
            _ if lengths.next().is_some() || len > word.max(high_water) => {
                // No writer stores a second length, or one above the high-water mark.
                found.found = Found::Corrupt;
            }
            _ if reflection.len < layout::reflection_len(len) => found.found = Found::Truncated,
            Found::OfThisFile { home: is, .. } if home.len < len => *is = Home::TooShort,
            _ => {}
        }
        if !planted!(RecoverLengthIgnored) {
            found.lengths.len = len;
        }
        Ok(())
    }

    pub(super) fn mismatch(&self, reflection: &Path, why: Mismatch) -> Error {
        let (home, reflection) = (self.path.to_owned(), reflection.to_owned());
        Error::Mismatch { home, reflection, why }
    }

    /// Opens or creates the home file.
    pub(super) fn home_file(&self) -> Result<HomeFile<'a>> {
        let stat = self.platform.stat_name(self.home).map_err(self.io("look up", self.path))?;
        let exists = stat.is_some();
        if stat.is_some_and(|stat| !stat.is_regular) {
            return Err(Error::NotRegular { path: self.path.to_owned() });
        }
        let (mut is_new, reads_only) = (!exists && self.options.create, self.options.read_only);
        let how = OpenHow { create_new: is_new, mode: 0o666, reads_only };
        let file = match self.platform.open(self.home, how) {
            // Another opening was faster, and may still use the file or not. The lock will tell.
            Err(e) if is_new && e.kind() == io::ErrorKind::AlreadyExists => {
                is_new = false;
                self.platform.open(self.home, OpenHow { create_new: false, ..how })
            }
            other => other,
        }
        .map_err(|e| match e.kind() {
            // It has come in the place of a regular file since the look at the name.
            io::ErrorKind::InvalidInput => Error::NotRegular { path: self.path.to_owned() },
            _ => Error::of_opening(self.given, reads_only, e),
        })?;
        if let Some(asked) = self.options.identity {
            let is = self.stat(&file, self.path)?;
            if (is.dev, is.ino) != asked {
                let why = "another file has this name by now";
                let other = io::Error::new(io::ErrorKind::NotFound, why);
                return Err(Error::io("open", self.path, other));
            }
        }
        Ok(HomeFile { if_it_fails: None, file, is_new })
    }

    /// Returns the name of the home file for the superblock. It is the whole path where one folder
    /// holds the reflection files of several folders.
    pub(super) fn home_name(&self) -> Vec<u8> {
        let name: OsString = if self.options.reflection_dir.is_some() {
            self.path.as_os_str().to_owned()
        } else {
            self.home.name().to_owned()
        };
        let mut name = name.into_encoded_bytes();
        if name.len() > 255 {
            // The end of a long path says more than its beginning. The checksum distinguishes paths
            // that end alike.
            let sum = format!("{:08x}", crate::checksum::crc32c(&name)).into_bytes();
            let room = 255_usize.saturating_sub(sum.len());
            name.drain(..name.len().saturating_sub(room));
            name.splice(..0, sum);
        }
        name
    }

    /// Returns `true` if durable points are kept. They are needed where the medium does not make
    /// every store durable at once, or where unsynced changes must be taken back.
    pub(super) fn keeps_durable_points(&self, medium: Medium) -> bool {
        let keeps =
            medium == Medium::PageCache || self.options.durability == Durability::AtomicSync;
        keeps && !self.options.read_only
    }

    /// Returns `true` if durable points will be kept for a new pair of these files, which are not
    /// mapped yet.
    pub(super) fn will_keep_durable_points(
        &self,
        home: (&File, &Path),
        reflection: (&File, &Path),
    ) -> Result<bool> {
        Ok(match (self.options.durability, self.forced) {
            (Durability::AtomicSync, _) => true,
            (_, Some(medium)) => medium == Medium::PageCache,
            (_, None) if self.is_kept_in_memory() => false,
            (_, None) => {
                let lie_on = [self.home_lies_on, self.dir_lies_on];
                medium::of_new(self.platform, lie_on, home, reflection)? == Medium::PageCache
            }
        })
    }

    /// Returns what the superblock says about durable points.
    pub(super) fn durable_points(&self, keeps: bool, len: u64) -> DurablePoints {
        match self.options.durability {
            _ if !keeps => DurablePoints::None,
            Durability::AtomicSync => DurablePoints::AfterDeath(DurableBase { len }),
            _ => DurablePoints::AfterRestart(DurableBase { len }),
        }
    }

    /// Returns the error of a reader that finds a rollback under way.
    pub(super) fn under_way(&self, number: u64) -> Error {
        let why = SnapshotError::RollbackUnderWay { number };
        Error::Snapshot { path: self.path.to_owned(), why }
    }

    /// Returns how many bytes of address space to reserve for a home file of these lengths. Fails
    /// if what was begun cannot be finished in what the caller allows, or by a reader.
    pub(super) fn max_len(&self, found: &Lengths, store: Option<&FoundStore>) -> Result<u64> {
        let rollback = store.map_or(0, |store| store.table.rollback);
        if self.options.read_only && rollback != 0 && !self.options.best_effort {
            return Err(self.under_way(rollback));
        }
        let needed = store.map_or(0, FoundStore::needed_len);
        let len = found.len.max(found.high_water).max(needed);
        let too_long = |max_len| Error::TooLong { path: self.path.to_owned(), len, max_len };
        if len > layout::MAX_LEN {
            return Err(too_long(layout::MAX_LEN));
        }
        reservation::check(self.options, self.path)?;
        match self.options.max_len {
            Some(max_len) if max_len < len => Err(too_long(max_len)),
            Some(max_len) => Ok(max_len.max(1).next_multiple_of(HUGE_PAGE)),
            None => {
                let may_get = store.map_or(0, FoundStore::longest);
                let is_free = |bytes| self.platform.has_addresses(bytes);
                Ok(reservation::default_len(len, may_get, is_free))
            }
        }
    }
}
