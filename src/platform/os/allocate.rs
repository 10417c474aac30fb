//! Allocation of storage by reads and writes, for file systems without a call for it.
//!
//! Owns: that fallback.
//!
//! Invariants:
//! - A block that reads as anything but zeros has storage and is left alone. One that reads as
//!   zeros may be a hole, and zeros are written to it.
//! - Hence no thread may store to the range meanwhile: a store between the read and the write would
//!   be lost. Callers allocate a range before its first use, which ensures this.
//! - After success the file reaches at least to the end of the range. Every block of the range has
//!   storage, as far as a file system without `fallocate` can promise that.
//!
//! May import: the calls of `calls`, and the planted bugs.

use super::File;
use crate::mutant::planted;
use crate::platform::{FileId, Platform};
use std::io;

/// The unit that is checked for zeros. No file system has smaller blocks: in a page with data some
/// blocks may be holes.
const PIECE: usize = 512;
const CHUNK: usize = 64 << 10;

/// Allocates the range by reads and writes, as the module's comment says.
pub fn by_writing(
    platform: &Platform,
    file: &File,
    id: FileId,
    offset: u64,
    len: u64,
) -> io::Result<()> {
    let end = offset.checked_add(len).ok_or(io::ErrorKind::InvalidInput)?;
    let file_len = platform.stat(file)?.len;
    let mut buffer = vec![0; CHUNK];
    let size = if planted!(BlocksNotLookedAt) { 4096 } else { PIECE };
    let mut at = offset;
    while at < end {
        // Chunks end at multiples of their size, so that pieces are aligned.
        let stop = (at - at % CHUNK as u64).saturating_add(CHUNK as u64).min(end);
        let chunk = &mut buffer[..(stop - at) as usize];
        if at < file_len {
            platform.read_at(file, id, chunk, at)?;
            // Consecutive zeros are written by one call.
            let (mut zeros, mut from) = (0, 0);
            while from < chunk.len() {
                let here = at + from as u64;
                let room = size - (here % size as u64) as usize;
                let piece = from..chunk.len().min(from + room);
                from = piece.end;
                if chunk[piece.clone()].iter().all(|byte| *byte == 0) {
                    continue;
                }
                if zeros < piece.start {
                    let row = &chunk[zeros..piece.start];
                    platform.write_at(file, id, row, at + zeros as u64)?;
                }
                // The file's last piece holds data: write only the bytes beyond the file's end.
                zeros = piece.end;
                if here + piece.len() as u64 > file_len {
                    zeros = piece.start + (file_len - here) as usize;
                }
            }
            if zeros < chunk.len() {
                platform.write_at(file, id, &chunk[zeros..], at + zeros as u64)?;
            }
        } else {
            chunk.fill(0);
            platform.write_at(file, id, chunk, at)?;
        }
        at = stop;
    }
    Ok(())
}
