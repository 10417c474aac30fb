//! Typed access to values. Each call is one atomic operation.
//!
//! Owns: the traits of values, and the calls that load and store them by offset.
//!
//! Types are plain bytes in the sense of zerocopy. Integers are stored in the machine's byte order.
//! Use the types of `zerocopy::little_endian` for a file that moves between machines.
//!
//! May import: the handle, the transaction, the errors and `platform`.

use crate::api::file::AtomicMappedFile;
use crate::api::transaction::Transaction;
use crate::error::{Error, Result};
use crate::platform::read_value;
use zerocopy::{Immutable, IntoBytes, TryFromBytes};

/// A type that can be read from a file. It has no padding.
///
/// If not all bytes are a valid value of the type, as with `bool` and enums, each load checks them.
/// Bytes that are no valid value are [`Error::InvalidValue`].
///
/// [`record!`](crate::record) defines types that implement it. So do the derives of
/// [`zerocopy`]: `TryFromBytes` or `FromBytes`, and `IntoBytes`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be read from a file",
    label = "not a record",
    note = "define `{Self}` in `atomic_mmap::record! {{ .. }}`, or derive `FromBytes`, `IntoBytes` and \
            `Immutable` of `atomic_mmap::zerocopy` for it and give it `#[repr(C)]`",
    note = "derive `TryFromBytes` instead of `FromBytes` if it has a field of type `bool` or an enum",
    note = "use `atomic_mmap::Optional<T>` instead of `Option<T>`"
)]
pub trait Readable: TryFromBytes + IntoBytes {}
#[diagnostic::do_not_recommend]
impl<T: TryFromBytes + IntoBytes> Readable for T {}

/// A type that can be written to a file: it has no padding and no interior mutability.
///
/// [`record!`](crate::record) defines types that implement it. So do the derives `IntoBytes` and
/// `Immutable` of [`zerocopy`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be written to a file",
    label = "not a record",
    note = "define `{Self}` in `atomic_mmap::record! {{ .. }}`, or derive `FromBytes`, `IntoBytes` and \
            `Immutable` of `atomic_mmap::zerocopy` for it and give it `#[repr(C)]`",
    note = "use `atomic_mmap::Optional<T>` instead of `Option<T>`"
)]
pub trait Writable: IntoBytes + Immutable {}
#[diagnostic::do_not_recommend]
impl<T: IntoBytes + Immutable + ?Sized> Writable for T {}

/// A type that can be read and written.
///
/// Records are integers, floats, `bool`, `char`, arrays of records, [`Optional`](crate::Optional),
/// and the types that [`record!`](crate::record) defines. A type of your own that derives
/// `FromBytes` (or `TryFromBytes`), `IntoBytes` and `Immutable` of [`zerocopy`] is
/// a record too.
///
/// A type without these derives is refused:
///
/// ```compile_fail
/// struct Vote { term: u64 }
/// fn load(f: &atomic_mmap::AtomicMappedFile) -> atomic_mmap::Result<Vote> {
///     f.load(0)
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a record",
    label = "not a record",
    note = "define `{Self}` in `atomic_mmap::record! {{ .. }}`, or derive `FromBytes`, `IntoBytes` and \
            `Immutable` of `atomic_mmap::zerocopy` for it and give it `#[repr(C)]`",
    note = "derive `TryFromBytes` instead of `FromBytes` if it has a field of type `bool` or an enum",
    note = "use `atomic_mmap::Optional<T>` instead of `Option<T>`"
)]
pub trait Record: Readable + Writable + Sized {}
#[diagnostic::do_not_recommend]
impl<T: Readable + Writable> Record for T {}

/// Returns a value after `read` has filled in its bytes, which lie at `offset` of the file.
#[inline]
pub(crate) fn load<T: Readable>(
    file: &AtomicMappedFile,
    offset: u64,
    read: impl FnOnce(&mut [u8]) -> Result<()>,
) -> Result<T> {
    read_value(read, || invalid::<T>(file, offset))
}

/// Returns the error of bytes at `offset` that are no valid `T`.
#[cold]
pub(crate) fn invalid<T>(file: &AtomicMappedFile, offset: u64) -> Error {
    let path = file.engine().path();
    Error::InvalidValue { path, offset, type_name: std::any::type_name::<T>() }
}

impl AtomicMappedFile {
    /// Returns the value at byte `offset`, which may have any alignment.
    ///
    /// # Errors
    /// Those of [`read_at`](Self::read_at). [`Error::InvalidValue`] if the bytes are no valid value
    /// of `T`.
    #[inline]
    pub fn load<T: Readable>(&self, offset: u64) -> Result<T> {
        load(self, offset, |bytes| self.read_at(bytes, offset))
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
}

impl Transaction<'_> {
    /// Returns the value at byte `offset`, as this transaction sees it.
    ///
    /// # Errors
    /// Those of [`Transaction::read_at`]. [`Error::InvalidValue`] if the bytes are no valid value
    /// of `T`.
    #[inline]
    pub fn load<T: Readable>(&mut self, offset: u64) -> Result<T> {
        load(self.file(), offset, |bytes| self.read_at(bytes, offset))
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
