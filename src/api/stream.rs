//! Reads a stream of an export, and checks all of it.
//!
//! Invariants: at most one frame is in memory, with a bounded length. What is handed out has right
//! checksums, and belongs to this stream, at this place.
//!
//! May import the format and the errors.

use crate::error::{Error, Result, StreamError};
use crate::format::export::{
    Change, End, FRAME, Frame, HEADER, Header, NoHeader, Seed, append_frame,
};
use crate::mutant::planted;
use crate::units::{PAGE, PageIndex};
use std::io::{ErrorKind, Read};
use std::path::Path;

/// How far a stream was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Progress {
    /// Frames of changes.
    pub frames: u64,
    /// Changes in them.
    pub changes: u64,
    /// The sum over their checksums.
    sums: u32,
    last: Option<PageIndex>,
}

/// A stream that is being read.
pub(super) struct Stream<'p, R> {
    from: R,
    /// The file that errors name.
    path: &'p Path,
    /// Bytes that were read.
    pub offset: u64,
    pub header: Header,
    seed: Seed,
    pub progress: Progress,
    /// The frame that was read last, and its body.
    pub head: [u8; FRAME],
    pub body: Vec<u8>,
}

/// The next part of a stream.
pub(super) enum Next {
    /// A frame with these changes, in `body`.
    Changes(Vec<Change>),
    /// The end, with the content sum of the snapshot.
    End(u64),
}

impl<'p, R: Read> Stream<'p, R> {
    /// Reads the header.
    pub fn begin(mut from: R, path: &'p Path) -> Result<Self> {
        let (mut bytes, mut offset) = ([0; HEADER], 0);
        fill(&mut from, &mut bytes, (&mut offset, 0), path)?;
        let header = Header::decode(&bytes).map_err(|why| {
            let why = match why {
                NoHeader::Damaged => {
                    let what = "it is no header of a stream";
                    StreamError::Damaged { offset: 0, what, frames: 0 }
                }
                NoHeader::Newer(version) => StreamError::Newer { version },
            };
            Error::Stream { path: path.to_owned(), why }
        })?;
        let (seed, progress) = (header.seed(), Progress::default());
        let (head, body) = ([0; FRAME], Vec::new());
        Ok(Stream { from, path, offset, header, seed, progress, head, body })
    }

    pub fn damaged<T>(&self, offset: u64, what: &'static str) -> Result<T> {
        let why = StreamError::Damaged { offset, what, frames: self.progress.frames };
        Err(Error::Stream { path: self.path.to_owned(), why })
    }

    /// Reads the next frame.
    pub fn next(&mut self) -> Result<Next> {
        let (start, frames) = (self.offset, self.progress.frames);
        fill(&mut self.from, &mut self.head, (&mut self.offset, frames), self.path)?;
        let Some(frame) = Frame::decode(&self.head) else {
            return self.damaged(start, "it is no frame");
        };
        self.body.resize(frame.len, 0);
        fill(&mut self.from, &mut self.body, (&mut self.offset, frames), self.path)?;
        if !frame.is_whole(self.seed, &self.head, &self.body) {
            return self.damaged(start, "the checksum is wrong");
        }
        if frame.number != frames && !planted!(FrameOrderUnchecked) {
            return self.damaged(start, "it is not the next frame");
        }
        if frame.is_last { self.end(start, &frame) } else { self.changes(start, &frame) }
    }

    fn changes(&mut self, start: u64, frame: &Frame) -> Result<Next> {
        let Some(changes) = frame.changes(&self.body) else {
            return self.damaged(start, "the changes contradict each other");
        };
        let follows =
            |change: &Change| self.progress.last.is_none_or(|last| last.0 < change.page.0);
        let is_within = |change: &Change| change.page.start() < self.header.to.len;
        if !changes.first().is_some_and(follows) || !changes.last().is_some_and(is_within) {
            return self.damaged(start, "a page is not in its place");
        }
        if changes.last().is_some_and(|last| self.passes_the_end(last)) {
            return self.damaged(start, "there are bytes past the end of the file");
        }
        self.progress = Progress {
            frames: self.progress.frames + 1,
            changes: self.progress.changes + frame.changes,
            sums: append_frame(self.progress.sums, frame.sum),
            last: changes.last().map(|change| change.page),
        };
        Ok(Next::Changes(changes))
    }

    /// Returns `true` if a change has bytes past the end of the file: a growth would find them.
    fn passes_the_end(&self, change: &Change) -> bool {
        let end = self.header.to.len - change.page.start();
        if end >= PAGE as u64 || planted!(BytesPastTheEnd) {
            return false;
        }
        let mut page = [0; PAGE];
        change.put(&self.body, &mut page);
        page[end as usize..].iter().any(|byte| *byte != 0)
    }

    fn end(&mut self, start: u64, frame: &Frame) -> Result<Next> {
        match End::decode(&self.body) {
            Some(end)
                if frame.changes == self.progress.changes && end.frames == self.progress.sums =>
            {
                Ok(Next::End(end.sum))
            }
            _ => self.damaged(start, "counts or sums are not those of the frames"),
        }
    }
}

/// Fills `to`, and counts what was read. `frames` is the number of frames before.
fn fill(
    from: &mut impl Read,
    to: &mut [u8],
    (offset, frames): (&mut u64, u64),
    path: &Path,
) -> Result<()> {
    let mut at = 0;
    while at < to.len() {
        match from.read(&mut to[at..]) {
            Ok(0) => {
                let why = StreamError::Cut { offset: *offset, frames };
                return Err(Error::Stream { path: path.to_owned(), why });
            }
            Ok(len) => {
                at += len;
                *offset += len as u64;
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(Error::io_at("read the stream for", path, *offset, e)),
        }
    }
    Ok(())
}
