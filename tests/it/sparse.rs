//! Tests that a large sparse file takes DRAM only for the ranges that were used.
//!
//! A child process measures its own memory, which no other test uses meanwhile.

use crate::common::{self, role, run_child};
use atomic_mmap::{AtomicMappedFile, CloseMode};

const CHILD: &str = concat!(module_path!(), "::what_was_not_touched_costs_nothing");

/// Returns the bytes of memory of this process that map no file.
fn anonymous_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).expect("RssAnon");
    let kilobytes = line.split_whitespace().nth(1).expect("a number");
    kilobytes.parse::<u64>().expect("a number") * 1024
}

/// Deploying a range once loaded the state of every region in it, and truncation loaded it for
/// every GiB. A sparse file of 100 GiB with a few written pages took 800 MB and 6 MB.
#[test]
fn what_was_not_touched_costs_nothing() {
    if role().is_none() {
        run_child(CHILD, "measures", "");
        return;
    }
    const LEN: u64 = 100 << 30;
    for ground in common::media() {
        let scratch = ground.scratch();
        let path = scratch.file("sparse.dat");
        let places = [17, 3 << 30, (50 << 30) + 4090, LEN - 100];
        let open = || -> AtomicMappedFile {
            ground.options().create(true).len(LEN).open(&path).expect("open")
        };
        // Large enough for the reflection file on every medium.
        let data = [7; 1000];
        let file = open();
        let before = anonymous_memory();
        for place in places {
            file.write_at(&data[..100], place).expect("write");
            file.write_at(&data, place.min(LEN - 1000)).expect("write");
        }
        file.close(CloseMode::Fast).expect("close");

        let file = open();
        let deployed = file.deploy(0..LEN).expect("deploy");
        assert!(deployed >= 4, "{ground:?}: {deployed} pages came home");
        assert_eq!(file.deploy(0..LEN).expect("deploy"), 0, "{ground:?}");
        let mut back = [0; 1000];
        for place in places {
            file.read_at(&mut back, place.min(LEN - 1000)).expect("read");
            assert_eq!(back, data, "{ground:?} at {place}");
        }
        file.set_len(1 << 20).expect("cut");
        file.set_len(LEN).expect("grow");
        file.read_at(&mut back, 3 << 30).expect("read");
        assert_eq!(back, [0; 1000], "{ground:?}: truncated bytes are zero");
        file.read_at(&mut back, 17).expect("read");
        assert_eq!(back, data, "{ground:?}: the other bytes are unchanged");
        let grown = anonymous_memory().saturating_sub(before);
        // Room for two sessions, a chunk list for each GiB that punching scans, and slack.
        assert!(grown < 64 << 20, "{ground:?}: {grown} bytes");
        file.close(CloseMode::Spatial).expect("close");
    }
}

const CHILD_IN_THE_BACKGROUND: &str =
    concat!(module_path!(), "::what_comes_home_in_the_background_takes_the_memory_of_its_regions");

/// The worker once loaded all regions of each chunk that it visited, and stamped each page that it
/// deployed: 31 KB for each page of a sparse file.
#[test]
fn what_comes_home_in_the_background_takes_the_memory_of_its_regions() {
    // On the portable path each durable point goes through all of the file.
    const PAGES: u64 = if cfg!(atomic_mmap_portable) { 32 } else { 1024 };
    if role().is_none() {
        run_child(CHILD_IN_THE_BACKGROUND, "measures", "");
        return;
    }
    for ground in common::media() {
        let scratch = ground.scratch();
        let options = ground.options().create(true).len(PAGES << 21);
        let options = options.deploy_idle(std::time::Duration::from_millis(20));
        let file = options.open(scratch.file("sparse.dat")).expect("open");
        let before = anonymous_memory();
        (0..PAGES).for_each(|n| file.write_at(&[7; 64], n << 21).expect("write"));
        common::wait_until("all comes home", || file.stats().cold_deployments >= PAGES);
        // The state of a region, and what the worker remembers of it: 4 KB.
        let each = anonymous_memory().saturating_sub(before) / PAGES;
        // A few pages do not pay for what the file takes anyway.
        assert!(each < 8000 || PAGES < 1000, "{ground:?}: {each} bytes a page");
    }
}
