//! Tests of `deploy::on_read`.

use super::fixture::{fill, open, options};
use crate::AtomicMappedFile;
use crate::config::DeployPolicy;
use crate::engine::deploy::policy::{BLOCK, ENOUGH, ONLY_READS, SAMPLED, SAMPLED_OF_SEVERAL};
use crate::pair::page_table::known;
use crate::units::{PAGE, PageIndex};

const LEN: u64 = 1 << 20;

/// Creates a file with all pages deployed.
fn file(folder: &std::path::Path, policy: DeployPolicy) -> AtomicMappedFile {
    let file = open(folder, options(LEN).deploy(policy));
    fill(&file, 1, LEN);
    file.deploy(0..LEN).expect("a deployment");
    file
}

/// Reads 16 bytes at `offset` `count` times, alternating with two other pages. Returns the
/// number of deployed pages.
fn after_reads(file: &AtomicMappedFile, count: u64, offset: u64) -> u64 {
    let before = file.stats().deployments;
    for _ in 0..count {
        assert_eq!(file.load::<[u8; 16]>(offset).expect("a read"), [7; 16]);
        for elsewhere in [LEN / 2, LEN - 4096] {
            assert_eq!(file.load::<u8>(elsewhere).expect("a read"), 1);
        }
    }
    file.stats().deployments - before
}

const FEW: u64 = ONLY_READS / 3 + SAMPLED as u64 * (ENOUGH as u64 - 2);

const MANY: u64 = ONLY_READS / 3 + SAMPLED as u64 * (ENOUGH as u64 + 2);

#[test]
fn a_page_is_deployed_after_many_reads_without_a_write() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = file(folder.path(), DeployPolicy::Lazy);
    let write = |offset| file.write_at(&[7; 100], offset).expect("a write");
    // A range within a page, and one over two pages.
    for (offset, pages) in [(4096, 1), (3 * 4096 - 8, 2)] {
        // Each write sends its slices to the other side: undeployed, deployed, undeployed.
        for _ in 0..51 {
            write(offset);
            assert_eq!(after_reads(&file, FEW, offset), 0, "a write begins anew");
        }
        assert_eq!(after_reads(&file, MANY, offset), pages);
        assert_eq!(after_reads(&file, 4 * MANY, offset), 0, "they are deployed");
        write(offset);
        assert_eq!(after_reads(&file, MANY, offset), pages, "once more");
    }
    let view = file.view(4096..4096 + 100).expect("a view");
    write(4096);
    assert_eq!(after_reads(&file, 4 * MANY, 4096), 0, "not while a view pins it");
    drop(view);
    assert_eq!(after_reads(&file, MANY, 4096), 1);
}

#[test]
fn reads_at_one_place_deploy_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = file(folder.path(), DeployPolicy::Lazy);
    // Pages that short reads visit once, from one end to the other, are not deployed either.
    file.write_at(&[7; 65], 0).expect("a write");
    (1..256).for_each(|page| file.write_at(&[7; 65], page * 4096).expect("a write"));
    for _ in 0..1000 {
        file.load::<u8>(0).expect("a read");
    }
    for at in (0..LEN).step_by(16) {
        file.load::<[u8; 16]>(at).expect("a read");
    }
    assert_eq!(file.stats().deployments, 0);
}

#[test]
fn reads_at_each_of_several_places_are_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = file(folder.path(), DeployPolicy::Lazy);
    // Page counts that might be in step with the sampling: the sampling rate and a multiple of
    // it. Fibonacci numbers too: after that number of pages, nearly the same reads are counted
    // again.
    for count in [SAMPLED.into(), 9 * u64::from(SAMPLED), 8, 13, 21, 34, 55, 89] {
        let before = file.stats().deployments;
        let places = (0..count).map(|n| n * 4096);
        places.clone().for_each(|at| file.write_at(&[7; 65], at).expect("a write"));
        for _ in 0..50_000 / count {
            places.clone().for_each(|at| assert_eq!(file.load::<u8>(at).expect("a read"), 7));
        }
        assert_eq!(file.stats().deployments - before, count, "of {count}");
        // Deploy all, so that the next writes go to the reflection file.
        file.deploy(0..LEN).expect("a deployment");
    }
}

#[test]
fn a_block_is_deployed_as_a_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = file(folder.path(), DeployPolicy::Lazy);
    file.write_at(&[7; 64 << 10], 64 << 10).expect("a write");
    assert_eq!(after_reads(&file, MANY, (64 << 10) + 3 * 4096), 16);
    // Each page by its own slice word.
    (0..16).for_each(|n| {
        file.write_at(&[7; 4096], (768 << 10) + n * 4096).expect("a write");
    });
    assert_eq!(after_reads(&file, MANY, (768 << 10) + 3 * 4096), 16);
    // A longer range is deployed block by block.
    file.write_at(&[7; 128 << 10], 256 << 10).expect("a write");
    assert_eq!(after_reads(&file, 4 * MANY, 256 << 10), 16);
}

#[test]
fn pages_that_are_read_together_are_deployed_sooner() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = file(folder.path(), DeployPolicy::Lazy);
    let read = |times: u64| {
        let (mut to, before) = ([0; 2 * PAGE], file.stats().deployments);
        (0..times).for_each(|_| file.read_at(&mut to, 8 * PAGE as u64).expect("a read"));
        assert_eq!(to, [7; 2 * PAGE]);
        file.stats().deployments - before
    };
    for _ in 0..3 {
        file.write_at(&[7; 2 * PAGE], 8 * PAGE as u64).expect("a write");
        (0..ONLY_READS).for_each(|_| assert_eq!(file.load::<u8>(0).expect("a read"), 1));
        assert_eq!(read(u64::from(SAMPLED_OF_SEVERAL) * (u64::from(ENOUGH) - 2)), 0);
        assert_eq!(read(u64::from(SAMPLED_OF_SEVERAL) * 4), 2);
    }
}

/// The slice words, which any other way would need, are not allocated.
#[test]
fn pages_without_slice_words_are_deployed() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = open(folder.path(), options(LEN));
    fill(&file, 1, LEN);
    file.write_at(&[7; 64 << 10], 0).expect("a write");
    assert_eq!(file.engine().alloc_flags_of(PageIndex(0)) & known::SLICE_WORDS, 0);
    assert_eq!(after_reads(&file, MANY, 3 * 4096), BLOCK as u64);
    assert_eq!(file.engine().alloc_flags_of(PageIndex(0)) & known::SLICE_WORDS, 0, "nor now");
}

// Other systems do not report holes of the home file.
#[cfg(all(target_os = "linux", not(atomic_mmap_portable)))]
#[test]
fn pages_of_an_earlier_session_are_deployed() {
    let folder = tempfile::tempdir().expect("a folder");
    let before = file(folder.path(), DeployPolicy::Lazy);
    before.write_at(&[7; 4096], 4096).expect("a write");
    before.write_at(&[7; 64 << 10], 64 << 10).expect("a write");
    before.close(crate::CloseMode::Fast).expect("closed");
    let file = open(folder.path(), options(LEN));
    assert_eq!(after_reads(&file, MANY, 64 << 10), 16);
    assert_eq!(after_reads(&file, MANY, 4096), 1);
}

#[test]
fn no_reader_waits_for_a_writer() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = file(folder.path(), DeployPolicy::Lazy);
    file.write_at(&[7; 4096], 4096).expect("a write");
    let region = file.engine().state.loaded(crate::units::RegionIndex(0)).expect("loaded");
    // A deployment of eight pages locks the region, so the locks of all its pages matter.
    for (held, read, pages) in [(1, 1, 1), (9, 8, 8), (40, 8, 8)] {
        if read == 8 {
            file.write_at(&[7; 8 * 4096], 8 * 4096).expect("a write");
        }
        let held = crate::lock::lock_page(&region.lock, &region.pages[held].lock);
        assert_eq!(after_reads(&file, 4 * MANY, read * 4096), 0);
        drop(held);
        assert_eq!(after_reads(&file, MANY, read * 4096), pages);
    }
}

#[test]
fn reads_deploy_nothing_by_another_policy_or_to_a_hole() {
    let folder = tempfile::tempdir().expect("a folder");
    let manual = file(folder.path(), DeployPolicy::Manual);
    manual.write_at(&[7; 65], 0).expect("a write");
    assert_eq!(after_reads(&manual, 4 * MANY, 0), 0);
    drop(manual);
    let sparse = file(folder.path(), DeployPolicy::Lazy);
    sparse.set_len(8 << 20).expect("longer");
    sparse.write_at(&[7; 4096], 4 << 20).expect("a write");
    assert_eq!(after_reads(&sparse, 4 * MANY, 4 << 20), 0, "the home file has a hole there");
}

/// A file in memory is allocated in pieces. Chunks with holes were left out as a whole, although a
/// page that was written twice has storage at home.
#[test]
fn reads_deploy_a_page_with_storage_in_a_chunk_with_holes() {
    let folder = tempfile::tempdir().expect("a folder");
    let sparse = file(folder.path(), DeployPolicy::Lazy);
    sparse.set_len(8 << 20).expect("longer");
    assert_eq!(sparse.load::<u8>((4 << 20) + 9000).expect("a read"), 0, "of a hole");
    for n in 5..8 {
        sparse.write_at(&[n; 4096], 4 << 20).expect("a write");
    }
    assert_eq!(after_reads(&sparse, 4 * MANY, 4 << 20), 1);
}
