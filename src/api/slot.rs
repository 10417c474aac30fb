//! A handle to one value.
//!
//! Owns: [`Slot`], and the traits of the values that it can calculate with.
//!
//! May import: `source`, `value`, the handle, the snapshot and the errors.

use crate::api::file::AtomicMappedFile;
use crate::api::snapshot::Snapshot;
use crate::api::source::Source;
use crate::api::value::Record;
use crate::error::Result;
use std::borrow::Borrow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{BitAnd, BitOr, BitXor};

impl AtomicMappedFile {
    /// Returns a handle to the value at byte `offset`. It borrows the file;
    /// [`into_owned`](Slot::into_owned) makes one that holds the file.
    ///
    /// # Errors
    /// [`Error::PastEnd`](crate::Error::PastEnd) if the value does not lie within the file.
    pub fn slot<T: Record>(&self, offset: u64) -> Result<Slot<T, &AtomicMappedFile>> {
        Slot::new(self, offset)
    }
}

impl Snapshot {
    /// Returns a handle to the value at byte `offset`. It borrows the snapshot.
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// # let f = atomic_mmap::AtomicMappedFile::create(dir.path().join("x"), 4096)?;
    /// f.slot::<u32>(8)?.store(&7)?;
    /// f.snapshot("seven")?;
    /// f.slot::<u32>(8)?.store(&8)?;
    /// assert_eq!(f.open_snapshot("seven")?.slot::<u32>(8)?.load()?, 7);
    /// # Ok::<(), atomic_mmap::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::PastEnd`](crate::Error::PastEnd) if the value does not lie within the snapshot.
    pub fn slot<T: Record>(&self, offset: u64) -> Result<Slot<T, &Snapshot>> {
        Slot::new(self, offset)
    }
}

/// A handle to one value of a file. Every method is one atomic operation.
///
/// `Slot<T>` holds the file, so a struct can keep it. `Slot<T, &AtomicMappedFile>` borrows the
/// file and is `Copy`: [`AtomicMappedFile::slot`] returns it. `Slot<T, &Snapshot>` reads a
/// snapshot, and has no method that writes: [`Snapshot::slot`] returns it.
///
/// A `Slot<T>` is a further handle to the open file, as [`AtomicMappedFile::try_clone`] returns.
/// The file closes with its last handle. So [`AtomicMappedFile::close`] of another handle sets the
/// close mode and returns [`Error::StillOpen`](crate::Error::StillOpen), and the file closes when
/// the last slot is dropped.
///
/// ```
/// # let dir = atomic_mmap::doctest_dir();
/// # let path = dir.path().join("x");
/// use atomic_mmap::{AtomicMappedFile, Slot};
///
/// struct Counter {
///     value: Slot<u64>,
/// }
///
/// let f = AtomicMappedFile::create(&path, 4096)?;
/// let counter = Counter { value: f.slot(64)?.into_owned()? };
/// drop(f); // the slot keeps the file open
/// assert_eq!(counter.value.fetch_add(5)?, 0);
/// assert_eq!(counter.value.load()?, 5);
/// counter.value.into_file().close(Default::default())?;
/// # Ok::<(), atomic_mmap::Error>(())
/// ```
pub struct Slot<T, F = AtomicMappedFile> {
    pub(super) file: F,
    pub(super) offset: u64,
    pub(super) value: PhantomData<fn() -> T>,
}

impl<T: Record, F: Source> Slot<T, F> {
    fn new(file: F, offset: u64) -> Result<Self> {
        file.check_range(offset, size_of::<T>() as u64)?;
        Ok(Slot { file, offset, value: PhantomData })
    }

    /// Returns the value's offset in the file, in bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the value.
    ///
    /// # Errors
    /// Those of [`Source::load`].
    #[inline]
    pub fn load(&self) -> Result<T> {
        self.file.load(self.offset)
    }
}

impl<T: Record, F: Borrow<AtomicMappedFile>> Slot<T, F> {
    /// Returns the file.
    #[inline]
    pub fn file(&self) -> &AtomicMappedFile {
        self.file.borrow()
    }

    /// Replaces the value.
    ///
    /// # Errors
    /// Those of [`AtomicMappedFile::write_at`].
    #[inline]
    pub fn store(&self, value: &T) -> Result<()> {
        self.file().store(self.offset, value)
    }

    /// Replaces the value and returns the old one.
    ///
    /// # Errors
    /// Those of [`AtomicMappedFile::load`] and [`AtomicMappedFile::write_at`].
    pub fn swap(&self, value: &T) -> Result<T> {
        self.file().transact(|tx| {
            let old = tx.load(self.offset)?;
            tx.store(self.offset, value)?;
            Ok(old)
        })
    }

    /// Changes the value with `change`, as [`AtomicMappedFile::update`] does.
    ///
    /// # Errors
    /// Those of [`AtomicMappedFile::update`].
    pub fn update<R>(&self, change: impl FnMut(&mut T) -> R) -> Result<R> {
        self.file().update(self.offset, change)
    }

    /// Replaces the value with `new` if its bytes equal those of `old`. Returns `Ok(Ok(()))` if it
    /// replaced the value, and `Ok(Err(actual))` with the value found if not.
    ///
    /// # Errors
    /// Those of [`AtomicMappedFile::load`] and [`AtomicMappedFile::write_at`].
    pub fn compare_exchange(&self, old: &T, new: &T) -> Result<std::result::Result<(), T>> {
        self.file().transact(|tx| {
            let found: T = tx.load(self.offset)?;
            if found.as_bytes() != old.as_bytes() {
                return Ok(Err(found));
            }
            tx.store(self.offset, new)?;
            Ok(Ok(()))
        })
    }

    /// Calls `change` with the value, and replaces the value if `change` returns a new one. Returns
    /// `Ok(Ok(old))` if it replaced the value, and `Ok(Err(old))` if `change` returned `None`.
    ///
    /// If another operation changes the value in between, `change` runs again on the new value.
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// # let f = atomic_mmap::AtomicMappedFile::create(dir.path().join("x"), 4096)?;
    /// let permits = f.slot::<u32>(0)?;
    /// permits.store(&1)?;
    /// assert_eq!(permits.fetch_update(|n| n.checked_sub(1))?, Ok(1)); // took the last one
    /// assert_eq!(permits.fetch_update(|n| n.checked_sub(1))?, Err(0));
    /// # Ok::<(), atomic_mmap::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`AtomicMappedFile::update`].
    pub fn fetch_update(
        &self,
        mut change: impl FnMut(T) -> Option<T>,
    ) -> Result<std::result::Result<T, T>>
    where
        T: Copy,
    {
        self.file().transact(|tx| {
            let old = tx.load(self.offset)?;
            let Some(new) = change(old) else { return Ok(Err(old)) };
            tx.store(self.offset, &new)?;
            Ok(Ok(old))
        })
    }
}

/// Calculations. Each returns the old value, and writes nothing if the new value equals it.
impl<T: Integer, F: Borrow<AtomicMappedFile>> Slot<T, F> {
    /// Replaces the value with the maximum of it and `value`. Returns the old value.
    ///
    /// # Errors
    /// Those of [`AtomicMappedFile::write_at`].
    pub fn fetch_max(&self, value: T) -> Result<T> {
        self.fetch(|old| old.max(value))
    }

    /// Replaces the value with the minimum of it and `value`. Returns the old value.
    ///
    /// # Errors
    /// Those of [`AtomicMappedFile::write_at`].
    pub fn fetch_min(&self, value: T) -> Result<T> {
        self.fetch(|old| old.min(value))
    }

    /// Adds `value`, wrapping around at the type's limits. Returns the old value.
    ///
    /// # Errors
    /// Those of [`AtomicMappedFile::write_at`].
    pub fn fetch_add(&self, value: T) -> Result<T> {
        self.fetch(|old| old.plus(value))
    }

    /// Subtracts `value`, wrapping around at the type's limits. Returns the old value.
    ///
    /// # Errors
    /// Those of [`AtomicMappedFile::write_at`].
    pub fn fetch_sub(&self, value: T) -> Result<T> {
        self.fetch(|old| old.minus(value))
    }
}

/// Bitwise calculations. Each returns the old value, and writes nothing if the new value equals it.
impl<T: Bits, F: Borrow<AtomicMappedFile>> Slot<T, F> {
    /// Replaces the value with the bitwise *and* of it and `value`. Returns the old value.
    ///
    /// # Errors
    /// Those of [`AtomicMappedFile::load`] and [`AtomicMappedFile::write_at`].
    pub fn fetch_and(&self, value: T) -> Result<T> {
        self.fetch(|old| old & value)
    }

    /// Replaces the value with the bitwise *or* of it and `value`. Returns the old value.
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// # let f = atomic_mmap::AtomicMappedFile::create(dir.path().join("x"), 4096)?;
    /// let is_clean = f.slot::<bool>(7)?;
    /// assert_eq!(is_clean.fetch_or(true)?, false);
    /// assert_eq!(is_clean.load()?, true);
    /// # Ok::<(), atomic_mmap::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`AtomicMappedFile::load`] and [`AtomicMappedFile::write_at`].
    pub fn fetch_or(&self, value: T) -> Result<T> {
        self.fetch(|old| old | value)
    }

    /// Replaces the value with the bitwise *exclusive or* of it and `value`. Returns the old value.
    ///
    /// # Errors
    /// Those of [`AtomicMappedFile::load`] and [`AtomicMappedFile::write_at`].
    pub fn fetch_xor(&self, value: T) -> Result<T> {
        self.fetch(|old| old ^ value)
    }

    fn fetch(&self, new: impl Fn(T) -> T) -> Result<T> {
        self.file().transact(|tx| {
            let old = tx.load(self.offset)?;
            let new = new(old);
            if new != old {
                tx.store(self.offset, &new)?;
            }
            Ok(old)
        })
    }
}

impl<T> Slot<T, &AtomicMappedFile> {
    /// Returns a handle that holds the file, so that a struct can keep it.
    ///
    /// # Errors
    /// Those of [`AtomicMappedFile::try_clone`].
    pub fn into_owned(self) -> Result<Slot<T>> {
        Ok(Slot { file: self.file.try_clone()?, offset: self.offset, value: PhantomData })
    }
}

impl<T> Slot<T> {
    /// Returns a handle to the same value that borrows the file.
    #[inline]
    pub fn borrowed(&self) -> Slot<T, &AtomicMappedFile> {
        Slot { file: &self.file, offset: self.offset, value: PhantomData }
    }

    /// Returns the slot's handle to the file, for example to close it.
    pub fn into_file(self) -> AtomicMappedFile {
        self.file
    }
}

/// A type with bitwise operations. Implemented for the primitive integers and `bool`, and for no
/// other type.
pub trait Bits:
    Record
    + Eq
    + Copy
    + BitAnd<Output = Self>
    + BitOr<Output = Self>
    + BitXor<Output = Self>
    + sealed::Sealed
{
}

/// A primitive integer type. Implemented for all primitive integers, and for no other type.
pub trait Integer: Bits + Ord {
    /// Returns the wrapping sum.
    #[doc(hidden)]
    fn plus(self, other: Self) -> Self;

    /// Returns the wrapping difference.
    #[doc(hidden)]
    fn minus(self, other: Self) -> Self;
}

mod sealed {
    pub trait Sealed {}
}

impl sealed::Sealed for bool {}
impl Bits for bool {}

macro_rules! integers {
    ($($int:ty)*) => {$(
        impl sealed::Sealed for $int {}
        impl Bits for $int {}
        impl Integer for $int {
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
        }
    )*};
}
integers!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize);

impl<T, F> fmt::Debug for Slot<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("offset", &self.offset).finish_non_exhaustive()
    }
}

// Not derived: `T` need not be `Clone`.
impl<T, F: Clone> Clone for Slot<T, F> {
    fn clone(&self) -> Self {
        Slot { file: self.file.clone(), offset: self.offset, value: PhantomData }
    }
}

impl<T, F: Copy> Copy for Slot<T, F> {}
