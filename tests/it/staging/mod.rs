//! Tests of stages: ranges that are filled first, and committed without a copy.
//!
//! | module | what it asks |
//! |---|---|
//! | `basics` | Does each call do what it says, with the right errors? |
//! | `model` | Does a file with stages do what vectors of bytes do, with random operations? |
//! | `threads` | Do stages beside threads of all kinds stay whole, and disturb none? |
//! | `power` | Does a loss of power find committed stages whole, and forget all others? |

mod basics;
mod model;
#[cfg(all(target_os = "linux", target_arch = "x86_64", not(atomic_mmap_portable)))]
mod power;
mod threads;
