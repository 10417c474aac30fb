//! The cost of atomicity: this crate against the hardware's limit, the papers' systems and the
//! systems that users have today. All run on one machine in one run.
//!
//! | module | contents |
//! |---|---|
//! | `memory` | the memory of all baselines, and its instructions |
//! | `subject` | the interface of all contenders |
//! | `ours` | this crate as a contender |
//! | `baselines` | the papers' systems, written here |
//! | `peers` | the systems that users have today, with feature `peers` |
//! | `offsets` | the offsets of writes and reads |
//! | `measure` | times in turns, and ratios |
//! | `figures` | the papers' experiments, repeated with all contenders |
//! | `practical` | practical tasks, against the usual ways to do them |
//! | `fio` | unmodified fio on `crates/preload`, against the kernel |
//! | `sqlite` | SQLite on this crate's VFS, against SQLite on its own |
//! | `ratios` | the goals, and their measurements |
//! | `snapshots` | snapshots, against the same work without them |
//! | `policies` | deployment by policy, in the background and within a budget; tail latency |
//! | `stage` | bytes that arrive by a call, put in place or copied |
//! | `alone` | one operation, for a profiler |
//! | `scratch` | the folders of the files |
//!
//! Imports go downwards in this order, from the bottom up: `scratch`, `offsets`, `memory`,
//! `subject`; `ours`, `baselines`, `peers`; `measure`; `ratios`, `figures`; `practical`, `fio`,
//! `sqlite`, `snapshots`, `policies`, `stage`, `alone`.

pub mod alone;
pub mod baselines;
pub mod figures;
pub mod fio;
pub mod measure;
pub mod memory;
pub mod offsets;
pub mod ours;
pub mod peers;
pub mod policies;
pub mod practical;
pub mod ratios;
pub mod scratch;
pub mod snapshots;
pub mod sqlite;
pub mod stage;
pub mod subject;
