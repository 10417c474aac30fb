//! Detection of the x86-64 processor's features.
//!
//! Owns: CPUID, and the values that prove its answers. A [`Wide`] or a [`WriteBack`] cannot be made
//! outside this file. So code that holds one need not ask again, and an instruction that takes one
//! as its witness cannot be reached on a processor without it.
//!
//! Invariant: detection runs once a process ([`Cpu::get`]); the answer never changes afterwards.
//!
//! May import: `core::arch` and std only.

use std::arch::x86_64::{__cpuid_count, CpuidResult};
use std::sync::OnceLock;

/// Proof that 64-byte vector stores (AVX-512F, and an operating system that saves its registers)
/// may be used.
#[derive(Clone, Copy, Debug)]
pub struct Wide(());

/// Proof that `rep movsb` has a fast microcode (ERMS), so that it beats a loop for long copies.
#[derive(Clone, Copy, Debug)]
pub struct FastString(());

/// Proof that the processor has the instruction for CRC-32C (SSE4.2).
#[derive(Clone, Copy, Debug)]
pub struct Crc(());

impl Fold {
    /// Returns the proof for the CRC-32C instruction.
    pub fn crc(self) -> Crc {
        Crc(())
    }
}

impl Crc {
    /// Returns the proof if the processor has the instruction.
    pub fn get() -> Option<Crc> {
        is_x86_feature_detected!("sse4.2").then_some(Crc(()))
    }
}

/// Proof that 64 bytes can be multiplied without carries (VPCLMULQDQ), to compute a checksum a line
/// at a time. It includes what [`Wide`] and [`Crc`] prove.
#[derive(Clone, Copy, Debug)]
pub struct Fold(());

/// Proof that single bytes of 64-byte vectors can be loaded and stored (AVX-512BW). It includes
/// what [`Wide`] proves.
#[derive(Clone, Copy, Debug)]
pub struct Masked(());

/// Proof that the contained write-back instruction exists.
#[derive(Clone, Copy, Debug)]
pub struct WriteBack(WriteBackKind);

impl WriteBack {
    /// Returns the instruction.
    #[inline]
    pub fn kind(self) -> WriteBackKind {
        self.0
    }
}

/// The write-back instructions, best first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteBackKind {
    /// Writes the line back and may keep it in the cache; unordered.
    Clwb,
    /// Writes the line back and drops it; unordered.
    ClflushOpt,
    /// Writes the line back and drops it; ordered with every other clflush, hence slow, but
    /// correct.
    Clflush,
}

/// The features that copies and flushes choose by.
#[derive(Clone, Copy, Debug)]
pub struct Cpu {
    /// The best write-back instruction.
    pub write_back: WriteBack,
    /// 64-byte vector stores.
    pub wide: Option<Wide>,
    /// 64-byte vectors of which only some bytes are stored.
    pub masked: Option<Masked>,
    /// 64-byte products without carries.
    pub fold: Option<Fold>,
    /// A fast `rep movsb`.
    pub fast_string: Option<FastString>,
    /// `prefetchw` brings a line in for writing; without it a plain prefetch is used.
    pub prefetch_write: bool,
}

impl Cpu {
    /// Returns the processor that this process runs on. Detected once.
    pub fn get() -> Cpu {
        static CPU: OnceLock<Cpu> = OnceLock::new();
        *CPU.get_or_init(detect)
    }
}

/// Returns what the processor says in a leaf, in its first part.
fn cpuid(leaf: u32) -> CpuidResult {
    // SAFETY: every x86-64 processor has the instruction. For a leaf that it lacks it returns the
    // bits of another one, which the caller takes care of.
    #[allow(unused_unsafe, reason = "the call is safe in newer versions of Rust")]
    unsafe {
        __cpuid_count(leaf, 0)
    }
}

fn detect() -> Cpu {
    let highest = cpuid(0).eax;
    let highest_extended = cpuid(0x8000_0000).eax;
    // Leaf 7 of a processor that ends before it would repeat another leaf's bits: treat it as
    // absent.
    let leaf7 = (highest >= 7).then(|| cpuid(7));
    let bit7 = |bit: u32| leaf7.is_some_and(|leaf| leaf.ebx & (1 << bit) != 0);
    let kind = if bit7(24) {
        WriteBackKind::Clwb
    } else if bit7(23) {
        WriteBackKind::ClflushOpt
    } else {
        // Leaf 1 EDX bit 19 is CLFSH. Every x86-64 processor has it: it came with SSE2, which the
        // architecture includes.
        debug_assert!(cpuid(1).edx & (1 << 19) != 0);
        WriteBackKind::Clflush
    };
    Cpu {
        write_back: WriteBack(kind),
        // The standard library's test covers CPUID and XGETBV both.
        wide: is_x86_feature_detected!("avx512f").then_some(Wide(())),
        masked: (is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw"))
            .then_some(Masked(())),
        fold: (is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("vpclmulqdq")
            && is_x86_feature_detected!("sse4.2"))
        .then_some(Fold(())),
        fast_string: bit7(9).then_some(FastString(())),
        prefetch_write: highest_extended >= 0x8000_0001 && cpuid(0x8000_0001).ecx & (1 << 8) != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detection_is_stable_and_agrees_with_the_kernel() {
        let cpu = Cpu::get();
        assert_eq!(cpu.write_back.kind(), detect().write_back.kind());
        // The kernel's list may hide what a hypervisor masks, but it may not show less than we
        // detect.
        let Ok(text) = std::fs::read_to_string("/proc/cpuinfo") else {
            return;
        };
        let has = |name: &str| text.split_ascii_whitespace().any(|word| word == name);
        assert_eq!(cpu.write_back.kind() == WriteBackKind::Clwb, has("clwb"));
        assert_eq!(cpu.wide.is_some(), has("avx512f"));
        assert_eq!(cpu.masked.is_some(), has("avx512f") && has("avx512bw"));
        assert_eq!(cpu.fold.is_some(), has("avx512f") && has("vpclmulqdq") && has("sse4_2"));
        assert_eq!(cpu.fast_string.is_some(), has("erms"));
        assert_eq!(Crc::get().is_some(), has("sse4_2"));
        // The kernel lists it for every 64-bit AMD processor, whatever CPUID says (QEMU's
        // emulation, for one).
        assert!(!cpu.prefetch_write || has("3dnowprefetch"));
    }
}
