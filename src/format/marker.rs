//! The mark: the home file's extended attribute, which says that a reflection file belongs to it.
//!
//! The attribute names the pair and the inode that it was written for. A copy that took the
//! attribute along (`cp -a`) has another inode, which shows that it is a copy.
//!
//! May import: `superblock` only.

use super::superblock::{Identity, Moment, SESSIONS};
use super::{half_at, word_at};

/// The name of the attribute.
pub const NAME: &str = "user.atomic_mmap";
/// The name of the attribute that lists discarded pairs, by their uuids of 16 bytes. The user has
/// discarded these pairs for this file, while their reflection files stayed.
pub const DISCARDED: &str = "user.atomic_mmap.discarded";

/// Bytes of an inode's number and birth.
const FILE_LEN: usize = 8 + 8 + 4 + 4;
const LEN: usize = 16 + FILE_LEN;
/// Flags after a birth: it is known; a spatial close is about to remove the companions.
const BORN: u32 = 1;
const CLOSING: u32 = 2;
/// Bytes with the key of the companions' names, and the sessions.
const LONG_LEN: usize = LEN + FILE_LEN + 8 + 16;

/// The attribute's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marker {
    /// The pair.
    pub uuid: [u8; 16],
    /// Inode number of the home file.
    pub inode: u64,
    /// Birth time of the home file, where known.
    pub born: Option<Moment>,
    /// The key of the companions' names, unless they have one of the first two names of this inode.
    pub named: Option<Key>,
    /// The session that the mark was written for, if the companions lie on another volume.
    pub sessions: Option<Sessions>,
    /// `true` if a spatial close was about to remove the companions. The home file is complete once
    /// one of them is gone.
    pub is_closing: bool,
}

/// The key from which the names of companions are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key {
    /// Inode number of a home file.
    pub inode: u64,
    /// Its birth time, where known.
    pub born: Option<Moment>,
    /// The index among the inode's names: 0 and 1 are the first two.
    pub index: u32,
}

/// The session that was about to begin when a mark was written, and the session before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sessions {
    /// The session of the superblock that was found.
    pub before: u64,
    /// The session of the superblock that is written next.
    pub begun: u64,
}

impl Sessions {
    /// Returns `true` if a superblock of this session may belong to the mark. It may be that of the
    /// opening, before or after its superblock was written, or that of the close.
    ///
    /// An opening may end a dead session before its own begins, and a discard empties a closed
    /// pair: neither leaves one that is in use.
    pub fn fit(&self, session: u64, is_in_use: bool) -> bool {
        let since = session.checked_sub(self.begun);
        session == self.before || matches!(since, Some(0 | 1)) || !is_in_use && since == Some(2)
    }
}

impl Marker {
    /// Creates the mark of the pair `uuid` on the file `identity`.
    pub fn new(uuid: [u8; 16], identity: &Identity) -> Self {
        let Identity { inode, born, .. } = *identity;
        Marker { uuid, inode, born, named: None, sessions: None, is_closing: false }
    }

    /// Returns the key of the companions' names.
    pub fn key(&self) -> Key {
        self.named.unwrap_or(Key { inode: self.inode, born: self.born, index: 0 })
    }

    /// Returns `true` if the mark was made on this file, and not on one that it was copied from.
    pub fn is_of(&self, identity: &Identity) -> bool {
        self.inode == identity.inode && same_birth(self.born, identity.born)
    }

    /// Returns the attribute's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.uuid.to_vec();
        let mut push = |inode: u64, born: Option<Moment>, closing: u32| {
            let moment = born.unwrap_or_default();
            bytes.extend(inode.to_le_bytes());
            bytes.extend(moment.seconds.to_le_bytes());
            bytes.extend(moment.nanos.to_le_bytes());
            bytes.extend((u32::from(born.is_some()) | closing).to_le_bytes());
        };
        push(self.inode, self.born, if self.is_closing { CLOSING } else { 0 });
        if self.named.is_none() && self.sessions.is_none() {
            return bytes;
        }
        // No file has inode 0.
        let Key { inode, born, index } =
            self.named.unwrap_or(Key { inode: 0, born: None, index: 0 });
        push(inode, born, 0);
        bytes.extend(index.to_le_bytes());
        bytes.extend(u32::from(self.sessions.is_some()).to_le_bytes());
        let Sessions { before, begun } = self.sessions.unwrap_or(Sessions { before: 0, begun: 0 });
        bytes.extend(before.to_le_bytes());
        bytes.extend(begun.to_le_bytes());
        bytes
    }

    /// Decodes an attribute, or returns `None` if this crate did not write it.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if ![LEN, LONG_LEN].contains(&bytes.len()) {
            return None;
        }
        let file = |at: usize| {
            let bytes = &bytes[at..];
            let (seconds, nanos) = (word_at(bytes, 8) as i64, half_at(bytes, 16));
            let born = Moment { seconds, nanos };
            (word_at(bytes, 0), (half_at(bytes, 20) & BORN != 0).then_some(born))
        };
        let (inode, born) = file(16);
        let mut marker = Marker {
            uuid: std::array::from_fn(|i| bytes[i]),
            inode,
            born,
            named: None,
            sessions: None,
            is_closing: half_at(bytes, LEN - 4) & CLOSING != 0,
        };
        if bytes.len() == LONG_LEN {
            let (inode, born) = file(LEN);
            let rest = &bytes[LEN + FILE_LEN..];
            marker.named = (inode != 0).then_some(Key { inode, born, index: half_at(rest, 0) });
            let sessions = Sessions { before: word_at(rest, 8), begun: word_at(rest, 16) };
            marker.sessions = (half_at(rest, 4) != 0).then_some(sessions);
            // No pair reaches these numbers: not written by this crate.
            if [sessions.before, sessions.begun].iter().any(|number| *number >= SESSIONS) {
                return None;
            }
        }
        Some(marker)
    }
}

/// The nanoseconds of a birth that is an inode's generation and not a time.
const NO_TIME: u32 = u32::MAX;

/// Returns `true` if both births may be of one file. Known births of one kind differ only for
/// different files.
pub fn same_birth(a: Option<Moment>, b: Option<Moment>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) if (a.nanos == NO_TIME) == (b.nanos == NO_TIME) => a == b,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_comes_back_and_knows_its_file() {
        for born in [None, Some(Moment { seconds: -5, nanos: 6 })] {
            let identity = Identity { device: 1, inode: 2, born };
            let mark = Marker::new([7; 16], &identity);
            let named = Some(Key { inode: 9, born, index: 3 });
            let sessions = Some(Sessions { before: 4, begun: 7 });
            let is_closing = true;
            for mark in [
                mark,
                Marker { is_closing, ..mark },
                Marker { named, ..mark },
                Marker { sessions, is_closing, ..mark },
                Marker { named, sessions, ..mark },
            ] {
                assert_eq!(Marker::decode(&mark.encode()), Some(mark));
            }
            assert_eq!((mark.key().inode, Marker { named, ..mark }.key().inode), (2, 9));
            assert!(mark.is_of(&identity));
            assert!(!mark.is_of(&Identity { inode: 3, ..identity }));
        }
        assert_eq!(Marker::decode(b"something else"), None);
    }

    #[test]
    fn a_mark_fits_the_sessions_that_may_lie_beside_it() {
        let sessions = Sessions { before: 4, begun: 7 };
        let fit = |is_in_use| -> Vec<u64> {
            (0..12).filter(|session| sessions.fit(*session, is_in_use)).collect()
        };
        assert_eq!((fit(true), fit(false)), (vec![4, 7, 8], vec![4, 7, 8, 9]));
    }
}
