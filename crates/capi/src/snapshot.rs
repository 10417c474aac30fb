//! Snapshots of an open file: taking, listing, reading and dropping them, and going back.
//!
//! Invariant: a field of `ato_snapshot_info` is only ever added at the end.

use crate::boundary::{Failure, ato_file};
use crate::file::on;
use crate::memory;
use atomic_mmap::SnapshotInfo;
use std::ffi::{c_char, c_int, c_void};
use std::time::UNIX_EPOCH;

/// A snapshot, as `ato_snapshot_list` tells of it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ato_snapshot_info {
    /// Its number. Numbers grow by one, and none is given twice.
    pub number: u64,
    /// The length of the file in it, in bytes.
    pub len: u64,
    /// When it was taken, by the system's clock: nanoseconds since 1970.
    pub created_ns: u64,
    /// Bytes of the companion that only this snapshot needs. Dropping it gives them back.
    pub held: u64,
    /// Not 0: the file has taken it by itself.
    pub is_automatic: u8,
    /// Not 0: it was the present before a rollback.
    pub is_undo: u8,
    /// Zero.
    pub reserved: [u8; 6],
    /// Its name, a text.
    pub name: [c_char; 72],
}

impl From<SnapshotInfo> for ato_snapshot_info {
    fn from(info: SnapshotInfo) -> Self {
        let since = info.created.duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut name = [0; 72];
        // A name has at most 64 bytes, so a zero byte follows it.
        for (to, from) in name.iter_mut().zip(info.name.bytes().take(71)) {
            *to = from as c_char;
        }
        ato_snapshot_info {
            number: info.number,
            len: info.len,
            created_ns: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX),
            held: info.held,
            is_automatic: info.is_automatic.into(),
            is_undo: info.is_undo.into(),
            reserved: [0; 6],
            name,
        }
    }
}

/// Takes a snapshot of the whole file under a name of 1 to 64 bytes of UTF-8. No other snapshot of
/// the file may have it. Nothing is copied. Writers go on meanwhile.
///
/// The snapshot stays until it is dropped, also when the file is closed. It survives what the last
/// completed write survives. A file with snapshots keeps its companions after each close, and only
/// this library may change it.
///
/// Returns `ATO_ESNAPSHOT` if the name is taken or is no name.
///
/// # Safety
/// `file` is an open handle. `name` is a text.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_snapshot(file: *const ato_file, name: *const c_char) -> c_int {
    // SAFETY: the caller names the handle and the text.
    unsafe {
        on(file, |file| {
            file.snapshot(memory::text(name, "name")?)?;
            Ok(())
        })
    }
}

/// Drops a snapshot, and gives back the space that only it needed.
///
/// Returns `ATO_ESNAPSHOT` if there is no snapshot of this name, or another thread reads it.
///
/// # Safety
/// `file` is an open handle. `name` is a text.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_snapshot_drop(
    file: *const ato_file,
    name: *const c_char,
) -> c_int {
    // SAFETY: the caller names the handle and the text.
    unsafe { on(file, |file| Ok(file.drop_snapshot(memory::text(name, "name")?)?)) }
}

/// Gives the file the bytes and the length of a snapshot, all or nothing, whatever crashes. The
/// snapshot stays. If `undo` is not NULL, the present becomes a snapshot of that name first.
///
/// Returns `ATO_ESNAPSHOT` if there is no snapshot of this name, or `undo` is taken. After another
/// error the file may have to be closed (`ato_health`). The next open then finishes the rollback.
///
/// # Safety
/// `file` is an open handle. `name` is a text, and so is `undo` unless it is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_snapshot_rollback(
    file: *const ato_file,
    name: *const c_char,
    undo: *const c_char,
) -> c_int {
    // SAFETY: the caller names the handle and the texts.
    unsafe {
        on(file, |file| {
            let undo = if undo.is_null() { None } else { Some(memory::text(undo, "undo")?) };
            Ok(file.roll_back(memory::text(name, "name")?, undo)?)
        })
    }
}

/// Reads bytes of a snapshot. Writers go on meanwhile. The snapshot is not dropped during the call.
///
/// Returns `ATO_ESNAPSHOT` if there is no snapshot of this name, or its bytes are damaged, and
/// `-ERANGE` if they do not all lie within the file as it was.
///
/// # Safety
/// `file` is an open handle. `name` is a text. `buffer` names `len` bytes for this call alone.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_snapshot_read(
    file: *const ato_file,
    name: *const c_char,
    offset: u64,
    buffer: *mut c_void,
    len: usize,
) -> c_int {
    // SAFETY: the caller names the handle, the text and the buffer.
    unsafe {
        on(file, |file| {
            let snapshot = file.open_snapshot(memory::text(name, "name")?)?;
            Ok(snapshot.read_at(memory::bytes_mut(buffer, len)?, offset)?)
        })
    }
}

/// Stores what is known of the snapshots, the oldest first, and how many there are. If there are
/// more than `room`, the newest are left out: call again with more room. With a `room` of 0,
/// `snapshots` may be NULL. `count` may be NULL.
///
/// `size` is `sizeof(ato_snapshot_info)`: a program of an earlier version gets the fields that it
/// knows. Fields that this version does not know become zero.
///
/// # Safety
/// `file` is an open handle. `snapshots` names `room` structures of `size` bytes. `count` is NULL,
/// or names memory for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_snapshot_list(
    file: *const ato_file,
    snapshots: *mut ato_snapshot_info,
    size: usize,
    room: usize,
    count: *mut usize,
) -> c_int {
    // SAFETY: the caller names the handle and the places.
    unsafe {
        on(file, |file| {
            if snapshots.is_null() && room > 0 {
                return Err(Failure::argument("there is no place for the snapshots"));
            }
            let all = file.snapshots();
            memory::put(count, all.len());
            for (n, info) in all.into_iter().take(room).enumerate() {
                let to = snapshots.cast::<u8>().add(n * size).cast();
                memory::put_sized(to, size, &ato_snapshot_info::from(info));
            }
            Ok(())
        })
    }
}
