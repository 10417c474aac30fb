//! The store of a part of a line by one instruction.
//!
//! A process that is killed has executed an instruction or not: a signal comes between two
//! instructions. One that faults has stored nothing, since its line lies within a page. So where
//! only the process can die, the bytes of one instruction are stored as a whole. Other threads may
//! still see a part of them: readers validate versions.
//!
//! May import: `cpu` only.

use super::{Cpu, LINE, Masked};
use std::arch::asm;

/// Returns the proof if the processor has an instruction for this.
#[inline]
pub fn stores_in_line(cpu: Cpu) -> Option<Masked> {
    cpu.masked
}

/// Stores `len` bytes, from 1 to 64, by one instruction through the cache.
///
/// # Safety
/// - `from` is readable and `to` is writable for `len` bytes, and the two do not overlap.
/// - All of them lie in one line on the side of `to`.
#[inline(always)]
pub unsafe fn store_in_line(_proof: Masked, to: *mut u8, from: *const u8, len: usize) {
    let start = to.addr() % LINE;
    debug_assert!(0 < len && start + len <= LINE);
    // SAFETY:
    // - the instructions exist: the proof says so;
    // - a whole line lies in the range that the caller guarantees;
    // - in a partial line, the bytes outside that range are masked: they are neither loaded nor
    //   stored, and cause no fault (Intel SDM, volume 1, 15.6.4). The shift is below 64, since
    //   `start` is, and its mask has `len` bits, all inside the line.
    unsafe {
        if len == LINE {
            asm!(
                "vmovdqu64 zmm16, zmmword ptr [{s}]",
                "vmovdqa64 zmmword ptr [{d}], zmm16",
                s = in(reg) from, d = in(reg) to, out("zmm16") _,
                options(nostack, preserves_flags)
            );
        } else {
            let mask = ((1u64 << len) - 1) << start;
            asm!(
                "kmovq k1, {mask}",
                "vmovdqu8 zmm16 {{k1}} {{z}}, zmmword ptr [{s}]",
                "vmovdqu8 zmmword ptr [{d}] {{k1}}, zmm16",
                s = in(reg) from.wrapping_sub(start), d = in(reg) to.wrapping_sub(start), mask = in(reg) mask,
                out("zmm16") _, out("k1") _,
                options(nostack, preserves_flags)
            );
        }
    }
}
