//! How does a path become an open pair of files? Find, judge, map, recover.
//!
//! | file | question |
//! |---|---|
//! | `candidates` | where may companions lie, and whose are they? (writes nothing) |
//! | `trust` | may a file be used for a companion? (writes nothing) |
//! | `look` | what is there, and in which state? (writes nothing) |
//! | `pair` | do the two files go together? (a pure table) |
//! | `make` | how is a pair made, begun anew, or thrown away? |
//! | `reservation` | how much address space does a file take by default? |
//! | `medium` | what do they lie on? |
//! | `durable` | which durable point does it go back to, and how? |
//! | `lanes` | what did the lanes say at the crash, and what is done about it? (scan, decide, apply) |
//!
//! Invariant: until `pair::decide` has said what to do nothing is written to any file but a new
//! home file, and what this open has made is removed again when opening fails. `docs/recovery.md`
//! goes through all steps with their crash points. May import `engine` and below.

mod candidates;
mod durable;
mod lanes;
mod look;
mod make;
mod medium;
mod pair;
mod reservation;
mod trust;

use crate::engine::durable::Durable;
use crate::engine::session::{Companions, remove_if_is, remove_own};
use crate::engine::{Engine, Setup, clean_up};
use crate::error::{Error, Mismatch, Result};
use crate::format::entry::Seed;
use crate::format::layout;
use crate::format::marker::{self, Sessions};
use crate::format::superblock::{DurableBase, DurablePoints, State};
use crate::mutant::{planted, unless};
use crate::options::Options;
use crate::platform::{
    CacheIdentity, File, FileId, FileStat, FileSystem, Folder, Name, OpenHow, Persistence,
    Platform, barrier, fork,
};
use crate::registry::Registration;
use crate::store::MappedFile;
use crate::terms::{Durability, Medium, OnMismatch};
use look::{Lengths, Look};
use pair::{Decision, Found};
use std::cell::Cell;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// What a reflection file's name ends with while it is being made.
const UNFINISHED: &str = "new";
const HUGE_PAGE: u64 = 2 << 20;

/// Opens the pair of files of `path`.
pub(crate) fn open(platform: Platform, options: &Options, path: &Path) -> Result<Arc<Engine>> {
    fork::arm();
    barrier::prepare();
    let look_up = |path: &Path| {
        let path = path.to_owned();
        move |e| Error::io("look up", &path, e)
    };
    // Once: what the names mean from here on depends on no link and on no current directory.
    let given = path;
    let home_name = platform.name(given).map_err(|e| Error::of_opening(given, e))?;
    let path = home_name.path();
    let dir = match &options.reflection_dir {
        Some(dir) => platform.open_folder(dir).map_err(look_up(dir))?,
        None => Arc::clone(home_name.folder()),
    };
    let forced = medium::forced(options, path)?;
    let mut opening = Opening::new(&platform, options, (given, &home_name), dir, forced);
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
        home.if_it_fails = Some(opening.undo_making(&home_name, stat));
    }
    opening.find_where_files_lie(&home.file)?;

    let mut found = opening.look(&home.file, &stat)?;
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
        return Err(opening.mismatch(found.companions.reflection.path(), why));
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
    }
    let mut lengths = found.lengths;
    // A file that is too long, or has no name for its companions, is refused before anything is
    // removed for it.
    let max_len = opening.max_len(lengths.len.max(lengths.high_water))?;
    let mut companions = opening.companions_of(&found, &stat, is_fresh)?;
    if decision == Decision::Discard {
        opening.discard(&home.file, &stat, &found)?;
    }
    if is_fresh {
        found.superblock = None;
    }
    // Files that must not stay if anything from here on fails. The reflection file goes first: one
    // that is in use and has no journal would be refused, a journal alone is nothing.
    let mut made_journal = None;
    let mut made = None;
    let mut marked = None;
    let (reflection_file, superblock) = match found.superblock.zip(found.file) {
        Some((superblock, file)) => (file, superblock),
        None => {
            if stat.len != lengths.len && !home.is_new {
                let step = Step::Lengthened(opening.another(&home.file)?);
                home.if_it_fails = Some(UndoUnlessKept::new(&platform, step));
            }
            let (name, pair) =
                opening.make_reflection(&home.file, &stat, &companions.reflection, lengths.len)?;
            made = Some(opening.undo_making(&name, pair.there));
            companions = Companions::new(name);
            (pair.file, pair.superblock)
        }
    };
    let reflection_path = companions.reflection.path();
    // Nobody opens the reflection file for a home file, here or in another process.
    let found_stat = opening.stat(&reflection_file, reflection_path)?;
    let reflection_registration =
        Registration::new(found_stat.dev, found_stat.ino).ok_or_else(|| busy(true))?;
    if !platform.try_lock(&reflection_file).map_err(|e| Error::io("lock", reflection_path, e))? {
        return Err(busy(false));
    }
    let reflection_max = layout::reflection_len(max_len).next_multiple_of(HUGE_PAGE);
    let (home_mapping, reflection_mapping, medium) = medium::map(
        &platform,
        forced,
        [opening.home_lies_on, opening.dir_lies_on],
        max_len,
        (&home.file, path, max_len),
        (&reflection_file, reflection_path, reflection_max),
    )?;
    // Where a mapping cannot reach past the end of its file, the file cannot grow while it is open.
    let reaches =
        home_mapping.len() as u64 >= max_len && reflection_mapping.len() as u64 >= reflection_max;
    let max_len = if reaches { max_len } else { lengths.len };
    // Where durable points are kept, stores have to survive the process only: what is to be durable
    // is synced or written through.
    let keeps = opening.keeps_durable_points(medium);
    let persistence =
        if keeps { Persistence::Process } else { medium::persistence(&platform, medium) };
    let platform = platform.clone().with_persistence(persistence);
    let home_len = opening.stat(&home.file, path)?.len;
    let reflection_len = opening.stat(&reflection_file, reflection_path)?.len;
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
        reflection_path.to_owned(),
        reflection_file,
        reflection_mapping,
        reflection_len,
    );
    if keeps && !is_fresh {
        // Before anything is written: another pair's journal refuses this opening.
        opening.check_journal(&companions.journal, &stat, &superblock)?;
    }
    if let Some(entries) = entries
        && !planted!(NotRecovered)
    {
        recover(&platform, &home_file, &reflection, lengths.len, entries)?;
    }
    // Of a pair that is believed because the caller says so, words of both kinds may differ in any
    // case.
    let is_trusted = decision == Decision::Reuse && options.on_mismatch == OnMismatch::Trust;
    let had_points = superblock.durable.base().is_some();
    let has_died = superblock.state == State::InUse && !is_fresh;
    let pair =
        durable::Pair { platform: &platform, home: &home_file, reflection: &reflection, medium };
    let mut superblock = superblock;
    match &found.journal {
        Some(journal) if goes_back => {
            lengths = pair.go_back(journal)?;
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
        true => {
            let name = &companions.journal;
            let known = (had_points, has_died);
            Some(opening.open_journal(name, (&home.file, &stat), medium, known, &superblock)?)
        }
        false => None,
    };
    let session = journal.as_ref().map_or(superblock.session + 1, |journal| journal.session);
    if let Some(there) = journal.as_ref().and_then(|journal| journal.made) {
        made_journal = Some(opening.undo_making(&companions.journal, there));
    }
    if keeps && !is_fresh && superblock.durable.base().is_none() {
        // Of a session that kept none, or whose durable points count no more: from here on what is
        // there counts as the first one.
        pair.begin_durable_words(lengths.len)?;
    }
    let points = opening.durable_points(keeps, lengths.len);
    if !is_fresh && let Some(undo) = &mut made_journal {
        // A pair that was there before may say from here on that it has a journal.
        undo.keep();
    }
    let set_marker = || {
        let sessions = Sessions { before: superblock.session, begun: session };
        let of_pair = (superblock.uuid, sessions, superblock.is_marked);
        let name = &companions.reflection;
        opening.set_marker(&home_file, &stat, &reflection, of_pair, name, medium)
    };
    // Before the superblock that says that the pair is in use: so a home file without a mark has no
    // pair. The superblock of a restored one names another home file until then, and a mark would
    // hide that.
    let mark_comes_last = found.is_restored || planted!(MarkLast);
    let mut is_marked = false;
    if !mark_comes_last && !planted!(OpenNotMarked) {
        if is_fresh {
            let step = Step::Marked(opening.another(&home.file)?);
            marked = Some(UndoUnlessKept::new(opening.platform, step));
        }
        is_marked = set_marker()?;
    }
    let last = (superblock.clone(), session);
    let says = (points, is_marked);
    let begun = opening.begin_session(&platform, &reflection, last, &stat, medium, says)?;
    if mark_comes_last {
        set_marker()?;
    }
    let superblock = begun;
    if !keeps && had_points {
        // Of a session that kept durable points; this one says that it does not.
        opening.remove_journal(&companions.journal, &stat, &superblock.uuid)?;
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
            reflection.sync_all().map_err(|e| Error::io("sync", reflection_path, e))?;
        }
        reflection.store_word_through(layout::HIGH_WATER_WORD, lengths.len);
        // Orders the mark before what is written past the length after the next growth.
        unless!(OpenHighWaterNotDrained, platform.drain());
        lengths.high_water = lengths.len;
    }
    let durable = match journal {
        Some(journal) => {
            let journal = opening.begin_journal(journal, &superblock)?;
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
        companions,
        cache_is_shared: opening.cache_is_shared,
        fresh: is_fresh,
        durable,
        durability: options.durability,
        sync_every: options.sync_every,
    });
    engine.begin_interval()?;
    let steps = [&mut home.if_it_fails, &mut made, &mut marked, &mut made_journal];
    for undo in steps.into_iter().flatten() {
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
    /// The file was made, and has this name.
    Made(Name, FileStat),
    /// The empty home file was given a length.
    Lengthened(File),
    /// The home file got a mark, and had no pair before.
    Marked(File),
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
            Some(Step::Made(name, there)) => remove_if_is(self.platform, name, there).map(drop),
            Some(Step::Lengthened(file)) => self.platform.set_file_len(file, FileId::Home, 0),
            Some(Step::Marked(file)) => self.platform.remove_xattr(file, marker::NAME),
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
    /// The path that the caller gave, which may lead over links.
    given: &'a Path,
    home: &'a Name,
    /// Of the home file.
    path: &'a Path,
    /// The folder of the companions.
    dir: Arc<Folder>,
    /// The medium that the caller or the environment forces.
    forced: Option<Medium>,
    home_lies_on: FileSystem,
    dir_lies_on: FileSystem,
    /// The page cache that holds what is stored from here on. (Asked at each opening: a process may
    /// be taken from one boot to the next.)
    cache: CacheIdentity,
    /// Whether every mount of the file systems shares it.
    cache_is_shared: bool,
    home_keeps_marks: Cell<bool>,
}

impl<'a> Opening<'a> {
    fn new(
        platform: &'a Platform,
        options: &'a Options,
        (given, home): (&'a Path, &'a Name),
        dir: Arc<Folder>,
        forced: Option<Medium>,
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
            home_lies_on: unknown,
            dir_lies_on: unknown,
            cache: CacheIdentity::default(),
            cache_is_shared: false,
            home_keeps_marks: Cell::new(false),
        }
    }

    /// Finds out which file systems hold the home file and its companions, and whether they do.
    fn find_where_files_lie(&mut self, home: &File) -> Result<()> {
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

    /// Where the companions are, or are to be made.
    fn companions_of(&self, found: &Look, home: &FileStat, is_fresh: bool) -> Result<Companions> {
        if !is_fresh {
            return Ok(found.companions.clone());
        }
        if let (Some(superblock), true) = (&found.superblock, found.is_ours) {
            let journal = &found.companions.journal;
            if !self.is_anothers_journal(journal, home, &superblock.uuid)? {
                return Ok(found.companions.clone());
            }
            // The reflection file goes, and another pair's journal stays beside its name.
        }
        match self.next_free(&mut self.new_names(home), home)? {
            Some(name) => Ok(Companions::new(name)),
            // Other files have both names.
            None => Err(self.mismatch(found.companions.reflection.path(), Mismatch::Foreign)),
        }
    }

    fn undo_making(&self, name: &Name, there: FileStat) -> UndoUnlessKept<'a> {
        UndoUnlessKept::new(self.platform, Step::Made(name.clone(), there))
    }

    /// What a file is that was just made under a name. The name goes again if that cannot be found
    /// out.
    fn stat_made(&self, name: &Name, file: &File) -> Result<FileStat> {
        self.stat(file, name.path()).inspect_err(|_| {
            let _best_effort = self.platform.remove(name);
        })
    }

    /// Gives a companion the home file's owner, group and rights, and no user more than those. A
    /// tool that an administrator runs once on a service's file leaves nothing that the service may
    /// not open.
    fn own_like_home(
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

    /// Whether all files lie on file systems in memory.
    fn lies_in_memory(&self) -> bool {
        [self.home_lies_on, self.dir_lies_on]
            .iter()
            .all(|file_system| matches!(file_system, FileSystem::Ram(_)))
    }

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
            let _best_effort = remove_own(self.platform, self.home, &home.file);
        }
    }

    /// What the lanes of a pair that is to be recovered say. `None`: what cannot have been written.
    fn entries(&self, found: &Look) -> Result<Option<Vec<lanes::Findings>>> {
        let Some((superblock, file)) = found.superblock.as_ref().zip(found.file.as_ref()) else {
            return Ok(None);
        };
        let seed = Seed::new(&superblock.uuid, superblock.session);
        lanes::scan(self.platform, file, found.companions.reflection.path(), seed)
    }

    fn mismatch(&self, reflection: &Path, why: Mismatch) -> Error {
        let (home, reflection) = (self.path.to_owned(), reflection.to_owned());
        Error::Mismatch { home, reflection, why }
    }

    /// Opens or creates the home file.
    fn home_file(&self) -> Result<HomeFile<'a>> {
        let stat = self.platform.stat_name(self.home).map_err(self.io("look up", self.path))?;
        let exists = stat.is_some();
        if stat.is_some_and(|stat| !stat.is_regular) {
            return Err(Error::NotRegular { path: self.path.to_owned() });
        }
        let mut is_new = !exists && self.options.create;
        let how = OpenHow { create: false, create_new: is_new, mode: 0o666 };
        let file = match self.platform.open(self.home, how) {
            // Somebody else was faster, and may be done with it or not: the lock will tell.
            Err(e) if is_new && e.kind() == io::ErrorKind::AlreadyExists => {
                is_new = false;
                self.platform.open(self.home, OpenHow { create_new: false, ..how })
            }
            other => other,
        }
        .map_err(|e| Error::of_opening(self.given, e))?;
        let platform = self.platform;
        Ok(HomeFile { platform, file, is_new, if_it_fails: None, is_locked: false })
    }

    /// What the superblock calls the home file: its name, or its whole path where the reflection
    /// files of several folders lie in one.
    fn home_name(&self) -> Vec<u8> {
        let name: OsString = if self.options.reflection_dir.is_some() {
            self.path.as_os_str().to_owned()
        } else {
            self.home.name().to_owned()
        };
        let mut name = name.into_encoded_bytes();
        if name.len() > 255 {
            // The end of a long path tells more than its beginning; the sum tells paths of one end
            // apart.
            let sum = format!("{:08x}", crate::sum::crc32c(&name)).into_bytes();
            name.splice(..name.len() + sum.len() - 255, sum);
        }
        name
    }

    /// Whether durable points are kept: where the medium does not make everything durable at once,
    /// and where what is not synced is to be taken back.
    fn keeps_durable_points(&self, medium: Medium) -> bool {
        medium == Medium::PageCache || self.options.durability == Durability::AllOrNothing
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
            None => Ok(reservation::default_len(len, |bytes| self.platform.has_addresses(bytes))),
        }
    }
}
