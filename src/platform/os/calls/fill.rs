//! Reads from a caller's file, pipe or socket, straight into mapped memory and buffers.
//!
//! Owns: [`Room`], a piece of memory that such a read fills.
//!
//! Invariants: those of `calls`. One call fills the pieces in their order. Under a recorder and on
//! a simulated machine the bytes arrive in a buffer first, and are stored by `copy_in`. So a trace
//! has each of these stores.
//!
//! May import: `gate`, the vocabulary of `platform`, libc.

#[cfg(unix)]
use super::gate::attempt;
#[cfg(all(unix, feature = "recorder"))]
use crate::platform::Copying;
use crate::platform::Place;
#[cfg(all(unix, feature = "recorder"))]
use crate::platform::recorder::What;
#[cfg(unix)]
use crate::platform::{Platform, call};
#[cfg(unix)]
use std::io::{self, ErrorKind};
#[cfg(unix)]
use std::os::fd::{AsRawFd, BorrowedFd};

/// A piece of memory that a read fills.
pub enum Room<'a> {
    /// This many bytes of a mapping.
    Mapped(Place, usize),
    /// The caller's own memory.
    Buffer(&'a mut [u8]),
}

#[cfg(unix)]
impl Room<'_> {
    fn as_raw(&mut self) -> (*mut u8, usize) {
        match self {
            Room::Mapped(place, len) => (place.ptr, *len),
            Room::Buffer(buffer) => (buffer.as_mut_ptr(), buffer.len()),
        }
    }

    #[cfg(feature = "recorder")]
    fn len(&self) -> usize {
        match self {
            Room::Mapped(_, len) => *len,
            Room::Buffer(buffer) => buffer.len(),
        }
    }
}

/// The most pieces that one call takes (`UIO_MAXIOV` of Linux; POSIX guarantees 16).
#[cfg(unix)]
const MOST_PIECES: usize = if cfg!(target_os = "linux") { 1024 } else { 16 };

#[cfg(unix)]
impl Platform {
    /// Reads from `from` into the first rooms, by one call that may be short. Returns the number of
    /// bytes: 0 is the end of the input. The bytes go through the cache, and are not flushed.
    ///
    /// # Errors
    /// The system's error. Any part of the rooms may have been stored to.
    ///
    /// # Safety
    /// The mapped rooms are in live, writable mappings and within their files. No other thread
    /// writes to them at the same time. Readers may race: they see torn bytes.
    pub unsafe fn read_into(
        &self,
        from: BorrowedFd<'_>,
        rooms: &mut [Room<'_>],
    ) -> io::Result<usize> {
        #[cfg(feature = "recorder")]
        if !matches!(self, Platform::Native(_)) {
            // SAFETY: the caller's contract is the same.
            return unsafe { self.read_and_copy(from, rooms) };
        }
        let pieces = rooms.iter_mut().take(MOST_PIECES).map(Room::as_raw);
        let pieces: Vec<libc::iovec> =
            pieces.map(|(ptr, len)| libc::iovec { iov_base: ptr.cast(), iov_len: len }).collect();
        attempt!(
            self,
            call::READ_INTO,
            |_| {
                // SAFETY: the pieces are buffers that `rooms` borrows, or mapped bytes, of which
                // the caller guarantees that they may be stored to. There are at most as many as
                // the system takes.
                let got = unsafe {
                    libc::readv(from.as_raw_fd(), pieces.as_ptr(), pieces.len() as libc::c_int)
                };
                usize::try_from(got).map_err(|_| io::Error::last_os_error())
            },
            [_machine => Ok(0)]
        )
    }

    /// Reads as [`read_into`](Self::read_into) does, by way of a buffer.
    ///
    /// # Safety
    /// As [`Platform::read_into`].
    #[cfg(feature = "recorder")]
    unsafe fn read_and_copy(
        &self,
        from: BorrowedFd<'_>,
        rooms: &mut [Room<'_>],
    ) -> io::Result<usize> {
        let mut bytes = vec![0; rooms.iter().map(Room::len).sum()];
        let mut read = |most: usize| {
            let most = most.min(bytes.len());
            // SAFETY: the buffer has room for as many bytes.
            let got = unsafe { libc::read(from.as_raw_fd(), bytes.as_mut_ptr().cast(), most) };
            usize::try_from(got).map_err(|_| io::Error::last_os_error())
        };
        let got = attempt!(
            self,
            call::READ_INTO,
            &mut read,
            [_machine => read(usize::MAX)],
            [] |_: &usize| What::Os(call::READ_INTO)
        )?;
        let mut rest = &bytes[..got];
        for room in rooms {
            let (now, later) = rest.split_at(room.len().min(rest.len()));
            match room {
                // SAFETY: the caller guarantees these bytes, among others.
                Room::Mapped(place, _) => unsafe { self.copy_in(*place, now, Copying::Cached) },
                Room::Buffer(buffer) => buffer[..now.len()].copy_from_slice(now),
            }
            rest = later;
        }
        Ok(got)
    }
}
