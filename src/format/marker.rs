//! What does the home file's extended attribute say? That a reflection file belongs to it.
//!
//! The attribute names the pair and the inode that it was written for: a copy that took the
//! attribute along (`cp -a`) is another inode, and is known for a copy by that.

use super::superblock::{Identity, Moment};

/// Name of the attribute.
pub const NAME: &str = "user.atomic_mmap";

const LEN: usize = 16 + 8 + 8 + 4 + 4;

/// The attribute's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marker {
    /// The pair.
    pub uuid: [u8; 16],
    /// Inode number of the home file.
    pub inode: u64,
    /// Birth time of the home file, where known.
    pub born: Option<Moment>,
}

impl Marker {
    /// The mark of the pair `uuid` on the file `identity`.
    pub fn new(uuid: [u8; 16], identity: &Identity) -> Self {
        Marker { uuid, inode: identity.inode, born: identity.born }
    }

    /// Whether the mark was made on this file, and not on one that it was copied from.
    pub fn is_of(&self, identity: &Identity) -> bool {
        self.inode == identity.inode && same_birth(self.born, identity.born)
    }

    /// The attribute's bytes.
    pub fn encode(&self) -> [u8; LEN] {
        let born = self.born.unwrap_or_default();
        let mut bytes = [0; LEN];
        bytes[..16].copy_from_slice(&self.uuid);
        bytes[16..24].copy_from_slice(&self.inode.to_le_bytes());
        bytes[24..32].copy_from_slice(&born.seconds.to_le_bytes());
        bytes[32..36].copy_from_slice(&born.nanos.to_le_bytes());
        bytes[36..].copy_from_slice(&u32::from(self.born.is_some()).to_le_bytes());
        bytes
    }

    /// `None`: not an attribute that this crate has written.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; LEN] = bytes.try_into().ok()?;
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let small = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let born = Moment { seconds: number(24) as i64, nanos: small(32) };
        Some(Marker {
            uuid: std::array::from_fn(|i| bytes[i]),
            inode: number(16),
            born: (small(36) != 0).then_some(born),
        })
    }
}

/// Birth times that are known differ only for different files.
pub fn same_birth(a: Option<Moment>, b: Option<Moment>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a == b,
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
            assert!(mark.is_of(&identity));
            assert!(!mark.is_of(&Identity { inode: 3, ..identity }));
        }
        assert_eq!(Marker::decode(b"something else"), None);
    }
}
