//! The macro that defines records.
//!
//! Owns: `record!`.
//!
//! May import: nothing.

/// Defines a type that can be stored in a file: a [`Record`](crate::Record).
///
/// It gives the type the derives of [`zerocopy`] that a record needs, and structs
/// `#[repr(C)]`. So a program needs no dependency on `zerocopy`. Attributes, documentation and
/// further derives stay as they are.
///
/// | form | fields | a load |
/// |---|---|---|
/// | `struct` | integers, floats, arrays and structs of them | takes any bytes |
/// | `checked struct` | also `bool`, `char`, enums and `Optional` | checks the bytes |
/// | `enum` | none, with `#[repr(u8)]` or another integer | checks the bytes |
///
/// Bytes that fail the check are [`Error::InvalidValue`](crate::Error::InvalidValue). For an
/// `Option` there is [`Optional`](crate::Optional).
///
/// ```
/// # let dir = atomic_mmap::doctest_dir();
/// # let f = atomic_mmap::AtomicMappedFile::create(dir.path().join("x"), 4096)?;
/// use atomic_mmap::{Optional, record};
///
/// record! {
///     /// The vote of a Raft node.
///     #[derive(Clone, Copy, PartialEq, Debug)]
///     pub struct Vote {
///         pub term: u64,
///         pub candidate: u64,
///     }
/// }
///
/// record! {
///     #[derive(Clone, Copy, PartialEq, Debug)]
///     #[repr(u8)]
///     enum Role { Follower, Candidate, Leader }
/// }
///
/// record! {
///     #[derive(Clone, Copy, PartialEq, Debug)]
///     checked struct Node {
///         role: Role,
///         is_learner: bool,
///         leader: Optional<[u8; 16]>,
///     }
/// }
///
/// f.store(0, &Vote { term: 7, candidate: 2 })?;
/// assert_eq!(f.load::<Vote>(0)?.term, 7);
///
/// let node = Node { role: Role::Leader, is_learner: false, leader: Optional::none() };
/// f.store(64, &node)?;
/// assert_eq!(f.load::<Node>(64)?, node);
/// # Ok::<(), atomic_mmap::Error>(())
/// ```
///
/// A record has no padding, so that each of its bytes is defined. A struct with a gap between its
/// fields is refused. Fill the gap with a field, such as `reserved: [u8; 7]`:
///
/// ```compile_fail
/// atomic_mmap::record! {
///     struct Gap { flags: u8, count: u64 }
/// }
/// ```
///
/// A `struct` has no field that needs a check. Write `checked struct`:
///
/// ```compile_fail
/// atomic_mmap::record! {
///     struct Unchecked { is_new: bool }
/// }
/// ```
///
/// The crate must be a dependency under its own name, `atomic_mmap`.
#[macro_export]
macro_rules! record {
    ($(#[$meta:meta])* $vis:vis struct $($rest:tt)*) => {
        #[derive(
            $crate::zerocopy::FromBytes,
            $crate::zerocopy::IntoBytes,
            $crate::zerocopy::Immutable,
        )]
        #[zerocopy(crate = "atomic_mmap::zerocopy")]
        #[repr(C)]
        $(#[$meta])* $vis struct $($rest)*
    };
    ($(#[$meta:meta])* $vis:vis checked struct $($rest:tt)*) => {
        #[derive(
            $crate::zerocopy::TryFromBytes,
            $crate::zerocopy::IntoBytes,
            $crate::zerocopy::Immutable,
        )]
        #[zerocopy(crate = "atomic_mmap::zerocopy")]
        #[repr(C)]
        $(#[$meta])* $vis struct $($rest)*
    };
    ($(#[$meta:meta])* $vis:vis enum $($rest:tt)*) => {
        #[derive(
            $crate::zerocopy::TryFromBytes,
            $crate::zerocopy::IntoBytes,
            $crate::zerocopy::Immutable,
        )]
        #[zerocopy(crate = "atomic_mmap::zerocopy")]
        $(#[$meta])* $vis enum $($rest)*
    };
}
