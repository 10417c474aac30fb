//! Tests of the format of streams.

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
