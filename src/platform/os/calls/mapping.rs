//! Mappings of files.
//!
//! Owns: the call that maps a file, the page size, and the hints about mapped pages.
//!
//! Invariants: those of `calls`.
//!
//! May import: `gate`, `sys`, the recorder.

use super::HUGE_PAGE;
use super::gate::attempt;
use crate::platform::os::{File, Mapping, sys};
#[cfg(feature = "recorder")]
use crate::platform::recorder::What;
use crate::platform::{Platform, call};
use std::io::{self, ErrorKind};

impl Platform {
    /// Maps the file, shared, for reading and writing. The address is a multiple of 2 MiB on Linux,
    /// and of a page elsewhere. `len` is a multiple of 2 MiB and may reach beyond the end of the
    /// file: the file grows into the mapping, which never moves. With `want_sync` the mapping is
    /// synchronous (MAP_SYNC) or refused.
    pub fn map(&self, file: &File, len: u64, want_sync: bool) -> io::Result<Mapping> {
        let len = match usize::try_from(len) {
            Ok(bytes) if bytes > 0 && len.is_multiple_of(HUGE_PAGE) => bytes,
            _ => return Err(ErrorKind::InvalidInput.into()),
        };
        attempt!(
            self,
            call::MAP,
            |_| sys::map(file.system(), len, want_sync),
            [simulated => simulated.map(file.number(), len as u64, want_sync)]
        )
    }

    /// Maps `len` bytes privately, for reading and writing: stores change memory of this process
    /// alone. They begin with the bytes of the file, of this length, and go on with zeroes. Without
    /// a file all are zeroes. `len` is a multiple of 2 MiB.
    ///
    /// # Errors
    /// `Unsupported` on systems other than Linux, and on a simulated machine.
    pub fn map_private(&self, file: Option<(&File, u64)>, len: u64) -> io::Result<Mapping> {
        let whole = |len: u64| usize::try_from(len).map_err(|_| ErrorKind::InvalidInput);
        let (len, file_len) = (whole(len)?, whole(file.map_or(0, |(_, len)| len))?);
        attempt!(
            self,
            call::MAP,
            |_| sys::map_private(file.map(|(file, _)| (file.system(), file_len)), len),
            [_simulated => Err(ErrorKind::Unsupported.into())]
        )
    }

    /// Advises that accesses to the file and its mapping will be random: nothing is read ahead, so
    /// the page cache keeps single pages. The first store to a large folio with a hole fails where
    /// the disk is full.
    ///
    /// The advice is a hint. A system that refuses it has no such call, or a filter is set. Storage
    /// is allocated either way: `docs/soundness.md` says what large folios mean on a full disk.
    pub fn expect_random(&self, file: &File, mapping: &Mapping) {
        let advised = attempt!(
            self,
            call::ADVISE,
            |_| sys::expect_random(file.system(), mapping),
            // No pages, no folios.
            [_simulated => { let _ = (file, mapping); Ok(()) }]
        );
        let _a_hint: io::Result<()> = advised;
    }

    /// Returns `true` if the process could reserve `bytes` of address space in one piece, a moment
    /// ago. The question passes no gate: the answer only chooses how much to reserve.
    pub fn has_addresses(&self, bytes: u64) -> bool {
        match self {
            // Nothing is mapped there, and every run has to equal the last one.
            #[cfg(feature = "recorder")]
            Platform::Simulated(_) => true,
            _ => usize::try_from(bytes).is_ok_and(sys::has_addresses),
        }
    }

    /// Starts reading the range of the file into the page cache, since it is about to be read in
    /// order. A hint that passes no gate: nothing depends on its result.
    pub fn will_need(&self, file: &File, mapping: &Mapping, offset: u64, len: u64) {
        match file {
            File::System(_) => sys::will_need(file.system(), mapping, offset, len),
            #[cfg(feature = "recorder")]
            File::Simulated(_) => {}
        }
    }

    /// As [`will_need`](Self::will_need), for the parts of the range that are no holes.
    pub fn will_need_data(&self, file: &File, mapping: &Mapping, offset: u64, len: u64) {
        match file {
            File::System(_) => sys::will_need_data(file.system(), mapping, offset, len),
            #[cfg(feature = "recorder")]
            File::Simulated(_) => {}
        }
    }

    /// Requests one huge page for the aligned 2 MiB of the file at `offset`. The mapping is the
    /// file's. A hint that passes no gate. Holes may become allocated, and no byte changes. Returns
    /// `true` if there is such a page.
    pub fn take_huge_page(&self, file: &File, mapping: &Mapping, offset: u64) -> bool {
        match file {
            File::System(_) => sys::take_huge_page(file.system(), mapping, offset),
            #[cfg(feature = "recorder")]
            File::Simulated(_) => false,
        }
    }

    /// Brings the pages of the range, which is allocated, into the mapping, ready for stores. A
    /// hint that passes no gate. No byte changes.
    pub fn bring_in(&self, file: &File, mapping: &Mapping, offset: u64, len: u64) {
        match file {
            File::System(_) => sys::bring_in(mapping, offset, len),
            #[cfg(feature = "recorder")]
            File::Simulated(_) => {}
        }
    }

    /// Drops whole clean pages of the range from the page cache. A hint that passes no gate. The
    /// range keeps its contents, also for threads that load and store there.
    pub fn forget_cached(&self, file: &File, mapping: &Mapping, offset: u64, len: u64) {
        match file {
            File::System(_) => sys::forget_cached(file.system(), mapping, offset, len),
            #[cfg(feature = "recorder")]
            File::Simulated(_) => {}
        }
    }

    /// Returns the bytes of one page of the mapping, the unit that a page fault requests from the
    /// file system. At least 4096.
    pub fn page_size(&self) -> u64 {
        const LEAST: u64 = 4096;
        match self {
            #[cfg(feature = "recorder")]
            Platform::Simulated(_) => LEAST,
            _ => sys::page_size().max(LEAST),
        }
    }
}
