//! The two things that values are read from: an open file, and a snapshot of one.
//!
//! Owns: [`Source`]. Slots and arrays hold one, so their reading half is written once.
//!
//! May import: the handle, the snapshot, `value` and the errors.

use crate::api::file::AtomicMappedFile;
use crate::api::snapshot::Snapshot;
use crate::api::value::{Readable, load};
use crate::error::Result;

/// A state that can be read: an open file at each moment, or a [`Snapshot`] of one.
///
/// Code over it reads both. [`Slot`](crate::Slot) and [`Array`](crate::Array) are such code.
/// The crate implements it for [`AtomicMappedFile`], for `Snapshot`, and for references to them.
///
/// ```
/// # let dir = atomic_mmap::doctest_dir();
/// use atomic_mmap::{AtomicMappedFile, Result, Source};
///
/// fn total(of: &impl Source) -> Result<u64> {
///     let (first, second): (u64, u64) = (of.load(0)?, of.load(8)?);
///     Ok(first + second)
/// }
///
/// let f = AtomicMappedFile::create(dir.path().join("x"), 4096)?;
/// f.store(8, &40_u64)?;
/// f.snapshot("before")?;
/// f.store(0, &2_u64)?;
/// assert_eq!((total(&f)?, total(&f.open_snapshot("before")?)?), (42, 40));
/// # Ok::<(), atomic_mmap::Error>(())
/// ```
pub trait Source: sealed::Sealed {
    /// Fills `buf` with the bytes at byte `offset`. All of them belong to one state.
    ///
    /// # Errors
    /// Those of [`AtomicMappedFile::read_at`] or [`Snapshot::read_at`].
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;

    /// Returns the value at byte `offset`, which may have any alignment.
    ///
    /// # Errors
    /// Those of [`read_at`](Self::read_at). [`Error::InvalidValue`](crate::Error::InvalidValue) if
    /// the bytes are no valid value of `T`.
    #[inline]
    fn load<T: Readable>(&self, offset: u64) -> Result<T>
    where
        Self: Sized,
    {
        load(self.of_file(), offset, |bytes| self.read_at(bytes, offset))
    }
}

impl Source for AtomicMappedFile {
    #[inline]
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        AtomicMappedFile::read_at(self, buf, offset)
    }
}

impl Source for Snapshot {
    #[inline]
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        Snapshot::read_at(self, buf, offset)
    }
}

impl<S: Source> Source for &S {
    #[inline]
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        (**self).read_at(buf, offset)
    }
}

mod sealed {
    use super::{AtomicMappedFile, Result, Snapshot};

    /// The parts of a source that only the crate calls.
    pub trait Sealed {
        /// Returns the open file. Errors name its path.
        fn of_file(&self) -> &AtomicMappedFile;

        /// Fails if `len` bytes at `offset` do not lie within the source.
        fn check_range(&self, offset: u64, len: u64) -> Result<()>;
    }

    impl Sealed for AtomicMappedFile {
        #[inline]
        fn of_file(&self) -> &AtomicMappedFile {
            self
        }

        #[inline]
        fn check_range(&self, offset: u64, len: u64) -> Result<()> {
            self.engine().check_range(offset, len).map(drop)
        }
    }

    impl Sealed for Snapshot {
        #[inline]
        fn of_file(&self) -> &AtomicMappedFile {
            self.file()
        }

        fn check_range(&self, offset: u64, len: u64) -> Result<()> {
            self.check_range(offset, len).map(drop)
        }
    }

    impl<S: Sealed> Sealed for &S {
        #[inline]
        fn of_file(&self) -> &AtomicMappedFile {
            (**self).of_file()
        }

        #[inline]
        fn check_range(&self, offset: u64, len: u64) -> Result<()> {
            (**self).check_range(offset, len)
        }
    }
}
