//! Events of rare things, for `tracing`.
//!
//! Invariant: without the feature `tracing` nothing is left of an event, and its fields are not
//! computed. May import `shown` of the errors.

/// Emits an event of target `atomic_mmap`. Its level and fields are those of `tracing::event!`.
macro_rules! event {
    ($level:ident, $($fields:tt)+) => {
        #[cfg(feature = "tracing")]
        tracing::event!(target: "atomic_mmap", tracing::Level::$level, $($fields)+);
    };
}

/// Notes how long a durable point took, if that was long.
#[cfg(feature = "tracing")]
pub(crate) fn note_point(file: &std::path::Path, number: u64, took: std::time::Duration) {
    /// The time from which a durable point is slow: disks take milliseconds.
    const SLOW: std::time::Duration = std::time::Duration::from_secs(1);
    if took >= SLOW {
        event!(WARN, file = %crate::error::shown(file), number, ?took, "slow durable point");
    }
}
