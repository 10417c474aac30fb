//! How are mappings and foreign libraries reached? The only home of `unsafe` among the peers.
//!
//! Invariant: mapped bytes are touched by foreign functions only, called through pointers that were
//! looked up at run time. No reference to them exists and no Rust load or store reaches them, so that the
//! compiler assumes nothing of them, whatever other threads and processes do at the same time. Every range
//! is checked against the mapping before.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

type Copy = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> *mut c_void;

/// The C library's copy, which the compiler does not see through when it is called by its address.
fn copy() -> io::Result<Copy> {
    static COPY: OnceLock<Option<Copy>> = OnceLock::new();
    let looked_up = COPY.get_or_init(|| {
        // SAFETY: a name that ends with a zero, and a handle that is always good.
        let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"memcpy".as_ptr()) };
        // SAFETY: C's `memcpy` has this type; an option of a function pointer may be null.
        unsafe { std::mem::transmute::<*mut c_void, Option<Copy>>(address) }
    });
    looked_up.ok_or_else(|| io::Error::other("there is no memcpy to be looked up"))
}

/// Bytes at an address, which somebody else takes care of.
#[derive(Clone, Copy)]
struct Bytes {
    start: NonNull<u8>,
    len: u64,
    copy: Copy,
}

impl Bytes {
    fn at(&self, offset: u64, len: usize) -> *mut u8 {
        let fits = offset.checked_add(len as u64).is_some_and(|end| end <= self.len);
        assert!(fits, "{len} bytes at {offset} of {}", self.len);
        // SAFETY: the offset lies in the range, as was just looked at, or at its end.
        unsafe { self.start.as_ptr().add(offset as usize) }
    }

    fn copy_in(&self, data: &[u8], offset: u64) {
        let to = self.at(offset, data.len());
        // SAFETY: `at` has checked the range, which is mapped as long as its owner lives; `data` is
        // borrowed and is no part of the mapping, to which no references exist.
        unsafe { (self.copy)(to.cast(), data.as_ptr().cast(), data.len()) };
    }

    fn copy_out(&self, to: &mut [u8], offset: u64) {
        let from = self.at(offset, to.len());
        // SAFETY: as in `copy_in`; `to` is borrowed alone. Bytes that somebody changes meanwhile arrive
        // in any mixture, and every mixture is a `u8`.
        unsafe { (self.copy)(to.as_mut_ptr().cast(), from.cast(), to.len()) };
    }
}

/// A shared mapping of a file.
pub struct Mapping(Bytes);

// SAFETY: an address range that is ours until `drop`; see the module's invariant.
unsafe impl Send for Mapping {}
// SAFETY: the same; shared methods read plain fields that never change.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the file, which has at least `len` bytes.
    pub fn new(file: &File, len: u64) -> io::Result<Mapping> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let fd = file.as_raw_fd();
        // SAFETY: a new mapping at an address that the kernel chooses replaces nothing.
        let address = unsafe {
            libc::mmap(ptr::null_mut(), len as usize, protection, libc::MAP_SHARED, fd, 0)
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(address.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Mapping(Bytes { start, len, copy: copy()? }))
    }

    /// Copies in.
    pub fn copy_in(&self, data: &[u8], offset: u64) {
        self.0.copy_in(data, offset);
    }

    /// Copies out.
    pub fn copy_out(&self, to: &mut [u8], offset: u64) {
        self.0.copy_out(to, offset);
    }

    /// Writes the pages of the range back, and waits.
    pub fn sync(&self, range: Range<u64>) -> io::Result<()> {
        let start = range.start / 4096 * 4096;
        let len = (range.end - start) as usize;
        let address = self.0.at(start, len);
        // SAFETY: a part of our mapping, from a page's beginning; nothing is invalidated.
        match unsafe { libc::msync(address.cast(), len, libc::MS_SYNC) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of which nothing is left behind: no method hands out addresses.
        unsafe { libc::munmap(self.0.start.as_ptr().cast(), self.0.len as usize) };
    }
}

/// An object identifier of libpmemobj.
#[derive(Clone, Copy)]
#[repr(C)]
struct Oid {
    pool: u64,
    offset: u64,
}

// libpmemobj's functions, as its header declares them.
type Create =
    unsafe extern "C" fn(*const c_char, *const c_char, usize, libc::mode_t) -> *mut c_void;
type Open = unsafe extern "C" fn(*const c_char, *const c_char) -> *mut c_void;
type Close = unsafe extern "C" fn(*mut c_void);
type Root = unsafe extern "C" fn(*mut c_void, usize) -> Oid;
type Direct = unsafe extern "C" fn(Oid) -> *mut c_void;
type Begin = unsafe extern "C" fn(*mut c_void, *mut c_void, ...) -> c_int;
type Add = unsafe extern "C" fn(*const c_void, usize) -> c_int;
type Commit = unsafe extern "C" fn();
type End = unsafe extern "C" fn() -> c_int;
type Message = unsafe extern "C" fn() -> *const c_char;

/// libpmemobj.
struct Library {
    create: Create,
    open: Open,
    close: Close,
    root: Root,
    direct: Direct,
    begin: Begin,
    add: Add,
    commit: Commit,
    end: End,
    message: Message,
}

/// What ends the parameters of `pmemobj_tx_begin`: `TX_PARAM_NONE`.
const NO_MORE: c_int = 0;
const LAYOUT: &CStr = c"atomic-mmap bench";

impl Library {
    /// Loaded once, with files on every file system counted as persistent memory.
    fn get() -> io::Result<&'static Library> {
        static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
        let library = LIBRARY.get_or_init(|| {
            // SAFETY: the environment is changed once and before any contender's thread runs: files are
            // opened by the thread that measures. C code that reads it (glibc, SQLite) does so in calls
            // of that thread; Rust's own readers are held off by the standard library's lock.
            unsafe { std::env::set_var("PMEM_IS_PMEM_FORCE", "1") };
            // SAFETY: a name that ends with a zero; the library's constructors only set it up.
            let handle = unsafe { libc::dlopen(c"libpmemobj.so.1".as_ptr(), libc::RTLD_NOW) };
            if handle.is_null() {
                return Err("libpmemobj is not installed: apt-get install libpmemobj1".to_owned());
            }
            let find = |name: &CStr| {
                // SAFETY: a live handle, which is never closed, and a name that ends with a zero.
                let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
                if address.is_null() {
                    Err(format!("libpmemobj without {name:?}"))
                } else {
                    Ok(address)
                }
            };
            macro_rules! function {
                ($type:ty, $name:literal) => {
                    // SAFETY: not null, and the field's type is that of libpmemobj.h (stable since 1.0).
                    unsafe { std::mem::transmute::<*mut c_void, $type>(find($name)?) }
                };
            }
            Ok(Library {
                create: function!(Create, c"pmemobj_create"),
                open: function!(Open, c"pmemobj_open"),
                close: function!(Close, c"pmemobj_close"),
                root: function!(Root, c"pmemobj_root"),
                direct: function!(Direct, c"pmemobj_direct"),
                begin: function!(Begin, c"pmemobj_tx_begin"),
                add: function!(Add, c"pmemobj_tx_add_range_direct"),
                commit: function!(Commit, c"pmemobj_tx_commit"),
                end: function!(End, c"pmemobj_tx_end"),
                message: function!(Message, c"pmemobj_errormsg"),
            })
        });
        library.as_ref().map_err(|missing| io::Error::new(io::ErrorKind::Unsupported, &**missing))
    }

    fn message(&self) -> String {
        // SAFETY: no precondition; a string of the calling thread that ends with a zero, or null.
        let message = unsafe { (self.message)() };
        if message.is_null() {
            return "libpmemobj says nothing".to_owned();
        }
        // SAFETY: not null, and valid until this thread's next call of the library.
        unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned()
    }
}

/// A pool of libpmemobj whose root object is the file's bytes.
pub struct Pool {
    library: &'static Library,
    pool: NonNull<c_void>,
    bytes: Bytes,
}

// SAFETY: libpmemobj allows every call on a pool from every thread; transactions are the calling
// thread's, and are begun and ended within one call of ours.
unsafe impl Send for Pool {}
// SAFETY: the same.
unsafe impl Sync for Pool {}

impl Pool {
    /// Creates a pool with a root object of `len` zeros, and closes it.
    pub fn create(path: &Path, len: u64, size: u64) -> io::Result<()> {
        let library = Library::get()?;
        let name = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: strings that end with a zero; the library checks the rest.
        let pool =
            unsafe { (library.create)(name.as_ptr(), LAYOUT.as_ptr(), size as usize, 0o600) };
        drop(Pool::with_root(library, pool, len)?);
        Ok(())
    }

    /// Opens a pool, which undoes the transactions that had not committed when their process died.
    pub fn open(path: &Path, len: u64) -> io::Result<Pool> {
        let library = Library::get()?;
        let name = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: strings that end with a zero; the library checks the rest.
        let pool = unsafe { (library.open)(name.as_ptr(), LAYOUT.as_ptr()) };
        Pool::with_root(library, pool, len)
    }

    fn with_root(library: &'static Library, pool: *mut c_void, len: u64) -> io::Result<Pool> {
        let copy = copy()?;
        let pool = NonNull::new(pool).ok_or_else(|| io::Error::other(library.message()))?;
        // SAFETY: a pool that was just opened; its root is allocated, zeroed, or found.
        let root = unsafe { (library.root)(pool.as_ptr(), len as usize) };
        // SAFETY: an identifier that the library gave, of an open pool, or null.
        let address = unsafe { (library.direct)(root) };
        let Some(start) = NonNull::new(address.cast()) else {
            let message = library.message();
            // SAFETY: open, and nobody has it.
            unsafe { (library.close)(pool.as_ptr()) };
            return Err(io::Error::other(message));
        };
        Ok(Pool { library, pool, bytes: Bytes { start, len, copy } })
    }

    /// Changes all parts in one transaction.
    pub fn commit(&self, parts: &[(u64, &[u8])]) {
        let library = self.library;
        let check = |result: c_int| assert!(result == 0, "libpmemobj: {}", library.message());
        // SAFETY: an open pool; without a place to jump to, an error is returned, and we panic.
        check(unsafe { (library.begin)(self.pool.as_ptr(), ptr::null_mut(), NO_MORE) });
        for (offset, data) in parts {
            let to = self.bytes.at(*offset, data.len());
            // SAFETY: within the root object, as `at` has checked, and in this thread's transaction.
            check(unsafe { (library.add)(to.cast(), data.len()) });
            self.bytes.copy_in(data, *offset);
        }
        // SAFETY: this thread's transaction is at work: every error before has panicked.
        unsafe { (library.commit)() };
        // SAFETY: it has committed or aborted, which the result tells.
        check(unsafe { (library.end)() });
    }

    /// Copies out.
    pub fn copy_out(&self, to: &mut [u8], offset: u64) {
        self.bytes.copy_out(to, offset);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: open since it was made, and nobody else has it.
        unsafe { (self.library.close)(self.pool.as_ptr()) };
    }
}

/// Opens an environment of LMDB that writes through its mapping: durable and atomic all the same, and in a
/// third of the time here.
#[cfg(feature = "peers")]
pub fn lmdb(folder: &Path, map_size: usize) -> heed::Result<heed::Env> {
    let mut options = heed::EnvOpenOptions::new();
    options.map_size(map_size);
    // SAFETY: `WRITE_MAP` takes no lock and no sync away; what it asks for is that nobody stores to the
    // mapping past LMDB, and no address in it is handed out for more than a transaction's shared borrow.
    let options = unsafe { options.flags(heed::EnvFlags::WRITE_MAP) };
    // SAFETY: the folder is the bench's own scratch, and nobody else touches its files.
    unsafe { options.open(folder) }
}
