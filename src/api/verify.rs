//! The verification of pages by their sums, and their repair from snapshots.
//!
//! A thin layer over `engine::scrub` and `engine::snapshots::repair`. May import `api::file`, the
//! engine, `config` and below.

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

/// The result of [`AtomicMappedFile::repair`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Repair {
    /// The number of pages that were verified. Pages that were never written do not count. 0 if the
    /// file has no sums.
    pub pages: u64,
    /// The pages that were replaced, in ascending order.
    pub repaired: Vec<RepairedPage>,
    /// The pages that are damaged still, in ascending order.
    pub left: Vec<DamagedPage>,
}

/// A page that a repair has replaced.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RepairedPage {
    /// The page, as a range of offsets in bytes.
    pub range: Range<u64>,
    /// The number of the snapshot from which the page comes.
    pub number: u64,
    /// The name of that snapshot.
    pub name: String,
}

/// A page that a repair has left as it is.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DamagedPage {
    /// The page, as a range of offsets in bytes.
    pub range: Range<u64>,
    /// The name of a snapshot to drop first, and then to repair again. It reads parts of the
    /// damaged page from where they are, and an older snapshot has the page whole. `None` if no
    /// snapshot has it whole.
    pub drop_first: Option<String>,
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
        engine.check_readable()?;
        let found = engine.verify(engine.check_bounds(range)?)?;
        Ok(Verification { pages: found.pages, damaged: found.damaged })
    }

    /// Verifies the pages of `range`, in bytes, as [`verify`](Self::verify) does, and replaces each
    /// damaged one by that of the newest snapshot that has the page whole.
    ///
    /// **A repaired page goes back to an older state, alone.** It holds what the snapshot has
    /// there, and zeroes past the snapshot's end. All other pages stay as they are. Bytes that
    /// belong together and lie in several pages may then be of different times. To take the whole
    /// file back, use [`roll_back`](Self::roll_back).
    ///
    /// A snapshot has a page whole if the sum of the page at the seal proves it. That sum was noted
    /// by the first write into the page after the seal, if the file had page sums. A snapshot that
    /// no such write has followed reads the damaged page itself. While it is there, the page is not
    /// replaced, and the result names the snapshot. A repair changes no byte of any snapshot.
    ///
    /// Each page is one operation, which survives what a write
    /// [survives](Self::survives). A crash leaves the damaged page or the repaired one. A page that
    /// another thread has replaced meanwhile stays as it is.
    ///
    /// # Errors
    /// [`Error::PastEnd`], [`Error::Reversed`], [`Error::ReadOnly`], [`Error::NoSpace`],
    /// [`Error::Overdue`], [`Error::Poisoned`], [`Error::Forked`], [`Error::Io`]. Pages that were
    /// replaced before the error stay replaced. A page that no snapshot has whole is no error.
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// use atomic_mmap::{AtomicMappedFile, Integrity};
    ///
    /// let options = AtomicMappedFile::options().create(true).len(1 << 20);
    /// let f = options.integrity(Integrity::OnScrub).open(dir.path().join("state.dat"))?;
    /// f.write_at(b"a ledger", 0)?;
    /// f.snapshot("monday")?;
    /// f.write_at(b"A ledger", 0)?;
    /// let done = f.repair(0..f.len())?;
    /// for page in &done.repaired {
    ///     println!("{:?} is as it was in {}", page.range, page.name);
    /// }
    /// assert!(done.repaired.is_empty() && done.left.is_empty(), "nothing was damaged");
    /// # Ok::<(), atomic_mmap::Error>(())
    /// ```
    ///
    /// [`Error::PastEnd`]: crate::Error::PastEnd
    /// [`Error::Reversed`]: crate::Error::Reversed
    /// [`Error::ReadOnly`]: crate::Error::ReadOnly
    /// [`Error::NoSpace`]: crate::Error::NoSpace
    /// [`Error::Overdue`]: crate::Error::Overdue
    /// [`Error::Poisoned`]: crate::Error::Poisoned
    /// [`Error::Forked`]: crate::Error::Forked
    /// [`Error::Io`]: crate::Error::Io
    pub fn repair(&self, range: Range<u64>) -> Result<Repair> {
        let engine = self.engine();
        engine.check_usable()?;
        let done = engine.repair(engine.check_bounds(range)?)?;
        let repaired = done.replaced.into_iter().map(|(range, from)| RepairedPage {
            range,
            number: from.number,
            name: from.name,
        });
        let left = done.left.into_iter().map(|(range, in_the_way)| DamagedPage {
            range,
            drop_first: in_the_way.map(|entry| entry.name),
        });
        Ok(Repair { pages: done.pages, repaired: repaired.collect(), left: left.collect() })
    }
}
