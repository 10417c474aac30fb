//! Which reads count, and when they have lost enough to deploy a page.
//!
//! All numbers of deployment on read are here. `deploy::on_read` explains the idea.
//!
//! May import `commit`, `durable`, `io`, `plan`, `pair`, and what lies below them.

use crate::bitmap::Validity;
use crate::config::DeployPolicy;
use crate::engine::Engine;
use crate::engine::plan::PAGES_FOR_REGION_LOCK;
use crate::pair::hints::is_one_in;
use crate::pair::log::lane::Lane;
use crate::pair::region::RegionState;
use crate::pair::stamps::NOTED;
use crate::primitive::{AtomicU8, Ordering};
use crate::units::{PAGE, PAGES_PER_REGION};
use std::ops::Range;

/// Shortest length in bytes of a long read.
pub(in crate::engine) const LONG: u64 = 64 << 10;

/// One read in this many is counted. Models of schedules are short, so their first read deploys the
/// page.
pub(in crate::engine) const SAMPLED: u32 = if cfg!(shuttle) { 1 } else { 7 };

/// One read of more than a page in this many is counted. Those reads lose more, and counting costs
/// little in comparison. No read of 64 bytes has to pay for it.
pub(in crate::engine) const SAMPLED_OF_SEVERAL: u32 = if cfg!(shuttle) { 1 } else { 2 };

/// Counted reads after which a page is deployed.
pub(in crate::engine) const ENOUGH: u8 = if cfg!(shuttle) { 1 } else { 4 };

/// A thread counts as read-only after this many reads since its last write. A deployment counts as
/// a write, so a thread deploys at most once per this many reads.
pub(in crate::engine) const ONLY_READS: u64 = if cfg!(shuttle) { 0 } else { 64 };

/// Pages in an aligned block. A database page of up to 64 KiB, written as one block, may lie in the
/// reflection file as a whole. Then it is deployed as one, so that it stays on one side and in one
/// piece. Blocks are not larger, since a read must not wait for the copy of more bytes.
pub(in crate::engine) const BLOCK: usize = 16;

const _: () = assert!(PAGES_PER_REGION.is_multiple_of(BLOCK));

// The reads that set stamps are among the reads that are counted: one comparison finds both.
const _: () = assert!(NOTED >= SAMPLED);

/// Returns `true` if the lane's read with this number, of `len` bytes, is counted, should its pages
/// not be deployed.
pub(in crate::engine) fn is_counted_of(lane: &Lane, number: u64, len: usize) -> bool {
    is_one_in(if len > PAGE { SAMPLED_OF_SEVERAL } else { SAMPLED }, number) && only_reads(lane)
}

/// Returns `true` if the lane's thread has written nothing for a while.
#[inline(always)]
pub(in crate::engine) fn only_reads(lane: &Lane) -> bool {
    lane.reads().wrapping_sub(lane.recent.reads_before_write()) >= ONLY_READS
}

/// Returns `true` if `len` bytes in this number of pieces take less time to deploy than to read a
/// few more times. Each piece begins with a miss, but in short reads all those misses overlap. The
/// deployment is paid for by the writes that have fragmented the bytes: only pages written since
/// are deployed. See `docs/decisions/long-reads.md`.
pub(in crate::engine) fn is_too_fragmented(pieces: usize, len: u64) -> bool {
    len >= LONG && pieces as u64 > 1 + len / LONG
}

/// Returns the pages to deploy together with page `n`. If it lies in the reflection file as a
/// whole, these include its neighbours in the block that do too.
pub(in crate::engine) fn containing_block(region: &RegionState, n: usize) -> Range<usize> {
    let is_away = |n: &usize| region.validity(*n) == Validity(!0);
    if !is_away(&n) {
        return n..n + 1;
    }
    let start = n / BLOCK * BLOCK;
    let before = (start..n).rev().take_while(is_away).count();
    let behind = (n + 1..start + BLOCK).take_while(is_away).count();
    n - before..n + 1 + behind
}

/// Returns `true` if a writer holds a lock that the deployment of these pages would take.
pub(in crate::engine) fn are_held(region: &RegionState, pages: &Range<usize>) -> bool {
    let locks_region = pages.len() >= PAGES_FOR_REGION_LOCK as usize;
    let locked = if locks_region { &region.pages } else { &region.pages[pages.clone()] };
    region.lock.is_locked() || locked.iter().any(|page| page.lock.is_locked())
}

/// The policy of one file, which may change at any time.
pub(in crate::engine) struct PolicyCell(AtomicU8);

impl PolicyCell {
    pub fn new(policy: DeployPolicy) -> Self {
        PolicyCell(AtomicU8::new(policy as u8))
    }

    fn get(&self) -> DeployPolicy {
        let now = self.0.load(Ordering::Relaxed);
        let all = [DeployPolicy::Lazy, DeployPolicy::Eager, DeployPolicy::Manual];
        all.into_iter().find(|policy| *policy as u8 == now).unwrap_or(DeployPolicy::Adaptive)
    }

    fn set(&self, policy: DeployPolicy) {
        self.0.store(policy as u8, Ordering::Relaxed);
    }

    /// Returns `true` if a write may deploy its pages.
    #[inline(always)]
    pub fn deploys_writes(&self) -> bool {
        self.0.load(Ordering::Relaxed) & DeployPolicy::DEPLOYS_WRITES != 0
    }

    /// Returns `true` if reads deploy pages.
    fn deploys_reads(&self) -> bool {
        self.0.load(Ordering::Relaxed) & DeployPolicy::DEPLOYS_READS != 0
    }
}

impl Engine {
    /// Returns `true` if reads of this file deploy pages. They enter no gate, so they do not where
    /// cuts are taken.
    pub(super) fn deploys_on_read(&self) -> bool {
        self.policy.deploys_reads() && !self.keeps_cuts
    }

    /// Returns the policy of this file.
    pub fn policy(&self) -> DeployPolicy {
        self.policy.get()
    }

    /// Changes the policy of this file. Operations that run may go by the old one.
    pub fn set_policy(&self, policy: DeployPolicy) {
        self.policy.set(policy);
    }
}
