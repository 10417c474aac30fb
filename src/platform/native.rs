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
//! May import: the instruction set (`isa`), `word`, the vocabulary of `mod.rs`, and the crate
//! `crc32c`.

use super::isa::{self, Cpu};
use super::{Copying, Persistence, word};
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
pub struct Part {
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
    pub fn parts(&self) -> impl Iterator<Item = Part> + use<> {
        let cached = |range| Part { range, streamed: false, flushed: self.flush_cached };
        [
            cached(0..self.streamed.start),
            Part { range: self.streamed.clone(), streamed: true, flushed: false },
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
    #[cfg(any(feature = "raw", feature = "recorder"))]
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
            // What a thread has stored survives a process crash in any order; only the compiler
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
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Persistence; 3] = [Persistence::Flush, Persistence::Caches, Persistence::Process];

    /// Memory with word-aligned ends, as a mapping has, and a margin that must stay untouched.
    struct Arena(Vec<u64>);

    impl Arena {
        fn new(bytes: usize) -> Arena {
            Arena(vec![0xeeee_eeee_eeee_eeee; bytes / 8 + 32])
        }
        /// Returns the first multiple of 64 at least 64 bytes inside.
        fn base(&mut self) -> *mut u8 {
            let start = self.0.as_mut_ptr().cast::<u8>();
            start.wrapping_add(64 + start.align_offset(64))
        }
        fn bytes(&mut self) -> &mut [u8] {
            // SAFETY: the vector's own memory, borrowed mutably; any byte is a valid u8.
            unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.0.len() * 8) }
        }
        fn refill(&mut self) {
            self.0.fill(0xeeee_eeee_eeee_eeee);
        }
        /// Checks that [at, at + expected.len()) past the base holds `expected`, and that all other
        /// bytes are unchanged.
        fn check(&mut self, at: usize, expected: &[u8], what: &str) {
            let start = self.base().addr() - self.0.as_ptr().addr() + at;
            let bytes = self.bytes();
            let end = start + expected.len();
            assert!(bytes[start..end] == *expected, "{what}: wrong bytes");
            assert!(
                bytes[..start].iter().chain(&bytes[end..]).all(|b| *b == 0xee),
                "{what}: bytes outside were touched"
            );
        }
    }

    #[test]
    fn what_lies_in_a_line_is_stored_and_nothing_else() {
        let native = Native::new();
        let Some(how) = native.in_line() else { return };
        let data: Vec<u8> = (1..=LINE as u8).collect();
        let mut arena = Arena::new(3 * LINE);
        for start in 0..LINE {
            for len in 1..=LINE - start {
                arena.refill();
                let to = arena.base().wrapping_add(start);
                // SAFETY: the arena has a line there, to which no other thread writes, and the part
                // ends within it.
                unsafe { native.store_in_line(how, to, &data[..len]) };
                arena.check(start, &data[..len], &format!("{len} bytes at {start}"));
            }
        }
    }

    fn sizes() -> Vec<usize> {
        if cfg!(miri) {
            return vec![0, 1, 7, 8, 9, 63, 64, 65, 130];
        }
        (0..=300)
            .chain([511, 512, 513, 1023, 1024, 2047, 2048, 2049, 2055, 4096, 5000])
            .chain([9999, 70_001])
            .collect()
    }

    fn alignments(len: usize) -> impl Iterator<Item = usize> {
        (0..=64).step_by(if cfg!(miri) {
            11
        } else if len > 8192 {
            7
        } else {
            1
        })
    }

    #[test]
    fn a_line_of_words_is_stored_as_its_bytes_are() {
        let words: [u64; 8] =
            std::array::from_fn(|n| 0x0123_4567_89AB_CDEF_u64.rotate_left(n as u32));
        let bytes = words.map(u64::to_le_bytes);
        let mut arena = Arena::new(4 * LINE);
        for persistence in ALL {
            arena.refill();
            let native = Native::new().with_persistence(persistence);
            let at = arena.base().wrapping_add(LINE);
            // SAFETY: four lines follow the base, which is aligned to lines.
            unsafe { native.store_line(at, words) };
            native.drain();
            let mut found = [0; 3 * LINE];
            // SAFETY: as above.
            unsafe { native.copy_out(&mut found, arena.base()) };
            assert_eq!(found[LINE..2 * LINE], *bytes.as_flattened(), "{persistence:?}");
            assert!(found[..LINE].iter().chain(&found[2 * LINE..]).all(|byte| *byte == 0xee));
        }
    }

    /// Returns this processor as it is, and as a processor that cannot compute checksums of lines.
    fn natives() -> impl Iterator<Item = Native> {
        let native = Native::new();
        #[cfg(all(target_arch = "x86_64", not(atomic_mmap_portable)))]
        let less = Native { cpu: Cpu { fold: None, ..native.cpu }, ..native };
        #[cfg(not(all(target_arch = "x86_64", not(atomic_mmap_portable))))]
        let less = native;
        [native, less].into_iter()
    }

    /// Copies lines to two sides and from them, with partial lines at the ends of what is copied
    /// out.
    #[test]
    fn lines_of_two_sides_match_plain_copies() {
        let source: Vec<u8> = (0..4096u32).map(|n| (n * 7 % 253) as u8).collect();
        let mut arenas = [Arena::new(4096 + 128), Arena::new(4096 + 128)];
        for sides in [0, !0, 1, 1 << 63, 0xAAAA_5555_F00F_1234] {
            let all =
                ALL.into_iter().flat_map(|p| natives().map(move |n| (p, n.with_persistence(p))));
            for (persistence, native) in all {
                let lines = [0, 1, 2, 31, 32, 64].into_iter();
                for (lines, sums) in lines.flat_map(|lines| [(lines, false), (lines, true)]) {
                    arenas.iter_mut().for_each(Arena::refill);
                    let to = arenas.each_mut().map(|arena| arena.base());
                    let data = &source[..lines * LINE];
                    // SAFETY: 4096 bytes follow each base, which is aligned to lines; at most 64
                    // lines.
                    unsafe {
                        if sums {
                            let sum = native.copy_lines_to_sides_summed(to, sides, data);
                            assert_eq!(sum, ::crc32c::crc32c(data));
                        } else {
                            native.copy_lines_to_sides(to, sides, data);
                        }
                    }
                    native.drain();
                    for (n, line) in data.chunks(LINE).enumerate() {
                        let mine = (sides >> n & 1) as usize;
                        let mut found = [0; LINE];
                        for side in [mine, 1 - mine] {
                            // SAFETY: as above.
                            unsafe {
                                native.copy_out(&mut found, to[side].wrapping_add(n * LINE));
                            }
                            let expected = if side == mine { line } else { &[0xee; LINE] };
                            assert_eq!(found, expected, "{sides:x} line {n} {persistence:?}");
                        }
                    }
                    let from = to.map(<*mut u8>::cast_const);
                    for start in [0, 1, 63, 64, 100, 1000] {
                        for end in [start, start + 1, start + 28, start + 64, start + 700, 4096] {
                            let end = end.min(data.len()).max(start);
                            if end > data.len() {
                                continue;
                            }
                            let mut found = vec![0; end - start];
                            let from = from.map(|from| from.wrapping_add(start));
                            // SAFETY: as above; both are at the same distance from a line.
                            unsafe {
                                native.copy_out_of_sides(&mut found, from, sides >> (start / LINE));
                            }
                            assert_eq!(found, data[start..end], "{sides:x} {start}..{end}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn every_size_and_alignment_matches_a_plain_copy() {
        let source: Vec<u8> = (0..80_000u32).map(|n| (n * 7 % 253) as u8).collect();
        let zeros = vec![0; source.len()];
        for len in sizes() {
            let mut target = Arena::new(len + 128);
            let mut mapped = Arena::new(len + 128);
            for align in alignments(len) {
                // Another residue for the source, so that all pairs of residues occur.
                let shift = (align * 5 + len) % 67;
                let data = &source[shift..shift + len];
                for persistence in ALL {
                    let native = Native::new().with_persistence(persistence);
                    let what = format!("len {len}, align {align}, {persistence:?}");
                    for how in [Copying::BySize, Copying::Cached] {
                        target.refill();
                        let to = target.base().wrapping_add(align);
                        // SAFETY: base + align + len is inside the arena (align at most 64, and 128
                        // bytes more than `len` follow the base).
                        unsafe { native.copy_in(to, data, how) };
                        native.drain();
                        target.check(align, data, &what);
                    }
                    // Out again, to another residue.
                    let mut out = vec![0xdd; len + 70];
                    // SAFETY: as above.
                    unsafe {
                        native.copy_out(
                            &mut out[shift..shift + len],
                            target.base().wrapping_add(align),
                        );
                    }
                    assert!(out[shift..shift + len] == *data, "{what}: copy_out");
                    assert!(out[..shift].iter().chain(&out[shift + len..]).all(|b| *b == 0xdd));
                    // Across to the mirrored alignment.
                    mapped.refill();
                    let across = 64 - align;
                    // SAFETY: as above; two arenas do not overlap.
                    unsafe {
                        native.copy_across(
                            mapped.base().wrapping_add(across),
                            target.base().wrapping_add(align),
                            len,
                            Copying::BySize,
                        );
                    }
                    native.drain();
                    mapped.check(across, data, &what);
                    target.refill();
                    let to = target.base().wrapping_add(align);
                    // SAFETY: as above.
                    unsafe { native.fill_zero(to, len) };
                    native.drain();
                    target.check(align, &zeros[..len], &what);
                }
            }
        }
    }

    #[test]
    fn plans_are_exact_and_never_mix_one_line() {
        for persistence in ALL {
            let native = Native::new().with_persistence(persistence);
            for len in sizes() {
                for align in alignments(len) {
                    let to = std::ptr::without_provenance_mut::<u8>(0x10_0000 + align);
                    for how in [Copying::BySize, Copying::Cached] {
                        let plan = native.plan(to, len, how);
                        let mut at = 0;
                        for part in plan.parts() {
                            assert_eq!(part.range.start, at);
                            at = part.range.end;
                            assert!(!(part.streamed && part.flushed));
                            if part.streamed {
                                assert_eq!(how, Copying::BySize);
                                assert!((to.addr() + part.range.start).is_multiple_of(8));
                                assert!((to.addr() + part.range.end).is_multiple_of(8));
                                if part.range.start > 0 {
                                    assert!((to.addr() + part.range.start).is_multiple_of(LINE));
                                }
                                if part.range.end < len {
                                    assert!((to.addr() + part.range.end).is_multiple_of(LINE));
                                }
                            } else {
                                assert_eq!(
                                    part.flushed,
                                    how == Copying::BySize && persistence == Persistence::Flush
                                );
                            }
                        }
                        assert_eq!(at, len);
                    }
                }
            }
        }
    }
}
