//! Committed offsets of 10,000 partitions, from several threads and out of order.
//!
//! ```sh
//! cargo run --release --example offsets               # in the temporary folder
//! cargo run --release --example offsets -- /dev/shm
//! ```
//!
//! A consumer's workers finish messages in any order, and an offset must never go back. So each
//! commit is a `fetch_max`, one atomic operation on eight bytes. After it returns, it survives a
//! process crash, and on `dax` also a loss of power. `sync` makes a durable point, and a loss of
//! power goes back to the last one. A `sync` waits for the disk, so the workers share one: it
//! covers all operations that returned before it began.
//! began.

mod scratch;

use atomic_mmap::{AtomicMappedFile, CloseMode, Error};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const PARTITIONS: u64 = 10_000;
const WORKERS: u64 = 4;
const COMMITS_PER_WORKER: u64 = 200_000;
const SYNC_EVERY: Duration = Duration::from_millis(20);

/// Most files begin with a header. The array after it may start at any offset.
const OFFSETS_AT: u64 = 100;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scratch = scratch::Scratch::from_args()?;
    let path = scratch.path("offsets");
    let file = AtomicMappedFile::create(&path, OFFSETS_AT + PARTITIONS * 8)?;
    println!("{}: {}, survives {:?}", path.display(), file.medium(), file.survives());

    let started = Instant::now();
    let (finished, late) = (AtomicU64::new(0), AtomicU64::new(0));
    let (expected, syncs) = thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                let (file, finished, late) = (&file, &finished, &late);
                scope.spawn(move || {
                    let result = commit_many(file, worker, late);
                    finished.fetch_add(1, Ordering::Release);
                    result
                })
            })
            .collect();
        // One durable point for all commits since the last one. A loss of power leaves the offsets
        // of one moment. A worker may have to tell the broker that its offset is on the disk. It
        // waits for the next point or calls `sync` itself: concurrent calls share a barrier.
        let mut syncs = 0;
        while finished.load(Ordering::Acquire) < WORKERS {
            thread::sleep(SYNC_EVERY);
            file.sync()?;
            syncs += 1;
        }
        let mut expected = vec![0; PARTITIONS as usize];
        for worker in workers {
            let committed =
                worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            for (most, committed) in expected.iter_mut().zip(committed) {
                *most = committed.max(*most);
            }
        }
        Ok::<_, Error>((expected, syncs))
    })?;
    let commits = WORKERS * COMMITS_PER_WORKER;
    let rate = commits as f64 / started.elapsed().as_secs_f64();
    println!("{commits} commits from {WORKERS} threads, {rate:.0} a second, {syncs} syncs");
    println!("{} of them came late, and changed nothing", late.into_inner());

    // A restart. A fast close leaves both files as they are, so the next open is quick.
    file.close(CloseMode::Fast)?;
    let file = AtomicMappedFile::open(&path)?;

    // All offsets of one moment: one read, even while other threads commit.
    let mut found = vec![0; PARTITIONS as usize];
    file.array::<u64>(OFFSETS_AT, PARTITIONS)?.get_many(0, &mut found)?;
    if found != expected {
        return Err("an offset is not the largest one that was committed".into());
    }
    println!("opened again: all {PARTITIONS} offsets are the largest that were committed");
    Ok(())
}

/// Commits offsets of random partitions, some of them out of order. Returns the largest of each.
fn commit_many(file: &AtomicMappedFile, worker: u64, late: &AtomicU64) -> Result<Vec<u64>, Error> {
    let offsets = file.array::<u64>(OFFSETS_AT, PARTITIONS)?;
    let mut largest = vec![0; PARTITIONS as usize];
    let mut random = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(worker + 1);
    for n in 0..COMMITS_PER_WORKER {
        // xorshift64
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let partition = random % PARTITIONS;
        // Messages finish up to a hundred places out of order.
        let offset = n + (random >> 32) % 100;
        let before = offsets.slot(partition)?.fetch_max(offset)?;
        late.fetch_add(u64::from(before >= offset), Ordering::Relaxed);
        let largest = &mut largest[partition as usize];
        *largest = offset.max(*largest);
        // No other thread can take back what this thread has committed.
        debug_assert!(before.max(offset) >= *largest);
    }
    Ok(largest)
}
