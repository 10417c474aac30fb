//! The pages that a transaction has written and not yet published, over the file's.
//!
//! SQLite writes whole pages, of one size. An overlay keeps them by offset in units of that size,
//! and makes the units smaller when a smaller write comes. Publishing compares them with the file,
//! and writes just the cache lines that differ. So a rollback, which writes the old pages back,
//! publishes nothing, and needs no space on a full disk.
//!
//! May import `empty`, `failure` and `spill`.

use crate::empty;
use crate::failure::{Code, Failure, Result};
use crate::spill::Spill;
use atomic_mmap::AtomicMappedFile;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

/// The smallest unit in bytes: SQLite's smallest page.
const SMALLEST: u64 = 512;
/// The largest unit in bytes: SQLite's largest page.
const LARGEST: u64 = 65536;
/// The granularity of the comparison, in bytes: the engine's slice.
const LINE: usize = 64;

/// A transaction's changes of one file.
#[derive(Debug)]
pub(crate) struct Overlay {
    /// The file's length after the transaction, in bytes.
    len: u64,
    /// From here on, the bytes of the file do not count: the transaction has cut them off.
    base_len: u64,
    /// The size of all units, in bytes.
    unit: u64,
    /// The place in `bytes` of each unit, by its offset in the file.
    units: BTreeMap<u64, u64>,
    bytes: Spill,
    /// `true` from [`abandon`](Self::abandon) on.
    is_abandoned: bool,
}

/// Bytes to write: an offset in the file, and their place in the overlay's bytes.
type Change = (u64, Range<usize>);

impl Overlay {
    /// Makes an overlay without changes, over a file of `len` bytes.
    pub fn new(len: u64, folder: &Path, budget: u64) -> Self {
        let bytes = Spill::new(folder, budget);
        let units = BTreeMap::new();
        Overlay { len, base_len: len, unit: LARGEST, units, bytes, is_abandoned: false }
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns `true` if the pages lie in a temporary file.
    pub fn is_on_disk(&self) -> bool {
        self.bytes.is_on_disk()
    }

    /// Returns `true` if nothing was written or cut off.
    pub fn is_empty(&self, file: &AtomicMappedFile) -> bool {
        self.units.is_empty() && self.len == file.len() && self.base_len == self.len
    }

    /// Forgets all changes of a transaction that has failed and is not published. SQLite rolls it
    /// back by writes of the old pages, but for those that were free: to publish these would take
    /// space, which a full disk does not have.
    pub fn abandon(&mut self, file: &AtomicMappedFile) {
        self.units.clear();
        self.bytes.clear();
        (self.len, self.base_len) = (file.len(), file.len());
        self.is_abandoned = true;
    }

    /// Reserves space for `len` bytes of pages, as [`Spill::reserve`] does.
    pub fn reserve(&mut self, len: u64) -> Result<()> {
        self.bytes.reserve(len)
    }

    /// Writes `bytes` at `offset`, and makes the file longer if they end past its end.
    pub fn write(&mut self, file: &AtomicMappedFile, bytes: &[u8], offset: u64) -> Result<()> {
        if self.is_abandoned {
            return self.write_abandoned(file, bytes, offset);
        }
        let end = offset + bytes.len() as u64;
        let (start, padded) = (offset / SMALLEST * SMALLEST, end.next_multiple_of(SMALLEST));
        if (start, padded) == (offset, end) {
            self.write_aligned(file, bytes, offset)?;
        } else {
            // Not a whole page: SQLite does not do that.
            let mut whole = vec![0; (padded - start) as usize];
            self.read(file, &mut whole, start)?;
            whole[(offset - start) as usize..][..bytes.len()].copy_from_slice(bytes);
            self.write_aligned(file, &whole, start)?;
        }
        self.len = self.len.max(end);
        Ok(())
    }

    /// Takes a page of a rollback, which is as before unless it is free. A first page that is not
    /// would be one of a commit.
    fn write_abandoned(&self, file: &AtomicMappedFile, bytes: &[u8], offset: u64) -> Result<()> {
        if offset > 0 || self.is_as_before(file, bytes, offset)? {
            return Ok(());
        }
        let message = "the transaction has failed before, and was not rolled back";
        Err(Failure::new(Code::IOERR_WRITE, message))
    }

    fn write_aligned(&mut self, file: &AtomicMappedFile, bytes: &[u8], offset: u64) -> Result<()> {
        let alignment = 1 << (offset | bytes.len() as u64).trailing_zeros().min(16);
        if alignment < self.unit {
            self.split_units(alignment);
        }
        let unit = self.unit as usize;
        for (at, bytes) in (offset..).step_by(unit).zip(bytes.chunks(unit)) {
            let known = self.units.get(&at).copied();
            let place = known.unwrap_or(self.bytes.len());
            // A rollback also brings pages that are not here. They are as before: it takes no space
            // for them, which a full disk would not give.
            if known.is_none()
                && self.bytes.needs_disk(place + self.unit)
                && self.is_as_before(file, bytes, at)?
            {
                continue;
            }
            self.bytes.write(bytes, place)?;
            // After the write, which may fail: no other unit may get this place.
            self.units.insert(at, place);
        }
        Ok(())
    }

    /// Returns `true` if `bytes` are those of the file at `offset`.
    fn is_as_before(&self, file: &AtomicMappedFile, bytes: &[u8], offset: u64) -> Result<bool> {
        let mut old = vec![0; bytes.len()];
        self.read_base(file, &mut old, offset)?;
        Ok(old == bytes)
    }

    fn split_units(&mut self, unit: u64) {
        let parts = self.unit / unit;
        let old = std::mem::take(&mut self.units);
        let split = |(at, place)| (0..parts).map(move |n| (at + n * unit, place + n * unit));
        self.units = old.into_iter().flat_map(split).collect();
        self.unit = unit;
    }

    /// Makes the file `len` bytes long.
    pub fn truncate(&mut self, len: u64) -> Result<()> {
        if self.is_abandoned {
            return Ok(());
        }
        self.units.split_off(&len);
        if let Some((&at, &place)) = self.units.last_key_value()
            && at + self.unit > len
        {
            // The file may become longer again, by zeroes.
            self.bytes.write(&vec![0; (at + self.unit - len) as usize], place + len - at)?;
        }
        self.base_len = self.base_len.min(len);
        self.len = len;
        Ok(())
    }

    /// Fills `to` with the bytes at `offset`. They are zero past the end.
    pub fn read(&self, file: &AtomicMappedFile, to: &mut [u8], offset: u64) -> Result<()> {
        self.read_base(file, to, offset)?;
        let end = offset + to.len() as u64;
        for (&at, &place) in self.units.range(offset.saturating_sub(self.unit - 1)..end) {
            let (first, last) = (at.max(offset), (at + self.unit).min(end));
            let part = &mut to[(first - offset) as usize..(last - offset) as usize];
            self.bytes.read(part, place + first - at)?;
        }
        Ok(())
    }

    /// Fills `to` with the file's bytes, as far as they count, and with zeroes.
    fn read_base(&self, file: &AtomicMappedFile, to: &mut [u8], offset: u64) -> Result<()> {
        let count = self.base_len.saturating_sub(offset).min(to.len() as u64) as usize;
        let (old, new) = to.split_at_mut(count);
        new.fill(0);
        match count {
            0 => Ok(()),
            _ => file.read_at(old, offset).map_err(|e| Failure::of(&e, Code::IOERR_READ)),
        }
    }

    /// Publishes all changes. Length and bytes are one atomic operation of the file.
    ///
    /// An overlay in a temporary file changes the length by an operation of its own, before a
    /// growth or after a shrink. SQLite ignores what a file has past the number of pages in its
    /// header, so a crash between the two is harmless. An empty file gets the page of an empty
    /// database first. Earlier transactions become durable before the pages are written.
    ///
    /// Before the first store it calls `keep` with the ranges of the file that will change or go.
    ///
    /// An error means that nothing has changed, except perhaps that harmless length or page.
    pub fn publish(
        &self,
        file: &AtomicMappedFile,
        keep: impl FnOnce(&[Range<u64>]) -> Result<()>,
    ) -> Result<()> {
        let changes = self.changes(file)?;
        let old = file.len();
        if changes.is_empty() && self.len == old {
            return Ok(());
        }
        let range = |(at, bytes): &Change| *at..*at + bytes.len() as u64;
        let cut = (self.base_len < old).then_some(self.base_len..old);
        let ranges: Vec<Range<u64>> = changes.iter().map(range).chain(cut).collect();
        keep(&ranges)?;
        let result = self.bytes.with_bytes(|bytes| {
            let parts = changes.iter().map(|(at, range)| (*at, &bytes[range.clone()]));
            let parts: Vec<(u64, &[u8])> = parts.collect();
            self.publish_parts(file, &parts)
        })?;
        result.map_err(|error| Failure::of(&error, Code::IOERR_WRITE))
    }

    fn publish_parts(
        &self,
        file: &AtomicMappedFile,
        parts: &[(u64, &[u8])],
    ) -> atomic_mmap::Result<()> {
        let (old, new) = (file.len(), self.len);
        let is_cut = self.base_len < old.min(new);
        if !is_cut && new == old {
            return file.write_many(parts);
        }
        if !is_cut && new < old && parts.is_empty() {
            return shorten(file, new);
        }
        // SQLite takes a file of one byte for an empty one.
        if !is_cut && self.is_on_disk() && (old > 1 || self.begin_file(file)?) {
            let written = file.set_len(old.max(new)).and_then(|()| {
                // Slices that have changed since the last durable point have no free slot. The
                // engine would take memory for all bytes of an operation that has some.
                file.sync()?;
                file.write_many(parts)
            });
            return match written {
                Ok(()) => shorten(file, new),
                failed => shorten(file, old).and(failed),
            };
        }
        file.transact(|tx| {
            tx.set_len(self.base_len)?;
            tx.set_len(new)?;
            parts.iter().try_for_each(|&(offset, bytes)| tx.write_at(bytes, offset))
        })
    }

    /// Makes an empty file an empty database, like the one that this overlay makes of it. Returns
    /// `false` if the overlay is no database.
    fn begin_file(&self, file: &AtomicMappedFile) -> atomic_mmap::Result<bool> {
        let mut header = [0; empty::HEADER];
        if self.read(file, &mut header, 0).is_err() {
            return Ok(false);
        }
        let Some(page) = empty::page_like(&header) else { return Ok(false) };
        file.replace(&page)?;
        Ok(true)
    }

    /// Returns what differs from the file, in the order of offsets.
    fn changes(&self, file: &AtomicMappedFile) -> Result<Vec<Change>> {
        let mut changes: Vec<Change> = Vec::new();
        let unit = self.unit as usize;
        let (mut new, mut old) = (vec![0; unit], vec![0; unit]);
        for (&at, &place) in self.units.range(..self.len) {
            let len = (self.len - at).min(self.unit) as usize;
            let is_new = at >= self.base_len;
            if !is_new {
                self.bytes.read(&mut new, place)?;
                self.read_base(file, &mut old, at)?;
            }
            let lines = (0..len).step_by(LINE).map(|start| start..(start + LINE).min(len));
            let differ = |line: &Range<usize>| is_new || new[line.clone()] != old[line.clone()];
            if is_new {
                push(&mut changes, at, place as usize..place as usize + len);
                continue;
            }
            for line in lines.filter(differ) {
                let from = place as usize + line.start;
                push(&mut changes, at + line.start as u64, from..from + line.len());
            }
        }
        Ok(changes)
    }
}

/// Makes the file `len` bytes long, if it is longer and the disk has space for the operation.
/// SQLite ignores what a file has past its last page. So a full disk fails neither a commit that is
/// complete but for that, nor the rollback of a transaction that had made the file longer.
fn shorten(file: &AtomicMappedFile, len: u64) -> atomic_mmap::Result<()> {
    if len >= file.len() {
        return Ok(());
    }
    match file.set_len(len) {
        Err(atomic_mmap::Error::NoSpace { .. }) => Ok(()),
        result => result,
    }
}

/// Adds a change, as part of the last one if it continues that.
fn push(changes: &mut Vec<Change>, at: u64, range: Range<usize>) {
    match changes.last_mut() {
        Some((start, last)) if *start + last.len() as u64 == at && last.end == range.start => {
            last.end = range.end;
        }
        _ => changes.push((at, range)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atomic_mmap::Medium;

    fn read(overlay: &Overlay, file: &AtomicMappedFile) -> Vec<u8> {
        let mut bytes = vec![9; overlay.len() as usize];
        overlay.read(file, &mut bytes, 0).expect("read");
        bytes
    }

    /// Random writes and cuts, of whole pages and not, on a file that several overlays change.
    #[test]
    fn an_overlay_is_what_a_vector_would_be_before_and_after_publishing() {
        let folder = tempfile::tempdir().expect("a folder");
        for budget in [1 << 20, 20_000] {
            let options = AtomicMappedFile::options().create(true).medium(Medium::Ram);
            let path = folder.path().join(format!("{budget}"));
            let file = options.open(path).expect("open");
            let mut model = Vec::new();
            let random = &mut fastrand::Rng::with_seed(budget);
            for round in 0..60 {
                let mut overlay = Overlay::new(file.len(), folder.path(), budget);
                let before = model.clone();
                let pages = [512, 1024, 4096, 65536];
                let page = *random.choice(&pages).expect("a size") as usize;
                for _ in 0..random.usize(..12) {
                    let offset = random.usize(..30) * page % 200_000;
                    let (offset, len) = match random.u8(..) {
                        0..30 => {
                            overlay.truncate(offset as u64).expect("cut");
                            model.resize(offset, 0);
                            continue;
                        }
                        30..50 => (offset + random.usize(..page), random.usize(1..page)),
                        _ => (offset / page * page, page),
                    };
                    let bytes: Vec<u8> = (0..len).map(|_| random.u8(..4)).collect();
                    overlay.write(&file, &bytes, offset as u64).expect("write");
                    model.resize(model.len().max(offset + len), 0);
                    model[offset..offset + len].copy_from_slice(&bytes);
                }
                assert!(read(&overlay, &file) == model, "round {round}");
                if random.bool() {
                    overlay.publish(&file, |_| Ok(())).expect("publish");
                    assert!(file.read_vec().expect("read") == model, "round {round}");
                } else {
                    model = before;
                    assert!(file.read_vec().expect("read") == model, "round {round}");
                }
            }
        }
    }

    /// The engine keeps the bytes of a redo record in memory.
    #[test]
    fn pages_on_disk_are_published_without_a_redo_record() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = AtomicMappedFile::options().create(true).medium(Medium::PageCache);
        let file = options.open(folder.path().join("x")).expect("open");
        for (n, budget) in [(1, 1 << 20), (2, 0), (3, 0)] {
            let mut overlay = Overlay::new(file.len(), folder.path(), budget);
            let page: Vec<u8> = [n; 4096].to_vec();
            for at in 0..8 * u64::from(n) {
                overlay.write(&file, &page, at * 4096).expect("write");
            }
            let before = file.stats().redo_writes;
            overlay.publish(&file, |_| Ok(())).expect("publish");
            assert_eq!(overlay.is_on_disk(), budget == 0);
            assert!(budget > 0 || file.stats().redo_writes == before, "a redo record");
        }
    }

    #[test]
    fn a_write_that_finds_no_space_leaves_the_other_pages() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = AtomicMappedFile::options().create(true).len(8192).medium(Medium::Ram);
        let file = options.open(folder.path().join("x")).expect("open");
        let mut overlay = Overlay::new(8192, &folder.path().join("missing"), 4096);
        overlay.write(&file, &[1; 4096], 0).expect("in memory");
        for offset in [4096, 8192] {
            let failed = overlay.write(&file, &[2; 4096], offset);
            assert_eq!(failed.expect_err("no folder").code, Code::IOERR_WRITE);
        }
        overlay.write(&file, &[3; 4096], 0).expect("in its place");
        let expected: Vec<u8> = [[3; 4096], [0; 4096]].concat();
        assert!(read(&overlay, &file) == expected);
        overlay.publish(&file, |_| Ok(())).expect("publish");
        assert!(file.read_vec().expect("read") == expected);
    }

    /// A crash before the pages of its first transaction leaves an empty database.
    #[test]
    fn a_file_of_one_byte_is_begun_like_an_empty_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let page = empty::page_like(&{
            let mut header = [0; empty::HEADER];
            header[..18].copy_from_slice(b"SQLite format 3\0\x10\0");
            header
        });
        for len in [0, 1] {
            let options = AtomicMappedFile::options().create(true).len(len).medium(Medium::Ram);
            let file = options.open(folder.path().join(len.to_string())).expect("open");
            let mut overlay = Overlay::new(len, folder.path(), 0);
            overlay.write(&file, page.as_ref().expect("a page"), 0).expect("write");
            overlay.write(&file, &[1; 4096], 4096).expect("write");
            let before = file.stats().bytes_asked;
            overlay.publish(&file, |_| Ok(())).expect("publish");
            assert_eq!(file.len(), 8192);
            // The page of an empty database, and the second page of this one.
            assert!(file.stats().bytes_asked - before >= 2 * 4096, "from {len} bytes");
        }
    }

    /// A rollback brings pages that had no place when the disk became full.
    #[test]
    fn pages_that_are_as_before_need_no_space() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = AtomicMappedFile::options().create(true).len(16384).medium(Medium::Ram);
        let file = options.open(folder.path().join("x")).expect("open");
        file.write_at(&[5; 16384], 0).expect("write");
        let mut overlay = Overlay::new(16384, &folder.path().join("missing"), 4096);
        overlay.write(&file, &[1; 4096], 4096).expect("in memory");
        assert!(overlay.write(&file, &[1; 4096], 8192).is_err(), "no folder");
        for offset in [0, 4096, 8192, 12288] {
            overlay.write(&file, &[5; 4096], offset).expect("without space");
        }
        assert!(read(&overlay, &file) == [5; 16384]);
        overlay.truncate(8192).expect("cut");
        assert!(overlay.write(&file, &[5; 4096], 8192).is_err(), "the file's bytes do not count");
        overlay.publish(&file, |_| Ok(())).expect("publish");
        assert!(file.read_vec().expect("read") == [5; 8192]);
    }

    /// A rollback brings old pages, and free ones with any bytes. A commit changes the first page.
    #[test]
    fn an_abandoned_overlay_takes_a_rollback_and_no_commit() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = AtomicMappedFile::options().create(true).len(8192).medium(Medium::Ram);
        let file = options.open(folder.path().join("x")).expect("open");
        let mut overlay = Overlay::new(8192, folder.path(), 0);
        overlay.write(&file, &[1; 4096], 8192).expect("write");
        overlay.abandon(&file);
        assert!(read(&overlay, &file) == [0; 8192]);
        overlay.truncate(4096).expect("a rollback");
        overlay.write(&file, &[0; 4096], 0).expect("a rollback");
        overlay.write(&file, &[2; 4096], 4096).expect("a free page");
        assert!(overlay.write(&file, &[1; 4096], 0).is_err(), "a commit");
        overlay.publish(&file, |_| Ok(())).expect("publish");
        assert!(file.read_vec().expect("read") == [0; 8192]);
    }

    #[test]
    fn pages_that_are_as_before_are_not_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = AtomicMappedFile::options().create(true).len(8192).medium(Medium::Ram);
        let file = options.open(folder.path().join("x")).expect("open");
        let mut overlay = Overlay::new(8192, folder.path(), 1 << 20);
        let mut page = vec![0; 4096];
        overlay.write(&file, &page, 0).expect("write");
        overlay.publish(&file, |_| Ok(())).expect("publish");
        assert_eq!(file.stats().bytes_asked, 0);
        page[100] = 1;
        overlay.write(&file, &page, 4096).expect("write");
        overlay.publish(&file, |_| Ok(())).expect("publish");
        assert_eq!(file.stats().bytes_asked, 64);
    }
}
