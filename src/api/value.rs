//! Typed access to values. Each call is one atomic operation.
//!
//! Types are plain bytes in the sense of zerocopy: derive `FromBytes`, `IntoBytes` and `Immutable`.
//! Integers are stored in the machine's byte order. Use the types of `zerocopy::little_endian` for
//! a file that moves between machines.

use crate::api::file::AtomicMappedFile;
use crate::api::transaction::Transaction;
use crate::error::{Error, Result};
use std::fmt;
use std::marker::PhantomData;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A type that can be read from a file: any bytes are a valid value, and it has no padding.
pub trait Readable: FromBytes + IntoBytes {}
impl<T: FromBytes + IntoBytes> Readable for T {}

/// A type that can be written to a file: it has no padding and no interior mutability.
pub trait Writable: IntoBytes + Immutable {}
impl<T: IntoBytes + Immutable + ?Sized> Writable for T {}

/// A type that can be read and written.
pub trait Record: Readable + Writable + Sized {}
impl<T: Readable + Writable> Record for T {}

/// Returns a value after `read` has filled in its bytes.
#[inline]
pub(crate) fn load<T: Readable>(read: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<T> {
    let mut value = T::new_zeroed();
    read(value.as_mut_bytes())?;
    Ok(value)
}

impl AtomicMappedFile {
    /// Returns the value at byte `offset`, which may have any alignment.
    ///
    /// # Errors
    /// Those of [`read_at`](Self::read_at).
    #[inline]
    pub fn load<T: Readable>(&self, offset: u64) -> Result<T> {
        load(|bytes| self.read_at(bytes, offset))
    }

    /// Writes `value` at byte `offset`, which may have any alignment.
    ///
    /// # Errors
    /// Those of [`write_at`](Self::write_at).
    #[inline]
    pub fn store<T: Writable + ?Sized>(&self, offset: u64, value: &T) -> Result<()> {
        self.write_at(value.as_bytes(), offset)
    }

    /// Reads the value at byte `offset`, calls `change` on it and writes it back, as one operation.
    /// If another operation changes the value in between, `change` runs again on the new value.
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// # let f = atomic_mmap::AtomicMappedFile::create(dir.path().join("x"), 4096)?;
    /// let n = f.update(64, |n: &mut u64| {
    ///     *n += 1;
    ///     *n
    /// })?;
    /// assert_eq!(n, 1);
    /// # Ok::<(), atomic_mmap::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`write_at`](Self::write_at). [`Error::SelfConflict`] if `change` itself writes to
    /// the value through another operation on the file: see [`transact`](Self::transact).
    pub fn update<T: Record, R>(
        &self,
        offset: u64,
        mut change: impl FnMut(&mut T) -> R,
    ) -> Result<R> {
        self.transact(|tx| {
            let mut value = tx.load(offset)?;
            let result = change(&mut value);
            tx.store(offset, &value)?;
            Ok(result)
        })
    }

    /// Returns a handle to the value at byte `offset`.
    ///
    /// # Errors
    /// [`Error::PastEnd`] if the value does not lie within the file.
    pub fn slot<T: Record>(&self, offset: u64) -> Result<Slot<'_, T>> {
        self.engine().check_range(offset, size_of::<T>() as u64)?;
        Ok(Slot { file: self, offset, value: PhantomData })
    }

    /// Returns a handle to `count` contiguous values that start at byte `offset`.
    ///
    /// # Errors
    /// [`Error::PastEnd`] if the values do not lie within the file. [`Error::Overflow`] if their
    /// end exceeds `u64::MAX`.
    pub fn array<T: Record>(&self, offset: u64, count: u64) -> Result<Array<'_, T>> {
        let size = size_of::<T>() as u64;
        let overflow = || Error::Overflow { path: self.engine().path(), offset, count, size };
        let len = count.checked_mul(size).ok_or_else(overflow)?;
        offset.checked_add(len).ok_or_else(overflow)?;
        self.engine().check_range(offset, len)?;
        Ok(Array { file: self, offset, count, value: PhantomData })
    }
}

/// A handle to one value of a file. Every method is one atomic operation.
pub struct Slot<'a, T> {
    file: &'a AtomicMappedFile,
    offset: u64,
    value: PhantomData<fn() -> T>,
}

impl<T: Record> Slot<'_, T> {
    /// Returns the value's offset in the file, in bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the value.
    ///
    /// # Errors
    /// Those of [`AtomicMappedFile::read_at`].
    #[inline]
    pub fn load(&self) -> Result<T> {
        self.file.load(self.offset)
    }

    /// Replaces the value.
    ///
    /// # Errors
    /// Those of [`AtomicMappedFile::write_at`].
    #[inline]
    pub fn store(&self, value: &T) -> Result<()> {
        self.file.store(self.offset, value)
    }

    /// Replaces the value and returns the old one.
    ///
    /// # Errors
    /// Those of [`AtomicMappedFile::write_at`].
    pub fn swap(&self, value: &T) -> Result<T> {
        self.file.transact(|tx| {
            let old = tx.load(self.offset)?;
            tx.store(self.offset, value)?;
            Ok(old)
        })
    }

    /// Changes the value with `change`, as [`AtomicMappedFile::update`] does.
    ///
    /// # Errors
    /// Those of [`AtomicMappedFile::write_at`].
    pub fn update<R>(&self, change: impl FnMut(&mut T) -> R) -> Result<R> {
        self.file.update(self.offset, change)
    }

    /// Replaces the value with `new` if its bytes equal those of `old`. Returns `Ok(Ok(()))` if it
    /// replaced the value, and `Ok(Err(actual))` with the value found if not.
    ///
    /// # Errors
    /// Those of [`AtomicMappedFile::write_at`].
    pub fn compare_exchange(&self, old: &T, new: &T) -> Result<std::result::Result<(), T>> {
        self.file.transact(|tx| {
            let found: T = tx.load(self.offset)?;
            if found.as_bytes() != old.as_bytes() {
                return Ok(Err(found));
            }
            tx.store(self.offset, new)?;
            Ok(Ok(()))
        })
    }
}

impl<T: Integer> Slot<'_, T> {
    /// Replaces the value with the maximum of it and `value`. Returns the old value. Writes nothing
    /// if the old value is at least `value`.
    ///
    /// # Errors
    /// Those of [`AtomicMappedFile::write_at`].
    pub fn fetch_max(&self, value: T) -> Result<T> {
        self.fetch(|old| (value > old).then_some(value))
    }

    /// Replaces the value with the minimum of it and `value`. Returns the old value. Writes nothing
    /// if the old value is at most `value`.
    ///
    /// # Errors
    /// Those of [`AtomicMappedFile::write_at`].
    pub fn fetch_min(&self, value: T) -> Result<T> {
        self.fetch(|old| (value < old).then_some(value))
    }

    /// Adds `value`, wrapping around at the type's limits. Returns the old value.
    ///
    /// # Errors
    /// Those of [`AtomicMappedFile::write_at`].
    pub fn fetch_add(&self, value: T) -> Result<T> {
        self.fetch(|old| Some(old.plus(value)))
    }

    fn fetch(&self, new: impl Fn(T) -> Option<T>) -> Result<T> {
        self.file.transact(|tx| {
            let old = tx.load(self.offset)?;
            if let Some(new) = new(old) {
                tx.store(self.offset, &new)?;
            }
            Ok(old)
        })
    }
}

/// A primitive integer type. Implemented for all primitive integers, and for no other type.
pub trait Integer: Record + Ord + Copy + sealed::Sealed {
    /// Returns the wrapping sum.
    #[doc(hidden)]
    fn plus(self, other: Self) -> Self;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! integers {
    ($($int:ty)*) => {$(
        impl sealed::Sealed for $int {}
        impl Integer for $int {
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
        }
    )*};
}
integers!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize);

/// A handle to contiguous values of a file. Every method is one atomic operation.
pub struct Array<'a, T> {
    file: &'a AtomicMappedFile,
    offset: u64,
    count: u64,
    value: PhantomData<fn() -> T>,
}

impl<'a, T: Record> Array<'a, T> {
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
        let size = size_of::<T>() as u64;
        match index.checked_add(count) {
            Some(end) if end <= self.count => Ok(self.offset + index * size),
            _ => Err(Error::OutOfBounds {
                path: self.file.engine().path(),
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
    /// [`AtomicMappedFile::read_at`].
    #[inline]
    pub fn get(&self, index: u64) -> Result<T> {
        self.file.load(self.offset_of(index)?)
    }

    /// Replaces value `index`.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if `index` is not below [`len`](Self::len), and those of
    /// [`AtomicMappedFile::write_at`].
    #[inline]
    pub fn set(&self, index: u64, value: &T) -> Result<()> {
        self.file.store(self.offset_of(index)?, value)
    }

    /// Fills `to` with the values from `index` on. All of them belong to one state of the file.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn get_many(&self, index: u64, to: &mut [T]) -> Result<()> {
        let offset = self.offsets(index, to.len() as u64)?;
        self.file.read_at(to.as_mut_bytes(), offset)
    }

    /// Replaces the values from `index` on with `values`, as one operation.
    ///
    /// # Errors
    /// Those of [`set`](Self::set).
    pub fn set_many(&self, index: u64, values: &[T]) -> Result<()> {
        self.file.store(self.offsets(index, values.len() as u64)?, values)
    }

    /// Returns a handle to value `index`.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if `index` is not below [`len`](Self::len).
    pub fn slot(&self, index: u64) -> Result<Slot<'a, T>> {
        Ok(Slot { file: self.file, offset: self.offset_of(index)?, value: PhantomData })
    }

    /// Changes value `index` with `change`, as [`AtomicMappedFile::update`] does.
    ///
    /// # Errors
    /// Those of [`set`](Self::set).
    pub fn update<R>(&self, index: u64, change: impl FnMut(&mut T) -> R) -> Result<R> {
        self.file.update(self.offset_of(index)?, change)
    }
}

impl Transaction<'_> {
    /// Returns the value at byte `offset`, as this transaction sees it.
    ///
    /// # Errors
    /// Those of [`Transaction::read_at`].
    #[inline]
    pub fn load<T: Readable>(&mut self, offset: u64) -> Result<T> {
        load(|bytes| self.read_at(bytes, offset))
    }

    /// Writes `value` at byte `offset` when the transaction commits.
    ///
    /// # Errors
    /// Those of [`Transaction::write_at`].
    #[inline]
    pub fn store<T: Writable + ?Sized>(&mut self, offset: u64, value: &T) -> Result<()> {
        self.write_at(value.as_bytes(), offset)
    }

    /// Reads the value at byte `offset`, calls `change` on it and writes it back.
    ///
    /// # Errors
    /// Those of [`Transaction::read_at`] and [`Transaction::write_at`].
    pub fn update<T: Record, R>(
        &mut self,
        offset: u64,
        change: impl FnOnce(&mut T) -> R,
    ) -> Result<R> {
        let mut value = self.load(offset)?;
        let result = change(&mut value);
        self.store(offset, &value)?;
        Ok(result)
    }
}

impl<T> fmt::Debug for Slot<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("offset", &self.offset).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Array<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Array")
            .field("offset", &self.offset)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

impl<T> Clone for Slot<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Slot<'_, T> {}

impl<T> Clone for Array<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Array<'_, T> {}
