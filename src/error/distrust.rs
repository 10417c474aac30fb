//! Reasons not to use a file as a companion.
//!
//! Owns: [`Distrust`] and its messages.
//!
//! May import: nothing from the crate.

/// The reason why a file is not safe to use as a companion.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Distrust {
    /// The file is a symbolic link, which may point to any file.
    #[error(
        "it is a symbolic link, and none is followed; remove it, or name the folder that it leads to \
         with Options::reflection_dir"
    )]
    IsLink,
    /// The file has several hard links, so a write to it may change another file.
    #[error("it has {0} hard links, and may be another file as well; remove its other names")]
    HasLinks(u64),
    /// The file's owner is neither the home file's owner nor the user of this process.
    #[error(
        "user {owner} owns it, and the home file is user {home_owner}'s; if it is right, give it to \
         that user with chown, else move it away"
    )]
    IsOwnedBy {
        /// The user id of the file's owner.
        owner: u32,
        /// The user id of the home file's owner.
        home_owner: u32,
    },
    /// The file is mounted by itself into the folder, and hides another file.
    #[error("it is mounted by itself and hides the file of the folder; unmount it")]
    IsMountedAlone,
    /// The file is a companion of another pair or of another time, or no companion.
    #[error(
        "it does not belong to the pair, or is from another time than the pair; if the right file \
         exists, put it back, else move this away"
    )]
    IsOfAnotherPair,
    /// The file is not a regular file.
    #[error("it is not a regular file; move it away")]
    IsIrregular,
}
