//! RocksDB by its C interface, loaded at run time. So a build does not need it.
//!
//! All groups share one database. A key is the group and the index, as in openraft's example, where
//! a group has a database of its own. `librocksdb7.8` is Debian's package.

use super::logs::{Any, Log, command};
use std::ffi::{CStr, CString, c_char, c_uchar, c_void};
use std::path::Path;
use std::ptr::null_mut;

const LIBRARIES: [&CStr; 3] = [c"librocksdb.so", c"librocksdb.so.8.9", c"librocksdb.so.7.8"];

type Handle = *mut c_void;
type Message = *mut c_char;

/// The functions of the library that are called here.
struct Functions {
    write: unsafe extern "C" fn(Handle, Handle, Handle, *mut Message),
    get:
        unsafe extern "C" fn(Handle, Handle, *const u8, usize, *mut usize, *mut Message) -> Message,
    new_batch: unsafe extern "C" fn() -> Handle,
    put: unsafe extern "C" fn(Handle, *const u8, usize, *const u8, usize),
    delete_range: unsafe extern "C" fn(Handle, *const u8, usize, *const u8, usize),
    drop_batch: unsafe extern "C" fn(Handle),
    free: unsafe extern "C" fn(*mut c_void),
    close: unsafe extern "C" fn(Handle),
}

pub struct Rocks {
    db: Handle,
    write_options: Handle,
    read_options: Handle,
    call: Functions,
}

// SAFETY: RocksDB's handles may be used by any thread. The options are only read.
unsafe impl Send for Rocks {}
// SAFETY: see above.
unsafe impl Sync for Rocks {}

/// Loads the library.
fn load() -> Any<Handle> {
    for name in LIBRARIES {
        // SAFETY: the name ends with NUL. The library's constructors need nothing of this program.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        if !library.is_null() {
            return Ok(library);
        }
    }
    Err("librocksdb is not installed (Debian: librocksdb7.8)".into())
}

/// Returns a function of the library.
///
/// # Safety
/// `F` is the function's type in `rocksdb/c.h`.
unsafe fn function<F: Copy>(library: Handle, name: &CStr) -> Any<F> {
    // SAFETY: the library is loaded, and stays so.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    if address.is_null() {
        return Err(format!("librocksdb has no {}", name.to_string_lossy()).into());
    }
    // SAFETY: a pointer to a function has the size of a pointer, and the caller promises the type.
    Ok(unsafe { std::mem::transmute_copy::<*mut c_void, F>(&address) })
}

impl Functions {
    fn of(library: Handle) -> Any<Functions> {
        // SAFETY: the types are those of `rocksdb/c.h`.
        unsafe {
            Ok(Functions {
                write: function(library, c"rocksdb_write")?,
                get: function(library, c"rocksdb_get")?,
                new_batch: function(library, c"rocksdb_writebatch_create")?,
                put: function(library, c"rocksdb_writebatch_put")?,
                delete_range: function(library, c"rocksdb_writebatch_delete_range")?,
                drop_batch: function(library, c"rocksdb_writebatch_destroy")?,
                free: function(library, c"rocksdb_free")?,
                close: function(library, c"rocksdb_close")?,
            })
        }
    }
}

fn key(group: usize, index: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&(group as u64).to_be_bytes());
    key[8..].copy_from_slice(&index.to_be_bytes());
    key
}

/// Returns the error that a call has left, or nothing.
fn told(message: Message) -> Any<()> {
    if message.is_null() {
        return Ok(());
    }
    // SAFETY: RocksDB's messages end with NUL.
    Err(unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned().into())
}

impl Rocks {
    pub fn open(dir: &Path) -> Any<Rocks> {
        type New = unsafe extern "C" fn() -> Handle;
        type Flag = unsafe extern "C" fn(Handle, c_uchar);
        type Open = unsafe extern "C" fn(Handle, *const c_char, *mut Message) -> Handle;
        let library = load()?;
        let path = CString::new(dir.display().to_string())?;
        let mut message = null_mut();
        // SAFETY: the types are those of `rocksdb/c.h`, and the path ends with NUL.
        let (db, write_options, read_options) = unsafe {
            let options = function::<New>(library, c"rocksdb_options_create")?();
            function::<Flag>(library, c"rocksdb_options_set_create_if_missing")?(options, 1);
            let write_options = function::<New>(library, c"rocksdb_writeoptions_create")?();
            function::<Flag>(library, c"rocksdb_writeoptions_set_sync")?(write_options, 1);
            let read_options = function::<New>(library, c"rocksdb_readoptions_create")?();
            let open = function::<Open>(library, c"rocksdb_open")?;
            (open(options, path.as_ptr(), &raw mut message), write_options, read_options)
        };
        told(message)?;
        Ok(Rocks { db, write_options, read_options, call: Functions::of(library)? })
    }

    /// Fills a batch, and writes it durably.
    fn write(&self, fill: impl FnOnce(Handle)) -> Any<()> {
        let mut message = null_mut();
        // SAFETY: all handles are open, and the batch is this call's.
        unsafe {
            let batch = (self.call.new_batch)();
            fill(batch);
            (self.call.write)(self.db, self.write_options, batch, &raw mut message);
            (self.call.drop_batch)(batch);
        }
        told(message)
    }
}

impl Log for Rocks {
    fn append(&self, group: usize, first: u64, count: u64) -> Any<()> {
        self.write(|batch| {
            for index in first..first + count {
                let (key, value) = (key(group, index), command(index));
                let (k, v) = (key.as_ptr(), value.as_ptr());
                // SAFETY: both are readable for their lengths. The batch copies them.
                unsafe { (self.call.put)(batch, k, key.len(), v, value.len()) };
            }
        })
    }

    fn purge(&self, group: usize, end: u64) -> Any<()> {
        self.write(|batch| {
            let (from, to) = (key(group, 0), key(group, end));
            let (f, t) = (from.as_ptr(), to.as_ptr());
            // SAFETY: both are readable for their lengths. The batch copies them.
            unsafe { (self.call.delete_range)(batch, f, from.len(), t, to.len()) };
        })
    }

    fn get(&self, group: usize, index: u64) -> Any<Option<Vec<u8>>> {
        let (key, mut len, mut message) = (key(group, index), 0, null_mut());
        // SAFETY: the key is readable, and length and message are writable.
        let value = unsafe {
            let (k, options) = (key.as_ptr(), self.read_options);
            (self.call.get)(self.db, options, k, key.len(), &raw mut len, &raw mut message)
        };
        told(message)?;
        if value.is_null() {
            return Err("no entry".into());
        }
        // SAFETY: RocksDB returns `len` bytes, which the caller frees.
        unsafe {
            let bytes = std::slice::from_raw_parts(value.cast::<u8>(), len).to_vec();
            (self.call.free)(value.cast());
            Ok(Some(bytes))
        }
    }
}

impl Drop for Rocks {
    fn drop(&mut self) {
        // SAFETY: no call is under way, and the handle is not used again.
        unsafe { (self.call.close)(self.db) };
    }
}
