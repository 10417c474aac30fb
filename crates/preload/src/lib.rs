//! Atomic, crash-safe files for programs that know nothing of [`atomic_mmap`], by `LD_PRELOAD`.
//!
//! The library replaces libc's calls on files. `ATOMIC_MMAP_FILES` chooses files by their paths;
//! the calls on all others go on to libc. The crate's README says what is promised and how to use
//! it. `docs/decisions/preload.md` has the rules for each call.
//!
//! | module | holds |
//! |---|---|
//! | `ffi` | all `unsafe` code: the calls under libc's names, and libc's own ones |
//! | `table` | what each descriptor of the process is |
//! | `description` | an open file description: access, offset, reads and writes |
//! | `pair` | the open files that descriptions share |
//! | `regions` | shared writable mappings, and the publication of what programs change there |
//! | `settings`, `pattern` | the environment variables; the patterns in them |
//! | `folders` | which folders hold no chosen file, for a moment |
//! | `inside`, `log`, `errno` | the guard against own calls, the log, the numbers of errors |
//!
//! Invariants:
//! 1. Without `ATOMIC_MMAP_FILES` no call does more than go on to libc.
//! 2. A descriptor that is not chosen costs one load. Its calls take no lock and allocate nothing.
//! 3. A write call is one operation of the file.
//! 4. No panic leaves the library: it becomes `EIO`.
//! 5. A publication of a shared mapping is one operation of the file.
//! 6. A call that cannot keep the promise fails with an error, and never goes on to the home file.
#![deny(unsafe_code)]
#![cfg_attr(test, allow(dead_code, reason = "without `ffi` most calls have no caller"))]

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
compile_error!("atomic-mmap-preload replaces the calls of glibc on Linux");

mod description;
mod errno;
#[cfg(not(test))]
#[allow(unsafe_code)]
mod ffi;
mod folders;
mod inside;
mod log;
mod pair;
mod pattern;
mod regions;
mod settings;
mod table;
