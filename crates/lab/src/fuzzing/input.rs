//! A reader of fuzz inputs that never fails: past the end, everything is zero.
//!
//! The lab does not use `arbitrary`, because seeds are written by code ([`super::patch`]), which
//! must know the format. `arbitrary` does not document how it reads.

/// The rest of an input.
#[derive(Clone, Debug)]
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// Returns `true` if nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the next byte.
    pub fn byte(&mut self) -> u8 {
        self.number(1) as u8
    }

    /// Returns the next `bytes` bytes as a little-endian number.
    pub fn number(&mut self, bytes: usize) -> u64 {
        let mut word = [0; 8];
        let taken = self.take(bytes);
        word[..taken.len()].copy_from_slice(taken);
        u64::from_le_bytes(word)
    }

    /// Returns the next bytes, or fewer at the end.
    pub fn take(&mut self, bytes: usize) -> &'a [u8] {
        let (now, rest) = self.0.split_at(bytes.min(self.0.len()));
        self.0 = rest;
        now
    }

    /// Returns a value for a word that has this one: an end of its range, a limit of the format, a
    /// neighbour, or any number.
    pub fn edge(&mut self, word: u64) -> u64 {
        let limit = 1_u64 << self.pick(&[29, 32, 41, 42, 48, 60, 63]);
        match self.byte() % 12 {
            0 => 0,
            1 => 1,
            2 => u64::MAX,
            3 => word.wrapping_add(1),
            4 => word.wrapping_sub(1),
            5 => word ^ 1 << (self.byte() % 64),
            6 => limit,
            7 => limit - 1,
            8 => limit + 1,
            9 => word.wrapping_add(4096),
            10 => self.number(2),
            _ => self.number(8),
        }
    }

    /// Selects one of the values by the next byte.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::from(self.byte()) % from.len()]
    }
}

/// Returns `len` bytes that follow from a seed, for long ranges. They are never zero, so that a
/// lost slot shows.
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
