//! The journal of a pair that is being opened: to which pair it belongs, what it says, and how it
//! is opened or made.
//!
//! Invariant: a journal of another pair is refused before anything is written. May import `probe`,
//! `trust`, `engine` and below.

use super::pair::Use;
use super::replay_journal::Pair;
use super::{LastSession, Opening, trust::Named};
use crate::config::Medium;
use crate::engine::durable::journal::{FullLen, JOURNAL_LENS, Journal, NextHeader, journal_len};
use crate::engine::superblock::{
    Companion, Companions, How, Kind, closed_as, remove_if_is, remove_own, write_superblock,
};
use crate::error::{Distrust, Error, Result};
use crate::format::floor::{FLOOR_LEN, Floor};
use crate::format::journal::{BLOCK, HEADERS, Header, JournalSeed, Record, newest_run};
use crate::format::layout;
use crate::format::superblock::{DurableBase, DurablePoints, State, Superblock};
use crate::mutant::{planted, unless};
use crate::pair::budget::Budget;
use crate::platform::{File, FileId, FileStat, Name, OpenHow};
use std::path::Path;

/// The contents of a session's journal.
pub(super) struct Found {
    pub base: DurableBase,
    /// The records that count, with their places in the journal.
    pub run: Vec<(u64, Record)>,
    pub seed: JournalSeed,
    /// The journal's file. `None` where no journal is needed, since it would have no record.
    pub file: Option<File>,
    pub name: Name,
}

/// A file in the journal's place, its metadata, and its newest header with the header's block.
type FoundJournal = (File, FileStat, Option<(Header, usize)>);

/// The pair's journal, which may be used again.
struct Usable {
    file: File,
    len: u64,
    /// Its newest header, and the block that holds it.
    newest: Option<(Header, usize)>,
}

/// The records of a journal that an opening needs, apart from those that it finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Needs {
    /// The working state counts.
    None,
    /// The last durable point counts, and the page cache has all earlier ones.
    Newest,
    /// The last durable point counts, and the files may lack all that no sync has covered.
    All,
}

impl Needs {
    /// Returns what the state of the last session needs.
    pub fn of(state: Use, is_cache_there: bool) -> Needs {
        match state {
            Use::Died => Needs::None,
            _ if is_cache_there => Needs::Newest,
            _ => Needs::All,
        }
    }
}

/// The file in the journal's place.
pub(super) enum Read {
    Nothing,
    /// The journal of another pair, or of another time. Or a record in it is damaged.
    OfAnother,
    Found(Found),
}

impl Found {
    /// Returns the logical length at the last durable point.
    pub fn len(&self) -> u64 {
        self.run.last().map_or(self.base.len, |(_, record)| record.len)
    }
}

/// The journal of a session that is about to begin.
pub(super) struct OpenJournal {
    file: File,
    name: Name,
    len: u64,
    /// The block of the newest header.
    block: usize,
    /// The session that begins.
    pub session: u64,
    /// The file's metadata, if this opening has made the file.
    pub made: Option<FileStat>,
}

/// The blocks that opening writes to a journal before the next session begins.
struct Beginning {
    /// Covers the last session with records, and the next session.
    header: Header,
    /// The newest header and its block, if they may be in the page cache only.
    renewed: Option<(Header, usize)>,
    /// `true` if all of the file may be in the page cache only.
    is_synced: bool,
    /// `true` if its name may be, too.
    is_named: bool,
}

/// Returns the offset of a header's block.
fn block_at(block: usize) -> u64 {
    if block == 0 { 0 } else { BLOCK as u64 }
}

/// Returns the other one of the two blocks of headers.
fn other_block(block: usize) -> usize {
    block ^ 1
}

impl Opening<'_> {
    /// Reads the journal of the session of the superblock, or of the session that it ended. The
    /// reflection file holds the journal's floor.
    ///
    /// The journal of a new pair, and its header, are durable with the first durable point, which
    /// the floor follows. Without a floor there was no point, so a journal that is missing, or has
    /// no header, is one without a record.
    ///
    /// A record that the opening `needs` must not be missing.
    pub(super) fn read_journal(
        &self,
        (companions, reflection): (&Companions, &File),
        home: &FileStat,
        (superblock, base): (&Superblock, DurableBase),
        needs: Needs,
    ) -> Result<Read> {
        // Records have checksums of their session: each one that is found is this pair's.
        let is_lenient = self.options.best_effort;
        let name = companions.journal();
        let places = self.floors(companions.reflection.path(), reflection)?;
        let (uuid, session) = (&superblock.uuid, superblock.records_of());
        let floor = Floor::of_session(uuid, session, &places[..2]);
        let has_no_record =
            superblock.may_lack_header() && (floor == 0 || planted!(HeaderNeverNeeded));
        let seed = JournalSeed::new(&superblock.uuid, superblock.records_of());
        let found = |run, file| Read::Found(Found { base, run, seed, file, name: name.clone() });
        let (file, stat) = match self.open_trusted(name, home)? {
            Named::Nothing if has_no_record || is_lenient => return Ok(found(Vec::new(), None)),
            Named::Nothing => return Ok(Read::Nothing),
            Named::Irregular => return Err(self.distrusted(name, Distrust::IsIrregular)),
            Named::Distrusted(why) => return Err(self.distrusted(name, why)),
            Named::Trusted(file, stat) => (file, stat),
        };
        let mut bytes = vec![0; stat.len.min(*JOURNAL_LENS.end()) as usize];
        self.platform
            .read_at(&file, FileId::Journal, &mut bytes, 0)
            .map_err(|e| Error::io_at("read the journal", name.path(), 0, e))?;
        let header = Header::newest(&bytes).map(|(header, _)| header);
        let covers = match header {
            Some(header) => header.covers(&superblock.uuid, superblock.records_of()),
            None => has_no_record && Header::may_be_torn(&bytes),
        };
        if !covers && !is_lenient && !planted!(AnyJournalTaken) {
            return Ok(Read::OfAnother);
        }
        let run = newest_run(seed, &bytes);
        let newest = run.last().map_or(0, |(_, record)| record.number);
        if newest < floor && !is_lenient && !planted!(FloorNotChecked) {
            // The journal was copied before the record of that number was written.
            return Ok(Read::OfAnother);
        }
        let noted = Floor::of_session(uuid, session, &places[2..]);
        let lacks_newest = needs != Needs::None && newest < noted;
        if lacks_newest && !is_lenient && !planted!(NewestNotCompared) {
            return Ok(Read::OfAnother);
        }
        // A checkpoint has raised a floor above 1, and covers what comes up to it. A torn floor may
        // be newer than the other one.
        let are_floors_whole = places[..2].iter().all(|place| Floor::is_whole(uuid, place));
        let covered = if floor > 1 { floor } else { 0 };
        let begins_late =
            |first: &Record| !first.is_base && first.number > covered.saturating_add(1);
        if needs == Needs::All
            && are_floors_whole
            && !is_lenient
            && run.first().is_some_and(|(_, first)| begins_late(first))
            && !planted!(GapInRecordsTaken)
        {
            return Ok(Read::OfAnother);
        }
        Ok(found(run, Some(file)))
    }

    /// Returns the lowest number that the newest record of the superblock's session may have.
    /// `path` is the reflection file's.
    pub(super) fn floor(
        &self,
        path: &Path,
        reflection: &File,
        superblock: &Superblock,
    ) -> Result<u64> {
        let places = self.floors(path, reflection)?;
        Ok(Floor::of_session(&superblock.uuid, superblock.records_of(), &places[..2]))
    }

    /// Reads both floors, and the place that names the newest record.
    fn floors(&self, path: &Path, reflection: &File) -> Result<[[u8; FLOOR_LEN]; 3]> {
        let [a, b] = layout::FLOORS;
        let mut places = [[0; FLOOR_LEN]; 3];
        for (place, at) in places.iter_mut().zip([a, b, layout::NEWEST_RECORD]) {
            self.platform
                .read_at(reflection, FileId::Reflection, place, at)
                .map_err(|e| Error::io_at("read the floor of the journal", path, at, e))?;
        }
        Ok(places)
    }

    /// Opens the journal for a new session, and makes one if none fits. If the last session had
    /// points, a durable superblock says that the journal exists. `is_fresh` is `true` if the pair
    /// is new. `superblock` is the one that was found, or that has ended its session.
    pub(super) fn open_journal(
        &self,
        name: &Name,
        (home_file, home): (&File, &FileStat),
        medium: Medium,
        (last_session, is_fresh): (LastSession, bool),
        superblock: &Superblock,
    ) -> Result<OpenJournal> {
        let (found, made) = match self.find_journal(name, home, superblock)? {
            Some(found) => (found, None),
            None => {
                let (file, len, there) = self.make_journal(name, (home_file, home))?;
                (Usable { file, len, newest: None }, Some(there))
            }
        };
        let Usable { file, len, newest } = found;
        let used = newest.map_or(superblock.session, |(newest, _)| newest.to);
        let LastSession { had_points: is_known, has_died, was_first, was_being_made } =
            last_session;
        // A new pair is in use from the beginning. The first point makes its journal durable.
        let is_begun = is_fresh && superblock.durable.base().is_some();
        let session = if is_begun { superblock.session } else { superblock.next_session(used) };
        // In a journal that was just made, the first header goes to the first block.
        let block = newest.map_or(1, |(_, block)| block);
        let mut journal = OpenJournal { file, name: name.clone(), len, block, session, made };
        let last = match superblock {
            _ if planted!(LastRecordsForgotten) => superblock.session,
            _ => superblock.records_of(),
        };
        // An earlier opening may have made the journal and crashed before it synced the folder.
        let is_named = !is_known || made.is_some();
        // A close has made a record durable, and before it the header. After any other end, even of
        // an opening, the newest header may be in the page cache only.
        // So may a copy.
        let is_closed = |newest: &Header| {
            is_known && !has_died && newest.to <= superblock.session && !newest.is_copy
        };
        let beginning = Beginning {
            header: Header { uuid: superblock.uuid, from: last, to: session, is_copy: false },
            renewed: newest.filter(|(newest, _)| !is_closed(newest)),
            is_named: is_named && !is_fresh && !was_being_made,
            // No session that wrote a point has left the file, or only the first one has.
            is_synced: is_named || newest.is_none() || was_first,
        };
        let mut prepare = || {
            if !is_begun {
                self.begin_in_journal(&mut journal, &beginning, medium)?;
            }
            // On other media there is no device to wait for. From here on the file is only written,
            // in whole blocks from aligned buffers.
            if medium == Medium::PageCache {
                let bypassed = self.platform.bypass_cache(&journal.file);
                let _goes_through_the_cache = bypassed.map_err(self.io("open", name.path()))?;
            }
            Ok(())
        };
        prepare().inspect_err(|_| {
            if let Some(there) = made {
                let _best_effort = remove_if_is(self.platform, name, &there);
            }
        })?;
        Ok(journal)
    }

    /// Writes the header by which the next session recognizes its journal, durably. It is durable
    /// before the superblock of that session.
    fn begin_in_journal(
        &self,
        journal: &mut OpenJournal,
        beginning: &Beginning,
        medium: Medium,
    ) -> Result<()> {
        let Beginning { header, renewed, is_synced, is_named } = beginning;
        let (file, name) = (&journal.file, &journal.name);
        let write = |header: &Header, block: usize, is_durable: bool| {
            let (id, bytes, at) = (FileId::Journal, header.encode(), block_at(block));
            let written = match is_durable {
                true => self.platform.write_durably(file, id, &bytes, at),
                false => self.platform.write_at(file, id, &bytes, at),
            };
            written.map_err(|e| Error::io_at("write", name.path(), at, e))
        };
        if let Some((newest, block)) = renewed {
            // The next header overwrites the older one. If that write is torn, the newest header
            // must still be there.
            unless!(HeaderNotMadeDurable, write(newest, *block, true)?);
        }
        let block = other_block(journal.block);
        // The sync of a new journal includes the header.
        unless!(JournalHeaderNotWritten, write(header, block, !is_synced)?);
        if *is_synced {
            self.sync_journal(file, name, medium, *is_named)?;
        }
        // Not earlier: a loss of power could tear both. No sync waits for the copy, and no session
        // needs it.
        let copy = Header { is_copy: true, ..*header };
        unless!(HeaderNotCopied, drop(write(&copy, journal.block, false)));
        journal.block = block;
        Ok(())
    }

    /// Returns this pair's journal if it may be used again. Otherwise removes it.
    fn find_journal(
        &self,
        name: &Name,
        home: &FileStat,
        superblock: &Superblock,
    ) -> Result<Option<Usable>> {
        let Some((file, stat, header)) = self.check_journal(name, home, superblock)? else {
            return Ok(None);
        };
        match header {
            newest if JOURNAL_LENS.contains(&stat.len) => {
                let len = self.room_of_journal(&file, name.path(), stat.len)?;
                Ok(Some(Usable { file, len, newest }))
            }
            _ => {
                remove_own(self.platform, name, &file).map_err(self.io("remove", name.path()))?;
                Ok(None)
            }
        }
    }

    /// Returns the file in the journal's place, with its newest header. Writes nothing.
    ///
    /// # Errors
    /// `Untrusted` if the file is not this pair's journal. Opening checks that before it writes
    /// anything.
    pub(super) fn check_journal(
        &self,
        name: &Name,
        home: &FileStat,
        superblock: &Superblock,
    ) -> Result<Option<FoundJournal>> {
        let (file, stat) = match self.open_trusted(name, home)? {
            Named::Nothing => return Ok(None),
            Named::Irregular => return Err(self.distrusted(name, Distrust::IsIrregular)),
            Named::Distrusted(why) => return Err(self.distrusted(name, why)),
            Named::Trusted(file, stat) => (file, stat),
        };
        let head = self.read_head(&file, &stat, name)?;
        let header = Header::newest(&head);
        let is_ours = match header {
            Some((header, _)) => header.is_of(&superblock.uuid),
            // An opening crashed while it was making the journal, or both copies are damaged.
            None => Header::may_be_torn(&head) || Header::may_be_damaged(&head, &superblock.uuid),
        };
        if !is_ours && !planted!(AnyJournalTaken) {
            return Err(self.distrusted(name, Distrust::IsOfAnotherPair));
        }
        Ok(Some((file, stat, header)))
    }

    fn make_journal(&self, name: &Name, home: (&File, &FileStat)) -> Result<(File, u64, FileStat)> {
        let path = name.path();
        let how = OpenHow { create_new: true, mode: 0o600, reads_only: false };
        let refused = |e| Error::of_companion(self.path, path, "create", e);
        let file = self.platform.open(name, how).map_err(refused)?;
        let there = self.stat_made(name, &file)?;
        // It grows with use, up to `Options::journal_len`.
        let len = if planted!(JournalBornLong) { 1 << 20 } else { *JOURNAL_LENS.start() };
        let fill = || {
            self.own_like_home(&file, path, home)?;
            self.fill_journal(&file, path, len)
        };
        fill().inspect_err(|_| {
            let _best_effort = remove_if_is(self.platform, name, &there);
        })?;
        Ok((file, len, there))
    }

    /// Returns how many of the journal's `len` bytes have storage: all of them, or those before the
    /// first hole. Allocates the hole if there is space. An interrupted growth, or an older version
    /// of this crate, may have left a hole. On a full disk, a record would fail as soon as it
    /// reached the hole.
    fn room_of_journal(&self, file: &File, path: &Path, len: u64) -> Result<u64> {
        let hole = self
            .platform
            .next_hole(file, 0)
            .map_err(|e| Error::io_at("look for holes", path, 0, e))?;
        if hole >= len || planted!(JournalHoleCountsAsRoom) {
            return Ok(len);
        }
        // The system reports a range that is reserved but was never written as a hole, too.
        let at = hole.saturating_sub((hole as usize % BLOCK) as u64);
        let rest = len.saturating_sub(at);
        match self.platform.allocate(file, FileId::Journal, None, at, rest) {
            Ok(()) => Ok(len),
            Err(_) if at >= *JOURNAL_LENS.start() => Ok(at),
            Err(e) => Err(Error::io_of_range("allocate", path, at, rest, e)),
        }
    }

    /// Writes zeroes to a new journal, since reserved blocks are not enough. A record over written
    /// blocks changes neither the file's length nor its extents, and costs one barrier.
    fn fill_journal(&self, file: &File, path: &Path, len: u64) -> Result<()> {
        self.write_in_place(file, path)?;
        let zeroes = vec![0; len.min(1 << 20) as usize];
        for at in (0..len).step_by(zeroes.len()) {
            let piece = &zeroes[..len.saturating_sub(at).min(zeroes.len() as u64) as usize];
            self.platform
                .write_at(file, FileId::Journal, piece, at)
                .map_err(|e| Error::io_of_range("write", path, at, len, e))?;
        }
        Ok(())
    }

    /// Makes the journal durable, and its name if `is_named`. Orders both before the superblock
    /// that says that a journal exists. Otherwise a power loss would leave a pair that is refused.
    /// `sync_names` makes the names of a new pair durable together.
    fn sync_journal(&self, file: &File, name: &Name, medium: Medium, is_named: bool) -> Result<()> {
        let (path, folder) = (name.path(), name.folder());
        if medium == Medium::Ram {
            return Ok(());
        }
        unless!(
            JournalNotSynced,
            self.platform.sync_all(file, FileId::Journal).map_err(self.io("sync", path))?
        );
        if is_named {
            unless!(
                JournalFolderNotSynced,
                self.platform
                    .sync_dir(folder, file)
                    .map_err(self.io("sync the folder", folder.path()))?
            );
        }
        Ok(())
    }

    /// Closes the session of a crashed process, after recovery from its lanes. From here on the
    /// working words count, whatever the next end is. A caller may read them as soon as opening has
    /// returned, and act on the result. So the recovered state becomes a durable point first.
    ///
    /// The method does what a fast close does. It needs no record, so a full disk or a short
    /// journal does not stop it. The durable words follow later, and need not change atomically. If
    /// opening fails or crashes in between, the next opening finds a closed pair.
    pub(super) fn end_dead_session(&self, pair: &Pair<'_>, last: Superblock) -> Result<Superblock> {
        if planted!(OpeningIsNoPoint) {
            return Ok(last);
        }
        // Orders all recovered words and bytes before the superblock that makes them count.
        unless!(DeadSessionNotSynced, pair.sync_both()?);
        let closed = Superblock {
            session: last.next_number(),
            state: State::Clean(closed_as(self.platform, pair.home)?),
            durable: DurablePoints::None,
            // A mark without a sync is no mark yet.
            is_marked: last.is_marked && (!last.is_unsettled || planted!(UnsettledMarkTaken)),
            is_unsettled: false,
            ..last
        };
        write_superblock(self.platform, pair.reflection, &closed, How::Cached)?;
        Ok(closed)
    }

    /// Returns the journal of the session that `superblock` begins. The home file has `home_len`
    /// bytes.
    pub(super) fn begin_journal(
        &self,
        journal: OpenJournal,
        superblock: &Superblock,
        home_len: u64,
    ) -> Result<Journal> {
        let OpenJournal { file, name, len: found, block, .. } = journal;
        let options = self.options;
        let at_open = journal_len(options.journal_len_for(home_len));
        // The least budget depends on the journal, and stays as it is when the journal grows.
        let ceiling = match options.reflection_budget {
            Some(bytes) => Budget::longest_journal(bytes),
            None => u64::MAX,
        };
        let wanted = journal_len(options.journal_len_for(u64::MAX));
        let full = FullLen { at_open, ceiling: wanted.min(ceiling).max(at_open) };
        let len = found.min(at_open);
        if len < found {
            // The journal had grown for one record, or the caller wants a shorter one. Records of
            // older sessions no longer count.
            self.platform
                .set_file_len(&file, FileId::Journal, len)
                .map_err(self.io("change the length", name.path()))?;
        }
        let session = superblock.session;
        let seed = JournalSeed::new(&superblock.uuid, session);
        let header = NextHeader {
            header: Header { uuid: superblock.uuid, from: session, to: session, is_copy: false },
            block: other_block(block),
            is_first: superblock.may_lack_header(),
        };
        let file = (file, len, full);
        let path = name.path().to_owned();
        Ok(Journal::new(self.platform.clone(), file, path, seed, header))
    }

    /// Returns `true` if the file in the companion's place cannot be used, or names another pair
    /// than `uuid`.
    pub(super) fn is_anothers(
        &self,
        companion: &Companion,
        home: &FileStat,
        uuid: &[u8; 16],
    ) -> Result<bool> {
        let (file, stat) = match self.open_trusted(&companion.name, home)? {
            Named::Nothing => return Ok(false),
            Named::Irregular | Named::Distrusted(_) => return Ok(true),
            Named::Trusted(file, stat) => (file, stat),
        };
        match companion.kind {
            Kind::Journal => {
                let head = self.read_head(&file, &stat, &companion.name)?;
                Ok(match Header::newest(&head) {
                    Some((header, _)) => !header.is_of(uuid),
                    // Without a header, the file is a journal that was being made, or another
                    // program's file.
                    None => !Header::may_be_torn(&head),
                })
            }
            Kind::Snapshots => self.is_anothers_store((&file, &stat, &companion.name), uuid),
        }
    }

    /// Removes the companions beside a reflection file, as `remove_companion` does.
    pub(super) fn remove_beside(
        &self,
        companions: &Companions,
        home: &FileStat,
        uuid: &[u8; 16],
    ) -> Result<()> {
        companions.beside.iter().try_for_each(|one| self.remove_companion(one, home, uuid))
    }

    /// Removes a companion that its pair has no use for. Another pair's companion stays, since it
    /// may hold the only copy of its records.
    pub(super) fn remove_companion(
        &self,
        companion: &Companion,
        home: &FileStat,
        uuid: &[u8; 16],
    ) -> Result<()> {
        let name = &companion.name;
        let stays = self.is_anothers(companion, home, uuid)? && !planted!(AnyJournalTaken);
        if !stays && let Named::Trusted(file, _) = self.open_trusted(name, home)? {
            remove_own(self.platform, name, &file).map_err(self.io("remove", name.path()))?;
        }
        Ok(())
    }

    fn read_head(&self, file: &File, stat: &FileStat, name: &Name) -> Result<Vec<u8>> {
        let mut head = vec![0; (HEADERS * BLOCK).min(stat.len as usize)];
        self.platform
            .read_at(file, FileId::Journal, &mut head, 0)
            .map_err(|e| Error::io_at("read the journal", name.path(), 0, e))?;
        Ok(head)
    }
}
