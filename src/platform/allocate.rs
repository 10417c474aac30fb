//! How is storage reserved where the file system has no call for it?
//!
//! Owns: the way by reads and writes.
//!
//! Invariants:
//! - A block that reads as anything but zeros has storage and is left alone; one that reads as zeros may
//!   be a hole, and zeros are written to it.
//! - Hence nobody may store to the range meanwhile: a store between the read and the write would be
//!   lost. Callers allocate a range before its first use, so nobody does.
//! - After success every block of the range has storage, as far as a file system without `fallocate`
//!   can promise that at all, and the file reaches at least to the end of the range.
//!
//! May import: the calls of `os.rs`, and the planted bugs.

use super::{File, FileId, Platform};
use crate::mutant::planted;
use std::io;

/// What is looked at on its own. No file system has smaller blocks: of a page with data some blocks may
/// be holes.
const PIECE: usize = 512;
const CHUNK: usize = 64 << 10;

/// See the module's comment.
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
        // Chunks end at multiples of their size, so that pieces are aligned ones.
        let stop = (at - at % CHUNK as u64).saturating_add(CHUNK as u64).min(end);
        let chunk = &mut buffer[..(stop - at) as usize];
        if at < file_len {
            platform.read_at(file, id, chunk, at)?;
            // Zeros in a row go out in one write.
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
                // Of the file's last piece, which holds data, only what lies beyond its end.
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
