//! The open journal: where the next record goes, and which records are still needed.
//!
//! Owns: the open journal and its ring of blocks. Invariants (from `docs/model/durable_points.py`):
//! - A record's blocks are used again only after a later checkpoint or base record. That one has
//!   made everything durable in place that the record covers.
//! - The newest record is never overwritten, so a torn write leaves it intact.
//! - A record is contiguous, and shares no block with another record.
//!
//! One thread writes at a time, the leader of a sync. A checkpoint may forget records meanwhile.
//!
//! May import `plan`, `pair`, and what lies below them.

use crate::error::{Error, Result, SYNC_FOR_A_POINT, WRITE_A_POINT};
use crate::format::journal::{BLOCK, HEADERS, Head, Header, JournalSeed};
use crate::mutant::{planted, unless};
use crate::platform::{File, FileId, Platform};
use crate::primitive::Mutex;
use std::collections::VecDeque;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// Smallest and largest length of a journal in bytes. A new journal has the smallest one.
pub(crate) const JOURNAL_LENS: RangeInclusive<u64> = 64 << 10..=1 << 30;

/// Returns the length up to which a journal grows by use, if the caller asked for `len` bytes.
pub(crate) fn journal_len(len: u64) -> u64 {
    len.clamp(*JOURNAL_LENS.start(), *JOURNAL_LENS.end()).next_multiple_of(BLOCK as u64)
}

/// The journal of one session.
pub(crate) struct Journal {
    platform: Platform,
    /// Open for writes past the page cache, where the system allows that.
    file: File,
    /// For messages.
    path: PathBuf,
    seed: JournalSeed,
    /// The header that this session has yet to write. `None` once it is written.
    header: Mutex<Option<NextHeader>>,
    /// `true` if this session has found the journal longer than a new one.
    had_grown: bool,
    ring: Mutex<Ring>,
    /// The buffer in which each record is encoded.
    buffer: Mutex<Vec<u8>>,
}

/// A header that says that the session may have written records.
#[derive(Clone, Copy)]
pub(crate) struct NextHeader {
    pub header: Header,
    /// The block that it goes to.
    pub block: usize,
    /// `true` if the file was made by this session, so that nothing of it is durable but its name.
    pub is_first: bool,
}

/// The length in bytes up to which a journal grows by use.
#[derive(Clone, Copy)]
pub(crate) struct FullLen {
    /// For the home file's length at its opening.
    pub at_open: u64,
    /// The highest that it gets while the home file grows.
    pub ceiling: u64,
}

/// Returns the number of blocks of a journal of `len` bytes, without the headers.
fn blocks(len: u64) -> u64 {
    (len / BLOCK as u64).saturating_sub(HEADERS as u64)
}

/// Capacity in bytes above which the buffer is freed after a record.
const KEPT_BUFFER: usize = 4 << 20;

/// Most bytes that a growing journal writes in one call.
const FILL: u64 = 1 << 20;

/// The blocks of one record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    number: u64,
    start: u64,
    blocks: u64,
}

/// The blocks of the journal that are in use. Records ascend by number, and the last one is the
/// newest. Blocks are counted after the headers.
#[derive(Debug, Default)]
struct Ring {
    /// Number of blocks.
    all: u64,
    /// Number of blocks up to which the ring grows by use.
    most: u64,
    /// The highest number that `most` may get.
    ceiling: u64,
    needed: VecDeque<Place>,
}

impl Ring {
    /// Returns the start of a free run of `blocks`, after the newest record or from the beginning.
    fn room(&self, blocks: u64) -> Option<u64> {
        let all = self.all;
        let (Some(oldest), Some(newest)) = (self.needed.front(), self.needed.back()) else {
            return (blocks <= all).then_some(0);
        };
        let behind = if planted!(RecordOverNewest) { 0 } else { newest.start + newest.blocks };
        let fits = |start: u64, end: u64| (start + blocks <= end).then_some(start);
        if newest.start >= oldest.start {
            // The used blocks are one run: look after it, then before it.
            fits(behind, all).or_else(|| fits(0, oldest.start))
        } else {
            fits(behind, oldest.start)
        }
    }

    /// Returns the number of blocks that a base record needs past the end of the ring. Returns 0 if
    /// there is room for it next to the newest record.
    fn missing(&self, blocks: u64) -> u64 {
        let needed = self.needed.back().copied().into_iter().collect();
        let newest = Ring { needed, ..*self };
        if newest.room(blocks).is_some() { 0 } else { blocks }
    }

    /// Returns the number of blocks of the longest record with slices.
    fn longest(&self) -> u64 {
        self.all / 4
    }

    /// Returns the number of blocks that a growth by use adds for a record of `blocks`. The ring
    /// doubles until a quarter of it holds the record. Returns 0 if the ring has its full length,
    /// or would still be too short for the record.
    fn growth(&self, blocks: u64) -> u64 {
        if planted!(JournalNotGrown) {
            return 0;
        }
        let most = if planted!(JournalGrownPastLimit) { self.most * 4 } else { self.most };
        let mut all = self.all;
        loop {
            // The headers count: a journal of 64 KiB grows to 128 KiB.
            all = (all * 2 + HEADERS as u64).min(most);
            if blocks <= all / 4 {
                return all.saturating_sub(self.all);
            }
            if all >= most {
                return 0;
            }
        }
    }

    /// Raises the number of blocks up to which the ring grows to `wanted`, or to the ceiling, once
    /// it doubles.
    fn raise_most(&mut self, wanted: u64) {
        let wanted = wanted.min(self.ceiling);
        if wanted >= 2 * self.most || wanted == self.ceiling {
            self.most = self.most.max(wanted);
        }
    }

    fn taken(&self) -> u64 {
        self.needed.iter().map(|place| place.blocks).sum()
    }
}

impl Journal {
    /// Makes a journal of `len` bytes without a record of this session. `header` is written to its
    /// block before the first record.
    pub fn new(
        platform: Platform,
        (file, len, full): (File, u64, FullLen),
        path: PathBuf,
        seed: JournalSeed,
        header: NextHeader,
    ) -> Self {
        let (most, ceiling) = (blocks(full.at_open), blocks(full.ceiling));
        let ring = Ring { all: blocks(len), most, ceiling, needed: VecDeque::new() };
        let (ring, buffer) = (Mutex::new(ring), Mutex::new(Vec::new()));
        let (header, had_grown) = (Mutex::new(Some(header)), len > *JOURNAL_LENS.start());
        Journal { platform, file, path, seed, header, had_grown, ring, buffer }
    }

    /// Writes this session's header, unless it is written already. It says that records of earlier
    /// sessions may be overwritten from here on. An old superblock that is restored later is
    /// recognised as stale by it.
    fn write_header(&self) -> Result<()> {
        let mut header = self.header.lock();
        if let Some(next) = &*header {
            let (file, id, at) = (&self.file, FileId::Journal, (next.block * BLOCK) as u64);
            // Orders the journal before its first record, which waits for its own blocks only. No
            // sync has made a new journal durable yet, nor the length of a growth that a crash has
            // cut off.
            let is_new = next.is_first && !planted!(JournalNotSynced);
            if is_new || self.had_grown && !next.is_first && !planted!(FoundLengthNotSynced) {
                self.platform.sync_data(file, id).map_err(self.io(SYNC_FOR_A_POINT, at))?;
            }
            let mut buffer = self.buffer.lock();
            let bytes = aligned(&mut buffer, BLOCK);
            bytes.copy_from_slice(&next.header.encode());
            // Durable before the first record, which may overwrite one of an earlier session. And
            // before the floor that follows the record: from then on, a file without a header is
            // refused.
            unless!(
                JournalHeaderNotRenewed,
                self.platform
                    .write_durably(file, id, bytes, at)
                    .map_err(self.io(WRITE_A_POINT, at))?
            );
            // Not earlier: a loss of power could tear both. No sync waits for the copy, and no
            // point needs it. Past the page cache, the call itself waits for the disk.
            let at = ((next.block ^ 1) * BLOCK) as u64;
            bytes.copy_from_slice(&Header { is_copy: true, ..next.header }.encode());
            unless!(HeaderNotCopied, drop(self.platform.write_at(file, id, bytes, at)));
        }
        *header = None;
        Ok(())
    }

    /// Returns the open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Raises the full length to `wanted` bytes, or to the ceiling. Does so once it doubles: each
    /// growth is a sync.
    pub fn raise_full_len(&self, wanted: u64) {
        self.ring.lock().raise_most(blocks(wanted));
    }

    /// Returns `true` if a record with slices, of `len` bytes, has room. Such a record takes at
    /// most a quarter of the journal, so that one more always fits next to the newest one. The
    /// journal grows first, if that is what makes room and its full length is not reached. On a
    /// full disk it keeps its length, and a checkpoint makes room instead.
    pub fn make_room(&self, len: u64) -> bool {
        let blocks = len.div_ceil(BLOCK as u64);
        let mut ring = self.ring.lock();
        let has_room = |ring: &Ring| blocks <= ring.longest() && ring.room(blocks).is_some();
        if !has_room(&ring) {
            let growth = ring.growth(blocks);
            let _a_checkpoint_makes_room_instead = self.grow(&mut ring, growth);
        }
        has_room(&ring)
    }

    /// Returns `true` if a record with slices, of `len` bytes, has room after a checkpoint.
    pub fn fits(&self, len: u64) -> bool {
        len.div_ceil(BLOCK as u64) <= self.ring.lock().longest()
    }

    /// Makes sure that a base record of `len` bytes has room once both files are synced. Only the
    /// words of very many pages need this. The journal then grows past its full length, and keeps
    /// its length until it is opened again.
    ///
    /// # Errors
    /// [`Error::NoSpace`], or what the system says, or [`Error::TooLarge`]: nothing has happened.
    pub fn grow_for_base(&self, len: u64) -> Result<()> {
        let mut ring = self.ring.lock();
        let missing = ring.missing(len.div_ceil(BLOCK as u64));
        self.grow(&mut ring, missing)
    }

    /// Appends `blocks` of zeroes to the journal, durably. A record over written blocks changes
    /// neither the file's length nor its extents, and costs one barrier.
    ///
    /// # Errors
    /// As `grow_for_base`. The journal is then as it was.
    fn grow(&self, ring: &mut Ring, blocks: u64) -> Result<()> {
        if blocks == 0 {
            return Ok(());
        }
        let old = (ring.all + HEADERS as u64) * BLOCK as u64;
        let end = old + blocks * BLOCK as u64;
        let limit = *JOURNAL_LENS.end();
        if end > limit {
            return Err(Error::TooLarge { path: self.path().to_owned(), needed: end, limit });
        }
        if planted!(JournalLongerBeforeAllocated) {
            let longer = self.platform.set_file_len(&self.file, FileId::Journal, end);
            longer.map_err(self.io("change the length", end))?;
        }
        if planted!(JournalLongerBeforeFilled) {
            ring.all += blocks;
        }
        self.fill(old, end).inspect_err(|_| {
            // Gives back what was allocated. If that fails as well, the file has room without a
            // hole, which the next session uses.
            unless!(
                JournalLongerBeforeAllocated,
                drop(self.platform.set_file_len(&self.file, FileId::Journal, old))
            );
        })?;
        unless!(JournalLongerBeforeFilled, ring.all += blocks);
        Ok(())
    }

    /// Extends the file from `old` to `end` by zeroes, durably.
    fn fill(&self, old: u64, end: u64) -> Result<()> {
        let failed =
            |call| move |source| Error::io_of_range(call, self.path(), old, end - old, source);
        let (file, id) = (&self.file, FileId::Journal);
        // Allocating extends the file only as far as it succeeds, so the length never covers a
        // hole. The next session would take a hole for room, and fail when a record is due.
        let allocated = self.platform.allocate(file, id, None, old, end - old);
        allocated.map_err(failed("allocate"))?;
        let mut buffer = Vec::new();
        let zeroes = aligned(&mut buffer, (end - old).min(FILL) as usize);
        for at in (old..end).step_by(zeroes.len()) {
            let piece = &zeroes[..(end - at).min(FILL) as usize];
            self.platform.write_at(file, id, piece, at).map_err(failed("write"))?;
        }
        // Orders the zeroes and the longer file before the first record there. From then on a
        // record costs one barrier of its own bytes.
        self.platform.sync_data(file, id).map_err(failed("sync"))
    }

    /// Returns the journal's length in bytes.
    pub fn len(&self) -> u64 {
        (self.ring.lock().all + HEADERS as u64) * BLOCK as u64
    }

    /// Returns the length in bytes up to which the journal grows by use.
    pub fn longest_len(&self) -> u64 {
        (self.ring.lock().most + HEADERS as u64) * BLOCK as u64
    }

    /// Returns the journal's path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of the newest record, or 0 if there is none.
    pub fn newest(&self) -> u64 {
        self.ring.lock().needed.back().map_or(0, |place| place.number)
    }

    /// Returns `true` if a checkpoint is due: the journal has its full length, and more than half
    /// of it is in use. A shorter journal grows instead, once a record finds no room.
    pub fn is_half_full(&self) -> bool {
        let ring = self.ring.lock();
        ring.all >= ring.most && ring.taken() * 2 > ring.all
    }

    /// Writes the record after the newest one and waits until it is durable. The caller has made
    /// sure that there is room. `append_slices` appends the record's slices, of `slices` bytes
    /// together.
    pub fn append(
        &self,
        record: &Head<'_>,
        slices: usize,
        append_slices: impl FnOnce(&mut Vec<u8>),
    ) -> Result<()> {
        self.write_header()?;
        let mut buffer = self.buffer.lock();
        let bytes = record.encode(self.seed, slices, &mut buffer, append_slices);
        let blocks = (bytes.len() / BLOCK) as u64;
        let room = self.ring.lock().room(blocks);
        let Some(start) = room else {
            // Not reached, because callers check for room. An error is safer than overwriting a
            // record that is needed.
            return Err(self.io("find room in", 0)(io::ErrorKind::StorageFull.into()));
        };
        let at = (HEADERS as u64 + start) * BLOCK as u64;
        // The barrier: from here on, recovery after a power loss returns to this point.
        if planted!(RecordNotDurable) {
            self.platform
                .write_at(&self.file, FileId::Journal, bytes, at)
                .map_err(self.io(WRITE_A_POINT, at))?;
        }
        unless!(
            RecordNotDurable,
            self.platform
                .write_durably(&self.file, FileId::Journal, bytes, at)
                .map_err(self.io(WRITE_A_POINT, at))?
        );
        if buffer.capacity() > KEPT_BUFFER {
            *buffer = Vec::new();
        }
        self.ring.lock().needed.push_back(Place { number: record.number, start, blocks });
        Ok(())
    }

    /// Forgets every record before `number` except the newest. What those records cover is durable.
    pub fn forget_before(&self, number: u64) {
        let mut ring = self.ring.lock();
        let kept = if planted!(NewestForgotten) { 0 } else { 1 };
        while ring.needed.len() > kept && ring.needed.front().is_some_and(|p| p.number < number) {
            ring.needed.pop_front();
        }
    }

    fn io(&self, call: &'static str, at: u64) -> impl FnOnce(io::Error) -> Error + use<> {
        let path = self.path().to_owned();
        move |e| Error::io_at(call, &path, at, e)
    }
}

/// Returns `len` zeroes of the buffer, at an address that is a multiple of [`BLOCK`], so that they
/// can be written past the page cache.
fn aligned(buffer: &mut Vec<u8>, len: usize) -> &mut [u8] {
    buffer.clear();
    buffer.resize(len + BLOCK, 0);
    let start = buffer.as_ptr().addr().wrapping_neg() % BLOCK;
    &mut buffer[start..start + len]
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;

    const BLOCKS: u64 = 1024;
    const LONGEST: u64 = 256 * BLOCK as u64;

    fn ring(places: &[(u64, u64)]) -> Ring {
        let needed = places.iter().zip(1..);
        Ring {
            all: BLOCKS,
            most: BLOCKS,
            ceiling: BLOCKS,
            needed: needed
                .map(|(&(start, blocks), number)| Place { number, start, blocks })
                .collect(),
        }
    }

    #[test]
    fn a_record_goes_behind_the_newest_and_never_over_one_that_is_needed() {
        assert_eq!(ring(&[]).room(5), Some(0));
        assert_eq!(ring(&[(0, 3)]).room(5), Some(3));
        assert_eq!(ring(&[(0, 3), (3, 1)]).room(BLOCKS), None);
        // At the end of the ring: from the beginning, up to the oldest record that is needed.
        assert_eq!(ring(&[(10, 3), (13, BLOCKS - 14)]).room(1), Some(BLOCKS - 1));
        assert_eq!(ring(&[(10, 3), (13, BLOCKS - 14)]).room(10), Some(0));
        assert_eq!(ring(&[(10, 3), (13, BLOCKS - 14)]).room(11), None);
        assert_eq!(ring(&[(10, 3), (BLOCKS - 5, 5), (0, 4)]).room(6), Some(4));
        assert_eq!(ring(&[(10, 3), (BLOCKS - 5, 5), (0, 4)]).room(7), None);
    }

    #[test]
    fn a_long_base_goes_behind_the_end_unless_it_fits_beside_the_newest() {
        let ring = ring(&[(0, 900), (900, 40)]);
        // When the base record is written, all records but the newest are forgotten.
        assert_eq!((ring.missing(900), ring.missing(901)), (0, 901));
    }

    #[test]
    fn a_ring_doubles_up_to_its_full_length_or_until_the_record_fits() {
        let of = |all, most, blocks| Ring { all, most, ..Ring::default() }.growth(blocks);
        // Journals of 64 KiB to 1 MiB, with two blocks of headers.
        assert_eq!((of(14, 254, 1), of(30, 254, 1), of(200, 254, 1)), (16, 32, 54));
        assert_eq!((of(14, 254, 20), of(14, 254, 63), of(14, 254, 64)), (112, 240, 0));
        assert_eq!((of(254, 254, 1), of(14, 14, 1), of(400, 254, 1)), (0, 0, 0));
    }

    #[test]
    fn the_full_length_rises_once_it_doubles_and_never_falls() {
        let ring = |most, ceiling| Ring { most, ceiling, ..Ring::default() };
        let raised = |mut ring: Ring, wanted| {
            ring.raise_most(wanted);
            ring.most
        };
        assert_eq!([19, 20, 29, 30, 31].map(|n| raised(ring(10, 30), n)), [10, 20, 29, 30, 30]);
        assert_eq!(raised(ring(20, 30), 29), 20);
        assert_eq!([5, 50].map(|n| raised(ring(40, 40), n)), [40, 40]);
    }

    #[test]
    fn any_row_of_records_stays_apart() {
        let mut rng = fastrand_like(7);
        let mut now = ring(&[]);
        for number in 1..20_000 {
            let blocks = 1 + rng() % (LONGEST / BLOCK as u64);
            match now.room(blocks) {
                Some(start) => {
                    assert!(start + blocks <= BLOCKS);
                    for p in &now.needed {
                        assert!(start + blocks <= p.start || p.start + p.blocks <= start);
                    }
                    now.needed.push_back(Place { number, start, blocks });
                }
                // A checkpoint always makes room.
                None => {
                    while now.needed.len() > 1 {
                        now.needed.pop_front();
                    }
                    assert!(now.room(LONGEST / BLOCK as u64).is_some());
                }
            }
        }
    }

    fn fastrand_like(mut seed: u64) -> impl FnMut() -> u64 {
        move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed >> 33
        }
    }
}
