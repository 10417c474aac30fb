//! Deliberate bugs for mutation tests, which check that the tests notice each bug.
//!
//! At most one bug is planted at a time. `unless!(Bug, step)` runs `step`, except while `Bug` is
//! planted. `planted!(Bug)` is `true` while `Bug` is planted, and otherwise `false`. Without the
//! feature `mutants` both are constants, and the compiler removes all of this: the published
//! package has no list of bugs. With it, each use is one relaxed load.
//!
//! The part `mutants` of the lab lists for each bug the test that notices it. May import nothing
//! from the crate.

#[cfg(feature = "mutants")]
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

/// Evaluates to `true` while the bug is planted.
#[cfg(feature = "mutants")]
macro_rules! planted {
    ($mutant:ident) => {
        $crate::mutant::is_on($crate::mutant::Mutant::$mutant)
    };
}

/// Evaluates to `false`: without the feature `mutants` no bug is planted.
#[cfg(not(feature = "mutants"))]
macro_rules! planted {
    ($mutant:ident) => {
        $crate::mutant::is_on(stringify!($mutant))
    };
}

/// Runs a step of a protocol, except while the bug that omits it is planted.
macro_rules! unless {
    ($mutant:ident, $step:expr) => {
        if !$crate::mutant::planted!($mutant) {
            $step;
        }
    };
}

pub(crate) use {planted, unless};

#[cfg(feature = "mutants")]
mod bugs;
#[cfg(feature = "mutants")]
mod list;
#[cfg(feature = "mutants")]
mod snapshot_bugs;
#[cfg(feature = "mutants")]
mod space_bugs;
#[cfg(feature = "mutants")]
mod stage_bugs;
#[cfg(feature = "mutants")]
mod sum_bugs;

#[cfg(feature = "mutants")]
pub use bugs::{ALL, Mutant};

/// Returns `false`. A call with the bug's name: so no condition is a literal, and two steps that
/// differ in their bugs differ for the compiler's checks.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub(crate) const fn is_on(_: &str) -> bool {
    false
}

/// Environment variable with the name of the bug to plant for the whole process.
#[cfg(feature = "mutants")]
pub const VARIABLE: &str = "ATOMIC_MMAP_MUTANT";

/// The number of the planted bug, [`NONE`], or [`UNKNOWN`].
#[cfg(feature = "mutants")]
static ON: AtomicU16 = AtomicU16::new(UNKNOWN);
#[cfg(feature = "mutants")]
const NONE: u16 = u16::MAX;
/// The environment variable has not been read yet.
#[cfg(feature = "mutants")]
const UNKNOWN: u16 = u16::MAX - 1;

/// Returns `true` if `mutant` is planted.
#[cfg(feature = "mutants")]
#[inline]
pub(crate) fn is_on(mutant: Mutant) -> bool {
    let on = ON.load(Ordering::Relaxed);
    (on == mutant as u16 || on == UNKNOWN && ask() == mutant as u16) && {
        dawdle();
        true
    }
}

/// Reads the environment variable, and returns the number of the planted bug.
#[cfg(feature = "mutants")]
#[cold]
fn ask() -> u16 {
    let on = match std::env::var(VARIABLE) {
        Ok(name) => by_name(&name).unwrap_or_else(|| panic!("{VARIABLE}={name}: no such")) as u16,
        Err(_) => NONE,
    };
    // Fails if another thread has planted a bug meanwhile.
    match ON.compare_exchange(UNKNOWN, on, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => on,
        Err(planted) => planted,
    }
}

/// Sometimes delays the thread at the bug. This widens the window of a race, so that tests notice a
/// missing lock or check within seconds.
#[cfg(feature = "mutants")]
#[cold]
fn dawdle() {
    static TIMES: AtomicU32 = AtomicU32::new(0);
    match TIMES.fetch_add(1, Ordering::Relaxed) % 8 {
        0 => std::thread::sleep(std::time::Duration::from_micros(50)),
        4 => std::thread::yield_now(),
        _ => {}
    }
}

/// Plants `mutant` in the whole process, in place of the bug planted before.
#[cfg(feature = "mutants")]
pub fn set(mutant: Option<Mutant>) {
    ON.store(mutant.map_or(NONE, |mutant| mutant as u16), Ordering::Relaxed);
}

/// Returns the bug with this name.
#[cfg(feature = "mutants")]
pub fn by_name(name: &str) -> Option<Mutant> {
    ALL.iter().copied().find(|mutant| mutant.name() == name)
}

#[cfg(all(test, feature = "mutants"))]
mod tests {
    use super::*;

    #[test]
    fn every_name_names_one() {
        for (n, mutant) in ALL.iter().enumerate() {
            assert_eq!(*mutant as usize, n);
            assert_eq!(by_name(mutant.name()), Some(*mutant));
        }
    }

    /// Checks that each listed bug is planted in the file that the list names.
    #[test]
    fn every_one_is_planted_where_it_says() {
        for mutant in ALL {
            let path = format!("{}/../../src/{}", env!("CARGO_MANIFEST_DIR"), mutant.file());
            let mut source = std::fs::read_to_string(path).expect("the file");
            source.retain(|character| !character.is_whitespace());
            assert!(source.contains(&format!("!({mutant:?}")), "{}", mutant.name());
        }
    }
}
