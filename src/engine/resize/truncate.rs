//! Zeroes what lies past the file's length, and cuts the files off there.
//!
//! Used by `set_len`, close and recovery, once nothing reads, writes or replays past the length any
//! more. Idempotent: a crash in the middle leaves the high-water mark up, and the zeroing runs
//! again.
//!
//! May import `durable`, `plan`, `pair`, and what lies below them.

use crate::bitmap::Slices;
use crate::error::{Error, Result};
use crate::format::layout;
use crate::mmap::MappedFile;
use crate::mutant::{planted, unless};
use crate::units::{PAGE, PAGES_PER_REGION, PageIndex, SUPERCHUNK};

/// Truncates both files to `len` and zeroes what that leaves behind, with the sums of pages if the
/// file `has_sums`. The caller drains.
pub(crate) fn zero_past(
    home: &MappedFile,
    reflection: &MappedFile,
    len: u64,
    has_sums: bool,
) -> Result<()> {
    let cut = |file: &MappedFile, to: u64| {
        file.set_len(to).map_err(|e| Error::io("change the length", file.path(), e))
    };
    // The system zeroes what the last page holds past the end, as readers see it.
    // `Durable::on_grow` says when those zeroes are on the disk.
    unless!(HomeNotCut, cut(home, len)?);
    cut(reflection, layout::reflection_len(len))?;
    if len == 0 {
        return Ok(());
    }
    // The last superchunk continues past the end: the rest of a page, and words.
    let in_page = len % PAGE as u64;
    if in_page != 0 && !planted!(RestOfPageNotZeroed) {
        let from = layout::reflection(len);
        zero_data(reflection, from, from + PAGE as u64 - in_page)?;
    }
    let first = PageIndex::of(len.next_multiple_of(PAGE as u64));
    let superchunk = (len - 1) / SUPERCHUNK as u64;
    let end = PageIndex::of((superchunk + 1) * SUPERCHUNK as u64);
    if first == end {
        return Ok(());
    }
    let words = layout::slice_word(first);
    unless!(SliceWordsNotZeroed, zero_data(reflection, words, words + (end.0 - first.0) * 8)?);
    let words = layout::durable_word(first);
    zero_data(reflection, words, words + (end.0 - first.0) * 8)?;
    if has_sums && !planted!(SumsNotZeroed) {
        let sums = layout::page_sums(first);
        let sums_len = (end.0 - first.0) * layout::PAGE_SUMS_LEN as u64;
        zero_data(reflection, sums, sums + sums_len)?;
    }
    let word_at = layout::region_word(first.region());
    let kept = Slices::range(0, first.in_region()).0;
    let word = read_word(reflection, word_at)?;
    if word & !kept != 0 && !planted!(RegionWordNotCut) {
        reflection.store_word_through(word_at, word & kept);
    }
    let regions = (end.0 - first.0).div_ceil(PAGES_PER_REGION as u64);
    let words_end = layout::region_words(superchunk as usize) + layout::REGION_WORDS_LEN;
    if planted!(RegionWordsNotZeroed) {
        return Ok(());
    }
    zero_data(reflection, word_at + 8, (word_at + 8 * regions + 8).min(words_end))
}

/// Reads a word of the file. It may lie in a hole.
pub(crate) fn read_word(file: &MappedFile, at: u64) -> Result<u64> {
    let mut bytes = [0; 8];
    file.read_file(&mut bytes, at).map_err(|e| Error::io_at("read words", file.path(), at, e))?;
    Ok(u64::from_le_bytes(bytes))
}

/// Zeroes every byte of `at..end` that is not zero, without filling holes.
fn zero_data(file: &MappedFile, mut at: u64, end: u64) -> Result<()> {
    while at < end {
        let data =
            file.next_data(at).map_err(|e| Error::io_at("look for data", file.path(), at, e))?;
        let Some(from) = data.map(|data| data.max(at)).filter(|from| *from < end) else {
            return Ok(());
        };
        let piece_end = (from + 1).next_multiple_of(PAGE as u64).min(end);
        let mut bytes = vec![0; (piece_end - from) as usize];
        file.read_file(&mut bytes, from).map_err(|e| Error::io_at("read", file.path(), from, e))?;
        if bytes.iter().any(|byte| *byte != 0) {
            // If one block of a page holds data, its other blocks may still be holes.
            let len = bytes.len() as u64;
            file.allocate(from, len)
                .map_err(|e| Error::io_of_range("allocate", file.path(), from, len, e))?;
            file.fill_zero(from, bytes.len());
        }
        at = piece_end;
    }
    Ok(())
}
