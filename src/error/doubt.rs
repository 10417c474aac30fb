//! The steps after which a handle is in doubt.
//!
//! Owns: their names.
//!
//! May import: nothing from the crate.

/// The steps that poison the handle if they fail. The message of their error tells the caller to
/// open the file again. Later calls return [`Error::Poisoned`](super::Error::Poisoned) with that
/// advice.
pub(crate) const SYNC_FOR_A_POINT: &str = "sync for a durable point";
pub(crate) const WRITE_A_POINT: &str = "write of a durable point";
pub(crate) const WRITE_A_RUN: &str = "write of a long run";
pub(crate) const WRITE_AN_APPEND: &str = "write of an append to the home file";
pub(crate) const SYNC_OF_SNAPSHOTS: &str = "sync the snapshots";
pub(crate) const SYNC_OF_LENGTH: &str = "sync of the new length";

pub(super) fn leaves_doubt(call: &str) -> bool {
    let writes = [WRITE_A_POINT, WRITE_A_RUN, WRITE_AN_APPEND];
    writes.contains(&call) || [SYNC_FOR_A_POINT, SYNC_OF_LENGTH, SYNC_OF_SNAPSHOTS].contains(&call)
}
