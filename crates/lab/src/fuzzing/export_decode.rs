//! Fuzz target: the decoders of streams between files against a second reading of
//! `docs/format-export.md`, and against their encoders. A decoder must not panic, and must not
//! accept invalid bytes.
//!
//! ```text
//! 0  bit 0: bytes of a stream, or changes to make one of; bit 1: instead, words of a stream that a
//!    file takes (`live`); bit 7: checksums are repaired
//! 1- the bytes, or the changes
//! ```

use super::input::{Input, filling};
use super::live;
use atomic_mmap::testing::export::{
    Body, Change, End, FRAME, Frame, HEADER, Header, MOST_CHANGES, Point, append_frame,
};
use atomic_mmap::testing::{PAGE, PageIndex, SLICE, Slices, layout};
use crc32c::{crc32c, crc32c_append};

/// Runs one input.
pub fn run(input: &[u8]) {
    let mut input = Input(input);
    let first = input.byte();
    if first & 2 != 0 {
        live::stream(&mut input);
    } else if first & 1 == 0 {
        let mut bytes = input.0.to_vec();
        if first >> 7 == 1 {
            repair(&mut bytes);
        }
        assert_eq!(read(&bytes), second_reading(&bytes));
    } else {
        let (bytes, changes) = a_stream(&mut input);
        let cut = input.number(3) as usize % bytes.len();
        assert_eq!(read(&bytes).as_ref().map(|found| found.0), Some(changes));
        assert_eq!(second_reading(&bytes), read(&bytes));
        assert_eq!(read(&bytes[..cut]).filter(|found| found.1), None, "a stream that was cut");
    }
}

/// Returns seeds of each kind of input.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for seed in 0..12 {
        seeds.push([&[2][..], &filling(seed + 140, 20)].concat());
    }
    for seed in 0..6 {
        seeds.push([&[1][..], &filling(seed + 40, 30 << seed)].concat());
        let (stream, _) = a_stream(&mut Input(&filling(seed + 50, 10 << seed)));
        seeds.push([&[0x80][..], &stream[..stream.len().min(3000)]].concat());
    }
    seeds
}

/// The changes of the whole frames, and `true` if the stream has its end. `None` without a header.
type Found = (u64, bool);

/// Reads a stream by the decoders.
fn read(bytes: &[u8]) -> Option<Found> {
    let (head, mut rest) = bytes.split_first_chunk::<HEADER>()?;
    let header = Header::decode(head).ok()?;
    assert_eq!(header.encode(), *head, "encoded again");
    let mut found = 0;
    while let Some((head, after)) = rest.split_first_chunk::<FRAME>() {
        let Some(frame) = Frame::decode(head) else { break };
        let Some((body, after)) = after.split_at_checked(frame.len) else { break };
        if !frame.is_whole(header.seed(), head, body) {
            break;
        }
        if frame.is_last {
            return Some((found, End::decode(body).is_some()));
        }
        let Some(changes) = frame.changes(body) else { break };
        let encoded = Frame::encode(header.seed(), frame.number, frame.changes, body);
        assert_eq!(encoded, *head, "encoded again");
        let mut page = [0; PAGE];
        changes.iter().for_each(|change: &Change| change.put(body, &mut page));
        found += changes.len() as u64;
        rest = after;
    }
    Some((found, false))
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

fn half(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn is_point(bytes: &[u8]) -> bool {
    let (number, len, name_len) = (word(bytes, 0), word(bytes, 8), half(bytes, 24) as usize);
    let Some(name) = bytes[32..96].get(..name_len) else { return false };
    let is_padded = half(bytes, 28) == 0 && bytes[32 + name_len..].iter().all(|byte| *byte == 0);
    let is_name = !name.is_empty() && !name.contains(&0) && std::str::from_utf8(name).is_ok();
    number != 0 && len <= layout::MAX_LEN && is_name && is_padded
}

/// Reads a stream as the document says.
fn second_reading(bytes: &[u8]) -> Option<Found> {
    let header = bytes.get(..320)?;
    let has_base = half(header, 24) == 1 && is_point(&header[64..192]);
    let has_none = half(header, 24) == 0 && header[64..192].iter().all(|byte| *byte == 0);
    let zeros = half(header, 28) == 0 && word(header, 56) == 0;
    let is_whole = header[..8] == *b"AtomExpt" && half(header, 8) == crc32c(&header[12..]);
    let is_known = half(header, 12) == 1 && zeros && (has_base || has_none);
    if !is_whole || !is_known || !is_point(&header[192..]) {
        return None;
    }
    let (seed, mut at, mut found) = (crc32c(&header[24..]), 320, 0);
    loop {
        let Some(head) = bytes.get(at..at + 32) else { return Some((found, false)) };
        let len = half(head, 12) as usize;
        let count = word(head, 24);
        let (is_frame, is_last) = (head[..8] == *b"AtomFram", head[..8] == *b"AtomFini");
        let has_room = (1..=64).contains(&count) && len <= 64 * (24 + 4096);
        let fits = if is_last { len == 16 } else { is_frame && has_room };
        let body = bytes.get(at + 32..at + 32 + len).filter(|_| fits);
        let Some(body) = body else { return Some((found, false)) };
        if half(head, 8) != crc32c_append(crc32c_append(seed, &head[12..]), body) {
            return Some((found, false));
        }
        if is_last {
            return Some((found, half(body, 12) == 0));
        }
        if !are_changes(body, count as usize) {
            return Some((found, false));
        }
        found += count;
        at += 32 + len;
    }
}

fn are_changes(body: &[u8], count: usize) -> bool {
    let Some(heads) = body.get(..count * 24) else { return false };
    let heads: Vec<[u64; 3]> =
        heads.chunks(24).map(|head| [0, 8, 16].map(|at| word(head, at))).collect();
    let ascends = heads.is_sorted_by(|a, b| a[0] < b[0]);
    let are_right = heads.iter().all(|[page, slices, data]| {
        *page < layout::MAX_LEN / PAGE as u64 && *slices != 0 && data & !slices == 0
    });
    let slices: usize = heads.iter().map(|[_, _, data]| data.count_ones() as usize).sum();
    ascends && are_right && body.len() == count * 24 + slices * SLICE
}

/// Puts the checksums of a stream right, as far as its frames are there.
fn repair(bytes: &mut [u8]) {
    if bytes.len() < 320 {
        return;
    }
    bytes[..8].copy_from_slice(b"AtomExpt");
    let sum = crc32c(&bytes[12..320]);
    bytes[8..12].copy_from_slice(&sum.to_le_bytes());
    let (seed, mut at) = (crc32c(&bytes[24..320]), 320);
    while let Some(head) = bytes.get(at..at + 32) {
        let end = at + 32 + half(head, 12) as usize;
        let Some(frame) = bytes.get(at..end) else { return };
        let sum = crc32c_append(seed, &frame[12..]);
        bytes[at + 8..at + 12].copy_from_slice(&sum.to_le_bytes());
        at = end;
    }
}

/// Returns a stream, and the number of its changes.
fn a_stream(input: &mut Input<'_>) -> (Vec<u8>, u64) {
    let mut point = |base: bool| Point {
        number: 1 + input.number(2),
        len: input.number(6) % (layout::MAX_LEN + 1),
        nanos: input.number(8),
        name: "snapshot".repeat(8)[..1 + input.byte() as usize % if base { 8 } else { 64 }].into(),
    };
    let (to, base) = (point(false), point(true));
    let header = Header {
        first_frame: input.number(1),
        uuid: *b"bytes that stay!",
        base: input.byte().is_multiple_of(2).then_some(base),
        base_sum: input.number(8),
        to,
    };
    let mut bytes = header.encode().to_vec();
    let (mut page, mut number, mut all, mut sums) = (0, 0, 0, 0);
    while !input.is_empty() && bytes.len() < 60_000 {
        let mut body = Body::default();
        for _ in 0..1 + input.byte() as usize % MOST_CHANGES {
            page += 1 + input.number(2);
            let slices = Slices(input.number(8) | 1 << (input.byte() % 64));
            let mut content = [0; PAGE];
            let start = input.number(1) as usize * 8;
            content[start..].copy_from_slice(&filling(page, PAGE - start));
            body.add(PageIndex(page), slices, &content);
        }
        let (count, body) = (body.count() as u64, body.take());
        let head = Frame::encode(header.seed(), number, count, &body);
        sums = append_frame(sums, Frame::sum_of(&head));
        (number, all) = (number + 1, all + count);
        bytes.extend(head);
        bytes.extend(body);
    }
    let end = End { sum: input.number(8), frames: sums };
    bytes.extend(Frame::encode_last(header.seed(), number, all, end));
    (bytes, all)
}
