//! A snapshot on its way to another node: openraft's `SnapshotData`.
//!
//! A snapshot that this node has is a name, until its bytes are asked for. Then its stream is
//! written to a temporary file beside the replicated one. A received snapshot is such a file from
//! the beginning. The system removes it with its last handle.
//!
//! May import `error` of the crate.

use crate::error::{Error, Result};
use atomic_mmap::{AtomicMappedFile, Snapshot};
use std::fs::File;
use std::future::Future;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncSeek, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::task::JoinHandle;

/// A snapshot of a replicated file, sealed on this node or received from another one.
///
/// It reads and writes the stream of the whole file, as openraft's chunked transport of 0.9 asks
/// for. A network of the application can send less, if it implements openraft's `full_snapshot`:
///
/// 1. The receiver tells the name of [its newest snapshot](super::ReplicatedFile::newest_snapshot).
/// 2. The sender writes the changes since then: [`write_to`](Self::write_to).
/// 3. The receiver takes them by [`receive`](super::ReplicatedFile::receive) or
///    [`begin_receiving`](super::FileMachine::begin_receiving), and hands them to
///    `Raft::install_full_snapshot`.
pub struct FileSnapshot {
    sealed: Option<Arc<Sealed>>,
    bytes: Bytes,
    /// A seek that waits for the stream.
    seek: Option<SeekFrom>,
}

/// A snapshot that this node has. It cannot be dropped meanwhile.
struct Sealed {
    file: AtomicMappedFile,
    snapshot: Snapshot,
}

enum Bytes {
    NotWritten,
    BeingWritten(JoinHandle<Result<File>>),
    There(tokio::fs::File),
}

impl FileSnapshot {
    pub(super) fn sealed(file: &AtomicMappedFile, snapshot: Snapshot) -> Result<FileSnapshot> {
        let sealed = Some(Arc::new(Sealed { file: file.try_clone()?, snapshot }));
        Ok(FileSnapshot { sealed, bytes: Bytes::NotWritten, seek: None })
    }

    /// Makes an empty snapshot, to receive a stream in.
    pub(super) fn empty(beside: &AtomicMappedFile) -> Result<FileSnapshot> {
        Ok(FileSnapshot::of(new_spool(beside)?))
    }

    fn of(spool: File) -> FileSnapshot {
        let bytes = Bytes::There(tokio::fs::File::from_std(spool));
        FileSnapshot { sealed: None, bytes, seek: None }
    }

    /// Receives a stream that [`write_to`](Self::write_to) has written.
    pub(super) fn received(beside: &AtomicMappedFile, mut from: impl Read) -> Result<FileSnapshot> {
        let mut spool = new_spool(beside)?;
        io::copy(&mut from, &mut spool).map_err(|e| Error::stream(beside, e))?;
        Ok(FileSnapshot::of(spool))
    }

    /// Returns the name of a snapshot that this node has sealed, and `None` for a received one.
    pub fn name(&self) -> Option<&str> {
        self.sealed.as_ref().map(|sealed| sealed.snapshot.name())
    }

    /// Writes the stream of this snapshot: the changes since the snapshot `base`, or the whole
    /// file. The whole is written as well if this node has no older snapshot `base`. Returns
    /// `true` if it has written changes. Blocks while it reads and writes.
    ///
    /// # Errors
    /// Those of [`AtomicMappedFile::export`]. [`Error::NotSealed`] if the snapshot was received.
    pub fn write_to(&self, base: Option<&str>, to: impl Write) -> Result<bool> {
        let Some(sealed) = &self.sealed else { return Err(Error::NotSealed) };
        let (file, name) = (&sealed.file, sealed.snapshot.name());
        let mut older = file.snapshots();
        older.retain(|info| info.number < sealed.snapshot.number());
        let base = base.filter(|base| older.iter().any(|info| info.name == **base));
        file.export(base, name, to)?;
        Ok(base.is_some())
    }

    /// Returns the stream, from its beginning on.
    pub(super) async fn into_stream(self, beside: &AtomicMappedFile) -> Result<File> {
        let wrong = |e: io::Error| Error::stream(beside, e);
        let mut stream = match (self.bytes, self.sealed) {
            (Bytes::There(mut file), _) => {
                // An error of the last write is told here.
                file.flush().await.map_err(wrong)?;
                file.into_std().await
            }
            (Bytes::BeingWritten(writing), _) => writing.await.map_err(|e| wrong(e.into()))??,
            (Bytes::NotWritten, Some(sealed)) => {
                let writing = tokio::task::spawn_blocking(move || written(&sealed));
                writing.await.map_err(|e| wrong(e.into()))??
            }
            (Bytes::NotWritten, None) => return Err(Error::NotSealed),
        };
        stream.seek(SeekFrom::Start(0)).map_err(wrong)?;
        Ok(stream)
    }

    /// Returns the temporary file, once the stream is in it.
    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Pin<&mut tokio::fs::File>>> {
        if let (Bytes::NotWritten, Some(sealed)) = (&self.bytes, &self.sealed) {
            let sealed = Arc::clone(sealed);
            self.bytes = Bytes::BeingWritten(tokio::task::spawn_blocking(move || written(&sealed)));
        }
        if let Bytes::BeingWritten(writing) = &mut self.bytes {
            let written = ready!(Pin::new(writing).poll(cx));
            self.bytes = Bytes::NotWritten;
            let file = written?.map_err(io::Error::other)?;
            self.bytes = Bytes::There(tokio::fs::File::from_std(file));
        }
        match &mut self.bytes {
            Bytes::There(file) => Poll::Ready(Ok(Pin::new(file))),
            _ => Poll::Ready(Err(io::Error::other(Error::NotSealed))),
        }
    }
}

/// Makes a temporary file beside the replicated one: its file system has room for such a file.
fn new_spool(beside: &AtomicMappedFile) -> Result<File> {
    let folder = beside.path().parent().filter(|folder| !folder.as_os_str().is_empty());
    let spool = tempfile::tempfile_in(folder.unwrap_or(Path::new(".")));
    spool.map_err(|e| Error::stream(beside, e))
}

/// Returns a temporary file with the stream of the whole snapshot, at its beginning.
fn written(sealed: &Sealed) -> Result<File> {
    let wrong = |e: io::Error| Error::stream(&sealed.file, e);
    let mut spool = new_spool(&sealed.file)?;
    let mut to = BufWriter::new(&mut spool);
    sealed.file.export(None, sealed.snapshot.name(), &mut to)?;
    to.flush().map_err(wrong)?;
    drop(to);
    spool.seek(SeekFrom::Start(0)).map_err(wrong)?;
    Ok(spool)
}

/// Returns a reader of a stream in a temporary file.
pub(super) fn reader(stream: File) -> BufReader<File> {
    BufReader::with_capacity(256 << 10, stream)
}

impl AsyncRead for FileSnapshot {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.get_mut().poll_bytes(cx))?.poll_read(cx, buf)
    }
}

impl AsyncWrite for FileSnapshot {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.get_mut().poll_bytes(cx))?.poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.get_mut().poll_bytes(cx))?.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.get_mut().poll_bytes(cx))?.poll_shutdown(cx)
    }
}

impl AsyncSeek for FileSnapshot {
    fn start_seek(self: Pin<&mut Self>, position: SeekFrom) -> io::Result<()> {
        self.get_mut().seek = Some(position);
        Ok(())
    }

    fn poll_complete(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        let this = self.get_mut();
        let seek = this.seek.take();
        match this.poll_bytes(cx) {
            Poll::Pending => {
                this.seek = seek;
                Poll::Pending
            }
            Poll::Ready(file) => {
                let mut file = file?;
                if let Some(position) = seek {
                    file.as_mut().start_seek(position)?;
                }
                file.poll_complete(cx)
            }
        }
    }
}

impl std::fmt::Debug for FileSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileSnapshot").field("sealed", &self.name()).finish_non_exhaustive()
    }
}
