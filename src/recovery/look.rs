//! What is there, and in which state? Finds out everything about the pair and writes nothing.

use super::candidates::{Claim, is_denied, is_unfinished};
use super::medium::map_sync;
use super::pair::{Found, Home, Mark, Use};
use super::trust::Named;
use super::{HUGE_PAGE, Opening, durable};
use crate::engine::session::{Companions, cache_of, identity_of, moment};
use crate::error::{Distrust, Error, Result};
use crate::format::layout;
use crate::format::marker::{self, Marker};
use crate::format::superblock::{
    self, DurablePoints, Judged, MAGIC, SUPERBLOCK_LEN, State, Superblock,
};
use crate::mutant::planted;
use crate::platform::{File, FileId, FileStat, FileSystem, Name};
use crate::terms::Medium;
use std::path::Path;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Lengths {
    pub len: u64,
    pub high_water: u64,
}

/// Everything that was found out about the pair.
pub(super) struct Look {
    pub mark: Mark,
    pub found: Found,
    /// The reflection file that the findings are about, and its journal.
    pub companions: Companions,
    /// Whether that one is this home file's.
    pub is_ours: bool,
    /// Whether the files of the pair were copied or restored together.
    pub is_restored: bool,
    /// A name for a new reflection file, under which nothing lies.
    pub free: Option<Name>,
    pub file: Option<File>,
    pub superblock: Option<Superblock>,
    pub lengths: Lengths,
    /// What the journal says, where durable points are kept.
    pub journal: Option<durable::Found>,
}

/// How the files of a pair were restored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Restored {
    /// With their marks and times.
    WithAttributes,
    /// Without: the names alone connect them.
    Bare,
}

impl Look {
    fn nothing(mark: Mark, name: Name) -> Self {
        Look {
            mark,
            found: Found::Nothing,
            companions: Companions::new(name),
            is_ours: false,
            is_restored: false,
            free: None,
            file: None,
            superblock: None,
            lengths: Lengths::default(),
            journal: None,
        }
    }

    /// Notes what lies under a candidate's name and is not certainly this home file's. What may be its own
    /// comes before what is another's.
    fn note(&mut self, found: Found, name: &Name, has_bytes: bool) {
        let is_anothers = matches!(found, Found::Foreign | Found::OfAnotherFile);
        if self.found == Found::Nothing || has_bytes && !is_anothers {
            self.found = if has_bytes { found } else { Found::OfAnotherFile };
            self.companions = Companions::new(name.clone());
        }
    }
}

impl Opening<'_> {
    pub(super) fn judge(&self, file: &File, path: &Path) -> Result<Judged> {
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
    pub(super) fn look(&self, home: &File, stat: &FileStat) -> Result<Look> {
        let marker = self
            .platform
            .get_xattr(home, marker::NAME)
            .map_err(self.io("read the attribute", self.path))?;
        self.home_keeps_marks.set(self.keeps_marks(home, &marker)?);
        let marker = marker.and_then(|bytes| Marker::decode(&bytes));
        let identity = identity_of(stat);
        let mark = match &marker {
            None => Mark::None,
            Some(marker) if !marker.is_of(&identity) => Mark::OfAnotherFile,
            Some(_) => Mark::OfThisFile,
        };
        let names = self.candidates(stat, marker.as_ref());
        let mut look = Look::nothing(mark, names[0].clone());
        // Whoever has no bytes and no mark has nothing to lose: what lies in the way is left there.
        let has_bytes = stat.len > 0 || marker.is_some();
        let mut distrusted = None;
        for (n, name) in names.into_iter().enumerate() {
            let named = match self.open_trusted(&name, stat) {
                Err(e) if is_denied(&e) && !has_bytes => Named::Irregular,
                other => other?,
            };
            let (file, there) = match named {
                Named::Nothing => {
                    if n < 2 && look.free.is_none() && self.is_free(&name, stat)? {
                        look.free = Some(name);
                    }
                    continue;
                }
                Named::Irregular => {
                    look.note(Found::Foreign, &name, has_bytes);
                    continue;
                }
                Named::Distrusted(why) => {
                    distrusted.get_or_insert((name, why));
                    continue;
                }
                Named::Trusted(file, there) => (file, there),
            };
            match self.judge(&file, name.path())? {
                Judged::Newer(version) => look.note(Found::Newer(version), &name, has_bytes),
                Judged::Corrupt if there.len < layout::SUPERCHUNKS => {
                    look.note(Found::Truncated, &name, has_bytes);
                }
                Judged::Corrupt => look.note(Found::Corrupt, &name, has_bytes),
                Judged::Foreign => {
                    let found = self.what_is_foreign(&file, &there, name.path())?;
                    look.note(found, &name, has_bytes);
                }
                Judged::Valid(superblock) => {
                    let mark = marker.as_ref();
                    let claim = self.claim_beside_others(&superblock, &there, stat, mark)?;
                    match claim {
                        Claim::Ours | Claim::Restored => {
                            let candidate = (name, file, there, superblock);
                            self.look_at(candidate, claim, stat, &mut look)?;
                            return Ok(look);
                        }
                        Claim::Contested => look.note(Found::Contested, &name, has_bytes),
                        Claim::Others => look.note(Found::OfAnotherFile, &name, has_bytes),
                    }
                }
            }
        }
        // What may be this file's, and may not be looked at, is not taken for nothing. A link has been put
        // there: that is said in any case.
        let is_trap = |why: &Distrust| !matches!(why, Distrust::IsOwnedBy { .. });
        if let Some((name, why)) = distrusted.filter(|(_, why)| has_bytes || is_trap(why)) {
            return Err(self.distrusted(&name, why));
        }
        let is_plain = matches!(look.found, Found::Nothing | Found::OfAnotherFile | Found::Foreign);
        if marker.is_none() && stat.len > 0 && is_plain {
            self.search(stat, &mut look)?;
        }
        Ok(look)
    }

    /// A name for a new reflection file, under which nothing lies, nor a journal beside it.
    pub(super) fn free_name(&self, home: &FileStat) -> Result<Option<Name>> {
        for name in self.own_names(&identity_of(home)) {
            let there = self.platform.stat_name(&name).map_err(self.io("look up", name.path()))?;
            if there.is_none() && self.is_free(&name, home)? {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    /// Whether a new reflection file may have the name: no journal lies beside it, which would be another's,
    /// and no trap in the place of what is to be made.
    fn is_free(&self, name: &Name, home: &FileStat) -> Result<bool> {
        for (name, may_lie_there) in
            [(Companions::new(name.clone()).journal, false), (self.unfinished_name(home), true)]
        {
            match self.open_trusted(&name, home) {
                Ok(Named::Nothing) => {}
                Ok(Named::Trusted(..)) if may_lie_there => {}
                Ok(Named::Distrusted(why @ (Distrust::IsLink | Distrust::HasLinks(_)))) => {
                    return Err(self.distrusted(&name, why));
                }
                Ok(_) => return Ok(false),
                Err(e) if is_denied(&e) => return Ok(false),
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    /// Whether the home file's file system keeps marks. Asked where nothing else tells files apart.
    fn keeps_marks(&self, home: &File, marker: &Option<Vec<u8>>) -> Result<bool> {
        match marker {
            Some(_) => Ok(true),
            None => self
                .platform
                .keeps_xattrs(home, marker::NAME)
                .map_err(self.io("read the attribute", self.path)),
        }
    }

    /// Looks at a reflection file that is this home file's.
    pub(super) fn look_at(
        &self,
        (name, file, there, superblock): (Name, File, FileStat, Superblock),
        claim: Claim,
        home: &FileStat,
        look: &mut Look,
    ) -> Result<()> {
        look.companions = Companions::new(name.clone());
        look.is_ours = true;
        look.is_restored = claim == Claim::Restored;
        let restored = look.is_restored.then_some(match look.mark {
            Mark::None => Restored::Bare,
            _ => Restored::WithAttributes,
        });
        let how = (self.cache_is_there(&superblock, look.is_restored), restored);
        let (mut found, lengths) =
            self.judge_pair(&file, name.path(), home, &there, &superblock, how)?;
        if let Found::OfThisFile { state, .. } = &mut found
            && let (Use::Died | Use::Undone, Some(base)) = (*state, superblock.durable.base())
        {
            let companions = (&look.companions, &file);
            match self.read_journal(companions, home, &superblock, base)? {
                durable::Read::Nothing => *state = Use::JournalGone,
                durable::Read::OfAnother => *state = Use::JournalSwapped,
                durable::Read::Found(journal) => {
                    if *state == Use::Died {
                        found = fits_working_state(&journal, &lengths, &there, found);
                    }
                    look.journal = Some(journal);
                }
            }
        }
        let is_too_long_or_short =
            matches!(found, Found::OfThisFile { home: Home::TooShort | Home::Changed, .. });
        if restored == Some(Restored::Bare) && is_too_long_or_short {
            // The name alone connects the two, and the length does not: it is another file's.
            look.is_ours = false;
            look.is_restored = false;
            look.found = Found::OfAnotherFile;
            look.journal = None;
            return Ok(());
        }
        look.found = found;
        look.lengths = lengths;
        look.superblock = Some(superblock);
        look.file = Some(file);
        Ok(())
    }

    /// Whether the page cache that held the pair's stores is certainly still there.
    fn cache_is_there(&self, superblock: &Superblock, is_restored: bool) -> bool {
        let was = cache_of(superblock);
        let is_same = was.is_same_as(&self.cache) || planted!(RestartNotNoticed);
        let trusts_boot = planted!(BootIdAloneBelieved) && was.boot_id == self.cache.boot_id;
        (is_same || trusts_boot) && !is_restored
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
        (same_boot, restored): (bool, Option<Restored>),
    ) -> Result<(Found, Lengths)> {
        let none = Lengths::default();
        if is_unfinished(superblock) {
            return Ok((Found::Emptied, none));
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
                    // A restored file has its own time, or that of its copy. (The time of its inode
                    // changes by a rename and by permissions as well, which change no byte.)
                    let keeps_time = restored != Some(Restored::Bare);
                    home.len != closed.len || keeps_time && moment(home.mtime) != closed.mtime
                }
                // In use: times tell nothing, but nobody but us makes the file longer.
                State::InUse | State::Emptied => home.len > lengths.len.max(lengths.high_water),
            };
            if changed && !planted!(ChangedHomeTaken) { Home::Changed } else { Home::AsItWas }
        };
        let state = match superblock.state {
            State::Clean(_) => Use::Closed,
            _ if same_boot => Use::Died,
            // A copy may have been made while its original was written to.
            _ if restored.is_none() && self.survives_restart(file, path)? => Use::Died,
            _ => Use::Restarted,
        };
        Ok((Found::OfThisFile { home: home_is, state }, lengths))
    }

    /// Whether the medium keeps stores when the machine is restarted: it can be mapped so. Or the files lie
    /// in memory, and are there: then it was not.
    fn survives_restart(&self, file: &File, path: &Path) -> Result<bool> {
        let in_memory = |file_system| matches!(file_system, FileSystem::Ram(_));
        match self.forced {
            Some(medium) => Ok(medium == Medium::Dax),
            None if in_memory(self.home_lies_on) && in_memory(self.dir_lies_on) => Ok(true),
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
