//! How are bytes read without copying them? Views: pinned and deployed.

use crate::error::Result;
use crate::file::AtomicMappedFile;
use crate::typed::Readable;
use std::fmt;
use std::ops::Range;

/// A range of a file that stays as it is while this lives.
///
/// The bytes are those of one state, at the time of [`AtomicMappedFile::view`]. Writers are not
/// kept waiting: what they write goes to the other slots, and other readers see it. Where the
/// range cannot be pinned at home (an older view pins it with older bytes, or a full file system
/// leaves a hole in it), the view holds a private copy instead: [`is_mapped`](Self::is_mapped). So it always
/// does on page cache, and with `Durability::AllOrNothing`.
pub struct View<'a> {
    file: &'a AtomicMappedFile,
    range: Range<u64>,
    bytes: Bytes,
}

enum Bytes {
    /// In the home slots of `range`, pinned.
    Mapped,
    /// Gathered.
    Copied(Vec<u8>),
}

impl<'a> View<'a> {
    #[inline]
    pub(crate) fn new(file: &'a AtomicMappedFile, range: Range<u64>) -> Result<Self> {
        if file.engine().pin_in_page(&range) {
            return Ok(View { file, range, bytes: Bytes::Mapped });
        }
        Self::anyhow(file, range)
    }

    /// The same, whatever the range is and whatever is found.
    #[inline(never)]
    fn anyhow(file: &'a AtomicMappedFile, range: Range<u64>) -> Result<Self> {
        let engine = file.engine();
        // Before the range is looked at: of a poisoned handle nothing is to be believed.
        engine.check_usable()?;
        let range = engine.check_bounds(range)?;
        // An empty view pins nothing, so the file may be cut off before it.
        if !range.is_empty() && engine.pin(range.clone())? {
            return Ok(View { file, range, bytes: Bytes::Mapped });
        }
        let len = (range.end - range.start) as usize;
        let mut copy = Vec::new();
        copy.try_reserve_exact(len).map_err(|_| {
            let source = std::io::ErrorKind::OutOfMemory.into();
            crate::Error::io("allocate memory for a view", engine.home.path(), source)
        })?;
        copy.resize(len, 0);
        engine.read(&mut copy, range.start)?;
        Ok(View { file, range, bytes: Bytes::Copied(copy) })
    }

    /// Number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        (self.range.end - self.range.start) as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Where the view lies in the file, in bytes.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Whether the bytes are the mapped file's own, and not a copy.
    pub fn is_mapped(&self) -> bool {
        matches!(self.bytes, Bytes::Mapped)
    }

    /// Fills `to` from `offset`, in bytes from the beginning of the view.
    ///
    /// # Errors
    /// [`Error::Misfit`](crate::Error::Misfit) past the view's end,
    /// [`Error::Forked`](crate::Error::Forked), [`Error::Poisoned`](crate::Error::Poisoned).
    #[inline]
    pub fn read_at(&self, to: &mut [u8], offset: u64) -> Result<()> {
        let engine = self.file.engine();
        engine.check_usable()?;
        let end = offset.checked_add(to.len() as u64);
        if end.is_none_or(|end| end > self.len() as u64) {
            return Err(self.misfit(to.len(), offset));
        }
        match &self.bytes {
            Bytes::Mapped => engine.home.copy_out(to, self.range.start + offset),
            Bytes::Copied(copy) => {
                to.copy_from_slice(&copy[offset as usize..offset as usize + to.len()]);
            }
        }
        Ok(())
    }

    #[cold]
    fn misfit(&self, len: usize, offset: u64) -> crate::Error {
        crate::Error::Misfit {
            path: self.file.engine().path(),
            what: "bytes of the view",
            offset: self.range.start,
            found: offset.saturating_add(len as u64),
            expected: self.len() as u64,
        }
    }

    /// The value at `offset`, in bytes from the beginning of the view.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    pub fn load<T: Readable>(&self, offset: u64) -> Result<T> {
        crate::typed::load(|bytes| self.read_at(bytes, offset))
    }

    /// All bytes, copied.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    pub fn to_vec(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.len()];
        self.read_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    /// The address of the first byte: valid for [`len`](Self::len) bytes while the view lives.
    ///
    /// To read through it as a slice (`std::slice::from_raw_parts(view.as_ptr(), view.len())`) is
    /// `unsafe`, because nothing can keep other code from changing the file behind the mapping:
    /// see [`as_slice`](Self::as_slice).
    pub fn as_ptr(&self) -> *const u8 {
        match &self.bytes {
            Bytes::Mapped => self.file.engine().home.address(self.range.start, self.len()),
            Bytes::Copied(copy) => copy.as_ptr(),
        }
    }

    /// The bytes, without copying them.
    ///
    /// # Safety
    /// - While the slice lives, nobody changes the home file but through this crate: not through a
    ///   mapping or a write of another process or of other code in this one, not by truncating it
    ///   (which would also mean SIGBUS), and not by an open handle in a `fork`ed parent or child.
    ///
    /// The crate's own writers keep away from a view's bytes; that part needs no care.
    pub unsafe fn as_slice(&self) -> &[u8] {
        // SAFETY:
        // - the pointer is to `len` bytes that live as long as `self`: backed and mapped home slots,
        //   whose pages are pinned, so that `set_len` does not cut them off, or a `Vec`;
        // - nobody writes to them: this crate's writers do not store to pinned home slots, and
        //   nobody else does by the caller's promise;
        // - any bytes are a `[u8]`, and `len` fits an `isize`: it is part of one mapping or `Vec`.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len()) }
    }
}

impl Drop for View<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.is_mapped() {
            self.file.engine().unpin(self.range.clone());
        }
    }
}

impl fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View")
            .field("range", &self.range)
            .field("is_mapped", &self.is_mapped())
            .finish_non_exhaustive()
    }
}
