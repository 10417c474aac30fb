//! How large are the files, and how long is measured?
//!
//! Nobody gets a number of operations to do, but time: who is slow makes fewer.

use std::time::Duration;

/// One way of making all figures.
#[derive(Clone, Debug)]
pub struct Effort {
    /// For the page.
    pub name: &'static str,
    /// Bytes of each contender's file.
    pub file: u64,
    /// Rounds in which everybody has a turn; medians are taken over them.
    pub rounds: usize,
    /// A turn, after a quarter of it that is not counted.
    pub turn: Duration,
    /// Sizes of writes and reads.
    pub sizes: &'static [usize],
    /// Percent of the operations that read.
    pub shares: &'static [u64],
    /// For latencies, in all rounds together.
    pub latency: Duration,
    /// For volumes.
    pub volume: Duration,
    /// What the background gets to finish its work before volumes are looked at.
    pub settle: Duration,
    /// Records of the page store.
    pub records: u64,
    /// Bytes of the files that are recovered.
    pub recovered_files: &'static [u64],
    /// Pages that were changed before a death.
    pub changed_pages: &'static [u64],
    /// Deaths of each contender in each cell.
    pub deaths: usize,
    /// Bytes of the sparse file.
    pub sparse: u64,
}

const KIB: usize = 1 << 10;
const MIB: u64 = 1 << 20;

/// A quarter of an hour.
pub const FULL: Effort = Effort {
    name: "full",
    file: 128 * MIB,
    rounds: 7,
    turn: Duration::from_millis(20),
    sizes: &[64, 256, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, 1024 * KIB],
    shares: &[0, 20, 40, 50, 60, 80, 100],
    latency: Duration::from_millis(2000),
    volume: Duration::from_millis(150),
    settle: Duration::from_millis(50),
    records: 40_000,
    recovered_files: &[16 * MIB, 64 * MIB, 256 * MIB],
    changed_pages: &[64, 512, 4096, 16384],
    deaths: 3,
    sparse: 100 << 30,
};

/// Two minutes.
pub const QUICK: Effort = Effort {
    name: "quick",
    file: 64 * MIB,
    rounds: 3,
    turn: Duration::from_millis(5),
    sizes: &[64, KIB, 4 * KIB, 64 * KIB, 1024 * KIB],
    shares: &[0, 20, 50, 80, 100],
    latency: Duration::from_millis(300),
    volume: Duration::from_millis(30),
    settle: Duration::from_millis(50),
    records: 10_000,
    recovered_files: &[8 * MIB, 32 * MIB],
    changed_pages: &[64, 2048],
    deaths: 1,
    sparse: 100 << 30,
};

impl Effort {
    /// A few seconds: enough to see that the figures are made, and for nothing else.
    pub const TINY: Effort = Effort {
        name: "tiny (good for nothing but a test)",
        file: 2 * MIB,
        rounds: 1,
        turn: Duration::from_micros(200),
        sizes: &[64, 4 * KIB],
        shares: &[0, 50],
        latency: Duration::from_millis(2),
        volume: Duration::from_millis(1),
        settle: Duration::from_millis(1),
        records: 100,
        recovered_files: &[MIB / 2, MIB],
        changed_pages: &[4, 16],
        deaths: 1,
        sparse: 1 << 30,
    };
}
