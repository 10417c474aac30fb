//! The repeated papers and their results.
//!
//! This module holds facts and numbers only. A baseline is never slowed down to reproduce them.
//! Each claim names the reasons for different results of a fair comparison.

use super::figure::Figure;

pub const ACUMEN: &str = "Acumen";
pub const MGSP: &str = "MGSP";
pub const LIBNVMMIO: &str = "Libnvmmio";
pub const RMMIO: &str = "RMMIO";
pub const ADL: &str = "ADL";

/// A ratio that a paper states.
pub struct Claim {
    /// The place in the paper.
    pub place: &'static str,
    /// The faster system, the slower one, and the operation.
    pub pair: &'static str,
    pub ratio: f64,
    /// Parts of the names here, of the faster and of the slower system.
    pub faster: &'static str,
    pub slower: &'static str,
    /// The figure here and its tick.
    pub figure: &'static str,
    pub tick: &'static str,
    /// The reasons why a fair comparison differs.
    pub fair: &'static str,
}

/// Prefix of this crate's name. This crate continues Acumen's work.
pub const OURS: &str = "atomic-mmap";

pub const CLAIMS: &[Claim] = &[
    Claim {
        place: "Acumen, V-A, figure 3a",
        pair: "Acumen to NOVA, random writes of 1 KiB",
        ratio: 18.9,
        faster: OURS,
        slower: "NOVA",
        figure: "write-random",
        tick: "1 KiB",
        fair: "There NOVA's atomic mmap copies all of the file's pages when it is mapped, and each write \
               is followed by an msync, a system call into that file system. Here its way is a function \
               in the same process: what is left is a page copied out, and a page copied back.",
    },
    Claim {
        place: "Acumen, V-A, figure 3a",
        pair: "Acumen to Libnvmmio, random writes of 1 KiB",
        ratio: 3.2,
        faster: OURS,
        slower: "Libnvmmio",
        figure: "write-random",
        tick: "1 KiB",
        fair: "On Optane the second copy of the data is paid in write bandwidth (a few GB/s); in DRAM, \
               which stands in for it here, drains cost more than bytes of this size.",
    },
    Claim {
        place: "Acumen, V-A, figure 3",
        pair: "Acumen to NOVA, 80 % reads of 1 KiB",
        ratio: 2.5,
        faster: OURS,
        slower: "NOVA",
        figure: "mix-1KiB",
        tick: "80 %",
        fair: "As above; Acumen deploys with the first read, this crate's reads gather, and only long ones deploy.",
    },
    Claim {
        place: "Acumen, V-A, figure 3",
        pair: "Acumen to Libnvmmio, 80 % reads of 1 KiB",
        ratio: 1.2,
        faster: OURS,
        slower: "Libnvmmio",
        figure: "mix-1KiB",
        tick: "80 %",
        fair: "As above.",
    },
    Claim {
        place: "MGSP, IV-B, figure 8a",
        pair: "MGSP to Libnvmmio, sequential writes of 4 KiB and more, a sync each",
        ratio: 4.3,
        faster: "MGSP",
        slower: "Libnvmmio",
        figure: "write-sequential",
        tick: "4 KiB",
        fair: "4.3 is the best of 3.23 to 4.3 over the sizes. There Libnvmmio's sync checkpoints the log \
               while the next write waits, behind a call that is intercepted; here both are functions \
               with the same copies and drains.",
    },
    Claim {
        place: "RMMIO, IV-C, figure 10c",
        pair: "RMMIO to Libnvmmio, threads that write 4 KiB to files of their own",
        ratio: 2.31,
        faster: "RMMIO",
        slower: "Libnvmmio",
        figure: "threads-4KiB-sequential",
        tick: "4",
        fair: "There up to 16 threads with a file each, on twelve Optane modules, and a log uses up \
               their bandwidth; here threads in ranges of one file, and as many as this machine has cores for.",
    },
    Claim {
        place: "RMMIO, IV-B, figure 9a",
        pair: "RMMIO to Libnvmmio, sequential writes of 4 KiB",
        ratio: 1.98,
        faster: "RMMIO",
        slower: "Libnvmmio",
        figure: "write-sequential",
        tick: "4 KiB",
        fair: "There Libnvmmio's blocks are not aligned to what Optane is written in (256 bytes and \
               4 KiB), which costs it more than here.",
    },
    Claim {
        place: "ADL, 6.1, figure 4a",
        pair: "ADL to copy-on-write, sequential writes of 1 KiB",
        ratio: 2.497,
        faster: "ADL",
        slower: "NOVA",
        figure: "write-sequential",
        tick: "1 KiB",
        fair: "There every cache line is flushed by clflush, with a delay for persistent memory; here \
               bytes are cheaper, and the drains, of which a log needs more, are not.",
    },
];

impl Claim {
    /// Returns the ratio of this pair here, and the ratio of this crate to the slower system. Both
    /// are ratios of throughputs.
    pub fn measured<'a>(
        &self,
        mut figures: impl Iterator<Item = &'a Figure>,
    ) -> (Option<f64>, Option<f64>) {
        let Some(figure) = figures.find(|figure| figure.id == self.figure) else {
            return (None, None);
        };
        let to_slower = |name: &str| {
            Some(figure.value(name, self.tick)? / figure.value(self.slower, self.tick)?)
        };
        (to_slower(self.faster), to_slower(OURS))
    }
}
