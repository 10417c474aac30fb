//! What does the home file's extended attribute say? That a reflection file belongs to it.
//!
//! The attribute names the pair and the inode that it was written for: a copy that took the
//! attribute along (`cp -a`) is another inode, and is known for a copy by that.

use super::superblock::{Identity, Moment};

/// Name of the attribute.
pub const NAME: &str = "user.atomic_mmap";

const LEN: usize = 16 + FILE_LEN;
/// Bytes that name an inode and its birth.
const FILE_LEN: usize = 8 + 8 + 4 + 4;

/// The attribute's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marker {
    /// The pair.
    pub uuid: [u8; 16],
    /// Inode number of the home file.
    pub inode: u64,
    /// Birth time of the home file, where known.
    pub born: Option<Moment>,
    /// The inode that the companions are named after, of a pair that was restored: inode number and birth.
    pub named_after: Option<(u64, Option<Moment>)>,
}

impl Marker {
    /// The mark of the pair `uuid` on the file `identity`.
    pub fn new(uuid: [u8; 16], identity: &Identity) -> Self {
        Marker { uuid, inode: identity.inode, born: identity.born, named_after: None }
    }

    /// The inode that the companions are named after.
    pub fn key(&self) -> Identity {
        let (inode, born) = self.named_after.unwrap_or((self.inode, self.born));
        Identity { device: 0, inode, born }
    }

    /// Whether the mark was made on this file, and not on one that it was copied from.
    pub fn is_of(&self, identity: &Identity) -> bool {
        self.inode == identity.inode && same_birth(self.born, identity.born)
    }

    /// The attribute's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.uuid.to_vec();
        let files = [Some((self.inode, self.born)), self.named_after];
        for (inode, born) in files.into_iter().flatten() {
            let moment = born.unwrap_or_default();
            bytes.extend(inode.to_le_bytes());
            bytes.extend(moment.seconds.to_le_bytes());
            bytes.extend(moment.nanos.to_le_bytes());
            bytes.extend(u32::from(born.is_some()).to_le_bytes());
        }
        bytes
    }

    /// `None`: not an attribute that this crate has written.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if ![LEN, LEN + FILE_LEN].contains(&bytes.len()) {
            return None;
        }
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let small = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let file = |at: usize| {
            let born = Moment { seconds: number(at + 8) as i64, nanos: small(at + 16) };
            (number(at), (small(at + 20) != 0).then_some(born))
        };
        let (inode, born) = file(16);
        let named_after = (bytes.len() > LEN).then(|| file(LEN));
        Some(Marker { uuid: std::array::from_fn(|i| bytes[i]), inode, born, named_after })
    }
}

/// Nanoseconds of a birth that is no time but an inode's generation.
const NO_TIME: u32 = u32::MAX;

/// Births that are known, and of one kind, differ only for different files.
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
            assert_eq!(Marker::decode(&mark.encode()), Some(mark));
            let restored = Marker { named_after: Some((9, born)), ..mark };
            assert_eq!(Marker::decode(&restored.encode()), Some(restored));
            assert_eq!((mark.key().inode, restored.key().inode), (2, 9));
            assert!(mark.is_of(&identity));
            assert!(!mark.is_of(&Identity { inode: 3, ..identity }));
        }
        assert_eq!(Marker::decode(b"something else"), None);
    }
}
