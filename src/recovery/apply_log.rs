//! Applies what `lanes` has decided: restores words and slices.
//!
//! Idempotent, since the records in the lanes stay as they are. May import `lanes`, `engine` and
//! below.

use super::lanes::{Actions, FlippedSlices};
use crate::bitmap::{Side, Slices, Validity, bits};
use crate::engine::resize::truncate::read_word;
use crate::engine::superblock::store_length;
use crate::error::{Error, Result};
use crate::format::entry::{OldBits, RedoPage, WordId};
use crate::format::flip_record::{FlipRecord, sum_of};
use crate::format::layout::{self, SUM_PLACES};
use crate::mmap::MappedFile;
use crate::mutant::{planted, unless};
use crate::pair::space::{allocation_error, storage_error};
use crate::platform::Copying;
use crate::units::{PAGE, PageIndex, SLICE};
use std::cell::Cell;

/// Applies the decisions about all lanes. `len` is the logical length, also if a redo record holds
/// it, and `apply` ignores what lies past it. If the file `has_sums`, flip records have those of
/// their pages. The caller drains the stores. Words that `apply` writes by system calls are durable
/// when it returns.
pub(crate) fn apply(
    home: &MappedFile,
    reflection: &MappedFile,
    (len, has_sums): (u64, bool),
    actions: &[Actions],
) -> Result<()> {
    let files = Files { home, reflection, len, has_sums, region_words: Cell::new(None) };
    if actions.iter().any(|lane| lane.len.is_some()) {
        // The superblock that voids the record comes later, so the order to the pages is free.
        unless!(RecoverLengthNotStored, store_length(reflection, layout::LENGTH_WORD, len));
    }
    let redo = || actions.iter().flat_map(|lane| &lane.redo).try_for_each(|page| files.redo(page));
    if planted!(RecoverRedoFirst) {
        redo()?;
    }
    for record in actions.iter().flat_map(|lane| &lane.take_back) {
        unless!(RecoverNothingTakenBack, files.take_back(record)?);
    }
    let mut has_written = false;
    for flipped in actions.iter().flat_map(|lane| &lane.logged_flips) {
        unless!(RecoverNoFlipRecords, has_written |= files.move_slices(flipped)?);
    }
    if has_written {
        // Orders the words before the superblock that voids the records, and before the redo data.
        unless!(RecoverNotSynced, files.sync_words()?);
    }
    if planted!(RecoverRedoFirst) { Ok(()) } else { redo() }
}

struct Files<'a> {
    home: &'a MappedFile,
    reflection: &'a MappedFile,
    len: u64,
    has_sums: bool,
    /// A superchunk, and where the first data of its region words are.
    region_words: Cell<Option<(usize, u64)>>,
}

impl Files<'_> {
    /// Returns the offset of a word, or `None` if the word describes no bytes of the file. Bytes
    /// past the length are cleaned up and not recovered.
    fn word_at(&self, word: WordId) -> Option<u64> {
        let (start, at) = match word {
            WordId::Slice(page) => (page.start(), layout::slice_word(page)),
            WordId::Region(region) => (region.start(), layout::region_word(region)),
        };
        (start < self.len || planted!(RecoverPastLength)).then_some(at)
    }

    fn take_back(&self, record: &OldBits) -> Result<()> {
        let Some(at) = self.word_at(record.word) else { return Ok(()) };
        allocate(self.reflection, at, 8)?;
        let word = self.reflection.load_word(at);
        let kept = if planted!(RecoverTakesBackAll) { 0 } else { word & !record.mask };
        self.reflection.store_word_through(at, kept | record.old);
        Ok(())
    }

    fn validity(&self, page: PageIndex) -> Result<Validity> {
        let word = read_word(self.reflection, layout::slice_word(page))?;
        Ok(Validity::new(word, self.region_bit(page)?))
    }

    /// Returns the bit of the page in its region word. Usually no region of a superchunk was ever
    /// written as a whole, and all of its region words are a hole.
    fn region_bit(&self, page: PageIndex) -> Result<bool> {
        let (region, superchunk) = (page.region(), page.region().superchunk());
        let at = layout::region_word(region);
        let first_data = match self.region_words.get() {
            Some((known, first_data)) if known == superchunk => first_data,
            _ => {
                let words = layout::region_words(superchunk);
                let data = self
                    .reflection
                    .next_data(words)
                    .map_err(|e| Error::io_at("look for data", self.reflection.path(), words, e))?;
                let first_data = data.unwrap_or(u64::MAX);
                self.region_words.set(Some((superchunk, first_data)));
                first_data
            }
        };
        let is_in_hole = at < PageIndex::of(first_data).start();
        let word = if is_in_hole { 0 } else { read_word(self.reflection, at)? };
        Ok(word >> page.in_region() & 1 == 1 && !planted!(RecoverRegionIgnored))
    }

    /// Moves the slices to the sides that the record names. Returns `true` if it wrote the
    /// word. Changes no slot, so a second recovery decides the same, whatever it finds.
    ///
    /// The word is written by a system call. The words lie far apart, and to map the page of each
    /// one takes several times as long. A crash may leave only some bytes of the new word. The
    /// word's other bits stay as they are, so a second recovery repairs it.
    fn move_slices(&self, flipped: &FlippedSlices) -> Result<bool> {
        let record = &flipped.record;
        let Some(at) = self.word_at(WordId::Slice(record.page)) else { return Ok(false) };
        let verifies =
            flipped.is_newest && !planted!(RecoverNotVerified) || planted!(RecoverVerifiesAll);
        if verifies && self.sum_of_slots(record)? != record.sum {
            // Not all slices arrived, so the operation was not acknowledged.
            return Ok(false);
        }
        let word = read_word(self.reflection, at)?;
        let valid = Validity::new(word, self.region_bit(record.page)?);
        let moved = record.slices & (valid.0 ^ record.sides);
        // A word that is already right is written, too. After a process crash it may be right in
        // the cache only, and once the new session has begun, no record covers it.
        if moved == 0 && planted!(RightWordNotStored) {
            return Ok(false);
        }
        let now = (word ^ moved).to_le_bytes();
        self.reflection
            .write_file(&now, at)
            .map_err(|e| storage_error("write a word", self.reflection, at, 8, e))?;
        unless!(RecordSumNotRestored, self.restore_sum(record)?);
        Ok(true)
    }

    /// Writes the sum that the record names to all places of the page. A crash may leave only some
    /// bytes, and a second recovery writes them again.
    fn restore_sum(&self, record: &FlipRecord) -> Result<()> {
        if !self.has_sums {
            return Ok(());
        }
        let places = [record.page_sum; SUM_PLACES].map(u64::to_le_bytes);
        let (bytes, at) = (places.as_flattened(), layout::page_sums(record.page));
        self.reflection.write_file(bytes, at).map_err(|e| {
            storage_error("write page sums", self.reflection, at, bytes.len() as u64, e)
        })
    }

    fn sync_words(&self) -> Result<()> {
        let path = self.reflection.path();
        self.reflection.sync_data().map_err(|e| Error::io("sync", path, e))
    }

    fn sum_of_slots(&self, record: &FlipRecord) -> Result<u32> {
        let mut bytes = [0; PAGE];
        let mut filled = 0;
        let sides = Validity(record.sides);
        for (side, run) in sides.runs(Slices(record.slices)) {
            let offset = record.page.slice(run.start);
            let (file, at) = match side {
                Side::Home => (self.home, offset),
                Side::Reflection => (self.reflection, layout::reflection(offset)),
            };
            let next = Slices::range(run.start, run.end).bytes();
            // Reads the file instead of the mapping, since a slot that never arrived may be a hole.
            file.read_file(&mut bytes[filled..][..next], at)
                .map_err(|e| Error::io_at("read slices", file.path(), at, e))?;
            filled = next.saturating_add(filled);
        }
        Ok(sum_of(&bytes[..filled]))
    }

    /// Sets the slice bits of a redo page that flip, and stores the other slices into their valid
    /// slots. Neither step affects the other, and both can be repeated. The region bit stays as it
    /// is.
    fn redo(&self, redo: &RedoPage) -> Result<()> {
        let Some(word_at) = self.word_at(WordId::Slice(redo.page)) else { return Ok(()) };
        allocate(self.reflection, word_at, 8)?;
        let word = self.reflection.load_word(word_at) & !redo.flips | redo.flipped;
        unless!(RecoverRedoNotFlipped, self.reflection.store_word_through(word_at, word));
        let valid = self.validity(redo.page)?;
        let slices = redo.bytes.as_chunks::<SLICE>().0;
        for (n, bytes) in bits(redo.stays).zip(slices) {
            let offset = redo.page.slice(n);
            let (file, at) = match valid.side(n) {
                Side::Home => (self.home, offset),
                Side::Reflection => (self.reflection, layout::reflection(offset)),
            };
            allocate(file, at, SLICE as u64)?;
            unless!(RecoverRedoNotStored, file.copy_in(at, bytes, Copying::BySize));
        }
        Ok(())
    }
}

/// Allocates a range, so that a store to it cannot fail.
fn allocate(file: &MappedFile, at: u64, len: u64) -> Result<()> {
    if planted!(RecoverNotAllocated) {
        return Ok(());
    }
    let start = PageIndex::of(at).start();
    let len = at.saturating_add(len).saturating_sub(start).next_multiple_of(PAGE as u64);
    file.forget_folios(start, len);
    file.allocate(start, len).map_err(|e| allocation_error(file, start, len, e))
}
