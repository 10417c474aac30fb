//! A file's storage: its length, its holes, and what is reserved for it.
//!
//! Owns: the calls that allocate, give back and find storage, and their fallbacks.
//!
//! Invariants: those of `calls`.
//!
//! May import: `gate`, `limit`, `allocate`, `sys`, the recorder.

use super::HUGE_PAGE;
use super::gate::{attempt, is_refused, is_unsupported, none_if};
use super::limit::allow_len;
use crate::platform::os::{File, Mapping, allocate, sys};
#[cfg(feature = "recorder")]
use crate::platform::recorder::What;
use crate::platform::{FileId, Platform, call};
use std::io::{self, ErrorKind};

/// Returns `true` if the file system cannot tell where its holes are.
fn is_untold(error: &io::Error) -> bool {
    is_unsupported(error) || error.kind() == ErrorKind::InvalidInput
}

impl Platform {
    /// Requests that a new and empty file is written in place on a file system that would otherwise
    /// copy on write. There, allocating storage once does not reserve space for the next store.
    /// Returns `false` if the file system refuses and goes on copying.
    pub fn write_in_place(&self, file: &File) -> io::Result<bool> {
        let told = attempt!(
            self,
            call::IN_PLACE,
            |_| sys::write_in_place(file.system()),
            // Nothing is copied there.
            [_simulated => { let _ = file; Ok(()) }]
        );
        Ok(none_if(is_unsupported, told)?.is_some())
    }

    /// Reserves storage for the range, so that stores to it cannot fail for lack of space. Extends
    /// the file to the end of the range if it is shorter. Contents stay.
    ///
    /// No thread may store to holes in the range until this returns: where the file system has no
    /// call for this, zeros are written to them.
    ///
    /// If `mapping` is given, the range is an aligned one of 2 MiB within the file, and the mapping
    /// is the file's. One huge page is then requested, if the file lies in memory.
    pub fn allocate(
        &self,
        file: &File,
        id: FileId,
        mapping: Option<&Mapping>,
        offset: u64,
        len: u64,
    ) -> io::Result<()> {
        debug_assert!(mapping.is_none() || len == HUGE_PAGE && offset.is_multiple_of(HUGE_PAGE));
        if len == 0 {
            return Ok(());
        }
        let reserved = attempt!(
            self,
            call::ALLOCATE,
            |_| {
                if let Some(mapping) = mapping {
                    let _a_hint = sys::take_huge_page(file.system(), mapping, offset);
                }
                allow_len(file.system(), offset.saturating_add(len))?;
                sys::allocate(file.system(), offset, len)
            },
            [simulated => simulated.machine.allocate(file.number(), offset, len)],
            [id] |_: &()| What::Allocate { file: id, offset, len }
        );
        match none_if(is_refused, reserved)? {
            Some(()) => Ok(()),
            None => allocate::by_writing(self, file, id, offset, len),
        }
    }

    /// Returns `true` if [`FileStat::blocks`](crate::platform::FileStat::blocks) leaves out holes.
    pub fn counts_storage(&self) -> bool {
        match self {
            #[cfg(feature = "recorder")]
            Platform::Simulated(_) => false,
            _ => cfg!(unix),
        }
    }

    /// Reserves storage for a range of less than a page that begins at the end of the file, and
    /// leaves the file's length as it is. Where the file system has no call for this, zeros are
    /// written there. That makes the file longer, by bytes that have storage.
    pub fn allocate_past_end(
        &self,
        file: &File,
        id: FileId,
        offset: u64,
        len: u64,
    ) -> io::Result<()> {
        let reserved = attempt!(
            self,
            call::ALLOCATE,
            |_| sys::allocate_past_end(file.system(), offset, len),
            [simulated => simulated.machine.allocate_past_end(file.number(), offset, len)],
            [id] |_: &()| What::Allocate { file: id, offset, len }
        );
        match none_if(is_refused, reserved)? {
            Some(()) => Ok(()),
            None => self.write_at(file, id, &vec![0; len as usize], offset),
        }
    }

    /// Gives the range's storage back: it reads as zeros afterwards, and the length stays. Returns
    /// `false` if that is not supported, and then nothing has changed.
    pub fn punch(&self, file: &File, id: FileId, offset: u64, len: u64) -> io::Result<bool> {
        if len == 0 {
            return Ok(true);
        }
        let punched = attempt!(
            self,
            call::PUNCH,
            |_| sys::punch(file.system(), offset, len),
            [simulated => simulated.machine.punch(file.number(), offset, len)],
            [id] |_: &()| What::Punch { file: id, offset, len }
        );
        Ok(none_if(is_refused, punched)?.is_some())
    }

    /// Changes the file's length.
    pub fn set_file_len(&self, file: &File, id: FileId, len: u64) -> io::Result<()> {
        attempt!(
            self,
            call::SET_LEN,
            |_| {
                allow_len(file.system(), len)?;
                file.system().set_len(len)
            },
            [simulated => simulated.machine.set_len(file.number(), len)],
            [id] |_: &()| What::SetLen { file: id, len }
        )
    }

    /// Returns the first offset from `offset` on where there is data, or `None` if there is none up
    /// to the end. Where the file system cannot tell, everything is data.
    pub fn next_data(&self, file: &File, offset: u64) -> io::Result<Option<u64>> {
        let found = attempt!(
            self,
            call::NEXT_DATA,
            |_| sys::next_data(file.system(), offset),
            [simulated => simulated.machine.next_data(file.number(), offset)]
        );
        Ok(none_if(is_untold, found)?.unwrap_or(Some(offset)))
    }

    /// Returns the first offset from `offset` on that lies in a hole; the end of the file is one.
    /// Everything before it is data. Where the file system cannot tell, and beyond the end, it is
    /// `offset`: no data are known to be there.
    pub fn next_hole(&self, file: &File, offset: u64) -> io::Result<u64> {
        let found = attempt!(
            self,
            call::NEXT_HOLE,
            |_| sys::next_hole(file.system(), offset),
            [simulated => simulated.machine.next_hole(file.number(), offset)]
        );
        Ok(none_if(is_untold, found)?.flatten().unwrap_or(offset))
    }
}
