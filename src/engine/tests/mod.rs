//! White-box tests of the engine: they open a pair through the public API and look inside.

mod aligned;
mod budget;
mod cuts;
mod deploy;
mod direct;
#[cfg(all(feature = "recorder", feature = "tracing"))]
mod events;
mod fixture;
mod gather;
mod length;
#[cfg(feature = "recorder")]
mod long_runs;
mod on_read;
mod pin;
mod poisoned;
mod prefetch;
mod read_all;
mod read_page;
mod read_range;
mod read_set;
mod read_vs_truncate;
mod snapshots;
mod space;
mod stamps;
mod write_page;
