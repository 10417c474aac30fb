//! The goals.

/// A bound for a value, and its direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
}

impl Goal {
    /// Returns `true` if the value meets the goal.
    pub fn is_met(self, value: f64) -> bool {
        match self {
            Goal::AtMost(most) => value <= most,
            Goal::AtLeast(least) => value >= least,
        }
    }
}

impl std::fmt::Display for Goal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Goal::AtMost(most) => write!(f, "≤ {most}"),
            Goal::AtLeast(least) => write!(f, "≥ {least}"),
        }
    }
}

/// The names in `ratios.json`, `practical.json`, `fio.json`, `sqlite.json`, `snapshots.json`,
/// `policies.json` and `stage.json`, with their meanings and goals.
pub const GOALS: &[(&str, Goal, &str)] = &[
    ("write_64B_vs_one_drain", Goal::AtMost(1.35), "64 bytes, random, to copy and one drain"),
    ("write_256B_vs_two_drains", Goal::AtMost(1.15), "256 bytes, to copy and two drains"),
    ("write_1KiB_vs_two_drains", Goal::AtMost(1.15), "1 KiB"),
    ("write_4KiB_vs_two_drains", Goal::AtMost(1.10), "4 KiB"),
    ("write_64KiB_vs_two_drains", Goal::AtMost(1.03), "64 KiB, aligned, in one region"),
    ("write_1MiB_vs_two_drains", Goal::AtMost(1.02), "1 MiB"),
    (
        "write_16KiB_unaligned_vs_two_drains",
        Goal::AtMost(1.35),
        "16 KiB, 100 bytes past a page's start",
    ),
    ("tx_8x64B_vs_two_drains_8x64B", Goal::AtMost(1.8), "a transaction of eight times 64 bytes"),
    ("read_64B_vs_memcpy", Goal::AtMost(1.5), "a read of 64 bytes, deployed"),
    ("read_4KiB_vs_memcpy", Goal::AtMost(1.05), "a read of 4 KiB, deployed"),
    ("view_4KiB_vs_memcpy", Goal::AtMost(0.5), "a view of 4 KiB: nothing is copied"),
    ("ram_write_64B_vs_memcpy", Goal::AtMost(2.5), "64 bytes where only the process can die"),
    (
        "scaling_2_threads_disjoint_4KiB",
        Goal::AtLeast(1.9),
        "throughput of two threads, each in its half, to that of one",
    ),
    (
        "bytes_per_byte_1KiB",
        Goal::AtMost(1.13),
        "written to the medium, whole lines, for each byte",
    ),
    ("bytes_per_byte_4KiB", Goal::AtMost(1.04), "the same, 4 KiB"),
    (
        "worst_write_vs_baselines",
        Goal::AtLeast(1.0),
        "the lowest of a baseline's time to ours: durable writes, random and in order, all sizes",
    ),
    ("worst_mix_vs_baselines", Goal::AtLeast(1.0), "the same with 20, 50 and 80 % reads"),
    ("open_after_crash_100GiB_vs_clean", Goal::AtMost(1.1), "opening a sparse file of 100 GiB"),
    ("dram_bytes_per_touched_byte", Goal::AtMost(0.01), "memory of the process for bytes written"),
    // Unmodified fio under the preload, in `fio.json`.
    ("fio_1KiB_vs_kernel", Goal::AtLeast(2.0), "1 KiB and fsync, on memory, to the kernel"),
    ("fio_4KiB_vs_kernel", Goal::AtLeast(2.0), "4 KiB and fsync, on memory"),
    ("fio_disk_1KiB_vs_kernel", Goal::AtLeast(1.0), "1 KiB and fsync, on a disk"),
    ("fio_disk_4KiB_vs_kernel", Goal::AtLeast(1.0), "4 KiB and fsync, on a disk"),
    // Practical tasks, in `practical.json`.
    ("small_file_disk_bytes", Goal::AtMost(204_800.0), "of 4 KiB of state, with its companions"),
    ("replace_400B_vs_rename", Goal::AtMost(0.8), "a document replaced, durably"),
    ("replace_4MB_vs_rename", Goal::AtMost(1.3), "a document replaced, durably"),
    ("log_append_vs_odsync", Goal::AtMost(1.2), "256 bytes appended durably, to one O_DSYNC write"),
    // SQLite, in `sqlite.json`: throughputs, and bytes.
    ("sqlite_tpcc_vs_wal_full", Goal::AtLeast(1.5), "TPC-C on ext4, to WAL with synchronous=FULL"),
    ("sqlite_tpcc_vs_truncate_full", Goal::AtLeast(4.0), "TPC-C, to the truncated journal"),
    ("sqlite_update_1KiB_vs_wal_full", Goal::AtLeast(1.5), "updates of 1 KiB, to WAL"),
    ("sqlite_update_1KiB_vs_truncate_full", Goal::AtLeast(4.0), "updates of 1 KiB, to the journal"),
    ("sqlite_bytes_vs_wal", Goal::AtMost(0.6), "bytes written to the device, to WAL's"),
    ("sqlite_pmem_tpcc_vs_best", Goal::AtLeast(2.4), "TPC-C on tmpfs, to the best mode of SQLite"),
    ("sqlite_pmem_update_1KiB_vs_best", Goal::AtLeast(2.4), "updates of 1 KiB on tmpfs"),
    // Snapshots, in `snapshots.json`.
    ("auto_snapshot_4KiB", Goal::AtMost(1.05), "4 KiB, a snapshot each 100,000 writes, 8 kept"),
    ("auto_snapshot_4KiB_hot", Goal::AtMost(1.05), "nine of ten writes in 1/128 of the file"),
    ("auto_snapshot_64B", Goal::AtMost(1.05), "64 bytes, to the same writes without snapshots"),
    ("auto_snapshot_64B_hot", Goal::AtMost(1.05), "64 bytes, among hot spots"),
    ("first_touch_4KiB", Goal::AtMost(1.6), "the first write to a page, to a later one"),
    ("snapshot_100GiB_us", Goal::AtMost(50.0), "a snapshot of a sparse file in memory, µs"),
    ("snapshot_read_4KiB_changed", Goal::AtMost(1.5), "a read of a snapshot, to the present"),
    ("snapshot_read_4KiB_unchanged", Goal::AtMost(1.5), "a page that has not changed since"),
    ("space_per_changed_slice_pages", Goal::AtMost(1.1), "disk space for each byte of whole pages"),
    ("space_per_changed_slice_lone", Goal::AtMost(1.1), "disk space for each byte of lone slices"),
    ("sums_write_4KiB", Goal::AtMost(1.2), "4 KiB with page sums, to a file without"),
    ("sums_write_64B", Goal::AtMost(1.35), "64 bytes with page sums"),
    ("sums_read_4KiB", Goal::AtMost(1.35), "4 KiB, verified by each read, to a file without sums"),
    ("cold_scan_vs_plain", Goal::AtMost(1.5), "a scan of what is not in memory"),
    ("cold_scan_away_vs_plain", Goal::AtMost(1.5), "where all is in the reflection file"),
    ("opens_10000_files", Goal::AtLeast(1.0), "1 if a process can have that many files open"),
    (
        "adaptive_worst",
        Goal::AtMost(1.05),
        "`Adaptive` to the best other policy, in the worst cell",
    ),
    (
        "ycsb_worst_vs_baselines",
        Goal::AtLeast(1.0),
        "YCSB B to E with the worker, to the best baseline",
    ),
    ("ram_adaptive_worst", Goal::AtMost(1.05), "the same in RAM"),
    ("budget_hot_4KiB", Goal::AtLeast(0.8), "hot spots with a budget of a tenth of the file"),
    ("budget_hot_64B", Goal::AtLeast(0.8), "the same, 64 bytes"),
    (
        "sparse_disk_per_touched_byte",
        Goal::AtMost(1.1),
        "companions of a sparse file, once the worker has nothing left to do",
    ),
    // Stages, in `stage.json`.
    ("stage_64KiB_vs_write", Goal::AtMost(0.6), "64 KiB that arrive by read(2), to read and write"),
    ("ram_stage_64KiB_vs_write", Goal::AtMost(0.6), "the same, where only the process can die"),
];

/// Returns the goal with this name.
pub fn goal(name: &str) -> Option<Goal> {
    GOALS.iter().find(|(known, ..)| *known == name).map(|(_, goal, _)| *goal)
}
