//! The floor of the journal: the lowest number that its newest record may have.
//!
//! A journal that was copied earlier in the session is complete and has the right header; it only
//! ends too early. The floor lies in the reflection file and reveals this. Two places hold it and
//! are written in turn: a torn write leaves the previous floor, which is lower. A third place has
//! the bytes of a floor for the newest record, and is written without waiting.
//!
//! This module is pure. Nothing here panics, whatever the bytes.
//!
//! May import: `checksum` and the planted bugs.

use super::word_at;
use crate::checksum;
use crate::mutant::planted;

/// Bytes of a floor.
pub const FLOOR_LEN: usize = 24;
const SUM: std::ops::Range<usize> = 16..20;

/// A floor: states that a record of this number, or a later one, was durable in the session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Floor {
    /// The session to which the records belong.
    pub session: u64,
    /// The number of a record that was durable when the floor was written.
    pub number: u64,
}

impl Floor {
    /// Returns the bytes, for the reflection file of this pair.
    pub fn encode(&self, uuid: &[u8; 16]) -> [u8; FLOOR_LEN] {
        let mut bytes = [0; FLOOR_LEN];
        bytes[..8].copy_from_slice(&self.session.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        let sum = checksum::crc32c_append(checksum::crc32c(uuid), &bytes[..SUM.start]);
        bytes[SUM].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Decodes a floor. Returns `None` if there is none, or if it is torn or of another pair.
    pub fn decode(uuid: &[u8; 16], bytes: &[u8; FLOOR_LEN]) -> Option<Floor> {
        let floor = Floor { session: word_at(bytes, 0), number: word_at(bytes, 8) };
        (floor.encode(uuid) == *bytes).then_some(floor)
    }

    /// Returns `true` if a place holds a floor of this pair, or was never written.
    pub fn is_whole(uuid: &[u8; 16], bytes: &[u8; FLOOR_LEN]) -> bool {
        *bytes == [0; FLOOR_LEN] || Floor::decode(uuid, bytes).is_some()
    }

    /// Returns the floor of a session that places give together. It is 0 if none of them is about
    /// the session.
    pub fn of_session(uuid: &[u8; 16], session: u64, places: &[[u8; FLOOR_LEN]]) -> u64 {
        let floors = places.iter().filter_map(|bytes| Floor::decode(uuid, bytes));
        let is_of = |floor: &Floor| floor.session == session || planted!(FloorOfAnySession);
        floors.filter(is_of).map(|floor| floor.number).max().unwrap_or(0)
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;

    const UUID: &[u8; 16] = b"0123456789abcdef";

    #[test]
    fn what_was_encoded_is_decoded_and_a_torn_one_is_none() {
        let (old, new) =
            (Floor { session: 3, number: 0xFF }, Floor { session: 3, number: 0x0102_0304 });
        let (was, is) = (old.encode(UUID), new.encode(UUID));
        assert_eq!(Floor::decode(UUID, &is), Some(new));
        assert_eq!(Floor::decode(b"another's UUID!!", &is), None);
        // Each byte of a block that is being written is old or new.
        let changed: Vec<usize> = (0..FLOOR_LEN).filter(|n| was[*n] != is[*n]).collect();
        for mixture in 1..(1_u32 << changed.len()) - 1 {
            let mut torn = was;
            for (bit, at) in changed.iter().enumerate() {
                if mixture >> bit & 1 == 1 {
                    torn[*at] = is[*at];
                }
            }
            assert_eq!(Floor::decode(UUID, &torn), None, "{mixture:b}");
        }
    }

    #[test]
    fn the_higher_floor_of_the_session_counts_and_none_says_nothing() {
        let of = |session, number| Floor { session, number }.encode(UUID);
        let said = |a, b| Floor::of_session(UUID, 3, &[a, b]);
        assert_eq!(said(of(3, 7), of(3, 9)), 9);
        assert_eq!(said(of(3, 7), of(2, 99)), 7);
        assert_eq!(said(of(4, 7), [0; FLOOR_LEN]), 0);
        assert_eq!(said([0xFF; FLOOR_LEN], of(3, 1)), 1);
    }
}
