//! A handle to contiguous values.
//!
//! Owns: [`Array`], and the iterator over its values.
//!
//! May import: `slot`, `source`, `value`, the handle, the snapshot and the errors.

use crate::api::file::AtomicMappedFile;
use crate::api::slot::Slot;
use crate::api::snapshot::Snapshot;
use crate::api::source::Source;
use crate::api::value::{Record, invalid};
use crate::error::{Error, Result};
use std::borrow::Borrow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use zerocopy::{FromBytes, IntoBytes};

/// Bytes that an iterator reads in one operation, unless one value is longer: four pages.
const BLOCK: usize = 16 << 10;

impl AtomicMappedFile {
    /// Returns a handle to `count` contiguous values that start at byte `offset`. It borrows the
    /// file; [`into_owned`](Array::into_owned) makes one that holds the file.
    ///
    /// # Errors
    /// [`Error::PastEnd`] if the values do not lie within the file. [`Error::Overflow`] if their
    /// end exceeds `u64::MAX`.
    pub fn array<T: Record>(&self, offset: u64, count: u64) -> Result<Array<T, &AtomicMappedFile>> {
        Array::new(self, offset, count)
    }
}

impl Snapshot {
    /// Returns a handle to `count` contiguous values that start at byte `offset`. It borrows the
    /// snapshot, and all of its values belong to one state.
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// # let f = atomic_mmap::AtomicMappedFile::create(dir.path().join("x"), 1 << 20)?;
    /// let counts = f.array::<u64>(4096, 1000)?;
    /// counts.set_many(0, &[1; 1000])?;
    /// f.snapshot("ones")?;
    /// counts.set(3, &42)?;
    ///
    /// let ones = f.open_snapshot("ones")?;
    /// let sum: u64 = ones.array::<u64>(4096, 1000)?.iter().sum::<Result<u64, _>>()?;
    /// assert_eq!(sum, 1000);
    /// # Ok::<(), atomic_mmap::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::PastEnd`] if the values do not lie within the snapshot. [`Error::Overflow`] if
    /// their end exceeds `u64::MAX`.
    pub fn array<T: Record>(&self, offset: u64, count: u64) -> Result<Array<T, &Snapshot>> {
        Array::new(self, offset, count)
    }
}

/// A handle to contiguous values of a file. Every method is one atomic operation, except
/// [`iter`](Self::iter).
///
/// `Array<T>` holds the file, so a struct can keep it. `Array<T, &AtomicMappedFile>` borrows the
/// file and is `Copy`: [`AtomicMappedFile::array`] returns it. `Array<T, &Snapshot>` reads a
/// snapshot, and has no method that writes: [`Snapshot::array`] returns it.
///
/// An `Array<T>` is a further handle to the open file, as [`AtomicMappedFile::try_clone`] returns.
/// The file closes with its last handle. So [`AtomicMappedFile::close`] of another handle sets the
/// close mode and returns [`Error::StillOpen`], and the file closes when the last array is dropped.
///
/// ```
/// # let dir = atomic_mmap::doctest_dir();
/// # let path = dir.path().join("x");
/// use atomic_mmap::{Array, AtomicMappedFile, CloseMode};
///
/// struct Offsets {
///     file: AtomicMappedFile,
///     committed: Array<u64>,
/// }
///
/// let file = AtomicMappedFile::create(&path, 1 << 20)?;
/// let committed = file.array(4096, 1000)?.into_owned()?;
/// let offsets = Offsets { file, committed };
///
/// offsets.committed.set(3, &41)?;
/// offsets.committed.slot(3)?.fetch_max(42)?;
/// assert_eq!(offsets.committed.get(3)?, 42);
///
/// drop(offsets.committed); // else the file would stay open after `close`
/// offsets.file.close(CloseMode::Spatial)?;
/// # Ok::<(), atomic_mmap::Error>(())
/// ```
pub struct Array<T, F = AtomicMappedFile> {
    file: F,
    offset: u64,
    count: u64,
    value: PhantomData<fn() -> T>,
}

impl<T: Record, F: Source> Array<T, F> {
    fn new(file: F, offset: u64, count: u64) -> Result<Self> {
        let size = size_of::<T>() as u64;
        let path = || file.of_file().engine().path();
        let overflow = || Error::Overflow { path: path(), offset, count, size };
        let len = count.checked_mul(size).ok_or_else(overflow)?;
        offset.checked_add(len).ok_or_else(overflow)?;
        file.check_range(offset, len)?;
        Ok(Array { file, offset, count, value: PhantomData })
    }

    /// Returns the number of values.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Returns `true` if the array has no values.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the offset of value `index` in the file, in bytes, for use in a transaction.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if `index` is not below [`len`](Self::len).
    pub fn offset_of(&self, index: u64) -> Result<u64> {
        self.offsets(index, 1)
    }

    fn offsets(&self, index: u64, count: u64) -> Result<u64> {
        match index.checked_add(count) {
            Some(end) if end <= self.count => Ok(self.offset + index * size_of::<T>() as u64),
            _ => Err(Error::OutOfBounds {
                path: self.file.of_file().engine().path(),
                what: "elements of the array",
                offset: self.offset,
                found: index.saturating_add(count),
                expected: self.count,
            }),
        }
    }

    /// Returns value `index`.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if `index` is not below [`len`](Self::len), and those of
    /// [`Source::load`].
    #[inline]
    pub fn get(&self, index: u64) -> Result<T> {
        self.file.load(self.offset_of(index)?)
    }

    /// Fills `to` with the values from `index` on. All of them belong to one state of the file.
    ///
    /// Values of a type that is checked, such as `bool`, cannot be read in place. Use
    /// [`to_vec`](Self::to_vec) for them.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn get_many(&self, index: u64, to: &mut [T]) -> Result<()>
    where
        T: FromBytes,
    {
        let offset = self.offsets(index, to.len() as u64)?;
        self.file.read_at(to.as_mut_bytes(), offset)
    }

    /// Returns all values. They belong to one state of the file.
    ///
    /// # Errors
    /// Those of [`Source::load`]. [`Error::Io`] if there is no memory for the values.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let mut bytes = Vec::new();
        let mut values = Vec::new();
        let engine = self.file.of_file().engine();
        engine.reserve(&mut bytes, self.count.saturating_mul(size_of::<T>() as u64))?;
        engine.reserve(&mut values, self.count)?;
        bytes.resize(self.count as usize * size_of::<T>(), 0);
        self.file.read_at(&mut bytes, self.offset)?;
        for index in 0..self.count {
            values.push(self.value_in(&bytes, index, index)?);
        }
        Ok(values)
    }

    /// Returns an iterator over the values, in ascending order.
    ///
    /// It reads blocks of 16 KiB, and at least one value at a time. The values of a block belong to
    /// one state of the file, at the time when the iterator reaches the block. Other threads may
    /// write between two blocks. [`to_vec`](Self::to_vec) and [`get_many`](Self::get_many) return
    /// one state of all values.
    ///
    /// An error ends the iteration.
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// # let f = atomic_mmap::AtomicMappedFile::create(dir.path().join("x"), 1 << 20)?;
    /// let counts = f.array::<u64>(0, 1000)?;
    /// counts.set(998, &40)?;
    /// counts.set(999, &2)?;
    /// let mut sum = 0;
    /// for count in counts.iter() {
    ///     sum += count?;
    /// }
    /// assert_eq!(sum, 42);
    ///
    /// // The last ten.
    /// let last: u64 = counts.slice(990..1000)?.iter().sum::<Result<u64, _>>()?;
    /// assert_eq!(last, 42);
    /// # Ok::<(), atomic_mmap::Error>(())
    /// ```
    pub fn iter(&self) -> Iter<'_, T, F> {
        let file = &self.file;
        let array = Array { file, offset: self.offset, count: self.count, value: PhantomData };
        Iter { array, block: Vec::new(), first: 0, left: 0..0 }
    }

    /// Returns value `index` of the array, which is value `nth` of `bytes`.
    #[inline]
    fn value_in(&self, bytes: &[u8], nth: u64, index: u64) -> Result<T> {
        let size = size_of::<T>();
        let value = T::try_read_from_bytes(&bytes[nth as usize * size..][..size]);
        value.map_err(|_| invalid::<T>(self.file.of_file(), self.offset + index * size as u64))
    }
}

impl<T: Record, F: Borrow<AtomicMappedFile> + Source> Array<T, F> {
    /// Returns the file.
    #[inline]
    pub fn file(&self) -> &AtomicMappedFile {
        self.file.borrow()
    }

    /// Replaces value `index`.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if `index` is not below [`len`](Self::len), and those of
    /// [`AtomicMappedFile::write_at`].
    #[inline]
    pub fn set(&self, index: u64, value: &T) -> Result<()> {
        self.file().store(self.offset_of(index)?, value)
    }

    /// Replaces the values from `index` on with `values`, as one operation.
    ///
    /// # Errors
    /// Those of [`set`](Self::set).
    pub fn set_many(&self, index: u64, values: &[T]) -> Result<()> {
        self.file().store(self.offsets(index, values.len() as u64)?, values)
    }

    /// Changes value `index` with `change`, as [`AtomicMappedFile::update`] does.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if `index` is not below [`len`](Self::len), and those of
    /// [`AtomicMappedFile::update`].
    pub fn update<R>(&self, index: u64, change: impl FnMut(&mut T) -> R) -> Result<R> {
        self.file().update(self.offset_of(index)?, change)
    }
}

impl<'a, T: Record, S: Source> Array<T, &'a S> {
    /// Returns a handle to value `index`.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if `index` is not below [`len`](Self::len).
    pub fn slot(&self, index: u64) -> Result<Slot<T, &'a S>> {
        Ok(Slot { file: self.file, offset: self.offset_of(index)?, value: PhantomData })
    }

    /// Returns a handle to the values with an index in `range`.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if the range ends past [`len`](Self::len), [`Error::Reversed`] if it
    /// ends before it begins.
    pub fn slice(&self, range: Range<u64>) -> Result<Array<T, &'a S>> {
        let Range { start, end } = range;
        let path = || self.file.of_file().engine().path();
        let reversed = || Error::Reversed { path: path(), start, end };
        let count = end.checked_sub(start).ok_or_else(reversed)?;
        let offset = self.offsets(start, count)?;
        Ok(Array { file: self.file, offset, count, value: PhantomData })
    }
}

impl<T: Record> Array<T, &AtomicMappedFile> {
    /// Returns a handle that holds the file, so that a struct can keep it.
    ///
    /// # Errors
    /// Those of [`AtomicMappedFile::try_clone`].
    pub fn into_owned(self) -> Result<Array<T>> {
        let Array { file, offset, count, value } = self;
        Ok(Array { file: file.try_clone()?, offset, count, value })
    }
}

impl<T: Record> Array<T> {
    /// Returns a handle to value `index`, which borrows the file.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if `index` is not below [`len`](Self::len).
    pub fn slot(&self, index: u64) -> Result<Slot<T, &AtomicMappedFile>> {
        self.borrowed().slot(index)
    }

    /// Returns a handle to the values with an index in `range`. It borrows the file.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if the range ends past [`len`](Self::len), [`Error::Reversed`] if it
    /// ends before it begins.
    pub fn slice(&self, range: Range<u64>) -> Result<Array<T, &AtomicMappedFile>> {
        self.borrowed().slice(range)
    }

    /// Returns a handle to the same values that borrows the file.
    #[inline]
    pub fn borrowed(&self) -> Array<T, &AtomicMappedFile> {
        Array { file: &self.file, offset: self.offset, count: self.count, value: PhantomData }
    }

    /// Returns the array's handle to the file, for example to close it.
    pub fn into_file(self) -> AtomicMappedFile {
        self.file
    }
}

/// An iterator over the values of an [`Array`]. See [`Array::iter`].
pub struct Iter<'a, T, F = AtomicMappedFile> {
    array: Array<T, &'a F>,
    /// The bytes of the block that was read last.
    block: Vec<u8>,
    /// The first value of that block.
    first: u64,
    /// The values of that block that are left.
    left: Range<u64>,
}

impl<T: Record, F: Source> Iter<'_, T, F> {
    /// Reads the block after the last one.
    #[inline(never)]
    fn read_block(&mut self) -> Result<()> {
        let size = size_of::<T>();
        self.first = self.left.end;
        let count = (self.array.count - self.first).min((BLOCK / size.max(1)).max(1) as u64);
        self.left = self.first..self.first + count;
        self.block.resize(count as usize * size, 0);
        let offset = self.array.offset + self.first * size as u64;
        self.array.file.read_at(&mut self.block, offset)
    }

    /// Returns the next value. There is one.
    #[inline]
    fn read_next(&mut self) -> Result<T> {
        if self.left.is_empty() {
            self.read_block()?;
        }
        let index = self.left.start;
        self.left.start += 1;
        self.array.value_in(&self.block, index - self.first, index)
    }
}

impl<T: Record, F: Source> Iterator for Iter<'_, T, F> {
    type Item = Result<T>;

    #[inline]
    fn next(&mut self) -> Option<Result<T>> {
        if self.left.start == self.array.count {
            return None;
        }
        let next = self.read_next();
        if next.is_err() {
            self.left = self.array.count..self.array.count;
        }
        Some(next)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // An error may end the iteration early.
        let left = self.array.count - self.left.start;
        (usize::from(left > 0), usize::try_from(left).ok())
    }
}

impl<T: Record, F: Source> std::iter::FusedIterator for Iter<'_, T, F> {}

impl<'a, T: Record, F: Source> IntoIterator for &'a Array<T, F> {
    type Item = Result<T>;
    type IntoIter = Iter<'a, T, F>;

    fn into_iter(self) -> Iter<'a, T, F> {
        self.iter()
    }
}

impl<T, F> fmt::Debug for Iter<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").field("array", &self.array).finish_non_exhaustive()
    }
}

impl<T, F> fmt::Debug for Array<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Array")
            .field("offset", &self.offset)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

// Not derived: `T` need not be `Clone`.
impl<T, F: Clone> Clone for Array<T, F> {
    fn clone(&self) -> Self {
        let Array { offset, count, .. } = *self;
        Array { file: self.file.clone(), offset, count, value: PhantomData }
    }
}

impl<T, F: Copy> Copy for Array<T, F> {}
