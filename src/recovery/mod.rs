//! How does a path become an open pair of files? Find, judge, map, recover.
//!
//! | file | question |
//! |---|---|
//! | `pair` | do the two files go together? (a pure table) |
//! | `medium` | what do they lie on? |
//! | `lanes` | what did the lanes say at the crash, and what is done about it? (scan, decide, apply) |
//!
//! Invariant: until `pair::decide` has said what to do nothing is written to any file but a new home
//! file, and what this open has made is removed again when opening fails. `docs/recovery.md` goes through
//! all steps with their crash points. May import `engine` and below.

mod lanes;
mod medium;
mod pair;

use crate::engine::session::{folder_of, identity_of, moment, write_superblock};
use crate::engine::{Engine, Setup, clean_up};
use crate::error::{Error, Mismatch, Result};
use crate::format::entry::Seed;
use crate::format::layout;
use crate::format::marker::{self, Marker};
use crate::format::superblock::{self, Identity, Judged, MAGIC, SUPERBLOCK_LEN, State, Superblock};
use crate::options::Options;
use crate::platform::{FileId, FileStat, OpenHow, Platform, barrier, fork};
use crate::registry::Registration;
use crate::store::MappedFile;
use crate::terms::{Medium, OnMismatch};
use crate::units::PAGE;
use pair::{Decision, Found, Home, Mark, Use};
use std::ffi::OsString;
use std::fs::File;
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
    let opening = Opening { platform: &platform, options, path };
    if forced == Some(Medium::Dax) && !opening.can_flush() {
        return Err(Error::UnsupportedMedium {
            path: path.to_owned(),
            medium: Medium::Dax.to_string(),
            why: "this build has no instruction that writes cache lines back",
        });
    }
    let mut home = opening.home_file()?;
    let stat = opening.stat(&home.file, path)?;
    if !stat.is_regular {
        return Err(Error::NotRegular { path: path.to_owned() });
    }
    let busy = |in_this_process| Error::Busy { path: path.to_owned(), in_this_process };
    let registration = Registration::new(stat.dev, stat.ino).ok_or_else(|| busy(true))?;
    if !platform.try_lock(&home.file).map_err(|e| Error::io("lock", path, e))? {
        return Err(busy(false));
    }
    // Anew: another process may have closed the file between the first look and the lock.
    let stat = opening.stat(&home.file, path)?;
    if home.is_new && stat.len == 0 {
        home.if_it_fails = Some(UndoUnlessKept::new(&platform, Step::Made(path.to_owned())));
    }
    let file_system =
        platform.file_system(&home.file).map_err(|e| Error::io("look up", path, e))?;
    medium::check_file_system(options, path, file_system)?;

    let reflection_path = opening.reflection_path(&stat);
    let mut found = opening.look(&home.file, &stat, &reflection_path, forced)?;
    let decision = pair::decide(found.mark, found.found, options.on_mismatch);
    if let Decision::Refuse(why) = decision {
        return Err(opening.mismatch(&found.path, why));
    }
    let is_fresh = matches!(decision, Decision::Fresh | Decision::Discard);
    if is_fresh {
        if decision == Decision::Discard {
            opening.discard(&home.file, &found)?;
        }
        found.superblock = None;
    }
    let mut lengths = match &found.superblock {
        Some(_) => found.lengths,
        None => {
            let len = if stat.len == 0 { options.len } else { stat.len };
            Lengths { len, high_water: len }
        }
    };
    let max_len = opening.max_len(lengths.len.max(lengths.high_water))?;
    // A file that must not stay if anything from here on fails.
    let mut made = None;
    let (reflection_file, superblock) = match found.superblock.zip(found.file) {
        Some((superblock, file)) => (file, superblock),
        None => {
            if stat.len != lengths.len && !home.is_new {
                let step = Step::Lengthened(opening.another(&home.file)?);
                home.if_it_fails = Some(UndoUnlessKept::new(&platform, step));
            }
            let (file, superblock) =
                opening.make_reflection(&home.file, &stat, &reflection_path, lengths.len)?;
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
    let platform = platform.clone().with_persistence(medium::persistence(medium));
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
    if decision == Decision::Recover {
        recover(&platform, &home_file, &reflection, &superblock, lengths.len)?;
    }
    let superblock = if is_fresh {
        superblock
    } else {
        opening.begin_session(&platform, &reflection, superblock, medium)?
    };
    let is_longer = home_len > lengths.len
        || reflection_len > layout::reflection_len(lengths.len)
        || lengths.high_water > lengths.len;
    if is_longer {
        clean_up::zero_past(&home_file, &reflection, lengths.len)?;
        // Orders the zeroes and the files' lengths before the mark that says that there is nothing
        // left to zero.
        platform.drain();
        if medium == Medium::Dax {
            home_file.sync_all().map_err(|e| Error::io("sync", path, e))?;
            reflection.sync_all().map_err(|e| Error::io("sync", &reflection_path, e))?;
        }
        reflection.store_word_through(layout::HIGH_WATER_WORD, lengths.len);
        // Orders the mark before what is written past the length after the next growth.
        platform.drain();
        lengths.high_water = lengths.len;
    }
    opening.set_marker(&home_file, &superblock, medium)?;
    for undo in [&mut home.if_it_fails, &mut made].into_iter().flatten() {
        undo.keep();
    }
    Ok(Engine::new(Setup {
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
    }))
}

/// Applies what the lanes say. Idempotent; the entries stay as they are.
fn recover(
    platform: &Platform,
    home: &MappedFile,
    reflection: &MappedFile,
    superblock: &Superblock,
    len: u64,
) -> Result<()> {
    let seed = Seed::new(&superblock.uuid, superblock.session);
    let actions: Vec<_> =
        lanes::scan(home, reflection, seed)?.into_iter().map(lanes::decide).collect();
    lanes::apply(platform, home, reflection, len, &actions)?;
    // Orders everything that was recovered before the superblock that voids the entries.
    platform.drain();
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Lengths {
    len: u64,
    high_water: u64,
}

/// Everything that was found out about the pair.
struct Look {
    mark: Mark,
    found: Found,
    /// The reflection file that the findings are about.
    path: PathBuf,
    file: Option<File>,
    superblock: Option<Superblock>,
    lengths: Lengths,
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
    /// Set once the lock is held and the file was found to be empty: until then it may be, or
    /// hold, somebody else's. First, so that it is dropped while the lock is held.
    if_it_fails: Option<UndoUnlessKept<'a>>,
    file: File,
    is_new: bool,
}

struct Opening<'a> {
    platform: &'a Platform,
    options: &'a Options,
    path: &'a Path,
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
        file.try_clone().map_err(self.io("open", self.path))
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
        Ok(HomeFile { file, is_new, if_it_fails: None })
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

    /// A whole reflection file of a home file of our name, other than that of the inode `but`.
    fn find_orphan(&self, but: Option<&Path>) -> Result<Option<PathBuf>> {
        let dir = self.reflection_dir();
        let entries = match self.platform.list_dir(dir) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::io("list", dir, e)),
        };
        let name = self.home_name();
        for path in entries {
            let is_ours = path
                .file_name()
                .is_some_and(|n| n.to_string_lossy().strip_prefix(NAME_PREFIX).is_some_and(is_hex));
            if !is_ours || Some(path.as_path()) == but {
                continue;
            }
            // A file that goes away or cannot be read meanwhile is somebody else's.
            let Ok(file) = self.platform.open(&path, EXISTING) else { continue };
            if let Ok(Judged::Valid(superblock)) = self.judge(&file)
                && superblock.name == name
                && superblock.state != State::Emptied
                && !self.home_is_elsewhere(&superblock)?
            {
                return Ok(Some(path));
            }
        }
        Ok(None)
    }

    /// Whether the home file of a reflection file lies in our folder under another name: it was
    /// renamed, and the two are no business of ours.
    fn home_is_elsewhere(&self, superblock: &Superblock) -> Result<bool> {
        let folder = folder_of(self.path);
        for path in self.platform.list_dir(folder).map_err(self.io("list", folder))? {
            // What goes away meanwhile is not there.
            if let Ok(Some(stat)) = self.platform.stat_path(&path)
                && stat.ino == superblock.identity.inode
                && marker::same_birth(stat.btime.map(moment), superblock.identity.born)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn judge(&self, file: &File) -> io::Result<Judged> {
        let copy = |at| {
            let mut bytes = [0; SUPERBLOCK_LEN];
            self.platform.read_at(file, FileId::Reflection, &mut bytes, at)?;
            Ok::<_, io::Error>(Superblock::decode(&bytes))
        };
        Ok(superblock::judge(copy(layout::SUPERBLOCKS[0])?, copy(layout::SUPERBLOCKS[1])?))
    }

    /// Finds out everything about the pair. Writes nothing.
    fn look(
        &self,
        home: &File,
        stat: &FileStat,
        path: &Path,
        forced: Option<Medium>,
    ) -> Result<Look> {
        let identity = identity_of(stat);
        let marker = self
            .platform
            .get_xattr(home, marker::NAME)
            .map_err(self.io("read the attribute", self.path))?
            .and_then(|bytes| Marker::decode(&bytes));
        let mark = |uuid: Option<[u8; 16]>| match marker {
            None => Mark::None,
            Some(marker) if !marker.is_of(&identity) => Mark::OfAnotherFile,
            Some(marker) => Mark::OfThisFile { matches: uuid.is_none_or(|u| u == marker.uuid) },
        };
        let mut look = Look {
            mark: mark(None),
            found: Found::Nothing,
            path: path.to_owned(),
            file: None,
            superblock: None,
            lengths: Lengths::default(),
        };
        let reflection = self.platform.stat_path(path).map_err(self.io("look up", path))?;
        let Some(reflection) = reflection else {
            // Only a file that has bytes can have lost some.
            if stat.len > 0
                && let Some(orphan) = self.find_orphan(Some(path))?
            {
                look.found = Found::OfEarlierFile;
                look.path = orphan;
            }
            return Ok(look);
        };
        if !reflection.is_regular {
            look.found = Found::Foreign;
            return Ok(look);
        }
        let file = self.platform.open(path, EXISTING).map_err(self.io("open", path))?;
        look.found = match self.judge(&file).map_err(self.io("read the superblock", path))? {
            Judged::Newer(version) => Found::Newer(version),
            Judged::Corrupt if reflection.len < layout::SUPERCHUNKS => Found::Truncated,
            Judged::Corrupt => Found::Corrupt,
            Judged::Foreign => self.what_is_foreign(&file, &reflection, path)?,
            Judged::Valid(superblock) => {
                look.mark = mark(Some(superblock.uuid));
                let (found, lengths) =
                    self.judge_pair(&file, path, stat, &reflection, &superblock, forced)?;
                look.lengths = lengths;
                look.superblock = Some(superblock);
                found
            }
        };
        look.file = Some(file);
        Ok(look)
    }

    /// A file with nothing of ours in it: cut off before its superblock, or somebody else's.
    fn what_is_foreign(&self, file: &File, stat: &FileStat, path: &Path) -> Result<Found> {
        let mut start = vec![0; MAGIC.len().min(stat.len as usize)];
        self.platform
            .read_at(file, FileId::Reflection, &mut start, 0)
            .map_err(self.io("read the superblock", path))?;
        let is_cut_off = stat.len < SUPERBLOCK_LEN as u64 && MAGIC.starts_with(&start);
        Ok(if is_cut_off { Found::Truncated } else { Found::Foreign })
    }

    /// What a whole superblock says about this home file.
    fn judge_pair(
        &self,
        file: &File,
        path: &Path,
        home: &FileStat,
        reflection: &FileStat,
        superblock: &Superblock,
        forced: Option<Medium>,
    ) -> Result<(Found, Lengths)> {
        let none = Lengths::default();
        if superblock.state == State::Emptied {
            // Of whatever file it was: nothing is in it.
            return Ok((Found::Emptied, none));
        }
        // Where the system does not tell boots apart, every boot is another one.
        let boot = self.platform.boot_id();
        let same_boot = superblock.boot_id == boot && boot != [0; 16];
        let was = superblock.identity;
        let is = identity_of(home);
        let same_file = was.inode == is.inode
            && marker::same_birth(was.born, is.born)
            // Device numbers are given anew at every start of the machine.
            && (!same_boot || was.device == is.device);
        if !same_file {
            return Ok((Found::OfAnotherFile, none));
        }
        if reflection.len < layout::SUPERCHUNKS {
            return Ok((Found::Truncated, none));
        }
        let mut words = [0; 16];
        self.platform
            .read_at(file, FileId::Reflection, &mut words, layout::LENGTH_WORD)
            .map_err(self.io("read the length", path))?;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| words[at + i]));
        let lengths = Lengths { len: word(0), high_water: word(8) };
        if lengths.len > layout::MAX_LEN || lengths.high_water > layout::MAX_LEN {
            return Ok((Found::Corrupt, none));
        }
        if reflection.len < layout::reflection_len(lengths.len) {
            return Ok((Found::Truncated, none));
        }
        let home_is = if home.len < lengths.len {
            Home::TooShort
        } else {
            let changed = match superblock.state {
                State::Clean(closed) => {
                    home.len != closed.len
                        || moment(home.mtime) != closed.mtime
                        || moment(home.ctime) != closed.ctime
                }
                // In use: times tell nothing, but nobody but us makes the file longer.
                State::InUse | State::Emptied => home.len > lengths.len.max(lengths.high_water),
            };
            if changed { Home::Changed } else { Home::AsItWas }
        };
        let state = match superblock.state {
            State::Clean(_) => Use::Closed,
            _ if same_boot || self.survives_restart(file, forced) => Use::Died,
            _ => Use::Restarted,
        };
        Ok((Found::OfThisFile { home: home_is, state }, lengths))
    }

    /// Whether the medium keeps stores when the machine is restarted: it can be mapped so.
    fn survives_restart(&self, file: &File, forced: Option<Medium>) -> bool {
        match forced {
            Some(medium) => medium == Medium::Dax,
            None => self.platform.map(file, HUGE_PAGE, true).is_ok(),
        }
    }

    /// Removes what the caller does not want. The mark first, and durably: a mark without a
    /// reflection file means lost bytes, while a reflection file without a mark is judged anew.
    fn discard(&self, home: &File, found: &Look) -> Result<()> {
        self.platform
            .remove_xattr(home, marker::NAME)
            .map_err(self.io("remove the attribute", self.path))?;
        self.platform.sync_all(home, FileId::Home).map_err(self.io("sync", self.path))?;
        if found.found != Found::Nothing {
            self.remove_reflection(&found.path)?;
        }
        Ok(())
    }

    /// Removes a reflection file that nobody has open.
    fn remove_reflection(&self, path: &Path) -> Result<()> {
        let file = self.platform.open(path, EXISTING).map_err(self.io("open", path))?;
        if !self.platform.try_lock(&file).map_err(self.io("lock", path))? {
            return Err(Error::Busy { path: path.to_owned(), in_this_process: false });
        }
        self.platform.remove_file(path).map_err(self.io("remove", path))
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

    /// Makes the home file as long as it is to be, and a reflection file for it. Under another name
    /// first: under its own it is whole or not there.
    fn make_reflection(
        &self,
        home: &File,
        stat: &FileStat,
        path: &Path,
        len: u64,
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
            uuid: *uuid::Uuid::new_v4().as_bytes(),
            identity: identity_of(stat),
            boot_id: platform.boot_id(),
            name: self.home_name(),
        };
        let no_space = |at: u64, bytes: u64| {
            let path = new.clone();
            move |e: io::Error| match e.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    Error::NoSpace { path, offset: at, len: bytes, source: e }
                }
                _ => Error::Io { call: "write", path, offset: Some(at), source: e },
            }
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
        platform.sync_all(&file, id).map_err(no_space(0, head.len() as u64))?;
        platform.rename(&new, path).map_err(self.io("rename", &new))?;
        unfinished.keep();
        let folders = || -> Result<()> {
            platform.sync_all(home, FileId::Home).map_err(self.io("sync", self.path))?;
            for folder in [folder_of(path), folder_of(self.path)] {
                platform.sync_dir(folder).map_err(self.io("sync the folder", folder))?;
            }
            Ok(())
        };
        folders().inspect_err(|_| {
            let _best_effort = platform.remove_file(path);
        })?;
        Ok((file, superblock))
    }

    /// Voids everything in the lanes: a new session number, and no entry left.
    fn begin_session(
        &self,
        platform: &Platform,
        reflection: &MappedFile,
        last: Superblock,
        medium: Medium,
    ) -> Result<Superblock> {
        let superblock = Superblock {
            session: last.session + 1,
            state: State::InUse,
            boot_id: platform.boot_id(),
            identity: Identity {
                // The device may have another number since the machine was restarted.
                device: self.platform.stat_path(self.path).ok().flatten().map_or(0, |s| s.dev),
                ..last.identity
            },
            name: self.home_name(),
            ..last
        };
        write_superblock(platform, reflection.file(), &superblock)
            .map_err(self.io("write the superblock", reflection.path()))?;
        if medium != Medium::Ram {
            // The new session is durable before an entry of the old one is touched.
            reflection.sync_data().map_err(self.io("sync", reflection.path()))?;
        }
        lanes::wipe(reflection)?;
        // Orders the wiping before the first entry of this session.
        platform.drain();
        Ok(superblock)
    }

    /// Puts the mark on the home file, where the file system has attributes.
    fn set_marker(&self, home: &MappedFile, superblock: &Superblock, medium: Medium) -> Result<()> {
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
}

const EXISTING: OpenHow = OpenHow { create: false, create_new: false, mode: 0o600 };

fn is_hex(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_hexdigit())
}
