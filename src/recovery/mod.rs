//! How does a path become an open pair of files? Find, judge, map, recover.
//!
//! | file | question |
//! |---|---|
//! | `look` | what is there, and in which state? (writes nothing) |
//! | `pair` | do the two files go together? (a pure table) |
//! | `make` | how is a pair made, begun anew, or thrown away? |
//! | `medium` | what do they lie on? |
//! | `durable` | which durable point does it go back to, and how? |
//! | `lanes` | what did the lanes say at the crash, and what is done about it? (scan, decide, apply) |
//!
//! Invariant: until `pair::decide` has said what to do nothing is written to any file but a new home
//! file, and what this open has made is removed again when opening fails. `docs/recovery.md` goes through
//! all steps with their crash points. May import `engine` and below.

mod durable;
mod lanes;
mod look;
mod make;
mod medium;
mod pair;

use crate::engine::durable::Durable;
use crate::engine::session::folder_of;
use crate::engine::{Engine, Setup, clean_up};
use crate::error::{Error, Mismatch, Result};
use crate::format::entry::Seed;
use crate::format::layout;
use crate::format::superblock::{DurableBase, DurablePoints};
use crate::mutant::{planted, unless};
use crate::options::Options;
use crate::platform::{
    File, FileId, FileStat, FileSystem, OpenHow, Persistence, Platform, barrier, fork,
};
use crate::registry::Registration;
use crate::store::MappedFile;
use crate::terms::{Durability, Medium, OnMismatch};
use look::{Lengths, Look};
use pair::{Decision, Found};
use std::cell::OnceCell;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Names of reflection files begin with this; the home file's inode number follows, in hex.
const NAME_PREFIX: &str = ".atomic-mmap.";
/// Address space that is reserved at least.
const LEAST_RESERVED: u64 = 64 << 30;
const HUGE_PAGE: u64 = 2 << 20;

/// Opens the pair of files of `path`.
pub(crate) fn open(platform: Platform, options: &Options, path: &Path) -> Result<Arc<Engine>> {
    fork::arm();
    barrier::prepare();
    let forced = medium::forced(options, path)?;
    let opening = Opening { platform: &platform, options, path, boot_id: OnceCell::new() };
    if forced == Some(Medium::Dax) && !opening.can_flush() {
        return Err(Error::UnsupportedMedium {
            path: path.to_owned(),
            medium: Medium::Dax.to_string(),
            why: "this build has no instruction that writes cache lines back",
        });
    }
    let mut home = opening.home_file()?;
    let (registration, stat) =
        opening.take(&mut home).inspect_err(|error| opening.give_up(&home, error))?;
    let busy = |in_this_process| Error::Busy { path: path.to_owned(), in_this_process };
    if home.is_new && stat.len == 0 {
        home.if_it_fails = Some(UndoUnlessKept::new(&platform, Step::Made(path.to_owned())));
    }
    let file_system =
        platform.file_system(&home.file).map_err(|e| Error::io("look up", path, e))?;
    medium::check_file_system(options, path, file_system)?;

    let reflection_path = opening.reflection_path(&stat);
    let mut found = opening.look(&home.file, &stat, &reflection_path, forced)?;
    let mut decision = pair::decide(found.mark, found.found, options.on_mismatch);
    let mut entries = None;
    if decision == Decision::Recover {
        entries = opening.entries(&found)?;
        if entries.is_none() {
            found.found = Found::Corrupt;
            decision = pair::decide(found.mark, found.found, options.on_mismatch);
        }
    }
    if let Decision::Refuse(why) = decision {
        return Err(opening.mismatch(&found.path, why));
    }
    let is_fresh = matches!(decision, Decision::Fresh | Decision::Discard);
    let goes_back = decision == Decision::GoBack;
    if goes_back && let Some(journal) = &found.journal {
        let len = journal.len();
        found.lengths = Lengths { len, high_water: len.max(stat.len) };
    }
    if is_fresh {
        let len = if stat.len == 0 { options.len } else { stat.len };
        found.lengths = Lengths { len, high_water: len };
        found.superblock = None;
    }
    let mut lengths = found.lengths;
    // A file that is too long is refused before anything is removed for it.
    let max_len = opening.max_len(lengths.len.max(lengths.high_water))?;
    if decision == Decision::Discard {
        opening.discard(&home.file, &found)?;
    }
    // Files that must not stay if anything from here on fails. The reflection file goes first: one that
    // is in use and has no journal would be refused, a journal alone is nothing.
    let mut made_journal = None;
    let mut made = None;
    let (reflection_file, superblock) = match found.superblock.zip(found.file) {
        Some((superblock, file)) => (file, superblock),
        None => {
            if stat.len != lengths.len && !home.is_new {
                let step = Step::Lengthened(opening.another(&home.file)?);
                home.if_it_fails = Some(UndoUnlessKept::new(&platform, step));
            }
            let not_yet = if opening.may_keep_durable_points(forced, file_system) {
                DurablePoints::NotYet
            } else {
                DurablePoints::None
            };
            let (file, superblock) = opening.make_reflection(
                &home.file,
                &stat,
                &reflection_path,
                lengths.len,
                not_yet,
            )?;
            made = Some(UndoUnlessKept::new(&platform, Step::Made(reflection_path.clone())));
            (file, superblock)
        }
    };
    // Nobody opens the reflection file for a home file, here or in another process.
    let found_stat = opening.stat(&reflection_file, &reflection_path)?;
    let reflection_registration =
        Registration::new(found_stat.dev, found_stat.ino).ok_or_else(|| busy(true))?;
    if !platform.try_lock(&reflection_file).map_err(|e| Error::io("lock", &reflection_path, e))? {
        return Err(busy(false));
    }
    let reflection_max = layout::reflection_len(max_len).next_multiple_of(HUGE_PAGE);
    let (home_mapping, reflection_mapping, medium) = medium::map(
        &platform,
        forced,
        file_system,
        (&home.file, path, max_len),
        (&reflection_file, &reflection_path, reflection_max),
    )?;
    // Where a mapping cannot reach past the end of its file, the file cannot grow while it is open.
    let reaches =
        home_mapping.len() as u64 >= max_len && reflection_mapping.len() as u64 >= reflection_max;
    let max_len = if reaches { max_len } else { lengths.len };
    // Where durable points are kept, stores have to survive the process only: what is to be durable is
    // synced or written through.
    let keeps = opening.keeps_durable_points(medium);
    let persistence =
        if keeps { Persistence::Process } else { medium::persistence(&platform, medium) };
    let platform = platform.clone().with_persistence(persistence);
    let home_len = opening.stat(&home.file, path)?.len;
    let reflection_len = opening.stat(&reflection_file, &reflection_path)?.len;
    let home_file = MappedFile::new(
        platform.clone(),
        FileId::Home,
        path.to_owned(),
        opening.another(&home.file)?,
        home_mapping,
        home_len,
    );
    let reflection = MappedFile::new(
        platform.clone(),
        FileId::Reflection,
        reflection_path.clone(),
        reflection_file,
        reflection_mapping,
        reflection_len,
    );
    if let Some(entries) = entries
        && !planted!(NotRecovered)
    {
        recover(&platform, &home_file, &reflection, lengths.len, entries)?;
    }
    // Of a pair that is believed because the caller says so, words of both kinds may differ in any case.
    let is_trusted = decision == Decision::Reuse && options.on_mismatch == OnMismatch::Trust;
    let had_points = superblock.durable.base().is_some();
    let pair =
        durable::Pair { platform: &platform, home: &home_file, reflection: &reflection, medium };
    let mut superblock = superblock;
    match &found.journal {
        Some(journal) if goes_back => {
            lengths = opening.go_back(&pair, &reflection_path, journal)?;
        }
        // The process died, or the caller vouches for what is there: it becomes a durable point.
        _ if had_points
            && (decision == Decision::Recover || is_trusted && !planted!(TrustedWordsKept)) =>
        {
            superblock = opening.end_dead_session(&pair, superblock)?;
        }
        _ => {}
    }
    if !is_fresh {
        pair.sync_superblock()?;
    }
    // Made before the superblock that says that it is there.
    let journal = match keeps {
        true => Some(opening.open_journal(&reflection_path, medium, had_points)?),
        false => None,
    };
    let journal = journal.map(|(journal, is_new)| {
        if is_new {
            let path = durable::path_of(&reflection_path);
            made_journal = Some(UndoUnlessKept::new(opening.platform, Step::Made(path)));
        }
        journal
    });
    if keeps && !is_fresh && superblock.durable.base().is_none() {
        // Of a session that kept none, or whose durable points count no more: from here on what is there counts as
        // the first one.
        pair.begin_durable_words(lengths.len)?;
    }
    let points = opening.durable_points(keeps, lengths.len);
    let superblock = if is_fresh && superblock.durable == points {
        superblock
    } else {
        if !is_fresh && let Some(undo) = &mut made_journal {
            // A pair that was there before may say from here on that it has a journal.
            undo.keep();
        }
        opening.begin_session(&platform, &reflection, superblock, &stat, medium, points)?
    };
    if !keeps && had_points {
        // Of a session that kept durable points; this one says that it does not.
        opening.remove_journal(&reflection_path)?;
    }
    let is_longer = home_file.len() > lengths.len
        || reflection_len > layout::reflection_len(lengths.len)
        || lengths.high_water > lengths.len;
    let cuts = is_longer && !planted!(OpenNotCleanedUp);
    if cuts {
        if planted!(OpenHighWaterFirst) {
            reflection.store_word_through(layout::HIGH_WATER_WORD, lengths.len);
            platform.drain();
        }
        clean_up::zero_past(&home_file, &reflection, lengths.len)?;
        // Orders the zeroes and the files' lengths before the mark that says that there is nothing
        // left to zero.
        unless!(OpenZeroesNotDrained, platform.drain());
        if medium == Medium::Dax {
            home_file.sync_all().map_err(|e| Error::io("sync", path, e))?;
            reflection.sync_all().map_err(|e| Error::io("sync", &reflection_path, e))?;
        }
        reflection.store_word_through(layout::HIGH_WATER_WORD, lengths.len);
        // Orders the mark before what is written past the length after the next growth.
        unless!(OpenHighWaterNotDrained, platform.drain());
        lengths.high_water = lengths.len;
    }
    unless!(OpenNotMarked, opening.set_marker(&home_file, &superblock, medium)?);
    let durable = match journal {
        Some(journal) => {
            let journal = opening.begin_journal(&reflection_path, journal, &superblock)?;
            let durable = Durable::new(journal, lengths.len);
            if cuts {
                durable.must_flush();
            }
            Some(durable)
        }
        None => None,
    };
    let engine = Engine::new(Setup {
        platform,
        home: home_file,
        reflection,
        medium,
        policy: options.deploy,
        len: lengths.len,
        high_water: lengths.high_water,
        max_len,
        superblock,
        registrations: [registration, reflection_registration],
        fresh: is_fresh,
        durable,
        durability: options.durability,
        sync_every: options.sync_every,
    });
    engine.begin_interval()?;
    for undo in [&mut home.if_it_fails, &mut made, &mut made_journal].into_iter().flatten() {
        undo.keep();
    }
    // From here on by closing the pair.
    home.is_locked = false;
    Ok(engine)
}

/// Applies what the lanes say. Idempotent; the entries stay as they are.
fn recover(
    platform: &Platform,
    home: &MappedFile,
    reflection: &MappedFile,
    len: u64,
    entries: Vec<lanes::Findings>,
) -> Result<()> {
    let actions: Vec<_> = entries.into_iter().map(lanes::decide).collect();
    lanes::apply(home, reflection, len, &actions)?;
    // Orders everything that was recovered before the superblock that voids the entries.
    unless!(RecoverNotDrained, platform.drain());
    Ok(())
}

/// Undoes a step of this open unless everything goes well.
struct UndoUnlessKept<'a> {
    platform: &'a Platform,
    step: Option<Step>,
}

/// What is to be undone.
enum Step {
    /// The file was made.
    Made(PathBuf),
    /// The empty home file was given a length.
    Lengthened(File),
}

impl<'a> UndoUnlessKept<'a> {
    fn new(platform: &'a Platform, step: Step) -> Self {
        UndoUnlessKept { platform, step: Some(step) }
    }

    fn keep(&mut self) {
        self.step = None;
    }
}

impl Drop for UndoUnlessKept<'_> {
    fn drop(&mut self) {
        // The error that led here is the one to report.
        let _best_effort = match &self.step {
            Some(Step::Made(path)) => self.platform.remove_file(path),
            Some(Step::Lengthened(file)) => self.platform.set_file_len(file, FileId::Home, 0),
            None => Ok(()),
        };
    }
}

/// The home file, open.
struct HomeFile<'a> {
    platform: &'a Platform,
    /// Set once the lock is held and the file was found to be empty: until then it may be, or
    /// hold, somebody else's.
    if_it_fails: Option<UndoUnlessKept<'a>>,
    file: File,
    is_new: bool,
    /// Whether the lock is held, and nobody else is to give it back.
    is_locked: bool,
}

impl Drop for HomeFile<'_> {
    fn drop(&mut self) {
        // While the lock is held.
        drop(self.if_it_fails.take());
        if self.is_locked {
            // Explicitly, not by closing the file: a process that another thread is starting may
            // have inherited it, and keeps it open until its `exec`.
            let _closing_the_file_unlocks_otherwise = self.platform.unlock(&self.file);
        }
    }
}

struct Opening<'a> {
    platform: &'a Platform,
    options: &'a Options,
    path: &'a Path,
    /// The boot's identity, once it was read. (Not for longer: a process may be taken from one boot to the next.)
    boot_id: OnceCell<[u8; 16]>,
}

impl<'a> Opening<'a> {
    fn can_flush(&self) -> bool {
        self.platform.can_flush()
    }

    fn io(&self, call: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
        let path = path.to_owned();
        move |e| Error::io(call, &path, e)
    }

    fn stat(&self, file: &File, path: &Path) -> Result<FileStat> {
        self.platform.stat(file).map_err(self.io("look up", path))
    }

    fn another(&self, file: &File) -> Result<File> {
        self.platform.duplicate(file).map_err(self.io("open", self.path))
    }

    fn boot_id(&self) -> Result<[u8; 16]> {
        if let Some(known) = self.boot_id.get() {
            return Ok(*known);
        }
        let told = self.platform.boot_id();
        let told = told.map_err(self.io("read the boot's identity", self.path))?;
        Ok(*self.boot_id.get_or_init(|| told))
    }

    /// Registers and locks the home file.
    fn take(&self, home: &mut HomeFile<'_>) -> Result<(Registration, FileStat)> {
        let stat = self.stat(&home.file, self.path)?;
        if !stat.is_regular {
            return Err(Error::NotRegular { path: self.path.to_owned() });
        }
        let busy = |in_this_process| Error::Busy { path: self.path.to_owned(), in_this_process };
        let registration = Registration::new(stat.dev, stat.ino).ok_or_else(|| busy(true))?;
        if !self.platform.try_lock(&home.file).map_err(self.io("lock", self.path))? {
            return Err(busy(false));
        }
        home.is_locked = true;
        // Anew: another process may have closed the file between the first look and the lock.
        Ok((registration, self.stat(&home.file, self.path)?))
    }

    /// Removes a home file that was made and could not be taken, if nobody else has taken it.
    fn give_up(&self, home: &HomeFile<'_>, why: &Error) {
        if !home.is_new || matches!(why, Error::Busy { .. }) {
            return;
        }
        let is_ours = self.platform.try_lock(&home.file).is_ok_and(|locked| locked)
            && self.platform.stat(&home.file).is_ok_and(|stat| stat.len == 0);
        if is_ours {
            let _best_effort = self.platform.remove_file(self.path);
        }
    }

    /// What the lanes of a pair that is to be recovered say. `None`: what cannot have been written.
    fn entries(&self, found: &Look) -> Result<Option<Vec<lanes::Findings>>> {
        let Some((superblock, file)) = found.superblock.as_ref().zip(found.file.as_ref()) else {
            return Ok(None);
        };
        let seed = Seed::new(&superblock.uuid, superblock.session);
        lanes::scan(self.platform, file, &found.path, seed)
    }

    fn mismatch(&self, reflection: &Path, why: Mismatch) -> Error {
        let (home, reflection) = (self.path.to_owned(), reflection.to_owned());
        Error::Mismatch { home, reflection, why }
    }

    /// Opens or creates the home file.
    fn home_file(&self) -> Result<HomeFile<'a>> {
        let stat = self.platform.stat_path(self.path).map_err(self.io("look up", self.path))?;
        let exists = stat.is_some();
        if stat.is_some_and(|stat| !stat.is_regular) {
            return Err(Error::NotRegular { path: self.path.to_owned() });
        }
        if !exists && let Some(orphan) = self.find_orphan(None)? {
            if self.options.on_mismatch != OnMismatch::Discard || !self.options.create {
                return Err(self.mismatch(&orphan, Mismatch::HomeGone));
            }
            self.remove_reflection(&orphan)?;
        }
        let mut is_new = !exists && self.options.create;
        let how = OpenHow { create: false, create_new: is_new, mode: 0o666 };
        let file = match self.platform.open(self.path, how) {
            // Somebody else was faster, and may be done with it or not: the lock will tell.
            Err(e) if is_new && e.kind() == io::ErrorKind::AlreadyExists => {
                is_new = false;
                self.platform.open(self.path, OpenHow { create_new: false, ..how })
            }
            other => other,
        }
        .map_err(self.io("open", self.path))?;
        let platform = self.platform;
        Ok(HomeFile { platform, file, is_new, if_it_fails: None, is_locked: false })
    }

    fn reflection_dir(&self) -> &Path {
        self.options.reflection_dir.as_deref().unwrap_or_else(|| folder_of(self.path))
    }

    /// Beside the home file, or in the chosen folder: hidden, named by the inode number (Acumen
    /// IV-B).
    fn reflection_path(&self, home: &FileStat) -> PathBuf {
        self.reflection_dir().join(format!("{NAME_PREFIX}{:x}", home.ino))
    }

    /// What the superblock calls the home file: its name, or its whole path where the reflection
    /// files of several folders lie in one.
    fn home_name(&self) -> Vec<u8> {
        let name: OsString = if self.options.reflection_dir.is_some() {
            std::path::absolute(self.path).unwrap_or_else(|_| self.path.to_owned()).into()
        } else {
            self.path.file_name().unwrap_or_default().to_owned()
        };
        let mut name = name.into_encoded_bytes();
        // The end of a long path tells more than its beginning.
        name.drain(..name.len().saturating_sub(255));
        name
    }

    /// Whether durable points are kept: where the medium does not make everything durable at once,
    /// and where what is not synced is to be taken back.
    fn keeps_durable_points(&self, medium: Medium) -> bool {
        medium == Medium::PageCache || self.options.durability == Durability::AllOrNothing
    }

    /// The same before the medium is known.
    fn may_keep_durable_points(&self, forced: Option<Medium>, file_system: FileSystem) -> bool {
        match forced {
            Some(medium) => self.keeps_durable_points(medium),
            None => {
                let is_ram = matches!(file_system, FileSystem::Ram(_));
                !is_ram || self.keeps_durable_points(Medium::Ram)
            }
        }
    }

    /// What a superblock says of durable points.
    fn durable_points(&self, keeps: bool, len: u64) -> DurablePoints {
        match self.options.durability {
            _ if !keeps => DurablePoints::None,
            Durability::AllOrNothing => DurablePoints::AfterDeath(DurableBase { len }),
            _ => DurablePoints::AfterRestart(DurableBase { len }),
        }
    }

    /// How much address space is reserved.
    fn max_len(&self, len: u64) -> Result<u64> {
        let too_long = |max_len| Error::TooLong { path: self.path.to_owned(), len, max_len };
        if len > layout::MAX_LEN {
            return Err(too_long(layout::MAX_LEN));
        }
        match self.options.max_len {
            Some(max_len) if max_len < len => Err(too_long(max_len)),
            Some(max_len) if max_len > layout::MAX_LEN => Err(Error::TooLong {
                path: self.path.to_owned(),
                len: max_len,
                max_len: layout::MAX_LEN,
            }),
            Some(max_len) => Ok(max_len.max(1).next_multiple_of(HUGE_PAGE)),
            None => {
                let twice = (len * 2).clamp(LEAST_RESERVED, layout::MAX_LEN);
                Ok(twice.next_multiple_of(HUGE_PAGE))
            }
        }
    }
}

const EXISTING: OpenHow = OpenHow { create: false, create_new: false, mode: 0o600 };
