//! Reads, writes and syncs of files.
//!
//! Owns: the continuation of short reads and writes, and the barriers after writes.
//!
//! Invariants: those of `calls`.
//!
//! May import: `gate`, `limit`, `positioned`, `sys`, the recorder.

use super::gate::{attempt, is_refused};
use super::limit::allow_write;
use crate::platform::os::{File, positioned, sys};
#[cfg(feature = "recorder")]
use crate::platform::recorder::What;
use crate::platform::{FileId, Platform, call};
use std::io::{self, ErrorKind};

impl Platform {
    /// Makes the file's data durable (fdatasync), and the metadata that is needed to read them.
    pub fn sync_data(&self, file: &File, id: FileId) -> io::Result<()> {
        attempt!(
            self,
            call::SYNC_DATA,
            |_| file.system().sync_data(),
            [simulated => simulated.machine.sync(file.number(), false)],
            [id] |_: &()| What::Sync { file: id, all: false }
        )
    }

    /// Makes the file's data and all its metadata durable (fsync).
    pub fn sync_all(&self, file: &File, id: FileId) -> io::Result<()> {
        attempt!(
            self,
            call::SYNC_ALL,
            |_| file.system().sync_all(),
            [simulated => simulated.machine.sync(file.number(), true)],
            [id] |_: &()| What::Sync { file: id, all: true }
        )
    }

    /// Fills the buffer from the file. Holes and bytes beyond the end read as zeros.
    pub fn read_at(&self, file: &File, id: FileId, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let rest = &mut buf[done..];
            let at = advance(offset, done)?;
            let got = attempt!(
                self,
                call::READ,
                |most: usize| {
                    let most = most.min(rest.len());
                    positioned::read(file.system(), &mut rest[..most], at)
                },
                [simulated => simulated.machine.read_at(file.number(), rest, at)],
                [id] |got: &usize| What::Read { file: id, offset: at, len: *got as u64 }
            )?;
            if got == 0 {
                buf[done..].fill(0);
                break;
            }
            done += got;
        }
        Ok(())
    }

    /// Writes the whole buffer to the file. After an error any part of it may have been written.
    /// After `bypass_cache`, as `write_durably`.
    pub fn write_at(&self, file: &File, id: FileId, buf: &[u8], offset: u64) -> io::Result<()> {
        self.write_whole(file, buf, offset, |rest, at| {
            attempt!(
                self,
                call::WRITE,
                |most: usize| {
                    let part = &rest[..most.min(rest.len())];
                    allow_write(part, at)?;
                    positioned::write(file.system(), part, at)
                },
                [simulated => simulated.machine.write_at(file.number(), rest, at)],
                [id] |put: &usize| What::Write {
                    file: id,
                    offset: at,
                    bytes: rest[..*put].to_vec(),
                }
            )
        })
    }

    /// Writes the whole buffer to the file and waits until it is durable: one barrier, which covers
    /// only these bytes where the system can. After an error any part of the buffer may have been
    /// written.
    ///
    /// After `bypass_cache` the write bypasses the page cache. If the device requires larger blocks
    /// or another alignment, or a short write leaves less than a block, this write and all later
    /// ones go through the cache.
    pub fn write_durably(
        &self,
        file: &File,
        id: FileId,
        buf: &[u8],
        offset: u64,
    ) -> io::Result<()> {
        self.write_whole(file, buf, offset, |rest, at| {
            let put = attempt!(
                self,
                call::WRITE_DURABLY,
                |most: usize| {
                    let part = &rest[..most.min(rest.len())];
                    allow_write(part, at)?;
                    sys::write_durably(file.system(), part, at)
                },
                [simulated => simulated.machine.write_durably(file.number(), rest, at)],
                [id] |put: &usize| What::WriteDurably {
                    file: id,
                    offset: at,
                    bytes: rest[..*put].to_vec(),
                }
            );
            match put {
                // In two calls instead, which sync the whole file.
                Err(error) if is_refused(&error) => {
                    self.use_cache(file)?;
                    self.write_at(file, id, rest, at)?;
                    self.sync_data(file, id)?;
                    Ok(rest.len())
                }
                put => put,
            }
        })
    }

    /// Writes the whole buffer by repeated calls of `write`, which takes the remaining bytes and
    /// their offset, and returns how many it wrote. Goes through the cache from the first write
    /// that the device refuses to take past it.
    fn write_whole(
        &self,
        file: &File,
        buf: &[u8],
        offset: u64,
        write: impl Fn(&[u8], u64) -> io::Result<usize>,
    ) -> io::Result<()> {
        let mut done = 0;
        let mut may_bypass = true;
        while done < buf.len() {
            match write(&buf[done..], advance(offset, done)?) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(put) => done += put,
                Err(error) if may_bypass && error.kind() == ErrorKind::InvalidInput => {
                    self.use_cache(file)?;
                    may_bypass = false;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn advance(offset: u64, done: usize) -> io::Result<u64> {
    offset.checked_add(done as u64).ok_or_else(|| ErrorKind::InvalidInput.into())
}
