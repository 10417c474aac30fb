//! The stream that `export` writes and `import` reads.
//!
//! ```text
//! header (320 bytes)                          point: a snapshot of the sender (128 bytes)
//! 0   8   magic "AtomExpt"                    0   8   number
//! 8   4   CRC-32C of bytes 12 to 320          8   8   length of the file
//! 12  4   version, 1                          16  8   time, nanoseconds since 1970
//! 16  8   number of the first frame           24  4   length of the name
//! 24  4   flags: 1 = there is a base          28  4   zero
//! 28  4   zero                                32  64  name, UTF-8, padded with zeros
//! 32  16  uuid of the sender's pair           96  32  zero
//! 48  8   content sum of the base, or 0
//! 56  8   zero                                change, in the body of a frame
//! 64  128 point of the base, or zero          0   8   page
//! 192 128 point of the exported snapshot      8   8   mask: bit n = slice n changes
//!                                             16  8   mask: slice n follows, else it is zero
//! frame (32 bytes), and its body
//! 0   8   magic "AtomFram", or "AtomFini" for the last frame
//! 8   4   CRC-32C of bytes 12 to the end of the body
//! 12  4   bytes of the body
//! 16  8   number of the frame
//! 24  8   count of changes: of this frame, or of all frames
//!
//! body of a frame: its changes, ascending by page, and then their slices, 64 bytes each
//! body of the last frame: content sum (8), CRC-32C of the CRCs of the others (4), zero (4)
//! ```
//!
//! The checksums of frames continue from the CRC-32C of bytes 24 to 320 of the header. So a frame
//! of another stream is none of this one, and a frame is one of a resumed stream as well.
//!
//! Pure; nothing here panics, whatever the bytes.
//!
//! May import: `layout`, `snapshots`, `bitmap`, `checksum`, `units`, and the planted bugs.

use super::layout::MAX_LEN;
use super::le_word;
use super::snapshots::table::{LONGEST_NAME, is_name};
use crate::bitmap::{Slices, bits};
use crate::checksum::{crc32c, crc32c_append};
use crate::mutant::planted;
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
        for (at, word) in [(0, self.number), (8, self.len), (16, self.nanos)] {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes[24..28].copy_from_slice(&(self.name.len() as u32).to_le_bytes());
        bytes[NAME..][..self.name.len()].copy_from_slice(self.name.as_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Point> {
        let name_len = half(&bytes[24..28]) as usize;
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
        let is_whole = bytes[..8] == MAGIC && half(&bytes[8..12]) == crc32c(&bytes[12..]);
        match half(&bytes[12..16]) {
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
        half(&bytes[8..12])
    }

    /// Decodes the bytes before a body. Its length is bounded, and its checksum is not checked yet.
    pub fn decode(bytes: &[u8; FRAME]) -> Option<Frame> {
        let is_last = bytes[..8] == LAST_MAGIC;
        let frame = Frame {
            is_last,
            sum: Frame::sum_of(bytes),
            len: half(&bytes[12..16]) as usize,
            number: le_word(&bytes[16..24]),
            changes: le_word(&bytes[24..]),
        };
        let is_sound = match is_last {
            true => frame.len == LAST_BODY,
            false => {
                bytes[..8] == FRAME_MAGIC
                    && frame.len <= LONGEST_BODY
                    && (1..=MOST_CHANGES as u64).contains(&frame.changes)
                    && frame.len >= frame.changes as usize * CHANGE
            }
        };
        is_sound.then_some(frame)
    }

    /// Returns `true` if the checksum is right. `bytes` are those before the body.
    pub fn is_whole(&self, seed: Seed, bytes: &[u8; FRAME], body: &[u8]) -> bool {
        self.sum == crc32c_append(crc32c_append(seed.0, &bytes[12..]), body)
            || planted!(FrameUnchecked)
    }

    /// Returns the changes of a frame that is whole. `None` if they contradict each other.
    pub fn changes(&self, body: &[u8]) -> Option<Vec<Change>> {
        let (heads, mut at) = (self.changes as usize * CHANGE, self.changes as usize * CHANGE);
        let mut changes: Vec<Change> = Vec::new();
        for head in body.get(..heads)?.chunks_exact(CHANGE) {
            let page = PageIndex(le_word(&head[..8]));
            let (slices, data) = (Slices(le_word(&head[8..16])), Slices(le_word(&head[16..])));
            let follows = changes.last().is_none_or(|last| last.page.0 < page.0);
            let is_within = page.0 < MAX_LEN / PAGE as u64;
            if !follows || !is_within || slices.is_empty() || !data.without(slices).is_empty() {
                return None;
            }
            changes.push(Change { page, slices, data, at });
            at += data.count() * SLICE;
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
        let end = End { sum: le_word(&bytes[..8]), frames: half(&bytes[8..12]) };
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
            data = data.or(Slices::range(n, n + 1));
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
/// file is the XOR over all of its pages. Past the end a page has zeros.
pub fn page_sum(page: PageIndex, bytes: &[u8; PAGE]) -> u64 {
    if bytes.iter().all(|byte| *byte == 0) {
        return 0;
    }
    let low = crc32c_append(crc32c(&page.0.to_le_bytes()), bytes);
    let high = crc32c_append(crc32c(bytes), &page.0.to_le_bytes());
    u64::from(high) << 32 | u64::from(low)
}

fn half(bytes: &[u8]) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(bytes);
    u32::from_le_bytes(word)
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;

    fn point(number: u64, name: &str) -> Point {
        Point { number, len: number * 1000, nanos: 77, name: name.to_owned() }
    }

    fn headers() -> [Header; 2] {
        let full = Header {
            first_frame: 0,
            uuid: *b"0123456789abcdef",
            base: None,
            base_sum: 0,
            to: point(9, "ninth"),
        };
        let base = Some(point(4, "fourth"));
        [full.clone(), Header { first_frame: 3, base, base_sum: 55, ..full }]
    }

    #[test]
    fn what_was_encoded_is_decoded_and_each_flipped_bit_is_noticed() {
        for header in headers() {
            let bytes = header.encode();
            assert_eq!(Header::decode(&bytes), Ok(header));
            for n in 0..HEADER * 8 {
                let mut torn = bytes;
                torn[n / 8] ^= 1 << (n % 8);
                assert_eq!(Header::decode(&torn), Err(NoHeader::Damaged), "bit {n}");
            }
        }
    }

    #[test]
    fn a_later_version_is_told_from_damage() {
        let mut bytes = headers()[0].encode();
        bytes[12] = 2;
        let sum = crc32c(&bytes[12..]);
        bytes[8..12].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(Header::decode(&bytes), Err(NoHeader::Newer(2)));
    }

    #[test]
    fn frames_are_those_of_one_stream_wherever_it_begins() {
        let [full, increment] = headers();
        assert_ne!(full.seed(), increment.seed());
        assert!(!full.is_of_one_stream(&increment));
        let resumed = Header { first_frame: 7, ..increment.clone() };
        assert_eq!(resumed.seed(), increment.seed());
        assert!(resumed.is_of_one_stream(&increment) && increment.is_of_one_stream(&resumed));
    }

    fn frame() -> (Vec<u8>, [u8; FRAME]) {
        let mut body = Body::default();
        let mut page = [7; PAGE];
        page[SLICE..2 * SLICE].fill(0);
        body.add(PageIndex(3), Slices::range(0, 3), &page);
        body.add(PageIndex(5), Slices::ALL, &[9; PAGE]);
        let body = body.take();
        let head = Frame::encode(headers()[0].seed(), 6, 2, &body);
        (body, head)
    }

    #[test]
    fn a_frame_has_its_changes() {
        let (body, head) = frame();
        let frame = Frame::decode(&head).expect("a frame");
        assert!(frame.is_whole(headers()[0].seed(), &head, &body));
        assert!(!frame.is_whole(headers()[1].seed(), &head, &body), "another stream");
        let changes = frame.changes(&body).expect("changes");
        assert_eq!(changes.iter().map(|c| c.page.0).collect::<Vec<_>>(), [3, 5]);
        let mut page = [1; PAGE];
        changes[0].put(&body, &mut page);
        let expected = [&[7; SLICE][..], &[0; SLICE], &[7; SLICE], &[1; PAGE - 3 * SLICE]].concat();
        assert_eq!(page[..], expected);
        changes[1].put(&body, &mut page);
        assert_eq!(page, [9; PAGE]);
    }

    #[test]
    fn changes_that_contradict_each_other_are_none() {
        let spoil: [fn(&mut Vec<u8>); 6] = [
            |body| body[0] = 5,
            |body| body[..8].copy_from_slice(&(MAX_LEN / PAGE as u64).to_le_bytes()),
            |body| body[8..16].fill(0),
            |body| body[8] = 3,
            |body| body.push(0),
            |body| body.truncate(body.len() - 1),
        ];
        for (n, spoil) in spoil.into_iter().enumerate() {
            let (mut body, head) = frame();
            spoil(&mut body);
            let frame = Frame::decode(&head).expect("a frame");
            assert_eq!(frame.changes(&body), None, "{n}");
        }
    }

    #[test]
    fn no_frame_has_more_bytes_than_its_bound() {
        let (_, head) = frame();
        for (at, word) in [(12, LONGEST_BODY as u32 + 1), (12, 47), (24, 65), (24, 0)] {
            let mut head = head;
            head[at..at + 4].copy_from_slice(&word.to_le_bytes());
            assert_eq!(Frame::decode(&head), None);
        }
    }

    #[test]
    fn the_last_frame_has_counts_and_sums() {
        let seed = headers()[0].seed();
        let end = End { sum: 88, frames: append_frame(0, 5) };
        let bytes = Frame::encode_last(seed, 4, 200, end);
        let (head, body) = bytes.split_first_chunk::<FRAME>().expect("a frame");
        let frame = Frame::decode(head).expect("a frame");
        assert!(frame.is_last && frame.is_whole(seed, head, body));
        assert_eq!((frame.number, frame.changes), (4, 200));
        assert_eq!(End::decode(body), Some(end));
    }

    #[test]
    fn the_sum_of_a_page_depends_on_bytes_and_place() {
        assert_eq!(page_sum(PageIndex(7), &[0; PAGE]), 0);
        let mut page = [0; PAGE];
        page[100] = 1;
        assert_ne!(page_sum(PageIndex(7), &page), 0);
        assert_ne!(page_sum(PageIndex(7), &page), page_sum(PageIndex(8), &page));
    }
}
