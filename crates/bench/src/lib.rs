//! What does atomicity cost? This crate against the hardware's limit, the papers' systems and what users
//! have today, on one machine in one run.
//!
//! | module | question |
//! |---|---|
//! | `memory` | which bytes does everybody store to, and with which instructions? |
//! | `subject` | what is asked of everybody who is measured? |
//! | `ours` | how does this crate answer? |
//! | `baselines` | how do the papers' systems answer? Written here |
//! | `peers` | how does what users have today answer? Feature `peers` |
//! | `offsets` | where is written and read? |
//! | `measure` | how are times taken, and what is a ratio? |
//! | `figures` | what did the papers measure, and how does everybody here do by it? |
//! | `ratios` | which goals are there, and are they met? |
//! | `alone` | what does one operation do? For a profiler |
//! | `scratch` | where do the files lie? |
//!
//! Imports go downwards in this order, from the bottom up: `scratch`, `offsets`, `memory`, `subject`;
//! `ours`, `baselines`, `peers`; `measure`; `ratios`, `figures`; `alone`.

pub mod alone;
pub mod baselines;
pub mod figures;
pub mod measure;
pub mod memory;
pub mod offsets;
pub mod ours;
pub mod peers;
pub mod ratios;
pub mod scratch;
pub mod subject;
