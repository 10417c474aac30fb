//! Pieces of mapped files and of buffers that lie one after the other for a caller.
//!
//! Invariants: those of the parent. Each mapped piece was within what its file backs when it was
//! added. The caller keeps it so: it holds a claim on the slots, below which no file is made
//! shorter (`pair::claims`).
//!
//! May import what the parent may.

use super::MappedFile;
use crate::platform::{Platform, Room};
#[cfg(unix)]
use std::io;
use std::io::IoSliceMut;
#[cfg(unix)]
use std::os::fd::BorrowedFd;

/// Pieces of memory, in the order in which they are filled.
pub struct Rooms<'a> {
    #[cfg_attr(not(unix), allow(dead_code, reason = "only a call of Unix needs it"))]
    platform: &'a Platform,
    rooms: Vec<Room<'a>>,
}

impl<'a> Rooms<'a> {
    /// Makes an empty list.
    pub fn new(platform: &'a Platform) -> Self {
        Rooms { platform, rooms: Vec::new() }
    }

    /// Adds `len` bytes of a file. Panics if the file does not back them.
    pub fn add_mapped(&mut self, file: &'a MappedFile, offset: u64, len: usize) {
        assert!(!file.is_private);
        self.rooms.push(Room::Mapped(file.place(offset, len), len));
    }

    /// Adds a buffer.
    pub fn add_buffer(&mut self, buffer: &'a mut [u8]) {
        self.rooms.push(Room::Buffer(buffer));
    }

    /// Reads into the first pieces by one call, which may be short. Returns the number of bytes: 0
    /// is the end of the input. No other thread stores to the pieces meanwhile.
    #[cfg(unix)]
    pub fn read_from(&mut self, from: BorrowedFd<'_>) -> io::Result<usize> {
        // SAFETY: the mapped pieces are backed (the invariant), and no other thread stores to them:
        // the caller has claimed their slots. The system stores to them, so no reference to them
        // is made.
        unsafe { self.platform.read_into(from, &mut self.rooms) }
    }

    /// Returns the pieces as slices.
    ///
    /// # Safety
    /// The caller has claimed the slots of the mapped pieces for `'a`, and made no other slice of
    /// them. No other code, in this process or another, loads or stores their bytes meanwhile, nor
    /// makes the files shorter.
    pub unsafe fn into_slices(self) -> Vec<IoSliceMut<'a>> {
        let slice = |room| match room {
            // SAFETY: the bytes are mapped and backed (the invariant), and any bytes are a valid
            // `[u8]`. The caller guarantees that no other code has or uses them.
            Room::Mapped(place, len) => unsafe {
                IoSliceMut::new(std::slice::from_raw_parts_mut(place.ptr, len))
            },
            Room::Buffer(buffer) => IoSliceMut::new(buffer),
        };
        self.rooms.into_iter().map(slice).collect()
    }
}
