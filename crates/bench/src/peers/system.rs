//! Mappings and foreign libraries: the only place of `unsafe` among the peers.
//!
//! Invariant: only foreign functions touch mapped bytes, through pointers that were looked up at
//! run time. No reference to these bytes exists, and no Rust load or store reaches them. So the
//! compiler assumes nothing about them, even if other threads and processes change them. Every
//! range is checked against the mapping before.

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

/// Returns the C library's copy. The compiler cannot see through a call by its address.
fn copy() -> io::Result<Copy> {
    static COPY: OnceLock<Option<Copy>> = OnceLock::new();
    let looked_up = COPY.get_or_init(|| {
        // SAFETY: the name ends with a zero, and the handle is always valid.
        let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"memcpy".as_ptr()) };
        // SAFETY: C's `memcpy` has this type. An option of a function pointer may be null.
        unsafe { std::mem::transmute::<*mut c_void, Option<Copy>>(address) }
    });
    looked_up.ok_or_else(|| io::Error::other("there is no memcpy to be looked up"))
}

/// Bytes at an address. Their owner keeps them mapped.
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
        // SAFETY: the offset lies in the range or at its end, as the check above shows.
        unsafe { self.start.as_ptr().add(offset as usize) }
    }

    fn copy_in(&self, data: &[u8], offset: u64) {
        let to = self.at(offset, data.len());
        // SAFETY: `at` has checked the range, which is mapped while its owner lives. `data` is
        // borrowed and is not part of the mapping, to which no references exist.
        unsafe { (self.copy)(to.cast(), data.as_ptr().cast(), data.len()) };
    }

    fn copy_out(&self, to: &mut [u8], offset: u64) {
        let from = self.at(offset, to.len());
        // SAFETY: as in `copy_in`, and `to` is borrowed exclusively. Bytes that change meanwhile
        // arrive in any mixture, and every mixture is a valid `u8`.
        unsafe { (self.copy)(to.as_mut_ptr().cast(), from.cast(), to.len()) };
    }
}

/// A shared mapping of a file.
pub struct Mapping(Bytes);

// SAFETY: the address range is ours until `drop`; see the module's invariant.
unsafe impl Send for Mapping {}
// SAFETY: as above. Shared methods read plain fields that never change.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the file, which has at least `len` bytes.
    pub fn new(file: &File, len: u64) -> io::Result<Mapping> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let fd = file.as_raw_fd();
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
        let address = unsafe {
            libc::mmap(ptr::null_mut(), len as usize, protection, libc::MAP_SHARED, fd, 0)
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(address.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Mapping(Bytes { start, len, copy: copy()? }))
    }

    /// Copies bytes into the mapping.
    pub fn copy_in(&self, data: &[u8], offset: u64) {
        self.0.copy_in(data, offset);
    }

    /// Copies bytes out of the mapping.
    pub fn copy_out(&self, to: &mut [u8], offset: u64) {
        self.0.copy_out(to, offset);
    }

    /// Writes the pages of the range back, and waits for them.
    pub fn sync(&self, range: Range<u64>) -> io::Result<()> {
        let start = range.start / 4096 * 4096;
        let len = (range.end - start) as usize;
        let address = self.0.at(start, len);
        // SAFETY: the range is a part of our mapping, from the start of a page. The call
        // invalidates nothing.
        match unsafe { libc::msync(address.cast(), len, libc::MS_SYNC) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no method hands out its addresses.
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

// The functions of libpmemobj, as its header declares them.
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

/// The loaded functions of libpmemobj.
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

/// The end of the parameters of `pmemobj_tx_begin`: `TX_PARAM_NONE`.
const NO_MORE: c_int = 0;
const LAYOUT: &CStr = c"atomic-mmap bench";

impl Library {
    /// Loads the library once. It treats files on every file system as persistent memory.
    fn get() -> io::Result<&'static Library> {
        static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
        let library = LIBRARY.get_or_init(|| {
            // SAFETY: the environment changes once, before any contender's thread runs: the
            // measuring thread opens the files. C code that reads it (glibc, SQLite) does so in
            // calls of that thread. The lock of the standard library excludes Rust's own readers.
            unsafe { std::env::set_var("PMEM_IS_PMEM_FORCE", "1") };
            // SAFETY: the name ends with a zero. The library's constructors only initialise it.
            let handle = unsafe { libc::dlopen(c"libpmemobj.so.1".as_ptr(), libc::RTLD_NOW) };
            if handle.is_null() {
                return Err("libpmemobj is not installed: apt-get install libpmemobj1".to_owned());
            }
            let find = |name: &CStr| {
                // SAFETY: the handle is live and never closed, and the name ends with a zero.
                let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
                if address.is_null() {
                    Err(format!("libpmemobj without {name:?}"))
                } else {
                    Ok(address)
                }
            };
            macro_rules! function {
                ($type:ty, $name:literal) => {
                    // SAFETY: not null, and the field has the type in libpmemobj.h, stable since
                    // 1.0.
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
        // SAFETY: no precondition. Returns the calling thread's string, which ends with a zero, or
        // null.
        let message = unsafe { (self.message)() };
        if message.is_null() {
            return "libpmemobj says nothing".to_owned();
        }
        // SAFETY: not null, and valid until this thread's next call of the library.
        unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned()
    }
}

/// A pool of libpmemobj with the file's bytes as its root object.
pub struct Pool {
    library: &'static Library,
    pool: NonNull<c_void>,
    bytes: Bytes,
}

// SAFETY: libpmemobj allows every call on a pool from every thread. A transaction belongs to the
// calling thread, and starts and ends within one call of ours.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    /// Creates a pool with a root object of `len` zeros, and closes it.
    pub fn create(path: &Path, len: u64, size: u64) -> io::Result<()> {
        let library = Library::get()?;
        let name = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: the strings end with a zero, and the library checks the rest.
        let pool =
            unsafe { (library.create)(name.as_ptr(), LAYOUT.as_ptr(), size as usize, 0o600) };
        drop(Pool::with_root(library, pool, len)?);
        Ok(())
    }

    /// Opens a pool. This undoes the transactions that had not committed when their process died.
    pub fn open(path: &Path, len: u64) -> io::Result<Pool> {
        let library = Library::get()?;
        let name = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: the strings end with a zero, and the library checks the rest.
        let pool = unsafe { (library.open)(name.as_ptr(), LAYOUT.as_ptr()) };
        Pool::with_root(library, pool, len)
    }

    fn with_root(library: &'static Library, pool: *mut c_void, len: u64) -> io::Result<Pool> {
        let copy = copy()?;
        let pool = NonNull::new(pool).ok_or_else(|| io::Error::other(library.message()))?;
        // SAFETY: the pool was just opened. Its root is allocated and zeroed, or found.
        let root = unsafe { (library.root)(pool.as_ptr(), len as usize) };
        // SAFETY: the library returned this identifier of an open pool, or null.
        let address = unsafe { (library.direct)(root) };
        let Some(start) = NonNull::new(address.cast()) else {
            let message = library.message();
            // SAFETY: the pool is open, and no other code uses it.
            unsafe { (library.close)(pool.as_ptr()) };
            return Err(io::Error::other(message));
        };
        Ok(Pool { library, pool, bytes: Bytes { start, len, copy } })
    }

    /// Changes all parts in one transaction.
    pub fn commit(&self, parts: &[(u64, &[u8])]) {
        let library = self.library;
        let check = |result: c_int| assert!(result == 0, "libpmemobj: {}", library.message());
        // SAFETY: the pool is open. Without a jump buffer an error is returned, and we panic.
        check(unsafe { (library.begin)(self.pool.as_ptr(), ptr::null_mut(), NO_MORE) });
        for (offset, data) in parts {
            let to = self.bytes.at(*offset, data.len());
            // SAFETY: `at` has checked that the range is within the root object, and the
            // transaction is this thread's.
            check(unsafe { (library.add)(to.cast(), data.len()) });
            self.bytes.copy_in(data, *offset);
        }
        // SAFETY: this thread's transaction is active, because every earlier error has panicked.
        unsafe { (library.commit)() };
        // SAFETY: the transaction has committed or aborted, as the result tells.
        check(unsafe { (library.end)() });
    }

    /// Copies bytes out of the pool.
    pub fn copy_out(&self, to: &mut [u8], offset: u64) {
        self.bytes.copy_out(to, offset);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the pool is open since its creation, and no other code uses it.
        unsafe { (self.library.close)(self.pool.as_ptr()) };
    }
}

/// Opens an LMDB environment that writes through its mapping. It is still durable and atomic, and
/// takes a third of the time here.
#[cfg(feature = "peers")]
pub fn lmdb(folder: &Path, map_size: usize) -> heed::Result<heed::Env> {
    let mut options = heed::EnvOpenOptions::new();
    options.map_size(map_size);
    // SAFETY: `WRITE_MAP` disables no lock and no sync. It requires that no other code stores to
    // the mapping. No address in it is handed out for more than a transaction's shared borrow.
    let options = unsafe { options.flags(heed::EnvFlags::WRITE_MAP) };
    // SAFETY: the folder is the bench's own scratch, and no other code uses its files.
    unsafe { options.open(folder) }
}
