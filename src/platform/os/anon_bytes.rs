//! Bytes that start as zero and take memory only where they are used.
//!
//! Owns: one anonymous mapping, private to this process, or a vector where that is short.
//!
//! May import: std and memmap2.

use memmap2::{MmapMut, MmapOptions};
use std::io;
use std::ops::{Deref, DerefMut};

/// Shorter ones are a vector: a mapping takes whole pages and a system call.
const SHORTEST: usize = 256 << 10;

/// A number of bytes.
#[derive(Debug)]
pub enum ZeroedBytes {
    Short(Vec<u8>),
    Mapped(MmapMut),
}

impl ZeroedBytes {
    /// Makes `len` bytes. A lack of memory or of addresses is an error, with the system's number
    /// where a mapping fails.
    pub fn new(len: u64) -> io::Result<Self> {
        let too_many = || io::Error::from(io::ErrorKind::OutOfMemory);
        let len = usize::try_from(len).map_err(|_| too_many())?;
        if len >= SHORTEST && !cfg!(miri) {
            // Not reserved: a system that counts memory would count what is never used.
            let map = MmapOptions::new().len(len).no_reserve_swap().map_anon();
            return map.map(ZeroedBytes::Mapped);
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len).map_err(|_| too_many())?;
        bytes.resize(len, 0);
        Ok(ZeroedBytes::Short(bytes))
    }
}

impl Default for ZeroedBytes {
    fn default() -> Self {
        ZeroedBytes::Short(Vec::new())
    }
}

impl Deref for ZeroedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            ZeroedBytes::Short(bytes) => bytes,
            ZeroedBytes::Mapped(bytes) => bytes,
        }
    }
}

impl DerefMut for ZeroedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            ZeroedBytes::Short(bytes) => bytes,
            ZeroedBytes::Mapped(bytes) => bytes,
        }
    }
}

#[cfg(all(test, unix, target_pointer_width = "64", not(miri), not(loom), not(shuttle)))]
mod tests {
    use super::*;

    /// A caller could not tell a limit of addresses from one of mappings.
    #[test]
    fn a_mapping_that_fails_has_the_number_of_the_system() {
        let error = ZeroedBytes::new(1 << 62).expect_err("more than there are addresses");
        assert_eq!(error.raw_os_error(), Some(libc::ENOMEM));
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
    }
}
