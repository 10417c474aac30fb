//! Prefetches of single lines.
//!
//! Owns: the hints. A prefetch never faults, whatever the address, and changes no contents.
//!
//! May import: `cpu` only.

use super::Cpu;
use std::arch::asm;

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
