//! Tests of plans, and of the copies that execute them.
//!
//! May import: the parent, the instruction set (`isa`), and the vocabulary of `platform/mod.rs`.

use super::*;

const ALL: [Persistence; 3] = [Persistence::Flush, Persistence::Caches, Persistence::Process];

/// Memory with word-aligned ends, as a mapping has, and a margin that must stay untouched.
struct Arena(Vec<u64>);

impl Arena {
    fn new(bytes: usize) -> Arena {
        Arena(vec![0xeeee_eeee_eeee_eeee; bytes / 8 + 32])
    }
    /// Returns the first multiple of 64 at least 64 bytes inside.
    fn base(&mut self) -> *mut u8 {
        let start = self.0.as_mut_ptr().cast::<u8>();
        start.wrapping_add(64 + start.align_offset(64))
    }
    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the vector's own memory, borrowed mutably; any byte is a valid u8.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.0.len() * 8) }
    }
    fn refill(&mut self) {
        self.0.fill(0xeeee_eeee_eeee_eeee);
    }
    /// Checks that [at, at + expected.len()) past the base holds `expected`, and that all other
    /// bytes are unchanged.
    fn check(&mut self, at: usize, expected: &[u8], what: &str) {
        let start = self.base().addr() - self.0.as_ptr().addr() + at;
        let bytes = self.bytes();
        let end = start + expected.len();
        assert!(bytes[start..end] == *expected, "{what}: wrong bytes");
        assert!(
            bytes[..start].iter().chain(&bytes[end..]).all(|b| *b == 0xee),
            "{what}: bytes outside were changed"
        );
    }
}

#[test]
fn what_lies_in_a_line_is_stored_and_nothing_else() {
    let native = Native::new();
    let Some(how) = native.in_line() else { return };
    let data: Vec<u8> = (1..=LINE as u8).collect();
    let mut arena = Arena::new(3 * LINE);
    for start in 0..LINE {
        for len in 1..=LINE - start {
            arena.refill();
            let to = arena.base().wrapping_add(start);
            // SAFETY: the arena has a line there, to which no other thread writes, and the part
            // ends within it.
            unsafe { native.store_in_line(how, to, &data[..len]) };
            arena.check(start, &data[..len], &format!("{len} bytes at {start}"));
        }
    }
}

fn sizes() -> Vec<usize> {
    if cfg!(miri) {
        return vec![0, 1, 7, 8, 9, 63, 64, 65, 130];
    }
    (0..=300)
        .chain([511, 512, 513, 1023, 1024, 2047, 2048, 2049, 2055, 4096, 5000])
        .chain([9999, 70_001])
        .collect()
}

fn alignments(len: usize) -> impl Iterator<Item = usize> {
    (0..=64).step_by(if cfg!(miri) {
        11
    } else if len > 8192 {
        7
    } else {
        1
    })
}

#[test]
fn a_line_of_words_is_stored_as_its_bytes_are() {
    let words: [u64; 8] = std::array::from_fn(|n| 0x0123_4567_89AB_CDEF_u64.rotate_left(n as u32));
    let bytes = words.map(u64::to_le_bytes);
    let mut arena = Arena::new(4 * LINE);
    for persistence in ALL {
        arena.refill();
        let native = Native::new().with_persistence(persistence);
        let at = arena.base().wrapping_add(LINE);
        // SAFETY: four lines follow the base, which is aligned to lines.
        unsafe { native.store_line(at, words) };
        native.drain();
        let mut found = [0; 3 * LINE];
        // SAFETY: as above.
        unsafe { native.copy_out(&mut found, arena.base()) };
        assert_eq!(found[LINE..2 * LINE], *bytes.as_flattened(), "{persistence:?}");
        assert!(found[..LINE].iter().chain(&found[2 * LINE..]).all(|byte| *byte == 0xee));
    }
}

/// Returns this processor as it is, and as a processor that cannot compute checksums of lines.
fn natives() -> impl Iterator<Item = Native> {
    let native = Native::new();
    #[cfg(all(target_arch = "x86_64", not(atomic_mmap_portable)))]
    let less = Native { cpu: Cpu { fold: None, ..native.cpu }, ..native };
    #[cfg(not(all(target_arch = "x86_64", not(atomic_mmap_portable))))]
    let less = native;
    [native, less].into_iter()
}

/// Copies lines to two sides and from them, with partial lines at the ends of what is copied
/// out.
#[test]
fn lines_of_two_sides_match_plain_copies() {
    let source: Vec<u8> = (0..4096u32).map(|n| (n * 7 % 253) as u8).collect();
    let mut arenas = [Arena::new(4096 + 128), Arena::new(4096 + 128)];
    for sides in [0, !0, 1, 1 << 63, 0xAAAA_5555_F00F_1234] {
        let all = ALL.into_iter().flat_map(|p| natives().map(move |n| (p, n.with_persistence(p))));
        for (persistence, native) in all {
            let lines = [0, 1, 2, 31, 32, 64].into_iter();
            for (lines, sums) in lines.flat_map(|lines| [(lines, false), (lines, true)]) {
                arenas.iter_mut().for_each(Arena::refill);
                let to = arenas.each_mut().map(|arena| arena.base());
                let data = &source[..lines * LINE];
                // SAFETY: 4096 bytes follow each base, which is aligned to lines; at most 64
                // lines.
                unsafe {
                    if sums {
                        let sum = native.copy_lines_to_sides_summed(to, sides, data);
                        assert_eq!(sum, ::crc32c::crc32c(data));
                    } else {
                        native.copy_lines_to_sides(to, sides, data);
                    }
                }
                native.drain();
                for (n, line) in data.chunks(LINE).enumerate() {
                    let mine = (sides >> n & 1) as usize;
                    let mut found = [0; LINE];
                    for side in [mine, 1 - mine] {
                        // SAFETY: as above.
                        unsafe {
                            native.copy_out(&mut found, to[side].wrapping_add(n * LINE));
                        }
                        let expected = if side == mine { line } else { &[0xee; LINE] };
                        assert_eq!(found, expected, "{sides:x} line {n} {persistence:?}");
                    }
                }
                let from = to.map(<*mut u8>::cast_const);
                for start in [0, 1, 63, 64, 100, 1000] {
                    for end in [start, start + 1, start + 28, start + 64, start + 700, 4096] {
                        let end = end.min(data.len()).max(start);
                        if end > data.len() {
                            continue;
                        }
                        let mut found = vec![0; end - start];
                        let from = from.map(|from| from.wrapping_add(start));
                        // SAFETY: as above; both are at the same distance from a line.
                        unsafe {
                            native.copy_out_of_sides(&mut found, from, sides >> (start / LINE));
                        }
                        assert_eq!(found, data[start..end], "{sides:x} {start}..{end}");
                    }
                }
            }
        }
    }
}

#[test]
fn every_size_and_alignment_matches_a_plain_copy() {
    let source: Vec<u8> = (0..80_000u32).map(|n| (n * 7 % 253) as u8).collect();
    let zeros = vec![0; source.len()];
    for len in sizes() {
        let mut target = Arena::new(len + 128);
        let mut mapped = Arena::new(len + 128);
        for align in alignments(len) {
            // Another residue for the source, so that all pairs of residues occur.
            let shift = (align * 5 + len) % 67;
            let data = &source[shift..shift + len];
            for persistence in ALL {
                let native = Native::new().with_persistence(persistence);
                let what = format!("len {len}, align {align}, {persistence:?}");
                for how in [Copying::BySize, Copying::Cached] {
                    target.refill();
                    let to = target.base().wrapping_add(align);
                    // SAFETY: base + align + len is inside the arena (align at most 64, and 128
                    // bytes more than `len` follow the base).
                    unsafe { native.copy_in(to, data, how) };
                    native.drain();
                    target.check(align, data, &what);
                }
                // Out again, to another residue.
                let mut out = vec![0xdd; len + 70];
                // SAFETY: as above.
                unsafe {
                    native
                        .copy_out(&mut out[shift..shift + len], target.base().wrapping_add(align));
                }
                assert!(out[shift..shift + len] == *data, "{what}: copy_out");
                assert!(out[..shift].iter().chain(&out[shift + len..]).all(|b| *b == 0xdd));
                // Across to the mirrored alignment.
                mapped.refill();
                let across = 64 - align;
                // SAFETY: as above; two arenas do not overlap.
                unsafe {
                    native.copy_across(
                        mapped.base().wrapping_add(across),
                        target.base().wrapping_add(align),
                        len,
                        Copying::BySize,
                    );
                }
                native.drain();
                mapped.check(across, data, &what);
                target.refill();
                let to = target.base().wrapping_add(align);
                // SAFETY: as above.
                unsafe { native.fill_zero(to, len) };
                native.drain();
                target.check(align, &zeros[..len], &what);
            }
        }
    }
}

#[test]
fn plans_are_exact_and_never_mix_one_line() {
    for persistence in ALL {
        let native = Native::new().with_persistence(persistence);
        for len in sizes() {
            for align in alignments(len) {
                let to = std::ptr::without_provenance_mut::<u8>(0x10_0000 + align);
                for how in [Copying::BySize, Copying::Cached] {
                    let plan = native.plan(to, len, how);
                    let mut at = 0;
                    for part in plan.parts() {
                        assert_eq!(part.range.start, at);
                        at = part.range.end;
                        assert!(!(part.streamed && part.flushed));
                        if part.streamed {
                            assert_eq!(how, Copying::BySize);
                            assert!((to.addr() + part.range.start).is_multiple_of(8));
                            assert!((to.addr() + part.range.end).is_multiple_of(8));
                            if part.range.start > 0 {
                                assert!((to.addr() + part.range.start).is_multiple_of(LINE));
                            }
                            if part.range.end < len {
                                assert!((to.addr() + part.range.end).is_multiple_of(LINE));
                            }
                        } else {
                            assert_eq!(
                                part.flushed,
                                how == Copying::BySize && persistence == Persistence::Flush
                            );
                        }
                    }
                    assert_eq!(at, len);
                }
            }
        }
    }
}
