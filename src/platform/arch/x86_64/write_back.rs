//! Write-backs of cache lines, and the drain.
//!
//! Owns: the instructions that write a line back, and the fence that waits for them and for
//! streamed stores.
//!
//! Invariants: those of the parent. A write-back is unordered until a drain, and changes no
//! contents.
//!
//! May import: `cpu` only.

use super::cpu::WriteBackKind;
use super::{Cpu, LINE};
use std::arch::asm;

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

#[cfg(test)]
mod tests {
    use super::*;

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
