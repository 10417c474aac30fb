//! The verification of pages by their sums.
//!
//! A thin layer over `engine::scrub`. May import `api::file`, the engine, `config` and below.

use crate::api::file::AtomicMappedFile;
use crate::error::Result;
use std::ops::Range;

/// The result of [`AtomicMappedFile::verify`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Verification {
    /// The number of pages that were verified. Pages that were never written do not count. 0 if the
    /// file has no sums.
    pub pages: u64,
    /// The damaged pages, in ascending order, as ranges of offsets in bytes.
    pub damaged: Vec<Range<u64>>,
}

impl AtomicMappedFile {
    /// Verifies the pages of `range`, in bytes, by their sums. Other threads go on reading and
    /// writing. [`Options::on_progress`](crate::Options::on_progress) hears of its progress.
    ///
    /// Only a file with [page sums](crate::Integrity) has something to verify.
    ///
    /// # Errors
    /// [`Error::PastEnd`], [`Error::Reversed`], [`Error::Poisoned`], [`Error::Forked`],
    /// [`Error::Io`]. Damage is no error here: it is what the result tells.
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// use atomic_mmap::{AtomicMappedFile, Integrity};
    ///
    /// let options = AtomicMappedFile::options().create(true).len(1 << 20);
    /// let f = options.integrity(Integrity::OnScrub).open(dir.path().join("state.dat"))?;
    /// f.write_at(b"a ledger", 0)?;
    /// let found = f.verify(0..f.len())?;
    /// assert!(found.pages > 0 && found.damaged.is_empty());
    /// # Ok::<(), atomic_mmap::Error>(())
    /// ```
    ///
    /// [`Error::PastEnd`]: crate::Error::PastEnd
    /// [`Error::Reversed`]: crate::Error::Reversed
    /// [`Error::Poisoned`]: crate::Error::Poisoned
    /// [`Error::Forked`]: crate::Error::Forked
    /// [`Error::Io`]: crate::Error::Io
    pub fn verify(&self, range: Range<u64>) -> Result<Verification> {
        let engine = self.engine();
        engine.check_usable()?;
        let found = engine.verify(engine.check_bounds(range)?)?;
        Ok(Verification { pages: found.pages, damaged: found.damaged })
    }
}
