//! The macro that makes the type [`Mutant`](super::Mutant) of the list of deliberate bugs.
//!
//! May import nothing from the crate.

macro_rules! mutants {
    ($($file:literal { $($mutant:ident $name:literal: $breaks:literal,)* })*) => {
        /// A deliberate bug.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[cfg_attr(
            not(all(target_os = "linux", not(atomic_mmap_portable))),
            allow(dead_code, reason = "some are planted in calls of Linux")
        )]
        #[repr(u16)]
        pub enum Mutant {
            $($(#[doc = $breaks] $mutant,)*)*
        }

        /// All bugs, in the order of their numbers.
        #[cfg(feature = "mutants")]
        pub const ALL: &[Mutant] = &[$($(Mutant::$mutant,)*)*];

        #[cfg(feature = "mutants")]
        impl Mutant {
            /// Returns the bug's name.
            pub fn name(self) -> &'static str {
                match self { $($(Mutant::$mutant => $name,)*)* }
            }

            /// Returns the file with the bug, relative to `src`.
            pub fn file(self) -> &'static str {
                match self { $($(Mutant::$mutant => $file,)*)* }
            }

            /// Returns a description of what the bug breaks.
            pub fn breaks(self) -> &'static str {
                match self { $($(Mutant::$mutant => $breaks,)*)* }
            }
        }
    };
}

pub(super) use mutants;
