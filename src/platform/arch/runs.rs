//! Runs of neighbouring lines on one side, for code that copies lines in runs.
//!
//! May import: std only.

use std::ops::Range;

/// Returns the first `lines` lines (at most 64) as runs of neighbours on one side, in ascending
/// order: the side, 0 or 1, and the range of lines. The side of line `n` is bit `n` of `sides`.
pub fn runs(sides: u64, lines: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
    debug_assert!(lines <= 64);
    let mut start = 0;
    std::iter::from_fn(move || {
        if start >= lines {
            return None;
        }
        let rest = sides >> start;
        let side = rest & 1;
        let len = if side == 1 { rest.trailing_ones() } else { rest.trailing_zeros() };
        let run = start..(start + len as usize).min(lines);
        start = run.end;
        Some((side as usize, run))
    })
}

/// Returns the sizes of the steps in which a run of `len` bytes is copied: all at once, or half and
/// half under a scheduler.
pub fn steps(len: usize) -> impl Iterator<Item = usize> {
    let first = if cfg!(shuttle) { len / 2 } else { 0 };
    [first, len - first].into_iter().filter(|step| *step > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_all_lines_in_order_and_as_long_as_can_be() {
        for sides in [0, !0, 1, 1 << 63, 0xAAAA_5555_F00F_1234, !1, !0 >> 1, 0b0110] {
            for lines in [0, 1, 2, 3, 5, 63, 64] {
                let mut before = None;
                let mut at = 0;
                for (side, run) in runs(sides, lines) {
                    assert!(run.start == at && !run.is_empty() && before != Some(side));
                    assert!(run.clone().all(|n| (sides >> n & 1) as usize == side));
                    (at, before) = (run.end, Some(side));
                }
                assert_eq!(at, lines);
            }
        }
    }
}
