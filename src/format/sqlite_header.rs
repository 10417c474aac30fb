//! The mark in the header of a SQLite database in use.
//!
//! SQLite's header has no room for a byte mark. So three of its fields are changed: a connection of
//! another VFS then says that the file is no database, and stores nothing. The real values follow
//! from the mark, so that no companion has to hold them.
//!
//! | bytes | real | marked | for |
//! |---|---|---|---|
//! | 19 | 1, the version that is needed to read | 0xA1 | connections that come |
//! | 24 to 28 | the change counter | its complement | connections with a page cache |
//!
//! Byte 18 stays. With another value there, connections that have met it would not write any more
//! after the mark is gone. A database in WAL mode, which has 2 in byte 19, gets no mark.
//!
//! May import nothing.

/// Bytes from the beginning of the file that the functions need: a slice.
pub const HEAD: usize = 64;
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
const VERSION: usize = 19;
const PLAIN: u8 = 1;
const MARKED: u8 = 0xA0 | PLAIN;

/// Returns `true` if the header is that of a database in use.
pub fn is_marked(header: &[u8; HEAD]) -> bool {
    header.starts_with(MAGIC) && header[VERSION] == MARKED
}

/// Marks the header. Returns `false` if it is marked already, or of a file that gets no mark.
pub fn mark(header: &mut [u8; HEAD]) -> bool {
    change(header, PLAIN, MARKED)
}

/// Takes the mark off. Returns `false` if there is none.
pub fn unmark(header: &mut [u8; HEAD]) -> bool {
    change(header, MARKED, PLAIN)
}

fn change(header: &mut [u8; HEAD], from: u8, to: u8) -> bool {
    let is_from = header.starts_with(MAGIC) && header[VERSION] == from;
    if is_from {
        header[VERSION] = to;
        header[24..28].iter_mut().for_each(|byte| *byte = !*byte);
    }
    is_from
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_goes_as_it_came() {
        let mut header = [7; HEAD];
        header[..20].copy_from_slice(b"SQLite format 3\0\x10\0\x01\x01");
        let real = header;
        assert!(!unmark(&mut header) && mark(&mut header) && !mark(&mut header));
        assert!(is_marked(&header) && header[18] == 1 && header[24..28] == [!7; 4]);
        assert!(unmark(&mut header) && header == real);
        for (at, byte) in [(0, b's'), (15, 1), (19, 2), (19, 0)] {
            let mut other = real;
            other[at] = byte;
            assert!(!mark(&mut other) && !is_marked(&other), "{at}");
        }
    }
}
