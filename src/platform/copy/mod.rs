//! The choice of instructions for copies, flushes and drains on the real machine.
//!
//! Owns: the choice between the cache and streaming, by size, alignment and [`Persistence`]; the
//! rule for which parts still need a flush.
//!
//! Invariants:
//! - After `copy_in`, `copy_across` or `fill_zero` with [`Copying::BySize`], a drain by the same
//!   thread is all that the bytes need to survive what [`Persistence`] names.
//! - [`Native::plan`] is the only place that decides. The copies execute the plan and the recorder
//!   notes it, so a trace always agrees with the machine. Lines that go to two sides are the
//!   exception: the machine decides by the length of all lines together, where a recorder or a
//!   simulation copies and decides run by run. The difference never shows: where lines are flushed,
//!   both stream all of them, and elsewhere a trace does not tell streamed from cached stores.
//! - Under [`Persistence::Process`] no streamed store is left pending when a copy returns, because
//!   no drain will follow.
//!
//! May import: the instruction set (`isa`), `atomic_word`, the vocabulary of `platform/mod.rs`, and
//! the crate `crc32c`.

#[cfg(test)]
mod tests;

use super::isa::{self, Cpu};
use super::{Copying, Persistence, atomic_word as word};
use std::hint::select_unpredictable;
use std::ops::Range;
use std::sync::atomic::{Ordering, compiler_fence};

const LINE: usize = 64;

/// The length from which a copy is streamed where nothing has to be flushed
/// ([`Persistence::Caches`] and [`Persistence::Process`]).
///
/// Measured on an EPYC Zen 4 with tmpfs, in ns, as cached by four stores a line / streamed and
/// fenced. Cold: 512 bytes 106/109, 1 KiB 194/122, 2 KiB 381/161, 4 KiB 558/231, 64 KiB 4829/2383.
/// With the lines in the cache: 1 KiB 18/121, 2 KiB 35/156, 4 KiB 71/226. Streaming also leaves the
/// data outside the cache for the next reader. At 2 KiB a cold copy gains 220 ns, about twice what
/// a hot copy loses (121 ns). A fenced drain without streamed stores before it is nearly free, so
/// `Caches` has the same threshold.
///
/// Under [`Persistence::Flush`] there is no threshold: streamed beats cached and flushed at every
/// size, hot or cold. In ns, streamed / cached and flushed. Cold: 8 bytes 97/156, 64 bytes 97/155,
/// 512 bytes 109/212, 4 KiB 231/639. Hot: 8 bytes 95/156, 4 KiB 226/372.
pub const STREAM_FROM_UNFLUSHED: usize = 2048;

/// The source of zeros for copies. A multiple of the line, so that pieces of it end at lines.
static ZEROS: [u8; 4096] = [0; 4096];

/// A copy in up to three parts. `streamed` may be empty. The bytes before and after it go through
/// the cache.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    len: usize,
    streamed: Range<usize>,
    flush_cached: bool,
}

/// One part of a [`Plan`].
#[cfg(any(test, feature = "recorder"))]
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    /// The bytes, counted from the start of the copy.
    pub range: Range<usize>,
    /// Stored past the cache: needs a drain only.
    pub streamed: bool,
    /// Flushed by the copy itself.
    pub flushed: bool,
}

#[cfg(any(test, feature = "recorder"))]
impl Plan {
    /// Returns the parts that are not empty, in order.
    pub fn parts(&self) -> impl Iterator<Item = Segment> + use<> {
        let cached = |range| Segment { range, streamed: false, flushed: self.flush_cached };
        [
            cached(0..self.streamed.start),
            Segment { range: self.streamed.clone(), streamed: true, flushed: false },
            cached(self.streamed.end..self.len),
        ]
        .into_iter()
        .filter(|part| !part.range.is_empty())
    }
}

/// Proof that one instruction can store any bytes within a line.
#[derive(Clone, Copy, Debug)]
pub struct InLine(isa::Masked);

/// The real machine: a processor, and the persistence that its stores have to reach.
#[derive(Clone, Copy, Debug)]
pub struct Native {
    cpu: Cpu,
    persistence: Persistence,
}

impl Native {
    pub(super) fn new() -> Native {
        Native { cpu: Cpu::get(), persistence: Persistence::Process }
    }

    pub(super) fn with_persistence(self, persistence: Persistence) -> Native {
        Native { persistence, ..self }
    }

    #[inline]
    pub(super) fn persistence(&self) -> Persistence {
        self.persistence
    }

    /// Decides how a copy to `to` is done.
    #[inline]
    pub(super) fn plan(&self, to: *mut u8, len: usize, how: Copying) -> Plan {
        let flush = self.persistence == Persistence::Flush;
        let by_size = how == Copying::BySize;
        let mut plan = Plan { len, streamed: len..len, flush_cached: by_size && flush };
        if !isa::FLUSHES || !by_size || (!flush && len < STREAM_FROM_UNFLUSHED) {
            return plan;
        }
        let start = to.addr();
        let end = start + len;
        // An end at a word boundary is streamed as well, word by word, where that saves a flush.
        // Any other end goes through the cache up to the next line, so that no line is written both
        // ways: the second way would evict the line that the first has just brought in.
        let first =
            if flush && start.is_multiple_of(8) { start } else { (start + LINE - 1) & !(LINE - 1) };
        let last = if flush && end.is_multiple_of(8) { end } else { end & !(LINE - 1) };
        if first < last {
            plan.streamed = first - start..last - start;
        }
        plan
    }

    /// Executes a plan: `cached` and `streamed` store the bytes of a range.
    ///
    /// # Safety
    /// `to` is in the mapping for the copy's length.
    #[inline(always)]
    unsafe fn execute(
        &self,
        to: *mut u8,
        plan: &Plan,
        cached: impl Fn(Range<usize>),
        streamed: impl Fn(Range<usize>),
    ) {
        // Spelled out rather than by `parts`, since that iterator costs as much as a small copy.
        let through_cache = |range: Range<usize>| {
            if range.is_empty() {
                return;
            }
            cached(range.clone());
            if plan.flush_cached {
                // SAFETY: the part lies inside the copy, which is in the mapping.
                unsafe { isa::write_back(self.cpu, to.add(range.start), range.len()) };
            }
        };
        if plan.streamed.is_empty() {
            return through_cache(0..plan.len);
        }
        through_cache(0..plan.streamed.start);
        streamed(plan.streamed.clone());
        through_cache(plan.streamed.end..plan.len);
        if self.persistence == Persistence::Process {
            // No drain will follow, and the next store may publish these bytes.
            isa::drain();
        }
    }

    /// # Safety
    /// As [`super::Platform::copy_in`].
    #[inline]
    pub(super) unsafe fn copy_in(&self, to: *mut u8, from: &[u8], how: Copying) {
        let plan = self.plan(to, from.len(), how);
        let from = from.as_ptr();
        // SAFETY:
        // - both closures get ranges inside the copy. The caller guarantees these on the mapped
        //   side, and the slice on the other; a Rust slice never overlaps the mapping;
        // - the plan's streamed range starts and ends at multiples of 8.
        unsafe {
            self.execute(
                to,
                &plan,
                |r| isa::copy_in(self.cpu, to.add(r.start), from.add(r.start), r.len()),
                |r| isa::stream(self.cpu, to.add(r.start), from.add(r.start), r.len()),
            );
        }
    }

    /// # Safety
    /// As [`super::Platform::store_line`].
    #[inline(always)]
    pub(super) unsafe fn store_line(&self, to: *mut u8, line: [u64; 8]) {
        if isa::FLUSHES && self.persistence == Persistence::Flush {
            // SAFETY: the caller's contract is the same.
            return unsafe { isa::stream_line(to, line) };
        }
        let bytes = line.map(u64::to_le_bytes);
        // SAFETY: the caller's contract is the same.
        unsafe { self.copy_in(to, bytes.as_flattened(), Copying::BySize) }
    }

    #[inline]
    pub(super) fn in_line(&self) -> Option<InLine> {
        isa::stores_in_line(self.cpu).map(InLine)
    }

    /// # Safety
    /// As [`super::Platform::store_in_line`].
    #[inline(always)]
    pub(super) unsafe fn store_in_line(&self, how: InLine, to: *mut u8, from: &[u8]) {
        // SAFETY: the caller's contract is the same, and `from` is readable for its length. Should
        // the two overlap, all bytes are loaded before any byte is stored.
        unsafe { isa::store_in_line(how.0, to, from.as_ptr(), from.len()) }
    }

    /// # Safety
    /// As [`super::Platform::copy_lines_to_sides`].
    #[inline(always)]
    pub(super) unsafe fn copy_lines_to_sides(&self, to: [*mut u8; 2], sides: u64, from: &[u8]) {
        let lines = from.len() / LINE;
        // Whole lines: all are streamed or none, and none needs a flush afterwards.
        let is_streamed = isa::FLUSHES
            && (self.persistence == Persistence::Flush || from.len() >= STREAM_FROM_UNFLUSHED);
        debug_assert!(to.iter().all(|to| {
            let plan = self.plan(*to, from.len(), Copying::BySize);
            plan.streamed.len() == if is_streamed { from.len() } else { 0 }
                && (is_streamed || !plan.flush_cached || !isa::FLUSHES)
        }));
        // SAFETY: the caller guarantees each line on the mapped side, and that there are at most 64
        // lines. The slice guarantees the other side; a Rust slice never overlaps the mapping.
        unsafe {
            if !is_streamed {
                return isa::copy_to_sides(self.cpu, to, sides, from.as_ptr(), lines);
            }
            isa::stream_to_sides(self.cpu, to, sides, from.as_ptr(), lines);
        }
        if self.persistence == Persistence::Process {
            // As after every copy: no drain will follow.
            isa::drain();
        }
    }

    /// Returns `true` if that copy takes no longer with a checksum than without.
    #[inline(always)]
    pub(super) fn sums_on_the_way(&self) -> bool {
        self.persistence == Persistence::Flush && isa::sums_on_the_way(self.cpu)
    }

    /// # Safety
    /// As [`super::Platform::copy_lines_to_sides`].
    #[inline(always)]
    pub(super) unsafe fn copy_lines_to_sides_summed(
        &self,
        to: [*mut u8; 2],
        sides: u64,
        from: &[u8],
    ) -> u32 {
        if self.persistence == Persistence::Flush {
            let lines = from.len() / LINE;
            // SAFETY: as in `copy_lines_to_sides`, which streams all lines under this persistence.
            let sum =
                unsafe { isa::stream_to_sides_summed(self.cpu, to, sides, from.as_ptr(), lines) };
            if let Some(sum) = sum {
                return sum;
            }
        }
        // SAFETY: the caller's contract is the same.
        unsafe { self.copy_lines_to_sides(to, sides, from) };
        ::crc32c::crc32c(from)
    }

    /// # Safety
    /// As [`super::Platform::copy_out_of_sides`].
    #[inline(always)]
    pub(super) unsafe fn copy_out_of_sides(&self, to: &mut [u8], from: [*const u8; 2], sides: u64) {
        // SAFETY: the slice guarantees the target, the caller each line on its side; a Rust slice
        // never overlaps the mapping.
        unsafe {
            if (from[0].addr() | to.len()).is_multiple_of(LINE) {
                // Whole lines, which is the usual case.
                isa::copy_from_sides(self.cpu, to.as_mut_ptr(), from, sides, to.len() / LINE);
            } else {
                self.copy_out_of_parts(to, from, sides);
            }
        }
    }

    /// Copies as `copy_out_of_sides` where the first or the last line is copied in part.
    ///
    /// # Safety
    /// As [`super::Platform::copy_out_of_sides`].
    #[inline(never)]
    unsafe fn copy_out_of_parts(&self, to: &mut [u8], from: [*const u8; 2], sides: u64) {
        let side = |n: usize| select_unpredictable(sides >> n & 1 == 1, from[1], from[0]);
        let in_first_line = (from[0].addr().wrapping_neg() % LINE).min(to.len());
        let first = usize::from(in_first_line > 0);
        let lines = (to.len() - in_first_line) / LINE;
        let (head, rest) = to.split_at_mut(in_first_line);
        let (whole, tail) = rest.split_at_mut(lines * LINE);
        // SAFETY:
        // - the three parts follow each other and make up `to`, which the slice guarantees; the
        //   first ends with its line, so the line after it has the next bit;
        // - the caller guarantees each line on its side, as far as `to` reaches, and that there are
        //   at most 64 lines, so no shift is longer than the word; a Rust slice never overlaps the
        //   mapping.
        unsafe {
            isa::copy_out(&self.cpu, head.as_mut_ptr(), side(0), head.len());
            let behind = from.map(|side| side.wrapping_add(in_first_line));
            let rest = if first == 1 { sides >> 1 } else { sides };
            isa::copy_from_sides(self.cpu, whole.as_mut_ptr(), behind, rest, lines);
            if !tail.is_empty() {
                let last = side(first + lines).wrapping_add(in_first_line + lines * LINE);
                isa::copy_out(&self.cpu, tail.as_mut_ptr(), last, tail.len());
            }
        }
    }

    /// # Safety
    /// As [`super::Platform::copy_out`].
    #[inline]
    pub(super) unsafe fn copy_out(&self, to: &mut [u8], from: *const u8) {
        // SAFETY: the slice guarantees the target, the caller the source; a Rust slice never
        // overlaps the mapping.
        unsafe { isa::copy_out(&self.cpu, to.as_mut_ptr(), from, to.len()) }
    }

    /// # Safety
    /// As [`super::Platform::copy_across`].
    #[inline]
    pub(super) unsafe fn copy_across(
        &self,
        to: *mut u8,
        from: *const u8,
        len: usize,
        how: Copying,
    ) {
        let plan = self.plan(to, len, how);
        // SAFETY:
        // - both closures get ranges inside the copy. The caller guarantees these on both sides,
        //   and that they do not overlap;
        // - the plan's streamed range starts and ends at multiples of 8.
        unsafe {
            self.execute(
                to,
                &plan,
                |r| isa::copy_across(self.cpu, to.add(r.start), from.add(r.start), r.len()),
                |r| isa::stream(self.cpu, to.add(r.start), from.add(r.start), r.len()),
            );
        }
    }

    /// # Safety
    /// As [`super::Platform::fill_zero`].
    pub(super) unsafe fn fill_zero(&self, to: *mut u8, len: usize) {
        let plan = self.plan(to, len, Copying::BySize);
        let pieces = |range: Range<usize>, put: &dyn Fn(*mut u8, usize)| {
            let mut at = range.start;
            while at < range.end {
                // SAFETY: `at` is inside the caller's range.
                let to = unsafe { to.add(at) };
                // Up to the next boundary of the zeros' size, so that no line is split between two
                // pieces.
                let room = ZEROS.len() - to.addr() % ZEROS.len();
                let n = room.min(range.end - at);
                put(to, n);
                at += n;
            }
        };
        // SAFETY:
        // - each piece lies inside the caller's range and is no longer than the zeros;
        // - a streamed piece starts and ends at a multiple of 8, since the plan's streamed range
        //   and the boundaries of the zeros' size do;
        // - a static never overlaps the mapping.
        unsafe {
            self.execute(
                to,
                &plan,
                |r| pieces(r, &|to, n| isa::copy_in(self.cpu, to, ZEROS.as_ptr(), n)),
                |r| pieces(r, &|to, n| isa::stream(self.cpu, to, ZEROS.as_ptr(), n)),
            );
        }
    }

    /// # Safety
    /// As [`super::Platform::flush`].
    #[inline]
    pub(super) unsafe fn flush(&self, at: *const u8, len: usize) {
        if self.persistence == Persistence::Flush {
            // SAFETY: the caller's contract is the same.
            unsafe { isa::write_back(self.cpu, at, len) }
        }
    }

    /// # Safety
    /// As [`super::Platform::flush_word`].
    #[inline(always)]
    pub(super) unsafe fn flush_word(&self, at: *const u8) {
        if self.persistence == Persistence::Flush {
            // SAFETY: the caller's contract is the same.
            unsafe { isa::write_back_line(self.cpu, at) }
        }
    }

    #[inline]
    pub(super) fn drain(&self) {
        match self.persistence {
            Persistence::Flush | Persistence::Caches => isa::drain(),
            // The stores of a thread survive a process crash in any order; only the compiler
            // must not move a store across the commit point.
            Persistence::Process => compiler_fence(Ordering::SeqCst),
        }
    }

    #[inline]
    pub(super) fn prefetch_write(&self, at: *const u8) {
        isa::prefetch_write(self.cpu, at);
    }

    #[inline]
    pub(super) fn prefetch_read(&self, at: *const u8) {
        isa::prefetch_read(at);
    }

    /// # Safety
    /// As [`super::Platform::store_word_through`].
    #[inline]
    pub(super) unsafe fn store_word_through(&self, at: *mut u8, value: u64) {
        if self.persistence == Persistence::Flush {
            // SAFETY: the caller's contract is the same.
            unsafe { isa::stream_word(at, value.to_le()) }
        } else {
            // SAFETY: the caller's contract is the same.
            unsafe { word::store(at, value) }
        }
    }

    /// # Safety
    /// As [`super::Platform::store_word`].
    #[inline(always)]
    pub(super) unsafe fn store_word(&self, at: *mut u8, value: u64) {
        // SAFETY: the caller's contract is the same.
        unsafe { word::store(at, value) }
    }

    /// # Safety
    /// As [`super::Platform::compare_exchange_word`].
    #[inline(always)]
    pub(super) unsafe fn compare_exchange_word(
        &self,
        at: *mut u8,
        old: u64,
        new: u64,
    ) -> Result<u64, u64> {
        // SAFETY: the caller's contract is the same.
        unsafe { word::compare_exchange(at, old, new) }
    }
}
