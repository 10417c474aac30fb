//! The mark in the header of a database that has companions.
//!
//! The file has the marked header from the opening until a spatial close, so that stock SQLite
//! refuses it also after a crash. SQLite itself reads the real one here, and what it writes gets
//! the mark. May import `failure`.

use crate::failure::{Code, Failure, Result};
use atomic_mmap::AtomicMappedFile;
use atomic_mmap::sqlite_header::{HEAD, is_marked, mark, unmark};
use std::borrow::Cow;

/// The end of the bytes that a mark changes.
const END: u64 = 28;

/// Returns the bytes that are stored for the `bytes` that SQLite writes at `offset`.
pub(crate) fn stored(bytes: &[u8], offset: u64) -> Cow<'_, [u8]> {
    // SQLite writes whole pages, and those have at least 512 bytes.
    match bytes.first_chunk::<HEAD>().filter(|_| offset == 0) {
        Some(header) => {
            let mut marked = *header;
            if !mark(&mut marked) {
                return Cow::Borrowed(bytes);
            }
            let mut page = bytes.to_vec();
            page[..HEAD].copy_from_slice(&marked);
            Cow::Owned(page)
        }
        None => Cow::Borrowed(bytes),
    }
}

/// Shows the real header in bytes that were read at `offset`. `read` reads others of that state.
pub(crate) fn show(
    to: &mut [u8],
    offset: u64,
    read: impl FnOnce(&mut [u8; HEAD]) -> Result<()>,
) -> Result<()> {
    if offset >= END {
        return Ok(());
    }
    let mut header = [0; HEAD];
    match to.first_chunk::<HEAD>().filter(|_| offset == 0) {
        Some(whole) => header = *whole,
        None => read(&mut header)?,
    }
    if unmark(&mut header) {
        let start = offset as usize;
        let count = to.len().min(HEAD - start);
        to[..count].copy_from_slice(&header[start..start + count]);
    }
    Ok(())
}

/// Marks the header of a database that was opened with companions of an earlier session, unless it
/// is marked.
pub(crate) fn mark_if_plain(file: &AtomicMappedFile) -> Result<()> {
    let io = |error| Failure::of(&error, Code::IOERR_WRITE);
    let mut header = [0; HEAD];
    if file.len() < HEAD as u64 {
        return Ok(());
    }
    file.read_at(&mut header, 0).map_err(io)?;
    if is_marked(&header) || !mark(&mut header) {
        return Ok(());
    }
    file.write_at(&header, 0).map_err(io)?;
    file.sync().map_err(io)?;
    // Stock SQLite looks at the file, not at its companions.
    file.deploy(0..HEAD as u64).map(drop).map_err(io)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_page_comes_back() {
        let mut page: Vec<u8> = (0..200).collect();
        page[..20].copy_from_slice(b"SQLite format 3\0\x10\0\x01\x01");
        let stored = stored(&page, 0);
        assert!(stored[..] != page[..] && stored[28..] == page[28..]);
        for start in 0..100 {
            for end in start + 1..=200 {
                let mut part = stored[start..end].to_vec();
                let rest = |to: &mut [u8; HEAD]| {
                    to.copy_from_slice(&stored[..HEAD]);
                    Ok(())
                };
                show(&mut part, start as u64, rest).expect("read");
                assert!(part == page[start..end], "{start}..{end}");
            }
        }
    }
}
