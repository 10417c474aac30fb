//! Where does the next record go, and which records are still needed?
//!
//! Owns: the open journal and its ring of blocks. Invariants (those of `docs/model/durable_points.py`):
//! - a record's place is used again only when a later checkpoint, or base, has made everything durable
//!   in its own place that the record vouches for;
//! - the newest record is never written over, so that a torn write leaves it;
//! - records lie in one piece, in blocks of their own.
//!
//! One writer at a time (the leader of a sync); who checkpoints forgets records meanwhile. May import
//! `format`, `platform`.

use crate::error::{Error, Result, WRITE_A_POINT};
use crate::format::journal::{BLOCK, HEADERS, Head, Header, JournalSeed};
use crate::mutant::{planted, unless};
use crate::platform::{File, FileId, Name, Platform};
use crate::primitive::Mutex;
use std::collections::VecDeque;
use std::io;
use std::ops::RangeInclusive;
use std::path::Path;

/// Bytes of a journal unless chosen: room for a thousand small durable points between two checkpoints,
/// and for one of 1 MiB, which is a record of a little more.
pub(crate) const JOURNAL_LEN: u64 = 8 << 20;
/// Bytes of a journal at least, and at most.
pub(crate) const JOURNAL_LENS: RangeInclusive<u64> = 64 << 10..=1 << 30;

/// The length of a journal for which `len` bytes were asked.
pub(crate) fn journal_len(len: u64) -> u64 {
    len.clamp(*JOURNAL_LENS.start(), *JOURNAL_LENS.end()).next_multiple_of(BLOCK as u64)
}

/// The journal of one session.
pub(crate) struct Journal {
    platform: Platform,
    file: File,
    /// The same file, written past the page cache, where that can be done.
    direct: Option<File>,
    name: Name,
    seed: JournalSeed,
    /// The header that says that this session may have written records, until it is written, and its
    /// block.
    header: Mutex<Option<(Header, usize)>>,
    ring: Mutex<Ring>,
    /// Where records are put together, one after the other.
    buffer: Mutex<Vec<u8>>,
}

/// A buffer that has grown longer than this is given back.
const KEPT_BUFFER: usize = 4 << 20;

/// A record's blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    number: u64,
    start: u64,
    blocks: u64,
}

/// Which blocks are taken. Ascending by number; the last one is the newest record. Counted behind the
/// headers.
#[derive(Debug, Default)]
struct Ring {
    /// Blocks that there are.
    all: u64,
    needed: VecDeque<Place>,
}

impl Ring {
    /// Room for `blocks` behind the newest record, or from the beginning.
    fn room(&self, blocks: u64) -> Option<u64> {
        let all = self.all;
        let (Some(oldest), Some(newest)) = (self.needed.front(), self.needed.back()) else {
            return (blocks <= all).then_some(0);
        };
        let behind = if planted!(RecordOverNewest) { 0 } else { newest.start + newest.blocks };
        let fits = |start: u64, end: u64| (start + blocks <= end).then_some(start);
        if newest.start >= oldest.start {
            // Taken is one piece: behind it, or before it.
            fits(behind, all).or_else(|| fits(0, oldest.start))
        } else {
            fits(behind, oldest.start)
        }
    }

    /// The blocks that a base needs behind the end of the ring, where it has no room beside the newest
    /// record.
    fn missing(&self, blocks: u64) -> u64 {
        let newest =
            Ring { all: self.all, needed: self.needed.back().copied().into_iter().collect() };
        if newest.room(blocks).is_some() { 0 } else { blocks }
    }

    fn taken(&self) -> u64 {
        self.needed.iter().map(|place| place.blocks).sum()
    }
}

impl Journal {
    /// A journal of `len` bytes without a record of this session. `header` is written, to its block, before
    /// the first one.
    pub fn new(
        platform: Platform,
        (file, direct, len): (File, Option<File>, u64),
        name: Name,
        seed: JournalSeed,
        header: (Header, usize),
    ) -> Self {
        let all = (len / BLOCK as u64).saturating_sub(HEADERS as u64);
        let ring = Mutex::new(Ring { all, needed: VecDeque::new() });
        let (header, buffer) = (Mutex::new(Some(header)), Mutex::new(Vec::new()));
        Journal { platform, file, direct, name, seed, header, ring, buffer }
    }

    /// Says in the header that records of the sessions before may be written over from here on. A
    /// superblock of theirs that were restored later finds out by it.
    fn write_header(&self) -> Result<()> {
        let mut header = self.header.lock();
        if let Some((says, block)) = &*header {
            let at = (block * BLOCK) as u64;
            // Durable before the first record, which may go over one of an earlier session.
            unless!(
                JournalHeaderNotRenewed,
                self.platform
                    .write_durably((&self.file, None), FileId::Journal, &says.encode(), at)
                    .map_err(self.io(WRITE_A_POINT, at))?
            );
        }
        *header = None;
        Ok(())
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Its name.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Bytes of a record with slices at most, so that one more always fits beside the newest.
    pub fn longest(&self) -> u64 {
        self.ring.lock().all / 4 * BLOCK as u64
    }

    /// Makes sure that a base of `len` bytes has room once both files are synced: the words of very many
    /// pages. The journal grows for it, and stays so until it is opened again.
    ///
    /// # Errors
    /// [`Error::NoSpace`], or what the system says, or [`Error::TooLarge`]: nothing has happened.
    pub fn grow_for_base(&self, len: u64) -> Result<()> {
        let mut ring = self.ring.lock();
        let missing = ring.missing(len.div_ceil(BLOCK as u64)) * BLOCK as u64;
        if missing == 0 {
            return Ok(());
        }
        let old = (ring.all + HEADERS as u64) * BLOCK as u64;
        let limit = *JOURNAL_LENS.end();
        if old + missing > limit {
            return Err(Error::TooLarge {
                path: self.path().to_owned(),
                needed: old + missing,
                limit,
            });
        }
        if planted!(JournalLongerBeforeAllocated) {
            let longer = self.platform.set_file_len(&self.file, FileId::Journal, old + missing);
            longer.map_err(self.io("change the length", old + missing))?;
        }
        // Reserving makes the file longer as far as it gets, so no length ever covers a hole: the next
        // session would take that for room, and fail when a record is due.
        let grown = self.platform.allocate(&self.file, FileId::Journal, None, old, missing);
        grown.map_err(|source| {
            // What was reserved is given back. If even that fails, it is room without a hole, which the
            // next session uses.
            unless!(
                JournalLongerBeforeAllocated,
                drop(self.platform.set_file_len(&self.file, FileId::Journal, old))
            );
            Error::io_of_range("allocate", self.path(), old, missing, source)
        })?;
        ring.all += missing / BLOCK as u64;
        Ok(())
    }

    /// Its path, for messages.
    pub fn path(&self) -> &Path {
        self.name.path()
    }

    /// The number of the newest record; 0 = none.
    pub fn newest(&self) -> u64 {
        self.ring.lock().needed.back().map_or(0, |place| place.number)
    }

    /// Whether a checkpoint is due: half of the journal is taken.
    pub fn is_half_full(&self) -> bool {
        let ring = self.ring.lock();
        ring.taken() * 2 > ring.all
    }

    /// Whether a record of so many bytes has room.
    pub fn has_room(&self, len: u64) -> bool {
        self.ring.lock().room(len.div_ceil(BLOCK as u64)).is_some()
    }

    /// Writes the record behind the newest one and waits until it is durable. There is room.
    /// `append_slices` appends its slices, of so many bytes together.
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
            // Not reached: who appends has asked. Refused rather than written over what is needed.
            return Err(self.io("find room in", 0)(io::ErrorKind::StorageFull.into()));
        };
        let at = (HEADERS as u64 + start) * BLOCK as u64;
        // The barrier: from here on a loss of power goes back to this point.
        if planted!(RecordNotDurable) {
            self.platform
                .write_at(&self.file, FileId::Journal, bytes, at)
                .map_err(self.io(WRITE_A_POINT, at))?;
        }
        unless!(
            RecordNotDurable,
            self.platform
                .write_durably((&self.file, self.direct.as_ref()), FileId::Journal, bytes, at)
                .map_err(self.io(WRITE_A_POINT, at))?
        );
        if buffer.capacity() > KEPT_BUFFER {
            *buffer = Vec::new();
        }
        self.ring.lock().needed.push_back(Place { number: record.number, start, blocks });
        Ok(())
    }

    /// Forgets every record before `number`, but the newest: what they vouch for is durable.
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

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;

    const BLOCKS: u64 = 1024;
    const LONGEST: u64 = 256 * BLOCK as u64;

    fn ring(places: &[(u64, u64)]) -> Ring {
        let needed = places.iter().zip(1..);
        Ring {
            all: BLOCKS,
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
        // At the end: from the beginning, as far as the oldest that is needed.
        assert_eq!(ring(&[(10, 3), (13, BLOCKS - 14)]).room(1), Some(BLOCKS - 1));
        assert_eq!(ring(&[(10, 3), (13, BLOCKS - 14)]).room(10), Some(0));
        assert_eq!(ring(&[(10, 3), (13, BLOCKS - 14)]).room(11), None);
        assert_eq!(ring(&[(10, 3), (BLOCKS - 5, 5), (0, 4)]).room(6), Some(4));
        assert_eq!(ring(&[(10, 3), (BLOCKS - 5, 5), (0, 4)]).room(7), None);
    }

    #[test]
    fn a_long_base_goes_behind_the_end_unless_it_fits_beside_the_newest() {
        let ring = ring(&[(0, 900), (900, 40)]);
        // All but the newest is forgotten when it is written.
        assert_eq!((ring.missing(900), ring.missing(901)), (0, 901));
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
