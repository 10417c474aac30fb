//! `mmap`, `msync`, `munmap` and calls on mapped memory.
//!
//! A private mapping of a chosen file is a copy of its bytes. A shared writable one is refused, or
//! by `ATOMIC_MMAP_MSYNC` a region: private memory, which `msync` publishes.

use super::tracker::Tracker;
use super::{failed, path, real, served};
use crate::description::Description;
use crate::errno::{Errno, Result};
use crate::regions::{self, Memory, Region};
use crate::settings::{self, Msync};
use crate::{log, pair, table};
use atomic_mmap::AtomicMappedFile;
use libc::{c_int, c_void, off_t, size_t};
use parking_lot::Mutex;
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::Arc;

/// Flags of a mapping that hold for its memory.
const KEPT: c_int = libc::MAP_FIXED
    | libc::MAP_FIXED_NOREPLACE
    | libc::MAP_NORESERVE
    | libc::MAP_POPULATE
    | libc::MAP_LOCKED;
const WRITABLE: c_int = libc::PROT_READ | libc::PROT_WRITE;

const MADV_GUARD_INSTALL: c_int = 102;
/// Advice that takes the bytes of private memory away, or hides them.
const DESTROYING: [c_int; 5] = [
    libc::MADV_FREE,
    libc::MADV_REMOVE,
    libc::MADV_WIPEONFORK,
    libc::MADV_DONTNEED_LOCKED,
    MADV_GUARD_INSTALL,
];

fn page() -> usize {
    // SAFETY: the call has no pointers.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

fn is_page(at: *mut c_void) -> bool {
    (at as usize).is_multiple_of(page())
}

/// Returns the pages of a range, or an empty range past the last address.
fn pages(at: *mut c_void, len: size_t) -> Range<usize> {
    let end = (at as usize).checked_add(len).and_then(|end| end.checked_next_multiple_of(page()));
    end.map_or(0..0, |end| at as usize..end)
}

/// Returns `true` if the library decides about some of the addresses.
#[inline]
fn is_ours(at: *mut c_void, len: size_t) -> bool {
    regions::may_have(&(at as usize..(at as usize).saturating_add(len)))
}

/// The memory of a region.
#[derive(Debug)]
struct Private {
    /// Without it each page may have changed.
    tracker: Option<Tracker>,
    /// Pages that the tracker has told, and no publication has written.
    left: Mutex<Vec<Range<usize>>>,
}

impl Private {
    /// Begins with memory that is like its file.
    fn new(addresses: &Range<usize>) -> Self {
        let tracked = match settings::msync() {
            Msync::Tracked => Tracker::begin(addresses).map(Some),
            Msync::Refused | Msync::Compared => Ok(None),
        };
        let tracker = tracked.unwrap_or_else(|errno| {
            let why = std::io::Error::from_raw_os_error(errno.0);
            log::line(&format!(
                "msync compares whole mappings: the kernel tracks no pages ({why})"
            ));
            None
        });
        Private { tracker, left: Mutex::new(Vec::new()) }
    }
}

// The program may store to the memory at any moment: a byte is then one that was there before or
// after. The regions end before their memory does, and `mprotect` keeps it readable and writable.
impl Memory for Private {
    fn read(&self, at: usize, to: &mut [u8]) {
        // SAFETY: as above. No buffer of the library lies in a region.
        unsafe { std::ptr::copy_nonoverlapping(at as *const u8, to.as_mut_ptr(), to.len()) }
    }

    fn write(&self, at: usize, from: &[u8]) {
        // SAFETY: as in `read`.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), at as *mut u8, from.len()) }
    }

    fn take_changed(&self, addresses: &Range<usize>) -> Vec<Range<usize>> {
        let Some(tracker) = &self.tracker else { return vec![addresses.clone()] };
        let addresses = addresses.start..addresses.end.next_multiple_of(page());
        let (mut left, mut found) = (self.left.lock(), Vec::new());
        for pages in std::mem::take(&mut *left) {
            left.extend(regions::outside(&pages, &addresses));
            found.push(regions::common(&pages, &addresses));
        }
        found.retain(|pages| !pages.is_empty());
        if let Err(errno) = tracker.scan(&addresses, &mut found) {
            log::line(&format!("PAGEMAP_SCAN fails with errno {}: pages are compared", errno.0));
            found = vec![addresses];
        }
        found.sort_by_key(|pages| pages.start);
        found
    }

    fn put_back(&self, changed: Vec<Range<usize>>) {
        if self.tracker.is_some() {
            self.left.lock().extend(changed);
        }
    }
}

hook! {
    fn mmap(at: *mut c_void, len: size_t, access: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void { map(at, len, access, flags, fd, offset) }
    fn mmap64(at: *mut c_void, len: size_t, access: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void { map(at, len, access, flags, fd, offset) }
    fn msync(at: *mut c_void, len: size_t, flags: c_int) -> c_int {
        // The kernel checks the arguments, and syncs the mappings of other files.
        let told = real::msync(at, len, flags);
        if told != 0 || !is_ours(at, len) { told } else { served(|| sync(&pages(at, len), flags).map(|()| 0)) }
    }
    fn munmap(at: *mut c_void, len: size_t) -> c_int {
        if !is_ours(at, len) || !is_page(at) || pages(at, len).is_empty() {
            return real::munmap(at, len);
        }
        served(|| unmap(&pages(at, len)).map(|()| 0))
    }
    fn mprotect(at: *mut c_void, len: size_t, access: c_int) -> c_int {
        if is_ours(at, len) && access & WRITABLE != WRITABLE && has_own(at, len) {
            log::line("mprotect takes away access to a shared mapping, and is refused: EACCES");
            return failed(Errno(libc::EACCES));
        }
        real::mprotect(at, len, access)
    }
    fn mremap(at: *mut c_void, len: size_t, new_len: size_t, flags: c_int, to: *mut c_void) -> *mut c_void {
        let is_target = flags & libc::MREMAP_FIXED != 0 && is_ours(to, new_len) && has_own(to, new_len);
        if is_target || is_ours(at, len.max(1)) && has_own(at, len.max(1)) {
            log::line("mremap of a shared mapping is refused: ENOMEM");
            let _minus_one: c_int = failed(Errno(libc::ENOMEM));
            return libc::MAP_FAILED;
        }
        real::mremap(at, len, new_len, flags, to)
    }
    fn madvise(at: *mut c_void, len: size_t, advice: c_int) -> c_int {
        if !is_ours(at, len) || !has_own(at, len) {
            return real::madvise(at, len, advice);
        }
        match advice {
            // A shared mapping keeps its bytes.
            libc::MADV_DONTNEED | libc::MADV_WILLNEED if is_page(at) => advise_others(&pages(at, len), advice),
            _ if DESTROYING.contains(&advice) => failed(Errno::INVALID),
            _ => real::madvise(at, len, advice),
        }
    }
}

/// Advises the kernel about the memory between regions. As in the kernel a hole is `ENOMEM`, after
/// all else is done.
///
/// # Safety
/// As for `madvise`.
unsafe fn advise_others(addresses: &Range<usize>, advice: c_int) -> c_int {
    let (mut at, mut result) = (addresses.start, 0);
    let found = regions::at(addresses);
    let own = found.iter().filter(|region| is_own(region)).map(|region| region.addresses.clone());
    for region in own.chain(std::iter::once(addresses.end..addresses.end)) {
        if at < region.start {
            // SAFETY: as the caller promises.
            let told = unsafe { real::madvise(at as *mut c_void, region.start - at, advice) };
            result = if told == 0 { result } else { told };
        }
        at = at.max(region.end);
    }
    result
}

/// Returns `true` if a region of this process, and not of its parent, has some of the addresses.
fn has_own(at: *mut c_void, len: size_t) -> bool {
    regions::at(&pages(at, len)).iter().any(|region| is_own(region))
}

fn is_own(region: &Region) -> bool {
    region.generation == pair::generation()
}

fn owner(region: &Region) -> Result<Arc<pair::Pair>> {
    if !is_own(region) {
        log::line("a shared mapping that was inherited by fork: its file is the parent's");
        return Err(Errno::IO);
    }
    pair::find(region.identity).ok_or(Errno::IO)
}

/// Returns a region of each file that has some of the addresses.
fn files_at(addresses: &Range<usize>) -> Vec<Arc<Region>> {
    let mut found = regions::at(addresses);
    found.sort_by_key(|region| region.identity);
    found.dedup_by_key(|region| region.identity);
    found
}

/// Publishes what has changed in some pages, as one operation of each file, and makes durable
/// points.
fn sync(addresses: &Range<usize>, flags: c_int) -> Result<()> {
    for region in files_at(addresses) {
        let pair = owner(&region)?;
        pair.publish(addresses)?;
        if flags & libc::MS_SYNC != 0 {
            pair.sync_published()?;
        }
    }
    Ok(())
}

/// Publishes what has changed in pages that go, as one operation of each file. A single region
/// needs no call before it ends, since its end publishes it.
fn publish_last(addresses: &Range<usize>) -> Result<()> {
    let mut own = files_at(addresses).into_iter().filter(|region| is_own(region));
    own.try_for_each(|region| owner(&region)?.publish(addresses))
}

/// Checks that the regions of `found` can end at `addresses`, before the first one does.
fn check_ends(found: &[Arc<Region>], addresses: &Range<usize>) -> Result<()> {
    let goes_in_part = |region: &&Arc<Region>| {
        let part = regions::common(&region.addresses, addresses);
        region.is_shared() && part != region.addresses
    };
    if found.iter().any(|region| goes_in_part(&region)) {
        log::line("munmap of a part of a mapping that was made twice: EINVAL");
        return Err(Errno::INVALID);
    }
    let left = |region: &Arc<Region>| regions::outside(&region.addresses, addresses).len();
    regions::check_room(found.iter().map(left).sum())
}

/// Unmaps pages. What has changed in regions is published before.
fn unmap(addresses: &Range<usize>) -> Result<()> {
    let found = regions::at(addresses);
    check_ends(&found, addresses)?;
    if found.len() > 1 {
        publish_last(addresses)?;
    }
    let free = |part: Range<usize>| {
        // SAFETY: the caller of `munmap` gives these addresses up.
        let freed =
            part.is_empty() || unsafe { real::munmap(part.start as *mut c_void, part.len()) } == 0;
        freed.then_some(()).ok_or_else(|| Errno(super::errno()))
    };
    let mut at = addresses.start;
    for region in regions::at(addresses) {
        let part = regions::common(&region.addresses, addresses);
        free(at..part.start)?;
        end(&region, &part, || free(part.clone()))?;
        at = part.end;
    }
    free(at..addresses.end)
}

/// Ends the regions at pages that other memory replaces: the last step before that.
fn replace(addresses: &Range<usize>) -> Result<()> {
    let found = regions::at(addresses);
    if found.iter().any(|region| region.is_shared()) {
        log::line("MAP_FIXED over a mapping that was made twice: EINVAL");
        return Err(Errno::INVALID);
    }
    check_ends(&found, addresses)?;
    if found.len() > 1 {
        publish_last(addresses)?;
    }
    let part = |region: &Region| regions::common(&region.addresses, addresses);
    found.iter().try_for_each(|region| end(region, &part(region), || Ok(())))
}

/// Ends a region at some of its addresses.
fn end(region: &Arc<Region>, part: &Range<usize>, free: impl FnOnce() -> Result<()>) -> Result<()> {
    if is_own(region) {
        return owner(region)?.unmap(part, free);
    }
    if region.is_shared() {
        return region.leave(part);
    }
    regions::cut(region, part)?;
    free()
}

/// Maps a file.
///
/// # Safety
/// As for `mmap`.
pub(super) unsafe fn map(
    at: *mut c_void,
    len: size_t,
    access: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    let is_chosen = flags & libc::MAP_ANONYMOUS == 0 && path::is_chosen(fd);
    let replaces = is_fixed(flags) && is_page(at) && is_ours(at, len);
    // SAFETY: as the caller promises.
    unsafe {
        if !is_chosen && !replaces {
            return real::mmap64(at, len, access, flags, fd, offset);
        }
        let mapped = super::caught(|| {
            let over = if replaces { pages(at, len) } else { 0..0 };
            if !is_chosen {
                // The kernel says without the address what it refuses.
                try_out(len, access, flags, fd, offset)?;
                replace(&over)?;
                let mapped = told(real::mmap64(at, len, access, flags, fd, offset));
                return mapped.inspect_err(|_| give_up(&over));
            }
            let chosen = Wanted::of(access, flags, fd, offset)?;
            if chosen.is_shared {
                share(&chosen, at, len, access, flags, &over)
            } else {
                copy(&chosen, at, len, access, flags, &over)
            }
        });
        mapped.unwrap_or_else(|errno| {
            let _minus_one: c_int = failed(errno);
            libc::MAP_FAILED
        })
    }
}

/// Returns `true` if a mapping takes the place of what is there.
fn is_fixed(flags: c_int) -> bool {
    flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) == libc::MAP_FIXED
}

/// Makes a mapping at any address, and unmaps it.
///
/// # Safety
/// As for `mmap`.
unsafe fn try_out(len: size_t, access: c_int, flags: c_int, fd: c_int, at: off_t) -> Result<()> {
    let flags = flags & !(libc::MAP_FIXED | libc::MAP_POPULATE);
    // SAFETY: as the caller promises. No other thread knows the memory.
    unsafe {
        let memory = told(real::mmap64(null_mut(), len, access, flags, fd, at))?;
        real::munmap(memory, len);
    }
    Ok(())
}

/// Unmaps pages that are no region any more, and have not got their new memory: a store to them
/// must not pass for one to the file.
fn give_up(over: &Range<usize>) {
    if !over.is_empty() {
        let before = super::errno();
        // SAFETY: the caller of `mmap` gives these addresses up.
        unsafe { real::munmap(over.start as *mut c_void, over.len()) };
        super::set_errno(before);
    }
}

/// A mapping of a chosen file that may be made.
struct Wanted {
    of: Arc<Description>,
    /// The place in the file of the first address.
    start: u64,
    is_shared: bool,
}

impl Wanted {
    fn of(access: c_int, flags: c_int, fd: c_int, offset: off_t) -> Result<Wanted> {
        let of = table::share(fd).ok_or(Errno::BAD_DESCRIPTOR)?;
        let start = u64::try_from(offset).ok().filter(|start| start % page() as u64 == 0);
        let start = start.ok_or(Errno::INVALID)?;
        let is_writable = access & libc::PROT_WRITE != 0;
        let is_shared = match flags & libc::MAP_TYPE {
            libc::MAP_PRIVATE => false,
            libc::MAP_SHARED if is_writable && settings::msync() != Msync::Refused => true,
            _ => {
                log::line("a shared mmap is refused: ENODEV");
                return Err(Errno(libc::ENODEV));
            }
        };
        Ok(Wanted { of, start, is_shared })
    }
}

fn told(memory: *mut c_void) -> Result<*mut c_void> {
    if memory == libc::MAP_FAILED { Err(Errno(super::errno())) } else { Ok(memory) }
}

/// Makes a private mapping: a copy of the bytes at this moment. It ends the regions at `over`.
///
/// # Safety
/// As for `mmap`.
unsafe fn copy(
    wanted: &Wanted,
    at: *mut c_void,
    len: size_t,
    access: c_int,
    flags: c_int,
    over: &Range<usize>,
) -> Result<*mut c_void> {
    // SAFETY: as the caller promises. Until it is in its place no other thread knows the memory.
    unsafe {
        publish_last(over)?;
        let (fixed, free) = (is_fixed(flags), flags & !libc::MAP_FIXED | libc::MAP_ANONYMOUS);
        let (hint, flags) =
            if fixed { (null_mut(), free) } else { (at, flags | libc::MAP_ANONYMOUS) };
        let memory = told(real::mmap64(hint, len, WRITABLE, flags, -1, 0))?;
        let bytes = std::slice::from_raw_parts_mut(memory.cast(), len);
        let ready = wanted.of.copy(wanted.start, bytes).and_then(|_| {
            let is_protected = real::mprotect(memory, len, access) == 0;
            if is_protected { Ok(()) } else { Err(Errno(super::errno())) }
        });
        let placed = ready.and_then(|()| {
            if !fixed {
                return Ok(memory);
            }
            if !is_page(at) {
                return Err(Errno::INVALID);
            }
            replace(over)?;
            let moves = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            told(real::mremap(memory, len, len, moves, at)).inspect_err(|_| give_up(over))
        });
        placed.inspect_err(|_| {
            real::munmap(memory, len);
        })
    }
}

/// Makes a shared mapping: memory with the bytes of the file, which is a region of it. It ends the
/// regions at `over`.
///
/// # Safety
/// As for `mmap`.
unsafe fn share(
    wanted: &Wanted,
    at: *mut c_void,
    len: size_t,
    access: c_int,
    flags: c_int,
    over: &Range<usize>,
) -> Result<*mut c_void> {
    let (len, start) = (pages(null_mut(), len).end, wanted.start);
    let end = start.checked_add(len as u64).filter(|end| *end > start).ok_or(Errno::INVALID)?;
    let flags = flags & KEPT | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let joins = flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) == 0;
    if is_fixed(flags) {
        wanted.of.check_map(&(start..end), over)?;
        // SAFETY: as the caller promises.
        unsafe { try_out(len, access | WRITABLE, flags, -1, 0)? };
        regions::check_room(2)?;
        replace(over)?;
    }
    let mut memory = null_mut();
    let mapped = wanted.of.map(&(start..end), joins, |file| {
        // SAFETY: as the caller of `mmap` promises. No other thread knows new memory.
        let bytes: &mut [u8] = unsafe {
            memory = told(real::mmap64(at, len, access | WRITABLE, flags, -1, 0))?;
            std::slice::from_raw_parts_mut(memory.cast(), len)
        };
        fill(bytes, file, start).map_err(|error| Errno::of(&error))?;
        let addresses = memory as usize..memory as usize + len;
        Ok((addresses.start, Arc::new(Private::new(&addresses)) as Arc<dyn Memory>))
    });
    if mapped.is_err() && !memory.is_null() && memory != libc::MAP_FAILED {
        // SAFETY: the memory of above, which no caller has got.
        unsafe { real::munmap(memory, len) };
    }
    mapped.inspect_err(|_| give_up(over)).map(|start| start as *mut c_void)
}

/// Fills new memory with bytes of a file. Pages of zeroes are not touched: they take no memory.
fn fill(to: &mut [u8], file: &AtomicMappedFile, start: u64) -> atomic_mmap::Result<()> {
    let held = usize::try_from(file.len().saturating_sub(start)).unwrap_or(usize::MAX);
    let held = held.min(to.len());
    let mut buffer = vec![0; page()];
    for (to, at) in to[..held].chunks_mut(page()).zip((start..).step_by(page())) {
        let bytes = &mut buffer[..to.len()];
        file.read_at(bytes, at)?;
        if bytes.iter().any(|byte| *byte != 0) {
            to.copy_from_slice(bytes);
        }
    }
    Ok(())
}
