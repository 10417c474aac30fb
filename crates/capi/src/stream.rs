//! Streams between files: a snapshot, or what has changed since another one, through a descriptor.
//!
//! Invariant: a descriptor stays the program's, which closes it.

use crate::boundary::{Failure, Result, ato_file};
use crate::file::{new_handle, on};
use crate::memory;
use crate::options::ato_options;
use std::ffi::{c_char, c_int};
use std::fs::File;
use std::io::BufWriter;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;

/// Number of bytes that are written at once.
const PIECE: usize = 1 << 20;

/// Returns a file over a descriptor, which stays open.
///
/// # Safety
/// No other code closes the descriptor while the file is used.
pub(crate) unsafe fn borrowed(fd: c_int) -> Result<ManuallyDrop<File>> {
    // SAFETY: `F_GETFD` accesses no memory.
    if fd < 0 || unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        return Err(Failure::new(libc::EBADF, format!("{fd} is no open descriptor")));
    }
    // SAFETY: the descriptor is open, and is never closed here.
    Ok(ManuallyDrop::new(unsafe { File::from_raw_fd(fd) }))
}

/// Writes the snapshot `to` to a descriptor as a stream, which `ato_import` and `ato_import_new`
/// take. If `from` is not NULL, the stream has only what has changed since that older snapshot.
/// Frames before `first_frame`, which a receiver has from a transfer that broke, are left out:
/// `ato_import_progress`. It is 0 for a whole stream.
///
/// Writers of the file go on meanwhile. The two snapshots are not dropped during the call. A pipe
/// or socket without a reader raises `SIGPIPE`, as `write` does.
///
/// Returns `ATO_ESNAPSHOT` if a snapshot is not there, or is damaged, `ATO_ESTREAM` if `from` is
/// not older than `to`, and a negative `errno` if the descriptor fails.
///
/// # Safety
/// `file` is an open handle. `to` is a text, and so is `from` unless it is NULL. `fd` stays open
/// during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_export(
    file: *const ato_file,
    from: *const c_char,
    to: *const c_char,
    first_frame: u64,
    fd: c_int,
) -> c_int {
    // SAFETY: the caller names the handle, the texts and the descriptor.
    unsafe {
        on(file, |file| {
            let from = if from.is_null() { None } else { Some(memory::text(from, "from")?) };
            let stream = borrowed(fd)?;
            let stream = BufWriter::with_capacity(PIECE, &*stream);
            file.export_from_frame(from, memory::text(to, "to")?, first_frame, stream)?;
            Ok(())
        })
    }
}

/// Takes a stream of `ato_export` from a descriptor: gives the file the state of the sender's
/// snapshot, and seals it under the sender's name. Stores the number of that snapshot. `number` may
/// be NULL. Reads to the end of the stream and no further.
///
/// All of the stream is received first, into a file beside this one. Then it is applied as one
/// operation, all or nothing, whatever crashes. A stream with changes is refused if the file is
/// not, byte for byte, as in the snapshot that they are relative to. A stream with a whole file is
/// taken by an empty file, and by every file if `is_to_replace` is not 0.
///
/// Returns `ATO_ESTREAM` if the stream is damaged, ends too early, or does not fit the file, and
/// `ATO_ESNAPSHOT` if the file has a snapshot of this name. The file is unchanged then. After
/// another error it may have to be closed (`ato_health`). The next open then finishes the import.
///
/// # Safety
/// `file` is an open handle. `fd` stays open during the call. `number` is NULL, or names memory for
/// a number.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_import(
    file: *const ato_file,
    fd: c_int,
    is_to_replace: c_int,
    number: *mut u64,
) -> c_int {
    // SAFETY: the caller names the handle, the descriptor and the place.
    unsafe {
        on(file, |file| {
            let stream = borrowed(fd)?;
            let import = match is_to_replace {
                0 => file.import(&*stream),
                _ => file.import_over(&*stream),
            };
            memory::put(number, import?.snapshot.number);
            Ok(())
        })
    }
}

/// Makes a new file of a stream with a whole file, from a descriptor. Opens it by these options,
/// which may be NULL, seals it under the sender's name, and stores the handle. The file gets its
/// name when it is whole and durable. Reads to the end of the stream and no further.
///
/// Returns `-EEXIST` if there is something at `path`, and `ATO_ESTREAM` if the stream is damaged,
/// ends too early, or has changes only.
///
/// # Safety
/// `path` is a text. `options` is NULL or initialised. `fd` stays open during the call. `file`
/// names memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_import_new(
    path: *const c_char,
    options: *const ato_options,
    fd: c_int,
    file: *mut *mut ato_file,
) -> c_int {
    // SAFETY: the caller names the text, the options, the descriptor and the place.
    unsafe {
        new_handle(path, options, file, |options, path| {
            let stream = borrowed(fd)?;
            let (file, _report) = options.import(path, &*stream)?;
            Ok(file)
        })
    }
}

/// Stores the number of frames that a broken transfer to the file at `path` has left. The sender
/// may begin at this frame. The file needs not be open, or be there.
///
/// # Safety
/// `path` is a text. `frames` names memory for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_import_progress(
    path: *const c_char,
    frames: *mut u64,
) -> c_int {
    crate::boundary::call(|| {
        // SAFETY: the caller names the text and the place.
        unsafe {
            let found = atomic_mmap::AtomicMappedFile::import_progress(memory::path(path)?)?;
            memory::put(frames, found);
        }
        Ok(())
    })
}
