//! What is there, and in which state? Finds out everything about the pair and writes nothing.

use super::medium::map_sync;
use super::pair::{Found, Home, Mark, Use};
use super::{EXISTING, HUGE_PAGE, NAME_PREFIX, Opening, durable};
use crate::engine::session::{folder_of, identity_of, moment};
use crate::error::{Error, Result};
use crate::format::layout;
use crate::format::marker::{self, Marker};
use crate::format::superblock::{
    self, DurablePoints, Judged, MAGIC, SUPERBLOCK_LEN, State, Superblock,
};
use crate::mutant::planted;
use crate::platform::{File, FileId, FileStat};
use crate::terms::Medium;
use std::io;
use std::path::{Path, PathBuf};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Lengths {
    pub len: u64,
    pub high_water: u64,
}

/// Everything that was found out about the pair.
pub(super) struct Look {
    pub mark: Mark,
    pub found: Found,
    /// The reflection file that the findings are about.
    pub path: PathBuf,
    pub file: Option<File>,
    pub superblock: Option<Superblock>,
    pub lengths: Lengths,
    /// What the journal says, where durable points are kept.
    pub journal: Option<durable::Found>,
}

impl Opening<'_> {
    /// A whole reflection file of a home file of our name, other than `but`.
    pub(super) fn find_orphan(&self, but: Option<&Path>) -> Result<Option<PathBuf>> {
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
            // What is no file, what we may not open and what goes away meanwhile is somebody else's.
            // What merely cannot be read now may be ours, with bytes that are nowhere else.
            let stat = match self.platform.stat_path(&path) {
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => continue,
                other => other.map_err(self.io("look up", &path))?,
            };
            if stat.is_none_or(|stat| !stat.is_regular) {
                continue;
            }
            let file = match self.platform.open(&path, EXISTING) {
                Err(e) if is_somebody_elses(&e) => continue,
                other => other.map_err(self.io("open", &path))?,
            };
            if let Judged::Valid(superblock) = self.judge(&file, &path)?
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
            let stat = match self.platform.stat_path(&path) {
                // A link to a place where we may not look: no file that lies here.
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => continue,
                // Not taken for another file: its reflection file would be taken for an orphan.
                other => other.map_err(self.io("look up", &path))?,
            };
            if let Some(stat) = stat
                && stat.ino == superblock.identity.inode
                && marker::same_birth(stat.btime.map(moment), superblock.identity.born)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn judge(&self, file: &File, path: &Path) -> Result<Judged> {
        let copy = |at| {
            let mut bytes = [0; SUPERBLOCK_LEN];
            self.platform
                .read_at(file, FileId::Reflection, &mut bytes, at)
                .map_err(|e| Error::io_at("read the superblock", path, at, e))?;
            Ok::<_, Error>(Superblock::decode(&bytes))
        };
        Ok(superblock::judge(copy(layout::SUPERBLOCKS[0])?, copy(layout::SUPERBLOCKS[1])?))
    }

    /// Finds out everything about the pair. Writes nothing.
    pub(super) fn look(
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
            journal: None,
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
        look.found = match self.judge(&file, path)? {
            Judged::Newer(version) => Found::Newer(version),
            Judged::Corrupt if reflection.len < layout::SUPERCHUNKS => Found::Truncated,
            Judged::Corrupt => Found::Corrupt,
            Judged::Foreign => self.what_is_foreign(&file, &reflection, path)?,
            Judged::Valid(superblock) => {
                look.mark = mark(Some(superblock.uuid));
                let (mut found, lengths) =
                    self.judge_pair(&file, path, stat, &reflection, &superblock, forced)?;
                if let Found::OfThisFile { state, .. } = &mut found
                    && let (Use::Died | Use::Undone, Some(base)) =
                        (*state, superblock.durable.base())
                {
                    look.journal = self.read_journal(path, &superblock, base)?;
                    match &look.journal {
                        None => *state = Use::JournalGone,
                        Some(journal) if *state == Use::Died => {
                            found = fits_working_state(journal, &lengths, &reflection, found);
                        }
                        Some(_) => {}
                    }
                }
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
            .map_err(|e| Error::io_at("read the superblock", path, 0, e))?;
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
        let is_unfinished = superblock.durable == DurablePoints::NotYet;
        if superblock.state == State::Emptied || is_unfinished {
            // Of whatever file it was: nothing is in it.
            return Ok((Found::Emptied, none));
        }
        // Where the system does not tell boots apart, every boot is another one.
        let boot = self.boot_id()?;
        let same_boot =
            superblock.boot_id == boot && boot != [0; 16] || planted!(RestartNotNoticed);
        let was = superblock.identity;
        let is = identity_of(home);
        let same_file = was.inode == is.inode
            && marker::same_birth(was.born, is.born)
            // Device numbers are given anew at every start of the machine.
            && (!same_boot || was.device == is.device);
        if !same_file && !planted!(AnotherFileTaken) {
            return Ok((Found::OfAnotherFile, none));
        }
        if reflection.len < layout::SUPERCHUNKS {
            return Ok((Found::Truncated, none));
        }
        let point = superblock.durable.base();
        if superblock.session >= superblock::SESSIONS
            || point.is_some_and(|base| base.len > layout::MAX_LEN)
        {
            return Ok((Found::Corrupt, none));
        }
        let goes_back = match superblock.durable {
            DurablePoints::None | DurablePoints::NotYet => false,
            DurablePoints::AfterRestart(_) => !same_boot || planted!(BackAfterDeath),
            DurablePoints::AfterDeath(_) => true,
        };
        if goes_back && superblock.state == State::InUse {
            // Lengths and working words are as the kernel happened to write them.
            let state = Use::Undone;
            return Ok((Found::OfThisFile { home: Home::AsItWas, state }, none));
        }
        let mut words = [0; 16];
        self.platform
            .read_at(file, FileId::Reflection, &mut words, layout::LENGTH_WORD)
            .map_err(|e| Error::io_at("read the length", path, layout::LENGTH_WORD, e))?;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| words[at + i]));
        let lengths = Lengths { len: word(0), high_water: word(8) };
        let too_long = lengths.len > layout::MAX_LEN || lengths.high_water > layout::MAX_LEN;
        if too_long {
            return Ok((Found::Corrupt, none));
        }
        if reflection.len < layout::reflection_len(lengths.len) && !planted!(ShortReflectionTaken) {
            return Ok((Found::Truncated, none));
        }
        let home_is = if home.len < lengths.len && !planted!(ShortHomeTaken) {
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
            if changed && !planted!(ChangedHomeTaken) { Home::Changed } else { Home::AsItWas }
        };
        let state = match superblock.state {
            State::Clean(_) => Use::Closed,
            _ if same_boot || self.survives_restart(file, path, forced)? => Use::Died,
            _ => Use::Restarted,
        };
        Ok((Found::OfThisFile { home: home_is, state }, lengths))
    }

    /// Whether the medium keeps stores when the machine is restarted: it can be mapped so.
    fn survives_restart(&self, file: &File, path: &Path, forced: Option<Medium>) -> Result<bool> {
        match forced {
            Some(medium) => Ok(medium == Medium::Dax),
            None => Ok(map_sync(self.platform, file, path, HUGE_PAGE, HUGE_PAGE)?.is_some()),
        }
    }
}

/// What a pair is if its process died: its last durable point has no bytes past those of the working
/// state, since a shrink makes one before it cuts. Its words are stored where the working state has room.
fn fits_working_state(
    journal: &durable::Found,
    lengths: &Lengths,
    reflection: &FileStat,
    found: Found,
) -> Found {
    let len = journal.len();
    if planted!(LongPointTaken) {
        found
    } else if len > lengths.len.max(lengths.high_water) {
        Found::Corrupt
    } else if reflection.len < layout::reflection_len(len) {
        Found::Truncated
    } else {
        found
    }
}

/// Whether a file cannot be opened because it is not ours, or not there any more.
fn is_somebody_elses(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
}

fn is_hex(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_hexdigit())
}
