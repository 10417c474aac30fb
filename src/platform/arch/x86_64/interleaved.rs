//! Copies of lines, each to or from its own side of two.
//!
//! Owns: the loops that copy neighbouring lines to, or from, one of two places each, as the bits of
//! a word say: line `n` belongs to side `bit n`. The address is selected line by line, without a
//! branch. The bits are close to random in fragmented pages, so a branch would often be
//! mispredicted, and each misprediction takes as long as copying ten lines. Measured for 4 KiB with
//! its drains, from 2 to 32 fragments a page: 400 to 750 ns by runs of lines, 350 to 380 ns by
//! selection. Selection takes as long as a copy without fragments.
//!
//! Invariants: those of the parent. Lines are taken upwards, each once; at most 64, one for each
//! bit of the word.
//!
//! May import: `cpu` only.

use super::{Cpu, LINE};
use std::arch::asm;

/// Loops over the lines. For each line `{side}` becomes the place of the line's side. Then the
/// given steps follow, which find the line `{n}` bytes after their places.
macro_rules! for_each_line {
    (($sides:ident, $zero:expr, $one:expr, $lines:ident), [$($steps:expr),*], $($operands:tt)*) => {
        asm!(
            "2:",
            "mov {side}, {zero}",
            "shr {sides}, 1",
            "cmovc {side}, {one}",
            $($steps,)*
            "add {n}, 64",
            "cmp {n}, {end}",
            "jb 2b",
            side = out(reg) _, zero = in(reg) $zero, one = in(reg) $one, sides = inout(reg) $sides => _,
            n = inout(reg) 0usize => _, end = in(reg) $lines * LINE,
            $($operands)*
            options(nostack)
        )
    };
}

/// Copies each line from `$from` to `$to`. One of the two is "{side} + {n}", the line's place on
/// its side. The other one is "{whole} + {n}", the place in `$whole`, where all lines follow each
/// other.
/// `by` names the wide store, for processors that have it, and the narrow store.
macro_rules! copy_each_line {
    ($cpu:ident, $lines:tt, $from:literal to $to:literal, by $wide:literal or $narrow:literal, $whole:expr) => {
        match $cpu.wide {
            Some(_proof) => for_each_line!(
                $lines,
                [copy_wide_line!($wide, $from to $to)],
                whole = in(reg) $whole, out("zmm16") _,
            ),
            None => for_each_line!(
                $lines,
                [copy_narrow_line!($narrow, $from to $to)],
                whole = in(reg) $whole,
                a = out(xmm_reg) _, b = out(xmm_reg) _, e = out(xmm_reg) _, f = out(xmm_reg) _,
            ),
        }
    };
}

/// Copies lines past the cache, as `stream_lines` in `streamed`.
///
/// # Safety
/// For each line, its 64 bytes are writable after its side's place of `to` and readable after
/// `from`, and these two do not overlap; both of `to` are aligned to 64. `lines` is at most 64.
#[inline(always)]
pub unsafe fn stream_to_sides(
    cpu: Cpu,
    to: [*mut u8; 2],
    sides: u64,
    from: *const u8,
    lines: usize,
) {
    debug_assert!(to.iter().all(|to| to.addr().is_multiple_of(LINE)) && lines <= 64);
    if lines == 0 {
        return;
    }
    // SAFETY:
    // - the loop runs once for each line, upwards from 0, and touches its 64 bytes after `from` and
    //   after one of `to`, which the caller guarantees;
    // - the wide instructions exist where they are used: the proof says so;
    // - both targets are 64-aligned, and the steps keep that, which vmovntdq and movntdq demand.
    unsafe {
        copy_each_line!(
            cpu, (sides, to[0], to[1], lines),
            "{whole} + {n}" to "{side} + {n}", by "vmovntdq" or "movntdq", from
        );
    }
}

/// Copies lines through the cache. The places need no alignment.
///
/// # Safety
/// For each line, its 64 bytes are writable after its side's place of `to` and readable after
/// `from`, and these two do not overlap. `lines` is at most 64.
#[inline(always)]
pub unsafe fn copy_to_sides(cpu: Cpu, to: [*mut u8; 2], sides: u64, from: *const u8, lines: usize) {
    debug_assert!(lines <= 64);
    if lines == 0 {
        return;
    }
    // SAFETY: as in `stream_to_sides`; these stores demand no alignment.
    unsafe {
        copy_each_line!(
            cpu, (sides, to[0], to[1], lines),
            "{whole} + {n}" to "{side} + {n}", by "vmovdqu64" or "movups", from
        );
    }
}

/// Copies lines from their sides through the cache. The places need no alignment.
///
/// # Safety
/// For each line, its 64 bytes are readable after its side's place of `from` and writable after
/// `to`, and these two do not overlap. `lines` is at most 64.
#[inline(always)]
pub unsafe fn copy_from_sides(
    cpu: Cpu,
    to: *mut u8,
    from: [*const u8; 2],
    sides: u64,
    lines: usize,
) {
    debug_assert!(lines <= 64);
    if lines == 0 {
        return;
    }
    // SAFETY: as in `copy_to_sides`, with the two exchanged.
    unsafe {
        copy_each_line!(
            cpu, (sides, from[0], from[1], lines),
            "{side} + {n}" to "{whole} + {n}", by "vmovdqu64" or "movups", to
        );
    }
}

/// Prefetches lines for loads from their sides, all at once. A hint, for callers that copy
/// something else meanwhile.
#[inline]
pub fn prefetch_from_sides(from: [*const u8; 2], sides: u64, lines: usize) {
    debug_assert!(lines <= 64);
    if lines == 0 {
        return;
    }
    // SAFETY: prefetches never fault, whatever the address, and change no memory contents.
    unsafe {
        for_each_line!((sides, from[0], from[1], lines), ["prefetcht0 [{side} + {n}]"],);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(64))]
    struct Page([u8; 4096]);

    const WORDS: [u64; 8] = [0, !0, 1, 1 << 63, 0xAAAA_5555_F00F_1234, !1, !0 >> 1, 0b0110];

    /// Returns processors of both widths, whatever detection would choose.
    fn cpus() -> [Cpu; 2] {
        [Cpu::get(), Cpu { wide: None, ..Cpu::get() }]
    }

    /// Returns the sides, the number of lines, and the buffer's distance from an aligned address.
    fn cases() -> impl Iterator<Item = (u64, usize, usize)> {
        let lines = [0, 1, 2, 3, 5, 63, 64];
        let with_lines = move |sides| lines.into_iter().map(move |lines| (sides, lines));
        let both = WORDS.into_iter().flat_map(with_lines);
        both.flat_map(|(sides, lines)| [(sides, lines, 0), (sides, lines, 7)])
    }

    fn bytes(plus: usize) -> Vec<u8> {
        (0..4096 + 7).map(|n| ((n + plus) % 251) as u8).collect()
    }

    /// Copies past the cache, and through it.
    #[test]
    fn each_line_goes_to_its_side_and_nothing_else() {
        type Way = unsafe fn(Cpu, [*mut u8; 2], u64, *const u8, usize);
        let from = bytes(0);
        for (sides, lines, shift) in cases() {
            for (cpu, way) in cpus()
                .into_iter()
                .flat_map(|cpu| [(cpu, stream_to_sides as Way), (cpu, copy_to_sides)])
            {
                let mut to = [Page([0xEE; 4096]), Page([0xEE; 4096])];
                let places = to.each_mut().map(|side| side.0.as_mut_ptr());
                // SAFETY: each side and `from` have 4096 bytes, and each side is 64-aligned; at
                // most 64 lines.
                unsafe { way(cpu, places, sides, from[shift..].as_ptr(), lines) };
                super::super::drain();
                for n in 0..64 {
                    let side = (sides >> n & 1) as usize;
                    let line = n * 64..n * 64 + 64;
                    let written =
                        if n < lines { &from[shift..][line.clone()] } else { &[0xEE; 64] };
                    assert_eq!(&to[side].0[line.clone()], written, "{sides:x} {n} of {lines}");
                    assert_eq!(to[1 - side].0[line], [0xEE; 64], "{sides:x} {n} of {lines}");
                }
            }
        }
    }

    #[test]
    fn each_line_comes_from_its_side() {
        let from = [bytes(0), bytes(100)];
        for (sides, lines, shift) in cases() {
            for cpu in cpus() {
                let mut to = [0xEE; 4096];
                let places = from.each_ref().map(|side| side[shift..].as_ptr());
                // SAFETY: each side has 4096 bytes from there, and so has `to`; at most 64 lines.
                unsafe { copy_from_sides(cpu, to.as_mut_ptr(), places, sides, lines) };
                for n in 0..64 {
                    let line = n * 64..n * 64 + 64;
                    let side = &from[(sides >> n & 1) as usize][shift..];
                    let expected = if n < lines { &side[line.clone()] } else { &[0xEE; 64] };
                    assert_eq!(&to[line], expected, "{sides:x} {n} of {lines}");
                }
            }
        }
    }
}
