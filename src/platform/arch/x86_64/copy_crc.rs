//! A copy that computes the CRC-32C of its lines on the way.
//!
//! Owns: the loop that stores lines past the cache, each to its side, and folds each into what
//! becomes their CRC-32C. A separate checksum loads every line once more, and takes some 50 ns for
//! a page. Here the time is hidden, since the stores wait for each other anyway.
//!
//! A CRC is the remainder of a polynomial. So of two lines the first may be replaced by any value
//! of equal remainder that is no longer than the second line. The value is then added to that line.
//! This is one step: two products for each 16 bytes. After all steps one line is left, with the
//! remainder of all lines, and 8 ordinary CRC instructions compute it. (V. Gopal et al., "Fast CRC
//! Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009.)
//!
//! Invariants: those of the parent.
//!
//! May import: `cpu` and `crc`.

use super::{Cpu, Fold, LINE};
use std::arch::asm;

/// The polynomial of CRC-32C: the highest power (x^32) is left out, the next one is in the lowest
/// bit.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// Returns the remainder of x^n, with the highest power in the lowest bit, one bit further up. The
/// shift makes up for products of these numbers, which come out one bit too low.
const fn power(n: u32) -> u64 {
    let mut remainder = 1 << 31;
    let mut done = 0;
    while done < n {
        remainder = if remainder & 1 == 1 { remainder >> 1 ^ POLYNOMIAL } else { remainder >> 1 };
        done += 1;
    }
    (remainder as u64) << 1
}

/// Returns the factors of the first and the second 8 bytes of each 16, which move them `lines`
/// lines ahead without a change of the remainder. The first 8 bytes count for 64 powers more than
/// the second. A factor lies in the lower half of its register, where it counts for 32 powers more
/// than it is. So the exponents are 64 - 32 more, and 32 less.
const fn powers(lines: u32) -> [u64; 2] {
    let bits = lines * LINE as u32 * 8;
    [power(bits + 32), power(bits - 32)]
}
static POWERS: [[u64; 2]; 2] = [powers(1), powers(2)];

/// A line that begins with these 4 bytes, and goes on with zeroes, leaves the initial value of a
/// CRC: all bits set.
const BEGINNING: u32 = {
    let mut register = u32::MAX;
    let mut bits = 0;
    while bits < LINE * 8 {
        // One zero bit back.
        let was_one = register >> 31 == 1;
        register = if was_one { (register ^ POLYNOMIAL) << 1 | 1 } else { register << 1 };
        bits += 1;
    }
    register
};

/// Returns `true` if this processor can do this.
#[inline(always)]
pub fn sums_on_the_way(cpu: Cpu) -> bool {
    cpu.fold.is_some()
}

/// Copies lines past the cache, as [`super::stream_to_sides`], and returns the CRC-32C of their
/// bytes. Returns `None`, and does nothing, if this processor cannot do this.
///
/// # Safety
/// As [`super::stream_to_sides`].
#[inline(always)]
pub unsafe fn stream_to_sides_summed(
    cpu: Cpu,
    to: [*mut u8; 2],
    sides: u64,
    from: *const u8,
    lines: usize,
) -> Option<u32> {
    let fold = cpu.fold?;
    if lines == 0 {
        return Some(0);
    }
    // SAFETY: the caller's contract is the same.
    Some(unsafe { stream_and_fold(fold, to, sides, from, lines) })
}

/// Streams the line at `$at` by the register `$line` to its side, moves `$sum` ahead by the factors
/// in `$powers`, and adds the line to it.
macro_rules! stream_and_add {
    ($line:literal, $at:literal, $sum:literal, $product:literal, $powers:literal) => {
        text!(
            "mov {side}, {zero}\nshr {sides}, 1\ncmovc {side}, {one}\n"
            "vmovdqu64 " $line ", zmmword ptr [{from}" $at "]\n"
            "vmovntdq zmmword ptr [{side}" $at "], " $line "\n"
            "vpclmulqdq " $product ", " $sum ", " $powers ", 0x00\n"
            "vpclmulqdq " $sum ", " $sum ", " $powers ", 0x11\n"
            "vpternlogq " $sum ", " $product ", " $line ", 0x96"
        )
    };
}

/// Copies the lines and folds them.
///
/// # Safety
/// As [`super::stream_to_sides`], and `lines` is not 0.
#[inline(always)]
unsafe fn stream_and_fold(
    fold: Fold,
    to: [*mut u8; 2],
    sides: u64,
    from: *const u8,
    lines: usize,
) -> u32 {
    debug_assert!(to.iter().all(|to| to.addr().is_multiple_of(LINE)) && (1..=64).contains(&lines));
    let mut rest = [0; LINE / 8];
    // SAFETY:
    // - an odd line goes before the loop, so `end - n` is a multiple of 128 whenever the loop
    //   begins, and not 0. So both lines of a step are among the caller's; each line is taken once,
    //   upwards, and takes one bit of `sides`;
    // - each of `to` is aligned to 64, and the steps keep that, which vmovntdq demands;
    // - `POWERS` has the 32 bytes that are loaded, and `rest` the 64 that are stored;
    // - all instructions are of AVX-512F, or of VPCLMULQDQ at this width: the proof says that they
    //   exist.
    unsafe {
        asm!(
            "vbroadcasti32x4 zmm19, xmmword ptr [{powers}]",
            "vbroadcasti32x4 zmm20, xmmword ptr [{powers} + 16]",
            // Moved to a register in one step: a load of bytes that were stored in pieces would
            // have to wait.
            "vmovd xmm17, {beginning:e}",
            // An odd line comes first.
            "test {end}, 64",
            "jz 3f",
            stream_and_add!("zmm16", "", "zmm17", "zmm18", "zmm19"),
            "add {n}, 64",
            "cmp {n}, {end}",
            "je 4f",
            // Then two lines a step, in independent chains: zmm17 stands for the line before the
            // next one, zmm21 for the line before that.
            "3:",
            "vpxorq zmm21, zmm21, zmm21",
            "2:",
            stream_and_add!("zmm16", " + {n}", "zmm21", "zmm18", "zmm20"),
            stream_and_add!("zmm22", " + {n} + 64", "zmm17", "zmm23", "zmm20"),
            "add {n}, 128",
            "cmp {n}, {end}",
            "jb 2b",
            "vpclmulqdq zmm18, zmm21, zmm19, 0x00",
            "vpclmulqdq zmm21, zmm21, zmm19, 0x11",
            "vpternlogq zmm17, zmm18, zmm21, 0x96",
            "4:",
            "vmovdqu64 zmmword ptr [{rest}], zmm17",
            side = out(reg) _, zero = in(reg) to[0], one = in(reg) to[1], sides = inout(reg) sides => _,
            n = inout(reg) 0usize => _, end = in(reg) lines * LINE, from = in(reg) from,
            powers = in(reg) &raw const POWERS, rest = in(reg) &raw mut rest, beginning = in(reg) BEGINNING,
            out("zmm16") _, out("zmm17") _, out("zmm18") _, out("zmm19") _,
            out("zmm20") _, out("zmm21") _, out("zmm22") _, out("zmm23") _,
            options(nostack)
        );
    }
    !fold.crc().after(0, rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::arch::x86_64::drain;

    #[repr(align(64))]
    struct Page([u8; 4096]);

    #[test]
    fn lines_are_copied_to_their_sides_and_summed_up() {
        let cpu = Cpu::get();
        let from: Vec<u8> = (0..4096u32 + 7).map(|n| ((n * n) >> 3) as u8).collect();
        for shift in [0, 7] {
            for sides in [0, !0, 0xAAAA_5555_F00F_1234] {
                for lines in 0..=64 {
                    let bytes = &from[shift..shift + lines * LINE];
                    let mut to = [Page([0xEE; 4096]), Page([0xEE; 4096])];
                    let places = to.each_mut().map(|side| side.0.as_mut_ptr());
                    // SAFETY: each side and `bytes` have 4096 bytes, and each side is 64-aligned;
                    // at most 64 lines.
                    let sum = unsafe {
                        stream_to_sides_summed(cpu, places, sides, bytes.as_ptr(), lines)
                    };
                    let Some(sum) = sum else { return assert!(!sums_on_the_way(cpu)) };
                    drain();
                    assert_eq!(sum, ::crc32c::crc32c(bytes), "{lines} lines");
                    for n in 0..64 {
                        let side = (sides >> n & 1) as usize;
                        let line = n * 64..n * 64 + 64;
                        let written = if n < lines { &bytes[line.clone()] } else { &[0xEE; 64] };
                        assert_eq!(&to[side].0[line.clone()], written, "{sides:x} {n} of {lines}");
                        assert_eq!(to[1 - side].0[line], [0xEE; 64], "{sides:x} {n} of {lines}");
                    }
                }
            }
        }
    }
}
