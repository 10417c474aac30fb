//! How do bytes become choices? A reader that never fails: past the end everything is zero.
//!
//! Of our own and not `arbitrary`'s, because seeds are written by hand: what is read here must be
//! written elsewhere ([`super::patch`]), and `arbitrary` says nowhere how it reads.

/// The rest of an input.
#[derive(Clone, Debug)]
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        self.number(1) as u8
    }

    /// The next `bytes` as a little-endian number.
    pub fn number(&mut self, bytes: usize) -> u64 {
        let mut word = [0; 8];
        let taken = self.take(bytes);
        word[..taken.len()].copy_from_slice(taken);
        u64::from_le_bytes(word)
    }

    /// The next bytes: fewer, if there are no more.
    pub fn take(&mut self, bytes: usize) -> &'a [u8] {
        let (now, rest) = self.0.split_at(bytes.min(self.0.len()));
        self.0 = rest;
        now
    }

    /// One of a few, by the next byte.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::from(self.byte()) % from.len()]
    }
}

/// `len` bytes that follow from a number: what an input fills long ranges with. Never zero, so that
/// a slot that was lost is noticed.
pub fn filling(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&(state | 0x0101_0101_0101_0101).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}
