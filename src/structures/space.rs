//! Extents of the file: which are in use, the best fit for a new one, and growth.
//!
//! Owns: the arithmetic of gaps.
//!
//! Invariant (`docs/structures.md`, N2, N5): no extent is recorded as free. The free space is all
//! that lies between the extents in use. So none is lost or freed twice, and gaps need no merging.
//!
//! May import `directory`, `log/meta` and the room's helpers.

use super::directory::{Directory, HEAD, LOG};
use super::log::meta::{self, Segments};
use super::{PAGE, Source, UNIT, rounded};
use crate::api::file::AtomicMappedFile;
use crate::api::transaction::Transaction;
use crate::error::{Error, Result};
use crate::mutant::{planted, unless};
use std::ops::Range;

/// Returns all extents in use, in ascending order. Returns an error if two of them overlap.
pub(super) fn used(directory: &Directory, source: &mut impl Source) -> Result<Vec<Range<u64>>> {
    let at = directory.at;
    let first = at..at.saturating_add(HEAD);
    let mut used: Vec<_> = [first].into_iter().chain(directory.moved_table()).collect();
    for entry in directory.entries() {
        used.push(entry.extent());
        if entry.kind == LOG && !planted!(SegmentsNotInUse) {
            let segments =
                Segments::load(source, entry.offset.get().saturating_add(meta::SEGMENTS))?;
            used.extend(segments.iter().map(|segment| segment.bytes()));
        }
    }
    used.sort_unstable_by_key(|extent| extent.start);
    source.expect(used[0].start == at, at, "an extent lies before the directory")?;
    for pair in used.windows(2) {
        source.expect(pair[0].end <= pair[1].start, pair[1].start, "two extents overlap")?;
    }
    Ok(used)
}

/// Takes an extent for `len` bytes: the shortest gap in which it fits, else the end of the last
/// extent. The file grows if it is too short. Returns the offset.
///
/// The caller records the extent in the same transaction. The bytes are not zero: see [`clear`].
pub(super) fn allocate(
    directory: &mut Directory,
    tx: &mut Transaction<'_>,
    len: u64,
) -> Result<u64> {
    let used = used(directory, tx)?;
    let align = if len >= PAGE { PAGE } else { UNIT };
    let overflow = |file: &AtomicMappedFile| Error::Overflow {
        path: file.path().to_owned(),
        offset: used.last().map_or(0, |last| last.end),
        count: len,
        size: 1,
    };
    let rounded = rounded(len);
    // The end of an extent that begins in this gap, if it fits.
    let fits = |gap: Range<u64>| {
        let start = gap.start.checked_next_multiple_of(align)?;
        let end = start.checked_add(rounded)?;
        (end <= gap.end).then_some((start, end, gap.end.saturating_sub(gap.start)))
    };
    let gaps = used.windows(2).map(|pair| pair[0].end..pair[1].start);
    let badness = |len: u64| if planted!(LongestGapTaken) { !len } else { len };
    let best = gaps.filter_map(fits).min_by_key(|&(start, _, len)| (badness(len), start));
    let last = used.last().map_or(directory.at, |last| last.end);
    let (start, end, _) =
        best.or_else(|| fits(last..u64::MAX)).ok_or_else(|| overflow(tx.file()))?;
    unless!(FileNotGrown, grow(tx, end)?);
    Ok(start)
}

/// Makes the file at least `len` bytes long, in whole pages, when the transaction commits. Does
/// nothing if it is long enough.
pub(super) fn grow(tx: &mut Transaction<'_>, len: u64) -> Result<()> {
    if tx.reaches(len)? {
        return Ok(());
    }
    let whole_pages = len.checked_next_multiple_of(PAGE).unwrap_or(len);
    tx.set_len(whole_pages.min(tx.file().max_len()).max(len))
}

/// Writes zeros to the part of a new extent that was in use before, and moves the high-water mark
/// past the extent.
pub(super) fn clear(
    directory: &mut Directory,
    tx: &mut Transaction<'_>,
    extent: Range<u64>,
) -> Result<()> {
    let high_water = directory.header.high_water.get();
    let mut at = extent.start;
    let end = extent.end.min(high_water);
    let zeros = [0; PAGE as usize];
    while at < end && !planted!(ReusedBytesNotZeroed) {
        let len = end.saturating_sub(at).min(PAGE);
        tx.write_at(&zeros[..len as usize], at)?;
        at = at.saturating_add(len);
    }
    raise_high_water(directory, tx, extent.end)
}

/// Moves the high-water mark to `end`, if it is below.
pub(super) fn raise_high_water(
    directory: &mut Directory,
    tx: &mut Transaction<'_>,
    end: u64,
) -> Result<()> {
    if directory.header.high_water.get() < end && !planted!(HighWaterNotRaised) {
        directory.header.high_water = end.into();
        directory.store_header(tx)?;
    }
    Ok(())
}
