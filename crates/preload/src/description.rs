//! An open file description: what descriptors that were made by `dup` share.
//!
//! Invariants:
//! - A write is one operation of the file, at any length, and so is a read.
//! - The offset is locked during a call that moves it, as the kernel does.
//!
//! May import: `errno`, `log`, `pair`, `regions`.

use crate::errno::{Errno, Result, caught};
use crate::log;
use crate::pair::{self, Pair};
use crate::regions::Memory;
use atomic_mmap::{AtomicMappedFile, Error};
use parking_lot::{Mutex, MutexGuard};
use std::ffi::c_int;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

/// Most bytes of a read or write, as in the kernel.
pub(crate) const MOST: usize = 0x7fff_f000;

/// The flags that `fcntl` can change, as far as they concern this library.
const CHANGEABLE: c_int = libc::O_APPEND;

/// The wishes of one call, besides the description's flags.
#[derive(Clone, Copy, Default)]
pub(crate) struct Wanted {
    pub append: bool,
    pub no_append: bool,
    pub sync: bool,
}

#[derive(Debug)]
pub(crate) struct Description {
    /// The file, or the reason why each call fails.
    pair: Result<Arc<Pair>>,
    flags: AtomicI32,
    offset: Mutex<u64>,
    /// It comes from another process.
    is_handed: bool,
    /// The kernel's offset counts, since another process may have moved it. Changes while `offset`
    /// is locked.
    is_handed_over: AtomicBool,
    generation: u64,
}

impl Description {
    pub fn new(pair: Result<Arc<Pair>>, flags: c_int, offset: u64) -> Self {
        Description::make(pair, flags, offset, false)
    }

    /// Makes a description of a file that rests. The kernel's offset counts.
    pub fn handed(pair: Arc<Pair>, flags: c_int) -> Self {
        Description::make(Ok(pair), flags, 0, true)
    }

    fn make(pair: Result<Arc<Pair>>, flags: c_int, offset: u64, is_handed: bool) -> Self {
        Description {
            pair,
            flags: AtomicI32::new(flags),
            offset: Mutex::new(offset),
            is_handed,
            is_handed_over: AtomicBool::new(is_handed),
            generation: pair::generation(),
        }
    }

    /// Returns the description of a child of `fork` for one of its parent, if the file was plain at
    /// the fork.
    pub fn taken_over(&self) -> Option<Self> {
        let pair = pair::take_over(self.pair.as_ref().ok()?)?;
        Some(Description::handed(pair, self.flags()))
    }

    /// Ends the use of a description by one descriptor, with the error of a close if it was the
    /// last. The file closes with its last description.
    pub fn leave(of: Option<Arc<Self>>) -> Result<()> {
        of.and_then(Arc::into_inner).map_or(Ok(()), |mut last| caught(|| last.end()))
    }

    fn end(&mut self) -> Result<()> {
        let pair = std::mem::replace(&mut self.pair, Err(Errno::IO));
        if self.is_inherited() {
            // A child of `fork` must not take the locks of its parent's pair.
            std::mem::forget(pair);
            return Ok(());
        }
        pair.map_or(Ok(()), |pair| pair.release())
    }

    /// Returns `true` if a process made the description, and this one is its child by `fork`.
    pub fn is_inherited(&self) -> bool {
        self.generation != pair::generation()
    }

    fn pair(&self) -> Result<&Pair> {
        if self.is_inherited() {
            log::line("a descriptor that was inherited by fork: the child opens the file anew");
            return Err(Errno::IO);
        }
        self.pair.as_deref().map_err(|errno| *errno)
    }

    /// Returns `true` if the file comes from another process, and cannot be used.
    pub fn is_lost(&self) -> bool {
        self.is_inherited() || self.pair.is_err() || self.is_handed && self.is_handed_over()
    }

    /// Notes whether the process has a record lock on the file.
    pub fn set_locked(&self, is_locked: bool) {
        if let Ok(pair) = &self.pair {
            pair.set_locked(is_locked);
        }
    }

    fn with<R>(&self, body: impl FnOnce(&AtomicMappedFile) -> atomic_mmap::Result<R>) -> Result<R> {
        self.pair()?.with(body)
    }

    fn flags(&self) -> c_int {
        // Relaxed, also below: the flags tell of no other memory.
        self.flags.load(Ordering::Relaxed)
    }

    /// Takes over the flags that `F_SETFL` changes.
    pub fn set_flags(&self, flags: c_int) {
        self.flags.store(self.flags() & !CHANGEABLE | flags & CHANGEABLE, Ordering::Relaxed);
    }

    fn check_readable(&self) -> Result<()> {
        if self.flags() & libc::O_ACCMODE == libc::O_WRONLY {
            Err(Errno::BAD_DESCRIPTOR)
        } else {
            Ok(())
        }
    }

    /// Returns `true` if the description may write.
    pub fn is_writable(&self) -> bool {
        self.flags() & libc::O_ACCMODE != libc::O_RDONLY
    }

    /// Reads into `buffers`, at `at` or at the offset. Returns the number of bytes.
    pub fn read(&self, buffers: &mut [&mut [u8]], at: Option<u64>) -> Result<usize> {
        self.check_readable()?;
        let pair = self.pair()?;
        if let Some(at) = at {
            return pair.with(|file| read_at(file, buffers, at));
        }
        let mut offset = self.offset.lock();
        let count = pair.with(|file| read_at(file, buffers, *offset))?;
        *offset += count as u64;
        Ok(count)
    }

    /// Writes `parts`, one after the other, at `at` or at the offset, as one operation. Returns the
    /// number of bytes.
    pub fn write(&self, parts: &[&[u8]], at: Option<u64>, wanted: Wanted) -> Result<usize> {
        if !self.is_writable() {
            return Err(Errno::BAD_DESCRIPTOR);
        }
        let flags = self.flags();
        let appends = (flags & libc::O_APPEND != 0 || wanted.append) && !wanted.no_append;
        let syncs = wanted.sync || flags & (libc::O_SYNC | libc::O_DSYNC) != 0;
        let pair = self.pair()?;
        let count = parts.iter().map(|part| part.len()).sum();
        let write = |at: u64| {
            pair.change(|file| {
                let start = write_at(file, parts, (!appends).then_some(at))?;
                let end = start + count as u64;
                Ok((end, start..end))
            })
        };
        if let Some(at) = at {
            write(at)?;
        } else if count > 0 {
            let mut offset = self.offset.lock();
            *offset = write(*offset)?;
        }
        if syncs {
            pair.sync_published()?;
        }
        Ok(count)
    }

    /// Publishes what the program has changed in shared mappings, and makes a durable point.
    pub fn sync(&self) -> Result<()> {
        self.pair()?.sync()
    }

    pub fn len(&self) -> Result<u64> {
        self.with(|file| Ok(file.len()))
    }

    /// Returns `true` if the file is plain now: an exec may hand the descriptor on. A child of
    /// `fork` asks as well, so nothing is waited for.
    pub fn is_plain(&self) -> bool {
        self.pair.as_ref().is_ok_and(|pair| pair.is_plain())
    }

    /// Locks the offset. A descriptor of this description keeps its file meanwhile: the kernel
    /// closes and replaces it after [`hold`](Self::hold) alone. Gives up after a second: a signal
    /// may have interrupted a thread that has the lock.
    fn lock(&self) -> Option<MutexGuard<'_, u64>> {
        // After a fork the locks of the parking lot may be held.
        if self.is_inherited() {
            self.offset.try_lock()
        } else {
            self.offset.try_lock_for(Duration::from_secs(1))
        }
    }

    /// Runs `body` while no other thread uses a number of this description for its offset.
    pub fn hold<R>(&self, body: impl FnOnce() -> R) -> R {
        let _held = self.lock();
        body()
    }

    /// Gives the offset to the kernel's descriptor by `seek`, which returns `true` if it could.
    /// From then on another process may move it, until [`resume`](Self::resume).
    pub fn hand_over(&self, seek: impl FnOnce(u64) -> bool) {
        if let Some(offset) = self.lock()
            && !self.is_handed_over()
            && seek(*offset)
        {
            self.is_handed_over.store(true, Ordering::Relaxed);
        }
    }

    /// Returns `true` if the kernel's offset counts.
    pub fn is_handed_over(&self) -> bool {
        self.is_handed_over.load(Ordering::Relaxed)
    }

    /// Takes the kernel's offset back, if it was handed over. `tell` returns it.
    #[inline]
    pub fn resume(&self, tell: impl FnOnce() -> i64) -> Result<()> {
        // Relaxed: the lock orders the changes. A call beside the one that hands the offset over
        // may come before it.
        if !self.is_handed_over() {
            return Ok(());
        }
        // While another process has the file open for writing, the offset is its own.
        self.len()?;
        let mut offset = self.offset.lock();
        if self.is_handed_over.swap(false, Ordering::Relaxed) {
            *offset = u64::try_from(tell()).unwrap_or(*offset);
        }
        Ok(())
    }

    /// Moves the offset, and returns it.
    pub fn seek(&self, by: i64, whence: c_int) -> Result<u64> {
        let len = self.len()?;
        let mut offset = self.offset.lock();
        let from_data = |at: i64, to: u64| {
            let is_within = u64::try_from(at).is_ok_and(|at| at < len);
            if is_within { Ok(to) } else { Err(Errno(libc::ENXIO)) }
        };
        let to = match whence {
            libc::SEEK_SET => Some(by),
            libc::SEEK_CUR => i64::try_from(*offset).ok().and_then(|at| at.checked_add(by)),
            libc::SEEK_END => i64::try_from(len).ok().and_then(|at| at.checked_add(by)),
            libc::SEEK_DATA => Some(from_data(by, by as u64)? as i64),
            libc::SEEK_HOLE => Some(from_data(by, len)? as i64),
            _ => None,
        };
        *offset = to.and_then(|to| u64::try_from(to).ok()).ok_or(Errno::INVALID)?;
        Ok(*offset)
    }

    /// Gives the file another length.
    pub fn set_len(&self, len: i64) -> Result<()> {
        let len = u64::try_from(len).map_err(|_| Errno::INVALID)?;
        if !self.is_writable() {
            return Err(Errno::INVALID);
        }
        self.pair()?.set_len(len)
    }

    /// Makes the file at least `offset + len` bytes long.
    pub fn reserve(&self, offset: i64, len: i64) -> Result<()> {
        let (offset, len) = (u64::try_from(offset), u64::try_from(len));
        let (Ok(offset), Ok(len @ 1..)) = (offset, len) else { return Err(Errno::INVALID) };
        let end = offset.checked_add(len).ok_or(Errno(libc::EFBIG))?;
        if !self.is_writable() {
            return Err(Errno::BAD_DESCRIPTOR);
        }
        self.pair()?.change(|file| {
            file.transact(|tx| if tx.len()? < end { tx.set_len(end) } else { Ok(()) })?;
            Ok(((), end..end))
        })
    }

    /// Makes a shared mapping of `bytes`, whole pages: see [`Pair::map`].
    pub fn map(
        &self,
        bytes: &Range<u64>,
        joins: bool,
        make: impl FnOnce(&AtomicMappedFile) -> Result<(usize, Arc<dyn Memory>)>,
    ) -> Result<usize> {
        self.check_mappable()?;
        self.pair()?.map(bytes, joins, make)
    }

    /// Checks that a shared mapping of `bytes` can be made when the regions at `over` have ended.
    pub fn check_map(&self, bytes: &Range<u64>, over: &Range<usize>) -> Result<()> {
        self.check_mappable()?;
        self.pair()?.check_map(bytes, over)
    }

    fn check_mappable(&self) -> Result<()> {
        let is_mappable = self.flags() & libc::O_ACCMODE == libc::O_RDWR;
        is_mappable.then_some(()).ok_or(Errno(libc::EACCES))
    }

    /// Returns `count` bytes at `offset`, or as many as the file has: one state of it.
    pub fn copy(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        self.check_readable().map_err(|_| Errno(libc::EACCES))?;
        self.with(|file| read_at(file, &mut [to], offset))
    }
}

impl Drop for Description {
    fn drop(&mut self) {
        // The last to have a description may be any call.
        let _logged = caught(|| self.end());
    }
}

/// Reads up to the end of the file.
fn read_at(
    file: &AtomicMappedFile,
    buffers: &mut [&mut [u8]],
    at: u64,
) -> atomic_mmap::Result<usize> {
    let wanted: usize = buffers.iter().map(|buffer| buffer.len()).sum();
    loop {
        let left = file.len().saturating_sub(at);
        let count = wanted.min(usize::try_from(left).unwrap_or(usize::MAX));
        if count == 0 {
            return Ok(0);
        }
        let read = match &mut *buffers {
            [buffer] => file.read_at(&mut buffer[..count], at),
            several => {
                let mut bytes = vec![0; count]; // one read is one state
                file.read_at(&mut bytes, at).map(|()| scatter(&bytes, several))
            }
        };
        match read {
            // Another thread has made the file shorter.
            Err(Error::PastEnd { .. }) => {}
            read => return read.map(|()| count),
        }
    }
}

fn scatter(mut bytes: &[u8], buffers: &mut [&mut [u8]]) {
    for buffer in buffers {
        let (these, rest) = bytes.split_at(bytes.len().min(buffer.len()));
        buffer[..these.len()].copy_from_slice(these);
        bytes = rest;
    }
}

/// Writes at `at`, or at the end of the file. Returns the place.
fn write_at(file: &AtomicMappedFile, parts: &[&[u8]], at: Option<u64>) -> atomic_mmap::Result<u64> {
    let count: u64 = parts.iter().map(|part| part.len() as u64).sum();
    if count == 0 {
        return Ok(at.unwrap_or_else(|| file.len()));
    }
    let placed = |start: u64| {
        parts.iter().scan(start, |at, part| {
            let this = (*at, *part);
            *at += part.len() as u64;
            Some(this)
        })
    };
    if let Some(at) = at {
        let written = match parts {
            [part] => file.write_at(part, at),
            _ => file.write_many(&placed(at).collect::<Vec<_>>()),
        };
        if !matches!(written, Err(Error::PastEnd { .. })) {
            return written.map(|()| at);
        }
    }
    // Length and bytes are one operation.
    file.transact(|tx| {
        let len = tx.len()?;
        let start = at.unwrap_or(len);
        if start + count > len {
            tx.set_len(start + count)?;
        }
        for (at, part) in placed(start) {
            tx.write_at(part, at)?;
        }
        Ok(start)
    })
}
