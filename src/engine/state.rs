//! What does DRAM know about a page? State that is made on first touch.
//!
//! Owns: per page the lock and version, the mirror of its slice word, the lanes whose live
//! entries may name it, and its pins; per region the lock and the mirror of its word. Invariant:
//! the mirrors equal the words on the medium as of the last commit that returned, and change only
//! while the page's (or region's) word is held and closed. Cost: 30 bytes a page of touched region,
//! 0.73 % (0.93 % where durable points are kept; `at_home` has its own). What every operation needs lies close together, and
//! what seldom counts is looked at only where a word for the whole region says so: a cache miss is most of
//! what an operation costs beyond the hardware's limit (`docs/decisions/prefetch.md`). May import `lock`, `bitmap`,
//! `units`, `primitive`.

use super::pieces::Pieces;
use crate::bitmap::{Side, Slices, Validity};
use crate::lock::{LockWord, Patience};
use crate::mutant::{planted, unless};
use crate::primitive::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, OnceBox, Ordering, many};
use crate::units::{
    CHUNKS_PER_SUPERCHUNK, ChunkIndex, PAGES_PER_REGION, REGIONS_PER_CHUNK, REGIONS_PER_SUPERCHUNK,
    RegionIndex, SUPERCHUNK,
};
use std::ops::Range;

/// One page: what every operation looks at. Four of them share a cache line.
#[derive(Debug)]
#[repr(align(16))]
pub struct PageState {
    /// Lock and version.
    pub lock: LockWord,
    slice_word: AtomicU64,
}

/// One region.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct RegionState {
    /// Lock and version, and the intentions of page lockers.
    pub lock: LockWord,
    region_word: AtomicU64,
    /// Pages with a lane in `lanes`: lets who writes skip the others.
    named_pages: AtomicU64,
    /// Pages with a pin in `pins`, likewise.
    pinned_pages: AtomicU64,
    /// Pages with a slice that is valid elsewhere than at the last durable point. A bit may outlive
    /// its reason.
    changed: AtomicU64,
    /// Where the slices of each page are valid at the last durable point. Only where that is told
    /// apart from now.
    durable: Option<Box<[AtomicU64; PAGES_PER_REGION]>>,
    /// Whether the home file's bytes may be loaded through the mapping, and stored to: it is known of the chunk that they are
    /// allocated (`known::HOME`). Here, where a read looks anyway, and who makes one store.
    home_loadable: AtomicU8,
    /// Whether all slice words are the same: one of [`alike`]. Noted by who holds the region as a whole, forgotten
    /// before a slice word changes.
    alike: AtomicU8,
    /// Whether somebody who holds some of the pages has the region's word.
    word_is_taken: AtomicBool,
    /// Pages whose word (`at_home`) may be odd.
    known_at_home: AtomicU64,
    /// The pages.
    pub pages: [PageState; PAGES_PER_REGION],
    /// Private lanes whose live entries may name a page: bit = lane. Changed under the page's
    /// lock only; a bit may outlive its reason, and is then cleared by whoever looks.
    lanes: [AtomicU64; PAGES_PER_REGION],
    /// Views that need the home slots of a page to stay as they are.
    pins: [AtomicU32; PAGES_PER_REGION],
    /// Pages that transactions watch (`read_marks`). Each has its bit in `known_at_home` as well: that is where a writer
    /// looks.
    watched: AtomicU64,
    /// Reads of a page that were counted, and beside them the version that they have seen, as far as there is room.
    reads: [AtomicU8; PAGES_PER_REGION],
}

// A model checker's words are larger.
#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<PageState>() == 16);
#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<RegionState>() * 100 < crate::units::REGION, "below 1 %");

impl PageState {
    /// The mirror of the page's slice word.
    #[inline]
    pub fn slice_word(&self) -> u64 {
        self.slice_word.load(Ordering::Relaxed)
    }
}

/// A region's word that was taken. Once it is dropped, others may take it.
#[derive(Debug)]
pub struct WordTaken<'a>(&'a AtomicBool);

impl Drop for WordTaken<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: what was stored to the word, and its drain, come before.
        self.0.store(false, Ordering::Release);
    }
}

/// What is known of a region's slice words without a look at each.
mod alike {
    /// Nothing.
    pub const UNKNOWN: u8 = 0;
    /// They are all zero.
    pub const ZEROS: u8 = 1;
    /// They are all ones.
    pub const ONES: u8 = 2;
}

/// The bits of [`RegionState::reads`] that are the count.
const READ_COUNT: u8 = 0b111;

impl RegionState {
    /// From the words on the medium.
    pub fn new(
        region_word: u64,
        slice_words: &[u64; PAGES_PER_REGION],
        durable: Option<&[u64; PAGES_PER_REGION]>,
    ) -> Self {
        RegionState {
            lock: LockWord::new(),
            region_word: AtomicU64::new(region_word),
            named_pages: AtomicU64::new(0),
            pinned_pages: AtomicU64::new(0),
            changed: AtomicU64::new(0),
            durable: durable
                .map(|words| Box::new(std::array::from_fn(|n| AtomicU64::new(words[n])))),
            home_loadable: AtomicU8::new(0),
            alike: AtomicU8::new(alike::UNKNOWN),
            word_is_taken: AtomicBool::new(false),
            known_at_home: AtomicU64::new(0),
            pages: std::array::from_fn(|n| PageState {
                lock: LockWord::new(),
                slice_word: AtomicU64::new(slice_words[n]),
            }),
            lanes: std::array::from_fn(|_| AtomicU64::new(0)),
            pins: std::array::from_fn(|_| AtomicU32::new(0)),
            watched: AtomicU64::new(0),
            reads: std::array::from_fn(|_| AtomicU8::new(0)),
        }
    }

    /// Whether the home file's bytes are known to be loadable.
    #[inline]
    pub fn home_is_loadable(&self) -> bool {
        self.home_loadable() != 0
    }

    /// The same as a number, 1 or 0.
    #[inline(always)]
    pub fn home_loadable(&self) -> u8 {
        // Acquire: the allocation comes before.
        self.home_loadable.load(Ordering::Acquire)
    }

    /// Notes whether they are.
    pub fn set_home_loadable(&self, loadable: bool) {
        self.home_loadable.store(loadable.into(), Ordering::Release);
    }

    /// Pages of which readers may know that they are at home.
    #[inline]
    pub fn known_at_home(&self) -> u64 {
        // Sequentially consistent, as the step that has taken the page's lock: a transaction that watches the page sets
        // the bit and then looks at the lock.
        self.known_at_home.load(Ordering::SeqCst)
    }

    /// Whether a transaction watches page `n`: both bits are set.
    pub fn is_watched(&self, n: usize) -> bool {
        (self.watched.load(Ordering::SeqCst) & self.known_at_home()) >> n & 1 == 1
    }

    /// Watches page `n`, before a look at who holds it. The other bit is what a writer looks at.
    pub fn set_watched(&self, n: usize) {
        self.watched.fetch_or(1 << n, Ordering::SeqCst);
        self.known_at_home.fetch_or(1 << n, Ordering::SeqCst);
    }

    /// Ends the watch of the pages of `mask`, and returns which of them were watched. Under their locks.
    pub fn end_watch(&self, mask: u64) -> u64 {
        self.watched.fetch_and(!mask, Ordering::SeqCst) & mask
    }

    /// The same, for who has just said that something is cut off.
    pub fn known_at_home_after_fence(&self) -> u64 {
        self.known_at_home.load(Ordering::SeqCst)
    }

    /// Notes that readers may know it of page `n`, before a look at whether something is cut off. Under its lock.
    pub fn note_at_home(&self, n: usize) {
        self.known_at_home.fetch_or(1 << n, Ordering::SeqCst);
    }

    /// They know it of the pages of `mask` no more. Under their locks.
    pub fn forget_at_home(&self, mask: u64) {
        self.known_at_home.fetch_and(!mask, Ordering::Relaxed);
    }

    /// What readers would take for bytes that are valid is not to change.
    #[inline]
    pub fn assert_left_home(&self, mask: u64) {
        if cfg!(any(debug_assertions, shuttle, feature = "mutants")) {
            // A page may come to be watched under its holder: that watch does not count.
            let known = self.known_at_home() & mask;
            let known = known & !self.watched.load(Ordering::SeqCst);
            assert!(known == 0 || planted!(HomeNotLeft), "known to be at home: {known:x}");
        }
    }

    /// The mirror of the region word.
    #[inline]
    pub fn region_word(&self) -> u64 {
        self.region_word.load(Ordering::Relaxed)
    }

    /// Takes the region's word, on the medium and its mirror, for who holds some of the region's pages and is about to
    /// flip their bits. None: somebody else has it. (Who holds the region as a whole has its word: nobody holds a page
    /// meanwhile.)
    ///
    /// So nobody changes the word in one step with others, which takes a locked instruction that waits for all stores
    /// before it, and a line of the medium in the cache: whoever has it stores it past the cache.
    #[inline]
    pub fn try_take_word(&self) -> Option<WordTaken<'_>> {
        let is_free = !self.word_is_taken.load(Ordering::Relaxed)
            // Acquire: who had the word before has stored to it and drained.
            && !self.word_is_taken.swap(true, Ordering::Acquire);
        (is_free || planted!(WordTakenTwice)).then(|| WordTaken(&self.word_is_taken))
    }

    /// The same, once nobody else has it. Who has it waits for no lock of a page or region.
    #[cold]
    pub fn take_word(&self) -> WordTaken<'_> {
        let mut patience = Patience::new();
        loop {
            patience.wait();
            if let Some(taken) = self.try_take_word() {
                return taken;
            }
        }
    }

    /// Flips bits of the mirror. While their pages are held and closed, by who has [taken](Self::try_take_word) the word,
    /// or holds the region as a whole.
    #[inline]
    pub fn flip_region_bits(&self, mask: u64) {
        // (A model of these bits alone has no holders, and looks are steps to who deals schedules.)
        if cfg!(any(debug_assertions, feature = "mutants")) && !cfg!(any(loom, shuttle)) {
            let is_ours = self.word_is_taken.load(Ordering::Relaxed) || self.lock.is_held();
            assert!(is_ours, "who flips bits of the region's word has it, or the region");
        }
        self.assert_left_home(mask);
        self.region_word.store(self.region_word() ^ mask, Ordering::Relaxed);
    }

    /// The region bit of page `n`.
    #[inline]
    pub fn region_bit(&self, n: usize) -> bool {
        self.region_word() >> n & 1 == 1
    }

    /// Where the slices of page `n` are valid.
    #[inline]
    pub fn validity(&self, n: usize) -> Validity {
        self.validity_of(&self.pages[n], n)
    }

    /// The same, for who has `page`, which is page `n`, at hand.
    #[inline]
    pub fn validity_of(&self, page: &PageState, n: usize) -> Validity {
        Validity::new(page.slice_word(), self.region_bit(n) && !planted!(RegionBitIgnored))
    }

    /// Where slice `slice` of page `n` is valid: [`validity`](Self::validity), for who needs no more of it.
    #[inline(always)]
    pub fn side(&self, n: usize, slice: usize) -> Side {
        match (self.pages[n].slice_word() >> slice ^ self.region_word() >> n) & 1 {
            0 => Side::Home,
            _ => Side::Reflection,
        }
    }

    /// Changes the mirror of the slice word of page `n`. While the page (or the region) is held and closed.
    #[inline(always)]
    pub fn set_slice_word(&self, n: usize, word: u64) {
        self.assert_left_home(1 << n);
        if self.are_alike() && !planted!(AlikeNotForgotten) {
            // Before the word. By several holders of pages at the same time, if need be.
            self.alike.store(alike::UNKNOWN, Ordering::Relaxed);
        }
        self.pages[n].slice_word.store(word, Ordering::Relaxed);
    }

    /// Whether all slice words are known to be the same.
    #[inline]
    pub fn are_alike(&self) -> bool {
        self.alike.load(Ordering::Relaxed) != alike::UNKNOWN
    }

    /// The side on which all slices of the pages are valid, if it is one. For who holds the pages; who asks for all of
    /// them holds the region as a whole, and the next one need not look at each.
    #[inline]
    pub fn find_valid_side(&self, pages: Range<usize>) -> Option<Side> {
        let side = self.valid_side(pages.clone());
        if pages.len() == PAGES_PER_REGION && !self.are_alike() {
            debug_assert!(self.lock.is_held(), "no page is held alone");
            let known = match (side, self.region_word()) {
                (Some(Side::Home), 0) | (Some(Side::Reflection), u64::MAX) => alike::ZEROS,
                (Some(Side::Home), u64::MAX) | (Some(Side::Reflection), 0) => alike::ONES,
                (Some(_), _) if planted!(AlikeUnderAnyRegionWord) => alike::ZEROS,
                _ => alike::UNKNOWN,
            };
            // Release: after the versions of who has changed the words that were looked at. A reader without a lock, who
            // goes by what is noted here, looks at the versions again behind an acquire fence, and finds those or newer ones.
            self.alike.store(known, Ordering::Release);
        }
        side
    }

    /// The side on which all slices of the pages are valid, if it is one. Who has no lock looks at their versions before
    /// and after, or takes it for a guess.
    #[inline]
    pub fn valid_side(&self, pages: Range<usize>) -> Option<Side> {
        let slice_word = match self.alike.load(Ordering::Relaxed) {
            alike::ZEROS => 0,
            alike::ONES => !0,
            _ => return self.look_for_valid_side(pages),
        };
        // Then it is as the bits of the region's word are, if those are the same.
        let mask = Slices::range(pages.start, pages.end).0;
        let bits = self.region_word() & mask;
        match Validity::new(slice_word, bits != 0).0 {
            _ if bits != 0 && bits != mask => None,
            0 => Some(Side::Home),
            _ => Some(Side::Reflection),
        }
    }

    #[inline]
    fn look_for_valid_side(&self, pages: Range<usize>) -> Option<Side> {
        let (mut none, mut all) = (0, !0);
        for n in pages {
            let valid = self.validity(n).0;
            none |= valid;
            all &= valid;
        }
        match (none, all) {
            (0, _) => Some(Side::Home),
            (_, u64::MAX) => Some(Side::Reflection),
            _ => None,
        }
    }

    /// Where the slices of page `n` are valid at the last durable point. Where no durable points
    /// are kept, that is now.
    #[inline]
    pub fn durable(&self, n: usize) -> Validity {
        match &self.durable {
            Some(durable) => Validity(durable[n].load(Ordering::Relaxed)),
            None => self.validity(n),
        }
    }

    /// The slices of page `n` that have changed since the last durable point: their other slot
    /// belongs to it.
    #[inline]
    pub fn changed_slices(&self, n: usize) -> Slices {
        match &self.durable {
            Some(durable) => Slices(durable[n].load(Ordering::Relaxed) ^ self.validity(n).0),
            None => Slices::NONE,
        }
    }

    /// Page `n` is durable as this says. Under the page's lock.
    pub fn set_durable(&self, n: usize, valid: Validity) {
        if let Some(durable) = &self.durable {
            durable[n].store(valid.0, Ordering::Relaxed);
        }
    }

    /// Notes that the pages of `mask` are about to change. Whether none of the region's had.
    pub fn note_changed(&self, mask: u64) -> bool {
        let before = self.changed.load(Ordering::Relaxed);
        before & mask != mask && self.changed.fetch_or(mask, Ordering::Relaxed) == 0
    }

    /// The pages that were noted, which are noted no more. While nobody commits.
    pub fn take_changed(&self) -> u64 {
        self.changed.swap(0, Ordering::Relaxed)
    }

    /// Pages of the region that live entries may name.
    #[inline]
    pub fn named_pages(&self) -> u64 {
        self.named_pages.load(Ordering::Relaxed)
    }

    /// Lanes whose live entries may name page `n`. Under the page's lock.
    #[inline]
    pub fn lanes(&self, n: usize) -> u64 {
        // Noted in this order by who held the page's lock, and forgotten in the other one.
        if self.named_pages() >> n & 1 == 0 { 0 } else { self.lanes[n].load(Ordering::Relaxed) }
    }

    /// Notes that a live entry of `lane` may name page `n`. Under the page's lock.
    #[inline]
    pub fn note_lane(&self, n: usize, lane: u16) {
        let lanes = self.lanes[n].load(Ordering::Relaxed);
        if lanes >> lane & 1 == 0 {
            self.lanes[n].store(lanes | 1 << lane, Ordering::Relaxed);
        }
        if self.named_pages() >> n & 1 == 0 && !planted!(NamedPageNotNoted) {
            self.named_pages.fetch_or(1 << n, Ordering::Relaxed);
        }
    }

    /// Replaces the set of lanes by a part of it. Under the page's lock.
    pub fn keep_lanes(&self, n: usize, lanes: u64) {
        if lanes == 0 {
            self.forget_named_pages(1 << n);
        }
        self.lanes[n].store(lanes, Ordering::Relaxed);
    }

    /// Pages of the region that a view may pin. A bit may outlive its reason.
    #[inline]
    pub fn pinned_pages(&self) -> u64 {
        // Sequentially consistent, as the look at the pins: see `pin_in_page`.
        self.pinned_pages.load(Ordering::SeqCst)
    }

    /// Whether a view needs the home slots of page `n`. Under the page's lock.
    #[inline(always)]
    pub fn is_pinned(&self, n: usize) -> bool {
        self.pinned_pages() >> n & 1 == 1 && self.pins[n].load(Ordering::SeqCst) != 0
    }

    /// Whether nobody pins page `n`, nor has lately, and no reader knows that it is at home: there is nobody who has to be
    /// looked after before a store to it. For who holds the page.
    #[inline(always)]
    pub fn is_nobodys(&self, n: usize) -> bool {
        let pinned = if planted!(PinNotSeen) { 0 } else { self.pinned_pages() };
        let known = if planted!(KnownNotSeen) { 0 } else { self.known_at_home() };
        (pinned | known) >> n & 1 == 0
    }

    /// Where the pins of page `n` are counted, for who asks for the line.
    #[inline]
    pub fn pins(&self, n: usize) -> &AtomicU32 {
        &self.pins[n]
    }

    /// Where the lanes of page `n` are noted, for who asks for the line.
    #[inline]
    pub fn named(&self, n: usize) -> &AtomicU64 {
        &self.lanes[n]
    }

    /// Whether one pin more can be counted: views can be leaked without end.
    #[inline]
    pub fn can_pin(&self, n: usize) -> bool {
        self.pins[n].load(Ordering::Relaxed) < u32::MAX / 2
    }

    /// Pins the home slots of page `n`. Under the page's lock, or before a look at who holds it: both steps
    /// are sequentially consistent for that.
    #[inline]
    pub fn pin(&self, n: usize) {
        self.pins[n].fetch_add(1, Ordering::SeqCst);
        if self.pinned_pages() >> n & 1 == 0 {
            // Never taken back: a page that was looked at once may be again, and who finds the bit
            // without a pin has lost nothing but a look.
            self.pinned_pages.fetch_or(1 << n, Ordering::SeqCst);
        }
    }

    /// Pins the home slots of page `n` without a lock, unless somebody holds the page's. `pin_in_page` says
    /// why that is enough.
    #[inline]
    pub fn pin_unless_held(&self, n: usize) -> bool {
        unless!(PinNotCounted, self.pin(n));
        let is_held = self.lock.is_held() || self.pages[n].lock.is_held();
        if is_held && !planted!(PinHeldPage) {
            unless!(PinNotGivenBack, self.unpin(n));
            return false;
        }
        true
    }

    /// Gives one pin of page `n` back. Release: the view's reads come before it.
    #[inline]
    pub fn unpin(&self, n: usize) {
        let pins = self.pins[n].fetch_sub(1, Ordering::Release);
        debug_assert!(pins > 0);
    }

    /// Counts a read of page `n`. How many were counted since somebody wrote the page, or its region as a whole, 7 at
    /// most. A guess: two readers at the same time may count as one, and a version that has no room may look like an
    /// older one.
    pub fn count_read(&self, n: usize) -> u8 {
        let (Some(region), Some(page)) = (self.lock.begin(), self.pages[n].lock.begin()) else {
            return 0;
        };
        let version = (region.number() + page.number()) << READ_COUNT.count_ones();
        let (version, known) = (version as u8, self.reads[n].load(Ordering::Relaxed));
        let before = if known & !READ_COUNT == version { known & READ_COUNT } else { 0 };
        let count = (before + 1).min(READ_COUNT);
        self.reads[n].store(version | count, Ordering::Relaxed);
        count
    }

    /// Begins to count anew.
    pub fn forget_reads(&self, n: usize) {
        self.reads[n].store(0, Ordering::Relaxed);
    }

    /// Forgets pages of `mask` that no lane names any more. Under their locks, or the region's.
    pub fn forget_named_pages(&self, mask: u64) {
        self.named_pages.fetch_and(!mask, Ordering::Relaxed);
    }
}

/// What is known of the allocation of one chunk: bits in [`Superchunk::chunks`].
pub mod known {
    /// The home file's chunk is allocated: stores to it cannot fail.
    pub const HOME: u8 = 1;
    /// The chunk's reflection pages are allocated.
    pub const REFLECTION: u8 = 2;
    /// The chunk's page of slice words is allocated.
    pub const SLICE_WORDS: u8 = 4;
    /// The home file's chunk was found to have holes: read it through the file until allocated.
    pub const HOME_HAS_HOLES: u8 = 8;
    /// The file system had no whole chunk left: allocate the pages that are needed, and not more.
    pub const PIECEWISE: u8 = 16;
}

/// The regions of one superchunk.
type Regions = [OnceBox<RegionState>; REGIONS_PER_SUPERCHUNK];

/// What is known of the allocation of one superchunk: a GiB of home file.
#[derive(Debug)]
pub struct Superchunk {
    /// What is known of each chunk, as bits of [`known`].
    pub chunks: Box<[AtomicU8; CHUNKS_PER_SUPERCHUNK]>,
    /// Of chunks that are not allocated as a whole: which of their pages are.
    pieces: Box<[OnceBox<Pieces>; CHUNKS_PER_SUPERCHUNK]>,
    /// Whether the superchunk's region words are allocated.
    pub region_words_allocated: AtomicBool,
    /// Whether the page cache was asked to forget the superchunk's words: once.
    pub words_forgotten: AtomicBool,
}

impl Superchunk {
    /// The pages of its chunk `n` that are known to be allocated, if it was touched in pieces.
    #[inline]
    pub fn pieces(&self, n: usize) -> Option<&Pieces> {
        self.pieces[n].get()
    }

    /// The same, made on first touch.
    pub fn touch_pieces(&self, n: usize) -> &Pieces {
        self.pieces[n].get_or_init(|| Box::new(Pieces::new()))
    }
}

/// All of it.
#[derive(Debug)]
pub struct State {
    superchunks: Box<[OnceBox<Superchunk>]>,
    /// Those of each superchunk. Every operation looks for one: two loads.
    regions: Box<[OnceBox<Regions>]>,
}

impl State {
    /// For a file of at most `max_len` bytes. Allocates 16 bytes for each GiB of that.
    pub fn new(max_len: u64) -> Self {
        let count = max_len.div_ceil(SUPERCHUNK as u64);
        State {
            superchunks: (0..count).map(|_| OnceBox::new()).collect(),
            regions: (0..count).map(|_| OnceBox::new()).collect(),
        }
    }

    /// The superchunk `n`, made on first touch.
    #[inline(always)]
    pub fn superchunk(&self, n: usize) -> &Superchunk {
        match self.superchunks[n].get() {
            Some(superchunk) => superchunk,
            None => self.touch_superchunk(n),
        }
    }

    /// The superchunk `n`, if it was touched.
    pub fn touched_superchunk(&self, n: usize) -> Option<&Superchunk> {
        self.superchunks.get(n)?.get()
    }

    #[cold]
    fn touch_superchunk(&self, n: usize) -> &Superchunk {
        self.superchunks[n].get_or_init(|| {
            Box::new(Superchunk {
                chunks: many(|| AtomicU8::new(0)),
                pieces: many(OnceBox::new),
                region_words_allocated: AtomicBool::new(false),
                words_forgotten: AtomicBool::new(false),
            })
        })
    }

    /// The region, if it was touched.
    #[inline(always)]
    pub fn touched(&self, region: RegionIndex) -> Option<&RegionState> {
        self.regions.get(region.superchunk())?.get()?[region.in_superchunk()].get()
    }

    /// The region, made of what `load` read from the medium before, if nobody was faster.
    pub fn touch(&self, region: RegionIndex, loaded: RegionState) -> &RegionState {
        let regions = self.regions[region.superchunk()].get_or_init(|| many(OnceBox::new));
        regions[region.in_superchunk()].get_or_init(|| Box::new(loaded))
    }

    /// Forgets what is known of the allocation of all chunks from `chunk` on, and of the region
    /// words of all superchunks from `superchunk` on. While nobody allocates. Touches nothing.
    pub fn forget_allocation(&self, chunk: ChunkIndex, superchunk: usize) {
        for (n, state) in self.superchunks.iter().enumerate() {
            let Some(state) = state.get() else { continue };
            let first = (n * CHUNKS_PER_SUPERCHUNK) as u64;
            let gone = chunk.0.saturating_sub(first).min(CHUNKS_PER_SUPERCHUNK as u64) as usize;
            state.chunks[gone..].iter().for_each(|known| known.store(0, Ordering::Release));
            state.pieces[gone..].iter().filter_map(OnceBox::get).for_each(|p| p.forget_from(0));
            // (Where nobody has looked at a chunk, no region is noted as loadable.)
            let regions = self.regions[n].get().into_iter().flatten();
            let regions = regions.skip(gone * REGIONS_PER_CHUNK).filter_map(OnceBox::get);
            regions.for_each(|region| region.set_home_loadable(false));
            if n >= superchunk {
                state.region_words_allocated.store(false, Ordering::Release);
            }
        }
    }

    /// Every region that was touched, in order.
    pub fn all_touched(&self) -> impl Iterator<Item = (RegionIndex, &RegionState)> {
        let touched = self.regions.iter().enumerate().filter_map(|(n, s)| Some((n, s.get()?)));
        touched.flat_map(|(n, regions)| {
            regions.iter().enumerate().filter_map(move |(r, state)| {
                let index = RegionIndex((n * REGIONS_PER_SUPERCHUNK + r) as u64);
                Some((index, state.get()?))
            })
        })
    }
}
