//! What does the machine offer, and how is it called?
//!
//! Owns: the only door to mapped memory, to the processor's copy, flush and drain instructions, and to
//! the operating system. This file holds its vocabulary and the memory face; `os.rs` holds the
//! operating system's. Both are methods of [`Platform`], which is the machine itself or, for tests, the
//! machine with a recorder in between that sees every call and can make it fail, or a simulated one.
//!
//! Invariants:
//! - All `asm!`, intrinsics and libc calls of the crate are in this directory.
//! - Nothing here knows what the bytes mean.
//! - No reference to bytes of a mapped file leaves this directory: addresses go in, copies come out.
//!
//! May import: std, libc, memmap2, uuid, crc32c, and `primitive` (under a model checker every access to mapped bytes
//! begins with a place where the scheduler may go on with another thread). Nothing of this crate above
//! it.

mod allocate;
mod at;
pub mod barrier;
#[cfg(all(target_os = "linux", not(atomic_mmap_portable)))]
mod btrfs;
mod cache;
pub mod call;
#[cfg(all(target_arch = "x86_64", not(atomic_mmap_portable), not(miri)))]
mod cpu;
mod domain;
#[cfg(not(all(target_os = "linux", not(atomic_mmap_portable))))]
mod elsewhere;
mod file;
mod file_system;
pub mod fork;
#[cfg(all(target_os = "linux", not(atomic_mmap_portable)))]
mod linux;
#[cfg(feature = "recorder")]
#[doc(hidden)]
pub mod machine;
mod name;
mod native;
mod os;
#[cfg(not(all(target_arch = "x86_64", not(atomic_mmap_portable), not(miri))))]
mod portable;
mod positioned;
#[cfg(feature = "recorder")]
#[doc(hidden)]
pub mod recorder;
mod rights;
mod sides;
mod stat;
mod word;
#[cfg(all(target_arch = "x86_64", not(atomic_mmap_portable), not(miri)))]
mod x86;
mod zeroed;

#[cfg(not(all(target_arch = "x86_64", not(atomic_mmap_portable), not(miri))))]
use portable as isa;
#[cfg(all(target_arch = "x86_64", not(atomic_mmap_portable), not(miri)))]
use x86 as isa;

#[cfg(not(all(target_os = "linux", not(atomic_mmap_portable))))]
use elsewhere as sys;
#[cfg(all(target_os = "linux", not(atomic_mmap_portable)))]
use linux as sys;

pub use cache::CacheIdentity;
pub use file::File;
pub use file_system::FileSystem;
pub use isa::Crc;
#[cfg(feature = "recorder")]
use machine::Simulated;
pub use name::{Folder, Name};
pub use native::{InLine, Native, STREAM_FROM_UNFLUSHED};
pub use os::OpenHow;
#[cfg(feature = "recorder")]
use recorder::Recorder;
pub use stat::{FileStat, NO_TIME};
pub use sys::Mapping;
pub use zeroed::ZeroedWords;

use crate::primitive::yield_point;
use std::fmt;

/// Which of the two files; the recorder's traces name it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum FileId {
    /// The user's file.
    Home,
    /// Our companion file.
    Reflection,
    /// The journal of its durable points.
    Journal,
}

/// What a store must reach before `drain` has done its job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Persistence {
    /// Loss of power: lines must be flushed.
    Flush,
    /// Loss of power, but the persistence domain holds the processor's caches (eADR): no line is
    /// flushed, a drain still fences.
    Caches,
    /// Death of the process only: neither.
    Process,
}

/// How a copy reaches the mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Copying {
    /// Through the cache or past it, whichever is faster for this size and alignment. Flushed by the
    /// copy itself where that is needed. Other threads may see it late, until a drain.
    BySize,
    /// Through the cache: other threads see it in program order without a fence. Not flushed.
    Cached,
}

/// An address inside a mapping with its name in traces.
#[derive(Clone, Copy)]
pub struct Place {
    /// The address.
    pub ptr: *mut u8,
    /// The file that is mapped there.
    pub file: FileId,
    /// The place in that file.
    pub offset: u64,
}

impl Place {
    /// A place whose name does not fit its address would make a trace tell of other cache lines than
    /// the ones that were stored to. Mappings start at a page, so the two agree within a line.
    #[inline(always)]
    fn checked(self) -> *mut u8 {
        debug_assert!(
            self.ptr.addr() as u64 % 64 == self.offset % 64,
            "{self:?} does not name its address"
        );
        self.ptr
    }

    /// The place `len` bytes behind it, in the same mapping.
    fn plus(self, len: usize) -> Place {
        Place { ptr: self.ptr.wrapping_add(len), offset: self.offset + len as u64, ..self }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}+{:#x} at {:p}", self.file, self.offset, self.ptr)
    }
}

/// The machine. Cheap to clone.
#[derive(Clone, Debug)]
pub enum Platform {
    /// The machine itself.
    Native(Native),
    /// The machine, seen through a recorder.
    #[cfg(feature = "recorder")]
    Recording(Recorder),
    /// Another machine, simulated.
    #[cfg(feature = "recorder")]
    Simulated(Simulated),
}

impl Platform {
    /// This machine. Stores need to survive only the death of the process until
    /// [`Platform::with_persistence`] says more.
    pub fn native() -> Platform {
        Platform::Native(Native::new())
    }

    /// A simulated machine.
    #[cfg(feature = "recorder")]
    pub fn simulated(machine: std::sync::Arc<dyn machine::Machine>) -> Platform {
        Platform::Simulated(Simulated::new(machine))
    }

    /// The same machine, with another demand on stores.
    pub fn with_persistence(self, persistence: Persistence) -> Platform {
        match self {
            Platform::Native(native) => Platform::Native(native.with_persistence(persistence)),
            #[cfg(feature = "recorder")]
            Platform::Recording(recorder) => {
                Platform::Recording(recorder.with_persistence(persistence))
            }
            #[cfg(feature = "recorder")]
            Platform::Simulated(simulated) => {
                Platform::Simulated(simulated.with_persistence(persistence))
            }
        }
    }

    /// Whether this build can write cache lines back: the demand for [`Persistence::Flush`] can be
    /// met.
    pub fn can_flush(&self) -> bool {
        isa::FLUSHES
    }

    /// Whether there is no machine below it.
    pub fn is_simulated(&self) -> bool {
        #[cfg(feature = "recorder")]
        if let Platform::Simulated(_) = self {
            return true;
        }
        false
    }

    /// Whether a thread of the crate's own may do something on it. Not where the order in which things
    /// are done is to be the same each time.
    pub fn may_work_in_background(&self) -> bool {
        #[cfg(feature = "recorder")]
        if let Platform::Recording(recorder) = self {
            return !recorder.is_background_held();
        }
        !self.is_simulated()
    }

    /// Whether the processor's caches survive a loss of power. A simulated machine's do not,
    /// whatever machine it runs on.
    pub fn caches_persist(&self) -> bool {
        !self.is_simulated() && domain::caches_persist()
    }

    /// What stores have to reach.
    #[inline]
    pub fn persistence(&self) -> Persistence {
        match self {
            Platform::Native(native) => native.persistence(),
            #[cfg(feature = "recorder")]
            Platform::Recording(recorder) => recorder.persistence(),
            #[cfg(feature = "recorder")]
            Platform::Simulated(simulated) => simulated.persistence(),
        }
    }

    /// Copies a caller's buffer into the mapping. Any alignment, any length.
    ///
    /// No atomicity of any width: a concurrent reader may see any mixture of old and new bytes, and a
    /// crash may keep any. With [`Copying::BySize`] a drain by this thread must follow before anything
    /// publishes the bytes (under [`Persistence::Process`] the copy has seen to that itself); then they
    /// have also reached what [`Platform::persistence`] names. With [`Copying::Cached`] the caller
    /// flushes.
    ///
    /// # Safety
    /// `to` and the `from.len()` bytes behind it are in a live, writable mapping whose file reaches as
    /// far, and nobody else writes to them at the same time. (Readers may race: they see torn bytes.)
    #[inline]
    pub unsafe fn copy_in(&self, to: Place, from: &[u8], how: Copying) {
        yield_point();
        // SAFETY: the caller's contract is the same.
        unsafe {
            match self {
                Platform::Native(native) => native.copy_in(to.checked(), from, how),
                #[cfg(feature = "recorder")]
                Platform::Recording(recorder) => recorder.copy_in(to, from, how),
                #[cfg(feature = "recorder")]
                Platform::Simulated(simulated) => simulated.copy_in(to, from, how),
            }
        }
    }

    /// As [`Platform::copy_in`] with [`Copying::BySize`], of one cache line, of which the words are at hand: the first
    /// one lies first, each least significant byte first.
    ///
    /// # Safety
    /// As [`Platform::copy_in`] of 64 bytes, and `to` is aligned to as many.
    #[inline(always)]
    pub unsafe fn store_line(&self, to: Place, line: [u64; 8]) {
        yield_point();
        match self {
            // SAFETY: the caller's contract is the same.
            Platform::Native(native) => unsafe { native.store_line(to.checked(), line) },
            #[cfg(feature = "recorder")]
            _ => {
                let bytes = line.map(u64::to_le_bytes);
                // SAFETY: the caller's contract is the same.
                unsafe { self.copy_in(to, bytes.as_flattened(), Copying::BySize) }
            }
        }
    }

    /// How what lies within a cache line can be stored by one instruction, if it can: who is killed has stored all of it or
    /// nothing. (Not on a simulated machine, where power is lost.)
    pub fn in_line(&self) -> Option<InLine> {
        match self {
            Platform::Native(native) => native.in_line(),
            #[cfg(feature = "recorder")]
            Platform::Recording(recorder) => recorder.native().in_line(),
            #[cfg(feature = "recorder")]
            Platform::Simulated(_) => None,
        }
    }

    /// Stores `from` so, through the cache, not flushed: other threads see it after what was stored before, and may see it
    /// in pieces.
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

    /// As [`Platform::copy_in`] with [`Copying::BySize`], of at most 64 cache lines, of which each goes to its own
    /// side: line `n` to its place behind `to[1]` where bit `n` of `sides` is one, behind `to[0]` where it is zero.
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
            // One run of neighbours after the other; under a scheduler half of each at a time, since no copy is one
            // step.
            _ => {
                for (side, run) in sides::runs(sides, from.len() / 64) {
                    let mut start = run.start * 64;
                    for half in sides::steps(run.len() * 64) {
                        let bytes = &from[start..start + half];
                        // SAFETY: of these bytes, what the caller vouches for.
                        unsafe { self.copy_in(to[side].plus(start), bytes, Copying::BySize) }
                        start += half;
                    }
                }
            }
        }
    }

    /// Whether [`copy_lines_to_sides_summed`](Self::copy_lines_to_sides_summed) takes no longer than without the sum.
    #[inline(always)]
    pub fn sums_on_the_way(&self) -> bool {
        match self {
            Platform::Native(native) => native.sums_on_the_way(),
            // So that what is done then is done there as well.
            #[cfg(feature = "recorder")]
            _ => true,
        }
    }

    /// As [`Platform::copy_lines_to_sides`]. The CRC-32C of the bytes.
    ///
    /// # Safety
    /// The same.
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

    /// Copies from the mapping into a caller's buffer. The bytes may be torn if somebody writes to them
    /// at the same time; the caller finds out afterwards (versions, checksums).
    ///
    /// # Safety
    /// `from` and the `to.len()` bytes behind it are in a live mapping whose file reaches as far.
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

    /// As [`Platform::copy_out`], of bytes in at most 64 lines, each of which is copied from its own side: the line
    /// with the first byte from `from[1]` where bit 0 of `sides` is one, from `from[0]` where it is zero, and so on.
    ///
    /// # Safety
    /// As [`Platform::copy_out`], of the bytes of each line on its own side. Both of `from` are at the same distance
    /// from a line's begin.
    #[inline(always)]
    pub unsafe fn copy_out_of_sides(&self, to: &mut [u8], from: [*const u8; 2], sides: u64) {
        debug_assert_eq!(from[0].addr() % 64, from[1].addr() % 64);
        match self {
            // SAFETY: the caller's contract is the same.
            Platform::Native(native) if !cfg!(shuttle) => unsafe {
                native.copy_out_of_sides(to, from, sides);
            },
            // As above.
            _ => {
                let before = from[0].addr() % 64;
                for (side, run) in sides::runs(sides, (before + to.len()).div_ceil(64)) {
                    let mut start = (run.start * 64).saturating_sub(before);
                    let end = (run.end * 64 - before).min(to.len());
                    for half in sides::steps(end - start) {
                        let at = from[side].wrapping_add(start);
                        // SAFETY: of these bytes, what the caller vouches for.
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
    /// As [`Platform::copy_in`] for `to`, as [`Platform::copy_out`] for `from`, and the two ranges do
    /// not overlap.
    #[inline]
    pub unsafe fn copy_across(&self, to: Place, from: *const u8, len: usize, how: Copying) {
        yield_point();
        // SAFETY: the caller's contract is the same.
        unsafe {
            match self {
                Platform::Native(native) => native.copy_across(to.checked(), from, len, how),
                #[cfg(feature = "recorder")]
                Platform::Recording(recorder) => recorder.copy_across(to, from, len, how),
                #[cfg(feature = "recorder")]
                Platform::Simulated(simulated) => simulated.copy_across(to, from, len, how),
            }
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
            match self {
                Platform::Native(native) => native.fill_zero(to.checked(), len),
                #[cfg(feature = "recorder")]
                Platform::Recording(recorder) => recorder.fill_zero(to, len),
                #[cfg(feature = "recorder")]
                Platform::Simulated(simulated) => simulated.fill_zero(to, len),
            }
        }
    }

    /// As [`Platform::flush_word`] of every cache line that the range touches. For tests and benchmarks: the engine
    /// flushes words.
    ///
    /// # Safety
    /// The range is in a live mapping.
    #[cfg(any(feature = "raw", feature = "recorder"))]
    #[inline]
    pub unsafe fn flush(&self, at: Place, len: usize) {
        // SAFETY: the caller's contract is the same.
        unsafe {
            match self {
                Platform::Native(native) => native.flush(at.checked(), len),
                #[cfg(feature = "recorder")]
                Platform::Recording(recorder) => recorder.flush(at, len),
                #[cfg(feature = "recorder")]
                Platform::Simulated(simulated) => simulated.flush(at, len),
            }
        }
    }

    /// Starts the write-back of a word's cache line. Unordered; a drain by the same thread completes it. Nothing happens
    /// unless [`Persistence::Flush`] asks for it.
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

    /// Waits until everything that this thread has flushed or streamed is durable, and orders it before
    /// what follows. Under [`Persistence::Process`] it holds back the compiler only.
    #[inline]
    pub fn drain(&self) {
        match self {
            Platform::Native(native) => native.drain(),
            #[cfg(feature = "recorder")]
            Platform::Recording(recorder) => recorder.drain(),
            #[cfg(feature = "recorder")]
            Platform::Simulated(simulated) => simulated.drain(),
        }
    }

    /// Asks for a line to be brought in for writing. A hint: it never faults and leaves no trace.
    ///
    /// # Safety
    /// None on the processors that we know; it is `unsafe` so that only `store/` calls it.
    #[inline]
    pub unsafe fn prefetch_write(&self, at: *const u8) {
        match self {
            Platform::Native(native) => native.prefetch_write(at),
            #[cfg(feature = "recorder")]
            Platform::Recording(recorder) => recorder.native().prefetch_write(at),
            #[cfg(feature = "recorder")]
            Platform::Simulated(_) => {}
        }
    }

    /// Asks for the line at `at`, ahead of a load from it. A hint, wherever that is: it never faults.
    ///
    /// # Safety
    /// None on the processors that we know; it is `unsafe` so that only `store/` calls it.
    #[inline]
    pub unsafe fn prefetch_read(&self, at: *const u8) {
        match self {
            Platform::Native(native) => native.prefetch_read(at),
            #[cfg(feature = "recorder")]
            _ => {}
        }
    }

    /// Asks for lines, of which at most 64, each ahead of a load from its side, as [`Platform::copy_out_of_sides`].
    ///
    /// # Safety
    /// The lines of both sides are in live mappings.
    #[inline]
    pub unsafe fn prefetch_from_sides(&self, from: [*const u8; 2], sides: u64, lines: usize) {
        match self {
            Platform::Native(_) => isa::prefetch_from_sides(from, sides, lines),
            #[cfg(feature = "recorder")]
            _ => {}
        }
    }

    /// Asks for the line of a value in this process's own memory, ahead of a store to it.
    #[inline]
    pub fn prefetch_own<T>(&self, value: &T) {
        match self {
            Platform::Native(native) => native.prefetch_write((&raw const *value).cast()),
            #[cfg(feature = "recorder")]
            _ => {}
        }
    }

    /// Reads a word at once (acquire). Little-endian on media.
    ///
    /// # Safety
    /// `at` is aligned to 8 and the word is in a live mapping whose file reaches as far.
    #[inline]
    pub unsafe fn load_word(&self, at: *const u8) -> u64 {
        yield_point();
        // SAFETY: the caller's contract is the same.
        unsafe {
            match self {
                Platform::Native(_) => word::load(at),
                #[cfg(feature = "recorder")]
                Platform::Recording(_) => word::load(at),
                #[cfg(feature = "recorder")]
                Platform::Simulated(simulated) => simulated.load_word(at),
            }
        }
    }

    /// Stores a word at once and starts its way to durability without waiting: a drain by this thread
    /// completes it. Other threads may see it late, and out of order, until that drain. (A streaming
    /// store under [`Persistence::Flush`]: 97 ns with its drain where a store and a flush take 156,
    /// EPYC Zen 4, hot or cold. A plain store otherwise.)
    ///
    /// # Safety
    /// `at` is aligned to 8 and the word is in a live, writable mapping whose file reaches as far.
    #[inline]
    pub unsafe fn store_word_through(&self, at: Place, value: u64) {
        yield_point();
        // SAFETY: the caller's contract is the same.
        unsafe {
            match self {
                Platform::Native(native) => native.store_word_through(at.checked(), value),
                #[cfg(feature = "recorder")]
                Platform::Recording(recorder) => recorder.store_word_through(at, value),
                #[cfg(feature = "recorder")]
                Platform::Simulated(simulated) => simulated.store_word_through(at, value),
            }
        }
    }

    /// Stores a word at once through the cache (release), not flushed: other threads see it in program order.
    ///
    /// # Safety
    /// As [`Platform::store_word_through`].
    #[inline]
    pub unsafe fn store_word(&self, at: Place, value: u64) {
        yield_point();
        // SAFETY: the caller's contract is the same.
        unsafe {
            match self {
                Platform::Native(_) => word::store(at.checked(), value),
                #[cfg(feature = "recorder")]
                Platform::Recording(recorder) => recorder.store_word(at, value),
                #[cfg(feature = "recorder")]
                Platform::Simulated(simulated) => simulated.store_word(at, value),
            }
        }
    }

    /// Stores `new` at once if the word holds `old` (acquire and release), not flushed. Else returns
    /// what it holds as the error.
    ///
    /// # Safety
    /// As [`Platform::store_word_through`].
    #[inline]
    pub unsafe fn compare_exchange_word(&self, at: Place, old: u64, new: u64) -> Result<u64, u64> {
        yield_point();
        // SAFETY: the caller's contract is the same.
        unsafe {
            match self {
                Platform::Native(_) => word::compare_exchange(at.checked(), old, new),
                #[cfg(feature = "recorder")]
                Platform::Recording(recorder) => recorder.compare_exchange_word(at, old, new),
                #[cfg(feature = "recorder")]
                Platform::Simulated(simulated) => simulated.compare_exchange_word(at, old, new),
            }
        }
    }
}
