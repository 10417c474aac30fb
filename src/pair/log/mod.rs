//! The log of one open pair: lanes, their flip records, and the log area for long records.
//!
//! May import `pair::{gates, hints, stats, region, page_table}`, and what lies below the engine.

pub mod guard;
pub mod lane;
pub mod lanes;
pub mod log_area;
pub mod records;
