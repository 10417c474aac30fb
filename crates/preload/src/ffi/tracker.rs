//! Which pages of a memory the program has stored to, as the kernel tells it.
//!
//! Linux 6.7 has write protection that a store removes by itself: `userfaultfd` with
//! `UFFD_FEATURE_WP_ASYNC`. `PAGEMAP_SCAN` returns the pages without it, and protects them again,
//! as one step for each page. So no store is missed.

use super::real;
use crate::errno::{Errno, Result};
use crate::inside::Inside;
use crate::pair;
use libc::{c_int, c_ulong};
use parking_lot::Mutex;
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

// The names and numbers of `linux/userfaultfd.h` and `linux/fs.h`.
const UFFD_API: u64 = 0xaa;
const UFFD_USER_MODE_ONLY: usize = 1;
const UFFD_FEATURE_WP_UNPOPULATED: u64 = 1 << 13;
const UFFD_FEATURE_WP_ASYNC: u64 = 1 << 15;
const UFFDIO_REGISTER_MODE_WP: u64 = 2;
const UFFDIO_WRITEPROTECT_MODE_WP: u64 = 1;
const UFFDIO_API: c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: c_ulong = 0xc020_aa00;
const UFFDIO_WRITEPROTECT: c_ulong = 0xc018_aa06;
const PAGEMAP_SCAN: c_ulong = 0xc060_6610;
const PM_SCAN_WP_MATCHING: u64 = 1;
const PM_SCAN_CHECK_WPASYNC: u64 = 2;
const PAGE_IS_WRITTEN: u64 = 2;

/// Most ranges that one call returns.
const RANGES: usize = 64;
/// Most trackers of a process: each takes a descriptor.
const MOST: usize = 64;

/// The trackers. Relaxed: it counts, and orders nothing.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// The page map of this process, while it has a tracker, with the generation of the process.
/// Locked inside the gate of `pair`, so that no fork leaves it locked.
static PAGEMAP: Mutex<(u64, Weak<File>)> = Mutex::new((0, Weak::new()));

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Pages {
    start: u64,
    end: u64,
    categories: u64,
}

/// The kernel's tracking of one memory. It ends with this value.
#[derive(Debug)]
pub(super) struct Tracker {
    /// The descriptor of `userfaultfd`.
    faults: Option<OwnedFd>,
    pagemap: Option<Arc<File>>,
}

/// Opens the page map, or shares it.
fn pagemap() -> Result<Arc<File>> {
    let mut known = PAGEMAP.lock();
    if let Some(pagemap) = known.1.upgrade().filter(|_| known.0 == pair::generation()) {
        return Ok(pagemap);
    }
    let opened = File::open("/proc/self/pagemap").map(Arc::new);
    let number = |error: std::io::Error| Errno(error.raw_os_error().unwrap_or(libc::EIO));
    let pagemap = opened.map_err(number)?;
    *known = (pair::generation(), Arc::downgrade(&pagemap));
    Ok(pagemap)
}

/// Calls `ioctl`, and returns its result.
///
/// # Safety
/// `argument` is what the request takes.
unsafe fn ask<T>(fd: c_int, request: c_ulong, argument: &mut T) -> Result<usize> {
    // SAFETY: as the caller promises.
    let told = unsafe { real::ioctl(fd, request, std::ptr::from_mut(argument) as usize) };
    usize::try_from(told).map_err(|_| Errno(super::errno()))
}

impl Tracker {
    /// Begins to track whole pages. All of them count as not stored to.
    ///
    /// # Errors
    /// The kernel cannot do it, or may not. `EMFILE` if there are too many, or if no descriptor in
    /// the upper quarter is free: those below are the program's.
    pub fn begin(addresses: &Range<usize>) -> Result<Tracker> {
        let _inside = Inside::enter(); // the descriptors are the library's own
        let flags = UFFD_USER_MODE_ONLY | libc::O_CLOEXEC as usize;
        let (start, len) = (addresses.start as u64, addresses.len() as u64);
        let is_too_many = COUNT.fetch_add(1, Ordering::Relaxed) >= MOST;
        // It counts, and its fields are closed inside.
        let mut tracker = Tracker { faults: None, pagemap: None };
        if is_too_many {
            return Err(Errno(libc::EMFILE));
        }
        // SAFETY: the first call has no pointers, and its result is a descriptor that nothing else
        // has. The others have the structures of their requests.
        unsafe {
            let fd = real::syscall(libc::SYS_userfaultfd, flags, 0, 0, 0, 0, 0) as c_int;
            if fd < 0 {
                return Err(Errno(super::errno()));
            }
            let moved = super::open::hide(fd);
            tracker.faults = Some(OwnedFd::from_raw_fd(moved));
            if moved == fd {
                return Err(Errno(libc::EMFILE));
            }
            let fd = moved;
            let features = UFFD_FEATURE_WP_ASYNC | UFFD_FEATURE_WP_UNPOPULATED;
            ask(fd, UFFDIO_API, &mut [UFFD_API, features, 0])?;
            ask(fd, UFFDIO_REGISTER, &mut [start, len, UFFDIO_REGISTER_MODE_WP, 0])?;
            ask(fd, UFFDIO_WRITEPROTECT, &mut [start, len, UFFDIO_WRITEPROTECT_MODE_WP])?;
            tracker.pagemap = Some(pagemap()?);
            // A kernel before 6.7 has no such request, and any other finds no page.
            let mut found = Vec::new();
            tracker.scan(addresses, &mut found)?;
            Ok(tracker)
        }
    }

    /// Adds the pages that were stored to since the last call for them, and protects them again.
    /// After an error some pages are added.
    pub fn scan(&self, addresses: &Range<usize>, to: &mut Vec<Range<usize>>) -> Result<()> {
        let pagemap = self.pagemap.as_ref().ok_or(Errno(libc::ENOSYS))?.as_raw_fd();
        let mut pages = [Pages::default(); RANGES];
        let mut scan = Scan {
            size: size_of::<Scan>() as u64,
            flags: PM_SCAN_WP_MATCHING | PM_SCAN_CHECK_WPASYNC,
            start: addresses.start as u64,
            end: addresses.end as u64,
            vec: pages.as_mut_ptr() as u64,
            vec_len: RANGES as u64,
            category_mask: PAGE_IS_WRITTEN,
            return_mask: PAGE_IS_WRITTEN,
            ..Scan::default()
        };
        while scan.start < scan.end {
            // SAFETY: the request has a structure of its size, and a vector with its length.
            let count = unsafe { ask(pagemap, PAGEMAP_SCAN, &mut scan)? };
            to.extend(pages[..count].iter().map(|pages| pages.start as usize..pages.end as usize));
            if scan.walk_end <= scan.start {
                return Err(Errno::IO); // it would go on for ever
            }
            scan.start = scan.walk_end;
        }
        Ok(())
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        COUNT.fetch_sub(1, Ordering::Relaxed);
        let _inside = Inside::enter();
        drop((self.faults.take(), self.pagemap.take()));
    }
}
