//! Rows of a record store: it keeps the file as rows of 4 KiB, numbered from 0. A missing row is
//! all zero.

use std::ops::Range;

/// Bytes of a row.
pub const BLOCK: usize = 4096;

/// The part of a range that lies in one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Number of the row.
    pub block: u64,
    /// Range within the row.
    pub inside: Range<usize>,
    /// Range in the caller's bytes.
    pub data: Range<usize>,
}

impl Part {
    /// Returns `true` if the range covers the row, so that its old bytes are not needed.
    pub fn is_whole(&self) -> bool {
        self.inside.len() == BLOCK
    }
}

/// Returns the parts of a range, in order.
pub fn parts(offset: u64, len: usize) -> impl Iterator<Item = Part> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset + done as u64;
        let start = (at % BLOCK as u64) as usize;
        let take = (BLOCK - start).min(len - done);
        let part =
            Part { block: at / BLOCK as u64, inside: start..start + take, data: done..done + take };
        done += take;
        Some(part)
    })
}

/// Fills `to` from rows. `get` looks up a row and passes it to its callback.
pub fn gather(to: &mut [u8], offset: u64, mut get: impl FnMut(u64, &mut dyn FnMut(Option<&[u8]>))) {
    for part in parts(offset, to.len()) {
        let piece = &mut to[part.data.clone()];
        get(part.block, &mut |row| match row {
            Some(row) => piece.copy_from_slice(&row[part.inside.clone()]),
            None => piece.fill(0),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_at_rows() {
        let cut: Vec<Part> = parts(4000, 5000).collect();
        let part = |block, inside, data| Part { block, inside, data };
        assert_eq!(
            cut,
            [part(0, 4000..4096, 0..96), part(1, 0..4096, 96..4192), part(2, 0..808, 4192..5000)]
        );
        assert!(cut[1].is_whole());
        assert_eq!(parts(7, 0).count(), 0);
    }
}
