//! Finds the state of a region by its index, and holds the allocation flags of each chunk.
//!
//! The state of all regions lies in one table, so an operation finds it by arithmetic. A region's
//! entry is made when the region is loaded, and a superchunk's allocation flags when they are first
//! needed.
//!
//! May import `pair::region`, `pair::pieces`, `units`, `primitive`, and the table of `platform`.

use crate::pair::pieces::Pieces;
use crate::pair::region::RegionState;
use crate::platform::Table;
use crate::primitive::{AtomicBool, AtomicU8, OnceBox, Ordering, many};
use crate::units::{CHUNKS_PER_SUPERCHUNK, ChunkIndex, REGION, RegionIndex, SUPERCHUNK};
use std::io;

/// The allocation flags of a chunk: bits in [`Superchunk::chunks`].
pub mod known {
    /// The home file's chunk is allocated: stores to it cannot fail.
    pub const HOME: u8 = 1;
    /// The chunk's reflection pages are allocated.
    pub const REFLECTION: u8 = 2;
    /// The chunk's page of slice words is allocated.
    pub const SLICE_WORDS: u8 = 4;
    /// The home file's chunk has holes: read it through the file until it is allocated.
    pub const HOME_HAS_HOLES: u8 = 8;
    /// The home file's chunk is allocated, and no writer has come to it yet (`pair::ahead`).
    pub const HOME_AHEAD: u8 = 16;
    /// The chunk's reflection pages are allocated, and no writer has come to them yet.
    pub const REFLECTION_AHEAD: u8 = 32;
}

/// The allocation state of one superchunk, which is 1 GiB of home file.
#[derive(Debug)]
pub struct Superchunk {
    /// The allocation flags of each chunk: bits of [`known`].
    pub chunks: Box<[AtomicU8; CHUNKS_PER_SUPERCHUNK]>,
    /// The allocated pages of each chunk that is not allocated as a whole.
    pieces: Box<[OnceBox<Pieces>; CHUNKS_PER_SUPERCHUNK]>,
    /// `true` if the superchunk's region words are allocated.
    pub region_words_allocated: AtomicBool,
    /// `true` if the page cache was already asked to drop the superchunk's words.
    pub words_forgotten: AtomicBool,
}

impl Superchunk {
    /// Returns the pages of chunk `n` that are known to be allocated, if that chunk was allocated
    /// in pieces.
    #[inline]
    pub fn pieces(&self, n: usize) -> Option<&Pieces> {
        self.pieces[n].get()
    }

    /// Returns the pages of chunk `n` that are known to be allocated. Creates the set if there is
    /// none.
    pub fn load_pieces(&self, n: usize) -> &Pieces {
        self.pieces[n].get_or_init(|| Box::new(Pieces::new()))
    }
}

/// The state of all regions, and the allocation state of all superchunks.
#[derive(Debug)]
pub struct PageTable {
    superchunks: Box<[OnceBox<Superchunk>]>,
    /// Every operation finds a region here, by its index.
    regions: Table<RegionState>,
}

impl PageTable {
    /// Creates the state for a file of at most `max_len` bytes. Takes 9 bytes of memory for each
    /// GiB of `max_len`, and reserves less than 1 % of `max_len` as address space.
    ///
    /// # Errors
    /// `OutOfMemory` if the process may not reserve as many addresses.
    pub fn new(max_len: u64) -> io::Result<Self> {
        let count = max_len.div_ceil(SUPERCHUNK as u64);
        Ok(PageTable {
            superchunks: (0..count).map(|_| OnceBox::new()).collect(),
            regions: Table::new(max_len.div_ceil(REGION as u64))?,
        })
    }

    /// Returns the bytes of address space that the state for a file of `max_len` bytes reserves.
    pub fn reserved(max_len: u64) -> u64 {
        max_len.div_ceil(REGION as u64) * size_of::<RegionState>() as u64
    }

    /// Returns superchunk `n`. Creates its state if there is none.
    #[inline(always)]
    pub fn superchunk(&self, n: usize) -> &Superchunk {
        match self.superchunks[n].get() {
            Some(superchunk) => superchunk,
            None => self.load_superchunk(n),
        }
    }

    /// Returns superchunk `n`, if its state exists.
    pub fn superchunk_if_loaded(&self, n: usize) -> Option<&Superchunk> {
        self.superchunks.get(n)?.get()
    }

    #[cold]
    fn load_superchunk(&self, n: usize) -> &Superchunk {
        self.superchunks[n].get_or_init(|| {
            Box::new(Superchunk {
                chunks: many(|| AtomicU8::new(0)),
                pieces: many(OnceBox::new),
                region_words_allocated: AtomicBool::new(false),
                words_forgotten: AtomicBool::new(false),
            })
        })
    }

    /// Returns the region, if it is loaded.
    #[inline(always)]
    pub fn loaded(&self, region: RegionIndex) -> Option<&RegionState> {
        self.regions.get(region.0)
    }

    /// Returns the region. Installs `loaded`, which was read from the medium, unless another thread
    /// has loaded the region first.
    ///
    /// # Errors
    /// The system's error if it has no memory for the state.
    pub fn insert(&self, region: RegionIndex, loaded: RegionState) -> io::Result<&RegionState> {
        self.regions.get_or_insert(region.0, loaded)
    }

    /// Clears the allocation flags of all chunks from `chunk` on, and of the region words of all
    /// superchunks from `superchunk` on. The caller holds the allocation mutex. Creates no state.
    pub fn forget_allocation(&self, chunk: ChunkIndex, superchunk: usize) {
        for (n, state) in self.superchunks.iter().enumerate() {
            let Some(state) = state.get() else { continue };
            let first = (n * CHUNKS_PER_SUPERCHUNK) as u64;
            let gone = chunk.0.saturating_sub(first).min(CHUNKS_PER_SUPERCHUNK as u64) as usize;
            state.chunks[gone..].iter().for_each(|known| known.store(0, Ordering::Release));
            state.pieces[gone..].iter().filter_map(OnceBox::get).for_each(|p| p.forget_from(0));
            if n >= superchunk {
                state.region_words_allocated.store(false, Ordering::Release);
            }
        }
        let gone = self.loaded_regions().filter(|(index, _)| *index >= chunk.first_region());
        gone.for_each(|(_, region)| region.set_home_loadable(false));
    }

    /// Iterates over all loaded regions, in ascending order.
    pub fn loaded_regions(&self) -> impl Iterator<Item = (RegionIndex, &RegionState)> {
        self.regions.iter().map(|(n, state)| (RegionIndex(n), state))
    }
}
