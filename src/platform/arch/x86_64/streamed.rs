//! Copies past the cache.
//!
//! Owns: the streaming stores, by words, by lines, and from registers.
//!
//! Invariants: those of the parent. Streamed stores are unordered until a drain.
//!
//! May import: `cpu`, and `write_back` in tests.

use super::cpu::Wide;
use super::{Cpu, LINE};
use std::arch::asm;

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
/// As [`copy`](super::cached::copy); `to` is aligned to 8 and `len` is a multiple of 8.
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
/// As [`copy`](super::cached::copy); `to` is aligned to 64 and `len` is a multiple of 64.
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
            copy_four_wide_lines!("vmovntdq"),
            "test {n}, {n}",
            "jz 5f",
            "4:",
            copy_wide_line!("vmovntdq", "{s}" to "{d}"),
            next_line!(),
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
            copy_narrow_line!("movntdq", "{s}" to "{d}"),
            next_line!(),
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

#[cfg(test)]
mod tests {
    use super::super::drain;
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
}
