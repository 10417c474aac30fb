//! Copies for processors without a specific implementation, and under Miri.
//!
//! Owns: copies by relaxed atomic operations on the mapped side, so that a racing reader sees torn
//! data but never undefined behaviour.
//!
//! Invariants:
//! - The mapped side is accessed by aligned 8-byte atomics only. Rust's model leaves racing
//!   accesses of different sizes undefined. So a range that starts or ends inside a word reads the
//!   whole word, and writes it by a read-modify-write that leaves the other bytes alone.
//! - Nothing can be written back from the caches here, so this code can promise only to survive a
//!   process crash. `FLUSHES` says so, and causes mappings of persistent memory to be refused.
//! - A copy into the mapping starts with a release fence and one out of it ends with an acquire
//!   fence. This gives the order that the x86-64 code has by nature.
//!
//! May import: `runs` only.

use super::runs::runs;
use std::sync::atomic::{AtomicU64, Ordering, fence};

const WORD: usize = 8;
/// Bytes that are always on one side together.
const LINE: usize = 64;

/// No stores past the cache, no write-back.
pub const FLUSHES: bool = false;

/// A processor without detected features.
#[derive(Clone, Copy, Debug)]
pub struct Cpu(());

impl Cpu {
    /// Returns the processor that this process runs on.
    pub fn get() -> Cpu {
        Cpu(())
    }
}

/// A proof that never exists: this code knows no instruction for CRC-32C.
#[derive(Clone, Copy, Debug)]
pub enum Crc {}

impl Crc {
    /// Returns `None`.
    pub fn get() -> Option<Crc> {
        None
    }

    /// Cannot be called.
    pub fn of_words(self, _words: impl IntoIterator<Item = u64>) -> u32 {
        match self {}
    }

    /// Cannot be called.
    pub fn appended(self, _sum: u32, _words: impl IntoIterator<Item = u64>) -> u32 {
        match self {}
    }
}

/// Returns `None`: this code knows no instruction for products without carries.
pub fn weighted_sum(_: &[[u8; LINE]], _: &[[u64; LINE / WORD]], _: (u64, u64)) -> Option<u64> {
    None
}

/// A proof that never exists: no store here is wider than a word.
#[derive(Clone, Copy, Debug)]
pub enum Masked {}

/// Returns `None`: there is no such instruction.
#[inline]
pub fn stores_in_line(_: Cpu) -> Option<Masked> {
    None
}

/// Cannot be called.
///
/// # Safety
/// As on x86-64.
#[inline]
pub unsafe fn store_in_line(proof: Masked, _: *mut u8, _: *const u8, _: usize) {
    match proof {}
}

/// Returns the atomic word that holds the byte at `at`.
///
/// # Safety
/// The aligned word that holds `at` is in the mapping.
#[inline]
unsafe fn word<'a>(at: *const u8) -> &'a AtomicU64 {
    let aligned = at.cast_mut().map_addr(|a| a & !(WORD - 1));
    // SAFETY:
    // - valid for reads and writes: the caller guarantees that the word is in the mapping;
    // - aligned: just made so;
    // - no racing access that is not atomic or of another size: everything on the mapped side goes
    //   through this function or `atomic_word.rs`, 8 bytes each.
    unsafe { AtomicU64::from_ptr(aligned.cast()) }
}

/// Copies from a buffer into the mapping.
///
/// # Safety
/// - `from` is readable for `len` bytes and does not overlap `to`.
/// - The aligned words that hold any byte of `[to, to + len)` are in the mapping.
pub unsafe fn copy_in(_cpu: Cpu, to: *mut u8, from: *const u8, len: usize) {
    fence(Ordering::Release);
    let mut at = 0;
    while at < len {
        let skip = (to.addr() + at) % WORD;
        let n = (WORD - skip).min(len - at);
        let mut value = [0; WORD];
        // SAFETY:
        // - `at + n <= len`, so the source bytes are the caller's, and `skip + n <= 8`;
        // - the word holds the byte at `to + at`, so the caller guarantees that it is in the
        //   mapping.
        let word = unsafe {
            from.add(at).copy_to_nonoverlapping(value[skip..].as_mut_ptr(), n);
            word(to.add(at))
        };
        let value = u64::from_ne_bytes(value);
        if n == WORD {
            word.store(value, Ordering::Relaxed);
        } else {
            let mut mask = [0; WORD];
            mask[skip..skip + n].fill(0xff);
            let mask = u64::from_ne_bytes(mask);
            // The update never declines, so its result can be ignored.
            let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |old| {
                Some(old & !mask | value)
            });
        }
        at += n;
    }
}

/// Copies from the mapping into a buffer.
///
/// # Safety
/// - `to` is writable for `len` bytes and does not overlap `from`.
/// - The aligned words that hold any byte of `[from, from + len)` are in the mapping.
pub unsafe fn copy_out(_cpu: &Cpu, to: *mut u8, from: *const u8, len: usize) {
    let mut at = 0;
    while at < len {
        let skip = (from.addr() + at) % WORD;
        let n = (WORD - skip).min(len - at);
        // SAFETY:
        // - the word holds the byte at `from + at`, so the caller guarantees that it is in the
        //   mapping;
        // - `at + n <= len`, so the target bytes are the caller's, and `skip + n <= 8`.
        unsafe {
            let value = word(from.add(at)).load(Ordering::Relaxed).to_ne_bytes();
            to.add(at).copy_from_nonoverlapping(value[skip..].as_ptr(), n);
        }
        at += n;
    }
    fence(Ordering::Acquire);
}

/// Copies inside the mapping.
///
/// # Safety
/// - The aligned words that hold any byte of both ranges are in the mapping.
/// - The ranges do not overlap.
pub unsafe fn copy_across(cpu: Cpu, to: *mut u8, from: *const u8, len: usize) {
    // By way of a buffer: the two sides need not agree modulo the word.
    let mut buffer = [0; 512];
    let mut at = 0;
    while at < len {
        let n = buffer.len().min(len - at);
        // SAFETY: `at + n <= len`, so both sides are the caller's; the buffer holds `n` bytes and
        // is a local, so it overlaps neither.
        unsafe {
            copy_out(&cpu, buffer.as_mut_ptr(), from.add(at), n);
            copy_in(cpu, to.add(at), buffer.as_ptr(), n);
        }
        at += n;
    }
}

/// Copies neighbouring lines of 64 bytes, each to the one of two places that its bit of `sides`
/// selects.
///
/// # Safety
/// - For each line, its 64 bytes after `from` are readable, and do not overlap their target.
/// - Its 64 bytes after its side's place of `to` are in the mapping, as are the aligned words that
///   hold any of them.
pub unsafe fn copy_to_sides(cpu: Cpu, to: [*mut u8; 2], sides: u64, from: *const u8, lines: usize) {
    for (side, run) in runs(sides, lines) {
        // SAFETY: the caller guarantees this for all lines, and so for those of the run.
        unsafe {
            let at = run.start * LINE;
            copy_in(cpu, to[side].add(at), from.add(at), run.len() * LINE);
        }
    }
}

/// Copies neighbouring lines of 64 bytes, each from the one of two places that its bit of `sides`
/// selects.
///
/// # Safety
/// - For each line, its 64 bytes after `to` are writable, and do not overlap their source.
/// - Its 64 bytes after its side's place of `from` are in the mapping, as are the aligned words
///   that hold any of them.
pub unsafe fn copy_from_sides(
    cpu: Cpu,
    to: *mut u8,
    from: [*const u8; 2],
    sides: u64,
    lines: usize,
) {
    for (side, run) in runs(sides, lines) {
        // SAFETY: the caller guarantees this for all lines, and so for those of the run.
        unsafe {
            let at = run.start * LINE;
            copy_out(&cpu, to.add(at), from[side].add(at), run.len() * LINE);
        }
    }
}

/// Panics: there is no streaming here, and `copy` plans none where `FLUSHES` is false.
///
/// # Safety
/// None; the signature is that of the x86-64 code.
pub unsafe fn stream_line(_to: *mut u8, _line: [u64; 8]) {
    unreachable!("nothing is streamed here")
}

/// # Safety
/// None: it is not called.
pub unsafe fn stream(_cpu: Cpu, _to: *mut u8, _from: *const u8, _len: usize) {
    unreachable!("no part of a portable copy is streamed")
}

/// # Safety
/// None: it is not called.
pub unsafe fn stream_to_sides(
    _cpu: Cpu,
    _to: [*mut u8; 2],
    _sides: u64,
    _from: *const u8,
    _lines: usize,
) {
    unreachable!("nothing is streamed here")
}

/// Returns `false`: nothing is streamed here, so no checksum is computed on the way.
pub fn sums_on_the_way(_cpu: Cpu) -> bool {
    false
}

/// # Safety
/// None: nothing is done.
pub unsafe fn stream_to_sides_summed(
    _cpu: Cpu,
    _to: [*mut u8; 2],
    _sides: u64,
    _from: *const u8,
    _lines: usize,
) -> Option<u32> {
    None
}

/// Stores one word (the processor's byte order).
///
/// # Safety
/// `to` is aligned to 8 and in the mapping.
pub unsafe fn stream_word(to: *mut u8, value: u64) {
    // SAFETY: the caller's contract is the same.
    unsafe { word(to) }.store(value, Ordering::Release);
}

/// Does nothing: there is no write-back.
///
/// # Safety
/// None; the signature is that of the x86-64 code.
pub unsafe fn write_back(_cpu: Cpu, _at: *const u8, _len: usize) {}

/// Does nothing, as [`write_back`].
///
/// # Safety
/// None.
pub unsafe fn write_back_line(_cpu: Cpu, _at: *const u8) {}

/// Orders everything before against everything after, for other threads.
pub fn drain() {
    fence(Ordering::SeqCst);
}

/// Does nothing: no such hint is known.
pub fn prefetch_write(_cpu: Cpu, _at: *const u8) {}

/// Does nothing, as above.
#[inline]
pub fn prefetch_read(_at: *const u8) {}

/// Does nothing, as above.
#[inline]
pub fn prefetch_from_sides(_from: [*const u8; 2], _sides: u64, _lines: usize) {}
