//! Tests of snapshots.
//!
//! | module | what it asks |
//! |---|---|
//! | `automatic` | Does a file take snapshots by itself, and drop what is not kept? |
//! | `bounds` | Is a snapshot that has no room refused before anything changes? |
//! | `damage` | Is damage to a closed store told, and is a restored one refused? |
//! | `export` | Does a replica get each exported state whole, and refuse all other streams? |
//! | `full` | What do a rollback and an opening without space leave? |
//! | `kill` | Do snapshots survive SIGKILL? |
//! | `life` | Is the store made, found, refused and removed as a companion is? |
//! | `misuse` | Do they bear closures, readers, and names of all kinds? |
//! | `model` | Do snapshots hold what was sealed, with random operations? |
//! | `power` | Do they survive a loss of power, on recorded traces? |
//! | `receive` | Do imports bear names, pipes, limits, forged streams and threads of all kinds? |
//! | `steps` | Is each step durable before the next one relies on it? |
//! | `threads` | Is a snapshot one state beside writers, and does it stay so? |

mod automatic;
mod bounds;
mod damage;
mod export;
mod full;
mod kill;
mod life;
mod misuse;
mod model;
#[cfg(all(target_arch = "x86_64", not(atomic_mmap_portable)))]
mod power;
mod receive;
mod steps;
mod threads;
