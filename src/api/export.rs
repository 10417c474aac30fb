//! Exports: a snapshot, or what has changed since another one, as a stream of bytes.
//!
//! May import `file`, the engine, the format and the errors.

use crate::api::file::AtomicMappedFile;
use crate::api::snapshot::Snapshot;
use crate::error::{Error, Result, StreamError};
use crate::format::export::{Body, End, Frame, Header, MOST_CHANGES, Point, Seed, append_frame};
use std::io::{self, Write};

/// The counts of an export: [`AtomicMappedFile::export`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ExportReport {
    /// Frames of the stream, without the last one. Frames that were skipped count.
    pub frames: u64,
    /// Pages of 4,096 bytes with changes.
    pub pages: u64,
    /// Bytes that were written.
    pub bytes: u64,
    /// The content sum of the snapshot.
    pub sum: u64,
}

impl AtomicMappedFile {
    /// Writes the snapshot `to` to a stream, or what has changed since the snapshot `from`.
    ///
    /// [`import`](Self::import) takes the stream. The stream has checksums, so damage is found
    /// there. It holds no page that is zero, and of changed pages the changed slices of 64 bytes.
    /// Equal snapshots give equal streams. `docs/format-export.md` has the format.
    ///
    /// Writers go on meanwhile, and the two snapshots cannot be dropped. The export reads both
    /// snapshots once as a whole, for their content sums. It needs a word of memory for each 256
    /// KiB of the file, and for each page that was kept for the snapshots.
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// use atomic_mmap::AtomicMappedFile;
    ///
    /// let f = AtomicMappedFile::create(dir.path().join("x"), 1 << 20)?;
    /// f.snapshot("monday")?;
    /// f.write_at(b"new", 77)?;
    /// f.snapshot("tuesday")?;
    /// let (mut whole, mut increment) = (Vec::new(), Vec::new());
    /// f.export(None, "monday", &mut whole)?;
    /// f.export(Some("monday"), "tuesday", &mut increment)?;
    ///
    /// let path = dir.path().join("replica");
    /// let (replica, _) = AtomicMappedFile::options().import(path, &whole[..])?;
    /// replica.import(&increment[..])?;
    /// assert_eq!(replica.load::<[u8; 3]>(77)?, *b"new");
    /// # Ok::<(), atomic_mmap::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Snapshot`] if a snapshot is not there, or is damaged. [`Error::Stream`] if `from`
    /// is not older than `to`. [`Error::Io`] if the writer fails. [`Error::Poisoned`],
    /// [`Error::Forked`].
    pub fn export(&self, from: Option<&str>, to: &str, writer: impl Write) -> Result<ExportReport> {
        self.export_from_frame(from, to, 0, writer)
    }

    /// Writes the stream that [`export`](Self::export) writes, and leaves out the frames before
    /// `first_frame`. A receiver that has those from a transfer that broke takes the rest:
    /// [`import_progress`](Self::import_progress).
    ///
    /// # Errors
    /// Those of [`export`](Self::export).
    pub fn export_from_frame(
        &self,
        from: Option<&str>,
        to: &str,
        first_frame: u64,
        writer: impl Write,
    ) -> Result<ExportReport> {
        let engine = self.engine();
        // Handles: neither snapshot is dropped meanwhile.
        let base = from.map(|name| self.open_snapshot(name)).transpose()?;
        let snapshot = self.open_snapshot(to)?;
        if let Some(base) = base.as_ref().filter(|base| base.number() >= snapshot.number()) {
            let (from, to) = (base.name().to_owned(), to.to_owned());
            let why = StreamError::WrongOrder { from, to };
            return Err(Error::Stream { path: self.path().to_owned(), why });
        }
        let base_sum = base.as_ref().map_or(Ok(0), |base| engine.sum_of_snapshot(base.of))?;
        let header = Header {
            first_frame,
            uuid: engine.uuid(),
            base: base.as_ref().map(|base| self.point(base)).transpose()?,
            base_sum,
            to: self.point(&snapshot)?,
        };
        // Never `NoSpace`, which is of the file's own folder: where the stream goes may be full.
        let io = |e: io::Error| Error::Io {
            call: "write the stream",
            path: self.path().to_owned(),
            offset: None,
            source: e.into(),
        };
        let mut sender = Sender::begin(&header, writer).map_err(io)?;
        let mut take = |page, slices, bytes: &_| {
            sender.body.add(page, slices, bytes);
            if sender.body.count() < MOST_CHANGES { Ok(()) } else { sender.end_frame().map_err(io) }
        };
        let sum = base_sum
            ^ match &base {
                Some(base) => engine.take_changes(base.of, snapshot.of, &mut take)?,
                None => engine.take_pages(snapshot.of, 0, &mut take)?,
            };
        sender.end(sum).map_err(io)
    }

    fn point(&self, of: &Snapshot) -> Result<Point> {
        let entry = self.engine().live_snapshot(of.name())?;
        Ok(Point { number: entry.number, len: entry.len, nanos: entry.nanos, name: entry.name })
    }
}

/// A stream that is being written.
struct Sender<W> {
    to: W,
    seed: Seed,
    first_frame: u64,
    body: Body,
    /// The sum over the checksums of the frames.
    sums: u32,
    report: ExportReport,
}

impl<W: Write> Sender<W> {
    fn begin(header: &Header, mut to: W) -> io::Result<Self> {
        let bytes = header.encode();
        to.write_all(&bytes)?;
        let report = ExportReport { frames: 0, pages: 0, bytes: bytes.len() as u64, sum: 0 };
        let (seed, first_frame) = (header.seed(), header.first_frame);
        Ok(Sender { to, seed, first_frame, body: Body::default(), sums: 0, report })
    }

    /// Writes the changes that were added as a frame, if it is not one that was sent before.
    fn end_frame(&mut self) -> io::Result<()> {
        let (changes, body) = (self.body.count() as u64, self.body.take());
        let head = Frame::encode(self.seed, self.report.frames, changes, &body);
        self.sums = append_frame(self.sums, Frame::sum_of(&head));
        if self.report.frames >= self.first_frame {
            self.to.write_all(&head)?;
            self.to.write_all(&body)?;
            self.report.bytes += (head.len() + body.len()) as u64;
        }
        self.report.frames += 1;
        self.report.pages += changes;
        Ok(())
    }

    fn end(mut self, sum: u64) -> io::Result<ExportReport> {
        if self.body.count() > 0 {
            self.end_frame()?;
        }
        let end = End { sum, frames: self.sums };
        let last = Frame::encode_last(self.seed, self.report.frames, self.report.pages, end);
        self.to.write_all(&last)?;
        self.to.flush()?;
        let bytes = self.report.bytes + last.len() as u64;
        Ok(ExportReport { bytes, sum, ..self.report })
    }
}
