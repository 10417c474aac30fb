//! Self-certifying slices: what a writer puts into each 64-byte slice.
//!
//! Owns: the format of a slice. A slice names its file, its place, and the operation that wrote it,
//! with the full extent of that operation. It ends in a checksum. So the lab detects a slice that
//! was torn, that came from elsewhere, or that mixes two operations. It need not know the expected
//! bytes for that.
//!
//! ```text
//!  0  file      u32   4  place (slice of the file)  u32
//!  8  operation u64   the writer in the top byte, its number below
//! 16  first     u32   20  count  u32   24  index u32  the operation's first slice, how many slices
//!                                                     it wrote, and which of them this is
//! 28  filler    28 bytes, made from all of the above
//! 56  checksum  u32   60  file again u32
//! ```
//! Bytes 0 to 7 and 60 to 63 never change, so an operation may leave them out. That makes ranges
//! that begin and end inside a slice.
//!
//! May import: nothing.

/// Bytes in a slice.
pub const SLICE: usize = 64;

/// The decoded content of a slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slice {
    /// Number of the file.
    pub file: u32,
    /// Number of the slice in the file.
    pub place: u32,
    /// The operation that wrote it, with its writer.
    pub operation: u64,
    /// First slice of the operation.
    pub first: u32,
    /// Number of slices that the operation wrote.
    pub count: u32,
    /// Index of this slice among them.
    pub index: u32,
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut sum = 0x9e37_79b9_7f4a_7c15;
    for word in bytes.chunks_exact(8) {
        let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
        // Each step is invertible, so two slices that differ in one word never agree in all 64
        // bits. The fold to 32 bits leaves a chance of one in four billion.
        sum = mix(sum ^ word).rotate_left(23);
    }
    (sum ^ (sum >> 32)) as u32
}

impl Slice {
    /// Encodes the slice as bytes.
    pub fn encode(&self) -> [u8; SLICE] {
        let mut bytes = [0; SLICE];
        let fields = [self.first, self.count, self.index];
        bytes[0..4].copy_from_slice(&self.file.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.place.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.operation.to_le_bytes());
        for (to, field) in bytes[16..28].chunks_exact_mut(4).zip(fields) {
            to.copy_from_slice(&field.to_le_bytes());
        }
        let filler = mix(self.operation ^ u64::from(self.place) << 32 ^ u64::from(self.index));
        for (n, to) in bytes[28..56].chunks_exact_mut(4).enumerate() {
            to.copy_from_slice(&(filler.rotate_left(9 * n as u32) as u32).to_le_bytes());
        }
        let sum = checksum(&bytes[..56]);
        bytes[56..60].copy_from_slice(&sum.to_le_bytes());
        bytes[60..].copy_from_slice(&self.file.to_le_bytes());
        bytes
    }

    /// Decodes the bytes at slice `place` of file `file`. The error says what is wrong with them.
    pub fn decode(bytes: &[u8], file: u32, place: u32) -> Result<Slice, String> {
        let field = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
        let operation = u64::from_le_bytes(bytes[8..16].try_into().expect("eight"));
        let slice = Slice {
            file: field(0),
            place: field(4),
            operation,
            first: field(16),
            count: field(20),
            index: field(24),
        };
        if (slice.file, slice.place, field(60)) != (file, place, file) {
            return Err(format!("slice {place}: holds what belongs elsewhere: {slice:?}"));
        }
        if checksum(&bytes[..56]) != field(56) {
            return Err(format!("slice {place}: torn: {}", name(operation)));
        }
        Ok(slice)
    }
}

/// Returns the name of an operation in messages.
pub fn name(operation: u64) -> String {
    format!("operation {} of writer {}", operation & ((1 << 56) - 1), operation >> 56)
}

/// Returns the number that stands for operation `n` of a writer.
pub fn operation(writer: usize, n: u64) -> u64 {
    (writer as u64) << 56 | n
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_changed_byte_and_every_mixture_is_seen() {
        let place =
            |n, op| Slice { file: 7, place: n, operation: op, first: 1, count: 3, index: 2 };
        let old = place(9, operation(1, 5));
        let new = place(9, operation(1, 6));
        assert_eq!(Slice::decode(&old.encode(), 7, 9), Ok(old));
        assert!(Slice::decode(&old.encode(), 7, 8).is_err());
        assert!(Slice::decode(&old.encode(), 8, 9).is_err());
        assert!(Slice::decode(&[0; SLICE], 7, 9).is_err());
        for at in 0..SLICE {
            for bit in 0..8 {
                let mut bytes = old.encode();
                bytes[at] ^= 1 << bit;
                assert!(Slice::decode(&bytes, 7, 9).is_err(), "byte {at}, bit {bit}");
            }
            // The first bytes new and the rest old, and the reverse.
            for (a, b) in [(old, new), (new, old)] {
                let mut bytes = a.encode();
                bytes[..at].copy_from_slice(&b.encode()[..at]);
                let is_one = bytes == a.encode() || bytes == b.encode();
                assert_eq!(Slice::decode(&bytes, 7, 9).is_ok(), is_one, "up to byte {at}");
            }
        }
    }
}
