//! Returns a pair to a durable point when it is opened, by its journal and its durable words.
//!
//! | end of the last session | what counts | what opening does |
//! |---|---|---|
//! | closed | the words of both kinds, which agree | nothing |
//! | process crash | the working words | ends the session as a fast close does |
//! | machine restart, or any crash of `AtomicSync` | durable words and journal | goes back |
//!
//! After a process crash, the recovered state becomes a durable point in this way. To go back,
//! opening replays the records and then sets the working words to what the durable words say.
//!
//! Opening is idempotent. The records stay as they are until the superblock of the new session is
//! durable. Until then a second replay stores the same bytes and words again. The rules are in
//! `docs/model/durable_points.py`.
//!
//! May import `probe`, `journal`, `engine` and below.

use super::journal::Found;
use super::probe::Lengths;
use crate::bitmap::Validity;
use crate::config::Medium;
use crate::config::progress::{Reporter, Work};
use crate::engine::superblock::store_length;
use crate::error::{Error, Result};
use crate::format::journal::{Change, Record, record_len};
use crate::format::{layout, le_word};
use crate::mmap::MappedFile;
use crate::mutant::{planted, unless};
use crate::pair::space::allocation_error;
use crate::pair::sums::store_all_places;
use crate::platform::{Copying, FileId, Platform};
use crate::units::{PAGE, PageIndex, RegionIndex, SLICE, SUPERCHUNK, WORD};
use std::collections::BTreeSet;
use std::ops::Range;

/// Bytes of slice words that one byte of a region word covers: eight pages with one word each.
const PER_REGION_BYTE: usize = 8 * 8;
/// Most bytes of words of one kind that are read at once: those of 128 MiB of the file.
const LONGEST_RUN: usize = 256 << 10;

/// The files of a pair while opening restores its durable point.
pub(super) struct Pair<'a> {
    pub platform: &'a Platform,
    pub home: &'a MappedFile,
    pub reflection: &'a MappedFile,
    pub medium: Medium,
    /// `true` if the home file is complete, so that nothing is stored to it. It must keep the times
    /// that its close has recorded.
    pub is_home_whole: bool,
}

impl Pair<'_> {
    /// Writes the newest record again, durably. The record may be in the page cache only. The
    /// process may have crashed between the write and the wait for the disk, or the disk failed and
    /// the system went on.
    pub fn make_newest_durable(&self, found: &Found) -> Result<()> {
        let path = found.name.path();
        let Some(((at, newest), journal)) = found.run.last().zip(found.file.as_ref()) else {
            return Ok(());
        };
        let bytes = newest.encode(found.seed);
        self.platform
            .write_durably(journal, FileId::Journal, &bytes, *at)
            .map_err(|e| Error::io_at("write", path, *at, e))
    }

    /// Goes back to the last durable point. Returns the lengths of the file at that point.
    pub fn go_back(&self, found: &Found, reporter: &Reporter) -> Result<Lengths> {
        // The kernel may write back at once what is replayed from the newest record. If the power
        // fails then, the next replay must not end before that record.
        if !self.home.is_private() {
            unless!(NewestNotMadeDurable, self.make_newest_durable(found)?);
        }
        let len = found.len();
        let longer = |file: &MappedFile, len: u64| {
            if file.len() < len {
                file.set_len(len).map_err(|e| Error::io("change the length", file.path(), e))?;
            }
            Ok::<_, Error>(())
        };
        // A power loss may have undone a growth that the record tells of.
        longer(self.home, len)?;
        longer(self.reflection, layout::reflection_len(len))?;
        let bytes_of = |(_, record): &(u64, Record)| {
            record_len(record.changes.len(), record.slices.len() / SLICE, record.sums.len())
        };
        let mut meter = reporter.begin(Work::Replay, found.run.iter().map(bytes_of).sum());
        for record in &found.run {
            unless!(NotReplayed, self.replay(&record.1, len)?);
            meter.add(bytes_of(record));
        }
        // Orders the replayed bytes and words before the next superblock, which voids the journal.
        unless!(ReplayNotSynced, self.sync_both()?);
        unless!(WorkingWordsKept, self.reset_working_words(len)?);
        // Working words past the length also hold whatever the kernel happened to write. So the
        // high-water word exceeds the length, and opening always cleans up.
        let past =
            if planted!(PastPointKept) { len } else { len.saturating_add(1).min(layout::MAX_LEN) };
        let high_water = past.max(self.home.len());
        store_length(self.reflection, layout::LENGTH_WORD, len);
        store_length(self.reflection, layout::HIGH_WATER_WORD, high_water);
        Ok(Lengths { len, high_water })
    }

    /// Stores the durable words of the records, as their points do after the record. Their slices
    /// are in the page cache: no store goes to the slot that a durable word names. Words that say
    /// so already need no space.
    pub fn publish_words(&self, found: &Found) -> Result<()> {
        let len = found.len();
        let mut newer = BTreeSet::new();
        for (_, record) in found.run.iter().rev() {
            let of = |change: &Change| {
                let (count, change) = (change.count, Change { count: 1, ..*change });
                let pages = change.page.0..change.page.plus(count).0;
                pages.map(move |page| Change { page: PageIndex(page), ..change })
            };
            for change in record.changes.iter().flat_map(of) {
                // A base record is the first one of a run.
                let is_last_word = match record.is_base {
                    true => !newer.contains(&change.page),
                    false => newer.insert(change.page),
                };
                if is_last_word && change.page.start() < len && !self.is_published(&change)? {
                    self.store_words(&[change], len)?;
                }
            }
        }
        Ok(())
    }

    fn is_published(&self, change: &Change) -> Result<bool> {
        let mut word = [0; WORD];
        self.read(&mut word, layout::durable_word(change.page))?;
        Ok(le_word(&word) == change.valid.0)
    }

    /// Makes the superblock durable that was found, or that was written since. It may be in the
    /// page cache only, if a process crashed between the write and the sync.
    ///
    /// Orders that superblock before changes of the durable words, since it is the one that says
    /// that they do not count. Orders it before the next superblock, which overwrites the other
    /// copy. Otherwise a power loss could tear both copies.
    pub fn sync_superblock(&self) -> Result<()> {
        let file = self.reflection;
        if self.medium != Medium::Ram && !planted!(FoundSessionNotSynced) {
            file.sync_data().map_err(|e| Error::io("sync", file.path(), e))?;
        }
        Ok(())
    }

    /// Sets the durable words to what the working words say, for a pair without durable words that
    /// count. Skips ranges in which words of both kinds are holes: to read all words of a long file
    /// takes seconds.
    pub fn begin_durable_words(&self, len: u64) -> Result<()> {
        for start in (0..len).step_by(SUPERCHUNK) {
            let superchunk = RegionIndex::of(start).superchunk();
            let mut regions = vec![0; layout::REGION_WORDS_LEN as usize];
            self.read(&mut regions, layout::region_words(superchunk))?;
            let (first, words) = words_of(start, len);
            let mut from = 0;
            while from < words {
                let mut at = self.next_words(first, from, words)?;
                // A region word may say that all of its pages are in the reflection file while
                // their slice words are holes.
                unless!(RegionsNotBegun, at = next_region_words(&regions, from..at));
                if at >= words {
                    break;
                }
                let run = self.run_of_words(first, at, words)?;
                let page = page_of_words(first, run.start);
                self.begin_run_of_words(page, run.len() / 8, &regions)?;
                from = run.end;
            }
        }
        // Orders the durable words before the superblock of the session that believes them.
        unless!(BegunWordsNotSynced, self.sync_both()?);
        Ok(())
    }

    /// Sets the durable words of `count` pages from `first` on. All pages lie in one superchunk,
    /// and `regions` holds that superchunk's region words.
    fn begin_run_of_words(&self, first: PageIndex, count: usize, regions: &[u8]) -> Result<()> {
        let mut words = vec![[0; WORD]; count];
        self.read(words.as_flattened_mut(), layout::slice_word(first))?;
        let mut found = words.clone();
        self.read(found.as_flattened_mut(), layout::durable_word(first))?;
        for (n, (word, found)) in (0..).zip(words.iter().zip(&found)) {
            let page = first.plus(n);
            let valid = Validity::new(le_word(word), region_bit(regions, page));
            if le_word(found) != valid.0 {
                self.allocate(self.reflection, layout::durable_word(page), 8)?;
                self.reflection.store_word_through(layout::durable_word(page), valid.0);
            }
        }
        Ok(())
    }

    /// Returns the first byte, from `from` on, at which the file has data for durable or working
    /// words. `first` is the first page of a superchunk, and bytes count from its word. Returns
    /// `words`, the length of each kind of words, if there is no data.
    pub(super) fn next_words(&self, first: PageIndex, from: usize, words: usize) -> Result<usize> {
        let next_of = |base: u64| -> Result<usize> {
            let at = base.saturating_add(from as u64);
            let data = self
                .reflection
                .next_data(at)
                .map_err(|e| Error::io_at("look for data", self.reflection.path(), at, e))?;
            let from_base =
                |data: u64| data.max(at).saturating_sub(base).min(words as u64) as usize;
            Ok(data.map_or(words, from_base))
        };
        Ok(next_of(layout::durable_word(first))?.min(next_of(layout::slice_word(first))?))
    }

    /// Returns the run of whole pages of words that begins with the page at `at`. It ends before
    /// the next page in which words of both kinds are holes, or where the file system does not
    /// tell, or after [`LONGEST_RUN`]. `first` and `words` are those of
    /// [`next_words`](Self::next_words).
    ///
    /// Words are read run by run, since after a crash they may be on the disk only. Page by page,
    /// the words of 1 GiB are a thousand reads of the disk.
    pub(super) fn run_of_words(
        &self,
        first: PageIndex,
        at: usize,
        words: usize,
    ) -> Result<Range<usize>> {
        let start = at.saturating_sub(at % PAGE);
        let most = start.saturating_add(LONGEST_RUN).min(words);
        let hole_of = |base: u64, from: usize| {
            let at = base.saturating_add(from as u64);
            let hole = self.reflection.next_hole(at);
            hole.map(|hole| hole.saturating_sub(base).min(words as u64) as usize)
                .map_err(|e| Error::io_at("look for holes", self.reflection.path(), at, e))
        };
        let mut end = start.saturating_add(PAGE).min(most);
        while end < most {
            let durable = hole_of(layout::durable_word(first), end)?;
            let next = durable.max(hole_of(layout::slice_word(first), end)?);
            if next <= end {
                break;
            }
            end = next.next_multiple_of(PAGE).min(most);
        }
        Ok(start..end)
    }

    fn replay(&self, record: &Record, len: u64) -> Result<()> {
        let mut slices = &record.slices[..];
        for change in &record.changes {
            // Allocates once for each of the page's two places. A call for each slice would take
            // most of the time of recovery.
            let mut are_allocated = [false; 2];
            for n in crate::bitmap::Slices(change.slices.0).runs().flatten() {
                let (slice, rest) = slices.split_at(SLICE);
                slices = rest;
                let offset = change.page.slice(n);
                if change.page.start() >= len {
                    continue;
                }
                let (file, at, is_allocated) = match change.valid.side(n) {
                    crate::bitmap::Side::Home if self.is_home_whole => continue,
                    crate::bitmap::Side::Home => (self.home, offset, &mut are_allocated[0]),
                    crate::bitmap::Side::Reflection => {
                        (self.reflection, layout::reflection(offset), &mut are_allocated[1])
                    }
                };
                if !*is_allocated {
                    self.allocate(file, PageIndex::of(at).start(), PAGE as u64)?;
                    *is_allocated = true;
                }
                file.copy_in(at, slice, Copying::Cached);
            }
        }
        self.store_words(&record.changes, len)?;
        unless!(ReplayedSumsMissing, self.store_sums(record, len)?);
        Ok(())
    }

    /// Stores the sums of a record to all places of their pages: the record makes the state that
    /// they belong to.
    fn store_sums(&self, record: &Record, len: u64) -> Result<()> {
        for (change, sum) in record.changes.iter().zip(&record.sums) {
            if change.page.start() < len {
                let (at, len) = (layout::page_sums(change.page), layout::PAGE_SUMS_LEN as u64);
                self.allocate(self.reflection, at, len)?;
                store_all_places(self.reflection, change.page, *sum);
            }
        }
        Ok(())
    }

    /// Stores the durable words of the changes, as far as the file reaches.
    fn store_words(&self, changes: &[Change], len: u64) -> Result<()> {
        // The page of words that was allocated last. It holds the words of many pages.
        let mut allocated = None;
        for change in changes {
            for n in 0..change.count {
                let page = change.page.plus(n);
                if page.start() < len {
                    let at = layout::durable_word(page);
                    let words = PageIndex::of(at).start();
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

    /// Sets the working words to what the durable words say. Holes stay holes.
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
                let run = self.run_of_words(first, at, words)?;
                let of = |base: u64| base.saturating_add(run.start as u64);
                self.copy_words(of(durable), of(working), run.len())?;
                at = run.end;
            }
            let superchunk = RegionIndex::of(start).superchunk();
            let regions = layout::region_words(superchunk);
            unless!(RegionWordsKept, self.zero_words(regions, layout::REGION_WORDS_LEN)?);
        }
        Ok(())
    }

    /// Copies `len` bytes of words at `from` to `to`. Does not read the old words there, since they
    /// may hold anything.
    fn copy_words(&self, from: u64, to: u64, len: usize) -> Result<()> {
        let mut words = vec![0; len];
        self.read(&mut words, from)?;
        self.allocate(self.reflection, to, len as u64)?;
        self.reflection.copy_in(to, &words, Copying::Cached);
        Ok(())
    }

    /// Zeroes the words in a range. Holes stay holes.
    pub(super) fn zero_words(&self, at: u64, len: u64) -> Result<()> {
        let end = at.saturating_add(len);
        let mut from = at;
        while from < end {
            let data = self
                .reflection
                .next_data(from)
                .map_err(|e| Error::io_at("look for data", self.reflection.path(), from, e))?;
            let Some(data) = data.map(|data| data.max(from)).filter(|data| *data < end) else {
                return Ok(());
            };
            let piece_end = PageIndex::of(data).plus(1).start().min(end);
            self.reflection.fill_zero(data, piece_end.saturating_sub(data) as usize);
            from = piece_end;
        }
        Ok(())
    }

    pub(super) fn read(&self, to: &mut [u8], at: u64) -> Result<()> {
        self.reflection
            .read_file(to, at)
            .map_err(|e| Error::io_at("read words", self.reflection.path(), at, e))
    }

    fn allocate(&self, file: &MappedFile, at: u64, len: u64) -> Result<()> {
        // The page lies among holes: see `Engine::is_there_or_forgotten`.
        file.forget_folios(at, len);
        file.allocate(at, len).map_err(|e| allocation_error(file, at, len, e))
    }

    pub(super) fn sync_both(&self) -> Result<()> {
        if self.medium == Medium::Ram {
            return Ok(());
        }
        for file in [self.home, self.reflection] {
            file.sync_all().map_err(|e| Error::io("sync", file.path(), e))?;
        }
        Ok(())
    }
}

/// Returns the first offset in `words` that belongs to a nonzero byte of a region word. Returns the
/// end of `words` if all those bytes are zero. `words` is a range of bytes in the slice words of a
/// superchunk, and begins at a page of words.
pub(super) fn next_region_words(regions: &[u8], words: Range<usize>) -> usize {
    let ends = words.end.div_ceil(PER_REGION_BYTE);
    let next = regions[words.start / PER_REGION_BYTE..ends].iter().position(|byte| *byte != 0);
    let from = |bytes: usize| words.start.saturating_add(bytes.saturating_mul(PER_REGION_BYTE));
    next.map_or(words.end, from)
}

/// Returns the first page of the superchunk that begins at `start`, and the length in bytes of its
/// pages' words. The length is that of one kind of words. The file has `len` bytes and reaches into
/// the superchunk.
pub(super) fn words_of(start: u64, len: u64) -> (PageIndex, usize) {
    let first = PageIndex::of(start);
    let pages = len.saturating_sub(start).min(SUPERCHUNK as u64).div_ceil(PAGE as u64);
    (first, pages.saturating_mul(WORD as u64) as usize)
}

/// Returns the page with the word at byte `at` of the words of the pages from `first` on.
pub(super) fn page_of_words(first: PageIndex, at: usize) -> PageIndex {
    first.plus((at / WORD) as u64)
}

/// Returns the bit of a page in its region word. `regions` holds the region words of the page's
/// superchunk.
pub(super) fn region_bit(regions: &[u8], page: PageIndex) -> bool {
    let words = regions.as_chunks::<WORD>().0;
    le_word(&words[page.region().in_superchunk()]) >> page.in_region() & 1 == 1
}
