//! Acumen's three calls: `ato_mmap`, `ato_memcpy`, `ato_munmap`.
//!
//! A mapping is a range of addresses without access. An address in it is a name for a place in the
//! file, which [`ato_memcpy`] understands. A plain `memcpy` to it is a fault, where in a real
//! mapping it would change the file behind the library's back.
//!
//! Invariant: a range is in `MAPPINGS` exactly while it is reserved. So no address of another use
//! of the memory is taken for a place in a file.

use crate::boundary::{Failure, Result, Shared, ato_file, call, close};
use crate::memory;
use crate::options;
use atomic_mmap::{AtomicMappedFile, DeployPolicy};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

/// `ato_mmap`: creates a file that does not exist, and makes a shorter one longer.
pub const ATO_MAP_CREATE: c_int = 1;
/// `ato_mmap`: opens the file for reading alone.
pub const ATO_MAP_READ_ONLY: c_int = 2;
/// `ato_mmap`: deploys after every write, so that no read has to.
pub const ATO_MAP_EAGER: c_int = 4;

/// `ato_memcpy`: deploys what it has written, so that no read has to.
pub const ATO_EAGER: c_int = 1;

/// A range of addresses that names the bytes of a file.
struct Mapping {
    /// Length of the range in bytes, as the program has asked for it.
    len: usize,
    shared: Arc<Shared>,
    /// The handle that `ato_mmap` gave out, if it did.
    handle: Handle,
}

struct Handle(*mut ato_file);

// SAFETY: the pointer is not used before `ato_munmap` gives the handle up.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

/// The mappings, by their addresses.
static MAPPINGS: RwLock<BTreeMap<usize, Mapping>> = RwLock::new(BTreeMap::new());

/// Reserves addresses without access.
fn reserve(len: usize) -> Result<usize> {
    // SAFETY: a mapping anywhere, of no file and without access, touches nothing that is there.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if address == libc::MAP_FAILED {
        let error = std::io::Error::last_os_error();
        let text = format!("{len} bytes of address space: {error}");
        return Err(Failure::new(error.raw_os_error().unwrap_or(libc::ENOMEM), text));
    }
    Ok(address as usize)
}

/// Gives the addresses back that `reserve` returned.
fn release(address: usize, len: usize) {
    // SAFETY: the range was reserved, and no memory was ever accessed through it.
    let ended = unsafe { libc::munmap(address as *mut c_void, len) };
    debug_assert_eq!(ended, 0, "the range was reserved");
}

/// A place in a file that an address names.
struct Place {
    shared: Arc<Shared>,
    offset: u64,
}

/// Returns the place that `len` bytes at an address name, or `None` if the address lies in no
/// mapping. Bytes that begin in a mapping and end past it are an error.
fn place(address: usize, len: usize) -> Result<Option<Place>> {
    let mappings = MAPPINGS.read();
    let Some((start, mapping)) = mappings.range(..=address).next_back() else { return Ok(None) };
    let offset = address - start;
    if offset >= mapping.len {
        return Ok(None);
    }
    if len > mapping.len - offset {
        let text = format!(
            "{}: {len} bytes at offset {offset} end past the {} bytes of the mapping",
            atomic_mmap::shown(mapping.shared.file().path()),
            mapping.len
        );
        return Err(Failure::new(libc::ERANGE, text));
    }
    Ok(Some(Place { shared: Arc::clone(&mapping.shared), offset: offset as u64 }))
}

/// Opens a file, and returns an address that stands for its first byte, or NULL after an error. See
/// `ato_last_error`.
///
/// The addresses from there on, `len` bytes, stand for the bytes of the file, in `ato_memcpy`
/// alone. Any other access to them is a fault. With a `len` of 0 there are as many as the file has
/// bytes.
///
/// `flags` are of `ATO_MAP_`... . If `file` is not NULL it gets the handle of the file, for all
/// other calls. The handle is valid until `ato_munmap`, and `ato_close` refuses it.
///
/// # Safety
/// `path` is a text. `file` is NULL, or names memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_mmap(
    path: *const c_char,
    len: usize,
    flags: c_int,
    file: *mut *mut ato_file,
) -> *mut c_void {
    let mut address = 0;
    call(|| {
        if !file.is_null() {
            // SAFETY: the caller names a place for a pointer.
            unsafe { memory::put(file, std::ptr::null_mut()) };
        }
        if flags & !(ATO_MAP_CREATE | ATO_MAP_READ_ONLY | ATO_MAP_EAGER) != 0 {
            return Err(Failure::argument(format!("there are no flags {flags:#x}")));
        }
        let is_to_create = flags & ATO_MAP_CREATE != 0;
        let mut options = AtomicMappedFile::options()
            .create(is_to_create)
            .len(if is_to_create { len as u64 } else { 0 })
            .read_only(flags & ATO_MAP_READ_ONLY != 0);
        if flags & ATO_MAP_EAGER != 0 {
            options = options.deploy(DeployPolicy::Eager);
        }
        // SAFETY: the caller names a text.
        let path = unsafe { memory::path(path) }?;
        let opened = options.open(path)?;
        let len = if len == 0 { opened.len() as usize } else { len };
        if len == 0 {
            let text = format!("{}: has no bytes that could be mapped", atomic_mmap::shown(path));
            return Err(Failure::argument(text));
        }
        let start = reserve(len)?;
        let shared = Shared::new(opened);
        let handle = match file.is_null() {
            true => std::ptr::null_mut(),
            false => {
                let shared = Arc::clone(&shared);
                Box::into_raw(Box::new(ato_file { shared, is_mapped: true }))
            }
        };
        MAPPINGS.write().insert(start, Mapping { len, shared, handle: Handle(handle) });
        // SAFETY: the caller names a place for a pointer, or none.
        unsafe { memory::put(file, handle) };
        address = start;
        Ok(())
    });
    address as *mut c_void
}

/// Copies bytes to a mapping, from a mapping, or from one to another. Returns `to`, or NULL after
/// an error. See `ato_last_error`.
///
/// To a mapping: all of them arrive or none, whatever crashes. From a mapping: no write is seen in
/// part. The two ranges may overlap. With `ATO_EAGER` in `flags` the bytes are deployed at once, as
/// by `ato_write_eager`. They are written if the call succeeds, deployed or not.
///
/// An error if neither address lies in a mapping: a plain `memcpy` does that.
///
/// # Safety
/// An address that lies in no mapping names `len` bytes, which nothing else changes, or uses if it
/// is `to`, during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_memcpy(
    to: *mut c_void,
    from: *const c_void,
    len: usize,
    flags: c_int,
) -> *mut c_void {
    let code = call(|| {
        if flags & !ATO_EAGER != 0 {
            return Err(Failure::argument(format!("there are no flags {flags:#x}")));
        }
        let write = |to: &Place, bytes: &[u8]| {
            to.shared.with(|file| {
                match flags & ATO_EAGER {
                    0 => file.write_at(bytes, to.offset)?,
                    _ => file.write_at_eager(bytes, to.offset)?,
                }
                Ok(())
            })
        };
        let read = |from: &Place, bytes: &mut [u8]| {
            from.shared.with(|file| Ok(file.read_at(bytes, from.offset)?))
        };
        match (place(to as usize, len)?, place(from as usize, len)?) {
            // SAFETY: the caller names `len` bytes.
            (Some(to), None) => write(&to, unsafe { memory::bytes(from, len) }?),
            // SAFETY: the caller names `len` bytes for this call alone.
            (None, Some(from)) => read(&from, unsafe { memory::bytes_mut(to, len) }?),
            (Some(to), Some(from)) => {
                let mut bytes = Vec::new();
                if bytes.try_reserve_exact(len).is_err() {
                    let text = format!("no memory for a copy of {len} bytes");
                    return Err(Failure::new(libc::ENOMEM, text));
                }
                bytes.resize(len, 0);
                read(&from, &mut bytes)?;
                write(&to, &bytes)
            }
            (None, None) => Err(Failure::argument("neither address lies in a mapping")),
        }
    });
    if code == 0 { to } else { std::ptr::null_mut() }
}

/// Ends a mapping, and closes its file in one of the ways `ATO_CLOSE_`... . `len` is the length
/// that `ato_mmap` got, or 0: a mapping ends as a whole.
///
/// The mapping has ended afterwards, also after an error. Exception: `-EBUSY` while a transaction
/// is open, a stage is not dropped, or another thread copies, and `-EINVAL`. The mapping then
/// stays.
///
/// # Safety
/// No thread uses the handle of the mapping during or after the call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_munmap(address: *mut c_void, len: usize, mode: c_int) -> c_int {
    call(|| {
        let mode = options::close_mode(mode)?;
        let start = address as usize;
        let mapping = {
            let mut mappings = MAPPINGS.write();
            let Some(mapping) = mappings.get(&start) else {
                return Err(Failure::argument("no mapping begins at the address"));
            };
            if len != 0 && len != mapping.len {
                let text = format!(
                    "the mapping has {} bytes, and {len} of them cannot end alone",
                    mapping.len
                );
                return Err(Failure::argument(text));
            }
            let own = if mapping.handle.0.is_null() { 1 } else { 2 };
            // The lock is held, so no copy begins meanwhile.
            if Arc::strong_count(&mapping.shared) > own {
                let text = "a copy, a transaction or a stage of the mapping is under way";
                return Err(Failure::new(libc::EBUSY, text));
            }
            mappings.remove(&start).ok_or_else(|| Failure::argument("the mapping has ended"))?
        };
        // After the removal: the addresses may be another mapping's as soon as they are free.
        release(start, mapping.len);
        if !mapping.handle.0.is_null() {
            // SAFETY: `ato_mmap` made it by `Box`, and the caller gives it up.
            drop(unsafe { Box::from_raw(mapping.handle.0) });
        }
        match Arc::try_unwrap(mapping.shared) {
            Ok(shared) => close(shared.into_file(), mode),
            Err(_) => unreachable!("nothing else had the file, and nothing could get it"),
        }
    })
}
