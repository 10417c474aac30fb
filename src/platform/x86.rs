//! Copies, write-backs, drains and checksums on x86-64.
//!
//! Owns: every instruction that touches mapped memory on this architecture, except the atomic word
//! operations (`word.rs`), and the instructions for checksums. They are inline assembly because
//! mapped bytes do not belong to the compiler: another thread (an optimistic reader), another
//! process or the kernel may touch them at any time. An assembly block is opaque to the compiler
//! and means just what the processor does; a Rust copy would be a data race.
//!
//! Invariants:
//! - No block carries `nomem` or `readonly` if it writes or orders memory, so each is a compiler
//!   barrier for everything around it.
//! - No reference into mapped memory is formed, only raw addresses.
//! - A copy promises no atomicity of any width: small sizes store some bytes twice, with equal
//!   values.
//! - Cached copies keep the order of x86: earlier stores are visible before them, they before later
//!   stores, loads in order. Streamed ones do not, until a drain.
//!
//! May import: `cpu` only.

mod in_line;
mod sides;
mod summed;

pub use super::cpu::{Cpu, Crc, Masked};
use super::cpu::{FastString, Fold, Wide, WriteBackKind};
pub use in_line::{store_in_line, stores_in_line};
pub use sides::{copy_from_sides, copy_to_sides, prefetch_from_sides, stream_to_sides};
use std::arch::asm;
pub use summed::{stream_to_sides_summed, sums_on_the_way};

impl Crc {
    /// Returns the CRC-32C of the words, least significant byte first.
    #[inline(always)]
    pub fn of_words(self, words: impl IntoIterator<Item = u64>) -> u32 {
        !self.after(u32::MAX, words)
    }

    /// Returns the CRC-32C of data with the CRC `sum`, followed by the words, least significant
    /// byte first.
    #[inline(always)]
    pub fn appended(self, sum: u32, words: impl IntoIterator<Item = u64>) -> u32 {
        !self.after(!sum, words)
    }

    /// Returns the register's value after the words, if it was `before`.
    #[inline(always)]
    fn after(self, before: u32, words: impl IntoIterator<Item = u64>) -> u32 {
        let mut sum = u64::from(before);
        for word in words {
            // SAFETY: registers only, and `self` proves that the instruction exists.
            unsafe {
                asm!(
                    "crc32 {sum}, {word}",
                    sum = inout(reg) sum, word = in(reg) word,
                    options(pure, nomem, nostack, preserves_flags)
                );
            }
        }
        sum as u32
    }
}

/// All sides of a copy are equal to the processor. The portable code tells them apart.
pub use self::{copy as copy_in, copy as copy_across};

/// Bytes in a cache line.
const LINE: usize = 64;

/// The processor has streaming stores and can write lines back, so it can promise to survive power
/// loss.
pub const FLUSHES: bool = true;

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
                asm!(
                    "movq {a}, qword ptr [{s}]",
                    "movq {b}, qword ptr [{s} + {n} - 8]",
                    "movq qword ptr [{d}], {a}",
                    "movq qword ptr [{d} + {n} - 8], {b}",
                    s = in(reg) from, d = in(reg) to, n = in(reg) len,
                    a = out(xmm_reg) _, b = out(xmm_reg) _,
                    options(nostack, preserves_flags)
                );
            } else if len <= 32 {
                asm!(
                    "movups {a}, xmmword ptr [{s}]",
                    "movups {b}, xmmword ptr [{s} + {n} - 16]",
                    "movups xmmword ptr [{d}], {a}",
                    "movups xmmword ptr [{d} + {n} - 16], {b}",
                    s = in(reg) from, d = in(reg) to, n = in(reg) len,
                    a = out(xmm_reg) _, b = out(xmm_reg) _,
                    options(nostack, preserves_flags)
                );
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
            asm!(
                "movd {a}, dword ptr [{s}]",
                "movd {b}, dword ptr [{s} + {n} - 4]",
                "movd dword ptr [{d}], {a}",
                "movd dword ptr [{d} + {n} - 4], {b}",
                s = in(reg) from, d = in(reg) to, n = in(reg) len,
                a = out(xmm_reg) _, b = out(xmm_reg) _,
                options(nostack, preserves_flags)
            );
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

/// Copies by one load and one store a line. Registers 16 and up, as in [`stream_lines_wide`].
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
                "vmovdqu64 zmm16, zmmword ptr [{s}]",
                "vmovdqu64 zmmword ptr [{d}], zmm16",
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
            "vmovdqu64 zmm16, zmmword ptr [{s}]",
            "vmovdqu64 zmmword ptr [{d}], zmm16",
            "add {s}, 64",
            "add {d}, 64",
            "sub {n}, 64",
            "cmp {n}, {ahead}",
            "ja 7b",
            "8:",
            "cmp {n}, 256",
            "jb 3f",
            "2:",
            "vmovdqu64 zmm16, zmmword ptr [{s}]",
            "vmovdqu64 zmm17, zmmword ptr [{s} + 64]",
            "vmovdqu64 zmm18, zmmword ptr [{s} + 128]",
            "vmovdqu64 zmm19, zmmword ptr [{s} + 192]",
            "vmovdqu64 zmmword ptr [{d}], zmm16",
            "vmovdqu64 zmmword ptr [{d} + 64], zmm17",
            "vmovdqu64 zmmword ptr [{d} + 128], zmm18",
            "vmovdqu64 zmmword ptr [{d} + 192], zmm19",
            "add {s}, 256",
            "add {d}, 256",
            "sub {n}, 256",
            "cmp {n}, 256",
            "jae 2b",
            "3:",
            "cmp {n}, 64",
            "jb 5f",
            "4:",
            "vmovdqu64 zmm16, zmmword ptr [{s}]",
            "vmovdqu64 zmmword ptr [{d}], zmm16",
            "add {s}, 64",
            "add {d}, 64",
            "sub {n}, 64",
            "cmp {n}, 64",
            "jae 4b",
            "5:",
            "test {n}, {n}",
            "jz 6f",
            "vmovdqu64 zmm16, zmmword ptr [{s} + {n} - 64]",
            "vmovdqu64 zmmword ptr [{d} + {n} - 64], zmm16",
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
            "movups {a}, xmmword ptr [{s}]",
            "movups {b}, xmmword ptr [{s} + 16]",
            "movups {e}, xmmword ptr [{s} + 32]",
            "movups {f}, xmmword ptr [{s} + 48]",
            "movups xmmword ptr [{d}], {a}",
            "movups xmmword ptr [{d} + 16], {b}",
            "movups xmmword ptr [{d} + 32], {e}",
            "movups xmmword ptr [{d} + 48], {f}",
            "add {s}, 64",
            "add {d}, 64",
            "sub {n}, 64",
            "cmp {n}, {ahead}",
            "ja 4b",
            "5:",
            "cmp {n}, 64",
            "jbe 3f",
            "2:",
            "movups {a}, xmmword ptr [{s}]",
            "movups {b}, xmmword ptr [{s} + 16]",
            "movups {e}, xmmword ptr [{s} + 32]",
            "movups {f}, xmmword ptr [{s} + 48]",
            "movups xmmword ptr [{d}], {a}",
            "movups xmmword ptr [{d} + 16], {b}",
            "movups xmmword ptr [{d} + 32], {e}",
            "movups xmmword ptr [{d} + 48], {f}",
            "add {s}, 64",
            "add {d}, 64",
            "sub {n}, 64",
            "cmp {n}, 64",
            "ja 2b",
            "3:",
            "movups {a}, xmmword ptr [{s} + {n} - 64]",
            "movups {b}, xmmword ptr [{s} + {n} - 48]",
            "movups {e}, xmmword ptr [{s} + {n} - 32]",
            "movups {f}, xmmword ptr [{s} + {n} - 16]",
            "movups xmmword ptr [{d} + {n} - 64], {a}",
            "movups xmmword ptr [{d} + {n} - 48], {b}",
            "movups xmmword ptr [{d} + {n} - 32], {e}",
            "movups xmmword ptr [{d} + {n} - 16], {f}",
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

/// Stores a line past the cache, word by word: the words fill one write-combining buffer. Unordered
/// until a drain.
///
/// # Safety
/// `to` is writable for 64 bytes and aligned to 64.
#[inline(always)]
pub unsafe fn stream_line(to: *mut u8, line: [u64; LINE / 8]) {
    debug_assert!(to.addr().is_multiple_of(LINE));
    let [a, b, c, d, e, f, g, h] = line;
    // SAFETY: all eight words lie in the 64 bytes that the caller guarantees.
    unsafe {
        asm!(
            "movnti qword ptr [{to}], {a}",
            "movnti qword ptr [{to} + 8], {b}",
            "movnti qword ptr [{to} + 16], {c}",
            "movnti qword ptr [{to} + 24], {d}",
            to = in(reg) to, a = in(reg) a, b = in(reg) b, c = in(reg) c, d = in(reg) d,
            options(nostack, preserves_flags)
        );
        asm!(
            "movnti qword ptr [{to} + 32], {a}",
            "movnti qword ptr [{to} + 40], {b}",
            "movnti qword ptr [{to} + 48], {c}",
            "movnti qword ptr [{to} + 56], {d}",
            to = in(reg) to, a = in(reg) e, b = in(reg) f, c = in(reg) g, d = in(reg) h,
            options(nostack, preserves_flags)
        );
    }
}

/// Copies past the cache: whole lines by the processor's widest store, words at the two ends.
/// Unordered until a drain.
///
/// # Safety
/// As [`copy`]; `to` is aligned to 8 and `len` is a multiple of 8.
#[inline]
pub unsafe fn stream(cpu: Cpu, to: *mut u8, from: *const u8, len: usize) {
    debug_assert!(to.addr().is_multiple_of(8) && len.is_multiple_of(8));
    let head = (to.addr().wrapping_neg() % LINE).min(len);
    let lines = (len - head) & !(LINE - 1);
    let tail = len - head - lines;
    // SAFETY: the three parts follow each other and make up [0, len). Each is a multiple of 8 from
    // an 8-aligned start; the lines start at a multiple of 64 unless there are none.
    unsafe {
        stream_words(to, from, head);
        if lines > 0 {
            stream_lines(cpu, to.add(head), from.add(head), lines);
        }
        stream_words(to.add(head + lines), from.add(head + lines), tail);
    }
}

/// # Safety
/// As [`stream`].
#[inline(always)]
unsafe fn stream_words(to: *mut u8, from: *const u8, len: usize) {
    let mut at = 0;
    while at < len {
        // SAFETY: `len` is a multiple of 8, so the 8 bytes at `at` lie inside the caller's range.
        // The source may have any alignment: `mov` does not care.
        unsafe {
            asm!(
                "mov {a}, qword ptr [{s} + {n}]",
                "movnti qword ptr [{d} + {n}], {a}",
                s = in(reg) from, d = in(reg) to, n = in(reg) at, a = out(reg) _,
                options(nostack, preserves_flags)
            );
        }
        at += 8;
    }
}

/// # Safety
/// As [`copy`]; `to` is aligned to 64 and `len` is a multiple of 64.
#[inline]
unsafe fn stream_lines(cpu: Cpu, to: *mut u8, from: *const u8, len: usize) {
    debug_assert!(to.addr().is_multiple_of(LINE) && len.is_multiple_of(LINE));
    match cpu.wide {
        // SAFETY: the caller's contract is the same, and the proof says that the processor and the
        // operating system support AVX-512F.
        Some(proof) => unsafe { stream_lines_wide(proof, to, from, len) },
        // SAFETY: the caller's contract is the same.
        None => unsafe { stream_lines_narrow(to, from, len) },
    }
}

/// Streams lines by one store each: it fills the write-combining buffer at once, so that no partly
/// filled buffer can be evicted. Registers 16 and up are used since they leave the upper halves of
/// the lower ones clean (no `vzeroupper` is needed).
///
/// # Safety
/// As [`stream_lines`].
#[target_feature(enable = "avx512f")]
unsafe fn stream_lines_wide(_proof: Wide, to: *mut u8, from: *const u8, len: usize) {
    // SAFETY:
    // - the instructions exist: the proof says so;
    // - the loops step over exactly `len` bytes, 256 and then 64 at a time, on both sides, and the
    //   caller guarantees those;
    // - vmovntdq demands a 64-aligned target, which `to` is and the steps keep.
    unsafe {
        asm!(
            "cmp {n}, 256",
            "jb 3f",
            "2:",
            "vmovdqu64 zmm16, zmmword ptr [{s}]",
            "vmovdqu64 zmm17, zmmword ptr [{s} + 64]",
            "vmovdqu64 zmm18, zmmword ptr [{s} + 128]",
            "vmovdqu64 zmm19, zmmword ptr [{s} + 192]",
            "vmovntdq zmmword ptr [{d}], zmm16",
            "vmovntdq zmmword ptr [{d} + 64], zmm17",
            "vmovntdq zmmword ptr [{d} + 128], zmm18",
            "vmovntdq zmmword ptr [{d} + 192], zmm19",
            "add {s}, 256",
            "add {d}, 256",
            "sub {n}, 256",
            "cmp {n}, 256",
            "jae 2b",
            "3:",
            "test {n}, {n}",
            "jz 5f",
            "4:",
            "vmovdqu64 zmm16, zmmword ptr [{s}]",
            "vmovntdq zmmword ptr [{d}], zmm16",
            "add {s}, 64",
            "add {d}, 64",
            "sub {n}, 64",
            "jnz 4b",
            "5:",
            s = inout(reg) from => _, d = inout(reg) to => _, n = inout(reg) len => _,
            out("zmm16") _, out("zmm17") _, out("zmm18") _, out("zmm19") _,
            options(nostack)
        );
    }
}

/// Streams lines by four 16-byte stores each, back to back, for processors without 64-byte stores.
///
/// # Safety
/// As [`stream_lines`].
unsafe fn stream_lines_narrow(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the loop steps over exactly `len` bytes on both sides, 64 at a time, which the caller
    // guarantees; `to` is 64-aligned, so each part is 16-aligned, which movntdq demands.
    unsafe {
        asm!(
            "test {n}, {n}",
            "jz 3f",
            "2:",
            "movups {a}, xmmword ptr [{s}]",
            "movups {b}, xmmword ptr [{s} + 16]",
            "movups {e}, xmmword ptr [{s} + 32]",
            "movups {f}, xmmword ptr [{s} + 48]",
            "movntdq xmmword ptr [{d}], {a}",
            "movntdq xmmword ptr [{d} + 16], {b}",
            "movntdq xmmword ptr [{d} + 32], {e}",
            "movntdq xmmword ptr [{d} + 48], {f}",
            "add {s}, 64",
            "add {d}, 64",
            "sub {n}, 64",
            "jnz 2b",
            "3:",
            s = inout(reg) from => _, d = inout(reg) to => _, n = inout(reg) len => _,
            a = out(xmm_reg) _, b = out(xmm_reg) _, e = out(xmm_reg) _, f = out(xmm_reg) _,
            options(nostack)
        );
    }
}

/// Stores one word past the cache. Unordered until a drain.
///
/// # Safety
/// `to` is writable for 8 bytes and aligned to 8.
#[inline]
pub unsafe fn stream_word(to: *mut u8, value: u64) {
    // SAFETY: one 8-byte store to an address that the caller guarantees; being aligned, it is one
    // access and cannot be torn.
    unsafe {
        asm!("movnti qword ptr [{d}], {v}", d = in(reg) to, v = in(reg) value,
             options(nostack, preserves_flags));
    }
}

/// Starts the write-back of every line that `len` bytes at `at` touch. Unordered until a drain.
///
/// # Safety
/// The bytes are in mapped memory.
#[inline]
pub unsafe fn write_back(cpu: Cpu, at: *const u8, len: usize) {
    if len == 0 {
        return;
    }
    let first = at.map_addr(|a| a & !(LINE - 1));
    let lines = (at.addr() - first.addr() + len).div_ceil(LINE);
    for n in 0..lines {
        // SAFETY: the line holds at least one of the caller's bytes, so it is mapped.
        unsafe { write_back_line(cpu, first.wrapping_add(n * LINE)) }
    }
}

/// Starts the write-back of the line that holds the byte at `at`. Unordered until a drain.
///
/// # Safety
/// The byte is in mapped memory.
#[inline(always)]
pub unsafe fn write_back_line(cpu: Cpu, at: *const u8) {
    // SAFETY: the caller guarantees that the byte is mapped; the proof says that the instruction
    // exists. None of the instructions changes memory contents.
    unsafe {
        match cpu.write_back.kind() {
            WriteBackKind::Clwb => {
                asm!("clwb [{0}]", in(reg) at, options(nostack, preserves_flags));
            }
            WriteBackKind::ClflushOpt => {
                asm!("clflushopt [{0}]", in(reg) at, options(nostack, preserves_flags));
            }
            WriteBackKind::Clflush => {
                asm!("clflush [{0}]", in(reg) at, options(nostack, preserves_flags));
            }
        }
    }
}

/// Waits until all earlier stores, streams and write-backs of this thread have been accepted by the
/// memory, and orders them before everything later.
#[inline]
pub fn drain() {
    // SAFETY: sfence has no operands and no precondition. No `nomem`: the compiler must not move
    // memory accesses across it.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) }
}

/// Prefetches a line for a store. A hint.
#[inline]
pub fn prefetch_write(cpu: Cpu, at: *const u8) {
    // SAFETY: prefetches never fault, whatever the address, and change no memory contents.
    // `prefetchw` is used only where CPUID has it.
    unsafe {
        if cpu.prefetch_write {
            asm!("prefetchw [{0}]", in(reg) at, options(nostack, preserves_flags, readonly));
        } else {
            asm!("prefetcht0 [{0}]", in(reg) at, options(nostack, preserves_flags, readonly));
        }
    }
}

/// Prefetches the line at `at` for a load.
#[inline]
pub fn prefetch_read(at: *const u8) {
    // SAFETY: prefetches never fault, whatever the address, and change no memory contents.
    unsafe {
        asm!("prefetcht0 [{0}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both stream widths agree, whatever detection would choose.
    #[test]
    fn stream_widths_agree() {
        #[repr(align(64))]
        struct Lines([u8; 1024]);
        let from: Vec<u8> = (0..2048).map(|n| (n % 251) as u8).collect();
        for lines in 0..=16 {
            for shift in 0..64 {
                let from = &from[shift..];
                let len = lines * LINE;
                let mut to = Lines([0xee; 1024]);
                // SAFETY: `to` is 64-aligned and holds 1024 bytes, `from` at least 1984; `len` is a
                // multiple of 64 of at most 1024.
                unsafe { stream_lines_narrow(to.0.as_mut_ptr(), from.as_ptr(), len) };
                drain();
                assert_eq!(to.0[..len], from[..len]);
                assert!(to.0[len..].iter().all(|b| *b == 0xee));
                if let Some(proof) = Cpu::get().wide {
                    let mut to = Lines([0xee; 1024]);
                    // SAFETY: as above, and the proof says that AVX-512F exists.
                    unsafe { stream_lines_wide(proof, to.0.as_mut_ptr(), from.as_ptr(), len) };
                    drain();
                    assert_eq!(to.0[..len], from[..len]);
                    assert!(to.0[len..].iter().all(|b| *b == 0xee));
                }
            }
        }
    }

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

    /// Every write-back instruction of this processor leaves the contents alone.
    #[test]
    fn write_back_keeps_contents() {
        let bytes: Vec<u8> = (0..1000u32).map(|n| n as u8).collect();
        for at in 0..130 {
            for len in [0, 1, 63, 64, 65, 128, 700] {
                // SAFETY: at + len is at most 830, inside the vector.
                unsafe { write_back(Cpu::get(), bytes.as_ptr().add(at), len) };
            }
        }
        drain();
        assert!(bytes.iter().enumerate().all(|(n, b)| *b == n as u8));
    }
}
