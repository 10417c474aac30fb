//! The Linux calls behind the operating system's face.
//!
//! Owns: the raw system calls that std lacks, one attempt each. Retries and fallbacks are the
//! business of `calls`, where the recorder can see them.
//!
//! Invariants:
//! - A [`Mapping`] owns its whole address range, 2 MiB-aligned, from creation to drop, and the
//!   range never moves.
//! - Every call gets a descriptor that is open for its duration, because a `&File` is held.
//!
//! May import: `btrfs`, `rights`, the instruction set (`isa`), libc, std, planted bugs.

use super::{FileStat, FileSystem, btrfs, rights};
use crate::mutant::{planted, unless};
use crate::platform::isa;
use std::ffi::CString;
use std::fs::{File, Permissions};
use std::io;
#[cfg(not(any(miri, loom, shuttle)))]
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::ptr::NonNull;
use std::sync::atomic::AtomicBool;

mod huge_pages;
mod private;

pub use huge_pages::{bring_in, take_huge_page};
pub use private::map_private;

const HUGE_PAGE: usize = 2 << 20;

/// A mapping of a file, in address space of its own. Unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
    /// The kernel failed to provide a huge page once, and is not asked again.
    only_small_pages: AtomicBool,
    /// Nothing is mapped there: the addresses mean something to a simulated machine only.
    #[cfg(feature = "recorder")]
    is_simulated: bool,
}

// SAFETY: the value is an address range. Another thread may own it, since any thread may unmap it,
// and access to the bytes is unsafe and has its own proofs.
unsafe impl Send for Mapping {}
// SAFETY: the shared methods read plain fields that never change, and an atomic.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Creates a mapping of addresses at which nothing is mapped.
    #[cfg(feature = "recorder")]
    pub(in crate::platform) fn simulated(base: *mut u8, len: usize) -> Mapping {
        let base = NonNull::new(base).expect("an address that is not null");
        Mapping { base, len, only_small_pages: AtomicBool::new(true), is_simulated: true }
    }

    /// Returns the first address, a multiple of 2 MiB.
    #[inline]
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Returns the bytes of address space. The file may be shorter.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "a mapping is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        #[cfg(feature = "recorder")]
        if self.is_simulated {
            return;
        }
        // SAFETY: the range is ours alone and is not used afterwards: pointers into it are only
        // used by unsafe code that keeps the mapping alive.
        unsafe { unmap(self.base.as_ptr(), self.len) }
    }
}

/// # Safety
/// The range was mapped by this file, is page-aligned, and is not used afterwards.
unsafe fn unmap(at: *mut u8, len: usize) {
    if len > 0 {
        // SAFETY: the caller's contract.
        let refused = unsafe { libc::munmap(at.cast(), len) };
        // A refusal (too many mappings) leaks addresses; nothing else is lost.
        debug_assert_eq!(refused, 0);
    }
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn signed(offset: u64) -> io::Result<libc::off_t> {
    libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// The number of attempts to find an aligned range, in case other threads map something into it
/// meanwhile.
const MAP_ATTEMPTS: usize = 64;

/// Maps the file at an aligned address, so that huge pages can map it. If other threads take each
/// range that was found, any address serves. `len` is a multiple of 2 MiB, not 0.
///
/// A reservation finds a free range. It is unmapped before the kernel is asked to map the file
/// there, if the range is still free. Mapping over the reservation would be wrong. Some file
/// systems refuse a mapping, as ext4 does with MAP_SYNC, after the kernel has already removed the
/// reservation. The range then has no owner, and another thread may map something into it before
/// this thread sees the refusal. Unmapping the reservation would then unmap that.
pub fn map(file: &File, len: usize, want_sync: bool) -> io::Result<Mapping> {
    // Without flush instructions a synchronous mapping would promise too much.
    if want_sync && !isa::FLUSHES {
        return Err(io::ErrorKind::Unsupported.into());
    }
    for _ in 0..MAP_ATTEMPTS {
        let hint = free_range(len)?;
        if let Some(mapping) = map_near(file, hint, len, (want_sync, HUGE_PAGE))? {
            return Ok(mapping);
        }
    }
    let mapping = map_near(file, std::ptr::null_mut(), len, (want_sync, 1))?;
    mapping.ok_or_else(|| io::ErrorKind::AddrInUse.into())
}

/// Advises both the mapping and the file. The file is advised even if the mapping's advice fails.
pub fn expect_random(file: &File, mapping: &Mapping) -> io::Result<()> {
    // SAFETY: the range is the mapping's own, and the advice changes nothing of what it holds.
    let advised =
        checked(unsafe { libc::madvise(mapping.base().cast(), mapping.len(), libc::MADV_RANDOM) });
    // SAFETY: the descriptor is open; the call takes nothing else of ours.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) } {
        0 => advised,
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Starts reading the range of the file into the page cache, in single pages after
/// [`expect_random`]. Does nothing if the range's first page is cached, since asking for cached
/// pages costs a sixth of copying them. Only a hint: nothing depends on its result.
pub fn will_need(file: &File, mapping: &Mapping, offset: u64, len: u64) {
    const PAGE: u64 = 4096;
    /// An amount that the kernel surely accepts in one call.
    const AT_ONCE: usize = 128 << 10;
    let Ok(start) = libc::off_t::try_from(offset) else { return };
    let Ok(len) = libc::off_t::try_from(len) else { return };
    let page = offset / PAGE * PAGE;
    let mut is_there = 0;
    if page + PAGE <= mapping.len() as u64 {
        let at = mapping.base().wrapping_add(page as usize);
        // SAFETY: the page is within the mapping (just compared); the answer is one byte for one
        // page.
        let asked = unsafe { libc::mincore(at.cast(), PAGE as usize, &raw mut is_there) };
        if asked == 0 && is_there & 1 == 1 {
            return;
        }
    }
    for part in (start..start.saturating_add(len)).step_by(AT_ONCE) {
        let len = (start + len - part).min(AT_ONCE as libc::off_t);
        // SAFETY: the descriptor is open; the call takes nothing else of ours.
        let _a_hint =
            unsafe { libc::posix_fadvise(file.as_raw_fd(), part, len, libc::POSIX_FADV_WILLNEED) };
    }
}

/// Does what [`will_need`] does for the parts of the range that have data, and lets each step of
/// half a MiB say if it is cached. A hole has nothing to read, and its pages would take memory.
pub fn will_need_data(file: &File, mapping: &Mapping, offset: u64, len: u64) {
    const STEP: u64 = 512 << 10;
    let end = offset.saturating_add(len);
    let mut at = offset;
    while at < end
        && let Ok(Some(data)) = seek(file, at, libc::SEEK_DATA)
    {
        let hole = seek(file, data, libc::SEEK_HOLE).ok().flatten().unwrap_or(end);
        for step in (data..hole.min(end)).step_by(STEP as usize) {
            will_need(file, mapping, step, (hole.min(end) - step).min(STEP));
        }
        at = hole;
    }
}

/// Drops the clean pages of the range from the page cache. Only a hint.
pub fn forget_cached(file: &File, mapping: &Mapping, offset: u64, len: u64) {
    let (Ok(start), Ok(count)) = (libc::off_t::try_from(offset), libc::off_t::try_from(len)) else {
        return;
    };
    let Some(end) = offset.checked_add(len).filter(|end| *end <= mapping.len() as u64) else {
        return;
    };
    let page = page_size().max(1);
    let (from, to) = (offset / page * page, end.next_multiple_of(page).min(mapping.len() as u64));
    // First remove them from our own mapping: the kernel drops nothing that is mapped. SAFETY: the
    // range is within the mapping (just compared), which is shared and of a file: what was stored
    // stays in the page cache, and the next access maps it again.
    let _a_hint = unsafe {
        let at = mapping.base().wrapping_add(from as usize);
        libc::madvise(at.cast(), (to - from) as usize, libc::MADV_DONTNEED)
    };
    // SAFETY: the descriptor is open; the call takes nothing else of ours.
    let _a_hint =
        unsafe { libc::posix_fadvise(file.as_raw_fd(), start, count, libc::POSIX_FADV_DONTNEED) };
}

/// Returns an aligned range of addresses that was free a moment ago.
fn free_range(len: usize) -> io::Result<*mut u8> {
    let len = len.checked_add(HUGE_PAGE).ok_or(io::ErrorKind::InvalidInput)?;
    let start = Reservation::new(len)?.start().as_ptr();
    Ok(start.wrapping_add(start.addr().next_multiple_of(HUGE_PAGE) - start.addr()))
}

/// Returns `true` if `len` bytes of address space were free in one piece a moment ago.
pub fn has_addresses(len: usize) -> bool {
    Reservation::new(len).is_ok()
}

/// A range of addresses of this process at which nothing but zeros is. Unmapped when dropped.
#[derive(Debug)]
pub struct Reservation {
    start: NonNull<u8>,
    len: usize,
}

impl Reservation {
    /// Reserves `len` bytes of address space at which nothing can be loaded or stored.
    pub fn new(len: usize) -> io::Result<Self> {
        if len == 0 {
            return Ok(Reservation { start: NonNull::dangling(), len });
        }
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing of
        // ours.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr() != libc::MAP_FAILED.cast() => {
                // SAFETY: the range was just reserved.
                unsafe { keep_small_pages(start.as_ptr().cast(), len) };
                Ok(Reservation { start, len })
            }
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Returns the first address, which begins a page.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Makes the range of bytes readable and writable. They are zero until something is stored. Its
    /// ends are multiples of a page.
    ///
    /// # Errors
    /// `OutOfMemory` where a limit of memory (RLIMIT_DATA) or of mappings is exceeded, or where the
    /// system never overcommits.
    #[cfg(not(any(miri, loom, shuttle)))]
    pub fn make_writable(&self, bytes: Range<usize>) -> io::Result<()> {
        assert!(bytes.end <= self.len, "within the reservation");
        if bytes.is_empty() {
            return Ok(());
        }
        let at = self.start.as_ptr().wrapping_add(bytes.start).cast();
        // SAFETY: the range lies in the reservation, which is ours alone. More access breaks no
        // reference to it.
        let changed =
            unsafe { libc::mprotect(at, bytes.len(), libc::PROT_READ | libc::PROT_WRITE) };
        checked(changed)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: the range is ours, page-aligned, and is not used afterwards: its user keeps the
        // reservation.
        unsafe { unmap(self.start.as_ptr(), self.len) };
    }
}

/// Asks for small pages in anonymous memory that is sparsely used. A system that gives huge pages
/// unasked would take 2 MiB for the first byte of it. A kernel without huge pages refuses the
/// advice, and needs none.
///
/// # Safety
/// The range is a mapping of the caller.
unsafe fn keep_small_pages(start: *mut libc::c_void, len: usize) {
    // SAFETY: the range is mapped (precondition), and the advice changes no byte.
    let _refused = unsafe { libc::madvise(start, len, libc::MADV_NOHUGEPAGE) };
}

/// Maps the file at `hint`, or at another address if that is not free any more. Returns `None` if
/// that address is no multiple of `align`. MAP_FIXED_NOREPLACE would do this, but
/// MAP_SHARED_VALIDATE refuses it, as it refuses every flag that is newer than itself.
fn map_near(
    file: &File,
    hint: *mut u8,
    len: usize,
    (want_sync, align): (bool, usize),
) -> io::Result<Option<Mapping>> {
    let flags =
        if want_sync { libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC } else { libc::MAP_SHARED };
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice replaces none.
    let mapped = unsafe { libc::mmap(hint.cast(), len, access, flags, file.as_raw_fd(), 0) };
    if mapped == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let mapped = mapped.cast::<u8>();
    if !mapped.addr().is_multiple_of(align) {
        // SAFETY: the mapping was just made and is known to no other code.
        unsafe { unmap(mapped, len) };
        return Ok(None);
    }
    let base = NonNull::new(mapped).ok_or(io::ErrorKind::AddrNotAvailable)?;
    Ok(Some(Mapping {
        base,
        len,
        only_small_pages: AtomicBool::new(false),
        #[cfg(feature = "recorder")]
        is_simulated: false,
    }))
}

/// Returns the bytes of one page of the processor.
pub fn page_size() -> u64 {
    // SAFETY: the call takes and touches nothing of ours.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(0)
}

/// Returns the file length beyond which a call of this process raises SIGXFSZ, or `None` if there
/// is no limit.
pub fn longest_file() -> Option<u64> {
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is writable.
    let told = unsafe { libc::getrlimit64(libc::RLIMIT_FSIZE, &raw mut limit) };
    (told == 0 && limit.rlim_cur != libc::RLIM64_INFINITY).then_some(limit.rlim_cur)
}

fn fallocate(file: &File, mode: libc::c_int, offset: u64, len: u64) -> io::Result<()> {
    let (offset, len) = (signed(offset)?, signed(len)?);
    // SAFETY: the descriptor is open, and the call touches no memory of ours. Punching a hole under
    // a mapping makes it read as zeros, which is what the caller wants.
    checked(unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, len) })
}

pub fn allocate(file: &File, offset: u64, len: u64) -> io::Result<()> {
    fallocate(file, 0, offset, len)
}

/// Allocates the range and leaves the file's length as it is.
pub fn allocate_past_end(file: &File, offset: u64, len: u64) -> io::Result<()> {
    fallocate(file, libc::FALLOC_FL_KEEP_SIZE, offset, len)
}

pub fn punch(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    fallocate(file, mode, offset, len)
}

/// Returns the next data or hole from `offset` on, or `None` if there is none.
fn seek(file: &File, offset: u64, whence: libc::c_int) -> io::Result<Option<u64>> {
    // SAFETY: the descriptor is open. Its position changes, but no code depends on it: all our
    // reads and writes name their offset.
    let found = unsafe { libc::lseek(file.as_raw_fd(), signed(offset)?, whence) };
    if found >= 0 {
        return Ok(Some(found as u64));
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ENXIO) { Ok(None) } else { Err(error) }
}

/// The attribute that holds a file's POSIX access control list.
const ACCESS_LIST: &str = "system.posix_acl_access";

/// A file's access control list. If a file has one, the group's bits of its mode are the list's
/// mask, and allow more than the list gives to the group.
enum AccessList {
    None,
    Some(Vec<u8>),
    /// There may be one: a filter refuses the call.
    Unknown,
}

fn access_list(file: &File) -> io::Result<AccessList> {
    match get_xattr(file, ACCESS_LIST) {
        Ok(None) => Ok(AccessList::None),
        Ok(Some(list)) => Ok(AccessList::Some(list)),
        // The file system keeps none.
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(AccessList::None),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)) => {
            Ok(AccessList::Unknown)
        }
        Err(error) => Err(error),
    }
}

/// Removes the list that a new file has from its folder's default. Returns `false` if the list may
/// still exist.
fn remove_access_list(file: &File) -> bool {
    match remove_xattr(file, ACCESS_LIST) {
        Ok(()) => true,
        // The file system keeps none.
        Err(error) => error.raw_os_error() == Some(libc::EOPNOTSUPP),
    }
}

/// Gives a new file the owner, the group and the rights of the file `home`. `like` is the stat of
/// `home`. The owner and the group come first: giving a file away clears some of its permissions.
/// Until then the file has the rights of its creation, which are the owner's alone.
pub fn own(file: &File, home: &File, like: &FileStat) -> io::Result<()> {
    let is = file.metadata()?;
    if (is.uid(), is.gid()) != (like.uid, like.gid) {
        // A process without the privilege keeps the file, or at least gives it to the group.
        let given = fchown(file, Some(like.uid), Some(like.gid));
        if given.is_err() && is.gid() != like.gid {
            let _may_not = fchown(file, None, Some(like.gid));
        }
    }
    let is = file.metadata()?;
    let (is_owner, is_group) = (is.uid() == like.uid, is.gid() == like.gid);
    let mut mode = rights::mode(like.mode, is_owner, is_group);
    match if planted!(AccessListNotCopied) { AccessList::None } else { access_list(home)? } {
        AccessList::None => {}
        AccessList::Some(list) => {
            // The mode comes with the list.
            if rights::may_copy_list(like.mode, is_owner, is_group)
                && set_xattr(file, ACCESS_LIST, &list).is_ok()
            {
                return Ok(());
            }
            unless!(UncopiedListForgotten, mode &= rights::OWNER_ONLY);
        }
        AccessList::Unknown => mode &= rights::OWNER_ONLY,
    }
    // Before the mode: with the list in place, the mode's group bits would be the mask of that
    // list.
    if !planted!(DefaultListStays) && !remove_access_list(file) {
        mode &= rights::OWNER_ONLY;
    }
    match file.set_permissions(Permissions::from_mode(mode)) {
        // File systems without permissions of their own (vfat) refuse what they cannot keep.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        result => result,
    }
}

/// Writes synchronously in this one call: it writes back, and waits for, only these bytes.
pub fn write_durably(file: &File, buf: &[u8], offset: u64) -> io::Result<usize> {
    let part = libc::iovec { iov_base: buf.as_ptr().cast_mut().cast(), iov_len: buf.len() };
    let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the descriptor is open, and the one part names the caller's buffer, which the call
    // only reads.
    let put =
        unsafe { libc::pwritev2(file.as_raw_fd(), &raw const part, 1, offset, libc::RWF_DSYNC) };
    usize::try_from(put).map_err(|_| io::Error::last_os_error())
}

/// Sets or clears `O_DIRECT` of an open file. `InvalidInput` if the file system has no such way.
pub fn set_direct(file: &File, is_direct: bool) -> io::Result<()> {
    // SAFETY: the descriptor is open; the call takes nothing else of ours.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    checked(flags)?;
    let set = if is_direct { flags | libc::O_DIRECT } else { flags & !libc::O_DIRECT };
    if set == flags {
        return Ok(());
    }
    // SAFETY: as above.
    checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, set) })
}

pub fn next_data(file: &File, offset: u64) -> io::Result<Option<u64>> {
    seek(file, offset, libc::SEEK_DATA)
}

pub fn next_hole(file: &File, offset: u64) -> io::Result<Option<u64>> {
    seek(file, offset, libc::SEEK_HOLE)
}

pub fn get_xattr(file: &File, name: &str) -> io::Result<Option<Vec<u8>>> {
    let name = CString::new(name)?;
    let mut value = vec![0u8; 256];
    loop {
        // SAFETY: the descriptor is open, the name ends with NUL, and the buffer has the length
        // that is passed.
        let got = unsafe {
            libc::fgetxattr(file.as_raw_fd(), name.as_ptr(), value.as_mut_ptr().cast(), value.len())
        };
        if let Ok(got) = usize::try_from(got) {
            value.truncate(got);
            return Ok(Some(value));
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ENODATA) => return Ok(None),
            // 64 KiB is the kernel's limit (XATTR_SIZE_MAX).
            Some(libc::ERANGE) if value.len() < 1 << 16 => value.resize(1 << 16, 0),
            _ => return Err(error),
        }
    }
}

pub fn set_xattr(file: &File, name: &str, value: &[u8]) -> io::Result<()> {
    let name = CString::new(name)?;
    // SAFETY: the descriptor is open, the name ends with NUL, and the value has the length that is
    // passed.
    checked(unsafe {
        libc::fsetxattr(file.as_raw_fd(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0)
    })
}

/// Sets the times of the file to now, as all that may write to it are permitted.
pub fn touch(file: &File) {
    // SAFETY: the descriptor is open. Without times the call reads no memory.
    let _nothing_relies_on_it = unsafe { libc::futimens(file.as_raw_fd(), std::ptr::null()) };
}

/// Removes an attribute. Removing one that is not set is a success.
pub fn remove_xattr(file: &File, name: &str) -> io::Result<()> {
    let name = CString::new(name)?;
    // SAFETY: the descriptor is open and the name ends with NUL.
    match checked(unsafe { libc::fremovexattr(file.as_raw_fd(), name.as_ptr()) }) {
        Err(error) if error.raw_os_error() == Some(libc::ENODATA) => Ok(()),
        result => result,
    }
}

pub fn file_system(file: &File) -> io::Result<FileSystem> {
    // The field's width and sign differ between architectures; the magic numbers have 32 bits.
    match FileSystem::from_magic(stat_file_system(file)?.f_type as u32) {
        FileSystem::Local("btrfs") => {
            let why = btrfs::unreserved(file);
            Ok(why.map_or(FileSystem::Local("btrfs"), FileSystem::UnreservedBtrfs))
        }
        told => Ok(told),
    }
}

pub(super) fn stat_file_system(file: &File) -> io::Result<libc::statfs> {
    let mut answer = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the descriptor is open, and the structure is writable.
    checked(unsafe { libc::fstatfs(file.as_raw_fd(), answer.as_mut_ptr()) })?;
    // SAFETY: the call succeeded and has filled it in (and zeros are valid for its integers
    // anyway).
    Ok(unsafe { answer.assume_init() })
}

/// Sets the flag `C` of chattr on btrfs. It takes effect on files that are empty.
pub fn write_in_place(file: &File) -> io::Result<()> {
    /// FS_NOCOW_FL of linux/fs.h.
    const NOT_COPIED: libc::c_int = 0x0080_0000;
    let told = FileSystem::from_magic(stat_file_system(file)?.f_type as u32);
    if told != FileSystem::Local("btrfs") {
        return Ok(());
    }
    // The kernel reads and writes an `int`, whatever the request's number says.
    let mut flags: libc::c_int = 0;
    // SAFETY: the descriptor is open, and the flags are writable.
    let got =
        checked(unsafe { libc::ioctl(file.as_raw_fd(), libc::FS_IOC_GETFLAGS, &raw mut flags) });
    let told = got.and_then(|()| {
        flags |= NOT_COPIED;
        // SAFETY: the descriptor is open, and the flags are readable.
        checked(unsafe { libc::ioctl(file.as_raw_fd(), libc::FS_IOC_SETFLAGS, &raw const flags) })
    });
    told.map_err(|error| match error.raw_os_error() {
        // A folder with compressed files, a flag that we may not change, or no such call.
        Some(libc::EINVAL | libc::EPERM | libc::EACCES | libc::ENOTTY) => {
            io::ErrorKind::Unsupported.into()
        }
        _ => error,
    })
}
