//! The gate that every call to the operating system passes.
//!
//! Owns: `attempt!`, which repeats interrupted calls, and the classes of errors that have a
//! fallback.
//!
//! Invariants:
//! - A recorder sees every attempt at every call, and can make it fail, be interrupted or be short.
//!   Retries and fallbacks lie outside the gate and are reached too.
//! - No call is repeated after an error other than an interruption.
//!
//! May import: std and the planted bugs. The macro names the recorder, where it is used.

use crate::mutant::planted;
use std::io::{self, ErrorKind};

/// The gate: one call, retried until it is not interrupted. `$act` makes the attempt and gets the
/// maximal number of bytes that it may move. `$simulated` makes the attempt on the simulated
/// machine `$machine`. `$what` says what the trace notes after a success. `$named` are the values
/// that only the last two need.
macro_rules! attempt {
    (
        $platform:expr, $call:expr, $act:expr, [$machine:ident => $simulated:expr],
        [$($named:ident),*] $what:expr
    ) => {
        loop {
            $(let _ = &$named;)*
            let _: &str = $call;
            let result: io::Result<_> = match $platform {
                Platform::Native(_) => ($act)(usize::MAX),
                #[cfg(feature = "recorder")]
                Platform::Recording(recorder) => recorder.attempt($call, $act, $what),
                #[cfg(feature = "recorder")]
                Platform::Simulated($machine) => $simulated,
            };
            match result {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => break result,
            }
        }
    };
    ($platform:expr, $call:expr, $act:expr, [$machine:ident => $simulated:expr]) => {
        attempt!($platform, $call, $act, [$machine => $simulated], [] |_| What::Os($call))
    };
}

pub(super) use attempt;

/// Returns `true` if the file system does not support the call.
pub(super) fn is_unsupported(error: &io::Error) -> bool {
    error.kind() == ErrorKind::Unsupported
}

/// Returns `true` if the call is unavailable: the system does not know it, or a filter refuses it
/// (seccomp in containers, mostly with EPERM). For calls with a fallback that needs the same
/// rights, so that a file without write permission is an error there, too.
pub(super) fn is_refused(error: &io::Error) -> bool {
    is_unsupported(error)
        || error.kind() == ErrorKind::PermissionDenied && !planted!(FilterNotExpected)
}

/// Returns `None` where the call fails with an error of the class `is_expected`.
pub(super) fn none_if<T>(
    is_expected: fn(&io::Error) -> bool,
    result: io::Result<T>,
) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_expected(&error) => Ok(None),
        Err(error) => Err(error),
    }
}
