//! The instructions for mapped memory, by architecture.
//!
//! Owns: the choice of the architecture when the crate is built. [`isa`] is the chosen one.
//!
//! Invariant: each architecture offers functions of equal names and signatures.
//!
//! May import: std only.

#[cfg(not(all(target_arch = "x86_64", not(atomic_mmap_portable), not(miri))))]
pub mod portable;
pub mod runs;
#[cfg(all(target_arch = "x86_64", not(atomic_mmap_portable), not(miri)))]
pub mod x86_64;

#[cfg(not(all(target_arch = "x86_64", not(atomic_mmap_portable), not(miri))))]
pub use portable as isa;
#[cfg(all(target_arch = "x86_64", not(atomic_mmap_portable), not(miri)))]
pub use x86_64 as isa;
