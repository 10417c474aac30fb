//! Compares this crate's writes with the fastest copies that the hardware allows.
//!
//! For each size, at random offsets, it measures bare copies to a mapping of one kind, and then
//! this crate's write. A bare copy takes one drain, or two: the minimum for data and a word that
//! makes the data valid. tmpfs is treated as persistent memory (`Medium::Dax` forced). On shared
//! machines only the ratios within a group are meaningful.
//!
//! Run with `cargo bench --bench limits`, or `-- --quick`. `ATOMIC_MMAP_BENCH_DIR` sets the folder.

extern crate atomic_mmap_instrumented as atomic_mmap;

use atomic_mmap::{AtomicMappedFile, DeployPolicy, Medium, Raw};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::path::PathBuf;

/// So large that neither the data nor the state fits the caches.
const FILE: u64 = 512 << 20;
const SIZES: [usize; 8] = [8, 64, 256, 1024, 4096, 16 << 10, 64 << 10, 1 << 20];

/// Random multiples of `step`, in an order that no prefetcher predicts.
struct Offsets {
    state: u64,
    step: u64,
}

impl Offsets {
    fn new(size: usize) -> Self {
        Offsets { state: 0x9E37_79B9_7F4A_7C15, step: size.max(4096) as u64 }
    }

    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state % (FILE / self.step) * self.step
    }
}

struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let shm = PathBuf::from("/dev/shm");
        let base = std::env::var_os("ATOMIC_MMAP_BENCH_DIR")
            .map_or_else(|| if shm.is_dir() { shm } else { std::env::temp_dir() }, PathBuf::from);
        let path = base.join(format!("atomic-mmap-bench-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a scratch folder");
        Scratch(path)
    }

    fn open(&self, name: &str, medium: Medium) -> AtomicMappedFile {
        AtomicMappedFile::options()
            .create(true)
            .len(FILE)
            .medium(medium)
            .deploy(DeployPolicy::Manual)
            .open(self.0.join(name))
            .expect("a file to measure on")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _best_effort = std::fs::remove_dir_all(&self.0);
    }
}

fn limits(c: &mut Criterion) {
    let scratch = Scratch::new();
    // Opening fails on a machine that cannot write lines back. There is nothing to compare then.
    let file = scratch.open("atomic", Medium::Dax);
    let bare = scratch.open("bare", Medium::Dax);
    let raw = Raw(&bare);
    raw.allocate().expect("space for the bare copies");
    let data = vec![0x5A; 1 << 20];
    // Allocates every page of every slot before the measurement, and defragments what smaller
    // writes have fragmented.
    let whole = || {
        for _ in 0..2 {
            for at in (0..FILE).step_by(data.len()) {
                file.write_at(&data, at).expect("space");
            }
        }
    };
    for at in (0..FILE).step_by(data.len()) {
        raw.copy_two_drains(&data, at);
    }
    for size in SIZES {
        file.deploy(0..FILE).expect("space");
        whole();
        let data = &data[..size];
        let mut group = c.benchmark_group(format!("write/{size}"));
        group.throughput(Throughput::Bytes(size as u64));
        let mut offsets = Offsets::new(size);
        group.bench_function("copy and one drain", |b| {
            b.iter(|| raw.copy_one_drain(data, offsets.next()));
        });
        group.bench_function("copy and two drains", |b| {
            b.iter(|| raw.copy_two_drains(data, offsets.next()));
        });
        group.bench_function("write_at", |b| {
            b.iter(|| file.write_at(data, offsets.next()).expect("space"));
        });
        group.finish();

        file.deploy(0..FILE).expect("space");
        let mut group = c.benchmark_group(format!("read/{size}"));
        group.throughput(Throughput::Bytes(size as u64));
        let mut buffer = vec![0; size];
        group.bench_function("copy", |b| {
            b.iter(|| raw.copy_out(black_box(&mut buffer), offsets.next()));
        });
        group.bench_function("read_at", |b| {
            b.iter(|| file.read_at(black_box(&mut buffer), offsets.next()).expect("in range"));
        });
        group.finish();
    }

    whole();
    let mut group = c.benchmark_group("several words");
    let mut offsets = Offsets::new(64 << 10);
    group.bench_function("16 KiB unaligned", |b| {
        b.iter(|| file.write_at(&data[..16 << 10], offsets.next() + 100).expect("space"));
    });
    for ranges in [2u64, 8, 64] {
        group.bench_with_input(
            BenchmarkId::new("transaction of 64 B", ranges),
            &ranges,
            |b, &n| {
                b.iter(|| {
                    let mut tx = file.begin();
                    for _ in 0..n {
                        tx.write_at(&data[..64], offsets.next()).expect("in range");
                    }
                    tx.commit().expect("no other thread interferes");
                });
            },
        );
    }
    group.bench_function("update of a u64", |b| {
        b.iter(|| file.update(offsets.next(), |n: &mut u64| *n += 1).expect("space"));
    });
    group.finish();
}

criterion_group!(benches, limits);
criterion_main!(benches);
