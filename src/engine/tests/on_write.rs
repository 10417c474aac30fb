//! Tests of `deploy::on_write`.

use super::fixture::{open, options};
use crate::bitmap::Validity;
use crate::engine::deploy::on_write::REMEMBERED;
use crate::units::PAGE;
use crate::{AtomicMappedFile, DeployPolicy};

const LEN: u64 = 1 << 20;

/// Start of the four pages.
const START: u64 = 8 * PAGE as u64;

const COUNT: usize = 4;

fn file(folder: &std::path::Path, policy: DeployPolicy) -> AtomicMappedFile {
    open(folder, options(LEN).deploy(policy))
}

/// Writes some slices of each page, which sends them to the other side.
fn scatter(file: &AtomicMappedFile, n: u8) {
    let pages = (START..).step_by(PAGE).take(COUNT);
    for at in pages.flat_map(|page| [page + 200, page + 2000]) {
        file.write_at(&[n; 100], at).expect("a write");
    }
}

fn read(file: &AtomicMappedFile) -> Vec<u8> {
    let mut found = vec![0; COUNT * PAGE];
    file.read_at(&mut found, START).expect("a read");
    found
}

/// Writes the pages, and returns how many of them the write deployed.
fn write(file: &AtomicMappedFile, n: u8) -> u64 {
    let before = file.stats().deployments;
    let bytes: Vec<u8> = (0..COUNT * PAGE).map(|at| n ^ (at / 64) as u8).collect();
    file.write_at(&bytes, START).expect("a write");
    let deployed = file.stats().deployments - before;
    assert!(read(file) == bytes);
    deployed
}

#[test]
fn a_write_of_whole_pages_defragments_them_after_a_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = file(folder.path(), DeployPolicy::Lazy);
    assert_eq!(write(&file, 1), 0, "undeployed as a whole");
    scatter(&file, 2);
    assert_eq!(write(&file, 3), 0, "no thread has read the fragmented pages");
    // The last write left the pages fragmented, and then they were read.
    assert_eq!(write(&file, 4), COUNT as u64);
    let region = file.engine().state.touched(crate::units::RegionIndex(0)).expect("touched");
    assert!((8..12).all(|n| region.validity(n) == Validity(0)));
    assert_eq!(write(&file, 5), 0, "not fragmented");
    scatter(&file, 6);
    assert_eq!(write(&file, 7), 0, "for each read once");
}

#[test]
fn a_write_to_pinned_pages_goes_through_the_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = file(folder.path(), DeployPolicy::Lazy);
    scatter(&file, 1);
    read(&file);
    let page = START..START + PAGE as u64;
    let view = file.view(page.clone()).expect("a view");
    let seen = view.to_vec().expect("its bytes");
    file.write_at(&[2; 100], START + 200).expect("a write");
    read(&file);
    assert_eq!(write(&file, 3), 0, "all of it");
    assert!(view.to_vec().expect("its bytes") == seen);
}

#[test]
fn reads_of_long_ago_are_not_made_up_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = file(folder.path(), DeployPolicy::Lazy);
    scatter(&file, 0);
    // A thread that only reads deploys the fragmented pages that it finds.
    (0..1000).for_each(|_| {
        scatter(&file, 0);
        read(&file);
    });
    let mut deployed = 0;
    for n in 0..100 {
        scatter(&file, n);
        let before = file.stats().deployments;
        file.write_at(&[n; COUNT * PAGE], START).expect("a write");
        deployed += file.stats().deployments - before;
    }
    let most = REMEMBERED as u64 + COUNT as u64;
    assert!((REMEMBERED as u64..=most).contains(&deployed), "{deployed}");
}

#[test]
fn a_write_defragments_nothing_under_the_manual_policy() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = file(folder.path(), DeployPolicy::Manual);
    scatter(&file, 1);
    read(&file);
    assert_eq!(write(&file, 2) + write(&file, 3), 0);
}

/// Pages of a region that is locked as a whole, pages of two regions, and pages of several
/// parts.
#[test]
fn a_write_defragments_only_fragmented_pages() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = file(folder.path(), DeployPolicy::Lazy);
    let mut expected = vec![0; LEN as usize];
    let page = |n: u64| n * PAGE as u64;
    let mut write = |segments: &[(u64, usize)], n: u8| {
        let mut tx = file.begin();
        for &(at, len) in segments {
            let bytes: Vec<u8> = (0..len).map(|at| n ^ (at / 64) as u8).collect();
            tx.write_at(&bytes, at).expect("a write");
            expected[at as usize..at as usize + len].copy_from_slice(&bytes);
        }
        let before = file.stats().deployments;
        tx.commit().expect("a commit");
        let deployed = file.stats().deployments - before;
        // Gather directly: a read might deploy the pages.
        let mut found = vec![0; LEN as usize];
        file.engine().gather(&mut found, 0..LEN).expect("bytes");
        assert!(found == expected);
        deployed
    };
    /// Fragmented pages, the parts that are written, and the number of pages that are deployed.
    type Case<'a> = (&'a [u64], &'a [(u64, usize)], u64);
    let cases: [Case<'_>; 4] = [
        (&[3, 7, 11], &[(0, 12 * PAGE)], 3),
        (&[61, 66], &[(page(60), 8 * PAGE)], 2),
        (&[20, 70, 71], &[(page(20), 2 * PAGE), (page(70), 100), (page(71), PAGE)], 2),
        // The write is too long for its pages to be checked.
        (&[130, 140], &[(page(128), 17 * PAGE)], 0),
    ];
    for (n, (scattered, segments, deployed)) in (1..).zip(cases) {
        for &place in scattered {
            let slices: Vec<_> = (0..6).map(|n| (page(place) + n * 256, 64)).collect();
            write(&slices, 100 + n);
            let mut bytes = [0; 2 * PAGE];
            file.read_at(&mut bytes, page(place) - 64).expect("a read");
        }
        assert_eq!(write(segments, n), deployed, "{n}");
    }
}
