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
//! May import: the calls of `os.rs`.

use super::{File, FileId, Platform};
use std::io;

/// Smallest piece that is looked at on its own. A file system with smaller blocks is served too, since
/// the whole piece is written.
const PIECE: usize = 4096;
const CHUNK: usize = 16 * PIECE;

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
    let mut at = offset;
    while at < end {
        // Chunks end at multiples of their size, so that pieces are aligned ones.
        let stop = (at - at % CHUNK as u64).saturating_add(CHUNK as u64).min(end);
        let chunk = &mut buffer[..(stop - at) as usize];
        if at < file_len {
            platform.read_at(file, id, chunk, at)?;
            let mut from = 0;
            while from < chunk.len() {
                let here = at + from as u64;
                let room = PIECE - (here % PIECE as u64) as usize;
                let piece = from..chunk.len().min(from + room);
                if chunk[piece.clone()].iter().all(|byte| *byte == 0) {
                    platform.write_at(file, id, &chunk[piece.clone()], here)?;
                } else if here + piece.len() as u64 > file_len {
                    // The file's last piece holds data: write only what lies beyond its end.
                    let known = (file_len - here) as usize;
                    platform.write_at(file, id, &chunk[from + known..piece.end], file_len)?;
                }
                from = piece.end;
            }
        } else {
            chunk.fill(0);
            platform.write_at(file, id, chunk, at)?;
        }
        at = stop;
    }
    Ok(())
}
