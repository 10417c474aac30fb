//! Shared writable mappings of chosen files: private memory, and the publication of its changes.
//!
//! A region begins with the bytes of its file. The program stores to the memory, and the file has
//! none of that until a publication writes all changes as one operation.
//!
//! Invariants:
//! - The regions of a file change, and are published, while no other call of the file runs: `pair`
//!   has its state locked for writing. A call that changes the file shows its bytes in the regions
//!   before it returns. So memory that differs from the file was changed by the program.
//! - No two regions of a process have the same bytes of a file. Two mappings of the same bytes are
//!   one region, with one address.
//! - A range of addresses without a region costs loads: no lock, and no allocation. An allocator
//!   may ask.
//!
//! May import: `errno`, `log`.

use crate::errno::{Errno, Result};
use crate::log;
use arc_swap::ArcSwapOption;
use atomic_mmap::{AtomicMappedFile, Error};
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most regions of a process.
const LIMIT: usize = 1024;
/// Bytes that are compared at once. A segment of a publication ends within them, or goes on.
const CHUNK: usize = 4096;

/// The memory of a region, by its addresses. The parts of a region that was cut share one.
pub(crate) trait Memory: Debug + Send + Sync {
    fn read(&self, at: usize, to: &mut [u8]);
    fn write(&self, at: usize, from: &[u8]);
    /// Returns the pages of `addresses` that may have changed since the last call for them. A page
    /// that is stored to from now on is returned by the next call.
    fn take_changed(&self, addresses: &Range<usize>) -> Vec<Range<usize>>;
    /// Takes back what [`take_changed`](Self::take_changed) has returned: it is returned again.
    fn put_back(&self, changed: Vec<Range<usize>>);
}

#[derive(Debug)]
pub(crate) struct Region {
    /// Device and inode.
    pub identity: (u64, u64),
    /// The forks before the process that has made it.
    pub generation: u64,
    /// Whole pages.
    pub addresses: Range<usize>,
    /// The place in the file of the first address.
    pub offset: u64,
    pub memory: Arc<dyn Memory>,
    /// The mappings that the region is. Changes while the file's state is locked for writing.
    pub mappings: AtomicUsize,
}

struct Slot {
    /// 0 in a slot that is free.
    start: AtomicUsize,
    /// 0 while the slot has no region.
    end: AtomicUsize,
    region: ArcSwapOption<Region>,
}

static SLOTS: [Slot; LIMIT] = [const {
    Slot {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        region: ArcSwapOption::const_empty(),
    }
}; LIMIT];
/// Slots from here on were never used.
static USED: AtomicUsize = AtomicUsize::new(0);

/// Returns what two ranges have in common.
pub(crate) fn common<T: Ord + Copy>(one: &Range<T>, other: &Range<T>) -> Range<T> {
    one.start.max(other.start)..one.end.min(other.end)
}

/// Returns the parts of a range that another range leaves over.
pub(crate) fn outside(range: &Range<usize>, of: &Range<usize>) -> Vec<Range<usize>> {
    let parts = [range.start..range.end.min(of.start), range.start.max(of.end)..range.end];
    parts.into_iter().filter(|part| !part.is_empty()).collect()
}

impl Region {
    /// Returns the range of the file.
    pub fn bytes(&self) -> Range<u64> {
        self.offset..self.offset + self.addresses.len() as u64
    }

    /// Returns the addresses of bytes of the file.
    pub fn addresses_of(&self, bytes: &Range<u64>) -> Range<usize> {
        let these = common(&self.bytes(), bytes);
        if these.is_empty() {
            return 0..0;
        }
        let address = |at: u64| self.addresses.start + (at - self.offset) as usize;
        address(these.start)..address(these.end)
    }

    fn place_of(&self, address: usize) -> u64 {
        self.offset + (address - self.addresses.start) as u64
    }

    /// Returns a region of a part of the addresses.
    fn part(&self, addresses: Range<usize>) -> Region {
        Region {
            identity: self.identity,
            generation: self.generation,
            offset: self.place_of(addresses.start),
            addresses,
            memory: Arc::clone(&self.memory),
            mappings: AtomicUsize::new(1),
        }
    }

    /// Ends one of several mappings.
    pub fn leave(&self, addresses: &Range<usize>) -> Result<()> {
        if self.addresses != *addresses {
            log::line("munmap of a part of a mapping that was made twice: EINVAL");
            return Err(Errno::INVALID);
        }
        self.mappings.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    /// Returns `true` if the region is more than one mapping.
    pub fn is_shared(&self) -> bool {
        // Relaxed, as all uses: the lock of the file's state orders them.
        self.mappings.load(Ordering::Relaxed) > 1
    }
}

fn used() -> &'static [Slot] {
    // Acquire, as all loads of slots: a thread that finds an address finds its region. A program
    // that uses an address has heard of the mapping.
    &SLOTS[..USED.load(Ordering::Acquire)]
}

/// Returns `true` if a region may have one of the addresses.
#[inline]
pub(crate) fn may_have(addresses: &Range<usize>) -> bool {
    used().iter().any(|slot| slot.may_have(addresses))
}

impl Slot {
    fn may_have(&self, addresses: &Range<usize>) -> bool {
        self.start.load(Ordering::Acquire) < addresses.end
            && self.end.load(Ordering::Acquire) > addresses.start
    }
}

/// Returns the regions that have some of the addresses, in the order of theirs.
pub(crate) fn at(addresses: &Range<usize>) -> Vec<Arc<Region>> {
    let slots = used().iter().filter(|slot| slot.may_have(addresses));
    let mut found: Vec<_> = slots.filter_map(|slot| slot.region.load_full()).collect();
    found.retain(|region| !common(&region.addresses, addresses).is_empty());
    found.sort_by_key(|region| region.addresses.start);
    found
}

/// Returns the regions of a file that this process has made.
pub(crate) fn of(identity: (u64, u64), generation: u64) -> Vec<Arc<Region>> {
    let mut found: Vec<_> = used().iter().filter_map(|slot| slot.region.load_full()).collect();
    found.retain(|region| region.identity == identity && region.generation == generation);
    found
}

/// Enters a region.
///
/// # Errors
/// `ENOMEM` if there are too many.
pub(crate) fn insert(region: Arc<Region>) -> Result<()> {
    let (start, end) = (region.addresses.start, region.addresses.end);
    let claim = |slot: &Slot| {
        // AcqRel, as `remove`: what the slot had is gone.
        slot.start.compare_exchange(0, start, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    };
    let n = SLOTS.iter().position(claim).ok_or(Errno(libc::ENOMEM))?;
    SLOTS[n].region.store(Some(region));
    // Release, both: the region comes before the numbers that lead to it.
    SLOTS[n].end.store(end, Ordering::Release);
    USED.fetch_max(n + 1, Ordering::Release);
    Ok(())
}

/// Checks that there is room for `more` regions.
///
/// # Errors
/// `ENOMEM`.
pub(crate) fn check_room(more: usize) -> Result<()> {
    // Relaxed: another thread may take the room at any moment.
    let free = SLOTS.iter().filter(|slot| slot.start.load(Ordering::Relaxed) == 0);
    if free.take(more).count() == more { Ok(()) } else { Err(Errno(libc::ENOMEM)) }
}

fn remove(region: &Arc<Region>) {
    let is_its =
        |slot: &&Slot| slot.region.load().as_ref().is_some_and(|it| Arc::ptr_eq(it, region));
    if let Some(slot) = used().iter().find(is_its) {
        // Release, both: no thread finds the region by its addresses once the slot is free.
        slot.end.store(0, Ordering::Release);
        slot.region.store(None);
        slot.start.store(0, Ordering::Release);
    }
}

/// Takes addresses out of a region. Returns what is left: regions of their own.
///
/// # Errors
/// `ENOMEM` if there are too many regions: nothing has changed.
pub(crate) fn cut(region: &Arc<Region>, addresses: &Range<usize>) -> Result<Vec<Arc<Region>>> {
    let mut left = Vec::new();
    for addresses in outside(&region.addresses, addresses) {
        let part = Arc::new(region.part(addresses));
        if let Err(errno) = insert(Arc::clone(&part)) {
            left.iter().for_each(remove);
            return Err(errno);
        }
        left.push(part);
    }
    remove(region);
    Ok(left)
}

/// Makes the parts that [`cut`] has left one region again.
pub(crate) fn mend(region: &Arc<Region>, left: &[Arc<Region>]) -> Result<()> {
    insert(Arc::clone(region))?;
    left.iter().for_each(remove);
    Ok(())
}

/// The bytes that a publication writes.
#[derive(Default)]
struct Changes {
    bytes: Vec<u8>,
    /// Places in the file, with the number of their bytes.
    segments: Vec<(u64, usize)>,
}

/// Makes room for `more` entries.
fn reserve<T>(of: &mut Vec<T>, more: usize) -> Result<()> {
    of.try_reserve(more).map_err(|_| Errno(libc::ENOMEM))
}

impl Changes {
    fn push(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        reserve(&mut self.bytes, bytes.len())?;
        reserve(&mut self.segments, 1)?;
        self.bytes.extend_from_slice(bytes);
        match self.segments.last_mut() {
            Some((start, len)) if *start + *len as u64 == at => *len += bytes.len(),
            _ => self.segments.push((at, bytes.len())),
        }
        Ok(())
    }

    /// Adds what differs from the file between two addresses of a region. `buffer` has two chunks:
    /// the stack of a thread may be small.
    fn compare(
        &mut self,
        file: &AtomicMappedFile,
        region: &Region,
        addresses: &Range<usize>,
        buffer: &mut [u8],
    ) -> Result<()> {
        let (ours, theirs) = buffer.split_at_mut(CHUNK);
        for at in addresses.clone().step_by(CHUNK) {
            let count = CHUNK.min(addresses.end - at);
            let (ours, theirs) = (&mut ours[..count], &mut theirs[..count]);
            let place = region.place_of(at);
            region.memory.read(at, ours);
            file.read_at(theirs, place).map_err(|error| Errno::of(&error))?;
            if ours == theirs {
                continue;
            }
            let differs = || ours.iter().zip(&*theirs).map(|(one, other)| one != other);
            let first = differs().position(|differs| differs).unwrap_or(0);
            let last = differs().rposition(|differs| differs).unwrap_or(count - 1);
            // Bytes between two changes are those of the file.
            self.push(place + first as u64, &ours[first..=last])?;
        }
        Ok(())
    }

    fn write(&self, file: &AtomicMappedFile) -> Result<()> {
        let mut left = &self.bytes[..];
        let segment = |(at, len): &(u64, usize)| {
            let (bytes, rest) = left.split_at(*len);
            left = rest;
            (*at, bytes)
        };
        if self.segments.is_empty() {
            return Ok(());
        }
        let mut segments = Vec::new();
        reserve(&mut segments, self.segments.len())?;
        segments.extend(self.segments.iter().map(segment));
        file.write_many(&segments).map_err(|error| Errno::of(&error))
    }
}

/// Writes what the program has changed at `addresses`, in regions of one file, as one operation.
/// After an error the changes are still to be published.
pub(crate) fn publish(
    file: &AtomicMappedFile,
    of: &[Arc<Region>],
    addresses: &Range<usize>,
) -> Result<()> {
    let (mut changes, mut taken) = (Changes::default(), Vec::new());
    let mut buffer = Vec::new();
    reserve(&mut buffer, 2 * CHUNK)?;
    buffer.resize(2 * CHUNK, 0);
    let bytes = 0..file.len(); // no more is written
    let mut done = Ok(());
    for region in of {
        let part = common(&region.addresses_of(&bytes), addresses);
        if done.is_ok() && !part.is_empty() {
            let changed = region.memory.take_changed(&part);
            let mut these = changed.iter().map(|pages| common(pages, &part));
            done = these.try_for_each(|these| changes.compare(file, region, &these, &mut buffer));
            taken.push((region, changed));
        }
    }
    let done = done.and_then(|()| changes.write(file));
    done.inspect_err(|_| {
        for (region, changed) in taken {
            region.memory.put_back(changed);
        }
    })
}

/// Shows bytes of a file in its regions. Past the end of the file these are zeroes.
pub(crate) fn show(
    file: &AtomicMappedFile,
    of: &[Arc<Region>],
    bytes: &Range<u64>,
) -> atomic_mmap::Result<()> {
    let mut chunk = [0; CHUNK];
    for region in of {
        let addresses = region.addresses_of(bytes);
        for at in addresses.clone().step_by(CHUNK) {
            let chunk = &mut chunk[..CHUNK.min(addresses.end - at)];
            read_or_zeroes(file, chunk, region.place_of(at))?;
            region.memory.write(at, chunk);
        }
    }
    Ok(())
}

/// Reads bytes of a file, and zeroes past its end.
fn read_or_zeroes(file: &AtomicMappedFile, to: &mut [u8], at: u64) -> atomic_mmap::Result<()> {
    loop {
        let left = usize::try_from(file.len().saturating_sub(at)).unwrap_or(usize::MAX);
        let (bytes, zeroes) = to.split_at_mut(left.min(to.len()));
        zeroes.fill(0);
        match if bytes.is_empty() { Ok(()) } else { file.read_at(bytes, at) } {
            // Another thread has made the file shorter.
            Err(Error::PastEnd { .. }) => {}
            read => return read,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use tempfile::TempDir;

    /// Memory with a list of the stores to it. Its first address is [`START`].
    #[derive(Debug, Default)]
    struct Tracked {
        bytes: Mutex<Vec<u8>>,
        changed: Mutex<Vec<Range<usize>>>,
    }

    const START: usize = 1 << 40;

    impl Tracked {
        fn store(&self, at: usize, bytes: &[u8]) {
            self.write(START + at, bytes);
            self.changed.lock().push(START + at..START + at + bytes.len());
        }
    }

    impl Memory for Tracked {
        fn read(&self, at: usize, to: &mut [u8]) {
            to.copy_from_slice(&self.bytes.lock()[at - START..][..to.len()]);
        }

        fn write(&self, at: usize, from: &[u8]) {
            self.bytes.lock()[at - START..][..from.len()].copy_from_slice(from);
        }

        fn take_changed(&self, _: &Range<usize>) -> Vec<Range<usize>> {
            std::mem::take(&mut self.changed.lock())
        }

        fn put_back(&self, changed: Vec<Range<usize>>) {
            self.changed.lock().extend(changed);
        }
    }

    fn region(memory: &Arc<Tracked>, offset: u64) -> Arc<Region> {
        let len = memory.bytes.lock().len();
        Arc::new(Region {
            identity: (1, 2),
            generation: 3,
            addresses: START..START + len,
            offset,
            memory: Arc::clone(memory) as Arc<dyn Memory>,
            mappings: AtomicUsize::new(1),
        })
    }

    fn file(folder: &TempDir) -> AtomicMappedFile {
        AtomicMappedFile::create(folder.path().join("x"), 10_000).expect("create")
    }

    #[test]
    fn a_publication_that_fails_leaves_the_changes_to_the_next_one() {
        let folder = tempfile::tempdir().expect("a folder");
        drop(file(&folder));
        let memory = Arc::new(Tracked { bytes: vec![0; 12288].into(), ..Default::default() });
        let of = [region(&memory, 4096)];
        memory.store(10, b"changed");
        memory.store(5900, b"past the end");
        let everything = 0..usize::MAX;
        let path = folder.path().join("x");
        let reader = AtomicMappedFile::options().read_only(true).open(&path).expect("open");
        assert_eq!(publish(&reader, &of, &everything), Err(Errno(libc::EROFS)));
        drop(reader);
        let file = file(&folder);
        assert_eq!(publish(&file, &of, &everything), Ok(()));
        let mut expected = vec![0; 10_000];
        expected[4106..4113].copy_from_slice(b"changed");
        expected[9996..].copy_from_slice(b"past");
        assert!(file.read_vec().expect("read") == expected);
        // The file may have other bytes where the program has stored nothing since.
        file.write_at(b"other", 4106).expect("write");
        assert_eq!(publish(&file, &of, &everything), Ok(()));
        expected[4106..4111].copy_from_slice(b"other");
        assert!(file.read_vec().expect("read") == expected);
        show(&file, &of, &(4000..4111)).expect("show");
        show(&file, &of, &(4111..20_000)).expect("show");
        let bytes = memory.bytes.lock();
        assert!(bytes[10..17] == *b"othered" && bytes[5904..].iter().all(|byte| *byte == 0));
        assert!(bytes[5900..5910] == *b"past\0\0\0\0\0\0");
    }

    #[test]
    fn a_region_is_found_by_its_addresses_until_it_is_cut() {
        let memory = Arc::new(Tracked { bytes: vec![0; 12288].into(), ..Default::default() });
        let whole = region(&memory, 4096);
        insert(Arc::clone(&whole)).expect("insert");
        let found = |from: usize, to: usize| {
            let addresses = START + from..START + to;
            assert_eq!(may_have(&addresses), !at(&addresses).is_empty());
            at(&addresses).iter().map(|region| region.offset).collect::<Vec<_>>()
        };
        assert_eq!(
            (found(0, 1), found(12287, 20000), found(12288, 20000)),
            (vec![4096], vec![4096], vec![])
        );
        let left = cut(&whole, &(START + 4096..START + 8192)).expect("cut");
        assert_eq!((found(0, 20000), found(4096, 8192)), (vec![4096, 12288], vec![]));
        assert_eq!((of((1, 2), 3).len(), of((1, 2), 4).len(), of((1, 3), 3).len()), (2, 0, 0));
        mend(&whole, &left).expect("mend");
        assert_eq!((found(0, 20000), found(4096, 8192)), (vec![4096], vec![4096]));
        assert!(
            cut(&whole, &(0..usize::MAX)).expect("cut").is_empty() && found(0, 20000).is_empty()
        );
        let all: Vec<_> = (0..).map_while(|_| insert(Arc::clone(&whole)).ok()).collect();
        assert_eq!(all.len(), LIMIT);
        assert_eq!(insert(Arc::clone(&whole)), Err(Errno(libc::ENOMEM)));
    }
}
