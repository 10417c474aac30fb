//! Views: ranges that are read without copying.
//!
//! May import: the handle, `value` and the errors.

use crate::api::file::AtomicMappedFile;
use crate::api::value::Readable;
use crate::error::Result;
use std::fmt;
use std::ops::Range;

/// A range of a file. Its bytes do not change while the view lives.
///
/// The bytes are those of one state, at the time of [`AtomicMappedFile::view`]. A view does not
/// block writers: they write elsewhere, and other readers see the new bytes.
///
/// A view holds a private copy where the range cannot be pinned in the home file:
/// - an older view pins it with older bytes;
/// - a full file system leaves a hole in it;
/// - always on [`Medium::PageCache`](crate::Medium::PageCache), and with
///   [`Durability::AtomicSync`](crate::Durability::AtomicSync);
/// - always of a snapshot ([`Snapshot::view`](crate::Snapshot::view)), since its bytes lie in
///   several places.
///
/// [`is_mapped`](Self::is_mapped) tells which of the two it is.
pub struct View<'a> {
    file: &'a AtomicMappedFile,
    range: Range<u64>,
    bytes: Bytes,
}

enum Bytes {
    /// The bytes are in the pinned home slots of `range`.
    Mapped,
    /// The bytes of `range`, copied when the view was made.
    Copied(Vec<u8>),
}

impl<'a> View<'a> {
    #[inline]
    pub(crate) fn new(file: &'a AtomicMappedFile, range: Range<u64>) -> Result<Self> {
        if file.engine().pin_fast_path(&range) {
            return Ok(View { file, range, bytes: Bytes::Mapped });
        }
        Self::anyhow(file, range)
    }

    /// Makes a view of any range, as a pin or as a copy. The slow path of [`new`](Self::new).
    #[inline(never)]
    fn anyhow(file: &'a AtomicMappedFile, range: Range<u64>) -> Result<Self> {
        let engine = file.engine();
        // Checked before the range: an operation that was cut off may leave a wrong length.
        engine.check_readable()?;
        let range = engine.check_bounds(range)?;
        // An empty view pins nothing, so `set_len` may truncate the file below it.
        if !range.is_empty() && engine.pin(range.clone())? {
            return Ok(View { file, range, bytes: Bytes::Mapped });
        }
        let start = range.start;
        Self::copied(file, range, |copy| engine.read(copy, start))
    }

    /// Makes a view that holds a copy, which `read` fills. `range` has been checked.
    pub(crate) fn copied(
        file: &'a AtomicMappedFile,
        range: Range<u64>,
        read: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<Self> {
        let len = range.end - range.start;
        let mut copy = Vec::new();
        file.engine().reserve(&mut copy, len)?;
        copy.resize(len as usize, 0);
        read(&mut copy)?;
        Ok(View { file, range, bytes: Bytes::Copied(copy) })
    }

    /// Returns the number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        (self.range.end - self.range.start) as usize
    }

    /// Returns `true` if the view has no bytes.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Returns the view's range in the file, in bytes.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Returns `true` if the view reads the mapped file, and `false` if it holds a private copy.
    pub fn is_mapped(&self) -> bool {
        matches!(self.bytes, Bytes::Mapped)
    }

    /// Fills `to` with the bytes at `offset`, counted from the beginning of the view.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`](crate::Error::OutOfBounds) past the view's end,
    /// [`Error::Forked`](crate::Error::Forked), [`Error::Poisoned`](crate::Error::Poisoned).
    #[inline]
    pub fn read_at(&self, to: &mut [u8], offset: u64) -> Result<()> {
        let engine = self.file.engine();
        engine.check_readable()?;
        let end = offset.checked_add(to.len() as u64);
        if end.is_none_or(|end| end > self.len() as u64) {
            return Err(self.out_of_bounds(to.len(), offset));
        }
        match &self.bytes {
            Bytes::Mapped => engine.home.copy_out(to, self.range.start + offset),
            Bytes::Copied(copy) => {
                to.copy_from_slice(&copy[offset as usize..offset as usize + to.len()]);
            }
        }
        Ok(())
    }

    #[cold]
    fn out_of_bounds(&self, len: usize, offset: u64) -> crate::Error {
        crate::Error::OutOfBounds {
            path: self.file.engine().path(),
            what: "bytes of the view",
            offset: self.range.start,
            found: offset.saturating_add(len as u64),
            expected: self.len() as u64,
        }
    }

    /// Returns the value at byte `offset`, counted from the beginning of the view.
    ///
    /// # Errors
    /// Those of [`read_at`](Self::read_at). [`Error::InvalidValue`](crate::Error::InvalidValue) if
    /// the bytes are no valid value of `T`.
    pub fn load<T: Readable>(&self, offset: u64) -> Result<T> {
        let in_file = self.range.start.saturating_add(offset);
        crate::api::value::load(self.file, in_file, |bytes| self.read_at(bytes, offset))
    }

    /// Returns a copy of all bytes.
    ///
    /// # Errors
    /// Those of [`read_at`](Self::read_at).
    pub fn to_vec(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.file.engine().reserve(&mut bytes, self.len() as u64)?;
        bytes.resize(self.len(), 0);
        self.read_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    /// Returns the bytes without copying them if the view is a private copy, and `None` if it reads
    /// the mapped file: see [`is_mapped`](Self::is_mapped). The copy was made with the view, and
    /// nothing can change it.
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// use atomic_mmap::{AtomicMappedFile, Medium};
    ///
    /// let options = AtomicMappedFile::options().create(true).len(4096);
    /// let f = options.medium(Medium::PageCache).open(dir.path().join("x"))?;
    /// f.write_at(b"old", 10)?;
    /// let view = f.view(10..13)?;
    /// f.write_at(b"new", 10)?;
    /// assert_eq!(view.as_copy(), Some(&b"old"[..])); // views on page cache are copies
    /// # Ok::<(), atomic_mmap::Error>(())
    /// ```
    pub fn as_copy(&self) -> Option<&[u8]> {
        match &self.bytes {
            Bytes::Mapped => None,
            Bytes::Copied(copy) => Some(copy),
        }
    }

    /// Returns the address of the first byte. It is valid for [`len`](Self::len) bytes while the
    /// view lives.
    ///
    /// Reading through it as a slice is `unsafe`, because the crate cannot prevent other code from
    /// changing the file behind the mapping. See [`as_slice`](Self::as_slice). A private copy needs
    /// no `unsafe`: see [`as_copy`](Self::as_copy).
    pub fn as_ptr(&self) -> *const u8 {
        match &self.bytes {
            Bytes::Mapped => self.file.engine().home.address(self.range.start, self.len()),
            Bytes::Copied(copy) => copy.as_ptr(),
        }
    }

    /// Returns the bytes without copying them.
    ///
    /// # Safety
    /// While the slice lives, the home file must change only through this handle and its clones:
    /// - no other code, in this process or another, may write to it or to a mapping of it;
    /// - no process may truncate it, which would also raise SIGBUS;
    /// - no handle in a `fork`ed parent or child may write to it.
    ///
    /// Writes through this crate's handles never touch the bytes of a view.
    pub unsafe fn as_slice(&self) -> &[u8] {
        // SAFETY:
        // - The pointer is valid for `len` bytes while `self` lives. They are a `Vec`, or mapped
        //   and allocated home slots. `set_len` does not truncate pinned home slots.
        // - No thread writes to them. This crate's writers do not store to pinned home slots, and
        //   the caller promises that no other code does.
        // - Any bytes are a valid `[u8]`. `len` fits an `isize`, since the bytes are part of one
        //   mapping or `Vec`.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len()) }
    }
}

impl Drop for View<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.is_mapped() {
            self.file.engine().unpin(self.range.clone());
        }
    }
}

impl fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View")
            .field("range", &self.range)
            .field("is_mapped", &self.is_mapped())
            .finish_non_exhaustive()
    }
}
