//! Committed offsets of 10,000 partitions, from several threads and out of order.
//!
//! ```sh
//! cargo run --release --example offsets               # in the temporary folder
//! cargo run --release --example offsets -- /dev/shm
//! ```
//!
//! A consumer's workers finish messages in any order, and an offset must never go back. So each
//! commit is a `fetch_max`: one atomic operation on eight bytes, which survives a process crash.
//! After every 10,000 messages a worker waits until its commits survive a power loss. Workers that
//! wait at the same time share one barrier of the disk.

mod scratch;

use atomic_mmap::{AtomicMappedFile, CloseMode, Error};
use std::thread;
use std::time::Instant;

const PARTITIONS: u64 = 10_000;
const WORKERS: u64 = 4;
const COMMITS_PER_WORKER: u64 = 200_000;
const BATCH: u64 = 10_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scratch = scratch::Scratch::from_args()?;
    let path = scratch.path("offsets");
    let file = AtomicMappedFile::create(&path, PARTITIONS * 8)?;
    println!("{}: {}, survives {:?}", path.display(), file.medium(), file.survives_after_sync());

    let started = Instant::now();
    let workers: Vec<_> = thread::scope(|scope| {
        let file = &file;
        let threads: Vec<_> = (0..WORKERS).map(|n| scope.spawn(move || work(file, n))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let mut expected = vec![0; PARTITIONS as usize];
    for committed in workers {
        expected.iter_mut().zip(committed?).for_each(|(most, offset)| *most = offset.max(*most));
    }
    let rate = (WORKERS * COMMITS_PER_WORKER) as f64 / started.elapsed().as_secs_f64();
    println!("{rate:.0} commits a second, behind {} durable points", file.durable_number());

    // A restart. A fast close leaves both files as they are, so the next open is quick.
    file.close(CloseMode::Fast)?;
    let file = AtomicMappedFile::open(&path)?;
    let mut found = vec![0; PARTITIONS as usize];
    file.array::<u64>(0, PARTITIONS)?.get_many(0, &mut found)?; // all of one moment
    if found != expected {
        return Err("an offset is not the largest one that was committed".into());
    }
    println!("opened again: all {PARTITIONS} offsets are the largest that were committed");
    Ok(())
}

/// Commits offsets of random partitions, some of them late. Returns the largest of each.
fn work(file: &AtomicMappedFile, worker: u64) -> Result<Vec<u64>, Error> {
    let offsets = file.array::<u64>(0, PARTITIONS)?;
    let mut largest = vec![0; PARTITIONS as usize];
    let mut random = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(worker + 1);
    for n in 0..COMMITS_PER_WORKER {
        random ^= random << 13; // xorshift64
        random ^= random >> 7;
        random ^= random << 17;
        let (partition, offset) = (random % PARTITIONS, n + (random >> 32) % 100);
        let before = offsets.slot(partition)?.fetch_max(offset)?;
        let largest: &mut u64 = &mut largest[partition as usize];
        *largest = offset.max(*largest);
        debug_assert!(before.max(offset) >= *largest, "no thread takes back an offset");
        if n % BATCH == BATCH - 1 {
            file.wait_durable(file.next_durable_number())?;
        }
    }
    Ok(largest)
}
