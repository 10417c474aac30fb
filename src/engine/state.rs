//! What does DRAM know about a page? State that is made on first touch.
//!
//! Owns: per page the lock and version, the mirror of its slice word, the lanes whose live redo
//! entries may name it, and its pins; per region the lock and the mirror of its word. Invariant:
//! the mirrors equal the words on the medium as of the last commit that returned, and change only
//! while the page's (or region's) word is held and closed. Cost: 33 bytes a page of touched region,
//! 0.81 %. May import `lock`, `bitmap`, `units`,
//! `primitive`.

use crate::bitmap::Validity;
use crate::lock::LockWord;
use crate::mutant::planted;
use crate::primitive::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, OnceLock, Ordering};
use crate::units::{
    CHUNKS_PER_SUPERCHUNK, ChunkIndex, PAGES_PER_REGION, REGIONS_PER_SUPERCHUNK, RegionIndex,
    SUPERCHUNK,
};

/// One page.
#[derive(Debug)]
#[repr(align(32))]
pub struct PageState {
    /// Lock and version.
    pub lock: LockWord,
    slice_word: AtomicU64,
    /// Private lanes whose live redo entries may name this page: bit = lane. Changed under the
    /// page's lock only; a bit may outlive its reason, and is then cleared by whoever looks.
    lanes: AtomicU64,
    /// Views that need the home slots to stay as they are.
    pins: AtomicU32,
}

/// One region.
#[derive(Debug)]
pub struct RegionState {
    /// Lock and version, and the intentions of page lockers.
    pub lock: LockWord,
    region_word: AtomicU64,
    /// Pages with a bit in `PageState::lanes`: lets a region's writer skip the other 63.
    redo_pages: AtomicU64,
    /// The pages.
    pub pages: [PageState; PAGES_PER_REGION],
}

// A model checker's words are larger.
#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<PageState>() == 32);
#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<RegionState>() * 100 < crate::units::REGION, "below 1 %");

impl PageState {
    /// Lanes whose live redo entries may name this page.
    pub fn lanes(&self) -> u64 {
        self.lanes.load(Ordering::Relaxed)
    }

    /// Replaces the set of lanes. Under the page's lock.
    pub fn set_lanes(&self, lanes: u64) {
        self.lanes.store(lanes, Ordering::Relaxed);
    }

    /// Whether a view needs the home slots.
    pub fn is_pinned(&self) -> bool {
        self.pins.load(Ordering::Acquire) != 0
    }

    /// Whether one pin more can be counted: views can be leaked without end.
    pub fn can_pin(&self) -> bool {
        self.pins.load(Ordering::Relaxed) < u32::MAX / 2
    }

    /// Pins the home slots. Under the page's lock.
    pub fn pin(&self) {
        self.pins.fetch_add(1, Ordering::Relaxed);
    }

    /// Gives one pin back. Release: the view's reads come before it.
    pub fn unpin(&self) {
        let pins = self.pins.fetch_sub(1, Ordering::Release);
        debug_assert!(pins > 0);
    }

    /// The mirror of the page's slice word.
    pub fn slice_word(&self) -> u64 {
        self.slice_word.load(Ordering::Relaxed)
    }

    /// Changes the mirror. While the page (or its region) is held and closed.
    pub fn set_slice_word(&self, word: u64) {
        self.slice_word.store(word, Ordering::Relaxed);
    }
}

impl RegionState {
    /// From the words on the medium.
    pub fn new(region_word: u64, slice_words: &[u64; PAGES_PER_REGION]) -> Self {
        RegionState {
            lock: LockWord::new(),
            region_word: AtomicU64::new(region_word),
            redo_pages: AtomicU64::new(0),
            pages: std::array::from_fn(|n| PageState {
                lock: LockWord::new(),
                slice_word: AtomicU64::new(slice_words[n]),
                lanes: AtomicU64::new(0),
                pins: AtomicU32::new(0),
            }),
        }
    }

    /// The mirror of the region word.
    pub fn region_word(&self) -> u64 {
        self.region_word.load(Ordering::Relaxed)
    }

    /// Flips bits of the mirror. While their pages are held and closed; other bits may be other
    /// writers', hence the atomic step.
    pub fn flip_region_bits(&self, mask: u64) {
        let now = self.region_word();
        if planted!(RegionMirrorStored) {
            return self.region_word.store(now ^ mask, Ordering::Relaxed);
        }
        self.region_word.fetch_xor(mask, Ordering::Relaxed);
    }

    /// The region bit of page `n`.
    pub fn region_bit(&self, n: usize) -> bool {
        self.region_word() >> n & 1 == 1
    }

    /// Where the slices of page `n` are valid.
    #[inline]
    pub fn validity(&self, n: usize) -> Validity {
        Validity::new(self.pages[n].slice_word(), self.region_bit(n) && !planted!(RegionBitIgnored))
    }

    /// Pages of the region that live redo entries may name.
    pub fn redo_pages(&self) -> u64 {
        self.redo_pages.load(Ordering::Relaxed)
    }

    /// Notes that page `n` may be named. Under the page's lock.
    pub fn note_redo_page(&self, n: usize) {
        if self.redo_pages() >> n & 1 == 0 {
            self.redo_pages.fetch_or(1 << n, Ordering::Relaxed);
        }
    }

    /// Forgets pages of `mask` that no lane names any more. Under the region's lock.
    pub fn forget_redo_pages(&self, mask: u64) {
        self.redo_pages.fetch_and(!mask, Ordering::Relaxed);
    }
}

/// What is known of the allocation of one chunk: bits of `ChunkState`.
pub mod known {
    /// The home file's chunk is allocated: stores to it cannot fail.
    pub const HOME: u8 = 1;
    /// The chunk's reflection pages are allocated.
    pub const REFLECTION: u8 = 2;
    /// The chunk's page of slice words is allocated.
    pub const SLICE_WORDS: u8 = 4;
    /// The home file's chunk was found to have holes: read it through the file until allocated.
    pub const HOME_HAS_HOLES: u8 = 8;
    /// The file system had no whole chunk left: allocate what is needed, each time. Never the
    /// chunk again: where allocation goes by writing zeroes, that would be over live bytes.
    pub const PIECEWISE: u8 = 16;
}

/// One superchunk: a GiB of home file.
#[derive(Debug)]
pub struct Superchunk {
    regions: Box<[OnceLock<Box<RegionState>>]>,
    /// What is known of each chunk, as bits of [`known`].
    pub chunks: Box<[AtomicU8]>,
    /// Whether the superchunk's region words are allocated.
    pub region_words_allocated: AtomicBool,
}

/// All of it.
#[derive(Debug)]
pub struct State {
    superchunks: Box<[OnceLock<Box<Superchunk>>]>,
}

impl State {
    /// For a file of at most `max_len` bytes. Allocates 16 bytes for each GiB of that.
    pub fn new(max_len: u64) -> Self {
        let count = max_len.div_ceil(SUPERCHUNK as u64);
        State { superchunks: (0..count).map(|_| OnceLock::new()).collect() }
    }

    /// The superchunk `n`, made on first touch.
    #[inline]
    pub fn superchunk(&self, n: usize) -> &Superchunk {
        self.superchunks[n].get_or_init(|| {
            Box::new(Superchunk {
                regions: (0..REGIONS_PER_SUPERCHUNK).map(|_| OnceLock::new()).collect(),
                chunks: (0..CHUNKS_PER_SUPERCHUNK).map(|_| AtomicU8::new(0)).collect(),
                region_words_allocated: AtomicBool::new(false),
            })
        })
    }

    /// The region, if it was touched.
    #[inline]
    pub fn touched(&self, region: RegionIndex) -> Option<&RegionState> {
        let superchunk = self.superchunks[region.superchunk()].get()?;
        superchunk.regions[region.in_superchunk()].get().map(|state| &**state)
    }

    /// The region, made of what `load` read from the medium before, if nobody was faster.
    pub fn touch(&self, region: RegionIndex, loaded: RegionState) -> &RegionState {
        self.superchunk(region.superchunk()).regions[region.in_superchunk()]
            .get_or_init(|| Box::new(loaded))
    }

    /// Forgets what is known of the allocation of all chunks from `chunk` on, and of the region
    /// words of all superchunks from `superchunk` on. While nobody allocates. Touches nothing.
    pub fn forget_allocation(&self, chunk: ChunkIndex, superchunk: usize) {
        for (n, state) in self.superchunks.iter().enumerate() {
            let Some(state) = state.get() else { continue };
            let first = (n * CHUNKS_PER_SUPERCHUNK) as u64;
            let gone = chunk.0.saturating_sub(first).min(CHUNKS_PER_SUPERCHUNK as u64) as usize;
            state.chunks[gone..].iter().for_each(|known| known.store(0, Ordering::Release));
            if n >= superchunk {
                state.region_words_allocated.store(false, Ordering::Release);
            }
        }
    }

    /// Every region that was touched, in order.
    pub fn all_touched(&self) -> impl Iterator<Item = (RegionIndex, &RegionState)> {
        self.superchunks.iter().enumerate().filter_map(|(n, s)| Some((n, s.get()?))).flat_map(
            |(n, superchunk)| {
                superchunk.regions.iter().enumerate().filter_map(move |(r, state)| {
                    let index = RegionIndex((n * REGIONS_PER_SUPERCHUNK + r) as u64);
                    Some((index, &**state.get()?))
                })
            },
        )
    }
}
