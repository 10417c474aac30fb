//! Which durable point does a file go back to, and how? The journal and the durable words.
//!
//! | the end of the last session | believed | done |
//! |---|---|---|
//! | closed | the words of both kinds, which are alike | nothing |
//! | the process died | the working words | the session is closed, as a fast close does it; then what was found is a durable point |
//! | the machine was restarted, or the session was all or nothing | the durable words, and the journal over them | the records are replayed; the working words become what the durable words say |
//!
//! Idempotent: until the superblock of the new session is durable, records and durable words stay
//! what they are, and what replaying stores is what it stores again. Rules:
//! `docs/model/durable_points.py`.

use super::Opening;
use super::look::Lengths;
use super::trust::Named;
use crate::bitmap::Validity;
use crate::engine::journal::{JOURNAL_LENS, Journal, journal_len};
use crate::engine::le_word;
use crate::engine::session::{Companions, closed_as, remove_if_is, remove_own, write_superblock};
use crate::engine::space::allocation_error;
use crate::error::{Distrust, Error, Result};
use crate::format::floor::{FLOOR_LEN, Floor};
use crate::format::journal::{BLOCK, Change, HEADERS, Header, JournalSeed, Record, newest_run};
use crate::format::layout;
use crate::format::superblock::{DurableBase, DurablePoints, State, Superblock};
use crate::mutant::{planted, unless};
use crate::platform::{Copying, File, FileId, FileStat, Name, OpenHow, Platform};
use crate::store::MappedFile;
use crate::terms::Medium;
use crate::units::{PAGE, PageIndex, SLICE, SUPERCHUNK};
use std::ops::Range;
use std::path::Path;

/// What the journal of a session holds.
pub(super) struct Found {
    pub base: DurableBase,
    /// The records that count, with their places in the journal.
    pub run: Vec<(u64, Record)>,
    seed: JournalSeed,
    file: File,
    name: Name,
}

/// A file in the journal's place, and its newest header with its block.
type FoundJournal = (File, FileStat, Option<(Header, usize)>);

/// A journal that is the pair's and may be used again.
struct Usable {
    file: File,
    len: u64,
    /// Its newest header, and the block that holds it.
    newest: Option<(Header, usize)>,
}

/// What is in the journal's place.
pub(super) enum Read {
    Nothing,
    /// The journal of another pair, or of another time.
    OfAnother,
    Found(Found),
}

impl Found {
    /// The logical length at the last durable point.
    pub fn len(&self) -> u64 {
        self.run.last().map_or(self.base.len, |(_, record)| record.len)
    }
}

/// The journal of a session that is about to begin.
pub(super) struct OpenJournal {
    file: File,
    /// The same file, written past the page cache, where that can be done.
    direct: Option<File>,
    name: Name,
    len: u64,
    /// The block of the newest header.
    block: usize,
    /// The session that begins.
    pub session: u64,
    /// What it is, if this opening has made it.
    pub made: Option<FileStat>,
}

/// Bytes of slice words that one byte of a region's word is about: its eight pages have a word
/// each.
const PER_REGION_BYTE: usize = 8 * 8;

impl Opening<'_> {
    /// Reads the journal of the session that the superblock began. The reflection file holds its
    /// floor.
    pub(super) fn read_journal(
        &self,
        (companions, reflection): (&Companions, &File),
        home: &FileStat,
        superblock: &Superblock,
        base: DurableBase,
    ) -> Result<Read> {
        let name = &companions.journal;
        let (file, stat) = match self.open_trusted(name, home)? {
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
        let vouches = header.is_some_and(|h| h.vouches_for(&superblock.uuid, superblock.session));
        if !vouches && !planted!(AnyJournalTaken) {
            return Ok(Read::OfAnother);
        }
        let seed = JournalSeed::new(&superblock.uuid, superblock.session);
        let run = newest_run(seed, &bytes);
        let newest = run.last().map_or(0, |(_, record)| record.number);
        if newest < self.floor(&companions.reflection, reflection, superblock)?
            && !planted!(FloorNotChecked)
        {
            // It was copied before that record was written.
            return Ok(Read::OfAnother);
        }
        Ok(Read::Found(Found { base, run, seed, file, name: name.clone() }))
    }

    /// The number that the newest record of the superblock's session has at least.
    fn floor(&self, name: &Name, reflection: &File, superblock: &Superblock) -> Result<u64> {
        let mut places = [[0; FLOOR_LEN]; 2];
        for (place, at) in places.iter_mut().zip(layout::FLOORS) {
            self.platform
                .read_at(reflection, FileId::Reflection, place, at)
                .map_err(|e| Error::io_at("read the floor of the journal", name.path(), at, e))?;
        }
        Ok(Floor::of_session(&superblock.uuid, superblock.session, places))
    }

    /// The journal for a new session: made if there is none that fits. `is_known`: a durable
    /// superblock says that it is there. `has_died`: the session before was not closed.
    /// `superblock` is the one that was found.
    pub(super) fn open_journal(
        &self,
        name: &Name,
        (home_file, home): (&File, &FileStat),
        medium: Medium,
        (is_known, has_died): (bool, bool),
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
        let session = superblock.next_session(used);
        // Of a journal that was just made: the first header goes to the first block.
        let block = newest.map_or(1, |(_, block)| block);
        let (name_of, direct) = (name.clone(), None);
        let mut journal = OpenJournal { file, direct, name: name_of, len, block, session, made };
        let path = name.path();
        let header = Header { uuid: superblock.uuid, from: superblock.session, to: session };
        let prepare = |journal: &mut OpenJournal| -> Result<()> {
            // Elsewhere there is no device to be waited for.
            if medium == Medium::PageCache {
                let direct = self.platform.open_past_cache(name).map_err(self.io("open", path))?;
                journal.direct = self.if_same(direct, &journal.file, path)?;
            }
            // A close has made a record, and its header before that. After every other end, that of
            // an opening among them, the newest header may be in the page cache only.
            let is_closed =
                |newest: &Header| is_known && !has_died && newest.to <= superblock.session;
            if let Some((newest, block)) = newest.filter(|(newest, _)| !is_closed(newest)) {
                // The next header goes over the one before, and a torn write of it must leave this
                // one.
                let at = (block * BLOCK) as u64;
                unless!(
                    HeaderNotMadeDurable,
                    self.platform
                        .write_durably((&journal.file, None), FileId::Journal, &newest.encode(), at)
                        .map_err(|e| Error::io_at("write", path, at, e))?
                );
            }
            let block = 1 - journal.block;
            let at = (block * BLOCK) as u64;
            // Durable before the superblock of the new session: its journal is known by it.
            unless!(
                JournalHeaderNotWritten,
                self.platform
                    .write_durably((&journal.file, None), FileId::Journal, &header.encode(), at)
                    .map_err(|e| Error::io_at("write", path, at, e))?
            );
            journal.block = block;
            if made.is_some() || !is_known {
                // Of an open that did not come to its end: it may have died before the syncs.
                self.sync_journal(&journal.file, name, medium)?;
            }
            Ok(())
        };
        prepare(&mut journal).inspect_err(|_| {
            if let Some(there) = made {
                let _best_effort = remove_if_is(self.platform, name, &there);
            }
        })?;
        Ok(journal)
    }

    /// The second descriptor, if it is one of the same file: the name may be another file's by now.
    fn if_same(&self, second: Option<File>, first: &File, path: &Path) -> Result<Option<File>> {
        let Some(second) = second else { return Ok(None) };
        let (one, other) = (self.stat(first, path)?, self.stat(&second, path)?);
        Ok(((one.dev, one.ino) == (other.dev, other.ino)).then_some(second))
    }

    /// The journal of this pair, if it may be used again.
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
            Some(newest) if JOURNAL_LENS.contains(&stat.len) => {
                let len = self.room_of_journal(&file, name.path(), stat.len)?;
                Ok(Some(Usable { file, len, newest: Some(newest) }))
            }
            _ => {
                remove_own(self.platform, name, &file).map_err(self.io("remove", name.path()))?;
                Ok(None)
            }
        }
    }

    /// What lies in the journal's place, with its newest header. Writes nothing.
    ///
    /// # Errors
    /// `Untrusted` if it is not this pair's: nothing may be written before that is known.
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
            Some((header, _)) => header.uuid == superblock.uuid,
            // An opening that was making it has died.
            None => Header::may_be_torn(&head),
        };
        if !is_ours && !planted!(AnyJournalTaken) {
            return Err(self.distrusted(name, Distrust::IsOfAnotherPair));
        }
        Ok(Some((file, stat, header)))
    }

    fn make_journal(&self, name: &Name, home: (&File, &FileStat)) -> Result<(File, u64, FileStat)> {
        let path = name.path();
        let how = OpenHow { create: false, create_new: true, mode: 0o600 };
        let refused = |e| Error::of_companion(self.path, path, "create", e);
        let file = self.platform.open(name, how).map_err(refused)?;
        let there = self.stat_made(name, &file)?;
        let len = journal_len(self.options.journal_len);
        let fill = || {
            self.own_like_home(&file, path, home)?;
            self.fill_journal(&file, path, len)
        };
        fill().inspect_err(|_| {
            let _best_effort = remove_if_is(self.platform, name, &there);
        })?;
        Ok((file, len, there))
    }

    /// How many of the `len` bytes of a journal have storage: all, or those before its first hole.
    /// A growth that died half way, or an older version of this crate, may have left one; a record
    /// that is written there on a full disk would fail when its time comes.
    fn room_of_journal(&self, file: &File, path: &Path, len: u64) -> Result<u64> {
        let hole = self
            .platform
            .next_hole(file, 0)
            .map_err(|e| Error::io_at("look for holes", path, 0, e))?;
        if hole >= len || planted!(JournalHoleCountsAsRoom) {
            return Ok(len);
        }
        // What is reserved and was never written is told as a hole, too.
        let at = hole / BLOCK as u64 * BLOCK as u64;
        match self.platform.allocate(file, FileId::Journal, None, at, len - at) {
            Ok(()) => Ok(len),
            Err(_) if at >= *JOURNAL_LENS.start() => Ok(at),
            Err(e) => Err(Error::io_of_range("allocate", path, at, len - at, e)),
        }
    }

    /// Written, and not only reserved: a record then changes neither the file's length nor where it
    /// lies, and costs one barrier.
    fn fill_journal(&self, file: &File, path: &Path, len: u64) -> Result<()> {
        self.write_in_place(file, path)?;
        let zeroes = vec![0; len.min(1 << 20) as usize];
        for at in (0..len).step_by(zeroes.len()) {
            let piece = &zeroes[..(len - at).min(zeroes.len() as u64) as usize];
            self.platform
                .write_at(file, FileId::Journal, piece, at)
                .map_err(|e| Error::io_of_range("write", path, at, len, e))?;
        }
        Ok(())
    }

    /// Makes the journal and its name durable. Orders both before the superblock that says that
    /// there is one: without it a loss of power would leave a pair that is refused.
    fn sync_journal(&self, file: &File, name: &Name, medium: Medium) -> Result<()> {
        let (path, folder) = (name.path(), name.folder());
        if medium != Medium::Ram {
            unless!(
                JournalNotSynced,
                self.platform.sync_all(file, FileId::Journal).map_err(self.io("sync", path))?
            );
            unless!(
                JournalFolderNotSynced,
                self.platform
                    .sync_dir(folder, file)
                    .map_err(self.io("sync the folder", folder.path()))?
            );
        }
        Ok(())
    }

    /// Closes the session of a process that died, once its lanes were recovered. The working words
    /// count from here on, after every end: a caller reads what they say as soon as opening has
    /// returned, and may answer by it. So it becomes a durable point first.
    ///
    /// This is what a fast close does. No record is needed, so a full disk or a short journal does
    /// not stop it; and the durable words, which follow, need not change at one blow. If opening
    /// fails or ends in the middle, the next one finds a closed pair.
    pub(super) fn end_dead_session(&self, pair: &Pair<'_>, last: Superblock) -> Result<Superblock> {
        if planted!(OpeningIsNoPoint) {
            return Ok(last);
        }
        // Orders everything that was recovered, the words and the bytes, before the superblock that
        // makes them count.
        unless!(DeadSessionNotSynced, pair.sync_both()?);
        let closed = Superblock {
            session: last.session + 1,
            state: State::Clean(closed_as(self.platform, pair.home)?),
            durable: DurablePoints::None,
            ..last
        };
        write_superblock(self.platform, pair.reflection, &closed)?;
        Ok(closed)
    }

    /// The journal of a session that begins.
    pub(super) fn begin_journal(
        &self,
        journal: OpenJournal,
        superblock: &Superblock,
    ) -> Result<Journal> {
        let OpenJournal { file, direct, name, len: found, block, .. } = journal;
        let len = found.min(journal_len(self.options.journal_len));
        if len < found {
            // It had grown for one record. Those of older sessions are void by now.
            self.platform
                .set_file_len(&file, FileId::Journal, len)
                .map_err(self.io("change the length", name.path()))?;
        }
        let session = superblock.session;
        let seed = JournalSeed::new(&superblock.uuid, session);
        let header = Header { uuid: superblock.uuid, from: session, to: session };
        let files = (file, direct, len);
        Ok(Journal::new(self.platform.clone(), files, name, seed, (header, 1 - block)))
    }

    /// Whether what lies in a journal's place may not be used for one, or is another pair's than
    /// that of this uuid by its header.
    pub(super) fn is_anothers_journal(
        &self,
        name: &Name,
        home: &FileStat,
        uuid: &[u8; 16],
    ) -> Result<bool> {
        let (file, stat) = match self.open_trusted(name, home)? {
            Named::Nothing => return Ok(false),
            Named::Irregular | Named::Distrusted(_) => return Ok(true),
            Named::Trusted(file, stat) => (file, stat),
        };
        let head = self.read_head(&file, &stat, name)?;
        Ok(match Header::newest(&head) {
            Some((header, _)) => header.uuid != *uuid,
            // A journal that was being made, or another program's file.
            None => !Header::may_be_torn(&head),
        })
    }

    /// Removes the journal of a pair that has none from here on. Another pair's journal stays: its
    /// records may be nowhere else.
    pub(super) fn remove_journal(
        &self,
        name: &Name,
        home: &FileStat,
        uuid: &[u8; 16],
    ) -> Result<()> {
        let stays = self.is_anothers_journal(name, home, uuid)? && !planted!(AnyJournalTaken);
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

/// The files of a pair that goes on after an end that was no closing.
pub(super) struct Pair<'a> {
    pub platform: &'a Platform,
    pub home: &'a MappedFile,
    pub reflection: &'a MappedFile,
    pub medium: Medium,
}

impl Pair<'_> {
    /// Writes the newest record again. It may be in the page cache only: if its process died
    /// between writing and waiting for the disk, or the disk failed and the system goes on.
    fn make_newest_durable(&self, found: &Found) -> Result<()> {
        let (journal, path) = (&found.file, found.name.path());
        let Some((at, newest)) = found.run.last() else { return Ok(()) };
        let bytes = newest.encode(found.seed);
        self.platform
            .write_durably((journal, None), FileId::Journal, &bytes, *at)
            .map_err(|e| Error::io_at("write", path, *at, e))
    }

    /// Goes back to the last durable point. The lengths of the file afterwards.
    pub fn go_back(&self, found: &Found) -> Result<Lengths> {
        // What is replayed from it may be written back at once. If the power goes then, the next
        // replay must not end before this record.
        unless!(NewestNotMadeDurable, self.make_newest_durable(found)?);
        let len = found.len();
        let longer = |file: &MappedFile, len: u64| {
            if file.len() < len {
                file.set_len(len).map_err(|e| Error::io("change the length", file.path(), e))?;
            }
            Ok::<_, Error>(())
        };
        // A growth that the record tells of may be lost with the power.
        longer(self.home, len)?;
        longer(self.reflection, layout::reflection_len(len))?;
        for (_, record) in &found.run {
            unless!(NotReplayed, self.replay(record, len)?);
        }
        // The superblock that follows voids the journal: what was replayed is durable before.
        unless!(ReplayNotSynced, self.sync_both()?);
        unless!(WorkingWordsKept, self.reset_working_words(len)?);
        // Working words past the length are as the kernel happened to write them as well: there is
        // always something to clean up.
        let past = if planted!(PastPointKept) { len } else { (len + 1).min(layout::MAX_LEN) };
        let high_water = past.max(self.home.len());
        self.reflection.store_word_through(layout::LENGTH_WORD, len);
        self.reflection.store_word_through(layout::HIGH_WATER_WORD, high_water);
        Ok(Lengths { len, high_water })
    }

    /// Makes the superblock durable that was found, or written since. It may be in the page cache
    /// only: a process may have died between writing it and its sync.
    ///
    /// Orders it before the durable words that change because it says that they do not count; and
    /// before the next superblock, which goes over the other copy: a loss of power may tear both.
    pub fn sync_superblock(&self) -> Result<()> {
        let file = self.reflection;
        if self.medium != Medium::Ram && !planted!(FoundSessionNotSynced) {
            file.sync_data().map_err(|e| Error::io("sync", file.path(), e))?;
        }
        Ok(())
    }

    /// Makes the durable words say what the working words say, of a pair that had none, or whose
    /// durable words say nothing any more. Only where one of them says something: reading all of a
    /// long file's words took seconds.
    pub fn begin_durable_words(&self, len: u64) -> Result<()> {
        for start in (0..len).step_by(SUPERCHUNK) {
            let superchunk = (start / SUPERCHUNK as u64) as usize;
            let mut regions = vec![0; layout::REGION_WORDS_LEN as usize];
            self.read(&mut regions, layout::region_words(superchunk))?;
            let (first, words) = words_of(start, len);
            let mut from = 0;
            while from < words {
                let mut at = self.next_words(first, from, words)?;
                // A region's word may say that all of its pages are away, and they have no words.
                unless!(RegionsNotBegun, at = next_region_words(&regions, from..at));
                if at >= words {
                    break;
                }
                at = at / PAGE * PAGE;
                let count = (words - at).min(PAGE) / 8;
                self.begin_page_of_words(PageIndex(first.0 + at as u64 / 8), count, &regions)?;
                from = at + PAGE;
            }
        }
        // Orders the durable words before the superblock of the session that believes them.
        unless!(BegunWordsNotSynced, self.sync_both()?);
        Ok(())
    }

    /// The same for the words of `count` pages, which are of one superchunk, as its regions' words
    /// are.
    fn begin_page_of_words(&self, first: PageIndex, count: usize, regions: &[u8]) -> Result<()> {
        let mut words = vec![0; count * 8];
        self.read(&mut words, layout::slice_word(first))?;
        let mut found = words.clone();
        self.read(&mut found, layout::durable_word(first))?;
        for n in 0..count {
            let page = PageIndex(first.0 + n as u64);
            let at = n * 8;
            let region = page.region().in_superchunk() * 8;
            let bit = le_word(&regions[region..region + 8]) >> page.in_region() & 1 == 1;
            let valid = Validity::new(le_word(&words[at..at + 8]), bit);
            if le_word(&found[at..at + 8]) != valid.0 {
                self.allocate(self.reflection, layout::durable_word(page), 8)?;
                self.reflection.store_word_through(layout::durable_word(page), valid.0);
            }
        }
        Ok(())
    }

    /// Where, from byte `from` of the words of a superchunk on, whose first page is `first`, the
    /// file has data for durable or for working words. `words`, how many bytes there are of each:
    /// nowhere.
    fn next_words(&self, first: PageIndex, from: usize, words: usize) -> Result<usize> {
        let next_of = |base: u64| -> Result<usize> {
            let at = base + from as u64;
            let data = self
                .reflection
                .next_data(at)
                .map_err(|e| Error::io_at("look for data", self.reflection.path(), at, e))?;
            Ok(data.map_or(words, |data| (data.max(at) - base).min(words as u64) as usize))
        };
        Ok(next_of(layout::durable_word(first))?.min(next_of(layout::slice_word(first))?))
    }

    fn replay(&self, record: &Record, len: u64) -> Result<()> {
        let mut slices = &record.slices[..];
        for change in &record.changes {
            // Once for each of the page's two places: a call for each slice took most of recovery's
            // time.
            let mut are_allocated = [false; 2];
            for n in crate::bitmap::Slices(change.slices.0).runs().flatten() {
                let (slice, rest) = slices.split_at(SLICE);
                slices = rest;
                let offset = change.page.start() + (n * SLICE) as u64;
                if change.page.start() >= len {
                    continue;
                }
                let (file, at, is_allocated) = match change.valid.side(n) {
                    crate::bitmap::Side::Home => (self.home, offset, &mut are_allocated[0]),
                    crate::bitmap::Side::Reflection => {
                        (self.reflection, layout::reflection(offset), &mut are_allocated[1])
                    }
                };
                if !*is_allocated {
                    self.allocate(file, at / PAGE as u64 * PAGE as u64, PAGE as u64)?;
                    *is_allocated = true;
                }
                file.copy_in(at, slice, Copying::Cached);
            }
        }
        self.store_words(&record.changes, len)
    }

    /// Stores the durable words of the changes, as far as the file reaches.
    fn store_words(&self, changes: &[Change], len: u64) -> Result<()> {
        // The page of words that was allocated last: it holds those of many pages.
        let mut allocated = None;
        for change in changes {
            for n in 0..change.count {
                let page = PageIndex(change.page.0 + n);
                if page.start() < len {
                    let at = layout::durable_word(page);
                    let words = at / PAGE as u64 * PAGE as u64;
                    if allocated != Some(words) {
                        self.allocate(self.reflection, words, PAGE as u64)?;
                        allocated = Some(words);
                    }
                    self.reflection.store_word_through(at, change.valid.0);
                }
            }
        }
        Ok(())
    }

    /// Makes the working words say what the durable words say. Holes stay holes.
    fn reset_working_words(&self, len: u64) -> Result<()> {
        for start in (0..len).step_by(SUPERCHUNK) {
            let (first, words) = words_of(start, len);
            let (durable, working) = (layout::durable_word(first), layout::slice_word(first));
            let mut at = 0;
            while at < words {
                at = self.next_words(first, at, words)?;
                if at >= words {
                    break;
                }
                at = at / PAGE * PAGE;
                let end = (at + PAGE).min(words);
                self.copy_words(durable + at as u64, working + at as u64..working + end as u64)?;
                at = end;
            }
            let superchunk = (start / SUPERCHUNK as u64) as usize;
            let regions = layout::region_words(superchunk);
            unless!(RegionWordsKept, self.zero_words(regions, layout::REGION_WORDS_LEN)?);
        }
        Ok(())
    }

    /// Stores the words at `from` over those of `to`, which are not even read: anything may be
    /// there.
    fn copy_words(&self, from: u64, to: Range<u64>) -> Result<()> {
        let mut words = vec![0; (to.end - to.start) as usize];
        self.read(&mut words, from)?;
        self.allocate(self.reflection, to.start, to.end - to.start)?;
        self.reflection.copy_in(to.start, &words, Copying::Cached);
        Ok(())
    }

    /// Zeroes the words, but for holes.
    fn zero_words(&self, at: u64, len: u64) -> Result<()> {
        let end = at + len;
        let mut from = at;
        while from < end {
            let data = self
                .reflection
                .next_data(from)
                .map_err(|e| Error::io_at("look for data", self.reflection.path(), from, e))?;
            let Some(data) = data.map(|data| data.max(from)).filter(|data| *data < end) else {
                return Ok(());
            };
            let piece_end = (data + 1).next_multiple_of(PAGE as u64).min(end);
            self.reflection.fill_zero(data, (piece_end - data) as usize);
            from = piece_end;
        }
        Ok(())
    }

    fn read(&self, to: &mut [u8], at: u64) -> Result<()> {
        self.reflection
            .read_file(to, at)
            .map_err(|e| Error::io_at("read words", self.reflection.path(), at, e))
    }

    fn allocate(&self, file: &MappedFile, at: u64, len: u64) -> Result<()> {
        // The page lies among holes: see `Engine::is_there_or_forgotten`.
        file.forget_folios(at, len);
        file.allocate(at, len).map_err(|e| allocation_error(file, at, len, e))
    }

    fn sync_both(&self) -> Result<()> {
        if self.medium == Medium::Ram {
            return Ok(());
        }
        for file in [self.home, self.reflection] {
            file.sync_all().map_err(|e| Error::io("sync", file.path(), e))?;
        }
        Ok(())
    }
}

/// Where, within these bytes of the slice words of a superchunk, those of a region begin whose word
/// says something. Where they end: nowhere. They begin at a page of words.
fn next_region_words(regions: &[u8], words: Range<usize>) -> usize {
    let ends = words.end.div_ceil(PER_REGION_BYTE);
    let next = regions[words.start / PER_REGION_BYTE..ends].iter().position(|byte| *byte != 0);
    next.map_or(words.end, |bytes| words.start + bytes * PER_REGION_BYTE)
}

/// Of the superchunk that begins at `start`: its first page, and how many bytes the words of its
/// pages take, of either kind, in a file of `len` bytes, which reaches into it.
fn words_of(start: u64, len: u64) -> (PageIndex, usize) {
    let first = PageIndex::of(start);
    let last = PageIndex::of(len.min(start + SUPERCHUNK as u64) - 1);
    (first, (last.0 + 1 - first.0) as usize * 8)
}
