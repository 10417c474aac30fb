//! Copies through the cache.
//!
//! Owns: the loads and stores of such a copy, by its length and by what the processor has.
//!
//! Invariants: those of the parent. Earlier stores are visible before a copy, and the copy before
//! later stores. Nothing is written back.
//!
//! May import: `cpu` only.

use super::cpu::{FastString, Wide};
use super::{Cpu, LINE};
use std::arch::asm;

/// Copies `len` bytes through the cache.
///
/// # Safety
/// `from` is readable and `to` is writable for `len` bytes, and the two do not overlap.
#[inline]
pub unsafe fn copy(cpu: Cpu, to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the caller's contract is the same.
    unsafe { copy_by_size(&cpu, to, from, len) }
}

/// Copies `len` bytes through the cache, inlined: for a short read a call is a good part of the
/// cost.
///
/// # Safety
/// As [`copy`].
#[inline(always)]
pub unsafe fn copy_out(cpu: &Cpu, to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the caller's contract is the same.
    unsafe { copy_by_size(cpu, to, from, len) }
}

/// Copies the first and the last bytes, which may overlap: both loads come before both stores.
macro_rules! copy_two_ends {
    ($mov:literal, $size:literal, $bytes:literal, ($to:ident, $from:ident, $len:ident)) => {
        asm!(
            text!($mov " {a}, " $size " ptr [{s}]"),
            text!($mov " {b}, " $size " ptr [{s} + {n} - " $bytes "]"),
            text!($mov " " $size " ptr [{d}], {a}"),
            text!($mov " " $size " ptr [{d} + {n} - " $bytes "], {b}"),
            s = in(reg) $from, d = in(reg) $to, n = in(reg) $len,
            a = out(xmm_reg) _, b = out(xmm_reg) _,
            options(nostack, preserves_flags)
        )
    };
}

/// # Safety
/// As [`copy`].
#[inline(always)]
unsafe fn copy_by_size(cpu: &Cpu, to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: each branch touches only [0, len) of both sides, which the caller guarantees: it
    // loads and stores from the front and, overlapping, from the end, and the branch's lower bound
    // makes both fit.
    unsafe {
        if len >= LINE {
            copy_long(cpu, to, from, len);
        } else if len >= 8 {
            if len <= 16 {
                copy_two_ends!("movq", "qword", "8", (to, from, len));
            } else if len <= 32 {
                copy_two_ends!("movups", "xmmword", "16", (to, from, len));
            } else {
                asm!(
                    "movups {a}, xmmword ptr [{s}]",
                    "movups {b}, xmmword ptr [{s} + 16]",
                    "movups {e}, xmmword ptr [{s} + {n} - 32]",
                    "movups {f}, xmmword ptr [{s} + {n} - 16]",
                    "movups xmmword ptr [{d}], {a}",
                    "movups xmmword ptr [{d} + 16], {b}",
                    "movups xmmword ptr [{d} + {n} - 32], {e}",
                    "movups xmmword ptr [{d} + {n} - 16], {f}",
                    s = in(reg) from, d = in(reg) to, n = in(reg) len,
                    a = out(xmm_reg) _, b = out(xmm_reg) _,
                    e = out(xmm_reg) _, f = out(xmm_reg) _,
                    options(nostack, preserves_flags)
                );
            }
        } else if len >= 4 {
            copy_two_ends!("movd", "dword", "4", (to, from, len));
        } else if len > 0 {
            // 1 to 3 bytes: the first, the last and the middle, which may coincide. One after the
            // other, in one register: more registers would have to be saved by the callers.
            asm!(
                "movzx {a:e}, byte ptr [{s}]",
                "mov byte ptr [{d}], {a:l}",
                "movzx {a:e}, byte ptr [{s} + {n} - 1]",
                "mov byte ptr [{d} + {n} - 1], {a:l}",
                "shr {n}",
                "movzx {a:e}, byte ptr [{s} + {n}]",
                "mov byte ptr [{d} + {n}], {a:l}",
                s = in(reg) from, d = in(reg) to, n = inout(reg) len => _,
                a = out(reg) _,
                options(nostack)
            );
        }
    }
}

/// The lengths that `rep movsb` copies, on a processor without 64-byte registers.
///
/// Measured on an EPYC Zen 4 with tmpfs, in ns, loop / `rep movsb`. Cold reads: 512 bytes 128/106,
/// 1 KiB 285/163, 2 KiB 415/277. A cold store of 1 KiB: 194/154. Below 512 bytes its start-up costs
/// more than it saves. From 4 KiB up it can be catastrophic where the two sides lie a few bytes
/// apart modulo the page: 4 KiB 547/1656, 64 KiB 4861/20864. So the loop takes over.
const STRING: std::ops::RangeInclusive<usize> = 512..=2048;

/// # Safety
/// As [`copy`], and `len` is at least 64.
#[inline(always)]
unsafe fn copy_long(cpu: &Cpu, to: *mut u8, from: *const u8, len: usize) {
    match cpu.wide {
        // SAFETY: the caller's contract is the same, and the proof says that AVX-512F exists.
        Some(proof) => unsafe { copy_wide(proof, to, from, len) },
        // SAFETY: the caller's contract is the same.
        None => unsafe { copy_long_narrow(cpu.fast_string, to, from, len) },
    }
}

/// Copies by one load and one store a line. Registers 16 and up, as `stream_lines_wide` in
/// `streamed`.
///
/// # Safety
/// As [`copy`], and `len` is at least 64.
#[inline(always)]
unsafe fn copy_wide(proof: Wide, to: *mut u8, from: *const u8, len: usize) {
    // SAFETY:
    // - the instructions exist: the proof says so;
    // - as in `copy_by_size`: from the front and, overlapping, from the end, and the branch's lower
    //   bound makes both fit.
    unsafe {
        if len == LINE {
            asm!(
                copy_wide_line!("vmovdqu64", "{s}" to "{d}"),
                s = in(reg) from, d = in(reg) to, out("zmm16") _,
                options(nostack, preserves_flags)
            );
        } else if len <= 2 * LINE {
            asm!(
                "vmovdqu64 zmm16, zmmword ptr [{s}]",
                "vmovdqu64 zmm17, zmmword ptr [{s} + {n} - 64]",
                "vmovdqu64 zmmword ptr [{d}], zmm16",
                "vmovdqu64 zmmword ptr [{d} + {n} - 64], zmm17",
                s = in(reg) from, d = in(reg) to, n = in(reg) len,
                out("zmm16") _, out("zmm17") _,
                options(nostack, preserves_flags)
            );
        } else if len <= 4 * LINE {
            asm!(
                "vmovdqu64 zmm16, zmmword ptr [{s}]",
                "vmovdqu64 zmm17, zmmword ptr [{s} + 64]",
                "vmovdqu64 zmm18, zmmword ptr [{s} + {n} - 128]",
                "vmovdqu64 zmm19, zmmword ptr [{s} + {n} - 64]",
                "vmovdqu64 zmmword ptr [{d}], zmm16",
                "vmovdqu64 zmmword ptr [{d} + 64], zmm17",
                "vmovdqu64 zmmword ptr [{d} + {n} - 128], zmm18",
                "vmovdqu64 zmmword ptr [{d} + {n} - 64], zmm19",
                s = in(reg) from, d = in(reg) to, n = in(reg) len,
                out("zmm16") _, out("zmm17") _, out("zmm18") _, out("zmm19") _,
                options(nostack, preserves_flags)
            );
        } else {
            copy_wide_loop(proof, to, from, len);
        }
    }
}

/// Copies that are longer prefetch their source.
const AHEAD_FROM: usize = 2048;

/// Prefetches the first lines of a copy's source, and returns how far ahead the copy has to
/// prefetch the rest: `len`, where prefetching is not worth it.
///
/// The processor's window limits the number of a copy's cache misses in flight. The hardware
/// prefetcher stops at each page of 4 KiB.
///
/// Measured on an EPYC Zen 5: random reads of 512 MiB by loops like these. In ns, without
/// prefetches / with prefetches of all lines but the first. Wide: 4 KiB 482/403 while other threads
/// kept the memory busy, and no difference otherwise; 8 KiB 722/622; 64 KiB 3360/2490; 256 KiB
/// 15300/9830. Narrow: 8 KiB 943/784, 64 KiB 3670/2670. With the source in the caches, wide: 4 KiB
/// 22/26, 8 KiB 42/48. Prefetching the first lines as well changes the time from 88 % to 84 % of
/// `memcpy` at 8 KiB, and from 88 % to 81 % at 16 KiB.
#[inline(always)]
fn ask_ahead(from: *const u8, len: usize) -> usize {
    if len <= AHEAD_FROM {
        return len;
    }
    // Further ahead for longer copies: the first lines have to be waited for in any case.
    let ahead = (len / 4).clamp(1024, 4096);
    // SAFETY: prefetches never fault, whatever the address, and change no memory contents. The
    // prefetched lines belong to the source.
    unsafe {
        asm!(
            "2:",
            "prefetcht0 byte ptr [{s} + {n}]",
            "add {n}, 64",
            "cmp {n}, {a}",
            "jb 2b",
            s = in(reg) from, n = inout(reg) 0usize => _, a = in(reg) ahead,
            options(nostack)
        );
    }
    ahead
}

/// # Safety
/// As [`copy_wide`].
#[inline(always)]
unsafe fn copy_wide_loop(_proof: Wide, to: *mut u8, from: *const u8, len: usize) {
    let ahead = ask_ahead(from, len);
    // SAFETY:
    // - the instructions exist: the proof says so;
    // - `n` is the number of bytes left. The first loop steps over 64 of them while more than
    //   `ahead` are left, which is at least 64. The next two step over 256 and over 64 bytes while
    //   that many are left. The last block ends where both sides end, and begins at most 64 bytes
    //   before that; `len` is at least 64. Prefetched lines are among the bytes left.
    unsafe {
        asm!(
            "cmp {n}, {ahead}",
            "jbe 8f",
            "7:",
            "prefetcht0 byte ptr [{s} + {ahead}]",
            copy_wide_line!("vmovdqu64", "{s}" to "{d}"),
            next_line!(),
            "cmp {n}, {ahead}",
            "ja 7b",
            "8:",
            copy_four_wide_lines!("vmovdqu64"),
            "cmp {n}, 64",
            "jb 5f",
            "4:",
            copy_wide_line!("vmovdqu64", "{s}" to "{d}"),
            next_line!(),
            "cmp {n}, 64",
            "jae 4b",
            "5:",
            "test {n}, {n}",
            "jz 6f",
            copy_wide_line!("vmovdqu64", "{s} + {n} - 64" to "{d} + {n} - 64"),
            "6:",
            s = inout(reg) from => _, d = inout(reg) to => _, n = inout(reg) len => _, ahead = in(reg) ahead,
            out("zmm16") _, out("zmm17") _, out("zmm18") _, out("zmm19") _,
            options(nostack)
        );
    }
}

/// # Safety
/// As [`copy`], and `len` is at least 64.
#[inline(always)]
unsafe fn copy_long_narrow(
    fast_string: Option<FastString>,
    to: *mut u8,
    from: *const u8,
    len: usize,
) {
    match fast_string {
        Some(proof) if STRING.contains(&len) => {
            // SAFETY: the caller's contract is the same.
            unsafe { copy_string(proof, to, from, len) }
        }
        // SAFETY: the caller's contract is the same.
        _ => unsafe { copy_loop(to, from, len) },
    }
}

/// # Safety
/// As [`copy`], and `len` is at least 64.
#[inline(always)]
unsafe fn copy_loop(to: *mut u8, from: *const u8, len: usize) {
    let ahead = ask_ahead(from, len);
    // SAFETY: `n` is the number of bytes left. Both loops step over 64 of them while more than 64
    // are left, the first loop only while more than `ahead` are left. The last block ends where
    // both sides end, and begins 64 bytes before that; `len` is at least 64. Prefetched lines are
    // among the bytes left.
    unsafe {
        asm!(
            "cmp {n}, {ahead}",
            "jbe 5f",
            "4:",
            "prefetcht0 byte ptr [{s} + {ahead}]",
            copy_narrow_line!("movups", "{s}" to "{d}"),
            next_line!(),
            "cmp {n}, {ahead}",
            "ja 4b",
            "5:",
            "cmp {n}, 64",
            "jbe 3f",
            "2:",
            copy_narrow_line!("movups", "{s}" to "{d}"),
            next_line!(),
            "cmp {n}, 64",
            "ja 2b",
            "3:",
            copy_narrow_line!("movups", "{s} + {n} - 64" to "{d} + {n} - 64"),
            s = inout(reg) from => _, d = inout(reg) to => _, n = inout(reg) len => _, ahead = in(reg) ahead,
            a = out(xmm_reg) _, b = out(xmm_reg) _, e = out(xmm_reg) _, f = out(xmm_reg) _,
            options(nostack)
        );
    }
}

/// # Safety
/// As [`copy`].
#[inline(always)]
unsafe fn copy_string(_proof: FastString, to: *mut u8, from: *const u8, len: usize) {
    // SAFETY:
    // - `rep movsb` touches `len` bytes on both sides, which the caller guarantees;
    // - it counts upwards: the ABI promises a clear direction flag;
    // - the block restores the registers that `rep movsb` demands. They are not operands: a caller
    //   that inlines this would then have to move its own values out of them, for all other lengths
    //   as well. Saving a register for that would cost a store in each read.
    unsafe {
        asm!(
            "movq {x}, rdi",
            "movq {y}, rsi",
            "movq {z}, rcx",
            "movq {a}, {d}",
            "movq {b}, {s}",
            "mov rcx, {n}",
            "movq rdi, {a}",
            "movq rsi, {b}",
            "rep movsb",
            "movq rdi, {x}",
            "movq rsi, {y}",
            "movq rcx, {z}",
            d = in(reg) to, s = in(reg) from, n = in(reg) len,
            x = out(xmm_reg) _, y = out(xmm_reg) _, z = out(xmm_reg) _, a = out(xmm_reg) _, b = out(xmm_reg) _,
            options(nostack, preserves_flags)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All ways of a long copy agree, on every length near a switch.
    #[test]
    fn long_copies_agree() {
        let from: Vec<u8> = (0..40_000u32).map(|n| (n % 251) as u8).collect();
        let check = |len: usize, copy: &dyn Fn(*mut u8, *const u8, usize)| {
            let mut to = vec![0xee; len + 100];
            copy(to[5..].as_mut_ptr(), from.as_ptr(), len);
            assert_eq!(to[5..5 + len], from[..len]);
            assert!(to[..5].iter().chain(&to[5 + len..]).all(|b| *b == 0xee), "{len}");
        };
        let around = |n: usize| n - 70..n + 70;
        let lens = (64..400).chain(500..520).chain(around(2048));
        for len in lens.chain(around(4096)).chain(around(16_384)).chain([8192, 16_484, 40_000]) {
            // SAFETY: (all three) both sides hold `len` bytes, of two allocations, and `len` is at
            // least 64.
            check(len, &|to, from, len| unsafe { copy_loop(to, from, len) });
            if let Some(proof) = Cpu::get().fast_string {
                // SAFETY: as above.
                check(len, &|to, from, len| unsafe { copy_string(proof, to, from, len) });
            }
            if let Some(proof) = Cpu::get().wide {
                // SAFETY: as above, and the proof says that AVX-512F exists.
                check(len, &|to, from, len| unsafe { copy_wide(proof, to, from, len) });
            }
        }
    }
}
