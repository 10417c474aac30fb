//! The check after a kill: every acknowledged operation is in the file, and no operation is torn.

use crate::places::{
    BASE_LEN, COUNTER_AT, KINDS, RESIZED_AT, THREADS, TURNS, counted, len_after, named, newest,
    places, stamp,
};
use std::fmt;
use std::str::FromStr;

/// The number of the last operation of each thread.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Numbers {
    /// Last write of each writer.
    pub written: [u64; THREADS],
    /// Number of changes of the length.
    pub resized: u64,
    /// Number of files that were created, written and closed.
    pub made: u64,
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for n in self.written {
            write!(f, "{n},")?;
        }
        write!(f, "{},{}", self.resized, self.made)
    }
}

impl FromStr for Numbers {
    type Err = String;

    fn from_str(text: &str) -> Result<Numbers, String> {
        let wrong = |_| format!("{text:?} is no list of acknowledged numbers");
        let all: Result<Vec<u64>, _> = text.split(',').map(str::parse).collect();
        let all: [u64; THREADS + 2] = all.map_err(wrong)?.try_into().map_err(|all: Vec<u64>| {
            format!("{text:?}: {} numbers, and not {}", all.len(), THREADS + 2)
        })?;
        let [written @ .., resized, made] = all;
        Ok(Numbers { written, resized, made })
    }
}

/// The violations that the check found, in words.
#[derive(Default, Debug)]
pub struct Findings {
    pub torn: Vec<String>,
    pub lost: Vec<String>,
}

impl Findings {
    pub fn is_clean(&self) -> bool {
        self.torn.is_empty() && self.lost.is_empty()
    }
}

/// Reads a part of the file, through the crate or as plain bytes.
pub type ReadAt<'a, E> = &'a mut dyn FnMut(&mut [u8], u64) -> Result<(), E>;

/// Compares the file of length `len` with the states that are allowed. Returns the numbers found.
///
/// The check does not know how many operations a writer did after its last acknowledgement. But a
/// writer does its operations one after the other, and the file must contain all acknowledged ones.
/// So the highest number in the file determines every byte of the writer's places.
pub fn check<E>(
    read_at: ReadAt<'_, E>,
    len: u64,
    acknowledged: &Numbers,
    findings: &mut Findings,
) -> Result<Numbers, E> {
    let mut found = Numbers::default();
    if len < BASE_LEN {
        findings.lost.push(format!("the file is {len} bytes long, and never was below {BASE_LEN}"));
        return Ok(found);
    }
    for thread in 0..THREADS {
        found.written[thread] = check_writer(read_at, thread, findings)?;
    }
    let mut word = [0; 8];
    read_at(&mut word, COUNTER_AT)?;
    let count = u64::from_le_bytes(word);
    let expected: u64 = found.written.into_iter().map(counted).sum();
    if count != expected {
        findings.torn.push(format!("the counter is {count}, and {expected} operations count"));
    }
    found.resized = check_len(read_at, len, findings)?;
    let named = found.written.into_iter().zip(acknowledged.written).enumerate();
    for (thread, (found, acknowledged)) in named {
        if found < acknowledged {
            findings
                .lost
                .push(format!("writer {thread}: {acknowledged} was acknowledged, {found} found"));
        }
    }
    if found.resized < acknowledged.resized {
        findings.lost.push(format!(
            "change {} of the length was acknowledged, {} found",
            acknowledged.resized, found.resized
        ));
    }
    Ok(found)
}

/// Returns the number of the writer's last operation in the file.
fn check_writer<E>(
    read_at: ReadAt<'_, E>,
    thread: usize,
    findings: &mut Findings,
) -> Result<u64, E> {
    let cycle = KINDS * TURNS;
    let mut all = Vec::new();
    let mut last = 0;
    for nth in 0..cycle {
        for (number, place) in places(thread, nth).into_iter().enumerate() {
            let mut bytes = vec![0; place.len];
            read_at(&mut bytes, place.at)?;
            let n = named(&bytes);
            // A number of another turn is wrong here. The comparison below reports it.
            if n % cycle == nth {
                last = last.max(n);
            }
            all.push((nth, number, place, bytes));
        }
    }
    for (nth, number, place, bytes) in all {
        let n = newest(nth % KINDS, nth / KINDS, last);
        let expected = stamp(thread, n, number, place.len);
        if bytes == expected {
            continue;
        }
        let differs = |i: &usize| bytes[*i] != expected[*i];
        let first = (0..bytes.len()).find(differs).unwrap_or(0);
        findings.torn.push(format!(
            "writer {thread} has come to {last}, so place {number} of kind {} and turn {} ({} bytes \
             at {}) must be of {n}: it names {}, and {} bytes differ from byte {first} on",
            nth % KINDS,
            nth / KINDS,
            place.len,
            place.at,
            named(&bytes),
            (0..bytes.len()).filter(differs).count(),
        ));
    }
    Ok(last)
}

/// Returns the number of the last change of the length.
fn check_len<E>(read_at: ReadAt<'_, E>, len: u64, findings: &mut Findings) -> Result<u64, E> {
    let mut word = [0; 8];
    read_at(&mut word, RESIZED_AT)?;
    let noted = u64::from_le_bytes(word);
    let Some(resized) = [noted, noted + 1].into_iter().find(|n| len_after(*n) == len) else {
        findings.torn.push(format!("length {len} after change {noted} (to {})", len_after(noted)));
        return Ok(noted);
    };
    if len > BASE_LEN {
        // The thread writes the number of the change to the end of the file before it notes the
        // change. The other new bytes are zero.
        let mut grown = vec![0; (len - BASE_LEN) as usize];
        read_at(&mut grown, BASE_LEN)?;
        let (zeroes, end) = grown.split_at(grown.len() - 8);
        if let Some(at) = zeroes.iter().position(|byte| *byte != 0) {
            let at = BASE_LEN + at as u64;
            findings.torn.push(format!("byte {at} is new with change {resized}, and not zero"));
        }
        let at_end = named(end);
        if at_end != resized && (at_end != 0 || resized == noted) {
            findings
                .torn
                .push(format!("{at_end} at the end after change {resized} ({noted} noted)"));
        }
    }
    Ok(resized)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::Place;

    const LAST: [u64; THREADS] = [0, 7, 123, 998];

    /// Builds the bytes of a file after the operations `LAST`, by hand.
    fn bytes() -> Vec<u8> {
        let mut bytes = vec![0; BASE_LEN as usize];
        for (thread, last) in LAST.into_iter().enumerate() {
            for n in 1..=last {
                for (number, Place { at, len }) in places(thread, n).into_iter().enumerate() {
                    bytes[at as usize..][..len].copy_from_slice(&stamp(thread, n, number, len));
                }
            }
        }
        let count: u64 = LAST.into_iter().map(counted).sum();
        bytes[COUNTER_AT as usize..][..8].copy_from_slice(&count.to_le_bytes());
        bytes
    }

    fn findings(bytes: &[u8], acknowledged: Numbers) -> (Numbers, Findings) {
        let mut findings = Findings::default();
        let mut read_at = |to: &mut [u8], at: u64| {
            to.copy_from_slice(&bytes[at as usize..][..to.len()]);
            Ok::<_, ()>(())
        };
        let len = bytes.len() as u64;
        let found = check(&mut read_at, len, &acknowledged, &mut findings).expect("reads");
        (found, findings)
    }

    #[test]
    fn a_whole_file_is_clean_and_what_is_missing_is_found() {
        let bytes = bytes();
        let whole = Numbers { written: LAST, ..Numbers::default() };
        let (found, clean) = findings(&bytes, whole);
        assert_eq!(found, whole);
        assert!(clean.is_clean(), "{clean:?}");
        for thread in 0..THREADS {
            let mut more = whole;
            more.written[thread] += 1;
            assert_eq!(findings(&bytes, more).1.lost.len(), 1);
        }
        assert_eq!(findings(&bytes, Numbers { resized: 1, ..whole }).1.lost.len(), 1);
        assert_eq!(findings(&bytes[..100], whole).1.lost.len(), 1);
    }

    #[test]
    fn a_slice_of_an_older_operation_is_found_in_every_kind() {
        let mut bytes = bytes();
        for n in 998 - KINDS + 1..=998 {
            let all = places(3, n);
            let number = all.len() - 1;
            let Place { at, len } = all[number];
            let older = stamp(3, n - KINDS * TURNS, number, len);
            let slice = len / 2 / 64 * 64;
            let part = slice..len.min(slice + 64);
            let place = &mut bytes[at as usize..][part.clone()];
            let newer = place.to_vec();
            place.copy_from_slice(&older[part.clone()]);
            assert_eq!(findings(&bytes, Numbers::default()).1.torn.len(), 1, "{n}");
            bytes[at as usize..][part].copy_from_slice(&newer);
        }
        bytes[COUNTER_AT as usize] ^= 1;
        assert_eq!(findings(&bytes, Numbers::default()).1.torn.len(), 1);
    }

    #[test]
    fn lengths_and_what_was_grown_are_looked_at() {
        let mut bytes = bytes();
        let grow = |bytes: &mut Vec<u8>, n: u64| bytes.resize(len_after(n) as usize, 0);
        grow(&mut bytes, 1);
        let torn = |bytes: &[u8]| findings(bytes, Numbers::default()).1.torn.len();
        assert_eq!(torn(&bytes), 0, "not yet noted, not yet written");
        let end = bytes.len() - 8;
        bytes[end] = 1;
        assert_eq!(torn(&bytes), 0, "not yet noted");
        bytes[RESIZED_AT as usize] = 1;
        assert_eq!(torn(&bytes), 0, "noted");
        bytes[end] = 0;
        assert_eq!(torn(&bytes), 1, "noted and not written");
        bytes[end] = 1;
        bytes[BASE_LEN as usize + 5] = 1;
        assert_eq!(torn(&bytes), 1, "not zero");
        bytes.pop();
        assert!(torn(&bytes) > 0, "a length that there never was");
    }

    #[test]
    fn numbers_are_read_as_they_are_written() {
        let numbers = Numbers { written: [1, 2, 3, 4], resized: 5, made: 6 };
        assert_eq!(numbers.to_string().parse(), Ok(numbers));
        assert!("1,2".parse::<Numbers>().is_err());
        assert!("".parse::<Numbers>().is_err());
    }
}
