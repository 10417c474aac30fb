//! The memory that a caller names: texts, buffers and places for results.
//!
//! Each function has the contract of the header: a pointer that is not NULL names as much memory of
//! its kind as the call says, which stays valid during the call. NULL is an error, except for a
//! buffer of no bytes.

use crate::boundary::{Failure, Result};
use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Returns the path in a text.
///
/// # Safety
/// `text` is NULL, or a text that ends with a zero byte and outlives the call.
pub(crate) unsafe fn path<'a>(text: *const c_char) -> Result<&'a Path> {
    if text.is_null() {
        return Err(Failure::argument("the path is NULL"));
    }
    // SAFETY: the text ends with a zero byte.
    let text = unsafe { CStr::from_ptr(text) };
    Ok(Path::new(OsStr::from_bytes(text.to_bytes())))
}

/// Returns the characters of a text.
///
/// # Safety
/// `text` is NULL, or a text that ends with a zero byte and outlives the call.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str> {
    if text.is_null() {
        return Err(Failure::argument(format!("the {what} is NULL")));
    }
    // SAFETY: the text ends with a zero byte.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Failure::argument(format!("the {what} is no UTF-8")))
}

/// Returns the bytes of a buffer to read from.
///
/// # Safety
/// `buffer` is NULL, or names `len` bytes that do not change during the call.
pub(crate) unsafe fn bytes<'a>(buffer: *const c_void, len: usize) -> Result<&'a [u8]> {
    if len == 0 {
        return Ok(&[]);
    }
    check(buffer, len)?;
    // SAFETY: the buffer has `len` bytes, and no object is longer than `isize::MAX`.
    Ok(unsafe { std::slice::from_raw_parts(buffer.cast(), len) })
}

/// Returns the bytes of a buffer to write to.
///
/// # Safety
/// `buffer` is NULL, or names `len` bytes that nothing else uses during the call. Their values may
/// be anything: they were made outside of Rust, where no value of a byte is invalid.
pub(crate) unsafe fn bytes_mut<'a>(buffer: *mut c_void, len: usize) -> Result<&'a mut [u8]> {
    if len == 0 {
        return Ok(&mut []);
    }
    check(buffer, len)?;
    // SAFETY: the buffer has `len` bytes for this call alone.
    Ok(unsafe { std::slice::from_raw_parts_mut(buffer.cast(), len) })
}

/// Returns the elements of a list of the program.
///
/// # Safety
/// `list` is NULL, or names `count` elements that do not change during the call.
pub(crate) unsafe fn list<'a, T>(list: *const T, count: usize, what: &str) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if list.is_null() {
        return Err(Failure::argument(format!("the {count} {what} are NULL")));
    }
    if count.checked_mul(size_of::<T>()).is_none_or(|len| isize::try_from(len).is_err()) {
        return Err(Failure::argument(format!("no list has {count} {what}")));
    }
    // SAFETY: the list has `count` elements, and no object is longer than `isize::MAX`.
    Ok(unsafe { std::slice::from_raw_parts(list, count) })
}

fn check(buffer: *const c_void, len: usize) -> Result<()> {
    if buffer.is_null() {
        return Err(Failure::argument(format!("the buffer of {len} bytes is NULL")));
    }
    if isize::try_from(len).is_err() {
        return Err(Failure::argument(format!("no buffer has {len} bytes")));
    }
    Ok(())
}

/// Returns what a pointer names.
///
/// # Safety
/// `pointer` is NULL, or names a `T` that outlives the call.
pub(crate) unsafe fn reference<'a, T>(pointer: *const T, what: &str) -> Result<&'a T> {
    // SAFETY: the pointer is NULL, or names a `T`.
    unsafe { pointer.as_ref() }.ok_or_else(|| Failure::argument(format!("the {what} is NULL")))
}

/// Stores a result. Does nothing if the caller does not ask for it.
///
/// # Safety
/// `place` is NULL, or names memory for a `T`.
pub(crate) unsafe fn put<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: there is memory for a `T`. Nothing that was there is dropped.
        unsafe { place.write(value) };
    }
}

/// Stores a structure for a program that knows `size` bytes of it. Fields that this version does
/// not know become zero.
///
/// # Safety
/// `place` names `size` bytes. `T` has no bytes between its fields.
pub(crate) unsafe fn put_sized<T: Copy>(place: *mut T, size: usize, value: &T) {
    let known = size.min(size_of::<T>());
    // SAFETY: there are `size` bytes.
    unsafe {
        place.cast::<u8>().write_bytes(0, size);
        std::ptr::from_ref(value).cast::<u8>().copy_to(place.cast(), known);
    }
}
