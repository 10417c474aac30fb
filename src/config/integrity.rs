//! The choice of page sums, and the report of damage.
//!
//! May import nothing from the crate.

use super::shielded;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The use of page sums: a sum of 64 bits for each page, kept up to date by every write.
///
/// A stray write, a bit that the medium has lost, or a page that came back old is
/// [`Error::Damaged`](crate::Error::Damaged), and is never read as data. The idea is RMMIO's
/// (IV-D); its sums have 32 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
#[non_exhaustive]
pub enum Integrity {
    /// No sums. A file that has some loses them.
    #[default]
    Off,
    /// A page is verified when it is touched for the first time after an open, by
    /// [`verify`](crate::AtomicMappedFile::verify), and by a scrub. A write that changes a part of
    /// a page verifies it first.
    OnScrub,
    /// A page is also verified by each read of it.
    OnRead,
}

/// Environment variable with the use of page sums of every file for which the program chooses none:
/// `off`, `on-scrub` or `on-read`. [`Options::integrity`](crate::Options::integrity) takes
/// precedence. A program with more rights than its caller, as a setuid program, ignores it.
pub const INTEGRITY_VARIABLE: &str = "ATOMIC_MMAP_INTEGRITY";

impl Integrity {
    /// Returns the choice of this name.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        match name {
            "off" => Some(Integrity::Off),
            "on-scrub" => Some(Integrity::OnScrub),
            "on-read" => Some(Integrity::OnRead),
            _ => None,
        }
    }
}

/// Bytes that are not those that were written, for
/// [`Options::on_damage`](crate::Options::on_damage).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Damage<'a> {
    /// The file.
    pub path: &'a Path,
    /// The page that the bytes lie in, as a range of offsets in bytes.
    pub range: Range<u64>,
}

/// The function that a caller has given for damage.
type Report = Arc<dyn Fn(&Damage<'_>) + Send + Sync>;

/// Tells of damage, if a caller has asked for that.
#[derive(Clone, Default)]
pub(crate) struct DamageReporter(Option<Report>);

impl DamageReporter {
    pub fn new(report: impl Fn(&Damage<'_>) + Send + Sync + 'static) -> Self {
        DamageReporter(Some(Arc::new(report)))
    }

    pub fn report(&self, damage: &Damage<'_>) {
        if let Some(report) = &self.0 {
            shielded(|| report(damage));
        }
    }
}

impl fmt::Debug for DamageReporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Some(..)" } else { "None" })
    }
}
