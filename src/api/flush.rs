//! Waiting for durability: the numbers of durable points, and the future of one.
//!
//! A thin layer over `engine::durable`. May import `api::file`, the engine, `config` and below.

use crate::api::file::AtomicMappedFile;
#[cfg(doc)]
use crate::config::{Durability, Medium};
use crate::engine::durable::flush::Waiter;
use crate::error::Result;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

impl AtomicMappedFile {
    /// Returns the number of the first durable point that contains every operation that had
    /// returned before this call.
    ///
    /// A thread that has written takes this number, and another one waits for it later:
    /// [`wait_durable`](Self::wait_durable). Durable points count from 1 since the file was
    /// opened. Returns 0 where no durable points are kept: on [`Medium::Dax`] and
    /// [`Medium::Ram`], unless [`Durability::AtomicSync`] was chosen. There each operation is as
    /// durable as the medium allows when it returns.
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// # let f = atomic_mmap::AtomicMappedFile::create(dir.path().join("x"), 1 << 20)?;
    /// f.write_at(b"accepted", 0)?;
    /// let number = f.next_durable_number();
    /// // Later, and perhaps in another thread: before the answer goes to the client.
    /// f.wait_durable(number)?;
    /// assert!(f.durable_number() >= number);
    /// # Ok::<(), atomic_mmap::Error>(())
    /// ```
    pub fn next_durable_number(&self) -> u64 {
        self.engine().next_durable_number()
    }

    /// Returns the number of the last durable point: every operation that took this number, or a
    /// smaller one, is durable. Returns 0 before the first durable point since the file was opened.
    pub fn durable_number(&self) -> u64 {
        self.engine().durable_number()
    }

    /// Returns once the durable point of this `number` is made, or a later one. Returns the number
    /// of the last durable point.
    ///
    /// Makes the point if no other thread does. Threads that wait at the same time share one point,
    /// so a service needs no thread that groups commits. If the point is made already, returns at
    /// once. A number above [`next_durable_number`](Self::next_durable_number) stands for the next
    /// durable point.
    ///
    /// # Errors
    /// Those of [`sync`](Self::sync).
    pub fn wait_durable(&self, number: u64) -> Result<u64> {
        self.engine().wait_durable(number)
    }

    /// Returns a future of the first durable point that contains every operation that had returned
    /// before this call. The future gives the number of the last durable point.
    ///
    /// The future needs no particular executor, and blocks no thread of it: the file's background
    /// thread makes the durable point, for all futures that wait. Nothing happens before the first
    /// poll. [`Flush::wait`] waits without an executor.
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// # let f = atomic_mmap::AtomicMappedFile::create(dir.path().join("x"), 1 << 20)?;
    /// # async fn accept(f: &atomic_mmap::AtomicMappedFile) -> atomic_mmap::Result<()> {
    /// f.write_at(b"accepted", 0)?; // a memory access
    /// f.flush_async().await?; // the disk
    /// # Ok(())
    /// # }
    /// f.write_at(b"paid", 5000)?;
    /// let number = f.flush_async().wait()?;
    /// assert_eq!(f.durable_number(), number);
    /// # Ok::<(), atomic_mmap::Error>(())
    /// ```
    pub fn flush_async(&self) -> Flush<'_> {
        Flush::new(self)
    }
}

/// A future that waits for a durable point. Made by [`AtomicMappedFile::flush_async`].
///
/// It works with every executor. Dropping it cancels only the waiting: a point that is being made
/// is finished.
///
/// # Errors
/// Its output has the errors of [`AtomicMappedFile::sync`]. After
/// [`Error::NoSpace`](crate::Error::NoSpace) or [`Error::TooLarge`](crate::Error::TooLarge) the
/// operations are not durable. After any other error it is unknown whether they are.
///
/// Where the system cannot start a thread, the first poll makes the durable point itself, and
/// blocks for that long.
#[must_use = "a future does nothing unless it is polled"]
pub struct Flush<'f> {
    file: &'f AtomicMappedFile,
    /// The number of the durable point to wait for.
    number: u64,
    waiter: Option<Arc<Waiter>>,
}

impl<'f> Flush<'f> {
    pub(crate) fn new(file: &'f AtomicMappedFile) -> Self {
        Flush { file, number: file.next_durable_number(), waiter: None }
    }

    /// Returns the number of the durable point that this future waits for:
    /// [`AtomicMappedFile::next_durable_number`] at the time of its making.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Waits in this thread. Equivalent to [`AtomicMappedFile::wait_durable`] of
    /// [`number`](Self::number).
    ///
    /// # Errors
    /// Those of [`AtomicMappedFile::sync`].
    pub fn wait(self) -> Result<u64> {
        self.file.wait_durable(self.number)
    }
}

impl Future for Flush<'_> {
    type Output = Result<u64>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<u64>> {
        let this = self.get_mut();
        this.file.engine().poll_durable(this.number, &mut this.waiter, context)
    }
}

impl fmt::Debug for Flush<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flush").field("number", &self.number).finish_non_exhaustive()
    }
}
