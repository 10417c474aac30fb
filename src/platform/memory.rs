//! The memory face of [`Platform`]: copies, stores, loads, flushes, drains and prefetches.
//!
//! Owns: the choice between the real machine, the recorder and the simulated machine, for memory.
//!
//! Invariant: every access to mapped bytes begins with a yield point, where the scheduler of a
//! model checker may switch threads.
//!
//! May import: `copy`, `atomic_word`, `arch`, the vocabulary of `mod.rs`, the crate `crc32c`, and
//! the yield point of `primitive`.

use super::arch::{isa, runs as sides};
use super::{Copying, InLine, Native, Place, Platform, atomic_word as word};
use crate::primitive::yield_point;

impl Platform {
    /// Returns the machine itself. `None` under a recorder and on a simulated machine: they take no
    /// hints.
    #[inline(always)]
    fn as_native(&self) -> Option<&Native> {
        match self {
            Platform::Native(native) => Some(native),
            #[cfg(feature = "recorder")]
            _ => None,
        }
    }

    /// Copies a caller's buffer into the mapping. Any alignment, any length.
    ///
    /// No atomicity of any width: a concurrent reader may see any mixture of old and new bytes, and
    /// a crash may keep any mixture. With [`Copying::BySize`] this thread must drain before
    /// anything publishes the bytes. Under [`Persistence::Process`](super::Persistence::Process)
    /// the copy itself has done what is needed. After that drain the bytes survive what
    /// [`Platform::persistence`] names. With [`Copying::Cached`] the caller flushes.
    ///
    /// # Safety
    /// The `from.len()` bytes at `to` are in a live, writable mapping and within its file. No other
    /// thread writes to them at the same time. Readers may race: they see torn bytes.
    #[inline]
    pub unsafe fn copy_in(&self, to: Place, from: &[u8], how: Copying) {
        yield_point();
        // SAFETY: the caller's contract is the same.
        unsafe { by_machine!(self.copy_in(place to, from, how)) }
    }

    /// Copies one cache line, given as words in registers, as [`Platform::copy_in`] with
    /// [`Copying::BySize`]. The first word is stored first, each with its least significant byte
    /// first.
    ///
    /// # Safety
    /// As [`Platform::copy_in`] of 64 bytes, and `to` is aligned to 64.
    #[inline(always)]
    pub unsafe fn store_line(&self, to: Place, line: [u64; 8]) {
        yield_point();
        // SAFETY: the caller's contract is the same.
        unsafe {
            match self.as_native() {
                Some(native) => native.store_line(to.checked(), line),
                None => {
                    let bytes = line.map(u64::to_le_bytes);
                    self.copy_in(to, bytes.as_flattened(), Copying::BySize);
                }
            }
        }
    }

    /// Returns how one instruction can store bytes within a cache line, if the processor can. A
    /// thread that is killed has then stored all of them or none. A simulated machine, which loses
    /// power, cannot.
    pub fn in_line(&self) -> Option<InLine> {
        match self {
            Platform::Native(native) => native.in_line(),
            #[cfg(feature = "recorder")]
            Platform::Recording(recorder) => recorder.native().in_line(),
            #[cfg(feature = "recorder")]
            Platform::Simulated(_) => None,
        }
    }

    /// Stores `from` by one instruction, through the cache and not flushed. Other threads see it
    /// after earlier stores, and may see it torn.
    ///
    /// # Safety
    /// As [`Platform::copy_in`], and `from` is not empty and goes to one cache line.
    #[inline(always)]
    pub unsafe fn store_in_line(&self, how: InLine, to: Place, from: &[u8]) {
        yield_point();
        // SAFETY: the caller's contract is the same.
        unsafe {
            match self {
                Platform::Native(native) => native.store_in_line(how, to.checked(), from),
                #[cfg(feature = "recorder")]
                Platform::Recording(recorder) => recorder.store_in_line(how, to, from),
                #[cfg(feature = "recorder")]
                Platform::Simulated(_) => unreachable!("it gives no proof that this is to be had"),
            }
        }
    }

    /// Copies at most 64 cache lines as [`Platform::copy_in`] with [`Copying::BySize`], each to its
    /// own side: line `n` goes to its place after `to[1]` where bit `n` of `sides` is one, and
    /// after `to[0]` where it is zero.
    ///
    /// # Safety
    /// As [`Platform::copy_in`], of each line on its own side. Both of `to` are aligned to lines.
    #[inline(always)]
    pub unsafe fn copy_lines_to_sides(&self, to: [Place; 2], sides: u64, from: &[u8]) {
        match self {
            // SAFETY: the caller's contract is the same.
            Platform::Native(native) if !cfg!(shuttle) => unsafe {
                native.copy_lines_to_sides([to[0].checked(), to[1].checked()], sides, from);
            },
            // One run of neighbouring lines after the other. Under a scheduler each run is copied
            // in two halves, since no copy is one step.
            _ => {
                for (side, run) in sides::runs(sides, from.len() / 64) {
                    let mut start = run.start * 64;
                    for half in sides::steps(run.len() * 64) {
                        let bytes = &from[start..start + half];
                        // SAFETY: the caller guarantees these bytes, among others.
                        unsafe { self.copy_in(to[side].plus(start), bytes, Copying::BySize) }
                        start += half;
                    }
                }
            }
        }
    }

    /// Returns `true` if [`copy_lines_to_sides_summed`](Self::copy_lines_to_sides_summed) is as
    /// fast as the copy without the checksum.
    #[inline(always)]
    pub fn sums_on_the_way(&self) -> bool {
        // `true` in tests, so that they execute the code that depends on it.
        self.as_native().is_none_or(Native::sums_on_the_way)
    }

    /// Copies as [`Platform::copy_lines_to_sides`], and returns the CRC-32C of the bytes.
    ///
    /// # Safety
    /// As [`Platform::copy_lines_to_sides`].
    #[inline(always)]
    pub unsafe fn copy_lines_to_sides_summed(
        &self,
        to: [Place; 2],
        sides: u64,
        from: &[u8],
    ) -> u32 {
        match self {
            Platform::Native(native) if !cfg!(shuttle) => {
                let to = [to[0].checked(), to[1].checked()];
                // SAFETY: the caller's contract is the same.
                unsafe { native.copy_lines_to_sides_summed(to, sides, from) }
            }
            _ => {
                // SAFETY: the caller's contract is the same.
                unsafe { self.copy_lines_to_sides(to, sides, from) };
                ::crc32c::crc32c(from)
            }
        }
    }

    /// Copies from the mapping into a caller's buffer. The bytes may be torn if another thread
    /// writes to them at the same time. The caller detects that afterwards, by versions or
    /// checksums.
    ///
    /// # Safety
    /// The `to.len()` bytes at `from` are in a live mapping and within its file.
    #[inline]
    pub unsafe fn copy_out(&self, to: &mut [u8], from: *const u8) {
        yield_point();
        // SAFETY: the caller's contract is the same.
        unsafe {
            match self {
                Platform::Native(native) => native.copy_out(to, from),
                #[cfg(feature = "recorder")]
                Platform::Recording(recorder) => recorder.native().copy_out(to, from),
                #[cfg(feature = "recorder")]
                Platform::Simulated(simulated) => simulated.copy_out(to, from),
            }
        }
    }

    /// Copies bytes of at most 64 lines as [`Platform::copy_out`], each line from its own side. The
    /// line with the first byte comes from `from[1]` where bit 0 of `sides` is one, and from
    /// `from[0]` where it is zero. Each next line has the next bit.
    ///
    /// # Safety
    /// As [`Platform::copy_out`], of the bytes of each line on its own side. Both of `from` are at
    /// the same distance from the start of a line.
    #[inline(always)]
    pub unsafe fn copy_out_of_sides(&self, to: &mut [u8], from: [*const u8; 2], sides: u64) {
        debug_assert_eq!(from[0].addr() % 64, from[1].addr() % 64);
        match self {
            // SAFETY: the caller's contract is the same.
            Platform::Native(native) if !cfg!(shuttle) => unsafe {
                native.copy_out_of_sides(to, from, sides);
            },
            // As in `copy_lines_to_sides`.
            _ => {
                let before = from[0].addr() % 64;
                for (side, run) in sides::runs(sides, (before + to.len()).div_ceil(64)) {
                    let mut start = (run.start * 64).saturating_sub(before);
                    let end = (run.end * 64 - before).min(to.len());
                    for half in sides::steps(end - start) {
                        let at = from[side].wrapping_add(start);
                        // SAFETY: the caller guarantees these bytes, among others.
                        unsafe { self.copy_out(&mut to[start..start + half], at) }
                        start += half;
                    }
                }
            }
        }
    }

    /// Copies inside mapped memory, by the rules of [`Platform::copy_in`].
    ///
    /// # Safety
    /// As [`Platform::copy_in`] for `to`, as [`Platform::copy_out`] for `from`, and the two ranges
    /// do not overlap.
    #[inline]
    pub unsafe fn copy_across(&self, to: Place, from: *const u8, len: usize, how: Copying) {
        yield_point();
        if let Some(native) = self.as_native() {
            // SAFETY: the caller's contract is the same.
            return unsafe { native.copy_across(to.checked(), from, len, how) };
        }
        // By way of a buffer, so that a trace holds what was stored, even if another thread writes
        // to the source meanwhile.
        let mut bytes = vec![0; len];
        // SAFETY: the caller's contract covers both.
        unsafe {
            self.copy_out(&mut bytes, from);
            self.copy_in(to, &bytes, how);
        }
    }

    /// Stores zeros, by the rules of [`Platform::copy_in`] with [`Copying::BySize`].
    ///
    /// # Safety
    /// As [`Platform::copy_in`].
    #[inline]
    pub unsafe fn fill_zero(&self, to: Place, len: usize) {
        yield_point();
        // SAFETY: the caller's contract is the same.
        unsafe {
            match self.as_native() {
                Some(native) => native.fill_zero(to.checked(), len),
                None => self.copy_in(to, &vec![0; len], Copying::BySize),
            }
        }
    }

    /// Flushes every cache line that the range touches, as [`Platform::flush_word`].
    ///
    /// # Safety
    /// The range is in a live mapping.
    #[inline]
    pub unsafe fn flush(&self, at: Place, len: usize) {
        // SAFETY: the caller's contract is the same.
        unsafe { by_machine!(self.flush(place at, len)) }
    }

    /// Starts the write-back of a word's cache line. Unordered; a drain by the same thread
    /// completes it. Does nothing unless [`Persistence::Flush`](super::Persistence::Flush) is
    /// demanded.
    ///
    /// # Safety
    /// The word is in a live mapping, and aligned.
    #[inline(always)]
    pub unsafe fn flush_word(&self, at: Place) {
        match self {
            // SAFETY: the caller's contract is the same.
            Platform::Native(native) => unsafe { native.flush_word(at.checked()) },
            #[cfg(feature = "recorder")]
            // SAFETY: the caller's contract is the same.
            _ => unsafe { self.flush(at, 8) },
        }
    }

    /// Waits until everything that this thread has flushed or streamed is durable, and orders it
    /// before what follows. Under [`Persistence::Process`](super::Persistence::Process) it is a
    /// fence for the compiler only.
    #[inline]
    pub fn drain(&self) {
        by_machine!(self.drain());
    }

    /// Prefetches a line for a store. A hint: it never faults and leaves no trace.
    ///
    /// # Safety
    /// None on the processors that we know; it is `unsafe` so that only `store/` calls it.
    #[inline]
    pub unsafe fn prefetch_write(&self, at: *const u8) {
        if let Some(native) = self.as_native() {
            native.prefetch_write(at);
        }
    }

    /// Prefetches the line at `at` for a load. A hint: it never faults, whatever the address.
    ///
    /// # Safety
    /// None on the processors that we know; it is `unsafe` so that only `store/` calls it.
    #[inline]
    pub unsafe fn prefetch_read(&self, at: *const u8) {
        if let Some(native) = self.as_native() {
            native.prefetch_read(at);
        }
    }

    /// Prefetches at most 64 lines for loads, each from its side as in
    /// [`Platform::copy_out_of_sides`].
    ///
    /// # Safety
    /// The lines of both sides are in live mappings.
    #[inline]
    pub unsafe fn prefetch_from_sides(&self, from: [*const u8; 2], sides: u64, lines: usize) {
        if self.as_native().is_some() {
            isa::prefetch_from_sides(from, sides, lines);
        }
    }

    /// Prefetches the line of a value in this process's own memory for a store.
    #[inline]
    pub fn prefetch_own<T>(&self, value: &T) {
        if let Some(native) = self.as_native() {
            native.prefetch_write((&raw const *value).cast());
        }
    }

    /// Loads a word in one access (acquire). Words are little-endian on media.
    ///
    /// # Safety
    /// `at` is aligned to 8 and the word is in a live mapping and within its file.
    #[inline]
    pub unsafe fn load_word(&self, at: *const u8) -> u64 {
        yield_point();
        // SAFETY: the caller's contract is the same.
        unsafe {
            match self {
                #[cfg(feature = "recorder")]
                Platform::Simulated(simulated) => simulated.load_word(at),
                _ => word::load(at),
            }
        }
    }

    /// Stores a word in one access and starts its write-back without waiting: a drain by this
    /// thread completes it. Other threads may see the word late, and out of order, until that
    /// drain.
    ///
    /// Under [`Persistence::Flush`](super::Persistence::Flush) this is a streaming store, and a
    /// plain store otherwise. With its drain a streaming store takes 97 ns, where a store and a
    /// flush take 156 ns (EPYC Zen 4, hot or cold).
    ///
    /// # Safety
    /// `at` is aligned to 8 and the word is in a live, writable mapping and within its file.
    #[inline]
    pub unsafe fn store_word_through(&self, at: Place, value: u64) {
        yield_point();
        // SAFETY: the caller's contract is the same.
        unsafe { by_machine!(self.store_word_through(place at, value)) }
    }

    /// Stores a word in one access through the cache (release), not flushed. Other threads see it
    /// in program order.
    ///
    /// # Safety
    /// As [`Platform::store_word_through`].
    #[inline]
    pub unsafe fn store_word(&self, at: Place, value: u64) {
        yield_point();
        // SAFETY: the caller's contract is the same.
        unsafe { by_machine!(self.store_word(place at, value)) }
    }

    /// Stores `new` if the word holds `old`, in one atomic step (acquire and release), not flushed.
    /// Otherwise returns the word's value as the error.
    ///
    /// # Safety
    /// As [`Platform::store_word_through`].
    #[inline]
    pub unsafe fn compare_exchange_word(&self, at: Place, old: u64, new: u64) -> Result<u64, u64> {
        yield_point();
        // SAFETY: the caller's contract is the same.
        unsafe { by_machine!(self.compare_exchange_word(place at, old, new)) }
    }
}
