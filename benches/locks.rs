//! Compares three schemes of page and region locks.
//!
//! All schemes use one set of words. Each is measured alone, and with a second thread on other
//! pages of the region:
//! - *lazy*: the crate's scheme (`src/lock`). Page lockers leave an intention on the region, and
//!   the next region locker clears it (MGSP III-C2).
//! - *eager*: every page lock raises and lowers a count of intentions in the region's word.
//! - *single*: no region lock. A writer of many pages takes each page's lock.
//!
//! Run with `cargo bench --bench locks`. Results are in `docs/decisions/two-lock-granularities.md`.

#[allow(dead_code, unused_imports, unused_macros, reason = "the locks name a few of them")]
#[path = "../src/mutant/mod.rs"]
mod mutant;

#[allow(dead_code, unused_imports, reason = "the crate's own files, of which this uses a part")]
#[path = "../src/lock/mod.rs"]
mod lock;
#[allow(dead_code, unused_imports, unused_macros, reason = "as above")]
#[path = "../src/primitive/mod.rs"]
mod primitive;
#[allow(dead_code, unused_imports, reason = "as above")]
#[path = "../src/thread_cache.rs"]
mod thread_cache;
#[allow(dead_code, unused_imports, reason = "as above")]
#[path = "../src/units.rs"]
mod units;

use criterion::{Criterion, criterion_group, criterion_main};
use lock::{LockWord, lock_page, lock_region};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const PAGES: usize = 64;

/// The words of one region, with the crate's spacing: two pages a cache line.
struct Region {
    word: LockWord,
    count: AtomicU64,
    pages: Vec<Page>,
}

#[repr(align(32))]
struct Page {
    word: LockWord,
    eager: AtomicU64,
}

impl Region {
    fn new() -> Self {
        let page = || Page { word: LockWord::new(), eager: AtomicU64::new(0) };
        let pages = (0..PAGES).map(|_| page()).collect();
        Region { word: LockWord::new(), count: AtomicU64::new(0), pages }
    }

    fn lazy_page(&self, n: usize) {
        drop(lock_page(&self.word, &self.pages[n].word));
    }

    fn lazy_region(&self) {
        drop(lock_region(&self.word, self.pages.iter().map(|page| &page.word)));
    }

    /// The low half counts page lockers. The high half is the region's lock.
    fn eager_page(&self, n: usize) {
        const HELD: u64 = 1 << 32;
        while self.count.fetch_add(1, Ordering::SeqCst) >= HELD {
            self.count.fetch_sub(1, Ordering::SeqCst);
            std::hint::spin_loop();
        }
        while self.pages[n].eager.swap(1, Ordering::Acquire) == 1 {
            std::hint::spin_loop();
        }
        self.pages[n].eager.store(0, Ordering::Release);
        self.count.fetch_sub(1, Ordering::SeqCst);
    }

    fn eager_region(&self) {
        const HELD: u64 = 1 << 32;
        while self.count.compare_exchange(0, HELD, Ordering::SeqCst, Ordering::Relaxed).is_err() {
            std::hint::spin_loop();
        }
        self.count.fetch_sub(HELD, Ordering::SeqCst);
    }

    fn single_region(&self) {
        for page in &self.pages {
            while page.eager.swap(1, Ordering::Acquire) == 1 {
                std::hint::spin_loop();
            }
        }
        for page in &self.pages {
            page.eager.store(0, Ordering::Release);
        }
    }
}

/// Measures `one` while another thread runs `other` in a loop.
fn beside<T>(other: impl Fn() + Send + Sync, one: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                other();
            }
        });
        let result = one();
        stop.store(true, Ordering::Relaxed);
        result
    })
}

fn locks(c: &mut Criterion) {
    let r = Region::new();
    let mut group = c.benchmark_group("page lock, alone");
    group.bench_function("lazy", |b| b.iter(|| r.lazy_page(5)));
    group.bench_function("eager", |b| b.iter(|| r.eager_page(5)));
    group.finish();

    let mut group = c.benchmark_group("page lock, beside a writer of another page of the region");
    group.bench_function("lazy", |b| {
        beside(|| r.lazy_page(40), || b.iter(|| r.lazy_page(5)));
    });
    group.bench_function("eager", |b| {
        beside(|| r.eager_page(40), || b.iter(|| r.eager_page(5)));
    });
    group.finish();

    let mut group = c.benchmark_group("region lock");
    group.bench_function("lazy, no page lock since the last", |b| b.iter(|| r.lazy_region()));
    group.bench_function("lazy, a page lock before each", |b| {
        b.iter(|| {
            r.lazy_page(5);
            r.lazy_region();
        });
    });
    group.bench_function("eager", |b| b.iter(|| r.eager_region()));
    group.bench_function("single", |b| b.iter(|| r.single_region()));
    group.finish();
}

criterion_group!(benches, locks);
criterion_main!(benches);
