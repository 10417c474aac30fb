//! A value or none, with bytes that the crate defines.
//!
//! Owns: [`Optional`] and its layout.
//!
//! May import: nothing from the crate.

use std::fmt;
use std::hash::{Hash, Hasher};
use zerocopy::{FromZeros, Immutable, IntoBytes, KnownLayout, Unalign, Unaligned};

/// A record that holds a value or none: an [`Option`] with defined bytes.
///
/// An `Option<u64>` itself is no record, since Rust does not define its bytes.
/// `Option<NonZeroU64>` and its like are records: zero is `None`.
///
/// | bytes | hold |
/// |---|---|
/// | 0 | 0 for none, 1 for a value |
/// | 1 to `size_of::<T>()` | the value, or zeros for none |
///
/// So it is one byte longer than `T`, has alignment 1, and zeroed bytes are none. Any other byte 0
/// is [`Error::InvalidValue`](crate::Error::InvalidValue).
///
/// ```
/// # let dir = atomic_mmap::doctest_dir();
/// # let f = atomic_mmap::AtomicMappedFile::create(dir.path().join("x"), 4096)?;
/// use atomic_mmap::Optional;
///
/// let voted_for = f.slot::<Optional<u64>>(64)?;
/// assert_eq!(voted_for.load()?.get(), None);
/// voted_for.store(&Some(7).into())?;
/// assert_eq!(voted_for.load()?.get(), Some(7));
///
/// // Votes only once.
/// let vote = voted_for.compare_exchange(&Optional::none(), &Some(8).into())?;
/// assert_eq!(vote, Err(Some(7).into()));
/// # Ok::<(), atomic_mmap::Error>(())
/// ```
#[derive(FromZeros, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub struct Optional<T: Copy> {
    is_some: bool,
    value: Unalign<T>,
}

impl<T: Copy> Optional<T> {
    /// Returns a record that holds `value`.
    pub const fn some(value: T) -> Self {
        Optional { is_some: true, value: Unalign::new(value) }
    }

    /// Returns the value, or `None`.
    pub fn get(&self) -> Option<T> {
        self.is_some.then(|| self.value.get())
    }
}

impl<T: Copy + FromZeros> Optional<T> {
    /// Returns a record that holds no value. Its bytes are zeros.
    pub fn none() -> Self {
        Self::new_zeroed()
    }
}

impl<T: Copy + FromZeros> From<Option<T>> for Optional<T> {
    fn from(value: Option<T>) -> Self {
        value.map_or_else(Self::none, Self::some)
    }
}

impl<T: Copy> From<Optional<T>> for Option<T> {
    fn from(value: Optional<T>) -> Self {
        value.get()
    }
}

impl<T: Copy + FromZeros> Default for Optional<T> {
    fn default() -> Self {
        Self::none()
    }
}

impl<T: Copy + PartialEq> PartialEq for Optional<T> {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl<T: Copy + Eq> Eq for Optional<T> {}

impl<T: Copy + Hash> Hash for Optional<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.get().hash(state);
    }
}

impl<T: Copy + fmt::Debug> fmt::Debug for Optional<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::Optional;
    use zerocopy::{IntoBytes, TryFromBytes};

    #[test]
    fn the_bytes_are_those_of_its_documentation() {
        let golden = [1, 0xEF, 0xCD, 0xAB, 0x89];
        let some = Optional::some(0x89AB_CDEF_u32.to_le());
        assert_eq!(some.as_bytes(), golden);
        assert_eq!(Optional::try_read_from_bytes(&golden), Ok(some));
        assert_eq!(Optional::<u32>::none().as_bytes(), [0; 5]);
        assert_eq!(Optional::<u64>::from(None).as_bytes(), [0; 9]);
        assert_eq!(Optional::from(Some([true, false])).as_bytes(), [1, 1, 0]);
        assert_eq!((size_of::<Optional<u64>>(), align_of::<Optional<u64>>()), (9, 1));
    }

    #[test]
    fn only_0_and_1_are_valid_and_the_value_must_be_valid_too() {
        assert!(Optional::<u8>::try_read_from_bytes(&[2, 0]).is_err());
        assert!(Optional::<bool>::try_read_from_bytes(&[1, 2]).is_err());
        assert_eq!(
            Optional::<bool>::try_read_from_bytes(&[1, 1]).expect("valid").get(),
            Some(true)
        );
        // Bytes after a 0 do not count, so the two are equal.
        let none = Optional::<u8>::try_read_from_bytes(&[0, 9]).expect("valid");
        assert_eq!((none, none.get()), (Optional::none(), None));
    }

    #[test]
    fn it_prints_as_an_option() {
        let all = [Optional::some(7_u8), Optional::none()];
        assert_eq!(format!("{all:?}"), "[Some(7), None]");
    }
}
