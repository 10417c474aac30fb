//! The integration tests, in one binary: each binary more would link the crate once more, and run
//! its tests alone.
//!
//! | module | what it asks |
//! |---|---|
//! | `allocation` | Is every page allocated before it is stored to? |
//! | `boundaries` | Do all offsets and lengths work around slices, pages and regions? |
//! | `closing` | Does a close need nothing new, and say what it could not do? |
//! | `cold` | Is a file that is not in memory read ahead for scans, and for no other reads? |
//! | `copy` | Does a copy of an open file hold one state of the file? |
//! | `drains` | How many drains does each write protocol take, in which order? |
//! | `durable` | Does recovery after a restart return exactly to the last durable point? |
//! | `errors` | Is each error the right one, with advice, and does it change nothing? |
//! | `flush` | Does a thread or a task that waits for durability get it, or an error? |
//! | `golden` | Does each operation take the steps that it took before? |
//! | `handles` | Do slots and arrays do what atomics and vectors do? |
//! | `index` | Does the index of the examples do what a map does, and survive kills? |
//! | `journal` | Does damage to the journal cost only what no other place tells? |
//! | `kill` | Do acknowledged operations survive SIGKILL, and are all others whole or absent? |
//! | `lengths` | Do length and bytes change together, for readers and after errors? |
//! | `lone_copies` | Is a copy of the home file alone complete, or refused? |
//! | `messages` | Does a limited, filtered or hidden system cause a clear error, or none? |
//! | `model` | Does a file do what a plain `Vec<u8>` does, with random operations? |
//! | `panics` | Is a handle poisoned if a panic cuts an operation off, and is nothing lost? |
//! | `patience` | Does an open wait for a busy file? Do long opens and closes report progress? |
//! | `power` | Does recovery find a whole state after a loss of power, on recorded traces? |
//! | `races` | Does each check, wait and lock that a race needs work while the race runs? |
//! | `read_only` | Does a reader find what the next writer finds, and change nothing? |
//! | `readme` | Does the README's quickstart run as it is pasted, and again? |
//! | `regressions` | Does any bug come back that a review, a fuzzer or the lab found? |
//! | `small` | Is a small file cheap: descriptors, barriers, disk, mappings, threads? |
//! | `snapshots` | Does a snapshot hold what was sealed, and do rollbacks go back to it whole? |
//! | `space` | Is a full disk a typed error that changes nothing, and never a SIGBUS? |
//! | `sparse` | Does a large sparse file take memory only for what was used? |
//! | `staging` | Are stages committed whole, without a copy, beside everything else? |
//! | `starvation` | Does no operation lose for as long as others go on? |
//! | `steps` | Do opening, closing and resizing take the steps of `docs/recovery.md`? |
//! | `structures` | Do named roots and logs do what maps and lists do, and survive kills? |
//! | `threads` | Do threads see operations whole and in one order, and lose none? |
//! | `transactions` | Does a transaction see one state, and end for every closure? |
//! | `undrained` | Does a call leave a store behind that could arrive over a later one? |
//! | `unheard` | Does the program learn of every durable point that could not be made? |
//! | `windows` | What may other threads do while an operation is half way through? |
//! | `world` | What do moves, restores, links, owners, mounts and folders do to a pair? |
//!
//! `cargo test --test it -- space::` runs the tests of one module.
//!
//! All tests run in one process, on several threads. So a test must not change what belongs to the
//! process, and must not measure it: limits, filters, users, folders, mounts, signals, its memory,
//! its descriptors. A test that does so runs that part in a child process ([`common::child`]), with
//! one test alone. While a child is being started, it holds copies of all open files until its
//! `exec`, with their locks: a test that locks a file must unlock it, closing is not enough.

// The crate under its own name: these tests need its recorder, which only that package has.
extern crate atomic_mmap_instrumented as atomic_mmap;

mod common;

#[cfg(target_os = "linux")]
mod allocation;
#[cfg(target_os = "linux")]
mod background;
#[cfg(unix)]
mod boundaries;
#[cfg(unix)]
mod closing;
#[cfg(target_os = "linux")]
mod cold;
#[cfg(unix)]
mod copy;
mod cut_off;
#[cfg(unix)]
mod drains;
#[cfg(unix)]
mod durable;
#[cfg(unix)]
mod errors;
#[cfg(unix)]
mod flush;
#[cfg(all(target_os = "linux", not(atomic_mmap_portable)))]
mod golden;
mod handles;
#[cfg(unix)]
mod index;
mod inspect;
#[cfg(unix)]
mod journal;
#[cfg(unix)]
mod kill;
#[cfg(unix)]
mod lengths;
#[cfg(target_os = "linux")]
mod lone_copies;
#[cfg(target_os = "linux")]
mod messages;
mod model;
#[cfg(unix)]
mod panics;
mod patience;
#[cfg(all(target_os = "linux", target_arch = "x86_64", not(atomic_mmap_portable)))]
mod power;
#[cfg(unix)]
mod races;
#[cfg(all(target_os = "linux", not(atomic_mmap_portable)))]
mod read_only;
#[cfg(unix)]
mod readme;
#[cfg(unix)]
mod regressions;
#[cfg(all(target_os = "linux", not(atomic_mmap_portable)))]
mod small;
#[cfg(target_os = "linux")]
mod snapshots;
#[cfg(target_os = "linux")]
mod space;
#[cfg(target_os = "linux")]
mod sparse;
#[cfg(unix)]
mod staging;
#[cfg(unix)]
mod starvation;
#[cfg(unix)]
mod steps;
mod structures;
mod sums;
mod threads;
mod transactions;
#[cfg(unix)]
mod undrained;
#[cfg(unix)]
mod unheard;
#[cfg(unix)]
mod windows;
#[cfg(target_os = "linux")]
mod world;
