//! The stream that `export` writes and `import` reads.
//!
//! The diagram of its bytes is in `docs/format-export.md`; `src/golden.rs` keeps both in step.
//!
//! The checksums of frames continue from the CRC-32C of bytes 24 to 320 of the header. So a frame
//! of another stream is none of this one, and a frame is one of a resumed stream as well.
//!
//! Pure; nothing here panics, whatever the bytes.
//!
//! May import: `layout`, `snapshots`, `bitmap`, `checksum`, `page_sum`, `units`, and the planted
//! bugs.

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests;

use super::layout::{MAX_LEN, MOST_PAGES};
use super::snapshots::table::{LONGEST_NAME, is_name};
use super::{half_at, le_word, put_words};
use crate::bitmap::{Slices, bits};
use crate::checksum::{crc32c, crc32c_append};
use crate::format::sqlite_header;
use crate::mutant::planted;
use crate::page_sum;
use crate::units::{PAGE, PageIndex, SLICE};

/// Bytes of the header.
pub const HEADER: usize = 320;
/// Bytes of a frame before its body.
pub const FRAME: usize = 32;
/// The most changes in a frame. Each frame but the last one of changes has this number.
pub const MOST_CHANGES: usize = 64;
const CHANGE: usize = 24;
const LAST_BODY: usize = 16;
/// The most bytes of a body.
const LONGEST_BODY: usize = MOST_CHANGES * (CHANGE + PAGE);
const MAGIC: [u8; 8] = *b"AtomExpt";
const FRAME_MAGIC: [u8; 8] = *b"AtomFram";
const LAST_MAGIC: [u8; 8] = *b"AtomFini";
const VERSION: u32 = 1;
const POINT: usize = 128;
const NAME: usize = 32;

/// A snapshot of the sender.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Point {
    /// Its number in the sender's file.
    pub number: u64,
    /// The length of the file, in bytes.
    pub len: u64,
    /// The time of its seal, in nanoseconds since 1970.
    pub nanos: u64,
    /// Its name.
    pub name: String,
}

impl Point {
    fn encode(&self) -> [u8; POINT] {
        let mut bytes = [0; POINT];
        put_words(&mut bytes, 0, [self.number, self.len, self.nanos]);
        bytes[24..28].copy_from_slice(&(self.name.len() as u32).to_le_bytes());
        bytes[NAME..][..self.name.len()].copy_from_slice(self.name.as_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Point> {
        let name_len = half_at(bytes, 24) as usize;
        let name = bytes[NAME..][..LONGEST_NAME].get(..name_len)?;
        let point = Point {
            number: le_word(&bytes[..8]),
            len: le_word(&bytes[8..16]),
            nanos: le_word(&bytes[16..24]),
            name: std::str::from_utf8(name).ok()?.to_owned(),
        };
        let is_sound = point.number != 0 && point.len <= MAX_LEN && is_name(&point.name);
        (is_sound && point.encode() == bytes).then_some(point)
    }
}

/// The header of a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// The number of the first frame that follows. Earlier ones were sent before.
    pub first_frame: u64,
    /// The sender's pair.
    pub uuid: [u8; 16],
    /// The snapshot that the changes are relative to. `None`: an empty file.
    pub base: Option<Point>,
    /// The content sum of the base.
    pub base_sum: u64,
    /// The snapshot that the stream leads to.
    pub to: Point,
}

/// The reason why a header is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoHeader {
    /// The bytes are none of a stream, or damaged.
    Damaged,
    /// A later version of the format.
    Newer(u32),
}

impl Header {
    /// Returns the bytes.
    pub fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[12..16].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.first_frame.to_le_bytes());
        bytes[32..48].copy_from_slice(&self.uuid);
        bytes[48..56].copy_from_slice(&self.base_sum.to_le_bytes());
        if let Some(base) = &self.base {
            bytes[24] = 1;
            bytes[64..192].copy_from_slice(&base.encode());
        }
        bytes[192..].copy_from_slice(&self.to.encode());
        let sum = crc32c(&bytes[12..]);
        bytes[8..12].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Decodes a header.
    pub fn decode(bytes: &[u8; HEADER]) -> Result<Header, NoHeader> {
        let is_whole = bytes[..8] == MAGIC && half_at(bytes, 8) == crc32c(&bytes[12..]);
        match half_at(bytes, 12) {
            _ if !is_whole => return Err(NoHeader::Damaged),
            VERSION => {}
            version => return Err(NoHeader::Newer(version)),
        }
        let decoded = || {
            let header = Header {
                first_frame: le_word(&bytes[16..24]),
                uuid: bytes[32..48].try_into().ok()?,
                base: match bytes[24] {
                    0 => None,
                    _ => Some(Point::decode(&bytes[64..192])?),
                },
                base_sum: le_word(&bytes[48..56]),
                to: Point::decode(&bytes[192..])?,
            };
            // Also refuses other flags, and bytes that have to be zero.
            (header.encode() == *bytes).then_some(header)
        };
        decoded().ok_or(NoHeader::Damaged)
    }

    /// Returns the start of the checksums of frames.
    pub fn seed(&self) -> Seed {
        Seed(crc32c(&self.encode()[24..]))
    }

    /// Returns `true` if both streams have the same frames, wherever they begin.
    pub fn is_of_one_stream(&self, other: &Header) -> bool {
        *self == Header { first_frame: self.first_frame, ..other.clone() }
    }
}

/// The start of the checksums of a stream's frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seed(u32);

/// A frame without its body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// `true` if it ends the stream.
    pub is_last: bool,
    /// Its checksum.
    pub sum: u32,
    /// Bytes of the body.
    pub len: usize,
    /// Its number. The last frame has the count of the others.
    pub number: u64,
    /// The number of changes: of this frame, or in the last one of all frames.
    pub changes: u64,
}

impl Frame {
    /// Returns the bytes of a frame of changes with this body.
    pub fn encode(seed: Seed, number: u64, changes: u64, body: &[u8]) -> [u8; FRAME] {
        encode(FRAME_MAGIC, seed, [number, changes], body)
    }

    /// Returns the bytes of the last frame, with its body.
    pub fn encode_last(seed: Seed, number: u64, changes: u64, end: End) -> Vec<u8> {
        let body = end.encode();
        [&encode(LAST_MAGIC, seed, [number, changes], &body)[..], &body].concat()
    }

    /// Returns the checksum in the bytes before a body.
    pub fn sum_of(bytes: &[u8; FRAME]) -> u32 {
        half_at(bytes, 8)
    }

    /// Decodes the bytes before a body. Its length is bounded, and its checksum is not checked yet.
    pub fn decode(bytes: &[u8; FRAME]) -> Option<Frame> {
        let is_last = bytes[..8] == LAST_MAGIC;
        let frame = Frame {
            is_last,
            sum: Frame::sum_of(bytes),
            len: half_at(bytes, 12) as usize,
            number: le_word(&bytes[16..24]),
            changes: le_word(&bytes[24..]),
        };
        let is_sound = match is_last {
            true => frame.len == LAST_BODY,
            false => {
                bytes[..8] == FRAME_MAGIC
                    && frame.len <= LONGEST_BODY
                    && (1..=MOST_CHANGES as u64).contains(&frame.changes)
                    && frame.len >= frame.heads_len()
            }
        };
        is_sound.then_some(frame)
    }

    /// Returns `true` if the checksum is right. `bytes` are those before the body.
    pub fn is_whole(&self, seed: Seed, bytes: &[u8; FRAME], body: &[u8]) -> bool {
        self.sum == crc32c_append(crc32c_append(seed.0, &bytes[12..]), body)
            || planted!(FrameUnchecked)
    }

    /// Returns the bytes of the heads of its changes. A frame with a count that was not checked
    /// may have the most bytes that there are.
    fn heads_len(&self) -> usize {
        usize::try_from(self.changes).unwrap_or(usize::MAX).saturating_mul(CHANGE)
    }

    /// Returns the changes of a frame that is whole. `None` if they contradict each other.
    pub fn changes(&self, body: &[u8]) -> Option<Vec<Change>> {
        let heads = self.heads_len();
        let mut at = heads;
        let mut changes: Vec<Change> = Vec::new();
        for head in body.get(..heads)?.chunks_exact(CHANGE) {
            let page = PageIndex(le_word(&head[..8]));
            let (slices, data) = (Slices(le_word(&head[8..16])), Slices(le_word(&head[16..])));
            let follows = changes.last().is_none_or(|last| last.page.0 < page.0);
            let is_within = page.0 < MOST_PAGES;
            if !follows || !is_within || slices.is_empty() || !data.without(slices).is_empty() {
                return None;
            }
            changes.push(Change { page, slices, data, at });
            at = at.checked_add(data.bytes())?;
        }
        (at == body.len()).then_some(changes)
    }
}

fn encode(magic: [u8; 8], seed: Seed, words: [u64; 2], body: &[u8]) -> [u8; FRAME] {
    let mut bytes = [0; FRAME];
    bytes[..8].copy_from_slice(&magic);
    bytes[12..16].copy_from_slice(&(body.len() as u32).to_le_bytes());
    bytes[16..24].copy_from_slice(&words[0].to_le_bytes());
    bytes[24..].copy_from_slice(&words[1].to_le_bytes());
    let sum = crc32c_append(crc32c_append(seed.0, &bytes[12..]), body);
    bytes[8..12].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// The body of the last frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End {
    /// The content sum of the exported snapshot.
    pub sum: u64,
    /// The sum over the checksums of all other frames: [`append_frame`].
    pub frames: u32,
}

impl End {
    fn encode(self) -> [u8; LAST_BODY] {
        let mut bytes = [0; LAST_BODY];
        bytes[..8].copy_from_slice(&self.sum.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.frames.to_le_bytes());
        bytes
    }

    /// Decodes the body of a last frame.
    pub fn decode(body: &[u8]) -> Option<End> {
        let bytes: &[u8; LAST_BODY] = body.try_into().ok()?;
        let end = End { sum: le_word(&bytes[..8]), frames: half_at(bytes, 8) };
        (end.encode() == *bytes).then_some(end)
    }
}

/// Continues the sum over the checksums of frames with the one of the next frame.
pub fn append_frame(frames: u32, sum: u32) -> u32 {
    crc32c_append(frames, &sum.to_le_bytes())
}

/// Slices of a page that change, and where their bytes are in the body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    /// The page.
    pub page: PageIndex,
    /// The slices that change.
    pub slices: Slices,
    /// Those of them that are not zero. Their bytes are in the body.
    data: Slices,
    at: usize,
}

impl Change {
    /// Stores the changed slices over those of `to`.
    pub fn put(&self, body: &[u8], to: &mut [u8; PAGE]) {
        let mut from = body[self.at..].as_chunks::<SLICE>().0.iter();
        for (n, slice) in to.as_chunks_mut::<SLICE>().0.iter_mut().enumerate() {
            let has = |slices: Slices| slices.0 >> n & 1 == 1;
            match (has(self.data), has(self.slices)) {
                (true, _) => from.next().iter().for_each(|from| slice.copy_from_slice(*from)),
                (false, true) => slice.fill(0),
                (false, false) => {}
            }
        }
    }
}

/// The body of a frame that is being made.
#[derive(Default)]
pub struct Body {
    heads: Vec<u8>,
    slices: Vec<u8>,
}

impl Body {
    /// Adds the `slices` of a page.
    pub fn add(&mut self, page: PageIndex, slices: Slices, bytes: &[u8; PAGE]) {
        let mut data = Slices::NONE;
        let all = bytes.as_chunks::<SLICE>().0;
        for n in bits(slices.0).filter(|n| all[*n] != [0; SLICE]) {
            data = data.or(Slices::one(n));
            self.slices.extend_from_slice(&all[n]);
        }
        for word in [page.0, slices.0, data.0] {
            self.heads.extend_from_slice(&word.to_le_bytes());
        }
    }

    /// Returns the number of changes.
    pub fn count(&self) -> usize {
        self.heads.len() / CHANGE
    }

    /// Returns the bytes of the body, and begins the next one.
    pub fn take(&mut self) -> Vec<u8> {
        let mut body = std::mem::take(&mut self.heads);
        body.append(&mut self.slices);
        body
    }
}

/// Returns the sum of a page with these bytes, which is 0 for a page of zeros. The content sum of a
/// file is the XOR over all of its pages. Past the end a page has zeros. The mark of a database in
/// use does not count, so that the sum is that of the database at each time and on each machine.
pub fn page_sum(page: PageIndex, bytes: &[u8; PAGE]) -> u64 {
    let mut plain;
    let mut bytes = bytes;
    if page == PageIndex(0) {
        plain = *bytes;
        unmark(page, &mut plain);
        bytes = &plain;
    }
    page_sum::stored(page, page_sum::of_page(bytes))
}

/// Takes the mark of a database in use off its first page: streams have databases without it.
pub fn unmark(page: PageIndex, bytes: &mut [u8; PAGE]) {
    if let (PageIndex(0), Some(header)) = (page, bytes.first_chunk_mut()) {
        sqlite_header::unmark(header);
    }
}
