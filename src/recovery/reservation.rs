//! Chooses how much address space a file reserves by default.
//!
//! A mapping never moves, so a file grows only as far as addresses were reserved at open. A single
//! file is best served by a large reservation, while thousands of files in a process need small
//! ones. The default is a share of the address space that the process has left. So both cases work,
//! and later mappings of the process find room.
//!
//! | largest free piece of address space | default `max_len` |
//! |---|---|
//! | 64 TiB or more | 64 GiB |
//! | 16 TiB or more | 8 GiB |
//! | 32 GiB or more | 1 GiB |
//! | less (`ulimit -v`, small processors) | a 32nd of it |
//!
//! The default is raised to twice the file's length, or to that of its longest snapshot, to which
//! it may go back. An eighth of the piece limits that. The default is never less than the length.
//! The search for the largest piece tries powers of two. On x86-64, with 128 TiB, more than ten
//! thousand files can be open.
//!
//! The rule is pure: the caller says what is free.

use super::HUGE_PAGE;
use crate::config::options::Options;
use crate::error::{Error, Result};
use crate::format::layout::MAX_LEN;
use crate::mutant::planted;
use std::path::Path;

/// The largest piece that the search tries, in bytes.
const LARGEST: u64 = 64 << 40;

/// Returns the default of `Options::max_len` for a file of `len` bytes, a multiple of 2 MiB. It has
/// a snapshot of `may_get` bytes. `is_free(n)` says if `n` bytes of address space could be reserved
/// in one piece.
pub(super) fn default_len(len: u64, may_get: u64, mut is_free: impl FnMut(u64) -> bool) -> u64 {
    let mut left = LARGEST;
    while left > HUGE_PAGE && !planted!(ReservationNotAdapted) && !is_free(left) {
        left /= 2;
    }
    let share = match left {
        LARGEST.. => 64 << 30,
        left if left >= 16 << 40 => 8 << 30,
        left => (left / 32).min(1 << 30),
    };
    // Home and reflection file together take at most a quarter of the piece.
    let more = len.saturating_mul(2).max(may_get).min(left / 8);
    share.max(more).max(len).clamp(1, MAX_LEN).next_multiple_of(HUGE_PAGE)
}

/// Fails if the caller wants a longer file than any can be.
pub(crate) fn check(options: &Options, path: &Path) -> Result<()> {
    match options.max_len {
        Some(len) if len > MAX_LEN => {
            Err(Error::TooLong { path: path.to_owned(), len, max_len: MAX_LEN })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;
    const TIB: u64 = 1 << 40;

    fn with_free(free: u64, len: u64) -> u64 {
        default_len(len, 0, |bytes| bytes <= free)
    }

    #[test]
    fn one_file_has_room_for_64_gib_or_twice_its_length() {
        assert_eq!(with_free(85 * TIB, 0), 64 * GIB);
        assert_eq!(with_free(85 * TIB, 4096), 64 * GIB);
        assert_eq!(with_free(85 * TIB, 300 * GIB), 600 * GIB);
        assert_eq!(with_free(85 * TIB, MAX_LEN - 1), MAX_LEN);
    }

    #[test]
    fn a_file_has_room_for_its_longest_snapshot_where_a_quarter_of_what_is_left_holds_it() {
        let with_snapshot = |free, len| default_len(4096, len, |bytes| bytes <= free);
        assert_eq!(with_snapshot(85 * TIB, 300 * GIB), 300 * GIB);
        assert_eq!(with_snapshot(85 * TIB, GIB), 64 * GIB);
        assert_eq!(with_snapshot(85 * TIB, MAX_LEN), MAX_LEN);
        assert_eq!(with_snapshot(100 * GIB, MAX_LEN), 8 * GIB);
    }

    #[test]
    fn a_file_never_gets_less_than_its_length_and_takes_a_quarter_of_what_is_left() {
        for free in [0, 1 << 20, 1 << 30, 3 * GIB, 100 * GIB, 5 * TIB, 20 * TIB, 127 * TIB] {
            for len in [0, 1, 4096, 5 << 20, GIB, 200 * GIB, MAX_LEN] {
                let found = with_free(free, len);
                assert!(found >= len && found > 0 && found <= MAX_LEN, "{free} {len}");
                assert!(found.is_multiple_of(HUGE_PAGE), "{free} {len}");
                let is_modest =
                    found * 8 <= free || found <= len.max(1).next_multiple_of(HUGE_PAGE);
                assert!(is_modest, "{found} of {free} for {len}");
            }
        }
    }

    /// With 128 GiB for each file, 128 TiB would hold no more than about a thousand files.
    #[test]
    fn ten_thousand_short_files_fit_the_address_space_of_x86_64() {
        let mut free = 127 * TIB;
        for n in 0..10_000 {
            // The reflection file also has a log area and words.
            let takes = 2 * with_free(free, 4096) + (274 << 20);
            free = free.checked_sub(takes).unwrap_or_else(|| panic!("file {n} finds no room"));
        }
        assert!(free >= TIB, "the process itself needs some");
    }
}
