//! The file sizes and measuring times.
//!
//! Each contender gets a time and not a number of operations, so slow contenders make fewer of
//! them.

use std::time::Duration;

/// The parameters of one run of all figures.
#[derive(Clone, Debug)]
pub struct Effort {
    /// Name on the page.
    pub name: &'static str,
    /// Bytes of each contender's file.
    pub file: u64,
    /// Number of rounds. Every contender has one turn in each, and results are medians over them.
    pub rounds: usize,
    /// Time of a turn, after a first quarter that does not count.
    pub turn: Duration,
    /// Sizes of writes and reads.
    pub sizes: &'static [usize],
    /// Percentages of operations that read.
    pub shares: &'static [u64],
    /// Time for latencies, in all rounds together.
    pub latency: Duration,
    /// Time for volumes.
    pub volume: Duration,
    /// Time for background work to finish before volumes are read.
    pub settle: Duration,
    /// Number of records of the page store.
    pub records: u64,
    /// Sizes in bytes of the files that are recovered.
    pub recovered_files: &'static [u64],
    /// Numbers of pages that were changed before a kill.
    pub changed_pages: &'static [u64],
    /// Number of kills of each contender in each cell.
    pub deaths: usize,
    /// Size in bytes of the sparse file.
    pub sparse: u64,
}

const KIB: usize = 1 << 10;
const MIB: u64 = 1 << 20;

/// Takes a quarter of an hour.
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

/// Takes two minutes.
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
    /// Takes a few seconds: enough to test that the figures are made, and no more.
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
