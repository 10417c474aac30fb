//! Pieces of mapped files and of buffers that lie one after the other for a caller.
//!
//! Invariants: those of the parent. Each mapped piece was within what its file backs when it was
//! added. The caller keeps it so: it holds a claim on the slots, below which no file is made
//! shorter (`pair::claims`).
//!
//! May import what the parent may.

use super::MappedFile;
use crate::platform::Place;
use std::io::IoSliceMut;

/// A piece of memory.
enum Room<'a> {
    /// This many bytes of a mapping.
    Mapped(Place, usize),
    /// A buffer.
    Buffer(&'a mut [u8]),
}

/// Pieces of memory, in order.
#[derive(Default)]
pub struct Rooms<'a>(Vec<Room<'a>>);

impl<'a> Rooms<'a> {
    /// Adds `len` bytes of a file. Panics if the file does not back them.
    pub fn add_mapped(&mut self, file: &'a MappedFile, offset: u64, len: usize) {
        assert!(!file.is_private);
        self.0.push(Room::Mapped(file.place(offset, len), len));
    }

    /// Adds a buffer.
    pub fn add_buffer(&mut self, buffer: &'a mut [u8]) {
        self.0.push(Room::Buffer(buffer));
    }

    /// Returns the pieces as slices.
    ///
    /// # Safety
    /// The caller has claimed the slots of the mapped pieces for `'a`, and made no other slice of
    /// them. No other code, in this process or another, loads or stores their bytes meanwhile, nor
    /// makes the files shorter. Readers of this crate may load them: they discard what they load.
    pub unsafe fn into_slices(self) -> Vec<IoSliceMut<'a>> {
        let slice = |room| match room {
            // SAFETY: the bytes are mapped and backed (the invariant), and any bytes are a valid
            // `[u8]`. The caller guarantees that no other code has or uses them. A reader of this
            // crate loads them by instructions that the compiler does not know (`platform/arch`).
            Room::Mapped(place, len) => unsafe {
                IoSliceMut::new(std::slice::from_raw_parts_mut(place.ptr, len))
            },
            Room::Buffer(buffer) => IoSliceMut::new(buffer),
        };
        self.0.into_iter().map(slice).collect()
    }
}
