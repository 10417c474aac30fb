//! Finds out what exists of a pair, and in which state. Writes nothing.

use super::byte_mark::Look;
use super::candidates::{Claim, is_denied, is_unfinished, was_copied};
use super::journal::Needs;
use super::medium::map_sync;
use super::pair::{Found, Home, Mark, Use};
use super::trust::Named;
use super::{HUGE_PAGE, Opening, journal};
use crate::config::Medium;
use crate::engine::superblock::{Companions, UNFINISHED, cache_of, identity_of, moment, sample};
use crate::error::{Distrust, Error, Result};
use crate::format::marker::{self, Marker};
use crate::format::superblock::{
    self, DurablePoints, Judged, MAGIC, SUPERBLOCK_LEN, State, Superblock,
};
use crate::format::{layout, le_word, state_word};
use crate::mutant::planted;
use crate::platform::{File, FileId, FileStat, FileSystem, Name};
use std::path::Path;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Lengths {
    pub len: u64,
    pub high_water: u64,
}

/// Everything that opening has found out about the pair.
pub(super) struct Probe {
    pub mark: Mark,
    pub found: Found,
    /// The reflection file that the findings are about, and the companions beside it.
    pub companions: Companions,
    /// `true` if that reflection file certainly belongs to this home file.
    pub is_ours: bool,
    /// `true` if the files of the pair were copied or restored together.
    pub is_restored: bool,
    /// The pair of a reflection file that stays when it is discarded, since it may be another
    /// file's.
    pub stays: Option<[u8; 16]>,
    pub file: Option<File>,
    pub superblock: Option<Superblock>,
    pub lengths: Lengths,
    /// The byte mark of the home file.
    pub byte_mark: Look,
    /// The pair that the mark names.
    pub marked: Option<[u8; 16]>,
    /// The journal, where durable points are kept.
    pub journal: Option<journal::Found>,
}

/// The findings so far of a search for the pair of a home file.
struct Search<'a> {
    /// The home file.
    of: (&'a File, &'a FileStat),
    marker: Option<&'a Marker>,
    /// `true` if the home file has bytes or a mark.
    has_bytes: bool,
    /// `true` if the home file may have a pair that was in use.
    may_have_pair: bool,
    look: Probe,
    /// A reflection file that may belong to the original of this file.
    snapshots: Option<(Name, File, FileStat, Superblock)>,
    /// The first file that may not be used, and why.
    distrusted: Option<(Name, Distrust)>,
}

/// The way in which the files of a pair were restored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Restored {
    /// With their marks and times.
    WithAttributes,
    /// Without marks and times: only the names connect the files.
    Bare,
}

impl Probe {
    pub(super) fn nothing(mark: Mark, name: Name) -> Self {
        Probe {
            mark,
            found: Found::Nothing,
            companions: Companions::new(name),
            is_ours: false,
            is_restored: false,
            stays: None,
            byte_mark: Look::default(),
            marked: None,
            file: None,
            superblock: None,
            lengths: Lengths::default(),
            journal: None,
        }
    }

    /// Returns `true` if the pair was closed and its home file is as it was, by a sum.
    pub(super) fn has_sum(&self) -> bool {
        let Found::OfThisFile { home: Home::AsItWas, state } = self.found else { return false };
        matches!(state, Use::Closed | Use::Unsettled)
    }

    /// Returns `true` if nothing that was found may be this home file's.
    pub(super) fn is_plain(&self) -> bool {
        matches!(self.found, Found::Nothing | Found::OfAnotherFile | Found::Foreign)
    }

    /// Notes what lies under a candidate's name and is not certainly this home file's. What may be
    /// its own comes before what is another's.
    fn note(&mut self, found: Found, name: &Name, may_be_ours: bool) {
        let is_anothers = matches!(found, Found::Foreign | Found::OfAnotherFile);
        if self.found == Found::Nothing || may_be_ours && !is_anothers {
            self.found = if may_be_ours { found } else { Found::OfAnotherFile };
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
        let mut judged =
            superblock::judge(copy(layout::SUPERBLOCKS[0])?, copy(layout::SUPERBLOCKS[1])?);
        if let Judged::Valid(superblock) = &mut judged
            && superblock.is_unsettled
        {
            superblock.is_unsettled = !self.was_settled(file, path, superblock)?;
        }
        Ok(judged)
    }

    /// Returns `true` if everything that an unsettled superblock says was durable in the end. The
    /// settled word says so. The floor of the journal does as well for a pair in use, since it
    /// follows the first durable point.
    fn was_settled(&self, file: &File, path: &Path, superblock: &Superblock) -> Result<bool> {
        let mut word = [0; 8];
        self.platform
            .read_at(file, FileId::Reflection, &mut word, layout::SETTLED_WORD)
            .map_err(|e| Error::io_at("read a state word", path, layout::SETTLED_WORD, e))?;
        Ok(u64::from_le_bytes(word) == superblock.session
            || planted!(SettledNotCompared)
            || superblock.state == State::InUse && self.floor(path, file, superblock)? > 0)
    }

    /// Finds out everything but the byte mark.
    pub(super) fn look_for_pair(&self, home: &File, stat: &FileStat) -> Result<Probe> {
        let marker = self
            .platform
            .get_xattr(home, marker::NAME)
            .map_err(self.io("read the attribute", self.path))?;
        self.home_keeps_marks.set(self.keeps_marks(home, &marker)?);
        // Also by a mark that this version cannot read.
        let is_marked = marker.is_some();
        let marker = marker.and_then(|bytes| Marker::decode(&bytes));
        let identity = identity_of(stat);
        let mark = match &marker {
            None => Mark::None,
            Some(marker) if !marker.is_of(&identity) => Mark::OfAnotherFile,
            Some(marker) if marker.is_closing && !planted!(ClosingNotTold) => Mark::Closing,
            Some(_) => Mark::OfThisFile,
        };
        let names = self.candidates(stat, marker.as_ref())?;
        let mut look = Probe::nothing(mark, names[0].clone());
        look.marked = marker.as_ref().map(|marker| marker.uuid);
        // A file without bytes and mark has nothing to lose. Where marks are kept, a file without
        // one has no pair that was in use, unless all of it was restored. What lies in the way is
        // left there.
        let keeps_marks = self.home_keeps_marks.get() && !planted!(UnmarkedMayHavePair);
        let mut search = Search {
            of: (home, stat),
            marker: marker.as_ref(),
            has_bytes: stat.len > 0 || is_marked,
            may_have_pair: is_marked || stat.len > 0 && !keeps_marks,
            look,
            snapshots: None,
            distrusted: None,
        };
        for name in names {
            if self.look_at_name(name, &mut search)? {
                return Ok(search.look);
            }
        }
        let Search { mut look, snapshots, distrusted, may_have_pair, .. } = search;
        if let Some(candidate) = snapshots {
            self.look_at(candidate, Claim::PerhapsOriginals, (home, stat), &mut look)?;
            return Ok(look);
        }
        // A file that may be this one's, and may not be looked at, does not count as none. A link
        // has been put there: that is said in any case.
        let is_trap = |why: &Distrust| matches!(why, Distrust::IsLink | Distrust::IsMountedAlone);
        if let Some((name, why)) = distrusted.filter(|(_, why)| may_have_pair || is_trap(why)) {
            return Err(self.distrusted(&name, why));
        }
        if marker.is_none() && stat.len > 0 && look.is_plain() {
            self.search(home, stat, &mut look)?;
        }
        Ok(look)
    }

    /// Looks at the file under one of the names. Returns `true` if the search is over.
    fn look_at_name(&self, name: Name, search: &mut Search<'_>) -> Result<bool> {
        let of = search.of;
        let named = match self.open_trusted(&name, of.1) {
            Err(e) if is_denied(&e) && !search.may_have_pair => Named::Irregular,
            other => other?,
        };
        let (file, there) = match named {
            Named::Nothing => return Ok(false),
            Named::Irregular => {
                search.look.note(Found::Foreign, &name, search.may_have_pair);
                return Ok(false);
            }
            Named::Distrusted(why) => {
                search.distrusted.get_or_insert((name, why));
                return Ok(false);
            }
            Named::Trusted(file, there) => (file, there),
        };
        match self.judge(&file, name.path())? {
            Judged::Newer(version) => {
                search.look.note(Found::Newer(version), &name, search.may_have_pair)
            }
            Judged::Corrupt if there.len < layout::SUPERCHUNKS => {
                search.look.note(Found::Truncated, &name, search.may_have_pair);
            }
            Judged::Corrupt => search.look.note(Found::Corrupt, &name, search.may_have_pair),
            Judged::Foreign => {
                let found = self.what_is_foreign(&file, &there, name.path())?;
                search.look.note(found, &name, search.may_have_pair);
            }
            Judged::Valid(superblock) => {
                let claim = self.claim_beside_others(&superblock, &there, of, search.marker)?;
                match claim {
                    Claim::Ours | Claim::Restored | Claim::Unmarked => {
                        let candidate = (name, file, there, superblock);
                        self.look_at(candidate, claim, of, &mut search.look)?;
                        return Ok(true);
                    }
                    // This file may have a pair of its own under another name.
                    Claim::PerhapsOriginals => {
                        search.snapshots.get_or_insert((name, file, there, superblock));
                    }
                    Claim::Contested => {
                        search.look.note(Found::Contested, &name, search.has_bytes);
                        search.look.stays = Some(superblock.uuid);
                    }
                    Claim::RolledBack => {
                        search.look.note(Found::RolledBack, &name, search.has_bytes);
                        search.look.stays = Some(superblock.uuid);
                    }
                    Claim::Others => {
                        search.look.note(Found::OfAnotherFile, &name, search.may_have_pair)
                    }
                }
            }
        }
        Ok(false)
    }

    /// Returns the first of the remaining names that a new reflection file may have. Fails if a
    /// link lies where a companion beside it or the unfinished file would go.
    pub(super) fn next_free(
        &self,
        names: &mut impl Iterator<Item = Name>,
        home: &FileStat,
    ) -> Result<Option<Name>> {
        for name in names {
            if self.is_free(&name, home)? {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    /// Returns `true` if a new reflection file may have the name. No file has that name, and no
    /// companion lies beside it, since it would be another pair's.
    fn is_free(&self, name: &Name, home: &FileStat) -> Result<bool> {
        if self.platform.stat_name(name).map_err(self.io("look up", name.path()))?.is_some() {
            return Ok(false);
        }
        let beside = Companions::new(name.clone()).beside.map(|companion| (companion.name, false));
        for (name, may_lie_there) in
            beside.into_iter().chain([(name.with_suffix(UNFINISHED), true)])
        {
            match self.open_trusted(&name, home) {
                Ok(Named::Nothing) => {}
                Ok(Named::Trusted(..)) if may_lie_there => {}
                Ok(Named::Distrusted(why @ Distrust::IsLink)) => {
                    return Err(self.distrusted(&name, why));
                }
                Ok(_) => return Ok(false),
                Err(e) if is_denied(&e) => return Ok(false),
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    /// Returns `true` if the home file's file system keeps marks. Asks the system only if the home
    /// file has no mark.
    fn keeps_marks(&self, home: &File, marker: &Option<Vec<u8>>) -> Result<bool> {
        match marker {
            Some(_) => Ok(true),
            None => self
                .platform
                .keeps_xattrs(home, marker::NAME)
                .map_err(self.io("read the attribute", self.path)),
        }
    }

    /// Examines a reflection file that belongs to this home file, and records the findings in
    /// `probe`.
    pub(super) fn look_at(
        &self,
        (name, file, there, superblock): (Name, File, FileStat, Superblock),
        claim: Claim,
        (home_file, home): (&File, &FileStat),
        look: &mut Probe,
    ) -> Result<()> {
        look.companions = Companions::new(name.clone());
        // On another volume it may be that of the original of a snapshot.
        look.is_ours = match claim {
            Claim::PerhapsOriginals => false,
            Claim::Unmarked => there.dev == home.dev,
            _ => true,
        };
        if !look.is_ours {
            look.stays = Some(superblock.uuid);
        }
        look.is_restored = match claim {
            Claim::Unmarked => was_copied(&superblock, &there),
            _ => claim == Claim::Restored,
        };
        match claim {
            Claim::Unmarked => look.mark = Mark::Gone,
            Claim::PerhapsOriginals => look.mark = Mark::OfSnapshot,
            // The mark of an earlier pair is none to this one: `is_of_earlier`.
            _ if look.mark == Mark::Closing && look.marked != Some(superblock.uuid) => {
                look.mark = Mark::None;
            }
            _ => {}
        }
        let restored = look.is_restored.then_some(match look.mark {
            Mark::None => Restored::Bare,
            _ => Restored::WithAttributes,
        });
        let how = (self.cache_is_there(&superblock, look.is_restored), restored);
        let (mut found, lengths) = if self.was_begun_later(&file, name.path(), &superblock)? {
            (Found::Corrupt, Lengths::default())
        } else if self.is_plain(look.mark, &superblock) {
            (Found::Emptied, Lengths::default())
        } else {
            self.judge_pair((&file, name.path()), (home_file, home), &there, &superblock, how)?
        };
        self.miss_byte_mark((&file, name.path()), home_file, &superblock, &mut found)?;
        if let Found::OfThisFile { state, .. } = &mut found
            && let (Use::Died | Use::Undone | Use::Unsettled, Some(base)) =
                (*state, superblock.durable.base())
        {
            let companions = (&look.companions, &file);
            let needs = Needs::of(*state, how.0);
            match self.read_journal(companions, home, (&superblock, base), needs)? {
                // The working words count, so the opening needs no record. It refuses another
                // pair's journal later.
                journal::Read::Nothing | journal::Read::OfAnother
                    if *state == Use::Died && !planted!(DeadNeedsJournal) => {}
                journal::Read::Nothing => *state = Use::JournalGone,
                journal::Read::OfAnother => *state = Use::JournalSwapped,
                journal::Read::Found(journal) => {
                    if *state == Use::Died {
                        found = fits_working_state(&journal, &lengths, &there, found);
                    }
                    look.journal = Some(journal);
                }
            }
        }
        if restored == Some(Restored::Bare)
            && self.has_other_len(found, &superblock, look, (&file, home.len))?
            && !planted!(OtherLengthTaken)
        {
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

    /// Returns `true` if a home file of this length is not the one that the pair had.
    fn has_other_len(
        &self,
        found: Found,
        superblock: &Superblock,
        look: &Probe,
        (reflection, home_len): (&File, u64),
    ) -> Result<bool> {
        let Found::OfThisFile { home, state } = found else { return Ok(false) };
        Ok(match (home, state, superblock.state) {
            (Home::TooShort, _, _) => true,
            (Home::Changed, _, State::Clean(closed)) => home_len != closed.len,
            (Home::Changed, _, _) => true,
            (Home::AsItWas, Use::Undone, _) => {
                // The journal tells the length of the last durable point, and the words that of the
                // working state, as far as the kernel wrote them back.
                let path = look.companions.reflection.path();
                let words = self.read_lengths(reflection, path)?;
                let of_point = look.journal.as_ref().map(journal::Found::len);
                let [len, high_water] =
                    [words.map(|words| words.len), words.map(|words| words.high_water)];
                ![of_point, len, high_water].contains(&Some(home_len))
            }
            (Home::AsItWas, _, _) => false,
        })
    }

    /// Returns `true` if the page cache that held the pair's stores is certainly still there.
    fn cache_is_there(&self, superblock: &Superblock, is_restored: bool) -> bool {
        let was = cache_of(superblock);
        let is_same = was.is_same_as(&self.cache) || planted!(RestartNotNoticed);
        let trusts_boot = planted!(BootIdAloneBelieved) && was.boot_id == self.cache.boot_id;
        (is_same || trusts_boot) && !is_restored
    }

    /// Classifies a file without a superblock of this crate. It was cut off inside its superblock,
    /// or it is another program's.
    fn what_is_foreign(&self, file: &File, stat: &FileStat, path: &Path) -> Result<Found> {
        let mut start = vec![0; MAGIC.len().min(stat.len as usize)];
        self.platform
            .read_at(file, FileId::Reflection, &mut start, 0)
            .map_err(|e| Error::io_at("read the superblock", path, 0, e))?;
        let is_cut_off = stat.len < SUPERBLOCK_LEN as u64 && MAGIC.starts_with(&start);
        Ok(if is_cut_off { Found::Truncated } else { Found::Foreign })
    }

    /// Returns what a whole superblock says about this home file, and the lengths in the state
    /// words.
    fn judge_pair(
        &self,
        (file, path): (&File, &Path),
        (home_file, home): (&File, &FileStat),
        reflection: &FileStat,
        superblock: &Superblock,
        (same_boot, restored): (bool, Option<Restored>),
    ) -> Result<(Found, Lengths)> {
        let none = Lengths::default();
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
            // Lengths and working words hold whatever the kernel happened to write.
            let state = Use::Undone;
            return Ok((Found::OfThisFile { home: Home::AsItWas, state }, none));
        }
        let is_closed = matches!(superblock.state, State::Clean(_));
        let is_unsettled = is_closed && superblock.is_unsettled && point.is_some() && !same_boot;
        let lengths = match superblock.state {
            // The words may be of any time.
            State::Clean(closed) if is_unsettled => Some(Lengths { len: closed.len, ..none }),
            _ => self.read_lengths(file, path)?,
        };
        let Some(lengths) = lengths.filter(|of| of.len.max(of.high_water) <= layout::MAX_LEN)
        else {
            return Ok((Found::Corrupt, none));
        };
        let is_short = reflection.len < layout::reflection_len(lengths.len) && !is_unsettled;
        if is_short && !planted!(ShortReflectionTaken) {
            return Ok((Found::Truncated, none));
        }
        let home_is = if home.len < lengths.len && !planted!(ShortHomeTaken) {
            Home::TooShort
        } else {
            let changed = match superblock.state {
                State::Clean(closed) => {
                    // A rename and new permissions change the time of the inode and no byte, so
                    // that time is not compared.
                    let has_other_time = moment(home.mtime) != closed.mtime;
                    let has_other_sum = || self.has_other_sum(home_file, home.len, closed.sum);
                    let is_other = match restored {
                        None => has_other_time,
                        // A restore may keep whole seconds of the time.
                        Some(Restored::WithAttributes) => {
                            has_other_time && has_other_sum()?.unwrap_or(true)
                        }
                        // The time is that of the copy.
                        Some(Restored::Bare) => has_other_sum()?.unwrap_or(false),
                    };
                    home.len != closed.len || is_other
                }
                // The pair was in use, so times tell nothing. But only this crate makes the file
                // longer.
                State::InUse | State::Emptied => home.len > lengths.len.max(lengths.high_water),
            };
            if changed && !planted!(ChangedHomeTaken) { Home::Changed } else { Home::AsItWas }
        };
        let state = match superblock.state {
            State::Clean(_) if is_unsettled => Use::Unsettled,
            State::Clean(_) => Use::Closed,
            _ if same_boot => Use::Died,
            // A copy may have been made while a process wrote to the original.
            _ if restored.is_none() && self.survives_restart(file, path)? => Use::Died,
            _ => Use::Restarted,
        };
        Ok((Found::OfThisFile { home: home_is, state }, lengths))
    }

    /// Returns `true` if nothing in the file counts, so that the home file's bytes count as they
    /// are. A file that may have a mark, and has none, has lost nothing to a pair in the making.
    fn is_plain(&self, mark: Mark, superblock: &Superblock) -> bool {
        is_unfinished(superblock)
            && (superblock.state != State::InUse
                || superblock.durable == DurablePoints::NotYet
                || mark == Mark::None && superblock.is_marked)
    }

    /// Returns `true` if a later session was begun than that of the superblock. Its own superblock
    /// was durable, and is damaged. A damaged begun word says nothing.
    fn was_begun_later(&self, file: &File, path: &Path, superblock: &Superblock) -> Result<bool> {
        let (mut word, at) = ([0; 8], layout::BEGUN_WORD);
        self.platform
            .read_at(file, FileId::Reflection, &mut word, at)
            .map_err(|e| Error::io_at("read a state word", path, at, e))?;
        let begun = state_word::decode(at, u64::from_le_bytes(word));
        Ok(begun.is_some_and(|begun| begun > superblock.session) && !planted!(LaterSessionIgnored))
    }

    /// Returns the lengths in the state words, or `None` if one of them is damaged.
    fn read_lengths(&self, file: &File, path: &Path) -> Result<Option<Lengths>> {
        let mut words = [0; 16];
        self.platform
            .read_at(file, FileId::Reflection, &mut words, layout::LENGTH_WORD)
            .map_err(|e| Error::io_at("read the length", path, layout::LENGTH_WORD, e))?;
        const { assert!(layout::HIGH_WATER_WORD == layout::LENGTH_WORD + 8) };
        let (len, high_water) = words.split_at(8);
        let len = state_word::decode(layout::LENGTH_WORD, le_word(len));
        let both = len.zip(state_word::decode(layout::HIGH_WATER_WORD, le_word(high_water)));
        Ok(both.map(|(len, high_water)| Lengths { len, high_water }))
    }

    /// Returns `true` if the home file holds other bytes than when the pair was closed, as far as a
    /// sum over a part of them tells. Returns `None` if the close noted no sum.
    fn has_other_sum(&self, home: &File, len: u64, closed: Option<u32>) -> Result<Option<bool>> {
        let Some(closed) = closed.filter(|_| !planted!(SumNotCompared)) else { return Ok(None) };
        Ok(Some(sample(self.platform, (home, self.path), len)? != closed))
    }

    /// Returns `true` if the pair's stores outlived any restart of the machine. Either the medium
    /// keeps them, since it can be mapped synchronously. Or the files lie in memory and still
    /// exist, so there was no restart.
    fn survives_restart(&self, file: &File, path: &Path) -> Result<bool> {
        let in_memory = |file_system| matches!(file_system, FileSystem::Ram(_));
        match self.forced {
            Some(medium) => Ok(medium == Medium::Dax),
            None if in_memory(self.home_lies_on) && in_memory(self.dir_lies_on) => Ok(true),
            None => Ok(map_sync(self.platform, file, path, HUGE_PAGE, HUGE_PAGE)?.is_some()),
        }
    }
}

/// Returns the finding for a pair in use by a crashed process, after a comparison with its journal.
/// The last durable point has no bytes past the working state, since a shrink makes a point before
/// it cuts. The reflection file must have room for the words of that point.
fn fits_working_state(
    journal: &journal::Found,
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
