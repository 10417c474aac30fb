//! Opens a pair of files by its path: finds the files, judges them, maps them and recovers them.
//!
//! | file | holds |
//! |---|---|
//! | `candidates` | the names of companions, and to which home file they belong (writes nothing) |
//! | `trust` | the checks that a companion must pass before it is used (writes nothing) |
//! | `look` | the search for the pair and its state (writes nothing) |
//! | `pair` | the decision whether the two files go together (a pure table) |
//! | `make` | how opening makes a pair, begins a session, and discards a pair |
//! | `reservation` | the default size of a file's reservation of addresses |
//! | `medium` | the medium on which the files lie |
//! | `durable` | the return to the last durable point |
//! | `lanes` | recovery from the lanes: scan, decide, apply |
//!
//! Invariant: until `pair::decide` has returned, opening writes to no file but a new home file. If
//! opening fails, it removes what it has made. `docs/recovery.md` lists all steps with their crash
//! points. May import `engine` and below.

mod candidates;
mod durable;
mod lanes;
mod look;
mod make;
mod medium;
mod pair;
mod reservation;
mod trust;

use crate::engine::superblock::{Companions, remove_if_is, remove_own};
use crate::engine::{Engine, Setup, durable::Durable, resize::truncate};
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

/// Suffix of a reflection file's name while the file is being made.
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
    // The path is resolved once. From here on, no link and no current directory affects the names.
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
    // Opening refuses a file that is too long, or has no name for its companions, before it removes
    // anything for that file.
    let max_len = opening.max_len(lengths.len.max(lengths.high_water))?;
    let mut companions = opening.companions_of(&found, &stat, is_fresh)?;
    if decision == Decision::Discard {
        opening.discard(&home.file, &stat, &found)?;
    }
    if is_fresh {
        found.superblock = None;
    }
    // These files must not stay if anything from here on fails. The reflection file is removed
    // before the journal. A reflection file in use without a journal would be refused, while a
    // journal alone has no effect.
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
    // Prevents any opening of the reflection file as a home file, here or in another process.
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
    // If a mapping cannot reach past the end of its file, the file cannot grow while it is open.
    let reaches =
        home_mapping.len() as u64 >= max_len && reflection_mapping.len() as u64 >= reflection_max;
    let max_len = if reaches { max_len } else { lengths.len };
    // Where durable points are kept, a store only has to survive a process crash. Bytes that have
    // to be durable are synced or written through.
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
        // Another pair's journal refuses this opening before anything is written.
        opening.check_journal(&companions.journal, &stat, &superblock)?;
    }
    if let Some(entries) = entries
        && !planted!(NotRecovered)
    {
        recover(&platform, &home_file, &reflection, lengths.len, entries)?;
    }
    // The caller chose `Trust` for a closed pair that does not fit its close. Its working words and
    // durable words may differ.
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
        // The process crashed, or the caller vouches for the state of the files. That state becomes
        // a durable point.
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
    // The journal is made before the superblock that says that it exists.
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
        // The last session kept no durable points, or they no longer count. From here on, the state
        // of the files counts as the first durable point.
        pair.begin_durable_words(lengths.len)?;
    }
    let points = opening.durable_points(keeps, lengths.len);
    if !is_fresh && let Some(undo) = &mut made_journal {
        // The superblock of a pair that existed before may say from here on that there is a
        // journal. So the journal stays even if opening fails.
        undo.keep();
    }
    let set_marker = || {
        let sessions = Sessions { before: superblock.session, begun: session };
        let of_pair = (superblock.uuid, sessions, superblock.is_marked);
        let name = &companions.reflection;
        opening.set_marker(&home_file, &stat, &reflection, of_pair, name, medium)
    };
    // The mark comes before the superblock that says that the pair is in use. So a home file
    // without a mark has no pair. The superblock of a restored pair still names another home file,
    // and a mark would hide that.
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
        // The last session kept durable points. The new superblock says that this session keeps
        // none.
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
        truncate::zero_past(&home_file, &reflection, lengths.len)?;
        // Orders the zeroes and the lengths of the files before the high-water word that says that
        // nothing is left to zero.
        unless!(OpenZeroesNotDrained, platform.drain());
        if medium == Medium::Dax {
            home_file.sync_all().map_err(|e| Error::io("sync", path, e))?;
            reflection.sync_all().map_err(|e| Error::io("sync", reflection_path, e))?;
        }
        reflection.store_word_through(layout::HIGH_WATER_WORD, lengths.len);
        // Orders the high-water word before bytes that are written past the length after the next
        // growth.
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
    // From here on, closing the pair releases the lock.
    home.is_locked = false;
    Ok(engine)
}

/// Applies what the lanes say. Idempotent, since the records in the lanes stay as they are.
fn recover(
    platform: &Platform,
    home: &MappedFile,
    reflection: &MappedFile,
    len: u64,
    entries: Vec<lanes::Findings>,
) -> Result<()> {
    let actions: Vec<_> = entries.into_iter().map(lanes::decide).collect();
    lanes::apply(home, reflection, len, &actions)?;
    // Orders everything that was recovered before the superblock that voids the records.
    unless!(RecoverNotDrained, platform.drain());
    Ok(())
}

/// A step of this opening that is undone on drop, unless opening has succeeded.
struct UndoUnlessKept<'a> {
    platform: &'a Platform,
    step: Option<Step>,
}

/// A step that can be undone.
enum Step {
    /// Opening has made this file under this name.
    Made(Name, FileStat),
    /// Opening has given the empty home file a length.
    Lengthened(File),
    /// Opening has marked the home file, which had no pair before.
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
    /// The step that removes or empties the home file if opening fails. Set once the lock is held
    /// and the file was found to be empty. Until then the file, or bytes in it, may belong to
    /// another opening.
    if_it_fails: Option<UndoUnlessKept<'a>>,
    file: File,
    is_new: bool,
    /// `true` while this opening holds the lock and has to release it.
    is_locked: bool,
}

impl Drop for HomeFile<'_> {
    fn drop(&mut self) {
        // The step is undone while the lock is held.
        drop(self.if_it_fails.take());
        if self.is_locked {
            // Unlocks explicitly, since the drop of the file may not unlock it. A process that
            // another thread is starting may have inherited the file, and keeps it open until its
            // `exec`.
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
    /// The path of the home file.
    path: &'a Path,
    /// The folder of the companions.
    dir: Arc<Folder>,
    /// The medium that the caller or the environment forces.
    forced: Option<Medium>,
    home_lies_on: FileSystem,
    dir_lies_on: FileSystem,
    /// The page cache that holds what is stored from here on. Read anew at each opening, since a
    /// process may be moved from one boot to the next.
    cache: CacheIdentity,
    /// `true` if every mount of the file systems shares that page cache.
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

    /// Determines the file systems of the home file and its companions, and refuses unsuitable
    /// ones.
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

    /// Returns the names of the companions that exist, or of those that opening will make.
    fn companions_of(&self, found: &Look, home: &FileStat, is_fresh: bool) -> Result<Companions> {
        if !is_fresh {
            return Ok(found.companions.clone());
        }
        if let (Some(superblock), true) = (&found.superblock, found.is_ours) {
            let journal = &found.companions.journal;
            if !self.is_anothers_journal(journal, home, &superblock.uuid)? {
                return Ok(found.companions.clone());
            }
            // The reflection file is removed, but the journal beside it is another pair's and
            // stays. So the new companions need another name.
        }
        match self.next_free(&mut self.new_names(home), home)? {
            Some(name) => Ok(Companions::new(name)),
            // Other files have all names.
            None => Err(self.mismatch(found.companions.reflection.path(), Mismatch::Foreign)),
        }
    }

    fn undo_making(&self, name: &Name, there: FileStat) -> UndoUnlessKept<'a> {
        UndoUnlessKept::new(self.platform, Step::Made(name.clone(), there))
    }

    /// Returns the metadata of a file that was just made under `name`. Removes the name if the
    /// metadata cannot be read.
    fn stat_made(&self, name: &Name, file: &File) -> Result<FileStat> {
        self.stat(file, name.path()).inspect_err(|_| {
            let _best_effort = self.platform.remove(name);
        })
    }

    /// Gives a companion the home file's owner, group and rights. No user gets more rights than the
    /// home file grants. So a tool that an administrator runs once on a service's file leaves no
    /// companion that the service cannot open.
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

    /// Returns `true` if all files lie on file systems in memory.
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
        // Read anew: another process may have closed the file between the first look and the lock.
        Ok((registration, self.stat(&home.file, self.path)?))
    }

    /// Removes a home file that this opening made and could not take, unless another opening has
    /// taken it.
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

    /// Returns what the lanes of a pair say that needs recovery. Returns `None` if no writer can
    /// have written that.
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
            // Another opening was faster, and may still use the file or not. The lock will tell.
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

    /// Returns the name of the home file for the superblock. It is the whole path where one folder
    /// holds the reflection files of several folders.
    fn home_name(&self) -> Vec<u8> {
        let name: OsString = if self.options.reflection_dir.is_some() {
            self.path.as_os_str().to_owned()
        } else {
            self.home.name().to_owned()
        };
        let mut name = name.into_encoded_bytes();
        if name.len() > 255 {
            // The end of a long path says more than its beginning. The checksum distinguishes paths
            // that end alike.
            let sum = format!("{:08x}", crate::sum::crc32c(&name)).into_bytes();
            name.splice(..name.len() + sum.len() - 255, sum);
        }
        name
    }

    /// Returns `true` if durable points are kept. They are needed where the medium does not make
    /// every store durable at once, or where unsynced changes must be taken back.
    fn keeps_durable_points(&self, medium: Medium) -> bool {
        medium == Medium::PageCache || self.options.durability == Durability::AllOrNothing
    }

    /// Returns what the superblock says about durable points.
    fn durable_points(&self, keeps: bool, len: u64) -> DurablePoints {
        match self.options.durability {
            _ if !keeps => DurablePoints::None,
            Durability::AllOrNothing => DurablePoints::AfterDeath(DurableBase { len }),
            _ => DurablePoints::AfterRestart(DurableBase { len }),
        }
    }

    /// Returns how many bytes of address space to reserve for a home file of `len` bytes.
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
